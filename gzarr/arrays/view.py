"""Views: parts of arrays that are read like arrays, and read nothing when they are made."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from ..codecs.transpose import TransposeCodec
from ..display import printable
from ..errors import ArgumentError, ReadOnlyError
from ..metadata.parts import DIMENSIONS_ATTRIBUTE
from ..plan.selection import parse_orthogonal, parse_points
from ..plan.view import View, parts, whole_extents
from .exporting import ExportedArray, Writes
from .index import Indexer
from .view_reader import ViewReader

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..codecs.codec import Codec
    from ..display import Info
    from ..plan.view import Extent
    from .writing import WritableArray

    Index = tuple[int, ...]


class ArrayView(ExportedArray):
    """A part of an array, which is read like an array: ``a.view[0, :, 10:90]``.

    Nothing is read before elements are asked for, and then the chunks that have them, no others. A view has the shape
    that it had when it was made, whatever becomes of the array; elements that the array loses are read as fill values.

    Parameters
    ----------
    base
        The array.
    extents
        What the view has along each axis of the array.

    Notes
    -----
    Chunks of a view are parts of chunks of the array (inner chunks, in a sharded array), so ``shards`` is None. Where
    it cuts the first one, or takes every n-th element, their lengths may differ: ``chunks`` then has the longest ones,
    as for rectilinear grids, and ``chunk_lengths`` all of them. ``metadata`` describe the view as if it was stored so.
    """

    __slots__ = ("_base", "_extents")

    def __init__(self, base: WritableArray, extents: Sequence[Extent]) -> None:
        # It keeps its shape and its metadata if the array's change.
        self._base: WritableArray = base._same()
        self._extents: tuple[Extent, ...] = tuple(extents)
        self._store, self._path, self._mode = base.store, base.path, "r"
        self._auto, self._device = base._auto, base._device
        self._missing, self._verify = base._missing, base._verify
        reader = self._base._reader
        view = View(reader.planned_grid, self._extents)
        names, attributes = base.metadata.dimension_names, base.metadata.attributes
        if names is not None and DIMENSIONS_ATTRIBUTE in attributes:
            attributes = {**attributes, DIMENSIONS_ATTRIBUTE: list(self._kept(names))}
        self._metadata = replace(
            base.metadata,
            attributes=attributes,
            chunk_grid=view.grid,
            codecs=self._codecs_of(reader.decoding.codecs),
            dimension_names=None if names is None else self._kept(names),
        )
        self._reader = ViewReader(reader, view, self._metadata, self._store, self._path, self._device)

    def _kept(self, items: Sequence[Any]) -> tuple[Any, ...]:
        """Return the items for axes that the view has, of items for all axes of the array."""
        return tuple(item for item, extent in zip(items, self._extents, strict=True) if extent.kept)

    def _codecs_of(self, codecs: Sequence[Codec]) -> tuple[Codec, ...]:
        """Return the codecs of an array with the axes of the view."""
        kept = [d for d, extent in enumerate(self._extents) if extent.kept]
        if len(kept) == len(self._extents):
            return tuple(codecs)
        found: list[Codec] = []
        for codec in codecs:
            if isinstance(codec, TransposeCodec):
                codec = TransposeCodec(tuple(kept.index(d) for d in codec.order if d in kept))
                if codec.order == tuple(range(len(kept))):
                    continue
            found.append(codec)
        return tuple(found)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ArrayView):
            return NotImplemented
        return self._base == other._base and self._extents == other._extents

    __hash__: ClassVar[None] = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        return ArrayView, (self._base, self._extents)

    def __repr__(self) -> str:
        return (
            f"<gzarr.ArrayView {printable(self.name)} {self.shape} {printable(self.dtype, 120)}, chunks {self.chunks}, "
            f"{printable(self.decode_path)}>"
        )

    def _repr_html_(self) -> str | None:  # type: ignore[override]
        # What is stored is the array's.
        return None

    def __dask_tokenize__(self) -> str:
        return f"{self._base.__dask_tokenize__()} {self._extents}"

    @property
    def base(self) -> WritableArray:
        """The array, as it was when the view was made."""
        return self._base

    @property
    def selection(self) -> tuple[int | slice, ...]:
        """What of the array it is, along each axis: ``view.base.view[view.selection]`` is the same view."""
        return tuple(extent.item for extent in self._extents)

    @property
    def name(self) -> str:
        """Path of the array in the store with a leading slash, and what of the array it is."""
        return f"{self._base.name}[{', '.join(map(str, self._extents))}]"

    @property
    def write_empty_chunks(self) -> bool:
        """As for the array."""
        return self._base.write_empty_chunks

    @property
    def view(self) -> ViewIndexer:
        """Parts of the view, which are views of the array: ``a.view[0].view[:, 10:90]`` is ``a.view[0, :, 10:90]``."""
        return ViewIndexer(self)

    @property
    def chunks(self) -> Index:
        """Shape of a chunk of the view, in elements; the longest length along each axis, where they differ."""
        return self._metadata.chunk_shape

    @property
    def shards(self) -> None:
        """None: parts of inner chunks are its chunks."""
        return

    @property
    def oindex(self) -> Indexer:
        """Orthogonal selection, as :attr:`Array.oindex`."""
        return Indexer(self, parse_orthogonal, "oindex")

    @property
    def vindex(self) -> Indexer:
        """Point selection, as :attr:`Array.vindex`."""
        return Indexer(self, parse_points, "vindex")

    @property
    def blocks(self) -> Indexer:
        """Selection of whole chunks of the view by grid index, as :attr:`Array.blocks`."""
        return Indexer(self, self._parse_blocks, "blocks")

    def __setitem__(self, selection: Any, value: Any) -> None:
        """Refuse to write.

        Raises
        ------
        ReadOnlyError
            Always: views are for reading.
        """
        self._check_writable()

    def _check_writable(self) -> None:
        raise ReadOnlyError(f"{self.name} is a view, which is for reading; write to the array, {self._base.name}")

    # -- what only an array has

    @property
    def nchunks_initialized(self) -> int:
        """Not for views.

        Raises
        ------
        ArgumentError
            Always.
        """
        self._refuse("nchunks_initialized")

    def info_complete(self) -> Info:
        """Not for views.

        Raises
        ------
        ArgumentError
            Always.
        """
        self._refuse("info_complete()")

    def nbytes_stored(self) -> int:
        """Not for views.

        Raises
        ------
        ArgumentError
            Always.
        """
        self._refuse("nbytes_stored()")

    def _refuse(self, what: str) -> NoReturn:
        raise ArgumentError(f"{self.name} is a view, and what is stored is the array's: ask view.base.{what}")

    # -- for those who take arrays

    def _known_writes(self) -> Writes | None:
        """Return what is known of writes through the array that the view was made of."""
        return self._base._known_writes()

    def _on_device(self, device: str) -> ArrayView:
        """Return the same view with results on a device."""
        return self if self.device == device else ArrayView(self._base._on_device(device), self._extents)

    def _shape_within(self, shape: Sequence[int]) -> Index:
        """Return the shape of the view that an array of some shape leaves; that shape, if it has other axes."""
        if len(shape) != len(self._extents):
            return tuple(shape)
        left = [extent.within(size) for extent, size in zip(self._extents, shape, strict=True)]
        gone = not all(n or extent.kept for n, extent in zip(left, self._extents, strict=True))
        return tuple(0 if gone else n for n in self._kept(left))

    def _layout(self) -> dict[str, Any]:
        """Return chunks and shards of a new array like this one: the array's, along the axes of the view."""
        if not self._base.metadata.chunk_grid.is_regular:
            return {"chunks": "auto", "shards": None}
        # No longer than the view, unless shards would not be multiples of them.
        chunks, shards = self._kept(self._base.chunks), self._base.shards
        if shards is None:
            return {"chunks": tuple(max(min(n, c), 1) for n, c in zip(self.shape, chunks, strict=True)), "shards": None}
        return {"chunks": chunks, "shards": self._kept(shards)}


class ViewIndexer:
    """What ``a.view`` is: takes a selection, and returns a view."""

    __slots__ = ("_of",)

    def __init__(self, of: WritableArray | ArrayView) -> None:
        self._of = of

    def __repr__(self) -> str:
        return f"{self._of!r}.view"

    def __getitem__(self, selection: Any) -> ArrayView:
        """Return a view of a part; nothing is read.

        Parameters
        ----------
        selection
            Integers, which leave out an axis, slices of any step, and at most one ``...``.

        Raises
        ------
        SelectionError
            If the selection is anything else, or does not fit the shape.
        """
        if isinstance(self._of, ArrayView):
            return ArrayView(self._of.base, parts(self._of._extents, selection))
        return ArrayView(self._of, parts(whole_extents(self._of.shape), selection))
