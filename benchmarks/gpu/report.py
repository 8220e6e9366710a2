"""Output of the GPU benchmark: figures of a workload, ratios, targets. Nothing here needs a GPU."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from report import Measured, Target, as_milliseconds, as_number, as_table, geometric_mean

from gpu.limits import LIMITS
from gpu.rivals import PEERS, RIVALS

if TYPE_CHECKING:
    from collections.abc import Sequence

#: The project's targets: multiple of the fastest rival, fraction of the slowest limit, and two others.
LEAST_SPEEDUP, LEAST_OF_LIMIT = 3.0, 0.75
MOST_FIRST_ARRAY_MS, MOST_HOST_US = 100.0, 2.0
#: Sizes and codecs of the chunks that are compared with the limit.
LIMIT_CHUNK_NBYTES = (64 << 10, 1 << 20)
LIMIT_CODECS = ("blosc", "lz4", "zstd")


@dataclass
class DeviceMeasured(Measured):
    """One workload on a device; its limits are in ``rounds_ms`` as ``"limit NAME"``."""

    #: Milliseconds between two CUDA events, by rival and limit.
    device_rounds_ms: dict[str, list[float]] = field(default_factory=dict)
    #: Rivals whose times are those of a part of the read, multiplied by this number of parts.
    estimated: dict[str, int] = field(default_factory=dict)
    #: Whether every result was right, and gzarr read it.
    sound: bool = True

    @property
    def fastest_peer(self) -> str | None:
        times = {peer: ms for peer in PEERS if (ms := self.ms(peer)) is not None}
        return min(times, key=times.__getitem__) if times else None

    def limit_ms(self, name: str) -> float | None:
        """Return the median of a limit; for reading, of the faster way."""
        names = [f"limit {name}", *(["limit read, natively"] if name == "read" else [])]
        return min((ms for n in names if (ms := self.ms(n)) is not None), default=None)

    @property
    def slowest_limit(self) -> str | None:
        """The slowest of the steps that every reader needs."""
        times = {name: ms for name in LIMITS if (ms := self.limit_ms(name)) is not None}
        return max(times, key=times.__getitem__) if times else None

    def of_limit(self, rival: str) -> float | None:
        """Return the throughput as a fraction of the slowest limit's."""
        name, ms = self.slowest_limit, self.ms(rival)
        limit = None if name is None else self.limit_ms(name)
        return None if limit is None or ms is None else limit / ms

    @property
    def held_against_limit(self) -> bool:
        codecs = {codec["name"] for codec in self.facts.get("codecs", ())}
        low, high = LIMIT_CHUNK_NBYTES
        return self.whole and low <= self.chunk_nbytes <= high and not codecs.isdisjoint(LIMIT_CODECS)

    def to_json(self) -> dict[str, Any]:
        document = super().to_json()
        for name, rounds in self.device_rounds_ms.items():
            if name in document["rivals"] and rounds:
                document["rivals"][name]["median_device_ms"] = statistics.median(rounds)
        return {
            **document,
            "limits_ms": {name: self.limit_ms(name) for name in LIMITS},
            "slowest_limit": self.slowest_limit,
            "estimated_from_a_part": self.estimated,
            "sound": self.sound,
        }


def table(measured: Sequence[DeviceMeasured], rivals: Sequence[str]) -> str:
    """Return the plain text table of milliseconds and the two ratios, then footnotes."""
    columns = [r for r in RIVALS if r in rivals]
    marks: dict[str, int] = {}

    def cell(m: DeviceMeasured, rival: str) -> str:
        note = m.notes.get(rival)
        mark = "" if note is None else f" [{marks.setdefault(f'{rival}: {note}', len(marks) + 1)}]"
        return ("~" if rival in m.estimated else "") + as_milliseconds(m.ms(rival)) + mark

    rows = [["median ms", "GB/s", *columns, *LIMITS, "x fastest rival", "of slowest limit"]]
    for m in measured:
        ours = [r for r in ("gzarr", "gzarr out=") if m.ms(r) is not None]
        best = max(ours, key=lambda r, m=m: m.of_limit(r) or 0.0, default="gzarr")
        speedup, of_limit = m.speedup(), m.of_limit(best)
        rows.append(
            [
                m.name,
                as_number(m.gb_per_s("gzarr")),
                *(cell(m, c) for c in columns),
                *(as_milliseconds(m.limit_ms(name)) for name in LIMITS),
                as_number(speedup) + (f" {m.fastest_peer}" if speedup is not None else ""),
                as_number(of_limit) + (f" {m.slowest_limit}" if of_limit is not None else ""),
            ]
        )
    notes = [f"[{number}] {note}" for note, number in marks.items()]
    if any(m.estimated for m in measured):
        notes.append("~ a part of the read was timed; the time is multiplied by the number of parts")
    return "\n".join([as_table(rows), *([""] if notes else []), *notes])


def beside(rates: Sequence[dict[str, Any]], waves: Sequence[dict[str, Any]]) -> str:
    """Return plain text tables of gigabytes per second: of decoders by batch, and of reads by wave."""

    def cell(rows: list[dict[str, Any]]) -> str:
        (row,) = rows or [{}]
        return f"{row['gb_per_s']:.2f}" if "gb_per_s" in row else "failed" if "error" in row else "-"

    def table(name: str, rows: Sequence[dict[str, Any]], down: tuple[str, str], across: str) -> list[str]:
        columns = sorted({row[across] for row in rows if across in row})
        keys = list(dict.fromkeys(tuple(row[key] for key in down) for row in rows if across in row))
        lines = [[name, *(f"{column}" for column in columns)]]
        for key in keys:
            of = [row for row in rows if across in row and tuple(row[k] for k in down) == key]
            lines.append([" x ".join(map(str, key)), *(cell([r for r in of if r[across] == c]) for c in columns)])
        return [as_table(lines), ""] if keys else []

    return "\n".join(
        [
            *table("GB/s, frames of bytes", rates, ("frames", "frame_nbytes"), "algorithm"),
            *table("GB/s, bytes of a wave", waves, ("workload", "wave_nbytes"), "in_flight"),
        ]
    )


def targets(
    measured: Sequence[DeviceMeasured], first_array_ms: float | None = None, host_us: float | None = None
) -> list[Target]:
    """Return the project's targets, each compared with the measurements.

    Parameters
    ----------
    measured
        The workloads.
    first_array_ms
        Time from open to the first array, in milliseconds.
    host_us
        Time of the host per chunk, in microseconds.
    """
    speedups = {m.name: v for m in measured if (v := m.speedup()) is not None}
    of_limit = {m.name: v for m in measured if m.held_against_limit and (v := m.of_limit("gzarr out=")) is not None}
    slowest = min(speedups, key=speedups.__getitem__, default="")
    farthest = min(of_limit, key=of_limit.__getitem__, default="")
    mean = geometric_mean(list(speedups.values()))
    average = "" if mean is None else f", {mean:.2f} on average"
    return [
        Target(
            "least times fastest rival", speedups.get(slowest), LEAST_SPEEDUP, "x", at_least=True,
            note=f"{slowest}; {len(speedups)} workloads{average}",
        ),
        Target(
            "least of limit, 64 KiB to 1 MiB", of_limit.get(farthest), LEAST_OF_LIMIT, "", at_least=True,
            note=f"{farthest}; {len(of_limit)} workloads",
        ),
        Target("open to first array", first_array_ms, MOST_FIRST_ARRAY_MS, "ms"),
        Target("host, a chunk", host_us, MOST_HOST_US, "us"),
    ]  # fmt: skip
