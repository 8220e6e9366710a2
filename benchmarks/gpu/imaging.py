"""Computing block after block on a GPU, and pyramids there: how busy the device is, and what levels cost.

    python benchmarks/gpu imaging                      512 MiB per array, about a minute
    python benchmarks/gpu imaging --codec zstd --mib 4096 --json imaging.json

``map_blocks`` reads blocks of 128³ with a halo, computes on the device, and writes the results. Computing is repeated
until it alone takes half as long again as everything with a function that does nothing, so that it is the longest
stage; ``busy`` is the time that it takes for resident blocks, divided by the time of ``map_blocks``. ``plain`` writes
an array on the device as an image with one level, ``pyramid`` with all. Results are compared with the host's before
anything is timed; medians are reported.
"""

from __future__ import annotations

import math
import statistics
import sys
import time
from typing import TYPE_CHECKING, Any, Final

import fields
import numpy as np
from report import as_table
from workloads import LITTLE, Dataset, _zstd, blosc

import gpu.steps
import gpu.write
from gpu.steps import Steps
from gpu.write import failed_as_a_whole, on_device, run

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from gzarr.engines.cuda.device_protocol import Device

    #: Function of an array of the device and of how often it is repeated.
    Compute = Callable[[Any, int], Any]
    Values = np.ndarray[Any, Any]

PARTS: Final = ("blocks", "levels")
HALO: Final = 2
#: How much longer computing is to take than reading and writing.
LONGER: Final = 1.5
#: Repetitions from which the time of one is taken.
_SOME: Final = 32


