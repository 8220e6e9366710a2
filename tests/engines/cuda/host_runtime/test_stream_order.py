"""Streams of the device in host memory: what CUDA orders is in order, and whatever else happens late."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

SEEDS = range(12)


def streams(n: int) -> list[Any]:
    import cupy

    return [cupy.cuda.Stream(non_blocking=True) for _ in range(n)]


def event() -> Any:
    import cupy

    return cupy.cuda.Event(disable_timing=True)


def produce_and_consume(kernels: Any, *, waits: bool) -> bool:
    """Fill on one stream and double on another; return whether the result is right."""
    import cupy

    first, second = streams(2)
    source, target = cupy.zeros(100, "u1"), cupy.zeros(100, "u1")
    cupy.cuda.Device().synchronize()
    kernels.fill(source, 7, first)
    if waits:
        done = event()
        first.record(done)
        second.wait_event(done)
    kernels.double_into(target, source, second)
    second.synchronize()
    right = bool((target.get() == 14).all())
    first.synchronize()
    return right


def test_a_missing_wait_shows_for_nearly_every_seed(cuda: Any, kernels: Any) -> None:
    right = 0
    for seed in SEEDS:
        cuda.seed(seed)
        assert produce_and_consume(kernels, waits=True)
        right += produce_and_consume(kernels, waits=False)
    assert right <= 2


def test_host_memory_used_again_too_early_shows(cuda: Any, pinned: Any) -> None:
    import cupy
    from cupy.cuda import runtime

    host, target, right = pinned(64), cupy.zeros(64, "u1"), 0
    (stream,) = streams(1)
    for seed in SEEDS:
        cuda.seed(seed)
        host[:] = 1
        runtime.memcpyAsync(target.data.ptr, host.ctypes.data, 64, runtime.memcpyHostToDevice, stream.ptr)
        host[:] = 2
        stream.synchronize()
        right += bool((target.get() == 1).all())
    assert right <= 2


def test_a_result_read_too_early_shows(cuda: Any, pinned: Any) -> None:
    import cupy
    from cupy.cuda import runtime

    host, right = pinned(64), 0
    source = cupy.asarray(np.full(64, 9, "u1"))
    (stream,) = streams(1)
    cupy.cuda.Device().synchronize()
    for seed in SEEDS:
        cuda.seed(seed)
        host[:] = 0
        runtime.memcpyAsync(host.ctypes.data, source.data.ptr, 64, runtime.memcpyDeviceToHost, stream.ptr)
        right += bool((host == 9).all())
        stream.synchronize()
        assert (host == 9).all()
    assert right <= 2


LATE_MS = 400


def dues(cuda: Any, seed: int) -> list[float]:
    """Return how long the first operations of five streams are held back."""
    cuda.seed(seed, late_ms=LATE_MS)
    return [cuda.late_ms(name, 1) for name in range(2, 7)]


def test_the_order_follows_from_the_seed(cuda: Any, kernels: Any) -> None:
    import cupy

    memory = cupy.zeros((5, 16), "u1")
    cupy.cuda.Device().synchronize()

    def order(seed: int) -> list[int]:
        """Return the order in which streams run their first operations, if nobody waits for them."""
        cuda.seed(seed, late_ms=LATE_MS)
        made = streams(5)
        cuda.trace()
        for row, stream in zip(memory, made, strict=True):
            kernels.fill(row, 1, stream)
        deadline = time.monotonic() + 20
        ran: list[int] = []
        while len(ran) < 5:
            ran += [stream for stream, _, _ in cuda.trace()]
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return ran

    far_apart: dict[tuple[int, ...], int] = {}
    for seed in range(5000):
        due = dues(cuda, seed)
        in_order = sorted(due)
        if in_order[-1] <= LATE_MS and min(b - a for a, b in pairwise(in_order)) > 60:
            far_apart[tuple(2 + int(i) for i in np.argsort(due))] = seed
    assert len(far_apart) > 10
    for expected in [*list(far_apart)[:2]] * 2:
        assert tuple(order(far_apart[expected])) == expected


def test_an_event_is_waited_for_as_it_was_recorded_last(cuda: Any, kernels: Any) -> None:
    import cupy

    first, second = streams(2)
    memory, target = cupy.zeros(10, "u1"), cupy.zeros(10, "u1")
    cupy.cuda.Device().synchronize()
    for seed in SEEDS:
        cuda.seed(seed)
        never, done = event(), event()
        assert never.done
        second.wait_event(never)
        first.record(done)
        kernels.fill(memory, seed + 1, first)
        first.record(done)
        second.wait_event(done)
        kernels.double_into(target, memory, second)
        kernels.fill(memory, 77, second)
        first.record(done)
        second.synchronize()
        assert (target.get() == 2 * seed + 2).all()


def test_queries_say_not_ready_and_come_to_an_end(cuda: Any, kernels: Any) -> None:
    import cupy
    from cupy.cuda import runtime

    (stream,) = streams(1)
    memory, unready = cupy.zeros(10, "u1"), 0
    cupy.cuda.Device().synchronize()
    for seed in SEEDS:
        cuda.seed(seed)
        done = event()
        kernels.fill(memory, 1, stream)
        stream.record(done)
        answers = [runtime.streamQuery(stream.ptr)]
        deadline = time.monotonic() + 10
        while runtime.eventQuery(done.ptr):
            answers.append(600)
            assert time.monotonic() < deadline
        unready += 600 in answers
        assert set(answers) <= {0, 600}
    assert unready >= 10


@pytest.mark.parametrize("default", ["legacy", "per thread"])
def test_default_streams_are_in_the_order_of_blocking_streams(cuda: Any, kernels: Any, default: str) -> None:
    """The legacy stream waits for them, and they for it; the one of a thread does with the legacy stream only."""
    import cupy

    blocking = cupy.cuda.Stream(non_blocking=False)
    other = {"legacy": cupy.cuda.Stream.null, "per thread": cupy.cuda.Stream.ptds}[default]
    memory, target, right = cupy.zeros(10, "u1"), cupy.zeros(10, "u1"), [0, 0]
    cupy.cuda.Device().synchronize()
    for seed in SEEDS:
        cuda.seed(seed)
        kernels.fill(memory, 1, blocking)
        kernels.double_into(target, memory, other)
        other.synchronize()
        right[0] += bool((target.get() == 2).all())
        cupy.cuda.Device().synchronize()
        kernels.fill(memory, 3, other)
        kernels.double_into(target, memory, blocking)
        blocking.synchronize()
        right[1] += bool((target.get(stream=blocking) == 6).all())
        cupy.cuda.Device().synchronize()
        kernels.fill(memory, 0, blocking)
        kernels.fill(target, 0, blocking)
        cupy.cuda.Device().synchronize()
    if default == "legacy":
        assert right == [len(SEEDS)] * 2
    else:
        assert max(right) <= 6


def test_the_threads_default_stream_waits_for_the_legacy_one(cuda: Any, kernels: Any) -> None:
    import cupy

    memory, target = cupy.zeros(10, "u1"), cupy.zeros(10, "u1")
    for seed in SEEDS:
        cuda.seed(seed)
        kernels.fill(memory, seed + 1, cupy.cuda.Stream.null)
        kernels.double_into(target, memory, cupy.cuda.Stream.ptds)
        cupy.cuda.Stream.ptds.synchronize()
        assert (target.get() == 2 * seed + 2).all()


def test_a_non_blocking_stream_does_not_wait_for_the_legacy_one(cuda: Any, kernels: Any) -> None:
    import cupy

    (stream,) = streams(1)
    memory, target, right = cupy.zeros(10, "u1"), cupy.zeros(10, "u1"), 0
    cupy.cuda.Device().synchronize()
    for seed in SEEDS:
        cuda.seed(seed)
        kernels.fill(memory, seed + 1, cupy.cuda.Stream.null)
        kernels.double_into(target, memory, stream)
        stream.synchronize()
        right += bool((target.get() == 2 * seed + 2).all())
    assert right <= 2


def test_a_destroyed_stream_ends_its_work_and_its_address_is_used_again(cuda: Any, kernels: Any) -> None:
    import cupy

    memory = cupy.zeros(10, "u1")
    (stream,) = streams(1)
    cupy.cuda.Device().synchronize()
    address = stream.ptr
    kernels.fill(memory, 5, stream)
    begin = time.monotonic()
    del stream
    assert time.monotonic() - begin < 1
    # Not while work is pending.
    cuda.seed(0, late_ms=10_000)
    (second,) = streams(1)
    cupy.cuda.Device().synchronize()
    assert (memory.get() == 5).all()
    deadline = time.monotonic() + 10
    while (third := streams(1)[0]).ptr != address:
        assert time.monotonic() < deadline
        del third
    del second


def test_streams_and_events_that_were_destroyed_are_errors(cuda: Any) -> None:
    from cupy.cuda import runtime

    stream, other = runtime.streamCreateWithFlags(1), runtime.streamCreateWithFlags(1)
    done = runtime.eventCreateWithFlags(2)
    runtime.streamDestroy(stream)
    runtime.eventDestroy(done)
    for call in (
        lambda: runtime.streamSynchronize(stream),
        lambda: runtime.streamDestroy(stream),
        lambda: runtime.eventRecord(done, other),
        lambda: runtime.eventSynchronize(done),
        lambda: runtime.eventDestroy(done),
        lambda: runtime.eventSynchronize(0),
    ):
        with pytest.raises(runtime.CUDARuntimeError, match="cudaErrorInvalidResourceHandle"):
            call()
    runtime.streamDestroy(other)


def test_times_of_events(cuda: Any, kernels: Any) -> None:
    import cupy

    (stream,) = streams(1)
    memory = cupy.zeros(10, "u1")
    cupy.cuda.Device().synchronize()
    begin, end = cupy.cuda.Event(), cupy.cuda.Event()
    stream.record(begin)
    stream.synchronize()
    cuda.fail("fill", how="hang", seconds=0.05)
    kernels.fill(memory, 1, stream)
    stream.record(end)
    end.synchronize()
    assert 45 < cupy.cuda.get_elapsed_time(begin, end) < 5000


def test_functions_of_the_host_run_in_order(cuda: Any, kernels: Any, pinned: Any) -> None:
    import cupy
    from cupy.cuda import runtime

    (stream,) = streams(1)
    memory, host, seen = cupy.zeros(10, "u1"), pinned(10), []
    cupy.cuda.Device().synchronize()
    kernels.fill(memory, 4, stream)
    runtime.memcpyAsync(host.ctypes.data, memory.data.ptr, 10, runtime.memcpyDeviceToHost, stream.ptr)
    stream.launch_host_func(lambda kept: seen.append(host.copy()), None)
    stream.synchronize()
    assert (seen[0] == 4).all()
