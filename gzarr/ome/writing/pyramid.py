"""Levels for what is stored already."""

from __future__ import annotations

import logging
import os
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ...arrays.array import Array
from ...codecs.choice import AUTO
from ...errors import ArgumentError, MetadataError, NodeNotFoundError, NodeTypeError
from ...flags import check_flags
from ...hierarchy.open import open as open_node
from ...hierarchy.open import open_array, open_group
from ...metadata.to_documents import plain, with_dimension_names
from ...nodes.change import change_array, writable
from ...nodes.erasing import delete_node
from ...positive import positive
from ...progress import watch
from ...stores.base import flushing
from ...stores.keys import join_path
from ...stores.local import LocalStore
from ...stores.places import place_of
from ..image import Image
from ..metadata.documents import to_attributes
from ..metadata.model import Multiscale, OmeMetadata
from ..metadata.parse import parse
from ..metadata.plates import node_path
from .arguments import checked_attributes, describe
from .building import DEFAULT_BUDGET_BYTES
from .documents import list_in, root_of, with_root
from .downsample import check_method
from .existing import described_by, factors_of, image_of, lengths_in
from .new_levels import LevelLayout, LevelWork, dataset, new_level, samples
from .plan import plan_levels

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ...hierarchy.group import Group
    from ...metadata.model import ArrayMetadata
    from ...stores.resolve import StoreLike
    from .arguments import Description, Written
    from .plan import LevelShape

_log = logging.getLogger(__name__)


def pyramid(  # noqa: PLR0913
    store: StoreLike,
    *,
    path: str = "",
    levels: Any = AUTO,
    factors: Any = None,
    method: str | None = None,
    axes: Any = None,
    scale: Any = None,
    units: Any = None,
    overwrite: bool = False,
    device: str = "auto",
    budget_bytes: int = DEFAULT_BUDGET_BYTES,
    progress: bool = True,
    storage_options: Mapping[str, Any] | None = None,
) -> Image:
    """Add levels to an image, or make an image of an array in a group.

    Level 0 is read once and stays as it is; the new levels have its codecs, and its chunks and shards, cut to their
    size. While the levels are made, the metadata of the group name level 0 only. Labels of the image stay as they are:
    if it gets another number of levels, make those of the labels anew as well, since the specification wants as many.

    Parameters
    ----------
    store, path
        Store, and path in it, of an OME-Zarr image or of an array. Levels of an array are written beside it: after
        ``0`` or ``s0`` follow ``1`` or ``s1``, after ``raw`` ``raw_1``. The group then becomes an image of version 0.4
        or 0.5, as the Zarr format says.
    levels, factors
        As for :func:`gzarr.ome.create`; labels have the levels of their image by default, as the specification wants.
    method
        As there; None for ``"mode"`` for labels, else ``"mean"``.
    axes, scale, units
        As there, for an array; ``axes`` are by default its dimension names.
    overwrite
        Whether the levels that an image has below level 0 are erased and made anew; also nodes in the places of new
        levels, such as a call that failed has left.
    device
        Device that computes: ``"auto"``, ``"cpu"``, ``"cuda"`` or ``"cuda:N"``.
    budget_bytes
        Approximate limit of the memory used, as for :func:`gzarr.ome.create`.
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
        If an argument is wrong, the image has several levels and ``overwrite`` is False, or the array is in no group;
        nothing was changed.
    NodeNotFoundError, NodeTypeError, MetadataError
        If there is no node, if it is no image, or if its metadata cannot be read, or become those of another image
        while levels are made.
    ReadOnlyError, DeviceError, StoreError, ChunkError
        As for reading and writing arrays.
    """
    check_flags(overwrite=overwrite, progress=progress)
    budget_bytes = positive("budget_bytes", budget_bytes)
    planned = Pyramid(
        store,
        Downsampling(levels, factors, method),
        path=path,
        described=DescribedAxes(axes, scale, units),
        overwrite=overwrite,
        device=device,
        budget_bytes=budget_bytes,
        storage_options=storage_options,
    )
    planned.run(progress=progress)
    return Image(planned.group, parse(planned.group.attrs))


class Downsampling(NamedTuple):
    """Which levels are made, and how; each as for :func:`pyramid`."""

    levels: Any = AUTO
    factors: Any = None
    method: str | None = None


class DescribedAxes(NamedTuple):
    """The axes of an array that becomes an image; each as for :func:`pyramid`."""

    axes: Any = None
    scale: Any = None
    units: Any = None


_NOT_DESCRIBED: Final = DescribedAxes()


