"""The figures of the README and the pages, from the newest results.

    ci/figures

Each figure is made from the newest file in ``benchmarks/results`` that has its name, such as
``2026-11-22-read-cpu.json``, and is written to ``docs/figures``. Wherever a page shows a figure, the text that stands
for it is replaced, too. So a new result needs nothing but its file and this command. A test compares the figures with
the results.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import statistics
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import chunk_picture
import shuffle_picture
from charts import Bars, Chart, Panel, Row, Series, figures
from report import geometric_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
FIGURES = ROOT / "docs" / "figures"
#: Options of commands that name files of the machine that ran them.
_PATHS = re.compile(r" --(json|plot|data)[ =]\S+")

_ARROWHEADS = "An arrowhead at an end: beyond the scale."
_RATIO = "times the speed of the fastest other library (1); logarithmic, faster to the right"
_FROM_ZERO = "seconds, from 0; shorter is better"
_ZARR, _ZARRS, _TENSORSTORE = ("square", "c"), ("triangle", "b"), ("diamond", "a")


@dataclass(frozen=True)
class Result:
    """A file of results.

    Attributes
    ----------
    name
        Name of the benchmark, such as ``"read"``.
    file
        The file.
    data
        Its content.
    """

    name: str
    file: Path
    data: Any

    @classmethod
    def newest(cls, name: str, folder: Path = RESULTS) -> Result | None:
        """Return the newest results of a benchmark, or None if there are none."""
        dated = re.compile(rf"\d{{4}}-\d\d-\d\d-{re.escape(name)}-cpu\.json")
        files = sorted(file for file in folder.iterdir() if dated.fullmatch(file.name))
        return cls(name, files[-1], json.loads(files[-1].read_text())) if files else None

    @property
    def source(self) -> str:
        """The file and its checksum, as it stands in the figure."""
        return f"{self.file.name} sha256:{hashlib.sha256(self.file.read_bytes()).hexdigest()}"

    def version(self, package: str) -> str:
        """Return a package and its version."""
        return f"{package} {self.data.get('versions', {}).get(package, '')}".rstrip()

    def caption(self, *more: str) -> list[str]:
        """Return what, where and when it was measured."""
        data = self.data
        command = _PATHS.sub("", data.get("command") or f"python benchmarks/{self.name.replace('-', '_')}.py")
        where = [self._machine(), f"{data['threads']} threads" if "threads" in data else ""]
        rounds = f"median of {data['rounds']} rounds" if "rounds" in data else ""
        own = self.version("gzarr") if "gzarr" in data.get("versions", {}) else ""
        facts = filter(None, [command, *where, rounds, own, self.file.name[:10]])
        return [*wrapped(facts), *more]

    def _machine(self) -> str:
        machine = self.data.get("machine")
        if machine is not None:
            # Processors write their names in several ways.
            cpu = re.sub(r"\((R|TM)\)| Processor", "", machine.get("cpu") or machine["processor"])
            python = f", Python {machine['python']}" if "python" in machine else ""
            return f"{cpu}, {machine['cores']} cores{python}"
        table = self.file.with_suffix(".txt")
        lines = table.read_text().splitlines()[:3] if table.exists() else []
        return next((line for line in lines if "cores" in line or "processors" in line), "")


@dataclass(frozen=True)
class Figure:
    """A figure: its name, its SVG, and what it shows, in words."""

    name: str
    svg: str
    alt: str


def wrapped(parts: Iterable[str], width: int = 100) -> list[str]:
    """Return parts joined by dots, in lines; longer ones go on in the next line."""
    lines: list[str] = []
    for part in parts:
        if lines and len(lines[-1]) + 3 + len(part) <= width:
            lines[-1] += f" · {part}"
        else:
            lines += textwrap.wrap(part, width, break_long_words=False, break_on_hyphens=False)
    return lines


def ratios(times: Mapping[str, float], peers: Iterable[str]) -> dict[str, float]:
    """Return speeds as multiples of the fastest peer's, from times."""
    fastest = min(times[peer] for peer in peers if peer in times)
    return {name: fastest / time for name, time in times.items()}


