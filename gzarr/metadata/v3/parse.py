"""Zarr v3.1 documents (``zarr.json``).

Source: https://zarr-specs.readthedocs.io/en/latest/v3/core/index.html#metadata-documents. Inline consolidated
metadata follows zarr-python: ``{"kind": "inline", "must_understand": false, "metadata": {path: document}}``.

Documents of the draft of 2023 are read too. In them, ``codecs`` may be absent or have no array→bytes codec, which means
little-endian elements in C order; an unknown data type may have a ``fallback``; an empty ``extensions`` is ignored.
"""

from __future__ import annotations

import functools
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from ...codecs.bytes import BytesCodec
from ...codecs.chain import check_kinds, representations
from ...codecs.codec import ArrayRepresentation
from ...codecs.fill_values import with_fill_value
from ...codecs.registry import codecs_from_v3
from ...codecs.sharding import ShardingIndexed
from ...codecs.transpose import TransposeCodec, spelled_out
from ...documents.configuration import Configuration
from ...documents.deferred import Deferred, loaded
from ...documents.departures import note
from ...documents.extension import extension
from ...documents.json import quote
from ...dtypes import fill_value
from ...dtypes.v3 import parse_v3
from ...errors import ArgumentError, MetadataError, UnsupportedError
from ...plugins import call, load
from ..chunk_grid import ChunkGrid
from ..model import ArrayMetadata, ChunkKeyEncoding, GroupMetadata, NodeMetadata
from ..parts import (
    ConsolidatedNodes,
    check_format,
    check_path,
    fail,
    likeness,
    member,
    parse_attributes,
    parse_chunk_shape,
    parse_chunk_shapes,
    parse_shape,
)

if TYPE_CHECKING:
    import numpy as np

    from ...codecs.codec import Codec
    from ...plugins import Plugin

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
        "extensions",
    )
)
# Members in which arrays differ whose elements are stored in the same way.
_OWN_MEMBERS: Final = frozenset(("attributes", "dimension_names"))
_GRID_MEMBERS: Final = {"regular": ("chunk_shape",), "rectilinear": ("kind", "chunk_shapes")}
_GROUP_MEMBERS: Final = frozenset(("zarr_format", "node_type", "attributes", "consolidated_metadata", "extensions"))


def parse_node(document: dict[str, Any], *, allow_pickle: bool = False, allow_fallback: bool = False) -> NodeMetadata:
    """Parse the document of an array or a group, depending on its ``node_type``.

    Raises
    ------
    MetadataError
        If it is malformed.
    """
    check_format(document, 3)
    node_type = member(document, "node_type")
    if node_type == "array":
        return parse_array(document, allow_pickle=allow_pickle, allow_fallback=allow_fallback)
    if node_type == "group":
        return parse_group(document, allow_pickle=allow_pickle, allow_fallback=allow_fallback)
    fail(f"expected 'array' or 'group', got {quote(node_type)}", "$.node_type")


def parse_array(document: dict[str, Any], *, allow_pickle: bool = False, allow_fallback: bool = False) -> ArrayMetadata:
    """Parse the document of an array.

    Parameters
    ----------
    document
        Document as returned by :func:`gzarr.documents.json.load_document`.
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
    check_format(document, 3)
    _check_node_type(document, "array")
    _check_members(document, _ARRAY_MEMBERS)
    shape = parse_shape(member(document, "shape"), "$.shape")
    dtype, data_type = _data_type(member(document, "data_type"), allow_fallback=allow_fallback)
    chunk_grid = _chunk_grid(member(document, "chunk_grid"), shape, dtype)
    encoding = _chunk_key_encoding(member(document, "chunk_key_encoding"))
    fill_text = member(document, "fill_value")
    codecs = _codecs(document, len(shape), allow_pickle=allow_pickle)
    check_kinds(codecs, "$.codecs")
    fill = None
    if fill_text is None and not dtype.hasobject:
        # The default of zarrita.js. Before 0.7 it also wrote a NaN so, but read zeros even then
        # (https://github.com/manzt/zarrita.js/issues/352).
        note("null, as in an example of the draft of 2023; missing chunks read as zeros", "$.fill_value")
    else:
        fill_text = fill_value.from_draft(fill_text, dtype, json_path="$.fill_value")
        fill = fill_value.from_v3(fill_text, _stored(dtype, codecs), data_type, rounded=True)
    chunk = ArrayRepresentation(chunk_grid.chunk_shape, dtype)
    codecs = with_fill_value(codecs, fill, chunk)
    representations(codecs, chunk)
    if not chunk_grid.is_regular:
        _check_shards(codecs, chunk_grid, chunk)
    _check_storage_transformers(document.get("storage_transformers"))
    return ArrayMetadata(
        chunk_grid=chunk_grid,
        dtype=dtype,
        data_type=data_type,
        chunk_key_encoding=encoding,
        fill_value=fill,
        codecs=codecs,
        attributes=parse_attributes(document.get("attributes", {}), "$.attributes"),
        dimension_names=_dimension_names(document.get("dimension_names"), len(shape)),
        zarr_format=3,
        document=document,
    )


def parse_group(document: dict[str, Any], *, allow_pickle: bool = False, allow_fallback: bool = False) -> GroupMetadata:
    """Parse the document of a group.

    Documents in inline consolidated metadata are parsed when they are asked for, and may be :class:`Deferred`.

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
        parse = functools.partial(_parse_below, like={}, allow_pickle=allow_pickle, allow_fallback=allow_fallback)
        nodes = ConsolidatedNodes(documents, parse)
    return GroupMetadata(
        attributes=parse_attributes(document.get("attributes", {}), "$.attributes"),
        zarr_format=3,
        consolidated=nodes,
        document=document,
    )


