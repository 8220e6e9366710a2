"""Where the chunks of a rectilinear grid begin along one dimension.

Source: https://github.com/zarr-developers/zarr-extensions/tree/main/chunk-grids/rectilinear
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

IntArray: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Edges:
    """Chunks of different lengths along one dimension.

    Attributes
    ----------
    lengths
        int64 ``(n,)``, of each chunk, in elements, each at least 1.
    starts
        int64 ``(n + 1,)``: chunk ``i`` has the elements from ``starts[i]`` to ``starts[i + 1]``.
    """

    lengths: IntArray
    starts: IntArray = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "starts", np.append(np.int64(0), np.cumsum(self.lengths)))

    def __len__(self) -> int:
        return len(self.lengths)

    def chunk_of(self, indices: IntArray) -> IntArray:
        """Return which chunk each index, from 0 to below ``starts[-1]``, is in."""
        return np.searchsorted(self.starts, indices, side="right") - 1
