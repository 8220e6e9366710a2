"""Reads that bypass host memory, into device memory: which chunks they are for, and the fate of all others."""

from __future__ import annotations

import dataclasses
import os
from functools import partial
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np
import pytest
import zarr
from support import devices
from support import zarr_arrays as z
from support.files_past_host import FilesPastHost
from support.staged_chunks import Volume

import gzarr
from gzarr.engines import pool
from gzarr.engines.access.choose import access_to
from gzarr.engines.cuda import direct, slots
from gzarr.engines.cuda.host_decoding import HostStaging
from gzarr.engines.cuda.staging import ABSENT, DEFERRED, FALLBACK, READY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from support.watched_device import WatchedDevice

    from gzarr.engines.access.access import ReadRequest

SHAPE, CHUNKS = (300, 250), (128, 128)
#: Of a chunk of 4-byte elements: the least that goes past the host.
NBYTES = 128 * 128 * 4
INNER = 64 << 10


@pytest.fixture
def device() -> Iterator[WatchedDevice]:
    with devices.on_host() as made:
        files = made.direct = FilesPastHost(made)
        yield made
        assert files.is_open == 0


@pytest.fixture
def files(device: WatchedDevice) -> FilesPastHost:
    assert device.direct is not None
    return device.direct


@pytest.fixture(params=["1", "4"], autouse=True)
def threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setenv("GZARR_THREADS", request.param)
    return int(request.param)


def same(result: Any, expected: np.ndarray[Any, Any]) -> None:
    import cupy

    assert isinstance(result, cupy.ndarray)
    z.same(result.get(), expected)


def shards(data: np.ndarray[Any, Any], codecs: list[z.Json] | None = None) -> z.Json:
    """Return an array of shards of 2 x 2 inner chunks."""
    inner = z.shard([128, 128], [z.LITTLE] if codecs is None else codecs)
    return z.v3(data.shape, (256, 256), data.dtype.name, [inner])


def documents(data: np.ndarray[Any, Any]) -> dict[str, z.Json]:
    swapped = data.dtype.newbyteorder(">").str
    delta = {"id": "delta", "dtype": data.dtype.str, "astype": data.dtype.str}
    transpose = z.codec("transpose", order=[1, 0])
    return {
        "v2": z.v2(SHAPE, CHUNKS, data.dtype.str),
        "v2, big-endian, F": z.v2(SHAPE, CHUNKS, swapped, order="F"),
        "v2, delta and shuffle": z.v2(
            SHAPE, CHUNKS, data.dtype.str, None, [delta, {"id": "shuffle", "elementsize": 4}]
        ),
        "v3": z.v3(SHAPE, CHUNKS, data.dtype.name, [z.LITTLE]),
        "v3, transposed": z.v3(SHAPE, CHUNKS, data.dtype.name, [transpose, z.BIG]),
        "shards": shards(data),
        "transposed shards": shards(data, [transpose, z.BIG]),
    }


def chunks_of(path: Path) -> list[Path]:
    return [file for file in path.rglob("*") if file.is_file() and not file.name.startswith((".z", "zarr"))]


# -- what goes that way


