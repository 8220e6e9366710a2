"""The rates of devices and of the CPU, which are measured once and kept."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import multiprocessing
import os
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support import devices

import gzarr
from gzarr.engines.cuda import calibration, router
from gzarr.engines.cuda import devices as cuda_devices

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.watched_device import WatchedDevice

    from gzarr.engines.cuda.router import Rates

ALGORITHMS = ("lz4", "snappy", "zstd", "deflate")
DEFAULT = router.default_rates()


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    # A wave's worth takes seconds on the host.
    monkeypatch.setattr(calibration, "SMALL_FRAMES", 4)
    calibration.forget()
    yield
    calibration.forget()


@pytest.fixture
def device() -> Iterator[WatchedDevice]:
    with devices.on_host(rates=False) as made:
        pool().free_all_blocks()
        yield made


def pool() -> Any:
    import cupy

    return cupy.get_default_memory_pool()


def test_every_rate_is_measured(device: WatchedDevice) -> None:
    found = calibration.measure(device, frames=4)
    assert found.launch_seconds > DEFAULT.launch_seconds
    assert found.host_to_device != DEFAULT.host_to_device
    for name in ("cpu", "gpu", "frame"):
        table, assumed = getattr(found, name), getattr(DEFAULT, name)
        assert set(table) == set(ALGORITHMS)
        assert all(0 < rate < math.inf for rate in table.values())
        assert all(table[algorithm] != assumed[algorithm] for algorithm in ALGORITHMS)
        # There is no encoder of snappy.
        assert table["snappy"] / assumed["snappy"] == pytest.approx(table["lz4"] / assumed["lz4"])
    for algorithm in ("zstd", "lz4", "deflate"):
        assert found.gpu[algorithm] >= found.frame[algorithm]
        runs = device.counts[f"batches {algorithm}"]
        # Batches of 4, and of 1, twice each at least.
        assert runs >= 4
        assert device.counts[f"frames {algorithm}"] > runs
    assert device.held == 0
    # More than the largest batch: decoded frames, and scratch of as many bytes.
    assert device.peak > 2 * calibration.LARGE_FRAME_BYTES


@pytest.mark.parametrize("fails", [0, 1, 2, 5])
def test_all_memory_goes_back_to_the_driver(device: WatchedDevice, fails: int) -> None:
    device.fail_allocation(fails)
    with pytest.raises(MemoryError) if fails else contextlib.nullcontext():
        calibration.measure(device, frames=4)
    assert device.held == 0
    assert pool().total_bytes() == 0


def test_all_memory_goes_back_from_a_device_that_fails(device: WatchedDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*args: Any, **columns: int) -> None:
        raise gzarr.DeviceError("no batch today")

    monkeypatch.setattr(device.decompressor("zstd"), "run", run)
    with pytest.raises(gzarr.DeviceError, match="today"):
        calibration.measure(device, frames=4)
    assert device.held == 0
    assert pool().total_bytes() == 0


def test_a_decoder_that_fails_is_not_measured(device: WatchedDevice) -> None:
    device.refuse = lambda algorithm, frame: algorithm == "zstd" and frame == 3
    found = calibration.measure(device, frames=4)
    assert (found.gpu["zstd"], found.frame["zstd"]) == (DEFAULT.gpu["zstd"], DEFAULT.frame["zstd"])
    assert found.gpu["lz4"] != DEFAULT.gpu["lz4"]


def test_a_small_device_is_measured_with_fewer_frames(device: WatchedDevice) -> None:
    device.capacity = 40 << 20
    found = calibration.measure(device, frames=256)
    assert found.gpu["zstd"] != DEFAULT.gpu["zstd"]
    frames, batches = device.counts["frames zstd"], device.counts["batches zstd"]
    assert batches < frames < 256 * batches // 2


def test_rates_are_kept_in_the_process_and_in_the_file(device: WatchedDevice) -> None:
    assert calibration.rates(device, may_measure=False) is router.default_rates()
    path = calibration.cache_path(device)
    assert path is not None
    assert not path.exists()
    assert not device.counts
    found = calibration.rates(device)
    before = device.counts.copy()
    assert before["frames zstd"]
    assert calibration.rates(device) is found
    calibration.forget(device)
    again = calibration.rates(device, may_measure=False)
    assert again is not found
    assert again == found
    assert device.counts == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    calibration.forget(device, file=True)
    assert not path.exists()
    calibration.forget(device, file=True)
    calibration.rates(device)
    assert device.counts["frames zstd"] > before["frames zstd"]


def _damaged(text: bytes) -> list[bytes]:
    document = json.loads(text)

    def changed(table: str, name: str, value: Any) -> bytes:
        return json.dumps({**document, table: {**document[table], name: value}}).encode()

    rates = document["rates"]
    return [
        b"",
        text[:-20],
        b"\xff\xfe not text",
        b"[]",
        b"null",
        b'{"facts": {}}',
        b"[" * 100_000,
        changed("facts", "machine", "another"),
        changed("facts", "gzarr", "0.0.1"),
        changed("rates", "host_to_device", 0),
        changed("rates", "host_to_device", -1.5),
        changed("rates", "host_to_device", "fast"),
        changed("rates", "host_to_device", 10**400),
        changed("rates", "launch_seconds", float("nan")),
        changed("rates", "gpu", 5),
        changed("rates", "cpu", {**rates["cpu"], "zstd": float("inf")}),
        changed("rates", "frame", {"zstd": 1e9}),
    ]


def test_a_file_that_does_not_fit_is_measured_again(device: WatchedDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    found = calibration.rates(device)
    path = calibration.cache_path(device)
    assert path is not None
    text = path.read_bytes()
    measured = dataclasses.replace(found, host_to_device=123.0)
    monkeypatch.setattr(calibration, "measure", lambda device, frames: measured)
    for damaged in _damaged(text):
        path.write_bytes(damaged)
        calibration.forget(device)
        assert calibration.rates(device) is measured, damaged[:200]
        assert json.loads(path.read_bytes())["rates"]["host_to_device"] == 123.0


def test_rates_are_measured_again_after_a_week(device: WatchedDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was slow because others used the device as well becomes faster, and not slower again."""
    found = calibration.rates(device)
    path = calibration.cache_path(device)
    assert path is not None
    busy = dataclasses.replace(found, host_to_device=found.host_to_device / 2, launch_seconds=found.launch_seconds * 2)
    free = dataclasses.replace(found, cpu={name: 2 * rate for name, rate in found.cpu.items()})
    now = time.time()
    for age_days, measured, expected in ((6, free, found), (8, busy, found), (8, free, free), (8, found, free)):
        monkeypatch.setattr(calibration, "measure", lambda device, frames, measured=measured: measured)
        os.utime(path, (now, now - age_days * 86400))
        calibration.forget(device)
        assert calibration.rates(device, may_measure=False) == (free if measured is found else found)
        assert calibration.rates(device) == expected
        calibration.forget(device)
        assert calibration.rates(device, may_measure=False) == expected
        assert (time.time() - path.stat().st_mtime < 3600) == (age_days == 8)


