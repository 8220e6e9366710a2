"""HTML of nodes in notebooks: what it says, that it is well-formed and small, and that nothing is asked of a store."""

from __future__ import annotations

import json
import math
import re
import xml.etree.ElementTree as ElementTree
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gzarr
from gzarr.arrays import stored_size
from gzarr.hierarchy import known_members

if TYPE_CHECKING:
    from pathlib import Path

SVG = "{http://www.w3.org/2000/svg}"
#: Nothing that runs, loads or leads anywhere.
ELEMENTS = {"div", "b", "table", "thead", "tbody", "tr", "th", "td", "span", "details", "summary"}
ELEMENTS |= {SVG + name for name in ("svg", "g", "path", "text")}


def parsed(node: Any) -> ElementTree.Element:
    """Return the HTML of a node, which is well-formed XML, harmless and small."""
    text = node._repr_html_()
    # A picture is data in the page, which nothing loads; of noise, it takes about a byte for each of its colours.
    without = re.sub(
        r'<img src="data:image/png;base64,[A-Za-z0-9+/=]+" width="\d+" height="\d+" alt="[ a-z]+"/>', "", text
    )
    assert len(without) < 60_000
    assert len(text) - len(without) < 4 / 3 * 3 * 160 * 161 + 1000
    root = ElementTree.fromstring(without)
    for element in root.iter():
        assert element.tag in ELEMENTS
        for name, value in element.attrib.items():
            assert not name.startswith("on")
            assert name not in ("href", "src")
            assert "url" not in value
    return root


def rows(root: ElementTree.Element) -> dict[str, list[str]]:
    """Return the cells of the tables by the first one of their row."""
    found = {}
    for row in root.iter("tr"):
        first, *others = ["".join(cell.itertext()) for cell in row]
        found[first] = others
    return found


def lines(root: ElementTree.Element) -> list[tuple[float, float, float, float]]:
    """Return the lines within all faces: x, y, and how far they go."""
    number = r"(-?[\d.]+)"
    paths = " ".join(path.attrib["d"] for path in root.iter(f"{SVG}path") if "Z" not in path.attrib["d"])
    found = re.findall(f"M{number} {number}l{number} {number}", paths)
    return [tuple(map(float, line)) for line in found]  # type: ignore[misc]


def texts(root: ElementTree.Element) -> list[str]:
    return ["".join(text.itertext()) for text in root.iter(f"{SVG}text")]


