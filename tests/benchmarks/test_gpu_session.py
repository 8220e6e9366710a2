"""Early end of a test run on a GPU, its report, and the origin of kernels; the calls of CUDA are replaced."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gzarr_kernels.device import ptx
from support import gpu_benchmarks, gpu_session
from support.gpu_session import JIT, PTX, GpuSession

from gzarr.engines.cuda import machine_code

ROOT = Path(__file__).parents[2]

ITEM: Any = SimpleNamespace(nodeid="test_next")
FAILED, PASSED = (
    pytest.TestReport(name, (name, 1, name), {}, outcome, "", "call")  # type: ignore[arg-type]
    for name, outcome in (("test_one", "failed"), ("test_two", "passed"))
)


def test_nothing_starts_when_time_is_over() -> None:
    with pytest.raises(pytest.skip.Exception, match="out of time"):
        GpuSession(-1.0, lambda: None).pytest_runtest_setup(ITEM)
    GpuSession(1000.0, lambda: None).pytest_runtest_setup(ITEM)


def test_the_rest_is_skipped_when_the_context_is_lost() -> None:
    errors = [""]

    def synchronize() -> None:
        if errors[0]:
            raise RuntimeError(errors[0])

    session = GpuSession(1000.0, synchronize)
    session.pytest_runtest_setup(ITEM)
    session.pytest_runtest_logreport(FAILED)
    # A test that is wrong costs no context.
    session.pytest_runtest_setup(ITEM)
    errors[0] = "illegal address"
    session.pytest_runtest_logreport(PASSED)
    session.pytest_runtest_logreport(FAILED)
    with pytest.raises(pytest.skip.Exception, match="lost since test_one: illegal address"):
        session.pytest_runtest_setup(ITEM)


def test_a_worker_ends_when_its_context_is_lost(tmp_path: Path) -> None:
    """Skipped tests take no time: it would take all that the other workers have not come to."""
    codes: list[int] = []

    def synchronize() -> None:
        if codes or left:
            raise RuntimeError("illegal address")

    left: list[str] = []
    session = GpuSession(1000.0, synchronize, tmp_path / "report", worker="gw1", leave=codes.append)
    session.pytest_runtest_setup(ITEM)
    left.append("lost")
    session.pytest_runtest_logreport(FAILED)
    assert codes == []
    with pytest.raises(pytest.skip.Exception):
        session.pytest_runtest_setup(ITEM)
    assert codes == [1]
    last = json.loads((tmp_path / "report").read_text().splitlines()[-1])
    assert last == {"test": "test_next", "outcome": "skipped", "text": session._lost}


def test_without_a_gpu_each_test_says_so() -> None:
    def synchronize() -> None:
        raise RuntimeError("no driver")

    session = GpuSession(1000.0, synchronize)
    for _ in range(2):
        session.pytest_runtest_setup(ITEM)
        session.pytest_runtest_logreport(FAILED)


@pytest.fixture
def loader(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function for the image that is loaded next; that of a wheel's PTX is ``b"text"``."""
    images: list[bytes] = []
    monkeypatch.setattr(machine_code, "load", lambda *what: SimpleNamespace(image=images.pop()))
    monkeypatch.setattr(ptx, "programs", lambda: {"kernel": b"text"})
    return images


@pytest.mark.parametrize(
    ("wanted", "images", "fails"),
    [
        (PTX, [b"text", b"text"], False),
        (PTX, [b"text", b"machine code"], True),
        # Not one kernel ran: that shows nothing.
        (PTX, [], True),
        (JIT, [b"machine code"], False),
        (JIT, [b"text"], True),
        ("", [b"machine code"], False),
    ],
)
def test_a_run_fails_if_other_kernels_have_run(
    wanted: str, images: list[bytes], fails: bool, loader: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = GpuSession(1000.0, lambda: None, tmp_path / "report", wanted)
    if wanted == JIT:
        monkeypatch.setattr(ptx, "programs", dict)
    session.pytest_sessionstart()
    monkeypatch.setattr(ptx, "programs", lambda: {"kernel": b"text"})
    for image in images:
        loader.append(image)
        assert machine_code.load(None, 1, (9, 0)).image == image  # type: ignore[arg-type]
    run: Any = SimpleNamespace(exitstatus=pytest.ExitCode.OK)
    session.pytest_sessionfinish(run)
    assert (run.exitstatus == pytest.ExitCode.TESTS_FAILED) == fails
    report = tmp_path / "report"
    lines = [json.loads(line) for line in report.read_text().splitlines()] if report.exists() else []
    assert [line["kernel"] for line in lines if "kernel" in line] == [
        PTX if image == b"text" else JIT for image in images
    ]
    assert any(line.get("outcome") == "failed" for line in lines) == fails


@pytest.mark.usefixtures("loader")
def test_ptx_excludes_the_jit() -> None:
    with pytest.raises(pytest.UsageError, match="has PTX"):
        GpuSession(1000.0, lambda: None, kernels=JIT).pytest_sessionstart()


TESTS = """
import pytest

def test_right(): pass
def test_wrong(): print("said"); assert 1 == 2
def test_skipped(): pytest.skip("no reason at all")
@pytest.mark.xfail
def test_known(): assert False
@pytest.fixture
def broken(): yield; raise OSError("at the end")
def test_ends_badly(broken): pass
def test_ends_all(): import os; os._exit(3)
"""


def _run(tmp_path: Path, *options: str) -> list[dict[str, Any]]:
    """Run the tests above; return the lines of their report."""
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "test_broken.py").write_text("import no_such_module")
    (tmp_path / "conftest.py").write_text(
        "from support import gpu_session\n"
        "def pytest_configure(config): config.pluginmanager.register(gpu_session.of_environment(config))\n"
    )
    environment = {**os.environ, "GZARR_TEST_REPORT": str(tmp_path / "report"), "GZARR_TEST_KERNELS": ""}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT / "tests"), *sys.path])
    command = [sys.executable, "-m", "pytest", "-q", "--continue-on-collection-errors", "-p", "no:cacheprovider"]
    subprocess.run([*command, *options, "--rootdir", str(tmp_path), str(tmp_path)], env=environment, check=False)
    return [json.loads(line) for line in (tmp_path / "report").read_text().splitlines()]


