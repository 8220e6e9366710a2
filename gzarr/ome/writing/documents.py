"""OME metadata in the documents of others: what a change does not name stays, also members that gzarr does not know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...errors import ArgumentError
from ..metadata.documents import WRITTEN
from ..nodes import place

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...hierarchy.group import Group
    from ..metadata.model import OmeMetadata
    from .arguments import Written


def written_version(metadata: OmeMetadata, group: Group) -> Written:
    """Return the version of what a group describes, to which more of it is written.

    Raises
    ------
    ArgumentError
        If gzarr only reads that version.
    """
    if metadata.version not in WRITTEN:
        new = "image, with gzarr.ome.create(…, image, axes=…)"
        if metadata.plate is not None:
            new = "plate, with gzarr.ome.create_plate and create_field"
        raise ArgumentError(
            f"{place(group)} is of version {metadata.version} of OME-Zarr, which gzarr only reads; it writes "
            f"{' and '.join(WRITTEN)}: write the elements to a new {new}"
        )
    return "0.4" if metadata.version == "0.4" else "0.5"


def root_of(attributes: Mapping[str, Any], version: Written) -> dict[str, Any]:
    """Return a copy of the object that holds the OME metadata in attributes; a new one where there is none."""
    return dict(attributes) if version == "0.4" else {"version": version, **object_in(attributes, "ome")}


def with_root(attributes: Mapping[str, Any], root: dict[str, Any], version: Written) -> dict[str, Any]:
    """Return attributes with another object that holds the OME metadata."""
    return root if version == "0.4" else {**attributes, "ome": root}


def without(attributes: Mapping[str, Any], part: str, version: Written) -> dict[str, Any]:
    """Return attributes without a part of the OME metadata; what is left of a version only is left out, too."""
    root = {name: value for name, value in root_of(attributes, version).items() if name != part}
    if version == "0.4" or set(root) > {"version"}:
        return with_root(attributes, root, version)
    return {name: value for name, value in attributes.items() if name != "ome"}


def object_in(holder: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a copy of an object; what is no object has no members, and is replaced."""
    found = holder.get(name)
    return dict(found) if isinstance(found, dict) else {}


def list_in(holder: Mapping[str, Any], name: str) -> list[Any]:
    """Return a copy of a list; what is none has no items, and is replaced."""
    found = holder.get(name)
    return list(found) if isinstance(found, list) else []
