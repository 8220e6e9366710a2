"""Processor time of a small GET request, by client: libcurl and obstore as gzarr uses them, and tensorstore's own.

    python benchmarks/request_clients.py
    python benchmarks/request_clients.py --requests 4096 --nbytes 65536 --rounds 9

Needs nginx, which serves files from the page cache on the loopback interface. Nothing is decoded. 64 requests may be in
progress. All answers are kept until the last one has come. Each client runs in a process of its own, in turn; medians
of the rounds are reported.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from servers.nginx import nginx

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PARALLEL = 64


def _gzarr(url: str, keys: list[str]) -> Callable[[], int]:
    from gzarr import open_store
    from gzarr.engines.access.answers import answers
    from gzarr.stores.base import Request

    store = open_store(url)
    requests = [Request(key) for key in keys]
    return lambda: sum(len(memoryview(answer.value)) for answer in answers(store, requests))  # type: ignore[arg-type]


def _tensorstore(url: str, keys: list[str]) -> Callable[[], int]:
    import tensorstore as ts

    context = ts.Context({"http_request_concurrency": {"limit": PARALLEL}})
    store = ts.KvStore.open({"driver": "http", "base_url": f"{url}/"}, context=context).result()

    def read() -> int:
        futures = [store.read(key) for key in keys]
        return sum(len(future.result().value) for future in futures)

    return read


#: Name → function that makes the reading function, and what ``GZARR_CURL`` is.
CLIENTS: dict[str, tuple[Callable[[str, list[str]], Callable[[], int]], str]] = {
    "gzarr, libcurl": (_gzarr, "1"),
    "gzarr, obstore": (_gzarr, "0"),
    "tensorstore": (_tensorstore, ""),
}


def _measure(name: str, url: str, count: int, rounds: int) -> None:
    """Print microseconds of processor time, and of elapsed time, for each request."""
    read = CLIENTS[name][0](url, [str(i) for i in range(count)])
    read()
    cpu, elapsed = [], []
    for _ in range(rounds):
        begin, used = time.perf_counter(), time.process_time()
        read()
        elapsed.append(time.perf_counter() - begin)
        cpu.append(time.process_time() - used)
    print(*(1e6 * statistics.median(times) / count for times in (cpu, elapsed)))


def main(argv: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=1024)
    parser.add_argument("--nbytes", type=int, default=37_000, help="bytes of each answer")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--client", nargs=2, metavar=("NAME", "URL"), help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.client:
        _measure(*arguments.client, arguments.requests, arguments.rounds)
        return
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        for i in range(arguments.requests):
            Path(folder, str(i)).write_bytes(os.urandom(arguments.nbytes))
        print(f"{arguments.requests} requests for {arguments.nbytes} bytes; for each of them, in microseconds:")
        with nginx(Path(folder)) as address:
            for name, (_, curl) in CLIENTS.items():
                command = [sys.executable, __file__, "--client", name, f"http://{address}"]
                command += ["--requests", str(arguments.requests), "--rounds", str(arguments.rounds)]
                environment = {**os.environ, "GZARR_CURL": curl, "GZARR_IO_THREADS": str(PARALLEL)}
                done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
                cpu, elapsed = map(float, done.stdout.split())
                print(f"{name:15} {cpu:6.0f} of processor time, {elapsed:6.0f} elapsed")


if __name__ == "__main__":
    main()
