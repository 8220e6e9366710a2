"""Model of array and group metadata for all Zarr versions. Nothing above this layer asks for the version of a node.

Differences between versions are data here: a v2 array in order F has a ``transpose`` codec, its filters and compressor
are bytes→bytes codecs after a ``bytes`` codec, and its keys are a prefix and a :class:`ChunkKeyEncoding`.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from ..dtypes.times import not_a_time

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..codecs.codec import Codec
    from ..errors import MetadataError
    from .chunk_grid import ChunkGrid

#: ``"3-draft-2022"`` means the drafts of version 3 from 2020 to 2022, which share only the number with version 3.
#: ``"n5"`` is no version of Zarr, but read like one.
ZarrFormat: TypeAlias = Literal[1, 2, "3-draft-2022", 3, "n5"]
#: Formats that are written.
NewFormat: TypeAlias = Literal[1, 2, "3-draft-2022", 3]


@dataclass(frozen=True, slots=True)
class ChunkKeyEncoding:
    """How grid coordinates become a key relative to the array's chunk prefix.

    ==============  ===========  ===============  ===============================================================
    name            chunk 0, 1   zero dimensions  source
    ==============  ===========  ===============  ===============================================================
    default         ``c/0/1``    ``c``            version 3
    v2              ``0/1``      ``0``            versions 1 and 2
    draft           ``c0/1``     ``c``            drafts of version 3 of 2022
    draft_root      ``c0/1``     ``c0``           earlier drafts, with chunks under ``data/root/``
    n5              ``1/0``      none             N5, which counts dimensions from the fastest
    ==============  ===========  ===============  ===============================================================

    Source: https://zarr-specs.readthedocs.io/en/latest/v3/chunk-key-encodings/index.html
    """

    name: Literal["default", "v2", "draft", "draft_root", "n5"]
    separator: Literal["/", "."]

    @property
    def prefix(self) -> str:
        """Text before the first coordinate (for one dimension or more)."""
        if self.name in ("v2", "n5"):
            return ""
        return f"c{self.separator}" if self.name == "default" else "c"

    @property
    def is_reversed(self) -> bool:
        """Whether the coordinates in a key begin with that of the last dimension."""
        return self.name == "n5"

    def encode(self, coords: tuple[int, ...]) -> str:
        """Return the key of one chunk, relative to the array's chunk prefix."""
        if not coords:
            return {"default": "c", "v2": "0", "draft": "c", "draft_root": "c0", "n5": "0"}[self.name]
        # Not by in_key(): every call of Python counts in a small read.
        ordered = coords[::-1] if self.name == "n5" else coords
        return self.prefix + self.separator.join(map(str, ordered))

    def in_key(self, coords: tuple[int, ...]) -> tuple[int, ...]:
        """Return numbers, one for each dimension, in the order of coordinates in a key; its own inverse."""
        return coords[::-1] if self.is_reversed else coords


