"""Plates, wells, labels and collections: what they are, and how few requests they cost."""

from __future__ import annotations

import contextlib
import json
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_ome_metadata import DOCUMENTS, damaged

import gzarr
from gzarr.errors import ArgumentError, GzarrError, MetadataError, NodeNotFoundError
from gzarr.ome import Collection, Image, Labels, MetadataWarning, Plate, Scene, Well

ROWS = [chr(ord("A") + i) for i in range(16)]
COLUMNS = [str(i + 1) for i in range(24)]
FIELDS = 4
DATA = np.arange(8 * 9, dtype="u1").reshape(8, 9)


def image(name, **more):
    axes = [{"name": n, "type": "space", "unit": "micrometer"} for n in "yx"]
    datasets = [{"path": "0", "coordinateTransformations": [{"type": "scale", "scale": [1, 1]}]}]
    return {"multiscales": [{"name": name, "axes": axes, "datasets": datasets}], **more}


def put(store, path, zarr_format, **parts):
    """Write a group with OME metadata; ``version`` where it belongs."""
    prefix = f"{path}/" if path else ""
    if zarr_format == 3:
        document = {"zarr_format": 3, "node_type": "group", "attributes": {"ome": {"version": "0.5", **parts}}}
        store[f"{prefix}zarr.json"] = json.dumps(document).encode()
    else:
        store[f"{prefix}.zgroup"] = b'{"zarr_format": 2}'
        store[f"{prefix}.zattrs"] = json.dumps(parts).encode()


@pytest.fixture(scope="module", params=[2, 3])
def plate_values(request):
    store = {}
    entries = [
        {"path": f"{row}/{column}", "rowIndex": i, "columnIndex": j}
        for i, row in enumerate(ROWS)
        for j, column in enumerate(COLUMNS)
    ]
    names = {"rows": [{"name": row} for row in ROWS], "columns": [{"name": column} for column in COLUMNS]}
    put(store, "", request.param, plate={"name": "screen", "wells": entries, **names, "acquisitions": [{"id": 7}]})
    array = {}
    gzarr.create_array(array, data=DATA, zarr_format=request.param)
    for row in ROWS:
        put(store, row, request.param)
        for column in COLUMNS:
            well = f"{row}/{column}"
            images = [{"path": str(field), "acquisition": 7} for field in range(FIELDS)]
            put(store, well, request.param, well={"images": images})
            for field in range(FIELDS):
                put(store, f"{well}/{field}", request.param, **image(f"{well}/{field}"))
                store |= {f"{well}/{field}/0/{key}": value for key, value in array.items()}
    return store


class Counted:
    """A store that counts its calls, each of them a request, and notes the keys asked for."""

    def __init__(self, values):
        self.inner = gzarr.MemoryStore(values)
        self.calls = []
        self.keys = set()

    def __getattr__(self, name):
        method = getattr(self.inner, name)
        return (lambda *arguments: self.count(name, arguments)) if callable(method) else method

    def count(self, name, arguments):
        self.calls.append(name)
        return getattr(self.inner, name)(*arguments)

    def get(self, key):
        self.keys.add(key)
        return self.count("get", (key,))

    def get_partial_values(self, key_ranges):
        key_ranges = list(key_ranges)
        self.keys |= {key for key, _ in key_ranges}
        return self.count("get_partial_values", (key_ranges,))

    def get_small_values(self, keys, max_nbytes):
        self.keys |= set(keys)
        return self.count("get_small_values", (keys, max_nbytes))

    def list(self):
        return self.count("list", ())

    def list_prefix(self, prefix):
        return self.count("list_prefix", (prefix,))

    def list_dir(self, prefix):
        return self.count("list_dir", (prefix,))

    def list_sizes(self, prefix):
        return self.count("list_sizes", (prefix,))

    def cost(self, action, folder):
        """Run an action that may ask for values in one folder only; return its result and the number of requests."""
        self.calls.clear()
        self.keys.clear()
        result = action()
        assert not any(name.startswith("list") for name in self.calls)
        assert {key.rpartition("/")[0] for key in self.keys} <= {folder}
        return result, len(self.calls)


