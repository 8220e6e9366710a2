"""New images, labels and plates: what their documents say, and which arguments are refused."""

from __future__ import annotations

import dataclasses
import inspect
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import zarr

import gzarr
from gzarr.cli.main import main
from gzarr.errors import ArgumentError, NodeTypeError, ReadOnlyError
from gzarr.ome.checking import broken_links
from gzarr.ome.metadata.model import Acquisition, Axis, Channel, Window
from gzarr.ome.metadata.parse import parse
from gzarr.ome.writing.new_image import ImageArguments

if TYPE_CHECKING:
    from pathlib import Path

VERSIONS = ["0.4", "0.5"]
DATA = np.arange(2 * 20 * 30 * 40, dtype="u2").reshape(2, 20, 30, 40)


def ome(group: Any) -> Any:
    """Return the OME metadata of a group as a JSON object."""
    found = dict(group.attrs)
    return found.get("ome", found)


def check_rules(group: Any, kind: Any, version: str) -> None:
    """Check that a group's metadata break no rule, and only recommend what was not given."""
    found = parse(group.attrs, zarr_format=group.zarr_format, kind=kind)
    assert found.version == version
    assert not found.errors
    assert [str(p) for p in found.problems if p.is_rule] == []


def test_windows_of_channels() -> None:
    """What is shown is what is there: in the middle of other axes, and of constant and of bad values too."""
    data = np.zeros((3, 3, 2, 8, 8), "f4")
    data[1, 0], data[1, 1] = 5, np.arange(128).reshape(2, 8, 8)
    data[1, 2, 0, 0, 0] = np.nan
    image = gzarr.ome.create({}, data, axes="tczyx", channels=iter("abc"), levels=1)
    assert [(c.window.start, c.window.end) for c in image.channels] == [(5, 6), (0, 127), (0, 1)]
    empty = gzarr.ome.create({}, shape=(2, 8, 8), dtype="i2", axes="cyx", channels=["a", "b"])
    assert [(c.window.start, c.window.end) for c in empty.channels] == [(-32768, 32767)] * 2


@pytest.mark.parametrize("version", VERSIONS)
def test_documents_of_an_image(tmp_path: Path, version: str) -> None:
    store = tmp_path
    image = gzarr.ome.create(
        store,
        DATA,
        axes="czyx",
        path="a/b",
        scale={"z": 2, "y": 0.5, "x": 0.25},
        translation=(0, 10, 0, -1),
        units="micrometer",
        channels=["DAPI", Channel("GFP", "00FF00", Window(0, 100, 0, 65535))],
        name="cells",
        version=version,
        chunks=(1, 8, 8, 8),
        levels=4,
    )
    check_rules(image.group, "image", version)
    (found,) = ome(image.group)["multiscales"]
    assert found["axes"][:2] == [{"name": "c", "type": "channel"}, {"name": "z", "type": "space", "unit": "micrometer"}]
    assert found["name"] == "cells"
    assert found["type"] == "mean"
    transforms = [entry["coordinateTransformations"] for entry in found["datasets"]]
    # x is 0.25 at first and z 2, so each level halves what is far below the others.
    assert [[t[0]["scale"], t[1]["translation"]] for t in transforms] == [
        [[1, 2, 0.5, 0.25], [0, 10, 0, -1]],
        [[1, 2, 0.5, 0.5], [0, 10, 0, -1 + 0.125]],
        [[1, 2, 1, 1], [0, 10, 0.25, -1 + 0.375]],
        [[1, 2, 2, 2], [0, 10, 0.75, -1 + 0.875]],
    ]
    channels = ome(image.group)["omero"]["channels"]
    assert [c["label"] for c in channels] == ["DAPI", "GFP"]
    smallest = image.level(3)[0]
    assert channels[0]["window"] == {"start": smallest.min(), "end": smallest.max(), "min": 0, "max": 65535}
    assert channels[1]["window"]["end"] == 100
    array = zarr.open_array(store, path="a/b/1", mode="r", zarr_format=2 if version == "0.4" else 3)
    assert array.shape == (2, 20, 30, 20)
    assert array.chunks == (1, 8, 8, 8)
    if version == "0.5":
        assert array.metadata.dimension_names == ("c", "z", "y", "x")
        assert (store / "a/b/1/c/0/0/0/0").exists()
    else:
        assert array.metadata.dimension_separator == "/"
        assert (store / "a/b/1/0/0/0/0").exists()
    again = gzarr.ome.open(store, path="a/b")
    assert again.scale == (1, 2, 0.5, 0.25)
    np.testing.assert_array_equal(again.read(level=0), DATA)


