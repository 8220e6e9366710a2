"""Errors of the simulated device for undefined behaviour of a GPU, and calls that fail like CUDA's may."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from gzarr.engines.cuda.loss import Loss
from gzarr.errors import DeviceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ILLEGAL_ADDRESS = "cudaErrorIllegalAddress: an illegal memory access was encountered"
INVALID_VALUE = "cudaErrorInvalidValue: invalid argument"


class SimulatedFault(AssertionError):
    """An operation that a device does not allow: an error in the engine, not in its input."""


class Sticky(Exception):
    """The error of every call after the context has died."""


class Calls:
    """The CUDA calls of a simulated device, all of which fail once the context is dead.

    Parameters
    ----------
    name
        Name of the device.

    Attributes
    ----------
    made
        Names of the calls that reached CUDA, in order.
    fail
        Function of the name of a call: ``"fail"`` to make it fail, ``"die"`` to kill the context before it, or ``""``.
    dead
        Whether the context is dead, which shows only at the next call.
    lost
        Loss of the device; set by the first call that fails because the context is dead.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self.made: list[str] = []
        self.fail: Callable[[str], str] = lambda call: ""
        self.dead = False
        self.lost: Loss | None = None

    def die(self) -> None:
        """Fail like a kernel with an illegal access; raises in the running operation."""
        self.dead = True
        raise Sticky(ILLEGAL_ADDRESS)

    @contextmanager
    def call(self, name: str) -> Iterator[None]:
        """Make a call; operations that it waits for may make it fail, too."""
        if self.lost is not None:
            raise self.lost.error()
        self.made.append(name)
        what = self.fail(name)
        if what == "fail":
            raise DeviceError(f"CUDA failed: {INVALID_VALUE}")
        self.dead = self.dead or what == "die"
        try:
            if self.dead:
                raise Sticky(ILLEGAL_ADDRESS)
            yield
        except Sticky as error:
            # A nested call may have reported it already.
            self.lost = self.lost or Loss(self._name, str(error))
            raise self.lost.error() from error
