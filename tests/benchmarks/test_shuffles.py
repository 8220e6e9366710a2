"""The picture of shuffling and the simulation of its quality: of real orders, and what is committed is theirs."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import numpy as np
import pytest

import gzarr
from gzarr.loader import Loader
from gzarr.stores import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PICTURE = ROOT / "docs" / "figures" / "shuffling.svg"
FIGURES = ROOT / "benchmarks" / "results" / "2026-11-25-shuffle-quality.txt"


@pytest.fixture(scope="module")
def harness() -> Iterator[SimpleNamespace]:
    """Import the scripts; their directory is on the path for this module only."""
    names = ("shuffles", "pictures.shuffling", "shuffle_quality")
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        yield SimpleNamespace(**{name.rpartition(".")[2]: importlib.import_module(name) for name in names})
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))


@pytest.mark.filterwarnings("ignore:shuffling is coarse")
@pytest.mark.parametrize("shuffle", ["blocks", "full", False])
def test_orders_are_those_of_a_loader(harness, shuffle):
    array = gzarr.create_array(MemoryStore(), shape=(3000, 8), chunks=(20, 8), dtype="u1", device="cpu")
    loader = Loader(array, batch_size=50, shuffle=shuffle, seed=5, buffer_bytes=600 * 8)
    for epoch in range(2):
        given = np.concatenate([batch.samples for batch in loader])
        assert np.array_equal(harness.shuffles.ours(shuffle, 150, 20, 600, seed=5, epoch=epoch), given)


def test_other_ways_give_every_sample_once_as_they_should(harness):
    shuffles = harness.shuffles
    everything = np.arange(400)
    through = shuffles.through_buffer(everything, 50, 1)
    fetched = shuffles.fetched(40, 10, 8, 1)
    for samples in (through, fetched, shuffles.shuffled(everything, 1), shuffles.chunks_shuffled(40, 10, 1)):
        assert np.array_equal(np.sort(samples), everything)
        assert not np.array_equal(samples, everything)
    # A sample cannot be given out before the buffer has it, and stays for as many as the buffer holds, in the mean.
    stay = np.argsort(through) - (everything - 50)
    assert stay.min() > 0
    assert stay[50:300].mean() == pytest.approx(50, rel=0.15)
    for i in range(0, 400, 80):
        assert len(np.unique(fetched[i : i + 80] // 10)) == 8


def test_the_picture_shows_the_orders(harness):
    """Each stroke is where its sample is: they are read back from the file."""
    svg = ElementTree.parse(PICTURE).getroot()
    name = "{http://www.w3.org/2000/svg}"
    groups = svg.findall(f"{name}g")
    panels = harness.shuffling.panels()
    assert len(groups) == len(panels) == 6
    for group, panel in zip(groups, panels, strict=True):
        chunks = np.full(len(panel.samples), -1)
        for path in group.findall(f"{name}path"):
            x = y = 0
            for stroke in path.attrib["d"].split("v1")[:-1]:
                dx, dy = stroke[1:].replace("-", " -").split()
                x, y = x + int(dx), y + int(dy)
                chunks[x] = y
                y += 1
        assert np.array_equal(chunks, panel.samples // 16)


def test_chunks_are_decoded_as_often_as_the_loader_says(harness):
    """For each way of the loader's."""
    picture = harness.shuffling
    shape, chunks = (2560, picture.SAMPLE_BYTES), (16, picture.SAMPLE_BYTES)
    array = gzarr.create_array(MemoryStore(), shape=shape, chunks=chunks, dtype="u1", device="cpu")
    ways = {0: False, 3: "blocks", 4: "blocks", 5: "full"}
    for panel, shuffle in ways.items():
        buffer = picture.SMALL if panel == 3 else picture.DEFAULT
        said = Loader(array, batch_size=64, shuffle=shuffle, buffer_bytes=buffer, seed=1).explain()
        assert picture.panels()[panel].decoded == pytest.approx(said.amplification, rel=0.1)


def test_the_picture_says_what_it_shows(harness):
    svg, words = harness.shuffling.picture()
    assert ElementTree.fromstring(svg).findtext("{http://www.w3.org/2000/svg}desc") == words
    assert "each of the 2560 samples" in words
    assert all(panel.note in words for panel in harness.shuffling.panels())


def test_entropy_of_random_batches_is_exact(harness):
    labels = np.random.default_rng(0).integers(0, 6, 24 * 20_000)
    measured = harness.shuffle_quality.entropies(labels, 1, 6, 24).mean()
    assert harness.shuffle_quality.entropy_of_random(6, 24) == pytest.approx(measured, abs=0.004)
    assert harness.shuffle_quality.entropy_of_random(6, 1) == 0


def test_published_figures_are_as_the_formula_says(harness):
    """From 16 blocks on, where there are more of them than classes."""
    quality = harness.shuffle_quality
    figures = [(64 * fetch // block, quality.SCDATASET_RANDOM - h) for (block, fetch), h in quality.SCDATASET.items()]
    figures += [(16384 // chunk, quality.ANNBATCH_RANDOM - h) for chunk, h in quality.ANNBATCH.items()]
    assert len(figures) == 30
    for groups, lost in figures:
        if groups >= 16:
            assert lost == pytest.approx(quality.predicted(14, groups), rel=0.2, abs=0.02), groups


def test_what_others_do_loses_what_they_published(harness):
    quality = harness.shuffle_quality
    for (block, fetch), entropy in quality.SCDATASET.items():
        if block == 16 and fetch <= 64:
            samples = harness.shuffles.fetched(4000 * fetch, block, 4 * fetch, 1)[: 64 * 4000]
            found = quality.entropy_of_random(14, 64) - quality.entropies(samples, block, 14, 64).mean()
            assert found == pytest.approx(quality.SCDATASET_RANDOM - entropy, abs=0.06), (block, fetch)


@pytest.mark.slow  # Orders of many millions of samples.
@pytest.mark.parametrize("table", ["batch", "formula", "others"])
def test_figures_are_what_the_script_makes(harness, table, capsys):
    assert harness.shuffle_quality.main(["--table", table]) == 0
    made = capsys.readouterr().out.strip()
    assert made.startswith(f"== {table}")
    assert made in FIGURES.read_text()


def test_all_tables_are_made(harness, capsys):
    assert harness.shuffle_quality.main(["--batches", "64"]) == 0
    assert [line[3:] for line in capsys.readouterr().out.splitlines() if line.startswith("==")] == [
        "batch",
        "formula",
        "others",
        "published",
        "defaults",
    ]
