"""Many windows of one shape: the same elements as by slices, in one plan without an object for each."""

from __future__ import annotations

import gc
import itertools
import json
import weakref
from typing import TYPE_CHECKING, Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from support.zarr_arrays import BIG, LITTLE, blosc3, codec, same, sample, shard, v3, write

import gzarr
from gzarr.engines.cpu import native

if TYPE_CHECKING:
    from pathlib import Path

    from support.devices import TestedDevice

SHAPE = (40, 30, 20)
DATA = sample(SHAPE, "u2")
DOCUMENTS = {
    "raw": v3(SHAPE, (16, 16, 16), "uint16", [LITTLE]),
    "big-endian": v3(SHAPE, (16, 7, 20), "uint16", [BIG]),
    "blosc": v3(SHAPE, (16, 7, 20), "uint16", [LITTLE, blosc3("lz4", "shuffle", 2)]),
    "shard": v3(SHAPE, (20, 30, 20), "uint16", [shard([5, 10, 10], [LITTLE, codec("zstd", level=1)])]),
    "threads": v3(SHAPE, (16, 16, 16), "uint16", [LITTLE, codec("numcodecs.bz2", level=1)]),
}


@pytest.fixture(scope="module")
def roots(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    data = DATA
    made = {}
    for name, document in DOCUMENTS.items():
        made[name] = tmp_path_factory.mktemp(name)
        write(made[name], document, data)
    made["rectilinear"] = rectilinear(tmp_path_factory.mktemp("rectilinear"), data)
    return made


def rectilinear(root: Path, data: np.ndarray[Any, Any]) -> Path:
    lengths = [[7, 13, 20], [10, 20], [5, 5, 5, 5]]
    document = v3(SHAPE, (1, 1, 1), "uint16", [LITTLE])
    document["chunk_grid"] = {"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": lengths}}
    (root / "zarr.json").write_text(json.dumps(document))
    begins = [np.cumsum([0, *part]).tolist() for part in lengths]
    for coords in itertools.product(*(range(len(part)) for part in lengths)):
        box = tuple(slice(begin[i], begin[i + 1]) for begin, i in zip(begins, coords, strict=True))
        path = root.joinpath("c", *map(str, coords))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data[box].tobytes())
    return root


NAMES = [*DOCUMENTS, "rectilinear"]


