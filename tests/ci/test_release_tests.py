"""The tests that ``ci/release`` runs with a wheel need no package but those that it installs: the group ``quick``."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
#: Modules whose distribution has another name, and those that the distributions of the group need themselves.
OTHERS = {
    "numba": "numba-cuda",
    "llvmlite": "numba-cuda",
    "nvidia": "nvidia-libnvcomp-cu13",
    "fsspec": "dask",
    "packaging": "dask",
    "yaml": "dask",
}


def in_release(name: str) -> set[Path]:
    """Return the files of tests of a list in ``ci/release``."""
    (listed,) = re.findall(rf"(?ms)^{name}=\((.*?)\)$", (ROOT / "ci/release").read_text())
    paths = [ROOT / path for path in listed.split()]
    return {file for path in paths for file in ([path] if path.is_file() else path.rglob("test_*.py"))}


def imports(file: Path) -> set[str]:
    """Return the packages that a file needs as soon as it is imported, those of its helpers among them."""
    found: set[str] = set()
    for statement in ast.parse(file.read_text()).body:
        if isinstance(statement, ast.Import):
            found |= {alias.name for alias in statement.names}
        elif isinstance(statement, ast.ImportFrom) and statement.module:
            found.add(statement.module)
            found |= {f"support.{alias.name}" for alias in statement.names if statement.module == "support"}
    for name in list(found):
        helpers = [ROOT / "tests" / f"{name.replace('.', '/')}.py", file.with_name(f"{name}.py")]
        for helper in (helper for helper in helpers if helper.is_file()):
            found.remove(name)
            found |= imports(helper)
    if re.search(r"\bs3_server\(", file.read_text()) and file.name != "servers.py":
        # The server is a program of its own, which nothing imports.
        found.add("moto")
    if re.search(r"\brange_server\(", file.read_text()) and file.name != "range_server.py":
        # gzarr itself imports it, once a URL is opened.
        found.add("obstore")
    return found


def missing(file: Path) -> set[str]:
    """Return the modules that a file of tests imports and ``ci/release`` does not install."""
    requirements = [text for text in PYPROJECT["dependency-groups"]["quick"] if isinstance(text, str)]
    requirements += PYPROJECT["project"]["dependencies"]
    installed = {re.split(r"[^\w-]", text)[0].lower().replace("_", "-") for text in requirements}
    names = {name.partition(".")[0] for name in imports(file)} - set(sys.stdlib_module_names)
    names -= {"gzarr", "gzarr_kernels", "support", "conftest"}
    return {name for name in names if OTHERS.get(name, name).lower().replace("_", "-") not in installed}


def test_those_that_run_need_nothing_else() -> None:
    run = in_release("tests") - in_release("others")
    assert len(run) > 40
    assert {file.relative_to(ROOT).as_posix(): missing(file) for file in sorted(run) if missing(file)} == {}


def test_only_those_that_need_more_are_left_out() -> None:
    left_out = in_release("others")
    assert left_out <= in_release("tests")
    assert all(missing(file) for file in left_out)
