"""The codecs ``bz2`` and ``lzma``, as numcodecs writes them.

Documentation: https://numcodecs.readthedocs.io/en/stable/compression/bz2.html and ``…/lzma.html``

======  =====================================================================================
Zarr    names
======  =====================================================================================
v3      ``numcodecs.bz2``, ``numcodecs.lzma``
v2      ``bz2``, ``lzma``
======  =====================================================================================

``{"id": "bz2", "level": 1}``, ``{"id": "lzma", "format": 1, "check": -1, "preset": null, "filters": null}``
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from ..documents.configuration import Configuration, is_integer, whole
from ..documents.departures import note
from ..errors import MetadataError
from .buffers import compressed, flat, need_bytes
from .codec import BytesRepresentation, Codec, CodecKind, Representation
from .streams import StreamDecompressor, decompress

if TYPE_CHECKING:
    from collections.abc import Mapping

# A header may request a dictionary of 4 GiB; xz -9 needs 64 MiB, and its manual page calls this much extreme.
_LZMA_MEMORY_BYTES = 512 << 20
_FORMAT_RAW = 3
_CHECKED_FORMATS = (0, 1)


@dataclass(frozen=True)
class Bz2Codec(Codec):
    """One or more Bzip2 streams.

    Attributes
    ----------
    level
        From 1 to 9.
    """

    kind: ClassVar[CodecKind] = "bytes_to_bytes"
    level: int = 1

    @property
    def has_checksum(self) -> bool:
        """CRC-32 of each block."""
        return True

    @classmethod
    def from_v2(cls, configuration: Configuration) -> Bz2Codec:
        """Parse a v2 configuration."""
        codec = cls(configuration.integer("level", 1, 9, 1))
        configuration.finish()
        return codec

    @property
    def label(self) -> str:
        """``bz2``."""
        return "bz2"

    def to_json(self) -> dict[str, Any]:
        """Return the v3 object."""
        return {"name": "numcodecs.bz2", "configuration": {"level": self.level}}

    def encoded(self, decoded: Representation) -> BytesRepresentation:
        """Return an unknown size."""
        return compressed(need_bytes(decoded, self.label))

    def decode(self, encoded: Any, decoded: Representation) -> Any:
        """Return the decompressed bytes."""
        import bz2

        representation = need_bytes(decoded, self.label)
        return decompress(flat(encoded), representation, bz2.BZ2Decompressor, self.label, trailing=True)

    def encode(self, decoded: Any, representation: Representation) -> Any:
        """Return one stream."""
        import bz2

        return bz2.compress(flat(decoded).data, self.level)


@dataclass(frozen=True)
class LzmaCodec(Codec):
    """LZMA in the containers of Python's ``lzma`` module.

    Attributes
    ----------
    format
        0 (any), 1 (xz), 2 (alone) or 3 (raw, with ``filters``).
    check
        Integrity check of new xz streams; -1 is the default.
    preset
        Compression level, or None.
    filters
        Filter chain of Python's ``lzma`` module, or None.
    """

    kind: ClassVar[CodecKind] = "bytes_to_bytes"
    format: int = 1
    check: int = -1
    preset: int | None = None
    filters: tuple[Mapping[str, int], ...] | None = field(default=None, hash=False)

    @property
    def has_checksum(self) -> bool:
        """That of xz, unless it is configured to have none."""
        return self.format in _CHECKED_FORMATS and self.check != 0

    @classmethod
    def from_v2(cls, configuration: Configuration) -> LzmaCodec:
        """Parse a v2 configuration."""
        container = configuration.integer("format", 0, 3, 1)
        check = configuration.integer("check", -1, 16, -1)
        # Bit 31 is the flag "extreme".
        preset = configuration.any("preset", None)
        if preset is not None:
            try:
                preset = configuration.integer("preset", 0, 2**32 - 1)
            except MetadataError:
                raise configuration.error("preset", "an integer from 0 to 9, or null") from None
        filters = configuration.any("filters", None)
        # GDAL adds its option LZMA_DELTA, which decoding ignores: the container states its own filters.
        if configuration.any("delta", None) is not None:
            note("a member 'delta', as GDAL writes it", f"{configuration.json_path}.delta")
        configuration.finish()
        if preset is not None and not 0 <= preset & ~(1 << 31) <= 9:
            raise configuration.error("preset", "an integer from 0 to 9, or null")
        if filters is not None:
            at = f"{configuration.json_path}.filters"
            if isinstance(filters, list | tuple):
                filters = [
                    {name: whole(v, f"{at}[{i}].{name}") for name, v in f.items()} if isinstance(f, dict) else f
                    for i, f in enumerate(filters)
                ]
                configuration.values["filters"] = filters
            good = isinstance(filters, list | tuple) and filters and all(cls._is_filter(f) for f in filters)
            if not good:
                raise configuration.error("filters", 'an array of objects with an integer "id" and integers, or null')
        elif container == _FORMAT_RAW:
            raise configuration.error("filters", "an array of filters, because the format is 3 (raw),")
        return cls(container, check, preset, None if filters is None else tuple(dict(f) for f in filters))

    @staticmethod
    def _is_filter(value: Any) -> bool:
        return (
            isinstance(value, dict)
            and "id" in value
            and all(isinstance(name, str) and is_integer(number) for name, number in value.items())
            and 0 <= value.get("dict_size", 0) <= _LZMA_MEMORY_BYTES
        )

    @property
    def label(self) -> str:
        """``lzma``."""
        return "lzma"

    def to_json(self) -> dict[str, Any]:
        """Return the v3 object."""
        filters = None if self.filters is None else [dict(f) for f in self.filters]
        values = {"format": self.format, "check": self.check, "preset": self.preset, "filters": filters}
        return {"name": "numcodecs.lzma", "configuration": values}

    def encoded(self, decoded: Representation) -> BytesRepresentation:
        """Return an unknown size."""
        return compressed(need_bytes(decoded, self.label))

    def _start(self) -> StreamDecompressor:
        import lzma

        if self.format == _FORMAT_RAW:
            return lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=[dict(f) for f in self.filters or ()])
        return lzma.LZMADecompressor(self.format, memlimit=_LZMA_MEMORY_BYTES)

    def decode(self, encoded: Any, decoded: Representation) -> Any:
        """Return the decompressed bytes."""
        representation = need_bytes(decoded, self.label)
        data = flat(encoded)
        try:
            if self.format == _FORMAT_RAW:
                return self._decode_raw(data, representation)
            return decompress(data, representation, self._start, self.label, padding=True, trailing=True)
        except (TypeError, OverflowError, MemoryError, EOFError) as error:
            raise ValueError(f"{self.label}: {error}") from None

    def _decode_raw(self, data: Any, representation: BytesRepresentation) -> Any:
        # A raw stream may lack an end marker: it ends with its input.
        import lzma

        from .buffers import ceiling, checked

        limit = ceiling(representation)
        try:
            output = self._start().decompress(data.data, limit + 1)
        except lzma.LZMAError as error:
            raise ValueError(f"{self.label}: {error}") from None
        if len(output) > limit:
            raise ValueError(f"{self.label}: decodes to more than the limit of {limit} bytes")
        return checked(flat(output), representation, self.label)

    def encode(self, decoded: Any, representation: Representation) -> Any:
        """Return one stream."""
        import lzma

        filters = None if self.filters is None else [dict(f) for f in self.filters]
        return lzma.compress(flat(decoded).data, self.format, self.check, self.preset, filters)
