"""Boxes in coordinate systems other than that of scale and translation, of images and of scenes."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage
from support.coordinate_systems import link, put_image, system

import gzarr
from gzarr.errors import ArgumentError, MetadataError, SelectionError, UnsupportedError

DATA = np.arange(9 * 12 * 10, dtype="u2").reshape(9, 12, 10)
SCALE = (2.0, 0.5, 0.25)


def opened(*further: Any, systems: list[Any], data: Any = DATA, scale: Any = SCALE) -> gzarr.ome.Image:
    values: dict[str, bytes] = {}
    put_image(values, "", names="zyx"[-data.ndim :], scale=scale, further=list(further), systems=systems, data=data)
    image = gzarr.ome.open(values)
    assert isinstance(image, gzarr.ome.Image)
    return image


def places(matrix: Any, shape: tuple[int, ...], scale: Any) -> Any:
    """Return where the centres of all elements are in a coordinate system, ``(axes, *shape)``."""
    physical = np.indices(shape) * np.reshape(scale, (-1, *(1,) * len(shape)))
    linear, moved = np.array(matrix)[:, :-1], np.array(matrix)[:, -1]
    return np.tensordot(linear, physical, 1) + moved.reshape(-1, *(1,) * len(shape))


def in_box(found: Any, center: Any, size: Any) -> Any:
    """Return the indexes along each axis of the elements whose centres are in a box."""
    ends = [np.reshape(end, (-1, *(1,) * (found.ndim - 1))) for end in (center - size / 2, center + size / 2)]
    inside = ((found >= ends[0]) & (found < ends[1])).all(0)
    return [np.unique(index) for index in np.nonzero(inside)]


# Multiples of 1/4, so that sums are exact.
quarters = st.integers(-40, 40).map(lambda n: n / 4)
factors = st.sampled_from([-2.0, -1.0, -0.5, 0.25, 0.5, 1.0, 4.0])


@given(
    order=st.permutations(range(3)),
    stretch=st.tuples(factors, factors, factors),
    moved=st.tuples(quarters, quarters, quarters),
    corner=st.tuples(*[st.integers(0, 8)] * 3),
    size=st.tuples(*[st.sampled_from([0.75, 1.25, 3.0, 5.5])] * 3),
    backward=st.booleans(),
)
@settings(max_examples=60)
def test_a_box_has_the_elements_with_centres_in_it(
    order: Any, stretch: Any, moved: Any, corner: Any, size: Any, backward: bool
) -> None:
    """Axes are exchanged, stretched, flipped and moved, by a transformation that is given or is to be inverted."""
    matrix = np.zeros((3, 4))
    matrix[range(3), order], matrix[:, -1] = stretch, moved
    written = matrix
    if backward:
        inverse = np.linalg.inv(matrix[:, :-1])
        written = np.column_stack([inverse, -inverse @ matrix[:, -1]])
    ends = ("stage", "physical") if backward else ("physical", "stage")
    image = opened(link(*ends, type="affine", affine=written.tolist()), systems=[system("stage", "abc")])
    found = places(matrix, DATA.shape, SCALE)
    center, lengths = found[(slice(None), *corner)], np.array(size)
    expected = in_box(found, center, lengths)
    result = image.read_um(center.tolist(), size, system="stage")
    np.testing.assert_array_equal(result, DATA[np.ix_(*expected)])
    by_name = dict(zip("abc", center.tolist(), strict=True))
    np.testing.assert_array_equal(image.read_um(by_name, dict(zip("abc", size, strict=True)), system="stage"), result)


def test_levels_units_and_axes_that_are_not_named() -> None:
    stage = {"name": "stage", "axes": [
        {"name": "x", "type": "space", "unit": "millimeter"}, {"name": "z", "type": "space", "unit": "nanometer"},
        {"name": "y", "type": "space", "unit": "micrometer"},
    ]}  # fmt: skip
    # From micrometres (z, y, x) to millimetres, nanometres and micrometres.
    matrix = [[0, 0, 1e-3, 5], [1e3, 0, 0, 0], [0, 1, 0, -3]]
    image = opened(link("physical", "stage", type="affine", affine=matrix), systems=[stage])
    # The middle is given in micrometres: 5 mm and 1 µm in x; 6 µm are the elements 2 to 6 of level 0.
    box = image.read_um({"X": 5001.0}, 1.0, system="stage")
    np.testing.assert_array_equal(box, DATA[:, :, 2:6])
    np.testing.assert_array_equal(image.read_um({"z": 4, "y": -1}, 2, system="stage", x=3), DATA[2:3, 2:6, 3])
    # Level 1 begins half an element later.
    np.testing.assert_array_equal(image.read_um({"z": 5}, 4, 1, system="stage"), DATA[::2, ::2, ::2][1:2])
    np.testing.assert_array_equal(image.read_um({"z": 5}, 4, "auto", resolution=5, system="stage"),
                                  image.read_um({"z": 5}, 4, 1, system="stage"))  # fmt: skip
    with pytest.raises(ArgumentError, match="the axis 'z' is in the box"):
        image.read_um({"z": 5}, 4, system="stage", z=1)
    with pytest.raises(SelectionError, match="axis 'x' of '/'"):
        image.read_um({"x": 1.0}, 1, system="stage")


def test_a_coordinate_system_of_a_plane() -> None:
    """A coordinate system without one of the axes is a plane of the image."""
    matrix = [[0, 0, 6.2], [1, 0, 0], [0, 1, 1]]
    image = opened(link("plane", "physical", type="affine", affine=matrix), systems=[system("plane", "yx")])
    np.testing.assert_array_equal(image.read_um((2, 0.5), 1, system="plane"), DATA[3:4, 3:5, 4:8])


def test_what_is_no_box() -> None:
    turn = np.radians(30)
    matrix = [[1, 0, 0, 0], [0, np.cos(turn), -np.sin(turn), 0], [0, np.sin(turn), np.cos(turn), 0]]
    image = opened(link("physical", "turned", type="affine", affine=matrix), systems=[system("turned", "zyx")])
    # Along z, it is one.
    np.testing.assert_array_equal(image.read_um({"z": 4}, 4, system="turned"), DATA[1:3])
    for center in ((4, 1, 1), {"y": 1}):
        with pytest.raises(UnsupportedError, match=r"gzarr.read_affine\(image, …, system=…\) resamples it"):
            image.read_um(center, 1, system="turned")
    # The box is bounded along one of two axes that make the image's.
    sheared = [[1, 0, 0, 0], [0, 1, 0.5, 0], [0, 0, 1, 0]]
    image = opened(link("sheared", "physical", type="affine", affine=sheared), systems=[system("sheared", "zyx")])
    np.testing.assert_array_equal(image.read_um({"z": 4}, 4, system="sheared"), DATA[1:3])
    with pytest.raises(UnsupportedError, match="not a box of elements"):
        image.read_um({"y": 1}, 1, system="sheared")
    # A plane through the image's diagonal: one number is of two axes.
    both = [[1, 0, 0], [1, 0, 0], [0, 1, 0]]
    image = opened(link("cut", "physical", type="affine", affine=both), systems=[system("cut", "ab")])
    with pytest.raises(UnsupportedError, match="not a box of elements"):
        image.read_um({"a": 1}, 1, system="cut")


def test_a_field_has_no_boxes() -> None:
    values: dict[str, bytes] = {}
    put_image(values, "", further=[link("physical", "bent", type="displacements", path="field")],
              systems=[system("bent", "yx")])  # fmt: skip
    field = gzarr.create_array(values, path="field", data=np.zeros((2, 4, 4)))
    field.attrs["coordinateTransformations"] = []
    image: Any = gzarr.ome.open(values)
    for read in (
        lambda: image.read_um((1, 1), 1, system="bent"),
        lambda: gzarr.read_affine(image, (1, 1), shape=(2, 2), system="bent"),
    ):
        with pytest.raises((UnsupportedError, MetadataError), match=r"bent|field"):
            read()


def test_names_that_are_not_there() -> None:
    image = opened(systems=[system("alone", "zyx")])
    with pytest.raises(ArgumentError, match="no coordinate system 'stage'; it has 'physical', 'alone'"):
        image.read_um((1, 1, 1), 1, system="stage")
    with pytest.raises(ArgumentError, match="no chain of transformations"):
        image.read_um((1, 1, 1), 1, system="alone")
    with pytest.raises(ArgumentError, match="no coordinate system 'stage'"):
        gzarr.read_affine(image, (1, 1, 1), system="stage")
    with pytest.raises(ArgumentError, match="system='stage' is for OME images"):
        gzarr.read_affine(DATA, (1, 1, 1), system="stage")
    # Its own has a name, too.
    np.testing.assert_array_equal(image.read_um((4, 1, 1), 1), image.read_um((4, 1, 1), 1, system="physical"))
    for center in ("abc", 1 + 2j, [1, 2, "z"], [1, 2, float("nan")], None, {"z": "a"}, [10**400, 1, 1]):
        with pytest.raises(ArgumentError, match="center="):
            image.read_um(center, 1)


def turned_about_x(degrees: float, moved: Any) -> Any:
    s, c = np.sin(np.radians(degrees)), np.cos(np.radians(degrees))
    return np.array([[c, -s, 0, moved[0]], [s, c, 0, moved[1]], [0, 0, 1, moved[2]]])


@pytest.mark.parametrize("backward", [False, True])
def test_any_pose_in_a_coordinate_system(backward: bool) -> None:
    """The image is turned against the stage; a box of the stage is what SciPy makes of the elements of level 0."""
    data = np.random.default_rng(3).random((20, 24, 26), np.float32)
    to_stage = turned_about_x(25, (3, -4, 2))
    inverse = np.linalg.inv(to_stage[:, :-1])
    to_physical = np.column_stack([inverse, -inverse @ to_stage[:, -1]])
    written, ends = (to_physical, ("stage", "physical")) if backward else (to_stage, ("physical", "stage"))
    image = opened(link(*ends, type="affine", affine=written.tolist()), systems=[system("stage", "zyx")], data=data)
    spacing, first = np.array([1.5, 0.4, 0.3]), to_stage @ [12, 3, 1, 1]
    box = gzarr.read_affine(image, spacing, offset=first, shape=(8, 12, 14), system="stage", boundary="edge", level=0)
    scale = np.reshape(SCALE, (-1, 1))
    expected = ndimage.affine_transform(
        data, to_physical[:, :-1] @ np.diag(spacing) / scale,
        (to_physical @ [*first, 1]) / SCALE, output_shape=(8, 12, 14), order=1, mode="nearest",
    )  # fmt: skip
    np.testing.assert_allclose(box, expected, rtol=1e-5, atol=1e-6)
    # Indexes of a level are a coordinate system as well.
    same = gzarr.read_affine(image, (1, 1, 1), offset=(4, 5, 6), shape=(3, 4, 5), system=0, level=0)
    np.testing.assert_allclose(same, data[4:7, 5:9, 6:11], rtol=1e-5)


def test_the_level_suits_the_distances_in_the_coordinate_system() -> None:
    data = np.zeros((20, 20, 20), "u1")
    data[::2, ::2, ::2] = 1
    to_stage = np.column_stack([np.diag([10.0, 10.0, 10.0]), np.zeros(3)])
    image = opened(link("physical", "stage", type="affine", affine=to_stage.tolist()), systems=[system("stage", "zyx")],
                   data=data, scale=(1.0, 1.0, 1.0))  # fmt: skip
    options: dict[str, Any] = {"shape": (4, 4, 4), "system": "stage", "interpolation": "nearest", "centre": (90,) * 3}
    # Level 1 has the ones only.
    assert gzarr.read_affine(image, (20, 20, 20), **options).all()
    assert not gzarr.read_affine(image, (10, 10, 10), **options).all()


def test_axes_before_those_of_the_map() -> None:
    """A coordinate system with channels; one whose channels are mixed with space; one that has too few axes."""
    data = np.arange(3 * 6 * 7, dtype="u2").reshape(3, 6, 7)
    keeping = np.array([[1, 0, 0, 0], [0, 0, 2, 1], [0, 2, 0, 0]])
    mixing = np.array([[1, 0, 1, 0], [0, 0, 2, 1], [0, 2, 0, 0]])
    mixed = np.array([[1, 0, 0, 0], [1, 0, 2, 1], [0, 2, 0, 0]])
    systems = [system(name, "zyx") for name in ("keeping", "mixing", "mixed")]
    systems.append(system("line", "x"))
    image = opened(
        link("keeping", "physical", type="affine", affine=keeping.tolist()),
        link("mixing", "physical", type="affine", affine=mixing.tolist()),
        link("mixed", "physical", type="affine", affine=mixed.tolist()),
        link("line", "physical", type="affine", affine=[[0, 0], [0, 0], [1, 0]]),
        systems=systems, data=data, scale=(1.0, 1.0, 1.0),
    )  # fmt: skip
    # The element (i, j) shows the place (i / 2, j / 2), at y = j + 1 and x = i.
    box = gzarr.read_affine(image, (0.5, 0.5), shape=(4, 5), system="keeping", level=0)
    np.testing.assert_array_equal(box, data[:, 1:6, :4].swapaxes(1, 2))
    for name in ("mixing", "mixed"):
        with pytest.raises(UnsupportedError, match="mixed with other axes"):
            gzarr.read_affine(image, (0.5, 0.5), shape=(4, 5), system=name)
    with pytest.raises(ArgumentError, match="which has fewer"):
        gzarr.read_affine(image, (0.5, 0.5), shape=(4, 5), system="line")


# -- scenes

MOSAIC = np.random.default_rng(1).integers(0, 60000, (20, 30)).astype("u2")
#: Tiles by their first elements, and how they lie in the mosaic: as they are, or turned by 90 degrees.
TILES = {"one": ((0, 0), False), "a/two": ((4, 12), True)}


@pytest.fixture
def scene() -> gzarr.ome.Scene:
    """Tiles of a mosaic with elements of 0.5 µm; the second was taken by a camera that is turned."""
    values: dict[str, bytes] = {}
    links = []
    for path, ((y, x), turned) in TILES.items():
        tile = MOSAIC[y : y + 14, x : x + 14]
        if turned:
            # Its element (i, j) is the mosaic's element (y + j, x + 13 - i).
            put_image(values, path, scale=(0.5, 0.5), data=tile[:, ::-1].T)
            steps = {"affine": [[0, 1, y / 2], [-1, 0, (x + 13) / 2]]}
        else:
            put_image(values, path, scale=(0.5, 0.5), data=tile)
            steps = {"affine": [[1, 0, y / 2], [0, 1, x / 2]]}
        links.append(link((path, "physical"), "world", type="affine", **steps))
    document = {"version": "0.6rc0", "scene": {
        "coordinateSystems": [system("world", "yx")], "coordinateTransformations": links,
    }}  # fmt: skip
    gzarr.open_group(values, mode="a").attrs["ome"] = document
    found = gzarr.ome.open(values)
    assert isinstance(found, gzarr.ome.Scene)
    return found


def test_images_of_a_scene_know_its_coordinate_systems(scene: gzarr.ome.Scene) -> None:
    for path, ((y, x), turned) in TILES.items():
        image = scene[path]
        there, back = image.coordinate_map(0, "world"), image.coordinate_map("world", 0)
        expected = [(y + 3) / 2, (x + 13 - 2) / 2] if turned else [(y + 2) / 2, (x + 3) / 2]
        np.testing.assert_allclose(there([2, 3]), expected)
        np.testing.assert_allclose(back(expected), [2, 3])
        np.testing.assert_allclose(image.coordinate_map(0, "physical")([2, 3]), [1, 1.5])
    for wrong in (None, True, 1.5, ("one",), (1, 0), ("one", 0, 0)):
        with pytest.raises(ArgumentError, match="needs the name of a coordinate system"):
            scene["one"].coordinate_map("world", wrong)  # type: ignore[arg-type]
    alone = gzarr.ome.open(scene.group.store, path="one")
    assert isinstance(alone, gzarr.ome.Image)
    with pytest.raises(ArgumentError, match="no coordinate system 'world'"):
        alone.coordinate_map(0, "world")


@pytest.mark.parametrize("path", TILES)
def test_a_box_of_the_world(path: str, scene: gzarr.ome.Scene) -> None:
    image, ((y, x), turned) = scene[path], TILES[path]
    for (row, column), (height, width) in itertools.product([(5, 13), (7, 12)], [(3, 1), (1, 1), (6, 2)]):
        # From one element of the mosaic on, a box that begins a quarter of one before its centre.
        size = height / 2, width / 2
        center = {"y": row / 2 - 0.25 + size[0] / 2, "x": column / 2 - 0.25 + size[1] / 2}
        box = image.read_um(center, dict(zip("yx", size, strict=True)), system="world")
        rows = slice(row, min(row + height, y + 14))
        columns = slice(column, min(column + width, x + 14))
        expected = MOSAIC[rows, columns]
        np.testing.assert_array_equal(box, expected[:, ::-1].T if turned else expected)


def test_tiles_show_the_same_where_they_overlap(scene: gzarr.ome.Scene) -> None:
    turn = np.radians(20)
    matrix = 0.2 * np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    # The tiles share the elements (4…13, 12…13), of which this is a strip.
    options: dict[str, Any] = {"centre": (4.25, 6.25), "shape": (6, 1), "dtype": "f4", "level": 0}
    one, two = (gzarr.read_affine(scene[path], matrix, system="world", **options) for path in TILES)
    np.testing.assert_allclose(one, two, rtol=1e-5)
    expected = ndimage.affine_transform(
        MOSAIC.astype("f4"), matrix * 2, np.array(options["centre"]) * 2 - matrix @ [2.5, 0] * 2, (6, 1), order=1
    )
    np.testing.assert_allclose(one, expected, rtol=1e-5)
