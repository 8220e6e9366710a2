"""gzarr on a cluster of dask: 1, 2 and 4 worker processes of one thread, beside dask's own way with zarr-python.

    python benchmarks/dask_scaling.py                      everything: some five minutes
    python benchmarks/dask_scaling.py --workers 1 2 --mib 64 --rounds 1
    python benchmarks/dask_scaling.py --json scaling.json

Each worker has one thread for dask and one for gzarr (``GZARR_THREADS=1``), so that work is spread by workers only;
more workers than processors cannot be faster where the processor is the limit. ``http`` waits instead: a server that
delays each request by 30 ms, and 8 requests in progress for each worker. Every result is compared before anything is
timed, rounds are interleaved, the median is reported.

It also measures what a job of any size is made of: seconds for a task, for a block of a graph and for a listed key, and
requests for a block. ``docs/scaling.md`` reckons with them.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pickle
import platform
import shutil
import statistics
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dask
import dask.array as da
import fields
import numpy as np
from distributed import Client, LocalCluster
from report import header, save
from servers.nginx import nginx
from servers.proxy import Proxy

import gzarr

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_CHUNK = (16, 256, 256)
_BLOCK = (16, 1024, 1024)
_LATENCY_MS = 30.0
_ENVIRONMENT = {"GZARR_THREADS": "1", "GZARR_IO_THREADS": "8", "BLOSC_NTHREADS": "1", "OMP_NUM_THREADS": "1"}


@contextlib.contextmanager
def cluster(workers: int) -> Iterator[Client]:
    """Run a scheduler and some worker processes of one thread."""
    with (
        LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=":0", memory_limit=0) as made,
        Client(made) as client,
    ):
        client.run(warm_up)
        yield client


def warm_up() -> None:
    """Import and compile what a worker needs."""
    a = gzarr.create_array({}, data=np.arange(64, dtype="u2"), chunks=8, device="cpu")
    a[...] = a[...]


class Place:
    """An array on disk and behind a slow server, and places to write to."""

    def __init__(self, folder: Path, mib: int, address: str) -> None:
        self.folder = folder
        depth = max(mib * (1 << 20) // (2 * 1024 * 1024) // _CHUNK[0], 1) * _CHUNK[0]
        self.data = fields.camera_u2((depth, 1024, 1024), 0, depth)
        gzarr.create_array(folder / "a", data=self.data, chunks=_CHUNK, device="cpu", overwrite=True)
        # Small chunks, so that waiting takes most of the time.
        self.small = self.data[: max(depth // 4, 1)]
        gzarr.create_array(folder / "h", data=self.small, chunks=(1, 256, 128), device="cpu", overwrite=True)
        self.url = f"http://{address}/h"

    def new(self) -> Path:
        """Return a place for an array that was not used before."""
        shutil.rmtree(self.folder / "new", ignore_errors=True)
        return self.folder / "new"


def read_ours(place: Place, client: Client) -> int:
    return int(gzarr.to_dask(gzarr.open_array(place.folder / "a", device="cpu"), _BLOCK).sum().compute())


def read_theirs(place: Place, client: Client) -> int:
    return int(da.from_zarr(str(place.folder / "a"), chunks=_BLOCK).sum().compute())


def write_ours(place: Place, client: Client) -> Any:
    gzarr.from_dask(_made(place), place.new(), chunks=_CHUNK)


def write_theirs(place: Place, client: Client) -> Any:
    import zarr

    target = zarr.create_array(
        str(place.new()), shape=place.data.shape, dtype="u2", chunks=_CHUNK, compressors=_blosc()
    )
    da.store(_made(place), target, lock=False)


def _blosc() -> Any:
    from zarr.codecs import BloscCodec

    return BloscCodec(cname="lz4", clevel=5, shuffle="shuffle")


def _made(place: Place) -> Any:
    # Made by the workers, so that the client sends nothing.
    chunks = tuple(da.core.normalize_chunks(_BLOCK, place.data.shape))
    return da.map_blocks(_block, chunks=chunks, dtype="u2", meta=np.empty((0, 0, 0), "u2"))


def _block(block_info: Any = None) -> Any:
    (begin, end), *_ = block_info[None]["array-location"]
    one = np.arange(_BLOCK[1] * _BLOCK[2], dtype="u4").reshape(_BLOCK[1:]) * 2654435761 >> 22
    return np.stack([(one + n).astype("u2") for n in range(begin, end)])


def copy_ours(place: Place, client: Client) -> Any:
    gzarr.copy(place.folder / "a", place.new(), chunks=(64, 128, 128), client=client, budget_bytes=128 << 20)


def copy_theirs(place: Place, client: Client) -> Any:
    import zarr

    x = da.from_zarr(str(place.folder / "a"), chunks=(64, 512, 512))
    target = zarr.create_array(str(place.new()), shape=x.shape, dtype="u2", chunks=(64, 128, 128), compressors=_blosc())
    da.store(x, target, lock=False)


def http_ours(place: Place, client: Client) -> int:
    array = gzarr.open_array(place.url, device="cpu")
    return int(gzarr.to_dask(array, (4, 1024, 1024), name=False).sum().compute())


WORK: dict[str, tuple[Callable[..., Any], Callable[..., Any] | None]] = {
    "read": (read_ours, read_theirs),
    "write": (write_ours, write_theirs),
    "copy": (copy_ours, copy_theirs),
    "http": (http_ours, None),
}


def _check(place: Place, client: Client) -> None:
    """Compare every result."""
    assert read_ours(place, client) == read_theirs(place, client) == int(place.data.sum())
    assert http_ours(place, client) == int(place.small.sum())
    results = []
    for work in (write_ours, write_theirs):
        work(place, client)
        results.append(gzarr.open_array(place.folder / "new", device="cpu")[...])
    np.testing.assert_array_equal(*results)
    for work in (copy_ours, copy_theirs):
        work(place, client)
        np.testing.assert_array_equal(gzarr.open_array(place.folder / "new", device="cpu")[...], place.data)


def _measure(place: Place, counts: Sequence[int], rounds: int) -> dict[str, dict[int, dict[str, float]]]:
    """Return medians of seconds, by work, number of workers, and "gzarr" or "zarr-python"."""
    taken: dict[str, dict[int, dict[str, list[float]]]] = {name: {n: {} for n in counts} for name in WORK}
    for number in range(rounds):
        for workers in counts:
            with cluster(workers) as client:
                if not number and workers == counts[0]:
                    _check(place, client)
                for name, pair in WORK.items():
                    for rival, work in zip(("gzarr", "zarr-python"), pair, strict=True):
                        if work is None:
                            continue
                        start = time.perf_counter()
                        work(place, client)
                        taken[name][workers].setdefault(rival, []).append(time.perf_counter() - start)
    return {
        name: {n: {rival: statistics.median(one) for rival, one in by.items()} for n, by in rows.items()}
        for name, rows in taken.items()
    }


def _parts(folder: Path, workers: int) -> dict[str, float]:
    """Measure what a job of any size is made of."""
    found: dict[str, float] = {}
    many = 100_000
    array = gzarr.create_array({}, (many, 8, 8), "u1", chunks=(1, 8, 8), codecs=[], device="cpu")
    start = time.perf_counter()
    x = gzarr.to_dask(array, {}, name=False)
    found["graph: made, µs a block"] = (time.perf_counter() - start) / many * 1e6
    start = time.perf_counter()
    dask.optimize(x.sum())
    found["graph: optimised, µs a block"] = (time.perf_counter() - start) / many * 1e6
    # 10,000 chunks of 64 bytes: the tasks take no time but dask's.
    tasks = 10_000
    gzarr.create_array(
        folder / "many", data=np.ones((tasks, 8, 8), "u1"), chunks=(1, 8, 8), codecs=[], device="cpu", overwrite=True
    )
    stored = gzarr.open_array(folder / "many", mode="r+", device="cpu")
    start = time.perf_counter()
    token = dask.base.tokenize(stored)
    found["name: listed on disk, µs a key"] = (time.perf_counter() - start) / tasks * 1e6
    assert token
    ones = stored.to_dask({}, name=False)
    found["task: bytes sent to a worker"] = len(
        pickle.dumps(next(iter(dict(dask.optimize(ones.blocks[0])[0].dask).values())))
    )
    with cluster(workers) as client:
        for name, work in {
            "read": lambda: ones.map_blocks(np.sum, keepdims=True, chunks=(1, 1, 1), dtype="i8").sum().compute(),
            "write": lambda: gzarr.store(ones, stored),
            "nothing": lambda: da.ones(tasks, chunks=1).sum().compute(),
        }.items():
            start = time.perf_counter()
            work()
            found[f"task: {name}, µs"] = (time.perf_counter() - start) / tasks * 1e6
        place = _s3()
        if place is not None:
            found |= _requests(place, client)
    return found


def _s3() -> Any:
    """Return what is needed to count requests to S3, or None without moto."""
    try:
        import moto  # noqa: F401
    except ImportError:
        return None
    sys.path.append(str(Path(__file__).parents[1] / "tests"))
    from support import remotes

    return remotes.remote("s3")


def _requests(place: Any, client: Client) -> dict[str, float]:
    """Count the requests of workers for a block: of small chunks, of one small shard, of one shard of 32 MiB."""
    found: dict[str, float] = {}
    small, large = np.arange(64**3, dtype="u4").reshape(64, 64, 64), np.zeros((256, 256, 256), "u4")
    large[...] = np.arange(256)
    cases: dict[str, tuple[Any, Any, dict[str, Any]]] = {
        "of 8 chunks": (small, 16, {"chunks": 8}),
        "of a shard": (small, 16, {"chunks": 8, "shards": 16}),
        "of a shard of 32 MiB": (large, (128, 256, 256), {"chunks": (32, 128, 128), "shards": (128, 256, 256)}),
    }
    with place as remote:
        store = remote.store("http://{}:{}".format(*remote.address), "a")
        for number, (name, (data, block, layout)) in enumerate(cases.items()):
            x = da.from_array(data, chunks=block)
            begin = _sent(client)
            a = gzarr.from_dask(x, store, path=str(number), codecs=[], **layout)
            found[f"requests to write a block {name}"] = (_sent(client) - begin) / x.npartitions
            begin = _sent(client)
            total = int(a.to_dask(block, name=False).sum().compute())
            found[f"requests to read a block {name}"] = (_sent(client) - begin) / x.npartitions
            assert total == int(data.sum())
    return found


def _sent(client: Client) -> int:
    return sum(one["requests"] for one in client.run(gzarr.stats).values())


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, and print tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--mib", type=int, default=512, help="size of the array, decoded (default 512)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args(argv)
    os.environ.update(_ENVIRONMENT)
    with tempfile.TemporaryDirectory() as folder, nginx(Path(folder)) as server:
        proxy = Proxy(server, _LATENCY_MS, float("inf"))
        try:
            place = Place(Path(folder), arguments.mib, proxy.address)
            times = _measure(place, arguments.workers, arguments.rounds)
        finally:
            proxy.close()
        parts = _parts(Path(folder), max(arguments.workers))
    processors = len(os.sched_getaffinity(0))
    print(f"{processors} processors, {platform.machine()}, Python {platform.python_version()}, dask {dask.__version__}")
    print(f"load average before and after the last minute: {os.getloadavg()}")
    print(f"{place.data.nbytes >> 20} MiB u2 (http: {place.small.nbytes >> 20} MiB), blocks of 32 MiB (http: 8 MiB)\n")
    print(f"{'':8}{'workers':>8}{'gzarr s':>10}{'MB/s':>8}{'speedup':>9}{'zarr-python s':>15}{'ratio':>7}")
    for name, rows in times.items():
        nbytes = (place.small if name == "http" else place.data).nbytes
        first = rows[arguments.workers[0]]["gzarr"]
        for workers, row in rows.items():
            ours, theirs = row["gzarr"], row.get("zarr-python")
            peer = f"{theirs:15.2f}{theirs / ours:7.2f}" if theirs else ""
            print(f"{name:8}{workers:8}{ours:10.2f}{nbytes / ours / 1e6:8.0f}{first / ours:9.2f}{peer}")
    print()
    for name, value in parts.items():
        print(f"{name:50}{value:10.1f}")
    if arguments.json:
        versions = {package: version(package) for package in ("gzarr", "dask", "zarr")}
        facts = header("dask_scaling.py", argv, versions, rounds=arguments.rounds, mib=arguments.mib)
        save(arguments.json, {**facts, "times": times, "parts": parts})
    return 0


if __name__ == "__main__":
    sys.exit(main())
