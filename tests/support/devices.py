"""The devices for tests of reading: the CPU, and a CUDA device, in host memory or real (see ``conftest.py``)."""

from __future__ import annotations

import gc
import itertools
import os
import sys
import threading
import time
import traceback
import zlib
from collections import Counter
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np
import pytest
from support.cuda_on_host import why_not

import gzarr
from gzarr.dtypes.properties import is_in_cupy
from gzarr.engines.cuda import calibration, devices, router

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from support.watched_device import WatchedDevice

ON_GPU = os.environ.get("GZARR_TEST_GPU", "0") not in ("", "0")
# How long threads may take to end on a machine that does much else.
_LATEST_S = 30.0
#: Why there is no device to test on, or "".
LACKS = "" if ON_GPU else why_not()
_CUDA = (
    pytest.param("cuda", id="cuda", marks=pytest.mark.gpu)
    if ON_GPU
    else pytest.param("on host", id="on-host", marks=pytest.mark.skipif(bool(LACKS), reason=LACKS))
)
#: Parameters for :func:`use`, and so for the fixture ``device``.
KINDS: list[Any] = [pytest.param("cpu", id="cpu"), _CUDA]
#: Parameters ``("device", "threads")``: each way to decode; ``device`` goes through the fixture.
ENGINES: list[Any] = [
    pytest.param("cpu", False, id="native"),
    pytest.param("cpu", True, id="threads"),
    pytest.param(*_CUDA.values, False, id=_CUDA.id, marks=_CUDA.marks),
]


def over(cases: Iterable[Any], dtype_of: Callable[[Any], Any]) -> list[Any]:
    """Return parameters ``(case, device)``: all cases on the CPU, and cases of types that a GPU supports on a GPU."""
    return [
        pytest.param(case, *kind.values, id=f"{case}-{kind.id}", marks=kind.marks)
        for kind in KINDS
        for case in cases
        if kind.id == "cpu" or holds(dtype_of(case))
    ]


def holds(dtype: Any) -> bool:
    """Return whether a GPU can have results of a type."""
    return is_in_cupy(np.dtype(dtype).newbyteorder("="))