def _parse_below(
    unparsed: Any, key: str, *, like: dict[str | None, ArrayMetadata], allow_pickle: bool, allow_fallback: bool
) -> NodeMetadata:
    """Parse a document of consolidated metadata; ``like`` keeps the arrays that others may share all but names with."""
    document = loaded(unparsed, key)
    if "consolidated_metadata" not in document:
        rest = likeness([(name, value) for name, value in document.items() if name not in _OWN_MEMBERS])
        found = like.get(rest)
        if found is not None:
            names = _dimension_names(document.get("dimension_names"), found.ndim)
            attributes = parse_attributes(document.get("attributes", {}), "$.attributes")
            # Spellings are corrected in the document that was parsed.
            alike = {name: found.document[name] for name in document if name not in _OWN_MEMBERS}
            return found.with_own(attributes, names, document | alike)
        parsed = parse_node(document, allow_pickle=allow_pickle, allow_fallback=allow_fallback)
        if rest is not None and isinstance(parsed, ArrayMetadata):
            like[rest] = parsed
        return parsed
    # The consolidated metadata of nested groups is already merged into the outermost group's.
    alone = {name: value for name, value in document.items() if name != "consolidated_metadata"}
    parsed = parse_node(alone, allow_pickle=allow_pickle, allow_fallback=allow_fallback)
    return replace(parsed, document=document)


def _stored(dtype: np.dtype[Any], codecs: tuple[Codec, ...]) -> np.dtype[Any]:
    """Return the element type in the byte order in which the chain stores elements."""
    for codec in codecs:
        if isinstance(codec, ShardingIndexed):
            return _stored(dtype, codec.codecs)
        if isinstance(codec, BytesCodec):
            return dtype.newbyteorder(">" if codec.endian == "big" else "<")
    return dtype


def _check_node_type(document: dict[str, Any], expected: str) -> None:
    found = member(document, "node_type")
    if found != expected:
        fail(f"expected {expected!r}, got {quote(found)}", "$.node_type")


def _check_members(document: dict[str, Any], known: frozenset[str]) -> None:
    if "extensions" in document:
        if document["extensions"] != []:
            raise UnsupportedError(
                f"expected no extensions, got {quote(document['extensions'])}", json_path="$.extensions"
            )
        note("a member from the drafts", "$.extensions")
    for name, value in document.items():
        if name not in known and not (isinstance(value, dict) and value.get("must_understand") is False):
            raise UnsupportedError(
                f'the document has an unknown member {quote(name)} without "must_understand": false',
                json_path=f"$.{str(name)[:100]}",
            )


