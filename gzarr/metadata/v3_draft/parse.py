"""Documents of the Zarr v3 drafts from 2020 to 2022, including those written as experimental version 3.

Source: https://github.com/zarr-developers/zarr-specs/blob/692fe73/docs/core/v3.0.rst, with the codecs, data types and
the sharding storage transformer beside it. :mod:`gzarr.metadata.layout` locates documents.
"""

from __future__ import annotations

import json
import math
import re
import warnings
from typing import Any, Final

import numpy as np

from ...codecs.bytes import BytesCodec
from ...codecs.chain import representations
from ...codecs.codec import ArrayRepresentation
from ...codecs.sharding import ShardingIndexed
from ...documents.configuration import whole_items
from ...documents.departures import note
from ...documents.json import quote
from ...dtypes import fill_value
from ...dtypes.properties import native
from ...dtypes.v2 import parse_v2
from ...dtypes.v3 import parse_v3
from ...errors import MetadataError, UnsupportedError
from ..chunk_grid import ChunkGrid
from ..layout import ENTRY_POINT, FORMAT, Layout, check_extensions
from ..model import ArrayMetadata, ChunkKeyEncoding, GroupMetadata
from ..parts import dimension_names_of, fail, member, parse_attributes, parse_chunk_shape, parse_shape
from ..v2.parse import codec_chain, object_codec

_CODEC_URI: Final = re.compile(r"https?://purl\.org/zarr/spec/codecs?/([A-Za-z0-9_-]{1,50})(/1(\.[0-9]+)?)?/?")
_CODECS: Final = ("blosc", "bz2", "gzip", "lz4", "lzma", "zlib", "zstd")
_CORE_TYPE: Final = re.compile(r"bool|u?int(8|16|32|64)|float(16|32|64)|complex(64|128)|r[0-9]{1,11}")
_RAW_BYTES: Final = re.compile(r"\|V[0-9]{1,10}")
# Data type extensions of the drafts, and zarr-python's names for them. Their types are NumPy type strings.
_TYPE_EXTENSION: Final = re.compile(
    r"https?://(purl\.org/zarr/spec|zarr-specs\.readthedocs\.io)/[^?#]*/(complex|datetime|string|struct)(-dtypes)?"
    r"/v?1\.0(\.html)?|TODO: (object array|bytestring array|unicode array|structured array) protocol URL"
)
_SHARDING_URI: Final = re.compile(
    r"https?://purl\.org/zarr/spec/(extensions/)?storage[-_]transformers/sharding/1(\.[0-9]+)?/?"
)
_MAX_TRANSFORMERS: Final = 8

_ARRAY_MEMBERS: Final = frozenset(
    (
        "shape",
        "data_type",
        "chunk_grid",
        "chunk_memory_layout",
        "fill_value",
        "extensions",
        "attributes",
        "codecs",
        "compressor",
        "storage_transformers",
        # zarr-python repeats the chunk grid's separator here.
        "dimension_separator",
    )
)
_GROUP_MEMBERS: Final = frozenset(("attributes", "extensions"))


def parse_group(document: dict[str, Any], layout: Layout) -> GroupMetadata:
    """Parse the document of a group.

    Raises
    ------
    MetadataError
        If it is malformed.
    """
    _check_members(document, _GROUP_MEMBERS)
    check_extensions(document)
    return GroupMetadata(
        attributes=_attributes(document),
        zarr_format=FORMAT,
        document={ENTRY_POINT: layout.document, "group": document},
    )


