"""The errors that running kernels from their IR detects, shown by small kernels with one error each."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support import made_up_kernels as m
from support.cuda_on_host import kernels
from support.cuda_on_host.kernels import CannotRunError
from support.guarded_memory import Guarded
from support.kernel_ir_launch import KernelFaultError, launch, prepare

if TYPE_CHECKING:
    from pathlib import Path

BLOCKS = 5


def int64s(n: int, value: int = 0) -> np.ndarray[Any, Any]:
    return np.full(n, value, np.int64)


def reversed_by(kernel: Any, rounds: int, seed: int) -> bool:
    """Return whether a kernel reverses the values of each block, an odd number of times."""
    values = np.arange(BLOCKS * m.THREADS)
    out = int64s(values.size)
    launch(kernel, values, out, rounds, blocks=BLOCKS, threads=m.THREADS, seed=seed)
    return bool(np.array_equal(out.reshape(BLOCKS, -1), values.reshape(BLOCKS, -1)[:, ::-1]))


def test_threads_wait_for_each_other_at_barriers() -> None:
    assert all(reversed_by(m.reversed_in_block, 11, seed) for seed in range(5))


@pytest.mark.parametrize("kernel", [m.reversed_without_the_first_barrier, m.reversed_without_the_second_barrier])
def test_a_missing_barrier_shows(kernel: Any) -> None:
    assert not all(reversed_by(kernel, 101, seed) for seed in range(5))


@pytest.mark.parametrize("kernel", [m.some_skip_a_barrier, m.barriers_apart])
def test_threads_that_wait_apart_are_a_fault(kernel: Any) -> None:
    with pytest.raises(KernelFaultError, match="wait at different barriers"):
        launch(kernel, int64s(128), blocks=2, threads=64)


def test_atomic_operations_are_and_others_are_not() -> None:
    out = int64s(BLOCKS)
    launch(m.counted, out, 100, blocks=BLOCKS, threads=50)
    assert out.tolist() == [50 * 100] * BLOCKS
    lost = []
    for seed in range(5):
        launch(m.counted_without_atomics, out, 100, blocks=BLOCKS, threads=50, seed=seed)
        lost.append(50 * 100 * BLOCKS - sum(out))
    assert min(lost) > 0


def test_shared_memory_is_of_a_block_and_not_zero() -> None:
    out = int64s(BLOCKS * m.THREADS)
    launch(m.shared_is_not_zero, out, blocks=BLOCKS, threads=m.THREADS)
    assert set(out.view(np.uint64)) == {0xDBDBDBDBDBDBDBDB}


@pytest.mark.parametrize("code", ["B", "H", "I", "L"])
def test_one_element_outside_is_a_fault(code: str) -> None:
    values, out = np.arange(48).astype(code), int64s(2)
    for at in (0, 47):
        launch(m.read_at, values, out, at, blocks=1, threads=1)
        assert out[0] == at
    for at in (-1, 48):
        with pytest.raises(KernelFaultError, match=r"thread 0 of block 0: 0x\w+ is outside its memory: %.* = load i"):
            launch(m.read_at, values, out, at, blocks=1, threads=1)


def test_a_write_outside_of_memory_of_any_size_is_a_fault() -> None:
    for nbytes in (1, 3, 4095, 4096, 4097):
        with pytest.raises(KernelFaultError, match=r"written_at, 1 blocks of 1 threads: .* 0x.* is outside its memory"):
            launch(m.written_at, Guarded(nbytes).array, nbytes, blocks=1, threads=1)


def test_memory_is_shared_by_the_arrays_that_overlap() -> None:
    memory = np.arange(64, dtype=np.uint8)
    launch(m.wide, memory.view(np.uint64), memory[8:].view(np.uint64), blocks=1, threads=1)
    assert memory.tolist() == [*range(8), *range(8), *range(16, 64)]


def test_mixed_signs_are_floats() -> None:
    values, out = np.array([2**60], np.uint64), np.zeros(1, np.uint64)
    launch(m.one_sign, values, out, 1, blocks=1, threads=1)
    assert out[0] == 2**60 + 1
    launch(m.mixed_signs, values, out, 1, blocks=1, threads=1)
    assert out[0] == 2**60


@pytest.mark.parametrize(
    ("kernel", "value", "fine", "wrong", "words"),
    [
        (m.shifted, 1 << 40, 63, 64, "a shift by 64 bits: .* lshr"),
        (m.shifted, 1 << 40, 0, -1, "a shift by -1 bits: .* lshr"),
        (m.summed, 2**63 - 2, 1, 2, "a signed number overflows: .* add nsw"),
        (m.raising, 7, 1, 0, "it raises"),
        (m.quotient, 7, 1, 0, "divided by zero, .* udiv"),
    ],
)
def test_undefined_arithmetic_is_a_fault(kernel: Any, value: int, fine: int, wrong: int, words: str) -> None:
    values, out = np.array([value], np.uint64), np.zeros(1, np.uint64)
    launch(kernel, values, out, fine, blocks=1, threads=1)
    with pytest.raises(KernelFaultError, match=words):
        launch(kernel, values, out, wrong, blocks=1, threads=1)


@pytest.mark.parametrize("code", ["H", "I", "L"])
def test_words_at_other_addresses_than_their_multiples_are_a_fault(code: str) -> None:
    nbytes = np.dtype(code).itemsize
    memory = Guarded(4 * nbytes + 1).array
    whole, out = memory[:-1].view(code), np.zeros(4, code)
    with pytest.raises(KernelFaultError, match=f"not have the alignment .* align {nbytes}"):
        launch(m.wide, whole, out, blocks=2, threads=2)
    with pytest.raises(KernelFaultError, match=f"not have the alignment .* align {nbytes}"):
        launch(m.wide, out, whole, blocks=2, threads=2)


@pytest.mark.parametrize(("kernel", "arguments", "name"), [(m.root, (4,), "__nv_sqrt"), (m.shuffled, (), "laneid")])
def test_what_cannot_be_exchanged_is_named(kernel: Any, arguments: Any, name: str) -> None:
    with pytest.raises(CannotRunError, match=name):
        launch(kernel, int64s(64), *arguments, blocks=1, threads=1)


@pytest.mark.parametrize("kernel", [m.endless, m.endless_alone])
def test_a_kernel_that_does_not_end_is_a_fault(kernel: Any) -> None:
    with pytest.raises(KernelFaultError, match=r"not ended after 0.1 s"):
        launch(kernel, int64s(1), blocks=1, threads=2, limit=0.1)


def test_kernels_are_found_by_their_ptx() -> None:
    ptx = kernels.gzarr_programs().programs["place_rows"].ptx
    (entry,) = kernels.entries(ptx)
    found = kernels.find(ptx.encode(), entry)
    assert found is not None
    assert list(found.parameter_nbytes)[: found.n_parameters] == [8] * 5
    assert kernels.find(ptx.encode(), f"{entry}_") is None
    with pytest.raises(CannotRunError, match="is in PTX other than that of"):
        kernels.find(ptx.replace("sm_80", "sm_90").encode(), entry)
    # What is not gzarr's is looked for elsewhere.
    other = prepare("support.made_up_kernels").programs["counted"].ptx
    (entry,) = kernels.entries(other)
    assert kernels.find(other.encode(), entry) is None


def test_the_builds_used_last_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_CACHE", tmp_path)
    names = [f"{what}{i}" for i in range(8) for what in ("", "ir-")]
    for i, name in enumerate(names):
        (tmp_path / name / "inside").mkdir(parents=True)
        os.utime(tmp_path / name, (i, i))
    (tmp_path / "7.new").mkdir()
    (tmp_path / "lock").touch()
    kernels._remove_old()
    assert {path.name for path in tmp_path.iterdir()} == {*names[4:], "lock"}
