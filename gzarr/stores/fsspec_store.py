"""Values as files of a filesystem of fsspec, and the values that references of kerchunk point to."""

from __future__ import annotations

import re
import time
from collections import defaultdict
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote

from ..errors import ArgumentError, ReadOnlyError, StoreError
from ..flags import flag
from ..reasons import pass_on
from . import fsspec_listing, fsspec_references, fsspec_web, io_threads, redaction, traffic
from .base import Answer, ByteRange, Request, RequestLimits
from .buffers import as_view
from .byte_ranges import check_limit, check_range, checked_answer, resolve_range
from .fsspec_calls import Calls, FileCall, innermost, is_exactly, module, protocols_of
from .fsspec_references import BadReferenceError
from .keys import is_key, split_key, split_prefix
from .memory import while_others_write
from .timeouts import seconds
from .whole_values import RequestedValues, WholeValues

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from typing_extensions import Buffer

    from .base import Listing

T = TypeVar("T")

#: Seconds after which a request counts as failed.
DEFAULT_TIMEOUT_S: Final = 60.0
#: Calls of ``get_many`` at a time, and requests in each, for asynchronous filesystems.
_CALLS, _EACH = 8, 8
#: Exceptions that mean an absent file.
MISSING: Final = (FileNotFoundError, IsADirectoryError, NotADirectoryError)
# What says that more than a file is absent.
_NO_BUCKET: Final = re.compile(
    "NoSuchBucket|ContainerNotFound|(bucket|container) (does not|doesn't) exist", re.IGNORECASE
)
# What servers say of a range that begins after the last byte.
_NO_RANGE: Final = re.compile(r"not satisfiable|\b416\b", re.IGNORECASE)
_NO_PART: Final = (
    "the server sends whole values only, and the reference needs a part of this one; use a server that supports range "
    "requests, or copy the file to a local directory and change the references"
)


def _is_http(calls: Calls, path: str) -> bool:
    """Return whether a path is one of a web server, which may compress what it sends, or ignore ranges."""
    return not {"http", "https"}.isdisjoint((*calls.protocols, path.partition("://")[0]))


def _cannot_list() -> bool:
    return False


