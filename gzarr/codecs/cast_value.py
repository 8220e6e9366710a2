"""The ``cast_value`` codec: numbers cast by value and stored as another type.

Specification: https://github.com/zarr-developers/zarr-extensions/tree/main/codecs/cast_value

======  ==============
Zarr    names
======  ==============
v3      ``cast_value``
v2      none
======  ==============

``{"name": "cast_value", "configuration": {"data_type": "uint8", "rounding": "nearest-even", "out_of_range": "clamp",
"scalar_map": {"encode": [["NaN", 0]], "decode": [[0, "NaN"]]}}}``
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
import numpy.typing as npt
from gzarr_kernels.slots import casting as slots
from gzarr_kernels.slots.conversion import conversion

from ..documents.json import quote
from ..dtypes import fill_value
from ..dtypes.properties import kind_of
from ..dtypes.v3 import parse_v3
from ..errors import MetadataError
from . import casting
from .buffers import need_array
from .codec import ArrayRepresentation, Codec, CodecKind, EncodingStep, Keeping, Operation, Representation, convert

if TYPE_CHECKING:
    from ..documents.configuration import Configuration

_MAX_ENTRIES = 65536
#: Integers to and from which compiled code casts floating-point numbers by other rules than C's.
_INTEGERS = ("i1", "u1", "i2", "u2", "i4", "u4")


@dataclass(frozen=True)
class CastValueCodec(Codec):
    """A cast to another number type.

    Attributes
    ----------
    dtype
        Type of the stored numbers, in native byte order.
    data_type
        Name of that type in the document; JSON if it has a configuration.
    rounding
        Rule for numbers between two values of the target type, in both directions.
    out_of_range
        Rule for numbers out of the target type's range; None if they are errors.
    scalar_map
        JSON of pairs that take precedence over all rules; ``"{}"`` if there are none.
    """

    kind: ClassVar[CodecKind] = "array_to_array"
    is_elementwise: ClassVar[bool] = True
    dtype: np.dtype[Any]
    data_type: str
    rounding: casting.Rounding = "nearest-even"
    out_of_range: casting.OutOfRange | None = None
    scalar_map: str = "{}"

    @classmethod
    def from_v3(cls, configuration: Configuration) -> CastValueCodec:
        """Parse a v3 configuration."""
        dtype, data_type = parse_v3(configuration.any("data_type"), f"{configuration.json_path}.data_type")
        if not casting.is_real(dtype):
            raise configuration.error("data_type", "a type of integers or floating-point numbers")
        rounding = configuration.string("rounding", casting.ROUNDINGS, "nearest-even")
        out_of_range = None
        if "out_of_range" in configuration:
            out_of_range = configuration.string("out_of_range", ("clamp", "wrap"))
        if out_of_range == "wrap" and kind_of(dtype) == "f":
            raise configuration.error("out_of_range", "'clamp' (only integers wrap)")
        scalar_map = configuration.any("scalar_map", {})
        configuration.finish()
        if not isinstance(scalar_map, dict) or not all(
            name in ("encode", "decode") and _is_map(pairs) for name, pairs in scalar_map.items()
        ):
            raise configuration.error("scalar_map", 'an object with arrays of pairs as "encode" and "decode"')
        return cls(
            dtype,
            data_type,
            cast("casting.Rounding", rounding),
            cast("casting.OutOfRange | None", out_of_range),
            json.dumps(scalar_map),
        )

    @property
    def label(self) -> str:
        """For example ``cast_value(uint8)``."""
        return f"cast_value({self.dtype.name})"

    def to_json(self) -> dict[str, Any]:
        """Return the v3 object."""
        data_type = json.loads(self.data_type) if self.data_type.startswith("{") else self.data_type
        values: dict[str, Any] = {"data_type": data_type, "rounding": self.rounding}
        if self.out_of_range is not None:
            values["out_of_range"] = self.out_of_range
        if self.scalar_map != "{}":
            values["scalar_map"] = json.loads(self.scalar_map)
        return {"name": "cast_value", "configuration": values}

    def _pairs(self, direction: str, of: np.dtype[Any], to: np.dtype[Any]) -> list[tuple[Any, Any]]:
        """Return the pairs of the map for one direction, as elements."""
        at = f"$.configuration.scalar_map.{direction}"
        return [
            (
                fill_value.from_v3(_plain(key), of, of.name, f"{at}[{i}][0]"),
                fill_value.from_v3(_plain(value), to, to.name, f"{at}[{i}][1]"),
            )
            for i, (key, value) in enumerate(json.loads(self.scalar_map).get(direction, ()))
        ]

    def encoded(self, decoded: Representation) -> ArrayRepresentation:
        """Return the array with the other type."""
        array = need_array(decoded, self.label)
        if not casting.is_real(array.dtype):
            raise MetadataError(
                f"{self.label} takes integers and floating-point numbers, not {quote(str(array.dtype))}"
            )
        self._pairs("encode", array.dtype, self.dtype)
        self._pairs("decode", self.dtype, array.dtype)
        return ArrayRepresentation(array.shape, self.dtype)

    def keeps(self, decoded: Representation) -> Keeping:
        """Return whether each number of one type is one of the other."""
        dtype = need_array(decoded, self.label).dtype
        if self.scalar_map != "{}":
            return "most"
        if casting.holds(self.dtype, dtype):
            return "all"
        # Where the stored type has numbers between those of the array's, its largest one may become one too large.
        return "own" if casting.holds(dtype, self.dtype) or self.out_of_range != "wrap" else "most"

    def converts(self, dtype: np.dtype[Any]) -> bool:
        """Return whether decoding to a data type is the conversion that C and NumPy do, and no number is an error."""
        return not self._has_pairs("decode") and self._is_conversion(self.dtype, dtype)

    def _has_pairs(self, direction: str) -> bool:
        return bool(json.loads(self.scalar_map).get(direction))

    def _is_conversion(self, source: np.dtype[Any], target: np.dtype[Any]) -> bool:
        """Return whether a cast without a map is the conversion that C and NumPy do, and no number is an error."""
        if source.isbuiltin != 1 or target.isbuiltin != 1:
            return False
        if source == target:
            return True
        to_nearest = self.rounding == "nearest-even"
        if source.kind == "f":
            # NaN of float16 becomes another NaN of float32.
            if target == np.dtype("f8"):
                return True
            fits = source == np.dtype("f8") and target == np.dtype("f4")
            return fits and to_nearest and self.out_of_range == "clamp"
        if target.kind == "f":
            exact = 8 * source.itemsize <= np.finfo(target).nmant
            return target.itemsize > 2 and (exact or to_nearest)
        return np.can_cast(source, target) or self.out_of_range == "wrap"

    def operations(self, decoded: Representation) -> tuple[Operation, ...] | None:
        """Return the conversion, or that of integers of which one stands for another number, if it is compiled."""
        dtype = need_array(decoded, self.label).dtype
        return convert(self.dtype, dtype) if self.converts(dtype) else self._replacing(dtype)

    def _replacing(self, dtype: np.dtype[Any]) -> tuple[Operation, ...] | None:
        stored = self.dtype
        if (
            dtype.str[1:] not in ("f4", "f8")
            or stored.str[1:] not in _INTEGERS
            or not self._is_conversion(stored, dtype)
        ):
            return None
        pairs = self._pairs("decode", stored, dtype)
        number = conversion(stored.str[1:], dtype.str[1:]) if dtype.isnative and stored.isnative else None
        if len(pairs) != 1 or not number:
            return None
        (key, value), sizes = pairs[0], (stored.itemsize, dtype.itemsize)
        unsigned = int(np.array(key, stored).view(f"u{stored.itemsize}"))
        bits = int(np.array(value, dtype).view(f"i{dtype.itemsize}"))
        return (Operation("cast", (number, *sizes, unsigned, bits)),)

    def encoding(self, decoded: Representation, nbytes: int) -> EncodingStep | None:
        """One ``cast`` step for a conversion, or for floating-point numbers that are rounded to integers."""
        dtype, stored = need_array(decoded, self.label).dtype, self.dtype
        sizes = (dtype.itemsize, stored.itemsize)
        most = nbytes // dtype.itemsize * stored.itemsize
        if not self._has_pairs("encode") and self._is_conversion(dtype, stored):
            # Some NaNs of float16 become others than in host memory.
            number = conversion(dtype.str[1:], stored.str[1:]) if dtype.isnative and dtype != np.float16 else None
            return EncodingStep("cast", most, (number, *sizes, 0, 0)) if number else None
        if self.rounding != "nearest-even" or self.out_of_range == "wrap" or not (dtype.isnative and stored.isnative):
            return None
        if dtype.str[1:] not in ("f4", "f8") or stored.str[1:] not in _INTEGERS:
            return None
        pairs = self._pairs("encode", dtype, stored)
        if len(pairs) > 1 or any(not np.isnan(key) for key, _ in pairs):
            return None
        flags = (slots.SIGNED if stored.kind == "i" else 0) | (slots.CLAMPS if self.out_of_range else 0)
        flags |= slots.HAS_MISSING if pairs else 0
        return EncodingStep("cast", most, (0, *sizes, flags, int(pairs[0][1]) if pairs else 0))

    def _mapped(self, array: npt.NDArray[Any], to: np.dtype[Any], direction: str) -> npt.NDArray[Any]:
        pairs = self._pairs(direction, array.dtype, to)
        try:
            if not pairs:
                return casting.cast(array, to, self.rounding, self.out_of_range)
            free = np.ones(array.shape, bool)
            hits = []
            for key, value in pairs:
                hit = free & (np.isnan(array) if key != key else array == key)
                free &= ~hit
                hits.append((hit, value))
            result = np.empty(array.shape, to)
            result[free] = casting.cast(array[free], to, self.rounding, self.out_of_range)
            for hit, value in hits:
                result[hit] = value
        except ValueError as error:
            raise ValueError(f"{self.label}: {error}") from None
        return result

    def decode(self, encoded: Any, decoded: Representation) -> Any:
        """Return the numbers in the array's type."""
        array = need_array(decoded, self.label)
        return self._mapped(np.asarray(encoded), array.dtype, "decode")

    def encode(self, decoded: Any, representation: Representation) -> Any:
        """Return the numbers in the stored type."""
        array = need_array(representation, self.label)
        return self._mapped(np.asarray(decoded, array.dtype), self.dtype, "encode")


def _plain(value: Any) -> Any:
    # The specification's example has a plus sign, which fill values do not have.
    return "Infinity" if value == "+Infinity" else value


def _is_map(pairs: Any) -> bool:
    return (
        isinstance(pairs, list | tuple)
        and len(pairs) <= _MAX_ENTRIES
        and all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in pairs)
    )
