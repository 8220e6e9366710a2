"""The stages of ``ci/gpu check`` and ``ci/gpu measure``, in order; ``gpu.run`` runs them.

``check`` takes four minutes and says whether everything is right; ``measure`` takes nine and says how fast it is. The
most valuable stages come first. Each stage is a process of its own, and those that give damaged frames to decoders come
last: a sticky error of CUDA (such as an illegal address) fails only its own process.

Kernels come with the wheels (``gpu.wheels``): PTX and libraries for the CPU, as in a wheel of gzarr. Without them, the
first stage compiles them. All stages but one use them, and tests fail if another code runs.

One report, ``gpu.json``, has everything, and is up to date after each stage; ``gpu.log`` has what was printed. Only
Python's standard library is imported, because packages may be missing.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import json
import os
import shlex
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import gpu.facts
from gpu.facts import ROOT
from gpu.run import Outcome, Stage, exit_code, run_all, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu.run import Command

#: Minutes of each call.
MINUTES: Final = {"check": 4.0, "measure": 9.0}
#: Time reserved for the table and the report.
RESERVE_S: Final = 10.0
#: A program that knows its time limit ends this long before the limit.
MARGIN_S: Final = 5.0
#: The soak's time for everything besides its reads: Python's imports, loading kernels, making arrays.
SOAK_START_S: Final = 20.0
#: Most processes that run the tests of a stage.
MOST_WORKERS: Final = 8
#: The programs of this folder are run by it, in the root of the checkout.
FOLDER: Final = "benchmarks/gpu"
#: Folder of kernels beside the wheels.
KERNELS: Final = "kernels"
#: All modules with tests on a GPU, the most valuable first; other modules take long even to import.
TESTS = (
    "gpu", "nvcomp_batch", "gpu_damage", "doctor", "read_matrix", "write_edges", "rectilinear", "read_properties",
    "rectilinear_shards", "departures", "explain",
    "dtypes_matrix", "read_converted", "extension_codecs", "extension_dtypes", "golden", "golden_own", "fixtures",
    "filters_before_array_codecs", "read_api", "loops_over_rows", "copy", "format_v1", "cast_value", "nothing_is_kept",
    "format_v3_draft", "format_v3_draft_documents", "made_up_codec", "number_types",
    "zip_store", "zip_remote", "ozx", "fsspec_store", "zarr_store", "virtual",
    "read_windows", "views", "views_taken", "map_blocks_devices", "block_lengths", "sparse_reading",
    "sparse_scaling", "sparse_many_columns",
    "loader", "sparse_loader", "batches_of_users", "inputs", "keeping", "steps", "without_fill_value",
    "tensors", "weighing", "annotated_columns", "blending", "labelling_devices", "read_affine", "posed_patches",
    "merging",
    "zarr_pipeline_gpu", "xarray_device", "dask", "dask_gpu", "ome_images", "pictures", "downsample", "pyramids",
    "ome_appending", "windows_of_floats", "n5_arrays", "n5_golden", "n5_hierarchies", "n5_pyramids",
)  # fmt: skip
#: Modules with tests of damaged frames.
DAMAGE_TESTS = ("gpu_damage", "nvcomp_batch")
#: The name of the test module and the tests that run with kernels that numba-cuda compiles on the machine.
JIT_SAMPLE: Final = ("gpu", "many_threads or shards or (written and zstd) or two_streams")
DAMAGED_FRAMES: Final = "damaged frames"
DECODE_RATES: Final = "decode rates"


def _test_module(name: str) -> str:
    (path,) = (ROOT / "tests").rglob(f"test_{name}.py")
    return str(path.relative_to(ROOT))


def _budget(seconds: float) -> float:
    """Return the time for what knows that it ends: a little before it would be ended."""
    return max(seconds - MARGIN_S, 1.0)


def _ends(seconds: float) -> dict[str, str]:
    """Return the variable that says when that is, from now on: imports take some of the time."""
    return {"GZARR_ENDS_AT": f"{time.time() + _budget(seconds):.1f}"}


class Plan:
    """Stages of a run.

    Parameters
    ----------
    python
        Python interpreter.
    work
        Folder for results and kernels.
    wheels, site
        Folder of wheels to install, and where to; None for nothing.
    small
        Whether arrays are small and stages short: to see that everything runs to its end.
    """

    def __init__(self, python: str, work: Path, wheels: Path | None, site: Path | None, *, small: bool = False) -> None:
        self._python, self._work, self._wheels, self._site, self._small = python, work, wheels, site, small
        brought = None if wheels is None else wheels / KERNELS
        self._brought = brought is not None and any(brought.glob("device-*.zip"))
        self._kernels = str(brought if self._brought else work / KERNELS)
        #: The same, without the PTX.
        self._host_kernels = str(work / "host-kernels")

    def stages(self, call: str) -> list[Stage]:
        """Return the stages of a call: ``"check"`` or ``"measure"``."""
        return [*self._first(), *(self._check() if call == "check" else self._measure())]

    def _fixed(self, *command: str, **environment: str) -> Command:
        return lambda seconds: ([self._python, *command], {"GZARR_KERNELS": self._kernels, **environment})

    def _program(
        self, name: str, program: str, weight: float, least_s: float, *arguments: str, small: Sequence[str] = ()
    ) -> Stage:
        """Return a stage of a program that measures, which is no failure."""
        result = self._work / f"{name.replace(' ', '-')}.json"

        def command(seconds: float) -> tuple[list[str], dict[str, str]]:
            words = [FOLDER, program, "--seconds", f"{_budget(seconds):.0f}", "--json", str(result), *arguments]
            kernels = {"GZARR_KERNELS": self._kernels}
            return [self._python, *words, *(small if self._small else ())], {**kernels, **_ends(seconds)}

        return Stage(name, weight, least_s, False, command, result)

    def _tests(
        self,
        name: str,
        weight: float,
        least_s: float,
        modules: Sequence[str],
        *more: str,
        marked: str = "gpu",
        origin: str = "ptx",
        kernels: str = "",
        distributed: bool = False,
    ) -> Stage:
        said = self._work / f"{name.replace(' ', '-')}.jsonl"
        if self._small:
            # Where the device is one of the tests, all modules run on it anyway.
            modules = modules[:1]

        def command(seconds: float) -> tuple[list[str], dict[str, str]]:
            pytest = [self._python, "-m", "pytest", *map(_test_module, modules), "-m", marked, "-rs", *more]
            pytest += ["-p", "no:cacheprovider", "--tb=short", "--durations=5", "-o", "timeout=60"]
            if distributed and importlib.util.find_spec("xdist") is not None:
                # Each in a process of its own, with a context of its own.
                pytest += ["-n", str(min(MOST_WORKERS, max(2, (os.cpu_count() or 1) // 2))), "--dist", "worksteal"]
            # One broken module does not stop the others; if everything fails, the rest adds no information.
            return [*pytest, "--continue-on-collection-errors", "--maxfail=60"], {
                "GZARR_TEST_GPU": "1",
                # Remaining tests are skipped then, so that the outcome of the others is reported.
                **_ends(seconds),
                "GZARR_TEST_REPORT": str(said),
                "GZARR_TEST_KERNELS": origin,
                "GZARR_SOAK_SECONDS": "2" if self._small else f"{max(seconds - SOAK_START_S, 1.0):.0f}",
                "GZARR_KERNELS": kernels or self._kernels,
            }

        return Stage(name, weight, least_s, True, command, tests=said)

    def _first(self) -> list[Stage]:
        stages = []
        if self._wheels is not None and self._site is not None:
            found = sorted(map(str, self._wheels.glob("*.whl")))
            pip = ["-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-compile", "--upgrade"]
            stages.append(Stage("install", 4, 10, True, self._fixed(*pip, "--target", str(self._site), *found)))
        # Copies those that were brought, or compiles them, which takes most of a minute.
        build = [FOLDER, "kernels", self._kernels, "--host", self._host_kernels]
        build += ["--brought"] if self._brought else []
        stages.append(Stage("kernels", 4, 8 if self._brought else 60, True, self._fixed(*build)))
        # This also decodes with each codec.
        doctor = self._fixed("-m", "gzarr", "doctor", "--device", "cuda", "--json")
        stages.append(Stage("environment", 4, 12, True, doctor, printed=True))
        return stages

    def _check(self) -> list[Stage]:
        module, names = JIT_SAMPLE
        without = ("--without", DAMAGED_FRAMES, "--without", DECODE_RATES)
        return [
            # As in a wheel: the driver compiles the PTX.
            self._tests("equality", 30, 50, TESTS, marked="gpu and not damage", distributed=True),
            self._tests(
                "equality of the JIT", 4, 20, [module], "-k", names, marked="gpu and not damage", origin="jit",
                kernels=self._host_kernels,
            ),
            self._program("questions", "questions", 10, 20, *without, small=("--small",)),
            self._tests("damage", 4, 45, DAMAGE_TESTS, marked="gpu and damage"),
            self._program(
                DAMAGED_FRAMES, "questions", 6, 15, "--question", DAMAGED_FRAMES, small=("--small",)
            ),
        ]  # fmt: skip

    def _measure(self) -> list[Stage]:
        few = ("--mib", "1", "--rounds", "1")
        slices = (*few, "--side", "64")
        return [
            self._program("benchmark", "read", 60, 120, small=(*few, "--small")),
            self._program("writing", "write", 8, 25, small=slices),
            self._program("loader", "loader", 8, 30, small=(*slices, "--workers", "1", "--codec", "zstd in")),
            self._program("imaging", "imaging", 8, 25, small=slices),
            self._program("sanitizer", "sanitizer", 4, 30),
            self._tests("soak", 6, 45, ["gpu_soak"]),
            self._program(DECODE_RATES, "questions", 6, 15, "--question", DECODE_RATES, small=("--small",)),
        ]


def _before(folders: Sequence[str], variable: str) -> str:
    """Return the folders of an environment variable, after other folders."""
    return os.pathsep.join([*folders, *filter(None, [os.environ.get(variable)])])


def _environment(site: Path | None, work: Path, first: str | None) -> dict[str, str]:
    """Return the environment of all stages.

    Parameters
    ----------
    site
        Where wheels are installed.
    work
        Folder for what Python imports at its start.
    first
        Module that every process imports first; None for none.
    """
    paths = [str(ROOT), str(ROOT / "kernels"), *([] if site is None else [str(site)])]
    if first is not None:
        (work / "first").mkdir()
        # Python imports this, by its name, before anything else.
        (work / "first" / "sitecustomize.py").write_text(f"import {first}\n")
        paths = [str(work / "first"), *paths]
    return {
        **os.environ,
        "PYTHONPATH": _before(paths, "PYTHONPATH"),
        # If another package of NVIDIA occupies the name "nvidia", nvCOMP is found as a library.
        "LD_LIBRARY_PATH": _before([f"{site}/nvidia/libnvcomp/lib64"] if site else [], "LD_LIBRARY_PATH"),
        "PYTHONUNBUFFERED": "1",
        # Otherwise JAX takes most of the memory for itself.
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        # Whoever runs this may have set it: which kernels run is decided here.
        "GZARR_JIT": "0",
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="ci/gpu", description="Everything that needs a GPU, within some minutes.")
    parser.add_argument("call", choices=list(MINUTES), help="check: is everything right? measure: how fast is it?")
    parser.add_argument("--wheels", type=Path, metavar="DIR", help="use the wheels and kernels in DIR (ci/gpu-wheels)")
    parser.add_argument("--minutes", type=float, help="time limit (default: check 4, measure 9)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="for gpu.json and gpu.log (default: gpu-output/CALL)")
    parser.add_argument("--only", action="append", metavar="STAGE", help="only this stage, and those that prepare it")
    parser.add_argument("--small", action="store_true", help="small arrays: to see that everything runs to its end")
    parser.add_argument("--first", metavar="MODULE", help="every process imports MODULE first, such as a test's device")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run a call; return 1 if the environment or a test is not right."""
    start = time.monotonic()
    parser = _parser()
    arguments = parser.parse_args(argv)
    minutes = MINUTES[arguments.call] if arguments.minutes is None else arguments.minutes
    if minutes <= 0:
        parser.error("--minutes must be positive")
    wheels = None if arguments.wheels is None else arguments.wheels.resolve()
    if wheels is not None and not any(wheels.glob("*.whl")) and not (wheels / KERNELS).is_dir():
        parser.error(f"there are no wheels in {arguments.wheels}")
    out: Path = (arguments.out or ROOT / "gpu-output" / arguments.call).resolve()
    out.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="gzarr-gpu-"))
    has_wheels = wheels is not None and any(wheels.glob("*.whl"))
    site = work / "site" if has_wheels else None
    try:
        stages = Plan(sys.executable, work, wheels, site, small=arguments.small).stages(arguments.call)
        if arguments.only:
            names = {"install", "kernels", *arguments.only}
            if unknown := names - {s.name for s in stages} - {"install"}:
                parser.error(f"there is no stage {sorted(unknown)[0]!r}, but {', '.join(s.name for s in stages)}")
            stages = [s for s in stages if s.name in names]
        installed = [] if site is None else [str(site)]
        environment = _environment(site, work, arguments.first)
        added = gpu.facts.cuda_home(environment, installed)
        head = {
            "call": arguments.call,
            "command": shlex.join(["ci/gpu", *(sys.argv[1:] if argv is None else argv)]),
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "commit": gpu.facts.commit(),
            "hardware": gpu.facts.hardware(),
            "environment": added,
        }

        def keep(outcomes: list[Outcome]) -> None:
            report = {**head, "versions": gpu.facts.versions(installed), "stages": [o.__dict__ for o in outcomes]}
            part = out / "gpu.json.part"
            part.write_text(json.dumps(report, indent=1) + "\n")
            part.replace(out / "gpu.json")

        with (out / "gpu.log").open("w", encoding="utf-8") as log:
            keep([])
            seconds = 60 * minutes - RESERVE_S - (time.monotonic() - start)
            outcomes = run_all(stages, seconds, log, {**environment, **added}, keep)
            log.write(table(outcomes) + "\n")
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print(f"\n{out / 'gpu.json'}\n{table(outcomes)}")
    return exit_code(outcomes)


if __name__ == "__main__":
    sys.exit(main())
