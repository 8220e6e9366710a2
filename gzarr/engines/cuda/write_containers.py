"""What lies where in the containers of a wave, once the sizes of all frames are known: columns for the kernels.

Everything is worked out for all chunks at once: ``c`` chunks of ``f`` frames each.

Sources: ``gzarr_kernels.operations`` for what stands around one frame; Blosc 1, ``README_CHUNK_FORMAT`` of c-blosc
(https://github.com/Blosc/c-blosc/blob/main/README_CHUNK_FORMAT.rst).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from .write_program import BLOSC_HEADER_BYTES

if TYPE_CHECKING:
    import numpy.typing as npt

    from .write_program import WriteProgram

    IntArray = npt.NDArray[np.int64]
    BoolArray = npt.NDArray[np.bool_]

_CHECKSUM_AND_SIZE_BYTES: Final = 8
# Of a Blosc container.
_VERSIONS: Final = 0x0102
_BYTE_SHUFFLE: Final = 0x01
_MEMCPYED: Final = 0x02
_BIT_SHUFFLE: Final = 0x04
_DONT_SPLIT: Final = 0x10
_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"


@dataclass(frozen=True, slots=True, eq=False)
class Containers:
    """Where everything goes, relative to the beginning of each container; int64.

    Attributes
    ----------
    nbytes
        ``(c,)``, of each container.
    copy_chunk, copy_source, copy_target, copy_nbytes
        Of each copy: into which chunk's container, from where in the arena, to where in the container.
    number_chunk, number_target, number_value
        Of each number of 4 bytes. They are written before anything is copied.
    sum_target
        ``(c,)``: where the checksum of the chunk's uncompressed bytes goes, or None for containers without.
    """

    nbytes: IntArray
    copy_chunk: IntArray
    copy_source: IntArray
    copy_target: IntArray
    copy_nbytes: IntArray
    number_chunk: IntArray
    number_target: IntArray
    number_value: IntArray
    sum_target: IntArray | None


def most_numbers(program: WriteProgram) -> int:
    """Return the most numbers that a container has."""
    if program.blosc is None:
        return len(_numbers(program)) + 1
    return 4 + 2 * len(program.frame_at)


def most_nbytes(program: WriteProgram, most_encoded: int) -> int:
    """Return the most bytes of a container, its checksums included; ``most_encoded`` is that of a frame."""
    around = program.around
    body = program.nbytes if program.algorithm is None else most_encoded
    if program.blosc is not None:
        body = program.nbytes + BLOSC_HEADER_BYTES
    return around.header_nbytes + body + around.trailer_nbytes + 4 * program.checksums


def lay_out(
    program: WriteProgram, produced: IntArray, encoded: IntArray, plain: IntArray, shuffled: IntArray
) -> Containers:
    """Lay the containers of some chunks out.

    Parameters
    ----------
    program
        What they are.
    produced, encoded
        int64 ``(c, f)``: bytes that each frame became, and where in the arena.
    plain, shuffled
        int64 ``(c,)``: where in the arena each chunk is, before and after a Blosc container's shuffle.
    """
    if program.blosc is not None:
        return _blosc(program, produced, encoded, plain, shuffled)
    chunks = np.arange(len(plain))
    if program.algorithm is None:
        source, nbytes = shuffled, np.full(len(plain), program.nbytes)
    else:
        source, nbytes = encoded[:, 0], produced[:, 0]
    around = program.around
    lead, tail = around.header_nbytes, around.trailer_nbytes
    end = lead + nbytes
    numbers = [(0 * end + at, value) for at, value in _numbers(program)]
    if tail == _CHECKSUM_AND_SIZE_BYTES:
        numbers.append((end + 4, program.nbytes & 0xFFFFFFFF))
    return Containers(
        nbytes=end + tail,
        copy_chunk=chunks,
        copy_source=source,
        copy_target=np.full(len(plain), lead),
        copy_nbytes=nbytes,
        number_chunk=np.tile(chunks, len(numbers)),
        number_target=np.concatenate([np.zeros(0, np.int64), *(at for at, _ in numbers)]),
        number_value=np.repeat(np.array([value for _, value in numbers], np.int64), len(plain)),
        sum_target=end if around.checksum is not None else None,
    )


def _numbers(program: WriteProgram) -> list[tuple[int, int]]:
    """Return the numbers of 4 bytes that the header is, and where; behind a shorter one, what is written over later."""
    around = program.around
    if around.states_size:
        return [(0, program.nbytes)]
    header = around.header.ljust(4, b"\0") if around.header else b""
    begins = [*range(0, len(header) - 4, 4), len(header) - 4] if header else []
    return [(at, int.from_bytes(header[at : at + 4], "little")) for at in begins]


def _blosc(
    program: WriteProgram, produced: IntArray, encoded: IntArray, plain: IntArray, shuffled: IntArray
) -> Containers:
    form, n, f = program.blosc, len(plain), len(program.frame_at)
    assert form is not None
    blocks = -(-program.nbytes // form.blocksize)
    # A stream that does not shrink is stored as it is; its size says so.
    raw = produced >= program.frame_nbytes
    sizes = np.where(raw, program.frame_nbytes, produced)
    table = BLOSC_HEADER_BYTES + 4 * blocks
    ends = table + np.cumsum(4 + sizes, axis=1)
    begins = ends - sizes - 4
    total = ends[:, -1] if f else np.full(n, table)
    copied: BoolArray = np.ones(n, np.bool_)
    if program.algorithm is not None:
        copied = total >= program.nbytes + BLOSC_HEADER_BYTES
    total = np.where(copied, program.nbytes + BLOSC_HEADER_BYTES, total)
    flags = form.format << 5
    flags |= {"shuffle": _BYTE_SHUFFLE, "bitshuffle": _BIT_SHUFFLE}.get(form.shuffle, 0)
    flags |= _DONT_SPLIT if form.streams == 1 else 0
    every = np.arange(n)
    first = _VERSIONS | (flags | _MEMCPYED * copied) << 16 | form.typesize << 24
    numbers = [
        (every, np.full(n, 4 * i), value)
        for i, value in enumerate((first, np.full(n, program.nbytes), np.full(n, form.blocksize), total))
    ]
    packed = np.flatnonzero(~copied)
    # The first stream of each block.
    starts = begins[packed][:, :: form.streams]
    numbers.append(
        (
            np.repeat(packed, blocks),
            np.tile(BLOSC_HEADER_BYTES + 4 * np.arange(blocks), len(packed)),
            starts.reshape(-1),
        )
    )
    owner = np.repeat(packed, f)
    numbers.append((owner, begins[packed].reshape(-1), sizes[packed].reshape(-1)))
    stream_source = np.where(raw, shuffled[:, None] + program.frame_at, encoded)[packed].reshape(-1)
    whole = np.flatnonzero(copied)
    return Containers(
        nbytes=total,
        copy_chunk=np.concatenate([owner, whole]),
        copy_source=np.concatenate([stream_source, plain[whole]]),
        copy_target=np.concatenate([begins[packed].reshape(-1) + 4, np.full(len(whole), BLOSC_HEADER_BYTES)]),
        copy_nbytes=np.concatenate([sizes[packed].reshape(-1), np.full(len(whole), program.nbytes)]),
        number_chunk=np.concatenate([chunk for chunk, _, _ in numbers]),
        number_target=np.concatenate([at for _, at, _ in numbers]),
        number_value=np.concatenate([value for _, _, value in numbers]),
        sum_target=None,
    )


def states_its_size(frame: npt.NDArray[np.uint8], nbytes: int) -> bool:
    """Return whether a zstd frame begins as RFC 8878 says, and states the size of its content.

    Readers take the size from there, and some take no frame without.
    """
    head = frame[:18].tobytes()
    if len(head) < 6 or head[:4] != _ZSTD_MAGIC or head[4] & 0x0F:
        return False
    single, flag = head[4] & 0x20, head[4] >> 6
    if not single and not flag:
        return False
    at, width = (5 if single else 6), (1, 2, 4, 8)[flag]
    stated = int.from_bytes(head[at : at + width], "little") + (256 if flag == 1 else 0)
    return len(head) >= at + width and stated == nbytes
