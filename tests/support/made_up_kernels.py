"""Small kernels with one error each, or none: those that :mod:`kernel_ir_launch` detects, and those it does not.

Others call functions that are parts of gzarr's kernels.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gzarr_kernels.device.addressing import element_index, plane_index, shuffled_index, swap_in_word
from gzarr_kernels.device.addressing import swapped as swapped_index
from gzarr_kernels.device.target import body, kernel
from gzarr_kernels.device.words import divide
from numba import cuda, int64, uint64

if TYPE_CHECKING:
    from gzarr_kernels.device.addressing import Bytes, Column, Words

THREADS = 64


@kernel
def reversed_in_block(values: Column, out: Column, rounds: int) -> None:
    """Reverse each block's values, ``rounds`` times."""
    shared = cuda.shared.array(THREADS, int64)
    i = cuda.threadIdx.x
    value = values[cuda.grid(1)]
    for _ in range(rounds):
        shared[i] = value
        cuda.syncthreads()
        value = shared[THREADS - 1 - i]
        cuda.syncthreads()
    out[cuda.grid(1)] = value


@kernel
def reversed_without_the_first_barrier(values: Column, out: Column, rounds: int) -> None:
    shared = cuda.shared.array(THREADS, int64)
    i = cuda.threadIdx.x
    value = values[cuda.grid(1)]
    for _ in range(rounds):
        shared[i] = value
        value = shared[THREADS - 1 - i]
        cuda.syncthreads()
    out[cuda.grid(1)] = value


@kernel
def reversed_without_the_second_barrier(values: Column, out: Column, rounds: int) -> None:
    shared = cuda.shared.array(THREADS, int64)
    i = cuda.threadIdx.x
    value = values[cuda.grid(1)]
    for _ in range(rounds):
        shared[i] = value
        cuda.syncthreads()
        value = shared[THREADS - 1 - i]
    out[cuda.grid(1)] = value


@kernel
def some_skip_a_barrier(out: Column) -> None:
    if cuda.threadIdx.x != 3:
        cuda.syncthreads()
    out[cuda.grid(1)] = 1


@kernel
def barriers_apart(out: Column) -> None:
    if cuda.threadIdx.x < 5:
        cuda.syncthreads()
        out[cuda.grid(1)] = 1
    else:
        cuda.syncthreads()
        out[cuda.grid(1)] = 2


@kernel
def counted(out: Column, n: int) -> None:
    """Count to ``n`` in each thread, and store the sum of a block."""
    shared = cuda.shared.array(1, int64)
    if cuda.threadIdx.x == 0:
        shared[0] = 0
    cuda.syncthreads()
    for _ in range(n):
        cuda.atomic.add(shared, 0, 1)
    cuda.syncthreads()
    if cuda.threadIdx.x == 0:
        out[cuda.blockIdx.x] = shared[0]


@kernel
def counted_without_atomics(out: Column, n: int) -> None:
    shared = cuda.shared.array(1, int64)
    if cuda.threadIdx.x == 0:
        shared[0] = 0
    cuda.syncthreads()
    for _ in range(n):
        shared[0] += 1
    cuda.syncthreads()
    if cuda.threadIdx.x == 0:
        out[cuda.blockIdx.x] = shared[0]


@kernel
def shared_is_not_zero(out: Column) -> None:
    shared = cuda.shared.array(THREADS, int64)
    i = cuda.threadIdx.x
    out[cuda.grid(1)] = shared[i]
    shared[i] = 7
    cuda.syncthreads()


@kernel
def read_at(values: Words, out: Column, at: int) -> None:
    out[0] = values[at]


@kernel
def written_at(out: Bytes, at: int) -> None:
    out[at] = 1


@kernel
def mixed_signs(values: Words, out: Words, by: int) -> None:
    """Numba makes a float64 of a uint64 and an int64."""
    value = values[0]
    if by > 0:
        value = int64(value) + by
    out[0] = uint64(value)


@kernel
def one_sign(values: Words, out: Words, by: int) -> None:
    out[0] = values[0] + uint64(by)


@kernel
def shifted(values: Words, out: Words, by: int) -> None:
    out[0] = values[0] >> uint64(by)


@kernel
def summed(values: Words, out: Words, by: int) -> None:
    out[0] = int64(values[0]) + by


@body
def _counted_by(step: int) -> int:
    n = 0
    for _ in range(0, 12, step):
        n += 1
    return n


@kernel
def raising(values: Words, out: Words, by: int) -> None:
    """Raise for 0, which is not a valid step."""
    out[0] = values[0] + uint64(_counted_by(by))


@kernel
def wide(values: Words, out: Words) -> None:
    out[cuda.grid(1)] = values[cuda.grid(1)]


@kernel
def root(out: Column, of: int) -> None:
    out[0] = int64(math.sqrt(of))


@kernel
def shuffled(out: Column) -> None:
    out[cuda.grid(1)] = cuda.laneid


@kernel
def endless(out: Column) -> None:
    while out[0] == 0:
        cuda.syncthreads()


@kernel
def endless_alone(out: Column) -> None:
    i = 0
    while i >= 0:
        i = out[i]


@kernel
def quotient(values: Words, out: Words, by: int) -> None:
    out[0] = divide(values[0], by)


@kernel
def indices(where: Column, back: Column, typesize: int, blocksize: int, nbytes: int) -> None:
    """Return where each byte of shuffled blocks is; and, for all as one block, its index after going there and back."""
    i = cuda.grid(1)
    n = nbytes // typesize
    while i < nbytes:
        where[i] = shuffled_index(i, typesize, blocksize, nbytes)
        back[i] = element_index(plane_index(i, n, typesize), n, typesize)
        i += cuda.gridsize(1)


@kernel
def swapped(words: Words, out: Words, positions: Column, flip: int, swap: int) -> None:
    out[0] = swap_in_word(words[0], flip)
    for i in range(12):
        positions[i] = swapped_index(i, swap)
