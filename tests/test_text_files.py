"""Text files are read and written in an encoding that is given: without one, it is that of the locale."""

from __future__ import annotations

import ast
from pathlib import Path

import gzarr_kernels

import gzarr

#: Functions that take text in a file for that of an encoding, and the place of that among their arguments.
TAKE_ENCODING = {"read_text": 0, "write_text": 1, "TextIOWrapper": 1}


def is_without_encoding(call: ast.Call) -> bool:
    name = getattr(call.func, "attr", getattr(call.func, "id", ""))
    if any(argument.arg == "encoding" for argument in call.keywords):
        return False
    if name in TAKE_ENCODING:
        return len(call.args) <= TAKE_ENCODING[name]
    if name not in ("open", "fdopen"):
        return False
    # Others of these names take no mode, or flags of the system.
    modes = [arg for arg in call.args[-2:] if isinstance(arg, ast.Constant) and str(arg.value) in ("r", "w", "a", "x")]
    return bool(modes) or any(argument.arg == "errors" for argument in call.keywords)


def test_every_text_file_has_an_encoding() -> None:
    found = [
        f"{path}:{node.lineno}"
        for package in (gzarr, gzarr_kernels)
        for path in sorted(Path(str(package.__file__)).parent.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and is_without_encoding(node)
    ]
    assert found == []
