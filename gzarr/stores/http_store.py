"""Web servers: values are files behind URLs. A WebDAV server lists and takes them, too; a plain one only sends them.

obstore follows redirects, also of requests that change a value, and does not tell. An answer such as "303 See Other"
leads to a page, as one for logging in, whose success says nothing of the change. So changes are looked at again.

Source: https://www.rfc-editor.org/rfc/rfc4918 (WebDAV: PROPFIND, COPY, DELETE of a collection).
"""

from __future__ import annotations

import contextlib
import secrets
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ..errors import StoreError
from . import io_threads, late_changes, plain_gets
from .attempts import FailedRequest
from .buffers import as_view
from .connections import to_server
from .content_encodings import content_encodings, encoded, unreadable, without_length
from .keys import split_key, split_prefix
from .object_errors import Kind, is_unreadable
from .remote_store import LACKS_LENGTH, RemoteStore
from .temporary_names import TEMPORARY

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from typing_extensions import Buffer

    from .base import Answer, Request
    from .connections import Connections


#: Statuses of servers that do not understand ranges that count from the end, such as rangehttpserver's.
_NOT_UNDERSTOOD: Final = frozenset((400, 501))
#: What obstore says of a part of a value whose size the server does not tell.
_LACKS_SIZE: Final = "CONTENT_RANGE header"
#: Times that a value is stored which is another one afterwards: somebody else may have stored that.
_MOST_WRITES: Final = 3
_REDIRECTED: Final = (
    "the server may send such requests elsewhere, as to a page for logging in: pass credentials as "
    "storage_options={'client_options': {'default_headers': {...}}}"
)


class _EncodedError(StoreError):
    """An answer of obstore with a content encoding, which it does not undo.

    Attributes
    ----------
    answer
        What it brings if it has no encoding but the one that obstore shows, which means nothing; None if that is one.
    """

    answer: Answer | None = None


