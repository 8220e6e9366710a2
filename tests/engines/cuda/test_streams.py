"""Streams of the engine's own: CuPy keeps freed memory for a stream, so they are few, and are used again."""

from __future__ import annotations

import gc
import itertools
import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support import devices
from support.loaders import await_end_of_threads

import gzarr
from gzarr.engines.cuda import streams
from gzarr.engines.cuda.streams import BorrowedStream
from gzarr.loader.dataset import Dataset
from gzarr.loader.memory import memory_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.watched_device import WatchedDevice

DATA = np.arange(64 * 32, dtype="u2").reshape(64, 32)


@pytest.fixture
def device() -> Iterator[WatchedDevice]:
    with devices.on_host() as one:
        pool().free_all_blocks()
        yield one
        gc.collect()


def pool() -> Any:
    import cupy

    return cupy.get_default_memory_pool()


def made(device: WatchedDevice) -> int:
    """Return how many streams were made."""
    return sum(n for name, n in device.cuda.host.counts().items() if name.startswith("cudaStreamCreate"))


@pytest.fixture
def array(device: WatchedDevice) -> gzarr.Array:
    return gzarr.create_array(gzarr.MemoryStore(), data=DATA, chunks=(8, 16), device="cuda")


def epoch(array: gzarr.Array, **options: Any) -> None:
    for batch in gzarr.Loader(array, batch_size=8, buffer_bytes=2000, **options):
        batch["data"].get()


def broken_off(array: gzarr.Array) -> None:
    for batch in gzarr.Loader(array, batch_size=8, copy=False):
        batch["data"].get()
        break


def one_by_one(array: gzarr.Array) -> None:
    Dataset(array)[3]["data"].get()


def blocks(array: gzarr.Array) -> None:
    result = gzarr.map_blocks(lambda block: block, array, block=(16, 16))
    assert (result.get() == DATA).all()


def reduced(array: gzarr.Array) -> None:
    gzarr.map_blocks(lambda block: block[:1, :1], array, block=(16, 16), reduce=lambda one, other: one)


CALLS: dict[str, Callable[[gzarr.Array], Any]] = {
    "epoch": epoch,
    "epoch without copies": lambda array: epoch(array, copy=False),
    "epoch without threads": lambda array: epoch(array, prefetch=0),
    "epoch broken off": broken_off,
    "dataset": one_by_one,
    "blocks": blocks,
    "reduced": reduced,
    "read": lambda array: array[3:9].get(),
}


@pytest.mark.filterwarnings("ignore:shuffling is coarse")
@pytest.mark.parametrize("name", CALLS)
def test_the_pool_does_not_grow_with_each_call(name: str, array: gzarr.Array, device: WatchedDevice) -> None:
    def called(times: int) -> None:
        for _ in range(times):
            CALLS[name](array)
            # What is young: all objects of a test run would take a second.
            gc.collect(1)

    called(3)
    before = made(device)
    assert 0 < before <= 12
    called(8)
    # Threads run side by side to a different degree; each call with streams of its own would make two or more.
    assert made(device) <= before + 4
    # What a thread frees afterwards is kept for the next call.
    await_end_of_threads()
    gzarr.release_memory()
    # What is kept is for CuPy's default stream.
    device.free_cached(device.current_stream())
    assert pool().free_bytes() == 0


def test_a_stream_goes_back_when_it_is_closed_or_collected(device: WatchedDevice) -> None:
    with device:
        first = BorrowedStream(device)
        stream = first.stream
        first.close()
        first.close()
        second, third = BorrowedStream(device), BorrowedStream(device)
        assert second.stream is stream
        assert third.stream is not stream
        del second
        gc.collect()
        assert BorrowedStream(device).stream is stream
    assert made(device) == 2


def test_a_stream_that_is_collected_in_a_circle_goes_back_alive(device: WatchedDevice) -> None:
    """As one whose borrower an error's traceback refers to."""
    with device:
        circle: list[Any] = [BorrowedStream(device)]
        circle.append(circle)
        address = circle[0].stream.ptr
        del circle
        gc.collect()
        again = BorrowedStream(device)
        assert again.stream.ptr == address
        again.stream.synchronize()
    assert made(device) == 1


def test_the_streams_of_a_loader_keep_their_roles(device: WatchedDevice) -> None:
    """Else blocks for both roles would be kept for each, also where epochs of several loaders overlap."""
    first, second = memory_of(device.name), memory_of(device.name)
    reading = {first.stream, second.stream}
    for one in (first, second):
        one.close()
    with device:
        BorrowedStream(device).close()
    again = [memory_of(device.name) for _ in range(2)]
    assert {one.stream for one in again} == reading
    for one in again:
        one.close()


