"""Where the C codecs are: shared objects inside installed wheels, found without loading a compiler.

Codecs come from shared objects that the wheels of ``numcodecs``, ``blosc2``, ``deflate`` and ``google-crc32c`` bring;
the first library of a list that exports a function is the one that is used.

The order is fixed, so that one environment always writes the same bytes: versions of zstd encode differently at the
same level. Measuring at run time would gain nothing for reading: zstd 1.5.7 (in ``blosc2``) and 1.5.6 (twice in
``numcodecs``) decode tables of f8, u2 volumes and noise, in frames of 8 to 512 KiB, equally fast, give or take 3 %. At
level 3, 1.5.7 encodes noise faster by 10 to 28 %, at level 9 labels slower.
"""

from __future__ import annotations

import ctypes
import importlib.util
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator


def _package_folders(name: str) -> list[Path]:
    spec = importlib.util.find_spec(name)
    return [Path(p) for p in spec.submodule_search_locations or []] if spec is not None else []


def _libraries(name: str) -> Iterator[Path]:
    """Yield the files that may hold the decoders called ``name``, best first."""
    patterns = {
        "blosc2": ("blosc2", ("lib/libblosc2.so*", "lib/libblosc2*.dylib")),
        "numcodecs.blosc": ("numcodecs", ("blosc.*.so", "blosc.so")),
        "numcodecs.zstd": ("numcodecs", ("zstd.*.so", "zstd.so")),
        "numcodecs.lz4": ("numcodecs", ("lz4.*.so", "lz4.so")),
        "deflate": ("deflate", ("_deflate*.so",)),
        "crc32c": ("google_crc32c", ("../google_crc32c.libs/libcrc32c*.so*", ".dylibs/libcrc32c*.dylib")),
    }
    package, globs = patterns[name]
    for folder in _package_folders(package):
        for glob in globs:
            yield from sorted(folder.glob(glob))


_ZSTD: Final = ("blosc2", "numcodecs.zstd", "numcodecs.blosc")
_LZ4: Final = ("blosc2", "numcodecs.lz4", "numcodecs.blosc")

#: What jitted code calls a decoder: its symbol, and the libraries to try in order.
DECODERS: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "gzarr_zstd_create": ("ZSTD_createDCtx", _ZSTD),
    "gzarr_zstd_free": ("ZSTD_freeDCtx", _ZSTD),
    "gzarr_zstd_decompress": ("ZSTD_decompressDCtx", _ZSTD),
    "gzarr_lz4_decompress": ("LZ4_decompress_safe", _LZ4),
    "gzarr_blosclz_decompress": ("blosclz_decompress", ("numcodecs.blosc", "blosc2")),
    "gzarr_deflate_create": ("libdeflate_alloc_decompressor", ("deflate",)),
    "gzarr_deflate_free": ("libdeflate_free_decompressor", ("deflate",)),
    "gzarr_gzip_decompress": ("libdeflate_gzip_decompress_ex", ("deflate",)),
    "gzarr_zlib_decompress": ("libdeflate_zlib_decompress_ex", ("deflate",)),
    "gzarr_deflate_decompress": ("libdeflate_deflate_decompress_ex", ("deflate",)),
    # zlib itself: slower, and stricter than libdeflate.
    "gzarr_inflate_init": ("inflateInit2_", ("numcodecs.blosc",)),
    "gzarr_inflate": ("inflate", ("numcodecs.blosc",)),
    "gzarr_inflate_end": ("inflateEnd", ("numcodecs.blosc",)),
    "gzarr_crc32c": ("crc32c_value", ("crc32c",)),
}

#: The same for encoders. blosc2's blosclz has another signature.
ENCODERS: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "gzarr_zstd_encoder": ("ZSTD_createCCtx", _ZSTD),
    "gzarr_zstd_encoder_free": ("ZSTD_freeCCtx", _ZSTD),
    "gzarr_zstd_encoder_nbytes": ("ZSTD_sizeof_CCtx", _ZSTD),
    "gzarr_zstd_set": ("ZSTD_CCtx_setParameter", _ZSTD),
    "gzarr_zstd_compress": ("ZSTD_compress2", _ZSTD),
    "gzarr_lz4_compress": ("LZ4_compress_fast", _LZ4),
    "gzarr_lz4hc_state_nbytes": ("LZ4_sizeofStateHC", _LZ4),
    "gzarr_lz4hc_compress": ("LZ4_compress_HC_extStateHC", _LZ4),
    "gzarr_blosclz_compress": ("blosclz_compress", ("numcodecs.blosc",)),
    "gzarr_deflate_encoder": ("libdeflate_alloc_compressor", ("deflate",)),
    "gzarr_deflate_encoder_free": ("libdeflate_free_compressor", ("deflate",)),
    "gzarr_gzip_compress": ("libdeflate_gzip_compress", ("deflate",)),
    "gzarr_zlib_compress": ("libdeflate_zlib_compress", ("deflate",)),
    "gzarr_deflate_compress": ("libdeflate_deflate_compress", ("deflate",)),
}

