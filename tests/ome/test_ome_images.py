"""Reading OME-Zarr images: by names, labels of channels, micrometres, resolution; what files in the wild break."""

from __future__ import annotations

import itertools
import json
import random
import warnings

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from support import ngff_suites
from test_ome_metadata import damaged

import gzarr
from gzarr.errors import (
    ArgumentError,
    GzarrError,
    MetadataError,
    NodeNotFoundError,
    NodeTypeError,
    SelectionError,
    UnsupportedError,
)
from gzarr.ome import MetadataWarning
from gzarr.ome.levels import indexes_of_box

DATA = np.arange(2 * 3 * 4 * 20 * 30, dtype="u2").reshape(2, 3, 4, 20, 30)
LEVELS = (DATA, DATA[..., ::2, ::2].copy(), DATA[..., ::2, ::4, ::4].copy())
AXES = [{"name": "t", "type": "time", "unit": "second"}, {"name": "c", "type": "channel"}]
AXES += [{"name": name, "type": "space", "unit": "micrometer"} for name in "zyx"]
CHANNELS = [{"label": label, "color": "FF0000"} for label in ("DAPI", "GFP", "RFP")]
SCALES = [[1, 1, 2, 0.5, 0.25], [1, 1, 2, 1, 0.5], [1, 1, 4, 2, 1]]
OFFSETS = [[0, 0, 0, 10, 20], [0, 0, 0, 10.25, 20.125], [0, 0, 1, 10.75, 20.375]]


def transforms(scale, offset):
    return [{"type": "scale", "scale": scale}, {"type": "translation", "translation": offset}]


def attributes(**changes):
    datasets = [
        {"path": str(level), "coordinateTransformations": transforms(*both)}
        for level, both in enumerate(zip(SCALES, OFFSETS, strict=True))
    ]
    multiscale = {"name": "cells", "axes": AXES, "datasets": datasets} | changes
    return {"ome": {"version": "0.5", "multiscales": [multiscale], "omero": {"channels": CHANNELS}}}


def store_of(document, levels=LEVELS, zarr_format=3):
    store = {}
    group = gzarr.create_group(store, zarr_format=zarr_format, attributes=document)
    for level, data in enumerate(levels):
        group.create_array(str(level), data=data, chunks=(1, 1, 2, 8, 8)[-data.ndim :])
    return store


@pytest.fixture
def store():
    return store_of(attributes())


@pytest.fixture
def image(store):
    return gzarr.ome.open(store, device="cpu")


class TestProperties:
    def test_all(self, image):
        assert image.axes == ("t", "c", "z", "y", "x")
        assert image.units == ("second", None, "micrometer", "micrometer", "micrometer")
        assert (image.name, image.version, image.ndim) == ("cells", "0.5", 5)
        assert (image.scale, image.translation) == (tuple(SCALES[0]), tuple(OFFSETS[0]))
        assert [level.scale for level in image.levels] == [tuple(map(float, scale)) for scale in SCALES]
        assert [level.translation for level in image.levels] == [tuple(map(float, offset)) for offset in OFFSETS]
        assert [level.shape for level in image.levels] == [data.shape for data in LEVELS]
        assert (image.shape, image.dtype) == (DATA.shape, DATA.dtype)
        assert [channel.label for channel in image.channels] == ["DAPI", "GFP", "RFP"]
        assert image.channels[0].color == "FF0000"
        assert not image.labels
        assert repr(image) == "<gzarr.ome.Image '/', tczyx, 3 levels>"

    def test_levels_are_arrays(self, image):
        for index, data in enumerate(LEVELS):
            assert image.level(index).shape == data.shape
        assert image.level(-1) == image.level(2)
        for wrong in (3, -4, True, "0", 1.0):
            with pytest.raises(ArgumentError, match="levels 0 to 2"):
                image.level(wrong)

    def test_it_is_made_from_a_group_a_path_or_a_store(self, store, tmp_path):
        gzarr.copy(store, tmp_path / "plates" / "image.zarr")
        for source, path in [
            (gzarr.open_group(store), ""),
            (tmp_path / "plates/image.zarr", ""),
            (tmp_path / "plates", "image.zarr"),
            (gzarr.open_group(tmp_path / "plates"), "image.zarr"),
        ]:
            assert gzarr.ome.open(source, path=path).shape == DATA.shape

    def test_transformations_of_the_image_come_last(self):
        document = attributes(coordinateTransformations=transforms([1, 1, 10, 10, 10], [0, 0, 1, 2, 3]))
        image = gzarr.ome.open(store_of(document))
        assert image.grid(1).scale == (1, 1, 20, 10, 5)
        assert image.grid(1).translation == (0, 0, 1, 104.5, 204.25)


