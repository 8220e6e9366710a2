"""Outputs of ``map_blocks`` whose data type is that of the first block's results, and what of them can be chosen."""

from __future__ import annotations

import threading
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gzarr
from gzarr.blocks import Output
from gzarr.errors import ArgumentError, OutputError

if TYPE_CHECKING:
    from pathlib import Path

    from gzarr.blocks import Block

SHAPE, CHUNKS = (16, 24), (8, 8)


def elements() -> np.ndarray[Any, Any]:
    return np.random.default_rng(1).integers(1, 1000, SHAPE).astype("u2")


def stored(store: Any = None, **options: Any) -> gzarr.Array:
    options = {"chunks": CHUNKS, **options}
    return gzarr.create_array({} if store is None else store, data=elements(), device="cpu", **options)


def transformed(x: Any) -> Any:
    return np.fft.fft(x, axis=0)


def two(x: Any) -> Any:
    return x > 500, x / 2, int(x.sum())


def fail(x: Any) -> Any:
    raise ZeroDivisionError("no")


def uneven(x: Any, block_info: Block) -> Any:
    return x if block_info.number != 4 else x.astype("i8")


# -- the data type of the results


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_a_created_output_has_the_data_type_of_the_results(tmp_path: Path, overlap: bool, zarr_format: Any) -> None:
    source = stored(zarr_format=zarr_format)
    out = gzarr.map_blocks(transformed, source, out=tmp_path / "a", block=(16, 8), overlap=overlap)
    assert (out.dtype, out.chunks, out.zarr_format) == (np.dtype("c16"), CHUNKS, zarr_format)
    np.testing.assert_array_equal(gzarr.open_array(tmp_path / "a", device="cpu")[...], transformed(elements()))
    # What is given counts, and so does what there is.
    assert gzarr.map_blocks(lambda x: x * 1.0, source, out={}, dtype="i8").dtype == "i8"


def test_each_output_has_its_own(tmp_path: Path) -> None:
    outputs = [tmp_path / "a", Output(tmp_path / "b"), Output(tmp_path / "c", dtype="f4"), None]
    found = gzarr.map_blocks(lambda x: [x > 500, x / 2, x, x.astype("i1")], stored(), out=outputs)
    assert [array.dtype for array in found] == ["?", "f8", "f4", "i1"]
    np.testing.assert_array_equal(found[1][...], elements() / 2)


def test_results_of_other_kinds() -> None:
    torch = pytest.importorskip("torch")
    out = gzarr.map_blocks(lambda x: torch.from_numpy(x.astype("f4")).to(torch.float16), stored(), out={})
    assert out.dtype == np.float16
    np.testing.assert_array_equal(out[...], elements().astype("f2"))
    words = gzarr.map_blocks(lambda x: x.astype(str).astype(object), stored(), out={})
    assert words[0, 0] == str(elements()[0, 0])


def test_in_other_processes(tmp_path: Path) -> None:
    source = stored(tmp_path / "a")
    outputs = [tmp_path / "b", Output(tmp_path / "c", dtype="f4")]
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        (high, half), total = gzarr.map_blocks(
            two, source, out=outputs, block=CHUNKS, reduce=lambda a, b: a + b, client=pool
        )
        assert (high.dtype, half.dtype, total) == (np.bool_, np.float32, elements().sum())
        np.testing.assert_array_equal(high[...], elements() > 500)
        np.testing.assert_array_equal(half[...], (elements() / 2).astype("f4"))
        for arguments in ({"out": tmp_path / "d"}, {"out": tmp_path / "b", "overwrite": True}):
            with pytest.raises(ZeroDivisionError) as caught:
                gzarr.map_blocks(fail, source, block=CHUNKS, client=pool, **arguments)
            assert "block (0, 0)" in "".join(caught.value.__notes__)
        assert not (tmp_path / "d").exists()
        assert gzarr.open_array(tmp_path / "b", device="cpu").dtype == np.bool_
        with pytest.raises(ArgumentError, match=r"uneven returned elements of int64 for block \(1, 1\).*of uint16"):
            gzarr.map_blocks(uneven, source, out=tmp_path / "d", block=CHUNKS, client=pool)


