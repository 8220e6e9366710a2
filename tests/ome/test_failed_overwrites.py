"""Labels and fields that are written over others: listed before and after, and not in between."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr.errors import ArgumentError, NodeTypeError, StoreError
from gzarr.ome.checking import broken_links
from gzarr.ome.metadata.parse import parse
from gzarr.ome.nodes import NEW_PLATE

VERSIONS = ["0.4", "0.5"]
FRAME = np.ones((32, 32), "u2")
MASK = np.ones((32, 32), "u4")


class Failing:
    """Elements that cannot be read."""

    shape = (32, 32)
    dtype = np.dtype("u4")

    def __getitem__(self, box: Any) -> Any:
        raise OSError("the disk is gone")


class Undeletable(gzarr.MemoryStore):
    """A store that erases no node below a path."""

    kept = ""

    def erase(self, key: str) -> None:
        if self.kept and key.startswith(self.kept):
            raise StoreError(f"{key} cannot be erased")
        super().erase(key)


class Full(dict[str, Any]):
    """A store without room for some document."""

    bad: str | None = None

    def __setitem__(self, key: str, value: Any) -> None:
        if key == self.bad:
            raise OSError("disk full")
        super().__setitem__(key, value)


def break_rules(store: Any, *paths: str) -> list[str]:
    found = []
    for path in paths:
        group = gzarr.open_group(store, path=path)
        metadata = parse(group.attrs, zarr_format=group.zarr_format)
        found += [str(problem) for problem in metadata.problems if problem.is_rule]
        found += [str(rule) for rule in broken_links(group, metadata)]
    return found


def movie(store: Any, version: str, *names: str) -> Any:
    gzarr.ome.create(store, FRAME[None], axes="tyx", chunks=(1, 16, 16), levels=2, version=version)
    for name in names:
        gzarr.ome.create_labels(store, name, MASK[None], chunks=(1, 16, 16))
    return gzarr.ome.open(store, mode="r+")


@pytest.mark.parametrize("version", VERSIONS)
def test_labels_that_fail_do_not_stop_the_acquisition(version: str) -> None:
    store: dict[str, Any] = {}
    movie(store, version, "a", "b", "c")
    with pytest.raises(OSError, match="the disk is gone"):
        gzarr.ome.create_labels(store, "b", Failing(), axes="yx", overwrite=True)
    image = gzarr.ome.open(store, mode="r+")
    assert list(image.labels) == ["a", "c"]
    assert image.append(FRAME) == (2, 32, 32)
    assert break_rules(store, "", "labels", "labels/a") == []
    with pytest.raises(NodeTypeError):
        gzarr.ome.open(store, path="labels/b")
    gzarr.ome.create_labels(store, "b", np.stack([MASK] * 2), overwrite=True)
    assert list(gzarr.ome.open(store).labels) == ["a", "c", "b"]


def test_labels_that_are_written_again_keep_their_place() -> None:
    store: dict[str, Any] = {}
    movie(store, "0.5", "a", "b", "c")
    gzarr.ome.create_labels(store, "b", MASK[None] * 2, overwrite=True)
    labels = gzarr.ome.open(store).labels
    assert list(labels) == ["a", "b", "c"]
    assert (labels["b"].read() == 2).all()


def test_arguments_that_are_refused_leave_labels_listed() -> None:
    store: dict[str, Any] = {}
    movie(store, "0.5", "a")
    before = dict(store)
    for options in ({"method": "best"}, {"chunks": 0}, {"shards": 5}):
        with pytest.raises(ArgumentError):
            gzarr.ome.create_labels(store, "a", MASK[None], overwrite=True, **options)
        assert store == before


@pytest.mark.parametrize("version", VERSIONS)
def test_what_cannot_be_erased_stays_listed(version: str) -> None:
    store = Undeletable()
    movie(store, version, "a", "b")
    store.kept = "labels/a"
    with pytest.raises(StoreError, match="cannot be erased"):
        gzarr.ome.create_labels(store, "a", MASK[None], overwrite=True)
    assert list(gzarr.ome.open(store).labels) == ["a", "b"]
    plate = Undeletable()
    gzarr.ome.create_plate(plate, rows="A", columns="1", version=version)
    gzarr.ome.create_field(plate, "A", 1, FRAME, axes="yx", acquisition=3)
    plate.kept = "A/1/0"
    with pytest.raises(StoreError, match="cannot be erased"):
        gzarr.ome.create_field(plate, "A", 1, FRAME, axes="yx", field=0, overwrite=True)
    (field,) = gzarr.ome.open(plate)["A/1"].fields
    assert (field.path, field.acquisition) == ("0", 3)


@pytest.mark.parametrize("version", VERSIONS)
def test_fields_that_fail_are_not_listed(version: str) -> None:
    store: dict[str, Any] = {}
    gzarr.ome.create_plate(store, rows="A", columns="123", version=version, name="P")
    for column, fields in ((1, 1), (2, 3), (3, 1)):
        for _ in range(fields):
            gzarr.ome.create_field(store, "A", column, FRAME * column, axes="yx")
    with pytest.raises(OSError, match="the disk is gone"):
        gzarr.ome.create_field(store, "A", 2, Failing(), axes="yx", field=1, overwrite=True)
    plate = gzarr.ome.open(store)
    assert list(plate) == ["A/1", "A/2", "A/3"]
    assert [field.path for field in plate["A/2"].fields] == ["0", "2"]
    # The only field of a well: the plate goes without that well.
    with pytest.raises(OSError, match="the disk is gone"):
        gzarr.ome.create_field(store, "A", 1, Failing(), axes="yx", field=0, overwrite=True)
    plate = gzarr.ome.open(store)
    assert list(plate) == ["A/2", "A/3"]
    assert plate.thumbnail()
    assert break_rules(store, "", "A/2", "A/3") == []
    gzarr.ome.create_field(store, "A", 1, FRAME, axes="yx", field=0, overwrite=True)
    plate = gzarr.ome.open(store)
    assert sorted(plate) == ["A/1", "A/2", "A/3"]
    assert [len(plate[path]) for path in ("A/1", "A/2", "A/3")] == [1, 2, 1]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_only_field_of_a_plate(version: str) -> None:
    store: dict[str, Any] = {}
    gzarr.ome.create_plate(store, rows="AB", columns="12", version=version, name="P")
    gzarr.ome.create_field(store, "A", 1, FRAME, axes="yx")
    with pytest.raises(OSError, match="the disk is gone"):
        gzarr.ome.create_field(store, "A", 1, Failing(), axes="yx", field=0, overwrite=True)
    assert set(gzarr.open_group(store).attrs) == {NEW_PLATE}
    plate = gzarr.ome.open(store)
    assert (list(plate), plate.name, plate.rows) == ([], "P", ("A", "B"))
    gzarr.ome.create_field(store, "A", 1, FRAME, axes="yx", field=0, overwrite=True)
    assert break_rules(store, "", "A/1") == []
    assert NEW_PLATE not in gzarr.open_group(store).attrs
    assert list(gzarr.ome.open(store)) == ["A/1"]


def test_fields_that_are_written_again_keep_their_place() -> None:
    store: dict[str, Any] = {}
    gzarr.ome.create_plate(store, rows="A", columns="12")
    for column in (1, 2):
        for _ in range(3 - column):
            gzarr.ome.create_field(store, "A", column, FRAME, axes="yx")
    for column in (1, 2):
        gzarr.ome.create_field(store, "A", column, FRAME * 5, axes="yx", field=0, overwrite=True)
    plate = gzarr.ome.open(store)
    assert list(plate) == ["A/1", "A/2"]
    assert [field.path for field in plate["A/1"].fields] == ["0", "1"]
    assert (plate["A/1"][0].read(0) == 5).all()


def test_nodes_that_are_listed_and_not_complete() -> None:
    """What a killed process of an earlier version has left."""
    store: dict[str, Any] = {}
    movie(store, "0.5", "a")
    gzarr.create_group(store, path="labels/a", overwrite=True)
    image = gzarr.ome.open(store, mode="r+")
    for use in (lambda: image.labels["a"], lambda: image.append(FRAME)):
        with pytest.raises(NodeTypeError, match=r"'/labels/a' in .* is not an OME-Zarr image: .* overwrite=True"):
            use()
    gzarr.ome.create_labels(store, "a", MASK[None], overwrite=True)
    assert image.append(FRAME) == (2, 32, 32)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_plate_that_cannot_be_written_keeps_its_fields(version: str) -> None:
    document = ".zattrs" if version == "0.4" else "zarr.json"
    store = Full()
    gzarr.ome.create_plate(store, rows="AB", columns="1", version=version)
    for row in "AB":
        gzarr.ome.create_field(store, row, 1, FRAME, axes="yx", acquisition=3)
    before = dict(store)
    # The plate's list, and that of the well.
    for bad in (document, f"A/1/{document}"):
        store.bad = bad
        with pytest.raises(StoreError, match="disk full"):
            gzarr.ome.create_field(store, "A", 1, FRAME * 2, axes="yx", field=0, overwrite=True)
        assert store == before
    store.bad = None
    gzarr.ome.create_field(store, "A", 1, FRAME * 2, axes="yx", acquisition=3, field=0, overwrite=True)
    plate = gzarr.ome.open(store)
    assert list(plate) == ["A/1", "B/1"]
    assert (plate["A/1"][0].read() == 2).all()


def test_the_cause_is_told_if_fields_and_labels_cannot_be_listed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> bool:
        raise StoreError("the connection is lost")

    plate, image = Undeletable(), Undeletable()
    gzarr.ome.create_plate(plate, rows="A", columns="1")
    gzarr.ome.create_field(plate, "A", 1, FRAME, axes="yx")
    movie(image, "0.5", "a")
    plate.kept, image.kept = "A/1/0", "labels/a"
    monkeypatch.setattr("gzarr.ome.writing.plates.has_image", broken)
    monkeypatch.setattr("gzarr.ome.writing.creating.has_image", broken)
    with pytest.raises(StoreError, match="cannot be erased"):
        gzarr.ome.create_field(plate, "A", 1, FRAME, axes="yx", field=0, overwrite=True)
    with pytest.raises(StoreError, match="cannot be erased"):
        gzarr.ome.create_labels(image, "a", MASK[None], overwrite=True)


@pytest.mark.parametrize("version", VERSIONS)
def test_fields_and_wells_that_succeed_later_have_their_places(version: str) -> None:
    store: dict[str, Any] = {}
    gzarr.ome.create_plate(store, rows="AB", columns="12", version=version)
    for row, column, count in (("A", 1, 1), ("A", 2, 12), ("B", 1, 1)):
        for _ in range(count):
            gzarr.ome.create_field(store, row, column, FRAME, axes="yx")
    for column, field in ((1, 0), (2, 0), (2, 2), (2, 11)):
        with pytest.raises(OSError, match="the disk is gone"):
            gzarr.ome.create_field(store, "A", column, Failing(), axes="yx", field=field, overwrite=True)
        gzarr.ome.create_field(store, "A", column, FRAME, axes="yx", field=field, overwrite=True)
        plate = gzarr.ome.open(store)
        assert list(plate) == ["A/1", "A/2", "B/1"]
        assert [one.path for one in plate["A/2"].fields] == [str(number) for number in range(12)]


def test_fields_and_wells_in_an_order_of_their_own_keep_it() -> None:
    store: dict[str, Any] = {}
    gzarr.ome.create_plate(store, rows="AB", columns="12")
    fields: dict[str, list[str]] = {"A/1": ["a", "0", "b"], "B/2": ["0"], "B/1": ["0"], "A/2": ["0"]}
    # The last one comes after wells that are not by row and column.
    gzarr.ome.create_field(store, "B", "2", FRAME, axes="yx", field="0")
    gzarr.ome.create_field(store, "B", "1", FRAME, axes="yx", field="0")
    plate = gzarr.open_group(store, mode="r+")
    plate.attrs.change(lambda found: {"ome": _reversed_wells(found["ome"])})
    for well in ("A/1", "A/2"):
        for name in fields[well]:
            gzarr.ome.create_field(store, *well.split("/"), FRAME, axes="yx", field=name)
    found = gzarr.ome.open(store)
    assert list(found) == ["B/2", "B/1", "A/1", "A/2"]
    assert [one.path for one in found["A/1"].fields] == ["a", "0", "b"]


def _reversed_wells(ome: dict[str, Any]) -> dict[str, Any]:
    return {**ome, "plate": {**ome["plate"], "wells": ome["plate"]["wells"][::-1]}}
