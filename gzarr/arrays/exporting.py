"""Arrays as other libraries expect them: zarr-python's methods, NumPy's and DLPack's protocols, tensors."""

from __future__ import annotations

from operator import length_hint
from typing import TYPE_CHECKING, Any

import numpy as np

from ..engines.cuda.devices import get_device
from ..errors import ArgumentError, DeviceError
from ..plan.selection import parse_basic, parse_blocks, parse_orthogonal
from ..plugins import integration
from .reading import WHOLE, ReadableArray
from .zarr_selections import Fields, check_fields, parse_coordinates, parse_mask

if TYPE_CHECKING:
    from collections.abc import Iterator

    import jax
    import numpy.typing as npt
    import torch

    from ..engines.access.access import Missing, Verify
    from ..plan.selection import Selection
    from .read_options import Decode


class Writes:
    """What the objects for one array that share this know of each other's writes.

    Attributes
    ----------
    latest
        Stands for the last write: another object after each one. No count, of which threads could lose some.
    """

    __slots__ = ("latest",)

    def __init__(self) -> None:
        self.latest: object = object()


class ExportedArray(ReadableArray):
    """The part of :class:`gzarr.Array` that other libraries use."""

    __slots__ = ()

    # -- reading as in zarr-python

    def get_basic_selection(self, selection: Any = WHOLE, *, out: Any = None, fields: Fields = None) -> Any:
        """Read integers and slices, as ``a[selection]`` does; zarr-python's name for it.

        Parameters
        ----------
        selection
            Selection as for ``a[...]``, without names of fields.
        out
            Array of the result's shape and dtype, as for :meth:`read`. That method, and the ``read`` of ``a.oindex``,
            ``a.vindex`` and ``a.blocks``, also take a stream and other options.
        fields
            Name of a field of a structured dtype, for elements of that field; or a sequence of names, for records of
            these fields in this order.

        Returns
        -------
        ``out``, or a new array on the array's device; a scalar where ``a[...]`` returns one.

        Raises
        ------
        SelectionError
            If the selection is invalid for the array, or there is no such field.
        OutputError, DeviceError, ChunkError
            As for :meth:`read`.
        """
        return self._get(parse_basic(selection, self.shape), out, fields)

    def get_orthogonal_selection(self, selection: Any, *, out: Any = None, fields: Fields = None) -> Any:
        """Read indices of each dimension independently, as ``a.oindex[selection]`` does.

        Parameters
        ----------
        selection
            Integers, slices, integer arrays and masks, at most one for each dimension, and at most one ``...``.
        out, fields
            As for :meth:`get_basic_selection`; so are the result and the errors.
        """
        return self._get(parse_orthogonal(selection, self.shape), out, fields)

    def get_coordinate_selection(self, selection: Any, *, out: Any = None, fields: Fields = None) -> Any:
        """Read elements by their coordinates, as ``a.vindex[selection]`` does.

        Parameters
        ----------
        selection
            Integer arrays, one for each dimension, which broadcast to the result's shape.
        out, fields
            As for :meth:`get_basic_selection`; so are the result and the errors.
        """
        return self._get(parse_coordinates(selection, self.shape), out, fields)

    def get_mask_selection(self, mask: Any, *, out: Any = None, fields: Fields = None) -> Any:
        """Read the elements where a mask is true, as ``a.vindex[mask]`` does.

        Parameters
        ----------
        mask
            Boolean array of the array's shape.
        out, fields
            As for :meth:`get_basic_selection`; so are the errors and the result, which has one dimension.
        """
        return self._get(parse_mask(mask, self.shape), out, fields)

    def get_block_selection(self, selection: Any, *, out: Any = None, fields: Fields = None) -> Any:
        """Read whole chunks (shards, in a sharded array) of the grid, as ``a.blocks[selection]`` does.

        Parameters
        ----------
        selection
            Grid indices of chunks (shards): integers and slices with step 1.
        out, fields
            As for :meth:`get_basic_selection`; so are the result and the errors.
        """
        return self._get(self._parse_blocks(selection, self.shape), out, fields)

    def _get(self, selection: Selection, out: Any, fields: Fields) -> Any:
        names = check_fields(fields, self.dtype)
        options = self._read_options(None, None, None, "auto", None)
        if isinstance(names, tuple):
            records = self._read(selection, None, None, options)
            dtype = np.dtype([(name, self.dtype[name]) for name in names])
            result = self._output(records.shape, dtype, out, options.memory)
            for name in names:
                options.memory.copy(result[name], records[name])
        else:
            result = self._read(selection, names, out, options)
        return result if result.shape or out is not None else result[()]

    def _parse_blocks(self, selection: Any, shape: tuple[int, ...]) -> Selection:
        return parse_blocks(selection, self._metadata.chunk_grid)

    # -- reading to other libraries

    def to_torch(
        self,
        selection: Any = WHOLE,
        *,
        missing: Missing | None = None,
        budget_bytes: int | None = None,
        decode: Decode = "auto",
        verify: Verify | None = None,
    ) -> torch.Tensor:
        """Read a selection as ``a[selection]`` does, to a tensor of PyTorch.

        The tensor has the memory that the elements are read to: nothing is copied, whatever the data type. A read to a
        GPU runs on PyTorch's current stream.

        Parameters
        ----------
        selection
            Selection as for ``a[...]``; everything by default.
        missing, budget_bytes, decode, verify
            As for :meth:`read`.

        Returns
        -------
        New tensor on the array's device, of the selection's shape (without dimensions where ``a[...]`` returns a
        scalar) and the array's dtype, in native byte order; bfloat16 and float8 included.

        Raises
        ------
        ArgumentError
            If PyTorch is not installed, or has no such elements: dates, durations, strings, records, numbers of less
            than 8 bits. Nothing was read.
        DeviceError
            If the array is on a GPU that PyTorch cannot use.
        SelectionError, ChunkError, MemoryError
            As for :meth:`read`.
        """
        return integration("torch").to_torch(
            self, selection, missing=missing, budget_bytes=budget_bytes, decode=decode, verify=verify
        )

    def to_jax(
        self,
        selection: Any = WHOLE,
        *,
        missing: Missing | None = None,
        budget_bytes: int | None = None,
        decode: Decode = "auto",
        verify: Verify | None = None,
    ) -> jax.Array:
        """Read a selection as ``a[selection]`` does, to an array of JAX.

        In host memory, the result has the memory that the elements are read to, unless JAX has to change them or, for
        less than 64 KiB, dislikes its alignment. On a GPU it is a copy, made when the call returns.

        Parameters
        ----------
        selection, missing, budget_bytes, decode, verify
            As for :meth:`to_torch`.

        Returns
        -------
        New array on the array's device, of the selection's shape (without dimensions where ``a[...]`` returns a scalar)
        and the array's dtype, in native byte order, bfloat16 and the like included; 64-bit numbers become 32-bit ones
        if ``jax_enable_x64`` is not set.

        Raises
        ------
        ArgumentError
            If JAX is not installed, or has no such elements: dates, durations, strings, records. Nothing was read.
        DeviceError
            If the array is on a GPU that JAX cannot use.
        SelectionError, ChunkError, MemoryError
            As for :meth:`read`.

        Warns
        -----
        UserWarning
            If JAX makes 32-bit numbers of 64-bit ones.
        """
        options: dict[str, Any] = {"missing": missing, "budget_bytes": budget_bytes, "decode": decode, "verify": verify}
        # Warnings show the caller's line.
        return integration("jax").to_jax(self, selection, stacklevel=3, **options)

    # -- reading all of it

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """Read the whole array, for ``np.asarray``."""
        if self.device != "cpu":
            raise DeviceError(
                f"the array reads to {self.device}; NumPy needs host memory: open it with device='cpu', or take "
                "a[...].get(); for an array on the device, take a[...] or cupy.from_dlpack(a)"
            )
        if copy is False:
            raise ArgumentError("an array in a store cannot become a NumPy array without copying it")
        return self.read(dtype=dtype)  # type: ignore[no-any-return]

    def __dlpack__(self, *, copy: bool | None = None, **kwargs: Any) -> Any:
        """Read the whole array and export it; see the Python array API standard.

        Raises
        ------
        BufferError
            If ``copy`` is False: what is read is a copy of what is stored.
        DeviceError, ChunkError
            As for :meth:`read`.
        """
        if copy is False:
            raise BufferError("an array in a store cannot be exported without copying it; leave out copy=False")
        # What was just read is nobody else's, so it is the copy.
        if self.device == "cpu":
            return self.read().__dlpack__(**kwargs)
        # CuPy has the consumer wait for the current stream of the thread's device, whichever the array's is.
        with get_device(self.device):
            return self.read().__dlpack__(**kwargs)

    def __dlpack_device__(self) -> tuple[Any, Any]:
        """Device that :meth:`__dlpack__` exports from: ``(1, 0)`` for the CPU, ``(2, N)`` for ``cuda:N``."""
        return (1, 0) if self.device == "cpu" else (2, int(self.device.removeprefix("cuda:")))

    def synchronize(self, stream: Any = None) -> None:
        """Wait until all results of reads on a stream of the array's device are complete; at once on the CPU.

        Results are ready in the order of their stream. This is for those who use them elsewhere: in another thread that
        has another current stream, or in a library that knows no streams.

        Parameters
        ----------
        stream
            As for :meth:`read`; None for CuPy's current stream.

        Raises
        ------
        DeviceError
            If the device fails, or was lost to this process.
        """
        if self.device != "cpu":
            device = get_device(self.device)
            with device:
                device.as_stream(stream).synchronize()

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("an array of zero dimensions has no length")
        return self.shape[0]

    def __bool__(self) -> bool:
        # As in zarr-python. Without it, the length would tell, which some arrays lack.
        return True

    def __iter__(self) -> Iterator[Any]:
        if not self.shape:
            raise TypeError("an array of zero dimensions cannot be iterated over")
        return self._rows()

    def _rows(self) -> Iterator[Any]:
        # One row of chunks at a time: each chunk is decoded once, and memory stays bounded.
        step = max(self.chunks[0], 1)
        length, writes = self.shape[0], self._known_writes()
        if writes is None:
            for begin in range(0, length, step):
                yield from self[begin : begin + step]
            return
        begin, ahead = 0, step
        # The loop may also shorten the array.
        while begin < min(length, self.shape[0]):
            end = min(begin + ahead, begin - begin % step + step, length)
            latest = writes.latest
            rows = self[begin:end]
            # Iterators of CuPy do not tell how many rows are left.
            left = iter(rows if isinstance(rows, np.ndarray) else list(rows))
            ahead = min(2 * ahead, step)
            for row in left:
                yield row
                if writes.latest is not latest:
                    # What was read ahead may be old, and if the loop writes to every row, will be old again.
                    ahead = 1
                    break
            begin += len(rows) - length_hint(left)

    def _known_writes(self) -> Writes | None:
        """Return what is known of writes to the elements; None if nothing that is known here can write."""
        return None
