"""Reading speed on a GPU: gzarr beside other readers, and beside the limits for any reader.

    python benchmarks/gpu.py                        everything, at 2 GiB per array, some ten minutes
    python benchmarks/gpu.py --seconds 200 --mib 512 --workload zstd --json gpu.json

Rounds are interleaved. Reported times are medians of the host's clock, with the device synchronized; times between
CUDA events are in the JSON file. The page cache is warm. Every reader's result is compared with the data before it is
timed. A reader that would not finish in time reads a part, and its time is multiplied by the number of parts. Workloads
that do not fit into ``--seconds`` are left out and listed; the published pipelines come first.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import gc
import json
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gpu_report
import gpu_rivals
import gpu_targets
import gpu_workloads
import numpy as np
import report
from gpu_limits import Limits
from gpu_report import DeviceMeasured
from gpu_rivals import RIVALS
from gpu_transfers import device_facts
from rivals import CannotRead, versions
from workloads import Region, Rows, Windows, Workload, default_data_dir

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpu_workloads import OnDisk, Tiled
    from rivals import Call, Rival

    from gzarr.engines.cuda.device_protocol import Device

#: Number of parts of a read. A reader that exceeds its budget on one part does not read the whole.
PARTS = 16
#: Budget of one reader, as a fraction of the time of a workload.
BUDGET_SHARE = 0.2
#: Fraction of all time for measurements beside the workloads.
TARGETS_SHARE = 0.12
#: Number of compared reads in workloads of many reads.
READS_CHECKED = 3


class Clock:
    """Times of calls on a device: by the host's clock, synchronized; and between two events, if the device has them."""

    def __init__(self, device: Device) -> None:
        from gzarr.engines.cuda.cupy_device import CupyDevice

        self._device = device
        self._events: Any = None
        if isinstance(device, CupyDevice):
            import cupy

            self._events = cupy.cuda.Event(), cupy.cuda.Event()

    def _synchronize(self, stream: Any) -> None:
        """Wait for a stream; on a real device for all streams, since other readers have their own."""
        stream.synchronize()
        if self._events:
            import cupy

            cupy.cuda.runtime.deviceSynchronize()

    def run(self, calls: Sequence[Call], stream: Any = None) -> tuple[float, float | None]:
        """Return the host's and the device's seconds of some calls, without freeing results."""
        stream = self._device.current_stream() if stream is None else stream
        host, on_device = 0.0, 0.0
        for call in calls:
            self._synchronize(stream)
            start = time.perf_counter()
            if self._events:
                self._events[0].record(stream.cupy)
            result = call()
            if self._events:
                self._events[1].record(stream.cupy)
            self._synchronize(stream)
            host += time.perf_counter() - start
            if self._events:
                import cupy

                on_device += cupy.cuda.get_elapsed_time(*self._events) / 1e3
            del result
        return host, on_device if self._events else None


