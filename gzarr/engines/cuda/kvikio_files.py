"""Files that kvikio reads straight into device memory, with GPUDirect Storage.

Properties of kvikio that decide how it is used here (from its sources, 26.08 and 26.10):

- ``CuFile.raw_read`` is one ``cuFileRead`` in the calling thread, without the GIL. ``CuFile.pread`` does the same in
  kvikio's thread pool, which has one thread by default. Setting ``num_threads``, even in a ``with`` block, replaces the
  pool's threads for the whole process, and two callers must not do that at once. So gzarr's own threads read, and no
  setting of kvikio is changed.
- Both wait for the default stream before they read, a precaution that cannot be switched off from Python.
- ``CuFile(path)`` opens the file twice and registers it, which takes about a millisecond and two descriptors.
- kvikio silently reads a file through host memory if it cannot be registered, because its file system does not support
  that. The data is right.
- System errors are raised as ``RuntimeError`` without an error number, so a missing file cannot be recognised.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
from typing import Any

from ...errors import DeviceError
from ...reasons import pass_on


def obstacle() -> str:
    """Return why kvikio cannot read past host memory here, or ``""`` if it can.

    Needs a GPU, and starts cuFile.

    Raises
    ------
    Exception
        Of any type, if kvikio is not installed or not usable, or cuFile does not start.
    """
    cufile_driver = importlib.import_module("kvikio.cufile_driver")
    defaults = importlib.import_module("kvikio.defaults")
    if not cufile_driver.get("is_gds_available"):
        return "cuFile has no access to it"
    return "kvikio is in compatibility mode (KVIKIO_COMPAT_MODE)" if defaults.is_compat_mode_preferred() else ""


@functools.cache
def is_installed() -> bool:
    """Return whether kvikio is installed; needs no GPU. Looks once per process."""
    return importlib.util.find_spec("kvikio") is not None


@functools.cache
def if_available() -> KvikioFiles | None:
    """Return kvikio's files, or None if it would read them through host memory; looks once per process.

    ``KVIKIO_COMPAT_MODE=ON`` makes reads go through host memory in any case.
    """
    try:
        return None if obstacle() else KvikioFiles()
    except Exception as error:  # "gzarr doctor" shows it
        pass_on(error)
        return None


class KvikioFiles:
    """Opens files; see :class:`gzarr.engines.cuda.device_protocol.DirectFiles`."""

    def __init__(self) -> None:
        self._open: Any = importlib.import_module("kvikio").CuFile

    def open(self, path: str) -> KvikioFile:
        """Open and register a file."""
        try:
            return KvikioFile(self._open(path, "r"))
        except Exception as error:  # anything that C++ may raise
            raise DeviceError(f"kvikio cannot open {path}: {error}") from error


class KvikioFile:
    """An open file; see :class:`gzarr.engines.cuda.device_protocol.DirectFile`."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def size(self) -> int:
        """Return the file's size in bytes."""
        return os.fstat(self._file.fileno()).st_size

    def read(self, target: Any, offset: int) -> int:
        """Read into a CuPy array."""
        try:
            return int(self._file.raw_read(target, target.nbytes, offset))
        except Exception as error:
            raise DeviceError(f"kvikio cannot read: {error}") from error

    def close(self) -> None:
        """Deregister and close the file."""
        self._file.close()
