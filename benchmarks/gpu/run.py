"""Running stages one after the other within some minutes, each a process with a share of the time.

A stage that exceeds its share is ended; one with too little time is left out: both are reported, and neither is a
failure. Time that a stage does not use goes to the later ones. Only Python's standard library is imported, because
packages may be missing.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TextIO

import gpu.tests
from gpu.facts import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    #: Function of the stage's time in seconds; returns the command and additions to the environment.
    Command = Callable[[float], tuple[list[str], dict[str, str]]]

TAIL_LINES = 25


@dataclass(frozen=True)
class Stage:
    """One step.

    Attributes
    ----------
    name
        Name in the table, and in the report.
    weight
        Weight of its share of the time that the least times leave, relative to the stages after it.
    least_s
        Least time in seconds; with less, it is left out.
    required
        Whether a non-zero exit code is a failure.
    command
        Function that returns the command.
    result
        File, if any, with what it has found: a JSON document, complete at any time.
    tests
        File, if any, with what its tests said (:mod:`gpu.tests`).
    printed
        Whether the JSON document is what it prints, possibly after warnings, and not in the file.
    """

    name: str
    weight: float
    least_s: float
    required: bool
    command: Command
    result: Path | None = None
    tests: Path | None = None
    printed: bool = False


@dataclass
class Outcome:
    """Outcome of a stage: ``"passed"``, ``"failed"``, ``"out of time"`` or ``"left out"``."""

    stage: str
    required: bool
    state: str
    seconds: float = 0.0
    limit_s: float = 0.0
    command: str = ""
    note: str = ""
    tail: list[str] = field(default_factory=list)
    result: Any = None
    tests: dict[str, Any] | None = None

    @property
    def failed(self) -> bool:
        return self.required and self.state == "failed"


def limit(stages: Sequence[Stage], at: int, remaining_s: float) -> float | None:
    """Return the seconds for stage ``at``, or None if it is left out.

    It gets its least time, and a share of what is left when the later stages that fit have theirs.

    Parameters
    ----------
    stages
        All stages.
    at
        Position of the stage.
    remaining_s
        Time for it and the stages after it, in seconds.
    """
    stage, rest = stages[at], stages[at:]
    if remaining_s < stage.least_s:
        return None
    spare, weights = remaining_s, 0.0
    for one in rest:
        if one.least_s <= spare:
            spare -= one.least_s
            weights += one.weight
    return min(stage.least_s + spare * stage.weight / weights, remaining_s)


def run(stage: Stage, seconds: float, log: TextIO, environment: Mapping[str, str]) -> Outcome:
    """Run a stage for at most ``seconds``; its output goes to the terminal and to the log."""
    command, added = stage.command(seconds)
    shown = [*(f"{name}={value}" for name, value in added.items()), shlex.join(command)]
    outcome = Outcome(stage.name, stage.required, "passed", limit_s=seconds, command=" ".join(shown))
    _say(f"== {stage.name} (at most {seconds:.0f} s)", log)
    start = time.monotonic()
    try:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**environment, **added},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            # A separate process group, so that the stage is ended with everything that it started.
            start_new_session=True,
        )
    except OSError as error:
        outcome.state, outcome.note = "failed", str(error)
        return outcome
    assert process.stdout is not None
    lines: list[str] = []
    reader = threading.Thread(target=_copy, args=(process.stdout, log, lines), daemon=True)
    reader.start()
    try:
        code = process.wait(seconds)
        if code:
            outcome.state = "failed"
            outcome.note = f"exit code {code}" if code > 0 else f"signal {-code}"
    except subprocess.TimeoutExpired:
        outcome.state, outcome.note = "out of time", f"ended after {seconds:.0f} s"
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        # A process that hangs in a driver cannot be ended; the next stage may work.
        process.wait(5)
    reader.join(2)
    outcome.seconds = time.monotonic() - start
    text = [line for line in lines if line.strip()]
    outcome.tail = text[-TAIL_LINES:]
    if outcome.state == "passed" and text and stage.result is None and not stage.printed:
        outcome.note = text[-1].strip()[:100]
    _keep(stage, outcome, lines)
    return outcome


def _keep(stage: Stage, outcome: Outcome, lines: Sequence[str]) -> None:
    """Add what a stage has found, and what its tests said, to its outcome."""
    if stage.printed:
        outcome.result = _document("\n".join(lines))
    elif stage.result is not None:
        with contextlib.suppress(OSError, ValueError):
            outcome.result = json.loads(stage.result.read_text())
    if stage.tests is not None:
        outcome.tests = gpu.tests.collected(stage.tests)
        outcome.state, note = gpu.tests.verdict(outcome.tests, outcome.state)
        outcome.note = "; ".join(filter(None, [note, outcome.note if outcome.state != "passed" else ""]))


def _document(text: str) -> Any:
    """Return the JSON document in a command's output, possibly after warnings; None if there is none."""
    with contextlib.suppress(ValueError):
        return json.JSONDecoder().raw_decode(text[text.index("{") :])[0]
    return None


def _say(line: str, log: TextIO) -> None:
    print(line, flush=True)
    log.write(line + "\n")
    log.flush()


def _copy(stream: Any, log: TextIO, lines: list[str]) -> None:
    with stream, contextlib.suppress(ValueError):
        for raw in stream:
            line = raw.decode(errors="replace").rstrip("\n")
            lines.append(line)
            _say(line, log)


def run_all(
    stages: Sequence[Stage],
    seconds: float,
    log: TextIO,
    environment: Mapping[str, str],
    keep: Callable[[list[Outcome]], None] = lambda outcomes: None,
) -> list[Outcome]:
    """Run the stages within ``seconds``; return their outcomes, which are kept after each stage."""
    deadline = time.monotonic() + seconds
    outcomes: list[Outcome] = []
    for at, stage in enumerate(stages):
        remaining = deadline - time.monotonic()
        share = limit(stages, at, remaining)
        if share is None:
            note = f"{max(remaining, 0):.0f} s were left, but it needs at least {stage.least_s:.0f} s"
            _say(f"== {stage.name}: left out, {note}", log)
            outcomes.append(Outcome(stage.name, stage.required, "left out", note=note))
        else:
            outcomes.append(run(stage, share, log, environment))
        keep(outcomes)
    return outcomes


def table(outcomes: Sequence[Outcome]) -> str:
    """Return the plain text table."""
    rows = [("stage", "outcome", "seconds", "limit", "")]
    for o in outcomes:
        state = o.state.upper() if o.failed else o.state
        rows.append((o.stage, state, f"{o.seconds:.1f}", f"{o.limit_s:.0f}", o.note))
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    lines = []
    for row in rows:
        cells = [c.rjust(w) if i > 1 else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=False))]
        lines.append("  ".join([*cells, row[4]]).rstrip())
    return "\n".join(lines)


def exit_code(outcomes: Sequence[Outcome]) -> int:
    """Return 1 if a required stage failed, else 0, even if there was no time for it."""
    return int(any(o.failed for o in outcomes))
