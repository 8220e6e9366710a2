"""Documents of the Zarr v3 drafts of 2022 from the model.

A new hierarchy follows the last draft. In an existing one, the entry point locates documents; if keys have the segment
``root``, documents are spelled like zarr-python 2's (``compressor``, NumPy type strings, filters in the attributes),
because only such programs read and write them.

Source: https://github.com/zarr-developers/zarr-specs/blob/692fe73/docs/core/v3.0.rst
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from ...codecs.bytes import BytesCodec
from ...codecs.sharding import ShardingIndexed
from ...documents.json import quote
from ...dtypes import fill_value
from ...dtypes.properties import native
from ...dtypes.v2 import parse_v2
from ...dtypes.v3 import parse_v3
from ...errors import ArgumentError
from ..layout import ENTRY_POINT, NEW_ENTRY_POINT, Layout, parse_entry_point
from ..model import data_type_json
from ..v2.write import filters_of
from .parse import filters_in

if TYPE_CHECKING:
    import numpy as np

    from ...codecs.codec import Codec
    from ..model import ArrayMetadata, GroupMetadata

_SPEC: Final = "https://purl.org/zarr/spec"
_CODECS: Final = ("blosc", "bz2", "gzip", "lz4", "lzma", "zlib", "zstd")
# Types of one byte, which zarr-python writes without NumPy's "|".
_ONE_BYTE: Final = ("b1", "i1", "u1")


def array_documents(metadata: ArrayMetadata, path: str) -> dict[str, dict[str, Any]]:
    """Return the entry point and the document of an array, by store key.

    Raises
    ------
    ArgumentError
        If the drafts cannot express the array.
    """
    layout = parse_entry_point(metadata.document.get(ENTRY_POINT, NEW_ENTRY_POINT), metadata.hierarchy)
    document = updated(metadata)["array"] if "array" in metadata.document else _array_document(metadata, layout)
    return {**_entry_point(layout), layout.array_key(layout.relative(path)): document}


def group_documents(metadata: GroupMetadata, path: str, layout: Layout) -> dict[str, dict[str, Any]]:
    """Return the entry point and the document of a group, by store key."""
    before = metadata.document.get("group", {"extensions": []})
    return {
        **_entry_point(layout),
        layout.group_key(layout.relative(path)): {**before, "attributes": metadata.attributes},
    }


def _entry_point(layout: Layout) -> dict[str, dict[str, Any]]:
    return {f"{layout.base}/{ENTRY_POINT}" if layout.base else ENTRY_POINT: layout.document}


def updated(metadata: ArrayMetadata) -> dict[str, Any]:
    """Return an array's existing documents with its current shape and attributes, as kept in the model.

    Raises
    ------
    ArgumentError
        If the attributes have other codecs in them than those of the chunks.
    """
    before = metadata.document["array"]
    if metadata.chunk_key_encoding.name == "draft_root":
        _check_filters(metadata.attributes, before.get("attributes"))
    # xtensor-zarr's spelling of empty attributes is kept.
    attributes = {"attributes": metadata.attributes} if metadata.attributes or before.get("attributes") else {}
    fill = fill_value.respelled(before["fill_value"], metadata.fill_value, metadata.dtype, _fill_value)
    grid = before["chunk_grid"]
    # 0 is read as 1 along an empty dimension only, and the dimension may have become longer.
    chunk_shape = [n or 1 for n in grid["chunk_shape"]]
    changed = {
        "shape": list(metadata.shape),
        "chunk_grid": {**grid, "chunk_shape": chunk_shape},
        "fill_value": fill,
    }
    return {**metadata.document, "array": {**before, **changed, **attributes}}


def _check_filters(attributes: dict[str, Any], kept: Any) -> None:
    """Refuse attributes whose ``filters`` would be read as other codecs than those of the chunks, in ``kept``."""
    own = kept if isinstance(kept, dict) else {}
    if [value for _, value in filters_in(attributes)] == [value for _, value in filters_in(own)]:
        return
    advice = "keep that attribute as it is" if filters_in(own) else "give that attribute another name"
    raise _filters_refused(attributes, advice)


def _filters_refused(attributes: dict[str, Any], advice: str) -> ArgumentError:
    return ArgumentError(
        "early drafts of version 3 keep the filters of an array in its attribute 'filters', so that with "
        f"{quote(attributes.get('filters'))} there, its chunks would be read otherwise; {advice}"
    )


def _fill_value(value: Any, dtype: np.dtype[Any]) -> Any:
    return fill_value.to_draft(fill_value.to_v2(value, dtype), dtype)


def _array_document(metadata: ArrayMetadata, layout: Layout) -> dict[str, Any]:
    if not metadata.chunk_grid.is_regular:
        raise ArgumentError("the drafts have regular chunk grids only; a rectilinear one needs zarr_format=3")
    stored = _stored(metadata.data_type)
    codecs, chunk_shape, shards = _unsharded(metadata.codecs, metadata.chunk_shape)
    order, filters = filters_of(codecs, stored, "a draft of version 3")
    grid = {"type": "regular", "chunk_shape": list(chunk_shape), "separator": metadata.chunk_key_encoding.separator}
    attributes = metadata.attributes
    if layout.root:
        compressor = filters.pop() if filters and filters[-1]["id"] in _CODECS else None
        # Those of the caller have no other codecs in them, and must not give way to codecs.
        named = [value for _, value in filters_in(attributes)]
        if "filters" in attributes and (filters or named) and named != filters:
            raise _filters_refused(attributes, "give that attribute another name")
        if filters:
            attributes = {**attributes, "filters": filters}
        said: dict[str, Any] = {"compressor": None if compressor is None else _codec(compressor, "codec")}
    elif filters and filters[0]["id"] not in _CODECS:
        raise ArgumentError(
            f"the drafts of version 3 have no codec {filters[0]['id']!r}; they have {', '.join(_CODECS)}"
        )
    else:
        said = {"codecs": [_codec(item, "type") for item in filters]}
    transformers = [
        {
            "extension": f"{_SPEC}/extensions/storage-transformers/sharding/1.0",
            "type": "indexed",
            "configuration": {"chunks_per_shard": list(per_shard)},
        }
        for per_shard in shards
    ]
    fill = fill_value.to_v2(metadata.fill_value, stored)
    return {
        "shape": list(metadata.shape),
        "data_type": _data_type(stored, metadata.data_type, objects=layout.root),
        "chunk_grid": grid,
        "chunk_memory_layout": order,
        **said,
        **({"storage_transformers": transformers} if transformers else {}),
        # The drafts say "+Infinity"; zarr-python 2 writes "Infinity".
        "fill_value": fill if layout.root else fill_value.to_draft(fill, stored),
        "extensions": [],
        "attributes": attributes,
    }


def _stored(text: str) -> np.dtype[Any]:
    """Return a stored type from its text in the model: a core name, or NumPy's type string or fields."""
    if text[:1] in "<>|[":
        return parse_v2(data_type_json(text))
    return parse_v2(f"|{text}") if text in _ONE_BYTE else parse_v3(text)[0].newbyteorder("<")


