"""Data types in Zarr v3 documents.

Sources: https://zarr-specs.readthedocs.io/en/latest/v3/data-types/index.html,
https://github.com/zarr-developers/zarr-extensions/tree/main/data-types
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import plugins
from ..documents.configuration import Configuration
from ..documents.extension import extension
from ..documents.json import quote
from ..errors import MetadataError, UnsupportedError
from .families import FAMILIES, family_of
from .family import MAX_ITEM_BYTES
from .properties import native
from .structured import MAX_NESTING

if TYPE_CHECKING:
    from .family import ParseField


def parse_v3(value: Any, json_path: str = "$.data_type", *, _depth: int = 0) -> tuple[np.dtype[Any], str]:
    """Parse a v3 ``data_type``.

    Parameters
    ----------
    value
        A name (``"float64"``) or an object with ``name`` and ``configuration``.
    json_path
        Location in the document, for messages.

    Returns
    -------
    dtype
        NumPy dtype in native byte order.
    text
        Name of the data type, or its JSON if it has a configuration.

    Raises
    ------
    MetadataError
        If it is malformed.
    UnsupportedError
        If its name is unknown.
    """
    name, configuration = extension(value, json_path, "a data type")

    def parse_field(field: Any, at: str) -> np.dtype[Any]:
        return parse_v3(field, at, _depth=_depth + 1)[0]

    dtype = _parse_named(name, configuration, json_path, parse_field if _depth < MAX_NESTING else None)
    return dtype, json.dumps(value) if configuration else name


def _parse_named(
    name: str, configuration: dict[str, Any], json_path: str, parse_field: ParseField | None
) -> np.dtype[Any]:
    for family in FAMILIES:
        dtype = family.parse_v3(name, configuration, json_path, parse_field)
        if dtype is not None:
            return dtype
    plugin = plugins.load("gzarr.data_types", name, json_path)
    if plugin is not None:
        return _from_plugin(plugin, name, configuration, json_path)
    raise UnsupportedError(f"the data type {quote(name)} is not known to this version of gzarr", json_path=json_path)


def is_only_numpys(name: str) -> bool:
    """Return whether NumPy has a data type of a name, and Zarr, as far as gzarr knows, none: ``"f4"``, ``"<u2"``.

    Callers who ask this first need no look through the plugins, which takes milliseconds where many packages are
    installed.
    """
    try:
        np.dtype(name)
    except (TypeError, ValueError):
        return False
    try:
        return all(family.parse_v3(name, {}, "$", None) is None for family in FAMILIES)
    except (MetadataError, UnsupportedError):
        return False


def _from_plugin(plugin: plugins.Plugin, name: str, configuration: dict[str, Any], json_path: str) -> np.dtype[Any]:
    """Return the dtype of another package's data type."""
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


def to_v3(dtype: np.dtype[Any]) -> Any:
    """Return the v3 data type of a dtype: a name, or an object with name and configuration.

    Not for strings of variable length (``"string"``, ``"variable_length_bytes"``), whose dtype does not identify them.

    Raises
    ------
    ArgumentError
        If there is no such data type.
    """
    return family_of(dtype).to_v3(dtype)
