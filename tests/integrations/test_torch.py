"""PyTorch's tensors as results, which share gzarr's memory, and as values to be written."""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
import torch
from support import devices
from support.foreign_results import NUMBERS, SELECTIONS, collected_results, random_array, same_bits, torch_takes_copies
from support.sparse_groups import stored

import gzarr
from gzarr.arrays.elements import type_on_device
from gzarr.engines import result_memory
from gzarr.integrations.torch import as_tensor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.cuda_on_host.dlpack import Imported

#: PyTorch's names of types that NumPy has only with ml_dtypes, and an integer type of their size.
VIEWED = {
    "bfloat16": torch.int16,
    "float8_e4m3fn": torch.uint8,
    "float8_e4m3fnuz": torch.uint8,
    "float8_e5m2": torch.uint8,
    "float8_e5m2fnuz": torch.uint8,
    "float8_e8m0fnu": torch.uint8,
    "complex32": torch.int32,
}


def made(**arguments: Any) -> gzarr.Array:
    return gzarr.create_array({}, device="cpu", **arguments)


def bits_of(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """Return a tensor as NumPy's array, with integers in place of numbers that NumPy lacks."""
    integers = VIEWED.get(str(tensor.dtype).removeprefix("torch."))
    return (tensor if integers is None else tensor.view(integers)).numpy()


# -- results


@pytest.mark.parametrize("dtype", NUMBERS)
def test_numbers_share_the_memory_that_was_read_to(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    array = random_array(dtype)
    results = collected_results(monkeypatch)
    tensor = array.to_torch()
    assert tensor.data_ptr() == results[0].ctypes.data
    same_bits(bits_of(tensor), array[...])


@pytest.mark.parametrize("name", VIEWED)
def test_numbers_of_ml_dtypes_share_it_too(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    array = random_array({"complex32": "complex_float16"}.get(name, name))
    results = collected_results(monkeypatch)
    tensor = array.to_torch()
    assert tensor.dtype == getattr(torch, name)
    assert tensor.data_ptr() == results[0].ctypes.data
    found = bits_of(tensor)
    same_bits(found, results[0].view(found.dtype))


def test_numbers_of_ml_dtypes_mean_the_same() -> None:
    data = np.array([0.5, -3, np.inf], ml_dtypes.bfloat16)
    assert made(data=data).to_torch().tolist() == [0.5, -3.0, float("inf")]
    assert made(data=np.array([0.5, -3], ml_dtypes.float8_e5m2)).to_torch().tolist() == [0.5, -3.0]


@pytest.mark.parametrize("i", range(len(SELECTIONS)))
def test_selections(i: int) -> None:
    for dtype in ("i2", "bfloat16"):
        array = random_array(dtype)
        expected = np.asarray(array[SELECTIONS[i]])
        found = array.to_torch(SELECTIONS[i])
        assert found.is_contiguous()
        same_bits(bits_of(found), expected.view("i2"))


def test_fields() -> None:
    dtype = [("x", "<i4"), ("y", "<f4", (3,)), ("t", "<M8[s]")]
    array = made(data=np.zeros(5, dtype), zarr_format=2)
    array["x"] = np.arange(5)
    assert array.to_torch("x").tolist() == [0, 1, 2, 3, 4]
    assert array.to_torch(("x", np.s_[1:3])).tolist() == [1, 2]
    assert array.to_torch("y").shape == (5, 3)
    with pytest.raises(gzarr.ArgumentError, match="no dates"):
        array.to_torch("t")


def test_options_of_reads() -> None:
    array = made(shape=(4,), chunks=(2,), dtype="f4", fill_value=3)
    assert array.to_torch().tolist() == [3.0] * 4
    with pytest.raises(gzarr.MissingChunkError):
        array.to_torch(missing="error")
    with pytest.raises(gzarr.ArgumentError, match="decode"):
        array.to_torch(decode="gpu")  # type: ignore[arg-type]


def test_a_tensor_keeps_its_memory() -> None:
    """Also where gzarr recycles the memory of results."""
    result_memory.release()
    arrays = [made(data=np.full(result_memory.LARGE_BYTES, i, "u1")) for i in (1, 2)]
    first = arrays[0].to_torch()
    kept = first[5:9]
    address = first.data_ptr()
    del first
    gc.collect()
    second = arrays[1].to_torch()
    assert second.unique().tolist() == [2]
    assert kept.tolist() == [1] * 4
    del kept
    gc.collect()
    # As soon as it is gone, its memory is used again.
    assert arrays[0].to_torch().data_ptr() == address


@pytest.mark.parametrize(
    ("dtype", "reason"),
    [
        ("M8[s]", "no dates; .*'i8'"),
        ("m8[ms]", "no durations; .*'i8'"),
        ("S3", "no strings"),
        ("U3", "no strings"),
        (str, "no strings|no Python objects"),
        ([("a", "i4"), ("b", "f4")], "no records; read one field, of a, b"),
        ("V5", "no raw bytes"),
        ("int4", "elements of int4: it has no such numbers"),
        ("float8_e3m4", "no such numbers"),
        ("complex_bfloat16", "no such numbers"),
    ],
)
def test_what_it_cannot_hold_is_refused_before_anything_is_read(dtype: Any, reason: str) -> None:
    array = made(shape=(3,), dtype=dtype)
    with pytest.raises(gzarr.ArgumentError, match=f"PyTorch cannot hold .*{reason}"):
        array.to_torch(missing="error")


def test_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "gzarr.integrations.torch")
    with pytest.raises(gzarr.ArgumentError, match=r"PyTorch is not installed: pip install 'gzarr\[torch\]'"):
        made(data=[1]).to_torch()


# -- results of any other read


def test_results_of_indexers_and_scalars() -> None:
    array = random_array("bfloat16")
    result = array.oindex[[30, 2], ::7]
    tensor = as_tensor(result)
    assert tensor.data_ptr() == result.ctypes.data
    same_bits(bits_of(tensor), result.view("i2"))
    assert bits_of(as_tensor(array[3, 4])).item() == array[3, 4].view("i2")


def test_what_cannot_be_shared() -> None:
    values = np.arange(6, dtype="f4")
    values.flags.writeable = False
    with pytest.raises(gzarr.ArgumentError, match=r"read-only.*pass a copy"):
        as_tensor(values)
    with pytest.raises(gzarr.ArgumentError, match=r"negative strides.*\(-4,\).*pass a copy"):
        as_tensor(values.copy()[::-1])
    with pytest.raises(gzarr.ArgumentError, match=r"another byte order; .*\.astype\('<f4'\)"):
        as_tensor(values.astype(">f4"))
    odd = np.zeros(3, [("a", "u1"), ("b", "f4")])["b"]
    with pytest.raises(gzarr.ArgumentError, match=r"cannot share .* pass a copy"):
        as_tensor(odd)
    with pytest.raises(gzarr.ArgumentError, match="arrays of NumPy and CuPy, not list"):
        as_tensor([1])
    no_results: list[Any] = [made(data=[1.0]), pytest.importorskip("pandas").Series([1.0])]
    for value in no_results:
        with pytest.raises(gzarr.ArgumentError, match=f"NumPy and CuPy, not {type(value).__name__}"):
            as_tensor(value)
    with pytest.raises(gzarr.ArgumentError, match=r"masked elements.*\.filled"):
        as_tensor(np.ma.masked_array([1.0, 2], [0, 1]))
    whole = np.ma.masked_array([1.0, 2], [0, 0])
    assert as_tensor(whole).data_ptr() == whole.ctypes.data


# -- a device


class CurrentStream:
    """What PyTorch's stream is to others: it has an address."""

    def __init__(self, address: int) -> None:
        self.cuda_stream = address

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.cuda_stream


@pytest.fixture
def taken() -> Iterator[list[Imported]]:
    with torch_takes_copies() as found:
        yield found


def test_a_read_to_a_device_is_on_the_current_stream_of_torch(
    monkeypatch: pytest.MonkeyPatch, taken: list[Imported]
) -> None:
    data = np.arange(24, dtype="f4").reshape(4, 6)
    store: dict[str, bytes] = {}
    gzarr.create_array(store, data=data, chunks=(2, 6), device="cpu")
    results = collected_results(monkeypatch)
    with devices.on_host() as device:
        with device:
            stream = device.stream()
        asked: list[Any] = []
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        current = CurrentStream(stream.ptr)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda *name: asked.append(name) or current)
        tensor = gzarr.open_array(store, device="cuda").to_torch()
        assert asked == [(device.name,), ()]
        assert torch.equal(tensor, torch.from_numpy(data))
        # Later work of that stream, and of no other, gets its memory.
        pointer = results.pop().data.ptr
        with device:
            assert device.empty(data.shape, data.dtype, device.current_stream()).data.ptr != pointer
            assert device.empty(data.shape, data.dtype, stream).data.ptr == pointer
        del stream


def test_managed_memory_is_shared_without_dlpack(monkeypatch: pytest.MonkeyPatch) -> None:
    import cupy

    class Managed(cupy.ndarray):  # type: ignore[misc]
        def __dlpack_device__(self) -> tuple[int, int]:
            return 13, int(self.device.id)

    with devices.on_host() as device, device:
        consumer = device.stream()
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        current = CurrentStream(consumer.ptr)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda name: current)
        given: list[Any] = []
        monkeypatch.setattr(torch, "as_tensor", lambda array, device: given.append((array, device)) or torch.zeros(3))
        array = Managed((3,), "f4")
        with device.held_back(device.current_stream()) as gate:
            as_tensor(array)
            assert [(found is array, name) for found, name in given] == [(True, device.name)]
            # PyTorch's stream waits for CuPy's.
            assert not consumer.record(device.event()).done
            gate.open()
            consumer.synchronize()
            assert gate.passed
        given.clear()
        del array, consumer


