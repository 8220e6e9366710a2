"""Groups with OME metadata: finding them, and saying which rules of the specification they break."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from .. import warned
from ..errors import MetadataError, NodeNotFoundError, NodeTypeError
from ..hierarchy.group import Group
from ..metadata.formats import image_attributes
from .metadata.parse import parse

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..metadata.model import NodeMetadata, ZarrFormat
    from .metadata.model import OmeMetadata
    from .metadata.problems import BrokenRule


class MetadataWarning(UserWarning):
    """OME metadata that break a rule of the specification, and were read all the same; the message names the rule.

    Also given for units that are written though the specification does not have them.
    """


#: Attribute of a plate without wells: its ``plate`` object. By the specification a plate has at least one well, and
#: other readers fail at one that has none, so the first field makes a plate of the group.
NEW_PLATE: Final = "gzarr:new-plate"
#: Attribute of a well: its ``well`` object, if it has no fields, as of a plate without wells. In both, what other
#: programs have said stays there while a field is written again: the entries of fields, or of wells, that are not
#: complete are in the list of this object, and not in the one that readers see.
NEW_WELL: Final = "gzarr:new-well"


def parsed(attributes: Mapping[str, Any], zarr_format: ZarrFormat) -> OmeMetadata:
    """Return the OME metadata in the attributes of a group, also of a plate that has no wells yet."""
    metadata = parse(attributes, zarr_format=zarr_format)
    waiting = attributes.get(NEW_PLATE)
    if not metadata.is_empty or not isinstance(waiting, dict):
        return metadata
    found = parse({"ome": {"version": "0.5", "plate": {**waiting, "wells": []}}})
    problems = tuple(problem for problem in found.problems if problem.json_path != "$.ome.plate.wells")
    return replace(found, version="0.4" if zarr_format == 2 else "0.5", problems=problems)


def metadata_of(group: Group) -> OmeMetadata:
    """Return the OME metadata of a group.

    Costs no request, except where pyramids are images by other conventions: in N5, and for groups without a document,
    one for each level, and one to see that there is no other.

    Raises
    ------
    MetadataError
        If other conventions are used wrongly.
    """

    def child(path: str) -> NodeMetadata | None:
        try:
            return group[path].metadata
        except NodeNotFoundError:
            return None

    attributes = group.metadata.attributes
    described = image_attributes(group.metadata, child)
    return parsed(attributes, group.zarr_format) if described is None else parse({**attributes, **described})


def read_metadata(group: Group) -> OmeMetadata:
    """Return the OME metadata of a group, as :func:`metadata_of`. Broken rules are warned of."""
    metadata = metadata_of(group)
    broken = [problem for problem in metadata.problems if problem.is_rule]
    if broken:
        warn(f"{place(group)}: {_some(broken)}")
    return metadata


def _some(problems: Sequence[BrokenRule]) -> str:
    shown = "; ".join(map(str, problems[:2]))
    rest = len(problems) - 2
    return (
        shown
        if rest <= 0
        else f"{shown}; and {rest} more broken rule{'s' * (rest > 1)} (gzarr info --strict lists them)"
    )


def warn(text: str) -> None:
    """Warn of a broken rule, on behalf of the caller outside of gzarr."""
    warned.warn(text[:2000], MetadataWarning)


def place(group: Group) -> str:
    """Return the name of a group in its store, for messages."""
    return f"{group.name!r} in {group.store!r}"


def needed(metadata: OmeMetadata, name: str, group: Group) -> None:
    """Raise the error of a part of the metadata that could not be read, if there is one."""
    error = metadata.errors.get(name)
    if error is not None:
        raise MetadataError(f"{place(group)}: {error.message}", json_path=error.json_path)


def child_group(group: Group, path: str, what: str) -> Group:
    """Return a group below; one request."""
    node = child(group, path, what)
    if not isinstance(node, Group):
        raise NodeTypeError(f"{what} {path[:200]!r} of {place(group)} is an array, not a group")
    return node


def child(group: Group, path: str, what: str) -> Any:
    """Return a node below, whose path is in a document; one request."""
    try:
        return group[path]
    except NodeNotFoundError:
        raise NodeNotFoundError(f"{what} {path[:200]!r} of {place(group)} is not there") from None
