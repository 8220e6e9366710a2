"""What a sample is: rows, runs of steps, patches.

A sampler says which windows of the arrays make up a sample. :meth:`Sampler.bind` checks it against the arrays and
returns :class:`Samples`, which a loader works with. Samplers of one's own derive from :class:`Sampler`.
"""

from __future__ import annotations

import abc
import copy
import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar, get_args

import numpy as np
import numpy.typing as npt

from ..arrays.exporting import ExportedArray
from ..documents.json import quote
from ..errors import ArgumentError
from ..flags import flag
from ..poses.levels import is_image
from ..windows.boundary import name_of_numpy
from .arguments import as_array, common_length, fitting, integers, is_one_of, several
from .cells import Footprint, group_lengths
from .factors import ratios_of, whole_factors
from .inputs import is_level, misplaced, names_of
from .masks import cells_of_mask
from .posed_patches import PosedPatches, check_unposed
from .poses import is_given
from .samples import Geometry, Pad, Part, Samples
from .weighing import balanced, checked_number, checked_weights, classes_of, own_weights

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..integers import EachAxis, Integers
    from .cells import IntArray
    from .posed_patches import Interpolations
    from .poses import Flip, Rotate

T = TypeVar("T")
S = TypeVar("S", bound="Sampler")

#: Amplification that groups of rows, of runs of steps and of random patches must not exceed.
ROWS_AMPLIFICATION = 1.01
WINDOWS_AMPLIFICATION = 1.1
PATCHES_AMPLIFICATION = 1.5
#: And of posed patches, which need more around them: larger groups would mix less.
POSED_AMPLIFICATION = 3.0
#: Of options whose elements, however they are typed, are in the order's fingerprint as the samples that they make; a
#: string is a name, and is there as an option.
HASHED: Final = {"hashed": True}


class Sampler(abc.ABC):
    """What a sample is.

    Attributes
    ----------
    static
        Arrays that each batch has as they are, by name; None for none.
    spacing
        Distances that the elements of samples have, in the units of images; None for the arrays' own.
    """

    static: Mapping[str, Any] | None = None
    spacing: Any = None

    def __repr__(self) -> str:
        """Tell what is no default, as it was typed."""
        if not dataclasses.is_dataclass(self):
            return object.__repr__(self)
        given = []
        for one in dataclasses.fields(self):
            value = getattr(self, one.name)
            if one.repr and not is_default(value, one.default):
                given.append(f"{one.name}={value!r}")
        return f"{type(self).__name__}({', '.join(given)})"

    def _kept(self: S) -> S:
        """Return a sampler that is bound again as it is now, whatever becomes of arrays and dicts of the user's."""
        return self

    @abc.abstractmethod
    def bind(self, arrays: Mapping[str, Geometry], most_bytes: int) -> Samples:
        """Return the samples of some arrays.

        Parameters
        ----------
        arrays
            The loader's arrays by name; ``{"": …}`` for a single array.
        most_bytes
            Most bytes that a group of samples takes in memory; samples of one chunk may take more.

        Raises
        ------
        ArgumentError
            If the arrays do not fit the sampler.
        """

    def of_volumes(self, volumes: Sequence[Mapping[str, ExportedArray]]) -> Sequence[Sampler]:
        """Return the sampler of each volume, with what it needs to know of the elements.

        Parameters
        ----------
        volumes
            The loader's arrays by name, of each volume.
        """
        return [self] * len(volumes)

    def stage(self, epoch: int) -> int:
        """Return the stage that an epoch is in: samples have the same shapes in all epochs of a stage.

        Parameters
        ----------
        epoch
            Number of the epoch.
        """
        return 0

    def at_stage(self, stage: int) -> Sampler:
        """Return the sampler of a stage: of as many samples, at the same places.

        Parameters
        ----------
        stage
            Result of :meth:`stage`.
        """
        return self


