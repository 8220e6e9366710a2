"""The codec ``shuffle``: byte ``i`` of all elements before byte ``i + 1`` of any, as numcodecs writes it.

Documentation: https://numcodecs.readthedocs.io/en/stable/filter/shuffle.html

======  ==============================================
Zarr    names
======  ==============================================
v3      ``numcodecs.shuffle``
v2      ``shuffle``: ``{"id": "shuffle", "elementsize": 4}``
======  ==============================================

In version 2, netCDF-C writes ``0`` or a string as element size, and means the element size by its own definition:
https://github.com/Unidata/netcdf-c/blob/main/plugins/NCZhdf5filters.c. It leaves trailing bytes that do not fill an
element in place (``H5Zshuffle.c`` in the same directory). To numcodecs, ``0`` means no shuffle, as its own fixtures do;
:mod:`gzarr.metadata.v2.parse` tells by the rest of the documents who wrote them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ..errors import MetadataError
from ..flags import check_flags
from .buffers import Bytes, checked, flat, need_bytes
from .codec import BytesRepresentation, Codec, CodecKind, EncodingStep, Operation, Representation

if TYPE_CHECKING:
    from ..documents.configuration import Configuration


@dataclass(frozen=True)
class ShuffleCodec(Codec):
    """Byte shuffle.

    Attributes
    ----------
    elementsize
        Bytes per element; 0 and 1 change nothing.
    tail
        Whether an incomplete element may follow the last one; its bytes stay in place.
    """

    kind: ClassVar[CodecKind] = "bytes_to_bytes"
    elementsize: int = 4
    tail: bool = False

    def __post_init__(self) -> None:
        check_flags(tail=self.tail)

    @classmethod
    def from_v3(cls, configuration: Configuration) -> ShuffleCodec:
        """Parse a v3 configuration; the element size is required, because writers disagree on a default."""
        codec = cls(configuration.integer("elementsize", 0, 2**31 - 1))
        configuration.finish()
        return codec

    @classmethod
    def from_v2(cls, configuration: Configuration) -> ShuffleCodec:
        """Parse a v2 configuration; the element size is 0 if the document leaves it open.

        netCDF-C takes the size from the data type, whatever the document says; it writes 0, and before 4.10 a string,
        which nobody else does: then the codec has a tail already.
        """
        value = configuration.any("elementsize", 4)
        text = isinstance(value, str) and value.isascii() and value.isdecimal()
        codec = cls(0, tail=True) if text else cls(configuration.integer("elementsize", 0, 2**31 - 1, 4))
        configuration.finish()
        return codec

    def with_itemsize(self, itemsize: int) -> ShuffleCodec:
        """Return the codec with an element size of ``itemsize`` bytes if it was left open."""
        return self if self.elementsize else ShuffleCodec(max(itemsize, 1))

    def for_bytes(self, decoded: Representation) -> ShuffleCodec:
        """Return the codec without a tail if its input has none."""
        if self.tail and isinstance(decoded, BytesRepresentation) and decoded.nbytes is not None:
            return replace(self, tail=decoded.nbytes % self.elementsize != 0)
        return self

    @property
    def label(self) -> str:
        """For example ``numcodecs.shuffle(4)``."""
        return f"numcodecs.shuffle({self.elementsize})"

    def to_json(self) -> dict[str, Any]:
        """Return the v3 object."""
        return {"name": "numcodecs.shuffle", "configuration": {"elementsize": self.elementsize}}

    def encoded(self, decoded: Representation) -> BytesRepresentation:
        """Return the same size, which must be a whole number of elements."""
        data = need_bytes(decoded, self.label)
        if data.nbytes is not None and not self._fits(data.nbytes):
            raise MetadataError(
                f'{data.nbytes} bytes are not a multiple of "elementsize" {self.elementsize}',
                json_path="$.configuration.elementsize",
            )
        return data

    def _fits(self, nbytes: int) -> bool:
        return self.tail or self.elementsize <= 1 or nbytes % self.elementsize == 0

    def _split(self, data: Bytes, rows: int, columns: int) -> Bytes:
        if not self._fits(data.size):
            raise ValueError(f"shuffle: {data.size} bytes are not a multiple of {self.elementsize}")
        whole = data.size - data.size % self.elementsize
        split = flat(data[:whole].reshape(rows, columns).T)
        return split if whole == data.size else np.concatenate([split, data[whole:]])

    def decode(self, encoded: Any, decoded: Representation) -> Any:
        """Return the elements in their original order of bytes."""
        data = checked(flat(encoded), need_bytes(decoded, self.label), self.label)
        return data if self.elementsize <= 1 else self._split(data, self.elementsize, -1)

    def encode(self, decoded: Any, representation: Representation) -> Any:
        """Return the first bytes of all elements, then the second bytes, and so on."""
        data = flat(decoded)
        return data if self.elementsize <= 1 else self._split(data, -1, self.elementsize)

    def operations(self, decoded: Representation) -> tuple[Operation, ...] | None:
        """One ``shuffle`` operation, or none if nothing changes; not native with a tail."""
        if self.elementsize <= 1:
            return ()
        nbytes = need_bytes(decoded, self.label).nbytes
        whole = not self.tail or (nbytes is not None and nbytes % self.elementsize == 0)
        return (Operation("shuffle", (self.elementsize,)),) if whole else None

    def encoding(self, decoded: Representation, nbytes: int) -> EncodingStep | None:
        """One ``shuffle`` step, of whole elements whose number is known."""
        exact = need_bytes(decoded, self.label).nbytes
        whole = exact is not None and exact % max(self.elementsize, 1) == 0
        return EncodingStep("shuffle", nbytes, (self.elementsize,)) if whole else None
