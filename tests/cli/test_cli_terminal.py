"""What the command line shows on a terminal: colours and wrapped tables there, the same words in a pipe."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from support.terminals import output_on_terminal

import gzarr

COLOURS = re.compile(r"\x1b\[[0-9;]*m")
GZARR = [sys.executable, "-m", "gzarr"]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    path = tmp_path_factory.mktemp("terminal") / "x.zarr"
    group = gzarr.create_group(path, attributes={"[bold]title[/bold]": "no markup"})
    group.create_array("a[red]", shape=(4, 5), dtype="u2", chunks=(2, 5))
    group.create_group("inner").create_array("b", shape=(3,), dtype="f8", chunks=3)
    (path / "broken").mkdir()
    (path / "broken" / "zarr.json").write_text("{")
    return path


def piped(*args):
    return subprocess.run([*GZARR, *map(str, args)], capture_output=True, encoding="utf-8", check=True).stdout


@pytest.mark.parametrize("command", ["tree", "info"])
def test_a_terminal_shows_the_words_of_a_pipe_in_colours(root, command):
    code, shown = output_on_terminal([*GZARR, command, str(root)], 400)
    assert code == 0
    plain = piped(command, root)
    assert "\x1b" not in plain
    # A table pads its lines.
    assert [line.rstrip() for line in COLOURS.sub("", shown).splitlines()] == plain.splitlines()
    assert re.search(r"\x1b\[1;34minner\x1b\[0m", shown)
    assert re.search(r"\x1b\[31mbroken\x1b\[0m", shown)
    assert "\x1b[36m (4, 5) uint16\x1b[0m" in shown
    assert "\x1b[1mName" in shown or command == "tree"


def test_no_color_leaves_colours_out(root):
    _, shown = output_on_terminal([*GZARR, "tree", str(root)], 400, NO_COLOR="1")
    assert not re.findall(r"\x1b\[[0-9;]*3[1-7]m", shown)
    assert COLOURS.sub("", shown).splitlines() == piped("tree", root).splitlines()


def test_long_values_are_wrapped_in_their_column(root):
    _, shown = output_on_terminal([*GZARR, "info", str(root), "--path", "a[red]"], 60)
    lines = COLOURS.sub("", shown).splitlines()
    assert max(map(len, lines)) <= 60
    wrapped = [line for line in lines if not line[:1].strip()]
    assert wrapped
    column = lines[0].index(":") + 2
    assert all(not line[:column].strip() for line in wrapped)
    words = "".join(line[column:].rstrip() for line in lines)
    whole = "".join(line.partition(" : ")[2] for line in piped("info", root, "--path", "a[red]").splitlines())
    assert words.replace(" ", "") == whole.replace(" ", "")
