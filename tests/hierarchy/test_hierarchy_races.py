"""Concurrent changes of one hierarchy: only one gets a place, nobody's work is lost, everybody sees the same nodes.

The store of these tests starts a rival in the middle of an operation, and waits a moment until it is done or waits for
its turn. So each race runs in the order that does harm if something is checked too early.
"""

from __future__ import annotations

import dataclasses
import errno
import itertools
import threading
import types
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gzarr
import gzarr.arrays.array_properties
from gzarr import errors
from gzarr.stores.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

pytestmark = pytest.mark.slow

MOMENT_S = 0.3
SECONDS = 30.0


class RivalStore(MemoryStore):
    """A store that runs a function in the middle of an operation: at the first call that matches."""

    def __init__(self) -> None:
        super().__init__()
        self._when: Callable[[str, str], bool] | None = None
        self._work: Callable[[], object] = lambda: None
        self._thread: threading.Thread | None = None
        self._failure: Exception | None = None

    def race(self, when: Callable[[str, str], bool], work: Callable[[], object]) -> None:
        """Start ``work`` in a thread at the first operation on a key for which ``when`` is true."""
        self._failure, self._thread = None, None
        self._when, self._work = when, work

    def rival(self) -> Exception | None:
        """Wait for the rival; return its error."""
        assert self._thread is not None, "the rival was not started"
        self._thread.join(SECONDS)
        assert not self._thread.is_alive(), "the rival hangs"
        return self._failure

    def _meet(self, operation: str, keys: Iterable[str]) -> None:
        if self._when is not None and any(self._when(operation, key) for key in keys):
            self._when = None
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()
            self._thread.join(MOMENT_S)

    def _run(self) -> None:
        try:
            self._work()
        except errors.GzarrError as error:
            self._failure = error

    def set_parts(self, key: str, parts: Sequence[Any]) -> None:
        self._meet("set", [key])
        super().set_parts(key, parts)

    def get_small_values(self, keys: Sequence[str], max_nbytes: int) -> list[bytes | None]:
        self._meet("get", keys)
        return super().get_small_values(keys, max_nbytes)

    def list_prefix(self, prefix: str) -> Iterator[str]:
        self._meet("list", [prefix])
        return super().list_prefix(prefix)

    def list_dir(self, prefix: str) -> tuple[list[str], list[str]]:
        self._meet("list_dir", [prefix])
        return super().list_dir(prefix)


def at_set(operation: str, key: str) -> bool:
    return operation == "set"


def outcome(work: Callable[[], object]) -> Exception | None:
    try:
        work()
    except errors.GzarrError as error:
        return error
    return None


SOURCE: dict[str, Any] = {}
gzarr.create_array(SOURCE, data=np.full(4, 7), chunks=2, device="cpu")

# What a store of the arrays "a" (of ones) and "b" (of twos) can have done to it; what "z" is then.
WORKS: dict[str, tuple[Callable[[Any], object], list[int]]] = {
    "move a": (lambda s: gzarr.open_group(s, mode="r+", device="cpu").move("a", "z"), [1, 1]),
    "move b": (lambda s: gzarr.open_group(s, mode="r+", device="cpu").move("b", "z"), [2, 2]),
    "create": (lambda s: gzarr.create_array(s, path="z", data=np.full(2, 5), device="cpu"), [5, 5]),
    "copy": (lambda s: gzarr.copy(SOURCE, s, dest_path="z"), [7, 7, 7, 7]),
    "decode and copy": (lambda s: gzarr.copy(SOURCE, s, dest_path="z", codecs="zstd"), [7, 7, 7, 7]),
    "create below": (lambda s: gzarr.create_array(s, path="z/y", data=np.full(2, 8), device="cpu"), [8, 8]),
    "move below": (lambda s: gzarr.open_group(s, mode="r+", device="cpu").move("a", "z/y"), [1, 1]),
}


# Each with each that wants the same place.
PAIRS = [pair for pair in itertools.permutations(WORKS, 2) if not all("below" in name for name in pair)]


