"""Mutated chunks and shards for a fixed time: two decoders agree on what they accept; all else is an error of gzarr.

The fuzzing itself runs in a separate process, so that a crash is noticed, with the seed of the mutation that caused it.
Values and outputs end at an inaccessible page: reading or writing beyond the end is a crash, too.

``python tests/arrays/test_fuzz.py TARGET SECONDS SEED`` runs one target from the seed that a failure printed.
"""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import struct
import subprocess
import sys
import time
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numcodecs
import numpy as np
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gzarr.stores.base import ByteRange

pytestmark = pytest.mark.slow

PROJECT = Path(__file__).parents[2]
SECONDS = 6.0
ROWS = 1600
TYPES = {2: "uint16", 4: "uint32", 8: "uint64"}
BYTES: dict[str, Any] = {"name": "bytes", "configuration": {"endian": "little"}}


class Guarded:
    """A read-only store of one array whose chunk ends at an inaccessible page."""

    def __init__(self, document: bytes) -> None:
        self.document = document
        self.value: Any = b""

    def get(self, key: str) -> Any:
        return self.document if key == "zarr.json" else self.value if key == "c/0" else None

    def get_partial_values(self, key_ranges: Sequence[tuple[str, ByteRange]]) -> list[Any]:
        from gzarr.errors import StoreError

        parts: list[Any] = []
        for key, byte_range in key_ranges:
            value = self.get(key)
            if value is None:
                parts.append(None)
                continue
            size = len(value)
            begin = byte_range.offset if byte_range.offset >= 0 else size + byte_range.offset
            end = size if byte_range.length is None else begin + byte_range.length
            if begin < 0 or end > size:
                raise StoreError(f"{byte_range} does not lie within {size} bytes of {key!r}", key=key)
            parts.append(bytes(value[begin:end]))
        return parts


def document(itemsize: int, codecs: list[dict[str, Any]]) -> bytes:
    return json.dumps(
        {
            "zarr_format": 3,
            "node_type": "array",
            "shape": [ROWS],
            "data_type": TYPES[itemsize],
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [ROWS]}},
            "chunk_key_encoding": {"name": "default"},
            "fill_value": 0,
            "codecs": codecs,
        }
    ).encode()


