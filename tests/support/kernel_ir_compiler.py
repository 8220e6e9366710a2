"""A separate process in which numba-cuda compiles kernels: the tests' own process has Numba's simulator.

For each kernel it reads a line of JSON (module, name, and type of each parameter as in
``gzarr_kernels.device.target``), and writes one: the modules of LLVM IR for NVVM, or the error.
"""

from __future__ import annotations

import importlib
import json
import sys
import traceback


def modules(module: str, name: str, parameters: list[str]) -> list[str]:
    """Return the IR of a kernel and of the functions that it calls, as numba-cuda passes it to NVVM."""
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
