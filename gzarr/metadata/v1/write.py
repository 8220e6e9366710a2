"""Documents of Zarr v1 from the model: ``meta`` and ``attrs``.

Source: https://zarr-specs.readthedocs.io/en/latest/v1/v1.0.html
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from ...dtypes import fill_value
from ...dtypes.v2 import parse_v2
from ...errors import ArgumentError
from ..model import data_type_json
from ..v2.write import filters_of
from .parse import ATTRS, META

if TYPE_CHECKING:
    import numpy as np

    from ..model import ArrayMetadata

_COMPRESSORS: Final = ("blosc", "zlib", "bz2", "lzma")


def array_documents(metadata: ArrayMetadata) -> dict[str, dict[str, Any]]:
    """Return ``attrs`` and ``meta``, by name.

    Raises
    ------
    ArgumentError
        If version 1 cannot express the array.
    """
    # zarr-python 1 needs the document of attributes, even if there are none.
    attributes = {ATTRS: metadata.attributes}
    if (meta := metadata.document.get(META)) is not None:
        stored = parse_v2(meta["dtype"])
        changed = {
            "shape": list(metadata.shape),
            "chunks": list(metadata.chunk_shape),
            "fill_value": _respelled(meta["fill_value"], metadata.fill_value, stored),
        }
        if not metadata.attributes and ATTRS not in metadata.document:
            attributes = {}
        return {**attributes, META: {**meta, **changed}}
    if not metadata.shape:
        raise ArgumentError("version 1 has no arrays without dimensions; use zarr_format=2 or 3")
    if not metadata.chunk_grid.is_regular:
        raise ArgumentError("version 1 has regular chunk grids only; a rectilinear one needs zarr_format=3")
    encoding = metadata.chunk_key_encoding
    if (encoding.name, encoding.separator) != ("v2", "."):
        raise ArgumentError("version 1 has one chunk key encoding: numbers separated by '.'")
    stored = parse_v2(data_type_json(metadata.data_type))
    if stored.hasobject:
        raise ArgumentError("version 1 has no strings of variable length and no objects; use zarr_format=2 or 3")
    order, filters = filters_of(metadata.codecs, stored, "version 1")
    compression, options = _compression(filters)
    if order == "F" and compression != "blosc":
        raise ArgumentError("version 1 stores order='F' with the compressor 'blosc' only")
    document = {
        "zarr_format": 1,
        "shape": list(metadata.shape),
        "chunks": list(metadata.chunk_shape),
        "dtype": data_type_json(metadata.data_type),
        "compression": compression,
        "compression_opts": options,
        "fill_value": _fill_value(metadata.fill_value, stored),
        "order": order,
    }
    return {**attributes, META: document}


def _compression(filters: list[dict[str, Any]]) -> tuple[str | None, Any]:
    if not filters:
        return None, None
    if len(filters) > 1 or filters[0]["id"] not in _COMPRESSORS:
        names = ", ".join(repr(item["id"]) for item in filters)
        raise ArgumentError(f"version 1 takes one of {', '.join(_COMPRESSORS)}, and no filters; got {names}")
    options = {name: value for name, value in filters[0].items() if name != "id"}
    name = filters[0]["id"]
    if name in ("zlib", "bz2"):
        return name, options["level"]
    if name == "blosc" and options.get("blocksize") == 0:
        # An option of later versions; 0 is the behaviour of version 1.
        del options["blocksize"]
    return name, options


def _respelled(written: Any, value: Any, stored: np.dtype[Any]) -> Any:
    """Return a document's fill value for writing it again; NaN and infinity stay the literals of zarr-python 1."""
    if isinstance(written, float) and not math.isfinite(written):
        return written
    return fill_value.respelled(written, value, stored, fill_value.to_v2)


def _fill_value(value: Any, stored: np.dtype[Any]) -> Any:
    if value is None or stored.kind != "S":
        return fill_value.to_v2(value, stored)
    try:
        return bytes(value).decode("ascii")
    except UnicodeDecodeError:
        raise ArgumentError(f"version 1 has fill values of ASCII characters, not {value!r}") from None
