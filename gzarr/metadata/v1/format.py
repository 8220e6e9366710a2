"""Zarr v1: one array, without groups, in ``meta`` and ``attrs``.

Specification: https://zarr-specs.readthedocs.io/en/latest/v1/v1.0.html
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from ...documents.json import load_attributes, load_document
from ...stores.keys import join_path
from ..format import Features, Format
from ..model import ChunkKeyEncoding
from ..parts import error_at, parse_attributes
from ..v2.write import data_type_text
from . import parse, write

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from ..format import ParseOptions
    from ..layout import Layout
    from ..model import ArrayMetadata, ZarrFormat

# Other programs may have a file "meta"; one without this is not Zarr's.
_MARK = b'"zarr_format"'


class V1(Format):
    """Version 1."""

    zarr_format: ClassVar[ZarrFormat] = 1
    title = "version 1"
    looked_for = "meta"
    features: ClassVar[Features] = Features(groups=False, zstd=False)
    document_names: ClassVar[tuple[str, ...]] = (parse.META, parse.ATTRS)
    node_documents: ClassVar[tuple[str, ...]] = (parse.META,)
    is_searched_last = True

    def node_type(self, path: str, found: Mapping[str, bytes], layout: Layout | None = None) -> Literal["array"] | None:
        return "array" if self.recognises(path, found) else None

    def recognises(self, path: str, found: Mapping[str, bytes]) -> bool:
        return _MARK in found.get(join_path(path, parse.META), b"")

    def parse_node(
        self, path: str, found: Mapping[str, bytes], options: ParseOptions, layout: Layout | None = None
    ) -> ArrayMetadata | None:
        key, attributes_key = self.keys(path)
        if key not in found:
            return None
        document = load_document(found[key], key)
        attributes = None
        if attributes_key in found:
            with error_at(attributes_key):
                attributes = parse_attributes(load_attributes(found[attributes_key], attributes_key), "$")
        with error_at(key):
            return parse.parse_array(document, attributes)

    def array_documents(self, metadata: ArrayMetadata, path: str) -> dict[str, dict[str, Any]]:
        return {join_path(path, name): document for name, document in write.array_documents(metadata).items()}

    def array_document(self, metadata: ArrayMetadata) -> dict[str, Any]:
        return write.array_documents(metadata)

    def chunk_key_encodings(self, layout: Layout | None) -> tuple[ChunkKeyEncoding, ...]:
        return (ChunkKeyEncoding("v2", "."),)

    def data_type_text(self, stored: np.dtype[Any], text_codec: str | None, name: str | None) -> str:
        return data_type_text(stored)
