"""The demo: gzarr reads a 256 MiB volume written by zarr-python, then writes it, and zarr-python reads it back.

    ci/demo                     or, in an environment that has zarr and matplotlib:  python benchmarks/demo.py

Compares every element both ways, prints throughput beside zarr-python's, and leaves a picture of a slice in
``demo-output/``. Times of reads include freeing the result. Reads are timed into new memory for each result, like
zarr-python's, and ("recycled") into the memory of a released result, gzarr's default.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fields
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

CHUNK_SHAPE = (64, 64, 64)


def _write(path: Path, volume: npt.NDArray[np.uint16]) -> int:
    """Write the volume like most microscopes' software (blosc, lz4, byte shuffle); return the stored bytes."""
    import zarr

    array = zarr.create_array(
        str(path),
        shape=volume.shape,
        chunks=CHUNK_SHAPE,
        dtype=volume.dtype,
        compressors=zarr.codecs.BloscCodec(cname="lz4", clevel=5, shuffle="shuffle"),
        dimension_names=("z", "y", "x"),
    )
    array[...] = volume
    return sum(f.stat().st_size for f in path.rglob("*") if f.is_file())


def _to_host(result: Any) -> npt.NDArray[Any]:
    return result.get() if hasattr(result, "get") else np.asarray(result)


def _recycling(job: Callable[[], Any], nbytes: str) -> Callable[[], None]:
    """Return a job under a setting of ``GZARR_RECYCLE_BYTES``; its result is also freed under that setting."""

    def run() -> None:
        os.environ["GZARR_RECYCLE_BYTES"] = nbytes
        job()

    return run


def _rounds(jobs: dict[str, Callable[[], Any]], rounds: int, warm: Sequence[str] = ()) -> dict[str, float]:
    """Return the median seconds of each job, in interleaved rounds after a warm-up round.

    Parameters
    ----------
    jobs
        Jobs by name.
    rounds
        Number of timed rounds.
    warm
        Names of jobs that run once in each round before they are timed.
    """
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    for turn in range(rounds + 1):
        for name, job in jobs.items():
            if name in warm:
                job()
            start = time.perf_counter()
            job()
            elapsed = time.perf_counter() - start
            if turn:
                seconds[name].append(elapsed)
    return {name: statistics.median(times) for name, times in seconds.items()}


def _print_times(what: str, times: dict[str, float], nbytes: int) -> None:
    print(f"\n{what:<14}{'ms':>9}{'GB/s':>8}")
    for name, seconds in times.items():
        print(f"{name:<14}{1e3 * seconds:>9.1f}{nbytes / seconds / 1e9:>8.2f}")
    print(f"gzarr takes 1/{times['zarr-python'] / times['gzarr']:.1f} of the time")


def _draw(plane: npt.NDArray[Any], file: Path, title: str) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 5.4), layout="constrained")
    image = axes.imshow(plane, cmap="magma")
    axes.set(title=title, xlabel="x", ylabel="y")
    figure.colorbar(image, label="counts", shrink=0.85)
    figure.savefig(file, dpi=120)
    plt.close(figure)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo; return 1 if an element differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edge", type=int, default=512, help="edge of the volume in voxels (default 512: 256 MiB)")
    parser.add_argument("--rounds", type=int, default=5, help="timed rounds (default 5)")
    parser.add_argument("--device", default="auto", help="device that gzarr reads to (default auto)")
    parser.add_argument("--output", type=Path, default=Path("demo-output"), help="folder for the picture")
    arguments = parser.parse_args(argv)
    if arguments.edge < 1 or arguments.rounds < 1:
        parser.error("--edge and --rounds must be positive")

    import zarr

    import gzarr

    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    zarr.config.set({"threading.max_workers": threads})
    with tempfile.TemporaryDirectory(prefix="gzarr-demo-") as home:
        path = Path(home) / "volume.zarr"
        print(
            f"making a volume of {arguments.edge}³ voxels (uint16), writing it with zarr-python {zarr.__version__} ..."
        )
        volume = fields.make(fields.camera_u2, (arguments.edge,) * 3)
        stored = _write(path, volume)
        print(f"{volume.nbytes / 2**20:.0f} MiB in {stored / 2**20:.0f} MiB, {volume.nbytes / stored:.2f} to 1")

        array = gzarr.open_array(path, device=arguments.device)
        print(f"gzarr {gzarr.__version__} reads to {array.device} by {array.decode_path}")
        result = _to_host(array[...])
        same = result.dtype == volume.dtype and np.array_equal(result, volume)
        print(f"all {volume.size:,} elements are equal" if same else "ELEMENTS DIFFER")
        if not same:
            return 1

        theirs = zarr.open_array(str(path), mode="r")
        reads: dict[str, Callable[[], Any]] = {"gzarr": lambda: array[...], "zarr-python": lambda: theirs[...]}
        if array.device == "cpu":
            # CuPy's pool always recycles a device's memory.
            reads["recycled"] = _recycling(reads["gzarr"], "")
            reads["gzarr"] = _recycling(reads["gzarr"], "0")
        times = _rounds(reads, arguments.rounds, warm=["recycled"])
        print(f"\nwhole volume, {threads} threads, median of {arguments.rounds} interleaved rounds, warm page cache")
        _print_times("read", times, volume.nbytes)

        written = gzarr.empty_like(array, Path(home) / "written.zarr", device=arguments.device)
        written[...] = result
        same = np.array_equal(np.asarray(zarr.open_array(str(Path(home) / "written.zarr"), mode="r")[...]), volume)
        print(f"\nwritten by gzarr, read by zarr-python: {'all elements are equal' if same else 'ELEMENTS DIFFER'}")
        if not same:
            return 1
        target = zarr.open_array(str(path), mode="r+")
        writes = {
            "gzarr": lambda: written.write(..., volume),
            "zarr-python": lambda: target.set_basic_selection(..., volume),
        }
        _print_times("write", _rounds(writes, arguments.rounds), volume.nbytes)

        arguments.output.mkdir(parents=True, exist_ok=True)
        file = arguments.output / "slice.png"
        z = arguments.edge // 2
        _draw(_to_host(array[z]), file, f"a[{z}] of the sample volume, read by gzarr")
        print(f"\n{file.resolve()}: a slice of the result")
    return 0


if __name__ == "__main__":
    sys.exit(main())
