"""An image that is to be written: all that the caller asks for is checked before anything is changed."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ...arrays.array import Array
from ...arrays.elements import with_type
from ...arrays.not_arrays import refuse_mappings
from ...arrays.view import ArrayView
from ...codecs.choice import AUTO
from ...documents.json import quote
from ...dtypes.masks import refuse_masked
from ...engines.cuda.devices import current
from ...errors import ArgumentError
from ...flags import check_flags
from ...hierarchy.create import create_group
from ...items import has_items
from ...metadata.to_documents import check_shape
from ...nodes.change import writable
from ...positive import positive
from ...progress import watch
from ...stores.aliases import check_not_overwritten
from ...stores.base import flushing
from ...stores.keys import join_path, normalize_path
from ...stores.resolve import as_store
from ..collection import Collection
from ..image import Image, Level
from ..labels import Labels
from ..metadata.documents import to_attributes
from ..metadata.model import Multiscale, OmeMetadata
from ..metadata.parse import parse
from ..plate import Plate, Well
from ..scene import Scene
from .arguments import advising_versions, check_version, checked_attributes, describe, omero_of, shown
from .building import DEFAULT_BUDGET_BYTES
from .downsample import check_method
from .existing import own_attributes
from .new_levels import LevelLayout, LevelWork, check_layout, chosen_chunks, dataset, new_level, samples
from .plan import plan_levels

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ...hierarchy.group import Group
    from ...stores.resolve import StoreLike
    from ..metadata.model import ImageLabel
    from .arguments import Written
    from .plan import Shape

#: What holds images, and how one of them is taken.
_OF_IMAGES: Final[dict[type, str]] = {
    Well: "well[0]",
    Plate: "plate['A/1'][0]",
    Collection: "collection[0]",
    Labels: "labels['nuclei']",
    Scene: "scene['image']",
}


@dataclass(frozen=True, kw_only=True)
class ImageArguments:
    """Arguments of :func:`gzarr.ome.create`, which says what they are, beside the store and the elements."""

    axes: Any
    path: str = ""
    shape: Any = None
    dtype: Any = None
    scale: Any = None
    translation: Any = None
    units: Any = None
    channels: Any = None
    name: str | None = None
    version: Written = "0.5"
    chunks: Any = AUTO
    shards: Any = None
    codecs: Any = AUTO
    levels: Any = AUTO
    factors: Any = None
    method: str = "mean"
    overwrite: bool = False
    budget_bytes: int = DEFAULT_BUDGET_BYTES
    progress: bool = True
    storage_options: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        check_flags(overwrite=self.overwrite, progress=self.progress)
        object.__setattr__(self, "budget_bytes", positive("budget_bytes", self.budget_bytes))


class NewImage:
    """An image that is checked, and not written yet.

    Parameters
    ----------
    store, data
        As for :func:`gzarr.ome.create`.
    wanted
        The other arguments.
    image_label
        What makes it a label image; None if it is none.
    transforms
        Transformations of the whole image, as a document has them; they are not checked.

    Raises
    ------
    ArgumentError, ReadOnlyError
        As for :func:`gzarr.ome.create`; nothing was changed.
    """

    def __init__(
        self,
        store: StoreLike,
        data: Any,
        wanted: ImageArguments,
        *,
        image_label: ImageLabel | None = None,
        transforms: Sequence[Any] = (),
    ) -> None:
        self._given = store
        self._wanted = wanted
        self._transforms = list(transforms)
        zarr_format = check_version(wanted.version)
        self._source, shape, self._dtype = elements_of(data, wanted.shape, wanted.dtype)
        is_auto = isinstance(wanted.levels, str) and wanted.levels == AUTO
        if self._source is None and not (is_auto and wanted.factors is None):
            raise ArgumentError(
                "without data, only level 0 is made; pass levels= and factors= to gzarr.ome.pyramid later"
            )
        self._description = own = describe(len(shape), wanted.axes, wanted.scale, wanted.translation, wanted.units)
        check_method(wanted.method, self._dtype)
        chunks, shards = chosen_chunks(shape, own.space, self._dtype.itemsize, wanted.chunks, wanted.shards)
        self._below = []
        if self._source is not None:
            self._below = plan_levels(
                shape,
                own.names,
                own.space,
                own.comparable_spacing,
                chunks,
                wanted.levels,
                wanted.factors,
                of_labels=image_label is not None,
            )
        self._shapes: list[Shape] = [shape, *(level.shape for level in self._below)]
        scales = [(1,) * len(shape), *(level.scale for level in self._below)]
        image = Multiscale(
            own.axes,
            tuple(
                dataset(str(i), own.spacing, own.origin, scale, sample)
                for i, (scale, sample) in enumerate(zip(scales, samples(self._below, wanted.method, own), strict=True))
            ),
            name=wanted.name,
            type=wanted.method if self._below else None,
            metadata={"method": "gzarr.ome.create"} if self._below else None,
        )
        channels = wanted.channels
        if has_items(channels):
            channels = list(channels)
        self._channels = channels
        self._metadata = OmeMetadata(
            wanted.version, (image,), omero=omero_of(channels, own, shape, self._dtype), image_label=image_label
        )
        checked_attributes(self._metadata, wanted.version)
        options: dict[str, Any] = {"codecs": wanted.codecs, "zarr_format": zarr_format, "chunk_key_encoding": "/"}
        if zarr_format == 3:
            options["dimension_names"] = own.names
        opened, base = as_store(store, "w" if wanted.overwrite else "a", wanted.storage_options)
        self._path = join_path(base, normalize_path(wanted.path))
        self._store = writable(opened, f"'/{self._path}'")
        self._layout = LevelLayout(chunks, shards, options)
        check_layout(join_path(self._path, "0"), shape, self._dtype, self._layout)
        if wanted.overwrite:
            check_not_overwritten(
                self._source,
                self._store,
                self._path,
                operation="ome.create",
                instead="write it to another path, or read the elements into memory first",
            )

    def write(self, claim: Callable[[Mapping[str, Any]], Group] | None = None) -> Image:
        """Write the image; the metadata that make one of its group come last.

        Parameters
        ----------
        claim
            Function that creates the group, with the attributes that it gets; None for one at the path of the
            arguments, which is for messages otherwise.
        """
        wanted, metadata = self._wanted, self._metadata
        with flushing(self._given, self._store):
            kept = own_attributes(self._store, self._path) if wanted.overwrite else {}
            group = self._created(kept) if claim is None else claim(kept)
            device = device_of(self._source)
            store, layout, overwrite = self._store, self._layout, wanted.overwrite
            first, *others = [
                new_level(store, join_path(group.path, str(i)), shape, self._dtype, layout, device, overwrite=overwrite)
                for i, shape in enumerate(self._shapes)
            ]
            if self._source is not None:
                work = LevelWork(
                    self._source, first, self._below, others, method=wanted.method, budget_bytes=wanted.budget_bytes
                )
                steps = work.steps()
                for _ in watch(steps, "writing the image", lambda: work.total) if wanted.progress else steps:
                    pass
                smallest = others[-1] if others else first
                omero = shown(metadata.omero, self._channels, self._description, smallest)
                metadata = replace(metadata, omero=omero)
            attributes = to_attributes(metadata, wanted.version)
            if self._transforms:
                image = attributes.get("ome", attributes)["multiscales"][0]
                image["coordinateTransformations"] = self._transforms
            group.attrs.update(attributes)
        return Image(group, parse(group.attrs))

    def _created(self, attributes: Mapping[str, Any]) -> Group:
        with advising_versions():
            return create_group(
                self._store,
                path=self._path,
                zarr_format=check_version(self._wanted.version),
                attributes=attributes,
                overwrite=self._wanted.overwrite,
            )


def elements_of(data: Any, shape: Any, dtype: Any) -> tuple[Any, Shape, np.dtype[Any]]:
    """Return the source of level 0 (None if there is none), its shape and its type."""
    data = array_given(data, "data=")
    if data is None:
        if shape is None or dtype is None:
            raise ArgumentError("an image needs data, or a shape and a dtype")
        try:
            element: np.dtype[Any] = np.dtype(dtype)
        except (TypeError, ValueError) as error:
            raise ArgumentError(f"dtype={quote(dtype)} is no NumPy dtype: {error}") from None
        return None, check_shape(shape), element.newbyteorder("=")
    if shape is not None or dtype is not None:
        raise ArgumentError("shape= and dtype= are for images without data; these have their own")
    # An array of Zarr has no mask, and levels would be made of what lies under it.
    refuse_masked(data, "data")
    if not all(hasattr(data, name) for name in ("shape", "dtype", "__getitem__")):
        refuse_mappings(data, "data=", objects=False)
        try:
            data = np.asarray(data)
        except ValueError as error:
            raise ArgumentError(f"data= cannot be made an array: {error}") from error
    try:
        np.dtype(data.dtype)
    except TypeError as error:
        raise ArgumentError(f"data has elements of type {data.dtype}, which NumPy does not have") from error
    # Some state another type than that of their elements.
    data, own = with_type(data, "data")
    return data, check_shape(tuple(data.shape)), own.newbyteorder("=")


def array_given(data: Any, what: str) -> Any:
    """Return what is given as elements, with its array in place of an image (of level 0) or of a level of one.

    Parameters
    ----------
    data
        Anything.
    what
        Beginning of the message.

    Raises
    ------
    ArgumentError
        If it is a path or a URL, or holds several images.
    NodeNotFoundError, NodeTypeError, MetadataError, StoreError
        If level 0 of an image cannot be opened.
    """
    if isinstance(data, Image):
        return data.level(0)
    if isinstance(data, Level):
        return data.array
    for kind, example in _OF_IMAGES.items():
        if isinstance(data, kind):
            raise ArgumentError(
                f"{what} must be the elements of one image, not a {kind.__name__}: pass one of its images, such as "
                f"{example}"
            )
    if isinstance(data, str | os.PathLike):
        raise ArgumentError(
            f"{what} must be elements, not a path or URL, {quote(str(data))}: open what is there with "
            "gzarr.open_array, or gzarr.ome.open if it is an image, and pass that"
        )
    return data


def device_of(source: Any) -> str:
    """Return the device that levels are made on: the one that elements are on, or are read to."""
    if isinstance(source, (Array, ArrayView)):
        return source.device
    # Of CuPy; arrays of other kinds are read to host memory.
    return current() if hasattr(source, "get") and hasattr(source, "data") and not hasattr(source, "chunks") else "cpu"
