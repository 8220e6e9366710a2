"""Launches of device kernels on the host, as numba-cuda compiles them for a GPU (see :mod:`kernel_ir`).

Each launch is a separate process: an access outside its memory ends that process, and fails the test. Each memory of a
kernel is next to an inaccessible page, before or after it. A thread of the system is a thread of a block, and waits for
the others at a real barrier; two blocks run at a time, each with shared memory that is overwritten before the next
block. If the threads of a block do not depend on each other, fewer threads of the system take them in any order.
"""

from __future__ import annotations

import atexit
import ctypes
import hashlib
import json
import mmap
import os
import random
import signal
import subprocess
import sys
import threading
import zlib
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import numpy as np
from gzarr_kernels.device.target import FINGERPRINT
from support import kernel_ir
from support.guarded_memory import Guarded

SUPPORT: Final = Path(__file__).parent
#: Number of blocks that run at a time; number of threads of the system for independent threads of a block.
_TEAMS: Final = 2
_WORKERS: Final = 3
#: Seconds after which a launch counts as hanging.
_LIMIT: Final = 100
#: A thread pauses, on average, at one of this many memory operations, a power of two; more often if the threads of a
#: block depend on each other.
_PAUSE: Final = {True: 16, False: 256}


class KernelFaultError(AssertionError):
    """A kernel did something undefined on a GPU, or did not end."""


class _Here(ctypes.Structure):
    _fields_ = (
        ("registers", ctypes.c_int32 * 12),
        ("shared", ctypes.c_void_p),
        ("random", ctypes.c_uint64),
        ("pauses", ctypes.c_uint64),
        ("arguments", ctypes.c_void_p),
        ("items", ctypes.c_void_p),
        ("n_items", ctypes.c_int64),
        ("team", ctypes.c_void_p),
        ("barriers", ctypes.c_int64),
        ("index", ctypes.c_int64),
    )


class _Team(ctypes.Structure):
    _fields_ = (
        ("barrier", ctypes.c_char * 64),
        ("threads", ctypes.c_int64),
        ("shared", ctypes.c_void_p),
        ("shared_nbytes", ctypes.c_int64),
        ("sites", ctypes.c_void_p),
    )


class _Fault(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_int64) for name in ("kind", "value", "site", "block", "thread"))


class _Launch(ctypes.Structure):
    _fields_ = (
        ("report", ctypes.c_void_p),
        ("threads", ctypes.c_int64),
        ("heres", ctypes.c_void_p),
        ("ids", ctypes.c_void_p),
        ("action", ctypes.c_void_p),
        ("seconds", ctypes.c_int32),
    )


class _Action(ctypes.Structure):
    """``struct sigaction`` of Linux's C library, on 64 bits."""

    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_char * 128),
        ("flags", ctypes.c_int32),
        ("restorer", ctypes.c_void_p),
    )


_SA_SIGINFO: Final = 4
_libc = ctypes.CDLL(None)


# -- kernels


