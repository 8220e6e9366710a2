"""A codec pipeline for zarr-python 3: its arrays read and write chunks by gzarr.

::

    import gzarr.integrations.zarr

    gzarr.integrations.zarr.enable()

or, without code, ``ZARR_CODEC_PIPELINE__PATH=gzarr.integrations.zarr.CodecPipeline``. Everything else stays as it is:
zarr-python makes and opens arrays, and gets the same results and the same errors. What gzarr does not do (stores,
selections, data types, codecs, buffers that it does not know) is done by zarr-python's own pipeline, silently, or with
``strict`` by no one: then an error says what was wanted.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import zarr.abc.codec
import zarr.storage
from zarr.core.buffer import cpu, default_buffer_prototype
from zarr.core.codec_pipeline import BatchedCodecPipeline
from zarr.core.config import config
from zarr.registry import register_pipeline

import gzarr

from .zarr_batches import ChunkKeys, NotJoinedError, join

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Self

    from .zarr_batches import Entry, Joined

#: Stores that gzarr reads itself, or as fast as their own pipeline does. Subclasses may do anything.
_STORES: Final = ("LocalStore", "MemoryStore", "ObjectStore", "FsspecStore")
#: Arrays of gzarr that one pipeline keeps: for reading and writing, of an array that may have grown.
_MOST_ARRAYS: Final = 4


def enable(*, strict: bool = False) -> Any:
    """Let zarr-python use gzarr's codec pipeline for all arrays that are made or opened from now on.

    Parameters
    ----------
    strict
        Raise :class:`gzarr.UnsupportedError` for what gzarr cannot do, and gzarr's own errors, instead of leaving the
        request to zarr-python's own pipeline.

    Returns
    -------
    The change of ``zarr.config``: a context manager that takes it back.
    """
    return config.set({"codec_pipeline.path": f"{__name__}.{CodecPipeline.__name__}", "gzarr.strict": bool(strict)})


class _NotOursError(Exception):
    """What is wanted is left to zarr-python; the message says why."""


class CodecPipeline(zarr.abc.codec.CodecPipeline):  # type: ignore[misc]
    """Codec pipeline of zarr-python that reads and writes chunks by gzarr.

    Parameters
    ----------
    own
        zarr-python's own pipeline, for what gzarr does not do.
    source
        Metadata and store of the array; None for a pipeline of codecs alone, which only encodes and decodes.
    """

    __slots__ = ("_source", "own")

    def __init__(self, own: Any, source: _Source | None = None) -> None:
        self.own = own
        self._source = source

    # -- making

    @classmethod
    def from_codecs(cls, codecs: Iterable[Any], *, batch_size: int | None = None) -> Self:
        """Return a pipeline of codecs alone."""
        return cls(BatchedCodecPipeline.from_codecs(codecs, batch_size=batch_size))

    @classmethod
    def from_array_metadata_and_store(cls, array_metadata: Any, store: Any) -> Self:
        """Return the pipeline of an array."""
        return cls(_own_pipeline(array_metadata), _Source(array_metadata, store))

    def evolve_from_array_spec(self, array_spec: Any) -> Self:
        """Return the pipeline with what its codecs take from the chunks' specification."""
        return type(self)(self.own.evolve_from_array_spec(array_spec), self._source)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CodecPipeline):
            return NotImplemented
        return bool(self.own == other.own) and self._source == other._source

    def __hash__(self) -> int:
        return hash(self.own)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.own!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.own, self._source)

    # -- what zarr-python's own pipeline knows

    def __iter__(self) -> Iterator[Any]:
        return iter(self.own)

    def __getattr__(self, name: str) -> Any:
        # Tests and tools look at the codecs of a pipeline.
        if name.startswith("_") or name == "own":
            raise AttributeError(name)
        return getattr(self.own, name)

    @property
    def supports_partial_decode(self) -> bool:
        """Whether parts of a chunk can be decoded without the rest."""
        return bool(self.own.supports_partial_decode)

    @property
    def supports_partial_encode(self) -> bool:
        """Whether parts of a chunk can be encoded without the rest."""
        return bool(self.own.supports_partial_encode)

    def validate(self, **what: Any) -> None:
        """Raise an error if the codecs do not suit an array's shape, data type and chunk grid."""
        self.own.validate(**what)

    def compute_encoded_size(self, byte_length: int, array_spec: Any) -> int:
        """Return the size of an encoded chunk, if the codecs have a fixed one."""
        return int(self.own.compute_encoded_size(byte_length, array_spec))

    async def decode(self, chunk_bytes_and_specs: Iterable[Any]) -> Iterable[Any]:
        """Decode chunks that are in memory, by zarr-python's own codecs."""
        decoded: Iterable[Any] = await self.own.decode(chunk_bytes_and_specs)
        return decoded

    async def encode(self, chunk_arrays_and_specs: Iterable[Any]) -> Iterable[Any]:
        """Encode chunks, by zarr-python's own codecs."""
        encoded: Iterable[Any] = await self.own.encode(chunk_arrays_and_specs)
        return encoded

    # -- reading and writing

    async def read(self, batch_info: Iterable[Entry], out: Any, drop_axes: tuple[int, ...] = ()) -> Any:
        """Read the chunks of a selection into ``out``: one plan of gzarr, in another thread.

        Returns
        -------
        For each chunk, whether it was there, which is looked up when it is asked for.
        """
        entries = batch_info if isinstance(batch_info, list) else list(batch_info)
        if not entries:
            return ()
        if self._source is not None and _is_stored(entries[0][0]):
            try:
                return await asyncio.to_thread(self._source.read, entries, out, drop_axes)
            except _NotOursError as error:
                _complain(error)
            except (gzarr.GzarrError, MemoryError):
                # zarr-python raises an error of its own, or gets what gzarr does not.
                if config.get("gzarr.strict", False):
                    raise
        return await self.own.read(entries, out, drop_axes)

    async def write(self, batch_info: Iterable[Entry], value: Any, drop_axes: tuple[int, ...] = ()) -> None:
        """Write the chunks of a selection: one plan of gzarr, in another thread."""
        entries = batch_info if isinstance(batch_info, list) else list(batch_info)
        if not entries:
            return
        if self._source is not None and _is_stored(entries[0][0]):
            try:
                await asyncio.to_thread(self._source.write, entries, value, drop_axes)
                return
            except _NotOursError as error:
                _complain(error)
            except (gzarr.GzarrError, MemoryError):
                if config.get("gzarr.strict", False):
                    raise
        await self.own.write(entries, value, drop_axes)


