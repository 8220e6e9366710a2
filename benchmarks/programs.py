"""Programs in folders: ``python benchmarks/FOLDER PROGRAM ARGUMENTS``, whatever the current directory is.

Each folder is a package whose ``__main__`` calls :func:`run`. Its modules import each other, and those of
``benchmarks``, by absolute names. Only Python's standard library is imported, because packages may be missing.
"""

from __future__ import annotations

import ast
import runpy
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
_IS_PROGRAM = '\nif __name__ == "__main__":\n'


def command(folder: str, program: str, *options: str) -> list[str]:
    """Return the words that start a program of a folder by this interpreter, which may have options."""
    return [sys.executable, *options, str(HERE / folder), program]


def run(folder: str) -> None:
    """Run the program that the command line names, as its main module."""
    texts = {path.stem: path.read_text(encoding="utf-8") for path in sorted((HERE / folder).glob("*.py"))}
    programs = {name: text for name, text in texts.items() if _IS_PROGRAM in text}
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in programs:
        print(f"usage: python benchmarks/{folder} PROGRAM ARGUMENTS\n", file=sys.stderr)
        for one, text in programs.items():
            about = (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]
            print(f"{one:{max(map(len, programs))}}  {about}", file=sys.stderr)
        raise SystemExit(0 if name in ("-h", "--help") else 2)
    del sys.argv[1]
    runpy.run_module(f"{folder}.{name}", run_name="__main__", alter_sys=True)
