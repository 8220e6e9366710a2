"""From a ``store`` argument to a store."""

from __future__ import annotations

import inspect
import os
import re
import stat
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias
from urllib.parse import unquote

from ..errors import (
    ArgumentError,
    GzarrError,
    NodeNotFoundError,
    ReadOnlyError,
    StoreError,
    UnsupportedError,
    with_errno,
)
from ..flags import check_flags
from ..installing import COMMANDS
from ..plugins import ERRORS, load
from . import foreign, fsspec_urls, redaction, urls, zip_urls
from .base import ReadableStore, is_listable
from .fsspec_calls import is_a
from .keys import join_path
from .local import LocalStore
from .local_paths import status_at
from .memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Literal

    from typing_extensions import Buffer

    from .base import ByteRange

    #: A value, or part of one.
    Value: TypeAlias = bytes | bytearray | memoryview
    #: The modes of zarr-python: read; read and write; create if absent; replace; create, fail if present.
    Mode = Literal["r", "r+", "a", "w", "w-"]


class BufferStore(Protocol):
    """A :class:`~gzarr.stores.base.ReadableStore` whose values are any buffers, and several of them any sequence."""

    def get(self, key: str, /) -> Value | None:
        """Return the value of ``key``, or None if the store has no such key."""

    def get_partial_values(self, key_ranges: Sequence[tuple[str, ByteRange]], /) -> Sequence[Value | None]:
        """Return parts of values, in order; None for each absent key."""


# Other packages' classes, of which none is imported: their types here are what they have and other objects lack.


class ZarrPythonStore(Protocol):
    """A store of zarr-python, such as Icechunk's, for type checkers."""

    @property
    def read_only(self) -> bool:
        """Whether it refuses changes."""

    @property
    def supports_writes(self) -> bool:
        """Whether it can be written to."""

    @property
    def supports_listing(self) -> bool:
        """Whether it can list its keys."""


class ZarrPythonPath(Protocol):
    """A ``StorePath`` of zarr-python, for type checkers."""

    @property
    def store(self) -> ZarrPythonStore:
        """The store."""

    @property
    def path(self) -> str:
        """The path in it."""


class ZarrPythonNode(Protocol):
    """An array or a group of zarr-python, for type checkers."""

    @property
    def store_path(self) -> ZarrPythonPath:
        """Where it is."""


class ObstoreStore(Protocol):
    """A store object of obstore, for type checkers."""

    def get_range(self, path: str, /, *, start: int, length: int) -> Buffer:
        """Return a part of an object."""

    def list_with_delimiter(self, prefix: str | None = None, /) -> Any:
        """Return what is directly below a prefix."""


class FsspecPath(Protocol):
    """A ``UPath``, for type checkers."""

    @property
    def fs(self) -> Any:
        """The filesystem."""

    @property
    def path(self) -> str:
        """The path in it."""

    def as_uri(self) -> str:
        """Return the path as a URL."""


StoreLike: TypeAlias = (
    str
    | os.PathLike[str]
    | MutableMapping[str, Any]
    | ReadableStore
    | BufferStore
    | ZarrPythonStore
    | ZarrPythonPath
    | ZarrPythonNode
    | ObstoreStore
    | FsspecPath
)

#: Before a path or URL, as in other programs: N5 is found without it.
_N5 = "n5://"
_MODES = ("r", "r+", "a", "w", "w-")

# At least two letters: a single one is a Windows drive.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/{1,3}|([A-Za-z][A-Za-z0-9+.-]+)::")


