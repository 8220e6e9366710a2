"""Blosc and Zstandard by symbol, from the libraries inside numcodecs' extension modules; GDeflate from nvCOMP.

The functions called here respect the output's capacity, start no threads and keep no global state, so they may be
called from any thread and after ``fork``. Where an extension does not export them (Windows), or cannot be kept apart
from another library that has them (``shared_objects.py``), callers use numcodecs' Python functions instead.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..importing import import_module
from ..reasons import reason_of
from . import shared_objects
from .buffers import Bytes, empty, flat

if TYPE_CHECKING:
    from collections.abc import Callable

    from .shared_objects import Signatures

_SIZE = ctypes.c_size_t
_DESTINATION_TOO_SMALL = 70
_ZSTD_MAGIC, _ZSTD_HEADER_BYTES = b"\x28\xb5\x2f\xfd", 18
#: More than a block header plus one word of each of the 32 streams.
_GDEFLATE_HEADER_BYTES = 8192


def _load(module: str, signatures: Signatures) -> ctypes.CDLL | None:
    try:
        return shared_objects.load(import_module(module).__file__ or "", signatures)
    except (OSError, AttributeError):
        return None


@cache
def zstd() -> ctypes.CDLL | None:
    """Return the Zstandard library, or None if its symbols are not exported."""
    p = ctypes.c_void_p
    return _load(
        "numcodecs.zstd",
        {
            "ZSTD_decompress": (_SIZE, [p, _SIZE, p, _SIZE]),
            "ZSTD_getFrameContentSize": (ctypes.c_ulonglong, [p, _SIZE]),
            "ZSTD_isError": (ctypes.c_uint, [_SIZE]),
            "ZSTD_getErrorName": (ctypes.c_char_p, [_SIZE]),
        },
    )


@cache
def xxhash32() -> Callable[[Bytes, int], int] | None:
    """Return xxHash32 of bytes with a seed, from the Zstandard library; None if it does not export it."""
    library = _load("numcodecs.zstd", {"ZSTD_XXH32": (ctypes.c_uint, [ctypes.c_void_p, _SIZE, ctypes.c_uint])})
    return None if library is None else lambda data, seed: int(library.ZSTD_XXH32(data.ctypes.data, data.size, seed))


@cache
def blosc() -> ctypes.CDLL | None:
    """Return the Blosc library, or None if its symbols are not exported."""
    i, p = ctypes.c_int, ctypes.c_void_p
    return _load(
        "numcodecs.blosc",
        {
            "blosc_decompress_ctx": (i, [p, p, _SIZE, i]),
            "blosc_compname_to_compcode": (i, [ctypes.c_char_p]),
            "blosc_compress_ctx": (i, [i, i, _SIZE, _SIZE, p, p, _SIZE, ctypes.c_char_p, _SIZE, i]),
        },
    )


def zstd_frame_content_size(data: Bytes) -> int | None:
    """Return the content size in the first frame's header, or None."""
    library = zstd()
    if library is None:
        return _stated_size(data[:_ZSTD_HEADER_BYTES].tobytes())
    size = int(library.ZSTD_getFrameContentSize(data.ctypes.data, data.size))
    return size if size < 2**63 else None


def _stated_size(header: bytes) -> int | None:
    """Return the content size in the header of a frame (RFC 8878, 3.1.1.1), or None."""
    if len(header) < 5 or header[:4] != _ZSTD_MAGIC:
        return None
    flags = header[4]
    of_size, whole = flags >> 6, flags >> 5 & 1
    # After the window, unless the content is one segment, and the number of a dictionary.
    at = 5 + (1 - whole) + (0, 1, 2, 4)[flags & 3]
    nbytes = (whole, 2, 4, 8)[of_size]
    field = header[at : at + nbytes]
    if not nbytes or len(field) < nbytes:
        return None
    size = int.from_bytes(field, "little") + (256 if of_size == 1 else 0)
    return size if size < 2**63 else None


