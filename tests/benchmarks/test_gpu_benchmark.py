"""The GPU benchmark and the open questions, as far as they need no GPU: on the simulated device, at small sizes."""

from __future__ import annotations

import importlib
import json
import sys
import time
import zlib
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import cramjam
import numpy as np
import pytest
from numcodecs import lz4
from support import devices

import gzarr
from gzarr.engines.cuda import calibration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.simulated_device import SimulatedDevice

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
MODULES = (
    "fields", "report", "rivals", "workloads", "gpu", "gpu_batch", "gpu_limits", "gpu_questions", "gpu_report",
    "gpu_imaging", "gpu_loader", "gpu_rivals", "gpu_samples", "gpu_targets", "gpu_transfers", "gpu_workloads",
    "gpu_write",
)  # fmt: skip
LITTLE = {"name": "bytes", "configuration": {"endian": "little"}}


@pytest.fixture(scope="module")
def b() -> Iterator[SimpleNamespace]:
    """Import the benchmark's modules; their directory is on the path for this module only."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        yield SimpleNamespace(**{name: importlib.import_module(name) for name in MODULES})
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))


@pytest.fixture
def simulated() -> Iterator[SimulatedDevice]:
    with devices.use("simulated") as tested:
        assert tested.watched is not None
        with tested.watched as device:
            yield device


# -- frames


@pytest.mark.parametrize("nbytes", [1, 59, 300, 65_536, 65_537, 150_000])
def test_samples_decode_elsewhere(nbytes: int, b: SimpleNamespace) -> None:
    s = b.gpu_samples
    data = s.sample(150_000)[:nbytes]
    assert len(data) == nbytes
    decoders = {
        "zstd": cramjam.zstd.decompress,
        "lz4": lambda frame: lz4.decompress(nbytes.to_bytes(4, "little") + frame),
        "deflate": lambda frame: zlib.decompress(frame, -15),
        "snappy": cramjam.snappy.decompress_raw,
    }
    for algorithm in s.ALGORITHMS:
        assert bytes(decoders[algorithm](s.encode(algorithm, data))) == s.decoded(algorithm, data)
    for form, frame in s.zstd_forms(data).items():
        if form == "wrong checksum":
            with pytest.raises(cramjam.DecompressionError):
                cramjam.zstd.decompress(frame)
        else:
            assert bytes(cramjam.zstd.decompress(frame)) == data


def test_questions_have_answers(b: SimpleNamespace, simulated: SimulatedDevice, monkeypatch: Any) -> None:
    q, t, gpu_router = b.gpu_questions, b.gpu_transfers, b.gpu_questions.gpu_router
    for module, small in (
        (q, {"FRAME_NBYTES": (1000, 70_000), "FRAME_COUNTS": (1, 3)}),
        (t, {"COPY_NBYTES": (1024,), "THREADS": (1, 2), "FILE_NBYTES": 150_000, "LAUNCHES": 2}),
        (gpu_router, {"WAVES": 3}),
        (calibration, {"SMALL_FRAMES": 4}),
        (
            t,
            {
                "ASSEMBLED": ((2, 1, "C"), (4, 4, "C"), (4, 4, "F")),
                "ASSEMBLED_NBYTES": 1 << 16,
                "CHUNK_NBYTES": 1 << 13,
            },
        ),
    ):
        for name, value in small.items():
            monkeypatch.setattr(module, name, value)
    names = [name for name in q.QUESTIONS if name != q.DAMAGED]
    answers = q.ask(simulated, names, 60)
    assert list(answers) == names
    assert "error" not in answers["zstd forms"]["answer"], answers
    for form, answer in answers["zstd forms"]["answer"].items():
        assert answer["equal"] == (answer["status"] == 0) == (form != "wrong checksum"), form
    found = answers["router rates"]["answer"]
    assert found["wave_seconds"] > 0
    assert found["measured"].keys() == found["assumed"].keys()
    assert all(found["measured"][name] != found["assumed"][name] for name in found["assumed"])
    rates = answers["decode rates"]["answer"]
    assert len(rates) == 4 * 4
    assert all(rate["decoded"] and rate["gb_per_s"] > 0 for rate in rates)
    assert [(row["kernel"], row["right"]) for row in answers["assemble"]["answer"]] == [
        ("place_rows", True),
        ("place_planes", True),
        ("assemble", True),
    ]
    assert {row["way"] for row in answers["files"]["answer"]} >= {"threads", "threads, then copied"}
    assert answers["launches"]["answer"]["as the engine launches"]["us"] > 0
    assert answers["pinned copies"]["answer"][0]["to device"]["gb_per_s"] > 0
    assert len(q.summary(answers).splitlines()) == len(names)
    json.dumps(answers)


def test_a_question_that_fails_or_comes_too_late_says_so(
    b: SimpleNamespace, simulated: SimulatedDevice, monkeypatch: Any
) -> None:
    def fails(device: Any, seconds: float) -> Any:
        raise RuntimeError("no\nmore")

    monkeypatch.setattr(b.gpu_questions, "QUESTIONS", {"one": (fails, 0.5), "two": (lambda d, s: [s], 0.5)})
    answers = b.gpu_questions.ask(simulated, ["one", "two"], 10)
    assert answers["one"]["answer"] == {"error": "RuntimeError: no"}
    assert 0 < answers["two"]["answer"][0] <= 5
    late = b.gpu_questions.ask(simulated, ["two"], 0)
    text = b.gpu_questions.summary({**answers, **late})
    assert "one: FAILED: RuntimeError: no" in text
    assert "two: left out" in text


def test_damaged_frames(b: SimpleNamespace, simulated: SimulatedDevice) -> None:
    for algorithm in b.gpu_samples.ALGORITHMS:
        for damage in b.gpu_samples.damages(bytes(64)):
            answer = b.gpu_questions.decode_damaged(simulated, algorithm, damage)
            assert answer["context"] == "alive", answer
            assert answer["neighbours intact"], answer
            assert answer["noticed"] == (answer["statuses"][1] != 0 or answer["produced"][1] != 65_536)
        half = b.gpu_questions.decode_damaged(simulated, algorithm, "half of it")
        assert half["noticed"]
        assert half["statuses"][::2] == [0, 0]


def test_a_process_that_cannot_decode_is_an_answer(b: SimpleNamespace, monkeypatch: Any) -> None:
    """Without a GPU it ends with an error; also if the context is lost at once."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    answer = b.gpu_questions._in_a_process("zstd", "half of it", 60.0)
    assert (answer["algorithm"], answer["damage"]) == ("zstd", "half of it")
    assert "process ended" in answer["context"]
    assert "hung" in b.gpu_questions._in_a_process("zstd", "half of it", 0.01)["context"]


