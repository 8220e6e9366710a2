"""What an array is, in properties: everything that is known without a store request, and a count that is not."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any, Literal

from .. import display
from ..codecs.transpose import TransposeCodec
from ..engines.cuda import devices, driver
from ..nodes.attributes import Attributes
from .stored_chunks import stored_chunks

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

    import numpy as np

    from ..codecs.codec import Codec
    from ..display import Info
    from ..engines.request import Verify
    from ..metadata.model import ArrayMetadata, ZarrFormat
    from ..stores.base import ReadableStore
    from .read import Reader


class ArrayProperties:
    """The half of :class:`gzarr.Array` that neither reads nor writes chunks."""

    __slots__ = ("__weakref__", "_auto", "_device", "_metadata", "_mode", "_path", "_reader", "_store")

    #: Whether ``device="auto"`` has chosen ``_device``.
    _auto: bool
    _device: str
    _metadata: ArrayMetadata
    _mode: Literal["r", "r+"]
    _path: str
    _reader: Reader
    _store: ReadableStore
    _verify: Verify

    @property
    def metadata(self) -> ArrayMetadata:
        """The metadata, the same for every Zarr format."""
        return self._metadata

    @property
    def store(self) -> ReadableStore:
        """Where the chunks are."""
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
        """Whether changes are refused: the array was opened for reading, or its store is read-only."""
        return self._mode == "r" or getattr(self._store, "read_only", True)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape in elements."""
        return self._metadata.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the elements, in native byte order."""
        return self._metadata.dtype

    @property
    def chunks(self) -> tuple[int, ...]:
        """Shape of what can be read by itself, in elements: of a chunk, or of an inner chunk in a sharded array.

        In an array with a rectilinear grid of chunks the longest along each dimension; see :attr:`chunk_lengths`.
        """
        return (
            self._reader.decoding.levels[0].inner_shape if self._reader.decoding.levels else self._metadata.chunk_shape
        )

    @property
    def chunk_lengths(self) -> tuple[tuple[int, ...], ...]:
        """Length of each chunk (of each shard, in a sharded array) along each dimension, cut at the array's end.

        What dask calls the chunks of an array. They differ where the grid is rectilinear.
        """
        return self._metadata.chunk_grid.chunk_lengths

    @property
    def shards(self) -> tuple[int, ...] | None:
        """Shape of a shard in elements, or None if the array has none.

        In an array with a rectilinear grid the longest along each dimension; see :attr:`chunk_lengths`.
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
        """Bytes of the whole array once read."""
        return self._metadata.size * self._metadata.dtype.itemsize

    @property
    def fill_value(self) -> Any:
        """What elements of absent chunks are; None where the metadata leaves it open.

        They then read as zeros, dates and times as NaT.
        """
        return self._metadata.fill_value

    @property
    def dimension_names(self) -> tuple[str | None, ...] | None:
        """Name of each dimension, if the metadata names them."""
        return self._metadata.dimension_names

    @property
    def codecs(self) -> tuple[Codec, ...]:
        """The codec chain of a chunk (of a shard, in a sharded array), in encoding order."""
        return self._metadata.codecs

    @property
    def filters(self) -> tuple[Codec, ...]:
        """Array→array codecs of a chunk (of an inner chunk, in a sharded array), in encoding order.

        In version 2 the filters of the document, as in zarr-python, but for those that make bytes of objects, which are
        the :attr:`serializer`.
        """
        return self._codec_parts[0]

    @property
    def serializer(self) -> Codec:
        """Array→bytes codec of a chunk (of an inner chunk, in a sharded array); zarr-python has None in version 2."""
        return self._codec_parts[1]

    @property
    def compressors(self) -> tuple[Codec, ...]:
        """Bytes→bytes codecs of a chunk (of an inner chunk, in a sharded array), in encoding order.

        In version 2 the compressor of the document, if it has one.
        """
        return self._codec_parts[2]

    @property
    def order(self) -> Literal["C", "F"]:
        """Order in which the elements of a chunk are stored, ``"C"`` or ``"F"``, as in :func:`gzarr.create_array`.

        Results are in C order in any case. (In version 3, zarr-python's ``order`` is that of its results.)
        """
        document = self._metadata.document.get(".zarray")
        if document is not None:
            return "F" if document.get("order") == "F" else "C"
        codec = self._reader.decoding.codecs[0]
        reversed_axes = tuple(reversed(range(self.ndim)))
        return "F" if isinstance(codec, TransposeCodec) and codec.order == reversed_axes else "C"

    @property
    def _codec_parts(self) -> tuple[tuple[Codec, ...], Codec, tuple[Codec, ...]]:
        """Filters, serializer and compressors."""
        codecs = self._reader.decoding.codecs
        (at,) = (i for i, codec in enumerate(codecs) if codec.kind == "array_to_bytes")
        filters, compressors = codecs[:at], codecs[at + 1 :]
        document = self._metadata.document.get(".zarray")
        if document is not None:
            # There, the order is no codec, and filters may encode bytes.
            if filters and document.get("order") == "F" and isinstance(filters[0], TransposeCodec):
                filters = filters[1:]
            last = len(compressors) - (document.get("compressor") is not None)
            filters, compressors = filters + compressors[:last], compressors[last:]
        return filters, codecs[at], compressors

    @property
    def attrs(self) -> Attributes:
        """User attributes, a mapping; each change of it is written, if the array is not read-only."""
        return Attributes(self, self._take_attributes)

    def update_attributes(self, attributes: Mapping[str, Any]) -> Self:
        """Change some user attributes in one write, as ``attrs.update`` does; return this array."""
        self.attrs.update(attributes)
        return self

    def _take_attributes(self, found: ArrayMetadata) -> None:
        """Take over what the store has now, of all that does not bear on reading; its documents are held meanwhile."""
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
        """Where results are: ``"cpu"`` (NumPy) or ``"cuda:N"`` (CuPy).

        ``device="auto"`` is the CPU for types that CuPy has not, such as strings and records. An array that it has put
        on a GPU is on the CPU in processes that are forked after CUDA was used: CUDA cannot be used there.
        """
        if self._auto and self._device != "cpu" and devices.is_lost():
            return "cpu"
        return self._device

    @property
    def decode_path(self) -> str:
        """How chunks are decoded, known before anything is read.

        ``cpu-native: blosc(lz4, shuffle 4)`` is the compiled loop; ``cpu-threads: numcodecs.delta + zstd`` are codecs
        of host libraries in threads. ``cuda: zstd`` is decoded on the device; ``cuda, decoded on the host (…)``
        says why a read of the whole array is not. A smaller read may go the other way. Behind ``cuda: …``, ``by
        GPUDirect Storage`` says that files are read past host memory: where kvikio is installed, asking that
        initialises CUDA, which nothing else does before the first read.
        """
        if self.device != "cpu" and devices.is_lost():
            return f"{self.device}: {driver.LOST}"
        return self._reader.path(self.device, self._verify)

    @property
    def cdata_shape(self) -> tuple[int, ...]:
        """Number of chunks (of inner chunks, in a sharded array) along each dimension."""
        if self.shards is None:
            return self._metadata.grid_shape
        return tuple(-(-n // chunk) for n, chunk in zip(self.shape, self.chunks, strict=True))

    @property
    def nchunks(self) -> int:
        """Number of chunks (of shards, in a sharded array) in the grid."""
        return math.prod(self._metadata.grid_shape)

    @property
    def nchunks_initialized(self) -> int:
        """Number of chunks (of shards, in a sharded array) that the store has. Lists the store.

        Raises
        ------
        StoreError
            If the store cannot list its keys.
        """
        return sum(1 for _ in stored_chunks(self._store, self._metadata, self._path))

    @property
    def info(self) -> Info:
        """A table of all this."""
        return display.array_info(self)

    def __repr__(self) -> str:
        return display.array_repr(self)

    def _repr_html_(self) -> str:
        return display.array_html(self)
