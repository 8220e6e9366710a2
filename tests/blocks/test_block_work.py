"""Errors, ends, resuming and memory of ``map_blocks``."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gzarr
from gzarr.arrays.recycling import RecycledResults
from gzarr.blocks.assembly import kept_assemblies
from gzarr.blocks.axes import WindowLayout
from gzarr.blocks.first_block import FirstBlock
from gzarr.blocks.sharing import SharedPiece
from gzarr.blocks.workers import run
from gzarr.engines import pool
from gzarr.windows.runs import Cut

if TYPE_CHECKING:
    from gzarr.blocks import Block

SHAPE, CHUNKS = (40, 30), (8, 10)


def elements() -> np.ndarray[Any, Any]:
    return np.random.default_rng(1).integers(1, 1000, SHAPE).astype("i4")


def stored(store: Any = None) -> gzarr.Array:
    return gzarr.create_array({} if store is None else store, data=elements(), chunks=CHUNKS, device="cpu")


def own_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "gzarr-blocks"]


# -- workers


def test_tasks_are_taken_as_they_are_needed() -> None:
    taken = []

    def tasks() -> Any:
        for i in range(100):
            taken.append(i)
            yield i

    most = 0
    for done, (number, value) in enumerate(run(tasks(), lambda i: i * i, threads=2, describe=str)):
        assert value == number**2
        most = max(most, len(taken) - done)
    assert most <= 4
    assert not own_threads()


def test_the_first_failure_is_raised() -> None:
    both = threading.Barrier(2, timeout=20)

    def work(i: int) -> int:
        if i < 2:
            both.wait()
        if i == 1:
            raise KeyError("second")
        if i == 0:
            raise ValueError("first")
        return i

    for _ in range(20):
        with pytest.raises(ValueError, match="first") as caught:
            list(run(range(10**9), work, threads=2, describe=lambda i: f"task {i}"))
        assert caught.value.__notes__ == ["(in task 0)"]
        assert not own_threads()


@pytest.mark.parametrize("what", ["piece", "first block"])
def test_nobody_waits_for_what_will_not_be_made(what: str) -> None:
    """A task that was to make something is never begun if another has failed just before."""
    piece, first = SharedPiece((0,), 1), FirstBlock([], [])

    def work(task: int) -> None:
        if task:
            raise ValueError("failed")
        if what == "piece":
            piece.wait()
        else:
            first.wait()

    with pytest.raises(ValueError, match="failed"):
        list(run([0, 1], work, threads=2, describe=str))
    assert not own_threads()


def test_threads_end_when_the_iterator_is_closed() -> None:
    results = run(range(10**9), lambda i: i, threads=3, describe=str)
    assert next(results) == (0, 0)
    assert own_threads()
    results.close()
    assert not own_threads()


@pytest.mark.parametrize(("tasks", "helped", "helpers"), [(1, False, 3), (2, False, 1), (3, False, 1), (3, True, 3)])
def test_tasks_in_progress_share_the_pool(
    tasks: int, helped: bool, helpers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setenv("GZARR_THREADS", "4")
    monkeypatch.setattr(pool, "_start", asked.append)
    began, asking = (threading.Barrier(tasks, timeout=20) for _ in range(2))

    def work(i: int) -> None:
        began.wait()
        pool.run(lambda worker: None, 4)
        asking.wait()

    list(run(range(tasks), work, threads=tasks, describe=str, helped=helped))
    assert asked == [helpers] * tasks
    # It is of no concern to other threads, or later.
    pool.run(lambda worker: None, 4)
    assert asked[-1] == 3


def test_the_settings_of_numpy_hold_in_threads() -> None:
    source = stored()
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError):
        gzarr.map_blocks(lambda x: x / np.zeros_like(x), source)
    with np.errstate(divide="ignore"):
        assert np.isinf(gzarr.map_blocks(lambda x: x / np.zeros_like(x), source)).all()


# -- errors


def test_errors_name_the_block() -> None:
    def fail(x: Any, block_info: Block) -> Any:
        if block_info.index == (2, 1):
            raise ZeroDivisionError("no")
        return x

    out = gzarr.create_array({}, SHAPE, "i4", chunks=CHUNKS, device="cpu")
    with pytest.raises(ZeroDivisionError) as caught:
        gzarr.map_blocks(fail, stored(), out=out, block=CHUNKS, halo=1, overlap=False)
    assert caught.value.__notes__ == ["(in block (2, 1) of (5, 3), [16:24, 10:20])"]
    # What was written stays.
    np.testing.assert_array_equal(out[:16], elements()[:16])


def test_a_function_that_raises_stop_iteration() -> None:
    """``next()`` of an iterator that has come to its end."""

    def first(block: np.ndarray[Any, Any]) -> Any:
        return next(row for row in block if row[0] > 99)

    for call in (
        lambda: gzarr.map_blocks(first, np.zeros((8, 4)), block=(4, 4)),
        lambda: gzarr.blocks.label(np.zeros((8, 4), "u1"), function=first, out={}),
    ):
        with pytest.raises(RuntimeError, match="StopIteration was raised") as caught:
            call()
        assert "block (0, 0)" in "".join(caught.value.__notes__)
        assert isinstance(caught.value.__cause__, StopIteration)


@pytest.mark.parametrize("halo", [0, 2])
@pytest.mark.parametrize("overlap", [True, False])
def test_a_damaged_chunk_is_named(tmp_path: Path, halo: int, overlap: bool) -> None:
    source = stored(tmp_path / "a")
    (tmp_path / "a/c/3/1").write_bytes(b"damaged")
    for _ in range(10):
        with pytest.raises(gzarr.ChunkDecodeError, match="c/3/1") as caught:
            gzarr.map_blocks(lambda x: x, source, block=CHUNKS, halo=halo, overlap=overlap)
        row = 2 if halo else 3
        assert f"block ({row}, {0 if halo else 1}) of (5, 3)" in caught.value.__notes__[-1]
        assert not own_threads()


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (lambda x: x[1:], r"returned an array of shape \(9, 12\) for block \(0, 0\).*expected \(8, 10\) or, with the"),
        (lambda x: 5, "returned int for block"),
        (lambda x: None, "returned NoneType for block"),
        (lambda x: x / 3, "cannot be stored as int32"),
        (lambda x: x.astype("U5"), "."),
    ],
    ids=["shape", "number", "nothing", "fractions", "strings"],
)
def test_wrong_results(result: Any, message: str) -> None:
    out = gzarr.create_array({}, SHAPE, "i4", chunks=CHUNKS, device="cpu")
    with pytest.raises(gzarr.ArgumentError, match=message) as caught:
        gzarr.map_blocks(result, stored(), out=out, block=CHUNKS, halo=1)
    assert "block (" in "".join(caught.value.__notes__)


def test_wrong_numbers_of_results() -> None:
    out = [gzarr.create_array({}, SHAPE, "i4", chunks=CHUNKS, device="cpu") for _ in range(2)]
    with pytest.raises(gzarr.ArgumentError, match=r"must return 2 arrays for block \(0, 0\).*not ndarray"):
        gzarr.map_blocks(lambda x: x, stored(), out=out)
    with pytest.raises(gzarr.ArgumentError, match="must return 2 arrays and a value to be reduced for block"):
        gzarr.map_blocks(lambda x: (x, x), stored(), out=out, reduce=max)


def test_results_that_memory_cannot_hold() -> None:
    with pytest.raises(gzarr.OutputError, match="out= of uint8 cannot take results of float64"):
        gzarr.map_blocks(lambda x: x / 3, stored(), out=np.zeros(SHAPE, "u1"))


# -- resuming


def test_what_is_done_is_not_done_again(tmp_path: Path) -> None:
    source, seen = stored(tmp_path / "a"), []

    def fail(x: Any, block_info: Block) -> Any:
        if block_info.number == 7:
            raise ZeroDivisionError
        return -x

    def work(x: Any, block_info: Block) -> Any:
        seen.append(block_info.number)
        return -x

    arguments: dict[str, Any] = {"out": tmp_path / "b", "block": (8, 10), "overlap": False}
    with pytest.raises(ZeroDivisionError):
        gzarr.map_blocks(fail, source, **arguments)
    # Of a block with several chunks, all must be there.
    found = gzarr.map_blocks(work, source, resume=True, **arguments)
    assert seen == list(range(7, 15))
    np.testing.assert_array_equal(found[...], -elements())
    seen.clear()
    gzarr.map_blocks(work, source, resume=True, **arguments)
    assert not seen
    found.store.erase("c/3/1")
    gzarr.map_blocks(work, source, resume=True, **{**arguments, "block": (16, 20)})
    assert seen == [2]
    np.testing.assert_array_equal(found[...], -elements())


def test_resuming_is_refused_where_it_would_be_wrong() -> None:
    out = gzarr.create_array({}, SHAPE, "i4", chunks=CHUNKS, device="cpu")
    with pytest.raises(gzarr.ArgumentError, match="reduce needs the values of all of them"):
        gzarr.map_blocks(lambda x: (x, 1), stored(), out=out, reduce=max, resume=True)
    with pytest.raises(gzarr.ArgumentError, match="is the output as well"):
        gzarr.map_blocks(lambda x: x, out, out=out, resume=True)


KILLED = """
import os, signal, sys
import gzarr
source = gzarr.open_array(sys.argv[1], device="cpu")
def work(x, block_info):
    if block_info.number == 9:
        os.kill(os.getpid(), signal.SIGKILL)
    return -x
