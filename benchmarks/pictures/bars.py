"""Figures of seconds: bars from zero."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

from pictures.charts import Bars, Chart, figures
from pictures.results import Figure, Result, mean, ratios, summary

if TYPE_CHECKING:
    from collections.abc import Mapping

_FROM_ZERO = "seconds, from 0; shorter is better"
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
    title = f"Pyramids: {mean(own.values())} times the fastest other library"
    side = result.data["side"]
    about = [f"Geometric mean of {len(own)} kinds of images of {side}³, read, and written with levels 1, 2, 4 and 8."]
    chart = Chart(title, alt, result.source, about, result.caption())
    return Figure("imaging", chart.bars(groups, columns=2, labels=136, unit="s", axis=_FROM_ZERO), alt)


def map_blocks(result: Result) -> Figure:
    """Return the figure of computing block after block."""
    groups, own, default = [], {}, []
    for name, runs in result.data.get("workloads", result.data).items():
        # What nobody can leave out is no rival: it reads and writes nothing.
        times = {rival: _seconds(measured) for rival, measured in runs.items() if rival != "limit"}
        peers = [rival for rival in times if not rival.startswith("gzarr")]
        quoted = "gzarr, fresh memory" if "gzarr, fresh memory" in times else "gzarr"
        found = ratios(times, peers)
        own[name] = found[quoted]
        default.append(found["gzarr"])
        groups.append(_group(name, times, result, own[name], quoted))
    alt = f"Seconds to compute over a volume block after block: in new memory, gzarr.map_blocks is {summary(own)}."
    title = f"Block after block: {mean(own.values())} times the fastest other way"
    about = [f"Geometric mean of {len(own)} functions, with blocks in new memory; {mean(default)} by default."]
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
    title = f"Workers of dask: {mean(own.values())} times as fast as with zarr-python"
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
