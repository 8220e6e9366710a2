"""New nodes: writing their documents.

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
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from ..errors import ArgumentError, StoreError
from ..metadata import nczarr
from ..metadata.formats import FORMATS, node_at, node_keys
from ..metadata.model import ArrayMetadata, GroupMetadata
from ..metadata.to_documents import array_documents, group_documents
from ..stores import io_threads
from ..stores.base import ExclusiveStore, RemoteValues, StagingStore, is_listable, knows_of
from ..stores.keys import is_document
from ..stores.locks import claim
from .change import drop_indexes, list_member, look_above, set_documents
from .documents import Documents, is_conditional
from .erasing import check_erasable, erase_node
from .location import ADVICE, Location, check_free, groups_to_write, inspect_location

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import TypeGuard

    from ..metadata.model import ZarrFormat
    from ..stores.base import ReadableStore, Stage, Store

# Limit of the keys inspected in the search for stray chunks.
_PROBED_KEYS: Final = 1000


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
                f"{ADVICE} to erase such chunks"
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
    write_parents(store, path, location, metadata.zarr_format)
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
    if not write_parents(store, path, location, zarr_format, documents, replaces=replaces):
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
    write_parents(store, path, location, zarr_format)
    return stage.put_in_place(replace=overwrite and location.occupied)


def write_parents(
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
        parents = groups_to_write(Documents(store), path, zarr_format, location.old_layout, location.layout)
    _erase_left_above(store, parents, location.documents, zarr_format)
    group = GroupMetadata(zarr_format=zarr_format)
    writes = [partial(create_documents, store, group_documents(group, parent, location.layout)) for parent in parents]
    *others, (key, value) = (documents or {"": b""}).items()
    own = partial(create_documents, store, {key: value}, replace=replaces)
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
            groups_to_write(Documents(store), path, zarr_format, location.old_layout, location.layout)
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
                take_back(store, made)
        raise
    if not is_written:
        take_back(store, made)
    return is_written


def _create_all(store: Store, documents: dict[str, bytes], made: dict[str, bytes], *, replace: bool) -> bool:
    """Write documents, and note them in ``made``; return False if another process has created one of them."""
    for key, value in documents.items():
        if not create_documents(store, {key: value}, replace=replace):
            return False
        made[key] = value
    return True


def take_back(store: Store, made: Mapping[str, Any]) -> None:
    """Erase values that this call has written, unless others have changed them."""
    store.erase_values([key for key, value in made.items() if store.get(key) == value])


def create_documents(store: Store, documents: dict[str, bytes], *, replace: bool = False) -> bool:
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
