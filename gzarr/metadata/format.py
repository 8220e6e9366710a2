"""Interface of a version of the Zarr format: where a node's documents are, what they say, what they can express.

There is one :class:`Format` per version, in a subpackage with the parser and writer of its documents.
:data:`gzarr.metadata.formats.FORMATS` lists them. Other packages ask a format about its version; only this package
compares versions.

Formats do not access stores. They take and return documents by store key.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from ..codecs.bytes import BytesCodec
from ..codecs.crc32c import Crc32cCodec
from ..codecs.transpose import TransposeCodec
from ..errors import ArgumentError
from ..stores.keys import join_path

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np

    from ..codecs.codec import Codec
    from .chunk_grid import ChunkGrid
    from .layout import Layout
    from .model import ArrayMetadata, ChunkKeyEncoding, GroupMetadata, NodeMetadata, ZarrFormat


class ParseOptions(Protocol):
    """Options of the caller for parsing documents."""

    @property
    def allow_pickle(self) -> bool:
        """Whether codecs may run pickled code."""

    @property
    def allow_fallback(self) -> bool:
        """Whether an unknown data type may be read as the fallback named in its document."""

    @property
    def use_consolidated(self) -> bool | None:
        """Use of consolidated metadata: None if it exists, False never, True required."""


@dataclass(frozen=True, slots=True)
class Features:
    """Features that documents of a format can express.

    Attributes
    ----------
    groups
        Groups.
    shards
        A sharding codec (or storage transformer).
    dimension_names
        A member for the names of dimensions; otherwise they are kept in an attribute, as in xarray.
    objects
        Arbitrary Python objects as elements, by a numcodecs codec.
    byte_order_codec
        A byte order in a codec rather than in the data type.
    mask_attribute
        Missing elements by CF's attribute ``_FillValue``, as in xarray; otherwise those equal to the fill value are.
    zstd
        A zstd codec, not only zstd inside Blosc.
    unread_codecs
        Codecs of numcodecs that no other library knows in the format. They are written where they are asked for.
    numcodecs_ids
        The ids of numcodecs as the names of codecs.
    undefined_fill
        ``null`` as fill value, which leaves open what absent chunks hold.
    portable
        Documents that do not state the location of their node, so that a copy of the node can reuse them.
    writable
        Nodes that gzarr creates and changes; otherwise it only reads them.
    """

    groups: bool = True
    shards: bool = False
    dimension_names: bool = False
    objects: bool = False
    byte_order_codec: bool = False
    mask_attribute: bool = False
    zstd: bool = True
    unread_codecs: tuple[str, ...] = ()
    numcodecs_ids: bool = True
    undefined_fill: bool = True
    portable: bool = True
    writable: bool = True


@dataclass(frozen=True, slots=True)
class CodecParts:
    """The codecs of a chunk under zarr-python's names.

    Attributes
    ----------
    filters
        Codecs before the serializer, in encoding order.
    serializer
        Array→bytes codec.
    compressors
        Codecs after the serializer, in encoding order.
    """

    filters: tuple[Codec, ...]
    serializer: Codec
    compressors: tuple[Codec, ...]


class Format(ABC):
    """One version of the Zarr format.

    A node's documents lie under its path, unless :attr:`has_entry_point`: then the entry point of a hierarchy defines
    their location, and methods take the :class:`Layout` of the hierarchy, which is None for other formats.

    Attributes
    ----------
    zarr_format
        Value of ``zarr_format=``.
    title
        Name of the format in messages: ``"version 2"``.
    looked_for
        Documents that make a node, for the message that there is none.
    features
        Features that its documents can express.
    document_names
        Names of all documents that a node can have, relative to its path, including consolidated metadata.
    node_documents
        Names of the documents whose presence indicates a node.
    consolidated_document
        Name of the document with the consolidated metadata of a group; None if the format has none.
    consolidates_own
        Whether a group's consolidated metadata repeats its own documents, and so goes stale when they change.
    is_searched_last
        Whether its nodes are looked for only if there is no node of another format.
    has_entry_point
        Whether the entry point of a hierarchy defines the location of documents.
    ome_version
        Version of OME-Zarr whose metadata are in hierarchies of this format; None for none.
    copied_as
        Format of copies that name none; None for the same.
    """

    zarr_format: ClassVar[ZarrFormat]
    title: ClassVar[str]
    looked_for: ClassVar[str]
    features: ClassVar[Features]
    document_names: ClassVar[tuple[str, ...]] = ()
    node_documents: ClassVar[tuple[str, ...]] = ()
    consolidated_document: ClassVar[str | None] = None
    consolidates_own: ClassVar[bool] = False
    is_searched_last: ClassVar[bool] = False
    has_entry_point: ClassVar[bool] = False
    ome_version: ClassVar[str | None] = None
    copied_as: ClassVar[ZarrFormat | None] = None
    #: Index codecs of new shards.
    shard_index_codecs: ClassVar[tuple[Codec, ...]] = (BytesCodec("little"), Crc32cCodec())

    # -- keys

    def keys(self, path: str, layout: Layout | None = None, *, consolidated: bool = True) -> list[str]:
        """Return the store keys of all documents that the node at ``path`` can have.

        Without ``consolidated``, documents that hold only consolidated metadata are left out.
        """
        return [
            join_path(path, name)
            for name in self.document_names
            if consolidated or name != self.consolidated_document or name in self.node_documents
        ]

    def keys_of(self, path: str, node_type: Literal["array", "group"]) -> list[str]:
        """Return the :meth:`keys` that a node of this type can have."""
        return self.keys(path)

    def node_keys(self, path: str) -> list[str]:
        """Return the store keys whose presence indicates a node at ``path``."""
        return [join_path(path, name) for name in self.node_documents]

    def consolidated_key(self, path: str) -> str | None:
        """Return the store key of a group's consolidated metadata; None if the format has none."""
        return None if self.consolidated_document is None else join_path(path, self.consolidated_document)

    # -- reading

    @abstractmethod
    def node_type(
        self, path: str, found: Mapping[str, bytes], layout: Layout | None = None
    ) -> Literal["array", "group"] | None:
        """Return the type of the node at ``path`` by the documents found; None if there is no node of this format."""

    @abstractmethod
    def parse_node(
        self, path: str, found: Mapping[str, bytes], options: ParseOptions, layout: Layout | None = None
    ) -> NodeMetadata | None:
        """Return the node at ``path`` described by the documents found; None if there is none of this format.

        Raises
        ------
        MetadataError
            If a document is malformed; the error names its key.
        UnsupportedError
            If a document uses something unknown.
        """

    def recognises(self, path: str, found: Mapping[str, bytes]) -> bool:
        """Return whether the documents found belong to this format, if the caller did not name it."""
        return any(key in found for key in self.node_keys(path))

    def is_reserved(self, name: str) -> bool:
        """Return whether the specification forbids this name for nodes."""
        return False

    def is_extension(self, path: str, found: Mapping[str, bytes]) -> bool:
        """Return whether a directory in a group belongs to an extension rather than a node."""
        return False

    def image_attributes(
        self, attributes: Mapping[str, Any], child: Callable[[str], NodeMetadata | None]
    ) -> dict[str, Any] | None:
        """Return the attributes of OME-Zarr 0.4 for a group that is an image by other conventions of the format.

        Parameters
        ----------
        attributes
            Attributes of a group.
        child
            Function from a path below the group to the metadata of the node there; None if there is none.

        Returns
        -------
        The attributes; None if the group is no such image.

        Raises
        ------
        MetadataError
            If the attributes are malformed.
        """
        return None

    # -- codecs of an array

    def order(self, metadata: ArrayMetadata, codecs: Sequence[Codec]) -> Literal["C", "F"]:
        """Return the order of the stored elements of a chunk, given the codecs of a chunk (inner chunk)."""
        first = codecs[0]
        reversed_axes = tuple(reversed(range(metadata.ndim)))
        return "F" if isinstance(first, TransposeCodec) and first.order == reversed_axes else "C"

    def codec_parts(self, metadata: ArrayMetadata, codecs: Sequence[Codec]) -> CodecParts:
        """Return filters, serializer and compressors, given the codecs of a chunk (inner chunk)."""
        at = next(i for i, codec in enumerate(codecs) if codec.kind == "array_to_bytes")
        return CodecParts(tuple(codecs[:at]), codecs[at], tuple(codecs[at + 1 :]))

    def copied_codecs(self, codecs: Sequence[Codec]) -> tuple[Codec, ...]:
        """Return the codecs with which a copy of an array is stored like it, in a format that has them."""
        return tuple(codecs)

    # -- writing

    @abstractmethod
    def array_documents(self, metadata: ArrayMetadata, path: str) -> dict[str, dict[str, Any]]:
        """Return the documents of an array by store key; the last one creates the node.

        Raises
        ------
        ArgumentError
            If the format cannot express the array.
        """

    def group_documents(
        self, metadata: GroupMetadata, path: str, layout: Layout | None = None
    ) -> dict[str, dict[str, Any]]:
        """Return the documents of a group by store key; the last one creates the node.

        Raises
        ------
        ArgumentError
            If the format has no groups.
        """
        raise ArgumentError(f"'/{path}': {self.title} has arrays only; a group needs zarr_format=2 or 3")

    @abstractmethod
    def array_document(self, metadata: ArrayMetadata) -> dict[str, Any]:
        """Return the ``document`` that the array would have once read back, after its shape or attributes changed."""

    def group_document(self, metadata: GroupMetadata) -> dict[str, Any]:
        """Return the ``document`` that the group would have once read back, after its attributes changed."""
        raise NotImplementedError

    def resized_grid(self, metadata: ArrayMetadata, shape: tuple[int, ...]) -> ChunkGrid:
        """Return the chunk grid that the array would have with another shape.

        Raises
        ------
        ArgumentError
            If the grid does not allow the shape.
        """
        return metadata.chunk_grid.resized(shape)

    def grid_is_of_plugin(self, metadata: ArrayMetadata) -> bool:
        """Return whether the chunk grid is of another package, so that chunk lengths may depend on the shape."""
        return False

    def unconsolidated(self, group: GroupMetadata) -> GroupMetadata:
        """Return the metadata of the same group without consolidated metadata."""
        return replace(group, consolidated=None)

    def consolidated(self, group: GroupMetadata, nodes: Mapping[str, NodeMetadata]) -> dict[str, Any]:
        """Return the document with the consolidated metadata of a group and the nodes below, given by relative path."""
        raise NotImplementedError

    def without_consolidated(self, path: str, found: Mapping[str, bytes]) -> dict[str, dict[str, Any] | None]:
        """Return the documents that remove the consolidated metadata of the group at ``path``; None means erase.

        Empty if there is none among the documents found.
        """
        return {}

    # -- new nodes

    def layout(self, present: Layout | None) -> Layout | None:
        """Return the layout for a new node, given that of the existing hierarchy, if any."""
        return None

    def new_document(self, layout: Layout | None) -> dict[str, Any]:
        """Return the ``document`` of a new node's metadata."""
        return {}

    def chunk_prefix(self, path: str, layout: Layout | None) -> str | None:
        """Return the prefix of a new array's chunk keys; None if they lie under its path."""
        return None

    @abstractmethod
    def chunk_key_encodings(self, layout: Layout | None) -> tuple[ChunkKeyEncoding, ...]:
        """Return the available chunk key encodings with their default separators, the default encoding first."""

    @abstractmethod
    def data_type_text(self, stored: np.dtype[Any], text_codec: str | None, name: str | None) -> str:
        """Return the :attr:`ArrayMetadata.data_type` of a new array.

        Parameters
        ----------
        stored
            Type of the elements in stored byte order.
        text_codec
            ``"vlen-utf8"`` or ``"vlen-bytes"`` for strings of any length, else None.
        name
            Data type if given by its version 3 name, else None.

        Raises
        ------
        ArgumentError
            If the format has no such data type.
        """

    def shares_hierarchy(self, other: Format) -> bool:
        """Return whether nodes of both formats may be in one hierarchy; a hierarchy has one format."""
        return self is other

    def can_reuse(self, metadata: NodeMetadata) -> bool:
        """Return whether a copy in this format can reuse the documents of a node unchanged."""
        return self.features.portable and metadata.zarr_format == self.zarr_format