@dataclass(frozen=True, eq=False)
class TestedDevice:
    """The device of a test's reads.

    Attributes
    ----------
    name
        Argument of ``open_array(device=…)``, ``"cpu"`` or ``"cuda:0"``.
    watched
        The device, if it is CUDA in host memory. Its streams run late: results are complete only after
        :meth:`to_numpy` has waited for them, and so show missing waits in the engine.
    """

    __test__ = False

    name: str
    watched: WatchedDevice | None = field(default=None, repr=False)
    _decodes: Iterator[str] = field(default_factory=partial(itertools.cycle, ("cuda", "cuda", "cpu")), repr=False)

    @property
    def is_cuda(self) -> bool:
        return self.name != "cpu"

    def open(self, store: Any, **options: Any) -> gzarr.Array:
        """Open an array on the device, or on the CPU if a GPU does not support its elements."""
        array = gzarr.open_array(store, device="cpu", **options)
        if self.is_cuda and holds(array.dtype):
            array = gzarr.open_array(store, device=self.name, **options)
        return array

    def read(self, array: Any, selection: Any = ..., **options: Any) -> np.ndarray[Any, Any]:
        """Read from an array or one of its indexers; on a GPU, two of three reads are decoded there, one on the host.

        Checks that results are on the array's device; returns them in host memory.
        """
        result = array.read(selection, **{"decode": next(self._decodes), **options})
        assert "out" not in options or result is options["out"]
        return self.to_numpy(result)

    def to_numpy(self, result: Any) -> np.ndarray[Any, Any]:
        """Return a result as an array in host memory, after the current stream has run."""
        host: np.ndarray[Any, Any] = np.asarray(result.get() if hasattr(result, "get") else result)
        return host

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Return a new C-contiguous array, whose views can be ``out=`` of a read."""
        if not self.is_cuda:
            return np.empty(shape, dtype)
        with devices.get_device(self.name) as device:
            return device.empty(shape, np.dtype(dtype), device.current_stream())

    def array(self, values: np.ndarray[Any, Any]) -> Any:
        """Return a C-contiguous copy of an array."""
        result = self.empty(values.shape, values.dtype)
        if not self.is_cuda:
            result[...] = values
        else:
            result.set(np.ascontiguousarray(values))
        return result


@contextmanager
def use(kind: str) -> Iterator[TestedDevice]:
    """Make ``device="cuda"`` mean one of the kinds above."""
    if kind == "cpu":
        yield TestedDevice("cpu")
    elif kind == "cuda":
        yield TestedDevice(devices.current())
    else:
        with on_host() as made:
            yield TestedDevice(made.name, made)


@contextmanager
def on_host(*, rates: bool = True) -> Iterator[WatchedDevice]:
    """Make ``device="cuda"`` mean CUDA in host memory; check at the end that nothing was wrong, and nothing is left.

    The order of its streams follows from the test's name, and ``GZARR_TEST_SEED`` if that is set, so that a failure
    repeats.

    Parameters
    ----------
    rates
        Whether decoders are taken to be as fast as a GPU's.
    """
    if LACKS:
        pytest.skip(LACKS)
    from support.cuda_on_host.whole import whole
    from support.watched_device import WatchedDevice

    cuda = whole()
    _give_all_back()
    cuda.reset(zlib.crc32(f"{os.environ.get('GZARR_TEST_SEED')} {os.environ.get('PYTEST_CURRENT_TEST')}".encode()))
    _let_cupy_give_back()
    before = cuda.host.live()
    made: dict[int, WatchedDevice] = {}

    def make(ordinal: int) -> WatchedDevice:
        made[ordinal] = WatchedDevice(ordinal, cuda)
        return made[ordinal]

    assumed = mock.patch.object(calibration, "rates", return_value=router.default_rates()) if rates else nullcontext()
    with devices.use(make), assumed:
        devices.get_device("cuda:0")
        try:
            with made[0]:
                pass
            yield made[0]
        finally:
            cuda.host.clear_faults()
            _give_all_back()
            # Elsewhere, ``device="auto"`` is the CPU.
            cuda.host.visible(0)
    assert cuda.host.drain(), "operations do not end"
    wrong = cuda.errors()
    assert not wrong, wrong
    cuda.host.visible(2)
    try:
        _let_cupy_give_back()
        left = cuda.host.live() - before
        if left:
            # Errors refer to what raised them, in circles.
            gc.collect()
            _give_all_back()
            left = cuda.host.live() - before
        # A device that is lost takes nothing back.
        lost = cuda.host.lost(0) or cuda.host.lost(1)
        ends = time.monotonic() + _LATEST_S
        while not lost and max(left.streams, left.events, left.pinned) > 0 and time.monotonic() < ends:
            # Threads of iterators that were left behind end in their own time, with errors of what was cancelled.
            time.sleep(0.02)
            gc.collect()
            _give_all_back()
            _let_cupy_give_back()
            left = cuda.host.live() - before
    finally:
        cuda.host.visible(0)
    assert lost or max(left.streams, left.events, left.pinned) <= 0, f"{left}; {_threads()}"


def _threads() -> str:
    """Tell what threads of gzarr's do, and which loaders there are: they hold what is left."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    stacks = [
        f"{names[ident]}:\n{''.join(traceback.format_stack(frame, limit=8))}"
        for ident, frame in sys._current_frames().items()
        if names.get(ident, "").startswith("gzarr")
    ]
    held = Counter(
        type(each).__name__ for each in gc.get_objects() if str(type(each).__module__).startswith("gzarr.loader")
    )
    return "\n".join([f"objects of loaders: {dict(held)}", *stacks])


def _give_all_back() -> None:
    """Free what gzarr keeps; on a device that is lost, forget it."""
    with suppress(gzarr.DeviceError):
        gzarr.release_memory()


def _let_cupy_give_back() -> None:
    """Free what CuPy keeps: page-locked memory from which it has copied, with the events of these copies, and pools."""
    import cupy

    with suppress(cupy.cuda.runtime.CUDARuntimeError):
        # It looks for what is done before it allocates.
        cupy.cuda.alloc_pinned_memory(1)
        cupy.get_default_pinned_memory_pool().free_all_blocks()
        cupy.get_default_memory_pool().free_all_blocks()
