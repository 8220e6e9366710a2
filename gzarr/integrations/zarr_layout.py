"""What gzarr needs to know of an array, a store and a buffer of zarr-python, and which of them it leaves alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import zarr.storage

from .zarr_batches import KeysOfBatch, NotOursError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Self

    from .zarr_batches import Entry

#: Stores that gzarr reads itself, or as fast as their own pipeline does. Subclasses may do anything.
_STORES: Final = ("LocalStore", "MemoryStore", "ObjectStore", "FsspecStore")
#: Packages whose codecs do what their names say. A class of another one in their place does what its author wants.
_CODEC_PACKAGES: Final = frozenset({"zarr", "numcodecs", "imagecodecs", "imagecodecs_zarr", "imagecodecs_numcodecs"})
#: Most shards of a batch whose selections are looked at one by one.
_MOST_LOOKED_AT: Final = 8
#: Orders of inner chunks in a shard that zarr-python promises and gzarr does not write. "morton" is the default, and no
#: reader can tell.
_ORDERS: Final = frozenset({"colexicographic"})


@dataclass(frozen=True, slots=True)
class SpecLayout:
    """What of an array's metadata a batch needs.

    Attributes
    ----------
    document
        Name and content of the metadata document.
    keys
        Form of the chunks' keys.
    chunk_shape
        Shape of the chunks (shards).
    chunk_nbytes
        Size of the elements of a chunk (shard).
    shape
        Shape of the array, rounded up to whole chunks.
    inner_shape
        Shape of the inner chunks of a shard; None if chunks are no shards.
    not_written
        Why gzarr does not write such arrays; empty if it does.
    """

    document: tuple[str, bytes]
    keys: KeysOfBatch
    chunk_shape: tuple[int, ...]
    chunk_nbytes: int
    shape: tuple[int, ...]
    inner_shape: tuple[int, ...] | None
    not_written: str

    @classmethod
    def of(cls, metadata: Any) -> Self:
        """Return the layout of an array of zarr-python.

        Raises
        ------
        NotOursError
            If gzarr does not read such arrays.
        """
        ndim = len(metadata.shape)
        if metadata.zarr_format == 3:
            name, encoding, codecs = "zarr.json", metadata.chunk_key_encoding, metadata.codecs
            chunk_shape = getattr(metadata.chunk_grid, "chunk_shape", None)
            if chunk_shape is None:
                raise NotOursError("the chunk grid is not regular")
            if encoding.name not in ("default", "v2"):
                raise NotOursError(f"the chunk key encoding is {encoding.name!r}")
            keys = KeysOfBatch(ndim, encoding.separator, encoding.name == "default")
        else:
            name, codecs = ".zarray", (*(metadata.filters or ()), metadata.compressor)
            chunk_shape = metadata.chunks
            keys = KeysOfBatch(ndim, metadata.dimension_separator, prefix=False)
        everything = list(_with_inner(codecs))
        for codec in everything:
            if codec is not None and type(codec).__module__.partition(".")[0] not in _CODEC_PACKAGES:
                raise NotOursError(f"{type(codec).__module__}.{type(codec).__qualname__} is another package's codec")
        whole = tuple(
            -(-length // chunk) * chunk for length, chunk in zip(metadata.shape, chunk_shape, strict=True) if chunk
        )
        if len(whole) != ndim:
            raise NotOursError("chunks have no elements")
        orders = {getattr(codec, "subchunk_write_order", "") for codec in everything} & _ORDERS
        return cls(
            (name, _document(metadata, name)),
            keys,
            tuple(chunk_shape),
            math.prod(chunk_shape) * _itemsize(metadata.dtype),
            whole,
            next((tuple(codec.chunk_shape) for codec in codecs if hasattr(codec, "index_codecs")), None),
            f"inner chunks are to be in {next(iter(orders))} order" if orders else "",
        )

    def read_nbytes(self, entries: Sequence[Entry]) -> int:
        """Return about how many bytes of elements have to be decoded for a batch that is read."""
        if self.inner_shape is None or len(entries) > _MOST_LOOKED_AT:
            return len(entries) * self.chunk_nbytes
        share = 0.0
        for _, _, inside, _, _ in entries:
            part = 1.0
            # What is no slice is looked at when the batch is joined.
            for index, length, inner in zip(inside, self.chunk_shape, self.inner_shape, strict=False):
                if isinstance(index, slice):
                    begin, end, _ = index.indices(length)
                    part *= (-(-end // inner) - begin // inner) * inner / length
                elif isinstance(index, int):
                    part *= inner / length
            share += part
        return int(share * self.chunk_nbytes)


def _itemsize(dtype: Any) -> int:
    # zarr-python 3.0 has NumPy's, or its own for some.
    known = dtype.to_native_dtype() if hasattr(dtype, "to_native_dtype") else dtype
    return int(getattr(known, "itemsize", 8))


def _with_inner(codecs: Any) -> Iterator[Any]:
    """Yield codecs, and the codecs of shards."""
    for codec in codecs:
        yield codec
        yield from _with_inner(getattr(codec, "codecs", ()))
        yield from _with_inner(getattr(codec, "index_codecs", ()))


def _document(metadata: Any, name: str) -> bytes:
    from zarr.core.buffer import cpu

    try:
        content: bytes = metadata.to_buffer_dict(cpu.buffer_prototype)[name].to_bytes()
    # zarr-python reads documents that it does not write.
    except Exception as error:
        raise NotOursError(f"the metadata cannot be written: {error}") from error
    return content


def check_store(store: Any) -> None:
    """Raise :class:`NotOursError` if a store is left to zarr-python."""
    if type(store) is zarr.storage.ZipStore and store.read_only:
        return
    if type(store) not in [getattr(zarr.storage, name, None) for name in _STORES]:
        raise NotOursError(f"the store is a {type(store).__module__}.{type(store).__name__}")


def is_host(buffer: Any) -> bool:
    """Return whether a buffer is zarr-python's own for host memory."""
    from zarr.core.buffer import cpu

    return type(buffer) is cpu.NDBuffer


def memory(buffer: Any) -> tuple[Any, str]:
    """Return the array in a buffer of zarr-python, and gzarr's name of its device.

    Raises
    ------
    NotOursError
        If it is a buffer of another class.
    """
    array = buffer.as_ndarray_like()
    if is_host(buffer) and isinstance(array, np.ndarray):
        return array, "cpu"
    if hasattr(array, "__cuda_array_interface__") and type(buffer).__module__ == "zarr.core.buffer.gpu":
        return array, f"cuda:{array.device.id}"
    raise NotOursError(f"buffers are of {type(buffer).__module__}.{type(buffer).__name__}")


def is_swapped(stored: Any, buffer: Any) -> bool:
    """Return whether elements of an array of gzarr are in a buffer in another byte order.

    Parameters
    ----------
    stored, buffer
        Data types of the array of gzarr and of the buffer.

    Raises
    ------
    NotOursError
        If the data types differ in more than that.
    """
    if buffer.kind in "mM" and not buffer.isnative and np.datetime_data(buffer)[0] == "generic":
        raise NotOursError("to NumPy, times without a unit are the same in both byte orders")
    if stored == buffer:
        return False
    # Strings of variable length and their like have no byte order.
    if "T" in (stored.kind, buffer.kind) or stored.newbyteorder("=") != buffer.newbyteorder("="):
        raise NotOursError(f"the buffer is of {buffer}, the array of {stored}")
    return True
