"""What readers see of arrays beside elements, and how a copy in another Zarr format says the same.

A Zarr format says what the elements are. What they mean is said by conventions, which differ between formats:

===============================  =============================  ===================================================
convention                       before version 3               version 3
===============================  =============================  ===================================================
names of dimensions (xarray)     attribute _ARRAY_DIMENSIONS    member dimension_names
missing elements (CF, xarray)    those equal to fill_value;     those equal to the attribute _FillValue, base64 for
                                 null for none                  floating point; fill_value has no such meaning
missing elements (netCDF-C)      attribute _FillValue, plain    it reads no version 3
nodata (GDAL)                    fill_value                     fill_value
attributes of NCZarr             _nczarr_…, hidden by xarray    shown by xarray, unless they are attributes of a group
                                                                (:mod:`gzarr.metadata.nczarr_kept`)
OME-Zarr                         0.4                            0.5 (:mod:`gzarr.metadata.ome_attributes`)
pyramids of N5                   0.4 of OME-Zarr                0.5 of OME-Zarr (:mod:`gzarr.metadata.n5.images`)
===============================  =============================  ===================================================

Sources: xarray's ``backends/zarr.py`` (``FillValueCoder``, ``open_store_variable``) and ``coding/variables.py``;
https://docs.unidata.ucar.edu/nug/current/nczarr_head.html; https://gdal.org/en/stable/drivers/raster/zarr.html.
:class:`Conventions` translates in both directions. Where the other format has no words, it says what would be lost.
"""

from __future__ import annotations

import base64
import contextlib
import math
import struct
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..documents.json import quote
from ..errors import MetadataError
from ..stores.keys import join_path
from .formats import FORMATS, image_attributes
from .model import ArrayMetadata, GroupMetadata
from .nczarr import ARRAY, DIMENSIONS, fit_types
from .nczarr_kept import KEPT_ARRAYS, KEPT_MEMBERS, fitted
from .ome_attributes import OmeAttributes
from .parts import DIMENSIONS_ATTRIBUTE
from .v2.parse import MEMBERS
from .v3_draft.parse import own_attributes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .model import NodeMetadata, ZarrFormat

MASK_ATTRIBUTE: Final = "_FillValue"
#: CF's older attribute, whose value xarray takes as it stands in JSON, so that it can be a string.
_OLDER_MASK: Final = "missing_value"
#: Members of ``zarr.json`` that version 3 defines and that are objects.
_MEMBERS_OF_3: Final = frozenset(
    ("attributes", "data_type", "chunk_grid", "chunk_key_encoding", "fill_value", "consolidated_metadata")
)
#: CF's attributes of packed elements.
_PACKING: Final = ("scale_factor", "add_offset")
#: xarray hides the attributes that begin so, in any case: of groups in both formats, of arrays before version 3 only.
_NCZARR_PREFIX: Final = "_nc"
#: Attribute of GDAL's arrays that have a coordinate reference system, and the last dimensions of its rasters.
_GDAL_CRS: Final = "_CRS"
_GDAL_RASTER: Final = ("Y", "X")


@dataclass(slots=True)
class Meaning:
    """What the copy of an array says of its elements.

    Attributes
    ----------
    attributes, dimension_names
        Those of the copy.
    fill_value
        That of the copy; None if its document is to say ``null``.
    writes_absent
        Whether chunks that are absent in the source are stored in the copy, because its fill value has another meaning.
    changes
        What is said otherwise than in the source, one line of text each.
    losses
        What some reader no longer sees in the copy, one line of text each.
    names
        Names of the array's dimensions: its own, or its image's.
    axes
        If the array is a level of an image of OME-Zarr that is converted, the names of that image's axes.
    members
        Members of NCZarr in the document of the copy.
    """

    attributes: dict[str, Any]
    dimension_names: tuple[str | None, ...] | None
    fill_value: Any
    writes_absent: bool = False
    changes: list[str] = field(default_factory=list)
    losses: list[str] = field(default_factory=list)
    names: tuple[str | None, ...] | None = None
    axes: tuple[str, ...] | None = None
    members: dict[str, Any] = field(default_factory=dict)


