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
    labels, sizes = segmentation.segment(volume, tmp_path / "labels", "cpu")
    found = labels[...]
    smooth = scipy.ndimage.gaussian_filter(volume[...].astype("f4"), 1, truncate=4)
    expected, count = scipy.ndimage.label(smooth > 400)
    assert len(sizes) == count > 50
    # The same elements, with other numbers.
    pairs = np.unique(np.stack([found.ravel(), expected.ravel()]), axis=1)
    assert len(np.unique(pairs[0])) == len(np.unique(pairs[1])) == pairs.shape[1] == count + 1
    np.testing.assert_array_equal(np.bincount(found.ravel())[1:], sizes)


def test_the_program_runs_by_itself() -> None:
    command = [sys.executable, str(PROGRAM), "--edge", "96"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert re.fullmatch(r"\d+ objects of \d+ to \d+ elements in \(96, 96, 96\)\n", result.stdout)
