"""Many GET requests in few threads, by libcurl (pycurl): a request takes less processor time than obstore's.

A thread keeps many requests in progress: libcurl sends them and receives answers, and this module waits for sockets.
Sources of requests are asked for the next ones, in turn, whenever there is room; each request's source gets its answer.
Nothing is sent again here, and an answer of any status is one.

Threads and connections are made at first use, and live as long as the process. A forked child makes its own.
"""

from __future__ import annotations

import _thread
import contextlib
import ctypes
import logging
import os
import select
import sys
import time
from collections import deque
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from .. import ending
from ..guarded import Lock
from .curl_transfers import Failed, Transfer
from .io_threads import io_thread_count
from .received import Received

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .curl_transfers import Get, Source

_log = logging.getLogger(__name__)

#: Most threads.
_MOST_THREADS: Final = 4
#: The first version of libcurl that bounds an answer whose length was not announced.
_LEAST_LIBCURL: Final = 0x080400
#: Seconds after which it is tried again to begin anew.
_PAUSE_S: Final = 0.1
_CURL_READS: Final = 1
_CURL_WRITES: Final = 2
_CURL_FAILED: Final = 4


@cache
def _pycurl() -> Any:
    """Return the module ``pycurl``; None if it is missing, too old, or not wanted (``GZARR_CURL=0``)."""
    if os.environ.get("GZARR_CURL") == "0" or not hasattr(select, "poll"):
        return None
    try:
        import pycurl
    except ImportError:
        return None
    _, _, version, _, _, _, _, _, protocols, *_ = pycurl.version_info()
    return pycurl if version >= _LEAST_LIBCURL and "https" in protocols else None


def available() -> bool:
    """Return whether there is a libcurl that can be used."""
    return _pycurl() is not None


def submit(source: Source) -> bool:
    """Send the requests of a source from now on; return whether that is possible."""
    if ending.is_alone():
        return False
    loops = _started()
    for loop in loops:
        loop.add(source)
    return bool(loops)


def wake() -> None:
    """Look for requests: a source that had none may have some now."""
    for loop in _loops:
        loop.wake()


def give_up() -> None:
    """End the requests of sources for whose answers nobody waits any more, and their connections."""
    for loop in _loops:
        loop.give_up()


class _Sockets:
    """A multi handle of libcurl, its sockets and its timer.

    Parameters
    ----------
    curl
        The module ``pycurl``.
    most
        Most connections that are kept.
    woken
        File descriptor that ends the wait for sockets when it can be read.
    """

    def __init__(self, curl: Any, most: int, woken: int) -> None:
        self._curl, self._woken = curl, woken
        self._due: float | None = None
        self._poll = select.poll()
        self._poll.register(woken, select.POLLIN)
        self.multi = curl.CurlMulti()
        self.multi.setopt(curl.M_MAXCONNECTS, most)
        self.multi.setopt(curl.M_SOCKETFUNCTION, self._socket)
        self.multi.setopt(curl.M_TIMERFUNCTION, self._timer)

    def wait(self) -> None:
        """Wait for sockets, and let libcurl do what there is to do."""
        wait_ms = None if self._due is None else max(0, (self._due - time.monotonic()) * 1000)
        for fd, events in self._poll.poll(wait_ms):
            if fd == self._woken:
                with contextlib.suppress(BlockingIOError):
                    os.read(fd, 4096)
                continue
            done = _CURL_READS if events & (select.POLLIN | select.POLLHUP) else 0
            done |= _CURL_WRITES if events & select.POLLOUT else 0
            done |= _CURL_FAILED if events & (select.POLLERR | select.POLLNVAL) else 0
            self.multi.socket_action(fd, done)
        if self._due is not None and time.monotonic() >= self._due:
            self._due = None
            self.multi.socket_action(self._curl.SOCKET_TIMEOUT, 0)

    def close(self, transfers: Iterable[Transfer]) -> None:
        """Give up some requests in progress, and all connections."""
        for transfer in transfers:
            with contextlib.suppress(Exception):
                self.multi.remove_handle(transfer.handle)
                transfer.handle.close()
        with contextlib.suppress(Exception):
            self.multi.close()

    # -- called by libcurl

    def _socket(self, what: int, fd: int, multi: Any, data: Any) -> None:
        if what == self._curl.POLL_REMOVE:
            with contextlib.suppress(KeyError):
                self._poll.unregister(fd)
            return
        events = select.POLLIN if what & _CURL_READS else 0
        events |= select.POLLOUT if what & _CURL_WRITES else 0
        self._poll.register(fd, events)

    def _timer(self, wait_ms: int) -> None:
        self._due = None if wait_ms < 0 else time.monotonic() + wait_ms / 1000


