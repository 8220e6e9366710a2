"""A read as an engine takes it, in columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    import numpy as np
    import numpy.typing as npt
    from typing_extensions import Buffer

    from ..codecs.codec import ArrayRepresentation, Codec
    from ..errors import ChunkError
    from ..plan.planner import Plan
    from ..stores.base import Answer, ReadableStore
    from .monitor import Monitor

    E = TypeVar("E", bound=ChunkError)

Missing: TypeAlias = Literal["fill", "error"]
#: Whether the host checks frames by decoding them before a device's decoder sees them.
Verify: TypeAlias = Literal["none", "cpu"]

#: ``Sources.nbytes`` of a chunk that is the whole value of its key.
WHOLE = -1
#: ``Sources.nbytes`` of a chunk that is absent according to a shard's index.
ABSENT = -2
#: ``Sources.nbytes`` of a chunk of a shard that is fetched as a whole: its range is known once the shard is there.
IN_SHARD = -3


@dataclass(frozen=True, slots=True, eq=False)
class Packing:
    """Which values byte ranges are, or are parts of, in a value that holds many (:mod:`gzarr.engines.packed`).

    Attributes
    ----------
    keys
        Store keys of these values, each once.
    index
        int64 ``(n,)``: chunk ``i`` is in the value ``keys[index[i]]``.
    unwrap
        As in :class:`gzarr.stores.base.Extents`, of the index of a value; None if byte ranges are chunks.
    """

    keys: Sequence[str]
    index: npt.NDArray[np.int64]
    unwrap: Callable[[int, memoryview], Buffer] | None


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
        int64 ``(n,)``, byte range in the value. Where it is not a range, ``nbytes`` is :data:`WHOLE` (and ``offset``
        0), :data:`ABSENT` or :data:`IN_SHARD`.
    versions
        Version that the value of each key must have; None for any. Only for stores with ``get_many``.
    find_in_shard
        Function of some rows of one key that are ``IN_SHARD``, and of the shard: sets their ``offset`` and ``nbytes``.
        It raises :class:`gzarr.errors.ChunkDecodeError` if the shard's index is corrupt.
    most_shard_nbytes
        Most bytes of a shard that is fetched as a whole.
    packing
        Values that the byte ranges are; None if each key is the key of such a value.
    """

    keys: Sequence[str]
    key_index: npt.NDArray[np.int64]
    offset: npt.NDArray[np.int64]
    nbytes: npt.NDArray[np.int64]
    versions: Sequence[Hashable | None] | None = None
    find_in_shard: Callable[[npt.NDArray[np.int64], Answer], None] | None = None
    most_shard_nbytes: int = 0
    packing: Packing | None = None

    def key(self, row: int) -> str:
        """Return the key of the value that holds a chunk, for messages."""
        if self.packing is not None:
            return self.packing.keys[int(self.packing.index[row])]
        return self.keys[int(self.key_index[row])]


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
        One view per output, with the plan's ``k`` dimensions; for point selections, the result array as it is. Those
        of many windows are a :class:`gzarr.engines.stack.Stack`.
    field
        Name of the field of a structured dtype to place, or None for whole elements; ``outputs`` have its dtype.
    fill_value
        Value of the elements of an absent chunk, a scalar of ``chunk.dtype``.
    missing
        Whether an absent chunk is filled or is an error.
    most_encoded
        Largest encoded size of a planned chunk by any encoder, in bytes; larger values are not even read.
    budget_bytes
        Most encoded bytes in memory at once when reading from a remote store, or asked for; None for the default.
    monitor
        Monitor of the read, or None.
    """

    node: str
    store: ReadableStore
    codecs: tuple[Codec, ...]
    chunk: ArrayRepresentation
    plan: Plan
    sources: Sources
    outputs: Sequence[npt.NDArray[Any]]
    field: str | None
    fill_value: Any
    missing: Missing
    most_encoded: int
    budget_bytes: int | None = None
    monitor: Monitor | None = None

    def failure(self, kind: type[E], row: int, reason: str) -> E:
        """Return an error of class ``kind`` for row ``row`` of the plan."""
        chunk = tuple(self.plan.chunks[row].tolist())
        return kind(reason, node=self.node, chunk=chunk, key=self.sources.key(row))
