"""Arrays of a batch as a model wants them: several in one, and turned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ..errors import ArgumentError
from .arguments import integers, several

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..arrays.exporting import ExportedArray
    from .samples import Part

#: Names of the arrays that are stacked, in their order; or several such, by the name of the result.
Stack: TypeAlias = "Sequence[str] | Mapping[str, Sequence[str]]"
#: A dimension's name, or an axis; or several.
Flip: TypeAlias = "str | int | Sequence[str | int]"


def stacked(parts: Sequence[Part], stack: Stack | None) -> list[Part]:
    """Return parts of which some are stacked: the parts of one result have its names, in their order.

    Raises
    ------
    ArgumentError
        If there are no such arrays, or if results would have one name.
    """
    if stack is None:
        return list(parts)
    wanted: dict[str, Sequence[str]] = dict(stack) if isinstance(stack, Mapping) else {"": stack}
    members: dict[str, tuple[str, int]] = {}
    there = {part.array for part in parts}
    for result, names in wanted.items():
        listed = several(names)
        if listed is None or not all(isinstance(name, str) for name in listed):
            raise ArgumentError(
                f"stack must be names of arrays in their order, like ('t2m', 'u10'), or a dict of such, not {stack!r}"
            )
        if missing := [name for name in listed if name not in there]:
            raise ArgumentError(f"stack names {missing}, and the loader has {sorted(there)}")
        if len(listed) < 2:
            raise ArgumentError(f"stack needs at least two arrays, not {listed}")
        for i, name in enumerate(listed):
            if name in members:
                raise ArgumentError(f"stack has {name!r} twice")
            members[name] = result, i
    # Ordered, since one result's parts follow each other in their order.
    order = sorted(range(len(parts)), key=lambda i: members.get(parts[i].array, ("", 0))[1])
    result_parts = []
    alone: set[tuple[str, ...]] = set()
    together: set[tuple[str, ...]] = set()
    for i in order:
        part = parts[i]
        if part.array not in members:
            alone.add(part.names)
            result_parts.append(part)
            continue
        # The last of a part's names is that of its array.
        before, name = part.names[:-1], members[part.array][0]
        names = (*before, name) if name or not before else before
        together.add(names)
        result_parts.append(replace(part, names=names))
    for names in together:
        for other in alone:
            if other[: len(names)] == names[: len(other)]:
                raise ArgumentError(
                    f"stack leaves out {other[-1]!r}, which has no place beside the array "
                    f"{'/'.join(names)!r}: give a dict, with a name for the result"
                )
    return result_parts


def flipped(parts: Sequence[Part], arrays: Mapping[str, ExportedArray], flip: Flip | None) -> list[Part]:
    """Return parts that are reversed along some dimensions.

    Parameters
    ----------
    parts
        The parts.
    arrays
        The arrays by name.
    flip
        Names of dimensions, or axes of all arrays.

    Raises
    ------
    ArgumentError
        If no array has such a dimension, if only some of those in one tensor have it, or if it is the one along which
        samples lie.
    """
    if flip is None:
        return list(parts)
    axes = several(flip)
    wanted: list[Any] = [flip] if axes is None else axes
    result = list(parts)
    for dimension in wanted:
        # By the name of the result: its arrays with the dimension.
        found: dict[tuple[str, ...], str] = {}
        without: list[Part] = []
        for i, part in enumerate(result):
            axis = _axis_of(arrays[part.array], dimension)
            if axis is None:
                without.append(part)
                continue
            found[part.names] = part.array
            if part.take and part.axes[axis] is not None:
                raise ArgumentError(f"flip={dimension!r} is the axis along which samples lie in {part.array!r}")
            result[i] = replace(part, flip=tuple(sorted({*part.flip, axis})))
        if not found:
            raise ArgumentError(f"flip={dimension!r} is not a dimension of any array of the loader")
        for part in without:
            if part.names in found:
                raise ArgumentError(
                    f"flip={dimension!r} is a dimension of {found[part.names]!r}, but not of {part.array!r}, which is "
                    f"stacked with it and has {_named(arrays[part.array])}: give the axis instead of its name, or an "
                    "array with this dimension"
                )
    return result


def reversed_whole(array: ExportedArray, flip: Flip | None) -> Any:
    """Return the selection of a whole array, reversed along the dimensions that ``flip`` names.

    Axes that it has as numbers are those of the arrays of samples, which have others than this array.
    """
    named = [one for one in ([flip] if isinstance(flip, str) else several(flip) or []) if isinstance(one, str)]
    axes = {_axis_of(array, name) for name in named} - {None}
    return tuple(slice(None, None, -1 if d in axes else None) for d in range(array.ndim)) if axes else ...


def _named(array: ExportedArray) -> str:
    names = array.dimension_names
    return "dimensions without names" if names is None else f"the dimensions {names}"


def _axis_of(array: ExportedArray, dimension: Any) -> int | None:
    if isinstance(dimension, str):
        names = array.dimension_names or ()
        return names.index(dimension) if dimension in names else None
    found = () if isinstance(dimension, (bool, np.bool_)) else integers((dimension,))
    if not found:
        raise ArgumentError(f"flip must be names of dimensions, or axes, not {dimension!r}")
    (axis,) = found
    return axis % array.ndim if -array.ndim <= axis < array.ndim else None
