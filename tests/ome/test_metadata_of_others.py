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
    """Without its only field, it still has all that was said of the plate."""
    store = plate_of_others(version)
    plate = root(store)
    with pytest.raises(OSError, match="the disk is gone"):
        ome.create_field(store, "B", 2, Failing(), axes="yx", field=1, overwrite=True)
    attributes = gzarr.open_group(store).attrs.asdict()
    waiting = {name: value for name, value in plate["plate"].items() if name != "wells"}
    assert attributes[NEW_PLATE] == waiting
    assert (attributes if version == "0.4" else attributes["ome"])["lab"] == {"name": "x"}
    ome.create_field(store, "A", 1, FRAME, axes="yx")
    plate["plate"]["wells"] = [{"path": "A/1", "rowIndex": 0, "columnIndex": 0}]
    assert root(store) == plate


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
