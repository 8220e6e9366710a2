"""Locks between processes: no change of a chunk is lost, and locks end with their holders."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dis import opname
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import zarr
from support.interrupts import interrupted

import gzarr
from gzarr.errors import ArgumentError, ReadOnlyError, StoreError
from gzarr.stores import LocalStore, MemoryStore, locks
from gzarr.stores.base import LockingStore
from gzarr.stores.file_locks import FileLock, stripe
from gzarr.stores.locks import hold, hold_node

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType


def forked(work: Callable[[], object]) -> int:
    """Run ``work`` in a child process; its exit status is 0 if it returned."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        work()
        status = 0
    finally:
        os._exit(status)


def finish(*pids: int) -> None:
    statuses = [os.waitpid(pid, 0)[1] for pid in pids]
    assert statuses == [0] * len(pids)


def is_free(path: Path) -> bool:
    with path.open("r+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


@contextmanager
def waiting_for(enter: Callable[[], object]) -> Iterator[threading.Event]:
    """Call ``enter`` in a thread; the event is set when it has returned. The ``with`` block then ends."""
    done = threading.Event()

    def work() -> None:
        enter()
        done.set()

    thread = threading.Thread(target=work)
    thread.start()
    yield done
    thread.join(20)
    assert done.is_set()


def take(store: LocalStore, *keys: str, below: str = "") -> None:
    with store.lock(*keys, below=below):
        pass


@pytest.fixture(params=[True, False], ids=["follow", "refuse"])
def store(request, tmp_path):
    return LocalStore(tmp_path / "root", follow_symlinks=request.param)


# -- what they are for


def writable(path: Path) -> gzarr.Array:
    return gzarr.open_array(path, mode="r+", device="cpu")


@pytest.mark.parametrize("options", [{"chunks": (8,)}, {"chunks": (2,), "shards": (8,)}], ids=["chunk", "shard"])
def test_no_update_of_a_chunk_is_lost(tmp_path, options):
    """Each process has an element of its own; all elements are in one stored value."""
    zarr.create_array(tmp_path, shape=(8,), dtype="i4", fill_value=0, **options)
    array = writable(tmp_path)

    def work(i: int) -> None:
        for j in range(15):
            array.write(i, j + 1, lock=True)

    finish(*[forked(lambda i=i: work(i)) for i in range(8)])
    assert array[...].tolist() == [15] * 8
    assert np.asarray(zarr.open_array(tmp_path, mode="r")[...]).tolist() == [15] * 8


def test_processes_count_together(store):
    """All change one value, in several processes and in several threads of each."""
    store.set("n", b"0")

    def add(_: int) -> None:
        with store.lock("n"):
            store.set("n", b"%d" % (int(store.get("n")) + 1))

    def work() -> None:
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(add, range(15)))

    finish(*[forked(work) for _ in range(6)])
    assert store.get("n") == b"90"


def test_many_keys_at_once_in_any_order(store):
    """Two processes that lock the same keys in opposite orders do not deadlock."""
    keys = [f"c/{i}" for i in range(100)]

    def work(wanted: list[str]) -> None:
        for i in range(30):
            take(store, *wanted[i : i + 20])

    finish(forked(lambda: work(keys)), forked(lambda: work(keys[::-1])), forked(lambda: work(keys[50:] + keys[:50])))
    assert len(list((store.root / ".gzarr-locks").iterdir())) <= 64


def test_the_lock_of_a_node_is_none_of_its_keys_locks(store):
    with store.lock(below="a/"):
        with waiting_for(lambda: take(store, *[f"a/{i}" for i in range(1000)], below="a/")):
            pass
        with waiting_for(lambda: take(store, below="b/")):
            pass
        assert not is_free(store.root / "a" / ".gzarr-locks" / "node")
    assert is_free(store.root / "a" / ".gzarr-locks" / "node")


# -- who holds one


def test_goes_with_a_killed_holder(store):
    read, write = os.pipe()

    def hold() -> None:
        with store.lock("k"):
            os.write(write, b".")
            time.sleep(60)

    pid = forked(hold)
    assert os.read(read, 1) == b"."
    file = store.root / ".gzarr-locks" / str(stripe("k"))
    assert not is_free(file)
    with waiting_for(lambda: take(store, "k")) as entered:
        assert not entered.wait(0.05)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        assert entered.wait(20)
    assert is_free(file)
    os.close(read)
    os.close(write)


def test_a_child_neither_holds_nor_gives_up_its_parents(store):
    file = store.root / ".gzarr-locks" / str(stripe("k"))
    read, write = os.pipe()

    def want() -> None:
        assert not is_free(file)
        os.write(write, b"1")
        with store.lock("k"):
            os.write(write, b"2")

    with store.lock("k"):
        # A child that leaves the block that it was forked in.
        with store.lock("k"):
            pid = os.fork()
            if not pid:
                try:
                    store.lock("other").__enter__()
                finally:
                    os._exit(0)
        finish(pid)
        pid = forked(want)
        assert os.read(read, 1) == b"1"
        time.sleep(0.05)
        assert not is_free(file)
    assert os.read(read, 1) == b"2"
    finish(pid)
    os.close(read)
    os.close(write)


