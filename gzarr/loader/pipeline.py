"""The iterator over an epoch's batches, which runs the threads that make them."""

from __future__ import annotations

import os
import time
import weakref
from functools import partial
from inspect import GEN_RUNNING, getgeneratorstate
from typing import TYPE_CHECKING, Any, Final

from .. import ending
from ..errors import ArgumentError, DeviceError, GzarrError
from ..guarded import RLock
from ..starting import NamedThread
from .batch import register_trees
from .like import consumer_stream, converted, converter, sparse_converter
from .work import EpochWork

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from .documents import Documents
    from .epoch import Epoch
    from .stats import Stats
    from .work import Giving, Ready

# Longest wait for another thread until Python looks for signals, in seconds.
_LOOK_S: Final = 0.5
#: The device that is current where a batch is asked for.
_CURRENT: Final = "cuda"


class Pipeline:
    """Iterator over the batches of an epoch. When it is no longer used, its threads end.

    Parameters
    ----------
    epoch
        The epoch.
    begin
        Position of the order to go on from.
    giving
        What becomes of samples that were read.
    progress
        Function that is called with the number of batches given out, and with None at the end.
    documents
        Looks at the documents of the arrays.
    """

    def __init__(
        self,
        epoch: Epoch,
        begin: int,
        giving: Giving,
        *,
        progress: Callable[[int | None], None],
        documents: Documents,
    ) -> None:
        like, pinned = giving.like, giving.pinned
        if pinned is not None:
            pinned.begin(consumer_stream(like, _CURRENT))
        self._pid = os.getpid()
        self._steps = epoch.steps(begin)
        new_work = partial(EpochWork, epoch, begin, giving, documents)
        self._work = work = new_work()
        self._inline: Generator[Ready] | None = None
        self._given = 0
        # One thread at a time takes a batch. Reentrant: a call within a call, in a handler of a signal or a function of
        # the user's, would wait for itself.
        self._turn = RLock()
        # A batch that could not be handed over yet.
        self._kept: Ready | None = None
        # Whether an error has come in the place of a batch, which was neither given out nor kept.
        self._has_lost = False
        self._interrupt: type[BaseException] | None = None
        # When the consumer got the last batch.
        self._left: float | None = None
        self._copy = giving.copy
        self._like, self._device = like, work.device
        self._convert = converter(like, self._device)
        has_sparse = any(output.sparse is not None for output in work.reading.outputs)
        self._convert_sparse = sparse_converter(like) if has_sparse else None
        self._pinned = pinned
        # The device whose stream the consumer uses.
        self._consumer = self._device if pinned is None else _CURRENT
        self._progress = progress
        self._close = weakref.finalize(self, work.stop)
        # Last: whatever comes once they run, an interrupt too, they end with this iterator.
        if not (epoch.prefetch and self._steps and _started(work)):
            if work.stopped:
                self._close.detach()
                self._work = work = new_work()
                self._close = weakref.finalize(self, work.stop)
            self._inline = work.inline()

    def __iter__(self) -> Pipeline:
        return self

    def __next__(self) -> Any:
        """Return the next batch, or raise the error of one that cannot be read; the next call then goes on.

        A batch that cannot be handed over now, for lack of memory for instance, is the next call's. Threads may share
        an iterator, as a queue: each batch is given out once.
        """
        turn, is_own = self._turn, False
        given, goes_on = self._given, self._goes_on
        try:
            self._refuse_other_process()
            # An interrupt in another thread's call may have left it taken, but has ended the epoch.
            while not (self._work.stopped or (is_own := turn.acquire(timeout=_LOOK_S))):
                self._refuse_other_process()
                if ending.is_alone():
                    raise GzarrError(ending.NO_THREADS)
            self._refuse_interrupted()
            if is_own and self._inline is not None and getgeneratorstate(self._inline) == GEN_RUNNING:
                raise ArgumentError(
                    "this iterator of a loader is asked for a batch while it makes one, by a function that it calls or "
                    "by the handler of a signal: ask for it afterwards; with prefetch=1 or more, a handler may ask"
                )
            given, goes_on = self._given, self._goes_on
            result = self._measured()
            self._progress(self._given)
        except BaseException as error:
            if not isinstance(error, Exception) or self._has_lost:
                if goes_on:
                    self._interrupt = type(error)
                # After an interrupt, the traceback may keep this iterator for long.
                self.close()
            elif self._given > given:
                # In place of a batch.
                self._progress(self._given)
            elif isinstance(error, StopIteration):
                # Another thread may have been interrupted while this one waited.
                self._refuse_interrupted()
            raise
        finally:
            if is_own:
                turn.release()
        return result

    @property
    def _goes_on(self) -> bool:
        return self._given < self._steps and not self._work.stopped

    def _refuse_other_process(self) -> None:
        if os.getpid() != self._pid:
            # Its threads are the parent's.
            raise ArgumentError(
                f"this iterator of a loader was made by process {self._pid}, and a forked process has none of its "
                "threads: iterate the loader anew in this process"
            )

    def _refuse_interrupted(self) -> None:
        if self._interrupt is not None:
            # Without an error, whoever goes on would take this for the end of the epoch.
            name = self._interrupt.__name__
            article = "an" if name[0] in "AEIOU" else "a"
            raise ArgumentError(
                f"this iterator of a loader was ended by {article} {name}: iterate the loader anew; to go "
                "on with the same epoch, after the batches that were given out, call "
                "loader.load_state_dict(loader.state_dict()) before"
            )

    def _measured(self) -> Any:
        asked, stats = time.perf_counter(), self._work.stats
        if self._left is not None:
            stats.consumer_s += asked - self._left
        try:
            return self._next()
        finally:
            self._left = time.perf_counter()
            stats.waiting_s += self._left - asked

    def _next(self) -> Any:
        work = self._work
        if not work.stopped:
            self._take_back()
        if self._given >= self._steps and not work.stopped:
            self._progress(None)
            self.close()
        if work.stopped:
            raise StopIteration
        given = self._given
        try:
            # Not kept meanwhile: a call within this one would give it out, too.
            ready, self._kept = self._kept, None
            if ready is None:
                ready = work.take() if self._inline is None else work.next_inline(self._inline)
            if ready.failed:
                if ready.turns:
                    self._given += 1
                else:
                    # The reading itself failed: there is no batch to go on with.
                    self.close()
                try:
                    raise ready.value
                finally:
                    # An error's traceback has this frame: they would keep each other until garbage is collected.
                    del ready
            result = self._handed_over(ready)
        except StopIteration:
            raise
        except Exception as error:
            # The handler of a signal may raise anywhere. Of its own errors, gzarr raises none where a batch is taken
            # from other threads, but that they are gone.
            is_others = self._inline is not None or not isinstance(error, GzarrError)
            self._has_lost = is_others and self._given == given and self._kept is None and not work.stopped
            raise
        self._given += 1
        work.stats.batches += 1
        work.stats.samples += ready.turns - ready.skipped
        work.stats.skipped += ready.skipped
        return result

    def _handed_over(self, ready: Ready) -> Any:
        """Return a batch as the consumer gets it."""
        # Errors that would come again, and so take the place of the batch.
        lasting: tuple[type[GzarrError], ...] = ()
        try:
            # A batch that was read ahead may be older than an import of JAX.
            register_trees()
            stream = consumer_stream(self._like, self._device)
            # At first, of a device that has failed.
            lasting = (DeviceError,)
            result = self._work.memory.hand_over(ready.value, ready.mark, stream, copy=self._copy)
            # Then, of a library that cannot hold the arrays.
            lasting = (GzarrError,)
            if self._convert is not None or self._convert_sparse is not None:
                return converted(result, self._convert, self._convert_sparse)
        except Exception as error:
            if isinstance(error, lasting):
                self._given += 1
            else:
                self._kept = ready
            raise
        return result

    def close(self) -> None:
        """End the epoch and its threads."""
        try:
            if not (self._copy or self._work.stopped):
                self._take_back()
        finally:
            self._kept = None
            ending.finish(self._close)

    def become(self, other: Pipeline) -> None:
        """Give out the batches of another iterator, which is used no more; no batch of this one was taken."""
        self.close()
        other._close.detach()
        self.__dict__.update(other.__dict__)
        self._close = weakref.finalize(self, self._work.stop)

    def _take_back(self) -> None:
        """Take the last batch's memory back, if it is used again: the consumer has enqueued what it does with it."""
        if self._pinned is not None or not self._copy:
            self._work.memory.take_back(consumer_stream(self._like, self._consumer))

    @property
    def ended(self) -> bool:
        """Whether there are no more batches."""
        return self._work.stopped

    @property
    def is_interrupted(self) -> bool:
        """Whether an interrupt has ended it, in the place of a batch."""
        return self._interrupt is not None

    @property
    def steps(self) -> int:
        """Number of batches from the beginning of this iterator on."""
        return self._steps

    @property
    def stats(self) -> Stats:
        """Counters."""
        return self._work.stats


def _started(work: EpochWork) -> bool:
    """Start the threads of an epoch; return False if the system refuses one, or if the process ends."""
    try:
        loops = [work.run_finisher, work.run_reader]
        if work.ahead is not None:
            loops.append(work.ahead.run_ahead)
        for run in loops:
            name = f"gzarr-loader-{run.__name__}"
            NamedThread(run, name).start()
    except RuntimeError:
        work.stop()
        return False
    except BaseException:
        # An interrupt (Ctrl-C).
        work.stop()
        raise
    return True