def test_default_chunks_and_shards() -> None:
    image = gzarr.ome.create({}, shape=(5, 3, 100, 2048, 2048), dtype="u2", axes="tczyx", shards="auto")
    array = image.level(0)
    assert array.chunks[:2] == (1, 1)
    assert 1 << 18 <= np.prod(array.chunks) * 2 <= 1 << 20
    assert array.shards is not None
    assert 1 << 23 < np.prod(array.shards) * 2 <= 1 << 24
    assert array.shards[:2] == (1, 1)


def test_chunks_are_cut_to_small_levels() -> None:
    image = gzarr.ome.create({}, DATA[0], axes="zyx", chunks=(8, 16, 16), shards=(16, 32, 32), levels=3)
    assert [(level.array.chunks, level.array.shards) for level in image.levels] == [
        ((8, 16, 16), (16, 32, 32)),
        ((8, 15, 16), (16, 15, 32)),
        ((5, 8, 10), (5, 8, 10)),
    ]


def test_an_image_that_is_written_later() -> None:
    store: dict[str, Any] = {}
    image = gzarr.ome.create(store, shape=(20, 30, 40), dtype="u2", axes="zyx", units="nanometer", chunks=8)
    assert len(image.levels) == 1
    image.level(0)[...] = DATA[0]
    whole = gzarr.ome.create({}, DATA[0], axes="zyx", units="nanometer", chunks=8)
    again = gzarr.ome.pyramid(store)
    assert len(again.levels) == len(whole.levels) > 2
    for one, other in zip(again.levels, whole.levels, strict=True):
        assert (one.scale, one.translation) == (other.scale, other.translation)
        np.testing.assert_array_equal(one.array[...], other.array[...])


