"""The choice where to decode a read: the model, and the estimate of frames and filters."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numcodecs import blosc
from support import devices
from support.zarr_arrays import LITTLE, blosc3, codec

import gzarr
from gzarr.codecs.blosc import BloscCodec
from gzarr.codecs.bytes import BytesCodec
from gzarr.codecs.codec import ArrayRepresentation, Codec
from gzarr.codecs.registry import codecs_from_v3
from gzarr.codecs.zstd import ZstdCodec
from gzarr.engines.cuda import router, wave_plan
from gzarr.engines.cuda.router import Rates, RoutedWork
from gzarr.plan.decode_program import Decoding, analyse

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

MIB = 1 << 20
ALGORITHMS = ("lz4", "snappy", "zstd", "deflate")
DEFAULT = router.default_rates()


def work(algorithm: str | None = "zstd", *, chunks: int, chunk_nbytes: int, frames: int = 1, **more: Any) -> RoutedWork:
    """Return whole chunks, each of the same number of equal frames."""
    values = {
        "chunks": chunks,
        "frames": chunks * frames,
        "frame_nbytes": -(-chunk_nbytes // max(frames, 1)),
        "decoded_nbytes": chunks * chunk_nbytes,
        "needed_nbytes": chunks * chunk_nbytes,
        "threads": 16,
    }
    return RoutedWork(algorithm=algorithm, **{**values, **more})


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
    assert router.choose(work(algorithm, chunks=4096, chunk_nbytes=64 << 10), DEFAULT).decode == "cuda"
    assert router.choose(work(algorithm, chunks=64, chunk_nbytes=4 * MIB, frames=64), DEFAULT).decode == "cuda"


def test_many_large_frames_are_no_better_than_the_few_of_them_that_waves_hold() -> None:
    route = router.choose(work(chunks=1000, chunk_nbytes=16 * MIB), DEFAULT)
    assert route.decode == "cpu"
    all_at_once = router.choose(work(chunks=1000, chunk_nbytes=16 * MIB, wave_nbytes=1 << 40), DEFAULT)
    assert all_at_once.gpu_seconds is not None
    assert route.gpu_seconds is not None
    assert route.gpu_seconds > 10 * all_at_once.gpu_seconds


def test_a_chunk_keeps_one_thread_busy() -> None:
    one = work("lz4", chunks=1, chunk_nbytes=64 * MIB, frames=256)
    assert router.choose(one, DEFAULT).decode == "cuda"
    alone = router.choose(dataclasses.replace(one, threads=1), DEFAULT)
    assert alone.cpu_seconds == router.choose(one, DEFAULT).cpu_seconds


def test_the_waves_are_the_engines() -> None:
    assert (router.WAVE_BYTES, router.WAVES_IN_FLIGHT) == (wave_plan.WAVE_BYTES, wave_plan.MAX_WAVES_IN_FLIGHT)


@pytest.mark.parametrize(
    ("chunks", "chunk_nbytes", "waves"),
    [(1, 1, 1), (64, MIB, 1), (65, MIB, 2), (1000, MIB, 16), (5, 24 * MIB, 3), (7, 64 * MIB, 7), (7, 200 * MIB, 7)],
)
def test_the_fixed_cost_is_that_of_each_wave(chunks: int, chunk_nbytes: int, waves: int) -> None:
    for algorithm in ("zstd", None):
        asked = work(algorithm, chunks=chunks, chunk_nbytes=chunk_nbytes)
        less = seconds(asked, dataclasses.replace(DEFAULT, launch_seconds=0.0))[0]
        assert seconds(asked, DEFAULT)[0] - less == pytest.approx(waves * DEFAULT.launch_seconds)


@pytest.mark.parametrize("chunks_of_a_wave", [1, 3, 4, 100])
def test_waves_are_counted_as_the_engine_cuts_them(
    chunks_of_a_wave: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    codecs = [LITTLE, codec("zstd", level=1, checksum=False)]
    values = np.arange(22_000, dtype="<i4").reshape(22, 1000)
    gzarr.create_array(tmp_path / "a", data=values, chunks=(2, 1000), codecs=codecs, device="cpu")
    monkeypatch.setattr(wave_plan, "WAVE_BYTES", 8000 * chunks_of_a_wave + 100)
    monkeypatch.setattr(wave_plan, "WAVE_FRAMES", 1)
    with devices.use("on host") as tested:
        assert tested.watched is not None
        tested.open(tmp_path / "a").read(decode="cuda")
        made = tested.watched.counts["batches zstd"]
    asked = work(chunks=11, chunk_nbytes=8000, wave_nbytes=wave_plan.WAVE_BYTES)
    assert made == router._waves(asked) == -(-11 // chunks_of_a_wave)


@pytest.mark.parametrize("decode", ["cpu", "cuda"])
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
        assert (route.decode, route.reason) == ("cuda", "nothing to decode")
        # The bytes as they are, and the fixed cost: of one wave, and of two.
        waves = asked.decoded_nbytes >> 26
        expected = waves * DEFAULT.launch_seconds + asked.decoded_nbytes / DEFAULT.host_to_device
        assert route.gpu_seconds == pytest.approx(expected)


def test_an_algorithm_without_a_rate_has_no_decoder_there() -> None:
    asked = work("lz4", chunks=4096, chunk_nbytes=64 << 10)
    for missing in ("gpu", "frame"):
        route = router.choose(asked, dataclasses.replace(DEFAULT, **{missing: {"zstd": 1e9}}))
        assert route.decode == "cpu"
        assert route.gpu_seconds == math.inf
        assert "no decoder on the device" in route.reason
    few = dataclasses.replace(asked, chunks=1, frames=1)
    assert router.choose(few, dataclasses.replace(DEFAULT, cpu={"zstd": 1e9})).decode == "cuda"


def test_the_reason_is_one_line_with_both_times() -> None:
    route = router.choose(work(chunks=8, chunk_nbytes=16 * MIB), DEFAULT)
    assert route.reason == "8 frames of up to 16 MiB: about 313 ms on the device, 27.7 ms on 16 CPU threads"
    route = router.choose(work(chunks=1, chunk_nbytes=100, threads=1), DEFAULT)
    assert route.reason.startswith("1 frame of up to 100 bytes: ")
    assert router.only_on_cpu("for a reason") == router.Route("cpu", "for a reason")


@st.composite
def works(draw: st.DrawFn) -> RoutedWork:
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


def seconds(asked: RoutedWork, rates: Rates) -> tuple[float, float]:
    route = router.choose(asked, rates)
    assert route.gpu_seconds is not None
    assert route.cpu_seconds is not None
    return route.gpu_seconds, route.cpu_seconds


def at_most(one: float, other: float) -> bool:
    return one <= other * (1 + 1e-9)


@given(works(), some_rates())
def test_the_faster_one_is_chosen(asked: RoutedWork, rates: Rates) -> None:
    gpu, cpu = seconds(asked, rates)
    assert 0 <= gpu < math.inf
    assert 0 <= cpu < math.inf
    assert router.choose(asked, rates).decode == ("cuda" if gpu <= cpu else "cpu")


@given(works(), some_rates(), st.integers(2, 64))
def test_more_frames_of_the_same_bytes_are_never_slower_on_the_device(
    asked: RoutedWork, rates: Rates, times: int
) -> None:
    finer = dataclasses.replace(asked, frames=times * asked.frames, frame_nbytes=-(-asked.frame_nbytes // times))
    assert at_most(seconds(finer, rates)[0], seconds(asked, rates)[0])
    assert seconds(finer, rates)[1] == seconds(asked, rates)[1]


@given(works(), some_rates(), st.integers(2, 64))
def test_more_chunks_are_never_faster(asked: RoutedWork, rates: Rates, times: int) -> None:
    scaled = ("chunks", "frames", "decoded_nbytes", "needed_nbytes")
    more = dataclasses.replace(asked, encoded_nbytes=None, **{name: times * getattr(asked, name) for name in scaled})
    less = dataclasses.replace(asked, encoded_nbytes=None)
    gpu, cpu = seconds(more, rates)
    assert at_most(seconds(less, rates)[0], gpu)
    # More chunks keep more threads busy: it is no slower only as long as all are.
    if less.chunks >= less.threads:
        assert at_most(seconds(less, rates)[1], cpu)


@given(works(), some_rates(), st.integers(2, 64))
def test_a_faster_machine_is_never_slower(asked: RoutedWork, rates: Rates, times: int) -> None:
    for name in ("host_to_device", "cpu", "gpu", "frame"):
        value = getattr(rates, name)
        faster = times * value if name == "host_to_device" else {key: times * rate for key, rate in value.items()}
        after = seconds(asked, dataclasses.replace(rates, **{name: faster}))
        assert all(map(at_most, after, seconds(asked, rates)))
    more = dataclasses.replace(asked, threads=times * asked.threads)
    assert at_most(seconds(more, rates)[1], seconds(asked, rates)[1])


@given(works(), some_rates(), st.integers(1, 1 << 40))
def test_encoded_bytes_cost_the_device_and_needed_ones_the_cpu(asked: RoutedWork, rates: Rates, nbytes: int) -> None:
    encoded = dataclasses.replace(asked, encoded_nbytes=0)
    assert at_most(seconds(encoded, rates)[0], seconds(dataclasses.replace(asked, encoded_nbytes=nbytes), rates)[0])
    needed = dataclasses.replace(asked, needed_nbytes=asked.needed_nbytes + nbytes)
    assert at_most(seconds(asked, rates)[1], seconds(needed, rates)[1])
    assert seconds(needed, rates)[0] == seconds(asked, rates)[0]


# -- the estimate of frames


def field(nbytes: int) -> np.ndarray[Any, Any]:
    """Bytes that compress in every stream, however they are divided."""
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
    chains = decoding(ZstdCodec()), lz4, decoding(BloscCodec("lz4", 0))
    assert [max(1, router.frames_of(one).count) for one in chains] == [
        1,
        32,
        1,
    ]


def test_the_route_of_an_array_is_that_of_its_chunks() -> None:
    large = decoding(ZstdCodec(), shape=(4 * MIB,))
    route = router.route(large, "zstd", 8, 8 * 16 * MIB, 16, "auto")
    # The eight frames are one wave.
    assert route == router.choose(work(chunks=8, chunk_nbytes=16 * MIB, wave_nbytes=128 * MIB, waves=1), DEFAULT)
    assert router.route(large, "zstd", 8, 8 * 16 * MIB, 16, "cuda").decode == "cuda"
    fast = Rates(20e9, DEFAULT.cpu, DEFAULT.gpu, {"zstd": 1e12}, 0)
    assert router.route(large, "zstd", 8, 8 * 16 * MIB, 16, "auto", fast).decode == "cuda"
    assert router.route(decoding(), None, 8, 4, 16, "auto").reason == "nothing to decode"


def filtered(chain: list[Any], shape: tuple[int, ...] = (MIB,), dtype: str = "<i4") -> Decoding:
    return analyse(codecs_from_v3(chain, "$"), ArrayRepresentation(shape, np.dtype(dtype)), frozenset())


ZSTD = codec("zstd", level=1, checksum=False)
DELTA = codec("numcodecs.delta", dtype="<i4", astype="<i2")
FIRST = codec("packbits", last_bit=7)


@pytest.mark.parametrize(
    ("chain", "rate", "framed"),
    [
        ([LITTLE, ZSTD], math.inf, 4 * MIB),
        ([codec("transpose", order=[0]), LITTLE, ZSTD], math.inf, 4 * MIB),
        ([DELTA, LITTLE, ZSTD], router.FILTER_RATE, 2 * MIB),
        ([codec("scale_offset"), FIRST, ZSTD], router.FILTER_RATE / 2, MIB),
        (
            [codec("cast_value", data_type="int64"), LITTLE, blosc3("lz4", "noshuffle", 8)],
            router.SLOW_FILTER_RATE,
            8 * MIB,
        ),
    ],
)
def test_the_cpu_undoes_filters_in_its_threads(chain: list[Any], rate: float, framed: int) -> None:
    few, many = filtered(chain), 100
    frames = router.frames_of(few)
    assert frames.count * frames.nbytes == framed
    assert router.filter_seconds(few) == pytest.approx(4 * MIB / rate)
    algorithm = "lz4" if chain[-1]["name"] == "blosc" else "zstd"
    route = router.route(few, algorithm, many, many * 4 * MIB, 16, "cpu")
    chunks, waves = wave_plan.usual_waves(many, framed, frames.count)
    plain = work(
        algorithm, chunks=many, chunk_nbytes=framed, frames=frames.count, needed_nbytes=many * 4 * MIB,
        wave_nbytes=chunks * framed, waves=waves,
    )  # fmt: skip
    without = router.choose(dataclasses.replace(plain, frame_nbytes=frames.nbytes), DEFAULT, "cpu")
    assert route.gpu_seconds == without.gpu_seconds
    assert route.cpu_seconds is not None
    assert without.cpu_seconds is not None
    assert route.cpu_seconds - without.cpu_seconds == pytest.approx(many * 4 * MIB / rate / 16)


def test_filters_can_decide() -> None:
    for chain, where in (([LITTLE, ZSTD], "cpu"), ([codec("cast_value", data_type="int64"), LITTLE, ZSTD], "cuda")):
        assert router.route(filtered(chain), "zstd", 8, 8 * 4 * MIB, 16, "auto").decode == where
    # A chunk keeps one thread busy with its filters too.
    asked = work(chunks=1, chunk_nbytes=MIB, filter_seconds=1.0)
    assert (
        router.choose(asked, DEFAULT).cpu_seconds
        == router.choose(dataclasses.replace(asked, threads=1), DEFAULT).cpu_seconds
    )
