"""Transformations between coordinate systems: by the functions in the specification, by SciPy, and by ngff-zarr."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ngff_zarr.ngff_transform_to_itk_transform import _homogeneous_from_transform
from ngff_zarr.v06 import zarr_metadata as v06
from scipy import ndimage
from support import ngff_suites
from support.coordinate_systems import axes, link, put_image, system

import gzarr
from gzarr.errors import ArgumentError, MetadataError, NodeNotFoundError, UnsupportedError
from gzarr.ome.transforms.building import Builder


def image_with(*further: Any, systems: tuple[Any, ...] = (), **options: Any) -> gzarr.ome.Image:
    values: dict[str, bytes] = {}
    put_image(values, "", further=list(further), systems=list(systems), **options)
    image = gzarr.ome.open(values)
    assert isinstance(image, gzarr.ome.Image)
    return image


def map_in(document: dict[str, Any], index: int = 0) -> Any:
    """Return the map of a transformation in an example of the specification."""
    transformation = document["coordinateTransformations"][index]
    lengths = {one["name"]: len(one["axes"]) for one in document["coordinateSystems"]}
    ends = []
    for name in ("input", "output"):
        end = transformation[name]
        ends.append(lengths[end if isinstance(end, str) else end["name"]])
    return Builder(gzarr.open_group({}, mode="w")).map_of(transformation, "$", *ends)


def example(name: str) -> dict[str, Any]:
    document: dict[str, Any] = ngff_suites.example("0.6", f"transformations/{name}.json")
    return document


@pytest.mark.parametrize(
    ("name", "index", "point", "expected"),
    [
        ("identity", 0, (3, 4), (3, 4)),
        ("mapAxis1", 0, (3, 4), (3, 4)),
        ("mapAxis1", 1, (3, 4), (4, 3)),
        ("projectAxis", 0, (3, 4), (0, 0, 3, 4)),
        ("projectAxis2", 0, (9, 3, 4), (0, 3, 4)),
        ("affine2d2d", 0, (3, 4), (1 * 3 + 2 * 4 + 3, 4 * 3 + 5 * 4 + 6)),
        # As a matrix is defined; the text beside this example takes the first column for what is added.
        ("affine2d3d", 0, (3, 4), (3, 2 * 3 + 3 * 4 + 4, 5 * 3 + 6 * 4 + 7)),
        ("affine2d2d_with_channel", 0, (9, 3, 4), (9, 3 + 2 * 4 + 3, 4 * 3 + 5 * 4 + 6)),
        ("rotation", 0, (3, 4), (-4, 3)),
        ("byDimension1", 0, (3, 4), (6, 3)),
    ],
)
def test_functions_of_the_specification(
    name: str, index: int, point: tuple[float, ...], expected: tuple[float, ...]
) -> None:
    found = map_in(example(name), index)
    np.testing.assert_array_equal(found(point), expected)
    np.testing.assert_array_equal(found([[point, point]]), [[expected, expected]])
    matrix = found.matrix
    np.testing.assert_array_equal(matrix[:, :-1] @ point + matrix[:, -1], expected)


@pytest.mark.parametrize("name", ["byDimensionInvalid1", "byDimensionInvalid2"])
def test_invalid_examples(name: str) -> None:
    with pytest.raises(MetadataError, match=r"each axis of the output|an integer from 0"):
        map_in(example(name))


# -- random transformations, beside ngff-zarr

numbers = st.floats(-8, 8, width=32)


@st.composite
def transformations(draw: st.DrawFn, ndim: int, depth: int = 0) -> dict[str, Any]:
    """Return a transformation with as many axes before as after."""
    kinds = ["identity", "scale", "translation", "affine", "rotation"]
    kinds += ["mapAxis"] if ndim > 1 else []
    kinds += ["sequence", "byDimension", "bijection"] if depth < 2 else []
    kind = draw(st.sampled_from(kinds))
    row = st.lists(numbers, min_size=ndim, max_size=ndim)
    members: dict[str, Any] = {}
    if kind == "scale":
        members["scale"] = draw(st.lists(st.floats(0.125, 8, width=32), min_size=ndim, max_size=ndim))
    elif kind == "translation":
        members["translation"] = draw(row)
    elif kind == "affine":
        line = st.lists(numbers, min_size=ndim + 1, max_size=ndim + 1)
        members["affine"] = draw(st.lists(line, min_size=ndim, max_size=ndim))
    elif kind == "rotation":
        members["rotation"] = np.eye(ndim)[draw(st.permutations(range(ndim)))].tolist()
    elif kind == "mapAxis":
        members["mapAxis"] = draw(st.permutations(range(ndim)))
    elif kind == "sequence":
        members["transformations"] = draw(st.lists(transformations(ndim, depth + 1), min_size=1, max_size=3))
    elif kind == "byDimension":
        inputs, outputs = draw(st.permutations(range(ndim))), draw(st.permutations(range(ndim)))
        cut = draw(st.integers(1, ndim))
        parts = [(inputs[:cut], outputs[:cut]), (inputs[cut:], outputs[cut:])]
        members["transformations"] = [
            {"inputAxes": list(a), "outputAxes": list(b), "transformation": draw(transformations(len(a), depth + 1))}
            for a, b in parts
            if a
        ]
    elif kind == "bijection":
        members["forward"] = draw(transformations(ndim, depth + 1))
        members["inverse"] = draw(transformations(ndim, depth + 1))
    return {"type": kind, **members}


def of_ngff_zarr(document: dict[str, Any]) -> Any:
    kind = document["type"]
    if kind == "sequence":
        return v06.TransformSequence(transformations=[of_ngff_zarr(item) for item in document["transformations"]])
    if kind == "bijection":
        return v06.Bijection(forward=of_ngff_zarr(document["forward"]), inverse=of_ngff_zarr(document["inverse"]))
    if kind == "byDimension":
        items = [
            v06.ByDimensionItem(
                transformation=of_ngff_zarr(item["transformation"]),
                inputAxes=item["inputAxes"],
                outputAxes=item["outputAxes"],
            )
            for item in document["transformations"]
        ]
        return v06.ByDimension(transformations=items)
    classes = {
        "identity": v06.Identity,
        "scale": v06.Scale,
        "translation": v06.Translation,
        "affine": v06.Affine,
        "rotation": v06.Rotation,
        "mapAxis": v06.MapAxis,
    }
    return classes[kind](**{name: value for name, value in document.items() if name != "type"})


@settings(deadline=None, max_examples=60)
@given(data=st.data(), ndim=st.integers(1, 4))
def test_any_chain_is_as_of_ngff_zarr(data: st.DataObject, ndim: int) -> None:
    document = data.draw(transformations(ndim))
    found = Builder(gzarr.open_group({}, mode="w")).map_of(document, "$", ndim, ndim)
    points = np.array(data.draw(st.lists(st.lists(numbers, min_size=ndim, max_size=ndim), min_size=1, max_size=5)))
    whole = _homogeneous_from_transform(of_ngff_zarr(document), ndim)
    expected = points @ whole[:ndim, :ndim].T + whole[:ndim, ndim]
    np.testing.assert_allclose(found(points), expected, rtol=1e-9, atol=1e-6)
    if found.matrix is not None:
        np.testing.assert_allclose(found.matrix, whole[:ndim], rtol=1e-9, atol=1e-6)
    if "bijection" in json.dumps(document):
        return
    linear = whole[:ndim, :ndim]
    if abs(np.linalg.det(linear)) > 1e-3 and np.linalg.cond(linear) < 1e6:
        back = found.inverse()(found(points))
        np.testing.assert_allclose(back, points, rtol=1e-6, atol=1e-5)


# -- images


def test_levels_and_systems() -> None:
    image = image_with(
        link("physical", "turned", type="mapAxis", mapAxis=[1, 0]),
        link("stage", "turned", type="translation", translation=[100.0, 0.0]),
        systems=(system("turned", "yx"), system("stage", "yx")),
    )
    np.testing.assert_array_equal(image.coordinate_map(0, "physical")([2, 2]), [4, 1])
    np.testing.assert_array_equal(image.coordinate_map(1, 0)([0, 0]), [0.5, 0.5])
    np.testing.assert_array_equal(image.coordinate_map(-1, 0)([0, 0]), [0.5, 0.5])
    np.testing.assert_array_equal(image.coordinate_map(0, "turned")([2, 2]), [1, 4])
    # Backwards through the second.
    np.testing.assert_array_equal(image.coordinate_map(0, "stage")([2, 2]), [-99, 4])
    np.testing.assert_array_equal(image.coordinate_map("stage", 0)([-99, 4]), [2, 2])
    np.testing.assert_array_equal(image.coordinate_map("stage", "stage")([5, 6]), [5, 6])


def test_images_before_0_6() -> None:
    image = gzarr.ome.create({}, np.zeros((4, 8, 8), "u1"), axes="zyx", scale=(2, 0.5, 0.5), units="micrometer")
    np.testing.assert_array_equal(image.coordinate_map(0, "physical")([1, 10, 10]), [2, 5, 5])
    np.testing.assert_array_equal(image.coordinate_map("physical", 0)([2, 5, 5]), [1, 10, 10])


def test_labels_of_an_image() -> None:
    values: dict[str, bytes] = {}
    further = [link("physical", ("labels/cells", "own"), type="scale", scale=[0.5, 0.5])]
    put_image(values, "", further=further)
    put_image(values, "labels/cells", systems=[system("own", "yx")],
              further=[link("physical", "own", type="identity")])  # fmt: skip
    image = gzarr.ome.open(values)
    assert isinstance(image, gzarr.ome.Image)
    np.testing.assert_array_equal(image.coordinate_map(0, ("labels/cells", 0))([4, 4]), [2, 2])


def test_texts_as_references() -> None:
    """Drafts of the version had names of coordinate systems, not objects."""
    image = image_with(
        {"type": "scale", "scale": [3, 3], "input": "physical", "output": "wide"}, systems=(system("wide", "yx"),)
    )
    np.testing.assert_array_equal(image.coordinate_map("physical", "wide")([1, 2]), [3, 6])
    assert any("expected an object" in problem.text for problem in image.metadata.problems)


def test_by_dimension_as_in_drafts() -> None:
    """Drafts of the version had the axes beside the members of each transformation."""
    parts = [
        {"type": "scale", "scale": [10], "input_axes": [1], "output_axes": [0]},
        {"type": "translation", "translation": [5], "input_axes": [0], "output_axes": [1]},
    ]
    further = link("physical", "wide", type="byDimension", transformations=parts)
    image = image_with(further, systems=(system("wide", "yx"),))
    np.testing.assert_array_equal(image.coordinate_map("physical", "wide")([1, 2]), [20, 6])
    np.testing.assert_array_equal(image.coordinate_map("wide", "physical")([20, 6]), [1, 2])
    assert any("lacks 'transformation'" in problem.text for problem in image.metadata.problems)
    parts[0]["output_axes"] = [0, 1]
    image = image_with(further, systems=(system("wide", "yx"),))
    with pytest.raises(MetadataError, match="an axis for each of the 1 coordinates"):
        image.coordinate_map("physical", "wide")


def test_arguments() -> None:
    image = image_with(systems=(system("other", "yx"),))
    with pytest.raises(ArgumentError, match="there is no chain of transformations"):
        image.coordinate_map(0, "other")
    with pytest.raises(ArgumentError, match="no coordinate system 'third'; it has 'physical', 'other', 0, 1"):
        image.coordinate_map(0, "third")
    with pytest.raises(ArgumentError, match="no coordinate system of level 5"):
        image.coordinate_map(5, "physical")
    with pytest.raises(ArgumentError, match="needs the name of a coordinate system or the index of a level"):
        image.coordinate_map(True, "physical")
    with pytest.raises(NodeNotFoundError, match="image 'labels/none'"):
        image.coordinate_map(0, ("labels/none", 0))
    found = image.coordinate_map(0, "physical")
    for wrong in ([1, 2, 3], 5, "ab", [1j, 2], [[1, 2], [3]]):
        with pytest.raises(ArgumentError, match="points="):
            found(wrong)


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"type": "scale", "scale": [1, 2, 3]}, "2 numbers"),
        ({"type": "affine", "affine": [[1, 0], [0, 1]]}, "any × 3 numbers"),
        ({"type": "affine", "affine": [[1, 0, 0], [0, 1]]}, "any × 3 numbers"),
        ({"type": "affine", "affine": [[1, 0, 0]]}, "transformation to 2 axes, got one to 1"),
        ({"type": "affine"}, "lacks 'affine'"),
        ({"type": "affine", "affine": [[1, 0, 10**400], [0, 1, 0]]}, "a number that a float can hold"),
        ({"type": "affine", "path": "0"}, "any × 3 numbers"),
        ({"type": "rotation", "rotation": [[1]]}, "2 × 2 numbers"),
        ({"type": "mapAxis", "mapAxis": [0, 0]}, "each of the 2 axes once"),
        ({"type": "mapAxis", "mapAxis": [0, 2]}, "integer from 0 to 1"),
        ({"type": "projectAxis", "droppedInputs": [0, 0]}, "all differ"),
        ({"type": "projectAxis", "createdOutputs": [7]}, "indexes of the 3 axes"),
        ({"type": "warp"}, "a known type"),
        ({"type": "sequence", "transformations": []}, "at least 1 item"),
        ({"type": "displacements"}, "lacks 'path'"),
        ({"type": "displacements", "path": "0"}, "an axis of type 'displacement' and 2 others"),
        ({"type": "coordinates", "path": "0", "interpolation": "sinc"}, "one of 'nearest'"),
        ({"type": "byDimension", "transformations": [
            {"inputAxes": [0], "outputAxes": [0, 1], "transformation": {"type": "identity"}}]}, "an axis for each"),
    ],
)  # fmt: skip
def test_what_cannot_be_read(members: dict[str, Any], message: str) -> None:
    image = image_with(link("physical", "other", **members), systems=(system("other", "yx"),))
    with pytest.raises(MetadataError, match=message) as failure:
        image.coordinate_map(0, "other")
    assert failure.value.json_path.startswith("$.ome.multiscales[0].coordinateTransformations[0]")
    # What does not need it is found all the same.
    image.coordinate_map(0, "physical")


def test_nesting_is_bounded() -> None:
    document: dict[str, Any] = {"type": "identity"}
    for _ in range(40):
        document = {"type": "sequence", "transformations": [document]}
    image = image_with(link("physical", "other", **document), systems=(system("other", "yx"),))
    with pytest.raises(MetadataError, match="at most 16"):
        image.coordinate_map(0, "other")


def test_what_has_no_inverse() -> None:
    image = image_with(
        link("physical", "flat", type="projectAxis", droppedInputs=[0]),
        link("physical", "line", type="affine", affine=[[1, 1, 0], [2, 2, 0]]),
        systems=(system("flat", "yx"), system("line", "yx")),
    )
    with pytest.raises(MetadataError, match="transformation to 2 axes, got one to 1"):
        image.coordinate_map(0, "flat")
    np.testing.assert_array_equal(image.coordinate_map("physical", "line")([1, 2]), [3, 6])
    with pytest.raises(UnsupportedError, match="has no inverse"):
        image.coordinate_map("line", 0)


def test_a_longer_way_is_taken_where_the_short_one_has_no_inverse() -> None:
    image = image_with(
        link("physical", "other", type="affine", affine=[[1, 1, 0], [2, 2, 0]]),
        link("middle", "physical", type="scale", scale=[2, 2]),
        link("other", "middle", type="identity"),
        systems=(system("other", "yx"), system("middle", "yx")),
    )
    np.testing.assert_array_equal(image.coordinate_map("other", "physical")([1, 2]), [2, 4])


# -- fields


def put_field(values: dict[str, bytes], path: str, vectors: Any, kind: str, scale: Any, first: Any) -> None:
    group = gzarr.open_group(values, path=path, mode="a")
    group.create_array("s0", data=vectors, chunks=(vectors.shape[0], 3, 4)[: vectors.ndim])
    described = [{"name": "c", "type": kind, "discrete": True}, *axes("yx"[: vectors.ndim - 1])]
    steps = [
        {"type": "scale", "scale": [1, *scale]},
        {"type": "translation", "translation": [0, *first]},
    ]
    only = {"type": "sequence", "transformations": steps, "input": {"path": "s0"}, "output": {"name": "physical"}}
    group.attrs["ome"] = {
        "version": "0.6rc0",
        "multiscales": [
            {
                "coordinateSystems": [{"name": "physical", "axes": described}],
                "datasets": [{"path": "s0", "coordinateTransformations": [only]}],
            }
        ],
    }


@pytest.mark.parametrize("path", ["field", "/field", "field/s0"])
@pytest.mark.parametrize("kind", ["displacement", "coordinate"])
@pytest.mark.parametrize("interpolation", ["nearest", "linear", "bspline-cubic", None])
def test_fields_are_as_scipy_interpolates(kind: str, interpolation: str | None, path: str) -> None:
    rng = np.random.default_rng(5)
    vectors = rng.normal(size=(2, 40, 50)).astype("f4")
    values: dict[str, bytes] = {}
    members = {} if interpolation is None else {"interpolation": interpolation}
    further = [link("physical", "warped", type=f"{kind}s", path=path, **members)]
    put_image(values, "", further=further, systems=[system("warped", "yx")])
    put_field(values, "field", vectors, kind, (2.0, 0.5), (-4.0, 1.0))
    image = gzarr.ome.open(values)
    assert isinstance(image, gzarr.ome.Image)
    found = image.coordinate_map("physical", "warped")
    assert found.matrix is None
    at = rng.uniform((0, 0), (39, 49), size=(200, 2))
    at[:4] = [[0, 0], [39, 49], [3, 4], [39, 0]]
    points = at * (2.0, 0.5) + (-4.0, 1.0)
    order = {"nearest": 0, "linear": 1, None: 1, "bspline-cubic": 3}[interpolation]
    where = np.floor(at + 0.5) if order == 0 else at
    expected = np.stack(
        [ndimage.map_coordinates(v.astype("f8"), where.T, order=order, mode="mirror") for v in vectors], -1
    )
    expected += points if kind == "displacement" else 0
    np.testing.assert_allclose(found(points), expected, rtol=1e-9, atol=1e-9)
    outside = np.array([[-5.0, 3.0], [0.0, 0.9], [75.0, 3.0], [0.0, 26.0]])
    assert np.isnan(found(outside)).all()
    with pytest.raises(UnsupportedError, match="no inverse in closed form"):
        found.inverse()


def test_a_few_points_read_a_few_chunks() -> None:
    values: dict[str, bytes] = {}
    further = [link("physical", "warped", type="displacements", path="field")]
    put_image(values, "", further=further, systems=[system("warped", "yx")])
    put_field(values, "field", np.ones((2, 30, 40)), "displacement", (1.0, 1.0), (0.0, 0.0))
    image = gzarr.ome.open(values)
    assert isinstance(image, gzarr.ome.Image)
    # All other chunks are gone.
    for key in [key for key in values if key.startswith("field/s0/c/") and not key.endswith("/1/1")]:
        values[key] = b"not a chunk"
    found = image.coordinate_map("physical", "warped")
    np.testing.assert_array_equal(found([[3, 4], [5, 7]]), [[4, 5], [6, 8]])
    with pytest.raises(gzarr.errors.ChunkError):
        found([[3, 4], [9, 4]])


def test_points_far_from_each_other_are_looked_up_apart() -> None:
    """Between the corners of this field are 160 GB of vectors."""
    values: dict[str, bytes] = {}
    further = [link("physical", "warped", type="displacements", path="field")]
    put_image(values, "", further=further, systems=[system("warped", "yx")])
    put_field(values, "field", np.ones((2, 4, 4)), "displacement", (1.0, 1.0), (0.0, 0.0))
    gzarr.open_array(values, path="field/s0", mode="r+").resize((2, 100_000, 100_000))
    image = gzarr.ome.open(values)
    assert isinstance(image, gzarr.ome.Image)
    points = [[0, 0], [99_999, 99_999], [0, 99_999], [1.5, 2], [99_999, 0], [50_000, 3]]
    expected = np.array(points, float)
    expected[[0, 3]] += 1
    np.testing.assert_array_equal(image.coordinate_map("physical", "warped")(points), expected)


def test_a_bijection_has_an_inverse() -> None:
    values: dict[str, bytes] = {}
    forward, inverse = ({"type": "displacements", "path": name} for name in ("there", "back"))
    further = [link("physical", "warped", type="bijection", forward=forward, inverse=inverse)]
    put_image(values, "", further=further, systems=[system("warped", "yx")])
    shift = np.broadcast_to(np.array([1.0, -2.0])[:, None, None], (2, 30, 40))
    put_field(values, "there", shift, "displacement", (1.0, 1.0), (0.0, 0.0))
    put_field(values, "back", -shift, "displacement", (1.0, 1.0), (0.0, 0.0))
    image = gzarr.ome.open(values)
    assert isinstance(image, gzarr.ome.Image)
    np.testing.assert_array_equal(image.coordinate_map(0, "warped")([2, 12]), [5, 4])
    np.testing.assert_array_equal(image.coordinate_map("warped", 0)([5, 4]), [2, 12])


def test_inverses_of_maps_without_a_matrix() -> None:
    """Steps are undone from the last one to the first, and input and output axes of parts are exchanged."""

    def bijection(name: str) -> dict[str, Any]:
        forward, inverse = ({"type": "displacements", "path": f"{name}-{way}"} for way in ("there", "back"))
        return {"type": "bijection", "forward": forward, "inverse": inverse}

    values: dict[str, bytes] = {}
    steps = [{"type": "scale", "scale": [2, 4]}, bijection("plane")]
    parts = [
        {"transformation": bijection("line"), "inputAxes": [0], "outputAxes": [1]},
        {"transformation": {"type": "scale", "scale": [10]}, "inputAxes": [1], "outputAxes": [0]},
    ]
    further = [
        link("physical", "warped", type="sequence", transformations=steps),
        link("physical", "mixed", type="byDimension", transformations=parts),
    ]
    put_image(values, "", further=further, systems=[system("warped", "yx"), system("mixed", "yx")])
    for name, shift in (("plane", np.full((2, 30, 40), 3.0)), ("line", np.full((1, 30), 5.0))):
        zeros = (0.0,) * (shift.ndim - 1)
        put_field(values, f"{name}-there", shift, "displacement", np.add(zeros, 1.0).tolist(), zeros)
        put_field(values, f"{name}-back", -shift, "displacement", np.add(zeros, 1.0).tolist(), zeros)
    image = gzarr.ome.open(values)
    assert isinstance(image, gzarr.ome.Image)
    for name, expected in (("warped", [11, 27]), ("mixed", [60, 9])):
        np.testing.assert_array_equal(image.coordinate_map("physical", name)([4, 6]), expected)
        np.testing.assert_array_equal(image.coordinate_map(name, "physical")(expected), [4, 6])


def test_matrices_in_arrays() -> None:
    values: dict[str, bytes] = {}
    further = [link("physical", "other", type="affine", path="matrices/m")]
    put_image(values, "", further=further, systems=[system("other", "yx")])
    gzarr.open_group(values, mode="a").create_array("matrices/m", data=np.array([[1, 2, 3], [4, 5, 6]], "f4"))
    image = gzarr.ome.open(values)
    assert isinstance(image, gzarr.ome.Image)
    np.testing.assert_array_equal(image.coordinate_map("physical", "other")([3, 4]), [14, 38])
