"""Pages of documentation as programs: their blocks of code run in order, and what they print is compared with the page.

What is run, and how:

- ``python`` blocks, statement by statement, in one namespace for a page. Behind a statement, ``# -> text`` is the
  ``repr`` of its value, or what it prints. A ``text`` block that follows at once is all that the block prints.
- ``console`` blocks: lines ``$ command``, and below each one what it prints. Commands of ``gzarr`` are run. Of other
  commands, only what can be wrong is looked up: extras and groups that ``pip install`` names, files and options of the
  checkout. ``bash`` blocks are commands without what they print.
- ``coming-from`` tables: rows of code in another library and in gzarr, each side in a folder and a namespace of its
  own. What the two sides read is compared.

All blocks of a page are one test, since they build on each other. Sybil makes a test of each, which pytest-xdist deals
out to different workers; pytest-examples compares what ``print`` shows, knows no commands, and brings a formatter and a
linter. So blocks are found by markdown-it-py, a parser of Markdown that Rich needs anyway.

``…`` in what is shown stands for any text, on a line of its own for any lines. Sizes, times and versions are not
compared (:data:`_VARYING`), neither is the number of spaces.

``<!-- not run: reason -->`` above a block, or in a cell of a table, says that it is not run, and why; above a table, it
is about the other library's column.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
import itertools
import re
import shlex
import tokenize
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from markdown_it import MarkdownIt

from gzarr.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from markdown_it.token import Token

Names = dict[str, Any]

ROOT: Final = Path(__file__).parents[2]
#: Languages of blocks that are no programs: what a block prints, pictures of characters, files.
_NO_PROGRAMS: Final = frozenset({"text", "json", "toml", "mermaid"})
_NOT_RUN: Final = re.compile(r"<!-- not run: (.+?) -->", re.DOTALL)
_SHOWN: Final = "# -> "
#: Versions; numbers with a unit of size or time. These differ between machines and releases.
_VARYING: Final = re.compile(
    r"\b\d+\.\d+\.\d[\w.]*|\b\d[\d,.]*\s?(?:bytes|[kMG]B|[KMG]iB|s|ms|µs|hours|minutes|seconds)(?:/s)?(?!\w)"
)
_PLAIN: Final = (np.ndarray, np.generic, np.dtype, bool, int, float, str, bytes)


@dataclass(frozen=True)
class Block:
    """A block of code.

    Attributes
    ----------
    language
        Its language, ``""`` if the page does not say.
    code, line
        Its text, and the line of the page on which that begins.
    shown
        Text of the block that follows at once, if that is what this one prints.
    not_run
        Why it is not run; ``""`` if it is.
    """

    language: str
    code: str
    line: int
    shown: str | None = None
    not_run: str = ""


@dataclass(frozen=True)
class Row:
    """A row of a table of two columns of code: the cells' pieces of code, and why a cell is not run."""

    line: int
    cells: tuple[tuple[str, ...], tuple[str, ...]]
    not_run: tuple[str, str]


@dataclass(frozen=True)
class Heading:
    """A heading: its line and its text."""

    line: int
    text: str


def read(page: Path) -> list[Block | Row | Heading]:
    """Return the blocks of a page, the rows of its tables of code, and its headings, in their order."""
    tokens = MarkdownIt("commonmark").enable("table").parse(page.read_text("utf-8"))
    found: list[Block | Row | Heading] = []
    reason, last = "", None
    for i, token in enumerate(tokens):
        if token.type == "heading_open":
            found.append(Heading((token.map or [0])[0] + 1, tokens[i + 1].content))
        if token.type == "html_block":
            reason = _reason(token.content)
        elif token.type == "fence":
            assert token.map is not None
            language = (token.info.split() or [""])[0]
            if language == "text" and last is not None and found[-1] is last:
                found[-1] = Block(last.language, last.code, last.line, token.content, last.not_run)
                last = None
            else:
                last = Block(language, token.content, token.map[0] + 2, not_run=reason)
                found.append(last)
                last = last if language == "python" else None
            reason = ""
        elif token.type not in ("paragraph_close", "list_item_close"):
            reason, last = "", None
    if page.parent.name == "coming-from":
        found += _rows(tokens)
    return sorted(found, key=lambda part: part.line)


