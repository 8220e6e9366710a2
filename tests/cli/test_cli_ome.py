"""OME-Zarr on the command line: what ``gzarr info`` and ``gzarr tree`` show, and what ``--strict`` refuses."""

from __future__ import annotations

import json

import numpy as np
import pytest

import gzarr
from gzarr.cli.main import main

AXES = [{"name": "c", "type": "channel"}] + [{"name": n, "type": "space", "unit": "micrometer"} for n in "yx"]
DATASETS = [{"path": "0", "coordinateTransformations": [{"type": "scale", "scale": [1, 0.5, 0.25]}]}]
IMAGE = {"multiscales": [{"axes": AXES, "datasets": DATASETS}], "omero": {"channels": [{"label": "DAPI"}, {}]}}
LABEL = {"multiscales": IMAGE["multiscales"], "image-label": {}}
WELLS = [{"path": "A/1", "rowIndex": 0, "columnIndex": 0}]
PLATE = {"plate": {"rows": [{"name": "A"}], "columns": [{"name": "1"}], "wells": WELLS}}


@pytest.fixture
def plate(tmp_path):
    root = gzarr.create_group(tmp_path, attributes={"ome": {"version": "0.5", **PLATE}})
    well = root.create_group("A/1", attributes={"ome": {"version": "0.5", "well": {"images": [{"path": "0"}]}}})
    image = well.create_group("0", attributes={"ome": {"version": "0.5", **IMAGE}})
    image.create_array("0", data=np.zeros((2, 8, 9), "u1"), chunks=(1, 8, 9), dimension_names=list("cyx"))
    image.create_group("labels", attributes={"ome": {"version": "0.5", "labels": ["nuclei"]}})
    return tmp_path


def test_tree(plate, capsys):
    assert main(["tree", str(plate)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "/ [OME plate 0.5: 1 × 1, 1 well]",
        "└── A",
        "    └── 1 [OME well 0.5: 1 field]",
        "        └── 0 [OME image 0.5: c y x, 1 level]",
        "            ├── 0 (2, 8, 9) uint8",
        "            └── labels [OME labels 0.5: nuclei]",
    ]


def test_info(plate, capsys):
    assert main(["info", str(plate), "--path", "A/1/0"]) == 0
    lines = {line.partition(" : ")[0].strip(): line.partition(" : ")[2] for line in capsys.readouterr().out.split("\n")}
    assert lines["OME-Zarr"] == "image, version 0.5"
    assert lines["OME content"] == "c y x, 1 level"
    assert lines["Axes"] == "c, y (micrometer), x (micrometer)"
    assert lines["Levels"] == "0 (1, 0.5, 0.25)"
    assert lines["Channels"] == "DAPI, (no name)"
    assert "Broken rules" not in lines


def test_strict(plate, capsys):
    assert main(["info", str(plate), "--strict"]) == 1
    assert "/A/1/0/labels OME: $.ome.labels[0]: 'nuclei' is not there" in capsys.readouterr().out
    gzarr.create_group(plate, path="A/1/0/labels/nuclei", attributes={"ome": {"version": "0.5", **LABEL}})
    gzarr.create_array(plate, path="A/1/0/labels/nuclei/0", data=np.zeros((2, 8, 9), "u1"), dimension_names=list("cyx"))
    assert main(["info", str(plate), "--strict"]) == 0
    path = plate / "A/1/0/zarr.json"
    document = json.loads(path.read_text())
    del document["attributes"]["ome"]["multiscales"][0]["datasets"][0]["coordinateTransformations"]
    path.write_text(json.dumps(document))
    capsys.readouterr()
    assert main(["info", str(plate), "--strict"]) == 1
    expected = "/A/1/0 OME: $.ome.multiscales[0].datasets[0]: lacks 'coordinateTransformations'"
    assert expected in capsys.readouterr().out
    assert main(["info", str(plate), "--path", "A/1/0"]) == 0
    assert "Broken rules" in capsys.readouterr().out


@pytest.mark.parametrize("ome", [5, {}, {"plate": "\x1b[31m"}, {"multiscales": [{}]}, {"omero": {}, "version": "9"}])
def test_any_metadata(tmp_path, capsys, ome):
    gzarr.create_group(tmp_path, attributes={"ome": ome})
    for command in (["info"], ["tree"], ["info", "--strict"]):
        assert main([command[0], str(tmp_path), *command[1:]]) in (0, 1)
        assert "\x1b" not in capsys.readouterr().out


def _erase(plate, path):
    gzarr.open_group(plate, mode="r+").__delitem__(path)


def _array(plate, path):
    _erase(plate, path)
    gzarr.create_array(plate, path=path, data=np.zeros((2, 3), "u1"))


def _plain(plate, path):
    gzarr.open_group(plate, path=path, mode="r+").attrs.clear()


@pytest.mark.parametrize(
    ("damage", "path", "message"),
    [
        (_erase, "A/1", "/ OME: $.ome.plate.wells[0].path: 'A/1' is not there"),
        (_array, "A/1", "/ OME: $.ome.plate.wells[0].path: 'A/1' must be a group, and is an array"),
        (_plain, "A/1", "/ OME: $.ome.plate.wells[0].path: 'A/1' must be a well, and lacks 'well'"),
        (_erase, "A/1/0", "/A/1 OME: $.ome.well.images[0].path: '0' is not there"),
        (_plain, "A/1/0", "/A/1 OME: $.ome.well.images[0].path: '0' must be an image, and lacks 'multiscales'"),
        (_erase, "A/1/0/0", "/A/1/0 OME: $.ome.multiscales[0].datasets[0].path: level '0' is not there"),
        (_array, "A/1/0/0", "level '0' must have 3 dimensions, one for each axis, and has 2"),
        (_array, "A/1/0/labels", "/A/1/0 OME: $.ome: 'labels' below an image must be a group, and is an array"),
    ],
)
def test_nodes_that_break_a_rule(plate, capsys, damage, path, message):
    damage(plate, path)
    assert main(["info", str(plate), "--strict"]) == 1
    assert message in capsys.readouterr().out


def _float(data):
    return {"data": data.astype("f4")}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (_float, "must have integers, as a label image, and has float32"),
        (lambda data: {"data": data, "dimension_names": ["a", "y", "x"]}, "must have the names of the axes"),
        (lambda data: None, "must be an array, and is a group"),
    ],
)
def test_levels_that_break_a_rule(tmp_path, capsys, make, message):
    group = gzarr.create_group(tmp_path, attributes={"ome": {"version": "0.5", **LABEL}})
    arguments = make(np.zeros((2, 8, 9), "u1"))
    if arguments is None:
        group.create_group("0")
    else:
        group.create_array("0", **arguments)
    assert main(["info", str(tmp_path), "--strict"]) == 1
    assert message in capsys.readouterr().out


