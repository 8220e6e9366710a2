"""Progress bars: on stderr if it is a terminal, or below the cell of a notebook. Nowhere else is anything shown."""

from __future__ import annotations

import contextlib
import sys
import time
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

    T = TypeVar("T")

QUIET_SECONDS = 0.5

#: Largest number that notes are made of; sparse arrays may have more bytes, and more chunks, than a float holds.
_LARGEST = 1 << 80

#: The work that shows a bar, so that work within it, and in other threads, shows none. Work that wants to show one
#: appends its stack, and shows it if that is the first: unlike a lock, this can be given back after an interrupt
#: at any point, and by any thread.
_showing: list[contextlib.ExitStack] = []
_reads_are_shown: ContextVar[bool] = ContextVar("gzarr_show_progress", default=False)


class Bar(Protocol):
    """Function that moves a bar to a count, with a note beside it."""

    def __call__(self, count: int, note: str = "") -> None:
        """Move the bar."""


@contextlib.contextmanager
def show_progress() -> Iterator[None]:
    """Show a progress bar for each long read in a block of code.

    The bar shows chunks, on a terminal or below the cell of a notebook, from half a second after the read's begin on.
    Elsewhere, nothing is shown. It is for reads of the thread that runs the block. They take their chunks in several
    steps, which may make them a little slower.

    Examples
    --------
    >>> import gzarr
    >>> a = gzarr.array([1, 2, 3])
    >>> with gzarr.show_progress():
    ...     x = a[...]
    """
    token = _reads_are_shown.set(True)
    try:
        yield
    finally:
        _reads_are_shown.reset(token)


def reads_are_shown() -> bool:
    """Return whether reads of this thread should show their progress, and there is a place to show it."""
    return _reads_are_shown.get() and has_place()


def has_place() -> bool:
    """Return whether there is a place for a bar: a terminal or a notebook."""
    return in_notebook() or is_terminal(sys.stderr)


def is_terminal(stream: Any) -> bool:
    """Return whether a stream is a terminal. It may be closed, None, or what a program puts in its place."""
    # Those that write to a log often have no more than what print calls.
    ask = getattr(stream, "isatty", None)
    try:
        return ask is not None and bool(ask())
    except ValueError:
        return False


