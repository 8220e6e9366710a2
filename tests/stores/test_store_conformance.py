"""zarr-python's own tests of stores, over stores of gzarr."""

from __future__ import annotations

import itertools
import pickle
import uuid
from functools import partial
from typing import TYPE_CHECKING, Any

import fsspec
import obstore
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from support import servers
from support.async_store import AsyncStore, run_coroutines
from support.asynchronous_files import AsynchronousFiles
from zarr.core.buffer import Buffer, cpu
from zarr.testing.stateful import ZarrHierarchyStateMachine, ZarrStoreStateMachine
from zarr.testing.store import StoreTests

import gzarr

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Conformance(StoreTests[AsyncStore, cpu.Buffer]):
    """What is the same for all stores. Subclasses read and write values without the store."""

    store_cls = AsyncStore
    buffer_cls = cpu.Buffer

    @pytest.fixture
    def store(self, store_kwargs: dict[str, Any]) -> AsyncStore:
        made = AsyncStore(**store_kwargs)
        made._is_open = True
        return made

    @pytest.fixture
    def store_not_open(self, store_kwargs: dict[str, Any]) -> AsyncStore:
        return AsyncStore(**store_kwargs)

    @pytest.fixture
    def open_kwargs(self, store_kwargs: dict[str, Any]) -> dict[str, Any]:
        return store_kwargs

    def test_store_repr(self, store: AsyncStore) -> None:
        assert repr(store.inner).startswith(f"<gzarr.{type(store.inner).__name__} ")

    def test_store_supports_writes(self, store: AsyncStore) -> None:
        assert not store.inner.read_only

    def test_store_supports_listing(self, store: AsyncStore) -> None:
        assert list(store.inner.list()) == []


@run_coroutines
class TestLocalStore(Conformance):
    @pytest.fixture
    def store_kwargs(self, tmp_path: Path) -> dict[str, Any]:
        return {"make": partial(gzarr.LocalStore, tmp_path)}

    async def set(self, store: AsyncStore, key: str, value: Buffer) -> None:
        path = store.inner.root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(value.to_bytes())

    async def get(self, store: AsyncStore, key: str) -> Buffer:
        return cpu.Buffer.from_bytes((store.inner.root / key).read_bytes())


@run_coroutines
class TestMemoryStore(Conformance):
    @pytest.fixture
    def store_kwargs(self) -> dict[str, Any]:
        return {"make": partial(gzarr.MemoryStore, {})}

    async def set(self, store: AsyncStore, key: str, value: Buffer) -> None:
        store.inner.mapping[key] = value.to_bytes()

    async def get(self, store: AsyncStore, key: str) -> Buffer:
        return cpu.Buffer.from_bytes(store.inner.mapping[key])

    def test_serializable_store(self, store: AsyncStore) -> None:
        """What is in memory is equal by identity, never by content."""
        copied = pickle.loads(pickle.dumps(store))
        assert copied != store
        assert copied.inner.mapping == store.inner.mapping


class FsspecConformance(Conformance):
    fs: Any

    @pytest.fixture
    def store_kwargs(self) -> dict[str, Any]:
        return {"make": partial(gzarr.FsspecStore, self.fs, uuid.uuid4().hex)}

    async def set(self, store: AsyncStore, key: str, value: Buffer) -> None:
        self.fs.pipe_file(f"{store.make.args[1]}/{key}", value.to_bytes())

    async def get(self, store: AsyncStore, key: str) -> Buffer:
        return cpu.Buffer.from_bytes(self.fs.cat_file(f"{store.make.args[1]}/{key}"))


@run_coroutines
class TestFsspecStore(FsspecConformance):
    fs = fsspec.filesystem("memory")


@run_coroutines
class TestAsynchronousFsspecStore(FsspecConformance):
    fs = AsynchronousFiles()


BUCKET = "bucket"


@pytest.fixture(scope="module")
def s3() -> Iterator[dict[str, Any]]:
    """Options for an S3 server."""
    with servers.s3_server() as address:
        servers.make_bucket(address, BUCKET)
        yield servers.s3_options(f"http://{address[0]}:{address[1]}")


@run_coroutines
class TestObjectStore(Conformance):
    @pytest.fixture
    def store_kwargs(self, s3: dict[str, Any]) -> dict[str, Any]:
        return {"make": partial(gzarr.open_store, f"s3://{BUCKET}/{uuid.uuid4().hex}", storage_options=s3)}

    @staticmethod
    def place(store: AsyncStore, key: str) -> tuple[Any, str]:
        options = store.make.keywords["storage_options"]
        made = obstore.store.S3Store(BUCKET, config=options, client_options={"allow_http": True})
        return made, f"{store.inner.url.rpartition('/')[2]}/{key}"

    async def set(self, store: AsyncStore, key: str, value: Buffer) -> None:
        made, path = self.place(store, key)
        obstore.put(made, path, value.to_bytes())

    async def get(self, store: AsyncStore, key: str) -> Buffer:
        made, path = self.place(store, key)
        return cpu.Buffer.from_bytes(bytes(obstore.get(made, path).bytes()))


# -- state machines

#: Few steps: what they find, they find soon.
BRIEF = settings(
    max_examples=6, stateful_step_count=12, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
PLACES = ["local", "memory", "fsspec", "asynchronous"]


def makers(place: str, folder: Path) -> Iterator[AsyncStore]:
    """Yield new stores."""
    for number in itertools.count():
        if place == "local":
            yield AsyncStore(partial(gzarr.LocalStore, folder / str(number)))
        elif place == "memory":
            yield AsyncStore(partial(gzarr.MemoryStore, {}))
        else:
            fs = fsspec.filesystem("memory") if place == "fsspec" else AsynchronousFiles()
            yield AsyncStore(partial(gzarr.FsspecStore, fs, uuid.uuid4().hex))


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("machine", [ZarrStoreStateMachine, ZarrHierarchyStateMachine], ids=["values", "hierarchy"])
@pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning", "ignore::zarr.errors.ZarrUserWarning")
def test_state_machines(machine: Any, place: str, tmp_path: Path) -> None:
    stores = makers(place, tmp_path)
    run_state_machine_as_test(lambda: machine(next(stores)), settings=BRIEF)  # type: ignore[no-untyped-call]
