"""New images and labels, with all of their levels."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ...arrays.array import Array
from ...arrays.view import ArrayView
from ...codecs.choice import AUTO
from ...documents.json import quote
from ...engines.cuda.devices import current
from ...errors import ArgumentError
from ...hierarchy.create import create_group
from ...hierarchy.open import open_group
from ...metadata.to_documents import check_shape
from ...nodes.change import writable
from ...progress import watch
from ...stores.base import flushing
from ...stores.keys import join_path, normalize_path
from ...stores.places import place_of
from ...stores.places_read import check_apart
from ...stores.resolve import as_store
from ..image import Image
from ..metadata.documents import to_attributes
from ..metadata.model import ImageLabel, LabelColor, Multiscale, OmeMetadata
from ..metadata.parse import parse
from .arguments import check_version, checked_attributes, describe, omero_of, shown
from .building import DEFAULT_BUDGET_BYTES
from .downsample import check_method
from .existing import along, described_by, factors_of, image_of
from .new_levels import Layout, Work, check_layout, chosen_chunks, dataset, new_level
from .plan import plan_levels

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ...hierarchy.group import Group
    from ...stores.resolve import StoreLike
    from .arguments import Written
    from .plan import Shape


def create(
    store: StoreLike,
    data: Any = None,
    *,
    axes: Any,
    path: str = "",
    shape: Any = None,
    dtype: Any = None,
    scale: Any = None,
    translation: Any = None,
    units: Any = None,
    channels: Any = None,
    name: str | None = None,
    version: Written = "0.5",
    chunks: Any = AUTO,
    shards: Any = None,
    codecs: Any = AUTO,
    levels: Any = AUTO,
    factors: Any = None,
    method: str = "mean",
    overwrite: bool = False,
    budget_bytes: int = DEFAULT_BUDGET_BYTES,
    progress: bool = True,
    storage_options: Mapping[str, Any] | None = None,
) -> Image:
    """Create an image with all of its levels, in one pass over its elements.

    The metadata that make an image of the group are written last, so a call that fails leaves none.

    Parameters
    ----------
    store, path
        Store, and path of the image in it, as for :func:`gzarr.create_array`.
    data
        Elements of level 0: NumPy or CuPy array, :class:`gzarr.Array` or a view of one, or any object with ``shape``,
        ``dtype`` and ``data[box]`` (of zarr-python, dask, h5py, …), which is read box by box, in several threads. None:
        an empty level 0 of some ``shape`` and ``dtype``; :func:`pyramid` adds the other levels when it is written.
    axes
        Names of the dimensions, such as ``"tczyx"``, or a list of names or of
        :class:`gzarr.ome.metadata.model.Axis`.
    shape, dtype
        Those of level 0, without ``data``.
    scale, translation
        Physical distance between the elements, and coordinates of the first one: a number for each axis, or a mapping
        of names of axes to numbers. 1 and 0 by default. Further levels have translations of half the difference of
        their spacing to that of level 0.
    units
        Unit of each axis, as ``scale``, such as ``"micrometer"``; one text for all axes of space.
    channels
        Names of the channels, or list of :class:`gzarr.ome.metadata.model.Channel`. Those given by name are shown from
        the lowest to the highest value of the smallest level.
    name
        Name of the image.
    version
        ``"0.5"`` (Zarr version 3) or ``"0.4"`` (version 2, which has no shards).
    chunks, shards
        As for :func:`gzarr.create_array`, but by default chunks have length 1 along axes that are not of space, and
        ``shards="auto"`` makes shards of up to 16 MiB. A box of each level, of whole chunks or shards, is in memory at
        a time: large shards need more than ``budget_bytes``.
    codecs
        As for :func:`gzarr.create_array`.
    levels
        Number of levels, with level 0; ``"auto"`` for as many as it takes until one has no more elements in space than
        a chunk.
    factors
        Factor of each level along all axes of space; a mapping of names of axes to factors (others are 1); or a list of
        these, one for each level but level 0. None: 2, but 1 along axes whose spacing is far above the smallest, until
        it no longer is.
    method
        How elements become one: ``"mean"`` (integers are rounded to the nearest, halves to even), ``"max"``,
        ``"nearest"``, ``"mode"`` (for labels) or ``"gaussian"``, which reads each level again to make the next one. At
        odd edges, the last elements are made of those that are there.
    overwrite
        Whether an existing node is erased first, with everything below it.
    budget_bytes
        Approximate limit of the memory used, whatever the size of the image.
    progress
        Whether work that takes a while shows a progress bar, on a terminal or in a notebook.
    storage_options
        Options for the store of a URL.

    Returns
    -------
    The image, open for reading and writing.

    Raises
    ------
    ArgumentError
        If an argument is wrong, if the specification does not allow such an image, or if a node exists and
        ``overwrite`` is False; nothing was changed.
    ReadOnlyError, NodeTypeError, DeviceError, StoreError, ChunkError
        As for :func:`gzarr.create_array`, and for reading ``data``.

    Examples
    --------
    >>> import gzarr, numpy as np
    >>> volume = np.zeros((100, 256, 256), "u2")
    >>> image = gzarr.ome.create({}, volume, axes="zyx", scale=(2.0, 0.5, 0.5), units="micrometer", levels=3)
    >>> [level.shape for level in image.levels]
    [(100, 256, 256), (100, 128, 128), (100, 64, 64)]
    """
    return create_claimed(
        store,
        data,
        None,
        axes=axes,
        path=path,
        shape=shape,
        dtype=dtype,
        scale=scale,
        translation=translation,
        units=units,
        channels=channels,
        name=name,
        version=version,
        chunks=chunks,
        shards=shards,
        codecs=codecs,
        levels=levels,
        factors=factors,
        method=method,
        overwrite=overwrite,
        budget_bytes=budget_bytes,
        progress=progress,
        storage_options=storage_options,
    )


def create_claimed(
    store: StoreLike,
    data: Any,
    claim: Callable[[], Group] | None,
    *,
    axes: Any,
    path: str = "",
    shape: Any = None,
    dtype: Any = None,
    scale: Any = None,
    translation: Any = None,
    units: Any = None,
    channels: Any = None,
    name: str | None = None,
    version: Written = "0.5",
    chunks: Any = AUTO,
    shards: Any = None,
    codecs: Any = AUTO,
    levels: Any = AUTO,
    factors: Any = None,
    method: str = "mean",
    overwrite: bool = False,
    budget_bytes: int = DEFAULT_BUDGET_BYTES,
    progress: bool = True,
    storage_options: Mapping[str, Any] | None = None,
) -> Image:
    """Create an image as :func:`create` does, in a group that ``claim`` creates once all arguments are checked.

    Without ``claim``, that is one at ``path``; otherwise ``path`` is only for messages.
    """
    zarr_format = check_version(version)
    source, shape, dtype = _elements(data, shape, dtype)
    if source is None and (levels != AUTO or factors is not None):
        raise ArgumentError("without data, only level 0 is made; pass levels= and factors= to gzarr.ome.pyramid later")
    description = describe(len(shape), axes, scale, translation, units)
    check_method(method, dtype)
    own_chunks, own_shards = chosen_chunks(shape, description.space, dtype.itemsize, chunks, shards)
    below = []
    if source is not None:
        below = plan_levels(
            shape, description.names, description.space, description.spacing, own_chunks, levels, factors
        )
    everything = [(1,) * len(shape), *(level.scale for level in below)]
    image = Multiscale(
        description.axes,
        tuple(
            dataset(str(i), description.spacing, description.origin, scale_of) for i, scale_of in enumerate(everything)
        ),
        name=name,
        type=method if below else None,
        metadata={"method": "gzarr.ome.create"} if below else None,
    )
    if hasattr(channels, "__iter__") and not isinstance(channels, str):
        channels = list(channels)
    metadata = OmeMetadata(version, (image,), omero=omero_of(channels, description, shape, dtype))
    checked_attributes(metadata, version)
    options: dict[str, Any] = {"codecs": codecs, "zarr_format": zarr_format, "chunk_key_encoding": "/"}
    if zarr_format == 3:
        options["dimension_names"] = description.names

    opened, base = as_store(store, "w" if overwrite else "a", storage_options)
    where = join_path(base, normalize_path(path))
    target = writable(opened, f"'/{where}'")
    layout = Layout(own_chunks, own_shards, options)
    check_layout(join_path(where, "0"), shape, dtype, layout)
    if overwrite:
        check_apart(
            source,
            place_of(target, where),
            operation="ome.create",
            instead="write it to another path, or read the elements into memory first",
        )
    with flushing(store, target):
        if claim is None:
            group = create_group(target, path=where, zarr_format=zarr_format, overwrite=overwrite)
        else:
            group = claim()
        device = _device_of(source)
        first, *others = [
            new_level(target, join_path(group.path, str(i)), size, dtype, layout, device)
            for i, size in enumerate([shape, *(level.shape for level in below)])
        ]
        if source is not None:
            work = Work(source, first, below, others, method=method, budget_bytes=budget_bytes)
            steps = work.steps()
            for _ in watch(steps, "writing the image", lambda: work.total) if progress else steps:
                pass
            smallest = others[-1] if others else first
            metadata = replace(metadata, omero=shown(metadata.omero, channels, description, smallest))
        group.attrs.update(to_attributes(metadata, version))
    return Image(group, parse(group.attrs))


def create_labels(
    store: StoreLike,
    name: str,
    data: Any = None,
    *,
    path: str = "",
    axes: Any = None,
    scale: Any = None,
    translation: Any = None,
    colors: Mapping[int, tuple[int, int, int, int]] | None = None,
    method: str = "mode",
    overwrite: bool = False,
    lock: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    **arguments: Any,
) -> Image:
    """Create a label image of an existing image, with all of its levels.

    Parameters
    ----------
    store, path
        Store, and path in it, of the image that was labelled.
    name
        Name of the labels, such as ``"nuclei"``.
    data
        Labels, as for :func:`create`: integers.
    axes, scale, translation
        As for :func:`create`; by default those of the image. Labels may have fewer axes: ``axes="zyx"`` takes what the
        image says of these.
    colors
        Red, green, blue and alpha, from 0 to 255, of some labels.
    method
        As for :func:`create`. The default, ``"mode"``, gives each element the most frequent label, and of several the
        smallest.
    overwrite
        Whether existing labels of this name are erased first.
    lock
        Whether to exclude other processes that also pass ``lock=True`` from the list of labels, by file locks beside
        the data, so that all of them are listed. Threads need none, nor do processes in object stores.
    storage_options
        Options for the store of a URL.
    **arguments
        Other arguments of :func:`create`, but ``levels`` and ``factors``: labels have the levels of the image, as the
        specification wants.

    Returns
    -------
    The label image, open for reading and writing.

    Raises
    ------
    ArgumentError
        As for :func:`create`; also if labels are no integers, or are not named by one segment of a path.
    NodeNotFoundError, NodeTypeError
        If there is no image at ``path``.
    ReadOnlyError, DeviceError, StoreError, ChunkError
        As for :func:`create`.
    """
    for wrong in {"levels", "factors"} & set(arguments):
        raise ArgumentError(f"{wrong}= is not for labels: they have the levels of the image")
    if not name or normalize_path(name) != name or "/" in name:
        raise ArgumentError(f"labels need a name without slashes, not {quote(name)}")
    dtype = _elements(data, arguments.get("shape"), arguments.get("dtype"))[2]
    if dtype.kind not in "iu":
        raise ArgumentError(f"labels are integers, not {dtype}")
    image = open_group(store, path=path, mode="r+", storage_options=storage_options)
    target = writable(image.store, image.name)
    found, version = image_of(image)
    own = described_by(found)
    if axes is not None:
        own = along(own, axes)
    if data is not None:
        # The specification wants as many levels as the image has.
        arguments = {**arguments, "factors": factors_of(found, axes)}
    labels_path = join_path(image.path, "labels")
    with flushing(store, target):
        created = create(
            target,
            data,
            path=join_path(labels_path, name),
            axes=list(own.axes),
            scale=own.spacing if scale is None else scale,
            translation=own.origin if translation is None else translation,
            version=version,
            method=method,
            overwrite=overwrite,
            **arguments,
        )
        group = created.group
        written = parse(group.attrs)
        rgba = tuple(LabelColor(value, color) for value, color in (colors or {}).items())
        label = ImageLabel(colors=rgba, source="../../")
        group.attrs.update(checked_attributes(replace(written, image_label=label), version))

        def listing(found: dict[str, Any]) -> dict[str, Any]:
            listed = parse(found).labels or ()
            if name in listed:
                return found
            return {**found, **checked_attributes(OmeMetadata(version, labels=(*listed, name)), version)}

        open_group(target, path=labels_path, mode="r+").attrs.change(listing, lock=lock)
    return Image(group, parse(group.attrs))


def _elements(data: Any, shape: Any, dtype: Any) -> tuple[Any, Shape, np.dtype[Any]]:
    """Return the source of level 0 (None if there is none), its shape and its type."""
    if data is None:
        if shape is None or dtype is None:
            raise ArgumentError("an image needs data, or a shape and a dtype")
        return None, check_shape(shape), np.dtype(dtype).newbyteorder("=")
    if shape is not None or dtype is not None:
        raise ArgumentError("shape= and dtype= are for images without data; these have their own")
    if not all(hasattr(data, name) for name in ("shape", "dtype", "__getitem__")):
        data = np.asarray(data)
    try:
        own = np.dtype(data.dtype)
    except TypeError as error:
        raise ArgumentError(f"data has elements of type {data.dtype}, which NumPy does not have") from error
    return data, check_shape(tuple(data.shape)), own.newbyteorder("=")


def _device_of(source: Any) -> str:
    """Return the device that levels are made on: the one that elements are on, or are read to."""
    if isinstance(source, (Array, ArrayView)):
        return source.device
    # Of CuPy; arrays of other kinds are read to host memory.
    return current() if hasattr(source, "get") and hasattr(source, "data") and not hasattr(source, "chunks") else "cpu"
