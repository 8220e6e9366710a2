"""What the simulated device says where a GPU would have undefined behaviour, and calls that fail as CUDA's may."""

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
    """Something that a device does not allow: the engine is wrong, not its input."""


class Sticky(Exception):
    """What every call says once the context is dead."""


class Calls:
    """The calls of CUDA that a simulated device makes, all of which fail once the context is dead.

    Parameters
    ----------
    name
        Of the device.

    Attributes
    ----------
    made
        Names of those that reached CUDA, in order.
    fail
        Given the name of a call: ``"fail"`` to let it fail, ``"die"`` to let the context die before it, or ``""``.
    dead
        Whether the context is dead. Nobody knows before the next call.
    lost
        Of the device; set by the first call that fails so.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self.made: list[str] = []
        self.fail: Callable[[str], str] = lambda call: ""
        self.dead = False
        self.lost: Loss | None = None

    def die(self) -> None:
        """Let a kernel do what it must not: raises in the operation that runs."""
        self.dead = True
        raise Sticky(ILLEGAL_ADDRESS)

    @contextmanager
    def call(self, name: str) -> Iterator[None]:
        """Make a call; what it waits for may fail it too."""
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
            # A call within this one may have said so already.
            self.lost = self.lost or Loss(self._name, str(error))
            raise self.lost.error() from error
