"""The harness of the writing benchmark, on arrays small enough for a test."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numcodecs
import numpy as np
import pytest

import gzarr

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def harness() -> Iterator[SimpleNamespace]:
    """Import the harness's modules; its directory is on the path for this module only."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        yield SimpleNamespace(**{name: importlib.import_module(name) for name in ("workloads", "write", "write_limit")})
    finally:
        sys.path.remove(str(BENCHMARKS))


def test_a_run_checks_times_and_reports(harness, tmp_path, capsys):
    file = tmp_path / "write.json"
    arguments = ["--scale", "0.001", "--rounds", "1", "--no-append", "--json", str(file), "--data", str(tmp_path)]
    chosen = [
        "--workload",
        "u2-64-blosc-lz4",
        "--workload",
        "u2-32-zstd-shards",
        "--rival",
        "automatic",
        "--rival",
        "given",
        "--rival",
        "zarrs",
    ]
    assert harness.write.main([*arguments, *chosen]) == 0
    document = json.loads(file.read_text())
    assert [w["workload"] for w in document["workloads"]] == ["u2-64-blosc-lz4", "u2-32-zstd-shards"]
    for workload in document["workloads"]:
        assert set(workload["rivals"]) == {"automatic", "given", "zarrs", "limit"}, workload["notes"]
        for ours in ("automatic", "given"):
            assert workload["stored_nbytes"][ours] <= 1.02 * workload["stored_nbytes"]["zarrs"]
        assert set(workload["times_fastest_peer"]) == set(workload["of_limit"]) == {"automatic", "given"}
        assert set(workload["extra_nbytes"]) == {"automatic", "given", "zarrs"}, workload["notes"]
    assert "geometric mean" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == [file]


def test_elements_written_wrongly_are_found(harness, tmp_path):
    dataset = next(d for d in harness.write._datasets(0.001) if d.name == "u2-64-raw")
    data = harness.write._elements(dataset)
    rival = SimpleNamespace(write=lambda path, data: lambda: None)
    with pytest.raises(AssertionError, match="elements read differ"):
        harness.write._check(rival, dataset, data, harness.workloads.digest(data), tmp_path)


@pytest.mark.parametrize("name", ["f8-big-transpose-zstd", "u2-64-gzip", "f4-128-zstd-crc32c", "u2-64-blosc-lz4"])
def test_the_limit_encodes_chunks_in_their_stored_order(harness, name, tmp_path):
    dataset = next(d for d in harness.write._datasets(0.001) if d.name == name)
    dataset = harness.workloads.Dataset(**{**dataset.__dict__, "shape": (8, 16, 24), "chunk_shape": (8, 16, 32)})
    data = np.arange(8 * 16 * 24).reshape(8, 16, 24).astype(dataset.dtype)
    limit = harness.write_limit.Limit(dataset, data, 1)
    limit.write(tmp_path)()
    limit.close()
    written = (tmp_path / "limit").read_bytes()
    codec = numcodecs.GZip() if "gzip" in name else numcodecs.Blosc() if "blosc" in name else numcodecs.Zstd()
    found = np.frombuffer(codec.decode(written[:-4] if "crc32c" in name else written), np.uint8)
    stored = found.view(np.dtype(dataset.dtype).newbyteorder(">" if "big" in name else "<"))
    chunk = stored.reshape(32, 16, 8).transpose(2, 1, 0) if "transpose" in name else stored.reshape(8, 16, 32)
    np.testing.assert_array_equal(chunk[:, :, :24], data)
    assert not chunk[:, :, 24:].any()


def test_goals(harness):
    slow = harness.write.Written("slow", {}, 100, 1 << 20, True)
    slow.rounds_ms = {"automatic": [10.0], "given": [10.5], "zarrs": [11.0], "limit": [5.0]}
    slow.extra_nbytes = {"automatic": 60 << 20, "given": 70 << 20}
    fast = harness.write.Written("fast", {}, 100, 1 << 20, True)
    fast.rounds_ms = {"automatic": [10.0], "given": [20.0], "zarrs": [90.0], "tensorstore": [44.0]}
    fast.extra_nbytes = {"given": 1 << 20}
    mean, least, memory = harness.write.goals([slow, fast], threads=2)
    assert (least.note, least.met) == ("slow", False)
    assert mean.value == pytest.approx(np.sqrt(1.1 * 4.4))
    assert (memory.value, memory.bound, memory.met) == (70, 66, False)


@pytest.mark.parametrize("name", ["u2-64-gzip", "f4-weather-blosc-lz4", "f8-big-transpose-zstd", "u2-32-zstd-shards"])
def test_the_automatic_column_has_the_same_codecs_and_no_level(harness, name, tmp_path):
    dataset = next(d for d in harness.write._datasets(0.001) if d.name == name)
    data = harness.write._elements(dataset)
    for ours, free in (("automatic", True), ("given", False)):
        with harness.write._fresh(dataset, tmp_path) as path:
            before = gzarr.open_array(path, device="cpu").metadata.codecs
            write = harness.write.RIVALS[ours](1).write(path, data)
            assert write.func.__self__.metadata.level_is_free is free
            assert gzarr.open_array(path, device="cpu").metadata.codecs == before
