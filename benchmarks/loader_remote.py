"""gzarr.Loader over an object store, beside zarr-beluga and beside what as many requests can do at all.

    python benchmarks/loader_remote.py                          20 ms a request, 197 windows of 4 steps of 4 variables
    python benchmarks/loader_remote.py --latency 50 --buffer 64e6
    python benchmarks/loader_remote.py --beluga PYTHON          with the Python of an environment that has zarr-beluga
    python benchmarks/loader_remote.py --source OTHER --source .  two checkouts of gzarr beside each other
    python benchmarks/loader_remote.py --shards 8               chunks of a quarter of a step, in shards of 8 steps

Windows overlap, and each step of each variable is a chunk. A server (``servers.files``), in S3's dialect, answers each
request after the latency, and counts those in progress. Each reader is a process of its own, rounds are interleaved,
and medians are reported, of an epoch from the first batch that is asked for to the last one. ``limit`` gets as many
values as gzarr did by 64 plain connections, and neither decodes nor keeps them. ``in progress`` is the mean from the
first request to the last answer. With shards, gzarr is measured alone: there, the others would read something else.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import queue
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import programs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Reader = Callable[[dict[str, Any]], dict[str, float]]

HERE = Path(__file__).parent
BUCKET, GROUP, NAMES = "bucket", "era5", ("t2m", "u10", "v10", "msl")
STEPS, FRAMES, SHAPE = 200, 4, (121, 240)
SAMPLES = STEPS - FRAMES + 1
PARALLEL = 64
ORDERS = ("blocks", "full", "False")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--latency", type=float, default=20.0, help="milliseconds a request (default 20)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--buffer", type=float, default=256 * 2**20, help="buffer_bytes")
    parser.add_argument("--order", action="append", choices=ORDERS, help="only this order (repeatable)")
    parser.add_argument("--source", action="append", metavar="FOLDER", help="a checkout of gzarr (repeatable)")
    parser.add_argument("--shards", type=int, default=0, metavar="STEPS", help="in shards of so many steps (Zarr 3)")
    parser.add_argument("--beluga", metavar="PYTHON", help="a Python that has zarr-beluga")
    return parser.parse_args()


def _write(folder: Path, shards: int) -> None:
    """Write the variables and their coordinates, without shards in Zarr version 2, which zarr-beluga reads as well."""
    import numpy as np

    import gzarr

    random = np.random.Generator(np.random.PCG64(1))
    group = gzarr.create_group(folder / BUCKET / GROUP, zarr_format=3 if shards else 2)
    rows = -(-SHAPE[0] // 4)
    layout: dict[str, Any] = {"chunks": (1, *SHAPE)}
    if shards:
        layout = {"chunks": (1, rows, SHAPE[1]), "shards": (shards, 4 * rows, SHAPE[1])}
    axes = ["time", "latitude", "longitude"]
    y, x = np.meshgrid(*(np.linspace(0, 6, n) for n in SHAPE), indexing="ij")
    steps = np.arange(STEPS)[:, None, None]
    for i, name in enumerate(NAMES):
        data = 280 + 10 * np.sin(y + steps / 9 + i) * np.cos(x - steps / 7) + random.normal(0, 0.1, (STEPS, *SHAPE))
        attributes = {"_ARRAY_DIMENSIONS": axes}
        group.create_array(name, data=data.astype("f4"), attributes=attributes, **layout)
    units = {"units": "hours since 2000-01-01", "calendar": "proleptic_gregorian"}
    coordinates = np.arange(STEPS), np.linspace(-90, 90, SHAPE[0]), np.linspace(0, 359, SHAPE[1])
    for axis, values in zip(axes, coordinates, strict=True):
        own = {"_ARRAY_DIMENSIONS": [axis]} | (units if axis == "time" else {})
        group.create_array(axis, data=values, chunks=values.shape, attributes=own)


class Process:
    """A program that answers each line by a line."""

    def __init__(self, command: list[str], **environment: str) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment}
        )

    def line(self) -> str:
        """Return the next line."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self._process.args} has ended")
        return line

    def ask(self, what: object = None) -> Any:
        """Return the answer to a line of JSON."""
        assert self._process.stdin is not None
        print(json.dumps(what), file=self._process.stdin, flush=True)
        return json.loads(self.line())

    def close(self) -> None:
        """End the program."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


# -- readers, each in a process of its own


def _timed(batches: Any, count: Callable[[Any], int]) -> dict[str, float]:
    """Take all batches."""
    began, cpu = time.perf_counter(), time.process_time()
    first = samples = 0.0
    for batch in batches:
        first = first or time.perf_counter() - began
        samples += count(batch)
        del batch
    assert samples == SAMPLES
    return {"seconds": time.perf_counter() - began, "first": first, "cpu_s": time.process_time() - cpu}


def _gzarr(port: int) -> Reader:
    import gzarr
    from gzarr.loader import Windows

    options = {
        "access_key_id": "a",
        "secret_access_key": "b",
        "region": "us-east-1",
        "endpoint": f"http://127.0.0.1:{port}",
    }
    arrays = {name: gzarr.open_array(f"s3://{BUCKET}/{GROUP}/{name}", storage_options=options) for name in NAMES}
    warnings.simplefilter("ignore")

    def run(asked: dict[str, Any]) -> dict[str, float]:
        loader = gzarr.Loader(
            arrays,
            Windows(0, {"x": (0, FRAMES - 1)}),
            batch_size=asked["batch"],
            shuffle={"False": False}.get(asked["order"], asked["order"]),
            buffer_bytes=int(asked["buffer"]),
            drop_last=False,
        )
        return _timed(loader, lambda batch: len(batch.samples))

    return run


def _beluga(port: int) -> Reader:
    import beluga
    import numpy as np

    options = {
        "aws_endpoint": f"http://127.0.0.1:{port}",
        "aws_access_key_id": "a",
        "aws_secret_access_key": "b",
        "aws_region": "us-east-1",
        "aws_allow_http": "true",
    }
    reader = beluga.open_zarr_group(f"s3://{BUCKET}", GROUP, variables=list(NAMES), store_options=options)

    def run(asked: dict[str, Any]) -> dict[str, float]:
        starts = np.arange(SAMPLES)
        if asked["order"] == "full":
            np.random.default_rng(0).shuffle(starts)
        elif asked["order"] == "blocks":
            # It has no such order. The nearest one: runs of windows, one after the other in any order.
            starts = np.concatenate(np.random.default_rng(0).permutation(np.arange(SAMPLES + 3).reshape(-1, 8)))
            starts = starts[starts < SAMPLES]
        return _timed(reader.stream(starts.tolist(), frames=FRAMES), lambda _: 1)

    return run


def _limit(port: int) -> Reader:
    buffers = threading.local()

    def work(waiting: queue.SimpleQueue[str]) -> None:
        buffers.own = buffer = bytearray(1 << 20)
        with socket.create_connection(("127.0.0.1", port)) as connection, contextlib.suppress(queue.Empty):
            while True:
                path = waiting.get_nowait()
                connection.sendall(f"GET /{path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
                got, head = 0, -1
                while head < 0:
                    got += connection.recv_into(memoryview(buffer)[got:])
                    head = buffer.find(b"\r\n\r\n", 0, got)
                length = int(bytes(buffer[:head]).split(b"Content-Length: ")[1].split(b"\r\n")[0])
                left = length - (got - head - 4)
                while left:
                    left -= connection.recv_into(buffer, min(left, len(buffer)))

    def run(asked: dict[str, Any]) -> dict[str, float]:
        waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
        for i in range(asked["count"]):
            waiting.put(f"{BUCKET}/{GROUP}/{NAMES[i % len(NAMES)]}/{i // len(NAMES) % STEPS}.0.0")
        threads = [threading.Thread(target=work, args=(waiting,)) for _ in range(PARALLEL)]
        began, cpu = time.perf_counter(), time.process_time()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return {"seconds": time.perf_counter() - began, "first": 0.0, "cpu_s": time.process_time() - cpu}

    return run


def _serve(name: str, port: int) -> None:
    run = {"gzarr": _gzarr, "beluga": _beluga, "limit": _limit}[name](port)
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line))), flush=True)


# -- measuring


@contextlib.contextmanager
def _readers(arguments: argparse.Namespace, port: int) -> Iterator[dict[str, Process]]:
    """Start all readers, by their names."""
    sources = arguments.source or [str(HERE.parent)]
    commands = {}
    for source in sources:
        folder = Path(source).resolve()
        path = {"PYTHONPATH": os.pathsep.join([str(folder), str(folder / "kernels")])}
        commands["gzarr" if len(sources) == 1 else f"gzarr {folder.name}"] = sys.executable, "gzarr", path
    if arguments.beluga and not arguments.shards:
        commands["zarr-beluga"] = arguments.beluga, "beluga", {"PYTHONPATH": ""}
    if not arguments.shards:
        commands["limit"] = sys.executable, "limit", {}
    with contextlib.ExitStack() as stack:
        readers = {}
        for name, (python, kind, environment) in commands.items():
            readers[name] = Process([python, __file__, "--serve", kind, str(port)], **environment)
            stack.callback(readers[name].close)
            readers[name].line()
        yield readers


def _measured(
    arguments: argparse.Namespace, order: str, readers: dict[str, Process], server: Process
) -> dict[str, dict[str, float]]:
    """Return the medians of one order."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in readers}
    asked = {"order": order, "batch": arguments.batch, "buffer": arguments.buffer, "count": 0}
    for turn in range(arguments.rounds + 1):
        for name, reader in readers.items():
            server.ask()
            answer = reader.ask(asked) | server.ask()
            if name.startswith("gzarr"):
                asked["count"] = answer["requests"]
            # The first round warms connections.
            if turn:
                found[name].append(answer)
    return {
        name: {key: statistics.median(r[key] for r in rounds) for key in rounds[0]} for name, rounds in found.items()
    }


