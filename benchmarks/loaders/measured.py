"""What was measured of loaders, by scenario."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from loaders.rivals import OWN, RIVALS

if TYPE_CHECKING:
    from loaders.scenarios import Scenario


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