def _codecs(document: dict[str, Any], ndim: int, *, allow_pickle: bool) -> tuple[Codec, ...]:
    values = document.get("codecs", [])
    if not isinstance(values, list | tuple):
        fail(f"expected an array of codecs, got {quote(values)}", "$.codecs")
    codecs = codecs_from_v3(spelled_out(values, ndim, "$.codecs"), "$.codecs", allow_pickle=allow_pickle)
    if not any(codec.kind == "array_to_bytes" for codec in codecs):
        note("no array→bytes codec, as the draft of 2023 allows: little-endian elements in C order", "$.codecs")
        front = sum(codec.kind == "array_to_array" for codec in codecs)
        codecs = (*codecs[:front], BytesCodec("little"), *codecs[front:])
    return codecs


def _data_type(value: Any, *, allow_fallback: bool) -> tuple[np.dtype[Any], str]:
    """Return the data type, or the first known fallback of an unknown one."""
    at = "$.data_type"
    if not isinstance(value, dict) or "fallback" not in value:
        return parse_v3(value, at)
    note("a fallback, as in the draft of 2023", at)
    try:
        return parse_v3({name: item for name, item in value.items() if name != "fallback"}, at)
    except UnsupportedError as error:
        fallbacks = value["fallback"]
        for fallback in fallbacks if isinstance(fallbacks, list) else [fallbacks]:
            try:
                dtype, text = parse_v3(fallback, f"{at}.fallback")
            except UnsupportedError:
                continue
            if not allow_fallback:
                raise UnsupportedError(
                    f"{error.message}; the document allows reading elements as {quote(text)}: open it with "
                    "allow_fallback=True to do so",
                    json_path=at,
                ) from None
            warnings.warn(f"{error.message}; elements are read as {text!r}", UserWarning, stacklevel=2)
            return dtype, text
        raise


def _chunk_grid(value: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> ChunkGrid:
    """Return the chunk grid."""
    name, configuration = _must_understand(value, "$.chunk_grid", "a chunk grid")
    members = _GRID_MEMBERS.get(name)
    if members is None:
        plugin = load("gzarr.chunk_grids", name, "$.chunk_grid")
        if plugin is not None:
            return _grid_of_plugin(plugin, name, configuration, shape, dtype)
        raise UnsupportedError(
            f"the chunk grid {quote(name)} is not known; 'regular' and 'rectilinear' are", json_path="$.chunk_grid"
        )
    at = "$.chunk_grid.configuration"
    for key in configuration:
        if key not in members:
            fail(f"the {name} grid does not know {quote(key)}", at)
    for key in members:
        if key not in configuration:
            fail(f"the {name} grid lacks {key!r}", at)
    if name == "regular":
        chunk_shape = parse_chunk_shape(configuration["chunk_shape"], shape, dtype, f"{at}.chunk_shape")
        return ChunkGrid.regular(shape, chunk_shape)
    if configuration["kind"] != "inline":
        raise UnsupportedError(f"expected 'inline', got {quote(configuration['kind'])}", json_path=f"{at}.kind")
    return parse_chunk_shapes(configuration["chunk_shapes"], shape, dtype, f"{at}.chunk_shapes")


def _check_shards(codecs: tuple[Codec, ...], grid: ChunkGrid, chunk: ArrayRepresentation) -> None:
    """Check that inner chunks divide all shards of a rectilinear grid; for the longest, ``chunk``, they do."""
    order = tuple(range(len(grid.axes)))
    for i, (codec, before) in enumerate(zip(codecs, representations(codecs, chunk), strict=False)):
        if isinstance(codec, TransposeCodec):
            order = tuple(order[d] for d in codec.order)
        elif isinstance(codec, ShardingIndexed):
            for d, inner in zip(order, codec.chunk_shape, strict=True):
                wrong = grid.axes[d].length_not_multiple_of(inner)
                if wrong is not None:
                    fail(
                        f"inner chunks of {inner} do not divide shards of {wrong} along dimension {d}",
                        f"$.codecs[{i}].configuration.chunk_shape",
                    )
            return
        elif codec.kind == "array_to_array":
            after = codec.encoded(before)
            if not isinstance(before, ArrayRepresentation) or not isinstance(after, ArrayRepresentation):
                return
            if after.shape != before.shape and any(isinstance(later, ShardingIndexed) for later in codecs[i:]):
                raise UnsupportedError(
                    f"{codec.label} before shards of different shapes is not supported", json_path=f"$.codecs[{i}]"
                )


def _grid_of_plugin(
    plugin: Plugin, name: str, configuration: dict[str, Any], shape: tuple[int, ...], dtype: np.dtype[Any]
) -> ChunkGrid:
    """Return the chunk grid defined by a plugin."""
    at, what = "$.chunk_grid", f"the chunk grid {quote(name)}"
    checked = Configuration(configuration, f"{at}.configuration", what)
    lengths = call(plugin, "from_v3", what, at, checked, shape)
    if isinstance(lengths, list | tuple) and all(type(length) is int for length in lengths):
        return ChunkGrid.regular(shape, parse_chunk_shape(lengths, shape, dtype, at))
    return parse_chunk_shapes(lengths, shape, dtype, at)


def plugin_of_grid(document: dict[str, Any]) -> tuple[Plugin, str] | None:
    """Return plugin and name of an array's chunk grid; None if gzarr knows the grid itself."""
    name, _ = extension(document["chunk_grid"], "$.chunk_grid", "a chunk grid")
    plugin = None if name in _GRID_MEMBERS else load("gzarr.chunk_grids", name, "$.chunk_grid")
    return None if plugin is None else (plugin, name)


def resized_by_plugin(metadata: ArrayMetadata, shape: tuple[int, ...]) -> ChunkGrid | None:
    """Return the chunk grid of an array with another shape according to its plugin; None if it has none.

    Raises
    ------
    ArgumentError
        If the plugin refuses the shape, or existing chunks would have another shape.
    """
    found = plugin_of_grid(metadata.document) if metadata.document else None
    if found is None:
        return None
    plugin, name = found
    what = f"the chunk grid {quote(name)} of the package {plugin.distribution} does not allow the shape {shape}"
    advice = "copy the array with other chunks (gzarr.copy) to resize it"
    try:
        # The codecs have to fit the new grid as well.
        document = {**metadata.document, "shape": list(shape)}
        grid = parse_array(document, allow_pickle=True, allow_fallback=True).chunk_grid
    except MetadataError as error:
        raise ArgumentError(f"{what}: {error.message}; {advice}") from error
    has_chunks = 0 not in metadata.shape and 0 not in shape
    for d, (before, after) in enumerate(zip(metadata.chunk_grid.axes, grid.axes, strict=True)):
        if has_chunks and not before.agrees(after):
            raise ArgumentError(f"{what}: existing chunks would have other lengths along dimension {d}; {advice}")
    return grid


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
                f"the storage transformer {quote(name)} is not known (none are)",
                json_path=f"$.storage_transformers[{i}]",
            )


