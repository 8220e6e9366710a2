"""Charts of results: dots on a scale of ratios, and bars from zero."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pictures.drawing import MARGIN, WIDTH, Drawing

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 4, 8, 16)
_DECADES = (0.1, 1, 10, 100, 1000)
# Width of a character in the widest of the fonts.
_CHARACTER = 7.0


@dataclass(frozen=True)
class Series:
    """A library, or one way to use it.

    Attributes
    ----------
    key
        Its name in the data.
    label
        Its name in the legend.
    shape
        Its mark: see ``drawing``.
    css
        The class of its colour.
    """

    key: str
    label: str
    shape: str
    css: str


@dataclass(frozen=True)
class Row:
    """A row of dots: values by the key of their series, and texts at its end, of which the first stands out."""

    label: str
    values: Mapping[str, float]
    texts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Panel:
    """Rows below a title; the rows of panels that stand side by side have the same labels."""

    title: str
    rows: Sequence[Row]


@dataclass(frozen=True)
class Bars:
    """Bars below a title: label, value and class of colour, of which ``"own"`` stands out."""

    title: str
    bars: Sequence[tuple[str, float, str]]


@dataclass
class Chart:
    """What all charts have.

    Attributes
    ----------
    title, alt, source
        See ``drawing.Drawing``.
    about
        Lines below the title.
    caption
        Lines below the chart.
    """

    title: str
    alt: str
    source: str
    about: Sequence[str] = ()
    caption: Sequence[str] = ()
    _drawing: Drawing = field(init=False)
    _y: float = field(init=False, default=0)

    def __post_init__(self) -> None:
        self._drawing = Drawing(self.title, self.alt, self.source)

    def _begin(self) -> None:
        self._y = 28
        self._drawing.text(MARGIN, self._y, self.title, "title")
        for line in self.about:
            self._y += 18
            self._drawing.text(MARGIN, self._y, line, "soft")
        self._y += 12

    def _end(self) -> str:
        self._y += 8
        for line in self.caption:
            self._y += 16
            self._drawing.text(MARGIN, self._y, line, "soft")
        return self._drawing.svg(self._y + 14)

    def _legend(self, series: Sequence[Series]) -> None:
        x = float(MARGIN)
        self._y += 12
        for one in series:
            width = 18 + _CHARACTER * len(one.label) + 14
            if x + width - 14 > WIDTH - MARGIN:
                x, self._y = MARGIN, self._y + 19
            self._drawing.mark(x + 5, self._y - 4, one.shape, one.css)
            self._drawing.text(x + 16, self._y, one.label)
            x += width
        self._y += 10

    # -- dots ------------------------------------------------------------------------------------------------------

    def dots(
        self,
        series: Sequence[Series],
        tiers: Sequence[Sequence[Panel]],
        *,
        between: tuple[float, float],
        labels: float,
        texts: Sequence[float],
        axis: str,
        legend: int | None = None,
        ratios: bool = True,
    ) -> str:
        """Return a chart of dots on a logarithmic scale.

        Parameters
        ----------
        series
            In the order of the legend; the first is drawn last, on top of the others.
        tiers
            Panels that stand side by side, tier below tier.
        between
            Ends of the scale. What lies beyond is an arrowhead at the end.
        labels
            Width of the labels, in pixels.
        texts
            Widths of the texts at the end of a row.
        axis
            What the scale is.
        legend
            How many series the legend has; None for all.
        ratios
            Whether values are ratios: a line marks 1.
        """
        self._begin()
        self._legend(series[:legend])
        for panels in tiers:
            self._tier(series, panels, between, labels, texts, ratios)
            self._y += 14
        self._drawing.text(MARGIN + labels, self._y, axis, "soft")
        return self._end()

    def _tier(
        self,
        series: Sequence[Series],
        panels: Sequence[Panel],
        between: tuple[float, float],
        labels: float,
        texts: Sequence[float],
        ratios: bool,
    ) -> None:
        gap, step = 14.0, 20.0
        each = (WIDTH - 2 * MARGIN - labels - gap * (len(panels) - 1)) / len(panels)
        scale = each - sum(texts) - 8
        top = self._y + (22 if panels[0].title else 8)
        bottom = top + step * len(panels[0].rows)
        for i, row in enumerate(panels[0].rows):
            self._drawing.text(MARGIN + labels - 10, top + step * (i + 0.5) + 4, row.label, anchor="end")
        for number, panel in enumerate(panels):
            left = MARGIN + labels + number * (each + gap)
            if panel.title:
                self._drawing.text(left, top - 8, panel.title, "name")
            self._scale(left, scale, top, bottom, between, ratios)
            for i, row in enumerate(panel.rows):
                y = top + step * (i + 0.5)
                for one in reversed(series):
                    if one.key in row.values:
                        self._dot(one, row.values[one.key], left, scale, y, between)
                at = left + scale + 8
                for width, text, css in zip(texts, row.texts, ("strong", "soft", "soft"), strict=False):
                    self._drawing.text(at + (width if css == "strong" else 0), y + 4, text, css,
                                       "end" if css == "strong" else "")  # fmt: skip
                    at += width + 8
        self._y = bottom + 16

    def _scale(
        self, left: float, width: float, top: float, bottom: float, between: tuple[float, float], ratios: bool
    ) -> None:
        for tick in _TICKS if ratios else _DECADES:
            if between[0] <= tick <= between[1]:
                x = left + width * _place(tick, between)
                one = ratios and tick == 1
                dashes = ' style="stroke-width:1;stroke-dasharray:2 3"' if one else ""
                self._drawing.line(x, top, x, bottom, "limit" if one else "line", dashes)
                self._drawing.text(x, bottom + 14, f"{tick:g}", "soft", "middle")

    def _dot(
        self, one: Series, value: float, left: float, width: float, y: float, between: tuple[float, float]
    ) -> None:
        place = _place(value, between)
        if place < 0:
            self._drawing.mark(left - 2, y, "before", one.css.removesuffix("-o"))
        elif place > 1:
            css = "c" if one.css == "limit" else one.css.removesuffix("-o")
            self._drawing.mark(left + width + 2, y, "beyond", css)
        else:
            self._drawing.mark(left + width * place, y, one.shape, one.css)

    # -- bars ------------------------------------------------------------------------------------------------------

    def bars(
        self, groups: Sequence[Bars], *, columns: int, labels: float, unit: str, axis: str, shared: bool = True
    ) -> str:
        """Return a chart of bars that begin at zero, group beside group; all have one scale if it is ``shared``."""
        self._begin()
        gap, step = 24.0, 19.0
        each = (WIDTH - 2 * MARGIN - gap * (columns - 1)) / columns
        longest = max(value for group in groups for _, value, _ in group.bars)
        for first in range(0, len(groups), columns):
            tier = groups[first : first + columns]
            top = self._y + 22
            for number, group in enumerate(tier):
                left = MARGIN + number * (each + gap)
                most = longest if shared else max(value for _, value, _ in group.bars)
                self._drawing.text(left, top - 8, group.title, "name")
                for i, (label, value, css) in enumerate(group.bars):
                    y = top + step * i
                    length = max(1.0, (each - labels - 48) * value / most)
                    self._drawing.text(left + labels - 8, y + 13, label, "strong" if css == "own" else "", "end")
                    self._drawing.box(left + labels, y + 2, length, step - 5, css, 2)
                    self._drawing.text(left + labels + length + 6, y + 13, f"{figures(value)} {unit}", "soft")
                self._drawing.line(left + labels, top, left + labels, top + step * len(group.bars))
            self._y = top + step * max(len(group.bars) for group in tier) + 10
        self._y += 8
        self._drawing.text(MARGIN, self._y, axis, "soft")
        return self._end()


def _place(value: float, between: tuple[float, float]) -> float:
    """Return where a value is on a logarithmic scale: 0 at its beginning, 1 at its end."""
    low, high = map(math.log, between)
    return (math.log(value) - low) / (high - low)


def figures(value: float) -> str:
    """Return a number with two digits behind the point, or three figures in all."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"