def part_of(workload: Workload, parts: int) -> Workload | None:
    """Return the first of about this number of parts of a workload's read, or None if it has no parts."""
    access, shape = workload.access, workload.dataset.shape
    outer = (workload.dataset.shard_shape or workload.dataset.chunk_shape)[0]
    if isinstance(access, Windows) and len(access.starts) >= parts:
        access = Windows(access.starts[: len(access.starts) // parts], access.shape)
    elif isinstance(access, Rows) and len(access.batches) > 1:
        access = Rows(access.batches[:1])
    elif workload.whole and shape[0] > outer:
        access = Region((slice(0, max(outer, shape[0] // parts // outer * outer)),))
    else:
        return None
    return Workload(workload.name, workload.dataset, access)


def factor(whole: Workload, part: Workload) -> float:
    """Return the size of the whole relative to this part."""
    return whole.output_nbytes() / part.output_nbytes()


def is_right(result: Any, expected: np.ndarray[Any, Any]) -> bool:
    """Return whether a result, on a device or a list of such results, equals the expected array on the host."""
    results = result if isinstance(result, list) else [result]
    host = [np.asarray(r.get() if hasattr(r, "get") else r) for r in results]
    found = np.stack(host) if isinstance(result, list) else host[0]
    return found.shape == expected.shape and found.dtype == expected.dtype and np.array_equal(found, expected)


class Comparison:
    """One workload: its readers, checked, and its limits, timed in rounds.

    Parameters
    ----------
    device
        Device, current in this thread.
    rivals
        Readers by name.
    tiles, stored
        The workload, and its stored array.
    seconds
        Time for everything.
    rounds
        Most rounds.
    """

    def __init__(
        self, device: Device, rivals: dict[str, Rival], tiles: Tiled, stored: OnDisk, seconds: float, rounds: int
    ) -> None:
        workload, dataset = tiles.workload, tiles.workload.dataset
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
            "compression_ratio": dataset.nbytes / max(stored.stored_nbytes, 1),
        }
        self.measured = DeviceMeasured(
            workload.name, facts, workload.output_nbytes(), dataset.chunk_nbytes, workload.whole
        )
        self.sound = True
        self._device, self._rivals, self._tiles, self._stored = device, rivals, tiles, stored
        self._deadline = time.monotonic() + seconds
        self._budget = BUDGET_SHARE * seconds
        self._rounds = rounds
        self._clock = Clock(device)
        self._base_on_device: Any = None

    def run(self, threads: int) -> None:
        """Check and time everything."""
        ready = {name: calls for name, rival in self._rivals.items() if (calls := self._prepare(name, rival))}
        limits: Limits | None = None
        streams: dict[str, Any] = {}
        try:
            limits = self._limits(threads)
            for name, call in limits.calls().items():
                ready[f"limit {name}"] = [call]
                streams[f"limit {name}"] = limits.stream
        except (ValueError, MemoryError, OSError) as error:
            self.measured.notes["limits"] = str(error)
        self._time(ready, streams)
        if limits is not None:
            limits.close()

    def _limits(self, threads: int) -> Limits:
        access = self._tiles.workload.access
        if isinstance(access, Rows):
            raise ValueError("limits are of one read, and this workload has many")
        selections = [access.selection] if isinstance(access, Region) else access.selections()
        limits = Limits(self._device, self._stored.path, selections, self.measured.output_nbytes, threads)
        for call in limits.calls().values():
            call()
        if not limits.sound():
            limits.close()
            raise ValueError("nvCOMP alone did not decode every frame")
        return limits

    def _prepare(self, name: str, rival: Rival) -> list[Call]:
        """Open the array with a reader and check its result; return its calls, or none."""
        notes = self.measured.notes
        whole = self._tiles.workload
        part = part_of(whole, PARTS)
        try:
            with rival.session():
                if part is not None:
                    calls = rival.calls(self._stored.path, part)
                    self._clock.run(calls)
                    seconds, _ = self._clock.run(calls)
                    if factor(whole, part) * seconds > self._budget:
                        self._check(calls, part)
                        self.measured.estimated[name] = round(factor(whole, part))
                        return calls
                calls = rival.calls(self._stored.path, whole)
                self._check(calls, whole)
                return calls
        except CannotRead as reason:
            notes[name] = str(reason)
        except AssertionError as wrong:
            notes[name] = f"WRONG RESULT: {wrong}"
            self.sound = False
        except Exception as error:  # a rival that fails is a footnote, not the end of the run
            notes[name] = f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0][:160]}"
            self.sound = self.sound and not name.startswith("gzarr")
        return []

    def _check(self, calls: list[Call], workload: Workload) -> None:
        base = self._stored.base
        if workload is self._tiles.workload and workload.whole:
            result = calls[0]()
            self._device.current_stream().synchronize()
            assert gpu_workloads.matches(result, self._tiles, self._on_device(result)), "whole array"
            return
        expected = gpu_workloads.Tiled(self._tiles.base, self._tiles.repeats, workload).expected(base)
        for number, (call, wanted) in enumerate(zip(calls[:READS_CHECKED], expected, strict=False)):
            result = call()
            self._device.current_stream().synchronize()
            assert is_right(result, wanted), f"read {number}"

    def _on_device(self, result: Any) -> Any:
        """Return the elements that the array repeats, in the memory of the result."""
        if not hasattr(result, "get") or not hasattr(result, "set"):
            return self._stored.base
        if self._base_on_device is None:
            import cupy

            self._base_on_device = cupy.asarray(self._stored.base)
        return self._base_on_device

    def _time(self, ready: dict[str, list[Call]], streams: dict[str, Any]) -> None:
        names = list(ready)
        spent = dict.fromkeys(names, 0.0)
        gc.collect()
        for turn in range(self._rounds + 1):
            for name in names[turn % len(names) :] + names[: turn % len(names)]:
                done = self.measured.rounds_ms.get(name, [])
                late = time.monotonic() > self._deadline
                # Everything that is ready is timed at least once.
                if done and (late or spent[name] > self._budget):
                    continue
                rival = self._rivals.get(name)
                with contextlib.nullcontext() if rival is None else rival.session():
                    host, on_device = self._clock.run(ready[name], streams.get(name))
                spent[name] += host
                # Round 0 is a warm-up; it counts for a reader without time for another round.
                if turn == 0 and spent[name] <= self._budget and not late:
                    continue
                times = self.measured.estimated.get(name, 1)
                self.measured.rounds_ms.setdefault(name, []).append(1e3 * host * times)
                if on_device is not None:
                    self.measured.device_rounds_ms.setdefault(name, []).append(1e3 * on_device * times)
        for name in names:
            done = len(self.measured.rounds_ms.get(name, ()))
            if 0 < done < self._rounds:
                self.measured.notes.setdefault(name, f"{done} of {self._rounds} rounds")


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--mib", type=int, default=2048, help="size of each array (default 2048)")
    found.add_argument("--seconds", type=float, default=600.0, help="approximate time limit (default 600)")
    found.add_argument("--rounds", type=int, default=5, help="timed rounds, at most (default 5)")
    found.add_argument("--workload", action="append", metavar="TEXT", help="only workloads whose name contains TEXT")
    found.add_argument("--rival", action="append", choices=list(RIVALS), help="only this reader (repeatable)")
    found.add_argument("--threads", type=int, default=report.machine()["cores"], help="default: this process's cores")
    found.add_argument("--data", type=Path, default=default_data_dir(), help="where generated arrays are kept")
    found.add_argument("--no-targets", action="store_true", help="leave out start-up and the host's time per chunk")
    found.add_argument("--list", action="store_true", help="name the workloads and stop")
    found.add_argument("--json", type=Path, metavar="FILE")
    return found


def measure_all(
    device: Device,
    chosen: Sequence[Tiled],
    rivals: dict[str, Rival],
    arguments: argparse.Namespace,
    keep: Callable[[list[DeviceMeasured]], None],
) -> tuple[list[DeviceMeasured], list[str], bool]:
    """Measure workload after workload within the time.

    Returns
    -------
    The measurements, the names of omitted workloads, and whether every result was right.
    """
    deadline = time.monotonic() + arguments.seconds
    results: list[DeviceMeasured] = []
    left_out: list[str] = []
    sound = True
    for number, tiles in enumerate(chosen):
        seconds = (deadline - time.monotonic()) / (len(chosen) - number)
        if seconds <= 0:
            left_out.append(tiles.workload.name)
            continue
        print(f"[{number + 1}/{len(chosen)}] {tiles.workload.name}", file=sys.stderr, flush=True)
        begin = time.monotonic()
        with gpu_workloads.written(tiles, arguments.data) as stored:
            left = max(seconds - (time.monotonic() - begin), 1.0)
            comparison = Comparison(device, rivals, tiles, stored, left, arguments.rounds)
            comparison.run(arguments.threads)
        results.append(comparison.measured)
        sound = sound and comparison.sound
        keep(results)
    return results, left_out, sound


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; return 1 if there is no device, a result was wrong or gzarr failed."""
    command_line = parser()
    arguments = command_line.parse_args(argv)
    if min(arguments.mib, arguments.seconds, arguments.rounds, arguments.threads) <= 0:
        command_line.error("--mib, --seconds, --rounds and --threads must be positive")
    chosen = gpu_workloads.all_workloads(arguments.mib << 20)
    if arguments.workload:
        chosen = [t for t in chosen if any(text in t.workload.name for text in arguments.workload)]
    if arguments.list or not chosen:
        print("\n".join(t.workload.name for t in chosen) or "no workload's name contains that; --list names them")
        return 0 if arguments.list else 2
    from gzarr.engines.cuda import devices
    from gzarr.errors import DeviceError

    try:
        device = devices.get_device(devices.current())
    except DeviceError as error:
        print(error, file=sys.stderr)
        return 1
    rivals, absent = gpu_rivals.available(arguments.rival or RIVALS, arguments.threads)
    for name, why in absent.items():
        print(f"{name}: {why}", file=sys.stderr)
    header = {
        "command": shlex.join(["python", "benchmarks/gpu.py", *(sys.argv[1:] if argv is None else argv)]),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": report.machine(),
        "device": device_facts(),
        "versions": versions(rivals.values()),
        "threads": arguments.threads,
        "rounds": arguments.rounds,
        "rivals left out": {**absent, **gpu_rivals.LEFT_OUT},
    }

    def keep(results: list[DeviceMeasured], goals: Sequence[report.Target] = (), left_out: Sequence[str] = ()) -> None:
        if arguments.json is not None:
            document = {
                **header,
                "workloads": [m.to_json() for m in results],
                "workloads left out": list(left_out),
                "targets": [g.to_json() for g in goals],
            }
            arguments.json.write_text(json.dumps(document, indent=1) + "\n")

    with device:
        first_array_ms = host_us = None
        if not arguments.no_targets:
            begin = time.monotonic()
            beside = TARGETS_SHARE * arguments.seconds
            first_array_ms, host_us = gpu_targets.measure(device, arguments.data, arguments.mib << 20, beside)
            arguments.seconds -= time.monotonic() - begin
        results, left_out, sound = measure_all(device, chosen, rivals, arguments, keep)
    goals = gpu_report.targets(results, first_array_ms, host_us)
    keep(results, goals, left_out)
    print(f"{header['command']}\n{header['device'].get('name', 'no CUDA device')}, {arguments.threads} threads\n")
    print(gpu_report.table(results, list(rivals)))
    if left_out:
        print(f"left out for lack of time: {', '.join(left_out)}")
    print("\n" + report.targets_table(goals))
    return 0 if sound else 1


if __name__ == "__main__":
    sys.exit(main())
