"""Containers divided into frames, against independent decoders: frames decoded one by one give the chunk."""

from __future__ import annotations

import ctypes
import gzip
import itertools
import struct
import zlib
from typing import Any

import cramjam
import numcodecs
import numpy as np
import pytest
from gzarr_kernels import compiled
from gzarr_kernels.slots import context as C
from gzarr_kernels.slots import frames as f
from support.guarded_memory import Guarded
from support.staged_chunks import (
    CNAMES,
    CONTAINERS,
    ENCODING,
    NBYTES,
    Undecodable,
    Volume,
    blosc,
    blosc_snappy,
    chunk_of,
    compressor_of,
    encode,
    mixed,
    one,
    smooth,
    stage_all,
    with_crc,
    zstd_frame,
    zstd_run,
)

from gzarr.codecs.bytes import BytesCodec
from gzarr.codecs.codec import ArrayRepresentation
from gzarr.codecs.registry import codec_from_v3
from gzarr.engines.cpu.engine import CpuEngine
from gzarr.engines.cuda.staging import FALLBACK, READY
from gzarr.engines.kernels import available
from gzarr.errors import ChunkError
from gzarr.plan.decode_program import analyse

pytestmark = pytest.mark.slow

SKIPPED = struct.pack("<II", 0x184D2A53, 11) + b"no content."


def gzip_member(
    plain: bytes, *, extra: bytes | None = None, name: bytes = b"", note: bytes = b"", crc: bool = False
) -> bytes:
    flags = (extra is not None) << 2 | bool(name) << 3 | bool(note) << 4 | crc << 1
    header = bytes([0x1F, 0x8B, 8, flags, 0, 0, 0, 0, 0, 255])
    header += b"" if extra is None else struct.pack("<H", len(extra)) + extra
    header += (name + b"\0" if name else b"") + (note + b"\0" if note else b"")
    header += struct.pack("<H", zlib.crc32(header) & 0xFFFF) if crc else b""
    deflate = zlib.compressobj(6, zlib.DEFLATED, -15)
    return header + deflate.compress(plain) + deflate.flush() + struct.pack("<II", zlib.crc32(plain), len(plain))


