"""Codecs of TIFF files, as the package virtual-tiff writes them into documents.

Source: https://github.com/virtual-zarr/virtual-tiff

======  ====================================================================================================
Zarr    names
======  ====================================================================================================
v3      ``HorizontalDeltaCodec``, ``ChunkyCodec``; ``imagecodecs_delta``, ``imagecodecs_floatpred``
v2      none
======  ====================================================================================================

``{"name": "imagecodecs_floatpred", "configuration": {"shape": [32, 48], "dtype": "<f4", "axis": -1, "dist": 1}}``

``HorizontalDeltaCodec`` (TIFF's predictor 2) stores each element as the difference from the one before in its row, of
the integers that have their bits. ``ChunkyCodec`` is ``bytes`` in Fortran order: the first dimension, that of samples,
runs fastest. The predictors of imagecodecs take an array, but make elements without a byte order.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ..documents.json import quote
from ..errors import MetadataError, UnsupportedError
from ..installing import COMMANDS
from ..reasons import reason_of
from .buffers import need_array
from .bytes import BytesCodec, Endian
from .codec import ArrayRepresentation, BytesRepresentation, Codec, CodecKind, Operation, Representation
from .numcodecs_adapter import is_known, make

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..documents.configuration import Configuration


@dataclass(frozen=True)
class HorizontalDeltaCodec(Codec):
    """Differences along the last dimension."""

    kind: ClassVar[CodecKind] = "array_to_array"

    @classmethod
    def from_v3(cls, configuration: Configuration) -> HorizontalDeltaCodec:
        """Parse a v3 configuration, which must be empty."""
        configuration.finish()
        return cls()

    @property
    def label(self) -> str:
        """``HorizontalDeltaCodec``."""
        return "HorizontalDeltaCodec"

    def to_json(self) -> dict[str, Any]:
        """Return the v3 object."""
        return {"name": "HorizontalDeltaCodec"}

    def encoded(self, decoded: Representation) -> ArrayRepresentation:
        """Return the same array."""
        array = need_array(decoded, self.label)
        if array.dtype.kind not in "iuf" or array.dtype.itemsize > 8 or not array.shape:
            raise MetadataError(f"{self.label} takes rows of numbers of up to 64 bits, not {quote(str(array.dtype))}")
        return array

    def decode(self, encoded: Any, decoded: Representation) -> Any:
        """Return the sums of the differences."""
        array = need_array(decoded, self.label)
        bits = _bits(encoded)
        return np.cumsum(bits, axis=-1, dtype=bits.dtype).view(array.dtype)

    def encode(self, decoded: Any, representation: Representation) -> Any:
        """Return the differences."""
        array = need_array(representation, self.label)
        bits = _bits(decoded)
        return np.diff(bits, axis=-1, prepend=np.zeros_like(bits[..., :1])).view(array.dtype)


def _bits(array: Any) -> np.ndarray[Any, Any]:
    contiguous = np.ascontiguousarray(array)
    return contiguous.view(f"u{contiguous.dtype.itemsize}")


@dataclass(frozen=True)
class ChunkyCodec(Codec):
    """Elements in Fortran order and a given byte order.

    Attributes
    ----------
    endian
        Byte order of the stored elements.
    """

    kind: ClassVar[CodecKind] = "array_to_bytes"
    is_elementwise: ClassVar[bool] = True
    endian: Endian = "little"

    @classmethod
    def from_v3(cls, configuration: Configuration) -> ChunkyCodec:
        """Parse a v3 configuration."""
        endian = configuration.string("endian", ("little", "big"), "little")
        configuration.finish()
        return cls("big" if endian == "big" else "little")

    @property
    def label(self) -> str:
        """``ChunkyCodec`` or ``ChunkyCodec(big)``."""
        return "ChunkyCodec(big)" if self.endian == "big" else "ChunkyCodec"

    def to_json(self) -> dict[str, Any]:
        """Return the v3 object."""
        return {"name": "ChunkyCodec", "configuration": {"endian": self.endian}}

    def _reversed(self, decoded: Representation) -> ArrayRepresentation:
        array = need_array(decoded, self.label)
        return replace(array, shape=array.shape[::-1])

    def encoded(self, decoded: Representation) -> BytesRepresentation:
        """Return the exact size in bytes."""
        array = self._reversed(decoded)
        if array.dtype.kind == "V":
            # TIFF predicts a sample from the same one of the pixel before, and this document, from another one.
            raise MetadataError(f"{self.label} cannot follow a predictor: they disagree on where samples are")
        return BytesCodec(self.endian).encoded(array)

    def decode(self, encoded: Any, decoded: Representation) -> Any:
        """Return the elements."""
        return BytesCodec(self.endian).decode(encoded, self._reversed(decoded)).T

    def encode(self, decoded: Any, representation: Representation) -> Any:
        """Return the bytes of the elements."""
        return BytesCodec(self.endian).encode(np.transpose(decoded), self._reversed(representation))

    def operations(self, decoded: Representation) -> tuple[Operation, ...] | None:
        """Return a ``transpose`` and a ``bytes`` operation."""
        array = self._reversed(decoded)
        steps = BytesCodec(self.endian).operations(array)
        order = tuple(reversed(range(len(array.shape))))
        return None if steps is None else (Operation("transpose", order), *steps)


@dataclass(frozen=True)
class _Predictor(Codec):
    """A predictor of imagecodecs.

    What it makes are elements without a byte order: no codec after it may swap their bytes.

    Attributes
    ----------
    configuration
        Parameters of the codec in numcodecs, without ``id``.
    """

    kind: ClassVar[CodecKind] = "array_to_array"
    id: ClassVar[str]
    configuration: Mapping[str, Any] = field(hash=False)

    @classmethod
    def from_v3(cls, configuration: Configuration) -> _Predictor:
        """Parse a v3 configuration."""
        if not is_known(cls.id):
            raise UnsupportedError(
                f"the codec {quote(cls.id)} is not known: {COMMANDS['imagecodecs']}", json_path=configuration.json_path
            )
        values = {
            "shape": list(configuration.integers("shape", 1, 2**31 - 1)),
            "dtype": configuration.dtype("dtype"),
            "axis": configuration.integer("axis", -64, 63, -1),
            "dist": configuration.integer("dist", 1, 2**31 - 1, 1),
        }
        configuration.finish()
        return cls(values)

    @property
    def label(self) -> str:
        """For example ``imagecodecs_floatpred``."""
        return self.id

    def to_json(self) -> dict[str, Any]:
        """Return the v3 object."""
        return {"name": self.id, "configuration": dict(self.configuration)}

    def encoded(self, decoded: Representation) -> ArrayRepresentation:
        """Return an array of elements of as many bytes."""
        array = need_array(decoded, self.label)
        shape, dtype = tuple(self.configuration["shape"]), np.dtype(self.configuration["dtype"])
        if array.shape != shape or array.dtype != dtype.newbyteorder("="):
            raise MetadataError(
                f"{self.label} is configured for {shape} of {dtype}, but got {array.shape} of "
                f"{quote(str(array.dtype))}",
                json_path="$.configuration",
            )
        return ArrayRepresentation(shape, np.dtype(f"V{dtype.itemsize}"))

    def _call(self, name: str, data: Any) -> Any:
        try:
            return getattr(make(self.id, self.configuration), name)(data)
        # Third-party code may raise anything.
        except Exception as error:
            raise ValueError(f"{self.label}: {reason_of(error)}") from error

    def decode(self, encoded: Any, decoded: Representation) -> Any:
        """Return the array before the predictor."""
        array = need_array(decoded, self.label)
        found = np.asarray(self._call("decode", np.asarray(encoded).tobytes()))
        return found.astype(array.dtype, copy=False).reshape(array.shape)

    def encode(self, decoded: Any, representation: Representation) -> Any:
        """Return the elements after the predictor."""
        made = self.encoded(representation)
        stated = np.ascontiguousarray(decoded, np.dtype(self.configuration["dtype"]))
        return np.frombuffer(self._call("encode", stated), made.dtype).reshape(made.shape)


class DeltaPredictor(_Predictor):
    """``imagecodecs_delta``."""

    id = "imagecodecs_delta"


class FloatPredictor(_Predictor):
    """``imagecodecs_floatpred``."""

    id = "imagecodecs_floatpred"
