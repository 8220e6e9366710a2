"""Run a program of this folder: ``python benchmarks/pictures PROGRAM ARGUMENTS``; without a name, list all."""

import importlib
import sys
from pathlib import Path

# In place of this folder, whose modules have absolute names, too.
sys.path[0] = str(Path(__file__).resolve().parents[1])
importlib.import_module("programs").run("pictures")
