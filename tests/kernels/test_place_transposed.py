"""Chunks in any order of dimensions, placed into outputs and gathered from inputs, against NumPy."""

from __future__ import annotations

import itertools
import sys
from typing import Any

import numba
import numpy as np
import pytest
from gzarr_kernels.gather import gather_piece
from gzarr_kernels.place import place_piece
from gzarr_kernels.slots import geometry as G
from gzarr_kernels.slots.scratch import SCRATCH_BYTES

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the compiled loop needs POSIX")

#: Element types and the units to swap in them, also structures.
ELEMENTS = [
    ("u1", 0),
    ("u2", 0),
    ("u2", 2),
    ("V3", 0),
    ("f4", 0),
    ("f4", 4),
    ("f4, f4, f4", 4),
    ("u2, u2, u2", 2),
    ("f8", 0),
    ("f8", 8),
    ("c8", 4),
    ("c16", 0),
    ("c16", 8),
    ("U5", 4),
    ("f8, u1", 0),
]
ORDERS = [order for k in (2, 3) for order in itertools.permutations(range(k))] + [(3, 1, 2, 0), (0, 2, 3, 1)]


@numba.njit
def place(geometry: int, chunk: int, nbytes: int, strides: int, swap: int, scratch: int) -> None:
    place_piece(geometry, 0, chunk, nbytes, strides, 1, nbytes, swap, 0, scratch)


@numba.njit
def gather(geometry: int, extent: int, chunk: int, scratch: int) -> None:
    gather_piece(geometry, 0, 0, extent, chunk, scratch)


def swapped(array: np.ndarray[Any, Any], swap: int) -> np.ndarray[Any, Any]:
    """Return an array with each unit of ``swap`` bytes reversed."""
    raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8).reshape(-1, max(swap, 1))
    return np.ascontiguousarray(raw[:, ::-1]).reshape(-1).view(array.dtype).reshape(array.shape)


def outputs_of(shape: tuple[int, ...], dtype: np.dtype[Any]) -> list[np.ndarray[Any, Any]]:
    """Return outputs of a shape: contiguous, rows powers of two apart, reversed, in F order, every other element."""
    room = (*shape[:-1], 256)
    return [
        np.zeros(shape, dtype),
        np.zeros(room, dtype)[..., : shape[-1]],
        np.zeros(shape, dtype)[::-1, ..., ::-1],
        np.zeros(shape, dtype, order="F"),
        np.zeros(tuple(2 * size for size in shape), dtype)[tuple(slice(None, None, 2) for _ in shape)],
    ]


def geometry_of(
    chunk: tuple[int, ...],
    order: tuple[int, ...],
    whole: np.ndarray[Any, Any],
    swap: int,
    box: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]],
) -> tuple[np.ndarray[Any, Any], list[Any]]:
    """Return the geometry of one box (first in the chunk, number, first in the array), and the arrays behind it."""
    strides = [0] * len(chunk)
    stride = whole.dtype.itemsize
    for d in reversed(order):
        strides[d] = stride
        stride *= chunk[d]
    start, count, target = box
    none = [0] * len(chunk)
    columns: dict[int, Any] = {
        G.START: start,
        G.COUNT: count,
        G.TARGET: target,
        G.OUTPUT: [0],
        G.STEP: [1] * len(chunk),
        G.SOURCE_STRIDES: strides,
        G.BASES: [whole.__array_interface__["data"][0]],
        G.TARGET_STRIDES: whole.strides,
        G.TABLE_SOURCE: none,
        G.TABLE_TARGET: none,
        G.ORDER: order,
        G.CHUNK_SHAPE: chunk,
    }
    kept = {slot: np.array(column, np.int64) for slot, column in columns.items()}
    geometry = np.zeros(G.SIZE, np.int64)
    geometry[G.K], geometry[G.ITEMSIZE], geometry[G.SWAP] = len(chunk), whole.dtype.itemsize, swap
    for slot, column in kept.items():
        geometry[slot] = column.ctypes.data
    return geometry, [kept]


@pytest.mark.parametrize("order", ORDERS, ids=str)
@pytest.mark.parametrize(("dtype", "swap"), ELEMENTS, ids=str)
def test_transposed_chunks(dtype: str, swap: int, order: tuple[int, ...]) -> None:
    chunk = ((70, 131), (33, 20, 41), (17, 5, 9, 18))[len(order) - 2]
    type_ = np.dtype(dtype)
    nbytes = int(np.prod(chunk)) * type_.itemsize
    plain = np.frombuffer(np.random.default_rng(1).bytes(nbytes), type_).reshape(chunk)
    stored = swapped(plain.transpose(order), swap)
    scratch = np.full(SCRATCH_BYTES, 0xA5, np.uint8)
    ones = tuple(1 for _ in chunk)
    zeros = tuple(0 for _ in chunk)
    clipped = tuple(size - 1 - size // 3 for size in chunk)
    for start, count, target in ((zeros, chunk, zeros), (zeros, clipped, ones), (ones, clipped, zeros)):
        inside = tuple(slice(a, a + n) for a, n in zip(start, count, strict=True))
        outside = tuple(slice(a, a + n) for a, n in zip(target, count, strict=True))
        for whole in outputs_of(tuple(size + 1 for size in chunk), type_):
            geometry, kept = geometry_of(chunk, order, whole, swap, (start, count, target))
            strides = kept[0][G.SOURCE_STRIDES].ctypes.data
            for stream in (0, 1):
                geometry[G.STREAM] = stream
                whole[...] = np.zeros((), type_)
                place(geometry.ctypes.data, stored.ctypes.data, nbytes, strides, swap, scratch.ctypes.data)
                expected = np.zeros(whole.shape, type_)
                expected[outside] = plain[inside]
                assert whole.tobytes() == expected.tobytes(), (start, whole.strides, stream)
            # And back.
            found = np.zeros(stored.shape, type_)
            extent = chunk[order[0]]
            gather(geometry.ctypes.data, extent, found.ctypes.data, scratch.ctypes.data)
            back = np.zeros(chunk, type_)
            back[inside] = plain[inside]
            assert found.tobytes() == swapped(back.transpose(order), swap).tobytes(), (start, whole.strides)
