"""Kernels compiled ahead for levels of processors, compared with those that Numba compiles for this very processor.

Usage: ``python benchmarks/compiled.py [--rounds N] [--scale S] [--only TEXT] [--folder FOLDER]``.

``FOLDER`` has the libraries that ``python -m gzarr_kernels.build FOLDER`` makes; without it, they are made first. Each
variant has a process of its own; the processes take turns. Each reads the arrays of ``benchmarks/workloads.py`` into
reused memory, and writes them with their codecs. The table shows medians in ms, and their ratios to Numba's.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import workloads as w
from gzarr_kernels import ahead, build


def whole_arrays(scale: float) -> dict[str, w.Dataset]:
    """Return the arrays that the benchmarks read as a whole, by name."""
    return {workload.name: workload.dataset for workload in w.workloads(scale) if workload.whole}


def serve(folder: str, scale: float) -> None:
    """Run one variant: for each line of stdin, ``read NAME`` or ``write NAME``, print the milliseconds that it took."""
    import gzarr

    prepared: dict[str, Any] = {}
    for line in sys.stdin:
        kind, name = line.split()
        if name not in prepared:
            dataset = whole_arrays(scale)[name]
            source = gzarr.open_array(w.store(dataset, w.default_data_dir()).path, device="cpu")
            # At a page, in every process: alignment decides whether stores can bypass the caches.
            memory = np.empty(source.nbytes + 4096, np.uint8)
            first = -memory.ctypes.data % 4096
            out = memory[first : first + source.nbytes].view(source.dtype).reshape(source.shape)
            source.read(..., out=out)
            path = shutil.copytree(source.store.file_root().decode(), Path(folder) / name)
            prepared[name] = source, out, gzarr.open_array(path, mode="r+", device="cpu")
        source, out, target = prepared[name]
        began = time.perf_counter()
        if kind == "read":
            source.read(..., out=out)
        else:
            target[...] = out
        print(1e3 * (time.perf_counter() - began), flush=True)


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--scale", type=float, default=0.25)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--only", default="", metavar="TEXT", help="only tasks whose name contains it: write f4")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.serve, arguments.scale)
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.folder or Path(scratch)
        if not arguments.folder:
            build.build(folder, build.own_targets())
        variants: dict[str, subprocess.Popen[str]] = {}
        for target in ["numba", *reversed(ahead.targets())]:
            own = Path(scratch) / f"only-{target}"
            own.mkdir()
            for path in folder.glob(f"{ahead.file_name(target)}.*"):
                shutil.copy(path, own)
            command = [
                sys.executable,
                __file__,
                "--scale",
                str(arguments.scale),
                "--serve",
                tempfile.mkdtemp(dir=scratch),
            ]
            variants[target] = subprocess.Popen(
                command,
                env=os.environ | {"GZARR_JIT": str(int(target == "numba")), "GZARR_KERNELS": str(own)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        tasks = [(kind, name) for name in whole_arrays(arguments.scale) for kind in ("read", "write")]
        tasks = [task for task in tasks if arguments.only in " ".join(task)]
        found: dict[tuple[str, str], dict[str, list[float]]] = {task: {v: [] for v in variants} for task in tasks}
        for turn in range(arguments.rounds + 1):
            for kind, name in tasks:
                order = list(variants)[turn % len(variants) :] + list(variants)[: turn % len(variants)]
                for variant in order:
                    process = variants[variant]
                    assert process.stdin is not None
                    assert process.stdout is not None
                    process.stdin.write(f"{kind} {name}\n")
                    process.stdin.flush()
                    elapsed_ms = float(process.stdout.readline())
                    # The first turn warms up.
                    if turn:
                        found[kind, name][variant].append(elapsed_ms)
        for process in variants.values():
            process.communicate()
    print(shlex.join(["python", "benchmarks/compiled.py", *sys.argv[1:]]))
    print(f"median of {arguments.rounds} rounds; ms, and the ratio to Numba's\n")
    print(f"{'':32}" + "".join(f"{v:>20}" for v in variants))
    ratios: dict[str, list[float]] = {v: [] for v in variants}
    for (kind, name), times in found.items():
        line = f"{kind} {name:26}"
        own_ms = statistics.median(times["numba"])
        for variant, values in times.items():
            ratios[variant].append(statistics.median(values) / own_ms)
            line += f"{statistics.median(values):12.2f} {ratios[variant][-1]:7.3f}"
        print(line)
    print(f"{'geometric mean':32}" + "".join(f"{statistics.geometric_mean(r):20.3f}" for r in ratios.values()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
