"""The metadata of copies: of the same format as it is, of another format in that format's terms."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ..arrays.objects import TEXTS, object_codec
from ..codecs.choice import AUTO, SourceCodecs, as_codecs
from ..codecs.numcodecs_adapter import NumcodecsCodec
from ..documents.json import quote
from ..errors import ArgumentError
from ..hierarchy.array_spec import UNDEFINED, arguments_of, new_metadata
from ..metadata.conventions import group_with_members, with_extras
from ..metadata.formats import FORMATS, is_another
from ..metadata.model import ArrayMetadata, GroupMetadata
from ..metadata.to_documents import SourceAttributes

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from ..codecs.codec import Codec
    from ..metadata.conventions import Meaning
    from ..metadata.layout import Layout
    from ..metadata.model import ZarrFormat

#: The same as in the source.
KEEP: Final = "keep"


def group_metadata(
    metadata: GroupMetadata, zarr_format: ZarrFormat, attributes: Mapping[str, Any], members: Mapping[str, Any]
) -> GroupMetadata:
    """Return the metadata of the copy of a group, with the attributes and members that it has in the other format."""
    format = FORMATS[zarr_format]
    if format.can_reuse(metadata) and not metadata.implicit:
        return format.unconsolidated(metadata)
    return group_with_members(GroupMetadata(attributes=dict(attributes), zarr_format=zarr_format), members)


class ChunkStorage(NamedTuple):
    """How a copy stores chunks; each as for :func:`gzarr.copy`."""

    chunks: Any
    shards: Any
    codecs: Any


#: As the source stores them.
KEPT: Final = ChunkStorage(KEEP, KEEP, KEEP)


def array_metadata(
    metadata: ArrayMetadata,
    at: str,
    to: str,
    zarr_format: ZarrFormat,
    layout: Layout | None,
    storage: ChunkStorage,
    meaning: Meaning,
) -> ArrayMetadata:
    """Return the metadata of the copy of an array.

    Parameters
    ----------
    metadata, at
        Metadata and path of the array.
    to, zarr_format, layout
        Path, format and layout of the copy.
    storage
        Its chunks, shards and codecs.
    meaning
        What the copy says of its elements.

    Raises
    ------
    ArgumentError
        If an argument is wrong, or if the format cannot represent the array. The message names the array.
    """
    format = FORMATS[zarr_format]
    chunks, shards = _by_name(metadata, meaning.names, storage.chunks, storage.shards)
    codecs, axes = storage.codecs, meaning.axes
    kept = [_is(value, KEEP) for value in (chunks, shards, codecs)]
    if all(kept) and format.can_reuse(metadata):
        return metadata
    arguments = arguments_of(metadata)
    shape = arguments.pop("shape")
    arguments["attributes"] = SourceAttributes(meaning.attributes)
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
    arguments["codecs"] = SourceCodecs(arguments["codecs"])
    maker = _object_maker(arguments["codecs"], metadata)
    for name, value, keep in zip(("chunks", "shards", "codecs"), (chunks, shards, codecs), kept, strict=True):
        if not keep:
            arguments[name] = value
    if maker is not None and not kept[2]:
        arguments.update(_behind(maker, codecs, metadata))
    in_format = f" to Zarr format {zarr_format!r}" if is_another(zarr_format, metadata.zarr_format) else ""
    if maker is not None and not format.features.objects:
        others = "; to leave it out, copy the other nodes one by one (path=)" if at else ""
        raise ArgumentError(
            f"'/{at}' cannot be copied{in_format}: its elements are Python objects in the codec {maker.label}, which "
            f"only Zarr format 2 has; zarr_format=2 keeps them{others}"
        )
    try:
        if kept[2] and (codec := unread_codec(metadata, zarr_format)) is not None:
            raise ArgumentError(f"in it, zarr-python and other libraries do not know the codec {codec.label}")
        made = new_metadata(to, shape, zarr_format, layout=layout, **arguments)
    except ArgumentError as error:
        hint = ""
        with contextlib.suppress(ArgumentError):
            auto = {"codecs": AUTO} if maker is None else _behind(maker, AUTO, metadata)
            new_metadata(to, shape, zarr_format, layout=layout, **{**arguments, **auto})
            # Codecs that the caller asked for are not questioned.
            hint = "" if not kept[2] else "; other codecs would do (codecs='auto')"
        if any(isinstance(value, tuple | list) and len(value) != metadata.ndim for value in (chunks, shards)):
            hint = "; arrays of several numbers of dimensions take them by name (chunks={'z': 16})"
        raise ArgumentError(f"'/{at}' cannot be copied{in_format}: {error}{hint}") from error
    if made.dtype != metadata.dtype or made.shape != metadata.shape:
        raise ArgumentError(
            f"'/{at}' cannot be copied{in_format} without loss: its elements of {metadata.dtype} "
            f"would become {made.dtype}"
        )
    return with_extras(made, metadata, meaning.members)


def unread_codec(metadata: ArrayMetadata, zarr_format: ZarrFormat) -> Codec | None:
    """Return a codec of an array that no other library would read in a copy in another format, if there is one."""
    format = FORMATS[zarr_format]
    if format.can_reuse(metadata):
        return None
    unread = format.features.unread_codecs
    # Those in shards.
    codecs = arguments_of(metadata)["codecs"] if unread else ()
    return next((codec for codec in codecs if isinstance(codec, NumcodecsCodec) and codec.id in unread), None)


def _object_maker(codecs: Sequence[Codec], metadata: ArrayMetadata) -> Codec | None:
    """Return the codec that makes bytes of an array's Python objects; None if its dtype tells, as that of strings."""
    if not metadata.dtype.hasobject or object_codec(codecs) in TEXTS:
        return None
    return next((codec for codec in codecs if codec.kind == "array_to_bytes"), None)


