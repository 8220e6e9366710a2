"""The picture in docs/architecture.md: the way of a chunk from its store to the result, on the CPU and on a GPU.

What it says is said at more length in ``docs/architecture.md`` and in the docstrings of ``gzarr/engines``.
"""

from __future__ import annotations

from pictures.drawing import MARGIN, WIDTH, Drawing

_TITLE = "The way of a chunk"
_ALT = (
    "The way of a chunk. gzarr.open reads the documents of a node, of any Zarr version, into one ArrayMetadata. "
    "a[selection] becomes a plan (for each chunk its coordinates, key, byte range, and box in the chunk and in "
    "the result) and a program (zstd, unshuffle, place). Local files are read by the loops that decode them; "
    "other stores by I/O threads, with up to 64 requests in progress, while others decode what has arrived. On "
    "the CPU, each thread runs one compiled loop, which reads, decodes, unshuffles and places chunk after chunk. "
    "On a GPU, chunks go in waves of about 64 MiB, up to three in flight, each on a stream of its own: host "
    "threads read and check into page-locked memory, then one copy, nvCOMP for a batch of frames, and kernels "
    "that undo filters; on the caller's stream, kernels unshuffle and place in the result. The host reads the "
    "next wave while the device decodes the last. Chunks that the device cannot decode are decoded by the CPU "
    "engine."
)
_STYLE = ".step text{font-size:11.5px}.read{fill-opacity:.28}"
_GAP = 20
_HALF = (WIDTH - 2 * MARGIN - _GAP) / 2


def _arrow(drawing: Drawing, x: float, y: float, to_y: float) -> None:
    drawing.line(x, y, x, to_y - 6, "arrow")
    drawing.add(f'<path class="tip" d="M{x:g} {to_y:g}l-4-7h8z"/>')


def _step(drawing: Drawing, x: float, y: float, width: float, label: str, css: str) -> None:
    """Draw a piece of work: its length stands for time, not to scale."""
    drawing.box(x, y, width - 2, 22, css, 3)
    drawing.text(x + width / 2 - 1, y + 15, label, "", "middle")


def _front(drawing: Drawing) -> float:
    """Draw what happens before any chunk is read; return where it ends."""
    y = 44.0
    full = WIDTH - 2 * MARGIN
    drawing.box(MARGIN, y, full, 46, radius=5)
    drawing.text(MARGIN + 12, y + 19, 'a = gzarr.open("x.zarr")', "mono")
    once = "once: find the node, read its documents; any version of Zarr becomes one ArrayMetadata"
    drawing.text(MARGIN + 12, y + 37, once, "soft")
    _arrow(drawing, MARGIN + 40, y + 46, y + 64)
    y += 64
    drawing.box(MARGIN, y, full, 76, radius=5)
    drawing.text(MARGIN + 12, y + 19, "a[selection]", "mono")
    drawing.text(MARGIN + 12, y + 42, "Plan", "name")
    plan = "for each chunk: coordinates · key · byte range · box in the chunk · box in the result"
    drawing.text(MARGIN + 84, y + 42, plan, "soft")
    drawing.text(MARGIN + 12, y + 64, "Program", "name")
    program = "for all chunks: zstd ▸ unshuffle ▸ place; a transpose is strides of the placing"
    drawing.text(MARGIN + 84, y + 64, program, "soft")
    return y + 76


def _stores(drawing: Drawing, y: float) -> float:
    """Draw where values are: either kind of store is read by either engine; return where the engines begin."""
    _arrow(drawing, MARGIN + 40, y, y + 18)
    drawing.box(MARGIN, y + 18, WIDTH - 2 * MARGIN, 44, radius=5)
    for x, title, text in (
        (MARGIN, "Files", "read by the threads that decode them"),
        (MARGIN + _HALF + _GAP, "Object stores, web servers, …", "64 requests in progress, in I/O threads"),
    ):
        drawing.text(x + 12, y + 36, title, "name")
        drawing.text(x + 12, y + 53, text, "soft")
        _arrow(drawing, x + 40, y + 62, y + 80)
    return y + 80


