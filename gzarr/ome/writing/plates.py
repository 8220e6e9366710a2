"""New plates: wells, and their fields of view, which are images."""

from __future__ import annotations

import bisect
import contextlib
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ...documents.json import quote
from ...errors import ArgumentError, GzarrError, NodeTypeError
from ...flags import check_flags, flag
from ...hierarchy.create import create_group
from ...hierarchy.open import open_group
from ...integers import as_integer
from ...items import has_items
from ...metadata.to_documents import plain_changed
from ...nodes.change import writable
from ...stores.base import flushing
from ...stores.keys import join_path
from ..metadata.documents import to_attributes
from ..metadata.model import Acquisition, FieldEntry, OmeMetadata, PlateMetadata, WellEntry
from ..metadata.parse import parse
from ..metadata.plates import node_path
from ..nodes import NEW_PLATE, NEW_WELL, parsed
from ..plate import Plate
from .arguments import advising_versions, check_version, checked_attributes
from .creating import check_names
from .documents import list_in, object_in, root_of, with_root, without, written_version
from .existing import has_image
from .new_image import ImageArguments, NewImage

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from ...hierarchy.group import Group
    from ...stores.base import Store
    from ...stores.resolve import StoreLike
    from ..image import Image
    from .arguments import Written

_NAME = re.compile("[A-Za-z0-9]+")
#: Numbers of names and acquisitions are below it.
_MOST: Final = 1 << 63

#: Members of the entries of fields that gzarr knows.
_OF_FIELD: Final = ("path", "acquisition")


