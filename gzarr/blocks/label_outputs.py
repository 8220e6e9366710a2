"""Outputs of labels: their data types, and the pass that writes them."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..arrays.exporting import ExportedArray
from ..documents.json import quote
from ..errors import ArgumentError
from ..stores.places import place_of
from .outputs import NewOutput, Output

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from .calls import PlannedCall
    from .members import ObjectNumbers
    from .work import BlockWork

_TYPES: Final = (np.dtype(np.uint32), np.dtype(np.uint64))


def label_output(out: Any, dtype: Any, *, resume: bool) -> Output:
    """Return the output for labels; refuse one that cannot hold them.

    Parameters
    ----------
    out, dtype
        Arguments of :func:`gzarr.blocks.label`.
    resume
        Whether it says which blocks are done.

    Raises
    ------
    ArgumentError
        If so.
    """
    output = out if isinstance(out, Output) else Output(out)
    if any(value is not None for value in (output.scale, output.drop_axis, output.new_axis)):
        raise ArgumentError("labels have the shape of the input: leave scale=, drop_axis= and new_axis= of Output out")
    given = dtype if output.dtype is None else output.dtype
    wanted = _dtype_of(given)
    if wanted is None or wanted not in _TYPES:
        raise ArgumentError(f"dtype must be 'uint32' or 'uint64', for labels, not {quote(given)}")
    if resume and (output.target is None or isinstance(output.target, np.ndarray)):
        raise ArgumentError("resume=True needs an output that is stored: pass an array or a store as out=")
    own = getattr(output.target, "dtype", None)
    if own is not None and ((found := _dtype_of(own)) is None or found.kind not in "iu"):
        raise ArgumentError(f"out= has elements of {own}; labels are integers of NumPy")
    return replace(output, dtype=wanted)


def _dtype_of(given: Any) -> np.dtype[Any] | None:
    """Return a data type; None for what is none of NumPy, as those of tensors."""
    try:
        found: np.dtype[Any] = np.dtype(given)
    except (TypeError, ValueError):
        return None
    return found


def check_output(call: PlannedCall) -> None:
    """Refuse an output that holds no integers, and one that is an input: that is read again.

    Raises
    ------
    ArgumentError
        If it is.
    """
    for output in call.outputs:
        if isinstance(output, ExportedArray) and output.dtype.kind not in "iu":
            raise ArgumentError(f"{output.name} has elements of {output.dtype}; labels are integers")
        for array in call.inputs:
            if isinstance(output, ExportedArray) and place_of(output.store, output.path).overlaps(
                place_of(array.store, array.path)
            ):
                raise ArgumentError(
                    f"{array.name} in {array.store!r} is read again when labels are written; write to another array"
                )


def finish(
    call: PlannedCall, work: BlockWork, numbers: ObjectNumbers | None, executor: Executor | None, *, progress: bool
) -> Any:
    """Write labels to the output, and return it.

    Parameters
    ----------
    call
        What was asked for.
    work
        The work that writes.
    numbers
        The final numbers; None if there are no elements.
    executor, progress
        As for :class:`BlockWork`.

    Raises
    ------
    ArgumentError
        If the output cannot hold the numbers; nothing was written.
    """
    output = call.outputs[0]
    if numbers is not None:
        # An array that is created has the type that was wanted.
        numbers.check_fits(np.dtype(output.data_type if isinstance(output, NewOutput) else output.dtype))
    stored = isinstance(output, ExportedArray)
    with closing(work.values(call.done(work) if stored else None, executor, progress=progress)) as values:
        for _ in values:
            pass
    (answer,) = call.answers(work)
    return answer
