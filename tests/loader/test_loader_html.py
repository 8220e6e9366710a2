"""HTML of loaders in notebooks: what it says, that it is well-formed and small, and that the picture is the order's."""

from __future__ import annotations

import re
import time
import xml.etree.ElementTree as ElementTree
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.counting_store import CountingStore

import gzarr
from gzarr.loader import Loader, Patches, Rows, Sampler, Windows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gzarr.loader import Geometry, Samples

pytestmark = pytest.mark.filterwarnings("ignore:shuffling is coarse")

SVG = "{http://www.w3.org/2000/svg}"
#: Nothing that runs, loads or leads anywhere.
ELEMENTS = {"div", "b", "table", "thead", "tbody", "tr", "th", "td", "code"}
ELEMENTS |= {SVG + name for name in ("svg", "title", "desc", "g", "path", "text")}
MOST_BYTES = 60 << 10


def parsed(loader: Loader) -> ElementTree.Element:
    """Return the HTML of a loader, which is well-formed XML, harmless and small."""
    text = loader._repr_html_()
    assert len(text.encode()) < MOST_BYTES
    root = ElementTree.fromstring(text)
    for element in root.iter():
        assert element.tag in ELEMENTS
        for name, value in element.attrib.items():
            assert not name.startswith("on")
            assert name not in ("href", "src")
            assert "url" not in value
    return root


def facts(root: ElementTree.Element) -> dict[str, str]:
    """Return the second cell of each row by its first one."""
    rows = [["".join(cell.itertext()) for cell in row] for row in root.iter("tr")]
    return {row[0]: row[1] for row in rows if len(row) > 1}


def caption(root: ElementTree.Element) -> str:
    return ["".join(div.itertext()) for div in root.iter("div")][-1]


def marks(root: ElementTree.Element) -> dict[int, set[int]]:
    """Return the rows of the picture that each column has a mark in."""
    svg = next(root.iter(f"{SVG}svg"))
    frame, drawn = (path.attrib["d"] for path in svg.iter(f"{SVG}path"))
    left, top, width, height = map(float, re.findall(r"[\d.]+", frame)[:4])
    found: dict[int, set[int]] = {}
    places = re.findall(r"M([\d.]+) ([\d.]+)h([\d.]+)", drawn)
    # Each of up to 120 chunks has a row.
    total = int(re.findall(r"; ([\d,]+) chunks from top", "".join(svg.itertext()))[0].replace(",", ""))
    column, row = float(places[0][2]) / 0.9, height / min(total, 120)
    for x, y, _ in places:
        found.setdefault(round((float(x) - left) / column), set()).add(int((float(y) - top) / row))
    assert max(found) < round(width / column)
    assert set().union(*found.values()) <= set(range(min(total, 120)))
    return found


def table(rows: int = 1200, chunk: int = 20, store: Any = None) -> gzarr.Array:
    data = np.arange(rows * 2, dtype="i4").reshape(rows, 2)
    return gzarr.create_array(CountingStore() if store is None else store, data=data, chunks=(chunk, 2), device="cpu")


