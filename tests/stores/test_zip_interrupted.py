"""Zip archives whose writing is cut off: by the end of the process, or by what runs in the midst of it."""

from __future__ import annotations

import errno
import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING

import numpy as np
import pytest
from support.interrupts import interrupted

import gzarr
from gzarr.errors import StoreError
from gzarr.stores import zip_writer

if TYPE_CHECKING:
    from pathlib import Path

# Any earlier read has gzarr's own function at exit run after that of the store.
WRITING = """
import sys, threading, time
import gzarr
gzarr.create_array({}, data=[1], device="cpu")[...]
store = gzarr.ZipStore(sys.argv[1], mode="a")
live = gzarr.open_array(store, path="live", mode="r+", device="cpu")
begun = threading.Event()
def work():
    k = 0
    while True:
        live[...] = k = k + 1
        begun.set()
        time.sleep(float(sys.argv[2]))
threading.Thread(target=work, daemon=True).start()
begun.wait()
time.sleep(0.05)
"""
HELD = """
import sys, threading, time
import gzarr
from gzarr.stores import zip_writer
zip_writer._EXIT_S = 0.2
store = gzarr.ZipStore(sys.argv[1], mode="a")
store.set("k", b"new")
begun = threading.Event()
def work():
    with store._lock:
        begun.set()
        time.sleep(1000)
threading.Thread(target=work, daemon=True).start()
begun.wait()
"""
LATER = """
import atexit, sys
import gzarr
def late():
    for change in (lambda: store.set("l", b""), lambda: store.erase("k"), store.flush):
        try:
            change()
        except gzarr.StoreError as error:
            print("refused:", error)
    print(store.get("k"), list(store.list()))
    store.close()
atexit.register(late)
import weakref
weakref.finalize(late, print)
store = gzarr.ZipStore(sys.argv[1], mode="a")
store.set("k", b"new")
"""


