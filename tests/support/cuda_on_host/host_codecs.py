"""The codecs of the host behind nvCOMP's functions: whole frames, one at a time."""

from __future__ import annotations

import ctypes
import threading
import zlib
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import cramjam
import numcodecs
import numpy as np
from gzarr_kernels import libraries
from support.nvcomp_encoders import gdeflate_frame

from gzarr.codecs import native

if TYPE_CHECKING:
    from collections.abc import Callable

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
_ONE_CONTEXT = threading.Lock()


@cache
def _function(name: str, result: Any, *arguments: Any) -> Any:
    address, _ = libraries.decoder_addresses()[name]
    return ctypes.CFUNCTYPE(result, *arguments)(address)


@cache
def _zstd_context() -> int:
    context: int = _function("gzarr_zstd_create", ctypes.c_void_p)()
    return context


def _zstd(source: Bytes, target: Bytes) -> int | None:
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    decode = _function("gzarr_zstd_decompress", size, pointer, pointer, size, pointer, size)
    with _ONE_CONTEXT:
        nbytes: int = decode(_zstd_context(), target.ctypes.data, target.size, source.ctypes.data, source.size)
    return nbytes if nbytes <= target.size else None


def _lz4(source: Bytes, target: Bytes) -> int | None:
    pointer, size = ctypes.c_void_p, ctypes.c_int
    decode = _function("gzarr_lz4_decompress", size, pointer, pointer, size, size)
    nbytes: int = decode(source.ctypes.data, target.ctypes.data, source.size, target.size)
    return nbytes if nbytes >= 0 else None


def _snappy(source: Bytes, target: Bytes) -> int | None:
    try:
        return int(cramjam.snappy.decompress_raw_into(source.data, target.data))
    except cramjam.DecompressionError:
        return None


def _deflate(source: Bytes, target: Bytes) -> int | None:
    decoder = zlib.decompressobj(-15)
    try:
        decoded = decoder.decompress(source.tobytes(), target.size + 1)
    except zlib.error:
        return None
    if not decoder.eof or len(decoded) > target.size:
        return None
    target[: len(decoded)] = np.frombuffer(decoded, np.uint8)
    return len(decoded)


def _gdeflate(source: Bytes, target: Bytes) -> int | None:
    """The decoder of nvCOMP's library for CPUs, for frames of up to 64 KiB."""
    decode = native.gdeflate()
    assert decode is not None
    try:
        decoded = decode(source, target.size)
    except ValueError:
        return None
    target[: decoded.size] = decoded
    return decoded.size


def _deflated(data: bytes) -> bytes:
    encoder = zlib.compressobj(1, wbits=-15)
    return encoder.compress(data) + encoder.flush()


#: By algorithm: a function of a frame and its target that returns the bytes written, or None if it does not decode.
DECODERS: Final[dict[str, Callable[[Bytes, Bytes], int | None]]] = {
    "zstd": _zstd,
    "lz4": _lz4,
    "snappy": _snappy,
    "deflate": _deflate,
    "gdeflate": _gdeflate,
}
#: By algorithm: a function of bytes that returns a frame.
ENCODERS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "zstd": lambda data: bytes(numcodecs.Zstd(1).encode(data)),
    # Without the size that numcodecs puts before it.
    "lz4": lambda data: bytes(numcodecs.LZ4().encode(data))[4:],
    "snappy": lambda data: bytes(cramjam.snappy.compress_raw(data)),
    "deflate": _deflated,
    "gdeflate": gdeflate_frame,
}
