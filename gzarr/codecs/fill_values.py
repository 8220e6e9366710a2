"""The fill value on its way through a chain: missing inner chunks of a shard hold what the codecs before made of it.

Sources: https://github.com/zarr-developers/zarr-extensions/tree/main/codecs/scale_offset#fill-value-handling and
https://github.com/zarr-developers/zarr-extensions/tree/main/codecs/cast_value#data_type
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..documents.json import quote
from ..errors import MetadataError
from .cast_value import CastValueCodec
from .chain import representations
from .codec import ArrayRepresentation
from .numcodecs_adapter import NumcodecsCodec
from .scale_offset import ScaleOffsetCodec
from .sharding import ShardingIndexed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .codec import Codec


def with_fill_value(
    codecs: Sequence[Codec], fill_value: Any, chunk: ArrayRepresentation, json_path: str = "$.codecs"
) -> tuple[Codec, ...]:
    """Tell every sharding codec of a chain its fill value, and check that casts keep the array's.

    Parameters
    ----------
    codecs
        The chain in encoding order.
    fill_value
        Of the array, an element of ``chunk.dtype``.
    chunk
        What the chain encodes.
    json_path
        Where the chain is in its document, for messages.

    Raises
    ------
    MetadataError
        If a codec cannot apply to what it is given, or to the fill value, or does not give the fill value back.
    """
    result = list(codecs)
    value = fill_value
    for i, (codec, before) in enumerate(zip(codecs, representations(codecs, chunk, json_path), strict=False)):
        if not isinstance(before, ArrayRepresentation):
            break
        if isinstance(codec, ShardingIndexed):
            at = f"{json_path}[{i}].configuration.codecs"
            inner = with_fill_value(codec.codecs, value, codec.inner(before), at)
            result[i] = replace(codec, codecs=inner, fill_value=value)
        elif codec.kind == "array_to_array" and not before.dtype.hasobject:
            value = _encoded(codec, value, before, f"{json_path}[{i}]")
    return tuple(result)


def _encoded(codec: Codec, value: Any, array: ArrayRepresentation, json_path: str) -> Any:
    """Return the fill value as an array→array codec encodes it; codecs that only change the shape leave it alone."""
    one = ArrayRepresentation((1,) * len(array.shape), array.dtype)
    changes = isinstance(codec, ScaleOffsetCodec | CastValueCodec)
    if isinstance(codec, NumcodecsCodec) and codec.id != "packbits":
        # Of those that keep the type, ``fixedscaleoffset`` alone gives other numbers.
        changes = codec.encoded(one) != one or codec.id == "fixedscaleoffset"
    if not changes:
        return value
    element = np.full(one.shape, value, array.dtype)
    try:
        encoded = np.asarray(codec.encode(element, one))
        back = np.asarray(codec.decode(encoded, one)) if isinstance(codec, CastValueCodec) else element
    except ValueError as error:
        raise MetadataError(f"the fill value {quote(value)} cannot be encoded: {error}", json_path=json_path) from None
    if not np.array_equal(back, element) and not (value != value and (back != back).all()):
        raise MetadataError(
            f"the fill value {quote(value)} would come back from {codec.label} as {quote(back.flat[0])}",
            json_path=json_path,
        )
    return encoded.reshape(-1)[0]
