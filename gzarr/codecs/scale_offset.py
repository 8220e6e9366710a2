"""The ``scale_offset`` codec: ``(x - offset) * scale``, in the arithmetic of the array's type.

Specification: https://github.com/zarr-developers/zarr-extensions/tree/main/codecs/scale_offset

======  ===============================================================================================
Zarr    names
======  ===============================================================================================
v3      ``scale_offset`` (``numcodecs.fixedscaleoffset`` is another codec, in :mod:`.numcodecs_adapter`)
v2      none
======  ===============================================================================================

``{"name": "scale_offset", "configuration": {"offset": 5, "scale": 0.1}}``

Integers out of their type's range, and inexact integer divisions, are errors. Floating-point numbers become infinities
and NaNs by IEEE 754, as in zarr-python.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from ..documents.json import quote
from ..dtypes import fill_value
from ..dtypes.properties import kind_of, number_limits
from ..errors import MetadataError
from .arithmetic import Line, line_operation, line_step
from .buffers import need_array
from .casting import is_real
from .codec import ArrayRepresentation, Codec, CodecKind, EncodingStep, Keeping, Operation, Representation

if TYPE_CHECKING:
    from ..documents.configuration import Configuration

_Scalar: TypeAlias = int | float | str


@dataclass(frozen=True)
class ScaleOffsetCodec(Codec):
    """A linear function.

    Attributes
    ----------
    offset, scale
        JSON from the document, spelled like a fill value of the array's type.
    """

    kind: ClassVar[CodecKind] = "array_to_array"
    is_elementwise: ClassVar[bool] = True
    offset: _Scalar = 0
    scale: _Scalar = 1

    @classmethod
    def from_v3(cls, configuration: Configuration) -> ScaleOffsetCodec:
        """Parse a v3 configuration."""
        values = [configuration.any("offset", 0), configuration.any("scale", 1)]
        configuration.finish()
        for name, value in zip(("offset", "scale"), values, strict=True):
            if isinstance(value, bool) or not isinstance(value, int | float | str):
                raise configuration.error(name, "a number")
        return cls(*values)

    @property
    def label(self) -> str:
        """For example ``scale_offset(0.1, 5)``."""
        return f"scale_offset({quote(self.scale)}, {quote(self.offset)})"

    def to_json(self) -> dict[str, Any]:
        """Return the v3 object."""
        return {"name": "scale_offset", "configuration": {"offset": self.offset, "scale": self.scale}}

    def _scalars(self, array: ArrayRepresentation) -> tuple[Any, Any]:
        dtype = array.dtype
        offset, scale = (
            fill_value.from_v3(value, dtype, dtype.name, f"$.configuration.{name}")
            for name, value in (("offset", self.offset), ("scale", self.scale))
        )
        return offset, scale

    def encoded(self, decoded: Representation) -> ArrayRepresentation:
        """Return the same array."""
        array = need_array(decoded, self.label)
        if not is_real(array.dtype):
            raise MetadataError(
                f"scale_offset takes integers and floating-point numbers, not {quote(str(array.dtype))}"
            )
        _, scale = self._scalars(array)
        if kind_of(array.dtype) != "f" and not scale:
            raise MetadataError("integers cannot be divided by a scale of 0", json_path="$.configuration.scale")
        return array

    def keeps(self, decoded: Representation) -> Keeping:
        """Return that inexact integers are errors, and that floating-point numbers are rounded in each direction."""
        array = need_array(decoded, self.label)
        if kind_of(array.dtype) != "f":
            return "all"
        offset, scale = self._scalars(array)
        return "own" if offset == 0 and np.isfinite(scale) and abs(np.frexp(scale)[0]) == 0.5 else "most"

    def operations(self, decoded: Representation) -> tuple[Operation, ...] | None:
        """Return the arithmetic of floating-point numbers if it is compiled; nothing to do if nothing changes."""
        array = need_array(decoded, self.label)
        offset, scale = self._scalars(array)
        if (scale, offset) == (1, 0) and kind_of(array.dtype) != "f":
            return ()
        line = self._line(array)
        return None if line is None else line_operation(array.dtype, array.dtype, line)

    def encoding(self, decoded: Representation, nbytes: int) -> EncodingStep | None:
        """One ``line`` step for floating-point numbers of 4 and 8 bytes."""
        line = self._line(need_array(decoded, self.label))
        return None if line is None else line_step(line, nbytes)

    def _line(self, array: ArrayRepresentation) -> Line | None:
        """Return the arithmetic, or None if it is not compiled."""
        offset, scale = self._scalars(array)
        if array.dtype.isbuiltin != 1 or array.dtype.kind != "f" or array.dtype.itemsize not in (4, 8):
            return None
        if not (np.isfinite(scale) and np.isfinite(offset) and scale):
            return None
        return Line(array.dtype.itemsize, float(scale), float(offset))

    def decode(self, encoded: Any, decoded: Representation) -> Any:
        """Return ``x / scale + offset``."""
        array = need_array(decoded, self.label)
        values = np.asarray(encoded)
        offset, scale = self._scalars(array)
        with np.errstate(all="ignore"):
            if kind_of(array.dtype) == "f":
                return np.asarray(values / scale + offset, array.dtype)
            low, high = number_limits(array.dtype)
            wide, factor, shift = _wide(values), int(scale), int(offset)
            least, most = sorted((low * factor, high * factor))
            self._check(wide, least, most, "divided by the scale")
            if (wide % wide.dtype.type(factor)).any():
                raise ValueError(f"{self.label}: some integers are not multiples of the scale {factor}")
            quotient = wide // wide.dtype.type(factor)
            self._check(quotient, low - shift, high - shift, "added to the offset")
            # NumPy's arithmetic turns an array without dimensions into a scalar.
            return np.asarray(quotient + wide.dtype.type(shift)).astype(array.dtype)

    def encode(self, decoded: Any, representation: Representation) -> Any:
        """Return ``(x - offset) * scale``."""
        array = need_array(representation, self.label)
        values = np.asarray(decoded, array.dtype)
        offset, scale = self._scalars(array)
        with np.errstate(all="ignore"):
            if kind_of(array.dtype) == "f":
                return np.asarray((values - offset) * scale, array.dtype)
            low, high = number_limits(array.dtype)
            wide, factor, shift = _wide(values), int(scale), int(offset)
            self._check(wide, low + shift, high + shift, "the offset is subtracted")
            shifted = wide - wide.dtype.type(shift)
            self._check(shifted, *_range_before(factor, low, high), "multiplied by the scale")
            return np.asarray(shifted * wide.dtype.type(factor)).astype(array.dtype)

    def _check(self, values: npt.NDArray[Any], low: int, high: int, when: str) -> None:
        bad = np.asarray((values < low) | (values > high))
        if bad.any():
            raise ValueError(
                f"{self.label}: {np.asarray(values)[bad].flat[0]} leaves the range of its type when {when}"
            )


def _wide(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return integers as 64-bit integers, so that fewer than 8 bits need no special case."""
    return values.astype(np.uint64 if kind_of(values.dtype) == "u" else np.int64)


def _range_before(factor: int, low: int, high: int) -> tuple[int, int]:
    """Return the smallest and the largest integer whose product with ``factor`` is from ``low`` to ``high``."""
    first, last = (low, high) if factor > 0 else (high, low)
    # Rounded up and down, respectively.
    return -(-first // factor), last // factor