class Pyramid:
    """Levels to be made. Nothing is changed before the first step.

    Parameters
    ----------
    downsampling
        Which levels, and how.
    described
        The axes of an array; those of an image are known.
    store, path, overwrite, device, budget_bytes, storage_options
        As for :func:`pyramid`.

    Attributes
    ----------
    group
        Group of the image.
    levels
        The levels below level 0.
    method
        Method of downsampling.
    """

    def __init__(
        self,
        store: StoreLike,
        downsampling: Downsampling,
        *,
        path: str = "",
        described: DescribedAxes = _NOT_DESCRIBED,
        overwrite: bool = False,
        device: str = "auto",
        budget_bytes: int = DEFAULT_BUDGET_BYTES,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        self._given = store
        self._device = device
        self._budget_bytes = budget_bytes
        node = open_node(store, path=path, mode="r+", device=device, storage_options=storage_options)
        self.group: Group
        if isinstance(node, Array):
            node = _in_its_group(node)
            self.group, self._first = _group_of(node), node
            self._document, description = _new_document(node, self.group, described)
            spacing, is_label = description.comparable_spacing, False
        else:
            if any(value is not None for value in described):
                raise ArgumentError("axes=, scale= and units= are for arrays; an image has its own")
            self.group = node
            image, self._document, is_label = _old_document(node)
            # Transformations of the whole image stay, and hold for the new levels, too.
            description = described_by(replace(image, transforms=()))
            try:
                spacing = described_by(image).comparable_spacing
            except ArgumentError:
                # They are not a scale and a translation, or several.
                spacing = description.comparable_spacing
            name = self._document["datasets"][0]["path"]
            self._first = open_array(node.store, path=join_path(node.path, name), mode="r+", device=device)
            if len(self._document["datasets"]) > 1 and not overwrite:
                raise ArgumentError(
                    f"{node.name} in {node.store!r} has {len(self._document['datasets'])} levels; pass overwrite=True "
                    "to make those below level 0 anew"
                )
        method = downsampling.method
        self.method: str = ("mode" if is_label else "mean") if method is None else method
        first = self._first
        check_method(self.method, first.dtype)
        if len(description.axes) != first.ndim:
            raise ArgumentError(f"{first.name} has {first.ndim} dimensions, and the image {len(description.axes)} axes")
        self._description = description
        self._overwrite = overwrite
        levels, wanted = downsampling.levels, downsampling.factors
        of_labels = is_label and wanted is None and isinstance(levels, str) and levels == AUTO
        if of_labels:
            wanted = _factors_of_labelled(self.group, description.names)
        self.levels: list[LevelShape] = plan_levels(
            first.shape,
            description.names,
            description.space,
            spacing,
            first.chunks,
            levels,
            wanted,
            of_labels=of_labels and wanted is not None,
        )

    def run(self, *, progress: bool = True) -> None:
        """Make the levels; ``progress`` is as for :func:`pyramid`."""
        steps = self.steps()
        for _ in watch(steps, "downsampling", lambda: self.total, nbytes=self.nbytes) if progress else steps:
            pass

    @property
    def nbytes(self) -> int:
        """Bytes of the elements of level 0."""
        return self._first.nbytes

    @property
    def total(self) -> int:
        """Number of steps; known once the first is done."""
        return self._work.total

    def steps(self) -> Iterator[None]:
        """Make the levels; yield after each step."""
        with flushing(self._given, self.group.store):
            yield from self._steps()

    def _steps(self) -> Iterator[None]:
        group, first, description = self.group, self._first, self._description
        _log.info("making %d levels of %r by %s", len(self.levels), first.name, self.method)
        store = writable(group.store, group.name)
        scales = [(1,) * first.ndim, *(level.scale for level in self.levels)]
        names = [node_path(self._document["datasets"][0]["path"])]
        names += [_name_of(names[0], i) for i in range(1, len(scales))]
        old = [node_path(entry["path"]) for entry in self._document["datasets"][1:]]
        old += [name for name in names[1:] if name not in old and name in group]
        self._check_others(names[1:], old)
        target = place_of(first.store, first.path)
        for name in {*names[1:], *old}:
            if place_of(store, join_path(group.path, name)).overlaps(target):
                raise ArgumentError(
                    f"{group.name}: the level {name!r} is the same array as level 0, {names[0]!r}, which is read for it"
                )
        if old and not self._overwrite:
            raise ArgumentError(
                f"{group.name}: {old[0]!r} would be a level, and there is another node of that name; pass "
                "overwrite=True to erase it"
            )
        if old:

            def with_first(document: dict[str, Any]) -> dict[str, Any]:
                self._described(document)
                return {**document, "datasets": document["datasets"][:1]}

            # Nobody is to take them for levels of the image from now on.
            self._write(with_first)
            for name in old:
                if name in group:
                    delete_node(store, join_path(group.path, name))
        layout = LevelLayout(first.chunks, first.shards, _options(first, description.names))
        targets = [
            new_level(store, join_path(group.path, name), level.shape, first.dtype, layout, first.device)
            for name, level in zip(names[1:], self.levels, strict=True)
        ]
        self._work = LevelWork(first, None, self.levels, targets, method=self.method, budget_bytes=self._budget_bytes)
        yield from self._work.steps()
        _name_dimensions(first, description.names)
        places = list(zip(names, scales, samples(self.levels, self.method, description), strict=True))

        def with_levels(document: dict[str, Any]) -> dict[str, Any]:
            own, *others = self._datasets(document, places)
            level = document["datasets"][0]
            return {
                **document,
                # Others may have written its path in another way.
                "datasets": [{**level, **own, "path": level["path"]}, *others],
                "type": self.method,
                "metadata": {"method": "gzarr.ome.pyramid"},
            }

        self._write(with_levels)

    def _datasets(self, document: dict[str, Any], places: list[tuple[str, Any, Any]]) -> list[dict[str, Any]]:
        """Return the levels of the image as its document has it: where they are if level 0 is where that says."""
        description = self._described(document)
        version = _version(self.group)
        image = Multiscale(
            description.axes,
            tuple(dataset(name, description.spacing, description.origin, *place) for name, *place in places),
        )
        # Not checked: a rule that the places of level 0 break is one that the document breaks already.
        attributes = plain(to_attributes(OmeMetadata(version, (image,)), version))
        found: list[dict[str, Any]] = root_of(attributes, version)["multiscales"][0]["datasets"]
        return found

    def _described(self, document: Any) -> Description:
        """Return where a document says that the image is.

        Raises
        ------
        MetadataError
            If it is the document of another image.
        """
        version = _version(self.group)
        metadata = parse(with_root({}, {**root_of({}, version), "multiscales": [document]}, version), version=version)
        for error in metadata.errors.values():
            raise error
        image = metadata.multiscales[0]
        description = described_by(replace(image, transforms=()))
        first = node_path(self._document["datasets"][0]["path"])
        if description.names != self._description.names or node_path(image.datasets[0].path) != first:
            raise MetadataError(
                f"{self.group.name}: another image was written while levels were made; its metadata stay as they are"
            )
        return description

    def _check_others(self, new: list[str], old: list[str]) -> None:
        """Refuse names of levels that are, or hold, levels of another image in the same group."""
        images = list_in(root_of(self.group.attrs, _version(self.group)), "multiscales")
        for name in (*new, *old):
            for other in (image for image in images[1:] if isinstance(image, dict)):
                for path in _paths_of(other):
                    if f"{path}/".startswith(f"{name}/") or f"{name}/".startswith(f"{path}/"):
                        raise ArgumentError(
                            f"{self.group.name}: {name!r} would be a level, and {path!r} is one of another image in "
                            "the same group; nothing was changed. Write the image with its levels somewhere else, with "
                            "gzarr.ome.create(…, data=image)"
                        )

    def _write(self, changed: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        """Change the description of the image, as it is now: others may have changed it since the levels were begun."""
        version = _version(self.group)

        def described(found: dict[str, Any]) -> dict[str, Any]:
            root = root_of(found, version)
            document, *others = list_in(root, "multiscales") or [self._document]
            return with_root(found, {**root, "multiscales": [changed(document), *others]}, version)

        self.group.attrs.change(described)


def _paths_of(image: dict[str, Any]) -> list[str]:
    """Return the paths of the levels of an image in a document."""
    datasets = image.get("datasets")
    entries = datasets if isinstance(datasets, list) else []
    paths = [entry.get("path") for entry in entries if isinstance(entry, dict)]
    return [node_path(path) for path in paths if isinstance(path, str)]


def _version(group: Group) -> Written:
    return "0.4" if group.zarr_format == 2 else "0.5"


def _in_its_group(array: Array) -> Array:
    """Return an array that is the root of its store as one of the group above, if that is another directory."""
    if array.path or not isinstance(array.store, LocalStore):
        return array
    above, name = os.path.split(os.fsdecode(array.store.directory()))
    try:
        group = open_group(above, mode="r+", device=array.device)
        # A folder without a document is just where files are.
        found = None if group.metadata.implicit else group[name]
    except (NodeNotFoundError, NodeTypeError, ArgumentError):
        return array
    return found if isinstance(found, Array) else array


def _group_of(array: Array) -> Group:
    if not array.path:
        raise ArgumentError(
            f"{array.store!r} is an array, and levels would have to be written beside it, in a group: pass the store "
            "of the group and the path of the array in it, or make an image of it somewhere else, with "
            "gzarr.ome.create(…, data=array)"
        )
    if array.zarr_format not in (2, 3):
        raise ArgumentError(f"{array.name} has Zarr format {array.zarr_format!r}; images are of version 2 or 3")
    return open_group(array.store, path=array.path.rpartition("/")[0], mode="r+", device=array.device)


def _new_document(array: Array, group: Group, described: DescribedAxes) -> tuple[dict[str, Any], Description]:
    """Return the description of an image whose only level is an array."""
    if "multiscales" in group.attrs or "ome" in group.attrs:
        raise ArgumentError(f"{array.name} is in a group with OME metadata; pass the path of that image instead")
    axes = described.axes
    if axes is None:
        axes = array.dimension_names
        if axes is None or None in axes:
            raise ArgumentError(f"{array.name} does not name its dimensions; pass axes=, such as axes='zyx'")
    description = describe(array.ndim, axes, described.scale, None, described.units)
    names = array.dimension_names
    if array.zarr_format == 3 and names is not None and list(names) != description.names:
        raise ArgumentError(
            f"{array.name} names its dimensions {', '.join(map(str, names))}, and axes= says "
            f"{', '.join(description.names)}; OME-Zarr wants the same names: leave out axes=, or change the names of "
            "the array first"
        )
    name = array.path.rpartition("/")[2]
    version = _version(group)
    image = Multiscale(
        description.axes,
        (dataset(name, description.spacing, description.origin, (1,) * array.ndim, (0,) * array.ndim),),
    )
    attributes = checked_attributes(OmeMetadata(version, (image,)), version)
    return dict(root_of(attributes, version)["multiscales"][0]), description


def _old_document(group: Group) -> tuple[Multiscale, dict[str, Any], bool]:
    """Return an image, its description as it is in its group, and whether it is one of labels."""
    image, version = image_of(group)
    if version != _version(group):
        raise ArgumentError(f"{group.name}: an image of version {version} in Zarr format {group.zarr_format!r}")
    part = root_of(group.attrs, version)
    return image, dict(part["multiscales"][0]), "image-label" in part


def _factors_of_labelled(labels: Group, axes: list[str]) -> list[dict[str, int]] | None:
    """Return the factors of the levels of the image that was labelled, along the axes of labels; None if unknown."""
    parts = labels.path.split("/")
    if len(parts) < 2 or parts[-2] != "labels":
        return None
    try:
        group = open_group(labels.store, path="/".join(parts[:-2]))
        return factors_of(image_of(group)[0], axes, lengths=lengths_in(group), same_lengths=True)
    except (ArgumentError, MetadataError, NodeNotFoundError, NodeTypeError):
        return None


def _name_of(first: str, level: int) -> str:
    """Return the name of the array of a level, after that of level 0."""
    match = re.fullmatch(r"((?:.*/)?[A-Za-z]*)([0-9]+)", first)
    if match is None:
        return f"{first}_{level}"
    return f"{match[1]}{int(match[2]) + level}"


def _name_dimensions(array: Array, names: list[str]) -> None:
    """Name the dimensions of level 0 like the axes, as the specification wants, if they have no names."""
    if array.zarr_format != 3 or array.dimension_names is not None:
        return

    def named(found: ArrayMetadata) -> ArrayMetadata:
        return with_dimension_names(found, tuple(names)) if found.dimension_names is None else found

    store = writable(array.store, array.name)
    change_array(store, array.path, array.zarr_format, named, array._become)


def _options(array: Array, names: list[str]) -> dict[str, Any]:
    """Return arguments that make arrays stored like another one; their dimensions have the names of the axes."""
    options: dict[str, Any] = {
        "zarr_format": array.zarr_format,
        "filters": array.filters,
        "serializer": array.serializer,
        "compressors": array.compressors,
        "order": array.order,
        "fill_value": array.fill_value,
        "chunk_key_encoding": array.metadata.chunk_key_encoding.separator,
    }
    if array.zarr_format == 3:
        options["dimension_names"] = names
    return options
