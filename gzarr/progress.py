"""Progress bars on stderr."""

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
    """Yield ``items``; show a progress bar on stderr after a while, if it is a terminal."""
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


def start_bar(stack: contextlib.ExitStack, what: str, total: int | None, *, stays: bool = False) -> Callable[..., None]:
    """Start a bar that ends with ``stack``; return a function that moves it to a count, with a note beside it.

    If it ``stays``, its last state is still there when it has ended; if stderr is no terminal, only that is shown.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        # Narrower with notes, so that 80 characters are enough.
        BarColumn(20 if stays else 40),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}", markup=False),
    )
    bar = stack.enter_context(Progress(*columns, console=Console(stderr=True), transient=not stays))
    task = bar.add_task(what, total=total, note="")
    return lambda count, note="": bar.update(task, completed=count, note=note)
