"""The readers that are compared, each set up as its own documentation recommends for speed, with the same threads.

A rival turns a workload into a list of calls without arguments; one run of the workload makes each call once. Only the
calls are timed: arrays are opened before. A call returns a new result (except for ``gzarr out=``), in the rival's own
array type. If a rival has several ways to read a pattern, the fastest one found is used; the docstrings tell which.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import importlib.metadata
import os
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
from workloads import Region, Windows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    import numpy.typing as npt
    from workloads import Workload

    Call = Callable[[], Any]


class CannotRead(Exception):
    """The rival does not read this workload; the message says why."""


class Rival(Protocol):
    name: str
    #: Distributions whose versions are reported.
    distributions: tuple[str, ...]
    #: Whether each round begins with an untimed call, so that timed calls reuse its memory.
    warm_up: bool

    def session(self) -> AbstractContextManager[object]:
        """Return the context that must be active for opening, checking and timing."""

    def calls(self, path: Path, workload: Workload) -> list[Call]:
        """Open the array and return the calls of one run; raise :class:`CannotRead` if the read is not supported."""


class ZarrPython:
    """zarr-python with its default pipeline.

    Windows: one after the other (gathered coroutines are slower). Rows: the distinct ones, sorted, by ``oindex``.
    """

    name = "zarr-python"
    distributions: tuple[str, ...] = ("zarr", "numcodecs")
    warm_up = False
    pipeline = "zarr.core.codec_pipeline.BatchedCodecPipeline"

    def __init__(self, threads: int) -> None:
        self.threads = threads

    def session(self) -> AbstractContextManager[object]:
        import zarr

        return zarr.config.set({"threading.max_workers": self.threads, "codec_pipeline.path": self.pipeline})

    def calls(self, path: Path, workload: Workload) -> list[Call]:
        import zarr

        array, access = zarr.open_array(str(path), mode="r"), workload.access
        if isinstance(access, Region):
            return [partial(array.__getitem__, access.selection)]
        if isinstance(access, Windows):
            return [partial(self._windows, array, access.selections())]
        return [partial(self._rows, array, rows) for rows in access.batches]

    def _windows(self, array: Any, selections: list[Any]) -> Any:
        return [array[s] for s in selections]

    def _rows(self, array: Any, rows: Any) -> Any:
        distinct, inverse = np.unique(rows, return_inverse=True)
        return array.oindex[distinct][inverse]


class ZarrPythonFused(ZarrPython):
    """zarr-python with its fused pipeline, which releases from 3.4 on have (they need Python 3.12)."""

    name = "zarr-python fused"
    distributions = ()
    pipeline = "zarr.core.codec_pipeline.FusedCodecPipeline"

    def __init__(self, threads: int) -> None:
        super().__init__(threads)
        if not hasattr(importlib.import_module("zarr.core.codec_pipeline"), "FusedCodecPipeline"):
            raise ImportError(f"zarr-python {importlib.metadata.version('zarr')} has no fused pipeline; 3.4 has")


class Zarrs(ZarrPython):
    """zarr-python with the Rust codec pipeline of zarrs.

    It passes scattered rows to zarr-python's own pipeline, so each row is a separate read; windows and rows are
    gathered coroutines on the asynchronous array, which keep its threads busy.
    """

    name = "zarrs"
    distributions = ("zarrs",)
    pipeline = "zarrs.ZarrsCodecPipeline"

    def __init__(self, threads: int) -> None:
        super().__init__(threads)
        importlib.import_module("zarrs")

    def _windows(self, array: Any, selections: list[Any]) -> Any:
        from zarr.core.sync import sync

        async def gather() -> list[Any]:
            return await asyncio.gather(*(array.async_array.getitem(s) for s in selections))

        return sync(gather())

    def _rows(self, array: Any, rows: Any) -> Any:
        return self._windows(array, rows.tolist())


class TensorStore:
    """tensorstore with its thread limits set, memory-mapped files, and no cache, so that every run decodes.

    Windows: all reads are started before the first is awaited; tensorstore then shares the chunks in flight.
    """

    name = "tensorstore"
    distributions = ("tensorstore",)
    warm_up = False

    def __init__(self, threads: int) -> None:
        import tensorstore as ts

        self._ts = ts
        self._context = {
            "data_copy_concurrency": {"limit": threads},
            "file_io_concurrency": {"limit": threads},
            "file_io_mode": {"mode": "memmap"},
            "cache_pool": {"total_bytes_limit": 0},
        }

    def session(self) -> AbstractContextManager[object]:
        return contextlib.nullcontext()

    def calls(self, path: Path, workload: Workload) -> list[Call]:
        if workload.dataset.filters:
            raise CannotRead("its driver for version 2 has no filters")
        spec = {
            "driver": "zarr3" if (path / "zarr.json").exists() else "zarr",
            "kvstore": {"driver": "file", "path": f"{path}/"},
            "recheck_cached_metadata": False,
            "recheck_cached_data": False,
        }
        try:
            array = self._ts.open(spec, read=True, context=self._ts.Context(self._context)).result()
        except (ValueError, NotImplementedError) as error:
            raise CannotRead(str(error).splitlines()[0][:160]) from error
        access = workload.access
        if isinstance(access, Windows):
            return [partial(self._windows, array, access.selections())]
        selections = [access.selection] if isinstance(access, Region) else list(access.batches)
        return [partial(self._read, array, s) for s in selections]

    def _read(self, array: Any, selection: Any) -> Any:
        return array[selection].read().result()

    def _windows(self, array: Any, selections: list[Any]) -> list[Any]:
        futures = [array[s].read() for s in selections]
        return [f.result() for f in futures]


class Gzarr:
    """gzarr on its CPU engine."""

    name = "gzarr"
    distributions: tuple[str, ...] = ("gzarr", "numba", "blosc2", "deflate")
    warm_up = False
    settings: ClassVar[dict[str, str]] = {}

    def __init__(self, threads: int) -> None:
        self.threads = threads
        importlib.import_module("gzarr")

    @contextlib.contextmanager
    def session(self) -> Iterator[None]:
        settings = {"GZARR_THREADS": str(self.threads), **self.settings}
        before = {name: os.environ.get(name) for name in settings}
        os.environ.update(settings)
        try:
            yield
        finally:
            for name, value in before.items():
                del os.environ[name]
                if value is not None:
                    os.environ[name] = value

    def _open(self, path: Path) -> Any:
        import gzarr

        return gzarr.open_array(path, device="cpu")

    def calls(self, path: Path, workload: Workload) -> list[Call]:
        array, access = self._open(path), workload.access
        if isinstance(access, Windows):
            return [partial(array.read_many, access.selections())]
        selections = [access.selection] if isinstance(access, Region) else list(access.batches)
        return [partial(array.__getitem__, s) for s in selections]

    def decode_path(self, path: Path) -> str:
        return str(self._open(path).decode_path)


class GzarrFresh(Gzarr):
    """gzarr with new memory for each large result, like the peers."""

    name = "gzarr fresh"
    settings: ClassVar[dict[str, str]] = {"GZARR_RECYCLE_BYTES": "0"}


class GzarrRecycled(Gzarr):
    """gzarr with default settings: the memory of a released large result is used for the next one."""

    name = "gzarr recycled"
    distributions = ()
    warm_up = True
    settings: ClassVar[dict[str, str]] = {"GZARR_RECYCLE_BYTES": ""}

    @contextlib.contextmanager
    def session(self) -> Iterator[None]:
        from gzarr.engines import result_memory

        with super().session():
            yield
        # Other rivals must not pay for freeing it.
        result_memory.release()


class GzarrOut(Gzarr):
    """gzarr reading into one reused output."""

    name = "gzarr out="
    distributions = ()

    def calls(self, path: Path, workload: Workload) -> list[Call]:
        array, access = self._open(path), workload.access
        if isinstance(access, Windows):
            selections = access.selections()
            return [partial(array.read_many, selections, out=array.read_many(selections))]
        selections = [access.selection] if isinstance(access, Region) else list(access.batches)
        buffer = array.read(selections[0])
        return [partial(array.read, s, out=buffer) for s in selections]


#: In the order of the table. Peers are all except gzarr's own.
RIVALS: dict[str, type[Any]] = {
    r.name: r for r in (GzarrOut, GzarrRecycled, GzarrFresh, Zarrs, TensorStore, ZarrPythonFused, ZarrPython)
}
PEERS = ("zarrs", "tensorstore", "zarr-python fused", "zarr-python")


def available(names: Iterable[str], threads: int) -> tuple[dict[str, Rival], dict[str, str]]:
    """Return the rivals that can be imported, and why the others cannot."""
    rivals: dict[str, Rival] = {}
    absent: dict[str, str] = {}
    for name in names:
        try:
            rivals[name] = RIVALS[name](threads)
        except ImportError as error:
            absent[name] = f"not installed ({error})"
    return rivals, absent


def versions(rivals: Iterable[Rival]) -> dict[str, str]:
    """Return the version of every distribution that the rivals use."""
    names = dict.fromkeys(["numpy", "google-crc32c", *(d for r in rivals for d in r.distributions)])
    found: dict[str, str] = {}
    for name in names:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def as_array(result: Any) -> npt.NDArray[Any]:
    """Return the result of a call as one array: windows are stacked."""
    if isinstance(result, list):
        return np.stack([np.asarray(r) for r in result])
    return np.asarray(result)


def check(rival: Rival, calls: list[Call], workload: Workload, array: npt.NDArray[Any], reads: int) -> None:
    """Run the first ``reads`` calls once and compare every element with NumPy's selection of the whole array.

    Raises
    ------
    AssertionError
        If a call differs; names the rival and the first such call.
    """
    for number, (call, expected) in enumerate(zip(calls[:reads], workload.expected(array), strict=False)):
        result = as_array(call())
        if result.shape != expected.shape or result.dtype.newbyteorder("=") != expected.dtype:
            raise AssertionError(
                f"{rival.name}, {workload.name}, read {number}: {result.shape} {result.dtype}, "
                f"not {expected.shape} {expected.dtype}"
            )
        if not np.array_equal(result, expected):
            raise AssertionError(f"{rival.name}, {workload.name}, read {number}: wrong values")
