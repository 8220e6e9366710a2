"""Shared parts of the tests of staging: containers, reads of them, and decoders of frames other than gzarr's."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import cramjam
import google_crc32c
import numcodecs
import numpy as np
from gzarr_kernels.operations import OPERATIONS
from gzarr_kernels.slots import frames as f
from numcodecs import blosc as numcodecs_blosc
from numcodecs import lz4 as numcodecs_lz4
from support.guarded_memory import Guarded

from gzarr.codecs.codec import ArrayRepresentation
from gzarr.engines.access.access import ReadRequest
from gzarr.engines.access.choose import access_to
from gzarr.engines.access.sources import ABSENT as NO_RANGE
from gzarr.engines.access.sources import Sources
from gzarr.engines.cuda.staging import DEFERRED, READY, FrameFormat, Frames, Staged, Staging
from gzarr.metadata.chunk_grid import ChunkGrid
from gzarr.metadata.model import ChunkKeyEncoding
from gzarr.plan.planner import plan
from gzarr.plan.selection import parse_basic
from gzarr.stores.local import LocalStore
from gzarr.stores.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

ENCODING = ChunkKeyEncoding("default", "/")
NBYTES = 6000
MOST_ENCODED = 1 << 16
CNAMES = ("lz4", "lz4hc", "zlib", "zstd", "blosclz")
KINDS = ("local", "memory", "local shard", "memory shard")
CONTAINERS = (
    "raw",
    "zstd",
    "gzip",
    "zlib",
    "lz4",
    *(f"blosc-{name}-{shuffle}" for name in CNAMES[:4] for shuffle in (0, 1, 2)),
)


def smooth(nbytes: int, typesize: int = 4, seed: int = 1) -> bytes:
    """Bytes that compress with every shuffle: small numbers in little-endian elements."""
    n = -(-nbytes // typesize)
    rows = np.zeros((n, typesize), np.uint8)
    rows[:, 0] = (np.arange(n) // 7 + np.random.default_rng(seed).integers(0, 3, n)) % 256
    return rows.tobytes()[:nbytes]


def mixed(nbytes: int, seed: int = 0) -> bytes:
    """Bytes, half of which are compressible."""
    return smooth(nbytes - nbytes // 2) + np.random.default_rng(seed).bytes(nbytes // 2)


def blosc(plain: bytes, cname: str = "lz4", shuffle: int = 1, typesize: int = 4, blocksize: int = 0) -> bytes:
    data = np.frombuffer(plain, np.uint8)
    return bytes(numcodecs_blosc.compress(data, cname.encode(), 5, shuffle, blocksize, typesize=typesize))


def blosc_snappy(plain: bytes, typesize: int = 4, blocksize: int = 1024, *, split: bool = True) -> bytes:
    """A byte-shuffled container with snappy, which numcodecs' library does not write."""
    table, body = b"", b""
    blocks = range(0, len(plain), blocksize)
    for begin in blocks:
        block = np.frombuffer(plain[begin : begin + blocksize], np.uint8)
        planes = np.ascontiguousarray(block.reshape(-1, typesize).T).reshape(-1)
        table += struct.pack("<i", 16 + 4 * len(blocks) + len(body))
        for part in np.split(planes, typesize) if split and block.size == blocksize else [planes]:
            packed = bytes(cramjam.snappy.compress_raw(part.tobytes()))
            # A stream as long as its decoded data is not compressed.
            packed = packed if len(packed) < part.size else part.tobytes()
            body += struct.pack("<i", len(packed)) + packed
    flags = 2 << 5 | 1 | (0 if split else 0x10)
    return struct.pack("<BBBBIII", 2, 1, flags, typesize, len(plain), blocksize, 16 + len(table + body)) + table + body


def with_crc(data: bytes) -> bytes:
    return data + struct.pack("<I", google_crc32c.value(data))


def zstd_frame(content: bytes, *, flags: int = 0, window: int | None = None, size: int | None = None) -> bytes:
    """A frame of one raw block, with ``window`` as its descriptor byte, else with a single segment."""
    header = 0x80 | (0 if window is not None else 0x20) | flags
    frame = struct.pack("<IB", 0xFD2FB528, header) + (b"" if window is None else bytes([window]))
    frame += struct.pack("<I", len(content) if size is None else size)
    return frame + (len(content) << 3 | 1).to_bytes(3, "little") + content


