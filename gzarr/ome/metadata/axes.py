"""Axes in documents."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from ...errors import MetadataError
from .model import Axis
from .units import UNITS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .model import Version
    from .problems import DocumentPart, Level

# Axes of versions before 0.3.
_DEFAULT: Final = ("t", "c", "z", "y", "x")
_DEFAULT_TYPES: Final = {"t": "time", "c": "channel", "z": "space", "y": "space", "x": "space"}


def axes_of(part: DocumentPart, version: Version) -> tuple[Axis, ...]:
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
        part.note("expected the axis of time first and the axes of space last", "text")
    elif names[-spaces:] != [name for name in ("z", "y", "x") if name in names] and version <= "0.5" and spaces == 3:
        part.note("expected axes of space in the order z, y, x", "should")
    return axes


def _rank(kind: str | None) -> int:
    return {"time": 0, "space": 2}.get(kind or "", 1)


def _axis(part: DocumentPart, version: Version) -> Axis:
    if version == "0.3" and isinstance(part.value, str):
        name = part.string()
        return Axis(name, _DEFAULT_TYPES.get(name))
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


def _unit(part: DocumentPart, kind: str | None, level: Level) -> str:
    if not isinstance(part.value, str):
        raise part.wrong("the name of a unit", level)
    known = UNITS.get(kind or "")
    if known is not None and part.value not in known:
        part.note(
            f"expected a unit of {kind} of UDUNITS-2, such as {next(iter(known))!r}, got {part.value!r}", "should"
        )
    return part.value


def axes_by_ndim(ndim: int, names: Sequence[str | None] | None, group: str) -> tuple[Axis, ...]:
    """Return the axes of an array whose document has none: by its dimension names, or the last of t, c, z, y, x.

    Parameters
    ----------
    ndim
        Number of dimensions.
    names
        Dimension names of the array, if it has any.
    group
        Name of the group, for messages.

    Raises
    ------
    MetadataError
        If the array has more than five dimensions, and no names.
    """
    known = [name for name in names or () if name]
    if len(set(known)) != ndim:
        if ndim > len(_DEFAULT):
            raise MetadataError(f"{group} lacks axes, and its array of {ndim} dimensions has no names of them")
        known = list(_DEFAULT[len(_DEFAULT) - ndim :])
    return tuple(Axis(name, _DEFAULT_TYPES.get(name)) for name in known)
