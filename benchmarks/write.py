"""Writing speed of gzarr beside zarr-python, zarrs and tensorstore, and beside the bare C libraries.

    python benchmarks/write.py                       everything: arrays of about 256 MiB, some ten minutes
    python benchmarks/write.py --scale 0.1 --rounds 3
    python benchmarks/write.py --workload zstd --rival given --rival tensorstore
    python benchmarks/write.py --json write.json

Each run writes a whole array into a fresh directory that contains only the metadata document, and that is removed
before the next run; in memory (/dev/shm) if there is room. Nothing is flushed to disk. Rounds are interleaved (every
rival once, then every rival again, in changing order) and the median is reported. All rivals have the same number of
threads, and zarr-python reads back each rival's output, which is compared with the data, element by element, before
anything is timed. Peak memory is that of one write in a fresh process, beyond the input.

gzarr has two columns: ``automatic`` writes an array that gzarr created with the same codecs but no level, so that it
may choose how hard to search for repetitions; ``given`` opens the array with its level, like the others.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fields
import numpy as np
import report
import rivals as rivals_module
from report import Measured, Target, as_milliseconds, as_number, as_table, geometric_mean
from rivals import PEERS, CannotRead
from workloads import Dataset, digest, workloads
from write_limit import Limit
from write_rivals import OURS, RIVALS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy.typing as npt

#: The project's targets: multiple of the fastest peer on each workload with given levels, and on average with
#: automatic ones; MiB beyond input and chunks.
LEAST_SPEEDUP, LEAST_GEOMETRIC_MEAN, MOST_EXTRA_MIB = 1.05, 1.5, 64
#: Appending one step at a time to an array of (time, y, x), and the compared fraction of the steps at each end.
APPEND_STEPS, APPEND_PART, APPEND_SHAPE = 1000, 0.1, (64, 64)
MOST_APPEND_RATIO = 1.25
_MIB = 2**20

# Writing 5 to clear_refs resets the peak (VmHWM) to the current value (proc(5)).
_PEAK = """
import pathlib, sys
sys.path.insert(0, sys.argv[1])
import write

