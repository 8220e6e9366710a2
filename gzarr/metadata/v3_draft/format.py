"""The Zarr v3 drafts of 2022, where the entry point of a hierarchy locates documents (see :class:`Layout`).

Specification: https://github.com/zarr-developers/zarr-specs/blob/692fe73/docs/core/v3.0.rst
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from ...codecs.bytes import BytesCodec
from ...documents.json import load_document
from ...stores.keys import join_path
from ..format import Features, Format
from ..layout import ENTRY_POINT, FORMAT, NEW_ENTRY_POINT, Layout, is_entry_point, parse_entry_point
from ..model import ChunkKeyEncoding
from ..parts import error_at
from ..v2.write import data_type_text
from . import parse, write

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from ...codecs.codec import Codec
    from ..format import ParseOptions
    from ..model import ArrayMetadata, GroupMetadata, NodeMetadata, ZarrFormat

# Part of every entry point and of few other documents: documents without it need not be parsed.
_MARK = b"purl.org"


class V3Draft(Format):
    """The version 3 drafts of 2022."""

    zarr_format: ClassVar[ZarrFormat] = FORMAT
    title = "a draft of version 3"
    looked_for = "document of a 2022 draft under meta/ beside a zarr.json that is the entry point of a hierarchy"
    features: ClassVar[Features] = Features(shards=True, portable=False)
    is_searched_last = True
    has_entry_point = True
    shard_index_codecs: ClassVar[tuple[Codec, ...]] = (BytesCodec("little"),)

    def entry_point_key(self, path: str) -> str:
        """Return the store key of the entry point of a hierarchy at ``path``."""
        return join_path(path, ENTRY_POINT)

    def parse_entry_point(self, path: str, found: Mapping[str, bytes]) -> Layout | None:
        """Return the layout of the hierarchy at ``path``; None if its ``zarr.json`` is absent or not an entry point.

        Raises
        ------
        MetadataError
            If it is malformed; the error names its key.
        """
        key = self.entry_point_key(path)
        if _MARK not in found.get(key, b""):
            return None
        document = load_document(found[key], key)
        if not is_entry_point(document):
            return None
        with error_at(key):
            return parse_entry_point(document, path)

    def keys(self, path: str, layout: Layout | None = None, *, consolidated: bool = True) -> list[str]:
        return [] if layout is None else layout.document_keys(layout.relative(path))

    def node_type(
        self, path: str, found: Mapping[str, bytes], layout: Layout | None = None
    ) -> Literal["array", "group"] | None:
        """Return the type; without ``layout``, only the root of a hierarchy is found, by its entry point."""
        if layout is not None:
            array, group = self.keys(path, layout)
            return "array" if array in found else "group" if group in found else None
        key = self.entry_point_key(path)
        return "group" if key in found and is_entry_point(load_document(found[key], key)) else None

    def parse_node(
        self, path: str, found: Mapping[str, bytes], options: ParseOptions, layout: Layout | None = None
    ) -> NodeMetadata | None:
        assert layout is not None
        below = layout.relative(path)
        array_key, group_key = layout.array_key(below), layout.group_key(below)
        if array_key in found:
            document = load_document(found[array_key], array_key)
            with error_at(array_key):
                return parse.parse_array(
                    document,
                    layout,
                    below,
                    allow_pickle=options.allow_pickle,
                    allow_fallback=options.allow_fallback,
                )
        if group_key not in found:
            return None
        document = load_document(found[group_key], group_key)
        with error_at(group_key):
            return parse.parse_group(document, layout)

    def array_documents(self, metadata: ArrayMetadata, path: str) -> dict[str, dict[str, Any]]:
        return write.array_documents(metadata, path)

    def group_documents(
        self, metadata: GroupMetadata, path: str, layout: Layout | None = None
    ) -> dict[str, dict[str, Any]]:
        layout = layout or parse_entry_point(metadata.document.get(ENTRY_POINT, NEW_ENTRY_POINT))
        return write.group_documents(metadata, path, layout)

    def array_document(self, metadata: ArrayMetadata) -> dict[str, Any]:
        return write.updated(metadata)

    def group_document(self, metadata: GroupMetadata) -> dict[str, Any]:
        before = metadata.document.get("group", {"extensions": []})
        return {**metadata.document, "group": {**before, "attributes": metadata.attributes}}

    def layout(self, present: Layout | None) -> Layout:
        return present or parse_entry_point(NEW_ENTRY_POINT)

    def new_document(self, layout: Layout | None) -> dict[str, Any]:
        return {ENTRY_POINT: self.layout(layout).document}

    def chunk_prefix(self, path: str, layout: Layout | None) -> str:
        layout = self.layout(layout)
        return layout.chunk_prefix(layout.relative(path))

    def chunk_key_encodings(self, layout: Layout | None) -> tuple[ChunkKeyEncoding, ...]:
        return (ChunkKeyEncoding("draft_root" if self.layout(layout).root else "draft", "/"),)

    def data_type_text(self, stored: np.dtype[Any], text_codec: str | None, name: str | None) -> str:
        return data_type_text(stored)
