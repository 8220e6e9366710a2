"""A codec chain as the device decodes it: a frame format, then kernels.

The device decodes chains of checksums around everything, at most one compressor, one byte shuffle, filters
(``filters.py``), one array→bytes codec, reshapes, and transpositions, which take no work: they become the strides of
the decoded chunk. Any other chain is decoded by the CPU engine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gzarr_kernels.operations import OPERATIONS

from ...codecs.blosc import BloscCodec
from ...codecs.chain import representations
from ...codecs.codec import ArrayRepresentation, BytesRepresentation, Operation
from ...codecs.reshape import ReshapeCodec, SqueezeCodec
from ...codecs.transpose import TransposeCodec
from .filters import FilterCodec, device_filters, is_elementwise
from .staging import FrameFormat

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...codecs.codec import Codec, Representation
    from ...plan.decode_program import Decoding
    from .filters import Filter


@dataclass(frozen=True, slots=True)
class DeviceProgram:
    """How the device decodes a chunk.

    Attributes
    ----------
    frames
        Container of a chunk, and its decoded bytes before filters.
    shuffle
        Element size in bytes of a byte shuffle after decompression; 0 for none.
    swap
        Width in bytes of the units to byte-swap when placing; 0 for none.
    strides
        Bytes between neighbours in the decoded chunk, for each dimension of the array.
    bits
        Whether Blosc containers may hold bit planes; if the metadata does not say so, the CPU decodes such a container.
    filters
        Filters in decoding order, without the one that is undone when placing.
    conversion
        Filter of elements that is undone when placing, or None.
    """

    frames: FrameFormat
    shuffle: int
    swap: int
    strides: tuple[int, ...]
    bits: bool
    filters: tuple[Filter, ...] = ()
    conversion: Filter | None = None

    @property
    def algorithm(self) -> str | None:
        """NvCOMP's algorithm, or None for uncompressed chunks."""
        return self.frames.algorithm

    @property
    def nbytes(self) -> int:
        """Bytes of a chunk at placement, after :attr:`filters`."""
        return self.filters[-1].decoded_nbytes if self.filters else self.frames.nbytes

    @property
    def most_nbytes(self) -> int:
        """Most bytes that a chunk takes at any step from decompression to placement."""
        return max([self.frames.nbytes, *(step.decoded_nbytes for step in self.filters)])

    @property
    def steps(self) -> int:
        """Most times that a kernel rewrites a decoded chunk before it is placed."""
        in_planes = self.frames.compressor == "blosc"
        # Placement reads one kind of byte planes; filters read plain bytes only.
        planes = int(in_planes and self.shuffle > 0)
        if self.filters:
            planes = int(in_planes) + int(self.shuffle > 0)
        return int(self.bits) + planes + len(self.filters)

    @property
    def marks(self) -> bool:
        """Whether a filter may find a chunk faulty."""
        return any(step.marks for step in self.filters)


def device_program(decoding: Decoding) -> DeviceProgram | None:
    """Return how the device decodes a planned chunk, or None if the CPU has to."""
    chunk = decoding.chunk
    if chunk.dtype.hasobject or chunk.nbytes == 0:
        return None
    codecs = decoding.codecs
    between = representations(codecs, chunk)
    order = _order(codecs, between)
    if order is None:
        return None
    checksums = 0
    compressor: str | None = None
    algorithm: str | None = None
    shuffle = 0
    swap = 0
    framed: int | None = None
    filters: tuple[Filter, ...] = ()
    for i in reversed(range(len(codecs))):
        codec, decoded = codecs[i], between[i]
        if isinstance(codec, TransposeCodec | ReshapeCodec | SqueezeCodec):
            continue
        if isinstance(codec, FilterCodec):
            undone = device_filters(codec, between[i + 1], decoded, swap)
            if undone is None:
                return None
            if undone:
                filters += undone
                swap = 0
            continue
        operation = _only_operation(codec, decoded)
        if operation is None:
            return None
        name, parameter = operation.name, operation.params[0] if operation.params else 0
        if name == "nothing":
            continue
        if name == "bytes":
            swap = parameter if parameter > 1 else 0
        elif filters:
            return None
        elif name == "crc32c" and compressor is None and not shuffle:
            checksums += 1
        elif name == "shuffle" and not shuffle:
            shuffle = parameter
        elif compressor is None and not shuffle and (algorithm := _algorithm(name, codec)) is not None:
            compressor = name
            framed = decoded.nbytes
        else:
            return None
    if compressor is None:
        framed = filters[0].encoded_nbytes if filters else _stored_bytes(between)
    if framed is None:
        return None
    conversion = None
    if filters and (conversion := filters[-1].when_placing(chunk.dtype, swap)) is not None:
        filters, swap = filters[:-1], 0
    strides = [0] * len(chunk.shape)
    stride = chunk.dtype.itemsize if conversion is None else conversion.encoded.itemsize
    for d in reversed(order):
        strides[d] = stride
        stride *= chunk.shape[d]
    return DeviceProgram(
        frames=FrameFormat(compressor, algorithm, checksums, framed),
        shuffle=shuffle,
        swap=swap,
        strides=tuple(strides),
        bits=any(isinstance(codec, BloscCodec) and codec.shuffle in (None, "bitshuffle") for codec in codecs),
        filters=filters,
        conversion=conversion,
    )


def host_program(chunk: ArrayRepresentation) -> DeviceProgram:
    """Return the program for chunks that the CPU has decoded, in C order and native byte order."""
    strides = [chunk.dtype.itemsize] * len(chunk.shape)
    for d in reversed(range(len(chunk.shape) - 1)):
        strides[d] = strides[d + 1] * chunk.shape[d + 1]
    return DeviceProgram(
        frames=FrameFormat(None, None, 0, chunk.nbytes),
        shuffle=0,
        swap=0,
        strides=tuple(strides),
        bits=False,
    )


def _order(codecs: Sequence[Codec], between: list[Representation]) -> list[int] | None:
    """Return the array's dimensions from the slowest to the fastest in the decoded chunk.

    None if a transposition follows a codec that depends on the shape or on the order of the elements.
    """
    chunk = between[0]
    assert isinstance(chunk, ArrayRepresentation)
    order = list(range(len(chunk.shape)))
    free = True
    for i, codec in enumerate(codecs):
        if not isinstance(codec, TransposeCodec):
            same = between[i] == between[i + 1] and codec.operations(between[i]) == ()
            free = free and (same or is_elementwise(codec))
        elif free:
            order = [order[i] for i in codec.order]
        else:
            return None
    return order


def _algorithm(name: str, codec: Codec) -> str | None:
    """Return nvCOMP's algorithm for an operation, or for the compressor that a Blosc codec announces.

    The CPU decodes Blosc containers with another compressor than the announced one.
    """
    if isinstance(codec, BloscCodec):
        # Operations have Blosc's names for compressors, but lz4hc writes frames of lz4.
        name = "lz4" if codec.cname == "lz4hc" else codec.cname
    return OPERATIONS[name].algorithm if name in OPERATIONS else None


def _only_operation(codec: Codec, decoded: Representation) -> Operation | None:
    steps = codec.operations(decoded)
    if steps is None or len(steps) > 1:
        return None
    return steps[0] if steps else Operation("nothing")


def _stored_bytes(between: list[Representation]) -> int | None:
    """Return the bytes of an uncompressed chunk without its checksums: the output of the array→bytes codec."""
    for representation in between:
        if isinstance(representation, BytesRepresentation):
            return representation.nbytes
    return None
