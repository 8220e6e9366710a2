"""Versions of the format end at ``gzarr/metadata/``: outside it, no module asks for the version of a node.

Other modules may hold a version, show it, pass it on, and ask its :class:`gzarr.metadata.format.Format`. Integrations
translate for other libraries, which take and give different things for each version, and each version of OME-Zarr
prescribes one of Zarr.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import gzarr
from gzarr.metadata.formats import FORMATS

PACKAGE = Path(gzarr.__file__).parent
#: Packages that know versions: a version of OME-Zarr is one of Zarr as well.
KNOWING = ("metadata", "integrations", "ome")
# Variables and attributes that hold a version, or what stands for one. (An attribute "format" is that of LZMA.)
NAMES = frozenset(("zarr_format", "children_format", "source_format", "target_format", "V3_DRAFT", "FORMAT"))


def is_format(node: ast.AST) -> bool:
    """Return whether an expression is a version of the format, or contains one that is compared with it."""
    match node:
        case ast.Name(id="format"):
            return True
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name.lstrip("_") in NAMES
        case ast.Subscript(value=value, slice=index):
            return is_constant(index) or (isinstance(value, ast.Name) and value.id == "FORMATS")
        case ast.Call(func=ast.Attribute(attr="get" | "pop"), args=[key, *_]):
            return is_constant(key)
        case ast.Call(func=ast.Name(id="type" | "str" | "repr"), args=[value]):
            return is_format(value)
        case ast.Tuple(elts=items) | ast.List(elts=items) | ast.Set(elts=items):
            return any(map(is_format, items))
        case ast.Constant(value="3-draft-2022"):
            return True
        case ast.NamedExpr(target=target, value=value):
            return is_format(target) or is_format(value)
    return False


def is_constant(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value == "zarr_format"


def is_left_open(node: ast.Compare) -> bool:
    """Return whether the comparison only asks whether a version was given."""
    return all(isinstance(op, ast.Is | ast.IsNot) for op in node.ops) and all(
        isinstance(value, ast.Constant) and value.value is None for value in node.comparators
    )


def comparisons(source: str) -> list[int]:
    """Return the lines on which a version of the format is compared, matched, or looked up in a table."""
    lines = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Compare(left=left, comparators=others):
                found = any(map(is_format, (left, *others))) and not is_left_open(node)
            case ast.Match(subject=subject):
                found = is_format(subject)
            case ast.Subscript(value=table, slice=index):
                found = is_format(index) and not (isinstance(table, ast.Name) and table.id == "FORMATS")
            case ast.Call(func=ast.Attribute(value=table, attr="get" | "pop" | "setdefault" | "index"), args=[key, *_]):
                found = is_format(key)
            case ast.Call(func=ast.Attribute(attr="__eq__" | "__ne__" | "__contains__"), args=args):
                found = any(map(is_format, args))
            case ast.Call(func=ast.Name(id="isinstance"), args=[value, *_]):
                found = is_format(value)
            case _:
                found = False
        if found:
            lines.append(node.lineno)
    return lines


def test_no_module_outside_metadata_compares_versions() -> None:
    modules = [path for path in PACKAGE.rglob("*.py") if path.relative_to(PACKAGE).parts[0] not in KNOWING]
    assert len(modules) > 100
    found = [f"{path.relative_to(PACKAGE)}:{line}" for path in modules for line in comparisons(path.read_text("utf-8"))]
    assert not found, "ask gzarr.metadata.formats.FORMATS[zarr_format] instead: " + ", ".join(found)


# They name documents on purpose: a self-test has documents of its own, tensorstore has a driver for each kind,
# kerchunk's references in Parquet are always of one kind, and so are Icechunk's stores and OME-Zarr files, which are
# ordered by that name. No node may have the name of a document.
NAMING = frozenset(
    (
        "cli/selftest.py",
        "cli/bench.py",
        "stores/fsspec_references.py",
        "stores/keys.py",
        "stores/ozx.py",
        "stores/zarr_store.py",
    )
)


def document_names(source: str) -> list[int]:
    """Return the lines on which the name of a document is a string of its own, not part of a text."""
    names = {name for format in FORMATS.values() for name in format.document_names if "." in name}
    return [n.lineno for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Constant) and n.value in names]


def test_no_module_outside_metadata_names_documents() -> None:
    naming = {
        path.relative_to(PACKAGE).as_posix(): lines
        for path in PACKAGE.rglob("*.py")
        if path.relative_to(PACKAGE).parts[0] not in KNOWING and (lines := document_names(path.read_text("utf-8")))
    }
    assert naming.keys() == NAMING, f"ask the Format instead: {naming}"


@pytest.mark.parametrize(
    "source",
    [
        "metadata.zarr_format == 3",
        "2 != zarr_format",
        "zarr_format in (None, 1, 2)",
        "a.zarr_format not in (2, 3)",
        "a.zarr_format is V3",
        "x in (zarr_format, 4)",
        "document['zarr_format'] == 3",
        "document.get('zarr_format') > 2",
        "name == '3-draft-2022'",
        "names[zarr_format]",
        "names.get(metadata.zarr_format)",
        "FORMATS[zarr_format] is FORMATS[other]",
        "isinstance(format, V3)",
        "(zarr_format, attributes) == (2, {})",
        "match zarr_format:\n    case 2:\n        pass",
    ],
)
def test_a_comparison_is_found(source: str) -> None:
    assert comparisons(source)


@pytest.mark.parametrize(
    "source",
    [
        "zarr_format is None",
        "FORMATS[zarr_format].features.groups",
        "FORMATS[zarr_format].shares_hierarchy(FORMATS[metadata.zarr_format])",
        "zarr_format or DEFAULT_FORMAT",
        "open(path, zarr_format=array.zarr_format)",
        "f'Zarr {array.zarr_format}'",
        "arguments.get('zarr_format', DEFAULT_FORMAT)",
        "key == format.consolidated_key(path)",
    ],
)
def test_showing_and_handing_on_is_no_comparison(source: str) -> None:
    assert not comparisons(source)
