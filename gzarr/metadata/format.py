"""What a version of the Zarr format is asked: where the documents of a node are, what they say, what they can say.

There is one :class:`Format` for each version, in a folder of its own beside what parses and writes its documents.
:data:`gzarr.metadata.formats.FORMATS` has them all. Whoever needs to know something of a version asks its format for
it; only this package compares versions.

Formats read and write no store. They are given documents by store key, and give documents by store key.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from ..codecs.bytes import BytesCodec
from ..codecs.crc32c import Crc32cCodec
from ..errors import ArgumentError
from ..stores.keys import join_path

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from ..codecs.codec import Codec
    from .layout import Layout
    from .model import ArrayMetadata, ChunkKeyEncoding, GroupMetadata, NodeMetadata, ZarrFormat


class ReadOptions(Protocol):
    """What a caller allows when documents are parsed."""

    @property
    def allow_pickle(self) -> bool:
        """Codecs that run pickled code are allowed."""

    @property
    def allow_fallback(self) -> bool:
        """An unknown data type may be read as the fallback that its document names."""

    @property
    def use_consolidated(self) -> bool | None:
        """Consolidated metadata: None where there is some, False never, True required."""


@dataclass(frozen=True, slots=True)
class Features:
    """What documents of a format can say.

    Attributes
    ----------
    groups
        There are groups.
    shards
        There is a sharding codec (or storage transformer).
    dimension_names
        Arrays have a member for them; otherwise they are kept in an attribute, as xarray does.
    objects
        Elements may be any Python objects, by a codec of numcodecs.
    byte_order_codec
        The byte order is a codec's, not the data type's.
    zstd
        There is a codec zstd, not only Blosc's.
    portable
        Documents do not say where their node is: a copy of the node can have the same.
    """

    groups: bool = True
    shards: bool = False
    dimension_names: bool = False
    objects: bool = False
    byte_order_codec: bool = False
    zstd: bool = True
    portable: bool = True


class Format(ABC):
    """One version of the Zarr format.

    A node's documents lie under its path, unless :attr:`has_entry_point`: then the entry point of a hierarchy says
    where they lie, and methods take the :class:`Layout` of the hierarchy. For other formats it is None.

    Attributes
    ----------
    zarr_format
        The value that ``zarr_format=`` takes.
    title
        The format in messages: ``"version 2"``.
    looked_for
        What makes a node, for the message that there is none.
    features
        What its documents can say.
    document_names
        Names of all documents that a node can have, relative to its path; of consolidated metadata, too.
    node_documents
        The names whose presence says that there is a node.
    consolidated_document
        Name of the document that has the consolidated metadata of a group; None if the format has none.
    consolidates_own
        Consolidated metadata of a group repeats the group's own documents, and is wrong once these change.
    is_searched_last
        Its nodes are looked for only where there is none of another format.
    has_entry_point
        Documents lie where the entry point of their hierarchy says.
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
    #: Codecs of the index of a new shard.
    shard_index_codecs: ClassVar[tuple[Codec, ...]] = (BytesCodec("little"), Crc32cCodec())

    # -- keys

    def keys(self, path: str, layout: Layout | None = None, *, consolidated: bool = True) -> list[str]:
        """Return the store keys of all documents that the node at ``path`` can have.

        Without ``consolidated``, those of documents that have only consolidated metadata are left out.
        """
        return [
            join_path(path, name)
            for name in self.document_names
            if consolidated or name != self.consolidated_document or name in self.node_documents
        ]

    def node_keys(self, path: str) -> list[str]:
        """Return the store keys whose presence says that there is a node at ``path``."""
        return [join_path(path, name) for name in self.node_documents]

    def consolidated_key(self, path: str) -> str | None:
        """Return the store key of a group's consolidated metadata; None if the format has none."""
        return None if self.consolidated_document is None else join_path(path, self.consolidated_document)

    # -- reading

    @abstractmethod
    def node_type(self, path: str, found: Mapping[str, bytes]) -> Literal["array", "group"] | None:
        """Return what the documents found make the node at ``path``; None if there is no node of this format."""

    @abstractmethod
    def parse_node(
        self, path: str, found: Mapping[str, bytes], options: ReadOptions, layout: Layout | None = None
    ) -> NodeMetadata | None:
        """Return the node at ``path`` that the documents found describe; None if there is none of this format.

        Raises
        ------
        MetadataError
            If a document is malformed; it names the key. :class:`UnsupportedError` if it asks for something unknown.
        """

    def recognises(self, path: str, found: Mapping[str, bytes]) -> bool:
        """Return whether the documents found are this format's, where it was not asked for by name."""
        return any(key in found for key in self.node_keys(path))

    def is_reserved(self, name: str) -> bool:
        """Return whether the specification forbids a node to have this name."""
        return False

    def is_extension(self, path: str, found: Mapping[str, bytes]) -> bool:
        """Return whether a directory in a group is an extension's, and not a node."""
        return False

    # -- writing

    @abstractmethod
    def array_documents(self, metadata: ArrayMetadata, path: str) -> dict[str, dict[str, Any]]:
        """Return the documents of an array by store key; the one that makes the node is the last.

        Raises
        ------
        ArgumentError
            If the format has no words for something of the array.
        """

    def group_documents(
        self, metadata: GroupMetadata, path: str, layout: Layout | None = None
    ) -> dict[str, dict[str, Any]]:
        """Return the documents of a group by store key; the one that makes the node is the last.

        Raises
        ------
        ArgumentError
            If the format has no groups.
        """
        raise ArgumentError(f"'/{path}': {self.title} has arrays only; a group needs zarr_format=2 or 3")

    @abstractmethod
    def array_document(self, metadata: ArrayMetadata) -> dict[str, Any]:
        """Return what a reader of the array would keep as its ``document``, after shape or attributes were changed."""

    def group_document(self, metadata: GroupMetadata) -> dict[str, Any]:
        """Return what a reader of the group would keep as its ``document``, after its attributes were changed."""
        raise NotImplementedError

    def consolidated(self, group: GroupMetadata, nodes: Mapping[str, NodeMetadata]) -> dict[str, Any]:
        """Return the document with the consolidated metadata of a group, and of the nodes below by relative path."""
        raise NotImplementedError

    def without_consolidated(self, path: str, found: Mapping[str, bytes]) -> dict[str, dict[str, Any] | None]:
        """Return what to write so that the group at ``path`` has no consolidated metadata: None is to be erased.

        Empty where there is none among the documents found.
        """
        return {}

    # -- new nodes

    def layout(self, present: Layout | None) -> Layout | None:
        """Return the layout of the hierarchy of a new node, from that of the hierarchy that is there."""
        return None

    def new_document(self, layout: Layout | None) -> dict[str, Any]:
        """Return what a new node's metadata keeps as its ``document``."""
        return {}

    def chunk_prefix(self, path: str, layout: Layout | None) -> str | None:
        """Return the prefix of a new array's chunk keys; None where they lie under its path."""
        return None

    @abstractmethod
    def chunk_key_encodings(self, layout: Layout | None) -> tuple[ChunkKeyEncoding, ...]:
        """Return the chunk key encodings that an array can have, the usual one first, with their usual separators."""

    @abstractmethod
    def data_type_text(self, stored: np.dtype[Any], text_codec: str | None, name: str | None) -> str:
        """Return the data type of a new array as :attr:`ArrayMetadata.data_type` has it.

        Parameters
        ----------
        stored
            Type of the elements in the byte order to be stored.
        text_codec
            ``"vlen-utf8"`` or ``"vlen-bytes"`` for texts of any length, else None.
        name
            The data type where it was named as version 3 does, else None.

        Raises
        ------
        ArgumentError
            If there is none.
        """

    def shares_hierarchy(self, other: Format) -> bool:
        """Return whether nodes of both formats may be in one hierarchy: it has one format."""
        return self is other

    def can_reuse(self, metadata: NodeMetadata) -> bool:
        """Return whether a copy in this format can have the documents of a node as they are."""
        return self.features.portable and metadata.zarr_format == self.zarr_format
