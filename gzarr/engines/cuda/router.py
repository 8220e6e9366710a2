"""Where the chunks of a read are decoded: on the device, or by the CPU engine, followed by one copy.

A device decodes each frame with few of its threads, but many frames at once: it is faster for many frames, and slower
for few large ones. Eight zstd frames of 16 MiB ran at 0.43 GB/s on an H200 (published), 54 MB/s per frame.

The model, in seconds:

- **Device**: a fixed cost per wave, one copy of the encoded bytes, and decoding. The fixed cost is host time that could
  be spent reading the next wave, so it counts in full. Decoding takes as long as the slowest of three: all bytes at the
  rate of the whole device; all bytes at the rate of one frame times the number of frames in flight; and the largest
  frame at the rate of one frame. Frames are not rounded up to full rounds: a device starts the next frame as soon as
  one ends. Copies overlap decoding from the second wave on.
- **CPU**: all bytes at the rate of one thread times the threads (a chunk keeps one thread busy), through the
  decompressor and then through each filter; then one copy of the results. The cost of filters on the device is ignored:
  each is one kernel that runs at memory speed.

Work that both share, mainly reading, is left out. So are the threads' competition for memory bandwidth, and the blocks
of a Blosc container that the CPU skips if a read needs only a part of it.

Rates are measured by :mod:`gzarr.engines.cuda.calibration`, or assumed (:func:`default_rates`); ``decode=`` overrides
the choice.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal

from gzarr_kernels.operations import ALGORITHMS

from ...codecs.blosc import BloscCodec
from ...codecs.cast_value import CastValueCodec
from ...codecs.chain import representations
from ...codecs.codec import BytesRepresentation
from . import wave_plan
from .filters import FilterCodec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...plan.decode_program import Decoding

Decode = Literal["auto", "cpu", "cuda"]

#: Assumed compression ratio: the number of encoded bytes is not known before they are read.
ASSUMED_RATIO: Final = 2
#: Decoded bytes per second of a filter on one CPU thread: assumed orders of magnitude. Most filters are one or two
#: passes over the elements; ``cast_value`` may take many.
FILTER_RATE: Final = 1e9
SLOW_FILTER_RATE: Final = 25e6
#: Decoded bytes of a wave, and waves in flight, of work that does not say: the engine's for small frames.
WAVE_BYTES: Final = wave_plan.WAVE_BYTES
WAVES_IN_FLIGHT: Final = wave_plan.MAX_WAVES_IN_FLIGHT

# c-blosc 1.21, ``blosc/blosc.c`` and ``blosc/blosc.h``.
_L1_BYTES: Final = 32 << 10
_MIN_BUFFER_BYTES: Final = 128
_MAX_BLOCK_BYTES: Final = (2**31 - 1 - 255 * 4) // 3
_MAX_TYPESIZE: Final = 255
_MAX_SPLIT_TYPESIZE: Final = 16
_HIGH_RATIO: Final = ("lz4hc", "zlib", "zstd")
#: Block size as a multiple of ``_L1_BYTES``, for each compression level.
_LEVEL_FACTORS: Final = (0.25, 0.5, 1, 2, 4, 4, 8, 8, 8, 8)


@dataclass(frozen=True, slots=True)
class Rates:
    """How fast a machine and one of its devices are.

    Attributes
    ----------
    host_to_device
        Bytes per second of copies from page-locked memory.
    cpu
        Algorithm → decoded bytes per second of one CPU thread.
    gpu
        Algorithm → decoded bytes per second of the whole device, given many frames.
    frame
        Algorithm → decoded bytes per second of a single frame on the device.
    launch_seconds
        Fixed seconds of host time per wave: Python, launches, and waiting for the statuses.
    """

    host_to_device: float
    cpu: Mapping[str, float]
    gpu: Mapping[str, float]
    frame: Mapping[str, float]
    launch_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutedWork:
    """The work of a read.

    Attributes
    ----------
    algorithm
        nvCOMP's algorithm, or None for uncompressed chunks.
    chunks, frames
        Number of chunks and frames that the read touches.
    frame_nbytes
        Decoded bytes of the largest frame.
    decoded_nbytes
        Decoded bytes of all chunks, before filters are undone.
    encoded_nbytes
        Encoded bytes of all chunks; None if not known.
    needed_nbytes
        Bytes of the results; the CPU copies only these to the device.
    threads
        Threads of the CPU engine.
    wave_nbytes, waves
        Decoded bytes of a wave, and waves in flight.
    filter_seconds
        Seconds for one CPU thread to undo all filters of all chunks.
    """

    algorithm: str | None
    chunks: int
    frames: int
    frame_nbytes: int
    decoded_nbytes: int
    needed_nbytes: int
    threads: int
    encoded_nbytes: int | None = None
    wave_nbytes: int = WAVE_BYTES
    waves: int = WAVES_IN_FLIGHT
    filter_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Route:
    """Where chunks are decoded, and why.

    Attributes
    ----------
    decode
        ``"cpu"`` or ``"cuda"``.
    reason
        One line of text for users.
    gpu_seconds, cpu_seconds
        The model's estimates; None if there is none.
    """

    decode: Literal["cpu", "cuda"]
    reason: str
    gpu_seconds: float | None = None
    cpu_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class ChunkFrames:
    """Frames of one chunk, estimated from metadata.

    Attributes
    ----------
    count
        Number of frames; 0 if nothing is compressed.
    nbytes
        Decoded bytes of the largest frame.
    """

    count: int
    nbytes: int


def default_rates() -> Rates:
    """Return assumed rates, for those that :mod:`gzarr.engines.cuda.calibration` has not measured.

    They are orders of magnitude, chosen so that a wrong choice costs little: a recent data-centre device, a copy over
    PCIe 4, the decoders of a current CPU (``gzarr_kernels.operations``). ``benchmarks/gpu/questions.py`` measures each.
    """
    return _DEFAULT_RATES


_ASSUMED: Final = {name: algorithm.rates for name, algorithm in ALGORITHMS.items() if algorithm.rates is not None}
_DEFAULT_RATES: Final = Rates(
    # Bytes per second: assumed, PCIe 4 x16 less protocol overhead. Question "pinned copies", 16 MiB to the device.
    host_to_device=20e9,
    # Questions "router rates" and "decode rates": many frames are 1,024 of 64 KiB, a single one has 1 MiB.
    cpu=MappingProxyType({name: rates.cpu for name, rates in _ASSUMED.items()}),
    gpu=MappingProxyType({name: rates.gpu for name, rates in _ASSUMED.items()}),
    frame=MappingProxyType({name: rates.frame for name, rates in _ASSUMED.items()}),
    # Seconds of Python: assumed. Calibration adds the time of waiting. Question "router rates": wave_seconds less that.
    launch_seconds=3e-4,
)


def choose(work: RoutedWork, rates: Rates, decode: Decode = "auto") -> Route:
    """Choose where a read is decoded.

    Uncompressed chunks always go to the device as they are: they only have to be placed.

    Parameters
    ----------
    work
        The work of the read.
    rates
        Rates, measured or assumed.
    decode
        The caller's choice, or ``"auto"``.
    """
    gpu, cpu = _gpu_seconds(work, rates), _cpu_seconds(work, rates)
    if decode != "auto":
        return Route(decode, f"decode={decode!r}", gpu, cpu)
    if work.algorithm is None or work.frames == 0:
        return Route("cuda", "nothing to decode", gpu, cpu)
    if ALGORITHMS[work.algorithm].rates is None:
        return Route("cuda", f"{work.algorithm} is designed for GPUs", gpu, cpu)
    frames = f"{work.frames} {'frame' if work.frames == 1 else 'frames'} of up to {_size(work.frame_nbytes)}"
    reason = f"{frames}: about {_duration(gpu)} on the device, {_duration(cpu)} on {work.threads} CPU threads"
    return Route("cuda" if gpu <= cpu else "cpu", reason, gpu, cpu)


def only_on_cpu(reason: str) -> Route:
    """Return the route of a chain that the device cannot decode."""
    return Route("cpu", reason)


def route(
    decoding: Decoding,
    algorithm: str | None,
    chunks: int,
    needed_nbytes: int,
    threads: int,
    decode: Decode,
    rates: Rates | None = None,
    waves: tuple[int, int] | None = None,
) -> Route:
    """Choose where some chunks of an array are decoded.

    Parameters
    ----------
    decoding, algorithm
        The codec chain, and nvCOMP's algorithm for it; None for uncompressed chunks.
    chunks, needed_nbytes
        Number of chunks that the read touches, and bytes of its results.
    threads
        Threads of the CPU engine.
    decode
        The caller's choice, or ``"auto"``.
    rates
        Rates of the machine; None for :func:`default_rates`.
    waves
        Chunks in a wave, and waves in flight; None for the numbers of a device with enough memory.
    """
    frames = frames_of(decoding)
    nbytes = _framed_nbytes(decoding)
    if waves is None:
        waves = wave_plan.usual_waves(chunks, nbytes, frames.count)
    work = RoutedWork(
        algorithm=algorithm,
        chunks=chunks,
        frames=chunks * frames.count,
        frame_nbytes=frames.nbytes,
        decoded_nbytes=chunks * nbytes,
        needed_nbytes=needed_nbytes,
        threads=threads,
        wave_nbytes=waves[0] * nbytes,
        waves=waves[1],
        filter_seconds=chunks * filter_seconds(decoding),
    )
    return choose(work, rates or default_rates(), decode)


def filter_seconds(decoding: Decoding) -> float:
    """Return the approximate seconds for one CPU thread to undo the filters of a chunk."""
    codecs, total = decoding.codecs, 0.0
    for codec, decoded in zip(codecs, representations(codecs, decoding.chunk)[:-1], strict=True):
        if isinstance(codec, FilterCodec):
            rate = SLOW_FILTER_RATE if isinstance(codec, CastValueCodec) else FILTER_RATE
            total += (decoded.nbytes or decoding.chunk.nbytes) / rate
    return total


def frames_of(decoding: Decoding) -> ChunkFrames:
    """Return the frames of a chunk, estimated from metadata: stored chunks may be divided differently.

    A chunk of zstd, lz4, gzip or zlib counts as one frame; a Blosc container is divided as by c-blosc 1.21.
    """
    nbytes = _framed_nbytes(decoding)
    for codec in decoding.codecs:
        if isinstance(codec, BloscCodec):
            return blosc_frames(nbytes, codec.typesize or 1, codec.cname, codec.clevel, codec.blocksize)
    return ChunkFrames(1, nbytes)


def _framed_nbytes(decoding: Decoding) -> int:
    """Return the bytes of a chunk before compression, after all filters."""
    between = representations(decoding.codecs, decoding.chunk)[:-1]
    stated = [known.nbytes for known in between if isinstance(known, BytesRepresentation) and known.nbytes is not None]
    return stated[-1] if stated else decoding.chunk.nbytes


def blosc_frames(nbytes: int, typesize: int, cname: str, clevel: int, blocksize: int = 0) -> ChunkFrames:
    """Return the frames of a Blosc container: its streams, assuming that all of them compress.

    Source: c-blosc 1.21 ``blosc/blosc.c`` (``write_compression_header``, ``blosc_c``).

    Parameters
    ----------
    nbytes
        Decoded bytes of the container.
    typesize, cname, clevel, blocksize
        Parameters of the compression; ``blocksize`` in bytes, 0 for automatic.
    """
    if clevel == 0 or nbytes < _MIN_BUFFER_BYTES:
        return ChunkFrames(0, nbytes)
    typesize = typesize if typesize <= _MAX_TYPESIZE else 1
    block = blosc_blocksize(nbytes, typesize, cname, clevel, blocksize)
    streams = typesize if _is_split(cname, typesize, block) else 1
    full, rest = divmod(nbytes, block)
    return ChunkFrames(full * streams + (1 if rest else 0), max(block // streams, rest))


def blosc_blocksize(nbytes: int, typesize: int, cname: str, clevel: int, blocksize: int = 0) -> int:
    """Return the block size in bytes that c-blosc chooses.

    Source: c-blosc 1.21 ``blosc/blosc.c`` (``compute_blocksize``, ``split_block``), in its default split mode. It does
    not depend on the data. Other versions and writers choose differently.

    Parameters
    ----------
    nbytes
        Decoded bytes of the container, at least 1.
    typesize, cname, clevel
        Parameters of the compression.
    blocksize
        Requested block size in bytes; 0 for automatic.
    """
    typesize = typesize if typesize <= _MAX_TYPESIZE else 1
    if nbytes < typesize:
        return 1
    block = nbytes
    if blocksize:
        block = min(max(blocksize, _MIN_BUFFER_BYTES), _MAX_BLOCK_BYTES)
    elif nbytes >= _L1_BYTES:
        block = int(_L1_BYTES * _LEVEL_FACTORS[clevel])
        if cname in _HIGH_RATIO:
            block *= 4 if clevel == 9 else 2
    if clevel > 0 and _is_split(cname, typesize, block):
        block = min(max(min(block, 256 << 10) * typesize, 64 << 10), 1 << 20)
    block = min(block, nbytes)
    return block // typesize * typesize if block > typesize else block


def _is_split(cname: str, typesize: int, block: int) -> bool:
    """Return whether full blocks have a separate stream for each byte of the elements."""
    return cname != "zstd" and typesize <= _MAX_SPLIT_TYPESIZE and block // typesize >= _MIN_BUFFER_BYTES


def _gpu_seconds(work: RoutedWork, rates: Rates) -> float:
    encoded = work.encoded_nbytes
    compressed = work.algorithm is not None and work.frames > 0
    if encoded is None:
        encoded = work.decoded_nbytes // ASSUMED_RATIO if compressed else work.decoded_nbytes
    copy = encoded / rates.host_to_device
    waves = _waves(work)
    decode = 0.0
    if work.algorithm is not None and compressed:
        frame_rate = rates.frame.get(work.algorithm, 0.0)
        at_once = work.frames * min(waves, work.waves) / waves
        decode = max(
            _seconds(work.decoded_nbytes, min(rates.gpu.get(work.algorithm, 0.0), at_once * frame_rate)),
            _seconds(work.frame_nbytes, frame_rate),
        )
    return waves * rates.launch_seconds + max(copy, decode) + min(copy, decode) / waves


def _waves(work: RoutedWork) -> int:
    """Return the number of waves that the engine divides the chunks into; it never divides a chunk."""
    if not work.chunks:
        return 1
    chunk_nbytes = max(1, work.decoded_nbytes // work.chunks)
    return -(-work.chunks // max(1, work.wave_nbytes // chunk_nbytes))


def _cpu_seconds(work: RoutedWork, rates: Rates) -> float:
    busy = max(1, min(work.threads, work.chunks))
    decode = work.filter_seconds / busy
    if work.algorithm is not None and work.frames:
        decode += _seconds(work.decoded_nbytes, busy * rates.cpu.get(work.algorithm, 0.0))
    return decode + work.needed_nbytes / rates.host_to_device


def _seconds(nbytes: int, rate: float) -> float:
    """Return the seconds for some bytes; infinite if there is no decoder."""
    return nbytes / rate if rate > 0 else math.inf


def _duration(seconds: float) -> str:
    if math.isinf(seconds):
        return "no decoder"
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1e3 * seconds:.3g} ms"


def _size(nbytes: int) -> str:
    for unit, factor in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if nbytes >= factor:
            return f"{nbytes / factor:.3g} {unit}"
    return f"{nbytes} bytes"
