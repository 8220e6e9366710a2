"""Object stores: S3, Google Cloud Storage and Azure."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ..errors import StoreError
from . import io_threads, obstore_module
from .attempts import FailedRequest
from .base import Request
from .buffers import as_view
from .keys import split_key, split_prefix
from .object_errors import Kind
from .remote_store import PAGE_KEYS, RemoteStore

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from typing_extensions import Buffer

#: Classes of obstore that put a value on conditions.
_CONDITIONAL: Final = frozenset({"S3Store", "GCSStore", "AzureStore", "MemoryStore"})


class ObjectStore(RemoteStore):
    """Values as objects in a bucket of S3 or Google Cloud Storage, or in a container of Azure."""

    def list_page(self, prefix: str) -> tuple[list[str], bool]:
        """Return the first keys that start with ``prefix``, at most 1000, and whether these are all; one request."""
        split_prefix(prefix)
        folder = self._path(prefix) or None

        def page(module: Any, store: Any) -> Any:
            return next(iter(module.list(store, folder, chunk_size=PAGE_KEYS)), None) or []

        try:
            found = io_threads.call(lambda: self._send(page, listing=True))
        except FailedRequest as failed:
            raise self._error("list", prefix, failed) from None
        self._seen = True
        keys = (self._key(entry["path"], prefix) for entry in found)
        return [key for key in keys if key is not None], len(found) < PAGE_KEYS

    def create(self, key: str, value: Buffer) -> bool:
        """Store ``value`` like :meth:`set` unless the key exists; return whether it was stored.

        Of several concurrent calls in threads and processes, exactly one succeeds.
        """
        self._check_writable()
        split_key(key)
        view = as_view(value, key)
        try:
            return self._create(key, view, partial(self._put, key, view, "create"))
        except FailedRequest as failed:
            raise self._error("create", key, failed) from None

    def get_with_tokens(self, keys: Sequence[str], max_nbytes: int) -> list[tuple[bytes | None, Hashable | None]]:
        """Return whole values, in order, each with a token for :meth:`replace`; None and None for an absent key."""
        answers = self._answer_all([Request(key, most_nbytes=max_nbytes) for key in keys])
        return [(None if answer.value is None else bytes(answer.value), answer.token) for answer in answers]

    def replace(self, key: str, value: Buffer, token: Hashable | None) -> bool:
        """Store ``value`` under ``key`` unless its value was changed since it had this token; return whether it was.

        None stands for an absent key. Where the server takes no conditions, the value is stored in any case.
        """
        if token is None:
            return self.create(key, value)
        self._check_writable()
        split_key(key)
        view = as_view(value, key)
        tag, version = token if isinstance(token, tuple) else (None, None)
        condition = {name: one for name, one in (("e_tag", tag), ("version", version)) if one is not None}
        if self._recipe[0] not in _CONDITIONAL or not condition:
            self.set(key, value)
            return True
        try:
            return self._create(key, view, partial(self._put, key, view, condition))
        except FailedRequest as failed:
            if failed.failure.kind is Kind.ABSENT:
                # It was erased meanwhile.
                return False
            if failed.failure.status == 501 or "not implemented" in failed.failure.reason.lower():
                self.set(key, value)
                return True
            raise self._error("write", key, failed) from None


class GivenStore(ObjectStore):
    """Values in a store object of obstore that cannot be made anew, such as one in memory: for one process only.

    Parameters
    ----------
    kind
        Name of its class.
    store
        The store object.
    read_only
        Refuse every change.
    """

    def __init__(self, kind: str, store: Any, *, read_only: bool = False) -> None:
        self._given = store
        super().__init__(kind, url=kind, read_only=read_only)

    def _identity(self) -> tuple[Any, ...]:
        return type(self), id(self._given), self.read_only

    def __reduce__(self) -> tuple[Any, ...]:
        raise StoreError(f"{self!r} cannot leave its process; use a store with an address or a directory")

    def _store(self) -> Any:
        obstore_module.module()
        if self.made[1] is None:
            self.made: tuple[int, Any] = (obstore_module.generation(), self._given)
        if self.made[0] != obstore_module.generation():
            raise StoreError(f"{self!r} does not work in a forked process; use a store with an address or a directory")
        return self._given
