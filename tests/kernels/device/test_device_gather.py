"""The kernels of writing, as compiled for a GPU, against NumPy, zlib, and their inverses."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any

import google_crc32c
import numpy as np
import pytest
from gzarr_kernels.device import checksums as k
from gzarr_kernels.device import containers as c
from gzarr_kernels.device import gather as g
from gzarr_kernels.device import planes as p
from gzarr_kernels.device import shuffle as s
from hypothesis import given, settings
from hypothesis import strategies as st
from support.device_arena import Arena, blocks_of, launch, random_bytes, to_byte_planes
from support.guarded_memory import Guarded

pytestmark = pytest.mark.slow


# -- gather


@dataclass(frozen=True)
class Piece:
    """A box of an array that goes to a chunk: its first element and step in the chunk, and the part of the array."""

    chunk: int
    start: tuple[int, ...]
    part: tuple[slice, ...]


def first_byte(source: np.ndarray[Any, Any], part: tuple[slice, ...]) -> int:
    """Return the position in memory of the first element of a part of an array."""
    begins = [item.indices(n)[0] for item, n in zip(part, source.shape, strict=True)]
    return source.ctypes.data + sum(b * stride for b, stride in zip(begins, source.strides, strict=True))


def run_gather(
    root: np.ndarray[Any, Any],
    source: np.ndarray[Any, Any],
    chunk_shape: tuple[int, ...],
    pieces: list[Piece],
    fill: np.ndarray[Any, Any],
    *,
    order: tuple[int, ...],
    step: tuple[int, ...],
    width: int,
    swap: int,
    chunks: int,
) -> tuple[list[bytes], list[int]]:
    """Write the columns as documented by ``gather``, and run it; return the chunks and their marks.

    ``root`` is the memory, uint8, that contains ``source``.
    """
    itemsize = source.itemsize
    nbytes = int(np.prod(chunk_shape)) * itemsize
    arena = Arena.of(chunks * (nbytes + 64))
    low, high = np.lib.array_utils.byte_bounds(source)
    memory = root[low - root.ctypes.data : high - root.ctypes.data].view(f"u{width}")
    targets = [arena.reserve(nbytes) for _ in range(chunks)]
    arena.reserve(0)
    header = np.zeros(g.SIZE, np.int64)
    counts = [[len(range(*item.indices(n))) for item, n in zip(q.part, source.shape, strict=True)] for q in pieces]
    bases = [(first_byte(source, q.part) - low) // width for q in pieces]
    header[g.CHUNKS], header[g.WORDS], header[g.PER] = chunks, nbytes // width, itemsize // width
    header[g.K], header[g.FLIP] = len(order), max(swap - 1, 0)
    header[g.SHAPE] = arena.put([chunk_shape[d] for d in order])
    header[g.TARGET] = arena.put([at // width for at in targets])
    header[g.PIECE_OFFSETS] = arena.put(np.searchsorted([q.chunk for q in pieces], np.arange(chunks + 1)))
    header[g.START] = arena.put([[q.start[d] for d in order] for q in pieces])
    header[g.COUNT] = arena.put([[count[d] for d in order] for count in counts])
    header[g.BASE] = arena.put(bases)
    header[g.STEP] = arena.put([step[d] for d in order])
    header[g.STRIDES] = arena.put([source.strides[d] // width for d in order])
    header[g.FILL] = arena.put(fill.reshape(1).view(f"u{width}").astype("u8").view("i8"))
    header[g.MARKS] = marks = arena.put(np.zeros(chunks))
    job = arena.put(header)
    before = arena.memory.copy()
    launch(g.gather, memory, arena.memory.view(f"u{width}"), arena.columns, job)
    found = [arena.bytes_at(at, nbytes) for at in targets]
    marked = arena.columns[marks : marks + chunks].tolist()
    for at in targets:
        before[at : at + nbytes] = arena.memory[at : at + nbytes]
    before[8 * marks : 8 * (marks + chunks)] = arena.memory[8 * marks : 8 * (marks + chunks)]
    assert np.array_equal(before, arena.memory), "only chunks and marks are written"
    return found, marked


@st.composite
def gathers(draw: st.DrawFn) -> Any:
    dims = draw(st.integers(1, 3))
    chunk_shape = tuple(draw(st.integers(1, 5)) for _ in range(dims))
    itemsize = draw(st.sampled_from([1, 2, 4, 8, 16]))
    width = draw(st.sampled_from([w for w in (1, 2, 4, 8) if w <= itemsize]))
    swap = draw(st.sampled_from([w for w in (0, 2, 4, 8) if w <= itemsize]))
    step = tuple(draw(st.sampled_from([1, 1, 2])) for _ in range(dims))
    chunks = draw(st.integers(1, 3))
    pieces = []
    for chunk in range(chunks):
        for _ in range(draw(st.integers(0, 2))):
            start = tuple(draw(st.integers(0, n - 1)) for n in chunk_shape)
            room = [-(-(n - b) // q) for n, b, q in zip(chunk_shape, start, step, strict=True)]
            part = []
            for most in room:
                begin = draw(st.integers(0, 2))
                part.append(slice(begin, begin + draw(st.integers(1, most))))
            pieces.append(Piece(chunk, start, tuple(part)))
    order = tuple(draw(st.permutations(range(dims))))
    reverse = tuple(draw(st.booleans()) for _ in range(dims))
    return chunk_shape, itemsize, width, swap, step, chunks, pieces, order, reverse, draw(st.booleans())


@settings(max_examples=80, deadline=None)
@given(gathers())
def test_gather(case: Any) -> None:
    chunk_shape, itemsize, width, swap, step, chunks, pieces, order, reverse, broadcast = case
    shape = tuple(7 for _ in chunk_shape)
    root = Guarded(random_bytes(7 ** len(shape) * itemsize, 3)).array
    values = root.view(f"V{itemsize}").reshape(shape)
    source = values[tuple(slice(None, None, -1) if turned else slice(None) for turned in reverse)]
    if broadcast:
        source = np.lib.stride_tricks.as_strided(source, shape, (0, *source.strides[1:]))
    fill = np.frombuffer(random_bytes(itemsize, 4), f"V{itemsize}")
    found, marks = run_gather(
        root, source, chunk_shape, pieces, fill, order=order, step=step, width=width, swap=swap, chunks=chunks
    )
    for i in range(chunks):
        expected = np.full(chunk_shape, fill[0], f"V{itemsize}")
        touched = False
        for piece in (q for q in pieces if q.chunk == i):
            part = source[piece.part]
            inside = tuple(
                slice(b, b + (n - 1) * q + 1, q) for b, n, q in zip(piece.start, part.shape, step, strict=True)
            )
            expected[inside] = part
            touched = True
        stored = np.ascontiguousarray(expected.transpose(order))
        if swap:
            stored = stored.view(f"u{swap}").byteswap()
        assert found[i] == stored.tobytes()
        assert marks[i] == int(touched)


def test_chunks_of_the_fill_value_are_not_marked() -> None:
    source = np.zeros((4, 6), "f8")
    source[2, 3] = -0.0
    pieces = [Piece(i, (0, 0), (slice(2 * i, 2 * i + 2), slice(0, 6))) for i in range(2)]
    _, marks = run_gather(
        source.reshape(-1).view(np.uint8), source, (2, 6), pieces, np.zeros(1), order=(0, 1), step=(1, 1), width=8,
        swap=0, chunks=2,
    )  # fmt: skip
    assert marks == [0, 1]


# -- shuffles


def to_bit_planes(block: bytes, typesize: int) -> bytes:
    """Return the bytes that c-blosc stores: blocks whose number of elements is not a multiple of 8 stay unshuffled."""
    n = len(block) // typesize
    if n == 0 or n % 8:
        return block
    elements = np.frombuffer(block, np.uint8, n * typesize).reshape(n, typesize)
    bits = np.unpackbits(elements, axis=1, bitorder="little")
    return np.packbits(bits.T, axis=1, bitorder="little").tobytes() + block[n * typesize :]


@pytest.mark.parametrize("bits", [False, True])
@pytest.mark.parametrize("typesize", [1, 2, 3, 4, 7, 8, 16, 33])
def test_shuffles_are_the_inverse_of_those_of_reading(typesize: int, bits: bool) -> None:
    """Whole and short blocks, remainders, and blocks whose number of elements is not a multiple of 8."""
    cases = [(64, 0, 16), (65, 0, 16), (40, 3, 24), (33, 1, 8), (50, 5, 50), (1, 0, 8), (0, 0, 8), (7, 1, 7)]
    sizes = [n * typesize + min(extra, typesize - 1) for n, extra, _ in cases]
    chunks = [random_bytes(size, size) for size in sizes]
    arena = Arena.of(8 * sum(sizes))
    plain = [arena.put_bytes(chunk, i % 8) for i, chunk in enumerate(chunks)]
    planar, planes, again = ([arena.reserve(size, i % 5) for i, size in enumerate(sizes)] for _ in range(3))
    arena.reserve(0)
    shape = (
        np.full(len(cases), typesize), np.array([typesize * per for _, _, per in cases]), np.array(sizes),
    )  # fmt: skip

    def move(block: bytes) -> bytes:
        return to_bit_planes(block, typesize) if bits else to_byte_planes(block, typesize)

    def run(kernel: Any, source: list[int], target: list[int]) -> None:
        job, _ = p.job(arena.put, np.array(source), np.array(target), *shape)
        before = arena.memory.copy()
        launch(kernel, arena.memory, arena.columns, job)
        for at, size in zip(target, sizes, strict=True):
            before[at : at + size] = arena.memory[at : at + size]
        assert np.array_equal(before, arena.memory), "only the targets are written"

    if bits:
        run(s.plain_to_bit_planes, plain, planar)
        run(p.bit_planes_to_byte_planes, planar, planes)
    else:
        run(s.plain_to_byte_planes, plain, planes)
        planar = planes
    run(p.byte_planes_to_plain, planes, again)
    for at, size, chunk, per, moved in zip(again, sizes, chunks, shape[1].tolist(), planar, strict=True):
        assert arena.bytes_at(at, size) == chunk
        assert arena.bytes_at(moved, size) == b"".join(map(move, blocks_of(chunk, per)))


# -- containers


def test_numbers_anywhere() -> None:
    arena = Arena.of(0)
    values = [0, 1, 0x01020304, 0xFFFFFFFF, -1, 5]
    targets = [arena.reserve(4, i) for i in range(len(values))]
    arena.reserve(0)
    header = np.zeros(c.SIZE, np.int64)
    header[c.COUNT] = len(values)
    header[c.TARGET], header[c.VALUE] = arena.put(targets), arena.put(values)
    job = arena.put(header)
    expected = arena.memory.copy()
    for at, value in zip(targets, values, strict=True):
        expected[at : at + 4] = np.frombuffer((value & 0xFFFFFFFF).to_bytes(4, "little"), np.uint8)
    launch(c.put_numbers, arena.memory, arena.columns, job)
    assert np.array_equal(arena.memory, expected)


@pytest.mark.parametrize("threads", [1, 5])
def test_checksums_are_written_as_their_containers_have_them(threads: int) -> None:
    kinds: dict[int, Any] = {
        k.CRC32: lambda data: zlib.crc32(data).to_bytes(4, "little"),
        k.ADLER32: lambda data: zlib.adler32(data).to_bytes(4, "big"),
        k.CRC32C: lambda data: int(google_crc32c.value(data)).to_bytes(4, "little"),
    }
    arena = Arena.of(1 << 17)
    frames = [random_bytes(n, n) for n in (0, 1, 8, 9, 1000, 5001) for _ in kinds]
    kind = [*kinds] * 6
    source = [arena.put_bytes(frame, i % 9) for i, frame in enumerate(frames)]
    targets = [arena.reserve(4, i % 7) for i in range(len(frames))]
    arena.reserve(0)
    header = np.zeros(c.SIZE, np.int64)
    header[c.COUNT] = len(frames)
    header[c.TARGET], header[c.SOURCE] = arena.put(targets), arena.put(source)
    header[c.NBYTES], header[c.KIND] = arena.put([len(frame) for frame in frames]), arena.put(kind)
    job = arena.put(header)
    launch(c.put_checksums, arena.memory, arena.columns, job, threads=threads)
    for at, which, frame in zip(targets, kind, frames, strict=True):
        assert arena.bytes_at(at, 4) == kinds[which](frame)


def test_launches_are_bounded() -> None:
    assert g.blocks(0) == c.number_blocks(0) == 1
    assert g.blocks(g.THREADS + 1) == c.number_blocks(c.THREADS + 1) == 2
    assert g.blocks(1 << 50) == c.number_blocks(1 << 50) < 1 << 20
