"""Levels of an image: where their elements are, which one suits, and which of its elements a selection means."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..documents.json import quote
from ..errors import MetadataError, SelectionError, UnsupportedError
from ..integers import as_integer
from .metadata.model import Identity, Scale, Translation

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from .metadata.model import Multiscale, Transform


_OF_IMAGE: Final = "$..multiscales[*].coordinateTransformations"


@dataclass(frozen=True, slots=True)
class LevelGrid:
    """Where the elements of a level are: the one of index i is at ``scale * i + translation``, in each axis."""

    scale: tuple[float, ...]
    translation: tuple[float, ...]


def grid_of(image: Multiscale, level: int, ndim: int, group: str) -> LevelGrid | None:
    """Return where the elements of a level are by its own transformations, without those of the whole image.

    Parameters
    ----------
    image
        The image.
    level
        Index of the level.
    ndim
        Number of axes.
    group
        Name of the group, for messages.

    Returns
    -------
    The grid; None if the document has no transformations for this level.

    Raises
    ------
    UnsupportedError
        If one of the transformations is not known.
    MetadataError
        If one has not a number for each axis.
    """
    transforms = image.datasets[level].transforms
    if not transforms:
        return None
    path = f"$..multiscales[*].datasets[{level}].coordinateTransformations"
    return _moved(LevelGrid((1.0,) * ndim, (0.0,) * ndim), transforms, f"level {level} of {group!r}", path)


def in_image(grid: LevelGrid, image: Multiscale, group: str) -> LevelGrid:
    """Return where the elements of a level are after the transformations of the whole image.

    Raises
    ------
    UnsupportedError, MetadataError
        As for :func:`grid_of`, and if the image has several coordinate systems and does not say which one is meant.
    """
    if image.physical is None and image.coordinate_systems and image.transforms:
        ends = [link.output for link in image.further]
        names = dict.fromkeys(repr((end.name or "")[:100]) for end in ends if end is not None)
        raise UnsupportedError(
            f"{group!r} has the coordinate systems {', '.join(list(names)[:20])}, and does not say which one is meant: "
            "read_um takes the name of one as system=, coordinate_map maps points to each; elements can be read by "
            "their indexes",
            json_path=_OF_IMAGE,
        )
    what, more = repr(group), ""
    if image.physical is not None:
        what = f"{group!r}, to the coordinate system {image.physical!r:.100},"
        more = f", and image.coordinate_map(0, {image.physical!r:.100}) maps points"
    return _moved(grid, image.transforms, what, _OF_IMAGE, more)


def _moved(grid: LevelGrid, transforms: Sequence[Transform], what: str, json_path: str, more: str = "") -> LevelGrid:
    scale, translation = grid.scale, grid.translation
    for transform in transforms:
        numbers = _numbers(transform, len(scale), what, json_path, more)
        if isinstance(transform, Scale):
            scale = tuple(a * b for a, b in zip(scale, numbers, strict=True))
            translation = tuple(a * b for a, b in zip(translation, numbers, strict=True))
        elif isinstance(transform, Translation):
            translation = tuple(a + b for a, b in zip(translation, numbers, strict=True))
    if not all(math.isfinite(number) for number in (*scale, *translation)) or not all(scale):
        raise MetadataError(
            f"{what} needs scales that are neither zero nor infinite, got {list(scale)}", json_path=json_path
        )
    return LevelGrid(scale, translation)


def _numbers(transform: Transform, ndim: int, what: str, json_path: str, more: str) -> tuple[float, ...]:
    if isinstance(transform, Identity):
        return ()
    if isinstance(transform, Scale | Translation):
        numbers = transform.factors if isinstance(transform, Scale) else transform.offsets
        if len(numbers) != ndim:
            raise MetadataError(
                f"a transformation of {what} needs {ndim} numbers, one for each axis, got {len(numbers)}; "
                "elements can be read by their indexes",
                json_path=json_path,
            )
        return numbers
    raise UnsupportedError(
        f"{what} has a transformation that is not a scale and a translation, of type {transform.type!r:.100}; "
        f"elements can be read by their indexes{more}",
        json_path=json_path,
    )


def grid_by_shape(shape: Sequence[int], first: Sequence[int]) -> LevelGrid:
    """Return where the elements of a level are if no document says: by its shape, and that of the first level."""
    scale = tuple(_ratio(a, b) for a, b in zip(first, shape, strict=True))
    return LevelGrid(scale, tuple((factor - 1) / 2 for factor in scale))


def _ratio(first: int, length: int) -> float:
    if not (first and length):
        return 1.0
    # A length that is no multiple of the factor was cut, or filled up.
    whole = round(first / length)
    return float(whole) if whole and abs(length - first / whole) < 1 else first / length


def indexes_of_box(low: float, high: float, scale: float, translation: float, length: int) -> slice:
    """Return the elements whose centres lie from ``low`` to below ``high``, at least the one nearest to the middle.

    The box is cut at the edges of the outer elements, which are half an element from their centres.

    Raises
    ------
    SelectionError
        If the box lies outside of the array.
    """
    ends = (low - translation) / scale, (high - translation) / scale
    if not all(math.isfinite(end) for end in ends):
        raise SelectionError(f"a box needs finite numbers, got {low} to {high}")
    # Half a millionth of an element for the errors of floats. ``high`` itself is outside.
    if scale > 0:
        start, stop = (math.ceil(end - 5e-7) for end in ends)
    else:
        stop, start = (math.floor(end + 5e-7) + 1 for end in ends)
    start, stop = max(start, 0), min(stop, length)
    if start < stop:
        return slice(start, stop)
    first, last = sorted(ends)
    begin, end = max(first, -0.5), min(last, length - 0.5)
    # A box that is not cut may be shorter than the errors of floats, even a point.
    if not (end - begin > 5e-7 or (first == begin < length - 0.5 and end == last)):
        bounds = sorted((translation - scale / 2, translation + scale * (length - 0.5)))
        # All digits but those of rounding: coordinates of stages are large.
        raise SelectionError(
            f"{low:.15g} to {high:.15g} lies outside of the image, which is from {bounds[0]:.15g} to {bounds[1]:.15g}"
        )
    nearest = min(math.floor((begin + end) / 2 + 0.5), length - 1)
    return slice(nearest, nearest + 1)


def check_slice(selection: Any) -> None:
    """Refuse a slice that selects nothing of any axis: of something that is no integer, or with a step of 0.

    Raises
    ------
    SelectionError
        If it is one.
    """
    if isinstance(selection, slice):
        try:
            selection.indices(0)
        except (TypeError, ValueError) as error:
            raise SelectionError(f"{quote(selection)} selects nothing: {error}") from None


def is_several(selection: Any) -> bool:
    """Return whether a selection of an axis is a list of indexes or a mask, or such an array."""
    return isinstance(selection, list | np.ndarray)


def indexes_in(selection: Any, length: int) -> Any:
    """Return the indexes that a list or an array selects of an axis: its integers, or the places where it is true.

    Raises
    ------
    SelectionError
        If it is a mask of another length.
    """
    is_array = isinstance(selection, np.ndarray)
    if is_array:
        is_mask = selection.dtype.kind == "b"
    else:
        is_mask = bool(selection) and all(isinstance(one, bool | np.bool_) for one in selection)
    if not is_mask:
        return selection
    if len(selection) != length:
        raise SelectionError(f"a mask of {len(selection)} elements does not fit an axis of {length}")
    return np.flatnonzero(selection) if is_array else [i for i, is_selected in enumerate(selection) if is_selected]


def _from_the_start(indexes: npt.NDArray[Any], length: int) -> npt.NDArray[np.int64]:
    """Return indexes of an axis without negative ones."""
    # In their own type: the largest of u8 are no indexes from the end.
    wrong = (indexes < -length) | (indexes >= length)
    if wrong.any():
        raise SelectionError(f"index {indexes[wrong.argmax()]} is out of bounds for an axis of {length} elements")
    found = indexes.astype(np.int64)
    return np.where(found < 0, found + length, found)


def at_level(selection: Any, length: int, level_length: int, factor: float) -> Any:
    """Return the elements of a level that cover a selection of the first level.

    Parameters
    ----------
    selection
        Integer, slice without a step, or integers or a mask as a list or an array of one dimension, in elements of the
        first level.
    length, level_length
        Lengths of the axis in the first level, and in this one.
    factor
        Elements of the first level in one of this level.

    Raises
    ------
    SelectionError
        If it is something else, or there is no such element.
    """
    if isinstance(selection, np.ndarray):
        indexes = _from_the_start(indexes_in(selection, length), length)
        return np.minimum((indexes / factor + 1e-9).astype(np.int64), level_length - 1)
    if isinstance(selection, list):
        return [at_level(one, length, level_length, factor) for one in indexes_in(selection, length)]
    if isinstance(selection, slice):
        start, stop, step = selection.indices(length)
        if step != 1:
            raise SelectionError(f"{selection!r}: with level='auto', slices of reduced axes have no step")
        if stop <= start:
            return slice(0, 0)
        last = math.ceil(stop / factor - 1e-9)
        return slice(min(int(start / factor + 1e-9), level_length - 1), max(1, min(last, level_length)))
    number = as_integer(selection)
    if number is None:
        raise SelectionError(
            f"with level='auto', an axis takes an integer, a slice or a list of integers, not {quote(selection)}"
        )
    index = number + length if number < 0 else number
    if not 0 <= index < length:
        raise SelectionError(f"index {selection} is out of bounds for an axis of {length} elements")
    return min(int(index / factor + 1e-9), level_length - 1)


def of_frames(selection: Any, count: int) -> Any:
    """Return a selection of a level's frames that counts the ``count`` frames of level 0.

    Raises
    ------
    SelectionError
        If there is no such frame.
    """
    if isinstance(selection, slice):
        start, stop, step = selection.indices(count)
        # Backwards, it may begin before the first frame; -1 is the place before it, which slices take for the last.
        return slice(0, 0) if start < 0 else slice(start, None if stop < 0 else stop, step)
    if isinstance(selection, np.ndarray):
        return _from_the_start(indexes_in(selection, count), count)
    if isinstance(selection, list):
        return [of_frames(one, count) for one in indexes_in(selection, count)]
    index = selection + count if selection < 0 else selection
    if not 0 <= index < count:
        raise SelectionError(f"index {selection} is out of bounds for an axis of {count} elements")
    return index
