"""Pyramids of N5 as images: their levels, axes, units and transformations, and copies of them to OME-Zarr."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.counting_store import CountedDocuments
from support.n5_files import COMPRESSIONS, write_array, write_files, write_group
from support.zarr_arrays import same

import gzarr
from gzarr.cli.main import main
from gzarr.ome.checking import broken_links
from gzarr.ome.metadata.parse import parse

if TYPE_CHECKING:
    from pathlib import Path

    from support.devices import TestedDevice

DATA = (np.arange(8 * 24 * 36) * 7 % 65521).astype("u2").reshape(8, 24, 36)
#: How many elements of the first level one of each level covers, in N5's order: x, y, z.
FACTORS = ([1, 1, 1], [2, 2, 1], [6, 4, 2])


def write_levels(store: dict[str, bytes], path: str, *, factors: bool = True, **attributes: Any) -> None:
    """Write three levels; ``attributes`` are those of each."""
    for i, factor in enumerate(FACTORS):
        values = DATA[tuple(slice(None, None, n) for n in reversed(factor))]
        own = {**({"downsamplingFactors": factor} if factors and i else {}), **attributes}
        write_array(store, f"{path}/s{i}", values, (4, 8, 16), COMPRESSIONS["gzip"], **own)


def paintera() -> dict[str, bytes]:
    store: dict[str, bytes] = {}
    write_group(store, "", n5="2.5.1")
    write_group(store, "raw", painteraData={"type": "raw"})
    write_group(store, "raw/data", multiScale=True, resolution=[4, 5, 40], offset=[100, 0, -20], maxId=3)
    write_levels(store, "raw/data")
    return store


def n5_viewer() -> dict[str, bytes]:
    store: dict[str, bytes] = {}
    size = {"unit": "um", "dimensions": [0.1, 0.25, 2]}
    write_group(store, "c0", pixelResolution=size, scales=[list(factor) for factor in FACTORS])
    write_levels(store, "c0", factors=False)
    return store


def n5_viewer_by_level() -> dict[str, bytes]:
    store: dict[str, bytes] = {}
    write_levels(store, "c0", pixelResolution={"unit": "um", "dimensions": [0.1, 0.25, 2]})
    return store


def big_data_viewer() -> dict[str, bytes]:
    store: dict[str, bytes] = {}
    write_group(store, "", n5="2.0.0")
    write_group(store, "setup0", downsamplingFactors=[list(factor) for factor in FACTORS], dataType="uint16")
    write_group(store, "setup0/timepoint0", multiScale=True, resolution=[4.0, 5.0, 40.0])
    write_levels(store, "setup0/timepoint0")
    return store


def cellmap(order: str | None = None, *, by_level: bool = False) -> dict[str, bytes]:
    store: dict[str, bytes] = {}
    transforms = []
    step = -1 if order == "F" else 1
    for factor in FACTORS:
        scale = [4.0 * factor[2], 5.0 * factor[1], 6.0 * factor[0]]
        transforms.append(
            {
                "axes": ["z", "y", "x"][::step],
                "scale": scale[::step],
                "translate": [(s - f) / 2 for s, f in zip(scale, (4, 5, 6), strict=True)][::step],
                "units": ["nm"] * 3,
                **({} if order is None else {"order": order}),
            }
        )
    named = [{"path": f"s{i}", **({} if by_level else {"transform": t})} for i, t in enumerate(transforms)]
    write_group(store, "em/fibsem", multiscales=[{"name": "fibsem", "datasets": named}])
    write_levels(store, "em/fibsem")
    if by_level:
        for i, transform in enumerate(transforms):
            key = f"em/fibsem/s{i}/attributes.json"
            store[key] = json.dumps({**json.loads(store[key]), "transform": transform}).encode()
    return store


LAYOUTS: dict[str, tuple[Any, str, list[tuple[float, ...]], list[tuple[float, ...]], str | None]] = {
    # Half an element of a level less half of one of the first level, after the offset.
    "Paintera, in data": (
        paintera,
        "raw",
        [(40, 5, 4), (40, 10, 8), (80, 20, 24)],
        [(-20, 0, 100), (-20, 2.5, 102), (0, 7.5, 110)],
        None,
    ),
    "Paintera": (
        paintera,
        "raw/data",
        [(40, 5, 4), (40, 10, 8), (80, 20, 24)],
        [(-20, 0, 100), (-20, 2.5, 102), (0, 7.5, 110)],
        None,
    ),
    "N5 viewer": (
        n5_viewer,
        "c0",
        [(2, 0.25, 0.1), (2, 0.5, 0.2), (4, 1, 0.6)],
        [(0, 0, 0), (0, 0.125, 0.05), (1, 0.375, 0.25)],
        "micrometer",
    ),
    "N5 viewer, by level": (
        n5_viewer_by_level,
        "c0",
        [(2, 0.25, 0.1), (2, 0.5, 0.2), (4, 1, 0.6)],
        [(0, 0, 0), (0, 0.125, 0.05), (1, 0.375, 0.25)],
        "micrometer",
    ),
    "BigDataViewer": (
        big_data_viewer,
        "setup0/timepoint0",
        [(40, 5, 4), (40, 10, 8), (80, 20, 24)],
        [(0, 0, 0), (0, 2.5, 2), (20, 7.5, 10)],
        None,
    ),
    **{
        name: (
            make,
            "em/fibsem",
            [(4, 5, 6), (4, 10, 12), (8, 20, 36)],
            [(0, 0, 0), (0, 2.5, 3), (2, 7.5, 15)],
            "nanometer",
        )
        for name, make in (
            ("cellmap", cellmap),
            ("cellmap, order C", lambda: cellmap("C")),
            ("cellmap, order F", lambda: cellmap("F")),
            ("cellmap, by level", lambda: cellmap(by_level=True)),
        )
    },
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_levels_of_each_layout(name: str, device: TestedDevice) -> None:
    make, path, scales, translations, unit = LAYOUTS[name]
    image = gzarr.ome.open(make(), path=path, device=device.name)
    assert isinstance(image, gzarr.ome.Image)
    assert (image.axes, image.units, image.dtype) == (("z", "y", "x"), (unit,) * 3, np.dtype("u2"))
    assert [axis.type for axis in image.axis_details] == ["space"] * 3
    for level, scale, translation in zip(image.levels, scales, translations, strict=True):
        np.testing.assert_allclose(level.scale, scale)
        np.testing.assert_allclose(level.translation, translation, atol=1e-12)
    same(device.to_numpy(image.read(z=slice(2, 5), x=3)), DATA[2:5, :, 3])
    same(device.to_numpy(image.read(level=2)), DATA[::2, ::4, ::6])


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_copies_are_ome_zarr(name: str, zarr_format: Any, tmp_path: Path) -> None:
    make, path, scales, translations, unit = LAYOUTS[name]
    source = write_files(make(), tmp_path / "x.n5")
    gzarr.copy(source, tmp_path / "y.ome.zarr", path=path, zarr_format=zarr_format, read_back=True)
    group = gzarr.open_group(tmp_path / "y.ome.zarr")
    metadata = parse(group.attrs, zarr_format=zarr_format)
    assert metadata.version == ("0.4" if zarr_format == 2 else "0.5")
    assert [str(p) for p in metadata.problems if p.is_rule] == [str(p) for p in broken_links(group, metadata)] == []
    image = gzarr.ome.open(tmp_path / "y.ome.zarr")
    assert (image.axes, image.units) == (("z", "y", "x"), (unit,) * 3)
    for i, (scale, translation) in enumerate(zip(scales, translations, strict=True)):
        np.testing.assert_allclose(image.grid(i).scale, scale)
        np.testing.assert_allclose(image.grid(i).translation, translation, atol=1e-12)
        array = image.level(i)
        assert array.metadata.chunk_key_encoding.separator == "/"
        assert array.dimension_names in [("z", "y", "x"), *[None] * (zarr_format == 2)]
    same(image.read(), DATA)


def test_the_whole_hierarchy_is_copied(tmp_path: Path) -> None:
    source = {**paintera(), **cellmap()}
    gzarr.copy(source, tmp_path / "y.zarr")
    same(gzarr.ome.open(tmp_path / "y.zarr", path="em/fibsem").read(level=1), DATA[:, ::2, ::2])
    same(gzarr.ome.open(tmp_path / "y.zarr", path="raw").read(level=1), DATA[:, ::2, ::2])
    # Attributes of users stay.
    assert gzarr.open_group(tmp_path / "y.zarr", path="raw/data").attrs["maxId"] == 3
    assert "ome" not in gzarr.open_group(tmp_path / "y.zarr").attrs


def test_labels_of_paintera() -> None:
    store = paintera()
    write_group(store, "raw", painteraData={"type": "label"}, maxId=4)
    assert gzarr.ome.open(store, path="raw").image_label is not None
    # Label multisets are no numbers.
    key = "raw/data/s0/attributes.json"
    store[key] = json.dumps({**json.loads(store[key]), "isLabelMultiset": True}).encode()
    with pytest.raises(gzarr.UnsupportedError, match=r"label multisets .*varlength"):
        gzarr.ome.open(store, path="raw")


@pytest.mark.parametrize(
    ("dtype", "shape", "attributes", "axes", "scale"),
    [
        ("u1", (6, 8), {}, ("y", "x"), (3, 2)),
        ("u1", (2, 4, 6, 8), {}, ("c", "z", "y", "x"), (1, 5, 3, 2)),
        ("u1", (2, 3, 4, 6, 8), {}, ("t", "c", "z", "y", "x"), (1, 1, 5, 3, 2)),
        ("u1", (2, 4, 3, 6, 8), {"axes": ["x", "y", "c", "z", "t"]}, ("t", "z", "c", "y", "x"), (1, 5, 1, 3, 2)),
    ],
)
def test_axes(dtype: str, shape: tuple[int, ...], attributes: Any, axes: Any, scale: Any) -> None:
    """The first three dimensions of N5 are space, unless it names them; sizes are given for space only."""
    store: dict[str, bytes] = {}
    write_group(store, "a", multiScale=True, resolution=[2, 3, 5])
    write_array(store, "a/s0", np.ones(shape, dtype), shape, **attributes)
    with pytest.warns(gzarr.ome.MetadataWarning) if axes[1] == "z" and axes[2] == "c" else _nothing():
        image = gzarr.ome.open(store, path="a")
    assert (image.axes, image.grid(0).scale) == (axes, scale)


def _nothing() -> Any:
    import contextlib

    return contextlib.nullcontext()


def test_units() -> None:
    for unit, expected in (
        ("nm", "nanometer"), ("um", "micrometer"), ("µm", "micrometer"), ("micrometer", "micrometer"), ("pixel", None),
        ("", None), (None, None), (3, None), ("furlong", "furlong"),
    ):  # fmt: skip
        store: dict[str, bytes] = {}
        write_group(store, "a", pixelResolution={"dimensions": [1, 1, 1], "unit": unit})
        write_array(store, "a/s0", DATA, DATA.shape)
        assert gzarr.ome.open(store, path="a").units == (expected,) * 3


def test_levels_without_factors_have_those_of_their_lengths() -> None:
    store: dict[str, bytes] = {}
    write_group(store, "a", multiScale=True, resolution=[1, 1, 1])
    write_levels(store, "a", factors=False)
    image = gzarr.ome.open(store, path="a")
    assert [level.scale for level in image.levels] == [(1, 1, 1), (1, 2, 2), (2, 4, 6)]


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        ({"resolution": [1, "2", 3]}, r"\$.resolution: expected 3 numbers"),
        ({"resolution": 4}, r"\$.resolution: expected an array of numbers"),
        ({"resolution": [1, 1, 1], "offset": [float("nan")] * 3}, r"\$.offset: expected"),
        ({"pixelResolution": {"unit": "um"}}, r"\$.pixelResolution.dimensions: expected"),
        ({"scales": [[1, 1, 1], [0, 2, 2]]}, "expected factors above 0"),
        ({"multiscales": [{"datasets": [{"path": "s0", "transform": {"scale": [1]}}]}]}, "the names of axes"),
        ({"multiscales": [{"datasets": [3]}]}, "an object with a path"),
    ],
)
def test_malformed_sizes(attributes: dict[str, Any], text: str, tmp_path: Path) -> None:
    store: dict[str, bytes] = {}
    write_group(store, "a", **attributes)
    write_levels(store, "a", factors=False)
    with pytest.raises(gzarr.MetadataError, match=text):
        gzarr.ome.open(store, path="a")
    # The attributes may have another meaning, and the copy has them as they are.
    copied = gzarr.copy(store, {}, path="a", zarr_format=3)
    np.testing.assert_equal(dict(copied.attrs), attributes)
    # Commands that show groups show it all the same.
    directory = write_files(store, tmp_path / "x.n5")
    assert main(["tree", str(directory)]) == 0
    assert main(["info", str(directory / "a")]) == 0


def test_what_is_no_pyramid() -> None:
    store: dict[str, bytes] = {}
    write_group(store, "a", note=1)
    write_array(store, "a/s0", DATA, DATA.shape)
    write_group(store, "b", multiScale=True)
    write_array(store, "c", DATA, DATA.shape, multiScale=True)
    for path in ("a", "b"):
        with pytest.raises(gzarr.NodeTypeError, match="no OME metadata"):
            gzarr.ome.open(store, path=path)
    with pytest.raises(gzarr.NodeTypeError, match="is an array"):
        gzarr.ome.open(store, path="c")
    copied = gzarr.copy(store, {})
    assert dict(copied["a"].attrs) == {"note": 1}


def test_n5_with_metadata_of_ome_zarr() -> None:
    """It says itself what it is."""
    store: dict[str, bytes] = {}
    axes = [{"name": name, "type": "space", "unit": "nanometer"} for name in "zyx"]
    transform = [{"type": "scale", "scale": [9, 8, 7]}]
    levels = [{"path": "s0", "coordinateTransformations": transform}]
    write_group(store, "a", multiscales=[{"version": "0.4", "axes": axes, "datasets": levels}], resolution=[1, 2, 3])
    write_array(store, "a/s0", DATA, DATA.shape)
    assert gzarr.ome.open(store, path="a").scale == (9, 8, 7)
    copied: dict[str, bytes] = {}
    gzarr.copy(store, copied, path="a", zarr_format=3)
    assert gzarr.ome.open(copied).scale == (9, 8, 7)


def test_requests() -> None:
    store = CountedDocuments(n5_viewer())
    group = gzarr.open_group(store, path="c0")
    store.documents.clear()
    image = gzarr.ome.open(group)
    # One for each level, and one to see that there is no other.
    assert store.documents[:4] == [[f"c0/s{i}/attributes.json"] for i in range(4)]
    same(image.read(level=1), DATA[:, ::2, ::2])


def test_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = str(write_files(n5_viewer(), tmp_path / "x.n5"))
    assert main(["tree", directory]) == 0
    assert "[OME image 0.4: z, y, x, 3 levels]" in capsys.readouterr().out.replace("z y x", "z, y, x")
    assert main(["info", f"{directory}#c0"]) == 0
    assert "micrometer" in capsys.readouterr().out
    assert main(["copy", f"{directory}#c0", str(tmp_path / "y.ome.zarr")]) == 0
    assert gzarr.ome.open(tmp_path / "y.ome.zarr").version == "0.5"
