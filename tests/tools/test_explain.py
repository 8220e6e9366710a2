"""``gzarr.explain`` says what the read then does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.range_server import range_server

import gzarr
from gzarr.engines.access.access import Access
from gzarr.engines.access.packed import PackedCalls
from gzarr.engines.access.requests import Requests
from gzarr.engines.cpu import native, small_reads, threads

if TYPE_CHECKING:
    from pathlib import Path

    from support.devices import TestedDevice


DATA = np.arange(64 * 600 * 50, dtype="u2").reshape(64, 600, 50)


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ways that reads take, noted by the functions that are called."""
    found: list[str] = []

    def watch(owner: Any, name: str, way: str) -> None:
        own = getattr(owner, name)

        def watched(*arguments: Any, **named: Any) -> Any:
            result = own(*arguments, **named)
            if result is not False:
                found.append(way)
            return result

        monkeypatch.setattr(owner, name, watched)

    watch(small_reads.SmallReads, "read", "small reads")
    watch(threads, "read", "host threads")
    watch(Requests, "each", "compiled loop, requests")
    watch(Access, "each", "compiled loop, batches")
    watch(native._Job, "share_first_touch", "compiled loop, files")
    watch(PackedCalls, "_unpacked", "packed values")
    return found


def check(array: Any, selection: Any, taken: list[str], way: str) -> gzarr.tools.explain.ReadExplanation:
    explained = gzarr.explain(array, selection)
    assert not taken
    result = array[selection]
    assert explained.result_nbytes == result.nbytes
    assert explained.way == way
    assert taken[-1:] == [way]
    taken.clear()
    return explained


def test_local_files(tmp_path: Path, taken: list[str]) -> None:
    a = gzarr.create_array(tmp_path / "a", data=DATA, chunks=(8, 100, 50), device="cpu")
    few = check(a, np.s_[3, :150, 7], taken, "small reads")
    assert (few.chunks, few.values, few.decoded_nbytes) == (2, 2, 2 * 8 * 100 * 50 * 2)
    assert few.amplification == few.decoded_nbytes / 300
    every = check(a, ..., taken, "compiled loop, files")
    assert (every.chunks, every.values, every.amplification) == (48, 48, 1)
    assert str(every).splitlines()[1:] == ["way: compiled loop, files", f"decoding: {a.decode_path}"]


def test_shards_are_known_after_a_read(tmp_path: Path, taken: list[str]) -> None:
    gzarr.create_array(tmp_path / "a", data=DATA, chunks=(8, 100, 50), shards=(16, 300, 50), device="cpu")
    a = gzarr.open_array(tmp_path / "a", device="cpu")
    assert gzarr.explain(a, np.s_[:20, 0, 0]).way == "compiled loop, files"
    a[:20, 0, 0]
    taken.clear()
    found = check(a, np.s_[:20, 0, 0], taken, "small reads")
    assert (found.chunks, found.values) == (3, 2)


def test_other_stores_and_chains(tmp_path: Path, taken: list[str]) -> None:
    chunks = (8, 100, 50)
    a = gzarr.create_array({}, data=DATA, chunks=chunks, device="cpu")
    check(a, 0, taken, "compiled loop, batches")
    bz2 = {"name": "numcodecs.bz2", "configuration": {"level": 1}}
    b = gzarr.create_array(tmp_path / "b", data=DATA[:8], chunks=chunks, compressors=bz2, device="cpu")
    check(b, 0, taken, "host threads")
    gzarr.create_array(tmp_path / "c", data=DATA, chunks=chunks, device="cpu")
    with range_server(tmp_path) as url:
        check(gzarr.open_array(f"{url}/c", device="cpu"), 0, taken, "compiled loop, requests")
    gzarr.create_array(tmp_path / "d.zip", data=DATA, chunks=chunks, device="cpu")
    d = gzarr.open_array(tmp_path / "d.zip", device="cpu")
    assert gzarr.explain(d).way == "packed values"
    d[...]
    assert "packed values" in taken


def test_fields_empty_results_and_uneven_chunks(tmp_path: Path) -> None:
    rows = np.zeros(10, [("x", "i2"), ("y", "f8")])
    a = gzarr.create_array(tmp_path / "a", data=rows, chunks=4, device="cpu")
    assert gzarr.explain(a, "x").result_nbytes == 20
    assert gzarr.explain(a, "x").way == "compiled loop, files"
    none = gzarr.explain(a, slice(3, 3))
    assert (none.chunks, none.values, none.decoded_nbytes, none.amplification) == (0, 0, 0, 0)
    b = gzarr.create_array(tmp_path / "b", data=np.zeros((60, 7)), chunks=[[10, 20, 30], [3, 4]], device="cpu")
    assert gzarr.explain(b, np.s_[15, 5]).decoded_nbytes == 20 * 4 * 8
    assert gzarr.explain(b).decoded_nbytes == 60 * 7 * 8


def test_on_a_device(device: TestedDevice, tmp_path: Path) -> None:
    gzarr.create_array(tmp_path / "a", data=DATA[:8], chunks=(8, 100, 50))
    a = device.open(tmp_path / "a")
    found = gzarr.explain(a, 0)
    assert found.way == ("device" if device.is_cuda else "small reads")
    assert found.decode_path == a.decode_path


def test_errors(tmp_path: Path) -> None:
    with pytest.raises(gzarr.ArgumentError, match="not ndarray; open it"):
        gzarr.explain(DATA)  # type: ignore[arg-type]
    a = gzarr.create_array(tmp_path / "a", data=DATA[0], chunks=(100, 50))
    with pytest.raises(gzarr.SelectionError, match="out of bounds"):
        gzarr.explain(a, 600)


def test_views(tmp_path: Path, taken: list[str]) -> None:
    gzarr.create_array(tmp_path / "a", data=DATA, chunks=(8, 100, 50), shards=(16, 300, 50), device="cpu")
    a = gzarr.open_array(tmp_path / "a", device="cpu")
    view = a.view[3, ::-1, 10:]
    a[3]
    taken.clear()
    for selection in (np.s_[:150], np.s_[-40:, 3]):
        found = check(view, selection, taken, "small reads")
        of_array = gzarr.explain(a, np.s_[3, slice(450, 600) if selection == np.s_[:150] else slice(0, 40), 10:])
        assert (found.chunks, found.values, found.decoded_nbytes) == (
            of_array.chunks, of_array.values, of_array.decoded_nbytes,
        )  # fmt: skip
    assert gzarr.explain(view).chunks == 6
    assert gzarr.explain(view.view[0], 3).chunks == 1