class HttpStore(RemoteStore):
    """Values behind a plain web server, or a WebDAV server, which can be listed and written."""

    _takes_parts = False
    _undoes_encodings = True
    # Whether the server lists, once it has told.
    _lists: bool | None = None
    # Whether a value that was stored has been read again.
    _stores = False

    def connections(self) -> Connections | None:
        """Return what limits the number of requests to the server; None if nothing does."""
        return to_server(self.url)

    def _get(self, request: Request, first: FailedRequest | None = None) -> Answer:
        if self._needs_plain:
            answer = self._plainly(request, first)
            if answer is not None:
                return answer
        try:
            return super()._get(request, first)
        except _EncodedError as error:
            answer = self._plainly(request)
            if answer is None:
                answer = error.answer
            if answer is None:
                raise StoreError(str(error), key=request.key) from None
            return answer

    def _plainly(self, request: Request, first: FailedRequest | None = None) -> Answer | None:
        """Return the answer to a request by a plain one, of which obstore makes nothing; None if it brings none."""
        try:
            answer = plain_gets.answer_one(self, self._plain, request, first)
        except FailedRequest as failed:
            return self._answer_of(request, failed)
        if answer is not None:
            self._needs_plain = True
        return answer

    def _checked(self, request: Request, meta: Mapping[str, Any], result: Any) -> Answer:
        if result is not None and (attributes := result.attributes):
            field = attributes.get("Content-Encoding", "")
            encodings = content_encodings(field)
            if field:
                error = _EncodedError(str(encoded(self, request, encodings)), key=request.key)
                if not encodings:
                    # obstore shows the first of several lines.
                    error.answer = super()._checked(request, meta, result)
                raise error
        return super()._checked(request, meta, result)

    def _answer_of(self, request: Request, failed: FailedRequest) -> Answer:
        if request.byte_range.offset < 0 and failed.failure.status in _NOT_UNDERSTOOD:
            answer = self._get_end(request)
            self._plain.from_end = False
            return answer
        reason = failed.failure.reason
        if LACKS_LENGTH in reason or _LACKS_SIZE in reason or is_unreadable(failed.failure):
            plain = self._plainly(request)
            if plain is not None:
                return plain
            if _LACKS_SIZE in reason:
                raise without_length(self, request, "how many bytes the value has") from None
            if is_unreadable(failed.failure):
                raise unreadable(self, request, reason) from None
        return super()._answer_of(request, failed)

    def can_list(self) -> bool:
        """Return whether the server lists its files: one request (PROPFIND), and none once its answer is known.

        An empty listing tells nothing, since a server without WebDAV may answer "404 Not Found", too: such a root
        counts as one that cannot be listed.

        Raises
        ------
        StoreError
            If the request fails for a reason that has nothing to do with listing.
        """
        if self._lists is None:
            try:
                keys, prefixes = io_threads.call(lambda: self._entries(""))
            except FailedRequest as failed:
                refused = failed.failure.kind is Kind.FINAL and failed.failure.status is not None
                if not refused and failed.failure.kind is not Kind.NO_LISTING:
                    raise self._error("list", "", failed) from None
                self._lists = False if refused else None
            else:
                self._lists = True if keys or prefixes else None
        return bool(self._lists)

    def _list_objects(self, prefix: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        # Not all at once ("Depth: infinity"), which many servers refuse: one request for each folder.
        folders = [prefix]
        while folders:
            some = [folders.pop() for _ in range(min(len(folders), self.request_limits().calls))]
            found = io_threads.call_all([partial(self._listed, folder) for folder in some])
            for objects, prefixes in found:
                yield from objects.items()
                folders.extend(prefixes)

    def _overwrite(self, key: str, view: memoryview) -> str | None:
        for _ in range(_MOST_WRITES):
            tag = super()._overwrite(key, view)
            if self._has_arrived(key, view, tag):
                return tag
        raise StoreError(
            f"{self!r}: cannot write {key!r}: the server answered with success, but afterwards there is not the value "
            f"that it was sent; {_REDIRECTED}",
            key=key,
        )

    def _has_arrived(self, key: str, view: memoryview, tag: str | None) -> bool:
        """Return whether a value was stored, given the entity tag of the answer; without one, its size is known."""
        if tag is not None:
            meta = io_threads.call(lambda: self._head("look for", key))
            if meta is None:
                return False
            tag_now = (meta.get("e_tag") or "").removeprefix("W/")
            if tag_now == tag.removeprefix("W/") and meta.get("size") == view.nbytes:
                return True
        elif self._stores:
            return True
        # It may be an old value of that size. Without tags, one look at the bytes tells that the server takes values.
        found = self.get(key)
        arrived = found is not None and memoryview(found) == view
        self._stores = self._stores or (tag is None and arrived)
        return arrived

    def _check_erased(self, keys: Sequence[str]) -> None:
        for key, is_there in zip(keys, self.contains(keys), strict=True):
            if is_there:
                raise StoreError(
                    f"{self!r}: cannot erase {key!r}: the server answered with success, but the value is still there, "
                    f"or was stored anew meanwhile; {_REDIRECTED}",
                    key=key,
                )

    def _key(self, path: str, prefix: str) -> str | None:
        # Drafts of values are not values.
        return None if path.rpartition("/")[2].startswith(TEMPORARY) else super()._key(path, prefix)

    def erase_prefix(self, prefix: str) -> None:
        """Erase all keys that start with ``prefix``, and the folders that held them."""
        self._check_writable()
        split_prefix(prefix)
        late_changes.wait(self._name(prefix).rstrip("/"))
        keys, prefixes = self.list_dir(prefix)
        if not keys and not prefixes:
            return
        # Erasing a folder erases what is in it. The root of the server cannot be erased.
        folder = prefix.rstrip("/")
        self._erase([folder] if folder else [*keys, *(name.rstrip("/") for name in prefixes)])
        # The answer may be "207 Multi-Status", which says in its body what was not erased.
        keys, prefixes = self.list_dir(prefix)
        if keys or prefixes:
            left = [*keys, *prefixes][0]
            raise StoreError(f"{self!r}: cannot erase all below {prefix!r}: {left!r} is still there", key=left)

    def create(self, key: str, value: Buffer) -> bool:
        """Store ``value`` unless the key exists; return whether it was stored.

        WebDAV has no such request for values, but one that copies a file unless its destination exists. Of several
        concurrent calls in threads and processes, exactly one succeeds.
        """
        self._check_writable()
        split_key(key)
        view = as_view(value, key)
        draft = f"{key.rpartition('/')[0]}/{TEMPORARY}{secrets.token_hex(8)}".lstrip("/")

        def copy(module: Any, store: Any) -> None:
            module.copy(store, self._path(draft), self._path(key), overwrite=False)

        interrupted = False
        try:
            self._overwrite(draft, view)
            try:
                return self._create(key, view, copy)
            except FailedRequest as failed:
                if failed.failure.status in (405, 501):
                    raise StoreError(
                        f"{self!r}: cannot create {key!r} without the risk of replacing it: the server does not copy "
                        f"files ({failed}); pass overwrite=True where nobody else writes",
                        key=key,
                    ) from None
                raise
        except FailedRequest as failed:
            raise self._error("create", key, failed) from None
        except StoreError:
            raise
        except BaseException:
            # An interrupt. The draft may still be on its way, which its erasure waits for; the caller does not.
            interrupted = not io_threads.is_one()
            raise
        finally:
            # What is left of it is not a value.
            if interrupted:
                io_threads.start(partial(self._erase, [draft]))
            else:
                with contextlib.suppress(StoreError):
                    self._erase([draft])
