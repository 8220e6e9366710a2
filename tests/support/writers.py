"""Arrays for many concurrent writers, and processes: forked, waited for, killed."""

from __future__ import annotations

import faulthandler
import os
import signal
import threading
import time
import traceback
from typing import TYPE_CHECKING, Any

import numpy as np
import zarr

import gzarr

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence
    from pathlib import Path

SECONDS = 60.0

#: Arrays have rows of ``WIDTH`` elements; a stored value has 4 rows of half the width.
WIDTH = 64
LAYOUTS: dict[str, dict[str, Any]] = {
    "chunks": {"chunks": (4, 32), "compressors": zarr.codecs.ZstdCodec(level=1)},
    "raw chunks": {"chunks": (4, 32), "compressors": None},
    "shards": {"chunks": (2, 8), "shards": (4, 32), "compressors": zarr.codecs.ZstdCodec(level=1)},
    "raw shards": {"chunks": (2, 8), "shards": (4, 32), "compressors": None},
    "shards of a codec in threads": {
        "chunks": (2, 8),
        "shards": (4, 32),
        "compressors": {"name": "numcodecs.bz2", "configuration": {"level": 1}},
    },
}


def make(path: Path, layout: str, rows: int = 16, **options: Any) -> gzarr.Array:
    """Make an array of zarr-python; return it opened by gzarr for writing."""
    zarr.create_array(path, shape=(rows, WIDTH), **{"dtype": "i4", "fill_value": 0, **LAYOUTS[layout], **options})
    return gzarr.open_array(path, mode="r+", device="cpu")


# -- threads


def in_threads(works: Sequence[Callable[[], object]]) -> None:
    """Run all functions at once; raise the first error; a thread that does not end is a failure."""
    failures: list[BaseException] = []
    start = threading.Barrier(len(works))

    def run(work: Callable[[], object]) -> None:
        try:
            start.wait(SECONDS)
            work()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    end = time.monotonic() + SECONDS
    for thread in threads:
        thread.join(max(end - time.monotonic(), 0))
    assert not any(thread.is_alive() for thread in threads), "a thread hangs"
    if failures:
        raise failures[0]


# -- processes


def start(work: Callable[[], object]) -> int:
    """Run ``work`` in a forked child; its exit status is 0 if it returned."""
    # A child would inherit the watchdog without its thread.
    faulthandler.cancel_dump_traceback_later()
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        work()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def finish(*pids: int, seconds: float = SECONDS) -> None:
    """Wait for children; one that fails or does not end is a failure."""
    end = time.monotonic() + seconds
    left = dict.fromkeys(pids, 0)
    statuses = []
    try:
        while left and time.monotonic() < end:
            for pid in list(left):
                done, status = os.waitpid(pid, os.WNOHANG)
                if done:
                    del left[pid]
                    statuses.append(os.waitstatus_to_exitcode(status))
            time.sleep(0.001)
        assert not left, f"{len(left)} of {len(pids)} processes hang"
    finally:
        for pid in left:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    assert statuses == [0] * len(pids)


def in_processes(works: Sequence[Callable[[], object]]) -> None:
    """Run all functions at once, each in a child process."""
    read, write = os.pipe()

    def run(work: Callable[[], object]) -> Callable[[], None]:
        def wait_and_work() -> None:
            os.close(write)
            os.read(read, 1)
            work()

        return wait_and_work

    pids = [start(run(work)) for work in works]
    os.close(read)
    # All children see the end of the pipe.
    os.close(write)
    finish(*pids)


def kill_at_random(work: Callable[[], object], at_most_s: float, rng: random.Random) -> None:
    """Run ``work``, which never ends, in a child; kill it some time after it has begun."""
    read, write = os.pipe()

    def begin() -> None:
        os.write(write, b".")
        work()

    pid = start(begin)
    try:
        assert os.read(read, 1) == b"."
        time.sleep(rng.uniform(0, at_most_s))
    finally:
        os.kill(pid, signal.SIGKILL)
        os.close(read)
        os.close(write)
    # A child that failed earlier has another status.
    assert os.waitpid(pid, 0)[1] == signal.SIGKILL


# -- generations: chunks that identify themselves and the time of their writing


def stamp(generation: int, shape: tuple[int, int], block: tuple[int, int]) -> np.ndarray[Any, Any]:
    """Return elements that are equal within each block, and differ between generations and blocks.

    Some blocks are absent (0) in some generations, so that the layout of shards changes.
    """
    rows, columns = -(-shape[0] // block[0]), -(-shape[1] // block[1])
    number = np.arange(rows * columns).reshape(rows, columns)
    marks = np.where((number + generation) % 3 == 0, 0, generation * 1000 + number)
    return np.kron(marks, np.ones(block, "i4"))[: shape[0], : shape[1]].astype("i4")


def generations(array: np.ndarray[Any, Any], block: tuple[int, int]) -> np.ndarray[Any, Any]:
    """Return the generation of each block of an array made by :func:`stamp`; -1 for absent blocks.

    Raises
    ------
    AssertionError
        If a block is a mixture, or at another block's position.
    """
    shape = array.shape[0] // block[0], array.shape[1] // block[1]
    blocks = array.reshape(shape[0], block[0], shape[1], block[1]).transpose(0, 2, 1, 3).reshape(*shape, -1)
    first = blocks[:, :, 0]
    assert (blocks == first[:, :, None]).all(), "a chunk is a mixture"
    number = np.arange(first.size).reshape(first.shape)
    found = first // 1000
    assert ((first == 0) | (first % 1000 == number)).all(), "a chunk is in another one's place"
    assert ((first == 0) | ((number + found) % 3 != 0)).all(), "a chunk is of no generation"
    return np.where(first == 0, -1, found)
