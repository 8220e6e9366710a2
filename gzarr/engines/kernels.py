"""The compiled kernels, loaded when first needed, and the scratch buffers that workers keep between reads."""

from __future__ import annotations

import contextlib
import importlib
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

#: Most bytes, roughly, of the scratch buffers of all idle workers together; larger ones are freed after a read.
KEEP_BYTES = 64 << 20
#: Most idle workers kept.
KEEP_WORKERS = 64
#: How chunk files are opened. Without O_NONBLOCK, opening a named pipe in a store would block forever.
OPEN_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
#: Loading that takes longer than this is announced on stderr.
_PATIENCE_SECONDS = 1.0
# How long the caller's thread stays in a loop at a time. Returning may mean waiting for the GIL, so this is much longer
# than Python's switch interval.
_SLICE_NS = 100_000_000

# A fork waits for a load in progress; the child would otherwise inherit half of it.
_lock = ForkSafeLock()
_work: Any = None
_others: dict[str, Any] = {}
_release: Any = None
_imported_with_loop: list[str] = []
_operations: dict[tuple[str, str], int] = {}
_said = False


def available() -> frozenset[str]:
    """Return the parts of the native loop that work here, without loading any (``gzarr_kernels.libraries``)."""
    from gzarr_kernels import libraries

    return libraries.available()


def load() -> Any:
    """Return the compiled loop ``work(job, context, scratch)``.

    The first call in a process loads Numba, and the kernels from Numba's cache. The first call after an installation
    compiles them into that cache, and says so on stderr.
    """
    if _work is not None:
        return _work

    def import_loop() -> None:
        global _work, _release
        from gzarr_kernels import context, read

        for name in _imported_with_loop:
            importlib.import_module(name)
        _release = context.release
        _work = read.work

    _apart(import_loop)
    return _work


def operation(name: str, function: str) -> int:
    """Return the address of a compiled function of an operation, 0 if there is none.

    Parameters
    ----------
    name
        Key of ``gzarr_kernels.operations.OPERATIONS``; for ``"verifies"``, of ``ALGORITHMS`` there.
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


def import_with_loop(module: str) -> None:
    """Import a module that needs the compiled loop together with it, so that no fork occurs during the import."""
    _imported_with_loop.append(module)


def load_writer() -> Any:
    """Return ``gzarr_kernels.write``, with the loop that writes; everything that :func:`load` loads is loaded too."""
    return _other("write")


def load_index_reader() -> Any:
    """Return ``gzarr_kernels.index``, with the loop that reads shard indexes; :func:`load` is called, too."""
    return _other("index")


def _other(name: str) -> Any:
    """Return a module of ``gzarr_kernels`` that not every read needs."""
    if name not in _others:
        load()

        def import_other() -> None:
            _others[name] = importlib.import_module(f"gzarr_kernels.{name}")

        _apart(import_other)
    return _others[name]


def _apart(load: Callable[[], None]) -> None:
    """Load something outside the main thread, where no interrupt (Ctrl-C) can occur.

    An interrupt would leave Numba's lock taken, and later reads in other threads would wait for it forever.
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
            # No thread can be started, or the interpreter is shutting down.
            run()
        else:
            thread.join()
    if failures:
        raise failures[0]


@contextlib.contextmanager
def compiling(what: str) -> Iterator[None]:
    """Print a notice on stderr if the block takes more than a second: one line, once per process.

    Parameters
    ----------
    what
        What is loaded or compiled, for the notice: ``"kernels"``.
    """
    notice = threading.Timer(_PATIENCE_SECONDS, _say_so, (what,))
    notice.daemon = True
    # If no thread can be started, there is no notice.
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
        text = f"gzarr: loading its {what}; the first time after an installation, they are compiled for this machine …"
        print(text, file=sys.stderr, flush=True)


class Worker:
    """Decoder contexts and scratch buffers of one worker; used by one thread at a time.

    Attributes
    ----------
    context
        int64, the slots of ``gzarr_kernels.context``.
    scratch
        uint8 ``(gzarr_kernels.read.WORKER_BYTES,)``, scratch memory.
    context_address, scratch_address
        Addresses of the two.
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


# Taking and giving back are atomic operations of a deque, so no lock can be held when a process forks.
_idle: deque[Worker] = deque()


def take_worker() -> Worker:
    """Return an idle worker, or a new one. Call :func:`load` first."""
    try:
        return _idle.pop()
    except IndexError:
        return Worker()


def give_worker_back(worker: Worker, *, small: bool = False) -> None:
    """Keep a worker for the next read, without its large buffers (``small``: there are none)."""
    if not small:
        _release(worker.context_address, KEEP_BYTES // pool.thread_count())
    if len(_idle) < KEEP_WORKERS:
        _idle.append(worker)


def release() -> None:
    """Free all idle workers and their buffers."""
    while _idle:
        try:
            worker = _idle.pop()
        except IndexError:
            return
        # Everything, including decoder contexts.
        _release(worker.context_address, -1)


def run(work: Any, job: int, shared: npt.NDArray[np.int64], turns: int, workers: int) -> None:
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
    """Return the idle workers."""
    return list(_idle)


def address(array: npt.NDArray[Any]) -> int:
    """Return the address of an array's first element."""
    result: int = array.__array_interface__["data"][0]
    return result
