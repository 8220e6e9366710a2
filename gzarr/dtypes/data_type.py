"""Data types of Zarr documents as NumPy dtypes.

Sources: https://zarr-specs.readthedocs.io/en/latest/v3/data-types/index.html (v3),
https://github.com/zarr-developers/zarr-extensions/tree/main/data-types (extensions),
https://zarr-specs.readthedocs.io/en/latest/v2/v2.0.html#data-type-encoding (v2).

NumPy has the small number types of the extensions only through the package ml_dtypes, which is imported when a document
names one of them. NumPy takes them for opaque bytes (``kind`` is ``"V"``), and casts between byte orders are wrong for
some of them, so their bytes are handled as those of :func:`storage`.

``float128`` and ``complex256`` (v2's ``<f16``, ``<c32``) are not read: those bytes are C's ``long double``, which is
another format on each platform, and documents do not say which.
"""

from __future__ import annotations

import functools
import json
import math
import re
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from .. import plugins
from ..documents import departures
from ..documents.json import quote
from ..errors import MetadataError, UnsupportedError

if TYPE_CHECKING:
    import numpy.typing as npt

#: Larger elements are refused: a document of a few bytes could ask for gigabytes to hold its fill value.
MAX_ITEM_BYTES: Final = 64 << 20
_MAX_NESTING: Final = 32

