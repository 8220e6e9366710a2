"""All formats, and what is asked of all of them at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from ..errors import ArgumentError
from ..stores.keys import join_path
from .v1.format import V1
from .v2.format import V2
from .v3.format import V3
from .v3_draft.format import V3Draft

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .format import Format
    from .layout import Layout
    from .model import ZarrFormat

V3_DRAFT: Final = V3Draft()
#: By ``zarr_format``. Where a path has nodes of several, the first one counts.
FORMATS: Final[Mapping[ZarrFormat, Format]] = {format.zarr_format: format for format in (V3(), V2(), V1(), V3_DRAFT)}
#: Of new nodes, where the caller does not say.
DEFAULT_FORMAT: Final[ZarrFormat] = 3

# What makes a node of any format, for the message that there is none.
_ANY_DOCUMENT: Final = "zarr.json, .zarray, .zgroup or meta, nor a document of a 2022 draft"
# Documents of a node, whatever its format, by name; a draft's lie elsewhere.
_NAMES: Final = sorted({name for format in FORMATS.values() for name in format.document_names})


def check_zarr_format(zarr_format: Any, *, optional: bool = False) -> None:
    """Check an argument ``zarr_format``; ``optional`` if None says that it is left open.

    Raises
    ------
    ArgumentError
        If it is none.
    """
    if optional and zarr_format is None:
        return
    if not isinstance(zarr_format, int | str) or isinstance(zarr_format, bool) or zarr_format not in FORMATS:
        expected = '1, 2, "3-draft-2022", 3 or None' if optional else '1, 2, "3-draft-2022" or 3'
        raise ArgumentError(f"zarr_format must be {expected}, not {zarr_format!r}")


def formats_of(zarr_format: ZarrFormat | None) -> tuple[Format, ...]:
    """Return the formats in which a node is looked for: one, or all for None."""
    return tuple(FORMATS.values()) if zarr_format is None else (FORMATS[zarr_format],)


def looked_for(zarr_format: ZarrFormat | None) -> str:
    """Return what would have made a node, for the message that there is none."""
    return _ANY_DOCUMENT if zarr_format is None else FORMATS[zarr_format].looked_for


# -- documents under a path --------------------------------------------------------------------------------------------


def node_keys(path: str) -> list[str]:
    """Return the store keys whose presence says that there is a node, or the root of a hierarchy, at ``path``.

    Those of version 1 are not among them: no other program's file is taken for a node.
    """
    return [key for format in FORMATS.values() if not format.is_searched_last for key in format.node_keys(path)]


def node_at(path: str, found: Mapping[str, bytes]) -> tuple[Format, Literal["array", "group"]] | None:
    """Return format and type of the node at ``path`` that the documents found make, without parsing all of it."""
    for format in FORMATS.values():
        if (node_type := format.node_type(path, found)) is not None:
            return format, node_type
    return None


def consolidated_keys(path: str) -> list[str]:
    """Return the store keys of documents in which a group of any format can have consolidated metadata."""
    return [key for format in FORMATS.values() if (key := format.consolidated_key(path)) is not None]


def without_consolidated(path: str, found: Mapping[str, bytes]) -> dict[str, dict[str, Any] | None]:
    """Return what to write so that a group has no consolidated metadata of any format: None is to be erased."""
    changes: dict[str, dict[str, Any] | None] = {}
    for format in FORMATS.values():
        changes |= format.without_consolidated(path, found)
    return changes


def is_document_name(name: str) -> bool:
    """Return whether a key directly under a node's path is a document's."""
    return name in _NAMES


def keys_and_prefixes(path: str, layout: Layout | None) -> tuple[list[str], list[str]]:
    """Return the keys of the documents that a node can have, and the prefixes of all that is below it.

    ``layout`` is that of the hierarchy of a 2022 draft that the path is in, if it is in one.
    """
    if layout is None:
        return [join_path(path, name) for name in _NAMES], [f"{path}/" if path else ""]
    below = layout.relative(path)
    if not below:
        return layout.root_keys(), layout.root_prefixes()
    return layout.document_keys(below), [layout.below(below), layout.chunk_prefix(below)]
