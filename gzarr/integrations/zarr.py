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

# zarr-python imports this module, by an entry point, whenever an array is made or opened, whether gzarr is used or not.
# So an import at the top is quick, and of what every zarr-python 3 has; the rest is imported where it is used.
import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, Final

import zarr

import gzarr
from gzarr.flags import flag
from gzarr.installing import COMMANDS

# zarr-python 2 has none, and no codec pipelines.
if find_spec("zarr.abc") is None:
    raise gzarr.ArgumentError(f"codec pipelines are of zarr-python 3: {COMMANDS['newer zarr']}")

import zarr.abc.codec
import zarr.storage
from zarr import config
from zarr.registry import register_pipeline

from .zarr_batches import NotOursError, join
from .zarr_layout import SpecLayout, check_store, is_host, is_swapped, memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Self

    from .zarr_batches import Entry, Joined

__all__ = ["CodecPipeline", "enable"]

#: Most bytes of the chunks of a batch that is not worth another thread.
_QUICK_NBYTES: Final = 16 << 20
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
    return config.set(
        {"codec_pipeline.path": f"{__name__}.{CodecPipeline.__name__}", "gzarr.strict": flag("strict", strict)}
    )


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
        self.own: Any = own
        self._source = source

    # -- making

    @classmethod
    def from_codecs(cls, codecs: Iterable[Any], *, batch_size: int | None = None) -> Self:
        """Return a pipeline of codecs alone."""
        from zarr.core.codec_pipeline import BatchedCodecPipeline

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
        """Read the chunks of a selection into ``out``: one plan of gzarr, in another thread if it may take long.

        Returns
        -------
        For each chunk, whether it was there, which is looked up when it is asked for.
        """
        entries = batch_info if isinstance(batch_info, list) else list(batch_info)
        if not entries:
            return ()
        if self._source is not None and _is_stored(entries[0][0]):
            try:
                if self._source.is_quick(out, self._source.layout().read_nbytes(entries)) and _is_alone():
                    return self._source.read(entries, out, drop_axes)
                return await asyncio.to_thread(self._source.read, entries, out, drop_axes)
            except NotOursError as error:
                _complain(error)
            except (gzarr.GzarrError, MemoryError):
                # zarr-python raises an error of its own, or gets what gzarr does not.
                if config.get("gzarr.strict", False):
                    raise
        return await self.own.read(entries, out, drop_axes)

    async def write(self, batch_info: Iterable[Entry], value: Any, drop_axes: tuple[int, ...] = ()) -> None:
        """Write the chunks of a selection: one plan of gzarr, in another thread if it may take long."""
        entries = batch_info if isinstance(batch_info, list) else list(batch_info)
        if not entries:
            return
        if self._source is not None and _is_stored(entries[0][0]):
            try:
                if self._source.is_quick(value, len(entries) * self._source.layout().chunk_nbytes) and _is_alone():
                    self._source.write(entries, value, drop_axes)
                else:
                    await asyncio.to_thread(self._source.write, entries, value, drop_axes)
                return
            except NotOursError as error:
                _complain(error)
            except (gzarr.GzarrError, MemoryError):
                if config.get("gzarr.strict", False):
                    raise
        await self.own.write(entries, value, drop_axes)


register_pipeline(CodecPipeline)


def _own_pipeline(metadata: Any) -> Any:
    """Return zarr-python's own pipeline for an array."""
    from zarr.codecs._v2 import V2Codec
    from zarr.core.codec_pipeline import BatchedCodecPipeline

    if metadata.zarr_format == 3:
        return BatchedCodecPipeline.from_codecs(metadata.codecs)
    return BatchedCodecPipeline.from_codecs([V2Codec(filters=metadata.filters, compressor=metadata.compressor)])


def _is_stored(place: Any) -> bool:
    # Inner chunks of a shard have byte getters of their own.
    return type(place) is zarr.storage.StorePath


def _is_alone() -> bool:
    # No other request waits for zarr-python's event loop.
    return len(asyncio.all_tasks()) == 1


def _complain(error: NotOursError) -> None:
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
        return {"status": "present" if _exists(self.store, self.keys[i]) else "missing"}


def _exists(store: Any, key: str) -> bool:
    if not isinstance(store, gzarr.ZarrStore):
        return bool(store.contains([key])[0]) if hasattr(store, "contains") else store.get(key) is not None
    # This is zarr-python's event loop, in which its MemoryStore waits for nothing.
    step = store.store.exists(key)
    try:
        step.send(None)
    except StopIteration as done:
        return bool(done.value)
    step.close()
    raise gzarr.UnsupportedError(f"{store!r} cannot tell whether {key!r} exists while zarr-python's event loop waits")


