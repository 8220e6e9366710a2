"""A web server of the files of a folder that answers each request after a while, and counts those in progress.

    python benchmarks/servers files FOLDER --latency 20

It prints its port, then serves until its standard input is closed. Each line that it is sent makes it print what was
counted since the last line, as JSON: ``requests``, ``nbytes``, the ``most`` that were in progress at once, and their
``mean`` between the first request and the last answer. Signatures are not looked at, so it stands for S3 as well.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any


class Counts:
    """What all connections share.

    Parameters
    ----------
    folder
        The files, by their paths.
    latency
        Seconds from a request to its answer.
    """

    def __init__(self, folder: Path, latency: float) -> None:
        self.files = {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
        self.latency = latency
        self.now = 0
        self.clear()

    def clear(self) -> None:
        self.requests = self.nbytes = self.most = 0
        self.first = self.last = time.perf_counter()
        self.area = 0.0

    def add(self, change: int) -> None:
        """Count a request that begins (1) or ends (-1)."""
        at = time.perf_counter()
        if not self.requests:
            self.first = self.last = at
        self.area += self.now * (at - self.last)
        self.last = at
        self.now += change
        self.most = max(self.most, self.now)
        self.requests += change > 0

    def told(self) -> dict[str, Any]:
        """Return the counts."""
        elapsed = self.last - self.first
        mean = self.area / elapsed if elapsed else 0.0
        return {"requests": self.requests, "nbytes": self.nbytes, "most": self.most, "mean": mean}


class Connection(asyncio.Protocol):
    """A connection of a client, which sends one request after the other."""

    def __init__(self, counts: Counts) -> None:
        self.counts, self.received = counts, b""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.loop = asyncio.get_running_loop()

    def data_received(self, data: bytes) -> None:
        self.received += data
        while (end := self.received.find(b"\r\n\r\n")) >= 0:
            head, self.received = self.received[:end].decode(), self.received[end + 4 :]
            self.counts.add(1)
            self.loop.call_later(self.counts.latency, self.answer, head)

    def answer(self, head: str) -> None:
        """Answer a request."""
        method, path, _ = head.split(" ", 2)
        data = self.counts.files.get(path.partition("?")[0].strip("/"))
        status, headers = "200 OK", 'ETag: "1"\r\n'
        if data is None:
            status, headers, data = "404 Not Found", "", b"<Error><Code>NoSuchKey</Code></Error>"
        for line in head.split("\r\n")[1:]:
            name, _, value = line.partition(":")
            if name.lower() == "range" and status.startswith("200"):
                first, _, last = value.strip().removeprefix("bytes=").partition("-")
                begin = int(first) if first else max(len(data) - int(last), 0)
                end = min(int(last) + 1, len(data)) if first and last else len(data)
                headers += f"Content-Range: bytes {begin}-{end - 1}/{len(data)}\r\n"
                status, data = "206 Partial Content", data[begin:end]
        text = (
            f"HTTP/1.1 {status}\r\nContent-Length: {len(data)}\r\nLast-Modified: Wed, 01 Jan 2025 00:00:00 GMT\r\n"
            f"Content-Type: application/octet-stream\r\nAccept-Ranges: bytes\r\n{headers}\r\n"
        )
        self.counts.add(-1)
        self.counts.nbytes += len(data)
        self.transport.write(text.encode() + (data if method == "GET" else b""))


async def _serve(counts: Counts) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(counts), "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    while await loop.run_in_executor(None, sys.stdin.readline):
        print(json.dumps(counts.told()), flush=True)
        counts.clear()
    server.close()


def main() -> None:
    """Run the server."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--latency", type=float, default=0.0, help="milliseconds from a request to its answer")
    arguments = parser.parse_args()
    asyncio.run(_serve(Counts(arguments.folder, arguments.latency / 1e3)))


if __name__ == "__main__":
    main()
