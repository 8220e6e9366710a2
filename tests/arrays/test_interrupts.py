"""Ctrl-C at any moment of a read or a write: no thread goes on with freed memory, and no lock stays taken.

Also other events for threads: none can be started, or the program's main thread has ended.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.interrupts import interrupted

import gzarr
from gzarr.stores import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

    from typing_extensions import Buffer

    from gzarr.stores.base import ByteRange

pytestmark = pytest.mark.slow

HEAD = """
import os, signal, sys, threading, time
import numpy as np
import gzarr
from gzarr.engines import pool

os.environ["GZARR_THREADS"] = "2"
"""
# Two helpers, of which one is long: the caller is interrupted while it waits for the other.
WAITING = """
# Who runs the tests in the background of a shell has interrupts ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
state = []
begun = threading.Event()
def worker(i):
    if i:
        begun.set()
        time.sleep(1)
        state.append("ended")
    else:
        begun.wait()
threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    pool.run(worker, 2)
except KeyboardInterrupt:
    assert state == ["ended"], state
    print("fine")
"""
# A signal that does not wake the main thread: another one has it, or it comes just before the wait.
UNNOTICED = """
from gzarr.stores import io_threads
signal.signal(signal.SIGINT, signal.default_int_handler)
def work():
    time.sleep(0.2)
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)
    time.sleep(20)
begun = time.monotonic()
try:
    io_threads.call(work)
except KeyboardInterrupt:
    assert time.monotonic() - begun < 10
    print("fine")
"""
# Who has been interrupted, and threads that come later, still have all of the pool.
POOL = """
a = gzarr.create_array({}, shape=(64, 64), chunks=(4, 4), dtype="i4", device="cpu")
a[...] = 1
signal.signal(signal.SIGALRM, signal.default_int_handler)
end = time.monotonic() + 4
interrupted = 0
while time.monotonic() < end:
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.00001 + 0.002 * np.random.random())
            for _ in range(4):
                a[...]
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        interrupted += 1
assert interrupted > 20, interrupted
other = threading.Thread(target=lambda: a[...], daemon=True)
other.start()
other.join(20)
assert not other.is_alive(), "a read hangs"
here = set()
def worker(i):
    here.add(threading.get_ident())
    time.sleep(0.2)
pool.run(worker, 2)
assert len(here) == 2
print("fine")
"""
# Of half a minute's work, which is one call of compiled code a thread.
LONG = """
codecs = [{"name": "bytes", "configuration": {"endian": "little"}}]
zstd = {"name": "zstd", "configuration": {"level": 19, "checksum": False}}
data = np.random.default_rng(0).integers(0, 1000, (64, 1 << 18), "u4")
options = {"chunks": (1, 1 << 17), "dtype": "u4", "codecs": [*codecs, zstd], "device": "cpu"}
a = gzarr.create_array(sys.argv[1], shape=data.shape, **options)
a[0] = data[0]
signal.signal(signal.SIGINT, signal.default_int_handler)
threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
begun = time.monotonic()
try:
    a[1:] = data[1:]
except KeyboardInterrupt:
    assert time.monotonic() - begun < 10
    assert not [name for _, _, names in os.walk(sys.argv[1]) for name in names if name.startswith(".gzarr")]
    found = a[...].reshape(128, -1)
    whole = (found == data.reshape(128, -1)).all(axis=1)
    assert (whole | ~found.any(axis=1)).all() and not whole.all()
    print("fine")
"""
# Each directory on the way is a descriptor: none is closed twice.
DESCRIPTORS = """
from gzarr.stores import LocalStore
store = LocalStore(sys.argv[1], follow_symlinks=False)
store.set("a/b/c/d/e", b"1")
signal.signal(signal.SIGALRM, signal.default_int_handler)
interrupted = 0
while interrupted < 300:
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.00001 + 0.0003 * np.random.random())
            for _ in range(20):
                store.get("a/b/c/d/e")
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        interrupted += 1
print("fine")
"""
# The main thread has ended; the interpreter waits for this one.
LATE = """
a = gzarr.create_array({}, shape=(64, 64), chunks=(4, 4), dtype="i4", device="cpu")
def late():
    threading.main_thread().join()
    time.sleep(0.1)
    a[...] = 5
    assert (a[...] == 5).all()
    print("fine", flush=True)
threading.Thread(target=late).start()
"""
# No thread can be started: the caller does it all.
ALONE = """
import resource
os.environ["GZARR_THREADS"] = "1"
a = gzarr.create_array({}, shape=(64, 64), chunks=(4, 4), dtype="i4", device="cpu")
# What is loaded at first use.
a[...] = 1
a[1:, 1:] = a[1:, 1:]
os.environ["GZARR_THREADS"] = "4"
if os.getuid() == 0:
    os.setuid(65534)
resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
try:
    threading.Thread(target=print).start()
except RuntimeError:
    a[...] = 5
    a[3:7, 2:9] = 6
    assert (a[3:7, 2:9] == 6).all() and (a[8:] == 5).all()
    print("fine")
"""
STORM = """
a = gzarr.create_array(sys.argv[1], shape=(64, 64), chunks=(8, 8), dtype="i4", device="cpu")
a[...] = 0
data = np.ones((64, 64), "i4")
end = time.monotonic() + 3
def interrupt(*_):
    raise KeyboardInterrupt
signal.signal(signal.SIGALRM, interrupt)
interrupted = 0
while time.monotonic() < end:
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0005 + 0.003 * np.random.random())
        a[3:50, 2:60] = data[3:50, 2:60]
        a[...]
    except KeyboardInterrupt:
        interrupted += 1
    except gzarr.GzarrError as error:
        assert "KeyboardInterrupt" in str(error), error
        interrupted += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
