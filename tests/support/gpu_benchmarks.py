"""The modules of ``benchmarks/gpu``, and how a test runs them: in its own process, or in others."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from support import devices

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.watched_device import WatchedDevice

ROOT = Path(__file__).parents[2]
#: Modules beside the folder, and those in it.
SHARED = ("fields", "report", "rivals", "workloads")
MODULES = (
    "batch", "comparison", "facts", "imaging", "kernels", "limits", "loader", "questions", "read", "report", "rivals",
    "run", "samples", "sanitizer", "saturation", "stages", "steps", "targets", "tests", "transfers", "wheels",
    "workloads", "write",
)  # fmt: skip


@contextmanager
def modules() -> Iterator[SimpleNamespace]:
    """Import the modules of the benchmarks; their directory is on the path for a while."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        for name in MODULES:
            importlib.import_module(f"gpu.{name}")
        yield SimpleNamespace(**{name: importlib.import_module(name) for name in ("gpu", *SHARED)})
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))


@contextmanager
def on_host() -> Iterator[WatchedDevice]:
    """Make CUDA in host memory the device, and current."""
    with devices.on_host() as device, device:
        yield device


class Collected:
    """What the steps of a measurement tell, without a process of their own."""

    def __init__(self, b: SimpleNamespace, failed: Any = None, synchronize: Any = lambda: None) -> None:
        self.events: list[dict[str, Any]] = []
        self.steps = b.gpu.steps.Steps(
            lambda event: self.events.append(json.loads(json.dumps(event))), failed, synchronize
        )
        self._b = b

    @property
    def found(self) -> Any:
        found = self._b.gpu.steps.Found()
        for event in self.events:
            if "item" in event:
                found.figures[event["item"]] = event["found"]
            elif "failure" in event:
                found.failed[event["failure"]] = {"": event["why"]}
            elif "left out" in event:
                found.left_out.append(event["left out"])
        return found

    def measured(self) -> dict[str, Any]:
        return {m.name: m for m in self._b.gpu.read.measured(self.found)}


def run_program(program: str, folder: Path, *arguments: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """Run a program, in whose processes CUDA is in host memory; return it, and its document."""
    (first := folder / "first").mkdir()
    (first / "sitecustomize.py").write_text("import support.cuda_on_host.first\n")
    file = folder / "found.json"
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "gpu"), program, *arguments, "--json", str(file)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [first, ROOT / "tests", *sys.path]))},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done, json.loads(file.read_text())
