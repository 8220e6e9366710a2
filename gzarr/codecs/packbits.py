"""The ``packbits`` codec: elements of a fixed number of bits, without gaps.

Specification: https://github.com/zarr-developers/zarr-extensions/tree/main/codecs/packbits

======  ==============================================================================================
Zarr    names
======  ==============================================================================================
v3      ``packbits`` (``numcodecs.packbits`` is an array→array codec, in :mod:`.numcodecs_adapter`)
v2      none: ``packbits`` is a numcodecs filter
======  ==============================================================================================

``{"name": "packbits", "configuration": {"padding_encoding": "first_byte", "first_bit": 0, "last_bit": 11}}``
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt
from gzarr_kernels.slots import packed_bits as slots

from ..documents.json import quote
from ..dtypes.properties import bits, component, kind_of, storage
from ..errors import MetadataError
from .buffers import Bytes, flat, need_array
from .codec import (
    ArrayRepresentation,
    BytesRepresentation,
    Codec,
    CodecKind,
    EncodingStep,
    Keeping,
    Operation,
    Representation,
)

if TYPE_CHECKING:
    from ..documents.configuration import Configuration

_PLACES = {"none": slots.NOWHERE, "first_byte": slots.FIRST, "last_byte": slots.LAST}
_PADDINGS = {"none": "none", "first_byte": "first_byte", "last_byte": "last_byte"}
# Names in the registry's schema, which differ from the specification's text.
_PADDINGS_OF_SCHEMA = {"start_byte": "first_byte", "end_byte": "last_byte"}


@dataclass(frozen=True)
class PackbitsCodec(Codec):
    """Bits without gaps, least significant first.

    Attributes
    ----------
    padding_encoding
        Location of the byte with the number of padding bits at the end: ``"first_byte"``, ``"last_byte"`` or
        ``"none"``.
    first_bit, last_bit
        First and last bit kept of each component; None is the lowest or the highest, respectively.
    """

    kind: ClassVar[CodecKind] = "array_to_bytes"
    padding_encoding: str = "none"
    first_bit: int | None = None
    last_bit: int | None = None

    @classmethod
    def from_v3(cls, configuration: Configuration) -> PackbitsCodec:
        """Parse a v3 configuration."""
        known = {**_PADDINGS, **_PADDINGS_OF_SCHEMA}
        padding = known[configuration.string("padding_encoding", tuple(known), "none")]
        limits: list[int | None] = []
        for name, of_schema in (("first_bit", "start_bit"), ("last_bit", "end_bit")):
            used = of_schema if of_schema in configuration and name not in configuration else name
            given = configuration.any(used, None) is not None
            limits.append(configuration.integer(used, 0, 63) if given else None)
        configuration.finish()
        first, last = limits
        if last is not None and last < (first or 0):
            raise configuration.error("last_bit", f"an integer of at least {first or 0} (the first bit)")
        return cls(padding, first, last)

    @property
    def label(self) -> str:
        """``packbits``."""
        return "packbits"

    def to_json(self) -> dict[str, Any]:
        """Return the v3 object."""
        values: dict[str, Any] = {"padding_encoding": self.padding_encoding}
        if self.first_bit is not None:
            values["first_bit"] = self.first_bit
        if self.last_bit is not None:
            values["last_bit"] = self.last_bit
        return {"name": "packbits", "configuration": values}

    def _range(self, array: ArrayRepresentation) -> tuple[int, int]:
        """Return the first kept bit of a component and the bit after the last kept one."""
        dtype = array.dtype
        if kind_of(dtype) not in "biufcmM":
            raise MetadataError(f"packbits takes numbers and booleans, not elements of {quote(str(dtype))}")
        width = bits(component(dtype))
        first = self.first_bit or 0
        last = width - 1 if self.last_bit is None else self.last_bit
        if not first <= last < width:
            name = "first_bit" if first >= width else "last_bit"
            raise MetadataError(
                f"bits {first} to {last} were requested, but {dtype} has bits 0 to {width - 1}",
                json_path=f"$.configuration.{name}",
            )
        return first, last + 1

    def keeps(self, decoded: Representation) -> Keeping:
        """Return whether all bits are stored."""
        array = need_array(decoded, self.label)
        return "all" if self._range(array) == (0, bits(component(array.dtype))) else "own"

    def _components(self, array: ArrayRepresentation) -> int:
        return math.prod(array.shape) * (2 if kind_of(array.dtype) == "c" else 1)

    def _packed_bits(self, array: ArrayRepresentation) -> int:
        first, stop = self._range(array)
        return self._components(array) * (stop - first)

    def encoded(self, decoded: Representation) -> BytesRepresentation:
        """Return the size in bytes, unknown where some writers omit the padding byte."""
        array = need_array(decoded, self.label)
        nbytes = math.ceil(self._packed_bits(array) / 8)
        if self.padding_encoding == "none":
            return BytesRepresentation(nbytes)
        # zarrs omits the padding byte for elements of whole bytes.
        return BytesRepresentation(None if self._whole_bytes(array) else nbytes + 1, nbytes + 1)

    def operations(self, decoded: Representation) -> tuple[Operation, ...] | None:
        """Return the compiled step."""
        array = need_array(decoded, self.label)
        part = component(array.dtype)
        first, stop = self._range(array)
        sign_stop = bits(part) if kind_of(array.dtype) in "imM" else 0
        return unpacking(part.itemsize, stop - first, first, sign_stop, padding_at=_PLACES[self.padding_encoding])

    def encoding(self, decoded: Representation, nbytes: int) -> EncodingStep | None:
        """One ``packbits`` step."""
        array = need_array(decoded, self.label)
        first, stop = self._range(array)
        width, place = component(array.dtype).itemsize, _PLACES[self.padding_encoding]
        return packing(width, stop - first, first, padding_at=place, nbytes=nbytes)

    def decode(self, encoded: Any, decoded: Representation) -> Any:
        """Return the elements; dropped bits are zeros or copies of the sign."""
        array = need_array(decoded, self.label)
        data = self._without_padding_byte(flat(encoded), array)
        first, stop = self._range(array)
        part = component(array.dtype)
        unit = part.itemsize
        count, kept = self._components(array), stop - first
        if kept == 8 * unit:
            return _native(data, unit).view(array.dtype).reshape(array.shape)
        planes = np.unpackbits(data, count=count * kept, bitorder="little").reshape(count, kept)
        whole = np.zeros((count, 8 * unit), np.uint8)
        whole[:, first:stop] = planes
        if kind_of(array.dtype) in "imM":
            whole[:, stop : bits(part)] = planes[:, -1:]
        raw = np.packbits(whole, axis=1, bitorder="little").reshape(-1)
        return _native(raw, unit).view(array.dtype).reshape(array.shape)

    def _without_padding_byte(self, data: Bytes, array: ArrayRepresentation) -> Bytes:
        packed = self._packed_bits(array)
        nbytes = math.ceil(packed / 8)
        expected = nbytes + (self.padding_encoding != "none")
        if data.size == nbytes and self.padding_encoding != "none" and self._whole_bytes(array):
            # zarrs omits the byte if all bits of whole bytes are kept.
            return data
        if data.size != expected:
            raise ValueError(f"packbits: got {data.size} bytes, expected {expected}")
        padding = 8 * nbytes - packed
        if self.padding_encoding == "none":
            return data
        stated, body = (data[0], data[1:]) if self.padding_encoding == "first_byte" else (data[-1], data[:-1])
        if stated != padding:
            raise ValueError(f"packbits: the data states {stated} bits of padding, expected {padding}")
        return body

    def _whole_bytes(self, array: ArrayRepresentation) -> bool:
        first, stop = self._range(array)
        return stop - first == 8 * component(array.dtype).itemsize

    def encode(self, decoded: Any, representation: Representation) -> Any:
        """Return the packed bits."""
        array = need_array(representation, self.label)
        first, stop = self._range(array)
        unit = component(array.dtype).itemsize
        elements = np.ascontiguousarray(decoded, dtype=array.dtype).reshape(-1).view(storage(array.dtype))
        little = _native(flat(elements), unit).reshape(-1, unit)
        planes = np.unpackbits(little, axis=1, bitorder="little")[:, first:stop]
        body = np.packbits(planes.reshape(-1), bitorder="little")
        if self.padding_encoding == "none":
            return body
        padding = np.array([8 * body.size - self._packed_bits(array)], np.uint8)
        return np.concatenate([padding, body] if self.padding_encoding == "first_byte" else [body, padding])


def unpacking(
    width: int, kept: int, first_bit: int = 0, sign_stop: int = 0, *, from_highest: bool = False, padding_at: int
) -> tuple[Operation, ...] | None:
    """Return the native step that unpacks bits; None where elements are not little-endian.

    Parameters
    ----------
    width
        Bytes of an element.
    kept, first_bit
        Number of its stored bits, and position of the lowest.
    sign_stop
        Bit before which the repetition of the highest stored bit ends; 0 for no repetition.
    from_highest
        Whether the first bit of a byte is its highest; then ``kept`` is 1.
    padding_at
        Place of the byte with the number of padding bits (``gzarr_kernels.slots.packed_bits``).
    """
    if sys.byteorder != "little":
        return None
    sign = ((1 << max(0, sign_stop - first_bit - kept)) - 1) << kept
    as_signed = np.array([sign], np.uint64).view(np.int64)[0]
    return (Operation("packbits", (width, kept, first_bit, int(as_signed), int(from_highest), padding_at)),)


def packing(
    width: int, kept: int, first_bit: int = 0, *, from_highest: bool = False, padding_at: int, nbytes: int
) -> EncodingStep | None:
    """Return the native step that packs bits of ``nbytes`` bytes of elements; parameters as for :func:`unpacking`.

    With ``from_highest``, a byte's bit is set if the byte is not 0.
    """
    if sys.byteorder != "little" or width not in (1, 2, 4, 8):
        return None
    packed = math.ceil(nbytes // width * kept / 8) + (padding_at != slots.NOWHERE)
    return EncodingStep("packbits", packed, (width, kept, first_bit, int(from_highest), padding_at))


def _native(data: npt.NDArray[np.uint8], unit: int) -> Bytes:
    """Return little-endian units in native byte order, or the reverse."""
    if sys.byteorder == "little" or unit == 1:
        return data
    return np.ascontiguousarray(data.reshape(-1, unit)[:, ::-1]).reshape(-1)
