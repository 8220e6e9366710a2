"""The examples of the section on reading in docs/imaging.md run as they stand, one after the other."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

import gzarr

PAGE = Path(__file__).parents[2] / "docs" / "imaging.md"
AXES = [{"name": "c", "type": "channel"}] + [{"name": n, "type": "space", "unit": "micrometer"} for n in "zyx"]
CHANNELS = {"channels": [{"label": "DAPI"}, {"label": "GFP"}]}


def make(group, data, **more):
    """Write an image of two levels."""
    scales = [1, 2, 0.5, 0.5], [1, 2, 1, 1]
    shapes = [{"type": "scale", "scale": scale[-data.ndim :]} for scale in scales]
    datasets = [{"path": str(level), "coordinateTransformations": [shape]} for level, shape in enumerate(shapes)]
    multiscales = [{"axes": AXES[-data.ndim :], "datasets": datasets}]
    group.attrs["ome"] = {"version": "0.5", "multiscales": multiscales, **more}
    group.create_array("0", data=data)
    group.create_array("1", data=data[..., ::2, ::2].copy())


def test_the_examples_of_the_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = np.arange(2 * 10 * 80 * 80, dtype="u4").reshape(2, 10, 80, 80)
    image = gzarr.create_group("image.ome.zarr")
    make(image, data, omero=CHANNELS)
    labels = image.create_group("labels", attributes={"ome": {"version": "0.5", "labels": ["nuclei"]}})
    make(labels.create_group("nuclei"), data[0] % 7, **{"image-label": {"colors": [{"label-value": 1}]}})
    rows, columns = [{"name": "A"}, {"name": "B"}], [{"name": "1"}, {"name": "2"}, {"name": "3"}]
    wells = [{"path": "A/1", "rowIndex": 0, "columnIndex": 0}, {"path": "B/3", "rowIndex": 1, "columnIndex": 2}]
    parts = {"plate": {"rows": rows, "columns": columns, "wells": wells}}
    plate = gzarr.create_group("plate.ome.zarr", attributes={"ome": {"version": "0.5", **parts}})
    well = plate.create_group("B/3", attributes={"ome": {"version": "0.5", "well": {"images": [{"path": "0"}]}}})
    make(well.create_group("0"), data + 1, omero=CHANNELS)

    section = PAGE.read_text().partition("\n## Reading\n")[2].partition("\n## ")[0]
    names = {}
    results = []
    for code in re.findall(r"^```python\n(.*?)^```", section, re.DOTALL | re.MULTILINE):
        exec(compile(code, str(PAGE), "exec"), names)
        results.append(names.get("x"))
    assert len(results) == 5
    np.testing.assert_array_equal(results[0], data[[1, 0], ..., ::2, ::2][:, :, ::2])
    assert names["image"].units == (None, "micrometer", "micrometer", "micrometer")
    np.testing.assert_array_equal(results[1], data[:, 3])
    np.testing.assert_array_equal(names["field"], data[0, ..., ::2, ::2][..., 10:21])
    np.testing.assert_array_equal(names["mask"], data[0, 3] % 7)
    np.testing.assert_array_equal(results[4], data[0] + 1)