def _data_type(stored: np.dtype[Any], text: str, *, objects: bool) -> Any:
    """Return the data type: a core type string, or that of an extension with its URI."""
    if text[:1] not in "<>|[":
        return text
    if stored.fields is None and stored.kind in "biuf":
        return text.replace("|", "") if stored.itemsize == 1 and stored.kind != "b" else text
    name = {"m": "datetime", "M": "datetime", "c": "complex", "S": "string", "U": "string"}.get(stored.kind, "struct")
    if stored.hasobject and objects:
        # zarr-python's name for it; the codec is among the filters.
        return {"extension": "TODO: object array protocol URL", "type": text, "fallback": None}
    if stored.hasobject:
        raise ArgumentError(
            "the drafts of version 3 have no data type for strings, bytes and other objects of any length; use one of "
            "fixed size such as 'U8' or 'S8', or zarr_format=3"
        )
    if stored.kind == "V" and stored.fields is None:
        raise ArgumentError(f"the drafts of version 3 have no data type for {native(stored)}")
    return {
        "extension": f"{_SPEC}/extensions/data-types/{name}/1.0",
        "type": data_type_json(text),
        "fallback": None,
    }


def _codec(value: dict[str, Any], name_member: str) -> dict[str, Any]:
    if value["id"] not in _CODECS:
        raise ArgumentError(f"the drafts of version 3 have no codec {value['id']!r}; they have {', '.join(_CODECS)}")
    folder = "codec" if name_member == "codec" else "codecs"
    configuration = {name: item for name, item in value.items() if name != "id"}
    return {name_member: f"{_SPEC}/{folder}/{value['id']}/1.0", "configuration": configuration}


def _unsharded(
    codecs: tuple[Codec, ...], chunk_shape: tuple[int, ...]
) -> tuple[tuple[Codec, ...], tuple[int, ...], list[tuple[int, ...]]]:
    """Return the inner chain, the shape of an inner chunk, and the chunks per shard, innermost first."""
    first = codecs[0]
    if not isinstance(first, ShardingIndexed):
        return codecs, chunk_shape, []
    if len(codecs) > 1 or first.index_codecs != (BytesCodec("little"),) or first.index_location != "end":
        raise ArgumentError("the drafts of version 3 have shards with a plain index at their end, and no codec after")
    per_shard = first.chunks_per_shard(chunk_shape)
    inner, inner_shape, below = _unsharded(first.codecs, first.chunk_shape)
    return inner, inner_shape, [*below, per_shard] if math.prod(chunk_shape) else below