@dataclass(frozen=True, repr=False)
class Rows(Sampler):
    """Each index along an axis is a sample: images of ``(n, c, h, w)``, rows of a table, elements of a vector.

    Parameters
    ----------
    axis
        Axis of the samples in each array, at least 0. All arrays have the same length along it; in a sample, their
        shape is without it.
    where
        Numbers of the rows that are samples, or a mask ``(n,)`` of booleans; None for all. Integers 0 and 1, as many
        as there are rows, may be either and are refused.
    weights
        How often each row (of the arrays, or of ``where``) is a sample, relative to the others; numbers of at least 0.
        Each is drawn as often as that means in an epoch, rounded up or down. If ``where`` has as many numbers as the
        arrays have rows, weights are refused unless they mean the same for both. None for once each.
    balance
        Name of the loader's array that has the class of each row, all of which are drawn equally often, over all
        volumes together; or the classes, ``(n,)``. Read once, when the loader is made. None for no such weights.
    samples
        Samples of an epoch for each volume (with ``balance``, shared by all of them). None for as many as there are
        rows; for as many of each class as the smallest has with ``balance`` and without replacement.
    replace
        Whether a row may be drawn several times in an epoch.
    """

    axis: int = 0
    where: Any = field(default=None, compare=False, repr=False)
    weights: Any = field(default=None, compare=False, repr=False)
    balance: Any = field(default=None, compare=False, metadata=HASHED)
    samples: int | None = None
    replace: bool = True

    def of_volumes(self, volumes: Sequence[Mapping[str, ExportedArray]]) -> Sequence[Sampler]:
        """As for :class:`Sampler`."""
        return [self] * len(volumes) if self.balance is None else balanced(self, volumes)

    def _kept(self) -> Rows:
        """As for :class:`Sampler`."""
        return with_options(self, weights=own_weights(self.weights))

    def rows(self, size: int) -> IntArray:
        """Return the rows that are samples, int64 ``(n,)``.

        Parameters
        ----------
        size
            Number of all rows.
        """
        return np.arange(size) if self.where is None else chosen_of(self.where, (size,), "rows")[:, 0]

    def bind(self, arrays: Mapping[str, Geometry], most_bytes: int) -> Samples:
        """As for :class:`Sampler`."""
        size = common_length(arrays, self.axis)
        refuse_balance(self.balance)
        parts, footprints = [], []
        for name, array in arrays.items():
            shape = replaced(array.shape, self.axis, 1)
            take = tuple(0 if d == self.axis else slice(None) for d in range(len(shape)))
            parts.append(part_along(name, array, self.axis, shape, 0, take=take))
            footprints.append(
                Footprint((1,), (0,), (1,), (array.chunks[self.axis],), (size,), array.nbytes, array.is_light)
            )
        chosen = None if self.where is None else chosen_of(self.where, (size,), "rows")
        rows = None if chosen is None else chosen[:, 0]
        count = size if rows is None else len(rows)
        weights = checked_weights(self.weights, count, size, rows)
        number = checked_number(self.samples, count, weights, replace=self.replace)
        lengths = group_lengths(footprints, (size,), ROWS_AMPLIFICATION, most_bytes)
        return Samples(
            tuple(parts), (size,), (1,), lengths, (size,), chosen, weights, number=number, replace=self.replace,
            classes=classes_of(self.weights, rows),
        )  # fmt: skip


