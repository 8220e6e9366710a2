"""Errors come out of another process as they were: with their text, their attributes, their notes and their numbers."""

from __future__ import annotations

import concurrent.futures
import errno
import inspect
import multiprocessing
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gzarr
from gzarr import errors

if TYPE_CHECKING:
    from pathlib import Path

OF_CHUNKS: dict[str, Any] = {"node": "/a", "chunk": (1, 2), "key": "a/c/1/2"}
KINDS = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, errors.GzarrError)]


@pytest.mark.parametrize("kind", KINDS)
def test_all_that_an_error_says(kind: type[gzarr.GzarrError]) -> None:
    more: dict[str, Any] = OF_CHUNKS if issubclass(kind, errors.ChunkError) else {}
    if issubclass(kind, errors.MetadataError):
        more = {"json_path": "$.shape", "key": "zarr.json"}
    error = kind("it failed", **more)
    if isinstance(error, OSError):
        error.errno = errno.ENOSPC
    error.add_note("(in block 3)")
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        again = pickle.loads(pickle.dumps(error, protocol))
        assert type(again) is kind
        assert (str(again), vars(again), again.args) == (str(error), vars(error), error.args)
        assert getattr(again, "errno", None) == getattr(error, "errno", None)


def _same(block: Any) -> Any:
    return block


def test_a_process_says_which_block(tmp_path: Path) -> None:
    source = gzarr.create_array(tmp_path / "a", data=np.arange(64, dtype="u2").reshape(8, 8), chunks=(4, 4))
    (tmp_path / "a/c/1/1").write_bytes(b"damaged")
    with (
        concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as client,
        pytest.raises(gzarr.ChunkDecodeError, match="c/1/1") as caught,
    ):
        gzarr.map_blocks(_same, source, out=tmp_path / "out", block=4, client=client)
    assert "block (1, 1) of (2, 2)" in caught.value.__notes__[-1]
