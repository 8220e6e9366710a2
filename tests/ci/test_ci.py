"""``ci/test``: the Pythons that it finds, and that the tests it leaves out on some of them exist."""

from __future__ import annotations

import os
import re
import signal
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


def test_what_failed_is_said_at_the_end(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = shell(
        # tee outlives the shell, and would keep a pipe to this process open.
        f"exec >'{out}' 2>&1; source ci/checks.sh; set -e;"
        "sleep 0.1 & check waits wait $!;"
        "(exit 3) & check breaks wait $!;"
        'check tests bash -c \'seq 300; echo "== FAILURES =="; seq 400 500;'
        'echo "== warnings summary =="; echo deprecated; echo "-- Docs: https"; seq 501 600; echo reason >&2; exit 1\';'
        "check lint bash -c 'seq 700 800; exit 1';"
        # It holds the pipe to tee.
        "check leaves bash -c 'sleep 60 & echo $!';"
        "check fine echo fine;"
        "finish"
    )
    assert done.returncode == 1
    text = out.read_text()
    os.kill(int(text.split("== leaves\n")[1].split()[0]), signal.SIGKILL)
    before, end = text.split("== What failed:\n")
    assert before.index("== tests: FAILED") < before.index("== fine")
    # Of tests what is after the head of the failures, of others the last lines.
    tests = [str(number) for number in range(402, 601)] + ["reason"]
    lint = [str(number) for number in range(761, 801)]
    assert end.split("\n") == ["== breaks: FAILED", "== tests: FAILED", *tests, "== lint: FAILED", *lint, ""]
    assert shell("source ci/checks.sh; check fine echo fine; finish").stdout.split("\n") == ["== fine", "fine", ""]


def run_tests(folder: Path, fails: str) -> tuple[int, str]:
    """Run ``check`` with tests in a folder: one passes, and others fail as said."""
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_made.py").write_text(
        "import os, pathlib, pytest\n"
        "def test_passes(): pass\n"
        "@pytest.mark.parametrize('name', " + fails + ")\n"
        "def test_fails(name):\n"
        "    before = pathlib.Path(name.partition(' ')[0])\n"
        "    again = before.exists()\n"
        "    before.touch()\n"
        "    assert again and 'PYTEST_XDIST_WORKER' not in os.environ\n"
    )
    done = shell(
        # This test may itself be run by one of several processes.
        f"unset ${{!PYTEST_*}}; source ci/checks.sh; set -e; cd '{folder}';"
        f"check made tests '{sys.executable}' -n 2; finish"
    )
    return done.returncode, done.stdout


def test_what_fails_is_run_once_more_alone(tmp_path: Path) -> None:
    code, text = run_tests(tmp_path, "['once', 'other [2] in a name']")
    assert code == 0
    assert sorted(text.split("== What failed, and passed alone:\n")[1].splitlines()) == [
        "   test_made.py::test_fails[once]",
        "   test_made.py::test_fails[other [2] in a name]",
    ]
    # The second run takes those that failed only.
    assert "2 passed" in text.split("== Once more, alone:\n")[1]


def test_what_fails_again_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "test_never.py").write_text("def test_never(): assert 0\n")
    code, text = run_tests(tmp_path, "['once']")
    assert code == 1
    assert "passed alone" not in text
    assert "FAILED test_never.py::test_never" in text.split("== What failed:\n")[1]


def test_many_failures_are_not_run_again(tmp_path: Path) -> None:
    code, text = run_tests(tmp_path, "list('abcdef')")
    assert code == 1
    assert "Once more" not in text
