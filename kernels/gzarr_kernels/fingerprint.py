"""Fingerprints of the kernels' sources: what was compiled from other sources is never loaded."""

from __future__ import annotations

import zlib
from functools import cache
from pathlib import Path


@cache
def fingerprint(*patterns: str) -> str:
    """Return eight hexadecimal digits for the contents of this package's files that match any of some patterns."""
    folder = Path(__file__).parent
    value = 0
    for path in sorted({path for pattern in patterns for path in folder.glob(pattern)}):
        value = zlib.crc32(path.read_bytes(), value)
    return f"{value:08x}"


def host_fingerprint() -> str:
    """Return the fingerprint of the kernels for the host, and of the arrays that they share with their callers."""
    return fingerprint("*.py", "slots/*.py")


def device_fingerprint() -> str:
    """Return the fingerprint of the kernels for devices; these use modules of the kernels for the host."""
    return fingerprint("**/*.py")
