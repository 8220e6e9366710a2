"""What the tests of a stage said: the lines that ``tests/support/gpu_session.py`` writes, and what they amount to.

Only Python's standard library is imported.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pathlib import Path

#: Reasons for which tests may be skipped on such a machine. Another reason is a failure of the stage: tests that say
#: nothing must not look like tests that passed.
REASONS: Final = (
    r"\w+ is not installed",
    r"\w+ is not installed; ci/servers installs it",
    r"(torch|jax) has no CUDA here",
    r"could not import 'support\.peer_readers': No module named '\w+'",
    # The test that lost it has failed.
    r"CUDA's context is lost since .*",
)
OUT_OF_TIME: Final = "out of time"
MOST_TEXT: Final = 6000


def collected(file: Path) -> dict[str, Any]:
    """Return what the lines of a run say; those that are missing because it was ended are no error.

    Returns
    -------
    ``passed``, a number; ``failed``, texts by test; ``skipped``, tests by reason; ``expected failures``, a number;
    ``unfinished``, the tests during which the run was ended; ``kernels``, numbers of kernels by the origin of their
    code; ``slowest``, seconds of tests.
    """
    outcomes: dict[str, str] = {}
    failed: dict[str, str] = {}
    skipped: dict[str, dict[str, None]] = {}
    seconds: dict[str, float] = {}
    kernels: dict[str, int] = {}
    began: dict[str, None] = {}
    crashed: list[str] = []
    for text in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if "begin" in line:
            began[line["begin"]] = None
        elif "end" in line:
            began.pop(line["end"], None)
        elif "crash" in line:
            began.pop(line["crash"], None)
            crashed.append(line["crash"])
        elif "kernel" in line:
            kernels[line["kernel"]] = kernels.get(line["kernel"], 0) + 1
        elif "test" in line:
            name, outcome = line["test"], line["outcome"]
            seconds[name] = seconds.get(name, 0.0) + line.get("seconds", 0.0)
            if outcome == "failed":
                failed[name] = line["text"][-MOST_TEXT:]
            elif outcome == "skipped":
                # A module that is skipped as a whole is skipped by every worker.
                skipped.setdefault(line["text"], {})[name] = None
            # A test fails, too, if it passes and what ends it fails.
            if outcomes.get(name) != "failed":
                outcomes[name] = outcome
    for name in crashed:
        # If a context was lost before, the worker has said so, and ended by itself.
        if outcomes.get(name) != "skipped":
            outcomes[name] = "failed"
            failed.setdefault(name, "the process has ended during this test")
    counts = list(outcomes.values())
    slowest = sorted(seconds, key=seconds.__getitem__, reverse=True)[:10]
    return {
        "passed": counts.count("passed"),
        "failed": failed,
        "skipped": {reason: list(names) for reason, names in skipped.items()},
        "expected failures": counts.count("expected failure"),
        "unfinished": ", ".join(began),
        "kernels": kernels,
        "slowest": {name: round(seconds[name], 2) for name in slowest},
    }


def verdict(tests: dict[str, Any], state: str) -> tuple[str, str]:
    """Return the state of a stage and a note, given what its tests said and the state by its exit code."""
    skipped = tests["skipped"]
    late = len(skipped.get(OUT_OF_TIME, ()))
    counts = f"{tests['passed']} passed, {len(tests['failed'])} failed, {sum(map(len, skipped.values()))} skipped"
    unlisted = [r for r in skipped if r != OUT_OF_TIME and not any(re.fullmatch(known, r) for known in REASONS)]
    if tests["failed"]:
        return "failed", counts
    if unlisted:
        return "failed", f"{counts}: {len(skipped[unlisted[0]])} for no listed reason: {unlisted[0][:120]}"
    if state == "passed" and not tests["passed"]:
        return "failed", f"{counts}: nothing was tested"
    if state == "passed" and not tests["kernels"]:
        return "failed", f"{counts}: no kernel was loaded"
    if state == "passed" and late:
        return OUT_OF_TIME, f"{counts}, {late} of them for lack of time"
    return state, counts if not tests["unfinished"] else f"{counts}; ended during {tests['unfinished']}"
