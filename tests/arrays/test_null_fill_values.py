"""Where the fill value is ``null``, absent chunks stay absent, and every chunk that is written is stored."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import gzarr


def null_array(**members: Any) -> tuple[gzarr.Array, dict[str, bytes]]:
    store: dict[str, bytes] = {}
    gzarr.create_array(store, shape=10, chunks=4, dtype="f8", zarr_format=2)
    store[".zarray"] = json.dumps({**json.loads(store[".zarray"]), "fill_value": None, **members}).encode()
    return gzarr.open_array(store, mode="r+", missing="error", device="cpu"), store


def test_a_resize_makes_no_chunk() -> None:
    a, store = null_array()
    a.resize(6)
    assert set(store) == {".zarray"}
    with pytest.raises(gzarr.MissingChunkError):
        a[4:6]


def test_a_resize_changes_stored_chunks() -> None:
    a, store = null_array()
    a[4:10] = 7
    a.resize(6)
    assert set(store) == {".zarray", "1"}
    a.resize(8)
    assert a[4:8].tolist() == [7, 7, 0, 0]


@pytest.mark.parametrize("make", ["array", "empty_like", "create_array"])
def test_new_arrays_store_zeros(make: str) -> None:
    values = np.array([0.0, 0, 1, 2])
    source, _ = null_array(shape=[4], chunks=[2])
    store: dict[str, bytes] = {}
    source[...] = values
    if make == "array":
        a = gzarr.array(source, store)
    elif make == "empty_like":
        a = gzarr.empty_like(source, store)
        a[...] = values
    else:
        a = gzarr.open_group(store, mode="w", zarr_format=2).create_array("a", data=values, chunks=(2,))
    is_null = make != "create_array"
    assert a.write_empty_chunks == is_null
    assert sum(key.endswith("0") for key in store) == is_null
    explicit = gzarr.empty_like(source, {}, write_empty_chunks=False)
    assert not explicit.write_empty_chunks


def test_the_flag_is_checked() -> None:
    with pytest.raises(gzarr.ArgumentError, match="write_empty_chunks must be True, False or None, not 'no'"):
        gzarr.create_array({}, shape=4, dtype="i4", write_empty_chunks="no")  # type: ignore[arg-type]
