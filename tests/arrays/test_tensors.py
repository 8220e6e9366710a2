"""PyTorch's tensors are elements like any other array's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import gzarr


def made(**arguments: Any) -> gzarr.Array:
    return gzarr.create_array({}, device="cpu", **arguments)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"data": torch.arange(6).reshape(2, 3).T}, [[0, 3], [1, 4], [2, 5]]),
        ({"data": torch.arange(3, dtype=torch.float16), "dtype": "f8"}, [0.0, 1.0, 2.0]),
    ],
)
def test_data(arguments: dict[str, Any], expected: list[Any]) -> None:
    assert made(**arguments)[...].tolist() == expected


def test_the_type_of_a_tensor_is_taken() -> None:
    assert made(data=torch.zeros(2, dtype=torch.uint8)).dtype == np.uint8
    store: dict[str, bytes] = {}
    gzarr.save(store, a=torch.ones(2))
    assert gzarr.load(store, device="cpu")["a"].dtype == np.float32
    assert gzarr.zeros_like(torch.ones(2, dtype=torch.int16), device="cpu").dtype == np.int16


@pytest.mark.parametrize("data", [torch.zeros(2, requires_grad=True), torch.zeros(2, dtype=torch.bfloat16)])
def test_what_torch_does_not_give_out(data: Any) -> None:
    store: dict[str, bytes] = {}
    with pytest.raises(gzarr.ArgumentError, match=r"Tensor is not an array: .*(detach|BFloat16)"):
        gzarr.create_array(store, data=data)
    assert not store


def test_append_and_assign() -> None:
    array = made(shape=(0,), dtype="i8")
    assert array.append(torch.ones(1, dtype=torch.int64)) == (1,)
    assert array[...].tolist() == [1]
    array = made(shape=(4,), chunks=(2,), dtype="f4")
    array[...] = torch.arange(4)
    assert array[...].tolist() == [0.0, 1.0, 2.0, 3.0]
