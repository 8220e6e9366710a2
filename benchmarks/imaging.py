"""Pyramids of a stored volume: gzarr beside ome-zarr-py, iohub and ngff-zarr.

    python benchmarks/imaging.py                           four cases, five rounds
    python benchmarks/imaging.py --side 256 --rounds 1
    python benchmarks/imaging.py --json imaging.json

Python 3.12 or newer with ``pip install . --group benchmark-imaging``. A volume of ``side³`` elements (512 by default;
an image of 16 bits, or labels of 32), stored in chunks of 64³, becomes an OME-Zarr 0.5 image with the levels 1, 2, 4
and 8: the volume is read, and all levels are written, in chunks of 64³, ``sharded`` in shards of 256³. Everyone has
iohub's codec, Blosc with zstd of level 1 and bitshuffle, which cannot be chosen there. ``levels`` is what iohub and
gzarr do besides: they add levels to an image whose level 0 is there.

Means make levels of images. Labels are of modes where a library has them; ome-zarr-py takes one of the elements. Every
run has a process of its own, which makes a small pyramid first: what is imported and compiled is not timed. Rounds are
interleaved, medians are reported, with the largest error of level 1 (for labels, the share that is not the mode), and
the growth of the process's memory. No file is deleted meanwhile (``disk.py``).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fields
import numpy as np
from disk import empty

import gzarr

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

CHUNK, SHARD, LEVELS = 64, 256, 4
LIBRARIES = {"gzarr": "gzarr", "ome-zarr-py": "ome-zarr", "iohub": "iohub", "ngff-zarr": "ngff-zarr"}
CASES = ("image", "image sharded", "labels", "labels sharded", "levels", "levels sharded")
#: The project's target: times the speed of the fastest other library.
LEAST = 1.7
BLOSC = {"cname": "zstd", "clevel": 1, "shuffle": "bitshuffle"}


def made(kind: str, side: int) -> np.ndarray[Any, Any]:
    return fields.make(fields.labels_u4 if kind == "labels" else fields.camera_u2, (side,) * 3)


def write_source(path: Path, values: np.ndarray[Any, Any]) -> None:
    gzarr.create_array(path, data=values, chunks=CHUNK, codecs=[{"name": "blosc", "configuration": BLOSC}])


# -- what is measured: from a stored array to an image


def by_gzarr(source: Path, target: Path, case: str) -> Callable[[], Any]:
    options: dict[str, Any] = {"levels": LEVELS, "method": "mode" if "labels" in case else "mean"}
    if "levels" in case:
        _level_0(source, target, case)
        return lambda: gzarr.ome.pyramid(target, **options)
    options |= {"shards": SHARD if "sharded" in case else None, "chunks": CHUNK}
    codecs = [{"name": "blosc", "configuration": BLOSC}]
    return lambda: gzarr.ome.create(target, gzarr.open_array(source), axes="zyx", codecs=codecs, **options)


def _level_0(source: Path, target: Path, case: str) -> None:
    gzarr.ome.create(
        target,
        gzarr.open_array(source),
        axes="zyx",
        levels=1,
        chunks=CHUNK,
        shards=SHARD if "sharded" in case else None,
        codecs=[{"name": "blosc", "configuration": BLOSC}],
    )


def by_ome_zarr_py(source: Path, target: Path, case: str) -> Callable[[], Any]:
    import dask.array as da
    import zarr
    from ome_zarr.scale import Methods
    from ome_zarr.writer import write_image
    from zarr.codecs import BloscCodec

    options: dict[str, Any] = {"chunks": (CHUNK,) * 3, "compressors": [BloscCodec(**BLOSC)]}
    if "sharded" in case:
        options["shards"] = (SHARD,) * 3

    def work() -> None:
        # Blocks of shards are what it asks for where shards are written.
        array = da.from_zarr(str(source), chunks=(SHARD if "sharded" in case else CHUNK,) * 3)
        write_image(
            array,
            zarr.open_group(target, mode="w", zarr_format=3),
            # A number would leave z as it is.
            scale_factors=[dict.fromkeys("zyx", factor) for factor in (2, 4, 8)],
            axes="zyx",
            method=Methods.NEAREST if "labels" in case else Methods.LOCAL_MEAN,
            storage_options=options,
        )

    return work


def by_ngff_zarr(source: Path, target: Path, case: str) -> Callable[[], Any]:
    import dask.array as da
    import ngff_zarr
    from zarr.codecs import BloscCodec

    method = ngff_zarr.Methods.DASK_IMAGE_MODE if "labels" in case else ngff_zarr.Methods.DASK_BIN_SHRINK

    def work() -> None:
        array = ngff_zarr.to_ngff_image(da.from_zarr(str(source)), dims=("z", "y", "x"))
        found = ngff_zarr.to_multiscales(array, scale_factors=[2, 4, 8], method=method, chunks=CHUNK, cache=False)
        options = {"chunks_per_shard": SHARD // CHUNK} if "sharded" in case else {}
        ngff_zarr.to_ngff_zarr(target, found, version="0.5", compressors=[BloscCodec(**BLOSC)], **options)

    return work


def by_iohub(source: Path, target: Path, case: str) -> Callable[[], Any]:
    import zarr
    from iohub.ngff import open_ome_zarr

    ratio = (1, 1, *(SHARD // CHUNK,) * 3) if "sharded" in case else None
    method = "mode" if "labels" in case else "mean"
    # By far the faster of its two; the other cannot compute modes here.
    own: dict[str, Any] = {"implementation": "tensorstore"}

    def new(levels: int) -> None:
        with open_ome_zarr(target, layout="fov", mode="w", channel_names=["a"], version="0.5", **own) as position:
            values = zarr.open_array(source, mode="r")[...][None, None]
            position.create_image("0", values, chunks=(1, 1, *(CHUNK,) * 3), shards_ratio=ratio)
            if levels > 1:
                position.compute_pyramid(levels=levels, method=method)

    def add() -> None:
        with open_ome_zarr(target, layout="fov", mode="r+", **own) as position:
            position.compute_pyramid(levels=LEVELS, method=method)

    if "levels" not in case:
        return lambda: new(LEVELS)
    new(1)
    return add


WAYS = {"gzarr": by_gzarr, "ome-zarr-py": by_ome_zarr_py, "iohub": by_iohub, "ngff-zarr": by_ngff_zarr}


def can(library: str, case: str) -> bool:
    return "levels" not in case or library in ("gzarr", "iohub")


# -- one run, in a process of its own


def error_of(target: Path, case: str) -> float:
    """Return the largest difference of level 1 to the exact mean, or the share of labels that are not the mode."""
    metadata: Any = dict(gzarr.open_group(target).attrs)["ome"]["multiscales"][0]
    group = gzarr.open_group(target)
    zero, one = (np.squeeze(group[entry["path"]].read()) for entry in metadata["datasets"][:2])
    zero = zero[:128, :128, :128]
    one = one[:64, :64, :64]
    cells = zero.reshape(64, 2, 64, 2, 64, 2).transpose(0, 2, 4, 1, 3, 5).reshape(64, 64, 64, 8)
    if "labels" not in case:
        return float(np.abs(cells.mean(-1) - one).max())
    ordered = np.sort(cells, -1)
    most, mode = np.zeros(one.shape, int), np.zeros(one.shape, zero.dtype)
    for i in range(8):
        count = (ordered == ordered[..., i : i + 1]).sum(-1)
        mode = np.where(count > most, ordered[..., i], mode)
        most = np.maximum(most, count)
    return float((mode != one).mean())


def peak_kib() -> int:
    """Return the most memory of this process; what getrusage says begins with that of the one that started it."""
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])


def run_one(library: str, case: str, source: Path, small: Path, folder: Path) -> None:
    """Run one way, and print what it took as JSON."""
    warnings.simplefilter("ignore")
    WAYS[library](small, folder / "small.zarr", case)()
    work = WAYS[library](source, folder / "a.zarr", case)
    # What was written before is not written to the disk meanwhile.
    os.sync()
    before = peak_kib()
    begin, cpu = time.perf_counter(), time.process_time()
    work()
    seconds, used = time.perf_counter() - begin, time.process_time() - cpu
    growth = peak_kib() - before
    error = error_of(folder / "a.zarr", case)
    print(json.dumps({"seconds": seconds, "cpu": used, "mib": growth / 1024, "error": error}))


def measured(library: str, case: str, source: Path, small: Path, results: Path) -> dict[str, float] | None:
    folder = Path(tempfile.mkdtemp(dir=results))
    command = [sys.executable, __file__, "--run", library, case, str(source), str(small), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    empty(folder)
    if done.returncode:
        print(f"{case}, {library}: failed\n{done.stderr[-2000:]}", file=sys.stderr)
        return None
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, and return 1 if the target was missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--side", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--case", choices=CASES, action="append")
    parser.add_argument("--library", choices=tuple(LIBRARIES), action="append")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--data-dir", type=Path, default=Path(tempfile.gettempdir()) / "gzarr-benchmarks" / "imaging")
    parser.add_argument("--run", nargs=5, help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.run:
        library, case, *paths = arguments.run
        run_one(library, case, *map(Path, paths))
        return 0
    sources = {}
    arguments.data_dir.mkdir(parents=True, exist_ok=True)
    for kind in ("image", "labels"):
        for side in (128, arguments.side):
            sources[kind, side] = path = arguments.data_dir / f"{kind}-{side}.zarr"
            if not (path / "zarr.json").exists():
                shutil.rmtree(path, ignore_errors=True)
                write_source(path, made(kind, side))
    libraries, cases = arguments.library or list(LIBRARIES), arguments.case or CASES
    versions = {name: gzarr.__version__ if name == "gzarr" else version(LIBRARIES[name]) for name in libraries}
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    print(", ".join(f"{name} {number}" for name, number in versions.items()))
    runs: dict[str, dict[str, list[dict[str, float]]]] = {}
    missed = 0
    with tempfile.TemporaryDirectory(dir=arguments.data_dir) as results:
        for case in cases:
            found: dict[str, list[dict[str, float]]] = {name: [] for name in libraries if can(name, case)}
            kind = "labels" if "labels" in case else "image"
            for _ in range(arguments.rounds):
                for name in list(found):
                    one = measured(name, case, sources[kind, arguments.side], sources[kind, 128], Path(results))
                    if one is None:
                        del found[name]
                    else:
                        found[name].append(one)
            runs[case] = found
            missed += report(case, found)
    if arguments.json:
        from report import header, save

        facts = header("imaging.py", argv, versions, rounds=arguments.rounds, side=arguments.side)
        save(arguments.json, {**facts, "runs": runs})
    print(f"{missed} of {len(cases)} below {LEAST} times the fastest other library")
    return int(bool(missed))


def report(case: str, found: dict[str, list[dict[str, float]]]) -> bool:
    """Print the medians of a case; return whether the target was missed."""
    medians = {
        name: {what: statistics.median(run[what] for run in runs) for what in runs[0]} for name, runs in found.items()
    }
    for name, run in medians.items():
        wrong = f"{100 * run['error']:.1f} % not the mode" if "labels" in case else f"error {run['error']:.2f}"
        print(
            f"{case:16} {name:12} {run['seconds']:6.2f} s  {run['cpu']:6.2f} s of CPU  {run['mib']:6.0f} MiB  {wrong}",
            flush=True,
        )
    others = [run["seconds"] for name, run in medians.items() if name != "gzarr"]
    if "gzarr" not in medians or not others:
        return False
    ratio = min(others) / medians["gzarr"]["seconds"]
    print(f"{case:16} {ratio:.2f} times the fastest other library", flush=True)
    return ratio < LEAST


if __name__ == "__main__":
    sys.exit(main())
