"""Plates, wells and collections in documents."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Final

from ...documents.json import quote
from ...errors import MetadataError
from .model import Acquisition, FieldEntry, PlateMetadata, WellEntry, WellMetadata

if TYPE_CHECKING:
    from collections.abc import Callable

    from .model import Version
    from .problems import DocumentPart, Level

_ALPHANUMERIC: Final = re.compile(r"[A-Za-z0-9]+")
_WELL_PATH: Final = re.compile(r"[A-Za-z0-9]+/[A-Za-z0-9]+")
# Version 0.6: neither dots only, nor two underscores first.
_NODE_NAME: Final = re.compile(r"(?!__)(?!\.+$)[A-Za-z0-9_.-]+")


def node_path(path: str) -> str:
    """Return a path of a document as nodes have it: some programs write a slash at its end."""
    return path.strip("/")


def plate(part: DocumentPart, version: Version) -> PlateMetadata:
    """Return the ``plate`` object; a well that cannot be read is left out, and so is one that is listed again."""
    part.object()
    _check_version(part, version)
    part.expect("name", "strict")
    rows = part.needed("rows", _names)
    columns = part.needed("columns", _names)
    read = partial(_well_entry, version=version, rows=rows, columns=columns)
    listed = part.needed("wells", lambda items: _some(items, read))
    wells: dict[str, WellEntry] = {}
    for well in listed:
        wells.setdefault(node_path(well.path), well)
    if len(wells) < len(listed):
        part.at("wells").note("expected wells of different paths", "text")
    acquisitions = part.optional("acquisitions", lambda items: tuple(items.readable(_acquisition))) or ()
    if len({acquisition.id for acquisition in acquisitions}) < len(acquisitions):
        part.at("acquisitions").note("expected acquisitions of different ids", "text")
    return PlateMetadata(
        rows,
        columns,
        tuple(wells.values()),
        acquisitions,
        part.optional("name", lambda text: text.string()),
        part.optional("field_count", lambda count: count.integer(1)),
    )


def _check_version(part: DocumentPart, version: Version) -> None:
    if version < "0.5":
        part.expect("version", "strict")
        if "version" in part and part.value["version"] != version:
            part.at("version").note(f"expected {version!r}, as everything else here is of that version")


def _names(part: DocumentPart) -> tuple[str, ...]:
    """Return the names of rows or columns."""
    items = part.items(unique=True)
    if not items:
        part.note("expected at least 1 item")
    names = tuple(item.object().needed("name", _alphanumeric) for item in items)
    if len(set(names)) < len(names):
        part.note("expected names that all differ", "text")
    return names


def _alphanumeric(part: DocumentPart) -> str:
    name = part.string()
    if not _ALPHANUMERIC.fullmatch(name):
        part.note("expected letters and digits only")
    return name


def _some(part: DocumentPart, read: Callable[[DocumentPart], WellEntry]) -> tuple[WellEntry, ...]:
    if isinstance(part.value, list | tuple) and not part.value:
        part.note("expected at least 1 item")
    return tuple(part.readable(read, unique=True))


def _well_entry(part: DocumentPart, version: Version, rows: tuple[str, ...], columns: tuple[str, ...]) -> WellEntry:
    path = part.object().needed("path", lambda text: text.string())
    if not _WELL_PATH.fullmatch(path):
        part.at("path").note("expected the names of a row and a column with a slash between them")
    row_name, _, column_name = node_path(path).rpartition("/")
    row_name = row_name.rpartition("/")[2]
    row = _index(part, "rowIndex", version, rows)
    column = _index(part, "columnIndex", version, columns)
    expected = f"{row_name if row is None else rows[row]}/{column_name if column is None else columns[column]}"
    if path != expected:
        # The suites of 0.4 and 0.6rc0 have such documents, and say that they are valid; that of 0.5 says the reverse.
        level: Level = "text" if version == "0.5" else "should"
        part.at("path").note(f"expected {quote(expected)}, by the row and the column", level)
    return WellEntry(
        path, _named(part, "rowIndex", row_name, rows, row), _named(part, "columnIndex", column_name, columns, column)
    )


def _index(part: DocumentPart, name: str, version: Version, names: tuple[str, ...]) -> int | None:
    """Return the index of a well's row or column, None if the entry has none of those that there are."""
    index = part.optional(name, lambda number: number.integer(0))
    if index is not None and index >= len(names):
        part.at(name).wrong(f"an integer below {len(names)}, the number of names", "text")
        return None
    if version >= "0.4" and name not in part:
        part.note(f"lacks {name!r}")
    return index


def _named(part: DocumentPart, member: str, name: str, names: tuple[str, ...], index: int | None) -> int:
    """Return the index of the row or column that a path names; if it names none, the one that the entry has.

    The image is where the path says, and programs have written other indexes.
    """
    if name in names:
        return names.index(name)
    if index is None:
        raise MetadataError(f"neither {member!r} nor the path names one that is there", json_path=part.json_path)
    return index


def _acquisition(part: DocumentPart) -> Acquisition:
    for name in ("name", "maximumfieldcount"):
        part.object().expect(name, "strict")
    return Acquisition(
        part.needed("id", lambda number: number.integer(0)),
        part.optional("name", lambda text: text.string()),
        part.optional("maximumfieldcount", lambda number: number.integer(1)),
        part.optional("description", lambda text: text.string()),
        part.optional("starttime", lambda number: number.integer(0)),
        part.optional("endtime", lambda number: number.integer(0)),
    )


def well(part: DocumentPart, version: Version) -> WellMetadata:
    """Return the ``well`` object; a field that cannot be read is left out."""
    part.object()
    _check_version(part, version)
    fields = part.needed("images", lambda items: tuple(items.readable(partial(_field, version=version), unique=True)))
    if not part.value["images"]:
        part.at("images").note("expected at least 1 item")
    if len({node_path(field.path) for field in fields}) < len(fields):
        part.at("images").note("expected images of different paths", "text")
    return WellMetadata(fields)


def _field(part: DocumentPart, version: Version) -> FieldEntry:
    path = part.object().needed("path", lambda text: text.string())
    if not (_NODE_NAME if version == "0.6" else _ALPHANUMERIC).fullmatch(path):
        expected = "a name of a node" if version == "0.6" else "letters and digits only"
        part.at("path").note(f"expected {expected}")
    return FieldEntry(path, part.optional("acquisition", lambda number: number.integer()))


def paths(part: DocumentPart) -> tuple[str, ...]:
    """Return paths, of label images or of the images of a collection."""
    found = tuple(part.readable(lambda item: item.string()))
    if len(set(map(node_path, found))) < len(found):
        part.note("expected paths that all differ", "should")
    return found


def layout(part: DocumentPart) -> int:
    """Return the number of bioformats2raw's layout."""
    number = part.integer()
    if number != 3:
        part.note("expected 3")
    return number
