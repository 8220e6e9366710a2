"""Writing speed from a GPU: encoding there, compared with copying the elements to the host and encoding them there.

    python benchmarks/gpu write                        512 MiB per array, about a minute
    python benchmarks/gpu write --codec zstd --mib 2048 --json write.json

``gzarr`` gets an array on the device; ``gzarr, host`` and ``zarr-python`` get a copy in host memory, which is made in
each run and included in its time. Files are replaced, and not flushed to disk. Rounds are interleaved, and medians are
reported. Each writer's output is read by gzarr's CPU engine and compared before it is timed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import fields
import numpy as np
from report import as_table
from workloads import LITTLE, Dataset, _gzip, _zstd, blosc, default_data_dir

import gpu.steps
from gpu.steps import Steps
from gpu.transfers import device_facts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpu.steps import Found
    from gzarr.engines.cuda.device_protocol import Device

WRITERS: Final = ("gzarr", "gzarr, host", "zarr-python")
#: Rows of generated elements, which the array repeats.
BASE_ROWS: Final = 64


def datasets(nbytes: int, side: int = 512) -> list[Dataset]:
    """Return the arrays, of about ``nbytes`` each."""
    rows = max(1, nbytes // (2 * side * side * BASE_ROWS)) * BASE_ROWS
    made = []
    for name, chunk, codecs, shard in (
        ("raw", 64, (), None),
        ("zstd", 32, (_zstd(),), None),
        ("zstd in shards", 32, (_zstd(), {"name": "crc32c"}), (64, 256, 256)),
        ("blosc-lz4", 64, (blosc("lz4", "shuffle", 2),), None),
        ("blosc-zstd-bit", 64, (blosc("zstd", "bitshuffle", 2),), None),
        ("gzip", 32, (_gzip(1),), None),
    ):
        shape, chunks = (rows, side, side), (min(chunk, side),) * 3
        fits = shard if shard is None else tuple(map(min, shard, shape))
        made.append(Dataset(name, fields.camera_u2, "u2", shape, chunks, (LITTLE, *codecs), shard_shape=fits))
    return made


def on_device(device: Device, host: np.ndarray[Any, Any]) -> Any:
    """Return a copy of an array on a device."""
    stream = device.current_stream()
    staging = device.pinned(host.nbytes)
    staging[:] = host.reshape(-1).view(np.uint8)
    array = device.empty(host.shape, host.dtype, stream)
    device.copy_in(array, staging, stream)
    stream.synchronize()
    return array


def writers(folder: Path, dataset: Dataset, value: Any, device: Device) -> dict[str, Callable[[], None]]:
    """Return functions that write the whole array, by name, each to a directory of its own."""
    import zarr

    import gzarr

    stream = device.current_stream()
    name, document = dataset.document()
    for writer in WRITERS:
        (folder / writer).mkdir()
        (folder / writer / name).write_text(json.dumps(document))
    ours = [gzarr.open_array(folder / writer, mode="r+", device=device.name) for writer in WRITERS[:2]]
    theirs = zarr.open_array(str(folder / WRITERS[2]), mode="r+")
    return {
        "gzarr": lambda: ours[0].write(..., value, stream=stream),
        "gzarr, host": lambda: ours[1].write(..., device.to_host(value, stream)),
        "zarr-python": lambda: theirs.__setitem__(..., device.to_host(value, stream)),
    }


def measure(
    device: Device, dataset: Dataset, folder: Path, seconds: float, rounds: int, steps: Steps | None = None
) -> dict[str, Any]:
    """Check and time the writers of one array; return figures by name, or errors."""
    import gzarr

    steps = steps or Steps()
    deadline = time.monotonic() + seconds
    base = fields.make(dataset.field, (BASE_ROWS, *dataset.shape[1:]))
    host = np.tile(base, (dataset.shape[0] // BASE_ROWS, 1, 1))
    all_of: dict[str, dict[str, Any]] = {}
    found: dict[str, Any] = {"nbytes": dataset.nbytes, "codecs": dataset.codecs, "writers": all_of}
    calls = writers(folder, dataset, on_device(device, host), device)
    times: dict[str, list[float]] = {}

    def failed(name: str, error: Exception) -> None:
        all_of[name] = {"right": False, "error": steps.error(error)}

    for name, why in steps.failed(dataset.name).items():
        all_of[name] = {"right": False, "error": why}
    for name, call in calls.items():
        if name in all_of:
            continue
        steps.begin(dataset.name, name)
        try:
            call()
            right = np.array_equal(gzarr.open_array(folder / name, device="cpu")[...], host)
            stored = sum(path.stat().st_size for path in (folder / name / "c").rglob("*") if path.is_file())
            all_of[name] = {"right": right, "stored_nbytes": stored}
        except Exception as error:  # a writer that fails is a line of the table, not the end of the run
            failed(name, error)
        if all_of[name]["right"]:
            times[name] = []
        steps.found(dataset.name, found)
    for turn in range(rounds):
        for name, done in list(times.items()):
            # Every correct writer is timed at least once.
            if turn and time.monotonic() > deadline:
                continue
            steps.begin(dataset.name, name)
            start = time.perf_counter()
            try:
                calls[name]()
            except Exception as error:  # the others go on
                del times[name]
                failed(name, error)
                continue
            done.append(time.perf_counter() - start)
            median = statistics.median(done)
            all_of[name] |= {"ms": 1e3 * median, "gb_per_s": dataset.nbytes / median / 1e9, "rounds": len(done)}
        steps.found(dataset.name, found)
    return found


def table(results: dict[str, dict[str, Any]]) -> str:
    """Return the plain text table: GB of elements per second, and compression ratios."""
    rows = [["GB/s", *WRITERS, "ratio on device", "ratio on host"]]
    for name, found in results.items():
        all_of = found["writers"]
        of = [all_of.get(n, {}) for n in WRITERS]
        speeds = [f"{w['gb_per_s']:.2f}" if "gb_per_s" in w else "failed" for w in of]
        ratios = [found["nbytes"] / max(w.get("stored_nbytes", 0), 1) for w in of[:2]]
        rows.append([name, *speeds, *(f"{ratio:.2f}" for ratio in ratios)])
    errors = [
        f"{name}, {writer}: {w.get('error', 'WRONG RESULT')}"
        for name, found in results.items()
        for writer, w in found["writers"].items()
        if not w["right"]
    ]
    return "\n".join([as_table(rows), *errors])


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--mib", type=int, default=512, help="size of each array (default 512)")
    found.add_argument("--side", type=int, default=512, help="length of each row and column (default 512)")
    found.add_argument("--seconds", type=float, default=60.0, help="approximate time limit (default 60)")
    found.add_argument("--rounds", type=int, default=5, help="timed rounds, at most (default 5)")
    found.add_argument("--codec", action="append", metavar="TEXT", help="only arrays whose name contains TEXT")
    found.add_argument("--data", type=Path, default=default_data_dir(), help="directory for the arrays")
    found.add_argument("--json", type=Path, metavar="FILE")
    return found


def run(
    program: str,
    argv: Sequence[str] | None,
    arguments: argparse.Namespace,
    arrays: Sequence[Dataset],
    measure: Callable[[Device, Dataset, Path, float, Steps], dict[str, Any]],
) -> Found | None:
    """Measure arrays one after the other, each in a folder of its own, and write the figures to ``--json``.

    Parameters
    ----------
    program, argv, arguments
        Name of the program, and its command line.
    arrays
        The arrays, of which ``--codec`` chooses some.
    measure
        Function of the device, an array, a folder, the seconds that are left for it, and what to tell of its steps.

    Returns
    -------
    As :func:`gpu.steps.run`: what was found; None in a process that measures.
    """
    chosen = {d.name: d for d in arrays if any(t in d.name for t in arguments.codec or [""])}

    def measure_all(steps: Steps, names: list[str], seconds: float) -> None:
        device = gpu.steps.device()
        steps.about(device=device_facts())
        deadline = time.monotonic() + seconds
        arguments.data.mkdir(parents=True, exist_ok=True)
        for number, name in enumerate(names):
            left = (deadline - time.monotonic()) / (len(names) - number)
            if left <= 0:
                steps.left_out(name)
                continue
            steps.begin(name)
            try:
                with tempfile.TemporaryDirectory(prefix=".measured-", dir=arguments.data) as folder, device:
                    steps.found(name, measure(device, chosen[name], Path(folder), left, steps))
            except Exception as error:  # such as a full disk: the next array follows
                steps.failure(name, error)
            steps.end(name)

    def document(found: Found) -> dict[str, Any]:
        return {"arrays": found.figures}

    return gpu.steps.run(program, argv, list(chosen), arguments.seconds, measure_all, document, arguments.json)


def failed_as_a_whole(found: Found) -> bool:
    """Return whether nothing, or an array, could not be measured."""
    return bool(found.refused) or any("" in steps for steps in found.failed.values())


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; return 1 if there is no device, or a writer of ours failed."""
    arguments = parser().parse_args(argv)
    found = run(
        "write", argv, arguments, datasets(arguments.mib << 20, arguments.side),
        lambda device, dataset, folder, seconds, steps: measure(
            device, dataset, folder, seconds, arguments.rounds, steps
        ),
    )  # fmt: skip
    if found is None:
        return 0
    print(table(found.figures))
    wrong = any(not w["right"] for one in found.figures.values() for n, w in one["writers"].items() if n in WRITERS[:2])
    return int(failed_as_a_whole(found) or wrong)


if __name__ == "__main__":
    sys.exit(main())
