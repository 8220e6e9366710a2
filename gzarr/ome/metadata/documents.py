"""Writing OME metadata to the attributes of a group, as versions 0.4 and 0.5 have them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from ...errors import ArgumentError
from .model import Identity, Scale, Translation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .model import (
        Acquisition,
        Axis,
        Channel,
        ImageLabel,
        Multiscale,
        OmeMetadata,
        Omero,
        PlateMetadata,
        Transform,
        WellMetadata,
    )

#: Versions that are written.
WRITTEN: Final = ("0.4", "0.5")
#: All members of attributes that are of OME-Zarr, in any version.
MEMBERS: Final = frozenset(
    ("ome", "multiscales", "omero", "image-label", "labels", "plate", "well", "bioformats2raw.layout", "series")
)


def to_attributes(metadata: OmeMetadata, version: Literal["0.4", "0.5"] | None = None) -> dict[str, Any]:
    """Return the attributes of a group with this metadata.

    Parameters
    ----------
    metadata
        What to write.
    version
        ``"0.4"``, for groups of Zarr version 2, or ``"0.5"``, for version 3; None for that of the metadata.

    Returns
    -------
    Attributes to be written; for 0.5, only the member ``"ome"``. Other attributes of the group may stand beside them.

    Raises
    ------
    ArgumentError
        If the version is another, or the metadata has what it cannot express: a transformation that is no scale or
        translation, an image without axes, a scene.
    """
    chosen = metadata.version if version is None else version
    if chosen not in WRITTEN:
        raise ArgumentError(f"OME-Zarr is written in the versions {' and '.join(WRITTEN)}, not {chosen!r}")
    if metadata.scene is not None:
        raise ArgumentError(f"version {chosen} of OME-Zarr has no scenes")
    own = {"version": chosen} if chosen == "0.4" else {}
    parts: dict[str, Any] = {} if chosen == "0.4" else {"version": chosen}
    if metadata.multiscales:
        parts["multiscales"] = [_multiscale(image, own) for image in metadata.multiscales]
    if metadata.omero is not None:
        parts["omero"] = _omero(metadata.omero)
    if metadata.image_label is not None:
        parts["image-label"] = _image_label(metadata.image_label, own)
    if metadata.labels is not None:
        parts["labels"] = list(metadata.labels)
    if metadata.plate is not None:
        parts["plate"] = _plate(metadata.plate, own)
    if metadata.well is not None:
        parts["well"] = _well(metadata.well, own)
    if metadata.layout is not None:
        parts["bioformats2raw.layout"] = metadata.layout
    if metadata.series is not None:
        parts["series"] = list(metadata.series)
    return parts if chosen == "0.4" else {"ome": parts}


def _given(**members: Any) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}


def _multiscale(image: Multiscale, own: dict[str, Any]) -> dict[str, Any]:
    if image.axes is None:
        raise ArgumentError("an image is written with its axes, and these are not known")
    ndim = len(image.axes)
    document = {
        **own,
        **_given(name=image.name),
        "axes": [_axis(axis) for axis in image.axes],
        "datasets": [
            {"path": dataset.path, "coordinateTransformations": _transforms(dataset.transforms, ndim)}
            for dataset in image.datasets
        ],
    }
    if image.transforms:
        document["coordinateTransformations"] = _transforms(image.transforms, ndim)
    return document | _given(type=image.type, metadata=image.metadata)


def _axis(axis: Axis) -> dict[str, Any]:
    return _given(name=axis.name, type=axis.type, unit=axis.unit)


def _transforms(transforms: Sequence[Transform], ndim: int) -> list[dict[str, Any]]:
    found = []
    for transform in transforms:
        if isinstance(transform, Scale):
            found.append({"type": "scale", "scale": list(transform.factors)})
        elif isinstance(transform, Translation):
            found.append({"type": "translation", "translation": list(transform.offsets)})
        elif not isinstance(transform, Identity):
            raise ArgumentError(f"versions 0.4 and 0.5 of OME-Zarr have no transformation of type {transform.type!r}")
    kinds = [document["type"] for document in found]
    if "scale" not in kinds:
        found.insert(0, {"type": "scale", "scale": [1.0] * ndim})
    if kinds not in ([], ["scale"], ["translation"], ["scale", "translation"]):
        raise ArgumentError(f"expected a scale, and perhaps a translation after it, got {kinds}")
    return found


def _omero(omero: Omero) -> dict[str, Any]:
    return {"channels": [_channel(channel) for channel in omero.channels], **omero.extra}


def _channel(channel: Channel) -> dict[str, Any]:
    window = channel.window
    shown = None if window is None else _given(start=window.start, end=window.end, min=window.min, max=window.max)
    return {
        **_given(label=channel.label, color=channel.color, window=shown, active=channel.active),
        **channel.extra,
    }


def _image_label(label: ImageLabel, own: dict[str, Any]) -> dict[str, Any]:
    colors = [
        {"label-value": color.value, **_given(rgba=None if color.rgba is None else list(color.rgba))}
        for color in label.colors
    ]
    properties = [dict(values) for values in label.properties]
    source = None if label.source is None else {"image": label.source}
    return own | _given(colors=colors or None, properties=properties or None, source=source)


def _plate(plate: PlateMetadata, own: dict[str, Any]) -> dict[str, Any]:
    return {
        **own,
        **_given(name=plate.name, field_count=plate.field_count),
        "rows": [{"name": name} for name in plate.rows],
        "columns": [{"name": name} for name in plate.columns],
        "wells": [{"path": well.path, "rowIndex": well.row, "columnIndex": well.column} for well in plate.wells],
        **_given(acquisitions=[_acquisition(one) for one in plate.acquisitions] or None),
    }


def _acquisition(one: Acquisition) -> dict[str, Any]:
    return _given(
        id=one.id,
        name=one.name,
        maximumfieldcount=one.maximum_field_count,
        description=one.description,
        starttime=one.start_time,
        endtime=one.end_time,
    )


def _well(well: WellMetadata, own: dict[str, Any]) -> dict[str, Any]:
    return {
        **own,
        "images": [{"path": field.path, **_given(acquisition=field.acquisition)} for field in well.images],
    }
