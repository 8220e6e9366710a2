"""The devices that tests of reading run on: the CPU, and CUDA's, simulated or real (see ``conftest.py``)."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np
import pytest

from gzarr.device import is_on_device
from gzarr.engines.cuda import calibration, devices, router, slots

if TYPE_CHECKING:
    from collections.abc import Iterator

    from simulated_device import SimulatedDevice

#: Parameters for :func:`use`.
CUDA_KINDS: list[Any] = [pytest.param("cuda", marks=pytest.mark.gpu)]
if os.environ["NUMBA_ENABLE_CUDASIM"] == "1":
    CUDA_KINDS = ["simulated"]
KINDS: list[Any] = ["cpu", *CUDA_KINDS]


@dataclass(frozen=True, eq=False)
class TestedDevice:
    """Where a test reads to.

    Attributes
    ----------
    name
        What is given to ``open_array(device=…)``, ``"cpu"`` or ``"cuda:0"``.
    simulated
        The device, if it is simulated. Its default stream is lazy: results are there when :meth:`to_numpy` has
        waited for them, and show what the engine forgot to wait for.
    """

    __test__ = False

    name: str
    simulated: SimulatedDevice | None = field(default=None, repr=False)

    def name_for(self, dtype: Any) -> str:
        """Return its name, or ``"cpu"`` for elements that a GPU cannot hold."""
        return self.name if is_on_device(np.dtype(dtype).newbyteorder("=")) else "cpu"

    def to_numpy(self, result: Any) -> np.ndarray[Any, Any]:
        """Return a result in host memory, as an array."""
        host: np.ndarray[Any, Any] = np.asarray(result.get() if hasattr(result, "get") else result)
        return host

    def is_result(self, result: Any) -> bool:
        """Return whether a result is where this device has them."""
        if self.name == "cpu":
            return not hasattr(result, "get")
        with devices.get_device(self.name) as device:
            return bool(device.is_array(result))

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Return a new array, C-contiguous; its views may be ``out=`` of a read."""
        if self.name == "cpu":
            return np.empty(shape, dtype)
        with devices.get_device(self.name) as device:
            return device.empty(shape, np.dtype(dtype), device.current_stream())

    def array(self, values: np.ndarray[Any, Any]) -> Any:
        """Return a copy of an array, C-contiguous."""
        result = self.empty(values.shape, values.dtype)
        if self.simulated is not None:
            result.view(np.ndarray)[...] = values
        elif self.name == "cpu":
            result[...] = values
        else:
            result.set(np.ascontiguousarray(values))
        return result


@contextmanager
def use(kind: str) -> Iterator[TestedDevice]:
    """Have ``device="cuda"`` mean one of the kinds above."""
    if kind == "cpu":
        yield TestedDevice("cpu")
    elif kind == "cuda":
        yield TestedDevice(devices.current())
    else:
        from simulated_device import SimulatedDevice

        made: dict[int, SimulatedDevice] = {}

        def make(ordinal: int) -> SimulatedDevice:
            made[ordinal] = SimulatedDevice(ordinal, eager=False)
            return made[ordinal]

        # What a simulated device does a second is of no interest.
        assumed = mock.patch.object(calibration, "rates", return_value=router.default_rates())
        with devices.use(make), assumed:
            devices.get_device("cuda:0")
            try:
                yield TestedDevice("cuda:0", made[0])
            finally:
                slots.release()
        for device in made.values():
            device.finish()
