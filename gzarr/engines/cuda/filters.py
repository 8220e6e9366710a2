"""Filters of numcodecs as kernels: which of them a device undoes, to the bit as NumPy does, and how.

A filter is a function of bytes, whatever the kind of its codec: elements of one type in, as many of another out, in the
order in which they lie there. What cannot be promised to be equal in every bit is left to the CPU: sums of floats,
arithmetic in float16, floats that may not fit the integers that they become.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from ...codecs.codec import Representation
    from ...codecs.numcodecs_adapter import NumcodecsCodec
    from .columns import Columns

    IntArray = npt.NDArray[np.int64]

#: Filters that do to each element what does not depend on the others.
_ELEMENTWISE: Final = frozenset(("astype", "bitround", "fixedscaleoffset", "quantize"))
#: Integers up to here, of either sign, are float64.
_EXACT: Final = 2**53


@dataclass(frozen=True, slots=True)
class Filter:
    """One filter, undone by one launch.

    Attributes
    ----------
    kernel
        Of ``gzarr_kernels.device.filters``.
    encoded, decoded
        Elements before and after, in their byte order.
    encoded_nbytes, decoded_nbytes
        Of a chunk before and after.
    loop
        Bytes of the floats in which elements are divided by ``scale`` and added to ``offset``; 0 for neither.
    scale, offset
        Finite, ``scale`` not 0.
    """

    kernel: Literal["accumulate", "convert", "unpack_bits"]
    encoded: np.dtype[Any]
    decoded: np.dtype[Any]
    encoded_nbytes: int
    decoded_nbytes: int
    loop: int = 0
    scale: float = 1.0
    offset: float = 0.0

    @property
    def marks(self) -> bool:
        """Whether chunks may be faulty in a way that only the kernel sees."""
        return self.kernel == "unpack_bits"

    def launch(self, columns: Columns, source: IntArray, target: IntArray, marks: int) -> tuple[Any, int, int]:
        """Write the columns of the kernel for some chunks.

        Parameters
        ----------
        columns
            Where they go.
        source, target
            int64, byte offsets of each chunk and of where it goes.
        marks
            Index of a column, a row a chunk, for a kernel that marks faulty ones.

        Returns
        -------
        The kernel, how many blocks to launch, and the index of its header.
        """
        from gzarr_kernels.device import filters as f
        from gzarr_kernels.device.target import blocks

        header = f.job(
            columns.put, source, target, self.decoded_nbytes, encoded=self.encoded, decoded=self.decoded,
            loop=self.loop, scale=self.scale, offset=self.offset, marks=marks,
        )  # fmt: skip
        n = len(source)
        count = blocks(n) if self.kernel == "accumulate" else f.blocks(n, self.decoded_nbytes)
        return getattr(f, self.kernel), count, header


def is_elementwise(codec: NumcodecsCodec) -> bool:
    """Return whether a filter of arrays does the same in any order of the elements."""
    return codec.id in _ELEMENTWISE


def device_filters(
    codec: NumcodecsCodec, encoded: Representation, decoded: Representation, swap: int
) -> tuple[Filter, ...] | None:
    """Return how the device undoes a filter: in one step, in none, or not at all (None).

    Parameters
    ----------
    codec
        Any codec of numcodecs.
    encoded, decoded
        What it decodes, and what it gives.
    swap
        Width in bytes of the units that are still to be swapped before the filter; 0 or 1 for none. A step does that
        too; where there is none, it is left to what follows.
    """
    if codec.id == "bitround":
        return ()
    if encoded.nbytes is None or decoded.nbytes is None:
        return None
    found = _filter(codec, encoded.nbytes, decoded.nbytes, getattr(decoded, "dtype", None))
    if found is None:
        return None
    if found.kernel == "convert" and not found.loop and found.encoded == found.decoded:
        return ()
    if swap > 1:
        if swap != found.encoded.itemsize:
            return None
        found = replace(found, encoded=found.encoded.newbyteorder("S"))
    return (found,)


def _filter(
    codec: NumcodecsCodec, encoded_nbytes: int, decoded_nbytes: int, array_dtype: np.dtype[Any] | None
) -> Filter | None:
    if codec.id == "packbits":
        return Filter("unpack_bits", np.dtype("u1"), np.dtype("?"), encoded_nbytes, decoded_nbytes)
    if codec.id not in ("astype", "delta", "fixedscaleoffset", "quantize"):
        return None
    values = codec.configuration
    # Documents of v3 may leave out what the array's data type says already.
    decoded = np.dtype(values.get("decode_dtype") or values.get("dtype") or array_dtype)
    encoded = np.dtype(values.get("encode_dtype") or values.get("astype") or decoded)
    if encoded.kind not in "biuf" or decoded.kind not in "biuf":
        return None
    if codec.id == "delta":
        # NumPy adds in the type that both promote to; of u8 and a signed type, that is a float.
        integers = encoded.kind in "iu" and decoded.kind in "iu" and np.result_type(encoded, decoded).kind in "iu"
        return Filter("accumulate", encoded, decoded, encoded_nbytes, decoded_nbytes) if integers else None
    if codec.id == "fixedscaleoffset":
        return _scaled(encoded, decoded, encoded_nbytes, decoded_nbytes, values["scale"], values["offset"])
    return Filter("convert", encoded, decoded, encoded_nbytes, decoded_nbytes) if _converts(encoded, decoded) else None


def _converts(encoded: np.dtype[Any], decoded: np.dtype[Any]) -> bool:
    """Return whether the kernel makes the same elements of any others as NumPy does."""
    if encoded.newbyteorder("=") == decoded.newbyteorder("="):
        return True
    if decoded.kind == "f":
        return decoded.itemsize > 2
    return encoded.kind != "f"


def _scaled(
    encoded: np.dtype[Any], decoded: np.dtype[Any], encoded_nbytes: int, decoded_nbytes: int, scale: Any, offset: Any
) -> Filter | None:
    """Return the filter that divides by ``scale`` and adds ``offset``, or None where that may not be as in NumPy."""
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
            # As numcodecs has it; which float type that is, differs with the type of the elements.
            results = (ends / scale) + offset
            numbers = np.array([scale, offset]).astype(results.dtype)
    except OverflowError:
        # The CPU's error, if there are chunks.
        return None
    if results.dtype not in (np.dtype("f4"), np.dtype("f8")) or not np.isfinite(numbers).all() or not numbers[0]:
        return None
    if decoded.kind != "f":
        # Rounding keeps the order of numbers, so all results lie between those of the ends.
        limits = np.iinfo(decoded)
        if encoded.kind == "f" or not np.isfinite(results).all():
            return None
        if not all(limits.min <= math.trunc(end) <= limits.max for end in results.tolist()):
            return None
    return Filter(
        "convert", encoded, decoded, encoded_nbytes, decoded_nbytes,
        loop=results.dtype.itemsize, scale=float(numbers[0]), offset=float(numbers[1]),
    )  # fmt: skip
