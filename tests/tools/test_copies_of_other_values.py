"""Values that are part of no node, such as Parquet files in groups: copied as they are, wherever that is possible."""

from __future__ import annotations

import json
import re
import tracemalloc
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.copies import planned_copy

import gzarr
from gzarr.cli.main import main
from gzarr.errors import ArgumentError, StoreError, ValueReplacedError, ValueSizeError
from gzarr.hierarchy.create import create_group
from gzarr.stores.base import Answer, Request, RequestLimits
from gzarr.stores.local import LocalStore
from gzarr.stores.memory import MemoryStore
from gzarr.stores.zip_store import ZipStore
from gzarr.tools.copy import copy

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

PARQUET = bytes(range(256)) * 40
#: As spatialdata 0.7 and bioformats2raw 0.11 store them, and some that look like parts of nodes.
VALUES = {
    "points/transcripts/points.parquet/part.0.parquet": PARQUET,
    "points/transcripts/points.parquet/part.1.parquet": PARQUET[::-1],
    "shapes/cells/shapes.parquet": PARQUET[1:],
    "OME/METADATA.ome.xml": b"<OME/>",
    "README.md": b"# A file",
    "attributes.json": b"{}",
    "__extension/notes": b"of a reserved name",
    "removed/c/0": b"a chunk without an array",
}
#: What belongs to nodes or to unfinished writes, or is hidden.
PARTS = {
    "points/transcripts/.zattrs": b'{"beside": 1}',
    "image/readme.txt": b"in the folder of an array",
    "image/c/9/9": b"outside the array",
    "points/.gzarr-locks/lock": b"",
    "shapes/cells/.gzarr-temporary-1-2-3-4": b"unfinished",
    "removed/.gzarr-temporary-1-2-3-4": b"unfinished",
    ".DS_Store": b"icons",
    "points/transcripts/points.parquet/.DS_Store": b"icons",
    "views/Thumbs.db": b"of a folder with nothing else",
    ".git/objects/1f/07": b"of a repository",
    "views/.git/HEAD": b"of a repository",
}


def hierarchy(zarr_format: Any = 3, values: dict[str, bytes] = VALUES) -> dict[str, bytes]:
    """Return a store with groups, an array, and other values in groups."""
    store: dict[str, bytes] = {}
    root = create_group(store, zarr_format=zarr_format)
    root.create_array("image", data=np.arange(12, dtype="u2").reshape(3, 4), chunks=(2, 2))
    for path in ("points/transcripts", "shapes/cells", "OME"):
        root.create_group(path, attributes={"path": path})
    store.update(values)
    return store


def others(store: Any) -> dict[str, bytes]:
    """Return the values of a store whose names are no documents', without the array."""
    names = {"zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata"}
    keys = (key for key in store.list() if key.rpartition("/")[2] not in names and not key.startswith("image/"))
    return {key: store.get(key) for key in keys}


# An .ozx file is of version 3.
@pytest.mark.parametrize(
    ("after", "kind"),
    [*((after, kind) for after in (2, 3) for kind in ("memory", "directory", "zip")), (3, "ozx")],
)
@pytest.mark.parametrize("before", [2, 3])
def test_they_stay_in_all_kinds_of_copies(before: Any, after: Any, kind: str, tmp_path: Path) -> None:
    source = {**hierarchy(before), **PARTS}
    target = {
        "memory": lambda: MemoryStore({}),
        "directory": lambda: LocalStore(tmp_path / "copy"),
        "zip": lambda: ZipStore(tmp_path / "copy.zip", mode="w"),
        "ozx": lambda: ZipStore(tmp_path / "copy.ozx", mode="w"),
    }[kind]()
    # The smallest budget: the larger ones pass through a file.
    copied = copy(source, target, zarr_format=after, read_back=True, budget_bytes=1)
    assert others(target) == VALUES
    assert isinstance(copied, gzarr.Group)
    assert copied["image"][...].tolist() == np.arange(12).reshape(3, 4).tolist()
    assert not [key for key in target.list() if "readme" in key or "9" in key]
    planned = planned_copy(source, target, zarr_format=after, resume=True)
    planned.run()
    assert (planned.written, planned.kept) == (0, 4 + len(VALUES))


def test_part_of_a_hierarchy() -> None:
    source = hierarchy()
    target: dict[str, bytes] = {}
    copy(source, target, path="points", dest_path="new/place")
    part = "points.parquet/part.0.parquet"
    assert target[f"new/place/transcripts/{part}"] == source[f"points/transcripts/{part}"]
    assert not [key for key in target if "shapes" in key or "OME" in key]


def test_stores_that_cannot_list_have_nodes_only() -> None:
    class Unlisted:
        """The least of a store."""

        def __init__(self, values: dict[str, bytes]) -> None:
            self.get = values.get
            self.get_partial_values = MemoryStore(values).get_partial_values

    copy(Unlisted(hierarchy()), target := {}, path="image")
    source = hierarchy(2)
    gzarr.consolidate_metadata(source)
    copy(Unlisted(source), target := {})
    assert others(MemoryStore(target)) == {}
    assert "shapes/cells/.zgroup" in target


