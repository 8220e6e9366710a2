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

#: Part of all samples that may be missing by rounding errors.
_ROUNDING: Final = 1e-9
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
        comes as often as the others, but for one time; with classes, as often as expected.
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
    there = np.count_nonzero(weights)
    if classes is not None and count > there:
        # Some come twice anyway, and classes equally often.
        replace = True
    if not replace and count > there:
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


def fitted(
    weights: npt.NDArray[np.float64],
    volumes: IntArray,
    classes: IntArray,
    expected: Sequence[float],
    count: int,
    *,
    replace: bool,
) -> tuple[npt.NDArray[np.float64], bool]:
    """Return how often samples are expected if volumes come as often as they should, and all classes equally often.

    This is iterative proportional fitting (Deming and Stephan, 1940). Where both cannot be, classes come equally often,
    and volumes nearly as often as they should.

    Parameters
    ----------
    weights, volumes, classes
        float64 ``(n,)``, weights of samples, and int64 ``(n,)``, the volume and the class of each.
    expected
        Samples of each volume in the mean.
    count
        Number of all.
    replace
        Whether a sample may be drawn several times. If not, none of a volume that has enough of them is expected more
        than once, as long as there is a volume that has not: classes come as often as that leaves them.

    Returns
    -------
    expected
        float64 ``(n,)``.
    shifted
        Whether volumes that have too few samples give more than classes need, so that the others give none twice.
    """
    # Those of one volume and one class are alike.
    n_classes = int(classes.max()) + 1
    pairs, which, there = np.unique(volumes * n_classes + classes, return_inverse=True, return_counts=True)
    volume, class_ = pairs // n_classes, pairs % n_classes
    of_volumes = np.asarray(expected, np.float64)
    found: npt.NDArray[np.float64] = np.bincount(which, weights / weights.max()) * (of_volumes > 0)[volume]
    scarce = of_volumes > np.bincount(volumes, minlength=len(of_volumes))
    most = np.where(replace | scarce[volume], np.inf, there)
    of_volumes = of_volumes * (count / of_volumes.sum())
    have = np.bincount(class_, found) > 0
    of_classes = have * (count / np.count_nonzero(have))
    for _ in range(_ROUNDS):
        before = found
        found = _scaled(_scaled(found, volume, of_volumes, most), class_, of_classes, most)
        if np.allclose(found, before, rtol=1e-12, atol=0):
            break
    missing = count - float(found.sum())
    free = np.isinf(most)
    shifted = missing > _ROUNDING * count and bool(found[free].any()) and not free.all()
    if shifted:
        found = np.where(free, found * (1 + missing / found[free].sum()), found)
    return np.asarray((found / there)[which], np.float64), shifted


def _scaled(
    found: npt.NDArray[np.float64],
    kinds: IntArray,
    wanted: npt.NDArray[np.float64],
    most: npt.NDArray[np.float64],
) -> npt.NDArray[np.float64]:
    """Scale numbers of each kind so that these add up to what is wanted, or as near as they may be."""
    full = np.zeros(len(found), bool)
    for _ in range(_ROUNDS):
        left = wanted - np.bincount(kinds, np.where(full, most, 0.0), len(wanted))
        rest = np.bincount(kinds, np.where(full, 0.0, found), len(wanted))
        factor = np.divide(left, rest, out=np.zeros(len(wanted)), where=rest > 0)
        found = np.where(full, most, found * np.maximum(factor, 0.0)[kinds])
        over = found > most
        if not over.any():
            break
        full |= over
    return np.minimum(found, most)


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
