"""Files that are read directly into the memory of a simulated device: the counterpart of kvikio."""

from __future__ import annotations

import os
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

from support.simulated_faults import SimulatedFault

from gzarr.errors import DeviceError

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.simulated_device import SimulatedDevice


class SimulatedFiles:
    """Files for :attr:`SimulatedDevice.direct`.

    Attributes
    ----------
    counts
        Numbers of ``"open"``, ``"read"``, ``"close"``.
    is_open, most_open
        Number of open files, and its maximum.
    opens
        Function of a path: whether it can be opened.
    reads
        Function of a path, an offset and a number of bytes: the number of bytes read; a negative number is a failure.
    """

    def __init__(self, device: SimulatedDevice) -> None:
        self.device = device
        self.counts: Counter[str] = Counter()
        self.is_open = self.most_open = 0
        self.opens: Callable[[str], bool] = lambda path: True
        self.reads: Callable[[str, int, int], int] = lambda path, offset, nbytes: nbytes
        self._lock = threading.Lock()

    def count(self, what: str, opened: int = 0) -> None:
        with self._lock:
            self.counts[what] += 1
            self.is_open += opened
            self.most_open = max(self.most_open, self.is_open)

    def open(self, path: str) -> SimulatedFile:
        # Like kvikio: errors have no system error number, and opening a pipe blocks.
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except OSError as error:
            raise DeviceError(f"{path} was not opened: {error}") from None
        if not self.opens(path):
            os.close(descriptor)
            raise DeviceError(f"{path} was told not to open")
        self.count("open", 1)
        return SimulatedFile(self, path, descriptor)


class SimulatedFile:
    """A file of :class:`SimulatedFiles`."""

    def __init__(self, files: SimulatedFiles, path: str, descriptor: int) -> None:
        self._files = files
        self._path = path
        self._descriptor = descriptor

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def read(self, target: Any, offset: int) -> int:
        if self._descriptor < 0:
            raise SimulatedFault(f"{self._path} is read after it was closed")
        memory = self._files.device.free_memory_at(target)
        nbytes = self._files.reads(self._path, offset, memory.size)
        if nbytes < 0:
            raise DeviceError(f"{self._path} was told not to be read")
        self._files.count("read")
        return os.preadv(self._descriptor, [memoryview(memory)[:nbytes]], offset)

    def close(self) -> None:
        os.close(self._descriptor)
        self._descriptor = -1
        self._files.count("close", -1)
