"""Reading speed of gzarr beside zarr-python, zarrs and tensorstore, and beside the bare C libraries.

    python benchmarks/read.py                       everything: about 4 GiB of generated arrays, some ten minutes
    python benchmarks/read.py --quick               fewer rounds and fewer random rows
    python benchmarks/read.py --workload zstd --rival "gzarr fresh" --rival tensorstore
    python benchmarks/read.py --json read.json

Rounds are interleaved (every rival once, then every rival again, in changing order) and the median is reported. The
page cache is warm, all rivals have the same number of threads, and every rival's result is compared with the generated
data, element by element, before anything is timed. Times include freeing the result: a reader that gets memory from
the system pays for returning it, too.

gzarr has three columns. ``gzarr fresh`` uses new memory for each result, like the peers; its figures are the ones
quoted. ``gzarr recycled`` is gzarr's default, in the memory of a released result; it is warm when a round begins.
``gzarr out=`` reads into one array of the caller. (The C library recycles results of less than 32 MiB for every reader
that lets NumPy allocate them, including peers.)
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import report
import rivals as rivals_module
import targets
from limit import Limit
from report import Measured, Read
from rivals import PEERS, RIVALS, CannotRead, Rival
from workloads import Rows, Workload, default_data_dir, digest, store, workloads

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt
    from rivals import Call
    from workloads import Stored

#: A run shorter than this is repeated within its round.
SHORTEST_ROUND_S = 0.02
#: Runs in which gzarr's stages are measured, of which the median counts.
STAGE_ROUNDS = 3
#: Number of a peer's results that are compared in workloads of many reads (for gzarr, all).
PEER_READS_CHECKED = 10


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", action="append", metavar="TEXT", help="only workloads whose name contains TEXT")
    parser.add_argument("--rival", action="append", choices=list(RIVALS), help="only this rival (repeatable)")
    report.add_counts(parser, rounds=7, note="; with --quick 3")
    parser.add_argument("--budget", type=float, default=30.0, help="seconds a rival may use on a workload (default 30)")
    parser.add_argument("--data", type=Path, default=default_data_dir(), help="where generated arrays are kept")
    parser.add_argument("--quick", action="store_true", help="3 rounds and 5,000 rows")
    parser.add_argument("--no-targets", action="store_true", help="leave out planning, memory and start-up times")
    parser.add_argument("--list", action="store_true", help="name the workloads and stop")
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args(argv)
    if arguments.quick:
        arguments.rounds = min(arguments.rounds, 3)
    report.check_counts(parser, arguments)
    return arguments


def _reference(stored: Stored, workload: Workload) -> npt.NDArray[Any]:
    """Read the whole array with zarr-python and compare it with the digest taken when the data were made."""
    import zarr

    array: npt.NDArray[Any] = zarr.open_array(str(stored.path), mode="r")[...]  # type: ignore[assignment]
    if digest(array) != stored.digest:
        raise SystemExit(f"{stored.path} is damaged: delete it and run again")
    return array.astype(workload.dataset.dtype, copy=False)


def _prepare(
    rivals: dict[str, Rival], workload: Workload, stored: Stored, measured: Measured
) -> tuple[dict[str, list[Call]], bool]:
    """Open the array with every rival and check it; return the calls of those that can, and whether all agreed."""
    array = _reference(stored, workload)
    ready: dict[str, list[Call]] = {}
    sound = True
    for name, rival in rivals.items():
        with rival.session():
            try:
                calls = rival.calls(stored.path, workload)
                checked = PEER_READS_CHECKED if name in PEERS else len(calls)
                rivals_module.check(rival, calls, workload, array, reads=checked)
            except CannotRead as reason:
                measured.notes[name] = str(reason)
            except AssertionError as wrong:
                measured.notes[name] = f"WRONG RESULT: {wrong}"
                sound = False
            except Exception as error:  # a rival that fails is a footnote, not the end of the run
                measured.notes[name] = f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0][:160]}"
                sound = sound and name in PEERS
            else:
                ready[name] = calls
    return ready, sound


def _run_once(calls: Sequence[Call]) -> float:
    """Return the seconds of the calls, each until its result is freed."""
    start = time.perf_counter()
    for call in calls:
        call()
    return time.perf_counter() - start


def _time(
    ready: dict[str, list[Call]],
    rivals: dict[str, Rival],
    arguments: argparse.Namespace,
    measured: Measured,
) -> None:
    """Run interleaved rounds; a rival whose runs, except the slowest, have used its budget is dropped."""
    names = list(ready)
    spent: dict[str, list[float]] = {name: [] for name in names}
    repeats = dict.fromkeys(names, 1)
    gc.collect()
    # Round 0 is not counted: it warms contexts and caches, and shows how often to repeat a short run.
    for turn in range(arguments.rounds + 1):
        shift = turn % len(names)
        for name in names[shift:] + names[:shift]:
            # A machine may stall once; neither a peer nor gzarr must be left with a single, unlucky round.
            if spent[name] and sum(spent[name]) - max(spent[name]) > arguments.budget:
                continue
            with rivals[name].session() if name in rivals else contextlib.nullcontext():
                if name in rivals and rivals[name].warm_up:
                    ready[name][0]()
                seconds = [_run_once(ready[name]) for _ in range(repeats[name])]
            spent[name].append(sum(seconds))
            if turn == 0:
                repeats[name] = max(1, min(200, round(SHORTEST_ROUND_S / max(seconds[0], 1e-7))))
            else:
                measured.rounds_ms.setdefault(name, []).append(1e3 * sum(seconds) / len(seconds))
    for name in names:
        if 0 < (done := len(measured.rounds_ms.get(name, ()))) < arguments.rounds:
            measured.notes.setdefault(name, f"{done} of {arguments.rounds} rounds within the budget")


def _stages(ready: dict[str, list[Call]], rivals: dict[str, Rival], arguments: argparse.Namespace) -> dict[str, Any]:
    """Return milliseconds of thread time of gzarr's stages, by column, in separate runs.

    ``other`` is the rest of the threads' time: planning, starting threads, waiting, and page faults of new memory.
    """
    from gzarr.engines.cpu.native import take_stats

    found: dict[str, Any] = {}
    for name in [name for name in ready if name in rivals and name not in PEERS]:
        runs = []
        with rivals[name].session():
            for _ in range(min(arguments.rounds, STAGE_ROUNDS)):
                if rivals[name].warm_up:
                    ready[name][0]()
                take_stats()
                wall = 1e3 * _run_once(ready[name]) * arguments.threads
                stats = take_stats()
                stages = {stage: stats[f"{stage}_ms"] for stage in ("read", "decode", "place")}
                runs.append({"wall": wall, **stages, "other": wall - sum(stages.values())})
        found[name] = {stage: statistics.median(run[stage] for run in runs) for stage in runs[0]}
    return found


def _measure(
    workload: Workload, rivals: dict[str, Rival], arguments: argparse.Namespace
) -> tuple[Measured, Stored, bool]:
    dataset = workload.dataset
    stored = store(dataset, arguments.data)
    facts = {
        "dataset": dataset.name,
        "shape": dataset.shape,
        "dtype": dataset.dtype,
        "chunk_shape": dataset.chunk_shape,
        "shard_shape": dataset.shard_shape,
        "zarr_format": dataset.zarr_format,
        "codecs": dataset.codecs,
        "nbytes": dataset.nbytes,
        "stored_nbytes": stored.stored_nbytes,
        "compression_ratio": dataset.nbytes / stored.stored_nbytes,
    }
    if isinstance(workload.access, Rows):
        facts["reads"], facts["rows_a_read"] = workload.access.batches.shape
    measured = Read(workload.name, facts, workload.output_nbytes(), dataset.chunk_nbytes, workload.whole)
    ready, sound = _prepare(rivals, workload, stored, measured)
    own = next((rival for name, rival in rivals.items() if name not in PEERS), None)
    if own is not None:
        facts["decode_path"] = own.decode_path(stored.path)  # type: ignore[attr-defined]
    limit = None
    try:
        limit = Limit(dataset, stored.path, arguments.threads)
        ready["limit"] = limit.calls(workload)
        facts["limit_library"] = limit.library
    except (ImportError, OSError) as error:
        measured.notes["limit"] = str(error)
    _time(ready, rivals, arguments, measured)
    facts["stages_thread_ms"] = _stages(ready, rivals, arguments)
    if limit is not None:
        limit.close()
    return measured, stored, sound


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; return 1 if a rival's result was wrong or gzarr failed."""
    arguments = _arguments(argv)
    chosen = workloads(arguments.scale, rows=5_000 if arguments.quick else 100_000)
    if arguments.workload:
        chosen = [w for w in chosen if any(text in w.name for text in arguments.workload)]
    if arguments.list:
        print("\n".join(w.name for w in chosen))
        return 0
    if not chosen:
        report.say(f"no workload's name contains {' or '.join(arguments.workload)}; --list names them")
        return 2
    rivals, absent = rivals_module.available(arguments.rival or RIVALS, arguments.threads)
    for name, why in absent.items():
        report.say(f"{name}: {why}")
    versions = rivals_module.versions(rivals.values())
    counts = {"threads": arguments.threads, "rounds": arguments.rounds}
    header = report.header("read.py", argv, versions, **counts)
    results: list[Measured] = []
    whole: list[tuple[Workload, Stored]] = []
    sound = True
    for number, workload in enumerate(chosen, 1):
        report.say(f"[{number}/{len(chosen)}] {workload.name}")
        measured, stored, agreed = _measure(workload, rivals, arguments)
        results.append(measured)
        sound = sound and agreed
        if workload.whole:
            whole.append((workload, stored))
        report.save_workloads(arguments.json, header, results, [])
    goals = report.speed_targets(results)
    if not arguments.no_targets and not set(rivals) <= set(PEERS):
        goals += targets.measure(whole, arguments.threads)
    report.save_workloads(arguments.json, header, results, goals)
    about = f"{arguments.threads} threads", f"median of {arguments.rounds} rounds"
    print(report.heading(header, *about) + "\n")
    print(report.table(results, list(rivals)) + "\n")
    print(report.stages_table(results) + "\n")
    print(report.targets_table(goals))
    return 0 if sound else 1


if __name__ == "__main__":
    sys.exit(main())
