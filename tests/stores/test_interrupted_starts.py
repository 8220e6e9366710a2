"""An interrupt (Ctrl-C) while an I/O thread is started."""

from __future__ import annotations

from queue import SimpleQueue
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from gzarr.stores import io_threads

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize(
    "ask",
    [io_threads.call, lambda work: io_threads.call_all([work, work]), lambda work: io_threads.each(work, 2, 2)],
    ids=["one", "several", "items"],
)
def test_no_thread_is_lost_and_nothing_is_done_later(
    ask: Callable[[Callable[..., object]], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GZARR_IO_THREADS", "1")
    for name in ("_started", "_idle", "_open"):
        monkeypatch.setattr(io_threads, name, [])
    monkeypatch.setattr(io_threads, "_waiting", SimpleQueue())

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    done: list[object] = []
    with monkeypatch.context() as patched:
        patched.setattr(io_threads, "_thread", SimpleNamespace(start_new_thread=interrupted))
        with pytest.raises(KeyboardInterrupt):
            ask(lambda *i: done.append(i))
    assert io_threads._started == []
    assert io_threads.call(lambda: 2) == 2
    assert done == []
