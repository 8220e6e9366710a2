"""Steps that raise, hang, end their process or lose the device take nothing else with them."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support import gpu_benchmarks

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import SimpleNamespace

pytestmark = pytest.mark.slow

# A script of three items with three steps each. Bad ones are named on the command line, as "item/step=what happens".
SCRIPT = """
import os, signal, sys, time
sys.path.insert(0, {benchmarks!r})
from gpu.steps import NoDeviceError, _assigned
bad = dict(word.split("=") for word in sys.argv[1:])
lost = []

def synchronize():
    if lost:
        raise RuntimeError("an illegal address")

def measure(steps, items, seconds):
    if "none" in bad:
        raise NoDeviceError("there is no device")
    steps.synchronize = synchronize
    steps.about(device="a device")
    for item in tuple(items):
        figures = dict(steps.failed(item))
        for step in ("one", "two", "three"):
            if step in figures:
                continue
            steps.begin(item, step, 1.5)
            what = bad.get(item + "/" + step)
            try:
                if what == "hangs":
                    time.sleep(600)
                elif what == "dies":
                    os.kill(os.getpid(), signal.SIGSEGV)
                elif what == "loses":
                    lost.append(True)
                if what:
                    raise ValueError("it\\nfailed")
                figures[step] = os.getpid()
            except ValueError as error:
                figures[step] = steps.error(error)
            steps.found(item, figures)
        steps.end(item)

with _assigned() as task:
    measure(*task)
"""
ITEMS = ("a", "b", "c")


@pytest.fixture(scope="module")
def b() -> Iterator[SimpleNamespace]:
    with gpu_benchmarks.modules() as found:
        yield found


def _watch(b: SimpleNamespace, folder: Path, *bad: str, seconds: float = 60.0) -> tuple[Any, list[dict[str, Any]]]:
    """Return what was found, and everything that was kept on the way."""
    script = folder / "script.py"
    script.write_text(SCRIPT.format(benchmarks=str(Path(b.gpu.__file__).parents[1])))
    kept: list[dict[str, Any]] = []
    found = b.gpu.steps.watched(
        [sys.executable, str(script), *bad],
        ITEMS,
        seconds,
        lambda found: kept.append(json.loads(json.dumps(found.figures))),
    )
    return found, kept


def test_without_failures_there_is_one_process(b: SimpleNamespace, tmp_path: Path) -> None:
    found, kept = _watch(b, tmp_path)
    assert list(found.figures) == list(ITEMS)
    assert len({pid for one in found.figures.values() for pid in one.values()}) == 1
    assert (found.failed, found.left_out, found.refused, found.about) == ({}, [], "", {"device": "a device"})
    # Kept after every step.
    assert [sum(map(len, one.values())) for one in kept][:9] == list(range(1, 10))


@pytest.mark.parametrize(
    ("what", "why", "processes"),
    [
        ("raises", None, 1),
        ("hangs", "it hung for 2 s", 2),
        ("dies", "its process died of signal 11", 2),
        ("loses", "ValueError: it; the device is lost: RuntimeError: an illegal address", 2),
    ],
)
def test_the_others_are_measured(
    what: str, why: str | None, processes: int, b: SimpleNamespace, tmp_path: Path
) -> None:
    found, kept = _watch(b, tmp_path, f"b/two={what}")
    assert {item: list(one) for item, one in found.figures.items() if item != "b"} == {
        item: ["one", "two", "three"] for item in "ac"
    }
    assert set(found.figures["b"]) == {"one", "two", "three"}
    assert found.figures["b"]["two"] == (why or "ValueError: it")
    assert found.failed == ({"b": {"two": why}} if why else {})
    pids = {pid for one in found.figures.values() for pid in one.values() if isinstance(pid, int)}
    assert len(pids) == processes
    # What was measured before is not measured again, and is never gone.
    assert all(one["a"] == found.figures["a"] for one in kept if len(one.get("a", ())) == 3)
    assert found.left_out == []


def test_what_fails_in_every_item_is_soon_left_out(b: SimpleNamespace, tmp_path: Path) -> None:
    found, _ = _watch(b, tmp_path, *(f"{item}/one=dies" for item in ITEMS))
    assert {item: list(steps) for item, steps in found.failed.items()} == {"a": ["one"], "b": ["one"]}
    assert found.figures["c"]["one"] == "left out: it has ended other processes"
    assert {"two", "three"} < found.figures["c"].keys()


def test_time_ends_what_hangs_and_the_rest_is_listed(b: SimpleNamespace, tmp_path: Path) -> None:
    start = time.monotonic()
    found, _ = _watch(b, tmp_path, "b/one=hangs", seconds=0.0)
    assert time.monotonic() - start < 20
    assert found.left_out
    assert not found.figures.keys() & set(found.left_out)


def test_without_a_device_nothing_is_measured(b: SimpleNamespace, tmp_path: Path) -> None:
    found, _ = _watch(b, tmp_path, "none=x")
    assert found.refused == "there is no device"
    assert found.left_out == list(ITEMS)