class TestOnePlace:
    @pytest.mark.parametrize(("first", "second"), PAIRS)
    def test_one_of_two_gets_it(self, first: str, second: str) -> None:
        store = RivalStore()
        group = gzarr.create_group(store, device="cpu")
        group.create_array("a", data=np.full(2, 1), chunks=1)
        group.create_array("b", data=np.full(2, 2), chunks=1)
        store.race(at_set, lambda: WORKS[second][0](store))
        failures = {first: outcome(lambda: WORKS[first][0](store))}
        failures[second] = store.rival()
        (winner,) = [name for name, failure in failures.items() if failure is None]
        node = gzarr.open(store, path="z/y" if "below" in winner else "z", device="cpu")
        assert isinstance(node, gzarr.Array)
        assert node[...].tolist() == WORKS[winner][1]
        assert list(gzarr.verify(store)) == []
        moved = {"move a": "a", "move below": "a", "move b": "b"}.get(winner)
        for name, elements in (("a", [1, 1]), ("b", [2, 2])):
            if name != moved:
                assert gzarr.load(store, path=name).tolist() == elements

    def test_one_node_moves_once(self) -> None:
        store = RivalStore()
        group = gzarr.create_group(store, device="cpu")
        group.create_array("a", data=[1, 2])
        store.race(at_set, lambda: gzarr.open_group(store, mode="r+").move("a", "y"))
        group.move("a", "z")
        assert isinstance(store.rival(), errors.NodeNotFoundError)
        assert list(group) == ["z"]

    def test_nothing_is_moved_among_chunks_of_another(self) -> None:
        store: dict[str, Any] = {}
        group = gzarr.create_group(store, device="cpu")
        group.create_array("a", data=[1, 2])
        store["z/c/3"] = b"what is left of something"
        before = dict(store)
        with pytest.raises(errors.ArgumentError, match="'z/c/3' would become part of it"):
            group.move("a", "z")
        assert store == before

    def test_a_move_that_fails_can_be_tried_again(self) -> None:
        store = FullStore()
        group = gzarr.create_group(store, device="cpu")
        group.create_array("a", data=[1, 2], chunks=1)
        before = dict(store.mapping)
        store.code, store.gets_room = errno.ENOSPC, True
        with pytest.raises(errors.StoreError, match="cannot write"):
            group.move("a", "z")
        assert store.mapping == before
        group.move("a", "z")
        assert gzarr.load(store, path="z").tolist() == [1, 2]

    def test_what_is_overwritten_while_it_is_written_leaves_nothing(self) -> None:
        store = RivalStore()
        store.race(
            lambda operation, key: operation == "set" and key.startswith("z/c/"),
            lambda: gzarr.create_array(store, path="z", shape=64, dtype="f8", chunks=8, overwrite=True, device="cpu"),
        )
        gzarr.create_array(store, path="z", data=np.full(64, 1, "i4"), chunks=8, codecs="zstd", device="cpu")
        assert store.rival() is None
        assert list(gzarr.verify(store)) == []
        assert set(gzarr.load(store, path="z").tolist()) == {0.0}

    def test_data_that_come_from_the_same_store(self) -> None:
        store: dict[str, Any] = {}
        group = gzarr.create_group(store, device="cpu")
        array = group.create_array("a", data=np.arange(8), chunks=2)
        assert group.create_array("a", data=array, chunks=3, overwrite=True)[...].tolist() == list(range(8))


class TestGroupsAbove:
    @pytest.mark.parametrize("zarr_format", [2, 3])
    def test_attributes_stay(self, zarr_format: Any) -> None:
        store = RivalStore()
        options = {"zarr_format": zarr_format, "device": "cpu"}
        store.race(at_set, lambda: gzarr.create_array(store, path="g/b", shape=4, dtype="i4", **options))
        gzarr.create_group(store, path="g", attributes={"keep": 1}, **options)
        assert store.rival() is None
        group = gzarr.open_group(store, path="g")
        assert (dict(group.attrs), list(group)) == ({"keep": 1}, ["b"])

    def test_what_another_process_made_stays(self) -> None:
        other: dict[str, Any] = {}
        gzarr.create_group(other, path="g", attributes={"keep": 1}, device="cpu")
        gzarr.create_array(other, path="h", shape=4, dtype="i4", device="cpu")
        store = RivalStore()
        # After the first look, before the first write.
        at_index = lambda operation, key: key.endswith(".zmetadata")  # noqa: E731
        store.race(at_index, lambda: store.mapping.update(other))
        gzarr.create_array(store, path="g/b", shape=4, dtype="i4", device="cpu")
        assert gzarr.open_group(store, path="g").attrs == {"keep": 1}
        store.mapping.clear()
        store.race(at_index, lambda: store.mapping.update(other))
        with pytest.raises(errors.NodeTypeError, match=r"'/h' in .* is an array"):
            gzarr.create_array(store, path="h/b", shape=4, dtype="i4", device="cpu")
        assert store.mapping == other


