"""Where a read is decoded: the model, the estimate of frames, and the rates that are measured and kept."""

from __future__ import annotations

import dataclasses
import json
import math
import multiprocessing
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numcodecs import blosc
from simulated_device import SimulatedDevice

from gzarr.codecs.blosc import BloscCodec
from gzarr.codecs.bytes import BytesCodec
from gzarr.codecs.codec import ArrayRepresentation, Codec
from gzarr.codecs.zstd import ZstdCodec
from gzarr.engines.cuda import calibration, engine, router
from gzarr.engines.cuda.router import Rates, Work
from gzarr.program import Decoding, analyse

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MIB = 1 << 20
ALGORITHMS = ("lz4", "snappy", "zstd", "deflate")
DEFAULT = router.default_rates()


def work(algorithm: str | None = "zstd", *, chunks: int, chunk_nbytes: int, frames: int = 1, **more: Any) -> Work:
    """Whole chunks of so many equal frames each."""
    values = {
        "chunks": chunks,
        "frames": chunks * frames,
        "frame_nbytes": -(-chunk_nbytes // max(frames, 1)),
        "decoded_nbytes": chunks * chunk_nbytes,
        "needed_nbytes": chunks * chunk_nbytes,
        "threads": 16,
    }
    return Work(algorithm=algorithm, **{**values, **more})


def decoding(*codecs: Codec, shape: tuple[int, ...] = (MIB,), dtype: str = "<f4") -> Decoding:
    return analyse((BytesCodec("little"), *codecs), ArrayRepresentation(shape, np.dtype(dtype)), frozenset())


# -- the choice


def test_few_large_frames_are_decoded_by_the_cpu() -> None:
    route = router.choose(work(chunks=8, chunk_nbytes=16 * MIB), DEFAULT)
    assert route.decode == "cpu"
    assert route.gpu_seconds is not None
    # The rate that was published for these.
    assert 8 * 16 * MIB / route.gpu_seconds == pytest.approx(0.43e9, rel=0.05)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_thousands_of_small_frames_are_decoded_on_the_device(algorithm: str) -> None:
    assert router.choose(work(algorithm, chunks=4096, chunk_nbytes=64 << 10), DEFAULT).decode == "gpu"
    assert router.choose(work(algorithm, chunks=64, chunk_nbytes=4 * MIB, frames=64), DEFAULT).decode == "gpu"


def test_many_large_frames_are_no_better_than_the_few_of_them_that_waves_hold() -> None:
    route = router.choose(work(chunks=1000, chunk_nbytes=16 * MIB), DEFAULT)
    assert route.decode == "cpu"
    all_at_once = router.choose(work(chunks=1000, chunk_nbytes=16 * MIB, wave_nbytes=1 << 40), DEFAULT)
    assert all_at_once.gpu_seconds is not None
    assert route.gpu_seconds is not None
    assert route.gpu_seconds > 10 * all_at_once.gpu_seconds


def test_a_chunk_keeps_one_thread_busy() -> None:
    one = work("lz4", chunks=1, chunk_nbytes=64 * MIB, frames=256)
    assert router.choose(one, DEFAULT).decode == "gpu"
    alone = router.choose(dataclasses.replace(one, threads=1), DEFAULT)
    assert alone.cpu_seconds == router.choose(one, DEFAULT).cpu_seconds


def test_the_waves_are_the_engines() -> None:
    assert (router.WAVE_BYTES, router.WAVES_IN_FLIGHT) == (engine.WAVE_BYTES, engine.MOST_SLOTS)


@pytest.mark.parametrize("decode", ["cpu", "gpu"])
@pytest.mark.parametrize("algorithm", ["zstd", None])
def test_the_caller_has_the_last_word(decode: router.Decode, algorithm: str | None) -> None:
    for asked in (work(algorithm, chunks=8, chunk_nbytes=16 * MIB), work(algorithm, chunks=4096, chunk_nbytes=MIB)):
        route = router.choose(asked, DEFAULT, decode)
        assert route.decode == decode
        assert route.reason == f"decode={decode!r}"


def test_what_is_not_compressed_goes_to_the_device() -> None:
    for asked in (
        work(None, chunks=1, chunk_nbytes=64 * MIB, needed_nbytes=4),
        work("lz4", chunks=8, chunk_nbytes=16 * MIB, frames=0),
    ):
        route = router.choose(asked, DEFAULT)
        assert (route.decode, route.reason) == ("gpu", "nothing to decode")
        # The bytes as they are, and the fixed cost.
        expected = DEFAULT.launch_seconds + asked.decoded_nbytes / DEFAULT.host_to_device
        assert route.gpu_seconds == pytest.approx(expected)


def test_an_algorithm_without_a_rate_has_no_decoder_there() -> None:
    asked = work("lz4", chunks=4096, chunk_nbytes=64 << 10)
    for missing in ("gpu", "frame"):
        route = router.choose(asked, dataclasses.replace(DEFAULT, **{missing: {"zstd": 1e9}}))
        assert route.decode == "cpu"
        assert route.gpu_seconds == math.inf
        assert "no decoder on the device" in route.reason
    few = dataclasses.replace(asked, chunks=1, frames=1)
    assert router.choose(few, dataclasses.replace(DEFAULT, cpu={"zstd": 1e9})).decode == "gpu"


def test_the_reason_is_one_line_with_both_times() -> None:
    route = router.choose(work(chunks=8, chunk_nbytes=16 * MIB), DEFAULT)
    assert route.reason == "8 frames of up to 16 MiB: about 313 ms on the device, 27.7 ms on 16 CPU threads"
    route = router.choose(work(chunks=1, chunk_nbytes=100, threads=1), DEFAULT)
    assert route.reason.startswith("1 frame of up to 100 bytes: ")
    assert router.only_on_cpu("for a reason") == router.Route("cpu", "for a reason")


@st.composite
def works(draw: st.DrawFn) -> Work:
    chunks = draw(st.integers(1, 100_000))
    return work(
        draw(st.sampled_from(ALGORITHMS)),
        chunks=chunks,
        chunk_nbytes=draw(st.integers(1, 1 << 30)),
        frames=draw(st.integers(1, 4096)),
        needed_nbytes=draw(st.integers(0, 1 << 40)),
        threads=draw(st.integers(1, 256)),
        encoded_nbytes=draw(st.none() | st.integers(0, 1 << 40)),
    )


_rate = st.floats(1e6, 1e12)


@st.composite
def some_rates(draw: st.DrawFn) -> Rates:
    tables = [{algorithm: draw(_rate) for algorithm in ALGORITHMS} for _ in range(3)]
    return Rates(draw(_rate), tables[0], tables[1], tables[2], draw(st.floats(0, 1)))


def seconds(asked: Work, rates: Rates) -> tuple[float, float]:
    route = router.choose(asked, rates)
    assert route.gpu_seconds is not None
    assert route.cpu_seconds is not None
    return route.gpu_seconds, route.cpu_seconds


def at_most(one: float, other: float) -> bool:
    return one <= other * (1 + 1e-9)


@given(works(), some_rates())
def test_the_faster_one_is_chosen(asked: Work, rates: Rates) -> None:
    gpu, cpu = seconds(asked, rates)
    assert 0 <= gpu < math.inf
    assert 0 <= cpu < math.inf
    assert router.choose(asked, rates).decode == ("gpu" if gpu <= cpu else "cpu")


@given(works(), some_rates(), st.integers(2, 64))
def test_more_frames_of_the_same_bytes_are_never_slower_on_the_device(asked: Work, rates: Rates, times: int) -> None:
    finer = dataclasses.replace(asked, frames=times * asked.frames, frame_nbytes=-(-asked.frame_nbytes // times))
    assert at_most(seconds(finer, rates)[0], seconds(asked, rates)[0])
    assert seconds(finer, rates)[1] == seconds(asked, rates)[1]


@given(works(), some_rates(), st.integers(2, 64))
def test_more_chunks_are_never_faster(asked: Work, rates: Rates, times: int) -> None:
    scaled = ("chunks", "frames", "decoded_nbytes", "needed_nbytes")
    more = dataclasses.replace(asked, encoded_nbytes=None, **{name: times * getattr(asked, name) for name in scaled})
    less = dataclasses.replace(asked, encoded_nbytes=None)
    gpu, cpu = seconds(more, rates)
    assert at_most(seconds(less, rates)[0], gpu)
    # More chunks keep more threads busy: it is no slower only as long as all are.
    if less.chunks >= less.threads:
        assert at_most(seconds(less, rates)[1], cpu)


@given(works(), some_rates(), st.integers(2, 64))
def test_a_faster_machine_is_never_slower(asked: Work, rates: Rates, times: int) -> None:
    for name in ("host_to_device", "cpu", "gpu", "frame"):
        value = getattr(rates, name)
        faster = times * value if name == "host_to_device" else {key: times * rate for key, rate in value.items()}
        after = seconds(asked, dataclasses.replace(rates, **{name: faster}))
        assert all(map(at_most, after, seconds(asked, rates)))
    more = dataclasses.replace(asked, threads=times * asked.threads)
    assert at_most(seconds(more, rates)[1], seconds(asked, rates)[1])


@given(works(), some_rates(), st.integers(1, 1 << 40))
def test_encoded_bytes_cost_the_device_and_needed_ones_the_cpu(asked: Work, rates: Rates, nbytes: int) -> None:
    encoded = dataclasses.replace(asked, encoded_nbytes=0)
    assert at_most(seconds(encoded, rates)[0], seconds(dataclasses.replace(asked, encoded_nbytes=nbytes), rates)[0])
    needed = dataclasses.replace(asked, needed_nbytes=asked.needed_nbytes + nbytes)
    assert at_most(seconds(asked, rates)[1], seconds(needed, rates)[1])
    assert seconds(needed, rates)[0] == seconds(asked, rates)[0]


# -- the estimate of frames


def field(nbytes: int) -> np.ndarray[Any, Any]:
    """Bytes that compress in every stream, however they are cut."""
    return (np.arange(nbytes) // 40 % 7).astype(np.uint8)


def streams(container: bytes) -> int:
    """Count the streams of a container by walking their lengths."""
    nbytes, blocksize, length = (int.from_bytes(container[i : i + 4], "little") for i in (4, 8, 12))
    if container[2] & 2:
        return 0
    blocks = -(-nbytes // blocksize)
    starts = np.frombuffer(container, "<i4", blocks, 16)
    # Threads write blocks in any order.
    ends = np.append(np.sort(starts), length)
    count = 0
    for start in starts:
        at, end = int(start), int(ends[np.searchsorted(ends, start, side="right")])
        while at < end:
            at += 4 + int.from_bytes(container[at : at + 4], "little")
            count += 1
        assert at == end
    return count


SIZES = (1, 100, 127, 128, 5000, 32767, 32768, 90_001, 262_144, 2 * MIB + 24)
TYPESIZES = (1, 3, 8, 16, 17, 300)


@pytest.mark.parametrize("cname", ["lz4", "lz4hc", "zlib", "zstd", "blosclz"])
@pytest.mark.parametrize("blocksize", [0, 100, 70_000])
def test_blosc_blocks_are_those_that_c_blosc_makes(cname: str, blocksize: int) -> None:
    # Many small blocks take c-blosc a while.
    for size in (s for s in SIZES if not blocksize or s < 400 * blocksize):
        for typesize in TYPESIZES:
            for clevel in (0, 1, 3, 5, 9) if size < MIB else (5,) if typesize == 8 else ():
                nbytes = max(1, size // typesize) * typesize
                container = blosc.compress(field(nbytes).view(f"V{typesize}"), cname.encode(), clevel, 0, blocksize)
                case = (nbytes, typesize, cname, clevel, blocksize)
                assert int.from_bytes(container[8:12], "little") == router.blosc_blocksize(*case), case
                frames = router.blosc_frames(*case)
                # What did not compress at all is stored as it is; the estimate is of data that does.
                if container[2] & 2 == 0:
                    assert frames.count == streams(container), case
                    assert nbytes <= frames.count * frames.nbytes
                if clevel == 0 or nbytes < 128:
                    assert (frames.count, container[2] & 2) == (0, 2), case


def test_frames_of_a_chunk() -> None:
    assert router.frames_of(decoding(ZstdCodec())) == router.ChunkFrames(1, 4 * MIB)
    # Blocks of 512 KiB in 4 planes.
    lz4 = decoding(BloscCodec("lz4", 5, "shuffle", 4))
    assert router.frames_of(lz4) == router.blosc_frames(4 * MIB, 4, "lz4", 5) == router.ChunkFrames(32, 128 << 10)
    zstd = decoding(BloscCodec("zstd", 5, "shuffle", 4))
    assert router.frames_of(zstd) == router.ChunkFrames(16, 256 << 10)
    assert router.frames_of(decoding(BloscCodec("lz4", 5, "shuffle", 4, 64 << 10))).nbytes == 64 << 10
    assert router.frames_of(decoding(BloscCodec("lz4", 0))) == router.ChunkFrames(0, 4 * MIB)
    assert [router.frames_in_chunk(one) for one in (decoding(ZstdCodec()), lz4, decoding(BloscCodec("lz4", 0)))] == [
        1,
        32,
        1,
    ]


def test_the_route_of_an_array_is_that_of_its_chunks() -> None:
    large = decoding(ZstdCodec(), shape=(4 * MIB,))
    route = router.route(large, "zstd", 8, 8 * 16 * MIB, 16, "auto")
    assert route == router.choose(work(chunks=8, chunk_nbytes=16 * MIB), DEFAULT)
    assert router.route(large, "zstd", 8, 8 * 16 * MIB, 16, "gpu").decode == "gpu"
    fast = Rates(20e9, DEFAULT.cpu, DEFAULT.gpu, {"zstd": 1e12}, 0)
    assert router.route(large, "zstd", 8, 8 * 16 * MIB, 16, "auto", fast).decode == "gpu"
    assert router.route(decoding(), None, 8, 4, 16, "auto").reason == "nothing to decode"


# -- measured rates


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    # A wave's worth takes the simulated device seconds.
    monkeypatch.setattr(calibration, "FRAMES", 4)
    calibration.forget()
    yield
    calibration.forget()


@pytest.fixture
def simulated() -> Iterator[SimulatedDevice]:
    device = SimulatedDevice(eager=False)
    yield device
    device.finish()


def test_every_rate_is_measured(simulated: SimulatedDevice) -> None:
    found = calibration.measure(simulated, frames=4)
    assert found.launch_seconds > DEFAULT.launch_seconds
    assert found.host_to_device != DEFAULT.host_to_device
    for name in ("cpu", "gpu", "frame"):
        table, assumed = getattr(found, name), getattr(DEFAULT, name)
        assert set(table) == set(ALGORITHMS)
        assert all(0 < rate < math.inf for rate in table.values())
        assert all(table[algorithm] != assumed[algorithm] for algorithm in ALGORITHMS)
        # There is no encoder of snappy.
        assert table["snappy"] / assumed["snappy"] == pytest.approx(table["lz4"] / assumed["lz4"])
    for algorithm in ("zstd", "lz4", "deflate"):
        assert found.gpu[algorithm] >= found.frame[algorithm]
        runs = simulated.counts[f"batches {algorithm}"]
        # Batches of 4, and of 1, twice each at least.
        assert runs >= 4
        assert simulated.counts[f"frames {algorithm}"] > runs
    simulated.sweep()
    assert simulated.held == 0


def test_a_decoder_that_fails_is_not_measured(simulated: SimulatedDevice) -> None:
    simulated.refuse = lambda algorithm, frame: algorithm == "zstd" and frame == 3
    found = calibration.measure(simulated, frames=4)
    assert (found.gpu["zstd"], found.frame["zstd"]) == (DEFAULT.gpu["zstd"], DEFAULT.frame["zstd"])
    assert found.gpu["lz4"] != DEFAULT.gpu["lz4"]


def test_a_small_device_is_measured_with_fewer_frames() -> None:
    device = SimulatedDevice(eager=False, capacity=40 * MIB)
    found = calibration.measure(device, frames=256)
    assert found.gpu["zstd"] != DEFAULT.gpu["zstd"]
    frames, batches = device.counts["frames zstd"], device.counts["batches zstd"]
    assert batches < frames < 256 * batches // 2
    device.finish()


def test_rates_are_kept_in_the_process_and_in_the_file(simulated: SimulatedDevice) -> None:
    assert calibration.rates(simulated, may_measure=False) is router.default_rates()
    path = calibration.cache_path(simulated)
    assert path is not None
    assert not path.exists()
    assert not simulated.counts
    found = calibration.rates(simulated)
    before = simulated.counts.copy()
    assert before["frames zstd"]
    assert calibration.rates(simulated) is found
    calibration.forget(simulated)
    again = calibration.rates(simulated, may_measure=False)
    assert again is not found
    assert again == found
    assert simulated.counts == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    calibration.forget(simulated, file=True)
    assert not path.exists()
    calibration.forget(simulated, file=True)
    calibration.rates(simulated)
    assert simulated.counts["frames zstd"] > before["frames zstd"]


def _damaged(text: bytes) -> list[bytes]:
    document = json.loads(text)

    def changed(table: str, name: str, value: Any) -> bytes:
        return json.dumps({**document, table: {**document[table], name: value}}).encode()

    rates = document["rates"]
    return [
        b"",
        text[:-20],
        b"\xff\xfe not text",
        b"[]",
        b"null",
        b'{"facts": {}}',
        b"[" * 100_000,
        changed("facts", "machine", "another"),
        changed("facts", "gzarr", "0.0.1"),
        changed("rates", "host_to_device", 0),
        changed("rates", "host_to_device", -1.5),
        changed("rates", "host_to_device", "fast"),
        changed("rates", "host_to_device", 10**400),
        changed("rates", "launch_seconds", float("nan")),
        changed("rates", "gpu", 5),
        changed("rates", "cpu", {**rates["cpu"], "zstd": float("inf")}),
        changed("rates", "frame", {"zstd": 1e9}),
    ]


def test_a_file_that_does_not_fit_is_measured_again(
    simulated: SimulatedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = calibration.rates(simulated)
    path = calibration.cache_path(simulated)
    assert path is not None
    text = path.read_bytes()
    measured = dataclasses.replace(found, host_to_device=123.0)
    monkeypatch.setattr(calibration, "measure", lambda device, frames: measured)
    for damaged in _damaged(text):
        path.write_bytes(damaged)
        calibration.forget(simulated)
        assert calibration.rates(simulated) is measured, damaged[:200]
        assert json.loads(path.read_bytes())["rates"]["host_to_device"] == 123.0


def test_a_folder_that_cannot_be_written_is_no_error(
    simulated: SimulatedDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    found = calibration.rates(simulated)
    assert found.gpu["zstd"] != DEFAULT.gpu["zstd"]
    assert calibration.rates(simulated) is found
    calibration.forget(simulated, file=True)
    # A folder where the file should go.
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
    path = calibration.cache_path(simulated)
    assert path is not None
    path.mkdir(parents=True)
    assert calibration.rates(simulated).gpu["zstd"] != DEFAULT.gpu["zstd"]
    assert list(path.parent.iterdir()) == [path]


def test_a_relative_cache_folder_is_ignored(
    simulated: SimulatedDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for value in ("relative/folder", ""):
        monkeypatch.setenv("XDG_CACHE_HOME", value)
        path = calibration.cache_path(simulated)
        assert path is not None
        assert path.parent == tmp_path / ".cache" / "gzarr"


def test_a_device_that_fails_leaves_the_assumed_rates(simulated: SimulatedDevice) -> None:
    for nth in (1, 3):
        simulated.fail_allocation(nth)
        calibration.forget()
        assert calibration.rates(simulated) is router.default_rates()
        assert calibration.rates(simulated) is router.default_rates()
    path = calibration.cache_path(simulated)
    assert path is not None
    assert not path.exists()
    calibration.forget()
    assert calibration.rates(simulated) is not router.default_rates()


def test_devices_have_files_of_their_own(simulated: SimulatedDevice) -> None:
    second = SimulatedDevice(1)
    assert calibration.cache_path(simulated) != calibration.cache_path(second)
    found = calibration.rates(simulated)
    assert calibration.rates(second, may_measure=False) is router.default_rates()
    assert calibration.rates(simulated) is found


def test_threads_measure_once(simulated: SimulatedDevice) -> None:
    n = 8
    together = threading.Barrier(n)
    found: list[Rates] = []

    def first_use() -> None:
        together.wait()
        found.append(calibration.rates(simulated))

    threads = [threading.Thread(target=first_use) for _ in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == n
    assert all(one is found[0] for one in found)
    # One run to warm up and three at most, of 4 frames and of 1: no second time.
    assert simulated.counts["frames zstd"] <= (1 + 3) * (4 + 1)


def test_a_child_does_not_wait_for_what_its_parent_measures(simulated: SimulatedDevice) -> None:
    with calibration._lock:
        # It measures nothing itself, but looks for what is known under the lock.
        child = multiprocessing.get_context("fork").Process(
            target=calibration.rates, args=(simulated,), kwargs={"may_measure": False}
        )
        child.start()
        child.join(30)
        alive = child.is_alive()
        if alive:
            child.kill()
            child.join()
    assert not alive
    assert child.exitcode == 0
