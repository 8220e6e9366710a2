"""Files that kvikio reads straight into device memory, by GPUDirect Storage.

What kvikio offers decides how it is used here (read in its sources, 26.08 and 26.10):

- ``CuFile.raw_read`` is one ``cuFileRead`` in the calling thread, without the GIL. ``CuFile.pread`` hands the same over
  to a pool of kvikio's that has one thread unless it is told otherwise, and telling it is for the whole process:
  setting ``num_threads``, for the time of a ``with`` block too, replaces the threads of the pool, which two callers
  must not do at once. So reads are made by this library's threads, and no setting of kvikio is touched.
- Both wait for the default stream before they read, as a precaution that cannot be switched off from Python.
- ``CuFile(path)`` opens the file twice and registers it, which takes about a millisecond; it needs two descriptors.
- A file that cannot be registered (its file system does not take part) is read through host memory by kvikio itself:
  the data is right, and nothing says so.
- Errors of the system come as ``RuntimeError`` without a number, so nobody can tell from them that a file is missing.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
from typing import Any

from ...errors import DeviceError


def obstacle() -> str:
    """Return why kvikio cannot read past host memory here, or ``""`` if it can.

    Needs a GPU; asks cuFile, which starts then.

    Raises
    ------
    Exception
        Of any kind, if kvikio is not installed or not usable, or cuFile does not start.
    """
    cufile_driver = importlib.import_module("kvikio.cufile_driver")
    defaults = importlib.import_module("kvikio.defaults")
    if not cufile_driver.get("is_gds_available"):
        return "cuFile has no access to it"
    return "kvikio is in compatibility mode (KVIKIO_COMPAT_MODE)" if defaults.is_compat_mode_preferred() else ""


@functools.cache
def is_installed() -> bool:
    """Return whether there is a kvikio to ask; needs no GPU. Looks once a process."""
    return importlib.util.find_spec("kvikio") is not None


@functools.cache
def if_available() -> KvikioFiles | None:
    """Return what opens files, or None if they would not be read past host memory; looks once a process.

    Who wants files to go through host memory all the same sets ``KVIKIO_COMPAT_MODE=ON``.
    """
    try:
        return None if obstacle() else KvikioFiles()
    except Exception:  # "gzarr doctor" tells which
        return None


class KvikioFiles:
    """Opens files; see :class:`gzarr.engines.cuda.device_protocol.DirectFiles`."""

    def __init__(self) -> None:
        self._open: Any = importlib.import_module("kvikio").CuFile

    def open(self, path: str) -> KvikioFile:
        """Open and register a file."""
        try:
            return KvikioFile(self._open(path, "r"))
        except Exception as error:  # all that C++ may raise
            raise DeviceError(f"kvikio cannot open {path}: {error}") from error


class KvikioFile:
    """An open file; see :class:`gzarr.engines.cuda.device_protocol.DirectFile`."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def size(self) -> int:
        """Return its bytes."""
        return os.fstat(self._file.fileno()).st_size

    def read(self, target: Any, offset: int) -> int:
        """Read into a CuPy array."""
        try:
            return int(self._file.raw_read(target, target.nbytes, offset))
        except Exception as error:
            raise DeviceError(f"kvikio cannot read: {error}") from error

    def close(self) -> None:
        """Deregister and close."""
        self._file.close()
