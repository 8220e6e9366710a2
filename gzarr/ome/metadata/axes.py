"""Axes in documents."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from .model import Axis
from .units import SPACE_UNITS, TIME_UNITS

if TYPE_CHECKING:
    from .model import Version
    from .problems import Level, Part


def axes_of(part: Part, version: Version) -> tuple[Axis, ...]:
    """Return axes; names that are equal are an error, other broken rules are noted."""
    items = part.items(1, 5, unique=True)
    if version in ("0.4", "0.5") and len(items) < 2:
        part.note("expected at least 2 axes")
    axes = tuple(_axis(item, version) for item in items)
    names = [axis.name for axis in axes]
    if len(set(names)) < len(names):
        raise part.wrong("names of axes that all differ", "text")
    types = [axis.type for axis in axes]
    spaces = types.count("space")
    if not 2 <= spaces <= 3 and not (version == "0.6" and types.count("array") >= 2):
        part.note(f"expected 2 or 3 axes of type 'space', got {spaces}", "text")
    elif types.count("time") > 1:
        part.note("expected at most one axis of type 'time'", "text")
    elif version in ("0.4", "0.5") and len(types) - spaces - types.count("time") > 1:
        part.note("expected at most one axis that is neither space nor time", "text")
    elif version in ("0.4", "0.5") and types != sorted(types, key=_rank):
        part.note("expected the axis of time first and those of space last", "text")
    elif names[-spaces:] != [name for name in ("z", "y", "x") if name in names] and version <= "0.5" and spaces == 3:
        part.note("expected axes of space in the order z, y, x", "should")
    return axes


def _rank(kind: str | None) -> int:
    return {"time": 0, "space": 2}.get(kind or "", 1)


def _axis(part: Part, version: Version) -> Axis:
    if version == "0.3" and isinstance(part.value, str):
        name = part.string()
        return Axis(name, {"t": "time", "c": "channel"}.get(name, "space" if name in ("z", "y", "x") else None))
    name = part.object().needed("name", lambda text: text.string())
    if not name:
        part.at("name").note("expected a name that is not empty", "schema" if version == "0.6" else "text")
    kind = part.optional("type", lambda text: text.string())
    unit = part.optional("unit", partial(_unit, kind=kind, level="schema" if version == "0.6" else "text"))
    if unit is None and kind in ("space", "time"):
        part.expect("unit", "should")
    if version != "0.6":
        return Axis(name, kind, unit)
    return Axis(
        name,
        kind,
        unit,
        part.optional("longName", lambda text: text.string()),
        part.optional("discrete", lambda flag: flag.boolean()),
    )


def _unit(part: Part, kind: str | None, level: Level) -> str:
    if not isinstance(part.value, str):
        raise part.wrong("the name of a unit", level)
    known = {"space": SPACE_UNITS, "time": TIME_UNITS}.get(kind or "")
    if known is not None and part.value not in known:
        part.note(
            f"expected a unit of {kind} of UDUNITS-2, such as {next(iter(known))!r}, got {part.value!r}", "should"
        )
    return part.value
