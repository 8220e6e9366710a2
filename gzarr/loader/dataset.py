"""Samples one by one or by lists of numbers, for other libraries' loaders."""

from __future__ import annotations

import math
import operator
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any

import numpy as np

from ..cached import cached_property
from ..distinct import distinct
from ..documents.json import quote
from ..errors import ArgumentError, SelectionError
from ..guarded import ForkSafeLock
from .arguments import integer
from .cells import times_before
from .inputs import levels_of
from .memory import memory_of
from .permutation import mix
from .reading import Reading
from .samplers import sampler_of
from .samples import Geometry
from .volumes import as_they_are

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy.typing as npt

    from ..windows.inputs import Input
    from .cells import Cells, IntArray
    from .samplers import Sampler

# Held while samples that were asked for are counted.
_counting = ForkSafeLock()


class Dataset:
    """Samples by number: a map-style dataset of PyTorch, and a random-access data source of grain.

    ``dataset[i]`` reads one sample, ``dataset.__getitems__([…])`` reads many in one plan, as PyTorch's ``DataLoader``
    asks for them. The numbers are in the samples' own order; who asks, shuffles. A dataset can be pickled, and used in
    forked processes.

    Random places (``jitter``) and poses are drawn anew each time that a sample is asked for, several times in one list
    of numbers, too, and in the worker processes of a ``DataLoader``, whose seeds are PyTorch's. Other processes (ranks,
    workers of other libraries) all begin with the same draws: give each another ``seed``.

    After :meth:`set_epoch`, places and poses belong to that epoch: the same list of numbers has the same ones in every
    call and in every process. A sample that is several times in a list has one for each time, but if it is asked for
    again in another call, it begins with the same one.

    Parameters
    ----------
    arrays
        One array, or arrays by name, as for :class:`gzarr.Loader`.
    sampler
        What a sample is; :class:`Rows` by default.
    seed
        Integer for random places; its last 64 bits count.

    Raises
    ------
    ArgumentError
        If the arrays do not fit the sampler, or if it weighs samples (the one who asks for numbers does that).
    """

    def __init__(self, arrays: Input | Mapping[str, Input], sampler: Sampler | None = None, *, seed: int = 0) -> None:
        # They are what they are now, whatever becomes of the user's.
        sampler = sampler_of(sampler)._kept()
        volumes, (axes,) = levels_of([arrays], sampler.spacing)
        (self._arrays,) = as_they_are(volumes)
        if not self._arrays:
            raise ArgumentError("a dataset needs at least one array")
        if sampler.static:
            raise ArgumentError("static= is for batches: samples by number are put together by others")
        geometries = {
            n: Geometry(a.shape, a.chunks, a.dtype, axes[n].spacing, names=axes[n].names)
            for n, a in self._arrays.items()
        }
        self._stage = sampler.stage(0)
        own = sampler.at_stage(self._stage)
        # What other stages are made of is kept if there are any: copies in other processes have no use for it else.
        self._staged = None if own is sampler else (sampler, geometries)
        self._samples = own.bind(geometries, 1)
        if self._samples.is_weighed:
            raise ArgumentError("weights, samples= and every= have no meaning where samples are asked for by number")
        self._seed = integer("seed", seed, most=math.inf)
        self._epoch: int | None = None
        # How often each sample was asked for, if that matters.
        self._asked: npt.NDArray[np.uint32] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what was asked for here, and what is made when it is needed."""
        return {name: value for name, value in self.__dict__.items() if name != "_cells"} | {"_asked": None}

    @cached_property
    def _cells(self) -> Cells:
        """The cells of all epochs and stages: all samples are there in each, in one group."""
        return self._samples.cells(self._seed, 0, grouped=False)

    def set_epoch(self, epoch: int) -> None:
        """Draw random places for an epoch from now on; workers that run already do not see that.

        With ``rollout=``, samples have the steps of this epoch; before this, those of epoch 0.

        Parameters
        ----------
        epoch
            Number of the epoch, at least 0.

        Raises
        ------
        ArgumentError
            If it is no such number.
        """
        epoch = integer("epoch", epoch)
        if self._staged is not None:
            sampler, geometries = self._staged
            stage = sampler.stage(epoch)
            if stage != self._stage:
                self._stage, self._samples = stage, sampler.at_stage(stage).bind(geometries, 1)
        self._epoch = epoch

    def __len__(self) -> int:
        """Return the number of samples."""
        return self._samples.count

    def __getitem__(self, number: int) -> dict[str, Any]:
        """Read a sample: its arrays by name.

        Raises
        ------
        IndexError
            If there is no such sample.
        SelectionError
            If it is no integer.
        ChunkError
            If a chunk cannot be read.
        """
        try:
            at = operator.index(number)
        except TypeError:
            raise SelectionError(f"a sample is asked for by its number, not by {quote(number)}") from None
        count = len(self)
        if not -count <= at < count:
            raise IndexError(f"there are {count} samples, none with the number {quote(at)}")
        return self.__getitems__([at % count])[0]

    def __getitems__(self, numbers: Sequence[int]) -> list[dict[str, Any]]:
        """Read some samples in one plan, each chunk once; negative numbers count from the end, as for one sample.

        Raises
        ------
        SelectionError
            If there is no such sample, or if they are no integers.
        ChunkError
            If a chunk cannot be read.
        """
        given = np.asarray(numbers)
        # Of other numbers, NumPy would drop the fraction.
        if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
            raise SelectionError(f"samples are asked for by a list of their numbers, not by {quote(numbers)}")
        count = len(self)
        ends = (int(given.min()), int(given.max())) if given.size else ()
        if wrong := [at for at in ends if not -count <= at < count]:
            raise SelectionError(f"there are {count} samples, none with the number {quote(wrong[0])}")
        wanted = given.astype(np.int64) % max(count, 1)
        origins = self._origins(wanted)
        reading = Reading.of(self._samples.parts, self._arrays)
        with closing(memory_of(reading.sources[0].array.device)) as memory:
            arrays = [output.empty(len(wanted), memory) for output in reading.outputs]
            for source in reading.sources:
                source.read(origins, [arrays[source.number]], memory)
            empty: dict[str, Any] = {}
            batch = reading.place(empty, arrays)
            mark = reading.separate(batch, memory, memory.mark())
            whole = memory.hand_over(batch, mark, None, copy=True)
        return [_sample(whole, i) for i in range(len(wanted))]

    def _origins(self, wanted: IntArray) -> IntArray:
        """Return the origins of samples, int64 ``(n, columns)``."""
        samples, seed = self._samples, self._seed
        is_random = samples.jitter is not None or samples.posed
        draws = times_before(wanted) if is_random else np.zeros(len(wanted), np.int64)
        if is_random and self._epoch is None:
            # Threads that ask for the same sample have another place each.
            with _counting.lock:
                if self._asked is None:
                    self._asked = np.zeros(len(self), np.uint32)
                draws += self._asked[wanted]
                np.add.at(self._asked, wanted, 1)
            # A worker has a seed of its own, also where each epoch has new workers.
            torch_data = sys.modules.get("torch.utils.data")
            worker = None if torch_data is None else torch_data.get_worker_info()
            seed = seed if worker is None else mix(seed, worker.seed)
        result = np.empty((len(wanted), samples.columns), np.int64)
        for draw in distinct(draws).tolist():
            here = draws == draw
            key, epoch = seed, draw
            if self._epoch is not None:
                # Whoever asks, and whatever was asked for before: epochs are repeated, and resumed.
                key, epoch = mix(seed, draw) if draw else seed, self._epoch
            result[here] = samples.origins(self._cells, wanted[here], key, epoch)
        return result

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Read all samples, one by one."""
        return (self[i] for i in range(len(self)))


def _sample(batch: dict[str, Any], i: int) -> dict[str, Any]:
    return {name: _sample(value, i) if isinstance(value, dict) else value[i] for name, value in batch.items()}
