"""gzarr.Loader beside other loaders of Zarr arrays for training.

    python benchmarks/loader.py                                  everything: about ten minutes on two processors
    python benchmarks/loader.py --scale 0.02 --rounds 1          a smoke test
    python benchmarks/loader.py --scenario table --rival gzarr --rival annbatch
    python benchmarks/loader.py --json loader.json

Each loader of each scenario runs in a process of its own, which imports what it needs. All have the same batch size and
the same processors, batches are arrays in host memory, contiguous and shuffled, and the page cache is warm.

First, an epoch of each is checked: every sample by a digest of its elements, and that none comes twice or is missing
(of slow ones, as far as they get in a few seconds). Peak memory is that of the process and all below it, of anonymous
and shared pages, above what it was when all was imported, opened and one element read. ``mixing`` is the mean entropy
of a batch by where its samples come from (64 stretches of the samples' order), to that of a batch drawn at random;
``runs`` is of how many independent runs of samples such batches might have been drawn. ``CPU x`` is the ratio of
samples per second of processor time to that of the fastest rival: on a busy machine, it says more than that of times.
``amplification`` is bytes decoded to bytes needed once: gzarr's own estimate, or reckoned from the batches where it is
known what a loader reads together. Then rounds of epochs are timed, interleaved, and medians are reported; ``*`` marks
loaders so slow that epochs were left. ``first`` is the time from the begin of an epoch to its first batch. At last, a
consumer that takes 20 ms for each batch is timed.

Ratios to the fastest rival are quoted for ``gzarr fresh``, which does not use the memory of former batches again
(``GZARR_RECYCLE_BYTES=0``); ``gzarr`` is the default. ``gzarr DataLoader`` is gzarr's map-style dataset in PyTorch's
``DataLoader``, and no rival.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import os
import select
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import loader_report
import report
from loader_rivals import COLUMNS, OWN, PACKAGES, RIVALS, left_out
from loader_scenarios import SCENARIOS
from loader_worker import cpu_s, tree
from workloads import default_data_dir

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from loader_scenarios import Scenario

#: Seconds: a round of a fast loader, the most of a slow one, the most of a check, the most of any answer.
_ROUND_S, _MOST_S, _CHECK_S, _ANSWER_S = 0.3, 0.7, 2.0, 300.0
#: The most that is waited until a process is idle.
_SETTLE_S = 1.0
_BUSY_STEPS = 30
_HERE = Path(__file__).parent


@dataclass
class Measured:
    """What was measured of one loader in one scenario."""

    rounds: list[dict[str, Any]] = field(default_factory=list)
    check: dict[str, Any] = field(default_factory=dict)
    peak_bytes: int | None = None
    wait: dict[str, Any] | None = None

    def median(self, name: str, per: str = "") -> float | None:
        """Return the median over the rounds of a figure, or of one divided by another."""
        values = [r[name] / max(r[per], 1e-9) if per else r[name] for r in self.rounds]
        return statistics.median(values) if values else None

    @property
    def samples_per_s(self) -> float | None:
        return self.median("samples", "seconds")

    def to_json(self) -> dict[str, Any]:
        return {
            "samples_per_s": self.samples_per_s,
            "samples_per_cpu_s": self.median("samples", "cpu_s"),
            "first_s": self.median("first_s"),
            "peak_bytes": self.peak_bytes,
            **self.check,
            "wait": self.wait,
            "rounds": self.rounds,
        }


class Process:
    """A process with one loader."""

    def __init__(self, scenario: str, column: str, home: Path, arguments: argparse.Namespace) -> None:
        environment = dict(os.environ)
        threads = arguments.threads // 2 if column == "gzarr DataLoader 2" else arguments.threads
        environment["GZARR_THREADS"] = str(max(threads, 1))
        environment.pop("GZARR_RECYCLE_BYTES", None)
        if column != "gzarr":
            environment["GZARR_RECYCLE_BYTES"] = "0"
        command = [sys.executable, "-W", "ignore", str(_HERE / "loader_worker.py"), scenario, str(arguments.scale)]
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._process = subprocess.Popen(
            [*command, column, str(home), str(arguments.threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=environment,
        )
        self._base = 0

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *exception: object) -> None:
        below = tree(self._process.pid)[1:]
        self._process.kill()
        self._process.wait()
        for pid in below:
            with contextlib.suppress(OSError):
                os.kill(pid, 9)
        for pipe in (self._process.stdin, self._process.stdout, self._errors):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def answer(self) -> Any:
        """Wait for the next answer."""
        stdout = self._process.stdout
        assert stdout is not None
        if not select.select([stdout], [], [], _ANSWER_S)[0]:
            raise RuntimeError(f"no answer within {_ANSWER_S:.0f} s")
        line = stdout.readline()
        if not line:
            self._errors.seek(0)
            said = [one for one in self._errors.read().splitlines() if one.strip()] or ["it said nothing"]
            raise RuntimeError(said[-1][:200])
        return json.loads(line)

    def ask(self, *command: Any) -> Any:
        """Have something done, and wait for the answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        return self.answer()

    def peak_during(self, *command: Any) -> tuple[Any, int]:
        """Have something done; return the answer, and the most memory above that before, in bytes."""
        base, most, done = self._memory(), 0, threading.Event()

        def watch() -> None:
            nonlocal most
            while not done.wait(0.01):
                most = max(most, self._memory())

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            return self.ask(*command), max(most - base, 0)
        finally:
            done.set()
            watcher.join()

    def settle(self) -> None:
        """Wait until the process is idle: it may read ahead what belongs to an epoch that was left."""
        end, before = time.perf_counter() + _SETTLE_S, -1.0
        while (used := cpu_s(self._process.pid)) != before and time.perf_counter() < end:
            before = used
            time.sleep(0.03)

    def _memory(self) -> int:
        """Return the bytes of anonymous and shared memory of the process and all below it, each page once."""
        kib = 0
        for pid in tree(self._process.pid):
            with contextlib.suppress(OSError):
                for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                    if line.startswith(("Pss_Anon:", "Pss_Shmem:")):
                        kib += int(line.split()[1])
        return kib * 1024


