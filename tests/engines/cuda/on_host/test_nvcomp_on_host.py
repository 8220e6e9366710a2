"""nvCOMP's functions over the runtime in host memory: gzarr's calls of them, compared with codecs of the host."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numcodecs
import numpy as np
import pytest
from support.cuda_on_host import nvcomp
from support.cuda_on_host.whole import whole
from support.nvcomp_declarations import known
from support.nvcomp_encoders import gdeflate_frame

from gzarr.engines.cuda.device_protocol import CoderBatch
from gzarr.engines.cuda.nvcomp import NvcompDecompressor, load
from gzarr.engines.cuda.nvcomp_compress import NvcompCompressor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.cuda_on_host import HostCuda
    from support.cuda_on_host.nvcomp import HostNvcomp

#: ``nvcompErrorCannotDecompress`` and ``nvcompErrorCannotCompress``.
CANNOT_DECOMPRESS, CANNOT_COMPRESS = 12, 19


def _deflate(data: bytes) -> bytes:
    encoder = zlib.compressobj(wbits=-15)
    return encoder.compress(data) + encoder.flush()


#: Independent codecs.
ENCODE: dict[str, Any] = {
    "zstd": lambda data: bytes(numcodecs.Zstd(3).encode(data)),
    "lz4": lambda data: bytes(numcodecs.LZ4().encode(data))[4:],
    "snappy": lambda data: bytes(pytest.importorskip("cramjam").snappy.compress_raw(data)),
    "deflate": _deflate,
    "gdeflate": gdeflate_frame,
}
DECODE: dict[str, Any] = {
    "zstd": lambda frame, n: bytes(numcodecs.Zstd().decode(frame)),
    "lz4": lambda frame, n: bytes(numcodecs.LZ4().decode(n.to_bytes(4, "little") + frame)),
    "snappy": lambda frame, n: bytes(pytest.importorskip("cramjam").snappy.decompress_raw(frame)),
    "deflate": lambda frame, n: zlib.decompress(frame, -15),
}


@pytest.fixture(scope="module")
def host(cuda: HostCuda) -> HostNvcomp:
    return whole().nvcomp


@pytest.fixture(autouse=True)
def no_errors(host: HostNvcomp) -> Iterator[None]:
    host.reset()
    yield
    assert not host.errors


class Batch:
    """Frames in device memory, and room for what is made of them."""

    def __init__(self, cupy: Any, frames: list[bytes], rooms: list[int], aligned: int = 8) -> None:
        self.cupy, self.n = cupy, len(frames)
        self.sources = self._places([len(frame) for frame in frames], aligned)
        self.targets = self._places(rooms, aligned)
        self.rooms = rooms
        for place, frame in zip(self.sources, frames, strict=True):
            place.set(np.frombuffer(frame, np.uint8))
        addresses = [[place.data.ptr for place in places] for places in (self.sources, self.targets)]
        self.columns = cupy.asarray(np.array([addresses[0], [len(f) for f in frames], addresses[1], rooms]))
        self.produced = cupy.zeros(self.n, "i8")
        self.statuses = cupy.full(self.n, -7, "i4")

    def _places(self, sizes: list[int], aligned: int) -> list[Any]:
        begins = np.cumsum([0, *(-(-size // aligned) * aligned for size in sizes)])
        memory = self.cupy.zeros(int(begins[-1]), "u1")
        return [memory[begin : begin + size] for begin, size in zip(begins[:-1].tolist(), sizes, strict=True)]

    def arguments(self, column: int) -> int:
        return int(self.columns[column].data.ptr)

    def run(
        self, coder: Any, stream: Any, *, temp_nbytes: int | None = None, largest: int | None = None, **other: Any
    ) -> None:
        """Enqueue it; what is not given is as it should be."""
        encodes = isinstance(coder, NvcompCompressor)
        decoded = [place.size for place in self.sources] if encodes else self.rooms
        largest = largest or max(decoded)
        nbytes = coder.temp_nbytes(self.n, largest, sum(decoded)) if temp_nbytes is None else temp_nbytes
        self.temp = self.cupy.empty(nbytes, "u1")
        options: dict[str, Any] = {
            "frames": self.n, "largest": largest, "sources": self.arguments(0), "source_nbytes": self.arguments(1),
            "targets": self.arguments(2), "target_nbytes": self.arguments(3), "produced": self.produced.data.ptr,
            "statuses": self.statuses.data.ptr, "temp": self.temp.data.ptr, "temp_nbytes": nbytes,
        }  # fmt: skip
        if encodes:
            del options["target_nbytes"]
        coder.run(stream, CoderBatch(**options | other))

    def results(self) -> list[bytes]:
        produced = self.produced.get().tolist()
        return [bytes(place.get())[:n] for place, n in zip(self.targets, produced, strict=True)]


def data_of(n: int, seed: int) -> bytes:
    rng = np.random.default_rng(seed)
    return bytes(rng.integers(0, 4, n, "u1") * rng.integers(0, 2, n, "u1"))


SIZES = [1, 100, 65_536, 4_097, 20_000]


@pytest.mark.parametrize("algorithm", nvcomp.NAMES)
def test_frames_of_other_encoders_are_decoded(cupy: Any, host: HostNvcomp, algorithm: str) -> None:
    parts = [data_of(n, n) for n in SIZES]
    batch = Batch(cupy, [ENCODE[algorithm](part) for part in parts], SIZES)
    batch.run(NvcompDecompressor(algorithm), cupy.cuda.get_current_stream())
    assert batch.results() == parts
    assert not batch.statuses.get().any()
    assert host.counts == {f"batches {algorithm}": 1, f"frames {algorithm}": len(SIZES)}


@pytest.mark.parametrize("algorithm", nvcomp.NAMES)
def test_other_decoders_decode_what_is_encoded(cupy: Any, host: HostNvcomp, algorithm: str) -> None:
    parts = [data_of(n, n) for n in SIZES]
    coder = NvcompCompressor(algorithm)
    batch = Batch(cupy, parts, [coder.max_encoded_nbytes(max(SIZES))] * len(SIZES))
    batch.run(coder, cupy.cuda.get_current_stream())
    frames = batch.results()
    assert not batch.statuses.get().any()
    if algorithm == "gdeflate":
        again = Batch(cupy, frames, SIZES)
        again.run(NvcompDecompressor(algorithm), cupy.cuda.get_current_stream())
        assert again.results() == parts
    else:
        assert [DECODE[algorithm](frame, n) for frame, n in zip(frames, SIZES, strict=True)] == parts
    assert host.counts[f"encoded frames {algorithm}"] == len(SIZES)


@pytest.mark.parametrize("algorithm", nvcomp.NAMES)
def test_a_frame_that_fails_leaves_garbage_and_a_status(cupy: Any, host: HostNvcomp, algorithm: str) -> None:
    parts = [data_of(1000, seed) for seed in range(4)]
    frames = [ENCODE[algorithm](part) for part in parts]
    frames[1] = bytes(len(frames[1]))
    host.refuse = lambda name, frame: (name, frame) == (algorithm, 3)
    # One has less room than it needs.
    batch = Batch(cupy, frames, [1000, 1000, 999, 1000])
    batch.run(NvcompDecompressor(algorithm), cupy.cuda.get_current_stream())
    assert batch.statuses.get().tolist() == [0, CANNOT_DECOMPRESS, CANNOT_DECOMPRESS, CANNOT_DECOMPRESS]
    assert batch.results()[0] == parts[0]
    for place in batch.targets[1:]:
        assert (place.get() == 0x99).all()
    assert (batch.produced.get()[1:] != 1000).all()
    coder = NvcompCompressor(algorithm)
    batch = Batch(cupy, parts, [coder.max_encoded_nbytes(1000)] * 4)
    batch.run(coder, cupy.cuda.get_current_stream())
    assert batch.statuses.get().tolist() == [0, 0, 0, CANNOT_COMPRESS]


def test_statuses_may_be_left_out(cupy: Any, host: HostNvcomp) -> None:
    part = data_of(500, 1)
    batch = Batch(cupy, [ENCODE["lz4"](part)], [500])
    batch.run(NvcompDecompressor("lz4"), cupy.cuda.get_current_stream(), statuses=None)
    assert batch.results() == [part]
    assert batch.statuses.get().tolist() == [-7]


def test_a_batch_reads_its_arrays_when_the_stream_gets_to_it(cupy: Any, cuda: HostCuda, host: HostNvcomp) -> None:
    cuda.reset(late_ms=200)
    parts = [data_of(500, 1), data_of(500, 2)]
    batch = Batch(cupy, [ENCODE["zstd"](part) for part in parts], [500, 500])
    right, stream = batch.columns.get(), cupy.cuda.Stream(non_blocking=True)
    pinned = cupy.cuda.alloc_pinned_memory(right.nbytes)
    there = np.frombuffer(pinned, right.dtype, right.size).reshape(right.shape)
    there[...] = right
    batch.columns[...] = 0
    cupy.cuda.runtime.deviceSynchronize()
    batch.columns.set(there, stream=stream)
    batch.run(NvcompDecompressor("zstd"), stream)
    stream.synchronize()
    assert batch.results() == parts


@pytest.mark.parametrize(
    ("what", "code", "words"),
    [
        ("scratch too small", 719, "bytes of scratch"),
        ("source not aligned", 716, "source 0 at .* not aligned to 4 bytes"),
        ("target outside", 700, "target 0, .* ends after its block"),
        ("source is free", 700, "source 0 at .* in no live memory"),
        ("outputs overlap", 719, "writes to .* twice"),
        ("output is input", 719, "writes what it reads"),
        ("columns in host memory", 700, "the array of sources 0 at .* in no live memory"),
        ("no bytes", 719, "frame 0 has no bytes"),
        ("another device", 700, "on device 1, others on device 0"),
    ],
)
def test_what_a_header_calls_undefined_is_a_fault(
    cupy: Any, cuda: HostCuda, host: HostNvcomp, what: str, code: int, words: str
) -> None:
    algorithm = "deflate" if "aligned" in what else "zstd"
    parts = [data_of(800, 1), data_of(800, 2)]
    batch = Batch(cupy, [ENCODE[algorithm](part) for part in parts], [800, 800])
    columns, options = batch.columns.get(), {}
    if what == "scratch too small":
        options["temp_nbytes"] = 800
    elif what == "source not aligned":
        columns[0, 0] += 2
    elif what == "target outside":
        columns[3, 0] = 1601
        options["temp_nbytes"] = 1 << 20
    elif what == "source is free":
        gone = cupy.cuda.runtime.malloc(2000)
        cupy.cuda.runtime.free(gone)
        columns[0, 0] = gone
    elif what == "outputs overlap":
        columns[2, 1] = columns[2, 0] + 799
    elif what == "output is input":
        columns[2, 0] = columns[0, 0]
        columns[3, 0] = 8
    elif what == "columns in host memory":
        options["sources"] = columns.ctypes.data
    elif what == "no bytes":
        columns[1, 0] = 0
    elif what == "another device":
        with cupy.cuda.Device(1):
            elsewhere = cupy.zeros(800, "u1")
            cupy.cuda.runtime.deviceSynchronize()
        columns[2, 0] = elsewhere.data.ptr
    batch.columns.set(columns)
    batch.run(NvcompDecompressor(algorithm), cupy.cuda.get_current_stream(), **options)
    with pytest.raises(cupy.cuda.runtime.CUDARuntimeError):
        cupy.cuda.runtime.deviceSynchronize()
    (note,) = cuda.notes()
    assert note.startswith(f"{code} ")

    assert re.search(words, note), note


def test_a_frame_can_end_the_device(cupy: Any, cuda: HostCuda, host: HostNvcomp) -> None:
    frame = ENCODE["snappy"](data_of(300, 1))
    host.kills = lambda algorithm, given: given == frame
    host.given = []
    batch = Batch(cupy, [frame], [300])
    batch.run(NvcompDecompressor("snappy"), cupy.cuda.get_current_stream())
    for _ in range(2):
        with pytest.raises(cupy.cuda.runtime.CUDARuntimeError, match="cudaErrorLaunchFailure"):
            cupy.cuda.runtime.deviceSynchronize()
    assert host.given == [("snappy", frame, 300)]
    assert "ends the device" in cuda.notes()[0]


def test_a_decoder_can_hang(cupy: Any, cuda: HostCuda, host: HostNvcomp) -> None:
    host.delay = lambda algorithm, frame: 0.4
    part = data_of(300, 1)
    batch = Batch(cupy, [ENCODE["lz4"](part)], [300])
    cupy.cuda.runtime.deviceSynchronize()
    began = time.monotonic()
    batch.run(NvcompDecompressor("lz4"), cupy.cuda.get_current_stream())
    assert time.monotonic() - began < 0.3
    assert batch.results() == [part]
    assert time.monotonic() - began > 0.4


def test_waiting_for_batches_never_deadlocks(cupy: Any, host: HostNvcomp) -> None:
    """A batch calls Python, while other threads wait inside CUDA's functions, of which some hold Python's lock."""
    host.delay = lambda algorithm, frame: 0.002
    parts = [data_of(300, seed) for seed in range(3)]
    frames = [ENCODE["lz4"](part) for part in parts]
    failed: list[BaseException] = []

    def work(kind: int) -> None:
        try:
            runtime, stream = cupy.cuda.runtime, cupy.cuda.Stream(non_blocking=True)
            coder = NvcompDecompressor("lz4")
            with stream:
                for i in range(4):
                    batch = Batch(cupy, frames, [300] * 3)
                    batch.run(coder, stream)
                    match (kind + i) % 5:
                        case 0:
                            stream.synchronize()
                        case 1:
                            runtime.deviceSynchronize()
                        case 2:
                            runtime.free(runtime.malloc(100))
                        case 3:
                            stream.record().synchronize()
                        case 4:
                            pinned = cupy.cuda.alloc_pinned_memory(1000)
                            del pinned
                            cupy.get_default_pinned_memory_pool().free_all_blocks()
                    assert batch.results() == parts
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(kind,), daemon=True) for kind in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert not failed


# -- the library


@pytest.mark.parametrize("direction", [NvcompDecompressor, NvcompCompressor])
@pytest.mark.parametrize("algorithm", nvcomp.NAMES)
def test_queries_are_the_librarys(host: HostNvcomp, algorithm: str, direction: Any) -> None:
    """They answer as where there is no driver, now that the library finds one."""
    coder = direction(algorithm)
    found = coder.input_alignment, coder.output_alignment, coder.temp_alignment, coder.temp_nbytes(10, 65536, 655360)
    assert found == ANSWERS[algorithm, direction is NvcompCompressor]
    if direction is NvcompCompressor:
        assert coder.max_encoded_nbytes(65536) == LARGEST[algorithm]


#: Of nvCOMP 6.0.0 where there is no driver: alignments of input, output and scratch, and bytes of scratch.
ANSWERS = {
    ("zstd", False): (1, 1, 8, 2035440),
    ("lz4", False): (1, 1, 1, 0),
    ("snappy", False): (1, 1, 1, 0),
    ("deflate", False): (4, 1, 1, 0),
    ("gdeflate", False): (4, 1, 1, 0),
    # Not the library's: it has no answer without a GPU.
    ("zstd", True): (4, 1, 1, 4096 * 10 + 3 * 655360),
    ("lz4", True): (1, 1, 2, 327680),
    ("snappy", True): (1, 1, 1, 0),
    ("deflate", True): (1, 8, 8, 3604800),
    ("gdeflate", True): (1, 4, 8, 3604800),
}
LARGEST = {"zstd": 65547, "lz4": 65800, "snappy": 76490, "deflate": 148256, "gdeflate": 131360}


def test_replaced_functions_are_declared_as_gzarr_calls_them(host: HostNvcomp) -> None:
    """The compiler checks that their types are the header's; here each is in the table of declarations."""
    declared = known()[load().title]["functions"]
    for name in nvcomp.REPLACED:
        kinds = [parameter.split()[0] for parameter in declared[f"nvcompBatched{name}"].split(", ")]
        assert kinds.count("stream") == 1
        assert kinds[-1] == "stream"


