"""Stores of zarr-python that do not list their chunks, or cannot list."""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING, Any

import icechunk
import numpy as np
import pytest
import zarr
from zarr.abc.store import OffsetByteRequest, RangeByteRequest, Store, SuffixByteRequest
from zarr.storage import LoggingStore, MemoryStore, WrapperStore
from zarr.testing.store import LatencyStore

import gzarr
from gzarr.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    Values = np.ndarray[Any, Any]

SHAPE, CHUNKS = (5, 40, 30), (2, 16, 16)
#: Grid coordinates of the chunk that is absent, and the number of the others.
ABSENT, STORED = (1, 0, 1), 3 * 3 * 2 - 1


def elements() -> Values:
    data = np.random.default_rng(3).integers(1, 1000, SHAPE, dtype="u2")
    data[2:4, :16, 16:] = 0
    return data


class Documents(Store):
    """A store that makes its chunks when they are read, whole, and lists its documents: tifffile's do so."""

    supports_writes = False
    supports_deletes = False
    supports_listing = True

    def __init__(self, values: dict[str, Any]) -> None:
        super().__init__(read_only=True)
        self.values = values
        self.listed = [key for key in values if key.endswith((".json", ".zarray", ".zgroup", ".zattrs"))]

    def __eq__(self, other: object) -> bool:
        return self is other

    async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
        if byte_range is not None:
            raise NotImplementedError("ranges")
        return self.values.get(key)

    async def get_partial_values(self, prototype: Any, key_ranges: Any) -> Any:
        raise NotImplementedError

    async def exists(self, key: str) -> bool:
        return key in self.values

    async def set(self, key: str, value: Any) -> None:
        raise NotImplementedError

    async def delete(self, key: str) -> None:
        raise NotImplementedError

    async def list(self) -> AsyncIterator[str]:
        for key in self.listed:
            yield key

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        for key in self.listed:
            if key.startswith(prefix):
                yield key

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        folder = f"{prefix.rstrip('/')}/" if prefix else ""
        below = (key[len(folder) :] for key in self.listed if key.startswith(folder))
        for name in sorted({key.partition("/")[0] for key in below}):
            yield name


class NoKeys(Documents):
    """A store that lists names below groups only, gives ranges, and does not say what exists: VirtualiZarr's do so."""

    async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
        value = self.values.get(key)
        if value is None or byte_range is None:
            return value
        if isinstance(byte_range, RangeByteRequest):
            return value[byte_range.start : byte_range.end]
        if isinstance(byte_range, OffsetByteRequest):
            return value[byte_range.offset :]
        assert isinstance(byte_range, SuffixByteRequest)
        return value[-byte_range.suffix :]

    async def exists(self, key: str) -> bool:
        raise NotImplementedError

    def list(self) -> Any:
        raise NotImplementedError

    def list_prefix(self, prefix: str) -> Any:
        raise NotImplementedError


class Made(MemoryStore):
    """A store in memory but for its chunks: of its methods, only ``get`` is its own."""

    get_sync = property()

    def __init__(self, values: dict[str, Any]) -> None:
        super().__init__({key: value for key, value in values.items() if key.endswith(".json")}, read_only=True)
        self.values = values

    async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
        found: Any = MemoryStore(self.values).get(key, prototype, byte_range)
        return await found


KINDS = pytest.mark.parametrize("kind", [Documents, NoKeys, Made])


def stored(kind: Any, path: str) -> Any:
    """Return a store of a kind with an array that zarr-python wrote."""
    memory = MemoryStore()
    if path:
        zarr.create_group(memory)
    zarr.create_array(memory, name=path, shape=SHAPE, chunks=CHUNKS, dtype="u2", fill_value=0)[...] = elements()
    return kind(memory._store_dict)


@KINDS
def test_what_is_not_listed_is_asked_for(kind: Any) -> None:
    store = stored(kind, "")
    array = gzarr.open_array(store, device="cpu")
    assert array.nchunks_initialized == STORED
    verification = gzarr.verify(store, missing="error")
    assert [problem.chunk for problem in verification] == [ABSENT]
    assert verification.chunks == STORED
    assert list(gzarr.verify(store)) == []
    # Sizes are those of what is listed.
    with pytest.raises(StoreError, match="may have chunks that it does not list, whose sizes"):
        array.nbytes_stored()
    assert "the store does not report sizes" in str(array.info_complete())