class TestPlates:
    def test_384_wells_are_opened_one_by_one(self, plate_values):
        store = Counted(plate_values)
        plate, count = store.cost(lambda: gzarr.ome.open(store), "")
        assert count == 1
        assert isinstance(plate, Plate)
        assert (len(plate), plate.name, plate.rows[1], plate.columns[-1]) == (384, "screen", "B", "24")
        assert plate.acquisitions[0].id == 7
        assert repr(plate) == "<gzarr.ome.Plate '/', 16 × 24, 384 wells>"
        assert list(plate)[:2] == ["A/1", "A/2"]
        assert ("C/5" in plate, "C/25" in plate) == (True, False)
        for path in ("A/1", "C/5", "P/24"):
            well, count = store.cost(lambda path=path: plate[path], path)
            assert count == 1
            assert isinstance(well, Well)
            assert repr(well) == f"<gzarr.ome.Well '/{path}', 4 fields>"
            assert [field.acquisition for field in well.fields] == [7] * FIELDS
            for index in range(FIELDS):
                folder = f"{path}/{index}"
                field, count = store.cost(lambda well=well, index=index: well[index], folder)
                assert (count, field.name) == (1, folder)
                assert store.cost(lambda field=field: (field.scale, field.axes, field.channels), "none")[1] == 0
                assert store.cost(lambda field=field: field.level(0), f"{folder}/0")[1] == 1
                assert store.cost(lambda field=field: field.levels, "none")[1] == 0
            np.testing.assert_array_equal(field.read(), DATA)

    def test_by_row_and_column(self, plate_values):
        plate = gzarr.ome.open(plate_values)
        assert plate.well("P", "24").group.path == plate.well(15, 23).group.path == plate.well(-1, -1).group.path
        assert plate["P/24"].image("3").name == "P/24/3"
        assert [image.name for image in plate["A/1"][1:3]] == ["A/1/1", "A/1/2"]
        for row, column in [("Q", "1"), (16, 0), ("A", "25"), (True, 0), ("A", None)]:
            with pytest.raises(ArgumentError, match=r"there is no (row|column)"):
                plate.well(row, column)
        with pytest.raises(NodeNotFoundError, match="has no well 'Z/1'"):
            plate["Z/1"]
        with pytest.raises(IndexError):
            plate["A/1"][4]
        with pytest.raises(NodeNotFoundError, match="has no field '9'"):
            plate["A/1"].image("9")

    def test_wells_that_were_not_acquired(self):
        store = {}
        entries = [{"path": "A/1", "rowIndex": 0, "columnIndex": 0}, {"path": "B/2", "rowIndex": 1, "columnIndex": 1}]
        names = {"rows": [{"name": "A"}, {"name": "B"}], "columns": [{"name": "1"}, {"name": "2"}]}
        put(store, "", 3, plate={"wells": entries, **names})
        plate = gzarr.ome.open(store)
        with pytest.raises(NodeNotFoundError, match="no well in row 'A', column '2'"):
            plate.well("A", "2")
        with pytest.raises(NodeNotFoundError, match=r"well 'B/2' of '/' .*is not there"):
            plate["B/2"]

    def test_a_well_that_cannot_be_read_is_left_out(self):
        store = {}
        known = {"path": "A/1", "rowIndex": 0, "columnIndex": 0}
        entries = [known, {"path": 5}, {"path": "B/1", "rowIndex": 9, "columnIndex": 0}, 7]
        put(store, "", 3, plate={"wells": entries, "rows": [{"name": "A"}], "columns": [{"name": "1"}]})
        with pytest.warns(MetadataWarning, match="and 1 more broken rule"):
            plate = gzarr.ome.open(store)
        assert list(plate) == ["A/1"]

    @pytest.mark.parametrize("zarr_format", [2, 3])
    @pytest.mark.parametrize(("row", "column"), [(1, 3), (7, 1), (0, 0), (7, 9), (-1, "1")])
    def test_paths_count_where_indexes_disagree(self, zarr_format, row, column):
        entries = [{"path": "B/2", "rowIndex": row, "columnIndex": column}, {"path": "A/1", "rowIndex": 7}]
        names = {"rows": [{"name": "A"}, {"name": "B"}], "columns": [{"name": name} for name in "123"]}
        store = {}
        put(store, "", zarr_format, plate={"wells": [*entries, entries[0]], **names})
        put(store, "B/2", zarr_format, well={"images": [{"path": "0"}]})
        with pytest.warns(MetadataWarning, match=r"plate\.wells"):
            plate = gzarr.ome.open(store)
        assert [(well.path, well.row, well.column) for well in plate.metadata.plate.wells] == [
            ("B/2", 1, 1),
            ("A/1", 0, 0),
        ]
        assert plate.well("B", "2").group.path == "B/2"

    def test_older_plates_lack_indexes(self):
        store = {}
        plate = {"version": "0.1", "wells": [{"path": "B/1"}], "rows": [{"name": "A"}, {"name": "B"}]}
        put(store, "", 2, plate={**plate, "columns": [{"name": "1"}]})
        assert gzarr.ome.open(store).well.__self__.metadata.plate.wells[0].row == 1

    def test_plates_that_cannot_be_read(self):
        for plate in (5, {}, {"rows": 1, "columns": [], "wells": []}, {"rows": [{}], "columns": [], "wells": []}):
            store = {}
            put(store, "", 3, plate=plate)
            with pytest.warns(MetadataWarning), pytest.raises(MetadataError, match=r"'/' in .*"):
                gzarr.ome.open(store)


