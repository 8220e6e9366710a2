"""How many requests this process has in progress at a web server: few, until it has shown that it keeps connections.

A system holds connections that a server has not accepted yet. Python's own servers let it hold 5; what exceeds them is
lost, and sent again after 1, 3, 7, … seconds, until the client gives up. ``python -m http.server`` closes each
connection after one answer, so that this would never end. Browsers open 6 connections to a server, so that all servers
stand as many. (A caller that waits for one value, of a document for example, may have one place more.)

A server that keeps connections gets one request more with each answer, until it has had none for a while; one that is
far away gets all at once: it is hardly small, and each round would take long. The same holds for encryption: this is
for ``http://`` only.
"""

from __future__ import annotations

import math
import os
import threading
import time
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from . import curl_threads

if TYPE_CHECKING:
    from collections.abc import Callable

#: Requests to a server of which nothing is known, or which closes connections.
FIRST: Final = 6
#: Requests more for each answer of a server that has closed a connection.
_AFTER_CLOSING: Final = 1 / 16
#: Seconds without answers after which a server may have closed its connections, and may be another one.
_REST_S: Final = 2.0
_FORGET_S: Final = 60.0
#: Seconds within which a server nearby answers.
_NEAR_S: Final = 0.01
#: Longest wait, in seconds, before a thread looks whether its request is still wanted.
_LOOK_S: Final = 0.5
#: Seconds for the question whether a server keeps connections, and between two such questions: a server that was
#: busy has not answered, and another one may have taken its place.
_TIMEOUT_S: Final = 5.0
_ASK_AGAIN_S: Final = 10.0
#: Variables that send requests by way of a proxy, which is a server of another kind.
_PROXIES: Final = ("http_proxy", "https_proxy", "all_proxy")


_servers: dict[str, Connections] = {}


def uses_proxy() -> bool:
    """Return whether the environment names a proxy."""
    return any(os.environ.get(name) or os.environ.get(name.upper()) for name in _PROXIES)


def to_server(url: str) -> Connections | None:
    """Return the connections of this process to the server of a URL; None if their number is not limited."""
    parts = urlsplit(url)
    if parts.scheme != "http" or _is_behind_proxy(parts.hostname or ""):
        return None
    found = _servers.get(parts.netloc)
    return _servers.setdefault(parts.netloc, Connections(url)) if found is None else found


def _is_behind_proxy(host: str) -> bool:
    if not uses_proxy():
        return False
    # Imported only where there is a proxy: it takes longer than this module.
    from urllib.request import proxy_bypass

    return not proxy_bypass(host)


