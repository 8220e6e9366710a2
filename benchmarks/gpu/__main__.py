"""Run a program of this folder: ``python benchmarks/gpu PROGRAM ARGUMENTS``; without a name, list all."""

import importlib
import sys
from pathlib import Path

# Instead of this folder: ``report`` is the module beside it.
sys.path[0] = str(Path(__file__).resolve().parents[1])
importlib.import_module("programs").run("gpu")
