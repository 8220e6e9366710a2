"""Files by kvikio, without a GPU: its calls, the meaning of its results, and errors."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
import types
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from gzarr.engines.cuda import kvikio_files
from gzarr.errors import DeviceError


def test_kvikio_has_what_is_called(tmp_path: Path) -> None:
    """Compare with the package itself, if it is installed: without a GPU it opens files, but reads only to a GPU."""
    if importlib.util.find_spec("kvikio") is None:
        with pytest.raises(ModuleNotFoundError, match="kvikio"):
            kvikio_files.obstacle()
        return
    kvikio, driver, defaults = map(importlib.import_module, ("kvikio", "kvikio.cufile_driver", "kvikio.defaults"))
    target = np.zeros(60, np.uint8)
    inspect.signature(kvikio.CuFile).bind("path", "r")
    inspect.signature(kvikio.CuFile.raw_read).bind(None, target, 60, 40)
    names = list(inspect.signature(kvikio.CuFile.raw_read).parameters)
    assert names[:4] == ["self", "buf", "size", "file_offset"]
    for method in (kvikio.CuFile.fileno, kvikio.CuFile.close):
        inspect.signature(method).bind(None)
    inspect.signature(driver.get).bind("is_gds_available")
    inspect.signature(defaults.is_compat_mode_preferred).bind()
    files = kvikio_files.KvikioFiles()
    (tmp_path / "a").write_bytes(bytes(100))
    file = files.open(str(tmp_path / "a"))
    assert file.size() == 100
    with pytest.raises(DeviceError, match=r"kvikio cannot read: .*CUDA"):
        file.read(target, 40)
    file.close()
    file.close()
    with pytest.raises(DeviceError, match=r"kvikio cannot open .*/b: .*No such file"):
        files.open(str(tmp_path / "b"))


@pytest.mark.parametrize(
    ("available", "compatible"),
    [(True, False), (True, True), (False, False), (RuntimeError("no cuFile"), False), (None, False)],
)
def test_kvikio_is_used_where_it_says_so(available: Any, compatible: bool) -> None:
    """None means that kvikio is not installed."""
    modules: dict[str, Any] = dict.fromkeys(("kvikio", "kvikio.cufile_driver", "kvikio.defaults"))
    if available is not None:
        answer = {"side_effect": available} if isinstance(available, Exception) else {"return_value": available}
        modules["kvikio"] = mock.Mock(CuFile=_Library)
        modules["kvikio.cufile_driver"] = mock.Mock(get=mock.Mock(**answer))
        modules["kvikio.defaults"] = mock.Mock(is_compat_mode_preferred=lambda: compatible)
    kvikio_files.if_available.cache_clear()
    try:
        with mock.patch.dict(sys.modules, modules):
            found = kvikio_files.if_available()
        # Asked once: it stays so.
        assert kvikio_files.if_available() is found
    finally:
        kvikio_files.if_available.cache_clear()
    assert (found is not None) == (available is True and not compatible)


class _Library:
    """Make a class ``kvikio.CuFile`` that reads into host memory."""

    def __init__(self, path: str, flags: str) -> None:
        self.file = Path(path).open(flags + "b", buffering=0)  # noqa: SIM115

    def fileno(self) -> int:
        return self.file.fileno()

    def raw_read(self, buf: Any, size: int, file_offset: int = 0, dev_offset: int = 0) -> int:
        if dev_offset or size > buf.nbytes:
            raise ValueError("Size is greater than the size of the buffer")
        return os.preadv(self.file.fileno(), [buf], file_offset)

    def close(self) -> None:
        self.file.close()


def test_files_by_kvikio(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(range(100)))
    module = types.ModuleType("kvikio")
    module.__dict__["CuFile"] = _Library
    with mock.patch.dict(sys.modules, kvikio=module):
        files = kvikio_files.KvikioFiles()
    with pytest.raises(DeviceError, match=r"kvikio cannot open .*/b: "):
        files.open(str(tmp_path / "b"))
    file = files.open(str(tmp_path / "a"))
    target = np.zeros(30, np.uint8)
    assert (file.size(), file.read(target, 60)) == (100, 30)
    assert target.tolist() == list(range(60, 90))
    assert file.read(target, 90) == 10
    file.close()
    with pytest.raises(DeviceError, match="kvikio cannot read: "):
        file.read(target, 0)
