"""Rows of a few bytes: seconds to a loader's first batch, and the memory that its order takes.

Run with ``python benchmarks/narrow_rows.py``; it takes half a minute. Tables of 10 float32 a row, of which no chunk is
stored, so that the store takes no time, and one of four million rows that is stored in memory.
"""

from __future__ import annotations

import statistics
import time
import tracemalloc
import warnings

import numpy as np

import gzarr

ROUNDS = 7
SHAPE = 4_000_000, 10


def measured(name: str, array: gzarr.Array) -> None:
    """Print the time to the first batch, and the memory of order and plans."""
    seconds = []
    for seed in range(ROUNDS):
        started = time.perf_counter()
        batches = iter(gzarr.Loader(array, batch_size=256, seed=seed))
        next(batches)
        seconds.append(time.perf_counter() - started)
        del batches
    # The threads of these iterators end.
    time.sleep(1)
    loader = gzarr.Loader(array, batch_size=256)
    tracemalloc.start()
    batches = iter(loader)
    for _ in range(1000):
        next(batches)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    print(
        f"{name}: first batch in {statistics.median(seconds):.3f} s (from {min(seconds):.3f} to {max(seconds):.3f}); "
        f"order and plans {peak / 2**20:.1f} MiB, said {loader.explain().planning_bytes / 2**20:.1f} MiB"
    )


def main() -> None:
    """Measure all tables."""
    warnings.filterwarnings("ignore", message="shuffling is coarse")
    # Compiled code is loaded once.
    next(iter(gzarr.Loader(gzarr.create_array({}, data=np.zeros((1000, 10), "f4"), device="cpu"))))
    for rows in (10**7, 10**9):
        for chunk in (10**4, 10**5):
            array = gzarr.create_array({}, shape=(rows, 10), dtype="f4", chunks=(chunk, 10), device="cpu")
            measured(f"{rows:,} rows in chunks of {chunk:,}", array)
    table = np.random.default_rng(0).standard_normal(SHAPE, "f4").round(2)
    array = gzarr.create_array({}, data=table, chunks=(10**4, 10), device="cpu")
    measured(f"{SHAPE[0]:,} rows in chunks of 10,000, stored", array)


if __name__ == "__main__":
    main()
