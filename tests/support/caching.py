"""What tests of a cache before a store share."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gzarr

from . import servers

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from .fault_proxy import FaultProxy

    Values = np.ndarray[Any, Any]

BUCKET = "cached"
SECRET_NAME = "unmistakable-name"
CHUNKED: dict[str, Any] = {"chunks": (30, 25)}
SHARDED: dict[str, Any] = {"chunks": (10, 10), "shards": (60, 50)}
NO_FORK = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


def options(proxy: FaultProxy) -> dict[str, Any]:
    return servers.s3_options(proxy.url, **servers.PATIENT)


def elements() -> Values:
    return np.random.default_rng(5).integers(0, 100, (120, 100), dtype="i4")


def files(directory: Path) -> list[Path]:
    return sorted(path for path in (directory / "gzarr-cache-1").rglob("*") if path.is_file())


_before = [0.0]


def count_from_here() -> None:
    """Forget the failures of caches until now."""
    _before[0] = gzarr.stats()["cache_failures"]


def failures() -> int:
    """Return the failures of caches in this test."""
    return int(gzarr.stats()["cache_failures"] - _before[0])


def damage(path: Path, numbers: random.Random, others: list[Path]) -> None:
    """Change a bit, cut a file off, append to it, or exchange it with another."""
    content = bytearray(path.read_bytes())
    how = numbers.randrange(4)
    if how == 0 and content:
        content[numbers.randrange(len(content))] ^= 1 << numbers.randrange(8)
    elif how == 1:
        del content[numbers.randrange(len(content) + 1) :]
    elif how == 2:
        content += numbers.randbytes(numbers.randrange(100))
    else:
        content = bytearray(numbers.choice(others).read_bytes())
    path.write_bytes(content)