def test_the_report_tells_everything_up_to_the_end(tmp_path: Path) -> None:
    lines = _run(tmp_path)
    outcomes = [(line["test"].partition("::")[2], line["outcome"]) for line in lines if "test" in line]
    assert outcomes == [
        ("", "failed"), ("test_right", "passed"), ("test_wrong", "failed"), ("test_skipped", "skipped"),
        ("test_known", "expected failure"), ("test_ends_badly", "passed"), ("test_ends_badly", "failed"),
    ]  # fmt: skip
    texts = {line["test"].partition("::")[2]: line["text"] for line in lines if "text" in line}
    assert "no_such_module" in texts[""]
    assert "assert 1 == 2" in texts["test_wrong"]
    assert "said" in texts["test_wrong"]
    assert texts["test_skipped"] == "no reason at all"
    assert "at the end" in texts["test_ends_badly"]
    assert lines[-1]["begin"].endswith("test_ends_all")


def test_workers_write_one_report(tmp_path: Path) -> None:
    _run(tmp_path, "-n", "2", "--dist", "worksteal")
    with gpu_benchmarks.modules() as b:
        said = b.gpu.tests.collected(tmp_path / "report")
    assert said["passed"] == 1
    failed = {name.partition("::")[2]: text for name, text in said["failed"].items()}
    parts = {
        "": "no_such_module",
        "test_wrong": "assert 1 == 2",
        "test_ends_badly": "at the end",
        "test_ends_all": "ended",
    }
    assert failed.keys() == parts.keys()
    assert all(part in failed[name] for name, part in parts.items())
    assert {reason: len(names) for reason, names in said["skipped"].items()} == {"no reason at all": 1}
    assert (said["expected failures"], said["unfinished"]) == (1, "")


def test_a_process_that_does_not_end_says_where_it_is(tmp_path: Path) -> None:
    """After its last test: nothing else would be known of it."""
    (tmp_path / "conftest.py").write_text(
        "import time\n"
        "from support import gpu_session\n"
        "def pytest_configure(config): config.pluginmanager.register(gpu_session.of_environment(config))\n"
        "def pytest_sessionfinish(): hang()\n"
        f"def hang(): time.sleep({gpu_session.GRACE_S + 0.5})\n"
    )
    (tmp_path / "test_some.py").write_text("def test_any(): pass")
    path = os.pathsep.join([str(ROOT / "tests"), *sys.path])
    environment = {**os.environ, "GZARR_TEST_KERNELS": "", "PYTHONPATH": path, "GZARR_ENDS_AT": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", tmp_path, tmp_path]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert re.search(r'File ".*conftest.py", line \d+ in hang', done.stderr), done.stderr


def test_without_ptx_no_test_runs(tmp_path: Path) -> None:
    """An empty folder of kernels would test what numba-cuda makes of them, which no wheel runs."""
    environment = {
        **os.environ, "GZARR_TEST_GPU": "1", "GZARR_TEST_KERNELS": PTX, "GZARR_KERNELS": str(tmp_path),
        "GZARR_JIT": "0", "PYTHONPATH": os.pathsep.join(sys.path),
    }  # fmt: skip
    command = [sys.executable, "-m", "pytest", "tests/engines/cuda/test_gpu.py", "-m", "gpu", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert f"{tmp_path} has no PTX of these sources" in done.stderr
