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
import importlib.metadata
import os
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import loaders.report
import report
from loaders.measured import Measured, Row
from loaders.process import ANSWER_S, Process
from loaders.rivals import COLUMNS, OWN, PACKAGES, left_out
from loaders.scenarios import SCENARIOS
from workloads import default_data_dir

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from loaders.scenarios import Scenario

#: Seconds: a round of a fast loader, the most of a slow one, the most of a check.
_ROUND_S, _MOST_S, _CHECK_S = 0.3, 0.7, 2.0
_BUSY_STEPS = 30


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenario", action="append", choices=list(SCENARIOS), help="only this one (repeatable)")
    parser.add_argument("--rival", action="append", choices=list(COLUMNS), help="only this loader (repeatable)")
    report.add_counts(parser, rounds=3)
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
    limit_s = ANSWER_S / 2 if whole else _CHECK_S
    check, peak = process.peak_during("check", limit_s)
    if check["wrong"] or check["repeated"] or check["missing"]:
        raise AssertionError(f"{row.scenario.name}, {column}: WRONG SAMPLES: {check}")
    row.measured[column] = Measured(check=check, peak_bytes=peak)
    process.settle()


def _round(row: Row, column: str, process: Process) -> None:
    row.measured[column].rounds.append(process.ask("round", _ROUND_S, _MOST_S))
    process.settle()


def _wait(row: Row, column: str, process: Process) -> None:
    row.measured[column].wait = process.ask("wait", loaders.report.BUSY_S, _BUSY_STEPS)


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
        report.say(f"{scenario.name} ({time.perf_counter() - begin:.0f} s)")
        rows.append(_measure(scenario, arguments, versions))
    print(report.heading(header, f"{arguments.threads} threads"))
    print(f"load average before {header['load_average_before'][0]:.1f}, {time.perf_counter() - begin:.0f} s\n")
    for row in rows:
        print(loaders.report.table(row) + "\n")
    reasons = Counter((name, note) for row in rows for name, note in row.notes.items())
    for name, note in reasons:
        where = [row.scenario.name for row in rows if row.notes.get(name) == note]
        print(f"left out: {name}: {note} ({'; '.join(where)})")
    print("\n" + loaders.report.summary(rows) + "\n")
    targets = loaders.report.targets(rows)
    print(report.targets_table(targets))
    found = {"scenarios": [row.to_json() for row in rows], "targets": [target.to_json() for target in targets]}
    report.save(arguments.json, {**header, **found})
    return 1 if any(target.met is False for target in targets) else 0


if __name__ == "__main__":
    sys.exit(main())
