"""Pseudorandom permutations with random access: any part of a shuffled order, without the rest of it.

A balanced Feistel network is a permutation of the numbers below a power of four, whatever its round function is.
Numbers that fall outside the wanted range are sent through it again until they fall inside (cycle walking). Black and
Rogaway, "Ciphers with arbitrary finite domains" (2002), show that it stays a permutation. The round function is the
finaliser of SplitMix64 (Steele, Lea and Flood, 2014). All numbers come from the key by integer arithmetic alone, so an
order is the same on every machine and with every version of NumPy.

:class:`Permutations` are many at a time, of lengths of their own. They permute the places of a rectangle that is hardly
larger than the wanted range, and their round function has 32 bits (``lowbias32`` of Wellons, "Prospecting for hash
functions", 2018), of which processors compute several at a time.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Iterable

IntArray: TypeAlias = npt.NDArray[np.int64]

#: Four rounds are indistinguishable from random for ideal round functions (Luby and Rackoff); ours are plain hashes.
_ROUNDS: Final = 6
# Permutations up to this length are made as a whole.
_TABLED: Final = 256
# So many at a time stay in the processor's cache.
_AT_ONCE: Final = 1 << 14
_GAMMA: Final = 0x9E3779B97F4A7C15
_MASK: Final = 2**64 - 1
_MASK_32: Final = 2**32 - 1


def mix(*numbers: int) -> int:
    """Return a hash of some integers, from 0 to 2⁶⁴ − 1."""
    state = 0
    for number in numbers:
        state = _finalised(((state ^ number) + _GAMMA) & _MASK)
    return state


def _finalised(z: int) -> int:
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def hashed(key: int, numbers: IntArray) -> npt.NDArray[np.uint64]:
    """Return a hash of each number: uint64 of the same shape, uniform."""
    z = numbers.astype(np.uint64)
    z *= np.uint64(_GAMMA)
    z += np.uint64(key)
    return _finalised_each(z)


def uniform(key: int, numbers: IntArray, below: int) -> IntArray:
    """Return an integer from 0 to ``below`` − 1 for each number, int64 of the same shape, uniform.

    Parameters
    ----------
    below
        At least 1 and below 2³². The bias of the multiplication is then below 2⁻³².
    """
    high = hashed(key, numbers) >> np.uint64(32)
    return ((high * np.uint64(below)) >> np.uint64(32)).astype(np.int64)


def _finalised_each(z: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Do the same as :func:`_finalised` for each number, in place."""
    z ^= z >> np.uint64(30)
    z *= np.uint64(0xBF58476D1CE4E5B9)
    z ^= z >> np.uint64(27)
    z *= np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return z


