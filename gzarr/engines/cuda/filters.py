"""Filters as kernels: which filters a device undoes, bit for bit as NumPy does, and how.

A filter is a function of bytes, whatever the kind of its codec: it turns elements of one type into the same number of
elements of another type, in memory order. The CPU undoes filters whose results might differ in any bit: sums of floats,
arithmetic in float16, and floats that may not fit the integers they become. It also undoes filters that may fail for
some values, such as integer arithmetic that may overflow.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import numpy as np

from ...codecs.arithmetic import adds_integers, filter_types, line_of
from ...codecs.cast_value import CastValueCodec
from ...codecs.codec import ArrayRepresentation
from ...codecs.numcodecs_adapter import NumcodecsCodec
from ...codecs.packbits import PackbitsCodec
from ...codecs.scale_offset import ScaleOffsetCodec
from ...dtypes import fill_value
from ...dtypes.properties import bits, component, kind_of

if TYPE_CHECKING:
    import numpy.typing as npt

    from ...codecs.codec import Codec, Representation
    from .columns import Columns

    IntArray = npt.NDArray[np.int64]

FilterCodec: TypeAlias = NumcodecsCodec | PackbitsCodec | ScaleOffsetCodec | CastValueCodec

#: Filters of numcodecs that treat each element independently.
_ELEMENTWISE: Final = frozenset(("astype", "bitround", "fixedscaleoffset", "quantize"))
_BYTE: Final = np.dtype("u1")


@dataclass(frozen=True, slots=True)
class BitPacking:
    """How the bits of elements are packed in a chunk and within a byte.

    Attributes
    ----------
    kept
        Number of bits stored for each element.
    first_bit
        Position in the element of the lowest stored bit.
    sign_stop
        The highest stored bit is repeated up to this position, exclusive; 0 for no sign extension.
    from_highest
        Whether the first bit of a byte is its highest.
    body_at
        Index of the byte where the bits begin.
    padding_at
        Index of the byte that holds the number of padding bits at the end; -1 for none.
    """

    kept: int = 1
    first_bit: int = 0
    sign_stop: int = 0
    from_highest: bool = False
    body_at: int = 0
    padding_at: int = -1


@dataclass(frozen=True, slots=True)
class Filter:
    """One filter, undone by one launch.

    Attributes
    ----------
    kernel
        Kernel of ``gzarr_kernels.device``.
    encoded, decoded
        Data types before and after, with byte order.
    encoded_nbytes, decoded_nbytes
        Bytes of a chunk before and after.
    loop
        Bytes of the float type in which elements are divided by ``scale`` and added to ``offset``; 0 for no arithmetic.
    scale, offset
        Finite numbers; ``scale`` is not 0.
    packing
        Packing for ``unpack_bits``, else None.
    """

    kernel: Literal["accumulate", "convert", "unpack_bits"]
    encoded: np.dtype[Any]
    decoded: np.dtype[Any]
    encoded_nbytes: int
    decoded_nbytes: int
    loop: int = 0
    scale: float = 1.0
    offset: float = 0.0
    packing: BitPacking | None = None

    @property
    def marks(self) -> bool:
        """Whether chunks may be faulty in a way that only the kernel can detect."""
        return self.packing is not None and self.packing.padding_at >= 0

    def launch(self, columns: Columns, source: IntArray, target: IntArray, marks: int) -> tuple[Any, int, int]:
        """Write the columns of the kernel for some chunks.

        Parameters
        ----------
        columns
            Columns of the wave, to append to.
        source, target
            int64 ``(n,)``, byte offsets of each chunk before and after the filter.
        marks
            Index of a column with one row per chunk, for kernels that mark faulty chunks.

        Returns
        -------
        The kernel, the number of blocks to launch, and the index of the kernel's header.
        """
        from gzarr_kernels.device import filters as f
        from gzarr_kernels.device import packed_bits as p
        from gzarr_kernels.device.target import blocks

        n = len(source)
        packing = self.packing
        if packing is not None:
            header = p.job(
                columns.put, source, target, self.decoded_nbytes, width=self.decoded.itemsize, kept=packing.kept,
                first_bit=packing.first_bit, sign_stop=packing.sign_stop, from_highest=packing.from_highest,
                body_at=packing.body_at, padding_at=packing.padding_at, marks=marks,
            )  # fmt: skip
            return p.unpack_bits, p.blocks(n, self.decoded_nbytes), header
        header = f.job(columns.put, self._header(), source, target, self.decoded_nbytes)
        count = blocks(n) if self.kernel == "accumulate" else f.blocks(n, self.decoded_nbytes)
        return getattr(f, self.kernel), count, header

    def when_placing(self, dtype: np.dtype[Any], swap: int) -> Filter | None:
        """Return the filter as the kernel undoes it that places elements, or None if it cannot.

        Parameters
        ----------
        dtype
            Data type of the elements that are placed.
        swap
            Width in bytes of the units to byte-swap after the filter; 0 for none.
        """
        swaps = 0 if self.decoded.isnative else self.decoded.itemsize
        # Offsets of fields are those of decoded elements.
        if self.kernel != "convert" or self.decoded.itemsize != dtype.itemsize or swap != swaps or dtype.names:
            return None
        return replace(self, decoded=self.decoded.newbyteorder("="))

    def put_conversion(self, columns: Columns) -> int:
        """Write the header of the conversion for the kernel that places elements, and return its index."""
        return columns.put(self._header())

    def _header(self) -> IntArray:
        from gzarr_kernels.device.filters import header_of

        return header_of(self.encoded, self.decoded, self.loop, self.scale, self.offset)


def is_elementwise(codec: Codec) -> bool:
    """Return whether a codec is a filter of arrays whose result does not depend on the order of the elements."""
    if isinstance(codec, NumcodecsCodec):
        return codec.id in _ELEMENTWISE
    return isinstance(codec, ScaleOffsetCodec | CastValueCodec)


def device_filters(
    codec: FilterCodec, encoded: Representation, decoded: Representation, swap: int
) -> tuple[Filter, ...] | None:
    """Return the steps in which the device undoes a filter, at most one; None if it cannot.

    Parameters
    ----------
    codec
        Any codec of numcodecs, or one of the other filters.
    encoded, decoded
        Representations before and after decoding.
    swap
        Width in bytes of the units that still have to be byte-swapped before the filter; 0 or 1 for none. The returned
        step swaps them too; without a step, the caller still has to.
    """
    if isinstance(codec, NumcodecsCodec) and codec.id == "bitround":
        return ()
    if encoded.nbytes is None or decoded.nbytes is None:
        return None
    if isinstance(codec, NumcodecsCodec):
        found = _filter(codec, encoded.nbytes, decoded.nbytes, getattr(decoded, "dtype", None))
    else:
        assert isinstance(decoded, ArrayRepresentation)
        if isinstance(codec, PackbitsCodec):
            found = _unpacked(codec, encoded.nbytes, decoded)
        elif isinstance(codec, ScaleOffsetCodec):
            found = _on_a_line(codec, decoded)
        else:
            found = _cast(codec, decoded)
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
        packing = BitPacking(from_highest=True, body_at=1, padding_at=0)
        return Filter("unpack_bits", _BYTE, np.dtype("?"), encoded_nbytes, decoded_nbytes, packing=packing)
    if codec.id not in ("astype", "delta", "fixedscaleoffset", "quantize"):
        return None
    encoded, decoded = filter_types(codec.id, codec.configuration, array_dtype)
    if encoded.kind not in "biuf" or decoded.kind not in "biuf":
        return None
    if codec.id == "delta":
        integers = adds_integers(encoded, decoded)
        return Filter("accumulate", encoded, decoded, encoded_nbytes, decoded_nbytes) if integers else None
    if codec.id == "fixedscaleoffset":
        line = line_of(encoded, decoded, codec.configuration["scale"], codec.configuration["offset"])
        if line is None:
            return None
        return Filter(
            "convert", encoded, decoded, encoded_nbytes, decoded_nbytes,
            loop=line.middle, scale=line.scale, offset=line.offset,
        )  # fmt: skip
    return Filter("convert", encoded, decoded, encoded_nbytes, decoded_nbytes) if _converts(encoded, decoded) else None


def _converts(encoded: np.dtype[Any], decoded: np.dtype[Any]) -> bool:
    """Return whether the kernel converts all elements exactly as NumPy does."""
    if encoded.newbyteorder("=") == decoded.newbyteorder("="):
        return True
    if decoded.kind == "f":
        return decoded.itemsize > 2
    return encoded.kind != "f"


def _unpacked(codec: PackbitsCodec, encoded_nbytes: int, decoded: ArrayRepresentation) -> Filter | None:
    """Return the filter that unpacks bits; a complex number counts as two real ones."""
    part = component(decoded.dtype)
    width = bits(part)
    first = codec.first_bit or 0
    kept = (width if codec.last_bit is None else codec.last_bit + 1) - first
    # The kernel needs only the size of the elements, not their type.
    unit = np.dtype(f"u{part.itemsize}")
    if kept == 8 * part.itemsize:
        # Whole elements, little-endian like the hosts of GPUs. With a padding byte the CPU decodes: there is no padding
        # then, and some writers omit the byte.
        stored = Filter("convert", unit, unit, decoded.nbytes, decoded.nbytes)
        return stored if codec.padding_encoding == "none" else None
    packing = BitPacking(
        kept=kept,
        first_bit=first,
        sign_stop=width if kind_of(part) in "imM" else 0,
        body_at=1 if codec.padding_encoding == "first_byte" else 0,
        padding_at={"none": -1, "first_byte": 0, "last_byte": encoded_nbytes - 1}[codec.padding_encoding],
    )
    return Filter("unpack_bits", _BYTE, unit, encoded_nbytes, decoded.nbytes, packing=packing)


def _on_a_line(codec: ScaleOffsetCodec, decoded: ArrayRepresentation) -> Filter | None:
    """Return the filter that divides floats by a scale and adds an offset; for integers, only the identity."""
    dtype, nbytes = decoded.dtype, decoded.nbytes
    if dtype.isbuiltin != 1 or dtype == np.dtype("f2"):
        return None
    offset, scale = (fill_value.from_v3(value, dtype, dtype.name) for value in (codec.offset, codec.scale))
    if dtype.kind == "f":
        # Other numbers may produce NaN, whose bits differ between GPU and CPU.
        if not (np.isfinite(scale) and np.isfinite(offset) and scale):
            return None
        return Filter(
            "convert", dtype, dtype, nbytes, nbytes, loop=dtype.itemsize, scale=float(scale), offset=float(offset)
        )
    return Filter("convert", dtype, dtype, nbytes, nbytes) if (scale, offset) == (1, 0) else None


def _cast(codec: CastValueCodec, decoded: ArrayRepresentation) -> Filter | None:
    """Return the filter that converts stored numbers to the array's data type."""
    encoded, dtype = codec.dtype, decoded.dtype
    if not codec.converts(dtype):
        return None
    return Filter("convert", encoded, dtype, decoded.nbytes // dtype.itemsize * encoded.itemsize, decoded.nbytes)