@pytest.mark.filterwarnings("ignore:shuffling is coarse")
def test_a_loader_s_memory_does_not_grow_with_its_epochs(device: WatchedDevice) -> None:
    data = np.random.default_rng(0).random((4096, 1024)).astype("f4")
    array = gzarr.create_array({}, data=data, chunks=(128, 1024), device="cuda")
    loader = gzarr.Loader(array, batch_size=64, buffer_bytes=4 << 20, seed=1, prefetch=0)
    totals = []
    for _ in range(3):
        for batch in loader:
            del batch
        totals.append(pool().total_bytes())
    # Batches are pieces of whole blocks.
    assert totals[2] <= 1.2 * totals[0], totals


def test_no_more_streams_are_kept_than_promised(device: WatchedDevice) -> None:
    with device:
        borrowed = [BorrowedStream(device) for _ in range(streams.MAX_IDLE_STREAMS + 5)]
        memories = [device.allocate(100, one.stream) for one in borrowed]
        block = pool().used_bytes() // len(borrowed)
        memories.clear()
        for one in borrowed:
            one.close()
        assert len(streams._idle[device.name, ""]) == streams.MAX_IDLE_STREAMS
        # The memory of those that are gone is free.
        assert pool().free_bytes() == streams.MAX_IDLE_STREAMS * block


def test_a_stream_is_one_borrower_s_at_a_time(device: WatchedDevice) -> None:
    used: set[int] = set()
    errors: list[str] = []

    def work() -> None:
        with device:
            for _ in range(300):
                one = BorrowedStream(device)
                if id(one.stream) in used:
                    errors.append("used twice")
                used.add(id(one.stream))
                used.discard(id(one.stream))
                one.close()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert made(device) <= 4


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_takes_no_stream_of_its_parent(device: WatchedDevice) -> None:
    with device:
        held = BorrowedStream(device)
        BorrowedStream(device).close()
        child = os.fork()
        if not child:
            kept = streams._idle.get((device.name, ""), ())
            held.close()
            os._exit(len(kept) + len(streams._idle.get((device.name, ""), ())))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert len(streams._idle[device.name, ""]) == 1


FREED = """
import os, sys
from gzarr.engines.cuda import streams

class Stream:
    def __del__(self, write=os.write):
        write(1, b"freed")

class Device:
    name = "cuda:0"
    stream = Stream

lent, idle = (streams.BorrowedStream(Device()) for _ in range(2))
idle.close()
streams._unusable.append(Stream())
if not os.fork():
    sys.exit(0)
os.waitpid(-1, 0)
os._exit(0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_that_ends_frees_no_stream_of_its_parent() -> None:
    command = [sys.executable, "-W", "ignore:This process:DeprecationWarning", "-c", FREED]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=100, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_last_batch_is_read_by_its_consumer_before_its_memory_is_used_again(
    array: gzarr.Array, device: WatchedDevice
) -> None:
    """With ``copy=False``, work on the last batch is waited for by the streams of whoever has them next."""
    results = []
    for _ in range(3):
        for batch in gzarr.Loader(array, batch_size=8, copy=False, shuffle=False):
            with device:
                stream = device.current_stream()
                result = device.empty(batch["data"].shape, batch["data"].dtype, stream)
                device.copy_array(result, batch["data"], stream)
                results.append(result)
        # What is dropped is overwritten in order with the stream that it was made on, which is one of the pool's now.
        del batch
        gzarr.release_memory()
    for i, result in enumerate(results):
        assert (result.get() == DATA[i % 8 * 8 : i % 8 * 8 + 8]).all()


def test_a_value_to_be_reduced_is_the_caller_s_own(array: gzarr.Array, device: WatchedDevice) -> None:
    """Callers' kernels read it late; the blocks that follow use the memory of the value that the function returned."""
    taken = []

    def keep(one: Any, other: Any) -> Any:
        with device:
            stream = device.current_stream()
            for value in (one, other):
                result = device.empty(value.shape, value.dtype, stream)
                device.copy_array(result, value, stream)
                taken.append(result)
        return other

    gzarr.map_blocks(lambda block: block, array, block=(8, 32), reduce=keep, overlap=False)
    found = [int(result.get()[0, 0]) for result in taken]
    firsts = DATA[::8, 0].tolist()
    assert found == [value for pair in itertools.pairwise(firsts) for value in pair]


def test_a_new_output_is_the_caller_s_own(array: gzarr.Array, device: WatchedDevice) -> None:
    """Its memory is used again in order with the caller's stream, not with that of a block."""
    results = []
    for _ in range(3):
        found = gzarr.map_blocks(lambda block: block, array, block=(16, 16))
        with device:
            stream = device.current_stream()
            result = device.empty(found.shape, found.dtype, stream)
            device.copy_array(result, found, stream)
            results.append(result)
        del found
        gzarr.release_memory()
    assert all((result.get() == DATA).all() for result in results)
