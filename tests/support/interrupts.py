"""Interrupts (Ctrl-C) at each of the places where Python looks for them, one after the other."""

from __future__ import annotations

import dis
import functools
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType


@functools.cache
def _places(code: CodeType) -> dict[int, tuple[str, list[tuple[int, int]]]]:
    """Return each instruction's name, by its offset, and the ranges of what handles its exceptions."""
    table = dis._parse_exception_table(code)  # type: ignore[attr-defined]
    return {
        step.offset: (step.opname, [(row.start, row.end) for row in table if row.start <= step.offset < row.end])
        for step in dis.get_instructions(code)
    }


def interrupted(work: Callable[[], object], at: int, within: str = "gzarr/stores") -> bool:
    """Do ``work``, with an interrupt at one of the places where Python looks for them; return whether there was one.

    Those are the beginning of each function, the end of each call, and the jump back in each loop. Only modules whose
    path has ``within``, and contextlib, are interrupted.
    """
    left = at
    # By the frames' numbers, because frames would keep alive what they refer to.
    before: dict[int, tuple[str, object]] = {}

    def trace(frame: FrameType, event: str, argument: object) -> object:
        nonlocal left
        code = frame.f_code
        if not code.co_filename.endswith("contextlib.py") and within not in code.co_filename:
            return None
        here = _places(code).get(frame.f_lasti, ("", []))
        if event == "call":
            frame.f_trace_opcodes = True
            before[id(frame)] = "RESUME", here[1]
        elif event == "exception":
            # Of a call that failed: what handles it begins without a look for interrupts.
            before[id(frame)] = "", []
        elif event == "opcode":
            name, handled = before[id(frame)]
            # The interrupt belongs to the instruction before this one, so it has to be handled as that one's would be.
            looks = name.startswith(("RESUME", "CALL", "JUMP_BACKWARD")) and not name.startswith("CALL_INTRINSIC")
            if looks and handled == here[1]:
                left -= 1
                if not left:
                    raise KeyboardInterrupt
            before[id(frame)] = here
        return trace

    previous = sys.gettrace()
    sys._getframe().f_trace_opcodes = True
    sys.settrace(trace)
    try:
        work()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(previous)
    return left <= 0
