"""nvCOMP 5 and 6: the library, and its C batched decompression, called through ctypes.

Source: the headers in the wheels ``nvidia-libnvcomp-cu13`` and ``nvidia-libnvcomp-cu12`` (``nvcomp/zstd.h`` and its
neighbours); a test compares every function and type used here with them. According to them, corrupt zstd, snappy,
deflate and gdeflate frames are *undefined behaviour*, and errors need not be reported: a flipped bit in a frame may
lead to a status, wrong bytes, or a fault that ends the process's use of the device (:mod:`gzarr.engines.cuda.loss`).
Only LZ4's kernels are documented to check their input. So headers and sizes are checked first
(``gzarr_kernels/frames.py``), and whole frames if the caller asks for it (``verify="cpu"``).

Versions differ in two things that are used here:

- the scratch-size query (:data:`TEMP_SIZE`), between 5 and 6;
- the largest decoded frame, which headers before 5.2 do not state.

Algorithms, names and limits are in ``gzarr_kernels.operations.ALGORITHMS``.
"""

from __future__ import annotations

import ctypes
import importlib.util
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gzarr_kernels.operations import ALGORITHMS

from ...errors import DeviceError
from ...installing import COMMANDS

if TYPE_CHECKING:
    from .device_protocol import CoderBatch

#: Major version → the scratch-size query: suffix of its name, and whether it takes a stream as its last argument.
TEMP_SIZE: Final = {6: ("GetTempSize", True), 5: ("GetTempSizeAsync", False)}
_SUCCESS: Final = 0

#: Suffix of a function's name → types of its parameters. All functions return a status.
Signatures = dict[str, tuple[Any, ...]]


class Options(ctypes.Structure):
    """Options of a decompression; zeros are every algorithm's default."""

    _fields_ = (("backend", ctypes.c_int), ("reserved", ctypes.c_char * 60))


#: ``NVCOMP_DECOMPRESS_BACKEND_DEFAULT`` and ``NVCOMP_DECOMPRESS_BACKEND_CUDA``.
DEFAULT_BACKEND: Final = 0
CUDA_BACKEND: Final = 2


class Alignments(ctypes.Structure):
    """``nvcompAlignmentRequirements_t``."""

    _fields_ = (("input", ctypes.c_size_t), ("output", ctypes.c_size_t), ("temp", ctypes.c_size_t))


class Properties(ctypes.Structure):
    """``nvcompProperties_t``: 6000 means nvCOMP 6.0.0, 13020 means CUDA 13.2."""

    _fields_ = (("version", ctypes.c_uint32), ("cudart_version", ctypes.c_uint32))


def options(algorithm: str) -> Options:
    """Return the decompression options of an algorithm."""
    return Options(backend=CUDA_BACKEND if ALGORITHMS[algorithm].cuda_backend else DEFAULT_BACKEND)


_size, _pointer = ctypes.c_size_t, ctypes.c_void_p
#: Functions with the same parameters in all versions; names begin with ``nvcompBatched<Algorithm>Decompress``.
SIGNATURES: Final[Signatures] = {
    "GetRequiredAlignments": (Options, _pointer),
    "Async": (
        _pointer, _pointer, _pointer, _pointer, _size, _pointer, _size, _pointer, Options, _pointer, _pointer,
    ),
}  # fmt: skip


def temp_size_signature(major: int, options: type[ctypes.Structure]) -> Signatures:
    """Return a version's scratch-size query; it takes frames, largest bytes, options, result, and total bytes."""
    suffix, takes_stream = TEMP_SIZE[major]
    parameters = (_size, _size, options, _pointer, _size)
    return {suffix: (*parameters, _pointer) if takes_stream else parameters}


