"""What lies beyond the ends of an array: which of its elements stand there, by the names of ``numpy.pad``.

``scipy.ndimage`` has other names for the same, and one of them, ``"reflect"``, means another thing there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    IntArray = npt.NDArray[np.int64]

#: ``"symmetric"`` is d c b a | a b c d, ``"reflect"`` is d c b | a b c d, ``"edge"`` is a a a | a b c d, and ``"wrap"``
#: is b c d | a b c d.
Mode: TypeAlias = Literal["symmetric", "reflect", "edge", "wrap"]
MODES: Final[tuple[str, ...]] = get_args(Mode)

#: Names of ``scipy.ndimage`` that are not NumPy's.
_OF_SCIPY: Final = {"mirror": "reflect", "grid-mirror": "symmetric", "nearest": "edge", "grid-wrap": "wrap"}


def folded(places: IntArray, size: int, mode: str) -> IntArray:
    """Return the elements that stand at places along an axis, which may be beyond its ends.

    Parameters
    ----------
    places
        int64, of any shape.
    size
        Length of the axis, at least 1.
    mode
        One of :data:`MODES`.
    """
    if mode == "edge":
        return np.clip(places, 0, size - 1)
    if mode == "wrap":
        return places % size
    # The elements there and back again; their ends once ("reflect") or twice.
    period = max(2 * (size - 1), 1) if mode == "reflect" else 2 * size
    there = places % period
    return np.minimum(there, period - there if mode == "reflect" else period - 1 - there)


def name_of_numpy(mode: object) -> str:
    """Return words for an error that name NumPy's word for one of SciPy's; none if it is not one of these."""
    name = _OF_SCIPY.get(mode) if isinstance(mode, str) else None
    return "" if name is None else f" (what SciPy calls {mode!r} is {name!r} in NumPy and here)"
