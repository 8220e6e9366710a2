"""Throughput of this machine and its devices, for the router: measured when it is needed, kept in a file.

The synthetic data compresses like images and fields. The measurements are: the copy from page-locked memory; each
decoder of the device, with one large frame alone and with as many small frames as a wave has; each decoder of the CPU
in one thread. This takes a fraction of a second, the first time a device is used with this version of gzarr, nvCOMP and
the driver. It happens again after a week, since others may have used the device or the CPU meanwhile, or their clocks
were low: the faster of what was measured counts. The file is in ``$XDG_CACHE_HOME/gzarr``, else ``~/.cache/gzarr``; a
file that cannot be read or written, or does not match, is not an error. Rates that could not be measured are assumed
(:func:`gzarr.engines.cuda.router.default_rates`).
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import importlib.metadata
import json
import math
import os
import platform
import time
import zlib
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from gzarr_kernels.operations import OPERATIONS

from ...errors import DeviceError
from ...guarded import Lock
from ...reasons import pass_on, reason_of
from .. import cache_folder
from . import driver
from .device_protocol import CoderBatch
from .router import Rates, default_rates
from .streams import BorrowedStream

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from .device_protocol import Decompressor, Device

#: Number and decoded bytes of a wave's small frames, and bytes of the large frame.
SMALL_FRAMES: Final = 1024
SMALL_FRAME_BYTES: Final = 64 << 10
LARGE_FRAME_BYTES: Final = 1 << 20
#: Number of distinct small frames.
_DISTINCT_FRAMES: Final = 4
_COPY_BYTES: Final = 32 << 20
#: The fastest of this many runs counts; a run that takes longer than the limit is not repeated.
_RUNS: Final = 3
_REPEAT_BELOW_SECONDS: Final = 0.02
#: Version of the file; increase it when its contents or the measurements change.
_FORMAT: Final = 2
#: Age of a file, after which rates are measured again.
_RENEWED_AFTER_SECONDS: Final = 7 * 86400
#: Bytes per frame in a batch's columns, and in its results: bytes produced, status.
_COLUMN_BYTES: Final = 4 * 8
_RESULT_BYTES: Final = 8 + 4
_LZ4, _ZLIB = (OPERATIONS[name].container for name in ("lz4", "zlib"))

_lock = Lock()
#: Rates by kind and name of a device; None if the file was looked up and has none.
_known: dict[tuple[str, str], Rates | None] = {}


def rates(device: Device, *, may_measure: bool = True) -> Rates:
    """Return the rates of a device and this machine: known to this process, from the file, or measured now.

    May be called from many threads at once: one measures, the others wait for it.

    Parameters
    ----------
    device
        Device to rate.
    may_measure
        Whether to measure if no rates are known; otherwise assumed rates are returned.
    """
    key = _key(device)
    found = _known.get(key)
    if found is not None:
        return found
    with _lock:
        if key in _known and (not may_measure or _known[key] is not None):
            return _known[key] or default_rates()
        facts = _facts(device)
        path = _path(facts)
        found = _load(path, facts)
        is_old = found is not None and _is_old(path)
        if may_measure and (found is None or is_old):
            try:
                measured = measure(device, frames=SMALL_FRAMES)
            except (DeviceError, MemoryError, RuntimeError, OSError, ImportError) as error:
                pass_on(error)
                # A device that fails here fails the read too, which reports it; one without room may have some later.
                # Reads need no encoder.
                found = found or default_rates()
            else:
                # Several processes, one for each device, may have measured at once.
                before = _load(path, facts)
                found = measured if before is None else _faster(before, measured)
                _save(path, facts, found)
        if may_measure or not is_old:
            _known[key] = found
        return found or default_rates()


def forget(device: Device | None = None, *, file: bool = False) -> None:
    """Forget the rates that this process has of one device, or of all.

    Parameters
    ----------
    device
        Device to forget; None for all.
    file
        Whether to remove the device's file as well, so that the next use measures again.
    """
    with _lock:
        if device is None:
            _known.clear()
            return
        _known.pop(_key(device), None)
        path = cache_path(device) if file else None
        if path is not None:
            with contextlib.suppress(OSError):
                path.unlink()


def cache_path(device: Device) -> Path | None:
    """Return the file that keeps the rates of a device, or None if there is no home directory."""
    return _path(_facts(device))


def measure(device: Device, *, frames: int = SMALL_FRAMES, frame_nbytes: int = SMALL_FRAME_BYTES) -> Rates:
    """Measure the rates of a device; neither reads nor writes the file.

    Parameters
    ----------
    device
        Device to measure.
    frames, frame_nbytes
        Number of small frames in a batch, and decoded bytes of each. Fewer frames are used if the device has little
        room.

    Raises
    ------
    DeviceError
        If the device fails.
    MemoryError
        If the device has no room.
    ImportError
        If there is no encoder, since numcodecs cannot be imported.
    """
    assumed = default_rates()
    data = _sample()
    whole = _encode(data)
    parts = [_encode(data[i * frame_nbytes : (i + 1) * frame_nbytes]) for i in range(_DISTINCT_FRAMES)]
    gpu, frame = dict(assumed.gpu), dict(assumed.frame)
    cpu = {**assumed.cpu, **_cpu_rates(data, whole)}
    with device, _Bench(device) as bench:
        copy = bench.copy_rate(_COPY_BYTES)
        for algorithm in whole:
            decoder = device.decompressor(algorithm)
            if decoder is None:
                continue
            many = bench.decode_rate(decoder, [part[algorithm] for part in parts], frame_nbytes, frames)
            alone = bench.decode_rate(decoder, [whole[algorithm]], LARGE_FRAME_BYTES, 1)
            if many is not None and alone is not None:
                gpu[algorithm], frame[algorithm] = max(many, alone), alone
        launch = bench.launch_seconds()
    for measured, before in ((cpu, assumed.cpu), (gpu, assumed.gpu), (frame, assumed.frame)):
        for name in before.keys() - whole.keys():
            # There is no Snappy encoder here. Its frames resemble those of LZ4: literals and copies.
            measured[name] = before[name] * measured["lz4"] / before["lz4"]
    # Python's work per wave is not measured here.
    return Rates(copy, cpu, gpu, frame, assumed.launch_seconds + launch)


def _sample() -> bytes:
    """Return :data:`LARGE_FRAME_BYTES` of a smooth field with noise, as 16-bit integers."""
    rows, columns = 512, LARGE_FRAME_BYTES // 1024
    noise = np.random.default_rng(0).standard_normal((rows, columns), np.float32)
    smooth = np.outer(np.cos(np.arange(rows) / 61), np.sin(np.arange(columns) / 97))
    data: bytes = (1000 + 400 * smooth + 0.7 * noise).astype("<u2").tobytes()
    return data


def _encode(data: bytes) -> dict[str, bytes]:
    """Return a frame of each algorithm that has an encoder here."""
    try:
        from numcodecs import lz4, zstd
    # Packages beside it may keep it from being imported: the version of zfpy 1.0.1.post0 is a ValueError there.
    except Exception as error:
        pass_on(error)
        raise ImportError(f"numcodecs cannot be imported: {reason_of(error)}") from error
    return {
        "zstd": zstd.compress(data, 3),
        "lz4": lz4.compress(data, 1)[_LZ4.header_nbytes :],
        "deflate": zlib.compress(data, 5)[_ZLIB.header_nbytes : -_ZLIB.trailer_nbytes],
    }


def _fastest(run: Callable[[], None]) -> float:
    """Return the seconds of the fastest run, after one to warm up."""
    run()
    best = math.inf
    for _ in range(_RUNS):
        begin = time.perf_counter()
        run()
        elapsed = time.perf_counter() - begin
        best = min(best, elapsed)
        if elapsed > _REPEAT_BELOW_SECONDS:
            break
    # The clock may be coarse.
    return max(best, 1e-9)


def _aligned(nbytes: int, to: int = 256) -> int:
    return -(-nbytes // to) * to


class _Bench:
    """A device with memory of its own, which is returned to the driver at the end."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._borrowed = BorrowedStream(device)
        self._stream = self._borrowed.stream
        self._pinned: npt.NDArray[np.uint8] = np.empty(0, np.uint8)
        # Held here only: an exception keeps the local variables of every function that it passed through.
        self._arena: Any = None

    def __enter__(self) -> _Bench:
        return self

    def __exit__(self, *exc: object) -> None:
        self._arena = None
        self._stream.synchronize()
        self._device.free_cached(self._stream)
        self._borrowed.close()
        self._pinned = np.empty(0, np.uint8)

    def _allocate(self, nbytes: int) -> None:
        # Free the old memory first, so that both are never held.
        self._arena = None
        self._arena = self._device.allocate(nbytes, self._stream)

    def _staging(self, nbytes: int) -> npt.NDArray[np.uint8]:
        if self._pinned.size < nbytes:
            self._pinned = self._device.pinned(nbytes)
        return self._pinned[:nbytes]

    def copy_rate(self, nbytes: int) -> float:
        """Return the bytes per second of a copy to the device."""
        device, stream = self._device, self._stream
        staging = self._staging(nbytes)
        staging[:] = 1
        self._allocate(nbytes)

        def run() -> None:
            device.copy_in(self._arena, staging, stream)
            stream.synchronize()

        return nbytes / _fastest(run)

    def launch_seconds(self) -> float:
        """Return the seconds to send a few bytes there and back and to wait for them."""
        device, stream = self._device, self._stream
        staging = self._staging(4096)
        self._allocate(4096)

        def run() -> None:
            device.copy_in(self._arena, staging[:4096], stream)
            device.copy_out(staging[:256], self._arena[:256], stream)
            stream.synchronize()

        return _fastest(run)

    def decode_rate(self, decoder: Decompressor, encoded: Sequence[bytes], nbytes: int, frames: int) -> float | None:
        """Return the decoded bytes per second of a batch, or None if a frame does not decode.

        Parameters
        ----------
        decoder
            Decoder of the device.
        encoded
            Encoded frames, repeated to make up the batch.
        nbytes
            Decoded bytes of each frame.
        frames
            Number of frames; halved until the batch takes at most a quarter of the free memory.
        """
        room = self._device.free_bytes() // 4
        while True:
            batch = _Batch(decoder, encoded, nbytes, frames)
            if batch.arena_bytes <= room or frames == 1:
                break
            frames //= 2
        device, stream = self._device, self._stream
        self._allocate(batch.arena_bytes)
        base = device.address(self._arena)
        staging = self._staging(batch.staging_bytes)
        batch.write(staging, base)
        device.copy_in(self._arena[: batch.staging_bytes], staging, stream)
        stream.synchronize()

        def run() -> None:
            decoder.run(stream, batch.at(base))
            stream.synchronize()

        elapsed = _fastest(run)
        back = self._staging(batch.results_bytes)
        device.copy_out(back, self._arena[batch.results : batch.results + batch.results_bytes], stream)
        stream.synchronize()
        return frames * nbytes / elapsed if batch.succeeded(back) else None


