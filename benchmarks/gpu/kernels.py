"""Compile the kernels for ``ci/gpu``, as for a wheel: PTX for GPUs, and libraries for this processor's architecture.

    python benchmarks/gpu kernels FOLDER                 compiles what is not there yet; two or three minutes
    python benchmarks/gpu kernels FOLDER --host OTHER    also copies the libraries to OTHER, without the PTX

Files of other sources are removed: their names say what they were made from.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).resolve().parents[2]


def present(folder: Path) -> tuple[list[Path], list[Path]]:
    """Return the files in a folder that were made from these sources: with PTX, and libraries."""
    from gzarr_kernels import ahead
    from gzarr_kernels.build import own_targets
    from gzarr_kernels.device import ptx

    libraries = [path for target in own_targets() for path in sorted(folder.glob(f"{ahead.file_name(target)}.*"))]
    return sorted(folder.glob(ptx.file_name())), libraries


def make(folder: Path) -> None:
    """Compile what a folder lacks, and remove what was made from other sources.

    Raises
    ------
    RuntimeError
        If kernels cannot be compiled.
    """
    from gzarr_kernels.build import own_targets

    folder.mkdir(parents=True, exist_ok=True)
    device, libraries = present(folder)
    if not device:
        _compile("gzarr_kernels.device.build", folder)
    if len(libraries) < len(own_targets()):
        _compile("gzarr_kernels.build", folder)
    device, libraries = present(folder)
    if not device:
        raise RuntimeError(f"{folder} has no PTX of these sources")
    for path in folder.iterdir():
        if path not in (*device, *libraries):
            path.unlink()


def _compile(module: str, folder: Path) -> None:
    environment = {
        **os.environ,
        "NUMBA_ENABLE_CUDASIM": "0",
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "kernels"), os.environ.get("PYTHONPATH", "")]),
    }
    done = subprocess.run(
        [sys.executable, "-m", module, str(folder)], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{module}: {(done.stderr or done.stdout).strip()[-2000:]}")


def main(argv: Sequence[str] | None = None) -> int:
    """Compile, and say what there is; return 1 if kernels cannot be compiled."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--brought", action="store_true", help="compile nothing: there must be PTX of these sources")
    parser.add_argument("--host", type=Path, metavar="OTHER", help="folder for the libraries without the PTX")
    arguments = parser.parse_args(argv)
    try:
        if arguments.brought and not present(arguments.folder)[0]:
            raise RuntimeError(f"{arguments.folder} has no PTX of these sources: it is of another checkout")
        if not arguments.brought:
            make(arguments.folder)
    except RuntimeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    device, libraries = present(arguments.folder)
    if arguments.host is not None:
        arguments.host.mkdir(parents=True, exist_ok=True)
        for path in libraries:
            shutil.copy(path, arguments.host)
    print(f"kernels: {', '.join(path.name for path in (*device, *libraries))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
