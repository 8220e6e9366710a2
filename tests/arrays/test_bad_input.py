"""Corrupt and hostile chunks, shards and stores: errors are gzarr's, and name node, chunk and key."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import struct
import subprocess
import sys
import textwrap
import time
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import google_crc32c
import numcodecs
import numpy as np
import pytest

import gzarr
from gzarr.engines import kernels
from gzarr.errors import (
    ArgumentError,
    ChunkDecodeError,
    ChunkError,
    ChunkReadError,
    GzarrError,
    MissingChunkError,
    StoreError,
)
from gzarr.stores import LocalStore, MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gzarr.stores.base import ByteRange

pytestmark = pytest.mark.slow

PROJECT = Path(__file__).parents[2]
NODE = "group/data"
BAD_KEY = f"{NODE}/c/1/0"
ROWS = 1000
NBYTES = 4 * ROWS
#: No test here may take longer: bad input is refused promptly.
SECONDS = 10.0

GOOD = (np.arange(ROWS, dtype=np.int32) // 3).astype("<i4")
BAD = (np.arange(ROWS, dtype=np.int32) * 7 % 251).astype("<i4")

BYTES: dict[str, Any] = {"name": "bytes", "configuration": {"endian": "little"}}
BIG: dict[str, Any] = {"name": "bytes", "configuration": {"endian": "big"}}
CRC32C: dict[str, Any] = {"name": "crc32c"}


def crc32c(data: bytes) -> bytes:
    return data + struct.pack("<I", google_crc32c.value(data))


def blosc(cname: str, shuffle: str) -> tuple[list[dict[str, Any]], Callable[[bytes], bytes]]:
    code = {"noshuffle": 0, "shuffle": 1, "bitshuffle": 2}[shuffle]
    configuration = {"cname": cname, "clevel": 5, "shuffle": shuffle, "typesize": 4, "blocksize": 0}
    encoder = numcodecs.Blosc(cname, 5, code, 0)

    def encode(data: bytes) -> bytes:
        items = np.frombuffer(data, "<i4") if len(data) % 4 == 0 else data
        return bytes(encoder.encode(items))

    return [BYTES, {"name": "blosc", "configuration": configuration}], encode


def named(name: str, configuration: dict[str, Any], encode: Callable[[bytes], bytes]) -> Any:
    return [BYTES, {"name": name, "configuration": configuration}], encode


LZMA = {"format": 1, "check": -1, "preset": None, "filters": None}
#: Chains (v3) and what encodes the bytes of a chunk.
CHAINS: dict[str, tuple[list[dict[str, Any]], Callable[[bytes], bytes]]] = {
    "none": ([BYTES], bytes),
    "big": ([BIG], lambda d: np.frombuffer(d, "<i4").astype(">i4").tobytes()),
    "crc32c": ([BYTES, CRC32C], crc32c),
    "zstd": named("zstd", {"level": 3, "checksum": False}, lambda d: bytes(numcodecs.Zstd(3).encode(d))),
    "zstd-checksum": named("zstd", {"level": 3, "checksum": True}, lambda d: bytes(numcodecs.Zstd(3, True).encode(d))),
    "gzip": named("gzip", {"level": 5}, lambda d: gzip.compress(d, 5)),
    "zlib": named("numcodecs.zlib", {"level": 5}, lambda d: zlib.compress(d, 5)),
    "lz4": named("numcodecs.lz4", {"acceleration": 1}, lambda d: bytes(numcodecs.LZ4().encode(d))),
    "bz2": named("numcodecs.bz2", {"level": 5}, bz2.compress),
    "lzma": named("numcodecs.lzma", LZMA, lzma.compress),
    "blosc-lz4": blosc("lz4", "shuffle"),
    "blosc-zstd": blosc("zstd", "bitshuffle"),
    "blosc-blosclz": blosc("blosclz", "shuffle"),
    "blosc-zlib": blosc("zlib", "shuffle"),
}
CHECKSUMMED = ("crc32c", "zstd-checksum", "gzip", "zlib", "bz2", "lzma")


def metadata(codecs: list[dict[str, Any]]) -> bytes:
    return json.dumps(
        {
            "zarr_format": 3,
            "node_type": "array",
            "shape": [2, ROWS],
            "data_type": "int32",
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1, ROWS]}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "fill_value": -1,
            "codecs": codecs,
        }
    ).encode()


@pytest.fixture(params=["native", "threads"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a test with both engines; for the threads engine, the native decoders are removed."""
    if request.param == "threads":
        monkeypatch.setattr(kernels, "available", frozenset)
    elif "loop" not in kernels.available():
        pytest.skip("the compiled loop is not available on this platform")
    return str(request.param)


@pytest.fixture(params=["memory", "local"])
def values(request: pytest.FixtureRequest, tmp_path: Path) -> Values:
    return Values(MemoryStore() if request.param == "memory" else LocalStore(tmp_path / "store"))