def as_store(
    store_or_path: StoreLike, mode: Mode = "r", storage_options: Mapping[str, Any] | None = None
) -> tuple[ReadableStore, str]:
    """Return the store given by ``store_or_path``, and the path of the node within it.

    Parameters
    ----------
    store_or_path
        A directory (path or ``file://`` URL), a URL of an object store or a web server, a zip archive in any of them, a
        URL for fsspec, any of these after ``n5://``, a mutable mapping of keys to bytes, or a store object, of gzarr or
        another package.
    mode
        ``"r"`` makes a read-only store; with ``"r"`` and ``"r+"`` the directory must exist. With the others it need
        not; storing the first value creates it.
    storage_options
        Options of a URL's store; None otherwise.

    Returns
    -------
    The store, and the path of the node that a URL's fragment or another package's object names, relative to the store's
    root (``""`` for others).

    Raises
    ------
    ArgumentError
        If ``store_or_path`` is none of these or a URL of an unsupported scheme, or ``mode`` is unknown; or if something
        is to be made that has the name of an archive of another kind than zip.
    NodeNotFoundError
        If ``mode`` needs the directory and it does not exist, or if it is not a directory.
    StoreError
        If the directory cannot be examined.
    """
    if mode not in _MODES:
        raise ArgumentError(f'mode must be "r", "r+", "a", "w" or "w-", not {mode!r}')
    if not isinstance(storage_options, (Mapping, type(None))):
        kind = type(storage_options).__name__
        raise ArgumentError(f"storage_options= must be a dict, such as {{'region': 'eu-central-1'}}, not {kind}")
    read_only = mode == "r"
    if isinstance(store_or_path, str) and store_or_path[: len(_N5)].lower() == _N5:
        return _n5_store(store_or_path, mode, storage_options)
    if isinstance(store_or_path, (str, os.PathLike)):
        zipped = zip_urls.zip_store(_text_of(store_or_path), mode, storage_options, as_store, _local_path)
        if zipped is not None:
            return zipped
    scheme = _scheme(store_or_path)
    if scheme in urls.SCHEMES:
        assert isinstance(store_or_path, str)
        remote, node = urls.remote_store(store_or_path, read_only=read_only, storage_options=storage_options)
        if mode not in ("r", "r+") and zip_urls.is_other_archive(store_or_path) and _is_empty(remote):
            raise _other_archive(store_or_path)
        return remote, node
    if isinstance(store_or_path, str) and _is_for_fsspec(store_or_path, scheme):
        store, node = foreign.store_of_url(store_or_path, read_only=read_only, storage_options=storage_options)
        return _checked(store, mode), node
    if storage_options is not None:
        raise ArgumentError(f"storage_options= is for URLs of remote stores, not for {_described(store_or_path)}")
    found = foreign.store_of_object(store_or_path, read_only=read_only)
    if found is not None:
        return _checked(found[0], mode), found[1]
    if isinstance(store_or_path, (str, os.PathLike)):
        store_of_plugin = _from_plugin(_text_of(store_or_path), read_only=read_only)
        if store_of_plugin is not None:
            return store_of_plugin, ""
        text, node = _text_of(store_or_path), ""
        if _scheme(text):
            text, _, fragment = text.partition("#")
            node = urls.node_of(fragment)
        return _checked(LocalStore(_local_path(text), read_only=read_only), mode), node
    if isinstance(store_or_path, ReadableStore):
        if inspect.iscoroutinefunction(store_or_path.get):
            raise ArgumentError(
                f"{type(store_or_path).__module__}.{type(store_or_path).__qualname__} is an asynchronous store, and "
                "gzarr's stores are synchronous; asynchronous are only those of zarr-python (zarr.abc.store.Store)"
            )
        return store_or_path, ""
    if isinstance(store_or_path, MutableMapping):
        return MemoryStore(store_or_path, read_only=read_only), ""
    if type(store_or_path).__module__.partition(".")[0] == "obstore":
        return urls.obstore_store(store_or_path, read_only=read_only), ""
    if is_a(store_or_path, "fsspec.spec", "AbstractFileSystem"):
        raise ArgumentError(
            f"a {type(store_or_path).__name__} of fsspec needs a path: pass gzarr.FsspecStore(fs, path), or "
            "fs.get_mapper(path)"
        )
    raise ArgumentError(
        "a store must be a path, a URL, a mutable mapping of keys to bytes or a store object, not "
        f"{type(store_or_path).__name__}"
    )