def test_batches_are_cut_where_scratch_is_short(b: SimpleNamespace, simulated: SimulatedDevice) -> None:
    data = b.gpu_samples.sample(20_000)
    frame = b.gpu_samples.encode("zstd", data)
    decoder = simulated.decompressor("zstd")
    assert decoder is not None
    batch = b.gpu_batch.FrameBatch.of(simulated, "zstd", [frame] * 7, [len(data)] * 7)
    need = decoder.temp_nbytes(2, len(data), 2 * len(data))
    cut = batch._cut(need)
    assert len(cut) > 1
    assert sum(frames for _, frames, _, _ in cut) == 7
    assert all(scratch <= need for _, _, _, scratch in cut)
    with pytest.raises(MemoryError, match="scratch"):
        batch._cut(1)
    batch._launches = cut
    batch.run()
    assert batch.succeeded()
    assert batch.decoded(6) == data


# -- workloads


def _small(b: SimpleNamespace, zarr_format: int = 3, **more: Any) -> Any:
    blosc = b.workloads.blosc("lz4", "shuffle", 2)
    made = {"codecs": (LITTLE, blosc), "shape": (64, 32, 32), "chunk_shape": (16, 16, 16), **more}
    return b.workloads.Dataset("small", b.fields.camera_u2, "u2", zarr_format=zarr_format, least=16, **made)


