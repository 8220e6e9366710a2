"""The readers that ``benchmarks/remote.py`` compares, each in a process of its own.

    python benchmarks/remote_rivals.py RIVAL PARALLEL

A line of JSON asks for a read: ``{"url": …, "access": …}``; the answer has its seconds, the processor seconds of the
process, and the BLAKE2b of the elements. Opening is timed too: each read opens its array, as a program that runs once
does. ``"check": false`` leaves out the digest.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import math
import os
import queue
import resource
import socket
import sys
import threading
import time
import urllib.request
from typing import Any

import numpy as np
from workloads import digest


def selections(access: dict[str, Any]) -> list[tuple[slice | int, ...]]:
    """Return the selections of an access: windows, a plane, one row, or everything."""
    if access["kind"] == "windows":
        return [tuple(slice(s, s + n) for s, n in zip(row, access["shape"], strict=True)) for row in access["starts"]]
    if access["kind"] == "plane":
        return [(slice(None), slice(None), access["at"])]
    return [(0,)] if access["kind"] == "first" else [(...,)]


class ZarrPython:
    """zarr-python over obstore, with as many requests at once as the others."""

    distributions = ("zarr", "obstore")
    pipeline = "zarr.core.codec_pipeline.BatchedCodecPipeline"

    def __init__(self, parallel: int | None) -> None:
        import zarr

        zarr.config.set({"threading.max_workers": os.cpu_count(), "codec_pipeline.path": self.pipeline})
        if parallel is not None:
            zarr.config.set({"async.concurrency": parallel})
        self.clients: dict[str, Any] = {}

    def store(self, url: str) -> Any:
        from obstore.store import HTTPStore
        from zarr.storage import ObjectStore

        # One client for each server: connections are kept.
        if url not in self.clients:
            self.clients[url] = HTTPStore(url, client_options={"allow_http": True})
        return ObjectStore(self.clients[url], read_only=True)

    def read(self, url: str, wanted: list[Any]) -> Any:
        import zarr
        from zarr.core.sync import sync

        array = zarr.open_array(self.store(url), mode="r", zarr_format=3)
        if len(wanted) == 1:
            return array[wanted[0]]

        async def gather() -> list[Any]:
            return await asyncio.gather(*(array.async_array.getitem(s) for s in wanted))

        return sync(gather())

    def open_group(self, url: str, names: list[str]) -> int:
        import zarr

        group = zarr.open_consolidated(self.store(url), mode="r", zarr_format=3)
        return sum(math.prod(group[name].shape) for name in names)


class ZarrPythonFsspec(ZarrPython):
    """zarr-python over fsspec and aiohttp."""

    distributions = ("fsspec", "aiohttp")

    def store(self, url: str) -> Any:
        from zarr.storage import FsspecStore

        if url not in self.clients:
            self.clients[url] = FsspecStore.from_url(url, read_only=True)
        return self.clients[url]


class Zarrs(ZarrPython):
    """zarr-python with the Rust codec pipeline of zarrs, over obstore."""

    distributions = ("zarrs",)
    pipeline = "zarrs.ZarrsCodecPipeline"

    def __init__(self, parallel: int | None) -> None:
        importlib.import_module("zarrs")
        super().__init__(parallel)


class ZarrsFsspec(ZarrPythonFsspec):
    """zarr-python with the Rust codec pipeline of zarrs, which replaces fsspec by its own client."""

    distributions = ("zarrs",)
    pipeline = "zarrs.ZarrsCodecPipeline"


class TensorStore:
    """tensorstore with its own HTTP driver; windows are started together, arrays of a group opened together."""

    distributions = ("tensorstore",)

    def __init__(self, parallel: int | None) -> None:
        import tensorstore as ts

        self.ts = ts
        context: dict[str, Any] = {
            "data_copy_concurrency": {"limit": os.cpu_count()},
            "cache_pool": {"total_bytes_limit": 0},
        }
        if parallel is not None:
            context["http_request_concurrency"] = {"limit": parallel}
        self.context = ts.Context(context)

    def open(self, url: str) -> Any:
        spec = {
            "driver": "zarr3",
            "kvstore": {"driver": "http", "base_url": url},
            "recheck_cached_metadata": False,
            "recheck_cached_data": False,
        }
        return self.ts.open(spec, read=True, context=self.context)

    def read(self, url: str, wanted: list[Any]) -> Any:
        array = self.open(f"{url}/").result()
        futures = [array[s].read() for s in wanted]
        found = [future.result() for future in futures]
        return found if len(found) > 1 else found[0]

    def open_group(self, url: str, names: list[str]) -> int:
        futures = [self.open(f"{url}/{name}/") for name in names]
        return sum(math.prod(future.result().shape) for future in futures)


class Gzarr:
    """gzarr with libcurl, in new memory for each result, like the peers."""

    distributions = ("gzarr", "obstore", "pycurl")
    curl = "1"

    def __init__(self, parallel: int | None) -> None:
        os.environ["GZARR_RECYCLE_BYTES"] = "0"
        os.environ["GZARR_CURL"] = self.curl
        if parallel is not None:
            os.environ["GZARR_IO_THREADS"] = str(parallel)
        import gzarr

        self.gzarr = gzarr

    def read(self, url: str, wanted: list[Any]) -> Any:
        array = self.gzarr.open_array(url)
        return array.read(wanted[0]) if len(wanted) == 1 else array.read_many(wanted)

    def open_group(self, url: str, names: list[str]) -> int:
        group = self.gzarr.open_group(url)
        return sum(math.prod(group[name].shape) for name in names)


class GzarrObstore(Gzarr):
    """gzarr without pycurl: all requests by obstore."""

    distributions = ("gzarr", "obstore")
    curl = "0"


class Limit:
    """What as many requests can do at all: the bytes of the chunks over plain sockets, neither decoded nor kept.

    Parameters of a read are the paths below the URL with their ranges, in ``access["ranges"]``.
    """

    distributions: tuple[str, ...] = ()

    def __init__(self, parallel: int | None) -> None:
        self.parallel = parallel or 64

    def fetch(self, url: str, ranges: list[tuple[str, int, int]]) -> int:
        urllib.request.urlopen(f"{url}/zarr.json").read()
        host, _, base = url.removeprefix("http://").partition("/")
        address, port = host.split(":")
        waiting: queue.SimpleQueue[tuple[str, int, int]] = queue.SimpleQueue()
        for part in ranges:
            waiting.put(part)
        received: list[int] = []

        def work() -> None:
            buffer = bytearray(1 << 20)
            nbytes = 0
            with socket.create_connection((address, int(port))) as connection:
                while True:
                    try:
                        path, start, stop = waiting.get_nowait()
                    except queue.Empty:
                        break
                    request = f"GET /{base}/{path} HTTP/1.1\r\nHost: {host}\r\nRange: bytes={start}-{stop - 1}\r\n\r\n"
                    connection.sendall(request.encode())
                    got, head = 0, -1
                    while head < 0:
                        got += connection.recv_into(memoryview(buffer)[got:])
                        head = buffer.find(b"\r\n\r\n", 0, got)
                    left = stop - start - (got - (head + 4))
                    while left:
                        left -= connection.recv_into(buffer, min(left, len(buffer)))
                    nbytes += stop - start
            received.append(nbytes)

        threads = [threading.Thread(target=work) for _ in range(min(self.parallel, len(ranges)))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(received)


RIVALS: dict[str, type[Any]] = {
    "gzarr": Gzarr,
    "gzarr+obstore": GzarrObstore,
    "tensorstore": TensorStore,
    "zarr+obstore": ZarrPython,
    "zarr+fsspec": ZarrPythonFsspec,
    "zarrs+obstore": Zarrs,
    "zarrs+fsspec": ZarrsFsspec,
    "limit": Limit,
}
#: The project itself, and what is possible, are no peers.
PEERS = tuple(name for name in RIVALS if not name.startswith("gzarr") and name != "limit")


def _run(rival: Any, asked: dict[str, Any]) -> dict[str, Any]:
    access = asked["access"]
    wanted = selections(access)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    begin = time.perf_counter()
    if access["kind"] == "group":
        found: Any = rival.open_group(asked["url"], access["names"])
    elif "ranges" in access:
        found = rival.fetch(asked["url"], access["ranges"])
    else:
        found = rival.read(asked["url"], wanted)
    seconds = time.perf_counter() - begin
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu_s = after.ru_utime + after.ru_stime - usage.ru_utime - usage.ru_stime
    answer: dict[str, Any] = {"seconds": seconds, "cpu_s": cpu_s}
    if asked.get("check", True):
        result = np.stack([np.asarray(part) for part in found]) if isinstance(found, list) else np.asarray(found)
        answer |= {"digest": digest(result), "nbytes": result.nbytes}
    return answer


def main() -> None:
    """Serve one rival's reads until standard input is closed."""
    rival = RIVALS[sys.argv[1]](int(sys.argv[2]) or None)
    print("ready", flush=True)
    for line in sys.stdin:
        try:
            answer = _run(rival, json.loads(line))
        # Whatever a rival raises is its answer.
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0][:200]}"}
        print("answer " + json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
