"""Table of the operations of the compiled loops on the bytes of a chunk, one row per operation.

All tables of native code follow from these rows. To add an operation, add its row here and a module with its compiled
functions; no other table names operations. A row loads no compiler: the module of an operation is imported, and each
function compiled, on first use (``compiled.py``).

The functions of an operation ``x`` are ``x_decode``, ``x_encode`` and ``x_frames``; the function of an algorithm ``y``
of frames is ``y_verifies``. Their callers document their arguments and results: ``decode.py``, ``encode.py``,
``stage.py`` and ``verify.py``. A module ``z`` that keeps state in the worker's context is listed in ``STATES`` and has
``z_release`` (``context.py``). All are decorated with ``jit.by_address``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal

from .searches import DEFLATE_CANDIDATES, LZ4_CANDIDATES, ZSTD_CANDIDATES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .searches import Candidates


@dataclass(frozen=True, slots=True)
class Library:
    """A shared object inside a wheel.

    Attributes
    ----------
    name
        Name for messages.
    package
        Import name of the package that contains it.
    files
        Patterns of its file name, relative to the package's folder, best first.
    """

    name: str
    package: str
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Functions:
    """C functions that are useful only together.

    Attributes
    ----------
    symbols
        Name in compiled code → name in the library.
    libraries
        Libraries that may export them, best first.
    """

    symbols: Mapping[str, str]
    libraries: tuple[Library, ...]


@dataclass(frozen=True, slots=True)
class Rates:
    """Decoding rates assumed before any measurement, in decoded bytes per second.

    Attributes
    ----------
    cpu
        Rate of one CPU thread.
    gpu
        Rate of a whole device with many frames.
    frame
        Rate of one frame alone on a device.
    """

    cpu: float
    gpu: float
    frame: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm:
    """Compression algorithm of frames that a device decodes in batches, with nvCOMP.

    Attributes
    ----------
    code
        Number in the column ``ALGORITHM`` of frames (``slots/frames.py``); at least 1.
    nvcomp
        Name in nvCOMP's functions.
    largest_decoded, largest_encoded
        Uncompressed size in bytes of the largest frame, for decoding and for encoding.
    largest_decoded_before_5_2
        ``largest_decoded`` for nvCOMP before 5.2, whose headers do not give it; None: the same.
    alignment
        Alignment of frames in bytes, if encoded chunks can be laid out to give it.
    cuda_backend
        Whether frames are decoded by kernels, never by a GPU's hardware decoders.
    encoder_algorithm
        First number of the encoder's options.
    rates
        Assumed rates; None if hardly any CPU decodes it, so that a device always does.
    module
        Module with ``…_verifies``; None if frames cannot be verified.
    """

    code: int
    nvcomp: str
    largest_decoded: int
    largest_encoded: int
    largest_decoded_before_5_2: int | None = None
    alignment: int = 1
    cuda_backend: bool = False
    encoder_algorithm: int = 0
    rates: Rates | None = None
    module: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """Bytes around the single frame of an encoded chunk.

    Attributes
    ----------
    header
        Bytes that encoders write before the frame. Readers accept any header of the format.
    states_size
        Whether the header is the decoded size instead: 4 bytes, little-endian.
    checksum
        Checksum of the decoded bytes, after the frame.
    trailer_nbytes
        Number of bytes after the frame. Of 8, the last 4 are the decoded size.
    """

    header: bytes = b""
    states_size: bool = False
    checksum: Literal["crc32", "adler32"] | None = None
    trailer_nbytes: int = 0

    @property
    def header_nbytes(self) -> int:
        """Number of bytes before the frame."""
        return 4 if self.states_size else len(self.header)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A decoding step and its inverse.

    Attributes
    ----------
    module
        Module with its compiled functions; None for an operation that only devices have.
    decoder, encoder
        C functions that it needs; None if it can't decode or encode.
    in_place
        Whether it only checks, removes and adds a suffix, such as a checksum.
    algorithm
        Algorithm of its frames on a device; None if a device has no decoder for it. Blosc's depends on the container.
    container
        Bytes around its frame. Blosc containers have many frames, and code of their own.
    candidates
        Ways to search that a write may try if the level is gzarr's choice; None if there is only the level's own.
    """

    module: str | None
    decoder: tuple[Functions, ...] | None = ()
    encoder: tuple[Functions, ...] | None = ()
    in_place: bool = False
    algorithm: str | None = None
    container: Container = field(default_factory=Container)
    candidates: Candidates | None = None


