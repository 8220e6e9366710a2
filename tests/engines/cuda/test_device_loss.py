"""Calls of CUDA that fail, one after the other, and a context that dies: exceptions, and what is left behind."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numcodecs
import numpy as np
import pytest
from support import zarr_arrays as z
from support.simulated_device import SimulatedDevice
from support.simulated_faults import ILLEGAL_ADDRESS, INVALID_VALUE

import gzarr
from gzarr.engines.cuda import devices, slots, wave_plan, write_engine
from gzarr.engines.cuda.loss import MAX_NAMED_CHUNKS, MAX_NAMED_OPERATIONS, Loss
from gzarr.stores.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.slow

N, CHUNK = 8, 500
DATA = (np.arange(N * CHUNK) // 3).astype("<i4")
ZSTD = z.codec("zstd", level=1, checksum=False)


@contextmanager
def simulated() -> Iterator[SimulatedDevice]:
    """A device on which nothing runs before somebody waits for it, with waves of one chunk."""
    made: dict[int, SimulatedDevice] = {}

    def make(ordinal: int) -> SimulatedDevice:
        made[ordinal] = SimulatedDevice(ordinal, eager=False)
        return made[ordinal]

    slots.release()
    with devices.use(make), pytest.MonkeyPatch.context() as patch:
        patch.setattr(wave_plan, "WAVE_BYTES", 1)
        patch.setattr(wave_plan, "WAVE_FRAMES", 1)
        patch.setattr(write_engine, "WAVE_BYTES", 1)
        patch.setenv("GZARR_THREADS", "1")
        devices.get_device("cuda:0")
        yield made[0]
        for device in made.values():
            device.calls.fail = lambda call: ""
        slots.release()
        for device in made.values():
            device.finish()


@pytest.fixture
def device() -> Iterator[SimulatedDevice]:
    with simulated() as made:
        yield made


def stored(codecs: Any = (z.LITTLE, ZSTD)) -> dict[str, bytes]:
    document = z.v3((N * CHUNK,), (CHUNK,), "int32", list(codecs))
    chunks = DATA.reshape(N, CHUNK)
    encode = numcodecs.Zstd(1).encode if len(codecs) > 1 else bytes
    values = {f"a/c/{i}": bytes(encode(chunks[i].tobytes())) for i in range(N)}
    return {"a/zarr.json": json.dumps(document).encode(), **values}


def opened(store: Any, device: str = "cuda", **options: Any) -> gzarr.Array:
    return gzarr.open_array(store, path="a", device=device, **options)


def on(device: SimulatedDevice, values: Any) -> Any:
    with device:
        result = device.empty(values.shape, values.dtype, device.current_stream())
    result.view(np.ndarray)[...] = values
    return result


def check_idle(device: SimulatedDevice) -> None:
    """Check that slots for other reads are idle, except for waiting for a caller's stream and freeing memory."""
    for slot in slots._idle.get(device.name, []):
        assert slot.gated or all(operation.func == device._forget for operation in slot.stream._pending)


# -- a frame that kills


def test_a_frame_that_kills_the_context(device: SimulatedDevice) -> None:
    store = stored()
    deadly = store["a/c/4"]
    array = opened(store)
    np.testing.assert_array_equal(array.read(decode="cuda").get(), DATA)
    device.kills = lambda algorithm, frame: frame == deadly
    with pytest.raises(gzarr.DeviceError) as caught:
        array.read(decode="cuda")
    message = str(caught.value)
    # Three waves are in flight when the host has waited for the statuses of the fifth one.
    assert f"cuda:0 was lost while it was reading array '/a', chunks (4,), (5,), (6,): {ILLEGAL_ADDRESS}" in message
    for what in ("restart", 'verify="cpu"', 'decode="cpu"', 'device="cpu"', "gzarr verify PATH"):
        assert what in message
    check_idle(device)
    # From now on, nothing calls CUDA any more.
    calls = len(device.calls.made)
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
    assert len(device.calls.made) == calls
    assert "lost" in array.decode_path
    assert "lost" in repr(array)
    slots.release()
    assert len(device.calls.made) == calls
    np.testing.assert_array_equal(opened(store, "cpu")[...], DATA)
    # Another device is another context.
    np.testing.assert_array_equal(opened(store, "cuda:1").read(decode="cuda").get(), DATA)


def test_verified_by_the_host_it_kills_nothing(device: SimulatedDevice) -> None:
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
    device.kills = lambda algorithm, frame: frame == bad
    with pytest.raises(gzarr.ChunkDecodeError) as caught:
        opened(store).read(decode="cuda", verify="cpu")
    assert str(caught.value) == expected
    assert device.lost is None
    with pytest.raises(gzarr.DeviceError, match=r"\(4,\)"):
        opened(store).read(decode="cuda")