@pytest.mark.parametrize("version", VERSIONS)
def test_labels(version: str) -> None:
    store: dict[str, Any] = {}
    options = {"units": "micrometer", "version": version, "levels": 3}
    image = gzarr.ome.create(store, DATA[0], axes="zyx", scale=(2, 1, 1), chunks=8, **options)
    labels = (DATA[0] // 5000).astype("i4")
    made = gzarr.ome.create_labels(store, "cells", labels, chunks=8, colors={1: (255, 0, 0, 128)})
    empty = gzarr.ome.create_labels(store, "nuclei", shape=labels.shape, dtype="i4", chunks=8)
    empty.level(0)[...] = labels
    # The specification wants as many levels as the image has.
    assert [level.shape for level in made.levels] == [level.shape for level in image.levels]
    assert [level.scale for level in made.levels] == [level.scale for level in image.levels]
    check_rules(made.group, "label", version)
    assert made.scale == image.scale
    assert ome(made.group)["image-label"]["colors"] == [{"label-value": 1, "rgba": [255, 0, 0, 128]}]
    assert ome(made.group)["image-label"]["source"] == {"image": "../../"}
    assert ome(made.group)["multiscales"][0]["type"] == "mode"
    again = gzarr.ome.open(store)
    assert sorted(again.labels) == ["cells", "nuclei"]
    np.testing.assert_array_equal(again.labels["cells"].read(level=0), labels)
    # Labels that are written anew are listed once.
    gzarr.ome.create_labels(store, "cells", labels, chunks=8, overwrite=True)
    assert ome(gzarr.open_group(store, path="labels"))["labels"] == ["cells", "nuclei"]
    # Pyramids of labels are of modes, too.
    remade = gzarr.ome.pyramid(store, path="labels/nuclei")
    assert len(remade.levels) == len(image.levels) > 2
    for one, other in zip(remade.levels, made.levels, strict=True):
        np.testing.assert_array_equal(one.array[...], other.array[...])
    for option in ("levels", "factors"):
        with pytest.raises(ArgumentError, match="they have the levels of the image"):
            gzarr.ome.create_labels(store, "others", labels, **{option: 2})


def test_labels_with_fewer_axes() -> None:
    store: dict[str, Any] = {}
    place = {"scale": (1, 2, 0.5, 0.25), "translation": (0, 10, 3, -1), "units": "micrometer"}
    image = gzarr.ome.create(store, DATA, axes="czyx", **place, chunks=8, levels=2)
    labels = (DATA[0] // 5000).astype("i4")
    made = gzarr.ome.create_labels(store, "cells", labels, axes="zyx", chunks=8)
    assert (made.axes, made.units) == (("z", "y", "x"), ("micrometer",) * 3)
    for level, other in zip(made.levels, image.levels, strict=True):
        assert (level.scale, level.translation) == (other.scale[1:], other.translation[1:])
    moved = gzarr.ome.create_labels(store, "moved", labels, axes="zyx", scale=(3, 1, 1), chunks=8)
    assert (moved.scale, moved.level(0).shape) == ((3, 1, 1), labels.shape)
    other = gzarr.ome.create_labels(store, "other", labels, axes=["t", Axis("y", "space", "nanometer"), "x"], chunks=8)
    assert (other.scale, other.units) == ((1, 0.5, 0.25), (None, "nanometer", "micrometer"))
    for axes in (3, "", [None]):
        with pytest.raises(ArgumentError, match="axes must be a text such as"):
            gzarr.ome.create_labels(store, "none", labels, axes=axes)


@pytest.mark.parametrize("version", VERSIONS)
def test_plates(version: str) -> None:
    store: dict[str, Any] = {}
    acquisitions = [Acquisition(1, "first")]
    gzarr.ome.create_plate(
        store, rows="ABC", columns=range(1, 5), name="P1", acquisitions=acquisitions, version=version
    )
    for row, column, field in (("A", 1, None), ("C", "4", None), ("A", 1, None), ("A", 1, "x7")):
        gzarr.ome.create_field(store, row, column, DATA[0], axes="zyx", field=field, acquisition=1, chunks=16)
    group = gzarr.open_group(store)
    check_rules(group, "plate", version)
    check_rules(gzarr.open_group(store, path="A/1"), "well", version)
    plate = ome(group)["plate"]
    assert [(w["path"], w["rowIndex"], w["columnIndex"]) for w in plate["wells"]] == [("A/1", 0, 0), ("C/4", 2, 3)]
    assert plate["field_count"] == 3
    assert plate["acquisitions"] == [{"id": 1, "name": "first"}]
    well = ome(gzarr.open_group(store, path="A/1"))["well"]
    assert well["images"] == [{"path": name, "acquisition": 1} for name in ("0", "1", "x7")]
    image = gzarr.ome.open(store, path="A/1/x7")
    np.testing.assert_array_equal(image.read(level=0), DATA[0])
    with pytest.raises(ArgumentError, match="the plate has no row 'D'; it has A, B, C"):
        gzarr.ome.create_field(store, "D", 1, DATA[0], axes="zyx")
    with pytest.raises(ArgumentError, match="there is a group at '/A/1/0'"):
        gzarr.ome.create_field(store, "A", 1, DATA[0], axes="zyx", field=0)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("ids", "allowed", "refused"),
    [((), (None, 1, 9), ("x", True)), ((1,), (None, 1, 9), (1.5,)), ((1, 2), (1, 2), (None, 9, "x", True))],
)
def test_acquisitions_of_fields(
    version: str, ids: tuple[int, ...], allowed: tuple[Any, ...], refused: tuple[Any, ...]
) -> None:
    """Each field of a plate of several acquisitions names one of them; of other plates, nothing is said."""
    store: dict[str, Any] = {}
    acquisitions = [Acquisition(number) for number in ids]
    gzarr.ome.create_plate(store, rows="A", columns="1", acquisitions=acquisitions, version=version)
    before = dict(store)
    for acquisition in refused:
        text = r"acquisition must be one of the plate's, 1, 2, not (None|9)" if acquisition in (None, 9) else "integer"
        with pytest.raises(ArgumentError, match=text):
            gzarr.ome.create_field(store, "A", 1, DATA[0], axes="zyx", acquisition=acquisition)
        assert store == before
    for acquisition in allowed:
        gzarr.ome.create_field(store, "A", 1, DATA[0], axes="zyx", acquisition=acquisition)
    group = gzarr.open_group(store)
    assert not list(broken_links(group, parse(group.attrs)))


@pytest.mark.parametrize("version", VERSIONS)
def test_fields_of_other_acquisitions_are_told(version: str) -> None:
    """The plate gets its second acquisition after its fields."""
    store: dict[str, Any] = {}
    gzarr.ome.create_plate(store, rows="A", columns="12", acquisitions=[Acquisition(1)], version=version)
    for column, acquisition in ((1, 1), (1, None), (1, 9), (2, 1)):
        gzarr.ome.create_field(store, "A", column, DATA[0], axes="zyx", acquisition=acquisition)

    def told() -> list[str]:
        group = gzarr.open_group(store)
        return [str(problem) for problem in broken_links(group, parse(group.attrs))]

    assert not told()
    group = gzarr.open_group(store, mode="r+")
    plate = ome(group)["plate"] | {"acquisitions": [{"id": 1}, {"id": 2}]}
    group.attrs.update({"ome": {"version": "0.5", "plate": plate}} if version == "0.5" else {"plate": plate})
    (text,) = told()
    place = "$.ome.plate.wells[0].path" if version == "0.5" else "$.plate.wells[0].path"
    expected = "'A/1' must have fields of the plate's acquisitions 1, 2, and '1' has no acquisition, '2' has 9"
    assert text == f"{place}: {expected}"


@pytest.mark.parametrize(("rows", "columns"), [("", "1"), (["A", "A"], "1"), (["A/B"], "1"), ("A", 3)])
def test_bad_plates(rows: Any, columns: Any) -> None:
    store: dict[str, Any] = {}
    with pytest.raises(ArgumentError):
        gzarr.ome.create_plate(store, rows=rows, columns=columns)
    assert not store


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"axes": "zy"}, "axes: 3 different ones are needed"),
        ({"axes": "zzy"}, "axes: 3 different ones are needed"),
        ({"axes": 5}, "axes must be a text"),
        ({"axes": "abc"}, "expected 2 or 3 axes of type 'space'"),
        ({"axes": "xtc"}, "does not allow that"),
        ({"scale": (1, 2)}, "scale must be 3 positive numbers"),
        ({"scale": (1, 0, 1)}, "scale must be 3 positive numbers"),
        ({"scale": (1, float("nan"), 1)}, "scale must be 3 positive numbers"),
        ({"scale": {"q": 1}}, "scale: there is no axis 'q'"),
        ({"scale": 2}, "scale must have a value for each axis"),
        ({"translation": "abc"}, "translation must have a value"),
        ({"units": (1, 2, 3)}, "units must be 3 texts"),
        ({"channels": ["a", "b"]}, "channels must be 1 names or Channel"),
        ({"channels": "a"}, "channels must be a list"),
        ({"version": "0.6"}, "version must be '0.4' or '0.5', not '0.6'"),
        ({"version": ["0.5"]}, "version must be"),
        ({"method": "median"}, "method must be one of"),
        ({"method": "mode", "data": np.zeros((4, 4, 4), "f4")}, "which are integers"),
        ({"chunks": (4, 4)}, "chunks"),
        ({"chunks": 4, "shards": 6}, "not whole multiples"),
        ({"version": "0.4", "chunks": 4, "shards": 8}, "sharding"),
        ({"levels": -1}, "levels must be"),
        ({"factors": -1}, "factors must be"),
        ({"shape": (3, 3, 3)}, "are for images without data"),
        ({"data": None}, "needs data, or a shape and a dtype"),
        ({"data": None, "shape": (3, 3, 3), "dtype": "u1", "levels": 3}, "only level 0 is made"),
        ({"data": np.zeros((4, 4, 4), "c8")}, "complex64 cannot be downsampled"),
        ({"data": np.array([["a"]])}, "cannot be downsampled"),
        ({"codecs": "nothing"}, "nothing"),
    ],
)
def test_bad_arguments_change_nothing(options: dict[str, Any], message: str) -> None:
    store: dict[str, Any] = {}
    given = {"data": DATA[0], "axes": "zyx", **options}
    if isinstance(given["data"], np.ndarray) and given["data"].ndim == 2:
        given["axes"] = "yx"
    with pytest.raises(ArgumentError, match=message):
        gzarr.ome.create(store, given.pop("data"), **given)
    assert not store


