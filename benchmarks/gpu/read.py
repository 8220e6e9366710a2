"""Reading speed on a GPU: gzarr beside other readers, and beside the limits for any reader.

    python benchmarks/gpu read                        what decides most, at 512 MiB per array, some six minutes
    python benchmarks/gpu read --all --mib 2048 --seconds 1500
    python benchmarks/gpu read --seconds 200 --workload zstd --json gpu.json

Rates of decoders with large batches come first, then reads in waves of several sizes, then the workloads. Rounds are
interleaved. Reported times are medians of the host's clock, with the device synchronized; times between CUDA events are
in the JSON file. The page cache is warm. Every reader's result is compared with the data before it is timed. A reader
that would not finish in time reads a part, and its time is multiplied by the number of parts. Workloads that do not fit
into ``--seconds`` are left out and listed.

Everything is measured in a process of its own, which is replaced if it hangs, ends or loses the device (``gpu.steps``).
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import report
from rivals import versions
from workloads import default_data_dir

import gpu.report
import gpu.rivals
import gpu.saturation
import gpu.steps
import gpu.targets
import gpu.workloads
from gpu.comparison import Comparison
from gpu.report import DeviceMeasured
from gpu.rivals import RIVALS
from gpu.saturation import RATES, SWEEP
from gpu.targets import TARGETS
from gpu.transfers import device_facts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rivals import Rival

    from gpu.steps import Found, Steps
    from gpu.workloads import Tiled
    from gzarr.engines.cuda.device_protocol import Device

#: What is measured beside the workloads, each with its fraction of the time that is left when it begins.
BESIDE = {RATES: 0.12, SWEEP: 0.15, TARGETS: 0.1}


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--mib", type=int, default=512, help="size of each array (default 512)")
    found.add_argument("--seconds", type=float, default=360.0, help="time limit (default 360)")
    found.add_argument("--rounds", type=int, default=5, help="timed rounds, at most (default 5)")
    found.add_argument("--all", action="store_true", help="all workloads, not only those that decide most")
    found.add_argument("--workload", action="append", metavar="TEXT", help="only workloads whose name contains TEXT")
    found.add_argument("--rival", action="append", choices=list(RIVALS), help="only this reader (repeatable)")
    found.add_argument("--threads", type=int, default=report.machine()["cores"], help="default: this process's cores")
    found.add_argument("--data", type=Path, default=default_data_dir(), help="where generated arrays are kept")
    found.add_argument(
        "--no-targets", action="store_true", help="only workloads: no rates, waves, start-up, or host's time per chunk"
    )
    found.add_argument(
        "--small", action="store_true", help="small batches, small waves, two workloads: to see that all runs"
    )
    found.add_argument("--list", action="store_true", help="name the workloads and stop")
    found.add_argument("--json", type=Path, metavar="FILE")
    return found


def chosen(arguments: argparse.Namespace) -> list[Tiled]:
    """Return the workloads that the command line asks for."""
    found = gpu.workloads.all_workloads(arguments.mib << 20)
    if arguments.workload:
        return [t for t in found if any(text in t.workload.name for text in arguments.workload)]
    if arguments.all:
        return found
    names = gpu.workloads.MAIN[:2] if arguments.small else gpu.workloads.MAIN
    return [t for name in names for t in found if t.workload.name == name]


def measure_all(
    steps: Steps,
    device: Device,
    items: Sequence[str],
    tiles: Sequence[Tiled],
    rivals: dict[str, Rival],
    arguments: argparse.Namespace,
    seconds: float,
) -> None:
    """Measure item after item within the time; whatever fails is noted, and the next one follows.

    Parameters
    ----------
    steps
        What to tell of everything.
    device
        Device, current in this thread.
    items
        Names of workloads, and of what is measured beside them.
    tiles
        All workloads that may be among the items.
    rivals, arguments, seconds
        The readers, the command line, and the time for everything.
    """
    deadline = time.monotonic() + seconds
    by_name = {t.workload.name: t for t in tiles}
    workloads = [name for name in items if name in by_name]
    for number, name in enumerate(items):
        left = deadline - time.monotonic()
        if left <= 0:
            steps.left_out(name)
            continue
        print(f"[{number + 1}/{len(items)}] {name}", file=sys.stderr, flush=True)
        steps.begin(name)
        try:
            if name == RATES:
                gpu.saturation.rates(steps, device, BESIDE[name] * left)
            elif name == SWEEP:
                nbytes = gpu.saturation.SWEPT_SIZE * arguments.mib << 20
                gpu.saturation.sweep(steps, device, arguments.data, nbytes, BESIDE[name] * left)
            elif name == TARGETS:
                gpu.targets.measure(steps, device, arguments.data, arguments.mib << 20, BESIDE[name] * left)
            else:
                share = left / (len(workloads) - workloads.index(name))
                _measure(steps, device, by_name[name], rivals, arguments, share)
        except Exception as error:  # such as a full disk: the next one may be smaller
            steps.failure(name, error)
        steps.end(name)


def _measure(
    steps: Steps,
    device: Device,
    tiles: Tiled,
    rivals: dict[str, Rival],
    arguments: argparse.Namespace,
    seconds: float,
) -> None:
    begin = time.monotonic()
    with gpu.workloads.written(tiles, arguments.data) as stored:
        left = max(seconds - (time.monotonic() - begin), 1.0)
        Comparison(device, rivals, tiles, stored, left, arguments.rounds, steps).run(arguments.threads)


def measured(found: Found) -> list[DeviceMeasured]:
    """Return the workloads that were measured, also in part."""
    return [DeviceMeasured(**found.figures[name]) for name in found.figures if name not in BESIDE]


def document(found: Found) -> dict[str, Any]:
    """Return the figures as they go to the JSON file."""
    return {
        **{name: found.figures[name] for name in BESIDE if name in found.figures},
        "workloads": [m.to_json() for m in measured(found)],
        "targets": [g.to_json() for g in goals(found)],
    }


def goals(found: Found) -> list[report.Target]:
    """Return the project's targets."""
    beside = found.figures.get(TARGETS, {})
    return gpu.report.targets(measured(found), beside.get("first_array_ms"), beside.get("host_us"))


