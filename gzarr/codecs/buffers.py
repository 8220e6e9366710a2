"""Bytes in and out of codecs, and the bound on a decoder's output."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ..errors import MetadataError
from .codec import ArrayRepresentation, BytesRepresentation, Representation

#: Bound on a decoder's output if the chain implies none (strings of any length): nothing larger is written, either.
UNKNOWN_LIMIT_BYTES: Final = 1 << 30

Bytes = npt.NDArray[np.uint8]


def flat(data: Any) -> Bytes:
    """Return bytes-like data or a NumPy array as one dimension of bytes, without a copy if contiguous."""
    if isinstance(data, np.ndarray):
        if data.dtype.hasobject:
            raise ValueError("an array of Python objects has no bytes")
        return np.ascontiguousarray(data).reshape(-1).view(np.uint8)
    return np.frombuffer(data, dtype=np.uint8) if len(memoryview(data).cast("B")) else np.empty(0, np.uint8)


def need_bytes(representation: Representation, label: str) -> BytesRepresentation:
    """Return a representation; raise if it is not bytes."""
    if not isinstance(representation, BytesRepresentation):
        raise MetadataError(f"{label} is a bytes→bytes codec; it needs an array→bytes codec such as 'bytes' before it")
    return representation


def need_array(representation: Representation, label: str) -> ArrayRepresentation:
    """Return a representation; raise if it is not an array."""
    if not isinstance(representation, ArrayRepresentation):
        raise MetadataError(f"{label} works on arrays, but a codec before it produces bytes")
    return representation


def number_types(array: ArrayRepresentation) -> tuple[np.dtype[Any], ...]:
    """Return the types that a codec of numcodecs may have been given for elements, each of the same bits.

    The last one is that of new chunks: dates and times are integers, everything else is itself.
    """
    dtype = array.dtype
    if dtype.kind in "mM":
        return (np.dtype(np.int64),)
    return (np.dtype(f"i{dtype.itemsize}"), dtype) if array.as_integers and dtype.kind == "f" else (dtype,)


def ceiling(decoded: BytesRepresentation) -> int:
    """Return the maximum size in bytes of a decoder's output."""
    if decoded.nbytes is not None:
        return decoded.nbytes
    return UNKNOWN_LIMIT_BYTES if decoded.limit_nbytes is None else decoded.limit_nbytes


def readable(encoded: Any, representation: Representation, label: str) -> Any:
    """Return a codec's output, if decoders take as many bytes: nothing is written that could not be read.

    Parameters
    ----------
    encoded
        The output.
    representation
        What the codec says of it.
    label
        Name of the codec, for the message.

    Raises
    ------
    ValueError
        If it has more bytes than :func:`ceiling` allows.
    """
    if not isinstance(representation, BytesRepresentation) or representation.nbytes is not None:
        return encoded
    if (nbytes := flat(encoded).size) > (limit := ceiling(representation)):
        which = "elements of any length" if representation.limit_nbytes is None else "this array"
        raise ValueError(
            f"{label}: {nbytes} bytes, but chunks of {which} are read up to {limit}; create the array with smaller "
            "chunks"
        )
    return encoded


def compressed(decoded: BytesRepresentation) -> BytesRepresentation:
    """Return a compressor's output: of unknown size, but never much larger than its input."""
    known = decoded.nbytes if decoded.nbytes is not None else decoded.limit_nbytes
    return BytesRepresentation(None, None if known is None else 2 * known + 65536)


def checked(output: Bytes, decoded: BytesRepresentation, label: str) -> Bytes:
    """Return ``output`` if it has the expected size.

    Raises
    ------
    ValueError
        If it does not.
    """
    if decoded.nbytes is not None and output.size != decoded.nbytes:
        raise ValueError(f"{label}: decoded to {output.size} bytes, expected {decoded.nbytes}")
    return output


def empty(nbytes: int, label: str) -> Bytes:
    """Return a new buffer.

    Raises
    ------
    ValueError
        If it cannot be allocated.
    """
    try:
        return np.empty(nbytes, np.uint8)
    except (MemoryError, ValueError):
        raise ValueError(f"{label}: needs a buffer of {nbytes} bytes, which cannot be allocated") from None