def test_a_thread_may_take_it_again(store):
    file = store.root / ".gzarr-locks" / str(stripe("k"))
    with store.lock("k"):
        with store.lock("k", "k"):
            assert not is_free(file)
        assert not is_free(file)
        assert store.lock("k").__enter__() is None
    # The one that was entered and dropped was closed with the generator that it is.
    assert is_free(file)


def test_an_object_is_taken_once(tmp_path):
    lock = FileLock(str(tmp_path / "lock"))
    with lock:
        with pytest.raises(RuntimeError, match="already held"):
            lock.acquire()
        assert not is_free(tmp_path / "lock")
    lock.release()
    assert is_free(tmp_path / "lock")


def test_a_lock_file_erased_by_somebody(store):
    file = store.root / ".gzarr-locks" / str(stripe("k"))
    held = store.lock("k")
    held.__enter__()
    with waiting_for(lambda: take(store, "k")) as entered:
        assert not entered.wait(0.05)
        file.unlink()
        held.__exit__(None, None, None)
        assert entered.wait(20)
    # Who waited did not settle for the lock on a file that nobody else will find.
    assert file.exists()


def test_an_error_in_the_block_gives_it_up(store):
    with pytest.raises(OSError, match="of the user"), store.lock("a", "b"):
        raise FileNotFoundError(errno.ENOENT, "of the user")
    assert is_free(store.root / ".gzarr-locks" / str(stripe("a")))


# -- where they are


def test_one_lock_whatever_was_opened(tmp_path):
    group, array = LocalStore(tmp_path), LocalStore(tmp_path / "a")
    held = group.lock("a/c/0/0", below="a/")
    held.__enter__()
    with waiting_for(lambda: take(array, "c/0/0")) as entered:
        assert not entered.wait(0.05)
        held.__exit__(None, None, None)
        assert entered.wait(20)
    assert list(tmp_path.iterdir()) == [tmp_path / "a"]


def test_not_in_sight(store):
    store.set("a/zarr.json", b"{}")
    take(store, "a/c/0", below="a/")
    take(store, "zarr.json")
    assert list(store.list()) == ["a/zarr.json"]
    assert store.list_dir("") == ([], ["a/"])
    assert store.list_dir("a/.gzarr-locks/") == ([], [])
    key = f"a/.gzarr-locks/{stripe('c/0')}"
    assert (store.root / key).exists()
    assert store.get(key) is None
    assert store.version(key) is None
    for call in (
        lambda: store.set(key, b""),
        lambda: store.erase(key),
        lambda: store.erase_prefix("a/.gzarr-locks/"),
        lambda: take(store, key),
        lambda: take(store, "k", below="a/.gzarr-locks/"),
    ):
        with pytest.raises(ArgumentError, match="locks"):
            call()
    store.erase_prefix("a/")
    assert not (store.root / "a").exists()


def test_refused(store, monkeypatch):
    assert isinstance(store, LockingStore)
    assert not isinstance(MemoryStore(), LockingStore)
    for keys, below in ((["../k"], ""), (["a/k"], "b/"), (["k"], "a")):
        with pytest.raises(ArgumentError):
            take(store, *keys, below=below)
    assert not store.root.exists()

    def no_locks(fd: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", no_locks)
        with pytest.raises(StoreError, match="cannot lock 'k': No locks available") as info:
            take(store, "k")
    assert info.value.errno == errno.ENOLCK
    take(store, "k")
    store.read_only = True
    with pytest.raises(ReadOnlyError):
        take(store, "k")


def test_links_are_not_followed_where_refused(tmp_path):
    (tmp_path / "outside").mkdir()
    (tmp_path / "root" / ".gzarr-locks").mkdir(parents=True)
    (tmp_path / "root" / ".gzarr-locks" / str(stripe("k"))).symlink_to(tmp_path / "outside" / "new")
    store = LocalStore(tmp_path / "root", follow_symlinks=False)
    with pytest.raises(StoreError, match="cannot lock 'k'"):
        take(store, "k")
    (tmp_path / "root" / "a").symlink_to(tmp_path / "outside")
    with pytest.raises(StoreError, match="symbolic link"):
        take(store, "a/k", below="a/")
    assert not list((tmp_path / "outside").iterdir())


def test_threads_of_one_process_take_turns(tmp_path):
    inside: list[int] = []

    def work(i: int) -> None:
        for _ in range(10):
            with FileLock(str(tmp_path / "lock")):
                inside.append(i)
                time.sleep(0.0005)
                assert inside == [i]
                inside.clear()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))


# -- what is erased while it is waited for, and interrupts