class TestReading:
    def test_names_and_labels(self, store, device):
        image = gzarr.ome.open(store, device=device.name)
        for level, data in enumerate(LEVELS):
            for selection, expected in [
                ({}, data),
                ({"c": "GFP", "t": 0, "z": slice(1, 3)}, data[0, 1, 1:3]),
                ({"c": ["RFP", "DAPI"], "t": -1}, data[-1][[2, 0]]),
                ({"C": [0, "RFP"], "x": 3}, data[:, [0, 2]][..., 3]),
                ({"x": slice(None, None, 2), "y": slice(-3, None)}, data[..., -3:, ::2]),
            ]:
                result = device.to_numpy(image.read(level, **selection))
                np.testing.assert_array_equal(result, expected)

    def test_into_memory_of_the_caller(self, image):
        out = np.empty((4, 20, 30), "u2")
        assert image.read(t=1, c="RFP", out=out) is out
        np.testing.assert_array_equal(out, DATA[1, 2])

    @pytest.mark.parametrize(
        ("selection", "error", "message"),
        [
            ({"q": 1}, ArgumentError, "axes t, c, z, y, x, not 'q'"),
            ({"c": "CY5"}, SelectionError, "no channel 'CY5'; it has 'DAPI', 'GFP', 'RFP'"),
            ({"t": 2}, SelectionError, "out of bounds"),
            ({"x": 1, "X": 2}, ArgumentError, "selected twice"),
            ({"level": 7}, ArgumentError, "levels 0 to 2"),
            ({"level": "best"}, ArgumentError, "levels 0 to 2"),
            ({"level": "auto"}, ArgumentError, "either resolution= .* or pixels="),
            ({"pixels": 5}, ArgumentError, 'level="auto"'),
        ],
    )
    def test_what_is_wrong(self, image, selection, error, message):
        with pytest.raises(error, match=message):
            image.read(**selection)

    def test_channels_of_one_name(self):
        document = attributes()
        document["ome"]["omero"]["channels"] = [{"label": "A"}, {"label": "A"}, {}]
        with pytest.raises(SelectionError, match="more than one channel 'A'"):
            gzarr.ome.open(store_of(document)).read(c="A")


