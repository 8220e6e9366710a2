"""The notebooks of docs/notebooks run as they stand, in empty folders, and print what is stored in them."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path

import nbformat
import pytest
from support import notebooks

FOLDER = Path(__file__).parents[2] / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def test_there_are_some() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["pyramid_and_viewer", "read_and_look", "train_from_patches"]


@pytest.mark.slow  # Each starts a kernel.
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_runs_and_prints_what_is_stored(path: Path, tmp_path: Path) -> None:
    stored = nbformat.read(path, as_version=4)
    nbformat.validate(stored)
    missing = importlib.util.find_spec("torch") is None
    if "import torch" in path.read_text() and missing and sys.version_info >= (3, 12):
        # The test environment has it on one Python only.
        pytest.skip("PyTorch is not installed")
    found = notebooks.executed(path, tmp_path)
    assert notebooks.texts(found) == notebooks.texts(stored)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_stored_outputs(path: Path) -> None:
    """Outputs are complete, small, without warnings, and without folders of whoever ran it."""
    text = path.read_text()
    assert len(text) < 400_000
    assert not re.search(r"/(tmp|home|root|Users|work)/|site-packages", text)
    cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert not [output for output in outputs if output["output_type"] == "error" or output.get("name") == "stderr"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_links_lead_to_files(path: Path) -> None:
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "markdown":
            for target in re.findall(r"\]\(([^)#]+)", cell.source):
                assert "://" in target or (FOLDER / target).exists(), target
