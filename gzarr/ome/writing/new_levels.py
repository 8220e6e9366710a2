"""Arrays of new levels, and the work that fills them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ...codecs.choice import AUTO
from ...engines import pool
from ...errors import ArgumentError
from ...hierarchy.array_spec import new_metadata
from ...hierarchy.auto_chunks import auto_chunks, full_shape
from ...hierarchy.create import create_array
from ..metadata.model import Dataset, Scale, Translation
from .building import LevelSource, Pass
from .downsample import cells_of
from .gaussian import smooth_level

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ...arrays.array import Array
    from ...stores.base import Store
    from .arguments import Description
    from .plan import LevelShape, Shape

#: Shards chosen here are at most this large: a pass holds one or two of each level.
_SHARD_BYTES: Final = 16 << 20


@dataclass(frozen=True)
class LevelLayout:
    """How arrays of levels are stored.

    Attributes
    ----------
    chunks, shards
        Shapes of chunks and shards of level 0; shards may be None.
    options
        Other arguments of :func:`gzarr.create_array`.
    """

    chunks: Shape
    shards: Shape | None
    options: dict[str, Any]


def chosen_chunks(shape: Shape, space: Sequence[bool], itemsize: int, chunks: Any, shards: Any) -> tuple[Shape, Any]:
    """Return the shapes of chunks and shards of level 0 that the caller asked for, or the default ones.

    By default, a chunk has one element along axes that are not of space, and a shape along the others as
    :func:`gzarr.create_array` chooses it. ``shards="auto"`` doubles the lengths of a chunk in turn, up to 16 MiB.
    """
    if isinstance(chunks, str) and chunks == AUTO:
        own = iter(auto_chunks([n for n, yes in zip(shape, space, strict=True) if yes], itemsize))
        found: Shape = tuple(next(own) if yes else 1 for yes in space)
    else:
        found = full_shape(chunks, shape, "chunks")
    if shards is None:
        return found, None
    if isinstance(shards, str) and shards == AUTO:
        return found, _auto_shards(shape, found, space, itemsize)
    wanted = full_shape(shards, shape, "shards")
    if any(s % c for s, c in zip(wanted, found, strict=True)):
        raise ArgumentError(f"shards {wanted} are not whole multiples of chunks {found}")
    return found, wanted


def _auto_shards(shape: Shape, chunks: Shape, space: Sequence[bool], itemsize: int) -> Shape:
    shard = list(chunks)
    while math.prod(shard) * itemsize * 2 <= _SHARD_BYTES:
        can = [d for d in range(len(shape)) if space[d] and shard[d] < shape[d]]
        if not can:
            break
        shard[min(can, key=lambda d: shard[d] / chunks[d])] *= 2
    return tuple(shard)


def check_layout(path: str, shape: Shape, dtype: Any, layout: LevelLayout) -> None:
    """Refuse arguments for which :func:`new_level` would fail, before anything is written.

    Raises
    ------
    ArgumentError
        If there are any.
    """
    options = {name: value for name, value in layout.options.items() if name != "zarr_format"}
    new_metadata(path, shape, layout.options["zarr_format"], dtype=dtype, **_cut(layout, shape), **options)


def new_level(
    store: Store, path: str, shape: Shape, dtype: Any, layout: LevelLayout, device: str, *, overwrite: bool = False
) -> Array:
    """Create the array of one level; chunks and shards are no longer than the level."""
    options = {**_cut(layout, shape), **layout.options}
    return create_array(store, path=path, shape=shape, dtype=dtype, device=device, overwrite=overwrite, **options)


def _cut(layout: LevelLayout, shape: Shape) -> dict[str, Any]:
    chunks = tuple(min(c, max(n, 1)) for c, n in zip(layout.chunks, shape, strict=True))
    if layout.shards is None:
        return {"chunks": chunks, "shards": None}
    shards = tuple(
        min(s // c, -(-max(n, 1) // own)) * own
        for s, c, own, n in zip(layout.shards, layout.chunks, chunks, shape, strict=True)
    )
    return {"chunks": chunks, "shards": shards}


def samples(levels: Sequence[LevelShape], method: str, description: Description) -> list[tuple[float, ...]]:
    """Return where the first element of each level is, from level 0 on, in elements of level 0 along each axis.

    It lies in the middle of the elements of level 0 that it stands for; with the method ``"nearest"``, where the one is
    that it was taken from: in each cell the one in the middle, of two the first.
    """
    places = [(0.0,) * len(description.axes)]
    before = (1,) * len(description.axes)
    for level in levels:
        if method == "nearest":
            taken = zip(places[-1], before, level.factors, strict=True)
            places.append(tuple(place + k * ((f - 1) // 2) for place, k, f in taken))
        else:
            places.append(tuple((k - 1) / 2 for k in level.scale))
        before = level.scale
    return places


def dataset(
    path: str, spacing: Sequence[float], origin: Sequence[float], scale: Shape, sample: Sequence[float]
) -> Dataset:
    """Return the metadata of a level whose first element is at ``sample``, in elements of level 0."""
    factors = tuple(s * k for s, k in zip(spacing, scale, strict=True))
    offsets = tuple(o + s * place for o, s, place in zip(origin, spacing, sample, strict=True))
    return Dataset(path, (Scale(factors), Translation(offsets)))


class LevelWork:
    """The work that fills levels.

    Parameters
    ----------
    source
        What level 0 is read from: an array of any kind.
    target
        Array of level 0 to be written; None if ``source`` is level 0.
    levels, targets
        The levels below, and their arrays.
    method
        Method of downsampling.
    budget_bytes
        Limit of the memory used, as for :class:`gzarr.ome.writing.building.Pass`.

    Attributes
    ----------
    total
        Number of steps.
    """

    def __init__(
        self,
        source: Any,
        target: Array | None,
        levels: Sequence[LevelShape],
        targets: Sequence[Array],
        *,
        method: str,
        budget_bytes: int,
    ) -> None:
        self._levels, self._targets = levels, targets
        self._budget_bytes = budget_bytes
        self._first = source if target is None else target
        self._pass: Pass | None = None
        self.total: int = 0
        self._gaussian = method == "gaussian"
        if not self._gaussian:
            self._pass = Pass(LevelSource(source), target, levels, targets, method=method, budget_bytes=budget_bytes)
        elif target is not None:
            self._pass = Pass(LevelSource(source), target, [], [], method="nearest", budget_bytes=budget_bytes)
        if self._pass is not None:
            self.total += self._pass.total
        if self._gaussian:
            self.total += sum(math.prod(cells_of(a.shape, a.metadata.chunk_shape)) for a in targets)

    def steps(self) -> Iterator[None]:
        """Work; yield after each step."""
        if self._pass is not None:
            yield from self._pass.steps()
        if self._gaussian:
            before = self._first
            for level, target in zip(self._levels, self._targets, strict=True):
                # One chunk or shard, and as floats a part of the level before that is about as large as in a pass.
                each = math.prod(target.metadata.chunk_shape) * target.dtype.itemsize + (32 << 20)
                threads = max(1, min(pool.thread_count(), self._budget_bytes // each))
                yield from smooth_level(before, target, level, threads)
                before = target
