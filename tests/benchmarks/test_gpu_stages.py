"""``ci/gpu`` and ``ci/gpu-wheels`` as far as they need no GPU: the stages, their tests, the wheels."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from gzarr_kernels import ahead
from gzarr_kernels.build import own_targets
from gzarr_kernels.device import ptx
from hypothesis import given, settings
from hypothesis import strategies as st
from support import gpu_benchmarks
from support.devices import LACKS
from support.gpu_session import OPTIONAL

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import SimpleNamespace

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def b() -> Iterator[SimpleNamespace]:
    with gpu_benchmarks.modules() as found:
        yield found


def test_the_scripts_are_sound_and_refuse_what_makes_no_sense(tmp_path: Path) -> None:
    for script in ("gpu", "gpu-wheels"):
        subprocess.run(["bash", "-n", ROOT / "ci" / script], check=True)
    for wrong in ([], ["check", "--minutes", "0"], ["check", "--wheels", str(tmp_path)], ["check", "--only", "what"]):
        done = subprocess.run([ROOT / "ci" / "gpu", *wrong], capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert "usage: ci/gpu" in done.stderr


# -- stages


FIRST = ["kernels", "environment"]
CALLS = {
    "check": ["equality", "equality of the JIT", "questions", "damage", "damaged frames"],
    "measure": ["benchmark", "writing", "loader", "imaging", "sanitizer", "soak", "decode rates"],
}


@pytest.mark.parametrize("call", CALLS)
def test_the_plan_of_a_call(call: str, b: SimpleNamespace, tmp_path: Path) -> None:
    g = b.gpu.stages
    work, wheels = tmp_path / "work", tmp_path / "wheels"
    (wheels / "kernels").mkdir(parents=True)
    (wheels / "a-1-py3-none-any.whl").touch()
    assert [s.name for s in g.Plan("python", work, None, None).stages(call)] == [*FIRST, *CALLS[call]]
    planned = g.Plan("python", work, wheels, tmp_path / "site").stages(call)
    assert [s.name for s in planned] == ["install", *FIRST, *CALLS[call]]
    stages = {s.name: s for s in planned}
    tests = {"check": {"equality", "equality of the JIT", "damage"}, "measure": {"soak"}}[call]
    assert {name for name, s in stages.items() if s.required} == {"install", *FIRST, *tests}
    command, _ = stages["install"].command(60)
    assert {"--no-index", "--no-deps", "--no-compile", "--target"} <= set(command)
    assert command[-1].endswith("a-1-py3-none-any.whl")
    for name in ("soak", "damage"):
        assert name not in stages or stages[name].least_s >= 45
    # One kind of kernels runs, and tests fail if it is another.
    for name, stage in stages.items():
        command, environment = stage.command(100)
        assert name in {"install", *FIRST} or 90 < float(environment.pop("GZARR_ENDS_AT")) - time.time() < 96
        jit = name == "equality of the JIT"
        assert environment["GZARR_KERNELS"] == str(work / ("host-kernels" if jit else "kernels")), name
        if name in tests:
            assert command[1:3] == ["-m", "pytest"]
            expected = {"GZARR_SOAK_SECONDS": "80", "GZARR_TEST_GPU": "1"}
            expected |= {"GZARR_TEST_KERNELS": "jit" if jit else "ptx", "GZARR_TEST_REPORT": str(stage.tests)}
            assert environment == {**expected, "GZARR_KERNELS": environment["GZARR_KERNELS"]}
            marked = {"damage": "gpu and damage", "soak": "gpu"}.get(name, "gpu and not damage")
            assert command[command.index("-m", 3) + 1] == marked
    (wheels / "kernels" / "device-1-2.zip").touch()
    brought = {s.name: s for s in g.Plan("python", work, wheels, tmp_path / "site").stages(call)}
    assert brought["environment"].command(100)[1]["GZARR_KERNELS"] == str(wheels / "kernels")
    assert brought["kernels"].least_s < stages["kernels"].least_s
    # It fits, also with what comes before the first stage.
    assert sum(s.least_s for s in brought.values()) < 60 * g.MINUTES[call] - g.RESERVE_S - 5


@pytest.mark.parametrize("small", [False, True])
def test_programs_take_the_options_that_they_are_given(small: bool, b: SimpleNamespace, tmp_path: Path) -> None:
    g, asked, seen = b.gpu.stages, [], set()
    names = ("read", "questions", "write", "loader", "imaging", "sanitizer")
    programs = {name: getattr(b.gpu, name) for name in names}
    for stage in [s for call in CALLS for s in g.Plan("python", tmp_path, None, None, small=small).stages(call)]:
        command, _ = stage.command(100)
        program = programs.get(command[2])
        if command[1] == "benchmarks/gpu" and program is not None:
            arguments = program.parser().parse_args(command[3:])
            # They end a little before they would be ended.
            assert arguments.seconds == 95
            assert arguments.json == stage.result
            seen.add(command[2])
            if program is b.gpu.questions:
                asked.append((arguments.question, arguments.without))
    assert seen == set(programs)
    damaged, rates = g.DAMAGED_FRAMES, g.DECODE_RATES
    assert {damaged, rates} < set(b.gpu.questions.QUESTIONS)
    assert asked == [(None, [damaged, rates]), ([damaged], []), ([rates], [])]


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
    assert {name for name, damages in found if damages} == set(b.gpu.stages.DAMAGE_TESTS)
    assert {name for name, damages in found if not damages} == {*b.gpu.stages.TESTS, "gpu_soak"}


def test_what_is_not_installed_is_said_and_no_error(b: SimpleNamespace, tmp_path: Path) -> None:
    modules = {*b.gpu.stages.TESTS, *b.gpu.stages.DAMAGE_TESTS, "gpu_soak"}
    files = map(b.gpu.stages._test_module, modules)
    found, said = _collected(*files, hidden=OPTIONAL, tmp_path=tmp_path)
    assert {name for name, _ in found} < modules
    assert re.search(r"SKIPPED \[\d+\] .*zarr is not installed", said)


@settings(max_examples=50, deadline=None)
@given(seconds=st.floats(0, 1000), used=st.lists(st.floats(0, 1), min_size=7, max_size=7))
def test_shares_never_exceed_what_is_left(b: SimpleNamespace, seconds: float, used: list[float]) -> None:
    planned = b.gpu.stages.Plan("python", Path(), None, None).stages("check")
    left = seconds
    fits = seconds >= sum(s.least_s for s in planned)
    for at, part in enumerate(used):
        share = b.gpu.run.limit(planned, at, left)
        if share is None:
            assert left < planned[at].least_s
            # No stage takes the least time of a later one.
            assert not fits
        else:
            assert planned[at].least_s <= share <= left
            left -= part * share


def test_what_a_stage_leaves_goes_to_the_next_ones(b: SimpleNamespace) -> None:
    stages, limit = b.gpu.stages.Plan("python", Path(), None, None).stages("measure"), b.gpu.run.limit
    last = len(stages) - 1
    assert limit(stages, last, 200.0) == 200.0
    assert limit(stages, last, stages[last].least_s - 1) is None
    assert limit(stages, 2, 400.0) < limit(stages, 2, 480.0) < 480.0
    least = sum(s.least_s for s in stages)
    assert limit(stages, 0, least) == stages[0].least_s


def test_stages_run_on_when_one_fails_hangs_or_is_left_out(b: SimpleNamespace, tmp_path: Path, capfd: Any) -> None:
    g = b.gpu.run

    def stage(name: str, code: str, *, required: bool = True, least: float = 0.1, **more: Any) -> Any:
        return g.Stage(name, 1, least, required, lambda seconds: ([sys.executable, "-c", code], {"SAID": name}), **more)

    found = tmp_path / "found.json"
    write = f"import os, pathlib; pathlib.Path({str(found)!r}).write_text('[1]'); print('wrote', os.environ['SAID'])"
    # Its child keeps the output open: both are ended. What it has found is kept.
    hangs = f"import subprocess, time; open({str(tmp_path / 'part.json')!r}, 'w').write('[2]'); "
    hangs += "subprocess.Popen(['sleep', '600']); time.sleep(600)"
    stages = [
        stage("good", write, result=found),
        stage("bad", "print('about to fail'); raise SystemExit(3)"),
        g.Stage("missing", 1, 0.1, False, lambda seconds: (["/no/such/program"], {})),
        stage("hangs", hangs, required=False, result=tmp_path / "part.json"),
        stage("prints", "print('a warning'); print('{\"rows\": [1, {\"b\": \"}\"}]}'); print('more')", printed=True),
        stage("late", "", required=False, least=1000.0),
    ]
    start = time.monotonic()
    kept: list[int] = []
    with (tmp_path / "gpu.log").open("w") as log:
        outcomes = g.run_all(stages, 12.0, log, {"PATH": "/usr/bin:/bin"}, lambda found: kept.append(len(found)))
    assert time.monotonic() - start < 25
    assert [o.state for o in outcomes] == ["passed", "failed", "failed", "out of time", "passed", "left out"]
    assert kept == [1, 2, 3, 4, 5, 6]
    assert [o.result for o in outcomes] == [[1], None, None, [2], {"rows": [1, {"b": "}"}]}, None]
    assert outcomes[1].note == "exit code 3"
    assert outcomes[1].tail == ["about to fail"]
    text = (tmp_path / "gpu.log").read_text()
    assert "wrote good\n== bad (at most" in text
    assert "== late: left out" in text
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


def _said(tests: Any, folder: Path, *lines: dict[str, Any]) -> dict[str, Any]:
    file = folder / "said.jsonl"
    # The process was ended while it wrote.
    file.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"test": "a::')
    collected: dict[str, Any] = tests.collected(file)
    return collected


def test_what_the_tests_of_a_stage_amount_to(b: SimpleNamespace, tmp_path: Path) -> None:
    t = b.gpu.tests
    good = {"test": "a::one", "outcome": "passed", "seconds": 1.0}

    def skipped(reason: str) -> dict[str, str]:
        return {"test": "a::two", "outcome": "skipped", "text": reason}

    kernel = {"kernel": "ptx"}
    listed = _said(t, tmp_path, kernel, {"begin": "a::one"}, good, {"end": "a::one"}, skipped("jax has no CUDA here"))
    assert t.verdict(listed, "passed") == ("passed", "1 passed, 0 failed, 1 skipped")
    assert listed["skipped"] == {"jax has no CUDA here": ["a::two"]}
    # That some reason is given is not enough.
    state, note = t.verdict(_said(t, tmp_path, good, skipped("it is Wednesday")), "passed")
    assert (state, "no listed reason: it is Wednesday" in note) == ("failed", True)
    # What had no time did not pass.
    state, note = t.verdict(_said(t, tmp_path, kernel, good, skipped("out of time")), "passed")
    assert (state, note) == ("out of time", "1 passed, 0 failed, 1 skipped, 1 of them for lack of time")
    for lines in ((), (kernel, skipped("zarr is not installed")), (good,)):
        assert t.verdict(_said(t, tmp_path, *lines), "passed")[0] == "failed"
    bad = {"test": "a::one", "outcome": "failed", "text": "assert 1 == 2"}
    failed = _said(t, tmp_path, good, bad, {"kernel": "ptx"}, {"kernel": "ptx"})
    assert t.verdict(failed, "failed") == ("failed", "0 passed, 1 failed, 0 skipped")
    assert (failed["failed"], failed["kernels"]) == ({"a::one": "assert 1 == 2"}, {"ptx": 2})
    ended = _said(t, tmp_path, {"begin": "a::one"}, good, {"end": "a::one"}, {"begin": "a::two"})
    assert t.verdict(ended, "out of time") == ("out of time", "1 passed, 0 failed, 0 skipped; ended during a::two")
    assert t.collected(tmp_path / "none")["passed"] == 0
    # Of several processes, one has ended during a test, and one after it had lost its context.
    lost = skipped("CUDA's context is lost since a::one: illegal address")
    of_workers = ({"begin": "a::one"}, {"begin": "a::two"}, {"crash": "a::one"}, lost, {"crash": "a::two"})
    said = _said(t, tmp_path, kernel, *of_workers, {"begin": "a::three"}, {"begin": "a::four"})
    assert said["failed"] == {"a::one": "the process has ended during this test"}
    assert said["skipped"] == {lost["text"]: ["a::two"]}
    assert said["unfinished"] == "a::three, a::four"


@pytest.mark.skipif(bool(LACKS), reason=LACKS)
def test_a_call_writes_one_report_and_one_log(b: SimpleNamespace, tmp_path: Path) -> None:
    """Without a GPU: the environment fails, and everything after it; all of that is said, in files with plain names."""
    out = tmp_path / "out"
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "PYTHON": sys.executable}
    # To compile the kernels once more would take a minute.
    brought = tmp_path / "made"
    (brought / "kernels").mkdir(parents=True)
    for kernel in Path(os.environ["GZARR_KERNELS"]).iterdir():
        shutil.copy(kernel, brought / "kernels")
    with zipfile.ZipFile(brought / "a-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("a.py", "")
        wheel.writestr("a-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: a\nVersion: 1\n")
        wheel.writestr("a-1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("a-1.dist-info/RECORD", "")
    command = [ROOT / "ci" / "gpu", "check", "--out", out, "--only", "environment", "--only", "questions", "--small"]
    (tmp_path / "first_of_all.py").write_text("import os, sys; os.environ['SEEN'] = '1'; sys.stderr.write('first\\n')")
    environment["PYTHONPATH"] = os.pathsep.join([str(tmp_path), *sys.path])
    done = subprocess.run(
        [*map(str, command), "--wheels", brought, "--first", "first_of_all", "--minutes", "1.5"],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    assert sorted(path.name for path in out.iterdir()) == ["gpu.json", "gpu.log"]
    assert all(re.fullmatch(r"[\w.-]+", path.name) for path in out.iterdir())
    report = json.loads((out / "gpu.json").read_text())
    assert {"call", "command", "date", "commit", "hardware", "environment", "versions", "stages"} == set(report)
    stages = {stage["stage"]: stage for stage in report["stages"]}
    assert list(stages) == ["install", "kernels", "environment", "questions"]
    assert [stages[name]["state"] for name in ("install", "kernels")] == ["passed"] * 2
    assert stages["environment"]["state"] == "failed"
    assert stages["environment"]["result"]["device_asked"] == "cuda"
    assert stages["questions"]["result"]["refused"]
    log = (out / "gpu.log").read_text()
    assert "== questions (at most" in log
    # Every process of every stage imported it.
    assert log.count("first\n") >= 4


def test_facts_of_the_machine(b: SimpleNamespace) -> None:
    facts = b.gpu.facts.hardware()
    assert facts["cores"] >= 1
    assert facts["gpus"] or facts["no_gpu"]
    assert b.gpu.facts.versions([])["numpy"] == np.__version__
    json.dumps([facts, b.gpu.transfers.device_facts()])


def test_libnvvm_is_looked_for_where_cuda_is(b: SimpleNamespace, tmp_path: Path, monkeypatch: Any) -> None:
    g = b.gpu.facts
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


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch, b: SimpleNamespace, tmp_path: Path) -> None:
    """Compiled kernels, and a checkout without files."""
    (tmp_path / "kernels").mkdir()
    monkeypatch.setattr(b.gpu.wheels, "checkout_nbytes", lambda folder: 0)
    for name in _kernel_names():
        (tmp_path / "kernels" / name).touch()


def _kernel_names() -> list[str]:
    """Return names of files with kernels of these sources."""
    return [ptx.file_name(b""), *(f"{ahead.file_name(target, b'')}.so" for target in own_targets())]


OF_GZARR = dict.fromkeys(("numpy", "numba", "numcodecs", "blosc2", "deflate", "google-crc32c", "rich"))


@pytest.mark.usefixtures("kernels")
def test_wheels_that_suffice(b: SimpleNamespace, tmp_path: Path) -> None:
    _wheel(tmp_path, "one", requires=("Two[more]>=2", "absent; extra == 'other'", "old; python_version < '3.12'"))
    _wheel(tmp_path, "two", "2.1", ("numpy>=2", "three; extra == 'more'"))
    _wheel(tmp_path, "three", requires=("one",))
    text = b.gpu.wheels.check(tmp_path, ("one==1.0", "two==2.1", "three==1.0"), {**OF_GZARR, "numpy": "2.5.2"})
    assert text.splitlines()[-1] == "   0.0 MiB together, 3 wheels; at most 62"


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
    with pytest.raises(b.gpu.wheels.WheelsError) as caught:
        b.gpu.wheels.check(tmp_path, pins, {**OF_GZARR, **present})
    assert message in str(caught.value)


@pytest.mark.usefixtures("kernels")
def test_wheels_that_are_too_large_or_none(
    b: SimpleNamespace, tmp_path: Path, monkeypatch: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    w = b.gpu.wheels
    _wheel(tmp_path, "one", nbytes=2 << 20)
    monkeypatch.setattr(w, "MOST_MIB", 1.5)
    with pytest.raises(w.WheelsError, match=r"too large by 0\.5 MiB"):
        w.check(tmp_path, ("one==1.0",), OF_GZARR)
    (tmp_path / "one-1.0-py3-none-any.whl").write_bytes(b"no archive")
    assert w.main(["--check", str(tmp_path)]) == 1
    assert "is not a wheel" in capsys.readouterr().err


def test_what_is_pinned_has_one_version_and_is_not_there_already(b: SimpleNamespace) -> None:
    w = b.gpu.wheels
    requirements = [w.Requirement(pin) for pin in w.PINS]
    names = [w.canonicalize_name(r.name) for r in requirements]
    assert len(set(names)) == len(names)
    assert not set(names) & w.PRESENT.keys()
    assert all(re.fullmatch(r"==[\d.a-z]+", str(r.specifier)) for r in requirements)


@pytest.mark.usefixtures("kernels")
def test_kernels_of_other_sources_are_no_kernels(b: SimpleNamespace, tmp_path: Path) -> None:
    _wheel(tmp_path, "one")
    assert "one" in b.gpu.wheels.check(tmp_path, ("one==1.0",), OF_GZARR)
    device, libraries = b.gpu.kernels.present(tmp_path / "kernels")
    assert [path.name for path in (*device, *libraries)] == _kernel_names()
    for path in device:
        path.rename(path.with_name("device-00000000-00000000.zip"))
    with pytest.raises(b.gpu.wheels.WheelsError, match="no kernels of these sources"):
        b.gpu.wheels.check(tmp_path, ("one==1.0",), OF_GZARR)


def test_everything_that_is_brought_counts(b: SimpleNamespace, tmp_path: Path) -> None:
    """The files of the checkout, too, but none that git ignores."""
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    (tmp_path / ".gitignore").write_text("ignored\n")
    (tmp_path / "ignored").write_bytes(bytes(1000))
    (tmp_path / "kept").write_bytes(bytes(100))
    assert b.gpu.wheels.checkout_nbytes(tmp_path) == 100 + len("ignored\n")
    # Of this checkout, the wheels leave room for a little more.
    assert b.gpu.wheels.checkout_nbytes(ROOT) < 14.5 * 2**20
    assert b.gpu.wheels.MOST_MIB <= 62


def test_small_wheels_that_the_machine_has_are_left_out(b: SimpleNamespace) -> None:
    there = "fsspec click cloudpickle markdown-it-py mdurl pyyaml rich toolz typing-extensions pytest-timeout"
    assert set(there.split()) <= b.gpu.wheels.PRESENT.keys()