_BLOSC2: Final = Library("blosc2", "blosc2", ("lib/libblosc2.so*", "lib/libblosc2*.dylib"))
_NUMCODECS_BLOSC: Final = Library("numcodecs.blosc", "numcodecs", ("blosc.*.so", "blosc.so"))
_NUMCODECS_ZSTD: Final = Library("numcodecs.zstd", "numcodecs", ("zstd.*.so", "zstd.so"))
_NUMCODECS_LZ4: Final = Library("numcodecs.lz4", "numcodecs", ("lz4.*.so", "lz4.so"))
_LIBDEFLATE: Final = Library("deflate", "deflate", ("_deflate*.so",))
_LIBCRC32C: Final = Library(
    "crc32c", "google_crc32c", ("../google_crc32c.libs/libcrc32c*.so*", ".dylibs/libcrc32c*.dylib")
)

_ZSTD: Final = (_BLOSC2, _NUMCODECS_ZSTD, _NUMCODECS_BLOSC)
_LZ4: Final = (_BLOSC2, _NUMCODECS_LZ4, _NUMCODECS_BLOSC)

_ZSTD_DECODER: Final = Functions(
    {
        "gzarr_zstd_create": "ZSTD_createDCtx",
        "gzarr_zstd_free": "ZSTD_freeDCtx",
        "gzarr_zstd_decompress": "ZSTD_decompressDCtx",
    },
    _ZSTD,
)
_ZSTD_ENCODER: Final = Functions(
    {
        "gzarr_zstd_encoder": "ZSTD_createCCtx",
        "gzarr_zstd_encoder_free": "ZSTD_freeCCtx",
        "gzarr_zstd_encoder_nbytes": "ZSTD_sizeof_CCtx",
        "gzarr_zstd_set": "ZSTD_CCtx_setParameter",
        "gzarr_zstd_compress": "ZSTD_compress2",
    },
    _ZSTD,
)
_LZ4_DECODER: Final = Functions({"gzarr_lz4_decompress": "LZ4_decompress_safe"}, _LZ4)
_LZ4_ENCODER: Final = Functions({"gzarr_lz4_compress": "LZ4_compress_fast"}, _LZ4)
_LZ4HC_ENCODER: Final = Functions(
    {
        "gzarr_lz4hc_state_nbytes": "LZ4_sizeofStateHC",
        "gzarr_lz4hc_compress": "LZ4_compress_HC_extStateHC",
    },
    _LZ4,
)
_BLOSCLZ_DECODER: Final = Functions({"gzarr_blosclz_decompress": "blosclz_decompress"}, (_NUMCODECS_BLOSC, _BLOSC2))
# blosc2's has another signature.
_BLOSCLZ_ENCODER: Final = Functions({"gzarr_blosclz_compress": "blosclz_compress"}, (_NUMCODECS_BLOSC,))


def _deflate_decoder(name: str) -> Functions:
    return Functions(
        {
            "gzarr_deflate_create": "libdeflate_alloc_decompressor",
            "gzarr_deflate_free": "libdeflate_free_decompressor",
            f"gzarr_{name}_decompress": f"libdeflate_{name}_decompress_ex",
        },
        (_LIBDEFLATE,),
    )


def _deflate_encoder(name: str) -> Functions:
    return Functions(
        {
            "gzarr_deflate_encoder": "libdeflate_alloc_compressor",
            "gzarr_deflate_encoder_free": "libdeflate_free_compressor",
            f"gzarr_{name}_compress": f"libdeflate_{name}_compress",
        },
        (_LIBDEFLATE,),
    )


#: zlib itself, for verifying: slower than libdeflate, but stricter.
_INFLATE: Final = Functions(
    {"gzarr_inflate_init": "inflateInit2_", "gzarr_inflate": "inflate", "gzarr_inflate_end": "inflateEnd"},
    (_NUMCODECS_BLOSC,),
)
_CRC32C: Final = Functions({"gzarr_crc32c": "crc32c_value"}, (_LIBCRC32C,))

