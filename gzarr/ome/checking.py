"""Rules of OME-Zarr about the nodes that a document names: whether they are there, and are what it says.

Reading finds each of them when the node is used; here all are looked for, at one request a node.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from ..arrays.array import Array
from ..errors import ArgumentError, MetadataError, NodeNotFoundError, NodeTypeError
from ..hierarchy.group import Group
from ..hierarchy.open import open_group
from .image import Image
from .metadata.parse import parse
from .metadata.problems import BrokenRule

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from .metadata.model import Axis, OmeMetadata, WellMetadata

#: What a group of each kind has.
_PARTS: Final = {"an image": "multiscales", "a well": "well"}
#: Most numbers, and most fields of a well, that a message lists.
_SHOWN: Final = 10


def broken_links(group: Group, metadata: OmeMetadata) -> Iterator[BrokenRule]:
    """Yield the rules that the nodes named in the metadata of a group break.

    Parameters
    ----------
    group
        The group.
    metadata
        Its OME metadata.

    Raises
    ------
    StoreError
        If the store fails.
    """
    top = "$" if metadata.version <= "0.4" else "$.ome"
    for i, image in enumerate(metadata.multiscales):
        levels: dict[int, Array] = {}
        for j, dataset in enumerate(image.datasets):
            place = f"{top}.multiscales[{i}].datasets[{j}].path"
            node, problem = _node(group, dataset.path, place)
            text = problem or _level(node, image.axes, metadata)
            if isinstance(node, Array):
                levels[j] = node
            if text:
                yield BrokenRule(place, f"level {dataset.path!r:.100} {text}", "text")
        with contextlib.suppress(MetadataError):
            yield from _lengths(Image(group, metadata, i), levels, f"{top}.multiscales[{i}].datasets")
    if metadata.multiscales:
        node, problem = _node(group, "labels", top)
        if node is not None and not isinstance(node, Group):
            yield BrokenRule(top, "'labels' below an image must be a group, and is an array", "text")
    labelled = _levels_of_labelled(group) if metadata.labels else 0
    ids = [one.id for one in metadata.plate.acquisitions] if metadata.plate else []
    for place, path, kind in _groups(metadata, top):
        node, problem = _node(group, path, place)
        text = problem or _kind(node, kind, ids) or _levels_of_labels(node, labelled)
        if text:
            yield BrokenRule(place, f"{path!r:.100} {text}", "text")


def _lengths(image: Image, levels: Mapping[int, Array], place: str) -> Iterator[BrokenRule]:
    """Yield the levels that have more or less elements than level 0 along axes that are not reduced."""
    first = levels.get(0)
    if first is None:
        return
    image._arrays.update({i: array for i, array in levels.items() if array.ndim == first.ndim})
    for level in range(1, len(image.multiscale.datasets)):
        if level in image._arrays and (text := image._disagreement(level, frames=True)):
            yield BrokenRule(f"{place}[{level}].path", text, "text")


def _groups(metadata: OmeMetadata, top: str) -> Iterator[tuple[str, str, str]]:
    """Yield the place, the path and the kind of each group that the metadata name."""
    for i, path in enumerate(metadata.labels or ()):
        yield f"{top}.labels[{i}]", path, "an image"
    for i, well in enumerate(metadata.plate.wells if metadata.plate else ()):
        yield f"{top}.plate.wells[{i}].path", well.path, "a well"
    for i, field in enumerate(metadata.well.images if metadata.well else ()):
        yield f"{top}.well.images[{i}].path", field.path, "an image"


def _node(group: Group, path: str, place: str) -> tuple[Array | Group | None, str]:
    """Return a node, or what is wrong with it."""
    try:
        return group[path], ""
    except NodeNotFoundError:
        return None, "is not there"
    except (ArgumentError, MetadataError) as error:
        return None, f"is not readable: {error}"


def _level(node: Array | Group | None, axes: tuple[Axis, ...] | None, metadata: OmeMetadata) -> str:
    if not isinstance(node, Array):
        return "must be an array, and is a group"
    if axes is not None and node.ndim != len(axes):
        return f"must have {len(axes)} dimensions, one for each axis, and has {node.ndim}"
    if metadata.image_label is not None and node.dtype.kind not in "iu":
        return f"must have integers, as a label image, and has {node.dtype}"
    names = node.dimension_names
    if axes is not None and metadata.version >= "0.5" and names != tuple(a.name for a in axes):
        return f"must have the names of the axes as dimension names, and has {names or 'none'}"
    return ""


def _kind(node: Array | Group | None, kind: str, acquisitions: Sequence[int]) -> str:
    if not isinstance(node, Group):
        return "must be a group, and is an array"
    found = parse(node.metadata.attributes)
    part = _PARTS[kind]
    has = found.multiscales if part == "multiscales" else found.well
    if not has:
        return "" if part in found.errors else f"must be {kind}, and lacks {part!r}"
    return "" if found.well is None else _strangers(found.well, acquisitions)


def _levels_of_labelled(labels: Group) -> int:
    """Return the number of levels of the image above a group of labels; 0 if there is none."""
    above, _, name = labels.path.rpartition("/")
    if name != "labels":
        return 0
    try:
        images = parse(open_group(labels.store, path=above, device="cpu").metadata.attributes).multiscales
    except (NodeNotFoundError, NodeTypeError, MetadataError):
        return 0
    return len(images[0].datasets) if images else 0


def _levels_of_labels(node: Array | Group | None, labelled: int) -> str:
    """Return what is wrong with the number of levels of labels of an image that has ``labelled``; "" if nothing."""
    found = parse(node.metadata.attributes) if labelled and isinstance(node, Group) else None
    if found is None or not found.multiscales:
        return ""
    source = None if found.image_label is None else found.image_label.source
    if source is not None and source.rstrip("/") != "../..":
        # They are labels of another image.
        return ""
    own = len(found.multiscales[0].datasets)
    if own == labelled:
        return ""
    return f"must have as many levels as the image, {labelled}, and has {own}; gzarr.ome.pyramid makes them"


def _strangers(well: WellMetadata, acquisitions: Sequence[int]) -> str:
    """Return which fields of a well are of none of a plate's acquisitions, if it has several; "" if none."""
    strangers = [field for field in well.images if field.acquisition not in acquisitions]
    if len(acquisitions) < 2 or not strangers:
        return ""
    known = ", ".join(map(str, acquisitions[:_SHOWN])) + ", …" * (len(acquisitions) > _SHOWN)
    shown = [
        f"{field.path!r:.100} has {'no acquisition' if field.acquisition is None else field.acquisition}"
        for field in strangers[:_SHOWN]
    ]
    more = f", and {len(strangers) - _SHOWN} more" if len(strangers) > _SHOWN else ""
    return f"must have fields of the plate's acquisitions {known}, and {', '.join(shown)}{more}"
