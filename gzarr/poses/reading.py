"""Reading a box of an array in any pose."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ..arrays.exporting import ExportedArray
from ..arrays.outputs import DeviceResults
from ..arrays.read_options import as_dtype
from ..documents.json import quote
from ..dtypes.properties import native
from ..errors import ArgumentError
from ..integers import as_integers
from ..windows.inputs import KINDS, array_of
from .arguments import boundary_of, check_device, is_element, order_of, source_dtype
from .boxes import Need
from .device import OnDevice
from .host import Host, Posed, converted, is_number
from .levels import is_auto, is_image, map_from_system, map_to_level
from .maps import AffineMap, checked_map

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..windows.inputs import Input
    from .arguments import Interpolation

_WANTED = f"read_affine takes {KINDS}"


def read_affine(  # noqa: PLR0913
    array: Input,
    matrix: Any,
    *,
    offset: Any = None,
    centre: Any = None,
    shape: Sequence[int] | None = None,
    interpolation: Interpolation = "linear",
    boundary: Any = "constant",
    dtype: Any = None,
    level: int | Literal["auto"] = "auto",
    system: Any = None,
    device: str = "auto",
    out: Any = None,
    stream: Any = None,
    budget_bytes: int | None = None,
) -> Any:
    """Read a box of an array in any pose: rotated, scaled, sheared, flipped, moved.

    The element ``i`` of the result, a column of integers, shows what lies at ``matrix @ i + offset``, as in
    ``scipy.ndimage.affine_transform``. Only the chunks that the result needs are read.

    Parameters
    ----------
    array
        An array of gzarr or a view of one, a path or URL of one, an array of zarr-python or of NumPy, or an image of
        OME-Zarr. The map is of its last two or three axes; those before them are kept.
    matrix
        Numbers ``(k, k)`` for ``k`` axes, 2 or 3; ``(k,)`` for a diagonal; or ``(k, k + 1)``, with the offset in the
        last column (the first rows of a homogeneous matrix). It maps indices of the result to indices of the array; to
        physical places of an image, in its units, where the centre of the element ``i`` of a level lies at
        ``scale * i + translation``.
    offset
        Numbers ``(k,)`` or one for all axes: place of the result's first element. None for 0.
    centre
        Numbers ``(k,)``: place of the result's centre, instead of ``offset``.
    shape
        Shape of the result along these axes; None for that of the array.
    interpolation
        ``"nearest"``, ``"linear"`` or ``"cubic"`` (a spline through the elements; SciPy's order 3).
    boundary
        What lies beyond the ends of the array, by the names of ``numpy.pad``: ``"reflect"``, ``"symmetric"``,
        ``"edge"``, ``"wrap"``; or a number, or ``"constant"`` for the array's fill value. The result is that of the
        array with so much of this around it. (SciPy calls them ``"mirror"``, ``"reflect"``, ``"nearest"``,
        ``"grid-wrap"`` and ``"grid-constant"``.)
    dtype
        Data type of the result; None for that of ``out``, or else of the array. Integers are rounded, ties away from
        zero, and cut to their range. One that lacks a part of each element (the imaginary part, the end of texts) is
        refused.
    level
        Level of an image. ``"auto"`` for the coarsest whose elements are no further apart than the result's, along
        each axis; the finest if none is.
    system
        Coordinate system of an image in which the map's places lie, along its last axes, instead of the one of scale
        and translation; as for :meth:`gzarr.ome.Image.coordinate_map`.
    device
        Device of what is not open yet: ``"auto"``, ``"cpu"`` or ``"cuda"``. An open array is read to its own device.
    out
        Array of the result's shape and dtype, with any strides.
    stream, budget_bytes
        As for :meth:`gzarr.Array.read`.

    Returns
    -------
    ``out``, or a new array on the array's device, ``(leading axes, *shape)``.

    Raises
    ------
    ArgumentError
        If an argument is none of the above, or if elements cannot be interpolated.
    OutputError
        If ``out`` does not fit; nothing was read.
    NodeNotFoundError, NodeTypeError, MetadataError, UnsupportedError, StoreError, ChunkError, DeviceError, MemoryError
        As for :meth:`gzarr.Array.read` and :func:`gzarr.open_array`; for an image, also if its scales are not known,
        or if the map from ``system`` is not affine, or mixes the map's axes with others.

    Notes
    -----
    Places are computed in float64, and so are values (those of float16 are rounded to float32 first). Linear
    interpolation ignores neighbours without weight, also if they are NaN. Where all places are elements (axes
    exchanged, flips, whole steps), elements are copied. On a device, chunks are decoded there, and the box is resampled
    there.
    """
    order = order_of(interpolation)
    affine = checked_map(matrix, offset)
    k = len(affine.offset)
    image = array if is_image(array) else None
    check_device(device)
    if image is None and (not is_auto(level) or system is not None):
        what = f"level={quote(level)}" if system is None else f"system={quote(system)}"
        raise ArgumentError(f"{what} is for OME images; this is an array, which has no levels and coordinate systems")
    if image is None:
        source: Any = array_of(array, device, _WANTED)
        if not isinstance(source, ExportedArray):
            raise ArgumentError(f"{_WANTED}; a sparse matrix has no box in another pose")
        wanted = _shape(shape, source.shape, k)
        affine = _centred(affine, offset, centre, wanted)
    else:
        if system is not None:
            # It may have none of scale and translation.
            image = image._of_levels()
        wanted = _shape(shape, image.levels[0].array.shape, k)
        affine = _centred(affine, offset, centre, wanted)
        if system is not None:
            affine = map_from_system(image, affine, system)
        source, affine = map_to_level(image, affine, level)
    mode, fill = boundary_of(boundary, source.metadata.absent_element)
    if dtype is None:
        dtype = source.dtype if out is None else getattr(out, "dtype", source.dtype)
    final = as_dtype(dtype)
    size: tuple[int, ...] = source.shape[-k:]
    fits = mode != "constant" or is_element(fill, source.dtype)
    if not (order or fits):
        raise ArgumentError(
            f"boundary={quote(boundary)} is not a value of {source.dtype}, and interpolation='nearest' makes no others"
        )
    need = Need.of(affine, wanted, order, mode, size, copies=fits)
    given = source_dtype(source.dtype, order, f"the array {source.name!r}", final)
    if not order:
        _check_copied(source.dtype, final)
    if order and not (is_number(native(final)) or final == np.float16):
        raise ArgumentError(f"dtype must be one of integers or floats for interpolation={interpolation!r}, not {final}")
    if 0 in size and mode != "constant" and 0 not in wanted:
        raise ArgumentError(f"an array of shape {source.shape} has no elements to continue by boundary={mode!r}")
    options = source._read_options(None, stream, budget_bytes, "auto", None)
    result = source._output((*source.shape[:-k], *wanted), final, out, options.memory)
    if not result.size:
        return result
    if not need.is_constant and not affine.has_places(wanted):
        raise ArgumentError(
            "the map leads to places beyond the range of float64: pass another matrix=, offset= or shape="
        )
    way = Host() if not isinstance(options.memory, DeviceResults) else OnDevice(options.memory)
    if need.is_constant:
        one = converted(np.array(fill, source.dtype if order == 0 else np.float64), final)
        if isinstance(way, OnDevice):
            way.upload(one, result)
        else:
            result[...] = one
        return result
    selection = (*(slice(None),) * (source.ndim - k), *need.selection)
    elements = way.cast(source.read(selection, stream=stream, budget_bytes=budget_bytes), given)
    resample_box(way, need, elements, fill, result)
    return result


def resample_box(way: Host | OnDevice, need: Need, elements: Any, fill: Any, target: Any) -> None:
    """Make a result from the elements that it needs.

    Parameters
    ----------
    way
        Where the arrays are.
    need
        What it needs.
    elements
        Elements ``(leading axes, …)`` of :attr:`Need.selection`, of a dtype that the kernel takes.
    fill
        The constant beyond the ends.
    target
        The result ``(leading axes, *shape)``.
    """
    k = len(need.size)
    box = need.box(way, elements, fill)
    made = way.made(need.order, box.dtype, target)
    way.resample(
        [
            Posed(box[at], need.low, need.size, need.affine, made[at], fill)
            for at in np.ndindex(*target.shape[: target.ndim - k])
        ],
        need.order,
        need.mode,
    )
    if made is not target:
        way.store(target, made)


def _check_copied(dtype: np.dtype[Any], final: np.dtype[Any]) -> None:
    """Refuse results that lack a part of each element: the imaginary one of numbers, the end of texts."""
    kinds = dtype.kind + final.kind
    if (kinds[0] == "c" and kinds[1] != "c") or (kinds in ("SS", "UU", "VV") and final.itemsize < dtype.itemsize):
        raise ArgumentError(f"elements of {dtype} cannot be copied to a result of {final}, which lacks a part of them")


def _shape(shape: Any, whole: tuple[int, ...], k: int) -> tuple[int, ...]:
    """Return the shape of a result along the axes of its map."""
    if len(whole) < k:
        raise ArgumentError(f"a map of {k} axes cannot be of an array of shape {whole}: it has {len(whole)}")
    lengths = whole[-k:] if shape is None else as_integers(shape)
    # Places are counted by 32 bits in a row.
    if lengths is None or len(lengths) != k or not all(0 <= n < 2**31 for n in lengths):
        raise ArgumentError(
            f"shape must be {k} integers of at least 0, one for each axis of the map, not {quote(shape)}"
        )
    return lengths


def _centred(affine: AffineMap, offset: Any, centre: Any, shape: tuple[int, ...]) -> AffineMap:
    """Return a map whose result has its centre at a place."""
    if centre is None:
        return affine
    if offset is not None or affine.offset.any():
        raise ArgumentError("give offset= (of the first element) or centre= (of the result's centre), not both")
    middle = checked_map(affine.matrix, centre).offset
    return AffineMap(affine.matrix, middle - affine.matrix @ ((np.array(shape, np.float64) - 1) / 2))
