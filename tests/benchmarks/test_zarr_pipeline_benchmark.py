"""The harness of the benchmark of zarr-python's codec pipelines, on arrays small enough for a test."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("GZARR_RECYCLE_BYTES", "0")
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield importlib.import_module("zarr_pipeline")
    del sys.modules["zarr_pipeline"]


def test_a_run_checks_times_and_reports(harness: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "pipeline.json"
    small = ["--scale", "0.005", "--rounds", "1", "--json", str(file), "--data", str(tmp_path)]
    # 1: at this size, no target is met.
    assert harness.main([*small, "--dataset", "64 KiB", "--dataset", "shards"]) in (0, 1)
    rows = json.loads(file.read_text())["workloads"]
    assert [(row["dataset"], row["workload"]) for row in rows] == [
        (dataset, workload) for dataset in ("64 KiB", "shards") for workload in harness.WORKLOADS
    ]
    for row in rows:
        assert {"default", "zarrs", "gzarr", "gzarr alone", "floor"} <= set(row["rounds_ms"]), row["notes"]
    printed = capsys.readouterr().out
    assert "in the geometric mean" in printed
    assert "µs a chunk" in printed


def test_wrong_results_are_found(harness: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import gzarr.integrations.zarr as ours

    async def read(self: Any, entries: Any, out: Any, drop_axes: Any = ()) -> Any:
        out.as_ndarray_like()[...] = 1

    monkeypatch.setattr(ours.CodecPipeline, "read", read)
    small = ["--scale", "0.005", "--rounds", "1", "--data", str(tmp_path), "--workload", "whole", "--dataset", "64 KiB"]
    with pytest.raises(AssertionError, match="WRONG RESULT"):
        harness.main([*small, "--rival", "gzarr"])
