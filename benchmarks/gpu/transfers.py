"""Questions about copies, files, launches and the placing of chunks; see ``gpu.questions``."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpu.batch import aligned, time_runs
from gzarr.engines.cuda.columns import Columns, Placement, output_memory
from gzarr.engines.cuda.filters import Filter
from gzarr.engines.cuda.placing import DecodedChunks, placing_words, placings
from gzarr.metadata.chunk_grid import ChunkGrid
from gzarr.plan.planner import plan
from gzarr.plan.selection import parse_basic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy.typing as npt

    from gzarr.engines.cuda.device_protocol import Device

_KIB, _MIB = 1 << 10, 1 << 20
COPY_NBYTES = (64 * _KIB, _MIB, 16 * _MIB, 256 * _MIB)
THREADS = (1, 2, 4, 8, 16)
FILE_NBYTES = 256 * _MIB
PIECE_NBYTES = (64 * _KIB, _MIB)
LAUNCHES = 500
#: Decoded size of all placed chunks, and of one chunk, in bytes.
ASSEMBLED_NBYTES = 256 * _MIB
CHUNK_NBYTES = 256 * _KIB
#: Element size in bytes, that of its byte planes (1: none), and the order of the chunks.
ASSEMBLED: tuple[tuple[str, int, str, str], ...] = (
    *(
        (dtype, planes, "C", dtype)
        for dtype, planes in (("u1", 1), ("u2", 1), ("u4", 1), ("u2", 2), ("u4", 4), ("u8", 8))
    ),
    *((dtype, planes, "F", dtype) for dtype, planes in (("u1", 1), ("u4", 1), ("u4", 4))),
    *((dtype, planes, "C", "f4") for dtype, planes in (("u1", 1), ("u2", 1), ("u2", 2), ("f8", 8))),
)


def device_facts() -> dict[str, Any]:
    """Return name, memory and versions of CuPy's current device, or the reasons why they are missing."""
    try:
        import cupy

        properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)
        return {
            "name": properties["name"].decode(),
            "memory_gib": round(properties["totalGlobalMem"] / 2**30, 1),
            "compute_capability": f"{properties['major']}.{properties['minor']}",
            "multiprocessors": properties["multiProcessorCount"],
            "driver": cupy.cuda.runtime.driverGetVersion(),
            "runtime": cupy.cuda.runtime.runtimeGetVersion(),
            "cupy": cupy.__version__,
        }
    except Exception as error:  # without a driver CuPy raises errors of its own
        return {"error": f"{type(error).__name__}: {error}"}


def copies(device: Device, seconds: float) -> list[dict[str, Any]]:
    """Gigabytes per second from and to page-locked memory, and on the device, against size."""
    found = []
    stream = device.stream()
    for nbytes in COPY_NBYTES:
        host = device.pinned(nbytes)
        host[:] = 1
        one, other = device.allocate(nbytes, stream), device.allocate(nbytes, stream)

        def to_device(one: Any = one, host: Any = host) -> None:
            device.copy_in(one, host, stream)

        def to_host(one: Any = one, host: Any = host) -> None:
            device.copy_out(host, one, stream)

        def within(one: Any = one, other: Any = other) -> None:
            device.copy_array(other, one, stream)

        row: dict[str, Any] = {"nbytes": nbytes}
        for name, enqueue in (("to device", to_device), ("to host", to_host), ("within device", within)):
            timing = time_runs(stream, enqueue, seconds=seconds / (3 * len(COPY_NBYTES)))
            row[name] = {"gb_per_s": nbytes / timing.device_s / 1e9, "host_ms": 1e3 * timing.host_s}
        found.append(row)
    return found


