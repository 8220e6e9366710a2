"""Documents of Zarr v3.1 from the model: ``zarr.json``.

Source: https://zarr-specs.readthedocs.io/en/latest/v3/core/index.html#metadata-documents. Members are in zarr-python's
order. Structured types also get its name, ``structured``: the registry's ``struct`` came later, and fewer readers know
it.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ...codecs.buffers import need_array
from ...codecs.bytes import BytesCodec
from ...codecs.chain import representations
from ...codecs.codec import ArrayRepresentation
from ...codecs.numcodecs_adapter import NumcodecsBytesToBytes
from ...codecs.sharding import ShardingIndexed
from ...documents.deferred import loaded
from ...dtypes import fill_value
from ...dtypes.properties import swap_unit
from ...errors import ArgumentError
from ..model import data_type_json
from .parse import plugin_of_grid

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...codecs.codec import Codec
    from ..chunk_grid import ChunkAxis
    from ..model import ArrayMetadata, GroupMetadata


def array_documents(metadata: ArrayMetadata) -> dict[str, dict[str, Any]]:
    """Return ``zarr.json``, by name.

    Raises
    ------
    ArgumentError
        If version 3 cannot express the array.
    """
    if metadata.document:
        return {"zarr.json": _updated(metadata)}
    encoding = metadata.chunk_key_encoding
    if encoding.name not in ("default", "v2"):
        raise ArgumentError(f"version 3 has no chunk key encoding {encoding.name!r}; 'default' and 'v2' are")
    chunk = ArrayRepresentation(metadata.chunk_shape, metadata.dtype)
    document = {
        "shape": list(metadata.shape),
        "data_type": data_type_json(metadata.data_type),
        "chunk_grid": chunk_grid(metadata),
        "chunk_key_encoding": {"name": encoding.name, "configuration": {"separator": encoding.separator}},
        "fill_value": _fill_value(metadata),
        "codecs": [codec.to_json() for codec in chain(metadata.codecs, chunk)],
        "attributes": metadata.attributes,
        **({} if metadata.dimension_names is None else {"dimension_names": list(metadata.dimension_names)}),
        "zarr_format": 3,
        "node_type": "array",
        "storage_transformers": [],
    }
    return {"zarr.json": document}


def group_documents(metadata: GroupMetadata) -> dict[str, dict[str, Any]]:
    """Return ``zarr.json``, by name."""
    if not metadata.document:
        return {"zarr.json": {"attributes": metadata.attributes, "zarr_format": 3, "node_type": "group"}}
    document = _with_attributes(metadata.document, metadata.attributes)
    inline = document.get("consolidated_metadata")
    if isinstance(inline, dict) and isinstance(below := inline.get("metadata"), dict):
        nodes = {path: loaded(of_node, f"consolidated metadata of {path[:200]!r}") for path, of_node in below.items()}
        document["consolidated_metadata"] = {**inline, "metadata": nodes}
    return {"zarr.json": document}


def _updated(metadata: ArrayMetadata) -> dict[str, Any]:
    """Return the array's existing document with its current shape, chunks, attributes and names of dimensions."""
    document = _with_attributes(metadata.document, metadata.attributes)
    names = metadata.dimension_names
    if names is not None and document.get("dimension_names") != list(names):
        document["dimension_names"] = list(names)
    document["shape"] = list(metadata.shape)
    document["fill_value"] = fill_value.respelled(
        document["fill_value"], metadata.fill_value, metadata.dtype, fill_value.to_v3
    )
    if plugin_of_grid(document) is not None:
        # The shape is all that a plugin's grid depends on, besides its own configuration.
        return document
    grid = copy.deepcopy(document["chunk_grid"])
    configuration = grid["configuration"]
    if "chunk_shapes" in configuration:
        configuration["chunk_shapes"] = _whole(configuration["chunk_shapes"])
        _extend(configuration["chunk_shapes"], metadata.chunk_grid.axes)
    else:
        configuration["chunk_shape"] = list(metadata.chunk_shape)
    document["chunk_grid"] = grid
    return document


