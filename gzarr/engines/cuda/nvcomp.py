"""nvCOMP 6: its C batched decompression, by ctypes.

Source: the headers in the wheel ``nvidia-libnvcomp-cu13`` (``nvcomp/zstd.h`` and its neighbours); a test compares every
function and type used here with them.
"""

from __future__ import annotations

import ctypes
import importlib.util
from functools import cache
from pathlib import Path
from typing import Any, Final

from ...errors import DeviceError

_MAJOR: Final = 6
_SONAME: Final = f"libnvcomp.so.{_MAJOR}"
#: Algorithm → what its functions are called after, and the largest decoded frame in bytes.
ALGORITHMS: Final = {
    "zstd": ("Zstd", 2**31 - 1),
    "lz4": ("LZ4", 2**32 - 1),
    "snappy": ("Snappy", 2**31 - 1),
    "deflate": ("Deflate", 2**32 - 1),
    "gdeflate": ("Gdeflate", 2**32 + 288),
}
_SUCCESS: Final = 0


class Options(ctypes.Structure):
    """Options of a decompression: zeros are every algorithm's default."""

    _fields_ = (("reserved", ctypes.c_char * 64),)


class Alignments(ctypes.Structure):
    """``nvcompAlignmentRequirements_t``."""

    _fields_ = (("input", ctypes.c_size_t), ("output", ctypes.c_size_t), ("temp", ctypes.c_size_t))


_size, _pointer = ctypes.c_size_t, ctypes.c_void_p
#: Parameters of the functions, behind ``nvcompBatched<Algorithm>Decompress``; all return a status.
SIGNATURES: Final[dict[str, tuple[Any, ...]]] = {
    "GetRequiredAlignments": (Options, _pointer),
    "GetTempSize": (_size, _size, Options, _pointer, _size, _pointer),
    "Async": (
        _pointer, _pointer, _pointer, _pointer, _size, _pointer, _size, _pointer, Options, _pointer, _pointer,
    ),
}  # fmt: skip


@cache
def load() -> ctypes.CDLL:
    """Return the library, of the wheel or the system.

    Raises
    ------
    DeviceError
        If there is none that can be loaded.
    """
    names = [_SONAME]
    try:
        found = importlib.util.find_spec("nvidia.libnvcomp")
    except ModuleNotFoundError:
        found = None
    for folder in (found.submodule_search_locations or []) if found is not None else []:
        names = [*map(str, sorted(Path(folder).glob(f"lib*/{_SONAME}"))), *names]
    reason = ""
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError as error:
            reason = str(error)
    raise DeviceError(
        f"nvCOMP {_MAJOR} cannot be loaded ({reason}); it comes with pip install 'gzarr[cuda13]' (or 'gzarr[cuda12]')"
    )


class NvcompDecompressor:
    """One algorithm; see :class:`gzarr.engines.cuda.device.Decompressor`.

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
        self._algorithm = algorithm
        library = load()
        try:
            functions = {suffix: library[f"nvcompBatched{name}Decompress{suffix}"] for suffix in SIGNATURES}
        except AttributeError as error:
            raise DeviceError(f"this nvCOMP has not what gzarr calls: {error}; gzarr needs version {_MAJOR}") from None
        for suffix, function in functions.items():
            function.argtypes = SIGNATURES[suffix]
            function.restype = ctypes.c_int
        self._functions = functions
        alignments = Alignments()
        self._call("GetRequiredAlignments", Options(), ctypes.byref(alignments))
        self.input_alignment = int(alignments.input)
        self.output_alignment = int(alignments.output)
        self.temp_alignment = int(alignments.temp)

    def _call(self, suffix: str, *arguments: Any) -> None:
        status = self._functions[suffix](*arguments)
        if status != _SUCCESS:
            name = ALGORITHMS[self._algorithm][0]
            raise DeviceError(f"nvcompBatched{name}Decompress{suffix} failed with status {status}")

    def _ask_temp_nbytes(self, frames: int, largest: int, total: int) -> int:
        nbytes = ctypes.c_size_t()
        self._call("GetTempSize", frames, largest, Options(), ctypes.byref(nbytes), total, None)
        return int(nbytes.value)

    def temp_nbytes(self, frames: int, largest: int, total: int) -> int:
        """Return the scratch that a batch takes."""
        return self._ask_temp_nbytes(frames, largest, total)

    def run(
        self,
        stream: Any,
        *,
        frames: int,
        largest: int,
        sources: int,
        source_nbytes: int,
        targets: int,
        target_nbytes: int,
        produced: int,
        statuses: int,
        temp: int,
        temp_nbytes: int,
    ) -> None:
        """Enqueue one batch on a CuPy stream."""
        self._call(
            "Async", sources, source_nbytes, target_nbytes, produced, frames, temp, temp_nbytes, targets, Options(),
            statuses, stream.ptr,
        )  # fmt: skip
