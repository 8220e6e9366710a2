"""A loader inside PyTorch's ``DataLoader`` and what is built on it."""

from __future__ import annotations

import math
import multiprocessing
import os
import sys
from collections.abc import Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info

from ..errors import ArgumentError
from ..stores.file_locks import brief_lock
from .arguments import integers

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from .loader import Loader
    from .pipeline import Pipeline

__all__ = ["IterableLoader"]

#: What is known of an iteration, or of an epoch that was set: all are of 64 bits, with a sign.
_RECORD: Final = np.dtype(
    [(name, np.int64) for name in ("number", "owner", "era", "sets", "seed", "ordinal")]
    + [(name, np.int64) for name in ("epoch", "cursor", "order", "seen_epoch", "seen_cursor")]
)
#: Less than 32 KiB: PyTorch copies more by OpenMP, which hangs in a forked process if its parent has used that.
_RECORDS: Final = 256
#: The last records of each process are kept, whatever others write.
_OWN_RECORDS: Final = 16
#: In place of the ordinal of an iteration: a record of an epoch that was set, and of no iteration.
_SET: Final = -1
_MOST_EPOCHS: Final = 1 << 62
#: How long workers wait for each other, which need the lock for a few microseconds.
_LOCK_S: Final = 5.0
_LOCKED: Final = "/dev/shm" if sys.platform == "linux" else __file__


class IterableLoader(IterableDataset[Any]):  # type: ignore[misc]
    """A loader as an iterable dataset: ``DataLoader(IterableLoader(loader), batch_size=None, num_workers=2)``.

    Its items are the loader's batches. Each worker process of the ``DataLoader`` makes batches of its own share of the
    samples: the samples of rank ``r`` of ``w`` are dealt to n workers as if there were ``w * n`` ranks. Each iteration
    is the next epoch, also where workers end with the epoch. They tell iterations apart by PyTorch's seed: where the
    same one is set before each, or a new ``DataLoader`` has the same ``generator=``, call ``set_epoch`` as well.
    With ``StatefulDataLoader`` of torchdata, resuming is exact for the same number of workers.

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
            self._epochs.begin(self._loader, info.seed - info.id)
        else:
            self._epochs.catch_up(self._loader)
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
        if get_worker_info() is None:
            self._epochs.catch_up(self._loader)
        self._loader.set_epoch(epoch)
        self._epochs.set(self._loader)

    def state_dict(self) -> dict[str, Any]:
        """Return the loader's state.

        What workers have given out is known to ``StatefulDataLoader`` only. Of a plain ``DataLoader`` with workers, the
        state is the beginning of the epoch after the last one that was begun.
        """
        state = self._loader.state_dict()
        following = None if get_worker_info() is not None else self._epochs.following(self._loader)
        return state if following is None else {**state, "epoch": following[0], "cursor": following[1]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a ``state`` of the loader, in one iteration; the next one is the epoch after it."""
        if isinstance(state, Mapping):
            _refuse_epoch(state.get("epoch"))
        before = _place(self._loader)
        self._loader.load_state_dict(state)
        if get_worker_info() is None:
            self._epochs.set(self._loader)
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
    """The epochs of iterations, on which their workers agree by a table in shared memory.

    The first worker that begins an iteration writes down its epoch, and the others find it, however late they are. What
    all workers of an iteration know, and nobody else, is the process that made them (``owner``), how often that process
    had set an epoch by then (``sets``), PyTorch's seed, and which of the iterations of these workers it is
    (``ordinal``): persistent workers keep all but the last.

    Where an epoch was set before any worker has begun, their records come after its own. An iteration of new workers is
    of the ``era`` in which they were made, and the last record is the last one of the last era.

    A record also has the place of the owner's loader when it was last looked at. If that has moved since, it was used
    or set without workers, and iterations go on from there.
    """

    def __init__(self) -> None:
        # How many records were written, and the last ones of each process.
        self._words = torch.zeros(1 + _RECORDS * len(_RECORD.names or ()), dtype=torch.int64, device="cpu")
        self._words.share_memory_()
        # What follows is this process' own, and that of the workers that are copies of it.
        self._sets = 0
        self._ordinal = 0
        # Place of this worker's loader before it loaded a state of its own share.
        self._own_state: tuple[int, int] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Say of which process this is."""
        return {**self.__dict__, "owner": _owner()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Share the memory of a copy, too, which goes on where the original was, in any process."""
        owner = state.pop("owner")
        self.__dict__.update(state)
        if not self._words.is_shared():
            self._words.share_memory_()
            owners = self._table()["owner"]
            owners[:] = np.where(owners == owner, _owner(), 0)

    def set(self, loader: Loader) -> None:
        """Make the loader's next iteration the next one of workers, too."""
        self._sets += 1
        with _lock():
            self._write(_owner(), self._sets, None, _SET, _place(loader), _order(loader), _place(loader))

    def loaded_by_worker(self, before: tuple[int, int]) -> None:
        """Have this worker go on from the state of its share that it has loaded; ``before`` was its place."""
        # Of several states, the last one is gone on from.
        self._own_state = self._own_state or before

    def following(self, loader: Loader) -> tuple[int, int] | None:
        """Return where the next iteration begins, unless that is the place of the loader."""
        with _lock():
            last = self._last(_owner())
        if last is None or last["ordinal"] == _SET or _seen(last) != _place(loader):
            return None
        return _next(last)

    def catch_up(self, loader: Loader) -> None:
        """Set the owner's loader to where the next iteration begins."""
        if (following := self.following(loader)) is not None:
            loader._position.go_to(*following)

    def begin(self, loader: Loader, seed: int) -> None:
        """Set a worker's loader to the epoch of an iteration, unless it goes on from a state of its own."""
        owner, ordinal, own_state = _owner(), self._ordinal, self._own_state
        with _lock():
            # Only new workers are copies of what the owner's loader is now.
            given = None if ordinal else own_state or _place(loader)
            last, found = self._last(owner, None if ordinal else self._sets), self._find(owner, seed, ordinal)
            if own_state is not None:
                # The seed is that of the iterations from which the state is. Those are over.
                self._forget(owner, seed)
                place, order = _place(loader), _order(loader)
            elif found is not None:
                place, order = (int(found["epoch"]), int(found["cursor"])), int(found["order"])
            elif last is None or (given is not None and given != _seen(last)):
                place, order = _place(loader), _order(loader)
            else:
                place, order = _next(last), int(last["order"])
            if found is None or own_state is not None:
                seen = given or (_place(loader) if last is None else _seen(last))
                era = int(last["era"]) if ordinal and last is not None else self._sets
                self._write(owner, era, seed, ordinal, place, order, seen)
        self._ordinal, self._own_state = ordinal + 1, None
        if own_state is not None:
            return
        if place[1] or order != _order(loader):
            state = {"epoch": place[0], "cursor": place[1]}
            # Orders depend on 64 bits of it.
            seed_of_order = {} if order == _order(loader) else {"seed": order % (1 << 64)}
            loader.load_state_dict({**loader.state_dict(), **state, **seed_of_order})
        else:
            loader._begin_at(place[0])

    def _table(self) -> npt.NDArray[Any]:
        table: npt.NDArray[Any] = self._words[1:].numpy().view(_RECORD)
        return table

    def _last(self, owner: int, era: int | None = None) -> Any:
        """Return the last record of a process, of an era and those before it, or None."""
        table = self._table()
        known = table[(table["owner"] == owner) & ((era is None) | (table["era"] <= (era or 0)))]
        return known[np.lexsort((known["number"], known["era"]))[-1]].copy() if len(known) else None

    def _find(self, owner: int, seed: int, ordinal: int) -> Any:
        """Return the record of an iteration, or None."""
        table = self._table()
        same = (table["owner"] == owner) & (table["sets"] == self._sets)
        (at,) = np.nonzero(same & (table["seed"] == _signed(seed)) & (table["ordinal"] == ordinal))
        return table[at[0]].copy() if len(at) else None

    def _forget(self, owner: int, seed: int) -> None:
        """Have no iteration of the workers with a seed found any more."""
        table = self._table()
        table["sets"][(table["owner"] == owner) & (table["seed"] == _signed(seed))] = -1

    def _write(
        self,
        owner: int,
        era: int,
        seed: int | None,
        ordinal: int,
        place: tuple[int, int],
        order: int,
        seen: tuple[int, int],
    ) -> None:
        for epoch in (place[0], seen[0]):
            _refuse_epoch(epoch)
        number = int(self._words[0]) + 1
        identity = (number, owner, era, self._sets, 0 if seed is None else _signed(seed), ordinal)
        table = self._table()
        own = table["owner"] == owner
        # The oldest one, or one that was never written, gives way.
        numbers = np.where(own, table["number"], number) if own.sum() >= _OWN_RECORDS else table["number"]
        table[numbers.argmin()] = (*identity, *place, order, *seen)
        self._words[0] = number


