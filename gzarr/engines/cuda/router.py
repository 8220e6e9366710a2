"""Where the chunks of a read are decoded: on the device, or by the CPU engine with one copy after it.

A device decodes a frame with few of its threads, and many frames at once: it is the faster one for many frames, the
slower one for few large ones. 8 zstd frames of 16 MiB ran at 0.43 GB/s on an H200 (published), 54 MB/s a frame.

The model, in seconds:

- **Device**: the fixed cost of each wave, one copy of the encoded bytes, and decoding. The fixed cost is the host's,
  which could be reading the next wave meanwhile, so it counts in full. Decoding takes as long as the slowest of three:
  all bytes at the rate of the whole device; all bytes at a frame's rate times the frames that the waves in flight hold;
  and one frame, the largest, at a frame's rate. Frames are not rounded up to full rounds: a device starts the next
  frame as soon as one ends. Copies overlap decoding from the second wave on.
- **CPU**: all bytes at a thread's rate times the threads, of which a chunk keeps one busy, through the decompressor and
  then through each filter; then one copy of the results. What filters cost the device is left out: they are a kernel
  each, which is as fast as its memory.

What both do alike, reading above all, is left out. So are what threads cost each other in memory bandwidth, and the
blocks that the CPU leaves out of a Blosc container where a read wants only a part of it.

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
from ...codecs.packbits import PackbitsCodec
from .filters import FilterCodec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...plan.decode_program import Decoding

Decode = Literal["auto", "cpu", "cuda"]

#: Encoded bytes are not known before they are read; decoded bytes are taken to be this many times as many.
ASSUMED_RATIO: Final = 2
#: Bytes a second that come out of a filter on one CPU thread: assumed, orders of magnitude. Most filters are one or two
#: passes of NumPy over the elements; some take many, or one over every bit.
FILTER_RATE: Final = 1e9
SLOW_FILTER_RATE: Final = 25e6
_SLOW_FILTERS: Final = (PackbitsCodec, CastValueCodec)
#: Decoded bytes of a wave, and waves in flight: the engine's.
WAVE_BYTES: Final = 64 << 20
WAVES_IN_FLIGHT: Final = 3

# c-blosc 1.21, ``blosc/blosc.c`` and ``blosc/blosc.h``.
_L1_BYTES: Final = 32 << 10
_MIN_BUFFER_BYTES: Final = 128
_MAX_BLOCK_BYTES: Final = (2**31 - 1 - 255 * 4) // 3
_MAX_TYPESIZE: Final = 255
_MAX_SPLIT_TYPESIZE: Final = 16
_HIGH_RATIO: Final = ("lz4hc", "zlib", "zstd")
#: ``_L1_BYTES`` times this, a level.
_LEVEL_FACTORS: Final = (0.25, 0.5, 1, 2, 4, 4, 8, 8, 8, 8)


@dataclass(frozen=True, slots=True)
class Rates:
    """How fast a machine and one of its devices are.

    Attributes
    ----------
    host_to_device
        Bytes a second from page-locked memory.
    cpu
        Algorithm → decoded bytes a second of one CPU thread.
    gpu
        Algorithm → decoded bytes a second of the whole device, given many frames.
    frame
        Algorithm → decoded bytes a second of one frame alone on the device.
    launch_seconds
        Of the host, fixed, for each wave: what Python does, launches, and waiting for the statuses.
    """

    host_to_device: float
    cpu: Mapping[str, float]
    gpu: Mapping[str, float]
    frame: Mapping[str, float]
    launch_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a read asks for.

    Attributes
    ----------
    algorithm
        nvCOMP's, or None for uncompressed chunks.
    chunks, frames
        How many the read touches.
    frame_nbytes
        Decoded bytes of the largest frame.
    decoded_nbytes
        Of all chunks, before filters are undone.
    encoded_nbytes
        Of all chunks; None if not known.
    needed_nbytes
        Of the results, which are all that the CPU sends.
    threads
        Of the CPU engine.
    wave_nbytes, waves
        Decoded bytes of a wave, and waves in flight.
    filter_seconds
        What one CPU thread takes to undo all filters of all chunks.
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
        For people, one line.
    gpu_seconds, cpu_seconds
        What the model says of either; None where it was not asked.
    """

    decode: Literal["cpu", "cuda"]
    reason: str
    gpu_seconds: float | None = None
    cpu_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class ChunkFrames:
    """Frames of one chunk, as far as its metadata tells.

    Attributes
    ----------
    count
        How many; 0 if nothing is compressed.
    nbytes
        Decoded bytes of the largest.
    """

    count: int
    nbytes: int


