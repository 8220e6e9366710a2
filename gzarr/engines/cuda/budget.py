"""How much memory a read or a write may hold: what its caller says, or what the device has room for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ...errors import ArgumentError

if TYPE_CHECKING:
    from .device_protocol import Device

#: Without a caller's word: at most these bytes, and at most a quarter of what is free.
DEFAULT_BYTES: Final = 1 << 30
#: So much is taken without asking how much is free. CUDA takes 10 µs to 1 ms to say it, as long as a small read.
UNASKED_BYTES: Final = 64 << 20


class Budget:
    """Device and page-locked memory that one read or write may hold, besides its results or inputs.

    Parameters
    ----------
    device
        That is asked what it has free, where that matters.
    nbytes
        The caller's word; None for the default.

    Attributes
    ----------
    strict
        Whether it is the caller's word.

    Raises
    ------
    ArgumentError
        If ``nbytes`` is not a positive integer.
    """

    def __init__(self, device: Device, nbytes: int | None) -> None:
        if nbytes is not None and (type(nbytes) is not int or nbytes < 1):
            raise ArgumentError(f"budget_bytes must be a positive integer, not {nbytes!r}")
        self._device = device
        self._limit = nbytes
        self.strict = nbytes is not None

    def limit(self, wanted: int) -> int:
        """Return how many bytes may be held by who wants that many."""
        if self._limit is None:
            if wanted <= UNASKED_BYTES:
                return UNASKED_BYTES
            self._limit = self._asked()
        return self._limit

    def tighten(self) -> bool:
        """Ask, after the device had no room, what it has free; return whether that is less than was thought."""
        if self._limit is not None:
            return False
        self._limit = self._asked()
        return self._limit < UNASKED_BYTES

    def _asked(self) -> int:
        return min(DEFAULT_BYTES, self._device.free_bytes() // 4)
