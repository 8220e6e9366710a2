"""``ci/gpu`` and ``ci/gpu-wheels`` as far as they need no GPU: the stages, their tests, the wheels."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.gpu_session import OPTIONAL

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def b() -> Iterator[SimpleNamespace]:
    """Import the scripts; their directory is on the path for this module only."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        names = (
            "gpu_stages",
            "gpu_wheels",
            "gpu",
            "gpu_questions",
            "gpu_write",
            "gpu_loader",
            "gpu_imaging",
            "gpu_transfers",
        )
        yield SimpleNamespace(**{name: importlib.import_module(name) for name in names})
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))


def test_the_scripts_are_sound_and_refuse_what_makes_no_sense(tmp_path: Path) -> None:
    for script in ("gpu", "gpu-wheels"):
        subprocess.run(["bash", "-n", ROOT / "ci" / script], check=True)
    for wrong in (["--minutes", "0"], ["--wheels", str(tmp_path)], ["--what"]):
        done = subprocess.run([ROOT / "ci" / "gpu", *wrong], capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert "usage: ci/gpu" in done.stderr


# -- stages


def test_the_plan_of_stages(b: SimpleNamespace, tmp_path: Path) -> None:
    g = b.gpu_stages
    (tmp_path / "a-1-py3-none-any.whl").touch()
    names = ["kernels", "environment", "equality", "ptx", "equality of ptx", "questions", "benchmark", "writing"]
    names += ["loader", "imaging", "soak", "damage"]
    names.append(g.DAMAGED_FRAMES)
    assert [s.name for s in g.plan("python", tmp_path, None, None)] == names
    planned = g.plan("python", tmp_path, tmp_path, tmp_path / "site")
    assert [s.name for s in planned] == ["install", *names]
    stages = {s.name: s for s in planned}
    assert {name for name, s in stages.items() if s.required} == {
        "install", "kernels", "environment", "equality", "ptx", "equality of ptx", "soak", "damage",
    }  # fmt: skip
    command, _ = stages["install"].command(60)
    assert {"--no-index", "--no-deps", "--no-compile", "--target"} <= set(command)
    assert command[-1].endswith("a-1-py3-none-any.whl")
    # Nothing after what damages needs a GPU in order, but what damages in processes of its own.
    for name, marked in (("equality", "gpu and not damage"), ("soak", "gpu"), ("damage", "gpu and damage")):
        command, environment = stages[name].command(100)
        assert command[1:3] == ["-m", "pytest"]
        assert command[command.index("-m", 3) + 1] == marked
        assert environment == {"GZARR_TEST_GPU": "1", "GZARR_TEST_SECONDS": "85", "GZARR_SOAK_SECONDS": "50"}
    _, environment = stages["equality of ptx"].command(100)
    assert environment["GZARR_KERNELS"] == stages["ptx"].command(100)[0][-1] == str(tmp_path / "kernels")
    # Each of the scripts takes the options that it is given, and less time than it is ended after.
    asked = []
    for name, script in (
        ("questions", b.gpu_questions),
        ("benchmark", b.gpu),
        ("writing", b.gpu_write),
        ("loader", b.gpu_loader),
        ("imaging", b.gpu_imaging),
        (g.DAMAGED_FRAMES, b.gpu_questions),
    ):
        command, _ = stages[name].command(100)
        assert (ROOT / command[1]).is_file()
        arguments = script.parser().parse_args(command[2:])
        assert arguments.seconds < 100
        assert arguments.json.name == stages[name].result
        if script is b.gpu_questions:
            asked.append((arguments.question, arguments.without))
    assert asked == [(None, [g.DAMAGED_FRAMES]), ([g.DAMAGED_FRAMES], [])]


# Runs as a plugin of pytest: some packages are missing; the modules of the tests and whether they damage are printed.
COLLECTED = """
import json, sys
from importlib.machinery import PathFinder

class Finder(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name in {packages!r} else super().find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Finder

def pytest_collection_finish(session):
    found = {{(item.path.stem, item.get_closest_marker("damage") is not None) for item in session.items}}
    print("found", json.dumps(sorted(found)))
"""


def _collected(*arguments: str, hidden: frozenset[str], tmp_path: Path) -> tuple[set[tuple[str, bool]], str]:
    """Return modules with tests for a GPU, whether these damage its context, and the output of pytest."""
    (tmp_path / "collected.py").write_text(COLLECTED.format(packages=set(hidden)))
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path]),
        # Plugins may be among what is missing.
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "GZARR_TEST_GPU": "1",
        "CUDA_VISIBLE_DEVICES": "",
    }
    command = [sys.executable, "-m", "pytest", "-p", "collected", "-p", "no:cacheprovider", "--collect-only", "-rs"]
    done = subprocess.run(
        [*command, "-m", "gpu", *arguments], env=environment, cwd=ROOT, capture_output=True, text=True, check=False
    )
    said = done.stdout + done.stderr
    # 5: there are no tests.
    assert done.returncode in (0, 5), said
    assert not re.search(r"\b(error|warning)s?\b", done.stdout.splitlines()[-1], re.IGNORECASE), said
    (line,) = re.findall(r"^found (.*)$", done.stdout, re.MULTILINE)
    return {(name.removeprefix("test_"), damages) for name, damages in json.loads(line)}, said


