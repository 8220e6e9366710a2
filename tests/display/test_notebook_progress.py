"""Progress in notebooks, as a kernel publishes it; on terminals; and nowhere else."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support import notebooks
from support.terminals import on_terminal

import gzarr
from gzarr import progress

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BEGIN = """
import numpy as np
import gzarr
from gzarr import progress
progress.QUIET_SECONDS = -1
a = gzarr.create_array({}, data=np.arange(40_000).reshape(200, 200), chunks=(10, 10))
"""

INTERRUPT = """
def stop(x, block_info):
    if block_info.index == (3, 0):
        raise KeyboardInterrupt
    return x
gzarr.map_blocks(stop, a, block=(10, 200), progress=True, overlap=False)
"""

FAIL = """
def fail(x, block_info):
    if block_info.index == (5, 0):
        raise ValueError("no more")
    return x
gzarr.map_blocks(fail, a, block=(10, 200), progress=True, overlap=False)
"""

FAIL_TO_REDUCE = """
def wrong(one, other):
    raise ValueError("no sum")
gzarr.map_blocks(np.sum, a, block=(10, 200), reduce=wrong, progress=True, overlap=False)
"""

#: Code of a cell, and what stands beside the bar at the end; None for no bar.
CELLS = {
    BEGIN: None,
    FAIL_TO_REDUCE: "map_blocks 1/20 stopped",
    "gzarr.copy(a, {}, codecs=[], budget_bytes=100_000)": "copying 20/20",
    "gzarr.copy(a, {}, codecs=[], budget_bytes=100_000, progress=False)": None,
    "gzarr.ome.create(store := {}, a, axes='yx', levels=2)": "writing the image 1/1",
    "gzarr.ome.pyramid(store, overwrite=True)": "downsampling 1/1",
    "gzarr.map_blocks(np.sqrt, a, dtype='f8', block=(10, 200), progress=True)": "map_blocks 20/20",
    "gzarr.map_blocks(np.sqrt, a, dtype='f8', block=(10, 200))": None,
    "list(gzarr.verify(a.store, progress=True))": "verifying batches of chunks 1",
    "with gzarr.show_progress():\n    x = a[...]\nassert x[-1, -1] == 39_999": "reading / 400/400",
    "x = a[...]": None,
    "for batch in gzarr.Loader(a, batch_size=10, shuffle=False).progress(): pass": "epoch 0 20/20",
    FAIL: "map_blocks 5/20 stopped",
    INTERRUPT: "map_blocks 3/20 stopped",
}


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """Outputs of each cell, run one after the other in one kernel."""
    # Output of a replaced display is its last state.
    found = notebooks.run(list(CELLS), tmp_path_factory.mktemp("kernel"), allow_errors=True)
    return dict(zip(CELLS, found, strict=True))


@pytest.mark.parametrize("code", CELLS)
def test_bars_in_a_notebook(code: str, outputs: dict[str, list[dict[str, Any]]]) -> None:
    shown = [output["data"] for output in outputs[code] if output["output_type"] == "display_data"]
    texts = [output["text"] for output in outputs[code] if output["output_type"] == "stream"]
    # Said once, where there are no compiled kernels yet.
    assert not [text for text in texts if not text.startswith("gzarr: compiling its kernels")]
    failures = [output["ename"] for output in outputs[code] if output["output_type"] == "error"]
    expected_failures = {FAIL: ["ValueError"], FAIL_TO_REDUCE: ["ValueError"], INTERRUPT: ["KeyboardInterrupt"]}
    assert failures == expected_failures.get(code, [])
    expected = CELLS[code]
    if expected is None:
        assert shown == []
        return
    (bar,) = shown
    what, _, state = expected.rpartition(" ") if expected.endswith("stopped") else (expected, "", "")
    assert bar["text/plain"].startswith(what + " 0:0")
    assert bar["text/plain"].endswith("stopped") == (state == "stopped")
    assert ("width:100.0%" in bar["text/html"]) == (state != "stopped")
    assert "<script" not in bar["text/html"]


def test_a_bar_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a kernel is given: first a display, then changes of it, of which there are few."""

    class Handle:
        def __init__(self) -> None:
            self.states: list[str] = []

        def update(self, data: dict[str, str], *, raw: bool) -> None:
            assert raw
            self.states.append(data["text/plain"])

    handle = Handle()
    module = pytest.importorskip("IPython.display")
    monkeypatch.setattr(module, "display", lambda data, **_: handle.update(data, raw=True) or handle)
    monkeypatch.setattr(progress, "in_notebook", lambda: True)
    monkeypatch.setattr(progress, "QUIET_SECONDS", -1)
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])

    def steps() -> Iterator[int]:
        for i in range(100):
            now[0] += 0.025
            yield i

    assert list(progress.watch(steps(), "<working>", 100)) == list(range(100))
    assert handle.states[0] == "<working> 0/100 0:00"
    assert handle.states[10].endswith("left")
    assert handle.states[-1] == "<working> 100/100 0:02"
    assert 20 <= len(handle.states) <= 27


