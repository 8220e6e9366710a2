"""What ``gzarr info`` and ``gzarr tree`` say about OME-Zarr; only ``--strict`` costs requests."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from ..display import printable
from ..errors import GzarrError, MetadataError
from ..hierarchy.group import Group
from ..ome.checking import broken_links
from ..ome.levels import grid_of, in_image
from ..ome.metadata import Scale, UnknownTransform
from ..ome.nodes import metadata_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..ome.metadata import Multiscale, OmeMetadata, Transform

#: Limit of the names shown in one row.
_SHOWN = 12


def _metadata(node: Any) -> OmeMetadata | None:
    """Return the OME metadata of a group, or None if the node has none."""
    if not isinstance(node, Group):
        return None
    try:
        found = metadata_of(node)
    except MetadataError:
        # gzarr.ome.open tells what is wrong.
        return None
    return None if found.is_empty else found


def broken_rules(node: Any) -> list[str]:
    """Return the rules of OME-Zarr that a node breaks, and the nodes that its attributes name; a request for each."""
    found = _metadata(node)
    if found is None:
        return []
    broken = [problem for problem in found.problems if problem.is_rule]
    return [f"OME: {problem}" for problem in (*broken, *broken_links(node, found))]


def note(node: Any) -> str:
    """Return what a node is to OME-Zarr, for a line of a tree; ``""`` if it is nothing."""
    found = _metadata(node)
    if found is None:
        return ""
    kind, detail = _what(found)
    return f" [OME {kind} {found.version}{': ' if detail else ''}{printable(detail, 120)}]"


def _what(found: OmeMetadata) -> tuple[str, str]:
    if found.plate is not None:
        size = f"{len(found.plate.rows)} × {len(found.plate.columns)}"
        return "plate", f"{size}, {_count(len(found.plate.wells), 'well')}"
    if found.multiscales:
        image = found.multiscales[0]
        axes = "" if image.axes is None else f"{' '.join(axis.name for axis in image.axes)}, "
        kind = "image" if found.image_label is None else "label image"
        return kind, f"{axes}{_count(len(image.datasets), 'level')}"
    if found.well is not None:
        return "well", _count(len(found.well.images), "field")
    if found.labels is not None:
        return "labels", _names(found.labels)
    if found.series is not None:
        return "series", _names(found.series)
    if found.layout is not None:
        return "collection", ""
    if found.scene is not None:
        systems = _names([system.name for system in found.scene.coordinate_systems])
        links = _count(len(found.scene.links), "transformation")
        return "scene", f"{links}{', to ' if systems else ''}{systems}"
    return "metadata", f"not readable: {', '.join(found.errors)}" if found.errors else ""


def rows(group: Group) -> list[tuple[str, str]]:
    """Return table rows about the OME metadata of a group; none if it has none."""
    found = _metadata(group)
    if found is None:
        return []
    kind, detail = _what(found)
    table = [("OME-Zarr", f"{kind}, version {found.version}"), ("OME content", detail)]
    for image in found.multiscales:
        table += _image_rows(image)
    if found.omero is not None:
        labels = [channel.label if channel.label is not None else "(no name)" for channel in found.omero.channels]
        table.append(("Channels", _names(labels)))
    if found.plate is not None:
        table += [("Rows", _names(found.plate.rows)), ("Columns", _names(found.plate.columns))]
    broken = sum(problem.is_rule for problem in found.problems)
    if broken:
        table.append(("Broken rules", f"{broken} (--strict lists them)"))
    return [(label, printable(text)) for label, text in table if text]


def _image_rows(image: Multiscale) -> list[tuple[str, str]]:
    axes = (
        ""
        if image.axes is None
        else ", ".join(f"{axis.name} ({axis.unit})" if axis.unit else axis.name for axis in image.axes)
    )
    levels = [_level(image, index) for index in range(len(image.datasets))]
    return [("Axes", axes), ("Coordinate systems", _systems(image)), ("Levels", _names(levels))]


def _systems(image: Multiscale) -> str:
    """Return the names of the coordinate systems, and which one is that of scale and translation."""
    names = _names([system.name for system in image.coordinate_systems])
    if image.physical is None or len(image.coordinate_systems) == 1:
        return names
    return f"{names}; image.system is {image.physical}"


def _level(image: Multiscale, index: int) -> str:
    dataset = image.datasets[index]
    steps = [_step(transform) for transform in dataset.transforms]
    if image.transforms:
        steps = []
        # What is not a scale and a translation has none, nor has an image that does not say in which system.
        with contextlib.suppress(GzarrError):
            own = grid_of(image, index, len(image.axes or ()), dataset.path)
            if own is not None:
                steps = [_factors(in_image(own, image, dataset.path).scale)]
    return f"{dataset.path} {' '.join(steps)}".rstrip()


def _step(transform: Transform) -> str:
    if isinstance(transform, Scale):
        return _factors(transform.factors)
    return f"[{transform.type}]" if isinstance(transform, UnknownTransform) else ""


def _factors(factors: Sequence[float]) -> str:
    return f"({', '.join(f'{factor:g}' for factor in factors)})"


def _names(names: Any) -> str:
    shown = ", ".join(map(str, names[:_SHOWN]))
    return shown if len(names) <= _SHOWN else f"{shown}, … ({len(names)})"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"
