"""Drawings of which row each column has something of, as SVG within HTML: the chunks that feed each batch.

As in :mod:`gzarr.display.drawing`, lines and texts have the colour of the text around. The size is bounded by the
numbers of rows, columns and marks.
"""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Final, NamedTuple

from .drawing import CHARACTER, COLOR, text

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Most rows, which are then just thick enough to be seen.
MOST_ROWS: Final = 120
#: Lengths in pixels: most of both sides, and of a column and a row.
_WIDTH: Final = 480.0
_HEIGHT: Final = 180.0
_COLUMN: Final = 24.0
_ROW: Final = 12.0
_TOP: Final = 4.0


class SizeScale(NamedTuple):
    """One side of the drawing.

    Attributes
    ----------
    number
        Number of columns or rows, at least 1.
    first, last
        Labels of the first and of the last one.
    cuts
        Columns or rows before which there is a line.
    """

    number: int
    first: str
    last: str
    cuts: tuple[int, ...] = ()


def marks(x: SizeScale, y: SizeScale, filled: Iterable[tuple[int, int]], title: str, description: str) -> str:
    """Draw a mark for each pair of a column and a row.

    Parameters
    ----------
    x, y
        The columns and the rows; at most ``MOST_ROWS`` rows.
    filled
        The pairs.
    title, description
        What the drawing shows, for those who do not see it.
    """
    column, row = min(_WIDTH / x.number, _COLUMN), min(_HEIGHT / y.number, _ROW)
    # Room for the labels of rows, and for both labels of columns, however few there are.
    left = max(len(y.first), len(y.last)) * CHARACTER + 8
    least = (len(x.first) + len(x.last) + 2) * CHARACTER
    width, height = column * x.number, row * y.number
    # Marks are lines as thick as a row, which take less text than rectangles.
    found = sorted(set(filled))
    path = "".join(f"M{left + i * column:.1f} {_TOP + (j + 0.5) * row:.1f}h{0.9 * column:.1f}" for i, j in found)
    cuts = "".join(f"M{left + i * column:.1f} {_TOP:.1f}v{height:.1f}" for i in x.cuts)
    cuts += "".join(f"M{left:.1f} {_TOP + j * row:.1f}h{width:.1f}" for j in y.cuts)
    bottom = _TOP + height
    texts = [
        text(left - 4, _TOP + 8, y.first, "end"),
        text(left, bottom + 13, x.first, "start"),
        text(left + max(width, least), bottom + 13, x.last, "end"),
    ]
    if y.number > 1:
        # At least a line of text below the first one.
        texts.append(text(left - 4, max(bottom, _TOP + 20), y.last, "end"))
    right, below = left + max(width, least) + 4, max(bottom, _TOP + 20) + 18
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{right:.0f}" height="{below:.0f}" '
        f'viewBox="0 0 {right:.0f} {below:.0f}" role="img" aria-label="{html.escape(title)}">'
        f"<title>{html.escape(title)}</title><desc>{html.escape(description)}</desc>"
        f'<path d="M{left:.1f} {_TOP:.1f}h{width:.1f}v{height:.1f}h-{width:.1f}Z{cuts}" fill="none" '
        'stroke="currentColor" stroke-width="0.6" stroke-opacity="0.7"/>'
        f'<path d="{path}" fill="none" stroke="{COLOR}" stroke-width="{max(0.9 * row, 1.2):.1f}"/>'
        f'<g fill="currentColor" font-size="10" font-family="sans-serif">{"".join(texts)}</g></svg>'
    )
