"""New nodes: inspecting their locations, writing their documents, and moving nodes.

All nodes are made in the same way:

- The place is claimed (:func:`gzarr.stores.locks.claim`), where there are claims: in directories. Threads take turns
  everywhere, for the documents of the node and of all groups above it are held.
- It is inspected: it must be free, or what is there is to be replaced.
- What replaces a node is made aside, where that is possible, and then takes its place in one step: :func:`stage_at`.
  Elsewhere the old node is erased first.
- The document that makes the node is written last, and only if nobody else has written it meanwhile. Before it, what
  an erased node has left of its other documents is erased, or it would describe the new one.
- Who fails, or is not the first, erases what he has written, and nothing of what others have.

Stores without claims (object stores, directories whose links are refused) have the other steps: nobody's node is
replaced or erased by who comes too late. But chunks that two processes write at once, before either has a node, mix,
and what one has written by then, the other takes for remains: attributes, and chunks if it fails.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from ..errors import ArgumentError, MetadataError, NodeNotFoundError, NodeTypeError, StoreError
from ..metadata import nczarr
from ..metadata.conventions import nczarr_dimensions
from ..metadata.formats import (
    DEFAULT_FORMAT,
    FORMATS,
    V3_DRAFT,
    check_writable,
    consolidated_keys,
    keys_and_prefixes,
    node_at,
    node_keys,
)
from ..metadata.model import ArrayMetadata, GroupMetadata
from ..metadata.to_documents import array_documents, group_documents
from ..stores import io_threads
from ..stores.base import ExclusiveStore, RemoteValues, SelectiveStore, StagingStore, is_listable, knows_of
from ..stores.keys import is_document
from ..stores.local import LocalStore
from ..stores.locks import claim, hold_node, is_linked, is_within
from .change import (
    change_node,
    check_erasable,
    data_set,
    documents_first,
    drop_indexes,
    erase_node,
    hold_keys_above,
    list_member,
    look_above,
    reader_of,
    set_documents,
)
from .documents import Documents, is_conditional, upward
from .enclosing import enclosing_groups
from .folders import check_hides_nothing, hides_nodes
from .surroundings import look_around

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from typing import TypeGuard

    from ..metadata.format import Format
    from ..metadata.layout import Layout
    from ..metadata.model import NodeMetadata, ZarrFormat
    from ..stores.base import ReadableStore, Stage, Store

# Limit of the keys inspected in the search for stray chunks.
_PROBED_KEYS: Final = 1000
#: How errors here, and those of stores, say that what is in the way can be replaced.
_ADVICE: Final = "pass overwrite=True"


@dataclass(frozen=True, slots=True)
class Location:
    """Location of a new node, before it is created.

    Attributes
    ----------
    occupied
        Whether a node exists there.
    found
        Metadata of the existing node, or the error if it cannot be read; None if there is no node.
    parents
        Paths of the groups above that get a document, from the root down: those without one, but for folders with nodes
        of other formats, which stay folders.
    documents
        Documents that were looked at.
    is_empty
        Whether it is known that the store has nothing at and below the path.
    layout
        Layout of the 2022 draft hierarchy that the new node will be in; None in other formats.
    old_layout
        Layout of the 2022 draft hierarchy that the path is in now, if any.
    """

    occupied: bool
    found: NodeMetadata | MetadataError | None
    parents: tuple[str, ...]
    documents: Documents
    is_empty: bool
    layout: Layout | None
    old_layout: Layout | None


@contextlib.contextmanager
def advising(instead: str = _ADVICE, *, formats: Mapping[ZarrFormat, str] | None = None) -> Iterator[None]:
    """Have errors advise what their callers can do.

    Parameters
    ----------
    instead
        Advice in place of ``overwrite=True``, for callers that have no such argument.
    formats
        The same in place of each ``zarr_format=``.
    """
    try:
        yield
    except (ArgumentError, StoreError) as error:
        message, *others = error.args
        text = str(message).replace(_ADVICE, instead)
        for zarr_format, other in (formats or {}).items():
            text = text.replace(_format_advice(zarr_format), other)
        error.args = (text, *others)
        raise


def _format_advice(zarr_format: ZarrFormat) -> str:
    return f"pass zarr_format={zarr_format!r}"


def inspect_location(store: ReadableStore, path: str, zarr_format: ZarrFormat) -> Location:
    """Inspect the location of a new node, and the groups above it.

    Raises
    ------
    NodeTypeError
        If there is an array above the path.
    ArgumentError
        If the hierarchy has another format, or the store takes none of this one.
    """
    refusal = store.refusal(FORMATS[zarr_format].document_names) if isinstance(store, SelectiveStore) else ""
    if refusal:
        raise ArgumentError(f"'/{path}' in {store!r}: {refusal}")
    documents, is_empty = look_around(store, path, FORMATS[zarr_format])
    reader = replace(reader_of(store), documents=documents)
    there: NodeMetadata | MetadataError | None = None
    if not is_empty:
        try:
            entry = reader.node(path, None)
            there = None if entry is None else entry.metadata
        except MetadataError as error:
            there = error
    old_layout = reader.layout(path)
    layout = FORMATS[zarr_format].layout(old_layout)
    parents = _parents(documents, path, zarr_format, old_layout, layout)
    return Location(there is not None, there, parents, documents, is_empty, layout, old_layout)


def inspect_below(store: ReadableStore, path: str, zarr_format: ZarrFormat) -> Location:
    """Inspect the location of a new node whose group above the caller has just written; look at nothing above it.

    That is one listing, where the store can list and nothing is there; otherwise, and in hierarchies with an entry
    point, everything is inspected: :func:`inspect_location`.
    """
    if FORMATS[zarr_format].has_entry_point or not is_listable(store):
        return inspect_location(store, path, zarr_format)
    for _ in islice(store.list_prefix(f"{path}/"), 1):
        return inspect_location(store, path, zarr_format)
    documents = Documents(store)
    # Consolidated metadata above were removed when the group was written.
    documents.note_absent(key for group in upward(path)[1:] for key in consolidated_keys(group, zarr_format))
    return Location(False, None, (), documents, is_empty=True, layout=None, old_layout=None)


def _parents(
    documents: Documents, path: str, zarr_format: ZarrFormat, old_layout: Layout | None, layout: Layout | None
) -> tuple[str, ...]:
    """Return the paths of the groups above without a document; one request, or two with a layout, or none if known."""
    above = list(reversed(upward(path)[1:]))
    parents = []
    store = documents.store
    hides = partial(hides_nodes, format=FORMATS[zarr_format], apart_from=path)
    found = documents.fetch([key for group in above for key in node_keys(group)])
    for group in above:
        present = node_at(group, found)
        if layout is not None and old_layout is not None and not old_layout.contains(group):
            continue
        if present is None:
            parents.append(group)
            continue
        format, node_type = present
        if node_type == "array":
            raise NodeTypeError(f"'/{group}' in {store!r} is an array; no node can be created below it")
        if not FORMATS[zarr_format].shares_hierarchy(format):
            check_writable(format, f"'/{path}': the group '/{group}' is one of {format.title}")
            raise ArgumentError(
                f"'/{path}': the group '/{group}' has Zarr format {format.zarr_format!r}, and all nodes of a hierarchy "
                f"have the same; {_format_advice(format.zarr_format)}"
            )
    if layout is not None:
        inside = [group for group in above if layout.contains(group)]
        return _parents_in(documents, inside, FORMATS[zarr_format], layout)
    if not FORMATS[zarr_format].features.groups:
        return ()
    # What a folder does not have, those in it do not have either.
    return tuple(parents[next((i for i, group in enumerate(parents) if not hides(documents, group)), len(parents)) :])


def _parents_in(documents: Documents, groups: Sequence[str], format: Format, layout: Layout) -> tuple[str, ...]:
    """Return the same for groups in a hierarchy with an entry point; one request."""
    found = documents.fetch([key for group in groups for key in format.keys(group, layout)])
    missing = []
    for group in groups:
        node_type = format.node_type(group, found, layout)
        if node_type == "array":
            raise NodeTypeError(f"'/{group}' in {documents.store!r} is an array; no node can be created below it")
        if node_type is None:
            missing.append(group)
    return tuple(missing)


def check_free(
    store: ReadableStore,
    path: str,
    location: Location,
    zarr_format: ZarrFormat,
    *,
    group: bool,
    overwrite: bool = False,
) -> None:
    """Refuse an occupied location.

    Parameters
    ----------
    store, path, location, zarr_format
        The location of a new node, and its format.
    group
        Whether an implicit group is allowed, which becomes explicit.
    overwrite
        Whether what was there was to be erased; so what is there now is another writer's.

    Raises
    ------
    ArgumentError
        If the location is occupied. The message names the node.
    """
    if not location.occupied:
        return
    found = location.found
    format = FORMATS[zarr_format]
    if (
        group
        and isinstance(found, GroupMetadata)
        and found.implicit
        and format.shares_hierarchy(FORMATS[found.zarr_format])
    ):
        check_hides_nothing(store, path, format)
        return
    what = _description(found)
    if overwrite:
        raise ArgumentError(
            f"there is {what} at '/{path}' in {store!r} already, which another writer was creating at the same time; "
            "try again"
        )
    raise ArgumentError(
        f"there is {what} at '/{path}' in {store!r} already; {_ADVICE} to erase it with everything below it"
    )


def _description(found: NodeMetadata | MetadataError | None) -> str:
    """Return what is at an occupied location, for messages."""
    if isinstance(found, ArrayMetadata):
        return "an array"
    if isinstance(found, MetadataError):
        return f"a node that cannot be read ({found})"
    return "a group, with nodes below it," if found is not None and found.implicit else "a group"


def stray_chunks(store: ReadableStore, path: str, metadata: ArrayMetadata) -> list[str]:
    """Return some existing keys that would become chunks of a new array: remains of one whose documents are gone."""
    if not is_listable(store):
        return []
    encoding, folder = metadata.chunk_key_encoding, metadata.key_prefix(path)
    if not metadata.shape:
        key = folder + encoding.encode(())
        return [key] if store.get(key) is not None else []
    number = f"[0-9]+(?:{re.escape(encoding.separator)}[0-9]+){{{metadata.ndim - 1}}}"
    pattern = re.compile(re.escape(folder + encoding.prefix) + number)
    inside = folder + (encoding.prefix if encoding.prefix.endswith("/") else "")
    return [key for key in islice(store.list_prefix(inside), _PROBED_KEYS) if pattern.fullmatch(key)]


def check_name(path: str, location: Location, zarr_format: ZarrFormat) -> None:
    """Refuse reserved names of new nodes.

    Raises
    ------
    ArgumentError
        If a name in version 3 starts with ``"__"``, which the specification ("Node names") reserves.
    """
    format = FORMATS[zarr_format]
    for made in (path, *location.parents):
        name = made.rpartition("/")[2]
        if format.is_reserved(name):
            raise ArgumentError(
                f"'/{path}': a node cannot be named {name!r}: {format.title} reserves names that start with '__'; "
                "choose another name"
            )


def write_new_array(store: Store, path: str, metadata: ArrayMetadata, location: Location, *, overwrite: bool) -> None:
    """Write a new array without data, and explicit groups above it; with ``overwrite``, erase an existing node first.

    The caller must hold the documents (:func:`hold_documents`) from before it inspects the location.

    Raises
    ------
    ArgumentError
        If the location is occupied and ``overwrite`` is False; nothing was changed.
    """
    location = clear_location(store, path, metadata, location, overwrite=overwrite)
    _write_new(store, path, array_documents(metadata, path), location, metadata.zarr_format, overwrite=overwrite)


def clear_location(
    store: Store, path: str, metadata: ArrayMetadata, location: Location, *, overwrite: bool
) -> Location:
    """Check the location of a new array; with ``overwrite``, erase chunks there that would become its own.

    Returns
    -------
    The location, as it is now.

    Raises
    ------
    ArgumentError
        As for :func:`write_new_array`.
    """
    if not overwrite:
        check_free(store, path, location, metadata.zarr_format, group=False)
    strays = [] if location.occupied or location.is_empty else stray_chunks(store, path, metadata)
    if strays:
        # They are not stray if another process has just created the array.
        location = inspect_location(store, path, metadata.zarr_format)
        if not overwrite:
            check_free(store, path, location, metadata.zarr_format, group=False)
            raise ArgumentError(
                f"there is no array at '/{path}' in {store!r}, but {strays[0]!r} would be a chunk of it; "
                f"{_ADVICE} to erase such chunks"
            )
        erase_strays(store, path, metadata)
    return location


def erase_strays(store: Store, path: str, metadata: ArrayMetadata) -> None:
    """Erase chunks of an array that has no documents."""
    while strays := stray_chunks(store, path, metadata):
        store.erase_values(strays)


def begin_array(store: Store, path: str, metadata: ArrayMetadata, location: Location, *, overwrite: bool) -> Location:
    """Make room for the chunks of a new array, whose documents come last: :func:`finish_array`.

    Explicit groups above it are written; with ``overwrite``, an existing node is erased. Parameters, errors, and what
    the caller must hold are as for :func:`write_new_array`; the result is the location, as it is now.
    """
    location = clear_location(store, path, metadata, location, overwrite=overwrite)
    if location.occupied:
        _erase_old(store, path, location)
    _write_parents(store, path, location, metadata.zarr_format)
    return location


def abandon_array(store: Store, path: str, metadata: ArrayMetadata) -> None:
    """Erase the chunks of a new array that gets no documents: they would be in the way of the next one.

    If another process has created a node there meanwhile, they are its own. The caller must hold the documents.
    """
    location = inspect_location(store, path, metadata.zarr_format)
    if not location.occupied or (isinstance(location.found, GroupMetadata) and location.found.implicit):
        erase_strays(store, path, metadata)


def finish_array(store: Store, path: str, metadata: ArrayMetadata, location: Location, *, overwrite: bool) -> None:
    """Write the documents of a new array whose chunks are stored, as :func:`write_new_array` does without any."""
    documents = array_documents(metadata, path)
    if not is_conditional(store):
        # Others may have created nodes here and below meanwhile, for there was none that could be seen. Where the
        # document is written on the condition that there is none, another look would cost as much as the first.
        now = inspect_location(store, path, metadata.zarr_format)
        # A look at some keys may take the new chunks for a group with nodes below it.
        implicit = isinstance(now.found, GroupMetadata) and now.found.implicit
        if not implicit or any(map(is_document, store.list_prefix(f"{path}/" if path else ""))):
            check_free(store, path, now, metadata.zarr_format, group=False, overwrite=overwrite)
    location = replace(location, occupied=False, parents=())
    if not location.documents.can_be_relied_on():
        # Others may have written consolidated metadata above meanwhile.
        location = replace(location, documents=Documents(store))
    _write_new(store, path, documents, location, metadata.zarr_format, overwrite=overwrite)


def write_new_group(store: Store, path: str, metadata: GroupMetadata, location: Location, *, overwrite: bool) -> None:
    """Write a new group; as :func:`write_new_array`. An implicit group becomes explicit and keeps the nodes below."""
    if not overwrite:
        check_free(store, path, location, metadata.zarr_format, group=True)
    documents = group_documents(metadata, path, location.layout)
    _write_new(store, path, documents, location, metadata.zarr_format, overwrite=overwrite)


def _write_new(
    store: Store,
    path: str,
    documents: dict[str, bytes],
    location: Location,
    zarr_format: ZarrFormat,
    *,
    overwrite: bool,
) -> None:
    if overwrite and location.occupied:
        stage = stage_at(store, path, location, overwrite=True)
        if stage is not None:
            with discarding(stage):
                set_documents(stage.store, documents)
                put_in_place(stage, store, path, location, zarr_format, overwrite=True)
            return
        _erase_old(store, path, location)
    else:
        drop_indexes(store, path, zarr_format=zarr_format, documents=location.documents)
        if not location.is_empty:
            store.erase_values(_left(location.documents, path, zarr_format))
    # Not every server can write on the condition that nothing is there; between requests, others may write anyway.
    replaces = overwrite and isinstance(store, RemoteValues)
    if not _write_parents(store, path, location, zarr_format, documents, replaces=replaces):
        # Another process has created a node since the location was inspected.
        now = inspect_location(store, path, zarr_format)
        check_free(store, path, now, zarr_format, group=False, overwrite=overwrite)
        raise ArgumentError(f"'/{path}' in {store!r} was created and erased again by another process; try again")


def _erase_old(store: Store, path: str, location: Location) -> None:
    """Erase a node that is replaced, and what the groups above say of it."""
    check_erasable(store, path, location.old_layout)
    drop_indexes(store, path, documents=location.documents)
    _unlist(store, path, location)
    erase_node(store, path, location.old_layout)


def _left(documents: Documents, path: str, zarr_format: ZarrFormat) -> list[str]:
    """Return the documents at a path that would describe a new node, beside its own: those of an erased one."""
    format = FORMATS[zarr_format]
    if format.has_entry_point:
        return []
    # Consolidated metadata would be another request to an object store for each new group.
    has_index = not isinstance(documents.store, RemoteValues)
    return list(documents.fetch(set(format.keys(path, consolidated=has_index)).difference(format.node_keys(path))))


def _erase_left_above(store: Store, parents: Sequence[str], documents: Documents, zarr_format: ZarrFormat) -> None:
    """Erase the same of new groups above a node, where no other process is just creating the group."""
    if isinstance(store, RemoteValues):
        # A request for each group. Nobody else's attributes can be told from those that are left, either.
        return
    for parent in parents:
        if not _left(documents, parent, zarr_format):
            continue
        with contextlib.suppress(ArgumentError), claim(store, parent):
            now = Documents(store)
            if node_at(parent, now.fetch(node_keys(parent))) is None:
                store.erase_values(_left(now, parent, zarr_format))


def stage_at(store: Store, path: str, location: Location, *, overwrite: bool) -> Stage | None:
    """Begin to make a node aside, if the store can do that and it will be all that there is at its place."""
    if location.layout is not None or location.old_layout is not None or not isinstance(store, StagingStore):
        return None
    return store.stage(f"{path}/" if path else "", replace=overwrite and location.occupied)


@contextlib.contextmanager
def discarding(stage: Stage) -> Iterator[None]:
    """Remove what was made aside, unless it is in place by then; errors say what cannot be removed."""
    try:
        yield
    except BaseException as error:
        left = stage.discard()
        if left is not None:
            error.add_note(f"({left})")
        raise
    stage.discard()


def _unlist(store: Store, path: str, location: Location) -> None:
    """Remove a node that is replaced from lists of NCZarr: the new one has no members of NCZarr."""
    found = location.found
    format = FORMATS[nczarr.ZARR_FORMAT]
    if not isinstance(found, ArrayMetadata | GroupMetadata) or format.shares_hierarchy(FORMATS[found.zarr_format]):
        _, is_nczarr = look_above(store, path, location.documents)
        if is_nczarr:
            list_member(store, path, None)


def put_in_place(
    stage: Stage, store: Store, path: str, location: Location, zarr_format: ZarrFormat, *, overwrite: bool
) -> bool:
    """Put a node that was made aside in place, and write explicit groups above it; return whether the place was free.

    The caller must hold the documents.
    """
    drop_indexes(store, path)
    if overwrite and location.occupied:
        _unlist(store, path, location)
    _write_parents(store, path, location, zarr_format)
    return stage.put_in_place(replace=overwrite and location.occupied)


def _write_parents(
    store: Store,
    path: str,
    location: Location,
    zarr_format: ZarrFormat,
    documents: dict[str, bytes] | None = None,
    *,
    replaces: bool = False,
) -> bool:
    """Write explicit groups above a new node, and its own documents, if any.

    The groups come first. Only where requests take long are they written at the same time as the document of a group,
    or of an array without data: if the process is killed in between, such a node is there, and a group above it is
    implicit until the next node is created below it. An array with data gets its documents after its chunks.

    Parameters
    ----------
    store, path, location, zarr_format
        As for the caller, who holds the documents.
    documents
        Documents of the node by key; the last one creates it.
    replaces
        Whether they may replace others.

    Returns
    -------
    Whether the node was written; if not, another process has created it meanwhile.

    Raises
    ------
    NodeTypeError
        If another process has created an array above it meanwhile; it was not written.
    StoreError
        If the store fails; the node was not written.
    """
    exclusive = _is_exclusive(store)
    parents = location.parents
    if parents and not (exclusive and location.layout is None):
        # Another process may have created some of them since, with attributes.
        parents = _parents(Documents(store), path, zarr_format, location.old_layout, location.layout)
    _erase_left_above(store, parents, location.documents, zarr_format)
    group = GroupMetadata(zarr_format=zarr_format)
    writes = [partial(_create, store, group_documents(group, parent, location.layout)) for parent in parents]
    *others, (key, value) = (documents or {"": b""}).items()
    own = partial(_create, store, {key: value}, replace=replaces)
    is_last_alone = bool(others) or documents is None
    made: dict[str, bytes] = {}
    if others:
        # An entry point is that of other nodes, too.
        is_shared = FORMATS[zarr_format].has_entry_point
        writes.append(
            partial(_create_all, store, dict(others), {} if is_shared else made, replace=is_shared or replaces)
        )
    done: list[Any] = []
    if exclusive and isinstance(store, RemoteValues):
        done = _together(writes if is_last_alone else [*writes, own])
    else:
        done = [write() for write in writes]
    above = done[: len(parents)]
    failed = next((one for one in done if isinstance(one, BaseException)), None)
    try:
        if failed is None and not all(above):
            _parents(Documents(store), path, zarr_format, location.old_layout, location.layout)
        if failed is not None:
            raise failed
        if documents is None:
            return True
        is_written = all(done[len(parents) :]) and (len(done) > len(writes) or own())
    except BaseException:
        with contextlib.suppress(StoreError):
            if len(done) > len(writes) and done[-1] is True:
                store.erase(key)
            # The store may have failed after it wrote the last one.
            if made and store.get(key) is None:
                _take_back(store, made)
        raise
    if not is_written:
        _take_back(store, made)
    return is_written


def _create_all(store: Store, documents: dict[str, bytes], made: dict[str, bytes], *, replace: bool) -> bool:
    """Write documents, and note them in ``made``; return False if another process has created one of them."""
    for key, value in documents.items():
        if not _create(store, {key: value}, replace=replace):
            return False
        made[key] = value
    return True


def _take_back(store: Store, made: Mapping[str, Any]) -> None:
    """Erase values that this call has written, unless others have changed them."""
    store.erase_values([key for key, value in made.items() if store.get(key) == value])


def _create(store: Store, documents: dict[str, bytes], *, replace: bool = False) -> bool:
    """Write documents; the last one not, unless ``replace``, if another process has created it: then return False."""
    *others, (key, value) = documents.items()
    set_documents(store, dict(others))
    if not replace and _is_exclusive(store):
        return store.create(key, value)
    store.set(key, value)
    return True


def _is_exclusive(store: Store) -> TypeGuard[ExclusiveStore]:
    return isinstance(store, ExclusiveStore) and knows_of(store, "create", "set")


def _together(writes: Sequence[Callable[[], bool]]) -> list[bool | BaseException]:
    """Return the results of some writes, begun in this order, or the error of each that failed."""

    def outcome(write: Callable[[], bool]) -> bool | BaseException:
        try:
            return write()
        except BaseException as error:
            return error

    return io_threads.call_all([partial(outcome, write) for write in writes])


def move_node(store: Store, source: str, dest: str, zarr_format: ZarrFormat | None) -> None:
    """Move a node with everything below it: in a local directory in one step, and otherwise by copying and erasing it.

    ``zarr_format`` is None if the format of the node is not known: in a folder, there may be several.

    Raises
    ------
    ArgumentError
        If ``dest`` is occupied or below ``source``, or the node would become part of a hierarchy of another format, or
        be cut off from dimensions of NCZarr; the source is as it was.
    NodeNotFoundError
        If there is no node at ``source``, or no longer; nothing is at ``dest``.
    StoreError
        If the store fails or cannot list its keys. The source is only erased once everything is at ``dest``.
    """
    if not is_listable(store):
        raise StoreError(f"{store!r} cannot list its keys, so the node '/{source}' cannot be moved")
    if is_within(store, dest, source):
        raise ArgumentError(f"'/{source}' cannot be moved into itself, to '/{dest}'")
    enclosing = enclosing_groups(store)
    with hold_node(store, source, dest), hold_keys_above(store, source, dest, enclosing=enclosing), claim(store, dest):
        if zarr_format is None:
            zarr_format = _format_of(store, source)
        move = _Move.planned(store, source, dest, zarr_format)
        check_erasable(store, source, move.layout)
        documents_above, is_nczarr = look_above(store, source)
        dimensions = _moved_dimensions(store, source, dest) if is_nczarr else None
        drop_indexes(store, source, documents=documents_above)
        drop_indexes(store, dest)
        _write_parents(store, dest, move.location, zarr_format)
        # Other dimensions are not to be written through a link, into a node that stays.
        is_renamed = not (dimensions and is_linked(store, source)) and move.rename()
        if not is_renamed:
            move.copy()
        if is_nczarr and (listed := list_member(store, source, None)) is not None and dimensions is not None:
            list_member(store, dest, listed)
        for path, paths in (dimensions or {}).items():
            _set_dimensions(store, path, paths)
        if not is_renamed:
            erase_node(store, source, move.layout)


def _format_of(store: Store, path: str) -> ZarrFormat:
    """Return the format of a node to be moved, which its folder does not tell; of an absent one, that of new nodes."""
    reader = reader_of(store)
    layout = reader.layout(path)
    if layout is not None:
        if layout.base == path:
            raise ArgumentError(
                f"'/{path}' in {store!r} is a hierarchy of {V3_DRAFT.title}, which moves only with its folder, without "
                "gzarr; nothing was moved"
            )
        return V3_DRAFT.zarr_format
    there = node_at(path, reader.fetch(keys_and_prefixes(path, None)[0]))
    if there is not None:
        check_writable(there[0], f"'/{path}' in {store!r}")
        return there[0].zarr_format
    entry = reader.node(path, None)
    if entry is None or isinstance(entry.metadata, MetadataError):
        return DEFAULT_FORMAT
    check_writable(FORMATS[entry.metadata.zarr_format], f"'/{path}' in {store!r}")
    return entry.metadata.zarr_format


def _moved_dimensions(store: Store, source: str, dest: str) -> dict[str, list[str]] | None:
    """Return the dimensions of arrays of NCZarr that change when a node moves, by the new paths of the arrays.

    None if it leaves its data set: another one has no such dimensions, so the node is not listed there.

    Raises
    ------
    ArgumentError
        If a dimension of an array would not be in a group above it any more.
    """
    before, after = (data_set(store, path, nczarr.ZARR_FORMAT) for path in (source, dest))
    changed: dict[str, list[str]] = {}
    if before is None or after is None or before.root != after.root:
        return None
    below = f"{source}/"
    names = (key[: key.rfind("/")] for key in store.list_prefix(below) if key.endswith("/.zarray"))
    for name in names:
        entry = reader_of(store).node(name, nczarr.ZARR_FORMAT)
        array = None if entry is None else entry.metadata
        dimensions = nczarr_dimensions(array) if isinstance(array, ArrayMetadata) else None
        if dimensions is None:
            continue
        path = after.path + name[len(source) :]
        moved, lost = nczarr.moved_dimensions(dimensions, path, before.path, after.path)
        if lost is not None:
            raise ArgumentError(
                f"'/{name}' in {store!r} has the dimension {lost!r} of NCZarr, which netCDF-C finds only for arrays in "
                f"{lost.rpartition('/')[0]!r} and below; move it to a place there, or move that group as a whole"
            )
        if moved != dimensions:
            changed[dest + name[len(source) :]] = moved
    return changed


def _set_dimensions(store: Store, path: str, dimensions: list[str]) -> None:
    """Set the paths of the dimensions of an array of NCZarr."""

    def change(metadata: NodeMetadata) -> NodeMetadata:
        return nczarr.with_dimensions(metadata, dimensions) if isinstance(metadata, ArrayMetadata) else metadata

    change_node(store, path, nczarr.ZARR_FORMAT, change, node_type="array")


@dataclass(frozen=True, slots=True)
class _Move:
    """The move of a node.

    Attributes
    ----------
    store, source, dest
        Store, and the paths.
    location
        The destination, where there is nothing.
    documents
        Keys of all documents that the node can have, each with the new one.
    present
        Those that it has; none if it is an implicit group.
    prefixes
        Prefixes of everything below it, each with the new one.
    """

    store: Store
    source: str
    dest: str
    zarr_format: ZarrFormat
    location: Location
    documents: Mapping[str, str]
    present: Collection[str]
    prefixes: Sequence[tuple[str, str]]

    @classmethod
    def planned(cls, store: Store, source: str, dest: str, zarr_format: ZarrFormat) -> _Move:
        """Look at both places; raise if there is no node at one, or something at the other."""
        reader = reader_of(store)
        present = reader.fetch(keys_and_prefixes(source, None)[0])
        if not present and not reader.exists(source, None):
            raise NodeNotFoundError(f"'/{source}' no longer exists in {store!r}; nothing was moved")
        with advising(formats=dict.fromkeys(FORMATS, "move it elsewhere, or copy it: gzarr.copy")):
            location = inspect_location(store, dest, zarr_format)
        check_name(dest, location, zarr_format)
        layout = location.layout
        if layout is not None and layout != (present_layout := reader.layout(source)):
            base = "" if present_layout is None else present_layout.base
            raise ArgumentError(
                f"'/{source}' in {store!r} is in the hierarchy of {V3_DRAFT.title} at '/{base}', and '/{dest}' is not; "
                "copy it (gzarr.copy), and delete it then"
            )
        source_keys, source_prefixes = keys_and_prefixes(source, layout)
        dest_keys, dest_prefixes = keys_and_prefixes(dest, layout)
        if layout is not None:
            present = reader.fetch(source_keys)
        documents = dict(zip(source_keys, dest_keys, strict=True))
        prefixes = list(zip(source_prefixes, dest_prefixes, strict=True))
        made = cls(store, source, dest, zarr_format, location, documents, tuple(present), prefixes)
        made._check_free(location)
        return made

    @property
    def layout(self) -> Layout | None:
        """Layout of the 2022 draft hierarchy that both places are in, if any."""
        return self.location.layout

    def _check_free(self, location: Location) -> None:
        """Refuse a destination where something is."""
        if location.occupied:
            raise ArgumentError(
                f"there is {_description(location.found)} at '/{self.dest}' in {self.store!r} already; delete it first "
                "(del group[...]), or move to another path. If a move that was cut off has left both nodes, look which "
                "one is complete before that"
            )
        for _, prefix in self.prefixes:
            for key in islice(self.store.list_prefix(prefix), 1):
                now = inspect_location(self.store, self.dest, self.zarr_format)
                if now.occupied and not location.occupied:
                    # Another process has just created it.
                    self._check_free(now)
                raise ArgumentError(
                    f"there is no node at '/{self.dest}' in {self.store!r}, but {key!r} would become part of it, which "
                    "a move that was cut off may have left; erase such keys with "
                    f"group.store.erase_prefix({prefix!r}), or move to another path"
                )

    def _taken(self) -> ArgumentError:
        """Return the error for a destination that another process has taken since it was looked at."""
        try:
            self._check_free(inspect_location(self.store, self.dest, self.zarr_format))
        except ArgumentError as error:
            return error
        return ArgumentError(
            f"something was stored at '/{self.dest}' in {self.store!r} meanwhile, and erased again; try again"
        )

    @property
    def _is_one_folder(self) -> bool:
        """Whether all of the node has keys below its path."""
        return self.layout is None and self.location.old_layout is None

    def rename(self) -> bool:
        """Move all in one step, if the store can do that; return whether it was done."""
        if not self._is_one_folder or not isinstance(self.store, LocalStore):
            return False
        ((source, dest),) = self.prefixes
        if self.store.rename_prefix(source, dest):
            return True
        # Another process may have moved the one or made the other.
        self.planned(self.store, self.source, self.dest, self.zarr_format)
        return False

    def copy(self) -> None:
        """Copy all, in local directories aside; if that fails, erase what was copied."""
        stage = stage_at(self.store, self.dest, self.location, overwrite=False)
        if stage is not None:
            with discarding(stage):
                for key, value in self._copied(stage.store):
                    stage.store.set(key, value)
                if not stage.put_in_place(replace=False):
                    raise self._taken()
            return
        made: list[str] = []
        writing: dict[str, Any] = {}
        try:
            for key, value in self._copied(self.store):
                writing = {key: value}
                if not _create(self.store, writing):
                    # Another process writes there, too.
                    writing = {}
                    raise self._taken()
                made.append(key)
        except BaseException:
            # Partial copies would block the next attempt. An interrupt may have come before or after the last write.
            with contextlib.suppress(StoreError):
                _take_back(self.store, writing)
                # No reader sees nodes that have lost chunks.
                self.store.erase_values([key for key in made if is_document(key)])
                self.store.erase_values(made)
            raise

    def _copied(self, target: Store) -> Iterator[tuple[str, Any]]:
        """Yield all new keys and their values: the own documents last, but where documents come first, from the top."""
        first = documents_first(target)
        if first:
            yield from self._own_documents()
            for before, after in self.prefixes:
                below = set(filter(is_document, self.store.list_prefix(before))) - self.documents.keys()
                for key in sorted(below, key=lambda key: key.count("/")):
                    yield after + key[len(before) :], self._document(key)
        for before, after in self.prefixes:
            for key in self.store.list_prefix(before):
                if key in self.documents or (first and is_document(key)):
                    continue
                value: Any = self._document(key) if is_document(key) else self.store.get(key)
                if value is not None:
                    yield after + key[len(before) :], value
        if not first:
            yield from self._own_documents()

    def _own_documents(self) -> Iterator[tuple[str, Any]]:
        """Yield the new keys and values of the node's own documents, the one that makes it last."""
        own = {to: self._document(key) for key, to in self.documents.items() if key in self.present}
        yield from sorted(own.items(), key=lambda one: one[0] in node_keys(self.dest))

    def _document(self, key: str) -> Any:
        """Return a document of the source."""
        value = self.store.get(key)
        if value is None:
            raise NodeNotFoundError(
                f"{key!r} of '/{self.source}' in {self.store!r} was erased or moved by another process; nothing was "
                f"moved to '/{self.dest}'"
            )
        return value
