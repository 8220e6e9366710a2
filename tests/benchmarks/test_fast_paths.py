"""The table of ways of reading and writing names files that exist, and the benchmark runs each way and without it."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def fast_paths(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("fast_paths")


@pytest.mark.slow
def test_each_way_runs_with_and_without_it(fast_paths: Any, tmp_path: Path) -> None:
    fast_paths.make(str(tmp_path))
    for way in fast_paths.WAYS:
        fast, general = fast_paths.measure(way, str(tmp_path), 1)
        assert 0 < fast < 60
        assert 0 < general < 60


def rows() -> list[list[str]]:
    page = (ROOT / "docs/architecture.md").read_text()
    (table,) = re.findall(r"(?s)\| way \| when .*?\n\n", page)
    return [line.strip("| ").split(" | ") for line in table.splitlines()[2:] if line]


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_modules_and_tests_of_the_table_exist(row: list[str]) -> None:
    assert len(row) == 4
    tests = re.findall(r"[\w/]+/test_\w+\.py", row[3])
    assert tests
    for name in tests:
        assert (ROOT / "tests" / name).is_file(), name
    for name in re.findall(r"`([\w/]+\.py)`", row[2]):
        assert any((ROOT / folder / name).is_file() for folder in ("gzarr", "kernels/gzarr_kernels", ".")), name


def test_each_way_of_the_benchmark_is_in_the_table(fast_paths: Any) -> None:
    known = " ".join(row[0] for row in rows())
    for way in fast_paths.WAYS:
        assert way.name.partition(":")[0] in known, way.name
