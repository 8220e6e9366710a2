"""The codecs ``reshape`` and ``zarrs.squeeze``: the same elements in the same order, with other dimensions.

Specifications: https://github.com/zarr-developers/zarr-extensions/tree/main/codecs/reshape and
https://codec.zarrs.dev/array_to_array/squeeze

======  ==============================================
Zarr    names
======  ==============================================
v3      ``reshape``; ``zarrs.squeeze``
v2      none
======  ==============================================

``{"name": "reshape", "configuration": {"shape": [[0, 1], -1, 3]}}``: the first dimension is the product of the input's
first two, the last one is 3, and the middle one takes the remaining elements.

``{"name": "zarrs.squeeze"}``: all dimensions of size 1 are removed.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ..documents.configuration import is_integer, whole_items
from ..errors import MetadataError
from .buffers import need_array
from .codec import ArrayRepresentation, Codec, CodecKind, Representation

if TYPE_CHECKING:
    from ..documents.configuration import Configuration

_MAX_DIMENSIONS = 64  # NumPy's


class _Reshaping(Codec):
    """Common part of both codecs; only :meth:`encoded` differs."""

    kind: ClassVar[CodecKind] = "array_to_array"
    is_elementwise: ClassVar[bool] = True

    def decode(self, encoded: Any, decoded: Representation) -> Any:
        """Return a view in the array's shape."""
        return np.reshape(encoded, need_array(decoded, self.label).shape)

    def encode(self, decoded: Any, representation: Representation) -> Any:
        """Return the elements in the new shape."""
        array = need_array(representation, self.label)
        encoded = self.encoded(array)
        assert isinstance(encoded, ArrayRepresentation)
        return np.reshape(decoded, encoded.shape)


@dataclass(frozen=True)
class ReshapeCodec(_Reshaping):
    """A new shape.

    Attributes
    ----------
    shape
        For each dimension of the output: its size, the input dimensions whose product it is, or -1 (at most once) for
        the remaining elements.
    """

    shape: tuple[int | tuple[int, ...], ...]

    @classmethod
    def from_v3(cls, configuration: Configuration) -> ReshapeCodec:
        """Parse a v3 configuration."""
        values = configuration.any("shape")
        configuration.finish()
        expected = "an array of sizes, arrays of input dimensions, and at most one -1,"
        if not isinstance(values, list | tuple) or len(values) > _MAX_DIMENSIONS:
            raise configuration.error("shape", expected)
        at = f"{configuration.json_path}.shape"
        values = [
            whole_items(value, f"{at}[{i}]") if isinstance(value, list | tuple) else value
            for i, value in enumerate(whole_items(values, at))
        ]
        configuration.values["shape"] = values
        shape: list[int | tuple[int, ...]] = []
        for value in values:
            if isinstance(value, list | tuple) and all(is_integer(d) and 0 <= d < _MAX_DIMENSIONS for d in value):
                shape.append(tuple(value))
            elif is_integer(value) and (value == -1 or 0 < value < 2**63):
                shape.append(value)
            else:
                raise configuration.error("shape", expected)
        if shape.count(-1) > 1:
            raise configuration.error("shape", expected)
        dimensions = [d for part in shape if isinstance(part, tuple) for d in part]
        if any(a >= b for a, b in itertools.pairwise(dimensions)):
            raise configuration.error("shape", "input dimensions in increasing order (it never transposes)")
        return cls(tuple(shape))

    @property
    def label(self) -> str:
        """For example ``reshape([0, 1], -1, 3)``."""
        return f"reshape({', '.join(str(list(part) if isinstance(part, tuple) else part) for part in self.shape)})"

    def to_json(self) -> dict[str, Any]:
        """Return the v3 object."""
        shape = [list(part) if isinstance(part, tuple) else part for part in self.shape]
        return {"name": "reshape", "configuration": {"shape": shape}}

    def _error(self, reason: str, i: int | None = None) -> MetadataError:
        at = "$.configuration.shape" if i is None else f"$.configuration.shape[{i}]"
        return MetadataError(f"{self.label}: {reason}", json_path=at)

    def encoded(self, decoded: Representation) -> ArrayRepresentation:
        """Return the new shape."""
        array = need_array(decoded, self.label)
        count = math.prod(array.shape)
        sizes: list[int] = []
        for i, part in enumerate(self.shape):
            if isinstance(part, tuple):
                if part and part[-1] >= len(array.shape):
                    raise self._error(f"there is no dimension {part[-1]} in a chunk of {array.shape}", i)
                sizes.append(math.prod(array.shape[d] for d in part))
            else:
                sizes.append(part)
        if -1 in self.shape:
            i = self.shape.index(-1)
            rest = math.prod(sizes[:i] + sizes[i + 1 :])
            sizes[i] = count // rest if rest else 0
        if math.prod(sizes) != count:
            raise self._error(f"a chunk of {array.shape} has {count} elements, which do not fit {tuple(sizes)}")
        for i, part in enumerate(self.shape):
            if not isinstance(part, tuple) or not part:
                continue
            before, behind = math.prod(array.shape[: part[0]]), math.prod(array.shape[part[-1] + 1 :])
            if math.prod(sizes[:i]) != before or math.prod(sizes[i + 1 :]) != behind:
                raise self._error(
                    f"dimensions {list(part)} of a chunk of {array.shape} are not dimension {i} of {tuple(sizes)}", i
                )
        return replace(array, shape=tuple(sizes))


@dataclass(frozen=True)
class SqueezeCodec(_Reshaping):
    """A shape without dimensions of size 1."""

    @classmethod
    def from_v3(cls, configuration: Configuration) -> SqueezeCodec:
        """Parse a v3 configuration, which must be empty."""
        configuration.finish()
        return cls()

    @property
    def label(self) -> str:
        """``zarrs.squeeze``."""
        return "zarrs.squeeze"

    def to_json(self) -> dict[str, Any]:
        """Return the v3 object."""
        return {"name": "zarrs.squeeze"}

    def encoded(self, decoded: Representation) -> ArrayRepresentation:
        """Return the shape without ones."""
        array = need_array(decoded, self.label)
        return replace(array, shape=tuple(size for size in array.shape if size != 1))