print(write.extra_bytes(*sys.argv[2:5], float(sys.argv[5]), pathlib.Path(sys.argv[6])))
"""


@dataclass
class Written(Measured):
    """One workload; ``stored_nbytes`` and ``extra_nbytes`` (peak memory beyond the input) by rival."""

    stored_nbytes: dict[str, int] = field(default_factory=dict)
    extra_nbytes: dict[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        document = super().to_json()
        del document["of_limit_out"]
        document["times_fastest_peer"] = {name: self.speedup(name) for name in OURS}
        document["of_limit"] = {name: self.of_limit(name) for name in OURS}
        return {**document, "stored_nbytes": self.stored_nbytes, "extra_nbytes": self.extra_nbytes}


def _memory() -> Path | None:
    """Return a file system in memory with room for two arrays, or None.

    On ext4, files deleted within the last minutes slow down the creation of new ones (it looks for inodes that were not
    used lately), so the next rival would pay for the removed files of the previous one.
    """
    home = Path("/dev/shm")
    return home if home.is_dir() and shutil.disk_usage(home).free > 2 << 30 else None


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", action="append", metavar="TEXT", help="only workloads whose name contains TEXT")
    parser.add_argument("--rival", action="append", choices=list(RIVALS), help="only this rival (repeatable)")
    report.add_counts(parser, rounds=5)
    parser.add_argument("--budget", type=float, default=30.0, help="seconds a rival may use on a workload (default 30)")
    parser.add_argument("--data", type=Path, default=_memory(), help="where arrays are written (default: %(default)s)")
    parser.add_argument("--no-memory", action="store_true", help="leave out peak memory")
    parser.add_argument("--no-append", action="store_true", help="leave out appending")
    parser.add_argument("--list", action="store_true", help="name the workloads and stop")
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args(argv)
    report.check_counts(parser, arguments)
    return arguments


def _datasets(scale: float) -> list[Dataset]:
    return [workload.dataset for workload in workloads(scale) if workload.whole]


@contextlib.contextmanager
def _fresh(dataset: Dataset, home: Path) -> Iterator[Path]:
    """Make a directory with the metadata document of an array, and remove it afterwards."""
    name, document = dataset.document()
    path = Path(tempfile.mkdtemp(prefix=f"{dataset.name}-", dir=home))
    try:
        (path / name).write_text(json.dumps(document))
        yield path
    finally:
        shutil.rmtree(path)


def _elements(dataset: Dataset) -> npt.NDArray[Any]:
    return fields.make(dataset.field, dataset.shape).astype(dataset.dtype, copy=False)


def _check(rival: Any, dataset: Dataset, data: npt.NDArray[Any], expected: str, home: Path) -> int:
    """Write once and compare the result of reading with zarr-python; return the stored bytes."""
    import zarr

    with _fresh(dataset, home) as path:
        rival.write(path, data)()
        array: Any = zarr.open_array(str(path), mode="r")[...]
        assert digest(array) == expected, "the elements read differ from those written"
        skipped = dataset.document()[0]
        return sum(f.stat().st_size for f in path.rglob("*") if f.is_file() and f.name != skipped)


def _run_once(write: Callable[[Path], Callable[[], Any]], dataset: Dataset, home: Path) -> float:
    with _fresh(dataset, home) as path:
        call = write(path)
        start = time.perf_counter()
        call()
        return time.perf_counter() - start


def _time(
    writes: dict[str, Callable[[Path], Callable[[], Any]]],
    sessions: dict[str, Any],
    dataset: Dataset,
    arguments: argparse.Namespace,
    measured: Written,
    home: Path,
) -> None:
    """Run interleaved rounds; a rival whose runs, except the slowest, have used its budget is dropped."""
    names = list(writes)
    spent: dict[str, list[float]] = {name: [] for name in names}
    # Round 0 is not counted: it warms contexts and caches.
    for turn in range(arguments.rounds + 1):
        shift = turn % len(names)
        for name in names[shift:] + names[:shift]:
            if spent[name] and sum(spent[name]) - max(spent[name]) > arguments.budget:
                continue
            gc.collect()
            with sessions[name].session() if name in sessions else contextlib.nullcontext():
                seconds = _run_once(writes[name], dataset, home)
            spent[name].append(seconds)
            if turn:
                measured.rounds_ms.setdefault(name, []).append(1e3 * seconds)
    for name in names:
        if 0 < (done := len(measured.rounds_ms.get(name, ()))) < arguments.rounds:
            measured.notes.setdefault(name, f"{done} of {arguments.rounds} rounds within the budget")


def _measure(
    dataset: Dataset, rivals: dict[str, Any], arguments: argparse.Namespace, home: Path
) -> tuple[Written, bool]:
    data = _elements(dataset)
    expected = digest(data)
    facts = {
        "shape": dataset.shape,
        "dtype": dataset.dtype,
        "chunk_shape": dataset.chunk_shape,
        "shard_shape": dataset.shard_shape,
        "zarr_format": dataset.zarr_format,
        "codecs": dataset.codecs,
        "nbytes": dataset.nbytes,
    }
    measured = Written(dataset.name, facts, dataset.nbytes, dataset.chunk_nbytes, whole=True)
    writes: dict[str, Callable[[Path], Callable[[], Any]]] = {}
    sound = True
    for name, rival in rivals.items():
        with rival.session():
            try:
                measured.stored_nbytes[name] = _check(rival, dataset, data, expected, home)
            except CannotRead as reason:
                measured.notes[name] = str(reason)
            except Exception as error:  # a rival that fails is a footnote, not the end of the run
                measured.notes[name] = f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0][:160]}"
                sound = sound and name not in OURS and not isinstance(error, AssertionError)
            else:
                writes[name] = lambda path, rival=rival: rival.write(path, data)  # type: ignore[misc]
    limit = None
    try:
        limit = Limit(dataset, data, arguments.threads)
        facts["limit_library"] = limit.library
        writes["limit"] = limit.write
    except (ImportError, OSError) as error:
        measured.notes["limit"] = str(error)
    _time(writes, rivals, dataset, arguments, measured, home)
    if limit is not None:
        limit.close()
    if not arguments.no_memory:
        for name in rivals:
            if name in writes:
                _peak(name, dataset, arguments, measured, home)
    return measured, sound


# -- memory


def _peak(name: str, dataset: Dataset, arguments: argparse.Namespace, measured: Written, home: Path) -> None:
    here = str(Path(__file__).parent)
    command = [sys.executable, "-c", _PEAK, here, name, str(arguments.threads), dataset.name, str(arguments.scale)]
    done = subprocess.run([*command, str(home)], capture_output=True, text=True, check=False)
    if done.returncode:
        measured.notes.setdefault(name, f"no memory: {(done.stderr.strip().splitlines() or [''])[-1][:160]}")
    else:
        measured.extra_nbytes[name] = int(done.stdout.split()[-1])


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


def extra_bytes(rival_name: str, threads: str, dataset_name: str, scale: float, home: Path) -> int:
    """Return the peak memory of this process during a write, beyond its memory with the elements loaded."""
    dataset = next(d for d in _datasets(scale) if d.name == dataset_name)
    rival = RIVALS[rival_name](int(threads))
    # The same chain in chunks of a few elements: everything is loaded, nothing large is kept.
    few = tuple(min(8, n) for n in dataset.chunk_shape)
    small = Dataset(**{**dataset.__dict__, "shape": few, "chunk_shape": few, "shard_shape": None})
    data = _elements(dataset)
    with rival.session():
        with _fresh(small, home) as path:
            rival.write(path, np.ones(few, dataset.dtype))()
        with _fresh(dataset, home) as path:
            call = rival.write(path, data)
            gc.collect()
            before = _status("VmRSS")
            Path("/proc/self/clear_refs").write_text("5")
            call()
            return max(_status("VmHWM") - before, 0)


# -- appending


def appending(home: Path) -> Target:
    """Return the time of the last of many steps relative to the first: medians of single appends."""
    import zarr

    import gzarr

    path = Path(tempfile.mkdtemp(prefix="append-", dir=home))
    try:
        zarr.create_array(path, shape=(0, *APPEND_SHAPE), chunks=(1, *APPEND_SHAPE), dtype="f4")
        array: Any = gzarr.open_array(path, mode="r+", device="cpu")
        step = np.random.default_rng(0).random((1, *APPEND_SHAPE), np.float32)
        seconds = []
        for _ in range(APPEND_STEPS):
            start = time.perf_counter()
            array.append(step)
            seconds.append(time.perf_counter() - start)
    finally:
        shutil.rmtree(path)
    part = int(APPEND_STEPS * APPEND_PART)
    # The first few also load and compile.
    first, last = statistics.median(seconds[part : 2 * part]), statistics.median(seconds[-part:])
    note = f"{1e3 * first:.2f} ms a step at the start, {1e3 * last:.2f} ms at the end of {APPEND_STEPS}"
    return Target("append, end to start", last / first, MOST_APPEND_RATIO, "x", note=note)


# -- results


def goals(measured: Sequence[Written], threads: int) -> list[Target]:
    """Return the project's targets for the workloads."""
    given = {m.name: v for m in measured if (v := m.speedup("given")) is not None}
    slowest = min(given, key=given.__getitem__, default="")
    automatic = [v for m in measured if (v := m.speedup("automatic")) is not None]
    note = f"{len(automatic)} workloads"
    mean = Target(
        "automatic, geometric mean", geometric_mean(automatic), LEAST_GEOMETRIC_MEAN, "x", at_least=True, note=note
    )
    least = Target("given, least", given.get(slowest), LEAST_SPEEDUP, "x", at_least=True, note=slowest)
    found = [mean, least]
    bounds = {m.name: MOST_EXTRA_MIB + threads * m.chunk_nbytes / _MIB for m in measured}
    extra_mib = {m.name: max(m.extra_nbytes.get(name, -1) for name in OURS) / _MIB for m in measured}
    over = {name: extra - bounds[name] for name, extra in extra_mib.items() if extra >= 0}
    if over:
        worst = max(over, key=over.__getitem__)
        extra = over[worst] + bounds[worst]
        found.append(
            Target("peak memory beyond input", extra, bounds[worst], "MiB", note=f"nearest its bound: {worst}")
        )
    return found


