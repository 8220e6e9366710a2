"""zarr-python with gzarr's codec pipeline, beside its own pipelines and that of zarrs.

    python benchmarks/zarr_pipeline.py                    everything: some five minutes
    python benchmarks/zarr_pipeline.py --scale 0.1        a smoke test
    python benchmarks/zarr_pipeline.py --workload windows --rounds 3
    python benchmarks/zarr_pipeline.py --json zarr_pipeline.json

Rounds are interleaved and the median is reported. The page cache is warm, all have the same number of threads, arrays
are opened before, and every result is compared with the data before anything is timed. ``fused`` is zarr-python's
FusedCodecPipeline (3.4 and newer). New memory holds every result: ``GZARR_RECYCLE_BYTES=0``, as for the peers. What is
written is in memory (/dev/shm) if there is room: whole arrays into an empty directory, boxes into an array that exists.

Two columns are no peers. ``floor`` is zarr-python with a pipeline that reads and writes nothing: what no pipeline can
save. ``gzarr alone`` is the same by ``gzarr.open_array``, without zarr-python.
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fields
import numpy as np
import report
from workloads import LITTLE, Dataset, blosc, default_data_dir, digest, store

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Call = Callable[[], Any]

#: The project's targets: multiple of the fastest peer, of each workload and in the mean.
LEAST_SPEEDUP, LEAST_MEAN = 1.3, 2.0
#: A run shorter than this is repeated within its round.
SHORTEST_ROUND_S = 0.05
_SHAPE = (256, 256, 512)
_LZ4 = (LITTLE, blosc("lz4", "shuffle", 2))
_ZSTD = (LITTLE, {"name": "zstd", "configuration": {"level": 3, "checksum": False}})
_SMALL, _LARGE = (32, 32, 32), (64, 64, 128)
DATASETS = {
    "64 KiB": Dataset("pipeline-64k", fields.camera_u2, "u2", _SHAPE, _SMALL, _LZ4),
    "1 MiB": Dataset("pipeline-1m", fields.camera_u2, "u2", _SHAPE, _LARGE, _LZ4),
    "1 MiB zstd": Dataset("pipeline-1m-zstd", fields.camera_u2, "u2", _SHAPE, _LARGE, _ZSTD),
    "shards": Dataset("pipeline-shards", fields.camera_u2, "u2", _SHAPE, _SMALL, _LZ4, shard_shape=(128,) * 3),
}
_OWN = "zarr.core.codec_pipeline."
PEERS = {
    "default": _OWN + "BatchedCodecPipeline",
    "fused": _OWN + "FusedCodecPipeline",
    "zarrs": "zarrs.ZarrsCodecPipeline",
}
RIVALS = {**PEERS, "gzarr": "gzarr.integrations.zarr.CodecPipeline", "gzarr alone": "", "floor": f"{__name__}.Floor"}
WORKLOADS = ("whole", "200 windows", "plane", "write whole", "write a box")


def floor_class() -> type:
    """Return a pipeline of zarr-python that neither reads nor writes."""
    from zarr.core.codec_pipeline import BatchedCodecPipeline
    from zarr.registry import register_pipeline

    class Floor(BatchedCodecPipeline):  # type: ignore[misc]
        async def read(self, batch_info: Any, out: Any, drop_axes: tuple[int, ...] = ()) -> Any:
            return ()

        async def write(self, batch_info: Any, value: Any, drop_axes: tuple[int, ...] = ()) -> None:
            return None

    Floor.__module__, Floor.__qualname__ = __name__, "Floor"
    register_pipeline(Floor)
    return Floor


@dataclass
class Row:
    """Times of one workload."""

    dataset: str
    workload: str
    nbytes: int
    chunks: int
    rounds_ms: dict[str, list[float]] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)

    def ms(self, rival: str) -> float | None:
        return statistics.median(self.rounds_ms[rival]) if self.rounds_ms.get(rival) else None

    def fastest_peer(self) -> str | None:
        times = {peer: ms for peer in PEERS if (ms := self.ms(peer)) is not None}
        return min(times, key=times.__getitem__) if times else None

    def speedup(self) -> float | None:
        peer, own = self.fastest_peer(), self.ms("gzarr")
        return None if peer is None or own is None else self.ms(peer) / own  # type: ignore[operator]

    def to_json(self) -> dict[str, Any]:
        return {
            "dataset": self.dataset,
            "workload": self.workload,
            "nbytes": self.nbytes,
            "chunks": self.chunks,
            "fastest_peer": self.fastest_peer(),
            "times_fastest_peer": self.speedup(),
            "rounds_ms": self.rounds_ms,
            "notes": self.notes,
        }


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", action="append", metavar="TEXT", help="only workloads whose name contains TEXT")
    parser.add_argument("--dataset", action="append", choices=list(DATASETS), help="only this array (repeatable)")
    parser.add_argument("--rival", action="append", choices=list(RIVALS), help="only this rival (repeatable)")
    report.add_counts(parser, rounds=7)
    parser.add_argument("--data", type=Path, default=default_data_dir(), help="where generated arrays are kept")
    parser.add_argument("--json", type=Path, metavar="FILE")
    return parser.parse_args(argv)


def _opened(rival: str, path: Path, threads: int, mode: str) -> Any:
    if rival == "gzarr alone":
        import gzarr

        return gzarr.open_array(path, mode=mode, device="cpu")
    import zarr

    settings = {"codec_pipeline.path": RIVALS[rival], "threading.max_workers": threads, "gzarr.strict": True}
    with zarr.config.set(settings):
        return zarr.open_array(str(path), mode=mode)


def _windows(shape: tuple[int, ...]) -> list[tuple[slice, ...]]:
    random = np.random.Generator(np.random.PCG64(20))
    starts = np.stack([random.integers(0, n - 32 + 1, 200) for n in shape], axis=1)
    return [tuple(slice(at, at + 32) for at in start) for start in starts.tolist()]


def _reading(workload: str, array: Any) -> list[tuple[Any, Call]]:
    """Return the selections of a workload, and the calls that read them."""
    if workload == "whole":
        selections: list[Any] = [...]
    elif workload == "plane":
        selections = [np.s_[:, :, array.shape[2] // 2]]
    else:
        selections = list(_windows(array.shape))
    return [(selection, partial(array.__getitem__, selection)) for selection in selections]


def _writing(workload: str, array: Any, data: Any) -> list[tuple[Any, Call]]:
    """Return the selection of a workload, and the call that writes it."""
    # A box that shares its outer chunks with what is around it.
    selection = ... if workload == "write whole" else tuple(slice(n // 8 + 1, n - n // 8 + 1) for n in array.shape)
    return [(selection, partial(array.__setitem__, selection, np.ascontiguousarray(data[selection])))]


@dataclass
class Task:
    """What a rival does in one run: its calls, and the directory to empty before."""

    calls: list[tuple[Any, Call]]
    emptied: Path | None = None

    def run(self) -> float:
        """Return the milliseconds of one run."""
        if self.emptied is not None:
            shutil.rmtree(self.emptied, ignore_errors=True)
        start = time.perf_counter()
        for _, call in self.calls:
            call()
        return 1e3 * (time.perf_counter() - start)


def _reader(rival: str, source: Path, workload: str, data: Any, threads: int) -> Task:
    calls = _reading(workload, _opened(rival, source, threads, "r"))
    if rival != "floor" and not all(np.array_equal(call(), data[selection]) for selection, call in calls):
        raise AssertionError("WRONG RESULT")
    return Task(calls)


def _writer(rival: str, source: Path, workload: str, data: Any, threads: int, folder: Path) -> Task:
    path = folder / rival.replace(" ", "-")
    shutil.copytree(source, path)
    array, wanted = _opened(rival, path, threads, "r+"), data.copy()
    # Other elements than there are.
    ((selection, call),) = _writing(workload, array, data + 1)
    call()
    wanted[selection] += 1
    if rival != "floor" and not np.array_equal(_opened("default", path, threads, "r")[...], wanted):
        raise AssertionError("WRONG RESULT")
    return Task(_writing(workload, array, data), path / "c" if workload == "write whole" else None)


def _memory() -> Path | None:
    """Return a file system in memory with room for the arrays, or None."""
    home = Path("/dev/shm")
    return home if home.is_dir() and shutil.disk_usage(home).free > 2 << 30 else None


def _measure(name: str, workload: str, rivals: Sequence[str], arguments: argparse.Namespace) -> Row:
    dataset = DATASETS[name].scaled(arguments.scale)
    stored = store(dataset, arguments.data)
    data = _opened("default", stored.path, arguments.threads, "r")[...]
    if digest(data) != stored.digest:
        raise SystemExit(f"{stored.path} is damaged: delete it and run again")
    row = Row(name, workload, dataset.nbytes, math.prod(dataset.grid_shape))
    with tempfile.TemporaryDirectory(dir=_memory() or arguments.data) as folder:
        ready: dict[str, Task] = {}
        for rival in rivals:
            try:
                if workload.startswith("write"):
                    ready[rival] = _writer(rival, stored.path, workload, data, arguments.threads, Path(folder))
                else:
                    ready[rival] = _reader(rival, stored.path, workload, data, arguments.threads)
            except Exception as error:
                if rival not in PEERS:
                    raise
                row.notes[rival] = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:120]}"
        _time(row, ready, arguments.rounds)
    return row


def _time(row: Row, ready: dict[str, Task], rounds: int) -> None:
    names, repeats = list(ready), {}
    for turn in range(rounds + 1):
        shift = turn % len(names)
        for rival in names[shift:] + names[:shift]:
            times = [ready[rival].run() for _ in range(repeats.get(rival, 1))]
            if rival not in repeats:
                # The first turn warms caches and shows how often to repeat a short run.
                repeats[rival] = max(1, min(100, round(SHORTEST_ROUND_S / 1e-3 / times[0])))
            else:
                row.rounds_ms.setdefault(rival, []).append(statistics.fmean(times))


def _table(rows: Sequence[Row], rivals: Sequence[str]) -> str:
    lines = [f"{'ms':<26}" + "".join(f"{rival:>13}" for rival in rivals) + f"{'x fastest peer':>16}"]
    for row in rows:
        cells = "".join("            -" if (ms := row.ms(rival)) is None else f"{ms:13.1f}" for rival in rivals)
        speedup = row.speedup()
        lines.append(f"{row.dataset + ', ' + row.workload:<26}{cells}" + (f"{speedup:16.2f}" if speedup else ""))
        lines += [f"    {rival}: {note}" for rival, note in row.notes.items()]
    return "\n".join(lines)


def _floor(rows: Sequence[Row]) -> str:
    """Return a line on what zarr-python itself takes."""
    costs = [
        1e3 * ms / row.chunks
        for row in rows
        if row.workload == "whole" and row.dataset != "shards" and (ms := row.ms("floor"))
    ]
    if not costs:
        return ""
    return f"zarr-python without a pipeline's work: {min(costs):.0f} to {max(costs):.0f} µs a chunk"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; return 1 if a target is missed."""
    arguments = _arguments(argv)
    # Read when gzarr first allocates a result.
    os.environ.setdefault("GZARR_RECYCLE_BYTES", "0")
    import importlib.metadata

    import zarr.core.codec_pipeline

    rivals = list(arguments.rival or RIVALS)
    if not hasattr(zarr.core.codec_pipeline, "FusedCodecPipeline") and "fused" in rivals:
        rivals.remove("fused")
    if "floor" in rivals:
        globals()["Floor"] = floor_class()
    versions = {name: importlib.metadata.version(name) for name in ("zarr", "zarrs", "numcodecs", "numpy")}
    counts = {"threads": arguments.threads, "rounds": arguments.rounds}
    header = report.header("zarr_pipeline.py", argv, versions, **counts)
    rows = []
    for name in arguments.dataset or DATASETS:
        for workload in WORKLOADS:
            if arguments.workload and not any(text in workload for text in arguments.workload):
                continue
            report.say(f"{name}, {workload}")
            rows.append(_measure(name, workload, rivals, arguments))
    print(report.heading(header, f"{arguments.threads} threads") + "\n")
    print(_table(rows, rivals) + "\n")
    print(_floor(rows))
    report.save(arguments.json, {**header, "workloads": [row.to_json() for row in rows]})
    speedups = [speedup for row in rows if (speedup := row.speedup())]
    if not speedups:
        return 0
    mean = math.exp(statistics.fmean(map(math.log, speedups)))
    print(
        f"times the fastest peer: {min(speedups):.2f} at worst (target {LEAST_SPEEDUP}), {mean:.2f} in the geometric "
        f"mean (target {LEAST_MEAN})"
    )
    return 0 if min(speedups) >= LEAST_SPEEDUP and mean >= LEAST_MEAN else 1


if __name__ == "__main__":
    sys.exit(main())
