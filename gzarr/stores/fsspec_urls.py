"""From URLs and objects of fsspec to a filesystem and a path."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from ..errors import ArgumentError, GzarrError, NodeNotFoundError, StoreError
from . import fsspec_references, redaction, urls
from .fsspec_calls import is_a, is_exactly, module

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

#: What turns any URL into one for fsspec.
PREFIX: Final = "fsspec+"
#: Options that say where the targets of references are.
_TARGETS: Final = frozenset({"fs", "remote_protocol"})
#: Options that say how references are read, of which fsspec takes none beside a chain of URLs.
_READING: Final = frozenset({"target_options", "target_protocol"})
#: Bytes of a file that show what it is, and how a document of references begins: without or with its version.
_HEAD: Final = 1024
_DOCUMENT: Final = re.compile(rb'\s*\{\s*"(?:[^"]*\.z(?:group|array|attrs|metadata)|version|templates|gen|refs)"\s*:')
# In brackets is an IPv6 address.
_CHAIN: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+(?:://[^:\[]*)?::")


def is_for_fsspec(url: str, scheme: str) -> bool:
    """Return whether fsspec takes a URL: with the prefix, of several URLs, or of a scheme that fsspec knows.

    Parameters
    ----------
    url, scheme
        Text, and its scheme in lower case; ``""`` for none.
    """
    if scheme.startswith(PREFIX) or is_chain(url):
        return True
    if not scheme:
        return False
    try:
        return scheme in module("fsspec").available_protocols()
    except ArgumentError:
        return False


def is_chain(url: str) -> bool:
    """Return whether a text is a chain of several URLs (``simplecache::https://...``)."""
    return _CHAIN.match(url) is not None


def is_references(path: Path) -> bool:
    """Return whether a file begins as a document of references does; what cannot be read does not."""
    try:
        # Opening a pipe would wait for its writer.
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return _DOCUMENT.match(file.read(_HEAD)) is not None
    except OSError:
        return False


def without_prefix(url: str) -> str:
    """Return a URL as fsspec takes it, without the fragment."""
    text = url.partition("#")[0]
    return text[len(PREFIX) :] if text.lower().startswith(PREFIX) else text


def filesystem_at(url: str, storage_options: Mapping[str, Any] | None) -> tuple[Any, str, str]:
    """Return the filesystem of a URL, the path there, and the path of the node that the URL's fragment names.

    Raises
    ------
    ArgumentError
        If fsspec, or what it needs for this URL, is not installed, or the URL is that of a metadata document.
    NodeNotFoundError
        If a file that the URL names, such as one with references, does not exist.
    StoreError
        If the filesystem cannot be made.
    """
    text = without_prefix(url)
    node = urls.node_of(url.partition("#")[2])
    shown = redaction.public_url(text)
    urls.check_folder(text, shown)
    options = dict(storage_options or {})
    url_to_fs = module("fsspec.core").url_to_fs
    given = {*options, *options.get("reference", {})} if text.startswith("reference:") else set()
    references, _, document = text.partition("::")
    if document and references in ("reference", "reference://") and _READING & given:
        text, options["fo"] = "reference://", document
    if text.startswith("reference:") and not _TARGETS & given:
        # Else fsspec would read references until it finds a target, and fail at those that it cannot read. Filesystems
        # of targets are made when they are needed.
        options["remote_protocol"] = fsspec_references.UNNAMED
    try:
        fs, path = _made(url_to_fs, text, options)
    except GzarrError:
        raise
    # Filesystems may raise anything, and their texts may have secrets in them.
    except Exception as error:
        described = redaction.describe(error, redaction.secrets_of(options))
        if isinstance(error, ImportError):
            raise ArgumentError(f"fsspec needs another package for {shown!r}: {described}") from None
        if isinstance(error, FileNotFoundError):
            raise NodeNotFoundError(f"fsspec finds nothing at {shown!r}: {described}") from None
        if text.startswith("reference:") and "argument: 'fo'" in described:
            chained = f"reference::{shown.removeprefix('reference://') or 'DOCUMENT'}"
            raise ArgumentError(
                f"{shown!r} does not say which document has the references; write {chained!r}, or pass "
                "storage_options={'fo': DOCUMENT}"
            ) from None
        if text.startswith("reference:") and described.startswith(("JSONDecodeError:", "UnicodeDecodeError:")):
            described += (
                "; if the references are compressed, pass storage_options={'target_options': {'compression': 'gzip'}}"
            )
        if isinstance(error, (TypeError, ValueError)):
            raise ArgumentError(f"fsspec takes neither {shown!r} nor its storage_options: {described}") from None
        raise StoreError(f"fsspec cannot open {shown!r}: {described}") from None
    return fs, path, node


def _made(url_to_fs: Any, text: str, options: dict[str, Any]) -> tuple[Any, str]:
    """Return the filesystem of a URL and the path there; references with templates that need jinja2 get it.

    Unless it is told that templates are not simple, fsspec fails at those with arguments, and leaves out generated
    references without a word.
    """
    own = options.get("reference", {})
    if not text.startswith("reference:") or "simple_templates" in options or "simple_templates" in own:
        made: tuple[Any, str] = url_to_fs(text, **options)
        return made
    try:
        fs, path = url_to_fs(text, **options)
        if not fsspec_references.leaves_out(fs):
            return fs, path
    except (KeyError, IndexError, AttributeError, ValueError, TypeError) as error:
        # Errors of str.format, and maybe others: then the second try has the same.
        if isinstance(error, GzarrError):
            raise
    made = url_to_fs(text, **{**options, "simple_templates": False})
    return made


def filesystem_in(value: object) -> tuple[Any, str, tuple[type[BaseException], ...] | None] | None:
    """Return the filesystem in an ``FSMap`` or a ``UPath``, the path there, and what means that a file is absent.

    None for anything else. (Local paths that are UPaths are paths like others.)
    """
    if is_a(value, "fsspec.mapping", "FSMap"):
        return value.fs, value.root, value.missing_exceptions  # type: ignore[attr-defined]
    if is_a(value, "upath", "UPath"):
        return value.fs, value.path, None  # type: ignore[attr-defined]
    return None


def local_path(fs: Any, path: str) -> str | None:
    """Return the local path that a filesystem stands for, or None if it is not exactly the local one."""
    while True:
        if is_exactly(fs, "fsspec.implementations.dirfs", "DirFileSystem"):
            fs, path = fs.fs, fs._join(path)
        elif is_exactly(fs, "fsspec.implementations.asyn_wrapper", "AsyncFileSystemWrapper"):
            fs = fs.sync_fs
        else:
            break
    if is_exactly(fs, "fsspec.implementations.local", "LocalFileSystem"):
        return str(fs._strip_protocol(path))
    return None