class Asked(gzarr.MemoryStore):
    """A store that counts calls of its methods; of a kind that is unknown."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.calls: list[str] = []
        super().__init__(values)

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name.startswith("_") or not callable(found):
            return found

        def method(*arguments: Any, **more: Any) -> Any:
            self.calls.append(name)
            return found(*arguments, **more)

        return method


# -- arrays

ARRAYS: dict[str, dict[str, Any]] = {
    "no dimensions": {"shape": (), "dtype": "f8"},
    "no elements": {"shape": (0,), "dtype": "f8", "chunks": (5,)},
    "no elements in 3-D": {"shape": (4, 0, 5), "dtype": "f8", "chunks": (2, 2, 2)},
    "1-D": {"shape": (10,), "dtype": "i2", "chunks": (3,)},
    "2-D": {"shape": (100, 30), "dtype": "i2", "chunks": (40, 10), "dimension_names": ("y", None)},
    "3-D": {"shape": (20, 100, 30), "dtype": "i2", "chunks": (10, 40, 10), "dimension_names": ("z", "y", "x")},
    "4-D": {"shape": (3, 20, 100, 30), "dtype": "i2", "chunks": (1, 10, 40, 10)},
    "5-D": {"shape": (2, 3, 20, 100, 30), "dtype": "i2", "chunks": (1, 1, 10, 40, 10)},
    "12-D": {"shape": (2,) * 12, "dtype": "i2", "chunks": (1,) * 12},
    "shards": {"shape": (64, 64), "dtype": "u1", "chunks": (8, 8), "shards": (32, 16)},
    "shards of tiny chunks": {"shape": (6400, 6400), "dtype": "u1", "chunks": (8, 8), "shards": (3200, 3200)},
    "rectilinear": {"shape": (60, 100), "dtype": "u1", "chunks": [[10, 20, 30], [50, 50]]},
    "huge": {"shape": (10**15,), "dtype": "f8", "chunks": (1,)},
    "huge in 4-D": {"shape": (2**62,) * 4, "dtype": "f8", "chunks": (2**10,) * 3 + (1,)},
    "records": {"shape": (7, 7), "dtype": [("a", "i4"), ("b", "f8", (2,))], "chunks": (3, 3), "zarr_format": 2},
    "strings": {"shape": (7,), "dtype": str, "chunks": (3,)},
    "thin": {"shape": (1, 10**6), "dtype": "i2", "chunks": (1, 1000)},
    "long name": {"shape": (3, 3), "dtype": "i2", "dimension_names": ("<script>" * 30, "\u202e\x00")},
}


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_of_all_kinds(name: str) -> None:
    array = gzarr.create_array({}, **ARRAYS[name])
    root = parsed(array)
    found = rows(root)
    assert found["Shape"][0] == str(array.shape)
    assert found["Shape"][-1].removeprefix("up to ") == str(array.chunks)
    assert found["Count"][-1] == f"{array.nchunks:,}"
    assert found["Decoded by"] == [array.decode_path]
    assert len(list(root.iter(f"{SVG}svg"))) == min(math.ceil(array.ndim / 3), 3)
    labels = texts(root)
    assert len(labels) == min(array.ndim, 9)
    assert sorted(label.rpartition(" ")[2] for label in labels) == sorted(f"{n:,}" for n in array.shape[-9:])
    assert len(lines(root)) < 600


@pytest.mark.parametrize("zarr_format", [1, 2, 3])
def test_all_formats(zarr_format: Any) -> None:
    array = gzarr.create_array({}, shape=(9, 9), dtype="i4", chunks=(4, 4), zarr_format=zarr_format)
    assert f"Zarr {zarr_format}" in rows(parsed(array))["Store"][0]


def test_lines_are_where_chunks_begin() -> None:
    flat = lines(parsed(gzarr.create_array({}, shape=(10,), dtype="i2", chunks=(3,))))
    assert [x for x, *_ in flat] == pytest.approx([4 + 150 * i / 10 for i in (3, 6, 9)])
    assert {(dx, dy) for *_, dx, dy in flat} == {(0, 26)}

    uneven = lines(parsed(gzarr.create_array({}, shape=(60, 60), dtype="i2", chunks=[[10, 50], [60]])))
    assert [(y - 4) / 150 for _, y, *_ in uneven] == pytest.approx([10 / 60])
    assert [dx for *_, dx, _ in uneven] == [150]


def test_shards_have_thick_lines() -> None:
    root = parsed(gzarr.create_array({}, shape=(64, 64), dtype="u1", chunks=(8, 8), shards=(32, 16)))
    thick = [path for path in root.iter(f"{SVG}path") if "Z" not in path.attrib["d"]]
    counts = {path.attrib["stroke-width"]: path.attrib["d"].count("M") for path in thick}
    assert counts == {"0.6": 7 + 7, "1.6": 1 + 3}
    assert rows(root)["Count"] == ["", "8", "64"]


def test_many_chunks_share_lines() -> None:
    root = parsed(gzarr.create_array({}, shape=(10**15,), dtype="f8", chunks=(1,)))
    found = [x for x, *_ in lines(root)]
    assert 15 <= len(found) <= 25
    assert np.diff(found).min() > 5.9
    assert "A line stands for up to 50,000,000,000,000 chunks." in "".join(root.itertext())

    small = "Some chunks within shards are too small to be drawn."
    sharded = ARRAYS["shards of tiny chunks"]
    assert small in "".join(parsed(gzarr.create_array({}, **sharded)).itertext())
    assert small not in "".join(parsed(gzarr.create_array({}, **ARRAYS["shards"])).itertext())
    assert "last 9 of 12" in "".join(parsed(gzarr.create_array({}, **ARRAYS["12-D"])).itertext())


def test_any_theme() -> None:
    """Lines and texts have the colour of the text around them."""
    for element in parsed(gzarr.create_array({}, **ARRAYS["3-D"])).iter():
        colors = {element.attrib.get("stroke", "none"), element.attrib.get("fill", "none")}
        assert colors <= {"none", "currentColor", "#3f8fd2"}
        assert "color:" not in element.attrib.get("style", "")


# -- what is stored


def on_disk(path: Path) -> int:
    files = (file for file in path.rglob("*") if file.is_file() and file.suffix != ".json")
    return sum(file.stat().st_size for file in files)


def readable(nbytes: int) -> str:
    return f"{nbytes / 1024:.1f} KiB"


@pytest.mark.parametrize("shards", [None, (40, 40)])
def test_stored_size_in_a_folder(tmp_path: Path, shards: Any) -> None:
    array = gzarr.create_array(tmp_path / "a", shape=(100, 100), dtype="f8", chunks=(20, 20), shards=shards)
    assert rows(parsed(array))["Stored"] == ["0 of 9 shards" if shards else "0 of 25 chunks"]
    array[:60] = np.random.default_rng(1).integers(0, 99, (60, 100))
    (tmp_path / "a" / "c" / "notes.json").write_text("not a chunk")
    size = on_disk(tmp_path / "a")
    # Elements of the chunks (shards) that are stored, cut at the array's end.
    present, elements, what = (6, 80 * 100, "9 shards") if shards else (15, 60 * 100, "25 chunks")
    expected = f"{readable(size)}, ratio {elements * 8 / size:.2f} ({present} of {what})"
    assert rows(parsed(array))["Stored"] == [expected]


def test_stored_size_in_memory_and_in_an_archive(tmp_path: Path) -> None:
    values = np.random.default_rng(1).integers(0, 99, (60, 100))
    stores: list[Any] = [{}, gzarr.ZipStore(tmp_path / "a.zip", mode="w")]
    found = []
    for store in stores:
        array = gzarr.create_array(store, data=values, chunks=(20, 20))
        found.append(rows(parsed(array))["Stored"][0])
    size = sum(len(value) for key, value in stores[0].items() if key != "zarr.json")
    assert found == [f"{readable(size)}, ratio {values.nbytes / size:.2f} (15 of 15 chunks)"] * 2


def test_rectilinear_chunks_have_their_own_size() -> None:
    store: dict[str, bytes] = {}
    array = gzarr.create_array(store, shape=(60,), dtype="f8", chunks=[[10, 50]], codecs=[])
    array[:10] = 1
    assert rows(parsed(array))["Stored"] == ["80 bytes, ratio 1.00 (1 of 2 chunks)"]


def test_many_chunks_are_sampled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_size, "MOST_CHUNKS", 50)
    array = gzarr.create_array(tmp_path, shape=(200, 100), dtype="u1", chunks=(10, 10), codecs=[])
    array[...] = 1
    assert rows(parsed(array))["Stored"] == ["about 19.5 KiB, ratio 1.00 (50 of 50 chunks looked at, of 200)"]
    # A shape may imply more chunks than there are in the world; looking at some costs no time.
    array = gzarr.create_array({}, shape=(2**62,) * 4, dtype="u1", chunks=(1,) * 4)
    assert rows(parsed(array))["Stored"] == [f"0 of 50 chunks looked at, of {2**248:,}"]


def test_a_slow_file_system_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_size, "MOST_SECONDS", 0)
    array = gzarr.create_array(tmp_path, shape=(200, 100), dtype="u1", chunks=(10, 10))
    assert rows(parsed(array))["Stored"] == ["0 of 20 chunks looked at, of 200"]


def test_failures_are_left_out(tmp_path: Path) -> None:
    array = gzarr.create_array(tmp_path, shape=(2,), dtype="u1", chunks=(1,))
    (tmp_path / "c").symlink_to("c")
    assert "Stored" not in rows(parsed(array))
    store: dict[str, Any] = {}
    array = gzarr.create_array(store, shape=(2,), dtype="u1", chunks=(1,))
    store["c/0"] = "no bytes"
    assert "Stored" not in rows(parsed(array))
    # An archive that is gone.
    path = tmp_path / "x.zip"
    with gzarr.ZipStore(path, mode="w") as archive:
        gzarr.create_array(archive, shape=(2,), dtype="u1", chunks=(1,))
    array = gzarr.open_array(gzarr.ZipStore(path))
    path.unlink()
    assert "Stored" not in rows(parsed(array))


def test_elements_of_any_length_have_no_ratio() -> None:
    array = gzarr.create_array({}, data=np.array(["a", "bcd"]), dtype=str, chunks=(1,), codecs=[])
    found = rows(parsed(array))
    assert found["Size"] == ["variable", "variable"]
    assert re.fullmatch(r"\d+ bytes \(2 of 2 chunks\)", found["Stored"][0])


def test_other_stores_are_not_asked() -> None:
    class Mapping(dict[str, Any]):
        """May ask a server for each value."""

    values: dict[str, Any] = {}
    gzarr.create_group(values).create_array("a", data=np.arange(10), chunks=(3,))
    store = Asked(values)
    array, group = gzarr.open_array(store, path="a"), gzarr.open_group(store)
    assert store.calls
    store.calls.clear()
    assert "Stored" not in rows(parsed(array))
    assert "a" not in rows(parsed(group))
    assert store.calls == []
    for other in (gzarr.MemoryStore(Mapping(values)), type("Derived", (gzarr.MemoryStore,), {})(values)):
        assert "Stored" not in rows(parsed(gzarr.open_array(other, path="a")))
        assert "a" not in rows(parsed(gzarr.open_group(other)))


# -- groups


def hierarchy(store: Any) -> gzarr.Group:
    root = gzarr.create_group(store, attributes={"<b>": 1})
    root.create_array("a", shape=(4, 6), dtype="f4", chunks=(2, 3))
    root.create_array("s", shape=(64, 64), dtype="u1", chunks=(8, 8), shards=(32, 16))
    below = root.create_group("g")
    below.create_array("<i>", shape=(3,), dtype="i8")
    below.create_group("h").create_array("deep", shape=(3,), dtype="i8")
    return root


def test_members_of_a_group_at_hand(tmp_path: Path) -> None:
    stores: list[Any] = [{}, tmp_path / "folder", gzarr.ZipStore(tmp_path / "x.zip", mode="w")]
    for store in stores:
        found = rows(parsed(hierarchy(store)))
        assert found["a"] == ["(4, 6)", "float32", "(2, 3)", "96 bytes"]
        assert found["s"] == ["(64, 64)", "uint8", "(8, 8) in shards (32, 16)", "4.0 KiB"]
        assert found["g/"] == ["group"]
        assert found["Attributes"] == ["1: <b>"]
        assert list(rows(parsed(gzarr.open_group(store)["g"])))[-2:] == ["<i>", "h/"]


def test_consolidated_members_are_nested() -> None:
    values: dict[str, Any] = {}
    hierarchy(values)
    gzarr.consolidate_metadata(values)
    store = Asked(values)
    group = gzarr.open_group(store)
    store.calls.clear()
    root = parsed(group)
    assert store.calls == []
    found = rows(root)
    assert found["Members"] == ["2 arrays, 1 group"]
    assert found["deep"] == ["(3,)", "int64", "(3,)", "24 bytes"]
    assert ["".join(summary.itertext()) for summary in root.iter("summary")] == ["group of 2", "group of 1"]


def test_members_that_cannot_be_read() -> None:
    store: dict[str, Any] = {}
    hierarchy(store)
    store["a/zarr.json"] = b"{"
    assert rows(parsed(gzarr.open_group(store)))["a"][0].startswith("not readable: 'a/zarr.json'")


def test_many_members(tmp_path: Path) -> None:
    group = gzarr.create_group(tmp_path / "x")
    for i in range(100):
        group.create_array(f"a{i:03}", shape=(1,), dtype="u1")
    assert "a099" in rows(parsed(gzarr.open_group(tmp_path / "x")))
    for i in range(100, 110):
        group.create_array(f"a{i:03}", shape=(1,), dtype="u1")
    # Nobody waits for that many documents.
    assert "a000" not in rows(parsed(gzarr.open_group(tmp_path / "x")))
    gzarr.consolidate_metadata(tmp_path / "x")
    found = rows(parsed(gzarr.open_group(tmp_path / "x")))
    assert "a099" in found
    assert "a100" not in found
    assert "and 10 more" in found


def test_deep_hierarchies_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_members, "MOST_MEMBERS", 30)
    nodes = {"/".join(["g"] * n): {"zarr_format": 3, "node_type": "group"} for n in range(1, 50)}
    inline = {"kind": "inline", "must_understand": False, "metadata": nodes}
    document = {"zarr_format": 3, "node_type": "group", "consolidated_metadata": inline}
    root = parsed(gzarr.open_group({"zarr.json": json.dumps(document).encode()}))
    assert len(list(root.iter("details"))) == 4


# -- images, plates

VOLUME = np.zeros((2, 20, 64, 64), "u2")
AXES = {"axes": "czyx", "scale": (1, 2, 0.5, 0.5), "units": "micrometer"}


def test_image(tmp_path: Path) -> None:
    gzarr.ome.create(tmp_path, VOLUME, levels=2, channels=["DAPI", "<GFP>"], chunks=(1, 10, 32, 32), **AXES)
    root = parsed(gzarr.ome.open(tmp_path))
    found = rows(root)
    assert found["Axes"] == ["c, z (micrometer), y (micrometer), x (micrometer)"]
    assert [part.strip() for part in found["Channels"][0].split(",")] == ["DAPI", "<GFP>"]
    assert found["0"] == ["(2, 20, 64, 64)", "1 × 2 × 0.5 × 0.5", "(1, 10, 32, 32)", "320.0 KiB"]
    assert found["1"] == ["(2, 20, 32, 32)", "1 × 2 × 1 × 1", "(1, 10, 32, 32)", "80.0 KiB"]
    assert texts(root) == ["c 2", "x 64", "y 64", "z 20"]


def test_image_of_a_store_that_is_not_asked() -> None:
    values: dict[str, Any] = {}
    gzarr.ome.create(values, VOLUME, levels=2, **AXES)
    store = Asked(values)
    image = gzarr.ome.open(store)
    store.calls.clear()
    assert rows(parsed(image))["0"] == ["at 0"]
    assert store.calls == []
    image.level(1)
    store.calls.clear()
    assert rows(parsed(image))["1"][0] == str(image.level(1).shape)
    assert store.calls == []


def test_broken_images() -> None:
    group = gzarr.create_group({})
    axes = [{"name": name, "type": "space"} for name in "yx"]
    scale = [{"type": "affine", "affine": [[1]]}]
    levels = [
        {"path": "0", "coordinateTransformations": scale},
        {"path": "nothing", "coordinateTransformations": scale},
    ]
    colors = [{"label": "a", "color": "red;background:url(x)"}, {"color": "00FF00"}]
    multiscales = [{"axes": axes, "datasets": levels}]
    group.attrs["ome"] = {"version": "0.5", "multiscales": multiscales, "omero": {"channels": colors}}
    group.create_array("0", shape=(3, 3), dtype="u1")
    with pytest.warns(gzarr.ome.MetadataWarning):
        image = gzarr.ome.open(group)
    text = image._repr_html_()
    found = rows(parsed(image))
    assert found["0"][1] == "unknown"
    assert found["1"] == ["at nothing"]
    assert "background:red" not in text
    assert "background:#00FF00" in text


def test_labels_plates_wells_and_collections() -> None:
    store: dict[str, Any] = {}
    gzarr.ome.create_plate(store, rows="ABC", columns=range(1, 5))
    for row, column in ("A1", "A2", "C4"):
        gzarr.ome.create_field(store, row, int(column), VOLUME, **AXES)
    plate = gzarr.ome.open(store)
    root = parsed(plate)
    assert rows(root)["Wells"] == ["3"]
    filled = next(root.iter(f"{SVG}path")).attrib["d"]
    # Two rectangles: of the first two wells, and of the last one.
    assert filled == "M22 14h30v15h-30ZM67 44h15v15h-15Z"
    assert texts(root) == ["A", "B", "C", "1", "2", "3", "4"]
    assert rows(parsed(plate["A/1"]))["Fields"] == ["0"]
    image = plate["A/1"][0]
    gzarr.ome.create_labels(store, "<cells>", VOLUME, path="A/1/0")
    assert rows(parsed(image.labels))["Names"] == ["<cells>"]
    gzarr.create_group(other := {}, attributes={"ome": {"version": "0.5", "bioformats2raw.layout": 3}})  # type: ignore[var-annotated]
    gzarr.ome.create(other, VOLUME, path="0", **AXES)
    collection = gzarr.ome.open(other)
    assert rows(parsed(collection))["Images"] == ["not read yet"]
    len(collection)
    assert rows(parsed(collection))["Images"] == ["0"]


@pytest.mark.filterwarnings("ignore:.*is pending deprecation:PendingDeprecationWarning")
def test_names_are_completed() -> None:
    shell = pytest.importorskip("IPython.core.interactiveshell").InteractiveShell()
    shell.Completer.use_jedi = False
    group = gzarr.create_group({}, attributes={"unit": "m"})
    group.create_group("inner")
    shell.push({"group": group, "attrs": group.attrs})
    for text, name in (("group['", "inner"), ("attrs['", "unit")):
        assert [found.removeprefix(text).rstrip("']") for found in shell.complete(text)[1]] == [name]
