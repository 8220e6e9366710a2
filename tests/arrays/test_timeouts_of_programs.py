"""A program's handler of a signal raises, as timeouts do: the program sees its exception, not one of gzarr's."""

from __future__ import annotations

import contextlib
import functools
import gc
import itertools
import os
import signal
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gzarr
from gzarr import guarded
from gzarr.arrays import stored_size
from gzarr.arrays.elements import with_type
from gzarr.engines.access.access import Access
from gzarr.engines.access.shard import ShardIndexCache, forget_written
from gzarr.engines.cpu import old_content, write_threads
from gzarr.engines.cpu.small_reads import SmallShardReads
from gzarr.plan.keys import ChunkKeys
from gzarr.reasons import reason_of
from gzarr.stores import MemoryStore, locks, zip_reader

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="timers of signals are of POSIX")


class TimeIsUp(Exception):
    """What the program raises; no error of gzarr."""


class Handler:
    """Handlers of every kind that are written in Python."""

    def __call__(self, *_: object) -> None:
        raise TimeIsUp("5 s are over")

    def method(self, *_: object) -> None:
        raise TimeIsUp("5 s are over")


def function(*_: object) -> None:
    raise TimeIsUp("5 s are over")


def counted(_count: int, *_: object) -> None:
    raise TimeIsUp("5 s are over")


HANDLERS: dict[str, Any] = {
    "function": function,
    "method": Handler().method,
    "object": Handler(),
    "partial": functools.partial(counted, 1),
}


class Signals(MemoryStore):
    """A store that the signal hits within a call."""

    def get(self, key: str) -> bytes | None:
        if "/" in key:
            signal.raise_signal(signal.SIGUSR1)
        return super().get(key)


class SignalsWhenTaken:
    """A value that the signal hits while it is converted."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        signal.raise_signal(signal.SIGUSR1)
        return np.zeros(8, dtype)


@pytest.fixture(params=HANDLERS)
def handler(request: pytest.FixtureRequest) -> Any:
    """Install a handler."""
    before = signal.signal(signal.SIGUSR1, HANDLERS[request.param])
    yield request.param
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.usefixtures("handler")
def test_it_leaves_a_conversion() -> None:
    a = gzarr.create_array({}, shape=8, chunks=4, dtype="i4")
    a[...] = 3
    with pytest.raises(TimeIsUp, match="5 s are over"):
        a[...] = SignalsWhenTaken()
    assert (a[...] == 3).all()


@pytest.mark.usefixtures("handler")
def test_it_leaves_a_codec_and_a_store(monkeypatch: pytest.MonkeyPatch) -> None:
    a = gzarr.create_array(Signals(), shape=8, chunks=8, dtype="i4", codecs=["gzip"])
    a[...] = 3
    with pytest.raises(TimeIsUp):
        a[1:3] = 4

    def hit(*_: object, **__: object) -> Any:
        signal.raise_signal(signal.SIGUSR1)

    # The compiled loop leaves it to the threads of the host.
    b = gzarr.create_array({}, shape=8, chunks=8, dtype="i4", codecs=[{"id": "bz2"}], zarr_format=2)
    b[...] = 3
    monkeypatch.setattr(type(b.metadata.codecs[-1]), "decode", hit)
    with pytest.raises(TimeIsUp):
        b[1:3] = 4
    monkeypatch.undo()
    assert (b[...] == 3).all()


class Mute(Exception):
    """An error that cannot say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


def test_errors_of_others_stay_reasons() -> None:
    def raised(error: Exception) -> Exception:
        try:
            raise error
        except Exception as caught:
            return caught

    signal.signal(signal.SIGUSR1, before := signal.signal(signal.SIGUSR1, function))
    assert before is not None
    assert reason_of(raised(ValueError("no such block"))) == "no such block"
    assert reason_of(raised(TimeIsUp())) == "TimeIsUp"
    assert reason_of(raised(Mute())) == "Mute"
    # Also of the class of the constants of the signal module.
    with pytest.raises(ValueError, match="is not a valid") as caught:
        signal.Handlers(7)
    assert "not a valid" in reason_of(caught.value)


class OfTheSystem(TimeoutError):
    """As most programs raise it: an OSError."""


