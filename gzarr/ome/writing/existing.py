"""What existing images say, as far as writing needs it."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any, Final

from ...documents.json import quote
from ...errors import ArgumentError, MetadataError, NodeNotFoundError, NodeTypeError, UnsupportedError
from ...hierarchy.open import open_group
from ..image import Image
from ..levels import LevelGrid, grid_of, in_image
from ..metadata.documents import MEMBERS
from ..metadata.model import Axis, Identity, Scale, Translation
from ..metadata.parse import parse
from .arguments import Description, axes_of
from .documents import written_version

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...hierarchy.group import Group
    from ...stores.base import ReadableStore
    from ..metadata.model import Multiscale
    from .arguments import Written

#: Scales are often rounded when they are written.
_TOLERANCE: Final = 1e-3


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
    return metadata.multiscales[0], written_version(metadata, group)


def own_attributes(store: ReadableStore, path: str) -> dict[str, Any]:
    """Return the attributes of an image that are not of OME-Zarr; none if there is no image at the path."""
    group = _group_of_image(store, path)
    return {} if group is None else {name: value for name, value in group.attrs.items() if name not in MEMBERS}


def has_image(store: ReadableStore, path: str) -> bool:
    """Return whether there is a group at a path that describes an image."""
    return _group_of_image(store, path) is not None


def _group_of_image(store: ReadableStore, path: str) -> Group | None:
    try:
        group = open_group(store, path=path)
    except (NodeNotFoundError, NodeTypeError, MetadataError):
        return None
    return group if parse(group.attrs).multiscales else None


def described_by(image: Multiscale) -> Description:
    """Return the description of level 0 of an image, with the transformations of the whole image.

    Raises
    ------
    ArgumentError
        If the image has no axes, or transformations that are not scales and translations.
    MetadataError
        If a transformation has not a number for each axis.
    """
    if image.axes is None:
        raise ArgumentError("the image does not name its axes; write them first")
    # Of a document that says nothing, levels are where Image says that they are.
    nowhere = LevelGrid((1.0,) * len(image.axes), (0.0,) * len(image.axes))
    grid = _place_of(image, 0) or nowhere
    try:
        grid = in_image(grid, image, image.name or "the image")
    except UnsupportedError as error:
        raise ArgumentError(error.message) from error
    return Description(image.axes, grid.scale, grid.translation)


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


def _place_of(image: Multiscale, level: int) -> LevelGrid | None:
    """Return where the elements of a level are without the transformations of the whole image.

    None if the document does not say. What holds for all levels alike changes no factor.
    """
    assert image.axes is not None
    for transform in image.datasets[level].transforms:
        if not isinstance(transform, Scale | Translation | Identity):
            raise ArgumentError(
                f"levels cannot be added to an image with a transformation of type {quote(transform.type)}"
            )
    return grid_of(image, level, len(image.axes), image.name or "the image")


def lengths_in(group: Group) -> Callable[[int], Sequence[int]]:
    """Return the function that returns the shape of a level of the image of a group; a request for each.

    Raises
    ------
    NodeNotFoundError, NodeTypeError, MetadataError
        By the function, as for :meth:`gzarr.ome.Image.level`.
    """
    image = Image(group, parse(group.attrs, zarr_format=group.zarr_format))
    return lambda level: image.level(level).shape


def factors_of(
    image: Multiscale,
    axes: Sequence[str | Axis] | None = None,
    *,
    lengths: Callable[[int], Sequence[int]] | None = None,
    same_lengths: bool = False,
) -> list[dict[str, int]]:
    """Return the factors between the levels of an image, for each level but level 0, along axes with some names.

    Parameters
    ----------
    image
        The image.
    axes
        The axes; None for those of the image.
    lengths
        Function that returns the shape of a level. It is asked where scales say no whole factor: many programs write
        the ratio of the lengths, also where they have left out the last cell of an odd length.
    same_lengths
        Whether only the lengths that the factors give matter, as for new levels. Otherwise, factors are those by which
        the levels were made, and lengths that several factors explain say none.

    Raises
    ------
    ArgumentError
        As for :func:`described_by`, and if a level has no whole factor from the level before.
    MetadataError
        As for :func:`described_by`.
    """
    assert image.axes is not None
    wanted = {axis.name if isinstance(axis, Axis) else axis for axis in (image.axes if axes is None else axes)}
    names = [axis.name for axis in image.axes]
    grids = [_place_of(image, level) for level in range(len(image.datasets))]
    found = []
    for level, (before, grid) in enumerate(itertools.pairwise(grids), 1):
        ratios: list[float | None] = [None] * len(names)
        if before is not None and grid is not None:
            ratios = [new / old for old, new in zip(before.scale, grid.scale, strict=True)]
        factors = [_whole(ratio) for ratio in ratios]
        if None in factors and lengths is not None:
            pairs = zip(lengths(level - 1), lengths(level), strict=True)
            factors = [
                factor or _of_lengths(*pair, ratio, same_lengths=same_lengths)
                for factor, pair, ratio in zip(factors, pairs, ratios, strict=True)
            ]
        for name, factor, ratio in zip(names, factors, ratios, strict=True):
            if factor is None:
                grown = "" if ratio is None else f": the distance of its elements is {ratio:.6g} times as large"
                raise ArgumentError(
                    f"level {level} of the image has no whole factor along {quote(name)} from level {level - 1}"
                    f"{grown}; make the levels anew with gzarr.ome.pyramid(…, overwrite=True)"
                )
        known = zip(names, factors, strict=True)
        found.append({name: factor for name, factor in known if factor is not None and name in wanted})
    return found


def _whole(ratio: float | None) -> int | None:
    """Return the whole number that a ratio is, but for rounding; None if it is none."""
    if ratio is None or not math.isfinite(ratio):
        return None
    factor = round(ratio)
    return factor if factor > 0 and math.isclose(ratio, factor, rel_tol=_TOLERANCE) else None


def _of_lengths(before: int, length: int, ratio: float | None, *, same_lengths: bool) -> int | None:
    """Return the number of elements that became one; None if lengths do not say, or ``ratio`` is not theirs.

    The last cell of a length that is no multiple of it was left out, or made of what was there: 11 elements may have
    become 3 by a factor of 3, 4 or 5. With ``same_lengths``, the smallest one is taken that makes a cell of what is
    left, as gzarr does.
    """
    if not 0 < length <= before:
        return 1 if length == before else None
    if ratio is not None and not math.isclose(ratio, before / length, rel_tol=_TOLERANCE):
        return None
    # Halves are by far the usual levels.
    if length != before and length in (before // 2, -(-before // 2)):
        return 2
    down, rest = divmod(before, length)
    if not rest:
        return down
    # Factors that leave cells out, and those that do not, are two ranges of integers: one ends at ``down``, the other
    # begins after it.
    filled = [factor for factor in (down + 1, down + 2) if -(-before // factor) == length]
    if same_lengths and filled:
        return filled[0]
    found = [down, *filled] if before // down == length else filled
    return found[0] if len(found) == 1 else None
