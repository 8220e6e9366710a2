"""The store of what a function of ``label`` returns: where it may be, and which blocks it has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import scipy.ndimage

import gzarr
from gzarr.blocks import label

if TYPE_CHECKING:
    from pathlib import Path

MASK = np.random.default_rng(0).random((12, 12)) < 0.4


def instances(x: np.ndarray) -> np.ndarray:
    return scipy.ndimage.label(x)[0].astype("i4")


def as_mask(x: np.ndarray) -> np.ndarray:
    return x > 0


@pytest.mark.parametrize("function", [instances, as_mask])
@pytest.mark.parametrize("overwrite", [True, False])
@pytest.mark.parametrize(
    ("scratch", "out"),
    [("x/a", None), ("x", None), ("x/a/below", None), ("x/o", "x/o"), ("x/o/below", "x/o"), ("x", "x/o")],
)
def test_it_is_apart_from_inputs_and_output(
    tmp_path: Path, function: Any, overwrite: bool, scratch: str, out: str | None
) -> None:
    gzarr.array(MASK.astype("u1"), tmp_path / "x/a", chunks=(4, 4), device="cpu")
    calls = []

    def counted(x: np.ndarray) -> np.ndarray:
        calls.append(x.shape)
        return function(x)

    where: dict[str, Any] = {"scratch": tmp_path / scratch, "out": out and tmp_path / out, "overwrite": overwrite}
    with pytest.raises(gzarr.ArgumentError, match="pass another scratch="):
        label(tmp_path / "x/a", function=counted, halo=2, block=(4, 4), **where)
    assert not calls
    np.testing.assert_array_equal(gzarr.open_array(tmp_path / "x/a", device="cpu")[...], MASK)


def test_it_is_apart_from_an_output_that_is_open(tmp_path: Path) -> None:
    out = gzarr.create_array(tmp_path / "o", shape=(12, 12), dtype="u4", chunks=(4, 4), device="cpu")
    with pytest.raises(gzarr.ArgumentError, match="pass another scratch="):
        label(MASK, function=instances, halo=2, block=(4, 4), scratch=tmp_path / "o", out=out, overwrite=True)
    assert out.dtype == gzarr.open_array(tmp_path / "o", device="cpu").dtype


def test_beside_them_it_is_overwritten(tmp_path: Path) -> None:
    gzarr.array(MASK.astype("u1"), tmp_path / "x/a", chunks=(4, 4), device="cpu")
    expected, count = scipy.ndimage.label(MASK)
    for _ in range(2):
        found, objects = label(
            tmp_path / "x/a",
            function=instances,
            halo=12,
            boundary=None,
            block=(4, 4),
            threshold=0.0,
            scratch=tmp_path / "x/s",
            out=tmp_path / "x/o",
            overwrite=True,
        )
        assert objects == count
        np.testing.assert_array_equal(found[...], expected)


def test_windows_of_another_halo_are_not_resumed(tmp_path: Path) -> None:
    row = np.ones(40, "u1")
    options: dict[str, Any] = {"function": instances, "block": 8, "scratch": tmp_path / "s"}
    assert label(row, halo=[(4, 0)], **options)[1] == 1
    with pytest.raises(gzarr.OutputError, match=r"to be resumed, has blocks of .*\[\[4, 0\]\].*\[\[0, 4\]\]"):
        label(row, halo=[(0, 4)], resume=True, **options)
    assert label(row, halo=[(4, 0)], resume=True, **options)[1] == 1


@pytest.mark.parametrize("shape", [(7, 5), (8, 6), (9, 2)], ids=str)
def test_blocks_that_are_padded(shape: tuple[int, ...]) -> None:
    image = np.random.default_rng(1).random(shape)
    expected, count = scipy.ndimage.label(image > 0.6)
    seen = set()

    def found(x: np.ndarray) -> np.ndarray:
        seen.add(x.shape)
        return instances(x > 0.6)

    # Halos of the whole array, so that each block has all of each object.
    way: dict[str, Any] = {"halo": 9, "boundary": 0, "threshold": 0.0}
    labels, objects = label(image, function=found, pad_blocks=True, block=(4, 3), **way)
    assert len(seen) == 1
    assert objects == count
    np.testing.assert_array_equal(labels, expected)


def test_labels_of_another_byte_order() -> None:
    expected, count = label(MASK, function=instances, halo=2, block=4)
    found, objects = label(MASK, function=lambda x: instances(x).astype(">i4"), halo=2, block=4)
    assert objects == count
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("pad_blocks", [False, True])
def test_labels_beyond_the_halo_are_refused(pad_blocks: bool) -> None:
    with pytest.raises(gzarr.ArgumentError, match=r"labels of shape \(12, 12\) .* with the halo, \(8, 8\)"):
        label(
            MASK,
            function=lambda x: instances(np.pad(x, 2)),
            halo=2,
            block=4,
            boundary=0,
            pad_blocks=pad_blocks,
        )
