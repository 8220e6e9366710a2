"""JAX's arrays as results, which share gzarr's memory, and as values to be written."""

from __future__ import annotations

import gc
import sys
import warnings
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from support import devices
from support.foreign_results import (
    NUMBERS,
    SELECTIONS,
    Xla,
    collected_results,
    jax_takes_copies,
    random_array,
    same_bits,
)

import gzarr
from gzarr.engines import result_memory
from gzarr.integrations.jax import as_array

if TYPE_CHECKING:
    from collections.abc import Iterator

#: JAX's numbers that NumPy has only with ml_dtypes: all that XLA can hold in host memory.
OF_ML_DTYPES = ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e3m4", "float8_e8m0fnu", "int4", "uint4"]
#: A shape whose results are aligned, whatever the item size.
LARGE = (256, 260)


@pytest.fixture
def x64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def made(**arguments: Any) -> gzarr.Array:
    return gzarr.create_array({}, device="cpu", **arguments)


def _address(array: jax.Array) -> int:
    return int(array.unsafe_buffer_pointer())


# -- results


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("dtype", [*NUMBERS, *OF_ML_DTYPES])
def test_results_share_the_memory_that_was_read_to(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    array = random_array(dtype, LARGE)
    results = collected_results(monkeypatch)
    found = array.to_jax()
    same_bits(found, array[...])
    # XLA packs these.
    assert (_address(found) == results[0].ctypes.data) == ("int4" not in dtype)


@pytest.mark.parametrize("shape", [(1 << 16,), (1 << 20, 3), (1 << 22,), (3, 7 << 20)])
@pytest.mark.parametrize("recycled", ["0", str(1 << 30)])
def test_results_of_64_kib_and_more_are_never_copied(
    shape: tuple[int, ...], recycled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GZARR_RECYCLE_BYTES", recycled)
    result_memory.release()
    array = made(data=np.arange(np.prod(shape), dtype="u1").reshape(shape))
    results = collected_results(monkeypatch)
    # Several at once, as one may happen to be aligned.
    found = [array.to_jax() for _ in range(4)]
    assert [_address(one) for one in found] == [result.ctypes.data for result in results]
    assert (np.asarray(found[3]) == np.asarray(found[0])).all()


def test_an_array_keeps_its_memory() -> None:
    """Also where gzarr recycles the memory of results."""
    result_memory.release()
    arrays = [made(data=np.full(result_memory.LARGE_BYTES, i, "u1")) for i in (1, 2)]
    first = arrays[0].to_jax()
    gc.collect()
    second = arrays[1].to_jax()
    assert (np.asarray(second) == 2).all()
    assert (np.asarray(first) == 1).all()
    address = _address(first)
    del first
    gc.collect()
    # As soon as it is gone, its memory is used again.
    assert _address(arrays[0].to_jax()) == address


@pytest.mark.parametrize("i", range(len(SELECTIONS)))
def test_selections(i: int) -> None:
    for dtype in ("i2", "bfloat16"):
        array = random_array(dtype)
        same_bits(array.to_jax(SELECTIONS[i]), array[SELECTIONS[i]])


def test_fields_and_options() -> None:
    array = made(data=np.zeros(5, [("x", "<i4"), ("y", "<f4", (3,)), ("t", "<M8[s]")]), zarr_format=2)
    array["x"] = np.arange(5)
    assert array.to_jax(("x", np.s_[1:3])).tolist() == [1, 2]
    assert array.to_jax("y").shape == (5, 3)
    with pytest.raises(gzarr.ArgumentError, match="no dates"):
        array.to_jax("t")
    with pytest.raises(gzarr.MissingChunkError):
        made(shape=(4,), dtype="f4").to_jax(missing="error")


@pytest.mark.parametrize(
    ("dtype", "narrow"), [("i8", "int32"), ("u8", "uint32"), ("f8", "float32"), ("c16", "complex64")]
)
def test_narrowing_is_told(dtype: str, narrow: str) -> None:
    array = made(data=np.arange(3, dtype=dtype))
    for read in (array.to_jax, lambda: as_array(array.oindex[[1]])):
        with pytest.warns(UserWarning, match=rf"JAX makes {narrow} of .*jax_enable_x64") as told:
            assert read().dtype == narrow
        assert [warning.filename for warning in told] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made(data=np.arange(3, dtype="f4")).to_jax()
        with jax.enable_x64(True):
            assert array.to_jax().dtype == dtype
            assert as_array(array[...]).tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("dtype", "reason"),
    [
        ("M8[s]", "no dates; .*'i8'"),
        ("m8[ms]", "no durations; .*'i8'"),
        ("S3", "no strings"),
        (str, "no strings|no Python objects"),
        ([("a", "i4"), ("b", "f4")], "no records; read one field, of a, b"),
        ("V5", "no raw bytes"),
        ("complex_float16", "no such numbers"),
    ],
)
def test_what_it_cannot_hold_is_refused_before_anything_is_read(dtype: Any, reason: str) -> None:
    array = made(shape=(3,), dtype=dtype)
    with pytest.raises(gzarr.ArgumentError, match=f"JAX cannot hold .*{reason}"):
        array.to_jax(missing="error")


def test_what_only_xla_cannot_hold_is_refused_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """As XLA did with float6, which its later versions hold."""
    monkeypatch.setattr(jax, "device_put", _refuses)
    with pytest.raises(gzarr.ArgumentError, match="JAX cannot hold elements of float6_e2m3fn: it has no such numbers"):
        made(shape=(3,), dtype="float6_e2m3fn").to_jax()


def _refuses(array: Any, device: Any) -> Any:
    raise RuntimeError(f"INVALID_ARGUMENT: Unknown NumPy dtype {array.dtype}")


def test_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)
    monkeypatch.delitem(sys.modules, "gzarr.integrations.jax")
    with pytest.raises(gzarr.ArgumentError, match="JAX is not installed: pip install jax"):
        made(data=[1]).to_jax()


