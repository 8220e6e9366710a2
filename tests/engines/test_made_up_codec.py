"""A native codec needs a row, compiled functions, and its own description: nothing else names it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from gzarr_kernels import libraries, operations
from numcodecs import lz4
from support import made_up_codec

import gzarr
from gzarr import plugins

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.devices import TestedDevice

CODECS = [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": made_up_codec.NAME}, {"name": "crc32c"}]


@pytest.fixture(autouse=True)
def _made_up(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(operations.OPERATIONS, made_up_codec.NAME, made_up_codec.ROW)
    plugin = plugins.Plugin(made_up_codec.MadeUpCodec, "tests 1")
    monkeypatch.setitem(plugins._LOADED, ("gzarr.codecs", made_up_codec.NAME), plugin)
    caches = (libraries.available, libraries.encoders)
    for cache in caches:
        cache.cache_clear()
    yield
    for cache in caches:
        cache.cache_clear()


def decoded(value: bytes, nbytes: int) -> bytes:
    """Return the content of a stored chunk, by numcodecs."""
    assert value[:2] == made_up_codec.LETTERS
    return bytes(lz4.decompress(nbytes.to_bytes(4, "little") + value[2:-4]))


@pytest.mark.parametrize("kind", ["memory", "files", "shards"])
def test_it_is_written_and_read(device: TestedDevice, tmp_path: Path, kind: str) -> None:
    values = (np.arange(64 * 48) // 5 % 251).astype("<u2").reshape(64, 48)
    store: Any = {} if kind == "memory" else tmp_path / "a"
    array = gzarr.create_array(
        store,
        shape=values.shape,
        dtype="u2",
        chunks=(16, 16),
        codecs=CODECS,
        device=device.name,
        **({"shards": (32, 48)} if kind == "shards" else {}),
    )
    array[...] = device.array(values)
    if kind == "memory":
        assert decoded(store["c/1/2"], 512) == values[16:32, 32:48].tobytes()
    array = gzarr.open_array(store, device=device.name)
    assert "cpu-threads" not in array.decode_path
    for options in ({"decode": "cuda"}, {"decode": "cpu"}, {"decode": "cuda", "verify": "cpu"}):
        np.testing.assert_array_equal(device.read(array, **options), values)


def test_what_is_damaged_is_said(tmp_path: Path) -> None:
    array = gzarr.create_array(tmp_path, shape=64, dtype="u2", chunks=16, codecs=CODECS[:2], device="cpu")
    array[...] = np.arange(64, dtype="u2")
    path = tmp_path / "c" / "2"
    path.write_bytes(b"X" + path.read_bytes()[1:])
    with pytest.raises(gzarr.ChunkDecodeError, match="made_up") as caught:
        gzarr.open_array(tmp_path, device="cpu")[...]
    assert caught.value.chunk == (2,)