def open_store(
    store: StoreLike, *, read_only: bool = True, storage_options: Mapping[str, Any] | None = None
) -> ReadableStore:
    """Return a store, to be passed to several functions.

    Parameters
    ----------
    store
        As for :func:`gzarr.open`, without ``#PATH``.
    read_only
        Refuse every change. Otherwise a directory need not exist.
    storage_options
        Options for the store of a URL:

        - ``timeout``: Seconds after which a failing request is not sent again; 60 by default.
        - ``concurrency``: Most requests of a read at the same time; by default, and at most, the number of I/O threads:
          ``GZARR_IO_THREADS``, or 64.
        - ``gap_bytes``: Largest gap between two byte ranges of a value that are fetched with one request although more
          than 10 % of the bytes are not needed; 16 KiB by default.
        - ``request_bytes``: Most bytes of a request for several byte ranges; 4 MiB by default.
        - ``client_options``: Options of connections, as in obstore: ``default_headers``, ``proxy_url``,
          ``read_timeout``, ...
        - All others: Configuration of the object store as in obstore: for S3 ``region``, ``endpoint``,
          ``access_key_id``, ``secret_access_key``, ``session_token``, ``skip_signature`` (for public data; s3fs calls
          it ``anon``), ..., and ``profile`` (with boto3 installed, which also reads ``AWS_PROFILE`` and the default
          profile); for Google Cloud Storage ``service_account``, ...; for Azure ``account_name``, ``account_key``,
          ``sas_key``, ...; and ``credential_provider``. Environment variables are read for those that are missing.

    Raises
    ------
    ArgumentError
        If the URL or an option is invalid, or obstore is not installed (``pip install 'gzarr[object]'``).
    NodeNotFoundError
        If a directory is needed and does not exist.
    """
    check_flags(read_only=read_only)
    opened, base = as_store(store, "r" if read_only else "a", storage_options)
    if base:
        raise ArgumentError(
            f"{_described(store)} names the node {base!r}, and a store is asked for; leave out '#{base}'"
        )
    return opened


def _text_of(path: str | os.PathLike[str]) -> str:
    """Return a path as text; what its class makes of it may be anything."""
    try:
        return os.fspath(path)
    except TypeError as error:
        raise ArgumentError(f"the path of a store must be text; {type(path).__name__} has none: {error}") from None


def _scheme(store: object) -> str:
    """Return the scheme of a URL in lower case, or an empty string."""
    match = _SCHEME.match(store) if isinstance(store, str) else None
    return match[1].lower() if match is not None and match[1] else ""


def _is_for_fsspec(url: str, scheme: str) -> bool:
    if scheme == "file" or not fsspec_urls.is_for_fsspec(url, scheme):
        return False
    return scheme.startswith(fsspec_urls.PREFIX) or not scheme or load("gzarr.stores", scheme) is None


def _described(store: object) -> str:
    if isinstance(store, str):
        return redaction.named(store)
    return repr(store) if isinstance(store, os.PathLike) else type(store).__name__


def _from_plugin(url: str | bytes, *, read_only: bool) -> ReadableStore | None:
    """Return the store that a plugin makes from a URL, or None if no plugin offers its scheme."""
    scheme = _scheme(url)
    plugin = None if scheme in ("", "file") else load("gzarr.stores", scheme)
    if plugin is None:
        return None
    what = f"the store {scheme!r} of the package {plugin.distribution}"
    try:
        store = plugin.target.from_url(url, read_only)
    except GzarrError:
        raise
    except ERRORS as error:
        shown = _described(url)
        # Its text may have the URL in it.
        cause = error if shown == repr(url) else None
        raise StoreError(f"{what} cannot open {shown}: {redaction.describe(error, frozenset())}") from cause
    if not isinstance(store, ReadableStore):
        raise UnsupportedError(f"{what} is faulty: from_url returned {type(store).__name__}, which is not a store")
    return store


def _n5_store(text: str, mode: Mode, storage_options: Mapping[str, Any] | None) -> tuple[ReadableStore, str]:
    """Return the store of ``n5://PATH_OR_URL``, and the path of the node that ``#PATH`` at its end names."""
    if mode != "r":
        raise ReadOnlyError(
            f"{_described(text)}: N5 is read, not written; write Zarr, or copy to it: gzarr.copy, `gzarr copy`"
        )
    where, node = text[len(_N5) :], ""
    if not where:
        raise ArgumentError(
            f"{_described(text)}: after n5:// comes a path or a URL, such as n5://data.n5 or n5://s3://BUCKET/ROOT"
        )
    if "#" in where and not _SCHEME.match(where) and status_at(where) is None:
        where, _, fragment = where.rpartition("#")
        node = urls.node_of(fragment)
    store, base = as_store(where, mode, storage_options)
    return store, join_path(base, node)


