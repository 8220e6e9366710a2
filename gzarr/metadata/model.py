"""The one model of array and group metadata. Nothing after this layer asks which Zarr version a node is.

Differences between the versions are data here: a v2 array in order F has a ``transpose`` codec, its filters and
compressor are bytes→bytes codecs behind a ``bytes`` codec, its keys are a :class:`ChunkKeyEncoding` behind a prefix.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ..dtypes.times import not_a_time

if TYPE_CHECKING:
    import numpy as np

    from ..codecs.codec import Codec
    from ..errors import MetadataError
    from .chunk_grid import ChunkGrid

#: ``"3-draft-2022"`` stands for the drafts of version 3 from 2020 to 2022, which share nothing but the number with it.
ZarrFormat: TypeAlias = Literal[1, 2, "3-draft-2022", 3]


@dataclass(frozen=True, slots=True)
class ChunkKeyEncoding:
    """How grid coordinates become a key relative to the array's chunk prefix.

    ==============  ===========  ===============  ===============================================================
    name            chunk 0, 1   zero dimensions  source
    ==============  ===========  ===============  ===============================================================
    default         ``c/0/1``    ``c``            version 3
    v2              ``0/1``      ``0``            versions 1 and 2
    draft           ``c0/1``     ``c``            drafts of version 3 of 2022
    draft_root      ``c0/1``     ``c0``           what was written under ``data/root/`` before the last of the drafts
    ==============  ===========  ===============  ===============================================================

    Source: https://zarr-specs.readthedocs.io/en/latest/v3/chunk-key-encodings/index.html
    """

    name: Literal["default", "v2", "draft", "draft_root"]
    separator: Literal["/", "."]

    @property
    def prefix(self) -> str:
        """What stands before the first coordinate (for one dimension or more)."""
        if self.name == "v2":
            return ""
        return f"c{self.separator}" if self.name == "default" else "c"

    def encode(self, coords: tuple[int, ...]) -> str:
        """Return the key of one chunk, relative to the array's chunk prefix."""
        if not coords:
            return {"default": "c", "v2": "0", "draft": "c", "draft_root": "c0"}[self.name]
        return self.prefix + self.separator.join(map(str, coords))


@dataclass(frozen=True, slots=True, eq=False)
class ArrayMetadata:
    """An array, whatever its format.

    Attributes
    ----------
    chunk_grid
        Shape of the array, and where its chunks (shards, in a sharded array) are.
    dtype
        NumPy dtype in native byte order (byte order of the stored bytes is the ``bytes`` codec's).
    data_type
        Name of the data type as the document spells it (``"float64"``, ``"<f8"``; the JSON text of a structured one).
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
        For display and for writing only.
    document
        The parsed JSON document(s) that this came from, for display and for writing.
    chunk_prefix
        Prefix of the chunk keys in the store, ``""`` or ending in ``/``; None where chunks lie under the node's path.
    level_is_free
        Whether the level of the compressor is gzarr's own choice (:mod:`gzarr.codecs.choice`). No document says so.
    """

    chunk_grid: ChunkGrid
    dtype: np.dtype[Any]
    data_type: str
    chunk_key_encoding: ChunkKeyEncoding
    fill_value: Any
    codecs: tuple[Codec, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    dimension_names: tuple[str | None, ...] | None = None
    zarr_format: ZarrFormat = 3
    document: dict[str, Any] = field(default_factory=dict)
    chunk_prefix: str | None = None
    level_is_free: bool = False

    def key_prefix(self, path: str) -> str:
        """Return what stands before every chunk key of the array at node path ``path``."""
        if self.chunk_prefix is not None:
            return self.chunk_prefix
        return f"{path}/" if path else ""

    @property
    def absent_value(self) -> Any:
        """What the elements of absent chunks are; None for zeros.

        Where a document leaves it open, dates and times are NaT, as zarr-python has it.
        """
        if self.fill_value is None and self.dtype.kind in "mM":
            return not_a_time(self.dtype)
        return self.fill_value

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array, in elements."""
        return self.chunk_grid.shape

    @property
    def chunk_shape(self) -> tuple[int, ...]:
        """Shape of a chunk (shard), in elements; the longest along each dimension of a rectilinear grid."""
        return self.chunk_grid.chunk_shape

    @property
    def grid_shape(self) -> tuple[int, ...]:
        """Number of chunks (shards, in a sharded array) along each dimension."""
        return self.chunk_grid.grid_shape


@dataclass(frozen=True, slots=True, eq=False)
class GroupMetadata:
    """A group, whatever its format.

    Attributes
    ----------
    attributes
        User attributes.
    zarr_format
        Of the hierarchy.
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

    @property
    def children_format(self) -> ZarrFormat | None:
        """Format of the nodes below: a hierarchy has one, but an implicit group of version 2 or 3 only suggests it."""
        return None if self.implicit and self.zarr_format in (2, 3) else self.zarr_format


def data_type_json(data_type: str) -> Any:
    """Return an :attr:`ArrayMetadata.data_type` as a document has it: a name, or an object or list."""
    return json.loads(data_type) if data_type.startswith(("[", "{")) else data_type


NodeMetadata: TypeAlias = ArrayMetadata | GroupMetadata
