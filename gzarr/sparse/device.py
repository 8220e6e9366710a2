"""Entries on a device: gzarr's kernels choose columns and make rows dense, CuPy has the matrices.

Device kernels add nothing up: where the indices of a row do not ascend, two entries may be of one element, and the host
makes these rows dense.
"""

from __future__ import annotations

from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import numpy as np

from ..engines.cuda.uploads import uploaded
from ..errors import DeviceError
from ..installing import COMMANDS
from .entries import DenseTarget, Entries, joined_offsets, narrow_offsets
from .host import HostMemory, index_dtype
from .wanted import AS_STORED

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from ..arrays.outputs import DeviceResults, Results
    from .wanted import Scaling, Wanted

    IntArray = npt.NDArray[np.int64]

P = ParamSpec("P")
T = TypeVar("T")


def _with_its_device(method: Callable[Concatenate[DeviceMemory, P], T]) -> Callable[Concatenate[DeviceMemory, P], T]:
    """Make the device current while a method runs, and until its own arrays are gone.

    CuPy's ``MemoryAsyncPool`` frees memory of a default stream on that of the current device, which waits for no other.
    """

    @wraps(method)
    def run(self: DeviceMemory, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with self._device:
            return method(self, *args, **kwargs)

    return run


class DeviceMemory:
    """Entries in CuPy's arrays.

    Parameters
    ----------
    memory
        Memory of the results, on a device, with the caller's stream.
    """

    def __init__(self, memory: DeviceResults) -> None:
        self._memory = memory
        self._device = memory.device
        self._stream = memory.stream

    def kept_types(
        self, wanted: Wanted, indices: np.dtype[Any], values: np.dtype[Any]
    ) -> tuple[np.dtype[Any], np.dtype[Any]]:
        """Return the types that indices and values are read in: kernels convert nothing, and scale floats."""
        rounds = wanted.scaling and not np.can_cast(values, wanted.dtype)
        return index_dtype(indices), np.dtype(np.float64) if rounds else wanted.dtype

    @_with_its_device
    def narrowed(self, indices: Any, columns: int) -> Any:
        """Return indices as int32."""
        if indices.dtype == np.int32:
            return indices
        with self._stream:
            narrow = indices.astype(np.int32)
            if indices.dtype.itemsize > 4:
                narrow[indices.view(np.uint64) >= columns] = -1
        return narrow

    @_with_its_device
    def first_wrong(self, entries: Entries, columns: int) -> int:
        """Return the place of the first index that is no column, or -1."""
        if not self._flags(entries, columns)[0]:
            return -1
        return HostMemory().first_wrong(self._on_host(entries), columns)

    @_with_its_device
    def prepared(self, entries: Entries, wanted: Wanted) -> Entries:
        """Return entries with the wanted columns, scaled in place where that can be done by entry.

        It is known whether they ascend.
        """
        columns, indices = wanted.columns, entries.indices
        if columns is not None and not columns.have_table(len(indices)):
            columns, ranks = columns.ranked(self._device.to_host(indices, self._stream))
            indices = self._upload(ranks)
        entries = replace(entries, indices=indices, columns=columns, ascend=not self._flags(entries, 0)[1])
        scaling = wanted.scaling
        # Not before entries of one element are added up, if that rounds.
        if scaling and (entries.ascend or not (scaling.log1p or wanted.dtype.itemsize < 8)):
            self._scale(entries, scaling)
            return replace(entries, values=self._converted(entries.values, wanted.dtype), scaled=True)
        return entries

    @_with_its_device
    def taken(
        self, entries: Entries, wanted: Wanted, rows: IntArray | None = None, results: Results | None = None
    ) -> Entries:
        """Return the entries of some rows that are wanted."""
        from gzarr_kernels.device import sparse as k

        if wanted.scaling and not entries.scaled:
            with self._stream:
                entries = replace(entries, values=entries.values.copy())
            self._scale(entries, wanted.scaling)
            entries = replace(entries, values=self._converted(entries.values, wanted.dtype))
        if entries.columns is None and rows is None:
            return entries
        begins, ends = entries.bounds(rows)
        count = len(begins)
        job, word = _Job(entries, rows=rows), word_of(entries.values.dtype)
        blocks = k.blocks(-(-count // k.THREADS))
        offsets = np.zeros(count + 1, np.int64)
        address = self._device.address
        if entries.columns is None:
            np.cumsum(ends - begins, out=offsets[1:])
        elif entries.indices.size:
            sent = self._upload(job.words)
            self._launch(k.count_chosen, blocks, address(entries.indices), address(sent), 0)
            counts = self._device.to_host(sent[job.new : job.new + count], self._stream)
            np.cumsum(counts, out=offsets[1:])
        job.words[job.new : job.new + count] = offsets[:-1]
        indices = self._device.empty((int(offsets[-1]),), np.dtype(np.int32), self._stream)
        values = self._device.empty(indices.shape, entries.values.dtype, self._stream)
        if indices.size:
            sent = self._upload(job.words)
            parts = (entries.values, entries.indices, values, indices, sent)
            self._launch(k.take_chosen, blocks, *map(address, parts), 0, word=word)
        return Entries(offsets, indices, values)

    @_with_its_device
    def joined(self, parts: list[Entries]) -> Entries:
        """Return several parts as one."""
        if len(parts) == 1:
            return parts[0]
        import cupy

        with self._stream:
            indices = cupy.concatenate([part.indices for part in parts])
            values = cupy.concatenate([part.values for part in parts])
        return Entries(joined_offsets(parts), indices, values)

    def address(self, array: Any) -> int:
        """Return the address of an array's first element."""
        return self._device.address(array)

    @_with_its_device
    def densify(self, entries: Entries, wanted: Wanted, target: DenseTarget, rows: IntArray | None = None) -> None:
        """Write rows to dense arrays."""
        from gzarr_kernels.device import sparse as k

        count = len(target.addresses)
        if not count or not target.width:
            return
        word = word_of(entries.values.dtype)
        memory, first = self._device.flat(target.whole)
        base = self._device.address(target.whole) - first
        places = target.addresses - base
        is_scaled = entries.scaled or not wanted.scaling
        if not is_scaled or not entries.ascend or base % word or target.stride % word or (places % word).any():
            self._densify_on_host(entries, wanted, target, rows)
            return
        job = _Job(entries, (places // word, target.stride // word, target.width), rows)
        # What has no entries has no memory, and the kernel reads none.
        values = entries.values if entries.values.size else memory
        indices = entries.indices if entries.indices.size else memory
        parts = map(self._device.address, (values, indices))
        sent = self._upload(job.words)
        arguments = (*parts, base, self._device.address(sent), 0)
        self._launch(k.densify, k.blocks(count), *arguments, word=word)

    def _densify_on_host(self, entries: Entries, wanted: Wanted, target: DenseTarget, rows: IntArray | None) -> None:
        host = HostMemory()
        dense = np.empty((len(target.addresses), target.width), wanted.dtype)
        if entries.scaled:
            wanted = replace(wanted, scaling=AS_STORED)
        host.densify(self._on_host(entries), wanted, DenseTarget.of(dense, host.address), rows)
        whole = self._upload(dense)
        for i in range(len(dense)):
            self._memory.copy(target.row(i), whole[i])

    def _scale(self, entries: Entries, scaling: Scaling) -> None:
        """Scale values in place."""
        from gzarr_kernels.device import sparse as k

        if not entries.values.size:
            return
        job, word = _Job(replace(entries, columns=None)), word_of(entries.values.dtype)
        job.words[k.SCALING] = (scaling.total is not None) | scaling.log1p << 1
        job.words[k.TOTAL : k.TOTAL + 1].view(np.float64)[0] = 0.0 if scaling.total is None else scaling.total
        sent = self._upload(job.words)
        addresses = self._device.address(entries.values), self._device.address(sent)
        self._launch(k.scale_rows, k.blocks(-(-entries.rows // k.THREADS)), *addresses, 0, word=word)

    def _converted(self, values: Any, dtype: np.dtype[Any]) -> Any:
        if values.dtype == dtype:
            return values
        with self._stream:
            return values.astype(dtype)

    @_with_its_device
    def offsets(self, entries: Entries) -> Any:
        """Return the offsets on the device."""
        return self._upload(narrow_offsets(entries))

    @_with_its_device
    def matrix(self, entries: Entries, shape: tuple[int, int], form: str) -> Any:
        """Return a ``csr_array`` or ``csc_array`` of CuPy (before CuPy 14.1, a ``csr_matrix`` or ``csc_matrix``)."""
        import cupyx.scipy.sparse as sparse

        make = getattr(sparse, f"{form}_array", None) or getattr(sparse, f"{form}_matrix")
        offsets = self.offsets(entries)
        try:
            with self._stream:
                return make((entries.values, entries.indices, offsets), shape=shape, copy=False)
        except ImportError as error:
            raise DeviceError(
                f"sparse matrices on a GPU are CuPy's, which need cuSPARSE: {COMMANDS['cusparse-cu13']} (with CUDA 12, "
                f"{COMMANDS['cusparse-cu12']}) installs it; read_parts and to_dense do without it ({error})"
            ) from error

    def _flags(self, entries: Entries, columns: int) -> tuple[bool, bool]:
        """Return whether an index is no column, and whether a row's indices do not ascend."""
        from gzarr_kernels.device import sparse as k

        if not entries.values.size:
            return False, False
        job = _Job(replace(entries, columns=None))
        job.words[k.COLUMNS] = columns
        sent = self._upload(job.words)
        addresses = self._device.address(entries.indices), self._device.address(sent)
        self._launch(k.check_rows, k.blocks(entries.rows), *addresses, 0)
        wrong, unsorted = self._device.to_host(sent[job.flags : job.flags + 2], self._stream).tolist()
        return bool(wrong), bool(unsorted)

    def _on_host(self, entries: Entries) -> Entries:
        return replace(
            entries,
            indices=self._device.to_host(entries.indices, self._stream),
            values=self._device.to_host(entries.values, self._stream),
        )

    def _upload(self, words: npt.NDArray[Any]) -> Any:
        """Return a copy on the device, in order with the stream."""
        return uploaded(self._device, words, self._stream)

    def _launch(self, kernel: Any, blocks: int, *arguments: int, word: int = 0) -> None:
        from gzarr_kernels.device.target import THREADS

        self._device.launch(kernel, blocks, THREADS, self._stream, *arguments, word=word)


class _Job:
    """The columns of a kernel of ``gzarr_kernels.device.sparse``; its header is the first.

    Parameters
    ----------
    entries
        Entries of all rows, with the chosen columns.
    dense
        The word of each row's first element in dense results, the distance of its elements in words, and their number.
    rows
        int64 ``(n,)``, some rows; None for all.

    Attributes
    ----------
    words
        int64, all columns.
    flags, new
        Places of columns in them.
    """

    def __init__(
        self,
        entries: Entries,
        dense: tuple[IntArray, int, int] | None = None,
        rows: IntArray | None = None,
    ) -> None:
        from gzarr_kernels.device import sparse as k

        columns = entries.columns
        begins, ends = entries.bounds(rows)
        count = len(begins)
        self.flags: int = k.SIZE + 2 * count
        self.new: int = self.flags + 2
        chosen = self.new + count
        parts: list[npt.NDArray[Any]] = [np.zeros(k.SIZE, np.int64), begins, ends, np.zeros(2 + count, np.int64)]
        if columns is not None:
            parts += [columns.offsets, columns.places]
        if dense is not None:
            parts.append(dense[0])
        self.words: IntArray = np.concatenate(parts, dtype=np.int64)
        header = self.words[: k.SIZE]
        header[k.ROWS] = count
        header[k.BEGINS], header[k.ENDS] = k.SIZE, k.SIZE + count
        header[k.FLAGS], header[k.NEW] = self.flags, self.new
        header[k.CHOSEN_OFFSETS] = -1 if columns is None else chosen
        header[k.CHOSEN] = 0 if columns is None else chosen + len(columns.offsets)
        dtype = entries.values.dtype
        header[k.PER] = dtype.itemsize // word_of(dtype)
        if dtype.kind in "fc":
            header[k.MINUS_ZERO] = np.array(-0.0, f"f{word_of(dtype)}").view(f"u{word_of(dtype)}").astype(np.int64)
        if dense is not None:
            header[k.TARGETS] = sum(map(len, parts)) - count
            _, header[k.COLUMN_STRIDE], header[k.WIDTH] = dense


def word_of(dtype: np.dtype[Any]) -> int:
    """Return the bytes of the words in which values are moved: of each of the two floats of a complex number."""
    return dtype.itemsize // 2 if dtype.kind == "c" else min(dtype.itemsize, 8)
