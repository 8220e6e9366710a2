"""nvCOMP 6: its C batched compression, by ctypes.

Sources as for decompression (:mod:`gzarr.engines.cuda.nvcomp`). None of the encoders has the levels of its namesake for
CPUs; all are used with nvCOMP's default options.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final

from ...errors import DeviceError
from .nvcomp import Alignments, load

#: Algorithm → what its functions are called after, and the largest frame before compression, in bytes: the lower of
#: what the header has as a constant and of what it says about ``CompressAsync``.
ALGORITHMS: Final = {
    "zstd": ("Zstd", 16_000_000),
    "lz4": ("LZ4", 1 << 24),
    "snappy": ("Snappy", 1 << 24),
    "deflate": ("Deflate", 1 << 16),
    "gdeflate": ("Gdeflate", 1 << 16),
}
#: Of those whose options begin with an algorithm: high throughput, the default.
_DEFLATE_ALGORITHM: Final = 1
_SUCCESS: Final = 0


class Options(ctypes.Structure):
    """Options of a compression: zeros but for the first four bytes, which deflate and gdeflate have a number in."""

    _fields_ = (("first", ctypes.c_int), ("reserved", ctypes.c_char * 60))


_size, _pointer = ctypes.c_size_t, ctypes.c_void_p
#: Parameters of the functions, behind ``nvcompBatched<Algorithm>Compress``; all return a status.
SIGNATURES: Final[dict[str, tuple[Any, ...]]] = {
    "GetRequiredAlignments": (Options, _pointer),
    "GetTempSize": (_size, _size, Options, _pointer, _size, _pointer),
    "GetMaxOutputChunkSize": (_size, Options, _pointer),
    "Async": (
        _pointer, _pointer, _size, _size, _pointer, _size, _pointer, _pointer, Options, _pointer, _pointer,
    ),
}  # fmt: skip


def options(algorithm: str) -> Options:
    """Return the default options of an algorithm."""
    return Options(_DEFLATE_ALGORITHM if algorithm in ("deflate", "gdeflate") else 0)


class NvcompCompressor:
    """One algorithm; see :class:`gzarr.engines.cuda.device.Compressor`.

    Parameters
    ----------
    algorithm
        Of :data:`ALGORITHMS`.

    Raises
    ------
    DeviceError
        If the library cannot be loaded, or has no such functions.
    """

    def __init__(self, algorithm: str) -> None:
        name, self.max_frame_bytes = ALGORITHMS[algorithm]
        self._name = name
        self._options = options(algorithm)
        library = load()
        try:
            functions = {suffix: library[f"nvcompBatched{name}Compress{suffix}"] for suffix in SIGNATURES}
        except AttributeError as error:
            raise DeviceError(f"this nvCOMP has not what gzarr calls: {error}; gzarr needs version 6") from None
        for suffix, function in functions.items():
            function.argtypes = SIGNATURES[suffix]
            function.restype = ctypes.c_int
        self._functions = functions
        alignments = Alignments()
        self._call("GetRequiredAlignments", self._options, ctypes.byref(alignments))
        self.input_alignment = int(alignments.input)
        self.output_alignment = int(alignments.output)
        self.temp_alignment = int(alignments.temp)

    def _call(self, suffix: str, *arguments: Any) -> None:
        status = self._functions[suffix](*arguments)
        if status != _SUCCESS:
            raise DeviceError(f"nvcompBatched{self._name}Compress{suffix} failed with status {status}")

    def temp_nbytes(self, frames: int, largest: int, total: int) -> int:
        """Return the scratch that a batch takes."""
        nbytes = ctypes.c_size_t()
        self._call("GetTempSize", frames, largest, self._options, ctypes.byref(nbytes), total, None)
        return int(nbytes.value)

    def max_encoded_nbytes(self, largest: int) -> int:
        """Return the most bytes that a frame takes."""
        nbytes = ctypes.c_size_t()
        self._call("GetMaxOutputChunkSize", largest, self._options, ctypes.byref(nbytes))
        return int(nbytes.value)

    def run(
        self,
        stream: Any,
        *,
        frames: int,
        largest: int,
        sources: int,
        source_nbytes: int,
        targets: int,
        produced: int,
        statuses: int,
        temp: int,
        temp_nbytes: int,
    ) -> None:
        """Enqueue one batch on a CuPy stream."""
        self._call(
            "Async", sources, source_nbytes, largest, frames, temp, temp_nbytes, targets, produced, self._options,
            statuses, stream.ptr,
        )  # fmt: skip
