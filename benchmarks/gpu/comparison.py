"""One workload of the GPU benchmark: its readers, compared with the data, and its limits, timed in rounds."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import time
from typing import TYPE_CHECKING, Any

import numpy as np
from rivals import CannotRead
from workloads import Region, Rows, Windows, Workload

import gpu.workloads
from gpu.limits import Limits
from gpu.report import DeviceMeasured
from gpu.steps import Steps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rivals import Call, Rival

    from gpu.workloads import OnDisk, Tiled
    from gzarr.engines.cuda.device_protocol import Device

#: Number of parts of a read. A reader that exceeds its budget on one part does not read the whole.
PARTS = 16
#: Budget of one reader, as a fraction of the time of a workload.
BUDGET_SHARE = 0.2
#: Number of compared reads in workloads of many reads.
READS_CHECKED = 3
#: Name of the step, and of the note, of limits.
LIMITS = "limits"


class NoLimitsError(Exception):
    """This workload has no limits."""


class Clock:
    """Times of calls on a device: by the host's clock, synchronized; and between two events."""

    def __init__(self, device: Device) -> None:
        import cupy

        self._device = device
        self._events = cupy.cuda.Event(), cupy.cuda.Event()

    def run(self, calls: Sequence[Call], stream: Any = None) -> tuple[float, float]:
        """Return the host's and the device's seconds of some calls, without freeing results."""
        import cupy

        stream = self._device.current_stream() if stream is None else stream
        host, on_device = 0.0, 0.0
        for call in calls:
            # All streams: other readers have their own.
            cupy.cuda.runtime.deviceSynchronize()
            start = time.perf_counter()
            self._events[0].record(stream.cupy)
            result = call()
            self._events[1].record(stream.cupy)
            cupy.cuda.runtime.deviceSynchronize()
            host += time.perf_counter() - start
            on_device += cupy.cuda.get_elapsed_time(*self._events) / 1e3
            del result
        return host, on_device


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
    steps
        What to tell of every reader. Readers that ended an earlier process are left out.
    """

    def __init__(
        self,
        device: Device,
        rivals: dict[str, Rival],
        tiles: Tiled,
        stored: OnDisk,
        seconds: float,
        rounds: int,
        steps: Steps | None = None,
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
        self._device, self._rivals, self._tiles, self._stored = device, rivals, tiles, stored
        self._deadline = time.monotonic() + seconds
        self._budget = BUDGET_SHARE * seconds
        self._rounds = rounds
        self._clock = Clock(device)
        self._steps = steps or Steps()
        # Nothing that works takes longer.
        self._limit_s = max(30.0, 2 * seconds)
        self._base_on_device: Any = None

    def run(self, threads: int) -> None:
        """Check and time everything."""
        self.measured.notes.update(self._steps.failed(self.measured.name))
        self.measured.sound = not any(name.startswith("gzarr") for name in self.measured.notes)
        ready: dict[str, list[Call]] = {}
        for name, rival in self._rivals.items():
            if name not in self.measured.notes:
                self._begin(name)
                if calls := self._prepare(name, rival):
                    ready[name] = calls
                self._keep()
        streams: dict[str, Any] = {}
        with contextlib.ExitStack() as stack:
            if LIMITS not in self.measured.notes:
                self._begin(LIMITS)
                try:
                    limits = self._limits(threads)
                    stack.callback(limits.close)
                    for name, call in limits.calls().items():
                        ready[f"limit {name}"] = [call]
                        streams[f"limit {name}"] = limits.stream
                except Exception as error:  # the readers are compared anyway
                    self.measured.notes[LIMITS] = (
                        str(error) if isinstance(error, NoLimitsError) else self._steps.error(error)
                    )
            self._time(ready, streams)

    def _begin(self, step: str) -> None:
        self._steps.begin(self.measured.name, step, self._limit_s)

    def _keep(self) -> None:
        self._steps.found(self.measured.name, dataclasses.asdict(self.measured))

    def _limits(self, threads: int) -> Limits:
        access = self._tiles.workload.access
        if isinstance(access, Rows):
            raise NoLimitsError("limits are of one read, and this workload has many")
        selections = [access.selection] if isinstance(access, Region) else access.selections()
        limits = Limits(self._device, self._stored.path, selections, self.measured.output_nbytes, threads)
        for call in limits.calls().values():
            call()
        if not limits.sound():
            limits.close()
            raise NoLimitsError("nvCOMP alone did not decode every frame")
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
            self.measured.sound = False
        except Exception as error:  # a rival that fails is a footnote, not the end of the run
            self._failed(name, error)
        return []

    def _failed(self, name: str, error: Exception) -> None:
        self.measured.sound = self.measured.sound and not name.startswith("gzarr")
        self.measured.notes[name] = self._steps.error(error)

    def _check(self, calls: list[Call], workload: Workload) -> None:
        base = self._stored.base
        if workload is self._tiles.workload and workload.whole:
            result = calls[0]()
            self._device.current_stream().synchronize()
            assert gpu.workloads.matches(result, self._tiles, self._on_device(result)), "whole array"
            return
        expected = gpu.workloads.Tiled(self._tiles.base, self._tiles.repeats, workload).expected(base)
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
        spent = dict.fromkeys(ready, 0.0)
        gc.collect()
        for turn in range(self._rounds + 1):
            names = list(ready)
            for name in names[turn % len(names) :] + names[: turn % len(names)] if names else ():
                done = self.measured.rounds_ms.get(name, [])
                late = time.monotonic() > self._deadline
                # Everything that is ready is timed at least once.
                if done and (late or spent[name] > self._budget):
                    continue
                self._begin(LIMITS if name.startswith("limit ") else name)
                rival = self._rivals.get(name)
                try:
                    with contextlib.nullcontext() if rival is None else rival.session():
                        host, on_device = self._clock.run(ready[name], streams.get(name))
                except Exception as error:  # the others go on
                    del ready[name]
                    self._failed(name, error)
                    continue
                spent[name] += host
                # Round 0 is a warm-up; it counts for a reader without time for another round.
                if turn == 0 and spent[name] <= self._budget and not late:
                    continue
                times = self.measured.estimated.get(name, 1)
                self.measured.rounds_ms.setdefault(name, []).append(1e3 * host * times)
                self.measured.device_rounds_ms.setdefault(name, []).append(1e3 * on_device * times)
            self._keep()
        for name in ready:
            done = len(self.measured.rounds_ms.get(name, ()))
            if 0 < done < self._rounds:
                self.measured.notes.setdefault(name, f"{done} of {self._rounds} rounds")
        self._keep()