register_pipeline(CodecPipeline)


def _own_pipeline(metadata: Any) -> Any:
    """Return zarr-python's own pipeline for an array."""
    from zarr.codecs._v2 import V2Codec

    if metadata.zarr_format == 3:
        return BatchedCodecPipeline.from_codecs(metadata.codecs)
    return BatchedCodecPipeline.from_codecs([V2Codec(filters=metadata.filters, compressor=metadata.compressor)])


def _is_stored(place: Any) -> bool:
    # Inner chunks of a shard have byte getters of their own.
    return type(place) is zarr.storage.StorePath


def _complain(error: _NotOursError) -> None:
    if config.get("gzarr.strict", False):
        raise gzarr.UnsupportedError(f"gzarr's codec pipeline cannot do this: {error}") from None


@dataclass(frozen=True)
class _Statuses(Sequence[Any]):
    """For each chunk, whether it is there."""

    store: Any
    keys: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            return tuple(self[j] for j in range(*i.indices(len(self))))
        (found,) = self.store.contains([self.keys[i]])
        return {"status": "present" if found else "missing"}


class _Source:
    """An array, as gzarr sees it: its metadata and its store.

    zarr-python's arrays keep their pipeline when they are resized, so the shape is not taken from the metadata: reads
    and writes see an array of whole chunks, as many as they need.
    """

    def __init__(self, metadata: Any, store: Any) -> None:
        self.metadata = metadata
        self.store = store
        self._lock = threading.Lock()
        self._arrays: dict[tuple[Any, ...], gzarr.Array] = {}
        self._layout: _Layout | None = None
        self._opened: Any = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Source):
            return NotImplemented
        return bool(self.store == other.store) and bool(self.metadata == other.metadata)

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.metadata, self.store)

    # -- reading and writing

    def read(self, entries: list[Entry], out: Any, drop_axes: tuple[int, ...]) -> Any:
        layout = self._known_layout()
        if not getattr(entries[0][1].config, "read_missing_chunks", True):
            raise _NotOursError("absent chunks are to be errors (read_missing_chunks)")
        target, device = _memory(out)
        joined = _joined(entries, layout, drop_axes)
        if joined.shape != target.shape:
            raise _NotOursError("the result has another shape than the selection")
        array = self._array(joined.path, device, _at_least(layout.shape, joined.extent))
        if array.dtype == target.dtype:
            _get(array, joined)(joined.index, out=target)
        elif _native(array.dtype) == _native(target.dtype):
            # zarr-python's result has the byte order of the stored elements, gzarr's that of the machine.
            swapped = target.view(array.dtype)
            _get(array, joined)(joined.index, out=swapped)
            swapped.byteswap(inplace=True)
        else:
            raise _NotOursError(f"the result is of {target.dtype}, the array of {array.dtype}")
        return _Statuses(array.store, tuple(entry[0].path for entry in entries))

    def write(self, entries: list[Entry], value: Any, drop_axes: tuple[int, ...]) -> None:
        layout = self._known_layout()
        if self.store.read_only:
            raise _NotOursError("the store is read-only")
        source, device = _memory(value)
        joined = _joined(entries, layout, drop_axes)
        if source.shape not in ((), joined.shape):
            raise _NotOursError("the value has another shape than the selection")
        shape = list(_at_least(layout.shape, joined.extent))
        for i, end in enumerate(joined.end):
            # The last chunk is whole though its end is left out: there the array ends.
            if end is not None:
                shape[i] = end
        array = self._array(
            joined.path, device, tuple(shape), write_empty_chunks=entries[0][1].config.write_empty_chunks
        )
        if _native(array.dtype) != _native(source.dtype):
            raise _NotOursError(f"the value is of {source.dtype}, the array of {array.dtype}")
        _set(array, joined)(joined.index, source)

    # -- arrays of gzarr

    def _known_layout(self) -> _Layout:
        with self._lock:
            if self._layout is None:
                self._layout = _Layout.of(self.metadata, self.store)
                self._opened = gzarr.open_store(self.store, read_only=self.store.read_only)
            return self._layout

    def _array(
        self, path: str, device: str, shape: tuple[int, ...], *, write_empty_chunks: bool | None = None
    ) -> gzarr.Array:
        """Return the array with another shape, for reading, or for writing if ``write_empty_chunks`` is given."""
        known = (path, device, shape, write_empty_chunks)
        array = self._arrays.get(known)
        if array is not None:
            return array
        documents = dict(self._layout.documents)  # type: ignore[union-attr]
        name = next(iter(documents))
        documents[name] = json.dumps({**json.loads(documents[name]), "shape": shape}).encode()
        described = gzarr.open_array(gzarr.MemoryStore(documents), device="cpu")
        array = gzarr.Array(
            described.metadata,
            self._opened,
            path,
            device=device,
            mode="r" if write_empty_chunks is None else "r+",
            write_empty_chunks=bool(write_empty_chunks),
        )
        with self._lock:
            if len(self._arrays) >= _MOST_ARRAYS:
                self._arrays.clear()
            self._arrays[known] = array
        return array