def _of_array(store: Any) -> list[torch.Tensor]:
    return [gzarr.open_array(store["array"], device="cuda").to_torch()]


def _of_loader(store: Any) -> list[torch.Tensor]:
    array = gzarr.open_array(store["array"], device="cuda")
    return [batch["data"] for batch in gzarr.Loader(array, batch_size=2, shuffle=False, like="torch")]


def _of_sparse_loader(store: Any) -> list[torch.Tensor]:
    matrix = gzarr.sparse.open(store["matrix"], path="X", device="cuda")
    loader = gzarr.Loader(matrix, batch_size=2, shuffle=False, like="torch", dense=False)
    return [batch["data"].to_dense() for batch in loader]


@pytest.mark.usefixtures("taken")
@pytest.mark.parametrize("read", [_of_array, _of_loader, _of_sparse_loader])
def test_what_is_read_on_a_stream_of_torch_does_not_wait_for_another_one(
    read: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the training step on the default stream, while the next batch is read on another one."""
    data = np.arange(24, dtype="f4").reshape(4, 6)
    stores = {"array": gzarr.MemoryStore(), "matrix": stored(data)}
    gzarr.create_array(stores["array"], data=data, chunks=(2, 6), device="cpu")
    with devices.on_host() as device:
        with device:
            side, default = device.stream(), device.current_stream()
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        current = CurrentStream(side.ptr)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda *name: current)
        # What is made once, such as tables of kernels.
        read(stores)
        with device.held_back(default) as gate:
            found = read(stores)
            assert not gate.passed
        assert torch.equal(torch.cat(found), torch.from_numpy(data))
        del side, found


@pytest.mark.parametrize("name", ["f4", "bfloat16"])
def test_elements_of_a_device(name: str, monkeypatch: pytest.MonkeyPatch, taken: list[Imported]) -> None:
    """Without CUDA in PyTorch, a read is on CuPy's current stream, for which the tensor waits."""
    host = random_array(name, chunks=(20, 25), codecs=None)
    expected = host[...]
    results = collected_results(monkeypatch)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with devices.use("on host") as device:
        array = device.open(host.store, mode="r+")
        tensor = array.to_torch()
        assert tensor.dtype == (torch.bfloat16 if name == "bfloat16" else torch.float32)
        assert taken[0].pointer == results[0].data.ptr
        same_bits(bits_of(tensor), expected.view("i2" if name == "bfloat16" else "f4"))
        # A tensor in host memory.
        array[...] = torch.zeros(40, 50, dtype=tensor.dtype)
        assert not device.to_numpy(array[...]).any()
        results.clear()


def test_the_type_of_a_tensor_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its CUDA interface has raw bytes in place of bfloat16."""
    monkeypatch.setattr(torch.Tensor, "__cuda_array_interface__", property(lambda tensor: {"typestr": "<V2"}))
    assert type_on_device(torch.zeros(2, dtype=torch.bfloat16)) == ml_dtypes.bfloat16
    with pytest.raises(gzarr.ArgumentError, match="requires gradients"):
        type_on_device(torch.zeros(2, requires_grad=True))


# -- values to be written


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"data": torch.arange(6).reshape(2, 3).T}, [[0, 3], [1, 4], [2, 5]]),
        ({"data": torch.arange(3, dtype=torch.float16), "dtype": "f8"}, [0.0, 1.0, 2.0]),
        ({"data": torch.arange(3, dtype=torch.bfloat16), "dtype": "f4"}, [0.0, 1.0, 2.0]),
    ],
)
def test_data(arguments: dict[str, Any], expected: list[Any]) -> None:
    assert made(**arguments)[...].tolist() == expected


def test_the_type_of_a_tensor_is_taken() -> None:
    assert made(data=torch.zeros(2, dtype=torch.uint8)).dtype == np.uint8
    assert made(data=torch.zeros(2, dtype=torch.bfloat16)).dtype == ml_dtypes.bfloat16
    assert made(data=torch.zeros(2, dtype=torch.float8_e4m3fn)).dtype == ml_dtypes.float8_e4m3fn
    store: dict[str, bytes] = {}
    gzarr.save(store, a=torch.ones(2))
    assert gzarr.load(store, device="cpu")["a"].dtype == np.float32
    assert gzarr.zeros_like(torch.ones(2, dtype=torch.int16), device="cpu").dtype == np.int16


@pytest.mark.parametrize("name", VIEWED)
def test_numbers_of_ml_dtypes_are_written_bit_by_bit(name: str) -> None:
    array = random_array({"complex32": "complex_float16"}.get(name, name))
    other = gzarr.empty_like(array, store={}, device="cpu")
    # Neither contiguous nor as large as the memory.
    tensor = array.to_torch().T[3:, ::2]
    other[: tensor.shape[1] * 2 : 2, 3:] = tensor.T
    same_bits(other[::2, 3:], array[::2, 3:])


def test_bfloat16_needs_ml_dtypes(monkeypatch: pytest.MonkeyPatch) -> None:
    array = made(shape=(2,), dtype="f4")
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(gzarr.ArgumentError, match=r"/: .*bfloat16 needs the package ml_dtypes: pip install"):
        array[...] = torch.zeros(2, dtype=torch.bfloat16)


def test_pending_conjugations_and_negations_are_done() -> None:
    numbers = torch.tensor([1 + 2j, 3 - 4j])
    array = made(shape=(2,), dtype="c16")
    array[...] = numbers.conj()
    assert array[...].tolist() == [1 - 2j, 3 + 4j]
    real = made(shape=(2,), dtype="f4")
    assert numbers.conj().imag.is_neg()
    real[...] = numbers.conj().imag
    assert real[...].tolist() == [-2, 4]


@pytest.mark.parametrize(
    ("tensor", "reason"),
    [
        (torch.ones(2, requires_grad=True), r"Tensor .*requires gradients.*detach\(\)"),
        (torch.nn.Parameter(torch.ones(2)), r"Parameter .*detach\(\)"),
        (torch.ones(2).to_sparse(), "Tensor .*to_dense"),
        (torch.ones(2, device="meta"), "Tensor .*no data"),
    ],
)
def test_what_torch_does_not_give_out(tensor: Any, reason: str) -> None:
    store: dict[str, bytes] = {}
    with pytest.raises(gzarr.ArgumentError, match=f"a value of type {reason}"):
        gzarr.create_array(store, data=tensor)
    assert not store
    array = made(data=[5.0, 6.0], dtype="f4")
    with pytest.raises(gzarr.ArgumentError, match=f"/: a value of type {reason}"):
        array[...] = tensor
    assert array[...].tolist() == [5.0, 6.0]


def test_append_and_assign() -> None:
    array = made(shape=(0,), dtype="i8")
    assert array.append(torch.ones(1, dtype=torch.int64)) == (1,)
    assert array[...].tolist() == [1]
    array = made(shape=(4,), chunks=(2,), dtype="f4")
    array[...] = torch.arange(4)
    assert array[...].tolist() == [0.0, 1.0, 2.0, 3.0]
    array.append(torch.ones(1, dtype=torch.bfloat16))
    array.oindex[[1, 3]] = torch.tensor(7.0)
    array[torch.tensor([0, 2])] = torch.tensor([-1.0, -2.0])
    assert array[...].tolist() == [-1.0, 7.0, -2.0, 7.0, 1.0]
    assert array[torch.tensor([True, False, True, False, False])].tolist() == [-1.0, -2.0]
    # No value is altered silently.
    integers = made(shape=(2,), dtype="i4")
    with pytest.raises(gzarr.ArgumentError, match=r"0\.5"):
        integers[...] = torch.tensor([1.0, 0.5], dtype=torch.bfloat16)