def _cpu(drawing: Drawing, y: float, height: float) -> None:
    x = MARGIN
    drawing.box(x, y, _HALF, height, radius=5)
    drawing.text(x + 12, y + 20, 'device="cpu"', "mono")
    drawing.text(x + 12, y + 38, "one compiled loop a thread, chunk after chunk,", "soft")
    drawing.text(x + 12, y + 53, "without the GIL, without Python", "soft")
    drawing.add('<g class="step">')
    works = (("read", 42, "b read"), ("decode", 62, "own read"), ("unshuffle", 64, "d read"), ("place", 44, "a read"))
    for thread in range(3):
        top, left = y + 72 + 34 * thread, x + 68
        drawing.text(x + 12, top + 15, f"thread {thread + 1}", "soft")
        for label, width, css in works:
            _step(drawing, left, top, width, label, css)
            left += width
        drawing.text(left + 4, top + 15, "…", "soft")
    drawing.add("</g>")
    for i, line in enumerate((
        "From other stores than files, the loops take what has",
        "arrived, while I/O threads fetch more.",
        "Codecs without compiled code run in Python threads.",
        "Writing runs the other way.",
    )):  # fmt: skip
        drawing.text(x + 12, y + 192 + 16 * i, line, "soft")


def _cuda(drawing: Drawing, y: float, height: float) -> None:
    x = MARGIN + _HALF + _GAP
    drawing.box(x, y, _HALF, height, radius=5)
    drawing.text(x + 12, y + 20, 'device="cuda"', "mono")
    drawing.text(x + 12, y + 38, "waves of about 64 MiB of decoded chunks,", "soft")
    drawing.text(x + 12, y + 53, "up to three in flight, each on its own stream", "soft")
    drawing.add('<g class="step">')
    left = x + 12
    begin, read = left + 56, 62.0
    drawing.text(left, y + 87, "host", "soft")
    for wave in range(3):
        _step(drawing, begin + read * wave, y + 72, read, f"read {wave + 1}", "b read")
    works = (("copy", 36, "c read"), ("nvCOMP", 56, "own read"))
    for wave in range(2):
        top, at = y + 106 + 34 * wave, begin + read * (wave + 1)
        drawing.text(left, top + 15, f"stream {wave + 1}", "soft")
        for label, width, css in works:
            _step(drawing, at, top, width, label, css)
            at += width
        _step(drawing, at, y + 174, 52 if not wave else 40, f"place {wave + 1}" if not wave else "…", "a read")
    drawing.text(left, y + 189, "caller's", "soft")
    drawing.add("</g>")
    for i, line in enumerate((
        "read: to page-locked memory, with checks of headers",
        "and checksums. What the device cannot decode, the",
        "CPU engine decodes. Not run on a GPU yet.",
    )):  # fmt: skip
        drawing.text(x + 12, y + 216 + 16 * i, line, "soft")


def picture() -> tuple[str, str]:
    """Return the picture, as SVG, and what it shows in words."""
    drawing = Drawing(_TITLE, _ALT, style=_STYLE)
    drawing.text(MARGIN, 28, _TITLE, "title")
    y = _stores(drawing, _front(drawing))
    height = 262.0
    _cpu(drawing, y, height)
    _cuda(drawing, y, height)
    y += height
    for x, title, text in (
        (MARGIN, "numpy.ndarray", "new, or your own (out=)"),
        (MARGIN + _HALF + _GAP, "cupy.ndarray", "new, or your own; ready on your stream"),
    ):
        _arrow(drawing, x + 40, y, y + 18)
        drawing.box(x, y + 18, _HALF, 44, radius=5)
        drawing.text(x + 12, y + 36, title, "mono")
        drawing.text(x + 12, y + 53, text, "soft")
    return drawing.svg(y + 62 + MARGIN), _ALT
