"""The program that docs/blocks.md names runs as it stands and is right."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import scipy.ndimage

DOCS = Path(__file__).parents[2] / "docs"
PROGRAM = DOCS / "examples" / "segment_volume.py"


def test_the_page_names_the_program() -> None:
    assert f"(examples/{PROGRAM.name})" in (DOCS / "blocks.md").read_text("utf-8")


def test_objects_are_those_of_the_whole_volume(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location(PROGRAM.stem, PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    segmentation = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(segmentation)
    volume = segmentation.make(tmp_path / "volume", 130)
    labels, table = segmentation.segment(volume, tmp_path / "labels", "cpu")
    found = labels[...]
    smooth = scipy.ndimage.gaussian_filter(volume[...].astype("f4"), 1, truncate=4)
    expected, count = scipy.ndimage.label(smooth > 400)
    assert len(table) == count > 50
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(table["area"], np.bincount(expected.ravel())[1:])
    means = scipy.ndimage.mean(volume[...], expected, np.arange(1, count + 1))
    np.testing.assert_allclose(table["intensity_mean"], means, rtol=1e-12)


def test_the_program_runs_by_itself() -> None:
    command = [sys.executable, str(PROGRAM), "--edge", "96"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert re.fullmatch(r"\d+ objects of \d+ to \d+ elements in \(96, 96, 96\)\n", result.stdout)
