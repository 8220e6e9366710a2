"""SVG of all pictures: one style, for light and dark pages.

Colours follow ``prefers-color-scheme``, which in a page is the scheme of the element that shows the picture. Each
picture has a background of its own, so it is legible where a page is dark and its reader's system is not. Text is text,
in the fonts of the reader's system. Nothing depends on the time, the machine or a package: the same data give the same
bytes.
"""

from __future__ import annotations

import html
from dataclasses import dataclass, field

WIDTH = 720
MARGIN = 16

_FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, Helvetica, Arial, sans-serif'
MONOSPACE = 'ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", "Liberation Mono", monospace'
#: Class: colours on light and on dark pages.
COLOURS = {
    "page": ("#ffffff", "#0d1117"),
    "box": ("#f6f8fa", "#151b23"),
    "line": ("#d1d9e0", "#3d444d"),
    "text": ("#1f2328", "#f0f6fc"),
    "soft": ("#59636e", "#9198a1"),
    "bar": ("#afb8c1", "#59636e"),
    # Of series: gzarr, then the others.
    "own": ("#0969da", "#4493f8"),
    "own2": ("#8cb8ee", "#1f4f94"),
    "a": ("#bc4c00", "#ffa657"),
    "b": ("#8250df", "#bc8cff"),
    "c": ("#59636e", "#9198a1"),
    "d": ("#1a7f37", "#3fb950"),
}
_FILLED = ("page", "bar", "own", "own2", "a", "b", "c", "d")


def _colours(dark: bool) -> str:
    colour = {name: both[dark] for name, both in COLOURS.items()}
    rules = [f".{name}{{fill:{colour[name]}}}.{name}-o{{fill:{colour['page']};stroke:{colour[name]}}}"
             for name in _FILLED]  # fmt: skip
    rules += [
        f".box{{fill:{colour['box']};stroke:{colour['line']}}}",
        f".line{{stroke:{colour['line']}}}",
        f".arrow{{stroke:{colour['soft']}}}.tip{{fill:{colour['soft']}}}",
        f".limit{{stroke:{colour['text']}}}",
        f"text{{fill:{colour['text']}}}.soft{{fill:{colour['soft']}}}.strong{{fill:{colour['own']}}}",
    ]
    return "".join(rules)


STYLE = (
    f"svg{{color-scheme:light dark;font-family:{_FONT};font-size:12.5px}}"
    ".title{font-size:15px;font-weight:600}.soft{font-size:11.5px}.strong,.name{font-weight:600}"
    f".mono{{font-family:{MONOSPACE}}}"
    ".line,.arrow{fill:none}.limit{fill:none;stroke-width:2}[class$='-o']{stroke-width:1.6}"
    f"{_colours(False)}@media(prefers-color-scheme:dark){{{_colours(True)}}}"
)

# Around the point that the pen has been moved to.
_MARKS = {
    "circle": "m-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0z",
    "dot": "m-2.5 0a2.5 2.5 0 1 0 5 0a2.5 2.5 0 1 0-5 0z",
    "diamond": "m-5 0l5-5l5 5l-5 5z",
    "triangle": "m-4.7 4l4.7-8l4.7 8z",
    "square": "m-3.8-3.8h7.6v7.6h-7.6z",
    "limit": "m0-7v14",
    "before": "m5-4l-5 4l5 4z",
    "beyond": "m-5-4l5 4l-5 4z",
}


def number(value: float) -> str:
    """Return a coordinate, as short as it can be."""
    return f"{value:.1f}".rstrip("0").rstrip(".")


def escaped(text: str) -> str:
    """Return text as it stands between tags and in attributes."""
    return html.escape(text, quote=True)


@dataclass
class Drawing:
    """A picture that is drawn from the top to the bottom.

    Attributes
    ----------
    title
        What it is called.
    alt
        What it shows, in words.
    source
        What it was made from; ``""`` for nothing but the code.
    width
        Width in pixels.
    style
        Rules of style beside those of all pictures.
    """

    title: str
    alt: str
    source: str = ""
    width: float = WIDTH
    style: str = ""
    _parts: list[str] = field(default_factory=list)

    def add(self, markup: str) -> None:
        """Add markup."""
        self._parts.append(markup)

    def text(self, x: float, y: float, text: str, css: str = "", anchor: str = "", more: str = "") -> None:
        """Write a line of text. ``anchor`` is ``""`` (its beginning is at x), ``"middle"`` or ``"end"``."""
        attributes = f' class="{css}"' if css else ""
        attributes += f' text-anchor="{anchor}"' if anchor else ""
        self.add(f'<text x="{number(x)}" y="{number(y)}"{attributes}{more}>{escaped(text)}</text>')

    def line(self, x: float, y: float, to_x: float, to_y: float, css: str = "line", more: str = "") -> None:
        """Draw a straight line."""
        at = f'd="M{number(x)} {number(y)}L{number(to_x)} {number(to_y)}"'
        self.add(f'<path class="{css}" {at}{more}/>')

    def box(self, x: float, y: float, width: float, height: float, css: str = "box", radius: float = 0) -> None:
        """Draw a box."""
        corner = f' rx="{number(radius)}"' if radius else ""
        size = f'width="{number(width)}" height="{number(height)}"'
        self.add(f'<rect class="{css}" x="{number(x)}" y="{number(y)}" {size}{corner}/>')

    def mark(self, x: float, y: float, shape: str, css: str) -> None:
        """Draw a mark of a series."""
        self.add(f'<path class="{css}" d="M{number(x)} {number(y)}{_MARKS[shape]}"/>')

    def svg(self, height: float) -> str:
        """Return the picture."""
        size = f'width="{number(self.width)}" height="{number(height)}"'
        source = f"<metadata>{escaped(self.source)}</metadata>" if self.source else ""
        return "\n".join([
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {number(self.width)} {number(height)}" {size} '
            'role="img" aria-labelledby="title desc">',
            f'<title id="title">{escaped(self.title)}</title>',
            f'<desc id="desc">{escaped(self.alt)}</desc>{source}',
            f"<style>{STYLE}{self.style}</style>",
            f'<rect class="page" {size} rx="6"/>',
            *self._parts,
            "</svg>\n",
        ])  # fmt: skip