@st.composite
def windows(draw: st.DrawFn) -> tuple[np.ndarray[Any, Any], tuple[int, ...], tuple[int, ...]]:
    """Draw starts, a shape and steps that fit ``SHAPE``."""
    step = tuple(draw(st.integers(1, 4)) for _ in SHAPE)
    shape = tuple(draw(st.integers(0, (size - 1) // s + 1)) for size, s in zip(SHAPE, step, strict=True))
    room = [size - (max(n - 1, 0) * s + (n > 0)) for size, n, s in zip(SHAPE, shape, step, strict=True)]
    starts = draw(st.lists(st.tuples(*(st.integers(0, most) for most in room)), max_size=30))
    return np.array(starts, np.int64).reshape(-1, 3), shape, step


def expected(starts: np.ndarray[Any, Any], shape: tuple[int, ...], step: tuple[int, ...]) -> np.ndarray[Any, Any]:
    result = np.empty((len(starts), *shape), "u2")
    for i, start in enumerate(starts.tolist()):
        box = tuple(slice(a, a + n * s, s) for a, n, s in zip(start, shape, step, strict=True))
        result[i] = DATA[tuple(slice(b.start, min(b.stop, size), b.step) for b, size in zip(box, SHAPE, strict=True))]
    return result


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(drawn=windows(), data=st.data())
def test_windows_hold_what_slices_hold(
    name: str, roots: dict[str, Path], device: TestedDevice, drawn: Any, data: st.DataObject
) -> None:
    starts, shape, step = drawn
    array = device.open(roots[name])
    decode = data.draw(st.sampled_from(["cuda", "cpu"])) if device.is_cuda else "auto"
    wanted = expected(starts, shape, step)
    same(device.to_numpy(array.read_windows(starts, shape, step=step, decode=decode)), wanted)
    # Into several arrays, of any strides.
    cuts = sorted(data.draw(st.lists(st.integers(0, len(starts)), max_size=3)))
    bounds = itertools.pairwise([0, *cuts, len(starts)])
    parts = [device.empty((b - a, *reversed(shape)), "u2").transpose(0, 3, 2, 1) for a, b in bounds]
    given_back = array.read_windows(starts, shape, step=step, out=parts, decode=decode)
    assert given_back is parts
    same(np.concatenate([device.to_numpy(part) for part in parts]), wanted)


def test_one_number_stands_for_all_dimensions_and_rows_for_those_of_a_vector(tmp_path: Path) -> None:
    values = np.arange(100, dtype="i4")
    a = gzarr.create_array(tmp_path / "a", data=values, chunks=7)
    same(a.read_windows([90, 3, 3], 4, step=3), np.stack([values[i : i + 10 : 3] for i in (90, 3, 3)]))
    same(a.read_windows([99], 1, step=10**30), values[99:].reshape(1, 1))
    same(a.read_windows([], 5), np.empty((0, 5), "i4"))
    cube = gzarr.create_array(tmp_path / "b", data=DATA)
    same(cube.read_windows([(1, 2, 3)], 2), DATA[1:3, 2:4, 3:5][None])


def test_a_chunk_of_many_windows_is_decoded_once(roots: dict[str, Path]) -> None:
    array = gzarr.open_array(roots["blosc"])
    native.take_stats()
    starts = np.stack([np.arange(32), np.zeros(32, int), np.zeros(32, int)], 1)
    array.read_windows(starts, (1, 14, 20))
    assert native.take_stats()["chunks"] == 4


@pytest.mark.parametrize(
    ("starts", "shape", "step", "message"),
    [
        ([(0, 0)], 1, 1, r"starts must be integers of shape \(n, 3\)"),
        ([0, 1, 2], 1, 1, r"starts must be integers of shape \(n, 3\)"),
        ([(0.0, 0, 0)], 1, 1, "not float64"),
        ("abc", 1, 1, "starts must be integers"),
        ([(0, 0, 0), (31, 0, 0)], 10, 1, r"window 1, of shape \(10, 10, 10\) from \(31, 0, 0\)"),
        ([(0, 0, -1)], 1, 1, "window 0, .* is not inside the array"),
        ([(41, 0, 0)], 0, 1, "window 0, .* is not inside the array"),
        ([(0, 0, 0)], 3, 10, "with step .* is not inside the array"),
        (np.array([(2**64 - 1, 0, 0)], "u8"), 1, 1, "window 0"),
        ([(2**70, 0, 0)], 1, 1, "starts must be integers"),
        ([(0, 0, 0)], 10**30, 1, "is not inside the array"),
        ([(0, 0, 0)], (1, 1), 1, "shape must be 3 integers of at least 0"),
        ([(0, 0, 0)], -1, 1, "shape must be 3 integers of at least 0"),
        ([(0, 0, 0)], 1.5, 1, "shape must be 3 integers"),
        ([(0, 0, 0)], 1, 0, "step must be 3 integers of at least 1"),
        ([[1], [2, 3]], 1, 1, "starts must be integers"),
    ],
)
def test_wrong_windows_are_refused(
    roots: dict[str, Path], starts: Any, shape: Any, step: Any, message: str, device: TestedDevice
) -> None:
    array = device.open(roots["raw"])
    with pytest.raises(gzarr.SelectionError, match=message):
        array.read_windows(starts, shape, step=step)


def test_wrong_outputs_are_refused(roots: dict[str, Path], device: TestedDevice) -> None:
    array = device.open(roots["raw"])
    starts = [(0, 0, 0)] * 3
    for out, message in [
        (device.empty((2, 1, 1, 1), "u2"), "room for 2 windows"),
        (device.empty((3, 1, 1), "u2"), "has shape"),
        (device.empty((3, 1, 1, 1), "u4"), "has dtype"),
        ([device.empty((2, 1, 1, 1), "u2")], "room for 2 windows, but 3 are wanted"),
        ([device.empty((3, 1, 1, 2), "u2")], "has shape"),
        ([7], "out= must be"),
        ([device.empty((2, 1, 1, 1), "u2"), 7], r"out\[1\] must be"),
        ([], "room for 0 windows"),
    ]:
        with pytest.raises(gzarr.OutputError, match=message):
            array.read_windows(starts, 1, out=out)


@pytest.mark.parametrize("parts", [1, 3])
def test_windows_have_places(roots: dict[str, Path], device: TestedDevice, parts: int) -> None:
    array = device.open(roots["blosc"])
    rng = np.random.default_rng(1)
    starts, rows = rng.integers(0, 10, (20, 3)), rng.permutation(30)[:20]
    wanted = np.full((30, 4, 4, 4), 7, "u2")
    wanted[rows] = expected(starts, (4, 4, 4), (1, 1, 1))
    out = [device.array(part) for part in np.split(np.full_like(wanted, 7), parts)]
    array.read_windows(starts, 4, out=out, rows=rows)
    same(np.concatenate([device.to_numpy(part) for part in out]), wanted)
    for wrong in (rows[:-1], np.zeros(20, int), rows + 1.0, rows + 10, rows - 30):
        with pytest.raises(gzarr.SelectionError, match="rows must be"):
            array.read_windows(starts, 4, out=out, rows=wrong)


def test_a_chunk_that_fails_is_named(tmp_path: Path, device: TestedDevice) -> None:
    write(tmp_path, DOCUMENTS["blosc"], DATA)
    (tmp_path / "c" / "1" / "2" / "0").write_bytes(b"garbage")
    array = device.open(tmp_path)
    with pytest.raises(gzarr.ChunkDecodeError, match=r"\(1, 2, 0\)"):
        array.read_windows([(0, 0, 0), (10, 10, 10)], 10)
    same(device.to_numpy(array.read_windows([(0, 0, 0)], 10)), expected(np.zeros((1, 3), int), (10,) * 3, (1,) * 3))


@pytest.mark.parametrize("name", DOCUMENTS)
def test_memory_is_free_without_a_garbage_collection(roots: dict[str, Path], name: str) -> None:
    array, out = gzarr.open_array(roots[name], device="cpu"), np.empty(SHAPE, "u2")
    freed = weakref.ref(out)
    gc.disable()
    try:
        array.read(out=out)
        array.read_windows(np.zeros((1, 3), "i8"), SHAPE, out=[out[None]])
        del out
        assert freed() is None
    finally:
        gc.enable()