class _Loop:
    """One thread, its connections, and the sources of its requests.

    Parameters
    ----------
    curl
        The module ``pycurl``.
    most
        Most requests in progress.
    """

    def __init__(self, curl: Any, most: int) -> None:
        self._curl = curl
        self._most = most
        self._memory = Received()
        # Threads append to it and wake this one.
        self._sources: deque[Source] = deque()
        self._in_progress: set[Transfer] = set()
        # Whether to look for requests whose answers nobody waits for.
        self._gives_up = False
        self._woken, self._waking = os.pipe()
        try:
            os.set_blocking(self._woken, False)
            os.set_blocking(self._waking, False)
            self._sockets = _Sockets(curl, most, self._woken)
            self._free = [Transfer(curl, self._memory) for _ in range(most)]
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close what wakes the thread, which has not been started."""
        os.close(self._woken)
        os.close(self._waking)

    def add(self, source: Source) -> None:
        """Add a source."""
        self._sources.append(source)
        self.wake()

    def wake(self) -> None:
        """End the thread's wait."""
        # A full pipe wakes it as well.
        with contextlib.suppress(BlockingIOError):
            os.write(self._waking, b"\0")

    def give_up(self) -> None:
        """End the requests of sources that are given up."""
        self._gives_up = True
        self.wake()

    def run(self) -> None:
        """Serve the sources until the process ends."""
        while True:
            try:
                if self._gives_up or not self._free:
                    self._gives_up = False
                    self._end_unwanted()
                self._fill()
                self._sockets.wait()
                self._finish()
            # libcurl has no memory, for example. If this thread ended, all reads would wait for ever.
            except BaseException:
                self._begin_anew()

    def _begin_anew(self) -> None:
        """Give up all requests in progress, with their connections."""
        given_up = list(self._in_progress)
        self._in_progress.clear()
        self._sockets.close(given_up)
        for transfer in given_up:
            with contextlib.suppress(BaseException):
                if transfer.source is not None:
                    transfer.source.done(transfer.token, Failed("libcurl failed", 0.0))
        while True:
            try:
                self._sockets = _Sockets(self._curl, self._most, self._woken)
                self._free = [Transfer(self._curl, self._memory) for _ in range(self._most)]
            except BaseException:
                time.sleep(_PAUSE_S)
            else:
                return

    def _fill(self) -> None:
        """Take requests of all sources in turn, as far as there is room."""
        for _ in range(len(self._sources)):
            if not self._free:
                return
            source = self._sources.popleft()
            left = deque(source.take(len(self._free)))
            try:
                while left:
                    self._send(source, *left.popleft())
            finally:
                if not source.has_ended():
                    self._sources.append(source)
                for token, _ in left:
                    source.done(token, Failed("libcurl failed", 0.0))

    def _send(self, source: Source, token: Any, get: Get) -> None:
        transfer = self._free.pop()
        try:
            transfer.set(source, token, get)
            self._in_progress.add(transfer)
            self._sockets.multi.add_handle(transfer.handle)
        except BaseException:
            self._in_progress.discard(transfer)
            source.done(token, Failed("libcurl refuses the request", 0.0))
            self._free.append(Transfer(self._curl, self._memory))

    def _finish(self) -> None:
        """Hand over the answers that are complete."""
        more = 1
        while more:
            more, right, wrong = self._sockets.multi.info_read()
            for handle in right:
                self._answer(handle.transfer, "")
            for handle, code, reason in wrong:
                self._answer(handle.transfer, reason or "the connection failed", code)

    def _end_unwanted(self) -> None:
        sources = {transfer.source for transfer in self._in_progress}
        given_up = {source for source in sources if source is not None and source.is_given_up()}
        for transfer in list(self._in_progress) if given_up else ():
            if transfer.source in given_up:
                self._answer(transfer, "nobody waits for the answer")

    def _answer(self, transfer: Transfer, wrong: str, code: int = 0) -> None:
        self._sockets.multi.remove_handle(transfer.handle)
        source, token, response = transfer.take(wrong, code)
        self._in_progress.discard(transfer)
        # Before the handle may be used again, as the header is its own.
        source.done(token, response)
        self._free.append(transfer)


_loops: list[_Loop] = []
_lock = Lock()
_forked = False


def _started() -> list[_Loop]:
    """Return the loops, started at the first call; none if that is impossible."""
    curl = _pycurl()
    if _loops or curl is None:
        return _loops
    with _lock:
        if not _loops:
            threads = max(1, min(_MOST_THREADS, (os.cpu_count() or 1) // 2))
            most = -(-io_thread_count() // threads)
            try:
                for _ in range(threads):
                    loop = _Loop(curl, most)
                    try:
                        _thread.start_new_thread(loop.run, ())
                    except RuntimeError:
                        loop.close()
                        raise
                    _loops.append(loop)
            # No thread, no file descriptors, no memory, or a libcurl that lacks an option: what there is has to do.
            except Exception:
                _log.info("libcurl is used by %d threads", len(_loops), exc_info=True)
    return _loops


def has_forked() -> bool:
    """Return whether a parent of this process had begun to use libcurl.

    Its threads may have held a lock of the library for encryption when the process was forked.
    """
    return _forked


def _forget() -> None:
    global _loops, _lock, _forked
    _forked = _forked or bool(_loops)
    # What a parent has made is never freed in a child: that would end the parent's connections.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_loops))
    _loops, _lock = [], Lock()


if hasattr(os, "register_at_fork") and sys.platform != "win32":
    os.register_at_fork(after_in_child=_forget)
