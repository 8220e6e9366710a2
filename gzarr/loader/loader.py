"""Batches of samples out of Zarr arrays, for training."""

from __future__ import annotations

import math
import warnings
import weakref
from collections.abc import Mapping
from copy import copy as copied
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, SupportsFloat, SupportsIndex

from ..display import readable_size
from ..documents.json import quote
from ..engines.cuda.devices import get_device
from ..errors import ArgumentError
from ..flags import flag, plain_flag
from ..poses.numbers_given import as_floats
from ..sparse.view import DenseView
from ..windows.inputs import array_of
from .arguments import by_name, fitting, integer, is_one_of
from .categories import categories_of, with_one_list
from .documents import Documents
from .epoch import Epoch
from .explanation import Explanation, Mixing, explain
from .fingerprint import Fingerprint
from .inputs import WANTED, levels_of, light_arrays
from .like import check_sparse, converter
from .naming import in_volume
from .order import Order
from .pinned import PinnedResults, pinning_device
from .pipeline import Pipeline
from .position import Position
from .progress import Progress
from .samplers import Sampler, sampler_of
from .samples import Geometry
from .tensors import flipped, reversed_whole, stacked
from .trainer_epochs import EpochSetter
from .volumes import Volume, Volumes, as_they_are
from .work import Giving, most_held

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    import numpy.typing as npt

    from ..arrays.exporting import ExportedArray
    from .batch import Batch
    from .inputs import Inputs
    from .keeping import Reads
    from .like import Like
    from .order import Shuffle
    from .samples import Samples
    from .stats import Stats
    from .tensors import Flip, Stack
    from .work import OnError

#: Version of the state of a loader.
STATE_VERSION = 1
_STREAMS = 64
# Many more take long to divide groups among, and are no use: ranks are fewer.
_MOST_STREAMS = 2**16
# Arrays that a repr shows.
_SHOWN = 6
_BUFFER_BYTES = 256 << 20
_STATIC = '{"height": array}'
#: Arrays that together are at most this part of a block cost little, even if each block decodes all of them.
_LIGHT_PARTS = 8


