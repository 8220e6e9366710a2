"""PTX of the device kernels, made when the wheel was built (``build.py``). No compiler is imported for it.

It is for compute capability 8.0; the driver compiles it for the GPU, and keeps the result. PTX of other sources, or a
damaged file, is not used.

With ``GZARR_JIT=1`` (which GPUs older than 8.0 need), and in an editable installation, numba-cuda compiles instead
(``compiler.py``).
"""

from __future__ import annotations

import io
import zipfile
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Final

from .. import ahead
from ..fingerprint import device_fingerprint, stamped

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Compute capability for which the PTX is.
CAPABILITY: Final = (8, 0)
#: Its version, which drivers of CUDA 12.0 and newer take.
VERSION: Final = "8.0"


def file_name(content: bytes | None = None) -> str:
    """Return the name of the file with the PTX of all kernels; without a content, return a pattern."""
    return f"{stamped('device', device_fingerprint(), content)}.zip"


@cache
def programs() -> Mapping[str, bytes]:
    """Return the PTX of each program, by its name; empty where numba-cuda is to compile them."""
    if ahead.uses_numba():
        return {}
    with suppress(OSError):
        for path in sorted(ahead.folder().glob(file_name())):
            content = path.read_bytes()
            if path.name == file_name(content):
                with zipfile.ZipFile(io.BytesIO(content)) as archive:
                    return {name: archive.read(name) for name in archive.namelist()}
    return {}
