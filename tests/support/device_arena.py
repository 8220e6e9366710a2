"""The memory of a wave for tests of the device kernels, and launches of these."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from gzarr_kernels.device import target
from numba.cuda.simulator import kernelapi
from numba.cuda.simulator.cudadrv.devicearray import FakeCUDAArray
from support import kernel_ir_launch
from support.guarded_memory import PAGE, Guarded

if TYPE_CHECKING:
    from collections.abc import Iterator

BLOCKS, THREADS = 3, 4


class _OneEach(dict[Any, Any]):
    """A dictionary that looks up and adds missing keys in one thread at a time."""

    def __init__(self) -> None:
        super().__init__()
        self._adding = threading.Lock()

    def get(self, key: Any, default: Any = None) -> Any:
        self._adding.acquire()
        found = super().get(key, default)
        if found is not None:
            self._adding.release()
        return found

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, value)
        self._adding.release()


class _Shared(kernelapi.FakeCUDAShared):  # type: ignore[misc]
    """Shared memory that is the same for all threads of a block, even if two of them are the first to request it."""

    def __init__(self, nbytes: int) -> None:
        super().__init__(nbytes)
        self._allocations = _OneEach()


kernelapi.FakeCUDAShared = _Shared


def in_simulator(kernel: Any, *arguments: Any, blocks: int, threads: int) -> None:
    kernel[blocks, threads](*(FakeCUDAArray(x) if isinstance(x, np.ndarray) else x for x in arguments))


#: How kernels are launched: by the simulator, or as they are compiled for a GPU; see the fixture ``launcher``.
LAUNCHERS: dict[str, Any] = {"simulator": in_simulator, "ir": kernel_ir_launch.launch}
_launcher = ["simulator"]


@contextmanager
def launched_by(name: str) -> Iterator[None]:
    before, _launcher[0] = _launcher[0], name
    try:
        yield
    finally:
        _launcher[0] = before


#: Mark for tests that run once with each launcher.
by_each_launcher = pytest.mark.usefixtures("launcher")


def launch(kernel: Any, *arguments: Any, blocks: int = BLOCKS, threads: int | None = None) -> None:
    """Run a kernel, by default with a number of threads that the launcher chooses."""
    if threads is None:
        # Either few threads, so that each takes several items, or as many as in a real launch.
        threads = target.THREADS if _launcher[0] == "ir" and arguments[-1] % 2 else THREADS
    LAUNCHERS[_launcher[0]](kernel, *arguments, blocks=blocks, threads=threads)


@dataclass
class Arena:
    """Memory of a wave, to which bytes and columns are added like in the engine."""

    memory: np.ndarray[Any, Any]
    used: int = 0

    @classmethod
    def of(cls, nbytes: int) -> Arena:
        """Return an arena for some bytes and a few columns."""
        return cls(_untouched(-(-nbytes // PAGE) * PAGE + 4 * PAGE))

    @property
    def columns(self) -> np.ndarray[Any, Any]:
        return self.memory.view(np.int64)

    def put(self, values: Any) -> int:
        column = np.asarray(values, np.int64).ravel()
        begin = -(-self.used // 8)
        self.columns[begin : begin + column.size] = column
        self.used = 8 * (begin + column.size)
        return begin

    def reserve(self, nbytes: int, offset: int = 0) -> int:
        """Reserve ``nbytes`` at ``offset`` from a multiple of 16, after untouched bytes; return their position."""
        begin = -(-(self.used + 16) // 16) * 16 + offset
        self.used = begin + nbytes
        assert self.used <= self.memory.size
        return begin

    def put_bytes(self, data: bytes, offset: int = 0) -> int:
        begin = self.reserve(len(data), offset)
        self.memory[begin : begin + len(data)] = np.frombuffer(data, np.uint8)
        return begin

    def put_last(self, data: bytes, offset: int = 0) -> int:
        """Put bytes less than 8 before the end: reading a whole word after them is a fault."""
        begin = self.memory.size - len(data)
        begin -= (begin - offset) % 8
        assert self.used <= begin
        self.memory[begin : begin + len(data)] = np.frombuffer(data, np.uint8)
        return begin

    def bytes_at(self, begin: int, nbytes: int) -> bytes:
        return self.memory[begin : begin + nbytes].tobytes()


def _untouched(nbytes: int) -> np.ndarray[Any, Any]:
    """Return memory in which neighbouring bytes differ, so that moved bytes are noticed."""
    memory = Guarded(nbytes).array
    memory[:] = np.frombuffer(random_bytes(nbytes, 9), np.uint8)
    return memory


def blocks_of(data: bytes, blocksize: int) -> list[bytes]:
    return [data[i : i + blocksize] for i in range(0, len(data), blocksize)]


def to_byte_planes(block: bytes, typesize: int) -> bytes:
    n = len(block) // typesize
    elements = np.frombuffer(block, np.uint8, n * typesize).reshape(n, typesize)
    return elements.T.tobytes() + block[n * typesize :]


def random_bytes(nbytes: int, seed: int = 0) -> bytes:
    return np.random.default_rng(seed).bytes(nbytes)