def _reason(text: str) -> str:
    match = _NOT_RUN.search(text)
    return "" if match is None else " ".join(match[1].split())


def _rows(tokens: Sequence[Token]) -> Iterator[Row]:
    """Yield the rows of tables of three columns: what is done, another library's code, gzarr's."""
    cells: list[Token] = []
    reason = ""
    for before, token in itertools.pairwise(tokens):
        if token.type == "table_open":
            reason = _reason(before.content)
        elif token.type == "tr_open":
            cells = []
        elif token.type == "inline" and before.type == "td_open":
            cells.append(token)
        elif token.type == "tr_close" and len(cells) == 3:
            line = (cells[0].map or [0])[0] + 1
            codes = [tuple(c.content for c in cell.children or () if c.type == "code_inline") for cell in cells[1:]]
            yield Row(line, (codes[0], codes[1]), (reason or _reason(cells[1].content), _reason(cells[2].content)))


# -- running blocks


def run(block: Block, page: Path, names: Names, hosts: Mapping[str, str]) -> None:
    """Run a block.

    Parameters
    ----------
    block
        The block.
    page
        Its page, for tracebacks.
    names
        Namespace of the page's Python.
    hosts
        Beginnings of URLs on the page, and what stands for them here.

    Raises
    ------
    AssertionError
        If it prints something else than the page shows, or names something that does not exist.
    """
    code = block.code
    for shown, here in hosts.items():
        code = code.replace(shown, here)
    if block.language == "python":
        _run_python(code, block, page, names)
    elif block.language in ("console", "bash"):
        for command, output in _commands(code, block.language == "console"):
            _run_command(command, output)
    else:
        assert block.language in _NO_PROGRAMS, f"{page.name}:{block.line}: say which language this is"


def _run_python(code: str, block: Block, page: Path, names: Names) -> None:
    tree = ast.parse(code)
    comments = _shown_values(code)
    everything = ""
    for statement in tree.body:
        wanted = [comments[n] for n in range(statement.lineno, (statement.end_lineno or 0) + 1) if n in comments]
        ast.increment_lineno(statement, block.line - 1)
        with contextlib.redirect_stdout(io.StringIO()) as out:
            value = _evaluated(statement, str(page), names)
        printed = out.getvalue()
        everything += printed
        if wanted and not printed and isinstance(statement, ast.Expr):
            printed = repr(value)
        assert not wanted or same("\n".join(wanted), printed), f"line {statement.lineno} gives {printed!r}"
    assert block.shown is None or same(block.shown, everything), f"line {block.line}: it prints\n{everything}"


