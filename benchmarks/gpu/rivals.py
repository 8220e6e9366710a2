"""The readers compared on a GPU; each call returns an array on the device, or has enqueued the work for it.

Left out: damacy (``nclack/damacy``), a C++ program that is not on a package index and would have to be built.
"""

from __future__ import annotations

import contextlib
import importlib
from functools import partial
from typing import TYPE_CHECKING, Any

from rivals import Gzarr, GzarrOut, ZarrPython
from workloads import Region, Windows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from rivals import Call, Rival
    from workloads import Workload

LEFT_OUT = {"damacy": "not on a package index: it would have to be built"}


class GzarrOnDevice(Gzarr):
    """gzarr on its CUDA engine."""

    distributions = ("gzarr", "numba-cuda", "cupy-cuda13x", "nvidia-libnvcomp-cu13")

    def _open(self, path: Path) -> Any:
        import gzarr

        return gzarr.open_array(path, device="cuda")


class GzarrOutOnDevice(GzarrOut):
    """gzarr on its CUDA engine, reading into one output that is reused."""

    def _open(self, path: Path) -> Any:
        import gzarr

        return gzarr.open_array(path, device="cuda")


class GzarrThenCopy(Gzarr):
    """gzarr on its CPU engine into page-locked memory that is reused, then one copy."""

    name = "CPU, then copy"
    distributions = ()

    def calls(self, path: Path, workload: Workload) -> list[Call]:
        array, access = self._open(path), workload.access
        if isinstance(access, Windows):
            selections = access.selections()
            shape = (len(selections), *access.shape)
            return [partial(self._copied, partial(array.read_many, selections), shape, array.dtype)]
        reads = [access.selection] if isinstance(access, Region) else list(access.batches)
        shape = array.read(reads[0]).shape
        return [partial(self._copied, partial(array.read, selection), shape, array.dtype) for selection in reads]

    def __init__(self, threads: int) -> None:
        super().__init__(threads)
        importlib.import_module("cupy")
        self._host: Any = None

    def _copied(self, read: Any, shape: tuple[int, ...], dtype: Any) -> Any:
        import cupy
        import cupyx

        if self._host is None or self._host.shape != shape or self._host.dtype != dtype:
            self._host = None
            self._host = cupyx.empty_pinned(shape, dtype)
        result = cupy.empty(shape, dtype)
        result.set(read(out=self._host))
        return result


class ZarrPythonOnDevice(ZarrPython):
    """zarr-python with ``zarr.config.enable_gpu()``."""

    def __init__(self, threads: int) -> None:
        super().__init__(threads)
        for module in ("zarr", "cupy"):
            importlib.import_module(module)

    @contextlib.contextmanager
    def session(self) -> Iterator[None]:
        import zarr

        with super().session(), zarr.config.enable_gpu():
            yield

    def _open(self, path: Path) -> Any:
        import zarr

        return zarr.open_array(str(path), mode="r")

    def calls(self, path: Path, workload: Workload) -> list[Call]:
        array, access = self._open(path), workload.access
        if isinstance(access, Region):
            return [partial(array.__getitem__, access.selection)]
        if isinstance(access, Windows):
            return [partial(self._windows, array, access.selections())]
        return [partial(self._rows, array, rows) for rows in access.batches]


class KvikioZarr(ZarrPythonOnDevice):
    """kvikio's store below zarr-python, with as many threads as the others."""

    name = "kvikio.zarr"
    distributions = ("kvikio-cu13",)

    def __init__(self, threads: int) -> None:
        super().__init__(threads)
        importlib.import_module("kvikio.zarr")

    @contextlib.contextmanager
    def session(self) -> Iterator[None]:
        import kvikio.defaults

        with super().session(), kvikio.defaults.set({"num_threads": self.threads}):
            yield

    def _open(self, path: Path) -> Any:
        import kvikio.zarr
        import zarr

        return zarr.open_array(kvikio.zarr.GDSStore(str(path)), mode="r")


class Czarr(ZarrPythonOnDevice):
    """czarr by its fast path, after its setup call."""

    name = "czarr"
    distributions = ("czarr",)

    def __init__(self, threads: int) -> None:
        super().__init__(threads)
        importlib.import_module("czarr")

    @contextlib.contextmanager
    def session(self) -> Iterator[None]:
        import czarr

        with czarr.configure_gpu():
            yield

    def _open(self, path: Path) -> Any:
        import czarr

        return czarr.open_cuda_array(str(path))


#: In the order of the table. The peers are what gzarr on the device is compared with.
RIVALS: dict[str, type[Any]] = {
    r.name: r for r in (GzarrOutOnDevice, GzarrOnDevice, GzarrThenCopy, Czarr, KvikioZarr, ZarrPythonOnDevice)
}
PEERS = tuple(name for name in RIVALS if not name.startswith("gzarr"))


def available(names: Iterable[str], threads: int) -> tuple[dict[str, Rival], dict[str, str]]:
    """Return the rivals that can be imported, and why the others cannot."""
    rivals: dict[str, Rival] = {}
    absent: dict[str, str] = {}
    for name in names:
        try:
            rivals[name] = RIVALS[name](threads)
        except Exception as error:  # a broken package may raise anything
            absent[name] = f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0][:160]}"
    return rivals, absent
