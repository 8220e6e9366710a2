"""Transformations of images before version 0.6 that have coordinate systems with names, as SpatialData writes them.

Version 0.5 has one list of transformations that are applied one after the other. In the list of SpatialData each one
has an ``input`` and an ``output`` with the names of coordinate systems and of their axes: they are alternatives, from
the coordinates of the levels to different systems, and match axes by name, not by place.

Source: ``spatialdata.transformations.ngff``, version 0.7.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np

from ...errors import MetadataError
from .axes import axes_of
from .model import (
    PHYSICAL,
    Axis,
    CoordinateSystem,
    Scale,
    SystemLink,
    SystemReference,
    Translation,
    UnknownTransform,
)
from .problems import DocumentPart

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from .model import Transform

    Matrix: TypeAlias = npt.NDArray[np.float64]

#: The one to take of several: the name that SpatialData has for its default.
_DEFAULTS: Final = (PHYSICAL, "global")
#: Name of the coordinate system of the levels if transformations do not tell their input.
_LEVELS: Final = "levels"
#: Unit that SpatialData writes where there is none.
_NO_UNIT: Final = "unit"
_MAX_NESTED: Final = 16


class NamedSystems(NamedTuple):
    """What a list of transformations with names says.

    Attributes
    ----------
    systems, links
        The coordinate systems, that of the levels first, and the transformations between them. Their axes have the
        order of the image's axes.
    system
        Name of the one that the levels are in.
    physical
        Name of the one to take for scale and translation; None if there are several and none is the default.
    transforms
        Transformations from ``system`` to ``physical``.
    """

    systems: tuple[CoordinateSystem, ...]
    links: tuple[SystemLink, ...]
    system: str
    physical: str | None
    transforms: tuple[Transform, ...]


def named_systems(part: DocumentPart, axes: tuple[Axis, ...]) -> NamedSystems | None:
    """Return what a list of transformations with names says; None if these have no names.

    Parameters
    ----------
    part
        The list. Nothing is noted of it.
    axes
        Axes of the image.
    """
    # The rules of the version, which knows no names, are checked elsewhere.
    part = DocumentPart(part.value, part.json_path, [])
    items = part.items() if isinstance(part.value, list | tuple) else []
    targets = [_name(item, "output") for item in items]
    if not items or None in targets:
        return None
    sources = [_name(item, "input") for item in items]
    system = next((name for name in sources if name is not None and name not in targets), sources[0]) or _LEVELS
    systems = {system: CoordinateSystem(system, axes)}
    links: list[SystemLink] = []
    direct: dict[str, tuple[Transform, ...]] = {}
    for item, source, target in zip(items, sources, targets, strict=True):
        assert target is not None
        link, own, steps = _link(item, SystemReference(source or system), SystemReference(target), axes)
        links.append(link)
        systems.setdefault(target, CoordinateSystem(target, own))
        if source in (None, system):
            direct.setdefault(target, steps)
    named = [name for name in direct if name != system]
    physical = named[0] if len(named) == 1 else next((name for name in _DEFAULTS if name in named), None)
    if physical is None:
        return NamedSystems(tuple(systems.values()), tuple(links), system, None, (UnknownTransform(None, part.value),))
    if PHYSICAL not in systems:
        # As images without names have it.
        systems[PHYSICAL] = CoordinateSystem(PHYSICAL, systems[physical].axes)
        same = SystemReference(physical), SystemReference(PHYSICAL)
        links.append(SystemLink(*same, "identity", {"type": "identity"}, part.json_path))
    return NamedSystems(tuple(systems.values()), tuple(links), system, physical, direct[physical])


def _link(
    item: DocumentPart, source: SystemReference, target: SystemReference, axes: tuple[Axis, ...]
) -> tuple[SystemLink, tuple[Axis, ...], tuple[Transform, ...]]:
    """Return a transformation, the axes of its output, and it as a scale and a translation if it is that."""
    names = [axis.name for axis in axes]
    own = _axes(item, "output") or axes
    kind = item.value.get("type")
    kind = kind if isinstance(kind, str) else None
    document = item.value
    steps: tuple[Transform, ...] = (UnknownTransform(kind, document),)
    try:
        rows, found = applied([item], names)
    except MetadataError:
        # Of a type that needs the store, or not readable: that is said when it is used.
        return SystemLink(source, target, kind, document, item.json_path), own, steps
    by_name = {axis.name: axis for axis in own}
    own = tuple(by_name.get(name) or Axis(name) for name in found)
    diagonal = _steps(rows) if found == names else None
    if diagonal is not None:
        steps = Scale(diagonal[0]), Translation(diagonal[1])
    document = {"type": "affine", "affine": rows.tolist()}
    return SystemLink(source, target, kind, document, item.json_path), own, steps


def _steps(rows: Matrix) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """Return the numbers of a scale and of the translation after it; None if a map is something else."""
    linear = rows[:, :-1]
    if not np.array_equal(linear, np.diag(np.diag(linear))):
        return None
    return tuple(np.diag(linear).tolist()), tuple(rows[:, -1].tolist())


def _name(item: DocumentPart, member: str) -> str | None:
    """Return the name of a coordinate system, None if a transformation does not tell it."""
    system = item.value.get(member) if isinstance(item.value, dict) else None
    name = system.get("name") if isinstance(system, dict) else system
    return name if isinstance(name, str) and name else None


def _axes(item: DocumentPart, member: str) -> tuple[Axis, ...] | None:
    """Return the axes of a coordinate system, None if a transformation does not tell them."""
    system = item.value.get(member)
    if not isinstance(system, dict) or "axes" not in system:
        return None
    try:
        found = axes_of(item.at(member).at("axes"), "0.5")
    except MetadataError:
        return None
    return tuple(Axis(axis.name, axis.type, None if axis.unit == _NO_UNIT else axis.unit) for axis in found)


# -- of other axes


def transforms_along(documents: Any, names: list[str], wanted: list[str]) -> list[Any]:
    """Return the transformations of an image for one with other axes, such as its labels.

    Parameters
    ----------
    documents
        The list of the image.
    names
        Names of its axes.
    wanted
        Names of the other's axes. What the image lacks stays as it is.

    Raises
    ------
    MetadataError
        If a transformation mixes axes of the two with others, or cannot be read.
    """
    if wanted == names:
        return list(documents)
    items = DocumentPart(documents, "$..multiscales[*].coordinateTransformations", []).items()
    named = all(_name(item, "output") for item in items)
    return [_along(group, names, wanted) for group in ([[item] for item in items] if named else [items])]


def _along(items: list[DocumentPart], names: list[str], wanted: list[str]) -> dict[str, Any]:
    rows, found = applied(items, names)
    if found != names:
        raise items[0].wrong(f"a transformation to the axes {', '.join(names)}")
    places = [names.index(name) if name in names else None for name in wanted]
    dropped = [i for i, name in enumerate(names) if name not in wanted]
    own = np.eye(len(wanted), len(wanted) + 1)
    for i, row in enumerate(places):
        if row is None:
            continue
        if rows[row, dropped].any():
            raise items[0].wrong(f"a transformation that leaves the axes {', '.join(wanted)} to themselves")
        own[i] = [0.0 if column is None else rows[row, column] for column in places] + [rows[row, -1]]
    ends: dict[str, Any] = {}
    for member in ("input", "output"):
        name = _name(items[0], member)
        if name is not None:
            known = {axis.name: axis for axis in _axes(items[0], member) or ()}
            axes = [known.get(axis) or Axis(axis) for axis in wanted]
            members = [{"name": one.name, "type": one.type, "unit": one.unit} for one in axes]
            ends[member] = {"name": name, "axes": [{k: v for k, v in one.items() if v is not None} for one in members]}
    steps = _steps(own)
    if steps is None:
        return {"type": "affine", "affine": own.tolist(), **ends}
    scale, translation = (list(numbers) for numbers in steps)
    only = {"type": "scale", "scale": scale}
    if not any(translation):
        return {**only, **ends}
    return {"type": "sequence", "transformations": [only, {"type": "translation", "translation": translation}], **ends}


# -- matrices


def applied(items: Sequence[DocumentPart], names: list[str]) -> tuple[Matrix, list[str]]:
    """Return the affine map of transformations that follow each other.

    Parameters
    ----------
    items
        The transformations.
    names
        Names of the axes of their input.

    Returns
    -------
    float64 ``(k, len(names) + 1)`` with the offset in the last column, and the names of the ``k`` axes of the output:
    ``names``, if it has the same ones.

    Raises
    ------
    MetadataError
        If one cannot be read, or is of a type that is not affine or needs the store.
    """
    rows, found = np.eye(len(names), len(names) + 1), names
    for item in items:
        rows, found = _after(item, rows, found, 0)
    return (_ordered(item, rows, found, names), names) if set(found) == set(names) else (rows, found)


def _after(item: DocumentPart, rows: Matrix, names: list[str], depth: int) -> tuple[Matrix, list[str]]:
    """Return the map, and the names of its output, after one more transformation."""
    kind = item.object().value.get("type")
    inputs, outputs = ([axis.name for axis in _axes(item, member) or ()] for member in ("input", "output"))
    inputs = inputs or names
    rows = _ordered(item, rows, names, inputs)
    if kind == "sequence":
        if depth >= _MAX_NESTED:
            raise item.wrong(f"at most {_MAX_NESTED} transformations inside each other")
        found = inputs
        for step in item.needed("transformations", lambda items: items.items(1)):
            rows, found = _after(step, rows, found, depth + 1)
        return (_ordered(item, rows, found, outputs), outputs) if outputs else (rows, found)
    outputs = outputs or inputs
    own = _matrix(item, kind, inputs, outputs)
    if own.shape != (len(outputs), len(inputs) + 1):
        raise item.wrong(f"a transformation from {len(inputs)} axes to {len(outputs)}")
    rows = own[:, :-1] @ rows
    rows[:, -1] += own[:, -1]
    return rows, outputs


def _matrix(item: DocumentPart, kind: Any, inputs: list[str], outputs: list[str]) -> Matrix:
    """Return the matrix of a transformation that is no sequence."""
    ndim = len(inputs)
    if kind == "identity":
        return np.eye(ndim, ndim + 1)
    if kind == "scale":
        return np.column_stack([np.diag(item.needed("scale", partial(_numbers, count=ndim))), np.zeros(ndim)])
    if kind == "translation":
        return np.column_stack([np.eye(ndim), item.needed("translation", partial(_numbers, count=ndim))])
    if kind == "affine":
        return np.array([_numbers(row, ndim + 1) for row in item.needed("affine", lambda rows: rows.items(1))])
    if kind == "mapAxis" and isinstance(item.value.get("mapAxis"), dict):
        sources = [item.value["mapAxis"].get(name, name) for name in outputs]
        if not all(isinstance(name, str) and name in inputs for name in sources):
            raise item.at("mapAxis").wrong(f"names of the axes {', '.join(inputs)}")
        return np.eye(ndim, ndim + 1)[[inputs.index(name) for name in sources]]
    raise item.wrong("a transformation that is affine")


def _numbers(part: DocumentPart, count: int) -> list[float]:
    items = part.items()
    if len(items) != count:
        raise part.wrong(f"{count} numbers")
    return [item.number() for item in items]


def _ordered(item: DocumentPart, rows: Matrix, names: list[str], wanted: list[str]) -> Matrix:
    """Return coordinates of axes in another order."""
    if names == wanted:
        return rows
    if sorted(names) != sorted(wanted):
        raise item.wrong(f"a transformation of the axes {', '.join(names)}")
    return rows[[names.index(name) for name in wanted]]
