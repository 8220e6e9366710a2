"""A loader of several variables in a remote store, where each request takes 20 ms.

    python benchmarks/loader_remote.py

An HTTP server on loopback, in a process of its own, waits 20 ms before each answer. 197 samples of 4 consecutive steps
of 4 variables are read in batches of 8, in each order: with the arrays of a read one after the other, as with one array
alone, and side by side, as by default. The bound is what as many plain GETs as there are chunks take, 64 at a time.
"""

from __future__ import annotations

import http.client
import http.server
import multiprocessing
import statistics
import tempfile
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import gzarr
from gzarr.loader import Loader, Windows, side_by_side

LATENCY_S, AT_A_TIME, STEPS, ROUNDS = 0.02, 64, 200, 5
NAMES = ("t2m", "u10", "v10", "msl")


class _Handler(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # An answer is two writes, and the kernel would wait before it sends the second.
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        time.sleep(LATENCY_S)
        super().do_GET()

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def _serve(root: str, port: Any) -> None:
    class Server(http.server.ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 256

    server = Server(("127.0.0.1", 0), partial(_Handler, directory=root))
    port.put(server.server_address[1])
    server.serve_forever()


def _bound(port: int, paths: list[str]) -> float:
    """Return the seconds that plain requests take."""
    own = threading.local()

    def get(path: str) -> None:
        if not hasattr(own, "connection"):
            own.connection = http.client.HTTPConnection("127.0.0.1", port)
        own.connection.request("GET", path)
        own.connection.getresponse().read()

    begin = time.perf_counter()
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        list(pool.map(get, paths))
    return time.perf_counter() - begin


def _epoch(url: str, shuffle: Any) -> float:
    arrays = {name: gzarr.open_array(f"{url}/{name}", device="cpu") for name in NAMES}
    loader = Loader(arrays, Windows(0, {"x": (0, 3)}), batch_size=8, shuffle=shuffle, drop_last=False)
    begin = time.perf_counter()
    count = sum(len(batch.samples) for batch in loader)
    assert count == STEPS - 3
    return time.perf_counter() - begin


def main() -> None:
    """Print the medians of some rounds, interleaved."""
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as root:
        data = np.random.default_rng(0).normal(280, 10, (STEPS, 90, 180)).astype("f4")
        for name in NAMES:
            gzarr.create_array(f"{root}/{name}", data=data, chunks=(1, 90, 180))
        paths = [f"/{path.relative_to(root)}" for path in Path(root).rglob("c/*/*/*")]
        context = multiprocessing.get_context("spawn")
        port = context.Queue()
        server = context.Process(target=_serve, args=(root, port), daemon=True)
        server.start()
        number = port.get()
        url = f"http://127.0.0.1:{number}"
        seconds: dict[Any, list[float]] = {}
        for _ in range(ROUNDS):
            seconds.setdefault("bound", []).append(_bound(number, paths))
            for shuffle in ("full", False, "blocks"):
                for together in (False, True):
                    with mock.patch.object(side_by_side, "are_remote", lambda _, together=together: together):
                        seconds.setdefault((shuffle, together), []).append(_epoch(url, shuffle))
        server.kill()
    medians = {key: statistics.median(found) for key, found in seconds.items()}
    print(f"{len(paths)} chunks, {1e3 * LATENCY_S:.0f} ms a request, medians of {ROUNDS}")
    print(f"plain requests, {AT_A_TIME} at a time: {medians['bound']:.2f} s")
    for shuffle in ("full", False, "blocks"):
        one, together = medians[shuffle, False], medians[shuffle, True]
        times = f"{one:.2f} s one after the other, {together:.2f} s side by side"
        print(f"shuffle={shuffle!r}: {times}; {medians['bound'] / together:.2f} of the bound's speed")


if __name__ == "__main__":
    main()