class TestMicrometres:
    @pytest.mark.parametrize("level", [0, 1, 2])
    def test_elements_whose_centres_are_in_the_box(self, image, level):
        """Against a search among the coordinates of all elements."""
        source = random.Random(level)
        data, grid = LEVELS[level], image.grid(level)
        coordinates = [np.arange(n) * s + t for n, s, t in zip(data.shape, grid.scale, grid.translation, strict=True)][
            2:
        ]
        for _ in range(50):
            center = [source.uniform(c[0], c[-1]) for c in coordinates]
            size = [source.uniform(0, 2 * (c[-1] - c[0])) for c in coordinates]
            chosen = []
            for c, middle, length in zip(coordinates, center, size, strict=True):
                inside = np.flatnonzero((c >= middle - length / 2) & (c < middle + length / 2))
                chosen.append(inside if len(inside) else [np.argmin(abs(c - middle))])
            expected = data[1, 2][np.ix_(*chosen)]
            result = image.read_um(center, size, level, t=1, c=2)
            np.testing.assert_array_equal(result, expected)

    def test_a_size_of_whole_elements_gives_that_many(self, image):
        for start, count in itertools.product(range(30), range(1, 12)):
            center = 20 + 0.25 * (start - 0.5 + count / 2)
            expected = DATA[0, 0, 0, 0, start : start + count]
            result = image.read_um({"x": center}, 0.25 * count, t=0, c=0, z=0, y=0)
            np.testing.assert_array_equal(result, expected)

    def test_a_box_across_an_edge_has_the_nearest_element(self):
        """The centres of level 1 are 0.5, 2.5, … 14.5; the middle of the whole box is beyond the image."""
        data = np.arange(256, dtype="u2").reshape(16, 16)
        image = gzarr.ome.create({}, data, axes="yx", units="micrometer", chunks=4, levels=2)
        level = image.read(1)
        np.testing.assert_array_equal(image.read_um((8, 15.6), (4, 1.6), level=1), level[3:5, 7:])
        np.testing.assert_array_equal(image.read_um({"x": -1}, 1.5, level=1), level[:, :1])
        # Of the cut box, the middle counts: 1.6, which is nearest to 2.5.
        np.testing.assert_array_equal(image.read_um({"x": 1.6}, 1.6, level=1), level[:, 1:2])

    @given(st.data())
    def test_boxes_that_overlap_have_elements(self, drawn):
        """Against a search among all centres, with boxes on a grid that floats hold exactly."""
        length = drawn.draw(st.integers(1, 9))
        scale = drawn.draw(st.sampled_from([0.25, 0.5, 1, 2, 4]))
        sign = drawn.draw(st.sampled_from([1, -1]))
        offset = drawn.draw(st.integers(-20, 20)) / 4
        low = offset + drawn.draw(st.integers(-300, 300)) / 16
        high = low + drawn.draw(st.integers(0, 200)) / 16
        centres = np.arange(length) * sign * scale + offset
        edges = centres.min() - scale / 2, centres.max() + scale / 2
        inside = np.flatnonzero((centres >= low) & (centres < high))
        begin, end = max(low, edges[0]), min(high, edges[1])
        if begin > end or (begin == end and low < high):
            with pytest.raises(SelectionError, match="lies outside"):
                indexes_of_box(low, high, sign * scale, offset, length)
            return
        if begin == end in edges:
            # A point on an edge of the image is in it at one of its ends.
            return
        found = np.arange(length)[indexes_of_box(low, high, sign * scale, offset, length)]
        if len(inside):
            np.testing.assert_array_equal(found, inside)
        else:
            distances = abs(centres - (begin + end) / 2)
            assert len(found) == 1
            assert distances[found[0]] == distances.min()

    @settings(max_examples=20)
    @given(st.data())
    def test_boxes_that_overlap_images(self, drawn):
        """Of any pyramid, at any level: at least one element along each axis, and none where they do not overlap."""
        shape = drawn.draw(st.tuples(*[st.integers(1, 12)] * 3))
        scale = drawn.draw(st.tuples(*[st.sampled_from([0.3, 1, 2.7])] * 3))
        image = gzarr.ome.create({}, np.zeros(shape, "u1"), axes="zyx", scale=scale, units="micrometer", levels=3)
        level = drawn.draw(st.integers(0, len(image.levels) - 1))
        grid = image.grid(level)
        edges = [
            (t - s / 2, t + s * (n - 0.5))
            for s, t, n in zip(grid.scale, grid.translation, image.level(level).shape, strict=True)
        ]
        # Ends of boxes, in tenths of the image: from before it to beyond it.
        ends = [sorted(drawn.draw(st.tuples(*[st.integers(-9, 19)] * 2))) for _ in range(3)]
        boxes = [
            (a + (b - a) * (low + 0.01) / 10, a + (b - a) * (high + 0.02) / 10)
            for (a, b), (low, high) in zip(edges, ends, strict=True)
        ]
        centre, size = [(a + b) / 2 for a, b in boxes], [b - a for a, b in boxes]
        if all(low < edge[1] and high > edge[0] for (low, high), edge in zip(boxes, edges, strict=True)):
            assert min(image.read_um(centre, size, level).shape) >= 1
        else:
            with pytest.raises(SelectionError, match="lies outside of the image"):
                image.read_um(centre, size, level)

    def test_units_are_converted(self):
        axes = AXES[:2] + [axis | {"unit": unit} for axis, unit in zip(AXES[2:], ("m", "nanometer", "µm"), strict=True)]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            image = gzarr.ome.open(store_of(attributes(axes=axes)))
        # Distances 2 m, 0.5 nm and 0.25 µm.
        result = image.read_um({"z": 2e6, "y": 0.010, "x": 20.25}, {"z": 4e6, "y": 0.002, "x": 0.5}, t=0, c=0)
        np.testing.assert_array_equal(result, DATA[0, 0, 0:2, 0:2, 0:2])

    def test_no_unit_is_taken_as_micrometres_with_a_warning(self):
        image = gzarr.ome.open(store_of(attributes(axes=[{"name": a["name"], "type": a["type"]} for a in AXES])))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert image.read_um((0, 10, 20), 1).shape == (2, 3, 1, 1, 2)
        texts = [str(warning.message) for warning in caught]
        for name in "zyx":
            assert any(f"axis '{name}' has no unit; taken as micrometres" in text for text in texts)

    @pytest.mark.parametrize(
        ("center", "size", "error", "message"),
        [
            ((0, 10, 90), 1, SelectionError, "axis 'x' .* outside of the image, .*from 19.875 to 27.375"),
            ((0, 10), 1, ArgumentError, "a number for each of the axes z, y, x"),
            ((0, 10, 20), (1, 2), ArgumentError, "size= needs a number for each"),
            ({"c": 1}, 1, ArgumentError, "axes of space z, y, x"),
            ({"w": 1}, 1, ArgumentError, "axes t, c, z, y, x, not 'w'"),
            ({"x": float("nan")}, 1, ArgumentError, "finite"),
            ({"x": 20}, {"y": 1}, ArgumentError, "size= needs"),
        ],
    )
    def test_what_is_wrong(self, image, center, size, error, message):
        with pytest.raises(error, match=message):
            image.read_um(center, size)

    def test_coordinates_of_stages_are_told_apart(self):
        """Places of tiles on a slide have seven digits before micrometres become fractions of one."""
        place = gzarr.ome.create({}, np.zeros((4, 4), "u1"), axes="yx", units="um", translation=(123457.25, 7e6))
        with pytest.raises(SelectionError, match=r": 123460\.95 to 123461\.05 lies .* 123456\.75 to 123460\.75$"):
            place.read_um((123461, 7e6), (0.1, 1))

    def test_an_axis_of_the_box_cannot_be_selected(self, image):
        with pytest.raises(ArgumentError, match="'x' is in the box"):
            image.read_um({"x": 20}, 1, X=3)


