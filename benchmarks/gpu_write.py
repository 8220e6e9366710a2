"""Writing speed from a GPU: encoding there, compared with copying the elements to the host and encoding them there.

    python benchmarks/gpu_write.py                        512 MiB per array, about a minute
    python benchmarks/gpu_write.py --codec zstd --mib 2048 --json write.json

``gzarr`` gets an array on the device; ``gzarr, host`` and ``zarr-python`` get a copy in host memory, which is made in
each run and included in its time. Files are replaced, and not flushed to disk. Rounds are interleaved, and medians are
reported. Each writer's output is read by gzarr's CPU engine and compared before it is timed.
"""

from __future__ import annotations

import argparse
import datetime
import json
import shlex
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import fields
import gpu_transfers
import numpy as np
import report
from report import _grid
from workloads import LITTLE, Dataset, _gzip, _zstd, blosc, default_data_dir

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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


def measure(device: Device, dataset: Dataset, folder: Path, seconds: float, rounds: int) -> dict[str, Any]:
    """Check and time the writers of one array; return figures by name, or errors."""
    import gzarr

    deadline = time.monotonic() + seconds
    base = fields.make(dataset.field, (BASE_ROWS, *dataset.shape[1:]))
    host = np.tile(base, (dataset.shape[0] // BASE_ROWS, 1, 1))
    found: dict[str, Any] = {"nbytes": dataset.nbytes, "codecs": dataset.codecs, "writers": {}}
    calls = writers(folder, dataset, on_device(device, host), device)
    times: dict[str, list[float]] = {}
    for name, call in list(calls.items()):
        try:
            call()
            right = np.array_equal(gzarr.open_array(folder / name, device="cpu")[...], host)
            stored = sum(path.stat().st_size for path in (folder / name / "c").rglob("*") if path.is_file())
            found["writers"][name] = {"right": right, "stored_nbytes": stored}
        except Exception as error:  # a writer that fails is a line of the table, not the end of the run
            found["writers"][name] = {"right": False, "error": f"{type(error).__name__}: {error}"[:200]}
        if found["writers"][name]["right"]:
            times[name] = []
    for turn in range(rounds):
        for name, done in times.items():
            # Every correct writer is timed at least once.
            if turn and time.monotonic() > deadline:
                continue
            start = time.perf_counter()
            calls[name]()
            done.append(time.perf_counter() - start)
    for name, done in times.items():
        median = statistics.median(done)
        found["writers"][name] |= {"ms": 1e3 * median, "gb_per_s": dataset.nbytes / median / 1e9, "rounds": len(done)}
    return found


def table(results: dict[str, dict[str, Any]]) -> str:
    """Return the plain text table: GB of elements per second, and compression ratios."""
    rows = [["GB/s", *WRITERS, "ratio on device", "ratio on host"]]
    for name, found in results.items():
        all_of = found["writers"]
        speeds = [f"{w['gb_per_s']:.2f}" if "gb_per_s" in w else "failed" for w in (all_of[n] for n in WRITERS)]
        ratios = [found["nbytes"] / max(all_of[n].get("stored_nbytes", 0), 1) for n in WRITERS[:2]]
        rows.append([name, *speeds, *(f"{ratio:.2f}" for ratio in ratios)])
    errors = [
        f"{name}, {writer}: {w.get('error', 'WRONG RESULT')}"
        for name, found in results.items()
        for writer, w in found["writers"].items()
        if not w["right"]
    ]
    return "\n".join([_grid(rows), *errors])


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--mib", type=int, default=512, help="size of each array (default 512)")
    found.add_argument("--seconds", type=float, default=60.0, help="approximate time limit (default 60)")
    found.add_argument("--rounds", type=int, default=5, help="timed rounds, at most (default 5)")
    found.add_argument("--codec", action="append", metavar="TEXT", help="only arrays whose name contains TEXT")
    found.add_argument("--data", type=Path, default=default_data_dir(), help="directory for the arrays")
    found.add_argument("--json", type=Path, metavar="FILE")
    return found


def run(
    script: str,
    argv: Sequence[str] | None,
    arguments: argparse.Namespace,
    arrays: Sequence[Dataset],
    measure: Callable[[Device, Dataset, Path, float], dict[str, Any]],
) -> dict[str, dict[str, Any]] | None:
    """Measure arrays one after the other, each in a folder of its own, and write the figures to ``--json``.

    Parameters
    ----------
    script, argv, arguments
        Name of the benchmark's file, and its command line.
    arrays
        The arrays, of which ``--codec`` chooses some.
    measure
        Function of the device, an array, a folder and the seconds that are left for it.

    Returns
    -------
    Figures by array; None if there is no device.
    """
    from gzarr.engines.cuda import devices
    from gzarr.errors import DeviceError

    try:
        device = devices.get_device(devices.current())
    except DeviceError as error:
        print(error, file=sys.stderr)
        return None
    chosen = [d for d in arrays if any(t in d.name for t in arguments.codec or [""])]
    deadline = time.monotonic() + arguments.seconds
    results: dict[str, dict[str, Any]] = {}
    arguments.data.mkdir(parents=True, exist_ok=True)
    for number, dataset in enumerate(chosen):
        left = (deadline - time.monotonic()) / (len(chosen) - number)
        if left <= 0:
            print(f"{dataset.name}: left out for lack of time", file=sys.stderr)
            continue
        folder = Path(tempfile.mkdtemp(prefix=".measured-", dir=arguments.data))
        try:
            with device:
                results[dataset.name] = measure(device, dataset, folder, left)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    document = {
        "command": shlex.join(["python", f"benchmarks/{script}", *(sys.argv[1:] if argv is None else argv)]),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": report.machine(),
        "device": gpu_transfers.device_facts(),
        "arrays": results,
    }
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(document, indent=1) + "\n")
    return results


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; return 1 if there is no device, or a writer of ours failed."""
    arguments = parser().parse_args(argv)
    results = run(
        "gpu_write.py", argv, arguments, datasets(arguments.mib << 20),
        lambda *what: measure(*what, arguments.rounds),
    )  # fmt: skip
    if results is None:
        return 1
    print(table(results))
    return int(any(not found["writers"][name]["right"] for found in results.values() for name in WRITERS[:2]))


if __name__ == "__main__":
    sys.exit(main())
