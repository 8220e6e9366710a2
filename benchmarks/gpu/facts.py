"""Facts about a machine with a GPU. Only Python's standard library is imported, because packages may be missing."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROOT = Path(__file__).resolve().parents[2]
#: Location of libnvvm, which compiles our kernels, if neither a wheel nor the environment gives one.
CUDA_HOME = Path("/usr/local/cuda")
_DISTRIBUTIONS = (
    "numpy", "numba", "numba-cuda", "llvmlite", "cupy-cuda13x", "cupy-cuda12x", "nvidia-libnvcomp-cu13",
    "nvidia-libnvcomp-cu12", "kvikio-cu13", "kvikio-cu12", "zarr", "numcodecs", "blosc2", "deflate", "czarr", "torch",
    "jax", "pytest",
)  # fmt: skip


def hardware() -> dict[str, Any]:
    """Return facts about this machine and its GPUs."""
    facts: dict[str, Any] = {
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
    }
    with contextlib.suppress(OSError):
        models = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
        facts["cpu"] = models[0].split(":", 1)[1].strip() if models else platform.machine()
    with contextlib.suppress(OSError, ValueError):
        facts["memory_gib"] = round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1)
    query = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version,compute_cap", "--format=csv,noheader"]
    try:
        facts["gpus"] = subprocess.run(
            query, capture_output=True, text=True, timeout=20, check=True
        ).stdout.splitlines()
    except (OSError, subprocess.SubprocessError) as error:
        facts["gpus"] = []
        facts["no_gpu"] = str(error)
    return facts


def cuda_home(environment: Mapping[str, str], path: Sequence[str], home: Path = CUDA_HOME) -> dict[str, str]:
    """Return additions to the environment with which libnvvm, which compiles the kernels, is found.

    Parameters
    ----------
    environment
        Environment of the stages.
    path
        Where packages are installed, besides :data:`sys.path`.
    home
        Default location of CUDA.
    """
    if environment.get("CUDA_HOME") or environment.get("CUDA_PATH") or not home.is_dir():
        return {}
    if any(any(Path(folder).glob("nvidia/**/libnvvm.so*")) for folder in (*path, *sys.path)):
        return {}
    return {"CUDA_HOME": str(home)}


def versions(path: Sequence[str]) -> dict[str, str]:
    """Return the versions of relevant packages, the first found on ``path``."""
    found: dict[str, str] = {}
    for distribution in importlib.metadata.distributions(path=[*path, *sys.path]):
        name = (distribution.metadata["Name"] or "").lower().replace("_", "-")
        if name in _DISTRIBUTIONS:
            found.setdefault(name, distribution.version)
    return dict(sorted(found.items()))


def commit() -> str:
    command = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    return ""