@dataclass(frozen=True, repr=False)
class Patches(Sampler):
    """Boxes of one shape, on a grid or anywhere.

    Parameters
    ----------
    shape
        Shape of a patch in elements of the first array, along its last axes (or ``axes``). Along other axes, a patch
        has all elements.
    stride
        Distance of neighbouring patches along each axis; None for ``shape``.
    jitter
        Whether patches lie anywhere instead of on the grid: in each epoch there are as many, at other places. With
        shuffled blocks, patches lie within groups of neighbouring chunks, which differ from epoch to epoch. Those of
        a mask ``where`` show the middle true element of their cell, anywhere in them (if rotations and the like leave
        it inside); listed ones are about ``stride`` from their own place at most. They reach into neighbouring cells,
        so a split by ``where`` leaks: for training and validation, take arrays or regions of their own, a patch's
        length apart, or no jitter.
    halo
        Elements that a patch has more on each side, along each axis or along all.
    pad
        What stands for elements outside of the array: ``"reflect"``, ``"symmetric"`` or ``"edge"`` as in ``numpy.pad``,
        or ``"fill"`` for the array's fill value. None for patches inside of the array only; halos must then fit, too.
    where
        Which patches are samples: a mask of the shape of the grid, or of the array along the patch's axes, or of a
        lower resolution of that (a patch is taken if its cell of the grid has a true element); or the first elements of
        patches, ``(n, len(shape))``. A mask has booleans or labels, of which all but 0 are true. It may be an array of
        gzarr, which is read in slabs, or an OME image of labels, of which level 0 is read, or a level of one: these may
        also be of a higher resolution. Or the name of the loader's array that is the mask of its volume; or a list of
        masks or of first elements, one for each volume. None for all.
    weights
        How often each patch of ``where`` is a sample, relative to the others; numbers of at least 0. Each is drawn as
        often as that means in an epoch, rounded up or down. None for once each.
    axes
        Axes of the first array that the patch's shape is along; None for the last ones.
    samples, replace
        As for :class:`Rows`.
    rotate
        True for any rotation around the patch's centre, each as often; or the most degrees: one number (in 3-D, about
        an axis in any direction), or one for rotations about each axis of a 3-D patch. None for none.
    scale
        Least and largest factor by which things look larger, such as ``(0.8, 1.25)``, drawn evenly in its logarithm.
    flip
        True to reverse every second patch along each axis; or axes of the patch, counted from 0.
    shear
        Most that an axis is moved along another one, relative to the distance from the centre.
    shift
        Most elements (of the first array, not whole ones) that a patch is moved, one number or one for each axis.
    spacing
        Distances of a patch's elements along its axes, in the units of the first of the OME images, which all arrays
        must be: images of other voxel sizes look alike. Of each, the coarsest level is read whose elements are no
        further apart. None for the elements of level 0.
    interpolation
        ``"linear"``, ``"nearest"`` or ``"cubic"``, for posed patches; or a dict of these by the arrays' names: labels
        need ``"nearest"``. An array that is not named is linear. Cubic splines need 28 elements more around a patch.
    dtype
        Data type of posed patches that are interpolated; None for that of the array, to which values are rounded, and
        where patches are not posed.

    Notes
    -----
    With one of ``rotate``, ``scale``, ``flip``, ``shear``, ``shift`` and ``spacing``, patches are posed: resampled
    from what was read around them, all arrays of a sample in one pose. What lies beyond the ends is ``pad``, which must
    not be None. Poses depend on the loader's seed, the epoch and the sample only.

    Several arrays show one region: each has the shape of the first along the patch's axes, or is smaller by whole
    factors (levels of a pyramid), by which the patch's shape and place can be divided; ``jitter`` draws such places.
    Scales of OME images and of their levels tell the factors; of arrays, their lengths do, and lengths that may mean
    several factors are refused. With ``spacing``, each has elements of any size, and all patches have one shape.
    """

    shape: EachAxis
    stride: EachAxis | None = None
    jitter: bool = False
    halo: EachAxis = 0
    pad: Pad | None = "reflect"
    where: Any = field(default=None, compare=False, repr=False)
    weights: Any = field(default=None, compare=False, repr=False)
    axes: Integers | None = None
    samples: int | None = None
    replace: bool = True
    rotate: Rotate | None = None
    scale: Sequence[float] | None = None
    flip: Flip | None = None
    shear: float | None = None
    shift: float | Sequence[float] | None = None
    spacing: Sequence[float] | None = None
    interpolation: Interpolations = "linear"
    dtype: Any = None

    def of_volumes(self, volumes: Sequence[Mapping[str, ExportedArray]]) -> Sequence[Sampler]:
        """As for :class:`Sampler`."""
        where = self.where
        if isinstance(where, str):
            for i, arrays in enumerate(volumes):
                if where not in arrays:
                    raise ArgumentError(f"where={where!r} names no array of volume {i}, which has {sorted(arrays)}")
            return [dataclasses.replace(self, where=arrays[where]) for arrays in volumes]
        if not _is_one_for_each(where, len(patch_integers("shape", self.shape, None, 1))):
            return [self] * len(volumes)
        if len(where) != len(volumes):
            raise ArgumentError(f"where= has {len(where)} masks, one for each volume, and there are {len(volumes)}")
        return [dataclasses.replace(self, where=own) for own in where]

    @property
    def is_posed(self) -> bool:
        """Whether patches are posed."""
        options = (self.rotate, self.scale, self.flip, self.shear, self.shift, self.spacing)
        return any(is_given(option) for option in options)

    def bind(self, arrays: Mapping[str, Geometry], most_bytes: int) -> Samples:
        """As for :class:`Sampler`."""
        shape = patch_integers("shape", self.shape, None, 1)
        k, jitter = len(shape), flag("jitter", self.jitter)
        halo = patch_integers("halo", self.halo, k, 0)
        posed = PosedPatches.of(self, arrays, shape, halo) if self.is_posed else None
        if posed is None:
            check_unposed(self.interpolation, self.dtype, arrays)
        if posed is not None:
            # From here on, in elements of the first array.
            shape = posed.room
        stride = shape if self.stride is None else patch_integers("stride", self.stride, k, 1)
        if self.pad is not None and not is_one_of(self.pad, get_args(Pad)):
            hint = name_of_numpy(self.pad)
            raise ArgumentError(f"pad must be one of {', '.join(get_args(Pad))} or None, not {quote(self.pad)}{hint}")
        placed = {name: self._axes(name, array, k) for name, array in arrays.items()}
        first = next(iter(arrays))
        names = _along(arrays[first].names, placed[first])
        for name, array in arrays.items():
            _check_names(name, names, _along(array.names, placed[name]))
        if is_image(self.where) or is_level(self.where):
            masked = names_of(self.where)
            _check_names("the mask where=", names, None if masked is None else masked[-k:])
        size = tuple(arrays[first].shape[axis] for axis in placed[first])
        inside = all(h == 0 for h in halo) or self.pad is not None
        if self.pad is None and any(w > n for w, n in zip(shape, size, strict=True)):
            raise ArgumentError(f"patches of shape {shape} do not fit an array of {size} without padding")
        if not inside:
            raise ArgumentError("a halo needs pad=: patches at the edge have elements outside of the array")
        if self.pad is None and not jitter:
            counts = tuple((n - w) // s + 1 for n, w, s in zip(size, shape, stride, strict=True))
        else:
            counts = tuple(-(-n // s) for n, s in zip(size, stride, strict=True))
        parts, footprints = [], []
        whole: dict[str, tuple[int, ...]] = {}
        spacing = _along(arrays[first].spacing, placed[first])
        for name, array in arrays.items():
            axes = placed[name]
            if posed is not None and posed.have_spacing:
                known = posed.factors(name, array, axes, size)
                part, footprint = posed.part(name, array, axes, known, size, stride, self.pad)
            else:
                factors = _factors(name, array, axes, size, spacing)
                _check_multiples(name, axes, factors, shape if posed is None else posed.patch, stride, halo)
                if posed is not None:
                    part, footprint = posed.part(name, array, axes, factors, size, stride, self.pad)
                else:
                    part, footprint = self._part(name, array, axes, factors, size, shape, stride, halo)
                    whole[name] = factors
            parts.append(part)
            footprints.append(footprint)
        chosen, shown, weights = self._chosen(size, shape, stride, counts, spacing, with_elements=jitter)
        # Posed patches are resampled, at any place.
        unit = tuple(math.lcm(*each) for each in zip(*whole.values(), strict=True)) if whole else (1,) * k
        if chosen is not None:
            _check_places(chosen, unit, whole)
        there = math.prod(counts) if chosen is None else len(chosen)
        number = checked_number(self.samples, there, weights, replace=self.replace)
        target = PATCHES_AMPLIFICATION if jitter else WINDOWS_AMPLIFICATION
        if not all(part.posed is None or part.posed.copies for part in parts):
            lengths = group_lengths(footprints, counts, POSED_AMPLIFICATION, most_bytes)
        elif jitter and chosen is None:
            # In a group of two chunks along each axis, patches of up to a chunk's length have room to lie anywhere.
            main = max(footprints, key=lambda f: f.weight)
            lengths = tuple(
                max(min(math.ceil(max(2 * c, 2 * w) / s), n), 1)
                for c, w, s, n in zip(main.chunk, main.length, stride, counts, strict=True)
            )
        else:
            lengths = group_lengths(footprints, counts, target, most_bytes)
        if jitter:
            # Along an axis that is too short, there is one place: patches lie at 0, and are padded. So are the last
            # ones if an element of a smaller array ends beyond the axis.
            ends = (n // u * u if self.pad is None else -(-n // u) * u for n, u in zip(size, unit, strict=True))
            size = tuple(map(max, ends, shape))
        return Samples(
            tuple(parts), counts, stride, lengths, size, chosen, weights, shape if jitter else None,
            number=number, replace=self.replace, posed=posed is not None, shown=shown,
            unit=unit if jitter and max(unit) > 1 else None,
        )  # fmt: skip

    def _axes(self, name: str, array: Geometry, k: int) -> tuple[int, ...]:
        ndim = len(array.shape)
        return patch_axes(self.axes, k, ndim, f"{name or 'the array'} of shape {array.shape}")

    def _part(
        self,
        name: str,
        array: Geometry,
        axes: tuple[int, ...],
        of_axes: tuple[int, ...],
        size: tuple[int, ...],
        shape: tuple[int, ...],
        stride: tuple[int, ...],
        halo: tuple[int, ...],
    ) -> tuple[Part, Footprint]:
        """Return the part of an array, and its footprint in elements of the first array."""
        ndim = len(array.shape)
        window, low, factors = list(array.shape), [0] * ndim, [1] * ndim
        grid_axes: list[int | None] = [None] * ndim
        for i, axis in enumerate(axes):
            factor = of_axes[i]
            window[axis], low[axis] = (shape[i] + 2 * halo[i]) // factor, -halo[i] // factor
            factors[axis], grid_axes[axis] = factor, i
        part = Part((name,), name, tuple(window), tuple(low), tuple(grid_axes), tuple(factors), self.pad)
        footprint = Footprint(
            stride,
            tuple(-h for h in halo),
            tuple(w + 2 * h for w, h in zip(shape, halo, strict=True)),
            tuple(array.chunks[axis] * factors[axis] for axis in axes),
            size,
            array.nbytes,
            array.is_light,
        )
        return part, footprint

    def _chosen(
        self,
        size: tuple[int, ...],
        shape: tuple[int, ...],
        stride: tuple[int, ...],
        counts: tuple[int, ...],
        spacing: tuple[float, ...] | None,
        *,
        with_elements: bool,
    ) -> tuple[IntArray | None, IntArray | None, npt.NDArray[np.float64] | None]:
        """Return the chosen origins, elements of a mask that they were chosen for, and their weights."""
        where = self.where
        if where is None and self.weights is None:
            return None, None, None
        if isinstance(where, str) or _is_one_for_each(where, len(size)):
            raise ArgumentError("where= by the name of an array, or by volumes, is for a Loader: give the mask itself")
        with fitting(
            f"the choice by {'weights' if where is None else 'where'}= among patches of {counts} in an array of {size}",
            f"list the first elements of those that are samples, where= of shape (n, {len(size)}), or give a mask of "
            "a lower resolution, or a larger stride",
        ):
            if where is None:
                # Before all patches are listed, of which there may be too many.
                checked_weights(self.weights, math.prod(counts))
                where = np.ones(counts, bool)
            if not _is_stored(where):
                where = _mask_of_labels(as_array("where", where), len(size))
            found = cells_of_mask(where, size, stride, counts, spacing, with_elements=with_elements)
            cells, shown = (None, None) if found is None else found
            if cells is not None:
                # Those of the grid are inside, or random places are.
                chosen = cells * np.array(stride)
            else:
                chosen = listed(where, size, "patches", counts)
                if self.pad is None and (chosen + np.array(shape) > np.array(size)).any():
                    raise ArgumentError("where= has patches that are not inside of the array; choose a padding")
            return chosen.astype(np.int64), shown, checked_weights(self.weights, len(chosen))


def _is_stored(where: Any) -> bool:
    """Return whether a mask is an array of gzarr, or an image or a level of one."""
    return isinstance(where, ExportedArray) or is_image(where) or is_level(where)


def _is_coordinates(found: npt.NDArray[Any], k: int) -> bool:
    return found.dtype.kind in "iu" and found.ndim == 2 and found.shape[1] == k


def _mask_of_labels(found: npt.NDArray[Any], k: int) -> npt.NDArray[Any]:
    """Return the mask of labels of ``k`` axes; other arrays as they are. Of ``(n, 2)``, integers are coordinates."""
    is_labels = found.dtype.kind in "iu" and found.ndim == k > 1 and not _is_coordinates(found, k)
    return found != 0 if is_labels else found


def _is_one_for_each(where: Any, k: int) -> bool:
    """Return whether ``where`` is a list of masks or of first elements, each of which is whole: not a list of rows."""

    def is_whole(one: Any) -> bool:
        if _is_stored(one):
            return not isinstance(one, ExportedArray) or one.ndim >= k
        if not hasattr(one, "__array__"):
            return False
        found = as_array("where", one)
        return (found.ndim == k and (k > 1 or found.dtype == bool)) or _is_coordinates(found, k)

    return isinstance(where, (list, tuple)) and len(where) > 0 and all(map(is_whole, where))


def _along(known: tuple[T, ...] | None, axes: tuple[int, ...]) -> tuple[T, ...] | None:
    """Return what is known along some axes of an array, such as distances; None if it is not known."""
    return None if known is None else tuple(known[axis] for axis in axes)


def _check_names(what: str, first: tuple[str, ...] | None, other: tuple[str, ...] | None) -> None:
    """Refuse an array whose axes have another order than those of the first one."""
    if misplaced(first, other):
        assert first is not None
        assert other is not None
        raise ArgumentError(
            f"{what} has the axes {', '.join(other)} where the first image has {', '.join(first)}, and patches are of "
            "axes in one order: write it again with its axes in the order of the first image"
        )


def _factors(
    name: str, array: Geometry, axes: tuple[int, ...], size: tuple[int, ...], spacing: tuple[float, ...] | None
) -> tuple[int, ...]:
    """Return how many elements of the first array one element of an array stands for along its axes."""
    lengths = tuple(array.shape[axis] for axis in axes)
    found = whole_factors(name, size, lengths, ratios_of(spacing, _along(array.spacing, axes)))
    for n, length, factor in zip(size, lengths, found, strict=True):
        if factor < 1:
            raise ArgumentError(f"{name} has {length} elements where the first array has {n}")
    return tuple(map(int, found))


def _check_multiples(
    name: str,
    axes: tuple[int, ...],
    factors: tuple[int, ...],
    shape: tuple[int, ...],
    stride: tuple[int, ...],
    halo: tuple[int, ...],
) -> None:
    """Check that patches of the first array begin and end where elements of an array do."""
    for axis, factor, length, step, more in zip(axes, factors, shape, stride, halo, strict=True):
        if length % factor or step % factor or more % factor:
            raise ArgumentError(
                f"{name} is smaller than the first array by {factor} along axis {axis}; the patch's shape "
                f"{length}, stride {step} and halo {more} must be multiples of that"
            )


def _check_places(chosen: IntArray, unit: tuple[int, ...], factors: Mapping[str, tuple[int, ...]]) -> None:
    """Check that patches at given places begin where elements of all arrays do, by the factor of each."""
    wrong = (chosen % np.array(unit)).any(axis=1)
    if wrong.any():
        place = tuple(chosen[wrong.argmax()].tolist())
        name = next(n for n, own in factors.items() if any(p % f for p, f in zip(place, own, strict=True)))
        near = tuple(p // u * u for p, u in zip(place, unit, strict=True))
        raise ArgumentError(
            f"where= has a patch at {place}, where no element of {name} begins: it is smaller than the first array by "
            f"{factors[name]}; the first elements of patches must be multiples of {unit}, such as {near}"
        )


def patch_integers(name: str, value: Any, k: int | None, least: int) -> tuple[int, ...]:
    """Return one integer for each axis; a single one stands for all ``k``."""
    # Arrays without axes are no collections.
    items = None if isinstance(value, (set, frozenset, Mapping)) else several(value)
    numbers = integers((value,) * (1 if k is None else k) if items is None else items, least)
    if not numbers or (k is not None and len(numbers) != k):
        raise ArgumentError(
            f"{name} must be integers of at least {least}, one for each axis of a patch, not {quote(value)}"
        )
    return numbers


def patch_axes(axes: Any, k: int, ndim: int, what: str) -> tuple[int, ...]:
    """Return the axes of an array that patches of ``k`` axes are along: by default, the last ones."""
    found = tuple(range(ndim - k, ndim)) if axes is None else integers(axes)
    if len(found) != k or len(set(found)) != k or any(not 0 <= axis < ndim for axis in found):
        given = "" if axes is None else f" {quote(axes)}: axes= must be {k} different integers of at least 0"
        raise ArgumentError(f"{what} has no patches of {k} axes{given}")
    return found


def is_default(value: Any, default: Any) -> bool:
    """Return whether an option is what it is by default. Arrays, of any library, are not: they compare by elements."""
    is_array = hasattr(value, "__array__") and not isinstance(value, np.generic)
    return not is_array and bool(value == default)


def part_along(
    name: str,
    array: Geometry,
    axis: int,
    shape: tuple[int, ...],
    low: int,
    *,
    names: tuple[str, ...] | None = None,
    take: tuple[Any, ...] = (),
    steps: tuple[int, ...] = (),
) -> Part:
    """Return the part of an array that moves along one axis with the samples."""
    ndim = len(array.shape)
    axes = tuple(0 if d == axis else None for d in range(ndim))
    lows = tuple(low if d == axis else 0 for d in range(ndim))
    return Part((name,) if names is None else names, name, shape, lows, axes, (1,) * ndim, None, take, steps)


def replaced(shape: tuple[int, ...], axis: int, length: int) -> tuple[int, ...]:
    """Return a shape with another length along an axis."""
    return (*shape[:axis], length, *shape[axis + 1 :])


def sampler_of(given: Sampler | None) -> Sampler:
    """Return the sampler that a user gave; rows for None."""
    given = Rows() if given is None else given
    if not isinstance(given, Sampler):
        raise ArgumentError(f"sampler must be Rows(...), Patches(...), Windows(...) or the like, not {quote(given)}")
    return given


def with_options(sampler: S, **options: Any) -> S:
    """Return a sampler with some other options, also one of a class whose ``__init__`` takes others."""
    result = copy.copy(sampler)
    for name, value in options.items():
        object.__setattr__(result, name, value)
    return result


def refuse_balance(balance: Any) -> None:
    """Refuse classes that were not read, where samples are asked for one by one."""
    if balance is not None:
        raise ArgumentError("balance= has no meaning where samples are asked for by number")


def chosen_of(where: Any, shape: tuple[int, ...], what: str) -> IntArray:
    """Return coordinates, int64 ``(n, k)``, from a mask, numbers (of one axis) or coordinates."""
    found = as_array("where", where)
    if found.dtype == bool:
        if found.shape != shape:
            raise ArgumentError(f"the mask where= has shape {found.shape}, but there are {shape} {what}")
        return np.argwhere(found).astype(np.int64)
    return listed(found, shape, what)


def listed(
    found: npt.NDArray[Any], shape: tuple[int, ...], what: str, counts: tuple[int, ...] | None = None
) -> IntArray:
    """Check coordinates and return them, int64 ``(n, k)``; ``counts`` is another shape that a mask may have."""
    if found.ndim == 1 and len(shape) == 1:
        # Masks are stored as integers, too. Of 2 elements, these may be the numbers 0 and 1.
        is_long = len(found) > 2 and found.shape in (shape, counts)
        if is_long and found.dtype.kind in "iu" and not (found.astype(bool) != found).any():
            raise ArgumentError(
                f"where= has {len(found)} integers, all of them 0 or 1, as a mask has: give where.astype(bool); or, "
                f"for the {what} 0 and 1 that many times, where[:, np.newaxis]"
            )
        found = found[:, np.newaxis]
    if found.ndim != 2 or found.shape[1] != len(shape) or (found.dtype.kind not in "iu" and found.size):
        raise ArgumentError(
            f"where= must be a mask or integers of shape (n, {len(shape)}), not {found.dtype} of shape {found.shape}"
        )
    if found.size and ((found < 0).any() or (found >= np.array(shape)).any()):
        raise ArgumentError(f"where= has {what} outside of {shape}")
    return found.astype(np.int64)
