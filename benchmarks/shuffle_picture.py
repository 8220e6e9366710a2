"""The picture of shuffling in docs/loader.md: which chunk each sample of an epoch came from.

    python benchmarks/shuffle_picture.py docs/shuffling.svg

The array has 160 chunks of 16 samples of 384 KiB, 960 MiB in all. Beside each way to shuffle stands how many chunks a
batch comes from, in the mean, and how often a chunk is decoded by reads of half of the buffer (by the shuffle buffers
of others, once).
"""

from __future__ import annotations

import argparse
import itertools
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import shuffles

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from gzarr.loader.order import Shuffle

    IntArray = npt.NDArray[np.int64]

CHUNKS, CHUNK, SAMPLE_BYTES = 160, 16, 384 << 10
BATCH = 64
SMALL, DEFAULT = 64 << 20, 256 << 20
#: The batch that stands out.
SHOWN = 20
_SEED = 1

_WIDTH, _HEIGHT = 840, 560
_PANEL = (248.0, 192.0)
_STYLE = """
svg { color-scheme: light dark; font-family: system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif }
.page { fill: #ffffff } .frame { fill: #f6f8fa; stroke: #d0d7de }
text { fill: #1f2328; font-size: 13px } .small { font-size: 11.5px; fill: #59636e } .name { font-weight: 600 }
.dot { fill: none; stroke: #0969da } .shown { fill: none; stroke: #d1540a }
@media (prefers-color-scheme: dark) {
 .page { fill: #0d1117 } .frame { fill: #151b23; stroke: #3d444d }
 text { fill: #f0f6fc } .small { fill: #9198a1 } .dot { stroke: #4493f8 } .shown { stroke: #ffa657 }
}
"""


