"""Which filters of numbers compiled code applies, and undoes as devices do: with numcodecs' arithmetic, exactly."""

from __future__ import annotations

import math
import platform
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from gzarr_kernels.slots.arithmetic import SIZE
from gzarr_kernels.slots.conversion import NONE, conversion
from gzarr_kernels.slots.packed_bits import FIRST

from .bitround import rounding
from .codec import EncodingStep, Operation
from .packbits import packing, unpacking

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Integers up to here are exact as float64.
_EXACT: Final = 2**53
#: Integers to which NumPy casts by way of int32. What does not fit becomes the least one on x86-64; other processors
#: have instructions that cast it to another number.
_PACKED: Final = ("i1", "u1", "i2", "u2", "i4") if platform.machine() in ("x86_64", "AMD64") else ()


class Line(NamedTuple):
    """The filter ``x / scale + offset``.

    Attributes
    ----------
    middle
        Bytes of the floating-point numbers in which it is computed.
    scale, offset
        Finite numbers; ``scale`` is not 0.
    """

    middle: int
    scale: float
    offset: float


def line_of(encoded: np.dtype[Any], decoded: np.dtype[Any], scale: Any, offset: Any) -> Line | None:
    """Return how NumPy computes ``(x / scale + offset).astype(decoded)``, or None if others may differ from it.

    Parameters
    ----------
    encoded, decoded
        Data types of the elements before and after, of any byte order.
    scale, offset
        Numbers of a document.
    """
    if "b" in (encoded.kind, decoded.kind) or np.dtype("f2") in (encoded.newbyteorder("="), decoded.newbyteorder("=")):
        return None
    if any(isinstance(number, int) and abs(number) > _EXACT for number in (scale, offset)):
        return None
    ends = np.zeros(2, encoded.newbyteorder("="))
    if encoded.kind != "f":
        limits = np.iinfo(encoded)
        ends[:] = limits.min, limits.max
    try:
        with np.errstate(all="ignore"):
            # As in numcodecs; the type of the result depends on that of the elements.
            results = (ends / scale) + offset
            numbers = np.array([scale, offset]).astype(results.dtype)
    except OverflowError:
        # numcodecs raises the error, if there are any chunks.
        return None
    if results.dtype not in (np.dtype("f4"), np.dtype("f8")) or not np.isfinite(numbers).all() or not numbers[0]:
        return None
    if decoded.kind != "f":
        # Rounding is monotonic, so all results lie between the results at the ends.
        limits = np.iinfo(decoded)
        if encoded.kind == "f" or not np.isfinite(results).all():
            return None
        if not all(limits.min <= math.trunc(end) <= limits.max for end in results.tolist()):
            return None
    return Line(results.dtype.itemsize, float(numbers[0]), float(numbers[1]))


def adds_integers(encoded: np.dtype[Any], decoded: np.dtype[Any]) -> bool:
    """Return whether NumPy adds up differences of these types as integers.

    It adds in the type that both promote to, which is a float for ``uint64`` and a signed type.
    """
    return encoded.kind in "iu" and decoded.kind in "iu" and np.result_type(encoded, decoded).kind in "iu"


def filter_types(
    name: str, configuration: Mapping[str, Any], dtype: np.dtype[Any] | None
) -> tuple[np.dtype[Any], np.dtype[Any]]:
    """Return the data types of a filter of numcodecs before and after, with byte order.

    Parameters
    ----------
    name, configuration
        Its name in numcodecs, and its parameters.
    dtype
        Data type of the array, which documents of version 3 may omit.
    """
    after = np.dtype(configuration.get("decode_dtype") or configuration.get("dtype") or dtype)
    return np.dtype(configuration.get("encode_dtype") or configuration.get("astype") or after), after


def compiled_filter(
    name: str, configuration: Mapping[str, Any], dtype: np.dtype[Any] | None
) -> tuple[Operation, ...] | None:
    """Return the native steps, at most one, that undo a filter of numcodecs; None if only numcodecs does.

    Parameters as for :func:`filter_types`.
    """
    if name == "bitround":
        return ()
    if name == "fletcher32":
        return (Operation(name),)
    if name == "packbits":
        return unpacking(1, 1, from_highest=True, padding_at=FIRST)
    if name not in ("astype", "delta", "fixedscaleoffset", "quantize"):
        return None
    encoded, decoded = filter_types(name, configuration, dtype)
    if not all(one.kind in "iuf" and one.isbuiltin == 1 and one.isnative for one in (encoded, decoded)):
        return None
    first = _conversion(encoded, decoded)
    if name == "delta":
        in_order = encoded == decoded and encoded.kind == "f" and encoded.itemsize >= 4
        if first is None or not (in_order or adds_integers(encoded, decoded)):
            return None
        return (_operation("delta", encoded, decoded, int(in_order), first),)
    if name == "fixedscaleoffset":
        line = line_of(encoded, decoded, configuration["scale"], configuration["offset"])
        return None if line is None else line_operation(encoded, decoded, line)
    if first == NONE:
        return ()
    return None if first is None else (_operation("line", encoded, decoded, 0, first),)


