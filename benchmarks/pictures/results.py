"""Results of benchmarks as figures take them: files, ratios, captions."""

from __future__ import annotations

import hashlib
import json
import re
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from report import geometric_mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

RESULTS = Path(__file__).resolve().parents[1] / "results"
#: Options of commands that name files of the machine that ran them.
_PATHS = re.compile(r" --(json|plot|data)[ =]\S+")


@dataclass(frozen=True)
class Result:
    """A file of results.

    Attributes
    ----------
    name
        Name of the benchmark, such as ``"read"``.
    file
        The file.
    data
        Its content.
    """

    name: str
    file: Path
    data: Any

    @classmethod
    def newest(cls, name: str, folder: Path = RESULTS) -> Result | None:
        """Return the newest results of a benchmark, or None if there are none."""
        dated = re.compile(rf"\d{{4}}-\d\d-\d\d-{re.escape(name)}-cpu\.json")
        files = sorted(file for file in folder.iterdir() if dated.fullmatch(file.name))
        return cls(name, files[-1], json.loads(files[-1].read_text())) if files else None

    @property
    def source(self) -> str:
        """The file and its checksum, as it stands in the figure."""
        return f"{self.file.name} sha256:{hashlib.sha256(self.file.read_bytes()).hexdigest()}"

    def version(self, package: str) -> str:
        """Return a package and its version."""
        return f"{package} {self.data.get('versions', {}).get(package, '')}".rstrip()

    def caption(self, *more: str) -> list[str]:
        """Return what, where and when it was measured."""
        data = self.data
        command = _PATHS.sub("", data.get("command") or f"python benchmarks/{self.name.replace('-', '_')}.py")
        where = [self._machine(), f"{data['threads']} threads" if "threads" in data else ""]
        rounds = f"median of {data['rounds']} rounds" if "rounds" in data else ""
        own = self.version("gzarr") if "gzarr" in data.get("versions", {}) else ""
        facts = filter(None, [command, *where, rounds, own, self.file.name[:10]])
        return [*wrapped(facts), *more]

    def _machine(self) -> str:
        machine = self.data.get("machine")
        if machine is not None:
            # Processors write their names in several ways.
            cpu = re.sub(r"\((R|TM)\)| Processor", "", machine.get("cpu") or machine["processor"])
            python = f", Python {machine['python']}" if "python" in machine else ""
            return f"{cpu}, {machine['cores']} cores{python}"
        table = self.file.with_suffix(".txt")
        lines = table.read_text().splitlines()[:3] if table.exists() else []
        return next((line for line in lines if "cores" in line or "processors" in line), "")


@dataclass(frozen=True)
class Figure:
    """A figure: its name, its SVG, and what it shows, in words."""

    name: str
    svg: str
    alt: str


def wrapped(parts: Iterable[str], width: int = 100) -> list[str]:
    """Return parts joined by dots, in lines; longer ones go on in the next line."""
    lines: list[str] = []
    for part in parts:
        if lines and len(lines[-1]) + 3 + len(part) <= width:
            lines[-1] += f" · {part}"
        else:
            lines += textwrap.wrap(part, width, break_long_words=False, break_on_hyphens=False)
    return lines


def ratios(times: Mapping[str, float], peers: Iterable[str]) -> dict[str, float]:
    """Return speeds as multiples of the fastest peer's, from times."""
    fastest = min(times[peer] for peer in peers if peer in times)
    return {name: fastest / time for name, time in times.items()}


def ratio(value: float) -> str:
    """Return a ratio with its sign."""
    return f"{value:.2f}×" if value < 10 else f"{value:.0f}×"


def summary(values: Mapping[str, float]) -> str:
    """Return the mean of ratios and their ends, with the names of the rows."""
    low, high = min(values, key=values.__getitem__), max(values, key=values.__getitem__)
    return (
        f"{mean(values.values())} times as fast as the fastest other library in the geometric mean of {len(values)} "
        f"rows, from {values[low]:.2f} ({low}) to {values[high]:.2f} ({high})"
    )


def mean(values: Iterable[float]) -> str:
    """Return the geometric mean of ratios."""
    return f"{geometric_mean(list(values)):.2f}"
