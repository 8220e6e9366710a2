"""Reading the OME metadata in the attributes of a group, of any version.

Versions up to 0.4 have them at the top of the attributes, later ones below ``ome``. Each part (``multiscales``,
``plate``, …) is read on its own: one that cannot be read does not hinder the others.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from ...documents.json import quote
from ...errors import MetadataError
from . import images, plates
from .model import VERSIONS, OmeMetadata, SceneMetadata
from .problems import BrokenRule, DocumentPart
from .systems import coordinate_systems, further_transforms

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...metadata.model import ZarrFormat
    from .model import Version

#: What a document must have to be one of a kind.
Kind: TypeAlias = Literal["image", "label", "plate", "well", "bf2raw", "ome", "scene"]
_KINDS: Final = {
    "image": "multiscales",
    "label": "image-label",
    "plate": "plate",
    "well": "well",
    "bf2raw": "bioformats2raw.layout",
    "ome": "series",
    "scene": "scene",
}


def parse(
    attributes: Mapping[str, Any],
    *,
    zarr_format: ZarrFormat | None = None,
    version: Version | None = None,
    kind: Kind | None = None,
) -> OmeMetadata:
    """Return the OME metadata in the attributes of a group.

    Parameters
    ----------
    attributes
        Attributes of the group, as parsed from JSON.
    zarr_format
        Zarr format of the group, to check that the version is meant for it; None to leave that out.
    version
        Version whose rules are to be kept; None for the one that the document names.
    kind
        What the document must describe; None for anything.

    Returns
    -------
    The metadata. Its ``problems`` are the broken rules, its ``errors`` the parts that could not be read.
    """
    found: list[BrokenRule] = []
    root, rules = _root(DocumentPart(dict(attributes), "$", found), version)
    if zarr_format in (2, 3) and not _empty(root):
        expected = 2 if rules <= "0.4" else 3
        if zarr_format != expected:
            text = f"version {rules} is for version {expected} of Zarr, and this group is of version {zarr_format}"
            found.append(BrokenRule("$", text, "text"))
    errors: dict[str, MetadataError] = {}

    def section(name: str, read: Any) -> Any:
        if name not in root:
            return None
        try:
            return read(root.at(name))
        except MetadataError as error:
            errors[name] = error
            return None

    if kind is not None and _KINDS[kind] not in root and not (kind == "label" and rules <= "0.4"):
        root.note(f"lacks {_KINDS[kind]!r}", "text" if rules <= "0.4" and kind in ("plate", "well") else "schema")
    return OmeMetadata(
        rules,
        section("multiscales", partial(images.multiscales, version=rules)) or (),
        section("omero", partial(images.omero, version=rules)),
        section("image-label", partial(images.image_label, version=rules)),
        section("labels", plates.paths),
        section("plate", partial(plates.plate, version=rules)),
        section("well", partial(plates.well, version=rules)),
        section("bioformats2raw.layout", plates.layout),
        section("series", plates.paths),
        section("scene", _scene),
        tuple(found),
        errors,
    )


def _empty(root: DocumentPart) -> bool:
    return not any(name in root for name in (*_KINDS.values(), "labels", "omero"))


def _root(part: DocumentPart, wanted: Version | None) -> tuple[DocumentPart, Version]:
    """Return the object that holds the metadata, and the version of its rules."""
    if wanted is None:
        if "ome" not in part:
            return part, _version_at_top(part)
        wanted_below = None
    elif wanted <= "0.4":
        return part, wanted
    else:
        wanted_below = wanted
    nothing = DocumentPart({}, "$.ome", part.found)
    if "ome" not in part:
        part.note("lacks 'ome'")
        return nothing, wanted or "0.5"
    try:
        root = part.at("ome").object()
    except MetadataError:
        return nothing, wanted or "0.5"
    return root, _version_below(root, wanted_below)


def _version_at_top(part: DocumentPart) -> Version:
    """Return the version of a document of 0.1 to 0.4: any object may name it, or none."""
    for name in ("multiscales", "plate", "well", "image-label"):
        if name in part:
            holder = part.at(name)
            if name == "multiscales":
                if not isinstance(holder.value, list | tuple) or not holder.value:
                    continue
                holder = DocumentPart(holder.value[0], f"{holder.json_path}[0]", part.found)
            if "version" in holder:
                text = holder.value["version"]
                if text in VERSIONS[:4]:
                    return text  # type: ignore[no-any-return]
                # What it is read as notes the rest.
                return "0.4"
    return "0.4"


def _version_below(root: DocumentPart, wanted: Version | None) -> Version:
    known = (*VERSIONS[4:], "0.6rc0")
    text = root.value.get("version")
    if "version" not in root:
        # Groups of labels have no schema, and writers leave it out there.
        root.note("lacks 'version'", "should" if set(root.value) == {"labels"} else "schema")
    elif text not in known or (wanted is not None and not str(text).startswith(wanted)):
        expected = ", ".join(map(repr, known if wanted is None else [name for name in known if name[:3] == wanted]))
        root.at("version").note(f"expected one of {expected}, got {quote(text)}")
    if wanted is not None:
        return wanted
    if isinstance(text, str) and text.startswith("0.6"):
        return "0.6"
    if text == "0.5":
        return "0.5"
    # A later version, or none: its images tell by their coordinate systems.
    some = root.value.get("multiscales")
    first = some[0] if isinstance(some, list | tuple) and some else None
    return "0.6" if isinstance(first, dict) and "coordinateSystems" in first else "0.5"


def _scene(part: DocumentPart) -> SceneMetadata:
    systems = part.object().optional("coordinateSystems", coordinate_systems)
    links = part.needed("coordinateTransformations", partial(further_transforms, scene=True))
    return SceneMetadata(systems or (), links)
