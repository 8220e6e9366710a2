"""Questions to a GPU, and what runs under compute-sanitizer: on CUDA in host memory, at small sizes."""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING, Any

import cramjam
import pytest
from numcodecs import lz4
from support import gpu_benchmarks

from gzarr.engines.cuda import calibration

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import SimpleNamespace

    from support.watched_device import WatchedDevice

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def b() -> Iterator[SimpleNamespace]:
    with gpu_benchmarks.modules() as found:
        yield found


@pytest.fixture
def on_host() -> Iterator[WatchedDevice]:
    with gpu_benchmarks.on_host() as device:
        yield device


# -- frames


@pytest.mark.parametrize("nbytes", [1, 59, 300, 65_536, 65_537, 150_000])
def test_samples_decode_elsewhere(nbytes: int, b: SimpleNamespace) -> None:
    s = b.gpu.samples
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


def test_questions_have_answers(b: SimpleNamespace, on_host: WatchedDevice, monkeypatch: Any) -> None:
    q, t = b.gpu.questions, b.gpu.transfers
    for module, names in (
        (q, ("FRAME_NBYTES", "FRAME_COUNTS")),
        (t, ("COPY_NBYTES", "THREADS", "FILE_NBYTES", "LAUNCHES", "ASSEMBLED", "ASSEMBLED_NBYTES", "CHUNK_NBYTES")),
        (q.gpu.router, ("WAVES",)),
        (calibration, ("SMALL_FRAMES",)),
    ):
        for name in names:
            # Restored afterwards.
            monkeypatch.setattr(module, name, getattr(module, name))
    q.make_small()
    names = [name for name in q.QUESTIONS if name != q.DAMAGED]
    answers = q.ask(on_host, names, 60)
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
        ("assemble_converted", True),
    ]
    assert {row["way"] for row in answers["files"]["answer"]} >= {"threads", "threads, then copied"}
    assert answers["launches"]["answer"]["as the engine launches"]["us"] > 0
    assert answers["pinned copies"]["answer"][0]["to device"]["gb_per_s"] > 0
    assert len(q.summary(answers).splitlines()) == len(names)
    json.dumps(answers)


def test_a_question_that_fails_or_comes_too_late_says_so(
    b: SimpleNamespace, on_host: WatchedDevice, monkeypatch: Any
) -> None:
    def fails(device: Any, seconds: float) -> Any:
        raise RuntimeError("no\nmore")

    monkeypatch.setattr(b.gpu.questions, "QUESTIONS", {"one": (fails, 0.5), "two": (lambda d, s: [s], 0.5)})
    answers = b.gpu.questions.ask(on_host, ["one", "two"], 10)
    assert answers["one"]["answer"] == {"error": "RuntimeError: no"}
    assert 0 < answers["two"]["answer"][0] <= 5
    late = b.gpu.questions.ask(on_host, ["two"], 0)
    text = b.gpu.questions.summary({**answers, **late})
    assert "one: FAILED: RuntimeError: no" in text
    assert "two: left out" in text


def test_damaged_frames(b: SimpleNamespace, on_host: WatchedDevice) -> None:
    for algorithm in b.gpu.samples.ALGORITHMS:
        for damage in b.gpu.samples.damages(bytes(64)):
            answer = b.gpu.questions.decode_damaged(on_host, algorithm, damage)
            assert answer["context"] == "alive", answer
            assert answer["neighbours intact"], answer
            assert answer["noticed"] == (answer["statuses"][1] != 0 or answer["produced"][1] != 65_536)
        half = b.gpu.questions.decode_damaged(on_host, algorithm, "half of it")
        assert half["noticed"]
        assert half["statuses"][::2] == [0, 0]


def test_a_process_that_cannot_decode_is_an_answer(b: SimpleNamespace, monkeypatch: Any) -> None:
    """Without a GPU it ends with an error; also if the context is lost at once."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    answer = b.gpu.questions._in_a_process("zstd", "half of it", 60.0)
    assert (answer["algorithm"], answer["damage"]) == ("zstd", "half of it")
    assert "process ended" in answer["context"]
    assert "hung" in b.gpu.questions._in_a_process("zstd", "half of it", 0.01)["context"]


def test_batches_are_cut_where_scratch_is_short(b: SimpleNamespace, on_host: WatchedDevice) -> None:
    data = b.gpu.samples.sample(20_000)
    frame = b.gpu.samples.encode("zstd", data)
    decoder = on_host.decompressor("zstd")
    assert decoder is not None
    batch = b.gpu.batch.FrameBatch.of(on_host, "zstd", [frame] * 7, [len(data)] * 7)
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


def test_every_kernel_runs_under_the_sanitizer(b: SimpleNamespace, on_host: WatchedDevice, tmp_path: Path) -> None:
    used = b.gpu.sanitizer.use(on_host, tmp_path)
    assert used["errors"] == {}
    assert used["not launched"] == []
    assert len(used["launches"]) == len(b.gpu.sanitizer.kernels()) >= 15
    assert not hasattr(on_host.launch, "__wrapped__")


def test_the_sanitizer_is_said_to_be_missing_and_its_findings_are_kept(
    b: SimpleNamespace, tmp_path: Path, monkeypatch: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    s, file = b.gpu.sanitizer, tmp_path / "said.json"
    monkeypatch.setattr(s, "program", lambda: None)
    assert s.main(["--json", str(file)]) == 0
    assert json.loads(file.read_text())["not run"] == "there is no compute-sanitizer here"
    assert "there is no compute-sanitizer" in capsys.readouterr().out
    program = tmp_path / "bin" / "compute-sanitizer"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho 'Invalid read'; echo $2 >> {tmp_path}/tools; exit 86\n")
    program.chmod(0o755)
    monkeypatch.undo()
    assert s.program([str(tmp_path)]) in (str(program), s.program())
    monkeypatch.setattr(s, "program", lambda: str(program))
    assert s.main(["--json", str(file), "--seconds", "30"]) == 1
    tools = json.loads(file.read_text())["tools"]
    assert {name: (one["outcome"], one["output"]) for name, one in tools.items()} == {
        name: ("found something", ["Invalid read"]) for name in s.TOOLS
    }
    assert (tmp_path / "tools").read_text().split() == list(s.TOOLS)
