"""Unpacking of bits, against NumPy; buffers end at an inaccessible page."""

from __future__ import annotations

import sys

import numba
import numpy as np
import pytest
from gzarr_kernels.packed_bits import _flags, _unpack
from gzarr_kernels.slots import packed_bits as P
from support.guarded_memory import Guarded

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the compiled loop needs POSIX")


@numba.njit
def unpack(source: int, target: int, n: int, parameter: int) -> None:
    _unpack(source, target, n, parameter)


@numba.njit
def flags(source: int, target: int, n: int, from_highest: int) -> None:
    _flags(source, target, n, from_highest)


@pytest.mark.parametrize("width", [1, 2, 4, 8])
def test_any_number_of_bits(width: int) -> None:
    for kept in range(1, 8 * width):
        first_bit = 8 * width - kept if kept % 2 else 0
        sign = -1 << kept if first_bit == 0 else 0
        parameters = np.zeros(P.SIZE, np.int64)
        parameters[[P.WIDTH, P.KEPT, P.FIRST_BIT, P.SIGN]] = width, kept, first_bit, sign
        for n in (1, 2, 7, 8, 9, 40, 77):
            bits = np.random.default_rng(kept).integers(0, 2, (n, kept), np.uint8)
            source = Guarded(np.packbits(bits.reshape(-1), bitorder="little").tobytes())
            target = Guarded(n * width)
            unpack(source.address, target.address, n, parameters.ctypes.data)
            whole = np.zeros((n, 8 * width), np.uint8)
            whole[:, first_bit : first_bit + kept] = bits
            if sign:
                whole[:, kept:] = bits[:, -1:]
            assert target.tobytes() == np.packbits(whole, axis=1, bitorder="little").tobytes()


@pytest.mark.parametrize("order", ["little", "big"])
def test_flags(order: str) -> None:
    for n in (0, 1, 7, 8, 9, 16, 1000, 1003):
        expected = np.random.default_rng(n).integers(0, 2, n, np.uint8)
        source, target = Guarded(np.packbits(expected, bitorder=order).tobytes()), Guarded(n)  # type: ignore[call-overload]
        flags(source.address, target.address, n, int(order == "big"))
        assert target.tobytes() == expected.tobytes()
    for byte in range(256):
        source, target = Guarded(bytes([byte])), Guarded(8)
        flags(source.address, target.address, 8, int(order == "big"))
        assert target.tobytes() == np.unpackbits(np.array([byte], np.uint8), bitorder=order).tobytes()  # type: ignore[call-overload]