gzarr.map_blocks(work, source, out=sys.argv[2], block=(8, 10))
"""


def test_resuming_after_a_kill(tmp_path: Path) -> None:
    source = stored(tmp_path / "a")
    killed = subprocess.run([sys.executable, "-c", KILLED, tmp_path / "a", tmp_path / "b"], check=False)
    assert killed.returncode == -signal.SIGKILL
    seen: list[int] = []

    def work(x: Any, block_info: Block) -> Any:
        seen.append(block_info.number)
        return -x

    found = gzarr.map_blocks(work, source, out=tmp_path / "b", block=(8, 10), resume=True)
    np.testing.assert_array_equal(found[...], -elements())
    # At most those that were in progress are done again.
    assert 9 in seen
    assert len(seen) <= 15 - 9 + len(os.sched_getaffinity(0)) + 1


INTERRUPTED = """
import os, signal, sys, threading, time
import gzarr
# Who runs the tests in the background of a shell has interrupts ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
source = gzarr.create_array({}, shape=(100_000,), dtype="i4", chunks=10, device="cpu")
begun = threading.Event()
def work(x):
    begun.set()
    time.sleep(0.01)
    return x
def interrupt():
    begun.wait()
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt).start()
try:
    gzarr.map_blocks(work, source, block=10)
