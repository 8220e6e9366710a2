"""A codec in a package of its own: what ``pip install`` of such a package adds to gzarr.

``{"name": "example.xor", "configuration": {"key": 90}}`` in Zarr v3, ``{"id": "example.xor", "key": 90}`` in Zarr v2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from gzarr.codecs.buffers import checked, flat, need_bytes
from gzarr.codecs.codec import BytesRepresentation, Codec, CodecKind, Representation

if TYPE_CHECKING:
    from gzarr.codecs.configuration import Configuration


@dataclass(frozen=True)
class XorCodec(Codec):
    """Every byte exclusive-or a key.

    Attributes
    ----------
    key
        From 0 to 255.
    """

    kind: ClassVar[CodecKind] = "bytes_to_bytes"
    key: int

    @classmethod
    def from_v3(cls, configuration: Configuration) -> XorCodec:
        """Parse a v3 configuration; without ``from_v2``, the codec would be for v3 only."""
        codec = cls(configuration.integer("key", 0, 255))
        configuration.finish()
        return codec

    from_v2 = from_v3

    @property
    def label(self) -> str:
        """``example.xor``."""
        return "example.xor"

    def to_json(self) -> dict[str, Any]:
        """Return the v3 object."""
        return {"name": "example.xor", "configuration": {"key": self.key}}

    def encoded(self, decoded: Representation) -> BytesRepresentation:
        """Return the same size."""
        return need_bytes(decoded, self.label)

    def decode(self, encoded: Any, decoded: Representation) -> Any:
        """Return the bytes."""
        return checked(flat(encoded), need_bytes(decoded, self.label), self.label) ^ np.uint8(self.key)

    def encode(self, decoded: Any, representation: Representation) -> Any:
        """Return the bytes: the codec is its own inverse."""
        return flat(decoded) ^ np.uint8(self.key)