@pytest.mark.parametrize("shuffle", ["blocks", "full", False])
@pytest.mark.parametrize(("rank", "world_size"), [(0, 1), (1, 2)])
def test_the_picture_is_what_is_given_out(shuffle: Any, rank: int, world_size: int) -> None:
    loader = Loader(
        table(), batch_size=10, shuffle=shuffle, seed=3, buffer_bytes=1600, rank=rank, world_size=world_size
    )
    for _ in range(2):
        root = parsed(loader)
        epoch = loader.next_epoch
        assert facts(root)["Next epoch"] == str(epoch)
        drawn = marks(root)
        given = [{n // 20 for n in batch.samples.tolist()} for batch in loader]
        assert drawn == dict(enumerate(given[: len(drawn)]))
        # Of as many batches as there are, or the first ones.
        assert len(drawn) == min(len(given), 64)
        assert f"batches 1 to {len(drawn)} of {len(given)}" in caption(root)
        first = re.findall(r"come from (\d+) chunk", "".join(root.itertext()))
        assert first == [str(len(given[0]))]


def test_it_tells_the_facts() -> None:
    arrays = {"x": table(), "y": table(1200, 40)}
    loader = Loader(arrays, Rows(), batch_size=8, buffer_bytes=1 << 20, rank=1, world_size=2, streams=8)
    root = parsed(loader)
    found = facts(root)
    explanation = loader.explain()
    assert found["x"] == "(1200, 2)"
    assert "(40, 2)" in "".join(root.itertext())
    assert found["Samples"] == "1,200 of 16 bytes"
    assert found["Sampler"] == repr(Rows())
    assert found["Batches"] == f"{len(loader)} of 8 of rank 1 of 2"
    assert found["Shuffle"] == "'blocks'"
    assert found["Device"] == "cpu"
    assert found["Buffer"] == "1.0 MiB (1,048,576 bytes)"
    assert found["Amplification"].startswith(f"{explanation.amplification:.2f}: ")
    assert f"R = {explanation.mixing.groups:.0f} " in found["Mixing"]
    for line in str(explanation).splitlines():
        if line.startswith("memory"):
            assert found["Memory"].partition(", ")[0] in line.replace("memory: ", "")


def test_it_is_accessible_and_has_no_colour_of_its_own_for_texts() -> None:
    svg = next(parsed(Loader(table(), batch_size=8)).iter(f"{SVG}svg"))
    assert svg.attrib["role"] == "img"
    assert [child.tag for child in svg][:2] == [f"{SVG}title", f"{SVG}desc"]
    assert svg[0].text == svg.attrib["aria-label"]
    colours = {e.attrib[name] for e in svg.iter() for name in ("fill", "stroke") if name in e.attrib}
    # Texts and lines are those of the page, light or dark; marks are legible on both.
    assert colours == {"none", "currentColor", "#3f8fd2"}


def test_text_of_users_is_escaped() -> None:
    name = "<script>alert('&')</script>\x1b\"" + "x" * 500
    text = Loader({name: table()}, batch_size=8)._repr_html_()
    assert "<script" not in text
    assert "\x1b" not in text
    parsed(Loader({name: table()}, batch_size=8))

    class Own(Sampler):
        def bind(self, arrays: Mapping[str, Geometry], most_bytes: int) -> Samples:
            return Patches((16, 2)).bind(arrays, most_bytes)

        def __repr__(self) -> str:
            return "<img src=x>" * 1000

    loader = Loader(table(), Own(), batch_size=8)
    assert facts(parsed(loader))["Sampler"].startswith("<img src=x>")
    assert "<img" not in loader._repr_html_()


@pytest.mark.parametrize("shuffle", ["blocks", "full", False])
@pytest.mark.parametrize("sampler", [Rows(), Windows(0, {"x": (0, 3)}), Patches((16, 2), jitter=True, pad=None)])
def test_nothing_is_read(shuffle: Any, sampler: Sampler) -> None:
    store = CountingStore()
    loader = Loader(table(store=store), sampler, batch_size=8, shuffle=shuffle)
    state = loader.state_dict()
    store.asked.clear()
    parsed(loader)
    assert not store.asked
    # Nor does it begin an epoch.
    assert loader.state_dict() == state


def test_several_volumes_are_below_each_other() -> None:
    volumes = [{"a": table(200)}, {"a": table(600)}, {"a": table(400)}]
    loader = Loader(volumes, batch_size=16, shuffle=False, drop_last=False)
    root = parsed(loader)
    assert "and as many of 2 more volumes" in "".join(root.itertext())
    assert "60 chunks from top to bottom" in "".join(root.itertext())
    assert "volumes below each other" in caption(root)
    drawn = marks(root)
    firsts = np.array([0, 200, 800])
    for i, batch in zip(range(len(drawn)), loader, strict=False):
        own = batch.samples - firsts[batch.volumes]
        assert drawn[i] == set((np.array([0, 10, 40])[batch.volumes] + own // 20).tolist())


def test_it_goes_on_where_the_loader_does() -> None:
    loader = Loader(table(), batch_size=16, seed=1)
    batches = iter(loader)
    for _ in range(5):
        next(batches)
    resumed = Loader(table(), batch_size=16, seed=1)
    resumed.load_state_dict(loader.state_dict())
    root = parsed(resumed)
    assert facts(root)["Next epoch"] == "0, from batch 6 on"
    assert "batches 6 to 69 of 75" in caption(root)
    assert f"come from {len(set((next(batches).samples // 20).tolist()))} chunk" in "".join(root.itertext())
    # The next epoch of the first one is another one.
    assert facts(parsed(loader))["Next epoch"] == "1"


@pytest.mark.parametrize("shuffle", ["blocks", "full", False])
@pytest.mark.parametrize(
    ("shape", "chunks", "batch_size", "drawn"),
    [
        ((10**9, 10), (10**4, 10), 256, True),
        ((10**9, 10), (10**4, 10), 10**6, True),
        ((10**9, 10**4), (10**4, 10**4), 256, True),
        # The order of so many groups takes long.
        ((10**9, 10), (1000, 10), 256, False),
    ],
)
def test_large_ones_are_small_and_quick(
    shape: tuple[int, ...], chunks: tuple[int, ...], batch_size: int, drawn: bool, shuffle: Any
) -> None:
    array = gzarr.create_array({}, shape=shape, chunks=chunks, dtype="f4", device="cpu")
    loader = Loader(array, batch_size=batch_size, shuffle=shuffle)
    parsed(loader)
    started = time.perf_counter()
    root = parsed(loader)
    # Some 0.03 s; on a busy machine, several times as much.
    assert time.perf_counter() - started < 1
    assert bool(list(root.iter(f"{SVG}svg"))) == (drawn or shuffle != "blocks")
    if drawn or shuffle != "blocks":
        assert "batches 1 to 8 of" in caption(root)
        assert ("256 samples of each" in caption(root)) == (batch_size > 256)


def test_several_windows_and_samples_by_weight() -> None:
    steps = Windows(0, steps={"x": (0, 7, 25)})
    weighed = Rows(weights=np.arange(1200.0))
    for sampler in (steps, weighed):
        loader = Loader(table(), sampler, batch_size=10, seed=3, buffer_bytes=1 << 14)
        drawn = marks(parsed(loader))
        given = [set((batch.origins[:, 0] // 20).tolist()) for batch in loader]
        assert drawn == dict(enumerate(given[: len(drawn)]))