def read_pieces(file: int, memory: npt.NDArray[np.uint8], piece: int, pool: ThreadPoolExecutor, threads: int) -> None:
    """Read a file into memory by threads, each a run of neighbouring pieces."""
    view = memoryview(memory)
    count = -(-memory.size // piece)

    def read(worker: int) -> None:
        for i in range(worker * count // threads, (worker + 1) * count // threads):
            begin = i * piece
            end = min(begin + piece, memory.size)
            while begin < end:
                got = os.preadv(file, [view[begin:end]], begin)
                if not got:
                    raise OSError(f"the file ends at {begin}, not at {memory.size}")
                begin += got

    list(pool.map(read, range(threads)))


def files(device: Device, seconds: float) -> list[dict[str, Any]]:
    """Gigabytes per second of a file in the page cache: by threads into page-locked memory, and by kvikio."""
    deadline = time.monotonic() + seconds
    found: list[dict[str, Any]] = []
    stream = device.stream()
    host = device.pinned(FILE_NBYTES)
    target = device.allocate(FILE_NBYTES, stream)
    with _file(FILE_NBYTES) as path:
        file = os.open(path, os.O_RDONLY)
        try:
            for threads in THREADS:
                with ThreadPoolExecutor(threads) as pool:
                    for piece in PIECE_NBYTES:

                        def read(piece: int = piece, threads: int = threads, pool: ThreadPoolExecutor = pool) -> None:
                            read_pieces(file, host, piece, pool, threads)

                        def read_and_copy(read: Callable[[], None] = read) -> None:
                            read()
                            device.copy_in(target, host, stream)

                        for way, enqueue in (("threads", read), ("threads, then copied", read_and_copy)):
                            if time.monotonic() > deadline:
                                return [*found, {"left out": f"from {threads} threads on: no time left"}]
                            found.append(_rate(way, threads, piece, stream, enqueue))
                for piece in PIECE_NBYTES:
                    found += _by_kvikio(path, threads, piece, {"pinned": host, "device": target}, stream)
        finally:
            os.close(file)
    return found


def _rate(way: str, threads: int, piece: int, stream: Any, enqueue: Callable[[], None]) -> dict[str, Any]:
    timing = time_runs(stream, enqueue, runs=3, seconds=0.5)
    gb_per_s = FILE_NBYTES / timing.host_s / 1e9
    return {"way": way, "threads": threads, "piece_nbytes": piece, "gb_per_s": gb_per_s}


def _by_kvikio(path: Path, threads: int, piece: int, targets: dict[str, Any], stream: Any) -> list[dict[str, Any]]:
    try:
        import kvikio
        import kvikio.defaults

        found = []
        settings = {"compat_mode": kvikio.CompatMode.ON, "num_threads": threads, "task_size": piece}
        with kvikio.defaults.set(settings), kvikio.CuFile(path, "r") as file:
            for name, target in targets.items():

                def read(target: Any = target) -> None:
                    file.pread(target).get()

                found.append(_rate(f"kvikio to {name}", threads, piece, stream, read))
    except Exception as error:  # not installed, or not working: the error is the answer
        return [
            {"way": "kvikio", "threads": threads, "piece_nbytes": piece, "error": f"{type(error).__name__}: {error}"}
        ]
    return found


@contextlib.contextmanager
def _file(nbytes: int) -> Iterator[Path]:
    """Make a file of random bytes of this size, in the page cache."""
    with tempfile.TemporaryDirectory(prefix="gzarr-questions-") as folder:
        path = Path(folder) / "file"
        part = np.random.default_rng(5).bytes(min(nbytes, 4 * _MIB))
        with path.open("wb") as file:
            for begin in range(0, nbytes, len(part)):
                file.write(part[: nbytes - begin])
        yield path


def launches(device: Device, seconds: float) -> dict[str, Any]:
    """Host time in microseconds of one launch of a kernel that does nothing."""
    from gzarr_kernels.device import copies as c

    stream = device.stream()
    memory = device.allocate(4096, stream)
    host = device.pinned(4096)
    host[:] = 0
    device.copy_in(memory, host, stream)

    # A job without frames.
    def by_engine() -> None:
        base = device.address(memory)
        device.launch(c.copy_frames, 1, c.THREADS, stream, base, base, 0)

    ways: dict[str, Callable[[], Callable[[], Any]]] = {
        "as the engine launches": lambda: by_engine,
        "cupy.RawKernel": lambda: _raw_kernel(memory, stream),
        "cupy.ElementwiseKernel": lambda: _elementwise(memory, stream),
    }
    found: dict[str, Any] = {}
    for name, make in ways.items():
        try:
            found[name] = {"us": _per_call_us(make(), stream, seconds / len(ways))}
        except Exception as error:  # the others may work
            found[name] = {"error": f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}"}
    return found


def _per_call_us(call: Callable[[], Any], stream: Any, seconds: float) -> float:
    call()
    stream.synchronize()
    begin = time.perf_counter()
    done = 0
    while done < LAUNCHES and (not done or time.perf_counter() - begin < seconds):
        call()
        done += 1
    elapsed = time.perf_counter() - begin
    stream.synchronize()
    return 1e6 * elapsed / done


def _raw_kernel(memory: Any, stream: Any) -> Callable[[], Any]:
    import cupy

    kernel = cupy.RawKernel(
        'extern "C" __global__ void nothing(unsigned char* a, long long* b, long long c) {}', "nothing"
    )
    columns = memory.view("int64")

    def call() -> None:
        with stream:
            kernel((1,), (256,), (memory, columns, np.int64(0)))

    return call


def _elementwise(memory: Any, stream: Any) -> Callable[[], Any]:
    import cupy

    kernel = cupy.ElementwiseKernel("uint8 x", "uint8 y", "y = x", "gzarr_nothing")
    other = cupy.empty(256, cupy.uint8)

    def call() -> None:
        with stream:
            kernel(memory[:256], other)

    return call


def assemble_rates(device: Device, seconds: float) -> list[dict[str, Any]]:
    """Gigabytes of chunks per second of placing, plain and in byte planes, by the kernel that a read uses."""
    stream = device.stream()
    found = []
    for dtype, planes, order, result in ASSEMBLED:
        kernel, run, check = assemble(device, stream, dtype, planes, order, result, ASSEMBLED_NBYTES, CHUNK_NBYTES)
        timing = time_runs(stream, run, seconds=seconds / len(ASSEMBLED))
        row = {"kernel": kernel, "dtype": dtype, "planes": planes, "order": order, "result": result}
        found.append({**row, "gb_per_s": ASSEMBLED_NBYTES / timing.device_s / 1e9, "right": check()})
    return found


def assemble(
    device: Device, stream: Any, dtype: str, planes: int, order: str, result: str, nbytes: int, chunk_nbytes: int
) -> tuple[str, Callable[[], None], Callable[[], bool]]:
    """Make chunks of random bytes on a device, which form a volume side by side.

    Parameters
    ----------
    device, stream
        Device and stream to use.
    dtype, planes
        Data type of the chunks; size of its elements in bytes for byte planes, 1 for plain chunks.
    order
        Order of a chunk's dimensions: ``"C"`` or ``"F"``; the volume is in C order.
    result
        Data type of the volume; elements are converted to it if it is another one.
    nbytes, chunk_nbytes
        Size in bytes of all chunks, and of each.

    Returns
    -------
    The name of the kernel that places them, a function that enqueues it once, and a function that waits and returns
    whether the first and the last plane of the volume are right.
    """
    from gzarr_kernels.device.target import THREADS

    stored, wanted = np.dtype(dtype), np.dtype(result)
    conversion = None if stored == wanted else Filter("convert", stored, wanted, chunk_nbytes, 0)
    itemsize = stored.itemsize
    count, elements = nbytes // chunk_nbytes, chunk_nbytes // itemsize
    near = min(64, elements // 64)
    chunk_shape = (elements // near // 64, near, 64)
    grid = (count // 4, 2, 2)
    shape = tuple(n * m for n, m in zip(grid, chunk_shape, strict=True))
    chunk = np.frombuffer(np.random.default_rng(7).bytes(chunk_nbytes), np.uint8)
    size = wanted.itemsize
    output = device.allocate(nbytes // itemsize * size, stream)
    array = device.shaped(output, wanted, shape)
    numbers = np.arange(count)
    planned = plan((parse_basic((), shape),), ChunkGrid.regular(shape, chunk_shape))
    none = (-1,) * 3
    read = Placement(planned, 3, size, 0, np.zeros(size, np.uint8), np.zeros(1, np.int64), none, none, -1, -1)
    sizes = np.full(count, chunk_nbytes)
    strides = np.empty(chunk_shape, stored, order=order).strides  # type: ignore[call-overload]
    layout = DecodedChunks(
        numbers, numbers * chunk_nbytes, np.full(count, planes), sizes, chunk_nbytes, strides, 0, conversion
    )

    # The columns follow the chunks in the same memory.
    at = aligned(nbytes)
    host = device.pinned(at + 8 * placing_words(3, 1, count, count))
    host[: count * chunk_nbytes].reshape(count, chunk_nbytes)[:] = chunk
    columns = Columns(host[at:].view(np.int64), at // 8)
    into = output_memory(device, array, (array,), 3)
    (one,) = placings(columns, read, layout, into)
    arena = device.allocate(host.size, stream)
    device.copy_in(arena, host, stream)
    # The page-locked memory must not be released before this.
    stream.synchronize()

    def run() -> None:
        base = device.address(arena)
        memory = (base,) * (4 if one.word else 3)
        device.launch(
            one.kernel, one.blocks, THREADS, stream, *memory, into.address, one.header, word=one.word
        )  # fmt: skip

    def check() -> bool:
        plain = chunk if planes == 1 else chunk.reshape(planes, elements).T.reshape(-1)
        whole = np.ndarray(chunk_shape, stored, plain.tobytes(), order=order)  # type: ignore[call-overload]
        with np.errstate(all="ignore"):
            whole = whole.astype(wanted)
        of_plane = output.size // shape[0]
        back = device.pinned(of_plane)
        right = True
        for begin, plane in ((0, whole[0]), (output.size - of_plane, whole[-1])):
            device.copy_out(back, output[begin : begin + of_plane], stream)
            stream.synchronize()
            right = right and back.tobytes() == np.tile(plane, grid[1:]).tobytes()
        return right

    return getattr(one.kernel, "py_func", one.kernel).__name__, run, check
