"""Type what a page says: ``newcomer.py PAGE WHEEL WORK DATA``, for ``ci/newcomer``.

The parts of the page, which begin with second headings, are taken in order. ``Install`` comes first, in a new
environment; each other part has that environment as it was then (it is put back after parts that install something), a
new folder, and, if it reads ``volume.zarr``, is typed once with the array of each version of zarr-python:

- lines of ```console blocks that begin with ``$`` are typed in a shell; ``gzarr`` that is installed from a checkout or
  an index is the wheel;
- ```python blocks go to one Python, as in an interactive session. Those that need a GPU, or PyTorch, whose wheel and
  what it needs are gigabytes, are left out, and said so.

At the end of a part, the names that its blocks have made are compared with the values that were written. With
``--commands K N``, the commands that gzarr's messages name to install something are run, too: of N parts, the K-th.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

BLOCK = re.compile(r"^```(console|python)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PART = re.compile(r"^## ([^\n]*)\n(.*?)(?=^## |\Z)", re.DOTALL | re.MULTILINE)
VOLUMES = ("zarr-python-2", "zarr-python-3")
#: What a block needs that is not here.
NEEDED = {'device="cuda")\n': "a GPU", "import torch\n": "PyTorch"}
#: Commands whose packages are large. pip would load whole wheels, gigabytes of them, to say what it would install, so
#: it is asked for the versions of each package.
LARGE = re.compile(r"cuda|cusparse|kvikio|nvcomp|torch|jax|jit")
#: Prints what the command's packages are: of gzarr's extras, what the installed gzarr says that they need.
REQUIREMENTS = """
import importlib.metadata, sys
from pip._vendor.packaging.requirements import Requirement
for word in sys.argv[1:]:
    requirement = Requirement(word)
    if requirement.name == "gzarr":
        assert requirement.extras <= set(importlib.metadata.metadata("gzarr").get_all("Provides-Extra")), word
        for text in importlib.metadata.requires("gzarr"):
            needed = Requirement(text)
            if any(needed.marker and needed.marker.evaluate({"extra": extra}) for extra in requirement.extras):
                print(needed.name, needed.specifier)
    else:
        print(requirement.name, requirement.specifier)
"""
#: Prints the newest of some versions that a specifier allows.
FITTING = """
import sys
from pip._vendor.packaging.specifiers import SpecifierSet
from pip._vendor.packaging.version import Version
print(max(SpecifierSet(sys.argv[1]).filter(sys.argv[2:]), key=Version, default=""))
"""

#: Runs one block after the other, each a line of JSON, and says so after each.
SESSION = """
import json, sys
namespace = {"__name__": "__main__"}
for line in sys.stdin:
    exec(compile(json.loads(line), "<typed>", "exec"), namespace)
    print("\\x00", flush=True)
"""
#: Names made by a part, or what they hold, and what they must be. ``expected`` has what was written.
EXPECTED = {
    "First look": """
check("x", x, volume[10:20, ::2, -1])
""",
    "Arrays for CuPy": """
check("slab", slab, volume[48:])
check("brightest.zarr", gzarr.open_array("brightest.zarr")[...], volume.max(axis=0))
""",
    "Batches for training": """
check("losses of batches", len(losses), 3 * len(loader))
check("the model has learned", bool(losses[-1] < 0.05 * losses[0]), True)
check("weights", np.round(weights, 1), np.array([0.5, 0.5]))
""",
    "Microscopy": """
check("axes", image.axes, ("z", "y", "x"))
check("scale", image.scale, (2.0, 0.5, 0.5))
check("section", section, image_level_1)
check("overview", overview.shape, (16, 128, 128))
check("detail", detail, volume[0, 30:50, 30:50])
check("projection", gzarr.ome.open("projection.ome.zarr").read(), volume[:16].max(axis=0))
check("levels", [level.shape for level in flat.levels], [(256, 256), (128, 128), (64, 64)])
check("scale of the projection", flat.scale, (0.5, 0.5))
""",
    "Climate": """
latitude = np.cos(np.deg2rad(np.linspace(90, -90, 91)))
wanted = np.average(era5.astype("f8").mean(axis=2), axis=1, weights=latitude)
check("mean", bool(np.allclose(mean.values, wanted, rtol=1e-6)), True)
table = [line.split(",") for line in open("t2m.csv").read().splitlines()]
check("t2m.csv", (table[0], len(table), table[1][0]), (["time", "t2m"], 25, "2026-11-23 00:00:00"))
check("values of t2m.csv", bool(np.allclose([float(row[1]) for row in table[1:]], wanted, rtol=1e-6)), True)
""",
    "Data engineering": """
