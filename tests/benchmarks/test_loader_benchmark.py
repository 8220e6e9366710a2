"""The harness of the benchmark of loaders, on arrays small enough for a test, with the rivals that are installed."""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
LOADERS = ["gzarr", "gzarr fresh", "tensorstore"]
OF_TORCH = ["gzarr DataLoader 2", "zarr-python"] if importlib.util.find_spec("torch") else []


@pytest.fixture(scope="module")
def harness() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        yield importlib.import_module("loader")
    for name in [name for name in sys.modules if name.partition(".")[0] in ("loader", "loaders")]:
        del sys.modules[name]


# Each loader of each scenario runs in a process of its own.
@pytest.mark.slow
def test_a_run_checks_times_and_reports(harness: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "loader.json"
    small = ["--scale", "0.005", "--rounds", "1", "--json", str(file), "--data", str(tmp_path)]
    scenarios = ["random", "windows, 8 steps"]
    chosen = [f"--scenario={name}" for name in scenarios] + [f"--rival={name}" for name in LOADERS + OF_TORCH]
    # 1: at this size, no target is met.
    assert harness.main([*small, *chosen, "--rival=gzarr listed"]) in (0, 1)
    found = json.loads(file.read_text())
    assert [row["scenario"] for row in found["scenarios"]] == scenarios
    for row in found["scenarios"]:
        listed = ["gzarr listed"] if row["scenario"] == "random" else []
        assert set(row["loaders"]) == {*LOADERS, *OF_TORCH, *listed}, row["notes"]
        assert row["fastest_rival"] in row["loaders"]
        for one in row["loaders"].values():
            assert one["samples_per_s"] > 0
            assert one["complete"]
            assert one["samples"] > 0
            assert one["peak_bytes"] >= 0
            assert 0 < one["mixing"] <= 2
        amplification = {name: one["amplification"] for name, one in row["loaders"].items()}
        assert min(amplification.values()) >= 1
        if OF_TORCH:
            # It reads each window by itself, and windows share chunks.
            assert amplification["zarr-python"] > amplification["gzarr"]
    printed = capsys.readouterr().out
    assert "left out: gzarr listed: only random windows" in printed
    assert "geometric mean" in printed


@pytest.fixture
def stored(harness: Any, tmp_path: Path) -> tuple[Any, Path]:
    scenario = sys.modules["loaders.scenarios"].SCENARIOS["rows, chunk 32"].scaled(0.005)
    return scenario, scenario.store(tmp_path)


def check(harness: Any, stored: tuple[Any, Path], batches: list[Any], **options: Any) -> dict[str, Any]:
    """Return what the check says of some batches, each a list of one array."""
    scenario, home = stored
    own, worker = (sys.modules.get(name) or importlib.import_module(name) for name in ("loaders.own", "loaders.worker"))
    checked = worker.Check(scenario, own.Opened(lambda number: iter(batches), list, **options), home)
    for batch in batches:
        checked.add(batch)
    result: dict[str, Any] = checked.result(complete=True)
    return result


def rows(stored: tuple[Any, Path]) -> Any:
    import zarr

    return zarr.open_array(str(stored[1] / "data.zarr" / "x"), mode="r")[...]


def test_the_check_finds_wrong_repeated_and_missing_samples(harness: Any, stored: tuple[Any, Path]) -> None:
    data, size = rows(stored), stored[0].batch
    whole = [[data[at : at + size]] for at in range(0, len(data), size)]
    assert {name: check(harness, stored, whole)[name] for name in ("wrong", "repeated", "missing")} == {
        "wrong": 0,
        "repeated": 0,
        "missing": 0,
    }
    assert check(harness, stored, whole[1:])["missing"] == size
    assert check(harness, stored, [whole[0], *whole])["repeated"] == size
    damaged = data[:size].copy()
    damaged[3, 0, 0, 0] += 1
    assert check(harness, stored, [[damaged], *whole[1:]])["wrong"] == 1
    with pytest.raises(AssertionError, match="batches of shape"):
        check(harness, stored, [[data[:size, 0]]])


def test_mixing_and_amplification_are_measured(harness: Any, stored: tuple[Any, Path]) -> None:
    data, size = rows(stored), stored[0].batch
    count, run = len(data), stored[0].chunk[0]
    assert (count, size, run) == (128, 64, 32)
    assert sys.modules["loaders.scenarios"].STRETCHES == 64
    in_order = check(harness, stored, [[data[:size]], [data[size:]]], together=size)
    mixed = np.arange(count).reshape(2, size).T.ravel()
    spread = check(harness, stored, [[data[mixed[:size]]], [data[mixed[size:]]]], together=size)
    # Half of 64 stretches, each twice; each stretch once.
    assert in_order["entropy_bits"] == pytest.approx(5)
    assert spread["entropy_bits"] == pytest.approx(5)
    every_other = np.concatenate([np.arange(0, count, 2), np.arange(1, count, 2)])
    even = check(harness, stored, [[data[every_other[:size]]], [data[every_other[size:]]]], together=size)
    assert even["entropy_bits"] == pytest.approx(6)
    assert even["mixing"] > in_order["mixing"]
    # Of four stretches of 32 samples, batches in order have two.
    assert even["runs"] is None
    assert in_order["runs"] == pytest.approx((1 - 31 / 127) / (31 / 63 - 31 / 127))
    # Batches of two chunks; of all four chunks, twice.
    assert in_order["amplification"] == 1
    assert even["amplification"] == 2
    assert check(harness, stored, [[data]], together=0)["amplification"] == 1
    assert check(harness, stored, [[data]])["amplification"] is None