_ENDS_EARLY = """
import sys
sys.path[:0] = sys.argv[1:]
from support import cuda_on_host
from support.cuda_on_host import build, nvcomp
from support.cuda_on_host.c_types import address
cuda = cuda_on_host.install()
from gzarr.engines.cuda.device_protocol import CoderBatch
from gzarr.engines.cuda.nvcomp import NvcompDecompressor, load
library = cuda.library
host = nvcomp.HostNvcomp(build.CACHE, address(library.coh_find), address(library.coh_enqueue), load().functions)
host.install()
host.delay = lambda algorithm, frame: 0.05
import cupy, numcodecs, numpy as np
frame = np.frombuffer(bytes(numcodecs.LZ4().encode(b"a" * 300))[4:], np.uint8)
source, target, results = cupy.empty(frame.size, "u1"), cupy.empty(300, "u1"), cupy.empty(16, "i8")
source.set(frame)
columns = cupy.empty((4, 1), "i8")
columns.set(np.array([[source.data.ptr], [frame.size], [target.data.ptr], [300]]))
at = columns.data.ptr
for _ in range(200):
    batch = CoderBatch(
        frames=1, largest=300, sources=at, source_nbytes=at + 8, targets=at + 16, target_nbytes=at + 24,
        produced=results.data.ptr, statuses=results.data.ptr + 64, temp=0, temp_nbytes=0)
    NvcompDecompressor("lz4").run(cupy.cuda.get_current_stream(), batch)
while not host.counts["frames lz4"]:
    pass
"""


def test_the_interpreter_may_end_before_batches_have_run(tmp_path: Path) -> None:
    program = tmp_path / "ends_early.py"
    program.write_text(_ENDS_EARLY)
    tests = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, str(program), str(tests), str(tests.parent), str(tests.parent / "kernels")],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