@dataclass
class Row:
    """One scenario."""

    scenario: Scenario
    measured: dict[str, Measured] = field(default_factory=dict)
    #: Why a loader has no figure.
    notes: dict[str, str] = field(default_factory=dict)

    def rate(self, column: str) -> float | None:
        return self.measured[column].samples_per_s if column in self.measured else None

    @property
    def fastest_rival(self) -> str | None:
        rates = {name: rate for name in RIVALS if (rate := self.rate(name)) is not None}
        return max(rates, key=rates.__getitem__) if rates else None

    def times_fastest(self, column: str) -> float | None:
        rival, rate = self.fastest_rival, self.rate(column)
        return None if rival is None or rate is None else rate / (self.rate(rival) or 1)

    def to_json(self) -> dict[str, Any]:
        facts = {name: getattr(self.scenario, name) for name in ("shape", "chunk", "shard", "dtype", "window", "batch")}
        return {
            "scenario": self.scenario.name,
            **facts,
            "arrays": len(self.scenario.names),
            "fastest_rival": self.fastest_rival,
            "times_fastest_rival": {name: self.times_fastest(name) for name in OWN},
            "target": self.scenario.least,
            "loaders": {name: one.to_json() for name, one in self.measured.items()},
            "notes": self.notes,
        }


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenario", action="append", choices=list(SCENARIOS), help="only this one (repeatable)")
    parser.add_argument("--rival", action="append", choices=list(COLUMNS), help="only this loader (repeatable)")
    parser.add_argument("--rounds", type=int, default=3, help="timed rounds (default 3)")
    parser.add_argument("--threads", type=int, default=report.machine()["cores"], help="default: this process's cores")
    parser.add_argument("--scale", type=float, default=1.0, help="part of the elements of each array, for smoke tests")
    parser.add_argument("--data", type=Path, default=default_data_dir(), help="where generated arrays are kept")
    parser.add_argument("--json", type=Path, metavar="FILE")
    return parser.parse_args(argv)


