"""Labels over blocks, compared with those of the whole array."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import shutil
import tracemalloc
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import scipy.ndimage
import skimage.measure

import gzarr
from gzarr.blocks import Output, label
from gzarr.blocks.faces import BlockFaces, KeptFaces
from gzarr.errors import ArgumentError, OutputError

if TYPE_CHECKING:
    from pathlib import Path


def noise(shape: tuple[int, ...], density: float = 0.4) -> np.ndarray:
    return np.random.default_rng(0).random(shape) < density


def whole(mask: np.ndarray, connectivity: int = 1) -> tuple[np.ndarray, int]:
    return scipy.ndimage.label(mask, scipy.ndimage.generate_binary_structure(mask.ndim, connectivity))


@pytest.mark.parametrize("shape", [(100,), (33, 47), (21, 33, 29), (9, 10, 11, 12)], ids=str)
@pytest.mark.parametrize("block", [5, 8, -1])
def test_labels_are_those_of_the_whole_mask(shape: tuple[int, ...], block: int) -> None:
    for density in (0.2, 0.5, 0.7):
        mask = noise(shape, density)
        for connectivity in range(1, len(shape) + 1):
            expected, count = whole(mask, connectivity)
            found, objects = label(mask, block=block, connectivity=connectivity)
            assert objects == count
            assert found.dtype == np.uint32
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("shape", [(33, 47), (21, 33, 29)], ids=str)
def test_values_are_labelled_as_by_scikit_image(shape: tuple[int, ...]) -> None:
    values = np.random.default_rng(1).integers(-1, 2, shape).astype("i2")
    for connectivity in range(1, len(shape) + 1):
        expected = skimage.measure.label(values, connectivity=connectivity, background=-1)
        # Faces do not fit in an eighth of this, so they wait in a file.
        found, count = label(
            values, block=8, connectivity=connectivity, by_value=True, background=-1, budget_bytes=3000
        )
        assert count == expected.max()
        np.testing.assert_array_equal(found, expected)


def test_inputs_and_outputs_of_every_kind(tmp_path: Path) -> None:
    mask = noise((40, 50))
    stored = gzarr.array(mask.astype("u1") * 7, chunks=(16, 20), store=tmp_path / "mask", device="cpu")
    expected, count = whole(mask)
    found, objects = label(tmp_path / "mask", out=tmp_path / "labels", dtype="uint64")
    assert objects == count
    assert (found.dtype, found.chunks) == (np.dtype("u8"), (16, 20))
    np.testing.assert_array_equal(gzarr.open(tmp_path / "labels", device="cpu")[...], expected)
    out = np.zeros(mask.shape, "i2")
    assert label(stored, out=out)[0] is out
    np.testing.assert_array_equal(out, expected)
    part, _ = label(stored.view[3:, 10:41], out=Output({}, chunks=(8, 8)))
    np.testing.assert_array_equal(part[...], whole(mask[3:, 10:41])[0])
    floats, _ = label(mask.astype("f4") - 1, background=-1)
    np.testing.assert_array_equal(floats, expected)
    empty, objects = label(np.zeros((0, 5), bool))
    assert (empty.shape, objects) == ((0, 5), 0)


def test_a_function_makes_the_mask(tmp_path: Path) -> None:
    image = scipy.ndimage.gaussian_filter(np.random.default_rng(2).random((60, 70)), 2)

    def bright(x: np.ndarray) -> np.ndarray:
        return scipy.ndimage.uniform_filter(x, 5) > 0.5

    expected, count = whole(bright(image))
    for scratch in (None, tmp_path / "masks"):
        found, objects = label(image, function=bright, halo=2, block=20, scratch=scratch)
        assert objects == count > 5
        np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(gzarr.open(tmp_path / "masks", device="cpu")[...], expected > 0)


def test_a_run_goes_on(tmp_path: Path) -> None:
    mask = noise((64, 64))
    expected, count = whole(mask)
    label(mask, out=Output(tmp_path / "labels", chunks=16))
    labels = gzarr.open(tmp_path / "labels", mode="r+", device="cpu")
    labels[:16, :16] = 9
    shutil.rmtree(tmp_path / "labels" / "c" / "2")
    found, objects = label(mask, out=tmp_path / "labels", block=16, resume=True)
    assert objects == count
    # What was stored stays, and only the rest is made.
    assert (found[:16, :16] == 9).all()
    np.testing.assert_array_equal(found[16:], expected[16:])


def in_a_process(x: np.ndarray) -> np.ndarray:
    return scipy.ndimage.label(x > 0.5)[0]


def test_other_processes_do_the_work(tmp_path: Path) -> None:
    image = scipy.ndimage.gaussian_filter(np.random.default_rng(3).random((60, 60)), 2)
    gzarr.array(image, chunks=20, store=tmp_path / "image", device="cpu")
    gzarr.array(image > 0.5, chunks=20, store=tmp_path / "mask", device="cpu")
    expected, count = whole(image > 0.5)
    with concurrent.futures.ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as client:
        found, objects = label(tmp_path / "mask", out=tmp_path / "labels", client=client)
        assert objects == count
        np.testing.assert_array_equal(found[...], expected)
        found, objects = label(
            tmp_path / "image",
            function=in_a_process,
            halo=5,
            boundary=0,
            out=tmp_path / "joined",
            threshold=0,
            client=client,
        )
        assert objects == count
        np.testing.assert_array_equal(found[...], expected)
        with pytest.raises(ArgumentError, match="omit client="):
            label(gzarr.array(image > 0.5, device="cpu"), out=tmp_path / "other", client=client)


def test_more_objects_than_the_output_can_number() -> None:
    mask = np.arange(1000) % 2 == 0
    out = gzarr.array(np.full(1000, 7, "u1"), chunks=100, device="cpu")
    with pytest.raises(ArgumentError, match="500 objects, and uint8 ends at 255"):
        label(mask, out=out, block=100)
    assert (out[...] == 7).all()


def test_memory_does_not_grow_with_the_array(tmp_path: Path) -> None:
    peaks = []
    for blocks in (8, 64):
        # Balls of one size: the number of objects in a block is the same.
        z, y, x = np.ogrid[: 16 * blocks, :64, :64]
        mask = (z % 16 - 8) ** 2 + (y % 16 - 8) ** 2 + (x % 16 - 8) ** 2 < 30
        gzarr.array(mask, chunks=(16, 64, 64), store=tmp_path / f"mask {blocks}", device="cpu")
        del mask
        tracemalloc.start()
        _, count = label(tmp_path / f"mask {blocks}", out=tmp_path / f"labels {blocks}", block=(16, 64, 64))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert count == 16 * blocks
    # Each of eight times as many objects may take some bytes; labels of all elements would take 17 MB more.
    assert peaks[1] < peaks[0] + 500_000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"connectivity": 3}, "connectivity must be a number of axes from 1 to 2"),
        ({"dtype": "u2"}, "dtype must be 'uint32' or 'uint64'"),
        ({"out": np.zeros((8, 8), "f4")}, "labels are integers"),
        ({"out": Output({}, scale=2)}, "leave scale="),
        ({"scratch": {}}, "scratch= is for"),
        ({"function": 3}, "function must be callable"),
        ({"threshold": 1}, "threshold must be"),
        ({"measure": "dice"}, "measure must be"),
        ({"background": 300, "by_value": True}, "cannot be background=300"),
        ({"function": lambda x: x.astype("f4")}, r"a mask \(bool\) or labels \(integers\)"),
        ({"function": lambda x: x[1:].astype("i4")}, "expected them with the halo"),
        ({"function": lambda x: 3}, "returned int for block"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        label(np.ones((8, 8), "u1"), **arguments)


def test_inputs_that_cannot_be_labelled() -> None:
    with pytest.raises(ArgumentError, match="label takes a mask"):
        label(np.ones(3, "c8"))
    with pytest.raises(ArgumentError, match="at least one dimension"):
        label(np.ones((), bool))
    with pytest.raises(ArgumentError, match="label takes one mask"):
        label(np.ones(3), np.ones(3))
    with pytest.raises(ArgumentError, match="resume=True needs an output that is stored"):
        label(np.ones(3), resume=True)
    mask = gzarr.array(np.ones(8, "u1"), device="cpu")
    with pytest.raises(ArgumentError, match="is read again"):
        label(mask, out=mask)


def cells(spacing: int = 11, edge: int = 1100) -> np.ndarray:
    """Return an image of 10,000 cells, many of which touch others."""
    rng = np.random.default_rng(4)
    centres = np.stack(np.meshgrid(*[np.arange(spacing // 2, edge, spacing)] * 2, indexing="ij"), -1).reshape(-1, 2)
    centres = centres + rng.integers(-1, 2, centres.shape)
    image = np.zeros((edge, edge))
    image[tuple(centres.T)] = 1
    return scipy.ndimage.gaussian_filter(image, 2.2) / scipy.ndimage.gaussian_filter(image, 2.2).max()


def segmented(image: np.ndarray) -> np.ndarray:
    """Return a label for each cell: bright places, and what is nearest to each of them."""
    seeds, _ = scipy.ndimage.label(image >= scipy.ndimage.maximum_filter(image, 5))
    distance, places = scipy.ndimage.distance_transform_edt(seeds == 0, return_indices=True)
    return np.where((image > 0.25) & (distance < 7), seeds[tuple(places)], 0)


def test_ten_thousand_cells_are_those_of_the_whole_image(tmp_path: Path) -> None:
    image = cells()
    expected = segmented(image)
    count = len(np.unique(expected)) - 1
    assert 9_900 < count < 10_500
    calls = []

    def function(x: np.ndarray) -> np.ndarray:
        calls.append(1)
        return segmented(x).astype("i4")

    arguments: dict[str, Any] = {"function": function, "block": 128, "halo": 16, "scratch": tmp_path / "blocks"}
    found, objects = label(image, **arguments)
    assert objects == count
    # No object is split or merged, and all elements are the same.
    pairs = np.unique(np.stack([found.ravel(), expected.ravel()]), axis=1)
    assert pairs.shape[1] == len(np.unique(pairs[0])) == len(np.unique(pairs[1])) == count + 1
    # What was found in blocks is joined again, without the function; and a run goes on.
    joined, objects = gzarr.blocks.join(tmp_path / "blocks", overlap=16, threshold=0.3)
    assert objects == count
    np.testing.assert_array_equal(joined, found)
    assert len(calls) == 9 * 9 + 1
    shutil.rmtree(tmp_path / "blocks" / "c" / "4")
    again, _ = label(image, **arguments, resume=True)
    np.testing.assert_array_equal(again, found)
    assert len(calls) == 9 * 9 + 1 + 9
    with pytest.raises(OutputError, match="blocks with their halos have shape"):
        label(image, **arguments | {"halo": 8}, resume=True)


@pytest.mark.parametrize("room", [0, 40, 1 << 20])
def test_faces_beyond_the_room_wait_in_a_file(room: int) -> None:
    """All blocks are one component each, so each pair of neighbours is found once."""
    most, pairs = 0, 0
    with KeptFaces((3, 4), 1, room) as kept:
        for index in np.ndindex(3, 4):
            sides = [(0, 0), (0, 1), (1, 0), (1, 1)]
            faces = {(axis, side): np.ones((1, 5) if axis == 0 else (5, 1), np.uint16) for axis, side in sides}
            for _, touching in kept.add(index, BlockFaces(faces, None)):
                assert touching.tolist() == [[0, 0]]
                pairs += 1
            most = max(most, kept.nbytes)
        assert kept.nbytes == 0
    assert pairs == 3 * 3 + 2 * 4
    assert most <= room
    assert (most > 0) == (room > 0)
