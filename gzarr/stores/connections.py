"""How many requests a web server gets at once: few, until it has shown that it keeps connections open.

A system holds connections that a server has not accepted yet. Python's own servers let it hold 5; what exceeds them is
lost, and sent again after 1, 3, 7, … seconds, until the client gives up. ``python -m http.server`` closes each
connection after one answer, so that this would never end. Browsers open 6 connections to a server, so that all servers
stand as many.

A server that keeps connections gets one request more with each answer, until it has had none for a while; one that is
far away gets all at once: it is hardly small, and each round would take long. The same holds for encryption: this is
for ``http://`` only.
"""

from __future__ import annotations

import contextlib
import http.client
import math
import os
import threading
import time
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from . import curl_threads

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Requests to a server of which nothing is known, or which closes connections.
FIRST: Final = 6
#: Seconds without requests after which a server may have closed its connections.
_IDLE_S: Final = 2.0
#: Seconds within which a server nearby answers.
_NEAR_S: Final = 0.01
#: Requests more for each answer of a server that has closed a connection.
_AFTER_CLOSING: Final = 1 / 16
#: Seconds for the question whether a server keeps connections.
_TIMEOUT_S: Final = 5.0

_servers: dict[str, Connections] = {}


def to_server(url: str) -> Connections | None:
    """Return the connections of this process to the server of a URL; None if their number is not limited."""
    parts = urlsplit(url)
    if parts.scheme != "http":
        return None
    found = _servers.get(parts.netloc)
    return _servers.setdefault(parts.netloc, Connections(url)) if found is None else found


class Connections:
    """The requests to a server that are in progress.

    Parameters
    ----------
    url
        A URL of the server.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._changed = threading.Condition()
        self._in_progress = 0
        self._most: float = FIRST
        self._growth = 1.0
        self._ended = 0.0
        self._fastest_s = math.inf
        # None before the server has told.
        self._keeps: bool | None = None
        self._is_asking = False
        # Whether a thread of libcurl has got less room than it asked for.
        self._refused = False

    def take(self, most: int) -> int:
        """Make room for some requests, without waiting.

        Parameters
        ----------
        most
            Number of requests.

        Returns
        -------
        How many of them may begin. :meth:`ended` gives the room back.
        """
        with self._changed:
            self._begin()
            room = int(max(0, min(most, self._allowed() - self._in_progress)))
            self._refused = self._refused or room < most
            self._in_progress += room
        return room

    def ended(self, requests: int, keeps: bool | None = None, seconds: float = math.inf) -> None:
        """Give back the room of some requests.

        Parameters
        ----------
        requests
            Number of requests.
        keeps
            Whether the server has kept the connection open after its answer; None if that is not known.
        seconds
            Time that the answer took.
        """
        with self._changed:
            self._in_progress -= requests
            self._fastest_s = min(self._fastest_s, seconds)
            if keeps is not None:
                self._learn(keeps)
            if self._keeps:
                self._most += requests * self._growth
            self._ended = time.monotonic()
            refused, self._refused = self._refused, False
            self._changed.notify_all()
        if refused:
            curl_threads.wake()

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for room for a request, which runs within this context."""
        with self._changed:
            self._begin()
            while self._in_progress >= self._allowed():
                if self._keeps is None and not self._is_asking:
                    self._ask()
                else:
                    self._changed.wait()
            self._in_progress += 1
        begin = time.monotonic()
        try:
            yield
        finally:
            self.ended(1, seconds=time.monotonic() - begin)

    def _allowed(self) -> float:
        return math.inf if self._keeps and _NEAR_S < self._fastest_s < math.inf else self._most

    def _begin(self) -> None:
        if not self._in_progress and time.monotonic() - self._ended > _IDLE_S:
            self._most = FIRST
            # Another server may have taken the place of one that closes connections.
            self._keeps = self._keeps or None

    def _ask(self) -> None:
        """Ask the server whether it keeps connections. The lock is held, but while the server answers."""
        self._is_asking = True
        self._changed.release()
        try:
            keeps = _keeps_connections(self._url)
        finally:
            self._changed.acquire()
            self._is_asking = False
            self._changed.notify_all()
        self._learn(keeps)

    def _learn(self, keeps: bool) -> None:
        self._keeps = keeps
        if not keeps:
            # Many servers close one now and then, and some keep only a few.
            self._most, self._growth = max(FIRST, self._most / 2), _AFTER_CLOSING


def _keeps_connections(url: str) -> bool:
    """Return whether a server keeps connections open; True if it does not answer."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc.rpartition("@")[2], timeout=_TIMEOUT_S)
    try:
        # Of a folder, some servers would make a page first.
        connection.request("HEAD", f"{parts.path.rstrip('/')}/zarr.json")
        return not connection.getresponse().will_close
    except (OSError, ValueError, http.client.HTTPException):
        return True
    finally:
        connection.close()


if hasattr(os, "register_at_fork"):
    # A child has none of its parent's requests.
    os.register_at_fork(after_in_child=_servers.clear)