def parse_array(
    document: dict[str, Any], layout: Layout, path: str, *, allow_pickle: bool = False, allow_fallback: bool = False
) -> ArrayMetadata:
    """Parse the document of an array.

    Parameters
    ----------
    document
        Document as returned by :func:`gzarr.documents.json.load_document`.
    layout
        Layout of the hierarchy.
    path
        Path of the array, relative to the hierarchy.
    allow_pickle
        Whether codecs may load pickles, which can run code from the data.
    allow_fallback
        Whether elements of an unknown data type may be read as the fallback named in the document.

    Raises
    ------
    MetadataError
        If it is malformed; ``json_path`` gives the location.
    UnsupportedError
        If it is well formed but uses something unknown.

    Warns
    -----
    UserWarning
        If a fallback is used.
    """
    _check_members(document, _ARRAY_MEMBERS)
    check_extensions(document)
    shape = parse_shape(member(document, "shape"), "$.shape")
    stored, data_type = _data_type(member(document, "data_type"), allow_fallback=allow_fallback)
    grid = _chunk_grid(member(document, "chunk_grid"))
    at_shape = "$.chunk_grid.chunk_shape"
    if isinstance(grid["chunk_shape"], list):
        grid["chunk_shape"] = whole_items(grid["chunk_shape"], at_shape)
    chunk_shape = parse_chunk_shape(grid["chunk_shape"], shape, stored, at_shape)
    layout_name = member(document, "chunk_memory_layout")
    if layout_name not in ("C", "F"):
        kind = UnsupportedError if isinstance(layout_name, dict) else MetadataError
        raise kind(f"expected 'C' or 'F', got {quote(layout_name)}", json_path="$.chunk_memory_layout")
    attributes = _attributes(document)
    values, stored = _codec_values(document, stored)
    codecs = codec_chain(
        [*(filters_in(attributes) if layout.root else ()), *values],
        stored,
        chunk_shape,
        layout_name,
        allow_pickle=allow_pickle,
        json_paths=("$.data_type", "$.chunk_memory_layout", "$.codecs"),
    )
    fill = _fill_value(member(document, "fill_value"), stored, object_codec(codecs))
    for per_shard in _shardings(document.get("storage_transformers"), len(shape)):
        index_codecs = (BytesCodec("little"),)
        codecs = (ShardingIndexed(chunk_shape, codecs, index_codecs, "end").with_fill_value(fill),)
        shard_shape = [n * per for n, per in zip(chunk_shape, per_shard, strict=True)]
        chunk_shape = parse_chunk_shape(shard_shape, shape, stored, "$.storage_transformers")
        representations(codecs, ArrayRepresentation(chunk_shape, native(stored)), "$.storage_transformers")
    return ArrayMetadata(
        chunk_grid=ChunkGrid.regular(shape, chunk_shape),
        dtype=native(stored),
        data_type=data_type,
        chunk_key_encoding=ChunkKeyEncoding(
            "draft_root" if layout.root else "draft", "." if grid.get("separator") == "." else "/"
        ),
        fill_value=fill,
        codecs=codecs,
        attributes=attributes,
        dimension_names=dimension_names_of(attributes, len(shape)),
        zarr_format=FORMAT,
        document={ENTRY_POINT: layout.document, "array": document},
        chunk_prefix=layout.chunk_prefix(path),
        hierarchy=layout.base,
    )


def _check_members(document: Any, known: frozenset[str]) -> None:
    if not isinstance(document, dict):
        fail(f"expected a JSON object, got {quote(document)}", "$")
    for name, value in document.items():
        if name not in known and not (isinstance(value, dict) and value.get("must_understand") is False):
            raise UnsupportedError(f"the document has an unknown member {quote(name)}", json_path=f"$.{name[:100]}")


def _attributes(document: dict[str, Any]) -> dict[str, Any]:
    value = document.get("attributes", {})
    if value == []:
        note("an array in place of an object, as xtensor-zarr writes it", "$.attributes")
        return {}
    return parse_attributes(value, "$.attributes")


def _chunk_grid(value: Any) -> dict[str, Any]:
    at = "$.chunk_grid"
    if not isinstance(value, dict):
        fail(f"expected an object, got {quote(value)}", at)
    if "extension" in value or value.get("type") != "regular":
        raise UnsupportedError(f"the chunk grid {quote(value)} is not known; only 'regular' is", json_path=f"{at}.type")
    for name in value:
        if name not in ("type", "chunk_shape", "separator"):
            fail(f"the regular grid does not know {quote(name)}", at)
    if "chunk_shape" not in value:
        fail("the regular grid lacks 'chunk_shape'", at)
    if value.get("separator", "/") not in ("/", "."):
        fail(f"expected '/' or '.', got {quote(value['separator'])}", f"{at}.separator")
    return value


# -- data types and fill values ----------------------------------------------------------------------------------------