class _Source:
    """An array, as gzarr sees it: its metadata and its store.

    zarr-python's arrays keep their pipeline when they are resized, so the shape is not taken from the metadata: reads
    and writes see an array of whole chunks, as many as they need.
    """

    def __init__(self, metadata: Any, store: Any) -> None:
        self.metadata = metadata
        self.store = store
        self._arrays: dict[tuple[Any, ...], gzarr.Array] = {}
        self._layout: SpecLayout | NotOursError | None = None
        self._opened: Any = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Source):
            return NotImplemented
        return bool(self.store == other.store) and bool(self.metadata == other.metadata)

    __hash__: ClassVar[None] = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.metadata, self.store)

    # -- reading and writing

    def read(self, entries: list[Entry], out: Any, drop_axes: tuple[int, ...]) -> Any:
        layout = self.layout()
        if not getattr(entries[0][1].config, "read_missing_chunks", True):
            raise NotOursError("absent chunks are to be errors (read_missing_chunks)")
        target, device = memory(out)
        joined = join(entries, layout.keys, layout.chunk_shape, drop_axes)
        if joined.shape != target.shape:
            raise NotOursError("the result has another shape than the selection")
        array = self._array(joined.path, device, _at_least(layout.shape, joined.extent))
        if is_swapped(array.dtype, target.dtype):
            if device != "cpu":
                raise NotOursError("CuPy knows one byte order")
            # zarr-python's result has the byte order of the stored elements, gzarr's that of the machine.
            swapped = target.view(array.dtype)
            _get(array, joined)(joined.index, out=swapped)
            swapped.byteswap(inplace=True)
        else:
            _get(array, joined)(joined.index, out=target)
        return _Statuses(array.store, tuple(entry[0].path for entry in entries))

    def write(self, entries: list[Entry], value: Any, drop_axes: tuple[int, ...]) -> None:
        layout = self.layout()
        if self.store.read_only:
            raise NotOursError("the store is read-only")
        if layout.not_written:
            raise NotOursError(layout.not_written)
        source, device = memory(value)
        joined = join(entries, layout.keys, layout.chunk_shape, drop_axes, find_end=True)
        if source.shape not in ((), joined.shape):
            raise NotOursError("the value has another shape than the selection")
        # The last chunk is whole though its end is left out: there the array ends. Shards keep what they have behind
        # it, like zarr-python's.
        long = _at_least(layout.shape, joined.extent)
        ended = tuple([n if end is None else end for n, end in zip(long, joined.end, strict=True)])
        keeps = layout.inner_shape is not None and ended != tuple(long)
        try:
            self._set_to(joined, source, device, tuple(long) if keeps else ended, entries)
        except gzarr.ChunkDecodeError:
            # A damaged shard has nothing to keep: it is written whole.
            if not keeps:
                raise
            self._set_to(joined, source, device, ended, entries)

    def _set_to(
        self, joined: Joined, source: Any, device: str, shape: tuple[int, ...], entries: Sequence[Entry]
    ) -> None:
        """Write a selection of the array with another shape."""
        array = self._array(joined.path, device, shape, write_empty_chunks=entries[0][1].config.write_empty_chunks)
        is_swapped(array.dtype, source.dtype)
        _set(array, joined)(joined.index, source)

    # -- arrays of gzarr

    def layout(self) -> SpecLayout:
        """Return the layout of the array.

        Raises
        ------
        NotOursError
            If gzarr does not read it.
        """
        if self._layout is None:
            try:
                check_store(self.store)
                self._layout = SpecLayout.of(self.metadata)
            except NotOursError as error:
                self._layout = error
        if isinstance(self._layout, NotOursError):
            raise self._layout.with_traceback(None)
        return self._layout

    def is_quick(self, buffer: Any, nbytes: int) -> bool:
        """Return whether a batch of this number of bytes is small, and waits for nothing but a local file."""
        return nbytes <= _QUICK_NBYTES and type(self.store) is zarr.storage.LocalStore and is_host(buffer)

    def _place(self) -> Any:
        """Return gzarr's store, opened again if the store of zarr-python was moved."""
        root = getattr(self.store, "root", None)
        opened = self._opened
        if opened is None or opened[0] != root:
            opened = self._opened = root, gzarr.open_store(self.store, read_only=self.store.read_only)
        return opened[1]

    def _array(
        self, path: str, device: str, shape: tuple[int, ...], *, write_empty_chunks: bool | None = None
    ) -> gzarr.Array:
        """Return the array with another shape, for reading, or for writing if ``write_empty_chunks`` is given."""
        # Without locks: a forked child would wait for ever for one that another thread held. At worst, threads open an
        # array twice.
        place = self._place()
        known = (path, device, shape, write_empty_chunks)
        array = self._arrays.get(known)
        if array is not None and array.store is place:
            return array
        name, content = self.layout().document
        document = json.dumps({**json.loads(content), "shape": shape}).encode()
        described = gzarr.open_array(gzarr.MemoryStore({name: document}), device="cpu")
        array = gzarr.Array(
            described.metadata,
            place,
            path,
            device=device,
            mode="r" if write_empty_chunks is None else "r+",
            write_empty_chunks=bool(write_empty_chunks),
        )
        if len(self._arrays) >= _MOST_ARRAYS:
            self._arrays.clear()
        self._arrays[known] = array
        return array


def _at_least(shape: tuple[int, ...], extent: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(map(max, shape, extent))


def _get(array: gzarr.Array, joined: Joined) -> Callable[..., Any]:
    if joined.kind == "basic":
        return array.read
    return array.get_orthogonal_selection if joined.kind == "orthogonal" else array.get_coordinate_selection


def _set(array: gzarr.Array, joined: Joined) -> Callable[..., Any]:
    if joined.kind == "basic":
        return array.write
    return array.set_orthogonal_selection if joined.kind == "orthogonal" else array.set_coordinate_selection