def test_other_arrays_are_taken_too() -> None:
    values = np.arange(24, dtype="f4").reshape(4, 6)
    same_bits(as_array(values[::-1, ::2]), values[::-1, ::2])
    same_bits(as_array(values[1, 2]), values[1, 2])
    values.flags.writeable = False
    same_bits(as_array(values), values)
    with pytest.raises(gzarr.ArgumentError, match=r"another byte order; .*\.astype\('<f4'\)"):
        as_array(values.astype(">f4"))
    with pytest.raises(gzarr.ArgumentError, match="arrays of NumPy and CuPy, not list"):
        as_array([1])
    no_results: list[Any] = [made(data=[1.0]), pytest.importorskip("pandas").Series([1.0])]
    for value in no_results:
        with pytest.raises(gzarr.ArgumentError, match=f"NumPy and CuPy, not {type(value).__name__}"):
            as_array(value)
    with pytest.raises(gzarr.ArgumentError, match=r"masked elements.*\.filled"):
        as_array(np.ma.masked_array(values, values > 3))
    same_bits(as_array(values.view(np.ma.MaskedArray)), values)


# -- a device


@pytest.mark.parametrize("name", ["f4", "bfloat16"])
def test_elements_of_a_device(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """JAX's build for the CPU does not take memory of a device, but gets a copy of what it is handed."""
    host = random_array(name, LARGE, chunks=(128, 130))
    expected = host[...]
    results = collected_results(monkeypatch)
    with devices.use("on host") as device, jax_takes_copies() as taken:
        array = device.open(host.store, mode="r+")
        found = array.to_jax()
        same_bits(found, expected)
        assert taken[0].pointer == results[0].data.ptr
        array[...] = found[::-1]
        same_bits(device.to_numpy(array[...]), expected[::-1])
        results.clear()


def _of_arrays(array: gzarr.Array) -> Iterator[Any]:
    for i in range(len(array)):
        yield array.to_jax(np.s_[i : i + 1])


def _of_results(array: gzarr.Array) -> Iterator[Any]:
    for i in range(len(array)):
        yield as_array(array.oindex[[i]])


def _of_loader(array: gzarr.Array, **options: Any) -> Iterator[Any]:
    for batch in gzarr.Loader(array, batch_size=1, shuffle=False, like="jax", **options):
        yield batch.pop("data")


@pytest.mark.parametrize("name", ["i4", "bfloat16"])
@pytest.mark.parametrize(
    "read",
    [_of_arrays, _of_results, _of_loader, partial(_of_loader, copy=False)],
    ids=["to_jax", "as_array", "loader", "lent"],
)
def test_what_jax_still_reads_on_a_device_is_not_used_again(read: Any, name: str) -> None:
    """JAX drops memory of others while work that is enqueued still reads it, on a stream that nobody can wait for."""
    data = np.repeat(np.arange(6), 1 << 14).reshape(6, -1).astype(name)
    store = made(data=data, chunks=(1, 1 << 14)).store
    with devices.on_host() as device:
        array = gzarr.open_array(store, device="cuda")
        with device:
            xla = Xla(device.cuda)
        found = []
        with xla.of_jax():
            for values in read(array):
                assert values.dtype == data.dtype
                found.append(xla.step(values))
                # As ``x = step(x)`` does.
                del values
            xla.stream.synchronize()
        np.testing.assert_array_equal(found, data)
        del xla


def test_what_is_taken_for_copies_are_copies_in_jax() -> None:
    values = jnp.arange(1 << 14, dtype="u2")
    copies = [jnp.array(values, copy=True), jax.lax.bitcast_convert_type(values, jnp.bfloat16)]
    assert len({_address(values), *map(_address, copies)}) == 3


# -- values to be written


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("dtype", [*(dtype for dtype in NUMBERS if dtype[0] != ">"), *OF_ML_DTYPES])
def test_values_are_written_bit_by_bit(dtype: str) -> None:
    array = random_array(dtype)
    other = gzarr.empty_like(array, store={}, device="cpu")
    values = array.to_jax()
    other[...] = values
    expected = array[...]
    # JAX itself changes the bits of NaN of 8-bit numbers.
    if "float8" not in dtype:
        other[::2, 3:] = values[::-2, :-3]
        expected[::2, 3:] = array[::-2, :-3]
    same_bits(other[...], expected)


def test_the_type_of_an_array_is_taken() -> None:
    assert made(data=jnp.zeros(2, jnp.bfloat16)).dtype == ml_dtypes.bfloat16
    array = made(data=jnp.arange(4, dtype="f4"))
    assert array.append(jnp.ones(1, jnp.bfloat16)) == (5,)
    array.oindex[jnp.array([1, 3])] = jnp.float32(7)
    assert array[...].tolist() == [0, 7, 2, 7, 1]
    assert array[jnp.array([True, False, True, False, False])].tolist() == [0, 2]
    # No value is altered silently.
    with pytest.raises(gzarr.ArgumentError, match=r"0\.5"):
        made(shape=(2,), dtype="i4")[...] = jnp.array([1, 0.5])


def test_what_jax_does_not_give_out() -> None:
    array = made(data=[5.0], dtype="f4")
    with pytest.raises(gzarr.ArgumentError, match=r"/: a value of type PRNGKeyArray .*key_data"):
        array[...] = jax.random.key(0)

    @jax.jit
    def traced(value: Any) -> Any:
        array[...] = value
        return value

    with pytest.raises(gzarr.ArgumentError, match=r"/: a value of type .*Tracer .*traced"):
        traced(jnp.ones(1))
    deleted = jnp.ones(1)
    deleted.delete()
    with pytest.raises(gzarr.ArgumentError, match=r"/: a value of type ArrayImpl .*deleted"):
        array[...] = deleted
    assert array[...].tolist() == [5.0]
