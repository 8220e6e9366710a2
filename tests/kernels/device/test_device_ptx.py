"""The device kernels compile without a GPU for every GPU that we name; what PTX must and must not contain."""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest
from cuda.bindings import nvjitlink
from gzarr_kernels import device
from gzarr_kernels.device.target import Kernel
from support.once import made_once

pytestmark = pytest.mark.slow

CAPABILITIES = {"8.0": "sm_80", "9.0": "sm_90", "10.0": "sm_100"}
ELF = b"\x7fELF"
#: What places nearly all that is read.
PLACING = ("place_rows", "place_planes")
KERNELS = Path(__file__).parents[3] / "kernels"

COMPILE = """
import json, sys
from gzarr_kernels.device import (
    assemble, checksums, compiler, containers, copies, cubic, filters, gather, packed_bits, planes, resample, rows,
    shuffle, sparse,
)

kernels = {
    kernel.py_func.__name__: (kernel, 8)
    for kernel in (
        planes.bit_planes_to_byte_planes, planes.byte_planes_to_plain, shuffle.plain_to_byte_planes,
        shuffle.plain_to_bit_planes, copies.copy_frames, containers.put_numbers, containers.put_checksums,
        filters.accumulate, filters.convert, packed_bits.unpack_bits, checksums.checksums,
        resample.resample, cubic.resample_cubic, cubic.filter_lines, rows.place_rows, rows.place_planes,
        sparse.check_rows, sparse.count_chosen,
    )
}
for word in (1, 2, 4, 8):
    kernels[f"assemble uint{8 * word}"] = (assemble.assemble, word)
    kernels[f"assemble_converted uint{8 * word}"] = (assemble.assemble_converted, word)
    kernels[f"gather uint{8 * word}"] = (gather.gather, word)
    kernels[f"take_chosen uint{8 * word}"] = (sparse.take_chosen, word)
    kernels[f"densify uint{8 * word}"] = (sparse.densify, word)
    kernels[f"scale_rows uint{8 * word}"] = (sparse.scale_rows, word)
found = {}
for name, (kernel, word) in kernels.items():
    for capability in sys.argv[1:]:
        major, minor = map(int, capability.split("."))
        found.setdefault(name, {})[capability] = compiler.ptx(kernel, word, (major, minor))
json.dump(found, sys.stdout)
"""

# Twice, and in another process: what is kept on disk is loaded, and nothing of numba-cuda then.
MACHINE_CODE = """
import sys
from unittest import mock
from gzarr.engines.cuda import machine_code
from gzarr_kernels.device import assemble, compiler, copies

kept = sys.argv[1:] == ["kept"]
with mock.patch.object(compiler, "ptx", side_effect=AssertionError if kept else compiler.ptx):
    for kernel, word, capability in ((copies.copy_frames, 0, (8, 0)), (assemble.assemble, 2, (10, 0))):
        for _ in range(2):
            found = machine_code.load(kernel, word, capability)
            print(found.image[:4], found.entry.encode() in found.image, kernel.py_func.__name__ in found.entry)
"""


