"""PTX of the device kernels that comes with a wheel: how it is made, what it may need, and that it is used."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING, Any

import pytest
from cuda.bindings import nvjitlink
from gzarr_kernels import ahead
from gzarr_kernels.device import ptx

if TYPE_CHECKING:
    from pathlib import Path

# All kernels are compiled.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

#: Compiles some kernels with numba-cuda, and prints their PTX.
COMPILE = """
import json
from gzarr_kernels.device import assemble, build, checksums, compiler, resample, rows
found = {}
for name, kernel, word in [
    ("place_rows", rows.place_rows, 8), ("checksums", checksums.checksums, 8), ("assemble-2", assemble.assemble, 2),
    ("resample", resample.resample, 8),
]:
    found[name] = build.lowered(compiler.ptx(kernel, word, (8, 0)))
print(json.dumps(found))
"""
#: Everything that a read and a write on a GPU import, and the program of every kernel.
USE = """
import json, pkgutil, sys, importlib
from gzarr.engines.cuda import devices, engine, machine_code, wave, write_wave
from gzarr.errors import DeviceError
from gzarr_kernels import device
from gzarr_kernels.device import ptx, target

found = {}
for info in pkgutil.iter_modules(device.__path__):
    if info.name in ("build", "compiler"):
        continue
    for value in vars(importlib.import_module(f"gzarr_kernels.device.{info.name}")).values():
        if isinstance(value, target.Kernel):
            for word in (1, 2, 4, 8):
                code = machine_code.load(value, word, (9, 0))
                assert code.image == ptx.programs()[target.program_name(value, word)]
                found[target.program_name(value, word)] = code.entry
try:
    machine_code.load(value, 8, (7, 5))
except DeviceError as error:
    refused = str(error)
compilers = sorted({"numba", "llvmlite", "numba_cuda"} & set(sys.modules))
print(json.dumps([found, refused, compilers, devices.missing_parts()]))
"""

#: In Numba's simulator.
SIMULATED = """
from gzarr.engines.cuda import machine_code
from gzarr.errors import DeviceError
from gzarr_kernels.device import copies

try:
    machine_code.load(copies.copy_frames, 8, (9, 0))
except DeviceError as error:
    print(error)
"""


def run(*arguments: str, **environment: str) -> str:
    own = {name: value for name, value in os.environ.items() if name != "NUMBA_ENABLE_CUDASIM"}
    done = subprocess.run(
        [sys.executable, *arguments], env=own | environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the programs that these tests use anyway, if there are some: in ci/test, a wheel's."""
    folder = tmp_path_factory.mktemp("built")
    made = list(ahead.folder().glob(ptx.file_name()))
    if made:
        shutil.copy(made[0].resolve(), folder / made[0].name)
    else:
        run("-m", "gzarr_kernels.device.build", str(folder))
    return folder


@pytest.fixture(scope="module")
def programs(built: Path) -> dict[str, str]:
    (path,) = built.iterdir()
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name).decode() for name in archive.namelist()}


def plain(text: str) -> str:
    """Return PTX with numbered symbols: Numba's contain a counter, which depends on what was compiled before."""
    numbers: dict[str, int] = {}
    return re.sub(r"_ZN\w+", lambda match: f"s{numbers.setdefault(match[0], len(numbers))}", text)


def test_every_kernel_is_there(programs: dict[str, str]) -> None:
    assert len(programs) == 42
    assert {name.rpartition("-")[0] for name in programs if "-" in name} == {
        "assemble", "assemble_converted", "densify", "gather", "scale_rows", "take_chosen",
    }  # fmt: skip


def test_it_is_what_numba_cuda_compiles(programs: dict[str, str]) -> None:
    for name, text in json.loads(run("-c", COMPILE, GZARR_JIT="1")).items():
        assert plain(text) == plain(programs[name]), name


def link(text: str, architecture: str) -> int:
    """Compile PTX as a driver does; return the size of the code. What the stated version does not have is refused."""
    source = text.encode()
    handle = nvjitlink.create(1, [f"-arch={architecture}"])
    try:
        nvjitlink.add_data(handle, nvjitlink.InputType.PTX, source, len(source), "kernel")
        nvjitlink.complete(handle)
        return int(nvjitlink.get_linked_cubin_size(handle))
    finally:
        nvjitlink.destroy(handle)


@pytest.mark.parametrize("architecture", ["sm_80", "sm_86", "sm_90", "sm_100", "sm_120"])
def test_a_driver_of_cuda_12_can_compile_it(architecture: str, programs: dict[str, str]) -> None:
    for text in programs.values():
        assert re.search(r"(?m)^\.version 8\.0$", text)
        assert re.search(r"(?m)^\.target sm_80$", text)
        assert link(text, architecture) > 1000


def test_the_linker_refuses_what_a_version_does_not_have(programs: dict[str, str]) -> None:
    """Without this, the test above would show nothing."""
    text = programs["put_numbers"].replace("ret;", "fence.proxy.tensormap::generic.release.gpu;\n\tret;")
    with pytest.raises(nvjitlink.nvJitLinkError):
        link(text, "sm_90")
    newer = text.replace(".version 8.0", ".version 8.3").replace(".target sm_80", ".target sm_90")
    assert link(newer, "sm_90") > 1000


def test_no_compiler_is_imported(built: Path, programs: dict[str, str]) -> None:
    result: list[Any] = json.loads(run("-c", USE, GZARR_KERNELS=str(built), GZARR_JIT="0"))
    found, refused, compilers, missing = result
    assert set(found) == set(programs)
    for name, entry in found.items():
        assert f".visible .entry {entry}(" in programs[name]
    assert refused.startswith("this installation has kernels for GPUs of compute capability 8.0 and newer")
    assert compilers == []
    assert not [text for text in missing if "numba-cuda" in text]


def test_a_damaged_file_is_not_used(built: Path, tmp_path: Path) -> None:
    (path,) = built.iterdir()
    (tmp_path / path.name).write_bytes(path.read_bytes()[:-1])
    code = "from gzarr_kernels.device import ptx; print(len(ptx.programs()))"
    assert run("-c", code, GZARR_KERNELS=str(tmp_path), GZARR_JIT="0") == "0\n"
    assert run("-c", code, GZARR_KERNELS=str(built), GZARR_JIT="1") == "0\n"
    assert run("-c", code, GZARR_KERNELS=str(built), GZARR_JIT="0") == "42\n"


def test_numbas_simulator_compiles_nothing(tmp_path: Path) -> None:
    variables = {"GZARR_JIT": "1", "NUMBA_ENABLE_CUDASIM": "1", "XDG_CACHE_HOME": str(tmp_path)}
    assert run("-c", SIMULATED, **variables).endswith("unset NUMBA_ENABLE_CUDASIM\n")
