"""OME-Zarr in one file, ``.ozx``: what such a zip archive holds, in which order, and what its comment says.

Source: https://ngff.openmicroscopy.org/rfc/9/. Its rules, and where they are kept:

- Entries are not compressed (:mod:`gzarr.stores.zip_writer` never does that), and nothing is split over several files.
- All ``zarr.json`` come first, in the file and in its directory, breadth first from the root (:func:`in_order`).
- The comment says the version of OME-Zarr, and that this order was kept (:func:`comment`).
- Zip64 is used whatever the size: its records stand at the end, and all entries need it by their headers. Their own
  zip64 fields are left out where sizes fit in four bytes. So data begin right after a name, and a reader of a remote
  file knows where without a request for the header.
- The root is that of a hierarchy of Zarr version 3 (:func:`refusal`).

Which of them a file of another program breaks: :func:`broken_rules`.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Final

from . import zip_format as z

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from .zip_format import CentralDirectory

SUFFIX: Final = ".ozx"
#: The only document that such a file may have.
DOCUMENT: Final = "zarr.json"
#: Most characters of a version that are believed to be one.
_LONGEST_VERSION: Final = 40


def is_ozx(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is that of such a file, by its name."""
    return os.fspath(path).lower().endswith(SUFFIX)


def is_metadata(key: str) -> bool:
    """Return whether a key is that of a document."""
    return key.rpartition("/")[2] == DOCUMENT


def in_order(keys: Iterable[str]) -> list[str]:
    """Return keys in the order of the file: documents breadth first, and then the others as they are."""
    documents: list[str] = []
    others: list[str] = []
    for key in keys:
        (documents if is_metadata(key) else others).append(key)
    return sorted(documents, key=lambda key: (key.count("/"), key.split("/"))) + others


def comment(root: bytes | None) -> bytes:
    """Return the comment of the file, given the document of its root: empty if that is no OME-Zarr."""
    try:
        attributes: Any = json.loads(root or b"null")["attributes"]
        version = attributes["ome"]["version"]
    except (ValueError, RecursionError, KeyError, TypeError):
        return b""
    if not isinstance(version, str) or len(version) > _LONGEST_VERSION:
        return b""
    return json.dumps({"ome": {"version": version, "zipFile": {"centralDirectory": {"jsonFirst": True}}}}).encode()


def refusal(documents: Collection[str]) -> str:
    """Return why nodes cannot be in such a file, given the names of their documents; empty if they can."""
    if set(documents) == {DOCUMENT}:
        return ""
    return (
        "an .ozx file holds OME-Zarr 0.5 or later, which is Zarr version 3: choose that (version='0.5', "
        "zarr_format=3), or name the archive .zarr.zip"
    )


def broken_rules(directory: CentralDirectory, comment: bytes) -> list[str]:
    """Return the rules that a file breaks, each as a sentence; not what is only recommended.

    Parameters
    ----------
    directory
        The directory of the file.
    comment
        The comment of the file.
    """
    rules = []
    if DOCUMENT not in directory.rows:
        rules.append(f"the root of the file must be that of the hierarchy, and has no {DOCUMENT}")
    if inner := next((key for key in directory.rows if key.lower().endswith((SUFFIX, ".zip"))), None):
        rules.append(f"a file in it must not be an archive, as {inner[:100]!r} is by its name")
    if _says_ordered(comment):
        headers = directory.columns[z.HEADER]
        by_place = sorted(directory.rows, key=lambda key: int(headers[directory.rows[key]]))
        if not all(keys == in_order(keys) for keys in (by_place, list(directory.rows))):
            rules.append(f'its comment says "jsonFirst": true, but some {DOCUMENT} comes later, or not breadth first')
    return rules


def _says_ordered(comment: bytes) -> bool:
    """Return whether a comment says that documents come first."""
    try:
        # Some writers end it with a NUL.
        return json.loads(comment.rstrip(b"\0"))["ome"]["zipFile"]["centralDirectory"]["jsonFirst"] is True
    except (ValueError, RecursionError, KeyError, TypeError):
        return False
