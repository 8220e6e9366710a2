"""The sizes of what references of kerchunk point to, without reading it."""

from __future__ import annotations

from typing import Any, ClassVar

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

import gzarr
from gzarr.errors import StoreError


class Counting(MemoryFileSystem):
    """Files in memory; notes what is read."""

    cachable = False
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    # One whose size is not told.
    untold = "/untold"

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.read: list[str] = []

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> bytes:
        self.read.append(self._strip_protocol(path))
        found: bytes = super().cat_file(path, start, end, **options)
        return found

    def size(self, path: str) -> int | None:
        path = self._strip_protocol(path)
        if path == self.untold:
            return None
        found: int = super().size(path)
        return found


def referring(fs: Counting, references: dict[str, Any]) -> Any:
    return gzarr.FsspecStore(fsspec.filesystem("reference", fo=references, fs={"memory": fs}, skip_instance_cache=True))


def test_sizes() -> None:
    fs = Counting()
    for name in ("file", "untold"):
        fs.pipe_file(f"/{name}", bytes(100))
    references = {
        "inline": "01234",
        "encoded": "base64:AAAA",
        "part": ["memory://file", 10, 7],
        "absent part": ["memory://none", 10, 8],
        "whole": ["memory://file"],
        "whole of unknown size": ["memory://untold"],
    }
    store = referring(fs, references)
    assert dict(store.list_sizes("")) == {
        "inline": 5, "encoded": 3, "part": 7, "absent part": 8, "whole": 100, "whole of unknown size": 100,
    }  # fmt: skip
    assert fs.read == ["/untold"]


def test_a_file_that_is_absent() -> None:
    store = referring(Counting(), {"a": ["memory://none"]})
    with pytest.raises(StoreError, match=r"cannot read .*the target of 'a'"):
        list(store.list_sizes(""))
