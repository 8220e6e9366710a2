"""Measuring in a process that may die: it says what it does, and is watched by one that never uses a GPU.

A step that fails must not take the others with it. If one raises, the process notes that and goes on. If one hangs,
ends the process or loses the device, the watching process records that, and starts another process, which leaves out
this step and goes on with the same item. What was found so far is kept all the time.

An item is an array, a workload or a question; its steps are readers, writers, or ways. Linux only: events go through an
inherited file descriptor.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import queue
import shlex
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import programs
import report

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    #: Failed steps with their errors, by item.
    Failed = dict[str, dict[str, str]]

#: What a process is to do, for the process itself.
_ASSIGNED: Final = "GZARR_STEPS"
#: When everything has to have ended.
_ENDS_AT: Final = "GZARR_ENDS_AT"
#: Seconds after which a process that has begun no step is ended: it imports packages, and may compile kernels.
START_S: Final = 180.0
#: Default of the seconds that a step may take.
LIMIT_S: Final = 45.0
#: Seconds beyond its time after which a process is ended.
GRACE_S: Final = 2.0
#: Steps that end their process in this many items are left out of the others, too.
MOST_DEATHS: Final = 2
#: Processes, at most.
MOST_PROCESSES: Final = 12
#: Why a process is ended that has no time left.
NO_TIME: Final = "no time was left"
#: Exit code of a process whose device is lost.
_LOST: Final = 77


def sentence(error: BaseException) -> str:
    """Return the type and the first line of an error."""
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0][:200]}"


class NoDeviceError(Exception):
    """There is no usable device."""


class Steps:
    """Of the process that measures: what it does and has found.

    Parameters
    ----------
    tell
        Function that takes an event.
    failed
        Steps that are left out, since they ended a process.
    synchronize
        Function that raises if the device is lost.
    """

    def __init__(
        self,
        tell: Callable[[dict[str, Any]], None] = lambda event: None,
        failed: Failed | None = None,
        synchronize: Callable[[], None] = lambda: None,
    ) -> None:
        self._tell = tell
        self._failed = failed or {}
        self.synchronize = synchronize

    def failed(self, item: str) -> dict[str, str]:
        """Return the steps of an item that are left out, with the errors that they ended a process with."""
        return dict(self._failed.get(item, {}))

    def begin(self, item: str, step: str = "", limit_s: float = LIMIT_S) -> None:
        """Begin a step, which ends where the next begins; the process is ended if it takes longer."""
        self._tell({"begin": [item, step], "limit_s": limit_s})

    def found(self, item: str, figures: Any) -> None:
        """Keep the figures of an item, instead of earlier ones."""
        self._tell({"item": item, "found": figures})

    def end(self, item: str) -> None:
        """Say that an item is complete."""
        self._tell({"end": item})

    def failure(self, item: str, error: BaseException) -> None:
        """Say that an item failed as a whole; what was found of it is kept."""
        self._tell({"failure": item, "why": self.error(error)})

    def about(self, **facts: Any) -> None:
        """Keep facts for the head of the document."""
        self._tell({"about": facts})

    def left_out(self, item: str) -> None:
        """Say that there is no time for an item."""
        self._tell({"left out": item})

    def error(self, error: BaseException) -> str:
        """Return the sentence of a step's error, and end this process if the step has lost the device."""
        said = sentence(error)
        try:
            self.synchronize()
        except Exception as lost:  # any error of the driver: nothing works any more
            self._tell({"lost": f"{said}; the device is lost: {sentence(lost)}"})
            sys.stdout.flush()
            sys.stderr.flush()
            # A lost context can be neither left nor cleaned up.
            os._exit(_LOST)
        return said


@dataclass
class Found:
    """What the processes have found: figures by item, failed steps, items without time, and facts for the head."""

    figures: dict[str, Any] = field(default_factory=dict)
    failed: Failed = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    about: dict[str, Any] = field(default_factory=dict)
    #: Why nothing could be measured.
    refused: str = ""


