"""CuPy's own kernels, compiled for the host, compared with NumPy."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.cuda_on_host import HostCuda
    from support.cuda_on_host.cupy_kernels import CupyKernels

pytestmark = pytest.mark.slow

# Few: each kernel takes a tenth of a second to compile the first time.
DTYPES = ["bool", "u1", "i8", "f2", "f4", "c8"]
#: How an array lies in memory: functions of a C-contiguous array.
LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "C": lambda a: a,
    "transposed": lambda a: a.T,
    "steps": lambda a: a[1::2, ::3],
    "backwards": lambda a: a[::-1, ::-2],
    "one axis": lambda a: a[3],
    "no axis": lambda a: a[2, 3],
    "no elements": lambda a: a[4:4],
    "four axes": lambda a: a.reshape(4, 3, 5, 4)[:, ::-1, 1:, ::2],
}


def numbers(dtype: Any, shape: tuple[int, ...] = (12, 20), seed: int = 0) -> np.ndarray[Any, Any]:
    """Return numbers of a dtype; some are equal, some extreme."""
    rng, dtype = np.random.default_rng(seed), np.dtype(dtype)
    if dtype.kind == "b":
        return rng.random(shape) < 0.4
    if dtype.kind in "iu":
        made = rng.integers(-9 if dtype.kind == "i" else 0, 30, shape).astype(dtype)
        made.flat[5:7] = np.iinfo(dtype).min, np.iinfo(dtype).max
        return made
    made = (rng.standard_normal(shape) * 4).astype(dtype)
    if dtype.kind == "c":
        made += 1j * rng.standard_normal(shape)
    return made


def same(found: Any, expected: Any, **tolerance: float) -> None:
    """Check dtype, shape and elements; floating-point numbers within a tolerance, none without one."""
    found, expected = found.get(), np.asarray(expected)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    if tolerance:
        np.testing.assert_allclose(found, expected, **tolerance)
    else:
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["bool", "i2", "c16"])
def test_copies_of_every_layout(cupy: Any, dtype: str, layout: str) -> None:
    x = numbers(dtype)
    place = LAYOUTS[layout]
    same(place(cupy.asarray(x)).copy(order="C"), place(x))
    # Into a layout.
    target, expected = cupy.zeros(x.shape, dtype), np.zeros(x.shape, dtype)
    place(target)[...] = cupy.asarray(np.array(place(x)))
    np.copyto(place(expected) if layout != "no axis" else expected[2, 3, ...], place(x))
    same(target, expected)


@pytest.mark.parametrize("to", DTYPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_casts(cupy: Any, dtype: str, to: str) -> None:
    x = numbers(dtype)
    if np.dtype(dtype).kind in "fc" and np.dtype(to).kind in "iu":
        # Beyond the integers a cast is undefined, on each side.
        x = np.abs(x).astype(np.dtype(dtype).char if np.dtype(dtype).kind == "f" else x.real.dtype).astype(dtype)
    with np.errstate(over="ignore"):
        expected = x.real.astype(to) if np.dtype(dtype).kind == "c" and np.dtype(to).kind != "c" else x.astype(to)
    if np.dtype(dtype).kind == "c" and to == "bool":
        expected = x != 0
    same(cupy.asarray(x).astype(to), expected)


def test_every_half_precision_number_is_converted_as_by_numpy(cupy: Any) -> None:
    bits = np.arange(1 << 16).astype("u2")
    halves = bits.view("f2")
    same(cupy.asarray(halves).astype("f4"), halves.astype("f4"))
    # Numbers between two halves, at ties and beside them.
    near = np.nextafter(halves[halves > 0].astype("f8"), np.inf)
    ties = (halves[1:30000].astype("f8") + halves[:29999].astype("f8")) / 2
    values = np.concatenate([near, ties, -ties, np.nextafter(ties, 0), [65519.999, 65520, 1e300, 2.0**-25, 2.0**-26]])
    with np.errstate(over="ignore"):
        same(cupy.asarray(values).astype("f2"), values.astype("f2"))
        same(cupy.asarray(values.astype("f4")).astype("f2"), values.astype("f4").astype("f2"))


def test_bfloat16(cupy: Any) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = numbers("f4")
    there = cupy.asarray(x).astype(ml_dtypes.bfloat16)
    expected = x.astype(ml_dtypes.bfloat16)
    assert there.dtype == expected.dtype
    np.testing.assert_array_equal(there.get().view("u2"), expected.view("u2"))
    np.testing.assert_array_equal((there + there).get().astype("f4"), (expected + expected).astype("f4"))


BINARY = [
    operator.add, operator.sub, operator.mul, operator.eq, operator.ne, np.maximum, np.minimum,
]  # fmt: skip


@pytest.mark.parametrize("function", BINARY, ids=lambda function: function.__name__)
@pytest.mark.parametrize("dtype", ["i1", "f2", "c8"])
def test_arithmetic(cupy: Any, dtype: str, function: Callable[[Any, Any], Any]) -> None:
    x, y = numbers(dtype), numbers(dtype, seed=1)
    ours = getattr(cupy, function.__name__, function)
    tolerance = {} if np.dtype(dtype).kind in "iu" or dtype == "f8" else {"rtol": 2e-3, "atol": 2e-3}
    with np.errstate(over="ignore"):
        expected = function(x, y)
    same(ours(cupy.asarray(x), cupy.asarray(y)), expected, **({} if expected.dtype == bool else tolerance))
    # A scalar, and an axis that is repeated.
    same(
        ours(cupy.asarray(x), cupy.asarray(y[:1])), function(x, y[:1]), **({} if expected.dtype == bool else tolerance)
    )


@pytest.mark.parametrize("dtype", ["i1", "u8"])
def test_integers(cupy: Any, dtype: str) -> None:
    x, y = numbers(dtype), np.abs(numbers(dtype, seed=1) // 4) + np.dtype(dtype).type(1)
    a, b = cupy.asarray(x), cupy.asarray(y)
    same(a // b, x // y)
    same(a % b, x % y)
    same(a & b, x & y)
    same(a | b, x | y)
    same(a ^ b, x ^ y)
    same(a >> 1, x >> 1)
    same(~a, ~x)


def test_functions(cupy: Any) -> None:
    x = np.abs(numbers("f8")) + 0.25
    a = cupy.asarray(x)
    for name in ("sqrt", "exp", "log", "sin", "cos", "tanh", "rint", "floor", "ceil", "sign", "isnan", "isfinite"):
        tolerance = {"rtol": 1e-12} if getattr(np, name)(x).dtype != bool else {}
        same(getattr(cupy, name)(a), getattr(np, name)(x), **tolerance)
    c = numbers("c16")
    for name in ("exp", "sqrt", "conj", "abs", "angle"):
        same(getattr(cupy, name)(cupy.asarray(c)), getattr(np, name)(c), rtol=1e-12)
    same(cupy.clip(a, 1, 2), np.clip(x, 1, 2))
    same(cupy.where(a > 1, a, cupy.float64(-1)), np.where(x > 1, x, -1.0))


REDUCTIONS = ["sum", "prod", "max", "min", "any", "all", "argmax", "argmin", "mean"]


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("dtype", ["i2", "f2"])
def test_reductions(cupy: Any, dtype: str, name: str) -> None:
    if name == "prod":
        x = np.ones((12, 20), dtype)
        x[2:5] = np.dtype(dtype).type(2) if dtype != "bool" else True
    else:
        x = numbers(dtype)
    a = cupy.asarray(x)
    exact = (np.dtype(dtype).kind in "biu" and name != "mean") or name in (
        "max",
        "min",
        "any",
        "all",
        "argmax",
        "argmin",
    )
    tolerance = {} if exact else {"rtol": 5e-3, "atol": 5e-3}
    with np.errstate(over="ignore"):
        for axis in (None, 0, 1):
            same(getattr(a, name)(axis=axis), getattr(x, name)(axis=axis), **tolerance)
        same(getattr(a.T[::2], name)(), getattr(x.T[::2], name)(), **tolerance)


@pytest.mark.parametrize("n", [1, 31, 32, 33, 511, 512, 513, 5000])
def test_reductions_of_any_size(cupy: Any, n: int) -> None:
    x = np.random.default_rng(n).integers(-100, 100, (3, n))
    a = cupy.asarray(x)
    same(a.sum(axis=1), x.sum(axis=1))
    same(a.sum(), x.sum())
    same(a.max(axis=0), x.max(axis=0))
    same(cupy.count_nonzero(a > 50), np.count_nonzero(x > 50))


@pytest.mark.parametrize("n", [1, 2, 31, 33, 256, 512, 513, 3000])
@pytest.mark.parametrize("dtype", ["i4", "f8"])
def test_scans(cupy: Any, dtype: str, n: int) -> None:
    x = np.random.default_rng(n).integers(-5, 9, n).astype(dtype)
    a = cupy.asarray(x)
    same(cupy.cumsum(a), np.cumsum(x))
    same(cupy.cumsum(a[::-2]), np.cumsum(x[::-2]))
    rows = np.stack([x, x[::-1], x + x.dtype.type(1)])
    same(cupy.cumsum(cupy.asarray(rows), axis=1), np.cumsum(rows, axis=1))
    same(cupy.cumsum(cupy.asarray(rows), axis=0), np.cumsum(rows, axis=0))


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 700), st.integers(0, 2**32))
def test_masks(cupy: Any, n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, mask = rng.integers(0, 1000, n), rng.random(n) < rng.random()
    a, m = cupy.asarray(x), cupy.asarray(mask)
    same(a[m], x[mask])
    same(m.nonzero()[0], mask.nonzero()[0])
    a[m] = 7
    x[mask] = 7
    same(a, x)
    a[~m] = cupy.arange((~mask).sum())
    x[~mask] = np.arange((~mask).sum())
    same(a, x)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_indices(cupy: Any, data: st.DataObject) -> None:
    shape = data.draw(st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(1, 5)))
    axis = data.draw(st.integers(0, 2))
    index = np.array(data.draw(st.lists(st.integers(-shape[axis], shape[axis] - 1), min_size=1, max_size=12)))
    x = np.arange(np.prod(shape), dtype="i4").reshape(shape)
    a, i = cupy.asarray(x), cupy.asarray(index)
    same(a.take(i, axis=axis), x.take(index, axis=axis))
    where = (slice(None),) * axis
    same(a[(*where, i)], x[(*where, index)])
    same(a[i % shape[0], ..., i % shape[2]], x[index % shape[0], ..., index % shape[2]])
    # Only once each: which of several wins is undefined.
    once = np.unique(index % shape[axis])
    a[(*where, cupy.asarray(once))] = -3
    x[(*where, once)] = -3
    same(a, x)


def test_made_arrays(cupy: Any) -> None:
    same(cupy.arange(7, 90, 3), np.arange(7, 90, 3))
    same(cupy.full((3, 4), 2.5, "f4"), np.full((3, 4), 2.5, "f4"))
    same(cupy.eye(4, 5, 1), np.eye(4, 5, 1))
    same(cupy.linspace(0, 1, 9), np.linspace(0, 1, 9), rtol=1e-15)
    x = numbers("f4")
    a = cupy.asarray(x)
    same(cupy.concatenate([a, a[:3]]), np.concatenate([x, x[:3]]))
    same(cupy.stack([a, a], 1), np.stack([x, x], 1))
    same(cupy.pad(a, 2), np.pad(x, 2))
    same(cupy.tile(a, (2, 1)), np.tile(x, (2, 1)))
    same(cupy.broadcast_to(a[:1], (5, 20)) + 1, np.broadcast_to(x[:1], (5, 20)) + 1)
    assert bool(cupy.array_equal(a, a.copy()))


def test_kernels_of_users(cupy: Any) -> None:
    x = numbers("f4")
    a = cupy.asarray(x)
    squares = cupy.ElementwiseKernel("T x, T y", "T z", "z = (x - y) * (x - y)", "squared_difference")
    same(squares(a, a[:1]), (x - x[:1]) ** 2)
    norm = cupy.ReductionKernel("T x", "T y", "x * x", "a + b", "y = sqrt(a)", "0", "norm")
    same(norm(a, axis=1), np.sqrt((x**2).sum(axis=1)), rtol=1e-5)
    raw = cupy.RawKernel(
        r"""
        extern "C" __global__ void reversed(const float *x, float *y, int n) {
            extern __shared__ float kept[];
            int i = blockIdx.x * blockDim.x + threadIdx.x;
            kept[threadIdx.x] = i < n ? x[i] : 0;
            __syncthreads();
            if (i < n) y[i] = kept[blockDim.x - 1 - threadIdx.x];
        }
        """,
        "reversed",
    )
    y = cupy.zeros(240, "f4")
    raw((4,), (60,), (a, y, np.int32(240)), shared_mem=240)
    same(y, x.reshape(4, 60)[:, ::-1].reshape(-1))
    module = cupy.RawModule(
        code="template <class T> __global__ void filled(T *x, T v) { x[threadIdx.x] = v; }",
        name_expressions=["filled<float>", "filled<long long>"],
    )
    module.get_function("filled<long long>")((1,), (5,), (z := cupy.zeros(6, "i8"), np.int64(9)))
    same(z, np.array([9] * 5 + [0]))


def test_warps_and_atomics(cupy: Any) -> None:
    x = np.arange(100, dtype="i4")
    kernel = cupy.RawKernel(
        r"""
        extern "C" __global__ void sums(const int *x, int *whole, int *rotated, unsigned *votes) {
            int mine = x[threadIdx.x], all = mine;
            for (int d = 16; d; d /= 2) all += __shfl_down_sync(~0u, all, d);
            if (threadIdx.x % 32 == 0) atomicAdd(whole, all);
            rotated[threadIdx.x] = __shfl_sync(~0u, mine, (threadIdx.x + 1) % 32);
            unsigned odd = __ballot_sync(~0u, mine & 1);
            if (threadIdx.x % 32 == 0) votes[threadIdx.x / 32] = odd;
        }
        """,
        "sums",
    )
    whole, rotated, votes = cupy.zeros((), "i4"), cupy.zeros(96, "i4"), cupy.zeros(3, "u4")
    kernel((1,), (96,), (cupy.asarray(x), whole, rotated, votes))
    same(whole, np.int32(x[:96].sum()))
    same(rotated, np.roll(x[:96].reshape(3, 32), -1, axis=1).reshape(-1))
    same(votes, np.full(3, 0xAAAAAAAA, "u4"))


# -- what a GPU would not do either


@pytest.mark.parametrize(("begin", "n"), [(-1, 4), (0, 61), (60, 1)])
def test_elements_outside_memory_are_faults(cupy: Any, cuda: HostCuda, begin: int, n: int) -> None:
    a = cupy.zeros(60, "f4")
    # CuPy's pool has it cut from 512 bytes.
    outside = cupy.ndarray(n, "f4", memptr=cupy.cuda.MemoryPointer(a.data.mem, a.data.ptr - a.data.mem.ptr + 4 * begin))
    outside += 1
    with pytest.raises(cupy.cuda.runtime.CUDARuntimeError, match="cudaErrorIllegalAddress"):
        cupy.cuda.runtime.deviceSynchronize()
    (note,) = cuda.notes()
    assert note.startswith("700 4 bytes at ")
    assert "cupy_add" in note


def test_memory_that_is_free_again_is_a_fault(cupy: Any, cuda: HostCuda) -> None:
    a = cupy.zeros(60, "f4")
    pointer = cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(a.data.ptr, 240, None), 0)
    del a
    stale = cupy.ndarray(60, "f4", memptr=pointer)
    stale += 1
    with pytest.raises(cupy.cuda.runtime.CUDARuntimeError, match="cudaErrorIllegalAddress"):
        cupy.cuda.runtime.deviceSynchronize()
    (note,) = cuda.notes()
    assert note.startswith("700 ")


def test_elements_that_are_not_aligned_are_faults(cupy: Any, cuda: HostCuda) -> None:
    a = cupy.zeros(60, "f4")
    odd = cupy.ndarray(3, "f4", memptr=a.data + 2)
    odd += 1
    with pytest.raises(cupy.cuda.runtime.CUDARuntimeError, match="cudaErrorMisalignedAddress"):
        cupy.cuda.runtime.deviceSynchronize()
    (note,) = cuda.notes()
    assert note.startswith("716 ")
    assert "not aligned to 4 bytes" in note


def test_memory_of_another_device_is_a_fault(cupy: Any, cuda: HostCuda) -> None:
    with cupy.cuda.Device(1):
        there = cupy.zeros(60, "f4")
        cupy.cuda.runtime.deviceSynchronize()
    kernel = cupy.RawKernel('extern "C" __global__ void one(float *x) { *x = 1; }', "one")
    kernel((1,), (1,), (np.uint64(there.data.ptr),))
    with pytest.raises(cupy.cuda.runtime.CUDARuntimeError, match="cudaErrorIllegalAddress"):
        cupy.cuda.runtime.deviceSynchronize()
    (note,) = cuda.notes()
    assert "on device 1, the kernel on device 0" in note


def test_threads_that_miss_a_barrier_are_a_fault(cupy: Any, cuda: HostCuda) -> None:
    text = """
    extern "C" __global__ void stuck() { if (threadIdx.x % 2) __syncthreads(); else __syncwarp(); __syncthreads(); }
    """
    cupy.RawKernel(text, "stuck")((1,), (64,), ())
    with pytest.raises(cupy.cuda.runtime.CUDARuntimeError, match="cudaErrorLaunchFailure"):
        cupy.cuda.runtime.deviceSynchronize()
    (note,) = cuda.notes()
    assert "wait for each other for ever" in note


def test_a_kernel_that_is_not_understood_says_so(cupy: Any, cuda: HostCuda, kernels: CupyKernels) -> None:
    kernel = cupy.RawKernel('extern "C" __global__ void odd(float *x) { asm_of_a_gpu(x); }', "odd")
    with pytest.raises(cupy.cuda.driver.CUDADriverError) as caught:
        kernel((1,), (1,), (cupy.zeros(1, "f4"),))
    assert caught.value.status == 209
    assert "asm_of_a_gpu" in kernels.refused.pop("odd")
    assert cuda.notes() == ["209 cuModuleGetFunction: no kernel odd"]
    with pytest.raises(cupy.cuda.driver.CUDADriverError) as caught:
        assert cupy.RawKernel('extern "C" __global__ void here() {}', "there").kernel
    assert caught.value.status == 500
    cuda.notes()


def test_a_kernel_is_compiled_once(cupy: Any, kernels: CupyKernels) -> None:
    x = cupy.zeros(3, "f4")
    text = 'extern "C" __global__ void once(float *x) { x[threadIdx.x] = 5; }'
    before = kernels.compiled + kernels.reused
    for _ in range(2):
        cupy.RawModule(code=text).get_function("once")((1,), (3,), (x,))
    same(x, np.full(3, 5, "f4"))
    assert kernels.compiled + kernels.reused == before + 1
