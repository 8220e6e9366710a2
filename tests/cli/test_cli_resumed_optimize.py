"""``gzarr optimize --resume``: complete copies are complete, whatever their arrays have kept; levels are not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

import gzarr
from gzarr.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def images(tmp_path: Path) -> tuple[str, str]:
    """Images whose arrays keep their chunks, for others would not be better; and a place for the copy."""
    for name in ("one", "two"):
        gzarr.ome.create(tmp_path / "a", np.ones((40, 40, 40), "u2"), path=name, axes="zyx", chunks=8, levels=1)
    return str(tmp_path / "a"), str(tmp_path / "b")


def test_arrays_that_keep_their_chunks(images: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["optimize", *images]) == 0
    forecast = capsys.readouterr().out
    assert "are kept: " in forecast
    parts = forecast[forecast.index("2 arrays") :].split()[5]
    store = gzarr.LocalStore(images[1])
    old = {key: store.version(key) for key in store.list_prefix("")}
    assert main(["optimize", *images, "--resume"]) == 0
    assert f"2 arrays and 3 groups: 0 parts written, {parts} already present" in capsys.readouterr().out
    assert {key: store.version(key) for key in store.list_prefix("")} == old
    # What is missing is made.
    lost = "two/0/c/1/1/1"
    assert lost in old
    store.erase(lost)
    assert main(["optimize", *images, "--resume", "--levels", "2"]) == 0
    assert "2 arrays and 3 groups: 1 part written" in capsys.readouterr().out
    for name in ("one", "two"):
        image = gzarr.ome.open(images[1], path=name)
        assert len(image.levels) == 2
        np.testing.assert_array_equal(image.level(0)[...], 1)


def test_levels_that_are_there(images: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["optimize", *images, "--levels", "2", "-q"]) == 0
    capsys.readouterr()
    assert main(["optimize", *images, "--levels", "2", "--resume"]) == 2
    assert "where only levels are missing, which cannot be resumed, gzarr pyramid" in capsys.readouterr().err
    # Another error, where no levels were asked for.
    assert main(["optimize", *images, "--resume"]) == 2
    assert "pyramid" not in capsys.readouterr().err