# Not by an alarm, whose timer and handler the test takes.
@pytest.mark.timeout(120, method="thread")
@pytest.mark.parametrize("kind", [TimeIsUp, OfTheSystem])
@pytest.mark.parametrize("where", ["memory", "files", "zip"])
def test_a_storm_of_timeouts_is_only_timeouts(where: str, kind: type[Exception], tmp_path: Path) -> None:
    def handler(*_: object) -> None:
        raise kind("5 s are over")

    store: Any = {"memory": {}, "files": tmp_path / "a", "zip": tmp_path / "a.zip"}[where]
    if where == "zip":
        store = gzarr.ZipStore(store, mode="w")
    a = gzarr.create_array(store, shape=(32, 64), chunks=(4, 16), dtype="i4")
    a[...] = 0
    # Imports what a read needs: Python's locks of imports do not bear a timeout everywhere.
    assert not gzarr.open_array(store, device="cpu")[...].any()
    before = signal.signal(signal.SIGALRM, handler)
    rng = np.random.default_rng(0)
    hit = 0
    try:
        for _ in range(400):
            try:
                try:
                    signal.setitimer(signal.ITIMER_REAL, rng.random() * 2e-3 + 1e-6)
                    a[1:31, 3:60] = 7
                    gzarr.open_array(store, device="cpu")[...]
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            except kind:
                hit += 1
    finally:
        signal.signal(signal.SIGALRM, before)
    assert hit > 20
    a[...] = 5
    assert (a[...] == 5).all()
    if where == "zip":
        store.close()


