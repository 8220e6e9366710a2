"""Epochs of trainers that count them by themselves, such as Lightning."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class EpochSetter:
    """What trainers that know PyTorch's ``DistributedSampler`` call when one of their epochs begins.

    A training that goes on from a checkpoint of the end of an epoch counts on, and loads no state into its loader:
    without this, the orders of the first epochs would come again.

    Parameters
    ----------
    set_epoch
        Function that makes the loader's next iteration an epoch of the trainer's.
    batch_size
        Samples of a batch, which Lightning's strategy for DeepSpeed asks for.
    """

    def __init__(self, set_epoch: Callable[[int], None], batch_size: int) -> None:
        self._set_epoch = set_epoch
        self.batch_size: int = batch_size

    @property
    def sampler(self) -> EpochSetter:
        """Where ``set_epoch`` is looked for."""
        return self

    def set_epoch(self, epoch: int) -> None:
        """Make the next iteration an epoch of the trainer's, also one that has begun and given out nothing.

        Parameters
        ----------
        epoch
            Number of the trainer's epoch, at least 0. It is the loader's, unless the loader had given out epochs
            before the trainer's first one, or has gone on from a state of another number.

        Raises
        ------
        ArgumentError
            If it is no such number.
        """
        self._set_epoch(epoch)
