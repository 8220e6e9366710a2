"""Files that are read past the host into the memory of CUDA in host memory: the counterpart of kvikio."""

from __future__ import annotations

import ctypes
import os
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

from support.cuda_on_host.c_types import DEVICE, Block

from gzarr.errors import DeviceError

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.watched_device import WatchedDevice


class FilesPastHost:
    """Files for :attr:`support.watched_device.WatchedDevice.direct`.

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

    def __init__(self, device: WatchedDevice) -> None:
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

    def memory_of(self, array: Any) -> memoryview:
        """Return the memory of an array, which no stream may be using: files are read out of the order of streams."""
        found = Block()
        address, device = array.data.ptr, self.device
        assert device.cuda.host.library.coh_find(ctypes.c_size_t(address), ctypes.byref(found)), "no memory of CUDA"
        assert (found.kind, found.device) == (DEVICE, device.ordinal)
        assert address + array.nbytes <= found.begin + found.nbytes
        stream = array.data.mem.stream.cupy
        assert stream.done, "a file is read into memory that operations of a stream may still use"
        return memoryview((ctypes.c_uint8 * array.nbytes).from_address(address)).cast("B")

    def open(self, path: str) -> FilePastHost:
        # Like kvikio: errors have no system error number, and opening a pipe blocks.
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except OSError as error:
            raise DeviceError(f"{path} was not opened: {error}") from None
        if not self.opens(path):
            os.close(descriptor)
            raise DeviceError(f"{path} was told not to open")
        self.count("open", 1)
        return FilePastHost(self, path, descriptor)


class FilePastHost:
    """A file of :class:`FilesPastHost`."""

    def __init__(self, files: FilesPastHost, path: str, descriptor: int) -> None:
        self._files = files
        self._path = path
        self._descriptor = descriptor

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def read(self, target: Any, offset: int) -> int:
        assert self._descriptor >= 0, f"{self._path} is read after it was closed"
        memory = self._files.memory_of(target)
        nbytes = self._files.reads(self._path, offset, len(memory))
        if nbytes < 0:
            raise DeviceError(f"{self._path} was told not to be read")
        self._files.count("read")
        return os.preadv(self._descriptor, [memory[:nbytes]], offset)

    def close(self) -> None:
        os.close(self._descriptor)
        self._descriptor = -1
        self._files.count("close", -1)
