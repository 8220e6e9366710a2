"""Placing and gathering of transposed chunks, in one thread, compared with ``memcpy`` of the same bytes and with NumPy.

Usage: ``python benchmarks/transpose.py [--quick] [--numpy] [--only TEXT] [--json FILE]``.

*Placing* is the last step of a read: a decoded chunk, in a buffer that is reused for each chunk, goes to its box of an
output of at least 64 MiB. *Gathering* is the first step of a write, in the other direction. ``memcpy`` moves the same
chunks between the same buffers as if they were contiguous. All memory has been touched before, and rivals take turns,
so the ratios also hold on a busy machine; the rates are medians.

The columns ``of memcpy`` are rates divided by that of ``memcpy``. With ``--numpy``, NumPy assigns each chunk to its
box (``numpy``) or copies it by ``ascontiguousarray`` to new memory (``contig``); both leave out the byte swap.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numba
import numpy as np
from gzarr_kernels.gather import gather_piece
from gzarr_kernels.memory import copy
from gzarr_kernels.place import place_piece
from gzarr_kernels.slots import geometry as G
from gzarr_kernels.slots.scratch import SCRATCH_BYTES

from gzarr.engines.cpu.native import STREAM_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

_TOTAL_BYTES = 64 << 20
_LINE = 64


@dataclass(frozen=True)
class Case:
    """Chunks of ``shape``, stored with their dimensions in ``order``, slowest first, in a grid of ``grid`` chunks."""

    shape: tuple[int, ...]
    order: tuple[int, ...]
    itemsize: int
    swap: int
    grid: tuple[int, ...]

    @property
    def label(self) -> str:
        size = "x".join(map(str, self.shape))
        return f"{self.itemsize} B, swap {self.swap}, {size}, order {','.join(map(str, self.order))}"


def grid_of(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Return a grid of chunks that takes at least 64 MiB, about as long along each dimension."""
    grid = [1] * len(shape)
    nbytes = itemsize
    for size in shape:
        nbytes *= size
    while nbytes < _TOTAL_BYTES:
        d = min(range(len(shape)), key=lambda d: (grid[d], -d))
        grid[d] *= 2
        nbytes *= 2
    return tuple(grid)


#: Element sizes and the units to swap in them; complex numbers are swapped by halves.
ELEMENTS = [(1, 0), (2, 0), (2, 2), (4, 0), (4, 4), (8, 0), (8, 8), (8, 4), (16, 0), (16, 8)]
#: Strides that are powers of two and strides that are not; planes and volumes.
SHAPES: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((256, 512), (1, 0)),
    ((250, 500), (1, 0)),
    ((64, 64, 64), (2, 1, 0)),
    ((128, 128, 32), (2, 1, 0)),
    ((64, 64, 64), (0, 2, 1)),
    ((64, 64, 64), (1, 2, 0)),
    # Not transposed, for comparison.
    ((256, 512), (0, 1)),
    ((64, 64, 64), (0, 1, 2)),
    ((128, 128, 32), (0, 1, 2)),
]


def aligned(nbytes: int, offset: int = 0) -> np.ndarray[Any, Any]:
    """Return touched memory that begins ``offset`` bytes after the start of a cache line."""
    memory = np.ones(nbytes + 2 * _LINE, np.uint8)
    begin = -memory.ctypes.data % _LINE + offset
    return memory[begin : begin + nbytes]


@numba.njit(nogil=True)
def place_all(geometry: int, pieces: int, chunk: int, nbytes: int, strides: int, swap: int, scratch: int) -> None:
    for piece in range(pieces):
        place_piece(geometry, piece, chunk, nbytes, strides, 1, nbytes, swap, scratch)


@numba.njit(nogil=True)
def gather_all(geometry: int, pieces: int, chunk: int, extent: int, scratch: int) -> None:
    for piece in range(pieces):
        gather_piece(geometry, piece, 0, extent, chunk, scratch)


@numba.njit(nogil=True)
def copy_all(target: int, source: int, nbytes: int, pieces: int, by_target: int, by_source: int) -> None:
    for piece in range(pieces):
        copy(target + piece * by_target, source + piece * by_source, nbytes)