def _data_type(value: Any, at: str = "$.data_type", *, allow_fallback: bool) -> tuple[np.dtype[Any], str]:
    """Return the type of the stored elements and its name."""
    if isinstance(value, str):
        if _CORE_TYPE.fullmatch(value):
            return parse_v3(value, at)[0].newbyteorder("<"), value
        # zarr-python writes types of one byte without NumPy's "|".
        text = f"|{value}" if value in ("b1", "i1", "u1") else value
        if text[:1] not in ("<", ">", "|"):
            raise UnsupportedError(
                f"the data type {quote(value)} is not known; the drafts have bool, int8 … complex128, r8 …, and type "
                "strings such as '<f8'",
                json_path=at,
            )
        return parse_v2(text, at), value
    if not isinstance(value, dict):
        fail(f"expected a name or an object with an extension, got {quote(value)}", at)
    extension = value.get("extension")
    if not isinstance(extension, str):
        fail(f'a data type needs an "extension", got {quote(extension)}', f"{at}.extension")
    if "type" not in value:
        fail('the data type lacks a "type"', at)
    try:
        if not _TYPE_EXTENSION.fullmatch(extension):
            raise UnsupportedError(
                f"the data type {quote(value['type'])} of {quote(extension)} is not known", json_path=f"{at}.type"
            )
        said = _raw_bytes(value["type"]) or value["type"]
        return parse_v2(said, f"{at}.type"), said if isinstance(said, str) else json.dumps(said)
    except MetadataError as error:
        fallback = _fallback(value.get("fallback"), f"{at}.fallback")
        if fallback is None:
            raise
        if not allow_fallback:
            raise UnsupportedError(
                f"{error.message}; the document allows reading elements as {quote(fallback[1])}: open it with "
                "allow_fallback=True to do so",
                json_path=at,
            ) from None
        warnings.warn(f"{error.message}; elements are read as {fallback[1]!r}", UserWarning, stacklevel=2)
        return fallback


def _raw_bytes(value: Any) -> str | None:
    """Return the type string in ``[["", "|V5"]]``, by which zarr-python means raw bytes; None for other types.

    It writes the ``descr`` of NumPy's types, which has a field without a name for types without fields.
    """
    match value:
        case [["", str(text)]] if _RAW_BYTES.fullmatch(text):
            return text
    return None


def _fallback(value: Any, at: str) -> tuple[np.dtype[Any], str] | None:
    """Return the first known type among a document's fallbacks."""
    for item in value if isinstance(value, list) else [] if value is None else [value]:
        if not isinstance(item, str | dict):
            fail(f"expected one data type or an array of them, got {quote(value)}", at)
        alone = {k: v for k, v in item.items() if k != "fallback"} if isinstance(item, dict) else item
        try:
            return _data_type(alone, at, allow_fallback=False)
        except MetadataError:
            continue
    return None


def _fill_value(value: Any, stored: np.dtype[Any], codec: str | None) -> Any:
    if isinstance(value, str) and stored.kind in "iufcmMV" and stored.fields is None:
        bits = re.fullmatch(r"0[bB]([01]+)", value)
        digits = re.fullmatch(r"0[xX]([0-9A-Fa-f]+)", value)
        size = stored.itemsize
        if bits is not None and len(bits[1]) == 8 * size:
            data = int(bits[1], 2).to_bytes(size, "big")
        elif digits is not None and len(digits[1]) == 2 * size:
            data = bytes.fromhex(digits[1])
        elif stored.kind != "V" and (bits or digits):
            fail(
                f"{quote(value)} is not a fill value of {stored.name}: expected {8 * size} binary or {2 * size} "
                "hexadecimal digits",
                "$.fill_value",
            )
        else:
            data = b""
        if data:
            return np.frombuffer(data, stored.newbyteorder(">")).astype(native(stored))[0]
    return fill_value.from_v2(fill_value.from_draft(value, stored), stored, object_codec=codec)


# -- codecs and storage transformers -----------------------------------------------------------------------------------


def _codec(value: Any, name_member: str, at: str) -> tuple[str, dict[str, Any]]:
    """Return name and configuration of a codec that is given by URI."""
    if not isinstance(value, dict):
        fail(f"expected an object, got {quote(value)}", at)
    uri = value.get(name_member)
    if not isinstance(uri, str):
        fail(f"expected the URI of a codec, got {quote(uri)}", f"{at}.{name_member}")
    for name in value:
        if name not in (name_member, "configuration"):
            fail(f"a codec has no member {quote(name)}", at)
    configuration = value.get("configuration")
    if configuration is None:
        configuration = {}
    if not isinstance(configuration, dict) or "id" in configuration:
        fail(f"expected the configuration of a codec, got {quote(configuration)}", f"{at}.configuration")
    match = _CODEC_URI.fullmatch(uri)
    if match is None or match[1] not in (*_CODECS, "endian"):
        known = ", ".join((*_CODECS[:3], "endian", *_CODECS[3:]))
        raise UnsupportedError(
            f"the codec {quote(uri)} is not known; https://purl.org/zarr/spec/codecs/NAME/1.0 is, with {known}",
            json_path=f"{at}.{name_member}",
        )
    return match[1], configuration