def test_what_exists_is_kept() -> None:
    store: dict[str, Any] = {}
    gzarr.ome.create(store, DATA[0], axes="zyx", chunks=8, levels=2)
    before = dict(store)
    with pytest.raises(ArgumentError, match="there is a group"):
        gzarr.ome.create(store, DATA[0], axes="zyx")
    with pytest.raises(ArgumentError, match="has 2 levels; pass overwrite=True"):
        gzarr.ome.pyramid(store)
    with pytest.raises(ArgumentError, match=r"ome\.create would overwrite .* while it is read as ./0. in"):
        gzarr.ome.create(store, gzarr.open_array(store, path="0"), axes="zyx", overwrite=True)
    with pytest.raises(ArgumentError, match="labels are integers, not float64"):
        gzarr.ome.create_labels(store, "a", np.zeros((2, 2, 2)))
    for name in ("", "a/b", "/a", "..", "."):
        with pytest.raises(ArgumentError):
            gzarr.ome.create_labels(store, name, DATA[0].astype("i4"))
    with pytest.raises(ArgumentError, match="are for arrays"):
        gzarr.ome.pyramid(store, scale=(1, 1, 1), overwrite=True)
    assert store == before


def test_read_only_stores(tmp_path: Any) -> None:
    gzarr.ome.create(tmp_path / "a", DATA[0], axes="zyx", chunks=8, levels=1)
    store = gzarr.LocalStore(tmp_path / "a", read_only=True)
    with pytest.raises(ReadOnlyError):
        gzarr.ome.pyramid(store)
    with pytest.raises(ReadOnlyError):
        gzarr.ome.create(store, DATA[0], axes="zyx", path="b")


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_an_array_in_a_group_becomes_an_image(zarr_format: Any) -> None:
    for name, level in (("raw", "raw_1"), ("s0", "s1"), ("7", "8")):
        store: dict[str, Any] = {}
        array = gzarr.create_array(
            store, data=DATA[0], path=f"g/{name}", chunks=8, zarr_format=zarr_format, codecs="gzip", attributes={"a": 1}
        )
        gzarr.open_group(store, path="g", mode="r+").attrs["mine"] = 5
        image = gzarr.ome.pyramid(store, path=f"g/{name}", axes="zyx", scale=(3, 1, 1), units="micrometer", levels=2)
        check_rules(image.group, "image", "0.4" if zarr_format == 2 else "0.5")
        assert [level.array.basename for level in image.levels] == [name, level]
        assert image.level(1).compressors == array.compressors
        assert image.group.attrs["mine"] == 5
        assert image.scale == (3, 1, 1)