def test_groups_are_listed_once_and_arrays_not_at_all() -> None:
    class Watched(MemoryStore):
        """A store that notes what is listed."""

        def __init__(self, values: dict[str, bytes]) -> None:
            super().__init__(values)
            self.listed: list[str] = []

        def list_dir(self, prefix: str) -> Any:
            self.listed.append(prefix)
            return super().list_dir(prefix)

        def list_prefix(self, prefix: str) -> Any:
            self.listed.append(f"{prefix}*")
            return super().list_prefix(prefix)

    store = Watched(hierarchy())
    planned_copy(store, {})
    groups = ["", "OME/", "points/", "points/transcripts/", "shapes/", "shapes/cells/"]
    # Once for the nodes, once for other values.
    assert sorted(name for name in store.listed if not name.endswith("*")) == sorted(groups * 2)
    assert not [name for name in store.listed if name.startswith("image")]


def test_memory_is_bounded(tmp_path: Path) -> None:
    create_group(tmp_path / "a")
    nbytes, budget = 48 << 20, 1 << 20
    with (tmp_path / "a" / "large.parquet").open("wb") as file:
        file.truncate(nbytes)
        file.write(b"begin")
        file.seek(nbytes - 3)
        file.write(b"end")
    for target in (LocalStore(tmp_path / "b"), ZipStore(tmp_path / "c.zip", mode="w")):
        tracemalloc.start()
        try:
            copy(tmp_path / "a", target, read_back=True, budget_bytes=budget)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 4 * budget
        value = target.get("large.parquet")
        assert value is not None
        assert (len(value), value[:6], value[-4:], value.count(0)) == (nbytes, b"begin\0", b"\0end", nbytes - 8)


@pytest.mark.parametrize("nbytes", [0, 3, 4096, 4097, 8192, 12288, 12289])
def test_values_of_any_length(nbytes: int) -> None:
    create_group(source := {})
    source["file"] = np.random.default_rng(nbytes).bytes(nbytes)
    copy(source, target := {}, read_back=True, budget_bytes=1)
    assert target["file"] == source["file"]
    for other in (source["file"] + b"1", source["file"][:-1], source["file"][:-1] + b"?"):
        target["file"] = other
        planned = planned_copy(source, target, resume=True, budget_bytes=1)
        planned.run()
        assert target["file"] == source["file"]
        assert planned.written == (other != source["file"])


class Server(MemoryStore):
    """A store with answers like those of a web server, whose large value changes after the first request for it."""

    version: Any = None

    def __init__(self, values: dict[str, bytes], change: Callable[[dict[str, bytes]], object]) -> None:
        super().__init__(values)
        self.change: Any = change

    def request_limits(self) -> RequestLimits:
        return RequestLimits(calls=2)

    def get_many(self, requests: Sequence[Request]) -> list[Answer]:
        return [self.answer(request) for request in requests]

    def answer(self, request: Request) -> Answer:
        version = hash(self.mapping.get(request.key))
        if request.version not in (None, version):
            return Answer(None, error=ValueReplacedError("it was replaced", key=request.key))
        try:
            (found,) = self.get_partial_values([(request.key, request.byte_range)])
        except ValueSizeError as error:
            return Answer(None, error=error)
        if request.key == "large" and self.change is not None:
            self.change(self.mapping)
            self.change = None
        return Answer(found, version)


@pytest.mark.parametrize("end", [b"", b"1"])
@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda values: None, None),
        (lambda values: values.update(large=bytes(len(values["large"]))), "it was replaced"),
        (lambda values: values.pop("large"), "it was replaced|was erased while it was read"),
    ],
    ids=["as it was", "replaced", "erased"],
)
def test_values_that_change_while_they_are_copied(change: Any, error: str | None, end: bytes) -> None:
    create_group(source := {})
    source["large"] = large = bytes(range(256)) * 64 + end
    target: dict[str, bytes] = {}
    if error is None:
        copy(Server(source, change), target, budget_bytes=1, read_back=True)
        assert target["large"] == large
        return
    with pytest.raises(ValueReplacedError, match=error):
        copy(Server(source, change), target, budget_bytes=1)
    assert "large" not in target


def test_a_value_that_is_erased_before_it_is_copied() -> None:
    class Erasing(MemoryStore):
        """A store that loses a value after its size is known."""

        def get_partial_values(self, key_ranges: Any) -> Any:
            if key_ranges[0][0] == "large":
                self.mapping.pop("large", None)
            return super().get_partial_values(key_ranges)

    create_group(source := {})
    source["large"] = bytes(10_000)
    copy(Erasing(source), target := {}, budget_bytes=1)
    assert list(target) == ["zarr.json"]


