"""The codecs ``gzip`` (RFC 1952, one or more members) and ``zlib`` (RFC 1950).

Specification: https://zarr-specs.readthedocs.io/en/latest/v3/codecs/gzip/index.html

======  ==============================================================================
Zarr    names
======  ==============================================================================
v3      ``gzip``, ``numcodecs.gzip``, ``numcodecs.zlib``
v2      ``gzip``, ``zlib``, for example ``{"id": "zlib", "level": 1}``
======  ==============================================================================

``{"name": "gzip", "configuration": {"level": 5}}``
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from ..documents.departures import note
from .buffers import compressed, flat, need_bytes
from .codec import BytesRepresentation, Codec, CodecKind, EncodingStep, Operation, Representation
from .streams import decompress

if TYPE_CHECKING:
    from ..documents.configuration import Configuration

_MAX_RATIO = 1032  # of deflate: 258 bytes from two bits
_DEFAULT_LEVEL = 6  # zlib's meaning of level -1


def deflate_step(name: str, level: int, nbytes: int) -> EncodingStep:
    """Return the native step for ``"gzip"``, ``"zlib"`` or ``"deflate"`` and at most ``nbytes`` bytes."""
    level = _DEFAULT_LEVEL if level < 0 else level
    # libdeflate adds five bytes for each stored block of at least 5,000 bytes; the rest is for the container.
    return EncodingStep(name, nbytes + nbytes // 500 + 64, (level,), ("deflate", level))


class Inflater:
    """One zlib or gzip stream, with the interface of the standard library's other decompressors."""

    def __init__(self, window_bits: int) -> None:
        self._inner = zlib.decompressobj(window_bits)

    @property
    def eof(self) -> bool:
        """Whether the stream has ended."""
        return self._inner.eof

    @property
    def unused_data(self) -> bytes:
        """Input after the stream's end."""
        return self._inner.unused_data

    def decompress(self, data: memoryview, max_length: int) -> bytes:
        """Feed ``data`` and return at most ``max_length`` bytes."""
        rest = self._inner.unconsumed_tail
        return self._inner.decompress(rest + bytes(data) if rest else data, max_length)


@dataclass(frozen=True)
class _DeflateCodec(Codec):
    """Common part of both containers.

    Attributes
    ----------
    level
        From 0 to 9; -1 is the library's default.
    """

    kind: ClassVar[CodecKind] = "bytes_to_bytes"
    _name: ClassVar[str]
    _window_bits: ClassVar[int]
    level: int = 1

    @property
    def has_checksum(self) -> bool:
        """Adler-32 or CRC-32 of the data."""
        return True

    @classmethod
    def from_v2(cls, configuration: Configuration) -> Self:
        """Parse a v2 configuration."""
        codec = cls(configuration.integer("level", -1, 9, 1))
        configuration.finish()
        return codec

    @property
    def label(self) -> str:
        """``gzip`` or ``zlib``."""
        return self._name

    def encoded(self, decoded: Representation) -> BytesRepresentation:
        """Return an unknown size."""
        return compressed(need_bytes(decoded, self._name))

    def decode(self, encoded: Any, decoded: Representation) -> Any:
        """Return the decompressed bytes."""
        representation = need_bytes(decoded, self._name)
        data = flat(encoded)
        if representation.nbytes is not None and representation.nbytes > data.size * _MAX_RATIO:
            raise ValueError(f"{self._name}: {data.size} bytes cannot decode to the expected {representation.nbytes}")
        gzip = self._name == "gzip"
        return decompress(
            data, representation, lambda: Inflater(self._window_bits), self._name, padding=gzip, single=not gzip
        )

    def encode(self, decoded: Any, representation: Representation) -> Any:
        """Return one stream."""
        stream = zlib.compressobj(self.level, zlib.DEFLATED, self._window_bits)
        return stream.compress(flat(decoded).data) + stream.flush()

    def operations(self, decoded: Representation) -> tuple[Operation, ...] | None:
        """One operation of the same name."""
        return (Operation(self._name),)

    def encoding(self, decoded: Representation, nbytes: int) -> EncodingStep | None:
        """One step of the same name."""
        return deflate_step(self._name, self.level, nbytes)


@dataclass(frozen=True)
class GzipCodec(_DeflateCodec):
    """Deflate in gzip members."""

    _name: ClassVar[str] = "gzip"
    _window_bits: ClassVar[int] = 31

    @classmethod
    def from_v3(cls, configuration: Configuration) -> GzipCodec:
        """Parse a v3 configuration; zarr-python takes one without a level, which readers do not need."""
        if "level" not in configuration:
            note(f"gzip without a level; {_DEFAULT_LEVEL} for writing", configuration.json_path)
        codec = cls(configuration.integer("level", 0, 9, _DEFAULT_LEVEL))
        configuration.finish()
        return codec

    def to_json(self) -> dict[str, Any]:
        """Return the v3 object."""
        return {"name": "gzip", "configuration": {"level": self.level}}


@dataclass(frozen=True)
class ZlibCodec(_DeflateCodec):
    """Deflate in one zlib stream."""

    _name: ClassVar[str] = "zlib"
    _window_bits: ClassVar[int] = 15

    def to_json(self) -> dict[str, Any]:
        """Return the v3 object."""
        return {"name": "numcodecs.zlib", "configuration": {"level": self.level}}