def test_workloads_are_those_of_the_other_benchmark_and_of_published_pipelines(b: SimpleNamespace) -> None:
    tiles = b.gpu_workloads.all_workloads(2 << 30)
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
    w, g = b.workloads, b.gpu_workloads
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
        part = b.gpu.part_of(workload, 16)
        assert b.gpu.factor(workload, part) == times
    assert b.gpu.part_of(w.Workload("w", _small(b), w.Region((0,))), 16) is None
    assert b.gpu.part_of(w.Workload("w", _small(b, shape=(16, 32, 32))), 16) is None


# -- measuring and reporting


def test_the_benchmark_on_a_simulated_device(b: SimpleNamespace, simulated: SimulatedDevice, tmp_path: Path) -> None:
    w = b.workloads
    deflate = {"codecs": (LITTLE, b.workloads.blosc("zlib", "shuffle", 2))}
    sharded = {"codecs": (LITTLE, b.workloads._zstd()), "shard_shape": (32, 32, 32)}
    starts = np.array([[0, 0, 0], [40, 10, 3]])
    chosen = [
        b.gpu_workloads.tiled(workload, 1 << 18, 1 << 16)
        for workload in (
            w.Workload("whole", _small(b)),
            w.Workload("not aligned", _small(b, **deflate)),
            w.Workload("shards", _small(b, **sharded)),
            w.Workload("raw", _small(b, codecs=(LITTLE,))),
            w.Workload("windows", _small(b), w.Windows(starts, (16, 16, 16))),
            w.Workload("rows", _small(b), w.Rows(np.array([[0, 63, 5], [5, 5, 60]]))),
        )
    ]
    arguments = b.gpu.parser().parse_args(
        ["--seconds", "60", "--rounds", "2", "--threads", "2", "--data", str(tmp_path)]
    )
    rivals, absent = b.gpu_rivals.available(["gzarr out=", "gzarr"], 2)
    assert not absent
    # A peer that needs no GPU, under a name of the table.
    rivals["zarr-python"] = b.rivals.ZarrPython(2)
    kept: list[int] = []
    results, left_out, sound = b.gpu.measure_all(
        simulated, chosen, rivals, arguments, lambda results: kept.append(len(results))
    )
    assert sound, [m.notes for m in results]
    assert not left_out
    assert kept == [1, 2, 3, 4, 5, 6]
    limits = {m.name: {name for name in b.gpu_limits.LIMITS if m.limit_ms(name)} for m in results}
    every = set(b.gpu_limits.LIMITS)
    assert limits == {
        "whole": every, "not aligned": every, "shards": every, "raw": every - {"decode"}, "windows": every,
        "rows": set(),
    }  # fmt: skip
    for m in results:
        assert m.ms("gzarr") > 0
        assert m.fastest_peer == "zarr-python"
        document = m.to_json()
        assert document["times_fastest_peer"] == pytest.approx(m.ms("zarr-python") / m.ms("gzarr"))
        json.dumps(document)
    assert len(b.gpu_report.table(results, list(rivals)).splitlines()) >= 2 + len(results)
    arguments.seconds = 0.0
    results, left_out, _ = b.gpu.measure_all(simulated, chosen[:2], rivals, arguments, lambda results: None)
    assert (results, left_out) == ([], ["whole", "not aligned"])


def test_writing_on_a_simulated_device(b: SimpleNamespace, simulated: SimulatedDevice, tmp_path: Path) -> None:
    w = b.gpu_write
    results = {}
    for number, dataset in enumerate(w.datasets(1 << 20, side=64)):
        (folder := tmp_path / str(number)).mkdir()
        results[dataset.name] = w.measure(simulated, dataset, folder, 60, 2)
    for name, found in results.items():
        for writer in w.WRITERS:
            assert found["writers"][writer]["right"], (name, found)
            assert found["writers"][writer]["rounds"] == 2
    encoded = {what for what in simulated.counts if what.startswith("encoded frames")}
    assert encoded == {f"encoded frames {algorithm}" for algorithm in ("zstd", "lz4", "deflate")}
    text = w.table(results)
    assert len(text.splitlines()) == 2 + len(results)
    results["raw"]["writers"]["gzarr"] = {"right": False, "error": "it was so"}
    assert "raw, gzarr: it was so" in w.table(results)


