"""The programs in docs/examples run as they stand, and learn."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).parents[2]
PROGRAMS = [ROOT / "docs" / "examples" / f"{name}.py" for name in ("table_sklearn", "unet_torch", "weather_jax")]


def program(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow  # Trains a network for some seconds.
def test_the_unet_learns(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    unet = program("unet_torch")
    unet.write_volume(str(tmp_path))
    threads = torch.get_num_threads()
    # Several that wait for each other on a busy machine take many times as long.
    torch.set_num_threads(1)
    try:
        losses = unet.train(str(tmp_path), epochs=2)
    finally:
        torch.set_num_threads(threads)
    assert len(losses) == 2 * 16
    assert np.mean(losses[:3]) > 0.5
    # Of the voxels, 0.137 are of balls: knowing only that, the loss is 0.4.
    assert np.mean(losses[-8:]) < 0.25


@pytest.mark.slow  # Trains two networks for some seconds.
def test_poses_teach_what_the_sample_does_not_have(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    unet = program("unet_poses")
    unet.write_sample(str(tmp_path), "along-x", 0, 0)
    unet.write_sample(str(tmp_path), "all", np.pi / 2, 1)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        plain, posed = (unet.overlap(unet.train(str(tmp_path), poses), str(tmp_path)) for poses in ({}, unet.POSES))
    finally:
        torch.set_num_threads(threads)
    assert posed > max(plain + 0.1, 0.7)


def test_the_forecast_beats_persistence(tmp_path: Path) -> None:
    weather = program("weather_jax")
    weather.write_fields(str(tmp_path))
    reached, persistence = weather.train(str(tmp_path), epochs=3)
    assert persistence > 0.2
    assert reached < 0.1 * persistence


def test_the_classifier_needs_shuffled_rows(tmp_path: Path) -> None:
    table = program("table_sklearn")
    table.write_table(str(tmp_path))
    shuffled = table.train(str(tmp_path))
    assert shuffled > 0.95
    # The rows are sorted by class.
    assert table.train(str(tmp_path), shuffle=False) < shuffled - 0.1


def test_programs_are_short_and_named_on_the_page() -> None:
    pages = dict.fromkeys(PROGRAMS, "loader.md") | {PROGRAMS[0].with_name("unet_poses.py"): "poses.md"}
    for path, page in pages.items():
        assert len(path.read_text().splitlines()) < 80, path.name
        assert f"(examples/{path.name})" in (ROOT / "docs" / page).read_text(), path.name


@pytest.mark.slow  # A process that imports a library and trains.
def test_a_program_runs_by_itself(tmp_path: Path) -> None:
    """The other two are run by the same lines."""
    environment: dict[str, Any] = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-W", "error::UserWarning", str(ROOT / "docs" / "examples" / "table_sklearn.py")]
    result = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert "held-out rows are correct" in result.stdout
    assert not list(tmp_path.iterdir())
