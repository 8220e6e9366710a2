"""A native codec that gzarr does not have: two letters, then one LZ4 block. Its Python functions are never called."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from gzarr_kernels import status as S
from gzarr_kernels.frames import put_frame
from gzarr_kernels.jit import by_address
from gzarr_kernels.lz4 import lz4_block, lz4_decompress
from gzarr_kernels.memory import i64, u8
from gzarr_kernels.operations import OPERATIONS, Container
from gzarr_kernels.operations import Operation as Row
from gzarr_kernels.slots import context as C
from gzarr_kernels.slots.frames import LZ4, REFUSED, UNCHECKED

from gzarr.codecs.buffers import compressed, need_bytes
from gzarr.codecs.codec import BytesRepresentation, Codec, CodecKind, EncodingStep, Operation, Representation

if TYPE_CHECKING:
    from gzarr.documents.configuration import Configuration

NAME: Final = "made_up"
LETTERS: Final = b"MU"
_M, _U = LETTERS

#: Its row, as it would be in ``gzarr_kernels.operations``.
ROW: Final = Row(
    module=__name__,
    decoder=OPERATIONS["lz4"].decoder,
    encoder=OPERATIONS["lz4"].encoder,
    algorithm="lz4",
    container=Container(header=LETTERS),
)


@by_address(6)
def made_up_decode(context: int, source: int, nbytes: int, target: int, size: int, parameter: int) -> int:
    b = u8(source)
    if nbytes < 3 or b[0] != _M or b[1] != _U:
        i64(context)[C.DETAIL] = nbytes
        return S.CORRUPT
    got = lz4_decompress(source + 2, target, nbytes - 2, size)
    i64(context)[C.DETAIL] = got
    return S.OK if got == size else S.CORRUPT


@by_address(6)
def made_up_encode(context: int, source: int, nbytes: int, target: int, capacity: int, parameters: int) -> int:
    b = u8(target)
    b[0] = _M
    b[1] = _U
    size = lz4_block(context, source, nbytes, target + 2, capacity - 2, i64(parameters)[0])
    return size + 2 if size > 0 else 0


@by_address(9)
def made_up_frames(
    context: int, address: int, at: int, nbytes: int, size: int, chunk: int, columns: int, capacity: int, frame: int
) -> int:
    b = u8(address + at)
    if nbytes < 3 or b[0] != _M or b[1] != _U:
        return REFUSED
    put_frame(columns, capacity, frame, chunk, LZ4, at + 2, nbytes - 2, 0, size, UNCHECKED, 0)
    return 1


@dataclass(frozen=True)
class MadeUpCodec(Codec):
    """See the module."""

    kind: ClassVar[CodecKind] = "bytes_to_bytes"

    @classmethod
    def from_v3(cls, configuration: Configuration) -> MadeUpCodec:
        configuration.finish()
        return cls()

    @property
    def label(self) -> str:
        return NAME

    def to_json(self) -> dict[str, Any]:
        return {"name": NAME}

    def encoded(self, decoded: Representation) -> BytesRepresentation:
        return compressed(need_bytes(decoded, NAME))

    def decode(self, encoded: Any, decoded: Representation) -> Any:
        raise AssertionError("decoded by Python")

    def encode(self, decoded: Any, representation: Representation) -> Any:
        raise AssertionError("encoded by Python")

    def operations(self, decoded: Representation) -> tuple[Operation, ...] | None:
        return (Operation(NAME),)

    def encoding(self, decoded: Representation, nbytes: int) -> EncodingStep | None:
        return EncodingStep(NAME, nbytes + nbytes // 255 + 18, (1,))
