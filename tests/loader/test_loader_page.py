"""The table of docs/loader.md: what each row says is written, is written, and gives the batch that it shows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import gzarr
from gzarr.loader import Patches, Rows, Windows

PAGE = Path(__file__).parents[2] / "docs/loader.md"
HEADING = "## What you have, and what you write\n"


def rows() -> dict[str, tuple[str, dict[tuple[str, ...], tuple[int, ...]]]]:
    """Return what each row has: what is written, and the shape of each array of a batch."""
    section = PAGE.read_text("utf-8").partition(HEADING)[2].partition("\n## ")[0]
    found = {}
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) == 5 and cells[2].startswith("`"):
            shapes = {}
            for names, shape in re.findall(r"((?:`\w+` )+)(\([\d, ]+\))", cells[3]):
                shapes[tuple(names.replace("`", "").split())] = tuple(map(int, re.findall(r"\d+", shape)))
            found[cells[1]] = (cells[2].strip("`"), shapes)
    return found


ROWS = rows()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with all that the rows have."""
    folder = tmp_path_factory.mktemp("page")
    random = np.random.default_rng(0)
    for name, shape in {
        "table": (200, 10),
        "images": (40, 64, 64, 3),
        "labels": (40,),
        "volume": (64, 96, 96),
        "cells": (64, 96, 96),
        "other": (48, 64, 64),
    }.items():
        gzarr.create_array(folder / f"{name}.zarr", data=random.integers(0, 9, shape).astype("u2"))
    image = gzarr.ome.create(folder / "image.zarr", data=np.ones((256, 256), "u2"), axes="yx", levels=2)
    assert len(image.levels) == 2
    gzarr.ome.create_labels(folder / "image.zarr", "nuclei", data=np.tri(256, dtype="u2"))
    counts = scipy.sparse.random_array((40, 30), density=0.2, format="csr", dtype="f4", rng=random)
    gzarr.sparse.create(folder / "atlas.zarr", counts, path="X")
    era5 = gzarr.create_group(folder / "era5.zarr")
    for name in ("t2m", "u10"):
        era5.create_array(name, data=np.zeros((50, 16, 24), "f4"), chunks=(5, 16, 24))
    return folder


@pytest.mark.filterwarnings("ignore:shuffling is coarse")
@pytest.mark.parametrize("row", ROWS)
def test_a_row(row: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    written, shapes = ROWS[row]
    names: dict[str, Any] = {
        "gzarr": gzarr,
        "Rows": Rows,
        "Windows": Windows,
        "Patches": Patches,
        "classes": np.arange(40),
        "train": np.arange(0, 200, 2),
        "image": gzarr.ome.open("image.zarr"),
        "era5": gzarr.open_group("era5.zarr"),
    }
    if "IterableLoader" in written:
        names["DataLoader"] = pytest.importorskip("torch.utils.data").DataLoader
        from gzarr.loader.torch import IterableLoader

        names["IterableLoader"] = IterableLoader
    batch: Any = next(iter(eval(written, names)))
    found = {}
    for name, value in batch.items():
        for inner, array in value.items() if isinstance(value, dict) else [(None, value)]:
            found[(name,) if inner is None else (name, inner)] = tuple(array.shape)
    assert found == shapes


def test_there_are_ten_kinds() -> None:
    assert len(ROWS) >= 10
    assert all(shapes for _, shapes in ROWS.values())