def create_plate(  # noqa: PLR0913
    store: StoreLike,
    *,
    rows: Sequence[str],
    columns: Sequence[str | int],
    path: str = "",
    name: str | None = None,
    acquisitions: Sequence[Acquisition] = (),
    version: Written = "0.5",
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> Plate:
    """Create a plate without wells; :func:`create_field` adds them.

    A plate of OME-Zarr has at least one well, so to other programs the group becomes a plate with its first field.
    Until then, only gzarr knows it as one.

    Parameters
    ----------
    store, path, version, overwrite, storage_options
        As for :func:`gzarr.ome.create`.
    rows, columns
        Names of all rows and columns of the plate: letters and digits.
    name
        Name of the plate.
    acquisitions
        Passes over the plate, as :class:`gzarr.ome.Acquisition`, if fields are to name theirs.

    Returns
    -------
    The plate, open for reading and writing.

    Raises
    ------
    ArgumentError
        If an argument is wrong, or a node exists and ``overwrite`` is False; nothing was changed.
    ReadOnlyError, NodeTypeError, StoreError
        As for :func:`gzarr.create_group`.
    """
    zarr_format = check_version(version)
    try:
        passes: tuple[Any, ...] = tuple(acquisitions)
    except TypeError:
        passes = (acquisitions,)
    if not all(isinstance(each, Acquisition) for each in passes):
        raise ArgumentError(f"acquisitions must be a sequence of gzarr.ome.Acquisition, not {quote(acquisitions)}")
    plate = PlateMetadata(_names(rows, "rows"), _names(columns, "columns"), (), acquisitions=passes, name=name)
    # Only a well is missing.
    some = replace(plate, wells=(WellEntry(f"{plate.rows[0]}/{plate.columns[0]}", 0, 0),))
    checked_attributes(OmeMetadata(version, plate=some), version)
    with advising_versions():
        group = create_group(
            store,
            path=path,
            zarr_format=zarr_format,
            attributes=_waiting(plate),
            overwrite=overwrite,
            storage_options=storage_options,
        )
    return Plate(group, parsed(group.metadata.attributes, zarr_format))


def create_field(  # noqa: PLR0913
    store: StoreLike,
    row: str,
    column: str | int,
    data: Any = None,
    *,
    path: str = "",
    field: str | int | None = None,
    acquisition: int | None = None,
    lock: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    **arguments: Any,
) -> Image:
    """Create a field of view of a plate: an image in one of its wells, with all of its levels.

    The well and the plate list it when it is complete, also if it replaces another one: fields with numbers for names
    in their order, wells by row and column, and where a list is in another order already, at its end. Threads may add
    fields to one plate at a time; processes, too, if all of them pass ``lock=True``, or if the plate is in an object
    store.

    Parameters
    ----------
    store, path
        Store, and path in it, of the plate.
    row, column
        Names of the well's row and column. An integer is a name, too: 3 is the column ``"3"``, while
        :meth:`gzarr.ome.Plate.well` takes it as an index, from 0 on.
    data
        As for :func:`gzarr.ome.create`.
    field
        Name of the image in the well; None for the first number that is free.
    acquisition
        Number of the acquisition. If the plate has several, it must be one of theirs.
    lock
        Whether to exclude other processes that also pass ``lock=True`` from the lists of fields and wells, by file
        locks beside the data.
    storage_options
        Options for the store of a URL.
    **arguments
        Other arguments of :func:`gzarr.ome.create`.

    Returns
    -------
    The image, open for reading and writing.

    Raises
    ------
    ArgumentError
        If the plate has no such row or column, or has several acquisitions and not that one; and as for
        :func:`gzarr.ome.create`.
    NodeNotFoundError, NodeTypeError, MetadataError
        If there is no plate, or its metadata cannot be read.
    ReadOnlyError, DeviceError, StoreError, ChunkError
        As for :func:`gzarr.ome.create`.
    """
    check_names("create_field", arguments, known=ImageArguments.__dataclass_fields__)
    check_flags(lock=lock)
    group = open_group(store, path=path, mode="r+", storage_options=storage_options)
    target = writable(group.store, group.name)
    metadata = parsed(group.attrs, group.zarr_format)
    for error in metadata.errors.values():
        raise error
    plate = metadata.plate
    if plate is None:
        raise NodeTypeError(f"{group.name} in {group.store!r} is not an OME-Zarr plate: it lacks 'plate'")
    version = written_version(metadata, group)
    row_name, column_name = _chosen("row", row, plate.rows), _chosen("column", column, plate.columns)
    acquisition = _checked_acquisition(acquisition, plate)
    well = f"{row_name}/{column_name}"
    well_path = join_path(group.path, well)
    chosen = None if field is None else _name(field)
    if field is not None and chosen is None:
        raise ArgumentError(f"field: names of fields have letters and digits only, not {quote(field)}")
    zarr_format = check_version(version)
    entry = WellEntry(well, plate.rows.index(row_name), plate.columns.index(column_name))
    overwrite = flag("overwrite", arguments.get("overwrite", False)) and chosen is not None
    place = {"path": join_path(well_path, chosen or "0"), "version": version, "overwrite": overwrite}
    planned = NewImage(target, data, ImageArguments(**{**arguments, **place}))
    lists = _Lists(group, target, entry, version, lock=lock)
    taken = lists.check(chosen)

    def claim(attributes: Mapping[str, Any]) -> Group:
        """Create the group of the image: of a number that is free, others may have begun images."""
        while True:
            name = _free(taken) if chosen is None else chosen
            try:
                return create_group(
                    target,
                    path=join_path(well_path, name),
                    zarr_format=zarr_format,
                    attributes=attributes,
                    overwrite=overwrite,
                )
            except ArgumentError:
                if chosen is not None or f"{well}/{name}" not in group:
                    raise
                taken.add(name)

    def claim_again(attributes: Mapping[str, Any]) -> Group:
        """Create the group of an image that may be there, and is not listed until it is complete."""
        assert chosen is not None
        # If this fails, both lists are as they were.
        old = lists.remove(chosen)
        try:
            return claim(attributes)
        except BaseException:
            # What is said is why it could not be erased.
            with contextlib.suppress(GzarrError):
                if old is not None and has_image(target, join_path(well_path, chosen)):
                    lists.add(old)
            raise

    with flushing(store, target):
        image = planned.write(claim_again if overwrite else claim)
        numbered = {} if acquisition is None else {"acquisition": acquisition}
        lists.add({"path": image.group.basename, **numbered})
    return image


class _List(NamedTuple):
    """Where a list is in a document: the part and its member, and the attribute where entries wait."""

    part: str
    member: str
    waiting: str


_FIELDS: Final = _List("well", "images", NEW_WELL)
_WELLS: Final = _List("plate", "wells", NEW_PLATE)


class _Lists:
    """The list of a well's fields, and that of a plate's wells: a field is in them while it is complete.

    Only these lists change in the documents, and in an entry that is written again only what gzarr knows: entries that
    are taken out wait in another attribute (:data:`gzarr.ome.nodes.NEW_WELL`), also for later calls.
    """

    def __init__(self, plate: Group, store: Store, well: WellEntry, version: Written, *, lock: bool) -> None:
        self._plate, self._store, self._well = plate, store, well
        self._version: Written = version
        self._lock = lock
        # The places that the field and the well had in the lists, if they were taken out.
        self._field_place: int | None = None
        self._well_place: int | None = None

    def check(self, field: str | None) -> set[str]:
        """Return the names of the fields that the well lists, if a field can be added.

        Parameters
        ----------
        field
            Name of the field; None for the first number that is free.

        Raises
        ------
        MetadataError
            If the list of the fields cannot be read.
        ArgumentError
            If one of the documents could not be written: what JSON lacks (NaN) stays in them only in its place.
        """
        path = self._well.path
        fields: dict[str, Any] = dict(self._plate[path].attrs) if path in self._plate else {}
        taken = {node_path(entry.path) for entry in _listed(parse(fields))}
        changed, count = self._with_field(fields, {"path": field or _free(taken)})
        wells = dict(self._plate.attrs)
        name = f"/{join_path(self._plate.path, path)}"
        for node, new, old in ((name, changed, fields), (self._plate.name, self._with_well(wells, count), wells)):
            try:
                plain_changed(new, old)
            except ArgumentError as error:
                raise ArgumentError(f"{node!r} in {self._plate.store!r}: {error}") from error
        return taken

    def add(self, field: dict[str, Any]) -> None:
        """Add the entry of a field, and its well, in the places that they had.

        New ones get the places where their numbers belong, or come at the end.
        """
        count = 0

        def with_field(found: dict[str, Any]) -> dict[str, Any]:
            nonlocal count
            _listed(parse(found))
            changed, count = self._with_field(found, field)
            return changed

        path = join_path(self._plate.path, self._well.path)
        open_group(self._store, path=path, mode="r+").attrs.change(with_field, lock=self._lock)
        self._plate.attrs.change(lambda found: self._with_well(found, count), lock=self._lock)

    def remove(self, path: str) -> dict[str, Any] | None:
        """Remove a field, and its well if that has no other one; return the field's entry, None if it is not listed.

        If one of the two lists cannot be changed, both get the field back.
        """
        well = self._well
        if path not in [node_path(field.path) for field in _fields(self._plate, well.path)]:
            return None
        removed: dict[str, Any] | None = None

        def without_field(found: dict[str, Any]) -> dict[str, Any]:
            nonlocal removed
            removed = None
            entries = list_in(object_in(root_of(found, self._version), "well"), "images")
            self._field_place = _place_of(entries, path)
            if self._field_place is None:
                return found
            removed = entries[self._field_place]
            return self._taken_out(found, _FIELDS, path)

        def without_well(found: dict[str, Any]) -> dict[str, Any]:
            self._well_place = None
            self._plate_of(found)
            entries = list_in(object_in(root_of(found, self._version), "plate"), "wells")
            place = _place_of(entries, well.path)
            if place is None or _fields(self._plate, well.path):
                return found
            self._well_place = place
            return self._taken_out(found, _WELLS, well.path)

        well_path = join_path(self._plate.path, well.path)
        listing = open_group(self._store, path=well_path, mode="r+").attrs
        try:
            listing.change(without_field, lock=self._lock)
            self._plate.attrs.change(without_well, lock=self._lock)
        except BaseException:
            with contextlib.suppress(GzarrError):
                if removed is not None:
                    self.add(removed)
            raise
        return removed

    def _with_field(self, found: dict[str, Any], field: dict[str, Any]) -> tuple[dict[str, Any], int]:
        """Return the attributes of the well with the entry of a field, and how many fields it has then."""
        old, others = self._old_entry(found, _FIELDS, field["path"])
        listed = list_in(object_in(root_of(found, self._version), "well"), "images")
        place = _place_of(listed, field["path"])
        place = self._field_place if place is None else place
        if place is None:
            place = _place_among([_path(entry) for entry in others], field["path"], _number)
        entry = {**field, **{name: value for name, value in old.items() if name not in _OF_FIELD}}
        # Others may have written its path in another way.
        entry["path"] = old.get("path", field["path"])
        others.insert(place, entry)
        changed = self._put_in(found, _FIELDS, field["path"], others)
        return changed, len({node_path(one.path) for one in _listed(parse(changed))})

    def _with_well(self, found: dict[str, Any], count: int) -> dict[str, Any]:
        """Return the attributes of the plate with the entry of the well, which has some number of fields."""
        plate, well = self._plate_of(found), self._well
        wells = list_in(object_in(root_of(found, self._version), "plate"), "wells")
        paths = [_path(entry) for entry in wells]
        if well.path not in paths:
            old, _ = self._old_entry(found, _WELLS, well.path)
            place = self._well_place
            if place is None:
                places = {node_path(one.path): (one.row, one.column) for one in (*plate.wells, well)}
                place = _place_among(paths, well.path, places.get)
            wells.insert(place, old or {"path": well.path, "rowIndex": well.row, "columnIndex": well.column})
        more: dict[str, Any] = {}
        # It is the largest number of fields of all wells; a plate that has others and does not say it stays so.
        is_known = plate.field_count is not None or all(path == well.path for path in paths)
        if is_known and (plate.field_count or 0) < count:
            more["field_count"] = count
        return self._put_in(found, _WELLS, well.path, wells, **more)

    def _old_entry(self, found: Mapping[str, Any], where: _List, path: str) -> tuple[dict[str, Any], list[Any]]:
        """Return the entry of a path, listed or waiting, which is empty if there is none; and all others listed."""
        listed = list_in(object_in(root_of(found, self._version), where.part), where.member)
        entry, others = _split(listed, path)
        return entry or _split(list_in(object_in(found, where.waiting), where.member), path)[0], others

    def _put_in(
        self, found: Mapping[str, Any], where: _List, path: str, entries: list[Any], **more: Any
    ) -> dict[str, Any]:
        """Return attributes with a list in which the entry of a path does not wait any longer."""
        version = self._version
        waiting = object_in(found, where.waiting)
        still = _split(list_in(waiting, where.member), path)[1]
        others = {name: value for name, value in found.items() if name != where.waiting}
        root = root_of(others, version)
        part = {**_versioned(version), **object_in(root, where.part)}
        part = {**part, **{name: value for name, value in waiting.items() if name not in part}}
        part = {**part, where.member: entries, **more}
        changed = with_root(others, {**root, where.part: part}, version)
        return {**changed, where.waiting: {where.member: still}} if still else changed

    def _taken_out(self, found: Mapping[str, Any], where: _List, path: str) -> dict[str, Any]:
        """Return attributes with a list in which the entry of a path waits; by the specification, none is empty."""
        root = root_of(found, self._version)
        part, waiting = object_in(root, where.part), object_in(found, where.waiting)
        entry, others = _split(list_in(part, where.member), path)
        entries = [*_split(list_in(waiting, where.member), path)[1], entry]
        if not others:
            return {**without(found, where.part, self._version), where.waiting: {**part, where.member: entries}}
        changed = with_root(found, {**root, where.part: {**part, where.member: others}}, self._version)
        return {**changed, where.waiting: {**waiting, where.member: entries}}

    def _plate_of(self, found: Mapping[str, Any]) -> PlateMetadata:
        """Return what attributes say of the plate."""
        metadata = parsed(found, check_version(self._version))
        if metadata.plate is None:
            raise NodeTypeError(f"{self._plate.name} in {self._plate.store!r} is not an OME-Zarr plate any longer")
        return metadata.plate


def _waiting(plate: PlateMetadata) -> dict[str, Any]:
    """Return the attributes of a plate that has no wells yet."""
    document = to_attributes(OmeMetadata("0.5", plate=plate))["ome"]["plate"]
    del document["wells"]
    return {NEW_PLATE: document}


def _versioned(version: Written) -> dict[str, Any]:
    """Return the members that each part of the metadata has: its version, in 0.4."""
    return {"version": version} if version == "0.4" else {}


def _chosen(kind: str, given: Any, names: Sequence[str]) -> str:
    """Return the name of a row or a column that a plate has."""
    # Plates of others may have other names.
    name = given if isinstance(given, str) else _name(given)
    if name not in names:
        raise ArgumentError(f"the plate has no {kind} {quote(given)}; it has {', '.join(names)}")
    return str(name)


def _checked_acquisition(acquisition: Any, plate: PlateMetadata) -> int | None:
    """Return the number of an acquisition; refuse one that a field of a plate cannot have.

    By the specification ("well" metadata), each field has one if the plate has several acquisitions, and it is one of
    theirs. Nothing is said of other plates.
    """
    number = as_integer(acquisition)
    if acquisition is not None and (number is None or not 0 <= number < _MOST):
        raise ArgumentError(f"acquisition must be an integer of at least 0, of 64 bits, not {quote(acquisition)}")
    known = [one.id for one in plate.acquisitions]
    if len(known) > 1 and number not in known:
        numbers = ", ".join(map(str, known))
        raise ArgumentError(f"acquisition must be one of the plate's, {numbers}, not {quote(acquisition)}")
    return number


def _fields(plate: Group, well: str) -> tuple[FieldEntry, ...]:
    """Return the fields that a well lists."""
    return _listed(parse(plate[well].attrs)) if well in plate else ()


def _listed(well: OmeMetadata) -> tuple[FieldEntry, ...]:
    for error in well.errors.values():
        raise error
    return () if well.well is None else well.well.images


def _path(entry: Any) -> str:
    """Return the path of an entry in a document, as nodes have it; an empty one if it has none."""
    path = entry.get("path") if isinstance(entry, dict) else None
    return node_path(path) if isinstance(path, str) else ""


def _place_of(entries: list[Any], path: str) -> int | None:
    return next((i for i, entry in enumerate(entries) if _path(entry) == path), None)


def _split(entries: list[Any], path: str) -> tuple[dict[str, Any], list[Any]]:
    """Return the entry of a path, which is empty if there is none, and all others."""
    others = [entry for entry in entries if _path(entry) != path]
    return next((entry for entry in entries if _path(entry) == path), {}), others


def _place_among(listed: Sequence[str], new: str, number: Callable[[str], Any]) -> int:
    """Return where a new path belongs in a list that is in order, so that each attempt gives the same list.

    Of any other list, and where a path has no number, it is the end.
    """
    before, own = [number(path) for path in listed], number(new)
    if own is None or None in before or before != sorted(before):
        return len(listed)
    return bisect.bisect(before, own)


def _number(field: str) -> int | None:
    """Return the number that is a field's name; None for another name."""
    return int(field) if field.isascii() and field.isdecimal() else None


def _free(taken: Collection[str]) -> str:
    return next(name for name in map(str, range(len(taken) + 1)) if name not in taken)


def _names(given: Any, what: str) -> tuple[str, ...]:
    names = tuple(map(_name, given)) if isinstance(given, str) or has_items(given) else ()
    found = tuple(name for name in names if name is not None)
    if not names or len(set(found)) < len(names):
        raise ArgumentError(f"{what} must be different names of letters and digits, not {quote(given)}")
    return found


def _name(given: Any) -> str | None:
    """Return a name of letters and digits, also given as an integer; None for anything else."""
    number = as_integer(given)
    name = given if number is None else str(number) if 0 <= number < _MOST else ""
    return str(name) if isinstance(name, str) and _NAME.fullmatch(name) else None