def watched(command: Sequence[str], items: Sequence[str], seconds: float, keep: Callable[[Found], None]) -> Found:
    """Have processes measure some items within ``seconds``.

    Parameters
    ----------
    command
        Command of a process, which calls :func:`assigned`.
    items
        Names of the items, in order, all different.
    seconds
        Time for everything.
    keep
        Function that is called with everything found so far, whenever there is more.
    """
    found = Found()
    deadline = time.monotonic() + seconds
    left = list(items)
    for _ in range(MOST_PROCESSES):
        at, why = _Process(command, left, found, deadline, keep).run()
        if at is None:
            found.refused = why
            break
        item, step = at
        if not why or why == NO_TIME:
            break
        print(f"{item}, {step or 'as a whole'}: {why}", file=sys.stderr, flush=True)
        found.failed.setdefault(item, {})[step] = why
        keep(found)
        if item in left and (not step or len(found.failed[item]) > MOST_DEATHS):
            left.remove(item)
        if not left or time.monotonic() > deadline:
            break
    found.left_out += [name for name in left if name not in found.left_out and name not in found.figures]
    keep(found)
    return found


class _Process:
    """One process, from its start to its end."""

    def __init__(
        self, command: Sequence[str], items: list[str], found: Found, deadline: float, keep: Callable[[Found], None]
    ) -> None:
        self._command, self._items, self._found = command, items, found
        self._deadline, self._keep = deadline, keep
        self._at: tuple[str, str] | None = None
        self._limit_s = START_S
        self._lost = ""

    def _left_out_steps(self) -> Failed:
        """Return failed steps by item, those that failed in several items for all items."""
        failed = self._found.failed
        deaths = [step for steps in failed.values() for step in steps if step]
        often = dict.fromkeys(
            [step for step in deaths if deaths.count(step) >= MOST_DEATHS], "left out: it has ended other processes"
        )
        return {item: {**often, **failed.get(item, {})} for item in self._items}

    def run(self) -> tuple[tuple[str, str] | None, str]:
        """Return where the process ended, and why ("": it has done everything); None if it has not begun anything."""
        reading, writing = os.pipe()
        task = {
            "fd": writing,
            "items": self._items,
            "failed": self._left_out_steps(),
            "seconds": max(self._deadline - time.monotonic(), 0.0),
        }
        process = subprocess.Popen(self._command, env={**os.environ, _ASSIGNED: json.dumps(task)}, pass_fds=(writing,))
        os.close(writing)
        events: queue.Queue[dict[str, Any] | None] = queue.Queue()
        threading.Thread(target=_listen, args=(reading, events), daemon=True).start()
        why = self._follow(events)
        if why:
            process.kill()
        try:
            code = process.wait(10)
        except subprocess.TimeoutExpired:
            # In the driver, where no signal reaches it: nothing waits for it.
            process.kill()
            code = 1
            why = why or "it does not end"
        if not why and code:
            why = self._lost or (
                f"its process ended with code {code}" if code > 0 else f"its process died of signal {-code}"
            )
        if self._found.refused:
            return None, self._found.refused
        if self._at is None:
            return None, why or "the process has measured nothing"
        return self._at, why

    def _follow(self, events: queue.Queue[dict[str, Any] | None]) -> str:
        """Take events until the process ends; return why it has to be ended."""
        while True:
            late = self._deadline + GRACE_S - time.monotonic()
            try:
                event = events.get(timeout=max(min(self._limit_s, late), 0.01))
            except queue.Empty:
                return NO_TIME if late <= self._limit_s else f"it hung for {self._limit_s:.0f} s"
            if event is None:
                return ""
            self._take(event)

    def _take(self, event: dict[str, Any]) -> None:
        found = self._found
        if "begin" in event:
            self._at = event["begin"][0], event["begin"][1]
            self._limit_s = event["limit_s"]
        elif "item" in event:
            found.figures[event["item"]] = event["found"]
            self._keep(found)
        elif "end" in event:
            self._items.remove(event["end"])
            self._at = self._items[0] if self._items else event["end"], ""
            self._limit_s = START_S
        elif "left out" in event:
            found.left_out.append(event["left out"])
            self._items.remove(event["left out"])
        elif "about" in event:
            found.about |= event["about"]
        elif "failure" in event:
            found.failed.setdefault(event["failure"], {})[""] = event["why"]
            self._keep(found)
        elif "lost" in event:
            self._lost = event["lost"]
        elif "refused" in event:
            found.refused = event["refused"]


