"""Type what a page says: ``newcomer.py PAGE WHEEL WORK DATA``, for ``ci/newcomer``.

The blocks of the page are taken in order, once with the array of each version of zarr-python, in a new folder:

- lines of ```console blocks that begin with ``$`` are typed in a shell, and ``pip install .`` installs the wheel;
- ```python blocks go to one Python, as in an interactive session. Those that need a GPU are left out, and said so.

At the end, the names that the blocks have made are compared with the values that were written.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

BLOCK = re.compile(r"^```(console|python)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
VOLUMES = ("zarr-python-2", "zarr-python-3")

#: Runs one block after the other, each a line of JSON, and says so after each.
SESSION = """
import json, sys
namespace = {"__name__": "__main__"}
for line in sys.stdin:
    exec(compile(json.loads(line), "<typed>", "exec"), namespace)
    print("\\x00", flush=True)
"""
#: Names made by the page, and what they must be. ``folder`` has what was written.
EXPECTED = """
import numpy as np
expected = {name: np.load(f"{folder}/{name}.npy") for name in ("volume", "era5", "image")}
random = np.random.default_rng(0).random((100, 256, 256), dtype="float32")
random[10:20] = 0
for name, value, wanted in (
    ("x", x, expected["volume"][10:20, ::2, -1]),
    ("t2m", t2m, expected["era5"][0]),
    ("attributes of t2m", g["t2m"].attrs["units"], "K"),
    ("axes", image.axes, ("z", "y", "x")),
    ("scale", image.scale, (2.0, 0.5, 0.5)),
    ("section", section, expected["image"]),
    ("field", field.values, expected["era5"][0]),
    ("new.zarr", gzarr.open_array("new.zarr")[...], random),
    ("copy.zarr", gzarr.open_array("copy.zarr")[...], expected["volume"]),
    ("where elements are", type(x), np.ndarray),
):
    assert np.array_equal(value, wanted), f"{name} is wrong: {value}"
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

    def shell(self, command: str) -> None:
        """Type a command. Nothing may be said on stderr, but by pip: of this machine's index, for example."""
        print(f"$ {command}", flush=True)
        typed = re.sub(r"(?<=pip install )\.", str(self.wheel), command)
        done = subprocess.run(
            ["bash", "-c", typed], cwd=self.folder, env=self.variables, capture_output=True, text=True, check=False
        )
        print(done.stdout, end="")
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


def blocks(page: str) -> list[tuple[str, str]]:
    """Return the language and the text of each block."""
    return BLOCK.findall(page)


def commands(block: str) -> list[str]:
    """Return the commands of a ```console block; other lines are what they print."""
    return [line[2:] for line in block.splitlines() if line.startswith("$ ")]


def main() -> int:
    """Type the page for each version of zarr-python."""
    page, wheel, work, data = (Path(argument).absolute() for argument in sys.argv[1:])
    found = blocks(page.read_text())
    # A page without them would pass.
    if sum(language == "python" for language, _ in found) < 5 or not any("pip install ." in text for _, text in found):
        raise SystemExit(f"error: {page} is not the page that this script types")
    for writer in VOLUMES:
        print(f"== {page.name}, with an array of {writer}")
        folder = work / writer
        folder.mkdir()
        for source in (writer, "xarray", "ome-zarr-py"):
            for path in (data / source).iterdir():
                if path.is_dir():
                    shutil.copytree(path, folder / path.name)
                elif path.suffix == ".npy":
                    shutil.copy(path, folder)
        newcomer = Newcomer(folder, wheel, work)
        for language, text in found:
            if language == "console":
                for command in commands(text):
                    newcomer.shell(command)
            elif "cuda" in text:
                print(f"(left out, for it needs a GPU: {text.splitlines()[0]} …)")
            else:
                newcomer.python(text)
        newcomer.run(f"folder = {str(folder)!r}\n{EXPECTED}")
        newcomer.leave()
    print("== everything on the page works")
    return 0


if __name__ == "__main__":
    sys.exit(main())