def zstd_run(byte: int, count: int) -> bytes:
    """A frame with one block of a repeated byte."""
    frame = struct.pack("<IBI", 0xFD2FB528, 0xA0, count)
    return frame + (count << 3 | 2 | 1).to_bytes(3, "little") + bytes([byte])


def encode(kind: str, plain: bytes) -> bytes:
    name, _, rest = kind.partition("-")
    if name == "blosc":
        cname, _, shuffle = rest.partition("-")
        return blosc(plain, cname, int(shuffle))
    encoders: dict[str, Any] = {
        "raw": bytes,
        "zstd": numcodecs.Zstd(3).encode,
        "gzip": numcodecs.GZip(3).encode,
        "zlib": numcodecs.Zlib(3).encode,
        "lz4": numcodecs.LZ4().encode,
    }
    return bytes(encoders[name](plain))


def compressor_of(kind: str) -> str | None:
    name = kind.partition("-")[0]
    return None if name == "raw" else name


@dataclass
class Volume:
    """Chunks in a store, each of ``nbytes`` decoded bytes; None for absent ones."""

    values: Sequence[bytes | None]
    kind: str = "memory"
    nbytes: int = NBYTES
    folder: Path | None = None
    store: Any = None

    def request(self, codecs: tuple[Any, ...] = (), most_encoded: int = MOST_ENCODED) -> ReadRequest:
        n = len(self.values)
        planned = plan([parse_basic(..., (n * self.nbytes,))], ChunkGrid.regular((n * self.nbytes,), (self.nbytes,)))
        store = self.store
        if store is None:
            store = MemoryStore() if "memory" in self.kind else LocalStore(self.folder or "")
        if "shard" not in self.kind:
            for i, value in enumerate(self.values):
                if value is not None and self.store is None:
                    store.set(f"a/c/{i}", value)
            sources = Sources.whole_chunks(ENCODING, "a/", planned)
        else:
            # Chunks of two shards, last ones first, with gaps.
            shards = [b"", b""]
            columns = np.zeros((3, n), np.int64)
            for i in reversed(range(n)):
                value = self.values[i]
                columns[:, i] = i % 2, len(shards[i % 2]) if value is not None else 0, NO_RANGE
                if value is not None:
                    columns[2, i] = len(value)
                    shards[i % 2] += value + b"gap"
            for i, shard in enumerate(shards):
                store.set(f"a/{i}", shard)
            sources = Sources(["a/0", "a/1"], *columns)
        chunk = ArrayRepresentation((self.nbytes,), np.dtype("u1"))
        outputs = (np.zeros(n * self.nbytes, np.uint8),)
        access = access_to(store)
        return ReadRequest("/a", access, codecs, chunk, planned, sources, outputs, None, 0, "fill", most_encoded)

    def staging(self, compressor: str | None, checksums: int = 0, **options: Any) -> Staging:
        algorithm = OPERATIONS[compressor].algorithm if compressor is not None else None
        return Staging(self.request(**options), FrameFormat(compressor, algorithm, checksums, self.nbytes))


def stage_all(
    staging: Staging, chunks: int, nbytes: int, *, capacity: int = 1 << 18, most_frames: int = 4096
) -> tuple[dict[int, int], dict[int, bytes], int]:
    """Take wave after wave; return each chunk's state, the decoded bytes of READY chunks, and the number of waves."""
    pending = np.arange(chunks)
    states: dict[int, int] = {}
    plain: dict[int, bytes] = {}
    waves = 0
    while len(pending):
        memory = Guarded(b"\xaa" * capacity)
        staged, frames = staging.stage(pending, memory.array, capacity, most_frames)
        assert sorted(staged.rows.tolist()) == sorted(pending.tolist())
        assert staged.used <= capacity
        assert len(frames.chunk) <= most_frames
        # Nothing was written after the used bytes.
        assert memory.tobytes()[staged.used :] == b"\xaa" * (capacity - staged.used)
        taken = staged.state != DEFERRED
        assert taken.any()
        for i in np.flatnonzero(taken):
            row = int(staged.rows[i])
            states[row] = int(staged.state[i])
            if states[row] == READY:
                plain[row] = chunk_of(staged, frames, memory.tobytes(), int(i), nbytes)
        pending = staged.rows[~taken]
        waves += 1
    return states, plain, waves