class Permutation:
    """A permutation of the numbers 0 to n − 1.

    Parameters
    ----------
    n
        Length, at most 2⁶².
    key
        Integers that determine the permutation.
    """

    __slots__ = ("_half", "_keys", "n")

    def __init__(self, n: int, key: Iterable[int]) -> None:
        self.n: int = n
        # Half of the bits of a number; the network permutes the numbers below 4 ** half.
        self._half = max(((n - 1).bit_length() + 1) // 2, 1)
        seed = mix(*key)
        self._keys = [mix(seed, i) for i in range(_ROUNDS)]

    def __call__(self, positions: IntArray) -> IntArray:
        """Return the numbers at some positions, int64 of the same shape."""
        result = self._network(positions.astype(np.uint64))
        # At most three of four numbers are outside, so this ends soon.
        outside = np.flatnonzero(result >= np.uint64(self.n))
        while len(outside):
            again = self._network(result[outside])
            result[outside] = again
            outside = outside[again >= np.uint64(self.n)]
        return result.astype(np.int64)

    def all(self) -> IntArray:
        """Return the whole permutation, int64 ``(n,)``."""
        result = np.arange(self.n)
        for begin in range(0, self.n, _AT_ONCE):
            result[begin : begin + _AT_ONCE] = self(result[begin : begin + _AT_ONCE])
        return result

    def _network(self, numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
        half = np.uint64(self._half)
        mask = np.uint64((1 << self._half) - 1)
        left, right = numbers >> half, numbers & mask
        for key in self._keys:
            left, right = right, left ^ (_finalised_each(right + np.uint64(key)) & mask)
        return (left << half) | right


class Permutations:
    """Permutations of the numbers below some lengths.

    Parameters
    ----------
    lengths
        int64 ``(p,)``, at least 1 and at most 2⁶².
    key
        Integers that determine the permutations, with the place of each in ``lengths``.

    Notes
    -----
    Short ones are tables, as a network of few places is less than random. Others are a Feistel network on a rectangle:
    rows are shifted by a hash of the column, and columns by one of the row, modulo the sides.
    """

    __slots__ = ("_first", "_keys", "_lengths", "_rounds", "_sides", "_table")

    def __init__(self, lengths: IntArray, key: Iterable[int]) -> None:
        seed = mix(*key)
        self._lengths = lengths
        longest = int(lengths.max(initial=1))
        self._first, self._table = np.cumsum(lengths) - lengths, np.empty(0, np.int64)
        if longest <= _TABLED:
            which = np.repeat(np.arange(len(lengths)), lengths)
            self._table = np.lexsort((hashed(seed, np.arange(len(which))), which)) - self._first[which]
        # Of rectangles that hardly have more places than there are numbers. Lengths that are about equal share one.
        self._sides: Any = _sides(longest)
        if (lengths < longest - 1).any():
            self._sides = tuple(np.array([_sides(length) for length in lengths.tolist()], np.uint64).T)
        self._keys = (hashed(seed, np.arange(len(lengths))) >> np.uint64(32)).astype(np.uint32)
        self._rounds = [np.uint32(mix(seed, i) & _MASK_32) for i in range(_ROUNDS)]

    def __call__(self, which: IntArray, numbers: IntArray) -> IntArray:
        """Return for each number where its permutation, ``which``, takes it: int64 ``(n,)``."""
        if len(self._table):
            listed: IntArray = self._table[self._first[which] + numbers]
            return listed
        result = self._network(which, numbers)
        lengths = self._lengths[which]
        outside = np.flatnonzero(result >= lengths)
        while len(outside):
            again = self._network(which[outside], result[outside])
            result[outside] = again
            outside = outside[again >= lengths[outside]]
        return result

    def _network(self, which: IntArray, numbers: IntArray) -> IntArray:
        high, low = self._sides
        if isinstance(high, np.ndarray):
            high, low = high[which], low[which]
        # Place in the rectangle: row and column.
        halves = [half.astype(np.uint32) for half in np.divmod(numbers.astype(np.uint64), low)]
        key, sides = self._keys[which], (high, low)
        wraps = [np.asarray(side).astype(np.uint32) for side in sides]
        z, other = np.empty_like(key), np.empty_like(key)
        wide = np.empty(len(key), np.uint64)
        for i, constant in enumerate(self._rounds):
            target, side = halves[i % 2], sides[i % 2]
            np.add(halves[1 - i % 2], key, out=z)
            z += constant
            _finalise_32(z, other)
            # Of 32 random bits, a number below the side.
            np.multiply(z, side, out=wide)
            wide >>= np.uint64(32)
            np.copyto(z, wide, casting="unsafe")
            target += z
            # What is below the side wraps around, and is the larger one then.
            np.minimum(target, np.subtract(target, wraps[i % 2], out=other), out=target)
        result: IntArray = (halves[0] * low + halves[1]).astype(np.int64)
        return result


def _sides(length: int) -> tuple[np.uint64, np.uint64]:
    """Return the sides of a rectangle, nearly a square and nearly the smallest, with at least this number of places."""
    low = math.isqrt(length - 1) + 1
    return np.uint64(-(-length // low)), np.uint64(low)


def _finalise_32(z: npt.NDArray[np.uint32], shifted: npt.NDArray[np.uint32]) -> None:
    """Hash each number in place, with memory for temporary ones."""
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        z ^= np.right_shift(z, np.uint32(shift), out=shifted)
        z *= np.uint32(factor)
    z ^= np.right_shift(z, np.uint32(16), out=shifted)
