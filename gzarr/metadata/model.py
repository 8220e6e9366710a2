"""The one model of array and group metadata. Nothing after this layer asks which Zarr version a node is.

Differences between the versions are data here: a v2 array in order F has a ``transpose`` codec, its filters and
compressor are bytes→bytes codecs behind a ``bytes`` codec, its keys are a :class:`ChunkKeyEncoding`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    import numpy as np

    from ..codecs.codec import Codec
    from ..errors import MetadataError

ZarrFormat: TypeAlias = Literal[2, 3]


@dataclass(frozen=True, slots=True)
class ChunkKeyEncoding:
    """How grid coordinates become a key relative to the node.

    ``default``: ``c/0/1`` (``c`` for zero dimensions); ``v2``: ``0.1`` (``0`` for zero dimensions).
    Source: https://zarr-specs.readthedocs.io/en/latest/v3/chunk-key-encodings/index.html
    """

    name: Literal["default", "v2"]
    separator: Literal["/", "."]

    @property
    def prefix(self) -> str:
        """What stands before the first coordinate (for one dimension or more)."""
        return f"c{self.separator}" if self.name == "default" else ""

    def encode(self, coords: tuple[int, ...]) -> str:
        """Return the key of one chunk, relative to the node."""
        if not coords:
            return "c" if self.name == "default" else "0"
        return self.prefix + self.separator.join(map(str, coords))


@dataclass(frozen=True, slots=True, eq=False)
class ArrayMetadata:
    """An array, whatever its format.

    Attributes
    ----------
    shape
        In elements, one entry a dimension.
    dtype
        NumPy dtype in native byte order (byte order of the stored bytes is the ``bytes`` codec's).
    data_type
        Name of the data type as the document spells it (``"float64"``, ``"<f8"``; the JSON text of a structured one).
    chunk_shape
        Shape of a chunk of the grid (of a shard, in a sharded array), in elements.
    chunk_key_encoding
        How chunk keys are built.
    fill_value
        NumPy scalar of ``dtype`` (an object for ``dtype('O')``), or None where a v2 document says ``null``: absent
        chunks then read as zeros.
    codecs
        The chain in encoding order; exactly one array→bytes codec.
    attributes
        User attributes.
    dimension_names
        One name or None a dimension; None if the document has none.
    zarr_format
        2 or 3; for display and for writing only.
    document
        The parsed JSON document(s) that this came from, for display and for writing.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    data_type: str
    chunk_shape: tuple[int, ...]
    chunk_key_encoding: ChunkKeyEncoding
    fill_value: Any
    codecs: tuple[Codec, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    dimension_names: tuple[str | None, ...] | None = None
    zarr_format: ZarrFormat = 3
    document: dict[str, Any] = field(default_factory=dict)

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def grid_shape(self) -> tuple[int, ...]:
        """Number of chunks (shards, in a sharded array) along each dimension."""
        return tuple(-(-s // c) for s, c in zip(self.shape, self.chunk_shape, strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class GroupMetadata:
    """A group, whatever its format.

    Attributes
    ----------
    attributes
        User attributes.
    zarr_format
        2 or 3.
    consolidated
        Metadata of every node below, by path relative to this group (``"a/b"``), groups in it without any of their own;
        the error stands for a node whose document cannot be used. None where there is no consolidated metadata.
    implicit
        True for a group without a document of its own.
    document
        The parsed JSON document(s) that this came from.
    """

    attributes: dict[str, Any] = field(default_factory=dict)
    zarr_format: ZarrFormat = 3
    consolidated: dict[str, ArrayMetadata | GroupMetadata | MetadataError] | None = None
    implicit: bool = False
    document: dict[str, Any] = field(default_factory=dict)


NodeMetadata: TypeAlias = ArrayMetadata | GroupMetadata
