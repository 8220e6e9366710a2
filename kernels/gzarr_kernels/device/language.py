"""What the device kernels are written in: Numba, which compiles them.

Where the wheel has their PTX (``ptx.py``), they are only names with parameters here, and Numba is not imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .ptx import programs

if TYPE_CHECKING or not programs():
    from llvmlite import ir
    from numba import cuda, float32, float64, int32, int64, njit, types, uint32, uint64
    from numba.extending import intrinsic

    # One source for both targets.
    from ..bitshuffle import transpose_bits_8x8
else:

    class _Unused:
        """A part of Numba in functions that are not compiled here."""

        def __getattr__(self, name: str) -> Any:
            return self

        def __call__(self, *arguments: Any, **keywords: Any) -> Any:
            return self

    ir = cuda = float32 = float64 = int32 = int64 = njit = types = uint32 = uint64 = intrinsic = _Unused()
    transpose_bits_8x8 = ir

__all__ = [
    "cuda",
    "float32",
    "float64",
    "int32",
    "int64",
    "intrinsic",
    "ir",
    "njit",
    "transpose_bits_8x8",
    "types",
    "uint32",
    "uint64",
]
