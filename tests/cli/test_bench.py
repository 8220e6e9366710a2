"""``gzarr bench``, and the benchmark harness on arrays small enough for a test."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from support import devices

import gzarr
from gzarr.cli import bench
from gzarr.cli.main import main
from gzarr.engines import result_memory

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def harness():
    """Import the harness's modules; its directory is on the path for this module only."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        names = ("fields", "limit", "report", "rivals", "workloads")
        yield SimpleNamespace(**{name: importlib.import_module(name) for name in names})
    finally:
        sys.path.remove(str(BENCHMARKS))


@pytest.fixture
def group_path(tmp_path):
    """Create a group of three arrays: plain, sharded, and of version 2."""
    path = tmp_path / "data.zarr"
    group = zarr.open_group(str(path), mode="w")
    random = np.random.default_rng(7)
    group.create_array("plain", data=random.integers(0, 99, (40, 30), dtype="u2"), chunks=(16, 16))
    group.create_array("deep/sharded", data=random.random((32, 32)), chunks=(8, 8), shards=(16, 16))
    old = zarr.create_array(str(path / "old"), shape=(50,), chunks=(7,), dtype="f4", zarr_format=2, fill_value=np.nan)
    old[:20] = 1
    return path


def _json(capsys, *arguments: str) -> tuple[int, dict]:
    code = main(["bench", "--json", *arguments])
    return code, json.loads(capsys.readouterr().out)


def test_every_array_of_a_group_beside_every_peer(group_path, capsys):
    code, document = _json(capsys, str(group_path), "--rounds", "2")
    arrays = {a["name"]: a for a in document["arrays"]}
    # A version 2 array in a version 3 group is not its child.
    assert set(arrays) == {"/plain", "/deep/sharded"}
    for array in arrays.values():
        assert array["equal"] == {"zarr-python": True, "zarrs": True, "tensorstore": True}, array["remarks"]
        assert set(array["readers"]) == {"gzarr", *bench.PEERS}
        assert all(len(r["rounds_ms"]) == 2 and r["gb_per_s"] > 0 for r in array["readers"].values())
        assert array["selection"] == "everything"
        assert array["stages_ms"]
    assert arrays["/plain"]["nbytes"] == 40 * 30 * 2
    assert code == 0


def test_one_array_of_version_2_with_nan(group_path, capsys):
    code, document = _json(capsys, str(group_path / "old"), "--rounds", "1")
    (array,) = document["arrays"]
    assert array["name"] == "/"
    assert array["equal"] == {"zarr-python": True, "zarrs": True, "tensorstore": True}, array["remarks"]
    assert code == 0


def test_variable_length_text(tmp_path, capsys):
    text = np.array(["a", "", "München", "x" * 40] * 5, object)
    gzarr.create_array(tmp_path / "text.zarr", data=text, chunks=(7,))
    code, document = _json(capsys, str(tmp_path / "text.zarr"), "--rounds", "1", "--peer", "zarr-python")
    assert code == 0
    (array,) = document["arrays"]
    assert array["equal"] == {"zarr-python": True}, array["remarks"]
    assert not bench._same(text, np.array(["b"] * 20, np.dtypes.StringDType()))


def test_node_and_limit(group_path, capsys):
    code, document = _json(capsys, str(group_path), "--path", "plain", "--limit", "1kB", "--peer", "none")
    (array,) = document["arrays"]
    assert array["selection"] == "[:16, :30]"
    assert array["nbytes"] == 16 * 30 * 2
    assert list(array["readers"]) == ["gzarr"]
    assert code == 0


def test_text(group_path, capsys):
    assert main(["bench", str(group_path / "plain"), "--rounds", "1"]) == 0
    out = capsys.readouterr().out
    assert "same elements" in out
    assert "GB/s" in out
    assert "zarr-python" in out