def _evaluated(statement: ast.stmt, filename: str, names: Names) -> Any:
    """Run a statement, and return its value if it is an expression."""
    is_expression = isinstance(statement, ast.Expr)
    tree: Any = ast.Expression(statement.value) if is_expression else ast.Module([statement], [])
    code = compile(tree, filename, "eval" if is_expression else "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    value = eval(code, names)
    if code.co_flags & inspect.CO_COROUTINE:
        value = asyncio.run(value)
    return value


def _shown_values(code: str) -> dict[int, str]:
    """Return what comments say about values, by line."""
    tokens = tokenize.generate_tokens(io.StringIO(code).readline)
    return {
        token.start[0]: token.string[len(_SHOWN) :].strip()
        for token in tokens
        if token.type == tokenize.COMMENT and token.string.startswith(_SHOWN)
    }


def same(shown: str, printed: str) -> bool:
    """Return whether a text is what a page shows."""
    lines = [_normal(line) for line in shown.strip("\n").splitlines()]
    pattern = "\n".join(".*(?:\n.*)*" if line == "…" else ".*".join(map(re.escape, line.split("…"))) for line in lines)
    return re.fullmatch(pattern, "\n".join(map(_normal, printed.strip("\n").splitlines()))) is not None


def _normal(line: str) -> str:
    return " ".join(_VARYING.sub("#", line).split())


# -- running commands


def _commands(code: str, prompts: bool) -> Iterator[tuple[str, str | None]]:
    """Yield commands, and what the page shows that they print (None if nothing is shown)."""
    code = code.replace("\\\n", "")
    if not prompts:
        yield from ((line, None) for line in code.splitlines() if line.strip() and not line.startswith("#"))
        return
    begin, *parts = re.split(r"^\$ ", code, flags=re.MULTILINE)
    assert not begin.strip(), f"no command: {begin!r}"
    for part in parts:
        command, _, output = part.partition("\n")
        yield command, output if output.strip() else None


def _run_command(line: str, shown: str | None) -> None:
    program, *arguments = shlex.split(line, comments=True)
    if program == "gzarr":
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(out):
            code = main(arguments)
        # Said once in each environment that has no compiled kernels, before the first command that needs them.
        printed = re.sub(r"(?m)^gzarr: compiling its .*\n", "", out.getvalue())
        # A failure that is meant is shown.
        assert code == 0 or shown is not None, f"{line}: exit code {code}: {printed}"
        assert shown is None or same(shown, printed), f"{line} prints\n{printed}"
    elif program == "pip":
        _check_requirements(arguments)
    else:
        _check_program([program, *arguments])


def _check_requirements(arguments: Sequence[str]) -> None:
    """Check that extras and groups of gzarr that ``pip install`` names exist."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    extras, groups = project["project"]["optional-dependencies"], project["dependency-groups"]
    assert arguments[0] == "install"
    for argument in arguments:
        match = re.fullmatch(r"(?:\.|gzarr)\[(.*)\]", argument)
        for extra in match[1].split(",") if match else ():
            assert extra in extras, f"pyproject.toml has no extra {extra}"
    if "--group" in arguments:
        assert arguments[arguments.index("--group") + 1] in groups


def _check_program(words: Sequence[str]) -> None:
    """Check that a program of the checkout exists, and has the options that are named."""
    programs = [word for word in words if "/" in word and not word.startswith("-")]
    assert programs, f"{shlex.join(words)!r} is not run here; say why by <!-- not run: … -->"
    source = (ROOT / programs[0]).read_text("utf-8")
    for option in words[words.index(programs[0]) + 1 :]:
        assert not option.startswith("--") or option in source or "pytest" in source, f"{programs[0]} has no {option}"


# -- running rows of tables


def run_row(row: Row, page: Path, sides: Sequence[Side]) -> None:
    """Run a row, and compare what both sides have read.

    Raises
    ------
    AssertionError
        If a value that both sides have is not the same.
    """
    values = []
    for side, cell, reason in zip(sides, row.cells, row.not_run, strict=True):
        with contextlib.chdir(side.folder):
            values.append([] if reason else [_evaluated_cell(code, page, row.line, side.names) for code in cell])
    for one, other in zip(*values, strict=False):
        _assert_alike(one, other, f"{page.name}:{row.line}")
    assigned = [set() if reason else _assigned(cell) for cell, reason in zip(row.cells, row.not_run, strict=True)]
    for name in assigned[0] & assigned[1]:
        # Not the variables of comprehensions.
        if name in sides[0].names and name in sides[1].names:
            _assert_alike(*(side.names[name] for side in sides), f"{page.name}:{row.line}: {name}")


@dataclass(frozen=True)
class Side:
    """Where one column of a table is run: a folder, and a namespace."""

    folder: Path
    names: Names


def _evaluated_cell(code: str, page: Path, line: int, names: Names) -> Any:
    tree = ast.parse(code)
    ast.increment_lineno(tree, line - 1)
    return [_evaluated(statement, str(page), names) for statement in tree.body][-1]


def _assigned(cell: Sequence[str]) -> set[str]:
    nodes = (node for code in cell for node in ast.walk(ast.parse(code)))
    return {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def _plain(value: Any) -> tuple[Any] | None:
    """Return a value that can be compared between libraries, as a tuple; None for others."""
    if isinstance(value, (list, tuple)):
        parts = [_plain(part) for part in value]
        return None if None in parts else ([part[0] for part in parts if part is not None],)
    return (value,) if isinstance(value, _PLAIN) else None


def _assert_alike(one: Any, other: Any, where: str) -> None:
    """Compare two values, unless they are objects of their libraries."""
    plain = _plain(one), _plain(other)
    if plain[0] is None or plain[1] is None:
        return
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        np.testing.assert_array_equal(one, other, err_msg=where)
    else:
        assert plain[0] == plain[1], f"{where}: {one!r}, {other!r}"