def _dimension_names(value: Any, ndim: int) -> tuple[str | None, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list | tuple) or not all(n is None or isinstance(n, str) for n in value):
        fail(f"expected an array of strings and nulls, got {quote(value)}", "$.dimension_names")
    if len(value) != ndim:
        fail(f"expected {ndim} names, one per dimension, got {len(value)}", "$.dimension_names")
    return tuple(value)


def _consolidated(value: Any) -> dict[str, dict[str, Any] | Deferred] | None:
    """Return the documents of consolidated metadata by path; groups in it may have their own."""
    if value is None:
        return None
    at = "$.consolidated_metadata"
    if not isinstance(value, dict):
        fail(f"expected an object, got {quote(value)}", at)
    if value.get("kind") != "inline":
        if value.get("must_understand") is False:
            return None
        raise UnsupportedError(f"consolidated metadata of kind {quote(value.get('kind'))}", json_path=f"{at}.kind")
    result: dict[str, dict[str, Any] | Deferred] = {}
    pending: list[tuple[str, Any]] = [("", value)]
    while pending:
        prefix, inline = pending.pop()
        documents = inline.get("metadata")
        if not isinstance(documents, dict):
            fail(f"expected an object of documents, got {quote(documents)}", f"{at}.metadata")
        for path, document in documents.items():
            try:
                if not isinstance(path, str):
                    fail("expected a path", at)
                check_path(path, at)
                if not isinstance(document, dict | Deferred):
                    fail(f"expected a document, got {quote(document)}", at)
            except MetadataError as error:
                # Naming the place takes longer than the checks.
                error.json_path = f"{at}.metadata[{quote(prefix + str(path))}]"
                raise
            # Outer entries take precedence: they were written later, or at the same time.
            result.setdefault(prefix + path, document)
            nested = document.get("consolidated_metadata") if isinstance(document, dict) else None
            if isinstance(nested, dict) and nested.get("kind") == "inline":
                pending.append((f"{prefix}{path}/", nested))
    return result