def test_large_results_with_and_without_recycled_memory(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("GZARR_RECYCLE_BYTES", str(64 << 20))
    path = tmp_path / "large"
    zarr.create_array(str(path), data=np.arange(36 << 20, dtype="u1"), chunks=(1 << 20,))
    code, document = _json(capsys, str(path), "--rounds", "2", "--peer", "zarr-python")
    (array,) = document["arrays"]
    assert set(array["readers"]) == {"gzarr", "gzarr recycled", "zarr-python"}
    assert all(len(reader["rounds_ms"]) == 2 for reader in array["readers"].values())
    assert os.environ["GZARR_RECYCLE_BYTES"] == str(64 << 20)
    # Where none would be kept, there is no such column.
    monkeypatch.setenv("GZARR_RECYCLE_BYTES", "1000")
    _, document = _json(capsys, str(path), "--rounds", "1", "--peer", "none")
    assert set(document["arrays"][0]["readers"]) == {"gzarr"}
    assert code == 0


def test_other_elements_are_told_and_fail(group_path, capsys, monkeypatch):
    monkeypatch.setattr(bench, "_same", lambda result, expected: False)
    assert main(["bench", str(group_path / "plain"), "--rounds", "1", "--peer", "zarr-python"]) == 1
    assert "DIFFERENT ELEMENTS" in capsys.readouterr().out


def test_a_damaged_array_fails_and_the_others_are_measured(group_path, capsys):
    chunk = group_path / "deep/sharded/c/0/0"
    chunk.write_bytes(chunk.read_bytes()[:-9])
    code = main(["bench", str(group_path), "--json", "--rounds", "1", "--peer", "none"])
    captured = capsys.readouterr()
    assert code == 1
    assert "/deep/sharded" in captured.err
    assert [a["name"] for a in json.loads(captured.out)["arrays"]] == ["/plain"]


def test_a_peer_that_is_not_installed_is_a_remark(group_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorstore", None)
    code, document = _json(capsys, str(group_path / "plain"), "--rounds", "1", "--peer", "tensorstore")
    assert document["arrays"][0]["remarks"] == {"tensorstore": "not installed"}
    assert code == 0


def test_a_text_without_dimensions(tmp_path, capsys):
    """Reads give a ``str``."""
    zarr.create_array(tmp_path / "a.zarr", shape=(), dtype="string")[...] = "one"
    code, document = _json(capsys, str(tmp_path / "a.zarr"), "--rounds", "1", "--peer", "zarr-python")
    assert document["arrays"][0]["equal"] == {"zarr-python": True}
    assert code == 0


def test_an_array_on_a_gpu(tmp_path, capsys):
    data = np.random.default_rng(3).random((64, 48), dtype="f4")
    gzarr.create_array(tmp_path / "a.zarr", data=data, chunks=(16, 16), device="cpu")
    with devices.on_host() as device:
        code, document = _json(capsys, str(tmp_path / "a.zarr"), "--rounds", "2", "--device", "cuda")
        array = gzarr.open_array(tmp_path / "a.zarr", device="cuda")
        with device.held_back(device.current_stream()) as gate:
            gate.open_after(0.1)
            result = bench._complete(array[...])
            assert gate.passed
        np.testing.assert_array_equal(result.get(), data)
        del result
    assert code == 0
    (measured,) = document["arrays"]
    assert measured["equal"] == {"zarr-python": True, "zarrs": True, "tensorstore": True}, measured["remarks"]
    assert all(len(reader["rounds_ms"]) == 2 for reader in measured["readers"].values())


def test_nothing_there(tmp_path, group_path, capsys):
    assert main(["bench", str(tmp_path / "absent")]) == 1
    zarr.open_group(str(tmp_path / "empty"), mode="w")
    assert main(["bench", str(tmp_path / "empty")]) == 1
    assert "no arrays" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--limit", "many"], ["--rounds", "0"], ["--peer", "h5py"], []])
def test_wrong_usage(arguments, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["bench", *(["somewhere"] if arguments else []), *arguments])
    assert stopped.value.code == 2


@pytest.mark.parametrize(
    ("text", "size"),
    [("1", 1), ("2GiB", 2 << 30), ("500 MB", 500 * 10**6), ("1.5kB", 1500), ("1e6", 10**6), ("3t", 3 * 10**12)],
)
def test_sizes(text, size):
    assert bench.parse_size(text) == size


@pytest.mark.parametrize("text", ["", "0", "-1", "GiB", "1 XB", "nan", "inf", "1e400"])
def test_no_sizes(text):
    with pytest.raises(argparse.ArgumentTypeError, match="not a size"):
        bench.parse_size(text)


@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(1, 20)), max_size=4),
    st.integers(1, 16),
    st.integers(1, 10**6),
)
def test_the_leading_part_is_whole_chunks_within_the_limit(axes, itemsize, limit_bytes):
    shape, chunk_shape = tuple(n for n, _ in axes), tuple(c for _, c in axes)
    part = [s.stop for s in bench.leading_part(shape, chunk_shape, itemsize, limit_bytes)]
    for n, size, chunk in zip(part, shape, chunk_shape, strict=True):
        assert n == size or (0 < n < size and n % chunk == 0)
    one_chunk = all(n <= c for n, c in zip(part, chunk_shape, strict=True))
    assert one_chunk or np.prod(part, dtype=object) * itemsize <= limit_bytes


def test_the_harness_checks_every_element(harness):
    array = np.arange(24.0).reshape(6, 4)
    rows = harness.workloads.Rows(np.array([[0, 5, 5], [2, 1, 0]]))
    dataset = harness.workloads.Dataset("x", None, "f8", (6, 4), (2, 4), ())
    workload = harness.workloads.Workload("rows", dataset, rows)
    assert [c.tolist() for c in workload.chunks_touched()] == [[0, 2], [0, 1]]
    assert workload.output_nbytes() == 2 * 3 * 4 * 8
    rival = SimpleNamespace(name="someone")
    good = [lambda b=b: array[b] for b in rows.batches]
    harness.rivals.check(rival, good, workload, array, reads=2)
    wrong = array.copy()
    wrong[2, 3] += 1
    with pytest.raises(AssertionError, match="read 1: wrong values"):
        harness.rivals.check(rival, [good[0], lambda: wrong[rows.batches[1]]], workload, array, reads=2)
    with pytest.raises(AssertionError, match="float32"):
        harness.rivals.check(rival, [lambda: array[rows.batches[0]].astype("f4")], workload, array, reads=2)


