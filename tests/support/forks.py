"""Work in a forked child."""

from __future__ import annotations

import os
import signal
import traceback
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

#: Seconds after which a child that hangs is ended.
LIMIT_S = 30


def in_child(work: Callable[[], object]) -> int:
    """Fork, call ``work`` in the child, and return its exit code: 0 unless it raised or took too long."""
    pid = os.fork()
    if not pid:
        code = 1
        try:
            # The handler of pytest-timeout would go on with the parent's tests.
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(LIMIT_S)
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