def table(measured: Sequence[Written], rivals: Sequence[str]) -> str:
    """Return the plain text tables: milliseconds with the ratios, then stored bytes and memory, then the footnotes."""
    columns = ["limit", *(name for name in RIVALS if name in rivals)]
    marks: dict[str, int] = {}

    def mark(m: Measured, rival: str) -> str:
        note = m.notes.get(rival)
        return "" if note is None else f" [{marks.setdefault(f'{rival}: {note}', len(marks) + 1)}]"

    times = [["median ms", *columns, *(f"{name} x peer" for name in OURS), *(f"{name} of limit" for name in OURS)]]
    sizes = [["stored and memory", *(f"ratio {n}" for n in columns[1:]), *(f"MiB {n}" for n in columns[1:])]]
    for m in measured:
        cells = [as_milliseconds(m.ms(c)) + mark(m, c) for c in columns]
        ratios = [*(m.speedup(name) for name in OURS), *(m.of_limit(name) for name in OURS)]
        times.append([m.name, *cells, *map(as_number, ratios)])
        stored = [m.output_nbytes / m.stored_nbytes[c] if c in m.stored_nbytes else None for c in columns[1:]]
        extra = [m.extra_nbytes[c] / _MIB if c in m.extra_nbytes else None for c in columns[1:]]
        sizes.append([m.name, *map(as_number, stored), *(as_number(e, 0) for e in extra)])
    means = [geometric_mean([v for m in measured if (v := m.speedup(name)) is not None]) for name in OURS]
    times.append(["geometric mean", *[""] * len(columns), *map(as_number, means), "", ""])
    notes = "\n".join(f"[{number}] {note}" for note, number in marks.items())
    return "\n\n".join(filter(None, [as_table(times), as_table(sizes), notes]))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; return 1 if a rival's output was wrong or gzarr failed."""
    arguments = _arguments(argv)
    chosen = _datasets(arguments.scale)
    if arguments.workload:
        chosen = [d for d in chosen if any(text in d.name for text in arguments.workload)]
    if arguments.list:
        print("\n".join(d.name for d in chosen))
        return 0
    if not chosen:
        report.say(f"no workload's name contains {' or '.join(arguments.workload)}; --list names them")
        return 2
    rivals: dict[str, Any] = {}
    for name in arguments.rival or RIVALS:
        try:
            rivals[name] = RIVALS[name](arguments.threads)
        except ImportError as error:
            report.say(f"{name}: not installed ({error})")
    versions = rivals_module.versions(rivals.values())
    counts = {"threads": arguments.threads, "rounds": arguments.rounds}
    header = report.header("write.py", argv, versions, **counts)
    results: list[Written] = []
    targets: list[Target] = []
    sound = True
    if arguments.data is not None:
        arguments.data.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="gzarr-write-", dir=arguments.data) as home:
        for number, dataset in enumerate(chosen, 1):
            report.say(f"[{number}/{len(chosen)}] {dataset.name}")
            measured, agreed = _measure(dataset, rivals, arguments, Path(home))
            results.append(measured)
            sound = sound and agreed
            report.save_workloads(arguments.json, header, results, [])
        if not set(rivals).isdisjoint(OURS) and not set(rivals).isdisjoint(PEERS):
            targets = goals(results, arguments.threads)
        if not set(rivals).isdisjoint(OURS) and not arguments.no_append:
            targets.append(appending(Path(home)))
    report.save_workloads(arguments.json, header, results, targets)
    about = f"{arguments.threads} threads", f"median of {arguments.rounds} rounds"
    print(report.heading(header, *about) + "\n")
    print(table(results, list(rivals)) + "\n")
    if targets:
        print(report.targets_table(targets))
    return 0 if sound else 1


if __name__ == "__main__":
    sys.exit(main())
