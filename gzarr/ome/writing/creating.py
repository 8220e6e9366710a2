"""New images and labels, with all of their levels."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...codecs.choice import AUTO
from ...documents.json import quote
from ...errors import ArgumentError, GzarrError, NodeNotFoundError
from ...flags import check_flags
from ...hierarchy.create import create_group
from ...hierarchy.open import open_array, open_group
from ...nodes.change import writable
from ...stores.base import flushing
from ...stores.keys import join_path, normalize_path
from ..metadata.model import ImageLabel, UnknownTransform
from ..metadata.named import transforms_along
from ..metadata.plates import node_path
from .arguments import check_version, label_colors
from .building import DEFAULT_BUDGET_BYTES
from .documents import list_in, root_of, with_root
from .existing import along, described_by, factors_of, has_image, image_of, lengths_in
from .new_image import ImageArguments, NewImage, elements_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ...hierarchy.group import Group
    from ...stores.resolve import StoreLike
    from ..image import Image
    from ..metadata.model import Multiscale
    from .arguments import Description, Written
    from .plan import Shape


def create(  # noqa: PLR0913
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
        Elements of level 0: NumPy or CuPy array, :class:`gzarr.Array` or a view of one, :class:`gzarr.ome.Image` (its
        level 0) or a level of one, or any object with ``shape``, ``dtype`` and ``data[box]`` (of zarr-python, dask,
        h5py, …), which is read box by box, in several threads. None: an empty level 0 of some ``shape`` and ``dtype``;
        :func:`pyramid` adds the other levels when it is written.
    axes
        Names of the dimensions, such as ``"tczyx"``, or a list of names or of
        :class:`gzarr.ome.metadata.model.Axis`.
    shape, dtype
        Those of level 0, without ``data``.
    scale, translation
        Physical distance between the elements, and coordinates of the first one: a number for each axis, or a mapping
        of names of axes to numbers. 1 and 0 by default. Further levels have the translation of the middle of the
        elements that become their first one, or with ``method="nearest"`` of the one that is taken.
    units
        Unit of each axis, as ``scale``, such as ``"micrometer"``; one text for all axes of space. ``"um"`` and other
        names in use are written as the specification's; of units that it does not have, a warning is given.
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
        these, one for each level but level 0. None: 2, but 1 along axes whose spacing, in one unit, is far above the
        smallest, until it no longer is.
    method
        How elements become one: ``"mean"`` (integers are rounded to the nearest, halves to even), ``"max"``,
        ``"nearest"``, ``"mode"`` (for labels) or ``"gaussian"``, which reads each level again to make the next one. At
        odd edges, the last elements are made of those that are there.
    overwrite
        Whether an existing node is erased first, with everything below it. Attributes of an image that are not of
        OME-Zarr stay.
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
    wanted = ImageArguments(
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
    return NewImage(store, data, wanted).write()


def create_labels(  # noqa: PLR0913
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
        As for :func:`create`; by default, and for axes that a mapping does not name, those of the image, without that
        of channels if the labels have one dimension less. ``axes="zyx"`` takes what the image says of these. Along each
        axis, labels have as many elements as the image, or 1.
    colors
        Red, green, blue and alpha, from 0 to 255, of some labels, which are integers.
    method
        As for :func:`create`. The default, ``"mode"``, gives each element the most frequent label, and of several the
        smallest.
    overwrite
        Whether existing labels of this name are erased first. The image lists them again when they are complete.
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
        As for :func:`create`; also if labels are no integers, are not named by one segment of a path, or have another
        shape than the image; nothing was changed.
    NodeNotFoundError, NodeTypeError, MetadataError
        If there is no image at ``path``, or its metadata cannot be read.
    ReadOnlyError, DeviceError, StoreError, ChunkError
        As for :func:`create`.
    """
    check_names("create_labels", {"axes", *arguments}, known=ImageArguments.__dataclass_fields__.keys() - {"version"})
    for wrong in {"levels", "factors"} & set(arguments):
        raise ArgumentError(f"{wrong}= is not for labels: they have the levels of the image")
    if not name or normalize_path(name) != name or "/" in name:
        raise ArgumentError(f"labels need a name without slashes, not {quote(name)}")
    source, shape, dtype = elements_of(data, arguments.get("shape"), arguments.get("dtype"))
    if dtype.kind not in "iu":
        raise ArgumentError(f"labels are integers, not {dtype}")
    check_flags(lock=lock)
    image = open_group(store, path=path, mode="r+", storage_options=storage_options)
    target = writable(image.store, image.name)
    found, version = image_of(image)
    # What is not a scale and a translation, or has names, holds for the labels as well.
    is_kept = bool(found.coordinate_systems) or any(isinstance(one, UnknownTransform) for one in found.transforms)
    own = _fitting(described_by(replace(found, transforms=()) if is_kept else found), axes, shape)
    _check_shape(image, found, own, shape)
    if data is not None:
        # The specification wants as many levels as the image has.
        arguments = {**arguments, "factors": factors_of(found, own.axes, lengths=lengths_in(image), same_lengths=True)}
    transforms: list[Any] = []
    if is_kept:
        if scale is not None or translation is not None:
            raise ArgumentError(
                "scale= and translation= are not for labels of an image with coordinate systems, or with a "
                "transformation that is not a scale and a translation: they get those of the image"
            )
        whole = root_of(image.attrs, version)["multiscales"][0]["coordinateTransformations"]
        transforms = transforms_along(whole, [axis.name for axis in found.axes or ()], own.names)
    labels_path = join_path(image.path, "labels")
    wanted = ImageArguments(
        path=join_path(labels_path, name),
        axes=list(own.axes),
        scale=_with(own.names, own.spacing, scale),
        translation=_with(own.names, own.origin, translation),
        version=version,
        method=method,
        overwrite=overwrite,
        **arguments,
    )
    image_label = ImageLabel(colors=label_colors(colors), source="../../")
    planned = NewImage(target, source, wanted, image_label=image_label, transforms=transforms)
    old: tuple[int, str] | None = None

    def claim(attributes: Mapping[str, Any]) -> Group:
        nonlocal old
        # Labels that are listed and not complete would be in the way of whoever uses the labels of the image.
        old = _unlist(target, labels_path, name, version, lock=lock) if overwrite else None
        try:
            return create_group(
                target,
                path=wanted.path,
                zarr_format=check_version(version),
                attributes=attributes,
                overwrite=overwrite,
            )
        except BaseException:
            # What is said is why they could not be erased.
            with contextlib.suppress(GzarrError):
                if old is not None and has_image(target, wanted.path):
                    _list(target, labels_path, name, version, old, lock=lock)
            raise

    with flushing(store, target):
        created = planned.write(claim)
        _list(target, labels_path, name, version, old, lock=lock)
    return created


