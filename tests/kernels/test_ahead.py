"""Kernels that were compiled with the wheel: how they are chosen, built and loaded."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from gzarr_kernels import ahead, build, compiled, fingerprint, libraries

#: Flags of processors, as Linux states them.
V2 = "cx16 lahf_lm popcnt pni ssse3 sse4_1 sse4_2"
V3 = f"{V2} avx avx2 bmi1 bmi2 f16c fma abm movbe xsave"
V4 = f"{V3} avx512f avx512bw avx512cd avx512dq avx512vl"


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("fpu sse sse2", []),
        (V2, ["x86-64-v2"]),
        (V3, ["x86-64-v3", "x86-64-v2"]),
        (V4, ["x86-64-v4", "x86-64-v3", "x86-64-v2"]),
        # Levels are cumulative.
        (V4.replace("bmi2 ", ""), ["x86-64-v2"]),
    ],
)
def test_levels_of_x86(flags: str, expected: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(ahead, "_flags", lambda: set(flags.split()))
    assert ahead.targets() == expected


@pytest.mark.parametrize(("machine", "expected"), [("aarch64", ["aarch64"]), ("arm64", ["aarch64"]), ("riscv64", [])])
def test_other_processors(machine: str, expected: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    assert ahead.targets() == expected


def test_every_entry_is_a_function_of_its_module() -> None:
    """The sources are read, as importing all of them compiles for two minutes."""
    for module, name in compiled.ENTRIES:
        spec = importlib.util.find_spec(f"gzarr_kernels.{module}")
        assert spec is not None
        assert spec.origin is not None
        functions = {
            node.name: [ast.unparse(decorator) for decorator in node.decorator_list]
            for node in ast.parse(Path(spec.origin).read_text()).body
            if isinstance(node, ast.FunctionDef)
        }
        assert any(decorator.startswith(("entry(", "by_address(")) for decorator in functions[name]), (module, name)


def test_a_library_of_other_sources_or_a_damaged_one_is_not_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "library.c"
    source.write_text('const char gzarr_fingerprint[] = "00000000"; long long gzarr_addresses[1000];')
    monkeypatch.setenv("GZARR_KERNELS", str(tmp_path))
    monkeypatch.setenv("GZARR_JIT", "0")
    for target in ahead.targets():
        made = tmp_path / "made.so"
        subprocess.run(["cc", "-shared", "-o", str(made), str(source)], check=True)
        path = tmp_path / f"{ahead.file_name(target, made.read_bytes())}.so"
        path.write_bytes(made.read_bytes())
        with pytest.raises(OSError, match="was made from other sources"):
            ahead.Library(path, target)
        damaged = tmp_path / f"{ahead.file_name(target, b'all of it')}.o"
        damaged.write_bytes(b"part of it")
        with pytest.raises(OSError, match="is damaged"):
            ahead.Library(damaged, target)
    ahead.library.cache_clear()
    try:
        assert ahead.library() is None
    finally:
        monkeypatch.undo()
        ahead.library.cache_clear()


def test_sources_that_are_no_files_have_the_fingerprints_that_the_build_stated(tmp_path: Path) -> None:
    """As in programs that PyInstaller has packed."""
    package = tmp_path / "gzarr_kernels"
    shutil.copytree(
        Path(ahead.__file__).parent, package, ignore=shutil.ignore_patterns(fingerprint.FOLDER, "__pycache__")
    )
    (package / fingerprint.FOLDER).mkdir()
    fingerprint.state(package / fingerprint.FOLDER)
    subprocess.run([sys.executable, "-m", "compileall", "-q", "-b", str(package)], check=True)
    for path in package.rglob("*.py"):
        path.unlink()
    code = "from gzarr_kernels import fingerprint as f; print(f.__file__, f.host_fingerprint(), f.device_fingerprint())"
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": str(tmp_path)}, stdout=subprocess.PIPE, text=True,
        check=True,
    )  # fmt: skip
    own = fingerprint.host_fingerprint(), fingerprint.device_fingerprint()
    assert done.stdout.split() == [str(package / "fingerprint.pyc"), *own]
    assert "00000000" not in own


#: Reads and writes an array with every native operation, without Numba.
USE = """
import json, sys
import numpy as np
import gzarr
from gzarr_kernels import ahead
values = (np.arange(6000) % 250).astype("<u2").reshape(60, 100)
found = {}
for number, codecs in enumerate(json.loads(sys.argv[2])):
    path, chunks = f"{sys.argv[1]}/{number}", (20, 50)
    a = gzarr.create_array(path, shape=(60, 100), dtype="<u2", chunks=chunks, codecs=codecs, device="cpu")
    a[...] = values
    a[3:30, ::7] = 9
    expected = values.copy()
    expected[3:30, ::7] = 9
    a = gzarr.open_array(path, device="cpu")
    assert a.decode_path.startswith("cpu-native"), a.decode_path
    assert (a[...] == expected).all()
    assert (a[::-3, 5:70:2] == expected[::-3, 5:70:2]).all()