@pytest.mark.timeout(300)
def test_every_test_of_a_gpu_is_in_a_stage(b: SimpleNamespace, tmp_path: Path) -> None:
    """Also without packages that take long to import, or are too large for a machine with a GPU."""
    found, said = _collected("tests", hidden=frozenset({"torch", "imagecodecs"}), tmp_path=tmp_path)
    assert "torch is not installed" in said
    assert {name for name, damages in found if damages} == set(b.gpu_stages.DAMAGE_TESTS)
    assert {name for name, damages in found if not damages} == {*b.gpu_stages.TESTS, "gpu_soak"}


def test_what_is_not_installed_is_said_and_no_error(b: SimpleNamespace, tmp_path: Path) -> None:
    modules = {*b.gpu_stages.TESTS, *b.gpu_stages.DAMAGE_TESTS, "gpu_soak"}
    files = map(b.gpu_stages._test_module, modules)
    found, said = _collected(*files, hidden=OPTIONAL, tmp_path=tmp_path)
    assert {name for name, _ in found} < modules
    assert re.search(r"SKIPPED \[\d+\] .*zarr is not installed", said)


@settings(max_examples=50, deadline=None)
@given(seconds=st.floats(0, 1000), used=st.lists(st.floats(0, 1), min_size=5, max_size=5))
def test_shares_never_exceed_what_is_left(b: SimpleNamespace, seconds: float, used: list[float]) -> None:
    stages = b.gpu_stages
    planned = stages.plan("python", Path(), None, None)
    left = seconds
    for at, part in enumerate(used):
        share = stages.limit(planned, at, left)
        if share is None:
            assert left < planned[at].least_s
        else:
            assert planned[at].least_s <= share <= left
            left -= part * share


def test_what_a_stage_leaves_goes_to_the_next_ones(b: SimpleNamespace) -> None:
    stages = b.gpu_stages.plan("python", Path(), None, None)
    last = len(stages) - 1
    assert b.gpu_stages.limit(stages, last, 200.0) == 200.0
    assert b.gpu_stages.limit(stages, last, stages[last].least_s - 1) is None
    assert b.gpu_stages.limit(stages, 2, 400.0) < b.gpu_stages.limit(stages, 2, 480.0) < 480.0


def test_stages_run_on_when_one_fails_hangs_or_is_left_out(b: SimpleNamespace, tmp_path: Path, capfd: Any) -> None:
    g = b.gpu_stages

    def stage(name: str, code: str, *, required: bool = True, least: float = 0.1, result: str | None = None) -> Any:
        return g.Stage(name, 1, least, required, lambda seconds: ([sys.executable, "-c", code], {"SAID": name}), result)

    kept = tmp_path / "kept.json"
    write = f"import os, pathlib; pathlib.Path({str(kept)!r}).write_text('[1]'); print('wrote', os.environ['SAID'])"
    stages = [
        stage("good", write, result="kept.json"),
        stage("bad", "print('about to fail'); raise SystemExit(3)"),
        stage("missing", "", required=False),
        # Its child keeps the output open: both are ended.
        stage("hangs", "import subprocess, time; subprocess.Popen(['sleep', '600']); time.sleep(600)", required=False),
        stage("late", "", required=False, least=1000.0),
    ]
    stages[2] = g.Stage("missing", 1, 0.1, False, lambda seconds: (["/no/such/program"], {}))
    start = time.monotonic()
    outcomes, results = g.run_all(stages, 8.0, tmp_path, {"PATH": "/usr/bin:/bin"})
    assert time.monotonic() - start < 20
    assert [o.state for o in outcomes] == ["passed", "failed", "failed", "out of time", "left out"]
    assert results == {"good": [1]}
    assert outcomes[1].note == "exit code 3"
    assert outcomes[1].tail == ["about to fail"]
    assert (tmp_path / "good.log").read_text() == "wrote good\n"
    text = g.table(outcomes)
    assert [line.split()[:2] for line in text.splitlines()[1:3]] == [["good", "passed"], ["bad", "FAILED"]]
    assert "left out" in text
    assert "at least 1000 s" in text
    assert g.exit_code(outcomes) == 1
    assert g.exit_code([outcomes[0], *outcomes[2:]]) == 0
    # That there was no time is no failure, of whichever stage.
    assert g.exit_code([g.Outcome("a", True, state) for state in ("passed", "out of time", "left out")]) == 0
    json.dumps([o.__dict__ for o in outcomes])
    assert "wrote good" in capfd.readouterr().out


