"""About how many bytes an element takes in memory, for choices that keep within a budget.

Elements that are Python objects, such as strings, have no size in the metadata, so a few chunks are decoded to see.
"""

from __future__ import annotations

import itertools
import math
import sys
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..errors import GzarrError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy.typing as npt

    from .exporting import ExportedArray

#: Assumed bytes of an object if none is known.
OBJECT_NBYTES: Final = 64
#: Chunks that are decoded.
_CHUNKS: Final = 3
#: Where chunks are looked for, in eighths of the way through the array: any of them may be absent.
_EIGHTHS: Final = (0, 8, 4, 2, 6, 1, 3, 5, 7)
#: Types whose objects hold no others.
_HOLD_NOTHING: Final = frozenset({str, bytes, int, float, bool, type(None)})
#: Bytes of a reference.
_REFERENCE: Final = 8


def element_nbytes(array: ExportedArray) -> int:
    """Return about how many bytes an element takes in host memory, at least 1.

    Elements that are Python objects are measured in a few stored chunks, spread over the array, of which the one with
    the largest counts. Chunks that are absent or cannot be read are passed over.

    Parameters
    ----------
    array
        An array, or a view of one.
    """
    if not array.dtype.hasobject:
        return max(array.dtype.itemsize, 1)
    chunks = itertools.islice(_some_chunks(array), _CHUNKS)
    means = (objects_nbytes(chunk.ravel().tolist()) / chunk.size for chunk in chunks)
    return max((_REFERENCE + math.ceil(mean) for mean in means), default=OBJECT_NBYTES)


def objects_nbytes(objects: Iterable[Any]) -> int:
    """Return about how many bytes Python objects take in memory, with all that lists and dictionaries hold."""
    total = 0
    seen: set[int] = set()
    left = [list(objects)]
    while left:
        some = left.pop()
        if set(map(type, some)) <= _HOLD_NOTHING:
            total += sum(map(sys.getsizeof, some))
            continue
        for item in some:
            total += sys.getsizeof(item, OBJECT_NBYTES)
            if isinstance(item, np.ndarray) and item.base is not None:
                total += item.nbytes
            elif isinstance(item, list | tuple | dict) and id(item) not in seen:
                # A pickled list may hold itself.
                seen.add(id(item))
                left.append(list(item))
                if isinstance(item, dict):
                    left.append(list(item.values()))
    return total


def _some_chunks(array: ExportedArray) -> Iterator[npt.NDArray[Any]]:
    """Yield stored chunks (inner chunks, in shards) along the diagonal of the grid, as far as they can be read."""
    grid = array._planned_grid
    counts = grid.count_within(grid.shape)
    if 0 in counts:
        return
    for coords in dict.fromkeys(tuple((n - 1) * eighth // 8 for n in counts) for eighth in _EIGHTHS):
        extent = grid.extent(coords)
        chunk = np.empty([end - begin for begin, end in extent], array.dtype)
        try:
            array.read(tuple(slice(*ends) for ends in extent), out=chunk, missing="error")
        except GzarrError:
            continue
        yield chunk