def run_alone(script: str, *arguments: str) -> str:
    environment = {**os.environ, "GZARR_JIT": "1"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(KERNELS), environment.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def ptx(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    made = made_once(tmp_path_factory, "ptx", lambda: run_alone(COMPILE, *CAPABILITIES))
    found: dict[str, dict[str, str]] = json.loads(made)
    return found


@pytest.mark.timeout(600)
def test_these_are_all_kernels(ptx: dict[str, dict[str, str]]) -> None:
    modules = [importlib.import_module(f"gzarr_kernels.device.{m.name}") for m in pkgutil.iter_modules(device.__path__)]
    kernels = {name for module in modules for name, value in vars(module).items() if isinstance(value, Kernel)}
    assert {name.split()[0] for name in ptx} == kernels


@pytest.mark.timeout(600)
def test_every_kernel_compiles_for_every_capability(ptx: dict[str, dict[str, str]]) -> None:
    assert len(ptx) == 42
    for name, by_capability in ptx.items():
        assert by_capability.keys() == CAPABILITIES.keys()
        for capability, text in by_capability.items():
            (target,) = re.findall(r"^\.target (\w+)", text, re.MULTILINE)
            assert target == CAPABILITIES[capability]
            assert len(re.findall(r"\.visible \.entry", text)) == 1, name


def each(ptx: dict[str, dict[str, str]]) -> list[tuple[str, str]]:
    return [(f"{name} for {cc}", text) for name, texts in ptx.items() for cc, text in texts.items()]


@pytest.mark.timeout(600)
def test_everything_is_inlined_and_in_registers(ptx: dict[str, dict[str, str]]) -> None:
    for which, text in each(ptx):
        assert not re.search(r"\bcall\b|\.func\b|\.extern\b", text), which
        assert ".local" not in text, which


@pytest.mark.timeout(600)
def test_the_assembler_takes_it_and_needs_no_stack(ptx: dict[str, dict[str, str]]) -> None:
    for name, by_capability in ptx.items():
        for capability, text in by_capability.items():
            log = assemble(text, CAPABILITIES[capability])
            assert "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads" in log, name
            (registers,) = re.findall(r"Used (\d+) registers", log)
            # Of 65,536 registers a multiprocessor, so that two blocks of 256 threads fit, or four.
            assert int(registers) <= (64 if name in PLACING else 128), name


def assemble(ptx: str, architecture: str) -> str:
    """Assemble to machine code, which needs no GPU either; return the output of the assembler."""
    handle = nvjitlink.create(2, [f"-arch={architecture}", "-verbose"])
    try:
        nvjitlink.add_data(handle, nvjitlink.InputType.PTX, ptx.encode(), len(ptx), "kernel")
        nvjitlink.complete(handle)
        log = bytearray(nvjitlink.get_info_log_size(handle))
        nvjitlink.get_info_log(handle, log)
        return log.decode()
    finally:
        nvjitlink.destroy(handle)


@pytest.mark.timeout(600)
def test_offsets_are_integers_of_64_bits(ptx: dict[str, dict[str, str]]) -> None:
    for which, text in each(ptx):
        assert "ld.global" in text, which
        assert not re.search(r"\bld\.u|\bst\.u|\bld\.b|\bst\.b", text), f"{which}: an address of unknown memory"


#: Kernels that compute with floats.
FLOATS = {"assemble_converted", "convert", "filter_lines", "resample", "resample_cubic", "scale_rows"}


@pytest.mark.timeout(600)
def test_no_other_kernel_has_floats(ptx: dict[str, dict[str, str]]) -> None:
    """Numba makes a float64 of a uint64 and an int64."""
    for which, text in each(ptx):
        assert bool(re.search(r"\.[bt]?f(16|32|64)(x2)?\b", text)) == (which.split()[0] in FLOATS), which


@pytest.mark.timeout(600)
def test_division_in_64_bits_is_the_exception(ptx: dict[str, dict[str, str]]) -> None:
    for which, text in each(ptx):
        wide, narrow = (len(re.findall(pattern, text)) for pattern in (r"\bdiv\.[us]64", r"\bdiv\.u32"))
        assert narrow >= wide, which
        assert not re.search(r"\bdiv\.s64", text), which


@pytest.mark.timeout(600)
@pytest.mark.parametrize("width", [8, 16, 32, 64])
def test_assemble_moves_whole_words(ptx: dict[str, dict[str, str]], width: int) -> None:
    for text in ptx[f"assemble uint{width}"].values():
        assert re.search(rf"\bst\.global\.[ub]{width}\b", text)
        assert len(re.findall(r"\bst\.global", text)) == 1
        assert re.search(rf"\bld\.global\.[ub]{width}\b", text)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", PLACING)
def test_rows_are_moved_16_bytes_at_a_time(ptx: dict[str, dict[str, str]], name: str) -> None:
    for text in ptx[name].values():
        assert len(re.findall(r"\bst\.global\.v2\.[ub]64\b", text)) == 1
        # Their parts.
        assert set(re.findall(r"\bst\.global\.[ub](\d+)\b", text)) == {"8", "16", "32", "64"}
        assert not re.search(r"\bdiv\.\w64\b|\brem\.\w64\b", text)
    for text in ptx["place_rows"].values():
        assert len(re.findall(r"\bld\.global\.v2\.[ub]64\b", text)) == 1
    for text in ptx["place_planes"].values():
        # Of the planes of elements of 2, 4, 8 and 16 bytes.
        assert set(re.findall(r"\bld\.global\.[ub](\d+)\b", text)) == {"64", "32", "16", "8"}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("width", [8, 16, 32, 64])
def test_gather_moves_whole_words(ptx: dict[str, dict[str, str]], width: int) -> None:
    for text in ptx[f"gather uint{width}"].values():
        # Marks are of 64 bits.
        assert set(re.findall(r"\bst\.global\.\w?(\d+)\b", text)) == {str(width), "64"}
        assert re.search(rf"\bld\.global\.[ub]{width}\b", text)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["checksums", "put_checksums"])
def test_checksum_tables_are_shared(ptx: dict[str, dict[str, str]], name: str) -> None:
    for text in ptx[name].values():
        assert ".shared" in text
        assert "bar.sync" in text or "barrier.sync" in text
        assert "ld.shared" in text
        assert re.search(r"\b(atom|red)\.[\w.]*shared[\w.]*\.xor\.b64", text)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kernel", ["convert", *(f"assemble_converted uint{width}" for width in (8, 16, 32, 64))])
def test_floats_are_computed_as_ieee_754_says(kernel: str, ptx: dict[str, dict[str, str]]) -> None:
    for text in ptx[kernel].values():
        for width in (32, 64):
            assert len(re.findall(rf"\bdiv\.rn\.f{width}\b", text)) == 1
            assert len(re.findall(rf"\badd(?:\.rn)?\.f{width}\b", text)) == 1
        # Nothing is flushed to zero, approximated, or could be fused with an addition.
        assert not re.search(r"\.ftz|\.approx|\.full|\b(fma|mad|mul)\.(rn\.)?f(32|64)\b", text)
        assert {"cvt.rn.f32.f64", "cvt.rn.f32.s64", "cvt.rn.f32.u64", "cvt.rn.f64.s64", "cvt.rn.f64.u64"} <= set(
            re.findall(r"\bcvt\.rn\.f\d\d\.\w+", text)
        )
        assert {"cvt.rzi.s64.f64", "cvt.rzi.u64.f64"} == set(re.findall(r"\bcvt\.rzi\.\w+\.\w+", text))


@pytest.mark.timeout(600)
def test_products_are_not_fused_with_sums(ptx: dict[str, dict[str, str]]) -> None:
    """Without ``.rn``, the assembler may fuse them."""
    for name in FLOATS:
        for text in (text for which, text in each(ptx) if which.split()[0] == name):
            assert not re.search(r"\b(fma|mad)\.\S*f(32|64)\b|\b(mul|add|sub)\.f(32|64)\b", text), name
    assert "mul.rn.f64" in ptx["resample"]["8.0"]


@pytest.mark.timeout(600)
def test_sums_are_shared_by_a_block(ptx: dict[str, dict[str, str]]) -> None:
    for text in ptx["accumulate"].values():
        assert ".shared" in text
        assert "bar.sync" in text or "barrier.sync" in text
        assert re.search(r"\bld\.shared\.[usb]64\b", text)
        assert re.search(r"\bst\.shared\.[usb]64\b", text)


@pytest.mark.timeout(600)
def test_machine_code_is_made_without_a_gpu_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for arguments in ((), ("kept",)):
        lines = run_alone(MACHINE_CODE, *arguments).splitlines()
        assert lines == [f"{ELF} True True"] * 4
