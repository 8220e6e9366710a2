"""nvCOMP 5 and 6: the library, and its C batched decompression, by ctypes.

Source: the headers in the wheels ``nvidia-libnvcomp-cu13`` and ``nvidia-libnvcomp-cu12`` (``nvcomp/zstd.h`` and its
neighbours); a test compares every function and type used here with them. They say that corrupt zstd, snappy, deflate
and gdeflate is *undefined behaviour*, and that errors need not be reported: a flipped bit within a frame may be a
status, wrong bytes, or a fault that ends the process's use of the device (:mod:`gzarr.engines.cuda.loss`). Only LZ4's
kernels are said to check what they read. So headers and sizes are checked before (``gzarr_kernels/frames.py``), and
frames where the caller asks for it (``verify="cpu"``).

Of what is used here, versions differ in

- the query of scratch (:data:`TEMP_SIZE`), between 5 and 6;
- the largest decoded frame, of which headers before 5.2 say nothing.

The algorithms, their names and limits are those of ``gzarr_kernels.operations.ALGORITHMS``.
"""

from __future__ import annotations

import ctypes
import importlib.util
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from gzarr_kernels.operations import ALGORITHMS

from ...errors import DeviceError

#: Major version → the query of scratch: what its name ends with, and whether it takes a stream behind the others.
TEMP_SIZE: Final = {6: ("GetTempSize", True), 5: ("GetTempSizeAsync", False)}
_SUCCESS: Final = 0

#: Parameters of functions, by what their names end with; all return a status.
Signatures = dict[str, tuple[Any, ...]]


class Options(ctypes.Structure):
    """Options of a decompression: zeros are every algorithm's default."""

    _fields_ = (("backend", ctypes.c_int), ("reserved", ctypes.c_char * 60))


#: ``NVCOMP_DECOMPRESS_BACKEND_DEFAULT`` and ``NVCOMP_DECOMPRESS_BACKEND_CUDA``.
DEFAULT_BACKEND: Final = 0
CUDA_BACKEND: Final = 2


class Alignments(ctypes.Structure):
    """``nvcompAlignmentRequirements_t``."""

    _fields_ = (("input", ctypes.c_size_t), ("output", ctypes.c_size_t), ("temp", ctypes.c_size_t))


class Properties(ctypes.Structure):
    """``nvcompProperties_t``: 6000 is nvCOMP 6.0.0, 13020 is CUDA 13.2."""

    _fields_ = (("version", ctypes.c_uint32), ("cudart_version", ctypes.c_uint32))


def options(algorithm: str) -> Options:
    """Return the options of every decompression by an algorithm."""
    return Options(backend=CUDA_BACKEND if ALGORITHMS[algorithm].cuda_backend else DEFAULT_BACKEND)


_size, _pointer = ctypes.c_size_t, ctypes.c_void_p
#: The functions whose parameters all versions share, behind ``nvcompBatched<Algorithm>Decompress``.
SIGNATURES: Final[Signatures] = {
    "GetRequiredAlignments": (Options, _pointer),
    "Async": (
        _pointer, _pointer, _pointer, _pointer, _size, _pointer, _size, _pointer, Options, _pointer, _pointer,
    ),
}  # fmt: skip


def temp_size_signature(major: int, options: type[ctypes.Structure]) -> Signatures:
    """Return the query of scratch of a version: frames, bytes of the largest, options, result, bytes of all."""
    suffix, takes_stream = TEMP_SIZE[major]
    parameters = (_size, _size, options, _pointer, _size)
    return {suffix: (*parameters, _pointer) if takes_stream else parameters}


@dataclass(frozen=True)
class Library:
    """nvCOMP, loaded.

    Attributes
    ----------
    functions
        By their names.
    version
        Such as ``(6, 0, 0)``.
    cuda
        The major version of the CUDA that it is for.
    """

    functions: ctypes.CDLL
    version: tuple[int, int, int]
    cuda: int

    @property
    def title(self) -> str:
        """For example ``6.0.0``."""
        return ".".join(map(str, self.version))

    def largest_frame(self, algorithm: str) -> int:
        """Return the bytes of the largest frame that is decoded; larger ones are the CPU's."""
        row = ALGORITHMS[algorithm]
        before_5_2 = row.largest_decoded_before_5_2 or row.largest_decoded
        return row.largest_decoded if self.version >= (5, 2, 0) else before_5_2

    def lacks(self) -> list[str]:
        """Return what the newest version has and this one has not, in words."""
        return [
            f"{algorithm} frames above {self.largest_frame(algorithm) >> 20} MiB"
            for algorithm, row in ALGORITHMS.items()
            if self.largest_frame(algorithm) < row.largest_decoded
        ]


