"""Locations of new nodes: what is there, and the groups above it."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

from ..errors import ArgumentError, MetadataError, NodeTypeError, StoreError
from ..metadata.formats import FORMATS, check_writable, consolidated_keys, node_at, node_keys
from ..metadata.model import ArrayMetadata, GroupMetadata
from ..stores.base import SelectiveStore, is_listable
from .change import reader_of
from .documents import Documents, upward
from .folders import check_hides_nothing, hides_nodes
from .surroundings import look_around

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ..metadata.format import Format
    from ..metadata.layout import Layout
    from ..metadata.model import NodeMetadata, ZarrFormat
    from ..stores.base import ReadableStore

#: How errors here, and those of stores, say that what is in the way can be replaced.
ADVICE: Final = "pass overwrite=True"


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
def advising(instead: str = ADVICE, *, formats: Mapping[ZarrFormat, str] | None = None) -> Iterator[None]:
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
        text = str(message).replace(ADVICE, instead)
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
    parents = groups_to_write(documents, path, zarr_format, old_layout, layout)
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


def groups_to_write(
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
    what = description(found)
    if overwrite:
        raise ArgumentError(
            f"there is {what} at '/{path}' in {store!r} already, which another writer was creating at the same time; "
            "try again"
        )
    raise ArgumentError(
        f"there is {what} at '/{path}' in {store!r} already; {ADVICE} to erase it with everything below it"
    )


def description(found: NodeMetadata | MetadataError | None) -> str:
    """Return what is at an occupied location, for messages."""
    if isinstance(found, ArrayMetadata):
        return "an array"
    if isinstance(found, MetadataError):
        return f"a node that cannot be read ({found})"
    return "a group, with nodes below it," if found is not None and found.implicit else "a group"


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
