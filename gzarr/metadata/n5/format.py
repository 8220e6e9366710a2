"""N5: ``attributes.json`` under a node's path, with the metadata of a dataset and the attributes of users.

Specification: https://github.com/saalfeldlab/n5#file-system-specification. It is read, not written.

N5 counts dimensions from the fastest to the slowest, Zarr and NumPy from the slowest to the fastest. An array here has
the axes of N5 in reverse, as in zarr-python 2 and z5py: ``dimensions`` of ``[x, y, z]`` are a shape of ``(z, y, x)``,
and the chunk at ``(2, 1, 0)`` has the key ``0/1/2``. So elements lie in C order, and nothing is transposed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal, NoReturn

from ...documents.json import load_document
from ...errors import ArgumentError
from ...stores.keys import join_path
from ..format import CodecParts, Features, Format
from ..model import ChunkKeyEncoding
from ..parts import error_at
from . import images, parse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np

    from ...codecs.codec import Codec
    from ..format import ParseOptions
    from ..layout import Layout
    from ..model import ArrayMetadata, GroupMetadata, NodeMetadata, ZarrFormat


class N5(Format):
    """N5 of versions 1 to 4."""

    zarr_format: ClassVar[ZarrFormat] = "n5"
    title = "N5"
    looked_for = "attributes.json of N5"
    # Missing elements are none of those that equal the fill value: N5 has no fill value, and blocks of zeros are
    # often left out.
    features: ClassVar[Features] = Features(mask_attribute=True, writable=False)
    document_names: ClassVar[tuple[str, ...]] = (parse.ATTRIBUTES,)
    node_documents: ClassVar[tuple[str, ...]] = (parse.ATTRIBUTES,)
    ome_version: ClassVar[str] = "0.4"
    copied_as: ClassVar[ZarrFormat] = 3

    def node_type(
        self, path: str, found: Mapping[str, bytes], layout: Layout | None = None
    ) -> Literal["array", "group"] | None:
        """Return the type; None for a group without the mark of N5, whose document could be another program's."""
        key = join_path(path, parse.ATTRIBUTES)
        if key not in found:
            return None
        document = load_document(found[key], key)
        if parse.is_dataset(document):
            return "array"
        return "group" if parse.VERSION in document else None

    def parse_node(
        self, path: str, found: Mapping[str, bytes], options: ParseOptions, layout: Layout | None = None
    ) -> NodeMetadata | None:
        key = join_path(path, parse.ATTRIBUTES)
        if key not in found:
            return None
        document = load_document(found[key], key)
        with error_at(key):
            return parse.parse_array(document) if parse.is_dataset(document) else parse.parse_group(document)

    def image_attributes(
        self, attributes: Mapping[str, Any], child: Callable[[str], NodeMetadata | None]
    ) -> dict[str, Any] | None:
        return images.image_attributes(attributes, child)

    # -- codecs of an array

    def order(self, metadata: ArrayMetadata, codecs: Sequence[Codec]) -> Literal["C", "F"]:
        """Return ``"C"``: with its axes reversed, an array is stored in that order."""
        return "C"

    def codec_parts(self, metadata: ArrayMetadata, codecs: Sequence[Codec]) -> CodecParts:
        """Return the codecs of a block, without its header."""
        return super().codec_parts(metadata, parse.codecs_of_block(codecs, "big"))

    def copied_codecs(self, codecs: Sequence[Codec]) -> tuple[Codec, ...]:
        """Return the compressor after little-endian elements, which other programs and devices read fastest."""
        return parse.codecs_of_block(codecs, "little")

    # -- writing

    def array_documents(self, metadata: ArrayMetadata, path: str) -> dict[str, dict[str, Any]]:
        _refuse(path)

    def group_documents(
        self, metadata: GroupMetadata, path: str, layout: Layout | None = None
    ) -> dict[str, dict[str, Any]]:
        _refuse(path)

    def array_document(self, metadata: ArrayMetadata) -> dict[str, Any]:
        _refuse("")

    def chunk_key_encodings(self, layout: Layout | None) -> tuple[ChunkKeyEncoding, ...]:
        return (ChunkKeyEncoding("n5", "/"),)

    def data_type_text(self, stored: np.dtype[Any], text_codec: str | None, name: str | None) -> str:
        _refuse("")


def _refuse(path: str) -> NoReturn:
    raise ArgumentError(f"'/{path}': N5 is read, not written; write Zarr, or copy to it: gzarr.copy, `gzarr copy`")
