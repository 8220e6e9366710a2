"""The codec ``shuffle``: byte ``i`` of every element before byte ``i + 1`` of any, as numcodecs writes it.

Documentation: https://numcodecs.readthedocs.io/en/stable/filter/shuffle.html

======  ==============================================
Zarr    names
======  ==============================================
v3      ``numcodecs.shuffle``
v2      ``shuffle``: ``{"id": "shuffle", "elementsize": 4}``
======  ==============================================
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from ..errors import MetadataError
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
        Bytes an element; 0 and 1 change nothing.
    """

    kind: ClassVar[CodecKind] = "bytes_to_bytes"
    elementsize: int = 4

    @classmethod
    def from_v3(cls, configuration: Configuration) -> ShuffleCodec:
        """Parse a v3 configuration, where the element size has no default that writers agree on."""
        codec = cls(configuration.integer("elementsize", 0, 2**31 - 1))
        configuration.finish()
        return codec

    @classmethod
    def from_v2(cls, configuration: Configuration) -> ShuffleCodec:
        """Parse a v2 configuration."""
        codec = cls(configuration.integer("elementsize", 0, 2**31 - 1, 4))
        configuration.finish()
        return codec

    @property
    def label(self) -> str:
        """For example ``numcodecs.shuffle(4)``."""
        return f"numcodecs.shuffle({self.elementsize})"

    def to_json(self) -> dict[str, Any]:
        """Return the v3 object."""
        return {"name": "numcodecs.shuffle", "configuration": {"elementsize": self.elementsize}}

    def encoded(self, decoded: Representation) -> BytesRepresentation:
        """Return the same size, which must be whole elements."""
        data = need_bytes(decoded, self.label)
        if data.nbytes is not None and self.elementsize > 1 and data.nbytes % self.elementsize:
            raise MetadataError(
                f'{data.nbytes} bytes are not a multiple of "elementsize" {self.elementsize}',
                json_path="$.configuration.elementsize",
            )
        return data

    def _split(self, data: Bytes, rows: int, columns: int) -> Bytes:
        if data.size % self.elementsize:
            raise ValueError(f"shuffle: {data.size} bytes are not a multiple of {self.elementsize}")
        return flat(data.reshape(rows, columns).T)

    def decode(self, encoded: Any, decoded: Representation) -> Any:
        """Return whole elements one after the other."""
        data = checked(flat(encoded), need_bytes(decoded, self.label), self.label)
        return data if self.elementsize <= 1 else self._split(data, self.elementsize, -1)

    def encode(self, decoded: Any, representation: Representation) -> Any:
        """Return the first bytes of all elements, then the second ones, and so on."""
        data = flat(decoded)
        return data if self.elementsize <= 1 else self._split(data, -1, self.elementsize)

    def operations(self, decoded: Representation) -> tuple[Operation, ...] | None:
        """One ``shuffle`` operation, or none where nothing changes."""
        return (Operation("shuffle", (self.elementsize,)),) if self.elementsize > 1 else ()

    def encoding(self, nbytes: int, *, exact: bool) -> EncodingStep | None:
        """One ``shuffle`` step, of bytes whose number is known."""
        return EncodingStep("shuffle", nbytes, (self.elementsize,)) if exact else None