class Conventions:
    """Translation of the conventions in one hierarchy.

    Parameters
    ----------
    source, target
        Zarr formats of the hierarchy and of its copy.
    nodes
        The nodes of the hierarchy by path, groups before what is in them.
    """

    def __init__(self, source: ZarrFormat, target: ZarrFormat, nodes: Mapping[str, NodeMetadata]) -> None:
        before, after = (FORMATS[format].features.mask_attribute for format in (source, target))
        self._upwards = after and not before
        self._downwards = before and not after
        self._nodes = fitted(nodes) if self._downwards else nodes
        self._ome = OmeAttributes(FORMATS[source].ome_version, FORMATS[target].ome_version)
        # By the name of the attribute that keeps them, and the path of its group.
        self._nczarr: dict[str, dict[str, dict[str, Any]]] = {KEPT_ARRAYS: {}, KEPT_MEMBERS: {}}
        self._has_members = ".zgroup" in FORMATS[target].node_documents
        for path, node in nodes.items():
            if not isinstance(node, ArrayMetadata):
                self._keep_nczarr(KEPT_MEMBERS, path, "", _members(node))
                continue
            parent, _, name = path.rpartition("/")
            if path:
                self._keep_nczarr(KEPT_ARRAYS, parent, name, _nczarr_attributes(node.attributes))
                self._keep_nczarr(KEPT_MEMBERS, parent, name, _members(node))

    def _keep_nczarr(self, attribute: str, group: str, name: str, values: dict[str, Any]) -> None:
        if self._upwards and values:
            self._nczarr[attribute].setdefault(group, {})[name] = values

    def _names(self, path: str, metadata: ArrayMetadata) -> tuple[str | None, ...] | None:
        own = metadata.dimension_names
        if own is not None and any(name is not None for name in own):
            return own
        axes = self._ome.known_axes.get(path)
        return axes if axes is not None and len(axes) == metadata.ndim else None

    def of_group(self, path: str, attributes: Mapping[str, Any]) -> dict[str, Any]:
        """Return the attributes of the copy of a group."""
        group = self._nodes.get(path)
        described = None
        if isinstance(group, GroupMetadata):
            if self._downwards:
                attributes = group.attributes
            # Attributes with the names of a pyramid's may have another meaning. They are copied as they are.
            with contextlib.suppress(MetadataError):
                described = image_attributes(group, lambda below: self._nodes.get(join_path(path, below)))
        found = dict(self._ome.of_group(path, attributes, described))
        for attribute, kept in self._nczarr.items():
            if path in kept:
                found[attribute] = kept[path]
            elif self._downwards:
                found.pop(attribute, None)
        if self._downwards:
            fit_types(found, found)
        return found

    def members_of_group(self, path: str) -> dict[str, Any]:
        """Return the members of NCZarr in the document of the copy of a group, if that is in another format."""
        members, group = self._kept_members(path, ""), self._nodes.get(path)
        if isinstance(group, GroupMetadata):
            fit_types(members, group.attributes)
        return members

    def of_array(self, path: str, metadata: ArrayMetadata) -> Meaning:
        """Return the meaning of the copy of an array, whose group came before."""
        # Codecs in attributes are no attributes of the copy.
        meaning = Meaning(dict(own_attributes(metadata)), metadata.dimension_names, metadata.fill_value)
        meaning.names, meaning.axes = self._names(path, metadata), self._ome.axes.get(path)
        if self._upwards:
            self._raise(path, metadata, meaning)
        elif self._downwards:
            self._lower(path, metadata, meaning)
        return meaning

    # -- to version 3

    def _raise(self, path: str, metadata: ArrayMetadata, meaning: Meaning) -> None:
        attributes = meaning.attributes
        if meaning.dimension_names is None:
            names = nczarr_dimension_names(metadata)
            if names is not None and len(names) == metadata.ndim:
                meaning.dimension_names = tuple(names)
        else:
            # Version 3 has a member for them.
            attributes.pop(DIMENSIONS_ATTRIBUTE, None)
        for name in _nczarr_attributes(attributes):
            del attributes[name]
            if not path:
                meaning.changes.append(
                    f"the attribute {name} of NCZarr is left out: it would be an array without a group"
                )
        if not path:
            meaning.changes += [
                f"the member {name} of NCZarr is left out: it would be an array without a group"
                for name in _members(metadata)
            ]
        if metadata.fill_value is None and _is_of_gdal(metadata):
            meaning.losses.append(
                "GDAL sees no nodata, as the fill value is null; version 3 requires one, which GDAL takes for nodata"
            )
        if meaning.dimension_names is None and MASK_ATTRIBUTE not in attributes:
            return
        said = attributes.pop(MASK_ATTRIBUTE, None)
        mask = said if metadata.fill_value is None else metadata.fill_value
        if mask is None:
            return
        if metadata.fill_value is not None and said is not None and not _is_one(said, mask, metadata.dtype):
            meaning.changes.append(
                f"the attribute {MASK_ATTRIBUTE} is {quote(plain_json(mask))}, the fill value, which xarray masks; it "
                f"was {quote(said)}, which netCDF-C masks, and xarray takes no notice of"
            )
        try:
            _set_mask(attributes, mask, metadata)
        except _InexpressibleError as error:
            meaning.losses.append(
                f"xarray masks elements equal to {quote(plain_json(mask))}, and cannot be told so in version 3: {error}"
            )

    # -- from version 3

    def _lower(self, path: str, metadata: ArrayMetadata, meaning: Meaning) -> None:
        attributes = meaning.attributes
        names = metadata.dimension_names
        if not metadata.ndim:
            # It has none; xarray reads no data set of version 2 with an array that does not say so.
            names = meaning.dimension_names = ()
        elif names is not None and not any(name is not None for name in names):
            names = meaning.dimension_names = None
        said = attributes.get(DIMENSIONS_ATTRIBUTE)
        if names is not None and said is not None and said != list(names):
            meaning.losses.append(
                f"its attribute {DIMENSIONS_ATTRIBUTE}, {quote(said)}, has to give way to the names of its dimensions"
            )
        if names is not None and None in names:
            meaning.losses.append("some of its dimensions have names and some have none; all names would be lost")
            names = meaning.dimension_names = None
        parent, _, name = path.rpartition("/")
        if path:
            attributes.update(self._kept_nczarr(KEPT_ARRAYS, parent, name))
            meaning.members = self._kept_members(parent, name)
        unset = "fill_value" in metadata.document and metadata.document["fill_value"] is None
        if MASK_ATTRIBUTE in attributes:
            self._lower_mask(metadata, meaning)
        elif names is None or self._ome.axes.get(path) is not None or _is_harmless(metadata):
            pass
        elif _is_of_gdal(metadata):
            if unset:
                meaning.fill_value = None
            else:
                meaning.changes.append(
                    f"xarray masks the fill value {quote(plain_json(metadata.fill_value))}, GDAL's nodata"
                )
        else:
            meaning.fill_value = None
        for holder in (attributes, meaning.members):
            fit_types(holder, attributes, metadata.dtype)
        is_unset_in_both = unset and meaning.fill_value is None
        meaning.writes_absent = not is_unset_in_both and not _same_bits(meaning.fill_value, metadata)

    def _lower_mask(self, metadata: ArrayMetadata, meaning: Meaning) -> None:
        """Say with the fill value what the attribute says."""
        attributes = meaning.attributes
        try:
            mask = decoded_mask(attributes[MASK_ATTRIBUTE], metadata.dtype)
        except _InexpressibleError:
            # xarray cannot read the array, nor its copy.
            return
        meaning.fill_value = _as_element(mask, metadata.dtype)
        del attributes[MASK_ATTRIBUTE]
        if metadata.dtype.kind in "iuf" and math.isfinite(mask) and _nczarr_has_mask({**meaning.members, **attributes}):
            # netCDF-C reads only this; xarray only if the fill value is null, because no element can have the value.
            attributes[MASK_ATTRIBUTE] = mask

    def _kept_nczarr(self, attribute: str, path: str, name: str) -> dict[str, Any]:
        group = self._nodes.get(path)
        kept = group.attributes.get(attribute) if isinstance(group, GroupMetadata) else None
        found = kept.get(name) if isinstance(kept, dict) else None
        return found if isinstance(found, dict) else {}

    def _kept_members(self, path: str, name: str) -> dict[str, Any]:
        if not (self._downwards and self._has_members):
            return {}
        # No others, such as the shape.
        return _nczarr_attributes(self._kept_nczarr(KEPT_MEMBERS, path, name))