def rivals(case: Case, offset: int) -> tuple[dict[str, Callable[[], None]], dict[str, Callable[[], None]], int]:
    """Return the timed functions for placing and for gathering, and the bytes that each moves."""
    k = len(case.shape)
    array_shape = tuple(n * size for n, size in zip(case.grid, case.shape, strict=True))
    plain = np.dtype({1: "u1", 2: "u2", 4: "u4", 8: "u8", 16: "c16"}[case.itemsize])
    total = int(np.prod(array_shape)) * case.itemsize
    array = aligned(total, offset).view(plain).reshape(array_shape)
    stored = tuple(case.shape[d] for d in case.order)
    chunk = aligned(total // int(np.prod(case.grid))).view(plain).reshape(stored)
    logical = chunk.transpose(np.argsort(case.order))
    strides = np.array(logical.strides, np.int64)
    coords = np.array(list(itertools.product(*map(range, case.grid))), np.int64)
    pieces = len(coords)
    first = coords * np.array(case.shape)
    columns = {
        G.START: np.zeros((pieces, k), np.int64),
        G.COUNT: np.tile(np.array(case.shape, np.int64), (pieces, 1)),
        G.TARGET: np.ascontiguousarray(first),
        G.OUTPUT: np.zeros(pieces, np.int64),
        G.STEP: np.ones(k, np.int64),
        G.SOURCE_STRIDES: strides,
        G.BASES: np.array([array.ctypes.data], np.int64),
        G.TARGET_STRIDES: np.array(array.strides, np.int64),
        G.TABLE_SOURCE: np.zeros(k, np.int64),
        G.TABLE_TARGET: np.zeros(k, np.int64),
        G.ORDER: np.array(case.order, np.int64),
        G.CHUNK_SHAPE: np.array(case.shape, np.int64),
    }
    geometry = np.zeros(G.SIZE, np.int64)
    geometry[G.K], geometry[G.ITEMSIZE], geometry[G.SWAP] = k, case.itemsize, case.swap
    geometry[G.STREAM] = total > STREAM_BYTES
    for slot, column in columns.items():
        geometry[slot] = column.ctypes.data
    scratch = np.zeros(SCRATCH_BYTES, np.uint8)
    boxes = [tuple(slice(a, a + n) for a, n in zip(at, case.shape, strict=True)) for at in first.tolist()]
    nbytes = chunk.nbytes
    at, source = geometry.ctypes.data, chunk.ctypes.data
    keep = (columns, geometry, scratch)
    extent = case.shape[case.order[0]]

    def place() -> None:
        place_all(at, pieces, source, nbytes, strides.ctypes.data, case.swap, keep[2].ctypes.data)

    def gather() -> None:
        gather_all(at, pieces, source, extent, keep[2].ctypes.data)

    def assign() -> None:
        for box in boxes:
            array[box] = logical

    def take() -> None:
        for box in boxes:
            logical[...] = array[box]

    def contiguous() -> None:
        for _ in boxes:
            np.ascontiguousarray(logical)

    def contiguous_box() -> None:
        for box in boxes:
            np.ascontiguousarray(array[box].transpose(case.order))

    def memcpy_out() -> None:
        copy_all(array.ctypes.data, source, nbytes, pieces, nbytes, 0)

    def memcpy_in() -> None:
        copy_all(source, array.ctypes.data, nbytes, pieces, 0, nbytes)

    placing = {"gzarr": place, "memcpy": memcpy_out, "numpy": assign, "contiguous": contiguous}
    gathering = {"gzarr": gather, "memcpy": memcpy_in, "numpy": take, "contiguous": contiguous_box}
    return placing, gathering, total


def measure(functions: dict[str, Callable[[], None]], nbytes: int, rounds: int) -> dict[str, float]:
    """Return the GB/s of each function: the median of rounds in which they take turns."""
    for function in functions.values():
        function()
    elapsed: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(rounds):
        for name, function in functions.items():
            begun = time.perf_counter()
            function()
            elapsed[name].append(time.perf_counter() - begun)
    rates = {name: nbytes / statistics.median(times) / 1e9 for name, times in elapsed.items()}
    # Within a round the machine is about the same for all.
    ratios = [copied / ours for ours, copied in zip(elapsed["gzarr"], elapsed["memcpy"], strict=True)]
    return rates | {"of memcpy": statistics.median(ratios)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, help="rounds; their median is reported")
    parser.add_argument("--only", default="", help="only cases whose label contains this")
    parser.add_argument("--offset", type=int, default=0, help="bytes from a cache line to the output's first element")
    parser.add_argument("--numpy", action="store_true", help="NumPy too")
    parser.add_argument("--json", type=Path, help="file for the results")
    arguments = parser.parse_args()
    rows = []
    print(f"{'':56}{'placing: gzarr':>14} {'memcpy':>7} {'numpy':>6} {'contig':>6} {'of memcpy':>9}", end="")
    print(f" | {'gathering: gzarr':>16} {'memcpy':>7} {'numpy':>6} {'contig':>6} {'of memcpy':>9}   (GB/s)")
    for (shape, order), (itemsize, swap) in itertools.product(SHAPES, ELEMENTS):
        case = Case(shape, order, itemsize, swap, grid_of(shape, itemsize))
        if arguments.only not in case.label:
            continue
        *both, nbytes = rivals(case, arguments.offset)
        row: dict[str, Any] = {"case": case.label, "nbytes": nbytes}
        line = f"{case.label:56}"
        for name, functions, width in (("placing", both[0], 14), ("gathering", both[1], 16)):
            if not arguments.numpy:
                functions = {"gzarr": functions["gzarr"], "memcpy": functions["memcpy"]}
            found = measure(functions, nbytes, arguments.rounds)
            row[name] = found
            line += f"{found['gzarr']:{width}.2f} {found['memcpy']:7.2f} {found.get('numpy', math.nan):6.2f} "
            line += f"{found.get('contiguous', math.nan):6.2f} {row[name]['of memcpy']:9.2f}"
            line += " | " if name == "placing" else ""
        print(line, flush=True)
        rows.append(row)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
