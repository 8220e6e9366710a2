"""Names of compiled files, which have a fingerprint of the kernels' sources and a checksum of the content.

What was compiled from other sources, or is damaged, is thus never loaded. Where the sources are no files, as in
programs that PyInstaller has packed, their fingerprints are what the build of the wheel has stated.
"""

from __future__ import annotations

import json
import zlib
from functools import cache
from pathlib import Path
from typing import Final

#: Folder of what was compiled, in this package, and the file there with the fingerprints of the sources.
FOLDER: Final = "compiled_kernels"
STATED: Final = "fingerprints.json"
#: The sources of the kernels for the host, and of the arrays that they share with their callers; and those of the
#: kernels for devices, which use modules of the others.
_SOURCES: Final = {"host": ("*.py", "slots/*.py"), "device": ("**/*.py",)}


@cache
def fingerprint(kernels: str) -> str:
    """Return eight hexadecimal digits for the contents of the sources of some kernels: ``"host"`` or ``"device"``."""
    folder = Path(__file__).parent
    paths = sorted({path for pattern in _SOURCES[kernels] for path in folder.glob(pattern)})
    if not paths:
        return _stated(folder / FOLDER / STATED, kernels)
    value = 0
    for path in paths:
        value = zlib.crc32(path.read_bytes(), value)
    return f"{value:08x}"


def _stated(path: Path, kernels: str) -> str:
    try:
        return str(json.loads(path.read_text(encoding="utf-8"))[kernels])
    except (OSError, ValueError, KeyError):
        return "00000000"


def state(folder: Path) -> None:
    """Write the fingerprints of the sources into a folder of compiled kernels."""
    stated = {kernels: fingerprint(kernels) for kernels in _SOURCES}
    (folder / STATED).write_text(json.dumps(stated), encoding="utf-8")


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
    """Return the fingerprint of the kernels for the host."""
    return fingerprint("host")


def device_fingerprint() -> str:
    """Return the fingerprint of the kernels for devices."""
    return fingerprint("device")