def _codec_values(document: dict[str, Any], stored: np.dtype[Any]) -> tuple[list[tuple[str, Any]], np.dtype[Any]]:
    """Return the codecs as numcodecs objects, and the stored type in the byte order that they define."""
    values: list[tuple[str, Any]] = []
    if (compressor := document.get("compressor")) is not None:
        note("a member from before the drafts, as zarr-python writes it", "$.compressor")
        if document.get("codecs") is not None:
            fail("a document has either 'compressor' or 'codecs'", "$.compressor")
        name, configuration = _codec(compressor, "codec", "$.compressor")
        if name == "endian":
            fail("'endian' is not a compressor", "$.compressor.codec")
        return [("$.compressor.configuration", {**configuration, "id": name})], stored
    codecs = document.get("codecs")
    if codecs is None:
        return [], stored
    if not isinstance(codecs, list):
        fail(f"expected an array of codecs, got {quote(codecs)}", "$.codecs")
    for i, value in enumerate(codecs):
        at = f"$.codecs[{i}]"
        name, configuration = _codec(value, "type", at)
        if name != "endian":
            values.append((f"{at}.configuration", {**configuration, "id": name}))
            continue
        if i:
            fail("the codec 'endian' takes an array: it must be the first codec", at)
        endian = configuration.get("endian")
        if endian not in ("little", "big") or len(configuration) > 1:
            fail(f"""expected {{"endian": "little"}} or {{"endian": "big"}}, got {quote(configuration)}""", at)
        stored = stored.newbyteorder("<" if endian == "little" else ">")
    return values, stored


def filters_in(attributes: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return the filters that zarr-python keeps in the attributes; other attributes of that name are ignored."""
    filters = attributes.get("filters")
    if not isinstance(filters, list) or not any(isinstance(f, dict) and "id" in f for f in filters):
        return []
    note("filters are kept in the attributes, as zarr-python does", "$.attributes.filters")
    return [(f"$.attributes.filters[{i}]", value) for i, value in enumerate(filters)]


def own_attributes(metadata: ArrayMetadata) -> dict[str, Any]:
    """Return the attributes of an array, of any format, without the filters that zarr-python keeps in them."""
    if metadata.chunk_key_encoding.name != "draft_root" or not filters_in(metadata.attributes):
        return metadata.attributes
    return {name: value for name, value in metadata.attributes.items() if name != "filters"}


def _shardings(value: Any, ndim: int) -> list[tuple[int, ...]]:
    """Return the chunks per shard of each sharding transformer, innermost first."""
    if value is None:
        return []
    if not isinstance(value, list):
        fail(f"expected an array, got {quote(value)}", "$.storage_transformers")
    if len(value) > _MAX_TRANSFORMERS:
        fail(f"more than {_MAX_TRANSFORMERS} storage transformers", "$.storage_transformers")
    return [_sharding(item, f"$.storage_transformers[{i}]", ndim) for i, item in enumerate(value)]


def _sharding(value: Any, at: str, ndim: int) -> tuple[int, ...]:
    if not isinstance(value, dict) or not isinstance(value.get("extension"), str):
        fail(f'expected an object with an "extension", got {quote(value)}', at)
    if not _SHARDING_URI.fullmatch(value["extension"]) or value.get("type") != "indexed":
        raise UnsupportedError(
            f"the storage transformer {quote(value.get('type'))} of {quote(value['extension'])} is not known; "
            "sharding of type 'indexed' is",
            json_path=at,
        )
    configuration = value.get("configuration")
    if not isinstance(configuration, dict) or set(configuration) != {"chunks_per_shard"}:
        fail(f'expected an object with "chunks_per_shard", got {quote(configuration)}', f"{at}.configuration")
    counts = configuration["chunks_per_shard"]
    at = f"{at}.configuration.chunks_per_shard"
    if isinstance(counts, list):
        counts = configuration["chunks_per_shard"] = whole_items(counts, at)
    if not isinstance(counts, list) or not all(type(n) is int and 1 <= n < 2**63 for n in counts):
        fail(f"expected an array of integers from 1 to 2**63 - 1, got {quote(counts)}", at)
    if math.prod(counts) > 2**40:
        fail(f"a shard would have {quote(math.prod(counts))} chunks; the limit is 2**40", at)
    # zarr-python writes one number for an array without dimensions, and none for the subarrays of a structured type.
    if not ndim and counts in ([], [1]):
        return ()
    if not 0 < len(counts) <= ndim:
        fail(f"expected {ndim} integers, one per dimension, got {len(counts)}", at)
    return (*counts, *[1] * (ndim - len(counts)))
