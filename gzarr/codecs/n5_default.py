"""The ``n5_default`` codec: N5 blocks, whose header states a shape, as Zarr chunks.

Specification: https://github.com/zarr-developers/zarr-extensions/tree/main/codecs/n5_default

======  ===============
Zarr    names
======  ===============
v3      ``n5_default``
v2      none
======  ===============

``{"name": "n5_default", "configuration": {"codecs": [{"name": "transpose", "configuration": {"order": [1, 0]}},
{"name": "bytes", "configuration": {"endian": "big"}}, {"name": "zstd", "configuration": {"level": 0}}]}}``
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ..errors import MetadataError
from .buffers import ceiling, compressed, flat, need_array
from .bytes import BytesCodec
from .chain import check_kinds, decode_chain, encode_chain, representations
from .codec import ArrayRepresentation, BytesRepresentation, Codec, CodecKind, Representation
from .transpose import TransposeCodec

if TYPE_CHECKING:
    from ..documents.configuration import Configuration

_MAX_NESTING = 8
_DEFAULT_MODE = 0
_MODES = {1: "varlength", 2: "object"}


@dataclass(frozen=True)
class N5DefaultCodec(Codec):
    """A header and an encoded block.

    Attributes
    ----------
    codecs
        Chain of the block: a transposition that reverses all dimensions, big-endian bytes, and at most one bytes→bytes
        codec.
    """

    kind: ClassVar[CodecKind] = "array_to_bytes"
    codecs: tuple[Codec, ...]

    @classmethod
    def from_v3(cls, configuration: Configuration, *, allow_pickle: bool = False, depth: int = 0) -> N5DefaultCodec:
        """Parse a v3 configuration."""
        from .registry import codecs_from_v3

        at = f"{configuration.json_path}.codecs"
        if depth >= _MAX_NESTING:
            raise MetadataError(f"codecs are nested more than {_MAX_NESTING} deep", json_path=at)
        codecs = codecs_from_v3(configuration.array("codecs"), at, allow_pickle=allow_pickle, depth=depth + 1)
        configuration.finish()
        check_kinds(codecs, at)
        first, second = codecs[0], codecs[1] if len(codecs) > 1 else None
        if not isinstance(first, TransposeCodec) or first.order != tuple(reversed(range(len(first.order)))):
            raise MetadataError("n5_default needs a 'transpose' that reverses all dimensions first", json_path=at)
        if not isinstance(second, BytesCodec) or second.endian == "little" or len(codecs) > 3:
            raise MetadataError(
                "n5_default needs big-endian 'bytes' after the transposition, and at most one compressor", json_path=at
            )
        return cls(codecs)

    @property
    def has_checksum(self) -> bool:
        """As of its compressor."""
        return any(codec.has_checksum for codec in self.codecs)

    @property
    def label(self) -> str:
        """For example ``n5_default(zstd)``."""
        return f"n5_default({' + '.join(codec.label for codec in self.codecs[2:])})"

    def to_json(self) -> dict[str, Any]:
        """Return the v3 object."""
        return {"name": "n5_default", "configuration": {"codecs": [codec.to_json() for codec in self.codecs]}}

    def encoded(self, decoded: Representation) -> BytesRepresentation:
        """Return an unknown size: blocks at the edge may be cut.

        It is at most that of a compressor's output, so that a block of another mode is read, and refused by its name.
        """
        array = need_array(decoded, self.label)
        inner = representations(self.codecs, array, "$.configuration.codecs")[-1]
        assert isinstance(inner, BytesRepresentation)
        return BytesRepresentation(None, ceiling(compressed(inner)) + 4 + 4 * len(array.shape))

    def decode(self, encoded: Any, decoded: Representation) -> Any:
        """Return the block, padded with zeros to the chunk's shape."""
        array = need_array(decoded, self.label)
        data, ndim = flat(encoded), len(array.shape)
        header = 4 + 4 * ndim
        if data.size < header:
            raise ValueError(f"{self.label}: {data.size} bytes are too few for a header of {ndim} dimensions")
        mode, stated, *sizes = struct.unpack_from(f">HH{ndim}I", data.tobytes()[:header])
        if mode != _DEFAULT_MODE or stated != ndim:
            name = f" ({_MODES[mode]})" if mode in _MODES else ""
            raise ValueError(
                f"{self.label}: a block of mode {mode}{name} with {stated} dimensions, expected mode 0 with {ndim}"
            )
        # The specification crops larger blocks, but N5 has none, and only untrusted data would determine their size.
        if any(size > most for size, most in zip(sizes, array.shape, strict=True)):
            raise ValueError(f"{self.label}: a block of {tuple(sizes)} is larger than the chunk, {array.shape}")
        if not math.prod(sizes):
            return np.zeros(array.shape, array.dtype)
        block = decode_chain(self.codecs, data[header:], ArrayRepresentation(tuple(sizes), array.dtype))
        if block.shape == array.shape:
            return block
        # In the block's order, so that elements are copied in runs.
        chunk = np.zeros(array.shape, array.dtype, order="F")
        chunk[tuple(slice(0, size) for size in sizes)] = block
        return chunk

    def encode(self, decoded: Any, representation: Representation) -> Any:
        """Return a whole block."""
        array = need_array(representation, self.label)
        header = struct.pack(f">HH{len(array.shape)}I", _DEFAULT_MODE, len(array.shape), *array.shape)
        return header + bytes(flat(encode_chain(self.codecs, decoded, array)))