def test_loaders_on_a_simulated_device(b: SimpleNamespace, simulated: SimulatedDevice, tmp_path: Path) -> None:
    w = b.gpu_loader
    results = {}
    for number, dataset in enumerate(w.datasets(1 << 18, side=32, window=16)):
        (folder := tmp_path / str(number)).mkdir()
        results[dataset.name] = w.measure(simulated, dataset, folder, 60, 2, 0)
    for name, found in results.items():
        for way in ("read", "grid", "anywhere", "pinned"):
            assert found["ways"][way]["right"], (name, found)
            assert found["ways"][way]["rounds"] == 2
    text = w.table(results)
    assert len(text.splitlines()) == 2 + len(results)
    results["zstd"]["ways"]["grid"] = {"right": False, "error": "it was so"}
    assert "zstd, grid: it was so" in w.table(results)


def test_blocks_and_levels_on_a_simulated_device(
    b: SimpleNamespace, simulated: SimulatedDevice, tmp_path: Path
) -> None:
    w = b.gpu_imaging

    def compute(x: Any, times: int) -> Any:
        stream = simulated.current_stream()
        return w.on_device(simulated, w.mixed(simulated.to_host(x, stream), times))

    results = {}
    for dataset in w.datasets(1 << 18, side=32, chunk=16):
        (folder := tmp_path / dataset.name).mkdir()
        results[dataset.name] = w.measure(simulated, dataset, folder, 60, 2, compute)
    for name, found in results.items():
        assert found["blocks"]["right"], (name, found)
        assert found["levels"]["right"], (name, found)
        assert found["levels"]["count"] > 1
        assert found["blocks"]["times"] >= 1
    assert len(w.table(results).splitlines()) == 2 + len(results)
    (folder := tmp_path / "wrong").mkdir()
    wrong = w.measure(simulated, w.datasets(1 << 18, side=32, chunk=16)[1], folder, 60, 1, lambda x, times: x)
    assert wrong["blocks"]["error"] == "AssertionError: WRONG RESULT"
    assert "zstd, blocks: AssertionError" in w.table({"zstd": wrong})


