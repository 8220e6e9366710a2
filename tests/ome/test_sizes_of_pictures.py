"""Pictures are as large as they say, whatever the metadata of a plate or the elements of an image."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr.errors import ArgumentError
from gzarr.ome import small_pictures


def plate_of(count: int) -> Any:
    """Return a plate of many rows and columns with one well."""
    names = [f"n{i}" for i in range(count)]
    store: dict[str, bytes] = {}
    gzarr.ome.create_plate(store, rows=names, columns=names)
    gzarr.ome.create_field(store, "n0", "n0", np.ones((8, 8), "u1"), axes="yx", progress=False)
    return gzarr.ome.open(store)


def test_plates_of_many_rows_and_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    # However slow the machine is.
    monkeypatch.setattr(small_pictures, "MOST_SECONDS", 600.0)
    plate = plate_of(300)
    assert "<img" not in plate._repr_html_()
    with pytest.raises(ArgumentError, match="has 300 rows and 300 columns, and at most 65,536 places are shown"):
        plate.thumbnail()
    assert "<img" in plate_of(3)._repr_html_()


def test_one_large_level() -> None:
    image = gzarr.ome.create({}, np.ones((2048, 2048), "u1"), axes="yx", levels=1, progress=False)
    tracemalloc.start()
    try:
        assert "<img" in image._repr_html_()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # The elements, and little beside them: colours of all of them take 50 times as much as these.
    assert peak < 24 << 20
