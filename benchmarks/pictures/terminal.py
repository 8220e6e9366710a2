"""Pictures of the commands in a terminal: what they really print, on data that is made here.

    ci/figures --terminal

Each command runs in a pseudo-terminal of 92 columns; pyte works out what its screen shows. Progress bars are gone when
a command ends, so the picture of one is taken on the way.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyte

import gzarr
from pictures.drawing import MARGIN, WIDTH, Drawing, escaped

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

COLUMNS, ROWS = 92, 400
_CELL, _LINE, _SIZE = (WIDTH - 2 * MARGIN) / COLUMNS, 16.0, 12.4
#: Colours of terminals, on light and on dark pages.
_COLOURS = {
    "red": ("#cf222e", "#ff7b72"),
    "green": ("#1a7f37", "#3fb950"),
    "brown": ("#9a6700", "#d29922"),
    "blue": ("#0969da", "#58a6ff"),
    "magenta": ("#8250df", "#bc8cff"),
    "cyan": ("#1b7c83", "#39c5cf"),
    # The two parts of rich's progress bars.
    "f92672": ("#0969da", "#4493f8"),
    "3a3a3a": ("#d1d9e0", "#3d444d"),
}


def _style() -> str:
    def rules(dark: bool) -> str:
        return "".join(f".t-{name}{{fill:{both[dark]}}}" for name, both in _COLOURS.items())

    weights = ".t-b{font-weight:700}.t-d{opacity:.65}"
    mono = f"text.mono{{font-size:{_SIZE}px}}"
    return f"{mono}{weights}{rules(False)}@media(prefers-color-scheme:dark){{{rules(True)}}}"


@dataclass(frozen=True)
class Shot:
    """A picture of commands in a terminal.

    Attributes
    ----------
    name
        Name of its file.
    title, alt
        See ``drawing.Drawing``.
    commands
        The commands, one after the other.
    moment
        What the screen has to show, as a regular expression, for a picture on the way; None for the end.
    keep
        First and last lines of the output that are shown; None for all.
    """

    name: str
    title: str
    alt: str
    commands: Sequence[Sequence[str]]
    moment: str | None = None
    keep: tuple[int, int] | None = None


SHOTS = (
    Shot(
        "terminal-tree", "gzarr tree",
        "gzarr tree weather.zarr: a tree with the shapes and data types of arrays; groups have a colour of their own.",
        [["tree", "weather.zarr"]],
    ),
    Shot(
        "terminal-info", "gzarr info",
        "gzarr info of an array: a table of its properties, its codecs, how it will be decoded, and how many chunks "
        "are stored in how many bytes.",
        [["info", "weather.zarr", "--path", "surface/t2m"]],
    ),
    Shot(
        "terminal-doctor", "gzarr doctor",
        "gzarr doctor on a machine without a GPU: a table of what is there and what is missing, with advice; a table "
        "of codecs, which all passed their self-test on the CPU.",
        [["doctor"]], keep=(30, 1),
    ),
    Shot(
        "terminal-copy", "gzarr copy",
        "gzarr copy on its way: a progress bar with the parts that are copied and the time.",
        [["copy", "large.zarr", "sharded.zarr", "--shards", "128,128,128", "--codecs", "zstd:3", "--budget", "32MiB"]],
        moment=r"copying.* (\d+)/(\d+)",
    ),
    Shot(
        "terminal-verify", "gzarr verify",
        "gzarr verify of two hierarchies: the first has no problems; in the second it names a corrupt chunk, with its "
        "key and what is wrong with it.",
        [["verify", "weather.zarr"], ["verify", "damaged.zarr"]],
    ),
    Shot(
        "terminal-pyramid", "gzarr pyramid",
        "gzarr pyramid makes an OME-Zarr image of an array, and prints the shapes of levels; gzarr tree shows them.",
        [["pyramid", "brain.zarr", "--path", "raw", "--axes", "zyx", "--scale", "2,0.5,0.5", "--units", "micrometer"],
         ["tree", "brain.zarr"]],
    ),
)  # fmt: skip


def make(folder: Path) -> None:
    """Write the data that the commands are shown with."""
    rng = np.random.default_rng(1)
    weather = gzarr.create_group(folder / "weather.zarr", attributes={"title": "made up"})
    surface = weather.create_group("surface")
    fields = rng.normal(280, 10, (8, 181, 360)).astype("f4").round(1)
    for name in ("t2m", "msl"):
        surface.create_array(
            name, data=np.repeat(fields, 4, axis=0), chunks=(1, 181, 360), shards=(16, 181, 360),
            dimension_names=("time", "latitude", "longitude"), codecs="auto", attributes={"units": "K"},
        )  # fmt: skip
    levels = weather.create_group("levels")
    levels.create_array("z", data=fields[:2, None].repeat(3, axis=1), chunks=(1, 1, 181, 360))
    for name, count in (("time", 32), ("latitude", 181), ("longitude", 360)):
        weather.create_array(name, data=np.arange(count, dtype="i4"), dimension_names=(name,))
    shutil.copytree(folder / "weather.zarr", folder / "damaged.zarr")
    chunk = folder / "damaged.zarr" / "levels" / "z" / "c" / "1" / "2" / "0" / "0"
    content = bytearray(chunk.read_bytes())
    content[len(content) // 2 :] = bytes(len(content) - len(content) // 2)
    chunk.write_bytes(content)
    large = rng.integers(0, 4096, (64, 256, 256), dtype="u2")
    gzarr.create_array(folder / "large.zarr", data=np.tile(large, (8, 2, 2)), chunks=64)
    brain = gzarr.create_group(folder / "brain.zarr")
    brain.create_array("raw", data=np.tile(large[:32, :128, :128], (2, 2, 2)), chunks=64)


def screens(command: Sequence[str], folder: Path) -> Iterator[Any]:
    """Run a command in a terminal, and yield its screen as it changes."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "LINES")}
    environment |= {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
    process = subprocess.Popen(
        [sys.executable, "-m", "gzarr", *command],
        cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs,
    )  # fmt: skip
    os.close(theirs)
    screen = pyte.Screen(COLUMNS, ROWS)
    stream = pyte.ByteStream(screen)
    with os.fdopen(ours, "rb", buffering=0) as terminal:
        while True:
            # At the end, the other side is closed, which some systems call an error.
            part = b""
            with contextlib.suppress(OSError):
                part = terminal.read(4096)
            if not part:
                break
            # Where the data are is no part of the picture.
            stream.feed(part.replace(str(folder).encode(), b"/data"))
            yield screen
    process.wait()


def lines(screen: Any) -> list[list[Any]]:
    """Return the cells of the lines of a screen, without what is empty at their ends."""
    rows = [[screen.buffer[y][x] for x in range(COLUMNS)] for y in range(ROWS)]
    for row in rows:
        while row and row[-1].data == " ":
            row.pop()
    while rows and not rows[-1]:
        rows.pop()
    return rows


def shown(shot: Shot, folder: Path) -> list[tuple[str, list[Any]]]:
    """Return the lines of a picture: what was typed, or the cells of what was printed."""
    found: list[tuple[str, list[Any]]] = []
    for command in shot.commands:
        typed = [f"'{word}'" if re.search(r"[^\w./:,+=#-]", word) else word for word in command]
        found += [("", [])] if found else []
        found.append((f"$ gzarr {' '.join(typed)}", []))
        last: list[list[Any]] = []
        nearest = 1.0
        for screen in screens(command, folder):
            match = None if shot.moment is None else re.search(shot.moment, "\n".join(screen.display))
            if shot.moment is None:
                last = lines(screen)
            elif match is not None:
                distance = abs(int(match[1]) / int(match[2]) - 0.6)
                if distance < nearest:
                    last, nearest = lines(screen), distance
        if shot.keep is not None and len(last) > sum(shot.keep):
            dots = [[pyte.screens.Char("⋮")]]
            last = [*last[: shot.keep[0]], *dots, *last[len(last) - shot.keep[1] :]]
        found += [("", row) for row in last]
    return found


def _css(cell: Any) -> str:
    css = [f"t-{cell.fg}"] if cell.fg in _COLOURS else []
    return " ".join([*css, *(["t-b"] if cell.bold else [])])


def picture(shot: Shot, folder: Path) -> str:
    """Return a picture, as SVG."""
    drawing = Drawing(shot.title, shot.alt, style=_style())
    y = MARGIN + 8.0
    drawn = shown(shot, folder)
    height = y + _LINE * len(drawn) + 6
    drawing.box(0.5, 0.5, WIDTH - 1, height - 1, radius=6)
    for typed, row in drawn:
        if typed:
            _run(drawing, 0, y, typed, "t-b")
        start = 0
        for x in range(1, len(row) + 1):
            if x == len(row) or _css(row[x]) != _css(row[start]):
                _run(drawing, start, y, "".join(cell.data for cell in row[start:x]), _css(row[start]))
                start = x
        y += _LINE
    return drawing.svg(height)


def _run(drawing: Drawing, column: int, y: float, text: str, css: str) -> None:
    """Write text that is as wide as its cells, in whatever font there is."""
    # Blanks beside each other would become one.
    for words in re.finditer(r"\S+(?: \S+)*", text):
        length = f'textLength="{len(words[0]) * _CELL:.1f}" lengthAdjust="spacingAndGlyphs"'
        place = f'x="{MARGIN + (column + words.start()) * _CELL:.1f}" y="{y:g}"'
        drawing.add(f'<text class="{f"mono {css}".rstrip()}" {place} {length}>{escaped(words[0])}</text>')


def main(arguments: Sequence[str]) -> int:
    out, only = Path(arguments[0]), arguments[1:]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        make(folder)
        for shot in SHOTS:
            if not only or shot.name in only:
                svg = picture(shot, folder)
                (out / f"{shot.name}.svg").write_text(svg, encoding="utf-8")
                print(f"{out / shot.name}.svg: {len(svg) / 1024:.0f} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