class Connections:
    """The requests to a server that are in progress, of any thread.

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
        # None before the server has told.
        self._keeps: bool | None = None
        self._is_asking = False
        self._ask_at = -math.inf
        # Time of the last answer, and about the shortest time of the last ones.
        self._answered = 0.0
        self._fastest_s = math.inf
        # What tells for each thread with a request whether nobody waits for the answer any more.
        self._asked: dict[int, Callable[[], bool]] = {}
        # Whether a thread of libcurl has got less room than it has requests for.
        self._refused = False

    # -- threads of libcurl, which do not wait

    def take(self, most: int) -> int:
        """Make room for some requests; return for how many. :meth:`ended` and :meth:`give_back` end that."""
        with self._changed:
            self._rest()
            if self._in_progress >= self._allowed():
                self._leave_unwanted()
            room = int(max(0, min(most, self._allowed() - self._in_progress)))
            self._in_progress += room
        return room

    def give_back(self, requests: int) -> None:
        """Give back room for some requests, and wake those who wait for it."""
        with self._changed:
            self._in_progress -= requests
            refused, self._refused = self._refused, False
            self._changed.notify_all()
        if refused:
            curl_threads.wake()

    def want_more(self) -> None:
        """Wake the threads of libcurl once there is room again."""
        with self._changed:
            self._refused = self._in_progress > 0
            refused = self._refused
        if not refused:
            curl_threads.wake()

    def ended(self, seconds: float | None, keeps: bool | None = None) -> None:
        """Give back the room of a request.

        Parameters
        ----------
        seconds
            Time that the answer took; None if there was none.
        keeps
            Whether the server has kept the connection open after its answer; None if that is not known.
        """
        with self._changed:
            if seconds is not None:
                self._learn(seconds, keeps)
            self.give_back(1)

    # -- other threads

    def wait(self, given_up: Callable[[], bool], unwanted: Callable[[], bool] = bool, is_call: bool = False) -> bool:
        """Wait for room for a request; :meth:`leave`, in the same thread, ends that.

        Parameters
        ----------
        given_up
            Function that returns whether the request need not be sent.
        unwanted
            Function that returns whether nobody waits for the answer any more: a request that goes on nevertheless, as
            nothing can end it, leaves its room to others.
        is_call
            Whether its caller does nothing else meanwhile. Such requests are few and small, for documents above all; a
            place more is theirs, so that they need not wait until chunks are there that somebody reads ahead.

        Returns
        -------
        bool
            False if it need not be sent.
        """
        with self._changed:
            self._rest()
            while self._in_progress >= self._allowed() + is_call:
                if given_up():
                    return False
                if self._leave_unwanted():
                    continue
                if self._may_ask():
                    self._ask()
                else:
                    self._changed.wait(_LOOK_S)
                # Also where there is room now: others want it.
                if given_up():
                    return False
            self._in_progress += 1
            self._asked[threading.get_ident()] = unwanted
        return True

    def leave(self, seconds: float | None) -> None:
        """Give back the room that :meth:`wait` has found, as :meth:`ended`."""
        with self._changed:
            if self._asked.pop(threading.get_ident(), None) is None:
                # It was left to others before.
                self._in_progress += 1
            self.ended(seconds)

    def are_taken(self) -> bool:
        """Return whether there is no room.

        Without the lock, for callers that may be interrupted, or are alone when the interpreter shuts down.
        """
        return self._in_progress >= self._allowed()

    # -- with the lock

    def _allowed(self) -> float:
        return math.inf if self._keeps and _NEAR_S < self._fastest_s < math.inf else self._most

    def _leave_unwanted(self) -> bool:
        """Do not count requests whose answers nobody waits for; return whether there were some.

        They are as many as there are I/O threads at most.
        """
        unwanted = [thread for thread, is_unwanted in self._asked.items() if is_unwanted()]
        for thread in unwanted:
            del self._asked[thread]
        if unwanted:
            self.give_back(len(unwanted))
        return bool(unwanted)

    def _rest(self) -> None:
        rested = time.monotonic() - self._answered
        if not self._in_progress and rested > _REST_S:
            self._most = FIRST
            if rested > _FORGET_S:
                self._keeps = None

    def _learn(self, seconds: float, keeps: bool | None) -> None:
        self._answered = time.monotonic()
        # One answer that was very fast, or taken from a cache, does not count for ever.
        self._fastest_s = min(seconds, 1.1 * self._fastest_s)
        if keeps is not None:
            self._keeps = keeps
        if keeps is False:
            # Many servers close one now and then, and some keep only a few.
            self._most, self._growth = max(FIRST, self._most / 2), _AFTER_CLOSING
        elif self._keeps:
            self._most += self._growth

    def _may_ask(self) -> bool:
        return not self._keeps and not self._is_asking and time.monotonic() >= self._ask_at

    def _ask(self) -> None:
        """Ask the server whether it keeps connections; others get the lock meanwhile."""
        self._is_asking = True
        self._changed.release()
        try:
            keeps = _keeps_connections(self._url)
        finally:
            self._changed.acquire()
            self._is_asking = False
            self._ask_at = time.monotonic() + _ASK_AGAIN_S
            self._changed.notify_all()
        self._keeps = keeps


def _keeps_connections(url: str) -> bool | None:
    """Return whether a server keeps connections open; None if it does not answer."""
    import http.client

    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc.rpartition("@")[2], timeout=_TIMEOUT_S)
    try:
        # Of a folder, some servers would make a page first.
        connection.request("HEAD", f"{parts.path.rstrip('/')}/zarr.json")
        return not connection.getresponse().will_close
    except (OSError, ValueError, http.client.HTTPException):
        return None
    finally:
        connection.close()


if hasattr(os, "register_at_fork"):
    # A child has none of its parent's requests.
    os.register_at_fork(after_in_child=_servers.clear)
