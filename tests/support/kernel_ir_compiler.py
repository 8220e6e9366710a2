"""A process beside the tests in which numba-cuda compiles kernels: the tests' own has Numba's simulator instead.

Takes a line of JSON for each kernel (its module, its name, the type of each parameter as
``gzarr_kernels.device.target`` has it), and answers with one: the modules of LLVM IR that go to NVVM, or the error.
"""

from __future__ import annotations

import importlib
import json
import sys
import traceback


def modules(module: str, name: str, parameters: list[str]) -> list[str]:
    """Return the IR of a kernel and of what it calls, as numba-cuda hands it to NVVM."""
    from gzarr_kernels.device import compiler, target
    from numba.cuda.cudadrv import nvvm

    taken: list[str] = []

    def take(texts: str | list[str], **options: object) -> bytes:
        taken.extend([texts] if isinstance(texts, str) else texts)
        return b""

    kernel = getattr(importlib.import_module(module), name)
    words = [word for word in (8, 4, 2, 1) if target.parameters(kernel.py_func, word) == parameters]
    assert words, f"{name} takes {target.parameters(kernel.py_func)}, not {parameters}"
    compile_ir = nvvm.compile_ir
    nvvm.compile_ir = take
    try:
        compiler.ptx(kernel, words[0], (9, 0))
    finally:
        nvvm.compile_ir = compile_ir
    return taken


def main() -> None:
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        try:
            answer = {"modules": modules(*json.loads(line))}
        except Exception:
            answer = {"error": traceback.format_exc()}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
