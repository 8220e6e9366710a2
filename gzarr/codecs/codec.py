"""Interface of a codec: a frozen description. Engines decide how to run its operations.

A chain is held in encoding order: array→array codecs, one array→bytes codec, bytes→bytes codecs
(https://zarr-specs.readthedocs.io/en/latest/v3/core/index.html#codecs). ``encoded`` walks it forward to give the
representation between two codecs; decoding runs it backward.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from gzarr_kernels.slots.conversion import conversion

if TYPE_CHECKING:
    import numpy as np

__all__ = ["ArrayRepresentation", "BytesRepresentation", "Codec", "EncodingStep", "Operation"]

CodecKind: TypeAlias = Literal["array_to_array", "array_to_bytes", "bytes_to_bytes"]
Keeping: TypeAlias = Literal["all", "own", "most", "none"]


@dataclass(frozen=True, slots=True)
class ArrayRepresentation:
    """A chunk as an array.

    Attributes
    ----------
    shape
        Shape in elements.
    dtype
        Data type of the elements, always in native byte order.
    as_integers
        Whether numcodecs may have passed floating-point numbers on as integers of the same bits, as its ``bitround``
        does. Only codecs that state the type of their elements in the chunk, such as ``pcodec``, can tell.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    as_integers: bool = field(default=False, compare=False)

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class BytesRepresentation:
    """A chunk as bytes.

    Attributes
    ----------
    nbytes
        Size, if the chain fixes it, else None (after a compressor).
    limit_nbytes
        Limit of a size that is not fixed, so that a decoder of untrusted bytes knows when to stop; None if there is no
        limit (strings of any length).
    """

    nbytes: int | None
    limit_nbytes: int | None = None


Representation: TypeAlias = ArrayRepresentation | BytesRepresentation


@dataclass(frozen=True, slots=True)
class Operation:
    """One native decoding step.

    Attributes
    ----------
    name
        Name of the operation.
    params
        Its parameters, integers.

    Notes
    -----
    Operations, and their parameters:

    - bytes: ``(swap,)``: width in bytes of the units to byte-swap; 0 or 1 means no swap
    - transpose: ``order`` of the codec, one integer per dimension
    - convert: number of a conversion of numbers (``gzarr_kernels.slots.conversion``), bytes of a stored number
    - zstd: none
    - gzip, zlib: none
    - lz4: none (numcodecs' framing: 4 bytes little-endian size, then one LZ4 block)
    - snappy: none (one raw stream)
    - deflate: none (one raw stream, RFC 1951)
    - gdeflate: none (one nvCOMP frame; devices only)
    - blosc: none (everything is in the container's header)
    - shuffle: ``(elementsize,)`` (numcodecs' byte shuffle filter)
    - line, delta: as in ``gzarr_kernels.slots.arithmetic``
    - packbits: as in ``gzarr_kernels.slots.packed_bits``
    - cast: as in ``gzarr_kernels.slots.casting``
    - crc32c, fletcher32: none (checksum in the last 4 bytes)
    """

    name: str
    params: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class EncodingStep:
    """One native encoding step.

    Attributes
    ----------
    name
        Name of the operation that decodes the result.
    most_nbytes
        Upper limit of the encoded size, in bytes.
    parameters
        Parameters of the operation's encoder (``gzarr_kernels``), at most five integers.
    search
        Name and level (for LZ4, acceleration) of the operation that searches for repetitions, if its row has
        ``candidates`` (``gzarr_kernels.operations``). For a container, the operation of its compressor.
    parts
        Names of other encoders that the operation needs: operations, or ``gzarr_kernels.operations.PARTS``.
    way
        Search method, a number of ``gzarr_kernels.searches``; 0 for the default of the level.
    """

    name: str
    most_nbytes: int
    parameters: tuple[int, ...] = ()
    search: tuple[str, int] | None = None
    parts: tuple[str, ...] = ()
    way: int = 0


def convert(stored: np.dtype[Any], dtype: np.dtype[Any]) -> tuple[Operation, ...] | None:
    """Return the native step that converts stored numbers to a data type as C does, or None if it is not compiled."""
    known = stored.isbuiltin == dtype.isbuiltin == 1 and stored.isnative and dtype.isnative
    number = conversion(stored.str[1:], dtype.str[1:]) if known else None
    return None if number is None else (Operation("convert", (number, stored.itemsize)),)


class Codec(ABC):
    """One codec of a chain. Subclasses are frozen dataclasses."""

    kind: ClassVar[CodecKind]
    #: What an element is that was never written, if elements are texts of any length and the document says nothing.
    empty_text: str | bytes | None = None
    #: Whether each element is encoded without regard to the others, to as many elements, and in some order.
    is_elementwise: ClassVar[bool] = False

    @property
    @abstractmethod
    def label(self) -> str:
        """Short text for ``decode_path``, e.g. ``blosc(lz4, shuffle 4)``."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Return the codec as a Zarr v3 metadata object, ``{"name": …, "configuration": {…}}``."""

    @abstractmethod
    def encoded(self, decoded: Representation) -> Representation:
        """Return the representation of ``decoded`` once encoded.

        Raises
        ------
        MetadataError
            If the codec cannot apply to ``decoded``; ``json_path`` is relative to the codec.
        """

    @abstractmethod
    def decode(self, encoded: Any, decoded: Representation) -> Any:
        """Decode one chunk in host memory.

        Parameters
        ----------
        encoded
            Bytes-like (after an array→bytes or bytes→bytes codec) or ``numpy.ndarray`` (after an array→array codec).
        decoded
            Representation of the output. Implementations never produce more bytes than it allows.

        Returns
        -------
        Bytes-like or ``numpy.ndarray``, depending on ``decoded``.

        Raises
        ------
        ValueError
            If the input is corrupt; the engine turns it into :class:`ChunkDecodeError`.
        """

    @abstractmethod
    def encode(self, decoded: Any, representation: Representation) -> Any:
        """Encode one chunk in host memory: the inverse of :meth:`decode`; ``representation`` describes ``decoded``."""

    def keeps(self, decoded: Representation) -> Keeping:
        """Return which elements are the same once they are encoded and decoded.

        Parameters
        ----------
        decoded
            Representation of the input.

        Returns
        -------
        ``"all"``; ``"own"``, those that the codec has decoded; ``"most"`` of these, as far as is known without looking
        at them; or ``"none"``, where nearly each may become another one.
        """
        return "all"

    @property
    def writes(self) -> bool:
        """Whether the codec can encode, too."""
        return True

    def operations(self, decoded: Representation) -> tuple[Operation, ...] | None:
        """Return the native decoding steps (usually one), or None if only :meth:`decode` can decode it.

        Parameters
        ----------
        decoded
            Representation of the output.
        """
        return None

    @property
    def has_checksum(self) -> bool:
        """Whether decoding finds any change of a few encoded bytes, by a checksum or a hash of the data."""
        return False

    def encoding(self, decoded: Representation, nbytes: int) -> EncodingStep | None:
        """Return the native encoding step, or None if only :meth:`encode` can encode.

        Parameters
        ----------
        decoded
            Representation of the input. Elements of arrays are in native byte order.
        nbytes
            Size of the input in bytes, at most.
        """
        return None