def test_the_harness_computes_ratios(harness):
    m = harness.report.Read("w", {}, 10**9, 1 << 20, True)
    m.rounds_ms = {
        "gzarr fresh": [50.0, 40, 900],
        "gzarr recycled": [32.0],
        "gzarr out=": [25.0],
        "zarrs": [100.0],
        "zarr-python": [80.0],
        "limit": [20.0],
    }
    assert m.gb_per_s("gzarr fresh") == 20
    assert m.fastest_peer == "zarr-python"
    assert m.speedup() == pytest.approx(1.6)
    assert m.to_json()["times_fastest_peer"] == pytest.approx(1.6)
    assert m.to_json()["recycled_times_fastest_peer"] == pytest.approx(2.5)
    assert m.of_limit("gzarr out=") == pytest.approx(0.8)
    least, mean, limit = harness.report.speed_targets([m])
    assert (least.met, mean.met, limit.met) == (True, False, True)
    text = harness.report.table([m], ["gzarr fresh", "gzarr recycled", "zarrs", "zarr-python"])
    assert "1.60" in text
    assert "2.50" in text
    assert "-" in text


def test_fresh_memory_is_new_each_time_and_recycled_memory_is_not(harness, tmp_path):
    path = tmp_path / "a"
    zarr.create_array(str(path), data=np.arange(40 << 20, dtype="u1"), chunks=(1 << 20,))
    dataset = harness.workloads.Dataset("x", None, "u1", (40 << 20,), (1 << 20,), ())
    workload = harness.workloads.Workload("whole", dataset)
    kept = {}
    for name in ("gzarr fresh", "gzarr recycled"):
        rival = harness.rivals.RIVALS[name](1)
        with rival.session():
            (call,) = rival.calls(path, workload)
            call()
            kept[name] = result_memory.kept_count()
        assert not result_memory.kept_count()
    assert kept == {"gzarr fresh": 0, "gzarr recycled": 1}


def test_touched_chunks_of_boxes(harness):
    w = harness.workloads
    dataset = w.Dataset("x", None, "u2", (10, 9), (4, 4), ())

    def touched(access):
        return [c.tolist() for c in w.Workload("", dataset, access).chunks_touched()]

    assert touched(w.Region((...,))) == [list(range(9))]
    assert touched(w.Region((slice(None, None, 9), 8))) == [[2, 8]]
    assert touched(w.Windows(np.array([[0, 0], [3, 3]]), (2, 2))) == [[0, 1, 3, 4]]


def test_the_limit_decodes_the_arrays_own_bytes(harness, tmp_path):
    """For every codec chain of the benchmark, the bare library decodes the buffer to the chunk that was encoded."""
    for workload in harness.workloads.workloads(1e-6):
        if not workload.whole or workload.dataset.chunk_nbytes > 10 << 20:
            continue
        dataset = workload.dataset
        stored = harness.workloads.store(dataset, tmp_path)
        if any(one["id"] == "fixedscaleoffset" for one in dataset.filters):
            with pytest.raises(ImportError, match="filters"):
                harness.limit.Limit(dataset, stored.path, 1)
            continue
        first = harness.fields.make(dataset.field, dataset.shape)[tuple(slice(0, c) for c in dataset.chunk_shape)]
        chunk = np.zeros(dataset.chunk_shape, dataset.dtype)
        chunk[tuple(slice(0, n) for n in first.shape)] = first
        if "transpose" in dataset.name:
            chunk = np.ascontiguousarray(chunk.transpose(2, 1, 0)).astype(">f8")
        limit = harness.limit.Limit(dataset, stored.path, 1)
        (call,) = limit.calls(workload)
        call()
        (address,) = {number: where for number, where in limit._addresses.items() if number == 0}.values()
        limit._decode([address])
        assert limit._buffers[0].tobytes() == chunk.tobytes(), dataset.name
        limit.close()


def test_the_benchmark_runs(harness, tmp_path):
    file = tmp_path / "read.json"
    options = ["--scale", "0.0001", "--rounds", "1", "--threads", "1", "--data", str(tmp_path), "--no-targets"]
    options += ["--workload", "public-shards", "--workload", "a[0]", "--json", str(file)]
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / "read.py"), *options],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(file.read_text())
    assert [w["workload"] for w in document["workloads"]] == ["public-shards-zstd", "station a[0]"]
    # Releases from 3.4 on have the fused pipeline.
    lacking = set() if tuple(map(int, zarr.__version__.split(".")[:2])) >= (3, 4) else {"zarr-python fused"}
    for workload in document["workloads"]:
        assert set(workload["rivals"]) == {"limit", *harness.rivals.RIVALS} - lacking
        assert workload["times_fastest_peer"] > 0
    assert document["versions"]["zarr"] == zarr.__version__
    assert "public-shards-zstd" in done.stdout
