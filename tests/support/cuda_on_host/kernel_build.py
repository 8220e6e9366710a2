"""A separate process in which numba-cuda compiles kernels: to PTX, and to machine code for the host.

The first two arguments are folders, the others are names of modules. For each program of these, a kernel for a size of
words, it writes into the first folder ``PROGRAM.json`` with PTX and LLVM IR, unless it is there. Into the second folder
it writes ``PROGRAM.json`` with what ``kernels.Program`` has, and ``PROGRAM.o``, whose symbol is :func:`symbol`. Several
such processes share the work: each takes the programs for which it creates ``PROGRAM.taken``.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

from support.cuda_on_host import kernel_ir

WORDS: Final = (1, 2, 4, 8)


def symbol(program: str) -> str:
    """Return the symbol of a program."""
    return "coh_program_" + re.sub(r"\W", "_", program)


def compiled(path: Path, kernel: Any, word: int) -> tuple[str, list[str]]:
    """Return the PTX of a kernel and the LLVM IR, of it and of the functions that it calls, that NVVM was given for it.

    A file keeps both.
    """
    if not path.exists():
        new = path.with_suffix(f".{os.getpid()}")
        new.write_text(json.dumps(_compiled(kernel, word)))
        new.replace(path)
    text, ir = json.loads(path.read_text())
    return text, ir


def _compiled(kernel: Any, word: int) -> tuple[str, list[str]]:
    from gzarr_kernels.device import build, compiler
    from gzarr_kernels.device.ptx import CAPABILITY
    from numba.cuda.cudadrv import nvvm

    taken: list[str] = []
    compile_ir = nvvm.compile_ir

    def take(texts: str | list[str], **options: object) -> Any:
        taken.extend([texts] if isinstance(texts, str) else texts)
        return compile_ir(texts, **options)

    nvvm.compile_ir = take
    try:
        return build.lowered(compiler.ptx(kernel, word, CAPABILITY)), taken
    finally:
        nvvm.compile_ir = compile_ir


def write(kept: Path, folder: Path, program: str, kernel: Any, word: int) -> None:
    """Compile a program."""
    text, ir = compiled(kept / f"{program}.json", kernel, word)
    known: dict[str, Any] = {"ptx": text, "parameters": [], "error": ""}
    try:
        made = kernel_ir.on_host(ir, kernel.py_func.__name__, symbol(program))
        (folder / f"{program}.o").write_bytes(made.code)
        known["parameters"] = made.parameters
    except kernel_ir.CannotRunOnHostError as error:
        known["error"] = str(error)
    (folder / f"{program}.json").write_text(json.dumps(known))


def main() -> None:
    from gzarr_kernels.device import target

    kept, folder = map(Path, sys.argv[1:3])
    for module in sys.argv[3:]:
        for value in list(vars(importlib.import_module(module)).values()):
            if isinstance(value, target.Kernel):
                for word in WORDS:
                    program = target.program_name(value, word)
                    with suppress(FileExistsError):
                        (folder / f"{program}.taken").touch(exist_ok=False)
                        write(kept, folder, program, value, word)


if __name__ == "__main__":
    main()
