"""Early end of a test run on a GPU; the calls of CUDA are replaced."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from support.gpu_session import GpuSession

FAILED: Any = SimpleNamespace(failed=True, nodeid="test_one")
PASSED: Any = SimpleNamespace(failed=False, nodeid="test_two")


def test_nothing_starts_when_time_is_over() -> None:
    with pytest.raises(pytest.skip.Exception, match="out of time"):
        GpuSession(-1.0, lambda: None).pytest_runtest_setup()
    GpuSession(1000.0, lambda: None).pytest_runtest_setup()


def test_the_rest_is_skipped_when_the_context_is_lost() -> None:
    errors = [""]

    def synchronize() -> None:
        if errors[0]:
            raise RuntimeError(errors[0])

    session = GpuSession(1000.0, synchronize)
    session.pytest_runtest_setup()
    session.pytest_runtest_logreport(FAILED)
    # A test that is wrong costs no context.
    session.pytest_runtest_setup()
    errors[0] = "illegal address"
    session.pytest_runtest_logreport(PASSED)
    session.pytest_runtest_logreport(FAILED)
    with pytest.raises(pytest.skip.Exception, match="lost since test_one: illegal address"):
        session.pytest_runtest_setup()


def test_without_a_gpu_each_test_says_so() -> None:
    def synchronize() -> None:
        raise RuntimeError("no driver")

    session = GpuSession(1000.0, synchronize)
    for _ in range(2):
        session.pytest_runtest_setup()
        session.pytest_runtest_logreport(FAILED)
