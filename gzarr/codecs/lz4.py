"""The codec ``lz4``: the size in 4 little-endian bytes, then one LZ4 block, as numcodecs writes it.

Documentation: https://numcodecs.readthedocs.io/en/stable/compression/lz4.html

======  ==========================================
Zarr    names
======  ==========================================
v3      ``numcodecs.lz4``
v2      ``lz4``: ``{"id": "lz4", "acceleration": 1}``
======  ==========================================
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from ..reasons import reason_of
from .buffers import ceiling, checked, compressed, empty, flat, need_bytes
from .codec import BytesRepresentation, Codec, CodecKind, EncodingStep, Operation, Representation

if TYPE_CHECKING:
    from ..documents.configuration import Configuration

_MAX_RATIO = 255  # of an LZ4 block
_MAX_BYTES = 0x7E000000


@dataclass(frozen=True)
class Lz4Codec(Codec):
    """LZ4 in numcodecs' framing.

    Attributes
    ----------
    acceleration
        Larger is faster but compresses less.
    """

    kind: ClassVar[CodecKind] = "bytes_to_bytes"
    acceleration: int = 1

    @classmethod
    def from_v2(cls, configuration: Configuration) -> Lz4Codec:
        """Parse a v2 configuration."""
        codec = cls(configuration.integer("acceleration", -(2**31), 2**31 - 1, 1))
        configuration.finish()
        return codec

    @property
    def label(self) -> str:
        """``lz4``."""
        return "lz4"

    def to_json(self) -> dict[str, Any]:
        """Return the v3 object."""
        return {"name": "numcodecs.lz4", "configuration": {"acceleration": self.acceleration}}

    def encoded(self, decoded: Representation) -> BytesRepresentation:
        """Return an unknown size."""
        return compressed(need_bytes(decoded, self.label))

    def decode(self, encoded: Any, decoded: Representation) -> Any:
        """Return the decompressed bytes."""
        from numcodecs import lz4

        representation = need_bytes(decoded, self.label)
        data = flat(encoded)
        if data.size < 5:
            raise ValueError(f"lz4: {data.size} bytes are too few for a header and a block")
        stated = int.from_bytes(data[:4].tobytes(), "little")
        if representation.nbytes is not None and stated != representation.nbytes:
            raise ValueError(f"lz4: the header states {stated} bytes, expected {representation.nbytes}")
        if stated > min(ceiling(representation), data.size * _MAX_RATIO):
            raise ValueError(f"lz4: the header states {stated} bytes, more than this chunk can have")
        output = empty(stated, self.label)
        if not stated:
            return checked(output, representation, self.label)
        try:
            lz4.decompress(data, output)
        except Exception as error:
            raise ValueError(f"lz4: {reason_of(error)}") from None
        return output

    def encode(self, decoded: Any, representation: Representation) -> Any:
        """Return the header and one block."""
        from numcodecs import lz4

        return lz4.compress(flat(decoded), self.acceleration)

    def operations(self, decoded: Representation) -> tuple[Operation, ...] | None:
        """One ``lz4`` operation."""
        return (Operation("lz4"),)

    def encoding(self, decoded: Representation, nbytes: int) -> EncodingStep | None:
        """One ``lz4`` step, if the bytes fit one block."""
        if nbytes > _MAX_BYTES:
            return None
        # LZ4_compressBound of lz4.h, and four bytes of size.
        most = nbytes + nbytes // 255 + 20
        return EncodingStep("lz4", most, (self.acceleration,), ("lz4", self.acceleration))