def test_the_doctors_document_is_found_behind_warnings(b: SimpleNamespace, tmp_path: Path) -> None:
    log = tmp_path / "environment.log"
    log.write_text('a warning\n{"rows": [1, {"b": "}"}]}\nand more\n')
    b.gpu_stages._keep_document(log, tmp_path / "doctor.json")
    assert json.loads((tmp_path / "doctor.json").read_text()) == {"rows": [1, {"b": "}"}]}


def test_facts_of_the_machine(b: SimpleNamespace) -> None:
    facts = b.gpu_stages.hardware()
    assert facts["cores"] >= 1
    assert facts["gpus"] or facts["no_gpu"]
    assert b.gpu_stages.versions([])["numpy"] == np.__version__
    json.dumps([facts, b.gpu_transfers.device_facts()])


def test_libnvvm_is_looked_for_where_cuda_is(b: SimpleNamespace, tmp_path: Path, monkeypatch: Any) -> None:
    g = b.gpu_stages
    monkeypatch.setattr(sys, "path", [])
    assert g.cuda_home({}, [], tmp_path) == {"CUDA_HOME": str(tmp_path)}
    assert g.cuda_home({}, [], tmp_path / "none") == {}
    assert g.cuda_home({"CUDA_HOME": "/opt/cuda"}, [], tmp_path) == {}
    assert g.cuda_home({"CUDA_PATH": "/opt/cuda"}, [], tmp_path) == {}
    wheel = tmp_path / "site" / "nvidia" / "cu13" / "lib"
    wheel.mkdir(parents=True)
    (wheel / "libnvvm.so.4").touch()
    assert g.cuda_home({}, [str(tmp_path / "site")], tmp_path) == {}


# -- wheels


def _wheel(folder: Path, name: str, version: str = "1.0", requires: tuple[str, ...] = (), nbytes: int = 0) -> None:
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        lines = [f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {text}" for text in requires)]
        archive.writestr(f"{name}-{version}.dist-info/METADATA", "\n".join(["Metadata-Version: 2.1", *lines, "", ""]))
        archive.writestr("data", bytes(nbytes))


OF_GZARR = dict.fromkeys(("numpy", "numba", "numcodecs", "blosc2", "deflate", "google-crc32c", "rich"))


def test_wheels_that_suffice(b: SimpleNamespace, tmp_path: Path) -> None:
    _wheel(tmp_path, "one", requires=("Two[more]>=2", "absent; extra == 'other'", "old; python_version < '3.12'"))
    _wheel(tmp_path, "two", "2.1", ("numpy>=2", "three; extra == 'more'"))
    _wheel(tmp_path, "three", requires=("one",))
    text = b.gpu_wheels.check(tmp_path, ("one==1.0", "two==2.1", "three==1.0"), {**OF_GZARR, "numpy": "2.5.2"})
    assert text.splitlines()[-1] == "   0.0 MiB in 3 wheels; at most 56"


@pytest.mark.parametrize(
    ("pins", "present", "message"),
    [
        (("one==1.0", "two==1.0"), {}, "has no wheel of two"),
        (("one==1.1",), {}, "of one, 1.1 is wanted, once; remove it"),
        ((), {}, "one is not wanted, once"),
        (("one==1.0",), {}, "neither gathered nor on the machine:\n  more, required by one"),
        (("one==1.0",), {"more": "1.9"}, "more>=2, required by one: there is 1.9"),
        (("one==1.0",), {"more": "2.0", "rich": "12"}, "rich>=13, required by gzarr: there is 12"),
    ],
)
def test_wheels_that_do_not_suffice(
    pins: tuple[str, ...], present: dict[str, str], message: str, b: SimpleNamespace, tmp_path: Path
) -> None:
    _wheel(tmp_path, "one", requires=("more>=2",))
    with pytest.raises(b.gpu_wheels.WheelsError) as caught:
        b.gpu_wheels.check(tmp_path, pins, {**OF_GZARR, **present})
    assert message in str(caught.value)


def test_wheels_that_are_too_large_or_none(
    b: SimpleNamespace, tmp_path: Path, monkeypatch: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    w = b.gpu_wheels
    _wheel(tmp_path, "one", nbytes=2 << 20)
    monkeypatch.setattr(w, "MOST_MIB", 1.5)
    with pytest.raises(w.WheelsError, match=r"too large by 0\.5 MiB"):
        w.check(tmp_path, ("one==1.0",), OF_GZARR)
    (tmp_path / "one-1.0-py3-none-any.whl").write_bytes(b"no archive")
    assert w.main(["--check", str(tmp_path)]) == 1
    assert "is not a wheel" in capsys.readouterr().err


def test_what_is_pinned_has_one_version_and_is_not_there_already(b: SimpleNamespace) -> None:
    w = b.gpu_wheels
    requirements = [w.Requirement(pin) for pin in w.PINS]
    names = [w.canonicalize_name(r.name) for r in requirements]
    assert len(set(names)) == len(names)
    assert not set(names) & w.PRESENT.keys()
    assert all(re.fullmatch(r"==[\d.a-z]+", str(r.specifier)) for r in requirements)
