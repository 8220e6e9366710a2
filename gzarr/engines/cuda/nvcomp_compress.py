"""nvCOMP 5 and 6: its C batched compression, called through ctypes.

Sources as for decompression (:mod:`gzarr.engines.cuda.nvcomp`). The encoders do not have the compression levels of
their CPU counterparts; all are used with nvCOMP's default options.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, Final

from gzarr_kernels.operations import ALGORITHMS

from .nvcomp import Functions, Library, Signatures, load

if TYPE_CHECKING:
    from .device_protocol import CoderBatch


class Options(ctypes.Structure):
    """Options of a compression: zeros except for the first number, which deflate and gdeflate use."""

    _fields_ = (("first", ctypes.c_int), ("reserved", ctypes.c_char * 60))


_size, _pointer = ctypes.c_size_t, ctypes.c_void_p
#: Functions with the same parameters in all versions; names begin with ``nvcompBatched<Algorithm>Compress``.
SIGNATURES: Final[Signatures] = {
    "GetRequiredAlignments": (Options, _pointer),
    "GetMaxOutputChunkSize": (_size, Options, _pointer),
    "Async": (
        _pointer, _pointer, _size, _size, _pointer, _size, _pointer, _pointer, Options, _pointer, _pointer,
    ),
}  # fmt: skip


def options(algorithm: str) -> Options:
    """Return the default options of an algorithm."""
    return Options(ALGORITHMS[algorithm].encoder_algorithm)


class NvcompCompressor:
    """One algorithm; see :class:`gzarr.engines.cuda.device_protocol.Compressor`.

    Parameters
    ----------
    algorithm
        Name of an algorithm in ``gzarr_kernels.operations.ALGORITHMS``.
    library
        nvCOMP; None for the result of :func:`gzarr.engines.cuda.nvcomp.load`.

    Raises
    ------
    DeviceError
        If the library cannot be loaded, or lacks a function.
    """

    def __init__(self, algorithm: str, library: Library | None = None) -> None:
        row = ALGORITHMS[algorithm]
        self.max_frame_bytes: int = row.largest_encoded
        self._options = options(algorithm)
        self._functions = Functions(library or load(), f"nvcompBatched{row.nvcomp}Compress", SIGNATURES, self._options)
        self.input_alignment: int
        self.output_alignment: int
        self.temp_alignment: int
        self.input_alignment, self.output_alignment, self.temp_alignment = self._functions.alignments()

    def temp_nbytes(self, frames: int, largest: int, total: int) -> int:
        """Return the bytes of scratch for a batch."""
        return self._functions.temp_nbytes(frames, largest, total)

    def max_encoded_nbytes(self, largest: int) -> int:
        """Return the most bytes that a compressed frame takes."""
        nbytes = ctypes.c_size_t()
        self._functions.call("GetMaxOutputChunkSize", largest, self._options, ctypes.byref(nbytes))
        return int(nbytes.value)

    def run(self, stream: Any, batch: CoderBatch) -> None:
        """Enqueue one batch on a CuPy stream."""
        b = batch
        self._functions.call(
            "Async", b.sources, b.source_nbytes, b.largest, b.frames, b.temp, b.temp_nbytes, b.targets, b.produced,
            self._options, b.statuses, stream.ptr,
        )  # fmt: skip
