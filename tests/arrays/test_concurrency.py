"""Threads, fork, spawn, data loaders: exact results, no deadlocks, no leaked resources. All waits have time limits."""

from __future__ import annotations

import faulthandler
import gc
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

# Here and not at first use: a child forked during that import would wait for it for ever.
import numpy.testing
import pytest
import zarr
from support.writers import in_threads
from zarr.codecs import BloscCodec, ZstdCodec

import gzarr
from gzarr.engines import pool
from gzarr.errors import ArgumentError, ChunkDecodeError
from gzarr.stores import LocalStore, MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.slow

PROJECT = Path(__file__).parents[2]
SECONDS = 60.0
DATA = (np.arange(64 * 96, dtype=np.uint16).reshape(64, 96) * 7) % 1009
NAMES = ("blosc", "zstd", "plain", "shards", "host")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a group of arrays with the same content: native chains, shards, and one for host codecs."""
    path = tmp_path_factory.mktemp("concurrency") / "store"
    group = zarr.create_group(path)
    options: dict[str, dict[str, Any]] = {
        "blosc": {"compressors": BloscCodec(cname="lz4", typesize=2)},
        "zstd": {"compressors": ZstdCodec(level=1)},
        "plain": {"compressors": None},
        "shards": {"compressors": ZstdCodec(level=1), "shards": (32, 48)},
    }
    for name, option in options.items():
        array = group.create_array(name, shape=DATA.shape, chunks=(4, 6), dtype=DATA.dtype, **option)
        array[...] = DATA
    host = group.create_array(
        "host",
        shape=DATA.shape,
        chunks=(4, 6),
        dtype=DATA.dtype,
        compressors={"name": "numcodecs.bz2", "configuration": {"level": 1}},
    )
    host[...] = DATA
    return path


def read_exactly(array: gzarr.Array) -> None:
    np.testing.assert_array_equal(array[...], DATA)
    np.testing.assert_array_equal(array[5:50:3, 7:90], DATA[5:50:3, 7:90])


def arrays(root: Path) -> dict[str, gzarr.Array]:
    return {name: gzarr.open_array(root, path=name) for name in NAMES}


# -- threads


def test_the_chains_are_what_they_are_meant_to_be(root: Path) -> None:
    paths = {name: array.decode_path for name, array in arrays(root).items()}
    assert paths["host"].startswith("cpu-threads")
    assert all(path.startswith("cpu-native") for name, path in paths.items() if name != "host")


@pytest.mark.parametrize("threads", ["1", "4"])
def test_many_threads_read_the_same_arrays(root: Path, monkeypatch: pytest.MonkeyPatch, threads: str) -> None:
    monkeypatch.setenv("GZARR_THREADS", threads)
    same = arrays(root)

    def work() -> None:
        for _ in range(6):
            for array in same.values():
                read_exactly(array)

    in_threads([work] * 16)


def test_many_threads_open_and_read_their_own(root: Path) -> None:
    def work(name: str) -> Callable[[], None]:
        def read() -> None:
            for _ in range(6):
                read_exactly(gzarr.open_array(root, path=name))

        return read

    in_threads([work(name) for name in NAMES * 3])


def test_a_memory_store_from_many_threads(root: Path) -> None:
    local, memory = LocalStore(root), MemoryStore()
    for key in local.list():
        memory.set(key, local.get(key) or b"")
    same = [gzarr.open_array(memory, path=name) for name in NAMES]

    def work() -> None:
        for array in same:
            read_exactly(array)

    in_threads([work] * 12)


def test_a_failure_in_one_thread_leaves_the_others_alone(root: Path, tmp_path: Path) -> None:
    broken = zarr.create_array(tmp_path, shape=(64,), chunks=(4,), dtype="u2", compressors=ZstdCodec())
    broken[...] = 1
    (tmp_path / "c" / "9").write_bytes(b"rubbish")
    bad, good = gzarr.open_array(tmp_path), arrays(root)
    failed = 0

    def fail() -> None:
        nonlocal failed
        for _ in range(40):
            with pytest.raises(ChunkDecodeError) as caught:
                bad[...]
            assert caught.value.chunk == (9,)
            assert (bad[:36] == 1).all()
            failed += 1

    def work() -> None:
        for _ in range(5):
            for array in good.values():
                read_exactly(array)

    in_threads([fail, work, fail, work, work, work])
    assert failed == 80


@pytest.mark.parametrize("threads", ["1", "2", "7", " 3 "])
def test_thread_count(root: Path, monkeypatch: pytest.MonkeyPatch, threads: str) -> None:
    monkeypatch.setenv("GZARR_THREADS", threads)
    assert pool.thread_count() == int(threads)
    for array in arrays(root).values():
        read_exactly(array)
    here: set[int] = set()

    def work(_: int) -> None:
        here.add(threading.get_ident())
        time.sleep(0.1)

    pool.run(work, int(threads))
    assert 1 <= len(here) <= int(threads)
    assert len(here) > 1 or int(threads) == 1


@pytest.mark.parametrize("threads", ["0", "-1", "two", "1.5", "1e3", "٣x", "0x4"])
def test_a_wrong_thread_count(root: Path, monkeypatch: pytest.MonkeyPatch, threads: str) -> None:
    monkeypatch.setenv("GZARR_THREADS", threads)
    for array in arrays(root).values():
        with pytest.raises(ArgumentError, match="GZARR_THREADS"):
            array[...]


def test_without_a_thread_count_all_cores_of_the_mask_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GZARR_THREADS", raising=False)
    if hasattr(os, "sched_getaffinity"):
        assert pool.thread_count() == len(os.sched_getaffinity(0))
    monkeypatch.setenv("GZARR_THREADS", "")
    assert pool.thread_count() >= 1

    def refused(_: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "sched_getaffinity", refused, raising=False)
    assert pool.thread_count() == os.cpu_count()


def test_a_read_inside_a_pool_thread(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GZARR_THREADS", "3")
    same = arrays(root)

    def read(_: int) -> None:
        for array in same.values():
            read_exactly(array)

    in_threads([lambda: pool.run(read, 3)] * 4)


def test_of_several_failures_the_first_in_order_is_raised() -> None:
    class Held:
        """An object that the caller releases after the failure."""

    for workers in (1, 2, 4):
        for _ in range(10):
            begun: list[int] = []
            held = Held()

            def work(i: int, begun: list[int] = begun, held: Held = held) -> None:
                begun.append(i)
                if i == 5:
                    time.sleep(0.002)
                if i >= 5:
                    raise ValueError(i)

            with pytest.raises(ValueError) as caught:
                pool.each(work, 40, workers)
            assert caught.value.args == (5,)
            # Each thread may have begun one more.
            assert sorted(begun) == list(range(len(begun)))
            assert len(begun) <= 5 + workers
            gone = weakref.ref(held)
            gc.disable()
            try:
                del held, work, caught
                # Threads of the pool keep for a moment what they have run.
                end = time.monotonic() + SECONDS
                while gone() is not None and time.monotonic() < end:
                    time.sleep(0.001)
                assert gone() is None
            finally:
                gc.enable()


def test_work_that_stops() -> None:
    begun: list[int] = []

    def work(i: int) -> object:
        begun.append(i)
        return pool.STOP if i == 5 else None

    pool.each(work, 40, 1)
    assert begun == [0, 1, 2, 3, 4, 5]
    pool.each(work, 0, 3)
    assert len(begun) == 6


def test_a_read_inside_other_pools(root: Path) -> None:
    same = arrays(root)
    with ThreadPoolExecutor(8) as executor:
        for future in [executor.submit(read_exactly, same[name]) for name in NAMES * 4]:
            future.result(SECONDS)


# -- processes


def in_child(function: Callable[[], None], seconds: float = 20.0) -> None:
    """Fork, run ``function`` in the child, and fail if it fails or does not end."""
    # A child must not inherit a watchdog whose thread it has not: starting its own would wait for that one.
    faulthandler.cancel_dump_traceback_later()
    pid = os.fork()
    if pid == 0:
        status = 1
        # Where it hangs, on stderr.
        faulthandler.dump_traceback_later(seconds * 0.8, file=sys.__stderr__)
        try:
            function()
            status = 0
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(status)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            assert os.waitstatus_to_exitcode(status) == 0
            return
        time.sleep(0.002)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    pytest.fail(f"the child of a fork hangs for {seconds} s")


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork")


@needs_fork
def test_fork_after_a_read(root: Path) -> None:
    same = arrays(root)

    def read() -> None:
        for array in same.values():
            read_exactly(array)

    read()
    in_child(read)
    read()
    # A child's child, too.
    in_child(lambda: (read(), in_child(read))[0])


@needs_fork
@pytest.mark.parametrize("name", NAMES)
def test_fork_while_another_thread_reads(root: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("GZARR_THREADS", "3")
    array = gzarr.open_array(root, path=name)
    stop = threading.Event()
    failures: list[BaseException] = []

    def loop() -> None:
        try:
            while not stop.is_set():
                read_exactly(array)
                # Or the other thread, and the children of the fork, wait for their turn most of the time.
                time.sleep(0.001)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=loop, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(20):
            in_child(lambda: read_exactly(array))
    finally:
        stop.set()
        for thread in threads:
            thread.join(SECONDS)
    assert not any(thread.is_alive() for thread in threads)
    assert not failures


class SlowVersion:
    """A version that takes long to compare, like one of a remote store."""

    def __init__(self, entered: threading.Event, leave: threading.Event) -> None:
        self.entered = entered
        self.leave = leave

    def __eq__(self, other: object) -> bool:
        self.entered.set()
        self.leave.wait(SECONDS)
        return isinstance(other, SlowVersion)

    __hash__ = object.__hash__


@needs_fork
def test_fork_while_a_shard_index_is_looked_up(root: Path) -> None:
    """The critical moment is prolonged here: the child must not wait for a lock that the reading thread holds then."""
    entered, leave = threading.Event(), threading.Event()

    class Slow(LocalStore):
        def version(self, key: str) -> Any:
            return SlowVersion(entered, leave)

    array = gzarr.open_array(Slow(root), path="shards")
    leave.set()
    read_exactly(array)
    leave.clear()
    entered.clear()
    thread = threading.Thread(target=array.read, daemon=True)
    thread.start()
    assert entered.wait(SECONDS)

    def read() -> None:
        leave.set()
        read_exactly(array)

    # If a fork waits for the lock, somebody must let go of it.
    release = threading.Timer(3.0, leave.set)
    release.start()
    try:
        in_child(read)
    finally:
        leave.set()
        thread.join(SECONDS)
        release.cancel()


SCRIPT = """
import os, sys, threading, time, signal
sys.path[:0] = [{here!r}, {tests!r}, {project!r}, {kernels!r}]
import numpy as np
import test_concurrency as t
import gzarr
root = {root!r}
"""


def script(root: Path, body: str, seconds: float = 90.0) -> str:
    """Run a program in a fresh interpreter; a hang or a bad exit is a failure."""
    start = SCRIPT.format(
        here=str(Path(__file__).parent),
        tests=str(PROJECT / "tests"),
        project=str(PROJECT),
        kernels=str(PROJECT / "kernels"),
        root=str(root),
    )
    done = subprocess.run(
        [sys.executable, "-c", start + textwrap.dedent(body)], capture_output=True, text=True, timeout=seconds
    )
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


@needs_fork
def test_first_read_after_a_fork(root: Path) -> None:
    script(
        root,
        """
        arrays = t.arrays(root)
        def read():
            for array in arrays.values():
                t.read_exactly(array)
        t.in_child(read)
        t.in_child(read)
        read()
        """,
    )


@needs_fork
def test_fork_during_the_first_read(root: Path) -> None:
    """The first read loads libraries; a child forked during that must load them itself."""
    script(
        root,
        """
        arrays = t.arrays(root)
        def read():
            for array in arrays.values():
                t.read_exactly(array)
        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        forks = 0
        while thread.is_alive() and forks < 12:
            time.sleep(0.04)
            t.in_child(read, 40)
            forks += 1
        thread.join(60)
        assert not thread.is_alive()
        read()
        """,
    )


def read_all(array: gzarr.Array) -> tuple[int, int]:
    read_exactly(array)
    return os.getpid(), int(array[...].sum())


def read_group(group: gzarr.Group) -> int:
    for name in NAMES:
        array = group[name]
        assert isinstance(array, gzarr.Array)
        read_exactly(array)
    return os.getpid()


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_process_pool(root: Path, method: str) -> None:
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"this platform cannot start processes by {method}")
    same = arrays(root)
    for array in same.values():
        read_exactly(array)
    context = multiprocessing.get_context(method)
    with ProcessPoolExecutor(2, mp_context=context) as executor:
        futures = [executor.submit(read_all, array) for array in same.values()]
        futures_of_groups = [executor.submit(read_group, gzarr.open_group(root))]
        for future in futures:
            pid, total = future.result(SECONDS)
            assert pid != os.getpid()
            assert total == int(DATA.sum())
        assert futures_of_groups[0].result(SECONDS) != os.getpid()


@needs_fork
def test_multiprocessing_fork(root: Path) -> None:
    same = arrays(root)
    for array in same.values():
        read_exactly(array)
    with multiprocessing.get_context("fork").Pool(3) as workers:
        results = workers.map_async(read_all, list(same.values()) * 3).get(SECONDS)
    assert {total for _, total in results} == {int(DATA.sum())}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("read_before", [False, True])
def test_pickle(root: Path, name: str, read_before: bool) -> None:
    array = gzarr.open_array(root, path=name, missing="error")
    if read_before:
        read_exactly(array)
    copy = pickle.loads(pickle.dumps(array))
    assert (copy.path, copy.shape, copy.dtype, copy.decode_path) == (name, array.shape, array.dtype, array.decode_path)
    read_exactly(copy)
    # By store and path: nothing that was read travels along.
    assert len(pickle.dumps(array)) < 5000
    group = pickle.loads(pickle.dumps(gzarr.open_group(root)))
    read_exactly(group[name])


# -- a data loader


class Windows:
    """A map-style dataset of windows, as users of a data loader write it."""

    def __init__(self, array: gzarr.Array) -> None:
        self.array = array

    def __len__(self) -> int:
        return 40

    def __getitem__(self, i: int) -> Any:
        import torch

        y, x = i % 8 * 7, i // 8 * 16
        return i, torch.from_numpy(self.array[y : y + 9, x : x + 20].astype(np.int32))


# A process that is spawned imports PyTorch, which takes seconds; what it has of gzarr is new for each array.
@pytest.mark.parametrize(
    ("method", "workers", "name"),
    [*(("fork", workers, name) for workers in (2, 4) for name in ("blosc", "shards", "host")), ("spawn", 2, "shards")],
)
def test_data_loader(root: Path, method: str, workers: int, name: str) -> None:
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"this platform cannot start processes by {method}")
    data = pytest.importorskip("torch.utils.data", reason="PyTorch is not installed")
    array = gzarr.open_array(root, path=name)
    # The parent has threads and decoders of its own before the workers are made.
    read_exactly(array)
    loader = data.DataLoader(
        Windows(array), batch_size=None, num_workers=workers, multiprocessing_context=method, timeout=int(SECONDS)
    )
    for _ in range(2):
        seen = set()
        for i, window in loader:
            y, x = int(i) % 8 * 7, int(i) // 8 * 16
            np.testing.assert_array_equal(window.numpy(), DATA[y : y + 9, x : x + 20])
            seen.add(int(i))
        assert seen == set(range(40))


# -- nothing is left behind


def open_descriptors() -> int:
    """Return the number of open descriptors; 0 if the platform does not list them."""
    folder = Path("/proc/self/fd" if sys.platform == "linux" else "/dev/fd")
    return len(list(folder.iterdir()))


def test_no_descriptors_are_left_open(root: Path, tmp_path: Path) -> None:
    broken = zarr.create_array(tmp_path, shape=(64,), chunks=(4,), dtype="u2", compressors=ZstdCodec(), shards=(16,))
    broken[...] = 1
    shard = tmp_path / "c" / "2"
    shard.write_bytes(b"abcd" + shard.read_bytes()[4:])
    bad, same = gzarr.open_array(tmp_path), arrays(root)

    def rounds(n: int) -> None:
        for _ in range(n):
            for array in same.values():
                array[...]
            with pytest.raises(ChunkDecodeError):
                bad[...]

    rounds(3)
    before = open_descriptors()
    rounds(15)
    assert open_descriptors() <= before


def test_memory_does_not_grow(root: Path) -> None:
    output = script(
        root,
        """
        import gc
        arrays = t.arrays(root)
        def resident():
            gc.collect()
            return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGESIZE") / 2**20
        def rounds(n):
            for _ in range(n):
                for array in arrays.values():
                    array[...]
        rounds(40)
        before = resident()
        rounds(200)
        print(resident() - before)
        """
        if Path("/proc/self/statm").exists()
        else "print(0)",
    )
    # 200 reads of each of five arrays of 12 kB: one byte in eight left behind would be seen.
    assert float(output.split()[-1]) < 2.0


def test_arrays_are_freed(root: Path) -> None:
    import weakref

    array = gzarr.open_array(root, path="blosc")
    read_exactly(array)
    seen = weakref.ref(array)
    del array
    gc.collect()
    assert seen() is None
