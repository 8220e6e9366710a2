"""Rules for store keys, prefixes and node paths; this module refuses everything that could leave a store's root.

Sources: https://zarr-specs.readthedocs.io/en/latest/v3/core/index.html#abstract-store-interface (keys and prefixes),
https://zarr-specs.readthedocs.io/en/latest/v3/core/index.html#node-names (node names).
"""

from __future__ import annotations

import os
import re
from typing import Final
from urllib.parse import unquote

from ..errors import ArgumentError
from .temporary_names import is_reserved

#: Most names in the path of a node. Some operations look at every group above a node, for each node.
MAX_DEPTH: Final = 256
# Names of documents. A node of such a name would be in the place of a document of its group.
_DOCUMENTS: Final = frozenset({"zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata"})

# On Windows, a backslash or a drive letter in a segment could leave the root; elsewhere both are ordinary characters.
_FOREIGN = ("\\", ":") if os.sep != "/" else ()
# Most paths, which need no further look.
_PLAIN: Final = re.compile(rf"[A-Za-z0-9_-]+(?:/[A-Za-z0-9_-]+){{0,{MAX_DEPTH - 1}}}")


def is_document(key: str) -> bool:
    """Return whether a key is that of a node's document, in versions 1 to 3."""
    return key.rpartition("/")[2] in _DOCUMENTS


def _is_encodable(text: str) -> bool:
    """Return whether UTF-8 can encode a text, with the bytes that names of files may have instead of characters."""
    try:
        # Not in the encoding of the names of files here, which matters to directories only.
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return True


def _check_segments(segments: list[str], whole: str, what: str) -> None:
    for segment in segments:
        if not segment:
            raise ArgumentError(f"{what} {whole!r} has an empty segment: it must be relative, without '//'")
        if segment in (".", ".."):
            raise ArgumentError(f"{what} {whole!r} has the segment {segment!r}, which could leave the store's root")
        if "\0" in segment or any(c in segment for c in _FOREIGN):
            raise ArgumentError(f"{what} {whole!r} has a character that is not allowed in file names")
    if not _is_encodable(whole):
        raise ArgumentError(f"{what} {whole!r} cannot be encoded as UTF-8")


def split_key(key: str) -> list[str]:
    """Return the segments of a store key.

    Raises
    ------
    ArgumentError
        If ``key`` is empty, absolute, has an empty, ``.`` or ``..`` segment, a NUL, or cannot be encoded.
    """
    if not isinstance(key, str):
        raise ArgumentError(f"a store key must be a string, not {type(key).__name__}")
    segments = key.split("/")
    _check_segments(segments, key, "store key")
    return segments


def split_prefix(prefix: str) -> list[str]:
    """Return the segments of a prefix: none for ``""``, else those before the final ``/``.

    Raises
    ------
    ArgumentError
        If ``prefix`` is neither empty nor ends in ``/``, or has a segment that :func:`split_key` refuses.
    """
    if not isinstance(prefix, str):
        raise ArgumentError(f"a store prefix must be a string, not {type(prefix).__name__}")
    if not prefix:
        return []
    if not prefix.endswith("/"):
        raise ArgumentError(f"store prefix {prefix!r} must end in '/'")
    segments = prefix[:-1].split("/")
    _check_segments(segments, prefix, "store prefix")
    return segments


def is_key(key: str) -> bool:
    """Return whether a text that a store lists is a key; other programs may have left what is none."""
    plain = key.isascii() and key[:1] not in ("", "/", ".") and key[-1] != "/"
    if plain and not _FOREIGN and "//" not in key and "/." not in key and "\0" not in key:
        return True
    try:
        split_key(key)
    except ArgumentError:
        return False
    return True


def name_fault(name: str) -> str | None:
    """Return why a node cannot have a name, or None if it can.

    The only rule for names: new nodes, listings and consolidated metadata follow it. (Version 3 reserves more names for
    extensions, which cannot be created, but are read.)
    """
    if not name.strip("."):
        return "a name of periods only is not allowed" if name else "a name must not be empty"
    if is_document(name):
        return "it is the name of a metadata document"
    if is_reserved(name):
        # In every store: what is in one can be copied to a directory.
        return "such names are kept for locks and unfinished writes in directories; choose another name"
    if "/" in name or "\0" in name or any(c in name for c in _FOREIGN):
        return "it has a character that is not allowed in file names"
    return None if _is_encodable(name) else "it cannot be encoded as UTF-8"


def is_node_name(name: str) -> bool:
    """Return whether a node can have this name."""
    return name_fault(name) is None


def normalize_path(path: str) -> str:
    """Return a node path without leading and trailing slashes (``""`` for the root).

    Raises
    ------
    ArgumentError
        If a node cannot have one of the names in it (:func:`name_fault`), or there are more than :data:`MAX_DEPTH`.
    """
    if not isinstance(path, str):
        raise ArgumentError(f"a node path must be a string, not {type(path).__name__}")
    # A member of an enumeration of texts would print as its own name.
    path = str.__str__(path)
    if _PLAIN.fullmatch(path):
        return path
    inner = path.strip("/")
    if not inner:
        return ""
    segments = inner.split("/")
    if len(segments) > MAX_DEPTH:
        raise ArgumentError(
            f"node path {path[:80]!r}... has {len(segments)} names; a path has at most {MAX_DEPTH}: use fewer levels "
            "of groups"
        )
    _check_segments(segments, path, "node path")
    for segment in segments:
        if (fault := name_fault(segment)) is not None:
            raise ArgumentError(f"node path {path!r} has the name {segment!r}; {fault}")
    return inner


def join_path(parent: str, name: str) -> str:
    """Return the path of ``name`` below ``parent``; both are normalised, and either may be empty."""
    return f"{parent}/{name}" if parent and name else parent or name


def unquoted(text: str) -> str:
    """Return a part of a URL with its percent-encodings undone.

    Raises
    ------
    ArgumentError
        If they are not UTF-8. Two of those must not become one name. What else is in the text, messages do not show.
    """
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError as error:
        wrong = "".join(f"%{byte:02X}" for byte in error.object[error.start : error.end])
        raise ArgumentError(f"percent-encodings in URLs must be UTF-8, and {wrong} is not") from None
