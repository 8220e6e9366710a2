"""Both calls of ``ci/gpu``, small, to their end: on the real CuPy over a CUDA runtime in host memory."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import cuda_on_host

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
MINUTES = 6
#: The module that every process imports first, which is the switch to this device.
FIRST = "support.cuda_on_host.first"
MADE = "from support.cuda_on_host import kernels; print(kernels.use_compiled_kernels())"


@pytest.fixture(scope="module")
def brought(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with kernels, as ``ci/gpu-wheels`` makes one."""
    if reason := cuda_on_host.why_not():
        pytest.skip(reason)
    environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": "0", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", MADE], env=environment, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    folder = tmp_path_factory.mktemp("brought")
    shutil.copytree(done.stdout.splitlines()[-1], folder / "kernels")
    return folder


@pytest.mark.timeout(60 * MINUTES + 120)
@pytest.mark.parametrize("call", ["check", "measure"])
def test_a_call_runs_to_its_end(call: str, brought: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHON": sys.executable, "PYTHONPATH": os.pathsep.join(sys.path)}
    # Neither kernels nor rates of this device are for a user's GPU.
    environment["XDG_CACHE_HOME"] = str(tmp_path.with_name("cache"))
    command = ["ci/gpu", call, "--small", "--first", FIRST, "--wheels", str(brought), "--out", str(tmp_path)]
    done = subprocess.run(
        [*command, "--minutes", str(MINUTES)], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gpu.json", "gpu.log"], done.stderr
    stages = {stage["stage"]: stage for stage in json.loads((tmp_path / "gpu.json").read_text())["stages"]}
    said = "\n".join(
        "\n".join([name, stage["state"], stage["note"], *stage["tail"]])
        for name, stage in stages.items()
        if stage["state"] != "passed"
    )
    # Nothing had too little time, and whatever must be right is.
    assert {stage["state"] for stage in stages.values()} <= {"passed", "failed"}, said
    assert {name for name, stage in stages.items() if stage["required"] and stage["state"] != "passed"} == set(), said
    assert done.returncode == 0
    if call == "check":
        # Each kind of kernels has run, and no other.
        for name, origin in (("equality", "ptx"), ("equality of the JIT", "jit")):
            assert list(stages[name]["tests"]["kernels"]) == [origin]
            assert stages[name]["tests"]["passed"] > 5
    else:
        found = stages["benchmark"]["result"]
        assert (found["failed"], found["left out"]) == ({}, [])
        assert found["decoders at saturation"]
        assert found["waves"]
        for workload in found["workloads"]:
            assert workload["sound"], workload
            assert workload["rivals"]["gzarr"]["median_ms"] > 0
            assert workload["rivals"]["zarr-python"]["median_ms"] > 0
        assert found["targets"][3]["value"] > 0
