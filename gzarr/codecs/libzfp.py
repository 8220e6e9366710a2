"""The zfp library by symbol: the copy in the package ``zfpy``, or the system's.

Headers: https://github.com/LLNL/zfp/blob/1.0.1/include/zfp.h. zfp does not check for the end of its input. So the input
is copied and padded with zeros to the longest stream that the parameters allow, and the number of bytes read is
compared with the number available.
"""

from __future__ import annotations

import contextlib
import ctypes
import ctypes.util
import math
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from . import shared_objects
from .buffers import Bytes, empty

if TYPE_CHECKING:
    from collections.abc import Iterator

#: zfp's types by its own numbers.
TYPES: Final = {1: np.dtype(np.int32), 2: np.dtype(np.int64), 3: np.dtype(np.float32), 4: np.dtype(np.float64)}
MAX_DIMENSIONS: Final = 4
_HEADER_FULL = 7
_HEADER_BYTES = 19  # 148 bits
_WORD_BYTES = 8
_MAX_BLOCK_BITS = 1 << 15  # maximum that a header can state

_SIZE, _POINTER, _UINT, _INT = ctypes.c_size_t, ctypes.c_void_p, ctypes.c_uint, ctypes.c_int
_SIGNATURES: Final[dict[str, tuple[Any, list[Any]]]] = {
    "stream_open": (_POINTER, [_POINTER, _SIZE]),
    "stream_close": (None, [_POINTER]),
    "zfp_stream_open": (_POINTER, [_POINTER]),
    "zfp_stream_close": (None, [_POINTER]),
    "zfp_stream_set_bit_stream": (None, [_POINTER, _POINTER]),
    "zfp_stream_rewind": (None, [_POINTER]),
    "zfp_stream_maximum_size": (_SIZE, [_POINTER, _POINTER]),
    "zfp_stream_set_reversible": (None, [_POINTER]),
    "zfp_stream_set_rate": (ctypes.c_double, [_POINTER, ctypes.c_double, _INT, _UINT, _INT]),
    "zfp_stream_set_precision": (_UINT, [_POINTER, _UINT]),
    "zfp_stream_set_accuracy": (ctypes.c_double, [_POINTER, ctypes.c_double]),
    "zfp_stream_set_params": (_INT, [_POINTER, _UINT, _UINT, _UINT, _INT]),
    "zfp_stream_params": (None, [_POINTER, *[ctypes.POINTER(_UINT)] * 3, ctypes.POINTER(_INT)]),
    "zfp_field_alloc": (_POINTER, []),
    "zfp_field_free": (None, [_POINTER]),
    "zfp_field_set_pointer": (None, [_POINTER, _POINTER]),
    "zfp_field_set_type": (_INT, [_POINTER, _INT]),
    "zfp_field_type": (_INT, [_POINTER]),
    "zfp_field_dimensionality": (_UINT, [_POINTER]),
    "zfp_field_size": (_SIZE, [_POINTER, ctypes.POINTER(_SIZE)]),
    **{f"zfp_field_set_size_{n}d": (None, [_POINTER, *[_SIZE] * n]) for n in range(1, MAX_DIMENSIONS + 1)},
    "zfp_read_header": (_SIZE, [_POINTER, _POINTER, _UINT]),
    "zfp_write_header": (_SIZE, [_POINTER, _POINTER, _UINT]),
    "zfp_compress": (_SIZE, [_POINTER, _POINTER]),
    "zfp_decompress": (_SIZE, [_POINTER, _POINTER]),
}


@dataclass(frozen=True)
class Parameters:
    """A mode of zfp.

    Attributes
    ----------
    mode
        ``"reversible"``, ``"expert"``, ``"fixed_accuracy"``, ``"fixed_rate"`` or ``"fixed_precision"``.
    values
        Parameters of the mode, respectively: none; minbits, maxbits, maxprec, minexp; tolerance; rate; precision.
    """

    mode: str
    values: tuple[int | float, ...] = ()


def _candidates() -> Iterator[str]:
    with contextlib.suppress(metadata.PackageNotFoundError):
        for file in metadata.files("zfpy") or ():
            if file.name.startswith(("libzfp", "zfp-", "zfp.")):
                yield str(file.locate())
    system = ctypes.util.find_library("zfp")
    if system is not None:
        yield system