class _Compiler:
    """The process with numba-cuda, started on first use; its answers are kept on disk."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()
        self._kernels: dict[tuple[str, ...], kernel_ir.HostKernel] = {}

    def kernel(self, module: str, name: str, parameters: list[str]) -> kernel_ir.HostKernel:
        key = (module, name, *parameters)
        with self._lock:
            if key not in self._kernels:
                self._kernels[key] = kernel_ir.on_host(self._modules(module, name, parameters))
            return self._kernels[key]

    def _modules(self, module: str, name: str, parameters: list[str]) -> list[str]:
        versions = [version(package) for package in ("numba", "numba-cuda", "llvmlite", "numpy")]
        source = sys.modules[module].__file__ or ""
        own = (Path(source).read_text(), (SUPPORT / "kernel_ir_compiler.py").read_text())
        key = hashlib.sha256(json.dumps([versions, FINGERPRINT, own]).encode()).hexdigest()
        python = "{}.{}".format(*sys.version_info)
        types = "-".join(parameter or "n" for parameter in parameters)
        file = SUPPORT.parents[1] / ".pytest_cache" / "kernel_ir" / f"{module}.{name}-{types}-{python}.json"
        with suppress(FileNotFoundError):
            kept = json.loads(file.read_text())
            if kept["key"] == key:
                return list(kept["modules"])
        modules = self._ask([module, name, parameters])
        file.parent.mkdir(parents=True, exist_ok=True)
        new = file.with_suffix(f".{os.getpid()}")
        new.write_text(json.dumps({"key": key, "modules": modules}))
        new.replace(file)
        return modules

    def _ask(self, question: Any) -> list[str]:
        if self._process is None:
            environment = {key: value for key, value in os.environ.items() if key != "NUMBA_ENABLE_CUDASIM"}
            environment["PYTHONPATH"] = os.pathsep.join(map(str, sys.path))
            self._process = subprocess.Popen(
                [sys.executable, str(SUPPORT / "kernel_ir_compiler.py")],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            atexit.register(self._close)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(question), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        assert line, "the compiler has ended"
        answer = json.loads(line)
        assert "error" not in answer, answer["error"]
        modules: list[str] = answer["modules"]
        return modules

    def _close(self) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.close()
            self._process.stdout.close()
            self._process.wait()
            self._process = None


_compiler = _Compiler()


def compiled(kernel: Any, arguments: tuple[Any, ...]) -> kernel_ir.HostKernel:
    """Return a kernel of the simulator in the form for the host, for arguments of these types."""
    parameters = [x.dtype.char if isinstance(x, np.ndarray) else "" for x in arguments]
    function = kernel.py_func
    return _compiler.kernel(function.__module__, function.__name__, parameters)


# -- memory


class _Memory:
    """Bytes that a launch may access, next to an inaccessible page; overlapping arrays share memory.

    Parameters
    ----------
    arrays
        Overlapping arrays.
    before
        Whether the inaccessible page is the one before.
    """

    def __init__(self, arrays: list[np.ndarray[Any, Any]], before: bool) -> None:
        self.low = min(x.ctypes.data for x in arrays)
        self.nbytes = max(x.ctypes.data + x.nbytes for x in arrays) - self.low
        self._arrays = arrays
        self._guarded: Guarded | None = None
        self.address = self.low
        if not _is_shared(arrays[0]):
            # Nothing may depend on a greater alignment of an address than this.
            end = self.low + self.nbytes
            room = -end % _ALIGNMENT
            if before:
                room = (mmap.PAGESIZE - self.nbytes - self.low % _ALIGNMENT) % mmap.PAGESIZE
            self._guarded = Guarded(self.nbytes, room)
            self.address = self._guarded.address
            assert (self.address - self.low) % _ALIGNMENT == 0
            ctypes.memmove(self.address, self.low, self.nbytes)

    def take_back(self) -> None:
        """Copy the results back to the arrays."""
        if self._guarded is not None and any(x.flags.writeable for x in self._arrays):
            ctypes.memmove(self.low, self.address, self.nbytes)


_ALIGNMENT: Final = 16


def _is_shared(array: Any) -> bool:
    """Return whether forked processes share an array's memory: that of :class:`Guarded`."""
    while isinstance(array, np.ndarray):
        array = array.base
    return isinstance(array.obj if isinstance(array, memoryview) else array, mmap.mmap)


def _memories(arrays: list[np.ndarray[Any, Any]], before: bool) -> list[_Memory]:
    groups: list[list[np.ndarray[Any, Any]]] = []
    end = -1
    for x in sorted((x for x in arrays if x.nbytes), key=lambda x: x.ctypes.data):
        assert x.flags.c_contiguous
        if x.ctypes.data >= end:
            groups.append([])
        groups[-1].append(x)
        end = max(end, x.ctypes.data + x.nbytes)
    return [_Memory(group, before) for group in groups]


# -- launches


def launch(kernel: Any, *arguments: Any, blocks: int, threads: int, seed: int | None = None) -> None:
    """Run a kernel.

    Parameters
    ----------
    kernel
        Kernel of this process, which has the simulator.
    *arguments
        1-d arrays, and integers.
    blocks, threads
        Number of blocks, and of threads per block.
    seed
        Seed of the order of blocks and threads, of pauses of threads, and of the sides of inaccessible pages; by
        default it depends on the arguments, so that a repeated launch is the same.

    Raises
    ------
    KernelFaultError
        If the kernel accesses memory other than its arguments, or does something undefined on a GPU.
    """
    program = compiled(kernel, arguments)
    name = kernel.py_func.__name__
    if seed is None:
        seed = zlib.crc32(repr((name, blocks, threads, *map(_size, arguments))).encode())
    chance = random.Random(seed)
    memories = _memories([x for x in arguments if isinstance(x, np.ndarray)], chance.random() < 0.5)
    passed = (ctypes.c_int64 * max(len(arguments), 1))()
    nothing = Guarded(0)
    for i, argument in enumerate(arguments):
        if not isinstance(argument, np.ndarray):
            passed[i] = int(argument)
        elif not argument.nbytes:
            passed[i] = nothing.address
        else:
            at = argument.ctypes.data
            (memory,) = (m for m in memories if m.low <= at < m.low + m.nbytes)
            passed[i] = memory.address + at - memory.low
    _run(program, passed, blocks, threads, chance, name)
    for memory in memories:
        memory.take_back()