_CORE: Final = {
    "bool": "bool",
    **{f"{sign}int{bits}": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
    **{f"float{bits}": f"float{bits}" for bits in (16, 32, 64)},
    "complex64": "complex64",
    "complex128": "complex128",
    "complex_float32": "complex64",
    "complex_float64": "complex128",
}
# What ml_dtypes calls the data types that it has for NumPy.
_ML_DTYPES: Final = {
    **{
        name: name
        for name in (
            *("int2", "int4", "uint2", "uint4", "bfloat16", "float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn"),
            *("float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz"),
            *("float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"),
        )
    },
    "complex_bfloat16": "bcomplex32",
    "complex_float16": "complex32",
}
_ML_NAMES: Final = frozenset(_ML_DTYPES.values())
# How many of a stored byte's bits count, for elements of less than 8.
_BITS: Final = {
    **{"int2": 2, "uint2": 2, "int4": 4, "uint4": 4},
    **{"float4_e2m1fn": 4, "float6_e2m3fn": 6, "float6_e3m2fn": 6},
}
_TEXT: Final = ("string", "variable_length_utf8")
_VARIABLE_BYTES: Final = ("variable_length_bytes", "bytes")
_UNITS: Final = ("Y", "M", "W", "D", "h", "m", "s", "ms", "us", "μs", "ns", "ps", "fs", "as", "generic")
_V2_SIMPLE: Final = re.compile(r"([<>|])([biufcSUVmM])([0-9]{1,10})(?:\[([0-9]{0,10})([A-Za-zμ]{1,7})\])?")
_V2_SIZES: Final = {"b": (1,), "i": (1, 2, 4, 8), "u": (1, 2, 4, 8), "f": (2, 4, 8), "c": (8, 16), "m": (8,), "M": (8,)}


def native(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return ``dtype`` with every part in native byte order."""
    return dtype.newbyteorder("=")


def not_a_time(dtype: np.dtype[Any]) -> Any:
    """Return NaT of a type of dates or times: also of those without a unit, of which NumPy 2.5 warns otherwise."""
    return np.array(-(2**63), np.int64).view(native(dtype))[()]


def packed(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return ``dtype`` with the fields of structured types one behind the other, as documents have them."""
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return np.dtype((packed(base), shape))
    if dtype.fields is None:
        return dtype
    return np.dtype([(name, packed(dtype.fields[name][0])) for name in dtype.names or ()])


def swap_unit(dtype: np.dtype[Any]) -> int | None:
    """Return the width in bytes of the units that a change of byte order reverses.

    1 where byte order has no meaning; None where the fields of a structured type have several widths.
    """
    if dtype.subdtype is not None:
        return swap_unit(dtype.subdtype[0])
    if dtype.fields is not None:
        widths = {swap_unit(field[0]) for field in dtype.fields.values()}
        return widths.pop() if len(widths) == 1 else None
    if dtype.name in _ML_NAMES:
        return 1 if dtype.itemsize == 1 else 2
    if dtype.kind in "SVOb":
        return 1
    if dtype.kind == "U":
        return 4
    return dtype.itemsize // 2 if dtype.kind == "c" else dtype.itemsize


def kind_of(dtype: np.dtype[Any]) -> str:
    """Return the ``kind`` of a type; ``"i"``, ``"u"``, ``"f"`` or ``"c"`` also for the numbers of ml_dtypes."""
    name = dtype.name
    if name not in _ML_NAMES:
        return dtype.kind
    return "c" if "complex" in name else "f" if "float" in name else name[0]


@functools.lru_cache(maxsize=256)
def storage(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return a type of the same layout and byte order in which numbers of ml_dtypes are unsigned integers."""
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return np.dtype((storage(base), shape))
    if dtype.fields is not None:
        fields = dtype.fields
        # By offset: fields of a view need not be packed.
        return np.dtype(
            {
                "names": list(dtype.names or ()),
                "formats": [storage(fields[name][0]) for name in dtype.names or ()],
                "offsets": [fields[name][1] for name in dtype.names or ()],
                "itemsize": dtype.itemsize,
            }
        )
    if dtype.name not in _ML_NAMES:
        return dtype
    if dtype.itemsize == 1:
        return np.dtype(np.uint8)
    unit = np.dtype(np.uint16).newbyteorder(dtype.byteorder)
    return unit if dtype.itemsize == 2 else np.dtype([("real", unit), ("imag", unit)])


def low_bits(dtype: np.dtype[Any]) -> npt.NDArray[np.uint8] | None:
    """Return the bits that count of the byte of a number of less than 8 bits, uint8 ``(1,)``; None for other types."""
    bits = _BITS.get(dtype.name)
    return None if bits is None else np.array([(1 << bits) - 1], np.uint8)


@functools.lru_cache(maxsize=256)
def has_spare_bits(dtype: np.dtype[Any]) -> bool:
    """Return whether a type has numbers of less than 8 bits: in the low bits of a byte, whose others mean nothing."""
    if dtype.subdtype is not None:
        return has_spare_bits(dtype.subdtype[0])
    return dtype.name in _BITS or any(has_spare_bits(field[0]) for field in (dtype.fields or {}).values())


def clear_spare_bits(elements: npt.NDArray[Any], dtype: np.dtype[Any]) -> None:
    """Zero the bits that mean nothing, as ml_dtypes has them.

    Parameters
    ----------
    elements
        Of type ``storage(dtype)``; changed in place.
    dtype
        What they are.
    """
    if dtype.subdtype is not None:
        clear_spare_bits(elements, dtype.subdtype[0])
    elif (mask := low_bits(dtype)) is not None:
        # One element also where there are no dimensions.
        elements &= mask[0]
    elif has_spare_bits(dtype):
        for name in dtype.names or ():
            clear_spare_bits(elements[name], dtype[name])


def number_limits(dtype: np.dtype[Any]) -> tuple[int, int]:
    """Return the smallest and the largest number of a type of integers."""
    bits = _BITS.get(dtype.name, 8 * dtype.itemsize)
    return (0, 2**bits - 1) if kind_of(dtype) == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _ml_dtype(name: str, json_path: str) -> np.dtype[Any]:
    """Return a data type that NumPy has through ml_dtypes, in native byte order."""
    try:
        import ml_dtypes
    except ImportError:
        raise UnsupportedError(
            f"the data type {name!r} needs the package ml_dtypes: pip install 'gzarr[ml_dtypes]'", json_path=json_path
        ) from None
    scalar = getattr(ml_dtypes, _ML_DTYPES[name], None)
    if scalar is None:
        raise UnsupportedError(
            f"the data type {name!r} is not in ml_dtypes {ml_dtypes.__version__}; a newer one may have it",
            json_path=json_path,
        )
    dtype: np.dtype[Any] = np.dtype(scalar)
    return dtype


def _time(kind: str, factor: int, unit: str, json_path: str) -> np.dtype[Any]:
    if unit not in _UNITS:
        raise MetadataError(f"unknown unit of time {quote(unit)}; known: {', '.join(_UNITS)}", json_path=json_path)
    if not 1 <= factor < 2**31:
        raise MetadataError(
            f"the factor of a unit of time must be from 1 to 2147483647, got {factor}", json_path=json_path
        )
    text = "" if unit == "generic" else f"[{factor}{'us' if unit == 'μs' else unit}]"
    return np.dtype(f"={kind}8{text}")


def _checked_size(nbytes: int, json_path: str) -> int:
    if not 1 <= nbytes <= MAX_ITEM_BYTES:
        raise UnsupportedError(
            f"elements of {quote(nbytes)} bytes; elements have from 1 to {MAX_ITEM_BYTES} bytes here",
            json_path=json_path,
        )
    return nbytes


def _structured(fields: list[tuple[Any, ...]], json_path: str) -> np.dtype[Any]:
    names = [field[0] for field in fields]
    for i, name in enumerate(names):
        if not isinstance(name, str) or not name:
            raise MetadataError(f"a field needs a name, got {quote(name)}", json_path=f"{json_path}[{i}]")
        if name in names[:i]:
            raise MetadataError(f"the field name {quote(name)} occurs twice", json_path=f"{json_path}[{i}]")
        if fields[i][1].hasobject:
            raise UnsupportedError("a field of a structured type needs a fixed size", json_path=f"{json_path}[{i}]")
    size = sum(f[1].itemsize * (math.prod(f[2]) if len(f) > 2 else 1) for f in fields)
    _checked_size(size, json_path)
    try:
        return np.dtype(fields)
    except (TypeError, ValueError, UnicodeError) as error:
        raise MetadataError(f"not a structured type: {str(error)[:200]}", json_path=json_path) from None


# -- Zarr v2 -----------------------------------------------------------------------------------------------------------


def parse_v2(value: Any, json_path: str = "$.dtype", *, _depth: int = 0) -> np.dtype[Any]:
    """Parse a v2 ``dtype``.

    Parameters
    ----------
    value
        A type string (``"<f8"``) or an array of fields (``[["r", "|u1"], ["z", "<f4", [2, 2]]]``).
    json_path
        Where it is, for messages.

    Returns
    -------
    The dtype as stored: byte orders are those of the document.

    Raises
    ------
    MetadataError
        If it is malformed.
    UnsupportedError
        If it is well formed but NumPy has no such type.
    """
    if isinstance(value, str):
        return _parse_v2_simple(value, json_path)
    if not isinstance(value, list | tuple) or not value:
        raise MetadataError(f"expected a type string or an array of fields, got {quote(value)}", json_path=json_path)
    if _depth >= _MAX_NESTING:
        raise MetadataError(f"structured types are nested more than {_MAX_NESTING} deep", json_path=json_path)
    fields: list[tuple[Any, ...]] = []
    for i, item in enumerate(value):
        at = f"{json_path}[{i}]"
        if not isinstance(item, list | tuple) or len(item) not in (2, 3):
            raise MetadataError(f"expected [name, type] or [name, type, shape], got {quote(item)}", json_path=at)
        dtype = parse_v2(item[1], f"{at}[1]", _depth=_depth + 1)
        if len(item) == 2:
            fields.append((item[0], dtype))
            continue
        shape = item[2] if isinstance(item[2], list | tuple) else [item[2]]
        if len(shape) > 32 or not all(type(n) is int and 0 < n < 2**31 for n in shape):
            raise MetadataError(
                f"the shape of a field needs positive integers, got {quote(item[2])}", json_path=f"{at}[2]"
            )
        fields.append((item[0], dtype, tuple(shape)))
    return _structured(fields, json_path)


def _parse_v2_simple(value: str, json_path: str) -> np.dtype[Any]:
    if value == "|O":
        return np.dtype(object)
    if value in _ML_DTYPES:
        # tensorstore's names, without a byte order: it is always little.
        return _ml_dtype(value, json_path).newbyteorder("<")
    match = _V2_SIMPLE.fullmatch(value)
    if match is None:
        raise MetadataError(
            f"{quote(value)} is not a v2 type string: expected byte order, kind, size, such as '<f8' or '|S12'",
            json_path=json_path,
        )
    order, kind, digits, factor, unit = match.groups()
    size = int(digits)
    if kind in _V2_SIZES and size not in _V2_SIZES[kind]:
        if digits in ("12", "16", "24", "32") and kind in "fc":
            raise UnsupportedError(
                f"{quote(value)} is C's long double, whose format is another one on each platform; it is not read",
                json_path=json_path,
            )
        raise UnsupportedError(f"no data type {quote(value)}", json_path=json_path)
    if (unit is not None) and kind not in "mM":
        raise MetadataError(f"{quote(value)} cannot have a unit of time", json_path=json_path)
    if order == "|" and (kind in "UmM" or (kind in "iufc" and size > 1)):
        raise MetadataError(f"{quote(value)} needs a byte order, '<' or '>'", json_path=json_path)
    if kind in "mM":
        dtype = _time(kind, int(factor) if factor else 1, unit or "generic", json_path)
        return dtype.newbyteorder(order)  # type: ignore[arg-type]
    _checked_size(size * (4 if kind == "U" else 1), json_path)
    return np.dtype(f"{order}{kind}{size}")


# -- Zarr v3 -----------------------------------------------------------------------------------------------------------


def parse_v3(value: Any, json_path: str = "$.data_type", *, _depth: int = 0) -> tuple[np.dtype[Any], str]:
    """Parse a v3 ``data_type``.

    Parameters
    ----------
    value
        A name (``"float64"``) or an object with ``name`` and ``configuration``.
    json_path
        Where it is, for messages.

    Returns
    -------
    dtype
        In native byte order.
    text
        Its name; JSON where it has a configuration.

    Raises
    ------
    MetadataError
        If it is malformed.
    UnsupportedError
        If its name is not known.
    """
    name, configuration = extension(value, json_path, "a data type")
    dtype = _parse_v3_named(name, configuration, json_path, _depth)
    return dtype, json.dumps(value) if configuration else name


def _parse_v3_named(name: str, configuration: dict[str, Any], json_path: str, depth: int) -> np.dtype[Any]:
    at = f"{json_path}.configuration"
    if name in ("struct", "structured"):
        return _parse_v3_struct(configuration, at, depth)
    if name in ("fixed_length_utf32", "null_terminated_bytes", "raw_bytes"):
        size = _configured_integer(configuration, "length_bytes", at)
        _no_more(configuration, ("length_bytes",), at)
        _checked_size(size, f"{at}.length_bytes")
        if name != "fixed_length_utf32":
            return np.dtype(f"{'S' if name == 'null_terminated_bytes' else 'V'}{size}")
        if size % 4:
            raise MetadataError(f"{size} is not a multiple of 4", json_path=f"{at}.length_bytes")
        return np.dtype(f"=U{size // 4}")
    if name in ("numpy.datetime64", "numpy.timedelta64"):
        factor = _configured_integer(configuration, "scale_factor", at)
        unit = configuration.get("unit")
        _no_more(configuration, ("scale_factor", "unit"), at)
        if not isinstance(unit, str):
            raise MetadataError(f"expected a unit of time as a string, got {quote(unit)}", json_path=f"{at}.unit")
        return _time("M" if name == "numpy.datetime64" else "m", factor, unit, at)
    if name in _CORE or name in _TEXT or name in _VARIABLE_BYTES:
        _no_more(configuration, (), at)
        return np.dtype(_CORE.get(name, object))
    if name in _ML_DTYPES:
        _no_more(configuration, (), at)
        return _ml_dtype(name, json_path)
    if re.fullmatch(r"r[0-9]{1,11}", name):
        _no_more(configuration, (), at)
        bits = int(name[1:])
        if bits % 8:
            raise MetadataError(f"{name!r} must be a multiple of 8 bits", json_path=json_path)
        return np.dtype(f"V{_checked_size(bits // 8, json_path)}")
    plugin = plugins.load("gzarr.data_types", name, json_path)
    if plugin is not None:
        return _from_plugin(plugin, name, configuration, json_path)
    raise UnsupportedError(f"the data type {quote(name)} is not known to this version of gzarr", json_path=json_path)


def _from_plugin(plugin: plugins.Plugin, name: str, configuration: dict[str, Any], json_path: str) -> np.dtype[Any]:
    """Return the dtype of another package's data type."""
    # Codecs know data types, so this module cannot know codecs from the start.
    from ..documents.configuration import Configuration

    what = f"the data type {quote(name)}"
    checked = Configuration(configuration, f"{json_path}.configuration", what)
    dtype = plugins.call(plugin, "from_v3", what, json_path, checked)
    if not isinstance(dtype, np.dtype) or dtype.hasobject or not 1 <= dtype.itemsize <= MAX_ITEM_BYTES:
        raise UnsupportedError(
            f"{what} of the package {plugin.distribution} is faulty: from_v3 returned {quote(repr(dtype))}, not the"
            " NumPy dtype of an element without objects",
            json_path=json_path,
        )
    return native(dtype)


def is_variable_bytes(data_type: str) -> bool:
    """Return whether a v3 data type holds byte strings of any length."""
    return data_type in _VARIABLE_BYTES


def extension(value: Any, json_path: str, what: str) -> tuple[str, dict[str, Any]]:
    """Parse a v3 extension: a name, or an object with ``name``, ``configuration`` and ``must_understand``.

    Source: https://zarr-specs.readthedocs.io/en/latest/v3/core/index.html#extension-definition
    """
    if isinstance(value, str):
        return value, {}
    if not isinstance(value, dict):
        raise MetadataError(
            f"expected {what}: a name, or an object with a name; got {quote(value)}", json_path=json_path
        )
    name = value.get("name")
    if name is None and isinstance(value.get("type"), str):
        departures.note('"type" in place of "name", as in an example of the draft of 2023', json_path)
        name = value["type"]
        value = {key: item for key, item in value.items() if key != "type"}
    if not isinstance(name, str):
        raise MetadataError(f'{what} needs a "name", got {quote(value)}', json_path=f"{json_path}.name")
    configuration = value.get("configuration", {})
    if not isinstance(configuration, dict):
        raise MetadataError(f"expected an object, got {quote(configuration)}", json_path=f"{json_path}.configuration")
    if not isinstance(value.get("must_understand", True), bool):
        raise MetadataError("expected true or false", json_path=f"{json_path}.must_understand")
    for key in value:
        if key not in ("name", "configuration", "must_understand"):
            raise MetadataError(f"{what} has an unknown member {quote(key)}", json_path=json_path)
    return name, configuration


def _configured_integer(configuration: dict[str, Any], name: str, json_path: str) -> int:
    value = configuration.get(name)
    if type(value) is not int:
        raise MetadataError(f"expected an integer, got {quote(value)}", json_path=f"{json_path}.{name}")
    return value


def _no_more(configuration: dict[str, Any], names: tuple[str, ...], json_path: str) -> None:
    for name in configuration:
        if name not in names:
            raise MetadataError(f"the data type does not know {quote(name)}", json_path=json_path)


def _parse_v3_struct(configuration: dict[str, Any], json_path: str, depth: int) -> np.dtype[Any]:
    _no_more(configuration, ("fields",), json_path)
    items = configuration.get("fields")
    at = f"{json_path}.fields"
    if not isinstance(items, list | tuple) or not items:
        raise MetadataError(f"expected a non-empty array of fields, got {quote(items)}", json_path=at)
    if depth >= _MAX_NESTING:
        raise MetadataError(f"structured types are nested more than {_MAX_NESTING} deep", json_path=at)
    fields: list[tuple[Any, ...]] = []
    for i, item in enumerate(items):
        if isinstance(item, dict) and set(item) == {"name", "data_type"}:
            name, data_type = item["name"], item["data_type"]
        elif isinstance(item, list | tuple) and len(item) == 2:
            name, data_type = item
        else:
            raise MetadataError(
                f'expected {{"name": …, "data_type": …}} or [name, data type], got {quote(item)}',
                json_path=f"{at}[{i}]",
            )
        fields.append((name, parse_v3(data_type, f"{at}[{i}]", _depth=depth + 1)[0]))
    return _structured(fields, at)
