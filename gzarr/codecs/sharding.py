"""The ``sharding_indexed`` codec: many inner chunks in one value, with an index of their byte ranges at one end.

Specification: https://zarr-specs.readthedocs.io/en/latest/v3/codecs/sharding-indexed/index.html

======  ====================
Zarr    name
======  ====================
v3      ``sharding_indexed``
v2      none
======  ====================

``{"name": "sharding_indexed", "configuration": {"chunk_shape": [32, 32], "codecs": […], "index_codecs": […],
"index_location": "end"}}``
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from ..errors import MetadataError
from .buffers import ceiling, compressed, flat, need_array
from .chain import check_kinds, decode_chain, encode_chain, representations
from .codec import ArrayRepresentation, BytesRepresentation, Codec, CodecKind, Representation

if TYPE_CHECKING:
    from ..documents.configuration import Configuration

#: ``offset`` and ``nbytes`` of a missing inner chunk.
EMPTY = 2**64 - 1
_MAX_NESTING = 8


def outside(entries: npt.NDArray[np.uint64], limit: Any) -> npt.NDArray[np.bool_]:
    """Return which entries of an index, uint64 ``(n, 2)``, are neither missing nor within ``limit`` bytes each."""
    offset, nbytes = entries[:, 0], entries[:, 1]
    # Each operand is compared with the limit first, so that their sum cannot overflow.
    inside = (offset <= limit) & (nbytes <= limit)
    inside &= np.where(inside, offset, np.uint64(0)) + np.where(inside, nbytes, np.uint64(0)) <= limit
    bad: npt.NDArray[np.bool_] = ~inside & ~((offset == EMPTY) & (nbytes == EMPTY))
    return bad


@dataclass(frozen=True)
class ShardingIndexed(Codec):
    """Inner chunks in a shard.

    Attributes
    ----------
    chunk_shape
        Shape of an inner chunk, in elements; divides the shape of the shard.
    codecs
        Chain of an inner chunk, in encoding order.
    index_codecs
        Chain of the index; every codec has a fixed size.
    index_location
        Location of the index.
    fill_value
        Value of missing inner chunks; None means zeros. Comes from the array, not from the codec's JSON.
    """

    kind: ClassVar[CodecKind] = "array_to_bytes"
    chunk_shape: tuple[int, ...]
    codecs: tuple[Codec, ...]
    index_codecs: tuple[Codec, ...]
    index_location: Literal["start", "end"] = "end"
    fill_value: Any = field(default=None, compare=False, repr=False)

    @property
    def has_checksum(self) -> bool:
        """Whether both the inner chunks and the index have one: without an entry, a chunk reads as missing."""
        return all(any(codec.has_checksum for codec in chain) for chain in (self.codecs, self.index_codecs))

    @property
    def writes(self) -> bool:
        """Whether all codecs of the inner chunks can."""
        return all(codec.writes for codec in self.codecs)

    @classmethod
    def from_v3(cls, configuration: Configuration, *, allow_pickle: bool = False, depth: int = 0) -> ShardingIndexed:
        """Parse a v3 configuration."""
        from .registry import codecs_from_v3

        at = configuration.json_path
        if depth >= _MAX_NESTING:
            raise MetadataError(f"shards are nested more than {_MAX_NESTING} deep", json_path=at)
        chunk_shape = configuration.integers("chunk_shape", 1, 2**63 - 1)
        location = configuration.string("index_location", ("start", "end"), "end")
        chains = []
        for name in ("codecs", "index_codecs"):
            values = configuration.array(name)
            chains.append(codecs_from_v3(values, f"{at}.{name}", allow_pickle=allow_pickle, depth=depth + 1))
            check_kinds(chains[-1], f"{at}.{name}")
        configuration.finish()
        return cls(chunk_shape, chains[0], chains[1], "start" if location == "start" else "end")

    def with_fill_value(self, fill_value: Any) -> ShardingIndexed:
        """Return the codec with the array's fill value, also in nested shards."""
        inner = tuple(c.with_fill_value(fill_value) if isinstance(c, ShardingIndexed) else c for c in self.codecs)
        return replace(self, codecs=inner, fill_value=fill_value)

    @property
    def label(self) -> str:
        """For example ``sharding_indexed(32×32: bytes + zstd)``."""
        shape = "×".join(map(str, self.chunk_shape))
        return f"sharding_indexed({shape}: {' + '.join(codec.label for codec in self.codecs)})"

    def to_json(self) -> dict[str, Any]:
        """Return the v3 object."""
        values = {
            "chunk_shape": list(self.chunk_shape),
            "codecs": [codec.to_json() for codec in self.codecs],
            "index_codecs": [codec.to_json() for codec in self.index_codecs],
            "index_location": self.index_location,
        }
        return {"name": "sharding_indexed", "configuration": values}

    def chunks_per_shard(self, shard_shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the number of inner chunks along each dimension."""
        return tuple(s // c for s, c in zip(shard_shape, self.chunk_shape, strict=True))

    def inner(self, shard: ArrayRepresentation) -> ArrayRepresentation:
        """Return the representation of an inner chunk."""
        return replace(shard, shape=self.chunk_shape)

    def _index(self, shard_shape: tuple[int, ...]) -> ArrayRepresentation:
        return ArrayRepresentation((*self.chunks_per_shard(shard_shape), 2), np.dtype(np.uint64))

    def index_nbytes(self, shard_shape: tuple[int, ...]) -> int:
        """Return the size in bytes of the encoded index of a shard.

        Parameters
        ----------
        shard_shape
            Shape of the shard as input to this codec, in elements.
        """
        stored = representations(self.index_codecs, self._index(shard_shape), "$.configuration.index_codecs")[-1]
        if not isinstance(stored, BytesRepresentation) or stored.nbytes is None:
            raise MetadataError(
                "the index needs codecs of fixed size; it cannot have a compressor",
                json_path="$.configuration.index_codecs",
            )
        return stored.nbytes

    def decode_index(
        self, data: Any, shard_shape: tuple[int, ...], *, shard_nbytes: int | None = None
    ) -> npt.NDArray[np.uint64]:
        """Decode and check the index of a shard.

        Parameters
        ----------
        data
            Encoded index, :meth:`index_nbytes` bytes.
        shard_shape
            Shape of the shard in elements.
        shard_nbytes
            Size of the whole value in bytes, if known: no inner chunk may reach beyond it.

        Returns
        -------
        uint64 ``(chunks per shard…, 2)``: offset and size in bytes within the shard; both are 2⁶⁴ - 1 (:data:`EMPTY`)
        for missing inner chunks. All others lie within 2⁶³ bytes, and within ``shard_nbytes``.

        Raises
        ------
        ValueError
            If the index is corrupt: wrong size or checksum, or an impossible entry.
        """
        encoded = flat(data)
        expected = self.index_nbytes(shard_shape)
        if encoded.size != expected:
            raise ValueError(f"shard index: {encoded.size} bytes, expected {expected}")
        try:
            index = np.ascontiguousarray(decode_chain(self.index_codecs, encoded, self._index(shard_shape)))
        except ValueError as error:
            raise ValueError(f"shard index: {error}") from None
        rows = index.reshape(-1, 2)
        bad = outside(rows, np.uint64(2**63 - 1 if shard_nbytes is None else shard_nbytes))
        if bad.any():
            first = int(np.argmax(bad))
            offset, nbytes = rows[:, 0], rows[:, 1]
            where = tuple(int(i) for i in np.unravel_index(first, index.shape[:-1]))
            size = "" if shard_nbytes is None else f" of {shard_nbytes} bytes"
            raise ValueError(
                f"shard index: inner chunk {where} at byte {int(offset[first])} with {int(nbytes[first])} bytes"
                f" does not lie within the shard{size}"
            )
        return index

    def encode_index(self, index: npt.NDArray[np.uint64], shard_shape: tuple[int, ...]) -> npt.NDArray[np.uint8]:
        """Encode the index of a shard: the inverse of :meth:`decode_index`."""
        expected = self._index(shard_shape)
        return flat(encode_chain(self.index_codecs, index.reshape(expected.shape), expected))

    def encoded(self, decoded: Representation) -> BytesRepresentation:
        """Return an unknown size, after checking that shard, inner chunks and both chains match."""
        shard = need_array(decoded, self.label)
        at = "$.configuration.chunk_shape"
        if len(shard.shape) != len(self.chunk_shape):
            raise MetadataError(
                f"inner chunks have {len(self.chunk_shape)} dimensions, the shard has {len(shard.shape)}", json_path=at
            )
        for i, (outer, inner) in enumerate(zip(shard.shape, self.chunk_shape, strict=True)):
            if outer % inner:
                raise MetadataError(
                    f"inner chunks of {inner} do not divide shards of {outer} along dimension {i}",
                    json_path=f"{at}[{i}]",
                )
        stored = representations(self.codecs, self.inner(shard), "$.configuration.codecs")[-1]
        index_nbytes = self.index_nbytes(shard.shape)
        if stored == BytesRepresentation(None):
            # A shard of elements of any length may have any, too.
            return BytesRepresentation(None)
        most = ceiling(stored) if isinstance(stored, BytesRepresentation) else 0
        return compressed(
            BytesRepresentation(None, index_nbytes + most * math.prod(self.chunks_per_shard(shard.shape)))
        )

    def decode(self, encoded: Any, decoded: Representation) -> Any:
        """Return a whole shard."""
        shard = need_array(decoded, self.label)
        data = flat(encoded)
        index_nbytes = self.index_nbytes(shard.shape)
        if data.size < index_nbytes:
            raise ValueError(f"sharding_indexed: {data.size} bytes are too few for an index of {index_nbytes}")
        part = data[:index_nbytes] if self.index_location == "start" else data[data.size - index_nbytes :]
        index = self.decode_index(part, shard.shape, shard_nbytes=data.size)
        try:
            output = np.empty(shard.shape, shard.dtype)
        except (MemoryError, ValueError):
            raise ValueError(f"sharding_indexed: a shard of {shard.nbytes} bytes cannot be allocated") from None
        inner = self.inner(shard)
        default = self.fill_value
        if default is None:
            default = "" if shard.dtype.hasobject else np.zeros((), shard.dtype)[()]
        for coords in np.ndindex(index.shape[:-1]):
            where = tuple(slice(i * c, (i + 1) * c) for i, c in zip(coords, self.chunk_shape, strict=True))
            offset, nbytes = (int(v) for v in index[coords])
            if offset == EMPTY:
                output[where] = default
                continue
            try:
                output[where] = decode_chain(self.codecs, data[offset : offset + nbytes], inner)
            except ValueError as error:
                raise ValueError(f"inner chunk {coords}: {error}") from None
        return output

    def encode(self, decoded: Any, representation: Representation) -> Any:
        """Return a shard with all inner chunks, in C order."""
        shard = need_array(representation, self.label)
        inner = self.inner(shard)
        index_nbytes = self.index_nbytes(shard.shape)
        index = np.empty(self._index(shard.shape).shape, np.uint64)
        position = index_nbytes if self.index_location == "start" else 0
        parts = []
        for coords in np.ndindex(index.shape[:-1]):
            where = tuple(slice(i * c, (i + 1) * c) for i, c in zip(coords, self.chunk_shape, strict=True))
            # The ellipsis keeps a chunk without dimensions an array.
            part = flat(encode_chain(self.codecs, decoded[(*where, ...)], inner))
            index[coords] = position, part.size
            position += part.size
            parts.append(part)
        encoded = self.encode_index(index, shard.shape)
        return np.concatenate([encoded, *parts] if self.index_location == "start" else [*parts, encoded])
