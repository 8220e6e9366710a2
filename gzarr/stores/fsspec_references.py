"""References of kerchunk, as fsspec's ``reference://`` filesystem holds them: keys, each with bytes of other files.

Format: https://fsspec.github.io/kerchunk/spec.html. fsspec gives the same answer to a key without a reference and to
one whose record cannot be read. Here references are looked up first, and then their targets are read: only the first
can find a key absent, and a target that is absent is a failure. References say how many bytes to expect, too.
"""

from __future__ import annotations

import base64
import contextlib
import inspect
import json
import logging
import math
import operator
import re
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, Final

from ..reasons import pass_on
from . import redaction
from .fsspec_calls import OfFilesystems, is_a, module

if TYPE_CHECKING:
    from collections.abc import Iterator

_log = logging.getLogger(__name__)

#: Whether filesystems have left out references, for it may take a second reading of their documents.
_LEFT_OUT: Final[OfFilesystems[bool]] = OfFilesystems()
#: Names of chunks. Parquet references hold chunks of version 2, and documents in a mapping.
_CHUNK: Final = re.compile(r"\d+(?:\.\d+)*")
#: Most bytes of a file.
_MOST_BYTES: Final = 2**63 - 1
#: Most files of records, each of tens of thousands of references, that are read to learn the targets of all of them.
_MOST_RECORDS: Final = 256