class TestLevelByNeed:
    @pytest.mark.parametrize(("resolution", "level"), [(0.1, 0), (0.5, 0), (2, 1), (3.9, 1), (4, 2), (100, 2)])
    def test_by_resolution(self, image, resolution, level):
        """In all axes: z is at 2, 2 and 4 micrometres, so one finer than 2 has the first level."""
        assert image.choose_level(resolution=resolution) == level

    @pytest.mark.parametrize(("resolution", "level"), [(0.2, 0), (0.25, 0), (0.49, 0), (0.5, 1), (0.9, 1), (1, 2)])
    def test_by_resolution_in_one_axis(self, image, resolution, level):
        assert image.choose_level(resolution={"x": resolution}) == level
        np.testing.assert_array_equal(image.read("auto", resolution={"x": resolution}), LEVELS[level])

    @pytest.mark.parametrize(("pixels", "level"), [(DATA.size, 0), (DATA.size - 1, 1), (LEVELS[1].size - 1, 2), (1, 2)])
    def test_by_number_of_pixels(self, image, pixels, level):
        np.testing.assert_array_equal(image.read("auto", pixels=pixels), LEVELS[level])

    def test_selections_count_elements_of_the_first_level(self, image):
        result = image.read("auto", pixels=100, t=0, c="GFP", y=slice(8, 17), x=29)
        np.testing.assert_array_equal(result, DATA[0, 1, :, 8:17, 29])
        result = image.read("auto", resolution={"x": 0.5}, t=0, c=1, y=slice(9, 18), x=29)
        np.testing.assert_array_equal(result, LEVELS[1][0, 1, :, 4:9, 14])
        with pytest.raises(SelectionError, match="have no step"):
            image.read("auto", resolution={"x": 0.5}, x=slice(0, 10, 2))

    def test_a_box(self, image):
        result = image.read_um((3, 15, 23), 4, "auto", pixels=100, t=0, c=0)
        np.testing.assert_array_equal(result, image.read_um((3, 15, 23), 4, 1, t=0, c=0))
        assert result.size <= 100 < image.read_um((3, 15, 23), 4, 0, t=0, c=0).size

    def test_a_negative_index_is_from_the_end(self, image):
        np.testing.assert_array_equal(image.read("auto", pixels=1, t=-1, x=-1, z=0), LEVELS[2][-1, :, 0, :, 7])


