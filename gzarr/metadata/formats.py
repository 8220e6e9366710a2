"""All formats, and questions to all of them at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from ..documents.json import quote
from ..errors import ArgumentError
from ..stores.keys import join_path
from .n5.format import N5
from .v1.format import V1
from .v2.format import V2
from .v3.format import V3
from .v3_draft.format import V3Draft

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .format import Format
    from .layout import Layout
    from .model import GroupMetadata, NodeMetadata, ZarrFormat

V3_DRAFT: Final = V3Draft()
#: By ``zarr_format``. If a path has nodes of several formats, the first format here counts.
FORMATS: Final[Mapping[ZarrFormat, Format]] = {
    format.zarr_format: format for format in (V3(), V2(), N5(), V1(), V3_DRAFT)
}
#: Format of new nodes unless the caller names one.
DEFAULT_FORMAT: Final[ZarrFormat] = 3

# Documents that make a node of any format, for the message that there is none.
_ANY_DOCUMENT: Final = "zarr.json, .zarray, .zgroup or meta, no attributes.json of N5, nor a document of a 2022 draft"
# Names of a node's documents in any format. A draft keeps its documents elsewhere.
_NAMES: Final = sorted({name for format in FORMATS.values() for name in format.document_names})


def check_zarr_format(zarr_format: Any, *, optional: bool = False, new: bool = False) -> None:
    """Check a ``zarr_format`` argument, which may be None if ``optional``.

    Parameters
    ----------
    zarr_format
        The argument.
    optional
        Whether it may be None.
    new
        Whether nodes of the format are to be created.

    Raises
    ------
    ArgumentError
        If there is no such format, or it is not written.
    """
    if optional and zarr_format is None:
        return
    format = None
    if isinstance(zarr_format, int | str) and not isinstance(zarr_format, bool):
        format = FORMATS.get(zarr_format)  # type: ignore[call-overload]
    if format is None:
        *others, last = [1, 2, '"3-draft-2022"', 3] + ['"n5"'] * (not new) + [None] * optional
        raise ArgumentError(f"zarr_format must be {', '.join(map(str, others))} or {last}, not {quote(zarr_format)}")
    if new:
        check_writable(format, f"zarr_format={zarr_format!r}")


def image_attributes(group: GroupMetadata, child: Callable[[str], NodeMetadata | None]) -> dict[str, Any] | None:
    """Return the attributes of OME-Zarr 0.4 for a group that is an image by other conventions of its format.

    The format of an implicit group is not known, so all are asked. Result and errors are those of
    :meth:`Format.image_attributes`.
    """
    formats = FORMATS.values() if group.implicit else (FORMATS[group.zarr_format],)
    found = (format.image_attributes(group.attributes, child) for format in formats)
    return next((attributes for attributes in found if attributes is not None), None)


def check_writable(format: Format, what: str) -> None:
    """Refuse to create or change nodes of a format that is only read; ``what`` begins the message.

    Raises
    ------
    ArgumentError
        If the format is not written.
    """
    if not format.features.writable:
        raise ArgumentError(
            f"{what}: {format.title} is read, not written; write Zarr, or copy to it: gzarr.copy, `gzarr copy`"
        )


def format_of_copies(zarr_format: ZarrFormat) -> ZarrFormat:
    """Return the format of copies of a node that name none, and of new arrays like it."""
    return FORMATS[zarr_format].copied_as or zarr_format


def formats_of(zarr_format: ZarrFormat | None) -> tuple[Format, ...]:
    """Return the formats in which to look for a node: one, or all for None."""
    return tuple(FORMATS.values()) if zarr_format is None else (FORMATS[zarr_format],)


def found_first(format: Format) -> tuple[Format, ...]:
    """Return a format and all that count more than it where a path has documents of several."""
    formats = tuple(FORMATS.values())
    return formats[: formats.index(format) + 1]


def looked_for(zarr_format: ZarrFormat | None) -> str:
    """Return the documents that would have made a node, for the message that there is none."""
    return _ANY_DOCUMENT if zarr_format is None else FORMATS[zarr_format].looked_for


# -- documents under a path --------------------------------------------------------------------------------------------


def node_keys(path: str) -> list[str]:
    """Return the store keys whose presence indicates a node, or the root of a hierarchy, at ``path``.

    Those of version 1 are left out, because other programs may have files of the same name.
    """
    return [key for format in FORMATS.values() if not format.is_searched_last for key in format.node_keys(path)]


def node_at(path: str, found: Mapping[str, bytes]) -> tuple[Format, Literal["array", "group"]] | None:
    """Return format and type of the node at ``path`` by the documents found, without parsing them fully."""
    for format in FORMATS.values():
        if (node_type := format.node_type(path, found)) is not None:
            return format, node_type
    return None


def consolidated_keys(path: str, zarr_format: ZarrFormat | None = None) -> list[str]:
    """Return the store keys of documents that can hold consolidated metadata of a group, in any format for None."""
    return [key for format in formats_of(zarr_format) if (key := format.consolidated_key(path)) is not None]


def without_consolidated(path: str, found: Mapping[str, bytes]) -> dict[str, dict[str, Any] | None]:
    """Return the documents that remove a group's consolidated metadata in all formats; None means erase."""
    changes: dict[str, dict[str, Any] | None] = {}
    for format in FORMATS.values():
        changes |= format.without_consolidated(path, found)
    return changes


def is_document_name(name: str) -> bool:
    """Return whether a key directly under a node's path is that of a document."""
    return name in _NAMES


def keys_and_prefixes(path: str, layout: Layout | None) -> tuple[list[str], list[str]]:
    """Return the keys of all documents that a node can have, and the prefixes of everything below it.

    ``layout`` is the layout of the surrounding hierarchy of a 2022 draft, if any.
    """
    if layout is None:
        return [join_path(path, name) for name in _NAMES], [f"{path}/" if path else ""]
    below = layout.relative(path)
    if not below:
        return layout.root_keys(), layout.root_prefixes()
    return layout.document_keys(below), [layout.below(below), layout.chunk_prefix(below)]


def is_another(asked: ZarrFormat | None, present: ZarrFormat) -> bool:
    """Return whether a version was asked for that is not the one that is there; None asks for none."""
    return asked is not None and asked != present