def sound(found: Found) -> bool:
    """Return whether every result was right, and gzarr read every workload for which there was time."""
    lost = [step for steps in found.failed.values() for step in steps if not step or step.startswith("gzarr")]
    return not found.refused and not lost and all(m.sound for m in measured(found))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; return 1 if there is no device, a result was wrong or gzarr failed."""
    command_line = parser()
    arguments = command_line.parse_args(argv)
    if min(arguments.mib, arguments.seconds, arguments.rounds, arguments.threads) <= 0:
        command_line.error("--mib, --seconds, --rounds and --threads must be positive")
    tiles = chosen(arguments)
    if arguments.list or not tiles:
        print("\n".join(t.workload.name for t in tiles) or "no workload's name contains that; --list names them")
        return 0 if arguments.list else 2
    beside = [] if arguments.no_targets else list(BESIDE)

    def measure(steps: Steps, items: list[str], seconds: float) -> None:
        device = gpu.steps.device()
        if arguments.small:
            gpu.saturation.make_small()
        rivals, absent = gpu.rivals.available(arguments.rival or RIVALS, arguments.threads)
        for name, why in absent.items():
            print(f"{name}: {why}", file=sys.stderr)
        steps.about(
            device=device_facts(),
            versions=versions(rivals.values()),
            threads=arguments.threads,
            rounds=arguments.rounds,
            **{"rivals left out": {**absent, **gpu.rivals.LEFT_OUT}},
        )
        with device:
            measure_all(steps, device, items, tiles, rivals, arguments, seconds)

    items = [*beside, *(t.workload.name for t in tiles)]
    found = gpu.steps.run("read", argv, items, arguments.seconds, measure, document, arguments.json)
    if found is None:
        return 0
    print(f"{found.about.get('device', {}).get('name', 'no CUDA device')}, {arguments.threads} threads\n")
    print(gpu.report.beside(found.figures.get(RATES, ()), found.figures.get(SWEEP, ())))
    print(gpu.report.table(measured(found), list(arguments.rival or RIVALS)))
    print("\n" + report.targets_table(goals(found)))
    return 0 if sound(found) else 1


if __name__ == "__main__":
    sys.exit(main())
