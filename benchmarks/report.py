"""Output of the benchmark: text and files."""

from __future__ import annotations

import datetime
import json
import math
import platform
import shlex
import statistics
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from rivals import PEERS, RIVALS

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

#: The project's targets (multiple of the fastest peer; geometric mean; fraction of the limit with ``out=``).
LEAST_SPEEDUP, LEAST_GEOMETRIC_MEAN, LEAST_OF_LIMIT = 1.3, 2.0, 0.8
#: Columns of gzarr in which each read returns a new result: in new memory, like the peers, and by gzarr's default.
FRESH, RECYCLED = "gzarr fresh", "gzarr recycled"
#: Least size of chunks that are compared with the limit.
LIMIT_CHUNK_NBYTES = 256 * 1024


@dataclass
class Measured:
    """One workload."""

    #: Column whose ratios are the result.
    quoted: ClassVar[str] = "gzarr"

    name: str
    facts: dict[str, Any]
    output_nbytes: int
    chunk_nbytes: int
    whole: bool
    #: Milliseconds of each round by rival, including ``limit``.
    rounds_ms: dict[str, list[float]] = field(default_factory=dict)
    #: Why a rival has no figure, or what is special about it.
    notes: dict[str, str] = field(default_factory=dict)

    def ms(self, rival: str) -> float | None:
        """Return the median time in milliseconds, or None if there is none."""
        return statistics.median(self.rounds_ms[rival]) if self.rounds_ms.get(rival) else None

    def gb_per_s(self, rival: str) -> float | None:
        """Return decoded gigabytes (1e9 bytes) per second."""
        ms = self.ms(rival)
        return None if ms is None else self.output_nbytes / ms / 1e6

    @property
    def fastest_peer(self) -> str | None:
        times = {peer: ms for peer in PEERS if (ms := self.ms(peer)) is not None}
        return min(times, key=times.__getitem__) if times else None

    def speedup(self, rival: str | None = None) -> float | None:
        """Return the throughput as a multiple of the fastest peer's."""
        rival = rival or self.quoted
        peer, ms = self.fastest_peer, self.ms(rival)
        peer_ms = None if peer is None else self.ms(peer)
        return None if ms is None or peer_ms is None else peer_ms / ms

    def of_limit(self, rival: str) -> float | None:
        """Return the throughput as a fraction of the limit's."""
        limit, ms = self.ms("limit"), self.ms(rival)
        return None if limit is None or ms is None else limit / ms

    def to_json(self) -> dict[str, Any]:
        rivals = {
            name: {"median_ms": self.ms(name), "gb_per_s": self.gb_per_s(name), "rounds_ms": rounds}
            for name, rounds in self.rounds_ms.items()
        }
        return {
            "workload": self.name,
            **self.facts,
            "output_nbytes": self.output_nbytes,
            "rivals": rivals,
            "fastest_peer": self.fastest_peer,
            "times_fastest_peer": self.speedup(),
            "of_limit": self.of_limit(self.quoted),
            "of_limit_out": self.of_limit("gzarr out="),
            "notes": self.notes,
        }


class Read(Measured):
    """One workload of reading into host memory."""

    quoted = FRESH

    def to_json(self) -> dict[str, Any]:
        return {**super().to_json(), "recycled_times_fastest_peer": self.speedup(RECYCLED)}


@dataclass(frozen=True)
class Target:
    """A target of the project."""

    name: str
    value: float | None
    bound: float
    unit: str
    at_least: bool = False
    note: str = ""

    @property
    def met(self) -> bool | None:
        if self.value is None:
            return None
        return self.value >= self.bound if self.at_least else self.value <= self.bound

    def to_json(self) -> dict[str, Any]:
        return {**self.__dict__, "met": self.met}


def geometric_mean(values: Sequence[float]) -> float | None:
    """Return the geometric mean, or None if there are no values."""
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None


def as_table(rows: Sequence[Sequence[str]]) -> str:
    """Return rows as plain text: the first is the head, the first column is on the left, the others on the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))]
        lines.append("  ".join(cells).rstrip())
    lines.insert(1, "-" * max(map(len, lines)))
    return "\n".join(lines)


def as_number(value: float | None, digits: int = 2) -> str:
    """Return a number with some digits, small ones with two that count, or a dash for none."""
    if value is None:
        return "-"
    return f"{value:.{digits}f}" if value >= 10**-digits or value == 0 else f"{value:.2g}"


def as_milliseconds(value: float | None) -> str:
    """Return milliseconds with three digits that count, or a dash for none."""
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def table(measured: Sequence[Read], rivals: Sequence[str]) -> str:
    """Return the plain text tables: milliseconds with the ratios, then gigabytes per second, then the footnotes."""
    columns = ["limit", *(r for r in RIVALS if r in rivals)]
    marks: dict[str, int] = {}

    def mark(m: Measured, rival: str) -> str:
        note = m.notes.get(rival)
        return "" if note is None else f" [{marks.setdefault(f'{rival}: {note}', len(marks) + 1)}]"

    times = [["median ms", "ratio", *columns, "fresh x peer", "recycled x", "out= x", "fresh of limit", "out="]]
    speeds = [["GB/s", *columns]]
    for m in measured:
        times.append(
            [
                m.name,
                as_number(m.facts.get("compression_ratio")),
                *(as_milliseconds(m.ms(c)) + mark(m, c) for c in columns),
                as_number(m.speedup(FRESH)),
                as_number(m.speedup(RECYCLED)),
                as_number(m.speedup("gzarr out=")),
                as_number(m.of_limit(FRESH)),
                as_number(m.of_limit("gzarr out=")),
            ]
        )
        speeds.append([m.name, *(as_number(m.gb_per_s(c)) for c in columns)])
    own = (FRESH, RECYCLED, "gzarr out=")
    means = [geometric_mean([v for m in measured if (v := m.speedup(r)) is not None]) for r in own]
    times.append(["geometric mean", "", *[""] * len(columns), *map(as_number, means), "", ""])
    notes = "\n".join(f"[{number}] {note}" for note, number in marks.items())
    return "\n\n".join(filter(None, [as_table(times), as_table(speeds), notes]))


def stages_table(measured: Sequence[Measured]) -> str:
    """Return the plain text table of gzarr's stages: milliseconds of thread time in each."""
    parts = ("wall", "read", "decode", "place", "other")
    rows = [["thread ms", "column", "wall x threads", *parts[1:]]]
    for m in measured:
        for rival, stages in m.facts.get("stages_thread_ms", {}).items():
            rows.append(
                [m.name, rival, *(as_milliseconds(stages[s]) for s in ("wall", "read", "decode", "place", "other"))]
            )
    return as_table(rows)