def chunk_of(staged: Staged, frames: Frames, memory: bytes, i: int, nbytes: int) -> bytes:
    """Decode a chunk with decoders other than gzarr's."""
    direct = int(staged.direct[i])
    rows = np.flatnonzero(frames.chunk == i)
    if direct >= 0:
        assert not len(rows)
        assert direct % 16 == 0
        assert direct + nbytes + 64 <= staged.used
        return memory[direct : direct + nbytes]
    decoded = b""
    for row in sorted(rows.tolist(), key=lambda row: int(frames.target[row])):
        columns = (frames.algorithm, frames.source, frames.source_nbytes, frames.target, frames.target_nbytes)
        algorithm, source, source_nbytes, target, target_nbytes = (int(column[row]) for column in columns)
        # Frames fill the chunk without gap or overlap, and lie in staging memory.
        assert target == len(decoded)
        assert 0 <= source <= source + source_nbytes + 64 <= staged.used
        frame = decode_frame(algorithm, memory[source : source + source_nbytes], target_nbytes)
        check, expected = int(frames.check[row]), int(frames.expected[row])
        # Every container with deflate has a checksum, and no other has one.
        assert (check != f.UNCHECKED) == (algorithm == f.DEFLATE)
        if check and (zlib.crc32 if check == f.CRC32 else zlib.adler32)(frame) != expected:
            raise Undecodable("another checksum")
        decoded += frame
    typesize, blocksize = int(staged.typesize[i]), int(staged.blocksize[i])
    return unshuffled(decoded, typesize, blocksize, bits=bool(staged.bits[i]))


class Undecodable(Exception):
    """A failure that a device reports by a decoder's status, or by the checksum of decoded bytes."""


def decode_frame(algorithm: int, data: bytes, nbytes: int) -> bytes:
    try:
        frame = _decode_frame(algorithm, data, nbytes)
    except (cramjam.DecompressionError, zlib.error, RuntimeError) as error:
        raise Undecodable(str(error)) from error
    if len(frame) != nbytes:
        raise Undecodable(f"{len(frame)} bytes instead of {nbytes}")
    return frame


def _decode_frame(algorithm: int, data: bytes, nbytes: int) -> bytes:
    if algorithm == f.LZ4:
        return bytes(numcodecs_lz4.decompress(struct.pack("<I", nbytes) + data))
    if algorithm == f.ZSTD:
        target = np.zeros(nbytes, np.uint8)
        return target[: cramjam.zstd.decompress_into(data, target)].tobytes()
    if algorithm == f.SNAPPY:
        return bytes(cramjam.snappy.decompress_raw(data))
    if algorithm == f.DEFLATE:
        decoder = zlib.decompressobj(-15)
        decoded = decoder.decompress(data, nbytes + 1)
        if not decoder.eof or decoder.unused_data:
            raise Undecodable("it does not end where it should")
        return decoded
    assert algorithm == f.RAW
    return data


def unshuffled(decoded: bytes, typesize: int, blocksize: int, *, bits: bool) -> bytes:
    if typesize == 1 and not bits:
        return decoded
    plain = b""
    for begin in range(0, len(decoded), blocksize):
        block = decoded[begin : begin + blocksize]
        n = len(block) // typesize
        planes = np.frombuffer(block, np.uint8, n * typesize)
        if bits and n and n % 8 == 0:
            flat = np.unpackbits(planes, bitorder="little").reshape(8 * typesize, n)
            plain += np.packbits(flat.T, axis=1, bitorder="little").tobytes()
        elif bits:
            plain += planes.tobytes()
        else:
            plain += planes.reshape(typesize, n).T.tobytes()
        plain += block[n * typesize :]
    return plain


def one(compressor: str | None, value: bytes, nbytes: int, checksums: int = 0) -> bytes | int:
    """Stage one chunk; return its decoded bytes, or its state."""
    staging = Volume([value], nbytes=nbytes).staging(compressor, checksums)
    states, plain, _ = stage_all(staging, 1, nbytes)
    return plain.get(0, states[0])
