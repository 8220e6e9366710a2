"""Whole chains of codecs: representations between the codecs, decoding and encoding one chunk in host memory.

Source: https://zarr-specs.readthedocs.io/en/latest/v3/core/index.html#decoding-procedure
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from ..errors import MetadataError
from .buffers import readable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .codec import ArrayRepresentation, Codec, Representation

_ORDER = {"array_to_array": 0, "array_to_bytes": 1, "bytes_to_bytes": 2}
_ARROW = {"array_to_array": "array→array", "array_to_bytes": "array→bytes", "bytes_to_bytes": "bytes→bytes"}


def check_kinds(codecs: Sequence[Codec], json_path: str) -> None:
    """Check that a chain is array→array codecs, exactly one array→bytes codec, bytes→bytes codecs, in this order.

    Raises
    ------
    MetadataError
        If it is not.
    """
    makers = [codec.label for codec in codecs if codec.kind == "array_to_bytes"]
    if len(makers) != 1:
        found = " and ".join(makers[:3]) if makers else "none"
        raise MetadataError(
            f"a chain needs exactly one array→bytes codec (such as 'bytes'), found {found}", json_path=json_path
        )
    for i in range(1, len(codecs)):
        before, codec = codecs[i - 1], codecs[i]
        if _ORDER[codec.kind] < _ORDER[before.kind]:
            raise MetadataError(
                f"{codec.label} ({_ARROW[codec.kind]}) must come before {before.label} ({_ARROW[before.kind]})",
                json_path=f"{json_path}[{i}]",
            )


def representations(
    codecs: Sequence[Codec], chunk: ArrayRepresentation, json_path: str = "$.codecs"
) -> list[Representation]:
    """Return the representations before, between and after the codecs.

    Parameters
    ----------
    codecs
        Chain in encoding order, ``n`` codecs.
    chunk
        Input of the chain.
    json_path
        Location of the chain in its document, for messages.

    Returns
    -------
    ``n + 1`` representations: ``chunk`` first, the stored bytes last.

    Raises
    ------
    MetadataError
        If a codec does not accept its input.
    """
    result: list[Representation] = [chunk]
    for i, codec in enumerate(codecs):
        try:
            result.append(codec.encoded(result[-1]))
        except MetadataError as error:
            error.json_path = f"{json_path}[{i}]{error.json_path[1:]}"
            raise
    return result


def decode_chain(codecs: Sequence[Codec], data: Any, chunk: ArrayRepresentation) -> Any:
    """Decode one chunk in host memory.

    Parameters
    ----------
    codecs
        Chain in encoding order.
    data
        Stored bytes.
    chunk
        Representation of the output.

    Returns
    -------
    ``numpy.ndarray`` of ``chunk.shape`` and ``chunk.dtype``; it may be a read-only view of ``data``.

    Raises
    ------
    ValueError
        If ``data`` is corrupt.
    """
    steps = representations(codecs, chunk)
    for codec, decoded in zip(reversed(codecs), reversed(steps[:-1]), strict=True):
        data = codec.decode(data, decoded)
    return data


def encode_chain(codecs: Sequence[Codec], array: Any, chunk: ArrayRepresentation) -> Any:
    """Encode one chunk in host memory: the inverse of :func:`decode_chain`.

    Raises
    ------
    ValueError
        If the chunk has more bytes than :func:`decode_chain` takes. Codecs may raise anything else.
    """
    data = array
    for codec, (decoded, encoded) in zip(codecs, pairwise(representations(codecs, chunk)), strict=True):
        data = readable(codec.encode(data, decoded), encoded, codec.label)
    return data