def ratio(value: float) -> str:
    """Return a ratio with its sign."""
    return f"{value:.2f}×" if value < 10 else f"{value:.0f}×"


def summary(values: Mapping[str, float]) -> str:
    """Return the mean of ratios and their ends, with the names of the rows."""
    low, high = min(values, key=values.__getitem__), max(values, key=values.__getitem__)
    mean = geometric_mean(list(values.values()))
    return (
        f"{mean:.2f} times as fast as the fastest other library in the geometric mean of {len(values)} rows, "
        f"from {values[low]:.2f} ({low}) to {values[high]:.2f} ({high})"
    )


def _mean(values: Iterable[float]) -> str:
    return f"{geometric_mean(list(values)):.2f}"


# -- dots --------------------------------------------------------------------------------------------------------------


def _medians(rivals: Mapping[str, Any]) -> dict[str, float]:
    return {name: one["median_ms"] for name, one in rivals.items() if one.get("median_ms") is not None}


def read(result: Result) -> Figure:
    """Return the figure of reading into host memory."""
    series = [
        Series("gzarr fresh", "gzarr, results in new memory", "circle", "own"),
        Series("gzarr recycled", "gzarr by default: memory of freed results is used again", "circle", "own-o"),
        Series("tensorstore", result.version("tensorstore"), *_TENSORSTORE),
        Series("zarrs", result.version("zarrs"), *_ZARRS),
        Series("zarr-python", f"zarr-python {result.data['versions']['zarr']}", *_ZARR),
        Series("limit", "limit: the C decoder alone", "limit", "limit"),
    ]
    rows, own, recycled = [], {}, []
    for workload in result.data["workloads"]:
        times = _medians(workload["rivals"])
        found = ratios(times, ("zarrs", "tensorstore", "zarr-python"))
        own[workload["workload"]] = found["gzarr fresh"]
        recycled.append(found["gzarr recycled"])
        texts = ratio(found["gzarr fresh"]), f"{_ms(times['gzarr fresh'])} ms"
        rows.append(Row(workload["workload"], found, texts))
    alt = f"Reading beside {_names(series[2:5])}: with results in new memory, gzarr is {summary(own)}."
    return _ratios(
        "read", result, alt, series, [[Panel("", rows)]],
        title=f"Reading into host memory: {_mean(own.values())} times the fastest other library",
        about=[f"Geometric mean of {len(rows)} workloads with results in new memory, as all others have them; "
               f"{_mean(recycled)} by default."],
        between=(0.1, 8), labels=158, texts=(40, 62),
    )  # fmt: skip


def write(result: Result) -> Figure:
    """Return the figure of writing."""
    series = [
        Series("given", "gzarr at the level of the others", "circle", "own"),
        Series("automatic", "gzarr at a level of its choice", "circle", "own-o"),
        Series("tensorstore", result.version("tensorstore"), *_TENSORSTORE),
        Series("zarrs", result.version("zarrs"), *_ZARRS),
        Series("zarr-python", f"zarr-python {result.data['versions']['zarr']}", *_ZARR),
        Series("limit", "limit: the C encoder alone", "limit", "limit"),
    ]
    rows, own, automatic = [], {}, []
    for workload in result.data["workloads"]:
        times = _medians(workload["rivals"])
        found = ratios(times, ("zarrs", "tensorstore", "zarr-python"))
        own[workload["workload"]] = found["given"]
        automatic.append(found["automatic"])
        rows.append(Row(workload["workload"], found, (ratio(found["given"]), f"{_ms(times['given'])} ms")))
    alt = f"Writing beside {_names(series[2:5])}: at the same level of compression, gzarr is {summary(own)}."
    return _ratios(
        "write", result, alt, series, [[Panel("", rows)]],
        title=f"Writing to files: {_mean(own.values())} times the fastest other library",
        about=[f"Geometric mean of {len(rows)} whole arrays at the level of compression of the others; "
               f"{_mean(automatic)} if gzarr may choose it."],
        between=(0.1, 4), labels=158, texts=(40, 62),
    )  # fmt: skip


