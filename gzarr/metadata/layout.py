"""Hierarchies of the Zarr v3 drafts of 2022: entry points, and locations of documents and chunks.

Source: https://github.com/zarr-developers/zarr-specs/blob/692fe73/docs/core/v3.0.rst. An entry point, ``zarr.json``,
defines how a whole hierarchy names its documents; they lie under ``meta/``, the chunks under ``data/``.

There are two layouts. Before the last draft, all keys had the segment ``root`` (``meta/root/a.array.json``,
``data/root/a/c0/0``, for the root array ``meta/root.array.json``); all known writers (zarr-python 2.13 to 2.18, GDAL
3.6, zarrita, xtensor-zarr, acquire) use it. The last draft has ``meta/a.array.json``, ``data/a/c0/0`` and
``meta/array.json``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ..documents.json import quote
from ..errors import UnsupportedError
from ..stores.keys import join_path
from .parts import fail, member

if TYPE_CHECKING:
    from .model import ZarrFormat

#: Key of the entry point, relative to the hierarchy.
ENTRY_POINT: Final = "zarr.json"
#: The value of ``zarr_format=`` for this format.
FORMAT: Final[ZarrFormat] = "3-draft-2022"
#: The entry point of a new hierarchy.
NEW_ENTRY_POINT: Final[dict[str, Any]] = {
    "zarr_format": "https://purl.org/zarr/spec/core/3.0",
    "metadata_encoding": {"type": "json", "metadata_key_suffix": ".json"},
    "extensions": [],
}

_FORMAT_URI: Final = re.compile(r"https?://purl\.org/zarr/spec/(protocol/)?core/3(\.[0-9]+)?/?")
_SUFFIX: Final = re.compile(r"[A-Za-z0-9._-]{0,100}")


@dataclass(frozen=True, slots=True)
class Layout:
    """Locations of a hierarchy's documents and chunks. Paths of nodes are relative to the hierarchy.

    Attributes
    ----------
    base
        Path of the hierarchy in its store, ``""`` for the store's root.
    root
        Whether keys have the segment ``root``.
    suffix
        Suffix of document keys, such as ``".json"``.
    document
        Entry point.
    """

    base: str = ""
    root: bool = False
    suffix: str = ".json"
    document: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)

    def relative(self, path: str) -> str:
        """Return the path of a node relative to the hierarchy, given its path in the store."""
        return path[len(self.base) :].strip("/")

    def array_key(self, path: str) -> str:
        """Return the store key of an array's document."""
        return self._document_key(path, "array")

    def group_key(self, path: str) -> str:
        """Return the store key of a group's document."""
        return self._document_key(path, "group")

    def document_keys(self, path: str) -> list[str]:
        """Return the store keys of the documents that a node can have."""
        return [self.array_key(path), self.group_key(path)]

    def root_keys(self) -> list[str]:
        """Return the store keys of the documents of the hierarchy's root, including the entry point."""
        return [*self.document_keys(""), join_path(self.base, ENTRY_POINT)]

    def root_prefixes(self) -> list[str]:
        """Return the store prefixes of everything in the hierarchy."""
        return [join_path(self.base, "meta/"), join_path(self.base, "data/")]

    def contains(self, path: str) -> bool:
        """Return whether a path in the store belongs to the hierarchy."""
        return not self.base or path == self.base or path.startswith(f"{self.base}/")

    def _document_key(self, path: str, kind: str) -> str:
        where = join_path("meta/root" if self.root else "meta", path)
        name = f"{where}.{kind}" if self.root or path else f"{where}/{kind}"
        return join_path(self.base, name + self.suffix)

    def below(self, path: str) -> str:
        """Return the store prefix of the documents of a group's children."""
        return join_path(self.base, join_path("meta/root" if self.root else "meta", path)) + "/"

    def chunk_prefix(self, path: str) -> str:
        """Return the store prefix of an array's chunks."""
        return join_path(self.base, join_path("data/root" if self.root else "data", path)) + "/"

    def child(self, key: str) -> tuple[str, str] | None:
        """Return name and kind of the node whose document has this key, directly under :meth:`below`, or None."""
        name = key.rpartition("/")[2]
        for kind in ("array", "group"):
            end = f".{kind}{self.suffix}"
            if name.endswith(end) and len(name) > len(end):
                return name[: -len(end)], kind
        return None


def is_entry_point(document: dict[str, Any]) -> bool:
    """Return whether a ``zarr.json`` is the entry point of a hierarchy rather than the document of a node."""
    uri = document.get("zarr_format")
    return isinstance(uri, str) and _FORMAT_URI.fullmatch(uri) is not None


def parse_entry_point(document: dict[str, Any], base: str = "") -> Layout:
    """Parse the entry point of the hierarchy at path ``base`` of a store.

    Raises
    ------
    MetadataError
        If it is malformed.
    UnsupportedError
        If metadata is not JSON, or an unknown extension must be understood.
    """
    if not is_entry_point(document):
        fail(
            f'expected "https://purl.org/zarr/spec/core/3.0", got {quote(document.get("zarr_format"))}', "$.zarr_format"
        )
    encoding = member(document, "metadata_encoding")
    # In drafts with the segment "root", the encoding was a string, and the suffix a separate member.
    root = "/protocol/" in document["zarr_format"] or not isinstance(encoding, dict)
    at = "$.metadata_key_suffix"
    suffix = document.get("metadata_key_suffix", "" if encoding == "application/json" else ".json")
    if isinstance(encoding, dict):
        at = "$.metadata_encoding.metadata_key_suffix"
        suffix = encoding.get("metadata_key_suffix", suffix)
        if "extension" in encoding or encoding.get("type") != "json":
            raise UnsupportedError(f"metadata must be JSON, not {quote(encoding)}", json_path="$.metadata_encoding")
    elif encoding not in ("json", "application/json", document["zarr_format"]):
        raise UnsupportedError(f"metadata must be JSON, not {quote(encoding)}", json_path="$.metadata_encoding")
    if not isinstance(suffix, str) or not _SUFFIX.fullmatch(suffix):
        fail(f"expected a suffix such as '.json', got {quote(suffix)}", at)
    check_extensions(document)
    return Layout(base, root, suffix, document)


def check_extensions(document: dict[str, Any]) -> None:
    """Check the extensions of a document; raise if one must be understood, because none is known."""
    extensions = document.get("extensions")
    if extensions is None:
        return
    if not isinstance(extensions, list):
        fail(f"expected an array, got {quote(extensions)}", "$.extensions")
    for i, value in enumerate(extensions):
        at = f"$.extensions[{i}]"
        if not isinstance(value, dict) or not isinstance(value.get("extension"), str):
            fail(f'expected an object with an "extension", got {quote(value)}', at)
        if not isinstance(value.get("must_understand"), bool):
            fail(f"expected true or false, got {quote(value.get('must_understand'))}", f"{at}.must_understand")
        if value["must_understand"]:
            raise UnsupportedError(f"the extension {quote(value['extension'])} is not known", json_path=at)
