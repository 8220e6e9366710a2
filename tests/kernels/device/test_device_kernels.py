"""The device kernels, as compiled for a GPU, against NumPy, c-blosc and zlib."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import cramjam
import google_crc32c
import numpy as np
import pytest
from gzarr_kernels.device import assemble
from gzarr_kernels.device import checksums as s
from gzarr_kernels.device import copies as c
from gzarr_kernels.device import planes as p
from gzarr_kernels.device import target as t
from hypothesis import given
from hypothesis import strategies as st
from numcodecs import blosc as numcodecs_blosc
from support import made_up_kernels as m
from support.device_arena import Arena, blocks_of, launch, random_bytes, to_byte_planes
from support.guarded_memory import Guarded

pytestmark = pytest.mark.slow


# -- planes


def to_bit_planes(block: bytes, typesize: int) -> bytes:
    """Return the bytes that c-blosc stores: blocks whose number of elements is not a multiple of 8 stay unshuffled."""
    n = len(block) // typesize
    if n == 0 or n % 8:
        return block
    elements = np.frombuffer(block, np.uint8, n * typesize).reshape(n, typesize)
    bits = np.unpackbits(elements, axis=1, bitorder="little")
    return np.packbits(bits.T, axis=1, bitorder="little").tobytes() + block[n * typesize :]


TYPESIZES = [*range(1, 18), 200]


def convert(kernel: Any, chunks: list[bytes], typesizes: list[int], blocksizes: list[int], offset: int = 0) -> Any:
    arena = Arena.of(4 * sum(map(len, chunks)) + 1024 * len(chunks))
    source = [*map(arena.put_bytes, chunks[:-1]), arena.put_last(chunks[-1])]
    sizes = [len(chunk) for chunk in chunks]
    targets = [arena.reserve(size, offset) for size in sizes]
    arena.reserve(0)
    columns = [np.array(column, np.int64) for column in (source, targets, typesizes, blocksizes, sizes)]
    job, blocks = p.job(arena.put, *columns)
    assert blocks >= 1
    before = arena.memory.copy()
    launch(kernel, arena.memory, arena.columns, job)
    found = [arena.bytes_at(at, size) for at, size in zip(targets, sizes, strict=True)]
    for at, size in zip(targets, sizes, strict=True):
        before[at : at + size] = arena.memory[at : at + size]
    assert np.array_equal(before, arena.memory), "only the targets are written"
    return found


def chunk_cases(typesize: int) -> list[tuple[bytes, int]]:
    """Chunks and their block sizes: whole and short blocks, remainders, bit-shuffled or not depending on length."""
    pairs = []
    for i, (elements, extra, per_block) in enumerate(
        [(0, 0, 8), (1, 0, 8), (7, 0, 7), (8, 0, 8), (64, 0, 16), (65, 0, 16), (40, 3, 24), (33, 1, 8), (50, 5, 50)]
    ):
        nbytes = elements * typesize + min(extra, typesize - 1)
        pairs.append((random_bytes(nbytes, i), max(1, per_block * typesize)))
    pairs.append((random_bytes(16 * typesize + 6, 77), 8 * typesize + (typesize > 3)))
    return pairs


@pytest.mark.parametrize("typesize", TYPESIZES)
@pytest.mark.parametrize("offset", [0, 3])
def test_bit_planes_to_byte_planes(typesize: int, offset: int) -> None:
    pairs = chunk_cases(typesize)
    sources = [b"".join(to_bit_planes(b, typesize) for b in blocks_of(data, size)) for data, size in pairs]
    expected = [b"".join(to_byte_planes(b, typesize) for b in blocks_of(data, size)) for data, size in pairs]
    blocksizes = [size for _, size in pairs]
    typesizes = [typesize] * len(pairs)
    assert convert(p.bit_planes_to_byte_planes, sources, typesizes, blocksizes, offset) == expected


@pytest.mark.parametrize("typesize", TYPESIZES)
@pytest.mark.parametrize("offset", [0, 3])
def test_byte_planes_to_plain(typesize: int, offset: int) -> None:
    pairs = chunk_cases(typesize)
    sources = [b"".join(to_byte_planes(b, typesize) for b in blocks_of(data, size)) for data, size in pairs]
    blocksizes = [size for _, size in pairs]
    found = convert(p.byte_planes_to_plain, sources, [typesize] * len(pairs), blocksizes, offset)
    assert found == [data for data, _ in pairs]


def blosc_blocks(container: bytes) -> tuple[bytes, int]:
    """Return the shuffled bytes in an lz4 container of c-blosc, and its block size."""
    flags, typesize = container[2], container[3]
    size, blocksize, _ = struct.unpack_from("<III", container, 4)
    assert not flags & 2, "not compressed"
    shuffled = b""
    for i, begin in enumerate(range(0, size, blocksize)):
        here = min(blocksize, size - begin)
        split = not flags & 0x10 and typesize <= 16 and blocksize // typesize >= 128 and here == blocksize
        streams = typesize if split else 1
        (at,) = struct.unpack_from("<i", container, 16 + 4 * i)
        for _ in range(streams):
            (packed,) = struct.unpack_from("<i", container, at)
            stream = container[at + 4 : at + 4 + packed]
            part = here // streams
            shuffled += stream if packed == part else bytes(cramjam.lz4.decompress_block(stream, output_len=part))
            at += 4 + packed
    return shuffled, blocksize


@pytest.mark.parametrize("typesize", TYPESIZES)
def test_planes_of_real_containers(typesize: int) -> None:
    for shuffle, kernel in (
        (numcodecs_blosc.BITSHUFFLE, p.bit_planes_to_byte_planes),
        (numcodecs_blosc.SHUFFLE, p.byte_planes_to_plain),
    ):
        chunks, sources, blocksizes = [], [], []
        for n, block in [(4096, 512 * typesize), (1003, 0), (1000, 256 * typesize)]:
            elements = np.zeros((n, typesize), np.uint8)
            elements[:, 0] = np.arange(n) // 7
            container = numcodecs_blosc.compress(elements.tobytes(), b"lz4", 5, shuffle, block, typesize)
            source, blocksize = blosc_blocks(bytes(container))
            chunks.append(elements.tobytes())
            sources.append(source)
            blocksizes.append(blocksize)
        typesizes = [typesize] * len(chunks)
        if typesize == 1 and shuffle == numcodecs_blosc.SHUFFLE:
            # c-blosc leaves single bytes as they are.
            assert sources == chunks
        expected = chunks
        if shuffle == numcodecs_blosc.BITSHUFFLE:
            expected = [
                b"".join(to_byte_planes(block, typesize) for block in blocks_of(chunk, blocksize))
                for chunk, blocksize in zip(chunks, blocksizes, strict=True)
            ]
        assert convert(kernel, sources, typesizes, blocksizes) == expected


# -- copies and checksums


def test_copy_frames_of_any_length_and_alignment() -> None:
    arena = Arena.of(1 << 20)
    lengths = [*range(20), 63, 64, 65, 1000, 4097]
    frames = [random_bytes(n, n) for n in lengths for _ in range(4)]
    # Long ones are copied in parts.
    frames[5:5] = [random_bytes(n, n) for n in (c.PART_BYTES - 1, c.PART_BYTES, c.PART_BYTES + 1, 2 * c.PART_BYTES + 9)]
    source = [arena.put_bytes(frame, i % 16) for i, frame in enumerate(frames[:-1])]
    source.append(arena.put_last(frames[-1], 3))
    targets = [arena.reserve(len(frame), (5 * i + i // 7) % 16) for i, frame in enumerate(frames)]
    arena.reserve(0)
    header = np.zeros(c.SIZE, np.int64)
    header[c.FRAMES], header[c.PARTS] = len(frames), c.parts(max(map(len, frames)))
    header[c.SOURCE], header[c.TARGET] = arena.put(source), arena.put(targets)
    header[c.NBYTES] = arena.put([len(frame) for frame in frames])
    job = arena.put(header)
    expected = arena.memory.copy()
    for frame, at in zip(frames, targets, strict=True):
        expected[at : at + len(frame)] = np.frombuffer(frame, np.uint8)
    launch(c.copy_frames, arena.memory, arena.columns, job)
    assert np.array_equal(arena.memory, expected)


def test_copy_frames_beyond_31_bits() -> None:
    frame = random_bytes(1001)
    arena = Arena(Guarded((1 << 32) + 8192).array)
    header = np.zeros(c.SIZE, np.int64)
    header[c.FRAMES] = header[c.PARTS] = 1
    header[c.NBYTES] = arena.put([len(frame)])
    header[c.SOURCE] = arena.put([arena.put_bytes(frame, 5)])
    arena.used = 1 << 32
    header[c.TARGET] = arena.put([target := arena.reserve(len(frame), 2)])
    launch(c.copy_frames, arena.memory, arena.columns, arena.put(header))
    assert arena.bytes_at(target, len(frame)) == frame


CHECKSUMS = {s.CRC32: zlib.crc32, s.ADLER32: zlib.adler32, s.CRC32C: google_crc32c.value}


def verdicts(frames: list[bytes], kinds: list[int], expected: list[int], threads: int | None = None) -> list[int]:
    arena = Arena.of(sum(map(len, frames)) + 256 * len(frames))
    source = [arena.put_bytes(frame, 8 * (i % 2) if i % 3 else i % 7) for i, frame in enumerate(frames[:-1])]
    source.append(arena.put_last(frames[-1]))
    header = np.zeros(s.SIZE, np.int64)
    header[s.FRAMES] = len(frames)
    header[s.SOURCE], header[s.NBYTES] = arena.put(source), arena.put([len(frame) for frame in frames])
    header[s.EXPECTED], header[s.KIND] = arena.put(expected), arena.put(kinds)
    header[s.STATUS_BASE] = 3
    job = arena.put(header)
    statuses = np.full(len(frames) + 6, -9, np.int32)
    launch(s.checksums, arena.memory, arena.columns, statuses, job, threads=threads)
    assert statuses[:3].tolist() == statuses[-3:].tolist() == [-9] * 3
    return statuses[3:-3].tolist()


@pytest.mark.parametrize("kind", CHECKSUMS)
@pytest.mark.parametrize("threads", [1, 6])
def test_checksums(kind: int, threads: int) -> None:
    frames = [random_bytes(n, n) for n in (0, 1, 7, 8, 9, 47, 48, 49, 1000, 70001)]
    frames += [bytes(1000), b"\xff" * 9000]
    kinds = [kind] * len(frames)
    right = [CHECKSUMS[kind](frame) for frame in frames]
    assert verdicts(frames, kinds, right, threads) == [0] * len(frames)
    assert verdicts(frames, kinds, [value ^ 1 << 31 for value in right], threads) == [1] * len(frames)
    flipped = [bytes([*frame[:-1], frame[-1] ^ 0x10]) for frame in frames if frame]
    assert verdicts(flipped, kinds[1:], right[1:], threads) == [1] * len(flipped)


def test_checksums_of_different_kinds_in_one_launch() -> None:
    frames = [random_bytes(500 + n, n) for n in range(9)]
    kinds = [1 + n % 3 for n in range(9)]
    right = [CHECKSUMS[kind](frame) for kind, frame in zip(kinds, frames, strict=True)]
    wrong = [value + n % 2 for n, value in enumerate(right)]
    assert verdicts(frames, kinds, wrong) == [n % 2 for n in range(9)]


def test_adler32_reduces_its_sums_in_time() -> None:
    frame = b"\xff" * (5 << 20)
    assert verdicts([frame], [s.ADLER32], [zlib.adler32(frame)], threads=1) == [0]


# -- what they are made of


@given(st.integers(0, 500), st.integers(1, 20), st.integers(1, 60))
def test_indices_are_a_permutation(nbytes: int, typesize: int, blocksize: int) -> None:
    plain = random_bytes(nbytes, nbytes)
    planes = b"".join(to_byte_planes(block, typesize) for block in blocks_of(plain, blocksize))
    where, back = np.zeros(nbytes, np.int64), np.zeros(nbytes, np.int64)
    launch(m.indices, where, back, typesize, blocksize, nbytes, blocks=2, threads=3)
    assert bytes(planes[i] for i in where) == plain
    assert back.tolist() == [*range(nbytes)]


def test_swapped_bytes() -> None:
    word = np.frombuffer(random_bytes(8), np.uint64)
    out, positions = np.zeros(1, np.uint64), np.zeros(12, np.int64)
    for flip in (0, 1, 3, 7):
        launch(m.swapped, word, out, positions, flip, 0, blocks=1, threads=1)
        assert out == word.view(f"u{flip + 1}").byteswap().view(np.uint64)
    for swap in (0, 1, 2, 3, 4, 6):
        launch(m.swapped, word, out, positions, 0, swap, blocks=1, threads=1)
        assert positions.tolist() == np.arange(12).reshape(-1, max(swap, 1))[:, ::-1].ravel().tolist()


def test_launches_are_bounded() -> None:
    assert assemble.blocks(0) == p.blocks(0) == 1
    assert assemble.blocks(1 << 40) == p.blocks(1 << 40) == t.MOST_BLOCKS
    assert p.blocks(t.THREADS + 1) == 2
