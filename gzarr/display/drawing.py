"""Drawings of chunk grids, as SVG within HTML: no scripts, no style sheets, nothing to be loaded.

Lines and texts have the colour of the text around them, and areas are half transparent, so that a drawing is legible in
light and dark themes. Its size is bounded, however many chunks there are.
"""

from __future__ import annotations

import html
import math
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from .text import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Protocol, TypeAlias

    class _ChunkAxis(Protocol):
        """The chunks along one dimension."""

        @property
        def size(self) -> int: ...
        def count_within(self, size: int) -> int: ...
        def begin(self, i: int) -> int: ...

    Point: TypeAlias = tuple[float, float]

#: Lengths in pixels: of the longest axis, of the shortest, of the other side of a single axis.
_LONGEST: Final = 150.0
_SHORTEST: Final = 14.0
_BAR: Final = 26.0
#: Smallest distance of lines in pixels.
_SPACING: Final = 3.0
#: Most groups of axes that are drawn.
_MOST_GROUPS: Final = 3
#: How an axis runs on the screen: the last one, the one before, and the one before that.
_DIRECTIONS: Final = ((1.0, 0.0), (0.0, 1.0), (0.5, -0.4))
COLOR: Final = "#3f8fd2"
#: Pixels of a character of a label.
CHARACTER: Final = 6.2


class Drawing(NamedTuple):
    """A drawing, and what it does not show.

    Attributes
    ----------
    svg
        Elements ``svg``, one after the other; ``""`` if there is nothing to draw.
    notes
        Sentences for below the drawing.
    """

    svg: str
    notes: tuple[str, ...]


class _Side(NamedTuple):
    """An axis on the screen.

    Attributes
    ----------
    label
        Name and length.
    direction
        Pixels on the screen for each pixel of ``length``.
    length
        Length in pixels.
    step
        Number of chunks (shards) that a line stands for.
    thick, thin
        Places of lines, in pixels.
    is_empty
        Whether there are no elements.
    hides_chunks
        Whether chunks within shards are too small to be drawn.
    """

    label: str
    direction: Point
    length: float
    step: int = 1
    thick: tuple[float, ...] = ()
    thin: tuple[float, ...] = ()
    is_empty: bool = False
    hides_chunks: bool = False

    def at(self, origin: Point, place: float) -> Point:
        """Return a point at some place along the side."""
        return origin[0] + self.direction[0] * place, origin[1] + self.direction[1] * place


def chunk_grid(
    axes: Sequence[_ChunkAxis], inner: Sequence[int] | None = None, names: Sequence[str | None] | None = None
) -> Drawing:
    """Draw a chunk grid.

    Parameters
    ----------
    axes
        The chunks (shards, in a sharded array) along each dimension.
    inner
        Shape of the inner chunks of shards, in elements; None without shards.
    names
        Name of each dimension.
    """
    notes: list[str] = []
    first = max(len(axes) - 3 * _MOST_GROUPS, 0)
    if first:
        notes.append(f"Only the last {3 * _MOST_GROUPS} of {len(axes)} dimensions are drawn.")
    longest = max((axis.size for axis in axes), default=0)
    sides = [
        _side(
            axis,
            None if inner is None else inner[d],
            None if names is None else names[d],
            longest,
            _DIRECTIONS[(len(axes) - 1 - d) % 3],
        )
        for d, axis in enumerate(axes[first:], first)
    ]
    step = max((side.step for side in sides), default=1)
    if step > 1:
        notes.append(f"A line stands for up to {step:,} {'chunks' if inner is None else 'shards'}.")
    if any(side.hides_chunks for side in sides):
        notes.append("Some chunks within shards are too small to be drawn.")
    # Groups of three from the end, so that the last three dimensions are one box.
    ends = [*range(len(sides), 0, -3), 0][::-1]
    svg = "".join(_group(sides[begin:end]) for begin, end in pairwise(ends))
    return Drawing(svg, tuple(notes))


