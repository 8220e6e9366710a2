"""A codec chain as the device runs it: a frame format, then our kernels.

What fits: checksums around everything, one compressor or none, one byte shuffle, one array→bytes codec, and
transpositions in front of them all, which never run: they are the strides of the decoded chunk. Any other chain is
decoded by the CPU engine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ...codecs.blosc import BloscCodec
from ...codecs.chain import representations
from ...codecs.codec import ArrayRepresentation, BytesRepresentation, Operation
from ...codecs.transpose import TransposeCodec
from .staging import FrameFormat

if TYPE_CHECKING:
    from ...codecs.codec import Codec, Representation
    from ...program import Decoding

#: nvCOMP's algorithm for the frames of a compressor.
_ALGORITHMS: Final = {
    "zstd": "zstd",
    "lz4": "lz4",
    "gzip": "deflate",
    "zlib": "deflate",
    "snappy": "snappy",
    "deflate": "deflate",
    "gdeflate": "gdeflate",
}
#: Of a Blosc container's compressor. One that holds another than the metadata says is decoded by the CPU.
_IN_BLOSC: Final = {"lz4": "lz4", "lz4hc": "lz4", "zstd": "zstd", "zlib": "deflate", "snappy": "snappy"}


#: Of the frames that staging finds (``gzarr_kernels.frames``); 0 is a raw frame, which is only copied.
ALGORITHM_CODES: Final = {"lz4": 1, "zstd": 2, "snappy": 3, "deflate": 4, "gdeflate": 5}


@dataclass(frozen=True, slots=True)
class DeviceProgram:
    """How the device decodes a chunk.

    Attributes
    ----------
    frames
        Container of a chunk, and the bytes that it decodes to.
    algorithm
        nvCOMP's algorithm, or None for uncompressed chunks.
    shuffle
        Element size of a byte shuffle behind the compressor; 0 for none.
    swap
        Width in bytes of the units to swap when placing; 0 for none.
    strides
        Bytes between neighbours in the decoded chunk, one a dimension of the array.
    bits
        Whether a Blosc container may hold bit planes; one that the metadata does not announce is decoded by the CPU.
    """

    frames: FrameFormat
    algorithm: str | None
    shuffle: int
    swap: int
    strides: tuple[int, ...]
    bits: bool

    @property
    def moves(self) -> bool:
        """Whether a decoded chunk may have to go from one place to another before it is placed."""
        return self.bits or (self.shuffle > 0 and self.frames.compressor == "blosc")


def device_program(decoding: Decoding) -> DeviceProgram | None:
    """Return how the device decodes a planned chunk, or None if the CPU has to."""
    chunk = decoding.chunk
    if chunk.dtype.hasobject or chunk.nbytes == 0:
        return None
    codecs = decoding.codecs
    between = representations(codecs, chunk)
    order = list(range(len(chunk.shape)))
    front = 0
    while front < len(codecs) and isinstance(codecs[front], TransposeCodec):
        order = [order[i] for i in codecs[front].order]  # type: ignore[attr-defined]
        front += 1
    checksums = 0
    compressor: str | None = None
    algorithm: str | None = None
    shuffle = 0
    swap = 0
    framed: int | None = None
    for i in reversed(range(front, len(codecs))):
        codec, decoded = codecs[i], between[i]
        operation = _only_operation(codec, decoded)
        if operation is None:
            return None
        name, parameter = operation.name, operation.params[0] if operation.params else 0
        if name == "nothing":
            continue
        if name == "bytes":
            swap = parameter if parameter > 1 else 0
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
        framed = _stored_bytes(between)
    if framed is None:
        return None
    strides = [0] * len(chunk.shape)
    stride = chunk.dtype.itemsize
    for d in reversed(order):
        strides[d] = stride
        stride *= chunk.shape[d]
    return DeviceProgram(
        frames=FrameFormat(compressor, checksums, framed),
        algorithm=algorithm,
        shuffle=shuffle,
        swap=swap,
        strides=tuple(strides),
        bits=any(isinstance(codec, BloscCodec) and codec.shuffle in (None, "bitshuffle") for codec in codecs),
    )


def host_program(chunk: ArrayRepresentation) -> DeviceProgram:
    """Return how the device takes chunks that the CPU decoded: in C order, native byte order."""
    strides = [chunk.dtype.itemsize] * len(chunk.shape)
    for d in reversed(range(len(chunk.shape) - 1)):
        strides[d] = strides[d + 1] * chunk.shape[d + 1]
    return DeviceProgram(
        frames=FrameFormat(None, 0, chunk.nbytes),
        algorithm=None,
        shuffle=0,
        swap=0,
        strides=tuple(strides),
        bits=False,
    )


def _algorithm(name: str, codec: Codec) -> str | None:
    return _IN_BLOSC.get(codec.cname) if isinstance(codec, BloscCodec) else _ALGORITHMS.get(name)


def _only_operation(codec: Codec, decoded: Representation) -> Operation | None:
    steps = codec.operations(decoded)
    if steps is None or len(steps) > 1:
        return None
    return steps[0] if steps else Operation("nothing")


def _stored_bytes(between: list[Representation]) -> int | None:
    """Return the bytes of an uncompressed chunk without its checksums: what the array→bytes codec gives."""
    for representation in between:
        if isinstance(representation, BytesRepresentation):
            return representation.nbytes
    return None
