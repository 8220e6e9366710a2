"""A program's handler of a signal raises, as timeouts do: the program sees its exception, not one of gzarr's."""

from __future__ import annotations

import functools
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gzarr
from gzarr.reasons import reason_of
from gzarr.stores import MemoryStore

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="timers of signals are of POSIX")


class TimeIsUp(Exception):
    """What the program raises; no error of gzarr."""


class Handler:
    """Handlers of every kind that are written in Python."""

    def __call__(self, *_: object) -> None:
        raise TimeIsUp("5 s are over")

    def method(self, *_: object) -> None:
        raise TimeIsUp("5 s are over")


def function(*_: object) -> None:
    raise TimeIsUp("5 s are over")


def counted(_count: int, *_: object) -> None:
    raise TimeIsUp("5 s are over")


HANDLERS: dict[str, Any] = {
    "function": function,
    "method": Handler().method,
    "object": Handler(),
    "partial": functools.partial(counted, 1),
}


class Signals(MemoryStore):
    """A store that the signal hits within a call."""

    def get(self, key: str) -> bytes | None:
        if "/" in key:
            signal.raise_signal(signal.SIGUSR1)
        return super().get(key)


class SignalsWhenTaken:
    """A value that the signal hits while it is converted."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        signal.raise_signal(signal.SIGUSR1)
        return np.zeros(8, dtype)


@pytest.fixture(params=HANDLERS)
def handler(request: pytest.FixtureRequest) -> Any:
    """Install a handler."""
    before = signal.signal(signal.SIGUSR1, HANDLERS[request.param])
    yield request.param
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.usefixtures("handler")
def test_it_leaves_a_conversion() -> None:
    a = gzarr.create_array({}, shape=8, chunks=4, dtype="i4")
    a[...] = 3
    with pytest.raises(TimeIsUp, match="5 s are over"):
        a[...] = SignalsWhenTaken()
    assert (a[...] == 3).all()


@pytest.mark.usefixtures("handler")
def test_it_leaves_a_codec_and_a_store(monkeypatch: pytest.MonkeyPatch) -> None:
    a = gzarr.create_array(Signals(), shape=8, chunks=8, dtype="i4", codecs=["gzip"])
    a[...] = 3
    with pytest.raises(TimeIsUp):
        a[1:3] = 4

    def hit(*_: object, **__: object) -> Any:
        signal.raise_signal(signal.SIGUSR1)

    # The compiled loop leaves it to the threads of the host.
    b = gzarr.create_array({}, shape=8, chunks=8, dtype="i4", codecs=[{"id": "bz2"}], zarr_format=2)
    b[...] = 3
    monkeypatch.setattr(type(b.metadata.codecs[-1]), "decode", hit)
    with pytest.raises(TimeIsUp):
        b[1:3] = 4
    monkeypatch.undo()
    assert (b[...] == 3).all()


class Mute(Exception):
    """An error that cannot say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


def test_errors_of_others_stay_reasons() -> None:
    def raised(error: Exception) -> Exception:
        try:
            raise error
        except Exception as caught:
            return caught

    signal.signal(signal.SIGUSR1, before := signal.signal(signal.SIGUSR1, function))
    assert before is not None
    assert reason_of(raised(ValueError("no such block"))) == "no such block"
    assert reason_of(raised(TimeIsUp())) == "TimeIsUp"
    assert reason_of(raised(Mute())) == "Mute"
    # Also of the class of the constants of the signal module.
    with pytest.raises(ValueError, match="is not a valid") as caught:
        signal.Handlers(7)
    assert "not a valid" in reason_of(caught.value)


class OfTheSystem(TimeoutError):
    """As most programs raise it: an OSError."""


@pytest.mark.parametrize("kind", [TimeIsUp, OfTheSystem])
@pytest.mark.parametrize("where", ["memory", "files", "zip"])
def test_a_storm_of_timeouts_is_only_timeouts(where: str, kind: type[Exception], tmp_path: Path) -> None:
    def handler(*_: object) -> None:
        raise kind("5 s are over")

    store: Any = {"memory": {}, "files": tmp_path / "a", "zip": tmp_path / "a.zip"}[where]
    if where == "zip":
        store = gzarr.ZipStore(store, mode="w")
    a = gzarr.create_array(store, shape=(32, 64), chunks=(4, 16), dtype="i4")
    a[...] = 0
    before = signal.signal(signal.SIGALRM, handler)
    rng = np.random.default_rng(0)
    hit = 0
    try:
        for _ in range(400):
            try:
                try:
                    signal.setitimer(signal.ITIMER_REAL, rng.random() * 2e-3 + 1e-6)
                    a[1:31, 3:60] = 7
                    gzarr.open_array(store, device="cpu")[...]
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            except kind:
                hit += 1
    finally:
        signal.signal(signal.SIGALRM, before)
    assert hit > 20
    a[...] = 5
    assert (a[...] == 5).all()
    if where == "zip":
        store.close()


@pytest.mark.parametrize("call", ["open", "stat"])
def test_it_leaves_a_look_at_a_file(call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def handler(*_: object) -> None:
        raise OfTheSystem("5 s are over")

    store = gzarr.LocalStore(tmp_path)
    store.set("a/b", b"1")
    real = getattr(os, call)

    def hit(*given: Any, **named: Any) -> Any:
        signal.raise_signal(signal.SIGUSR1)
        return real(*given, **named)

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(os, call, hit)
            with pytest.raises(OfTheSystem, match="5 s are over"):
                store.get("a/b") if call == "open" else store.versions(["a/b"])
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert store.get("a/b") == b"1"
