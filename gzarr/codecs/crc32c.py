"""The ``crc32c`` codec: a CRC-32C checksum, little-endian, in the last four bytes; verified on every decode.

Specification: https://zarr-specs.readthedocs.io/en/latest/v3/codecs/crc32c/index.html

======  ===========================================================================
Zarr    names
======  ===========================================================================
v3      ``crc32c``, ``numcodecs.crc32c``
v2      ``crc32c`` (with ``"location": "start"``, the numcodecs adapter handles it)
======  ===========================================================================

``{"name": "crc32c"}``
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from .buffers import Bytes, checked, flat, need_bytes
from .codec import BytesRepresentation, Codec, CodecKind, EncodingStep, Operation, Representation

if TYPE_CHECKING:
    from ..documents.configuration import Configuration


def crc32c(data: Bytes) -> int:
    """Return the CRC-32C of ``data``."""
    import google_crc32c

    return int(google_crc32c.value(data.tobytes() if google_crc32c.implementation == "python" else data))


@dataclass(frozen=True)
class Crc32cCodec(Codec):
    """A checksum after the data."""

    kind: ClassVar[CodecKind] = "bytes_to_bytes"

    @property
    def has_checksum(self) -> bool:
        """Always."""
        return True

    @classmethod
    def from_v3(cls, configuration: Configuration) -> Crc32cCodec:
        """Parse a v3 configuration, which must be empty."""
        configuration.finish()
        return cls()

    @classmethod
    def from_v2(cls, configuration: Configuration) -> Codec:
        """Parse a v2 configuration."""
        if configuration.any("location", None) == "start":
            from .numcodecs_adapter import from_numcodecs

            return from_numcodecs("crc32c", configuration)
        if configuration.any("location", None) not in (None, "end"):
            raise configuration.error("location", "'start' or 'end'")
        configuration.finish()
        return cls()

    @property
    def label(self) -> str:
        """``crc32c``."""
        return "crc32c"

    def to_json(self) -> dict[str, Any]:
        """Return the v3 object."""
        return {"name": "crc32c"}

    def encoded(self, decoded: Representation) -> BytesRepresentation:
        """Return a size four bytes larger."""
        data = need_bytes(decoded, self.label)
        limit = None if data.limit_nbytes is None else data.limit_nbytes + 4
        return BytesRepresentation(None if data.nbytes is None else data.nbytes + 4, limit)

    def decode(self, encoded: Any, decoded: Representation) -> Any:
        """Return a view without the checksum."""
        data = flat(encoded)
        if data.size < 4:
            raise ValueError(f"crc32c: {data.size} bytes are too few to hold a checksum")
        payload = checked(data[:-4], need_bytes(decoded, self.label), self.label)
        stored, computed = int.from_bytes(data[-4:].tobytes(), "little"), crc32c(payload)
        if stored != computed:
            raise ValueError(f"crc32c: the stored checksum is {stored:#010x}, but the data has {computed:#010x}")
        return payload

    def encode(self, decoded: Any, representation: Representation) -> Any:
        """Return the data and its checksum."""
        data = flat(decoded)
        checksum = np.frombuffer(crc32c(data).to_bytes(4, "little"), np.uint8)
        return np.concatenate([data, checksum])

    def operations(self, decoded: Representation) -> tuple[Operation, ...] | None:
        """One ``crc32c`` operation."""
        return (Operation("crc32c"),)

    def encoding(self, decoded: Representation, nbytes: int) -> EncodingStep | None:
        """One ``crc32c`` step."""
        return EncodingStep("crc32c", nbytes + 4)