class Values:
    """Return a store with an array of two chunks, whose second chunk tests damage."""

    def __init__(self, store: Any) -> None:
        self.store = store

    def array(self, chain: str) -> gzarr.Array:
        codecs, encode = CHAINS[chain]
        self.store.set(f"{NODE}/zarr.json", metadata(codecs))
        self.store.set(f"{NODE}/c/0/0", encode(GOOD.tobytes()))
        return gzarr.open_array(self.store, path=NODE)

    def put(self, value: bytes) -> None:
        self.store.set(BAD_KEY, value)


def refused(
    array: gzarr.Array,
    kind: type[ChunkError] | tuple[type[ChunkError], ...] = ChunkDecodeError,
    *,
    chunk: tuple[int, ...] = (1, 0),
    key: str = BAD_KEY,
    selection: Any = (1, slice(None)),
    **options: Any,
) -> ChunkError:
    """Read the broken chunk alone and with all others, expecting the error each time; then read the good chunk."""
    begun = time.monotonic()
    for what in (selection, ...):
        with pytest.raises(kind) as caught:
            array.read(what, **options)
        error = caught.value
        assert isinstance(error, GzarrError)
        assert (error.node, error.chunk, error.key) == (f"/{NODE}", chunk, key)
        for part in (f"/{NODE}", str(chunk), key):
            assert part in str(error)
    np.testing.assert_array_equal(array[0], GOOD)
    assert time.monotonic() - begun < SECONDS
    return error


def same_or_refused(array: gzarr.Array) -> Any:
    """Expect one of gzarr's errors, or an array (corrupt bytes without a checksum may decode); never a crash."""
    caught = None
    try:
        result = array[1]
    except ChunkDecodeError as error:
        caught = error
    else:
        assert result.shape == (ROWS,)
    if caught is not None:
        assert (caught.node, caught.chunk, caught.key) == (f"/{NODE}", (1, 0), BAD_KEY)
    return None if caught is not None else result


# -- truncated, corrupted, other sizes


def lengths(n: int) -> list[int]:
    near = {*range(min(n, 24)), *range(max(n - 12, 0), n)}
    return sorted(near | set(np.random.default_rng(n).integers(0, n, 12).tolist()))


@pytest.mark.parametrize("chain", CHAINS)
def test_truncated(values: Values, engine: str, chain: str) -> None:
    array = values.array(chain)
    encoded = CHAINS[chain][1](BAD.tobytes())
    values.put(encoded)
    np.testing.assert_array_equal(array[1], BAD)
    for n in lengths(len(encoded)):
        values.put(encoded[:n])
        with pytest.raises(ChunkDecodeError) as caught:
            array[1]
        assert (caught.value.node, caught.value.chunk, caught.value.key) == (f"/{NODE}", (1, 0), BAD_KEY), n
    values.put(b"")
    refused(array)