def test_a_folder_that_cannot_be_written_is_no_error(
    device: WatchedDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    found = calibration.rates(device)
    assert found.gpu["zstd"] != DEFAULT.gpu["zstd"]
    assert calibration.rates(device) is found
    calibration.forget(device, file=True)
    # A folder where the file should go.
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
    path = calibration.cache_path(device)
    assert path is not None
    path.mkdir(parents=True)
    assert calibration.rates(device).gpu["zstd"] != DEFAULT.gpu["zstd"]
    assert list(path.parent.iterdir()) == [path]


def test_a_relative_cache_folder_is_ignored(
    device: WatchedDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for value in ("relative/folder", ""):
        monkeypatch.setenv("XDG_CACHE_HOME", value)
        path = calibration.cache_path(device)
        assert path is not None
        assert path.parent == tmp_path / ".cache" / "gzarr"


def test_a_device_that_fails_leaves_the_assumed_rates(device: WatchedDevice) -> None:
    for nth in (1, 3):
        device.fail_allocation(nth)
        calibration.forget()
        assert calibration.rates(device) is router.default_rates()
        assert calibration.rates(device) is router.default_rates()
    path = calibration.cache_path(device)
    assert path is not None
    assert not path.exists()
    calibration.forget()
    assert calibration.rates(device) is not router.default_rates()


@pytest.mark.parametrize(
    "error", [ImportError("no module"), ValueError("invalid literal for int(): 'post0'")], ids=type
)
def test_without_an_encoder_rates_are_assumed(
    error: Exception, device: WatchedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside some versions of zfpy, numcodecs cannot be imported."""

    class Finder:
        def find_spec(self, name: str, *_: Any) -> None:
            if name.partition(".")[0] == "numcodecs":
                raise error

    data = np.arange(100, dtype="f4")
    store: dict[str, bytes] = {}
    gzarr.create_array(store, data=data, chunks=10, codecs="zstd", device="cpu")
    for name in [name for name in sys.modules if name.partition(".")[0] == "numcodecs"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Finder(), *sys.meta_path])
    assert calibration.rates(device) is DEFAULT
    np.testing.assert_array_equal(gzarr.open_array(store, device="cuda")[...].get(), data)
    path = calibration.cache_path(device)
    assert path is not None
    assert not path.exists()


@pytest.mark.skipif(sys.platform == "win32", reason="the signal is of POSIX")
@pytest.mark.parametrize("where", ["import", "measure"])
def test_what_the_handler_of_a_signal_raises_is_no_failure(
    where: str, device: WatchedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    def handler(*_: object) -> None:
        raise TimeoutError("5 s are over")

    class Finder:
        def find_spec(self, name: str, *_: Any) -> None:
            if name.partition(".")[0] == "numcodecs":
                signal.raise_signal(signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with monkeypatch.context() as patch:
            if where == "import":
                for name in [name for name in sys.modules if name.partition(".")[0] == "numcodecs"]:
                    patch.delitem(sys.modules, name)
                patch.setattr(sys, "meta_path", [Finder(), *sys.meta_path])
            else:
                patch.setattr(calibration, "_cpu_rates", lambda *_: signal.raise_signal(signal.SIGUSR1))
            with pytest.raises(TimeoutError, match="5 s are over"):
                calibration.rates(device)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert calibration.rates(device) is not DEFAULT


def test_devices_have_files_of_their_own(device: WatchedDevice) -> None:
    second = cuda_devices.get_device("cuda:1")
    assert calibration.cache_path(device) != calibration.cache_path(second)
    found = calibration.rates(device)
    assert calibration.rates(second, may_measure=False) is router.default_rates()
    assert calibration.rates(device) is found


def test_threads_measure_once(device: WatchedDevice) -> None:
    n = 8
    together = threading.Barrier(n)
    found: list[Rates] = []

    def first_use() -> None:
        together.wait()
        found.append(calibration.rates(device))

    threads = [threading.Thread(target=first_use) for _ in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == n
    assert all(one is found[0] for one in found)
    # One run to warm up and three at most, of 4 frames and of 1: no second time.
    assert device.counts["frames zstd"] <= (1 + 3) * (4 + 1)


def test_a_child_does_not_wait_for_what_its_parent_measures(device: WatchedDevice) -> None:
    with calibration._lock:
        # It measures nothing itself, but looks for what is known under the lock.
        child = multiprocessing.get_context("fork").Process(
            target=calibration.rates, args=(device,), kwargs={"may_measure": False}
        )
        child.start()
        child.join(30)
        alive = child.is_alive()
        if alive:
            child.kill()
            child.join()
    assert not alive
    assert child.exitcode == 0
