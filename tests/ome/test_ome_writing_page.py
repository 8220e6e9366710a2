"""The examples of docs/imaging.md on writing and on pyramids run as they stand, one after the other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import gzarr

if TYPE_CHECKING:
    import pytest

PAGE = Path(__file__).parents[2] / "docs" / "imaging.md"


def test_the_examples_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    volume = np.arange(2 * 20 * 200 * 300, dtype="u2").reshape(2, 20, 200, 300)
    names: dict[str, Any] = {"gzarr": gzarr, "volume": volume, "labels": (volume // 9000).astype("i4")}
    gzarr.ome.create("image.ome.zarr", volume[0], axes="zyx", levels=1)
    gzarr.create_array("data.zarr", path="raw", data=volume[0])
    page = PAGE.read_text()
    count = 0
    for title in ("Writing", "Pyramids"):
        section = page.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
        for code in re.findall(r"^```python\n(.*?)^```", section, re.DOTALL | re.MULTILINE):
            exec(compile(code, str(PAGE), "exec"), names)
            count += 1
    assert count == 3
    image = gzarr.ome.open("new.ome.zarr")
    np.testing.assert_array_equal(image.read(level=0), volume)
    assert len(image.labels["nuclei"].levels) == len(image.levels) > 1
    assert gzarr.ome.open("image.ome.zarr").level(1).shape == (20, 100, 150)
    assert len(gzarr.ome.open("image.ome.zarr").levels) == 4
    assert list(gzarr.ome.open("plate.ome.zarr")) == ["B/3"]
