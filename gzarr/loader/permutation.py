"""Pseudorandom permutations with random access: any part of a shuffled order, without the rest of it.

A balanced Feistel network is a permutation of the numbers below a power of four, whatever its round function is.
Numbers that fall outside the wanted range are sent through it again until they fall inside (cycle walking). Black and
Rogaway, "Ciphers with arbitrary finite domains" (2002), show that it stays a permutation. The round function is the
finaliser of SplitMix64 (Steele, Lea and Flood, 2014). All numbers come from the key by integer arithmetic alone, so an
order is the same on every machine and with every version of NumPy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Iterable

IntArray: TypeAlias = npt.NDArray[np.int64]

#: Four rounds are indistinguishable from random for ideal round functions (Luby and Rackoff); ours are plain hashes.
_ROUNDS: Final = 6
_GAMMA: Final = 0x9E3779B97F4A7C15
_MASK: Final = 2**64 - 1


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
        return self(np.arange(self.n))

    def _network(self, numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
        half = np.uint64(self._half)
        mask = np.uint64((1 << self._half) - 1)
        left, right = numbers >> half, numbers & mask
        for key in self._keys:
            left, right = right, left ^ (_finalised_each(right + np.uint64(key)) & mask)
        return (left << half) | right
