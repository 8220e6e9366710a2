"""Which samples an epoch has if some are to come more often than others."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np

from .permutation import Permutation, hashed

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from .cells import IntArray

#: Rounds in which samples that would come more than once leave their surplus to the others.
_ROUNDS: Final = 64
#: Of more samples than these, some equal ones are drawn without looking at the others. Of fewer, a table is as quick,
#: and more random than a network of few places.
TABLED: Final = 1 << 12
# So many at a time stay in the processor's cache.
_AT_ONCE: Final = 1 << 14


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
        Whether a sample may be drawn several times. If not, at least ``count`` weights are above 0, or each of these
        comes as often as the others, but for one time.
    classes
        int64 ``(total,)``, class of each sample: as a whole, each class is drawn as often as expected, too, rounded up
        or down. None for no classes.

    Returns
    -------
    int64 ``(count,)``, ascending.
    """
    if not count:
        return np.empty(0, np.int64)
    if weights is None:
        return _evenly(total, count, key)
    if not replace and count > (there := np.count_nonzero(weights)):
        # Whole rounds of all that may be drawn, and some of one more.
        whole, rest = divmod(count, int(there))
        some = drawn(total, rest, weights, key, replace=False, classes=classes)
        return np.sort(np.append(np.tile(np.flatnonzero(weights), whole), some))
    randomly = hashed(key, np.arange(total))
    order = np.argsort(randomly, kind="stable") if classes is None else np.lexsort((randomly, classes))
    offset = (key >> 11) / 2**53
    # By the largest one first: neither huge nor tiny weights leave the range of floats.
    relative = weights / weights.max()
    expected = count * (relative / relative.sum())
    if not replace:
        expected = at_most_once(expected, count)
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


def drawn_counts(expected: Sequence[float], key: int) -> list[int]:
    """Return how many samples an epoch has of each volume: as many as expected, rounded up or down.

    Which are rounded up is drawn, so that a volume has as many as expected in the mean of all epochs. All together have
    the same number in each epoch: the sum of those expected, rounded. What that rounding adds or takes away is shared
    in proportion to the fractions.

    Parameters
    ----------
    expected
        Samples of each volume in the mean, numbers of at least 0.
    key
        Determines the result.
    """
    whole = np.floor(expected)
    result = whole.astype(np.int64)
    more = total_count(expected) - int(result.sum())
    if more:
        result[drawn(len(result), more, np.asarray(expected) - whole, key, replace=False)] += 1
    counts: list[int] = result.tolist()
    return counts


def total_count(expected: Sequence[float]) -> int:
    """Return how many samples all volumes have together in each epoch, if so many are expected of each."""
    return round(math.fsum(expected))


def _evenly(total: int, count: int, key: int) -> IntArray:
    """Return ``count`` of ``total`` samples, ascending: whole rounds of all, and some of one more."""
    whole, rest = divmod(count, total)
    some = np.arange(rest)
    if rest and total <= TABLED:
        some = np.argsort(hashed(key, np.arange(total)), kind="stable")[:rest]
    elif rest:
        # Time and memory for those that are drawn, however many there are.
        permutation = Permutation(total, (key,))
        for begin in range(0, rest, _AT_ONCE):
            some[begin : begin + _AT_ONCE] = permutation(some[begin : begin + _AT_ONCE])
    return np.sort(np.append(np.tile(np.arange(total), whole), some) if whole else some)


def at_most_once(expected: npt.NDArray[np.float64], count: int) -> npt.NDArray[np.float64]:
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