@pytest.mark.parametrize("call", ["open", "stat"])
def test_it_leaves_a_look_at_a_file(call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def handler(*_: object) -> None:
        raise OfTheSystem("5 s are over")

    store = gzarr.LocalStore(tmp_path)
    store.set("a/b", b"1")
    real = getattr(os, call)

    def hit(*given: Any, **named: Any) -> Any:
        signal.raise_signal(signal.SIGUSR1)
        return real(*given, **named)

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(os, call, hit)
            with pytest.raises(OfTheSystem, match="5 s are over"):
                store.get("a/b") if call == "open" else store.versions(["a/b"])
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert store.get("a/b") == b"1"


class Indexed:
    """An array that is read by indexing it, like those in files of HDF5."""

    shape, dtype, ndim = (8,), np.dtype("f8"), 1

    def __getitem__(self, selection: Any) -> Any:
        return np.arange(8.0)[selection]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.arange(8.0)


def made(store: Any, **options: Any) -> Any:
    a = gzarr.create_array(store, dtype="f8", device="cpu", **({"shape": 8, "chunks": 2} | options))
    a[...] = np.arange(len(a)) + 1.0
    return a


OBJECTS = np.full(2, None, object)
OBJECTS[:] = [Indexed(), None]
FIRST = np.zeros((1, 1), np.int64)
PLAIN = {"codecs": [{"id": "bz2"}], "zarr_format": 2}
#: What fails is tried in another way, or does not matter: the function, the array, and what comes to it.
TRIED_AGAIN: dict[str, tuple[Any, str, dict[str, Any], Callable[[Any], object]]] = {
    "chunks": (Access, "values", PLAIN | {"shape": 2048}, lambda a: a[...]),
    "versions after a read": (Access, "versions", {}, lambda a: a._reader._the_access.replaced({"c/0": 1}, None)),
    "versions after a write": (
        Access,
        "versions",
        {},
        lambda a: forget_written(a._reader._the_access.versions, ChunkKeys(a.metadata.chunk_key_encoding, "", FIRST)),
    ),
    "erased chunks": (gzarr.LocalStore, "erase", {}, lambda a: a.__setitem__(slice(0, 2), 0)),
    "chunks at the end": (
        write_threads,
        "decode_chain",
        PLAIN | {"chunks": 3},
        lambda a: a.__setitem__(slice(6, 8), 9),
    ),
    "shards to read": (SmallShardReads, "_find", {"shards": 4}, lambda a: a[:2]),
    "shards to change": (old_content, "_open_shard", {"shards": 4}, lambda a: a.__setitem__(slice(1, 7), 9)),
    "sizes": (stored_size, "sizes_of", {}, lambda a: stored_size.stored_size(a.store, a.metadata, "")),
    "types of values": (Indexed, "__getitem__", {}, lambda _: with_type(Indexed(), "data")),
    "values": (Indexed, "__getitem__", {}, lambda a: a.__setitem__(..., Indexed())),
    "objects": (Indexed, "__array__", {}, lambda a: a.__setitem__(slice(0, 2), OBJECTS)),
    "archives": (zip_reader.ZipReader, "extents", {}, lambda a: in_archive(a.store.root)[...]),
}


def in_archive(root: Path) -> Any:
    path = root.with_suffix(".zip")
    with gzarr.ZipStore(path, mode="w") as store:
        made(store, shape=32, shards=4)
    return gzarr.open_array(path, device="cpu")


@pytest.mark.parametrize("case", TRIED_AGAIN)
def test_it_leaves_what_is_tried_again(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, options, work = TRIED_AGAIN[case]
    a = made(tmp_path / "a", **options)
    # Indexes of shards are known then.
    assert a[:2].tolist() == a[:2].tolist() == [1, 2]
    # For what asks who else writes, or has written.
    cache = ShardIndexCache(1 << 10)
    cache.put("c", (1, 2), np.zeros((1, 2), np.uint64))
    monkeypatch.setattr("gzarr.arrays.write.Writer._is_current", lambda _: False)
    real = getattr(owner, name)
    hits = []

    def hit(*given: Any, **named: Any) -> Any:
        if not hits:
            hits.append(name)
            signal.raise_signal(signal.SIGUSR1)
        return real(*given, **named)

    def handler(*_: object) -> None:
        raise OfTheSystem("5 s are over")

    monkeypatch.setattr(owner, name, hit)
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with pytest.raises(OfTheSystem, match="5 s are over"):
            work(a)
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("where", ["after it is taken", "before it is released"])
def test_no_worker_keeps_the_lock_of_a_chunk(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another worker may wait for it, and the error that keeps it for that worker."""
    a = gzarr.create_array({}, shape=8, chunks=1, dtype="i4", codecs=[{"id": "bz2"}], zarr_format=2, device="cpu")
    a[...] = 1
    monkeypatch.setenv("GZARR_THREADS", "1")
    errors = []

    def free() -> list[bool]:
        taken = [lock.acquire(blocking=False) for lock in locks._locks]
        for lock, is_mine in zip(locks._locks, taken, strict=True):
            if is_mine:
                lock.release()
        return taken

    kind = contextlib._GeneratorContextManager
    name = "__enter__" if where.startswith("after") else "__exit__"
    real = getattr(kind, name)

    def hit(held: Any, *given: Any) -> Any:
        found = real(held, *given) if name == "__enter__" else None
        if held.gen.gi_code is locks.hold.__wrapped__.__code__:  # type: ignore[attr-defined]
            raise TimeIsUp("5 s are over")
        return found if name == "__enter__" else real(held, *given)

    with monkeypatch.context() as patch:
        patch.setattr(kind, name, hit)
        try:
            a[...] = 2
        except TimeIsUp as error:
            # Kept, as a pool keeps it.
            errors.append(error)
    with ThreadPoolExecutor(1) as other:
        found = other.submit(free).result()
    hit_there = bool(errors)
    # Other tests need the locks.
    errors.clear()
    assert all(found)
    assert not hit_there
    assert (a[...] == 2).all()


def test_nothing_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor what it passed through, such as the memory of a read."""
    a = gzarr.create_array({}, shape=8, chunks=8, dtype="i4", codecs=[{"id": "bz2"}], zarr_format=2, device="cpu")
    a[...] = 3
    seen = []

    def hit(*_: object, **__: object) -> Any:
        signal.raise_signal(signal.SIGUSR1)

    def handler(*_: object) -> None:
        error = TimeIsUp("5 s are over")
        seen.append(weakref.ref(error))
        try:
            raise error
        finally:
            del error

    before = signal.signal(signal.SIGUSR1, handler)
    gc.disable()
    try:
        with monkeypatch.context() as patch:
            patch.setattr(type(a.metadata.codecs[-1]), "decode", hit)
            for work in (lambda: a[...], lambda: a.__setitem__(slice(1, 3), 4)):
                with contextlib.suppress(TimeIsUp):
                    work()
        assert [found() for found in seen] == [None, None]
    finally:
        gc.enable()
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("event", range(1, 6))
def test_a_fork_that_it_hits_keeps_no_lock(event: int) -> None:
    shared = object.__new__(guarded.ForkSafeLock)
    shared.lock, shared._ends = guarded.RLock(), [bool]
    count = itertools.count(1)

    def trace(frame: Any, *_: object) -> Any:
        if frame.f_code is guarded.ForkSafeLock._acquire.__code__:
            if next(count) == event:
                raise TimeIsUp("5 s are over")
            return trace
        return None

    before = sys.gettrace()
    sys.settrace(trace)
    # What a fork calls before it, and at its end.
    with contextlib.suppress(TimeIsUp):
        shared._acquire()
    sys.settrace(before)
    shared._ends.pop()()
    with ThreadPoolExecutor(1) as other:
        assert other.submit(shared.lock.acquire, blocking=False).result()