loaded = sorted(set(sys.modules) & {"numba", "llvmlite", "numba.cuda", "gzarr_kernels.jit"})
print(json.dumps([ahead.library() and ahead.library().target, loaded]))
"""


def named(name: str, **configuration: Any) -> dict[str, Any]:
    return {"name": name, "configuration": configuration}


LITTLE = named("bytes", endian="little")
CHAINS = [
    [LITTLE],
    [named("bytes", endian="big"), named("gzip", level=1)],
    [named("transpose", order=[1, 0]), LITTLE, named("zstd", level=1, checksum=True), {"name": "crc32c"}],
    [LITTLE, named("numcodecs.zlib", level=1)],
    [LITTLE, named("numcodecs.lz4", acceleration=1)],
    *(
        [LITTLE, named("blosc", cname=cname, clevel=5, shuffle=shuffle, typesize=2, blocksize=0)]
        for cname, shuffle in (
            ("lz4", "shuffle"),
            ("zstd", "bitshuffle"),
            ("blosclz", "noshuffle"),
            ("zlib", "shuffle"),
        )
    ),
]


def use(folder: Path, kernels: Path, *, jit: bool = False) -> list[Any]:
    """Read and write in a new process; return the target of its library, and what it has imported of Numba."""
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", USE, str(folder), json.dumps(CHAINS)],
        env=os.environ | {"GZARR_KERNELS": str(kernels), "GZARR_JIT": "1" if jit else "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stderr.splitlines() if not jit or "compiling its kernels" not in line] == []
    found: list[Any] = json.loads(done.stdout)
    return found


def test_no_kernel_takes_numbers_of_the_machine_that_compiles() -> None:
    """Libraries for aarch64 are compiled on x86-64, where flags of files have other values."""
    compiled_modules = 0
    for path in Path(build.__file__).parent.rglob("*.py"):
        imports = [
            node
            for node in ast.walk(ast.parse(path.read_text("utf-8")))
            if isinstance(node, ast.Import | ast.ImportFrom)
        ]
        if not any(isinstance(node, ast.ImportFrom) and node.module == "jit" and node.level for node in imports):
            continue
        compiled_modules += 1
        names = {alias.name for node in imports if isinstance(node, ast.Import) for alias in node.names}
        assert not names & {"ctypes", "errno", "fcntl", "mmap", "os", "platform", "socket", "sys"}, path
    assert compiled_modules > 20


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return two folders: the libraries of the first target and of the best one here, and the first without a linker.

    A library takes about a minute. The first ones are those that these tests use anyway, if there are some: in ci/test,
    those of a wheel.
    """
    targets = build.own_targets()
    if not targets:
        pytest.skip("there are no libraries for this platform")
    folders = tmp_path_factory.mktemp("shared"), tmp_path_factory.mktemp("object")
    command = [sys.executable, "-m", "gzarr_kernels.build", "--only"]
    for target in {targets[0], ahead.targets()[0]}:
        made = list(ahead.folder().glob(f"{ahead.file_name(target)}.so"))
        if made:
            shutil.copy(made[0].resolve(), folders[0] / made[0].name)
        else:
            subprocess.run([*command, target, str(folders[0])], env=os.environ | {"PYTHONHASHSEED": "1"}, check=True)
    other = os.environ | {"PYTHONHASHSEED": "2", "CC": "no-such-compiler"}
    subprocess.run([*command, targets[0], str(folders[1])], env=other, check=True)
    return folders


def only(target: str, built: Path, folder: Path) -> Path:
    """Return a new folder with the library of one target."""
    folder.mkdir()
    (path,) = built.glob(f"{ahead.file_name(target)}.so")
    shutil.copy(path, folder)
    return folder


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_builds_are_equal(built: tuple[Path, Path]) -> None:
    (shared,) = built[0].glob(f"{ahead.file_name(build.own_targets()[0])}.so")
    (unlinked,) = built[1].iterdir()
    assert unlinked.suffix == ".o"
    assert build._shared("cc", unlinked.read_bytes()) == shared.read_bytes()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_reads_and_writes_import_no_compiler(built: tuple[Path, Path], tmp_path: Path) -> None:
    others = ["object"]
    for path in built[0].iterdir():
        target = next(one for one in ahead.targets() if path.match(f"{ahead.file_name(one)}.so"))
        folder = only(target, built[0], tmp_path / f"library-{target}")
        assert use(tmp_path / target, folder) == [target, []]
        others.append(target)
    assert others[1:]
    # llvmlite loads an object file.
    assert use(tmp_path / "object", built[1]) == [build.own_targets()[0], ["llvmlite"]]
    assert use(tmp_path / "numba", built[0], jit=True)[0] is None
    paths = [path for path in (tmp_path / "numba").rglob("*") if path.is_file()]
    assert len(paths) > 6 * len(CHAINS)
    for path in paths:
        for other in others:
            same = tmp_path / other / path.relative_to(tmp_path / "numba")
            assert same.read_bytes() == path.read_bytes(), path


def test_a_wrong_architecture_is_refused(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "gzarr_kernels.build", str(tmp_path), "z80"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "invalid choice: 'z80'" in done.stderr


def test_every_c_function_has_an_address() -> None:
    """Where one is missing, one that always fails takes its place."""
    assert set(libraries.addresses()) == set(libraries.names())
    assert all(libraries.addresses().values())
