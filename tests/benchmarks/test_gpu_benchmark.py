"""The GPU benchmarks, as far as they need no GPU: on CUDA in host memory, at small sizes."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support import gpu_benchmarks
from support.gpu_benchmarks import Collected

import gzarr

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import SimpleNamespace

    from support.watched_device import WatchedDevice

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
LITTLE = {"name": "bytes", "configuration": {"endian": "little"}}


@pytest.fixture(scope="module")
def b() -> Iterator[SimpleNamespace]:
    with gpu_benchmarks.modules() as found:
        yield found


@pytest.fixture
def on_host() -> Iterator[WatchedDevice]:
    with gpu_benchmarks.on_host() as device:
        yield device


# -- workloads


def _small(b: SimpleNamespace, zarr_format: int = 3, **more: Any) -> Any:
    blosc = b.workloads.blosc("lz4", "shuffle", 2)
    made = {"codecs": (LITTLE, blosc), "shape": (64, 32, 32), "chunk_shape": (16, 16, 16), **more}
    return b.workloads.Dataset("small", b.fields.camera_u2, "u2", zarr_format=zarr_format, least=16, **made)


def test_workloads_are_those_of_the_other_benchmark_and_of_published_pipelines(b: SimpleNamespace) -> None:
    tiles = b.gpu.workloads.all_workloads(2 << 30)
    names = [t.workload.name for t in tiles]
    assert names[3:] == [w.name for w in b.workloads.workloads(rows=1000)]
    era5, shards, large = tiles[:3]
    assert era5.workload.dataset.chunk_shape == (1, 721, 1440)
    assert shards.workload.dataset.chunk_nbytes == 1 << 20
    assert large.workload.dataset.shape[1:] == (128, 1280, 640)
    for t in tiles:
        dataset = t.workload.dataset
        outer = dataset.shard_shape or dataset.chunk_shape
        assert dataset.shape == tuple(n * r for n, r in zip(t.base.shape, t.repeats, strict=True))
        assert np.prod([-(-n // o) for n, o in zip(dataset.shape, outer, strict=True)]) <= 50_000
        if t.workload.whole:
            assert 1.8 * 2**30 < dataset.nbytes < 2.3 * 2**30, t.workload.name
        # Every chunk that is read exists.
        for numbers in t.workload.chunks_touched():
            assert numbers.max() < np.prod(dataset.grid_shape)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_tiled_arrays_are_written_and_read_back(zarr_format: int, b: SimpleNamespace, tmp_path: Path) -> None:
    w, g = b.workloads, b.gpu.workloads
    starts = np.array([[0, 0, 0], [40, 10, 3], [47, 15, 15]])
    accesses = [
        w.Region((...,)),
        w.Region((slice(3, 90, 7), 5, slice(None, None, -2))),
        w.Windows(starts, (16, 16, 16)),
        w.Rows(np.array([[0, 63, 5], [5, 5, 60]])),
    ]
    small = _small(b, zarr_format)
    for access in accesses:
        t = g.tiled(w.Workload("w", small, access), 1 << 19, 1 << 16)
        assert (t.base.nbytes, t.workload.dataset.nbytes) == (1 << 16, 1 << 19)
        with g.written(t, tmp_path) as stored:
            rival = b.rivals.Gzarr(2)
            results = [b.rivals.as_array(call()) for call in rival.calls(stored.path, t.workload)]
            whole = np.tile(stored.base, t.repeats)
            expected = list(t.expected(stored.base))
            assert stored.stored_nbytes == sum(
                f.stat().st_size
                for f in stored.path.rglob("*")
                if f.is_file() and not f.name.endswith(("json", "array"))
            )
        for result, wanted, direct in zip(results, expected, t.workload.expected(whole), strict=True):
            np.testing.assert_array_equal(wanted, direct)
            np.testing.assert_array_equal(result, wanted)
        assert not stored.path.exists()
        if t.workload.whole:
            assert g.matches(results[0], t, stored.base)
            results[0][40, 3, 3] ^= 1
            assert not g.matches(results[0], t, stored.base)
            assert not g.matches(results[0][:-1], t, stored.base)


def test_a_part_of_a_read_stands_for_the_whole(b: SimpleNamespace) -> None:
    w = b.workloads
    for access, times in (
        (w.Region((...,)), 4.0),
        (w.Windows(np.zeros((32, 3), np.int64), (8, 8, 8)), 16.0),
        (w.Rows(np.zeros((5, 3), np.int64)), 5.0),
    ):
        workload = w.Workload("w", _small(b), access)
        part = b.gpu.comparison.part_of(workload, 16)
        assert b.gpu.comparison.factor(workload, part) == times
    assert b.gpu.comparison.part_of(w.Workload("w", _small(b), w.Region((0,))), 16) is None
    assert b.gpu.comparison.part_of(w.Workload("w", _small(b, shape=(16, 32, 32))), 16) is None


# -- measuring and reporting


def _measure(
    b: SimpleNamespace, device: Any, chosen: Any, rivals: Any, folder: Path, seconds: float = 60.0
) -> Collected:
    collected = Collected(b)
    arguments = b.gpu.read.parser().parse_args(["--rounds", "2", "--threads", "2", "--data", str(folder)])
    names = [t.workload.name for t in chosen]
    b.gpu.read.measure_all(collected.steps, device, names, chosen, rivals, arguments, seconds)
    return collected


def test_the_benchmark_on_a_device(b: SimpleNamespace, on_host: WatchedDevice, tmp_path: Path) -> None:
    w = b.workloads
    deflate = {"codecs": (LITTLE, b.workloads.blosc("zlib", "shuffle", 2))}
    sharded = {"codecs": (LITTLE, b.workloads._zstd()), "shard_shape": (32, 32, 32)}
    starts = np.array([[0, 0, 0], [40, 10, 3]])
    chosen = [
        b.gpu.workloads.tiled(workload, 1 << 18, 1 << 16)
        for workload in (
            w.Workload("whole", _small(b)),
            w.Workload("not aligned", _small(b, **deflate)),
            w.Workload("shards", _small(b, **sharded)),
            w.Workload("raw", _small(b, codecs=(LITTLE,))),
            w.Workload("windows", _small(b), w.Windows(starts, (16, 16, 16))),
            w.Workload("rows", _small(b), w.Rows(np.array([[0, 63, 5], [5, 5, 60]]))),
        )
    ]
    rivals, absent = b.gpu.rivals.available(["gzarr out=", "gzarr"], 2)
    assert not absent
    # A peer that needs no GPU, under a name of the table.
    rivals["zarr-python"] = b.rivals.ZarrPython(2)
    collected = _measure(b, on_host, chosen, rivals, tmp_path)
    results = collected.measured()
    assert b.gpu.read.sound(collected.found), [m.notes for m in results.values()]
    assert [e["end"] for e in collected.events if "end" in e] == [t.workload.name for t in chosen] == list(results)
    limits = {m.name: {name for name in b.gpu.limits.LIMITS if m.limit_ms(name)} for m in results.values()}
    every = set(b.gpu.limits.LIMITS)
    assert limits == {
        "whole": every, "not aligned": every, "shards": every, "raw": every - {"decode"}, "windows": every,
        "rows": set(),
    }  # fmt: skip
    for m in results.values():
        assert m.ms("gzarr") > 0
        assert m.fastest_peer == "zarr-python"
        document = m.to_json()
        assert document["times_fastest_peer"] == pytest.approx(m.ms("zarr-python") / m.ms("gzarr"))
        json.dumps(document)
    assert len(b.gpu.report.table(list(results.values()), list(rivals)).splitlines()) >= 2 + len(results)
    late = _measure(b, on_host, chosen[:2], rivals, tmp_path, seconds=0.0).found
    assert (late.figures, late.left_out) == ({}, ["whole", "not aligned"])


def test_what_fails_takes_nothing_else_with_it(
    b: SimpleNamespace, on_host: WatchedDevice, tmp_path: Path, monkeypatch: Any
) -> None:
    """A reader that fails when it is timed, limits that fail, and a workload that cannot be written."""

    class Tires(b.rivals.Gzarr):  # type: ignore[misc,name-defined]
        def calls(self, path: Path, workload: Any) -> Any:
            (call,) = super().calls(path, workload)
            left = iter([True] * 2)

            def tired() -> Any:
                if next(left, False):
                    return call()
                raise RuntimeError("tired\nof it")

            return [tired]

    t = b.gpu.workloads.tiled(b.workloads.Workload("whole", _small(b)), 1 << 18, 1 << 16)
    absent = b.gpu.workloads.tiled(b.workloads.Workload("absent", _small(b)), 1 << 18, 1 << 16)
    written = b.gpu.workloads.written

    def full(tiles: Any, folder: Path) -> Any:
        if tiles is absent:
            raise OSError("no space left")
        return written(tiles, folder)

    def fails(self: Any) -> Any:
        raise gzarr.DeviceError("nvCOMP cannot")

    monkeypatch.setattr(b.gpu.workloads, "written", full)
    monkeypatch.setattr(b.gpu.limits.FrameBatch, "run", fails)
    rivals = {"gzarr": b.rivals.Gzarr(2), "czarr": Tires(2)}
    collected = _measure(b, on_host, [absent, t], rivals, tmp_path)
    assert collected.found.failed == {"absent": {"": "OSError: no space left"}}
    whole = collected.measured()["whole"]
    assert whole.notes["czarr"] == "RuntimeError: tired"
    assert whole.notes["limits"] == "DeviceError: nvCOMP cannot"
    assert len(whole.rounds_ms["gzarr"]) == 2
    assert whole.sound
    assert not b.gpu.read.sound(collected.found)


def test_a_reader_that_ended_a_process_is_left_out(b: SimpleNamespace, on_host: WatchedDevice, tmp_path: Path) -> None:
    t = b.gpu.workloads.tiled(b.workloads.Workload("whole", _small(b)), 1 << 18, 1 << 16)
    with b.gpu.workloads.written(t, tmp_path) as stored:
        collected = Collected(b, {"whole": {"czarr": "it hung", "limits": "it hung, too"}})
        # Neither is asked for anything.
        rivals = {"gzarr": b.rivals.Gzarr(2), "czarr": None}
        b.gpu.comparison.Comparison(on_host, rivals, t, stored, 30.0, 1, collected.steps).run(2)
    whole = collected.measured()["whole"]
    assert whole.notes == {"czarr": "it hung", "limits": "it hung, too"}
    assert list(whole.rounds_ms) == ["gzarr"]


def test_rates_and_waves(b: SimpleNamespace, on_host: WatchedDevice, tmp_path: Path, monkeypatch: Any) -> None:
    s, collected = (
        b.gpu.saturation,
        Collected(b, {"decoders at saturation": {"lz4, 2 frames of 4096 bytes": "it hung"}}),
    )
    monkeypatch.setattr(s, "BATCHES", ((4096, 2),))
    monkeypatch.setattr(s, "WAVE_BYTES", (1 << 19, 1 << 20))
    monkeypatch.setattr(s, "FLIGHTS", (1, 2))
    monkeypatch.setattr(s, "SWEPT", ("u2-64-zstd",))
    s.rates(collected.steps, on_host, 60.0)
    rates = {row["algorithm"]: row for row in collected.found.figures[s.RATES]}
    assert set(rates) == set(b.gpu.samples.ALGORITHMS)
    assert rates["lz4"]["error"] == "it hung"
    assert all(row["decoded"] and row["gb_per_s"] > 0 for name, row in rates.items() if name != "lz4")
    s.sweep(collected.steps, on_host, tmp_path, 4 << 20, 120.0)
    rows = collected.found.figures[s.SWEEP]
    assert [(row["wave_nbytes"], row["in_flight"]) for row in rows] == [(w, f) for w in s.WAVE_BYTES for f in s.FLIGHTS]
    # Chunks have 512 KiB: the engine made waves of the size that was asked for.
    assert [row["chunks_a_wave"] for row in rows] == [1, 1, 2, 2], rows
    assert all(row["gb_per_s"] > 0 for row in rows)
    text = b.gpu.report.beside(list(rates.values()), rows)
    assert "failed" in text
    assert "u2-64-zstd x 524288" in text


def test_writing_on_a_device(b: SimpleNamespace, on_host: WatchedDevice, tmp_path: Path) -> None:
    w = b.gpu.write
    results = {}
    for number, dataset in enumerate(w.datasets(1 << 20, side=64)):
        (folder := tmp_path / str(number)).mkdir()
        results[dataset.name] = w.measure(on_host, dataset, folder, 60, 2)
    for name, found in results.items():
        for writer in w.WRITERS:
            assert found["writers"][writer]["right"], (name, found)
            assert found["writers"][writer]["rounds"] == 2
    encoded = {what for what in on_host.counts if what.startswith("encoded frames")}
    assert encoded == {f"encoded frames {algorithm}" for algorithm in ("zstd", "lz4", "deflate")}
    text = w.table(results)
    assert len(text.splitlines()) == 2 + len(results)
    results["raw"]["writers"]["gzarr"] = {"right": False, "error": "it was so"}
    assert "raw, gzarr: it was so" in w.table(results)


def test_loaders_on_a_device(b: SimpleNamespace, on_host: WatchedDevice, tmp_path: Path) -> None:
    w = b.gpu.loader
    results = {}
    for number, dataset in enumerate(w.datasets(1 << 18, side=32, window=16)):
        (folder := tmp_path / str(number)).mkdir()
        results[dataset.name] = w.measure(on_host, dataset, folder, 60, 2, 0)
    for name, found in results.items():
        for way in ("read", "grid", "anywhere", "pinned"):
            assert found["ways"][way]["right"], (name, found)
            assert found["ways"][way]["rounds"] == 2
    text = w.table(results)
    assert len(text.splitlines()) == 2 + len(results)
    results["zstd"]["ways"]["grid"] = {"right": False, "error": "it was so"}
    assert "zstd, grid: it was so" in w.table(results)


def test_blocks_and_levels_on_a_device(b: SimpleNamespace, on_host: WatchedDevice, tmp_path: Path) -> None:
    w = b.gpu.imaging

    def compute(x: Any, times: int) -> Any:
        stream = on_host.current_stream()
        return w.on_device(on_host, w.mixed(on_host.to_host(x, stream), times))

    results = {}
    for dataset in w.datasets(1 << 18, side=32, chunk=16):
        (folder := tmp_path / dataset.name).mkdir()
        results[dataset.name] = w.measure(on_host, dataset, folder, 60, 2, compute)
    for name, found in results.items():
        assert found["blocks"]["right"], (name, found)
        assert found["levels"]["right"], (name, found)
        assert found["levels"]["count"] > 1
        assert found["blocks"]["times"] >= 1
    assert len(w.table(results).splitlines()) == 2 + len(results)
    (folder := tmp_path / "wrong").mkdir()
    wrong = w.measure(on_host, w.datasets(1 << 18, side=32, chunk=16)[1], folder, 60, 1, lambda x, times: x)
    assert wrong["blocks"]["error"] == "AssertionError: WRONG RESULT"
    assert "zstd, blocks: AssertionError" in w.table({"zstd": wrong})


@pytest.mark.timeout(180)
def test_arrays_one_after_the_other(tmp_path: Path) -> None:
    """A whole run: small arrays in a folder that is gone afterwards, a table, and a document."""
    (data := tmp_path / "data").mkdir()
    arguments = ["--codec", "zstd in", "--mib", "1", "--side", "64", "--rounds", "1", "--data", str(data)]
    done, document = gpu_benchmarks.run_program("write", tmp_path, *arguments)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[2].startswith("zstd in shards")
    assert list(document["arrays"]) == ["zstd in shards"]
    assert document["command"].startswith("python benchmarks/gpu write --codec 'zstd in'")
    assert (document["failed"], document["left out"]) == ({}, [])
    assert list(data.iterdir()) == []


def test_samples_of_loaders_are_checked(b: SimpleNamespace, on_host: WatchedDevice, tmp_path: Path) -> None:
    """Wrong, missing and repeated samples are seen, and those that come by processes of ``DataLoader`` compared."""
    pytest.importorskip("torch", reason="PyTorch is not installed")
    w = b.gpu.loader
    (dataset, *_) = w.datasets(1 << 18, side=32, window=16)
    found = w.measure(on_host, dataset, tmp_path, 60, 1, 2)
    assert found["ways"]["DataLoader"]["right"], found
    host = gzarr.open_array(tmp_path, device="cpu")[...]
    batches = list(w.ways(tmp_path, dataset, on_host, 0)["grid"]())
    w.check("grid", iter(batches), host, dataset.chunk_shape, on_host)
    with pytest.raises(AssertionError, match="WRONG"):
        w.check("grid", iter(batches), host + np.uint16(1), dataset.chunk_shape, on_host)
    for others in (batches[1:], batches[1:] + batches[1:2]):
        with pytest.raises(AssertionError, match="samples"):
            w.check("grid", iter(others), host, dataset.chunk_shape, on_host)


def test_wrong_results_are_seen(b: SimpleNamespace, on_host: WatchedDevice, tmp_path: Path) -> None:
    class Liar(b.rivals.Gzarr):  # type: ignore[misc,name-defined]
        def calls(self, path: Path, workload: Any) -> Any:
            (call,) = super().calls(path, workload)
            return [lambda: call() + np.uint16(1)]

    t = b.gpu.workloads.tiled(b.workloads.Workload("whole", _small(b)), 1 << 18, 1 << 16)
    rivals = {"gzarr": b.rivals.Gzarr(2), "czarr": Liar(2)}
    collected = _measure(b, on_host, [t], rivals, tmp_path)
    (measured,) = collected.measured().values()
    assert not measured.sound
    assert not b.gpu.read.sound(collected.found)
    assert measured.notes["czarr"].startswith("WRONG RESULT")
    assert measured.ms("czarr") is None
    assert measured.ms("gzarr") is not None


def test_the_hosts_cost_of_a_chunk(b: SimpleNamespace, on_host: WatchedDevice, tmp_path: Path) -> None:
    t = b.gpu.workloads.tiled(b.workloads.Workload("whole", _small(b)), 1 << 18, 1 << 16)
    stage, event = b.gpu.targets.Staging.stage, type(on_host.event()).synchronize
    # As those of CuPy have, which take no attribute.
    assert not hasattr(on_host.event(), "__dict__")
    with b.gpu.workloads.written(t, tmp_path) as stored:
        start = time.perf_counter()
        us = b.gpu.targets.host_us(on_host, stored.path)
        elapsed = time.perf_counter() - start
    assert 0 < us * 32 < 1e6 * elapsed
    # What was put in place to measure is gone.
    assert b.gpu.targets.Staging.stage is stage
    assert type(on_host.event()).synchronize is event


def _measured(b: SimpleNamespace, **times: float) -> Any:
    facts = {"codecs": ({"name": "zstd"},)}
    measured = b.gpu.report.DeviceMeasured("one", facts, 10**9, 1 << 18, True)
    for name, ms in times.items():
        measured.rounds_ms[name.replace("_", " ")] = [ms, 1000 * ms, ms]
    return measured


def test_ratios(b: SimpleNamespace) -> None:
    limits = {
        "limit read": 8.0,
        "limit read, natively": 5.0,
        "limit copy": 3.0,
        "limit decode": 6.0,
        "limit place": 1.0,
    }
    m = _measured(b, **{"gzarr": 8.0, "gzarr out=": 7.5, "czarr": 40.0, "zarr-python": 400.0}, **limits)
    assert m.fastest_peer == "czarr"
    assert m.speedup() == 5.0
    # Reading counts by the faster of two ways: decoding is what takes longest.
    assert (m.limit_ms("read"), m.slowest_limit) == (5.0, "decode")
    assert m.of_limit("gzarr out=") == 0.8
    assert m.gb_per_s("gzarr") == 125.0
    assert m.held_against_limit
    goals = {t.name: t for t in b.gpu.report.targets([m], first_array_ms=120.0, host_us=1.5)}
    assert [t.met for t in goals.values()] == [True, True, False, True]
    assert goals["least of limit, 64 KiB to 1 MiB"].value == 0.8
    m.estimated["zarr-python"] = 16
    text = b.gpu.report.table([m], list(b.gpu.rivals.RIVALS))
    row = text.splitlines()[2]
    assert "~400" in row
    assert "5.00 czarr" in row
    assert "0.80 decode" in row
    assert "a part of the read" in text
    m.chunk_nbytes = 4 << 20
    assert not m.held_against_limit
    assert b.gpu.report.targets([m])[1].met is None


def test_nothing_measured_is_not_a_promise_kept(b: SimpleNamespace) -> None:
    assert [t.met for t in b.gpu.report.targets([])] == [None] * 4
    empty = _measured(b)
    assert (empty.fastest_peer, empty.slowest_limit, empty.of_limit("gzarr")) == (None, None, None)
    empty.notes["gzarr"] = "DeviceError: no"
    assert "[1] gzarr: DeviceError: no" in b.gpu.report.table([empty], list(b.gpu.rivals.RIVALS))


def test_arguments_and_names(b: SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    assert b.gpu.read.main(["--list", "--workload", "era5"]) == 0
    assert capsys.readouterr().out == "f4-era5-blosc-zstd-bit\n"
    assert b.gpu.read.main(["--list"]) == 0
    assert capsys.readouterr().out.splitlines() == list(b.gpu.workloads.MAIN)
    assert 6 <= len(b.gpu.workloads.MAIN) <= 8
    assert b.gpu.read.main(["--workload", "no such"]) == 2
    for wrong in (["--mib", "0"], ["--seconds", "-1"], ["--rival", "nobody"]):
        with pytest.raises(SystemExit):
            b.gpu.read.main(wrong)
    assert set(b.gpu.rivals.PEERS) == {"CPU, then copy", "czarr", "kvikio.zarr", "zarr-python"}
    found, absent = b.gpu.rivals.available(b.gpu.rivals.RIVALS, 2)
    assert set(found) | set(absent) == set(b.gpu.rivals.RIVALS)