class TestConsolidate:
    @pytest.mark.parametrize("zarr_format", [2, 3])
    def test_loses_and_hides_nothing(self, zarr_format: Any) -> None:
        store = RivalStore()
        gzarr.create_group(store, zarr_format=zarr_format).create_array("x", shape=4, dtype="i4")

        def change() -> None:
            group = gzarr.open_group(store, mode="r+", device="cpu")
            group.attrs["keep"] = 1
            group.create_array("new", shape=4, dtype="i4")

        store.race(lambda operation, key: operation == "list_dir", change)
        gzarr.consolidate_metadata(store)
        assert store.rival() is None
        group = gzarr.open_group(store)
        assert (dict(group.attrs), list(group)) == ({"keep": 1}, ["new", "x"])

    @pytest.mark.parametrize("zarr_format", [2, 3])
    def test_a_group_that_writes_shows_what_is_there(self, zarr_format: Any) -> None:
        store: dict[str, Any] = {}
        root = gzarr.create_group(store, zarr_format=zarr_format, device="cpu")
        root.create_array("a/b", data=np.arange(3))
        root.create_array("a/c", data=np.arange(3))
        gzarr.consolidate_metadata(store)
        group: Any = gzarr.open_group(store, mode="r+", device="cpu", use_consolidated=True)
        group["a/b"].attrs["k"] = 1
        group["a"]["b"].append([9])
        assert (dict(group["a/b"].attrs), group["a/b"].shape) == ({"k": 1}, (4,))
        del group["a"]["c"]
        group["a"].create_array("d", data=[1])
        assert "a/c" not in group
        with pytest.raises(errors.NodeNotFoundError):
            group["a/c"]
        assert list(group["a"]) == ["b", "d"]
        assert not group.consolidated
        gzarr.consolidate_metadata(store)
        assert gzarr.open_group(store).consolidated


class TestRequired:
    @pytest.mark.parametrize("zarr_format", [2, 3])
    @pytest.mark.parametrize("by", ["function", "group"])
    def test_all_get_it(self, by: str, zarr_format: Any) -> None:
        store = RivalStore()
        root = gzarr.create_group(store, zarr_format=zarr_format, device="cpu")
        found: list[Any] = []

        def require(shape: int = 8) -> None:
            if by == "group":
                found.append(root.require_array("g/a", shape=shape, dtype="i4"))
                found.append(root.require_group("h", attributes={"k": 1}))
                return
            options = {"zarr_format": zarr_format, "device": "cpu"}
            found.append(gzarr.require_array(store, path="g/a", shape=shape, dtype="i4", **options))
            found.append(gzarr.require_group(store, path="h", attributes={"k": 1}, **options))

        for key in ("g/a/", "h/"):
            store.race(lambda operation, at, key=key: operation == "set" and at.startswith(key), require)  # type: ignore[misc]
            require()
            assert store.rival() is None
            assert sorted(node.path for node in found) == ["g/a", "g/a", "h", "h"]
            assert {dict(node.attrs).get("k") for node in found if node.path == "h"} == {1}
            found.clear()
            del root["g"]
            del root["h"]
        store.race(lambda operation, at: operation == "set" and at.startswith("g/a/"), lambda: require(9))
        require()
        failure = store.rival()
        assert isinstance(failure, errors.NodeTypeError)
        assert "has shape (8,), not (9,)" in str(failure)

    def test_a_node_of_another_process_has_no_strays(self) -> None:
        other: dict[str, Any] = {}
        gzarr.create_array(other, path="x", data=np.arange(4), chunks=2, device="cpu")
        store = RivalStore()
        gzarr.create_group(store, device="cpu")
        before = dict(store.mapping)
        at_strays = lambda operation, key: (operation, key) == ("list", "x/c/")  # noqa: E731
        store.race(at_strays, lambda: store.mapping.update(other))
        with pytest.raises(errors.ArgumentError, match="there is an array at '/x'"):
            gzarr.create_array(store, path="x", shape=4, dtype="i8", device="cpu")
        store.mapping.clear()
        store.mapping.update(before)
        store.race(at_strays, lambda: store.mapping.update(other))
        array = gzarr.require_array(store, path="x", shape=4, dtype="i8", device="cpu")
        assert array[...].tolist() == [0, 1, 2, 3]


class TestOneObject:
    def test_its_shape_does_not_go_back(self, monkeypatch: pytest.MonkeyPatch) -> None:
        array = gzarr.create_array({}, shape=(0,), dtype="i4", chunks=4, device="cpu")
        thread = threading.Thread(target=lambda: array.append(np.arange(3)), daemon=True)

        def replace(metadata: Any, **changes: Any) -> Any:
            # In the middle of taking over attributes.
            thread.start()
            thread.join(MOMENT_S)
            return dataclasses.replace(metadata, **changes)

        monkeypatch.setattr(gzarr.arrays.array_properties, "dataclasses", types.SimpleNamespace(replace=replace))
        array.attrs["k"] = 1
        thread.join(SECONDS)
        assert array.shape == (3,)
        assert array[...].tolist() == [0, 1, 2]


