"""An HTTP proxy before a real server, which counts requests and, on demand, answers badly."""

from __future__ import annotations

import contextlib
import http.client
import socket
import socketserver
import struct
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: Faults of answers. STATUS is followed by a number.
FAULTS: Final = (
    "status 500",
    "status 503",
    "status 429",
    "reset before",
    "reset after",
    "cut headers",
    "cut body",
    "short body",
    "long body",
    "slow bytes",
    "stall",
    "twice",
)
#: The same for tests of one fault each. A stall takes until the client's timeout, on any Python.
EACH_FAULT: Final = tuple(
    pytest.param(fault, marks=[pytest.mark.slow] if fault == "stall" else [], id=fault) for fault in FAULTS
)


@dataclass
class Seen:
    """One request, as the proxy saw it."""

    method: str
    path: str
    headers: dict[str, str]
    fault: str | None = None
    status: int = 0
    nbytes: int = 0
    begin: float = 0.0
    end: float = 0.0

    @property
    def range(self) -> str | None:
        return self.headers.get("range")


@dataclass
class FaultProxy:
    """A proxy before the server at ``upstream``, on a port of its own.

    Attributes
    ----------
    upstream
        Host and port of the server.
    fault_of
        Function of the number of a request and the request; returns its fault, or None for none.
    seen
        Requests, in the order of their arrival.
    stall_s
        Seconds that the fault "stall" lasts.
    latency_s
        Seconds that each request takes longer.
    counted_latency_s
        The same while requests are counted, so that those in sequence can be told from those side by side.
    """

    upstream: tuple[str, int]
    fault_of: Callable[[int, Seen], str | None] = lambda number, seen: None
    seen: list[Seen] = field(default_factory=list)
    stall_s: float = 3.0
    latency_s: float = 0.0
    counted_latency_s: float = 0.0

    def __post_init__(self) -> None:
        proxy = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                with contextlib.suppress(OSError, ValueError, http.client.HTTPException):
                    while proxy._serve(self):
                        pass

        class Server(socketserver.ThreadingTCPServer):
            allow_reuse_address = True
            daemon_threads = True
            request_queue_size = 256

            def handle_error(self, request: Any, client_address: Any) -> None:
                pass

        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._server = Server(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> FaultProxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @contextlib.contextmanager
    def counting(self) -> Iterator[list[Seen]]:
        """Collect the requests of a block."""
        before = len(self.seen)
        found: list[Seen] = []
        yield found
        found.extend(self.seen[before:])

    def _serve(self, handler: socketserver.StreamRequestHandler) -> bool:
        """Serve one request; return whether the connection goes on."""
        line = handler.rfile.readline(65536).decode("latin-1")
        if not line.strip():
            return False
        method, path, _ = line.split(" ", 2)
        headers: dict[str, str] = {}
        while (entry := handler.rfile.readline(65536).decode("latin-1").strip()) != "":
            name, _, value = entry.partition(":")
            headers[name.strip().lower()] = value.strip()
        body = handler.rfile.read(int(headers.get("content-length", 0)))
        if headers.get("transfer-encoding", "").lower() == "chunked":
            body = _dechunked(handler.rfile)
        seen = Seen(method, path, headers, begin=time.monotonic())
        with self._lock:
            number = len(self.seen)
            self.seen.append(seen)
        seen.fault = fault = self.fault_of(number, seen)
        if fault == "reset before":
            return _reset(handler.connection)
        if fault is not None and fault.startswith("status"):
            seen.status = int(fault.split()[1])
            text = b"<Error><Code>InternalError</Code></Error>" if seen.status >= 500 else b"<html>Refused</html>"
            handler.wfile.write(
                b"HTTP/1.1 %d Fault\r\nContent-Type: application/xml\r\nContent-Length: %d\r\n\r\n%s"
                % (seen.status, len(text), b"" if method == "HEAD" else text)
            )
            return True
        time.sleep(self.latency_s)
        status, phrase, found, answer = self._forward(method, path, headers, body)
        seen.status, seen.nbytes, seen.end = status, len(answer), time.monotonic()
        lines = [f"HTTP/1.1 {status} {phrase}"]
        lines += [f"{name}: {value}" for name, value in found if name.lower() not in _HOP]
        declared = next((value for name, value in found if name.lower() == "content-length"), None)
        length = int(declared) if method == "HEAD" and declared is not None else len(answer)
        if fault == "long body":
            # The header gives fewer bytes than follow.
            length = max(length - 7, 0)
        elif fault == "short body":
            # A consistent answer with fewer bytes than were asked for.
            answer = answer[: len(answer) // 2]
            length = len(answer)
        if status not in (204, 304):
            lines.append(f"Content-Length: {length}")
        head = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
        return self._answer(handler, fault, head, b"" if method == "HEAD" else answer)

    def _answer(self, handler: Any, fault: str | None, head: bytes, answer: bytes) -> bool:
        if fault == "reset after":
            return _reset(handler.connection)
        if fault == "stall":
            self._stopped.wait(self.stall_s)
            return False
        if fault == "cut headers":
            handler.wfile.write(head[: len(head) // 2])
            return False
        if fault == "cut body":
            handler.wfile.write(head + answer[: len(answer) // 2])
            return False
        if fault == "slow bytes":
            handler.wfile.write(head)
            step = max(len(answer) // 8, 1)
            for i in range(0, len(answer), step):
                handler.wfile.write(answer[i : i + step])
                handler.wfile.flush()
                time.sleep(0.02)
            return True
        handler.wfile.write((head + answer) * (2 if fault == "twice" else 1))
        return fault != "long body"

    def _forward(
        self, method: str, path: str, headers: dict[str, str], body: bytes
    ) -> tuple[int, str, list[tuple[str, str]], bytes]:
        connection = http.client.HTTPConnection(*self.upstream, timeout=30)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in headers.items():
                if name not in _HOP:
                    connection.putheader(name, value)
            if body or method in ("PUT", "POST"):
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body or None)
            response = connection.getresponse()
            return response.status, response.reason, response.getheaders(), response.read()
        finally:
            connection.close()


#: Headers of one connection, and the length, which is written anew.
_HOP: Final = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length", "te", "upgrade"})


def _dechunked(file: Any) -> bytes:
    body = b""
    while nbytes := int(file.readline().split(b";")[0], 16):
        body += file.read(nbytes)
        file.readline()
    file.readline()
    return body


def _reset(connection: socket.socket) -> bool:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
    return False
