"""What a read will do, before anything is read."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..arrays.array import Array
from ..arrays.view import ArrayView
from ..display.text import readable_size
from ..errors import ArgumentError
from ..plan.selection import parse_basic

if TYPE_CHECKING:
    from ..arrays.read import Way

__all__ = ["ReadExplanation", "explain"]


@dataclass(frozen=True, slots=True)
class ReadExplanation:
    """What a read will do.

    Attributes
    ----------
    way
        The way it takes, from the table in the documentation, Architecture, "Ways of reading and writing": a row's
        name, with what the compiled loop reads (files, requests or batches of values); ``"device"`` for a device.
    decode_path
        How chunks are decoded, as ``array.decode_path``.
    chunks
        Number of chunks that are decoded; in shards, of inner chunks.
    values
        Number of stored values that hold them: files, objects or members of an archive.
    decoded_nbytes
        Bytes of these chunks, decoded.
    result_nbytes
        Bytes of the result.
    """

    way: Way
    decode_path: str
    chunks: int
    values: int
    decoded_nbytes: int
    result_nbytes: int

    @property
    def amplification(self) -> float:
        """Decoded bytes by bytes of the result; 0 for an empty result."""
        return self.decoded_nbytes / self.result_nbytes if self.result_nbytes else 0.0

    def __str__(self) -> str:
        return (
            f"{self.chunks} chunks in {self.values} stored values: {readable_size(self.decoded_nbytes)} are decoded "
            f"for a result of {readable_size(self.result_nbytes)}, {self.amplification:.1f} times as many\n"
            f"way: {self.way}\n"
            f"decoding: {self.decode_path}"
        )


def explain(array: Array | ArrayView, selection: Any = ...) -> ReadExplanation:
    """Say what ``array[selection]`` will do, without reading any chunk.

    Parameters
    ----------
    array
        An array of gzarr, or a view of one.
    selection
        Selection as for ``a[...]``; everything by default.

    Returns
    -------
    The way that the read takes, how many chunks of how many stored values it decodes, and their bytes. What a read to
    a device does is said by ``decode_path``.

    Raises
    ------
    ArgumentError
        If ``array`` is not an array of gzarr.
    SelectionError
        If the selection is invalid for the array, or has more chunks than one read can take.

    Examples
    --------
    >>> import gzarr, numpy as np
    >>> a = gzarr.create_array({}, data=np.zeros((100, 100), "u2"), chunks=(10, 50))
    >>> e = gzarr.explain(a, np.s_[:, 3])
    >>> e.chunks, e.decoded_nbytes, e.result_nbytes
    (10, 10000, 200)
    """
    if not isinstance(array, (Array, ArrayView)):
        raise ArgumentError(
            f"gzarr.explain takes an array of gzarr, not {type(array).__name__}; open it with gzarr.open"
        )
    rest, field = array._split_field(selection)
    parsed = parse_basic(rest, array.shape)
    way, chunks, values, decoded = array._reader.explain(parsed, field, on_host=array.device == "cpu")
    dtype = array.dtype if field is None else array.dtype[field]
    return ReadExplanation(
        way=way,
        decode_path=array.decode_path,
        chunks=chunks,
        values=values,
        decoded_nbytes=decoded,
        result_nbytes=math.prod(parsed.result_shape) * dtype.itemsize,
    )
