"""Figures of ratios: dots, one row for each workload."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

from pictures.charts import Chart, Panel, Row, Series
from pictures.results import Figure, Result, mean, ratio, ratios, summary, wrapped

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_ARROWHEADS = "An arrowhead at an end: beyond the scale."
_RATIO = "times the speed of the fastest other library (1); logarithmic, faster to the right"
_ZARR, _ZARRS, _TENSORSTORE = ("square", "c"), ("triangle", "b"), ("diamond", "a")
#: Of local reads and writes. The fused pipeline of zarr-python is measured where there is zarr-python 3.4.
_PEERS = ("tensorstore", "zarrs", "zarr-python fused", "zarr-python")


def _medians(rivals: Mapping[str, Any]) -> dict[str, float]:
    return {name: one["median_ms"] for name, one in rivals.items() if one.get("median_ms") is not None}


def read(result: Result) -> Figure:
    """Return the figure of reading into host memory."""
    series = [
        Series("gzarr fresh", "gzarr, results in new memory", "circle", "own"),
        Series("gzarr recycled", "gzarr by default: memory of freed results is used again", "circle", "own-o"),
        *_peers(result),
        Series("limit", "limit: the C decoder alone", "limit", "limit"),
    ]
    rows, own, recycled = [], {}, []
    for workload in result.data["workloads"]:
        times = _medians(workload["rivals"])
        found = ratios(times, _PEERS)
        own[workload["workload"]] = found["gzarr fresh"]
        recycled.append(found["gzarr recycled"])
        texts = ratio(found["gzarr fresh"]), f"{_ms(times['gzarr fresh'])} ms"
        rows.append(Row(workload["workload"], found, texts))
    alt = f"Reading beside {_names(series[2:-1])}: with results in new memory, gzarr is {summary(own)}."
    return _ratios(
        "read", result, alt, series, [[Panel("", rows)]],
        title=f"Reading into host memory: {mean(own.values())} times the fastest other library",
        about=[f"Geometric mean of {len(rows)} workloads with results in new memory, as all others have them; "
               f"{mean(recycled)} by default."],
        between=(0.1, 8), labels=158, texts=(40, 62),
    )  # fmt: skip


def write(result: Result) -> Figure:
    """Return the figure of writing."""
    series = [
        Series("given", "gzarr at the level of the others", "circle", "own"),
        Series("automatic", "gzarr at a level of its choice", "circle", "own-o"),
        *_peers(result),
        Series("limit", "limit: the C encoder alone", "limit", "limit"),
    ]
    rows, own, automatic = [], {}, []
    for workload in result.data["workloads"]:
        times = _medians(workload["rivals"])
        found = ratios(times, _PEERS)
        own[workload["workload"]] = found["given"]
        automatic.append(found["automatic"])
        rows.append(Row(workload["workload"], found, (ratio(found["given"]), f"{_ms(times['given'])} ms")))
    alt = f"Writing beside {_names(series[2:-1])}: at the same level of compression, gzarr is {summary(own)}."
    return _ratios(
        "write", result, alt, series, [[Panel("", rows)]],
        title=f"Writing to files: {mean(own.values())} times the fastest other library",
        about=[f"Geometric mean of {len(rows)} whole arrays at the level of compression of the others; "
               f"{mean(automatic)} if gzarr may choose it."],
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
    means = ", ".join(f"{mean(values.values())} at {delay}" for delay, values in own.items())
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
        title=f"Inside zarr-python: {mean(own.values())} times the fastest other codec pipeline",
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
    rows, own, default, others = list[Row](), dict[str, float](), list[float](), set[str]()
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
        default.append(shown.get("again", shown.get("listed", 1)))
        if "fresh" in shown:
            own[scenario["scenario"]] = shown["fresh"]
        quoted = shown.get("fresh", default[-1])
        label = SCENARIOS.get(scenario["scenario"], scenario["scenario"])
        rows.append(Row(label, values, (ratio(quoted), fastest.replace(" 2", ", 2 workers").replace(" c", ", c"))))
    most = max(len(row.values) for row in rows)
    series = [
        Series("fresh", "gzarr, in new memory", "circle", "own"),
        Series("again", "gzarr by default", "circle", "own-o"),
        Series("listed", "gzarr at given places (by default)", "circle", "d"),
        *(Series(f"rival {i}", "another loader; the fastest is named", "dot", "c") for i in range(most)),
    ]
    of_all = f"{mean(default)} of all {len(default)} by default"
    about = [f"Geometric mean of {len(own)} kinds of samples, in new memory; {of_all}. The others:"]
    about += wrapped(sorted(others, key=str.lower))
    alt = f"Batches for training, in new memory: gzarr.Loader is {summary(own)}."
    return _ratios(
        "loader", result, alt, series, [[Panel("", rows)]],
        title=f"Batches for training: {mean(own.values())} times the fastest other loader",
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


def _peers(result: Result) -> list[Series]:
    """Return the other libraries that were measured."""
    zarr = f"zarr-python {result.data['versions']['zarr']}"
    known = [
        Series("tensorstore", result.version("tensorstore"), *_TENSORSTORE),
        Series("zarrs", result.version("zarrs"), *_ZARRS),
        Series("zarr-python", zarr, *_ZARR),
        Series("zarr-python fused", "its fused pipeline", "square", "c-o"),
    ]
    measured = {name for workload in result.data["workloads"] for name in _medians(workload["rivals"])}
    return [one for one in known if one.key in measured]


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
