"""Hooks of the build: what a package index shows (``ci/project.py``), and the kernels of the wheel.

``KernelsHook`` compiles kernels into the wheel (``gzarr_kernels.build``, ``gzarr_kernels.device.build``) and tags it.
``GZARR_BUILD_KERNELS`` chooses what: ``0`` nothing, which makes a wheel for every platform whose kernels are compiled
on first use; ``x86-64`` or ``aarch64`` an architecture; without it, that of this machine. If kernels cannot be
compiled, the build says so and goes on without them, unless an architecture was asked for.
"""

from __future__ import annotations

import os
import platform
import runpy
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

_MACHINES = {"x86-64": "x86_64", "aarch64": "aarch64"}
_MACHINES_OF_MACOS = {"x86-64": "x86_64", "aarch64": "arm64"}


class ProjectHook(MetadataHookInterface):
    """Hook of the metadata: the long description and the project's URLs."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        """Fill in what ``pyproject.toml`` leaves to the build."""
        root = Path(self.root)
        code = runpy.run_path(str(root / "ci" / "project.py"))
        project = code["Project"].of(root)
        text = project.description((root / "README.md").read_text("utf-8"))
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        metadata["urls"] = project.urls()


class KernelsHook(BuildHookInterface[Any]):
    """Hook of the wheel target."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """Return the compilers: Numba, and where there are GPUs, numba-cuda with its toolkit."""
        if _chosen() == "0":
            return []
        # Its toolkit has wheels for these.
        cuda = sys.platform == "linux" and _is_glibc() and platform.machine() in ("x86_64", "aarch64")
        return ["numba>=0.62", *(["numba-cuda[cu13]>=0.30"] if cuda else [])]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the kernels before the wheel is packed."""
        chosen = _chosen()
        if version == "editable" or chosen == "0":
            return
        if chosen not in ("", *_MACHINES):
            raise SystemExit(f"GZARR_BUILD_KERNELS={chosen!r}: choose 0, x86-64, aarch64, or leave it unset")
        self._folder = tempfile.TemporaryDirectory()
        self.app.display_info("gzarr: compiling its kernels for this wheel, which takes two or three minutes …")
        # Side by side: on a machine with few processors, neither keeps all of them busy to its end.
        with ThreadPoolExecutor() as pool:
            device = pool.submit(
                self._compile, "gzarr_kernels.device.build", must=bool(chosen) and sys.platform == "linux"
            )
            host = self._compile("gzarr_kernels.build", *([chosen] if chosen else []), must=bool(chosen))
            device.result()
        if any(Path(self._folder.name).iterdir()):
            fingerprint = runpy.run_path(str(Path(self.root) / "kernels" / "gzarr_kernels" / "fingerprint.py"))
            fingerprint["state"](Path(self._folder.name))
        for path in sorted(Path(self._folder.name).iterdir()):
            build_data["force_include"][str(path)] = f"gzarr_kernels/compiled_kernels/{path.name}"
        if host:
            build_data["pure_python"] = False
            architecture = chosen or ("aarch64" if "aarch64" in host[0].name else "x86-64")
            build_data["tag"] = f"py3-none-{_platform(architecture)}"

    def _compile(self, module: str, *arguments: str, must: bool) -> list[Path]:
        """Run a module that compiles kernels into a folder; return the files that it has made."""
        with tempfile.TemporaryDirectory() as folder:
            paths = [str(Path(self.root) / "kernels"), *filter(None, [os.environ.get("PYTHONPATH")])]
            done = subprocess.run(
                [sys.executable, "-m", module, folder, *arguments],
                env=os.environ | _toolkit() | {"PYTHONPATH": os.pathsep.join(paths), "NUMBA_ENABLE_CUDASIM": "0"},
                cwd=folder,
                capture_output=True,
                text=True,
                check=False,
            )
            made = [Path(shutil.move(path, self._folder.name)) for path in sorted(Path(folder).iterdir())]
        if done.returncode or not made:
            reason = (done.stderr.strip().splitlines() or ["nothing is compiled for this platform"])[-1]
            if must:
                raise SystemExit(f"gzarr: {module} failed: {done.stderr or reason}")
            self.app.display_warning(f"gzarr: {module} failed ({reason}); these kernels are compiled on first use")
            return []
        self.app.display_info(f"gzarr: {module}: {', '.join(path.name for path in made)}")
        return made

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the compiled kernels after the wheel is packed."""
        if hasattr(self, "_folder"):
            self._folder.cleanup()


def _is_glibc() -> bool:
    return platform.libc_ver()[0] == "glibc"


def _toolkit() -> dict[str, str]:
    """Return variables that lead to NVIDIA's wheels: numba-cuda does not look into an isolated build's folder."""
    for folder in sys.path:
        home = Path(folder) / "nvidia" / "cu13"
        if home.is_dir():
            libraries = [str(home / "lib"), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
            return {"CUDA_HOME": str(home), "LD_LIBRARY_PATH": os.pathsep.join(libraries)}
    return {}


def _chosen() -> str:
    return os.environ.get("GZARR_BUILD_KERNELS", "")


def _platform(architecture: str) -> str:
    if sys.platform == "linux" and (_is_glibc() or _chosen()):
        # The libraries take unversioned symbols from the process, and nothing else.
        return f"manylinux_2_17_{_MACHINES[architecture]}"
    if sys.platform == "darwin":
        return f"macosx_11_0_{_MACHINES_OF_MACOS[architecture]}"
    return sysconfig.get_platform().replace("-", "_").replace(".", "_")
