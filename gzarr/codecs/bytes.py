"""The ``bytes`` codec: elements in C order and a given byte order.

Specification: https://zarr-specs.readthedocs.io/en/latest/v3/codecs/bytes/index.html

======  ==========================================================
Zarr    name
======  ==========================================================
v3      ``bytes`` (``endian`` in the first releases of zarr-python 3)
v2      none: represents the byte order of the dtype
======  ==========================================================

``{"name": "bytes", "configuration": {"endian": "little"}}``
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from ..documents.json import quote
from ..dtypes.properties import clear_spare_bits, has_spare_bits, storage, swap_unit
from ..errors import MetadataError
from .buffers import flat, need_array
from .codec import BytesRepresentation, Codec, CodecKind, Operation, Representation

if TYPE_CHECKING:
    from ..documents.configuration import Configuration

Endian = Literal["little", "big"]
NATIVE: Endian = "little" if sys.byteorder == "little" else "big"


@dataclass(frozen=True)
class BytesCodec(Codec):
    """Elements in C order.

    Attributes
    ----------
    endian
        Byte order of the stored elements; None if they have none.
    stored_dtype
        Type of the stored elements, in place of ``endian``; only for v2 structured types that are not little-endian,
        whose fields may have different byte orders.
    """

    kind: ClassVar[CodecKind] = "array_to_bytes"
    is_elementwise: ClassVar[bool] = True
    endian: Endian | None = None
    stored_dtype: np.dtype[Any] | None = None

    @classmethod
    def from_v3(cls, configuration: Configuration) -> BytesCodec:
        """Parse a v3 configuration."""
        if "endian" not in configuration:
            configuration.finish()
            return cls(None)
        endian = configuration.string("endian", ("little", "big"))
        configuration.finish()
        return cls("little" if endian == "little" else "big")

    @property
    def label(self) -> str:
        """``bytes`` or ``bytes(big)``."""
        if self._is_mixed:
            return "bytes(mixed)"
        return "bytes(big)" if self.endian == "big" or self.stored_dtype is not None else "bytes"

    @property
    def _is_mixed(self) -> bool:
        return self.stored_dtype is not None and self.stored_dtype != self.stored_dtype.newbyteorder(">")

    def to_json(self) -> dict[str, Any]:
        """Return the v3 object (it cannot express mixed byte orders; they lose their ``endian``)."""
        if self.endian is None:
            return {"name": "bytes"}
        return {"name": "bytes", "configuration": {"endian": self.endian}}

    def _stored(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        if self.stored_dtype is not None:
            return storage(self.stored_dtype)
        # zarr-python writes structured types without a byte order, meaning little-endian.
        return storage(dtype).newbyteorder(">" if self.endian == "big" else "<")

    def encoded(self, decoded: Representation) -> BytesRepresentation:
        """Return the exact size in bytes."""
        array = need_array(decoded, self.label)
        if array.dtype.hasobject:
            raise MetadataError(
                "'bytes' needs elements of fixed size; strings and objects need a codec such as 'vlen-utf8' instead"
            )
        if (
            self.endian is None
            and self.stored_dtype is None
            and array.dtype.fields is None
            and swap_unit(array.dtype) != 1
        ):
            raise MetadataError(
                f'\'bytes\' needs "endian" ("little" or "big") for elements of type {array.dtype}',
                json_path="$.configuration",
            )
        return BytesRepresentation(array.nbytes)

    def decode(self, encoded: Any, decoded: Representation) -> Any:
        """Return the elements: a read-only view of the bytes if the byte order is native."""
        array = need_array(decoded, self.label)
        data = flat(encoded)
        if data.size != array.nbytes:
            raise ValueError(
                f"bytes: got {data.size} bytes, expected {array.nbytes}: {array.shape} of {quote(str(array.dtype))}"
            )
        spare = has_spare_bits(array.dtype)
        elements = data.view(self._stored(array.dtype)).astype(storage(array.dtype), copy=spare)
        if spare:
            clear_spare_bits(elements, array.dtype)
        return elements.view(array.dtype).reshape(array.shape)

    def encode(self, decoded: Any, representation: Representation) -> Any:
        """Return the bytes of the elements in C order."""
        array = need_array(representation, self.label)
        spare = has_spare_bits(array.dtype)
        elements = np.array(decoded, dtype=array.dtype, order="C", copy=spare or None).view(storage(array.dtype))
        if spare:
            clear_spare_bits(elements, array.dtype)
        return flat(elements.astype(self._stored(array.dtype), order="C", copy=False))

    def operations(self, decoded: Representation) -> tuple[Operation, ...] | None:
        """One ``bytes`` operation, unless fields need different swaps or elements are smaller than a byte."""
        dtype = need_array(decoded, self.label).dtype
        if dtype.hasobject or has_spare_bits(dtype):
            return None
        if self._stored(dtype) == storage(dtype):
            return (Operation("bytes", (0,)),)
        unit = swap_unit(dtype)
        if unit is None or self._is_mixed:
            return None
        return (Operation("bytes", (unit,)),)
