"""A codec chain in the form in which the native loop encodes: the counterpart of :mod:`gzarr.plan.decode_program`.

Transpositions and byte swaps happen when a chunk is gathered. The remaining steps are a short list of filters, a
shuffle, compressors and checksums, each with an upper limit of its encoded size.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from gzarr_kernels.operations import OPERATIONS

from ..codecs.bytes import BytesCodec
from ..codecs.chain import representations
from ..codecs.transpose import TransposeCodec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..codecs.codec import ArrayRepresentation, Codec, EncodingStep

#: Buffers have room for this many consecutive checksums; in practice there is at most one.
_MOST_CHECKSUMS: Final = 8


@dataclass(frozen=True, slots=True)
class EncodingProgram:
    """How the native loop encodes a chunk.

    Attributes
    ----------
    steps
        Steps in encoding order.
    order
        Dimensions of the array, from the slowest to the fastest in the gathered chunk.
    strides
        Strides of the gathered chunk in bytes, one per dimension of the array.
    swap
        Width in bytes of the units to swap when gathering; 0 for none.
    most_nbytes
        Upper limit of the encoded size, in bytes.
    """

    steps: tuple[EncodingStep, ...]
    order: tuple[int, ...]
    strides: tuple[int, ...]
    swap: int
    most_nbytes: int

    def searching(self, way: int) -> EncodingProgram:
        """Return the program with another search method (``way``) for its compressors."""
        steps = (step if step.search is None else replace(step, way=way) for step in self.steps)
        return replace(self, steps=tuple(steps))


def analyse_encoding(
    codecs: Sequence[Codec], chunk: ArrayRepresentation, available: frozenset[str]
) -> EncodingProgram | None:
    """Analyse the codec chain of a chunk.

    Parameters
    ----------
    codecs
        Codecs in encoding order.
    chunk
        Shape and type of the chunk to encode.
    available
        Operations available to native writing (``gzarr_kernels.libraries.encoders``).

    Returns
    -------
    The program, or None if the chain needs host codecs.
    """
    if "loop" not in available or chunk.dtype.hasobject or not chunk.nbytes:
        return None
    order = tuple(range(len(chunk.shape)))
    swap = 0
    most = chunk.nbytes
    steps: list[EncodingStep] = []
    for codec, decoded in zip(codecs, representations(codecs, chunk)[:-1], strict=True):
        if isinstance(codec, TransposeCodec):
            if steps:
                # What follows a filter is no longer how a chunk is gathered.
                return None
            order = tuple(order[i] for i in codec.order)
        elif isinstance(codec, BytesCodec):
            operations = codec.operations(decoded)
            if operations is None:
                return None
            swap = operations[0].params[0] if operations else 0
            if swap > 1 and steps:
                return None
        else:
            step = codec.encoding(decoded, most)
            if step is None or not available.issuperset((step.name, *step.parts)):
                return None
            steps.append(step)
            most = step.most_nbytes
    if sum(OPERATIONS[step.name].in_place for step in steps) > _MOST_CHECKSUMS:
        return None
    strides = [0] * len(chunk.shape)
    stride = chunk.dtype.itemsize
    for d in reversed(order):
        strides[d] = stride
        stride *= chunk.shape[d]
    # A shuffle of single bytes changes nothing.
    kept = tuple(step for step in steps if step.name != "shuffle" or step.parameters[0] > 1)
    return EncodingProgram(kept, order, tuple(strides), swap if swap > 1 else 0, most)