@pytest.mark.parametrize("version", ["0.4", "0.5"])
def test_labels_with_other_levels_than_their_image(tmp_path, capsys, version):
    options = {"chunks": 8, "version": version}
    gzarr.ome.create(tmp_path, np.zeros((64, 64), "u2"), axes="yx", levels=3, **options)
    for name in ("few", "many", "same", "others"):
        gzarr.ome.create_labels(tmp_path, name, np.zeros((64, 64), "u4"), chunks=8)
    assert main(["info", str(tmp_path), "--strict"]) == 0
    capsys.readouterr()
    for name, levels in (("few", 1), ("many", 4), ("others", 2)):
        gzarr.ome.pyramid(tmp_path, path=f"labels/{name}", levels=levels, overwrite=True)

    def of_another(found):
        part = found.get("ome", found)
        part["image-label"]["source"] = {"image": "../../../b"}
        return found

    gzarr.open_group(tmp_path, path="labels/others", mode="r+").attrs.change(of_another)
    place = "$.labels" if version == "0.4" else "$.ome.labels"
    expected = [
        f"  /labels OME: {place}[{i}]: {name!r} must have as many levels as the image, 3, and has {count}; "
        "gzarr.ome.pyramid makes them"
        for i, name, count in ((0, "few", 1), (1, "many", 4))
    ]
    for path in ([], ["--path", "labels"]):
        assert main(["info", str(tmp_path), "--strict", *path]) == 1
        assert [line for line in capsys.readouterr().out.splitlines() if " OME: " in line] == expected
    # The way out that the message names, and another number of levels of the image.
    for name in ("few", "many"):
        gzarr.ome.pyramid(tmp_path, path=f"labels/{name}", overwrite=True)
    assert main(["info", str(tmp_path), "--strict"]) == 0
    gzarr.ome.pyramid(tmp_path, levels=2, overwrite=True)
    assert main(["info", str(tmp_path), "--strict"]) == 1
    assert "'same' must have as many levels as the image, 2, and has 3" in capsys.readouterr().out


SYSTEMS = [
    ([("global", 3.0)], "yx, global, physical; image.system is global", "0 (1.5, 1.5)"),
    ([("a", 3.0), ("b", 4.0)], "yx, a, b", "0"),
    ([("a", 3.0), ("global", 4.0)], "yx, a, global, physical; image.system is global", "0 (2, 2)"),
    ([(None, 3.0)], None, "0 (1.5, 1.5)"),
]


@pytest.mark.filterwarnings("ignore::gzarr.ome.MetadataWarning")
@pytest.mark.parametrize(("systems", "names", "levels"), SYSTEMS, ids=["one", "several", "global", "unnamed"])
def test_coordinate_systems(tmp_path, capsys, systems, names, levels):
    axes = [{"name": name, "type": "space"} for name in "yx"]
    transforms = [
        {"type": "scale", "scale": [factor, factor]}
        | ({} if name is None else {"input": {"name": "yx", "axes": axes}, "output": {"name": name, "axes": axes}})
        for name, factor in systems
    ]
    datasets = [{"path": "0", "coordinateTransformations": [{"type": "scale", "scale": [0.5, 0.5]}]}]
    image = {"axes": axes, "datasets": datasets, "coordinateTransformations": transforms}
    gzarr.create_group(tmp_path, attributes={"ome": {"version": "0.5", "multiscales": [image]}})
    assert main(["info", str(tmp_path)]) == 0
    lines = {line.partition(" : ")[0].strip(): line.partition(" : ")[2] for line in capsys.readouterr().out.split("\n")}
    assert lines.get("Coordinate systems") == names
    assert lines["Levels"] == levels
