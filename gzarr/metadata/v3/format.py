"""Zarr v3.1: ``zarr.json`` under a node's path.

Specification: https://zarr-specs.readthedocs.io/en/latest/v3/core/index.html. Consolidated metadata follows
zarr-python: the member ``consolidated_metadata`` of a group's own document.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from ...documents.deferred import load_around
from ...documents.json import load_document
from ...dtypes.properties import native
from ...dtypes.v3 import to_v3
from ..format import Features, Format
from ..layout import is_entry_point
from ..model import ArrayMetadata, ChunkKeyEncoding
from ..parts import error_at
from . import parse, write

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from ..chunk_grid import ChunkGrid
    from ..format import ParseOptions
    from ..layout import Layout
    from ..model import GroupMetadata, NodeMetadata, ZarrFormat

_NAME: Final = "zarr.json"
_CONSOLIDATED: Final = "consolidated_metadata"
_TEXTS: Final = {"vlen-utf8": "string", "vlen-bytes": "variable_length_bytes"}
# In every document of a node.
_NODE_MARK: Final = b'"node_type"'


class V3(Format):
    """Version 3."""

    zarr_format: ClassVar[ZarrFormat] = 3
    title = "version 3"
    looked_for = _NAME
    features: ClassVar[Features] = Features(
        shards=True,
        dimension_names=True,
        byte_order_codec=True,
        mask_attribute=True,
        unread_codecs=("base64", "categorize"),
        numcodecs_ids=False,
        undefined_fill=False,
    )
    document_names: ClassVar[tuple[str, ...]] = (_NAME,)
    node_documents: ClassVar[tuple[str, ...]] = (_NAME,)
    consolidated_document: ClassVar[str] = _NAME
    ome_version: ClassVar[str] = "0.5"

    def node_type(
        self, path: str, found: Mapping[str, bytes], layout: Layout | None = None
    ) -> Literal["array", "group"] | None:
        (key,) = self.keys(path)
        if key not in found:
            return None
        document = load_document(found[key], key)
        if is_entry_point(document):
            return None
        return "array" if document.get("node_type") == "array" else "group"

    def parse_node(
        self, path: str, found: Mapping[str, bytes], options: ParseOptions, layout: Layout | None = None
    ) -> NodeMetadata | None:
        (key,) = self.keys(path)
        if key not in found:
            return None
        document = load_around(found[key], key, (_CONSOLIDATED, "metadata"), wanted=_CONSOLIDATED)
        if options.use_consolidated is False:
            document = _without_consolidated(document)
        with error_at(key):
            return parse.parse_node(document, allow_pickle=options.allow_pickle, allow_fallback=options.allow_fallback)

    def is_reserved(self, name: str) -> bool:
        """Return whether the section "Node names" of the specification reserves a name."""
        return name.startswith("__")

    def is_extension(self, path: str, found: Mapping[str, bytes]) -> bool:
        """Return whether a reserved name holds no node: extensions may keep anything there."""
        (key,) = self.keys(path)
        return self.is_reserved(path.rpartition("/")[2]) and _NODE_MARK not in found.get(key, b"")

    def array_documents(self, metadata: ArrayMetadata, path: str) -> dict[str, dict[str, Any]]:
        return dict(zip(self.keys(path), [self.array_document(metadata)], strict=True))

    def group_documents(
        self, metadata: GroupMetadata, path: str, layout: Layout | None = None
    ) -> dict[str, dict[str, Any]]:
        return dict(zip(self.keys(path), [self.group_document(metadata)], strict=True))

    def array_document(self, metadata: ArrayMetadata) -> dict[str, Any]:
        return write.array_documents(metadata)[_NAME]

    def group_document(self, metadata: GroupMetadata) -> dict[str, Any]:
        return write.group_documents(metadata)[_NAME]

    def resized_grid(self, metadata: ArrayMetadata, shape: tuple[int, ...]) -> ChunkGrid:
        return parse.resized_by_plugin(metadata, shape) or super().resized_grid(metadata, shape)

    def grid_is_of_plugin(self, metadata: ArrayMetadata) -> bool:
        return bool(metadata.document) and parse.plugin_of_grid(metadata.document) is not None

    def unconsolidated(self, group: GroupMetadata) -> GroupMetadata:
        return replace(group, consolidated=None, document=_without_consolidated(group.document))

    def consolidated(self, group: GroupMetadata, nodes: Mapping[str, NodeMetadata]) -> dict[str, Any]:
        documents = {
            path: self.array_document(node) if isinstance(node, ArrayMetadata) else self.group_document(node)
            for path, node in nodes.items()
        }
        inline = {
            "kind": "inline",
            "must_understand": False,
            "metadata": {path: _without_consolidated(document) for path, document in documents.items()},
        }
        return {**_without_consolidated(self.group_document(group)), _CONSOLIDATED: inline}

    def without_consolidated(self, path: str, found: Mapping[str, bytes]) -> dict[str, dict[str, Any] | None]:
        (key,) = self.keys(path)
        # Most documents have none, and parsing them can be avoided.
        if f'"{_CONSOLIDATED}"'.encode() not in found.get(key, b""):
            return {}
        document = load_document(found[key], key)
        return {} if document.get(_CONSOLIDATED) is None else {key: _without_consolidated(document)}

    def chunk_key_encodings(self, layout: Layout | None) -> tuple[ChunkKeyEncoding, ...]:
        return (ChunkKeyEncoding("default", "/"), ChunkKeyEncoding("v2", "."))

    def data_type_text(self, stored: np.dtype[Any], text_codec: str | None, name: str | None) -> str:
        said = name or (to_v3(native(stored)) if text_codec is None else _TEXTS[text_codec])
        return said if isinstance(said, str) else json.dumps(said)


def _without_consolidated(document: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name != _CONSOLIDATED}
