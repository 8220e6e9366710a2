"""Samples that are steps of a series: runs of them, or some at given distances."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ..documents.json import quote
from ..errors import ArgumentError
from .arguments import as_array, by_name, common_length, integer, integers, own_array, own_numbers
from .cells import Footprint, group_lengths
from .samplers import (
    HASHED,
    WINDOWS_AMPLIFICATION,
    Sampler,
    chosen_of,
    part_along,
    refuse_balance,
    replaced,
    with_options,
)
from .samples import Samples
from .weighing import balanced, checked_number, checked_weights, classes_of, own_weights

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from ..arrays.exporting import ExportedArray
    from ..integers import Integers
    from .cells import IntArray
    from .samples import Geometry


@dataclass(frozen=True, repr=False)
class Windows(Sampler):
    """Steps along an axis, such as inputs and targets of a forecast: runs of consecutive ones, or any distances.

    Parameters
    ----------
    axis
        Axis of the steps in each array, at least 0; all arrays have the same length along it.
    runs
        First and last step of each run, relative to the sample's step and both included: with ``{"x": (-2, 0), "y": (1,
        4)}``, ``batch["x"]`` has three steps and ``batch["y"]`` four; of several arrays, ``batch["x"]["name"]``.
    stride
        Distance between the steps of neighbouring samples, the first of which is the first one whose runs are inside of
        the arrays. Not for a list of steps in ``where``.
    where
        Steps of the samples, or a mask along the axis, of which those ``stride`` apart are taken; None for all whose
        runs are inside of the arrays.
    steps
        Instead of ``runs``: each step, relative to the sample's: with ``{"x": (-12, -6, 0), "y": (6,)}``, a sample has
        three and one, and those in between are not read.
    valid
        Mask along the axis of the steps that there are: samples that need another one are left out. None if there are
        all.
    static
        Arrays that each batch has as they are, by name: without an axis of samples or steps. They are read once, when
        the loader is made. None for none.
    every
        Distance between the samples of one epoch in the list of all of them. Each epoch begins with another of the
        first ``every`` samples, until each of them has been the first. An epoch is that much shorter.
    rollout
        How many steps some runs (or ``steps``) have in the epochs 0, 1, 2, and so on: the first ones of them, and in
        later epochs as many as in the last one named. With ``{"y": (1, 1, 2, 4)}``, ``batch["y"]`` has one step in the
        first two epochs. The samples are those that have all steps. None for all steps in each epoch.
    weights, balance, samples, replace
        As for :class:`gzarr.loader.Rows`, for the sample's step along the axis instead of the row.
    """

    axis: int
    runs: Mapping[str, Integers] | None = None
    stride: int = 1
    where: Any = field(default=None, compare=False, repr=False)
    steps: Mapping[str, Integers] | None = None
    valid: Any = field(default=None, compare=False, repr=False)
    static: Mapping[str, Any] | None = field(default=None, compare=False, repr=False)
    every: int = 1
    rollout: Mapping[str, Integers] | None = None
    weights: Any = field(default=None, compare=False, repr=False)
    balance: Any = field(default=None, compare=False, metadata=HASHED)
    samples: int | None = None
    replace: bool = True

    def bind(self, arrays: Mapping[str, Geometry], most_bytes: int) -> Samples:
        """As for :class:`Sampler`."""
        return self._bound(arrays, most_bytes, self._offsets())

    def of_volumes(self, volumes: Sequence[Mapping[str, ExportedArray]]) -> Sequence[Sampler]:
        """As for :class:`Sampler`."""
        return [self] * len(volumes) if self.balance is None else balanced(self, volumes)

    def _kept(self) -> Windows:
        """As for :class:`Sampler`."""
        return with_options(
            self,
            where=own_array("where", self.where),
            valid=own_array("valid", self.valid),
            weights=own_weights(self.weights),
            **{name: own_numbers(getattr(self, name)) for name in ("runs", "steps", "rollout")},
        )

    def stage(self, epoch: int) -> int:
        """As for :class:`Sampler`."""
        rollout = self._rollout()
        now = [numbers[min(epoch, len(numbers) - 1)] for numbers in rollout.values()]
        return next(
            stage
            for stage in range(epoch + 1)
            if [numbers[min(stage, len(numbers) - 1)] for numbers in rollout.values()] == now
        )

    def at_stage(self, stage: int) -> Sampler:
        """As for :class:`Sampler`."""
        rollout = self._rollout()
        if not rollout:
            return self
        return _Stage(self, {name: numbers[min(stage, len(numbers) - 1)] for name, numbers in rollout.items()})

    def rows(self, size: int) -> IntArray:
        """Return the steps of the samples, int64 ``(n,)``.

        Parameters
        ----------
        size
            Number of all steps.
        """
        offsets = self._offsets()
        low = min(map(min, offsets.values()))
        chosen, count, stride = self._chosen(size, offsets, self._where())
        return _rows(chosen, count, stride, low)

    def _bound(self, arrays: Mapping[str, Geometry], most_bytes: int, taken: Mapping[str, tuple[int, ...]]) -> Samples:
        """Return the samples of some arrays, with some steps of each run."""
        size = common_length(arrays, self.axis)
        refuse_balance(self.balance)
        offsets = self._offsets()
        where = self._where()
        chosen, count, stride = self._chosen(size, offsets, where)
        low = min(map(min, offsets.values()))
        # There may be a hundred million of them.
        rows = None if self.weights is None else _rows(chosen, count, stride, low)
        # Some of them may be left out, as invalid.
        listed = None if rows is None or where is None else _listed(where, size)
        weights = checked_weights(self.weights, count, size, rows, listed)
        number = checked_number(self.samples, count, weights, replace=self.replace)
        every = integer("every", self.every, 1)
        if every > 1 and (weights is not None or self.samples is not None):
            raise ArgumentError(f"every must be 1 with weights, balance or samples, not {every}")
        first, last = min(map(min, taken.values())), max(map(max, taken.values()))
        length = last - first + 1
        parts, footprints = [], []
        for name, array in arrays.items():
            names = {run: (run, name) if name else (run,) for run in taken}
            ndim = len(array.shape)
            if self.steps is None:
                shape = replaced(array.shape, self.axis, length)
                for run, steps in taken.items():
                    take: list[Any] = [slice(None)] * ndim
                    take[self.axis] = slice(steps[0] - first, steps[-1] - first + 1)
                    parts.append(
                        part_along(name, array, self.axis, shape, first - low, names=names[run], take=tuple(take))
                    )
            else:
                shape = replaced(array.shape, self.axis, 1)
                together, places = _together(taken)
                for run in taken:
                    rest = [slice(None)] * ndim
                    take = [places[run], *rest[: self.axis], 0, *rest[self.axis + 1 :]]
                    parts.append(
                        part_along(
                            name, array, self.axis, shape, -low, names=names[run], take=tuple(take), steps=together
                        )
                    )
            chunk = (array.chunks[self.axis],)
            footprints.append(
                Footprint((stride,), (first - low,), (length,), chunk, (size,), array.nbytes, array.is_light)
            )
        hull = max(map(max, offsets.values())) - low + 1
        cells = count if chosen is None else size - hull + 1
        lengths = group_lengths(footprints, (cells,), WINDOWS_AMPLIFICATION, most_bytes)
        return Samples(
            tuple(parts), (cells,), (stride,), lengths, (size,), None if chosen is None else chosen[:, np.newaxis],
            weights, number=number, replace=self.replace, every=every, begin=(-low,),
            classes=classes_of(self.weights, rows),
        )  # fmt: skip

    def _where(self) -> npt.NDArray[Any] | None:
        """Return the steps or the mask that were given, or None for all steps."""
        return None if self.where is None else as_array("where", self.where)

    def _chosen(
        self, size: int, offsets: Mapping[str, tuple[int, ...]], where: npt.NDArray[Any] | None
    ) -> tuple[IntArray | None, int, int]:
        """Return the origins of the samples, int64 ``(n,)``, or None for all; their number, and their distance.

        The origin of a sample is the first step that it needs.
        """
        stride = integer("stride", self.stride, 1)
        low, high = min(map(min, offsets.values())), max(map(max, offsets.values()))
        length = high - low + 1
        if length > size:
            raise ArgumentError(f"a sample takes {length} steps, but the arrays have {size} along axis {self.axis}")
        count = (size - length) // stride + 1
        if where is None and self.valid is None:
            return None, count, stride
        origins = stride * np.arange(count) if where is None else _listed(where, size) + low
        if len(origins) and (origins.min() < 0 or origins.max() + length > size):
            raise ArgumentError(f"where= has a step whose run {low} to {high} is not inside of the arrays")
        if where is not None and stride > 1:
            if where.dtype != bool:
                raise ArgumentError(
                    f"stride={stride} is for all steps, or those of a mask where=, and this where= is a list of steps: "
                    f"leave stride out, and list those that are samples, such as where[::{stride}]"
                )
            origins = origins[origins % stride == 0]
        if self.valid is not None:
            valid = as_array("valid", self.valid)
            if valid.dtype != bool or valid.shape != (size,):
                raise ArgumentError(
                    f"valid must be a mask of shape ({size},), not {valid.dtype} of shape {valid.shape}"
                )
            for step in sorted({step for steps in offsets.values() for step in steps}):
                origins = origins[valid[origins + step - low]]
        return origins, len(origins), 1

    def _offsets(self) -> dict[str, tuple[int, ...]]:
        """Return the steps of each run, relative to the sample's, in ascending order for ``runs``."""
        if (self.runs is None) == (self.steps is None):
            raise ArgumentError("give runs=, first and last steps, or steps=, each step; one of them")
        if self.steps is None:
            given = by_name("runs", self.runs, '{"x": (-2, 0)}')
        else:
            given = by_name("steps", self.steps, '{"x": (-12, -6, 0)}')
        result = {}
        for name, value in given.items():
            numbers = integers(value)
            if self.steps is None and (len(numbers) != 2 or numbers[0] > numbers[1]):
                raise ArgumentError(
                    f"run {name!r} must be a first and a last step, such as (-2, 0), not {quote(value)}"
                )
            if not numbers:
                raise ArgumentError(f"steps {name!r} must be integers, such as (-12, -6, 0), not {quote(value)}")
            result[name] = tuple(range(numbers[0], numbers[1] + 1)) if self.steps is None else numbers
        if not result:
            raise ArgumentError("at least one run is needed")
        return result

    def _rollout(self) -> dict[str, tuple[int, ...]]:
        """Return how many steps some runs have in each epoch."""
        offsets, result = self._offsets(), {}
        for name, value in by_name("rollout", self.rollout, '{"y": (1, 1, 2)}').items():
            numbers = integers(value)
            most = len(offsets.get(name, ()))
            if not numbers or min(numbers) < 1 or max(numbers) > most:
                raise ArgumentError(
                    f"rollout must have numbers of steps, one for each epoch, of runs among {sorted(offsets)}, and no "
                    f"more than these have; not {quote(value)} for {name!r}"
                )
            result[name] = numbers
        return result


