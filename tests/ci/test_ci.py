"""``ci/test``: the Pythons that it finds, and that the tests it leaves out on some of them exist."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def shell(command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", f"source ci/environment.sh; {command}"],
        cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_every_python_that_is_named_is_tested() -> None:
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    named = [text.removeprefix("Programming Language :: Python :: ") for text in classifiers]
    versions = [text for text in named if re.fullmatch(r"3\.\d+", text)]
    assert len(versions) > 1
    assert shell("named_pythons").stdout.split() == versions


def test_a_python_that_is_on_the_path_or_pyenvs_is_found_if_it_runs(tmp_path: Path) -> None:
    version = "{}.{}".format(*sys.version_info)
    on_path, pyenv = tmp_path / "bin", tmp_path / "versions" / f"{version}.1" / "bin"
    for folder in (on_path, pyenv):
        folder.mkdir(parents=True)
    # A shim of pyenv whose version is not switched on.
    shim = on_path / f"python{version}"
    shim.write_text("#!/bin/sh\necho 'not found' >&2\nexit 127\n")
    shim.chmod(0o755)
    found = {"PATH": f"{on_path}:/usr/bin:/bin", "PYENV_ROOT": str(tmp_path)}
    assert shell(f"versioned_python {version}", **found).returncode == 1
    (pyenv / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (pyenv / "python").chmod(0o755)
    assert shell(f"versioned_python {version}", **found).stdout.strip() == str(pyenv / "python")
    # Another version under this name is none.
    (pyenv.parent.parent / "3.98.1" / "bin").mkdir(parents=True)
    (pyenv.parent.parent / "3.98.1" / "bin" / "python").symlink_to(pyenv / "python")
    missing = shell("versioned_python 3.98", **found)
    assert (missing.returncode, missing.stdout) == (1, "")