def plain(random: np.random.Generator, itemsize: int) -> Any:
    """Elements that compress well, badly or not at all."""
    dtype = np.dtype(f"<u{itemsize}")
    kind = random.integers(0, 4)
    if kind == 0:
        return np.frombuffer(random.bytes(ROWS * itemsize), dtype)
    if kind == 1:
        return np.zeros(ROWS, dtype)
    if kind == 2:
        return random.integers(0, 50, ROWS).astype(dtype)
    return (np.arange(ROWS) // 3 % 200).astype(dtype)


def mutate(random: np.random.Generator, value: bytes, head: int) -> bytes:
    """Change a few bytes or words, most often in the first ``head`` bytes; or cut, repeat or insert some."""
    data = bytearray(value)
    for _ in range(int(random.integers(1, 4))):
        if not data:
            break
        at = int(random.integers(0, min(head, len(data)) if random.random() < 0.7 else len(data)))
        kind = random.integers(0, 8)
        if kind <= 1:
            data[at] = int(random.integers(0, 256))
        elif kind == 2:
            data[at] ^= 1 << int(random.integers(0, 8))
        elif kind <= 4:
            words = [0, 1, -1, 15, 16, 17, 127, 128, 255, 2**15, 2**31 - 1, -(2**31), len(data), len(data) - 4, ROWS]
            word = int(random.choice(words)) if random.random() < 0.7 else int(random.integers(-(2**31), 2**31))
            at -= at % 4
            if at + 4 <= len(data):
                struct.pack_into("<i", data, at, word)
        elif kind == 5:
            del data[int(random.integers(0, len(data) + 1)) :]
        elif kind == 6:
            n = int(random.integers(1, 9))
            data[at:at] = random.bytes(n)
        else:
            n = int(random.integers(1, 40))
            del data[at : at + n]
    return bytes(data)


class Target:
    """One kind of value: how to make it, and the verdict of an independent decoder."""

    def __init__(
        self,
        itemsize: int,
        codecs: list[dict[str, Any]],
        encode: Callable[[Any], bytes],
        reference: Callable[[bytes], bytes] | None,
        head: int = 40,
    ) -> None:
        self.itemsize = itemsize
        self.codecs = codecs
        self.encode = encode
        self.reference = reference
        self.head = head


def blosc_target(random: np.random.Generator) -> Target:
    itemsize = int(random.choice([2, 4, 8]))
    cname = str(random.choice(["blosclz", "lz4", "lz4hc", "zlib", "zstd"]))
    shuffle = int(random.integers(0, 3))
    blocksize = int(random.choice([0, 256, 1024, 4096]))
    names = ("noshuffle", "shuffle", "bitshuffle")
    codec = {
        "name": "blosc",
        "configuration": {
            "cname": cname,
            "clevel": 5,
            "shuffle": names[shuffle],
            "typesize": itemsize,
            "blocksize": blocksize,
        },
    }
    encoder = numcodecs.Blosc(cname, int(random.choice([1, 5, 9])), shuffle, blocksize)

    def reference(value: bytes) -> bytes:
        # numcodecs believes the header's sizes, so it is asked only where they are right.
        if len(value) < 16 or struct.unpack_from("<I", value, 4)[0] != ROWS * itemsize:
            raise ValueError("another size")
        if struct.unpack_from("<I", value, 12)[0] != len(value):
            raise ValueError("another length")
        return bytes(numcodecs.blosc.decompress(value))

    return Target(itemsize, [BYTES, codec], lambda a: bytes(encoder.encode(a)), reference)


def stream_target(random: np.random.Generator) -> Target:
    itemsize = int(random.choice([2, 4, 8]))
    kind = str(random.choice(["zstd", "gzip", "zlib", "lz4", "bz2", "lzma"]))
    level = {"level": 3}
    codecs: dict[str, tuple[str, dict[str, Any], Callable[[bytes], bytes], Callable[[bytes], bytes]]] = {
        "zstd": ("zstd", level | {"checksum": False}, numcodecs.Zstd(3).encode, numcodecs.Zstd().decode),
        "gzip": ("gzip", level, lambda d: gzip.compress(d, 3), gzip.decompress),
        "zlib": ("numcodecs.zlib", level, lambda d: zlib.compress(d, 3), zlib.decompress),
        "lz4": ("numcodecs.lz4", {"acceleration": 1}, numcodecs.LZ4().encode, numcodecs.LZ4().decode),
        "bz2": ("numcodecs.bz2", level, bz2.compress, bz2.decompress),
        "lzma": (
            "numcodecs.lzma",
            {"format": 1, "check": -1, "preset": None, "filters": None},
            lzma.compress,
            lzma.decompress,
        ),
    }
    name, configuration, encode, decode = codecs[kind]

    def reference(value: bytes) -> bytes:
        # numcodecs allocates what these headers state.
        if kind == "lz4" and (len(value) < 5 or struct.unpack_from("<I", value)[0] != ROWS * itemsize):
            raise ValueError("another size")
        if kind == "zstd":
            return zstd_reference(value, ROWS * itemsize)
        return bytes(decode(value))

    return Target(
        itemsize,
        [BYTES, {"name": name, "configuration": configuration}],
        lambda a: bytes(encode(a.tobytes())),
        reference,
    )


def zstd_reference(value: bytes, nbytes: int) -> bytes:
    import cramjam

    target = np.zeros(nbytes + 1, np.uint8)
    got = cramjam.zstd.decompress_into(value, target)
    return target[:got].tobytes()


def shard_target(random: np.random.Generator) -> Target:
    """Shards whose index has no checksum, so that its entries can be wrong."""
    itemsize = int(random.choice([2, 4, 8]))
    location = str(random.choice(["start", "end"]))
    inner = [BYTES, {"name": "zstd", "configuration": {"level": 1, "checksum": True}}]
    configuration = {
        "chunk_shape": [ROWS // 8],
        "codecs": inner,
        "index_codecs": [BYTES],
        "index_location": location,
    }

    def encode(array: Any) -> bytes:
        index = np.full((8, 2), 2**64 - 1, "<u8")
        body = b""
        base = index.nbytes if location == "start" else 0
        for i, part in enumerate(np.split(array, 8)):
            if random.random() < 0.85:
                encoded = bytes(numcodecs.Zstd(1, True).encode(part.tobytes()))
                index[i] = base + len(body), len(encoded)
                body += encoded
        return index.tobytes() + body if location == "start" else body + index.tobytes()

    def reference(value: bytes) -> bytes:
        if len(value) < 128:
            raise ValueError("too short")
        packed = value[:128] if location == "start" else value[-128:]
        result = b""
        for offset, nbytes in np.frombuffer(packed, "<u8").reshape(8, 2).tolist():
            if (offset, nbytes) == (2**64 - 1, 2**64 - 1):
                result += bytes(ROWS // 8 * itemsize)
                continue
            if offset + nbytes > len(value):
                raise ValueError("outside")
            result += zstd_reference(value[offset : offset + nbytes], ROWS // 8 * itemsize)
        return result

    codecs = [{"name": "sharding_indexed", "configuration": configuration}]
    return Target(itemsize, codecs, encode, reference, head=128)


TARGETS: dict[str, Callable[[np.random.Generator], Target]] = {
    "blosc": blosc_target,
    "streams": stream_target,
    "shards": shard_target,
}


def selections(random: np.random.Generator) -> Iterator[Any]:
    yield ...
    a, b = sorted(random.integers(0, ROWS + 1, 2).tolist())
    yield slice(a, b)
    yield slice(a, b, int(random.integers(1, 40)))
    yield random.integers(0, ROWS, 5)


def one(target_name: str, seed: int) -> str:
    """Fuzz with one seed; return the outcome."""
    from support.guarded_memory import Guarded as GuardedBytes

    import gzarr
    from gzarr.engines import kernels

    random = np.random.default_rng(seed)
    target = TARGETS[target_name](random)
    store = Guarded(document(target.itemsize, target.codecs))
    original = plain(random, target.itemsize)
    value = target.encode(original)
    if random.random() < 0.95:
        value = mutate(random, value, min(target.head, len(value)) or 1)
        if target_name == "shards" and random.random() < 0.5:
            # Behind a valid body, the index is at the other end.
            value = mutate(random, value[::-1], 128)[::-1]
    guarded = GuardedBytes(value)
    store.value = guarded.array
    expected: Any = None
    refusal: BaseException | None = None
    try:
        assert target.reference is not None
        decoded = target.reference(value)
        if len(decoded) == ROWS * target.itemsize:
            expected = np.frombuffer(decoded, f"<u{target.itemsize}")
    except Exception as error:
        refusal = error
    outcomes = []
    available = kernels.available
    for engine in ("native", "threads"):
        kernels.available = available if engine == "native" else frozenset  # type: ignore[assignment]
        try:
            array = gzarr.open_array(store)
            for selection in selections(np.random.default_rng(seed)):
                out = GuardedBytes(int(np.empty(ROWS)[selection].size) * target.itemsize).array.view(array.dtype)
                try:
                    array.read(selection, out=out)
                except gzarr.ChunkError as error:
                    refused = error
                else:
                    refused = None
                if refused is not None:
                    assert (refused.node, refused.key) == ("/", "c/0"), refused
                    outcomes.append((engine, "refused"))
                    continue
                outcomes.append((engine, "read"))
                if expected is not None:
                    np.testing.assert_array_equal(out, expected[selection])
                elif selection is ... and refusal is None:
                    raise AssertionError("read, though it decodes to another size")
        finally:
            kernels.available = available
    return "read" if ("native", "read") in outcomes else "refused"


def fuzz(target: str, seconds: float, seed: int, note: int | None) -> None:
    """Run consecutive seeds until the time is over; ``note`` gets each seed first, so that a crash can be repeated."""
    counts: dict[str, int] = {}
    one(target, seed)  # loads what is loaded late, outside of the time
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        seed += 1
        if note is not None:
            os.pwrite(note, b"%20d" % seed, 0)
        begun = time.monotonic()
        outcome = one(target, seed)
        assert time.monotonic() - begun < 5, f"seed {seed} took {time.monotonic() - begun:.1f} s"
        counts[outcome] = counts.get(outcome, 0) + 1
    print(json.dumps(counts))


@pytest.mark.parametrize("target", TARGETS)
def test_fuzz(target: str, tmp_path: Path) -> None:
    # A new place every run, and the place is printed.
    seed = int(np.random.SeedSequence().generate_state(1)[0])
    note = tmp_path / "seed"
    done = subprocess.run(
        [sys.executable, __file__, target, str(SECONDS), str(seed), str(note)],
        capture_output=True,
        text=True,
        timeout=100,
    )
    last = note.read_text().strip() if note.exists() else str(seed)
    again = f"python tests/arrays/test_fuzz.py {target} 1 {int(last) - 1}"
    assert done.returncode == 0, f"exit {done.returncode} at seed {last}; again: {again}\n{done.stderr[-6000:]}"
    counts = json.loads(done.stdout.splitlines()[-1])
    # Both outcomes were seen, often enough to mean something.
    assert counts.get("refused", 0) > 20, counts
    assert counts.get("read", 0) > 5, counts


if __name__ == "__main__":
    sys.path[:0] = [str(PROJECT), str(PROJECT / "kernels"), str(PROJECT / "tests")]
    where = os.open(sys.argv[4], os.O_WRONLY | os.O_CREAT) if len(sys.argv) > 4 else None
    fuzz(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), where)
