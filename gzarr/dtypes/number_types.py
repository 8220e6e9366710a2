"""Table of number types: one row holds everything that gzarr knows about a type.

Sources: https://zarr-specs.readthedocs.io/en/latest/v3/data-types/index.html (v3),
https://github.com/zarr-developers/zarr-extensions/tree/main/data-types (extensions),
https://zarr-specs.readthedocs.io/en/latest/v2/v2.0.html#data-type-encoding (v2; names without a byte order are
tensorstore's).

NumPy gets the small number types of the extensions from the package ml_dtypes, which is imported when a document first
names one of them. NumPy treats them as opaque bytes (``kind`` is mostly ``"V"``) and casts some of them wrongly
between byte orders, so their bytes are handled as unsigned integers (:attr:`NumberType.storage`).

``float128`` and ``complex256`` (v2's ``<f16``, ``<c32``) are missing: they are C's ``long double``, whose format
depends on the platform, and documents do not say which one was used.

To add a type, add a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from ..errors import UnsupportedError
from ..installing import COMMANDS

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class NumberType:
    """A number type.

    Attributes
    ----------
    names
        Names in v3 documents. The first one is written.
    type_string
        NumPy type string in v2 documents, without byte order; None where they use the first of ``names`` and
        little-endian elements.
    scalar
        Scalar type with its package: ``"numpy.int8"``.
    kind
        Boolean, signed or unsigned integer, real or complex floating-point number, as in NumPy's ``dtype.kind``. Also
        decides how fill values are spelled.
    bits
        Number of meaningful bits of a stored element; if less than 8, the other bits of its byte are unused.
    mantissa
        Number of stored mantissa bits of a real floating-point number, without the implicit one.
    part
        Name of the type of the real part of a complex number.
    in_cupy
        Whether CuPy supports the type.
    """

    names: tuple[str, ...]
    type_string: str | None
    scalar: str
    kind: Literal["b", "i", "u", "f", "c"]
    bits: int
    mantissa: int | None = None
    part: str | None = None
    in_cupy: bool = False

    @property
    def dtype_name(self) -> str:
        """Name of the NumPy dtype."""
        return self.scalar.rpartition(".")[2]

    @property
    def is_numpys(self) -> bool:
        """Whether NumPy itself has the type."""
        return self.scalar.startswith("numpy.")

    @property
    def nbytes(self) -> int:
        """Bytes of an element."""
        return -(-self.bits // 8)

    @property
    def swap_unit(self) -> int:
        """Width in bytes of the units that a change of byte order reverses; 1 where byte order has no meaning."""
        return self.nbytes // 2 if self.kind == "c" else self.nbytes

    @property
    def has_spare_bits(self) -> bool:
        """Whether an element has unused bits (a boolean has none: its whole byte is 0 or 1)."""
        return self.bits < 8 and self.kind != "b"

    @property
    def storage(self) -> np.dtype[Any]:
        """Type of the same layout, in native byte order, whose bytes NumPy copies and swaps correctly."""
        if self.is_numpys:
            return np.dtype(self.dtype_name)
        unit = np.dtype(f"u{self.swap_unit}")
        return np.dtype([("real", unit), ("imag", unit)]) if self.kind == "c" else unit

    def dtype(self, json_path: str = "$") -> np.dtype[Any]:
        """Return the NumPy dtype, in native byte order.

        Parameters
        ----------
        json_path
            Location of its name in the document, for messages.

        Raises
        ------
        UnsupportedError
            If ml_dtypes does not have the type, or is not installed.
        """
        if self.is_numpys:
            return np.dtype(self.dtype_name)
        try:
            import ml_dtypes
        except ImportError:
            raise UnsupportedError(
                f"the data type {self.names[0]!r} needs the package ml_dtypes: {COMMANDS['ml-dtypes']}",
                json_path=json_path,
            ) from None
        scalar = getattr(ml_dtypes, self.dtype_name, None)
        if scalar is None:
            raise UnsupportedError(
                f"the data type {self.names[0]!r} is not in ml_dtypes {ml_dtypes.__version__}; a newer one may have it",
                json_path=json_path,
            )
        result: np.dtype[Any] = np.dtype(scalar)
        return result


class NumberTypes:
    """Rows of the table, by each of their names.

    Parameters
    ----------
    rows
        One row per type.
    """

    def __init__(self, rows: Iterable[NumberType]) -> None:
        self.rows: Final = tuple(rows)
        self.by_v3_name: Final = {name: row for row in self.rows for name in row.names}
        self.by_v2_name: Final = {row.type_string or row.names[0]: row for row in self.rows}
        self._by_dtype_name: Final = {row.dtype_name: row for row in self.rows}
        # Cached, because NumPy takes microseconds to make the name of a dtype.
        self.of: Final = lru_cache(maxsize=256)(self._of)

    def _of(self, dtype: np.dtype[Any]) -> NumberType | None:
        return self._by_dtype_name.get(dtype.name)


# fmt: off
NUMBER_TYPES: NumberTypes = NumberTypes((
    #          names in v3                        v2     scalar type         kind bits
    NumberType(("bool",),                         "b1",  "numpy.bool",       "b",   1, in_cupy=True),
    NumberType(("int8",),                         "i1",  "numpy.int8",       "i",   8, in_cupy=True),
    NumberType(("int16",),                        "i2",  "numpy.int16",      "i",  16, in_cupy=True),
    NumberType(("int32",),                        "i4",  "numpy.int32",      "i",  32, in_cupy=True),
    NumberType(("int64",),                        "i8",  "numpy.int64",      "i",  64, in_cupy=True),
    NumberType(("uint8",),                        "u1",  "numpy.uint8",      "u",   8, in_cupy=True),
    NumberType(("uint16",),                       "u2",  "numpy.uint16",     "u",  16, in_cupy=True),
    NumberType(("uint32",),                       "u4",  "numpy.uint32",     "u",  32, in_cupy=True),
    NumberType(("uint64",),                       "u8",  "numpy.uint64",     "u",  64, in_cupy=True),
    NumberType(("float16",),                      "f2",  "numpy.float16",    "f",  16, mantissa=10, in_cupy=True),
    NumberType(("float32",),                      "f4",  "numpy.float32",    "f",  32, mantissa=23, in_cupy=True),
    NumberType(("float64",),                      "f8",  "numpy.float64",    "f",  64, mantissa=52, in_cupy=True),
    NumberType(("complex64", "complex_float32"),  "c8",  "numpy.complex64",  "c",  64, part="float32", in_cupy=True),
    NumberType(("complex128", "complex_float64"), "c16", "numpy.complex128", "c", 128, part="float64", in_cupy=True),
    #          names in v3              v2    scalar type                     kind bits
    NumberType(("int2",),               None, "ml_dtypes.int2",               "i",   2),
    NumberType(("int4",),               None, "ml_dtypes.int4",               "i",   4),
    NumberType(("uint2",),              None, "ml_dtypes.uint2",              "u",   2),
    NumberType(("uint4",),              None, "ml_dtypes.uint4",              "u",   4),
    NumberType(("bfloat16",),           None, "ml_dtypes.bfloat16",           "f",  16, mantissa=7, in_cupy=True),
    NumberType(("float4_e2m1fn",),      None, "ml_dtypes.float4_e2m1fn",      "f",   4, mantissa=1),
    NumberType(("float6_e2m3fn",),      None, "ml_dtypes.float6_e2m3fn",      "f",   6, mantissa=3),
    NumberType(("float6_e3m2fn",),      None, "ml_dtypes.float6_e3m2fn",      "f",   6, mantissa=2),
    NumberType(("float8_e3m4",),        None, "ml_dtypes.float8_e3m4",        "f",   8, mantissa=4),
    NumberType(("float8_e4m3",),        None, "ml_dtypes.float8_e4m3",        "f",   8, mantissa=3),
    NumberType(("float8_e4m3b11fnuz",), None, "ml_dtypes.float8_e4m3b11fnuz", "f",   8, mantissa=3),
    NumberType(("float8_e4m3fn",),      None, "ml_dtypes.float8_e4m3fn",      "f",   8, mantissa=3),
    NumberType(("float8_e4m3fnuz",),    None, "ml_dtypes.float8_e4m3fnuz",    "f",   8, mantissa=3),
    NumberType(("float8_e5m2",),        None, "ml_dtypes.float8_e5m2",        "f",   8, mantissa=2),
    NumberType(("float8_e5m2fnuz",),    None, "ml_dtypes.float8_e5m2fnuz",    "f",   8, mantissa=2),
    NumberType(("float8_e8m0fnu",),     None, "ml_dtypes.float8_e8m0fnu",     "f",   8, mantissa=0),
    NumberType(("complex_bfloat16",),   None, "ml_dtypes.bcomplex32",         "c",  32, part="bfloat16"),
    NumberType(("complex_float16",),    None, "ml_dtypes.complex32",          "c",  32, part="float16"),
))
# fmt: on


def of(dtype: np.dtype[Any]) -> NumberType | None:
    """Return the row of a dtype in any byte order; None if it is not a number type."""
    return NUMBER_TYPES.of(dtype)


def named_v3(name: str) -> NumberType | None:
    """Return the row of a v3 data type, if it is a number type."""
    return NUMBER_TYPES.by_v3_name.get(name)


def named_v2(name: str) -> NumberType | None:
    """Return the row of a v2 type string without byte order (``"f8"``), if it is a number type."""
    return NUMBER_TYPES.by_v2_name.get(name)
