"""How much memory a read or write may hold: the caller's limit, or one that fits the device."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, Final

from ...positive import positive

if TYPE_CHECKING:
    from .device_protocol import Device

#: Default limit: at most these bytes, and at most a quarter of the free memory.
DEFAULT_BYTES: Final = 8 << 30
#: Bytes used without asking how much memory is free: CUDA takes 10 µs to 1 ms to answer, as long as a small read.
UNASKED_BYTES: Final = 64 << 20
#: A limit is not halved to less: whoever has no room for that has no room at all.
LEAST_BYTES: Final = 1 << 20


class Budget:
    """Limit on the device and page-locked memory of one read or write, besides its results or inputs.

    Parameters
    ----------
    device
        Device to ask for its free memory, if that matters.
    nbytes
        The caller's limit in bytes; None for the default.
    ask
        Whether the device may be asked for its free memory, which initialises CUDA; otherwise it is taken to have much.

    Attributes
    ----------
    strict
        Whether the caller gave the limit.

    Raises
    ------
    ArgumentError
        If ``nbytes`` is not a positive integer.
    """

    def __init__(self, device: Device, nbytes: int | None, *, ask: bool = True) -> None:
        nbytes = None if nbytes is None else positive("budget_bytes", nbytes)
        self._device = device
        self._limit = nbytes if nbytes is not None or ask else DEFAULT_BYTES
        # What the caller could use, as it said last.
        self._wanted = 0
        self.strict: bool = nbytes is not None

    def limit(self, wanted: int) -> int:
        """Return how many bytes may be held, for a caller that could use ``wanted`` bytes."""
        self._wanted = wanted
        return self._limit_for(wanted)

    def allows(self, nbytes: int) -> bool:
        """Return whether this many bytes may be held, which need not be this caller's alone."""
        return nbytes <= self._limit_for(nbytes)

    def _limit_for(self, nbytes: int) -> int:
        if self._limit is None:
            if nbytes <= UNASKED_BYTES:
                return UNASKED_BYTES
            self._limit = self._asked()
        return self._limit

    def tighten(self, failure: MemoryError) -> bool:
        """Make the limit smaller after an allocation failed; return whether that may help.

        The device is asked for its free memory: others may have taken what was free when it was asked first. But an
        allocator that is not a pool of CuPy's may have less than the device, and does not tell how much. So the limit
        is at most half of what was held, whatever the device says.

        Parameters
        ----------
        failure
            The error of the allocation. What its functions held is freed: it would not count as free memory.
        """
        if self.strict:
            return False
        traceback.clear_frames(failure.__traceback__)
        before = UNASKED_BYTES if self._limit is None else self._limit
        self._limit = self._asked()
        half = min(before, self._wanted) // 2
        if half >= LEAST_BYTES:
            self._limit = min(self._limit, half)
        return self._limit < before

    def _asked(self) -> int:
        return min(DEFAULT_BYTES, self._device.free_bytes() // 4)