def in_notebook() -> bool:
    """Return whether this process is the kernel of a notebook."""
    # What is not imported is not running.
    module = sys.modules.get("IPython")
    shell = None if module is None else getattr(module, "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


def _one(_: object) -> int:
    return 1


def watch(
    items: Iterable[T],
    what: str,
    total: int | Callable[[], int] | None = None,
    *,
    count: Callable[[T], int] = _one,
    nbytes: int | Callable[[], int] | None = None,
) -> Generator[T, None, None]:
    """Yield items; show a progress bar after a while, if there is a place for one and no other bar.

    Parameters
    ----------
    items
        What is yielded. An item counts as done when the next one is asked for.
    what
        Text beside the bar.
    total
        Number of steps, or the most that there may be; a function is called once the first item is done. None if it is
        unknown.
    count
        Function that returns the steps that an item stands for.
    nbytes
        Bytes of the elements of all steps, of which each has about as many, or a function like ``total``; None if they
        are unknown.
    """
    if not has_place():
        yield from items
        return
    stack = contextlib.ExitStack()
    try:
        with stack:
            started, done = time.monotonic(), 0
            advance: Bar | None = None
            most: int | None = None
            size: int | None = None
            for item in items:
                yield item
                done += count(item)
                if advance is None and time.monotonic() - started > QUIET_SECONDS and _may_show(stack):
                    most = total() if callable(total) else total
                    size = nbytes() if callable(nbytes) else nbytes
                    advance = start_bar(stack, what, most)
                if advance is not None:
                    advance(done, _note(done, most, size, time.monotonic() - started))
            if advance is not None and most is not None:
                advance(most, _note(most, most, size, time.monotonic() - started))
    finally:
        # Not in a function: an interrupt may come as it is entered, but none comes here before the removal.
        if stack in _showing:
            _showing.remove(stack)


def _may_show(stack: contextlib.ExitStack) -> bool:
    """Return whether work may show a bar; then ``stack`` is in the list until the work removes it."""
    _showing.append(stack)
    if _showing[0] is stack:
        return True
    _showing.remove(stack)
    return False


def _note(done: int, total: int | None, nbytes: int | None, seconds: float) -> str:
    """Return how many bytes are done, how fast, and the time that is left."""
    if not done or not total or total > _LARGEST:
        return ""
    part, seconds = min(done / total, 1), max(seconds, 1e-3)
    texts = []
    if nbytes and nbytes <= _LARGEST:
        texts = [f"{short_size(part * nbytes)} of {short_size(nbytes)}", f"{short_size(part * nbytes / seconds)}/s"]
    if part < 1:
        minutes, rest = divmod(round(seconds * (1 / part - 1)), 60)
        texts.append(f"{minutes}:{rest:02} left")
    return ", ".join(texts)


def short_size(nbytes: float) -> str:
    """Return a number of bytes in at most eight characters."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if nbytes < 999.5 or unit == "TiB":
            break
        nbytes /= 1024
    return f"{nbytes:.0f} {unit}" if unit == "B" or nbytes >= 99.5 else f"{nbytes:.1f} {unit}"


def start_bar(stack: contextlib.ExitStack, what: str, total: int | None, *, stays: bool = False) -> Bar:
    """Start a bar that ends with ``stack``; return the function that moves it.

    If it ``stays``, its last state is still there when it has ended; if stderr is no terminal, only that is shown, and
    nothing if stderr is closed. In a notebook, it always stays.
    """
    if in_notebook():
        bar = _NotebookBar(what, total)
        stack.callback(bar.end)
        return bar
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        # So narrow that 80 characters are enough with a note.
        BarColumn(16),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}", markup=False),
    )
    # With FORCE_COLOR, rich would take a file for a terminal.
    forced = None if is_terminal(sys.stderr) else False
    quiet = getattr(sys.stderr, "closed", False)
    # A terminal wraps printed lines itself, so that they can be copied.
    console = Console(stderr=True, quiet=quiet, force_terminal=forced, soft_wrap=True)
    # Only what is printed to a terminal goes above the bar, which would else take it from a file or a pipe.
    progress = Progress(*columns, console=console, transient=not stays, redirect_stdout=is_terminal(sys.stdout))
    shown = stack.enter_context(progress)
    task = shown.add_task(what, total=total, note="")
    return lambda count, note="": shown.update(task, completed=count, note=note)


class _NotebookBar:
    """A bar below the cell of a notebook: an output that is replaced. That of rich would need ipywidgets.

    Parameters
    ----------
    what
        Text beside the bar.
    total
        Number of steps; None if it is unknown.
    """

    #: Least time between two changes of the output.
    PAUSE_S = 0.1

    def __init__(self, what: str, total: int | None) -> None:
        from IPython.display import display

        self._what, self._total = what, total
        self._count, self._note = 0, ""
        self._began = self._shown = time.monotonic()
        self._handle: Any = display(self._output("running"), raw=True, display_id=True)

    def __call__(self, count: int, note: str = "") -> None:
        """Move the bar."""
        self._count, self._note = count, note
        now = time.monotonic()
        if now - self._shown > self.PAUSE_S:
            self._shown = now
            self._handle.update(self._output("running"), raw=True)

    def end(self) -> None:
        """Show the last state."""
        is_done = self._total is None or self._count >= self._total
        self._handle.update(self._output("done" if is_done else "stopped"), raw=True)

    def _output(self, state: str) -> dict[str, str]:
        import html

        minutes, seconds = divmod(int(time.monotonic() - self._began), 60)
        count = f"{self._count:,}" if self._total is None else f"{self._count:,}/{self._total:,}"
        texts = [self._what, count, f"{minutes}:{seconds:02}", self._note, "stopped" if state == "stopped" else ""]
        color = "#c0392b" if state == "stopped" else "#3f8fd2"
        done = min(self._count / self._total, 1) if self._total else 1 if state == "done" else 0
        frame = "display:inline-block;width:200px;height:8px;border:1px solid;border-radius:5px;overflow:hidden"
        filled = f"display:block;width:{done:.1%};height:100%;background:{color}"
        bar = f'<span style="{frame}"><span style="{filled}"></span></span>'
        parts = [html.escape(text) for text in texts if text]
        line = " ".join(f"<span>{part}</span>" for part in (parts[0], bar, *parts[1:]))
        style = "display:flex;gap:8px;align-items:center;font-family:monospace;font-size:0.9em"
        page = f'<div class="gzarr-progress" style="{style}">{line}</div>'
        return {"text/plain": " ".join(filter(None, texts)), "text/html": page}
