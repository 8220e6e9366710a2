"""Files that the references of an input point to are not overwritten while blocks are still to be read from them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

import gzarr
from gzarr.errors import ArgumentError

if TYPE_CHECKING:
    from pathlib import Path

DATA = np.arange(1, 9, dtype="i2")


def test_files_of_an_output(tmp_path: Path) -> None:
    path = tmp_path / "a.zarr"
    out = gzarr.create_array(path, data=DATA, chunks=(4,), compressors=None, zarr_format=2, device="cpu")
    # The two chunks the other way round.
    found = {".zarray": (path / ".zarray").read_text()} | {f"{i}": [str(path / f"{1 - i}"), 0, 8] for i in range(2)}
    (tmp_path / "refs.json").write_text(json.dumps(found))
    source = gzarr.open_array(f"reference::{tmp_path / 'refs.json'}", device="cpu")
    other = gzarr.create_array(tmp_path / "b.zarr", shape=8, chunks=4, dtype="i2", device="cpu")
    for inputs, outputs in (((source,), out), ((other, source.view[...]), (other, out))):
        with pytest.raises(ArgumentError, match=r"map_blocks would overwrite .*a\.zarr.*write to another array"):
            gzarr.map_blocks(lambda *blocks: blocks[::-1] if len(blocks) > 1 else blocks[0], *inputs, out=outputs)
        np.testing.assert_array_equal(out[...], DATA)
    gzarr.map_blocks(lambda x: x, source, out=other)
    np.testing.assert_array_equal(other[...], np.roll(DATA, 4))