@pytest.mark.parametrize("script", ["gpu_write", "gpu_loader"])
def test_arrays_one_after_the_other(
    script: str,
    b: SimpleNamespace,
    simulated: SimulatedDevice,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A whole run: small arrays in a folder that is gone afterwards, a table, and a document."""
    module = getattr(b, script)
    small = module.datasets(1 << 18, side=32, **({"window": 16} if script == "gpu_loader" else {}))
    monkeypatch.setattr(module, "datasets", lambda nbytes: small)
    monkeypatch.setattr("gzarr.engines.cuda.devices.get_device", lambda name: simulated)
    monkeypatch.setattr("gzarr.engines.cuda.devices.current", lambda: simulated.name)
    arguments = ["--codec", "zstd in", "--rounds", "1", "--data", str(tmp_path), "--json", str(tmp_path / "found.json")]
    assert module.main([*arguments, *(["--workers", "0"] if script == "gpu_loader" else [])]) == 0
    assert capsys.readouterr().out.splitlines()[2].startswith("zstd in shards")
    document = json.loads((tmp_path / "found.json").read_text())
    assert list(document["arrays"]) == ["zstd in shards"]
    assert document["command"].startswith(f"python benchmarks/{script}.py --codec 'zstd in'")
    assert [path.name for path in tmp_path.iterdir()] == ["found.json"]


def test_samples_of_loaders_are_checked(b: SimpleNamespace, simulated: SimulatedDevice, tmp_path: Path) -> None:
    """Wrong, missing and repeated samples are seen, and those that come by processes of ``DataLoader`` compared."""
    pytest.importorskip("torch", reason="PyTorch is not installed")
    w = b.gpu_loader
    (dataset, *_) = w.datasets(1 << 18, side=32, window=16)
    found = w.measure(simulated, dataset, tmp_path, 60, 1, 2)
    assert found["ways"]["DataLoader"]["right"], found
    host = gzarr.open_array(tmp_path, device="cpu")[...]
    batches = list(w.ways(tmp_path, dataset, simulated, 0)["grid"]())
    w.check("grid", iter(batches), host, dataset.chunk_shape, simulated)
    with pytest.raises(AssertionError, match="WRONG"):
        w.check("grid", iter(batches), host + np.uint16(1), dataset.chunk_shape, simulated)
    for others in (batches[1:], batches[1:] + batches[1:2]):
        with pytest.raises(AssertionError, match="samples"):
            w.check("grid", iter(others), host, dataset.chunk_shape, simulated)


def test_wrong_results_are_seen(b: SimpleNamespace, simulated: SimulatedDevice, tmp_path: Path) -> None:
    class Liar(b.rivals.Gzarr):  # type: ignore[misc,name-defined]
        def calls(self, path: Path, workload: Any) -> Any:
            (call,) = super().calls(path, workload)
            return [lambda: call() + np.uint16(1)]

    t = b.gpu_workloads.tiled(b.workloads.Workload("whole", _small(b)), 1 << 18, 1 << 16)
    arguments = b.gpu.parser().parse_args(["--seconds", "30", "--rounds", "1", "--data", str(tmp_path)])
    (measured,), _, sound = b.gpu.measure_all(
        simulated, [t], {"gzarr": b.rivals.Gzarr(2), "czarr": Liar(2)}, arguments, lambda results: None
    )
    assert not sound
    assert measured.notes["czarr"].startswith("WRONG RESULT")
    assert measured.ms("czarr") is None
    assert measured.ms("gzarr") is not None


def test_the_hosts_cost_of_a_chunk(b: SimpleNamespace, simulated: SimulatedDevice, tmp_path: Path) -> None:
    t = b.gpu_workloads.tiled(b.workloads.Workload("whole", _small(b)), 1 << 18, 1 << 16)
    stage, event = b.gpu_targets.Staging.stage, simulated.event
    with b.gpu_workloads.written(t, tmp_path) as stored:
        start = time.perf_counter()
        us = b.gpu_targets.host_us(simulated, stored.path)
        elapsed = time.perf_counter() - start
    assert 0 < us * 32 < 1e6 * elapsed
    # What was put in place to measure is gone.
    assert b.gpu_targets.Staging.stage is stage
    assert simulated.event == event


def _measured(b: SimpleNamespace, **times: float) -> Any:
    facts = {"codecs": ({"name": "zstd"},)}
    measured = b.gpu_report.DeviceMeasured("one", facts, 10**9, 1 << 18, True)
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
    goals = {t.name: t for t in b.gpu_report.targets([m], first_array_ms=120.0, host_us=1.5)}
    assert [t.met for t in goals.values()] == [True, True, False, True]
    assert goals["least of limit, 64 KiB to 1 MiB"].value == 0.8
    m.estimated["zarr-python"] = 16
    text = b.gpu_report.table([m], list(b.gpu_rivals.RIVALS))
    row = text.splitlines()[2]
    assert "~400" in row
    assert "5.00 czarr" in row
    assert "0.80 decode" in row
    assert "a part of the read" in text
    m.chunk_nbytes = 4 << 20
    assert not m.held_against_limit
    assert b.gpu_report.targets([m])[1].met is None


def test_nothing_measured_is_not_a_promise_kept(b: SimpleNamespace) -> None:
    assert [t.met for t in b.gpu_report.targets([])] == [None] * 4
    empty = _measured(b)
    assert (empty.fastest_peer, empty.slowest_limit, empty.of_limit("gzarr")) == (None, None, None)
    empty.notes["gzarr"] = "DeviceError: no"
    assert "[1] gzarr: DeviceError: no" in b.gpu_report.table([empty], list(b.gpu_rivals.RIVALS))


def test_arguments_and_names(b: SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    assert b.gpu.main(["--list", "--workload", "era5"]) == 0
    assert capsys.readouterr().out == "f4-era5-blosc-zstd-bit\n"
    assert b.gpu.main(["--workload", "no such"]) == 2
    for wrong in (["--mib", "0"], ["--seconds", "-1"], ["--rival", "nobody"]):
        with pytest.raises(SystemExit):
            b.gpu.main(wrong)
    assert set(b.gpu_rivals.PEERS) == {"CPU, then copy", "czarr", "kvikio.zarr", "zarr-python"}
    found, absent = b.gpu_rivals.available(b.gpu_rivals.RIVALS, 2)
    assert set(found) | set(absent) == set(b.gpu_rivals.RIVALS)
