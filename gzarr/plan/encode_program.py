"""A codec chain as the native loop encodes it: the counterpart of :mod:`gzarr.program`.

Transpositions and byte swaps are how a chunk is gathered; what is left is a short list of compressors, a shuffle and
checksums, each with the most bytes that it makes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from ..codecs.bytes import BytesCodec
from ..codecs.chain import representations
from ..codecs.codec import BytesRepresentation
from ..codecs.transpose import TransposeCodec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..codecs.codec import ArrayRepresentation, Codec, EncodingStep

#: More checksums behind each other than this have no room behind a buffer; nobody asks for two.
_MOST_CHECKSUMS: Final = 8


@dataclass(frozen=True, slots=True)
class EncodingProgram:
    """How the native loop encodes a chunk.

    Attributes
    ----------
    steps
        In encoding order.
    order
        The array's dimensions from the slowest to the fastest in the chunk as it is gathered.
    strides
        Bytes between neighbours in it, one a dimension of the array.
    swap
        Width in bytes of the units to swap when gathering; 0 for none.
    most_nbytes
        More encoded bytes than this it does not make.
    """

    steps: tuple[EncodingStep, ...]
    order: tuple[int, ...]
    strides: tuple[int, ...]
    swap: int
    most_nbytes: int

    def searching(self, way: int) -> EncodingProgram:
        """Return the program with another way to search of its compressors."""
        steps = (step if step.search is None else replace(step, way=way) for step in self.steps)
        return replace(self, steps=tuple(steps))


def analyse_encoding(
    codecs: Sequence[Codec], chunk: ArrayRepresentation, available: frozenset[str]
) -> EncodingProgram | None:
    """Take the chain of a chunk apart.

    Parameters
    ----------
    codecs
        In encoding order.
    chunk
        What they encode.
    available
        What native writing has here (``gzarr_kernels.libraries.encoders``).

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
            order = tuple(order[i] for i in codec.order)
        elif isinstance(codec, BytesCodec):
            operations = codec.operations(decoded)
            if operations is None:
                return None
            swap = operations[0].params[0]
        else:
            exact = isinstance(decoded, BytesRepresentation) and decoded.nbytes is not None
            step = codec.encoding(most, exact=exact)
            if step is None or not available.issuperset((step.name, *step.parts)):
                return None
            steps.append(step)
            most = step.most_nbytes
    if sum(step.name == "crc32c" for step in steps) > _MOST_CHECKSUMS:
        return None
    strides = [0] * len(chunk.shape)
    stride = chunk.dtype.itemsize
    for d in reversed(order):
        strides[d] = stride
        stride *= chunk.shape[d]
    # A shuffle of single bytes changes nothing.
    kept = tuple(step for step in steps if step.name != "shuffle" or step.parameters[0] > 1)
    return EncodingProgram(kept, order, tuple(strides), swap if swap > 1 else 0, most)