def default_rates() -> Rates:
    """Return rates that are assumed, not measured here: what :mod:`gzarr.engines.cuda.calibration` has not measured.

    Orders of magnitude, chosen so that a wrong choice costs little: a data-centre device of the last years, a copy over
    PCIe 4, the decoders of a current CPU (``gzarr_kernels.operations``). ``benchmarks/gpu_questions.py`` measures each.
    """
    return _DEFAULT_RATES


_ASSUMED: Final = {name: algorithm.rates for name, algorithm in ALGORITHMS.items() if algorithm.rates is not None}
_DEFAULT_RATES: Final = Rates(
    # Bytes a second: assumed, PCIe 4 x16 less what protocols take. Question "pinned copies", 16 MiB to the device.
    host_to_device=20e9,
    # Questions "router rates" and "decode rates": many frames are 1,024 of 64 KiB, a lone one has 1 MiB.
    cpu=MappingProxyType({name: rates.cpu for name, rates in _ASSUMED.items()}),
    gpu=MappingProxyType({name: rates.gpu for name, rates in _ASSUMED.items()}),
    frame=MappingProxyType({name: rates.frame for name, rates in _ASSUMED.items()}),
    # Seconds of Python: assumed. Calibration adds what waiting takes. Question "router rates": wave_seconds less that.
    launch_seconds=3e-4,
)


def choose(work: Work, rates: Rates, decode: Decode = "auto") -> Route:
    """Choose where a read is decoded.

    Uncompressed chunks always go to the device as they are: placing them is all there is to do.

    Parameters
    ----------
    work
        What the read asks for.
    rates
        Measured or assumed.
    decode
        The caller's choice, or ``"auto"``.
    """
    gpu, cpu = _gpu_seconds(work, rates), _cpu_seconds(work, rates)
    if decode != "auto":
        return Route(decode, f"decode={decode!r}", gpu, cpu)
    if work.algorithm is None or work.frames == 0:
        return Route("cuda", "nothing to decode", gpu, cpu)
    if ALGORITHMS[work.algorithm].rates is None:
        return Route("cuda", f"{work.algorithm} is made for devices", gpu, cpu)
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
) -> Route:
    """Choose where some chunks of an array are decoded.

    Parameters
    ----------
    decoding, algorithm
        The chain, and nvCOMP's algorithm for it; None for uncompressed chunks.
    chunks, needed_nbytes
        How many chunks the read touches, and the bytes of its results.
    threads
        Of the CPU engine.
    decode
        The caller's choice, or ``"auto"``.
    rates
        None for :func:`default_rates`.
    """
    frames = frames_of(decoding)
    work = Work(
        algorithm=algorithm,
        chunks=chunks,
        frames=chunks * frames.count,
        frame_nbytes=frames.nbytes,
        decoded_nbytes=chunks * _framed_nbytes(decoding),
        needed_nbytes=needed_nbytes,
        threads=threads,
        filter_seconds=chunks * filter_seconds(decoding),
    )
    return choose(work, rates or default_rates(), decode)


def filter_seconds(decoding: Decoding) -> float:
    """Return what one CPU thread takes to undo the filters of a chunk, about."""
    codecs, total = decoding.codecs, 0.0
    for codec, decoded in zip(codecs, representations(codecs, decoding.chunk)[:-1], strict=True):
        if isinstance(codec, FilterCodec):
            rate = SLOW_FILTER_RATE if isinstance(codec, _SLOW_FILTERS) else FILTER_RATE
            total += (decoded.nbytes or decoding.chunk.nbytes) / rate
    return total


