"""The compiled kernels, loaded when first needed, and the scratch buffers that workers keep between reads.

A compiled function runs without the GIL, and only for a worker. When the interpreter shuts down, a daemon thread that
returned from one would be ended in the middle of it, which aborts the process. So at exit, running functions, and the
compilation of one, come to their end first, and only the main thread gets more workers (``gzarr.ending``).
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import operator
import os
import sys
import threading
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from gzarr_kernels import compiled, libraries
from gzarr_kernels.slots.context import LOOKED_AT, PLACE_NS, READ_NS, SIZE, SLICE_NS
from gzarr_kernels.slots.scratch import WORKER_BYTES

from .. import ending
from ..errors import ArgumentError
from ..guarded import ForkSafeLock
from ..installing import COMMANDS
from ..starting import NamedThread
from . import pool

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from .monitor import Monitor

#: Most bytes, roughly, of the scratch buffers of all idle workers together; larger ones are freed after a read.
KEEP_BYTES = 64 << 20
#: Most idle workers kept.
KEEP_WORKERS = 64
#: How chunk files are opened. Without O_NONBLOCK, opening a named pipe in a store would block forever.
OPEN_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
_LINK_FLAGS = (os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC) if hasattr(os, "O_PATH") else getattr(os, "O_SYMLINK", 0)
_FOLDER_FLAGS = (getattr(os, "O_PATH", 0) or os.O_RDONLY) | getattr(os, "O_CLOEXEC", 0)
#: Values of ``OPEN_FLAGS``, ``LINK_FLAGS`` and ``FOLDER_FLAGS`` in the job of a read.
FILE_FLAGS = np.array([OPEN_FLAGS, _LINK_FLAGS, _FOLDER_FLAGS], np.int64)
# How long the caller's thread stays in a loop at a time. Returning may mean waiting for the GIL, so this is much longer
# than Python's switch interval.
_SLICE_NS = 100_000_000

#: Seconds that running functions get at exit.
EXIT_S: Final = 10.0

# A fork waits for a load in progress; the child would otherwise inherit half of it.
_lock = ForkSafeLock()
_entries: dict[tuple[str, str], Any] = {}
_release: Any = None
_operations: dict[tuple[str, str], int] = {}
_said = False


def available() -> frozenset[str]:
    """Return the parts of the native loop that work here (``gzarr_kernels.libraries``).

    Where only the kernels are missing, and Numba to compile them, the first call says so on stderr.
    """
    return _without_kernels(libraries.available())


def encoders() -> frozenset[str]:
    """Return the parts of native writing that work here, like :func:`available`."""
    return _without_kernels(libraries.encoders())


def _without_kernels(found: frozenset[str]) -> frozenset[str]:
    if "loop" not in found or compiled.can_run():
        return found
    _say(f"gzarr: {_missing()}; until then, chunks are decoded more slowly")
    return found - {"loop", "files"}


def entry(module: str, name: str) -> Any:
    """Return a compiled function of int64 arguments, a key of ``gzarr_kernels.compiled.ENTRIES``.

    Where the installation has no compiled kernels for this machine, the first call in a process loads Numba, and the
    function from Numba's cache; the first call after the installation compiles it into that cache, and says so on
    stderr.

    Raises
    ------
    ArgumentError
        If there are neither kernels nor Numba.
    """
    found = _entries.get((module, name))
    if found is None:

        def find() -> None:
            global _release
            _refuse_missing()
            if _release is None:
                _release = compiled.release()
            _entries[module, name] = compiled.entry(module, name)

        _apart(find)
        found = _entries[module, name]
    return found


def _refuse_missing() -> None:
    """Refuse what only compiled code does, where there is none.

    Raises
    ------
    ArgumentError
        As above.
    """
    if not compiled.can_run():
        raise ArgumentError(f"this needs compiled code, but {_missing()}")


def _missing() -> str:
    """Return what is missing where kernels are, and what to do."""
    what = f"this installation has no compiled kernels for this machine, and {compiled.why_not()}"
    return what if importlib.util.find_spec("numba") is not None else f"{what}; {COMMANDS['jit']} installs it"


def load() -> Any:
    """Return the compiled loop that reads, ``work(job, context, scratch)``; see :func:`entry`."""
    return entry("read", "work")


def operation(name: str, kind: str) -> int:
    """Return the address of a compiled function of an operation, 0 if there is none.

    Parameters
    ----------
    name
        Key of ``gzarr_kernels.operations.OPERATIONS``; for ``"verifies"``, of ``ALGORITHMS`` there.
    kind
        ``"decode"``, ``"encode"``, ``"frames"`` or ``"verifies"``.
    """
    found = _operations.get((name, kind))
    if found is None:

        def find() -> None:
            _operations[name, kind] = compiled.address(name, kind)

        _apart(find)
        found = _operations[name, kind]
    return found


def _apart(load: Callable[[], None]) -> None:
    """Load something outside the main thread, where no interrupt (Ctrl-C) can occur.

    An interrupt would leave Numba's lock taken, and later reads in other threads would wait for it forever.
    """
    failures: list[BaseException] = []

    def run() -> None:
        try:
            with _lock.lock:
                ending.leave()
                load()
        except BaseException as error:
            failures.append(error)

    thread = NamedThread(run, "gzarr-kernels")
    if threading.current_thread() is not threading.main_thread():
        run()
    else:
        try:
            thread.start()
        except RuntimeError:
            # No thread can be started, or the interpreter is shutting down.
            run()
        else:
            thread.join()
    if failures:
        raise failures[0]


def announce_compilation(what: str) -> None:
    """Say on stderr that something is compiled, which takes a while: one line, once per process.

    Parameters
    ----------
    what
        What is compiled: ``"kernels"`` or ``"device kernels"``.
    """
    _say(f"gzarr: compiling its {what} for this machine, which takes a while …")


def _say(line: str) -> None:
    global _said
    # A windowed program has no stderr.
    if not _said and sys.stderr is not None:
        _said = True
        # It may be closed.
        with contextlib.suppress(ValueError):
            print(line, file=sys.stderr, flush=True)


compiled.notices.append(lambda: announce_compilation("kernels"))


class Worker:
    """Decoder contexts and scratch buffers of one worker; used by one thread at a time.

    Attributes
    ----------
    context
        int64, the slots of ``gzarr_kernels.slots.context``.
    scratch
        uint8 ``(gzarr_kernels.slots.scratch.WORKER_BYTES,)``, scratch memory.
    context_address, scratch_address
        Addresses of the two.
    """

    # Its end is a function of compiled code: in a method, what the handler of a signal raises would be lost.
    __slots__ = ("__del__", "context", "context_address", "scratch", "scratch_address")

    def __init__(self) -> None:
        # No interrupt comes between these two.
        self.__del__: Callable[[], Any] = _count_down
        _live.append(None)
        self.context: npt.NDArray[np.int64] = np.zeros(SIZE, np.int64)
        self.scratch: npt.NDArray[np.uint8] = np.empty(WORKER_BYTES, np.uint8)
        self.context_address: int = address(self.context)
        self.scratch_address: int = address(self.scratch)
        self.__del__ = partial(any, map(operator.call, (_count_down, partial(_lost.append, self.context))))


# Taking and giving back are atomic operations of a deque, so no lock can be held when a process forks.
_idle: deque[Worker] = deque()
# One entry for each worker.
_live: list[None] = []
_count_down = partial(_live.__delitem__, slice(-1, None))
# Contexts of workers that are gone, for the next worker to free their buffers.
_lost: deque[npt.NDArray[np.int64]] = deque()
# What the workers of each run share, by its identity.
_runs: dict[int, npt.NDArray[np.int64]] = {}


def take_worker() -> Worker:
    """Return an idle worker, or a new one. Call :func:`entry` first."""
    try:
        worker = _idle.pop()
    except IndexError:
        worker = Worker()
    # Only now: a worker that is taken before the process begins to end is waited for.
    try:
        ending.leave()
    except SystemExit:
        _idle.append(worker)
        raise
    worker.context[LOOKED_AT] = 0
    if _lost:
        _release_lost()
    return worker


def give_worker_back(worker: Worker, *, small: bool = False) -> None:
    """Keep a worker for the next read, without its large buffers (``small``: there are none)."""
    is_kept = len(_idle) < KEEP_WORKERS or ending.begun()
    if not small or not is_kept:
        _release(worker.context_address, KEEP_BYTES // pool.thread_count() if is_kept else -1)
    if is_kept:
        _idle.append(worker)


def call(module: str, name: str, *arguments: int) -> None:
    """Call a compiled function, which needs nothing of a worker, in this thread; see :func:`entry`."""
    function = entry(module, name)
    # No function runs without a worker: see above.
    worker = take_worker()
    try:
        function(*arguments)
    finally:
        give_worker_back(worker, small=True)


def release() -> None:
    """Free all idle workers and their buffers."""
    while _idle:
        try:
            worker = _idle.pop()
        except IndexError:
            return
        # Everything, including decoder contexts.
        _release(worker.context_address, -1)
    _release_lost()


def _release_lost() -> None:
    """Free the buffers of workers that are gone."""
    while _lost:
        try:
            context = _lost.popleft()
        except IndexError:
            return
        _release(address(context), -1)


def run(
    work: Any, job: int, shared: npt.NDArray[np.int64], turns: int, workers: int, monitor: Monitor | None = None
) -> None:
    """Run a compiled loop over a job in several threads.

    An interrupt (Ctrl-C) ends it soon: the caller's thread returns from the loop now and then so that Python can notice
    it, and the other threads stop after their current chunk.

    Parameters
    ----------
    work
        The loop, ``work(job, context, scratch)``.
    job
        Address of the job.
    shared
        int64 ``(2,)`` or more, shared by the workers: turns taken, and whether to stop.
    turns, workers
        Number of turns, and most threads.
    monitor
        Monitor of the read, or None.
    """

    def loop(i: int) -> None:
        worker = take_worker()
        before = worker.context[READ_NS : PLACE_NS + 1].tolist()
        try:
            worker.context[SLICE_NS] = 0 if i else _SLICE_NS
            work(job, worker.context_address, worker.scratch_address)
            while not i and shared[0] < turns and not shared[1]:
                if monitor is not None:
                    monitor.check()
                work(job, worker.context_address, worker.scratch_address)
        except BaseException:
            shared[1] = 1
            raise
        finally:
            worker.context[SLICE_NS] = 0
            if monitor is not None:
                read, decoded, placed = worker.context[READ_NS : PLACE_NS + 1] - before
                monitor.add("store", read / 1e9)
                monitor.add("decoder", (decoded + placed) / 1e9)
            give_worker_back(worker)

    _runs[id(shared)] = shared
    try:
        pool.run(loop, workers)
    finally:
        _runs.pop(id(shared), None)
    if shared[1]:
        # If it was stopped in the middle, its results are of no use.
        ending.leave()


def _end() -> None:
    """Let the running functions of other threads end, and let none begin."""
    ending.begin()
    # A compiler that runs is not stopped either: its threads would be ended in C++, which aborts.
    with _lock.lock:
        pass
    end = time.monotonic() + EXIT_S
    while len(_live) > len(_idle) and time.monotonic() < end:
        for shared in list(_runs.values()):
            shared[1] = 1
        time.sleep(0.001)


def _forget_others() -> None:
    # A child has none of its parent's threads, and so none of their workers.
    _live[:] = [None] * len(_idle)
    _runs.clear()


atexit.register(_end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_others)


def idle_workers() -> list[Worker]:
    """Return the idle workers."""
    # One step: other threads take some and give some back meanwhile.
    return list(_idle.copy())


def address(array: npt.NDArray[Any]) -> int:
    """Return the address of an array's first element."""
    result: int = array.__array_interface__["data"][0]
    return result