def test_arrays_that_cannot_become_images() -> None:
    store: dict[str, Any] = {}
    gzarr.create_array(store, data=DATA[0])
    with pytest.raises(ArgumentError, match=r"written beside it, in a group: pass the store of the group"):
        gzarr.ome.pyramid(store, axes="zyx")
    store = {}
    gzarr.create_array(store, data=DATA[0], path="a")
    with pytest.raises(ArgumentError, match="does not name its dimensions"):
        gzarr.ome.pyramid(store, path="a")
    gzarr.create_array(store, data=DATA[0], path="a_1")
    with pytest.raises(ArgumentError, match="'a_1' would be a level, and there is another node of that name"):
        gzarr.ome.pyramid(store, path="a", axes="zyx", levels=2)
    gzarr.create_group(store, path="g")
    with pytest.raises(NodeTypeError, match="is not an OME-Zarr image"):
        gzarr.ome.pyramid(store, path="g")


def test_what_else_an_image_says_is_kept() -> None:
    store: dict[str, Any] = {}
    image = gzarr.ome.create(store, DATA, axes="czyx", channels=["a", "b"], chunks=(1, 8, 8, 8), levels=2, name="n")
    group = image.group
    own = ome(group)
    own["multiscales"][0]["coordinateTransformations"] = [{"type": "scale", "scale": [2, 2, 2, 2]}]
    own["multiscales"][0]["special"] = {"x": 1}
    own["more"] = [1]
    group.attrs["ome"] = own
    group.attrs["beside"] = 3
    again = gzarr.ome.pyramid(store, overwrite=True, levels=3, method="max")
    found = ome(again.group)
    (multiscale,) = found["multiscales"]
    assert len(multiscale["datasets"]) == 3
    assert multiscale["coordinateTransformations"] == [{"type": "scale", "scale": [2, 2, 2, 2]}]
    assert multiscale["special"] == {"x": 1}
    assert multiscale["type"] == "max"
    assert found["more"] == [1]
    assert found["omero"] == own["omero"]
    assert again.group.attrs["beside"] == 3


def test_axes_of_other_names_and_types() -> None:
    axes = [Axis("phase", "phase"), Axis("v", "space", "meter"), Axis("u", "space", "meter")]
    image = gzarr.ome.create({}, DATA[0], axes=axes, chunks=8, levels=2)
    assert image.level(1).shape == (20, 15, 20)
    assert image.units == (None, "meter", "meter")


