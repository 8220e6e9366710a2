"""A store of gzarr as one of zarr-python, so that zarr-python's own tests of stores run over it."""

from __future__ import annotations

import asyncio
import functools
import inspect
from typing import TYPE_CHECKING, Any, Self

from zarr.abc.store import OffsetByteRequest, RangeByteRequest, Store, SuffixByteRequest
from zarr.core.buffer import default_buffer_prototype

from gzarr.errors import ValueSizeError
from gzarr.stores import ByteRange

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

    from zarr.abc.store import ByteRequest
    from zarr.core.buffer import Buffer, BufferPrototype


class AsyncStore(Store):
    """A store of gzarr.

    Parameters
    ----------
    make
        Function that makes it, with an argument ``read_only``.
    read_only
        Refuse every change.
    """

    supports_writes = True
    supports_deletes = True
    supports_listing = True

    def __init__(self, make: Callable[..., Any], *, read_only: bool = False) -> None:
        super().__init__(read_only=read_only)
        self.make = make
        self.inner = make(read_only=read_only)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AsyncStore) and self.inner == other.inner

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"AsyncStore({self.inner!r})"

    def with_read_only(self, read_only: bool = False) -> Self:
        return type(self)(self.make, read_only=read_only)

    def get_sync(
        self, key: str, *, prototype: BufferPrototype | None = None, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        self._is_open = True
        wanted = _byte_range(byte_range)
        try:
            (value,) = self.inner.get_partial_values([(key, wanted)])
        except ValueSizeError:
            # Where gzarr refuses, zarr-python cuts.
            value = self.inner.get(key)
            stop = None if wanted.length is None else wanted.offset + wanted.length
            value = None if value is None else value[wanted.offset : stop]
        return None if value is None else (prototype or default_buffer_prototype()).buffer.from_bytes(value)

    def set_sync(self, key: str, value: Buffer) -> None:
        self._is_open = True
        self._check_writable()
        self.inner.set(key, value.to_bytes())

    def delete_sync(self, key: str) -> None:
        self._check_writable()
        self.inner.erase(key)

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        return self.get_sync(key, prototype=prototype, byte_range=byte_range)

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        return [self.get_sync(key, prototype=prototype, byte_range=wanted) for key, wanted in key_ranges]

    async def exists(self, key: str) -> bool:
        if hasattr(self.inner, "contains"):
            (found,) = self.inner.contains([key])
            return bool(found)
        return self.inner.get(key) is not None

    async def set(self, key: str, value: Buffer) -> None:
        if not hasattr(value, "to_bytes"):
            raise TypeError(
                f"AsyncStore.set(): `value` must be a Buffer instance. Got an instance of {type(value)} instead."
            )
        self.set_sync(key, value)

    async def set_if_not_exists(self, key: str, value: Buffer) -> None:
        self._check_writable()
        if hasattr(self.inner, "create"):
            self.inner.create(key, value.to_bytes())
        else:
            await super().set_if_not_exists(key, value)

    async def delete(self, key: str) -> None:
        self.delete_sync(key)

    async def delete_dir(self, prefix: str) -> None:
        self._check_writable()
        self.inner.erase_prefix(f"{prefix.rstrip('/')}/" if prefix else "")

    async def list(self) -> AsyncIterator[str]:
        for key in self.inner.list():
            yield key

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        # zarr-python also lists by the beginning of a name, and writes the root in two ways.
        prefix = prefix.lstrip("/")
        folder = prefix[: prefix.rfind("/") + 1]
        for key in list(self.inner.list_prefix(folder)):
            if key.startswith(prefix):
                yield key

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        folder = f"{prefix.rstrip('/')}/" if prefix else ""
        keys, prefixes = self.inner.list_dir(folder)
        for name in sorted({*keys, *(below[:-1] for below in prefixes)}):
            yield name[len(folder) :]

    async def getsize(self, key: str) -> int:
        value = self.inner.get(key)
        if value is None:
            raise FileNotFoundError(key)
        return len(value)


def _byte_range(request: ByteRequest | None) -> ByteRange:
    if request is None:
        return ByteRange()
    if isinstance(request, RangeByteRequest):
        return ByteRange(request.start, request.end - request.start)
    if isinstance(request, OffsetByteRequest):
        return ByteRange(request.offset)
    if isinstance(request, SuffixByteRequest):
        return ByteRange(-request.suffix)
    raise ValueError(f"Unexpected byte_range, got {request}.")


def run_coroutines(cls: type) -> type:
    """Make tests that are coroutine functions, of a class and its bases, ordinary ones."""
    for name, function in inspect.getmembers(cls, inspect.iscoroutinefunction):
        if name.startswith("test_"):
            setattr(cls, name, _waiting(function))
    return cls


def _waiting(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def test(*arguments: Any, **keywords: Any) -> None:
        asyncio.run(function(*arguments, **keywords))

    return test