def test_work_that_other_processes_cannot_be_given_creates_nothing(tmp_path: Path) -> None:
    source, lock = stored(tmp_path / "a"), threading.Lock()

    def locked(x: Any) -> Any:
        with lock:
            return x

    for client, dtype in ((5, None), (5, "u2"), (ProcessPoolExecutor(1), "u2"), (ProcessPoolExecutor(1), None)):
        with pytest.raises(ArgumentError, match=r"client must be|cannot be given the work"):
            gzarr.map_blocks(locked, source, out=tmp_path / "b", dtype=dtype, client=client)
        assert not (tmp_path / "b").exists()
    with pytest.raises(ArgumentError, match="resume=True needs outputs that are stored"):
        gzarr.map_blocks(lambda x: [x, x], source, out=[tmp_path / "b", None], resume=True)
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize("dtype", [None, "u2"])
@pytest.mark.parametrize("overlap", [True, False])
def test_nothing_is_created_if_the_first_block_fails(tmp_path: Path, dtype: Any, overlap: bool) -> None:
    source, old = stored(), stored(tmp_path / "old")
    for out, overwrite in ((tmp_path / "new", False), (tmp_path / "old", True)):
        with pytest.raises(ZeroDivisionError):
            gzarr.map_blocks(fail, source, out=out, dtype=dtype, block=CHUNKS, overwrite=overwrite, overlap=overlap)
    assert not (tmp_path / "new").exists()
    np.testing.assert_array_equal(old[...], elements())


def test_other_blocks_wait_for_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one is complete before the first one's results decide."""
    monkeypatch.setenv("GZARR_THREADS", "3")
    second = threading.Event()

    def function(x: Any, block_info: Block) -> Any:
        if block_info.number:
            second.set()
            return x.astype("f4")
        assert second.wait(20)
        return x.astype("f4")

    out = gzarr.map_blocks(function, stored(), out=tmp_path / "a", block=CHUNKS)
    np.testing.assert_array_equal(out[...], elements().astype("f4"))

    def fails(x: Any, block_info: Block) -> Any:
        if not block_info.number:
            assert second.wait(20)
            raise ZeroDivisionError
        second.set()
        return x

    second.clear()
    with pytest.raises(ZeroDivisionError) as caught:
        gzarr.map_blocks(fails, stored(), out=tmp_path / "b", block=CHUNKS)
    assert "block (0, 0)" in "".join(caught.value.__notes__)
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize("stored_output", [True, False])
def test_later_results_of_another_data_type_are_refused(tmp_path: Path, stored_output: bool) -> None:
    out = tmp_path / "a" if stored_output else None
    message = r"returned elements of int64 for block \(1, 1\) of \(2, 3\).*uint16 for the first block.*pass dtype="
    with pytest.raises(ArgumentError, match=message):
        gzarr.map_blocks(uneven, stored(), out=out, block=CHUNKS, overlap=False)
    given = gzarr.map_blocks(uneven, stored(), out=out, block=CHUNKS, dtype="i8", overwrite=True)
    np.testing.assert_array_equal(given[...], elements())
    # The order of bytes is none of it.
    swapped = gzarr.map_blocks(
        lambda x, block_info: x.astype("<u2" if block_info.number else ">u2"), stored(), block=CHUNKS
    )
    np.testing.assert_array_equal(swapped, elements())


def test_a_resumed_output_keeps_its_data_type(tmp_path: Path) -> None:
    source = stored()

    def once(x: Any, block_info: Block) -> Any:
        if block_info.number == 2:
            raise ZeroDivisionError
        return x.astype("f4") + 1

    arguments: dict[str, Any] = {"out": tmp_path / "a", "block": CHUNKS, "resume": True, "overlap": False}
    with pytest.raises(ZeroDivisionError):
        gzarr.map_blocks(once, source, **arguments)
    found = gzarr.map_blocks(lambda x: x + 1, source, **arguments)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found[...], elements() + 1.0)
    # One of two outputs is there: none of its blocks is done.
    outputs = [tmp_path / "a", tmp_path / "b"]
    first, second = gzarr.map_blocks(lambda x: [x + 2, x > 500], source, **{**arguments, "out": outputs})
    np.testing.assert_array_equal(first[...], elements() + 2.0)
    assert second.dtype == np.bool_


def test_results_that_no_array_can_hold(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="elements are Python objects") as caught:
        gzarr.map_blocks(lambda x: x.astype(object), stored(), out=tmp_path / "a")
    assert "block (0, 0)" in "".join(caught.value.__notes__)
    assert not (tmp_path / "a").exists()


def test_without_blocks_it_is_that_of_the_input(tmp_path: Path) -> None:
    source = gzarr.create_array({}, shape=(0, 4), chunks=(1, 4), dtype="u2", device="cpu")
    assert gzarr.map_blocks(lambda x: x / 2, source, out=tmp_path / "a").dtype == np.uint16
    assert gzarr.open_array(tmp_path / "a", device="cpu").shape == (0, 4)