@pytest.mark.parametrize("relative", [False, True], ids=["path", "descriptor"])
def test_a_lock_file_that_is_replaced_is_not_settled_for(tmp_path, relative):
    """A renamed file still has a name, but not the one that others look for."""
    file, aside = tmp_path / "lock", tmp_path / "aside"
    directory = os.open(tmp_path, os.O_RDONLY) if relative else None
    name = file.name if relative else str(file)
    held = FileLock(name, directory)
    held.acquire()

    def enter() -> None:
        with FileLock(name, directory):
            assert not is_free(file)
            assert is_free(aside)

    with waiting_for(enter) as entered:
        assert not entered.wait(0.05)
        file.rename(aside)
        held.release()
        assert entered.wait(20)
    assert is_free(file)
    if directory is not None:
        os.close(directory)


def test_a_lock_in_a_directory_that_was_moved_aside_is_not_settled_for(tmp_path):
    node, aside = tmp_path / "node", tmp_path / "aside"
    node.mkdir()
    held = FileLock(str(node / "lock"))
    held.acquire()

    def enter() -> None:
        with FileLock(str(node / "lock")):
            assert not is_free(node / "lock")

    with waiting_for(enter) as entered:
        assert not entered.wait(0.05)
        node.rename(aside)
        node.mkdir()
        held.release()
        assert entered.wait(20)


def test_locks_of_a_node_that_was_erased_are_not_settled_for(store):
    """The locks are taken again, both those waited for and those obtained before."""
    first, second = sorted((f"a/{i}" for i in range(2)), key=lambda key: stripe(key[2:]))
    files = [store.root / "a" / ".gzarr-locks" / str(stripe(key[2:])) for key in (first, second)]
    held = store.lock(second, below="a/")
    held.__enter__()

    def enter() -> None:
        with store.lock(first, second, below="a/"):
            assert not any(map(is_free, files))

    with waiting_for(enter) as entered:
        while not files[0].exists() or is_free(files[0]):
            time.sleep(0.01)
        (store.root / "a").rename(store.root / "aside")
        # The waiting thread may make it first.
        files[0].parent.mkdir(parents=True, exist_ok=True)
        held.__exit__(None, None, None)
        assert entered.wait(20)


def descriptors() -> set[str]:
    return {path.name for path in Path("/dev/fd").iterdir()}


def test_an_interrupt_at_any_moment_of_taking_it_leaves_nothing_open(tmp_path):
    path = tmp_path / "lock"
    path.touch()
    before = descriptors()

    def interrupted_at(number: int) -> bool:
        """Acquire the lock, with an interrupt before an instruction; return whether there was such an instruction."""
        left = number

        def trace(frame: FrameType, event: str, argument: object) -> object:
            nonlocal left
            if frame.f_code is not FileLock.acquire.__code__:
                return None
            frame.f_trace_opcodes = True
            # Python does not look for interrupts between a jump that is not taken and this instruction.
            if event == "opcode" and opname[frame.f_code.co_code[frame.f_lasti]] != "NOT_TAKEN":
                left -= 1
                if not left:
                    raise KeyboardInterrupt
            return trace

        lock = FileLock(str(path))
        previous = sys.gettrace()
        # Python 3.12 asks the frame that sets the function whether instructions are wanted.
        sys._getframe().f_trace_opcodes = True
        sys.settrace(trace)
        try:
            lock.acquire()
        except KeyboardInterrupt:
            # Where all that is left is to return, Python does not look for interrupts.
            if lock._thread is None:
                return True
        finally:
            sys.settrace(previous)
        lock.release()
        return False

    number = 1
    while interrupted_at(number):
        assert descriptors() <= before, number
        assert is_free(path)
        number += 1
    assert number > 50


def test_an_interrupt_while_it_is_given_up_leaves_nothing_open(tmp_path, monkeypatch):
    before = descriptors()
    lock = FileLock(str(tmp_path / "lock"))
    lock.acquire()

    def flock(fd: int, how: int) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", flock)
        with pytest.raises(KeyboardInterrupt):
            lock.release()
    assert descriptors() <= before
    assert is_free(tmp_path / "lock")


def test_an_interrupt_at_any_moment_of_a_with_block_leaves_nothing_locked(store):
    work: Callable[[], object] = lambda: take(store, "k", "l")  # noqa: E731
    work()
    files = sorted((store.root / ".gzarr-locks").iterdir())
    before = descriptors()
    number = 1
    while interrupted(work, number):
        assert all(map(is_free, files)), number
        assert descriptors() <= before, number
        number += 1
    assert number > 100


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("write", [False, True], ids=["read", "write"])
def test_an_interrupt_at_any_moment_of_a_read_or_a_write_leaves_nothing_open(store, write):
    store.durable = store._tree.durable = True
    store.set("a/b", b"value")
    before = descriptors()
    number = 1
    work: Callable[[], object] = (lambda: store.set("a/b", b"value")) if write else (lambda: store.get("a/b"))
    while interrupted(work, number):
        assert descriptors() <= before, number
        number += 1
    assert number > 10


def test_an_interrupt_at_any_moment_of_holding_keys_and_nodes_leaves_other_threads_alone(store):
    def work() -> None:
        with hold_node(store, "a", "b"), hold(store, ["k", "l"]):
            pass

    work()
    number = 1
    while interrupted(work, number):
        assert not any(locks._node_holders), number
        with waiting_for(work) as done:
            assert done.wait(20), number
        number += 1
    assert number > 50
