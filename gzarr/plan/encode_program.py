"""A codec chain as the native loop encodes it: the counterpart of :mod:`gzarr.program`.

Transpositions and byte swaps are how a chunk is gathered; what is left is a short list of compressors, a shuffle and
checksums, each with the most bytes that it makes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from ..codecs.blosc import BloscCodec
from ..codecs.bytes import BytesCodec
from ..codecs.chain import representations
from ..codecs.codec import BytesRepresentation
from ..codecs.crc32c import Crc32cCodec
from ..codecs.deflate import GzipCodec, ZlibCodec
from ..codecs.lz4 import Lz4Codec
from ..codecs.nvcomp_batch import NvcompBatchCodec
from ..codecs.shuffle import ShuffleCodec
from ..codecs.transpose import TransposeCodec
from ..codecs.zstd import ZstdCodec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..codecs.codec import ArrayRepresentation, Codec

#: In the order of c-blosc's numbers for them.
_BLOSC_COMPRESSORS: Final = ("blosclz", "lz4", "lz4hc", "snappy", "zlib", "zstd")
_BLOSC_SHUFFLES: Final = ("noshuffle", "shuffle", "bitshuffle")
_BLOSC_HEADER_BYTES: Final = 16
_BLOSC_MOST_LEVEL: Final = 9
#: What zstd takes for its level 0.
_ZSTD_DEFAULT_LEVEL: Final = 3
_BLOSC_MAX_BYTES: Final = 2**31 - 1 - _BLOSC_HEADER_BYTES
_BLOSC_MAX_TYPESIZE: Final = 255
_LZ4_MAX_BYTES: Final = 0x7E000000
#: What zlib takes for its level -1.
_DEFLATE_DEFAULT_LEVEL: Final = 6
#: More checksums behind each other than this have no room behind a buffer; nobody asks for two.
_MOST_CHECKSUMS: Final = 8


@dataclass(frozen=True, slots=True)
class EncodingStep:
    """One native step.

    Attributes
    ----------
    name
        As of the operation that decodes it.
    most_nbytes
        More bytes than this it does not make.
    parameters
        zstd: level, checksum; lz4: acceleration; gzip, zlib, deflate: level; shuffle: element size; blosc: compressor,
        level, shuffle, element size, block size; crc32c: none.
    way
        How the compressor searches, a number of ``gzarr_kernels.searches``; 0 is as its level says.
    """

    name: str
    most_nbytes: int
    parameters: tuple[int, ...] = ()
    way: int = 0

    @property
    def compressor(self) -> tuple[str, int] | None:
        """What can search in several ways, and its level (LZ4: acceleration); Blosc's inner compressor too."""
        if self.name == "zstd":
            return "zstd", self.parameters[0] or _ZSTD_DEFAULT_LEVEL
        if self.name in ("gzip", "zlib", "deflate"):
            return "deflate", self.parameters[0]
        if self.name == "lz4":
            return "lz4", self.parameters[0]
        if self.name == "blosc":
            name, level = _BLOSC_COMPRESSORS[self.parameters[0]], self.parameters[1]
            if name == "lz4":
                # As c-blosc has it.
                return "lz4", _BLOSC_MOST_LEVEL + 1 - level
            if name == "zlib":
                return "deflate", level
            if name == "zstd":
                return "zstd", 22 if level == _BLOSC_MOST_LEVEL else 2 * level - 1
        return None


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
        steps = (step if step.compressor is None else replace(step, way=way) for step in self.steps)
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
            step = _step(codec, most, exact, available)
            if step is None:
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


def _step(codec: Codec, nbytes: int, exact: bool, available: frozenset[str]) -> EncodingStep | None:
    """Return the native step for at most (or, if ``exact``, just) ``nbytes`` bytes, or None if there is none."""
    step: EncodingStep | None = None
    encoder: str | None = None
    if isinstance(codec, NvcompBatchCodec):
        # In host memory its options say nothing.
        codec = {"lz4": Lz4Codec(), "zstd": ZstdCodec()}.get(codec.algorithm, codec)
    match codec:
        case ZstdCodec():
            # ZSTD_COMPRESSBOUND of zstd.h.
            bound = nbytes + (nbytes >> 8) + (max((128 << 10) - nbytes, 0) >> 11)
            step, encoder = EncodingStep("zstd", bound, (codec.level, int(codec.checksum))), "zstd"
        case GzipCodec() | ZlibCodec() | NvcompBatchCodec(algorithm="deflate"):
            name = "gzip" if isinstance(codec, GzipCodec) else "zlib" if isinstance(codec, ZlibCodec) else "deflate"
            level = -1 if isinstance(codec, NvcompBatchCodec) else codec.level
            # libdeflate: five bytes for each stored block of 5,000 or more, and the container.
            bound = nbytes + nbytes // 500 + 64
            step, encoder = EncodingStep(name, bound, (_DEFLATE_DEFAULT_LEVEL if level < 0 else level,)), name
        case Lz4Codec() if nbytes <= _LZ4_MAX_BYTES:
            # LZ4_compressBound of lz4.h, behind four bytes of size.
            step, encoder = EncodingStep("lz4", nbytes + nbytes // 255 + 20, (codec.acceleration,)), "lz4"
        case BloscCodec() if nbytes <= _BLOSC_MAX_BYTES:
            parameters = (
                _BLOSC_COMPRESSORS.index(codec.cname),
                codec.clevel,
                _BLOSC_SHUFFLES.index(codec.shuffle or "shuffle"),
                min(codec.typesize or 1, _BLOSC_MAX_TYPESIZE),
                codec.blocksize,
            )
            step, encoder = EncodingStep("blosc", nbytes + _BLOSC_HEADER_BYTES, parameters), codec.cname
        case Crc32cCodec():
            step, encoder = EncodingStep("crc32c", nbytes + 4), "crc32c"
        case ShuffleCodec() if exact and nbytes % max(codec.elementsize, 1) == 0:
            step, encoder = EncodingStep("shuffle", nbytes, (codec.elementsize,)), "loop"
    return step if encoder in available else None
