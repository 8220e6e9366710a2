"""What other programs have written into OME metadata stays when gzarr adds fields, labels and levels."""

from __future__ import annotations

import copy
import json
from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr import ome
from gzarr.errors import ArgumentError
from gzarr.ome.nodes import NEW_PLATE

VERSIONS = ["0.4", "0.5"]
FRAME = np.ones((16, 16), "u1")


class Failing:
    """Elements that cannot be read."""

    shape = (16, 16)
    dtype = np.dtype("u1")

    def __getitem__(self, box: Any) -> Any:
        raise OSError("the disk is gone")


def root(store: Any, path: str = "") -> dict[str, Any]:
    """Return the object of a group that holds OME metadata, as it is stored."""
    prefix = f"{path}/" if path else ""
    if f"{prefix}.zattrs" in store:
        return json.loads(store[f"{prefix}.zattrs"])  # type: ignore[no-any-return]
    return json.loads(store[f"{prefix}zarr.json"])["attributes"]["ome"]  # type: ignore[no-any-return]


def put(store: Any, path: str, document: dict[str, Any], version: str) -> None:
    group = gzarr.open_group(store, path=path, mode="r+")
    group.attrs.put(document if version == "0.4" else {"ome": document})


def plate_of_others(version: Any) -> dict[str, Any]:
    """Return a plate with a well, B/2, that has members which gzarr does not know, and indexes that are wrong."""
    store: dict[str, Any] = {}
    ome.create_plate(store, rows="AB", columns="123", version=version, acquisitions=[ome.Acquisition(4)])
    ome.create_field(store, "B", 2, FRAME, axes="yx", field=1, acquisition=4)
    document = root(store)
    document["lab"] = {"name": "x"}
    document["plate"]["barcode"] = "P-7"
    document["plate"]["acquisitions"][0]["lamp"] = "LED"
    document["plate"]["rows"][0]["height"] = 9
    document["plate"]["wells"] = [{"path": "B/2", "rowIndex": 1, "columnIndex": 3, "drug": "DMSO"}]
    put(store, "", document, version)
    document = root(store, "B/2")
    document["site"] = 1
    document["well"]["temperature"] = 37
    document["well"]["images"][0]["pos"] = [1.5, 2]
    put(store, "B/2", document, version)
    return store


@pytest.mark.filterwarnings("ignore::gzarr.ome.MetadataWarning")
@pytest.mark.parametrize("version", VERSIONS)
def test_fields_are_added(version: Any) -> None:
    store = plate_of_others(version)
    plate, well = root(store), root(store, "B/2")
    ome.create_field(store, "B", 2, FRAME, axes="yx", field=0, acquisition=4)
    ome.create_field(store, "A", 3, FRAME, axes="yx")
    well["well"]["images"].insert(0, {"path": "0", "acquisition": 4})
    plate["plate"]["wells"].insert(0, {"path": "A/3", "rowIndex": 0, "columnIndex": 2})
    plate["plate"]["field_count"] = 2
    assert root(store) == plate
    assert root(store, "B/2") == well
    assert list(ome.open(store)) == ["A/3", "B/2"]


@pytest.mark.filterwarnings("ignore::gzarr.ome.MetadataWarning")
@pytest.mark.parametrize("version", VERSIONS)
def test_fields_are_written_again(version: Any) -> None:
    """Also the only one of the only well."""
    store = plate_of_others(version)
    plate, well = root(store), root(store, "B/2")
    for _ in range(2):
        ome.create_field(store, "B", 2, FRAME, axes="yx", field=1, acquisition=4, overwrite=True)
        assert root(store) == plate
        assert root(store, "B/2") == well
    ome.create_field(store, "A", 1, FRAME, axes="yx")
    ome.create_field(store, "B", 2, FRAME, axes="yx", field=1, overwrite=True)
    del well["well"]["images"][0]["acquisition"]
    plate["plate"]["wells"].insert(0, {"path": "A/1", "rowIndex": 0, "columnIndex": 0})
    assert root(store) == plate
    assert root(store, "B/2") == well