def _local_path(text: str) -> str:
    if not isinstance(text, str):
        raise ArgumentError(f"the path of a store must be text, not {type(text).__name__}: {text!r}")
    match = _SCHEME.match(text)
    if match is None:
        if not text:
            raise ArgumentError("the path of a store must not be empty; the current directory is '.'")
        return text
    scheme = (match[1] or match[2]).lower()
    if scheme != "file" or match[2]:
        raise ArgumentError(
            f"{_described(text)}: URLs of the scheme {scheme!r} are not supported; supported are local directories, "
            f"{', '.join(f'{name}://' for name in sorted(urls.SCHEMES))}, URLs of fsspec's filesystems "
            f"({COMMANDS['fsspec']}), and URLs for which another package offers an entry point of 'gzarr.stores'"
        )
    parts = urls.split(text)
    if parts.netloc not in ("", "localhost"):
        host = parts.netloc.rpartition("@")[2]
        raise ArgumentError(f"{_described(text)} names the host {host!r}; a file URL has three slashes: file:///a/b")
    if parts.query:
        raise ArgumentError(f"{_described(text)}: in a file URL, write '?' as %3F")
    # Bytes that are not UTF-8 are those of the file's name, as in all paths of Python.
    path = unquote(parts.path, errors="surrogateescape")
    return path[1:] if os.name == "nt" and re.match(r"/[A-Za-z]:", path) else path


def _is_empty(store: ReadableStore) -> bool:
    if not is_listable(store):
        return False
    keys, prefixes = store.list_dir("")
    return not keys and not prefixes


def _other_archive(path: str) -> ArgumentError:
    return ArgumentError(
        f"{_described(path)} is the name of an archive of a kind that gzarr does not write; it writes zip archives, "
        "named .zip (such as x.zarr.zip) or .ozx (OME-Zarr in one file), and directories, of any other name; nothing "
        "was made"
    )


def _checked(store: ReadableStore, mode: Mode) -> ReadableStore:
    """Return a store; raise an error if it is a directory that must exist and does not."""
    if isinstance(store, LocalStore):
        _check_directory(store, needed=mode in ("r", "r+"))
    return store


def _check_directory(store: LocalStore, *, needed: bool) -> None:
    root = store.root
    # One look, because another process may make the directory between two.
    try:
        if stat.S_ISDIR(root.stat().st_mode):
            return
        is_file = True
    except FileNotFoundError:
        link = status_at(root, follow_symlinks=False)
        if link is not None and stat.S_ISLNK(link.st_mode):
            raise NodeNotFoundError(f"{str(root)!r} is a symbolic link to something that does not exist") from None
        if not needed:
            if zip_urls.is_other_archive(root.name):
                raise _other_archive(str(root)) from None
            return
        is_file = False
    except NotADirectoryError:  # a parent is a file
        is_file = False
    except (OSError, ValueError) as exc:
        raise with_errno(StoreError(f"{store!r}: cannot examine the directory: {exc}"), exc) from exc
    if is_file and fsspec_urls.is_references(root):
        raise NodeNotFoundError(
            f"{str(root)!r} is a file, not a directory; if it has references of kerchunk, open {f'reference::{root}'!r}"
        )
    if is_file:
        names = " or ".join(zip_urls.SUFFIXES)
        raise NodeNotFoundError(
            f"{str(root)!r} is a file, not a directory; pass the directory that holds the zarr.json or .zarray "
            f"(a zip archive whose name does not end in {names} is 'zip://PATH'; no other archives are read)"
        )
    # For the message only: what cannot be examined is passed over.
    file = next((p for p in root.parents if os.path.isfile(p)), None)  # noqa: PTH113
    if file is not None:
        raise NodeNotFoundError(f"there can be no directory {str(root)!r}: {str(file)!r} is a file, not a directory")
    near = next((p for p in root.parents if os.path.isdir(p)), Path(root.anchor))  # noqa: PTH112
    raise NodeNotFoundError(f"there is no directory {str(root)!r}; the nearest existing parent is {str(near)!r}")
