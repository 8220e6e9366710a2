"""Zarr v2: ``.zarray``, ``.zgroup``, ``.zattrs`` under a node's path, and ``.zmetadata`` under a group's.

Specification: https://zarr-specs.readthedocs.io/en/latest/v2/v2.0.html. Consolidated metadata follows zarr-python since
version 2.3: all documents of a group and of the nodes below, by key.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from ...codecs.transpose import TransposeCodec
from ...documents.deferred import load_around
from ...documents.json import load_attributes
from ...errors import MetadataError, UnsupportedError
from ...stores.keys import join_path
from ..format import CodecParts, Features, Format
from ..model import ArrayMetadata, ChunkKeyEncoding, GroupMetadata
from ..parts import error_at, parse_attributes
from . import parse, write

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from ...codecs.codec import Codec
    from ..format import ParseOptions
    from ..layout import Layout
    from ..model import NodeMetadata, ZarrFormat


class V2(Format):
    """Version 2."""

    zarr_format: ClassVar[ZarrFormat] = 2
    title = "version 2"
    looked_for = ".zarray or .zgroup"
    features: ClassVar[Features] = Features(objects=True)
    document_names: ClassVar[tuple[str, ...]] = (".zarray", ".zgroup", ".zattrs", ".zmetadata")
    node_documents: ClassVar[tuple[str, ...]] = (".zarray", ".zgroup")
    consolidated_document: ClassVar[str] = ".zmetadata"
    consolidates_own = True
    ome_version: ClassVar[str] = "0.4"

    def keys_of(self, path: str, node_type: Literal["array", "group"]) -> list[str]:
        array, group, attributes, consolidated = self.keys(path)
        return [array, attributes] if node_type == "array" else [group, attributes, consolidated]

    def node_type(
        self, path: str, found: Mapping[str, bytes], layout: Layout | None = None
    ) -> Literal["array", "group"] | None:
        array, group = self.node_keys(path)
        return "array" if array in found else "group" if group in found else None

    def parse_node(
        self, path: str, found: Mapping[str, bytes], options: ParseOptions, layout: Layout | None = None
    ) -> NodeMetadata | None:
        keys = dict(zip(self.document_names, self.keys(path), strict=True))
        documents = {
            name: load_around(found[key], key, ("metadata",) if name == self.consolidated_document else ())
            for name, key in keys.items()
            if key in found and name != ".zattrs"
        }
        attributes_key = keys[".zattrs"]
        attributes = None
        if attributes_key in found:
            with error_at(attributes_key):
                attributes = parse_attributes(load_attributes(found[attributes_key], attributes_key), "$")
        if (document := documents.get(".zarray")) is not None:
            with error_at(keys[".zarray"]):
                return parse.parse_array(document, attributes, allow_pickle=options.allow_pickle)
        group = documents.get(".zgroup")
        nodes = None
        if (index := documents.get(".zmetadata")) is not None:
            nodes = self._parse_consolidated(keys[".zmetadata"], index, options, required=group is None)
        if group is not None:
            with error_at(keys[".zgroup"]):
                metadata: NodeMetadata = parse.parse_group(group, attributes)
        elif nodes is not None and "" in nodes:
            own = nodes[""]
            if isinstance(own, MetadataError):
                raise own.at(keys[".zmetadata"])
            metadata = own
        elif nodes:
            metadata = GroupMetadata(zarr_format=self.zarr_format, implicit=True)
        else:
            return None
        return replace(metadata, consolidated=nodes) if isinstance(metadata, GroupMetadata) else metadata

    def _parse_consolidated(
        self, key: str, index: dict[str, Any], options: ParseOptions, *, required: bool
    ) -> Mapping[str, NodeMetadata | MetadataError] | None:
        with error_at(key):
            try:
                return parse.parse_consolidated(index, allow_pickle=options.allow_pickle)
            except UnsupportedError:
                # The document is not part of version 2: if it is unusable, the nodes' own documents are read.
                if required or options.use_consolidated is not None:
                    raise
                return None

    def order(self, metadata: ArrayMetadata, codecs: Sequence[Codec]) -> Literal["C", "F"]:
        document = metadata.document.get(".zarray", {})
        return "F" if document.get("order") == "F" else "C"

    def codec_parts(self, metadata: ArrayMetadata, codecs: Sequence[Codec]) -> CodecParts:
        """Return the parts as in the document: the order is not a codec, and filters may work on bytes."""
        parts = super().codec_parts(metadata, codecs)
        document = metadata.document.get(".zarray", {})
        filters, others = parts.filters, parts.compressors
        if filters and document.get("order") == "F" and isinstance(filters[0], TransposeCodec):
            filters = filters[1:]
        last = len(others) - (document.get("compressor") is not None)
        return CodecParts(filters + others[:last], parts.serializer, others[last:])

    def array_documents(self, metadata: ArrayMetadata, path: str) -> dict[str, dict[str, Any]]:
        return _by_key(path, write.array_documents(metadata))

    def group_documents(
        self, metadata: GroupMetadata, path: str, layout: Layout | None = None
    ) -> dict[str, dict[str, Any]]:
        return _by_key(path, write.group_documents(metadata))

    def array_document(self, metadata: ArrayMetadata) -> dict[str, Any]:
        return write.array_documents(metadata)

    def group_document(self, metadata: GroupMetadata) -> dict[str, Any]:
        return write.group_documents(metadata)

    def consolidated(self, group: GroupMetadata, nodes: Mapping[str, NodeMetadata]) -> dict[str, Any]:
        documents = self.group_documents(group, "")
        for path, node in nodes.items():
            if isinstance(node, ArrayMetadata):
                documents |= self.array_documents(node, path)
            else:
                documents |= self.group_documents(node, path)
        return {"metadata": documents, "zarr_consolidated_format": 1}

    def without_consolidated(self, path: str, found: Mapping[str, bytes]) -> dict[str, dict[str, Any] | None]:
        key = join_path(path, self.consolidated_document)
        return {key: None} if key in found else {}

    def chunk_key_encodings(self, layout: Layout | None) -> tuple[ChunkKeyEncoding, ...]:
        return (ChunkKeyEncoding("v2", "."),)

    def data_type_text(self, stored: np.dtype[Any], text_codec: str | None, name: str | None) -> str:
        return write.data_type_text(stored)


def _by_key(path: str, documents: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {join_path(path, name): document for name, document in documents.items()}
