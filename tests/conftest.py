"""Shared by all tests: the meaning of device CUDA, and compiled kernels, loaded before the time of any test starts.

Without ``GZARR_TEST_GPU=1``, CUDA is in host memory. Device kernels are loaded as a wheel's PTX, and run on the host
as the code that a GPU would get. The mere presence of a GPU changes nothing. ``GZARR_TEST_GPU=1 pytest -m gpu``
runs the tests with that mark on the GPU; ``GZARR_ENDS_AT`` says when they end.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from gzarr_kernels.operations import OPERATIONS

ON_GPU = os.environ.get("GZARR_TEST_GPU", "0") not in ("", "0")
if not ON_GPU:
    from support import cuda_on_host

    if not cuda_on_host.why_not():
        from support.cuda_on_host.kernels import use_compiled_kernels

        # Before anything imports a device kernel; processes that tests start inherit it.
        use_compiled_kernels()

from support import devices, gpu_session  # noqa: E402

from gzarr.engines import kernels  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

#: PyTorch, and what is tested beside it.
_OF_TORCH = frozenset({"accelerate", "grain", "pytorch_lightning", "torch"})
#: Packages without which modules of tests are skipped. The test environment has them all, but PyTorch on some Pythons
#: (see ``pyproject.toml``).
MAY_BE_MISSING = gpu_session.OPTIONAL if ON_GPU else _OF_TORCH if sys.version_info >= (3, 12) else frozenset[str]()

_DEVICE_KERNELS = Path(__file__).parent / "kernels" / "device"


class OptionalModule(pytest.Module):
    """A test module that is skipped if an optional package is missing."""

    def collect(self) -> Any:
        try:
            return super().collect()
        except self.CollectError as error:
            cause = error.__cause__
            if isinstance(cause, ModuleNotFoundError) and (cause.name or "").partition(".")[0] in MAY_BE_MISSING:
                pytest.skip(f"{cause.name} is not installed", allow_module_level=True)
            raise


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module:
    return OptionalModule.from_parent(parent, path=module_path)


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    parser.addoption("--few", type=int, metavar="N", help="at most N parameters of each test, evenly spaced")
    if not pluginmanager.has_plugin("timeout"):
        parser.addini("timeout", "of no effect: pytest-timeout is not installed")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep some parameters of each test if ``--few`` says so: each test runs, but not with all of them."""
    most: int | None = config.getoption("--few")
    if most is None:
        return
    tests: dict[str, list[pytest.Item]] = {}
    for item in items:
        tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    kept = {
        each[i * (len(each) - 1) // max(most - 1, 1)] if len(each) > most else each[i]
        for each in tests.values()
        for i in range(min(most, len(each)))
    }
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]


def pytest_configure(config: pytest.Config) -> None:
    # Machines differ in speed, and others may be busy: no example has a time limit.
    # A machine with a GPU may lack it.
    with contextlib.suppress(ImportError):
        from hypothesis import settings

        settings.register_profile("gzarr", deadline=None)
        settings.load_profile("gzarr")
    if not config.pluginmanager.has_plugin("timeout"):
        config.addinivalue_line("markers", "timeout: of no effect, pytest-timeout is not installed")
    config.addinivalue_line("markers", "array_api: of the helpers that anndata has for tests, which use it")
    if ON_GPU:
        config.pluginmanager.register(gpu_session.of_environment(config))
    elif config.option.markexpr.split()[:1] == ["gpu"]:
        raise pytest.UsageError("tests on a GPU need GZARR_TEST_GPU=1: without it, CUDA is in host memory")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Compile the kernels, in each process that runs tests."""
    if session.config.getoption("numprocesses", None) and not hasattr(session.config, "workerinput"):
        return
    if not ON_GPU and not devices.LACKS:
        # It needs packages that a machine with a GPU may lack.
        from support.cuda_on_host.whole import whole

        whole()
    kernels.load()
    for name, row in OPERATIONS.items():
        for function in ("decode", "encode", "frames"):
            kernels.operation(name, function)
        if row.algorithm is not None:
            kernels.operation(row.algorithm, "verifies")
    if any(_DEVICE_KERNELS in item.path.parents for item in session.items):
        from support import kernel_ir_launch

        kernel_ir_launch.prepare("support.made_up_kernels")
    # Many thousand tests are millions of objects, which the garbage collector would look at again and again.
    gc.collect()
    gc.freeze()


@pytest.fixture(params=devices.KINDS)
def device(request: pytest.FixtureRequest) -> Iterator[devices.TestedDevice]:
    """Each device on which a read can run."""
    with devices.use(request.param) as tested:
        yield tested
