"""Masked elements are refused by all that makes images: levels would be made of what lies under the mask."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gzarr
from gzarr.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable

BELOW = np.full((64, 64), 60000, "u2")


def create(data: Any, **options: Any) -> Any:
    return gzarr.ome.create({}, data, axes="yx", chunks=16, **options)


def create_labels(data: Any) -> Any:
    store: dict[str, Any] = {}
    gzarr.ome.create(store, BELOW, axes="yx", chunks=16)
    return gzarr.ome.create_labels(store, "cells", data)


def create_field(data: Any) -> Any:
    store: dict[str, Any] = {}
    gzarr.ome.create_plate(store, rows="A", columns="1")
    return gzarr.ome.create_field(store, "A", 1, data, axes="yx", chunks=16)


WAYS = [create, create_labels, create_field]


def masked() -> Any:
    mask = np.zeros(BELOW.shape, bool)
    mask[40, 50] = True
    return np.ma.masked_array(BELOW, mask)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("as_list", [False, True])
def test_in_memory(way: Callable[[Any], Any], as_list: bool) -> None:
    data = list(masked()) if as_list else masked()
    with pytest.raises(ArgumentError, match=r"data: elements of the value are masked.*filled"):
        way(data)


@pytest.mark.parametrize("way", WAYS)
def test_in_dask_arrays(way: Callable[[Any], Any]) -> None:
    dask_array = pytest.importorskip("dask.array")
    with pytest.raises(ArgumentError, match=r"data: elements of the value are masked.*filled"):
        way(dask_array.from_array(masked(), chunks=16))


@pytest.mark.parametrize("method", ["mean", "gaussian"])
def test_in_boxes_of_other_sources(method: str) -> None:
    class Source:
        shape, dtype = BELOW.shape, BELOW.dtype

        def __getitem__(self, box: Any) -> Any:
            return masked()[box]

    store: dict[str, Any] = {}
    with pytest.raises(ArgumentError, match="data: elements of the value are masked"):
        gzarr.ome.create(store, Source(), axes="yx", chunks=16, method=method)
    assert "ome" not in gzarr.open_group(store).attrs


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("lazy", [False, True])
def test_masks_that_hide_nothing(way: Callable[[Any], Any], lazy: bool) -> None:
    data: Any = np.ma.masked_array(BELOW, np.zeros(BELOW.shape, bool))
    if lazy:
        data = pytest.importorskip("dask.array").from_array(data, chunks=16)
    image = way(data)
    np.testing.assert_array_equal(image.read(), BELOW)
    assert len(image.levels) == 3
    np.testing.assert_array_equal(image.read(2), BELOW[:16, :16])


def test_what_a_source_raises_is_passed_on() -> None:
    dask_array = pytest.importorskip("dask.array")

    def broken(block: Any) -> Any:
        raise OSError("disk gone")

    data = dask_array.from_array(BELOW, chunks=16).map_blocks(broken, dtype="u2", meta=BELOW[:0, :0])
    with pytest.raises(OSError, match="disk gone"):
        create(data)
