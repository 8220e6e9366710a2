"""The ``zstd`` codec: one or more Zstandard frames (RFC 8878), with or without their content size.

Specification: https://github.com/zarr-developers/zarr-extensions/tree/main/codecs/zstd

======  =================================================================
Zarr    name
======  =================================================================
v3      ``zstd``, ``numcodecs.zstd``
v2      ``zstd``, for example ``{"id": "zstd", "level": 3, "checksum": false}``
======  =================================================================

``{"name": "zstd", "configuration": {"level": 3, "checksum": false}}``
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from ..documents.departures import note
from ..flags import flag
from . import native
from .buffers import ceiling, checked, compressed, flat, need_bytes
from .codec import BytesRepresentation, Codec, CodecKind, EncodingStep, Operation, Representation

if TYPE_CHECKING:
    from ..documents.configuration import Configuration

_BLOCK_BYTES = 128 << 10  # largest decoded size of a block; an encoded block has at least three bytes
_DEFAULT_LEVEL = 3  # zstd's meaning of level 0


@dataclass(frozen=True)
class ZstdCodec(Codec):
    """Zstandard.

    Attributes
    ----------
    level
        From -131072 to 22; 0 is the library's default. numcodecs treats higher levels as 22.
    checksum
        Whether to write checksums. Existing ones are always verified.
    """

    kind: ClassVar[CodecKind] = "bytes_to_bytes"
    level: int = 0
    checksum: bool = False

    def __post_init__(self) -> None:
        # It is written to documents.
        object.__setattr__(self, "checksum", flag("checksum", self.checksum))

    @property
    def has_checksum(self) -> bool:
        """As configured."""
        return self.checksum

    @classmethod
    def from_v3(cls, configuration: Configuration) -> ZstdCodec:
        """Parse a v3 configuration; zarr-python takes one without a level, which readers do not need."""
        if "level" not in configuration:
            note("zstd without a level; 0 for writing", configuration.json_path)
        codec = cls(configuration.integer("level", -131072, 22, 0), configuration.lenient_boolean("checksum", False))
        configuration.finish()
        return codec

    @classmethod
    def from_v2(cls, configuration: Configuration) -> ZstdCodec:
        """Parse a v2 configuration."""
        level = configuration.integer("level", -(2**31), 2**31 - 1, 0)
        checksum = configuration.lenient_boolean("checksum", False)
        configuration.finish()
        return cls(max(-131072, min(level, 22)), checksum)

    @property
    def label(self) -> str:
        """``zstd``."""
        return "zstd"

    def to_json(self) -> dict[str, Any]:
        """Return the v3 object."""
        return {"name": "zstd", "configuration": {"level": self.level, "checksum": self.checksum}}

    def encoded(self, decoded: Representation) -> BytesRepresentation:
        """Return an unknown size."""
        return compressed(need_bytes(decoded, self.label))

    def decode(self, encoded: Any, decoded: Representation) -> Any:
        """Return the decompressed bytes."""
        representation = need_bytes(decoded, self.label)
        data = flat(encoded)
        limit = min(ceiling(representation), (data.size // 3 + 1) * _BLOCK_BYTES)
        stated = native.zstd_frame_content_size(data)
        if stated is not None and stated > limit:
            raise ValueError(f"zstd: the frame states {stated} bytes, more than the limit of {limit}")
        if representation.nbytes is not None:
            if limit < representation.nbytes:
                raise ValueError(f"zstd: {data.size} bytes cannot decode to the expected {representation.nbytes}")
            capacity = limit
        else:
            capacity = min(limit, max(stated or 0, 4 * data.size, 1 << 16))
        while (output := native.zstd_decompress(data, capacity)) is None:
            if capacity >= limit:
                raise ValueError(f"zstd: decodes to more than the limit of {limit} bytes")
            capacity = min(limit, 4 * capacity)
        return checked(output, representation, self.label)

    def encode(self, decoded: Any, representation: Representation) -> Any:
        """Return one frame."""
        from numcodecs import zstd

        return zstd.compress(flat(decoded), self.level, self.checksum)

    def operations(self, decoded: Representation) -> tuple[Operation, ...] | None:
        """One ``zstd`` operation."""
        return (Operation("zstd"),)

    def encoding(self, decoded: Representation, nbytes: int) -> EncodingStep | None:
        """One ``zstd`` step."""
        # ZSTD_COMPRESSBOUND of zstd.h.
        most = nbytes + (nbytes >> 8) + (max((128 << 10) - nbytes, 0) >> 11)
        search = ("zstd", self.level or _DEFAULT_LEVEL)
        return EncodingStep("zstd", most, (self.level, int(self.checksum)), search)