@cache
def load() -> Library:
    """Return the library, of the wheel or the system; of several versions the newest.

    Raises
    ------
    DeviceError
        If there is none that can be loaded.
    """
    sonames = [f"libnvcomp.so.{major}" for major in sorted(TEMP_SIZE, reverse=True)]
    try:
        found = importlib.util.find_spec("nvidia.libnvcomp")
    except ModuleNotFoundError:
        found = None
    folders = [] if found is None else [Path(folder) for folder in found.submodule_search_locations or ()]
    names = [str(path) for name in sonames for folder in folders for path in sorted(folder.glob(f"lib*/{name}"))]
    reasons = []
    for name in [*names, *sonames]:
        try:
            return identified(ctypes.CDLL(name))
        except OSError as error:
            reasons.append(str(error))
    majors = " or ".join(str(major) for major in sorted(TEMP_SIZE))
    raise DeviceError(
        f"nvCOMP {majors} cannot be loaded ({reasons[0]}); "
        "it comes with pip install 'gzarr[cuda13]' (or 'gzarr[cuda12]')"
    )


def identified(functions: Any) -> Library:
    """Return a library with the version that it says it is.

    Raises
    ------
    DeviceError
        If it does not say, or is a version that gzarr does not know.
    """
    properties = Properties()
    try:
        query = functions["nvcompGetProperties"]
    except AttributeError as error:
        raise DeviceError(f"this nvCOMP does not tell its version: {error}; reinstall it") from None
    query.argtypes, query.restype = (_pointer,), ctypes.c_int
    status = query(ctypes.byref(properties))
    if status != _SUCCESS:
        raise DeviceError(f"nvcompGetProperties failed with status {status}")
    major, rest = divmod(properties.version, 1000)
    library = Library(functions, (major, *divmod(rest, 100)), properties.cudart_version // 1000)
    if major not in TEMP_SIZE:
        raise DeviceError(
            f"nvCOMP {library.title} was loaded; gzarr knows versions {min(TEMP_SIZE)} to {max(TEMP_SIZE)}"
        )
    return library


class Functions:
    """The functions of one algorithm in one direction, with the parameters that they have in the version loaded.

    Parameters
    ----------
    library
        Whose they are.
    prefix
        What their names begin with, such as ``nvcompBatchedZstdDecompress``.
    signatures
        Of those that all versions share.
    options
        Of every call.

    Raises
    ------
    DeviceError
        If the library has no such functions.
    """

    def __init__(self, library: Library, prefix: str, signatures: Signatures, options: ctypes.Structure) -> None:
        self._prefix = prefix
        self._options = options
        self._functions = {}
        self._temp_size, self._takes_stream = TEMP_SIZE[library.version[0]]
        queries = temp_size_signature(library.version[0], type(options))
        for suffix, parameters in (signatures | queries).items():
            try:
                function = library.functions[prefix + suffix]
            except AttributeError as error:
                raise DeviceError(f"this nvCOMP ({library.title}) has not what gzarr calls: {error}") from None
            function.argtypes, function.restype = parameters, ctypes.c_int
            self._functions[suffix] = function

    def call(self, suffix: str, *arguments: Any) -> None:
        """Call a function; raise DeviceError unless it succeeds."""
        status = self._functions[suffix](*arguments)
        if status != _SUCCESS:
            raise DeviceError(f"{self._prefix}{suffix} failed with status {status}")

    def alignments(self) -> tuple[int, int, int]:
        """Return the alignments of input, output and scratch."""
        found = Alignments()
        self.call("GetRequiredAlignments", self._options, ctypes.byref(found))
        return int(found.input), int(found.output), int(found.temp)

    def temp_nbytes(self, frames: int, largest: int, total: int) -> int:
        """Return the scratch that a batch takes."""
        nbytes = ctypes.c_size_t()
        total_and_stream = (total, None) if self._takes_stream else (total,)
        self.call(self._temp_size, frames, largest, self._options, ctypes.byref(nbytes), *total_and_stream)
        return int(nbytes.value)


class NvcompDecompressor:
    """One algorithm; see :class:`gzarr.engines.cuda.device_protocol.Decompressor`.

    Parameters
    ----------
    algorithm
        Of ``gzarr_kernels.operations.ALGORITHMS``.
    library
        The one that :func:`load` returns, if not given.

    Raises
    ------
    DeviceError
        If the library cannot be loaded, or has no such functions.
    """

    def __init__(self, algorithm: str, library: Library | None = None) -> None:
        library = library or load()
        prefix = f"nvcompBatched{ALGORITHMS[algorithm].nvcomp}Decompress"
        self._options = options(algorithm)
        self._functions = Functions(library, prefix, SIGNATURES, self._options)
        self.max_frame_bytes = library.largest_frame(algorithm)
        self.input_alignment, self.output_alignment, self.temp_alignment = self._functions.alignments()

    def temp_nbytes(self, frames: int, largest: int, total: int) -> int:
        """Return the scratch that a batch takes."""
        return self._functions.temp_nbytes(frames, largest, total)

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
        self._functions.call(
            "Async", sources, source_nbytes, target_nbytes, produced, frames, temp, temp_nbytes, targets,
            self._options, statuses, stream.ptr,
        )  # fmt: skip