@pytest.mark.parametrize("name", documents(np.zeros(1, "f4")))
def test_formats_and_selections(
    name: str, tmp_path: Path, device: WatchedDevice, files: FilesPastHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Pieces that do not divide a chunk.
    monkeypatch.setattr(direct, "PIECE_BYTES", 30_000)
    data = z.sample(SHAPE, "i4")
    z.write(tmp_path / "a", documents(data)[name], data)
    a = gzarr.open_array(tmp_path / "a", device="cuda")
    same(a.read(decode="cuda"), data)
    assert files.counts["read"] == 6 * -(-NBYTES // 30_000)
    assert files.counts["open"] == files.counts["close"] == len(chunks_of(tmp_path / "a"))
    rows, columns = np.array([299, 3, 130, 3]), np.array([7, 249])
    same(a.read((slice(3, 290, 7), slice(None, None, -2)), decode="cuda"), data[3:290:7, ::-2])
    same(a.oindex.read((rows, columns), decode="cuda"), data[np.ix_(rows, columns)])
    same(a.vindex.read((rows[:2], columns), decode="cuda"), data[rows[:2], columns])
    # One wave at a time: nothing of the last is held while the next one's memory is allocated.
    slots.release()
    device.reset_peak()
    same(a.read(decode="cuda", budget_bytes=210_000), data)
    assert 0 < device.peak <= 210_000
    # In many waves, which take turns with the same slots; what is kept from other reads does not count.
    slots.release()
    device.reset_peak()
    same(a.read(decode="cuda", budget_bytes=400_000), data)
    assert 0 < device.peak <= 400_000


def test_no_page_locked_memory_for_chunks(tmp_path: Path, device: WatchedDevice) -> None:
    data = z.sample(SHAPE, "i4")
    z.write(tmp_path / "a", documents(data)["v3"], data)
    a = gzarr.open_array(tmp_path / "a", device="cuda")
    pinned: list[int] = []
    make = device.pinned
    with mock.patch.object(device, "pinned", lambda nbytes: pinned.append(nbytes) or make(nbytes)):
        same(a.read(decode="cuda"), data)
        assert sum(pinned) < NBYTES
        device.direct = None
        same(a.read(decode="cuda"), data)
        assert sum(pinned) > NBYTES


def test_a_field_of_records(tmp_path: Path, device: WatchedDevice, files: FilesPastHost) -> None:
    dtype = np.dtype([("a", "<i4"), ("b", "<f8")])
    data = z.sample((9000,), dtype)
    zarr.create_array(tmp_path / "a", shape=9000, chunks=6000, dtype=dtype, zarr_format=2, compressors=None)[...] = data
    same(gzarr.open_array(tmp_path / "a", device="cuda")["b"], data["b"])
    assert files.counts["read"] == 2


def test_the_callers_stream(tmp_path: Path, device: WatchedDevice, files: FilesPastHost) -> None:
    """The caller's stream places the chunks, in its order; only a read in many waves waits for it."""
    data = z.sample(SHAPE, "i4")
    z.write(tmp_path / "a", documents(data)["shards"], data)
    a = gzarr.open_array(tmp_path / "a", device="cuda")
    with device:
        stream = device.stream()
        outs = [device.empty(SHAPE, np.dtype("i4"), stream) for _ in range(3)]
    for out, budget in zip(outs, (None, 300_000, None), strict=True):
        with device, device.held_back(stream) as gate:
            if budget is not None:
                gate.open_after(0.05)
            a.read(out=out, stream=stream, budget_bytes=budget, decode="cuda")
            assert gate.passed == (budget is not None)
    stream.synchronize()
    for out in outs:
        z.same(out.get(), data)
    assert files.counts["read"] == 18


ZSTD = z.codec("zstd", level=1, checksum=False)
#: By what they have instead of what goes past the host.
OTHERS: dict[str, Callable[[np.ndarray[Any, Any]], z.Json]] = {
    "compressed": lambda data: z.v3(SHAPE, CHUNKS, "int32", [z.LITTLE, ZSTD]),
    "compressed shards": lambda data: shards(data, [z.LITTLE, ZSTD]),
    "checksums": lambda data: shards(data, [z.LITTLE, z.CRC32C]),
    "small": lambda data: z.v3(SHAPE, (127, 128), "int32", [z.LITTLE]),
}


@pytest.mark.parametrize("why", [*OTHERS, "store", "links", "device", "decode"])
def test_what_goes_through_the_host(why: str, tmp_path: Path, device: WatchedDevice, files: FilesPastHost) -> None:
    data = z.sample(SHAPE, "i4")
    z.write(tmp_path / "a", OTHERS[why](data) if why in OTHERS else documents(data)["v3"], data)
    store: Any = tmp_path / "a"
    if why == "store":
        store = z.in_memory(tmp_path / "a")
    elif why == "links":
        store = gzarr.stores.LocalStore(tmp_path / "a", follow_symlinks=False)
    elif why == "device":
        device.direct = None
    a = gzarr.open_array(store, device="cuda")
    with mock.patch.object(HostStaging, "stage", side_effect=AssertionError("the CPU engine decodes chunks")):
        same(a.read(decode="cpu" if why == "decode" else "cuda"), data)
    assert not files.counts


# -- waves


def stage_all(request: ReadRequest, files: FilesPastHost, nbytes: int, capacity: int) -> tuple[Any, ...]:
    """Take wave after wave; return the states, the bytes of READY chunks, and the number of waves."""
    device = files.device
    staging = direct.DirectStaging(device, files, request, nbytes)
    pending = np.arange(len(request.plan))
    states: dict[int, int] = {}
    plain: dict[int, bytes] = {}
    waves = 0
    with device:
        stream = device.stream()
        while len(pending):
            memory = device.allocate(capacity + 1, stream)
            staged, frames = staging.stage(pending, memory, capacity, 0)
            assert sorted(staged.rows.tolist()) == sorted(pending.tolist())
            assert staged.used <= capacity
            assert len(frames.chunk) == 0
            taken = staged.state != DEFERRED
            assert taken.any()
            host = memory.get()
            for row, state, at in zip(
                *(c[taken].tolist() for c in (staged.rows, staged.state, staged.direct)), strict=True
            ):
                states[row] = state
                assert (at >= 0) == (state == READY)
                if state == READY:
                    assert at % 64 == 0
                    plain[row] = host[at : at + nbytes].tobytes()
            pending = staged.rows[~taken]
            waves += 1
    return states, plain, waves


@pytest.mark.parametrize("kind", ["local", "local shard"])
def test_waves_take_what_fits(kind: str, tmp_path: Path, files: FilesPastHost) -> None:
    plain = [np.random.default_rng(i).bytes(1000) for i in range(10)]
    values: list[bytes | None] = [*plain]
    values[3], values[5], values[6] = None, plain[5][:-1], plain[6] + b"x"
    request = Volume(values, kind, 1000, tmp_path).request()
    expected = {i: {3: ABSENT, 5: FALLBACK, 6: FALLBACK}.get(i, READY) for i in range(10)}
    ready = {i: plain[i] for i in range(10) if expected[i] == READY}
    for capacity, most in ((3 * 1024 + 1000, 5), (1024, 11), (1 << 16, 1)):
        states, found, waves = stage_all(request, files, 1000, capacity)
        assert (states, found) == (expected, ready)
        assert (capacity == 1 << 16) == (waves == 1)
        assert waves <= most
    # No wave has room for one: it is not for the next one either.
    expected = {i: ABSENT if kind == "local shard" and i == 3 else FALLBACK for i in range(10)}
    assert stage_all(request, files, 1000, 1000) == (expected, {}, 1)


@pytest.mark.parametrize("offset", [-1, -1000, 9001, 10_000, (1 << 63) - 1])
def test_ranges_outside_of_a_file(offset: int, tmp_path: Path, files: FilesPastHost) -> None:
    plain = [np.random.default_rng(i).bytes(1000) for i in range(4)]
    request = Volume(plain, "local shard", 1000, tmp_path).request()
    for name in ("0", "1"):
        (tmp_path / "a" / name).write_bytes(bytes(9000) + plain[2])
    columns = np.array([0, 9000, 8999, offset])
    request = dataclasses.replace(request, sources=dataclasses.replace(request.sources, offset=columns))
    states, found, _ = stage_all(request, files, 1000, 1 << 16)
    assert states == {0: READY, 1: READY, 2: READY, 3: FALLBACK}
    assert (found[1], found[2]) == (plain[2], b"\0" + plain[2][:-1])


def test_memory_goes_back_with_its_wave(
    tmp_path: Path, device: WatchedDevice, files: FilesPastHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory is returned although threads keep their last function for a while."""
    kept: list[Any] = []
    run = pool.run

    def keeping(worker: Any, workers: int) -> None:
        kept.append(worker)
        run(worker, workers)

    monkeypatch.setattr(pool, "run", keeping)
    data = z.sample(SHAPE, "i4")
    z.write(tmp_path / "a", documents(data)["v3"], data)
    same(gzarr.open_array(tmp_path / "a", device="cuda").read(decode="cuda"), data)
    assert kept
    slots.release()
    assert device.held == 0


# -- what is wrong with chunks


def outcome(read: Callable[[], Any]) -> Any:
    """Return the result of a read, or its error."""
    try:
        result = read()
    except gzarr.ChunkError as error:
        return type(error), str(error), error.chunk, error.key
    return np.asarray(result.get() if hasattr(result, "get") else result).tobytes()


@pytest.mark.parametrize("missing", ["fill", "error"])
@pytest.mark.parametrize("name", ["v3", "shards"])
def test_absent_chunks(name: str, missing: Any, tmp_path: Path, device: WatchedDevice, files: FilesPastHost) -> None:
    data = z.sample(SHAPE, "i4")
    document = documents(data)[name]
    z.write(tmp_path / "a", {**document, "fill_value": 7}, data)
    (tmp_path / "a" / "c" / "1" / "0").unlink()
    if name == "shards":
        # An inner chunk that is absent in a shard that is there.
        half = {**document, "fill_value": 7}
        z.write(tmp_path / "b", half, None)
        gzarr.open_array(tmp_path / "b", mode="r+", device="cpu")[:128, :128] = data[:128, :128]
        for file in chunks_of(tmp_path / "b"):
            file.replace(tmp_path / "a" / file.relative_to(tmp_path / "b"))
    host, a = (gzarr.open_array(tmp_path / "a", device=name, missing=missing) for name in ("cpu", "cuda"))
    found = outcome(lambda: a.read(decode="cuda"))
    assert found == outcome(lambda: host[...])
    assert isinstance(found, tuple) == (missing == "error")
    assert files.counts["read"] == (1 if name == "shards" else 5)
    assert not device.counts["copy_array"]


def damage(path: Path, what: str) -> None:
    good = path.read_bytes()
    path.unlink()
    if what == "pipe":
        os.mkfifo(path)
    elif what == "directory":
        path.mkdir()
    elif what != "gone":
        path.write_bytes({"empty": b"", "short": good[:-1], "long": good + b"x", "twice": good + good}[what])


@pytest.mark.timeout(30)
@pytest.mark.parametrize("what", ["empty", "short", "long", "twice", "pipe", "directory", "gone"])
@pytest.mark.parametrize("name", ["v3", "shards"])
def test_damaged_files(name: str, what: str, tmp_path: Path, files: FilesPastHost) -> None:
    """For a path that is no file, the errors are those of the CPU engine; other chunks still bypass the host."""
    data = z.sample(SHAPE, "i4")
    z.write(tmp_path / "a", documents(data)[name], data)
    damage(tmp_path / "a" / "c" / "1" / "0", what)
    host, a = (gzarr.open_array(tmp_path / "a", device=name) for name in ("cpu", "cuda"))
    found = outcome(lambda: a.read(decode="cuda"))
    assert found == outcome(lambda: host[...])
    # A directory is no value; and a shard's chunks are where its index, at the end, says.
    faulty = {"v3": ("empty", "short", "long", "twice", "pipe"), "shards": ("empty", "short", "long", "pipe")}
    assert isinstance(found, tuple) == (what in faulty[name])
    same(a.read(slice(0, 128), decode="cuda"), data[:128])
    assert files.counts["read"]


@pytest.mark.timeout(30)
@pytest.mark.parametrize("what", ["short", "gone", "pipe", "directory"])
def test_shards_that_change_behind_their_index(what: str, tmp_path: Path, device: WatchedDevice) -> None:
    """A range of a shard that is gone is an error, never an absent chunk."""
    data = z.sample(SHAPE, "i4")
    z.write(tmp_path / "a", documents(data)["shards"], data)
    shard = tmp_path / "a" / "c" / "0" / "0"
    a = gzarr.open_array(tmp_path / "a", device="cuda", missing="error")
    stage = direct.DirectStaging.stage

    states: list[list[int]] = []

    def changed(*arguments: Any) -> Any:
        if states:
            return stage(*arguments)
        good = shard.read_bytes()
        if what == "short":
            # Without its index, which was read before, and a part of its last chunk.
            shard.write_bytes(good[: 4 * NBYTES - 5])
        else:
            damage(shard, what)
        staged, frames = stage(*arguments)
        shard.rmdir() if what == "directory" else shard.unlink(missing_ok=True)
        shard.write_bytes(good)
        states.append(staged.state.tolist())
        return staged, frames

    with mock.patch.object(direct.DirectStaging, "stage", changed):
        same(a.read(decode="cuda"), data)
    faulty = 1 if what == "short" else 4
    assert states == [[READY] * (4 - faulty) + [FALLBACK] * faulty + [READY] * 2]


@pytest.mark.parametrize("how", ["refused", "fails", "short", "one short"])
def test_what_cannot_be_read_is_decoded_by_the_host(
    how: str, tmp_path: Path, files: FilesPastHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct, "PIECE_BYTES", 30_000)
    data = z.sample(SHAPE, "i4")
    z.write(tmp_path / "a", documents(data)["v3"], data)
    if how == "refused":
        files.opens = lambda path: not path.endswith("/1/0")
    else:
        wrong = {"fails": lambda n: -1, "short": lambda n: n // 2, "one short": lambda n: n - 1}[how]
        # Only the last piece of one chunk.
        files.reads = lambda path, offset, n: wrong(n) if path.endswith("/1/0") and offset == 60_000 else n
    a = gzarr.open_array(tmp_path / "a", device="cuda")
    decoded: list[int] = []
    cpu = a._reader._the_cuda_engine._cpu
    read = cpu.read

    def counted(request: Any) -> None:
        decoded.extend(request.plan.chunks.tolist())
        read(request)

    monkeypatch.setattr(cpu, "read", counted)
    same(a.read(decode="cuda"), data)
    assert decoded == [[1, 0]]


# -- files


def test_few_files_are_open_at_once(
    tmp_path: Path, files: FilesPastHost, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct, "PIECE_BYTES", 10_000)
    data = z.sample((40 * (INNER // 4),), "i4")
    z.write(tmp_path / "a", z.v3(data.shape, (INNER // 4,), "int32", [z.LITTLE]), data)
    same(gzarr.open_array(tmp_path / "a", device="cuda").read(decode="cuda"), data)
    assert files.counts["open"] == 40
    assert 1 <= files.most_open <= threads + 1


def test_files_are_closed_when_a_read_ends_early(tmp_path: Path, device: WatchedDevice, files: FilesPastHost) -> None:
    class Interrupted(BaseException):
        pass

    def interrupt(path: str, offset: int, nbytes: int) -> int:
        if files.counts["read"] >= 2:
            raise Interrupted
        return nbytes

    data = z.sample(SHAPE, "i4")
    z.write(tmp_path / "a", documents(data)["shards"], data)
    a = gzarr.open_array(tmp_path / "a", device="cuda")
    files.reads = interrupt
    with pytest.raises(Interrupted):
        a.read(decode="cuda")
    assert files.is_open == 0
    assert files.counts["open"] >= 1
    files.reads = lambda path, offset, nbytes: nbytes
    same(a.read(decode="cuda"), data)


def test_decode_path(tmp_path: Path, device: WatchedDevice) -> None:
    data = z.sample(SHAPE, "i4")
    z.write(tmp_path / "a", documents(data)["v3"], data)
    a = gzarr.open_array(tmp_path / "a", device="cuda")
    engine = a._reader._the_cuda_engine
    path = partial(engine.path, 6, data.nbytes)
    assert path(access_to(gzarr.stores.LocalStore(tmp_path / "a"))).endswith(", by GPUDirect Storage")
    assert "GPUDirect" not in path(access_to(gzarr.stores.MemoryStore()))
    assert "GPUDirect" not in path()
    device.direct = None
    assert "GPUDirect" not in path(access_to(gzarr.stores.LocalStore(tmp_path / "a")))


def test_entries_of_zip_archives(tmp_path: Path, device: WatchedDevice, files: FilesPastHost) -> None:
    """Stored entries are ranges of one file, chunks and inner chunks of shards alike."""
    data = z.sample(SHAPE, "i4")
    with gzarr.ZipStore(tmp_path / "a.zip", mode="w") as store:
        gzarr.create_array(store, path="chunked", data=data, chunks=CHUNKS, codecs=["bytes"])
        gzarr.create_array(store, path="sharded", data=data, chunks=CHUNKS, shards=(256, 256), codecs=["bytes"])
    for path in ("chunked", "sharded"):
        files.counts.clear()
        array = gzarr.open_array(tmp_path / "a.zip", path=path, device="cuda:0")
        assert "GPUDirect Storage" in array.decode_path
        same(array.read(decode="cuda"), data)
        assert files.counts["open"] == 1
        assert files.counts["read"] >= 6