def _behind(maker: Codec, codecs: Any, metadata: ArrayMetadata) -> dict[str, Any]:
    """Return the arguments for the codecs of a copy, which are behind the source's own codec of objects.

    No other codec is known to hold the objects, so only the caller may name one.
    """
    if _is(codecs, AUTO):
        return {"codecs": AUTO, "filters": [maker]}
    given = [] if codecs is None else list(codecs) if isinstance(codecs, list | tuple) else [codecs]
    if any(codec.kind == "array_to_bytes" for codec in as_codecs(given, metadata.dtype, "codecs")):
        return {"codecs": codecs}
    return {"codecs": [maker, *given]}


def names_axes(value: Any, names: tuple[str | None, ...] | None) -> bool:
    """Return whether chunks or shards name an axis of an array."""
    return isinstance(value, Mapping) and any(name in value for name in names or ())


def check_lengths(what: str, value: Any) -> None:
    """Refuse chunks or shards by name that are no lengths; ``what`` they are is for the message.

    Raises
    ------
    ArgumentError
        If one is not.
    """
    for name, length in value.items() if isinstance(value, Mapping) else ():
        if length is None or (
            isinstance(length, int) and not isinstance(length, bool) and (length > 0 or length == -1)
        ):
            continue
        raise ArgumentError(
            f"{what}: lengths must be positive integers, or -1 for all of an axis, not {quote(length)} for {name!r}"
        )


def check_names(what: str, value: Any, known: Collection[str | None]) -> None:
    """Refuse chunks or shards of an axis that no array has; ``known`` are the names of those that there are.

    Raises
    ------
    ArgumentError
        If there is one.
    """
    for name in value if isinstance(value, Mapping) else ():
        if name not in known:
            there = ", ".join(sorted(filter(None, known))[:50])
            raise ArgumentError(
                f"{what}: no array has an axis {quote(name)}; "
                + (f"the axes are {there}" if there else "the arrays do not name their dimensions")
            )


def _by_name(
    metadata: ArrayMetadata, names: tuple[str | None, ...] | None, chunks: Any, shards: Any
) -> tuple[Any, Any]:
    """Return the chunks and shards of an array for those by name: of its own axes, cut to its shape.

    Along axes that are not named, and in arrays without such axes, they are what they are. An array without shards has
    shards of one chunk along axes that are not named.
    """
    if not isinstance(chunks, Mapping) and not isinstance(shards, Mapping):
        return chunks, shards
    own = arguments_of(metadata)
    sizes = [max(n, 1) for n in metadata.shape]
    if isinstance(chunks, Mapping):
        if not names_axes(chunks, names):
            chunks = KEEP
        else:
            lengths = [_length(chunks, *one) for one in zip(names or (), own["chunks"], sizes, strict=True)]
            chunks = _cut(lengths, metadata.shape)
    if isinstance(shards, Mapping):
        inner = own["chunks"] if _is(chunks, KEEP) else chunks
        if not names_axes(shards, names):
            shards = KEEP
        elif _is(inner, AUTO) or not all(isinstance(c, int) for c in inner):
            raise ArgumentError("shards by name need chunks of given lengths; pass them by name, too")
        else:
            before = inner if own["shards"] is None else own["shards"]
            whole = [-(-n // c) * c for n, c in zip(sizes, inner, strict=True)]
            lengths = [_length(shards, *one) for one in zip(names or (), before, whole, strict=True)]
            shards = _cut(lengths, [n and most for n, most in zip(metadata.shape, whole, strict=True)])
    return chunks, shards


def _cut(lengths: Sequence[Any], most: Sequence[int]) -> tuple[Any, ...]:
    """Return lengths that are no longer than an array; along an axis without elements, which will grow, as they are."""
    return tuple(min(c, n) if n and isinstance(c, int) else c for c, n in zip(lengths, most, strict=True))


def _length(given: Mapping[str, Any], name: str | None, now: Any, whole: int) -> Any:
    if name is None or name not in given:
        return now
    length = given[name]
    return whole if length is None or length == -1 else length


def _is(value: Any, word: str) -> bool:
    return isinstance(value, str) and value == word