def frames_in_chunk(decoding: Decoding) -> int:
    """Return how many frames a chunk has, about, and at least 1: the columns of a wave are made for that many."""
    return max(1, frames_of(decoding).count)


def frames_of(decoding: Decoding) -> ChunkFrames:
    """Return the frames of a chunk, as far as its metadata tells: what is stored may be cut in another way.

    A chunk of zstd, lz4, gzip or zlib is one frame; a Blosc container is cut as c-blosc 1.21 does.
    """
    nbytes = _framed_nbytes(decoding)
    for codec in decoding.codecs:
        if isinstance(codec, BloscCodec):
            return blosc_frames(nbytes, codec.typesize or 1, codec.cname, codec.clevel, codec.blocksize)
    return ChunkFrames(1, nbytes)


def _framed_nbytes(decoding: Decoding) -> int:
    """Return the bytes of a chunk before it is compressed: behind all filters."""
    between = representations(decoding.codecs, decoding.chunk)[:-1]
    stated = [known.nbytes for known in between if isinstance(known, BytesRepresentation) and known.nbytes is not None]
    return stated[-1] if stated else decoding.chunk.nbytes


def blosc_frames(nbytes: int, typesize: int, cname: str, clevel: int, blocksize: int = 0) -> ChunkFrames:
    """Return the frames of a Blosc container: its streams, if all of them compress.

    Source: c-blosc 1.21 ``blosc/blosc.c`` (``write_compression_header``, ``blosc_c``).

    Parameters
    ----------
    nbytes
        Of the decoded container.
    typesize, cname, clevel, blocksize
        What it is written with.
    """
    if clevel == 0 or nbytes < _MIN_BUFFER_BYTES:
        return ChunkFrames(0, nbytes)
    typesize = typesize if typesize <= _MAX_TYPESIZE else 1
    block = blosc_blocksize(nbytes, typesize, cname, clevel, blocksize)
    streams = typesize if _is_split(cname, typesize, block) else 1
    full, rest = divmod(nbytes, block)
    return ChunkFrames(full * streams + (1 if rest else 0), max(block // streams, rest))


def blosc_blocksize(nbytes: int, typesize: int, cname: str, clevel: int, blocksize: int = 0) -> int:
    """Return the bytes of a block that c-blosc chooses.

    Source: c-blosc 1.21 ``blosc/blosc.c`` (``compute_blocksize``, ``split_block``), in its default split mode. Blocks
    do not depend on the data. Other versions and writers choose others.

    Parameters
    ----------
    nbytes
        Of the decoded container, at least 1.
    typesize, cname, clevel
        What it is written with.
    blocksize
        That is asked for; 0 is automatic.
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
    """Return whether each byte of the elements has a stream of its own, in full blocks."""
    return cname != "zstd" and typesize <= _MAX_SPLIT_TYPESIZE and block // typesize >= _MIN_BUFFER_BYTES


def _gpu_seconds(work: Work, rates: Rates) -> float:
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


def _waves(work: Work) -> int:
    """Return how many waves the chunks are, as the engine cuts them: a chunk is never cut."""
    if not work.chunks:
        return 1
    chunk_nbytes = max(1, work.decoded_nbytes // work.chunks)
    return -(-work.chunks // max(1, work.wave_nbytes // chunk_nbytes))


def _cpu_seconds(work: Work, rates: Rates) -> float:
    busy = max(1, min(work.threads, work.chunks))
    decode = work.filter_seconds / busy
    if work.algorithm is not None and work.frames:
        decode += _seconds(work.decoded_nbytes, busy * rates.cpu.get(work.algorithm, 0.0))
    return decode + work.needed_nbytes / rates.host_to_device


def _seconds(nbytes: int, rate: float) -> float:
    """Return how long bytes take; for ever where there is no decoder."""
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
