"""The metadata of copies: of the same format as it is, of another format in that format's terms."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

from ..codecs.choice import AUTO
from ..errors import ArgumentError
from ..hierarchy.array_spec import UNDEFINED, arguments_of, new_metadata
from ..metadata.conventions import with_extras
from ..metadata.formats import FORMATS
from ..metadata.model import ArrayMetadata, GroupMetadata

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..metadata.conventions import Meaning
    from ..metadata.layout import Layout
    from ..metadata.model import ZarrFormat

#: The same as in the source.
KEEP: Final = "keep"


def group_metadata(metadata: GroupMetadata, zarr_format: ZarrFormat, attributes: Mapping[str, Any]) -> GroupMetadata:
    """Return the metadata of the copy of a group, with the attributes that it has in the other format."""
    format = FORMATS[zarr_format]
    if format.can_reuse(metadata) and not metadata.implicit:
        return format.unconsolidated(metadata)
    return GroupMetadata(attributes=dict(attributes), zarr_format=zarr_format)


def array_metadata(
    metadata: ArrayMetadata,
    at: str,
    to: str,
    zarr_format: ZarrFormat,
    layout: Layout | None,
    chunks: Any,
    shards: Any,
    codecs: Any,
    meaning: Meaning,
    axes: tuple[str, ...] | None,
) -> ArrayMetadata:
    """Return the metadata of the copy of an array.

    Parameters
    ----------
    metadata, at
        Metadata and path of the array.
    to, zarr_format, layout
        Path, format and layout of the copy.
    chunks, shards, codecs
        As for :func:`copy`.
    meaning
        What the copy says of its elements.
    axes
        If the array is a level of an image, the names of that image's axes, if they are to be the dimension names.

    Raises
    ------
    ArgumentError
        If an argument is wrong, or if the format cannot represent the array. The message names the array.
    """
    kept = [_is(value, KEEP) for value in (chunks, shards, codecs)]
    format = FORMATS[zarr_format]
    if all(kept) and format.can_reuse(metadata):
        return metadata
    arguments = arguments_of(metadata)
    shape = arguments.pop("shape")
    arguments["attributes"] = meaning.attributes
    arguments["dimension_names"] = meaning.dimension_names
    arguments["fill_value"] = UNDEFINED if meaning.fill_value is None else meaning.fill_value
    if format.can_reuse(metadata):
        arguments["chunk_key_encoding"] = metadata.chunk_key_encoding
    elif axes is not None:
        # OME-Zarr wants nested keys of chunks, and in version 3 of Zarr dimensions that are named like axes.
        arguments["chunk_key_encoding"] = "/"
        if format.features.dimension_names and meaning.dimension_names is None and len(axes) == metadata.ndim:
            arguments["dimension_names"] = axes
    if not format.features.shards:
        arguments["shards"] = None
    for name, value, keep in zip(("chunks", "shards", "codecs"), (chunks, shards, codecs), kept, strict=True):
        if not keep:
            arguments[name] = value
    try:
        made = new_metadata(to, shape, zarr_format, layout=layout, **arguments)
    except ArgumentError as error:
        hint = ""
        with contextlib.suppress(ArgumentError):
            new_metadata(to, shape, zarr_format, layout=layout, **{**arguments, "codecs": AUTO})
            # Codecs that the caller asked for are not questioned.
            hint = "" if not kept[2] else "; other codecs would do (codecs='auto', --codecs auto)"
        raise ArgumentError(f"'/{at}' cannot be copied to Zarr format {zarr_format!r}: {error}{hint}") from error
    if made.dtype != metadata.dtype or made.shape != metadata.shape:
        raise ArgumentError(
            f"'/{at}' cannot be copied to Zarr format {zarr_format!r} without loss: its elements of {metadata.dtype} "
            f"would become {made.dtype}"
        )
    return with_extras(made, metadata)


def _is(value: Any, word: str) -> bool:
    return isinstance(value, str) and value == word
