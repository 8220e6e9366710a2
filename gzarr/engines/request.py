"""A read as an engine takes it, in columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import numpy.typing as npt

    from ..codecs.codec import ArrayRepresentation, Codec
    from ..errors import ChunkError
    from ..plan.planner import Plan
    from ..stores.base import ReadableStore

    E = TypeVar("E", bound=ChunkError)

Missing: TypeAlias = Literal["fill", "error"]
#: Whether the host checks frames by decoding them before a device's decoder sees them.
Verify: TypeAlias = Literal["none", "cpu"]

#: ``Sources.nbytes`` of a chunk that is the whole value of its key.
WHOLE = -1
#: ``Sources.nbytes`` of a chunk that is absent according to a shard's index.
ABSENT = -2


@dataclass(frozen=True, slots=True, eq=False)
class Sources:
    """Location of the encoded bytes of each chunk of a plan.

    Attributes
    ----------
    keys
        Store keys, relative to the store's root, each once.
    key_index
        int64 ``(n,)``: chunk ``i`` is in the value of ``keys[key_index[i]]``.
    offset, nbytes
        int64 ``(n,)``, byte range in the value. Where it is not a range, ``nbytes`` is :data:`WHOLE` (and ``offset`` 0)
        or :data:`ABSENT`.
    """

    keys: Sequence[str]
    key_index: npt.NDArray[np.int64]
    offset: npt.NDArray[np.int64]
    nbytes: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class ReadRequest:
    """One read.

    Attributes
    ----------
    node
        Path of the array, for error messages (``"/"`` for the root).
    store
        Store of the keys.
    codecs
        Codec chain of a planned chunk (of an inner chunk, in a sharded array), in encoding order.
    chunk
        Shape and dtype of a decoded planned chunk, dimensions in the array's order.
    plan, sources
        The planned chunks and their locations, columns of equal length ``n``.
    outputs
        One view per output, with the plan's ``k`` dimensions; for point selections, the result array as it is.
    field
        Name of the field of a structured dtype to place, or None for whole elements; ``outputs`` have its dtype.
    fill_value
        Value of the elements of an absent chunk, a scalar of ``chunk.dtype``.
    missing
        Whether an absent chunk is filled or is an error.
    most_encoded
        Largest encoded size of a planned chunk by any encoder, in bytes; larger values are not even read.
    """

    node: str
    store: ReadableStore
    codecs: tuple[Codec, ...]
    chunk: ArrayRepresentation
    plan: Plan
    sources: Sources
    outputs: tuple[npt.NDArray[Any], ...]
    field: str | None
    fill_value: Any
    missing: Missing
    most_encoded: int

    def failure(self, kind: type[E], row: int, reason: str) -> E:
        """Return an error of class ``kind`` for row ``row`` of the plan."""
        chunk = tuple(self.plan.chunks[row].tolist())
        return kind(reason, node=self.node, chunk=chunk, key=self.sources.keys[int(self.sources.key_index[row])])
