"""LZ4 in the stream of blocks of lz4-java's ``LZ4BlockOutputStream``, as N5 has it. Zarr has no name for it.

Source: https://github.com/lz4/lz4-java/blob/master/src/java/net/jpountz/lz4/LZ4BlockOutputStream.java. Each block has a
header of 21 bytes, integers in it are little-endian:

======  ======================================================================================
bytes   content
======  ======================================================================================
8       ``LZ4Block``
1       method, 0x10 (stored) or 0x20 (LZ4), and in the lower half the binary logarithm of the largest block, less 10
4       bytes of the block in the stream
4       bytes of the block once decoded
4       28 bits of the xxHash32 of the decoded bytes, with the seed 0x9747b28c
======  ======================================================================================

A block without bytes ends the stream. What does not begin with a header is read as one LZ4 block
without any framing, as z5 writes it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from ..reasons import reason_of
from . import native
from .buffers import ceiling, checked, compressed, empty, flat, need_bytes
from .codec import BytesRepresentation, Codec, CodecKind, Representation

if TYPE_CHECKING:
    from .buffers import Bytes

#: Largest block of n5 for Java, unless it is told another, and of lz4-java.
DEFAULT_BLOCK_BYTES: Final = 1 << 16
MAX_BLOCK_BYTES: Final = 1 << 25
_MAGIC: Final = b"LZ4Block"
_HEADER: Final = struct.Struct("<8sBIII")
_HEADER_BYTES: Final = _HEADER.size
_STORED, _LZ4 = 0x10, 0x20
_LEVEL_BASE: Final = 10
_MAX_RATIO: Final = 255  # of an LZ4 block
_SEED: Final = 0x9747B28C
_CHECKSUM_BITS: Final = 0x0FFFFFFF


@dataclass(frozen=True)
class Lz4JavaCodec(Codec):
    """LZ4 in lz4-java's framing.

    Attributes
    ----------
    block_bytes
        Largest block of new streams, in bytes before they are compressed.
    """

    kind: ClassVar[CodecKind] = "bytes_to_bytes"
    block_bytes: int = DEFAULT_BLOCK_BYTES

    @property
    def has_checksum(self) -> bool:
        """One of each block, which is verified if numcodecs' library has the function."""
        return native.xxhash32() is not None

    @property
    def label(self) -> str:
        """``lz4``."""
        return "lz4"

    def to_json(self) -> dict[str, Any]:
        """Return an object as a document of version 3 would have it, for displays."""
        return {"name": "n5.lz4", "configuration": {"blockSize": self.block_bytes}}

    def encoded(self, decoded: Representation) -> BytesRepresentation:
        """Return an unknown size."""
        return compressed(need_bytes(decoded, self.label))

    def decode(self, encoded: Any, decoded: Representation) -> Any:
        """Return the decompressed bytes."""
        representation = need_bytes(decoded, self.label)
        data = flat(encoded)
        if data.size and data[: len(_MAGIC)].tobytes() != _MAGIC:
            return _unframed(data, representation)
        blocks, total = _blocks(data, ceiling(representation))
        output = empty(total, self.label)
        hashed = native.xxhash32()
        at = 0
        for begin, end, nbytes, is_stored, checksum in blocks:
            part = output[at : at + nbytes]
            if is_stored:
                part[:] = data[begin:end]
            else:
                _decompress(data[begin:end], part)
            if hashed is not None and (hashed(part, _SEED) ^ checksum) & _CHECKSUM_BITS:
                raise ValueError(
                    f"lz4: the checksum of the block at byte {begin - _HEADER_BYTES} is not that of its data"
                )
            at += nbytes
        return checked(output, representation, self.label)

    def encode(self, decoded: Any, representation: Representation) -> Any:
        """Return one stream."""
        from numcodecs import lz4

        hashed = native.xxhash32()
        if hashed is None:
            raise ValueError(f"{self.label}: numcodecs' Zstandard library does not export xxHash32, which blocks need")
        data = flat(decoded)
        level = max((self.block_bytes - 1).bit_length() - _LEVEL_BASE, 0)
        stream = bytearray()
        for begin in range(0, data.size, self.block_bytes):
            block = data[begin : begin + self.block_bytes]
            packed = lz4.compress(block)[4:]
            is_stored = len(packed) >= block.size
            numbers = (block.size if is_stored else len(packed), block.size, hashed(block, _SEED) & _CHECKSUM_BITS)
            stream += _HEADER.pack(_MAGIC, (_STORED if is_stored else _LZ4) | level, *numbers)
            stream += block.tobytes() if is_stored else packed
        return bytes(stream) + _HEADER.pack(_MAGIC, _STORED | level, 0, 0, 0)


def _unframed(data: Bytes, representation: BytesRepresentation) -> Bytes:
    """Return the decompressed bytes of one block without a header."""
    nbytes = representation.nbytes
    if nbytes is None or nbytes > data.size * _MAX_RATIO:
        raise ValueError(
            f"lz4: {data.size} bytes are neither blocks of lz4-java, 'LZ4Block', nor one block without a header"
        )
    output = empty(nbytes, "lz4")
    if nbytes:
        _decompress(data, output)
    return output


def _blocks(data: Bytes, limit: int) -> tuple[list[tuple[int, int, int, bool, int]], int]:
    """Return, for each block of a stream, its begin and end, its decoded bytes, whether it is stored, and its checksum.

    The other result is the sum of the decoded bytes.

    Raises
    ------
    ValueError
        If the headers are corrupt, or state more bytes than the limit.
    """
    blocks = []
    total = at = 0
    while at < data.size:
        header = data[at : at + _HEADER_BYTES].tobytes()
        if len(header) < _HEADER_BYTES or not header.startswith(_MAGIC):
            raise ValueError(f"lz4: expected the header of a block, 'LZ4Block', at byte {at} of {data.size}")
        _, token, stored, nbytes, checksum = _HEADER.unpack(header)
        method, level = token & 0xF0, token & 0x0F
        begin = at + _HEADER_BYTES
        at = begin + stored
        if not nbytes and not stored:
            if at != data.size:
                raise ValueError(f"lz4: {data.size - at} bytes follow the end of the stream")
            break
        if method not in (_STORED, _LZ4) or (method == _STORED and stored != nbytes) or not stored:
            raise ValueError(f"lz4: the header of a block at byte {begin - _HEADER_BYTES} is corrupt")
        if at > data.size:
            raise ValueError(f"lz4: the header states {stored} bytes, but there are {data.size - begin}")
        if nbytes > min(1 << (_LEVEL_BASE + level), stored * _MAX_RATIO):
            raise ValueError(f"lz4: the header states {nbytes} decoded bytes, more than the block can have")
        total += nbytes
        if total > limit:
            raise ValueError(f"lz4: the headers state at least {total} bytes, more than this chunk can have")
        blocks.append((begin, at, nbytes, method == _STORED, checksum))
    return blocks, total


def _decompress(block: Bytes, output: Bytes) -> None:
    from numcodecs import lz4

    # numcodecs' framing: the size, then the block.
    framed = output.size.to_bytes(4, "little") + block.tobytes()
    try:
        lz4.decompress(framed, output)
    except Exception as error:
        raise ValueError(f"lz4: {reason_of(error)}") from None