def test_zip_archives(tmp_path: Any) -> None:
    gzarr.ome.create(tmp_path / "a.zip", DATA[0], axes="zyx", chunks=8, levels=3)
    image = gzarr.ome.open(tmp_path / "a.zip")
    assert len(image.levels) == 3
    np.testing.assert_array_equal(image.read(level=0), DATA[0])


@pytest.mark.parametrize("version", VERSIONS)
def test_a_plate_without_wells(version: str, tmp_path: Path) -> None:
    """It is one to gzarr only: the specification wants at least one well."""
    made = gzarr.ome.create_plate(tmp_path, rows="AB", columns=[1, 2], name="P", version=version)
    group = gzarr.open_group(tmp_path)
    assert parse(group.attrs, zarr_format=group.zarr_format).is_empty
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plate = gzarr.ome.open(tmp_path)
    for found in (made, plate):
        assert (found.rows, found.columns, found.name, len(found)) == (("A", "B"), ("1", "2"), "P", 0)
        assert found.metadata.version == version
    assert main(["info", "--strict", str(tmp_path)]) == 0
    copied: dict[str, Any] = {}
    gzarr.copy(tmp_path, copied, zarr_format=3 if version == "0.4" else 2, progress=False)
    for store in (tmp_path, copied):
        gzarr.ome.create_field(store, "B", 1, DATA[0], axes="zyx", levels=1)
        group = gzarr.open_group(store)
        check_rules(group, "plate", parse(group.attrs).version)
        assert set(group.attrs) <= {"ome", "plate"}
        assert list(gzarr.ome.open(store)) == ["B/1"]
        assert gzarr.ome.open(store).name == "P"


def test_labels_of_64_bits() -> None:
    """They are integers in documents and when they are read, and colours are checked before an element is written."""
    low, high = 2**60, 2**60 + 1
    labels = np.full((8, 8), high, "u8")
    labels[0, 0] = low
    store: dict[str, Any] = {}
    gzarr.ome.create(store, labels.astype("u2"), axes="yx", levels=1)
    red, green = (255, 0, 0, 255), (0, 255, 0, 255)
    colors = {np.uint64(low): red, high: green, 2**64 - 1: red, 1: green}
    gzarr.ome.create_labels(store, "one", labels, colors=colors)
    image = gzarr.ome.open(store).labels["one"]
    values = [color.value for color in image.image_label.colors]
    assert values == [low, high, 2**64 - 1, 1]
    assert all(type(value) is int for value in values)
    assert not [problem for problem in image.metadata.problems if problem.is_rule]
    assert ome(image.group)["image-label"]["colors"][1] == {"label-value": high, "rgba": list(green)}
    np.testing.assert_array_equal(image.read(), labels)
    documents = {"image-label": {"colors": [{"label-value": 3.0}, {"label-value": 2.0**63}, {"label-value": 0.5}]}}
    found = parse(documents).image_label
    assert found is not None
    assert [repr(color.value) for color in found.colors] == ["3", str(2**63), "0.5"]
    before = dict(store)
    for wrong in ({1: (0, 0, 0, 256)}, {1: (0, 0, 0)}, {1: 3}, {0.5: red}, {"1": red}, {1: (0.5, 0, 0, 0)}):
        with pytest.raises(ArgumentError, match=r"from 0 to 255|labels are integers"):
            gzarr.ome.create_labels(store, "two", labels, colors=wrong)
        assert store == before


