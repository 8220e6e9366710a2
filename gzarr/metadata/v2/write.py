"""Documents of Zarr v2 from the model: ``.zarray``, ``.zgroup``, ``.zattrs``.

Source: https://zarr-specs.readthedocs.io/en/latest/v2/v2.0.html. Members are in zarr-python's order.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from ...codecs.blosc import BloscCodec
from ...codecs.bytes import BytesCodec
from ...codecs.numcodecs_adapter import NumcodecsArrayToArray, NumcodecsCodec
from ...codecs.shuffle import ShuffleCodec
from ...codecs.transpose import TransposeCodec
from ...codecs.zstd import ZstdCodec
from ...dtypes import fill_value
from ...dtypes.v2 import parse_v2, to_v2
from ...errors import ArgumentError
from ..model import data_type_json
from .parse import is_by_netcdf

if TYPE_CHECKING:
    import numpy as np

    from ...codecs.codec import Codec
    from ..model import ArrayMetadata, GroupMetadata

_SHUFFLES: Final = {"noshuffle": 0, "shuffle": 1, "bitshuffle": 2, None: -1}
# Codecs with the same name in version 3 and numcodecs.
_SAME: Final = frozenset(("gzip", "crc32c", "bitround"))


def array_documents(metadata: ArrayMetadata) -> dict[str, dict[str, Any]]:
    """Return ``.zattrs`` and ``.zarray``, by name.

    Raises
    ------
    ArgumentError
        If version 2 cannot express the array.
    """
    attributes = attributes_document(metadata.attributes, metadata.document.get(".zattrs"))
    if (zarray := metadata.document.get(".zarray")) is not None:
        stored = parse_v2(zarray["dtype"])
        changed = {
            "shape": list(metadata.shape),
            "chunks": list(metadata.chunk_shape),
            "fill_value": fill_value.respelled(zarray["fill_value"], metadata.fill_value, stored, fill_value.to_v2),
        }
        return {**attributes, ".zarray": {**zarray, **changed, **_settled(metadata, zarray)}}
    if not metadata.chunk_grid.is_regular:
        raise ArgumentError("version 2 has regular chunk grids only; a rectilinear one needs zarr_format=3")
    if metadata.chunk_key_encoding.name != "v2":
        raise ArgumentError(f"version 2 has no chunk key encoding {metadata.chunk_key_encoding.name!r}, only 'v2'")
    stored = parse_v2(data_type_json(metadata.data_type))
    order, filters = filters_of(metadata.codecs, stored, "version 2")
    # The compressor is the last codec, unless numcodecs lists it among the filters.
    compressor = filters.pop() if filters and _is_compressor(filters[-1]["id"]) else None
    document = {
        "shape": list(metadata.shape),
        "chunks": list(metadata.chunk_shape),
        "dtype": data_type_json(metadata.data_type),
        "fill_value": fill_value.to_v2(metadata.fill_value, stored),
        "order": order,
        "filters": filters or None,
        "dimension_separator": metadata.chunk_key_encoding.separator,
        "compressor": compressor,
        "zarr_format": 2,
    }
    return {**attributes, ".zarray": document}


def _settled(metadata: ArrayMetadata, zarray: dict[str, Any]) -> dict[str, Any]:
    """Return members with the element sizes of shuffles that would change with the array's new attributes.

    Documents may leave these open: attributes that netCDF-C writes say what is meant (``is_by_netcdf``).
    """
    filters, compressor = zarray.get("filters") or [], zarray.get("compressor")
    members = [*filters, *([] if compressor is None else [compressor])]
    if not any(map(_is_open, members)):
        return {}
    before = metadata.document.get(".zattrs", {})
    if is_by_netcdf(zarray, before) == is_by_netcdf(zarray, metadata.attributes):
        return {}
    settled = [
        {**member, "elementsize": _elementsize(codec)}
        if _is_open(member) and isinstance(codec, ShuffleCodec)
        else member
        for member, codec in zip(members, metadata.codecs[-len(members) :], strict=True)
    ]
    changed: dict[str, Any] = {"filters": settled[: len(filters)]} if filters else {}
    return changed if compressor is None else {**changed, "compressor": settled[-1]}


def _is_open(member: dict[str, Any]) -> bool:
    return member.get("id") == "shuffle" and member.get("elementsize") == 0


def _elementsize(codec: ShuffleCodec) -> int | str:
    # Only netCDF-C writes text, so it means its own shuffle whatever the attributes are.
    return str(codec.elementsize) if codec.tail else max(codec.elementsize, 1)


def group_documents(metadata: GroupMetadata) -> dict[str, dict[str, Any]]:
    """Return ``.zattrs`` and ``.zgroup``, by name."""
    attributes = attributes_document(metadata.attributes, metadata.document.get(".zattrs"))
    return {**attributes, ".zgroup": metadata.document.get(".zgroup", {"zarr_format": 2})}


def attributes_document(attributes: dict[str, Any], before: dict[str, Any] | None) -> dict[str, dict[str, Any]]:
    """Return ``.zattrs``, by name, or nothing if it is not needed."""
    return {".zattrs": attributes} if attributes or before is not None else {}


def filters_of(codecs: tuple[Codec, ...], stored: np.dtype[Any], version: str) -> tuple[str, list[dict[str, Any]]]:
    """Return the order and filters (including the compressor) of a chain, as numcodecs objects.

    Raises
    ------
    ArgumentError
        If numcodecs does not have a codec, or the version does not allow it at its position.
    """
    order, rest = "C", list(codecs)
    if rest and isinstance(rest[0], TransposeCodec) and (axes := rest[0].order) == tuple(reversed(range(len(axes)))):
        order = "F" if len(axes) > 1 else "C"
        del rest[0]
    filters: list[dict[str, Any]] = []
    before = stored
    for codec in rest:
        if isinstance(codec, NumcodecsArrayToArray):
            codec, before = codec.stored_as(before)
        if not isinstance(codec, BytesCodec):
            filters.append(to_numcodecs(codec, None if filters else stored.itemsize, version))
    return order, filters


def to_numcodecs(codec: Codec, itemsize: int | None, version: str = "version 2") -> dict[str, Any]:
    """Return a codec as a numcodecs object, ``{"id": …}``.

    Parameters
    ----------
    codec
        Any codec.
    itemsize
        Item size in bytes of its input, if that holds elements of the array; it is Blosc's default type size.
    version
        Version of the document, for the error.

    Raises
    ------
    ArgumentError
        If numcodecs has no such codec.
    """
    if isinstance(codec, BloscCodec):
        values = {
            "cname": codec.cname,
            "clevel": codec.clevel,
            "shuffle": _SHUFFLES[codec.shuffle],
            "blocksize": codec.blocksize,
        }
        if codec.typesize not in (None, itemsize):
            values["typesize"] = codec.typesize
        return {"id": "blosc", **values}
    if isinstance(codec, ZstdCodec):
        # tensorstore refuses unknown members.
        return {"id": "zstd", "level": codec.level, **({"checksum": True} if codec.checksum else {})}
    if isinstance(codec, NumcodecsCodec):
        return {"id": codec.id, **codec.configuration}
    if isinstance(codec, ShuffleCodec):
        # In version 2, 0 means netCDF's shuffle, which leaves a tail alone; here, 0 means no shuffle.
        return {"id": "shuffle", "elementsize": 0 if codec.tail else max(codec.elementsize, 1)}
    name = codec.to_json()["name"]
    if name in _SAME or name.startswith("numcodecs."):
        return {"id": name.removeprefix("numcodecs."), **codec.to_json().get("configuration", {})}
    raise ArgumentError(f"{version} has no codec {codec.label}; choose others with filters= and compressors=")


def _is_compressor(name: str) -> bool:
    return name not in _FILTERS


# Codecs that zarr-python writes as filters, never as the compressor.
_FILTERS: Final = frozenset(
    (
        *("vlen-utf8", "vlen-bytes", "vlen-array", "json2", "msgpack2", "pickle", "categorize", "base64"),
        *("delta", "fixedscaleoffset", "quantize", "bitround", "packbits", "astype", "shuffle"),
        *("crc32", "crc32c", "adler32", "fletcher32", "jenkins_lookup3"),
    )
)


def data_type_text(stored: np.dtype[Any]) -> str:
    """Return the data type of a new array for the model, including that of objects."""
    said = "|O" if stored.hasobject else to_v2(stored)
    return said if isinstance(said, str) else json.dumps(said)
