"""Masked elements of weights, windows and choices are refused: NumPy would take what is below the mask."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gzarr
from gzarr.loader import Loader, Merge, Patches, Rows, Windows

if TYPE_CHECKING:
    from collections.abc import Callable

MASK = [False, True, True, True, True, True]
ROWS = np.arange(6)
IMAGE = np.zeros((6, 6), "u1")
SOME = np.ma.array(np.ones(6), mask=MASK)
TRUE = np.ma.array(np.ones(6, bool), mask=MASK)
SQUARE = np.ma.array(np.ones((6, 6), bool), mask=[MASK] * 6)


def rows(**options: Any) -> Loader:
    return Loader({"i": ROWS}, Rows(**options), batch_size=6, seed=0)


def windows(**options: Any) -> Loader:
    return Loader({"i": ROWS}, Windows(0, {"x": (0, 0)}, **options), batch_size=6)


def patches(where: Any, images: int = 1) -> Loader:
    volumes = [{"i": IMAGE}] * images
    return Loader(volumes[0] if images == 1 else volumes, Patches((2, 2), where=where), batch_size=1, seed=0)


def merge(window: Any) -> Merge:
    return Merge(gzarr.create_array({}, data=IMAGE, device="cpu"), Patches((2, 2)), window)


CASES: dict[str, Callable[[], Any]] = {
    "weights": lambda: rows(weights=SOME),
    "weights in a list": lambda: rows(weights=[1, np.ma.masked, 1, 1, 1, 1]),
    "weights of chosen rows": lambda: rows(where=[0, 1], weights=SOME[:2]),
    "weights of volumes": lambda: Loader([{"i": ROWS}] * 2, batch_size=2, weights=SOME[:2]),
    "mask": lambda: rows(where=TRUE),
    "integers": lambda: rows(where=np.ma.array([0, 1], mask=[False, True])),
    "integers in a list": lambda: rows(where=[0, np.ma.masked]),
    "mask of patches": lambda: patches(SQUARE),
    "labels of patches": lambda: patches(SQUARE.astype(int)),
    "places of patches": lambda: patches(np.ma.array([[0, 0], [2, 2]], mask=[[False] * 2, [True] * 2])),
    "masks of volumes": lambda: patches([SQUARE, SQUARE], images=2),
    "mask of steps": lambda: windows(where=TRUE),
    "steps": lambda: windows(where=np.ma.array([0, 1], mask=[False, True])),
    "valid steps": lambda: windows(valid=TRUE),
    "window": lambda: merge(np.ma.array(np.ones((2, 2)), mask=np.eye(2, dtype=bool))),
}


@pytest.mark.parametrize("case", CASES)
def test_masked_elements(case: str) -> None:
    with pytest.raises(gzarr.ArgumentError, match="masked"):
        CASES[case]()


def of_pandas(items: list[Any], dtype: str) -> Any:
    return pytest.importorskip("pandas").Series(items, dtype=dtype)


WAYS: dict[str, tuple[Callable[[], Any], str]] = {
    "mask": (lambda: rows(where=TRUE), "value.filled(False)"),
    "integers": (lambda: rows(where=np.ma.array([0, 1], mask=[False, True])), "value.filled(...)"),
    "nulls": (lambda: rows(where=of_pandas([True] * 5 + [None], "boolean")), "value.fillna(...)"),
    "weights": (lambda: rows(weights=SOME), "value.filled(...)"),
    "weights that are null": (lambda: rows(weights=of_pandas([1.0] * 5 + [None], "Float64")), "value.fillna(...)"),
}


@pytest.mark.parametrize("case", WAYS)
def test_the_way_out_is_told(case: str) -> None:
    make, way = WAYS[case]
    with pytest.raises(gzarr.ArgumentError, match=f"masked or null.* with {re.escape(way)}$"):
        make()


def test_nothing_is_masked() -> None:
    every = np.ma.array(np.ones(6, bool), mask=False)
    for loader in (rows(weights=np.ma.array(np.ones(6))), rows(where=every)):
        assert sorted(next(iter(loader))["i"].ravel().tolist()) == [0, 1, 2, 3, 4, 5]
    assert len(windows(where=every, valid=every)) == 1
    assert len(patches(np.ma.array(np.ones((6, 6), bool)))) == 9