def _with_attributes(document: dict[str, Any], attributes: dict[str, Any]) -> dict[str, Any]:
    """Return a copy with other attributes; no empty attributes are added to a document without them."""
    if attributes or "attributes" in document:
        return {**document, "attributes": attributes}
    return dict(document)


def _extend(chunk_shapes: list[Any], axes: Sequence[ChunkAxis]) -> None:
    """Update the chunks of dimensions that have become longer."""
    for d, axis in enumerate(axes):
        lengths = chunk_shapes[d]
        # 0 is read as 1 along an empty dimension only.
        if _total(lengths) != axis.end if isinstance(lengths, list) else not lengths:
            chunk_shapes[d] = axis.listing


def _whole(lengths: Any) -> Any:
    return [_whole(item) for item in lengths] if isinstance(lengths, list) else int(lengths)


def _total(lengths: list[Any]) -> int:
    return sum(item[0] * item[1] if isinstance(item, list) else item for item in lengths)


def chunk_grid(metadata: ArrayMetadata) -> dict[str, Any]:
    """Return the chunk grid in the form of a document."""
    if metadata.chunk_grid.is_regular:
        return {"name": "regular", "configuration": {"chunk_shape": list(metadata.chunk_shape)}}
    shapes = [axis.listing for axis in metadata.chunk_grid.axes]
    return {"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": shapes}}


def _fill_value(metadata: ArrayMetadata) -> Any:
    stored = metadata.dtype.newbyteorder("<")
    for codec in _innermost(metadata.codecs):
        if isinstance(codec, BytesCodec) and codec.endian == "big":
            stored = metadata.dtype.newbyteorder(">")
    value = metadata.absent_value
    if value is None:
        # Version 3 requires a fill value; where missing chunks read as zeros, it is zero.
        value = "" if metadata.dtype.hasobject else np.zeros((), metadata.dtype)[()]
    if metadata.dtype.type is np.void and metadata.data_type.startswith("{") and metadata.dtype.fields is None:
        # zarr-python's "raw_bytes" is spelled in base64; only the core's "r32" has an array of integers.
        return fill_value.to_v2(value, stored)
    return fill_value.to_v3(value, stored)


def _innermost(codecs: tuple[Codec, ...]) -> tuple[Codec, ...]:
    for codec in codecs:
        if isinstance(codec, ShardingIndexed):
            return _innermost(codec.codecs)
    return codecs


def chain(codecs: tuple[Codec, ...], chunk: ArrayRepresentation) -> tuple[Codec, ...]:
    """Return the version 3 equivalent of a chain of any version, which takes ``chunk``.

    Filters of numbers move before ``bytes``, as array codecs; what they make becomes little-endian, because zarr-python
    would undo them on swapped bytes. So do structured types of version 2, because it ignores their ``endian``. The
    decoded elements are the same. Elements of one byte have no byte order, but what filters make of them may.

    Raises
    ------
    MetadataError
        If a filter does not take what comes before it.
    """
    at = next(i for i, codec in enumerate(codecs) if codec.kind == "array_to_bytes")
    front, maker, back = list(codecs[:at]), codecs[at], list(codecs[at + 1 :])
    moved = False
    if isinstance(maker, BytesCodec):
        while back and isinstance(back[0], NumcodecsBytesToBytes) and (codec := back[0].on_arrays()) is not None:
            del back[0]
            front.append(codec)
            moved = True
    if isinstance(maker, BytesCodec) and (maker.stored_dtype is not None or (moved and maker.endian == "big")):
        maker = BytesCodec("little")
    elif isinstance(maker, BytesCodec) and maker.endian is None and front and swap_unit(chunk.dtype) == 1:
        if swap_unit(need_array(representations(front, chunk)[-1], maker.label).dtype) != 1:
            maker = BytesCodec("little")
    elif isinstance(maker, ShardingIndexed):
        made = need_array(representations(front, chunk)[-1], maker.label)
        maker = replace(maker, codecs=chain(maker.codecs, maker.inner(made)))
    return (*front, maker, *back)