# -- chunks, shards and codecs


def test_chunks_shards_and_codecs_of_created_outputs(tmp_path: Path) -> None:
    source = stored(chunks=(4, 4), shards=(8, 8), dimension_names=["y", "x"])
    like, chunks, shards, both, one, plain = gzarr.map_blocks(
        lambda x: [x] * 6,
        source,
        out=[
            Output(tmp_path / "like"),
            Output(tmp_path / "chunks", chunks=(16, -1)),
            Output(tmp_path / "shards", shards=(16, 8)),
            Output(tmp_path / "both", chunks=(2, 4), shards=(4, 12)),
            Output(tmp_path / "one", chunks=[[8, 8], [24]], codecs="zstd"),
            Output(tmp_path / "plain", shards=None, codecs=None),
        ],
    )
    assert (like.chunks, like.shards) == ((4, 4), (8, 8))
    assert (chunks.chunks, chunks.shards) == ((16, 24), None)
    assert (shards.chunks, shards.shards) == ((16, 8), (16, 8))
    assert (both.chunks, both.shards) == ((2, 4), (4, 12))
    assert one.chunk_lengths == ((8, 8), (24,))
    assert [type(codec).__name__ for codec in one.codecs] == ["BytesCodec", "ZstdCodec"]
    assert [type(codec).__name__ for codec in plain.codecs] == ["BytesCodec"]
    assert plain.shards is None
    for array in (like, chunks, shards, both, one, plain):
        np.testing.assert_array_equal(array[...], elements())
        assert array.dimension_names == ("y", "x")


def test_wrong_chunks_and_codecs_are_refused_before_anything_is_computed(tmp_path: Path) -> None:
    called: list[Any] = []
    out, there = tmp_path / "a", gzarr.create_array({}, shape=SHAPE, dtype="u2", device="cpu")
    for output, message in (
        (Output(out, chunks=(8,)), "chunks"),
        (Output(out, chunks=(8, 8), shards=(12, 8)), "not multiples of chunks"),
        (Output(out, codecs="nonsense"), "nonsense"),
        (Output(chunks=(8, 8)), "chunks= is for an array that is created in a store.*an array in memory"),
        (Output(there, codecs=None, chunks=8), "chunks=, codecs= is for .*an array that exists"),
        (Output(np.zeros(SHAPE), shards=None), "shards= is for"),
    ):
        with pytest.raises(ArgumentError, match=message):
            gzarr.map_blocks(called.append, stored(), out=output)
    with pytest.raises(ArgumentError, match=r"would cut chunks .* along axis 1, blocks must be multiples of 12"):
        gzarr.map_blocks(called.append, stored(), out=Output(out, chunks=(4, 12)), block=(8, 8))
    assert not called
    assert not out.exists()


def test_codecs_that_suit_the_results_but_not_the_input(tmp_path: Path) -> None:
    codecs = [{"name": "zfp", "configuration": {"mode": "reversible"}}]
    waves = gzarr.map_blocks(lambda x: x.astype("c8"), stored(), out={})
    out = gzarr.map_blocks(lambda x: x.real, waves, out=Output(tmp_path / "a", codecs=codecs))
    np.testing.assert_array_equal(out[...], elements().astype("f4"))
    with pytest.raises(ArgumentError, match="zfp"):
        gzarr.map_blocks(lambda x: x, waves, out=Output(tmp_path / "b", codecs=codecs))
    assert not (tmp_path / "b").exists()


def test_automatic_chunks_do_not_depend_on_the_results(tmp_path: Path) -> None:
    source = gzarr.create_array({}, shape=(3000, 3000), chunks=(1000, 1000), dtype="u1", device="cpu")
    out = Output(tmp_path / "a", chunks="auto")
    found = gzarr.map_blocks(lambda x: x.astype("c16"), source, out=out)
    assert found.chunks == gzarr.create_array({}, shape=(3000, 3000), dtype="u1").chunks
    # So they are the same when work goes on.
    assert gzarr.map_blocks(lambda x: x.astype("c16"), source, out=out, resume=True) == found
    with pytest.raises(OutputError, match=r"has chunks=\(750, 750\) and shards=None, and not chunks=\(1000, 1000\)"):
        gzarr.map_blocks(lambda x: x, source, out=Output(tmp_path / "a", chunks=1000), resume=True)
