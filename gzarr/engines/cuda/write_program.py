"""A codec chain as the device encodes it: our kernels, then frames of nvCOMP, then a container around them.

What fits are chains that the device decodes (``device_program.py``), without filters of numcodecs, and of Blosc's
compressors LZ4 and Zstandard. Any other chunk is encoded by the CPU.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from gzarr_kernels.operations import OPERATIONS, Container

from ...codecs.bitround import BitroundCodec
from ...codecs.blosc import BloscCodec
from ...codecs.zstd import ZstdCodec
from ...plan.decode_program import Decoding
from .device_program import device_program
from .filters import FilterCodec

if TYPE_CHECKING:
    import numpy.typing as npt

    from ..write_request import WriteRequest

    IntArray = npt.NDArray[np.int64]

#: Blosc's numbers of the formats of its compressors.
BLOSC_FORMATS: Final = {"lz4": 1, "zstd": 4}
BLOSC_HEADER_BYTES: Final = 16
#: Bytes of a stream of Blosc, where the metadata leaves it open: what nvCOMP says is best for its encoders.
BLOSC_STREAM_BYTES: Final = 64 << 10
#: As for c-blosc: blocks are split into streams of one byte of each element up to this size of an element, and while
#: the streams have that many bytes; fewer bytes than that are not compressed.
_MOST_STREAMS: Final = 16
_LEAST_STREAM_BYTES: Final = 128
_MOST_TYPESIZE: Final = 255
#: Where frames begin: the strictest of nvCOMP's encoders asks for 4 bytes.
_FRAME_ALIGNMENT: Final = 8
_MOST_BLOSC_BYTES: Final = 2**31 - 1 - BLOSC_HEADER_BYTES


@dataclass(frozen=True, slots=True)
class BloscForm:
    """How a Blosc container is made.

    Attributes
    ----------
    format
        Number of the compressor's format.
    shuffle
        ``"noshuffle"``, ``"shuffle"`` or ``"bitshuffle"``.
    typesize, blocksize
        Bytes of an element, and of a block; the last block may be shorter.
    streams
        Of a whole block; the last one, if it is shorter, has one.
    """

    format: int
    shuffle: str
    typesize: int
    blocksize: int
    streams: int


@dataclass(frozen=True, slots=True, eq=False)
class WriteProgram:
    """How the device encodes a chunk.

    Attributes
    ----------
    nbytes
        Of a chunk before it is compressed.
    order
        The array's dimensions from the slowest to the fastest in the stored chunk.
    swap
        Width in bytes of the units to swap; 0 for none.
    shuffle
        Element size of a byte shuffle in front of the compressor; 0 for none.
    container
        An operation of ``gzarr_kernels.operations``, or None for uncompressed bytes.
    blosc
        How the container is made, if it is Blosc's.
    algorithm
        nvCOMP's for the frames, or None where nothing is compressed.
    frame_at, frame_nbytes
        int64 ``(f,)``: the pieces of a chunk that are compressed by themselves, if any are.
    checksums
        How many crc32c checksums follow the container, each over all before it.
    """

    nbytes: int
    order: tuple[int, ...]
    swap: int
    shuffle: int
    container: str | None
    blosc: BloscForm | None
    algorithm: str | None
    frame_at: IntArray
    frame_nbytes: IntArray
    checksums: int

    @property
    def around(self) -> Container:
        """What stands around the one frame of a container that is not Blosc's."""
        return OPERATIONS[self.container].container if self.container is not None else Container()

    @property
    def largest_frame(self) -> int:
        """Bytes of the largest frame before it is compressed."""
        return int(self.frame_nbytes.max())

    @property
    def shuffles(self) -> int:
        """How often a chunk goes from one place to another before it is compressed."""
        return int(self.shuffle > 0) + int(self.blosc is not None and self.blosc.shuffle != "noshuffle")


def write_program(request: WriteRequest) -> WriteProgram | None:
    """Return how the device encodes the chunks of a write, or None if the CPU has to."""
    # What need not be undone when it is read may still have to be done: rounding, a map of values.
    if any(isinstance(codec, FilterCodec | BitroundCodec) for codec in request.codecs):
        return None
    decoding = Decoding(request.levels, request.codecs, request.chunk, None, 0)
    inverse = device_program(decoding)
    if inverse is None or inverse.swap & (inverse.swap - 1):
        return None
    # nvCOMP's frames carry no checksum of their own.
    if any(isinstance(codec, ZstdCodec) and codec.checksum for codec in request.codecs):
        return None
    nbytes, container, algorithm = inverse.frames.nbytes, inverse.frames.compressor, inverse.algorithm
    blosc: BloscForm | None = None
    at, sizes = np.zeros(1, np.int64), np.full(1, nbytes)
    if container == "blosc":
        codec = next(codec for codec in request.codecs if isinstance(codec, BloscCodec))
        if codec.cname not in BLOSC_FORMATS or nbytes > _MOST_BLOSC_BYTES:
            return None
        blosc = _blosc_form(codec, nbytes)
        if codec.clevel == 0 or nbytes < _LEAST_STREAM_BYTES:
            # Stored as it is, so that nothing has to be shuffled.
            algorithm, blosc = None, replace(blosc, shuffle="noshuffle")
        at, sizes = _streams(blosc, nbytes)
    if algorithm is None:
        at = sizes = np.zeros(0, np.int64)
    return WriteProgram(
        nbytes=nbytes,
        order=tuple(sorted(range(len(inverse.strides)), key=lambda d: -inverse.strides[d])),
        swap=inverse.swap,
        shuffle=inverse.shuffle,
        container=container,
        blosc=blosc,
        algorithm=algorithm,
        frame_at=at,
        frame_nbytes=sizes,
        checksums=inverse.frames.checksums,
    )


def _blosc_form(codec: BloscCodec, nbytes: int) -> BloscForm:
    typesize = codec.typesize or 1
    typesize = typesize if typesize <= _MOST_TYPESIZE else 1
    shuffle = codec.shuffle or "shuffle"
    if typesize == 1 and shuffle == "shuffle":
        shuffle = "noshuffle"
    may_split = codec.cname == "lz4" and typesize <= _MOST_STREAMS
    # Whole elements, and frames that begin where nvCOMP wants them.
    unit = typesize * _FRAME_ALIGNMENT
    blocksize = codec.blocksize or BLOSC_STREAM_BYTES * (typesize if may_split else 1)
    blocksize = min(max(blocksize // unit, 1) * unit, nbytes)
    split = may_split and blocksize % unit == 0 and blocksize // typesize >= _LEAST_STREAM_BYTES
    return BloscForm(BLOSC_FORMATS[codec.cname], shuffle, typesize, blocksize, typesize if split else 1)


def _streams(form: BloscForm, nbytes: int) -> tuple[IntArray, IntArray]:
    """Return where in a chunk its streams begin, and their bytes."""
    whole, left = divmod(nbytes, form.blocksize)
    size = form.blocksize // form.streams
    at = size * np.arange(whole * form.streams)
    sizes: Any = np.full(len(at), size)
    if left:
        at, sizes = np.append(at, whole * form.blocksize), np.append(sizes, left)
    return at, sizes
