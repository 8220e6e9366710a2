"""A codec chain in the form that an engine runs: levels of shards, and a short list of native operations.

Transpositions are not operations: they become the strides of the decoded chunk. A byte swap and a conversion of numbers
are part of placing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from gzarr_kernels.operations import OPERATIONS

from ..codecs.buffers import ceiling
from ..codecs.chain import representations
from ..codecs.codec import ArrayRepresentation, BytesRepresentation, convert
from ..codecs.numcodecs_adapter import NumcodecsArrayToArray
from ..codecs.sharding import ShardingIndexed
from ..codecs.transpose import TransposeCodec
from ..metadata.chunk_grid import ChunkGrid

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..codecs.codec import Codec, Representation
    from ..metadata.chunk_grid import IntArray

#: Bytes of a small shard that belong to none of its inner chunks, at most, where it is taken as a whole: earlier
#: versions of chunks, and padding.
_MOST_GAPS: Final = 64 << 20


#: Operations on arrays that depend on the order of the elements.
_IN_ORDER: Final = ("delta", "packbits")


@dataclass(frozen=True, slots=True)
class ShardLevel:
    """One level of sharding, in terms of the array's dimensions.

    Attributes
    ----------
    codec
        The sharding codec.
    order
        Dimension ``order[i]`` of the array is dimension ``i`` of the shard as the codec sees it.
    shard_shape, inner_shape
        Shapes in elements, in the array's order of dimensions. In a rectilinear grid, the largest length of a shard
        along each dimension.
    uneven
        Grid of the shards if their shapes differ, else None.
    """

    codec: ShardingIndexed
    order: tuple[int, ...]
    shard_shape: tuple[int, ...]
    inner_shape: tuple[int, ...]
    uneven: ChunkGrid | None = None

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """Shape of the shard as the codec sees it."""
        return tuple(self.shard_shape[d] for d in self.order)

    def stored_shape_of(self, shard: Sequence[int]) -> tuple[int, ...]:
        """Return the :attr:`stored_shape` of the shard at these grid coordinates."""
        shape = self.shard_shape if self.uneven is None else self.uneven.shape_of(shard)
        return tuple(shape[d] for d in self.order)

    def locate(self, chunks: IntArray, chunk_shape: tuple[int, ...]) -> tuple[IntArray, IntArray, IntArray]:
        """Return the shard of each chunk, and the position of the chunk in it.

        Parameters
        ----------
        chunks
            int64 ``(n, k)``, coordinates in a grid of chunks of ``chunk_shape``.
        chunk_shape
            Shape in elements of the inner chunks of this level, or of a level inside them.

        Returns
        -------
        shards
            int64 ``(n, k)``, coordinates in the grid of shards. Meaningful for the outermost level only.
        inner
            int64 ``(n, k)``, coordinates of the inner chunk in its shard.
        counts
            int64 ``(k,)``, or ``(n, k)`` if shards differ: number of inner chunks of the shard along each dimension.
        """
        within = chunks // _ratio(self.inner_shape, chunk_shape)
        if self.uneven is None:
            counts = _ratio(self.shard_shape, self.inner_shape)
            return *np.divmod(within, counts), counts
        inner_shape = np.array(self.inner_shape, np.int64)
        shards = self.uneven.chunk_of(within * inner_shape)
        return shards, within - self.uneven.begins(shards) // inner_shape, self.uneven.lengths(shards) // inner_shape


@dataclass(frozen=True, slots=True)
class NativeOperation:
    """One native step: its ``name``, the size of its result, and its parameters."""

    name: str
    nbytes: int
    parameters: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Program:
    """How the native loop decodes a chunk.

    Attributes
    ----------
    operations
        Operations in decoding order.
    order
        Dimensions of the array, from the slowest to the fastest in the decoded chunk.
    strides
        Strides of the decoded chunk in bytes, one per dimension of the array.
    swap
        Width in bytes of the units to swap when placing; 0 for none.
    stored_itemsize
        Bytes of an element of the decoded chunk.
    conversion
        Number of the conversion of elements when placing (``gzarr_kernels.slots.conversion``); 0 for none.
    """

    operations: tuple[NativeOperation, ...]
    order: tuple[int, ...]
    strides: tuple[int, ...]
    swap: int
    stored_itemsize: int
    conversion: int = 0


@dataclass(frozen=True, slots=True)
class Decoding:
    """An analysed codec chain.

    Attributes
    ----------
    levels
        Levels of sharding, outermost first.
    codecs
        Codec chain of a planned chunk, in encoding order.
    chunk
        Shape and type of a planned chunk once decoded, in the array's order of dimensions.
    program
        Native program, or None if the chain needs host codecs.
    most_encoded
        Upper limit of the encoded size of a planned chunk, in bytes, for any encoder.
    """

    levels: tuple[ShardLevel, ...]
    codecs: tuple[Codec, ...]
    chunk: ArrayRepresentation
    program: Program | None
    most_encoded: int

    @property
    def path(self) -> str:
        """Description for users: ``cpu-native: blosc(lz4, shuffle 4)``."""
        labels = [codec.label for codec in self.codecs if codec.label != "bytes"]
        text = " + ".join(labels) or "uncompressed"
        for level in reversed(self.levels):
            text = f"sharding_indexed({'×'.join(map(str, level.inner_shape))}: {text})"
        return f"{'cpu-native' if self.program is not None else 'cpu-threads'}: {text}"


def planned_grid(grid: ChunkGrid, levels: Sequence[ShardLevel]) -> ChunkGrid:
    """Return the grid to plan over: if the chunks of ``grid`` are shards, the grid of the innermost chunks.

    All inner chunks have one shape, so their grid is regular even if the shapes of shards differ.
    """
    return ChunkGrid.regular(grid.shape, levels[-1].inner_shape) if levels else grid


def _ratio(outer: tuple[int, ...], inner: tuple[int, ...]) -> IntArray:
    return np.array([a // b for a, b in zip(outer, inner, strict=True)], np.int64)


def analyse(
    codecs: Sequence[Codec],
    chunk: ArrayRepresentation,
    available: frozenset[str],
    grid: ChunkGrid | None = None,
) -> Decoding:
    """Analyse a codec chain.

    Parameters
    ----------
    codecs
        Codecs in encoding order.
    chunk
        Shape and type of a chunk of the array's grid; for a rectilinear grid, with the largest length along each
        dimension.
    available
        Operations available to the native loop (``gzarr_kernels.libraries.available``).
    grid
        Chunk grid of the array; optional for a regular grid.
    """
    levels: list[ShardLevel] = []
    uneven = None if grid is None or grid.is_regular else grid
    # Permutation of the array's dimensions by the codecs seen so far; inner chains see permuted chunks.
    order = tuple(range(len(chunk.shape)))
    shape = chunk.shape
    rest = tuple(codecs)
    outside: tuple[TransposeCodec, ...] = ()
    while (sharding := _leading_shard(rest)) is not None:
        transposes, codec = sharding
        for transpose in transposes:
            order = tuple(order[i] for i in transpose.order)
        outside = (*outside, *transposes)
        inner = [0] * len(shape)
        for i, d in enumerate(order):
            inner[d] = codec.chunk_shape[i]
        levels.append(ShardLevel(codec, order, shape, tuple(inner), None if levels else uneven))
        shape = tuple(inner)
        rest = codec.codecs
    # Transpositions outside of shards apply to the inner chunks as well.
    chain = (*outside, *rest)
    planned = ArrayRepresentation(shape, chunk.dtype)
    between = representations(chain, planned)
    encoded = between[-1]
    assert isinstance(encoded, BytesRepresentation)
    return Decoding(tuple(levels), chain, planned, _program(chain, planned, between, available), ceiling(encoded))


def most_stored(codecs: Sequence[Codec], chunk: ArrayRepresentation) -> int:
    """Return the upper limit of the size of a stored value, in bytes, for any encoder.

    Parameters
    ----------
    codecs, chunk
        Codecs in encoding order, and shape and type of the chunk or shard that they encode.

    Returns
    -------
    For a shard, that of one without gaps: it may have any number of bytes that its index gives to no inner chunk.
    """
    sharding = _leading_shard(tuple(codecs))
    if sharding is None:
        encoded = representations(codecs, chunk)[-1]
        assert isinstance(encoded, BytesRepresentation)
        return ceiling(encoded)
    transposes, codec = sharding
    shard = representations((*transposes, codec), chunk)[-2]
    assert isinstance(shard, ArrayRepresentation)
    inner = most_stored(codec.codecs, codec.inner(shard))
    return codec.index_nbytes(shard.shape) + math.prod(codec.chunks_per_shard(shard.shape)) * inner


def most_taken(codecs: Sequence[Codec], chunk: ArrayRepresentation) -> int:
    """Return the most bytes of a stored value that are taken into memory at once; for a shard, with its gaps.

    Parameters
    ----------
    codecs, chunk
        As for :func:`most_stored`.
    """
    most = most_stored(codecs, chunk)
    return most if _leading_shard(tuple(codecs)) is None else 2 * most + _MOST_GAPS


def converting(decoding: Decoding, dtype: np.dtype[Any], available: frozenset[str]) -> Decoding | None:
    """Return a chain that converts the elements of another, or None if this needs more than placing.

    Parameters
    ----------
    decoding
        The other chain.
    dtype
        Data type of the elements once converted, in native byte order.
    available
        As for :func:`analyse`.
    """
    stored = decoding.chunk.dtype
    # Asked with the types themselves: NumPy does not understand its own strings for most of those of ml_dtypes.
    if convert(stored, dtype) is None:
        return None
    codec = NumcodecsArrayToArray("astype", {"encode_dtype": stored.str, "decode_dtype": dtype.str})
    chunk = ArrayRepresentation(decoding.chunk.shape, dtype)
    chain = (codec, *decoding.codecs)
    program = _program(chain, chunk, representations(chain, chunk), available)
    if program is None and decoding.program is not None:
        return None
    return replace(decoding, codecs=chain, chunk=chunk, program=program)


def _leading_shard(codecs: tuple[Codec, ...]) -> tuple[tuple[TransposeCodec, ...], ShardingIndexed] | None:
    """Return the transpositions and the sharding codec if the chain consists of nothing else, else None."""
    *before, last = codecs
    transposes = tuple(codec for codec in before if isinstance(codec, TransposeCodec))
    if isinstance(last, ShardingIndexed) and len(transposes) == len(before):
        return transposes, last
    return None


def _program(
    codecs: tuple[Codec, ...], chunk: ArrayRepresentation, between: list[Representation], available: frozenset[str]
) -> Program | None:
    if "loop" not in available or chunk.dtype.hasobject or chunk.dtype.itemsize == 0:
        return None
    order = tuple(range(len(chunk.shape)))
    swap = conversion = 0
    stored_itemsize = chunk.dtype.itemsize
    operations: list[NativeOperation] = []
    # Filters of arrays are undone before what placing does, and some depend on the order of the elements.
    filtered = in_order = False
    for codec, decoded in zip(codecs, between[:-1], strict=True):
        steps = codec.operations(decoded)
        if steps is None:
            return None
        for step in steps:
            if step.name == "transpose":
                if in_order:
                    return None
                order = tuple(order[i] for i in step.params)
            elif step.name == "bytes":
                swap = step.params[0] if step.params and step.params[0] > 1 else 0
                if swap and filtered:
                    return None
            elif step.name == "convert":
                if filtered or (conversion and step.params[0]):
                    # Placing converts once.
                    return None
                conversion, stored_itemsize = step.params[0] or conversion, step.params[1]
            elif step.name not in available:
                return None
            else:
                nbytes = decoded.nbytes
                if isinstance(decoded, ArrayRepresentation):
                    filtered, in_order = True, in_order or step.name in _IN_ORDER
                elif OPERATIONS[step.name].in_place:
                    # It only strips a checksum, whatever the size.
                    nbytes = nbytes or 0
                if nbytes is None:
                    # A compressor inside another: the metadata do not determine its decoded size.
                    return None
                operations.append(NativeOperation(step.name, nbytes, step.params))
    strides = [0] * len(chunk.shape)
    stride = stored_itemsize
    for d in reversed(order):
        strides[d] = stride
        stride *= chunk.shape[d]
    return Program(tuple(reversed(operations)), order, tuple(strides), swap, stored_itemsize, conversion)