def _with(names: Sequence[str], own: Sequence[float], given: Any) -> Any:
    """Return what is given for axes; None, and a mapping for axes that it does not name, leave what the image says."""
    if isinstance(given, Mapping):
        return {**dict(zip(names, own, strict=True)), **given}
    return own if given is None else given


def check_names(function: str, names: Iterable[str], known: Iterable[str]) -> None:
    """Raise as Python does if ``axes`` or an argument that is passed on does not belong to a function.

    Parameters
    ----------
    function
        Name of the function that was called.
    names
        Names of all arguments that make an image.
    known
        Those that it takes.

    Raises
    ------
    TypeError
        If there is another one, or there are no axes.
    """
    given = list(names)
    for name in given:
        if name not in known:
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}")
    if "axes" not in given:
        raise TypeError(f"{function}() missing 1 required keyword-only argument: 'axes'")


def _list(store: Any, path: str, name: str, version: Written, old: tuple[int, str] | None, *, lock: bool) -> None:
    """Add a name to the list of labels of an image, in the place and the spelling that it had, or at the end."""

    def listing(found: dict[str, Any]) -> dict[str, Any]:
        root = root_of(found, version)
        listed = list_in(root, "labels")
        if name in map(_plain, listed):
            return found
        listed.insert(*(old or (len(listed), name)))
        return with_root(found, {**root, "labels": listed}, version)

    open_group(store, path=path, mode="r+").attrs.change(listing, lock=lock)


def _unlist(store: Any, path: str, name: str, version: Written, *, lock: bool) -> tuple[int, str] | None:
    """Take a name off the list of labels of an image; return its place and its spelling, None if it is not there."""
    try:
        group = open_group(store, path=path, mode="r+")
    except NodeNotFoundError:
        return None
    old: tuple[int, str] | None = None

    def shortened(found: dict[str, Any]) -> dict[str, Any]:
        nonlocal old
        old = None
        root = root_of(found, version)
        listed = list_in(root, "labels")
        plain = [_plain(one) for one in listed]
        if name not in plain:
            return found
        place = plain.index(name)
        old = place, listed[place]
        others = [one for one, other in zip(listed, plain, strict=True) if other != name]
        return with_root(found, {**root, "labels": others}, version)

    group.attrs.change(shortened, lock=lock)
    return old


def _plain(listed: Any) -> Any:
    """Return an item of a list of labels for comparison with names."""
    return node_path(listed) if isinstance(listed, str) else None


def _fitting(image: Description, axes: Any, shape: Shape) -> Description:
    """Return what an image says of the axes of its labels.

    Raises
    ------
    ArgumentError
        If nobody says which axes these are.
    """
    if axes is not None:
        return along(image, axes)
    if len(shape) == len(image.axes):
        return image
    others = [axis for axis in image.axes if axis.type != "channel"]
    if len(shape) == len(others):
        return along(image, others)
    names = [axis.name for axis in image.axes]
    example = names[-len(shape) :] if 0 < len(shape) <= len(names) else names
    text = repr("".join(example)) if all(len(one) == 1 for one in example) else repr(example)
    raise ArgumentError(
        f"labels of shape {shape} for an image with the axes {', '.join(names)}: pass the names of theirs, such as "
        f"axes={text}"
    )


def _check_shape(group: Group, image: Multiscale, own: Description, shape: Shape) -> None:
    """Refuse labels that have another length than the image along one of its axes, unless that is 1."""
    if len(shape) != len(own.axes):
        # What is wrong with the axes is said where all arguments are checked.
        return
    assert image.axes is not None
    first = open_array(group.store, path=join_path(group.path, image.datasets[0].path), device="cpu")
    lengths = dict(zip((axis.name for axis in image.axes), first.shape, strict=True))
    for axis, length in zip(own.axes, shape, strict=True):
        expected = lengths.get(axis.name, length)
        if length not in (expected, 1):
            raise ArgumentError(
                f"labels of shape {shape} have {length} elements along {axis.name!r}, and the image has {expected}; "
                f"labels have as many, or 1 if they hold for all of that axis"
            )
