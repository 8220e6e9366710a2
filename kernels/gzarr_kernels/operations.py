"""What the compiled loops can do to the bytes of a chunk: one row an operation.

All tables of native code follow from these rows. To add an operation, add its row here and a module with its compiled
functions; no other table names operations. A row loads no compiler: the module of an operation is imported, and each
function compiled, when it is first asked for (``compiled.py``).

The functions of an operation ``x`` are called ``x_decode``, ``x_encode`` and ``x_frames``; the one of an algorithm
``y`` of frames ``y_verifies``. What they take and return is said where they are called: ``decode.py``, ``encode.py``,
``stage.py`` and ``verify.py``. A module ``z`` whose functions keep something in the worker's context is one of
``STATES`` and has ``z_release`` (``context.py``). All are decorated with ``jit.by_address``.
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
        For people.
    package
        The import name of the package that brings it.
    files
        Patterns of its file's name, relative to the package's folder, best first.
    """

    name: str
    package: str
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Functions:
    """Functions of C that only help together.

    Attributes
    ----------
    symbols
        Name in compiled code → name in the library.
    libraries
        Those that may have them, best first.
    """

    symbols: Mapping[str, str]
    libraries: tuple[Library, ...]


@dataclass(frozen=True, slots=True)
class Rates:
    """Decoded bytes a second that are assumed where nothing is measured.

    Attributes
    ----------
    cpu
        Of one CPU thread.
    gpu
        Of a whole device, given many frames.
    frame
        Of one frame alone on a device.
    """

    cpu: float
    gpu: float
    frame: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm:
    """How frames are compressed that a device decodes in batches, with nvCOMP.

    Attributes
    ----------
    code
        In the column ``ALGORITHM`` of frames (``frames.py``); at least 1.
    nvcomp
        What nvCOMP's functions are called after.
    largest_decoded, largest_encoded
        Bytes of the largest frame before compression, in each direction.
    largest_decoded_before_5_2
        The same, where the headers of nvCOMP do not tell; None: as above.
    alignment
        Of frames, in bytes, if encoded chunks can be laid out so that theirs begin there.
    cuda_backend
        Whether frames are decoded by kernels, and never by the decoders in a GPU's hardware.
    encoder_algorithm
        The first number of the encoder's options.
    rates
        None where hardly any CPU decodes it, so a device does in any case.
    module
        Which has ``…_verifies``; None: no frame can be verified.
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
    """What stands around the one frame of an encoded chunk.

    Attributes
    ----------
    header
        What encoders write before it. Readers take any header of the format.
    states_size
        Whether the header is the decoded bytes instead: 4 bytes, little-endian.
    checksum
        Of the decoded bytes, behind the frame.
    trailer_nbytes
        Bytes behind the frame. Of 8, the last 4 are the decoded bytes.
    """

    header: bytes = b""
    states_size: bool = False
    checksum: Literal["crc32", "adler32"] | None = None
    trailer_nbytes: int = 0

    @property
    def header_nbytes(self) -> int:
        """Bytes before the frame."""
        return 4 if self.states_size else len(self.header)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A step of decoding, and its inverse.

    Attributes
    ----------
    module
        Which has its compiled functions; None for an operation that only devices have.
    decoder, encoder
        The C functions without which it does not run; None: there is none.
    in_place
        Whether only what stands behind the bytes is looked at, cut off and added: a checksum.
    algorithm
        Of its frames, on a device; None: a device has no decoder for it. Blosc's depends on the container.
    container
        What stands around its frame. Blosc's has many frames, and is made by code of its own.
    candidates
        Ways to search that a write may try where the level is gzarr's choice; None: it has only its level's own.
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


#: zlib itself, for verifying: slower, and stricter than libdeflate.
_INFLATE: Final = Functions(
    {"gzarr_inflate_init": "inflateInit2_", "gzarr_inflate": "inflate", "gzarr_inflate_end": "inflateEnd"},
    (_NUMCODECS_BLOSC,),
)
_CRC32C: Final = Functions({"gzarr_crc32c": "crc32c_value"}, (_LIBCRC32C,))

#: By name. Largest frames before compression: the lower of what the header has as a constant and of what it says about
#: ``CompressAsync``. Rates: ``benchmarks/gpu_questions.py`` measures each; they are set here. A frame's zstd rate is
#: that of the published measurement (8 frames of 16 MiB at 0.43 GB/s on an H200); all others are orders of magnitude,
#: chosen so that a wrong choice costs little. Backend: the hardware decoder of Blackwell GPUs says of every LZ4 frame
#: that it was decoded, and is undefined on damaged ones; the kernels check them (``nvcomp/lz4.h``).
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

#: By name.
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
        # No name, no time, of no known system.
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
    # A container may hold any of its compressors; which of them encode, its codec asks for (``PARTS``).
    "blosc": Operation(
        module="gzarr_kernels.blosc",
        decoder=(_BLOSCLZ_DECODER, _LZ4_DECODER, _deflate_decoder("zlib"), _ZSTD_DECODER),
    ),
    "shuffle": Operation(module="gzarr_kernels.shuffles"),
    "crc32c": Operation(module="gzarr_kernels.crc32c", decoder=(_CRC32C,), encoder=(_CRC32C,), in_place=True),
}
#: Encoders that are no operation by themselves, but part of one.
PARTS: Final[Mapping[str, Functions]] = MappingProxyType({"blosclz": _BLOSCLZ_ENCODER, "lz4hc": _LZ4HC_ENCODER})
#: Modules whose functions keep something in a worker's context, in the order of their slots (``context.own``).
STATES: Final = ("zstd", "deflate")
#: What else compiled code may call.
OTHERS: Final = (_INFLATE,)
