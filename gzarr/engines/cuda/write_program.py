"""A codec chain as the device encodes it: kernels, then frames compressed by nvCOMP, then a container around them.

The device encodes chains that it can also decode (``device_program.py``), but without filters, and with Blosc only for
LZ4 and Zstandard. All other chunks are encoded by the CPU.
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

#: Blosc's compressor names → its numbers for their formats.
BLOSC_FORMATS: Final = {"lz4": 1, "zstd": 4}
BLOSC_HEADER_BYTES: Final = 16
#: Bytes of a Blosc stream if the metadata does not say: what nvCOMP recommends for its encoders.
BLOSC_STREAM_BYTES: Final = 64 << 10
#: As in c-blosc, blocks are split into one stream for each byte of the elements if elements have at most
#: ``_MAX_SPLIT_TYPESIZE`` bytes and streams at least ``_MIN_STREAM_BYTES``; smaller containers are not compressed.
_MAX_SPLIT_TYPESIZE: Final = 16
_MIN_STREAM_BYTES: Final = 128
_MAX_TYPESIZE: Final = 255
#: Alignment of frames in bytes: the strictest of nvCOMP's encoders requires 4.
_FRAME_ALIGNMENT: Final = 8
_MAX_BLOSC_BYTES: Final = 2**31 - 1 - BLOSC_HEADER_BYTES


@dataclass(frozen=True, slots=True)
class BloscForm:
    """Form of a Blosc container.

    Attributes
    ----------
    format
        Number of the compressor's format.
    shuffle
        ``"noshuffle"``, ``"shuffle"`` or ``"bitshuffle"``.
    typesize, blocksize
        Bytes of an element, and of a block; the last block may be shorter.
    streams
        Number of streams in a whole block; a shorter last block has one.
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
        Bytes of a chunk before compression.
    order
        The array's dimensions from the slowest to the fastest in the stored chunk.
    swap
        Width in bytes of the units to byte-swap; 0 for none.
    shuffle
        Element size in bytes of a byte shuffle before compression; 0 for none.
    container
        Name of an operation in ``gzarr_kernels.operations``, or None for uncompressed bytes.
    blosc
        Form of a Blosc container; None for other containers.
    algorithm
        nvCOMP's algorithm for the frames, or None if nothing is compressed.
    frame_at, frame_nbytes
        int64 ``(f,)``, offset in the chunk and bytes of each frame before compression.
    checksums
        Number of crc32c checksums that follow the container, each of everything before it.
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
        """Header and trailer around the single frame of a container other than Blosc's."""
        return OPERATIONS[self.container].container if self.container is not None else Container()

    @property
    def largest_frame(self) -> int:
        """Bytes of the largest frame before compression."""
        return int(self.frame_nbytes.max())

    @property
    def shuffles(self) -> int:
        """Number of shuffles before compression."""
        return int(self.shuffle > 0) + int(self.blosc is not None and self.blosc.shuffle != "noshuffle")


def write_program(request: WriteRequest) -> WriteProgram | None:
    """Return how the device encodes the chunks of a write, or None if the CPU has to."""
    # Some codecs need no work on reading, but do on writing: rounding, a map of values.
    if any(isinstance(codec, FilterCodec | BitroundCodec) for codec in request.codecs):
        return None
    levels = () if request.shard is None else (request.shard.level,)
    decoding = Decoding(levels, request.codecs, request.chunk, None, 0)
    inverse = device_program(decoding)
    if inverse is None or inverse.swap & (inverse.swap - 1):
        return None
    # nvCOMP's zstd frames have no checksum.
    if any(isinstance(codec, ZstdCodec) and codec.checksum for codec in request.codecs):
        return None
    nbytes, container, algorithm = inverse.frames.nbytes, inverse.frames.compressor, inverse.algorithm
    blosc: BloscForm | None = None
    at, sizes = np.zeros(1, np.int64), np.full(1, nbytes)
    if container == "blosc":
        codec = next(codec for codec in request.codecs if isinstance(codec, BloscCodec))
        if codec.cname not in BLOSC_FORMATS or nbytes > _MAX_BLOSC_BYTES:
            return None
        blosc = _blosc_form(codec, nbytes)
        if codec.clevel == 0 or nbytes < _MIN_STREAM_BYTES:
            # Stored uncompressed, so there is nothing to shuffle.
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
    typesize = typesize if typesize <= _MAX_TYPESIZE else 1
    shuffle = codec.shuffle or "shuffle"
    if typesize == 1 and shuffle == "shuffle":
        shuffle = "noshuffle"
    may_split = codec.cname == "lz4" and typesize <= _MAX_SPLIT_TYPESIZE
    # Whole elements, and frames aligned as nvCOMP requires.
    unit = typesize * _FRAME_ALIGNMENT
    blocksize = codec.blocksize or BLOSC_STREAM_BYTES * (typesize if may_split else 1)
    blocksize = min(max(blocksize // unit, 1) * unit, nbytes)
    split = may_split and blocksize % unit == 0 and blocksize // typesize >= _MIN_STREAM_BYTES
    return BloscForm(BLOSC_FORMATS[codec.cname], shuffle, typesize, blocksize, typesize if split else 1)


def _streams(form: BloscForm, nbytes: int) -> tuple[IntArray, IntArray]:
    """Return offset and bytes of each stream in a chunk."""
    whole, left = divmod(nbytes, form.blocksize)
    size = form.blocksize // form.streams
    at = size * np.arange(whole * form.streams)
    sizes: Any = np.full(len(at), size)
    if left:
        at, sizes = np.append(at, whole * form.blocksize), np.append(sizes, left)
    return at, sizes
