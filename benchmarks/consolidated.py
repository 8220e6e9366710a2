"""How long it takes to open a group with consolidated metadata of many arrays: ``python benchmarks/consolidated.py``.

1,500 arrays of one group, in memory, in versions 2 and 3: all of one shape, or each of its own. Beside gzarr stand
zarr-python, and the standard library's parser of JSON, which only reads the text. Documents are parsed when an array is
asked for, so that ``open`` takes as long for arrays that are alike as for others; ``open, one`` opens an array too, and
``open, all`` all of them. Rounds are interleaved; the fastest and the median are printed. The limit holds for the
fastest ``open``, for on a busy machine processes wait for others.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
import warnings
from typing import TYPE_CHECKING, Any

import zarr
from zarr.core.buffer import cpu
from zarr.storage import MemoryStore

import gzarr

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

LIMIT_MS = 15.0
_ARRAYS = 1500


def written(zarr_format: Any, *, alike: bool) -> dict[str, bytes]:
    """Return the documents of a group with consolidated metadata."""
    attributes: dict[str, Any] = {"units": "K", "_ARRAY_DIMENSIONS": ["time", "lat", "lon"]}
    one: dict[str, bytes] = {}
    gzarr.create_array(one, shape=(100, 50, 60), chunks=(10, 50, 60), dtype="f4", zarr_format=zarr_format)
    name, own = (".zarray", ".zattrs") if zarr_format == 2 else ("zarr.json", "")
    store: dict[str, bytes] = {}
    gzarr.create_group(store, zarr_format=zarr_format)
    document = json.loads(bytes(one[name]))
    for i in range(_ARRAYS):
        attributes["long_name"] = f"Variable {i}"
        if not alike:
            document["shape"][0] = 100 + i
        if zarr_format == 2:
            store[f"v{i}/{own}"] = json.dumps(attributes).encode()
        else:
            document["attributes"] = attributes
        store[f"v{i}/{name}"] = json.dumps(document).encode()
    gzarr.consolidate_metadata(store)
    return {key: bytes(value) for key, value in store.items()}


def measure(zarr_format: Any, rounds: int, *, alike: bool) -> float:
    """Print the times for one group; return the fastest opening in ms."""
    store = written(zarr_format, alike=alike)
    text = store[".zmetadata" if zarr_format == 2 else "zarr.json"]
    theirs = MemoryStore({key: cpu.Buffer.from_bytes(value) for key, value in store.items()})
    jobs: dict[str, Callable[[], object]] = {
        "open": lambda: gzarr.open_group(store),
        "open, one": lambda: gzarr.open_group(store)["v7"],
        "open, all": lambda: gzarr.open_group(store).members(),
        "zarr-python": lambda: zarr.open_consolidated(theirs, zarr_format=zarr_format),
        "json.loads": lambda: json.loads(text),
    }
    assert list(gzarr.open_group(store)) == sorted(zarr.open_consolidated(theirs, zarr_format=zarr_format))
    times: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(rounds):
        for name, job in jobs.items():
            begin = time.perf_counter()
            job()
            times[name].append(1e3 * (time.perf_counter() - begin))
    what = f"version {zarr_format}, {'alike' if alike else 'each its own'}, {len(text) / 1e6:.1f} MB"
    columns = [f"{name} {min(ms):.1f} ({statistics.median(ms):.1f})" for name, ms in times.items()]
    print(f"{what:36}", *columns, sep="   ", flush=True)
    return min(times["open"])


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, and return 1 if the limit was missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args(argv)
    warnings.filterwarnings("ignore", message="Consolidated metadata is currently not part")
    print(f"ms, fastest (median) of {arguments.rounds}; {_ARRAYS:,} arrays")
    found = [measure(version, arguments.rounds, alike=alike) for version in (2, 3) for alike in (True, False)]
    print(f"limit for open: {LIMIT_MS} ms; {'kept' if max(found) <= LIMIT_MS else 'missed'}")
    return int(max(found) > LIMIT_MS)


if __name__ == "__main__":
    sys.exit(main())