def remote(result: Result) -> Figure:
    """Return the figure of reading over HTTP."""
    version = result.data["versions"]
    zarr = f"zarr-python {version['zarr']}"
    known = [
        Series("gzarr", "gzarr", "circle", "own"),
        Series("tensorstore", result.version("tensorstore"), *_TENSORSTORE),
        Series("zarr+obstore", f"{zarr}, obstore {version['obstore']}", "square", "c"),
        Series("zarr+fsspec", f"{zarr}, fsspec {version['fsspec']}", "square", "c-o"),
        Series("zarrs+obstore", f"zarrs {version.get('zarrs', '')}, obstore", "triangle", "b"),
        Series("zarrs+fsspec", "zarrs, fsspec", "triangle", "b-o"),
        Series("limit", "limit: 64 plain sockets", "limit", "limit"),
    ]
    present = {name for workload in result.data["workloads"] for name in workload["rounds"]}
    series = [one for one in known if one.key in present]
    panels: dict[tuple[float, float], list[Row]] = {}
    own: dict[str, dict[str, float]] = {}
    for workload in result.data["workloads"]:
        times = {
            name: statistics.median(one["seconds"] for one in rounds)
            for name, rounds in workload["rounds"].items()
            if rounds
        }
        found = ratios(times, [name for name in times if name not in ("gzarr", "limit")])
        delay, bandwidth = float(workload["latency_ms"]), float(workload["bandwidth"] or 0)
        row = Row(workload["workload"], found, (f"{found['gzarr']:.2f}",))
        panels.setdefault((bandwidth, delay), []).append(row)
        own.setdefault(f"{delay:g} ms", {})[f"{workload['workload']}, {_wire(bandwidth)}"] = found["gzarr"]
    tiers = [
        [Panel(f"{delay:g} ms, {_wire(bandwidth)}", panels[key]) for key in sorted(panels) if key[0] == bandwidth
         for delay in [key[1]]]
        for bandwidth in sorted({key[0] for key in panels})
    ]  # fmt: skip
    defaults = "defaults" in result.name
    parallel = "everyone with their own defaults" if defaults else "64 requests in progress for everyone"
    by_delay = "; ".join(f"{delay} a request: {summary(values)}" for delay, values in own.items())
    means = ", ".join(f"{_mean(values.values())} at {delay}" for delay, values in own.items())
    return _ratios(
        result.name, result, f"Reading over HTTP, {parallel}. gzarr, where the server takes {by_delay}.", series, tiers,
        title="Reading over HTTP, beside the fastest other library",
        about=[f"Geometric means of gzarr: {means} a request; {parallel}."],
        between=(0.1, 4), labels=128, texts=(28,),
    )  # fmt: skip


def zarr_pipeline(result: Result) -> Figure:
    """Return the figure of codec pipelines of zarr-python."""
    series = [
        Series("gzarr", "zarr-python with gzarr", "circle", "own"),
        Series("gzarr alone", "gzarr without zarr-python", "circle", "own-o"),
        Series("zarrs", f"with {result.version('zarrs')}", *_ZARRS),
        Series("fused", f"zarr-python {result.data['versions']['zarr']}, fused", "diamond", "a"),
        Series("default", "its default", "square", "c"),
    ]
    rows, own = [], {}
    for workload in result.data["workloads"]:
        times = {name: statistics.median(ms) for name, ms in workload["rounds_ms"].items() if ms}
        found = ratios(times, ("zarrs", "fused", "default"))
        label = f"{workload['dataset']}, {workload['workload']}"
        own[label] = found["gzarr"]
        rows.append(Row(label, found, (ratio(found["gzarr"]), f"{_ms(times['gzarr'])} ms")))
    return _ratios(
        "zarr-pipeline", result, f"Codec pipelines of zarr-python: with gzarr's, it is {summary(own)}.", series,
        [[Panel("", rows)]],
        title=f"Inside zarr-python: {_mean(own.values())} times the fastest other codec pipeline",
        about=[f"Geometric mean of {len(rows)} reads and writes of local files."],
        between=(0.05, 4), labels=180, texts=(40, 62),
    )  # fmt: skip