class FsspecStore(RequestedValues, WholeValues):
    """Values as files of a filesystem of fsspec.

    Parameters
    ----------
    fs
        Filesystem of fsspec, synchronous or not.
    path
        Path of the root in it.
    read_only
        Refuse every change.
    timeout
        Seconds after which a request counts as failed.
    missing_exceptions
        Exceptions of the filesystem that mean an absent file, as in ``FSMap``; None for ``FileNotFoundError``,
        ``IsADirectoryError`` and ``NotADirectoryError``. All others are failures.
    url
        URL for messages; None to make one of protocol and path.

    Raises
    ------
    ArgumentError
        If ``fs`` is not a filesystem of fsspec, or another argument is of the wrong kind.

    Notes
    -----
    What fsspec's filesystems do not tell, this store cannot: values have no versions, so a shard that is replaced
    during a read may give chunks of two generations; a value is replaced in one step only if the filesystem's
    ``pipe_file`` does so, as in object stores. A filesystem of references (``reference://``), a cache of fsspec
    (``simplecache::``) and fsspec's own of web servers are read-only. A forked child makes its filesystem anew.
    """

    def __init__(
        self,
        fs: Any,
        path: str = "",
        *,
        read_only: bool = False,
        timeout: float = DEFAULT_TIMEOUT_S,
        missing_exceptions: tuple[type[BaseException], ...] | None = None,
        url: str | None = None,
    ) -> None:
        if not isinstance(fs, module("fsspec").AbstractFileSystem):
            raise ArgumentError(f"FsspecStore needs a filesystem of fsspec, not {type(fs).__name__}")
        if not isinstance(path, str):
            raise ArgumentError(f"the path of a filesystem must be text, not {type(path).__name__}")
        read_only = flag("read_only", read_only)
        self._given = (fs, path)
        kinds: tuple[Any, ...] = MISSING if missing_exceptions is None else tuple(missing_exceptions)
        self._missing = kinds
        if not all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in kinds):
            raise ArgumentError(f"missing_exceptions must be classes of exceptions, not {missing_exceptions!r}")
        self._secrets = redaction.secrets_of(getattr(fs, "storage_options", {}))
        while is_exactly(fs, "fsspec.implementations.dirfs", "DirFileSystem"):
            fs, path = fs.fs, fs._join(path)
            self._secrets |= redaction.secrets_of(getattr(fs, "storage_options", {}))
        self._calls = Calls(fs, seconds(timeout, "timeout"))
        fs = self._calls.fs
        self._references = fsspec_references.is_reference_filesystem(fs)
        if self._references and fsspec_references.leaves_out(fs):
            raise ArgumentError(
                "the filesystem of references has left out those that its document generates ('gen'); make it with "
                "simple_templates=False, which needs jinja2"
            )
        #: Filesystems of targets, by the protocols of references.
        self._targets: dict[str | None, tuple[Any, Calls]] = {}
        root = str(fs._strip_protocol(path))
        self._is_http = _is_http(self._calls, root)
        if self._is_http and "?" in root:
            raise ArgumentError(
                f"{redaction.public_url(root)!r}: a URL with a query ('?...') names one file, not the root of a "
                "hierarchy; pass tokens in storage_options"
            )
        self._base = f"{root.rstrip('/')}/" if root else ""
        if self._is_http or (not self._references and fsspec_listing.lists_nothing(self._calls.names)):
            # Other filesystems need not be asked.
            self.can_list: Callable[[], bool] = _cannot_list
        inner, where, caches = innermost(fs, path)
        self._secrets |= redaction.secrets_of(getattr(inner, "storage_options", {}))
        place = str(inner._strip_protocol(where))
        protocol = protocols_of(inner)[0]
        place = redaction.public_url(place if "://" in place else f"{protocol}://{place}")
        #: Why nothing can be changed, whatever is asked for.
        self._refusal = ""
        if self._references:
            self._refusal = "is a filesystem of references, which cannot be written"
        elif caches:
            prefix = "" if protocol in module("fsspec").available_protocols() else "fsspec+"
            self._refusal = (
                f"is a cache of fsspec, which may go on to read what it has kept; to write, open {f'{prefix}{place}'!r}"
            )
        elif self._is_http and fsspec_web.trusts_any_page(inner):
            self._refusal = (
                "is read by fsspec's client of web servers, which does not see whether a change was done; to write, "
                f"open {place!r}"
            )
        self.read_only: bool = read_only or bool(self._refusal)
        self.url: str = redaction.public_url(url) if url else "::".join((*caches, place))

    def __repr__(self) -> str:
        return f"<gzarr.FsspecStore {self.url!r}>"

    def filesystem(self) -> tuple[Any, str]:
        """Return the filesystem, and the path of the root there."""
        return self._calls.fs, self._base.rstrip("/")

    def _identity(self) -> tuple[Any, ...]:
        return self._base, self.read_only, self._calls.timeout, self._missing

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FsspecStore):
            return NotImplemented
        if self._identity() != other._identity() or self._references != other._references:
            return False
        one, other_one = self._calls.fs, other._calls.fs
        return fsspec_references.are_same(one, other_one) if self._references else bool(one == other_one)

    def __hash__(self) -> int:
        return hash(self._identity())

    def __reduce__(self) -> tuple[Any, ...]:
        fs, path = self._given
        made = partial(
            type(self),
            read_only=self.read_only,
            timeout=self._calls.timeout,
            missing_exceptions=self._missing,
            url=self.url,
        )
        return made, (fs, path)

    # -- failures

    def _path(self, key: str) -> str:
        # In a URL, a key is part of the path.
        return self._base + (quote(key, errors="surrogateescape") if self._is_http else key)

    def _error(self, what: str, key: str, error: BaseException) -> StoreError:
        known = isinstance(error, (ArgumentError, StoreError, BadReferenceError))
        reason = str(error) if known else redaction.describe(error, self._secrets)
        return StoreError(f"{self!r}: cannot {what} {key!r}: {reason}", key=key)

    def _is_absent(self, error: object) -> bool:
        """Return whether an outcome says that a file, and no more than that, is absent."""
        if not isinstance(error, self._missing):
            return False
        cause: BaseException | None = error
        while cause is not None:
            if _NO_BUCKET.search(str(cause)):
                return False
            cause = cause.__cause__ or cause.__context__
        return True

    # -- reading

    def request_limits(self) -> RequestLimits:
        """Return how requests should be made, as far as the filesystem takes several at a time."""
        if self._references or self._calls.is_async:
            return RequestLimits(_CALLS, _EACH)
        return RequestLimits(io_threads.io_thread_count() if self._calls.parallel else 1)

    def get_many(self, requests: Sequence[Request]) -> list[Answer]:
        """Answer some requests: side by side if the filesystem is asynchronous, else one after the other."""
        answers: list[Answer | None] = [None] * len(requests)
        asked: dict[tuple[int, bool], list[tuple[int, FileCall]]] = defaultdict(list)
        for i, request in enumerate(requests):
            try:
                split_key(request.key)
                check_range(request.byte_range)
                found = self._referred(request) if self._references else self._call(request)
            except (ArgumentError, StoreError) as error:
                found = Answer(None, error=error)
            if isinstance(found, Answer):
                answers[i] = found
            else:
                asked[id(found.calls), found.needs_size].append((i, found))
        for (_, needs_size), some in asked.items():
            begin = time.monotonic()
            try:
                if needs_size:
                    outcomes = [self._last_bytes(call) for _, call in some]
                else:
                    outcomes = some[0][1].calls.all("cat_file", [call.arguments for _, call in some])
            except StoreError as error:
                outcomes = [error] * len(some)
            traffic.count(requests=len(some), seconds=time.monotonic() - begin)
            for (i, call), outcome in zip(some, outcomes, strict=True):
                answers[i] = self._answer(call, outcome)
        return [answer for answer in answers if answer is not None]

    def _call(self, request: Request) -> FileCall:
        """Return the call that gets a value."""
        return FileCall(self._calls, self._path(request.key), request, bounded=not self._is_http)

    def _referred(self, request: Request) -> FileCall | Answer:
        """Return the call that gets the bytes that a key refers to, or the answer if no call is needed."""
        key, wanted = request.key, request.byte_range
        try:
            found = fsspec_references.look_up(self._calls.fs, self._path(key))
            if found is None:
                return Answer(None)
            if isinstance(found, bytes):
                start, nbytes = resolve_range(wanted, len(found), self, key)
                check_limit(request, nbytes, self)
                return Answer(memoryview(found)[start : start + nbytes])
            calls = self._calls_of(found)
        except BadReferenceError as error:
            raise self._error("read", key, error) from None
        if found.nbytes is None:
            return FileCall(calls, found.path, request, bounded=not _is_http(calls, found.path))
        start, nbytes = resolve_range(wanted, found.nbytes, self, key)
        check_limit(request, nbytes, self)
        if not nbytes:
            return Answer(b"")
        return FileCall(calls, found.path, Request(key, ByteRange(found.offset + start, nbytes)))

    def _calls_of(self, target: fsspec_references.ReferenceTarget) -> Calls:
        _, calls = self._targets.get(target.protocol, (None, None))
        if calls is None:
            fs = fsspec_references.filesystem_of(self._calls.fs, target)
            # Protocols of one filesystem share its calls, which then run side by side.
            calls = next((calls for known, calls in list(self._targets.values()) if known is fs), None)
            calls = calls or Calls(fs, self._calls.timeout)
            self._targets[target.protocol] = (fs, calls)
        return calls

    def _answer(self, call: FileCall, outcome: Any) -> Answer:
        """Return the answer for the result of a call."""
        key = call.request.key
        while call.calls.below is not None and self._is_absent(outcome):
            # A cache says so of whatever it cannot look for.
            call = replace(call, calls=call.calls.below)
            outcome = self._read(call)
        if not self._references and self._is_absent(outcome):
            outcome = self._look_again(call, outcome)
            if outcome is None:
                return Answer(None)
        if call.request.byte_range.offset < 0 and not call.needs_size and isinstance(outcome, Exception):
            outcome = self._last_bytes(call)
        elif call.arguments[1]["start"] == 0 and isinstance(outcome, Exception) and _NO_RANGE.search(str(outcome)):
            # An empty value has no first byte.
            outcome = call.calls.all("cat_file", [((call.path,), {})])[0]
        try:
            view = memoryview(outcome).cast("B")
        except TypeError as error:
            failure = outcome if isinstance(outcome, BaseException) else error
            if self._references and isinstance(failure, fsspec_web.NoRangesError):
                failure = StoreError(_NO_PART)
            what = f"read {redaction.public_url(call.path)!r}, the target of" if self._references else "read"
            return Answer(None, error=self._error(what, key, failure))
        traffic.count(bytes_read=len(view))
        try:
            return Answer(checked_answer(call.request, view, self))
        except StoreError as error:
            return Answer(None, error=error)

    def _look_again(self, call: FileCall, outcome: BaseException) -> Any:
        """Return None if a file is absent, for certain; else its bytes, or an exception.

        Some filesystems say so of a file that is not yet in a listing that they have kept. Synchronous ones say it of
        files that they cannot read, too (FTP).
        """
        calls = call.calls
        try:
            fs = calls.fs
            if calls.immediate or (calls.is_async and fs._parent(call.path) not in fs.dircache):
                return None
            fs.invalidate_cache()
            if calls.one("info", call.path).get("type") == "directory":
                return None
        except NotImplementedError:
            # It keeps no listings.
            return None
        # Filesystems may raise anything.
        except Exception as error:
            return None if self._is_absent(error) else error
        again = self._read(call)
        if not self._is_absent(again):
            return again
        return StoreError(f"the file exists, and is not read: {redaction.describe(outcome, self._secrets)}")

    def _read(self, call: FileCall) -> Any:
        """Return the bytes that a call gets, or an exception."""
        return self._last_bytes(call) if call.needs_size else call.calls.all("cat_file", [call.arguments])[0]

    def _last_bytes(self, call: FileCall) -> Any:
        """Return the last bytes of a file, which a filesystem may refuse to give before it is asked how many it has."""
        wanted = call.request
        try:
            try:
                size = call.calls.size_read(call.path)
            except NotImplementedError:
                return call.calls.one("cat_file", call.path, start=wanted.byte_range.offset, end=None)
            start, nbytes = resolve_range(wanted.byte_range, size, self, wanted.key)
            return call.calls.one("cat_file", call.path, start=start, end=start + nbytes)
        # Filesystems may raise anything.
        except Exception as error:
            return error

    def _answer_all(self, requests: Sequence[Request]) -> Iterable[Answer]:
        limits = self.request_limits()
        step = limits.each * limits.calls if limits.each > 1 else 1
        tasks = [partial(self.get_many, requests[i : i + step]) for i in range(0, len(requests), step)]
        together = limits.each == 1 and limits.calls > 1
        found = io_threads.call_all(tasks) if together else [task() for task in tasks]
        return chain.from_iterable(found)

    def get_small_values(self, keys: Sequence[str], max_nbytes: int) -> list[bytes | None]:
        """Return whole values, in order; None for an absent key; raise :class:`ValueSizeError` if one is too large."""
        return self._values([Request(key, most_nbytes=max_nbytes) for key in keys])

    # -- listing

    def _found(self, prefix: str) -> list[tuple[str, int | None]]:
        """Return the keys below a prefix, sorted, and the sizes of their values as far as they are known."""
        split_prefix(prefix)
        if self._references:
            return sorted((key, None) for key in self._referring(prefix))
        found = self._listed(fsspec_listing.files, prefix)
        keys = ((self._key(name), size) for name, size in found)
        return sorted((key, size) for key, size in keys if key is not None and key.startswith(prefix))

    def _listed(self, method: Callable[[Calls, str, Callable[[object], bool]], Iterable[T]], prefix: str) -> list[T]:
        """Return what a function of :mod:`gzarr.stores.fsspec_listing` finds below a prefix."""
        if self._is_http:
            raise self._unlisted("a web server has no listing that says what is a key", prefix)
        path = (self._path(prefix) if prefix else self._base).rstrip("/") or self._base
        begin = time.monotonic()

        def listed() -> list[T]:
            return list(method(self._calls.names, path, self._is_absent))

        try:
            # Files in memory are in a dict, which other threads may change during a listing.
            return while_others_write(listed) if self._calls.names.immediate else listed()
        except NotImplementedError:
            raise self._unlisted(f"its filesystem ({self._calls.protocols[0]}) has no listing", prefix) from None
        # Filesystems may raise anything.
        except Exception as error:
            raise self._error("list", prefix, error) from None
        finally:
            traffic.count(requests=1, seconds=time.monotonic() - begin)

    def _unlisted(self, why: str, prefix: str) -> StoreError:
        what = f"{self!r}: cannot list {prefix!r}: {why}; a hierarchy is known by its consolidated metadata there"
        return StoreError(what, key=prefix)

    def _referring(self, prefix: str, *, below: bool = True) -> list[str]:
        """Return the keys that start with a prefix and have references."""
        path = self._path(prefix)
        try:
            found = list(fsspec_references.keys(self._calls.fs, path, below=below))
        # References are read when they are needed, by a filesystem that may raise anything.
        except Exception as error:
            raise self._error("list", prefix, error) from None
        return [key for key in map(self._key, found) if key is not None]

    def list(self) -> Iterator[str]:
        """Yield all keys."""
        return self.list_prefix("")

    def list_prefix(self, prefix: str) -> Iterator[str]:
        """Yield all keys that start with ``prefix``, sorted."""
        return (key for key, _ in self._found(prefix))

    def list_sizes(self, prefix: str) -> Iterator[tuple[str, int]]:
        """Yield all keys that start with ``prefix``, sorted, each with the size of its value in bytes."""
        for key, size in self._found(prefix):
            if size is None:
                size = self._size_in_target(key) if self._references else None
            if size is None:
                value = self.get(key)
                size = None if value is None else len(value)
            if size is not None:
                yield key, size

    def _size_in_target(self, key: str) -> int | None:
        """Return the size of what a key refers to without reading it, or None if that is not told."""
        try:
            found = fsspec_references.look_up(self._calls.fs, self._path(key))
            if found is None or isinstance(found, bytes):
                return None if found is None else len(found)
            if found.nbytes is not None:
                return found.nbytes
            calls = self._calls_of(found)
        except BadReferenceError as error:
            raise self._error("read", key, error) from None
        # Filesystems may raise anything; what is wrong with a file, reading it tells.
        try:
            return int(calls.names.one("size", found.path))
        except Exception as error:
            pass_on(error)
            return None

    def _key(self, name: str) -> str | None:
        """Return the key of a file, or None if it lies outside the root, or its name is no key."""
        if not name.startswith(self._base):
            return None
        key = name[len(self._base) :] if self._base else name.lstrip("/")
        return key if is_key(key) else None

    def list_dir(self, prefix: str) -> Listing:
        """Return the keys and the prefixes directly under ``prefix``, in full from the root, each sorted."""
        split_prefix(prefix)
        keys: set[str] = set()
        prefixes: set[str] = set()
        if self._references:
            for key in self._referring(prefix, below=False):
                name, slash, _ = key[len(prefix) :].partition("/")
                (prefixes if slash else keys).add(f"{prefix}{name}{slash}")
        else:
            for name, is_directory, _ in self._listed(fsspec_listing.directory, prefix):
                found = self._key(name)
                if found is not None and found.startswith(prefix) and found != prefix:
                    (prefixes if is_directory else keys).add(f"{found}/" if is_directory else found)
        return sorted(keys), sorted(prefixes)

    # -- writing

    def _check_writable(self) -> None:
        if self.read_only:
            raise ReadOnlyError(f"{self!r} {self._refusal or 'was opened read-only'}; nothing was changed")

    def set(self, key: str, value: Buffer) -> None:
        """Store ``value`` (bytes-like) under ``key``, in one step if the filesystem can do that.

        Raises
        ------
        ReadOnlyError
            If the store is read-only.
        StoreError
            If the file cannot be written.
        """
        self._check_writable()
        split_key(key)
        data = value if type(value) is bytes else bytes(as_view(value, key))
        path = self._path(key)
        try:
            try:
                self._calls.one("pipe_file", path, data)
            except Exception as error:
                if not self._calls.has_directories or isinstance(error, TimeoutError):
                    raise
                folder = path.rpartition("/")[0]
                if not self._is_directory(folder):
                    self._calls.one("makedirs", folder, exist_ok=True)
                elif not isinstance(error, FileNotFoundError):
                    # Else another thread has just made it.
                    raise
                self._calls.one("pipe_file", path, data)
        # Filesystems may raise anything.
        except Exception as error:
            raise self._error("write", key, error) from None
        traffic.count(requests=1, bytes_written=len(data))

    def _is_directory(self, path: str) -> bool:
        """Return whether a path is known to be that of a directory."""
        try:
            return bool(self._calls.one("isdir", path))
        except NotImplementedError:
            return False

    def erase_values(self, keys: Iterable[str]) -> None:
        """Erase several keys."""
        self._check_writable()
        left = iter(keys)
        while some := tuple(islice(left, _CALLS * _EACH)):
            for key in some:
                split_key(key)
            try:
                outcomes = self._calls.all("rm_file", [((self._path(key),), {}) for key in some])
            except StoreError as error:
                raise self._error("erase", some[0], error) from None
            traffic.count(requests=len(some))
            for key, outcome in zip(some, outcomes, strict=True):
                if isinstance(outcome, BaseException) and not (self._is_absent(outcome) or self._is_gone(key)):
                    raise self._error("erase", key, outcome) from None

    def _is_gone(self, key: str) -> bool:
        """Return whether there is no file of a key, for certain, which erasing it may not tell (FTP)."""
        if self._calls.is_async:
            return False
        try:
            self._calls.fs.invalidate_cache()
            self._calls.one("info", self._path(key))
        # Filesystems may raise anything.
        except Exception as error:
            return self._is_absent(error)
        return False

    def erase_prefix(self, prefix: str) -> None:
        """Erase all keys that start with ``prefix``, and then the empty directories that this leaves."""
        self._check_writable()
        split_prefix(prefix)
        try:
            # What arrives after the listing would stay.
            self._calls.settle(self._path(prefix))
        except TimeoutError as error:
            raise self._error("erase", prefix, error) from None
        self.erase_values(self.list_prefix(prefix))
        if not self._calls.has_directories:
            return
        folders = [prefix] if prefix else self.list_dir("")[1]
        for folder in folders:
            path = self._path(folder).rstrip("/")
            # What is left is no value; filesystems may raise anything.
            try:
                if self._calls.one("isdir", path):
                    self._remove_empty(path)
            except Exception as error:
                pass_on(error)

    def _remove_empty(self, path: str) -> None:
        """Remove a directory and those below it, as far as they are empty."""
        for folder in fsspec_listing.empty_folders(self._calls, path):
            # Never by ``rm``, which takes a name with ``*``, ``?`` or ``[`` for a pattern, and erases what others have
            # stored since the listing. (Another writer may be using this directory.)
            try:
                self._calls.one("rmdir", folder)
            except Exception as error:
                pass_on(error)
