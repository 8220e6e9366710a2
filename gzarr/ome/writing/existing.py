"""What existing images say, as far as writing needs it."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import ArgumentError, MetadataError, NodeNotFoundError, NodeTypeError
from ...hierarchy.open import open_group
from ..metadata.documents import MEMBERS
from ..metadata.model import Axis, Dataset, Identity, Scale, Translation
from ..metadata.parse import parse
from .arguments import Description, axes_of, check_version

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...hierarchy.group import Group
    from ...stores.base import ReadableStore
    from ..metadata.model import Multiscale
    from .arguments import Written


def image_of(group: Group) -> tuple[Multiscale, Written]:
    """Return the first image that a group's attributes describe, and the version to which more of it is written.

    Raises
    ------
    NodeTypeError
        If the group is no image.
    MetadataError
        If its description cannot be read.
    ArgumentError
        If it is of a version that is not written.
    """
    metadata = parse(group.attrs, zarr_format=group.zarr_format)
    if "multiscales" in metadata.errors:
        raise metadata.errors["multiscales"]
    if not metadata.multiscales:
        raise NodeTypeError(f"{group.name} in {group.store!r} is not an OME-Zarr image: it lacks 'multiscales'")
    check_version(metadata.version)
    return metadata.multiscales[0], "0.4" if metadata.version == "0.4" else "0.5"


def own_attributes(store: ReadableStore, path: str) -> dict[str, Any]:
    """Return the attributes of an image that are not of OME-Zarr; none if there is no image at the path."""
    try:
        group = open_group(store, path=path)
    except (NodeNotFoundError, NodeTypeError, MetadataError):
        return {}
    if not parse(group.attrs).multiscales:
        return {}
    return {name: value for name, value in group.attrs.items() if name not in MEMBERS}


def described_by(image: Multiscale) -> Description:
    """Return the description of level 0 of an image.

    Raises
    ------
    ArgumentError
        If the image has no axes, or transformations that are not scales and translations.
    """
    if image.axes is None:
        raise ArgumentError("the image does not name its axes; write them first")
    spacing, origin = _place_of(image.datasets[0], len(image.axes))
    return Description(image.axes, tuple(spacing.tolist()), tuple(origin.tolist()))


def along(own: Description, axes: Any) -> Description:
    """Return what an image says of its axes that have some names; what it lacks has distances of 1.

    Raises
    ------
    ArgumentError
        If ``axes`` are neither a text nor a list of names or axes.
    """
    places = {axis.name: place for axis, *place in zip(own.axes, own.spacing, own.origin, strict=True)}
    known = {axis.name: axis for axis in own.axes}
    found = [
        known.get(axis.name, axis) if given == axis.name else axis
        for axis, given in zip(axes_of(axes), axes, strict=True)
    ]
    spacing, origin = zip(*(places.get(axis.name, (1.0, 0.0)) for axis in found), strict=True)
    return Description(tuple(found), spacing, origin)


def _place_of(dataset: Dataset, ndim: int) -> tuple[Any, Any]:
    """Return the spacing of a level's elements and the coordinates of the first one."""
    spacing, origin = np.ones(ndim), np.zeros(ndim)
    for transform in dataset.transforms:
        if isinstance(transform, Scale):
            spacing, origin = spacing * transform.factors, origin * transform.factors
        elif isinstance(transform, Translation):
            origin = origin + transform.offsets
        elif not isinstance(transform, Identity):
            raise ArgumentError(f"levels cannot be added to an image with a transformation of type {transform.type!r}")
    return spacing, origin


def factors_of(image: Multiscale, axes: Sequence[str | Axis] | None = None) -> list[dict[str, int]]:
    """Return the factors between the levels of an image, for each level but level 0, along axes with some names.

    Raises
    ------
    ArgumentError
        As for :func:`described_by`, and if a level's spacing is no multiple of that of the level before.
    """
    assert image.axes is not None
    wanted = {axis.name if isinstance(axis, Axis) else axis for axis in (image.axes if axes is None else axes)}
    names = [axis.name for axis in image.axes]
    spacings = [_place_of(dataset, len(names))[0] for dataset in image.datasets]
    found = []
    for before, spacing in itertools.pairwise(spacings):
        factors = np.rint(spacing / before).astype(int).tolist()
        if not np.allclose(spacing, before * factors, rtol=1e-3):
            raise ArgumentError(f"levels whose spacing grows from {before.tolist()} to {spacing.tolist()}")
        found.append({name: max(f, 1) for name, f in zip(names, factors, strict=True) if name in wanted})
    return found
