"""Predictions for patches that overlap, put together as one array.

Sums and weights are kept for tiles of the array that have some of their patches, but not all: see
:mod:`gzarr.loader.merge_tiles`. A patch that has come is marked, so one that comes again counts once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

import numpy as np

from ..arrays.array import Array
from ..display import readable_size
from ..documents.json import quote
from ..dtypes.properties import kind_of, number_limits
from ..errors import ArgumentError
from ..flags import flag
from ..poses.numbers_given import as_floats
from ..positive import positive
from .merge_memory import merge_memory
from .merge_tiles import Tiles, tile_axes
from .samplers import Patches, patch_axes, patch_integers
from .samples import Geometry

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    import numpy.typing as npt

    from .batch import Batch
    from .merge_memory import MergePlace
    from .merge_tiles import TilePiece

    Box = tuple[slice, ...]

Window: TypeAlias = Literal["hann", "gaussian", "flat"]

_BUDGET_BYTES: Final = 1 << 30
#: Standard deviation of a Gaussian window, in lengths of a patch.
_SIGMA: Final = 1 / 8


@dataclass(eq=False)
class _Tile:
    """A tile that has some of its patches.

    Attributes
    ----------
    sums
        Weighted sums of predictions, then their means.
    weights
        Sums of weights; of length 1 along axes of the array that are not the patch's.
    box
        Its place in the array.
    is_mean
        Whether ``sums`` are means.
    """

    sums: Any
    weights: Any
    box: Box
    is_mean: bool = False


class Merge:
    """Predictions for patches that overlap, put together as one array in bounded memory.

    Each element becomes the weighted mean of all predictions for it: those far from the edges of their patch count
    more. Patches come from a sampler, in any order. A part of the array is written, whole and once, as
    soon as the last patch has come that touches it. Memory is needed for parts that wait for further patches only: if
    patches come in their own order (a loader's ``shuffle=False``), about two rows of patches along the first axis.

    Use it in a ``with`` statement. At its end, patches that have not come are an error; after an exception, nothing
    more is written. Without it, an interrupt (Ctrl-C) while a patch is added leaves sums that nobody knows: then all
    that follows is an error.

    Parameters
    ----------
    out
        Array of numbers that is opened for writing. Along the patch's axes, it has the shape of the loader's first
        array; along others (such as channels), predictions have all of its elements. It must not be an array that the
        loader reads. If its device is a GPU, predictions are put together there.
    sampler
        The loader's :class:`Patches`, which say how many patches touch an element. Patches at random places
        (``jitter``, ``weights``) will not do: it is not known which of them are to come.
    window
        Weights of the elements of a patch. ``"hann"`` falls from the middle to near 0 at the edges, and is constant in
        sum if patches overlap by half; ``"gaussian"`` has a standard deviation of an eighth of the patch's length;
        ``"flat"`` is the same for all elements. Or positive numbers of the patch's shape, without its halo, none of
        which is below 1.2e-38 of the largest, or, for sums of 64 bits, 2.3e-308.
    axes
        Axes of ``out`` that the patch's shape is along; None for the sampler's axes (the last ones, if it has none).
    partial
        Whether patches may lack at the end. Elements then have the mean of what has come.
    budget_bytes
        Most bytes of parts of ``out`` that wait for further patches. Predictions, and a patch's weighted elements, come
        on top.

    Raises
    ------
    ReadOnlyError
        If ``out`` is read-only.
    ArgumentError
        If an argument is none of the above, or if patches in their own order need more than ``budget_bytes``.

    Notes
    -----
    Halos, and what patches at the border have outside of the array (``pad``), are cut off. Elements that no patch
    covers keep what ``out`` has.

    Sums have 32 bits, or 64 where predictions or ``out`` have more than 24 bits of precision. If ``out`` has integers,
    means are rounded to the nearest one, and those out of its range become its lowest or highest. A mean of numbers of
    classes is none of a class: put scores together, with a channel for each class, and take the largest afterwards.

    One process takes all patches, in one thread.

    Examples
    --------
    >>> import gzarr
    >>> import numpy as np
    >>> from gzarr.loader import Loader, Merge, Patches
    >>> image = gzarr.array(np.arange(40.0).reshape(5, 8), chunks=(2, 3))
    >>> out = gzarr.zeros_like(image)
    >>> patches = Patches((4, 4), stride=(2, 2))
    >>> with Merge(out, patches) as merge:
    ...     for batch in Loader(image, patches, batch_size=4, shuffle=False, drop_last=False):
    ...         merge.add(batch["data"] + 1, batch)
    >>> bool(np.allclose(out[...], image[...] + 1))
    True
    """

    def __init__(
        self,
        out: Array,
        sampler: Patches,
        window: Window | npt.ArrayLike = "hann",
        *,
        axes: tuple[int, ...] | None = None,
        partial: bool = False,
        budget_bytes: int = _BUDGET_BYTES,
    ) -> None:
        if not isinstance(out, Array):
            raise ArgumentError(f"out must be an array of gzarr that is opened for writing, not {quote(out)}")
        out._check_writable()
        if kind_of(out.dtype) not in "iuf":
            raise ArgumentError(
                f"{out.name} has elements of {out.dtype}, of which there are no means; out must have integers or "
                "floating-point numbers"
            )
        if not isinstance(sampler, Patches):
            raise ArgumentError(f"sampler must be the loader's Patches, not {quote(sampler)}")
        if flag("jitter", sampler.jitter) or sampler.weights is not None or sampler.samples is not None:
            raise ArgumentError(
                "patches at random places (jitter=True), or drawn by weights= or samples=, cannot be put together: "
                "it is not known which of them are to come; use patches on a grid, or listed by where="
            )
        if sampler.is_posed:
            raise ArgumentError("posed patches (rotate=, scale=, …) cannot be put together: they lie on no grid")
        self._budget_bytes = positive("budget_bytes", budget_bytes)
        self._out, self._partial = out, flag("partial", partial)
        k = len(patch_integers("shape", sampler.shape, None, 1))
        given = sampler.axes if axes is None else axes
        self._axes = patch_axes(given, k, out.ndim, f"{out.name} of shape {out.shape}")
        size, chunks = (tuple(of[axis] for axis in self._axes) for of in (out.shape, out.chunks))
        # Interpolations may be those of the loader's arrays, by name.
        plain = replace(sampler, axes=tuple(range(k)), interpolation="linear")
        samples = plain.bind({"": Geometry(size, chunks, out.dtype)}, 1)
        part = samples.parts[0]
        self._halo = tuple(-low for low in part.low)
        self._shape = tuple(n - 2 * h for n, h in zip(part.shape, self._halo, strict=True))
        self._channels = math.prod(n for d, n in enumerate(out.shape) if d not in self._axes)
        grid = out.metadata.chunk_grid
        # Sums of all channels, and one weight.
        nbytes = _sum_type(out.dtype).itemsize * (self._channels + 1)
        self._tiles = Tiles(
            tile_axes([grid.axes[axis] for axis in self._axes], self._shape, nbytes), self._shape, samples
        )
        self._window = _window(window, self._shape)
        self._in_order = self._tiles.most_elements() * nbytes
        if self._in_order > self._budget_bytes:
            raise ArgumentError(
                f"parts of {out.name} that wait for further patches take up to {readable_size(self._in_order)}, even "
                f"if patches come in their own order, but budget_bytes is {readable_size(self._budget_bytes)}; pass a "
                "larger budget_bytes, use smaller patches, chunks or shards, or list the patches in another order, by "
                "where="
            )
        self._memory = merge_memory(out.device)
        self._seen = np.zeros(self._tiles.total, bool)
        self._left = self._tiles.touching.copy()
        self._live: dict[int, _Tile] = {}
        self._held = self._most_held = 0
        self._dtype: np.dtype[Any] | None = None
        # The window in the memory and in the layout of sums.
        self._weights: Any = None
        # Whether sums are being changed: a call that finds it so follows one that did not end.
        self._torn = False
        # Whether tiles that lack patches are being written, and whether all are.
        self._closing = self._closed = False

    def __repr__(self) -> str:
        """Tell the array, the patches that have come, and the memory that is held."""
        total = self._tiles.total
        return (
            f"<Merge of {total - self.missing} of {total} patches of {self._shape} into {self._out.name} "
            f"{self._out.shape} {self._out.dtype}, {readable_size(self._held)} held>"
        )

    @property
    def missing(self) -> int:
        """Number of patches that have not come."""
        return int(len(self._seen) - np.count_nonzero(self._seen))

    @property
    def held_bytes(self) -> int:
        """Bytes of the parts of ``out`` that wait for further patches now."""
        return self._held

    @property
    def most_held_bytes(self) -> int:
        """The most bytes that were held at one time."""
        return self._most_held

    def add(self, predictions: Any, batch: Batch | npt.ArrayLike) -> None:
        """Add the predictions for the patches of a batch. Those for patches that have come before are ignored.

        Parameters
        ----------
        predictions
            Array of integers, floating-point numbers or booleans ``(n, *shape)``, where ``shape`` is that of ``out``
            with the patch's lengths along its axes, with or without the halo: of NumPy, CuPy, PyTorch, JAX, or any
            object with ``__array__`` or ``__dlpack__``. It may be used again when the call returns.
        batch
            The loader's batch, or where its samples begin: int64 ``(n, axes)``, as ``batch.origins``. Predictions for a
            batch are reversed as its samples are (the loader's ``flip``), and are turned back along the patch's axes.
            Those for origins have to lie as ``out`` does.

        Raises
        ------
        ArgumentError
            If the predictions have another shape or type, if they belong to no patch of the sampler, if this is closed,
            if :meth:`close` has begun to write, if a call before was interrupted while it added a patch, or if numbers
            of the window are too small for the type of sums, which the first predictions decide; nothing was added. If
            parts that wait for further patches would take more than ``budget_bytes``, or an integer is to be made of
            NaN; predictions before that one were added.
        ChunkError, StoreError
            If a part cannot be written; :meth:`close` tries it again. Predictions that follow in the batch were not
            added: add it once more.
        """
        self._refuse_torn()
        if self._closed:
            raise ArgumentError("this Merge is closed: all patches have come, or there was an error")
        if self._closing:
            raise ArgumentError(
                f"close() has begun to write the parts of {self._out.name} that lack patches, and did not end: call "
                "close() again; no more patches can be added"
            )
        origins = self._origins(batch)
        rows = self._tiles.rows(origins)
        flipped = getattr(batch, "flipped", ())
        if flipped is None:
            raise ArgumentError(
                f"{self._out.name}: flip= has reversed some arrays of the batch and not others, so it does not say how "
                "predictions lie; turn them as out lies, and pass batch.origins instead of the batch"
            )
        with self._memory.using(predictions) as place:
            predictions = place.taken(predictions, self._out.name)
            inner = self._inner(tuple(predictions.shape), len(rows), flipped)
            if kind_of(predictions.dtype) not in "biuf":
                raise ArgumentError(
                    f"predictions of {predictions.dtype} have no means; they must be integers, floating-point numbers "
                    "or booleans"
                )
            self._begin(predictions.dtype, place)
            for i, (row, origin) in enumerate(zip(rows.tolist(), origins.tolist(), strict=True)):
                if not self._seen[row]:
                    self._add(predictions[(i, *inner)], row, origin, place)

    def close(self) -> None:
        """Write what is not yet written. The end of a ``with`` statement does it.

        Raises
        ------
        ArgumentError
            If patches have not come, unless ``partial``; they may still be added. If a call was interrupted while it
            added a patch.
        ChunkError, StoreError
            If a part cannot be written. Call it again; no more patches can be added.
        """
        self._refuse_torn()
        if self._closed:
            return
        missing = self.missing
        if missing and not self._partial:
            origin = self._tiles.origin(int(np.argmin(self._seen)))
            raise ArgumentError(
                f"{missing} of {self._tiles.total} patches have not come, the first of which begins at {origin}; parts "
                f"of {self._out.name} that they touch are not written. A loader leaves out patches that do not fill a "
                "batch, unless drop_last=False; partial=True writes what there is"
            )
        # Else all patches are there, and those that come again are ignored.
        self._closing = missing > 0
        with self._memory.using() as place:
            for number in list(self._live):
                self._write(number, place)
        self._drop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it; after an exception, write nothing."""
        try:
            if kind is None:
                self.close()
        finally:
            self._drop()

    def _refuse_torn(self) -> None:
        """Refuse to go on with sums that nobody knows."""
        if self._torn:
            raise ArgumentError(
                f"a call was interrupted while it changed sums, so parts of {self._out.name} that are not written yet "
                "are lost, and nothing more is written: put all predictions together again, by a new Merge"
            )

    # -- what is given

    def _origins(self, batch: Any) -> npt.NDArray[np.int64]:
        """Return where the samples of a batch begin."""
        volumes = getattr(batch, "volumes", None)
        if volumes is not None and np.any(volumes):
            raise ArgumentError("the batch has samples of several volumes; use a loader and a Merge for each of them")
        origins = np.asarray(getattr(batch, "origins", batch))
        if origins.ndim != 2 or origins.shape[1] != len(self._axes) or origins.dtype.kind not in "iu":
            raise ArgumentError(
                f"where patches begin must be integers of shape (n, {len(self._axes)}), as batch.origins, not "
                f"{origins.dtype} of shape {origins.shape}"
            )
        return origins.astype(np.int64)

    def _inner(self, shape: tuple[int, ...], count: int, flipped: tuple[int, ...]) -> Box:
        """Return the part of predictions that is the patch, after the axis of samples, turned back along some axes."""
        pairs = list(zip(self._shape, self._halo, strict=True))
        wanted = self._layout(self._shape)
        whole = self._layout([n + 2 * h for n, h in pairs])
        if shape in ((count, *wanted), (count, *whole)):
            cut: list[slice] = [slice(None)] * len(whole)
            for i, (axis, (n, h)) in enumerate(zip(self._axes, pairs, strict=True)):
                low = h if shape == (count, *whole) else 0
                # Counted from the end: backwards, the first element has none before it.
                back = slice(low + n - 1 - shape[1 + axis], low - 1 - shape[1 + axis], -1)
                cut[axis] = back if i in flipped else slice(low, low + n)
            return tuple(cut)
        also = f", or {(count, *whole)} with the halo" if whole != wanted else ""
        raise ArgumentError(
            f"predictions have shape {shape}; for {count} patches in {self._out.name} of shape {self._out.shape}, it "
            f"must be {(count, *wanted)}{also}"
        )

    def _layout(self, lengths: Any, others: int | None = None) -> tuple[int, ...]:
        """Return a shape with some lengths along the patch's axes, and ``out``'s, or one number, along others."""
        shape = list(self._out.shape) if others is None else [others] * self._out.ndim
        for axis, length in zip(self._axes, lengths, strict=True):
            shape[axis] = int(length)
        return tuple(shape)

    def _box(self, slices: Box) -> Box:
        """Return a selection along the patch's axes as one of arrays that are laid out as ``out``."""
        box = [slice(None)] * self._out.ndim
        for axis, one in zip(self._axes, slices, strict=True):
            box[axis] = one
        return tuple(box)

    # -- sums

    def _begin(self, dtype: np.dtype[Any], place: MergePlace) -> None:
        """Choose the type of sums by the first predictions."""
        if self._dtype is not None:
            return
        dtype = _sum_type(self._out.dtype, dtype)
        # Axes of the window in the order of ``out``.
        order = np.argsort(self._axes)
        window = self._window * _scale(float(self._window.min()), self._tiles.most_overlapping, dtype)
        window = window.transpose(order).reshape(self._layout(self._shape, 1))
        self._weights = place.copied(window.astype(dtype))
        self._dtype = dtype

    def _add(self, prediction: Any, row: int, origin: list[int], place: MergePlace) -> None:
        """Add the prediction for a patch, and write the tiles that it completes."""
        pieces = list(self._tiles.pieces(origin))
        # All of them, before any sum is changed.
        made, nbytes = self._made(pieces, place)
        weighted = prediction.astype(self._dtype, copy=False) * self._weights
        self._torn = True
        self._live.update(made)
        self._held += nbytes
        self._most_held = max(self._most_held, self._held)
        for piece in pieces:
            tile = self._live[piece.tile]
            in_tile, in_patch = self._box(piece.in_tile), self._box(piece.in_patch)
            tile.sums[in_tile] += weighted[in_patch]
            tile.weights[in_tile] += self._weights[in_patch]
            self._left[piece.tile] -= 1
        self._seen[row] = True
        self._torn = False
        for piece in pieces:
            if not self._left[piece.tile]:
                self._write(piece.tile, place)

    def _made(self, pieces: list[TilePiece], place: MergePlace) -> tuple[dict[int, _Tile], int]:
        """Make the tiles of pieces that are not there yet; return them by their numbers, and their bytes."""
        assert self._dtype is not None
        new = [piece for piece in pieces if piece.tile not in self._live]
        each = [math.prod(high - low for low, high in piece.extents) for piece in new]
        nbytes = sum(each) * (self._channels + 1) * self._dtype.itemsize
        if self._held + nbytes > self._budget_bytes:
            raise ArgumentError(
                f"parts of {self._out.name} that wait for further patches would take "
                f"{readable_size(self._held + nbytes)}, more than budget_bytes={self._budget_bytes}; "
                f"{self._most_in_order()}"
            )
        made = {}
        for piece in new:
            lengths = [high - low for low, high in piece.extents]
            made[piece.tile] = _Tile(
                place.zeros(self._layout(lengths), self._dtype),
                place.zeros(self._layout(lengths, 1), self._dtype),
                self._box(tuple(slice(*extent) for extent in piece.extents)),
            )
        return made, nbytes

    def _most_in_order(self) -> str:
        assert self._dtype is not None
        nbytes = self._in_order * self._dtype.itemsize // _sum_type(self._out.dtype).itemsize
        if nbytes <= self._budget_bytes:
            return f"if patches come in their own order (shuffle=False), they take {readable_size(nbytes)} at most"
        return f"in their own order (shuffle=False), patches need {readable_size(nbytes)}: pass a larger budget_bytes"

    # -- writing

    def _write(self, number: int, place: MergePlace) -> None:
        """Write a tile and free its memory."""
        tile = self._live[number]
        covered = tile.weights > 0
        # On a device, the host would have to wait to look.
        whole = (self._tiles.covers_all and not self._left[number]) or bool(covered.all())
        if not tile.is_mean:
            weights = tile.weights if whole else np.where(covered, tile.weights, 1)
            self._torn = True
            _divide(tile.sums, weights)
            # The next try, if this one fails, finds it so.
            tile.is_mean = True
            self._torn = False
        values = tile.sums
        if kind_of(self._out.dtype) != "f":
            values = _integers(values, self._out.dtype, self._out.name)
        if not whole:
            values = np.where(covered, values, self._old(tile.box, place))
        self._out.write(tile.box, values, aligned=True, stream=place.stream)
        nbytes = tile.sums.nbytes + tile.weights.nbytes
        del self._live[number]
        self._held -= nbytes

    def _old(self, box: Box, place: MergePlace) -> Any:
        """Return what ``out`` has; the fill value where nothing is stored."""
        out = self._out
        if out.missing != "fill":
            out = Array(out.metadata, out.store, out.path, device=out.device)
        return out.read(box, stream=place.stream)

    def _drop(self) -> None:
        """Free all memory."""
        self._closed = True
        self._memory.close()
        self._live.clear()
        self._held, self._weights = 0, None


def _sum_type(*dtypes: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type of sums of numbers of some types."""
    # The numbers of ml_dtypes have fewer bits.
    natives = [dtype for dtype in dtypes if dtype.kind in "biuf"]
    return np.dtype(np.float32 if np.result_type(np.float32, *natives).itemsize == 4 else np.float64)


def _divide(sums: Any, weights: Any) -> None:
    """Make means of sums, in place: of finite numbers, finite ones."""
    beyond = np.isfinite(sums)
    with np.errstate(over="ignore"):
        sums /= weights
    # The mean of the largest numbers may be rounded to one beyond them.
    beyond &= np.isinf(sums)
    most = np.finfo(sums.dtype).max
    # On a device, ``sums[mask] = ...`` is many kernels, and takes memory for a scan.
    np.copyto(sums, most, where=beyond & (sums > 0))
    np.copyto(sums, -most, where=beyond & (sums < 0))


def _scale(least: float, overlapping: int, dtype: np.dtype[Any]) -> float:
    """Return what a window is multiplied by, so that weights add up to about 1/2 at most where patches lie.

    So no sum is beyond the largest number if the predictions are not. As it is a power of two, means are what they
    would be without, unless predictions are near the smallest numbers. Patches that are known not to overlap, as on a
    grid, are not scaled; others are, as far as the least weight keeps all of its bits.

    Parameters
    ----------
    least
        Least weight, of which the largest is about 1.
    overlapping
        No more patches than this have an element in common.
    dtype
        Type of sums.

    Raises
    ------
    ArgumentError
        If the type has too few bits for the least weight.
    """
    tiny = float(np.finfo(dtype).tiny)
    if least < tiny:
        raise ArgumentError(
            f"the smallest number of the window is {least:.1e} of the largest, too little for sums of "
            f"{8 * dtype.itemsize} bits; it must be at least {tiny:.1e} of it"
        )
    halvings = (overlapping - 1).bit_length() + 1 if overlapping > 1 else 0
    return 2.0 ** -min(halvings, math.frexp(least)[1] - math.frexp(tiny)[1])


def _window(window: Any, shape: tuple[int, ...]) -> npt.NDArray[np.float64]:
    """Return the weights of a patch's elements: positive numbers, the largest of which is about 1."""
    if isinstance(window, str):
        if window not in get_args(Window):
            raise ArgumentError(
                f"window must be {', '.join(map(repr, get_args(Window)))} or an array, not {quote(window)}"
            )
        result = np.ones((), np.float64)
        for length in shape:
            result = np.multiply.outer(result, _profile(window, length))
        return result
    try:
        found = as_floats(window)
    except (TypeError, ValueError, OverflowError) as error:
        raise ArgumentError(f"the window must be numbers: {error}") from error
    if found.shape != shape:
        raise ArgumentError(f"the window has shape {found.shape}, but patches have {shape}, without their halo")
    if not (np.isfinite(found).all() and (found > 0).all()):
        raise ArgumentError("all numbers of the window must be positive and finite")
    return np.asarray(found / found.max())


def _profile(window: str, length: int) -> npt.NDArray[np.float64]:
    """Return weights along an axis."""
    middles = np.arange(length) + 0.5
    if window == "hann":
        return np.asarray(np.sin(np.pi * middles / length) ** 2)
    if window == "gaussian":
        return np.asarray(np.exp(-(((middles / length - 0.5) / _SIGMA) ** 2) / 2))
    return np.ones(length)


def _integers(values: Any, dtype: np.dtype[Any], node: str) -> Any:
    """Return the nearest integers of a type."""
    if bool(np.isnan(values).any()):
        raise ArgumentError(f"{node}: a mean of predictions is NaN, which cannot be stored as {dtype}")
    low, high = number_limits(dtype)
    if dtype.itemsize < 8:
        return np.clip(np.rint(values), low, high).astype(dtype)
    # The highest integer is no floating-point number.
    below = float(np.nextafter(float(high), 0))
    return np.where(values >= float(high), high, np.clip(np.rint(values), low, below).astype(dtype)).astype(dtype)
