"""What takes long to make, and is made once for all processes that run tests."""

from __future__ import annotations

import fcntl
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[], str]) -> str:
    """Return a text that one of the processes of this run makes, while the others wait for it.

    Parameters
    ----------
    factory
        The fixture ``tmp_path_factory``.
    name
        Name of the text, different from all others.
    make
        Function that makes it.
    """
    folder = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        # That of a process is in one of the run.
        folder = folder.parent
    path = folder / f"{name}.made"
    with (folder / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            # In one step, so that a process that is killed leaves nothing.
            draft = folder / f"{name}.draft"
            draft.write_text(make())
            draft.replace(path)
    return path.read_text()