class _InexpressibleError(ValueError):
    """Something that a format has no words for."""


def _nczarr_attributes(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if name.lower().startswith(_NCZARR_PREFIX)}


def _members(node: NodeMetadata) -> dict[str, Any]:
    """Return the members of NCZarr in the document of a node."""
    return _nczarr_attributes(node.document.get(".zarray" if isinstance(node, ArrayMetadata) else ".zgroup", {}))


def _nczarr_has_mask(members: Mapping[str, Any]) -> bool:
    """Return whether an array has the attribute for netCDF-C, as far as NCZarr's list of attributes says.

    The list is an attribute or a member of the document. netCDF-C may crash by attributes that are not in it.
    """
    listed = members.get("_nczarr_attr")
    types = listed.get("types") if isinstance(listed, dict) else None
    return not isinstance(types, dict) or MASK_ATTRIBUTE in types


def nczarr_dimension_names(metadata: ArrayMetadata) -> list[str] | None:
    """Return the names of an array's dimensions as NCZarr has them, without their groups; None if there are none."""
    paths = nczarr_dimensions(metadata)
    return None if paths is None else [path.rpartition("/")[2] for path in paths]


def nczarr_dimensions(metadata: ArrayMetadata) -> list[str] | None:
    """Return the paths of an array's dimensions in its NCZarr data set; None if there are none."""
    for holder in (metadata.attributes, metadata.document.get(".zarray"), metadata.document):
        for name in ARRAY:
            found = holder.get(name) if isinstance(holder, dict) else None
            for key in DIMENSIONS:
                if isinstance(found, dict) and isinstance(found.get(key), list):
                    return [str(path) for path in found[key]]
    return None