@dataclass(frozen=True)
class Panel:
    """One way to shuffle.

    Attributes
    ----------
    name, note
        What stands above it.
    samples
        int64 ``(n,)``, the samples of an epoch in their order.
    decoded
        How often a chunk is decoded in an epoch, in the mean.
    """

    name: str
    note: str
    samples: IntArray
    decoded: float

    @property
    def chunks(self) -> IntArray:
        """The chunk of each sample."""
        return self.samples // CHUNK

    @property
    def chunks_a_batch(self) -> float:
        """How many chunks a batch comes from, in the mean."""
        batches = self.chunks[: len(self.samples) // BATCH * BATCH].reshape(-1, BATCH)
        return float(np.mean([len(np.unique(batch)) for batch in batches]))


def _ours(name: str, note: str, shuffle: Shuffle, buffer_bytes: int) -> Panel:
    order = shuffles.order(shuffle, CHUNKS, CHUNK, buffer_bytes // SAMPLE_BYTES, seed=_SEED)
    samples = order.samples(np.arange(order.count))
    bounds = order.bounds.tolist()
    decoded = sum(len(np.unique(samples[a:b] // CHUNK)) for a, b in itertools.pairwise(bounds))
    # What two neighbouring reads share is decoded for both.
    return Panel(name, note, samples, decoded / CHUNKS)


def panels() -> list[Panel]:
    """Return the ways to shuffle."""
    count, small = CHUNKS * CHUNK, SMALL // SAMPLE_BYTES
    in_order = shuffles.through_buffer(np.arange(count), small, _SEED, 1)
    at_random = shuffles.through_buffer(shuffles.chunks_shuffled(CHUNKS, CHUNK, _SEED, 2), small, _SEED, 3)
    return [
        _ours("shuffle=False", "no shuffling", False, DEFAULT),
        Panel("a shuffle buffer of others", "64 MiB, chunks in order", in_order, 1.0),
        Panel("a shuffle buffer of others", "64 MiB, chunks in random order", at_random, 1.0),
        _ours('shuffle="blocks"', "buffer_bytes of 64 MiB", "blocks", SMALL),
        _ours('shuffle="blocks"', "buffer_bytes of 256 MiB, the default", "blocks", DEFAULT),
        _ours('shuffle="full"', "buffer_bytes of 256 MiB, the default", "full", DEFAULT),
    ]


def _path(places: IntArray, chunks: IntArray) -> str:
    """Return the path of one upright stroke for each sample, as long as a chunk is high."""
    steps = np.diff(places, prepend=0), np.diff(chunks, prepend=0)
    parts, at = [], 0
    for x, y in zip(steps[0].tolist(), steps[1].tolist(), strict=True):
        # Each stroke has moved the pen by one.
        dy = y - at
        parts.append(f"m{x}{'' if dy < 0 else ' '}{dy}v1")
        at = 1
    return "".join(parts)


def _drawn(panel: Panel, x: float, y: float) -> str:
    width, height = _PANEL
    places, chunks = np.arange(len(panel.samples)), panel.chunks
    shown = places // BATCH == SHOWN
    scale = f"translate({x:g} {y:g}) scale({width / len(places):.6g} {height / CHUNKS:g})"
    stroke = 1.2 * len(places) / width
    return "\n".join([
        f'<text class="name" x="{x:g}" y="{y - 24:g}">{panel.name}</text>',
        f'<text class="small" x="{x:g}" y="{y - 8:g}">{panel.note}</text>',
        f'<rect class="frame" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"/>',
        f'<g transform="{scale}" stroke-width="{stroke:.1f}">',
        f'<path class="dot" d="{_path(places[~shown], chunks[~shown])}"/>',
        f'<path class="shown" stroke-width="{2 * stroke:.1f}" d="{_path(places[shown], chunks[shown])}"/></g>',
        f'<text class="small" x="{x:g}" y="{y + height + 16:g}">a batch of {panel.chunks_a_batch:.0f} chunks, '
        f"decoded {panel.decoded:.1f} times</text>",
    ])  # fmt: skip


def described(drawn: Sequence[Panel]) -> str:
    """Return what the picture shows in words."""
    each = "; ".join(
        f"{panel.name} ({panel.note}): a batch from {panel.chunks_a_batch:.0f} chunks, each decoded "
        f"{panel.decoded:.1f} times"
        for panel in drawn
    )
    return f"Which of {CHUNKS} chunks each of the {CHUNKS * CHUNK} samples of an epoch came from. {each}."


def picture() -> str:
    """Return the picture, as SVG."""
    drawn = panels()
    boxes = []
    for i, panel in enumerate(drawn):
        boxes.append(_drawn(panel, 40 + (i % 3) * (_PANEL[0] + 16), 58 + (i // 3) * (_PANEL[1] + 64)))
    legend = _HEIGHT - 18
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        'aria-labelledby="title desc">',
        "<title id=\"title\">Shuffling: which chunk each sample of an epoch came from</title>",
        f'<desc id="desc">{described(drawn).replace(chr(34), "&quot;")}</desc>',
        f"<style>{_STYLE}</style>",
        f'<rect class="page" width="{_WIDTH}" height="{_HEIGHT}"/>',
        *boxes,
        f'<text class="small" transform="translate(30 {58 + _PANEL[1] / 2:g}) rotate(-90)" text-anchor="middle">'
        "chunk</text>",
        f'<text class="small" transform="translate(30 {58 + 1.5 * _PANEL[1] + 64:g}) rotate(-90)" '
        'text-anchor="middle">chunk</text>',
        f'<path class="dot" stroke-width="8" d="M40 {legend - 4}h8"/>',
        f'<text class="small" x="54" y="{legend}">a sample: its time in the epoch, to the right, and its chunk</text>',
        f'<path class="shown" stroke-width="8" d="M430 {legend - 4}h8"/>',
        f'<text class="small" x="444" y="{legend}">the samples of one batch of {BATCH}</text>',
        "</svg>\n",
    ])  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    options = parser.parse_args(arguments)
    options.file.write_text(picture(), encoding="utf-8")
    print(described(panels()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