def test_shapes_of_labels() -> None:
    store: dict[str, Any] = {}
    gzarr.ome.create(store, DATA, axes="czyx", scale=(1, 2, 0.5, 0.25), levels=2)
    labels = (DATA[0] // 5000).astype("i4")
    made = gzarr.ome.create_labels(store, "no_channels", labels)
    assert (made.axes, made.scale) == (("z", "y", "x"), (2, 0.5, 0.25))
    whole = gzarr.ome.create_labels(store, "one_channel", labels[None])
    assert (whole.axes, whole.shape) == (("c", "z", "y", "x"), (1, 20, 30, 40))
    flat = gzarr.ome.create_labels(store, "flat", labels[:1])
    assert flat.shape == (1, 30, 40)
    before = dict(store)
    with pytest.raises(ArgumentError, match=r"such as axes='yx'"):
        gzarr.ome.create_labels(store, "other", labels[0])
    for wrong, axes in ((labels[:, :29], None), (labels[:2], "zyx"), (DATA[:, :, :, :39].astype("i4"), None)):
        with pytest.raises(ArgumentError, match="or 1 if they hold for all of that axis"):
            gzarr.ome.create_labels(store, "other", wrong, axes=axes)
    with pytest.raises(ArgumentError, match="have 31 elements along 'y', and the image has 30"):
        gzarr.ome.create_labels(store, "other", shape=(20, 31, 40), dtype="u4")
    assert store == before


@pytest.mark.parametrize("by_pyramid", [False, True])
@pytest.mark.parametrize("factors", [[2, 2, 2], [3, 2, 4], [{"x": 4}, 3]])
def test_nearest_elements_are_where_they_were_taken(factors: Any, by_pyramid: bool) -> None:
    """Values of a ramp are the coordinates of its elements."""
    ramp = (100 + 0.5 * np.arange(96)).astype("f8")
    data = np.broadcast_to(ramp, (96, 96)).copy()
    store: dict[str, Any] = {}
    place = {"axes": "yx", "scale": (2, 0.5), "translation": (0, 100), "chunks": 8}
    if by_pyramid:
        gzarr.ome.create(store, data, levels=1, **place)
        image = gzarr.ome.pyramid(store, method="nearest", factors=factors)
    else:
        image = gzarr.ome.create(store, data, method="nearest", factors=factors, **place)
    assert len(image.levels) == len(factors) + 1
    for level in range(len(image.levels)):
        field = image.to_xarray(level)
        np.testing.assert_allclose(field.values[0], field.coords["x"].values)
    check_rules(image.group, "image", "0.5")


@pytest.mark.parametrize("version", VERSIONS)
def test_own_attributes_survive(version: str) -> None:
    store: dict[str, Any] = {}
    options = {"axes": "zyx", "levels": 2, "version": version}
    image = gzarr.ome.create(store, DATA[0], channels=["a"], path="a", **options)
    gzarr.ome.create_labels(store, "cells", DATA[0].astype("u4"), path="a")
    image.group.attrs["own"] = {"microscope": 7}
    image.labels["cells"].group.attrs["by"] = "hand"
    gzarr.ome.create_labels(store, "cells", DATA[0].astype("u4"), path="a", overwrite=True)
    assert gzarr.ome.open(store, path="a").labels["cells"].group.attrs["by"] == "hand"
    again = gzarr.ome.create(store, DATA[1], path="a", overwrite=True, **options)
    assert again.group.attrs["own"] == {"microscope": 7}
    assert set(again.group.attrs) == {"own", "ome" if version == "0.5" else "multiscales"}
    assert not again.channels
    assert not again.labels
    alone: dict[str, Any] = {}
    gzarr.ome.create(alone, DATA[0], **options).group.attrs["own"] = 1
    other = gzarr.ome.create(alone, DATA[1], overwrite=True, axes="zyx", version="0.5", levels=1)
    assert set(other.group.attrs) == {"own", "ome"}
    # What is no image is erased as a whole.
    gzarr.create_group(store, path="b", attributes={"own": 1}, zarr_format=2 if version == "0.4" else 3)
    assert "own" not in gzarr.ome.create(store, DATA[0], path="b", overwrite=True, **options).group.attrs
    gzarr.ome.create_plate(store, path="p", rows="A", columns=[1], version=version)
    field = gzarr.ome.create_field(store, "A", 1, DATA[0], path="p", axes="zyx", levels=1, field="0")
    field.group.attrs["own"] = 1
    field = gzarr.ome.create_field(store, "A", 1, DATA[0], path="p", axes="zyx", levels=1, field="0", overwrite=True)
    assert field.group.attrs["own"] == 1
    next_one = gzarr.ome.create_field(store, "A", 1, DATA[0], path="p", axes="zyx", levels=1, overwrite=True)
    assert (next_one.group.basename, "own" in next_one.group.attrs) == ("1", False)


def test_arguments_of_new_images() -> None:
    """The value that carries them has those of create, with the same defaults."""
    given = {name: p.default for name, p in inspect.signature(gzarr.ome.create).parameters.items()}
    assert [given.pop(name) for name in ("store", "data", "axes")][1] is None
    known = {field.name: field.default for field in dataclasses.fields(ImageArguments)}
    assert known.pop("axes") is dataclasses.MISSING
    assert known == given