def _is_of_gdal(metadata: ArrayMetadata) -> bool:
    """Return whether GDAL wrote an array, so that its fill value is nodata, or, if it is null, there is none.

    Rasters without a coordinate reference system are known by the names of their dimensions and by what zarr-python,
    through which xarray writes, has in every document, and GDAL has not.
    """
    if _GDAL_CRS in metadata.attributes:
        return True
    document = metadata.document.get(".zarray", metadata.document)
    names = metadata.dimension_names or ()
    return names[-2:] == _GDAL_RASTER and not document.keys() & {"storage_transformers", "dimension_separator"}


# -- masks -------------------------------------------------------------------------------------------------------------


def _set_mask(attributes: dict[str, Any], mask: Any, metadata: ArrayMetadata) -> None:
    """Set the attribute of version 3 by which xarray masks elements.

    Parameters
    ----------
    attributes
        Attributes to be changed.
    mask
        An element, or what an attribute of version 2 says.
    metadata
        The array.
    """
    kind = metadata.dtype.kind
    if isinstance(mask, str) and (kind == "U" or metadata.dtype.hasobject):
        # xarray reads no _FillValue of strings.
        others = attributes.get(_OLDER_MASK, [])
        values = [*(others if isinstance(others, list) else [others]), mask]
        attributes[_OLDER_MASK] = mask if values.count(mask) == len(values) else values
    elif kind in "mM" and mask != mask:
        # Missing elements are what they are, with or without a mask; version 3 has no words for it.
        pass
    elif kind in "fc" and mask != mask and not _is_packed(attributes):
        pass
    elif kind != "V":
        attributes[MASK_ATTRIBUTE] = encoded_mask(mask, metadata.dtype)


