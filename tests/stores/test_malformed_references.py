"""References of kerchunk that make no sense are errors of gzarr that name the key, however they are met."""

from __future__ import annotations

import gzip
import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gzarr
from gzarr.errors import ArgumentError, ChunkDecodeError, ChunkError, GzarrError, StoreError
from gzarr.stores.base import ByteRange

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ZARRAY = {
    "zarr_format": 2, "shape": [4], "chunks": [2], "dtype": "<i4", "order": "C", "fill_value": 0,
    "filters": None, "compressor": None,
}  # fmt: skip
NOT_INTEGERS = "offset and size must be integers, and not negative"
#: A target, and what the error says; ``FILE`` stands for the path of a file.
MALFORMED: dict[str, tuple[Any, str]] = {
    "half of a pair": ("x\ud83d", "malformed"),
    "infinite offset": (["FILE", math.inf, 8], NOT_INTEGERS),
    "no number": (["FILE", 0, math.nan], NOT_INTEGERS),
    "part of an offset": (["FILE", 1.5, 8], NOT_INTEGERS),
    "part of a size": (["FILE", 0, 8.9], NOT_INTEGERS),
    "text": (["FILE", "0", 8], NOT_INTEGERS),
    "truth": (["FILE", False, 8], NOT_INTEGERS),
    "nothing": (["FILE", None, 8], NOT_INTEGERS),
    "beyond 64 bits": (["FILE", 2**62, 2**63], "no file has"),
    "far beyond": (["FILE", 1e300, 8], "no file has"),
}
ACCESS: dict[str, Callable[[Any], Any]] = {
    "get": lambda store: store.get("v/0"),
    "range": lambda store: store.get_partial_values([("v/0", ByteRange(0, 4))]),
    "last bytes": lambda store: store.get_partial_values([("v/0", ByteRange(-4))]),
    "limit": lambda store: store.get_small_values(["v/0"], 8),
    "sizes": lambda store: list(store.list_sizes("v/")),
    "copy": lambda store: gzarr.copy(store, {}),
    "copy, other chunks": lambda store: gzarr.copy(store, {}, chunks=4),
    "read": lambda store: gzarr.open_array(store, path="v", device="cpu")[...],
}


def opened(folder: Path, reference: Any) -> Any:
    file = folder / "t.bin"
    file.write_bytes(np.arange(4, dtype="<i4").tobytes())
    if isinstance(reference, list):
        reference = [str(file), *reference[1:]]
    refs = {
        ".zgroup": '{"zarr_format": 2}',
        "v/.zarray": json.dumps(ZARRAY),
        "v/0": reference,
        "v/1": [str(file), 8, 8],
    }
    return gzarr.open_store("reference://", storage_options={"fo": {"version": 1, "refs": refs}, "fs": {}})


@pytest.mark.parametrize("access", ACCESS)
@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_references(name: str, access: str, tmp_path: Path) -> None:
    reference, message = MALFORMED[name]
    with pytest.raises(GzarrError, match=message) as error:
        ACCESS[access](opened(tmp_path, reference))
    assert isinstance(error.value, (StoreError, ChunkError))
    assert error.value.key == "v/0"
    assert "'v/0'" in str(error.value)


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_references_are_found_by_verify(name: str, tmp_path: Path) -> None:
    reference, message = MALFORMED[name]
    (problem,) = gzarr.verify(opened(tmp_path, reference))
    assert problem.key == "v/0"
    assert message in problem.reason


def test_whole_numbers_as_floating_point(tmp_path: Path) -> None:
    """JSON does not tell integers from other numbers, and neither do all that write it."""
    store = opened(tmp_path, ["FILE", 4.0, np.float64(8)])
    np.testing.assert_array_equal(gzarr.open_array(store, path="v", device="cpu")[...], [1, 2, 2, 3])
    store = opened(tmp_path, ["FILE", np.int64(4), np.uint8(8)])
    assert store.get("v/0") == np.array([1, 2], "<i4").tobytes()


# A range is no larger than what is asked for, and nothing is read for a size.
@pytest.mark.parametrize("access", sorted(ACCESS.keys() - {"range", "last bytes", "sizes"}))
def test_a_size_that_no_file_has(access: str, tmp_path: Path) -> None:
    store = opened(tmp_path, ["FILE", 0, 2**62])
    with pytest.raises(GzarrError, match="v/0") as error:
        ACCESS[access](store)
    assert isinstance(error.value, (StoreError, ChunkError))
    if access in ("copy", "copy, other chunks", "read"):
        assert isinstance(error.value, ChunkDecodeError)
        assert "MemoryError" not in str(error.value)


@pytest.mark.parametrize("nested", [False, True], ids=["options", "options by protocol"])
@pytest.mark.parametrize("chain", ["reference::", "reference://::", "reference::file://", "reference::simplecache::"])
def test_compressed_references(chain: str, nested: bool, tmp_path: Path) -> None:
    numbers = np.arange(4, dtype="<i4")
    (tmp_path / "raw.bin").write_bytes(numbers.tobytes())
    refs = {"v/.zarray": json.dumps(ZARRAY), **{f"v/{i}": [str(tmp_path / "raw.bin"), 8 * i, 8] for i in range(2)}}
    (tmp_path / "r.json.gz").write_bytes(gzip.compress(json.dumps({"version": 1, "refs": refs}).encode()))
    url = f"{chain}{tmp_path / 'r.json.gz'}"
    given: dict[str, Any] = {"target_options": {"compression": "gzip"}}
    options = {"reference": given} if nested else given
    array = gzarr.open_array(url, path="v", device="cpu", storage_options=options)
    np.testing.assert_array_equal(array[...], numbers)
    with pytest.raises(ArgumentError, match=r"compressed, pass storage_options=\{'target_options': \{'compression'"):
        gzarr.open_array(url, path="v")
