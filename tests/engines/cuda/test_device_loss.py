"""Calls of CUDA that fail, one after the other, and a context that dies: exceptions, and what is left behind."""

from __future__ import annotations

import gc
import json
import re
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numcodecs
import numpy as np
import pytest
from support import devices
from support import zarr_arrays as z
from support.cuda_on_host.device import ILLEGAL_ADDRESS

import gzarr
from gzarr.engines.cuda import slots, streams, wave_plan, write_engine
from gzarr.engines.cuda.loss import MAX_NAMED_CHUNKS, MAX_NAMED_OPERATIONS, Loss
from gzarr.stores.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.watched_device import WatchedDevice

pytestmark = [
    pytest.mark.slow,
    # CuPy's objects say that they cannot be freed on a lost device.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

N, CHUNK = 8, 500
DATA = (np.arange(N * CHUNK) // 3).astype("<i4")
ZSTD = z.codec("zstd", level=1, checksum=False)


INVALID_VALUE = 1


@contextmanager
def in_small_waves() -> Iterator[WatchedDevice]:
    """CUDA in host memory, with waves of one chunk."""
    with devices.on_host() as device, pytest.MonkeyPatch.context() as patch:
        patch.setattr(wave_plan, "WAVE_BYTES", 1)
        patch.setattr(wave_plan, "WAVE_FRAMES", 1)
        patch.setattr(write_engine, "WAVE_BYTES", 1)
        patch.setenv("GZARR_THREADS", "1")
        # Pytest would keep what errors in destructors refer to.
        patch.setattr(sys, "unraisablehook", lambda _: None)
        unusable = [slots._unusable, streams._unusable]
        before = [len(one) for one in unusable]
        yield device
        host = device.cuda.host
        host.clear_faults()
        assert host.drain()
        # Nothing uses them any more, which only a test can know.
        for one, n in zip(unusable, before, strict=True):
            del one[n:]
        if host.lost():
            # What was told to do this is what was wrong.
            wrong = device.cuda.errors()
            assert all("ends the device" in note or "asked for" in note for note in wrong), wrong


def lose(device: WatchedDevice, call: str) -> None:
    """Make a call of CUDA find that a kernel before it has done something illegal."""
    device.cuda.host.fail(call, code=ILLEGAL_ADDRESS, how="lose")


def kills(deadly: bytes) -> Callable[[str, bytes], bool]:
    """Return a function for WatchedDevice.kills: the frame is the end of the device, after a while."""

    def killed(algorithm: str, frame: bytes) -> bool:
        if frame == deadly:
            time.sleep(0.3)
        return frame == deadly

    return killed


@pytest.fixture
def device() -> Iterator[WatchedDevice]:
    with in_small_waves() as made:
        yield made


def stored(codecs: Any = (z.LITTLE, ZSTD)) -> dict[str, bytes]:
    document = z.v3((N * CHUNK,), (CHUNK,), "int32", list(codecs))
    chunks = DATA.reshape(N, CHUNK)
    encode = numcodecs.Zstd(1).encode if len(codecs) > 1 else bytes
    values = {f"a/c/{i}": bytes(encode(chunks[i].tobytes())) for i in range(N)}
    return {"a/zarr.json": json.dumps(document).encode(), **values}


def opened(store: Any, device: str = "cuda", **options: Any) -> gzarr.Array:
    return gzarr.open_array(store, path="a", device=device, **options)


def on(device: WatchedDevice, values: Any) -> Any:
    with device:
        result = device.empty(values.shape, values.dtype, device.current_stream())
    result.set(values)
    return result


def check_idle(device: WatchedDevice) -> None:
    """Check that slots for other reads are idle, or wait for a caller's stream; on a lost device nothing is."""
    for slot in slots._idle.get(device.name, []):
        assert slot.gated or slot.stream.cupy.done or device.lost


def made(device: WatchedDevice) -> int:
    """Return how many calls of CUDA there were, but for those that free things or ask for the thread's device."""
    counts = device.cuda.host.counts()
    others = ("Free", "Destroy", "Unload", "cudaGetDevice")
    return sum(n for name, n in counts.items() if name.startswith("cu") and not any(what in name for what in others))


# -- a frame that kills


def test_a_frame_that_kills_the_context(device: WatchedDevice) -> None:
    store = stored()
    deadly = store["a/c/4"]
    array = opened(store)
    np.testing.assert_array_equal(array.read(decode="cuda").get(), DATA)
    device.kills = kills(deadly)
    with pytest.raises(gzarr.DeviceError) as caught:
        array.read(decode="cuda")
    message = str(caught.value)
    # Three waves are in flight when the host has waited for the statuses of the fifth one.
    assert "cuda:0 was lost while it was reading array '/a', chunks (4,), (5,), (6,): cudaErrorLaunchFailure" in message
    for what in ("restart", 'verify="cpu"', 'decode="cpu"', 'device="cpu"', "gzarr verify PATH"):
        assert what in message
    check_idle(device)
    # From now on, nothing calls CUDA any more.
    calls = made(device)
    other = gzarr.open_array(stored(), path="a", device="cuda")
    uses: list[Callable[[], Any]] = [
        lambda: array.read(decode="cuda"),
        lambda: array.read(decode="cpu"),
        lambda: array[3:7],
        lambda: array.oindex[[1, 5]],
        lambda: array.vindex[[1, 5]],
        lambda: array.blocks[0],
        lambda: array.read_many([slice(0, 3), slice(4, 9)]),
        lambda: other[...],
        lambda: opened(store, mode="r+").write(slice(0, 5), 1),
        lambda: gzarr.create_array({}, data=DATA, device="cuda"),
    ]
    for use in uses:
        with pytest.raises(gzarr.DeviceError) as again:
            use()
        assert str(again.value) == message
    assert made(device) == calls
    assert "lost" in array.decode_path
    assert "lost" in repr(array)
    slots.release()
    assert made(device) == calls
    np.testing.assert_array_equal(opened(store, "cpu")[...], DATA)
    # Another device is another context.
    device.kills = lambda algorithm, frame: False
    np.testing.assert_array_equal(opened(store, "cuda:1").read(decode="cuda").get(), DATA)


def test_verified_by_the_host_it_kills_nothing(device: WatchedDevice) -> None:
    store = stored()
    good = store["a/c/4"]
    # In the block, behind all headers: what nobody sees but a decoder.
    for at in range(20, len(good)):
        bad = good[:at] + bytes([good[at] ^ 0xFF]) + good[at + 1 :]
        store["a/c/4"] = bad
        try:
            opened(store, "cpu")[...]
        except gzarr.ChunkDecodeError as error:
            expected = str(error)
            break
    device.kills = kills(bad)
    with pytest.raises(gzarr.ChunkDecodeError) as caught:
        opened(store).read(decode="cuda", verify="cpu")
    assert str(caught.value) == expected
    assert device.lost is None
    with pytest.raises(gzarr.DeviceError, match=r"\(4,\)"):
        opened(store).read(decode="cuda")


def test_a_decoder_that_only_says_that_it_failed(device: WatchedDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    """nvCOMP's own status does not tell CUDA's error, which is found when slots are waited for."""
    decoder = device.decompressor("zstd")
    assert decoder is not None
    run = type(decoder).run

    def die(*args: Any, **options: Any) -> None:
        from cupy.cuda import runtime

        lose(device, "cudaStreamQuery")
        assert runtime.streamQuery(device.current_stream().ptr) == ILLEGAL_ADDRESS
        run(*args, **options)

    monkeypatch.setattr(type(decoder), "run", die)
    with pytest.raises(gzarr.DeviceError, match=r"was lost while it was reading array '/a', chunk \(0,\): cuda"):
        opened(stored()).read(decode="cuda")


def test_an_error_that_is_no_device_s_stays_what_it_is(device: WatchedDevice) -> None:
    store = Refusing(stored(), "a/c/6")
    array = opened(store)
    device.kills = lambda algorithm, frame: time.sleep(0.3) is None
    with pytest.raises(gzarr.ChunkReadError, match="refused"):
        array.blocks.read(slice(6, 8), decode="cuda")
    assert device.lost is None
    with pytest.raises(gzarr.ChunkReadError, match="refused"):
        array.blocks.read(slice(4, 8), decode="cuda")
    # Chunks 4 and 5 were on the device.
    with pytest.raises(gzarr.DeviceError, match=r"chunks \(4,\), \(5,\): cuda"):
        array.blocks.read(0, decode="cuda")


def test_a_context_that_dies_in_a_write(device: WatchedDevice) -> None:
    store = stored()
    array = opened(store, mode="r+")
    value = on(device, DATA[::-1].copy())
    lose(device, "cudaEventSynchronize")
    # Two waves are in flight when the host waits for the first one.
    with pytest.raises(
        gzarr.DeviceError, match=r"was lost while it was encoding array '/a', chunks \(0,\), \(1,\): cuda"
    ):
        array.write(..., value)
    with pytest.raises(gzarr.DeviceError, match=r"encoding array '/a', chunks \(0,\), \(1,\): cuda"):
        array.write(slice(0, 3), value[:3])
    np.testing.assert_array_equal(opened(store, "cpu")[...], DATA)


def test_messages_are_bounded() -> None:
    loss = Loss("cuda:3", "cudaErrorX: y")
    loss.note("reading array '/none'", np.zeros((0, 2), np.int64))
    assert str(loss.error()).startswith("cuda:3 was lost: cudaErrorX: y. ")
    loss.note("reading array '/a'", np.stack(np.divmod(np.arange(100), 10), 1))
    for i in range(9):
        loss.note(f"encoding array '/{i}'", np.array([[i]]))
    message = str(loss.error())
    assert message.count("(") == MAX_NAMED_CHUNKS + MAX_NAMED_OPERATIONS - 1
    assert "(0, 0), (0, 1), (0, 2)" in message
    assert f"(1, 1) and {100 - MAX_NAMED_CHUNKS} more; encoding array '/0', chunk (0); " in message.replace(",)", ")")


# -- calls that fail, each in its turn


class Refusing(MemoryStore):
    """A store that fails to return some key."""

    def __init__(self, values: dict[str, bytes], refused: str) -> None:
        super().__init__(values)
        self.refused = refused

    def get(self, key: str) -> bytes | None:
        if key == self.refused:
            raise gzarr.StoreError("refused", key=key)
        return super().get(key)

    def get_small_values(self, keys: Any, most: int) -> Any:
        return [self.get(key) for key in keys]


class Case:
    """One use of a device, which raises an error or gives the expected result."""

    def __init__(self, name: str, device: WatchedDevice) -> None:
        self.name = name
        self.device = device
        self.store = stored()
        self.array = opened(self.store, mode="r+")
        self.value = on(device, DATA)

    def run(self) -> Any:
        if self.name == "write":
            return self.array.write(..., self.value)
        if self.name == "tables":
            return self.array.oindex.read(ROWS, decode="cuda")
        if self.name == "on the host, in waves":
            return self.array.read(decode="cpu", budget_bytes=20_000)
        return self.array.read(decode="cpu" if self.name == "on the host" else "cuda")

    def check(self, result: Any) -> None:
        found = opened(self.store, "cpu")[...] if result is None else result.get()
        np.testing.assert_array_equal(found, DATA[ROWS] if self.name == "tables" else DATA)


ROWS = np.array([4, 700, 3, 3999, 1200])
CASES = ("read", "tables", "on the host", "on the host, in waves", "write")
#: The first part of the names of calls that free something: CuPy does not look whether they succeed.
FREES = ("cudaFree", "cudaEventDestroy", "cudaStreamDestroy")


def calls_of(name: str) -> list[tuple[str, int]]:
    """Return the calls of CUDA that a case makes, each function's first, middle and last one."""
    with in_small_waves() as device:
        case = Case(name, device)
        before = device.cuda.host.counts()
        result = case.run()
        counts = device.cuda.host.counts() - before
        case.check(result)
        return [
            (call, nth)
            for call, n in sorted(counts.items())
            if call.startswith("cu") and n > 0
            for nth in sorted({1, (n + 1) // 2, n})
        ]


@pytest.mark.parametrize("how", ["fail", "lose"])
@pytest.mark.parametrize("name", CASES)
def test_every_call_may_fail(name: str, how: Any) -> None:
    calls = calls_of(name)
    assert len(calls) > 12
    failed = 0
    for call, nth in calls:
        # What is not freed is lost. And CUDA knows its device: CuPy, which asks all the time, would lose what it made.
        if how == "fail" and call.startswith((*FREES, "cudaGetDevice")):
            continue
        with in_small_waves() as device:
            case = Case(name, device)
            unusable = len(slots._unusable)
            device.cuda.host.fail(call, nth, code=INVALID_VALUE if how == "fail" else ILLEGAL_ADDRESS, how=how)
            try:
                result = case.run()
            except gzarr.DeviceError as error:
                message = str(error)
            else:
                # How often it asks whether an event is done depends on time.
                fired = not device.cuda.host.faults_left()
                assert call.startswith(FREES) or not fired, (call, nth)
                device.cuda.host.clear_faults()
                if not device.cuda.host.lost():
                    case.check(result)
                continue
            failed += 1
            check_idle(device)
            if how == "fail":
                assert re.search("invalid.?value", message, re.IGNORECASE), (call, nth, message)
                assert len(slots._unusable) <= unusable + 1
                case.check(case.run())
            else:
                assert re.search("illegal.?address", message, re.IGNORECASE), (call, nth, message)
                before = made(device)
                with pytest.raises(gzarr.DeviceError) as again:
                    case.run()
                assert str(again.value) == message
                assert made(device) == before
            np.testing.assert_array_equal(opened(case.store, "cpu")[...], DATA)
    assert failed > 12


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_cleaning_up_goes_on_where_it_fails(failing: int, device: WatchedDevice) -> None:
    """The original error is raised; the slot whose stream fails is dropped, and all others are returned."""
    array = opened(Refusing(stored(), "a/c/3"))
    slots.release()
    unusable = len(slots._unusable)
    before = device.cuda.host.counts()
    device.cuda.host.fail("cudaStreamSynchronize", failing + 1, code=INVALID_VALUE)
    with pytest.raises(gzarr.ChunkReadError, match="refused"):
        array.blocks.read(slice(1, 6), decode="cuda")
    # Two waves are enqueued, and the third one was being filled.
    assert (device.cuda.host.counts() - before)["cudaStreamSynchronize"] == 3
    assert len(slots._unusable) == unusable + 1
    idle = slots._idle["cuda:0"]
    assert len(idle) == 2
    assert slots._unusable[-1][0] not in idle
    check_idle(device)


def test_cleaning_up_after_a_write_goes_on_where_it_fails(
    device: WatchedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore(stored())
    array = opened(store, mode="r+")
    value = on(device, DATA)
    slots.release()
    unusable = len(slots._unusable)

    def refuse(*_: Any) -> None:
        device.cuda.host.fail("cudaStreamSynchronize", code=INVALID_VALUE, times=2)
        raise OSError("disk full")

    monkeypatch.setattr(store, "set_parts", refuse)
    monkeypatch.setattr(store, "set", refuse)
    with pytest.raises(gzarr.ChunkWriteError, match="disk full"):
        array.write(..., value)
    # Of two waves; neither can be waited for.
    assert len(slots._unusable) == unusable + 2
    # What they may still read, others must not get.
    address = value.data.ptr
    del value
    gc.collect()
    assert on(device, DATA).data.ptr != address
    assert not slots._idle.get("cuda:0")
