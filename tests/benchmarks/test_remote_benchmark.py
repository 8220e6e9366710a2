"""The harness of the benchmark over a network, on arrays small enough for a test."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


def test_a_run_checks_counts_times_and_reports(tmp_path: Path) -> None:
    rivals = ["gzarr", "tensorstore", "zarr+obstore", "limit"]
    command = [sys.executable, str(ROOT / "benchmarks/remote.py"), "--scale", "0.01", "--rounds", "1"]
    command += [
        "--latency",
        "2",
        "--bandwidth",
        "1e9",
        "--data",
        str(tmp_path),
        "--json",
        str(tmp_path / "remote.json"),
    ]
    command += [word for name in rivals for word in ("--rival", name)]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert run.returncode == 0, run.stderr
    document = json.loads((tmp_path / "remote.json").read_text())
    assert len(document["workloads"]) == 13
    for workload in document["workloads"]:
        assert workload["notes"] == {}
        assert set(rivals[:-1]) <= set(workload["rounds"])
        # A round trip at least.
        assert all(r["seconds"] > 0.002 for rounds in workload["rounds"].values() for r in rounds)
        wire = workload["wire"]
        assert wire["gzarr"]["requests"] <= min(counts["requests"] for counts in wire.values())
    assert "geometric mean" in run.stdout
    assert "× tensorstore, " in run.stdout
