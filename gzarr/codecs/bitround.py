"""The ``bitround`` codec: numbers rounded to fewer bits, so that they compress better; decoding does nothing.

Specification: https://github.com/zarr-developers/zarr-extensions/tree/main/codecs/bitround

======  ===============================================================================================
Zarr    names
======  ===============================================================================================
v3      ``bitround``, ``numcodecs.bitround``, ``https://codec.zarrs.dev/array_to_bytes/bitround``
v2      ``bitround``: a filter of numcodecs (:mod:`.numcodecs_adapter`)
======  ===============================================================================================

``{"name": "bitround", "configuration": {"keepbits": 10}}``
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from ..documents.json import quote
from ..dtypes.properties import bits, component, kind_of, mantissa_bits
from ..errors import MetadataError
from .buffers import need_array
from .codec import ArrayRepresentation, Codec, CodecKind, EncodingStep, Keeping, Operation, Representation

if TYPE_CHECKING:
    from ..documents.configuration import Configuration


@dataclass(frozen=True)
class BitroundCodec(Codec):
    """Round to nearest, ties to even.

    Attributes
    ----------
    keepbits
        Number of mantissa bits to keep; for integers, number of bits from the highest set bit.
    name
        Name in new documents: the given one, because zarr-python only knows that of numcodecs.
    """

    kind: ClassVar[CodecKind] = "array_to_array"
    is_elementwise: ClassVar[bool] = True
    keepbits: int
    name: str = field(default="bitround", compare=False)

    @classmethod
    def from_v3(cls, configuration: Configuration) -> BitroundCodec:
        """Parse a v3 configuration."""
        # The specification requires at least 1, but numcodecs accepts 0, and only the encoder depends on it.
        codec = cls(configuration.integer("keepbits", 0, 64))
        configuration.finish()
        return codec

    def named(self, name: str) -> BitroundCodec:
        """Return the codec with another :attr:`name`."""
        return replace(self, name=name)

    @property
    def label(self) -> str:
        """``bitround``."""
        return "bitround"

    def to_json(self) -> dict[str, Any]:
        """Return the v3 object."""
        return {"name": self.name, "configuration": {"keepbits": self.keepbits}}

    def encoded(self, decoded: Representation) -> ArrayRepresentation:
        """Return the same array."""
        array = need_array(decoded, self.label)
        if kind_of(array.dtype) not in "iumMfc" or bits(component(array.dtype)) % 8:
            raise MetadataError(f"bitround takes numbers of whole bytes, not elements of {quote(str(array.dtype))}")
        return replace(array, as_integers=True)

    def keeps(self, decoded: Representation) -> Keeping:
        """Return that rounded numbers stay."""
        return "own"

    def decode(self, encoded: Any, decoded: Representation) -> Any:
        """Return the array unchanged."""
        return encoded

    def encode(self, decoded: Any, representation: Representation) -> Any:
        """Return the rounded array."""
        array = np.ascontiguousarray(decoded)
        part = component(array.dtype)
        raw = array.reshape(-1).view(f"u{part.itemsize}")
        mantissa = mantissa_bits(part)
        if mantissa is None:
            rounded = _round(raw, _bit_length(raw) - self.keepbits)
        else:
            rounded = _round(raw, np.full(raw.shape, mantissa - self.keepbits))
            # NaNs are kept: rounding their payload could give an infinity or change the sign.
            rounded = np.where(np.isnan(raw.view(part)), raw, rounded)
        return rounded.view(array.dtype).reshape(np.shape(decoded))

    def operations(self, decoded: Representation) -> tuple[Operation, ...] | None:
        """Nothing to do."""
        return ()

    def encoding(self, decoded: Representation, nbytes: int) -> EncodingStep | None:
        """One ``bitround`` step for NumPy's floating-point numbers."""
        part = component(need_array(decoded, self.label).dtype)
        if part.kind != "f" or part.isbuiltin != 1:
            return None
        infinity = int(np.array(np.inf, part).view(f"u{part.itemsize}"))
        return rounding(part, self.keepbits, infinity, nbytes)


def rounding(dtype: np.dtype[Any], keepbits: int, most: int, nbytes: int) -> EncodingStep | None:
    """Return the native step that rounds off bits of floating-point numbers, or None if it is not compiled.

    Parameters
    ----------
    dtype
        Data type of the numbers.
    keepbits
        Number of mantissa bits to keep.
    most
        Largest number that is rounded, without its sign, as an integer of the same bits.
    nbytes
        Size of the numbers in bytes.
    """
    dropped = (mantissa_bits(dtype) or 0) - keepbits
    if dropped < 1 or dtype.itemsize not in (2, 4, 8):
        return None
    return EncodingStep("bitround", nbytes, (dtype.itemsize, dropped, most))


def _bit_length(raw: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    length = np.zeros(raw.shape, np.int64)
    rest = raw.astype(np.uint64)
    for step in (32, 16, 8, 4, 2, 1):
        large = rest >= np.uint64(1 << step)
        length[large] += step
        rest[large] >>= np.uint64(step)
    return length + (rest > 0)


def _round(raw: npt.NDArray[Any], dropped: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """Round off the lowest ``dropped`` bits of each number; round down where rounding up would overflow."""
    wide = raw.astype(np.uint64)
    drop = np.maximum(dropped, 0).astype(np.uint64)
    one = np.uint64(1)
    # Just below half of the last kept bit, plus the rest of the half if that bit is set.
    add = np.where(drop > 0, (one << drop >> one) - one + (wide >> drop & one), 0).astype(np.uint64)
    largest = np.uint64(np.iinfo(raw.dtype).max)
    total = np.where(wide > largest - add, largest, wide + add)
    return (total >> drop << drop).astype(raw.dtype)
