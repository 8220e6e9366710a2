"""Opening OME-Zarr: an image, a plate, a well, labels, a collection, or a scene."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ..documents.json import quote
from ..errors import ArgumentError, GzarrError, NodeTypeError
from ..hierarchy.group import Group
from ..hierarchy.open import open_group
from ..stores.at_hand import is_at_hand
from .collection import Collection
from .image import Image, image_of
from .labels import Labels, labels_in
from .nodes import child_group, needed, place, read_metadata
from .plate import Plate, Well
from .scene import Scene

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..engines.access.access import Missing
    from ..stores.resolve import StoreLike
    from .metadata.model import OmeMetadata

OmeNode: TypeAlias = "Image | Plate | Well | Labels[Image] | Collection | Scene"


def open(
    store: StoreLike | Group,
    *,
    path: str = "",
    index: int = 0,
    mode: Literal["r", "r+"] = "r",
    device: str = "auto",
    missing: Missing = "fill",
    storage_options: Mapping[str, Any] | None = None,
) -> OmeNode:
    """Open an OME-Zarr image, plate, well, group of labels, collection of images, or scene.

    Versions 0.1 to 0.5 are read, and 0.6 as far as its rules are settled. A document that breaks a rule which reading
    does not need is read with a :class:`MetadataWarning`.

    Parameters
    ----------
    store
        As for :func:`gzarr.open`, or a group.
    path
        Path of the node in the store, or in the group.
    index
        Which image, if the group has several (``multiscales`` of more than one item).
    mode
        ``"r+"`` to change elements (``image.level(0)[...] = x``), to append frames, and to change metadata.
    device, missing, storage_options
        As for :func:`gzarr.open`; a group has its own, and its own mode.

    Returns
    -------
    :class:`Image`; :class:`Plate` or :class:`Well`; :class:`Labels` for the group ``labels`` of an image;
    :class:`Collection` for the layout of bioformats2raw; :class:`Scene` for images whose places are related.

    Raises
    ------
    NodeNotFoundError
        If there is no such group.
    NodeTypeError
        If there is an array, or a group without OME metadata.
    MetadataError
        If the metadata cannot be read; the message names the place and what was expected there.
    ArgumentError, DeviceError, StoreError
        As for :func:`gzarr.open_group`.
    """
    if isinstance(store, Group):
        group = child_group(store, path, "node") if path else store
        if mode == "r+" and group.read_only:
            raise ArgumentError(
                f"{place(group)} was opened for reading only, and a group has its own mode: open it with 'r+'"
            )
    else:
        wanted: object = mode
        if not isinstance(wanted, str) or wanted not in ("r", "r+"):
            raise ArgumentError(f"mode must be 'r' or 'r+', not {quote(mode)}; gzarr.ome.create makes new images")
        group = open_group(store, path=path, mode=mode, device=device, missing=missing, storage_options=storage_options)
    metadata = read_metadata(group)
    node = node_of(group, metadata, index)
    if isinstance(node, Image) and is_at_hand(group.store):
        # Levels that disagree are warned of when they are used, and here where that costs no request.
        with contextlib.suppress(GzarrError, OSError):
            for level in range(len(node.multiscale.datasets)):
                node.level(level)
    return node


def node_of(group: Group, metadata: OmeMetadata, index: int = 0) -> OmeNode:
    """Return what a group with OME metadata is."""
    failed = metadata.errors
    if metadata.plate is not None or "plate" in failed:
        return Plate(group, metadata)
    if metadata.multiscales or "multiscales" in failed:
        return Image(group, metadata, index)
    if metadata.well is not None or "well" in failed:
        return Well(group, metadata)
    if metadata.layout is not None or "bioformats2raw.layout" in failed:
        needed(metadata, "bioformats2raw.layout", group)
        return Collection(group, metadata)
    if metadata.labels is not None or "labels" in failed:
        return labels_in(group, metadata, image_of)
    if metadata.series is not None or "series" in failed:
        raise NodeTypeError(f"{place(group)} lists the images of a collection; open the group above it")
    if metadata.scene is not None or "scene" in failed:
        needed(metadata, "scene", group)
        return Scene(group, metadata)
    if failed:
        needed(metadata, next(iter(failed)), group)
    raise NodeTypeError(
        f"{place(group)} has no OME metadata of an image, a plate, a well, labels, a collection or a scene; "
        "gzarr.open reads any group"
    )
