"""The picture of shuffling in docs/mixing.md: which chunk each sample of an epoch came from.

    ci/figures

The array has 160 chunks of 16 samples of 384 KiB, 960 MiB in all. Beside each way to shuffle stands how many chunks a
batch comes from, in the mean, and how often a chunk is decoded by reads of half of the buffer (by the shuffle buffers
of others, once).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import shuffles

from pictures.drawing import COLOURS, Drawing

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

_PANEL = (218.0, 180.0)
_STYLE = ".dot{fill:none;stroke:%s}.shown{fill:none;stroke:%s}"
#: The samples of an epoch, and those of the batch that stands out.
_DOTS = "".join([
    _STYLE % (COLOURS["own"][0], COLOURS["a"][0]),
    f"@media(prefers-color-scheme:dark){{{_STYLE % (COLOURS['own'][1], COLOURS['a'][1])}}}",
])  # fmt: skip


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


def _draw(drawing: Drawing, panel: Panel, x: float, y: float) -> None:
    width, height = _PANEL
    places, chunks = np.arange(len(panel.samples)), panel.chunks
    shown = places // BATCH == SHOWN
    scale = f"translate({x:g} {y:g}) scale({width / len(places):.6g} {height / CHUNKS:g})"
    stroke = 1.2 * len(places) / width
    drawing.text(x, y - 24, panel.name, "name")
    drawing.text(x, y - 8, panel.note, "soft")
    drawing.box(x, y, width, height)
    drawing.add(
        f'<g transform="{scale}" stroke-width="{stroke:.1f}">'
        f'<path class="dot" d="{_path(places[~shown], chunks[~shown])}"/>'
        f'<path class="shown" stroke-width="{2 * stroke:.1f}" d="{_path(places[shown], chunks[shown])}"/></g>'
    )
    text = f"{panel.chunks_a_batch:.0f} chunks a batch, decoded {panel.decoded:.1f}×"
    drawing.text(x, y + height + 16, text, "soft")


def described(drawn: Sequence[Panel]) -> str:
    """Return what the picture shows in words."""
    each = "; ".join(
        f"{panel.name} ({panel.note}): a batch from {panel.chunks_a_batch:.0f} chunks, each decoded "
        f"{panel.decoded:.1f} times"
        for panel in drawn
    )
    return f"Which of {CHUNKS} chunks each of the {CHUNKS * CHUNK} samples of an epoch came from. {each}."


def picture() -> tuple[str, str]:
    """Return the picture, as SVG, and what it shows in words."""
    drawn = panels()
    words = described(drawn)
    drawing = Drawing("Shuffling: which chunk each sample of an epoch came from", words, style=_DOTS)
    width, height = _PANEL
    for i, panel in enumerate(drawn):
        _draw(drawing, panel, 34 + (i % 3) * (width + 8), 54 + (i // 3) * (height + 66))
    for row in range(2):
        y = 54 + (row + 0.5) * height + row * 66
        drawing.add(f'<text class="soft" transform="translate(24 {y:g}) rotate(-90)" text-anchor="middle">chunk</text>')
    bottom = 54 + 2 * height + 66 + 44
    drawing.add(f'<path class="dot" stroke-width="8" d="M34 {bottom - 4:g}h8"/>')
    drawing.text(48, bottom, "a sample: its time in the epoch, to the right, and its chunk", "soft")
    drawing.add(f'<path class="shown" stroke-width="8" d="M404 {bottom - 4:g}h8"/>')
    drawing.text(418, bottom, f"the samples of one batch of {BATCH}", "soft")
    return drawing.svg(bottom + 14), words
