"""A loader inside PyTorch's ``DataLoader`` and what is built on it."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.utils.data import IterableDataset, get_worker_info

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .loader import Loader

__all__ = ["IterableLoader"]

_MOST_WORKERS: Final = 1024
#: Bits of an iteration's name beside the number of its epoch.
_NAME_BITS: Final = 40


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
        return self._batches()

    def _batches(self) -> Iterator[Any]:
        # An iterator that gives out nothing, as torchdata makes some, does not use up an epoch.
        with closing(iter(self._loader)) as batches:
            yield from batches

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
        self._loader.set_epoch(epoch)
        self._epochs.set(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return the loader's state."""
        return self._loader.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a ``state`` of the loader."""
        self._loader.load_state_dict(state)


class _Epochs:
    """The number of the epoch, which the workers of all iterations share.

    Each worker writes the epoch that it begins, with the name of the iteration, in one word of shared memory. Workers
    of a new iteration find the same number in any order: that of another worker of theirs, or the one after the last.
    """

    def __init__(self) -> None:
        self._words = torch.zeros(_MOST_WORKERS, dtype=torch.int64).share_memory_()
        # What this process wrote last.
        self._written = 0

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Share the memory of a copy, too."""
        self.__dict__.update(state)
        self._words.share_memory_()
        self._written = 0

    def set(self, epoch: int) -> None:
        """Make the next iteration an epoch."""
        self._words.zero_()
        self._words[0] = epoch << _NAME_BITS

    def begin(self, loader: Loader, worker: int, name: int) -> None:
        """Set a worker's loader to the epoch of an iteration, unless it goes on from a state."""
        mine = worker % _MOST_WORKERS
        short = (name % (1 << (_NAME_BITS - 1))) << 1 | 1
        if not loader.goes_on:
            words = self._words.numpy().copy()
            epochs, names = words >> _NAME_BITS, words & ((1 << _NAME_BITS) - 1)
            same = names == short
            # Persistent workers keep their name.
            again = self._written != 0 and words[mine] == self._written
            if same.any() and not again:
                following = int(epochs[same].max()) - 1
            elif again:
                following = loader.next_epoch
            else:
                following = int(epochs.max())
            loader.set_epoch(following)
        self._written = (loader.next_epoch + 1) << _NAME_BITS | short
        self._words[mine] = self._written
