"""The program docs/examples/plate.py: a plate that is made, filtered, segmented and measured."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.ndimage
import zarr

import gzarr

PROGRAM = Path(__file__).parents[2] / "docs" / "examples" / "plate.py"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """Return the directory of the program's output, and the lines that it prints."""
    directory = tmp_path_factory.mktemp("plate")
    done = subprocess.run([sys.executable, str(PROGRAM), str(directory)], capture_output=True, text=True, check=True)
    return directory, done.stdout.splitlines()


def test_wells_are_measured(made: tuple[Path, list[str]]) -> None:
    lines = [line.split() for line in made[1]]
    assert [line[1] for line in lines] == ["A1:", "A2:", "A3:", "B1:", "B2:", "B3:"]
    counts = np.array([int(line[2]) for line in lines]).reshape(2, 3)
    # Cells that touch count as one.
    assert (np.abs(counts - [10, 20, 30]) <= [1, 3, 5]).all()
    brightness = np.array([float(line[4]) for line in lines]).reshape(2, 3)
    assert (np.diff(brightness) > 60).all()


def test_fields_are_filtered_as_a_whole(made: tuple[Path, list[str]]) -> None:
    plate = gzarr.ome.open(made[0] / "plate.ome.zarr")
    assert list(plate) == ["A/1", "A/2", "A/3", "B/1", "B/2", "B/3"]
    raw, filtered = plate["B/2"][0], plate["B/2"][1]
    x = raw.read()
    low = scipy.ndimage.uniform_filter(scipy.ndimage.minimum_filter(x, (1, 65, 65)), (1, 65, 65))
    np.testing.assert_array_equal(filtered.read(), np.maximum(x.astype("i4") - low, 0))
    assert [level.shape for level in filtered.levels] == [level.shape for level in raw.levels]
    assert len(filtered.levels) > 1
    assert filtered.units == raw.units == (None, "micrometer", "micrometer")
    labels = filtered.labels["cells"]
    assert (labels.axes, len(labels.levels)) == (("y", "x"), len(filtered.levels))


def test_the_state_names_what_is_there(made: tuple[Path, list[str]]) -> None:
    state: dict[str, Any] = json.loads((made[0] / "neuroglancer.json").read_text())
    for layer in state["layers"]:
        url, _, driver = layer["source"].partition("|")
        assert driver == "zarr3:"
        group = zarr.open_group(made[0] / url.removeprefix("http://localhost:8000/"), mode="r")
        assert "multiscales" in group.attrs["ome"]
