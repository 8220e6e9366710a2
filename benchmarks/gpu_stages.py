"""The stages of ``ci/gpu``: each gets a share of the remaining time, even after a failure; the table comes last.

The most valuable stages come first. Each stage is a separate process, and those that give damaged frames to decoders
come last: a sticky error of CUDA (such as an illegal address) fails only its own process.

Time that a stage does not use goes to the later ones. A stage that exceeds its share is ended; a stage with too little
time is left out: both are reported, and neither is a failure. Only Python's standard library is imported, because
packages may be missing.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import importlib.metadata
import json
import os
import platform
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    #: Function of the stage's time in seconds; returns the command and additions to the environment.
    Command = Callable[[float], tuple[list[str], dict[str, str]]]

ROOT = Path(__file__).resolve().parents[1]
#: Time reserved for the table and the report.
RESERVE_S = 10.0
#: A script that knows its time limit ends this long before the limit.
MARGIN_S = 15.0
#: Fraction of the soak's time for its reads; the rest is for Python's imports and for loading kernels.
SOAK_SHARE = 0.5
TAIL_LINES = 15
#: Location of libnvvm, which compiles our kernels, if neither a wheel nor the environment gives one.
CUDA_HOME = Path("/usr/local/cuda")
#: All modules with tests on a GPU, the most valuable first; other modules take long even to import.
TESTS = (
    "gpu", "nvcomp_batch", "gpu_damage", "doctor", "read_matrix", "write_edges", "rectilinear", "read_properties",
    "rectilinear_shards", "departures",
    "dtypes_matrix", "extension_codecs", "extension_dtypes", "golden", "golden_own", "fixtures", "read_api", "copy",
    "format_v1",
    "format_v3_draft", "format_v3_draft_documents", "made_up_codec", "number_types",
    "zip_store", "zip_remote", "fsspec_store", "zarr_store", "virtual",
    "read_windows", "map_blocks_devices", "loader", "keeping", "zarr_pipeline_gpu", "xarray_device", "dask", "dask_gpu",
    "ome_images", "pyramids",
)  # fmt: skip
#: Modules with tests of damaged frames.
DAMAGE_TESTS = ("gpu_damage", "nvcomp_batch")
DAMAGED_FRAMES = "damaged frames"

_KERNELS = """
import time
start = time.perf_counter()
from gzarr.engines import kernels
kernels.load()
print(f"kernels of the CPU engine: {time.perf_counter() - start:.1f} s")
"""
_DISTRIBUTIONS = (
    "numpy", "numba", "numba-cuda", "llvmlite", "cupy-cuda13x", "cupy-cuda12x", "nvidia-libnvcomp-cu13",
    "nvidia-libnvcomp-cu12", "kvikio-cu13", "kvikio-cu12", "zarr", "numcodecs", "blosc2", "deflate", "czarr", "torch",
    "jax", "pytest",
)  # fmt: skip


@dataclass(frozen=True)
class Stage:
    """One step.

    Attributes
    ----------
    name
        Name in the table, and of its log.
    weight
        Weight of its share, relative to the stages after it.
    least_s
        Least time in seconds; with less, it is left out.
    required
        Whether a non-zero exit code is a failure.
    command
        Function that returns the command.
    result
        File below the output directory, if any, that it writes for the report.
    """

    name: str
    weight: float
    least_s: float
    required: bool
    command: Command
    result: str | None = None


@dataclass
class Outcome:
    """Outcome of a stage: ``"passed"``, ``"failed"``, ``"out of time"`` or ``"left out"``."""

    stage: str
    required: bool
    state: str
    seconds: float = 0.0
    limit_s: float = 0.0
    command: str = ""
    note: str = ""
    tail: list[str] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        return self.required and self.state == "failed"


def _test_module(name: str) -> str:
    (path,) = (ROOT / "tests").rglob(f"test_{name}.py")
    return str(path.relative_to(ROOT))


def plan(python: str, out: Path, wheels: Path | None, site: Path | None) -> list[Stage]:
    """Return the stages in order.

    Parameters
    ----------
    python
        Python interpreter.
    out
        Directory for the results of stages.
    wheels, site
        Wheels to install, and their target directory; None for nothing.
    """

    def fixed(*command: str, **environment: str) -> Command:
        return lambda seconds: ([python, *command], environment)

    def timed(script: str, result: str, *arguments: str) -> Command:
        def command(seconds: float) -> tuple[list[str], dict[str, str]]:
            budget = f"{max(seconds - MARGIN_S, 1.0):.0f}"
            return [python, f"benchmarks/{script}", "--seconds", budget, "--json", str(out / result), *arguments], {}

        return command

    def tests(modules: Sequence[str], marked: str = "gpu", **environment: str) -> Command:
        def command(seconds: float) -> tuple[list[str], dict[str, str]]:
            pytest = [python, "-m", "pytest", *map(_test_module, modules), "-m", marked, "-rs"]
            pytest += ["-p", "no:cacheprovider", "--tb=short", "--durations=5", "-o", "timeout=60"]
            # One broken module does not stop the others; if everything fails, the rest adds no information.
            return [*pytest, "--continue-on-collection-errors", "--maxfail=60"], {
                "GZARR_TEST_GPU": "1",
                # Remaining tests are skipped then, so that the outcome of the others is reported.
                "GZARR_TEST_SECONDS": f"{max(seconds - MARGIN_S, 1.0):.0f}",
                "GZARR_SOAK_SECONDS": f"{SOAK_SHARE * seconds:.0f}",
                **environment,
            }

        return command

    ptx = str(out / "kernels")
    stages = []
    if wheels is not None:
        found = sorted(map(str, wheels.glob("*.whl")))
        pip = ["-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-compile", "--upgrade"]
        stages.append(Stage("install", 8, 5, True, fixed(*pip, "--target", str(site), *found)))
    harmless = timed("gpu_questions.py", "questions.json", "--without", DAMAGED_FRAMES)
    harmful = timed("gpu_questions.py", "damaged.json", "--question", DAMAGED_FRAMES)
    return [
        *stages,
        Stage("kernels", 40, 5, True, fixed("-c", _KERNELS)),
        # This also decodes with each codec.
        Stage("environment", 12, 5, True, fixed("-m", "gzarr", "doctor", "--device", "cuda", "--json"), "doctor.json"),
        Stage("equality", 34, 20, True, tests(TESTS, "gpu and not damage")),
        # As in a wheel: the driver compiles the PTX, and numba-cuda is not used.
        Stage("ptx", 6, 20, True, fixed("-m", "gzarr_kernels.device.build", ptx)),
        Stage("equality of ptx", 6, 20, True, tests(["gpu"], "gpu and not damage", GZARR_KERNELS=ptx)),
        Stage("questions", 14, 20, False, harmless, "questions.json"),
        Stage("benchmark", 30, 30, False, timed("gpu.py", "benchmark.json"), "benchmark.json"),
        Stage("writing", 8, 20, False, timed("gpu_write.py", "writing.json"), "writing.json"),
        Stage("loader", 8, 20, False, timed("gpu_loader.py", "loader.json"), "loader.json"),
        Stage("imaging", 8, 20, False, timed("gpu_imaging.py", "imaging.json"), "imaging.json"),
        Stage("soak", 6, 20, True, tests(["gpu_soak"])),
        Stage("damage", 6, 20, True, tests(DAMAGE_TESTS, "gpu and damage")),
        Stage("damaged frames", 6, 20, False, harmful, "damaged.json"),
    ]


def limit(stages: Sequence[Stage], at: int, remaining_s: float) -> float | None:
    """Return the seconds for stage ``at``, or None if it is left out.

    Parameters
    ----------
    stages
        All stages.
    at
        Position of the stage.
    remaining_s
        Time for it and the stages after it, in seconds.
    """
    share = remaining_s * stages[at].weight / sum(stage.weight for stage in stages[at:])
    share = min(max(share, stages[at].least_s), remaining_s)
    return None if share < stages[at].least_s else share


def run(stage: Stage, seconds: float, out: Path, environment: Mapping[str, str]) -> Outcome:
    """Run a stage for at most ``seconds``; its output goes to the terminal and to a log."""
    command, added = stage.command(seconds)
    shown = [*(f"{name}={value}" for name, value in added.items()), shlex.join(command)]
    outcome = Outcome(stage.name, stage.required, "passed", limit_s=seconds, command=" ".join(shown))
    print(f"== {stage.name} (at most {seconds:.0f} s)", flush=True)
    start = time.monotonic()
    try:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**environment, **added},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            # A separate process group, so that the stage is ended with everything that it started.
            start_new_session=True,
        )
    except OSError as error:
        outcome.state, outcome.note = "failed", str(error)
        return outcome
    assert process.stdout is not None
    lines: list[str] = []
    reader = threading.Thread(target=_copy, args=(process.stdout, out / f"{stage.name}.log", lines), daemon=True)
    reader.start()
    try:
        code = process.wait(seconds)
        if code:
            outcome.state = "failed"
            outcome.note = f"exit code {code}" if code > 0 else f"signal {-code}"
    except subprocess.TimeoutExpired:
        outcome.state, outcome.note = "out of time", f"ended after {seconds:.0f} s"
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    reader.join(2)
    outcome.seconds = time.monotonic() - start
    text = [line for line in lines if line.strip()]
    outcome.tail = text[-TAIL_LINES:]
    if outcome.state == "passed" and text and stage.result is None:
        outcome.note = text[-1].strip()[:100]
    return outcome


def _copy(stream: Any, log: Path, lines: list[str]) -> None:
    with stream, log.open("w", encoding="utf-8") as file:
        for raw in stream:
            line = raw.decode(errors="replace").rstrip("\n")
            lines.append(line)
            file.write(line + "\n")
            file.flush()
            print(line, flush=True)


def run_all(
    stages: Sequence[Stage], seconds: float, out: Path, environment: Mapping[str, str]
) -> tuple[list[Outcome], dict[str, Any]]:
    """Run the stages within ``seconds``; return their outcomes and results."""
    deadline = time.monotonic() + seconds
    outcomes: list[Outcome] = []
    results: dict[str, Any] = {}
    for at, stage in enumerate(stages):
        remaining = deadline - time.monotonic()
        share = limit(stages, at, remaining)
        if share is None:
            note = f"{max(remaining, 0):.0f} s were left, but it needs at least {stage.least_s:.0f} s"
            print(f"== {stage.name}: left out, {note}", flush=True)
            outcomes.append(Outcome(stage.name, stage.required, "left out", note=note))
            continue
        outcome = run(stage, share, out, environment)
        outcomes.append(outcome)
        if stage.name == "environment":
            _keep_document(out / f"{stage.name}.log", out / "doctor.json")
        if stage.result is not None:
            with contextlib.suppress(OSError, ValueError):
                results[stage.name] = json.loads((out / stage.result).read_text())
    return outcomes, results


def _keep_document(log: Path, file: Path) -> None:
    """Write the JSON document that a command has printed, possibly after warnings, to a file."""
    with contextlib.suppress(OSError, ValueError):
        text = log.read_text()
        file.write_text(json.dumps(json.JSONDecoder().raw_decode(text[text.index("{") :])[0], indent=1) + "\n")


def table(outcomes: Sequence[Outcome]) -> str:
    """Return the plain text table."""
    rows = [("stage", "outcome", "seconds", "limit", "")]
    for o in outcomes:
        state = o.state.upper() if o.failed else o.state
        rows.append((o.stage, state, f"{o.seconds:.1f}", f"{o.limit_s:.0f}", o.note))
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    lines = []
    for row in rows:
        cells = [c.rjust(w) if i > 1 else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=False))]
        lines.append("  ".join([*cells, row[4]]).rstrip())
    return "\n".join(lines)


def exit_code(outcomes: Sequence[Outcome]) -> int:
    """Return 1 if a required stage failed, else 0, even if there was no time for it."""
    return int(any(o.failed for o in outcomes))


def hardware() -> dict[str, Any]:
    """Return facts about this machine and its GPUs."""
    facts: dict[str, Any] = {
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
    }
    with contextlib.suppress(OSError):
        models = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
        facts["cpu"] = models[0].split(":", 1)[1].strip() if models else platform.machine()
    with contextlib.suppress(OSError, ValueError):
        facts["memory_gib"] = round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1)
    query = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version,compute_cap", "--format=csv,noheader"]
    try:
        facts["gpus"] = subprocess.run(
            query, capture_output=True, text=True, timeout=20, check=True
        ).stdout.splitlines()
    except (OSError, subprocess.SubprocessError) as error:
        facts["gpus"] = []
        facts["no_gpu"] = str(error)
    return facts


def cuda_home(environment: Mapping[str, str], path: Sequence[str], home: Path = CUDA_HOME) -> dict[str, str]:
    """Return additions to the environment with which libnvvm, which compiles the kernels, is found.

    Parameters
    ----------
    environment
        Environment of the stages.
    path
        Where packages are installed, besides :data:`sys.path`.
    home
        Default location of CUDA.
    """
    if environment.get("CUDA_HOME") or environment.get("CUDA_PATH") or not home.is_dir():
        return {}
    if any(any(Path(folder).glob("nvidia/**/libnvvm.so*")) for folder in (*path, *sys.path)):
        return {}
    return {"CUDA_HOME": str(home)}


def versions(path: Sequence[str]) -> dict[str, str]:
    """Return the versions of relevant packages, the first found on ``path``."""
    found: dict[str, str] = {}
    for distribution in importlib.metadata.distributions(path=[*path, *sys.path]):
        name = (distribution.metadata["Name"] or "").lower().replace("_", "-")
        if name in _DISTRIBUTIONS:
            found.setdefault(name, distribution.version)
    return dict(sorted(found.items()))


def _commit() -> str:
    command = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    return ""


def _before(folders: Sequence[str], variable: str) -> str:
    """Return the folders of an environment variable, after other folders."""
    return os.pathsep.join([*folders, *filter(None, [os.environ.get(variable)])])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="ci/gpu", description="Everything that needs a GPU, within some minutes.")
    parser.add_argument("--wheels", type=Path, metavar="DIR", help="also install the wheels in DIR")
    parser.add_argument("--minutes", type=float, default=9.0, help="time limit (default 9)")
    parser.add_argument("--out", type=Path, default=ROOT / "gpu-output", metavar="DIR", help="default: gpu-output")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run everything; return 1 if the environment or a test is not right."""
    start = time.monotonic()
    parser = _parser()
    arguments = parser.parse_args(argv)
    if arguments.minutes <= 0:
        parser.error("--minutes must be positive")
    if arguments.wheels is not None and not any(arguments.wheels.glob("*.whl")):
        parser.error(f"there are no wheels in {arguments.wheels}")
    out = arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    for name in (
        "doctor.json",
        "questions.json",
        "benchmark.json",
        "writing.json",
        "loader.json",
        "imaging.json",
        "damaged.json",
    ):
        (out / name).unlink(missing_ok=True)
    wheels = None if arguments.wheels is None else arguments.wheels.resolve()
    site = None if wheels is None else Path(tempfile.mkdtemp(prefix="gzarr-site-"))
    try:
        installed = [] if site is None else [str(site)]
        environment = {
            **os.environ,
            "PYTHONPATH": _before([str(ROOT), str(ROOT / "kernels"), *installed], "PYTHONPATH"),
            # If another package of NVIDIA occupies the name "nvidia", nvCOMP is found as a library.
            "LD_LIBRARY_PATH": _before([f"{site}/nvidia/libnvcomp/lib64"] if site else [], "LD_LIBRARY_PATH"),
            "PYTHONUNBUFFERED": "1",
        }
        added = cuda_home(environment, installed)
        stages = plan(sys.executable, out, wheels, site)
        seconds = 60 * arguments.minutes - RESERVE_S - (time.monotonic() - start)
        outcomes, results = run_all(stages, seconds, out, {**environment, **added})
        report = {
            "command": shlex.join(["ci/gpu", *(sys.argv[1:] if argv is None else argv)]),
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "commit": _commit(),
            "hardware": hardware(),
            "environment": added,
            "versions": versions(installed),
            "stages": [o.__dict__ for o in outcomes],
            **results,
        }
    finally:
        if site is not None:
            shutil.rmtree(site, ignore_errors=True)
    file = out / "gpu.json"
    file.write_text(json.dumps(report, indent=1) + "\n")
    print(f"\n{file}\n{table(outcomes)}")
    return exit_code(outcomes)


if __name__ == "__main__":
    sys.exit(main())
