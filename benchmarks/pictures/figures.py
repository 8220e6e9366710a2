"""The figures of the README and the pages, from the newest results.

    ci/figures

Each figure is made from the newest file in ``benchmarks/results`` that has its name, such as
``2026-11-26-read-cpu.json``, and is written to ``docs/figures``. Wherever a page shows a figure, the text that stands
for it is replaced, too. So a new result needs nothing but its file and this command. A test compares the figures with
the results.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pictures.bars
import pictures.chunk
import pictures.dots
import pictures.shuffling
from pictures.results import RESULTS, Figure, Result

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

ROOT = Path(__file__).resolve().parents[2]
FIGURES = ROOT / "docs" / "figures"

#: The figures of results.
OF_RESULTS: Mapping[str, Callable[[Result], Figure]] = {
    "read": pictures.dots.read,
    "write": pictures.dots.write,
    "remote": pictures.dots.remote,
    "remote-defaults": pictures.dots.remote,
    "zarr-pipeline": pictures.dots.zarr_pipeline,
    "loader": pictures.dots.loader,
    "imaging": pictures.bars.imaging,
    "map-blocks": pictures.bars.map_blocks,
    "dask-scaling": pictures.bars.dask_scaling,
    "layouts": pictures.dots.layouts,
}


def all_figures(results: Path = RESULTS) -> list[Figure]:
    """Return all figures; those of results that are not there are left out."""
    found = []
    for name, draw in OF_RESULTS.items():
        result = Result.newest(name, results)
        if result is not None:
            found.append(draw(result))
    found.append(Figure("shuffling", *pictures.shuffling.picture()))
    found.append(Figure("chunk", *pictures.chunk.picture()))
    return found


def pages(root: Path = ROOT) -> list[Path]:
    """Return the pages that may show figures."""
    return [root / "README.md", *sorted((root / "docs").rglob("*.md"))]


def texts(folder: Path = FIGURES) -> dict[str, str]:
    """Return what the pictures in a folder show, by their names."""
    found = {}
    for file in sorted(folder.glob("*.svg")):
        described = ElementTree.parse(file).getroot().findtext("{http://www.w3.org/2000/svg}desc")
        found[file.stem] = described or ""
    return found


def with_texts(page: str, by_name: Mapping[str, str]) -> str:
    """Return a page in Markdown with the texts that stand for pictures."""
    for name, text in by_name.items():
        # Brackets within the text come in pairs.
        old = r"(?:[^\[\]]|\[[^\[\]]*\])*"
        shown = re.compile(rf"!\[{old}\]\(([^()\s]*figures/{re.escape(name)}\.svg)\)")
        page = shown.sub(lambda match, text=text: f"![{text}]({match[1]})", page)  # type: ignore[misc]
    return page


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of results (benchmarks/results)")
    parser.add_argument("--out", type=Path, help="folder to write to; without it, docs/figures and the pages")
    options = parser.parse_args(arguments)
    drawn = all_figures(options.results)
    folder = options.out or FIGURES
    folder.mkdir(parents=True, exist_ok=True)
    for figure in drawn:
        (folder / f"{figure.name}.svg").write_text(figure.svg, encoding="utf-8")
        print(f"{folder / figure.name}.svg: {len(figure.svg) / 1024:.0f} kB")
    for page in [] if options.out else pages():
        old = page.read_text(encoding="utf-8")
        new = with_texts(old, texts())
        if new != old:
            page.write_text(new, encoding="utf-8")
            print(f"{page.relative_to(ROOT)}: texts of figures")
    return 0


if __name__ == "__main__":
    sys.exit(main())
