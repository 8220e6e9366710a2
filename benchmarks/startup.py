"""How long gzarr takes to start: ``PYTHON startup.py [--runs 9] [--json FILE]``, with the Python that has gzarr.

Every time is that of new processes, which take turns, so that a busy machine slows all of them alike. It needs nothing
but gzarr, and is run by ``ci/release`` right after the wheel was installed.

========== ==========================================================================================  ===========
import     ``import gzarr`` above an interpreter that does nothing, as ``-X importtime`` counts it           10 ms
help       ``gzarr --help``, the whole process                                                              150 ms
read       from before ``import gzarr`` to the elements of a small array: metadata, plan, kernels           500 ms
write      the same for creating and writing an array                                                       500 ms
========== ==========================================================================================  ===========

Limits hold for the fastest run, or for its processor time if that is less: on a busy machine, processes wait for
others. They hold for wheels with compiled kernels, where no compiler may be imported. Medians are printed beside them.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

LIMITS_MS = {"import": 10.0, "help": 150.0, "read": 500.0, "write": 500.0}

WRITE = """
import sys, time
began = time.perf_counter()
import gzarr
import numpy as np
values = np.arange(1 << 20, dtype="u2").reshape(1024, 1024)
gzarr.create_array(sys.argv[1], shape=values.shape, chunks=(256, 256), dtype="u2", overwrite=True)[...] = values
print(1e3 * (time.perf_counter() - began), bool({"numba", "llvmlite"} & set(sys.modules)))
"""
READ = """
import sys, time
began = time.perf_counter()
import gzarr
values = gzarr.open(sys.argv[1])[...]
print(1e3 * (time.perf_counter() - began), bool({"numba", "llvmlite"} & set(sys.modules)))
assert values[1, 2] == 1026 and values[-1, -1] == 65535
"""


@dataclass
class Times:
    """What was measured.

    Attributes
    ----------
    what
        Name of the measurement.
    each_ms
        Each run.
    cpu_ms
        Processor time of each process.
    compiler
        Whether a compiler was imported.
    """

    what: str
    each_ms: list[float]
    cpu_ms: list[float]
    compiler: bool = False

    @property
    def best_ms(self) -> float:
        return min(self.each_ms)

    @property
    def judged_ms(self) -> float:
        return min(self.best_ms, *self.cpu_ms)

    @property
    def median_ms(self) -> float:
        return statistics.median(self.each_ms)


def run(command: list[str]) -> tuple[float, float, str, str]:
    """Run a process; return its time and its processor time in ms, and what it printed."""
    began = time.perf_counter()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    elapsed_ms = 1e3 * (time.perf_counter() - began)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)[:200]}: {done.stderr}")
    cpu_s = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return elapsed_ms, 1e3 * cpu_s, done.stdout, done.stderr


def imported_ms(stderr: str) -> float:
    """Return the time of ``import gzarr`` with everything below it, from the output of ``-X importtime``."""
    for line in stderr.splitlines():
        own, _, name = line.removeprefix("import time:").rpartition("|")
        if name.strip() == "gzarr":
            return float(own.split("|")[1]) / 1e3
    raise SystemExit("-X importtime does not name gzarr")


def measure(runs: int, path: str) -> list[Times]:
    """Return the times of all that the table above lists, and of an interpreter that does nothing."""
    python = sys.executable
    entry = str(Path(python).parent / "gzarr")
    commands = {
        "python": [python, "-c", "pass"],
        "import": [python, "-X", "importtime", "-c", "import gzarr"],
        "process": [python, "-c", "import gzarr"],
        "help": [entry, "--help"],
        "write": [python, "-c", WRITE, path],
        "read": [python, "-c", READ, path],
    }
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    compilers, said = set(), {}
    for _ in range(runs):
        for name, command in commands.items():
            elapsed_ms, cpu_ms, stdout, stderr = run(command)
            if name == "import":
                elapsed_ms = imported_ms(stderr)
            elif stderr:
                said[name] = stderr
            if name in ("write", "read"):
                own, compiler = stdout.split()
                elapsed_ms = float(own)
                if compiler == "True":
                    compilers.add(name)
            found[name].append((elapsed_ms, cpu_ms))
    for name, text in said.items():
        print(f"{name} said: {text.strip()}")
    return [
        Times(
            name,
            [elapsed for elapsed, _ in times],
            [cpu for _, cpu in times],
            name in compilers or name in said,
        )
        for name, times in found.items()
    ]


def main() -> int:
    """Measure, print and judge."""
    parser = argparse.ArgumentParser(description="Measure how long gzarr takes to start.")
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--json", type=Path, help="also write the times to this file")
    parser.add_argument(
        "--compiles", action="store_true", help="kernels are compiled on first use: judge no read or write"
    )
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        times = measure(args.runs, str(Path(folder) / "a.zarr"))
    nothing_ms = next(row.median_ms for row in times if row.what == "python")
    print("milliseconds; the ratio is that of the medians to `python -c pass`")
    print(f"{'':10} {'first':>8} {'fastest':>8} {'median':>8} {'CPU':>8} {'ratio':>6} {'limit':>6}")
    failed = False
    for row in times:
        limit = LIMITS_MS.get(row.what)
        shown = f"{limit:6.0f}" if limit else f"{'':6}"
        judged = limit is not None and not (args.compiles and row.what in ("read", "write"))
        bad = judged and limit is not None and (row.judged_ms > limit or row.compiler)
        failed |= bad
        cpu_ms = statistics.median(row.cpu_ms)
        print(
            f"{row.what:10} {row.each_ms[0]:8.1f} {row.best_ms:8.1f} {row.median_ms:8.1f} {cpu_ms:8.1f}"
            f" {row.median_ms / nothing_ms:6.1f} {shown}{'   TOO SLOW' if bad else ''}"
            f"{'   (a compiler was imported, or something was printed)' if row.compiler else ''}"
        )
    if args.json:
        args.json.write_text(json.dumps([asdict(row) for row in times], indent=1) + "\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
