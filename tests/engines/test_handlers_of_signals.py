"""The handler of a signal uses gzarr, or forks, in the middle of a block that holds a lock of a module.

What fails may wait for ever, so each test has a process of its own, which ends by itself.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gzarr
from gzarr.engines.access import shard
from gzarr.engines.cuda import devices
from gzarr.guarded import ForkSafeLock
from gzarr.ome.writing import building

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

#: Bytes of an index, and of five, which a cache keeps.
INDEX_BYTES = 64
LIMIT = 5 * INDEX_BYTES


def ends(name: str, *arguments: str) -> None:
    """Call a function of this module in a process of its own."""
    code = f"import faulthandler; faulthandler.dump_traceback_later(60, exit=True)\nfrom {__name__} import {name}\n"
    code += f"{name}{arguments}\n"
    path = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", code],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert (done.returncode, done.stderr) == (0, "")


def on_signal(work: Callable[[], object]) -> None:
    signal.signal(signal.SIGUSR1, lambda *_: work())


def in_child(work: Callable[[], object]) -> None:
    """Work in a forked child, which must succeed."""
    if not (pid := os.fork()):
        signal.alarm(30)
        work()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0


def is_free(lock: ForkSafeLock) -> bool:
    found: list[bool] = []

    def attempt() -> None:
        found.append(lock.lock.acquire(blocking=False))
        if found[0]:
            lock.lock.release()

    thread = threading.Thread(target=attempt)
    thread.start()
    thread.join()
    return found[0]


def signalled(line: int, of: str, work: Callable[[], object]) -> bool:
    """Work, with a signal before the n-th line in functions of shards whose names begin so; return if there is one."""
    left = line

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left
        if frame.f_code.co_filename != shard.__file__ or not frame.f_code.co_qualname.startswith(of):
            return None
        left -= event == "line"
        if event == "line" and not left:
            signal.raise_signal(signal.SIGUSR1)
        return trace

    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(None)
    return left <= 0


def version(i: int) -> tuple[int, ...]:
    return 7, i


def index(i: int) -> Any:
    return np.full((INDEX_BYTES // 16, 2), i, np.uint64)


def forget(*versions: int) -> None:
    keys: Any = SimpleNamespace(all=lambda: ["c"])
    for i in versions:
        shard.forget_written(lambda _, i=i: {"c": version(i)}, keys)  # type: ignore[misc]


def check(cache: shard.ShardIndexCache) -> None:
    """Check that a cache is in order, and that all that it has is right."""
    kept = cache._kept.get(None, shard._Kept())
    assert kept.nbytes == sum(found.nbytes for _, found in kept.entries.values()) <= LIMIT
    files: dict[Any, set[Any]] = {}
    for key, (of, found) in kept.entries.items():
        files.setdefault(of, set()).add(key)
        np.testing.assert_array_equal(found, index(key))  # type: ignore[arg-type]
    assert kept.of_file == files
    assert is_free(shard._cache_lock)


def indexes_of_shards(kind: str) -> None:
    line = 1
    while True:
        cache = shard.ShardIndexCache(LIMIT)
        for i in range(5):
            cache.put(i, version(i), index(i))

        def work(cache: shard.ShardIndexCache = cache) -> None:
            cache.get(1, version(1))
            cache.put(5, version(5), index(5))
            cache.drop(2)
            forget(3)
            cache.put(1, version(1), index(1))

        def change(cache: shard.ShardIndexCache = cache) -> None:
            cache.get(3, version(3))
            cache.put(6, version(6), index(6))
            cache.drop(5)
            forget(4)

        def interrupt() -> None:
            raise KeyboardInterrupt

        on_signal({"changes": change, "forks": lambda: in_child(change), "raises": interrupt}[kind])
        try:
            # An exception that tracing raises where ``with`` ends would leave the lock taken; one of a handler cannot.
            came = signalled(line, "_Kept." if kind == "raises" else "", work)
        except KeyboardInterrupt:
            came = True
        check(cache)
        if kind != "raises":
            # What was dropped is never found again.
            assert all(cache.last(i) is None for i in ((2, 3, 4) if kind == "changes" and came else (2, 3)))
        cache.put(8, version(8), index(8))
        assert cache.get(8, version(8)) is not None
        forget(8)
        assert cache.last(8) is None
        check(cache)
        if not came:
            break
        line += 1
    assert line > 20


@pytest.mark.parametrize("kind", ["changes", "forks", "raises"])
def test_the_indexes_of_shards(kind: str) -> None:
    """At each line in turn."""
    ends("indexes_of_shards", kind)


def devices_in_the_making() -> None:
    made: list[Any] = []
    found: list[Any] = []
    on_signal(lambda: found.append(devices.get_device("cuda:0")))

    def make(_: int) -> Any:
        made.append(object())
        device = made[-1]
        if len(made) == 1:
            signal.raise_signal(signal.SIGUSR1)
        return device

    with devices.use(make):
        assert devices.get_device("cuda:0") is found[0] is devices.get_device("cuda:0")


def test_a_device_in_the_making_is_made_by_the_handler() -> None:
    ends("devices_in_the_making")


def variables_of_netcdf() -> None:
    class Variable:
        shape, dtype = (4,), np.dtype("i4")

        def __getitem__(self, box: Any) -> Any:
            if not found:
                found.append([])
                signal.raise_signal(signal.SIGUSR1)
            return np.arange(4, dtype="i4")[box]

    Variable.__module__ = "netCDF4._netCDF4"
    found: list[list[int]] = []
    source = building.LevelSource(Variable())

    def read() -> list[int]:
        values: list[int] = source.read((slice(1, 3),), building.Buffers()).tolist()
        return values

    on_signal(lambda: found.append(read()))
    assert read() == [1, 2]
    assert found == [[], [1, 2]]


def test_a_variable_of_netcdf() -> None:
    ends("variables_of_netcdf")


def forks_in_forks() -> None:
    forks = 0

    def before() -> None:
        nonlocal forks
        forks += 1
        if forks == 1:
            signal.raise_signal(signal.SIGUSR1)

    # It comes after the lock is taken.
    os.register_at_fork(before=before)
    lock = ForkSafeLock()
    on_signal(lambda: in_child(lambda: lock.lock.acquire(blocking=False) or os._exit(1)))
    in_child(lambda: is_free(lock) or os._exit(1))
    assert forks == 2
    assert is_free(lock)
    forks = 0
    with lock.lock:
        signal.raise_signal(signal.SIGUSR1)
        assert not is_free(lock)
    assert forks == 2
    assert is_free(lock)


def test_a_handler_forks_during_a_fork_and_in_the_block() -> None:
    ends("forks_in_forks")


def interrupt_during_a_fork() -> None:
    # It comes in compiled code, between the fork and what is called after it.
    os.register_at_fork(after_in_parent=partial(ctypes.PyDLL(None)["raise"], int(signal.SIGUSR1)))
    lock = ForkSafeLock()

    def interrupt() -> None:
        raise KeyboardInterrupt

    on_signal(interrupt)
    with pytest.raises(KeyboardInterrupt):
        in_child(lambda: is_free(lock) or os._exit(1))
    assert os.wait()[1] == 0
    assert is_free(lock)


def test_an_interrupt_during_a_fork_leaves_no_lock_taken() -> None:
    ends("interrupt_during_a_fork")


def test_numpy_is_about_to_import_its_masked_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy imports them when they are first asked for; in the middle of that, ``np.ma`` calls itself without end."""
    monkeypatch.delattr(np, "ma")
    monkeypatch.setitem(sys.modules, "numpy.ma", ModuleType("numpy.ma"))
    array = gzarr.create_array({}, shape=4, chunks=2, dtype="i4")
    array[1:] = [1, 2, 3]
    array[2:] = np.array([4, 5])
    array.read(out=(out := np.empty(4, "i4")))
    assert out.tolist() == array[...].tolist() == [0, 1, 4, 5]
    filled = gzarr.array([1, 2], fill_masked=True)
    assert filled[...].tolist() == [1, 2]
