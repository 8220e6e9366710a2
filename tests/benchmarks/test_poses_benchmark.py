"""The benchmark of poses: all readers make the patches that SciPy makes of the whole volume, and are timed."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest

import gzarr

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_readers_are_compared_and_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    poses = importlib.import_module("poses")
    volume = np.random.default_rng(0).integers(0, 4000, (48, 48, 48)).astype("u2")
    path = str(tmp_path / "volume")
    gzarr.create_array(path, data=volume, chunks=16, shards=48, codecs="zstd")
    poses.check(path, volume, 48, 8, ["SciPy"])
    for reader in ("unposed", "gzarr", "SciPy"):
        assert poses.worker(reader, path, 48, 8, 20) > 0
    # A rival that is wrong is seen.
    monkeypatch.setattr(
        poses, "by_torch", lambda box, matrix, offset, patch: poses.by_scipy(box, matrix, offset + 1, patch)
    )
    with pytest.raises(AssertionError):
        poses.check(path, volume, 48, 8, ["torch"])
