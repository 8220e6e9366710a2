"""The benchmark of sparse matrices runs to its end, and compares what it reads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EPOCHS = ("epoch in dense", "epoch in sparse", "epoch in scaled")
ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_each_reader_has_a_figure(tmp_path: Path) -> None:
    command = [sys.executable, "benchmarks/sparse_rows.py", "--cells", "1100", "--genes", "200", "--rounds", "1"]
    done = subprocess.run([*command, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for what in ("random rows", "runs of rows", "dense rows of runs", "every tenth column of runs", *EPOCHS):
        for layout in ("lz4", "zstd shards"):
            (section,) = [
                part for part in done.stdout.split("\n\n") if part.strip().startswith(what) and layout in part
            ]
            for reader in ("gzarr", "anndata", "tensorstore")[: 1 if what.startswith("epoch") else 3]:
                assert f"  {reader} " in section
