"""Levels of pyramids from whole volumes, by others: what passes over blocks must give."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import tensorstore as ts

if TYPE_CHECKING:
    from collections.abc import Sequence

_NAMES = {"nearest": "stride"}


def whole_levels(
    volume: np.ndarray[Any, Any], factors: Sequence[tuple[int, ...]], method: str
) -> list[np.ndarray[Any, Any]]:
    """Return level 0 and all below, each from the whole level before, by TensorStore."""
    found = [volume]
    for each in factors:
        found.append(ts.downsample(ts.array(found[-1]), list(each), _NAMES.get(method, method)).read().result())
    return found


class Computed:
    """An array whose elements are computed when they are asked for, and take no memory."""

    def __init__(self, shape: tuple[int, ...], dtype: str = "u1") -> None:
        self.shape = shape
        self.dtype = np.dtype(dtype)
        self.asked: list[tuple[slice, ...]] = []

    def __getitem__(self, box: tuple[slice, ...]) -> np.ndarray[Any, Any]:
        self.asked.append(box)
        total = np.zeros((), self.dtype)
        for d, s in enumerate(box):
            total = np.add.outer(total, (np.arange(s.start, s.stop) // 8 * (d + 1)).astype(self.dtype))
        return total
