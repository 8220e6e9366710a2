"""For a test run on a GPU: it ends in time, says what it does, and shows which code of kernels has run.

With pytest-xdist, each worker has its own session, its own CUDA context, and writes to the same report. A worker that
has lost its context ends, and another one takes its place; the process that distributes the tests only says which of
them ended their worker.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import math
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

#: Packages that a machine with a GPU and no network may lack: test modules that import them are skipped there.
OPTIONAL = frozenset({
    "accelerate", "cast_value_rs", "cramjam", "dask", "distributed", "fsspec", "grain", "h5py", "hypothesis",
    "icechunk", "imagecodecs", "jax", "jsonschema", "kerchunk", "ml_dtypes", "msgpack", "nbclient", "nbformat",
    "obstore", "pcodec", "pytorch_lightning", "scipy", "tensorstore", "torch", "upath", "xarray", "zarr", "zarrs",
    "zfpy",
})  # fmt: skip
#: Seconds after the end at which tracebacks are printed: before the process is ended (``gpu.stages.MARGIN_S``).
GRACE_S = 1.0
#: Origins of kernels: PTX of a wheel, or numba-cuda on this machine.
PTX, JIT = "ptx", "jit"


def _synchronize() -> None:
    runtime: Any = importlib.import_module("cupy.cuda.runtime")
    runtime.deviceSynchronize()


class GpuSession:
    """A plugin that skips the remaining tests after a time limit, or after CUDA's context is lost.

    Parameters
    ----------
    seconds
        Time from now after which no test starts.
    synchronize
        Function that raises if the context is lost.
    report
        File for a JSON document a line: tests that begin, their outcomes, and kernels that are loaded. It is complete
        up to the moment at which the process ends, in whichever way.
    kernels
        Where kernels must be from: ``"ptx"`` or ``"jit"``; ``""`` for anywhere. The run fails if one is not.
    worker
        Name of the worker that this process is; ``""`` if it runs all tests.
    leave
        Function that ends the process of a worker whose context is lost.
    """

    def __init__(
        self,
        seconds: float,
        synchronize: Callable[[], None] = _synchronize,
        report: Path | None = None,
        kernels: str = "",
        worker: str = "",
        leave: Callable[[int], None] = os._exit,
    ) -> None:
        self._deadline = time.monotonic() + seconds
        self._synchronize = synchronize
        self._worked = False
        self._lost = ""
        self._report = report
        self._kernels = kernels
        self._worker, self._leave = worker, leave
        self._loaded: dict[str, int] = {PTX: 0, JIT: 0}

    @classmethod
    def of_environment(cls) -> GpuSession:
        """Return a session that ends at ``GZARR_ENDS_AT``, in seconds of the Unix epoch.

        ``GZARR_TEST_REPORT`` names its report, and ``GZARR_TEST_KERNELS`` the origin of kernels.
        """
        report = os.environ.get("GZARR_TEST_REPORT")
        seconds = float(os.environ.get("GZARR_ENDS_AT", "inf")) - time.time()
        if seconds < math.inf:
            # Whatever has not ended soon after, be it the process itself, says where each thread is. This descriptor
            # is not what pytest captures from now on.
            faulthandler.dump_traceback_later(max(seconds, 0.0) + GRACE_S, file=os.dup(2))
        return cls(
            seconds,
            report=Path(report) if report else None,
            kernels=os.environ.get("GZARR_TEST_KERNELS", ""),
            worker=os.environ.get("PYTEST_XDIST_WORKER", ""),
        )

    def _say(self, **line: Any) -> None:
        if self._report is not None:
            with self._report.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")

    def _error(self) -> str:
        try:
            self._synchronize()
        except Exception as error:  # any error of the driver, of CuPy or of a missing package
            return str(error)
        return ""

    def pytest_sessionstart(self) -> None:
        """Refuse a run whose kernels would be from elsewhere, and watch which are loaded."""
        from gzarr_kernels import ahead
        from gzarr_kernels.device import ptx

        from gzarr.engines.cuda import machine_code

        there = len(ptx.programs())
        if self._kernels == PTX and not there:
            raise pytest.UsageError(
                f"{ahead.folder()} has no PTX of these sources, so that numba-cuda would compile the kernels: nothing "
                "of what a wheel runs would be tested (python benchmarks/gpu kernels FOLDER, GZARR_KERNELS=FOLDER)"
            )
        if self._kernels == JIT and there:
            raise pytest.UsageError(f"{ahead.folder()} has PTX, so that numba-cuda would compile nothing")
        load = machine_code.load

        def watched(kernel: Any, word: int, capability: tuple[int, int]) -> Any:
            made = load(kernel, word, capability)
            # Whatever decides what to load: this is what the driver gets.
            origin = PTX if made.image in ptx.programs().values() else JIT
            self._loaded[origin] += 1
            self._say(kernel=origin)
            return made

        machine_code.load = watched

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail if a kernel was from elsewhere, or if none was loaded: by one worker of several, that may be."""
        if not self._kernels or session.exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            return
        other = JIT if self._kernels == PTX else PTX
        if self._loaded[other] or not (self._loaded[self._kernels] or self._worker):
            text = f"kernels loaded: {self._loaded}, but all should be {self._kernels}, and some"
            self._say(test="origin of kernels", outcome="failed", text=text)
            print(f"\nFAILED origin of kernels: {text}")
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Skip a test that can't, or must not, run any more."""
        if time.monotonic() > self._deadline:
            pytest.skip("out of time")
        if self._lost:
            if self._worker:
                # It would take the tests of the others to skip them, sooner than they run. Only this test is lost.
                self._say(test=item.nodeid, outcome="skipped", text=self._lost)
                self._leave(1)
            pytest.skip(self._lost)
        # A context can only be lost if there was one. Otherwise each test reports what is missing.
        self._worked = self._worked or not self._error()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Say which test begins: the process may not come to say more."""
        self._say(begin=nodeid, worker=self._worker)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Say that a test has ended."""
        self._say(end=nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Report a test's outcome, and check whether a failed test has lost the context."""
        if report.failed and self._worked and not self._lost and (error := self._error()):
            self._lost = f"CUDA's context is lost since {report.nodeid}: {error}"
        if report.when == "call" or not report.passed:
            self._say(test=report.nodeid, seconds=report.duration, **_outcome(report))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Report a module that cannot be collected, or is skipped as a whole."""
        if not report.passed:
            self._say(test=report.nodeid, **_outcome(report))


class Distribution:
    """The same for the process that distributes tests to workers: says which tests have ended their worker.

    Parameters
    ----------
    report
        The file of the workers' sessions.
    """

    def __init__(self, report: Path | None) -> None:
        self._report = report

    def pytest_handlecrashitem(self, crashitem: str) -> None:
        """Say that a worker has ended during a test (a hook of pytest-xdist)."""
        if self._report is not None:
            with self._report.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"crash": crashitem}) + "\n")


def of_environment(config: pytest.Config) -> GpuSession | Distribution:
    """Return the plugin for a process of a run, as the environment describes it."""
    if config.getoption("numprocesses", None) and not hasattr(config, "workerinput"):
        report = os.environ.get("GZARR_TEST_REPORT")
        return Distribution(Path(report) if report else None)
    return GpuSession.of_environment()


def _outcome(report: pytest.TestReport | pytest.CollectReport) -> dict[str, str]:
    """Return a test's outcome, with the text of its failure, or the reason for which it was skipped."""
    if report.passed:
        return {"outcome": "passed"}
    if report.skipped and hasattr(report, "wasxfail"):
        return {"outcome": "expected failure"}
    if report.skipped:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
        return {"outcome": "skipped", "text": reason.removeprefix("Skipped: ")}
    captured = "".join(f"\n--- {title}\n{text[-1500:]}" for title, text in report.sections)
    return {"outcome": "failed", "text": f"{report.longreprtext[-4000:]}{captured[:1900]}"}
