"""What a release promises: its version, its extras, and what is loaded when it starts."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from importlib.metadata import requires
from pathlib import Path

import pytest

import gzarr
from gzarr import plugins
from gzarr.installing import COMMANDS

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]


def loaded(code: str) -> set[str]:
    """Run code in a new process; return the modules that it has loaded, beyond those of the interpreter."""
    before = "import sys; before = set(sys.modules)\n"
    after = "\nprint('loaded', *(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", before + code + after], capture_output=True, text=True, check=True)
    _, *names = done.stdout.splitlines()[-1].split()
    return set(names)


def test_import_loads_nothing_else() -> None:
    assert loaded("import gzarr; gzarr.__version__") <= {"gzarr", "__future__"}


def test_the_help_loads_neither_numpy_nor_any_other_package() -> None:
    modules = loaded("from gzarr.cli.main import main\ntry:\n main(['--help'])\nexcept SystemExit: pass")
    of_others = {name.partition(".")[0] for name in modules} - set(sys.stdlib_module_names) - {"gzarr"}
    assert not of_others
    assert not {"asyncio", "importlib.metadata", "inspect", "logging"} & modules
    assert {name for name in modules if name.startswith("gzarr.")} == {
        "gzarr.cli", "gzarr.cli.locations", "gzarr.cli.main", "gzarr.cli.output", "gzarr.cli.streams",
        "gzarr.errors",
        "gzarr.progress",
        "gzarr.reasons",
    }  # fmt: skip


def test_names_load_no_compiler() -> None:
    modules = loaded("import gzarr; gzarr.open, gzarr.Group, gzarr.create_array")
    assert not {"numba", "llvmlite", "zarr", "rich", "asyncio", "dask", "torch", "xarray"} & modules


def test_version() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", gzarr.__version__)
    citation = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {gzarr.__version__}\n" in citation
    first, *_ = re.findall(
        r"^## (\d+\.\d+\.\d+) - (?:unreleased|\d{4}-\d\d-\d\d)$", (ROOT / "CHANGELOG.md").read_text(), re.M
    )
    assert first == gzarr.__version__


def test_everything_names_extras_that_exist() -> None:
    texts = [
        *(ROOT / "gzarr").rglob("*.py"),
        *(ROOT / "docs").rglob("*.md"),
        ROOT / "README.md",
        ROOT / "pyproject.toml",
    ]
    named = {
        name
        for text in texts
        for names in re.findall(r"gzarr\[([a-z0-9_,-]+)\]", text.read_text())
        for name in names.split(",")
    }
    assert {"cuda12", "cuda13", "dask", "fsspec", "object", "torch", "xarray"} <= named
    assert named <= set(EXTRAS)
    # pip 23.2, which comes with Python 3.11, ignores extras whose names are not normalized.
    assert all(name == re.sub(r"[-_.]+", "-", name).lower() for name in EXTRAS)


def test_all_has_every_extra_but_those_that_depend_on_the_machine() -> None:
    ((everything,),) = (EXTRAS["all"],)
    named = set(re.fullmatch(r"gzarr\[(.*)\]", everything)[1].split(","))  # type: ignore[index]
    assert named == set(EXTRAS) - {"all", "cuda12", "cuda13", "curl", "torch"}


def test_the_base_installation_needs_no_package_of_an_extra() -> None:
    names = {re.match(r"[\w-]+", text)[0] for text in PROJECT["dependencies"]}  # type: ignore[index]
    assert names == {"blosc2", "deflate", "google-crc32c", "numba", "numcodecs", "numpy", "rich"}
    # More than half of all: only where kernels are compiled on first use.
    (numba,) = (text for text in PROJECT["dependencies"] if text.startswith("numba>"))
    assert numba.partition(";")[2].strip() == "sys_platform != 'linux' or platform_machine != 'x86_64'"
    assert EXTRAS["jit"] == [numba.partition(";")[0]]
    # What is installed here is that of this checkout.
    assert len(requires("gzarr") or ()) >= len(names)


def _texts(tree: ast.AST) -> list[str]:
    """Return the texts in a module, without docstrings."""
    docs = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    texts = (n for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str))
    return [node.value for node in texts if id(node) not in docs]


def _keys(tree: ast.AST) -> set[str]:
    """Return the commands that a module takes by name; a name that is put together becomes a pattern."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == "COMMANDS":
            key = node.slice
            if isinstance(key, ast.Constant):
                found.add(re.escape(key.value))
            elif isinstance(key, ast.JoinedStr):
                parts = [re.escape(p.value) if isinstance(p, ast.Constant) else ".*" for p in key.values]
                found.add("".join(parts))
    return found


def test_messages_take_their_commands_from_one_place() -> None:
    keys = set()
    for path in (ROOT / "gzarr").rglob("*.py"):
        tree = ast.parse(path.read_text())
        keys |= _keys(tree)
        if path.name != "installing.py":
            assert [text for text in _texts(tree) if re.search(r"\bpip3? install\b", text)] == [], path
    assert {"object", "imagecodecs", "decoders", "kvikio\\-.*"} <= keys
    for key in keys:
        assert any(re.fullmatch(key, name) for name in COMMANDS), key
    # Names of libraries, and "cuda12" and "cuda13", are passed on by variables.
    variable = {*plugins._LIBRARIES, "cuda12"}
    assert variable <= set(COMMANDS)
    assert [name for name in COMMANDS if name not in variable and not any(re.fullmatch(k, name) for k in keys)] == []


def test_pages_name_commands_that_are_run() -> None:
    """``ci/newcomer`` runs those of messages, the tests of pages look up those of blocks."""
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "gzarr").rglob("*.py")]:
        for command in re.findall(r"`(pip install [^`]*)`", page.read_text()):
            # Those of a checkout, and what stands for an extra.
            if not re.search(r" \.(\[| |$)|NAME", command):
                assert command in COMMANDS.values(), f"{page}: {command}"


@pytest.mark.parametrize("library", ["dask", "torch", "xarray"])
def test_an_absent_library_is_named_with_its_extra(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    for name in [name for name in sys.modules if name.startswith((f"gzarr.integrations.{library}", f"{library}."))]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(gzarr.ArgumentError, match=rf"not installed: pip install 'gzarr\[{library}\]'"):
        plugins.integration(library)


def test_all_names_can_be_imported_without_dask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dask", None)
    for name in [name for name in sys.modules if name.startswith(("gzarr.integrations.dask", "dask."))]:
        monkeypatch.delitem(sys.modules, name)
    names: dict[str, object] = {}
    exec("from gzarr import *", names)
    assert set(gzarr.__all__) <= set(names)
    for name in ("to_dask", "from_dask", "store"):
        assert getattr(gzarr, name).__name__ == name
        with pytest.raises(gzarr.ArgumentError, match=r"pip install 'gzarr\[dask\]'"):
            getattr(gzarr, name)(None)


def test_a_data_type_that_needs_a_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(gzarr.ArgumentError, match=r"'bfloat16' needs .* pip install 'gzarr\[ml-dtypes\]'"):
        gzarr.create_array({}, shape=3, dtype="bfloat16", device="cpu")