@dataclass(frozen=True)
class Library:
    """A loaded nvCOMP library.

    Attributes
    ----------
    functions
        Its functions, by name.
    version
        For example ``(6, 0, 0)``.
    cuda
        Major version of CUDA that it was built for.
    """

    functions: ctypes.CDLL
    version: tuple[int, int, int]
    cuda: int

    @property
    def title(self) -> str:
        """The version as text, for example ``6.0.0``."""
        return ".".join(map(str, self.version))

    def largest_frame(self, algorithm: str) -> int:
        """Return the decoded bytes of the largest frame that may be decoded; the CPU decodes larger ones."""
        row = ALGORITHMS[algorithm]
        before_5_2 = row.largest_decoded_before_5_2 or row.largest_decoded
        return row.largest_decoded if self.version >= (5, 2, 0) else before_5_2

    def lacks(self) -> list[str]:
        """Return descriptions of the features that this version lacks, compared with the newest."""
        return [
            f"{algorithm} frames above {self.largest_frame(algorithm) >> 20} MiB"
            for algorithm, row in ALGORITHMS.items()
            if self.largest_frame(algorithm) < row.largest_decoded
        ]


@cache
def load() -> Library:
    """Return the newest nvCOMP of the wheel, or else of the system.

    Raises
    ------
    DeviceError
        If none can be loaded.
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
        f"nvCOMP {majors} cannot be loaded ({reasons[0]}); install it with {COMMANDS['cuda13']} (or 'gzarr[cuda12]')"
    )


def identified(functions: Any) -> Library:
    """Return a library with the version that it reports.

    Raises
    ------
    DeviceError
        If it reports none, or a version that gzarr does not support.
    """
    properties = Properties()
    try:
        query = functions["nvcompGetProperties"]
    except AttributeError as error:
        raise DeviceError(f"this nvCOMP does not report its version: {error}; reinstall it") from None
    query.argtypes, query.restype = (_pointer,), ctypes.c_int
    status = query(ctypes.byref(properties))
    if status != _SUCCESS:
        raise DeviceError(f"nvcompGetProperties failed with status {status}")
    major, rest = divmod(properties.version, 1000)
    library = Library(functions, (major, *divmod(rest, 100)), properties.cudart_version // 1000)
    if major not in TEMP_SIZE:
        raise DeviceError(
            f"nvCOMP {library.title} was loaded; gzarr supports versions {min(TEMP_SIZE)} to {max(TEMP_SIZE)}"
        )
    return library


class Functions:
    """The functions of one algorithm in one direction, with their parameters in the loaded version.

    Parameters
    ----------
    library
        Library that has the functions.
    prefix
        Prefix of their names, such as ``nvcompBatchedZstdDecompress``.
    signatures
        Signatures of the functions that are the same in all versions.
    options
        Options for every call.

    Raises
    ------
    DeviceError
        If the library lacks one of the functions.
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
                raise DeviceError(f"this nvCOMP ({library.title}) lacks a function that gzarr calls: {error}") from None
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
        """Return the bytes of scratch for a batch."""
        nbytes = ctypes.c_size_t()
        total_and_stream = (total, None) if self._takes_stream else (total,)
        self.call(self._temp_size, frames, largest, self._options, ctypes.byref(nbytes), *total_and_stream)
        return int(nbytes.value)


class NvcompDecompressor:
    """One algorithm; see :class:`gzarr.engines.cuda.device_protocol.Decompressor`.

    Parameters
    ----------
    algorithm
        Name of an algorithm in ``gzarr_kernels.operations.ALGORITHMS``.
    library
        nvCOMP; None for the result of :func:`load`.

    Raises
    ------
    DeviceError
        If the library cannot be loaded, or lacks a function.
    """

    def __init__(self, algorithm: str, library: Library | None = None) -> None:
        library = library or load()
        prefix = f"nvcompBatched{ALGORITHMS[algorithm].nvcomp}Decompress"
        self._options = options(algorithm)
        self._functions = Functions(library, prefix, SIGNATURES, self._options)
        self.max_frame_bytes: int = library.largest_frame(algorithm)
        self.input_alignment: int
        self.output_alignment: int
        self.temp_alignment: int
        self.input_alignment, self.output_alignment, self.temp_alignment = self._functions.alignments()

    def temp_nbytes(self, frames: int, largest: int, total: int) -> int:
        """Return the bytes of scratch for a batch."""
        return self._functions.temp_nbytes(frames, largest, total)

    def run(self, stream: Any, batch: CoderBatch) -> None:
        """Enqueue one batch on a CuPy stream."""
        b = batch
        self._functions.call(
            "Async", b.sources, b.source_nbytes, b.target_nbytes, b.produced, b.frames, b.temp, b.temp_nbytes,
            b.targets, self._options, b.statuses, stream.ptr,
        )  # fmt: skip
