"""Errors of several threads of one run: nothing keeps the memory of the run, also without the garbage collector."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import TYPE_CHECKING

import pytest

from gzarr.engines import pool
from gzarr.engines.monitor import ReadCancelledError

if TYPE_CHECKING:
    from collections.abc import Iterator


class Memory:
    """What a run works on."""


@pytest.fixture
def _without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("_without_collector")
@pytest.mark.parametrize("kind", [ReadCancelledError, ValueError])
@pytest.mark.parametrize("failing", ["caller", "helper", "both"])
def test_what_a_failed_run_worked_on_is_freed(failing: str, kind: type[BaseException]) -> None:
    both = threading.Barrier(2, timeout=60)

    found: list[weakref.ref[Memory]] = []

    def work() -> None:
        memory = Memory()
        found.append(weakref.ref(memory))

        def worker(i: int) -> None:
            assert memory is not None
            both.wait()
            if failing in ("both", "helper" if i else "caller"):
                raise kind

        pool.run(worker, 2)

    with pytest.raises(kind) as raised:
        work()
    del raised
    assert found[0]() is None
