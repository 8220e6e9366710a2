"""Changes of a hierarchy through its groups: attributes, erasing, moving, consolidated metadata."""

from __future__ import annotations

import json
import pickle
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import zarr

import gzarr
from gzarr import errors
from gzarr.metadata.to_documents import resized
from gzarr.nodes.attributes import Attributes
from gzarr.nodes.change import change_array, write_array
from gzarr.stores.local import LocalStore
from gzarr.stores.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DRAFT = "3-draft-2022"
FORMATS = [2, 3, DRAFT]


class FailingStore(MemoryStore):
    """A store that refuses calls on demand."""

    refuses: Callable[[str, str], bool] = staticmethod(lambda operation, key: False)  # type: ignore[assignment]

    def set(self, key: str, value: bytes) -> None:
        if self.refuses("set", key):
            raise errors.StoreError(f"no room for {key!r}", key=key)
        super().set(key, value)

    def erase(self, key: str) -> None:
        if self.refuses("erase", key):
            raise errors.StoreError(f"{key!r} stays", key=key)
        super().erase(key)


class CountingStore(MemoryStore):
    """A store that counts its writes."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[str] = []

    def set(self, key: str, value: bytes) -> None:
        self.written.append(key)
        super().set(key, value)


def hierarchy(store: Any, zarr_format: Any) -> gzarr.Group:
    """Create a hierarchy: a group of two arrays, an array, an empty group."""
    root = gzarr.create_group(store, zarr_format=zarr_format, attributes={"title": "t"}, device="cpu")
    for i, name in enumerate(("g/a", "g/deep/b", "c")):
        array = root.create_array(name, shape=(4, 4), dtype="i4", chunks=(2, 2), attributes={"i": i})
        array[...] = np.arange(16).reshape(4, 4) + i
    root.create_group("empty", attributes={"k": None})
    return root


def content(group: gzarr.Group) -> dict[str, Any]:
    result = {}
    for path, node in group.members(max_depth=None):
        result[path] = (node[...].tolist() if isinstance(node, gzarr.Array) else None, dict(node.attrs))
    return result


class TestAttributes:
    @pytest.mark.parametrize("zarr_format", FORMATS)
    @pytest.mark.parametrize("node", ["", "g", "c", "empty"])
    def test_changes_are_written(self, zarr_format: Any, node: str) -> None:
        store: dict[str, Any] = {}
        before = content(hierarchy(store, zarr_format))
        attrs = gzarr.open(store, path=node, mode="r+", device="cpu").attrs
        assert isinstance(attrs, Attributes)
        old = dict(attrs)
        attrs["x"] = {"y": [1, np.float32(0.5)]}
        attrs.update({"n": np.arange(2)}, z=1e300)
        expected = {**old, "x": {"y": [1, 0.5]}, "n": [0, 1], "z": 1e300}
        found = gzarr.open(store, path=node, device="cpu").attrs
        assert attrs == expected
        assert expected == found
        assert (found.asdict(), len(found), list(found)) == (expected, len(expected), list(expected))
        del attrs["x"]
        assert attrs.pop("n") == [0, 1]
        assert attrs.setdefault("z", 5) == 1e300
        assert gzarr.open(store, path=node, device="cpu").attrs == {**old, "z": 1e300}
        attrs.put({"only": 1})
        assert gzarr.open(store, path=node, device="cpu").attrs == {"only": 1}
        attrs.clear()
        assert gzarr.open(store, path=node, device="cpu").attrs == {}
        attrs.put(old)
        assert content(gzarr.open_group(store, device="cpu")) == before

    def test_zarr_python_reads_them(self, tmp_path: Path) -> None:
        for zarr_format in (2, 3):
            path = tmp_path / str(zarr_format)
            array = gzarr.create_array(path, shape=2, dtype="u1", zarr_format=zarr_format, device="cpu")
            array.attrs["a"] = {"é": [None, True, 1.5]}
            theirs = zarr.open_array(str(path), mode="r+")
            assert theirs.attrs["a"]["é"] == [None, True, 1.5]  # type: ignore[index,call-overload]
            theirs.attrs["b"] = 1
            # What others have written in the meantime stays.
            array.attrs["c"] = 2
            assert sorted(gzarr.open(path, device="cpu").attrs) == ["a", "b", "c"]
            assert sorted(array.attrs) == ["a", "b", "c"]

    def test_one_write_each(self) -> None:
        store = CountingStore()
        array = gzarr.create_array(store, shape=2, dtype="u1", attributes={"a": 1}, zarr_format=2, device="cpu")
        store.written.clear()
        array.attrs.update(b=2, c=3)
        array.attrs.update(b=2)
        assert store.written == [".zattrs"]

    def test_a_failure_leaves_the_old_ones(self) -> None:
        store = FailingStore()
        group = hierarchy(store, 3)
        attrs = group["c"].attrs
        store.refuses = lambda operation, key: key == "c/zarr.json"  # type: ignore[method-assign,assignment]
        with pytest.raises(errors.StoreError, match="no room"):
            attrs["x"] = 1
        assert attrs == {"i": 2}
        with pytest.raises(errors.ArgumentError, match="JSON"):
            attrs.update({"x": 1, "y": object()})
        with pytest.raises(KeyError):
            del attrs["y"]
        assert gzarr.open(store, path="c", device="cpu").attrs == {"i": 2}

    @pytest.mark.parametrize("zarr_format", FORMATS)
    def test_read_only(self, zarr_format: Any) -> None:
        store: dict[str, Any] = {}
        hierarchy(store, zarr_format)
        before = dict(store)
        group = gzarr.open_group(store, device="cpu")
        for attrs in (group.attrs, group["c"].attrs):
            for change in (
                lambda attrs=attrs: attrs.update(a=1),
                lambda attrs=attrs: attrs.clear(),
                lambda attrs=attrs: attrs.pop("i", None) if "i" in attrs else attrs.pop("title"),
            ):
                with pytest.raises(errors.ReadOnlyError, match=r"mode='r\+'"):
                    change()
        assert store == before

    @pytest.mark.parametrize("zarr_format", FORMATS)
    @pytest.mark.parametrize("node", ["", "c", "empty"])
    @pytest.mark.parametrize(
        ("change", "result", "left"),
        [
            (lambda attrs: attrs.pop("a", None), None, {"b": 7, "d": 4}),
            (lambda attrs: attrs.pop("a"), KeyError, {"b": 7, "d": 4}),
            (lambda attrs: attrs.pop("b"), 7, {"d": 4}),
            (lambda attrs: attrs.pop("d"), 4, {"b": 7}),
            (lambda attrs: attrs.popitem(), ("b", 7), {"d": 4}),
            (lambda attrs: attrs.setdefault("a", np.int8(9)), 9, {"b": 7, "d": 4, "a": 9}),
            (lambda attrs: attrs.setdefault("b", 9), 7, {"b": 7, "d": 4}),
            (lambda attrs: attrs.setdefault("d", object()), 4, {"b": 7, "d": 4}),
            (lambda attrs: attrs.__delitem__("a"), KeyError, {"b": 7, "d": 4}),
            (lambda attrs: attrs.__delitem__("d"), None, {"b": 7}),
            (lambda attrs: attrs.update(), None, {"b": 7, "d": 4}),
            (lambda attrs: attrs.clear(), None, {}),
        ],
    )
    def test_a_change_is_decided_by_the_store(
        self, zarr_format: Any, node: str, change: Callable[[Any], Any], result: Any, left: dict[str, Any]
    ) -> None:
        """Another handle has changed the attributes; afterwards, those known are those in the store, in any case."""
        store: dict[str, Any] = {}
        hierarchy(store, zarr_format)
        mine, other = (gzarr.open(store, path=node, mode="r+", device="cpu").attrs for _ in range(2))
        mine.put({"a": 1, "b": 2, "c": 3})
        other.put({"b": 7, "d": 4})
        if result is KeyError:
            with pytest.raises(KeyError, match="a"):
                change(mine)
        else:
            assert change(mine) == result
        assert mine == left
        assert gzarr.open(store, path=node, device="cpu").attrs == left

    def test_nothing_is_written_where_nothing_changes(self) -> None:
        store = CountingStore()
        hierarchy(store, 3)
        store.erase("g/zarr.json")
        group = gzarr.open_group(store, path="g", mode="r+", device="cpu")
        store.written.clear()
        assert group.attrs.pop("a", 1) == 1
        with pytest.raises(KeyError, match="no attributes"):
            group.attrs.popitem()
        assert group.implicit
        assert gzarr.open_array(store, path="c", mode="r+", device="cpu").attrs.setdefault("i", 9) == 2
        assert store.written == []

    def test_a_read_only_node_needs_no_change(self) -> None:
        attrs = gzarr.open_group(hierarchy({}, 3).store, device="cpu").attrs
        assert attrs.setdefault("title", "other") == "t"
        assert attrs.pop("absent", 1) == 1
        with pytest.raises(errors.ReadOnlyError):
            attrs.setdefault("absent", 1)
        with pytest.raises(errors.ReadOnlyError):
            attrs.popitem()

    def test_a_group_is_not_json(self) -> None:
        """One without members, too, which looks like an empty mapping."""
        group = hierarchy({}, 3)
        for node in (group, group["empty"], zarr.create_group({})):
            for change in (
                lambda node=node: group.attrs.__setitem__("v", node),
                lambda node=node: group.attrs.update(v=[{"w": node}]),
                lambda node=node: group.attrs.put(node),
                lambda node=node: group.update_attributes({"v": node}),
                lambda node=node: group.create_group("new", attributes={"v": node}),
            ):
                with pytest.raises(errors.ArgumentError, match=r"a Group is not JSON|are a mapping"):
                    change()
        assert group.attrs == {"title": "t"}
        assert "new" not in group

    def test_an_array_that_changed_its_shape_keeps_it(self) -> None:
        store: dict[str, Any] = {}
        hierarchy(store, 3)
        one, two = (gzarr.open_array(store, path="c", mode="r+", device="cpu") for _ in range(2))
        one.resize((6, 4))
        two.attrs["x"] = 1
        assert gzarr.open_array(store, path="c", device="cpu").shape == (6, 4)

    def test_an_implicit_group_becomes_explicit(self) -> None:
        for zarr_format, key in ((2, "g/.zgroup"), (3, "g/zarr.json"), (DRAFT, "meta/g.group.json")):
            store: dict[str, Any] = {}
            hierarchy(store, zarr_format)
            del store[key]
            group = gzarr.open_group(store, path="g", mode="r+", device="cpu")
            assert group.implicit
            group.attrs["a"] = 1
            assert not group.implicit
            again = gzarr.open_group(store, path="g", device="cpu")
            assert (again.implicit, again.attrs, list(again)) == (False, {"a": 1}, ["a", "deep"])

    def test_threads_lose_nothing(self, tmp_path: Path) -> None:
        gzarr.create_group(tmp_path)
        groups = [gzarr.open_group(tmp_path, mode="r+") for _ in range(4)]

        def change(i: int) -> None:
            for j in range(10):
                groups[i].attrs[f"{i}-{j}"] = j

        threads = [threading.Thread(target=change, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(gzarr.open_group(tmp_path).attrs) == 40

    def test_a_node_that_is_gone(self) -> None:
        store: dict[str, Any] = {}
        group = hierarchy(store, 3)
        array = group["c"]
        del group["c"]
        with pytest.raises(errors.NodeNotFoundError, match="no longer exists"):
            array.attrs["x"] = 1
        assert not any(key.startswith("c/") for key in store)


class TestWriteArray:
    @pytest.mark.parametrize("zarr_format", FORMATS)
    def test_resized(self, zarr_format: Any) -> None:
        store = MemoryStore()
        hierarchy(store, zarr_format)
        array = gzarr.open_array(store, path="c", device="cpu")
        write_array(store, "c", resized(array.metadata, (3, 9)))
        assert gzarr.open_array(store, path="c", device="cpu").shape == (3, 9)
        changed = change_array(store, "c", zarr_format, lambda found: resized(found, (found.shape[0] + 1, 4)))
        again = gzarr.open_array(store, path="c", device="cpu")
        assert changed.shape == again.shape == (4, 4)
        assert (again.attrs, again[3].tolist()) == ({"i": 2}, [14, 15, 16, 17])

    def test_of_a_group(self) -> None:
        store = MemoryStore()
        hierarchy(store, 3)
        with pytest.raises(errors.NodeTypeError):
            change_array(store, "g", 3, lambda found: found)


class TestMaking:
    @pytest.mark.parametrize("zarr_format", FORMATS)
    def test_below_a_group(self, zarr_format: Any) -> None:
        store: dict[str, Any] = {}
        group = hierarchy(store, zarr_format)["g"]
        assert isinstance(group, gzarr.Group)
        made = group.create_array("x/y", data=np.arange(3.0))
        assert (made.path, made.zarr_format) == ("g/x/y", zarr_format)
        assert group.create_group("z").path == "g/z"
        assert list(group) == ["a", "deep", "x", "z"]
        for name in ("a", "x"):
            with pytest.raises(errors.ArgumentError, match="overwrite=True"):
                group.create_array(name, shape=1, dtype="u1")
        group.create_array("x", shape=1, dtype="u1", overwrite=True)
        assert sorted(group) == ["a", "deep", "x", "z"]
        assert isinstance(group["x"], gzarr.Array)
        with pytest.raises(errors.ArgumentError, match="names no member"):
            group.create_group("/")

    def test_require(self) -> None:
        group = hierarchy({}, 3)
        array = group.require_array("new", shape=3, dtype="f4", fill_value=1)
        assert array[...].tolist() == [1, 1, 1]
        assert group.require_array("new", shape=3, dtype="f4") == array
        assert group.require_array("c", shape=(4, 4))[0, 0] == 2
        assert list(group.require_group("g")) == ["a", "deep"]
        assert group.require_group("h", attributes={"a": 1}).attrs == {"a": 1}
        with pytest.raises(errors.NodeTypeError):
            group.require_array("c", shape=(4, 5))
        with pytest.raises(errors.NodeTypeError):
            group.require_array("g", shape=(4, 5))
        with pytest.raises(errors.NodeTypeError):
            group.require_group("c")

    def test_pickled(self, tmp_path: Path) -> None:
        hierarchy(tmp_path, 3)
        for mode in ("r", "r+"):
            group = pickle.loads(pickle.dumps(gzarr.open_group(tmp_path, mode=mode, device="cpu")))
            assert (group.read_only, group["c"].read_only) == (mode == "r",) * 2


class TestErasing:
    @pytest.mark.parametrize("zarr_format", FORMATS)
    def test_del(self, zarr_format: Any, tmp_path: Path) -> None:
        group = hierarchy(tmp_path, zarr_format)
        rest = {k: v for k, v in content(group).items() if not k.startswith("g")}
        del group["g/a"]
        assert list(group["g"]) == ["deep"]  # type: ignore[arg-type]
        del group["g"]
        assert content(group) == rest == content(gzarr.open_group(tmp_path, device="cpu"))
        assert not [p for p in tmp_path.rglob("*") if p.name == "g"]
        with pytest.raises(errors.NodeNotFoundError):
            del group["g"]
        del group["c"]
        assert sorted(content(group)) == ["empty"]

    def test_documents_go_first(self) -> None:
        store = FailingStore()
        group = hierarchy(store, 3)
        store.refuses = lambda operation, key: operation == "erase" and key == "c/c/1/0"  # type: ignore[method-assign,assignment]
        with pytest.raises(errors.StoreError, match="stays"):
            del group["c"]
        # Half an array is no array.
        assert "c" not in list(group)
        store.refuses = lambda operation, key: False  # type: ignore[method-assign,assignment]
        with pytest.raises(errors.ArgumentError, match="would be a chunk"):
            group.create_array("c", shape=(4, 4), dtype="i4", chunks=(2, 2))
        assert not group.create_array("c", shape=(4, 4), dtype="i4", chunks=(2, 2), overwrite=True)[...].any()

    @pytest.mark.parametrize("zarr_format", FORMATS)
    def test_read_only(self, zarr_format: Any, tmp_path: Path) -> None:
        hierarchy(tmp_path, zarr_format)
        before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
        for group in (
            gzarr.open_group(tmp_path, device="cpu"),
            gzarr.open_group(LocalStore(tmp_path, read_only=True), device="cpu"),
        ):
            for change in (
                lambda group=group: group.__delitem__("c"),
                lambda group=group: group.move("c", "d"),
                lambda group=group: group.create_array("d", shape=1, dtype="u1"),
                lambda group=group: group.create_group("d"),
                lambda group=group: group.require_group("g"),
                lambda group=group: group.require_array("c", shape=(4, 4)),
                lambda group=group: group["g"].create_group("x"),
            ):
                with pytest.raises(errors.ReadOnlyError, match="read-only"):
                    change()
        assert before == {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}


class TestMoving:
    @pytest.mark.parametrize("zarr_format", FORMATS)
    def test_move(self, zarr_format: Any, tmp_path: Path) -> None:
        group = hierarchy(tmp_path, zarr_format)
        before = content(group)
        group.move("g", "new/h")
        moved = {k.replace("g", "new/h", 1) if k.split("/")[0] == "g" else k: v for k, v in before.items()}
        assert content(gzarr.open_group(tmp_path, device="cpu")) == {**moved, "new": (None, {})}
        group.move("new/h", "g")
        group.move("c", "c2")
        assert content(group)["c2"] == before["c"]
        del group["new"]
        group.move("c2", "c")
        assert content(group) == before

    def test_refused(self) -> None:
        group = hierarchy({}, 3)
        before = content(group)
        for source, dest, kind in [
            ("g", "c", errors.ArgumentError),
            ("g", "g", errors.ArgumentError),
            ("g", "g/x", errors.ArgumentError),
            ("x", "y", errors.NodeNotFoundError),
            ("g", "c/x", errors.NodeTypeError),
            ("g", "", errors.ArgumentError),
        ]:
            with pytest.raises(kind):
                group.move(source, dest)
        assert content(group) == before

    @pytest.mark.parametrize("zarr_format", FORMATS)
    def test_a_failure_leaves_the_source(self, zarr_format: Any) -> None:
        store = FailingStore()
        group = hierarchy(store, zarr_format)
        before = content(group)
        store.refuses = lambda operation, key: operation == "set" and "z/a" in key and key.endswith("1")  # type: ignore[method-assign,assignment]
        with pytest.raises(errors.StoreError, match="no room"):
            group.move("g", "z")
        found = content(gzarr.open_group(store, device="cpu"))
        assert {k: found[k] for k in before} == before


class TestConsolidated:
    @pytest.mark.filterwarnings("ignore::zarr.errors.ZarrUserWarning")
    @pytest.mark.parametrize("zarr_format", [2, 3])
    def test_as_zarr_python_writes_it(self, zarr_format: Any, tmp_path: Path) -> None:
        before = content(hierarchy(tmp_path, zarr_format))
        group = gzarr.consolidate_metadata(tmp_path, device="cpu")
        assert gzarr.open_group(tmp_path, device="cpu").consolidated
        assert content(group) == before
        key = tmp_path / ("zarr.json" if zarr_format == 3 else ".zmetadata")
        ours = json.loads(key.read_bytes())
        theirs = zarr.open_consolidated(str(tmp_path), zarr_format=zarr_format)
        assert theirs["g/deep/b"][1, 2] == before["g/deep/b"][0][1][2]  # type: ignore[index]
        assert sorted(path for path, _ in theirs.members(max_depth=None)) == sorted(before)
        assert dict(theirs.attrs) == {"title": "t"}
        zarr.consolidate_metadata(str(tmp_path), zarr_format=zarr_format)
        again = json.loads(key.read_bytes())
        if zarr_format == 3:
            again, ours = again["consolidated_metadata"], ours["consolidated_metadata"]
            assert {k: v for k, v in ours.items() if k != "metadata"} == {k: again[k] for k in again if k != "metadata"}
            assert {path: document["node_type"] for path, document in ours["metadata"].items()} == {
                path: document["node_type"] for path, document in again["metadata"].items()
            }
        else:
            # zarr-python writes attributes of nodes that have none, too, and a member of its own for groups.
            arrays = {key: value for key, value in again["metadata"].items() if key.endswith(".zarray")}
            assert {key: value for key, value in ours["metadata"].items() if key.endswith(".zarray")} == arrays
            assert len(arrays) == 3

    @pytest.mark.parametrize("zarr_format", [2, 3])
    @pytest.mark.parametrize("change", ["create", "group", "del", "move", "attrs", "resize", "below", "replace"])
    def test_no_change_leaves_it_wrong(self, zarr_format: Any, change: str) -> None:
        store: dict[str, Any] = {}
        hierarchy(store, zarr_format)
        group = gzarr.consolidate_metadata(store, device="cpu")
        below = group["g"]
        assert isinstance(below, gzarr.Group)
        if change == "create":
            group.create_array("new", shape=1, dtype="u1")
        elif change == "group":
            group.create_group("new")
        elif change == "del":
            del group["g/a"]
        elif change == "move":
            group.move("c", "d")
        elif change == "attrs":
            group["c"].attrs["x"] = 1
        elif change == "resize":
            write_array(MemoryStore(store), "c", resized(group["c"].metadata, (9, 9)))  # type: ignore[union-attr,arg-type]
        elif change == "below":
            below.create_array("deep/new", shape=1, dtype="u1")
        else:
            group.create_group("g", overwrite=True)
        fresh = gzarr.open_group(store, device="cpu")
        assert not fresh.consolidated
        assert content(fresh) == content(gzarr.open_group(store, use_consolidated=False, device="cpu"))
        assert ".zmetadata" not in store
        if change != "resize" and change != "attrs" and change != "below":
            assert content(group) == content(fresh)
        gzarr.consolidate_metadata(store, device="cpu")
        assert gzarr.open_group(store, device="cpu").consolidated

    def test_a_group_keeps_its_own_in_version_3(self) -> None:
        store: dict[str, Any] = {}
        hierarchy(store, 3)
        group = gzarr.consolidate_metadata(store, device="cpu")
        group.attrs["x"] = 1
        fresh = gzarr.open_group(store, device="cpu")
        assert (fresh.consolidated, fresh.attrs) == (True, {"title": "t", "x": 1})
        assert content(fresh) == content(gzarr.open_group(store, use_consolidated=False, device="cpu"))

    def test_of_a_group_below(self) -> None:
        for zarr_format in (2, 3):
            store: dict[str, Any] = {}
            hierarchy(store, zarr_format)
            assert list(gzarr.consolidate_metadata(store, path="g", device="cpu")) == ["a", "deep"]
            assert not gzarr.open_group(store, device="cpu").consolidated
            assert gzarr.open_group(store, path="g", device="cpu").consolidated

    def test_groups_without_documents(self) -> None:
        for zarr_format, keys in ((2, ["g/.zgroup", ".zgroup", ".zattrs"]), (3, ["g/zarr.json", "zarr.json"])):
            store: dict[str, Any] = {}
            hierarchy(store, zarr_format)
            for key in keys:
                del store[key]
            group = gzarr.consolidate_metadata(store, device="cpu")
            assert sorted(group) == ["c", "empty", "g"]
            assert list(group["g"]) == ["a", "deep"]  # type: ignore[arg-type]

    def test_refused(self) -> None:
        store: dict[str, Any] = {}
        hierarchy(store, 3)
        store["bad/zarr.json"] = b'{"zarr_format": 3}'
        before = dict(store)
        with pytest.raises(errors.MetadataError, match=r"bad/zarr\.json"):
            gzarr.consolidate_metadata(store)
        with pytest.raises(errors.NodeTypeError):
            gzarr.consolidate_metadata(store, path="c")
        with pytest.raises(errors.NodeNotFoundError):
            gzarr.consolidate_metadata(store, path="nowhere")
        assert store == before
        draft: dict[str, Any] = {}
        hierarchy(draft, DRAFT)
        with pytest.raises(errors.ArgumentError, match="consolidated"):
            gzarr.consolidate_metadata(draft)


class TestNamesOfZarrPython:
    def test_an_array_by_assignment(self) -> None:
        group = gzarr.create_group({}, device="cpu")
        group["a/x"] = [[1, 2], [3, 4]]
        assert group["a/x"][...].tolist() == [[1, 2], [3, 4]]  # type: ignore[index]
        for taken in ("a", "a/x"):
            with pytest.raises(errors.ArgumentError, match=f"at '/{taken}' .* already"):
                group[taken] = [5]
        assert group["a/x"][...].tolist() == [[1, 2], [3, 4]]  # type: ignore[index]
        with pytest.raises(errors.ReadOnlyError):
            gzarr.open_group(group.store, device="cpu")["b"] = [1]
        assert list(group) == ["a"]

    def test_groups(self) -> None:
        group = hierarchy({}, 3)
        assert [node.path for node in group.array_values()] == ["c"]
        assert [node.path for node in group.group_values()] == ["empty", "g"]
        assert [node.path for node in group.require_groups("g", "new/h")] == ["g", "new/h"]
        assert list(group) == ["c", "empty", "g", "new"]
        with pytest.raises(errors.NodeTypeError, match=r"'/c' .* is an array"):
            group.require_groups("c")

    def test_attributes(self) -> None:
        store: dict[str, Any] = {}
        group = hierarchy(store, 3)
        assert group.update_attributes({"k": 1}) is group
        assert gzarr.open_group(store, device="cpu").attrs == {"title": "t", "k": 1}

    def test_attributes_of_others_that_are_no_json_stay(self) -> None:
        store: dict[str, Any] = {}
        group = hierarchy(store, 3)
        document = json.loads(store["zarr.json"])
        others = {"n": [float("nan")], "m": {"inf": float("-inf")}, "q": float("nan")}
        store["zarr.json"] = json.dumps({**document, "attributes": others}).encode()
        group = gzarr.open_group(store, mode="r+", device="cpu")
        group.update_attributes({"k": 1})
        group.attrs.change(lambda found: {**{name: found[name] for name in reversed(found) if name != "q"}, "j": 2})
        expected = {"k": 1, "m": others["m"], "n": others["n"], "j": 2}
        # As text, for NaN equals nothing.
        assert json.dumps(json.loads(store["zarr.json"])["attributes"]) == json.dumps(expected)
        # So do those beside which others change.
        group.update_attributes({"n": [float("nan"), 1], "m": {"inf": float("-inf"), "more": 1}})
        assert json.loads(store["zarr.json"])["attributes"]["m"] == {"inf": float("-inf"), "more": 1}
        for change in (
            {"k": float("nan")}, {"n": [1, float("nan")]}, {"n": float("nan")}, {"new": float("inf")},
            {"m": {"inf": float("inf")}},
        ):  # fmt: skip
            with pytest.raises(errors.ArgumentError, match=rf"attributes\['{next(iter(change))}'\].*JSON has no"):
                group.update_attributes(change)
        with pytest.raises(errors.ArgumentError, match="a mapping from names"):
            group.attrs.change(lambda _: 1)  # type: ignore[arg-type,return-value]