@pytest.mark.parametrize("shuffle", [0, 1, 2])
@pytest.mark.parametrize("cname", CNAMES)
def test_blosc_layouts(cname: str, shuffle: int) -> None:
    memcpyed = short = streams = ready = 0
    for typesize, elements, blocksize in itertools.product(
        (1, 2, 3, 4, 8, 16, 17, 255), (1, 9, 100, 1000, 5000), (0, 256, 4096)
    ):
        plain = smooth(typesize * elements, typesize)
        container = blosc(plain, cname, shuffle, typesize, blocksize)
        size, actual = struct.unpack_from("<II", container, 4)
        volume = Volume([container], nbytes=size)
        memory = np.full(len(container) + 256, 0xAA, np.uint8)
        staged, frames = volume.staging("blosc", most_encoded=1 << 21).stage(np.arange(1), memory, memory.size, 8192)
        state = int(staged.state[0])
        if cname == "blosclz" and not container[2] & 2:
            assert state == FALLBACK
            continue
        assert state == READY
        assert chunk_of(staged, frames, memory.tobytes(), 0, size) == plain, (typesize, elements, blocksize)
        ready += 1
        memcpyed += container[2] & 2 > 0
        short += size % actual > 0
        streams = max(streams, len(frames.chunk) // -(-size // actual))
    assert ready
    if cname != "blosclz":
        assert memcpyed
        assert short
        assert streams == (16 if cname != "zstd" else 1)


@pytest.mark.parametrize("split", [False, True])
def test_snappy_in_blosc(split: bool) -> None:
    plain = smooth(2 * 1024 + 300)
    container = blosc_snappy(plain, split=split)
    last = struct.unpack_from("<3i", container, 16)[-1]
    assert one("blosc", container, len(plain)) == plain
    # The stream of the last block begins with its size.
    wrong = bytearray(container)
    wrong[last + 4] ^= 1
    assert one("blosc", bytes(wrong), len(plain)) == FALLBACK


def test_zstd_frames() -> None:
    a, b, c = smooth(1000), mixed(300), bytes(700)
    plain = a + b + c
    packed = bytes(numcodecs.Zstd(3).encode(a))
    empty = bytes(numcodecs.Zstd(1).encode(b""))
    for value in (
        bytes(numcodecs.Zstd(3).encode(plain)),
        packed + zstd_frame(b) + zstd_run(0, 700),
        SKIPPED + packed + SKIPPED + zstd_frame(b + c, window=0x50) + SKIPPED,
        empty + zstd_frame(plain) + empty,
    ):
        assert one("zstd", value, 2000) == plain
    large = np.random.default_rng(0).bytes(9000) * 120
    volume = Volume([bytes(numcodecs.Zstd(1).encode(large))], nbytes=len(large))
    states, decoded, _ = stage_all(volume.staging("zstd"), 1, len(large))
    assert (states, decoded) == ({0: READY}, {0: large})


def test_zstd_that_is_left_to_the_host() -> None:
    plain = mixed(2000)
    good = bytes(numcodecs.Zstd(3).encode(plain))
    streaming = cramjam.zstd.Compressor()
    streaming.compress(plain)
    block = len(plain) << 3
    start = struct.pack("<IBI", 0xFD2FB528, 0xA0, len(plain))
    bad = {
        "checksum": bytes(numcodecs.Zstd(3, True).encode(plain)),
        "without size": bytes(streaming.finish()),
        "dictionary": zstd_frame(plain, flags=1),
        "reserved bit": zstd_frame(plain, flags=8),
        "window": zstd_frame(plain, window=22 << 3),
        "block above the window": zstd_frame(plain, window=0),
        "reserved block": start + (block | 7).to_bytes(3, "little") + plain,
        "no last block": start + block.to_bytes(3, "little") + plain,
        "compressed block of one byte": start + (1 << 3 | 5).to_bytes(3, "little") + b"\0",
        "blocks give less": zstd_frame(plain[:-1], size=2000),
        "blocks give more": zstd_frame(plain + b"x", size=2000),
        "too few": zstd_frame(plain[:-1]),
        "too many": zstd_frame(plain) + zstd_frame(b"x"),
        "garbage behind": good + b"garbage behind",
        "short skippable frame": good + SKIPPED[:-1],
        "nothing": b"",
    }
    assert bad["without size"][4] & 0xE0 == 0
    for what, value in bad.items():
        assert one("zstd", value, 2000) == FALLBACK, what
    for nbytes in range(len(good)):
        assert one("zstd", good[:nbytes], 2000) == FALLBACK, nbytes


def test_gzip_members() -> None:
    plain = smooth(3000)
    assert one("gzip", gzip.compress(plain), 3000) == plain
    assert one("gzip", gzip_member(plain), 3000) == plain
    # Aligned bodies: 6 bytes of an extra field, a name of 7, a comment of 5 and a checksum of 2.
    assert one("gzip", gzip_member(plain, extra=b"extra."), 3000) == plain
    assert one("gzip", gzip_member(plain, name=b"a-name."), 3000) == plain
    assert one("gzip", gzip_member(plain, note=b"notes", crc=True), 3000) == plain
    good = gzip_member(plain)
    bad = {
        "unaligned body": gzip_member(plain, name=b"name"),
        "two members": gzip_member(plain[:1000]) + gzip_member(plain[1000:]),
        "empty member behind": good + gzip_member(b""),
        "zeros behind": good + bytes(8),
        "reserved flag": good[:3] + b"\x20" + good[4:],
        "other method": good[:2] + b"\x07" + good[3:],
        "name without end": good[:3] + b"\x08" + good[4:10] + b"x" * 30,
        "extra field without end": good[:3] + b"\x04" + good[4:10] + b"\xff\xff" + good[12:],
        "other size": gzip_member(plain[:-1]),
    }
    for what, value in bad.items():
        assert one("gzip", value, 3000) == FALLBACK, what
    for nbytes in range(20):
        assert one("gzip", good[:nbytes], 3000) == FALLBACK, nbytes


def test_zlib_headers() -> None:
    plain = smooth(3000)
    good = zlib.compress(plain)
    assert one("zlib", good, 3000) == plain
    dictionary = zlib.compressobj(zdict=b"words")
    with_dictionary = dictionary.compress(plain) + dictionary.flush()
    bad = [bytes([0x88, 0x1C]), bytes([0x79, 0x9C]), bytes([0x78, 0x9D])]
    for value in (*(head + good[2:] for head in bad), with_dictionary, good[:7], b""):
        assert one("zlib", value, 3000) == FALLBACK


def test_lz4_sizes() -> None:
    plain = smooth(3000)
    good = bytes(numcodecs.LZ4().encode(plain))
    assert one("lz4", good, 3000) == plain
    for value in (struct.pack("<I", 3001) + good[4:], good[:4], good[:3], b""):
        assert one("lz4", value, 3000) == FALLBACK


def test_checksums() -> None:
    plain = mixed(500)
    value = with_crc(with_crc(plain))
    assert one(None, value, 500, 2) == plain
    for at in (0, 499, 500, 503, 504, 507):
        broken = bytearray(value)
        broken[at] ^= 4
        assert one(None, bytes(broken), 500, 2) == FALLBACK
    for short in (b"", b"abc", value[:7], value[:-1], value + b"x"):
        assert one(None, short, 500, 2) == FALLBACK


# -- bytes that nobody wrote


CONFIGURATIONS: dict[str, Any] = {
    "zstd": {"name": "zstd", "configuration": {"level": 3, "checksum": False}},
    "gzip": {"name": "gzip", "configuration": {"level": 3}},
    "zlib": {"name": "numcodecs.zlib", "configuration": {"level": 3}},
    "lz4": {"name": "numcodecs.lz4", "configuration": {"acceleration": 1}},
    "blosc": {
        "name": "blosc",
        "configuration": {"cname": "lz4", "clevel": 5, "shuffle": "shuffle", "typesize": 4, "blocksize": 0},
    },
}


def mutated(random: np.random.Generator, value: bytes) -> bytes:
    data = bytearray(value)
    for _ in range(int(random.integers(1, 4))):
        head = min(len(data), 48)
        if not head:
            break
        at = int(random.integers(0, head if random.random() < 0.8 else len(data)))
        kind = int(random.integers(0, 5))
        if kind == 0:
            data[at] ^= 1 << int(random.integers(0, 8))
        elif kind == 1:
            data[at] = int(random.choice([0, 1, 127, 128, 255]))
        elif kind == 2 and at // 4 * 4 + 4 <= len(data):
            word = random.choice([0, 1, -1, 16, 128, 2**31 - 1, -(2**31), len(data), len(data) - 20, NBYTES])
            struct.pack_into("<i", data, at // 4 * 4, int(word))
        elif kind == 3:
            del data[at + 1 :]
        else:
            data[at:at] = random.bytes(int(random.integers(1, 9)))
    return bytes(data)


def host(codec: Any, value: bytes) -> bytes | None:
    """Return the result of the CPU engine, or None if it refuses."""
    chunk = ArrayRepresentation((NBYTES,), np.dtype("u1"))
    codecs = (BytesCodec(None), codec)
    decoding = analyse(codecs, chunk, available())
    request = Volume([value]).request(codecs)
    try:
        CpuEngine(decoding, 0, request.access, "a/", ENCODING).read(request)
    except ChunkError:
        return None
    return bytes(request.outputs[0].tobytes())


@pytest.mark.parametrize("container", [kind for kind in CONTAINERS if kind not in ("raw", "blosc-lz4hc-1")])
def test_mutated_containers(container: str) -> None:
    name = compressor_of(container)
    assert name is not None
    codec = codec_from_v3(CONFIGURATIONS[name], "$")
    random = np.random.default_rng(len(container))
    context = np.zeros(C.SIZE, np.int64)
    columns = Guarded(8 * f.COLUMNS * 512)
    cut = ctypes.CFUNCTYPE(*(ctypes.c_int64,) * 10)(compiled.address(name, "frames"))

    def scan(address: int, nbytes: int, columns_at: int) -> int:
        return int(cut(context.ctypes.data, address, 0, nbytes, NBYTES, 0, columns_at, 512, 0))

    ready = refused = 0
    originals = [encode(container, plain) for plain in (smooth(NBYTES), mixed(NBYTES))]
    for turn in range(150):
        value = originals[turn % 2] if turn % 10 == 0 else mutated(random, originals[turn % 2])
        memory = Guarded(value)
        # Nothing behind the value is looked at, nor written behind the columns.
        counted = scan(memory.address, len(value), 0)
        assert counted == f.REFUSED or 0 <= counted <= len(value)
        if 0 < counted <= 512:
            assert scan(memory.address, len(value), columns.address) == counted
        try:
            decoded = one(name, value, NBYTES)
        except Undecodable:
            # The device would say so, and the host would decode it.
            continue
        if decoded == FALLBACK:
            refused += 1
            continue
        ready += 1
        assert decoded == host(codec, value)
    assert refused > 10
    assert ready >= 15