except KeyboardInterrupt:
    # One whose start was interrupted ends as soon as it begins.
    until = time.monotonic() + 20
    while [thread for thread in threading.enumerate() if thread.name == "gzarr-blocks"]:
        assert time.monotonic() < until
    print("fine")
"""


def test_an_interrupt_ends_all_threads() -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("fine\n", "")


@pytest.mark.parametrize("begun", [True, False])
@pytest.mark.parametrize("number", [1, 3])
def test_an_interrupt_while_a_thread_starts(monkeypatch: pytest.MonkeyPatch, number: int, begun: bool) -> None:
    start = threading.Thread.start
    started: list[threading.Thread] = []

    def interrupted(thread: threading.Thread) -> None:
        if thread.name == "gzarr-blocks":
            started.append(thread)
        if len(started) != number:
            start(thread)
            return
        if begun:
            start(thread)
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        list(run(range(10), lambda i: i, threads=4, describe=str))
    assert len(started) == number
    assert not own_threads()


# -- memory

BOUNDED = """
import sys
import numpy as np
import gzarr
from gzarr.engines import kernels
from support.peak_memory import peak_nbytes
kernels.load()
source = gzarr.open_array(sys.argv[1], device="cpu")
small = gzarr.create_array({}, data=np.ones((64, 64), "u2"), chunks=32)
gzarr.map_blocks(lambda x: x, small, halo=2)
before = peak_nbytes()
out = gzarr.create_array(sys.argv[2], shape=source.shape, chunks=64, dtype="u2", device="cpu")
gzarr.map_blocks(lambda x: x, source, out=out, halo=2, budget_bytes=48 << 20)
print((peak_nbytes() - before) / 2**20)
assert (out[200:300, 5, 7] == source[200:300, 5, 7]).all()
"""


def test_memory_is_bounded(tmp_path: Path) -> None:
    source = gzarr.create_array(tmp_path / "a", shape=(512, 256, 256), chunks=64, dtype="u2", device="cpu")
    for z in range(0, 512, 64):
        source[z : z + 64] = np.random.default_rng(z).integers(0, 4000, (64, 256, 256))
    command = [sys.executable, "-c", BOUNDED, tmp_path / "a", tmp_path / "b"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[1])
    # The array has 64 MiB, and so has its copy; half a layer of 64 more would show.
    assert float(done.stdout) < 48


@pytest.mark.parametrize("halo", [0, 2])
def test_memory_of_blocks_is_used_again_unless_it_is_kept(halo: int, monkeypatch: pytest.MonkeyPatch) -> None:
    data = np.arange(64 * 96 * 96, dtype="u2").reshape(64, 96, 96)
    array = gzarr.create_array({}, data=data, chunks=(8, 96, 96), device="cpu")
    made: list[int] = []
    new = RecycledResults._new
    monkeypatch.setattr(RecycledResults, "_new", lambda self, nbytes: [made.append(nbytes), new(self, nbytes)][1])

    def mapped(function: Any) -> None:
        made.clear()
        gzarr.map_blocks(function, array, reduce=lambda a, b: a, block=(8, 96, 96), halo=(halo, 0, 0), overlap=False)

    # One window of the ends and one of the others at most, and chunks.
    mapped(lambda x: 0)
    assert 1 <= len(made) <= 4
    kept: list[Any] = []
    mapped(kept.append)
    expected = np.pad(data, [(halo, halo), (0, 0), (0, 0)], mode="symmetric")
    for i, window in enumerate(kept):
        np.testing.assert_array_equal(window, expected[8 * i : 8 * i + 8 + 2 * halo])
    monkeypatch.setenv("GZARR_RECYCLE_BYTES", "0")
    mapped(lambda x: 0)
    assert not made


def test_assemblies_of_wide_halos_are_not_kept() -> None:
    """Each repeated element is a piece of its own: many of them would take more memory than blocks."""
    cuts = tuple(Cut(i, 1, 0, 1, 0, 8) for i in range(30))
    wide, narrow = (
        (WindowLayout(30, 1, cuts), WindowLayout(30, 1, cuts)),
        (WindowLayout(30, 1, cuts[:4]), WindowLayout(30, 1, cuts[:4])),
    )
    assembly = kept_assemblies()
    assert assembly(wide, np.dtype("u1")) is not assembly(wide, np.dtype("u1"))
    assert assembly(narrow, np.dtype("u1")) is assembly(narrow, np.dtype("u1"))