@pytest.mark.filterwarnings("ignore::gzarr.ome.MetadataWarning")
@pytest.mark.parametrize("version", VERSIONS)
def test_a_plate_without_wells(version: Any) -> None:
    """Without its only field, it still has all that was said of the plate, and of the well."""
    store = plate_of_others(version)
    plate, well = root(store), root(store, "B/2")
    with pytest.raises(OSError, match="the disk is gone"):
        ome.create_field(store, "B", 2, Failing(), axes="yx", field=1, overwrite=True)
    attributes = gzarr.open_group(store).attrs.asdict()
    assert attributes[NEW_PLATE] == plate["plate"]
    assert (attributes if version == "0.4" else attributes["ome"])["lab"] == {"name": "x"}
    assert list(ome.open(store)) == []
    ome.create_field(store, "A", 1, FRAME, axes="yx")
    assert list(ome.open(store)) == ["A/1"]
    ome.create_field(store, "B", 2, FRAME, axes="yx", field=1, acquisition=4, overwrite=True)
    plate["plate"]["wells"].insert(0, {"path": "A/1", "rowIndex": 0, "columnIndex": 0})
    assert root(store) == plate
    assert root(store, "B/2") == well


@pytest.mark.filterwarnings("ignore::gzarr.ome.MetadataWarning")
@pytest.mark.parametrize("version", VERSIONS)
def test_fields_and_wells_that_fail_keep_what_was_said_of_them(version: Any) -> None:
    store = plate_of_others(version)
    ome.create_field(store, "B", 2, FRAME, axes="yx", field=2)
    ome.create_field(store, "A", 1, FRAME, axes="yx")
    attributes = gzarr.open_group(store).attrs.asdict(), gzarr.open_group(store, path="B/2").attrs.asdict()
    for fields in ([1], [1, 2], [2, 1]):
        for field in fields:
            with pytest.raises(OSError, match="the disk is gone"):
                ome.create_field(store, "B", 2, Failing(), axes="yx", field=field, overwrite=True)
        assert list(ome.open(store)) == (["A/1", "B/2"] if len(fields) == 1 else ["A/1"])
        for field in fields:
            known = {"acquisition": 4} if field == 1 else {}
            ome.create_field(store, "B", 2, FRAME, axes="yx", field=field, overwrite=True, **known)
        found = gzarr.open_group(store).attrs.asdict(), gzarr.open_group(store, path="B/2").attrs.asdict()
        assert found == attributes


@pytest.mark.parametrize("version", VERSIONS)
def test_paths_of_others_end_with_slashes(version: Any) -> None:
    store: dict[str, Any] = {}
    ome.create_plate(store, rows="AB", columns="12", version=version)
    for row in "AB":
        ome.create_field(store, row, 1, FRAME, axes="yx")
    plate, well = root(store), root(store, "A/1")
    plate["plate"]["wells"][0]["path"] = "A/1/"
    well["well"]["images"][0]["path"] = "0/"
    put(store, "", plate, version)
    put(store, "A/1", well, version)
    ome.create_field(store, "A", 1, FRAME, axes="yx")
    ome.create_field(store, "A", 2, FRAME, axes="yx")
    ome.create_field(store, "A", 1, FRAME * 5, axes="yx", field=0, overwrite=True)
    plate["plate"]["wells"].insert(1, {"path": "A/2", "rowIndex": 0, "columnIndex": 1})
    plate["plate"]["field_count"] = 2
    well["well"]["images"].append({"path": "1"})
    assert (root(store), root(store, "A/1")) == (plate, well)
    with pytest.warns(ome.MetadataWarning):
        found = ome.open(store)
    assert list(found) == ["A/1/", "A/2", "B/1"]
    assert ("A/1" in found, "A/1/" in found, "B/2" in found, 1 in found) == (True, True, False, False)
    with pytest.warns(ome.MetadataWarning):
        field = found["A/1"].image("0")
    assert field.read().max() == 5


