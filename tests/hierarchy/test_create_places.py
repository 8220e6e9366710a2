"""Places for new arrays and groups: existing nodes, groups above, modes, read-only stores."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import zarr

import gzarr
from gzarr import errors
from gzarr.stores.local import LocalStore

if TYPE_CHECKING:
    from pathlib import Path

DRAFT = "3-draft-2022"


class TestPlaces:
    def test_groups_above_become_explicit(self, tmp_path: Path) -> None:
        gzarr.create_array(tmp_path, path="/a/b/c/", shape=2, dtype="u1", device="cpu")
        assert sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("zarr.json")) == [
            "a/b/c/zarr.json", "a/b/zarr.json", "a/zarr.json", "zarr.json",
        ]  # fmt: skip
        assert not gzarr.open_group(tmp_path, path="a/b").implicit

    @pytest.mark.parametrize("new", [1, 2, 3, DRAFT])
    @pytest.mark.parametrize("old", [1, 2, 3, DRAFT])
    def test_a_node_is_refused_or_replaced(self, old: Any, new: Any) -> None:
        store: dict[str, Any] = {}
        array = gzarr.create_array(store, shape=4, dtype="u1", chunks=2, zarr_format=old, device="cpu")
        array[...] = 5
        before = dict(store)
        with pytest.raises(errors.ArgumentError, match="overwrite=True"):
            gzarr.create_array(store, shape=4, dtype="u1", chunks=2, zarr_format=new, device="cpu")
        if new != 1 and old != DRAFT:
            with pytest.raises(errors.ArgumentError, match="overwrite=True"):
                gzarr.create_group(store, zarr_format=new)
        assert store == before
        gzarr.create_array(store, shape=4, dtype="u1", chunks=2, zarr_format=new, overwrite=True, device="cpu")
        assert gzarr.open_array(store, device="cpu")[...].tolist() == [0] * 4
        assert len(store) == (2 if new in (1, DRAFT) else 1)

    def test_a_group_with_nodes(self) -> None:
        store: dict[str, Any] = {}
        gzarr.create_array(store, path="a/b", shape=2, dtype="u1", device="cpu")
        with pytest.raises(errors.ArgumentError, match="group"):
            gzarr.create_array(store, path="a", shape=2, dtype="u1", device="cpu")
        del store["a/zarr.json"]
        with pytest.raises(errors.ArgumentError, match="below it"):
            gzarr.create_array(store, path="a", shape=2, dtype="u1", device="cpu")
        # A group that nodes imply may become explicit: nothing is lost.
        assert list(gzarr.create_group(store, path="a", attributes={"k": 1})) == ["b"]
        with pytest.raises(errors.ArgumentError, match="already"):
            gzarr.create_group(store, path="a")
        assert list(gzarr.create_group(store, path="a", overwrite=True)) == []
        assert sorted(store) == ["a/zarr.json", "zarr.json"]

    def test_malformed(self) -> None:
        store: dict[str, Any] = {"a/zarr.json": b"{", "a/c/0": b"x"}
        with pytest.raises(errors.ArgumentError, match="cannot be read"):
            gzarr.create_array(store, path="a", shape=2, dtype="u1", device="cpu")
        gzarr.create_array(store, path="a", shape=2, dtype="u1", overwrite=True, device="cpu")
        assert sorted(store) == ["a/zarr.json", "zarr.json"]

    def test_below_an_array(self) -> None:
        for zarr_format in (2, 3, DRAFT):
            store: dict[str, Any] = {}
            gzarr.create_array(store, path="a", shape=2, dtype="u1", zarr_format=zarr_format)
            with pytest.raises(errors.NodeTypeError, match="'/a'"):
                gzarr.create_array(store, path="a/b/c", shape=2, dtype="u1", zarr_format=zarr_format)

    @pytest.mark.parametrize(("old", "new"), [(2, 3), (3, 2), (3, DRAFT), (DRAFT, 3), (DRAFT, 2), (2, 1), (3, 1)])
    def test_a_hierarchy_has_one_format(self, old: Any, new: Any) -> None:
        store: dict[str, Any] = {}
        gzarr.create_group(store, zarr_format=old)
        before = dict(store)
        with pytest.raises(errors.ArgumentError, match="zarr_format="):
            gzarr.create_array(store, path="a", shape=2, dtype="u1", zarr_format=new)
        assert store == before

    @pytest.mark.parametrize("zarr_format", [1, 2, 3, DRAFT])
    @pytest.mark.parametrize("shape", [(), (4,), (4, 4)])
    def test_chunks_of_an_array_that_is_gone(self, zarr_format: Any, shape: tuple[int, ...]) -> None:
        if zarr_format == 1 and not shape:
            return
        store: dict[str, Any] = {}
        array = gzarr.create_array(store, path="a", shape=shape, dtype="u1", zarr_format=zarr_format, device="cpu")
        array[...] = 5
        for key in [key for key in store if key.rpartition("/")[2] in (".zarray", "zarr.json", "meta", "a.array.json")]:
            del store[key]
        with pytest.raises(errors.ArgumentError, match="overwrite=True"):
            gzarr.create_array(store, path="a", shape=shape, dtype="u1", zarr_format=zarr_format, device="cpu")
        made = gzarr.create_array(
            store, path="a", shape=shape, dtype="u1", zarr_format=zarr_format, overwrite=True, device="cpu"
        )
        assert not made[...].any()

    def test_a_directory_that_is_no_node_is_not_emptied(self, tmp_path: Path) -> None:
        (tmp_path / "letters").mkdir()
        (tmp_path / "letters/1.txt").write_text("dear")
        gzarr.create_group(tmp_path, overwrite=True)
        gzarr.open_group(tmp_path, path="letters", mode="w")
        assert (tmp_path / "letters/1.txt").read_text() == "dear"

    def test_read_only(self, tmp_path: Path) -> None:
        store = LocalStore(tmp_path, read_only=True)
        for make in (
            lambda: gzarr.create_array(store, shape=2, dtype="u1"),
            lambda: gzarr.create_group(store),
            lambda: gzarr.open_group(store, mode="a"),
            lambda: gzarr.open_array(store, mode="w", shape=2, dtype="u1"),
            lambda: gzarr.consolidate_metadata(store),
            lambda: gzarr.save(store, np.zeros(2)),
        ):
            with pytest.raises(errors.ReadOnlyError, match="read-only"):
                make()
        assert list(tmp_path.iterdir()) == []

    def test_of_several_makers_one_succeeds(self, tmp_path: Path) -> None:
        made: list[str] = []

        def make(i: int) -> None:
            try:
                gzarr.create_array(tmp_path, path="a/b", shape=i + 1, dtype="u1", device="cpu")
                made.append("made")
            except errors.ArgumentError:
                made.append("refused")

        threads = [threading.Thread(target=make, args=(i,)) for i in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(made) == ["made"] + ["refused"] * 5


class TestModes:
    def test_groups(self, tmp_path: Path) -> None:
        with pytest.raises(errors.NodeNotFoundError):
            gzarr.open_group(tmp_path / "x", mode="r+")
        group = gzarr.open_group(tmp_path / "x", mode="a", attributes={"k": 1})
        assert (group.read_only, group.attrs) == (False, {"k": 1})
        group.create_group("y")
        assert list(gzarr.open_group(tmp_path / "x", mode="a")) == ["y"]
        with pytest.raises(errors.ArgumentError, match="already"):
            gzarr.open_group(tmp_path / "x", mode="w-")
        assert list(gzarr.open_group(tmp_path / "x", mode="w")) == []
        with pytest.raises(errors.NodeTypeError):
            gzarr.open_array(tmp_path / "x", mode="r+")

    def test_arrays(self, tmp_path: Path) -> None:
        for mode in ("r", "r+"):
            with pytest.raises(errors.NodeNotFoundError):
                gzarr.open_array(tmp_path, mode=mode)
            with pytest.raises(errors.ArgumentError, match="shape="):
                gzarr.open_array(tmp_path, mode=mode, shape=3)
        with pytest.raises(errors.ArgumentError, match="shape"):
            gzarr.open_array(tmp_path, mode="a")
        array = gzarr.open_array(tmp_path, mode="w-", shape=3, dtype="i2", device="cpu")
        array[1] = 5
        assert gzarr.open_array(tmp_path, mode="a", shape=9, dtype="i2", device="cpu")[...].tolist() == [0, 5, 0]
        with pytest.raises(errors.ArgumentError, match="already"):
            gzarr.open_array(tmp_path, mode="w-", shape=3, dtype="i2")
        with pytest.raises(errors.ArgumentError, match="dtype"):
            gzarr.open_array(tmp_path, mode="w", shape=3)
        assert gzarr.open_array(tmp_path, device="cpu")[1] == 5
        made = gzarr.open_array(tmp_path, mode="w", shape=2, dtype="u1", zarr_format=2, device="cpu")
        assert (made.zarr_format, made[...].tolist()) == (2, [0, 0])
        with pytest.raises(errors.ReadOnlyError):
            gzarr.open_array(tmp_path, device="cpu")[0] = 1
        with pytest.raises(errors.NodeTypeError):
            gzarr.open_group(tmp_path, mode="a")

    def test_open(self, tmp_path: Path) -> None:
        assert isinstance(gzarr.open(tmp_path / "g", mode="a"), gzarr.Group)
        assert isinstance(gzarr.open(tmp_path / "a", mode="a", shape=2, dtype="u1"), gzarr.Array)
        assert isinstance(gzarr.open(tmp_path / "a", mode="a"), gzarr.Array)
        assert not gzarr.open(tmp_path / "a", mode="r+").read_only
        assert gzarr.open(tmp_path / "a", mode="r").read_only
        with pytest.raises(errors.ArgumentError, match="dtype="):
            gzarr.open(tmp_path / "b", mode="w", dtype="u1")
        with pytest.raises(errors.ArgumentError, match="mode"):
            gzarr.open(tmp_path, mode="rw")  # type: ignore[arg-type]
        assert not (tmp_path / "b").exists()

    def test_zarr_python_opens_what_modes_made(self, tmp_path: Path) -> None:
        gzarr.open(tmp_path, mode="w", attributes={"x": [1.5, None]})
        theirs = zarr.open_group(str(tmp_path), mode="r")
        assert theirs.attrs["x"] == [1.5, None]