def zstd_decompress(data: Bytes, capacity: int) -> Bytes | None:
    """Decompress all frames into at most ``capacity`` bytes; return None if that is too few.

    Raises
    ------
    ValueError
        If ``data`` is corrupt.
    """
    library = zstd()
    output = empty(capacity, "zstd")
    if library is None:
        return _zstd_by_numcodecs(data, output)
    size = library.ZSTD_decompress(output.ctypes.data, capacity, data.ctypes.data, data.size)
    if library.ZSTD_isError(size):
        # Errors are negated codes, as unsigned numbers.
        if 2 ** (8 * ctypes.sizeof(_SIZE)) - size == _DESTINATION_TOO_SMALL:
            return None
        raise ValueError(f"zstd: {library.ZSTD_getErrorName(size).decode()}")
    return output[:size]


def _zstd_by_numcodecs(data: Bytes, output: Bytes) -> Bytes | None:
    """Decompress all frames, into ``output`` if they fill it; return None if it is too small."""
    from numcodecs.zstd import decompress

    stated = zstd_frame_content_size(data)
    if stated is not None and stated > output.size:
        return None
    try:
        try:
            decompress(data, output)
            if stated == output.size:
                return output
        except (RuntimeError, ValueError) as error:
            if "too small" in str(error):
                return None
            if "expected to decompress" not in str(error):
                raise
        # They fit, but numcodecs does not say how many bytes they are unless it makes the buffer.
        return flat(decompress(data))
    except Exception as error:
        raise ValueError(f"zstd: {reason_of(error)}") from None


class _GDeflatePage(ctypes.Structure):
    _fields_ = (("data", ctypes.c_void_p), ("nbytes", _SIZE))


@cache
def gdeflate() -> Callable[[Bytes, int], Bytes] | None:
    """Return a decoder of one GDeflate frame of up to 64 KiB, or None if nvCOMP's CPU library is not installed.

    It takes the frame and its decoded size in bytes, and raises ValueError if the frame is corrupt.
    """
    library = _nvcomp_cpu()
    if library is None:
        return None

    def decode(data: Bytes, nbytes: int) -> Bytes:
        output = empty(nbytes, "gdeflate")
        produced = _SIZE()
        # The library does not check for the end of its input, so the frame is padded with ones: as a block header they
        # are an error; as symbols, they fill the output soon, at no more than two bytes of input per byte of output.
        padded = np.full(data.size + 4 * nbytes + _GDEFLATE_HEADER_BYTES, 0xFF, np.uint8)
        padded[: data.size] = data
        page = _GDeflatePage(padded.ctypes.data, data.size)
        # A decoder is a table of a few KiB for use by one thread at a time.
        decoder = library.libdeflate_alloc_gdeflate_decompressor()
        if not decoder:
            raise ValueError("gdeflate: not enough memory for a decoder")
        try:
            code = library.libdeflate_gdeflate_decompress(
                decoder, ctypes.byref(page), 1, output.ctypes.data, nbytes, ctypes.byref(produced)
            )
        finally:
            library.libdeflate_free_gdeflate_decompressor(decoder)
        if code:
            raise ValueError(f"gdeflate: the frame is corrupt (code {code})")
        return output[: produced.value]

    return decode


def _nvcomp_cpu() -> ctypes.CDLL | None:
    import importlib.util

    try:
        spec = importlib.util.find_spec("nvidia.libnvcomp")
    except ModuleNotFoundError:
        return None
    p = ctypes.c_void_p
    signatures: Signatures = {
        "libdeflate_alloc_gdeflate_decompressor": (p, []),
        "libdeflate_free_gdeflate_decompressor": (None, [p]),
        "libdeflate_gdeflate_decompress": (ctypes.c_int, [p, p, _SIZE, p, _SIZE, p]),
    }
    folders = [] if spec is None else list(spec.submodule_search_locations or ())
    for path in sorted(path for folder in folders for path in Path(folder).glob("lib*/libnvcomp_cpu.so.*")):
        with suppress(OSError, AttributeError):
            return shared_objects.load(str(path), signatures)
    return None