def test_work_within_work_shows_one_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []
    monkeypatch.setattr(progress, "has_place", lambda: True)
    monkeypatch.setattr(progress, "QUIET_SECONDS", -1)
    monkeypatch.setattr(progress, "start_bar", lambda _stack, what, _total: started.append(what) or (lambda *_: None))
    for _ in progress.watch(range(3), "outer"):
        list(progress.watch(range(3), "inner"))
    # The first step is done before the outer one starts its bar.
    assert started == ["inner", "outer"]
    list(progress.watch(range(3), "next"))
    assert started[2:] == ["next"]


def test_the_end_of_work_with_fewer_steps_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    monkeypatch.setattr(progress, "has_place", lambda: True)
    monkeypatch.setattr(progress, "QUIET_SECONDS", -1)
    monkeypatch.setattr(progress, "start_bar", lambda *_: lambda count, _note="": seen.append(count))
    list(progress.watch([2, 3], "copying", lambda: 9, count=int))
    assert seen == [2, 5, 9]


def test_bytes_a_second_and_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    now, notes = [0.0], []
    monkeypatch.setattr(progress, "has_place", lambda: True)
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(progress, "start_bar", lambda *_: lambda _, note="": notes.append(note))

    def steps() -> Iterator[int]:
        for _ in range(4):
            now[0] += 30
            yield 25

    list(progress.watch(steps(), "copying", 100, count=int, nbytes=400 << 20))
    assert notes == [
        "100 MiB of 400 MiB, 3.3 MiB/s, 1:30 left",
        "200 MiB of 400 MiB, 3.3 MiB/s, 1:00 left",
        "300 MiB of 400 MiB, 3.3 MiB/s, 0:30 left",
        "400 MiB of 400 MiB, 3.3 MiB/s",
        "400 MiB of 400 MiB, 3.3 MiB/s",
    ]


CODE = BEGIN + "with gzarr.show_progress(): a[...]\ngzarr.copy(a, {}, codecs=[], budget_bytes=100_000)\n"


def test_bars_on_a_terminal() -> None:
    out, seen = on_terminal([sys.executable, "-c", CODE])
    assert out == b""
    assert b"reading /" in seen
    assert b"copying" in seen


def test_nothing_elsewhere() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, check=True)
    assert (done.stdout, done.stderr) == (b"", b"")


@pytest.mark.parametrize("kind", ["chunks", "shards", "rectilinear", "points"])
def test_reads_that_are_shown_give_the_same(kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    values = np.random.default_rng(1).random((97, 101))
    layout: dict[str, Any] = {"chunks": (3, 5)}
    if kind == "shards":
        layout["shards"] = (30, 50)
    elif kind == "rectilinear":
        layout["chunks"] = [[1, 2] * 33, [51, 50]]
    a = gzarr.create_array(tmp_path, data=values, **layout)
    counts: list[int] = []
    monkeypatch.setattr(progress, "has_place", lambda: True)
    monkeypatch.setattr(progress, "QUIET_SECONDS", -1)
    monkeypatch.setattr(
        progress, "start_bar", lambda _stack, _what, total: counts.append(total) or (lambda n, _: counts.append(n))
    )
    with gzarr.show_progress():
        if kind == "points":
            where = np.arange(97), np.arange(97)[::-1]
            np.testing.assert_array_equal(a.vindex[where], values[where])
        else:
            np.testing.assert_array_equal(a[...], values)
            np.testing.assert_array_equal(a[5:90:2, ::-1], values[5:90:2, ::-1])
            windows = [np.s_[i : i + 9, :] for i in (0, 50, 88)]
            np.testing.assert_array_equal(a.read_many(windows), [values[window] for window in windows])
    assert len(counts) > 2
    if kind == "chunks":
        # The total of the first read, then the steps done: each is of enough chunks for all threads.
        assert counts[:3] == [33 * 21, 63, 126]
    counts.clear()
    a[...]
    assert counts == []
