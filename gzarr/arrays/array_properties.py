"""Properties of an array. Only the count of stored chunks costs store requests."""

from __future__ import annotations

import copy
import dataclasses
import math
from typing import TYPE_CHECKING, Any, Literal

from .. import display, plugins
from ..display import Info
from ..documents.json import quote
from ..engines.cuda import devices, driver
from ..errors import ArgumentError, StoreError
from ..metadata.formats import FORMATS
from ..nodes.attributes import Attributes
from ..stores.base import SizedStore, is_listable, lists_all
from .stored_chunks import stored_chunks
from .token import token_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

    import numpy as np

    from ..codecs.codec import Codec
    from ..engines.access.access import Missing, Verify
    from ..metadata.format import CodecParts
    from ..metadata.model import ArrayMetadata, ZarrFormat
    from ..stores.base import ReadableStore
    from .read import Reader


class ArrayProperties:
    """The part of :class:`gzarr.Array` that neither reads nor writes chunks."""

    __slots__ = ("__weakref__", "_auto", "_device", "_metadata", "_mode", "_path", "_reader", "_store")

    #: Whether ``device="auto"`` chose ``_device``.
    _auto: bool
    _device: str
    _metadata: ArrayMetadata
    _missing: Missing
    _mode: Literal["r", "r+"]
    _path: str
    _reader: Reader
    _store: ReadableStore
    _verify: Verify

    @property
    def metadata(self) -> ArrayMetadata:
        """Metadata, in one model for all Zarr formats."""
        return self._metadata

    @property
    def store(self) -> ReadableStore:
        """Store that holds the chunks."""
        return self._store

    @property
    def path(self) -> str:
        """Path in the store, without leading slash; ``""`` for the root."""
        return self._path

    @property
    def name(self) -> str:
        """Path in the store with a leading slash."""
        return f"/{self._path}"

    @property
    def basename(self) -> str:
        """Last segment of the path."""
        return self._path.rpartition("/")[2]

    @property
    def read_only(self) -> bool:
        """Whether the array was opened for reading only, or its store is read-only."""
        return self._mode == "r" or getattr(self._store, "read_only", True)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape in elements."""
        return self._metadata.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Data type of the elements, in native byte order."""
        return self._metadata.dtype

    @property
    def chunks(self) -> tuple[int, ...]:
        """Shape of a chunk (of an inner chunk, in a sharded array), in elements.

        With a rectilinear grid, the longest length along each dimension; see :attr:`chunk_lengths`.
        """
        return (
            self._reader.decoding.levels[0].inner_shape if self._reader.decoding.levels else self._metadata.chunk_shape
        )

    @property
    def chunk_lengths(self) -> tuple[tuple[int, ...], ...]:
        """Lengths in elements of all chunks (shards, in a sharded array) along each dimension, cut at the array's end.

        They are what dask calls ``chunks``. With a rectilinear grid they differ within a dimension.
        """
        return self._metadata.chunk_grid.chunk_lengths

    @property
    def shards(self) -> tuple[int, ...] | None:
        """Shape of a shard in elements, or None if the array is not sharded.

        With a rectilinear grid, the longest length along each dimension; see :attr:`chunk_lengths`.
        """
        return self._metadata.chunk_shape if self._reader.decoding.levels else None

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self._metadata.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return self._metadata.size

    @property
    def nbytes(self) -> int:
        """Size of the whole array in memory, in bytes."""
        return self._metadata.size * self._metadata.dtype.itemsize

    @property
    def fill_value(self) -> Any:
        """Value of the elements of absent chunks, or None if the metadata has none.

        Without one, they read as zeros, and dates and times as NaT. A list, a mapping or a record is a copy: changing
        it does not change the array.
        """
        return copy.deepcopy(self._metadata.fill_value)

    @property
    def dimension_names(self) -> tuple[str | None, ...] | None:
        """Name of each dimension, or None if the metadata has no names."""
        return self._metadata.dimension_names

    @property
    def codecs(self) -> tuple[Codec, ...]:
        """Codec chain of a chunk (of a shard, in a sharded array), in encoding order."""
        return self._metadata.codecs

    @property
    def filters(self) -> tuple[Codec, ...]:
        """Array→array codecs of a chunk (of an inner chunk, in a sharded array), in encoding order.

        In version 2 these are the filters of the metadata document, as in zarr-python, except a filter that encodes
        objects as bytes, which is the :attr:`serializer`.
        """
        return self._codec_parts.filters

    @property
    def serializer(self) -> Codec:
        """Array→bytes codec of a chunk (of an inner chunk, in a sharded array); in zarr-python, None for version 2."""
        return self._codec_parts.serializer

    @property
    def compressors(self) -> tuple[Codec, ...]:
        """Bytes→bytes codecs of a chunk (of an inner chunk, in a sharded array), in encoding order.

        In version 2 this is the compressor of the metadata document, if it has one.
        """
        return self._codec_parts.compressors

    @property
    def order(self) -> Literal["C", "F"]:
        """Order of the stored elements of a chunk, ``"C"`` or ``"F"``, as in :func:`gzarr.create_array`.

        Results are always in C order. (For version 3, zarr-python's ``order`` is that of its results.)
        """
        return FORMATS[self.zarr_format].order(self._metadata, self._reader.decoding.codecs)

    @property
    def _codec_parts(self) -> CodecParts:
        return FORMATS[self.zarr_format].codec_parts(self._metadata, self._reader.decoding.codecs)

    @property
    def missing(self) -> Missing:
        """Meaning of an absent chunk: ``"fill"`` (the fill value) or ``"error"``."""
        return self._missing

    @property
    def verify(self) -> Verify:
        """Check of chunks before a GPU decodes them: ``"cpu"`` or ``"none"``."""
        return self._verify

    @property
    def attrs(self) -> Attributes:
        """User attributes, as a mapping. Each change is written at once; a read-only array refuses changes."""
        return Attributes(self, self._take_attributes)

    def update_attributes(self, attributes: Mapping[str, Any], *, lock: bool = False) -> Self:
        """Change some user ``attributes`` in one write, as ``attrs.update`` does; return this array.

        ``lock`` excludes other processes that also pass ``lock=True``, by a file lock beside the data.
        """
        try:
            given = dict(attributes)
        except (TypeError, ValueError):
            raise ArgumentError(f"{self.name}: attributes must be a dict, not {quote(attributes)}") from None
        self.attrs.change(lambda present: {**present, **given}, lock=lock)
        return self

    def _take_attributes(self, found: ArrayMetadata) -> None:
        """Take over the stored metadata that does not affect reading. The caller holds the node's documents."""
        self._metadata = dataclasses.replace(
            self._metadata,
            attributes=found.attributes,
            dimension_names=found.dimension_names,
            document=found.document,
        )

    @property
    def zarr_format(self) -> ZarrFormat:
        """Zarr format of the metadata document."""
        return self._metadata.zarr_format

    @property
    def device(self) -> str:
        """Device of the results: ``"cpu"`` (NumPy) or ``"cuda:N"`` (CuPy).

        ``device="auto"`` means the CPU for data types that CuPy lacks, such as strings and records. If it chose a GPU,
        it still means the CPU in processes forked after CUDA was used: CUDA cannot be used there.
        """
        if self._auto and self._device != "cpu" and devices.is_lost():
            return "cpu"
        return self._device

    @property
    def decode_path(self) -> str:
        """How chunks will be decoded.

        ``cpu-native: blosc(lz4, shuffle 4)`` means the compiled loop; ``cpu-threads: numcodecs.delta + zstd`` means
        host libraries called from threads. ``cuda: zstd`` means that the device decodes; ``cuda, decoded on the host
        (…)`` says why it does not for a read of the whole array. A smaller read may be decoded elsewhere. After
        ``cuda: …``, ``by GPUDirect Storage`` means that files are read straight into device memory. Where kvikio is
        installed, this property initialises CUDA; nothing else does so before the first read.
        """
        if self.device != "cpu" and devices.is_lost():
            return f"{self.device}: {driver.LOST}"
        return self._reader.path(self.device, self._verify)

    @property
    def cdata_shape(self) -> tuple[int, ...]:
        """Number of chunks (inner chunks, in a sharded array) along each dimension."""
        if self.shards is None:
            return self._metadata.grid_shape
        return tuple(-(-n // chunk) for n, chunk in zip(self.shape, self.chunks, strict=True))

    @property
    def nchunks(self) -> int:
        """Number of chunks (inner chunks, in a sharded array)."""
        return math.prod(self.cdata_shape)

    @property
    def nchunks_initialized(self) -> int:
        """Number of stored chunks. Lists the store.

        In a sharded array, all inner chunks of a stored shard count, as in zarr-python; here, only those with elements
        in the array, so that it is at most :attr:`nchunks`.

        Raises
        ------
        StoreError
            If the store cannot list its keys.
        """
        stored = stored_chunks(self._store, self._metadata, self._path)
        if self.shards is None:
            return sum(1 for _ in stored)
        extents = (self._metadata.chunk_grid.extent(coords) for _, coords in stored)
        return sum(
            math.prod(-(-(end - begin) // chunk) for (begin, end), chunk in zip(extent, self.chunks, strict=True))
            for extent in extents
        )

    @property
    def info(self) -> Info:
        """Table of these properties."""
        return display.array_info(self)

    def info_complete(self) -> Info:
        """Return the table of properties, with the number and size of the stored chunks. Lists the store.

        Raises
        ------
        StoreError
            If the store fails to list its keys.
        """
        from .storage import storage_rows

        return Info([*self.info.rows, *storage_rows(self, full=True)])

    def nbytes_stored(self) -> int:
        """Return the bytes of all values below the array's path in the store: chunks and documents. Lists the store.

        Raises
        ------
        StoreError
            If the store cannot list its keys with their sizes, or fails.
        """
        if not (isinstance(self._store, SizedStore) and is_listable(self._store)):
            raise StoreError(f"{self._store!r} does not tell the sizes of its values")
        if not lists_all(self._store):
            raise StoreError(f"{self._store!r} may have chunks that it does not list, whose sizes it does not tell")
        prefix = f"{self._path}/" if self._path else ""
        return sum(nbytes for _, nbytes in self._store.list_sizes(prefix))

    def __dask_tokenize__(self) -> str:
        return token_of(self._store, self._path, self._metadata, f"{self.device} {self._missing}")

    def to_dask(self, chunks: Any = "auto", **options: Any) -> Any:
        """Return the array as a dask array.

        Parameters
        ----------
        chunks, **options
            As for :func:`gzarr.to_dask`; so are the errors.
        """
        return plugins.integration("dask").to_dask(self, chunks, **options)

    def __repr__(self) -> str:
        return display.array_repr(self)

    def _repr_html_(self) -> str:
        from ..display.page import array_html
        from .stored_size import stored_size

        return array_html(self, stored_size(self._store, self._metadata, self._path))
