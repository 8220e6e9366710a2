"""Build hook: compiles the kernels into the wheel (``gzarr_kernels.build``) and tags the wheel for its platform.

``GZARR_BUILD_KERNELS`` chooses what: ``0`` nothing, which makes a wheel for every platform whose kernels Numba compiles
on first use; ``x86-64`` or ``aarch64`` an architecture; without it, that of this machine. If the kernels cannot be
compiled, the build says so and makes the wheel for every platform, unless an architecture was asked for.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_MACHINES = {"x86-64": "x86_64", "aarch64": "aarch64"}
_MACHINES_OF_MACOS = {"x86-64": "x86_64", "aarch64": "arm64"}


class KernelsHook(BuildHookInterface[Any]):
    """Hook of the wheel target."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the kernels before the wheel is packed."""
        chosen = os.environ.get("GZARR_BUILD_KERNELS", "")
        if version == "editable" or chosen == "0":
            return
        if chosen not in ("", *_MACHINES):
            raise SystemExit(f"GZARR_BUILD_KERNELS={chosen!r}: choose 0, x86-64, aarch64, or leave it unset")
        self._folder = tempfile.TemporaryDirectory()
        self.app.display_info("gzarr: compiling its kernels for this wheel, which takes a minute or two …")
        kernels = Path(self.root) / "kernels"
        command = [sys.executable, "-m", "gzarr_kernels.build", self._folder.name, *([chosen] if chosen else [])]
        paths = [str(kernels), *filter(None, [os.environ.get("PYTHONPATH")])]
        done = subprocess.run(
            command,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
            cwd=self._folder.name,
            capture_output=True,
            text=True,
            check=False,
        )
        made = sorted(Path(self._folder.name).iterdir()) if not done.returncode else []
        if not made:
            reason = (done.stderr.strip().splitlines() or ["there is no compiled form for this platform"])[-1]
            if chosen:
                raise SystemExit(f"gzarr: its kernels could not be compiled for {chosen}: {done.stderr or reason}")
            self.app.display_warning(f"gzarr: its kernels were not compiled ({reason}); Numba will do so on first use")
            return
        for path in made:
            build_data["force_include"][str(path)] = f"gzarr_kernels/compiled_kernels/{path.name}"
        architecture = chosen or ("aarch64" if "aarch64" in made[0].name else "x86-64")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{_platform(architecture)}"
        self.app.display_info(f"gzarr: {len(made)} libraries of kernels for {architecture}")

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the compiled kernels after the wheel is packed."""
        if hasattr(self, "_folder"):
            self._folder.cleanup()


def _platform(architecture: str) -> str:
    if sys.platform == "linux":
        # The libraries take unversioned symbols from the process, and nothing else.
        return f"manylinux_2_17_{_MACHINES[architecture]}"
    if sys.platform == "darwin":
        return f"macosx_11_0_{_MACHINES_OF_MACOS[architecture]}"
    return sysconfig.get_platform().replace("-", "_").replace(".", "_")