class TestXarray:
    def test_coordinates(self, image):
        array = image.to_xarray(1)
        assert isinstance(array, xr.DataArray)
        assert (array.dims, array.name, array.shape) == (image.axes, "cells", LEVELS[1].shape)
        np.testing.assert_array_equal(array.x, np.arange(15) * 0.5 + 20.125)
        assert array.x.attrs == {"units": "micrometer"}
        assert list(array.c.values) == ["DAPI", "GFP", "RFP"]
        result = array.sel(c="GFP", x=slice(21, 23)).isel(t=0)
        inside = (array.x.values >= 21) & (array.x.values <= 23)
        np.testing.assert_array_equal(result, LEVELS[1][0, 1][..., inside])

    def test_nothing_is_read_before_it_is_indexed(self, store):
        image = gzarr.ome.open({key: value for key, value in store.items() if "/c/" not in key}, missing="error")
        array = image.to_xarray()
        with pytest.raises(GzarrError):
            array.isel(t=0).load()


class TestFilesInTheWild:
    def test_a_broken_rule_is_a_warning(self):
        document = attributes(datasets=[{"path": "0"}])
        with pytest.warns(MetadataWarning, match=r"'/' in .*lacks 'coordinateTransformations'") as caught:
            image = gzarr.ome.open(store_of(document))
        assert caught[0].filename == __file__
        np.testing.assert_array_equal(image.read(t=0), DATA[0])
        assert image.scale == (1, 1, 1, 1, 1)

    @pytest.mark.parametrize("version", ["0.1", "0.2", None])
    def test_without_axes(self, version):
        multiscale = {"datasets": [{"path": str(level)} for level in range(3)]}
        if version is not None:
            multiscale["version"] = version
        store = store_of({"multiscales": [multiscale]}, zarr_format=2)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            image = gzarr.ome.open(store)
        assert bool(caught) == (version is None)
        assert image.axes == ("t", "c", "z", "y", "x")
        np.testing.assert_array_equal(image.read(1, t=0, c=2), LEVELS[1][0, 2])
        assert [level.scale for level in image.levels] == [(1, 1, 1, 1, 1), (1, 1, 1, 2, 2), (1, 1, 2, 4, 4)]
        assert image.levels[2].translation == (0, 0, 0.5, 1.5, 1.5)

    def test_0_3(self):
        multiscale = {"version": "0.3", "axes": ["z", "y", "x"], "datasets": [{"path": "0"}]}
        image = gzarr.ome.open(store_of({"multiscales": [multiscale]}, [DATA[0, 0]], zarr_format=2))
        assert image.axes == ("z", "y", "x")
        np.testing.assert_array_equal(image.read(z=1), DATA[0, 0, 1])

    @pytest.mark.parametrize(
        "transform",
        [{"type": "affine", "affine": [[1]]}, {"type": "scale", "path": "s"}, {"type": "scale", "scale": [1]}, "x", {}],
    )
    def test_unknown_transformations_are_refused_where_they_are_needed(self, transform):
        document = attributes()
        document["ome"]["multiscales"][0]["datasets"][0]["coordinateTransformations"] = [transform]
        with pytest.warns(MetadataWarning):
            image = gzarr.ome.open(store_of(document))
        np.testing.assert_array_equal(image.read(t=0, c="GFP"), DATA[0, 1])
        assert image.grid(1).scale == tuple(SCALES[1])
        for use in (lambda: image.scale, lambda: image.read_um((0, 10, 20), 1), image.to_xarray):
            with pytest.raises(MetadataError, match=r"level 0 of '/'.*elements can be read by their indexes"):
                use()
        if transform == {"type": "affine", "affine": [[1]]}:
            with pytest.raises(UnsupportedError, match="of type 'affine'"):
                image.scale

    def test_display_settings_that_are_wrong_do_not_hinder(self):
        document = attributes()
        document["ome"]["omero"] = {"channels": 5}
        with pytest.warns(MetadataWarning, match="omero.channels: expected an array, got 5"):
            image = gzarr.ome.open(store_of(document))
        np.testing.assert_array_equal(image.read(), DATA)

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"datasets": []}, r"\$.ome.multiscales\[0\].datasets: .*expected at least 1 item"),
            ({"datasets": [{}]}, r"datasets\[0\]: .*lacks 'path'"),
            ({"axes": [{"name": "x"}, {"name": "x"}]}, "names of axes that all differ"),
            ({"axes": "zyx"}, "expected an array, got 'zyx'"),
        ],
    )
    def test_what_a_read_needs_is_an_error(self, changes, message):
        with pytest.warns(MetadataWarning), pytest.raises(MetadataError, match=message):
            gzarr.ome.open(store_of(attributes(**changes)))

    def test_arrays_that_do_not_fit(self):
        image = gzarr.ome.open(store_of(attributes(), [DATA[0]]))
        with pytest.raises(MetadataError, match="has 4 dimensions, and the image 5 axes"):
            image.read()
        with pytest.raises(NodeNotFoundError, match=r"level '1' of '/' .*is not there"):
            image.read(1)

    @pytest.mark.parametrize("path", ["../secret", "/etc", "a//b", "", ".", "0/.."])
    def test_paths_that_leave_the_image(self, path):
        document = attributes()
        document["ome"]["multiscales"][0]["datasets"][0]["path"] = path
        with pytest.raises(GzarrError):
            gzarr.ome.open(store_of(document)).read()

    @pytest.mark.parametrize("index", [1, -1])
    def test_there_is_one_image(self, store, index):
        with pytest.raises(ArgumentError, match="has 1 images"):
            gzarr.ome.open(store, index=index)

    def test_other_nodes(self, store):
        with pytest.raises(NodeTypeError, match="array"):
            gzarr.ome.open(store, path="0")
        with pytest.raises(NodeTypeError, match="no OME metadata"):
            gzarr.ome.open({"zarr.json": b'{"zarr_format": 3, "node_type": "group"}'})
        with pytest.raises(NodeNotFoundError):
            gzarr.ome.open({})
        (scene,) = [case for case in ngff_suites.cases() if case.name.endswith("valid/scene/scene.json")]
        document = {"zarr_format": 3, "node_type": "group", "attributes": scene.attributes}
        found = gzarr.ome.open({"zarr.json": json.dumps(document).encode()})
        assert isinstance(found, gzarr.ome.Scene)
        assert found.paths[-1] == "4995115_full.zarr"
        with pytest.raises(NodeNotFoundError, match=r"4995115_full\.zarr"):
            found["4995115_full.zarr"]
        with pytest.raises(NodeTypeError, match="open the group above it"):
            gzarr.ome.open(store_of({"ome": {"version": "0.5", "series": ["0"]}}, []))

    @settings(max_examples=150, deadline=None, derandomize=True)
    @given(
        case=st.sampled_from([c for c in ngff_suites.cases() if c.kind == "image" and c.suite != "hierarchies"]),
        seed=st.integers(0, 2**32),
    )
    def test_any_document(self, case, seed):
        """Opening and reading gives a result, or an error of gzarr."""
        document = damaged(case.attributes, seed)
        store = {"zarr.json": json.dumps({"zarr_format": 3, "node_type": "group", "attributes": document}).encode()}
        for path in ("0", "s0", "array", "path/to/0"):
            gzarr.create_array(store, path=path, data=DATA[0, 0, :, :3, :3])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                image = gzarr.ome.open(store)
            except GzarrError:
                return
            for use in (
                lambda: image.scale,
                lambda: image.read(),
                lambda: image.read(x=0, c="a"),
                lambda: image.read_um((1, 1, 1), 2),
                lambda: image.choose_level(resolution=3),
                lambda: image.levels,
                lambda: image.to_xarray(),
                lambda: image.labels,
                lambda: repr(image),
            ):
                try:
                    use()
                except GzarrError:
                    continue