@pytest.mark.parametrize("chain", CHECKSUMMED)
def test_corrupted_under_a_checksum(values: Values, engine: str, chain: str) -> None:
    array = values.array(chain)
    encoded = CHAINS[chain][1](BAD.tobytes())
    random = np.random.default_rng(3)
    for i in random.integers(0, len(encoded), 60).tolist():
        broken = bytearray(encoded)
        broken[i] ^= 1 << int(random.integers(0, 8))
        values.put(bytes(broken))
        result = same_or_refused(array)
        if result is not None:
            # Bits that say nothing about the content: a time stamp, the name of a system.
            np.testing.assert_array_equal(result, BAD)
    values.put(bytes(encoded[: len(encoded) // 2]) + b"\xa5" * (len(encoded) - len(encoded) // 2))
    refused(array)


@pytest.mark.parametrize("chain", [name for name in CHAINS if name not in CHECKSUMMED])
def test_corrupted_without_a_checksum(values: Values, engine: str, chain: str) -> None:
    array = values.array(chain)
    encoded = CHAINS[chain][1](BAD.tobytes())
    random = np.random.default_rng(4)
    for i in [*range(min(len(encoded), 24)), *random.integers(0, len(encoded), 40).tolist()]:
        broken = bytearray(encoded)
        broken[i] = int(random.integers(0, 256))
        values.put(bytes(broken))
        same_or_refused(array)
    np.testing.assert_array_equal(array[0], GOOD)


@pytest.mark.parametrize("chain", [name for name in CHAINS if name not in ("none", "big")])
def test_rubbish(values: Values, engine: str, chain: str) -> None:
    array = values.array(chain)
    for n in (1, 3, 4, 15, 16, 17, 100, NBYTES, NBYTES + 4):
        for value in (bytes(n), b"\xff" * n, np.random.default_rng(n).bytes(n)):
            values.put(value)
            refused(array)


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("nbytes", [0, 4, NBYTES - 4, NBYTES + 4, 2 * NBYTES, 400 * NBYTES])
def test_decodes_to_another_size(values: Values, engine: str, chain: str, nbytes: int) -> None:
    array = values.array(chain)
    values.put(CHAINS[chain][1](bytes(nbytes)))
    refused(array)
    # A partial read must not be satisfied with a part.
    with pytest.raises(ChunkDecodeError):
        array[1, 5:9]


@pytest.mark.parametrize("chain", ["blosc-lz4", "blosc-zstd", "blosc-blosclz", "blosc-zlib"])
@pytest.mark.parametrize(
    ("layout", "at", "lies"),
    [
        ("<B", 0, [0, 3, 255]),
        ("<B", 3, [0]),
        ("<I", 4, [0, 1, NBYTES - 1, NBYTES + 1, 2**31 - 1, 2**31, 2**32 - 1]),
        ("<I", 8, [0, NBYTES + 1, 2**31 - 1, 2**31, 2**32 - 1]),
        ("<I", 12, [0, 15, 16, 10**5, 2**31 - 1, 2**31, 2**32 - 1]),
        ("<i", 16, [-(2**31), -1, 0, 2**30, 2**31 - 1]),
        ("<i", 20, [-(2**31), -1, 0, 2**30, 2**31 - 1]),
    ],
)
def test_lying_blosc_headers(values: Values, engine: str, chain: str, layout: str, at: int, lies: list[int]) -> None:
    array = values.array(chain)
    encoded = CHAINS[chain][1](BAD.tobytes())
    assert struct.unpack_from("<I", encoded, 8)[0] == NBYTES, "one block: the stream's length is at byte 20"
    for lie in lies:
        broken = bytearray(encoded)
        struct.pack_into(layout, broken, at, lie)
        values.put(bytes(broken))
        refused(array)


def test_lying_lz4_header(values: Values, engine: str) -> None:
    array = values.array("lz4")
    encoded = CHAINS["lz4"][1](BAD.tobytes())
    for lie in (0, 1, NBYTES - 1, NBYTES + 1, 2 * NBYTES, 2**31 - 1, 2**31, 2**32 - 1):
        values.put(struct.pack("<I", lie) + encoded[4:])
        refused(array)
    # An honest header over a block that holds more, or less.
    for nbytes in (NBYTES - 4, NBYTES + 4, 100 * NBYTES):
        values.put(struct.pack("<I", NBYTES) + bytes(numcodecs.LZ4().encode(bytes(nbytes)))[4:])
        refused(array)


def zstd_frame(data: bytes, claims: int | None = None) -> bytes:
    """One raw-block frame whose header may lie about its content size."""
    header = b"\x28\xb5\x2f\xfd"
    if claims is None:
        header += bytes([0x00, 0x58])  # no content size; a window of 2 MiB
    else:
        header += bytes([0xE0]) + struct.pack("<Q", claims)
    blocks = b""
    for begin in range(0, max(len(data), 1), 65536):
        part = data[begin : begin + 65536]
        last = begin + 65536 >= len(data)
        blocks += struct.pack("<I", len(part) << 3 | last)[:3] + part
    return header + blocks


def test_zstd_frames(values: Values, engine: str) -> None:
    array = values.array("zstd")
    plain = BAD.tobytes()
    skippable = struct.pack("<II", 0x184D2A53, 5) + b"hello"
    for frames in (
        zstd_frame(plain),
        zstd_frame(plain, NBYTES),
        zstd_frame(plain[:100]) + zstd_frame(plain[100:], NBYTES - 100),
        skippable + zstd_frame(plain) + skippable,
        zstd_frame(b"") + zstd_frame(plain),
    ):
        values.put(frames)
        np.testing.assert_array_equal(array[1], BAD)
    for frames in (
        zstd_frame(plain, NBYTES - 1),
        zstd_frame(plain, NBYTES + 1),
        zstd_frame(plain, 0),
        zstd_frame(plain, 2**40),
        zstd_frame(plain, 2**63),
        zstd_frame(plain, 2**64 - 3),
        zstd_frame(plain[:-4]),
        zstd_frame(plain + b"1234"),
        zstd_frame(plain) + zstd_frame(b"1"),
        zstd_frame(plain) + b"rubbish",
        zstd_frame(plain[:100]),
        skippable,
        struct.pack("<II", 0x184D2A53, 2**32 - 1) + zstd_frame(plain),
        zstd_frame(b""),
    ):
        values.put(frames)
        refused(array)


def test_gzip_members(values: Values, engine: str) -> None:
    array = values.array("gzip")
    plain = BAD.tobytes()
    named = bytearray(gzip.compress(plain))
    named[3] |= 8
    for members in (
        gzip.compress(plain[:100]) + gzip.compress(plain[100:]),
        gzip.compress(b"") + gzip.compress(plain),
        gzip.compress(plain) + bytes(20),
        bytes(named[:10]) + b"name of a file\0" + bytes(named[10:]),
    ):
        values.put(members)
        np.testing.assert_array_equal(array[1], BAD)
    whole = gzip.compress(plain)
    for members in (
        gzip.compress(plain) + gzip.compress(b"1"),
        gzip.compress(plain[:100]),
        gzip.compress(plain) + b"rubbish",
        whole[:-4] + struct.pack("<I", NBYTES + 1),
        whole[:-8] + bytes(4) + whole[-4:],
        bytes(named[:10]) + b"x" * 5000,
    ):
        values.put(members)
        refused(array)


# -- what expands, and what is far too large: in a process whose memory is watched

CHILD = """
import json, sys, time
sys.path[:0] = [{here!r}, {tests!r}, {project!r}, {kernels!r}]
import test_bad_input as t
import gzarr
from gzarr.engines import kernels
from support.peak_memory import peak_nbytes
if {engine!r} == "threads":
    kernels.available = frozenset

def report():
    print(json.dumps({{"peak_mb": peak_nbytes() / 2**20}}))
"""


def child(engine: str, body: str, timeout: float = 90.0) -> dict[str, Any]:
    """Run ``body`` in a separate process; return the last JSON object that it prints."""
    start = CHILD.format(
        here=str(Path(__file__).parent),
        tests=str(PROJECT / "tests"),
        project=str(PROJECT),
        kernels=str(PROJECT / "kernels"),
        engine=engine,
    )
    done = subprocess.run(
        [sys.executable, "-c", start + textwrap.dedent(body)], capture_output=True, text=True, timeout=timeout
    )
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def bombs() -> dict[str, tuple[list[dict[str, Any]], bytes]]:
    """Chains, and values of a few kilobytes or megabytes that would expand to 4 GiB or more."""
    unit = bytes(64 << 20)
    full = zlib.compressobj(9)
    begin = full.compress(unit) + full.flush(zlib.Z_FULL_FLUSH)
    again = full.compress(unit) + full.flush(zlib.Z_FULL_FLUSH)
    raw = zlib.compressobj(9, wbits=31)
    gzip_begin = raw.compress(unit) + raw.flush(zlib.Z_FULL_FLUSH)
    gzip_again = raw.compress(unit) + raw.flush(zlib.Z_FULL_FLUSH)
    frame = bytes(numcodecs.Zstd(1).encode(unit))
    values = {
        "zlib": begin + again * 80,
        "gzip": gzip_begin + gzip_again * 80,
        "gzip-members": gzip.compress(unit, 9) * 80,
        "bz2": bz2.compress(unit) * 80,
        "lzma": lzma.compress(unit, preset=0) * 80,
        "zstd": frame * 80,
        "zstd-honest": zstd_frame(b"", 2**36),
        "lz4": struct.pack("<I", 2**31 - 1) + b"\x1f\0\1\0" + b"\xff" * (8 << 20) + b"\0",
        "lz4-short": struct.pack("<I", NBYTES) + b"\x1f\0\1\0" + b"\xff" * 9000 + b"\0",
        "blosc-lz4": struct.pack("<BBBBIII", 2, 1, 33, 4, 2**31 - 17, 2**31 - 17, 10_000) + bytes(10_000 - 16),
        "blosc-zstd": struct.pack("<BBBBIII", 2, 1, 144, 4, NBYTES, NBYTES, 24 + len(frame))
        + struct.pack("<ii", 20, len(frame))
        + frame,
    }

    def chain_of(name: str) -> str:
        return "gzip" if name == "gzip-members" else name.removesuffix("-honest").removesuffix("-short")

    cases = {name: (CHAINS[chain_of(name)][0], value) for name, value in values.items()}
    # One compressor inside another: nobody knows the size between them.
    inner, outer = CHAINS["zstd"][0], CHAINS["gzip"][0]
    cases["gzip of zstd"] = ([*inner, outer[1]], values["gzip"])
    cases["zstd of gzip"] = ([*outer, inner[1]], values["zstd"])
    cases["bz2 of lzma"] = ([*CHAINS["lzma"][0], CHAINS["bz2"][0][1]], values["bz2"])
    return cases


def test_bombs(engine: str) -> None:
    result = child(
        engine,
        """
        cases = t.bombs()
        slow, wrong = {}, {}
        # Kernels are loaded, or compiled, before anything is timed.
        array = gzarr.create_array({}, shape=64, chunks=8, dtype="i4")
        array[...] = 1
        array[...]
        for name, (codecs, value) in cases.items():
            store = {f"{t.NODE}/zarr.json": t.metadata(codecs), t.BAD_KEY: value}
            array = gzarr.open_array(store, path=t.NODE)
            begun = time.monotonic()
            try:
                array[...]
                wrong[name] = "read"
            except gzarr.ChunkDecodeError as error:
                if (error.node, error.chunk, error.key) != ("/" + t.NODE, (1, 0), t.BAD_KEY):
                    wrong[name] = str(error)
            except Exception as error:
                wrong[name] = repr(error)
            took = time.monotonic() - begun
            if took > 8:
                slow[name] = took
        print(json.dumps({"slow": slow, "wrong": wrong, "peak_mb": peak_nbytes() / 2**20}))
        """,
    )
    assert result["wrong"] == {}
    assert result["slow"] == {}
    assert result["peak_mb"] < 600


HUGE = 3 << 30


@pytest.mark.parametrize("chain", ["none", "zstd", "gzip", "lz4", "bz2", "blosc-lz4"])
def test_huge_file_as_a_chunk(tmp_path: Path, engine: str, chain: str) -> None:
    array = Values(LocalStore(tmp_path)).array(chain)
    path = tmp_path / BAD_KEY
    path.parent.mkdir(parents=True)
    path.touch()
    os.truncate(path, HUGE)
    result = child(
        engine,
        f"""
        array = gzarr.open_array({str(tmp_path)!r}, path=t.NODE)
        begun = time.monotonic()
        error = t.refused(array, gzarr.ChunkError)
        report()
        """,
    )
    assert result["peak_mb"] < 600
    assert array.shape == (2, ROWS)


@pytest.mark.parametrize("follow", [True, False])
def test_huge_inner_chunk_in_a_sparse_shard(tmp_path: Path, engine: str, follow: bool) -> None:
    store = LocalStore(tmp_path)
    store.set(f"{NODE}/zarr.json", metadata(sharded()))
    store.set(f"{NODE}/c/0/0", shard([GOOD[:500], GOOD[500:]]))
    index = np.array([[0, HUGE], [100, 50]], "<u8").tobytes()
    path = tmp_path / BAD_KEY
    path.parent.mkdir(parents=True)
    with path.open("wb") as file:
        file.truncate(HUGE)
        file.seek(HUGE)
        file.write(crc32c(index))
    result = child(
        engine,
        f"""
        store = gzarr.LocalStore({str(tmp_path)!r}, follow_symlinks={follow})
        array = gzarr.open_array(store, path=t.NODE)
        t.refused(array, gzarr.ChunkError, chunk=(1, 0), selection=(1, slice(0, 500)))
        report()
        """,
    )
    assert result["peak_mb"] < 600


# -- things that are not files


def at_bad_key(tmp_path: Path, chain: str = "zstd") -> tuple[gzarr.Array, Path]:
    array = Values(LocalStore(tmp_path)).array(chain)
    path = tmp_path / BAD_KEY
    path.parent.mkdir(parents=True)
    return array, path


@pytest.mark.parametrize("chain", ["none", "zstd", "bz2"])
@pytest.mark.parametrize("what", ["directory", "parent"])
def test_no_such_key(tmp_path: Path, engine: str, chain: str, what: str) -> None:
    """A directory is not a value; nor is a path below a file. Links to nothing: ``test_linked_folders.py``."""
    array, path = at_bad_key(tmp_path, chain)
    if what == "directory":
        path.mkdir()
    else:
        path.parent.rmdir()
        path.parent.write_bytes(b"a file")
    assert array.store.get(BAD_KEY) is None
    assert (array[1] == -1).all()
    np.testing.assert_array_equal(array[...][0], GOOD)
    refused(array, MissingChunkError, missing="error")


@pytest.mark.parametrize("what", ["link", "folder"])
def test_flags_of_links_are_those_of_the_machine_that_reads(
    tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compiled code may come from another machine, where flags have other values."""
    array, path = at_bad_key(tmp_path, "zstd")
    if what == "folder":
        path.parent.rmdir()
        path = path.parent
    path.symlink_to("nothing")
    refused(array, ChunkReadError)
    monkeypatch.setattr("gzarr.engines.job_slots.FILE_FLAGS", np.array([kernels.OPEN_FLAGS, 0, 0]))
    assert (array[1] == -1).all()


@pytest.mark.parametrize("chain", ["none", "zstd", "bz2"])
@pytest.mark.parametrize("what", ["fifo", "loop", "loop on the way", "device", "socket", "memory"])
def test_neither_a_chunk_nor_absent(tmp_path: Path, engine: str, chain: str, what: str) -> None:
    array, path = at_bad_key(tmp_path, chain)
    kind: tuple[type[ChunkError], ...] = (ChunkReadError,)
    if what == "fifo":
        os.mkfifo(path)
    elif what == "loop":
        path.symlink_to(path)
    elif what == "loop on the way":
        path.parent.rmdir()
        path.parent.symlink_to(path.parent)
    elif what == "device":
        path.symlink_to("/dev/zero")
        kind = (ChunkReadError, ChunkDecodeError)
    elif what == "socket":
        import socket

        # A socket's path has at most a hundred bytes or so.
        with socket.socket(socket.AF_UNIX) as listener:
            here = Path.cwd()
            os.chdir(path.parent)
            try:
                listener.bind(path.name)
            finally:
                os.chdir(here)
    else:
        # Reading it at 0 fails with EIO; a reader that believes its size of 0 finds no bytes to decode.
        if not Path("/proc/self/mem").exists():
            pytest.skip("no file here whose reading fails with EIO")
        path.symlink_to("/proc/self/mem")
        kind = (ChunkReadError, ChunkDecodeError)
    refused(array, kind)
    refused(array, kind, missing="error")


def test_name_too_long(tmp_path: Path, engine: str) -> None:
    """ENAMETOOLONG does not mean that a chunk is absent."""
    store = LocalStore(tmp_path)
    node = "/".join(["n" * 200] * 45)
    documents = MemoryStore({f"{node}/zarr.json": metadata(CHAINS["zstd"][0])})

    class Mixed:
        """Metadata from memory, chunks from files."""

        def get(self, key: str) -> bytes | None:
            return documents.get(key) if key.endswith("zarr.json") else store.get(key)

        def get_partial_values(self, key_ranges: Sequence[tuple[str, ByteRange]]) -> list[bytes | None]:
            return documents.get_partial_values(key_ranges)

        def file_root(self) -> bytes | None:
            return store.file_root()

    array = gzarr.open_array(Mixed(), path=node, zarr_format=3)
    with pytest.raises(ChunkReadError, match=r"(?i)too long"):
        array[0]


def test_without_permission(engine: str) -> None:
    """Root may read anything, so the reading process becomes nobody."""
    result = child(
        engine,
        """
        import os, pathlib, shutil, tempfile
        root = pathlib.Path(tempfile.mkdtemp())
        try:
            root.chmod(0o755)
            array = t.Values(gzarr.LocalStore(root)).array("zstd")
            path = root / t.BAD_KEY
            path.parent.mkdir(parents=True)
            path.write_bytes(b"x")
            # All that is imported late must be there before the privileges go.
            t.refused(array, gzarr.ChunkError)
            path.chmod(0)
            pid = os.fork()
            if pid == 0:
                status = 1
                try:
                    if os.geteuid() == 0:
                        os.setgroups([])
                        os.setgid(65534)
                        os.setuid(65534)
                    assert not os.access(path, os.R_OK)
                    t.refused(array, gzarr.ChunkReadError)
                    t.refused(array, gzarr.ChunkReadError, missing="error")
                    status = 0
                except BaseException as error:
                    import traceback
                    traceback.print_exc()
                finally:
                    os._exit(status)
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        finally:
            shutil.rmtree(root)
        print(json.dumps(dict(status=status)))
        sys.exit(status)
        """,
    )
    assert result["status"] == 0


@pytest.mark.parametrize("chain", ["none", "zstd"])
def test_links_are_refused_where_asked(tmp_path: Path, engine: str, chain: str) -> None:
    array, path = at_bad_key(tmp_path / "store", chain)
    outside = tmp_path / "outside"
    outside.write_bytes(CHAINS[chain][1](BAD.tobytes()))
    path.symlink_to(outside)
    np.testing.assert_array_equal(array[1], BAD)
    strict = gzarr.open_array(LocalStore(tmp_path / "store", follow_symlinks=False), path=NODE)
    refused(strict, ChunkReadError)


# -- shards


def sharded(location: str = "end", index_codecs: list[dict[str, Any]] | None = None) -> list[dict[str, Any]]:
    configuration = {
        "chunk_shape": [1, 500],
        "codecs": CHAINS["zstd"][0],
        "index_codecs": [BYTES, CRC32C] if index_codecs is None else index_codecs,
        "index_location": location,
    }
    return [{"name": "sharding_indexed", "configuration": configuration}]


EMPTY = 2**64 - 1


def shard(
    parts: Sequence[Any],
    location: str = "end",
    change: Callable[[Any], Any] = lambda index: index,
    checksum: bool = True,
) -> bytes:
    """Return a shard of encoded parts (None: absent) whose index is altered by ``change``."""
    index = np.full((len(parts), 2), EMPTY, "<u8")
    body = b""
    base = 16 * len(parts) + 4 * checksum if location == "start" else 0
    for i, part in enumerate(parts):
        if part is not None:
            encoded = CHAINS["zstd"][1](part.tobytes())
            index[i] = base + len(body), len(encoded)
            body += encoded
    packed = change(index).astype("<u8").tobytes()
    packed = crc32c(packed) if checksum else packed
    return packed + body if location == "start" else body + packed


@pytest.fixture(params=["end", "start"])
def location(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def shard_array(values: Values, location: str, index_codecs: list[dict[str, Any]] | None = None) -> gzarr.Array:
    values.store.set(f"{NODE}/zarr.json", metadata(sharded(location, index_codecs)))
    values.store.set(f"{NODE}/c/0/0", shard([GOOD[:500], GOOD[500:]], location, checksum=index_codecs is None))
    return gzarr.open_array(values.store, path=NODE)


def spoil(row: int, column: int, value: int) -> Callable[[Any], Any]:
    def change(index: Any) -> Any:
        index[row, column] = value
        return index

    return change


PARTS = [BAD[:500], BAD[500:]]


@pytest.mark.parametrize("column", [0, 1])
@pytest.mark.parametrize("value", [2**20, 2**31, 2**32, 2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 2, EMPTY])
def test_shard_index_beyond_the_shard(values: Values, engine: str, location: str, column: int, value: int) -> None:
    array = shard_array(values, location)
    values.put(shard(PARTS, location, spoil(1, column, value)))
    begun = time.monotonic()
    for selection in ((1, slice(500, None)), (1, slice(None)), ...):
        with pytest.raises(ChunkError) as caught:
            array[selection]
        assert caught.value.node == f"/{NODE}"
        assert caught.value.key == BAD_KEY
        assert caught.value.chunk in ((1, 0), (1, 1))
        assert BAD_KEY in str(caught.value)
    np.testing.assert_array_equal(array[0], GOOD)
    assert time.monotonic() - begun < SECONDS


def test_shard_index_that_overflows_when_added(values: Values, engine: str, location: str) -> None:
    array = shard_array(values, location)
    for offset, nbytes in [(2**63 - 1, 2**63 - 1), (2**63 - 10, 100), (2**64 - 2, 3), (1, 2**64 - 2), (2**62, 2**62)]:
        values.put(shard(PARTS, location, lambda index, o=offset, n=nbytes: spoil(1, 1, n)(spoil(1, 0, o)(index))))
        with pytest.raises(ChunkError) as caught:
            array[1, 500:]
        assert (caught.value.node, caught.value.key) == (f"/{NODE}", BAD_KEY)


def test_shard_index_overlaps(values: Values, engine: str, location: str) -> None:
    """Two inner chunks may share the same bytes; half of another one is corrupt."""
    array = shard_array(values, location)

    def share(index: Any) -> Any:
        index[1] = index[0]
        return index

    values.put(shard(PARTS, location, share))
    np.testing.assert_array_equal(array[1], np.concatenate([BAD[:500]] * 2))

    def shift(index: Any) -> Any:
        index[1, 0] -= 7
        return index

    values.put(shard(PARTS, location, shift))
    refused(array, ChunkDecodeError, chunk=(1, 1), selection=(1, slice(500, None)))
    np.testing.assert_array_equal(array[1, :500], BAD[:500])


def test_shard_index_points_at_itself(values: Values, engine: str, location: str) -> None:
    array = shard_array(values, location)
    whole = shard(PARTS, location)
    at = 0 if location == "start" else len(whole) - 36
    values.put(shard(PARTS, location, lambda index: spoil(1, 1, 36)(spoil(1, 0, at)(index))))
    refused(array, ChunkDecodeError, chunk=(1, 1), selection=(1, slice(500, None)))


def test_shard_index_with_a_wrong_checksum(values: Values, engine: str, location: str) -> None:
    array = shard_array(values, location)
    whole = bytearray(shard(PARTS, location))
    start = 0 if location == "start" else len(whole) - 36
    for i in range(36):
        broken = bytearray(whole)
        broken[start + i] ^= 0x10
        values.put(bytes(broken))
        refused(array, ChunkDecodeError)


def test_truncated_shard(values: Values, engine: str, location: str) -> None:
    array = shard_array(values, location)
    whole = shard(PARTS, location)
    for n in range(0, len(whole), 7):
        values.put(whole[:n])
        with pytest.raises(ChunkError) as caught:
            array[1]
        assert (caught.value.node, caught.value.key) == (f"/{NODE}", BAD_KEY)
        assert caught.value.chunk in ((1, 0), (1, 1))
    np.testing.assert_array_equal(array[0], GOOD)


def test_shard_index_without_checksum_rubbish(values: Values, engine: str, location: str) -> None:
    array = shard_array(values, location, [BYTES])
    for seed in range(30):
        values.put(np.random.default_rng(seed).bytes(300))
        with pytest.raises(ChunkDecodeError) as caught:
            array[1]
        assert (caught.value.node, caught.value.key) == (f"/{NODE}", BAD_KEY)
    np.testing.assert_array_equal(array[0], GOOD)


def test_absent_inner_chunks(values: Values, engine: str, location: str) -> None:
    array = shard_array(values, location)
    values.put(shard([BAD[:500], None], location))
    np.testing.assert_array_equal(array[1], np.concatenate([BAD[:500], np.full(500, -1, "<i4")]))
    refused(array, MissingChunkError, chunk=(1, 1), selection=(1, slice(500, None)), missing="error")
    np.testing.assert_array_equal(array.read((1, slice(500)), missing="error"), BAD[:500])
    values.store.erase(BAD_KEY)
    assert (array[1] == -1).all()
    refused(array, MissingChunkError, missing="error")


def test_corrupt_inner_chunk_leaves_the_others_readable(values: Values, engine: str, location: str) -> None:
    array = shard_array(values, location)
    whole = bytearray(shard(PARTS, location))
    at = 36 if location == "start" else 0
    whole[at : at + 4] = b"abcd"
    values.put(bytes(whole))
    refused(array, ChunkDecodeError, chunk=(1, 0), selection=(1, slice(0, 500)))
    np.testing.assert_array_equal(array[1, 500:], BAD[500:])


# -- absent chunks and stores that fail


@pytest.mark.parametrize("chain", ["none", "zstd", "bz2", "blosc-lz4"])
def test_missing(values: Values, engine: str, chain: str) -> None:
    array = values.array(chain)
    assert (array[1] == -1).all()
    refused(array, MissingChunkError, missing="error")
    strict = gzarr.open_array(values.store, path=NODE, missing="error")
    refused(strict, MissingChunkError)
    assert (strict.read(1, missing="fill") == -1).all()


class Failing:
    """A store that fails for one key."""

    def __init__(self, store: Any, key: str, failure: BaseException | str, ranges_before: int = 0) -> None:
        self.store = store
        self.key = key
        self.failure = failure
        self.ranges_before = ranges_before

    def _fail(self, value: bytes | None) -> bytes | None:
        if isinstance(self.failure, BaseException):
            raise self.failure
        assert value is not None
        return value[: len(value) // 2] if self.failure == "short" else value + b"more"

    def get(self, key: str) -> bytes | None:
        value: bytes | None = self.store.get(key)
        return self._fail(value) if key == self.key else value

    def get_partial_values(self, key_ranges: Sequence[tuple[str, ByteRange]]) -> list[bytes | None]:
        parts: list[bytes | None] = self.store.get_partial_values(key_ranges)
        for i, (key, _) in enumerate(key_ranges):
            if key == self.key:
                if self.ranges_before:
                    self.ranges_before -= 1
                else:
                    parts[i] = self._fail(parts[i])
        return parts


FAILURES = [
    OSError(5, "Input/output error"),
    TimeoutError("timed out"),
    PermissionError(13, "Permission denied"),
    ConnectionResetError("reset by peer"),
    BlockingIOError(),
    StoreError("503 Slow Down"),
    FileNotFoundError(2, "the whole bucket is gone"),
]
names_of_failures = [type(failure).__name__ for failure in FAILURES]


@pytest.mark.parametrize("failure", FAILURES, ids=names_of_failures)
@pytest.mark.parametrize("chain", ["none", "zstd", "bz2"])
def test_store_that_fails(engine: str, chain: str, failure: OSError) -> None:
    values = Values(MemoryStore())
    values.array(chain)
    values.put(CHAINS[chain][1](BAD.tobytes()))
    array = gzarr.open_array(Failing(values.store, BAD_KEY, failure), path=NODE)
    for missing in ("fill", "error"):
        error = refused(array, ChunkReadError, missing=missing)
        assert str(failure) in str(error)


# Bytes after a stream of bz2 are ignored.
@pytest.mark.parametrize(
    ("chain", "what"), [("none", "short"), ("none", "long"), ("zstd", "short"), ("zstd", "long"), ("bz2", "short")]
)
def test_store_that_returns_too_little(engine: str, chain: str, what: str) -> None:
    values = Values(MemoryStore())
    values.array(chain)
    values.put(CHAINS[chain][1](BAD.tobytes()))
    array = gzarr.open_array(Failing(values.store, BAD_KEY, what), path=NODE)
    # The store says nothing of the size, so these are bytes like any others.
    refused(array, ChunkDecodeError)


@pytest.mark.parametrize("failure", FAILURES, ids=names_of_failures)
@pytest.mark.parametrize("when", ["index", "chunks"])
def test_store_that_fails_within_a_shard(engine: str, failure: OSError, when: str) -> None:
    values = Values(MemoryStore())
    shard_array(values, "end")
    values.put(shard(PARTS))
    for missing in ("fill", "error"):
        store = Failing(values.store, BAD_KEY, failure, 0 if when == "index" else 1)
        array = gzarr.open_array(store, path=NODE)
        with pytest.raises(ChunkReadError) as caught:
            array.read((1, slice(500)), missing=missing)
        assert (caught.value.node, caught.value.chunk, caught.value.key) == (f"/{NODE}", (1, 0), BAD_KEY)
        assert str(failure) in str(caught.value)
        np.testing.assert_array_equal(array[0], GOOD)


@pytest.mark.parametrize("what", ["short", "long"])
@pytest.mark.parametrize("when", ["index", "chunks"])
def test_store_that_returns_too_little_of_a_shard(engine: str, what: str, when: str) -> None:
    values = Values(MemoryStore())
    shard_array(values, "end")
    values.put(shard(PARTS))
    store = Failing(values.store, BAD_KEY, what, 0 if when == "index" else 1)
    array = gzarr.open_array(store, path=NODE)
    with pytest.raises(ChunkError) as caught:
        array[1, :500]
    assert (caught.value.node, caught.value.chunk, caught.value.key) == (f"/{NODE}", (1, 0), BAD_KEY)
    if when == "chunks":
        assert isinstance(caught.value, ChunkReadError)
    np.testing.assert_array_equal(array[0], GOOD)


ESCAPES = ["..", "../x", "a/../../b", "a/../b", "./a", "a//b", "a/./b", "...", "a\0b", "a/\udcff\ud800"]


@pytest.mark.parametrize("store", [{}, None], ids=["memory", "local"])
@pytest.mark.parametrize("path", ESCAPES)
def test_node_paths_that_leave_the_root(tmp_path: Path, store: Any, path: str) -> None:
    (tmp_path / "store").mkdir()
    Values(LocalStore(tmp_path)).array("none")
    source = tmp_path / "store" if store is None else dict(store)
    for function in (gzarr.open, gzarr.open_array, gzarr.open_group):
        with pytest.raises(ArgumentError, match=r"node path|a node"):
            function(source, path=path)


def test_absolute_node_paths_stay_within_the_store(tmp_path: Path) -> None:
    Values(LocalStore(tmp_path / "outside")).array("none")
    (tmp_path / "store").mkdir()
    with pytest.raises(gzarr.NodeNotFoundError):
        gzarr.open_array(tmp_path / "store", path=str(tmp_path / "outside" / NODE))
