"""Reading over a network: gzarr beside zarr-python, zarrs and tensorstore, through a proxy that slows a server down.

    python benchmarks/remote.py                                     everything: some forty minutes
    python benchmarks/remote.py --latency 30 --bandwidth none --workload "64 KiB"
    python benchmarks/remote.py --parallel 0                        every reader with its own default
    python benchmarks/remote.py --json remote.json

Needs nginx, which serves the arrays from the page cache on the loopback interface. All rivals may have 64 requests in
progress, which is gzarr's default (zarr-python's is 10, tensorstore's 32). Every rival runs in a process of its own and
keeps its connections between reads. A read includes opening its array. Rounds are interleaved, the median is reported,
and every result is compared with the data, element by element, before anything is timed. Requests and bytes are counted
on the wire, in one more read. ``limit`` gets the metadata document and then the bytes of the same chunks by 64 plain
sockets, without decoding and keeping them.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import math
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fields
import numpy as np
import report
from remote_rivals import PEERS, RIVALS, selections
from servers.nginx import nginx
from servers.proxy import Proxy
from workloads import LITTLE, Dataset, blosc, default_data_dir, digest, store

if TYPE_CHECKING:
    from collections.abc import Sequence

HERE = Path(__file__).parent
#: The project's targets: multiple of the fastest peer, of each workload and in the mean; share of the limit.
LEAST_SPEEDUP, LEAST_MEAN, LEAST_OF_LIMIT = 1.3, 2.0, 0.9
GROUP_ARRAYS = 100
_SHAPE = (256, 256, 512)
_CODECS = (LITTLE, blosc("lz4", "shuffle", 2))
DATASETS = {
    "64 KiB": Dataset("remote-64k", fields.camera_u2, "u2", _SHAPE, (32, 32, 32), _CODECS),
    "1 MiB": Dataset("remote-1m", fields.camera_u2, "u2", _SHAPE, (64, 64, 128), _CODECS),
    "shards": Dataset("remote-shards", fields.camera_u2, "u2", _SHAPE, (32, 32, 32), _CODECS, shard_shape=(128,) * 3),
}


@dataclass
class Row:
    """A workload under one condition."""

    name: str
    latency_ms: float
    bandwidth: float
    rounds: dict[str, list[dict[str, float]]] = field(default_factory=dict)
    #: Requests and bytes of one read.
    wire: dict[str, dict[str, int]] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    nbytes: int = 0

    @property
    def label(self) -> str:
        bound = "" if math.isinf(self.bandwidth) else f", {self.bandwidth / 1e9:g} Gbit/s"
        return f"{self.name}, {self.latency_ms:g} ms{bound}"

    def seconds(self, rival: str) -> float | None:
        rounds = self.rounds.get(rival)
        return statistics.median(r["seconds"] for r in rounds) if rounds else None

    def cpu_s(self, rival: str) -> float | None:
        rounds = self.rounds.get(rival)
        return statistics.median(r["cpu_s"] for r in rounds) if rounds else None

    def fastest_peer(self) -> str | None:
        times = {peer: s for peer in PEERS if (s := self.seconds(peer)) is not None}
        return min(times, key=times.__getitem__) if times else None

    def ratio(self, numerator: str | None, denominator: str) -> float | None:
        a, b = (None if name is None else self.seconds(name) for name in (numerator, denominator))
        return None if a is None or b is None else a / b

    def to_json(self) -> dict[str, Any]:
        peer = self.fastest_peer()
        return {
            "workload": self.name,
            "latency_ms": self.latency_ms,
            "bandwidth": None if math.isinf(self.bandwidth) else self.bandwidth,
            "decoded_nbytes": self.nbytes,
            "fastest_peer": peer,
            "times_fastest_peer": self.ratio(peer, "gzarr"),
            "of_limit": self.ratio("limit", "gzarr"),
            "rounds": self.rounds,
            "wire": self.wire,
            "notes": self.notes,
        }


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", action="append", metavar="TEXT", help="only workloads whose name contains TEXT")
    parser.add_argument("--rival", action="append", choices=list(RIVALS), help="only this rival (repeatable)")
    parser.add_argument("--latency", action="append", type=float, metavar="MS", help="default: 0, 5 and 30")
    parser.add_argument("--bandwidth", action="append", metavar="BITS", help="bits per second or none; default: both")
    parser.add_argument("--parallel", type=int, default=64, help="requests in progress (default 64); 0: own default")
    parser.add_argument("--rounds", type=int, default=5, help="timed rounds (default 5)")
    parser.add_argument("--scale", type=float, default=1.0, help="part of the elements of each array, for smoke tests")
    parser.add_argument("--data", type=Path, default=default_data_dir(), help="where generated arrays are kept")
    parser.add_argument("--json", type=Path, metavar="FILE")
    return parser.parse_args(argv)


def _accesses(dataset: Dataset) -> dict[str, dict[str, Any]]:
    random = np.random.Generator(np.random.PCG64(20))
    starts = np.stack([random.integers(0, n - 32 + 1, 200) for n in dataset.shape], axis=1)
    return {
        "whole": {"kind": "whole"},
        "200 windows": {"kind": "windows", "starts": starts.tolist(), "shape": [32, 32, 32]},
        "a[0]": {"kind": "first"},
        "plane": {"kind": "plane", "at": dataset.shape[2] // 2},
    }


def _make_group(folder: Path) -> list[str]:
    """Write a consolidated group of small arrays; return their names."""
    import zarr

    group = zarr.open_group(str(folder), mode="w", zarr_format=3)
    names = [f"array{i:03}" for i in range(GROUP_ARRAYS)]
    for i, name in enumerate(names):
        group.create_array(name, shape=(100 + i, 100), chunks=(10, 100), dtype="f4")
    zarr.consolidate_metadata(str(folder), zarr_format=3)
    return names


def _ranges(root: Path, dataset: Dataset, access: dict[str, Any]) -> list[tuple[str, int, int]]:
    """Return the files and byte ranges of the chunks that an access needs; of shards, whole files."""
    shape, chunk = dataset.shape, dataset.shard_shape or dataset.chunk_shape
    needed: set[tuple[int, ...]] = set()
    for selection in selections(access):
        items = list(selection) if selection != (...,) else []
        items += [slice(None)] * (len(shape) - len(items))
        axes = []
        for item, n, c in zip(items, shape, chunk, strict=True):
            axes.append(np.unique(np.atleast_1d(np.arange(n)[item]) // c))
        needed.update(zip(*(axis.ravel().tolist() for axis in np.meshgrid(*axes, indexing="ij")), strict=True))
    paths = ["c/" + "/".join(map(str, position)) for position in sorted(needed)]
    return [(path, 0, (root / path).stat().st_size) for path in paths]


class Reader:
    """A rival, in a process of its own."""

    def __init__(self, name: str, parallel: int) -> None:
        command = [sys.executable, str(HERE / "remote_rivals.py"), name, str(parallel)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self._answer("ready")

    def _answer(self, first: str) -> str:
        assert self._process.stdout is not None
        # Rivals may print what they like.
        for line in self._process.stdout:
            if line.startswith(first):
                return line.removeprefix(first)
        raise SystemExit("a rival's process has ended")

    def read(self, url: str, access: dict[str, Any], *, check: bool = False) -> dict[str, Any]:
        assert self._process.stdin is not None
        print(json.dumps({"url": url, "access": access, "check": check}), file=self._process.stdin, flush=True)
        answer: dict[str, Any] = json.loads(self._answer("answer"))
        return answer

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


@dataclass
class Workload:
    """A read: below a path of the server, as an access, with the digest of what it returns."""

    name: str
    path: str
    access: dict[str, Any]
    ranges: list[tuple[str, int, int]]
    digest: str | None


def _workloads(data: Path, served: Path, scale: float) -> list[Workload]:
    made = []
    for name, dataset in DATASETS.items():
        dataset = dataset.scaled(scale)
        stored = store(dataset, data)
        (served / dataset.name).symlink_to(stored.path)
        array = fields.make(dataset.field, dataset.shape)
        for how, access in _accesses(dataset).items():
            parts = [array[s] for s in selections(access)]
            expected = digest(np.stack(parts) if len(parts) > 1 else parts[0])
            ranges = _ranges(stored.path, dataset, access)
            whole = how == "whole" or dataset.shard_shape is None
            made.append(Workload(f"{name}, {how}", dataset.name, access, ranges if whole else [], expected))
    names = _make_group(served / "group")
    made.append(Workload(f"group of {GROUP_ARRAYS}", "group", {"kind": "group", "names": names}, [], None))
    return made


def _measure(workload: Workload, readers: dict[str, Reader], server: str, proxy: Proxy, row: Row, rounds: int) -> bool:
    """Check, count and time one workload; return whether all results were right."""
    sound = True
    ready = []
    # Without delay and bound, readers talk to the server itself.
    direct = not row.latency_ms and math.isinf(row.bandwidth)
    url = f"http://{server if direct else proxy.address}/{workload.path}"
    counted = f"http://{proxy.address}/{workload.path}"
    access_of = dict.fromkeys(readers, workload.access)
    access_of["limit"] = {"kind": "limit", "ranges": workload.ranges}
    for name, reader in readers.items():
        if name == "limit":
            if workload.ranges:
                ready.append(name)
            continue
        reader.read(counted, workload.access)
        proxy.take_counts()
        answer = reader.read(counted, workload.access, check=True)
        row.wire[name] = proxy.take_counts()
        if "error" in answer:
            row.notes[name] = answer["error"]
            sound = sound and name != "gzarr"
        elif workload.digest is not None and answer["digest"] != workload.digest:
            row.notes[name] = "WRONG RESULT"
            sound = False
        else:
            row.nbytes = answer["nbytes"]
            ready.append(name)
    for turn in range(rounds + 1):
        shift = turn % max(len(ready), 1)
        for name in ready[shift:] + ready[:shift]:
            answer = readers[name].read(url, access_of[name])
            if "error" in answer:
                row.notes[name] = answer["error"]
                sound = sound and name != "gzarr"
            # The first round warms connections.
            elif turn:
                row.rounds.setdefault(name, []).append(answer)
    return sound


def _table(rows: list[Row], names: list[str]) -> str:
    shown = [name for name in names if any(row.seconds(name) is not None for row in rows)]
    head = ["workload", *shown, "gzarr × fastest peer", "of limit"]
    lines = []
    for row in rows:
        cells = [row.label]
        for name in shown:
            seconds, wire = row.seconds(name), row.wire.get(name)
            text = "—" if seconds is None else f"{1e3 * seconds:.0f} ms"
            if wire is not None and seconds is not None:
                text += f" ({wire['requests']}, {wire['nbytes'] / 2**20:.1f} MiB)"
            cells.append(text)
        peer, limit = row.ratio(row.fastest_peer(), "gzarr"), row.ratio("limit", "gzarr")
        cells += ["—" if peer is None else f"{peer:.2f}", "—" if limit is None else f"{limit:.2f}"]
        lines.append(cells)
    widths = [max(len(line[i]) for line in [head, *lines]) for i in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip() for line in [head, *lines]
    )


def _goals(rows: list[Row]) -> list[str]:
    """Return the project's targets, each with what was reached."""
    ratios = [r for row in rows if (r := row.ratio(row.fastest_peer(), "gzarr")) is not None]
    lines = []
    if ratios:
        worst = min(rows, key=lambda row: row.ratio(row.fastest_peer(), "gzarr") or math.inf)
        mean = math.exp(statistics.fmean(math.log(r) for r in ratios))
        lines.append(f"least ratio to the fastest peer: {min(ratios):.2f} (target {LEAST_SPEEDUP}): {worst.label}")
        lines.append(f"geometric mean of the ratios: {mean:.2f} (target {LEAST_MEAN})")
    of_limit = [
        (r, row.label) for row in rows if row.latency_ms >= 30 and (r := row.ratio("limit", "gzarr")) is not None
    ]
    if of_limit:
        lines.append(
            f"least share of the limit at 30 ms: {min(of_limit)[0]:.2f} (target {LEAST_OF_LIMIT}): {min(of_limit)[1]}"
        )
    whole = [row for row in rows if row.name.endswith("whole")]
    for name in PEERS:
        pairs = [(a, b) for row in whole if (a := row.cpu_s("gzarr")) and (b := row.cpu_s(name))]
        if pairs:
            share = math.exp(statistics.fmean(math.log(a / b) for a, b in pairs))
            lines.append(
                f"processor time of whole arrays, gzarr / {name}: {share:.2f}"
                + " (target 0.5)" * name.startswith("zarr+")
            )
    more = [
        f"{row.label} ({row.wire['gzarr']['requests']}, {min(others)})"
        for row in rows
        if "gzarr" in row.wire
        and (others := [row.wire[p]["requests"] for p in PEERS if row.rounds.get(p)])
        and row.wire["gzarr"]["requests"] > min(others)
    ]
    lines.append(f"workloads with more requests than the best peer: {'; '.join(more) or 'none'}")
    return lines


