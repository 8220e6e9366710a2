"""What blocks are given beside their own elements: a halo on each side, and what lies beyond the ends of the inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeAlias

import numpy as np

from ..arrays.elements import as_elements
from ..documents.json import quote
from ..errors import ArgumentError
from ..items import has_items
from ..real_numbers import is_number
from ..windows.boundary import MODES, name_of_numpy
from .arguments import each, is_whole, items

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from ..arrays.exporting import ExportedArray
    from ..windows.boundary import Mode

#: Elements before and after a block along each axis or all of them, or pairs of both.
Halo: TypeAlias = "SupportsIndex | Sequence[SupportsIndex | Sequence[SupportsIndex]] | npt.NDArray[np.integer[Any]]"


@dataclass(frozen=True)
class Surroundings:
    """What blocks are given beside their own elements.

    Attributes
    ----------
    halos
        For each axis of the inputs, the elements before and after a block.
    boundaries
        For each of them, what lies beyond the inputs; None for no halo there.
    padded
        Whether blocks at the end of an axis are given as long as others.
    """

    halos: tuple[tuple[int, int], ...]
    boundaries: tuple[Mode | float | complex | None, ...]
    padded: bool = False

    @classmethod
    def of(cls, ndim: int, halo: Any, boundary: Any, *, padded: bool) -> Surroundings:
        """Return what arguments of :func:`gzarr.map_blocks` say, for inputs of ``ndim`` axes.

        Raises
        ------
        ArgumentError
            If they are wrong.
        """
        pairs = items(halo)
        if len(pairs) == 1 and has_items(pairs[0]):
            # As numpy.pad's: one pair for all axes.
            pairs *= ndim
            halo = pairs
        what = "whole numbers of elements, at least 0, or pairs of them, before and after"
        halos = each(halo, ndim, "halo", _is_halo, what)
        modes = ", ".join(MODES)
        hint = next((found for value in items(boundary) if (found := name_of_numpy(value))), "")
        try:
            boundaries = each(boundary, ndim, "boundary", _is_boundary, f"one of {modes}, a number or None")
        except ArgumentError as error:
            raise ArgumentError(f"{error}{hint}") from None
        if padded and None in boundaries:
            raise ArgumentError("pad_blocks=True needs a boundary, which blocks at the end of an axis are padded by")
        return cls(tuple(map(_pair, halos)), tuple(boundaries), padded)

    def check_constants(self, inputs: Sequence[ExportedArray]) -> None:
        """Refuse a constant beyond the inputs that one of them cannot hold.

        Raises
        ------
        ArgumentError
            If so.
        """
        for boundary in self.boundaries:
            if boundary is None or isinstance(boundary, str):
                continue
            for array in inputs:
                try:
                    # By the rule for elements that are written: floats may be rounded, nothing else changes.
                    as_elements(_plain(boundary), array.dtype, (), array.name)
                    np.array(boundary, array.dtype)
                except (ArgumentError, OverflowError, TypeError, ValueError) as error:
                    raise ArgumentError(
                        f"{array.name} has the data type {array.dtype}, which cannot hold boundary={quote(boundary)}"
                    ) from error


def _is_halo(value: Any) -> bool:
    found = items(value)
    return len(found) == (2 if has_items(value) else 1) and all(is_whole(n) and n >= 0 for n in found)


def _pair(halo: Any) -> tuple[int, int]:
    before, after = items(halo) if has_items(halo) else (halo, halo)
    return int(before), int(after)


def _plain(number: Any) -> Any:
    """Return a number as one that NumPy knows; it takes fractions and decimals for objects."""
    return number if isinstance(number, int | float | complex | np.generic) else complex(number)


def _is_boundary(value: Any) -> bool:
    # Comparing with a text would call an array's own comparison.
    if value is None or isinstance(value, np.number | np.bool):
        return True
    return value in MODES if isinstance(value, str) else is_number(value) and not has_items(value)