class Loader:
    """Batches of samples, in a shuffled order that can be resumed.

    Iterating over a loader gives one epoch; the next iteration gives the next one. An iterator that is dropped
    before a batch was taken (trainers make such, to look whether they can) counts for nothing.

    Parameters
    ----------
    arrays
        One array, or arrays by name, of which a sample has one window each; or a list of such volumes, whose samples
        make up one epoch. They are read to their own device. Views (:attr:`gzarr.Array.view`) are arrays, too. Paths
        and URLs, arrays of zarr-python and OME images (of which level 0 is taken) are opened, as are groups of AnnData
        that are sparse matrices or columns; arrays in memory (of NumPy, pandas, Polars, PyArrow, PyTorch and JAX, and
        of xarray with loaded elements) are copied.
    sampler
        What a sample is: :class:`Rows`, :class:`Windows`, :class:`Patches` or a :class:`Sampler` of one's own.
    weights
        How many samples of each volume are in an epoch, relative to the number that it has: 2 for each twice, 0.5 for
        another half in each epoch. None for each once.
    batch_size
        Samples of a batch of one rank.
    shuffle
        ``"blocks"`` (or True): groups of neighbouring chunks are drawn in a random order into the buffer, and their
        samples are mixed. ``"full"``: any sample may come at any place, so chunks that do not all fit the buffer may be
        decoded many times. False: the samples in their own order.
    seed
        Integer that determines the order of all epochs, with the number of the epoch and ``streams``; its last 64 bits
        count.
    buffer_bytes
        Bytes of samples in memory that are read ahead, over all ranks together: one half is mixed while the other half
        is given out. What shuffled samples have in common counts once. With other orders than ``"blocks"``, a part of
        it is for chunks that stay decoded until they are used again.
    drop_last
        Whether the samples that do not fill the last batch of all ranks are left out.
    pad
        Whether the last batch of all ranks is filled up with samples from the beginning of the epoch instead, so that
        all ranks have the same number of steps.
    rank, world_size
        Number of this process among all that share an epoch, and their number, which divides ``streams`` if that is
        given.
    like
        Library whose arrays batches have: ``"torch"`` or ``"jax"``. Nothing is copied, except for JAX on a device. None
        for NumPy or CuPy. For sparse rows, see ``dense``.
    prefetch
        Batches that are made ready ahead, in threads; 0 for none, and for no threads.
    transform
        Function that is called with each batch, of NumPy's or CuPy's arrays, and returns what the loader gives out. It
        runs in a thread; on a device, while a stream of the loader's is CuPy's current one. Batches are made ahead, so
        it returns new arrays in each call, and draws random numbers from a generator of its own, with ``batch.seed``.
    on_error
        What happens to a sample that cannot be read: ``"raise"`` the error where its batch is asked for, after which
        the loader goes on with the next one; ``"skip"`` the sample; or a function of the error and the sample's number,
        which is called, and the sample skipped. A batch lacks what was skipped. If that is all of it, it comes with no
        samples, also to ``transform``, so that all ranks have the same number of steps: pass over it if
        ``len(batch.samples)`` is 0, since the mean of no samples is NaN.
    copy
        Whether batches on a device may be kept. If not, they are not copied to memory of the consumer's, and a batch is
        valid until the next one is asked for, or the iterator is gone. What uses it belongs on the stream that is
        current when it is asked for, or when the next one is. In host memory, each batch has memory of its own anyway.
    pin_memory
        Whether batches in host memory are page-locked, so that a copy to the current CUDA device
        (``tensor.to("cuda", non_blocking=True)``) runs while the host goes on. Such copies belong on the stream that is
        current when the next batch is asked for: their memory is not used again before it has passed them. A process
        may choose its device after the loader was made. The memory stays with the loader, also when
        :func:`gzarr.release_memory` is called. What ``transform`` makes is not page-locked.
    stack
        Names of arrays that make up one, in this order, with an axis for them after that of the samples: several
        variables as the channels of ``batch["data"]`` (with :class:`Windows`, of ``batch["x"]``); or a dict of such
        by the name of the result. Their samples have one shape and data type.
    flip
        Name of the dimension along which samples are reversed (such as a latitude), or axis of all arrays; or several.
        Arrays without that dimension stay as they are; a name holds for ``static`` arrays, too. :class:`Merge` turns
        predictions for a batch back.
    streams
        Number of parts of the order that ranks share, at most 65,536. None is 64, or the next number that
        ``world_size`` divides. The order is the same for all numbers of ranks that share the same ``streams``.
    dense
        Whether rows of sparse matrices (:func:`gzarr.sparse.open`) are made dense. If not, a batch has them as a sparse
        matrix, with :class:`Rows` only: a ``csr_array`` of SciPy, or of CuPy on a GPU; with ``like="torch"`` a
        ``torch.sparse_csr_tensor``, with ``"jax"`` a ``BCSR``, and with ``"numpy"`` its arrays
        (:class:`gzarr.sparse.Parts`), which is what ``transform`` is given. Columns, data type and scaling are those of
        ``m.dense(…)``. Entries that occur twice stay apart, and ``log1p`` is taken of each.

    Raises
    ------
    ArgumentError
        If an argument is none of the above, if the arrays do not fit the sampler, or if the samples fill no batch.
    DeviceError
        If memory is to be page-locked, and no CUDA device can be used.

    Warns
    -----
    UserWarning
        If an epoch begins whose blocks have too few independent groups to mix batches well; see :meth:`explain`. If an
        array has grown since the loader was made: the loader goes on with the samples that it had then.

    Notes
    -----
    When an epoch begins, the document of each array is read: one request for each, side by side. It is read again
    within an epoch: now and then, in at most a hundredth of the time, and when a chunk is absent or cannot be read (in
    a remote store, in at most a twentieth of the time). If an array was erased, shrunk or replaced by another one, the
    epoch ends with an ArgumentError or a NodeNotFoundError that says so.
    """

    def __init__(  # noqa: PLR0913
        self,
        arrays: Inputs,
        sampler: Sampler | None = None,
        *,
        weights: Collection[SupportsFloat] | None = None,
        batch_size: SupportsIndex = 1,
        shuffle: Shuffle = "blocks",
        seed: SupportsIndex = 0,
        buffer_bytes: SupportsIndex = _BUFFER_BYTES,
        drop_last: bool = True,
        pad: bool = False,
        rank: SupportsIndex = 0,
        world_size: SupportsIndex = 1,
        like: Like | None = None,
        prefetch: SupportsIndex = 2,
        transform: Callable[[Batch], Any] | None = None,
        on_error: OnError = "raise",
        copy: bool = True,
        pin_memory: bool = False,
        stack: Stack | None = None,
        flip: Flip | None = None,
        streams: SupportsIndex | None = None,
        dense: bool = True,
    ) -> None:
        # From here on, the sampler and the arrays are what they are now, whatever becomes of the user's.
        sampler = sampler_of(sampler)._kept()
        volumes, self._axes = levels_of(arrays, sampler.spacing)
        volumes = as_they_are(with_one_list(volumes))
        batch_size, world_size = integer("batch_size", batch_size, 1), integer("world_size", world_size, 1)
        rank, prefetch = integer("rank", rank), integer("prefetch", prefetch)
        seed = integer("seed", seed, most=math.inf)
        # More than any memory is no limit.
        block = min(integer("buffer_bytes", buffer_bytes, most=math.inf), 2**48) // 2
        drop_last, pad, copy = flag("drop_last", drop_last), flag("pad", pad), flag("copy", copy)
        dense, pin_memory = flag("dense", dense), flag("pin_memory", pin_memory)
        if rank >= world_size:
            raise ArgumentError(f"rank must be below world_size {world_size}, not {rank}")
        if streams is None:
            streams = _STREAMS if _STREAMS % world_size == 0 else -(-_STREAMS // world_size) * world_size
        streams = integer("streams", streams, 1)
        if streams > _MOST_STREAMS:
            raise ArgumentError(
                f"streams must be at most {_MOST_STREAMS}, and so must world_size; these are {streams} for world_size "
                f"{world_size}"
            )
        if streams % world_size:
            raise ArgumentError(
                f"world_size {world_size} does not divide streams={streams}; leave streams out, or give "
                f"streams={math.lcm(streams, world_size)}, whose order is another one"
            )
        devices = {array.device for volume in volumes for array in volume.values()}
        if not devices:
            raise ArgumentError("a loader needs at least one array")
        if not all(volumes):
            raise ArgumentError(
                f"volume {volumes.index({})} has no arrays: leave it out, or give it those of the others"
            )
        if len(devices) > 1:
            raise ArgumentError(
                f"all arrays of a loader must be on one device; these are on {', '.join(sorted(devices))}"
            )
        shuffle = plain_flag(shuffle)
        if not is_one_of(shuffle, ("full", "blocks", True, False)):
            raise ArgumentError(f"shuffle must be 'full', 'blocks' (or True) or False, not {quote(shuffle)}")
        if not (callable(on_error) or is_one_of(on_error, ("raise", "skip"))):
            raise ArgumentError(f"on_error must be 'raise', 'skip' or a function, not {quote(on_error)}")
        if not (transform is None or callable(transform)):
            raise ArgumentError(f"transform must be a function of a batch, not {quote(transform)}")
        # Fails now if it must.
        converter(like, *devices)
        self._dense = dense
        views = [array for volume in volumes for array in volume.values() if isinstance(array, DenseView)]
        if not dense:
            if not views:
                raise ArgumentError("dense=False is for sparse matrices, and there is none among the arrays")
            check_sparse(like, next(iter(devices)), [view.dtype for view in views])
        elif like == "scipy":
            raise ArgumentError("like='scipy' is for rows that stay sparse: pass dense=False")
        if pin_memory and devices != {"cpu"}:
            raise ArgumentError(
                'pin_memory=True is for batches in host memory: open the arrays with device="cpu", or leave it out'
            )
        if pin_memory:
            # Fails now if it must.
            pinning_device()
        self._pinned = PinnedResults() if pin_memory else None
        self._like = like
        self._arrays, self._sampler = volumes, sampler
        self._batch_size, self._rank, self._world_size = batch_size, rank, world_size
        self._drop_last, self._pad, self._prefetch = drop_last, pad, prefetch
        self._transform, self._on_error, self._copy = transform, on_error, copy
        self._shares, self._form = _shares(weights, len(volumes)), (stack, flip)
        # Of each stage.
        self._bound: dict[int, Volumes] = {}
        self._samplers = sampler.of_volumes(volumes)
        mode: Shuffle = "blocks" if shuffle is True else shuffle
        self._order = Order(mode, block, streams, seed)
        self._volumes = self._volumes_of(0)
        if taken := self._volumes.each[0].reading.names & set(by_name("static", sampler.static, _STATIC)):
            raise ArgumentError(f"static= and the results of samples have the same names: {sorted(taken)}")
        self._static = _static(sampler, volumes, flip)
        self._fingerprint = Fingerprint.of(volumes, self._volumes, sampler, self._order)
        self._documents = Documents(volumes, self._fingerprint)
        self._position = Position()
        self._warned = False
        # How epochs are read, once it was chosen.
        self._reads: Reads | None = None
        self._of_epoch(0).refuse_too_many_groups()
        self._refuse_no_batches()

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the iterator: copies and other processes have none yet."""
        return self.__dict__ | {"_position": self._position.without_iterator()}

    def split(self, part: SupportsIndex, parts: SupportsIndex) -> Loader:
        """Return a loader of a part of this one's samples, with the same state.

        Parameters
        ----------
        part
            Number of the part, below ``parts``.
        parts
            Number of loaders that share the samples; they have batches of the same size.

        Raises
        ------
        ArgumentError
            If the samples of a part fill no batch.
        """
        part, parts = integer("part", part), integer("parts", parts, 1)
        if part >= parts:
            raise ArgumentError(f"part must be below parts {parts}, not {part}")
        other = copied(self)
        other._rank = self._rank + self._world_size * part
        other._world_size = self._world_size * parts
        other._reads = None
        other._refuse_no_batches(parts)
        return other

    def _refuse_no_batches(self, parts: int = 1) -> None:
        """Refuse an epoch without any batch of this rank, or part of a rank."""
        count, ranks = self._volumes.count, self._world_size // parts
        if not count:
            raise ArgumentError(_why_none([volume.samples for volume in self._volumes.each]))
        if self._of_epoch(0).steps(0):
            return
        shared = f"{ranks} rank{'s' * (ranks > 1)}" + (f" of {parts} workers" if parts > 1 else "")
        if self._drop_last:
            raise ArgumentError(
                f"an epoch has {count} samples, and one batch of {self._batch_size} for {shared} takes "
                f"{self._batch_size * self._world_size}: there would be no batches; use a smaller batch_size, "
                "drop_last=False or pad=True"
            )
        raise ArgumentError(
            f"an epoch has {count} samples for {shared}, one of which would have none; use fewer, or pad=True"
        )

    def __repr__(self) -> str:
        """Tell the arrays, the samples, the batches of this rank, the next epoch, the device and the memory."""
        first = self._arrays[0]
        shown = [f"{name + ' ' if name else ''}{a.shape} {a.dtype}" for name, a in islice(first.items(), _SHOWN)]
        if len(first) > _SHOWN:
            shown.append(f"{len(first) - _SHOWN} more")
        volumes = f"{len(self._arrays)} volumes of " if len(self._arrays) > 1 else ""
        rank = f" of rank {self._rank} of {self._world_size}" if self._world_size > 1 else ""
        return (
            f"<gzarr.Loader of {volumes}{', '.join(shown)}: {self._sampler!r:.200}, {self._volumes.count} samples, "
            f"{len(self)} batches of {self._batch_size}{rank}, shuffle={self._order.shuffle!r}, next epoch "
            f"{self.next_epoch}, {next(iter(first.values())).device}, buffer of "
            f"{readable_size(2 * self._order.block_bytes)}>"
        )

    def _repr_html_(self) -> str:
        """Tell the same in a notebook, with what it means and a picture of which chunk feeds which batch."""
        from .page import is_quick, loader_html

        epoch = self._of_epoch(self.next_epoch)
        # Which chunks stay decoded takes a while to choose, if that was not done before.
        chosen = self._order.shuffle == "blocks" or self._reads is not None
        held = self._held_bytes(epoch) if chosen and is_quick(epoch) else None
        return loader_html(self._arrays, self._sampler, epoch, self._position.place.next_cursor, held)

    def __len__(self) -> int:
        """Return the number of batches of an epoch, of this rank."""
        return self._of_epoch(self._position.place.epoch).steps(0)

    def __iter__(self) -> Pipeline:
        """Give out the batches of an epoch: of the one in which :meth:`load_state_dict` went on, else of the next."""
        return self._begin()

    def _begin(self, instead_of: Pipeline | None = None) -> Pipeline:
        """Begin an epoch, or go on with it; called where users begin it.

        Parameters
        ----------
        instead_of
            Iterator of which no batch was taken, which is to give out this epoch; None for a new one.
        """
        together = self._documents.are_remote
        if not together:
            self._say_what_changed()
        position = self._position
        begun = position.begin()

        def given(steps: int | None) -> None:
            position.give(begun, None if steps is None else epoch.cursor(begun.cursor, steps))

        try:
            epoch = self._read_of(begun.epoch)
            begun.steps = epoch.steps(begun.cursor)
            self._warn_of_little_mixing(epoch)
            giving = Giving(self._transform, self._on_error, self._copy, self._like, self._pinned, self._static)
            pipeline = Pipeline(epoch, begun.cursor, giving, progress=given, documents=self._documents)
            if together:
                # Chunks are asked for meanwhile: the documents of a remote store take a round trip.
                try:
                    self._say_what_changed()
                except BaseException:
                    pipeline.close()
                    raise
            if instead_of is not None:
                instead_of.become(pipeline)
                pipeline = instead_of
        except BaseException:
            # Also where warnings are errors: without an iterator, nothing has begun.
            position.undo(begun)
            raise
        begun.pipeline, begun.stats = weakref.ref(pipeline), pipeline.stats
        return pipeline

    def progress(self) -> Progress:
        """Return an iterator over the batches of an epoch that shows its progress.

        A line on stderr, rewritten in place, shows the batches given out, the samples per second and the slowest stage
        with its share of the time (see :meth:`stats`). If stderr is no terminal, the line is written once, at the end.
        In a notebook, it is below the cell.
        """
        batches = self._begin()
        total = len(self)
        return Progress(batches, f"epoch {self._position.place.epoch}", total - batches.steps, total)

    def _say_what_changed(self) -> None:
        """Warn of arrays that have grown since the loader was made, and refuse those that are not there any more."""
        for what in self._documents.look():
            warnings.warn(
                f"{what}, since this loader was made, which goes on with the samples that it had then; make a new one "
                f"for all",
                UserWarning,
                stacklevel=4,
            )

    def _warn_of_little_mixing(self, epoch: Epoch) -> None:
        """Say once if batches come out of few independent groups."""
        if self._order.shuffle != "blocks" or self._warned:
            return
        self._warned = True
        mixing = Mixing.of(epoch, partial(self._with_block, epoch))
        if not mixing.is_enough:
            warnings.warn(
                f"shuffling is coarse: {mixing.advice}; loader.explain() says more", UserWarning, stacklevel=4
            )

    def explain(self) -> Explanation:
        """Return how often chunks are decoded, how well samples are mixed, and how much memory that takes."""
        epoch = self._read_of(self._position.place.epoch)
        return explain(epoch, partial(self._with_block, epoch), self._held_bytes(epoch))

    def _held_bytes(self, epoch: Epoch) -> int:
        """Return the most bytes that this rank holds of samples and chunks."""
        static: int = sum(array.nbytes for array in self._static.values())
        copied = epoch.batch_size * epoch.samples.copied_nbytes
        batches = (self._prefetch + 1) * (epoch.batch_bytes + copied + static)
        # A block of one group may have more than its part of the buffer, and is then the only one.
        held = max(most_held(epoch), epoch.largest_block_bytes)
        return held + epoch.kept_bytes + batches + static

    def stats(self) -> Stats:
        """Return what the last iterator has given out until now, and where its time went: a copy of its counters."""
        return replace(self._position.stats)

    def state_dict(self) -> dict[str, Any]:
        """Return the state: what was given out, not what was read ahead. It is small and can be written as JSON."""
        place = self._position.place
        return {
            "version": STATE_VERSION,
            "seed": self._order.seed,
            "epoch": place.epoch,
            "cursor": place.cursor,
            "streams": self._order.streams,
            "fingerprint": self.fingerprint,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state: the next iteration gives out what would have come next.

        Parameters
        ----------
        state
            What :meth:`state_dict` returned. The number of ranks may be another one since, as may the batch size.

        Raises
        ------
        ArgumentError
            If the state is not one of such a loader, or if the arrays, the sampler or the shuffling differ; nothing
            has changed then.
        """
        if not isinstance(state, Mapping):
            raise ArgumentError(f"this is not the state of a loader: {quote(state)}")
        try:
            version, seed = int(state["version"]), int(state["seed"])
            epoch, cursor, fingerprint = int(state["epoch"]), int(state["cursor"]), str(state["fingerprint"])
            streams = int(state.get("streams", self._order.streams))
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ArgumentError(f"this is not the state of a loader: {error!r} in {quote(state)}") from error
        if version != STATE_VERSION:
            raise ArgumentError(f"the state has version {quote(version)}; this gzarr reads version {STATE_VERSION}")
        if streams != self._order.streams:
            raise ArgumentError(
                f"the state is of an order with streams={quote(streams)}, and this loader has "
                f"streams={self._order.streams}: give streams={quote(streams)}, and a world_size that divides it"
            )
        if fingerprint != self.fingerprint:
            raise ArgumentError(
                f"the state does not belong to this loader: {self._fingerprint.difference(fingerprint)} (its "
                f"fingerprint is {quote(fingerprint)}, that of this loader {self.fingerprint!r})"
            )
        if not 0 <= cursor <= self._volumes.count or epoch < 0 or seed < 0:
            raise ArgumentError(
                f"the state has epoch {quote(epoch)} and cursor {quote(cursor)} of {self._volumes.count} samples"
            )
        self._order = replace(self._order, seed=seed)
        self._position.go_to(epoch, cursor, is_loaded=True)

    def set_epoch(self, epoch: int) -> None:
        """Make the next iteration an epoch, from its beginning; without this, epochs follow each other.

        A state that was loaded since the last iteration comes first: a trainer that counts from 0 after it has gone on
        does not begin anew. A state of an epoch's last batch has nothing that could come first.

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
        place = self._position.place
        if not place.is_loaded or (epoch != place.epoch and not self._has_more()):
            self._begin_at(epoch)

    def _begin_at(self, epoch: int) -> None:
        """Make the next iteration an epoch, whatever was loaded."""
        self._position.go_to(epoch)

    @property
    def next_epoch(self) -> int:
        """Number of the epoch of the next iteration."""
        return self._position.place.next_epoch

    @property
    def goes_on(self) -> bool:
        """Whether the next iteration goes on from a state that was loaded."""
        return self._position.place.is_loaded

    @property
    def batch_sampler(self) -> EpochSetter:
        """Where trainers such as Lightning look for the sampler whose epoch they set, and for the size of batches."""
        return EpochSetter(self._set_trainers_epoch, self._batch_size)

    def _set_trainers_epoch(self, epoch: int) -> None:
        anew = self._position.follow(integer("epoch", epoch), self._has_more)
        if anew is None:
            return
        # What the next iteration gives out, and the last one if no batch was taken.
        begun = self._position.untaken
        iterator = None if begun is None else begun.iterator
        self._begin_at(anew)
        if begun is None or iterator is None or iterator.ended:
            return
        if begun.epoch != anew:
            self._begin(iterator)
            begun = self._position.untaken
            assert begun is not None
        self._position.repeat(begun)

    def _has_more(self) -> bool:
        """Return whether there are batches after the current state."""
        place = self._position.place
        return self._of_epoch(place.epoch).steps(place.cursor) > 0

    def _read_of(self, epoch: int) -> Epoch:
        """Return an epoch that is to be read."""
        result = self._of_epoch(epoch)
        if self._order.shuffle != "blocks" and not result.reads_rows:
            self._reads = result.reads
        return result

    def _of_epoch(self, epoch: int) -> Epoch:
        volumes = self._volumes_of(epoch)
        return Epoch(
            volumes,
            replace(self._order, sample_bytes=volumes.sample_nbytes),
            epoch,
            batch_size=self._batch_size,
            rank=self._rank,
            world_size=self._world_size,
            drop_last=self._drop_last,
            pad=self._pad,
            prefetch=self._prefetch,
            told=self._reads,
        )

    def _volumes_of(self, epoch: int) -> Volumes:
        """Return the samples of an epoch: with more steps in later ones, if they grow."""
        stage = self._sampler.stage(epoch)
        if stage not in self._bound:
            self._bound[stage] = self._bind(stage, self._order.block_bytes)
        return self._bound[stage]

    def _with_block(self, epoch: Epoch, block_bytes: int) -> Epoch | None:
        """Return an epoch as it would be with another buffer; None if masks would be read again for that."""
        if any(volume.samples.chosen is not None for volume in epoch.samples.each):
            return None
        samples = self._bind(self._sampler.stage(epoch.number), block_bytes)
        return replace(epoch, samples=samples, settings=replace(epoch.settings, block_bytes=block_bytes))

    def _bind(self, stage: int, block_bytes: int) -> Volumes:
        """Return the samples of a stage, in groups that fit a block."""
        bound, (stack, flip) = [], self._form
        each = zip(self._arrays, self._axes, self._samplers, self._shares, strict=True)
        for i, (arrays, axes, sampler, share) in enumerate(each):
            light = light_arrays(arrays, block_bytes // _LIGHT_PARTS)
            geometries = {
                n: Geometry(a.shape, a.chunks, a.dtype, axes[n].spacing, n in light, axes[n].names)
                for n, a in arrays.items()
            }
            with in_volume(i, len(self._arrays), arrays):
                # At least two groups to a block.
                samples = sampler.at_stage(stage).bind(geometries, block_bytes // 2)
                parts = flipped(stacked(samples.parts, stack), arrays, flip)
                samples = replace(samples, parts=tuple(parts), share=share)
                bound.append(Volume.of(samples, arrays, dense=self._dense))
        return Volumes(bound)

    @property
    def categories(self) -> dict[str, npt.NDArray[Any]]:
        """Categories of each categorical column of AnnData by its name, whose numbers are its codes; −1 is none.

        One list for all volumes: where their lists differ, it is all categories in the order in which they are met.
        Columns that are plain numbers in some volume are left out.

        Raises
        ------
        NodeNotFoundError, MetadataError, StoreError, ChunkError
            If they cannot be read.
        """
        return categories_of(self._arrays)

    @property
    def fingerprint(self) -> str:
        """Hashes of everything that determines the order: arrays, sampler, shuffling."""
        return str(self._fingerprint)


def _why_none(samples: Sequence[Samples]) -> str:
    """Say why the samples of some volumes leave none to an epoch."""
    if any(each.total and each.number != 0 for each in samples):
        return "weights= leave no sample of an epoch; give larger ones, or more volumes"
    if any(each.total for each in samples):
        return "samples=0 leaves no sample of an epoch; give a larger number, or None for as many as there are"
    if any(each.chosen is not None and math.prod(each.counts) for each in samples):
        return "no sample is chosen: where= (or valid=) is a mask of which no element is true, or a list of none"
    sizes = " and ".join(sorted({str(each.size) for each in samples}))
    return f"there are no samples: the arrays have {sizes} elements along the axes of samples"


def _shares(weights: Collection[SupportsFloat] | None, count: int) -> list[float]:
    """Return how many samples of each volume an epoch has, relative to the number that it has."""
    try:
        shares = (
            [1.0] * count
            if weights is None
            else as_floats(weights if hasattr(weights, "dtype") else list(weights)).ravel().tolist()
        )
    except (TypeError, ValueError, OverflowError):
        shares = []
    if len(shares) != count or not all(0 <= share < math.inf for share in shares):
        raise ArgumentError(f"weights must be {count} numbers of at least 0, one for each volume, not {quote(weights)}")
    return shares


def _static(sampler: Sampler, volumes: Sequence[Mapping[str, ExportedArray]], flip: Flip | None) -> dict[str, Any]:
    """Read the arrays of which each batch has a copy, reversed along dimensions that ``flip`` names."""
    static = by_name("static", sampler.static, _STATIC)
    if not static:
        return {}
    device = next(iter(volumes[0].values())).device
    read: dict[str, Any] = {}
    for name, value in static.items():
        with fitting(
            f"the array {name!r} of static=", "each batch has all of it: give a part, such as array.view[:1000]"
        ):
            array = array_of(value, device, WANTED)
            read[name] = array[reversed_whole(array, flip)]
    if device != "cpu":
        # Batches are made on other streams. The current one is that of the current device.
        own = get_device(device)
        with own:
            own.as_stream(None).synchronize()
    return read
