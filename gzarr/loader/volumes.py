"""The samples of one or more volumes: arrays of one geometry each, from which one epoch is drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..arrays.writing import WritableArray
from ..cached import cached_property
from ..distinct import distinct
from ..engines.cpu.batch import available
from ..errors import ArgumentError
from .boxes import group_bytes
from .drawing import drawn, drawn_counts, fitted, total_count
from .permutation import mix
from .reading import Reading
from .row_sizes import row_group_bytes, row_sample_bytes
from .samples import COUNTS, RESAMPLING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy.typing as npt

    from ..arrays.exporting import ExportedArray
    from .cells import Cells
    from .reading import Source
    from .samples import Part, Samples

    IntArray = npt.NDArray[np.int64]

# Most bytes of a sample that takes longer to plan for than to copy.
_NARROW_BYTES = 512
# Gathering from slabs costs a copy: it is for samples of which the slabs are at most this part.
_MUCH_LESS = 0.75


def as_they_are(volumes: Sequence[Mapping[str, ExportedArray]]) -> list[dict[str, ExportedArray]]:
    """Return volumes of arrays that keep their shapes when those of users are resized, as views do anyway."""
    kept: dict[int, ExportedArray] = {}

    def same(array: ExportedArray) -> ExportedArray:
        # One that has several names, or is in several volumes, stays one.
        return kept.setdefault(id(array), array._same() if isinstance(array, WritableArray) else array)

    return [{name: same(array) for name, array in volume.items()} for volume in volumes]


@dataclass(frozen=True, eq=False)
class Volume:
    """One volume.

    Attributes
    ----------
    samples
        Its samples.
    reading
        What is read for a sample.
    """

    samples: Samples
    reading: Reading

    @classmethod
    def of(cls, samples: Samples, arrays: Mapping[str, ExportedArray], *, dense: bool = True) -> Volume:
        """Return the volume of some arrays by name; rows of matrices stay sparse if not ``dense``."""
        return cls(samples, Reading.of(samples.parts, arrays, dense=dense))

    @property
    def sources(self) -> list[Source]:
        """The windows to read for a sample."""
        return self.reading.sources


@dataclass(frozen=True, eq=False)
class VolumesCells:
    """The cells of an epoch: of the first volume, then of the second, and so on.

    Attributes
    ----------
    each
        Cells of each volume.
    first
        int64 ``(volumes + 1,)``, number of the first sample of each volume, and the number of all.
    first_label
        The same of what users call the samples.
    offsets
        int64 ``(groups + 1,)``: group ``g`` has the samples ``offsets[g]`` to ``offsets[g + 1]``.
    """

    each: list[Cells]
    first: IntArray
    first_label: IntArray
    offsets: IntArray

    def volumes(self, numbers: IntArray) -> IntArray:
        """Return the volume of each sample."""
        return np.searchsorted(self.first, numbers, "right") - 1

    def parts(self, numbers: IntArray) -> Iterator[tuple[int, IntArray, IntArray]]:
        """Yield each volume that has some of the samples, their places in ``numbers``, and their own numbers there."""
        if len(self.each) == 1:
            if len(numbers):
                yield 0, np.arange(len(numbers)), numbers
            return
        volumes = self.volumes(numbers)
        for volume in distinct(volumes).tolist():
            places = np.flatnonzero(volumes == volume)
            yield volume, places, numbers[places] - self.first[volume]

    def groups_of_volumes(self, groups: IntArray) -> Iterator[tuple[int, IntArray]]:
        """Yield each volume that has some of the groups, which are ascending, and their own numbers there."""
        ends = np.cumsum([len(cells.offsets) - 1 for cells in self.each])
        for volume, (end, cells) in enumerate(zip(ends.tolist(), self.each, strict=True)):
            begin = end - (len(cells.offsets) - 1)
            low, high = groups.searchsorted([begin, end]).tolist()
            if high > low:
                yield volume, groups[low:high] - begin

    def labels(self, numbers: IntArray) -> IntArray:
        """Return what users call each sample: its number in its volume, counted on from the volumes before."""
        result = np.empty_like(numbers)
        for volume, places, own in self.parts(numbers):
            result[places] = self.first_label[volume] + self.each[volume].labels(own)
        return result


@dataclass(frozen=True, eq=False)
class Volumes:
    """All volumes of a loader; their samples have the same arrays, of the same shapes and dtypes.

    Attributes
    ----------
    each
        The volumes.
    """

    each: list[Volume]

    def __post_init__(self) -> None:
        first, *others = ({part.array for part in volume.samples.parts} for volume in self.each)
        for i, names in enumerate(others, 1):
            for has, lacks, missing in ((0, i, first - names), (i, 0, names - first)):
                if missing:
                    which = ", ".join(repr(name) if name else "an array without a name" for name in sorted(missing))
                    raise ArgumentError(
                        f"volume {lacks} lacks {which}, which volume {has} has: samples of all volumes need arrays of "
                        "the same names"
                    )
        forms = [tuple(volume.reading.outputs) for volume in self.each]
        if other := next((i for i, form in enumerate(forms) if form != forms[0]), 0):
            of_first, of_other = ([(output.shape, str(output.dtype)) for output in forms[i]] for i in (0, other))
            raise ArgumentError(
                f"samples of all volumes need arrays of one shape and dtype; those of volume 0 have {of_first}, and "
                f"those of volume {other} have {of_other}"
            )
        stay = [volume.reading.stay_sparse for volume in self.each]
        for i, names in enumerate(stay):
            if differ := names ^ stay[0]:
                name = min(differ)
                of_matrix, of_array = (i, 0) if name in names else (0, i)
                raise ArgumentError(
                    f"{name or 'the array'!r} is a sparse matrix in volume {of_matrix}, whose rows stay sparse with "
                    f"dense=False, and no sparse matrix in volume {of_array}: leave dense=False out, or give sparse "
                    "matrices in all volumes"
                )

    @property
    def parts(self) -> tuple[Part, ...]:
        """The arrays of a sample."""
        return self.each[0].samples.parts

    @property
    def count(self) -> int:
        """Number of samples of an epoch."""
        return _count_of([volume.samples for volume in self.each])

    @property
    def shift_classes(self) -> bool:
        """Whether volumes that have too few samples give more than classes need, so that the others give none twice."""
        each = [volume.samples for volume in self.each]
        return len(each) > 1 and all(samples.classes is not None for samples in each) and _weights_by_class(each)[2]

    @property
    def axes(self) -> int:
        """Number of axes of the grid of samples."""
        return len(self.each[0].samples.counts)

    @cached_property
    def row_cuts(self) -> dict[tuple[int, ...], tuple[list[int], int]]:
        """What :func:`.row_sizes.cut_by_bytes` has found, by its arguments."""
        return {}

    @cached_property
    def flipped(self) -> tuple[int, ...] | None:
        """Axes of the grid along which samples are reversed; None if some of their arrays are not."""
        axes = {part.axes[d] for part in self.parts for d in part.flip} - {None}
        if any(axis in axes and d not in part.flip for part in self.parts for d, axis in enumerate(part.axes)):
            return None
        return tuple(sorted(axis for axis in axes if axis is not None))

    @property
    def columns(self) -> int:
        """Columns of origins: one for each axis, and one for the keys of poses."""
        return self.each[0].samples.columns

    @cached_property
    def _begin(self) -> IntArray:
        """For each volume, how far from their origins samples are said to begin, int64 ``(volumes, axes)``."""
        return np.array([volume.samples.begin or (0,) * self.axes for volume in self.each], np.int64)

    @property
    def sample_nbytes(self) -> int:
        """Bytes of a sample; where rows stay sparse, the mean of the volume with the longest ones."""
        return max(sum(output.nbytes for output in volume.reading.outputs) for volume in self.each)

    @property
    def copied_nbytes(self) -> int:
        """Bytes of a sample that a batch has twice, as several of its arrays have them."""
        return max(volume.reading.copied_nbytes for volume in self.each)

    @cached_property
    def apart_nbytes(self) -> int:
        """Most bytes that the windows of a sample take besides, while it is read alone."""
        return max(sum(source.apart_nbytes for source in volume.sources) for volume in self.each)

    @cached_property
    def share_slabs(self) -> bool:
        """Whether shuffled samples are gathered from slabs: where these take much less memory than the samples."""
        if any(part.posed is not None for part in self.parts):
            # Windows around poses overlap much, and are larger than the samples anyway.
            return True
        if not any(source.overlaps(volume.samples.stride) for volume in self.each for source in volume.sources):
            return False
        slabs = self.group_bytes(self.cells(0, 0, grouped=True))
        return int(slabs.sum()) <= _MUCH_LESS * self.count * self.sample_nbytes

    @cached_property
    def have_rows(self) -> bool:
        """Whether there are rows of sparse matrices, which are kept as they are stored."""
        pairs = [(volume, source) for volume in self.each for source in volume.sources]
        return any(source.is_rows for _, source in pairs) and not any(
            source.overlaps(volume.samples.stride) for volume, source in pairs
        )

    @cached_property
    def kept_sample_nbytes(self) -> int:
        """Mean bytes of a sample as it is read: that of its rows of matrices, without what is made of them."""
        if not self.have_rows:
            return self.sample_nbytes
        total = int(self.row_group_bytes(self.cells(0, 0, grouped=False)).sum())
        return max(-(-total // max(self.count, 1)), 1)

    def row_group_bytes(self, cells: VolumesCells) -> IntArray:
        """Return the bytes of the samples of each group, int64 ``(groups,)``, where :attr:`have_rows`."""
        pairs = zip(self.each, cells.each, strict=True)
        return np.concatenate([row_group_bytes(volume.samples, volume.reading, own) for volume, own in pairs])

    @property
    def stay_sparse(self) -> bool:
        """Whether batches have rows of matrices that are sparse."""
        return bool(self.each[0].reading.stay_sparse)

    def row_sample_bytes(
        self, cells: VolumesCells, numbers: IntArray, draw: tuple[int, int], *, in_batches: bool = False
    ) -> IntArray:
        """Return the bytes that each of some samples takes, int64 ``(n,)``, where :attr:`have_rows`.

        Parameters
        ----------
        cells, numbers
            The cells of an epoch, and int64 ``(n,)``, the samples.
        draw
            Seed and number of the epoch.
        in_batches
            As for :func:`row_sample_bytes`.
        """
        result = np.empty(len(numbers), np.int64)
        for volume, places, own in cells.parts(numbers):
            samples, reading = self.each[volume].samples, self.each[volume].reading
            # Of a line, each is where its number says: there may be a hundred million of them.
            line = own[:, np.newaxis] * samples.stride[0] if samples.is_line else None
            origins = samples.origins(cells.each[volume], own, *draw) if line is None else line
            result[places] = row_sample_bytes(reading, origins, in_batches=in_batches)
        return result

    @cached_property
    def are_narrow(self) -> bool:
        """Whether samples are so small, and so close, that groups of them are better read whole than one by one."""
        return (
            self.sample_nbytes <= _NARROW_BYTES
            and available()
            and all(
                volume.samples.is_line
                and source.array.device == "cpu"
                and not source.array.dtype.hasobject
                and source.is_dense(volume.samples.stride)
                for volume in self.each
                for source in volume.sources
            )
        )

    def group_bytes(self, cells: VolumesCells) -> IntArray:
        """Return the most bytes of the slabs of each group, int64 ``(groups,)``."""
        pairs = zip(self.each, cells.each, strict=True)
        return np.concatenate([group_bytes(volume.samples, volume.sources, own) for volume, own in pairs])

    def cells(self, seed: int, epoch: int, *, grouped: bool) -> VolumesCells:
        """Return the cells of an epoch."""
        rows = _rows_of([volume.samples for volume in self.each], seed, epoch)
        pairs = zip(self.each, rows, strict=True)
        each = [
            volume.samples.cells(seed, epoch, grouped=grouped, rows=own, volume=i)
            for i, (volume, own) in enumerate(pairs)
        ]
        first = np.cumsum([0, *(int(cells.offsets[-1]) for cells in each)]).astype(np.int64)
        # Of all samples that there are, however many of them an epoch has.
        labels = np.cumsum([0, *(volume.samples.total for volume in self.each)]).astype(np.int64)
        offsets = [cells.offsets[:-1] + begin for cells, begin in zip(each, first[:-1], strict=True)]
        return VolumesCells(each, first, labels, np.append(np.concatenate(offsets), first[-1]))

    def origins(self, cells: VolumesCells, numbers: IntArray, seed: int, epoch: int) -> IntArray:
        """Return the origin of each sample in its volume, int64 ``(n, columns)``."""
        result = np.empty((len(numbers), self.columns), np.int64)
        for volume, places, own in cells.parts(numbers):
            first = int(cells.first[volume]), int(cells.first_label[volume])
            result[places] = self.each[volume].samples.origins(cells.each[volume], own, seed, epoch, first)
        return result

    def begins(self, origins: IntArray, volumes: IntArray) -> IntArray:
        """Return the element that each sample is said to begin at, int64 ``(n, axes)``.

        Parameters
        ----------
        origins, volumes
            Origin and volume of each sample.
        """
        # Without the keys of poses.
        return np.asarray(origins[:, : self.axes] + self._begin[volumes], np.int64)


def _count_of(each: Sequence[Samples]) -> int:
    """Return how many samples an epoch of several volumes has, the same number in each epoch."""
    return total_count([samples.expected for samples in each])


def _rows_of(each: Sequence[Samples], seed: int, epoch: int) -> list[IntArray | None]:
    """Return which samples of each volume an epoch has: as :meth:`Samples.rows`, but with regard to the others.

    Of volumes with weights or with a number of samples, an epoch has as many samples as expected in the mean, but for
    the rounding of their sum: whole numbers are drawn for each epoch. Classes come equally often in all volumes
    together, so their samples are drawn as if they were of one volume. None for volumes without others, or of which
    nothing is drawn.

    Parameters
    ----------
    each
        The samples of each volume.
    seed, epoch
        Those of the epoch.
    """
    if len(each) == 1 or not any(samples.is_drawn for samples in each):
        return [None] * len(each)
    if all(samples.classes is not None for samples in each):
        return [*_rows_by_class(each, mix(seed, epoch, RESAMPLING))]
    counts = drawn_counts([samples.expected for samples in each], mix(seed, epoch, COUNTS))
    # A number for each volume: else all volumes would have the same rows.
    return [
        samples.rows(seed, epoch, count, (volume,)) if samples.is_weighed else None
        for volume, (samples, count) in enumerate(zip(each, counts, strict=True))
    ]


def _rows_by_class(each: Sequence[Samples], key: int) -> list[IntArray]:
    """Draw samples of all volumes together, by the weights of their classes and of their volumes."""
    weights, classes, _ = _weights_by_class(each)
    # Volumes that have too few may give some twice.
    replace = each[0].replace or bool(weights.max() > 1)
    found = drawn(len(weights), _count_of(each), weights, key, replace=replace, classes=classes)
    begins = np.cumsum([0, *(samples.total for samples in each)])
    ends = np.searchsorted(found, begins)
    return [found[ends[i] : ends[i + 1]] - begins[i] for i in range(len(each))]


def _weights_by_class(each: Sequence[Samples]) -> tuple[npt.NDArray[np.float64], IntArray, bool]:
    """Return the weight and the class of each sample of all volumes, and what :func:`fitted` says has shifted."""
    weights = np.concatenate([samples.weights for samples in each if samples.weights is not None])
    classes = np.concatenate([samples.classes for samples in each if samples.classes is not None])
    alike, replace = len({samples.share for samples in each}) == 1, each[0].replace
    if alike and (replace or len({samples.expected > samples.total for samples in each}) == 1):
        return weights, classes, False
    volumes = np.repeat(np.arange(len(each)), [samples.total for samples in each])
    expected = [samples.expected for samples in each]
    weights, shifted = fitted(weights, volumes, classes, expected, _count_of(each), replace=replace)
    # Volumes of equal weights count only where some have too few, and others enough.
    return weights, classes, shifted or alike
