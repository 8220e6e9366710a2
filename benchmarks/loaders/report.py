"""Tables and targets of the benchmark of loaders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from report import Target, as_table, geometric_mean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loaders.measured import Row

#: The column whose ratios are the result, and gzarr's default.
QUOTED, DEFAULT = "gzarr fresh", "gzarr"
#: The project's targets beside each scenario's own multiple of the fastest rival.
LEAST_MEAN, MOST_FIRST_S, MOST_WAITED = 1.8, 0.1, 0.05
#: Seconds that a consumer takes for a batch.
BUSY_S = 0.02
_MIB = 1 << 20


def _cell(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def table(row: Row) -> str:
    """Return the plain text table of one scenario."""
    s = row.scenario
    names = [
        "samples/s",
        "x fastest",
        "per CPU s",
        "first ms",
        "amplif.",
        "mixing",
        "runs",
        "peak MiB",
        "waits",
        "checked",
    ]
    lines = [[s.name, *names]]
    for column, one in row.measured.items():
        check = one.check
        lines.append(
            [
                column,
                _cell(one.samples_per_s, ".0f") + ("" if all(r["whole"] for r in one.rounds) else "*"),
                _cell(row.times_fastest(column), ".2f"),
                _cell(one.median("samples", "cpu_s"), ".0f"),
                _cell(_times(one.median("first_s"), 1e3), ".1f"),
                _cell(check.get("amplification"), ".2f"),
                _cell(check.get("mixing"), ".0%"),
                _runs(one),
                _cell(_times(one.peak_bytes, 1 / _MIB), ".0f"),
                _cell(one.wait and one.wait["waited"], ".0%"),
                "all" if check.get("complete") else str(check.get("samples")),
            ]
        )
    outer = f", shards {s.shard}" if s.shard else ""
    about = (
        f"{len(s.origins)} samples of {s.sample_nbytes / 1024:.0f} KiB, batches of {s.batch}; "
        f"{len(s.names)} x {s.shape} {s.dtype}, chunks {s.chunk}{outer}"
    )
    return f"{about}\n{as_table(lines)}"


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _ratio(own: Any, rival: Any) -> float | None:
    """Return the samples per second of processor time to those of a rival."""
    rates = [one and one.median("samples", "cpu_s") for one in (own, rival)]
    return rates[0] / rates[1] if all(rates) else None


def _runs(one: Any) -> str:
    """Return the independent runs that batches are drawn from."""
    if one is None or not one.check:
        return "-"
    runs = one.check["runs"]
    return "any" if runs is None else format(runs, ".0f")


def _mixes_less(own: Any, rival: Any) -> bool:
    """Return whether batches are drawn from fewer runs, by more than what is measured inexactly."""
    mine, theirs = own.check["runs"], rival.check["runs"]
    return mine is not None and (theirs is None or mine < 0.9 * theirs)


def summary(rows: Sequence[Row]) -> str:
    """Return the plain text table of all scenarios: gzarr beside the fastest rival."""
    names = [
        "fastest rival",
        "samples/s",
        "gzarr",
        "fresh",
        "gzarr x",
        "fresh x",
        "target",
        "CPU x",
        "runs",
        "peak MiB",
        "first ms",
        "waits",
    ]
    lines = [["gzarr beside its rival's", *names]]
    for row in rows:
        rival = row.measured.get(row.fastest_rival or "")
        own = row.measured.get(QUOTED)
        lines.append(
            [
                row.scenario.name,
                row.fastest_rival or "-",
                _cell(rival and rival.samples_per_s, ".0f"),
                _cell(row.rate(DEFAULT), ".0f"),
                _cell(row.rate(QUOTED), ".0f"),
                _cell(row.times_fastest(DEFAULT), ".2f"),
                _cell(row.times_fastest(QUOTED), ".2f"),
                f"{row.scenario.least}",
                _cell(_ratio(own, rival), ".2f"),
                f"{_runs(own)} / {_runs(rival)}",
                f"{_cell(_times(own and own.peak_bytes, 1 / _MIB), '.0f')} / "
                f"{_cell(_times(rival and rival.peak_bytes, 1 / _MIB), '.0f')}",
                f"{_cell(_times(own and own.median('first_s'), 1e3), '.0f')} / "
                f"{_cell(_times(rival and rival.median('first_s'), 1e3), '.0f')}",
                f"{_cell(own and own.wait and own.wait['waited'], '.0%')} / "
                f"{_cell(rival and rival.wait and rival.wait['waited'], '.0%')}",
            ]
        )
    return as_table(lines)


def targets(rows: Sequence[Row]) -> list[Target]:
    """Return the project's targets, compared with what was measured."""
    found = []
    for row in rows:
        rival, own = row.measured.get(row.fastest_rival or ""), row.measured.get(QUOTED)
        if own is None:
            continue
        name = row.scenario.name
        note = ""
        if rival is not None:
            less = _mixes_less(own, rival)
            more = (own.peak_bytes or 0) > (rival.peak_bytes or 0)
            notes = ["mixes less"] * less + ["takes more memory"] * more
            note = f"{row.fastest_rival}{': gzarr ' + ' and '.join(notes) if notes else ''}"
        found.append(Target(f"{name}: x fastest rival", row.times_fastest(QUOTED), row.scenario.least, "x", True, note))
    ratios = [ratio for row in rows if (ratio := row.times_fastest(QUOTED)) is not None]
    found.append(Target("geometric mean", geometric_mean(ratios), LEAST_MEAN, "x", True, f"{len(ratios)} scenarios"))
    for row in rows:
        own = row.measured.get(QUOTED)
        if own is None:
            continue
        name = row.scenario.name
        found.append(Target(f"{name}: first batch", own.median("first_s"), MOST_FIRST_S, "s"))
        if own.peak_bytes is not None:
            bound = own.check["bound"] / _MIB
            found.append(Target(f"{name}: memory", own.peak_bytes / _MIB, round(bound), "MiB"))
        batch_s = own.median("seconds", "batches")
        if own.wait is not None and batch_s is not None:
            # Where a batch takes longer than the consumer, it has to wait.
            waited = own.wait["waited"] if batch_s < 0.9 * BUSY_S else None
            note = f"{1e3 * batch_s:.0f} ms a batch"
            found.append(Target(f"{name}: waiting for batches", waited, MOST_WAITED, "", note=note))
    return found
