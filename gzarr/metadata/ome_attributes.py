"""Attributes of OME-Zarr in copies of another Zarr format: version 0.4 is one of Zarr 2, version 0.5 of Zarr 3.

Version 0.4 has its parts at the top of a group's attributes, each with its version; 0.5 has them in the member
``ome``, with one version, and names the dimensions of arrays as the axes of their image. All else is the same, so the
attributes of a group are moved, and nothing in them is interpreted or lost. Other versions have no counterpart, and are
copied as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_MEMBER: Final = "ome"
_OLD, _NEW = "0.4", "0.5"
#: Parts of an image, one of labels too; each with a member that only this part has.
_IMAGE: Final = "multiscales"
_WITH_IMAGE: Final = ("omero", "image-label")
_OTHERS: Final = {"plate": "wells", "well": "images"}
_LAYOUT: Final = "bioformats2raw.layout"
#: What groups of these names have, below an image and below a collection of images.
_BELOW: Final = {"labels": "labels", "OME": "series"}


class OmeAttributes:
    """Conversion of the attributes of one hierarchy.

    Parameters
    ----------
    source, target
        Versions of OME-Zarr that the formats of the hierarchy and of its copy have; None for none.

    Attributes
    ----------
    axes
        By path, the names of the dimensions of arrays that are levels of images; filled as groups are converted.
    known_axes
        The same for all images of version 0.4 or 0.5, whether they are converted or not.
    """

    def __init__(self, source: str | None, target: str | None) -> None:
        self._upwards = (source, target) == (_OLD, _NEW)
        self._downwards = (source, target) == (_NEW, _OLD)
        self._target = target
        self._converted: set[str] = set()
        self.axes: dict[str, tuple[str, ...]] = {}
        self.known_axes: dict[str, tuple[str, ...]] = {}

    def of_group(
        self, path: str, attributes: Mapping[str, Any], described: Mapping[str, Any] | None = None
    ) -> Mapping[str, Any]:
        """Return the attributes of the copy of a group.

        Parameters
        ----------
        path
            Its path; groups come after the ones that contain them.
        attributes
            Its attributes.
        described
            Attributes of OME-Zarr 0.4 that stand for other conventions of the source, and take their place.
        """
        if described is not None:
            attributes = {**attributes, **described}
            self.axes.update(_axes_of_levels(path, described, _OLD))
        self.known_axes.update(_axes_of_levels(path, attributes, _OLD))
        if isinstance(below := attributes.get(_MEMBER), dict):
            self.known_axes.update(_axes_of_levels(path, below, _NEW))
        if self._upwards or (described is not None and self._target == _NEW):
            parts, version = self._parts(path, attributes, _OLD), _OLD
            if not parts or _MEMBER in attributes:
                return attributes
            rest = {name: value for name, value in attributes.items() if name not in parts}
            if "omero" in parts:
                parts["omero"] = _without_version(parts["omero"])
            converted = {**rest, _MEMBER: {"version": _NEW, **_each(parts, _without_version)}}
        elif self._downwards:
            found = attributes.get(_MEMBER)
            # Lists of labels that ome-zarr-py writes have no version.
            below_image = self._listed_below(path)
            if not isinstance(found, dict) or found.get("version", _NEW if below_image in found else None) != _NEW:
                return attributes
            parts, version = {name: value for name, value in found.items() if name != "version"}, _NEW
            # Only what is known as 0.4 afterwards, and takes the place of nothing.
            if not self._parts(path, parts, _NEW) or parts.keys() & attributes.keys():
                return attributes
            rest = {name: value for name, value in attributes.items() if name != _MEMBER}
            converted = {**rest, **_each(parts, _with_version)}
        else:
            return attributes
        self._converted.add(path)
        self.axes.update(_axes_of_levels(path, parts, version))
        return converted

    def _listed_below(self, path: str) -> str | None:
        """Return the name of the list that a group has if it is the one of labels, or of images, of what is above."""
        parent, _, name = path.rpartition("/")
        return _BELOW.get(name) if path and parent in self._converted else None

    def _parts(self, path: str, attributes: Mapping[str, Any], version: str) -> dict[str, Any]:
        """Return the parts that a version has, in its attributes of a group."""
        names: list[str] = []
        if _images(attributes, version):
            names += [_IMAGE, *_WITH_IMAGE]
        names += [
            name
            for name, member in _OTHERS.items()
            if isinstance(part := attributes.get(name), dict) and member in part and _is_of(part, version)
        ]
        names.append(_LAYOUT)
        if (below := self._listed_below(path)) is not None:
            names.append(below)
        return {name: attributes[name] for name in names if name in attributes}


def _axes_of_levels(path: str, parts: Mapping[str, Any], version: str) -> dict[str, tuple[str, ...]]:
    """Return the names of the axes of the levels of the images that a group describes, by path."""
    return {
        f"{path}/{level['path']}".lstrip("/"): tuple(axis["name"] for axis in image["axes"])
        for image in _images(parts, version)
        for level in image["datasets"]
    }


def _images(parts: Mapping[str, Any], version: str) -> Sequence[Any]:
    """Return the images that a group describes, if all are of a version, 0.4 or 0.5."""
    images = parts.get(_IMAGE)
    return images if isinstance(images, list) and all(_is_image(image, version) for image in images) else []


def _is_of(part: Mapping[str, Any], version: str) -> bool:
    """Return whether a part may be one of a version. In 0.5, parts have no version of their own, but iohub's do."""
    return part.get("version", version) in (_OLD, version)


def _is_image(image: Any, version: str) -> bool:
    if not isinstance(image, dict) or not _is_of(image, version):
        return False
    axes, levels = image.get("axes"), image.get("datasets")
    return (
        isinstance(axes, list)
        and isinstance(levels, list)
        and all(isinstance(axis, dict) and isinstance(axis.get("name"), str) for axis in axes)
        and all(
            isinstance(level, dict) and isinstance(level.get("path"), str) and "coordinateTransformations" in level
            for level in levels
        )
    )


def _each(parts: Mapping[str, Any], change: Any) -> dict[str, Any]:
    """Return parts whose objects that have a version in 0.4 are changed."""
    found = dict(parts)
    if isinstance(found.get(_IMAGE), list):
        found[_IMAGE] = [change(image) for image in found[_IMAGE]]
    for name in ("image-label", *_OTHERS):
        if name in found:
            found[name] = change(found[name])
    return found


def _without_version(part: Any) -> Any:
    return {name: value for name, value in part.items() if name != "version"} if isinstance(part, dict) else part


def _with_version(part: Any) -> Any:
    return {**part, "version": _OLD} if isinstance(part, dict) else part