@pytest.mark.parametrize("version", VERSIONS)
def test_a_well_that_is_listed_in_two_spellings(version: Any) -> None:
    store: dict[str, Any] = {}
    ome.create_plate(store, rows="A", columns="1", version=version)
    ome.create_field(store, "A", 1, FRAME, axes="yx")
    document = root(store)
    entry = document["plate"]["wells"][0]
    document["plate"]["wells"] = [{"path": "A/1/"}, entry]
    put(store, "", document, version)
    with pytest.warns(ome.MetadataWarning, match=r"plate\.wells"):
        found = ome.open(store)
    assert (list(found), found.well("A", "1").group.path) == (["A/1/"], "A/1")


@pytest.mark.filterwarnings("ignore::gzarr.ome.MetadataWarning")
@pytest.mark.parametrize("version", VERSIONS)
def test_labels_and_levels_of_others_end_with_slashes(version: Any) -> None:
    store: dict[str, Any] = {}
    movie = {"axes": "tyx", "chunks": (1, 8, 8), "levels": 1}
    ome.create(store, FRAME[None], version=version, **movie)
    for name in "ab":
        ome.create_labels(store, name, FRAME[None], chunks=(1, 8, 8))
    document = root(store)
    document["multiscales"][0]["datasets"][0]["path"] = "0/"
    put(store, "", document, version)
    document = root(store, "labels")
    document["labels"] = ["a/", "b"]
    put(store, "labels", document, version)
    ome.create_labels(store, "a", FRAME[None] * 2, chunks=(1, 8, 8), overwrite=True)
    assert root(store, "labels") == document
    for name in ("a", "a/"):
        ome.open(store, mode="r+").append(FRAME, labels={name: FRAME * 3})
    assert [int(frame.max()) for frame in ome.open(store).labels["a"].read()] == [2, 3, 3]
    image = ome.pyramid(store, levels=2)
    assert [level["path"] for level in root(store)["multiscales"][0]["datasets"]] == ["0/", "1"]
    np.testing.assert_array_equal(image.read(1), np.stack([FRAME[::2, ::2]] * 3))


@pytest.mark.filterwarnings("ignore::gzarr.ome.MetadataWarning")
@pytest.mark.parametrize("version", VERSIONS)
def test_field_count_is_the_most_fields_of_any_well(version: Any) -> None:
    store: dict[str, Any] = {}
    ome.create_plate(store, rows="A", columns="12", version=version)
    ome.create_field(store, "A", 1, FRAME, axes="yx")
    document = root(store, "A/1")
    document["well"]["images"] += [5, {"name": "x"}, {"path": "0"}]
    put(store, "A/1", document, version)
    ome.create_field(store, "A", 1, FRAME, axes="yx")
    assert root(store)["plate"]["field_count"] == 2
    # Of a plate that does not say it, others may have wells of more fields than the one that is written.
    document = root(store)
    del document["plate"]["field_count"]
    put(store, "", document, version)
    ome.create_field(store, "A", 2, FRAME, axes="yx")
    assert "field_count" not in root(store)["plate"]


@pytest.mark.filterwarnings("ignore::gzarr.ome.MetadataWarning")
@pytest.mark.parametrize(
    ("where", "row", "field"),
    [("plate", "A", None), ("plate", "B", 3), ("well", "B", None), ("well", "B", 3)],
    ids=["before a well", "the only well", "before a field", "the only field"],
)
def test_what_json_lacks_is_refused_before_anything_is_written(where: str, row: str, field: int | None) -> None:
    """It may stay where it is, so nothing can be listed before it, or written again where it belongs."""
    store: dict[str, Any] = {}
    ome.create_plate(store, rows="AB", columns="1")
    ome.create_field(store, "B", 1, FRAME, axes="yx", field=3)
    key, member = ("zarr.json", "wells") if where == "plate" else ("B/1/zarr.json", "images")
    document = json.loads(store[key])
    document["attributes"]["ome"][where][member][0]["z"] = float("nan")
    store[key] = json.dumps(document, indent=2).encode()
    before = dict(store)
    node = "/" if where == "plate" else "/B/1"
    named = f"^'{node}' in .*: attributes.*" if field is None else ""
    with pytest.raises(ArgumentError, match=f"{named}JSON has no nan"):
        ome.create_field(store, row, 1, FRAME, axes="yx", field=field, overwrite=field is not None)
    assert store == before


