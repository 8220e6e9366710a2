"""Frames to decode: a sample that compresses like images, in every algorithm and form, and damaged.

Snappy and the unusual forms of zstd are made here from numcodecs' output, so that no other encoder is needed.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import fields
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

ALGORITHMS = ("zstd", "lz4", "deflate", "snappy")
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_SKIPPABLE = b"\x50\x2a\x4d\x18"
#: Most bytes of a snappy copy with an offset of two bytes.
_SNAPPY_COPY = 64
#: Bytes of the piece that is encoded as snappy, in Python; longer data repeats it.
_SNAPPY_PIECE = 64 << 10


def sample(nbytes: int) -> bytes:
    """Return ``nbytes`` of a 16-bit light-sheet volume, shuffled in blocks like Blosc's streams."""
    block = 8192
    rows = -(-nbytes // (2 * block))
    elements = fields.make(fields.camera_u2, (rows, block // 256, 256))
    planes: bytes = elements.view(np.uint8).reshape(rows, block, 2).transpose(0, 2, 1).tobytes()
    return planes[:nbytes]


def encode(algorithm: str, data: bytes) -> bytes:
    """Return one frame that decodes to ``data`` (for snappy, to its first 64 KiB, repeated to the same length)."""
    from numcodecs import lz4, zstd

    if algorithm == "zstd":
        return bytes(zstd.compress(data, 3))
    if algorithm == "lz4":
        # Without the size that numcodecs puts before it.
        return bytes(lz4.compress(data, 1)[4:])
    if algorithm == "deflate":
        return deflate(data)
    if algorithm == "snappy":
        return snappy(data)
    raise ValueError(algorithm)


def decoded(algorithm: str, data: bytes) -> bytes:
    """Return the data that :func:`encode` encodes for ``data``."""
    if algorithm != "snappy" or len(data) <= _SNAPPY_PIECE:
        return data
    piece = data[:_SNAPPY_PIECE]
    return (piece * -(-len(data) // len(piece)))[: len(data)]


def deflate(data: bytes) -> bytes:
    """Return a raw deflate stream."""
    encoder = zlib.compressobj(5, zlib.DEFLATED, -15)
    return encoder.compress(data) + encoder.flush()


def snappy(data: bytes) -> bytes:
    """Return a snappy block; see :func:`encode`.

    Source: https://github.com/google/snappy/blob/main/format_description.txt.
    """
    from numcodecs import lz4

    def elements(piece: bytes) -> bytes:
        return _lz4_to_snappy(bytes(lz4.compress(piece, 1)[4:]))

    whole, rest = divmod(len(data), _SNAPPY_PIECE)
    piece = data[:_SNAPPY_PIECE]
    body = (elements(piece) * whole if whole else b"") + (elements(piece[:rest]) if rest else b"")
    return _varint(len(data)) + body


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def _lz4_to_snappy(block: bytes) -> bytes:
    """Return the literals and copies of an LZ4 block (offsets of two bytes) as snappy's elements.

    Source: https://github.com/lz4/lz4/blob/dev/doc/lz4_Block_format.md.
    """
    out = bytearray()
    at = 0

    def length(first: int) -> int:
        nonlocal at
        if first == 15:
            while True:
                byte = block[at]
                at += 1
                first += byte
                if byte < 255:
                    break
        return first

    while at < len(block):
        token = block[at]
        at += 1
        literals = length(token >> 4)
        if literals:
            # 60 and 61 mean lengths of one and two bytes, which suffice for pieces of 64 KiB.
            n = literals - 1
            out += bytes([n << 2]) if n < 60 else bytes([60 << 2, n]) if n < 256 else bytes([61 << 2, n & 255, n >> 8])
            out += block[at : at + literals]
            at += literals
        if at >= len(block):
            break
        offset = block[at : at + 2]
        at += 2
        copied = length(token & 15) + 4
        while copied:
            part = min(copied, _SNAPPY_COPY)
            out += bytes([(part - 1) << 2 | 2]) + offset
            copied -= part
    return bytes(out)


def zstd_forms(data: bytes) -> dict[str, bytes]:
    """Return streams of zstd frames by name; all decode to ``data``, except for one with a wrong checksum."""
    from numcodecs.zstd import Zstd

    plain = encode("zstd", data)
    checked = bytes(Zstd(level=3, checksum=True).encode(data))
    half = len(data) // 2
    skippable = _SKIPPABLE + (9).to_bytes(4, "little") + b"skip this"
    wrong = checked[:-1] + bytes([checked[-1] ^ 1])
    return {
        "plain": plain,
        "checksum": checked,
        "wrong checksum": wrong,
        "no content size": without_content_size(plain),
        "two frames": encode("zstd", data[:half]) + encode("zstd", data[half:]),
        "skippable frame in front": skippable + plain,
        "skippable frame behind": plain + skippable,
    }


def without_content_size(frame: bytes) -> bytes:
    """Return a zstd frame with a window in its header instead of its content size.

    Source: RFC 8878, 3.1.1.1.
    """
    if frame[:4] != _ZSTD_MAGIC:
        raise ValueError("not a zstd frame")
    descriptor = frame[4]
    single = bool(descriptor & 0x20)
    size_bytes = (1 if single else 0, 2, 4, 8)[descriptor >> 6]
    if descriptor & 3:
        raise ValueError("a frame with a dictionary")
    at = 5 if single else 6
    size = int.from_bytes(frame[at : at + size_bytes], "little") + (256 if size_bytes == 2 else 0)
    # 2**exponent bytes, no less than the content and no less than 1 KiB.
    exponent = max(10, (max(size, 1) - 1).bit_length())
    window = bytes([(exponent - 10) << 3]) if single else frame[5:6]
    return _ZSTD_MAGIC + bytes([descriptor & 0x04]) + window + frame[at + size_bytes :]


def damages(frame: bytes) -> dict[str, bytes]:
    """Return a frame damaged in several ways, by name."""
    third = len(frame) // 3
    random = np.random.default_rng(3)
    flipped = bytearray(frame)
    for at in random.integers(0, len(frame), 16).tolist():
        flipped[at] ^= 1 << int(random.integers(0, 8))
    return {
        "half of it": frame[: len(frame) // 2],
        "zeros in the middle": frame[:third] + bytes(third) + frame[2 * third :],
        "bits flipped": bytes(flipped),
        "random bytes": random.bytes(len(frame)),
        "backwards": frame[::-1],
    }


def parts(data: bytes, nbytes: int, most: int = 4) -> Sequence[bytes]:
    """Return some different pieces of the sample, of ``nbytes`` each."""
    count = max(1, min(most, len(data) // nbytes))
    return [data[i * nbytes : (i + 1) * nbytes] for i in range(count)]
