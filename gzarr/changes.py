"""Changes of a hierarchy: writing, replacing, moving and erasing nodes.

What holds for all of them:

- Everything is checked before anything is written.
- A node appears with its last document and disappears with its first: readers see it whole, or not at all.
- Consolidated metadata of the groups above a node would be wrong once the node has changed, so it is removed before.
  (zarr-python leaves it, and then shows what was.) :func:`gzarr.consolidate` writes it again.
- Documents are changed as they are in the store at that moment, not as they were when a node was opened, and writers of
  one process take turns.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, cast

from .documents import DOCUMENTS, NODE_DOCUMENTS, NodeReader, upward
from .engines.locks import hold
from .errors import ArgumentError, MetadataError, NodeNotFoundError, NodeTypeError, ReadOnlyError, StoreError
from .metadata import v3_draft
from .metadata.json import load_document
from .metadata.model import ArrayMetadata, GroupMetadata
from .metadata.to_documents import array_documents, dump, group_documents
from .metadata.to_v3_draft import NEW_ENTRY_POINT
from .stores.base import ListableStore, WritableStore
from .stores.keys import join_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .metadata.model import NodeMetadata, ZarrFormat
    from .metadata.v3_draft import Layout
    from .stores.base import ReadableStore, Store

# Where an array without a document is looked for.
_PROBED_KEYS: Final = 1000
_INDEX: Final = ".zmetadata"


def writable(store: ReadableStore, what: str) -> Store:
    """Return a store that can be changed.

    Raises
    ------
    ReadOnlyError
        If it cannot; nothing was touched.
    """
    if not isinstance(store, WritableStore) or store.read_only:
        raise ReadOnlyError(f"{what}: {store!r} is read-only; nothing was changed")
    return cast("Store", store)


def reader_of(store: ReadableStore) -> NodeReader:
    """Return a reader of documents that are not going to be decoded by: whatever codecs they name."""
    return NodeReader(store, allow_pickle=True, use_consolidated=False, allow_fallback=True)


# -- documents of nodes that are there ---------------------------------------------------------------------------------


def write_array(store: Store, path: str, metadata: ArrayMetadata) -> None:
    """Write the documents of an array, new or changed.

    Parameters
    ----------
    store
        To write to.
    path
        Of the array, normalised.
    metadata
        Of the array.

    Raises
    ------
    ArgumentError
        If the format has no words for something; nothing was written.
    StoreError
        If the store fails.
    """
    documents = array_documents(metadata, path)
    with hold(store, _keys_above(path)):
        drop_indexes(store, path)
        _set(store, documents)


def change_array(
    store: Store, path: str, zarr_format: ZarrFormat, change: Callable[[ArrayMetadata], ArrayMetadata]
) -> ArrayMetadata:
    """Change the metadata of an array, starting from what the store has; return the new ones.

    Parameters
    ----------
    store, path, zarr_format
        Where the array is, and in which format.
    change
        Gives the new metadata for the present ones. An error of it leaves everything as it was.

    Raises
    ------
    NodeNotFoundError
        If the array is not there any more.
    StoreError, MetadataError
        If the store fails or the documents are malformed.
    """

    def of_array(metadata: NodeMetadata) -> NodeMetadata:
        if not isinstance(metadata, ArrayMetadata):
            raise NodeTypeError(f"'/{path}' in {store!r} has become a group")
        return change(metadata)

    changed = change_node(store, path, zarr_format, of_array)
    assert isinstance(changed, ArrayMetadata)
    return changed


def change_node(
    store: Store, path: str, zarr_format: ZarrFormat | None, change: Callable[[NodeMetadata], NodeMetadata]
) -> NodeMetadata:
    """Change the metadata of an array or group; as :func:`change_array`."""
    with hold(store, _keys_above(path)):
        # A group's own index is part of its document in version 3, and stays right.
        reader = replace(reader_of(store), use_consolidated=None)
        entry = reader.node(path, zarr_format)
        if entry is None:
            raise NodeNotFoundError(f"'/{path}' is not in {store!r} any more; nothing was changed")
        before = entry.metadata
        if isinstance(before, MetadataError):
            raise before
        after = change(before)
        documents = _documents(reader, path, after)
        implicit = isinstance(before, GroupMetadata) and before.implicit
        old = {} if implicit else _documents(reader, path, before)
        changed = {key: value for key, value in documents.items() if old.get(key) != value}
        if changed:
            # Version 2 keeps a group's own attributes in its index, too.
            drop_indexes(store, path, own=after.zarr_format == 2)
            _set(store, changed)
        return after


def _documents(reader: NodeReader, path: str, metadata: NodeMetadata) -> dict[str, bytes]:
    if isinstance(metadata, ArrayMetadata):
        return array_documents(metadata, path)
    layout = reader.layout(path) if metadata.zarr_format == v3_draft.FORMAT else None
    if layout is None:
        return group_documents(metadata, path)
    document = {v3_draft.ENTRY_POINT: layout.document, **metadata.document}
    return group_documents(replace(metadata, document=document), path, hierarchy=layout.base)


def _set(store: Store, documents: dict[str, bytes]) -> None:
    for key, value in documents.items():
        store.set(key, value)


def _keys_above(path: str) -> list[str]:
    """Return the keys that stand for the documents of a node and of the groups above it, for locks."""
    return [join_path(above, "zarr.json") for above in upward(path)]


def drop_indexes(store: Store, path: str, *, own: bool = False) -> None:
    """Remove the consolidated metadata of the groups above a path (of its own group, too), because they will be wrong.

    One store request where there is none.
    """
    groups = upward(path)[0 if own else 1 :]
    if not groups:
        return
    for group, found in zip(groups, reader_of(store).fetch(groups, ["zarr.json", _INDEX]), strict=True):
        if _INDEX in found:
            store.erase(join_path(group, _INDEX))
        if b'"consolidated_metadata"' in found.get("zarr.json", b""):
            key = join_path(group, "zarr.json")
            document = load_document(found["zarr.json"], key)
            if document.pop("consolidated_metadata", None) is not None:
                store.set(key, dump(document))


# -- room for new nodes ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Room:
    """What is where a node is to be made.

    Attributes
    ----------
    occupied
        Whether something is there.
    found
        What it is: a node, or the error of one that cannot be read; None for nothing.
    parents
        Paths of the groups above that have no document, from the root down.
    layout
        Of the hierarchy of a 2022 draft that the new node will be in.
    old_layout
        Of the hierarchy of a 2022 draft that the path is in now.
    """

    occupied: bool
    found: NodeMetadata | MetadataError | None
    parents: tuple[str, ...]
    layout: Layout | None
    old_layout: Layout | None


def look(store: ReadableStore, path: str, zarr_format: ZarrFormat) -> Room:
    """Look at the place of a new node, and at the groups above it.

    Raises
    ------
    NodeTypeError
        If there is an array above.
    ArgumentError
        If the hierarchy is of another format.
    """
    reader = reader_of(store)
    try:
        entry = reader.node(path, None)
        there = None if entry is None else entry.metadata
    except MetadataError as error:
        there = error
    old_layout = reader.layout(path)
    above = list(reversed(upward(path)[1:]))
    parents = []
    for group, found in zip(above, reader.fetch(above, sorted(NODE_DOCUMENTS)) if above else (), strict=True):
        kind = _format_of(group, found)
        if zarr_format == v3_draft.FORMAT and old_layout is not None and not _is_inside(group, old_layout):
            continue
        if kind == "array":
            raise NodeTypeError(f"'/{group}' in {store!r} is an array; nothing can be made below it")
        if kind is None:
            parents.append(group)
        elif kind != zarr_format:
            raise ArgumentError(
                f"'/{path}': the group '/{group}' is of Zarr format {kind!r}, and a hierarchy has one; "
                f"pass zarr_format={kind!r}"
            )
    if zarr_format == 1:
        parents = []
    if zarr_format != v3_draft.FORMAT:
        return Room(there is not None, there, tuple(parents), None, old_layout)
    layout = old_layout or v3_draft.parse_entry_point(NEW_ENTRY_POINT)
    inside = [group for group in above if _is_inside(group, layout)]
    return Room(there is not None, there, _draft_parents(store, inside, layout), layout, old_layout)


def _format_of(path: str, found: dict[str, bytes]) -> ZarrFormat | str | None:
    """Return the format of the group that has some documents, ``"array"`` for an array, or None."""
    if "zarr.json" in found:
        document = load_document(found["zarr.json"], join_path(path, "zarr.json"))
        if v3_draft.is_entry_point(document):
            return v3_draft.FORMAT
        return "array" if document.get("node_type") == "array" else 3
    return "array" if ".zarray" in found else 2 if ".zgroup" in found else None


def _is_inside(path: str, layout: Layout) -> bool:
    return not layout.base or path == layout.base or path.startswith(f"{layout.base}/")


def _draft_parents(store: ReadableStore, groups: Iterable[str], layout: Layout) -> tuple[str, ...]:
    missing = []
    for group in groups:
        below = layout.relative(group)
        if store.get(layout.array_key(below)) is not None:
            raise NodeTypeError(f"'/{group}' in {store!r} is an array; nothing can be made below it")
        if store.get(layout.group_key(below)) is None:
            missing.append(group)
    return tuple(missing)


def check_free(store: ReadableStore, path: str, room: Room, zarr_format: ZarrFormat, *, group: bool) -> None:
    """Refuse a place that is taken. A group without documents may become one that has some.

    Raises
    ------
    ArgumentError
        Naming the node.
    """
    if not room.occupied:
        return
    found = room.found
    implicit = isinstance(found, GroupMetadata) and found.implicit
    if group and implicit and found.zarr_format == zarr_format:  # type: ignore[union-attr]
        return
    what = "a group, with nodes below it," if implicit else "a group"
    if isinstance(found, ArrayMetadata):
        what = "an array"
    elif isinstance(found, MetadataError):
        what = f"a node that cannot be read ({found})"
    raise ArgumentError(
        f"there is {what} at '/{path}' in {store!r} already; pass overwrite=True to erase it with all that is below it"
    )


def stray_chunks(store: ReadableStore, path: str, metadata: ArrayMetadata) -> list[str]:
    """Return some keys that would be chunks of a new array: what is left of one whose documents are gone."""
    if not isinstance(store, ListableStore):
        return []
    encoding, folder = metadata.chunk_key_encoding, metadata.key_prefix(path)
    if not metadata.shape:
        key = folder + encoding.encode(())
        return [key] if store.get(key) is not None else []
    number = f"[0-9]+(?:{re.escape(encoding.separator)}[0-9]+){{{metadata.ndim - 1}}}"
    pattern = re.compile(re.escape(folder + encoding.prefix) + number)
    inside = folder + (encoding.prefix if encoding.prefix.endswith("/") else "")
    return [key for key in islice(store.list_prefix(inside), _PROBED_KEYS) if pattern.fullmatch(key)]


def place_array(store: Store, path: str, metadata: ArrayMetadata, room: Room, *, overwrite: bool) -> None:
    """Write a new array, and explicit groups above it; first erase what is there if ``overwrite``.

    Raises
    ------
    ArgumentError
        If something is there, and not ``overwrite``; nothing was changed.
    """
    if not overwrite:
        check_free(store, path, room, metadata.zarr_format, group=False)
    documents = array_documents(metadata, path)
    if not room.occupied and (strays := stray_chunks(store, path, metadata)):
        if not overwrite:
            raise ArgumentError(
                f"there is no array at '/{path}' in {store!r}, but {strays[0]!r} would be a chunk of it; pass "
                "overwrite=True to erase such chunks"
            )
        while strays:
            store.erase_values(strays)
            strays = stray_chunks(store, path, metadata)
    _place(store, path, documents, room, metadata.zarr_format, overwrite=overwrite)


def place_group(store: Store, path: str, metadata: GroupMetadata, room: Room, *, overwrite: bool) -> None:
    """Write a new group; as :func:`place_array`. A group without documents keeps what is below it."""
    if not overwrite:
        check_free(store, path, room, metadata.zarr_format, group=True)
    hierarchy = "" if room.layout is None else room.layout.base
    documents = group_documents(metadata, path, hierarchy=hierarchy)
    _place(store, path, documents, room, metadata.zarr_format, overwrite=overwrite)


def _place(
    store: Store, path: str, documents: dict[str, bytes], room: Room, zarr_format: ZarrFormat, *, overwrite: bool
) -> None:
    with hold(store, _keys_above(path)):
        drop_indexes(store, path)
        if overwrite and room.occupied:
            erase_node(store, path, room.old_layout)
        _write_parents(store, room, zarr_format)
        _set(store, documents)


def _write_parents(store: Store, room: Room, zarr_format: ZarrFormat) -> None:
    document = {} if room.layout is None else {v3_draft.ENTRY_POINT: room.layout.document}
    hierarchy = "" if room.layout is None else room.layout.base
    for parent in room.parents:
        metadata = GroupMetadata(zarr_format=zarr_format, document=document)
        _set(store, group_documents(metadata, parent, hierarchy=hierarchy))


# -- erasing and moving ------------------------------------------------------------------------------------------------


def delete_node(store: Store, path: str) -> None:
    """Erase a node with all that is below it."""
    layout = reader_of(store).layout(path)
    with hold(store, _keys_above(path)):
        drop_indexes(store, path)
        erase_node(store, path, layout)


def erase_node(store: Store, path: str, layout: Layout | None) -> None:
    """Erase documents first, so that nobody reads an array whose chunks are half gone; then all that is below."""
    keys, prefixes = _places(path, layout)
    store.erase_values(keys)
    for prefix in prefixes:
        store.erase_prefix(prefix)


def _places(path: str, layout: Layout | None) -> tuple[list[str], list[str]]:
    """Return the keys of the documents that a node can have, and the prefixes of all that is below it."""
    if layout is None:
        return [join_path(path, name) for name in sorted(DOCUMENTS)], [f"{path}/" if path else ""]
    below = layout.relative(path)
    keys = [layout.array_key(below), layout.group_key(below)]
    prefixes = [layout.below(below), layout.chunk_prefix(below)]
    if not below:
        keys.append(join_path(layout.base, v3_draft.ENTRY_POINT))
        prefixes = [join_path(layout.base, "meta/"), join_path(layout.base, "data/")]
    return keys, prefixes


def move_node(store: Store, source: str, destination: str, zarr_format: ZarrFormat) -> None:
    """Move a node with all that is below it. Values are copied, one by one, and then erased.

    Raises
    ------
    ArgumentError
        If the destination is taken, or lies in the source; nothing was changed.
    StoreError
        If the store fails, or cannot list. The source is erased when all is at the destination, not before.
    """
    if not isinstance(store, ListableStore):
        raise StoreError(f"{store!r} cannot list its keys, so the node '/{source}' cannot be moved")
    if destination == source or destination.startswith(f"{source}/"):
        raise ArgumentError(f"'/{source}' cannot be moved into itself, to '/{destination}'")
    room = look(store, destination, zarr_format)
    check_free(store, destination, room, zarr_format, group=False)
    layout = room.layout
    sources, source_prefixes = _places(source, layout)
    destinations, destination_prefixes = _places(destination, layout)
    with hold(store, [*_keys_above(source), *_keys_above(destination)]):
        drop_indexes(store, source)
        drop_indexes(store, destination)
        _write_parents(store, room, zarr_format)
        documents = dict(zip(sources, destinations, strict=True))
        for before, after in zip(source_prefixes, destination_prefixes, strict=True):
            for key in store.list_prefix(before):
                if key not in documents:
                    _copy(store, key, after + key[len(before) :])
        for key, to in documents.items():
            _copy(store, key, to)
        erase_node(store, source, layout)


def _copy(store: Store, key: str, to: str) -> None:
    value: Any = store.get(key)
    if value is not None:
        store.set(to, value)
