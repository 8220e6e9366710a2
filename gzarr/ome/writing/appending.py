"""Frames that are added to an image that is there: to all of its levels, and to its labels.

The frames of level 0 are the image's. So an append extends level 0 last: labels first, from the coarsest level to
the finest, then the levels of the image likewise. Each array gets its elements before its shape
(:meth:`gzarr.Array.append`). A reader that sees a frame in level 0 finds it, complete, in every other array; what other
arrays have beyond level 0 is not there yet for :meth:`gzarr.ome.Image.read`.

A process that is killed leaves such frames beyond level 0. The next append erases them before it begins, and makes
frames that levels lack because somebody has appended to level 0 only.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ...arrays.conversion import on_host
from ...arrays.elements import as_data
from ...documents.json import quote
from ...errors import ArgumentError, GzarrError
from ...hierarchy.open import open_array
from ...nodes.change import writable
from ...stores.keys import join_path
from ...stores.locks import between_processes, hold_node
from ...stores.memory import MemoryStore
from ..metadata.plates import node_path
from ..nodes import place
from .building import DEFAULT_BUDGET_BYTES, on_device_of
from .documents import written_version
from .downsample import METHODS, cells_of, check_method, downsample_into
from .existing import factors_of
from .new_image import array_given, device_of
from .new_levels import LevelLayout, LevelWork, new_level
from .plan import LevelShape

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ...arrays.array import Array
    from ...stores.base import Store
    from ..image import Image
    from .plan import Shape

#: Elements of frames that a level lacks are made in parts of about this many bytes.
_PART_BYTES: Final = 64 << 20
_METHODS: Final = (*METHODS, "gaussian")


@dataclass(frozen=True)
class _Series:
    """The levels of an image or of one of its labels, along the axis that grows.

    Attributes
    ----------
    name
        Name for messages.
    paths
        Paths of the levels in the store.
    axis
        Index of the axis that grows.
    factors
        Factors of each level but level 0, along each axis.
    method
        Method of downsampling.
    """

    name: str
    paths: list[str]
    axis: int
    factors: list[Shape]
    method: str


def append(image: Image, frames: Any, axis: str, labels: Mapping[str, Any], *, method: str | None, lock: bool) -> Shape:
    """Append frames to all levels and labels of an image as its document is now; see :meth:`gzarr.ome.Image.append`.

    Returns
    -------
    The new shape of level 0.
    """
    group = image.group
    store = writable(group.store, group.name)
    frames = array_given(frames, "frames")
    if not isinstance(labels, Mapping):
        raise ArgumentError(f"labels must map names of labels to their frames, not {quote(labels)}")
    labels = {name: array_given(some, f"labels {quote(name)}") for name, some in labels.items()}
    own = _series(image, axis, method)
    below = _labels(image, own, axis, labels)
    labels = {node_path(name): some for name, some in labels.items()}
    paths = [path for series in (own, *below.values()) for path in series.paths]
    with hold_node(store, group.path, *paths), contextlib.ExitStack() as stack:
        if lock:
            stack.enter_context(between_processes(store, (), f"{group.path}/" if group.path else ""))
        arrays = _opened(store, own, frames)
        count = arrays[0].shape[own.axis]
        block = _block(frames, arrays[0], own, axis)
        made = _made(block, arrays, own, 0)
        number = block.shape[own.axis]
        plans: list[tuple[_Series, list[Array], list[Any] | None]] = []
        for name, series in below.items():
            its = _opened(store, series, labels.get(name))
            # One frame of labels without a frame of the image, if some are given: what a killed append has left.
            if its[0].shape[series.axis] == 1 != count and (count or name not in labels):
                if name in labels:
                    raise ArgumentError(
                        f"labels {quote(name)} have one frame, which holds for all {count} of the image"
                    )
                continue
            masks = None
            if name in labels:
                one = _block(labels[name], its[0], series, axis)
                if one.shape[series.axis] != number:
                    raise ArgumentError(
                        f"labels {quote(name)}: {number} frames are needed along {axis!r}, as many as the image gets, "
                        f"not {one.shape[series.axis]}"
                    )
                masks = [one, *_made(one, its, series, 0)]
            plans.append((series, its, masks))
        for series, its, _ in plans:
            _repair(its, series, count, first=0)
        _repair(arrays, own, count, first=1)
        if number:
            _extend([*plans, (own, arrays, [block, *made])], count, number, lock=lock)
        return arrays[0].shape


def _series(image: Image, axis: str, method: str | None = None) -> _Series:
    """Return the levels of an image.

    Raises
    ------
    ArgumentError
        If it has no such axis, or its levels are reduced along it.
    """
    where = place(image.group)
    written_version(image.metadata, image.group)
    name = image._axis_name(axis)
    number = image.axes.index(name)
    if image.multiscale.axes is None:
        raise ArgumentError(f"{where} does not name its axes; write them first")
    if image.axis_details[number].type == "channel" and image.channels:
        raise ArgumentError(
            f"{where} names its {len(image.channels)} channels, so none is appended; create an image with all of them"
        )
    known_factors = factors_of(image.multiscale, lengths=lambda level: image.level(level).shape)
    factors = [tuple(one[axis] for axis in image.axes) for one in known_factors]
    if any(one[number] != 1 for one in factors):
        raise ArgumentError(
            f"{where}: levels are reduced along {name!r}, and what is appended would change elements that are there; "
            "append to level 0 (image.level(0).append), and make the levels anew with "
            "gzarr.ome.pyramid(…, overwrite=True)"
        )
    is_label = image.image_label is not None
    known = image.multiscale.type if image.multiscale.type in _METHODS else None
    chosen = method or known or ("mode" if is_label else "mean")
    paths = [join_path(image.group.path, node_path(dataset.path)) for dataset in image.multiscale.datasets]
    return _Series(image.group.name, paths, number, factors, chosen)


def _labels(image: Image, own: _Series, axis: str, given: Mapping[str, Any]) -> dict[str, _Series]:
    """Return the labels that have the axis, by name."""
    found = {}
    listed = image.labels
    for name, one in listed.items():
        if image.axes[own.axis] in one.axes:
            found[node_path(name)] = _series(one, image.axes[own.axis])
    for name in given:
        if name not in listed:
            known = ", ".join(map(repr, listed)) or "none"
            raise ArgumentError(f"{place(image.group)} has no labels {quote(name)}; it has {known}")
        if node_path(name) not in found:
            raise ArgumentError(f"labels {quote(name)} have no axis {axis!r}: they hold for all frames")
    return found


def _opened(store: Store, series: _Series, like: Any) -> list[Array]:
    """Return the arrays of the levels as they are in the store now."""
    device = device_of(like) if like is not None else "cpu"
    return [open_array(store, path=path, mode="r+", device=device) for path in series.paths]


def _block(frames: Any, first: Array, series: _Series, axis: str) -> Any:
    """Return frames with all axes, in memory, of the type of level 0."""
    check_method(series.method, first.dtype)
    data = as_data(frames, first.dtype, first.name, first.ndim)
    shape = tuple(data.shape)
    others = first.shape[: series.axis] + first.shape[series.axis + 1 :]
    if len(shape) == first.ndim - 1 and shape == others:
        shape = (*shape[: series.axis], 1, *shape[series.axis :])
    elif len(shape) != first.ndim or shape[: series.axis] + shape[series.axis + 1 :] != others:
        expected = ", ".join("n" if d == series.axis else str(n) for d, n in enumerate(first.shape))
        raise ArgumentError(
            f"frames of shape {tuple(data.shape)} cannot be appended along {axis!r} to {first.name} of shape "
            f"{first.shape}; they must have the shape ({expected}), or be one frame without that axis"
        )
    if data.dtype == first.dtype and (isinstance(data, np.ndarray) or first.device != "cpu"):
        return data.reshape(shape)
    # As writing to the array would convert and check them.
    held = _in_memory(shape, first)
    whole = data if hasattr(data, "reshape") else on_host(data, first.dtype, first.name, first.ndim)
    held[...] = whole.reshape(shape)
    return held[...]


def _in_memory(shape: Shape, first: Array) -> Array:
    """Return an array in memory, with the type and the chunks of another one."""
    options = {"codecs": [], "zarr_format": 3}
    # Its path is that of level 0, for messages.
    return new_level(
        MemoryStore(), first.path, shape, first.dtype, LevelLayout(first.chunks, None, options), first.device
    )


def _made(block: Any, arrays: Sequence[Array], series: _Series, level: int, last: int | None = None) -> list[Any]:
    """Return what frames of a level become in the levels after it, up to the ``last``.

    Raises
    ------
    ArgumentError
        If a level is larger than its factors make it.
    """
    plan, shape = [], tuple(block.shape)
    scale: Shape = (1,) * len(shape)
    wanted = range(level + 1, (len(arrays) if last is None else last + 1))
    for k in wanted:
        factors = series.factors[k - 1]
        shape = cells_of(shape, factors)
        scale = tuple(a * b for a, b in zip(scale, factors, strict=True))
        plan.append(LevelShape(shape, factors, scale))
        has = arrays[k].shape
        if any(n > m for d, (n, m) in enumerate(zip(has, shape, strict=True)) if d != series.axis):
            raise ArgumentError(
                f"{series.name}: level {k} has the shape {has}, which factors of {factors} do not make of level "
                f"{k - 1}; make the levels anew with gzarr.ome.pyramid(…, overwrite=True)"
            )
    made = _smoothed(block, arrays, plan) if series.method == "gaussian" else _reduced(block, plan, series.method)
    # Other programs leave out the last cell of an odd length.
    return [
        level[tuple(slice(None) if d == series.axis else slice(n) for d, n in enumerate(arrays[k].shape))]
        for k, level in zip(wanted, made, strict=True)
    ]


def _reduced(block: Any, plan: Sequence[LevelShape], method: str) -> list[Any]:
    """Return the levels of frames by a method that looks at one cell at a time."""
    made = []
    with on_device_of(block):
        for level in plan:
            target = np.empty_like(block, shape=level.shape, order="C")
            downsample_into(block, target, level.factors, method)
            made.append(target)
            block = target
    return made


def _smoothed(block: Any, arrays: Sequence[Array], plan: Sequence[LevelShape]) -> list[Any]:
    """Return the levels of frames by the method that reads each level again to make the next one."""
    first = arrays[0]
    source, *targets = [_in_memory(shape, first) for shape in (tuple(block.shape), *(level.shape for level in plan))]
    if block.size:
        source[...] = block
        for _ in LevelWork(source, None, plan, targets, method="gaussian", budget_bytes=DEFAULT_BUDGET_BYTES).steps():
            pass
    return [target[...] for target in targets]


def _repair(arrays: Sequence[Array], series: _Series, count: int, *, first: int) -> None:
    """Give levels as many frames as level 0 of the image has: ``count``."""
    for k, array in enumerate(arrays):
        if k < first:
            continue
        has = array.shape[series.axis]
        if has > count:
            array.resize(_with(array.shape, series.axis, count))
        elif has < count and k == 0:
            _append_background(array, series, count - has)
        elif has < count:
            for part in _parts(arrays[k - 1], series.axis, has, count):
                array.append(_made(arrays[k - 1].read(part), arrays, series, k - 1, k)[0], series.axis)


def _parts(array: Array, axis: int, start: int, stop: int) -> Iterator[tuple[slice, ...]]:
    each = max(1, _PART_BYTES * array.shape[axis] // max(array.nbytes, 1))
    for begin in range(start, stop, each):
        yield tuple(slice(begin, min(begin + each, stop)) if d == axis else slice(None) for d in range(array.ndim))


def _append_background(array: Array, series: _Series, number: int) -> None:
    if array.fill_value == 0:
        array.resize(_with(array.shape, series.axis, array.shape[series.axis] + number))
    else:
        array.append(np.zeros(_with(array.shape, series.axis, number), array.dtype), series.axis)


def _with(shape: Shape, axis: int, length: int) -> Shape:
    return (*shape[:axis], length, *shape[axis + 1 :])


def _extend(
    plans: Sequence[tuple[_Series, list[Array], list[Any] | None]], count: int, number: int, *, lock: bool
) -> None:
    """Append to all arrays, level 0 of the image last; if that fails, all are as they were.

    What the store has decides: a call may be interrupted, or not get its answer, when level 0 has the frames already.
    """
    grown: list[tuple[Array, int]] = []
    try:
        for series, arrays, blocks in plans:
            for k in reversed(range(len(arrays))):
                grown.append((arrays[k], series.axis))
                if blocks is None:
                    _append_background(arrays[k], series, number)
                else:
                    arrays[k].append(blocks[k], series.axis, lock=lock)
    except BaseException as error:
        own, (first, *_), _ = plans[-1]
        # If the store does not say, nothing is taken away: readers do not see what is beyond level 0.
        with contextlib.suppress(GzarrError):
            if _stored(first).shape[own.axis] > count:
                error.add_note(f"(array {first.name!r}, the other levels and the labels have the new frames already)")
            else:
                _cut(grown, count)
        raise


def _cut(grown: Sequence[tuple[Array, int]], count: int) -> None:
    """Take away what arrays have beyond ``count`` along an axis, as far as the store lets that be done."""
    for array, axis in grown:
        with contextlib.suppress(GzarrError):
            shape = _stored(array).shape
            if shape[axis] > count:
                array.resize(_with(shape, axis, count))


def _stored(array: Array) -> Array:
    """Return an array as it is in the store now."""
    return open_array(array.store, path=array.path, device="cpu")
