"""Progress bars of the command line: on terminals only, and only where it takes long."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    T = TypeVar("T")

QUIET_SECONDS = 0.5


def watch(items: Iterable[T], what: str, total: int | None = None) -> Iterator[T]:
    """Pass ``items`` on; show a progress bar on a terminal's stderr once it takes long."""
    if not sys.stderr.isatty():
        yield from items
        return
    with contextlib.ExitStack() as stack:
        started, advance = time.monotonic(), None
        for count, item in enumerate(items, 1):
            yield item
            if advance is None and time.monotonic() - started > QUIET_SECONDS:
                advance = start_bar(stack, what, total)
            if advance is not None:
                advance(count)


def start_bar(stack: contextlib.ExitStack, what: str, total: int | None) -> Callable[[int], None]:
    """Start a bar that ends with ``stack``; return what moves it to a count."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    bar = stack.enter_context(Progress(*columns, console=Console(stderr=True), transient=True))
    task = bar.add_task(what, total=total)
    return lambda count: bar.update(task, completed=count)