def encoded_mask(mask: Any, dtype: np.dtype[Any]) -> Any:
    """Return the attribute ``_FillValue`` of version 3 as xarray's ``FillValueCoder`` writes it.

    Parameters
    ----------
    mask
        An element, a number, or text that is already encoded.
    dtype
        Data type of the array.
    """
    kind, value = dtype.kind, plain_json(mask)
    if kind == "b":
        if value not in (False, True):
            raise _InexpressibleError(f"{quote(value)} is no bool")
        return bool(value)
    if kind in "iu" and isinstance(value, int | float):
        if not math.isfinite(value) or value != int(value):
            raise _InexpressibleError(f"{quote(str(value))} is not an integer")
        return int(value)
    if kind == "f":
        if isinstance(value, str) and _from_base64(value) is not None:
            return value
        if isinstance(value, int | float):
            return _base64(value)
    if kind == "c" and isinstance(value, complex | int | float):
        return [_base64(complex(value).real), _base64(complex(value).imag)]
    raise _InexpressibleError(f"it has no notation for one of {dtype}")


def decoded_mask(value: Any, dtype: np.dtype[Any]) -> Any:
    """Return the number that the attribute ``_FillValue`` of version 3 stands for: the inverse of :func:`encoded_mask`.

    Numbers of floating point that are written as such, not by xarray, are accepted.
    """
    kind = dtype.kind
    found: Any = None
    if kind == "b" and isinstance(value, bool | int):
        found = bool(value)
    elif kind in "iu" and isinstance(value, int | float) and math.isfinite(value):
        found = int(value)
    elif kind == "f":
        found = float(value) if isinstance(value, int | float) else _from_base64(value)
    elif kind == "c":
        real, imag = map(_from_base64, value) if isinstance(value, list) and len(value) == 2 else (None, None)
        if real is not None and imag is not None:
            found = complex(real, imag)
    if found is None:
        raise _InexpressibleError(f"{quote(value)} is not a _FillValue of {dtype}")
    return found


def _base64(value: float) -> str:
    return base64.standard_b64encode(struct.pack("<d", float(value))).decode()


def _from_base64(value: Any) -> float | None:
    try:
        found: float = struct.unpack("<d", base64.b64decode(value.encode("ascii"), validate=True))[0]
    except (AttributeError, ValueError, struct.error):
        return None
    return found


def plain_json(value: Any) -> Any:
    """Return an element as a plain Python object, for documents and messages."""
    found = value.item() if isinstance(value, np.generic) and value.dtype.kind in "biufcSU" else value
    return found if isinstance(found, bool | int | float | complex | str | list | None) else str(found)


def _as_element(mask: Any, dtype: np.dtype[Any]) -> Any:
    """Return a number as an element that equals it; None if there is none."""
    with np.errstate(all="ignore"):
        try:
            element = np.asarray(mask, dtype)[()]
        except (OverflowError, ValueError, TypeError):
            return None
    is_beyond = dtype.kind == "f" and math.isfinite(mask) and not np.isfinite(element)
    return None if is_beyond or (dtype.kind in "biu" and int(element) != mask) else element


def _is_one(said: Any, mask: Any, dtype: np.dtype[Any]) -> bool:
    """Return whether an attribute of version 2 says the same as the fill value."""
    if dtype.kind not in "biuf" or not isinstance(said, int | float):
        return bool(said == plain_json(mask))
    element = _as_element(said, dtype)
    return element is not None and bool(element == mask or (element != element and mask != mask))


def _is_harmless(metadata: ArrayMetadata) -> bool:
    """Return whether nothing changes if elements that equal the fill value are missing.

    That is so for NaN, but not for NaT, which xarray shows as an attribute of dates.
    """
    value = metadata.fill_value
    if value is None or metadata.dtype.type is np.void:
        return True
    return bool(metadata.dtype.kind in "fc" and value != value) and not _is_packed(metadata.attributes)


def _is_packed(attributes: Mapping[str, Any]) -> bool:
    """Return whether xarray unpacks elements, into a data type that also depends on whether there is a mask."""
    return not attributes.keys().isdisjoint(_PACKING)


