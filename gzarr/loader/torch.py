"""A loader inside PyTorch's ``DataLoader`` and what is built on it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.utils.data import IterableDataset, get_worker_info

from ..errors import ArgumentError
from .arguments import integers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .loader import Loader
    from .pipeline import Pipeline

__all__ = ["IterableLoader"]

_MOST_WORKERS: Final = 1024
#: Words beside those of workers.
_LOOKED_AT: Final = _MOST_WORKERS
_GONE_ON: Final = _MOST_WORKERS + 1
#: The name of no iteration.
_ANOTHER: Final = -1
#: Bits of an iteration's name beside the number of its epoch.
_NAME_BITS: Final = 40
# Words are of 64 bits, with a sign; the one after an epoch is written, too.
_MOST_EPOCHS: Final = (1 << (63 - _NAME_BITS)) - 1


class IterableLoader(IterableDataset[Any]):  # type: ignore[misc]
    """A loader as an iterable dataset: ``DataLoader(IterableLoader(loader), batch_size=None, num_workers=2)``.

    Its items are the loader's batches. Each worker process of the ``DataLoader`` makes batches of its own share of the
    samples: the samples of rank ``r`` of ``w`` are dealt to n workers as if there were ``w * n`` ranks. Each iteration
    is the next epoch, also where workers end with the epoch. With ``StatefulDataLoader`` of torchdata, resuming is
    exact for the same number of workers.

    Parameters
    ----------
    loader
        The loader.
    """

    def __init__(self, loader: Loader) -> None:
        super().__init__()
        self._loader = loader
        self._split = False
        self._epochs = _Epochs()

    def __iter__(self) -> Iterator[Any]:
        """Give out the batches of an epoch, or this worker's share of them; it begins with the first batch."""
        info = get_worker_info()
        if info is not None:
            if not self._split:
                self._loader = self._loader.split(info.id, info.num_workers)
                self._split = True
            # Seeds of workers are the iteration's and the number of the worker.
            self._epochs.begin(self._loader, info.id, info.seed - info.id)
        return _Batches(self._loader)

    def __len__(self) -> int:
        """Return the number of batches of an epoch, without workers.

        Each of n workers leaves out, or fills up, a last batch of its own: up to n - 1 batches less or more may come.
        """
        return len(self._loader)

    def set_epoch(self, epoch: int) -> None:
        """Make the next iteration an epoch, as for :meth:`gzarr.Loader.set_epoch`, also in workers.

        Parameters
        ----------
        epoch
            Number of the epoch, at least 0.
        """
        _refuse_epoch(epoch)
        self._loader.set_epoch(epoch)
        self._epochs.set(self._loader, epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return the loader's state.

        What workers have given out is known to ``StatefulDataLoader`` only. Of a plain ``DataLoader`` with workers, the
        state is the beginning of the epoch after the last one that was begun.
        """
        state = self._loader.state_dict()
        following = 0 if get_worker_info() is not None else self._epochs.following()
        return {**state, "epoch": following, "cursor": 0} if following > self._loader.next_epoch else state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a ``state`` of the loader, in one iteration; the next one is the epoch after it."""
        if isinstance(state, Mapping):
            _refuse_epoch(state.get("epoch"))
        before = self._loader.next_epoch
        self._loader.load_state_dict(state)
        if get_worker_info() is None:
            self._epochs.loaded(self._loader)
        else:
            self._epochs.loaded_by_worker(before)


def _refuse_epoch(epoch: Any) -> None:
    """Refuse the number of an epoch that workers could not share; what is none is the loader's to refuse."""
    if integers((epoch,), _MOST_EPOCHS, math.inf):
        raise ArgumentError(f"epoch must be below {_MOST_EPOCHS} where workers share it, not {epoch}")


class _Batches:
    """Iterator over the batches of an epoch, which begins with the first one.

    One that gives out nothing, as torchdata makes some, does not use up an epoch. No generator: with any error, that of
    a single batch too, it would be at its end.
    """

    def __init__(self, loader: Loader) -> None:
        self._loader = loader
        self._batches: Pipeline | None = None
        self._closed = False

    def __iter__(self) -> _Batches:
        return self

    def __next__(self) -> Any:
        if self._closed:
            raise StopIteration
        if self._batches is None:
            self._batches = iter(self._loader)
        return next(self._batches)

    def close(self) -> None:
        """End the epoch and its threads."""
        self._closed = True
        if self._batches is not None:
            self._batches.close()


class _Epochs:
    """The number of the epoch, which the workers of all iterations share.

    Each worker writes the epoch that it begins, with the name of the iteration, in one word of shared memory. Workers
    of a new iteration find the same number in any order: that of another worker of theirs, or the one after the last,
    unless the loader that they are copies of was set to another epoch. One more word has the next epoch of that loader
    when it was last looked at, and one the name of the iteration that has gone on from a loaded state: a worker that
    ends with its epoch leaves no other trace of that.
    """

    def __init__(self) -> None:
        self._words = torch.zeros(_MOST_WORKERS + 2, dtype=torch.int64).share_memory_()
        # What this process wrote last.
        self._written = 0
        # Whether this worker itself has loaded a state, of its own share.
        self._is_own_state = False

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Share the memory of a copy, too."""
        self.__dict__.update(state)
        self._words.share_memory_()
        self._written = 0

    def set(self, loader: Loader, epoch: int) -> None:
        """Make the next iteration of workers an epoch."""
        self._words[:_MOST_WORKERS].zero_()
        self._words[_LOOKED_AT] = loader.next_epoch + 1
        self._words[0] = epoch << _NAME_BITS
        if self._words[_GONE_ON]:
            # Whatever the next iteration is called, it is another one.
            self._words[_GONE_ON] = _ANOTHER

    def loaded(self, loader: Loader) -> None:
        """Have the next workers go on from the state that the loader has loaded; others begin its epoch."""
        self.set(loader, loader.next_epoch)
        self._words[_GONE_ON] = 0

    def loaded_by_worker(self, before: int) -> None:
        """Have this worker go on from the state of its share that it has loaded; ``before`` was its next epoch."""
        self._is_own_state = True
        if not self._written:
            self._words[_LOOKED_AT] = before + 1

    def following(self) -> int:
        """Return the number of the epoch after the last one that workers have begun; 0 if they have begun none."""
        words = self._words[:_MOST_WORKERS].numpy().copy()
        named = words & ((1 << _NAME_BITS) - 1) != 0
        return int((words[named] >> _NAME_BITS).max()) if named.any() else 0

    def begin(self, loader: Loader, worker: int, name: int) -> None:
        """Set a worker's loader to the epoch of an iteration, unless it goes on from a state."""
        mine = worker % _MOST_WORKERS
        short = (name % (1 << (_NAME_BITS - 1))) << 1 | 1
        _refuse_epoch(loader.next_epoch)
        given, is_new = loader.next_epoch, self._written == 0
        # Looked at before the words of other workers, which are written before these.
        looked_at, gone_on = int(self._words[_LOOKED_AT]), int(self._words[_GONE_ON])
        goes_on = loader.goes_on and (self._is_own_state or gone_on in (0, short))
        if not goes_on:
            words = self._words[:_MOST_WORKERS].numpy().copy()
            epochs, names = words >> _NAME_BITS, words & ((1 << _NAME_BITS) - 1)
            same = names == short
            # Persistent workers keep their name.
            again = not is_new and words[mine] == self._written
            if same.any() and not again:
                following = int(epochs[same].max()) - 1
            elif again or (is_new and looked_at != given + 1):
                following = given
            else:
                following = int(epochs.max())
            loader._begin_at(following)
        self._written = (loader.next_epoch + 1) << _NAME_BITS | short
        self._words[mine] = self._written
        if is_new and not self._is_own_state:
            self._words[_LOOKED_AT] = given + 1
        if goes_on and not self._is_own_state:
            self._words[_GONE_ON] = short
        self._is_own_state = False
