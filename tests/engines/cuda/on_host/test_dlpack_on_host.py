"""DLPack's protocol for CUDA memory, with the tests' own other side, on streams that run late."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.cuda_on_host import dlpack

if TYPE_CHECKING:
    from support.cuda_on_host import HostCuda

STREAMS = ["legacy", "per thread", "address", "default"]


def handle(cupy: Any, name: str) -> tuple[int | None, int, Any]:
    """Return a stream as DLPack has it, as CUDA has it, and what keeps it alive."""
    if name == "address":
        stream = cupy.cuda.Stream(non_blocking=True)
        return stream.ptr, stream.ptr, stream
    return {"legacy": (1, 1, None), "per thread": (2, 2, None), "default": (None, 1, None)}[name]


@pytest.mark.parametrize("versioned", [False, True])
@pytest.mark.parametrize("name", STREAMS)
def test_what_cupy_exports_is_ready_on_the_stream_that_imports_it(
    cupy: Any, cuda: HostCuda, name: str, versioned: bool
) -> None:
    cuda.reset(late_ms=100)
    passed, stream, kept = handle(cupy, name)
    x = np.arange(60, dtype="f4").reshape(3, 20)
    late = cupy.cuda.Stream(non_blocking=True)
    with late:
        made = (cupy.asarray(x) + 1)[:, 1::2]
        tensor = dlpack.imported(made, passed, max_version=(1, 0) if versioned else None)
    np.testing.assert_array_equal(tensor.read(stream), (x + 1)[:, 1::2])
    assert (tensor.device, tensor.version, tensor.dtype) == (0, (1, 0) if versioned else (0, 0), np.dtype("f4"))
    assert tensor.pointer == made.data.ptr
    tensor.release()
    del kept


class _Stream:
    """A stream of another library's."""

    def __init__(self, stream: int) -> None:
        self._stream = stream

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._stream


@pytest.mark.parametrize("newest", [(0, 8), (1, 0)])
@pytest.mark.parametrize("name", ["legacy", "address"])
def test_what_is_offered_is_ready_on_cupys_stream(
    cupy: Any, cuda: HostCuda, name: str, newest: tuple[int, int]
) -> None:
    cuda.reset(late_ms=100)
    _, stream, kept = handle(cupy, name)
    x = np.arange(60).reshape(3, 20)
    late = cupy.cuda.Stream(non_blocking=True)
    with late:
        made = cupy.asarray(x) * 3
    offered = dlpack.Offered(made[1:, ::2], late.ptr, newest=newest)
    with cupy.cuda.Stream.from_external(_Stream(stream)):
        taken = cupy.from_dlpack(offered)
        found = (taken + 1).get()
    np.testing.assert_array_equal(found, (x * 3)[1:, ::2] + 1)
    assert offered.asked == [stream]
    assert (offered.exported, offered.deleted) == (1, 0)
    del taken
    gc.collect()
    assert offered.deleted == 1
    del kept


def test_without_a_wait_it_is_not_ready(cupy: Any, cuda: HostCuda) -> None:
    """The tests above would show a missing wait: -1 asks for none."""
    cuda.reset(late_ms=100)
    x = np.arange(1, 61)
    late = cupy.cuda.Stream(non_blocking=True)
    other = cupy.cuda.Stream(non_blocking=True)
    stale = []
    for _ in range(5):
        with late:
            made = cupy.asarray(x) * 3
            tensor = dlpack.imported(made, dlpack.NO_WAIT)
        stale.append((tensor.read(other.ptr) != x * 3).any())
        late.synchronize()
        np.testing.assert_array_equal(tensor.read(other.ptr), x * 3)
        tensor.release()
    assert any(stale)
    cuda.notes()


@pytest.mark.parametrize("dtype", ["bool", "u1", "i2", "f2", "f8", "c16"])
def test_types(cupy: Any, dtype: str) -> None:
    x = np.arange(6).astype(dtype)
    tensor = dlpack.imported(cupy.asarray(x))
    assert tensor.dtype == x.dtype
    np.testing.assert_array_equal(tensor.read(1), x)
    tensor.release()
    taken = cupy.from_dlpack(dlpack.Offered(cupy.asarray(x)))
    assert taken.dtype == x.dtype
    np.testing.assert_array_equal(taken.get(), x)


def test_a_capsule_that_nobody_takes_is_deleted(cupy: Any) -> None:
    offered = dlpack.Offered(cupy.zeros(3))
    capsule = offered.__dlpack__(stream=1, max_version=(1, 0))
    assert "dltensor_versioned" in repr(capsule)
    del capsule
    assert (offered.exported, offered.deleted) == (1, 1)


def test_streams_that_are_none_are_refused(cupy: Any) -> None:
    offered = dlpack.Offered(cupy.zeros(3))
    for stream in (0, -2, 1.0):
        with pytest.raises(ValueError, match="for a stream"):
            offered.__dlpack__(stream=stream)
    with pytest.raises(BufferError):
        offered.__dlpack__(stream=1, max_version=(1, 0), dl_device=(2, 1))


def test_the_other_device_is_named(cupy: Any) -> None:
    with cupy.cuda.Device(1):
        there = cupy.arange(4)
        tensor = dlpack.imported(there)
        assert tensor.device == 1
        np.testing.assert_array_equal(tensor.read(1), np.arange(4))
        tensor.release()
    assert dlpack.Offered(there).__dlpack_device__() == (2, 1)
