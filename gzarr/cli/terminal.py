"""Tables and trees on terminals: in colours, and wrapped in their column. Anywhere else they are plain text.

The environment variable ``NO_COLOR`` leaves the colours out, as everywhere.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from ..progress import is_terminal

if TYPE_CHECKING:
    from rich.console import Console

    from ..display import Info, Tree

#: Styles of the name and of the rest of a line, by the kind of node.
_STYLES: Final = {
    "root": ("bold", ""),
    "group": ("bold blue", "magenta"),
    "array": ("", "cyan"),
    "unreadable": ("red", "red"),
}


def _console() -> Console | None:
    """Return rich's console if stdout is a terminal, else None."""
    if not is_terminal(sys.stdout):
        return None
    from rich.console import Console

    return Console(file=sys.stdout, highlight=False)


def show_info(info: Info) -> None:
    """Print a table; on a terminal, long values are wrapped in their column."""
    console = _console()
    if console is None:
        print(info)
        return
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 1))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for label, value in info.rows:
        # Text, so that nothing is taken for rich's markup.
        table.add_row(Text(label), ":", Text(value))
    console.print(table)


def show_tree(tree: Tree, *, root: bool = True) -> None:
    """Print a tree, without its first line if ``root`` is False."""
    lines = tree.lines if root else tree.lines[1:]
    console = _console()
    if console is None:
        for line in lines:
            print(line.branch + line.name + line.detail)
        return
    from rich.text import Text

    for line in lines:
        name, rest = _STYLES[line.kind]
        text = Text.assemble((line.branch, "dim"), (line.name, name), (line.detail, rest))
        # A terminal wraps long lines itself, so that they can be copied.
        console.print(text, soft_wrap=True)
