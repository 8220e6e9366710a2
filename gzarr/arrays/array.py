"""An array of a store: reading it, writing it, changing its shape."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Literal, cast

from ..dtypes.properties import is_in_cupy
from ..engines.cuda.devices import available
from ..errors import ArgumentError
from ..plan.selection import parse_orthogonal, parse_points
from . import resize
from .device_choice import resolve_device
from .index import Indexer
from .read import Reader
from .read_options import check_missing, check_verify
from .write import Writer
from .writing import WritableArray

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from ..engines.request import Missing, Verify
    from ..metadata.model import ArrayMetadata
    from ..stores.base import ReadableStore, Store


class Array(WritableArray):
    """An array of a store, read on one device.

    Open one with :func:`gzarr.open_array`. Its properties cost no store request, except those that
    count stored chunks.

    Parameters
    ----------
    metadata
        Metadata of the array.
    store
        Store of its chunks.
    path
        Path of the node in the store, without leading slash; ``""`` for the root.
    device
        ``"auto"``, ``"cpu"``, ``"cuda"``, ``"cuda:N"``.
    missing
        What an absent chunk means: ``"fill"`` (the fill value) or ``"error"``.
    verify
        What the host decodes before a GPU does: ``"none"`` or ``"cpu"``; see :meth:`read`.
    mode
        ``"r"`` or ``"r+"`` (read and write).
    write_empty_chunks
        Whether chunks of nothing but the fill value are stored when they are written; else they are erased.

    Raises
    ------
    DeviceError
        If the device cannot be used.
    ArgumentError
        If ``device``, ``missing`` or ``verify`` is none of the above.
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
        write_empty_chunks: bool = False,
    ) -> None:
        if mode not in ("r", "r+"):
            raise ArgumentError(f"mode must be 'r' or 'r+', not {mode!r}")
        self._metadata = metadata
        self._store = store
        self._path = path
        self._auto = device == "auto"
        self._device = _device_for(device, metadata.dtype)
        self._missing = check_missing(missing)
        self._verify = check_verify(verify)
        self._mode = mode
        self._reader = Reader(metadata, store, path, self._device)
        # Of a store that cannot be changed it is never used.
        self._writer = Writer(metadata, cast("Store", store), path, write_empty_chunks=write_empty_chunks)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Array):
            return NotImplemented
        return (self._store, self._path, self.device) == (other._store, other._path, other.device)

    __hash__ = None  # type: ignore[assignment]

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
        """Point selection: ``a.vindex[[0, 5], [1, 2]]`` takes elements (0, 1) and (5, 2); or a mask of the array."""
        return Indexer(self, parse_points, "vindex")

    @property
    def blocks(self) -> Indexer:
        """Selection by chunk of the grid (by shard, in a sharded array): ``a.blocks[0, 1:3]``."""
        return Indexer(self, self._parse_blocks, "blocks")

    # -- changing its shape

    def resize(self, shape: int | Sequence[int], *, erase: bool = True, lock: bool = False) -> None:
        """Change the shape. No chunk is moved; elements that are new are the fill value.

        The metadata goes first: whenever this ends, and however, the array is the old one or the new one, and all its
        elements are what they were.

        Parameters
        ----------
        shape
            The new one, in elements, of as many dimensions.
        erase
            Erase what is outside of it now: chunks (shards), and what is cut off within those at the new edge. If
            False, that stays in the store, where it is seen again when the array grows.
        lock
            Keep processes that do the same away, by a file lock beside the data.

        Raises
        ------
        ReadOnlyError
            If the array is read-only; nothing was touched.
        ArgumentError
            If ``shape`` is not a shape of as many dimensions, or something else was put in the array's place since it
            was opened; nothing was changed.
        NodeNotFoundError
            If the array is not there any more.
        StoreError, ChunkError
            If the store fails. Where that is while something is erased, the array has its new shape already.
        """
        self._check_writable()
        resize.resize(self, shape, erase=erase, lock=lock)

    def append(self, value: Any, axis: int = 0, *, lock: bool = False) -> tuple[int, ...]:
        """Make the array longer along an axis, by what ``value`` holds.

        The elements are written first and the shape after them, so readers never see an array that lacks some of its
        elements, and what fails or is killed leaves the array as it was. What others have appended meanwhile stays:
        ``value`` comes behind it. The cost depends on ``value`` and not on the array.

        Parameters
        ----------
        value
            Array of the array's shape but for the length along ``axis``; what :meth:`write` takes.
        axis
            Along which it grows; negative ones count from the last.
        lock
            Keep processes that do the same away, by a file lock beside the data. Without, only one process may append
            at a time.

        Returns
        -------
        The new shape.

        Raises
        ------
        ReadOnlyError, ArgumentError, ChunkWriteError, ChunkReadError, ChunkDecodeError
            As for :meth:`write`; the shape is then the old one.
        NodeNotFoundError, StoreError
            As for :meth:`resize`.
        """
        self._check_writable()
        return resize.append(self, value, axis, lock=lock)


def _device_for(device: str, dtype: np.dtype[Any]) -> str:
    """Return the device that ``device`` means for elements of a type: ``"auto"`` is one that can hold them."""
    resolved = resolve_device(device)
    if device != "auto" or resolved == "cpu" or is_in_cupy(dtype):
        return resolved
    return "cpu"


def _unpickled(
    metadata: ArrayMetadata, store: ReadableStore, path: str, *, device: str, auto: bool, **options: Any
) -> Array:
    """Return an array that was pickled: on the device that it was on, but for one that ``"auto"`` had put there."""
    array = Array(metadata, store, path, device="cpu" if auto and not available() else device, **options)
    array._auto = auto
    return array
