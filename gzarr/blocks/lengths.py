"""The argument ``block`` of :func:`gzarr.map_blocks`: lengths of blocks by position, or by names of axes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex, TypeAlias

from ..documents.json import quote
from ..errors import ArgumentError
from .arguments import each, is_whole, scalar

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import numpy.typing as npt

    from .plan import BlockGeometry

    Names = Sequence[str | None] | None

#: Elements of a block along an axis; -1 or None for all of the axis.
Length: TypeAlias = "SupportsIndex | Literal['auto'] | None"
#: One for each axis or for all of them, or some by names of axes.
Lengths: TypeAlias = "Length | Sequence[Length] | npt.NDArray[np.integer[Any]] | Mapping[str, Length]"

_WHAT = "lengths of at least 1, -1 or None for a whole axis, or 'auto'"


def block_lengths(block: Any, shape: Sequence[int], names: Mapping[str, int]) -> list[int | None]:
    """Return the length of blocks along each axis; None for one that is to be chosen.

    Parameters
    ----------
    block
        Argument of :func:`gzarr.map_blocks`.
    shape
        Shape of the first output.
    names
        Its axes by their names.

    Raises
    ------
    ArgumentError
        If there are no such blocks, or no axes of these names.
    """
    ndim = len(shape)
    if isinstance(block, Mapping):
        lengths: list[Any] = ["auto"] * ndim
        for name, value in block.items():
            if name not in names:
                known = f"the axes are {', '.join(names)}" if names else "the axes have no names: pass one for each"
                raise ArgumentError(f"block={quote(block)}: there is no axis {quote(name)}; {known}")
            lengths[names[name]] = scalar(value)
        if not all(map(_is_length, lengths)):
            raise ArgumentError(f"block must be {_WHAT}, not {quote(block)}")
    else:
        lengths = each(block, ndim, "block", _is_length, _WHAT)
    return [_length(value, n) for value, n in zip(lengths, shape, strict=True)]


def _is_length(value: Any) -> bool:
    if value is None or (isinstance(value, str) and value == "auto"):
        return True
    return is_whole(value) and (value > 0 or value == -1)


def _length(value: Any, size: int) -> int | None:
    if isinstance(value, str):
        return None
    return max(size, 1) if value is None or value == -1 else int(value)


def names_of_axes(geometry: BlockGeometry, output: Names, inputs: Sequence[tuple[int, Names]]) -> dict[str, int]:
    """Return the axes of the first output by their names: its own, and those that they have in the inputs.

    Parameters
    ----------
    geometry
        How it lies to the inputs.
    output
        Names of its axes, if it has any.
    inputs
        For each input its number of dimensions, and the names of its axes, if it has any.
    """
    found = {name: d for d, name in enumerate(output or ()) if name is not None}
    for ndim, names in inputs:
        first = len(geometry.common) - ndim
        for d, name in enumerate(names or (), first):
            if name is not None and d in geometry.kept:
                found.setdefault(name, geometry.kept.index(d))
    return found
