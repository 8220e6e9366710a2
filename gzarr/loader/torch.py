"""A loader inside PyTorch's ``DataLoader`` and what is built on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.utils.data import IterableDataset, get_worker_info

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .loader import Loader

__all__ = ["IterableLoader"]


class IterableLoader(IterableDataset[Any]):  # type: ignore[misc]
    """A loader as an iterable dataset: ``DataLoader(IterableLoader(loader), batch_size=None, num_workers=2)``.

    Its items are the loader's batches. Each worker process of the ``DataLoader`` makes batches of its own share of the
    samples: the samples of rank ``r`` of ``w`` are dealt to n workers as if there were ``w * n`` ranks. With
    ``StatefulDataLoader`` of torchdata, resuming is exact for the same number of workers.

    Parameters
    ----------
    loader
        The loader.
    """

    def __init__(self, loader: Loader) -> None:
        super().__init__()
        self._loader = loader
        self._split = False

    def __iter__(self) -> Iterator[Any]:
        """Give out the batches of an epoch, or this worker's share of them."""
        info = get_worker_info()
        if info is not None and not self._split:
            self._loader = self._loader.split(info.id, info.num_workers)
            self._split = True
        return iter(self._loader)

    def __len__(self) -> int:
        """Return the number of batches of an epoch."""
        return len(self._loader)

    def state_dict(self) -> dict[str, Any]:
        """Return the loader's state."""
        return self._loader.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a ``state`` of the loader."""
        self._loader.load_state_dict(state)