#: The scenarios of the benchmark of loaders, in the words of docs/loader.md.
SCENARIOS = {
    "grid": "64³ on a grid",
    "grid, shards": "the same, sharded",
    "random": "64³ at given places",
    "random, shards": "the same, sharded",
    "rows, chunk 1": "images, 1 a chunk",
    "rows, chunk 32": "images, 32 a chunk",
    "table": "rows of a table",
    "table, shards": "the same, sharded",
    "windows, 1 step": "runs, 1 step a chunk",
    "windows, 8 steps": "runs, 8 steps a chunk",
}


def loader(result: Result) -> Figure:
    """Return the figure of loaders."""
    rows, own, others = [], {}, set()
    for scenario in result.data["scenarios"]:
        rates = {name: one["samples_per_s"] for name, one in scenario["loaders"].items() if one.get("samples_per_s")}
        rivals = {name: rate for name, rate in rates.items() if not name.startswith("gzarr")}
        others |= {name.removesuffix(" 2").removesuffix(" cache") for name in rivals}
        fastest = max(rivals, key=rivals.__getitem__)
        # Where the loader may choose the places itself, it does less work than its rivals.
        ways = {"listed": "gzarr listed"} if "gzarr listed" in rates else {"fresh": "gzarr fresh", "again": "gzarr"}
        shown = {way: rates[name] / rivals[fastest] for way, name in ways.items()}
        rest = sorted((rate / rivals[fastest] for name, rate in rivals.items()), reverse=True)
        # Dots, one series each, since a row has one value of a series.
        values = {**shown, **{f"rival {i}": value for i, value in enumerate(rest)}}
        quoted = shown.get("fresh", shown.get("listed", 1))
        own[scenario["scenario"]] = quoted
        label = SCENARIOS.get(scenario["scenario"], scenario["scenario"])
        rows.append(Row(label, values, (ratio(quoted), fastest.replace(" 2", ", 2 workers").replace(" c", ", c"))))
    most = max(len(row.values) for row in rows)
    series = [
        Series("fresh", "gzarr, in new memory", "circle", "own"),
        Series("again", "gzarr by default", "circle", "own-o"),
        Series("listed", "gzarr at given places (by default)", "circle", "d"),
        *(Series(f"rival {i}", "another loader; the fastest is named", "dot", "c") for i in range(most)),
    ]
    about = [f"Samples a second; geometric mean of {len(rows)} kinds of samples. The other loaders:"]
    about += wrapped(sorted(others, key=str.lower))
    return _ratios(
        "loader", result, f"Batches for training: gzarr.Loader is {summary(own)}.", series, [[Panel("", rows)]],
        title=f"Batches for training: {_mean(own.values())} times the fastest other loader",
        about=about, between=(0.05, 4), labels=150, texts=(40, 116), legend=4,
    )  # fmt: skip


def _ratios(
    name: str,
    result: Result,
    alt: str,
    series: Sequence[Series],
    tiers: Sequence[Sequence[Panel]],
    *,
    title: str,
    about: Sequence[str],
    between: tuple[float, float],
    labels: float,
    texts: Sequence[float],
    legend: int | None = None,
) -> Figure:
    chart = Chart(title, alt, result.source, about, result.caption(_ARROWHEADS))
    svg = chart.dots(series, tiers, between=between, labels=labels, texts=texts, axis=_RATIO, legend=legend)
    return Figure(name, svg, alt)