@cache
def library() -> ctypes.CDLL | None:
    """Return the library, or None if none with all required functions is installed."""
    for path in _candidates():
        with contextlib.suppress(OSError, AttributeError):
            return shared_objects.load(path, _SIGNATURES)
    return None


class _Stream:
    """A zfp stream over a buffer, and a field; both live as long as this object."""

    def __init__(self, zfp: ctypes.CDLL, buffer: Bytes) -> None:
        self._zfp = zfp
        self._buffer = buffer
        self._bits = zfp.stream_open(buffer.ctypes.data, buffer.size)
        self.stream = zfp.zfp_stream_open(self._bits)
        self.field = zfp.zfp_field_alloc()

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self._zfp.zfp_field_free(self.field)
        self._zfp.zfp_stream_close(self.stream)
        self._zfp.stream_close(self._bits)

    def set_field(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        number = next(number for number, known in TYPES.items() if known == dtype)
        self._zfp.zfp_field_set_type(self.field, number)
        sizes = tuple(reversed(shape)) or (1,)
        getattr(self._zfp, f"zfp_field_set_size_{len(sizes)}d")(self.field, *sizes)

    def set_mode(self, parameters: Parameters, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        mode, values = parameters.mode, parameters.values
        if mode == "reversible":
            self._zfp.zfp_stream_set_reversible(self.stream)
        elif mode == "fixed_rate":
            number = next(number for number, known in TYPES.items() if known == dtype)
            self._zfp.zfp_stream_set_rate(self.stream, values[0], number, max(1, len(shape)), 0)
        elif mode == "fixed_precision":
            self._zfp.zfp_stream_set_precision(self.stream, values[0])
        elif mode == "fixed_accuracy":
            self._zfp.zfp_stream_set_accuracy(self.stream, values[0])
        elif not self._zfp.zfp_stream_set_params(self.stream, *values):
            raise ValueError(f"zfp does not accept these parameters of expert mode: {values}")

    def minimum_block_bits(self) -> int:
        minbits, maxbits, maxprec, minexp = _UINT(), _UINT(), _UINT(), _INT()
        self._zfp.zfp_stream_params(self.stream, *map(ctypes.byref, (minbits, maxbits, maxprec, minexp)))
        return minbits.value

    def maximum_nbytes(self) -> int:
        return int(self._zfp.zfp_stream_maximum_size(self.stream, self.field))


def _block_count(shape: tuple[int, ...]) -> int:
    return math.prod(-(-size // 4) for size in shape or (1,))


def _check_size(data: Bytes, minimum_block_bits: int, shape: tuple[int, ...]) -> None:
    # Every block takes at least that many bits, which keeps the padding in proportion to the data.
    if minimum_block_bits > _MAX_BLOCK_BITS or data.size < _block_count(shape) * minimum_block_bits // 8:
        raise ValueError(f"{data.size} bytes are too few for chunks of {shape} at {minimum_block_bits} bits per block")


def decompress(
    zfp: ctypes.CDLL,
    data: Bytes,
    shape: tuple[int, ...],
    dtypes: tuple[np.dtype[Any], ...],
    parameters: Parameters | None,
) -> npt.NDArray[Any]:
    """Decompress one stream.

    Parameters
    ----------
    zfp
        zfp library.
    data
        Stream, uint8 ``(n,)``.
    shape
        Shape of the output, up to 4 dimensions unless a header states others.
    dtypes
        Types that the header may state, among :data:`TYPES`, the last of them that of a stream without a header.
    parameters
        Mode of a stream without a header; None if a header states it.

    Raises
    ------
    ValueError
        If the stream is truncated, or its header disagrees with ``shape`` and ``dtypes``.
    """
    sizes, dtype = shape, dtypes[-1]
    if parameters is None:
        padded = np.zeros(data.size + _HEADER_BYTES + _WORD_BYTES, np.uint8)
        padded[: data.size] = data
        with _Stream(zfp, padded) as head:
            sizes, dtype = _read_header(zfp, head, shape, dtypes)
            minimum, most = head.minimum_block_bits(), head.maximum_nbytes()
    else:
        with _Stream(zfp, np.zeros(_WORD_BYTES, np.uint8)) as head:
            head.set_field(shape, dtype)
            head.set_mode(parameters, shape, dtype)
            minimum, most = head.minimum_block_bits(), head.maximum_nbytes()
    _check_size(data, minimum, sizes)
    # zfp's own bound holds for its encoder; one more bit per value is enough for corrupt streams.
    spare = _block_count(sizes) * 4 ** max(1, len(sizes)) // 8 + 16 * _WORD_BYTES
    padded = empty(max(data.size, most) + spare, "zfp")
    padded[: data.size] = data
    padded[data.size :] = 0
    output = np.empty(shape, dtype)
    with _Stream(zfp, padded) as stream:
        if parameters is None:
            _read_header(zfp, stream, shape, dtypes)
        else:
            stream.set_field(shape, dtype)
            stream.set_mode(parameters, shape, dtype)
        zfp.zfp_field_set_pointer(stream.field, output.ctypes.data)
        used = int(zfp.zfp_decompress(stream.stream, stream.field))
    if used == 0:
        raise ValueError("the stream cannot be decoded")
    # Streams end with a whole word, which some writers truncate after the last significant byte.
    if used > data.size + _WORD_BYTES - 1:
        raise ValueError(f"the data has {data.size} bytes, and ends before the stream does, at {used}")
    return output


def _read_header(
    zfp: ctypes.CDLL, stream: _Stream, shape: tuple[int, ...], dtypes: tuple[np.dtype[Any], ...]
) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Read and check the header; return the shape and the type that it states."""
    if not zfp.zfp_read_header(stream.stream, stream.field, _HEADER_FULL):
        raise ValueError("there is no zfp header")
    n = int(zfp.zfp_field_dimensionality(stream.field))
    sizes = (_SIZE * MAX_DIMENSIONS)()
    zfp.zfp_field_size(stream.field, sizes)
    found, dtype = tuple(reversed(sizes[:n])), TYPES.get(int(zfp.zfp_field_type(stream.field)))
    # numcodecs writes what its filters make, some of which flatten chunks, and chunks in both orders (of which one axis
    # is longer than 1) as if they were in order C: the same elements.
    alike = _long_axes(found) == _long_axes(shape) or found == (math.prod(shape),)
    if not alike or not isinstance(dtype, np.dtype) or dtype not in dtypes:
        raise ValueError(f"the header states {dtype} of {found}, expected {dtypes[-1]} of {shape or (1,)}")
    return found, dtype


def _long_axes(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(size for size in shape if size != 1)


def maximum_nbytes(zfp: ctypes.CDLL, shape: tuple[int, ...], dtype: np.dtype[Any], parameters: Parameters) -> int:
    """Return the maximum size in bytes of the output of :func:`compress`."""
    with _Stream(zfp, np.zeros(_WORD_BYTES, np.uint8)) as head:
        head.set_field(shape, dtype)
        head.set_mode(parameters, shape, dtype)
        return head.maximum_nbytes()


def compress(
    zfp: ctypes.CDLL, array: npt.NDArray[Any], parameters: Parameters, *, header: bool = False
) -> npt.NDArray[np.uint8]:
    """Compress an array of up to 4 dimensions of one of :data:`TYPES`."""
    shape = array.shape
    array = np.ascontiguousarray(array)
    output = empty(maximum_nbytes(zfp, shape, array.dtype, parameters) + 16 * _WORD_BYTES, "zfp")
    with _Stream(zfp, output) as stream:
        stream.set_field(shape, array.dtype)
        stream.set_mode(parameters, shape, array.dtype)
        zfp.zfp_field_set_pointer(stream.field, array.ctypes.data)
        if header and not zfp.zfp_write_header(stream.stream, stream.field, _HEADER_FULL):
            raise ValueError(f"zfp has no header for {array.dtype} of {shape}")
        nbytes = int(zfp.zfp_compress(stream.stream, stream.field))
    if not nbytes:
        raise ValueError("zfp could not compress the array")
    return output[:nbytes].copy()
