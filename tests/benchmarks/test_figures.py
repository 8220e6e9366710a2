"""The figures of the pages: they are those of the results, show what the results say, and can be seen everywhere."""

from __future__ import annotations

import hashlib
import importlib
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
FIGURES = ROOT / "docs" / "figures"
SVG = "{http://www.w3.org/2000/svg}"
#: Scripts that this imports, which have names that others may have, too.
MODULES = {"pictures", "report", "rivals", "shuffles", "workloads"}


@pytest.fixture(scope="module")
def figures() -> Iterator[Any]:
    """Import the scripts; their directory is on the path for this module only."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        yield importlib.import_module("pictures.figures")
    for name in [name for name in sys.modules if name.partition(".")[0] in MODULES]:
        del sys.modules[name]


@pytest.fixture(scope="module")
def drawn(figures: Any) -> dict[str, Any]:
    return {figure.name: figure for figure in figures.all_figures()}


def test_the_figures_are_those_of_the_newest_results(drawn: dict[str, Any]) -> None:
    """If this fails: run ``ci/figures``."""
    for name, figure in drawn.items():
        assert (FIGURES / f"{name}.svg").read_text("utf-8") == figure.svg, name
    # No figure is left over.
    others = {file.stem for file in FIGURES.iterdir() if not file.stem.startswith("terminal-")}
    assert others == {*drawn, "pyramid", "poses"}


def test_every_result_has_its_figure(figures: Any, drawn: dict[str, Any]) -> None:
    of_results = {re.sub(r"^[\d-]{11}|-cpu$", "", file.stem) for file in figures.RESULTS.glob("*-cpu.json")}
    assert of_results <= set(drawn)


@pytest.mark.parametrize("name", ["read", "write", "zarr-pipeline", "remote", "remote-defaults"])
def test_a_figure_shows_the_ratios_that_the_benchmark_found(figures: Any, drawn: dict[str, Any], name: str) -> None:
    result = figures.Result.newest(name)
    wanted = []
    for workload in result.data["workloads"]:
        found = workload["times_fastest_peer"]
        wanted.append(found["given"] if isinstance(found, dict) else found)
    texts = [text.text for text in ElementTree.fromstring(drawn[name].svg).iter(f"{SVG}text")]
    shown = sorted(float(text.rstrip("×")) for text in texts if re.fullmatch(r"\d+(\.\d+)?×?", text or "") and
                   text not in {f"{tick:g}" for tick in (0.1, 0.2, 0.5, 0.05, 1, 2, 4, 8)})  # fmt: skip
    assert shown == pytest.approx(sorted(wanted), abs=0.0051)


@pytest.mark.parametrize("name", ["read", "write"])
def test_the_fused_pipeline_of_zarr_python_counts(figures: Any, name: str) -> None:
    dots = importlib.import_module("pictures.dots")
    result = figures.Result.newest(name)
    data = json.loads(json.dumps(result.data))
    for workload in data["workloads"]:
        # As fast as twice the fastest of all: every ratio changes.
        fastest = min(one["median_ms"] for one in workload["rivals"].values() if one.get("median_ms"))
        workload["rivals"]["zarr-python fused"]["median_ms"] = fastest / 2
    for shown in (getattr(dots, name)(result), getattr(dots, name)(figures.Result(name, result.file, data))):
        assert "its fused pipeline" in shown.svg
        assert f"zarr-python {data['versions']['zarr']} and its fused pipeline:" in shown.alt
    assert float(re.search(r"gzarr is ([\d.]+) times", shown.alt)[1]) <= 0.5  # type: ignore[index]


def test_dots_are_where_their_values_are(figures: Any) -> None:
    charts = importlib.import_module("pictures.charts")
    chart = charts.Chart("title", "alt", "source")
    series = [charts.Series("x", "x", "circle", "own")]
    rows = [charts.Row(str(value), {"x": value}) for value in (0.1, 1, 10, 0.01, 100)]
    svg = chart.dots(series, [[charts.Panel("", rows)]], between=(0.1, 10), labels=100, texts=(), axis="")
    marks = [path.attrib["d"] for path in ElementTree.fromstring(svg).iter(f"{SVG}path") if path.get("class") == "own"]
    # The first is that of the legend.
    places = [float(re.match(r"M([\d.]+) ", mark)[1]) for mark in marks[1:]]  # type: ignore[index]
    left, right = 116, 720 - 16 - 8
    assert places == [left, (left + right) / 2, right, left - 2, right + 2]
    shapes = [mark.split("m", 1)[1] for mark in marks]
    assert len({*shapes[:4]}) == 1
    assert len({shapes[3], shapes[4], shapes[5]}) == 3


def test_bars_are_as_long_as_their_values(figures: Any) -> None:
    charts = importlib.import_module("pictures.charts")
    groups = [charts.Bars("one", [("a", 4.0, "own"), ("b", 1.0, "bar")]), charts.Bars("two", [("c", 2.0, "bar")])]
    for shared, wanted in ((True, [4, 1, 2]), (False, [4, 1, 4])):
        svg = charts.Chart("", "", "").bars(groups, columns=2, labels=80, unit="s", axis="", shared=shared)
        bars = [r for r in ElementTree.fromstring(svg).iter(f"{SVG}rect") if r.get("class") in ("own", "bar")]
        lengths = [float(bar.attrib["width"]) for bar in bars]
        assert [length / lengths[0] * 4 for length in lengths] == pytest.approx(wanted, abs=0.01)
        assert [bar.attrib["class"] for bar in bars] == ["own", "bar", "bar"]


def test_the_newest_results_are_taken(figures: Any, tmp_path: Path) -> None:
    for day, loss in (("22", 1), ("23", 2)):
        times = {"read": {"1": {"gzarr": 0.5, "zarr-python": float(loss)}}}
        data = {"times": times, "machine": {"cpu": "X", "cores": 3}}
        (tmp_path / f"2026-11-{day}-dask-scaling-cpu.json").write_text(json.dumps(data))
    (tmp_path / "2026-11-24-dask-scaling-other-cpu.json").write_text("not this")
    assert figures.main(["--results", str(tmp_path), "--out", str(tmp_path / "out")]) == 0
    text = (tmp_path / "out" / "dask-scaling.svg").read_text("utf-8")
    digest = hashlib.sha256((tmp_path / "2026-11-23-dask-scaling-cpu.json").read_bytes()).hexdigest()
    assert f"2026-11-23-dask-scaling-cpu.json sha256:{digest}" in text
    assert "4.00 times as fast" in text
    assert "X, 3 cores" in text
    assert not (tmp_path / "out" / "read.svg").exists()


def test_figures_are_small_and_need_nothing_else() -> None:
    for file in FIGURES.iterdir():
        text = file.read_text("utf-8")
        svg = ElementTree.fromstring(text)
        # Thousands of strokes, one for each sample.
        assert file.stat().st_size < (150_000 if file.stem == "shuffling" else 60_000), file.name
        assert "prefers-color-scheme:dark" in text
        assert svg.findtext(f"{SVG}desc")
        assert not re.findall(r"@import|url\(|(?:https?:)//(?!www\.w3\.org/2000/svg)", text), file.name
        links = [value for one in svg.iter() for name, value in one.attrib.items() if name.endswith("href")]
        assert all(link.startswith("data:image/png;base64,") for link in links), file.name
        assert not re.findall(r"/(?:tmp|home|root|work)/", re.sub(r"base64,[^\"]*", "", text)), file.name


def test_pages_show_figures_that_exist_with_their_texts(figures: Any) -> None:
    """If the texts differ: run ``ci/figures``."""
    shown = set()
    for page in figures.pages():
        text = page.read_text("utf-8")
        assert figures.with_texts(text, figures.texts(FIGURES)) == text, page.name
        for alt, target in re.findall(r"!\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^()\s]*figures/[^()\s]*)\)", text):
            assert alt
            assert (page.parent / target).resolve().is_file(), f"{page.name}: {target}"
            shown.add(Path(target).stem)
    assert shown == {file.stem for file in FIGURES.iterdir()}


def test_texts_of_figures_are_replaced(figures: Any) -> None:
    page = "[link](x) ![old [1]](docs/figures/read.svg) ![old](docs/figures/reads.svg) ![old](other/read.svg)"
    new = "[link](x) ![two [times]](docs/figures/read.svg) ![old](docs/figures/reads.svg) ![old](other/read.svg)"
    assert figures.with_texts(page, {"read": "two [times]"}) == new
    assert figures.with_texts(new, {"read": "two [times]"}) == new