def _size(argument: Any) -> int:
    return argument.size if isinstance(argument, np.ndarray) else int(argument)


def _run(
    program: kernel_ir.HostKernel, arguments: Any, blocks: int, threads: int, chance: random.Random, name: str
) -> None:
    report = Guarded(ctypes.sizeof(_Fault))
    work = _work(program, blocks, threads, chance)
    heres = (_Here * len(work))()
    kept: list[Any] = []
    for here, (team, index, items) in zip(heres, work, strict=True):
        column = (ctypes.c_int32 * (2 * len(items)))(*(number for item in items for number in item))
        kept.append(column)
        here.registers[:] = (0, 0, 0, threads, 1, 1, 0, 0, 0, blocks, 1, 1)
        here.random, here.pauses = chance.getrandbits(64) | 1, _PAUSE[program.cooperates] - 1
        here.arguments, here.items, here.n_items = ctypes.addressof(arguments), ctypes.addressof(column), len(items)
        here.index = index
        if team is not None:
            here.team, here.shared = ctypes.addressof(team), team.shared
    action = _Action(handler=program.signal, flags=_SA_SIGINFO)
    ids = (ctypes.c_uint64 * len(work))()
    start = _Launch(report.address, len(work), *map(ctypes.addressof, (heres, ids, action)), ctypes.c_int32(_LIMIT))
    child = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(program.launch)(ctypes.addressof(start))
    if child < 0:
        raise OSError("no process for a launch")
    _, status = os.waitpid(child, 0)
    if status:
        fault = _Fault.from_buffer_copy(report.tobytes())
        raise KernelFaultError(f"{name}, {blocks} blocks of {threads} threads: {_words(program, fault, status)}")


def _work(program: kernel_ir.HostKernel, blocks: int, threads: int, chance: random.Random) -> list[Any]:
    """Return for each thread of the system its team, its number in the team, and its list of (block, thread)."""
    order = list(range(blocks))
    chance.shuffle(order)
    if not program.cooperates:
        every = [(block, thread) for block in order for thread in range(threads)]
        chance.shuffle(every)
        return [(None, 0, every[i::_WORKERS]) for i in range(min(_WORKERS, len(every)))]
    work = []
    for i in range(min(_TEAMS, blocks)):
        shared = Guarded(program.shared_nbytes)
        sites = (ctypes.c_int64 * (2 * threads))()
        team = _Team(
            threads=threads, shared=shared.address, shared_nbytes=program.shared_nbytes, sites=ctypes.addressof(sites)
        )
        team.keep = (shared, sites)
        assert _libc.pthread_barrier_init(ctypes.byref(team), None, ctypes.c_uint(threads)) == 0
        work += [(team, thread, [(block, thread) for block in order[i::_TEAMS]]) for thread in range(threads)]
    chance.shuffle(work)
    return work


def _words(program: kernel_ir.HostKernel, fault: _Fault, status: int) -> str:
    """Describe what a kernel did."""
    where = f"thread {fault.thread} of block {fault.block}: " if fault.block >= 0 else ""
    site = program.sites[fault.site] if fault.site >= 0 else ""
    if fault.kind == _DIVERGED:
        return f"{where}threads of a block wait at different barriers"
    if fault.kind == _MISALIGNED:
        return f"{where}{fault.value:#x} does not have the alignment that the operation claims: {site}"
    if fault.kind == _SHIFTED:
        return f"{where}a shift by {fault.value} bits: {site}"
    if fault.kind == _OVERFLOWED:
        return f"{where}a signed number overflows: {site}"
    if fault.kind == _RAISED:
        return f"{where}it raises: a thread of a GPU would end silently"
    if fault.kind == _NO_THREAD:
        return f"the system gave {fault.value} threads and no more"
    if fault.kind == signal.SIGALRM:
        return f"it has not ended after {_LIMIT} s: threads wait for one that never arrives"
    if fault.kind == signal.SIGFPE:
        return "an integer is divided by zero, or the lowest one by -1"
    if fault.kind in (signal.SIGSEGV, signal.SIGBUS):
        return f"{fault.value:#x} is outside its memory"
    return f"it ended with status {status}, signal {fault.kind}"


#: Kinds of faults that are not signals.
_NO_THREAD: Final = 100
_DIVERGED: Final = 101
_MISALIGNED: Final = 102
_SHIFTED: Final = 103
_OVERFLOWED: Final = 104
_RAISED: Final = 105


def run_kernel(kernel: Any, blocks: int, threads: int, arguments: list[Any]) -> None:
    """Run a kernel for the simulated device, in place of ``simulated_kernels.run_kernel``."""
    launch(kernel, *(getattr(x, "_ary", x) for x in arguments), blocks=blocks, threads=threads)