class TestLabels:
    @pytest.mark.parametrize("zarr_format", [2, 3])
    def test_labels(self, zarr_format):
        store = {}
        put(store, "", zarr_format, **image("cells"))
        put(store, "labels", zarr_format, labels=["nuclei", "gone"])
        colors = [{"label-value": 1, "rgba": [255, 0, 0, 128]}]
        properties = [{"label-value": 1, "area": 5}]
        label = {"colors": colors, "properties": properties, "source": {"image": "../../"}}
        put(store, "labels/nuclei", zarr_format, **image("nuclei", **{"image-label": label}))
        gzarr.create_array(store, path="labels/nuclei/0", data=DATA, zarr_format=zarr_format)
        labels = gzarr.ome.open(store).labels
        assert (list(labels), len(labels), "nuclei" in labels) == (["nuclei", "gone"], 2, True)
        nuclei = labels["nuclei"]
        np.testing.assert_array_equal(nuclei.read(), DATA)
        assert nuclei.image_label.colors[0].rgba == (255, 0, 0, 128)
        assert nuclei.image_label.properties == ({"label-value": 1, "area": 5},)
        assert nuclei.image_label.source == "../../"
        with pytest.raises(NodeNotFoundError, match="no labels 'cells'; it has 'nuclei', 'gone'"):
            labels["cells"]
        with pytest.raises(NodeNotFoundError, match="labels 'gone' of '/labels'"):
            labels["gone"]
        assert isinstance(gzarr.ome.open(store, path="labels"), Labels)
        assert isinstance(gzarr.ome.open(store, path="labels/nuclei"), Image)

    def test_an_image_without_labels(self):
        store = {}
        put(store, "", 3, **image("cells"))
        labels = gzarr.ome.open(store).labels
        assert not labels
        with pytest.raises(NodeNotFoundError, match="has no labels 'a'; it has none"):
            labels["a"]

    def test_labels_that_are_no_group(self):
        store = {}
        put(store, "", 3, **image("cells"))
        gzarr.create_array(store, path="labels", data=DATA)
        with pytest.warns(MetadataWarning, match="'labels' in the image .* must be a group, and is an array"):
            assert not gzarr.ome.open(store).labels


class TestCollections:
    @pytest.mark.parametrize("zarr_format", [2, 3])
    @pytest.mark.parametrize("series", [["0", "1"], ["a", "b"], None])
    def test_images(self, zarr_format, series):
        store = {}
        put(store, "", zarr_format, **{"bioformats2raw.layout": 3})
        if series is not None:
            put(store, "OME", zarr_format, series=series)
        for path in series or ["0", "1"]:
            put(store, path, zarr_format, **image(f"image {path}"))
        collection = gzarr.ome.open(store)
        assert isinstance(collection, Collection)
        assert collection.paths == tuple(series or ["0", "1"])
        assert [one.name for one in collection] == [f"image {path}" for path in series or ["0", "1"]]
        assert len(collection[:1]) == 1
        with pytest.raises(IndexError):
            collection[2]

    def test_a_plate_of_that_layout_is_a_plate(self):
        store = {}
        plate = {"rows": [{"name": "A"}], "columns": [{"name": "1"}], "wells": []}
        put(store, "", 3, **{"bioformats2raw.layout": 3, "plate": plate})
        with pytest.warns(MetadataWarning, match="wells: expected at least 1 item"):
            assert isinstance(gzarr.ome.open(store), Plate)


class TestAnyDocument:
    @settings(max_examples=200, deadline=None, derandomize=True)
    @given(case=st.sampled_from([case for case in DOCUMENTS if case.kind != "image"]), seed=st.integers(0, 2**32))
    def test_opening(self, case, seed):
        """Whatever a group says, it is opened, or an error of gzarr says why not."""
        document = damaged(case.attributes, seed)
        store = {"zarr.json": json.dumps({"zarr_format": 3, "node_type": "group", "attributes": document}).encode()}
        for path in ("A/1", "0", "labels"):
            put(store, path, 3, **image(path))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                node = gzarr.ome.open(store)
            except GzarrError:
                return
            assert len(repr(node)) < 1000
            if isinstance(node, Image):
                return
            for one in node if isinstance(node, Plate | Labels | Scene) else range(2):
                with contextlib.suppress(GzarrError, IndexError):
                    node[one]
