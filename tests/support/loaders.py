"""Rows with their numbers beside them, for tests of loaders."""

from __future__ import annotations

import gc
import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np

import gzarr
from gzarr.loader import Loader, Rows

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.devices import TestedDevice

ROWS = 500
#: The elements of a row tell its number.
DATA = np.arange(ROWS * 6, dtype="f4").reshape(ROWS, 2, 3)
LABELS = np.arange(ROWS, dtype="i8")
SHUFFLES = ["blocks", "full", False]


def write_rows(root: Path) -> None:
    """Write the arrays "x", of ``DATA``, and "y", of ``LABELS``."""
    gzarr.create_array(root / "x", data=DATA, chunks=(7, 2, 3))
    gzarr.create_array(root / "y", data=LABELS, chunks=100)


def opened(root: Path, device: TestedDevice | None = None) -> dict[str, gzarr.Array]:
    """Open both arrays, on the host if there is no device."""
    return {name: gzarr.open_array(root / name) if device is None else device.open(root / name) for name in "xy"}


def rows(root: Path, device: TestedDevice | None = None, *, sampler: Rows | None = None, **options: Any) -> Loader:
    """Return a loader of all rows, by default with a buffer so small that there are many blocks."""
    return Loader(
        opened(root, device),
        sampler or Rows(),
        **{"batch_size": 16, "buffer_bytes": 12000, "drop_last": False, **options},
    )


def labels(batches: Any) -> list[list[int]]:
    """Return the numbers of the samples of each batch."""
    return [batch.samples.tolist() for batch in batches]


def loader_threads() -> list[threading.Thread]:
    """Return the threads of loaders that run."""
    return [thread for thread in threading.enumerate() if thread.name.startswith("gzarr-loader")]


def await_end_of_threads(seconds: float = 20) -> None:
    """Wait until the threads of all loaders have ended: an iterator that is closed does not wait for what they read."""
    if gc.isenabled():
        # Exceptions that tests have kept keep iterators.
        gc.collect()
    end = time.monotonic() + seconds
    for thread in loader_threads():
        thread.join(max(end - time.monotonic(), 0))
    assert not loader_threads()


def await_that(holds: Callable[[], bool], seconds: float = 20) -> None:
    """Wait until something holds that threads of a loader bring about."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it does not hold"
        time.sleep(0.001)