for name in ("copy.zarr", "grown.zarr"):
    check(name, gzarr.open_array(name)[...], volume)
""",
}
CHECK = """
import operator
import numpy as np
volume, era5, image_level_1 = (np.load(f"{folder}/{name}.npy") for name in ("volume", "era5", "image"))

def check(name, value, wanted):
    same = np.array_equal if isinstance(wanted, np.ndarray) else operator.eq
    assert same(value, wanted), f"{name} is wrong: {value}"
    assert type(value) is type(wanted), f"{name} is {type(value)}"
    assert getattr(value, "dtype", None) == getattr(wanted, "dtype", None), f"{name} is {value.dtype}"
    print(name, "is right")
"""


def environment(work: Path) -> dict[str, str]:
    """Return the variables of a new user: those of this machine that say how to reach PyPI, and nothing of Python."""
    kept = ("PIP_", "SSL_", "REQUESTS_", "HTTP_", "HTTPS_", "NO_PROXY", "LANG", "LC_")
    passed = {name: value for name, value in os.environ.items() if name.upper().startswith(kept)}
    path = f"{work / 'environment' / 'bin'}:/usr/bin:/bin"
    return {**passed, "HOME": str(work / "home"), "PATH": path, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


class Newcomer:
    """Somebody who types."""

    def __init__(self, folder: Path, wheel: Path, work: Path) -> None:
        self.folder, self.wheel, self.variables = folder, wheel, environment(work)
        self.errors = work / "errors"
        self.session: subprocess.Popen[str] | None = None

    def shell(self, command: str, shown: str = "") -> None:
        """Type a command. Nothing may be said on stderr, but by pip: of this machine's index, for example.

        Of what it prints, lines that begin with ``shown`` are printed.
        """
        print(f"$ {command}", flush=True)
        typed = re.sub(r"(?<=pip install )(\.|gzarr)$", str(self.wheel), command)
        done = subprocess.run(
            ["bash", "-c", typed], cwd=self.folder, env=self.variables, capture_output=True, text=True, check=False
        )
        print("".join(line for line in done.stdout.splitlines(keepends=True) if line.startswith(shown)), end="")
        if command.startswith("pip "):
            print(done.stderr, end="")
        if done.returncode or (done.stderr.strip() and not command.startswith("pip ")):
            raise SystemExit(f"error: {command!r} ended with {done.returncode} and said:\n{done.stderr}")

    def python(self, block: str) -> None:
        """Type a block, in the Python that was started for the first one."""
        print("".join(f">>> {line}\n" for line in block.splitlines()), end="", flush=True)
        self.run(block)

    def run(self, block: str) -> None:
        """Run a block, without showing it."""
        if self.session is None:
            self.session = subprocess.Popen(
                ["python", "-c", SESSION], cwd=self.folder, env=self.variables, text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors.open("w"),
            )  # fmt: skip
        assert self.session.stdin is not None
        assert self.session.stdout is not None
        self.session.stdin.write(json.dumps(block) + "\n")
        self.session.stdin.flush()
        for line in self.session.stdout:
            if line == "\0\n":
                break
            print(line, end="", flush=True)
        else:
            self.session.wait()
        if said := self.errors.read_text().strip():
            raise SystemExit(f"error: this block said:\n{said}")

    def leave(self) -> None:
        """End the session."""
        if self.session is not None:
            assert self.session.stdin is not None
            self.session.stdin.close()
            if self.session.wait() or self.errors.read_text().strip():
                raise SystemExit(f"error: Python ended with:\n{self.errors.read_text()}")


def parts(page: str) -> dict[str, list[tuple[str, str]]]:
    """Return the parts of a page that have blocks: the language and the text of each."""
    found = {title: BLOCK.findall(text) for title, text in PART.findall(page)}
    return {title: blocks for title, blocks in found.items() if blocks}


def commands(block: str) -> list[str]:
    """Return the commands of a ```console block; other lines are what they print."""
    return [line[2:] for line in block.splitlines() if line.startswith("$ ")]


def type_part(newcomer: Newcomer, blocks: list[tuple[str, str]]) -> None:
    """Type the blocks of a part."""
    for language, text in blocks:
        needed = [what for mark, what in NEEDED.items() if language == "python" and mark in text]
        if language == "console":
            for command in commands(text):
                newcomer.shell(command)
        elif needed:
            print(f"(left out, for it needs {needed[0]}: {text.splitlines()[-1]})")
        else:
            newcomer.python(text)


def copy_data(data: Path, sources: tuple[str, ...], folder: Path) -> None:
    """Copy the files of some writers, and what they hold, to a new folder."""
    folder.mkdir()
    for source in sources:
        for path in (data / source).iterdir():
            if path.is_dir():
                shutil.copytree(path, folder / path.name)
            elif path.suffix == ".npy":
                shutil.copy(path, folder)


def put_back(work: Path) -> None:
    """Make the environment what it was after the installation."""
    shutil.rmtree(work / "environment")
    shutil.copytree(work / "clean", work / "environment", symlinks=True)


def find_versions(newcomer: Newcomer, command: str) -> None:
    """Find versions of the packages that a command would install, for this Python and machine, without loading them."""
    words = [word for word in shlex.split(command)[2:] if not word.startswith("-")]

    def output(*arguments: str) -> str:
        done = subprocess.run(arguments, env=newcomer.variables, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"error: for {command!r}, {arguments[-1]!r} said:\n{done.stdout}{done.stderr}")
        return done.stdout

    found = output("python", "-c", REQUIREMENTS, *words).splitlines()
    if not found:
        raise SystemExit(f"error: {command!r} would install nothing")
    for line in found:
        name, _, wanted = line.partition(" ")
        versions = (
            output("pip", "index", "versions", name).partition("Available versions: ")[2].split("\n")[0].split(", ")
        )
        fitting = output("python", "-c", FITTING, wanted, *versions).strip()
        if not fitting:
            raise SystemExit(f"error: {command!r} needs {line}, and there are {versions}")
        print(f"{name} {fitting}")


def run_commands(newcomer: Newcomer, part: int, count: int) -> None:
    """Run a part of the commands that messages name, as the gzarr that is installed has them."""
    code = "import json, gzarr.installing; print(json.dumps(list(gzarr.installing.COMMANDS.values())))"
    said = subprocess.run(["python", "-c", code], env=newcomer.variables, capture_output=True, text=True, check=True)
    found = json.loads(said.stdout)
    if len(found) < 20:
        raise SystemExit(f"error: messages name {len(found)} commands only")
    for command in found[part::count]:
        begin = time.monotonic()
        if LARGE.search(command):
            print(f"$ {command}  # not run: are there such versions?")
            find_versions(newcomer, command)
        else:
            newcomer.shell(command, shown="Successfully installed")
        print(f"-- {time.monotonic() - begin:.1f} s")


def main() -> int:
    """Type the page."""
    parser = argparse.ArgumentParser()
    for name in ("page", "wheel", "work", "data"):
        parser.add_argument(name, type=lambda path: Path(path).absolute())
    parser.add_argument("--commands", nargs=2, type=int, metavar=("K", "N"))
    args = parser.parse_args()
    work = args.work
    found = parts(args.page.read_text())
    # A page without them would pass.
    if list(found) != ["Install", *EXPECTED]:
        raise SystemExit(f"error: {args.page} has the parts {list(found)}, this script those of EXPECTED")
    for title, blocks in found.items():
        reads_volume = any("volume.zarr" in text for _, text in blocks)
        for writer in VOLUMES if reads_volume else VOLUMES[:1]:
            begin = time.monotonic()
            print(f"== {title}" + (f", with an array of {writer}" if reads_volume else ""))
            folder = work / f"{title} {writer}".replace(" ", "-")
            copy_data(args.data, (writer, "xarray", "ome-zarr-py"), folder)
            newcomer = Newcomer(folder, args.wheel, work)
            type_part(newcomer, blocks)
            if title == "Install":
                shutil.copytree(work / "environment", work / "clean", symlinks=True)
            else:
                newcomer.run(f"folder = {str(folder)!r}\n{CHECK}{EXPECTED[title]}")
            newcomer.leave()
            if title != "Install" and any("$ pip" in text for _, text in blocks):
                put_back(work)
            print(f"-- {time.monotonic() - begin:.1f} s")
    if args.commands:
        print("== Commands that messages name; of large packages, the newest versions")
        run_commands(Newcomer(work, args.wheel, work), *args.commands)
    print("== everything on the page works")
    return 0


if __name__ == "__main__":
    sys.exit(main())
