"""The kernels that encode, against NumPy, c-blosc and numcodecs; buffers end at an inaccessible page."""

from __future__ import annotations

import ctypes
import struct
import sys
from typing import Any

import numba
import numpy as np
import pytest
from gzarr_kernels import compiled, operations
from gzarr_kernels import status as S
from gzarr_kernels.blosc_encode import blosc_write
from gzarr_kernels.deinterleave import shuffle_block as _shuffle_block
from gzarr_kernels.deinterleave import to_bit_planes as _to_bit_planes
from gzarr_kernels.encode import encode_chunk as _encode_chunk
from gzarr_kernels.gather import all_fill, gather_chunk, gather_slab
from gzarr_kernels.slots import context as C
from gzarr_kernels.slots import encode as E
from gzarr_kernels.slots import geometry as G
from gzarr_kernels.slots.scratch import SCRATCH_BYTES
from numcodecs import blosc as numcodecs_blosc
from numcodecs import gzip, lz4, shuffle, zlib, zstd
from support.guarded_memory import Guarded

from gzarr.codecs.blosc import BloscCodec
from gzarr.codecs.codec import BytesRepresentation
from gzarr.codecs.crc32c import Crc32cCodec

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the compiled loop needs POSIX")

COMPRESSORS = {"blosclz": 0, "lz4": 1, "lz4hc": 2, "zlib": 4, "zstd": 5}
SHUFFLES = ("noshuffle", "shuffle", "bitshuffle")


def random_bytes(nbytes: int, seed: int = 0) -> bytes:
    return np.random.default_rng(seed).bytes(nbytes)


