"""The benchmark of posed patches runs to its end, and compares what it makes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_each_rival_has_a_figure(tmp_path: Path) -> None:
    small = ["--size", "64", "--patch", "16", "--chunk", "16", "--patches", "4", "--rounds", "1"]
    command = [sys.executable, "benchmarks/poses.py", *small, "--json", str(tmp_path / "poses.json")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "poses.json").read_text())["patches_per_second"]
    assert set(found) == {"lz4", "zstd shards"}
    for rates in found.values():
        assert {"gzarr Loader", "gzarr Loader, unposed", "gzarr read_affine", "tensorstore + SciPy"} <= set(rates)
        assert min(rates.values()) > 0