def _wire(bandwidth: float) -> str:
    return f"{bandwidth / 1e9:g} Gbit/s" if bandwidth else "unbounded"


def _ms(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _names(series: Iterable[Series]) -> str:
    *names, last = [one.label for one in series]
    return f"{', '.join(names)} and {last}"


#: What ``layouts`` reads, in words.
_LAYOUT_READS = {"whole": "everything", "plane z": "a[128]", "plane x": "a[:, :, 256]", "window": "a window of 64³"}


def layouts(result: Result) -> Figure:
    """Return the figure of chunk sizes and codecs."""
    styles = [("circle", "own"), ("diamond", "a"), ("square", "c"), ("triangle", "b"), ("circle", "d-o")]
    chosen = [layout for layout in result.data["layouts"] if not layout["sharded"]]
    codecs = list(dict.fromkeys(layout["codecs"] for layout in chosen))
    series = [Series(name, name, *style) for name, style in zip(codecs, styles, strict=False)]
    panels, extremes = [], []
    for read, title in _LAYOUT_READS.items():
        rows: dict[int, dict[str, float]] = {}
        for layout in chosen:
            ms = statistics.median(layout["read_cpu_ms"][read])
            rows.setdefault(layout["side"], {})[layout["codecs"]] = ms
        panels.append(Panel(title, [Row(f"chunks of {side}³", values) for side, values in rows.items()]))
        (small, first), *_, (large, last) = ((side, values["zstd"]) for side, values in rows.items())
        extremes.append(f"{title}: {_ms(first)} ms in chunks of {small}³, {_ms(last)} in chunks of {large}³")
    shape = " × ".join(map(str, result.data["shape"]))
    of = f"Processor time of reads of a volume of {shape}, by size of chunks and codec."
    alt = f"{of} With zstd, {'; '.join(extremes)}."
    about = [f"A volume of {shape} uint16, a file for each chunk."]
    title = "Reading, by size of chunks and codec"
    caption = result.caption(
        *([] if "rounds" in result.data else ["Medians. An arrowhead at an end: beyond the scale."])
    )
    svg = Chart(title, alt, result.source, about, caption).dots(
        series, [panels[:2], panels[2:]], between=(0.4, 600), labels=110, texts=(), ratios=False,
        axis="ms of processor time of all threads; logarithmic, shorter to the left",
    )  # fmt: skip
    return Figure("layouts", svg, alt)


# -- bars --------------------------------------------------------------------------------------------------------------

#: Names of what is measured, where those in the files say too little.
_RUNS = {
    "levels": "levels of an image that is there",
    "levels sharded": "the same, sharded",
    "image sharded": "the same, sharded",
    "labels sharded": "the same, sharded",
    "box filter": "box filter, with a halo",
    "threshold": "threshold of a filtered block",
    "read": "read: to_dask().sum()",
    "write": "write: from_dask()",
    "copy": "copy to other chunks: copy(client=)",
    "http": "wait for a web server, 30 ms a request",
}


def _seconds(measured: Any) -> float:
    """Return the median of runs, or the one run."""
    rounds = measured if isinstance(measured, list) else [measured]
    return statistics.median(one["seconds"] for one in rounds)


def imaging(result: Result) -> Figure:
    """Return the figure of pyramids."""
    groups, own = [], {}
    for name, runs in result.data["runs"].items():
        times = {rival: _seconds(measured) for rival, measured in runs.items() if measured}
        own[name] = ratios(times, [rival for rival in times if not rival.startswith("gzarr")])["gzarr"]
        groups.append(_group(name, times, result, own[name], "gzarr"))
    alt = f"Seconds for the levels of a pyramid: gzarr is {summary(own)}."
    title = f"Pyramids: {_mean(own.values())} times the fastest other library"
    side = result.data["side"]
    about = [f"Geometric mean of {len(own)} kinds of images of {side}³, read, and written with levels 1, 2, 4 and 8."]
    chart = Chart(title, alt, result.source, about, result.caption())
    return Figure("imaging", chart.bars(groups, columns=2, labels=136, unit="s", axis=_FROM_ZERO), alt)


def map_blocks(result: Result) -> Figure:
    """Return the figure of computing block after block."""
    groups, own = [], {}
    for name, runs in result.data.get("workloads", result.data).items():
        times = {rival: _seconds(measured) for rival, measured in runs.items()}
        peers = [rival for rival in times if not rival.startswith("gzarr")]
        quoted = "gzarr, fresh memory" if "gzarr, fresh memory" in times else "gzarr"
        own[name] = ratios(times, peers)[quoted]
        groups.append(_group(name, times, result, own[name], quoted))
    alt = f"Seconds to compute over a volume block after block: in new memory, gzarr.map_blocks is {summary(own)}."
    title = f"Block after block: {_mean(own.values())} times the fastest other way"
    about = [f"Geometric mean of {len(own)} functions, with blocks in new memory."]
    chart = Chart(title, alt, result.source, about, result.caption())
    return Figure("map-blocks", chart.bars(groups, columns=2, labels=150, unit="s", axis=_FROM_ZERO), alt)


def dask_scaling(result: Result) -> Figure:
    """Return the figure of workers of dask."""
    groups, own = [], {}
    for name, by_workers in result.data["times"].items():
        bars = []
        for workers, times in by_workers.items():
            count = f"{workers} worker{'s' * (workers != '1')}"
            for library, seconds in times.items():
                bars.append((f"{library}, {count}", seconds, "own" if library == "gzarr" else "bar"))
            if "zarr-python" in times:
                own[f"{name}, {count}"] = times["zarr-python"] / times["gzarr"]
        groups.append(Bars(_RUNS.get(name, name), bars))
    alt = f"Seconds of dask's workers with gzarr and with zarr-python: gzarr is {summary(own)}."
    title = f"Workers of dask: {_mean(own.values())} times as fast as with zarr-python"
    about = [f"Geometric mean of {len(own)} jobs. Each kind of job has a scale of its own, from 0."]
    chart = Chart(title, alt, result.source, about, result.caption())
    svg = chart.bars(groups, columns=2, labels=158, unit="s", axis="seconds; shorter is better", shared=False)
    return Figure("dask-scaling", svg, alt)


def _group(name: str, times: Mapping[str, float], result: Result, own: float, quoted: str) -> Bars:
    bars = []
    for rival in sorted(times, key=lambda rival: (rival != quoted, not rival.startswith("gzarr"))):
        if rival.startswith("gzarr"):
            bars.append((rival, times[rival], "own" if rival == quoted else "own2"))
        else:
            bars.append((result.version(rival), times[rival], "bar"))
    return Bars(f"{_RUNS.get(name, name)}: {figures(own)}×", bars)


# -- all ---------------------------------------------------------------------------------------------------------------

#: The figures of results.
OF_RESULTS: Mapping[str, Callable[[Result], Figure]] = {
    "read": read,
    "write": write,
    "remote": remote,
    "remote-defaults": remote,
    "zarr-pipeline": zarr_pipeline,
    "loader": loader,
    "imaging": imaging,
    "map-blocks": map_blocks,
    "dask-scaling": dask_scaling,
    "layouts": layouts,
}


def all_figures(results: Path = RESULTS) -> list[Figure]:
    """Return all figures; those of results that are not there are left out."""
    found = []
    for name, draw in OF_RESULTS.items():
        result = Result.newest(name, results)
        if result is not None:
            found.append(draw(result))
    found.append(Figure("shuffling", *shuffle_picture.picture()))
    found.append(Figure("chunk", *chunk_picture.picture()))
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
        shown = re.compile(rf"!\[[^\]]*\]\(([^()\s]*figures/{re.escape(name)}\.svg)\)")
        text = text.replace("[", "(").replace("]", ")")
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
