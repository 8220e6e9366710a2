"""Zarr v2 documents (``.zarray``, ``.zgroup``, ``.zattrs``, ``.zmetadata``).

Source: https://zarr-specs.readthedocs.io/en/latest/v2/v2.0.html. Parts that are codecs in v3 become codecs here: order
F is a ``transpose``, the byte order is a ``bytes`` codec, filters and compressor are bytes→bytes codecs after it. A
filter of Python objects replaces ``bytes``.
"""

from __future__ import annotations

import functools
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ...codecs.blosc import BloscCodec
from ...codecs.bytes import BytesCodec
from ...codecs.chain import check_kinds
from ...codecs.codec import ArrayRepresentation, Codec, Representation
from ...codecs.numcodecs_adapter import STATE_SHAPE
from ...codecs.registry import codec_from_v2
from ...codecs.shuffle import ShuffleCodec
from ...codecs.transpose import TransposeCodec
from ...documents.configuration import whole
from ...documents.deferred import Deferred, loaded
from ...documents.departures import note
from ...documents.json import quote
from ...dtypes import fill_value
from ...dtypes.properties import native, swap_unit
from ...dtypes.v2 import parse_v2
from ...errors import MetadataError, UnsupportedError
from ..chunk_grid import ChunkGrid
from ..model import ArrayMetadata, ChunkKeyEncoding, GroupMetadata, NodeMetadata
from ..parts import (
    ConsolidatedNodes,
    check_format,
    check_path,
    dimension_names_of,
    fail,
    likeness,
    member,
    parse_attributes,
    parse_chunk_shape,
    parse_shape,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Members of ``.zarray`` that version 2 defines.
MEMBERS: Final = frozenset(
    ("zarr_format", "shape", "chunks", "dtype", "compressor", "fill_value", "order", "filters", "dimension_separator")
)
_POINTER_NBYTES: Final = 8
# Names of members and attributes of NCZarr begin with these, in lower or upper case.
_NCZARR: Final = ("_nczarr", "_nczattr")
_DOCUMENTS: Final = (".zarray", ".zgroup", ".zattrs")
# Parameters with the element type after a filter, for the codecs that follow it.
_TYPES_BEHIND: Final = {"delta": "astype", "fixedscaleoffset": "astype", "quantize": "astype", "astype": "encode_dtype"}
# Codecs that state the type of numbers in the chunk: numcodecs has them in the byte order of the machine only.
_OF_NATIVE_NUMBERS: Final = ("numcodecs.pcodec", "numcodecs.zfpy")


def parse_array(
    zarray: dict[str, Any], zattrs: dict[str, Any] | None = None, *, allow_pickle: bool = False
) -> ArrayMetadata:
    """Parse the documents of an array.

    Parameters
    ----------
    zarray
        ``.zarray`` as returned by :func:`gzarr.documents.json.load_document`.
    zattrs
        ``.zattrs``, or None if there is none.
    allow_pickle
        Whether codecs may load pickles, which can run code from the data.

    Raises
    ------
    MetadataError
        If a document is malformed; ``json_path`` gives the location.
    UnsupportedError
        If it is well formed but uses something unknown.
    """
    check_format(zarray, 2)
    shape = parse_shape(member(zarray, "shape"), "$.shape")
    stored = parse_v2(member(zarray, "dtype"))
    chunk_shape = parse_chunk_shape(member(zarray, "chunks"), shape, stored, "$.chunks")
    for name in zarray:
        if name not in MEMBERS:
            note("an unknown member", f"$.{name[:100]}")
    for name in ("filters", "compressor"):
        if name not in zarray:
            note("absent; read as null", f"$.{name}")
    separator = zarray.get("dimension_separator", ".")
    if separator is None:
        note("null in place of '.'", "$.dimension_separator")
    if separator not in ("/", ".", None):
        fail(f"expected '.' or '/', got {quote(separator)}", "$.dimension_separator")
    order = member(zarray, "order")
    if order not in ("C", "F"):
        fail(f"expected 'C' or 'F', got {quote(order)}", "$.order")
    attributes = {} if zattrs is None else parse_attributes(zattrs, "$")
    codecs = codec_chain(
        _filters(zarray),
        stored,
        chunk_shape,
        order,
        allow_pickle=allow_pickle,
        netcdf_itemsize=_netcdf_itemsize(zarray["dtype"], stored),
        by_netcdf=is_by_netcdf(zarray, attributes),
    )
    return ArrayMetadata(
        chunk_grid=ChunkGrid.regular(shape, chunk_shape),
        dtype=native(stored),
        data_type=zarray["dtype"] if isinstance(zarray["dtype"], str) else json.dumps(zarray["dtype"]),
        chunk_key_encoding=ChunkKeyEncoding("v2", "/" if separator == "/" else "."),
        fill_value=fill_value.from_v2(member(zarray, "fill_value"), stored, object_codec=object_codec(codecs)),
        codecs=codecs,
        attributes=attributes,
        dimension_names=dimension_names_of(attributes, len(shape)),
        zarr_format=2,
        document={".zarray": zarray} if zattrs is None else {".zarray": zarray, ".zattrs": attributes},
    )


def parse_group(zgroup: dict[str, Any], zattrs: dict[str, Any] | None = None) -> GroupMetadata:
    """Parse the documents of a group.

    Raises
    ------
    MetadataError
        If a document is malformed.
    """
    check_format(zgroup, 2)
    attributes = {} if zattrs is None else parse_attributes(zattrs, "$")
    return GroupMetadata(
        attributes=attributes,
        zarr_format=2,
        document={".zgroup": zgroup} if zattrs is None else {".zgroup": zgroup, ".zattrs": attributes},
    )


def parse_consolidated(
    zmetadata: dict[str, Any], *, allow_pickle: bool = False
) -> Mapping[str, NodeMetadata | MetadataError]:
    """Parse ``.zmetadata``, in which documents may be :class:`Deferred`.

    Returns
    -------
    All nodes by path, including the root as ``""`` if the document has it; an error for each node whose document is
    unusable. They are parsed when they are asked for.

    Raises
    ------
    MetadataError
        If the document is malformed.
    """
    if not isinstance(zmetadata, dict):
        fail(f"expected a JSON object, got {quote(zmetadata)}", "$")
    version = whole(member(zmetadata, "zarr_consolidated_format"), "$.zarr_consolidated_format")
    if type(version) is not int or version != 1:
        raise UnsupportedError(f"expected 1, got {quote(version)}", json_path="$.zarr_consolidated_format")
    documents = member(zmetadata, "metadata")
    if not isinstance(documents, dict):
        fail(f"expected an object of documents, got {quote(documents)}", "$.metadata")
    nodes: dict[str, dict[str, Any]] = {}
    for key, document in documents.items():
        path, _, name = str(key).rpartition("/")
        if name not in _DOCUMENTS:
            continue
        try:
            if path and path not in nodes:
                check_path(path, "$")
            if name == ".zattrs" and not isinstance(document, Deferred):
                document = parse_attributes(document, "$")
            elif not isinstance(document, dict | Deferred):
                fail(f"expected a document, got {quote(document)}", "$")
        except MetadataError as error:
            # Naming the place takes longer than the checks.
            error.json_path = f"$.metadata[{quote(key)}]"
            raise
        nodes.setdefault(path, {})[name] = document
    # Writers that delete nodes may leave their attributes behind.
    nodes = {path: parts for path, parts in nodes.items() if ".zarray" in parts or ".zgroup" in parts}
    return ConsolidatedNodes(nodes, functools.partial(_parse_parts, like={}, allow_pickle=allow_pickle))


def _parse_parts(
    unparsed: dict[str, Any], key: str, *, like: dict[str | None, ArrayMetadata], allow_pickle: bool
) -> NodeMetadata:
    """Parse the documents of a node; ``like`` keeps the arrays that others may share all but the attributes with."""
    parts = {name: loaded(document, key) for name, document in unparsed.items()}
    if ".zarray" in parts:
        zarray, zattrs = parts[".zarray"], parts.get(".zattrs")
        attributes = {} if zattrs is None else parse_attributes(zattrs, "$")
        # What codecs depend on.
        text = likeness((zarray, is_by_netcdf(zarray, attributes)))
        found = like.get(text)
        if found is None:
            parsed = parse_array(zarray, zattrs, allow_pickle=allow_pickle)
            if text is not None:
                like[text] = parsed
            return parsed
        names = dimension_names_of(attributes, found.ndim)
        documents = {".zarray": found.document[".zarray"]}
        if zattrs is not None:
            documents[".zattrs"] = attributes
        return found.with_own(attributes, names, documents)
    return parse_group(parts[".zgroup"], parts.get(".zattrs"))


def _netcdf_itemsize(dtype: Any, stored: np.dtype[Any]) -> int:
    """Return the size of an element in bytes by netCDF-C's definition: for ``NC_STRING``, that of a pointer."""
    # "|S1" is a string, too; ">S1" is a character.
    text = stored.kind == "S" and isinstance(dtype, str) and dtype.startswith("|")
    return _POINTER_NBYTES if text else stored.itemsize


def is_by_netcdf(zarray: dict[str, Any], attributes: dict[str, Any]) -> bool:
    """Return whether netCDF-C wrote an array, as far as its documents tell.

    It leaves marks in NCZarr's dialect; in pure Zarr it names dimensions, and its last filter is the compressor.
    """
    names = [*zarray, *attributes]
    if any(name.lower().startswith(_NCZARR) for name in names):
        return True
    return "_ARRAY_DIMENSIONS" in attributes and zarray.get("compressor") is not None


def _bytes_codec(stored: np.dtype[Any]) -> BytesCodec:
    if stored == stored.newbyteorder("<") or swap_unit(stored) == 1:
        return BytesCodec(None if swap_unit(stored) == 1 else "little")
    # Readers of version 3 disagree on "endian" for structured types, so their byte order stays part of the type.
    if stored.fields is None and stored == stored.newbyteorder(">"):
        return BytesCodec("big")
    return BytesCodec(None, stored)


def _filters(zarray: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return filters and compressor, each with its JSON path."""
    filters = zarray.get("filters")
    if filters is None:
        filters = []
    if not isinstance(filters, list | tuple):
        fail(f"expected an array of filters or null, got {quote(filters)}", "$.filters")
    values = [(f"$.filters[{i}]", value) for i, value in enumerate(filters)]
    if zarray.get("compressor") is not None:
        values.append(("$.compressor", zarray["compressor"]))
    return values


def codec_chain(
    values: Sequence[tuple[str, Any]],
    stored: np.dtype[Any],
    chunk_shape: tuple[int, ...],
    order: str,
    *,
    allow_pickle: bool,
    json_paths: tuple[str, str, str] = ("$.dtype", "$.order", "$.filters"),
    netcdf_itemsize: int | None = None,
    by_netcdf: bool = False,
) -> tuple[Codec, ...]:
    """Make the chain of an array whose document has an order, filters and a compressor.

    Parameters
    ----------
    values
        JSON paths and numcodecs objects (``{"id": …}``), in encoding order.
    stored
        Type of the elements in the byte order of the document.
    chunk_shape
        Shape of a chunk in elements.
    order
        ``"C"`` or ``"F"``.
    allow_pickle
        Whether codecs may load pickles.
    json_paths
        Locations of data type, order and filters in the document, for messages.
    netcdf_itemsize
        Element size in bytes for netCDF-C's shuffle; None for that of ``stored``.
    by_netcdf
        Whether netCDF-C wrote the array, so that a shuffle of elements of 0 bytes means its own.

    Raises
    ------
    MetadataError
        If a codec is malformed or does not fit.
    """
    at_dtype, at_order, at_filters = json_paths
    chain: list[tuple[str, Codec]] = []
    # Codecs that store the chunk's shape with its items keep the items in the order of that shape.
    first = values[0][1].get("id") if values and isinstance(values[0][1], dict) else None
    if order == "F" and len(chunk_shape) > 1 and not (stored.hasobject and first in STATE_SHAPE):
        chain.append((at_order, TransposeCodec(tuple(reversed(range(len(chunk_shape)))))))
    made = [
        codec_from_v2(value, at, allow_pickle=allow_pickle, first=i == 0, objects=stored.hasobject)
        for i, (at, value) in enumerate(values)
    ]
    maker = next((i for i, codec in enumerate(made) if codec.kind == "array_to_bytes"), None)
    if stored.hasobject and maker != 0:
        has, at = (f"{made[0].label} is", values[0][0]) if made else ("it has none", at_filters)
        fail(f"an array of objects needs a filter such as 'vlen-utf8' first, but {has}", at)
    if maker is None:
        chain.append((at_dtype, _bytes_codec(stored)))
    behind: np.dtype[Any] | None = stored
    for i, ((at, _), codec) in enumerate(zip(values, made, strict=True)):
        if maker is not None and i <= maker and behind is not None:
            codec, behind = _of_arrays(codec, behind, made[maker].label, at)
            chain.append((at, codec))
            continue
        if isinstance(codec, ShuffleCodec) and not codec.elementsize:
            if by_netcdf or codec.tail:
                codec = codec.with_itemsize(stored.itemsize if netcdf_itemsize is None else netcdf_itemsize)
                codec = replace(codec, tail=True)
                note(f"netCDF-C derives it from the data type; read as {codec.elementsize}", f"{at}.elementsize")
            else:
                note(
                    "no shuffle, as numcodecs takes 0; netCDF-C would mean the element size, but nothing else here is "
                    "its own",
                    f"{at}.elementsize",
                )
        codec, behind = _with_dtype(codec, behind)
        chain.append((at, codec))
    check_kinds([codec for _, codec in chain], at_filters)
    representation: Representation = ArrayRepresentation(chunk_shape, native(stored))
    codecs: list[Codec] = []
    documents = dict(values)
    for at, codec in chain:
        if isinstance(codec, ShuffleCodec):
            codec = codec.for_bytes(representation)
            document = documents[at]
            if isinstance(document.get("elementsize"), str) and not codec.tail:
                # As an integer, it leaves nothing open.
                document["elementsize"] = codec.elementsize
        codecs.append(codec)
        try:
            representation = codec.encoded(representation)
        except MetadataError as error:
            error.json_path = at
            raise
    return tuple(codecs)


def _of_arrays(codec: Codec, before: np.dtype[Any], maker: str, at: str) -> tuple[Codec, np.dtype[Any] | None]:
    """Make a codec up to the one that takes an array a codec of arrays; return it and its output's type.

    Parameters
    ----------
    codec
        The codec.
    before
        Type of its input, in stored byte order.
    maker
        Label of the codec that takes the array.
    at
        Location of the codec in the document, for messages.

    Raises
    ------
    UnsupportedError
        If the codec makes bytes, or numcodecs would swap the bytes of the elements.
    """
    from ...codecs.numcodecs_adapter import NumcodecsBytesToBytes

    if codec.kind == "array_to_bytes":
        if maker in _OF_NATIVE_NUMBERS and before != native(before):
            raise UnsupportedError(
                f"{maker} takes little-endian numbers, not {before.str!r}; use a data type such as "
                f"{before.newbyteorder('<').str!r}",
                json_path=at,
            )
        return codec, None
    on_arrays = codec.on_arrays() if isinstance(codec, NumcodecsBytesToBytes) else None
    if not isinstance(codec, NumcodecsBytesToBytes) or on_arrays is None:
        raise UnsupportedError(
            f"before {maker}, which takes an array, gzarr has filters of numbers only, not {codec.label}; put it after",
            json_path=at,
        )
    taken = codec.configuration.get("decode_dtype") or codec.configuration.get("dtype")
    numbers = np.dtype("i8").newbyteorder(before.byteorder) if before.kind in "mM" else before
    if taken is not None and np.dtype(taken) not in (before, numbers):
        raise UnsupportedError(
            f"before {maker}, gzarr has filters of the elements' own type only, {numbers.str!r} rather than {taken!r}",
            json_path=at,
        )
    return on_arrays, _with_dtype(codec, before)[1]


def _with_dtype(codec: Codec, before: np.dtype[Any] | None) -> tuple[Codec, np.dtype[Any] | None]:
    """Give a codec its input's element type; return the codec and its output's type (None after a compressor)."""
    from ...codecs.numcodecs_adapter import NumcodecsBytesToBytes

    if isinstance(codec, BloscCodec):
        return (codec.with_itemsize(before.itemsize) if before is not None and before.itemsize else codec), None
    if not isinstance(codec, NumcodecsBytesToBytes):
        return codec, None
    if codec.id == "bitround":
        # numcodecs takes no types of other packages.
        if before is None or before.kind != "f" or before.isbuiltin == 2:
            raise MetadataError(f"{codec.label} needs floating-point numbers", json_path="$.filters")
        return replace(codec, stored_dtype=before.str), before
    if codec.id == "packbits":
        return replace(codec, stored_dtype=np.dtype("u1" if before is None else before).str), np.dtype("u1")
    if codec.id in _TYPES_BEHIND:
        name = codec.configuration.get(_TYPES_BEHIND[codec.id]) or codec.configuration.get("dtype")
        return codec, np.dtype(name)
    return codec, np.dtype("u1") if codec.id in ("base64", "categorize") else None


def object_codec(codecs: tuple[Codec, ...]) -> str | None:
    """Return the ``id`` of the numcodecs codec that encodes an array of objects, if there is one."""
    from ...codecs.numcodecs_adapter import NumcodecsArrayToBytes

    return next((codec.id for codec in codecs if isinstance(codec, NumcodecsArrayToBytes)), None)