def _side(axis: _ChunkAxis, inner: int | None, name: str | None, longest: int, direction: Point) -> _Side:
    size = axis.size
    label = f"{size:,}" if not name else f"{printable(name, 12)} {size:,}"
    if not size:
        return _Side(label, direction, _SHORTEST, is_empty=True)
    ratio = size / longest
    # Long thin arrays are drawn thicker than they are.
    shown = ratio if ratio > 0.25 else 0.25 * (4 * ratio) ** 0.4
    length = max(_LONGEST * shown, _SHORTEST)
    most = max(int(length * math.hypot(*direction) / _SPACING), 1)
    count = axis.count_within(size)
    # So many lines that they would be an area are halved.
    step = 1 if count <= most else _step(count, max(most // 2, 1))
    lines = _apart(axis.begin(i) / size * length for i in range(step, count, step))
    if inner is None:
        return _Side(label, direction, length, step, thin=lines)
    chunks = -(-size // inner)
    hides = chunks > max(most, count)
    within = range(1, chunks) if count < chunks <= most else ()
    thin = tuple(i * inner / size * length for i in within)
    return _Side(label, direction, length, step, thick=lines, thin=thin, hides_chunks=hides)


def _step(count: int, most: int) -> int:
    """Return the smallest of 1, 2, 5, 10, 20, 50, … that needs no more than a number of steps."""
    unit = 1
    while True:
        for step in (unit, 2 * unit, 5 * unit):
            if step * most >= count:
                return step
        unit *= 10


def _apart(places: Iterable[float]) -> tuple[float, ...]:
    """Leave out lines that would cover each other: chunks of a rectilinear grid may have any length."""
    found: list[float] = []
    for place in places:
        if not found or place - found[-1] >= 1:
            found.append(place)
    return tuple(found)


def _group(sides: Sequence[_Side]) -> str:
    """Draw one, two or three axes: a bar, a rectangle or a box."""
    x = sides[-1]
    y = sides[-2] if len(sides) > 1 else _Side("", _DIRECTIONS[1], _BAR)
    z = sides[0] if len(sides) == 3 else None
    deep = (0.0, 0.0) if z is None else z.at((0, 0), z.length)
    left = 18.0 if y.label else 4.0
    # The text beside a short side may be longer than it.
    beyond = max((len(y.label) * CHARACTER - y.length) / 2, 0.0)
    origin = (left, max(-deep[1], beyond) + 4)
    corner = x.at(origin, x.length)
    below = origin[1] + y.length
    empty = any(side.is_empty for side in sides)
    faces = [_face(origin, x, y, 0 if empty else 0.3)]
    texts = [text(left + x.length / 2, below + 13, x.label, "middle")]
    right = max(corner[0], left + (x.length + len(x.label) * CHARACTER) / 2)
    bottom = below + max(beyond, 18)
    if y.label:
        texts.append(text(left - 6, origin[1] + y.length / 2, y.label, "middle", turned=True))
    if z is not None:
        faces = [_face(origin, x, z, 0 if empty else 0.15), _face(corner, z, y, 0 if empty else 0.22), *faces]
        place = z.at((corner[0], below), z.length / 2)
        texts.append(text(place[0] + 6, place[1] + 9, z.label, "start"))
        right = max(corner[0] + deep[0], place[0] + 6 + len(z.label) * CHARACTER)
    label = html.escape(" × ".join(side.label for side in sides))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{right + 4:.0f}" height="{bottom:.0f}" '
        f'viewBox="0 0 {right + 4:.0f} {bottom:.0f}" role="img" aria-label="{label}" '
        'style="margin:0 8px 4px 0;vertical-align:bottom">'
        f'<g fill="none" stroke="currentColor" stroke-linejoin="round">{"".join(faces)}</g>'
        f'<g fill="currentColor" font-size="10" font-family="sans-serif">{"".join(texts)}</g></svg>'
    )


def _face(origin: Point, a: _Side, b: _Side, opacity: float) -> str:
    """Draw a face that two sides span from a corner; with an opacity of 0, only its dashed outline."""
    ends = [origin, a.at(origin, a.length), b.at(a.at(origin, a.length), b.length), b.at(origin, b.length)]
    outline = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in ends) + "Z"
    if not opacity:
        return f'<path d="{outline}" stroke-dasharray="3 3"/>'
    parts = [f'<path d="{outline}" fill="{COLOR}" fill-opacity="{opacity}" stroke-width="1.6"/>']
    for of_a, of_b, width in (
        (a.thin, b.thin, 'stroke-width="0.6" stroke-opacity="0.7"'),
        (a.thick, b.thick, 'stroke-width="1.6"'),
    ):
        lines = [_line(a.at(origin, place), b) for place in of_a] + [_line(b.at(origin, place), a) for place in of_b]
        if lines:
            parts.append(f'<path d="{"".join(lines)}" {width}/>')
    return "".join(parts)


def _line(begin: Point, along: _Side) -> str:
    x, y = along.at((0, 0), along.length)
    return f"M{begin[0]:.1f} {begin[1]:.1f}l{x:.1f} {y:.1f}"


def text(x: float, y: float, label: str, anchor: str, *, turned: bool = False) -> str:
    """Return a label, as SVG; ``anchor`` is what of it is at the place: its start, middle or end."""
    turn = f' transform="rotate(-90 {x:.1f} {y:.1f})"' if turned else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{turn}>{html.escape(label)}</text>'


def cells(rows: Sequence[str], columns: Sequence[str], filled: Iterable[tuple[int, int]]) -> str:
    """Draw a table of cells, some of them filled, as SVG: the wells of a plate.

    Parameters
    ----------
    rows, columns
        Names of the rows and of the columns.
    filled
        Row and column of each cell that is filled.
    """
    size, left, top = 15.0, 22.0, 14.0
    width, height = len(columns) * size, len(rows) * size
    # Cells beside each other are one rectangle: row, first column and number.
    runs: list[tuple[int, int, int]] = []
    for row, column in sorted(set(filled)):
        if runs and (row, column) == (runs[-1][0], runs[-1][1] + runs[-1][2]):
            runs[-1] = (row, runs[-1][1], runs[-1][2] + 1)
        else:
            runs.append((row, column, 1))
    area = "".join(
        f"M{left + column * size:.0f} {top + row * size:.0f}h{count * size:.0f}v{size:.0f}h{-count * size:.0f}Z"
        for row, column, count in runs
    )
    lines = "".join(f"M{left:.0f} {top + i * size:.0f}h{width:.0f}" for i in range(len(rows) + 1))
    lines += "".join(f"M{left + i * size:.0f} {top:.0f}v{height:.0f}" for i in range(len(columns) + 1))
    texts = [text(left - 4, top + (i + 0.7) * size, printable(row, 3), "end") for i, row in enumerate(rows)]
    texts += [
        text(left + (i + 0.5) * size, top - 4, printable(column, 3), "middle") for i, column in enumerate(columns)
    ]
    right, bottom = left + width + 2, top + height + 2
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{right:.0f}" height="{bottom:.0f}" '
        f'viewBox="0 0 {right:.0f} {bottom:.0f}" role="img" aria-label="{len(rows)} rows, {len(columns)} columns">'
        f'<path d="{area}" fill="{COLOR}" fill-opacity="0.4"/>'
        f'<path d="{lines}" fill="none" stroke="currentColor" stroke-width="0.6" stroke-opacity="0.7"/>'
        f'<g fill="currentColor" font-size="9" font-family="sans-serif">{"".join(texts)}</g></svg>'
    )