def _same_bits(fill_value: Any, metadata: ArrayMetadata) -> bool:
    """Return whether absent chunks of an array are the same with another fill value, which may be None."""
    if fill_value is None or metadata.dtype.hasobject:
        before = metadata.fill_value
        return fill_value is before or (type(fill_value) is type(before) and bool(np.all(fill_value == before)))
    one, other = (np.asarray(value, metadata.dtype) for value in (fill_value, metadata.absent_element))
    return one.tobytes() == other.tobytes()


def group_with_members(made: GroupMetadata, members: Mapping[str, Any]) -> GroupMetadata:
    """Return the metadata of the copy of a group with members of NCZarr in its document."""
    if not members:
        return made
    document = FORMATS[made.zarr_format].group_document(made)
    return replace(made, document={**document, ".zgroup": {**document[".zgroup"], **members}})


def with_extras(made: ArrayMetadata, metadata: ArrayMetadata, members: Mapping[str, Any]) -> ArrayMetadata:
    """Return the metadata of a copy with what others have put into documents.

    In the same format, it is what they have put into those of the source; in another one, ``members`` of NCZarr.
    """
    is_same = made.zarr_format == metadata.zarr_format
    document, fill_value = dict(made.document), made.fill_value
    extras = _members_of_others(metadata) if is_same else members
    if ".zarray" in document:
        document[".zarray"] = {**document[".zarray"], **extras}
    else:
        document |= extras
        if is_same and metadata.fill_value is None and "fill_value" in document:
            # GDAL's for no nodata.
            document["fill_value"] = fill_value = None
    return replace(made, document=document, fill_value=fill_value)


def _members_of_others(node: NodeMetadata) -> dict[str, Any]:
    """Return the members of the document of a node that its format, version 2 or 3, does not define."""
    if node.zarr_format == 3:
        # It demands of all others that they say so.
        return {
            name: value
            for name, value in node.document.items()
            if isinstance(value, dict) and value.get("must_understand") is False and name not in _MEMBERS_OF_3
        }
    found = node.document.get(".zarray" if isinstance(node, ArrayMetadata) else ".zgroup", {})
    return {name: value for name, value in found.items() if name not in MEMBERS}


# -- what changes ------------------------------------------------------------------------------------------------------


def differences(source: NodeMetadata, copied: NodeMetadata) -> list[str]:
    """Return where a copy's documents differ from the source's, apart from storage, in lines of text."""
    found = []
    if isinstance(source, ArrayMetadata) and isinstance(copied, ArrayMetadata):
        one, other = source.fill_value, copied.fill_value
        if (one is None) != (other is None) or not (one is None or _same_bits(other, source)):
            found.append(f"the fill value {_text(one)} becomes {_text(other)}")
        if source.dimension_names != copied.dimension_names:
            found.append(f"the dimension names {_text(source.dimension_names)} become {_text(copied.dimension_names)}")
        keys = source.chunk_key_encoding, copied.chunk_key_encoding
        if keys[0] != keys[1]:
            zeros = (0,) * max(source.ndim, 1)
            found.append(f"the keys of chunks, such as {keys[0].encode(zeros)}, become {keys[1].encode(zeros)}")
    if source.zarr_format != copied.zarr_format:
        # What becomes of NCZarr's is said elsewhere.
        left = _members_of_others(source).keys() - _members(source).keys()
        found += [f"the member {name} of its document is left out" for name in sorted(left)]
    for name in [*source.attributes, *(name for name in copied.attributes if name not in source.attributes)]:
        if name not in copied.attributes:
            found.append(f"the attribute {name} is left out")
        elif name not in source.attributes:
            found.append(f"the attribute {name} is added: {_text(copied.attributes[name])}")
        elif source.attributes[name] != copied.attributes[name] and not _are_nan(source, copied, name):
            found.append(f"the attribute {name} becomes {_text(copied.attributes[name])}")
    return found


def _are_nan(source: NodeMetadata, copied: NodeMetadata, name: str) -> bool:
    one, other = source.attributes[name], copied.attributes[name]
    return bool(one != one and other != other)


def _text(value: Any) -> str:
    return "null" if value is None else quote(plain_json(value) if not isinstance(value, tuple) else list(value))