def filter_step(
    name: str, configuration: Mapping[str, Any], dtype: np.dtype[Any] | None, nbytes: int
) -> EncodingStep | None:
    """Return the native step that applies a filter of numcodecs to ``nbytes`` bytes; None if only numcodecs does.

    Other parameters as for :func:`filter_types`. For ``bitround``, ``dtype`` is always needed.
    """
    if name == "fletcher32":
        return EncodingStep(name, nbytes + 4)
    if name == "packbits":
        return packing(1, 1, from_highest=True, padding_at=FIRST, nbytes=nbytes)
    if name not in ("bitround", "delta", "fixedscaleoffset", "quantize"):
        return None
    encoded, decoded = filter_types(name, configuration, dtype)
    if not all(one.kind in "iuf" and one.isbuiltin == 1 and one.isnative for one in (encoded, decoded)):
        return None
    if name == "bitround":
        # NaNs are rounded as if they were numbers.
        largest = int(np.iinfo(f"i{decoded.itemsize}").max)
        return rounding(decoded, configuration["keepbits"], largest, nbytes) if decoded.kind == "f" else None
    if name == "fixedscaleoffset":
        return _packing_step(encoded, decoded, configuration["scale"], configuration["offset"], nbytes)
    floating = decoded.kind == "f"
    # What does not fit another type, numcodecs refuses in some places and cuts off in others.
    if encoded != decoded or (floating and decoded.itemsize < 4):
        return None
    if name == "delta":
        return EncodingStep(name, nbytes, (decoded.itemsize, int(floating)))
    scale = _quantum(configuration["digits"]) if floating else 0
    with np.errstate(over="ignore"):
        fits = bool(scale) and np.isfinite(np.array(scale).astype(decoded))
    return EncodingStep(name, nbytes, (decoded.itemsize, _bits_of(scale))) if fits else None


def _quantum(digits: float) -> float:
    """Return the power of two by which numcodecs multiplies before it rounds, or 0 if it has an error instead."""
    try:
        exponent = math.log10(10.0**-digits)
        exponent = math.floor(exponent) if exponent < 0 else math.ceil(exponent)
        return 2.0 ** math.ceil(math.log2(10.0**-exponent))
    except (ArithmeticError, ValueError):
        return 0


def line_step(line: Line, nbytes: int) -> EncodingStep:
    """Return the native step that computes ``(x - offset) * scale`` of ``nbytes`` bytes."""
    return EncodingStep("line", nbytes, (line.middle, _bits_of(line.scale), _bits_of(line.offset)))


def _packing_step(
    encoded: np.dtype[Any], decoded: np.dtype[Any], scale: Any, offset: Any, nbytes: int
) -> EncodingStep | None:
    """Return the native step that rounds ``(x - offset) * scale`` to integers, or None if it is not compiled."""
    if decoded.str[1:] not in ("f4", "f8") or (encoded != decoded and encoded.str[1:] not in _PACKED):
        return None
    try:
        with np.errstate(all="ignore"):
            numbers = np.array([scale, offset], np.float64).astype(decoded)
    except OverflowError:
        return None
    if not np.isfinite(numbers).all():
        return None
    made = 0 if encoded == decoded else encoded.itemsize
    parameters = (decoded.itemsize, *(_bits_of(number) for number in numbers.tolist()), 1, made)
    return EncodingStep("line", nbytes // decoded.itemsize * encoded.itemsize, parameters)


def _bits_of(number: float) -> int:
    return int(np.array(number, np.float64).view(np.int64))


def line_operation(encoded: np.dtype[Any], decoded: np.dtype[Any], line: Line) -> tuple[Operation, ...] | None:
    """Return the native step for a line, or None if its conversions are not compiled."""
    middle = np.dtype(f"f{line.middle}")
    first, second = _conversion(encoded, middle), _conversion(middle, decoded)
    if first is None or second is None:
        return None
    scale, offset = _bits_of(line.scale), _bits_of(line.offset)
    return (_operation("line", encoded, decoded, line.middle, first, second, scale, offset),)


def _conversion(source: np.dtype[Any], target: np.dtype[Any]) -> int | None:
    return conversion(source.str[1:], target.str[1:])


def _operation(name: str, encoded: np.dtype[Any], decoded: np.dtype[Any], *rest: int) -> Operation:
    """Return an operation with the parameters of ``gzarr_kernels.slots.arithmetic``; those that are left out are 0."""
    given = (encoded.itemsize, decoded.itemsize, *rest)
    return Operation(name, given + (0,) * (SIZE - len(given)))
