"""Batches on a device whose streams run late: what a consumer enqueues is in order with reads, and nobody waits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support import devices
from support.loaders import await_end_of_threads

import gzarr
from gzarr.loader import Loader, Rows, Windows

# Small buffers, to have many blocks.
pytestmark = pytest.mark.filterwarnings("ignore:shuffling is coarse")

DATA = np.arange(300 * 64, dtype="i4").reshape(300, 64)


def negated(batch: Any) -> Any:
    """A transform, whose work is enqueued too."""
    batch["x"] = -batch["x"]
    return batch


@pytest.mark.parametrize("transform", [None, negated], ids=["as-read", "transformed"])
@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("copy", [True, False])
def test_late_consumers_get_their_batches(copy: bool, prefetch: int, transform: Any) -> None:
    """A batch is copied by the consumer's stream, which runs after the batch is gone."""
    store: dict[str, bytes] = {}
    gzarr.create_array(store, data=DATA, chunks=(8, 64), codecs="zstd", device="cpu")
    with devices.on_host() as device:
        loader = Loader(
            {"x": gzarr.open_array(store, device="cuda")},
            Rows(),
            batch_size=8,
            prefetch=prefetch,
            buffer_bytes=20_000,
            copy=copy,
            drop_last=False,
            transform=transform,
        )
        with device:
            consumer = device.stream()
        for _ in range(2):
            found = []
            with device, consumer:
                for batch in loader:
                    values = batch["x"]
                    target = device.pinned(values.nbytes)
                    device.copy_out(target, values, consumer)
                    found.append((batch.origins[:, 0].tolist(), target))
                    del batch, values
                consumer.synchronize()
            assert sorted(row for rows, _ in found for row in rows) == list(range(len(DATA)))
            for rows, target in found:
                expected = DATA[rows] if transform is None else -DATA[rows]
                np.testing.assert_array_equal(target.view("i4").reshape(-1, 64), expected)
            del found, target
        del consumer


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("sampler", [Rows(), Windows(0, {"x": (0, 2)})], ids=["rows", "windows"])
def test_copies_may_be_kept(sampler: Any, prefetch: int) -> None:
    store: dict[str, bytes] = {}
    gzarr.create_array(store, data=DATA, chunks=(8, 64), device="cpu")
    with devices.on_host():
        array = gzarr.open_array(store, device="cuda")
        loader = Loader({"x": array}, sampler, batch_size=8, prefetch=prefetch, buffer_bytes=20_000)
        kept = []
        for batch in loader:
            values = batch["x"]["x"] if isinstance(sampler, Windows) else batch["x"]
            kept.append((batch.origins[:, 0], values))
        assert len(kept) == len(loader)
        for origins, values in kept:
            expected = DATA[origins[:, None] + np.arange(3)] if isinstance(sampler, Windows) else DATA[origins]
            np.testing.assert_array_equal(values.get(), expected)
        del kept, values


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("way", ["iterators dropped", "arrays taken out", "a stream for each batch"])
def test_what_a_consumer_still_uses_is_not_used_again(way: str, prefetch: int) -> None:
    """With ``copy=False``, the work that a consumer has enqueued comes before the next use of a batch's memory."""
    store: dict[str, bytes] = {}
    gzarr.create_array(store, data=DATA, chunks=(8, 64), device="cpu")
    with devices.on_host() as device:
        array = gzarr.open_array(store, device="cuda")
        with device:
            streams = [device.stream() for _ in range(3 if way == "a stream for each batch" else 1)]

        def epoch(seed: int) -> Any:
            return iter(
                Loader({"x": array}, batch_size=8, prefetch=prefetch, buffer_bytes=20_000, copy=False, seed=seed)
            )

        found, batches = [], epoch(0)
        for i in range(30):
            if way == "iterators dropped":
                batches = epoch(i)
            with device, streams[i % len(streams)] as stream:
                batch = next(batches)
                values = batch.pop("x") if way == "arrays taken out" else batch["x"]
                target = device.pinned(values.nbytes)
                device.copy_out(target, values, streams[i % len(streams)])
            found.append((batch.origins[:, 0], target))
            if way != "a stream for each batch":
                batch.clear()
            del batch, values, stream
        for stream in streams:
            stream.synchronize()
        for rows, target in found:
            np.testing.assert_array_equal(target.view("i4").reshape(-1, 64), DATA[rows])
        del batches, found, target, streams, stream
        # Threads that read ahead have streams, too.
        await_end_of_threads()