def main() -> None:
    """Measure and print a table."""
    if sys.argv[1:2] == ["--serve"]:
        _serve(sys.argv[2], int(sys.argv[3]))
        return
    arguments = _arguments()
    print(
        f"{arguments.latency:g} ms a request, {SAMPLES} samples of {FRAMES} steps of {len(NAMES)} variables in batches "
        f"of {arguments.batch}, buffer_bytes={arguments.buffer:.0f}, medians of {arguments.rounds}"
        + (f", in shards of {arguments.shards} steps" if arguments.shards else "")
    )
    print("order   reader                  seconds   first   CPU s  requests  in progress  most  of limit", flush=True)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        _write(Path(folder), arguments.shards)
        command = [*programs.command("servers", "files"), folder, "--latency", str(arguments.latency)]
        server = Process(command)
        stack.callback(server.close)
        readers = stack.enter_context(_readers(arguments, int(server.line())))
        for order in arguments.order or ORDERS:
            columns = _measured(arguments, order, readers, server)
            for name, c in columns.items():
                part = f"{columns['limit']['seconds'] / c['seconds']:8.2f}" if "limit" in columns else ""
                print(
                    f"{order:8}{name:24}{c['seconds']:7.3f} {c['first']:7.3f} {c['cpu_s']:7.2f}  {c['requests']:8.0f}"
                    f"  {c['mean']:11.1f}  {c['most']:4.0f}  {part}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
