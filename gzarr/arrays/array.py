"""Zarr arrays: reading, writing, changing the shape."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, ClassVar, Literal, SupportsIndex, cast

from ..choices import choice
from ..dtypes.properties import is_in_cupy
from ..engines.cuda.devices import available
from ..flags import check_flags, optional_flag
from ..plan.selection import parse_orthogonal, parse_points
from ..stores.same_values import have_same_values
from . import resize
from .device_choice import resolve_device
from .exporting import Writes
from .index import Indexer
from .read import Reader
from .read_options import check_missing, check_verify
from .view import ViewIndexer
from .write import Writer
from .write_options import WriteOptions
from .writing import WritableArray

if TYPE_CHECKING:
    import numpy as np

    from ..engines.access.access import Missing, Verify
    from ..integers import EachAxis
    from ..metadata.model import ArrayMetadata
    from ..stores.base import ReadableStore, Store


class Array(WritableArray):
    """A Zarr array, read to one device.

    Open one with :func:`gzarr.open_array`. Its properties cost no store request, except those that
    count stored chunks.

    Parameters
    ----------
    metadata
        Metadata of the array.
    store
        Store that holds the chunks.
    path
        Path of the node in the store, without leading slash; ``""`` for the root.
    device
        Device of the results: ``"auto"``, ``"cpu"``, ``"cuda"`` or ``"cuda:N"``.
    missing
        Meaning of an absent chunk: ``"fill"`` (the fill value) or ``"error"``.
    verify
        Check of chunks before a GPU decodes them: ``"cpu"`` or ``"none"``; see :meth:`read`.
    mode
        ``"r"`` (read) or ``"r+"`` (read and write).
    write_empty_chunks
        Whether chunks that hold only the fill value are stored when they are written; if not, they are erased. None for
        False, and for True where the fill value is ``null`` in a format before 3: it says nothing of absent chunks.

    Raises
    ------
    DeviceError
        If the device cannot be used.
    ArgumentError
        If ``device``, ``missing``, ``verify`` or ``mode`` is none of the above.
    """

    __slots__ = ()

    def __init__(
        self,
        metadata: ArrayMetadata,
        store: ReadableStore,
        path: str,
        *,
        device: str = "auto",
        missing: Missing = "fill",
        verify: Verify = "none",
        mode: Literal["r", "r+"] = "r",
        write_empty_chunks: bool | None = None,
    ) -> None:
        mode = choice("mode", mode, ("r", "r+"))
        self._metadata = metadata
        self._store = store
        self._path = path
        self._auto = device == "auto"
        self._device = _device_for(device, metadata.dtype)
        self._missing = check_missing(missing)
        self._verify = check_verify(verify)
        self._mode = mode
        self._reader = Reader(metadata, store, path, self._device)
        # Never used if the store is read-only.
        self._writes = Writes()
        empty = optional_flag("write_empty_chunks", write_empty_chunks)
        self._writer = Writer(metadata, cast("Store", store), path, write_empty_chunks=empty)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Array):
            return NotImplemented
        same = (self._path, self.device) == (other._path, other.device)
        return same and have_same_values(self._store, other._store)

    __hash__: ClassVar[None] = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        make = functools.partial(
            _unpickled,
            device=self._device,
            auto=self._auto,
            missing=self._missing,
            verify=self._verify,
            mode=self._mode,
            write_empty_chunks=self._writer.write_empty_chunks,
        )
        return make, (self._metadata, self._store, self._path)

    @property
    def oindex(self) -> Indexer:
        """Orthogonal selection: ``a.oindex[[0, 5], :, mask]`` takes each dimension's indices independently."""
        return Indexer(self, parse_orthogonal, "oindex")

    @property
    def vindex(self) -> Indexer:
        """Point selection: ``a.vindex[[0, 5], [1, 2]]`` takes elements (0, 1) and (5, 2); also takes a mask."""
        return Indexer(self, parse_points, "vindex")

    @property
    def view(self) -> ViewIndexer:
        """Parts that are read later, where arrays are taken: ``a.view[0, :, 10:90]`` is an :class:`ArrayView`."""
        return ViewIndexer(self)

    @property
    def blocks(self) -> Indexer:
        """Selection of whole chunks (shards, in a sharded array) by grid index: ``a.blocks[0, 1:3]``."""
        return Indexer(self, self._parse_blocks, "blocks")

    # -- changing its shape

    def resize(self, shape: EachAxis, *, erase: bool = True, lock: bool = False) -> None:
        """Change the shape. No chunk is moved; new elements have the fill value.

        Even if the call is interrupted, the array has either the old shape or the new one, and its elements keep their
        values. What an interrupted call, or another program, has left beyond the shape is erased before the array
        grows: chunks there are looked for, and those at the edge are read if it cuts them.

        Parameters
        ----------
        shape
            New shape in elements, with the same number of dimensions.
        erase
            Whether stored elements outside the new shape are erased: whole chunks (shards), and parts of the chunks at
            its edge. If False, they stay in the store and reappear when the array grows, through this object or with
            ``erase=False``. Writes through this object keep them; other objects (of another process, from a pickle)
            do not know of them, and may erase those in a chunk that they overwrite. Not possible with a chunk grid from
            another package, nor in Icechunk, which has no chunks outside the shape.
        lock
            Whether to exclude other processes that also pass ``lock=True``, by a file lock beside the data.

        Raises
        ------
        ReadOnlyError
            If the array is read-only; nothing was touched.
        ArgumentError
            If ``shape`` is invalid or has another number of dimensions, or if the array was replaced by another node
            since it was opened; nothing was changed.
        NodeNotFoundError
            If the array no longer exists.
        StoreError, ChunkError
            If the store fails. If it fails during erasure, the array already has its new shape.
        """
        self._check_writable()
        check_flags(erase=erase, lock=lock)
        resize.resize(self, shape, erase=erase, lock=lock)

    def append(
        self,
        value: Any,
        axis: SupportsIndex = 0,
        *,
        lock: bool = False,
        fill_masked: bool = False,
        budget_bytes: int | None = None,
    ) -> tuple[int, ...]:
        """Append ``value`` along an axis.

        The elements are written before the shape, so readers never see an array without some of its elements, and a
        failed or interrupted call leaves the array as it was. Elements that others have appended meanwhile stay:
        ``value`` follows them. The cost depends on the size of ``value``, not on that of the array.

        Parameters
        ----------
        value
            Array of any kind that :meth:`write` takes, of the array's shape except for the length along ``axis``.
        axis
            Axis to append along; negative values count from the last axis.
        lock
            Whether to exclude other processes that also pass ``lock=True``, by a file lock beside the data. Without
            it, only one process at a time may append.
        fill_masked, budget_bytes
            As for :meth:`write`.

        Returns
        -------
        The new shape, in elements.

        Raises
        ------
        ReadOnlyError, ArgumentError, DeviceError, MemoryError, ChunkWriteError, ChunkReadError, ChunkDecodeError
            As for :meth:`write`; the shape is unchanged.
        NodeNotFoundError, StoreError
            As for :meth:`resize`.
        """
        self._check_writable()
        check_flags(lock=lock, fill_masked=fill_masked)
        options = WriteOptions(lock=lock, fill_masked=fill_masked, budget_bytes=budget_bytes)
        return resize.append(self, value, axis, options)


def _device_for(device: str, dtype: np.dtype[Any]) -> str:
    """Resolve ``device`` for elements of a dtype: ``"auto"`` is a device that can hold them."""
    resolved = resolve_device(device)
    if device != "auto" or resolved == "cpu" or is_in_cupy(dtype):
        return resolved
    return "cpu"


def _unpickled(
    metadata: ArrayMetadata, store: ReadableStore, path: str, *, device: str, auto: bool, **options: Any
) -> Array:
    """Restore a pickled array on its device; if ``"auto"`` had chosen that, on the CPU where CUDA is unavailable."""
    array = Array(metadata, store, path, device="cpu" if auto and not available() else device, **options)
    array._auto = auto
    return array