@pytest.mark.filterwarnings("ignore::gzarr.ome.MetadataWarning")
@pytest.mark.parametrize("version", VERSIONS)
def test_entries_that_cannot_be_read(version: Any) -> None:
    store = plate_of_others(version)
    plate, well = root(store), root(store, "B/2")
    plate["plate"]["wells"] += [{"path": "Z/9", "rowIndex": 8}, 7]
    well["well"]["images"] += [{"name": "x"}]
    put(store, "", plate, version)
    put(store, "B/2", well, version)
    ome.create_field(store, "B", 2, FRAME, axes="yx", field=2)
    ome.create_field(store, "A", 1, FRAME, axes="yx")
    # The lists are in no order, so new entries come last.
    assert root(store, "B/2")["well"]["images"] == [*well["well"]["images"], {"path": "2"}]
    assert root(store)["plate"]["wells"] == [
        *plate["plate"]["wells"],
        {"path": "A/1", "rowIndex": 0, "columnIndex": 0},
    ]


@pytest.mark.filterwarnings("ignore::gzarr.ome.MetadataWarning")
@pytest.mark.parametrize("version", VERSIONS)
def test_labels(version: Any) -> None:
    store: dict[str, Any] = {}
    ome.create(store, FRAME, axes="yx", levels=1, version=version)
    ome.create_labels(store, "a", FRAME)
    document = root(store, "labels")
    document["labels"].append({"path": "other"})
    document["curator"] = "y"
    put(store, "labels", document, version)
    ome.create_labels(store, "b", FRAME)
    ome.create_labels(store, "a", FRAME * 2, overwrite=True)
    assert root(store, "labels") == {**document, "labels": ["a", {"path": "other"}, "b"]}
    assert list(ome.open(store).labels) == ["a", "b"]


@pytest.mark.parametrize("version", VERSIONS)
def test_levels(version: Any) -> None:
    store: dict[str, Any] = {}
    ome.create(store, FRAME, axes="yx", levels=1, version=version)
    document = root(store)
    document["multiscales"][0]["datasets"][0]["checksum"] = "ab"
    put(store, "", document, version)
    before = copy.deepcopy(document["multiscales"][0]["datasets"][0])
    ome.pyramid(store, levels=2)
    assert root(store)["multiscales"][0]["datasets"][0] == before


@pytest.mark.parametrize("version", ["0.1", "0.2", "0.3"])
def test_versions_that_are_only_read(version: str) -> None:
    store: dict[str, Any] = {}
    group = gzarr.create_group(store, zarr_format=2)
    axes = {"axes": ["t", "c", "z", "y", "x"]} if version == "0.3" else {}
    group.attrs["multiscales"] = [{"version": version, **axes, "datasets": [{"path": "0"}]}]
    data = np.arange(32, dtype="u1").reshape(1, 1, 2, 4, 4)
    gzarr.create_array(store, path="0", data=data, zarr_format=2)
    before = dict(store)
    image = ome.open(store, mode="r+")
    said = rf"'/' in .* is of version {version} of OME-Zarr, which gzarr only reads; .* gzarr\.ome\.create\("
    calls: list[Any] = [
        lambda: ome.pyramid(store, overwrite=True, levels=2),
        lambda: image.update_metadata(name="a"),
        lambda: image.append(data, axis="t"),
        lambda: ome.create_labels(store, "a", data),
    ]
    for call in calls:
        with pytest.raises(ArgumentError, match=said):
            call()
    assert store == before
    # What the message says can be done.
    np.testing.assert_array_equal(ome.create({}, image, axes=image.axes, scale=image.scale).read(), data)


def test_plates_of_versions_that_are_only_read() -> None:
    store: dict[str, Any] = {}
    group = gzarr.create_group(store, zarr_format=2)
    names = {"rows": [{"name": "A"}], "columns": [{"name": "1"}]}
    group.attrs["plate"] = {"version": "0.2", "wells": [{"path": "A/1"}], **names}
    with pytest.raises(ArgumentError, match=r"'/' in .* is of version 0\.2 .* gzarr only reads; .*create_plate"):
        ome.create_field(store, "A", 1, FRAME, axes="yx")