def test_nothing_is_replaced_unasked() -> None:
    target = {"OME/METADATA.ome.xml": b"mine", "other": b"1", ".DS_Store": b"mine"}
    before = dict(target)
    source = {**hierarchy(), **PARTS}
    with pytest.raises(ArgumentError, match=r"there is a value at 'OME/METADATA.ome.xml' in .*overwrite=True"):
        copy(source, target)
    assert target == before
    del target["OME/METADATA.ome.xml"]
    copy(source, target)
    assert target[".DS_Store"] == b"mine"
    target = before
    copy(hierarchy(), target, overwrite=True)
    assert target["OME/METADATA.ome.xml"] == b"<OME/>"
    assert target["other"] == b"1"
    target["left"] = b"of an older copy"
    target["README.md"] = b"changed"
    copy(hierarchy(), target, resume=True)
    assert (target["left"], target["README.md"]) == (b"of an older copy", VALUES["README.md"])
    copy(hierarchy(), target, overwrite=True)
    assert others(MemoryStore(target)) == VALUES


def test_read_back_compares_them() -> None:
    class Forgetful(MemoryStore):
        """A store that changes a file."""

        def set_parts(self, key: str, parts: Any) -> None:
            super().set_parts(key, [b"<oem/>"] if key.endswith(".xml") else parts)

    copy(hierarchy(), Forgetful({}))
    with pytest.raises(StoreError, match=r"not the data written: the bytes of 'OME/METADATA.ome.xml' in"):
        copy(hierarchy(), Forgetful({}), read_back=True)


def test_what_a_copy_cannot_have_is_refused_or_left_out(tmp_path: Path) -> None:
    for before, after, key, reason, dest in (
        (2, 3, "folder/zarr.json", "it would be a document of version 3", {}),
        (3, 2, "folder/.zarray", "it would be a document of version 2", {}),
        (3, 3, "raw/photos.ZIP", r"an .ozx file must have no archives in it", tmp_path / "a.ozx"),
        (3, 3, "n\udcff", r"its name has characters that UTF-8 cannot encode", tmp_path / "a.zip"),
        (3, "3-draft-2022", "folder/notes", "a draft of version 3 has documents and chunks only", {}),
    ):
        source = hierarchy(before, {key: b"{}"})
        if after == "3-draft-2022":
            create_group(source := {key: b"{}"})
        with pytest.raises(ArgumentError, match=f"without loss: {re.escape(repr(key))} is left out: .*{reason}"):
            copy(source, dest, zarr_format=after)
        planned = planned_copy(source, dest, zarr_format=after, lossy=True)
        planned.run()
        assert [(node, len(texts)) for node, texts in planned.differences.losses.items()] == [("/", 1)]
        assert planned.others is None
        assert key not in gzarr.open_group(dest).store.list()
    # In the same format, nothing can become a node that was none.
    copy(hierarchy(2, {"folder/zarr.json": b"{}"}), target := {})
    assert target["folder/zarr.json"] == b"{}"


@pytest.mark.parametrize("after", [2, 3])
def test_attributes_of_implicit_groups_are_no_silent_loss(after: Any) -> None:
    source = hierarchy(2, {})
    source["points/.zattrs"] = b'{"of": "nobody"}'
    del source["points/.zgroup"]
    assert not gzarr.open_group(source)["points"].attrs
    with pytest.raises(
        ArgumentError, match=r"without loss: 'points/\.zattrs' is left out: it has attributes of a group"
    ):
        copy(source, {}, zarr_format=after)
    copied = copy(source, {}, zarr_format=after, lossy=True)
    assert isinstance(copied, gzarr.Group)
    assert not copied["points"].attrs
    assert planned_copy(source, {}, zarr_format=after, lossy=True).differences.losses["/points"]


def test_empty_markers_of_folders_are_left_out(tmp_path: Path) -> None:
    markers = {"points": b"", "points/transcripts/points.parquet": b""}
    source = {**hierarchy(), **markers}
    copy(source, tmp_path / "copy", read_back=True)
    assert others(LocalStore(tmp_path / "copy")) == VALUES


def test_commands_count_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = LocalStore(tmp_path / "a")
    for key, value in hierarchy().items():
        source.set(key, value)
    line = "points/transcripts/points.parquet/  2 other values, copied as they are"
    for command, shown in (("copy", "1 array, 6 groups and 8 other values: "), ("optimize", line)):
        paths = [str(tmp_path / "a"), str(tmp_path / command)]
        assert main([command, *paths, "--dry-run"]) == 0
        dry = capsys.readouterr().out
        assert line in dry
        assert shown in dry
        assert main([command, *paths, "--read-back"]) == 0
        assert re.search(r"6 groups and 8 other values: \d+ parts written", capsys.readouterr().out)
        assert others(LocalStore(tmp_path / command)) == VALUES
    assert main(["copy", str(tmp_path / "a"), str(tmp_path / "json"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["other_values"]
    assert found["points/transcripts/points.parquet/"] == 2
    assert sum(found.values()) == len(VALUES)