def _versions() -> dict[str, str]:
    found = {}
    for name in sorted({"numpy", "zarr", *(one for names in PACKAGES.values() for one in names)}):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _measure(scenario: Scenario, arguments: argparse.Namespace, versions: dict[str, str]) -> Row:
    row, home = Row(scenario), scenario.store(arguments.data)
    columns = []
    for column in arguments.rival or COLUMNS:
        missing = [package for package in PACKAGES.get(column, ()) if package not in versions]
        reason = f"{', '.join(missing)} not installed" if missing else left_out(column, scenario)
        if reason is None:
            columns.append(column)
        else:
            row.notes[column] = reason
    processes: dict[str, Process] = {}
    try:
        for column in columns:
            processes[column] = Process(scenario.name, column, home, arguments)
        for column in columns:
            _attempt(row, processes, column, lambda process: _ready(process))
        for column in list(processes):
            _attempt(row, processes, column, lambda process, column=column: _check(row, column, process, arguments))
        for number in range(arguments.rounds):
            names = list(processes)
            shift = number % max(len(names), 1)
            for column in names[shift:] + names[:shift]:
                _attempt(row, processes, column, lambda process, column=column: _round(row, column, process))
        for column in {*(name for name in OWN if "DataLoader" not in name), row.fastest_rival} & set(processes):
            _attempt(row, processes, column, lambda process, column=column: _wait(row, column, process))
    finally:
        for process in processes.values():
            process.__exit__()
    return row


def _attempt(row: Row, processes: dict[str, Process], column: str, work: Any) -> None:
    """Work with a loader's process; if that fails, leave a rival out, and say why."""
    process = processes.get(column)
    if process is None:
        return
    try:
        reason = work(process)
    except (RuntimeError, OSError, ValueError) as error:
        if column in OWN:
            raise RuntimeError(f"{row.scenario.name}, {column}: {error}") from error
        reason = str(error)
    if reason is not None:
        row.notes[column] = reason
        row.measured.pop(column, None)
        processes.pop(column).__exit__()


def _ready(process: Process) -> str | None:
    return process.answer().get("left_out")


def _check(row: Row, column: str, process: Process, arguments: argparse.Namespace) -> None:
    # gzarr's own epochs, and those of small arrays, are checked to their end.
    whole = (column in OWN and "DataLoader" not in column) or arguments.scale < 1
    limit_s = _ANSWER_S / 2 if whole else _CHECK_S
    check, peak = process.peak_during("check", limit_s)
    if check["wrong"] or check["repeated"] or check["missing"]:
        raise AssertionError(f"{row.scenario.name}, {column}: WRONG SAMPLES: {check}")
    row.measured[column] = Measured(check=check, peak_bytes=peak)
    process.settle()


def _round(row: Row, column: str, process: Process) -> None:
    row.measured[column].rounds.append(process.ask("round", _ROUND_S, _MOST_S))
    process.settle()


def _wait(row: Row, column: str, process: Process) -> None:
    row.measured[column].wait = process.ask("wait", loader_report.BUSY_S, _BUSY_STEPS)


def _selected(arguments: argparse.Namespace) -> Iterator[Scenario]:
    for name in arguments.scenario or SCENARIOS:
        yield SCENARIOS[name].scaled(arguments.scale)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; return 1 if a target is missed."""
    arguments = _arguments(argv)
    versions = _versions()
    counts = {"threads": arguments.threads, "rounds": arguments.rounds}
    header = report.header("loader.py", argv, versions, **counts, load_average_before=os.getloadavg())
    begin, rows = time.perf_counter(), []
    for scenario in _selected(arguments):
        print(f"{scenario.name} ({time.perf_counter() - begin:.0f} s)", file=sys.stderr, flush=True)
        rows.append(_measure(scenario, arguments, versions))
    facts = header["machine"]
    print(f"{header['command']}\n{facts['cpu']}, {facts['cores']} cores, {arguments.threads} threads")
    print(", ".join(f"{name} {version}" for name, version in versions.items()))
    print(f"load average before {header['load_average_before'][0]:.1f}, {time.perf_counter() - begin:.0f} s\n")
    for row in rows:
        print(loader_report.table(row) + "\n")
    reasons = Counter((name, note) for row in rows for name, note in row.notes.items())
    for name, note in reasons:
        where = [row.scenario.name for row in rows if row.notes.get(name) == note]
        print(f"left out: {name}: {note} ({'; '.join(where)})")
    print("\n" + loader_report.summary(rows) + "\n")
    targets = loader_report.targets(rows)
    print(report.targets_table(targets))
    if arguments.json:
        found = {"scenarios": [row.to_json() for row in rows], "targets": [target.to_json() for target in targets]}
        arguments.json.write_text(json.dumps({**header, **found}, indent=1) + "\n")
    return 1 if any(target.met is False for target in targets) else 0


if __name__ == "__main__":
    sys.exit(main())
