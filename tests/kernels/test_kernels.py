"""The kernels alone, against NumPy, numcodecs and cramjam; buffers end at an inaccessible page."""

from __future__ import annotations

import itertools
import struct
import sys
from typing import Any

import cramjam
import numba
import numpy as np
import pytest
from gzarr_kernels import compiled
from gzarr_kernels import status as S
from gzarr_kernels.bitshuffle import to_byte_planes as _to_byte_planes
from gzarr_kernels.bitshuffle import transpose_bits_8x8
from gzarr_kernels.blosc import blosc_check, decode_container
from gzarr_kernels.elements import copy_rows as _copy_rows
from gzarr_kernels.shuffle import unshuffle, unshuffle_block
from gzarr_kernels.shuffle import unshuffle_rows as _unshuffle_rows
from gzarr_kernels.slots import context as C
from gzarr_kernels.slots.scratch import TILE_BYTES
from gzarr_kernels.snappy import snappy_decompress
from gzarr_kernels.transpose import copy_tile as _copy_tile
from numcodecs import blosc as numcodecs_blosc
from support.guarded_memory import Guarded

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the compiled loop needs POSIX")


def random_bytes(nbytes: int, seed: int = 0) -> bytes:
    return np.random.default_rng(seed).bytes(nbytes)


def smooth(nbytes: int, typesize: int = 4) -> bytes:
    """Bytes that compress with every shuffle: small numbers in little-endian elements."""
    n = -(-nbytes // typesize)
    rows = np.zeros((n, typesize), np.uint8)
    rows[:, 0] = (np.arange(n) // 7 + np.random.default_rng(1).integers(0, 3, n)) % 256
    return rows.tobytes()[:nbytes]


@numba.njit
def unshuffle_rows(
    chunk: int,
    nbytes: int,
    blocksize: int,
    offset: int,
    by_source: int,
    target: int,
    by_target: int,
    rows: int,
    n: int,
    typesize: int,
    swap: int,
    stream: int,
) -> None:
    _unshuffle_rows(chunk, nbytes, blocksize, offset, by_source, target, by_target, rows, n, typesize, swap, stream)


@numba.njit
def to_byte_planes(block: int, n: int, target: int, typesize: int) -> None:
    _to_byte_planes(block, n, target, typesize)


@numba.njit
def copy_rows(
    source: int,
    by_source: int,
    source_stride: int,
    target: int,
    by_target: int,
    target_stride: int,
    rows: int,
    n: int,
    itemsize: int,
    swap: int,
    stream: int,
) -> None:
    _copy_rows(source, by_source, source_stride, target, by_target, target_stride, rows, n, itemsize, swap, stream)


#: Not aligned, and not zero: what is left in the buffers would show.
TILE_SCRATCH = Guarded(random_bytes(TILE_BYTES))


@numba.njit
def copy_tile_of(
    source: int,
    si: int,
    sj: int,
    target: int,
    ti: int,
    tj: int,
    ni: int,
    nj: int,
    itemsize: int,
    swap: int,
    scratch: int,
    stream: int,
    far: int,
) -> None:
    _copy_tile(source, si, sj, target, ti, tj, ni, nj, itemsize, swap, scratch, stream, far)


def copy_tile(
    source: int,
    si: int,
    sj: int,
    target: int,
    ti: int,
    tj: int,
    ni: int,
    nj: int,
    itemsize: int,
    swap: int,
    stream: int = 0,
    far: int = 0,
) -> None:
    copy_tile_of(source, si, sj, target, ti, tj, ni, nj, itemsize, swap, TILE_SCRATCH.address, stream, far)


# -- shuffles

TYPESIZES = [*range(1, 18), 32]
LENGTHS = [0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 39, 40, 41, 63, 64, 65, 100, 128]


@pytest.mark.parametrize("typesize", TYPESIZES)
def test_unshuffle(typesize: int) -> None:
    for n in LENGTHS:
        elements = np.frombuffer(random_bytes(n * typesize, n), np.uint8).reshape(n, typesize)
        planes = Guarded(elements.T.tobytes())
        for stream in (0, 1):
            target = Guarded(n * typesize)
            unshuffle(planes.address, n, target.address, n, typesize, stream)
            assert target.tobytes() == elements.tobytes(), (n, stream)


@pytest.mark.parametrize("typesize", TYPESIZES)
def test_unshuffle_backward_planes_swaps_bytes(typesize: int) -> None:
    for n in LENGTHS:
        elements = np.frombuffer(random_bytes(n * typesize, n), np.uint8).reshape(n, typesize)
        planes = Guarded(elements.T.tobytes())
        for stream in (0, 1):
            target = Guarded(n * typesize)
            unshuffle(planes.address + (typesize - 1) * n, -n, target.address, n, typesize, stream)
            assert target.tobytes() == elements[:, ::-1].tobytes(), (n, stream)


@pytest.mark.parametrize("typesize", [1, 2, 3, 4, 8, 16])
def test_unshuffle_of_a_run_within_the_planes(typesize: int) -> None:
    elements = np.frombuffer(random_bytes(150 * typesize), np.uint8).reshape(150, typesize)
    planes = Guarded(elements.T.tobytes())
    for first, n in [(0, 150), (1, 149), (5, 33), (117, 33), (149, 1), (31, 64)]:
        target = Guarded(n * typesize)
        unshuffle(planes.address + first, 150, target.address, n, typesize, 0)
        assert target.tobytes() == elements[first : first + n].tobytes(), (first, n)


@pytest.mark.parametrize("typesize", [2, 3, 4, 8, 12])
@pytest.mark.parametrize("swap", [False, True])
def test_unshuffle_rows_across_blocks(typesize: int, swap: bool) -> None:
    elements = np.frombuffer(random_bytes(1000 * typesize), np.uint8).reshape(1000, typesize)
    # Blocks of 96 elements, the last one of 40.
    blocks = [elements[begin : begin + 96].T.tobytes() for begin in range(0, 1000, 96)]
    chunk = Guarded(b"".join(blocks))
    expected = elements[:, ::-1] if swap else elements
    for first, rows, n, by_source, by_target in [
        (0, 1, 1000, 0, 0),
        (5, 3, 200, 250, 203),
        (90, 9, 10, 100, 10),
        (0, 10, 96, 96, 96),
        (999, 1, 1, 0, 0),
        (900, 4, 20, -300, 32),
        # Single elements, of blocks before and behind the one at hand too.
        (7, 40, 1, 24, 1),
        (999, 25, 1, -41, 3),
    ]:
        for stream in (0, 1):
            target = Guarded(((rows - 1) * by_target + n) * typesize)
            unshuffle_rows(
                chunk.address,
                1000 * typesize,
                96 * typesize,
                first * typesize,
                by_source * typesize,
                target.address,
                by_target * typesize,
                rows,
                n,
                typesize,
                typesize if swap else 0,
                stream,
            )
            found = target.array.reshape(-1, typesize)
            for r in range(rows):
                begin = first + r * by_source
                row = found[r * by_target : r * by_target + n]
                np.testing.assert_array_equal(row, expected[begin : begin + n], f"row {r} of {rows} × {n}")
            between = np.ones(len(found), np.bool_)
            for r in range(rows):
                between[r * by_target : r * by_target + n] = False
            assert not found[between].any()


@pytest.mark.parametrize("typesize", [1, 2, 3, 4, 7, 8, 16, 255])
def test_unshuffle_block_keeps_the_bytes_behind_the_last_element(typesize: int) -> None:
    for nbytes in (0, 1, typesize - 1, typesize, 40 * typesize, 40 * typesize + typesize - 1, 33 * typesize + 1):
        plain = random_bytes(nbytes, nbytes)
        whole = nbytes // typesize * typesize
        elements = np.frombuffer(plain[:whole], np.uint8).reshape(-1, typesize)
        block, target = Guarded(elements.T.tobytes() + plain[whole:]), Guarded(nbytes)
        unshuffle_block(block.address, nbytes, target.address, typesize)
        assert target.tobytes() == plain, nbytes


def test_transpose_bits_8x8() -> None:
    for seed in range(20):
        raw = random_bytes(8, seed)
        bits = np.unpackbits(np.frombuffer(raw, np.uint8).reshape(8, 1), axis=1, bitorder="little")
        expected = np.packbits(bits.T, axis=1, bitorder="little").tobytes()
        value = transpose_bits_8x8(np.uint64(int.from_bytes(raw, "little")))
        assert int(value).to_bytes(8, "little") == expected


@pytest.mark.parametrize("typesize", [1, 2, 3, 4, 5, 8, 16, 17])
def test_to_byte_planes(typesize: int) -> None:
    for n in (8, 16, 64, 248, 256, 264, 504, 512, 520, 1024 + 8):
        elements = np.frombuffer(random_bytes(n * typesize, n), np.uint8).reshape(n, typesize)
        bit_planes = b"".join(
            np.packbits((elements[:, j] >> b) & 1, bitorder="little").tobytes()
            for j in range(typesize)
            for b in range(8)
        )
        block, target = Guarded(bit_planes), Guarded(n * typesize)
        to_byte_planes(block.address, n, target.address, typesize)
        assert target.tobytes() == elements.T.tobytes(), n


# -- snappy


def snappy(data: bytes, capacity: int) -> tuple[int, bytes]:
    source, target = Guarded(data), Guarded(capacity)
    got = snappy_decompress(source.address, len(data), target.address, capacity)
    return got, target.tobytes()


def varint(value: int) -> bytes:
    out = b""
    while value >= 0x80:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


@pytest.mark.parametrize("nbytes", [0, 1, 59, 60, 61, 62, 255, 256, 257, 65535, 65536, 65537, 200_000])
@pytest.mark.parametrize("kind", ["random", "smooth", "constant"])
def test_snappy_against_cramjam(nbytes: int, kind: str) -> None:
    plain = {"random": random_bytes(nbytes), "smooth": smooth(nbytes), "constant": b"a" * nbytes}[kind]
    packed = bytes(cramjam.snappy.compress_raw(plain))
    assert snappy(packed, nbytes) == (nbytes, plain)
    assert snappy(packed, nbytes + 5)[0] == nbytes
    if nbytes:
        assert snappy(packed, nbytes - 1)[0] == -1


@pytest.mark.parametrize(
    ("length_bytes", "length"),
    [(0, 1), (0, 60)]
    + [(1, n) for n in (1, 60, 61, 256)]
    + [(2, n) for n in (1, 61, 256, 257, 65_536)]
    + [(k, n) for k in (3, 4) for n in (1, 61, 257, 65_536, 65_537, 70_000)],
)
def test_snappy_literal_lengths(length_bytes: int, length: int) -> None:
    if length_bytes == 0:
        tag = bytes([(length - 1) << 2])
    else:
        tag = bytes([(59 + length_bytes) << 2]) + (length - 1).to_bytes(length_bytes, "little")
    plain = random_bytes(length)
    packed = varint(length) + tag + plain
    if length > 3:
        # cramjam wants four bytes behind such a tag, also where the literal has fewer.
        assert bytes(cramjam.snappy.decompress_raw(packed)) == plain
    assert snappy(packed, length) == (length, plain)
    assert snappy(packed[:-1], length)[0] == -1


@pytest.mark.parametrize("distance", [1, 2, 3, 7, 8, 9])
@pytest.mark.parametrize("width", [1, 2, 4])
def test_snappy_overlapping_copies(distance: int, width: int) -> None:
    start = random_bytes(distance)
    length = 11 if width == 1 else 64
    if width == 1:
        tag = bytes([1 | (length - 4) << 2 | distance >> 8 << 5, distance & 0xFF])
    else:
        tag = bytes([(2 if width == 2 else 3) | (length - 1) << 2]) + distance.to_bytes(width, "little")
    plain = (start * (length + 1))[: distance + length]
    packed = varint(len(plain)) + bytes([(distance - 1) << 2]) + start + tag
    assert bytes(cramjam.snappy.decompress_raw(packed)) == plain
    assert snappy(packed, len(plain)) == (len(plain), plain)


@pytest.mark.parametrize(
    "packed",
    [
        b"",
        b"\x80",
        b"\xff\xff\xff\xff\xff\x01",
        b"\xff\xff\xff\xff\x0f",
        b"\x05",
        varint(4) + b"\x0cab",
        varint(4) + b"\xf0",
        varint(4) + b"\xfc\xff\xff\xff\xff" + b"abcd",
        varint(4) + b"\xf8\xff\xff",
        varint(5) + b"\x00a" + b"\x01\x00",
        varint(5) + b"\x00a" + b"\x01\x02",
        varint(5) + b"\x00a" + b"\x01",
        varint(5) + b"\x00a" + b"\x0e\x01",
        varint(5) + b"\x00a" + b"\x0f\x01\x00\x00",
        varint(5) + b"\x00a" + b"\x0f\xff\xff\xff\xff",
        varint(3) + b"\x00a" + b"\x01\x01",
        varint(2) + b"\x00a",
        varint(1) + b"\x00ab\x00b",
    ],
)
def test_snappy_refuses(packed: bytes) -> None:
    assert snappy(packed, 5)[0] == -1


def test_snappy_mutations_never_leave_their_buffers() -> None:
    random = np.random.default_rng(5)
    plain = smooth(3000)
    packed = bytes(cramjam.snappy.compress_raw(plain))
    for _ in range(1500):
        data = bytearray(packed[: random.integers(0, len(packed) + 1)] if random.random() < 0.3 else packed)
        for _ in range(random.integers(1, 4)):
            if data:
                data[random.integers(0, len(data))] = random.integers(0, 256)
        got, out = snappy(bytes(data), len(plain))
        try:
            expected = bytes(cramjam.snappy.decompress_raw(bytes(data)))
        except Exception:
            expected = b""
        if expected and len(expected) <= len(plain):
            assert (got, out[:got]) == (len(expected), expected)
        elif got >= 0:
            assert out[:got] == expected


# -- blosc


class Blosc:
    """The context of one worker, and a decoder with guarded buffers."""

    def __init__(self) -> None:
        # What is freed belongs to the operations in use.
        compiled.address("blosc", "decode")
        self.slots = np.zeros(C.SIZE, np.int64)
        self.address = self.slots.ctypes.data

    def check(self, container: bytes, expected: int) -> int:
        source = Guarded(container)
        return int(blosc_check(self.address, source.address, len(container), expected))

    def decode(self, container: bytes, expected: int, needed: bytes = b"", planes: int = 0) -> tuple[int, bytes]:
        source, target = Guarded(container), Guarded(expected)
        flags = Guarded(needed)
        code = blosc_check(self.address, source.address, len(container), expected)
        if code == S.OK:
            code = decode_container(
                self.address, source.address, len(container), target.address, flags.address if needed else 0, planes
            )
        return int(code), target.tobytes()

    def close(self) -> None:
        compiled.release()(self.address, -1)


@pytest.fixture
def blosc() -> Any:
    decoder = Blosc()
    yield decoder
    decoder.close()


def compress(plain: bytes, cname: str, clevel: int, shuffle: int, typesize: int, blocksize: int = 0) -> bytes:
    data = np.frombuffer(plain, np.uint8)
    if typesize > 1:
        # numcodecs takes the element size from the array: a void type has any.
        data = data[: len(plain) // typesize * typesize].view(np.dtype((np.void, typesize)))
        assert data.nbytes == len(plain)
    return bytes(numcodecs_blosc.compress(data, cname.encode(), clevel, shuffle, blocksize, typesize=typesize))


def header(container: bytes) -> tuple[int, int, int, int, int, int, int]:
    return struct.unpack("<BBBBIII", container[:16])  # type: ignore[return-value]


COMPRESSORS = ["blosclz", "lz4", "lz4hc", "zlib", "zstd"]


@pytest.mark.parametrize("cname", COMPRESSORS)
@pytest.mark.parametrize("shuffle", [0, 1, 2])
def test_blosc_against_numcodecs(blosc: Blosc, cname: str, shuffle: int) -> None:
    split = memcpyed = short = 0
    for typesize, elements, blocksize in itertools.product(
        (1, 2, 3, 4, 8, 12, 16, 17, 255), (1, 7, 8, 100, 4096, 10_001), (0, 256, 4096, 16_384)
    ):
        plain = smooth(elements * typesize, typesize)
        packed = compress(plain, cname, 5, shuffle, typesize, blocksize)
        assert bytes(numcodecs_blosc.decompress(packed)) == plain
        code, out = blosc.decode(packed, len(plain))
        assert (code, out == plain) == (S.OK, True), (typesize, elements, blocksize)
        flags, nbytes, block = header(packed)[2], header(packed)[4], header(packed)[5]
        memcpyed += flags & 2 != 0
        short += flags & 2 == 0 and nbytes % block != 0 and nbytes > block
        split += flags & 0x12 == 0 and typesize > 1
    # The cases hold what they are meant to hold.
    assert memcpyed
    assert short
    assert split or cname == "zstd"


@pytest.mark.parametrize("cname", COMPRESSORS)
@pytest.mark.parametrize("clevel", [0, 1, 9])
def test_blosc_levels_and_incompressible_bytes(blosc: Blosc, cname: str, clevel: int) -> None:
    mixed = smooth(50_000) + random_bytes(50_000) + smooth(23)
    for plain, shuffle in itertools.product((smooth(100_003), random_bytes(100_003), mixed), (0, 1, 2)):
        packed = compress(plain, cname, clevel, shuffle, 1, 8192)
        assert blosc.decode(packed, len(plain)) == (S.OK, plain)
        words = plain[: len(plain) // 8 * 8]
        packed = compress(words, cname, clevel, shuffle, 8, 8192)
        assert blosc.decode(packed, len(words)) == (S.OK, words)


@pytest.mark.parametrize("shuffle", [1, 2])
def test_blosc_tails_that_are_no_multiple_of_8_elements(blosc: Blosc, shuffle: int) -> None:
    for typesize, extra in itertools.product((1, 2, 4, 8), range(17)):
        plain = smooth((2048 + extra) * typesize, typesize)
        for blocksize in (0, 1024 * typesize):
            packed = compress(plain, "lz4", 5, shuffle, typesize, blocksize)
            assert blosc.decode(packed, len(plain)) == (S.OK, plain), (typesize, extra)


@pytest.mark.parametrize("typesize", [3, 5, 7])
def test_blosc_element_size_that_does_not_divide_the_data(blosc: Blosc, typesize: int) -> None:
    for shuffle, nbytes in itertools.product((1, 2), (1000, 1001, 10_000, 10_003)):
        # The container's element size is what the encoder was told, whatever the data is.
        plain = smooth(nbytes)
        packed = bytes(numcodecs_blosc.compress(plain, b"lz4", 5, shuffle, 1024, typesize=typesize))
        assert header(packed)[3] == typesize
        assert bytes(numcodecs_blosc.decompress(packed)) == plain
        assert blosc.decode(packed, nbytes) == (S.OK, plain)


def test_blosc_reads_only_the_blocks_needed(blosc: Blosc) -> None:
    for cname, shuffle, typesize in itertools.product(("lz4", "zstd"), (0, 1, 2), (1, 2, 4)):
        plain = smooth(200_001 * typesize, typesize)
        packed = bytearray(compress(plain, cname, 5, shuffle, typesize, 32_768))
        blocksize = header(packed)[5]
        blocks = -(-len(plain) // blocksize)
        assert blocks > 3
        needed = bytes(b % 2 for b in range(blocks))
        # What is not needed may be rubbish.
        starts = struct.unpack_from(f"<{blocks}i", packed, 16)
        for b in range(0, blocks, 2):
            struct.pack_into("<i", packed, starts[b], -1)
        code, out = blosc.decode(bytes(packed), len(plain), needed)
        assert code == S.OK
        for b in range(blocks):
            where = slice(b * blocksize, (b + 1) * blocksize)
            if needed[b]:
                assert out[where] == plain[where], b
            else:
                assert not any(out[where]), b
        assert blosc.decode(bytes(packed), len(plain))[0] == S.BAD_BLOSC


@pytest.mark.parametrize("typesize", [2, 4, 8])
@pytest.mark.parametrize("shuffle", [1, 2])
def test_blosc_leaves_byte_planes_to_the_caller(blosc: Blosc, typesize: int, shuffle: int) -> None:
    plain = smooth(5000 * typesize, typesize)
    packed = compress(plain, "zstd", 5, shuffle, typesize, 1024 * typesize)
    code, out = blosc.decode(packed, len(plain), planes=typesize)
    assert code == S.OK
    assert blosc.slots[C.TYPESIZE] == typesize
    blocksize = int(blosc.slots[C.BLOCKSIZE])
    whole = b""
    for begin in range(0, len(out), blocksize):
        block = np.frombuffer(out[begin : begin + blocksize], np.uint8)
        whole += block.reshape(typesize, -1).T.tobytes()
    assert whole == plain
    # Another element size than the caller's: plain bytes.
    code, out = blosc.decode(packed, len(plain), planes=typesize * 2)
    assert (code, out, int(blosc.slots[C.TYPESIZE])) == (S.OK, plain, 1)


def container(
    blocks: list[list[bytes]], size: int, blocksize: int, *, compressor: int, typesize: int = 1, flags: int = 0
) -> bytes:
    """Combine the streams of each block into a Blosc 1 container."""
    table, body = b"", b""
    at = 16 + 4 * len(blocks)
    for streams in blocks:
        table += struct.pack("<i", at + len(body))
        body += b"".join(struct.pack("<i", len(stream)) + stream for stream in streams)
    length = at + len(body)
    return struct.pack("<BBBBIII", 2, 1, compressor << 5 | flags, typesize, size, blocksize, length) + table + body


@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("split", [False, True])
def test_blosc_with_snappy_inside(blosc: Blosc, shuffled: bool, split: bool) -> None:
    typesize, blocksize = 4, 1024
    plain = smooth(2 * blocksize + 300, typesize)
    blocks = []
    for begin in range(0, len(plain), blocksize):
        block = np.frombuffer(plain[begin : begin + blocksize], np.uint8)
        if shuffled:
            block = np.ascontiguousarray(block.reshape(-1, typesize).T).reshape(-1)
        parts = np.split(block, typesize) if split and block.size == blocksize else [block]
        streams = []
        for part in parts:
            packed = bytes(cramjam.snappy.compress_raw(part.tobytes()))
            streams.append(packed if len(packed) < part.size else part.tobytes())
        blocks.append(streams)
    flags = (1 if shuffled else 0) | (0 if split else 0x10)
    packed = container(blocks, len(plain), blocksize, compressor=2, typesize=typesize, flags=flags)
    assert blosc.decode(packed, len(plain)) == (S.OK, plain)
    # The last block is one compressed stream: its first byte is a size.
    broken = bytearray(packed)
    broken[struct.unpack_from("<i", packed, 16 + 4 * (len(blocks) - 1))[0] + 4] ^= 0x01
    assert blosc.decode(bytes(broken), len(plain))[0] == S.CORRUPT


def test_blosc_empty(blosc: Blosc) -> None:
    packed = bytes(numcodecs_blosc.compress(b"", b"lz4", 5, 1))
    assert blosc.decode(packed, 0) == (S.OK, b"")


@pytest.mark.parametrize("cname", COMPRESSORS)
def test_blosc_every_truncation_is_refused(blosc: Blosc, cname: str) -> None:
    plain = smooth(6000)
    packed = compress(plain, cname, 5, 1, 4, 2048)
    for nbytes in range(len(packed)):
        assert blosc.decode(packed[:nbytes], len(plain))[0] == S.BAD_BLOSC, nbytes


def change(packed: bytes, layout: str, at: int, value: int) -> bytes:
    changed = bytearray(packed)
    struct.pack_into(layout, changed, at, value)
    return bytes(changed)


def test_blosc_lying_headers(blosc: Blosc) -> None:
    plain = smooth(6000)
    packed = compress(plain, "lz4", 5, 1, 4, 2048)
    start = struct.unpack_from("<i", packed, 16)[0]
    size = len(plain)
    table_end = 16 + 4 * -(-size // header(packed)[5])

    def status(changed: bytes, expected: int = size) -> tuple[int, int]:
        code = blosc.decode(changed, expected)[0]
        return code, int(blosc.slots[C.DETAIL])

    assert status(packed)[0] == S.OK
    assert status(packed, size + 1) == (S.WRONG_SIZE, size)
    for version in (0, 3, 255):
        assert status(change(packed, "<B", 0, version)) == (S.BAD_BLOSC, S.BLOSC_VERSION)
    assert status(change(packed, "<B", 3, 0)) == (S.BAD_BLOSC, S.BLOSC_TYPESIZE)
    for nbytes in (0, 1, size - 1, 2**31, 2**32 - 1):
        assert status(change(packed, "<I", 4, nbytes)) == (S.WRONG_SIZE, nbytes)
    for blocksize in (0, size + 1, 2**31, 2**32 - 1):
        assert status(change(packed, "<I", 8, blocksize)) == (S.BAD_BLOSC, S.BLOSC_BLOCKSIZE)
    assert status(change(packed, "<I", 8, 1)) == (S.BAD_BLOSC, S.BLOSC_TRUNCATED)
    for length in (0, 15, len(packed) + 1, 2**31, 2**32 - 1):
        assert status(change(packed, "<I", 12, length)) == (S.BAD_BLOSC, S.BLOSC_LENGTH)
    for offset in (-(2**31), -1, 0, 16, table_end - 1, len(packed) - 3, len(packed), 2**31 - 1):
        assert status(change(packed, "<i", 16, offset)) == (S.BAD_BLOSC, S.BLOSC_BLOCK_START), offset
    for length in (-(2**31), -1, len(packed), 2**31 - 1):
        assert status(change(packed, "<i", start, length)) == (S.BAD_BLOSC, S.BLOSC_STREAM_LENGTH), length
    assert status(change(packed, "<i", start, 0))[0] == S.CORRUPT
    for compressor in (5, 6, 7):
        assert status(change(packed, "<B", 2, compressor << 5 | 1)) == (S.BAD_BLOSC, S.BLOSC_COMPRESSOR)
    assert status(change(packed, "<B", 2, packed[2] | 8)) == (S.BAD_BLOSC, S.BLOSC_VERSION)
    assert status(change(packed, "<B", 2, packed[2] | 2)) == (S.BAD_BLOSC, S.BLOSC_LENGTH)


# -- copies of elements

ITEM_SIZES = [
    (1, 0),
    (2, 0),
    (2, 2),
    (3, 0),
    (4, 0),
    (4, 2),
    (4, 4),
    (7, 0),
    (8, 0),
    (8, 4),
    (8, 8),
    (16, 0),
    (16, 8),
    (12, 4),
]


def swapped(element: bytes, swap: int) -> bytes:
    return b"".join(element[i : i + swap][::-1] for i in range(0, len(element), swap)) if swap > 1 else element


@pytest.mark.parametrize(("itemsize", "swap"), ITEM_SIZES)
def test_copy_rows_with_strides(itemsize: int, swap: int) -> None:
    for n, ss, ts in itertools.product(
        (0, 1, 2, 9, 40),
        (itemsize, itemsize + 3, 5 * itemsize, -itemsize, -2 * itemsize - 1, 0),
        (itemsize, itemsize + 1, 3 * itemsize, -itemsize),
    ):
        span = max(n - 1, 0)
        row_source, row_target = span * abs(ss) + itemsize + 2, span * abs(ts) + itemsize + 5
        source, target = Guarded(random_bytes(2 * row_source)), Guarded(2 * row_target)
        plain = source.tobytes()
        from_ = span * -ss if ss < 0 else 0
        to = span * -ts if ts < 0 else 0
        expected = bytearray(2 * row_target)
        for row, i in itertools.product(range(2), range(n)):
            a = from_ + row * row_source + i * ss
            b = to + row * row_target + i * ts
            expected[b : b + itemsize] = swapped(plain[a : a + itemsize], swap)
        copy_rows(source.address + from_, row_source, ss, target.address + to, row_target, ts, 2, n, itemsize, swap, 0)
        assert target.tobytes() == bytes(expected), (n, ss, ts)


@pytest.mark.parametrize("stream", [0, 1])
def test_copy_rows_that_are_dense(stream: int) -> None:
    lengths = [*range(70), 95, 96, 97, 127, 128, 129, 191, 200, 1000, 1024, 1025, 1088, 5000]
    for nbytes, gap, rows in itertools.product(lengths, (0, 1, 32), (1, 3)):
        # Aligned targets are those that may be written past the caches.
        step = nbytes + gap if not stream else -(-(nbytes + gap) // 32) * 32
        source = Guarded(random_bytes((rows - 1) * (nbytes + 3) + nbytes, nbytes))
        target = Guarded(rows * step)
        copy_rows(source.address, nbytes + 3, 1, target.address, step, 1, rows, nbytes, 1, 0, stream)
        found, plain = target.tobytes(), source.tobytes()
        for row in range(rows):
            begin = row * (nbytes + 3)
            assert found[row * step :][:nbytes] == plain[begin : begin + nbytes], (nbytes, gap, row)
            assert not any(found[row * step + nbytes : (row + 1) * step]), (nbytes, gap, row)


@pytest.mark.parametrize(("itemsize", "swap"), ITEM_SIZES)
def test_copy_tile(itemsize: int, swap: int) -> None:
    for ni, nj in itertools.product((0, 1, 5, 8, 17), (0, 1, 7, 8, 9, 17)):
        # Dense along i in the source, along j in the target: a transposition.
        plain = np.frombuffer(random_bytes(ni * nj * itemsize), np.uint8).reshape(nj, ni, itemsize)
        source, target = Guarded(plain.tobytes()), Guarded(ni * nj * itemsize)
        copy_tile(
            source.address, itemsize, ni * itemsize, target.address, nj * itemsize, itemsize, ni, nj, itemsize, swap
        )
        expected = b"".join(swapped(plain[j, i].tobytes(), swap) for i in range(ni) for j in range(nj))
        assert target.tobytes() == expected, (ni, nj)


def test_copy_tile_with_odd_strides() -> None:
    plain = np.frombuffer(random_bytes(9 * 11 * 2), np.uint16).reshape(9, 11)
    source, target = Guarded(plain.tobytes()), Guarded(4 * 10 * 2)
    # Rows 8, 6, … of the source, every other column, reversed into the target.
    copy_tile(source.address + 8 * 22, -44, 4, target.address + 3 * 20 + 18, -20, -4, 4, 5, 2, 2)
    expected = np.zeros((4, 10), np.uint16)
    for i, j in itertools.product(range(4), range(5)):
        expected[3 - i, 9 - 2 * j] = plain[8 - 2 * i, 2 * j].byteswap()
    assert target.tobytes() == expected.tobytes()


def tile_of(
    plain: np.ndarray[Any, Any], target: np.ndarray[Any, Any], swap: int, stream: int = 0, far: int = 0
) -> None:
    """Copy an array of (nj, ni, itemsize) bytes to one of (ni, nj, itemsize) bytes, both of any strides."""
    nj, ni, itemsize = plain.shape
    (sj, si), (ti, tj) = plain.strides[:2], target.strides[:2]
    addresses = (array.__array_interface__["data"][0] for array in (plain, target))
    copy_tile(next(addresses), si, sj, next(addresses), ti, tj, ni, nj, itemsize, swap, stream, far)


def turned(plain: np.ndarray[Any, Any], swap: int) -> np.ndarray[Any, Any]:
    """Return the expected transposed array, by NumPy."""
    found = np.ascontiguousarray(plain.transpose(1, 0, 2))
    width = max(swap, 1)
    return found.reshape(*found.shape[:2], -1, width)[..., ::-1].reshape(found.shape)


@pytest.mark.parametrize("far", [0, 1])
@pytest.mark.parametrize(("itemsize", "swap"), ITEM_SIZES)
def test_copy_tile_of_any_size(itemsize: int, swap: int, far: int) -> None:
    # Around a lane, a line, the rows of a tile and the bytes of a long source row.
    line = max(64 // itemsize, 1)
    sizes = sorted({1, 3, line - 1, line, line + 1, 31, 32, 33, 65, 4 * line + 3, 512 // itemsize, 512 // itemsize + 1})
    for ni, nj in itertools.product(sizes, sizes):
        if not ni or not nj:
            continue
        source, target = Guarded(random_bytes(ni * nj * itemsize, ni)), Guarded(ni * nj * itemsize)
        plain = source.array.reshape(nj, ni, itemsize)
        tile_of(plain, target.array.reshape(ni, nj, itemsize), swap, 0, far)
        assert target.tobytes() == turned(plain, swap).tobytes(), (ni, nj)


@pytest.mark.parametrize("stream", [0, 1])
@pytest.mark.parametrize(("itemsize", "swap"), ITEM_SIZES)
def test_copy_tile_with_strides_that_are_powers_of_two(itemsize: int, swap: int, stream: int) -> None:
    # Rows of 4 KiB; the target begins anywhere in a line, so that first and last lines are partly others'.
    ni, nj = 70, 3000 // itemsize
    source = np.frombuffer(random_bytes(nj * 4096), np.uint8).reshape(nj, 4096)
    plain = source[:, : ni * itemsize].reshape(nj, ni, itemsize)
    memory = np.zeros(ni * 4096 + 4096, np.uint8)
    line = -memory.ctypes.data % 64
    for offset in (0, itemsize, 16, 33):
        memory[:] = 0x5A
        rows = memory[line + offset :][: ni * 4096].reshape(ni, 4096)
        tile_of(plain, rows[:, : nj * itemsize].reshape(ni, nj, itemsize), swap, stream)
        expected = turned(plain, swap).reshape(ni, -1)
        assert np.array_equal(rows[:, : expected.shape[1]], expected), offset
        assert (rows[:-1, expected.shape[1] :] == 0x5A).all(), offset
        assert (memory[: line + offset] == 0x5A).all(), offset


@pytest.mark.parametrize(("itemsize", "swap"), ITEM_SIZES)
def test_copy_tile_with_any_strides(itemsize: int, swap: int) -> None:
    nj, ni = 83, 67
    source = np.frombuffer(random_bytes(2 * nj * 3 * ni * itemsize), np.uint8).reshape(2 * nj, 3 * ni, itemsize)
    for plain in (source[::2, ::3], source[::-2, ::-3], source[:nj, ni - 1 :: -1], source[:1, :ni].repeat(nj, 0)):
        for steps in (np.s_[:ni, :nj], np.s_[::2, ::2], np.s_[::-2, ::-2], np.s_[ni - 1 :: -1, nj - 1 :: -1]):
            memory = np.zeros((2 * ni, 2 * nj, itemsize), np.uint8)
            expected = memory.copy()
            expected[steps] = turned(plain[:nj, :ni], swap)
            tile_of(plain[:nj, :ni], memory[steps], swap)
            assert np.array_equal(memory, expected), (plain.strides, steps)


def test_copy_tile_of_one_element() -> None:
    element = random_bytes(4)
    source, target = Guarded(element), Guarded(4 * 40 * 50)
    copy_tile(source.address, 0, 0, target.address, 4 * 50, 4, 40, 50, 4, 4)
    assert target.tobytes() == element[::-1] * 2000
