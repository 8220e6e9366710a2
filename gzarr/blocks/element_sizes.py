"""Bytes of the elements of a call's inputs and outputs, by which blocks are chosen and memory is shared out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..arrays.element_size import OBJECT_NBYTES, element_nbytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from ..arrays.exporting import ExportedArray


@dataclass(frozen=True)
class ElementSizes:
    """Bytes of an element, found out once for a call.

    Attributes
    ----------
    inputs, outputs
        Of each input, and of each output.
    """

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    @classmethod
    def of(cls, inputs: Sequence[ExportedArray], outputs: Sequence[np.dtype[Any] | None]) -> ElementSizes:
        """Return the sizes for some inputs and outputs.

        Parameters
        ----------
        inputs
            The inputs.
        outputs
            Data type of each output; None if it follows the first block's result, which often has that of the input.
            Python objects in it are often those of an input, or made of them.
        """
        sizes = tuple(map(element_nbytes, inputs))
        pairs = zip(sizes, inputs, strict=True)
        objects = max((nbytes for nbytes, array in pairs if array.dtype.hasobject), default=OBJECT_NBYTES)
        known = [inputs[0].dtype if dtype is None else dtype for dtype in outputs]
        return cls(sizes, tuple(objects if dtype.hasobject else dtype.itemsize for dtype in known))
