"""The C functions that jitted code calls, registered with LLVM under names of our own.

So a cached kernel links the same function wherever it is loaded, and two libraries that export the same name never mix.
A function that is not there is replaced by one that always fails; ``libraries.available`` and ``libraries.encoders``
say which are real, and whoever builds a job must look there first.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final

import llvmlite.binding as llvm
from numba import types

from .libraries import DECODERS, ENCODERS, SYSTEM, decoder_addresses, encoder_addresses, system_addresses

_i4, _i8, _u4, _void = types.int32, types.int64, types.uint32, types.void


@ctypes.CFUNCTYPE(ctypes.c_int64)
def _never() -> int:
    return -1


def _register() -> None:
    stand_in = ctypes.cast(_never, ctypes.c_void_p).value
    codecs = {n: address for n, (address, _library) in (decoder_addresses() | encoder_addresses()).items()}
    for name in (*DECODERS, *ENCODERS, *SYSTEM):
        llvm.add_symbol(name, codecs.get(name) or system_addresses().get(name) or stand_in)


_register()


def _external(name: str, result: Any, *arguments: Any) -> Any:
    return types.ExternalFunction(name, result(*arguments))


zstd_create: Final = _external("gzarr_zstd_create", _i8)
zstd_free: Final = _external("gzarr_zstd_free", _i8, _i8)
#: (context, target, capacity, source, nbytes) → size, or a negative code.
zstd_decompress: Final = _external("gzarr_zstd_decompress", _i8, _i8, _i8, _i8, _i8, _i8)
#: (source, target, nbytes, capacity) → size, or a negative number.
lz4_decompress: Final = _external("gzarr_lz4_decompress", _i4, _i8, _i8, _i4, _i4)
#: (source, nbytes, target, capacity) → size, or at most 0.
blosclz_decompress: Final = _external("gzarr_blosclz_decompress", _i4, _i8, _i4, _i8, _i4)
deflate_create: Final = _external("gzarr_deflate_create", _i8)
deflate_free: Final = _external("gzarr_deflate_free", _void, _i8)
#: (context, source, nbytes, target, capacity, address of consumed, address of produced) → 0, or a code.
gzip_decompress: Final = _external("gzarr_gzip_decompress", _i4, _i8, _i8, _i8, _i8, _i8, _i8, _i8)
zlib_decompress: Final = _external("gzarr_zlib_decompress", _i4, _i8, _i8, _i8, _i8, _i8, _i8, _i8)
deflate_decompress: Final = _external("gzarr_deflate_decompress", _i4, _i8, _i8, _i8, _i8, _i8, _i8, _i8)
#: (stream, window bits, address of the version, bytes of the stream) → 0, or a code.
inflate_init: Final = _external("gzarr_inflate_init", _i4, _i8, _i4, _i8, _i4)
#: (stream, flush) → a code.
inflate: Final = _external("gzarr_inflate", _i4, _i8, _i4)
inflate_end: Final = _external("gzarr_inflate_end", _i4, _i8)
crc32c: Final = _external("gzarr_crc32c", _u4, _i8, _i8)
c_open: Final = _external("gzarr_open", _i4, _i8, _i4)
c_close: Final = _external("gzarr_close", _i4, _i4)
c_pread: Final = _external("gzarr_pread", _i8, _i4, _i8, _i8, _i8)
c_lseek: Final = _external("gzarr_lseek", _i8, _i4, _i8, _i4)
c_malloc: Final = _external("gzarr_malloc", _i8, _i8)
c_free: Final = _external("gzarr_free", _void, _i8)
c_errno: Final = _external("gzarr_errno", _i8)
c_memset: Final = _external("gzarr_memset", _i8, _i8, _i4, _i8)
c_clock: Final = _external("gzarr_clock", _i4, _i4, _i8)

zstd_encoder: Final = _external("gzarr_zstd_encoder", _i8)
zstd_encoder_free: Final = _external("gzarr_zstd_encoder_free", _i8, _i8)
zstd_encoder_nbytes: Final = _external("gzarr_zstd_encoder_nbytes", _i8, _i8)
#: (context, parameter, value) → 0, or a negative code.
zstd_set: Final = _external("gzarr_zstd_set", _i8, _i8, _i4, _i4)
#: (context, target, capacity, source, nbytes) → size, or a negative code.
zstd_compress: Final = _external("gzarr_zstd_compress", _i8, _i8, _i8, _i8, _i8, _i8)
#: (source, target, nbytes, capacity, acceleration) → size, or 0.
lz4_compress: Final = _external("gzarr_lz4_compress", _i4, _i8, _i8, _i4, _i4, _i4)
lz4hc_state_nbytes: Final = _external("gzarr_lz4hc_state_nbytes", _i4)
#: (state, source, target, nbytes, capacity, level) → size, or 0.
lz4hc_compress: Final = _external("gzarr_lz4hc_compress", _i4, _i8, _i8, _i8, _i4, _i4, _i4)
#: (level, source, nbytes, target, capacity, split) → size, or 0.
blosclz_compress: Final = _external("gzarr_blosclz_compress", _i4, _i4, _i8, _i4, _i8, _i4, _i4)
#: (level) → context, or 0.
deflate_encoder: Final = _external("gzarr_deflate_encoder", _i8, _i4)
deflate_encoder_free: Final = _external("gzarr_deflate_encoder_free", _void, _i8)
#: (context, source, nbytes, target, capacity) → size, or 0.
gzip_compress: Final = _external("gzarr_gzip_compress", _i8, _i8, _i8, _i8, _i8, _i8)
zlib_compress: Final = _external("gzarr_zlib_compress", _i8, _i8, _i8, _i8, _i8, _i8)
deflate_compress: Final = _external("gzarr_deflate_compress", _i8, _i8, _i8, _i8, _i8, _i8)
c_create: Final = _external("gzarr_create", _i4, _i8, _i4, _i4)
c_pwrite: Final = _external("gzarr_pwrite", _i8, _i4, _i8, _i8, _i8)
c_fsync: Final = _external("gzarr_fsync", _i4, _i4)
c_rename: Final = _external("gzarr_rename", _i4, _i8, _i8)
c_unlink: Final = _external("gzarr_unlink", _i4, _i8)
c_mkdir: Final = _external("gzarr_mkdir", _i4, _i8, _i4)
c_access: Final = _external("gzarr_access", _i4, _i8, _i4)
c_memcmp: Final = _external("gzarr_memcmp", _i4, _i8, _i8, _i8)
c_yield: Final = _external("gzarr_yield", _i4)
#: (address of a page, nbytes, advice) → 0, or -1.
c_madvise: Final = _external("gzarr_madvise", _i4, _i8, _i8, _i4)