@dataclass(frozen=True)
class _Stage(Sampler):
    """The samples of some epochs, with fewer steps.

    Attributes
    ----------
    windows
        The sampler.
    numbers
        How many steps some runs have.
    """

    windows: Windows
    numbers: Mapping[str, int]

    def bind(self, arrays: Mapping[str, Geometry], most_bytes: int) -> Samples:
        """As for :class:`Sampler`."""
        offsets = self.windows._offsets()
        taken = {name: steps[: self.numbers.get(name, len(steps))] for name, steps in offsets.items()}
        return self.windows._bound(arrays, most_bytes, taken)


def _listed(where: npt.NDArray[Any], size: int) -> IntArray:
    """Return the steps that a mask or a list of them means, int64 ``(n,)``."""
    return chosen_of(where, (size,), "steps")[:, 0]


def _rows(chosen: IntArray | None, count: int, stride: int, low: int) -> IntArray:
    """Return the steps of the samples, the first step of which is ``low`` from it, int64 ``(n,)``."""
    return stride * np.arange(count) - low if chosen is None else chosen - low


def _together(taken: Mapping[str, tuple[int, ...]]) -> tuple[tuple[int, ...], dict[str, slice]]:
    """Return the steps of all runs, and which of them each run has: each step once, if runs are slices of them then."""
    once = sorted({step for steps in taken.values() for step in steps})
    places = {}
    for run, steps in taken.items():
        at = [once.index(step) for step in steps]
        distances = {b - a for a, b in pairwise(at)}
        if len(distances) > 1 or min(distances, default=1) < 1:
            break
        places[run] = slice(at[0], at[-1] + 1, min(distances, default=1))
    if len(places) == len(taken):
        return tuple(once), places
    begin, places = 0, {}
    for run, steps in taken.items():
        places[run] = slice(begin, begin + len(steps))
        begin += len(steps)
    return tuple(step for steps in taken.values() for step in steps), places