class _Unnamed(str):
    """A protocol that the user has not named. For fsspec, which keeps filesystems by their arguments, it is another."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<unnamed: {super().__repr__()}>"


#: Protocol of targets where the user names none, lest fsspec look for one.
UNNAMED: Final = _Unnamed("file")


class BadReferenceError(Exception):
    """A reference cannot be read, or makes no sense."""


@dataclass(frozen=True, slots=True)
class ReferenceTarget:
    """Bytes of another file.

    Attributes
    ----------
    protocol, path
        Protocol of its filesystem (None for the default), and its path or URL there.
    offset, nbytes
        First byte and number of bytes; ``nbytes`` is None for the whole file.
    """

    protocol: str | None
    path: str
    offset: int = 0
    nbytes: int | None = None


def is_reference_filesystem(fs: object) -> bool:
    """Return whether a filesystem has references for files."""
    return is_a(fs, "fsspec.implementations.reference", "ReferenceFileSystem")


def leaves_out(fs: Any) -> bool:
    """Return whether a filesystem of references has left out those that its document generates (``gen``).

    False also if the document would have to be read once more for that, and cannot be.
    """
    if not fs.simple_templates or not isinstance(fs.references, dict):
        return False
    found = _LEFT_OUT.get(fs)
    return _LEFT_OUT.set(fs, _leaves_out(fs)) if found is None else found


def are_same(one: Any, other: Any) -> bool:
    """Return whether two filesystems have the same references: the document of both may have changed in between."""
    # There may be millions.
    if one is other:
        return True
    if one != other:
        return False
    found, others = one.references, other.references
    return not (isinstance(found, dict) and isinstance(others, dict)) or found == others


def _leaves_out(fs: Any) -> bool:
    options = _arguments(fs)
    document = options.get("fo")
    if isinstance(document, str):
        # Documents are long, and may be far away: they are read a second time only where something may be missing.
        if _is_complete(fs.references):
            return False
        given = options.get("ref_storage_args") or options.get("target_options") or {}
        try:
            with module("fsspec").open(document, "rb", protocol=options.get("target_protocol"), **given) as file:
                text = file.read()
            # Most generate nothing.
            document = json.loads(text) if b'"gen"' in text else {}
        # Filesystems may raise anything. What they have read is good without this look.
        except Exception as error:
            described = redaction.describe(error, redaction.secrets_of(given))
            _log.warning("references cannot be read once more, to see whether some are generated: %s", described)
            return False
    return isinstance(document, dict) and document.get("version") == 1 and bool(document.get("gen"))


def _is_complete(references: dict[str, Any]) -> bool:
    """Return whether references name every chunk of the arrays of version 2 that they have, and no other arrays."""
    arrays = [key.removesuffix(".zarray") for key in references if f"/{key}".endswith("/.zarray")]
    if not arrays or any(f"/{key}".endswith("/zarr.json") for key in references):
        return False
    try:
        return all(_has_chunks(references, folder) for folder in arrays)
    # Documents may hold anything; those who read them say what is wrong.
    except Exception as error:
        pass_on(error)
        return False


def _has_chunks(references: dict[str, Any], folder: str) -> bool:
    """Return whether there are references for all chunks of an array of version 2."""
    document = json.loads(references[f"{folder}.zarray"])
    grid = _grid(document["shape"], document["chunks"])
    # A small document may have an array with more chunks than there is memory for their names.
    if math.prod(grid) > len(references):
        return False
    if not grid and folder in references:
        return True
    separator = document.get("dimension_separator") or "."
    return all(folder + name in references for name in _chunk_names(grid, separator))


def _grid(shape: Any, chunks: Any) -> list[int]:
    return [-(-size // chunk) for size, chunk in zip(shape, chunks, strict=True)]


def _chunk_names(grid: list[int], separator: str = ".") -> Iterator[str]:
    return (separator.join(map(str, chunk)) or "0" for chunk in product(*map(range, grid)))


def look_up(fs: Any, path: str) -> bytes | ReferenceTarget | None:
    """Return the value of a key or where it is, or None if there is no reference.

    Raises
    ------
    BadReferenceError
        If there is one, or may be one, that cannot be read.
    """
    if is_a(fs.references, "fsspec.implementations.reference", "LazyReferenceMapper"):
        folder, _, name = path.rpartition("/")
        if path == ".zmetadata":
            return _consolidated(fs.references)
        if folder and not name.startswith(".z") and not _CHUNK.fullmatch(name):
            return None
    elif path not in fs.references and _is_nameless_chunk(fs.references, path.removesuffix("0")):
        path = path.removesuffix("0")
    try:
        found = fs.references[path]
    except KeyError as error:
        # A file of records that does not exist has no references. One that is damaged may have some.
        if error.__cause__ is None or isinstance(error.__cause__, FileNotFoundError):
            return None
        raise BadReferenceError(f"its references cannot be read: {type(error.__cause__).__name__}") from None
    # Parquet files may hold anything.
    except Exception as error:
        raise BadReferenceError(f"its reference cannot be read: {redaction.describe(error, frozenset())}") from None
    try:
        if hasattr(found, "to_bytes") and not isinstance(found, int):
            found = found.to_bytes()
        elif isinstance(found, str):
            found = found.encode()
    # JSON may hold halves of surrogate pairs, which are no text.
    except Exception as error:
        raise BadReferenceError(f"its reference is malformed: {redaction.describe(error, frozenset())}") from None
    if isinstance(found, bytes):
        return _inline(found)
    if not isinstance(found, (list, tuple)) or len(found) not in (1, 3):
        raise BadReferenceError(f"its reference is malformed: {type(found).__name__}")
    url = found[0]
    if url is None or url != url:  # not a number: pandas's word for nothing
        url = fs.target
        if url is None:
            return None
    if not isinstance(url, str):
        raise BadReferenceError(f"its reference is malformed: the URL is {type(url).__name__}")
    protocol = _protocol_of(url)
    if len(found) == 1:
        return ReferenceTarget(protocol, url)
    offset, nbytes = map(_count, found[1:])
    if offset + nbytes > _MOST_BYTES:
        raise BadReferenceError(f"its reference is malformed: no file has {nbytes} bytes from byte {offset} on")
    return ReferenceTarget(protocol, url, offset, nbytes)


def _protocol_of(url: str) -> str | None:
    return url.partition("://")[0] if "://" in url else None


def _is_nameless_chunk(references: dict[str, Any], key: str) -> bool:
    """Return whether a key is that of the chunk of an array without dimensions, as VirtualiZarr spells it: no name."""
    if not key.endswith("/") or key not in references or f"{key}0" in references:
        return False
    try:
        shape = json.loads(references[f"{key}.zarray"])["shape"]
    except (KeyError, TypeError, ValueError, RecursionError):
        # Whoever reads the document says what is wrong.
        return False
    return isinstance(shape, list) and not shape


def _count(number: Any) -> int:
    """Return an offset or a size; raise BadReferenceError if it is none."""
    # Some writers of JSON and of tables turn integers into floating-point numbers of the same value.
    whole = isinstance(number, float) and number.is_integer()
    try:
        found = -1 if isinstance(number, bool) else operator.index(int(number) if whole else number)
    except TypeError:
        found = -1
    if found < 0:
        raise BadReferenceError("its reference is malformed: offset and size must be integers, and not negative")
    return found


def _consolidated(references: Any) -> bytes:
    """Return consolidated metadata: the index of Parquet references has all documents, but another envelope."""
    try:
        return json.dumps({"zarr_consolidated_format": 1, "metadata": references.zmetadata}).encode()
    # The index may hold anything.
    except Exception as error:
        raise BadReferenceError(f"the index of its references cannot be read: {type(error).__name__}") from None


def _inline(value: bytes) -> bytes:
    if not value.startswith(b"base64:"):
        return value
    try:
        return base64.b64decode(value[7:], validate=True)
    except ValueError as error:
        raise BadReferenceError(f"its reference is malformed: {error}") from None


def filesystem_of(fs: Any, target: ReferenceTarget) -> Any:
    """Return the filesystem of a target: one that the filesystem of references has, or a new one.

    References may come from a stranger. So where the user has said which filesystems they may use, no other is made.

    Raises
    ------
    BadReferenceError
        If there is none for its protocol.
    """
    arguments = _arguments(fs)
    given, protocol = arguments.get("fs"), target.protocol
    known = dict(fs.fss)
    if isinstance(given, dict) and given and None not in given:
        # For paths without a protocol, fsspec adds that of local files, which the user has not given.
        known.pop(None, None)
    if protocol in known:
        return known[protocol]
    for found in known.values():
        if _takes(found, protocol or "file"):
            return found
    if given is not None or not isinstance(arguments.get("remote_protocol"), (_Unnamed, type(None))):
        needed = "paths without a protocol" if protocol is None else repr(protocol)
        filesystems = ", ".join(f"{name!r}: ..." for name in (*known, protocol) if name is not None or name == protocol)
        raise BadReferenceError(
            f"there is no filesystem for {needed}, as its target {redaction.named(target.path)} needs it, among those "
            "given for references (fs= or remote_protocol=), and no other is made; if they may read there, pass "
            f"fs={{{filesystems}}}"
        )
    # fsspec makes that of the first target only.
    options = arguments.get("remote_options") or {}
    try:
        return module("fsspec").filesystem(protocol, **options)
    # Filesystems may raise anything.
    except Exception as error:
        described = redaction.describe(error, redaction.secrets_of(options))
        raise BadReferenceError(f"there is no filesystem for {protocol!r}: {described}") from None


def _arguments(fs: Any) -> dict[str, Any]:
    """Return the arguments that a filesystem of references was made with, by name."""
    made = inspect.signature(module("fsspec.implementations.reference").ReferenceFileSystem.__init__)
    return {**dict(zip([*made.parameters][1:], fs.storage_args, strict=False)), **fs.storage_options}


def _takes(fs: Any, protocol: str) -> bool:
    """Return whether a filesystem takes the URLs of a protocol."""
    if is_a(fs, "fsspec.implementations.asyn_wrapper", "AsyncFileSystemWrapper"):
        return _takes(fs.sync_fs, protocol)
    own = (fs.protocol,) if isinstance(fs.protocol, str) else tuple(fs.protocol)
    # One that keeps files takes the URLs of the filesystem that it has them from, too.
    of_kept = is_a(fs, "fsspec.implementations.cached", "CachingFileSystem")
    if protocol in own or (of_kept and _takes(fs.fs, protocol)):
        return True
    try:
        # Some are known by more names than they say.
        return type(fs) is module("fsspec").get_filesystem_class(protocol)
    # Packages may be absent, and the import of one may raise anything.
    except Exception as error:
        pass_on(error)
        return False


def keys(fs: Any, prefix: str, *, below: bool) -> Iterator[str]:
    """Yield the keys that start with a prefix.

    Parameters
    ----------
    fs, prefix
        Filesystem of references, and prefix.
    below
        Whether to yield the chunks of arrays below the prefix, too. (For Parquet references, that reads every file of
        records there.)

    Raises
    ------
    BadReferenceError
        If references cannot be read.
    """
    references = fs.references
    if not is_a(references, "fsspec.implementations.reference", "LazyReferenceMapper"):
        found = (key for key in references if isinstance(key, str) and key.startswith(prefix))
        yield from (f"{key}0" if _is_nameless_chunk(references, key) else key for key in found)
        return
    documents = [".zmetadata", *references.zmetadata]
    yield from (key for key in documents if key.startswith(prefix))
    for key in documents:
        folder = key.removesuffix(".zarray")
        if key.endswith("/.zarray") and (folder == prefix or (below and folder.startswith(prefix))):
            shape, lengths = (references.zmetadata[key][name] for name in ("shape", "chunks"))
            for chunk in _chunk_names(_grid(shape, lengths)):
                if look_up(fs, folder + chunk) is not None:
                    yield folder + chunk


def targets(fs: Any, prefix: str) -> dict[str | None, set[str]]:
    """Return the files that references point to, by protocol (None for the default): their paths or URLs.

    Parameters
    ----------
    fs, prefix
        Filesystem of references, and how the keys begin.

    Raises
    ------
    BadReferenceError
        If Parquet references cannot be read, or are too many.
    """
    found: dict[str | None, set[str]] = {}
    references = fs.references
    urls: set[Any] = set()
    if is_a(references, "fsspec.implementations.reference", "LazyReferenceMapper"):
        urls = _urls_of_records(references, prefix)
    else:
        for key, value in references.items():
            if isinstance(value, (list, tuple)) and value and isinstance(key, str) and key.startswith(prefix):
                urls.add(value[0] if isinstance(value[0], str) else None)
    for url in urls:
        url = url if isinstance(url, str) else fs.target
        if isinstance(url, str):
            found.setdefault(_protocol_of(url), set()).add(url)
    return found


def records(fs: Any) -> tuple[Any, str] | None:
    """Return where Parquet references are, which are read late: a filesystem and a path; None for other references."""
    references = fs.references
    if is_a(references, "fsspec.implementations.reference", "LazyReferenceMapper"):
        return references.fs, references.root
    return None


def _urls_of_records(references: Any, prefix: str) -> set[Any]:
    """Return the values that Parquet references have for URLs."""
    urls: set[Any] = set()
    left = _MOST_RECORDS
    try:
        for key in references.zmetadata:
            field = key.removesuffix("/.zarray")
            if field == key or not f"{field}/".startswith(prefix):
                continue
            for record in range(-(-math.prod(references._get_chunk_sizes(field)) // references.record_size)):
                left -= 1
                if left < 0:
                    raise BadReferenceError(f"its references are in more than {_MOST_RECORDS} files")
                # One that does not exist has no references.
                with contextlib.suppress(FileNotFoundError):
                    urls.update(references.open_refs(field, record).get("path", ()))
    except BadReferenceError:
        raise
    # Parquet files and their index may hold anything.
    except Exception as error:
        raise BadReferenceError(f"its references cannot be read: {redaction.describe(error, frozenset())}") from None
    return urls