class TestReservedNames:
    def test_none_is_made(self) -> None:
        store: dict[str, Any] = {}
        group = gzarr.create_group(store, device="cpu")
        group.create_array("x", data=[1])
        before = dict(store)
        for change in (
            lambda: group.create_array("__x", data=[1]),
            lambda: group.create_array("__g/x", data=[1]),
            lambda: group.create_group("g/__x"),
            lambda: group.require_group("__x"),
            lambda: group.move("x", "__x"),
            lambda: gzarr.copy(SOURCE, store, dest_path="__x"),
        ):
            with pytest.raises(errors.ArgumentError, match="cannot be named '__"):
                change()
        assert store == before
        assert gzarr.create_array({}, path="__x", data=[1], zarr_format=2, device="cpu").path == "__x"

    def test_what_is_there_is_not_lost(self) -> None:
        store: dict[str, Any] = {}
        group = gzarr.create_group(store, device="cpu")
        group.create_array("g/x", data=[1, 2])
        for key in [key for key in store if key.startswith("g/")]:
            store["__" + key] = store.pop(key)
        store["__extension/zarr.json"] = b'{"of": "somebody else"}'
        store["__extension/x/zarr.json"] = store["__g/x/zarr.json"]
        assert [path for path, _ in group.members(None)] == ["__g", "__g/x"]
        copied: dict[str, Any] = {}
        gzarr.copy(store, copied, read_back=True)
        assert gzarr.load(copied, path="__g/x").tolist() == [1, 2]
        gzarr.consolidate_metadata(copied)
        assert list(gzarr.open_group(copied)) == ["__g"]
        store["__g/x/c/0"] = b"damaged"
        assert [problem.node for problem in gzarr.verify(store)] == ["/__g/x"]


class FullStore(MemoryStore):
    """A store that is full until something is erased, or for ever."""

    code: int | None = None
    gets_room = True

    def set(self, key: str, value: Any) -> None:
        if self.code is not None:
            error = errors.StoreError(f"cannot write {key!r}", key=key)
            error.errno = self.code
            raise error
        super().set(key, value)

    def erase_prefix(self, prefix: str) -> None:
        super().erase_prefix(prefix)
        if self.gets_room:
            self.code = None

    def erase_values(self, keys: Iterable[str]) -> None:
        super().erase_values(keys)
        if self.gets_room:
            self.code = None


class TestFullDisk:
    def consolidated(self) -> tuple[FullStore, gzarr.Group]:
        store = FullStore()
        gzarr.create_group(store, device="cpu").create_array("big", data=[1, 2])
        group = gzarr.consolidate_metadata(store, device="cpu")
        store.code = errno.ENOSPC
        return store, group

    def test_a_node_can_be_erased(self) -> None:
        store, group = self.consolidated()
        del group["big"]
        assert sorted(store.mapping) == ["zarr.json"]
        assert not gzarr.open_group(store).consolidated

    def test_what_is_left_is_said(self) -> None:
        store, group = self.consolidated()
        store.gets_room = False
        with pytest.raises(errors.StoreError, match=r"'/big' was erased .* still names it .*consolidate_metadata"):
            del group["big"]
        assert sorted(store.mapping) == ["zarr.json"]

    def test_other_failures_erase_nothing(self) -> None:
        store, group = self.consolidated()
        store.code = errno.EACCES
        before = dict(store.mapping)
        with pytest.raises(errors.StoreError, match=r"cannot write 'zarr\.json'"):
            del group["big"]
        assert store.mapping == before


class TestResumedCopy:
    @pytest.mark.parametrize("zarr_format", [2, 3, "3-draft-2022"])
    def test_nodes_that_the_source_has_not(self, zarr_format: Any) -> None:
        source: dict[str, Any] = {}
        target: dict[str, Any] = {}
        group = gzarr.create_group(source, device="cpu", zarr_format=zarr_format)
        for name in ("g/x", "g/y"):
            group.create_array(name, data=[1, 2])
        gzarr.copy(source, target)
        gzarr.copy(source, target, resume=True)
        del group["g/y"]
        before = dict(target)
        with pytest.raises(errors.ArgumentError, match=r"'/g/y' in .* is not in the source"):
            gzarr.copy(source, target, resume=True)
        assert target == before
        del gzarr.open_group(target, mode="r+")["g/y"]
        copied = gzarr.copy(source, target, resume=True)
        assert isinstance(copied, gzarr.Group)
        assert [path for path, _ in copied.members(None)] == ["g", "g/x"]
