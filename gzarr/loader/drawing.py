"""Which samples an epoch has if some are to come more often than others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from .permutation import hashed

if TYPE_CHECKING:
    import numpy.typing as npt

    from .cells import IntArray

#: Rounds in which samples that would come more than once leave their surplus to the others.
_ROUNDS: Final = 64


def drawn(
    total: int,
    count: int,
    weights: npt.NDArray[np.float64] | None,
    key: int,
    *,
    replace: bool,
    classes: IntArray | None = None,
) -> IntArray:
    """Draw samples, each about as often as it should be.

    This is systematic sampling in a random order (Madow, "On the theory of systematic sampling", 1949): each sample is
    drawn as often as expected, rounded up or down, and neighbours are drawn independently of each other.

    Parameters
    ----------
    total, count
        Number of samples to draw from, at least 1 if ``count`` is; and how many to draw.
    weights
        float64 ``(total,)``, of at least 0, not all of them 0; None for equal ones.
    key
        Determines the result.
    replace
        Whether a sample may be drawn several times. If not, at least ``count`` weights are above 0.
    classes
        int64 ``(total,)``, class of each sample: as a whole, each class is drawn as often as expected, too, rounded up
        or down. None for no classes.

    Returns
    -------
    int64 ``(count,)``, ascending.
    """
    if not count:
        return np.empty(0, np.int64)
    numbers = np.arange(total)
    randomly = hashed(key, numbers)
    order = np.argsort(randomly, kind="stable") if classes is None else np.lexsort((randomly, classes))
    offset = (key >> 11) / 2**53
    if weights is None:
        # Whole rounds of all, and some of one more.
        whole, rest = divmod(count, total)
        return np.sort(np.append(np.tile(numbers, whole), order[:rest]))
    # By the largest one first: neither huge nor tiny weights leave the range of floats.
    relative = weights / weights.max()
    expected = count * (relative / relative.sum())
    if not replace:
        expected = _at_most_once(expected, count)
    ends = np.cumsum(expected[order])
    found = order[np.searchsorted(ends * (count / ends[-1]), np.arange(count) + offset, "right").clip(max=total - 1)]
    if replace:
        return np.sort(found)
    # By a rounding error, one may have been drawn twice instead of its neighbour.
    taken = np.zeros(total, bool)
    taken[found] = True
    others = order[~taken[order] & (weights[order] > 0)]
    taken[others[: count - np.count_nonzero(taken)]] = True
    return np.flatnonzero(taken)


def _at_most_once(expected: npt.NDArray[np.float64], count: int) -> npt.NDArray[np.float64]:
    """Return how often samples are expected if none comes twice: the others keep their proportions."""
    for _ in range(_ROUNDS):
        full = expected >= 1
        rest = float(expected[~full].sum())
        left = count - np.count_nonzero(full)
        if rest <= 0 or left <= 0 or rest >= left:
            break
        # In this order, tiny weights do not overflow.
        expected = np.where(full, 1.0, np.where(full, 0.0, expected) / rest * left)
    return np.minimum(expected, 1.0)
