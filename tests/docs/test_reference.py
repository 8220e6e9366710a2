"""The reference (``docs/reference``) has every public name, and docstrings explain every parameter."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import gzarr
from gzarr import errors
from gzarr.codecs import registry
from gzarr.stores import base

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

PAGES = Path(__file__).parents[2] / "docs" / "reference"

#: Modules whose names in ``__all__`` are public, with the library that they need.
MODULES = {
    "gzarr": None,
    "gzarr.blocks": None,
    "gzarr.codecs.codec": None,
    "gzarr.errors": None,
    "gzarr.integrations.dask": "dask",
    "gzarr.integrations.jax": "jax",
    "gzarr.integrations.torch": "torch",
    "gzarr.integrations.xarray": "xarray",
    "gzarr.integrations.zarr": "zarr",
    "gzarr.loader": None,
    "gzarr.loader.torch": "torch",
    "gzarr.ome": None,
    "gzarr.sparse": None,
    "gzarr.stores": None,
}

#: Methods of the store interface. Stores need not say again what these do, and take.
INTERFACE = {
    name for protocol in vars(base).values() if inspect.isclass(protocol) for name in vars(protocol) if name[0] != "_"
}


def _identifiers() -> list[str]:
    """Return what the pages have mkdocstrings document."""
    return [name for page in PAGES.glob("*.md") for name in re.findall(r"(?m)^::: ([\w.]+)$", page.read_text())]


def _object(path: str) -> Any:
    """Return what a path means. A name of a package may also be that of a module in it, which it then hides."""
    names = path.split(".")
    found: Any = importlib.import_module(names[0])
    for i, name in enumerate(names[1:], 2):
        if not hasattr(found, name):
            importlib.import_module(".".join(names[:i]))
        found = getattr(found, name)
    return found


def _module(name: str) -> ModuleType:
    needs = MODULES[name]
    if needs is not None:
        pytest.importorskip(needs, reason=f"{needs} is not installed")
    return importlib.import_module(name)


def _members(cls: type) -> Iterator[tuple[str, Any]]:
    """Yield the public methods and properties of a class that are gzarr's."""
    for name in dir(cls):
        if name.startswith("_"):
            continue
        member = inspect.getattr_static(cls, name)
        member = getattr(member, "__func__", member)
        if getattr(getattr(member, "fget", member), "__module__", "").startswith("gzarr"):
            yield name, member


def _section(doc: str, *titles: str) -> set[str]:
    """Return the names that sections of a docstring describe."""
    found: set[str] = set()
    for title in titles:
        for text in re.findall(rf"(?ms)^{title}\n-+\n(.*?)(?=^\w[^\n]*\n--|\Z)", doc):
            heads = re.findall(r"(?m)^(\S.*)$", text)
            found.update(name.strip().lstrip("*") for head in heads for name in head.partition(" : ")[0].split(","))
    return found


def _unexplained(function: Any, doc: str, *, in_text: bool) -> list[str]:
    """Return the parameters of a function, or a class, that its docstring does not explain."""
    try:
        names = [name for name in inspect.signature(function).parameters if name not in ("self", "cls")]
    except ValueError:
        return []
    explained = _section(doc, "Parameters", "Attributes")
    if in_text:
        explained.update(re.findall(r"``\*{0,2}(\w+)``", doc))
    return [name for name in names if name not in explained]


def _complaints(path: str, thing: Any) -> Iterator[str]:
    """Yield what the documentation of a function or a class lacks."""
    doc = inspect.getdoc(thing) or ""
    if not (inspect.isclass(thing) or inspect.isroutine(thing)):
        return
    if not doc:
        yield f"{path} has no docstring"
    # Protocols and abstract classes are not made; of an exception, a message suffices.
    simple = inspect.isclass(thing) and (
        inspect.isabstract(thing) or getattr(thing, "_is_protocol", False) or "__init__" not in vars(thing)
    )
    if not simple:
        yield from (f"{path}: parameter {name}" for name in _unexplained(thing, doc, in_text=False))
    if not inspect.isclass(thing):
        return
    for name, member in _members(thing):
        function = getattr(member, "fget", member)
        doc = inspect.getdoc(getattr(thing, name)) or inspect.getdoc(function) or ""
        known = name in INTERFACE and not getattr(thing, "_is_protocol", False)
        if not doc and not known:
            yield f"{path}.{name} has no docstring"
        # What a method of a class above it takes is said there.
        above = sum(name in vars(cls) for cls in thing.__mro__) > 1
        if doc and inspect.isfunction(member) and not (known or above):
            yield from (f"{path}.{name}: parameter {p}" for p in _unexplained(member, doc, in_text=True))


@pytest.mark.parametrize("module", MODULES)
def test_public_names_are_in_the_reference(module: str) -> None:
    found = _module(module)
    documented = {id(_object(path)) for path in _identifiers() if MODULES.get(path.rpartition(".")[0], "") is None}
    documented |= {id(_object(path)) for path in _identifiers() if path.rpartition(".")[0] == module}
    names = [name for name in found.__all__ if name != "__version__"]
    assert [name for name in names if id(getattr(found, name)) not in documented] == []


def test_errors_are_explained() -> None:
    page = (PAGES.parent / "errors.md").read_text()
    rows = set(re.findall(r"(?m)^\| `(\w+)` \|", page))
    # Only the classes that others are derived from are not raised themselves.
    assert set(errors.__all__) - rows == {"GzarrError", "ChunkError"}


def test_codecs_are_in_the_reference() -> None:
    registered = {f"gzarr.codecs.{module}.{name}" for module, name in registry._CODECS.values()}
    assert registered - set(_identifiers()) == set()


@pytest.mark.parametrize("module", MODULES)
def test_docstrings_explain_parameters(module: str) -> None:
    found = _module(module)
    complaints = [
        complaint for name in found.__all__ for complaint in _complaints(f"{module}.{name}", getattr(found, name))
    ]
    assert complaints == []


def test_what_the_reference_names_exists() -> None:
    names = _identifiers()
    assert len(set(names)) == len(names)
    for name in names:
        if MODULES.get(name.rpartition(".")[0]) is None:
            assert inspect.getdoc(_object(name)), name


def test_submodules_are_public() -> None:
    assert {f"gzarr.{name}" for name in gzarr._SUBMODULES} <= {*MODULES, "gzarr.codecs", "gzarr.integrations"}  # type: ignore[attr-defined]


def test_tables_have_headers() -> None:
    """A row of empty cells above a table is drawn as one."""
    root = PAGES.parents[1]
    empty = [
        f"{path.relative_to(root)}:{number}"
        for path in [root / "README.md", *sorted((root / "docs").rglob("*.md"))]
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if re.fullmatch(r"\|( *\|)+", line)
    ]
    assert not empty