@dataclass(frozen=True, slots=True, eq=False)
class ArrayMetadata:
    """Metadata of an array in any format.

    Attributes
    ----------
    chunk_grid
        Shape of the array and positions of its chunks (shards, in a sharded array).
    dtype
        NumPy dtype in native byte order (the ``bytes`` codec has the stored byte order).
    data_type
        Name of the data type as spelled in the document (``"float64"``, ``"<f8"``; JSON text for a structured type).
    chunk_key_encoding
        How chunk keys are built.
    fill_value
        NumPy scalar of ``dtype`` (an object for ``dtype('O')``), or None if a v2 document has ``null``: absent chunks
        then read as zeros.
    codecs
        Codec chain in encoding order, with exactly one array→bytes codec.
    attributes
        User attributes.
    dimension_names
        One name or None per dimension; None if the document has no dimension names.
    zarr_format
        Format of the array, used only for display and writing.
    document
        Parsed JSON document(s) of the array, used only for display and writing.
    chunk_prefix
        Prefix of the chunk keys in the store, ``""`` or ending in ``/``; None if chunks are under the node's path.
    hierarchy
        Path in the store of the hierarchy that the array belongs to, for formats whose hierarchies have an entry point;
        ``""`` for others. Paths of documents and chunks do not tell: any part of them may be the name of a group.
    level_is_free
        Whether gzarr chose the level of the compressor (:mod:`gzarr.codecs.choice`). Documents do not record this.
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
    hierarchy: str = ""
    level_is_free: bool = False

    def with_own(
        self, attributes: dict[str, Any], dimension_names: tuple[str | None, ...] | None, document: dict[str, Any]
    ) -> ArrayMetadata:
        """Return the metadata of an array that is stored alike; faster than :func:`dataclasses.replace`."""
        return ArrayMetadata(
            self.chunk_grid,
            self.dtype,
            self.data_type,
            self.chunk_key_encoding,
            self.fill_value,
            self.codecs,
            attributes,
            dimension_names,
            self.zarr_format,
            document,
            self.chunk_prefix,
            self.hierarchy,
            self.level_is_free,
        )

    def key_prefix(self, path: str) -> str:
        """Return the prefix of all chunk keys of the array at node path ``path``."""
        if self.chunk_prefix is not None:
            return self.chunk_prefix
        return f"{path}/" if path else ""

    @property
    def absent_value(self) -> Any:
        """Value of the elements of absent chunks; None for zeros, as :attr:`absent_element` has them.

        If the document has no fill value, dates and times are NaT, as in zarr-python, strings and bytes are empty.
        """
        if self.fill_value is None:
            if self.dtype.kind in "mM":
                return not_a_time(self.dtype)
            if self.dtype == object:
                return next((codec.empty_text for codec in self.codecs if codec.kind == "array_to_bytes"), None)
        return self.fill_value

    @property
    def absent_element(self) -> Any:
        """Element of the dtype that absent chunks read as, never None: :attr:`absent_value`, or else zero.

        This is for what stands where there are no elements, such as beyond the ends of the array.
        """
        value = self.absent_value
        return np.zeros((), self.dtype)[()] if value is None else value

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
        """Shape of a chunk (shard), in elements; for a rectilinear grid, the largest length along each dimension."""
        return self.chunk_grid.chunk_shape

    @property
    def grid_shape(self) -> tuple[int, ...]:
        """Number of chunks (shards, in a sharded array) along each dimension."""
        return self.chunk_grid.grid_shape


@dataclass(frozen=True, slots=True, eq=False)
class GroupMetadata:
    """Metadata of a group in any format.

    Attributes
    ----------
    attributes
        User attributes.
    zarr_format
        Format of the hierarchy.
    consolidated
        Metadata of all nodes below, by path relative to this group (``"a/b"``), or the error of a node whose document
        is unusable. Groups in it have no consolidated metadata of their own. None if there is no consolidated metadata.
        Each is parsed when it is asked for.
    implicit
        True for a group without a document of its own.
    document
        Parsed JSON document(s) of the group. Documents in consolidated metadata may be :class:`Deferred`.
    """

    attributes: dict[str, Any] = field(default_factory=dict)
    zarr_format: ZarrFormat = 3
    consolidated: Mapping[str, ArrayMetadata | GroupMetadata | MetadataError] | None = None
    implicit: bool = False
    document: dict[str, Any] = field(default_factory=dict)

    @property
    def children_format(self) -> ZarrFormat | None:
        """Format of the nodes below; None if unknown, because an implicit group of version 2 or 3 does not fix it."""
        return None if self.implicit and self.zarr_format in (2, 3) else self.zarr_format


def data_type_json(data_type: str) -> Any:
    """Return an :attr:`ArrayMetadata.data_type` as a document has it: a name, or an object or list."""
    return json.loads(data_type) if data_type.startswith(("[", "{")) else data_type


NodeMetadata: TypeAlias = ArrayMetadata | GroupMetadata
