"""Nodes that a thread makes while another thread erases, overwrites or moves a group above them: both take turns."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.forks import in_child

import gzarr
from gzarr.errors import NodeNotFoundError
from gzarr.stores import locks
from gzarr.stores.locks import hold_node
from gzarr.stores.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

MOMENT_S = 0.2
SECONDS = 30.0
DATA = np.arange(1, 9)


class HookedDict(dict[str, Any]):
    """A mapping that calls a function after it gets the first chunk of an array."""

    hook: Callable[[], object] | None = None

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value)
        if "/c/" in key and self.hook is not None:
            hook, self.hook = self.hook, None
            hook()


class Rival(threading.Thread):
    """A thread that does something, and keeps its error."""

    def __init__(self, work: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self.work, self.failure = work, None
        self.waited = False

    failure: Exception | None

    def run(self) -> None:
        try:
            self.work()
        except Exception as error:
            self.failure = error

    def begin(self) -> None:
        """Start it, and wait a moment for its end."""
        self.start()
        self.join(MOMENT_S)
        self.waited = self.is_alive()

    def finish(self) -> Exception | None:
        self.join(SECONDS)
        assert not self.is_alive(), "it waits for ever"
        return self.failure


@contextlib.contextmanager
def held(store: Any, *paths: str, below: bool = True) -> Iterator[None]:
    """Have another thread hold nodes."""
    holds, done = threading.Event(), threading.Event()

    def work() -> None:
        with hold_node(store, *paths, below=below):
            holds.set()
            done.wait(SECONDS)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        assert holds.wait(SECONDS)
        yield
    finally:
        done.set()
        thread.join(SECONDS)


def holding(store: Any, *paths: str, below: bool = True) -> threading.Event:
    """Return what is set once another thread has nodes, which it gives up at once."""
    holds = threading.Event()

    def work() -> None:
        with hold_node(store, *paths, below=below):
            holds.set()

    threading.Thread(target=work, daemon=True).start()
    return holds


def has_to_wait(store: Any, *paths: str, below: bool = True) -> bool:
    """Return whether another thread waits for nodes; it gets them once it can."""
    return not holding(store, *paths, below=below).wait(MOMENT_S)


def is_free(store: Any, *paths: str, below: bool = True) -> bool:
    """Return whether another thread gets nodes, however slow the machine is."""
    return holding(store, *paths, below=below).wait(SECONDS)


def root_of(store: Any) -> gzarr.Group:
    return gzarr.open_group(store, mode="r+", device="cpu")


def new_store() -> HookedDict:
    store = HookedDict()
    gzarr.create_group(store, device="cpu").create_group("a")
    return store


# What is done to the group "a", and where its array "b" is afterwards.
WORKS: dict[str, tuple[Callable[[Any], object], str | None]] = {
    "overwritten": (lambda s: root_of(s).create_group("a", overwrite=True), None),
    "overwritten by an array": (lambda s: root_of(s).create_array("a", data=[1], overwrite=True), None),
    "all overwritten": (lambda s: gzarr.create_group(s, overwrite=True, device="cpu"), None),
    "erased": (lambda s: root_of(s).__delitem__("a"), None),
    "moved": (lambda s: root_of(s).move("a", "q"), "q/b"),
}


@pytest.mark.parametrize("how", WORKS)
@pytest.mark.parametrize("made", ["created", "copied"])
def test_an_array_is_made_before_the_group_above_goes(how: str, made: str) -> None:
    work, after = WORKS[how]
    store = new_store()
    rival = Rival(lambda: work(store))
    store.hook = rival.begin
    if made == "created":
        root_of(store).create_array("a/b", data=DATA, chunks=(2,))
    else:
        gzarr.copy(gzarr.array(DATA, {}, chunks=(2,), device="cpu"), store, dest_path="a/b", progress=False)
    assert rival.waited
    assert rival.finish() is None
    assert not any(key.startswith("a/b/") for key in store)
    if after is not None:
        assert gzarr.load(store, path=after).tolist() == DATA.tolist()


def test_what_is_appended_moves_with_the_group() -> None:
    store = new_store()
    array = root_of(store).create_array("a/b", data=DATA, chunks=(2,))
    rival = Rival(lambda: root_of(store).move("a", "q"))
    store.hook = rival.begin
    array.append(DATA)
    assert rival.finish() is None
    assert gzarr.load(store, path="q/b").tolist() == [*DATA.tolist(), *DATA.tolist()]


def test_a_node_is_made_after_the_group_above_went() -> None:
    store = new_store()
    root_of(store).create_array("a/b", data=DATA, chunks=(2,))
    rival = Rival(lambda: root_of(store).create_array("a/c", data=DATA))
    # In the middle of the move: a chunk is copied.
    store.hook = rival.begin
    root_of(store).move("a", "q")
    assert rival.waited
    assert rival.finish() is None
    assert sorted(root_of(store)["a"]) == ["c"]
    assert sorted(root_of(store)["q"]) == ["b"]
    with pytest.raises(NodeNotFoundError):
        root_of(store)["a/b"]


def test_members_do_not_wait_for_each_other() -> None:
    store, other = new_store(), new_store()
    root_of(store).create_array("a/d", data=DATA)
    ended = threading.Event()

    def work() -> None:
        root_of(store).create_array("a/c", data=DATA)
        root_of(store).create_array("a/d", data=[1], overwrite=True)
        root_of(store).create_group("a/e/f")
        del root_of(store)["a/e"]
        root_of(store).require_group("a")
        # Another store, whose nodes have the same names.
        gzarr.create_group(other, overwrite=True)
        ended.set()

    rival = Rival(work)

    def hook() -> None:
        rival.start()
        ended.wait(SECONDS)

    store.hook = hook
    array = root_of(store).create_array("a/b", data=DATA, chunks=(2,))
    assert ended.is_set()
    assert rival.finish() is None
    assert array[...].tolist() == DATA.tolist()


def test_stores_of_one_directory(tmp_path: Path) -> None:
    store = gzarr.open_store(tmp_path / "x.zarr", read_only=False)
    gzarr.create_group(store, device="cpu").create_array("a/b", data=DATA)
    inner = gzarr.open_store(tmp_path / "x.zarr" / "a", read_only=False)
    (tmp_path / "link").symlink_to(tmp_path / "x.zarr")
    link = gzarr.open_store(tmp_path / "link", read_only=False)
    with held(inner, "b", below=False):
        assert has_to_wait(store, "a")
        assert has_to_wait(link, "")
        assert is_free(store, "a", below=False)
        assert is_free(store, "ab", "a/bc", "b")
    with held(store, "a"):
        assert has_to_wait(inner, "b/c", below=False)
        assert is_free(MemoryStore(), "a", "a/b")


def test_stores_of_one_mapping() -> None:
    values: dict[str, Any] = {}
    with held(MemoryStore(values), "a/b", below=False):
        assert has_to_wait(MemoryStore(values), "")
        assert has_to_wait(MemoryStore(values), "x", "a")
        assert is_free(MemoryStore(), "a")


def test_dictionaries_are_stores_of_their_own() -> None:
    """A thread that fills one waits for threads that make others, as stores of other programs do when they are read."""
    values: dict[str, Any] = {}
    with held(MemoryStore(values), ""):
        assert is_free(MemoryStore(), "")
        assert has_to_wait(MemoryStore(values), "")
        assert has_to_wait(MemoryStore(HookedDict()), "")


def test_a_thread_holds_what_it_holds_again() -> None:
    store = MemoryStore()
    with hold_node(store, "a/b"), hold_node(store, "a"), hold_node(store, "a/b/c", below=False):
        assert has_to_wait(store, "a/x")
    assert is_free(store, "")


class Interrupted(BaseException):
    """What the handler of a signal raises."""


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="needs signals for a thread")
def test_whoever_is_interrupted_while_it_waits_holds_nothing() -> None:
    store = MemoryStore()
    waiter = threading.get_ident()

    def interrupt() -> None:
        end = time.monotonic() + SECONDS
        while not any(hold._waiting for hold in locks._node_holders.copy()) and time.monotonic() < end:
            time.sleep(0.001)
        signal.pthread_kill(waiter, signal.SIGUSR1)

    def handler(*_: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGUSR1, handler)
    thread = threading.Thread(target=interrupt, daemon=True)
    try:
        with held(store, "a"):
            thread.start()
            with pytest.raises(Interrupted), hold_node(store, "a/b", "c"):
                pytest.fail("held twice")
            thread.join(SECONDS)
            assert is_free(store, "c")
        assert is_free(store, "a")
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_holds_nothing() -> None:
    store = MemoryStore()
    with held(store, "a"):
        assert in_child(lambda: hold_node(store, "a/b").__enter__()) == 0
        assert has_to_wait(store, "a/b")