def speed_targets(measured: Sequence[Read]) -> list[Target]:
    """Return the project's targets, compared with the times of the workloads."""
    speedups = {m.name: v for m in measured if (v := m.speedup()) is not None}
    of_limit = {
        m.name: v
        for m in measured
        if m.whole and m.chunk_nbytes >= LIMIT_CHUNK_NBYTES and (v := m.of_limit("gzarr out=")) is not None
    }
    slowest = min(speedups, key=speedups.__getitem__, default="")
    farthest = min(of_limit, key=of_limit.__getitem__, default="")
    mean = geometric_mean(list(speedups.values()))
    count = f"{len(speedups)} workloads"
    return [
        Target(
            "least times fastest peer, fresh", speedups.get(slowest), LEAST_SPEEDUP, "x", at_least=True, note=slowest
        ),
        Target("geometric mean, fresh", mean, LEAST_GEOMETRIC_MEAN, "x", at_least=True, note=count),
        Target("least of limit, out=", of_limit.get(farthest), LEAST_OF_LIMIT, "", at_least=True, note=farthest),
    ]


def targets_table(targets: Sequence[Target]) -> str:
    """Return the plain text table of targets."""
    rows = [["targets", "measured", "wanted", "unit", "met", "where"]]
    for t in targets:
        met = {True: "yes", False: "NO", None: "-"}[t.met]
        rows.append([t.name, as_number(t.value, 3), f"{'>=' if t.at_least else '<='} {t.bound:g}", t.unit, met, t.note])
    return as_table(rows)


def machine() -> dict[str, Any]:
    """Return facts about this computer."""
    import os

    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = [line for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        model = lines[0].split(":", 1)[1].strip() if lines else model
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    facts = {"cpu": model, "cores": cores, "system": platform.platform(), "python": platform.python_version()}
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        facts["memory_gib"] = round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1)
    return facts


def header(script: str, argv: Sequence[str] | None, versions: Mapping[str, str], **more: Any) -> dict[str, Any]:
    """Return what every file of results begins with: the command, when, where and with what it ran."""
    return {
        "command": shlex.join(["python", f"benchmarks/{script}", *(sys.argv[1:] if argv is None else argv)]),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "versions": dict(versions),
        **more,
    }


def heading(header: Mapping[str, Any], *more: str) -> str:
    """Return the plain text before the tables: the command, the machine and how much it ran, the versions."""
    facts = header["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in header["versions"].items())
    about = ", ".join([facts["cpu"], f"{facts['cores']} cores", *more])
    return f"{header['command']}\n{about}\n{versions}"


def save(file: Path | None, document: Any) -> None:
    """Write what was measured to the file of ``--json``, if there is one.

    It is small, for results are kept with the code: six digits are more than any measurement has.
    """
    if file is not None:
        file.write_text(json.dumps(_rounded(document), separators=(",", ":")) + "\n")


def _rounded(value: Any) -> Any:
    """Return a document with all its floats rounded to six digits."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {name: _rounded(one) for name, one in value.items()}
    return [_rounded(one) for one in value] if isinstance(value, list | tuple) else value


def save_workloads(
    file: Path | None, header: Mapping[str, Any], measured: Sequence[Measured], targets: Sequence[Target]
) -> None:
    """Write the workloads and the targets to the file of ``--json``, if there is one."""
    workloads, goals = [m.to_json() for m in measured], [t.to_json() for t in targets]
    save(file, {**header, "workloads": workloads, "targets": goals})


def say(text: str) -> None:
    """Say how far a benchmark is."""
    print(text, file=sys.stderr, flush=True)


def add_counts(parser: argparse.ArgumentParser, rounds: int, note: str = "") -> None:
    """Add the options of how much is measured: ``--rounds``, ``--threads`` and ``--scale``."""
    parser.add_argument("--rounds", type=int, default=rounds, help=f"timed rounds (default {rounds}{note})")
    parser.add_argument("--threads", type=int, default=machine()["cores"], help="default: this process's cores")
    parser.add_argument("--scale", type=float, default=1.0, help="part of the elements of each array, for smoke tests")


def check_counts(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    """End with a message if so much cannot be measured."""
    if arguments.rounds < 1 or arguments.threads < 1 or not 0 < arguments.scale <= 1:
        parser.error("--rounds and --threads must be positive, --scale in (0, 1]")