def _listen(reading: int, events: queue.Queue[dict[str, Any] | None]) -> None:
    with os.fdopen(reading, encoding="utf-8") as stream:
        for line in stream:
            # The last line of a process that was ended may be a part of one.
            with contextlib.suppress(ValueError):
                events.put(json.loads(line))
    events.put(None)


def device() -> Any:
    """Return the current device, when the kernels of the CPU engine are loaded: compiling them takes a minute.

    Raises
    ------
    NoDeviceError
        If it cannot be used.
    """
    from gzarr.engines import kernels
    from gzarr.engines.cuda import devices
    from gzarr.errors import DeviceError

    kernels.load()
    try:
        return devices.get_device(devices.current())
    except DeviceError as error:
        raise NoDeviceError(str(error)) from error


def _synchronize() -> None:
    """Wait for the device, which raises if it is lost."""
    from gzarr.engines.cuda import devices
    from gzarr.engines.cuda.cupy_device import CupyDevice

    if isinstance(devices.get_device(devices.current()), CupyDevice):
        import cupy

        cupy.cuda.runtime.deviceSynchronize()


@contextlib.contextmanager
def _assigned() -> Iterator[tuple[Steps, list[str], float] | None]:
    """Give what this process is to measure, and within which time; None if it is to watch others."""
    text = os.environ.pop(_ASSIGNED, None)
    if text is None:
        yield None
        return
    task = json.loads(text)
    os.set_inheritable(task["fd"], False)
    with os.fdopen(task["fd"], "w", encoding="utf-8") as stream:

        def tell(event: dict[str, Any]) -> None:
            stream.write(json.dumps(event, default=_plain) + "\n")
            stream.flush()

        try:
            yield Steps(tell, task["failed"], _synchronize), task["items"], task["seconds"]
        except NoDeviceError as error:
            tell({"refused": str(error)})


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else list(value)


def run(
    program: str,
    argv: Sequence[str] | None,
    items: Sequence[str],
    seconds: float,
    measure: Callable[[Steps, list[str], float], None],
    document: Callable[[Found], dict[str, Any]],
    file: Path | None,
) -> Found | None:
    """Measure items in watched processes, and keep the document up to date.

    Parameters
    ----------
    program, argv
        Name of the benchmark, a program of this folder, and its command line.
    items
        Names of the items.
    seconds
        Time for everything. ``GZARR_ENDS_AT``, in seconds of the Unix epoch, may leave less.
    measure
        Function that measures items within some seconds, in a process of its own.
    document
        Function that returns what the document has besides its head.
    file
        The JSON file; None for none.

    Returns
    -------
    What was found; None in a process that measures.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    with _assigned() as task:
        if task is not None:
            measure(*task)
            return None
    head = {
        "command": shlex.join(["python", "benchmarks/gpu", program, *words]),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": report.machine(),
    }

    def keep(found: Found) -> None:
        if file is not None:
            whole = {
                **head, **found.about, **document(found), "failed": found.failed, "left out": found.left_out,
                **({"refused": found.refused} if found.refused else {}),
            }  # fmt: skip
            part = file.with_name(file.name + ".part")
            part.write_text(json.dumps(whole, indent=1, default=_plain) + "\n")
            part.replace(file)

    command = [*programs.command("gpu", program), *words]
    left = float(os.environ.get(_ENDS_AT, "inf")) - time.time()
    found = watched(command, items, min(seconds, left), keep)
    if found.refused:
        print(found.refused, file=sys.stderr)
    for item, steps in found.failed.items():
        for step, why in steps.items():
            print(f"FAILED: {item}{f', {step}' if step else ''}: {why}")
    if found.left_out:
        print(f"left out for lack of time: {', '.join(found.left_out)}")
    return found
