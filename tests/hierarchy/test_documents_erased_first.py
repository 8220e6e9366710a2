"""Groups that are erased, moved or replaced key by key: a reader sees each array below whole, or not at all."""

from __future__ import annotations

from collections import UserDict
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from zarr.storage import MemoryStore as ZarrMemory

import gzarr
from gzarr.errors import NodeNotFoundError, StoreError
from gzarr.nodes.change import reader_of
from gzarr.nodes.erasing import delete_node
from gzarr.nodes.moving import move_node

if TYPE_CHECKING:
    from collections.abc import Callable

DATA = np.arange(1, 7)
DRAFT: Any = "3-draft-2022"


class Watched(UserDict[str, bytes]):
    """A mapping that calls a function after each change, or fails to erase a key."""

    look: Callable[[], object] | None = None
    fatal: str | None = None

    def __setitem__(self, key: str, value: bytes) -> None:
        super().__setitem__(key, value)
        if self.look is not None:
            self.look()

    def __delitem__(self, key: str) -> None:
        if key == self.fatal:
            raise OSError(5, "I/O error")
        super().__delitem__(key)
        if self.look is not None:
            self.look()


def delete(store: Any) -> None:
    delete_node(store, "g")


def move(store: Any) -> None:
    move_node(store, "g", "h", None)


def overwrite(store: Any) -> None:
    gzarr.create_group(store, path="g", overwrite=True, zarr_format=2 if ".zgroup" in store.mapping else 3)


# What is replaced by a group of its own format: version 1 has none, and drafts are replaced with their hierarchies.
WORKS = [(work, format) for work in (delete, move) for format in (1, 2, 3, DRAFT)] + [(overwrite, 2), (overwrite, 3)]


def made(values: Any, zarr_format: Any) -> Any:
    """Return a store with arrays at two levels of a group; those of version 1, which has no groups, are in a folder."""
    if zarr_format != 1:
        gzarr.create_group(values, path="g/t", zarr_format=zarr_format)
    for path in ("g/a", "g/t/b"):
        gzarr.create_array(values, path=path, data=DATA, chunks=2, zarr_format=zarr_format)
    if zarr_format == 1:
        # A folder of arrays of version 1 only is not moved.
        gzarr.create_array(values, path="g/other", data=DATA, zarr_format=2)
    return gzarr.open_store(values, read_only=False)


def seen(values: Any, path: str, zarr_format: Any) -> list[int] | None:
    try:
        found: list[int] = gzarr.open_array(values, path=path, zarr_format=zarr_format, device="cpu")[...].tolist()
    except NodeNotFoundError:
        return None
    return found


@pytest.mark.parametrize(("work", "zarr_format"), WORKS)
def test_readers_see_each_array_whole_or_not_at_all(work: Callable[[Any], None], zarr_format: Any) -> None:
    values = Watched()
    store = made(values, zarr_format)
    found = []

    def look() -> None:
        values.look = None
        found.append([seen(values, f"{at}/{name}", zarr_format) for at in "gh" for name in ("a", "t/b")])
        values.look = look

    values.look = look
    work(store)
    assert len(found) > 8
    assert all(one in (None, DATA.tolist()) for some in found for one in some)
    assert found[-1] == [None, None, *([DATA.tolist()] * 2 if work is move else [None] * 2)]


@pytest.mark.parametrize(("work", "zarr_format"), WORKS)
def test_what_could_not_be_erased_is_not_read_as_fill_values(work: Callable[[Any], None], zarr_format: Any) -> None:
    for fatal in made(Watched(), zarr_format).list():
        if "/a" not in fatal:
            continue
        values = Watched()
        store = made(values, zarr_format)
        values.fatal = fatal
        with pytest.raises(StoreError, match="I/O error"):
            work(store)
        for name in ("g/a", "g/t/b"):
            assert seen(values, name, zarr_format) in (None, DATA.tolist()), (fatal, name)


def test_a_draft_in_a_group_goes_with_its_entry_point() -> None:
    hierarchy: dict[str, Any] = {}
    gzarr.create_array(hierarchy, path="x", data=DATA, chunks=2, zarr_format=DRAFT)
    values = Watched({f"g/h/{key}": value for key, value in hierarchy.items()})
    assert seen(values, "g/h/x", None) == DATA.tolist()
    values.fatal = next(key for key in values if "/data/" in key)
    with pytest.raises(StoreError, match="I/O error"):
        del gzarr.open_group(values, mode="r+")["g"]
    assert seen(values, "g/h/x", None) is None


def test_a_copy_that_fails_takes_the_documents_back_first() -> None:
    class Failing(Watched):
        def __setitem__(self, key: str, value: bytes) -> None:
            if key == "h/zarr.json":
                raise OSError(5, "I/O error")
            super().__setitem__(key, value)

    values = Failing()
    store = made(values, 3)
    before, found = dict(values), []

    def look() -> None:
        values.look = None
        found.append([seen(values, f"h/{name}", 3) for name in ("a", "t/b")])
        values.look = look

    values.look = look
    with pytest.raises(StoreError, match="I/O error"):
        move(store)
    assert dict(values) == before
    assert [DATA.tolist()] * 2 in found
    assert all(one in (None, DATA.tolist()) for some in found for one in some)


class Failing(ZarrMemory):
    async def delete(self, key: str) -> None:
        if "/c/" in key:
            raise OSError(5, "I/O error")
        await super().delete(key)


class Computed(Failing):
    """A store that may make chunks when they are read, and so list documents only."""

    async def get(self, *args: Any, **options: Any) -> Any:
        return await super().get(*args, **options)


@pytest.mark.parametrize("kind", [Failing, Computed])
def test_stores_of_zarr_python(kind: type[ZarrMemory]) -> None:
    values = kind()
    store = made(values, 3)
    with pytest.raises(StoreError, match="I/O error"):
        delete(store)
    assert [seen(values, path, 3) for path in ("g/a", "g/t/b")] == [None, None]
    assert reader_of(store).node("g/a", 3) is None
