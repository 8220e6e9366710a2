"""The devices for tests of reading: the CPU, and a CUDA device, simulated or real (see ``conftest.py``)."""

from __future__ import annotations

import itertools
import os
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np
import pytest

import gzarr
from gzarr.dtypes.properties import is_in_cupy
from gzarr.engines.cuda import calibration, devices, router, slots

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from support.simulated_device import SimulatedDevice

SIMULATED = os.environ.get("GZARR_TEST_GPU", "0") in ("", "0")
_CUDA = (
    pytest.param("simulated", id="simulated") if SIMULATED else pytest.param("cuda", id="cuda", marks=pytest.mark.gpu)
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
    simulated
        The device, if it is simulated. Its default stream is lazy: results are complete only after :meth:`to_numpy`
        has waited for them, and so show missing waits in the engine.
    """

    __test__ = False

    name: str
    simulated: SimulatedDevice | None = field(default=None, repr=False)
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
        if self.simulated is not None:
            result.view(np.ndarray)[...] = values
        elif not self.is_cuda:
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
        from support.simulated_device import SimulatedDevice

        made: dict[int, SimulatedDevice] = {}

        def make(ordinal: int) -> SimulatedDevice:
            made[ordinal] = SimulatedDevice(ordinal, eager=False)
            return made[ordinal]

        # The rates of a simulated device mean nothing.
        assumed = mock.patch.object(calibration, "rates", return_value=router.default_rates())
        with devices.use(make), assumed:
            devices.get_device("cuda:0")
            try:
                yield TestedDevice("cuda:0", made[0])
            finally:
                slots.release()
        for device in made.values():
            device.finish()
