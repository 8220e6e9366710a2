"""Images before version 0.6 whose transformations have coordinate systems with names, as SpatialData writes them.

The transformations are as spatialdata 0.7.3 writes them, and the matrices are what its ``get_transformation(element,
name).to_affine_matrix(axes, axes)`` gives.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import ndimage

import gzarr
from gzarr.errors import ArgumentError, UnsupportedError

pytestmark = pytest.mark.filterwarnings("ignore::gzarr.ome.MetadataWarning")

DATA = np.arange(2 * 24 * 32, dtype="u2").reshape(2, 24, 32)


def axes_of(names: str) -> list[dict[str, str]]:
    return [
        {"name": name, "type": "channel"} if name == "c" else {"name": name, "type": "space", "unit": "unit"}
        for name in names
    ]


def named(document: dict[str, Any], output: str, source: str = "cyx", target: str | None = None) -> dict[str, Any]:
    ends = {
        "input": {"name": source, "axes": axes_of(source)},
        "output": {"name": output, "axes": axes_of(target or source)},
    }
    return {**document, **ends}


def scale(*numbers: float) -> dict[str, Any]:
    return {"type": "scale", "scale": list(numbers)}


def translation(*numbers: float) -> dict[str, Any]:
    return {"type": "translation", "translation": list(numbers)}


AFFINE = {"type": "affine", "affine": [[1.0, 0.0, 0.0, 0.0], [0.0, -0.2, 0.5, 10.0], [0.0, 2.0, 0.3, 20.0]]}
DIAGONAL = {"type": "affine", "affine": [[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 2.0, 10.0], [0.0, 3.0, 0.0, 20.0]]}
STEPS = [named(scale(1.0, 3.0, 2.0), "global"), named(translation(0.0, 7.0, 5.0), "global")]
HALF, TRIPLE, MOVED = scale(1.0, 0.5, 0.5), scale(1.0, 3.0, 3.0), translation(0.0, 200.0, 100.0)


def opened(*transforms: dict[str, Any], data: Any = DATA, axes: str = "cyx", levels: int = 2) -> gzarr.ome.Image:
    """Return an image as SpatialData writes it."""
    store: dict[str, bytes] = {}
    gzarr.ome.create(store, data, axes=axes, levels=levels, method="mode")
    group = gzarr.open_group(store, mode="r+")
    document = dict(group.attrs["ome"])
    document["multiscales"][0]["coordinateTransformations"] = list(transforms)
    group.attrs["ome"] = {**document, "version": "0.5-dev-spatialdata"}
    image = gzarr.ome.open(store, mode="r+")
    assert isinstance(image, gzarr.ome.Image)
    return image


def matrix(image: gzarr.ome.Image, system: str) -> Any:
    """Return the map from level 0 to a system, of the axes y and x."""
    found = image.coordinate_map(0, system).matrix
    assert found is not None
    return found[1:, 1:].tolist()


@pytest.mark.parametrize(
    ("transform", "expected"),
    [
        ((HALF, None), [[0.5, 0.0, 0.0], [0.0, 0.5, 0.0]]),
        ((MOVED, None), [[1.0, 0.0, 200.0], [0.0, 1.0, 100.0]]),
        (({"type": "identity"}, None), [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]),
        (({"type": "mapAxis", "mapAxis": {"x": "y", "y": "x"}}, None), [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]),
        ((AFFINE, "cxy"), [[2.0, 0.3, 20.0], [-0.2, 0.5, 10.0]]),
        ((DIAGONAL, "cxy"), [[3.0, 0.0, 20.0], [0.0, 2.0, 10.0]]),
        (({"type": "sequence", "transformations": STEPS}, None), [[3.0, 0.0, 7.0], [0.0, 2.0, 5.0]]),
        (
            ({"type": "sequence", "transformations": [*STEPS, named(AFFINE, "global", target="cxy")]}, "cxy"),
            [[6.0, 0.6, 35.5], [-0.6000000000000001, 1.0, 11.1]],
        ),
    ],
    ids=["scale", "translation", "identity", "mapAxis", "affine", "diagonal", "sequence", "sequence-affine"],
)
def test_matrices_are_those_of_spatialdata(transform: tuple[Any, str | None], expected: Any) -> None:
    document, target = transform
    several = opened(named(TRIPLE, "aligned"), named(document, "own", target=target), named(MOVED, "moved"))
    assert matrix(several, "own") == expected
    assert matrix(several, "moved") == [[1.0, 0.0, 200.0], [0.0, 1.0, 100.0]]
    # Of one system to another.
    own, aligned = np.vstack([expected, [0, 0, 1]]), np.diag([3.0, 3.0, 1.0])
    found = several.coordinate_map("own", "aligned").matrix
    assert found is not None
    np.testing.assert_allclose(found[1:, 1:], (aligned @ np.linalg.inv(own))[:2], atol=1e-12)
    # Level 1 has its own scale and translation before it.
    second = np.array([[2.0, 0.0, 0.5], [0.0, 2.0, 0.5], [0.0, 0.0, 1.0]])
    found = several.coordinate_map(1, "own").matrix
    assert found is not None
    np.testing.assert_allclose(found[1:, 1:], (own @ second)[:2], atol=1e-12)
    only = opened(named(document, "own", target=target))
    assert matrix(only, "physical") == expected
    assert only.system == "own"
    if expected[0][1] == expected[1][0] == 0:
        assert only.scale == (1.0, expected[0][0], expected[1][1])
        assert only.translation == (0.0, expected[0][2], expected[1][2])
    else:
        with pytest.raises(UnsupportedError, match=r"\[\*\]\.coordinateTransformations.*system 'own'"):
            _ = only.scale


def test_the_default_of_spatialdata_is_the_one_of_scale() -> None:
    image = opened(named(TRIPLE, "aligned"), named(HALF, "global"), named(MOVED, "moved"))
    assert (image.system, image.scale, image.translation) == ("global", (1.0, 0.5, 0.5), (0.0, 0.0, 0.0))
    assert [level.scale for level in image.levels] == [(1.0, 0.5, 0.5), (1.0, 1.0, 1.0)]
    expected = DATA[:, 9:12, 15:18]
    assert np.array_equal(image.read_um((5, 8), 1.5), expected)
    assert np.array_equal(image.read_um((5, 8), 1.5, system="global"), expected)
    assert np.array_equal(image.read_um((5, 8), 1.5, system="physical"), expected)
    assert np.array_equal(image.read_um((30, 48), 9, system="aligned"), expected)
    assert np.array_equal(image.read_um((210, 116), 3, system="moved"), expected)
    assert np.array_equal(
        gzarr.read_affine(image, (0.5, 0.5), offset=(4.5, 7.5), shape=(3, 3), system="global"), expected
    )
    assert np.array_equal(gzarr.read_affine(image, (3, 3), offset=(27, 45), shape=(3, 3), system="aligned"), expected)


def test_several_without_a_default_are_refused_by_name() -> None:
    image = opened(named(TRIPLE, "aligned"), named(AFFINE, "turned", target="cxy"))
    assert image.system is None
    for call in (
        lambda: image.scale,
        lambda: image.levels,
        lambda: image.read_um((1, 1), 1),
        image.to_xarray,
        lambda: gzarr.read_affine(image, (1, 1), shape=(2, 2)),
    ):
        with pytest.raises(UnsupportedError, match="systems 'aligned', 'turned', and does not say"):
            call()
    assert np.array_equal(image.read_um((30, 48), 9, system="aligned"), DATA[:, 9:12, 15:18])
    assert np.array_equal(
        gzarr.read_affine(image, (3, 3), offset=(27, 45), shape=(3, 3), system="aligned"), DATA[:, 9:12, 15:18]
    )
    with pytest.raises(UnsupportedError, match="rotated"):
        image.read_um((30, 48), 9, system="turned")
    # What compares levels does not need the place of the image.
    assert image.read("auto", pixels=500).shape == (2, 12, 16)
    assert image.thumbnail(16)


def test_levels_are_not_moved_below_coordinate_systems_with_names() -> None:
    image = opened(named(HALF, "global"))
    before = dict(image.group.attrs["ome"])
    with pytest.raises(UnsupportedError, match="coordinate systems with names"):
        image.update_metadata(scale=(1, 2, 2))
    assert image.group.attrs["ome"] == before


UNNAMED = {"type": "affine", "affine": [[1, 0, 0, 0], [0, 1, 0.2, 3], [0, 0.1, 2, 4]]}


def test_channels_need_no_scale() -> None:
    image = opened(UNNAMED)
    image.update_metadata(channels=["A", "B"])
    assert [channel.label for channel in image.channels] == ["A", "B"]
    with pytest.raises(UnsupportedError, match=r"^\$\.\.multiscales\[\*\]\.coordinateTransformations"):
        _ = image.scale


@pytest.mark.parametrize(
    ("transforms", "expected"),
    [
        ([UNNAMED], [{"type": "affine", "affine": [[1.0, 0.2, 3.0], [0.1, 2.0, 4.0]]}]),
        (
            [named(HALF, "global"), named(AFFINE, "turned", target="cxy")],
            [
                {
                    **scale(0.5, 0.5),
                    "input": {"name": "cyx", "axes": axes_of("yx")},
                    "output": {"name": "global", "axes": axes_of("yx")},
                },
                {
                    "type": "affine",
                    "affine": [[2.0, 0.3, 20.0], [-0.2, 0.5, 10.0]],
                    "input": {"name": "cyx", "axes": axes_of("yx")},
                    "output": {"name": "turned", "axes": axes_of("yx")},
                },
            ],
        ),
    ],
    ids=["unnamed", "named"],
)
def test_labels_have_the_transformations_of_their_image(transforms: list[Any], expected: list[Any]) -> None:
    image = opened(*transforms)
    mask = (DATA[0] % 5).astype("u1")
    flat = gzarr.ome.create_labels(image.group.store, "flat", mask)
    document = flat.group.attrs["ome"]["multiscales"][0]
    if len(transforms) == 2:
        # Units that stand for none are left out.
        for one in expected:
            for end in ("input", "output"):
                one[end]["axes"] = [{"name": a["name"], "type": a["type"]} for a in one[end]["axes"]]
        assert flat.coordinate_map(0, "turned").matrix.tolist() == expected[1]["affine"]  # type: ignore[union-attr]
        assert flat.scale == (0.5, 0.5)
    assert document["coordinateTransformations"] == expected
    own = image.group.attrs["ome"]["multiscales"][0]["datasets"]
    assert document["datasets"] == [
        {
            "path": dataset["path"],
            "coordinateTransformations": [
                {kind: step[kind] if kind == "type" else step[kind][1:] for kind in step}
                for step in dataset["coordinateTransformations"]
            ],
        }
        for dataset in own
    ]
    whole = gzarr.ome.create_labels(image.group.store, "whole", np.stack([mask, mask]))
    assert whole.group.attrs["ome"]["multiscales"][0]["coordinateTransformations"] == transforms
    with pytest.raises(ArgumentError, match="scale= and translation="):
        gzarr.ome.create_labels(image.group.store, "other", mask, scale=(2, 2))


def test_levels_are_added_below_a_transformation_that_is_no_scale() -> None:
    image = opened(UNNAMED, levels=1)
    gzarr.ome.pyramid(image.group.store, levels=2, method="max", progress=False)
    after = gzarr.ome.open(image.group.store)
    assert isinstance(after, gzarr.ome.Image)
    assert np.array_equal(after.read(1, c=0), ndimage.maximum_filter(DATA[0], 2, origin=-1)[::2, ::2])
    assert after.group.attrs["ome"]["multiscales"][0]["coordinateTransformations"] == [UNNAMED]


def test_options_of_reads() -> None:
    data = DATA.copy()
    data[:, :, 16:] = 0
    store: dict[str, bytes] = {}
    gzarr.ome.create(store, data, axes="cyx", levels=1, chunks=(1, 24, 16))
    image = gzarr.ome.open(store)
    assert isinstance(image, gzarr.ome.Image)
    found = image.read(c=1, dtype="f4", verify="none", decode="cpu")
    assert found.dtype == "f4"
    assert np.array_equal(found, data[1])
    found = image.read_um((5, 5), 3, dtype="f8", c=[1], missing="fill", verify="cpu", decode="auto")
    assert found.dtype == "f8"
    assert np.array_equal(found, data[1:, 4:7, 4:7])
    for call in (lambda: image.read(missing="error"), lambda: image.read_um((5, 5), 60, missing="error")):
        with pytest.raises(gzarr.ChunkError):
            call()
    with pytest.raises(ArgumentError, match="not 'dtypes'"):
        image.read(dtypes="f4")


def test_axes_with_names_of_options_are_selected_in_upper_case() -> None:
    store: dict[str, bytes] = {}
    axes = [gzarr.ome.metadata.Axis("dtype", "channel"), *(gzarr.ome.metadata.Axis(n, "space") for n in "yx")]
    gzarr.ome.create(store, DATA, axes=axes, levels=1)
    image = gzarr.ome.open(store)
    assert isinstance(image, gzarr.ome.Image)
    assert np.array_equal(image.read(DTYPE=1, dtype="f4"), DATA[1])


def test_images_without_a_scale_are_inputs_of_loaders_and_blocks() -> None:
    image = opened(named(TRIPLE, "aligned"), named(AFFINE, "turned", target="cxy"))
    (batch,) = gzarr.Loader(
        {"x": image, "y": image.level(0)}, gzarr.loader.Patches((4, 4)), batch_size=1000, drop_last=False
    )
    assert np.array_equal(batch["x"], batch["y"])
    assert np.array_equal(gzarr.blocks.map_blocks(np.negative, image)[...], np.negative(image.level(0)[...]))
