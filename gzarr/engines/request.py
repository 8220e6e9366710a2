"""What an engine is asked to do: one read, all of it in columns."""

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
#: What the host decodes before a device's decoder sees it.
Verify: TypeAlias = Literal["none", "cpu"]

#: ``Sources.nbytes`` of a chunk that is the whole value of its key.
WHOLE = -1
#: ``Sources.nbytes`` of a chunk that a shard index says is absent.
ABSENT = -2


@dataclass(frozen=True, slots=True, eq=False)
class Sources:
    """Where the encoded bytes of each chunk of a plan are.

    Attributes
    ----------
    keys
        Store keys from the store's root, each once.
    key_index
        int64 ``(n,)``: chunk ``i`` is in ``keys[key_index[i]]``.
    offset, nbytes
        int64 ``(n,)``: byte range within the value; ``nbytes`` is :data:`WHOLE` (then ``offset`` is 0) or
        :data:`ABSENT` where it is not a range.
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
        Path of the array, for messages (``"/"`` for the root).
    store
        Where the keys are.
    codecs
        Chain of a planned chunk in encoding order (of an inner chunk, in a sharded array).
    chunk
        What the chain decodes to: shape and dtype of a planned chunk, dimensions in the array's order.
    plan, sources
        Columns of equal length ``n``.
    outputs
        Views with the plan's ``k`` dimensions, one an output (point selections: the result array as it is).
    field
        Name of the field of a structured dtype to place, or None for whole elements; ``outputs`` have its dtype.
    fill_value
        What the elements of an absent chunk are: a scalar of ``chunk.dtype``.
    missing
        Whether an absent chunk is filled or is an error.
    most_encoded
        More encoded bytes than this no encoder makes of a planned chunk; they are not even read.
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
        """Return an error of a kind about one chunk: row ``row`` of the plan."""
        chunk = tuple(self.plan.chunks[row].tolist())
        return kind(reason, node=self.node, chunk=chunk, key=self.sources.keys[int(self.sources.key_index[row])])
