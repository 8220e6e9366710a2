"""The logarithm of 1 + x for many float64, which compilers turn into vector instructions: there are no branches.

It is that of FreeBSD's msun (``s_log1p.c``): with ``1 + x = 2**k * (1 + f)``, a polynomial in ``f``, and a correction
for what ``1 + x`` has lost. Results differ from the nearest float64 by less than one unit in the last place.
"""

from __future__ import annotations

import struct
from typing import Final

import numpy as np
from numba import types

from .jit import unit
from .memory import f64, u64

_LN2_HIGH: Final = 6.93147180369123816490e-01
_LN2_LOW: Final = 1.90821492927058770002e-10
_P1: Final = 6.666666666666735130e-01
_P2: Final = 3.999999999940941908e-01
_P3: Final = 2.857142874366239149e-01
_P4: Final = 2.222219843214978396e-01
_P5: Final = 1.818357216161805012e-01
_P6: Final = 1.531383769920937332e-01
_P7: Final = 1.479819860511658591e-01

# Bits of the square root of 1/2, where 1 + f begins, and what moves it to a power of two.
(_ROOT,) = (np.uint64(bits) for bits in struct.unpack("<Q", struct.pack("<d", 0.5**0.5)))
_ONE: Final = np.uint64(1023 << 52)
_MOVE: Final = _ONE - _ROOT
_MANTISSA: Final = np.uint64((1 << 52) - 1)
_SHIFT: Final = np.uint64(52)
# Bits of 2**52, whose low bits are an integer; and that with the bias of an exponent.
_INTEGER: Final = np.uint64(1075 << 52)
_BIASED: Final = 2.0**52 + 1023.0
_INFINITY: Final = float("inf")
_NAN: Final = float("nan")


@unit(types.void, 3)
def log1p(x: int, n: int, scratch: int) -> None:
    """Replace numbers by their logarithms: −∞ for −1, NaN for what is less.

    Parameters
    ----------
    x
        Address of float64 ``(n,)``.
    n
        How many.
    scratch
        Address of float64 ``(3 * n,)``.
    """
    sums, fractions, exponents = scratch, scratch + 8 * n, scratch + 16 * n
    for i in range(n):
        f64(sums)[i] = f64(x)[i] + 1.0
    for i in range(n):
        moved = u64(sums)[i] + _MOVE
        u64(exponents)[i] = (moved >> _SHIFT) | _INTEGER
        u64(fractions)[i] = (moved & _MANTISSA) + _ROOT
    for i in range(n):
        value = f64(x)[i]
        u = f64(sums)[i]
        k = f64(exponents)[i] - _BIASED
        f = f64(fractions)[i] - 1.0
        c = (value - (u - 1.0)) / u
        s = f / (2.0 + f)
        z = s * s
        r = z * (_P1 + z * (_P2 + z * (_P3 + z * (_P4 + z * (_P5 + z * (_P6 + z * _P7))))))
        half = 0.5 * f * f
        found = k * _LN2_HIGH - ((half - (s * (half + r) + (k * _LN2_LOW + c))) - f)
        found = found if value > -1.0 else (-_INFINITY if value == -1.0 else _NAN)
        # Also of a zero that has a sign.
        found = value if value == 0.0 else found
        f64(x)[i] = found if value < _INFINITY else value
