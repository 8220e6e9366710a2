"""The memory of a wave for tests of the device kernels, and launches of these."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from gzarr_kernels.device import target
from support import kernel_ir_launch
from support.guarded_memory import PAGE, Guarded

BLOCKS, THREADS = 3, 4


def launch(kernel: Any, *arguments: Any, blocks: int = BLOCKS, threads: int | None = None) -> None:
    """Run a kernel, by default either with few threads, so that each takes several items, or as many as in reality."""
    if threads is None:
        threads = target.THREADS if arguments[-1] % 2 else THREADS
    kernel_ir_launch.launch(kernel, *arguments, blocks=blocks, threads=threads)


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
