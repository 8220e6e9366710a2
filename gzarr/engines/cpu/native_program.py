"""A decoding program in the form that compiled code takes, shared by all jobs of an array."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from gzarr_kernels.operations import OPERATIONS
from gzarr_kernels.slots.decode import IN_PLACE, WORDS

from .. import kernels
from ..job_slots import elements_of

if TYPE_CHECKING:
    import numpy.typing as npt

    from ...codecs.codec import ArrayRepresentation
    from ...plan.decode_program import Program
    from ..job_slots import ChunkElements

    IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class NativeProgram:
    """A decoding program in the form that compiled code takes.

    Attributes
    ----------
    words
        int64, the operations as ``gzarr_kernels.decode`` reads them, and then the parameters of those with several,
        which have their addresses.
    operations
        Number of operations.
    chunk_nbytes
        Size of a decoded chunk in bytes.
    elements
        The elements of a decoded chunk.
    zeros
        int64 ``(max(k, 1),)``, zeros.
    fill
        uint8 ``(itemsize,)``, the fill value in native byte order, converted.
    """

    words: IntArray
    operations: int
    chunk_nbytes: int
    elements: ChunkElements
    zeros: IntArray
    fill: npt.NDArray[np.uint8]


def prepare(program: Program, chunk: ArrayRepresentation, fill_value: Any) -> NativeProgram:
    """Return a program in the form that compiled code takes."""
    words: list[int] = []
    for step in program.operations:
        nbytes = IN_PLACE if OPERATIONS[step.name].in_place else step.nbytes
        words += (
            kernels.operation(step.name, "decode"),
            nbytes,
            *(step.parameters if len(step.parameters) == 1 else (0,)),
        )
    one = np.zeros(1, chunk.dtype)
    if fill_value is not None:
        one[0] = fill_value
    return NativeProgram(
        words=_with_parameters(words, program),
        operations=len(program.operations),
        chunk_nbytes=math.prod(chunk.shape) * program.stored_itemsize,
        elements=elements_of(chunk, program)._replace(
            conversion=(program.conversion, program.stored_itemsize) if program.conversion else None
        ),
        zeros=np.zeros(max(len(chunk.shape), 1), np.int64),
        fill=one.view(np.uint8),
    )


def _with_parameters(words: list[int], program: Program) -> IntArray:
    """Return the words of operations, followed by the parameters of those with several."""
    several = [(i, step.parameters) for i, step in enumerate(program.operations) if len(step.parameters) > 1]
    result = np.array([*words, *(value for _, values in several for value in values)], np.int64)
    at = len(words)
    for i, values in several:
        result[WORDS * i + 2] = kernels.address(result) + 8 * at
        at += len(values)
    return result
