"""Family of dates and durations, as in NumPy: a 64-bit integer with a unit of time.

Source: https://github.com/zarr-developers/zarr-extensions/tree/main/data-types/numpy.datetime64
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..documents.configuration import whole
from ..documents.json import quote
from ..errors import MetadataError
from .family import Family, configured_integer, need_members, need_no_more
from .fill_value_spelling import FillValueError
from .properties import native

if TYPE_CHECKING:
    from .family import ParseField, TypeString
    from .fill_value_spelling import Spelling

_NAMES: Final = {"numpy.datetime64": "M", "numpy.timedelta64": "m"}
_UNITS: Final = ("Y", "M", "W", "D", "h", "m", "s", "ms", "us", "μs", "ns", "ps", "fs", "as", "generic")


def not_a_time(dtype: np.dtype[Any]) -> Any:
    """Return NaT of a date or duration type, made by a view: NumPy 2.5 warns about types without a unit."""
    return np.array(-(2**63), np.int64).view(native(dtype))[()]


class Times(Family):
    """Dates and durations."""

    kinds = "mM"

    def parse_v3(
        self, name: str, configuration: dict[str, Any], json_path: str, parse_field: ParseField | None
    ) -> np.dtype[Any] | None:
        """Parse ``{"unit": "us", "scale_factor": 10}``."""
        if name not in _NAMES:
            return None
        at = f"{json_path}.configuration"
        need_members(name, configuration, {"unit": "s", "scale_factor": 1}, at)
        factor = configured_integer(configuration, "scale_factor", at)
        unit = configuration.get("unit")
        need_no_more(configuration, ("scale_factor", "unit"), at)
        if not isinstance(unit, str):
            raise MetadataError(f"expected a unit of time as a string, got {quote(unit)}", json_path=f"{at}.unit")
        return _time(_NAMES[name], factor, unit, at)

    def to_v3(self, dtype: np.dtype[Any]) -> dict[str, Any]:
        """Return an object with unit and factor."""
        unit, factor = np.datetime_data(dtype)
        name = next(name for name, kind in _NAMES.items() if kind == dtype.kind)
        return {"name": name, "configuration": {"unit": unit, "scale_factor": factor}}

    def parse_v2(self, text: TypeString) -> np.dtype[Any]:
        """Parse ``<M8[10us]``."""
        if text.size != 8:
            raise text.unknown()
        text.need_byte_order()
        factor = int(text.factor) if text.factor else 1
        dtype = _time(text.kind, factor, text.unit or "generic", text.json_path)
        return dtype.newbyteorder(text.order)  # type: ignore[arg-type]

    def fill_value_from_json(self, value: Any, dtype: np.dtype[Any], spelling: Spelling) -> Any:
        """Parse ``"NaT"`` or an integer."""
        if value == "NaT":
            return not_a_time(dtype)
        value = whole(value, None)
        if type(value) is not int or not -(2**63) <= value < 2**63:
            raise FillValueError('"NaT" or an integer of 64 bits')
        return np.array(value, np.int64).view(native(dtype))[()]

    def fill_value_to_json(self, scalar: Any, dtype: np.dtype[Any], spelling: Spelling) -> int | str:
        """Return ``"NaT"`` or an integer."""
        return "NaT" if np.isnat(scalar) else int(np.asarray(scalar).view(np.int64))


TIMES: Final = Times()


def _time(kind: str, factor: int, unit: str, json_path: str) -> np.dtype[Any]:
    if unit not in _UNITS:
        raise MetadataError(f"unknown unit of time {quote(unit)}; known: {', '.join(_UNITS)}", json_path=json_path)
    if not 1 <= factor < 2**31:
        raise MetadataError(
            f"the factor of a unit of time must be from 1 to 2147483647, got {factor}", json_path=json_path
        )
    text = "" if unit == "generic" else f"[{factor}{'us' if unit == 'μs' else unit}]"
    return np.dtype(f"={kind}8{text}")
