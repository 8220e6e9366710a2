"""Changes of the metadata of an image that is there: one write of one document, checked before.

What a change does not name stays as it is in the document, also members that gzarr does not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...documents.json import quote
from ...errors import ArgumentError, UnsupportedError
from ...items import has_items
from ...metadata.to_documents import plain, plain_value
from ..image import Image
from ..metadata.documents import to_attributes
from ..metadata.model import ImageLabel, OmeMetadata
from ..metadata.parse import parse
from ..nodes import place
from .arguments import Description, Written, describe, label_colors, label_value, omero_of, shown, written_unit
from .documents import object_in, root_of, with_root, written_version


@dataclass(frozen=True, kw_only=True)
class Changes:
    """What is to be changed, as for :meth:`gzarr.ome.Image.update_metadata`; None for what stays."""

    name: str | None = None
    scale: Any = None
    translation: Any = None
    units: Any = None
    channels: Any = None
    colors: Any = None
    properties: Any = None


def change(image: Image, changes: Changes, *, lock: bool) -> None:
    """Change the metadata of an image in its store; see :meth:`gzarr.ome.Image.update_metadata`."""

    def changed(found: dict[str, Any]) -> dict[str, Any]:
        # Others may have changed it since this image was opened.
        metadata = parse(found, zarr_format=image.group.zarr_format)
        version = written_version(metadata, image.group)
        current = Image(image.group, metadata, image._number)
        new = _changed(current, found, changes, version)
        _check(found, new, metadata)
        return new

    image.group.attrs.change(changed, lock=lock)


def _changed(image: Image, found: dict[str, Any], changes: Changes, version: Written) -> dict[str, Any]:
    """Return the attributes of an image after some changes."""
    root = root_of(found, version)
    images = list(root["multiscales"])
    images[image._number] = document = dict(images[image._number])
    root["multiscales"] = images
    if image.multiscale.axes is None:
        raise ArgumentError(f"{place(image.group)} does not name its axes; write them first")
    if changes.name is not None:
        document["name"] = plain_value(changes.name, "name")
    if changes.units is not None:
        document["axes"] = _units(image, changes.units, document["axes"])
    if changes.scale is not None or changes.translation is not None:
        _move(image, document, changes.scale, changes.translation)
    if changes.channels is not None:
        omero = object_in(root, "omero")
        root["omero"] = {**omero, **_omero(image, omero.get("channels"), changes.channels)}
    if changes.colors is not None or changes.properties is not None:
        root["image-label"] = _label(image, object_in(root, "image-label"), changes)
    return with_root(found, root, version)


def _check(before: dict[str, Any], after: dict[str, Any], metadata: OmeMetadata) -> None:
    """Refuse changes that break a rule of the specification which was not broken before."""
    found = parse(after)
    for name, error in found.errors.items():
        if name not in metadata.errors:
            raise ArgumentError(f"OME-Zarr {metadata.version} does not allow that: {error}")
    known = {str(problem) for problem in parse(before).problems}
    for problem in found.problems:
        if problem.is_rule and str(problem) not in known:
            raise ArgumentError(f"OME-Zarr {metadata.version} does not allow that: {problem}")


def _units(image: Image, given: Any, axes: list[Any]) -> list[dict[str, Any]]:
    """Return the axes of a document with other units; None for an axis that has none."""
    if isinstance(given, str):
        given = {axis.name: given for axis in image.axis_details if axis.type == "space"}
    named = _by_axis(image, given, "units")
    if not all(unit is None or isinstance(unit, str) for unit in named.values()):
        raise ArgumentError(f"units must be texts, one for each axis, not {quote(given)}")
    found = []
    for own, axis in zip(image.axis_details, axes, strict=True):
        unit = written_unit(own, named[own.name]) if own.name in named else own.unit
        members = axis if isinstance(axis, dict) else {"name": axis}
        rest = {name: value for name, value in members.items() if name != "unit"}
        found.append(rest if unit is None else {**rest, "unit": unit})
    return found


def _by_axis(image: Image, given: Any, what: str) -> dict[str, Any]:
    """Return what is given for all axes, or for those that a mapping names, by their names."""
    if isinstance(given, Mapping):
        return {image._axis_name(name): value for name, value in given.items()}
    values = list(given) if has_items(given) else []
    if len(values) != image.ndim:
        raise ArgumentError(
            f"{what} must have a value for each of the axes {', '.join(image.axes)}, or map their names to values, not "
            f"{quote(given)}"
        )
    return dict(zip(image.axes, values, strict=True))


def _move(image: Image, document: dict[str, Any], scale: Any, translation: Any) -> None:
    """Set where the elements are. The levels below level 0 keep their places in elements of it.

    Transformations of the whole image become part of each level's.
    """
    if image.multiscale.coordinate_systems:
        raise UnsupportedError(
            f"{place(image.group)} has coordinate systems with names, which gzarr does not change; change them with "
            "the program that wrote the image",
            json_path="$..multiscales[*].coordinateTransformations",
        )
    first = image.grid(0)
    own = describe(
        image.ndim,
        image.axes,
        None if scale is None else _by_axis(image, scale, "scale"),
        None if translation is None else _by_axis(image, translation, "translation"),
        None,
        Description(image.axis_details, first.scale, first.translation),
    )
    document.pop("coordinateTransformations", None)
    datasets = []
    for level, dataset in enumerate(document["datasets"]):
        grid = image.grid(level)
        ratios = [new / old for new, old in zip(own.spacing, first.scale, strict=True)]
        steps = [old * ratio for old, ratio in zip(grid.scale, ratios, strict=True)]
        offsets = [
            new + (old - start) * ratio
            for new, old, start, ratio in zip(own.origin, grid.translation, first.translation, ratios, strict=True)
        ]
        transforms: list[dict[str, Any]] = [{"type": "scale", "scale": steps}]
        if any(offsets):
            transforms.append({"type": "translation", "translation": offsets})
        datasets.append({**dataset, "coordinateTransformations": transforms})
    document["datasets"] = datasets


def _omero(image: Image, now: Any, given: Any) -> dict[str, Any]:
    """Return the object ``omero`` with other channels; a name changes only the name of one that is there, ``now``."""
    if isinstance(given, str) or not hasattr(given, "__iter__"):
        raise ArgumentError(f"channels must be a list of names or Channel, not {quote(given)}")
    wanted = list(given)
    is_renamed = len(image.channels) == len(wanted)
    # Places are of no account for that, and some images have none.
    description = Description(image.axis_details, (1.0,) * image.ndim, (0.0,) * image.ndim)
    omero = omero_of(wanted, description, image.shape, image.dtype)
    if not is_renamed and image.dtype.kind == "f" and any(isinstance(channel, str) for channel in wanted):
        # Floats have no range of their own, so it takes a look at what is there.
        omero = shown(omero, wanted, description, image.level(-1))
    found: dict[str, Any] = plain(to_attributes(OmeMetadata("0.4", omero=omero)))["omero"]
    if is_renamed:
        # All that a channel has besides stays as it is in the document, also what is wrong there.
        for i, (old, new) in enumerate(zip(now, wanted, strict=True)):
            if isinstance(new, str):
                found["channels"][i] = {**(old if isinstance(old, dict) else {}), "label": new}
    return found


def _label(image: Image, document: dict[str, Any], changes: Changes) -> dict[str, Any]:
    """Return the object ``image-label`` with other colours or properties."""
    if image.image_label is None:
        raise ArgumentError(f"{place(image.group)} is not a label image, and colors= and properties= are for those")
    given = changes.properties
    if given is not None and not (
        isinstance(given, Mapping) and all(isinstance(members, Mapping) for members in given.values())
    ):
        raise ArgumentError(f"properties must map labels to mappings of their properties, not {quote(given)}")
    label = ImageLabel(
        label_colors(changes.colors),
        tuple({**members, "label-value": label_value(value)} for value, members in (given or {}).items()),
    )
    new = plain(to_attributes(OmeMetadata("0.5", image_label=label)))["ome"]["image-label"]
    for name, value in (("colors", changes.colors), ("properties", given)):
        if value is not None:
            document.pop(name, None)
    return {**document, **new}
