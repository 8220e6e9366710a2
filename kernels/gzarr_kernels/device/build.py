"""Compilation of the device kernels into PTX that comes with a wheel (``ptx.py``), by numba-cuda, without a GPU.

``python -m gzarr_kernels.device.build FOLDER`` writes one file with the PTX of every kernel, and of every word size of
those that take words.
"""

from __future__ import annotations

import importlib
import io
import os
import pkgutil
import re
import sys
import zipfile
from pathlib import Path

from .ptx import CAPABILITY, VERSION, file_name


def compiled() -> dict[str, str]:
    """Return the PTX of each program, by its name (:func:`gzarr_kernels.device.target.program_name`)."""
    from . import compiler, target

    found = {}
    for module in sorted(info.name for info in pkgutil.iter_modules([str(Path(__file__).parent)])):
        for value in vars(importlib.import_module(f"{__package__}.{module}")).values():
            if isinstance(value, target.Kernel):
                for word in (1, 2, 4, 8):
                    name = target.program_name(value, word)
                    if name not in found:
                        found[name] = lowered(compiler.ptx(value, word, CAPABILITY))
    return found


def lowered(text: str) -> str:
    """Return PTX with the version that older drivers take; kernels use nothing that is newer (a test links them).

    Variables that no kernel uses are left out: which of them Numba declares depends on what it has compiled before.
    """
    text = re.sub(r"(?m)^\.common \.global \S+ \d+ \.u64 _ZN08NumbaEnv\w+;\n", "", text)
    changed, count = re.subn(r"(?m)^\.version \d+\.\d+$", f".version {VERSION}", text)
    if count != 1:
        raise RuntimeError("numba-cuda made PTX without a version")
    return changed


def main() -> None:
    """Write the file."""
    os.environ["GZARR_JIT"] = "1"
    programs = compiled()
    if not programs:
        raise RuntimeError("there are no kernels in this package")
    into = io.BytesIO()
    with zipfile.ZipFile(into, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in sorted(programs.items()):
            # The time of a build is not part of it.
            archive.writestr(zipfile.ZipInfo(name), text.encode(), zipfile.ZIP_DEFLATED)
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / file_name(into.getvalue())
    path.write_bytes(into.getvalue())
    print(path)


if __name__ == "__main__":
    main()
