"""Programs in folders of ``benchmarks``: found from any current directory, and those of ``ci/gpu`` without packages."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
PROGRAMS = {
    "gpu": [
        "imaging", "kernels", "loader", "model", "questions", "read", "sanitizer", "stages", "wheels", "write",
    ],
    "loaders": ["worker"],
    "pictures": ["figures", "poses", "pyramid", "terminal"],
    "servers": ["files", "proxy"],
}  # fmt: skip


def _run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    # Without packages, and without the current directory.
    command = [sys.executable, "-I", "-S", str(BENCHMARKS / arguments[0]), *arguments[1:]]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("folder", PROGRAMS)
def test_a_folder_lists_its_programs(folder: str, tmp_path: Path) -> None:
    for arguments, code in ((["--help"], 0), ([], 2), (["no such"], 2)):
        done = _run(tmp_path, folder, *arguments)
        usage, blank, *lines = done.stderr.splitlines()
        assert (done.returncode, usage, blank) == (code, f"usage: python benchmarks/{folder} PROGRAM ARGUMENTS", "")
        assert [line.split()[0] for line in lines] == PROGRAMS[folder]
        assert all(len(line.split()) > 3 for line in lines)


@pytest.mark.parametrize(("program", "usage"), [("stages", "usage: ci/gpu "), ("kernels", "usage: kernels.py ")])
def test_what_ci_gpu_starts_with_needs_no_packages(program: str, usage: str, tmp_path: Path) -> None:
    done = _run(tmp_path, "gpu", program, "--help")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(usage)
