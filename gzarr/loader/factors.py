"""How many elements of an array one element of another array of the same region stands for.

Levels of pyramids, and masks, are smaller by whole factors. Where a length is no multiple of the factor, gzarr and
others fill the last element up (10 elements become 3 by a factor of 4), and others leave it out (they become 2). So
lengths alone may mean several factors: scales of images, and then the other axes and what is usual, decide.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Final, TypeAlias

from ..errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

#: A fraction, where an array has more elements than the one that is counted in.
Factor: TypeAlias = int | Fraction

#: Scales are often rounded when they are written; lengths have to agree.
_TOLERANCE: Final = 5e-3

# Levels are made by halves, by all programs, or by thirds, of which there are few.
_HALVES: Final = tuple(2**i for i in range(1, 63))
_THIRDS: Final = (3, 9, 27, 81, 243)


def ratios_of(first: Sequence[float] | None, other: Sequence[float] | None) -> list[float] | None:
    """Return the ratios of the distances of elements along the last axes of two arrays; None if one is not known."""
    if first is None or other is None:
        return None
    k = min(len(first), len(other))
    return [b / a for a, b in zip(first[len(first) - k :], other[len(other) - k :], strict=True)]


def whole_factors(
    what: str, size: Sequence[int], lengths: Sequence[int], ratios: Sequence[float] | None
) -> tuple[Factor, ...]:
    """Return how many elements of an array one of another array stands for along each axis; 0 if no whole number.

    Parameters
    ----------
    what
        The other array, for an error.
    size, lengths
        Lengths of both along each axis.
    ratios
        Distances of the elements of the other array to those of the array; None if they are not known. Those that are
        not of these lengths are left out.

    Raises
    ------
    ArgumentError
        If several factors are as likely.
    """
    pairs = list(zip(size, lengths, strict=True))
    given: Sequence[float | None] = [None] * len(pairs) if ratios is None else ratios
    known = [known_factor(*pair, ratio) for pair, ratio in zip(pairs, given, strict=True)]
    options = [_options(*pair) for pair in pairs]
    if not all(own or factor for own, factor in zip(options, known, strict=True)):
        return tuple(factor or (own[0] if own else 0) for own, factor in zip(options, known, strict=True))
    reduced = [
        range(int(factor), int(factor) + 1) if factor else own
        for own, factor, (n, length) in zip(options, known, pairs, strict=True)
        if 1 < length < n
    ]
    # One factor of all axes, or that of an axis that has no other.
    shared = range(max((o.start for o in reduced), default=0), min((o.stop for o in reduced), default=0))
    exact: set[Factor] = set()
    certain: set[Factor] = {own[0] for own in reduced if len(own) == 1}
    likely: list[list[Factor]] = []
    for own, factor, (n, length) in zip(options, known, pairs, strict=True):
        preferred = range(max(own.start, shared.start), min(own.stop, shared.stop)) or own
        agreed = certain.intersection(own)
        if agreed and not factor and n % length == 0 and n // length in _HALVES:
            # What other axes tell, and what this one does, are as likely.
            exact.add(n // length)
            agreed.add(n // length)
        likely.append([factor] if factor else [*(sorted(agreed) or _likely(preferred, n, length))])
    # One axis tells what the others leave open.
    usual = exact | {
        each[0] for each, (n, length) in zip(likely, pairs, strict=True) if len(each) == 1 and 1 < length < n
    }
    found = []
    for each, (n, length) in zip(likely, pairs, strict=True):
        narrowed = each if len(each) == 1 else [factor for factor in each if factor in usual]
        if len(narrowed) != 1:
            told = " or ".join(map(str, each)) if len(each) < 4 else f"{each[0]} to {each[-1]}"
            raise ArgumentError(
                f"{what} has {length} elements where the first array has {n}: one may stand for {told} of them; "
                "give OME images or their levels (image.levels[i], without .array), whose scales tell it, or repeat "
                "the elements of a mask (np.repeat), so that one stands for fewer"
            )
        found.append(narrowed[0])
    return tuple(found)


def known_factor(size: int, length: int, ratio: float | None) -> Factor | None:
    """Return the whole number, or one by a whole number, that a ratio of distances is; None if lengths are not so."""
    if ratio is None or not size or not length:
        return None
    if length == size == 1:
        # Planes are of one region, however thick each is said to be.
        return 1
    if length > size:
        inverse = known_factor(length, size, 1 / ratio)
        return None if inverse is None else Fraction(1) / inverse
    factor = round(min(ratio, 2.0**62))
    if factor < 1 or not math.isclose(ratio, factor, rel_tol=_TOLERANCE):
        return None
    # An element beyond the end stands for nothing.
    factor = min(factor, size)
    return factor if length in (-(-size // factor), size // factor) else None


def _options(size: int, length: int) -> range:
    """Return the factors by which a length becomes another one, whether the last element is filled up or left out."""
    if length == size:
        return range(1, 2)
    if not 0 < length < size:
        return range(0)
    if length == 1:
        # Of all elements.
        return range(size, size + 1)
    # Those that leave elements out end where those that fill them up begin.
    return range(size // (length + 1) + 1, -(-size // (length - 1)))


def _likely(options: range, size: int, length: int) -> list[int]:
    """Return which of some factors may be meant: divisors, and the usual ones."""
    if len(options) == 1:
        return [options[0]]
    filled = range(max(options.start, -(-size // length)), options.stop)
    divisor, rest = divmod(size, length)
    is_divisor = not rest and divisor in options
    if is_divisor and divisor in _HALVES:
        return [divisor]
    found = {factor for factor in _HALVES if factor in options} | {factor for factor in _THIRDS if factor in filled}
    if is_divisor:
        found.add(divisor)
    if found and len(filled) == 1:
        found.add(filled[0])
    # Round numbers are what people choose.
    round_ones = [factor for factor in options if factor % 10 == 0]
    return sorted(found) or (round_ones if len(round_ones) == 1 else [*options])