@KINDS
def test_through_a_cache(kind: Any, tmp_path: Path) -> None:
    cached = gzarr.CachedStore(gzarr.ZarrStore(stored(kind, "")), tmp_path, 1 << 20, name="unlisted")
    np.testing.assert_array_equal(gzarr.copy(cached, {}, read_back=True)[...], elements())


@KINDS
@pytest.mark.parametrize("options", [{}, {"chunks": (5, 20, 30)}], ids=["as it is", "other chunks"])
def test_copies(kind: Any, options: dict[str, Any]) -> None:
    store = stored(kind, "g/a")
    np.testing.assert_array_equal(zarr.open_array(store, path="g/a", mode="r")[...], elements())
    target = MemoryStore()
    gzarr.copy(store, target, read_back=True, **options)
    copied = zarr.open_array(target, path="g/a", mode="r")
    np.testing.assert_array_equal(copied[...], elements())
    # Absent chunks stay absent.
    assert options or copied.nchunks_initialized == STORED


def test_an_array_without_dimensions() -> None:
    memory = MemoryStore()
    zarr.create_array(memory, shape=(), dtype="i4")[...] = 7
    store = Documents(memory._store_dict)
    assert gzarr.copy(store, {}, read_back=True)[...] == 7
    assert gzarr.open_array(store).nchunks_initialized == 1


class Unlistable(Documents):
    """A store that cannot list, and does not say so before it is tried."""

    def list_dir(self, prefix: str) -> Any:
        raise NotImplementedError

    list = list_prefix = list_dir


class SaysSo(Unlistable):
    supports_listing = False


@pytest.mark.filterwarnings("ignore:Consolidated metadata")
@pytest.mark.parametrize("kind", [Unlistable, SaysSo])
def test_what_cannot_be_listed(kind: Any) -> None:
    memory = MemoryStore()
    root = zarr.create_group(memory)
    root.create_array("a", data=elements(), chunks=CHUNKS)
    with pytest.raises(StoreError, match="cannot list its keys, and the group '/' has no consolidated metadata"):
        gzarr.copy(kind(memory._store_dict), {})
    zarr.consolidate_metadata(memory)
    store = kind(memory._store_dict)
    np.testing.assert_array_equal(gzarr.copy(store, {}, read_back=True)["a"][...], elements())
    verification = gzarr.verify(store)
    assert list(verification) == []
    assert verification.arrays == 1
    with pytest.raises(StoreError, match="stored chunks cannot be told from absent ones"):
        _ = gzarr.open_array(store, path="a").nchunks_initialized


class Counting(WrapperStore[MemoryStore]):
    """A wrapper of a user's."""

    async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
        return await super().get(key, prototype, byte_range)


class Derived(MemoryStore):
    """A derived store of a user's, which lists its chunks."""

    async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
        return await super().get(key, prototype, byte_range)


def test_unknown_stores_are_freed() -> None:
    store = gzarr.ZarrStore(Documents({}))
    reference = weakref.ref(store)
    gc.disable()
    try:
        del store
        assert reference() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("wrapped", [MemoryStore, LoggingStore, LatencyStore, Counting, Derived])
def test_stores_that_list_all_are_not_asked(wrapped: Any) -> None:
    memory = MemoryStore()
    zarr.create_array(memory, shape=(2**40,), chunks=(4,), dtype="u1")[8:12] = 5
    options = {"log_level": "CRITICAL"} if wrapped is LoggingStore else {}
    store = memory
    if wrapped is Derived:
        store = Derived(memory._store_dict)
    elif wrapped is not MemoryStore:
        store = wrapped(memory, **options)
    # Otherwise, each of 2**38 chunks would be asked for.
    copied = gzarr.copy(store, {}, read_back=True)
    assert copied.nchunks_initialized == gzarr.open_array(store).nchunks_initialized == 1
    assert copied[7:13].tolist() == [0, 5, 5, 5, 5, 0]


def test_icechunk_lists_all() -> None:
    store = icechunk.Repository.create(icechunk.in_memory_storage()).writable_session("main").store
    assert gzarr.ZarrStore(store).lists_all()
    assert gzarr.ZarrStore(LoggingStore(store, log_level="CRITICAL")).lists_all()
    assert not gzarr.ZarrStore(LoggingStore(Documents({}), log_level="CRITICAL")).lists_all()
