"""Indexes of many shards in local files, which compiled code reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gzarr
from gzarr.errors import ChunkDecodeError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("what", ["wrong checksum", "truncated"])
def test_a_fault_is_seen_whatever_was_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    # Indexes are read into uninitialised memory, where an earlier index may have left absent chunks.
    elements = np.arange(64, dtype="i4")
    array = gzarr.create_array(tmp_path, data=elements, chunks=2, shards=4, codecs=["bytes"])
    file = tmp_path / "c/9"
    content = file.read_bytes()
    file.write_bytes(content[:20] if what == "truncated" else content[:-1] + bytes([content[-1] ^ 1]))
    empty = np.empty

    def full_of_ones(shape: Any, dtype: Any = np.float64, **options: Any) -> Any:
        made = empty(shape, dtype, **options)
        if not made.dtype.hasobject and made.flags.c_contiguous:
            made.reshape(-1).view(np.uint8)[...] = 255
        return made

    monkeypatch.setattr("gzarr.engines.access.files.np.empty", full_of_ones)
    with pytest.raises(ChunkDecodeError, match="index") as caught:
        array[...]
    assert caught.value.key == "c/9"
    (problem,) = gzarr.verify(tmp_path)
    assert problem.key == "c/9"
