"""The compiled kernels, loaded when first needed, and the scratch that workers keep between reads."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np

from . import pool
from .forks import ForkSafeLock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy.typing as npt

#: Scratch buffers of all idle workers together hold about this much at most; larger ones are freed after a read.
KEEP_BYTES = 64 << 20
#: Idle workers kept, at most.
KEEP_WORKERS = 64
#: How chunk files are opened. Without O_NONBLOCK, opening a named pipe in a store would block forever.
OPEN_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
_PATIENCE_SECONDS = 1.0
# Far longer than Python lets a thread wait for another, which is what coming back may take.
_SLICE_NS = 100_000_000

# A fork waits for a load under way: the child would inherit half of it.
_lock = ForkSafeLock()
_work: Any = None
_writer: Any = None
_release: Any = None
_operations: dict[tuple[str, str], int] = {}
_said = False


def available() -> frozenset[str]:
    """Return what the native loop has here, without loading it; see ``gzarr_kernels.libraries.available``."""
    from gzarr_kernels import libraries

    return libraries.available()


def load() -> Any:
    """Return the compiled loop ``work(job, context, scratch)``.

    The first call of a process loads Numba and the kernels from Numba's cache; the first after an installation compiles
    them, and says so on stderr. All kernels are kept in that cache.
    """
    if _work is not None:
        return _work

    def import_loop() -> None:
        global _work, _release
        from gzarr_kernels import context, read

        _release = context.release
        _work = read.work

    _apart(import_loop)
    return _work


def operation(name: str, function: str) -> int:
    """Return the address of a compiled function of an operation, 0 if there is none.

    Parameters
    ----------
    name
        Of ``gzarr_kernels.operations.OPERATIONS``; for ``"verifies"``, of its ``ALGORITHMS``.
    function
        ``"decode"``, ``"encode"``, ``"frames"`` or ``"verifies"``.
    """
    found = _operations.get((name, function))
    if found is None:
        load()

        def compile_operation() -> None:
            from gzarr_kernels import compiled

            _operations[name, function] = compiled.address(name, function)

        _apart(compile_operation)
        found = _operations[name, function]
    return found


def load_writer() -> Any:
    """Return ``gzarr_kernels.write``: what :func:`load` loads, and the loop that writes."""
    if _writer is None:
        load()

        def import_writer() -> None:
            global _writer
            from gzarr_kernels import write

            _writer = write

        _apart(import_writer)
    return _writer


def _apart(load: Callable[[], None]) -> None:
    """Load something where no interrupt (Ctrl-C) comes: in another thread than the main one.

    An interrupt would leave Numba's lock taken, and all later reads of other threads waiting for it.
    """
    failures: list[BaseException] = []

    def run() -> None:
        try:
            with _lock.lock, compiling("kernels"):
                load()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run, name="gzarr-kernels", daemon=True)
    if threading.current_thread() is not threading.main_thread():
        run()
    else:
        try:
            thread.start()
        except RuntimeError:
            # No thread can be had, or the interpreter is ending.
            run()
        else:
            thread.join()
    if failures:
        raise failures[0]


@contextlib.contextmanager
def compiling(what: str) -> Iterator[None]:
    """Say on stderr what takes so long, if it takes over a second: in one line, once a process.

    Parameters
    ----------
    what
        That is loaded, or compiled where it is not found: ``"kernels"``.
    """
    notice = threading.Timer(_PATIENCE_SECONDS, _say_so, (what,))
    notice.daemon = True
    # Without a thread it takes as long, and nothing is said.
    with contextlib.suppress(RuntimeError):
        notice.start()
    try:
        yield
    finally:
        notice.cancel()


def _say_so(what: str) -> None:
    global _said
    # A windowed program has no stderr.
    if not _said and sys.stderr is not None:
        _said = True
        text = f"gzarr: loading its {what}; the first time after an installation they are compiled for this machine …"
        print(text, file=sys.stderr, flush=True)


class Worker:
    """Decoder contexts and scratch buffers of one worker; used by one thread at a time.

    Attributes
    ----------
    context
        int64, the slots of ``gzarr_kernels.context``.
    scratch
        uint8, ``gzarr_kernels.read.WORKER_BYTES``.
    context_address, scratch_address
        Where they are.
    """

    __slots__ = ("context", "context_address", "scratch", "scratch_address")

    def __init__(self) -> None:
        from gzarr_kernels import context, read

        self.context: npt.NDArray[np.int64] = np.zeros(context.SIZE, np.int64)
        self.scratch: npt.NDArray[np.uint8] = np.empty(read.WORKER_BYTES, np.uint8)
        self.context_address = address(self.context)
        self.scratch_address = address(self.scratch)

    def __del__(self) -> None:
        if _release is not None and not sys.is_finalizing():
            _release(self.context_address, -1)


# Taking and giving back are single steps of a deque, so that no lock can be held when a process forks.
_idle: deque[Worker] = deque()


def take_worker() -> Worker:
    """Return an idle worker, or a new one. Call :func:`load` before."""
    try:
        return _idle.pop()
    except IndexError:
        return Worker()


def give_worker_back(worker: Worker, *, small: bool = False) -> None:
    """Keep a worker for the next read, without its large buffers (``small``: the read had none)."""
    if not small:
        _release(worker.context_address, KEEP_BYTES // pool.thread_count())
    if len(_idle) < KEEP_WORKERS:
        _idle.append(worker)


def release() -> None:
    """Let go of all idle workers and their buffers."""
    while _idle:
        try:
            worker = _idle.pop()
        except IndexError:
            return
        # All of it: decoder contexts too.
        _release(worker.context_address, -1)


def run(work: Any, job: int, shared: npt.NDArray[np.int64], turns: int, workers: int) -> None:
    """Run a compiled loop over a job in some threads.

    It is over soon after an interrupt (Ctrl-C): the caller's thread comes back from the loop now and then, which is
    when Python notices, and the others stop after the chunk in hand.

    Parameters
    ----------
    work
        ``work(job, context, scratch)``.
    job
        Address of the job.
    shared
        int64 ``(2,)`` of the job: turns taken, and whether the rest is left.
    turns, workers
        How many turns there are, and in how many threads at most.
    """
    from gzarr_kernels.context import SLICE_NS

    def loop(i: int) -> None:
        worker = take_worker()
        try:
            worker.context[SLICE_NS] = 0 if i else _SLICE_NS
            work(job, worker.context_address, worker.scratch_address)
            while not i and shared[0] < turns and not shared[1]:
                work(job, worker.context_address, worker.scratch_address)
        except BaseException:
            shared[1] = 1
            raise
        finally:
            worker.context[SLICE_NS] = 0
            give_worker_back(worker)

    pool.run(loop, workers)


def idle_workers() -> list[Worker]:
    """Return the workers that no read is using."""
    return list(_idle)


def address(array: npt.NDArray[Any]) -> int:
    """Return the address of an array's first element."""
    result: int = array.__array_interface__["data"][0]
    return result
