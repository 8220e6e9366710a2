"""The ``transpose`` codec: a permutation of the dimensions.

Specification: https://zarr-specs.readthedocs.io/en/latest/v3/codecs/transpose/index.html

======  =====================================================
Zarr    name
======  =====================================================
v3      ``transpose``
v2      none: ``"order": "F"`` becomes the reversing permutation
======  =====================================================

``{"name": "transpose", "configuration": {"order": [1, 0]}}``

In a draft of the specification, the order may also be ``"C"``, as it is, or ``"F"``, reversed. zarrita.py and
zarrita.js write that, and zarrita.js takes a missing one for ``"C"``. ``spelled_out`` understands it in documents.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ..documents.departures import note
from ..errors import MetadataError
from .buffers import need_array
from .codec import ArrayRepresentation, Codec, CodecKind, Operation, Representation

if TYPE_CHECKING:
    from collections.abc import Sequence

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


def spelled_out(codecs: Sequence[Any], ndim: int, json_path: str) -> list[Any]:
    """Return the codecs of a v3 document, with integers where a draft has a name for the order of a transposition.

    Parameters
    ----------
    codecs
        Chain as in the document, which is left as it is. What is malformed is returned, for parsing to refuse.
    ndim
        Number of dimensions of the chain's input.
    json_path
        Location in the document.
    """
    return [_spelled_out(codec, ndim, f"{json_path}[{i}].configuration") for i, codec in enumerate(codecs)]


def _spelled_out(codec: Any, ndim: int, json_path: str) -> Any:
    values = codec.get("configuration") if isinstance(codec, dict) else None
    if not isinstance(values, dict):
        return codec
    changed: dict[str, Any] = {}
    if codec.get("name") == "transpose" and (said := values.get("order", "C")) in ("C", "F"):
        changed["order"] = list(range(ndim)) if said == "C" else list(reversed(range(ndim)))
        spelled = f'"{said}"' if "order" in values else "no order"
        note(f"{spelled} in place of {changed['order']}, as in a draft", f"{json_path}.order")
    elif codec.get("name") == "sharding_indexed" and isinstance(shape := values.get("chunk_shape"), list | tuple):
        for name, inner_ndim in (("codecs", len(shape)), ("index_codecs", len(shape) + 1)):
            if isinstance(inner := values.get(name), list | tuple):
                found = spelled_out(inner, inner_ndim, f"{json_path}.{name}")
                if any(new is not old for new, old in zip(found, inner, strict=True)):
                    changed[name] = found
    return {**codec, "configuration": {**values, **changed}} if changed else codec
