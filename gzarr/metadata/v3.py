"""Zarr v3.1 documents (``zarr.json``).

Source: https://zarr-specs.readthedocs.io/en/latest/v3/core/index.html#metadata-documents. Inline consolidated
metadata is zarr-python's: ``{"kind": "inline", "must_understand": false, "metadata": {path: document}}``.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any, Final, cast

from ..codecs.chain import check_kinds, representations
from ..codecs.codec import ArrayRepresentation
from ..codecs.registry import codecs_from_v3
from ..codecs.sharding import ShardingIndexed
from ..dtypes import extension, parse_v3
from ..errors import MetadataError, UnsupportedError
from . import fill_value
from .json import quote
from .model import ArrayMetadata, ChunkKeyEncoding, GroupMetadata, NodeMetadata
from .parts import check_format, check_path, fail, member, parse_all, parse_attributes, parse_chunk_shape, parse_shape

_ARRAY_MEMBERS: Final = frozenset(
    (
        "zarr_format",
        "node_type",
        "shape",
        "data_type",
        "chunk_grid",
        "chunk_key_encoding",
        "fill_value",
        "codecs",
        "attributes",
        "storage_transformers",
        "dimension_names",
    )
)
_GROUP_MEMBERS: Final = frozenset(("zarr_format", "node_type", "attributes", "consolidated_metadata"))


def parse_node(document: dict[str, Any], *, allow_pickle: bool = False) -> NodeMetadata:
    """Parse the document of an array or of a group, as its ``node_type`` says.

    Raises
    ------
    MetadataError
        If it is malformed.
    """
    check_format(document, 3)
    node_type = member(document, "node_type")
    if node_type == "array":
        return parse_array(document, allow_pickle=allow_pickle)
    if node_type == "group":
        return parse_group(document, allow_pickle=allow_pickle)
    fail(f"expected 'array' or 'group', got {quote(node_type)}", "$.node_type")


def parse_array(document: dict[str, Any], *, allow_pickle: bool = False) -> ArrayMetadata:
    """Parse the document of an array.

    Parameters
    ----------
    document
        As :func:`gzarr.metadata.json.load_document` returns it.
    allow_pickle
        Whether a codec may load pickles, which can run code that is in the data.

    Raises
    ------
    MetadataError
        If it is malformed; ``json_path`` says where.
    UnsupportedError
        If it is well formed but asks for something that is not known.
    """
    check_format(document, 3)
    _check_node_type(document, "array")
    _check_members(document, _ARRAY_MEMBERS)
    shape = parse_shape(member(document, "shape"), "$.shape")
    dtype, data_type = parse_v3(member(document, "data_type"))
    chunk_shape = parse_chunk_shape(
        _chunk_grid(member(document, "chunk_grid")), shape, dtype, "$.chunk_grid.configuration.chunk_shape"
    )
    encoding = _chunk_key_encoding(member(document, "chunk_key_encoding"))
    fill = fill_value.from_v3(member(document, "fill_value"), dtype, data_type)
    values = member(document, "codecs")
    if not isinstance(values, list | tuple) or not values:
        fail(f"expected a non-empty array of codecs, got {quote(values)}", "$.codecs")
    codecs = codecs_from_v3(values, "$.codecs", allow_pickle=allow_pickle)
    check_kinds(codecs, "$.codecs")
    codecs = tuple(c.with_fill_value(fill) if isinstance(c, ShardingIndexed) else c for c in codecs)
    representations(codecs, ArrayRepresentation(chunk_shape, dtype))
    _check_storage_transformers(document.get("storage_transformers"))
    return ArrayMetadata(
        shape=shape,
        dtype=dtype,
        data_type=data_type,
        chunk_shape=chunk_shape,
        chunk_key_encoding=encoding,
        fill_value=fill,
        codecs=codecs,
        attributes=parse_attributes(document.get("attributes"), "$.attributes"),
        dimension_names=_dimension_names(document.get("dimension_names"), len(shape)),
        zarr_format=3,
        document=document,
    )


def parse_group(document: dict[str, Any], *, allow_pickle: bool = False) -> GroupMetadata:
    """Parse the document of a group.

    Inline consolidated metadata is parsed too; a node of it that cannot be used gives its error, in its place.

    Raises
    ------
    MetadataError
        If it is malformed.
    """
    check_format(document, 3)
    _check_node_type(document, "group")
    _check_members(document, _GROUP_MEMBERS)
    documents = _consolidated(document.get("consolidated_metadata"))
    nodes = None
    if documents is not None:
        nodes = parse_all(documents, functools.partial(_parse_below, allow_pickle=allow_pickle))
    return GroupMetadata(
        attributes=parse_attributes(document.get("attributes"), "$.attributes"),
        zarr_format=3,
        consolidated=nodes,
        document=document,
    )


def _parse_below(document: dict[str, Any], *, allow_pickle: bool) -> NodeMetadata:
    if "consolidated_metadata" not in document:
        return parse_node(document, allow_pickle=allow_pickle)
    # What a nested group consolidates has been taken up by the outermost one.
    alone = {name: value for name, value in document.items() if name != "consolidated_metadata"}
    return replace(parse_node(alone, allow_pickle=allow_pickle), document=document)


def _check_node_type(document: dict[str, Any], expected: str) -> None:
    found = member(document, "node_type")
    if found != expected:
        fail(f"expected {expected!r}, got {quote(found)}", "$.node_type")


def _check_members(document: dict[str, Any], known: frozenset[str]) -> None:
    for name, value in document.items():
        if name not in known and not (isinstance(value, dict) and value.get("must_understand") is False):
            raise UnsupportedError(
                f"the document has an unknown member {quote(name)}, and does not say that it need not be understood",
                json_path=f"$.{str(name)[:100]}",
            )


def _chunk_grid(value: Any) -> Any:
    name, configuration = _must_understand(value, "$.chunk_grid", "a chunk grid")
    if name != "regular":
        raise UnsupportedError(
            f"the chunk grid {quote(name)} is not known; only 'regular' is", json_path="$.chunk_grid"
        )
    for key in configuration:
        if key != "chunk_shape":
            fail(f"the regular grid does not know {quote(key)}", "$.chunk_grid.configuration")
    if "chunk_shape" not in configuration:
        fail("the regular grid lacks 'chunk_shape'", "$.chunk_grid.configuration")
    return configuration["chunk_shape"]


def _chunk_key_encoding(value: Any) -> ChunkKeyEncoding:
    name, configuration = _must_understand(value, "$.chunk_key_encoding", "a chunk key encoding")
    if name not in ("default", "v2"):
        raise UnsupportedError(
            f"the chunk key encoding {quote(name)} is not known; 'default' and 'v2' are",
            json_path="$.chunk_key_encoding",
        )
    for key in configuration:
        if key != "separator":
            fail(f"the encoding does not know {quote(key)}", "$.chunk_key_encoding.configuration")
    separator = configuration.get("separator", "/" if name == "default" else ".")
    if separator not in ("/", "."):
        fail(f"expected '/' or '.', got {quote(separator)}", "$.chunk_key_encoding.configuration.separator")
    return ChunkKeyEncoding("default" if name == "default" else "v2", "/" if separator == "/" else ".")


def _must_understand(value: Any, json_path: str, what: str) -> tuple[str, dict[str, Any]]:
    if isinstance(value, dict) and value.get("must_understand") is False:
        fail(f"{what} must be understood", f"{json_path}.must_understand")
    return extension(value, json_path, what)


def _check_storage_transformers(value: Any) -> None:
    if value is None:
        return
    if not isinstance(value, list | tuple):
        fail(f"expected an array, got {quote(value)}", "$.storage_transformers")
    for i, item in enumerate(value):
        if not (isinstance(item, dict) and item.get("must_understand") is False):
            name, _ = extension(item, f"$.storage_transformers[{i}]", "a storage transformer")
            raise UnsupportedError(
                f"the storage transformer {quote(name)} is not known; none is", json_path=f"$.storage_transformers[{i}]"
            )


def _dimension_names(value: Any, ndim: int) -> tuple[str | None, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list | tuple) or not all(n is None or isinstance(n, str) for n in value):
        fail(f"expected an array of strings and nulls, got {quote(value)}", "$.dimension_names")
    if len(value) != ndim:
        fail(f"expected {ndim} names, one a dimension, got {len(value)}", "$.dimension_names")
    return tuple(value)


def _consolidated(value: Any) -> dict[str, dict[str, Any]] | None:
    if value is None:
        return None
    at = "$.consolidated_metadata"
    if not isinstance(value, dict):
        fail(f"expected an object, got {quote(value)}", at)
    if value.get("kind") != "inline":
        if value.get("must_understand") is False:
            return None
        raise UnsupportedError(f"consolidated metadata of kind {quote(value.get('kind'))}", json_path=f"{at}.kind")
    result: dict[str, dict[str, Any]] = {}
    pending: list[tuple[str, Any]] = [("", value)]
    while pending:
        prefix, inline = pending.pop()
        documents = inline.get("metadata")
        if not isinstance(documents, dict):
            fail(f"expected an object of documents, got {quote(documents)}", f"{at}.metadata")
        for path, document in documents.items():
            where = f"{at}.metadata[{quote(prefix + str(path))}]"
            if not isinstance(path, str):
                raise MetadataError("expected a path", json_path=where)
            check_path(path, where)
            if not isinstance(document, dict):
                fail(f"expected a document, got {quote(document)}", where)
            # What stands further out was written later or with the rest.
            result.setdefault(prefix + path, cast("dict[str, Any]", document))
            nested = document.get("consolidated_metadata")
            if isinstance(nested, dict) and nested.get("kind") == "inline":
                pending.append((f"{prefix}{path}/", nested))
    return result
