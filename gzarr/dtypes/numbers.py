"""Family of numbers; names, sizes and limits are in the table of :mod:`gzarr.dtypes.number_types`.

Source: https://zarr-specs.readthedocs.io/en/latest/v3/data-types/index.html#permitted-fill-values
"""

from __future__ import annotations

import math
import re
import sys
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..documents.json import quote
from ..errors import UnsupportedError
from . import number_types
from .family import Family, need_no_more, no_data_type
from .fill_value_spelling import FillValueError, element_from_bytes, from_base64
from .properties import component, kind_of, native, number_limits, storage

if TYPE_CHECKING:
    from .family import ParseField, TypeString
    from .fill_value_spelling import Spelling

_SPECIAL: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_LONG_DOUBLE_BYTES: Final = (12, 16, 24, 32)


class Numbers(Family):
    """Booleans, integers, real and complex floating-point numbers."""

    kinds = "biufc"

    def parse_v3(
        self, name: str, configuration: dict[str, Any], json_path: str, parse_field: ParseField | None
    ) -> np.dtype[Any] | None:
        """Parse a name from the table."""
        row = number_types.named_v3(name)
        if row is None:
            return None
        need_no_more(configuration, (), f"{json_path}.configuration")
        return row.dtype(json_path)

    def to_v3(self, dtype: np.dtype[Any]) -> str:
        """Return the name from the table."""
        row = number_types.of(dtype)
        if row is None:
            raise no_data_type(dtype)
        return row.names[0]

    def parse_v2(self, text: TypeString) -> np.dtype[Any]:
        """Parse a type string."""
        row = number_types.named_v2(f"{text.kind}{text.size}")
        if row is None:
            if text.kind in "fc" and text.size in _LONG_DOUBLE_BYTES:
                raise UnsupportedError(
                    f"{quote(text.text)} is C's long double, whose format depends on the platform; it is not supported",
                    json_path=text.json_path,
                )
            raise text.unknown()
        text.need_no_unit()
        if row.swap_unit > 1:
            text.need_byte_order()
        return np.dtype(f"{text.order}{row.type_string}")

    def to_v2(self, dtype: np.dtype[Any]) -> str:
        """Return the type string or name from the table."""
        row = number_types.of(dtype)
        if row is None:
            raise no_data_type(dtype)
        return row.names[0] if row.type_string is None else f"{dtype.str[0]}{row.type_string}"

    def fill_value_from_json(self, value: Any, dtype: np.dtype[Any], spelling: Spelling) -> Any:
        """Parse true or false, a number, an array of two, or a string where JSON has no such number."""
        as_read = native(dtype)
        kind = kind_of(dtype)
        if kind == "b":
            return _boolean(value, lenient=spelling.lenient)
        if kind == "f":
            return _float(value, as_read, spelling)
        if kind == "c":
            return _complex(value, as_read, spelling)
        return _integer(value, as_read, lenient=spelling.lenient)

    def fill_value_to_json(self, scalar: Any, dtype: np.dtype[Any], spelling: Spelling) -> Any:
        """Return true or false, a number, an array of two, or a string where JSON has no such number."""
        kind = kind_of(dtype)
        if kind == "b":
            return bool(scalar)
        if kind == "f":
            return _float_to_json(scalar, spelling)
        if kind == "c":
            return [_float_to_json(part, spelling) for part in np.asarray(scalar).reshape(1).view(component(dtype))]
        return int(scalar)


NUMBERS: Final = Numbers()


def _boolean(value: Any, *, lenient: bool) -> Any:
    if isinstance(value, bool) or (lenient and type(value) in (int, float) and value in (0, 1)):
        return np.bool_(value)
    raise FillValueError("true or false")


def _integer(value: Any, dtype: np.dtype[Any], *, lenient: bool) -> Any:
    if lenient and isinstance(value, str) and re.fullmatch(r"[+-]?[0-9]{1,20}", value):
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if lenient and isinstance(value, bool):
        value = int(value)
    low, high = number_limits(dtype)
    if type(value) is not int or not low <= value <= high:
        raise FillValueError(f"an integer from {low} to {high}")
    return dtype.type(value)


def _float(value: Any, dtype: np.dtype[Any], spelling: Spelling) -> Any:
    lenient = spelling.lenient
    digits = 2 * dtype.itemsize
    expected = f'a number, "NaN", "Infinity", "-Infinity" or "0x" and {digits} hexadecimal digits'
    if isinstance(value, str):
        if value in _SPECIAL:
            return _nearest(_SPECIAL[value], dtype)
        if re.fullmatch(rf"0x[0-9a-fA-F]{{{digits}}}", value):
            return element_from_bytes(bytes.fromhex(value[2:]), dtype.newbyteorder(">"))
        if lenient and storage(dtype) != dtype and len(data := from_base64(value)) == dtype.itemsize:
            # tensorstore writes base64 for types that it has no other JSON for.
            return element_from_bytes(data, dtype)
        if not (lenient and re.fullmatch(r"[-+0-9.eE]{1,40}|[-+]?(nan|inf|infinity)", value, re.IGNORECASE)):
            raise FillValueError(expected)
        value = float(value)
    if type(value) not in (int, float) and not (lenient and isinstance(value, bool)):
        raise FillValueError(expected)
    return _nearest(float(value), dtype, rounded=spelling.rounded)


def _nearest(number: float, dtype: np.dtype[Any], *, rounded: bool = False) -> Any:
    """Return the element nearest to a number; raise if it is beyond the range, unless ``rounded`` to infinity."""
    result = dtype.type(number)
    found = float(result)
    if math.isfinite(number):
        # In types without infinity, everything above the largest number is rounded down to it.
        largest = float(dtype.type(math.inf))
        held = (math.isfinite(found) and not abs(number) > abs(largest)) or (rounded and math.isinf(found))
    else:
        held = found == number or (math.isnan(found) and math.isnan(number))
    if not held:
        raise FillValueError(f"a number that {dtype.name} can hold")
    return result


def _float_to_json(value: Any, spelling: Spelling) -> float | str:
    number = float(value)
    if math.isnan(number):
        quiet = value.dtype.type(math.nan)
        if not spelling.exact_nan or value.tobytes() == quiet.tobytes():
            return "NaN"
        return f"0x{int.from_bytes(value.tobytes(), sys.byteorder):0{2 * value.dtype.itemsize}x}"
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    return number


def _complex(value: Any, dtype: np.dtype[Any], spelling: Spelling) -> Any:
    part = component(dtype)
    if spelling.lenient and type(value) in (int, float):
        value = [value, 0.0]
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise FillValueError("an array of two numbers")
    parts = [_float(v, part, spelling) for v in value]
    # Through a view: arithmetic would lose the sign of zeros and the payload of NaNs.
    return np.array(parts, part).view(dtype)[0]