def datasets(nbytes: int, side: int = 512, chunk: int = 64) -> list[Dataset]:
    """Return the arrays, of about ``nbytes`` each."""
    shape = (max(1, nbytes // (2 * side * side * chunk)) * chunk, side, side)
    chunks = (chunk,) * 3
    return [
        Dataset("blosc-lz4", fields.camera_u2, "u2", shape, chunks, (LITTLE, blosc("lz4", "shuffle", 2))),
        Dataset("zstd", fields.camera_u2, "u2", shape, chunks, (LITTLE, _zstd())),
    ]


def mixed(x: Any, times: int) -> Any:
    """Return numbers that depend on each element alone, by some passes over memory each time."""
    for _ in range(times):
        x = x ^ (x >> 3)
    return x


def measure(
    device: Device,
    dataset: Dataset,
    folder: Path,
    seconds: float,
    rounds: int,
    compute: Compute = mixed,
    steps: Steps | None = None,
) -> dict[str, Any]:
    """Check and time both for one array; return figures by name, or errors."""
    import gzarr

    steps = steps or Steps()
    deadline = time.monotonic() + seconds
    chunk = dataset.chunk_shape[0]
    host = np.tile(fields.make(dataset.field, (chunk, *dataset.shape[1:])), (dataset.shape[0] // chunk, 1, 1))
    source = gzarr.create_array(
        folder / "source", data=host, chunks=dataset.chunk_shape, codecs=dataset.codecs, device="cpu"
    )
    found: dict[str, Any] = {"nbytes": host.nbytes, "codecs": dataset.codecs}
    lost = steps.failed(dataset.name)
    for name, part in zip(PARTS, (_blocks, _levels), strict=True):
        if name in lost:
            found[name] = {"right": False, "error": lost[name]}
            continue
        steps.begin(dataset.name, name, max(gpu.steps.LIMIT_S, 3 * seconds))
        try:
            found[name] = {"right": True, **part(device, source, host, folder, rounds, compute, deadline)}
        except Exception as error:  # a failure is a line of the table, not the end of the run
            found[name] = {"right": False, "error": steps.error(error)}
        steps.found(dataset.name, found)
    return found


def _blocks(
    device: Device,
    source: Any,
    host: np.ndarray[Any, Any],
    folder: Path,
    rounds: int,
    compute: Compute,
    deadline: float,
) -> dict[str, Any]:
    import gzarr

    block = tuple(min(2 * c, n) for c, n in zip(source.chunks, source.shape, strict=True))
    out = gzarr.create_array(
        folder / "blocks",
        shape=source.shape,
        dtype=source.dtype,
        chunks=source.chunks,
        codecs=source.codecs,
        device="cpu",
    )

    def work(times: int) -> None:
        gzarr.map_blocks(
            lambda x: compute(x, times) if times else x, source, out=out, block=block, halo=HALO, device=device.name
        )

    resident = on_device(device, np.ascontiguousarray(host[tuple(slice(n + 2 * HALO) for n in block)]))

    def computing(times: int) -> None:
        compute(resident, times)
        device.current_stream().synchronize()

    work(3)
    _compare(out[...], mixed(host, 3))
    count = math.prod(-(-n // b) for n, b in zip(source.shape, block, strict=True))
    computing(_SOME)
    once = _median(lambda: computing(_SOME), 3, math.inf) / _SOME * count
    work(0)
    idle = _median(lambda: work(0), rounds, deadline)
    times = max(math.ceil(LONGER * idle / once), 1)
    alone = _median(lambda: computing(times), 3, deadline) * count
    whole = _median(lambda: work(times), rounds, deadline)
    return {
        "times": times,
        "computing_s": alone,
        "seconds": whole,
        "nothing_s": idle,
        "gb_per_s": host.nbytes / idle / 1e9,
        "busy": alone / whole,
    }


def _levels(
    device: Device,
    source: Any,
    host: np.ndarray[Any, Any],
    folder: Path,
    rounds: int,
    compute: Compute,
    deadline: float,
) -> dict[str, Any]:
    import gzarr

    value = on_device(device, host)

    def create(name: str, data: Any, levels: Any) -> Any:
        image = gzarr.ome.create(
            folder / name, data, axes="zyx", chunks=source.chunks, codecs=source.codecs, levels=levels, overwrite=True
        )
        return [level.array for level in image.levels]

    made = create("pyramid", value, "auto")
    for one, other in zip(made, create("expected", host, "auto"), strict=True):
        on_host = gzarr.open_array(one.store, path=one.path, device="cpu")
        _compare(on_host[...], gzarr.open_array(other.store, path=other.path, device="cpu")[...])
    create("plain", value, 1)
    plain = _median(lambda: create("plain", value, 1), rounds, deadline)
    pyramid = _median(lambda: create("pyramid", value, "auto"), rounds, deadline)
    return {
        "count": len(made),
        "plain_gb_per_s": host.nbytes / plain / 1e9,
        "gb_per_s": host.nbytes / pyramid / 1e9,
        "share": plain / pyramid,
    }


def _compare(found: Any, expected: Any) -> None:
    if not np.array_equal(found, expected):
        raise AssertionError("WRONG RESULT")


def _median(call: Callable[[], object], rounds: int, deadline: float) -> float:
    """Return the median seconds of some calls, at least one."""
    found: list[float] = []
    while not found or (len(found) < rounds and time.monotonic() < deadline):
        start = time.perf_counter()
        call()
        found.append(time.perf_counter() - start)
    return statistics.median(found)


def table(results: dict[str, dict[str, Any]]) -> str:
    """Return the plain text table."""
    rows = [["", "map_blocks GB/s", "busy", "plain GB/s", "pyramid GB/s", "pyramid / plain"]]
    for name, found in results.items():
        blocks, levels = (found.get(part, {"right": False}) for part in PARTS)
        cells = [f"{blocks[key]:.2f}" if blocks["right"] else "failed" for key in ("gb_per_s", "busy")]
        keys = ("plain_gb_per_s", "gb_per_s", "share")
        rows.append([name, *cells, *(f"{levels[key]:.2f}" if levels["right"] else "failed" for key in keys)])
    errors = [
        f"{name}, {part}: {found[part]['error']}"
        for name, found in results.items()
        for part in PARTS
        if part in found and not found[part]["right"]
    ]
    return "\n".join([as_table(rows), *errors])


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    found = gpu.write.parser()
    found.description = __doc__
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; return 1 if there is no device, or a result is wrong."""
    arguments = parser().parse_args(argv)
    found = run(
        "imaging", argv, arguments, datasets(arguments.mib << 20, arguments.side, min(64, arguments.side // 2)),
        lambda device, dataset, folder, seconds, steps: measure(
            device, dataset, folder, seconds, arguments.rounds, mixed, steps
        ),
    )  # fmt: skip
    if found is None:
        return 0
    print(table(found.figures))
    wrong = any(not one[part]["right"] for one in found.figures.values() for part in PARTS if part in one)
    return int(failed_as_a_whole(found) or wrong)


if __name__ == "__main__":
    sys.exit(main())
