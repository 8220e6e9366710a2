"""Fill values inside a chain: missing inner chunks of a shard hold the fill value as the codecs before it encode it.

Sources: https://github.com/zarr-developers/zarr-extensions/tree/main/codecs/scale_offset#fill-value-handling and
https://github.com/zarr-developers/zarr-extensions/tree/main/codecs/cast_value#data_type
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..documents.json import quote
from ..errors import MetadataError
from .blosc import BloscCodec
from .buffers import need_array
from .cast_value import CastValueCodec
from .chain import representations
from .codec import ArrayRepresentation
from .numcodecs_adapter import NumcodecsCodec
from .scale_offset import ScaleOffsetCodec
from .sharding import ShardingIndexed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .codec import Codec

#: Codecs that hold the fill value, or must be able to encode it.
_USERS: Final = (CastValueCodec, ScaleOffsetCodec, ShardingIndexed)


def with_fill_value(
    codecs: Sequence[Codec], fill_value: Any, chunk: ArrayRepresentation, json_path: str = "$.codecs"
) -> tuple[Codec, ...]:
    """Give every sharding codec of a chain its fill value, and check that casts preserve the array's.

    Codecs of Blosc that leave the shuffle or the size of an element open get it, too.

    Parameters
    ----------
    codecs
        Chain in encoding order.
    fill_value
        Fill value of the array, an element of ``chunk.dtype``.
    chunk
        Input of the chain.
    json_path
        Location of the chain in its document, for messages.

    Raises
    ------
    MetadataError
        If a codec cannot encode its input, or a fill value that is needed, or does not decode back to the fill value.
    """
    result = list(codecs)
    value, itemsize = fill_value, 0
    # What comes after the last of these has no use for it, and it need not be one that can be encoded.
    last = max((i for i, codec in enumerate(codecs) if isinstance(codec, _USERS)), default=-1)
    for i, (codec, before) in enumerate(zip(codecs, representations(codecs, chunk, json_path), strict=False)):
        if isinstance(codec, BloscCodec) and codec.is_open and itemsize:
            result[i] = codec.with_itemsize(itemsize)
        if not isinstance(before, ArrayRepresentation):
            continue
        itemsize = before.dtype.itemsize if not before.dtype.hasobject else 0
        if isinstance(codec, ShardingIndexed):
            at = f"{json_path}[{i}].configuration.codecs"
            inner = with_fill_value(codec.codecs, value, codec.inner(before), at)
            result[i] = replace(codec, codecs=inner, fill_value=value)
        elif i <= last and codec.kind == "array_to_array" and not before.dtype.hasobject:
            value = _encoded(codec, value, before, f"{json_path}[{i}]")
    return tuple(result)


def _encoded(codec: Codec, value: Any, array: ArrayRepresentation, json_path: str) -> Any:
    """Return the fill value encoded by an array→array codec; codecs that only change the shape leave it alone."""
    one = ArrayRepresentation((1,) * len(array.shape), array.dtype)
    changes = isinstance(codec, ScaleOffsetCodec | CastValueCodec)
    if isinstance(codec, NumcodecsCodec) and codec.id != "packbits":
        # Among the codecs that keep the type, only ``fixedscaleoffset`` changes the numbers.
        changes = need_array(codec.encoded(one), codec.label).dtype != array.dtype or codec.id == "fixedscaleoffset"
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
            f"{codec.label} would decode the fill value {quote(value)} as {quote(back.flat[0])}",
            json_path=json_path,
        )
    return encoded.reshape(-1)[0]
