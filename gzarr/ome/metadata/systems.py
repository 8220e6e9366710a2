"""Coordinate systems and transformations of version 0.6, as far as its rules are settled (the candidate 0.6rc0).

A level has a scale, an identity, or a sequence of a scale and a translation: those are read. Transformations between
coordinate systems are checked, and kept as they are; :mod:`gzarr.ome.transforms` applies them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ...documents.json import quote
from ...errors import MetadataError
from .axes import axes_of
from .model import (
    CoordinateSystem,
    Dataset,
    Identity,
    Scale,
    SystemLink,
    SystemReference,
    Translation,
    UnknownTransform,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from .model import Transform
    from .problems import DocumentPart, Level

#: Sequences nested deeper are refused.
_MAX_NESTED: Final = 16


def coordinate_systems(part: DocumentPart) -> tuple[CoordinateSystem, ...]:
    """Return the coordinate systems of an image or a scene."""
    found = tuple(_system(item) for item in part.items(1))
    if len({system.name for system in found}) < len(found):
        part.note("expected names of coordinate systems that all differ", "text")
    return found


def _system(part: DocumentPart) -> CoordinateSystem:
    name = part.object().needed("name", lambda text: text.string())
    if not name:
        part.at("name").note("expected a name that is not empty")
    return CoordinateSystem(name, part.needed("axes", lambda axes: axes_of(axes, "0.6")))


def transforms_of_level(
    part: DocumentPart, systems: tuple[CoordinateSystem, ...]
) -> tuple[tuple[Dataset, ...], CoordinateSystem | None]:
    """Return the levels of an image, and the coordinate system that they are in."""
    read = [_dataset(item.object(), systems) for item in part.needed("datasets", lambda items: items.items(1))]
    names = {name for _, name in read if name is not None}
    if len(names) > 1:
        part.at("datasets").note("expected all levels in one coordinate system", "text")
    found = next((system for _, name in read for system in systems if system.name == name), None)
    if found is None and len(systems) == 1:
        found = systems[0]
    return tuple(dataset for dataset, _ in read), found


def _dataset(part: DocumentPart, systems: tuple[CoordinateSystem, ...]) -> tuple[Dataset, str | None]:
    path = part.needed("path", lambda text: text.string())
    items = part.needed("coordinateTransformations", lambda items: items.items(1, unique=True))
    if len(items) != 1:
        part.at("coordinateTransformations").note("expected one transformation")
    only = items[0].object()
    output = _reference(only, "output", "name")
    if output is not None and output not in [system.name for system in systems]:
        only.at("output").note("expected the name of a coordinate system of the image", "text")
    source = _reference(only, "input", "path")
    if source is not None and source != path:
        only.at("input").note(f"expected the path of the level, {quote(path)}", "should")
    ndim = next((len(system.axes) for system in systems if system.name == output), None)
    return Dataset(path, _of_level(only, ndim)), output


def _reference(part: DocumentPart, name: str, member: str) -> str | None:
    """Return the name or path that ``input`` or ``output`` refers to; note what is wrong."""
    if name not in part:
        part.note(f"lacks {name!r}")
        return None
    reference = part.at(name)
    try:
        if isinstance(reference.value, str):
            # As drafts of the version had it.
            reference.wrong("an object")
            return reference.value
        reference.object()
        for other in ("name", "path"):
            reference.optional(other, lambda text: text.string())
        return reference.needed(member, lambda text: text.string())
    except MetadataError:
        return None


def _of_level(part: DocumentPart, ndim: int | None) -> tuple[Transform, ...]:
    """Return a scale, an identity, or a scale and a translation."""
    part.optional("name", lambda text: text.string())
    kind = part.value.get("type")
    level: Level
    if kind == "sequence":
        steps = part.needed("transformations", lambda items: items.items())
        kinds = [step.object().value.get("type") for step in steps]
        if kinds == ["scale", "translation"]:
            return tuple(_simple(step, ndim) for step in steps)
        level = "text" if len(kinds) == 2 and set(map(str, kinds)) <= {"scale", "translation"} else "schema"
        part.note("expected a sequence of a scale and a translation", level)
        if all(kind in ("scale", "translation") for kind in kinds):
            return tuple(_simple(step, ndim) for step in steps)
    elif kind in ("scale", "identity"):
        return (_simple(part, ndim),)
    else:
        # To the schema, what has no type is an identity.
        level = "schema" if "type" in part else "text"
        part.note(
            f"expected a scale, an identity, or a sequence of a scale and a translation, got {quote(kind)}", level
        )
    return (UnknownTransform(kind if isinstance(kind, str) else None, part.value),)


def _simple(part: DocumentPart, ndim: int | None) -> Transform:
    kind = part.value["type"]
    if kind == "identity":
        return Identity()
    numbers = part.needed(kind, _positive if kind == "scale" else _vector)
    if ndim is not None and len(numbers) != ndim:
        part.at(kind).note(f"expected {ndim} numbers, one for each axis, got {len(numbers)}", "should")
    return Scale(numbers) if kind == "scale" else Translation(numbers)


def _vector(part: DocumentPart) -> tuple[float, ...]:
    return tuple(item.number() for item in part.items())


def _positive(part: DocumentPart) -> tuple[float, ...]:
    numbers = _vector(part)
    if any(number <= 0 for number in numbers):
        part.note("expected numbers above 0")
    return numbers


# -- transformations that are only checked


def further_transforms(part: DocumentPart, *, scene: bool = False) -> tuple[SystemLink, ...]:
    """Return the transformations between coordinate systems."""
    found = []
    for item in part.items(1):
        check_transform(item)
        if isinstance(item.value, dict):
            source, target = (_system_reference(item, name, scene=scene) for name in ("input", "output"))
            kind = item.value.get("type")
            found.append(
                SystemLink(source, target, kind if isinstance(kind, str) else None, item.value, item.json_path)
            )
    return tuple(found)


def _system_reference(item: DocumentPart, name: str, *, scene: bool) -> SystemReference | None:
    system = _reference(item, name, "name")
    if system is None:
        return None
    members = item.value[name]
    if not isinstance(members, dict):
        return SystemReference(system)
    if scene:
        _known_members(item.at(name))
    path = members.get("path")
    return SystemReference(system, path if isinstance(path, str) else None)


def _known_members(part: DocumentPart) -> None:
    if set(part.value) - {"name", "path"}:
        part.note("expected no members but 'name' and 'path'")


def check_transform(part: DocumentPart, depth: int = 0) -> None:
    """Note what is wrong in a transformation of any type."""
    try:
        kind = part.object().needed("type", lambda text: text.string())
        part.optional("name", lambda text: text.string())
        if kind not in _CHECKS:
            part.note(f"expected a known type of transformation, got {quote(kind)}")
        elif depth >= _MAX_NESTED:
            part.note(f"expected at most {_MAX_NESTED} transformations inside each other", "text")
        else:
            _CHECKS[kind](part, depth)
    except MetadataError:
        # It is among the problems.
        return


def _indexes(part: DocumentPart, least: int, most: int) -> None:
    items = part.items(least, most, unique=True)
    for item in items:
        item.integer(0, 4)


def _check_map_axis(part: DocumentPart, depth: int) -> None:
    part.needed("mapAxis", lambda items: _indexes(items, 2, 5))


def _check_project_axis(part: DocumentPart, depth: int) -> None:
    if not ("droppedInputs" in part or "createdOutputs" in part):
        part.note("lacks 'droppedInputs' or 'createdOutputs'")
    for name in ("droppedInputs", "createdOutputs"):
        part.optional(name, lambda items: _indexes(items, 1, 3))


def _check_matrix(part: DocumentPart, depth: int) -> None:
    """Check an affine transformation or a rotation: either a matrix or the path of one."""
    kind = part.value["type"]
    with_path = isinstance(part.value.get("path"), str)
    if "path" in part and not with_path and kind not in part:
        part.at("path").note("expected a string")
    if kind not in part:
        if not with_path:
            part.note(f"lacks {kind!r} or 'path'")
        return
    found_before = len(part.found)
    rows = part.at(kind).items()
    lengths = [len([item.number() for item in row.items()]) for row in rows]
    if kind == "rotation" and not (2 <= len(rows) <= 5 and set(lengths) == {len(rows)}):
        part.at(kind).note("expected a square matrix of 2 to 5 rows")
    if with_path and len(part.found) == found_before:
        part.note(f"expected {kind!r} or 'path', not both")


def _check_pair(part: DocumentPart, depth: int) -> None:
    for name in ("forward", "inverse"):
        part.needed(name, lambda inner: check_transform(inner, depth + 1))


def _check_sequence(part: DocumentPart, depth: int) -> None:
    for item in part.needed("transformations", lambda items: items.items()):
        check_transform(item, depth + 1)


def _check_by_dimension(part: DocumentPart, depth: int) -> None:
    for item in part.needed("transformations", lambda items: items.items()):
        item.object().needed("transformation", lambda inner: check_transform(inner, depth + 1))
        for name in ("inputAxes", "outputAxes"):
            item.needed(name, _vector)


def _check_field(part: DocumentPart, depth: int) -> None:
    part.needed("path", lambda text: text.string())
    if "interpolation" not in part or part.value["interpolation"] in ("nearest", "linear", "cubic"):
        return
    # The text and the schema have different names for one thing.
    level: Level = "should" if part.value["interpolation"] == "bspline-cubic" else "schema"
    part.at("interpolation").note("expected 'nearest', 'linear' or 'cubic'", level)


_CHECKS: Final[dict[str, Callable[[Any, int], Any]]] = {
    "identity": lambda part, depth: None,
    "scale": lambda part, depth: part.needed("scale", _positive),
    "translation": lambda part, depth: part.needed("translation", _vector),
    "mapAxis": _check_map_axis,
    "projectAxis": _check_project_axis,
    "affine": _check_matrix,
    "rotation": _check_matrix,
    "bijection": _check_pair,
    "sequence": _check_sequence,
    "byDimension": _check_by_dimension,
    "displacements": _check_field,
    "coordinates": _check_field,
}
