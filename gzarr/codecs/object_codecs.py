"""Decoders of arrays of Python objects that do not trust a chunk's statements about its own size.

The formats are numcodecs': ``json2`` and ``msgpack2`` are a list of the items, the dtype and the shape; ``pickle`` is
a pickled array; the ``vlen-`` codecs start with the number of items in 4 little-endian bytes.
"""

from __future__ import annotations

import json
import math
import pickle
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..dtypes.properties import native
from ..dtypes.v2 import parse_v2

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .codec import ArrayRepresentation


def check_count(data: bytes, count: int) -> None:
    """Check the number of items stated by a ``vlen-`` chunk.

    Raises
    ------
    ValueError
        If it is not ``count``.
    """
    if len(data) < 4:
        raise ValueError(f"{len(data)} bytes are too few to hold a number of items")
    stated = int.from_bytes(data[:4], "little")
    if stated != count:
        raise ValueError(f"the header states {stated} items, expected {count}")
    if 4 * stated > len(data) - 4:
        raise ValueError(f"{len(data)} bytes are too few for the {stated} items stated in the header")


def _assemble(items: Any, count: int) -> Any:
    if not isinstance(items, list) or len(items) < 3:
        raise ValueError("not a list of items, dtype and shape")
    shape = items[-1]
    if not isinstance(shape, list | tuple) or not all(type(n) is int and n >= 0 for n in shape):
        raise ValueError("the shape is not a list of integers")
    if math.prod(shape) != count or len(shape) > 32:
        raise ValueError(f"the shape {str(shape)[:100]} does not have the expected {count} items")
    if len(items) - 2 not in (count, shape[0] if shape else 1):
        # NumPy would give one item to all elements, and numcodecs' msgpack2 takes an element without dimensions apart.
        raise ValueError(f"{len(items) - 2} items, which do not have the shape {str(shape)[:100]}")
    dtype = items[-2]
    if isinstance(dtype, bytes):
        dtype = dtype.decode("ascii")
    result = np.empty(shape, parse_v2(dtype))
    if len(shape) > 1 and len(items) - 2 == count and not isinstance(items[0], list):
        # zarrita.js does not nest the items of multidimensional arrays.
        result.reshape(-1)[:] = items[:-2]
    elif shape:
        result[:] = items[:-2]
    else:
        result[...] = items[0]
    return result


def decode_json2(data: bytes, count: int, configuration: Mapping[str, Any]) -> Any:
    """Decode a ``json2`` chunk of ``count`` items."""
    text = data.decode(configuration.get("encoding", "utf-8"))
    return _assemble(json.JSONDecoder(strict=configuration.get("strict", True)).decode(text), count)


def decode_msgpack2(data: bytes, count: int, configuration: Mapping[str, Any]) -> Any:
    """Decode a ``msgpack2`` chunk of ``count`` items.

    Like numcodecs, it refuses keys that are neither strings nor bytes: the hashes of others can be chosen to collide.
    """
    import msgpack  # type: ignore[import-untyped,unused-ignore]

    return _assemble(msgpack.unpackb(data, raw=configuration.get("raw", False)), count)


def decode_pickle(data: bytes, count: int, configuration: Mapping[str, Any]) -> Any:
    """Decode a ``pickle`` chunk; only reached if the caller allowed it."""
    return pickle.loads(data)


#: Decoders that replace numcodecs' own.
DECODERS: Final[dict[str, Callable[[bytes, int, Mapping[str, Any]], Any]]] = {
    "json2": decode_json2,
    "msgpack2": decode_msgpack2,
    "pickle": decode_pickle,
}


def as_chunk(decoded: Any, chunk: ArrayRepresentation) -> Any:
    """Return the output of a codec in the shape of a chunk.

    Raises
    ------
    ValueError
        If it has the wrong number of elements or the wrong type.
    """
    array = decoded if isinstance(decoded, np.ndarray) else np.asarray(decoded)
    count = math.prod(chunk.shape)
    if array.size != count:
        raise ValueError(f"decoded to {array.size} elements, expected {count}")
    # Arrays of another shape are reshaped in the order of their items; arrays of the chunk's shape are kept.
    array = array if array.shape == chunk.shape else array.reshape(-1, order="A")
    if array.dtype != chunk.dtype:
        # Objects may turn out to be elements of the chunk's type, but not the other way round.
        objects = array.dtype.hasobject and not chunk.dtype.hasobject
        if not objects and native(array.dtype) != chunk.dtype:
            raise ValueError(f"decoded to elements of {array.dtype}, expected {chunk.dtype}")
        array = array.astype(chunk.dtype)
    return array.reshape(chunk.shape)
