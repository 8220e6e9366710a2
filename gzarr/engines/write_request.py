"""A write as an engine takes it, in columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import ChunkError, ChunkWriteError, with_errno
from ..reasons import reason_of
from ..stores.buffers import store_value

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    import numpy.typing as npt
    from typing_extensions import Buffer

    from ..codecs.codec import ArrayRepresentation, Codec
    from ..plan.keys import ChunkKeys
    from ..plan.planner import Plan
    from ..stores.base import Store
    from .access.access import Access
    from .access.shard import Shard

E = TypeVar("E", bound=ChunkError)


@dataclass(frozen=True, slots=True, eq=False)
class WriteRequest:
    """A write of ``n`` planned chunks into ``s`` stored values.

    A stored value is the value of one key: a chunk, or a shard that contains some of the planned (inner) chunks.

    Attributes
    ----------
    node
        Path of the array with a leading slash, for error messages.
    access
        Access to the store to write to, and to read from where a stored value is partly changed.
    shard
        Layout of the shards around the planned chunks; None if each planned chunk is a stored value.
    codecs
        Codec chain of a planned chunk, in encoding order.
    chunk
        Shape and dtype of a planned chunk, dimensions in the array's order.
    shape
        Shape of the array, in elements.
    plan
        As for reading, but its ``target`` columns say where in the inputs elements come from. Where pieces overlap, the
        later one wins.
    keys
        Keys of the ``s`` stored values.
    value_of
        int64 ``(n,)``, stored value of each planned chunk.
    inputs
        Arrays to write, of the array's dtype (or the field's) in native byte order, with the plan's dimensions and any
        strides (0 where broadcast); for points, arrays of the selection's shape.
    field
        Name of the field of a structured dtype to write, or None for whole elements.
    fill_value
        Value of elements that were never written; None for zeros.
    whole
        bool ``(n,)``: whether the write covers all of the chunk that lies within the array, so that its old content
        does not matter.
    beyond
        bool ``(s,)``: whether a stored value reaches beyond the array. Others may have appended elements there since
        the array was opened: those are kept; where nothing is stored, the fill value is used.
    is_current
        Function to call with the locks of stored values held; returns whether nobody can have appended anything.
    write_empty_chunks
        Whether chunks that hold only the fill value are stored; otherwise their keys are erased, or they are left out
        of their shard.
    most_encoded
        Largest encoded size of a planned chunk by any encoder, in bytes; larger old ones are not even read.
    level_is_free
        Whether compressors may deviate from the search of their level (:mod:`gzarr.engines.cpu.effort`).
    """

    node: str
    access: Access
    shard: Shard | None
    codecs: tuple[Codec, ...]
    chunk: ArrayRepresentation
    shape: tuple[int, ...]
    plan: Plan
    keys: ChunkKeys
    value_of: npt.NDArray[np.int64]
    inputs: tuple[Any, ...]
    field: str | None
    fill_value: Any
    whole: npt.NDArray[np.bool_]
    beyond: npt.NDArray[np.bool_]
    is_current: Callable[[], bool]
    write_empty_chunks: bool
    most_encoded: int
    level_is_free: bool

    @property
    def store(self) -> Store:
        """The store."""
        store: Store = self.access.store
        return store

    def failure(self, kind: type[E], row: int, reason: str) -> E:
        """Return an error of class ``kind`` for row ``row`` of the plan."""
        chunk, key = tuple(self.plan.chunks[row].tolist()), self.keys[int(self.value_of[row])]
        return kind(reason, node=self.node, chunk=chunk, key=key)

    def store_value(self, row: int, parts: Sequence[Buffer]) -> None:
        """Store the value that holds a planned chunk, given in parts, or erase it if there are none.

        Raises
        ------
        ChunkWriteError
            If the store fails.
        """
        try:
            store_value(self.store, self.keys[int(self.value_of[row])], parts)
        # Third-party stores may raise anything.
        except Exception as cause:
            reason = f"the store failed: {reason_of(cause)}"
            raise with_errno(self.failure(ChunkWriteError, row, reason), cause) from cause