#: Algorithms by name. Largest uncompressed sizes: the lower of the constant in the header and the limit documented for
#: ``CompressAsync``. Rates: ``benchmarks/gpu/questions.py`` measures them; the values here are set by hand. The zstd
#: rate of a frame is from the published measurement (8 frames of 16 MiB at 0.43 GB/s on an H200); all others are orders
#: of magnitude, chosen so that a wrong choice costs little. Backend: the hardware decoder of Blackwell GPUs reports
#: success for every LZ4 frame, and is undefined on damaged frames; the kernels check them (``nvcomp/lz4.h``).
ALGORITHMS: dict[str, Algorithm] = {
    "zstd": Algorithm(
        code=2,
        nvcomp="Zstd",
        largest_decoded=2**31 - 1,
        largest_encoded=16_000_000,
        rates=Rates(cpu=0.8e9, gpu=50e9, frame=54e6),
        module="gzarr_kernels.zstd",
    ),
    "lz4": Algorithm(
        code=1,
        nvcomp="LZ4",
        largest_decoded=2**32 - 1,
        largest_encoded=1 << 24,
        largest_decoded_before_5_2=1 << 24,
        cuda_backend=True,
        rates=Rates(cpu=2.0e9, gpu=100e9, frame=100e6),
        module="gzarr_kernels.lz4",
    ),
    "snappy": Algorithm(
        code=3,
        nvcomp="Snappy",
        largest_decoded=2**31 - 1,
        largest_encoded=1 << 24,
        rates=Rates(cpu=1.0e9, gpu=100e9, frame=100e6),
        module="gzarr_kernels.snappy",
    ),
    "deflate": Algorithm(
        code=4,
        nvcomp="Deflate",
        largest_decoded=2**32 - 1,
        largest_encoded=1 << 16,
        largest_decoded_before_5_2=1 << 31,
        alignment=8,
        encoder_algorithm=1,
        rates=Rates(cpu=0.5e9, gpu=40e9, frame=50e6),
        module="gzarr_kernels.deflate",
    ),
    "gdeflate": Algorithm(
        code=5,
        nvcomp="Gdeflate",
        largest_decoded=2**32 + 288,
        largest_encoded=1 << 16,
        largest_decoded_before_5_2=1 << 31,
        encoder_algorithm=1,
    ),
}

#: Operations by name.
OPERATIONS: dict[str, Operation] = {
    "zstd": Operation(
        module="gzarr_kernels.zstd",
        decoder=(_ZSTD_DECODER,),
        encoder=(_ZSTD_ENCODER,),
        algorithm="zstd",
        candidates=ZSTD_CANDIDATES,
    ),
    "lz4": Operation(
        module="gzarr_kernels.lz4",
        decoder=(_LZ4_DECODER,),
        encoder=(_LZ4_ENCODER,),
        algorithm="lz4",
        container=Container(states_size=True),
        candidates=LZ4_CANDIDATES,
    ),
    "gzip": Operation(
        module="gzarr_kernels.deflate",
        decoder=(_deflate_decoder("gzip"),),
        encoder=(_deflate_encoder("gzip"),),
        algorithm="deflate",
        # No name, no time, unknown system.
        container=Container(header=b"\x1f\x8b\x08\0\0\0\0\0\0\xff", checksum="crc32", trailer_nbytes=8),
    ),
    "zlib": Operation(
        module="gzarr_kernels.deflate",
        decoder=(_deflate_decoder("zlib"),),
        encoder=(_deflate_encoder("zlib"),),
        algorithm="deflate",
        # A window of 32 KiB, fastest.
        container=Container(header=b"\x78\x01", checksum="adler32", trailer_nbytes=4),
    ),
    "deflate": Operation(
        module="gzarr_kernels.deflate",
        decoder=(_deflate_decoder("deflate"),),
        encoder=(_deflate_encoder("deflate"),),
        algorithm="deflate",
        candidates=DEFLATE_CANDIDATES,
    ),
    "gdeflate": Operation(module="gzarr_kernels.frames", decoder=None, encoder=None, algorithm="gdeflate"),
    "snappy": Operation(module="gzarr_kernels.snappy", encoder=None, algorithm="snappy"),
    # A container may use any of the compressors. For encoding, the codec requests the one that it needs (``PARTS``).
    "blosc": Operation(
        module="gzarr_kernels.blosc",
        decoder=(_BLOSCLZ_DECODER, _LZ4_DECODER, _deflate_decoder("zlib"), _ZSTD_DECODER),
    ),
    "shuffle": Operation(module="gzarr_kernels.shuffles"),
    "line": Operation(module="gzarr_kernels.arithmetic"),
    "delta": Operation(module="gzarr_kernels.arithmetic"),
    "bitround": Operation(module="gzarr_kernels.rounding", decoder=None),
    "quantize": Operation(module="gzarr_kernels.rounding", decoder=None),
    "cast": Operation(module="gzarr_kernels.casting"),
    "packbits": Operation(module="gzarr_kernels.packed_bits"),
    "fletcher32": Operation(module="gzarr_kernels.fletcher32", in_place=True),
    "crc32c": Operation(module="gzarr_kernels.crc32c", decoder=(_CRC32C,), encoder=(_CRC32C,), in_place=True),
}
#: Encoders that are not operations themselves, but parts of one.
PARTS: Final[Mapping[str, Functions]] = MappingProxyType({"blosclz": _BLOSCLZ_ENCODER, "lz4hc": _LZ4HC_ENCODER})
#: Modules that keep state in a worker's context, in the order of their slots (``context.own``).
STATES: Final = ("zstd", "deflate")
#: Other functions that compiled code may call.
OTHERS: Final = (_INFLATE,)
