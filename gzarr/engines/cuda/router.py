"""Where the chunks of a read are decoded: on the device, or by the CPU engine with one copy after it.

A device decodes each frame with a few threads and many frames at once, so it is the faster one for many frames and the
slower one for few large ones: 8 zstd frames of 16 MiB ran at 0.43 GB/s on an H200 (published), which is 54 MB/s a frame.
The model takes a device's time as the larger of two: all bytes at its full rate, and one frame at a frame's rate for as
many rounds as there are; the CPU's as all bytes over its threads, and one copy of the results.

The rates are assumptions of that order of magnitude, not measurements of this machine; ``decode=`` overrides them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from ...codecs.blosc import BloscCodec

if TYPE_CHECKING:
    from ...program import Decoding

Decode = Literal["auto", "cpu", "gpu"]

#: Decoded bytes a second: of one CPU thread, of a whole device, of one frame on a device.
_CPU: Final = {"lz4": 2.0e9, "snappy": 1.0e9, "zstd": 0.8e9, "deflate": 0.5e9}
_DEVICE: Final = {"lz4": 100e9, "snappy": 100e9, "zstd": 50e9, "deflate": 40e9}
_FRAME: Final = {"lz4": 100e6, "snappy": 100e6, "zstd": 54e6, "deflate": 50e6}
#: Frames that a device decodes at once.
_AT_ONCE: Final = 1000
#: Bytes a second from host to device.
_COPY: Final = 20e9
#: c-blosc's usual blocks, for estimates: what a level above 1 of its rules tends to.
_BLOCK_BYTES: Final = 256 << 10
_SPLIT: Final = ("lz4", "lz4hc", "zlib", "snappy")


@dataclass(frozen=True, slots=True)
class Route:
    """Where chunks are decoded, and why."""

    decode: Literal["cpu", "gpu"]
    reason: str


def only_on_cpu(reason: str) -> Route:
    """Return the route of a chain that the device cannot decode."""
    return Route("cpu", reason)


def frames_in_chunk(decoding: Decoding) -> int:
    """Return how many frames a chunk has, about: known only when it is read."""
    for codec in decoding.codecs:
        if isinstance(codec, BloscCodec):
            nbytes = max(decoding.chunk.nbytes, 1)
            block = min(codec.blocksize or _BLOCK_BYTES, nbytes)
            typesize = codec.typesize or 1
            streams = typesize if codec.cname in _SPLIT and typesize <= 16 else 1
            return -(-nbytes // block) * streams
    return 1


def route(
    decoding: Decoding, algorithm: str | None, chunks: int, needed_nbytes: int, threads: int, decode: Decode
) -> Route:
    """Choose.

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
    """
    if decode != "auto":
        return Route(decode, f"decode={decode!r}")
    if algorithm is None:
        return Route("gpu", "nothing to decode")
    decoded = chunks * decoding.chunk.nbytes
    frames = chunks * frames_in_chunk(decoding)
    frame = decoded / frames
    device = max(decoded / _DEVICE[algorithm], frame / _FRAME[algorithm] * -(-frames // _AT_ONCE))
    cpu = decoded / (_CPU[algorithm] * threads) + needed_nbytes / _COPY
    reason = f"about {1e3 * device:.2g} ms on the device, {1e3 * cpu:.2g} ms here"
    return Route("gpu" if device <= cpu else "cpu", reason)