@contextmanager
def _lock() -> Iterator[None]:
    """Exclude other processes: by a lock of something that all have, which needs no copies and ends with its holder.

    On Linux, it is the directory of shared memory, which is never on a network: NFS locks no file that is only read.
    Where there is no lock to be had, only workers that begin within the same microseconds could miss each other.
    """
    with ExitStack() as stack:
        with suppress(OSError):
            fd = os.open(_LOCKED, os.O_RDONLY)
            stack.callback(os.close, fd)
            stack.enter_context(brief_lock(fd, _LOCK_S))
        yield


def _owner() -> int:
    """Return the number of the process whose iterations these are, in it and in its workers."""
    parent = multiprocessing.parent_process() if get_worker_info() is not None else None
    return os.getpid() if parent is None or parent.pid is None else parent.pid


def _place(loader: Loader) -> tuple[int, int]:
    """Return the epoch of a loader's next iteration, and where in it that begins."""
    place = loader._position.place
    return place.next_epoch, place.next_cursor


def _order(loader: Loader) -> int:
    return _signed(loader._order.seed)


def _signed(number: int) -> int:
    """Return the last 64 bits of an integer, with a sign."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def _seen(record: Any) -> tuple[int, int]:
    return int(record["seen_epoch"]), int(record["seen_cursor"])


def _next(record: Any) -> tuple[int, int]:
    """Return where the iteration after a record begins."""
    if record["ordinal"] == _SET:
        return int(record["epoch"]), int(record["cursor"])
    return int(record["epoch"]) + 1, 0
