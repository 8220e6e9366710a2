"""A proxy that makes a server slow: it delays requests, bounds the bandwidth of answers, and counts both.

    python benchmarks/servers proxy HOST:PORT --latency 30 --bandwidth 1e9

It prints its own port, then serves until its standard input is closed. Each line that it is sent makes it print the
requests and the bytes of answers (headers included) since the last line.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import subprocess
import sys
from collections import deque
from typing import Any

import programs

_REQUEST = re.compile(rb"^[A-Z]+ \S+ HTTP/1\.1\r\n", re.MULTILINE)


class Wire:
    """What all connections share.

    Parameters
    ----------
    latency
        Delay of each request, in seconds.
    bandwidth
        Bytes per second of all answers together; infinite for no bound.
    """

    def __init__(self, latency: float, bandwidth: float) -> None:
        self.latency = latency
        self.bandwidth = bandwidth
        self.requests = self.nbytes = 0
        self._free_at = 0.0

    def departure(self, nbytes: int) -> float:
        """Return when the last of some bytes has passed, as the event loop's time."""
        now = asyncio.get_running_loop().time()
        self._free_at = max(self._free_at, now) + nbytes / self.bandwidth
        return self._free_at


class Downstream(asyncio.Protocol):
    """A connection of a client."""

    def __init__(self, wire: Wire, host: str, port: int) -> None:
        self.wire, self.host, self.port = wire, host, port
        self.server: asyncio.Transport | None = None
        self.waiting: list[bytes] = []
        # What is under way to the server and to the client: timers may fire in another order than they were set in.
        self.up: deque[bytes] = deque()
        self.down: deque[bytes] = deque()

    def connection_made(self, transport: Any) -> None:
        self.client = transport
        self.loop = asyncio.get_running_loop()
        self.connecting = self.loop.create_task(self._connect())

    async def _connect(self) -> None:
        try:
            self.server, _ = await self.loop.create_connection(lambda: Upstream(self), self.host, self.port)
        except OSError:
            self.client.abort()
            return
        for data in self.waiting:
            self.server.write(data)

    def data_received(self, data: bytes) -> None:
        self.wire.requests += len(_REQUEST.findall(data))
        if self.wire.latency:
            self.up.append(data)
            self.loop.call_later(self.wire.latency, lambda: self._forward(self.up.popleft()))
        else:
            self._forward(data)

    def answer(self, data: bytes) -> None:
        """Send bytes of an answer when they have passed the wire."""
        if self.wire.bandwidth == float("inf"):
            self.client.write(data)
        else:
            self.down.append(data)
            self.loop.call_at(self.wire.departure(len(data)), lambda: self.client.write(self.down.popleft()))

    def _forward(self, data: bytes) -> None:
        if self.server is None:
            self.waiting.append(data)
        else:
            self.server.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.server is not None:
            self.server.close()


class Upstream(asyncio.Protocol):
    """A connection to the server, one for each of a client."""

    def __init__(self, downstream: Downstream) -> None:
        self.downstream = downstream

    def data_received(self, data: bytes) -> None:
        wire = self.downstream.wire
        wire.nbytes += len(data)
        self.downstream.answer(data)

    def connection_lost(self, exc: Exception | None) -> None:
        loop, wire = self.downstream.loop, self.downstream.wire
        # After everything that is still under way.
        loop.call_at(wire.departure(0) if wire.bandwidth != float("inf") else loop.time(), self.downstream.client.close)


class Proxy:
    """The proxy, in a process of its own."""

    def __init__(self, address: str, latency_ms: float, bandwidth: float) -> None:
        command = [*programs.command("servers", "proxy"), address]
        command += ["--latency", str(latency_ms), "--bandwidth", str(bandwidth)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.address = f"127.0.0.1:{self._line().strip()}"

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def take_counts(self) -> dict[str, int]:
        """Return the requests and bytes since the last call."""
        assert self._process.stdin is not None
        print("", file=self._process.stdin, flush=True)
        counts: dict[str, int] = json.loads(self._line())
        return counts

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


async def _serve(host: str, port: int, wire: Wire) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Downstream(wire, host, port), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    while await loop.run_in_executor(None, sys.stdin.readline):
        print(json.dumps({"requests": wire.requests, "nbytes": wire.nbytes}), flush=True)
        wire.requests = wire.nbytes = 0
    server.close()


def main() -> None:
    """Run the proxy."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("server", metavar="HOST:PORT")
    parser.add_argument("--latency", type=float, default=0.0, help="delay of each request, in milliseconds")
    parser.add_argument("--bandwidth", type=float, default=float("inf"), help="bits per second (default: no bound)")
    arguments = parser.parse_args()
    host, _, port = arguments.server.rpartition(":")
    try:
        import uvloop as loops
    except ImportError:
        loops = asyncio  # type: ignore[assignment]
    loops.run(_serve(host, int(port), Wire(arguments.latency / 1e3, arguments.bandwidth / 8)))


if __name__ == "__main__":
    main()
