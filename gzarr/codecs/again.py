"""What becomes of elements that a chain has decoded when it encodes them again, and which chains store the same bytes.

A copy keeps elements for sure if it keeps their bytes. Where chunks have another shape, or the chain has another form,
they are encoded again. Most codecs give back what they were given. Some lose a little, but what they have given once,
they keep: rounding to 10 bits changes nothing that has 10 bits. Others, such as zfp, lose a little each time.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from ..errors import MetadataError
from .bitround import BitroundCodec
from .buffers import need_array
from .bytes import BytesCodec
from .chain import decode_chain, encode_chain, representations
from .codec import ArrayRepresentation, Codec, Keeping, Representation
from .numcodecs_adapter import NumcodecsArrayToArray, NumcodecsBytesToBytes
from .sharding import ShardingIndexed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

#: Every element of up to so many bytes can be tried.
_TRIED_NBYTES: Final = 2


def stores_the_same(one: Sequence[Codec], other: Sequence[Codec], chunk: ArrayRepresentation) -> bool:
    """Return whether two chains make the same bytes of the same chunk."""
    return tuple(one) == tuple(other) or array_form(one, chunk) == array_form(other, chunk)


class Kept(NamedTuple):
    """What becomes of elements that a chain has decoded when it encodes them again, in chunks of any shape.

    Attributes
    ----------
    elements
        As for :meth:`.codec.Codec.keeps`, of the elements that this chain has decoded; never ``"own"``.
    codecs
        The codecs that lose something.
    """

    elements: Keeping
    codecs: tuple[Codec, ...] = ()


def kept_by(codecs: Sequence[Codec], chunk: ArrayRepresentation, fill_value: Any) -> Kept:
    """Return what becomes of the elements of an array when its chain encodes them again.

    Parameters
    ----------
    codecs
        The chain, in encoding order.
    chunk
        Its input.
    fill_value
        Value of absent chunks, which may be in one chunk with elements that were stored; None for zero.
    """
    if chunk.dtype.hasobject:
        return Kept("all")
    steps = list(_steps(array_form(codecs, chunk), chunk))
    losing = [i for i, (codec, decoded) in enumerate(steps) if codec.keeps(decoded) != "all"]
    if not losing:
        return Kept("all")
    lossy = tuple(steps[i][0] for i in losing)
    run = steps[losing[0] : losing[-1] + 1]
    if not all(codec.is_elementwise for codec, _ in steps[: losing[-1]]):
        # What is lost of an element depends on others, which may be in another chunk then.
        return Kept("none", lossy)
    last, decoded = run[-1]
    elements: Keeping = last.keeps(decoded)
    if last.is_elementwise:
        elements = _kept_by_run(tuple(codec for codec, _ in run), run[0][1], elements)
    elif len(run) > 1 and elements == "own":
        # It may be given a number that it has not made.
        elements = "most"
    if elements == "own":
        tried = [codec for codec, _ in steps[: losing[-1] + 1]]
        elements = "all" if _keeps_fill_value(tried, chunk, fill_value) else "most"
    return Kept(elements, lossy)


def _steps(codecs: Sequence[Codec], decoded: Representation) -> Iterator[tuple[Codec, Representation]]:
    """Yield the codecs, those in shards too, each with what it takes."""
    for codec in codecs:
        if isinstance(codec, ShardingIndexed) and isinstance(decoded, ArrayRepresentation):
            yield from _steps(codec.codecs, codec.inner(decoded))
            return
        yield codec, decoded
        decoded = codec.encoded(decoded)


@functools.lru_cache(maxsize=64)
def _kept_by_run(run: tuple[Codec, ...], decoded: Representation, alone: Keeping) -> Keeping:
    """Return what becomes of the elements that successive codecs have decoded, each by itself; at least one loses.

    ``alone`` is what the last one keeps.
    """
    if len(run) == 1 and alone == "own":
        return alone
    if isinstance(decoded, ArrayRepresentation) and _keeps_every_one(run, decoded.dtype):
        return "own"
    # Of several codecs, one may be given a number that it has not made.
    return alone if len(run) == 1 else "most"


def _keeps_every_one(run: tuple[Codec, ...], dtype: np.dtype[Any]) -> bool:
    """Return whether every element that may be stored is kept; False also if there are too many, or one is an error."""
    try:
        stored: Any = ArrayRepresentation((1,), dtype)
        for codec in run:
            stored = codec.encoded(stored)
        if not isinstance(stored, ArrayRepresentation) or stored.dtype.itemsize > _TRIED_NBYTES:
            return False
        unsigned = np.dtype(f"u{stored.dtype.itemsize}")
        every = np.arange(1 << 8 * stored.dtype.itemsize).astype(unsigned).view(stored.dtype)
        chunk = ArrayRepresentation(every.shape, dtype)
        given = np.ascontiguousarray(decode_chain(run, every, chunk))
        again = np.ascontiguousarray(decode_chain(run, encode_chain(run, given, chunk), chunk))
    except ValueError:
        return False
    return given.tobytes() == again.tobytes()


def _keeps_fill_value(codecs: Sequence[Codec], chunk: ArrayRepresentation, fill_value: Any) -> bool:
    """Return whether successive codecs, from the first of a chain on, keep the fill value; False also for an error."""
    one = ArrayRepresentation((1,) * len(chunk.shape), chunk.dtype)
    element = np.full(one.shape, 0 if fill_value is None else fill_value, one.dtype)
    try:
        back = decode_chain(codecs, encode_chain(codecs, element, one), one)
    except ValueError:
        return False
    return bool(np.ascontiguousarray(back).tobytes() == element.tobytes())


def array_form(codecs: Sequence[Codec], chunk: ArrayRepresentation) -> tuple[Codec, ...]:
    """Return a chain in the form that all chains share which store the same bytes.

    Filters of numbers come after ``bytes`` in version 2 and before it in version 3, and store the same if the numbers
    are little-endian.
    Documents may leave out data types that the array implies.

    Parameters
    ----------
    codecs
        The chain, in encoding order.
    chunk
        Its input.
    """
    at = next(i for i, codec in enumerate(codecs) if codec.kind == "array_to_bytes")
    front, maker, back = list(codecs[:at]), codecs[at], list(codecs[at + 1 :])
    if isinstance(maker, BytesCodec) and maker.endian != "big" and maker.stored_dtype is None:
        while back and isinstance(back[0], NumcodecsBytesToBytes) and back[0].is_little_endian:
            moved = back[0].on_arrays()
            if moved is None:
                break
            del back[0]
            front.append(moved)
        # Elements of one byte have none, but what filters make of them may.
        maker = replace(maker, endian="little")
    try:
        return (*_stating_types(front, chunk), maker, *back)
    except MetadataError:
        # A filter of version 2 that takes the bytes of elements for numbers of another type.
        return tuple(codecs)


def _stating_types(codecs: Sequence[Codec], chunk: ArrayRepresentation) -> Iterator[Codec]:
    """Yield array→array codecs, filters of numbers with the types that they take and make."""
    for codec, decoded in zip(codecs, representations(codecs, chunk), strict=False):
        if not isinstance(codec, NumcodecsArrayToArray):
            yield codec
        elif codec.id == "bitround":
            yield BitroundCodec(codec.configuration["keepbits"])
        else:
            yield codec.stating_types(need_array(decoded, codec.label))