class _Batch:
    """Frames, columns, results, decoded bytes and scratch in one arena; the first three are copied in."""

    def __init__(self, decoder: Decompressor, encoded: Sequence[bytes], nbytes: int, frames: int) -> None:
        self._encoded = encoded
        self._nbytes = nbytes
        self._frames = frames
        self._sizes = np.resize(np.array([len(one) for one in encoded], np.int64), frames)
        steps = -(-self._sizes // max(16, decoder.input_alignment)) * max(16, decoder.input_alignment)
        ends = np.cumsum(steps)
        self._at = ends - steps
        self._columns = _aligned(int(ends[-1]))
        self.results = self._columns + _COLUMN_BYTES * frames
        self.results_bytes = _RESULT_BYTES * frames
        self.staging_bytes = self.results + self.results_bytes
        self._stride = _aligned(nbytes)
        self._decoded = _aligned(self.staging_bytes)
        self._temp = _aligned(self._decoded + self._stride * frames)
        self._temp_nbytes = decoder.temp_nbytes(frames, nbytes, frames * nbytes)
        self.arena_bytes = self._temp + self._temp_nbytes

    def write(self, staging: npt.NDArray[np.uint8], base: int) -> None:
        """Write the frames and their columns, for an arena at an address."""
        frames = [np.frombuffer(one, np.uint8) for one in self._encoded]
        staging[:] = 0
        for i, at in enumerate(self._at.tolist()):
            frame = frames[i % len(frames)]
            staging[at : at + frame.size] = frame
        columns = staging[self._columns : self.results].view(np.int64).reshape(4, self._frames)
        columns[0] = base + self._at
        columns[1] = self._sizes
        columns[2] = base + self._decoded + self._stride * np.arange(self._frames)
        columns[3] = self._nbytes
        staging[self.results :] = 0xFF

    def at(self, base: int) -> CoderBatch:
        """Return what the decompressor takes, for an arena at an address."""
        sources, source_nbytes, targets, target_nbytes = (base + self._columns + 8 * self._frames * i for i in range(4))
        return CoderBatch(
            frames=self._frames,
            largest=self._nbytes,
            sources=sources,
            source_nbytes=source_nbytes,
            targets=targets,
            target_nbytes=target_nbytes,
            produced=base + self.results,
            statuses=base + self.results + 8 * self._frames,
            temp=base + self._temp,
            temp_nbytes=self._temp_nbytes,
        )

    def succeeded(self, results: npt.NDArray[np.uint8]) -> bool:
        """Return whether all frames decoded to the expected number of bytes."""
        produced = results[: 8 * self._frames].view(np.int64)
        statuses = results[8 * self._frames :].view(np.int32)
        return bool((statuses == 0).all() and (produced == self._nbytes).all())


def _cpu_rates(data: bytes, encoded: dict[str, bytes]) -> dict[str, float]:
    """Return the decoded bytes per second of one thread with each decoder that the native loop has here."""
    from gzarr_kernels.libraries import decoder_addresses

    pointer, size, code = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    target = np.zeros(len(data), np.uint8)
    to = target.ctypes.data
    found: dict[str, float] = {}

    def function(name: str, result: Any, *arguments: Any) -> Any:
        return ctypes.CFUNCTYPE(result, *arguments)(decoder_addresses()[name][0])

    def take(algorithm: str, decode: Callable[[int, int], bool], source: bytes) -> None:
        memory = np.frombuffer(source, np.uint8)
        decoded: list[bool] = []
        elapsed = _fastest(lambda: decoded.append(decode(memory.ctypes.data, memory.size)))
        if all(decoded) and target.tobytes() == data:
            found[algorithm] = len(data) / elapsed

    def has(operation: str) -> bool:
        needed = OPERATIONS[operation].decoder or ()
        return all(symbol in decoder_addresses() for functions in needed for symbol in functions.symbols)

    if has("zstd"):
        zstd = function("gzarr_zstd_decompress", size, pointer, pointer, size, pointer, size)
        context = function("gzarr_zstd_create", pointer)()
        take("zstd", lambda at, nbytes: zstd(context, to, len(data), at, nbytes) == len(data), encoded["zstd"])
        function("gzarr_zstd_free", size, pointer)(context)
    if has("lz4"):
        lz4 = function("gzarr_lz4_decompress", code, pointer, pointer, code, code)
        take("lz4", lambda at, nbytes: lz4(at, to, nbytes, len(data)) == len(data), encoded["lz4"])
    if has("zlib"):
        inflate = function("gzarr_zlib_decompress", code, *(pointer, pointer, size, pointer, size, pointer, pointer))
        context = function("gzarr_deflate_create", pointer)()
        consumed, produced = size(), size()
        used, gave = ctypes.addressof(consumed), ctypes.addressof(produced)
        container = _ZLIB.header + encoded["deflate"] + zlib.adler32(data).to_bytes(_ZLIB.trailer_nbytes, "big")
        take("deflate", lambda at, nbytes: inflate(context, at, nbytes, to, len(data), used, gave) == 0, container)
        function("gzarr_deflate_free", None, pointer)(context)
    return found


def _key(device: Device) -> tuple[str, str]:
    return type(device).__qualname__, device.name


def _facts(device: Device) -> dict[str, Any]:
    """Return the facts that the rates depend on; if any of them differs, the rates are measured again."""
    return {
        "format": _FORMAT,
        "machine": platform.node(),
        "cores": os.cpu_count(),
        "kind": type(device).__qualname__,
        "ordinal": device.ordinal,
        **driver.facts(),
        "gzarr": _version("gzarr"),
        "nvcomp": _version("nvidia-libnvcomp-cu13") or _version("nvidia-libnvcomp-cu12"),
        "decoders": [_version(name) for name in ("blosc2", "deflate", "numcodecs")],
    }


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _path(facts: dict[str, Any]) -> Path | None:
    folder = cache_folder.cache_folder()
    if folder is None:
        return None
    words = [str(facts[name]) for name in ("machine", "gpu", "ordinal") if facts[name] != ""]
    readable = "-".join("".join(c if c.isalnum() else "_" for c in word)[:40] for word in words)
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]
    return folder / f"rates-{readable}-{digest}.json"


