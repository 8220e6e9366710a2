"""The ``transpose`` codec: a permutation of the dimensions.

Specification: https://zarr-specs.readthedocs.io/en/latest/v3/codecs/transpose/index.html

======  =====================================================
Zarr    name
======  =====================================================
v3      ``transpose``
v2      none: ``"order": "F"`` becomes the reversing permutation
======  =====================================================

``{"name": "transpose", "configuration": {"order": [1, 0]}}``
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ..errors import MetadataError
from .buffers import need_array
from .codec import ArrayRepresentation, Codec, CodecKind, Operation, Representation

if TYPE_CHECKING:
    from ..documents.configuration import Configuration


@dataclass(frozen=True)
class TransposeCodec(Codec):
    """Dimension ``i`` of the encoded array is dimension ``order[i]`` of the decoded one.

    Attributes
    ----------
    order
        Permutation of ``0 … ndim - 1``.
    """

    kind: ClassVar[CodecKind] = "array_to_array"
    is_elementwise: ClassVar[bool] = True
    order: tuple[int, ...]

    @classmethod
    def from_v3(cls, configuration: Configuration) -> TransposeCodec:
        """Parse a v3 configuration."""
        order = configuration.integers("order", 0, 63)
        configuration.finish()
        if sorted(order) != list(range(len(order))):
            raise configuration.error("order", "a permutation of 0, 1, … (each dimension once)")
        return cls(order)

    @property
    def label(self) -> str:
        """For example ``transpose(1, 0)``."""
        return f"transpose({', '.join(map(str, self.order))})"

    def to_json(self) -> dict[str, Any]:
        """Return the v3 object."""
        return {"name": "transpose", "configuration": {"order": list(self.order)}}

    def encoded(self, decoded: Representation) -> ArrayRepresentation:
        """Return the permuted shape."""
        array = need_array(decoded, self.label)
        if len(array.shape) != len(self.order):
            raise MetadataError(
                f'"order" has {len(self.order)} entries, but the chunk has {len(array.shape)} dimensions',
                json_path="$.configuration.order",
            )
        return replace(array, shape=tuple(array.shape[i] for i in self.order))

    def decode(self, encoded: Any, decoded: Representation) -> Any:
        """Return a view with the dimensions in the array's order."""
        inverse = [0] * len(self.order)
        for i, dimension in enumerate(self.order):
            inverse[dimension] = i
        return np.transpose(encoded, inverse)

    def encode(self, decoded: Any, representation: Representation) -> Any:
        """Return a C-contiguous copy with permuted dimensions."""
        return np.ascontiguousarray(np.transpose(decoded, self.order))

    def operations(self, decoded: Representation) -> tuple[Operation, ...] | None:
        """One ``transpose`` operation."""
        return (Operation("transpose", self.order),)