def test_a_decoder_that_only_says_that_it_failed(device: SimulatedDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    """nvCOMP's own status does not tell CUDA's error, which is found when slots are waited for."""
    decoder = device.decompressor("zstd")
    assert decoder is not None
    run = type(decoder).run

    def die(*args: Any, **options: Any) -> None:
        device.calls.dead = True
        run(*args, **options)

    monkeypatch.setattr(type(decoder), "run", die)
    with pytest.raises(gzarr.DeviceError, match=r"was lost while it was reading array '/a', chunk \(0,\): cuda"):
        opened(stored()).read(decode="cuda")


def test_an_error_that_is_no_device_s_stays_what_it_is(device: SimulatedDevice) -> None:
    store = Refusing(stored(), "a/c/6")
    array = opened(store)
    device.kills = lambda algorithm, frame: True
    with pytest.raises(gzarr.ChunkReadError, match="refused"):
        array.blocks.read(slice(6, 8), decode="cuda")
    assert device.lost is None
    with pytest.raises(gzarr.ChunkReadError, match="refused"):
        array.blocks.read(slice(4, 8), decode="cuda")
    # Chunks 4 and 5 were on the device.
    with pytest.raises(gzarr.DeviceError, match=r"chunks \(4,\), \(5,\): cuda"):
        array.blocks.read(0, decode="cuda")


def test_a_context_that_dies_in_a_write(device: SimulatedDevice) -> None:
    store = stored()
    array = opened(store, mode="r+")
    value = on(device, DATA[::-1].copy())
    device.calls.fail = lambda call: "die" if call == "synchronize event" else ""
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

    def __init__(self, name: str, device: SimulatedDevice) -> None:
        self.name = name
        self.device = device
        self.store = stored()
        self.array = opened(self.store, mode="r+")
        self.value = on(device, DATA)
        self.expected = DATA

    def run(self) -> None:
        rows = np.array([4, 700, 3, 3999, 1200])
        if self.name == "write":
            self.array.write(..., self.value)
            result: Any = opened(self.store, "cpu")[...]
        elif self.name == "tables":
            result, self.expected = self.array.oindex.read(rows, decode="cuda").get(), DATA[rows]
        elif self.name == "on the host, in waves":
            result = self.array.read(decode="cpu", budget_bytes=20_000).get()
        else:
            result = self.array.read(decode="cpu" if self.name == "on the host" else "cuda").get()
        np.testing.assert_array_equal(result, self.expected)


CASES = ("read", "tables", "on the host", "on the host, in waves", "write")


@pytest.mark.parametrize("how", ["fail", "die"])
@pytest.mark.parametrize("name", CASES)
def test_every_call_may_fail(name: str, how: str) -> None:
    turn = 0
    while True:
        with simulated() as device:
            case = Case(name, device)
            calls = iter(range(1 << 30))
            device.calls.fail = lambda call, turn=turn, calls=calls: how if next(calls) == turn else ""
            unusable = len(slots._unusable)
            try:
                case.run()
            except gzarr.DeviceError as error:
                message = str(error)
            else:
                break
            check_idle(device)
            if how == "fail":
                assert INVALID_VALUE in message
                assert len(slots._unusable) <= unusable + 1
                case.run()
                np.testing.assert_array_equal(opened(case.store, "cpu")[...], DATA)
            else:
                assert ILLEGAL_ADDRESS in message
                made = len(device.calls.made)
                with pytest.raises(gzarr.DeviceError) as again:
                    case.run()
                assert str(again.value) == message
                assert len(device.calls.made) == made
                np.testing.assert_array_equal(opened(case.store, "cpu")[...], DATA)
        turn += 1
    assert turn > 12


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_cleaning_up_goes_on_where_it_fails(failing: int, device: SimulatedDevice) -> None:
    """The original error is raised; the slot whose stream fails is dropped, and all others are returned."""
    array = opened(Refusing(stored(), "a/c/3"))
    waited: list[str] = []

    def fail(call: str) -> str:
        if call == "synchronize":
            waited.append(call)
            return "fail" if len(waited) == failing + 1 else ""
        return ""

    slots.release()
    unusable = len(slots._unusable)
    device.calls.fail = fail
    with pytest.raises(gzarr.ChunkReadError, match="refused"):
        array.blocks.read(slice(1, 6), decode="cuda")
    # Two waves are enqueued, and the third one was being filled.
    assert len(waited) == 3
    assert len(slots._unusable) == unusable + 1
    idle = slots._idle["cuda:0"]
    assert len(idle) == 2
    assert slots._unusable[-1][0] not in idle
    check_idle(device)


def test_cleaning_up_after_a_write_goes_on_where_it_fails(
    device: SimulatedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore(stored())
    array = opened(store, mode="r+")
    value = on(device, DATA)
    slots.release()
    unusable = len(slots._unusable)
    calls = iter(["", "", ""])

    def refuse(*_: Any) -> None:
        device.calls.fail = lambda call: next(calls, "") or ("fail" if call == "synchronize" else "")
        raise OSError("disk full")

    monkeypatch.setattr(store, "set_parts", refuse)
    monkeypatch.setattr(store, "set", refuse)
    with pytest.raises(gzarr.ChunkWriteError, match="disk full"):
        array.write(..., value)
    # Of two waves; neither can be waited for.
    assert len(slots._unusable) == unusable + 2
    assert not slots._idle.get("cuda:0")