#: What jitted code calls a function of the operating system: its symbol.
SYSTEM: Final[dict[str, str]] = {
    "gzarr_open": "open",
    "gzarr_close": "close",
    "gzarr_pread": "pread",
    "gzarr_lseek": "lseek",
    "gzarr_malloc": "malloc",
    "gzarr_free": "free",
    "gzarr_errno": "__error" if sys.platform == "darwin" else "__errno_location",
    "gzarr_memset": "memset",
    "gzarr_clock": "clock_gettime",
    # "open" with a mode, for files that it makes.
    "gzarr_create": "open",
    "gzarr_pwrite": "pwrite",
    "gzarr_fsync": "fsync",
    "gzarr_rename": "rename",
    "gzarr_unlink": "unlink",
    "gzarr_mkdir": "mkdir",
    "gzarr_access": "access",
    "gzarr_memcmp": "memcmp",
    "gzarr_yield": "sched_yield",
    "gzarr_madvise": "madvise",
}

# Handles stay open for the life of the process: LLVM holds bare addresses into them.
_handles: dict[Path, ctypes.CDLL] = {}


def _find(symbol: str, libraries: tuple[str, ...]) -> tuple[int, str] | None:
    for library in libraries:
        for path in _libraries(library):
            try:
                handle = _handles.get(path) or ctypes.CDLL(str(path))
                function = getattr(handle, symbol)
            except (OSError, AttributeError):
                continue
            _handles[path] = handle
            address = ctypes.cast(function, ctypes.c_void_p).value
            if address:
                return address, library
    return None


@cache
def decoder_addresses() -> dict[str, tuple[int, str]]:
    """Return address and library of each decoder that there is, by its name in jitted code."""
    return {
        name: hit for name, (symbol, libraries) in DECODERS.items() if (hit := _find(symbol, libraries)) is not None
    }


@cache
def encoder_addresses() -> dict[str, tuple[int, str]]:
    """Return address and library of each encoder that there is, by its name in jitted code."""
    return {
        name: hit for name, (symbol, libraries) in ENCODERS.items() if (hit := _find(symbol, libraries)) is not None
    }


@cache
def system_addresses() -> dict[str, int]:
    """Return the address of each function of the system that there is, by its name in jitted code."""
    found: dict[str, int] = {}
    if sys.platform == "win32":
        return found
    process = ctypes.CDLL(None)
    for name, symbol in SYSTEM.items():
        function = getattr(process, symbol, None)
        if function is not None and (address := ctypes.cast(function, ctypes.c_void_p).value):
            found[name] = address
    return found


@cache
def available() -> frozenset[str]:
    """Return what the native loop has here: names of decoders, and ``loop`` if it can run (Linux and macOS)."""
    found = decoder_addresses()
    needs = {
        "zstd": ("gzarr_zstd_create", "gzarr_zstd_free", "gzarr_zstd_decompress"),
        "lz4": ("gzarr_lz4_decompress",),
        "blosclz": ("gzarr_blosclz_decompress",),
        "gzip": ("gzarr_deflate_create", "gzarr_deflate_free", "gzarr_gzip_decompress"),
        "zlib": ("gzarr_deflate_create", "gzarr_deflate_free", "gzarr_zlib_decompress"),
        "deflate": ("gzarr_deflate_create", "gzarr_deflate_free", "gzarr_deflate_decompress"),
        "crc32c": ("gzarr_crc32c",),
    }
    names = {name for name, functions in needs.items() if all(function in found for function in functions)}
    if sys.byteorder == "little" and sys.maxsize > 2**32 and len(system_addresses()) == len(SYSTEM):
        names.add("loop")
    return frozenset(names)


@cache
def encoders() -> frozenset[str]:
    """Return what native writing has here: names of encoders, and ``files`` if it can write files itself.

    ``open`` with a mode takes a variable number of arguments, which compiled code can call as if it did not on Linux
    but not on every system; elsewhere encoded bytes go to the store.
    """
    found = encoder_addresses()
    deflate = ("gzarr_deflate_encoder", "gzarr_deflate_encoder_free")
    zstd = ("encoder", "encoder_free", "encoder_nbytes", "set", "compress")
    needs = {
        "zstd": tuple(f"gzarr_zstd_{name}" for name in zstd),
        "lz4": ("gzarr_lz4_compress",),
        "lz4hc": ("gzarr_lz4hc_state_nbytes", "gzarr_lz4hc_compress"),
        "blosclz": ("gzarr_blosclz_compress",),
        "gzip": (*deflate, "gzarr_gzip_compress"),
        "zlib": (*deflate, "gzarr_zlib_compress"),
        "deflate": (*deflate, "gzarr_deflate_compress"),
    }
    names = {name for name, functions in needs.items() if all(function in found for function in functions)}
    names |= available() & {"crc32c", "loop"}
    if "loop" in names and sys.platform == "linux":
        names.add("files")
    return frozenset(names)
