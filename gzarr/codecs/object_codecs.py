"""Decoders of arrays of Python objects that do not trust a chunk's statements about its own size.

The formats are numcodecs': ``json2`` and ``msgpack2`` are a list of the items, the dtype and the shape; ``pickle`` is
a pickled array; the ``vlen-`` codecs start with the number of items in 4 little-endian bytes.

Items of ``json2`` and ``msgpack2`` may hold further values, and an empty list of 1 byte becomes an object of 64. So the
values of a chunk are counted: besides one for each element, they are at most as many as take about as much memory as
the largest text, :data:`~gzarr.codecs.buffers.UNKNOWN_LIMIT_BYTES`. Texts take no more than a small multiple of their
bytes, which are limited already.
"""

from __future__ import annotations

import json
import math
import pickle
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..dtypes.properties import native
from ..dtypes.v2 import parse_v2
from .buffers import UNKNOWN_LIMIT_BYTES

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


def check_lengths(items: Any, nbytes: int) -> None:
    """Check the lengths of items that become elements of raw bytes.

    Raises
    ------
    ValueError
        If one is not of ``nbytes`` bytes.
    """
    wrong = next((item for item in np.asarray(items).flat if len(item) != nbytes), None)
    if wrong is not None:
        raise ValueError(f"an item of {len(wrong)} bytes, expected {nbytes}")


#: Values of a chunk, besides one for each element: most objects of Python take 32 to 96 bytes.
MORE_VALUES: Final = UNKNOWN_LIMIT_BYTES // 64
_BLOCK_NBYTES: Final = 1 << 20


def _too_many(values: str, count: int) -> ValueError:
    return ValueError(
        f"{values} values, with lists and dicts, for {count} elements; a chunk may have {MORE_VALUES}, and one more "
        "for each element; use smaller chunks"
    )


def _count_json(data: bytes) -> int:
    """Return the number of commas and opening brackets outside texts: hardly less than that of values."""
    plain = np.frombuffer(data.replace(b"\\\\", b"").replace(b'\\"', b""), np.uint8)
    total = parity = 0
    for start in range(0, plain.size, _BLOCK_NBYTES):
        block = plain[start : start + _BLOCK_NBYTES]
        quotes = np.cumsum(block == ord('"'), dtype=np.uint8) + np.uint8(parity)
        parity = int(quotes[-1]) & 1
        starts = (block == ord(",")) | (block == ord("[")) | (block == ord("{"))
        total += int(np.count_nonzero(starts & (quotes & 1 == 0)))
    return total


def check_json2(data: bytes, count: int, configuration: Mapping[str, Any]) -> None:
    """Check the number of values of a ``json2`` chunk of ``count`` items.

    Raises
    ------
    ValueError
        If they are more than are read.
    """
    most = MORE_VALUES + count
    encoding = configuration.get("encoding", "utf-8")
    if len(data) > most and len(",".encode(encoding)) > 1:
        # Of UTF-16, a byte of a quote may be part of another character.
        data = data.decode(encoding).encode()
    # A quick count is enough for most: that of commas in texts, too.
    if len(data) > most and sum(map(data.count, b",[{")) > most and (values := _count_json(data)) > most:
        raise _too_many(f"at least {values}", count)


def _unpack(data: bytes, count: int, raw: bool) -> Any:
    import msgpack  # type: ignore[import-untyped,unused-ignore]

    # This makes no objects, and shows that the numbers of items in the headers of lists and dicts are true.
    walk = msgpack.Unpacker(max_buffer_size=max(len(data), 1))
    walk.feed(data)
    try:
        walk.skip()
    except msgpack.OutOfData:
        raise ValueError("incomplete data") from None
    most = MORE_VALUES + count
    if len(data) <= most:
        return msgpack.unpackb(data, raw=raw)
    values = 0

    def add(container: Any) -> Any:
        nonlocal values
        values += 1 + len(container)
        if values > most:
            raise _too_many(f"at least {values}", count)
        return container

    try:
        return msgpack.unpackb(data, raw=raw, list_hook=add, object_hook=add, max_array_len=most + 2, max_map_len=most)
    except ValueError as error:
        if "exceeds max_" in str(error):
            raise _too_many(f"more than {most}", count) from None
        raise


def check_msgpack2(data: bytes, count: int, configuration: Mapping[str, Any]) -> None:
    """Check the number of values of a ``msgpack2`` chunk of ``count`` items.

    Raises
    ------
    ValueError
        If they are more than are read.
    """
    if len(data) > MORE_VALUES + count:
        _unpack(data, count, True)


def _assemble(items: Any, chunk: ArrayRepresentation) -> Any:
    count = math.prod(chunk.shape)
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
    made = parse_v2(dtype)
    if made != np.dtype(object) and native(made) != chunk.dtype:
        raise ValueError(f"decoded to elements of {made}, expected {chunk.dtype}")
    result = np.empty(shape, made)
    if len(shape) > 1 and len(items) - 2 == count and not isinstance(items[0], list):
        # zarrita.js does not nest the items of multidimensional arrays.
        result.reshape(-1)[:] = items[:-2]
    elif shape:
        result[:] = items[:-2]
    else:
        result[...] = items[0]
    return result


def decode_json2(data: bytes, chunk: ArrayRepresentation, configuration: Mapping[str, Any]) -> Any:
    """Decode a ``json2`` chunk."""
    check_json2(data, math.prod(chunk.shape), configuration)
    text = data.decode(configuration.get("encoding", "utf-8"))
    return _assemble(json.JSONDecoder(strict=configuration.get("strict", True)).decode(text), chunk)


def decode_msgpack2(data: bytes, chunk: ArrayRepresentation, configuration: Mapping[str, Any]) -> Any:
    """Decode a ``msgpack2`` chunk.

    Like numcodecs, it refuses keys that are neither strings nor bytes: the hashes of others can be chosen to collide.
    """
    return _assemble(_unpack(data, math.prod(chunk.shape), configuration.get("raw", False)), chunk)


def decode_pickle(data: bytes, chunk: ArrayRepresentation, configuration: Mapping[str, Any]) -> Any:
    """Decode a ``pickle`` chunk; only reached if the caller allowed it."""
    return pickle.loads(data)


#: Decoders that replace numcodecs' own.
DECODERS: Final[dict[str, Callable[[bytes, ArrayRepresentation, Mapping[str, Any]], Any]]] = {
    "json2": decode_json2,
    "msgpack2": decode_msgpack2,
    "pickle": decode_pickle,
}
#: Checks of new chunks: none is written that is not read.
CHECKS: Final[dict[str, Callable[[bytes, int, Mapping[str, Any]], None]]] = {
    "json2": check_json2,
    "msgpack2": check_msgpack2,
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
