"""Imported first by a process, this makes the simulated device its CUDA device: for processes that a test starts."""

from __future__ import annotations

import os

os.environ["NUMBA_ENABLE_CUDASIM"] = "1"

from support import devices

_used = devices.use("simulated")
_used.__enter__()