a[...] = data
assert (a[...] == 1).all()
assert interrupted > 20, interrupted
print("fine", flush=True)
# The interpreter joins its threads at exit, and the standard library's own locks are not made for such a storm.
os._exit(0)
"""


# Taking the locks of chunks and of documents: no other process waits for what an interrupt left locked.
LOCKED = """
import subprocess
a = gzarr.create_array(sys.argv[1], shape=(200, 200), dtype="i8", chunks=(50, 50), device="cpu")
values = np.ones((80, 200), "i8")
def work():
    a.write(slice(10, 90), values, lock=True)
    a.update_attributes({"k": 1}, lock=True)
work()
begun = time.monotonic()
for _ in range(10):
    work()
each = (time.monotonic() - begun) / 10
signal.signal(signal.SIGALRM, signal.default_int_handler)
end = time.monotonic() + 4
interrupted = 0
while time.monotonic() < end:
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, 1e-6 + 1.3 * each * np.random.random())
            work()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        interrupted += 1
assert interrupted > 20, interrupted
other = "import gzarr, sys; a = gzarr.open_array(sys.argv[1], mode='r+', device='cpu'); a.write(..., 1, lock=True); " \
        "a.update_attributes({'j': 1}, lock=True)"
subprocess.run([sys.executable, "-c", other, sys.argv[1]], timeout=20, check=True)
print("fine")
"""


SCRIPTS = {
    "locked": LOCKED,
    "waiting": WAITING,
    "unnoticed": UNNOTICED,
    "storm": STORM,
    "pool": POOL,
    "long": LONG,
    "descriptors": DESCRIPTORS,
    "late": LATE,
    "alone": ALONE,
}


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_interrupts(script: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", HEAD + script, str(tmp_path / "a.zarr")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.strip().endswith("fine"), done.stderr[-2000:]


@pytest.mark.skipif(not Path("/dev/fd").exists(), reason="lists open files there")
@pytest.mark.parametrize("within", ["gzarr/engines/cpu/old_content", "gzarr/stores/descriptors"])
def test_an_interrupt_at_any_moment_leaves_no_shard_open(within: str, tmp_path: Path) -> None:
    """A write in parts of shards has their files open."""
    array = gzarr.create_array(tmp_path, shape=(60,), shards=(20,), chunks=(2,), dtype="i4", device="cpu")
    array[...] = 0

    def work() -> None:
        array[1:59] = 1

    def names() -> set[Path]:
        return set(Path("/dev/fd").iterdir())

    work()
    before, number = names(), 1
    while interrupted(work, number, within):
        # What the interrupted frames held goes with them.
        assert names() == before, number
        number += 1
    assert number > 10


@pytest.mark.skipif(sys.platform == "win32" or not Path("/dev/fd").exists(), reason="lists open files there")
def test_a_storm_of_interrupts_leaves_no_shard_open(tmp_path: Path) -> None:
    """Others come while the first one is handled."""
    array = gzarr.create_array(tmp_path, shape=(512, 512), shards=(128, 128), chunks=(32, 32), dtype="i4", device="cpu")
    array[...] = 1

    def names() -> set[Path]:
        return set(Path("/dev/fd").iterdir())

    def interrupt(_: int, frame: FrameType | None) -> None:
        # Neither this test itself, nor pytest's hook for errors that Python cannot raise, which may be called anywhere.
        while frame is not None and not frame.f_globals["__name__"].startswith(("gzarr.", "_pytest.")):
            frame = frame.f_back
        if frame is not None and frame.f_globals["__name__"].startswith("gzarr."):
            raise KeyboardInterrupt

    def write() -> float:
        start = time.perf_counter()
        array[3:200, 5:300] = 2
        return time.perf_counter() - start

    took = min(write() for _ in range(5))
    before, came = names(), 0
    handler = signal.signal(signal.SIGALRM, interrupt)
    try:
        for i in range(1, 41):
            # From the first moment of a write to its last, however fast this machine is; then each millisecond.
            signal.setitimer(signal.ITIMER_REAL, i / 41 * took, 1e-3)
            try:
                write()
            except KeyboardInterrupt:
                came += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
    assert came > 10
    assert names() == before


class Timeout(Exception):
    """What a program's handler of a signal raises, often without a text."""


class TimedOut(MemoryStore):
    """Values in memory, until a handler of a signal raises in the midst of a call."""

    failing = ""

    def _fail(self, what: str) -> None:
        if what == self.failing:
            raise Timeout

    def get(self, key: str) -> bytes | None:
        self._fail("get")
        return super().get(key)

    def get_partial_values(self, key_ranges: Sequence[tuple[str, ByteRange]]) -> list[bytes | None]:
        self._fail("get")
        return super().get_partial_values(key_ranges)

    def set(self, key: str, value: Buffer) -> None:
        self._fail("set")
        super().set(key, value)


@pytest.mark.parametrize("shards", [None, (4,)], ids=["chunks", "shards"])
def test_an_error_without_a_text_is_named(shards: tuple[int] | None) -> None:
    store = TimedOut()
    array = gzarr.create_array(store, shape=(8,), chunks=(2,), shards=shards, dtype="i4", device="cpu")
    array[...] = 1
    store.failing = "get"
    with pytest.raises(gzarr.ChunkReadError, match="Timeout"):
        array[...]
    with pytest.raises(gzarr.ChunkReadError, match="Timeout"):
        array[1:3] = 2
    store.failing = "set"
    with pytest.raises(gzarr.ChunkWriteError, match="the store failed: Timeout"):
        array[...] = 2