def run(program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "x.zip"
    with gzarr.ZipStore(path, mode="w") as store:
        store.set("k", b"old")
    return path


def check(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("suffix", ["zip", "ozx"])
@pytest.mark.parametrize("pause_s", [0, 0.001, 0.01])
def test_a_thread_writes_when_the_process_ends(pause_s: float, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"x.{suffix}"
    precious = np.arange(10_000)
    with gzarr.ZipStore(path, mode="w") as store:
        gzarr.create_array(store, path="precious", data=precious, chunks=1000)
        gzarr.create_array(store, path="live", shape=(1000,), chunks=(10,), dtype="i4")
    run(WRITING, path, pause_s)
    check(path)
    np.testing.assert_array_equal(gzarr.open_array(path, path="precious", device="cpu")[...], precious)
    assert (gzarr.open_array(path, path="live", device="cpu")[...] > 0).all()


def test_a_thread_that_never_ends_its_writing_leaves_the_old_archive(path: Path) -> None:
    done = run(HELD, path)
    assert "stays as the last flush left it" in done.stderr
    check(path)
    assert gzarr.ZipStore(path).get("k") == b"old"


def test_what_comes_after_the_end_is_refused(path: Path) -> None:
    done = run(LATER, path)
    assert done.stdout.count("refused:") == 2, done.stdout + done.stderr
    assert "wait for the threads that write to it" in done.stdout
    assert "b'new' ['k']" in done.stdout
    check(path)
    assert gzarr.ZipStore(path).get("k") == b"new"


@pytest.mark.parametrize("what", ["flush", "discard", "close", "set", "erase"])
def test_what_a_handler_of_a_signal_does_in_the_midst_of_a_value_is_refused(
    what: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is called in the same thread, which has the lock."""
    store = gzarr.ZipStore(path, mode="a")
    store.set("a", b"1")
    write, calls = zip_writer._write, []

    def interrupted(fd: int, data: bytes | memoryview) -> None:
        write(fd, bytes(data[:3]))
        calls.append(what)
        if len(calls) == 1:
            with pytest.raises(StoreError, match="interrupted"):
                {"set": lambda: store.set("c", b"3"), "erase": lambda: store.erase_values(["a"])}.get(
                    what, lambda: getattr(store, what)()
                )()
        write(fd, data[3:])

    with monkeypatch.context() as patch:
        patch.setattr(zip_writer, "_write", interrupted)
        store.set("b", b"2")
    assert calls
    store.close()
    check(path)
    found = gzarr.ZipStore(path)
    assert {key: found.get(key) for key in found.list()} == {"a": b"1", "b": b"2", "k": b"old"}


# Of destructors that are interrupted.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("suffix", ["zip", "ozx"])
def test_an_interrupt_at_any_moment_loses_nothing_else(suffix: str, tmp_path: Path) -> None:
    """Also where the new version has its place already, and the store does not know."""

    def work() -> None:
        store.set("b", b"2")
        store.set("k", b"new")
        store.erase_values(["x"])
        store.flush()

    number, more = 0, True
    while more:
        number += 1
        path = tmp_path / f"{number}.{suffix}"
        store = gzarr.ZipStore(path, mode="w")
        store.set("x", b"")
        store.set("k", b"old")
        store.flush()
        list(store.list())
        more = interrupted(work, number, "gzarr/stores/zip_")
        # What was done is seen by other readers after the next flush.
        expected = {key: store.get(key) for key in store.list()}
        assert expected["k"] in (b"old", b"new"), number
        assert set(expected) <= {"b", "k", "x"}, number
        expected["c"] = bytes(500)
        store.set("c", expected["c"])
        assert set(store.list()) == set(expected), number
        store.close()
        with zipfile.ZipFile(path) as archive:
            assert archive.testzip() is None
            assert {name: archive.read(name) for name in archive.namelist()} == expected, number
        assert {key: store.get(key) for key in store.list()} == expected, number
        assert list(tmp_path.iterdir()) == [path], number
        path.unlink()
    assert set(expected) == {"b", "c", "k"}
    assert number > 50


@pytest.mark.parametrize("suffix", ["zip", "ozx"])
@pytest.mark.parametrize("then", ["get", "flush", "discard", "erase", "drop"])
def test_an_interrupt_after_the_new_name(
    then: str, suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / f"x.{suffix}"
    store = gzarr.ZipStore(path, mode="w")
    store.set("a", b"1")
    store.flush()
    store.set("b", b"2")
    with monkeypatch.context() as patch:

        def sync(*_: object) -> None:
            raise KeyboardInterrupt

        patch.setattr(zip_writer, "sync_directory", sync)
        with pytest.raises(KeyboardInterrupt):
            store.flush()
    if then == "drop":
        del store
    elif then == "erase":
        store.erase_values(["a"])
        store.close()
    elif then == "get":
        assert store.get("b") == b"2"
    else:
        getattr(store, then)()
        assert store.get("b") == b"2"
    check(path)
    assert list(gzarr.ZipStore(path).list()) == (["b"] if then == "erase" else ["a", "b"])


def test_a_change_after_what_a_handler_of_a_signal_completed_is_refused(path: Path) -> None:
    store = gzarr.ZipStore(path, mode="a")
    store.set("a", b"1")
    writer = store._writer
    assert writer is not None
    store.flush()
    for change in (lambda: writer.add("b", [memoryview(b"")]), lambda: writer.remove(["a"])):
        with pytest.raises(StoreError, match="try it again"):
            change()
    check(path)


def test_numbers_of_errors(path: Path) -> None:
    """The caller can tell that it has too many open files from a disk that is full."""
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        with pytest.raises(StoreError) as raised:
            gzarr.ZipStore(path)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert raised.value.errno == errno.EMFILE
    with pytest.raises(StoreError) as raised:
        gzarr.ZipStore(path.with_name("x" * 300 + ".zip"), mode="w")
    assert raised.value.errno == errno.ENAMETOOLONG