def _load(path: Path | None, facts: dict[str, Any]) -> Rates | None:
    """Return the rates in a file, or None if it is missing, damaged, or made for other facts."""
    if path is None:
        return None
    try:
        document = json.loads(path.read_bytes())
        if document["facts"] != facts:
            return None
        values = document["rates"]
        tables = {name: _table(values[name]) for name in ("cpu", "gpu", "frame")}
        return Rates(
            host_to_device=_positive(values["host_to_device"]),
            launch_seconds=_positive(values["launch_seconds"]),
            **tables,
        )
    except (OSError, ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None


def _is_old(path: Path | None) -> bool:
    """Return whether a file was written long ago, and can be replaced."""
    try:
        if path is None or time.time() - path.stat().st_mtime <= _RENEWED_AFTER_SECONDS:
            return False
    except OSError:
        return False
    return os.access(path.parent, os.W_OK)


def _faster(one: Rates, other: Rates) -> Rates:
    """Return the higher of two rates each."""

    def table(a: Mapping[str, float], b: Mapping[str, float]) -> dict[str, float]:
        return {name: max(a[name], b[name]) for name in a}

    return Rates(
        max(one.host_to_device, other.host_to_device),
        table(one.cpu, other.cpu),
        table(one.gpu, other.gpu),
        table(one.frame, other.frame),
        min(one.launch_seconds, other.launch_seconds),
    )


def _table(values: dict[str, Any]) -> dict[str, float]:
    return {algorithm: _positive(values[algorithm]) for algorithm in default_rates().cpu}


def _positive(value: Any) -> float:
    number = float(value)
    if not 0 < number < math.inf:
        raise ValueError(f"{value} is not a rate")
    return number


def _save(path: Path | None, facts: dict[str, Any], found: Rates) -> None:
    """Write the file atomically; if that fails, the next process measures again."""
    if path is None:
        return
    values = {
        "host_to_device": found.host_to_device,
        "cpu": dict(found.cpu),
        "gpu": dict(found.gpu),
        "frame": dict(found.frame),
        "launch_seconds": found.launch_seconds,
    }
    text = json.dumps({"facts": facts, "rates": values}, indent=2, sort_keys=True)
    cache_folder.write_whole(path, text.encode())


def _renew() -> None:
    global _lock
    _lock = Lock()


if hasattr(os, "register_at_fork"):
    # The parent may have been measuring: a child inherits its lock, but not the thread that holds it.
    os.register_at_fork(after_in_child=_renew)
