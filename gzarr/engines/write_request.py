"""What an engine is asked to write: one write, all of it in columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    import numpy.typing as npt

    from ..codecs.codec import ArrayRepresentation, Codec
    from ..plan.decode_program import ShardLevel
    from ..plan.keys import ChunkKeys
    from ..plan.planner import Plan
    from ..stores.base import Store


@dataclass(frozen=True, slots=True, eq=False)
class WriteRequest:
    """A write of ``n`` planned chunks into ``s`` stored values.

    A stored value is what one key holds: a chunk, or a shard with some of the planned (inner) chunks.

    Attributes
    ----------
    node
        Path of the array with a leading slash, for messages.
    store
        What is written to, and read where a stored value is changed in part.
    levels
        Shards around the planned chunks, outermost first; empty where each planned chunk is a stored value.
    codecs
        Chain of a planned chunk, in encoding order.
    chunk
        A planned chunk, in the array's order of dimensions.
    shape
        Of the array, in elements.
    plan
        As for reading, the other way round: its ``target`` columns say where in the inputs elements come from. Where
        two pieces have an element in common, the later one counts.
    keys
        Of the stored values, ``s``.
    value_of
        int64 ``(n,)``: in which stored value each planned chunk is.
    inputs
        What is written: arrays of the array's dtype (of the field's), in native byte order, with the dimensions of the
        plan, of any strides (0 where broadcast); for points arrays of the selection's shape.
    field
        Field of a structured type that is written, or None for whole elements.
    fill_value
        Of elements that nothing was written to; None for zeros.
    whole
        bool ``(n,)``: whether everything of the chunk that lies within the array is written, so that what is stored
        there does not matter.
    beyond
        bool ``(s,)``: whether a stored value reaches beyond the array. What is there may be what others have appended
        since the array was opened: it is kept, or becomes the fill value where nothing is stored.
    is_current
        Tells, asked with the locks of stored values held, whether nobody can have appended anything.
    write_empty_chunks
        Whether chunks of nothing but the fill value are stored; else their keys are erased, or left out of a shard.
    level_is_free
        Whether compressors may search otherwise than their level says (:mod:`gzarr.engines.cpu.effort`).
    """

    node: str
    store: Store
    levels: tuple[ShardLevel, ...]
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
    level_is_free: bool
