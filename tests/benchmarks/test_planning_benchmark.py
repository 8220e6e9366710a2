"""What arrays of very many chunks cost: each row runs, and memory is what ``docs/scaling.md`` says."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "2026-11-27-planning.json"


@pytest.fixture
def planning(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("planning")


@pytest.mark.filterwarnings("ignore:shuffling is coarse")
def test_each_row_runs(planning: Any) -> None:
    rows = {name: measure(0.001) for name, measure in planning.ROWS.items()}
    assert set(rows) == set(json.loads(RESULTS.read_text())["rows"])
    assert rows["window of 10⁹"]["chunks"] == 10**9
    # What the page promises, whatever the machine.
    assert 1 < rows["plan"]["bytes_a_chunk"] <= 100
    assert 1 < rows["plan, shards"]["bytes_a_chunk"] <= 100
    assert 16 <= rows["indexes"]["bytes_a_chunk"] < 20