def _ratios(rows: list[Row]) -> list[str]:
    """Return for each condition how many times as fast as each peer gzarr is: least, most and geometric mean."""
    lines = []
    for condition in dict.fromkeys(row.label.removeprefix(f"{row.name}, ") for row in rows):
        some = [row for row in rows if row.label == f"{row.name}, {condition}"]
        for name in PEERS:
            found = [r for row in some if (r := row.ratio(name, "gzarr")) is not None]
            if found:
                mean = math.exp(statistics.fmean(map(math.log, found)))
                lines.append(f"gzarr × {name}, {condition}: {min(found):.2f} to {max(found):.2f}, mean {mean:.2f}")
    return lines


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; return 1 if a rival's result was wrong or gzarr failed."""
    arguments = _arguments(argv)
    bands = [math.inf if text == "none" else float(text) for text in arguments.bandwidth or ["none", "1e9"]]
    conditions = [(latency, band) for latency in arguments.latency or [0, 5, 30] for band in bands]
    names = [name for name in RIVALS if not arguments.rival or name in arguments.rival]
    rows: list[Row] = []
    sound = True
    distributions = dict.fromkeys(["numpy", *(d for name in names for d in RIVALS[name].distributions)])
    versions = {name: importlib.metadata.version(name) for name in distributions}
    header = report.header("remote.py", argv, versions, rounds=arguments.rounds)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        Path(folder).chmod(0o755)
        chosen = _workloads(arguments.data, Path(folder), arguments.scale)
        if arguments.workload:
            chosen = [w for w in chosen if any(text in w.name for text in arguments.workload)]
        server = stack.enter_context(nginx(Path(folder)))
        readers = {name: Reader(name, arguments.parallel) for name in names}
        for reader in readers.values():
            stack.callback(reader.close)
        for latency, band in conditions:
            proxy = Proxy(server, latency, band)
            for workload in chosen:
                row = Row(workload.name, latency, band)
                report.say(row.label)
                sound = _measure(workload, readers, server, proxy, row, arguments.rounds) and sound
                rows.append(row)
                document = {**header, "workloads": [r.to_json() for r in rows], "targets": _goals(rows)}
                report.save(arguments.json, document)
            proxy.close()
    print(report.heading(header, f"median of {arguments.rounds} rounds") + "\n")
    print("In brackets: requests and bytes of one read.")
    print(_table(rows, names) + "\n")
    print("\n".join([*_ratios(rows), "", *_goals(rows)]))
    notes = {(name, note) for row in rows for name, note in row.notes.items()}
    print("".join(f"\n{name}: {note}" for name, note in sorted(notes)))
    return 0 if sound else 1


if __name__ == "__main__":
    sys.exit(main())