@dataclass(frozen=True, slots=True)
class _Layout:
    """What of an array's metadata a batch needs.

    Attributes
    ----------
    documents
        Metadata documents, by name.
    keys
        Form of the chunks' keys.
    chunk_shape
        Shape of the chunks (shards).
    shape
        Shape of the array, rounded up to whole chunks.
    """

    documents: dict[str, bytes]
    keys: ChunkKeys
    chunk_shape: tuple[int, ...]
    shape: tuple[int, ...]

    @classmethod
    def of(cls, metadata: Any, store: Any) -> Self:
        """Return the layout of an array of zarr-python.

        Raises
        ------
        _NotOursError
            If gzarr does not read such arrays, or the store.
        """
        if type(store) not in [getattr(zarr.storage, name, None) for name in _STORES]:
            raise _NotOursError(f"the store is a {type(store).__module__}.{type(store).__name__}")
        documents = {
            name: value.to_bytes() for name, value in metadata.to_buffer_dict(default_buffer_prototype()).items()
        }
        ndim = len(metadata.shape)
        if metadata.zarr_format == 3:
            grid, encoding = metadata.chunk_grid, metadata.chunk_key_encoding
            chunk_shape = getattr(grid, "chunk_shape", None)
            if chunk_shape is None:
                raise _NotOursError("the chunk grid is not regular")
            if encoding.name not in ("default", "v2"):
                raise _NotOursError(f"the chunk key encoding is {encoding.name!r}")
            keys = ChunkKeys(ndim, encoding.separator, encoding.name == "default")
            documents = {"zarr.json": documents["zarr.json"]}
        else:
            chunk_shape = metadata.chunks
            keys = ChunkKeys(ndim, metadata.dimension_separator, prefix=False)
            documents = {".zarray": documents[".zarray"]}
        whole = tuple(
            -(-length // chunk) * chunk for length, chunk in zip(metadata.shape, chunk_shape, strict=True) if chunk
        )
        if len(whole) != ndim:
            raise _NotOursError("chunks have no elements")
        return cls(documents, keys, tuple(chunk_shape), whole)


def _joined(entries: list[Entry], layout: _Layout, drop_axes: tuple[int, ...]) -> Joined:
    try:
        return join(entries, layout.keys, layout.chunk_shape, drop_axes)
    except NotJoinedError as error:
        raise _NotOursError(str(error)) from None


def _memory(buffer: Any) -> tuple[Any, str]:
    """Return the array in a buffer of zarr-python, and gzarr's name of its device."""
    array = buffer.as_ndarray_like()
    if type(buffer) is cpu.NDBuffer and isinstance(array, np.ndarray):
        return array, "cpu"
    if hasattr(array, "__cuda_array_interface__") and type(buffer).__module__ == "zarr.core.buffer.gpu":
        return array, f"cuda:{array.device.id}"
    raise _NotOursError(f"buffers are of {type(buffer).__module__}.{type(buffer).__name__}")


def _native(dtype: Any) -> Any:
    # StringDType and its like have no byte order.
    return dtype if dtype.kind == "T" else dtype.newbyteorder("=")


def _at_least(shape: tuple[int, ...], extent: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(map(max, shape, extent))


def _get(array: gzarr.Array, joined: Joined) -> Callable[..., Any]:
    if joined.kind == "basic":
        return array.read
    return array.get_orthogonal_selection if joined.kind == "orthogonal" else array.get_coordinate_selection


def _set(array: gzarr.Array, joined: Joined) -> Callable[..., Any]:
    if joined.kind == "basic":
        return partial(array.write)
    return array.set_orthogonal_selection if joined.kind == "orthogonal" else array.set_coordinate_selection