def smooth(nbytes: int, typesize: int = 4) -> bytes:
    """Bytes that compress with every shuffle: small numbers in little-endian elements."""
    n = -(-nbytes // typesize)
    rows = np.zeros((n, typesize), np.uint8)
    rows[:, 0] = (np.arange(n) // 7 + np.random.default_rng(1).integers(0, 3, n)) % 256
    return rows.tobytes()[:nbytes]


@numba.njit
def shuffle_block(source: int, nbytes: int, target: int, typesize: int) -> None:
    _shuffle_block(source, nbytes, target, typesize)


@numba.njit
def to_bit_planes(planes: int, n: int, target: int, typesize: int) -> None:
    _to_bit_planes(planes, n, target, typesize)


@numba.njit
def blosc(
    context: int,
    source: int,
    nbytes: int,
    target: int,
    compressor: int,
    level: int,
    shuffle: int,
    typesize: int,
    blocksize: int,
) -> int:
    return blosc_write(context, source, nbytes, target, compressor, level, shuffle, typesize, blocksize)


@numba.njit
def encode_chunk(context: int, program: int, operations: int, source: int, nbytes: int, owned: int) -> int:
    return _encode_chunk(context, program, operations, source, nbytes, owned)


@pytest.fixture
def context() -> Any:
    # What it frees belongs to the operations in use.
    compiled.address("blosc", "encode")
    slots = np.zeros(C.SIZE, np.int64)
    yield slots
    compiled.release()(slots.ctypes.data, -1)
    zstd_own, deflate_own = C.own("zstd"), C.own("deflate")
    assert not slots[[C.FIRST, C.SECOND, C.BLOCKS, zstd_own, zstd_own + 1, deflate_own, deflate_own + 1]].any()


# -- shuffles


@pytest.mark.parametrize("typesize", [*range(1, 18), 32, 255])
def test_shuffle_block(typesize: int) -> None:
    for n in (0, 1, 7, 8, 31, 32, 33, 63, 64, 65, 100, 257):
        for rest in (0, 1, typesize - 1):
            plain = random_bytes(n * typesize + rest % typesize, n)
            source, target = Guarded(plain), Guarded(len(plain))
            shuffle_block(source.address, len(plain), target.address, typesize)
            elements = np.frombuffer(plain[: n * typesize], np.uint8).reshape(n, typesize)
            assert target.tobytes() == elements.T.tobytes() + plain[n * typesize :], (n, rest)


@pytest.mark.parametrize("typesize", [1, 2, 3, 4, 8, 16, 17])
def test_to_bit_planes(typesize: int) -> None:
    for n in (8, 16, 24, 32, 40, 256, 264, 1032):
        planes = np.frombuffer(random_bytes(n * typesize, n), np.uint8).reshape(typesize, n)
        source, target = Guarded(planes.tobytes()), Guarded(n * typesize)
        to_bit_planes(source.address, n, target.address, typesize)
        bits = [np.packbits((plane >> b) & 1, bitorder="little") for plane in planes for b in range(8)]
        assert target.tobytes() == np.concatenate(bits).tobytes(), n


# -- blosc


def encode_blosc(
    context: Any, plain: bytes, cname: str, level: int, shuffle: int, typesize: int, blocksize: int
) -> bytes:
    source, target = Guarded(plain), Guarded(len(plain) + 16)
    compressor = COMPRESSORS[cname]
    size = blosc(
        context.ctypes.data, source.address, len(plain), target.address, compressor, level, shuffle, typesize, blocksize
    )
    assert 0 < size <= len(plain) + 16
    return target.tobytes()[:size]


@pytest.mark.parametrize("cname", COMPRESSORS)
@pytest.mark.parametrize("mode", range(3), ids=SHUFFLES)
def test_blosc_containers_are_c_blosc_s(context: Any, cname: str, mode: int) -> None:
    cases = [(nbytes, 5, typesize, 0) for nbytes in (1, 3, 127, 128, 129, 5000) for typesize in (1, 4)]
    cases += [(nbytes, level, 2, 0) for nbytes in (40_000, 333_333) for level in (0, 1, 3, 9)]
    cases += [(300_000, 5, typesize, 0) for typesize in (1, 2, 3, 8, 16, 17, 255)]
    cases += [(100_000, 5, 4, blocksize) for blocksize in (1, 100, 4096, 50_001, 1 << 20)]
    for nbytes, level, typesize, blocksize in cases:
        for plain in (smooth(nbytes, typesize), random_bytes(nbytes)):
            case = (nbytes, level, typesize, blocksize)
            mine = encode_blosc(context, plain, cname, level, mode, typesize, blocksize)
            assert numcodecs_blosc.decompress(mine) == plain, case
            codec = BloscCodec(cname, level, SHUFFLES[mode], typesize, blocksize)  # type: ignore[arg-type]
            theirs = codec.encode(plain, BytesRepresentation(nbytes)).tobytes()
            # Format, element size, sizes of data and blocks; what the streams hold depends on compressors' versions.
            assert mine[:1] + mine[3:12] == theirs[:1] + theirs[3:12], case
            assert struct.unpack("<I", mine[12:16])[0] == len(mine)
            if theirs[2] & 2 == mine[2] & 2:
                assert mine[2] == theirs[2], case
            assert len(mine) <= 1.02 * len(theirs) + 64, case


def test_a_context_changes_its_level(context: Any) -> None:
    plain = smooth(200_000, 2) + random_bytes(1000)
    sizes = [len(encode_blosc(context, plain, "zstd", level, 1, 2, 0)) for level in (1, 9, 1)]
    assert sizes[0] == sizes[2] > sizes[1]
    sizes = [len(encode_blosc(context, plain, "zlib", level, 1, 2, 0)) for level in (1, 9, 1)]
    assert sizes[0] == sizes[2] > sizes[1]


# -- programs


def encode(context: Any, plain: bytes, *steps: tuple[str, int, tuple[int, ...]]) -> bytes:
    words = np.zeros((len(steps), E.WORDS), np.int64)
    for row, (name, most, parameters) in zip(words, steps, strict=True):
        row[:2] = compiled.address(name, "encode"), E.IN_PLACE if operations.OPERATIONS[name].in_place else most
        row[2 : 2 + len(parameters)] = parameters
    source = Guarded(plain)
    address = context.ctypes.data
    code = encode_chunk(address, words.ctypes.data, len(steps), source.address, len(plain), 0)
    assert code == S.OK
    return ctypes.string_at(int(context[C.RESULT]), int(context[C.RESULT_NBYTES]))


@pytest.mark.parametrize("nbytes", [1, 2, 100, 4999, 70_001, 300_000])
@pytest.mark.parametrize("kind", ["smooth", "random"])
def test_each_encoder(context: Any, nbytes: int, kind: str) -> None:
    plain = smooth(nbytes) if kind == "smooth" else random_bytes(nbytes)
    room = 2 * nbytes + 1000
    for level in (-5, 0, 1, 3, 19):
        for checksum in (0, 1):
            mine = encode(context, plain, ("zstd", room, (level, checksum)))
            assert zstd.decompress(mine) == plain
            assert mine[4] >> 2 & 1 == checksum
            assert len(mine) <= 1.02 * len(zstd.compress(plain, level, bool(checksum))) + 16
    for acceleration in (-1, 0, 1, 10):
        mine = encode(context, plain, ("lz4", room, (acceleration,)))
        assert lz4.decompress(mine) == plain
        assert len(mine) <= 1.02 * len(lz4.compress(plain, acceleration)) + 16
    for level in (0, 1, 6, 9):
        mine = encode(context, plain, ("gzip", room, (level,)))
        assert gzip.GZip().decode(mine) == plain
        assert len(mine) <= 1.02 * len(gzip.GZip(level).encode(plain)) + 16
        mine = encode(context, plain, ("zlib", room, (level,)))
        assert zlib.Zlib().decode(mine) == plain
        assert len(mine) <= 1.02 * len(zlib.Zlib(level).encode(plain)) + 16


def test_operations_follow_each_other(context: Any) -> None:
    plain = smooth(40_000)
    mine = encode(
        context,
        plain,
        ("shuffle", 40_000, (4,)),
        ("lz4", 50_000, (1,)),
        ("crc32c", 50_004, ()),
        ("zstd", 60_000, (1, 0)),
        ("crc32c", 60_004, ()),
    )
    checked = Crc32cCodec().decode(mine, BytesRepresentation(None, 1 << 20))
    inner = np.frombuffer(zstd.decompress(checked), np.uint8)
    packed = Crc32cCodec().decode(inner, BytesRepresentation(None, 1 << 20))
    assert bytes(shuffle.Shuffle(4).decode(lz4.decompress(packed.tobytes()))) == plain


def test_too_little_room_is_an_error_and_not_an_overflow(context: Any) -> None:
    plain = random_bytes(100_000)
    words = np.zeros((1, E.WORDS), np.int64)
    source = Guarded(plain)
    for name, parameters in [("zstd", (3, 0)), ("lz4", (1,)), ("gzip", (1,)), ("zlib", (1,))]:
        words[0, : 2 + len(parameters)] = (compiled.address(name, "encode"), 90_000, *parameters)
        code = encode_chunk(context.ctypes.data, words.ctypes.data, 1, source.address, len(plain), 0)
        assert code in (S.NO_MEMORY, S.CORRUPT), name


# -- gathering


def geometry_of(
    inputs: list[np.ndarray[Any, Any]],
    pieces: list[tuple[int, tuple[int, ...], tuple[int, ...], tuple[int, ...]]],
    chunk: tuple[int, ...],
    order: tuple[int, ...],
    swap: int = 0,
) -> tuple[np.ndarray[Any, Any], list[Any]]:
    """Return the geometry of pieces (input, first in the chunk, number, first in the input), and its arrays."""
    k, itemsize = len(chunk), inputs[0].dtype.itemsize
    strides = [0] * k
    stride = itemsize
    for d in reversed(order):
        strides[d] = stride
        stride *= chunk[d]
    keep = {
        G.START: np.array([piece[1] for piece in pieces], np.int64),
        G.COUNT: np.array([piece[2] for piece in pieces], np.int64),
        G.TARGET: np.array([piece[3] for piece in pieces], np.int64),
        G.OUTPUT: np.array([piece[0] for piece in pieces], np.int64),
        G.STEP: np.ones(k, np.int64),
        G.SOURCE_STRIDES: np.array(strides, np.int64),
        G.BASES: np.array([array.__array_interface__["data"][0] for array in inputs], np.int64),
        G.TARGET_STRIDES: np.array([array.strides for array in inputs], np.int64),
        G.ORDER: np.array(order, np.int64),
        G.CHUNK_SHAPE: np.array(chunk, np.int64),
    }
    geometry = np.zeros(G.SIZE, np.int64)
    geometry[G.K], geometry[G.ITEMSIZE], geometry[G.SWAP] = k, itemsize, swap
    for slot, array in keep.items():
        geometry[slot] = array.ctypes.data
    return geometry, [keep, inputs]


@pytest.mark.parametrize("dtype", ["u1", "u2", "f4", "f8", "c16", "S3", "S24"])
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
@pytest.mark.parametrize("swapped", [False, True])
def test_gather(dtype: str, order: tuple[int, ...], swapped: bool) -> None:
    swap = {"u2": 2, "f4": 4, "f8": 8, "c16": 8}.get(dtype, 0) if swapped else 0
    base = np.frombuffer(random_bytes(11 * 9 * 40 * np.dtype(dtype).itemsize), dtype).reshape(11, 9, 40)
    views = [
        base,
        base[::-1, :, ::-1],
        base.transpose(2, 1, 0)[:11, :, :11],
        np.broadcast_to(base[:, 3:4, :], (11, 9, 40)),
    ]
    chunk = (6, 5, 9)
    fill = np.frombuffer(random_bytes(np.dtype(dtype).itemsize, 7), dtype)
    scratch = np.zeros(SCRATCH_BYTES, np.uint8)
    for view in views:
        inputs = [view, base[::2]]
        for pieces in (
            [(0, (0, 0, 0), chunk, (2, 1, 1))],
            [(0, (0, 0, 0), (6, 5, 1), (2, 1, 4))],
            [(0, (1, 0, 2), (4, 5, 7), (0, 3, 0)), (1, (2, 2, 3), (1, 1, 6), (4, 8, 5))],
        ):
            geometry, kept = geometry_of(inputs, pieces, chunk, order, swap)
            expected = np.full(chunk, fill[0], dtype)
            for which, start, size, first in pieces:
                inside = tuple(slice(s, s + n) for s, n in zip(start, size, strict=True))
                outside = tuple(slice(s, s + n) for s, n in zip(first, size, strict=True))
                expected[inside] = inputs[which][outside]
            stored = np.ascontiguousarray(expected.transpose(order))
            if swap:
                stored = stored.view(f"u{swap}").byteswap()
            target = Guarded(expected.nbytes)
            at = (geometry.ctypes.data, 0, len(pieces), target.address, expected.nbytes)
            gather_chunk(*at, fill.ctypes.data, scratch.ctypes.data)
            assert target.tobytes() == stored.tobytes(), (pieces, view.strides)
            plane = expected.nbytes // chunk[order[0]]
            for low, high in ((0, 2), (1, 4), (chunk[order[0]] - 1, chunk[order[0]])):
                slab = Guarded((high - low) * plane)
                part = (geometry.ctypes.data, 0, len(pieces), low, high, slab.address, (high - low) * plane)
                gather_slab(*part, fill.ctypes.data, scratch.ctypes.data)
                assert slab.tobytes() == stored.tobytes()[low * plane : high * plane], (pieces, low, high)
            del kept


@pytest.mark.parametrize("itemsize", [1, 2, 4, 8, 16, 3])
def test_all_fill(itemsize: int) -> None:
    fill = Guarded(random_bytes(itemsize))
    for n in (1, 2, 1000):
        chunk = Guarded(fill.tobytes() * n)
        assert all_fill(chunk.address, n * itemsize, fill.address, itemsize)
        for at in (0, n // 2 * itemsize, n * itemsize - 1):
            chunk.array[at] ^= 1
            assert not all_fill(chunk.address, n * itemsize, fill.address, itemsize)
            chunk.array[at] ^= 1
