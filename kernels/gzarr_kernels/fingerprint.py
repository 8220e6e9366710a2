"""Names of compiled files, which have a fingerprint of the kernels' sources and a checksum of the content.

What was compiled from other sources, or is damaged, is thus never loaded.
"""

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


def stamped(stem: str, sources: str, content: bytes | None) -> str:
    """Return the name, without its suffix, of a compiled file.

    Parameters
    ----------
    stem
        What it is.
    sources
        Fingerprint of the sources.
    content
        Its content; None for a pattern that matches every checksum.
    """
    checksum = "*" if content is None else f"{zlib.crc32(content):08x}"
    return f"{stem}-{sources}-{checksum}"


def host_fingerprint() -> str:
    """Return the fingerprint of the kernels for the host, and of the arrays that they share with their callers."""
    return fingerprint("*.py", "slots/*.py")


def device_fingerprint() -> str:
    """Return the fingerprint of the kernels for devices; these use modules of the kernels for the host."""
    return fingerprint("**/*.py")
