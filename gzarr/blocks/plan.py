"""Planning: the arguments of :func:`gzarr.map_blocks`, checked, and the blocks that follow from them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ..arrays.array import Array
from ..documents.json import quote
from ..errors import ArgumentError
from ..metadata.chunk_grid import RegularAxis
from ..real_numbers import is_positive
from .arguments import different_axes, each, items
from .axes import AxisScale, InputAxis
from .blocks import BlockGrid, OutputBlocks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..arrays.exporting import ExportedArray
    from ..metadata.chunk_grid import ChunkAxis
    from .element_sizes import ElementSizes
    from .surroundings import Surroundings

#: Bytes of the elements of a block, inputs and outputs together, that are aimed at.
_TARGET: Final = 8 << 20
#: How many times longer than an input a halo may be, whatever memory a block with it takes.
_MANY: Final = 100
#: Bytes that a block with a longer one may take, however small the budget is.
_LEAST_ROOM: Final = 1 << 20
#: About the bytes that describe one cut of a window.
_CUT: Final = 512


@dataclass(frozen=True, eq=False)
class BlockGeometry:
    """How inputs and an output lie to each other.

    Attributes
    ----------
    common
        Shape that the inputs are broadcast to.
    kept
        For each axis of the output, the axis of the inputs that it comes from; None for new ones.
    scales
        For each axis of the inputs.
    surroundings
        What blocks are given beside their own elements.
    """

    common: tuple[int, ...]
    kept: tuple[int | None, ...]
    scales: tuple[AxisScale, ...]
    surroundings: Surroundings

    @classmethod
    def of(
        cls, common: tuple[int, ...], surroundings: Surroundings, scale: Any, drop_axis: Any, new_axis: Any
    ) -> BlockGeometry:
        """Return the geometry for arguments of :func:`gzarr.map_blocks`.

        Raises
        ------
        ArgumentError
            If they are wrong.
        """
        ndim = len(common)
        dropped = set(different_axes(drop_axis, ndim, "drop_axis"))
        left: list[int | None] = [d for d in range(ndim) if d not in dropped]
        new = different_axes(new_axis, len(left) + len(items(new_axis)), "new_axis")
        for d in sorted(new):
            left.insert(d, None)
        scales = [AxisScale.of(s) for s in each(scale, ndim, "scale", _is_scale, "whole numbers or their inverses")]
        if any(any(surroundings.halos[d]) or scales[d] not in (None, AxisScale()) for d in dropped):
            raise ArgumentError("axes in drop_axis are read whole: their halo must be 0, and their scale 1")
        return cls(common, tuple(left), tuple(s for s in scales if s), surroundings)

    @property
    def output_shape(self) -> tuple[int | None, ...]:
        """Shape of the output; None for the lengths of new axes."""
        return tuple(None if d is None else self.scales[d].of_length(self.common[d]) for d in self.kept)

    def axes_of(self, array: ExportedArray, blocks: Sequence[ChunkAxis]) -> list[InputAxis]:
        """Return the axes of an input, for blocks along each axis of the first output, whose geometry this is."""
        first = len(self.common) - array.ndim
        grid = array.metadata.chunk_grid.axes
        if array.metadata.chunk_grid.is_regular:
            grid = tuple(RegularAxis(n, c) for n, c in zip(array.shape, array.chunks, strict=True))
        return [self._axis(first + d, chunks, blocks) for d, chunks in enumerate(grid)]

    def _axis(self, d: int, chunks: ChunkAxis, blocks: Sequence[ChunkAxis]) -> InputAxis:
        if d not in self.kept or (chunks.size == 1 and self.common[d] != 1):
            return InputAxis(chunks.size, chunks)
        at = self.kept.index(d)
        own = self.surroundings
        return InputAxis(
            chunks.size, chunks, blocks[at], at, self.scales[d], own.halos[d], own.boundaries[d], own.padded
        )

    def grid(
        self, blocks: Sequence[ChunkAxis], geometries: Sequence[BlockGeometry], shapes: Sequence[Any]
    ) -> BlockGrid:
        """Return the blocks of all outputs.

        Parameters
        ----------
        blocks
            Blocks along each axis of the first output, whose geometry this is.
        geometries, shapes
            Geometry and shape of each output.
        """
        axes = [self._axis(d, RegularAxis(n, max(n, 1)), blocks) for d, n in enumerate(self.common)]
        return BlockGrid(
            blocks, axes, [self._blocks_of(*output, blocks) for output in zip(geometries, shapes, strict=True)]
        )

    def _blocks_of(self, other: BlockGeometry, shape: tuple[int, ...], blocks: Sequence[ChunkAxis]) -> OutputBlocks:
        """Return the blocks of an output of another geometry, for blocks of the first one."""
        axes: list[ChunkAxis] = []
        of: list[int | None] = []
        for d, (source, n) in enumerate(zip(other.kept, shape, strict=True)):
            at = d if other is self else self.place(source)
            axis = None if at is None else blocks[at]
            if axis is None or axis.count_within(axis.size) <= 1:
                longest = 1 if axis is None or source is None else int(axis.longest * self.ratio(other, source))
                axis = RegularAxis(n, max(n, longest if self.surroundings.padded else 1))
            elif source is not None and other.scales[source] != self.scales[source]:
                axis = RegularAxis(n, int(axis.longest * self.ratio(other, source)))
            axes.append(axis)
            of.append(at)
        scales = [None if d is None else other.scales[d] for d in other.kept]
        return OutputBlocks(axes, of, scales, other.kept, self.surroundings)

    def place(self, source: int | None) -> int | None:
        """Return the axis of the output that comes from an axis of the inputs, or None."""
        return None if source is None or source not in self.kept else self.kept.index(source)

    def ratio(self, other: BlockGeometry, source: int) -> Fraction:
        """Return how much longer an output of another geometry is along an axis of the inputs."""
        own, its = self.scales[source], other.scales[source]
        return Fraction(its.numerator * own.denominator, its.denominator * own.numerator)


def check_blocks(geometry: BlockGeometry, shapes: Sequence[tuple[int, ...]], inputs: Sequence[ExportedArray]) -> None:
    """Refuse outputs for which there are no blocks, and a constant beyond the inputs that they cannot hold.

    Raises
    ------
    ArgumentError
        If so.
    """
    if (0 in geometry.common or any(0 in shape for shape in shapes)) and any(0 not in shape for shape in shapes):
        raise ArgumentError(
            f"there are no blocks of inputs of shape {geometry.common}, and outputs of shapes "
            f"{', '.join(map(str, shapes))} have elements"
        )
    geometry.surroundings.check_constants(inputs)


def check_halos(
    geometry: BlockGeometry,
    inputs: Sequence[ExportedArray],
    blocks: Sequence[ChunkAxis],
    sizes: ElementSizes,
    budget_bytes: int,
) -> None:
    """Refuse halos beyond the inputs, far longer than these, that do not fit in the budget with a block.

    Others may exceed it, since one block is always held.

    Parameters
    ----------
    geometry
        The geometry of the first output.
    inputs, blocks, sizes
        The inputs, the blocks along each axis of the first output, and the bytes of elements.
    budget_bytes
        The bytes that blocks may take.

    Raises
    ------
    ArgumentError
        If so.
    """
    most = max(budget_bytes, _LEAST_ROOM)
    for array, itemsize in zip(inputs, sizes.inputs, strict=True):
        axes = geometry.axes_of(array, blocks)
        nbytes = itemsize * math.prod(axis.longest_window for axis in axes) + _CUT * sum(a.repeats for a in axes)
        if nbytes > most and any(axis.boundary is not None and max(axis.halo) > _MANY * axis.size for axis in axes):
            raise ArgumentError(
                f"halo={quote(geometry.surroundings.halos)} is far longer than {array.name}, of shape {array.shape}, "
                f"and a block with it does not fit in {most:,} bytes (budget_bytes=); pass a shorter one"
            )


def block_axes(
    geometries: Sequence[BlockGeometry],
    inputs: Sequence[ExportedArray],
    outputs: Sequence[Any],
    shapes: Sequence[tuple[int, ...]],
    block: Sequence[int | None],
    target: int,
    sizes: ElementSizes,
) -> list[ChunkAxis]:
    """Return the blocks along each axis of the first output.

    Parameters
    ----------
    geometries
        The geometry of each output; without outputs, one.
    inputs, outputs
        The inputs, and the outputs: arrays of gzarr, whose chunks (shards) are never cut, and others.
    shapes
        Shape of each output; without outputs, of one that there could be.
    block
        Length along each axis; None for one that is chosen here.
    target
        Bytes of a block that are aimed at.
    sizes
        Bytes of the elements of the inputs and outputs.

    Raises
    ------
    ArgumentError
        If blocks would cut chunks of an output.
    """
    shape = shapes[0]
    units = [_unit(geometries, outputs, d, n) for d, n in enumerate(shape)]
    lengths = [n for n in block if n is not None]
    if len(lengths) < len(shape):
        parts = _parts(geometries, inputs, shapes, sizes)
        lengths = _grown(units, _wanted(geometries[0], inputs, units), shape, parts, target, block)
    axes: list[ChunkAxis] = []
    padded = geometries[0].surroundings.padded
    for d, (n, length, unit, fixed) in enumerate(zip(shape, lengths, units, block, strict=True)):
        whole = length >= n
        if not isinstance(unit, int):
            axes.append(RegularAxis(n, max(n, 1)) if whole else unit.merged(length))
            continue
        if length % unit and not whole:
            raise ArgumentError(
                f"block={tuple(lengths)} would cut chunks (shards) of the outputs, or elements of another scale: along "
                f"axis {d}, blocks must be multiples of {unit} elements, such as {-(-length // unit) * unit}"
            )
        if not padded or fixed is None:
            length = min(length, -(-n // unit) * unit)
        axes.append(RegularAxis(n, max(length, 1)))
    return axes


def _unit(geometries: Sequence[BlockGeometry], outputs: Sequence[Any], d: int, n: int) -> int | ChunkAxis:
    """Return what blocks along an axis are multiples of: a length, or chunks of various lengths."""
    first = geometries[0]
    source = first.kept[d]
    whole = RegularAxis(n, max(n, 1))
    if source is None:
        # A function returns all of it.
        return whole
    least = unit = first.scales[source].numerator
    axes: list[ChunkAxis] = []
    alike = True
    for geometry, output in zip(geometries, outputs, strict=False):
        if source not in geometry.kept:
            # Blocks that only differ along this axis would write the same elements of the output.
            return whole
        own = geometry.kept.index(source)
        ratio = first.ratio(geometry, source)
        alike &= ratio == 1
        longest = 1
        if isinstance(output, Array):
            axes.append(output.metadata.chunk_grid.axes[own])
            longest = axes[-1].longest
        # The shortest blocks that are whole chunks of this output, too.
        unit = math.lcm(unit, (longest / ratio).numerator)
    uneven = [axis for axis in axes if not axis.is_regular]
    if not uneven:
        return unit
    if least > 1 or not alike or not all(uneven[0].agrees(axis) for axis in axes):
        # Only the whole axis has the same chunks in all of them.
        return whole
    return uneven[0]


def _wanted(geometry: BlockGeometry, inputs: Sequence[ExportedArray], units: Sequence[int | ChunkAxis]) -> list[int]:
    """Return lengths of blocks that also end with chunks of the first input."""
    first = inputs[0]
    result = []
    for source, unit in zip(geometry.kept, units, strict=True):
        length = unit if isinstance(unit, int) else unit.longest
        d = -1 if source is None else source - (len(geometry.common) - first.ndim)
        if d >= 0 and first.metadata.chunk_grid.is_regular and isinstance(unit, int):
            scale = geometry.scales[source or 0]
            chunk = first.chunks[d] * scale.numerator
            length = math.lcm(length, chunk if chunk % scale.denominator else chunk // scale.denominator)
        result.append(length)
    return result


class _Part(NamedTuple):
    """A part of a block: that of one input, without its halo, or of one output.

    Attributes
    ----------
    itemsize
        Bytes of an element.
    axes
        For each axis its length, the axis of the blocks that it is cut along (None if it is whole in each block), and
        how much longer it is than that.
    """

    itemsize: int
    axes: list[tuple[int, int | None, Fraction]]

    def nbytes(self, lengths: Sequence[int]) -> int:
        """Return its bytes for blocks of some lengths."""
        return self.itemsize * math.prod(
            n if at is None else min(math.ceil(lengths[at] * ratio), n) for n, at, ratio in self.axes
        )


def _parts(
    geometries: Sequence[BlockGeometry],
    inputs: Sequence[ExportedArray],
    shapes: Sequence[tuple[int, ...]],
    sizes: ElementSizes,
) -> list[_Part]:
    """Return the parts of a block."""
    first = geometries[0]
    found = []
    for array, itemsize in zip(inputs, sizes.inputs, strict=True):
        sources = range(len(first.common) - array.ndim, len(first.common))
        ratios = [Fraction(first.scales[d].denominator, first.scales[d].numerator) for d in sources]
        axes = [(n, first.place(d), r) for n, d, r in zip(array.shape, sources, ratios, strict=True)]
        found.append(_Part(itemsize, axes))
    for geometry, itemsize, shape in zip(geometries, sizes.outputs, shapes, strict=False):
        axes = [
            (n, first.place(d), Fraction(1) if d is None else first.ratio(geometry, d))
            for n, d in zip(shape, geometry.kept, strict=True)
        ]
        found.append(_Part(itemsize, axes))
    return found


def _grown(
    units: Sequence[int | ChunkAxis],
    wanted: Sequence[int],
    shape: Sequence[int],
    parts: Sequence[_Part],
    target: int,
    fixed: Sequence[int | None],
) -> list[int]:
    """Return lengths for blocks of about a number of bytes: equal along all axes but the fixed ones."""
    least = [unit if isinstance(unit, int) else unit.longest for unit in units]
    lengths = [unit if n is None else n for unit, n in zip(least, fixed, strict=True)]

    def fits(d: int, length: int) -> bool:
        grown = [*lengths[:d], length, *lengths[d + 1 :]]
        return sum(part.nbytes(grown) for part in parts) <= target

    free = [d for d, n in enumerate(fixed) if n is None]
    for d in reversed(free):
        if fits(d, wanted[d]):
            lengths[d] = wanted[d]
    while True:
        can = [d for d in free if lengths[d] < shape[d] and fits(d, 2 * lengths[d])]
        if not can:
            return lengths
        # The last of the shortest: its elements are neighbours in memory.
        d = min(reversed(can), key=lambda d: lengths[d])
        lengths[d] *= 2


def target_bytes(budget_bytes: int, threads: int) -> int:
    """Return the bytes of a block that are aimed at."""
    return max(min(_TARGET, budget_bytes // (8 * threads)), 1)


def _is_scale(value: Any) -> bool:
    return is_positive(value) and AxisScale.of(value) is not None
