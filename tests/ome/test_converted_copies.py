"""Copies of OME-Zarr to the other Zarr format have the metadata that gzarr.ome writes there."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import ome_zarr_models.v04 as v04
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from test_ome_interop import files
from test_ome_metadata import DOCUMENTS, damaged

import gzarr
from gzarr.errors import GzarrError
from gzarr.ome.metadata.parse import parse

if TYPE_CHECKING:
    from pathlib import Path

    from support.ngff_suites import Case

DATA = np.arange(2 * 8 * 30 * 40, dtype="u2").reshape(2, 8, 30, 40)
VERSIONS = {"0.4": 2, "0.5": 3}


def write(version: str) -> dict[str, Any]:
    """Return a store with an image with labels, a plate, a collection, and what only looks like OME metadata."""
    store: dict[str, Any] = {}
    root = gzarr.create_group(store, zarr_format=VERSIONS[version])
    gzarr.ome.create(
        store,
        DATA,
        path="cells",
        axes="czyx",
        scale=(1, 2, 0.5, 0.5),
        units="micrometer",
        channels=["DAPI", "GFP"],
        chunks=(1, 8, 16, 16),
        levels=2,
        version=version,
    )
    gzarr.ome.create_labels(store, "nuclei", DATA % 5, path="cells", chunks=(1, 8, 16, 16))
    gzarr.open_group(store, path="cells", mode="r+").attrs["note"] = {"version": "0.4"}
    gzarr.ome.create_plate(store, path="screen", rows="AB", columns="12", version=version)
    for row, column in ("A1", "B2"):
        gzarr.ome.create_field(store, row, column, DATA[0], path="screen", axes="zyx", levels=1)
    parts = {"bioformats2raw.layout": 3}
    member = version == "0.5"
    root.create_group("raw", attributes={"ome": {"version": version, **parts}} if member else parts)
    series = {"series": ["0"]}
    root.create_group("raw/OME", attributes={"ome": {"version": version, **series}} if member else series)
    gzarr.ome.create(store, DATA[0], path="raw/0", axes="zyx", levels=1, version=version)
    root.create_group("others", attributes={"labels": ["a"], "series": [1], "plate": 3, "well": {}, "omero": {}})
    root.create_group("others/labels", attributes={"labels": ["a"]})
    return store


@pytest.mark.parametrize(("version", "other"), [("0.4", "0.5"), ("0.5", "0.4")])
def test_a_copy_is_as_if_it_had_been_written_there(version: str, other: str) -> None:
    source, copied = write(version), {}
    gzarr.copy(source, copied, zarr_format=VERSIONS[other])
    expected = gzarr.open(write(other))
    found = gzarr.open(copied)
    nodes, wanted = dict(found.members(max_depth=None)), dict(expected.members(max_depth=None))
    assert nodes.keys() == wanted.keys()
    for path, node in nodes.items():
        if isinstance(node, gzarr.Array):
            assert node.metadata.chunk_key_encoding == wanted[path].metadata.chunk_key_encoding, path
            np.testing.assert_array_equal(node[...], wanted[path][...])
            if other == "0.5":
                assert node.dimension_names == wanted[path].dimension_names, path
        else:
            assert dict(node.attrs) == dict(wanted[path].attrs), path
    assert len(nodes) == 22


def test_other_axes_of_other_libraries(tmp_path: Path) -> None:
    """What ome-zarr-py, ngff-zarr and iohub wrote in 0.4 keeps all rules of 0.5."""
    stores = sorted({name.split("/")[0] for name in files() if name.endswith("/.zgroup")})
    assert len(stores) >= 3
    for name in stores:
        values = {key.removeprefix(f"{name}/"): value for key, value in files().items() if key.startswith(f"{name}/")}
        gzarr.copy(values, tmp_path / name, zarr_format=3)
        copied = gzarr.open(tmp_path / name)
        groups = [copied, *(node for _, node in copied.members(max_depth=None) if isinstance(node, gzarr.Group))]
        known = [group for group in groups if "ome" in group.attrs]
        assert known
        for group in known:
            assert not group.attrs.keys() & {"multiscales", "plate", "well", "image-label"}
            metadata = parse(group.attrs, zarr_format=3)
            assert metadata.version == "0.5"
            assert [str(problem) for problem in metadata.problems if problem.is_rule] == []
            for image in metadata.multiscales:
                for level in image.datasets:
                    assert group[level.path].dimension_names == tuple(axis.name for axis in image.axes)


def test_what_other_libraries_wrote_in_0_5(tmp_path: Path) -> None:
    """Where they repeat the version (iohub, in each part) or leave it out (ome-zarr-py, in lists of labels), too."""
    checked = 0
    for name in ("iohub-0.5", "ngff-zarr-0.5", "ome-zarr-py-0.5", "ome-zarr-py-plate"):
        values = {key.removeprefix(f"{name}/"): value for key, value in files().items() if key.startswith(f"{name}/")}
        if name == "iohub-0.5":
            assert json.loads(values["zarr.json"])["attributes"]["ome"]["multiscales"][0]["version"] == "0.5"
            values = plate_of(values)
        gzarr.copy(values, tmp_path / name, zarr_format=2)
        copied = zarr.open_group(tmp_path / name, mode="r")
        for group in (copied, *(node for _, node in copied.members(max_depth=None) if isinstance(node, zarr.Group))):
            assert "ome" not in group.attrs, (name, group.path)
            kinds = {"multiscales": v04.Image, "plate": v04.HCS, "well": v04.Well, "labels": v04.Labels}
            for member in kinds.keys() & group.attrs.keys():
                # It checks the arrays and groups that are named, too.
                kinds[member].from_zarr(group)
                checked += 1
    assert checked > 10


def plate_of(image: dict[str, Any]) -> dict[str, Any]:
    """Return the keys of a plate of version 0.5 with one field, as iohub writes it: each part has the version."""
    wells = [{"path": "A/1", "rowIndex": 0, "columnIndex": 0}]
    plate = {"version": "0.5", "columns": [{"name": "1"}], "rows": [{"name": "A"}], "wells": wells}
    attributes: dict[str, Any] = {
        "": {"ome": {"version": "0.5", "plate": plate}},
        "A/": {},
        "A/1/": {"ome": {"version": "0.5", "well": {"version": "0.5", "images": [{"path": "0"}]}}},
    }
    groups = {
        f"{path}zarr.json": json.dumps({"zarr_format": 3, "node_type": "group", "attributes": found}).encode()
        for path, found in attributes.items()
    }
    return groups | {f"A/1/0/{key}": value for key, value in image.items()}


def test_there_and_back() -> None:
    source, there, back = write("0.4"), {}, {}
    gzarr.copy(source, there, zarr_format=3)
    gzarr.copy(there, back, zarr_format=2)
    for key in source:
        if key.endswith((".zattrs", ".zgroup")):
            assert json.loads(back[key]) == json.loads(source[key]), key


@pytest.mark.parametrize("version", ["0.4", "0.5"])
@pytest.mark.parametrize("valid", [True, False])
def test_documents_of_the_suites(version: str, valid: bool) -> None:
    """Valid documents stay valid; others are copied without loss, converted or not."""
    other, changed = {"0.4": "0.5", "0.5": "0.4"}[version], 0
    for case in DOCUMENTS:
        if (case.version, case.suite, case.valid) != (version, "suites", valid):
            continue
        copied = copy_of(case.attributes, VERSIONS[version])
        if valid and copied != case.attributes:
            found = parse(copied, version=other, kind=case.kind)
            assert not [problem for problem in found.problems if problem.level == "schema"], case
        changed += copied != case.attributes
        again = copy_of(copied, VERSIONS[other])
        assert normal(again) == normal(case.attributes), case
    assert changed > 5


def copy_of(attributes: Any, zarr_format: int) -> Any:
    """Return the attributes of a copy, from a Zarr format to the other one."""
    source: dict[str, Any] = {}
    copied: dict[str, Any] = {}
    gzarr.create_group(source, zarr_format=zarr_format, attributes=attributes)
    return dict(gzarr.copy(source, copied, zarr_format=5 - zarr_format).attrs)


def normal(attributes: Any) -> Any:
    """Return attributes without versions, which 0.4 may leave out, wherever the parts are."""
    attributes = without_versions(attributes)
    inner = attributes.get("ome")
    return {**attributes, **inner, "ome": None} if isinstance(inner, dict) else {**attributes, "ome": inner}


def without_versions(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_versions(item) for name, item in value.items() if name != "version"}
    return [without_versions(item) for item in value] if isinstance(value, list) else value


@settings(max_examples=300, deadline=None)
@given(case=st.sampled_from([case for case in DOCUMENTS if case.suite == "suites"]), seed=st.integers(0, 1 << 32))
def test_anything_else_is_copied_and_nothing_is_lost(case: Case, seed: int) -> None:
    document = damaged(case.attributes, seed)
    zarr_format = VERSIONS[case.version]
    try:
        copied = copy_of(document, zarr_format)
    except GzarrError:
        # What is no group's attributes.
        assert not isinstance(document, dict)
        return
    assert normal(copy_of(copied, 5 - zarr_format)) == normal(document)
