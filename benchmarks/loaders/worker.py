"""One loader of one scenario in a process of its own, which does what ``loader.py`` asks for line by line.

    python benchmarks/loaders worker SCENARIO SCALE COLUMN HOME THREADS

Answers are JSON, one line each.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import sys
import time
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import loaders.scenarios

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loaders.own import Opened
    from loaders.scenarios import IntArray, Scenario

#: An epoch that takes so many times the limit is left.
_PATIENCE = 5
_TICK = os.sysconf("SC_CLK_TCK")


def tree(root: int) -> list[int]:
    """Return a process and all processes below it."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))):
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return found


def _stat(pid: int) -> list[str]:
    """Return the fields of a process from its state on, or none if it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def cpu_s(root: int) -> float:
    """Return the seconds of processor time of a process and all below it."""
    return sum(sum(map(int, fields[11:13])) for pid in tree(root) if (fields := _stat(pid))) / _TICK


class Check:
    """Which samples an epoch has given out, and what was wrong."""

    def __init__(self, scenario: Scenario, opened: Opened, home: Path) -> None:
        self.scenario, self.opened = scenario, opened
        self.known = {int(one): i for i, one in enumerate(np.load(home / "digests.npy"))}
        self.raw = np.load(home / "raw.npy", mmap_mode="r") if opened.origins else None
        self.batches: list[IntArray] = []
        self.wrong = 0
        self.decoded = opened.decoded() if opened.decoded else 0

    def add(self, batch: Any) -> None:
        """Compare the samples of a batch with the data."""
        parts = [np.asarray(part) for part in self.opened.parts(batch)]
        shapes = {part.shape[1:] for part in parts}
        if shapes != {self.scenario.sample_shape} or any(part.dtype != self.scenario.dtype for part in parts):
            raise AssertionError(f"batches of shape {parts[0].shape} {parts[0].dtype}")
        if self.opened.origins is not None:
            origins = np.asarray(self.opened.origins(batch))
            for row, origin in zip(parts[0], origins.tolist(), strict=True):
                box = tuple(slice(a, a + w) for a, w in zip(origin, self.scenario.window, strict=True))
                self.wrong += not np.array_equal(row, self.raw[box])  # type: ignore[index]
        else:
            found = [
                self.known.get(loaders.scenarios.digest([part[i] for part in parts]), -1) for i in range(len(parts[0]))
            ]
            self.wrong += found.count(-1)
            origins = self.scenario.origins[found]
            self.batches.append(np.array(found))
            return
        self.batches.append(origins)

    def result(self, *, complete: bool) -> dict[str, Any]:
        """Return what was found: samples, repeated ones, wrong ones, mixing and amplification."""
        chosen = self.opened.origins is not None
        origins = self.batches if chosen else [self.scenario.origins[numbers] for numbers in self.batches]
        count = sum(map(len, origins))
        repeated = 0 if chosen else count - len(np.unique(np.concatenate(self.batches)))
        missing = len(self.scenario.origins) - count if complete else 0
        entropy, possible = mixing(self.scenario, origins)
        batches = [self.scenario.stretches(batch) for batch in origins]
        return {
            "samples": count,
            "complete": complete,
            "wrong": self.wrong,
            "repeated": repeated,
            "missing": missing,
            "entropy_bits": entropy,
            "mixing": entropy / possible if possible else 1.0,
            "runs": runs(batches),
            "amplification": self._amplification(np.concatenate(origins)),
        }

    @cached_property
    def _all_chunks(self) -> int:
        return len(np.unique(np.concatenate(self.scenario.chunks(self.scenario.origins))))

    def _amplification(self, origins: IntArray) -> float | None:
        if self.opened.amplification is not None:
            return self.opened.amplification()
        if self.opened.together is None and self.opened.decoded is None:
            return None
        # Of a part of an epoch, its share of all chunks.
        distinct = self._all_chunks * len(origins) / len(self.scenario.origins)
        if self.opened.decoded is not None:
            return (self.opened.decoded() - self.decoded) / (distinct * len(self.scenario.names))
        if not self.opened.together:
            return 1.0
        needed, decoded = self.scenario.chunks(origins), 0
        for at in range(0, len(needed), self.opened.together):
            decoded += len(np.unique(np.concatenate(needed[at : at + self.opened.together])))
        return decoded / distinct


def mixing(scenario: Scenario, batches: list[IntArray]) -> tuple[float, float]:
    """Return the mean entropy of the batches by the stretches of their samples, and that of batches drawn at random.

    In bits, of whole batches.
    """
    whole = [batch for batch in batches if len(batch) == scenario.batch]
    if not whole:
        return 0.0, 0.0
    given = float(np.mean([_entropy(scenario.stretches(batch)) for batch in whole]))
    stretches = scenario.stretches(np.concatenate(batches))
    random = np.random.Generator(np.random.PCG64(5))
    drawn = [_entropy(random.choice(stretches, scenario.batch, replace=False)) for _ in range(max(200, len(whole)))]
    return given, float(np.mean(drawn))


def runs(batches: list[IntArray]) -> float | None:
    """Return how many independent runs of samples would make batches as varied as these; None for any number.

    ``batches`` are the stretches of each batch's samples. Two samples of a batch are of one stretch if they are of one
    run, which is shorter than a stretch, or else as often as any two samples. Longer runs show in longer stretches.
    """
    found = [_runs([batch // merged for batch in batches]) for merged in (1, 4, 16)]
    return min((number for number in found if number is not None), default=None)


def _runs(batches: list[IntArray]) -> float | None:
    same = sum(int((n * (n - 1)).sum()) for batch in batches for n in (np.unique(batch, return_counts=True)[1],))
    pairs = sum(len(batch) * (len(batch) - 1) for batch in batches)
    counts = np.unique(np.concatenate(batches), return_counts=True)[1]
    count = int(counts.sum())
    if not pairs:
        return None
    by_chance = int((counts * (counts - 1)).sum()) / (count * (count - 1))
    more = same / pairs - by_chance
    # What so few pairs cannot tell from chance.
    noise = 2 * math.sqrt(2 * by_chance * (1 - by_chance) / pairs)
    return (1 - by_chance) / more if more > noise else None


def _entropy(classes: IntArray) -> float:
    shares = np.unique(classes, return_counts=True)[1] / len(classes)
    return float(-(shares * np.log2(shares)).sum())


class Worker:
    """The loader, and what can be asked for."""

    def __init__(self, scenario: Scenario, opened: Opened, home: Path) -> None:
        self.scenario, self.opened, self.home = scenario, opened, home
        self.epochs = itertools.count()

    def check(self, limit_s: float) -> dict[str, Any]:
        """Run an epoch, for so long at most, and compare all samples."""
        check, complete, begin = Check(self.scenario, self.opened, self.home), True, time.perf_counter()
        batches = self.opened.epoch(next(self.epochs))
        for batch in batches:
            check.add(batch)
            if time.perf_counter() - begin > limit_s:
                complete = False
                break
        _close(batches)
        return {**check.result(complete=complete), "bound": self.opened.bound}

    def round(self, least_s: float, limit_s: float) -> dict[str, Any]:
        """Run epochs for at least so long; one that takes much longer than the limit is left."""
        names = len(self.scenario.names)
        cpu, spent, samples, batches, firsts = cpu_s(os.getpid()), 0.0, 0, 0, []
        whole = True
        while spent < least_s:
            start, given = time.perf_counter(), 0
            last = start
            iterator = iter(self.opened.epoch(next(self.epochs)))
            for batch in iterator:
                last = time.perf_counter()
                if len(firsts) == 0 or firsts[-1][0] != start:
                    firsts.append((start, last - start))
                parts = self.opened.parts(batch)
                assert len(parts) == names
                given += len(parts[0])
                batches += 1
                del batch, parts
                if self._too_slow(last - start, firsts[-1][1], given, limit_s):
                    break
            else:
                # Whatever ends an epoch belongs to it.
                last = time.perf_counter()
            spent += last - start
            samples += given
            _close(iterator)
            del iterator
            whole = given >= len(self.scenario.origins)
            if not whole:
                break
        used = cpu_s(os.getpid()) - cpu
        return {
            "samples": samples,
            "batches": batches,
            "seconds": spent,
            "cpu_s": used,
            "whole": whole,
            "first_s": float(np.median([first for _, first in firsts])),
        }

    def _too_slow(self, elapsed: float, first: float, given: int, limit_s: float) -> bool:
        """Return whether to leave an epoch: after the limit, if it would take much longer.

        Time before the first batch does not count: a loader may read much at first, for many batches.
        """
        since, more = elapsed - first, given - self.scenario.batch
        return since > limit_s and since * len(self.scenario.origins) > _PATIENCE * limit_s * max(more, 1)

    def wait(self, busy_s: float, steps: int) -> dict[str, Any]:
        """Consume some batches, each for a while; return the part of the time that was waited for the next one."""
        waited, taken = 0.0, 0
        iterator = iter(self._endless())
        next(iterator)
        time.sleep(busy_s)
        for _ in range(steps):
            start = time.perf_counter()
            batch = next(iterator, None)
            waited += time.perf_counter() - start
            if batch is None:
                break
            taken += 1
            del batch
            time.sleep(busy_s)
        iterator.close()
        return {"waited": waited / max(waited + taken * busy_s, 1e-9), "waited_ms": 1e3 * waited / max(taken, 1)}

    def _endless(self) -> Iterator[Any]:
        for number in self.epochs:
            yield from self.opened.epoch(number)
        raise AssertionError(math.inf)


def _close(iterator: Any) -> None:
    close = getattr(iterator, "close", None)
    if close is not None:
        close()


def main() -> int:
    """Open the loader, then do what is asked for."""
    # What libraries print is no answer.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    name, scale, column, home, threads = sys.argv[1:]

    def answer(value: Any) -> None:
        answers.write(json.dumps(value) + "\n")
        answers.flush()

    scenario = loaders.scenarios.SCENARIOS[name].scaled(float(scale))
    from loaders.rivals import COLUMNS

    opened = COLUMNS[column](scenario, Path(home), int(threads))
    if isinstance(opened, str):
        answer({"left_out": opened})
        return 0
    worker = Worker(scenario, opened, Path(home))
    answer({"ready": os.getpid()})
    for line in sys.stdin:
        command, *arguments = json.loads(line)
        answer(getattr(worker, command)(*arguments))
    return 0


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    # Some libraries' threads keep an interpreter from ending.
    os._exit(status)
