"""Progress bars: other streams than terminals, work that is interrupted or within other work, numbers beyond floats."""

from __future__ import annotations

import gc
import io
import sys
import threading
import traceback
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gzarr
from gzarr import progress

if TYPE_CHECKING:
    from collections.abc import Callable


class Log:
    """What programs that write to a log put in the place of stderr."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def write(self, text: str) -> int:
        self.texts.append(text)
        return len(text)

    def flush(self) -> None:
        pass


def closed() -> io.StringIO:
    stream = io.StringIO()
    stream.close()
    return stream


@pytest.mark.parametrize("make", [Log, closed, lambda: None], ids=["log", "closed", "none"])
def test_nothing_is_shown_where_stderr_is_no_terminal(make: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.arange(40).reshape(10, 4)
    array = gzarr.create_array({}, data=values, chunks=(2, 4), device="cpu")
    monkeypatch.setattr(progress, "QUIET_SECONDS", -1)
    stream = make()
    monkeypatch.setattr(sys, "stderr", stream)
    gzarr.copy(array, copied := {}, device="cpu")
    with gzarr.show_progress():
        found = array[...]
    assert not getattr(stream, "texts", [])
    np.testing.assert_array_equal(found, values)
    np.testing.assert_array_equal(gzarr.open_array(copied, device="cpu")[...], values)
    # The line of an epoch is written to streams that are no terminals, too.
    batches = [list(batch.values()) for batch in gzarr.Loader(array, batch_size=5, shuffle=False).progress()]
    np.testing.assert_array_equal(np.concatenate(batches, axis=1)[0], values)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The bars that were started, on something like a terminal."""
    found: list[str] = []
    monkeypatch.setattr(progress, "has_place", lambda: True)
    monkeypatch.setattr(progress, "QUIET_SECONDS", -1)
    monkeypatch.setattr(progress, "start_bar", lambda _stack, what, _total: found.append(what) or (lambda *_: None))
    return found


def test_a_bar_is_shown_after_work_that_was_interrupted_anywhere(started: list[str]) -> None:
    """Interrupts come where functions of Python begin, and after calls of those of C."""

    def work(at: int) -> bool:
        """Interrupt work at the ``at``-th of these places; return whether there are as many."""
        left = at

        def profile(frame: Any, event: str, _: object) -> None:
            nonlocal left
            at_work = any(one.f_code is progress.watch.__code__ for one, _ in traceback.walk_stack(frame))
            if at_work and event in ("call", "c_return"):
                left -= 1
                if left < 0:
                    sys.setprofile(None)
                    raise KeyboardInterrupt

        # Not in what is called for garbage: there, interrupts are lost.
        gc.disable()
        sys.setprofile(profile)
        try:
            list(progress.watch(range(2), "interrupted"))
        except KeyboardInterrupt:
            return True
        finally:
            sys.setprofile(None)
            gc.enable()
        return False

    at = 0
    while work(at):
        started.clear()
        list(progress.watch(range(2), "next"))
        assert started == ["next"], at
        at += 1
    assert at > 15


def test_work_within_work_in_the_same_and_in_another_thread(started: list[str]) -> None:
    outer = progress.watch(range(3), "outer")
    # The first step is done when the second one is asked for.
    next(outer), next(outer)
    list(progress.watch(range(3), "inner"))
    thread = threading.Thread(target=lambda: list(progress.watch(range(3), "beside")))
    thread.start()
    thread.join()
    assert started == ["outer"]
    # Another thread may end it, as the one that collects garbage does.
    thread = threading.Thread(target=outer.close)
    thread.start()
    thread.join()
    list(progress.watch(range(3), "next"))
    assert started == ["outer", "next"]


@pytest.mark.parametrize(
    ("done", "total", "nbytes", "note"),
    [
        (1, 4, 2**80, "274877906944 TiB of 1099511627776 TiB, 274877906944 TiB/s, 0:03 left"),
        (1, 4, 2**1030, "0:03 left"),
        (1, 10**400, 2**1030, ""),
        (10**399, 10**400, None, ""),
    ],
    ids=["just shown", "bytes", "steps and bytes", "steps"],
)
def test_notes_of_numbers_beyond_floats(done: int, total: int, nbytes: int | None, note: str) -> None:
    assert progress._note(done, total, nbytes, 1.0) == note
