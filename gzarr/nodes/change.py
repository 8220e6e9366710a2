"""Changes to existing nodes: writing their documents.

Rules for all changes, including creating, moving and erasing nodes (:mod:`gzarr.nodes.create`,
:mod:`gzarr.nodes.moving`, :mod:`gzarr.nodes.erasing`):

- Everything is checked before anything is written.
- A node appears with its last document and disappears with its first: readers see all of it or nothing. (Stores
  that refuse chunks without an array get the documents first: :func:`documents_first`.)
- Consolidated metadata of the groups above a node is removed before the node changes, because it would be outdated.
  (zarr-python keeps it, and then shows the old state.) :func:`gzarr.consolidate_metadata` writes it again. In
  directories, this includes groups that the store's root lies in (:mod:`gzarr.nodes.enclosing`).
- Changes start from the documents currently in the store, not from those read when a node was opened, and writers take
  turns (:func:`hold_documents`): threads always, processes that all ask for it by file locks, where the store has
  them. In object stores, a document is only replaced if nobody has changed it since it was read, and otherwise read
  again (:func:`replace_documents`). So whoever changes a document depending on its content does it here.
"""

from __future__ import annotations

import contextlib
import errno
import random
import threading
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, cast

from ..errors import GzarrError, MetadataError, NodeNotFoundError, NodeTypeError, ReadOnlyError, StoreError
from ..metadata import nczarr
from ..metadata.conventions import nczarr_dimensions
from ..metadata.formats import FORMATS, consolidated_keys, node_at, node_keys, without_consolidated
from ..metadata.model import ArrayMetadata, GroupMetadata
from ..metadata.to_documents import array_documents, dump, group_documents
from ..stores.base import LockingStore, WritableStore
from ..stores.file_locks import DOCUMENTS
from ..stores.keys import join_path
from ..stores.locks import begin, between_processes, has_begun, hold, innermost
from ..warned import warn
from .documents import Documents, is_conditional, upward
from .enclosing import enclosing_groups
from .folders import check_hides_nothing
from .reader import NodeReader

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

    from ..metadata.model import NodeMetadata, ZarrFormat
    from ..stores.base import ReadableStore, Store
    from .enclosing import Enclosing
    from .entries import Entry

# The store that the present thread is just changing, with the groups that its root lies in.
_own = threading.local()
# Times that others may change a document between reading and replacing it, and the longest pause in between.
_MOST_ATTEMPTS: Final = 200
_LONGEST_PAUSE_S: Final = 0.5
# Errors of a file that this user may not change.
_REFUSED: Final = (errno.EACCES, errno.EPERM, errno.EROFS)


def writable(store: ReadableStore, what: str) -> Store:
    """Return ``store`` as a writable store; ``what`` starts the error message.

    Raises
    ------
    ReadOnlyError
        If the store is read-only; nothing was touched.
    """
    if not isinstance(store, WritableStore) or store.read_only:
        raise ReadOnlyError(f"{what}: {store!r} is read-only; nothing was changed")
    return cast("Store", store)


def documents_first(store: object) -> bool:
    """Return whether a store takes no chunk before the document of its array, nor outside the shape that this says.

    There, an array is created and grows with its document, and loses chunks before its document says so. Readers do not
    see that, because such a store commits both together (:attr:`gzarr.stores.ZarrStore.documents_first`).
    """
    # A cache passes changes on to its store.
    return bool(getattr(innermost(store), "documents_first", False))


def reader_of(store: ReadableStore) -> NodeReader:
    """Return a reader that accepts documents with any codecs, since no chunk will be decoded with them."""
    return NodeReader(store, allow_pickle=True, use_consolidated=False, allow_fallback=True)


@contextlib.contextmanager
def hold_documents(store: ReadableStore, path: str, *, lock: bool = False) -> Iterator[None]:
    """Keep other threads from changing the documents of a node and of the groups above it.

    The groups are included because creating or moving a node depends on them, and may change them.

    Parameters
    ----------
    store, path
        Store and path of the node.
    lock
        Whether to exclude other processes that also ask for it, by file locks. Stores in which documents are replaced
        on conditions need none.

    Raises
    ------
    ArgumentError
        If the store has neither locks between processes nor such conditions.
    """
    enclosing = enclosing_groups(store)
    with hold_keys_above(store, path, enclosing=enclosing), contextlib.ExitStack() as held:
        held.enter_context(_known_enclosing(store, enclosing))
        if lock and not is_conditional(store):
            # From the root down, as everyone does.
            if enclosing is not None:
                _lock_if_possible(enclosing.store, enclosing.groups, held)
            for above in reversed(upward(path)):
                held.enter_context(_document_lock(store, above))
        yield


@contextlib.contextmanager
def _known_enclosing(store: ReadableStore, enclosing: Enclosing | None) -> Iterator[None]:
    """Spare the present thread to look for them again within one change."""
    before = getattr(_own, "enclosing", None)
    _own.enclosing = store, enclosing
    try:
        yield
    finally:
        _own.enclosing = before


def hold_keys_above(
    store: ReadableStore, *paths: str, enclosing: Enclosing | None
) -> contextlib.AbstractContextManager[None]:
    """Exclude other threads from the documents of nodes, and of all groups above them."""
    outer = [] if enclosing is None else [(enclosing.store, list(map(_document_key, enclosing.groups)))]
    return hold(store, [_document_key(above) for path in paths for above in upward(path)], *outer, documents=True)


def _document_lock(store: Any, path: str) -> contextlib.AbstractContextManager[None]:
    return between_processes(store, [_document_key(path)], f"{path}/" if path else "")


# -- documents of existing nodes ---------------------------------------------------------------------------------------


def write_array(store: Store, path: str, metadata: ArrayMetadata) -> None:
    """Write the documents of an array that exists, or whose chunks have just been written, or will be.

    Parameters
    ----------
    store
        Store to write to.
    path
        Normalised path of the array.
    metadata
        Metadata of the array.

    Raises
    ------
    ArgumentError
        If the format cannot represent the metadata; nothing was written.
    NodeTypeError
        If somebody else has created a group at the path; nothing was written.
    StoreError
        If the store fails.
    """
    documents = array_documents(metadata, path)
    with hold_documents(store, path):
        _, present = node_at(path, reader_of(store).fetch(node_keys(path))) or (None, None)
        # Documents of a draft are elsewhere: at the path there may be the entry point of its hierarchy.
        if present == "group" and not FORMATS[metadata.zarr_format].has_entry_point:
            raise NodeTypeError(f"'/{path}' in {store!r} has become a group; the array was not written")
        drop_indexes(store, path)
        set_documents(store, documents)


def change_array(
    store: Store,
    path: str,
    zarr_format: ZarrFormat,
    change: Callable[[ArrayMetadata], ArrayMetadata],
    done: Callable[[ArrayMetadata], None] | None = None,
    *,
    lock: bool = False,
    documents: Documents | None = None,
) -> ArrayMetadata:
    """Change the metadata of an array, starting from its current documents; return the new metadata.

    In NCZarr, dimensions follow the shape; the caller is warned if they cannot.

    Parameters
    ----------
    store, path, zarr_format
        Store, path and format of the array.
    change
        Function from the current metadata to the new metadata, or to the same object if nothing is to be written. If it
        raises, nothing is changed. It is called again if another process has changed the documents meanwhile.
    done
        Callback that gets the new metadata after it is written, or what is there if there is nothing to write, while
        the documents are still held: so the changes of several threads reach an object in the same order as the store.
    lock
        As for :func:`hold_documents`.
    documents
        What :func:`look` has just seen, if it is still to be relied on (:meth:`Documents.can_be_relied_on`).

    Raises
    ------
    NodeNotFoundError
        If the array no longer exists.
    StoreError, MetadataError
        If the store fails or the documents are malformed.
    """
    before: Any = None

    def of_array(metadata: NodeMetadata) -> NodeMetadata:
        nonlocal before
        if not isinstance(metadata, ArrayMetadata):
            raise NodeTypeError(f"'/{path}' in {store!r} has become a group")
        before = metadata
        return change(metadata)

    changed = change_node(store, path, zarr_format, of_array, done, node_type="array", lock=lock, documents=documents)
    assert isinstance(changed, ArrayMetadata)
    if before.shape != changed.shape:
        _keep_lengths(store, path, before, changed, lock=lock)
    return changed


def _keep_lengths(store: Store, path: str, before: ArrayMetadata, after: ArrayMetadata, *, lock: bool) -> None:
    """Give dimensions of an NCZarr data set the new lengths of an array, where the root of the data set is found.

    The array has changed already, so its caller is warned of errors: as one raised, they would say that it has not.
    """
    dimensions = nczarr_dimensions(after)
    if dimensions is None or len(dimensions) != after.ndim:
        return
    lengths = {name: new for name, old, new in zip(dimensions, before.shape, after.shape, strict=True) if old != new}
    try:
        _set_lengths(store, path, after.zarr_format, lengths, lock=lock)
    except GzarrError as error:
        warn(
            f"the shape of '/{path}' in {store!r} is {after.shape} now, and its dimensions in the NCZarr data set have "
            f"other lengths, which netCDF-C refuses: {error}",
            UserWarning,
        )


def _set_lengths(store: Store, path: str, zarr_format: ZarrFormat, lengths: dict[str, int], *, lock: bool) -> None:
    """Set the lengths of dimensions, by path in the NCZarr data set that a node is in, if its root is found."""
    found = data_set(store, path, zarr_format)
    if found is None:
        return
    for dimension, length in lengths.items():
        group, _, name = dimension.strip("/").rpartition("/")
        change = partial(nczarr.with_length, name=name, length=length)
        _change_nczarr(found.store, join_path(found.root, group), zarr_format, change, lock=lock)


class DataSet(NamedTuple):
    """The data set of NCZarr that a node is in.

    Attributes
    ----------
    store, root
        Store, and the path of its root in it. The root may be above that of the node's own store.
    path
        Path of the node in the data set.
    """

    store: Store
    root: str
    path: str


def data_set(store: Store, path: str, zarr_format: ZarrFormat) -> DataSet | None:
    """Return the data set of NCZarr that a node is in, if its root is found above the node."""
    outer = enclosing_groups(store)
    places = [(store, group, path) for group in upward(path)[1:]]
    if outer is not None:
        places += [(outer.store, group, join_path(outer.path, path)) for group in outer.groups]
    for place, root, whole in places:
        entry = reader_of(place).node(root, zarr_format)
        if entry is not None and isinstance(entry.metadata, GroupMetadata) and nczarr.is_root(entry.metadata):
            return DataSet(place, root, whole[len(root) :].strip("/"))
    return None


def _change_nczarr(
    store: Store,
    path: str,
    zarr_format: ZarrFormat,
    change: Callable[[GroupMetadata], GroupMetadata],
    *,
    lock: bool = False,
) -> None:
    """Change NCZarr's members of a group."""

    def of_group(metadata: NodeMetadata) -> NodeMetadata:
        return change(metadata) if isinstance(metadata, GroupMetadata) else metadata

    change_node(store, path, zarr_format, of_group, node_type="group", lock=lock)


def look_above(store: Store, path: str, documents: Documents | None = None) -> tuple[Documents, bool]:
    """Look at what a node that goes leaves in the groups above: consolidated metadata, and members of NCZarr.

    Returns
    -------
    The documents, by one request, added to ``documents`` if given, and whether the group of the node may have members
    of NCZarr.
    """
    documents = Documents(store) if documents is None else documents
    above = upward(path)[1:]
    if not above:
        return documents, False
    keys = [key for group in above for key in consolidated_keys(group)]
    found = documents.fetch([*keys, *nczarr.keys_of_group(above[0])])
    return documents, nczarr.may_be_nczarr(above[0], found)


def list_member(store: Store, path: str, listed: str | None) -> str | None:
    """Add a node to a list of its group in NCZarr, or for None, remove it from any; return the list that had it.

    Nothing is done in what cannot be read as a group, neither by others: the node can be erased all the same.
    """
    parent, _, name = path.rpartition("/")
    before: str | None = None

    def change(group: GroupMetadata) -> GroupMetadata:
        nonlocal before
        before = nczarr.list_with(group, name)
        return nczarr.with_member(group, name, listed)

    with contextlib.suppress(NodeNotFoundError, MetadataError):
        _change_nczarr(store, parent, nczarr.ZARR_FORMAT, change)
    return before


def change_node(
    store: Store,
    path: str,
    zarr_format: ZarrFormat | None,
    change: Callable[[NodeMetadata], NodeMetadata],
    done: Callable[[Any], None] | None = None,
    *,
    node_type: Literal["array", "group"],
    lock: bool | None = False,
    documents: Documents | None = None,
) -> NodeMetadata:
    """Change the metadata of an array or group, according to ``node_type``; as :func:`change_array`.

    ``lock`` is None where the caller holds the documents of all groups above the node: then nobody else changes those
    of the node, and who holds some is not to ask for more (:func:`gzarr.stores.locks.hold`).
    """
    held = contextlib.nullcontext() if lock is None else hold_documents(store, path, lock=lock)
    with held, begin(store, path, "documents"):
        for attempt in attempts(store, path):
            if attempt or documents is None or not documents.can_be_relied_on():
                documents = Documents(store)
            reader, entry = look(documents, path, zarr_format, node_type)
            if entry is None:
                raise NodeNotFoundError(f"'/{path}' no longer exists in {store!r}; nothing was changed")
            before = entry.metadata
            if isinstance(before, MetadataError):
                raise before
            after = change(before)
            changed = {}
            # Not even an implicit group is written for a change that finds nothing to do.
            if after is not before:
                if isinstance(before, GroupMetadata) and before.implicit:
                    check_hides_nothing(store, path, FORMATS[after.zarr_format])
                new = _documents(reader, path, after)
                implicit = isinstance(before, GroupMetadata) and before.implicit
                old = {} if implicit else _documents(reader, path, before)
                changed = {key: value for key, value in new.items() if old.get(key) != value}
                if old:
                    # The last one makes a node. Of one that exists it comes first: what is stored must not depend on
                    # new attributes (element sizes of version 2) before it says so.
                    changed = dict(reversed(changed.items()))
            if changed:
                if not attempt:
                    own = FORMATS[after.zarr_format].consolidates_own
                    drop_indexes(store, path, own=own, zarr_format=after.zarr_format, documents=documents)
                if not replace_documents(store, changed, documents.tokens):
                    continue
            if done is not None:
                done(after)
            return after
    raise AssertionError("attempts end with an error")


def look(
    documents: Documents, path: str, zarr_format: ZarrFormat | None, node_type: Literal["array", "group"]
) -> tuple[NodeReader, Entry | None]:
    """Read a node that is about to change, together with the consolidated metadata above that has it: one request.

    Parameters
    ----------
    documents
        What was looked at; documents that are not there are added.
    path, zarr_format
        Path of the node, and its format if known.
    node_type
        What it was when it was opened.

    Returns
    -------
    Reader with the documents, and the node, or None if there is none any more.
    """
    # In version 3, a group's own consolidated metadata is part of its document, and stays valid.
    reader = replace(reader_of(documents.store), use_consolidated=None, documents=documents)
    if zarr_format is not None:
        format = FORMATS[zarr_format]
        above = [key for group in upward(path)[1:] for key in consolidated_keys(group, zarr_format)]
        found = documents.fetch([*format.keys_of(path, node_type), *above])
        if format.node_type(path, found) == node_type:
            # What a node of the other type would have need not be looked for.
            documents.note_absent(format.keys(path))
    return reader, reader.node(path, zarr_format)


def attempts(store: Store, path: str) -> Iterator[int]:
    """Yield the numbers of attempts to change documents that others may change meanwhile, with pauses in between.

    Raises
    ------
    StoreError
        If too many attempts were in vain.
    """
    for attempt in range(_MOST_ATTEMPTS):
        if attempt:
            time.sleep(random.uniform(0, min(0.005 * 2 ** min(attempt, 10), _LONGEST_PAUSE_S)))
        yield attempt
    raise StoreError(
        f"the documents of '/{path}' in {store!r} were changed by other processes each of {_MOST_ATTEMPTS} times "
        "between reading and replacing them; nothing was changed"
    )


def replace_documents(store: Store, documents: dict[str, bytes], tokens: dict[str, Hashable | None]) -> bool:
    """Write documents, given by key, in order, unless others have changed one since it was read.

    Parameters
    ----------
    store, documents
        Store, and documents by key.
    tokens
        Tokens of the documents, from when they were read; one that was not read is written in any case.

    Returns
    -------
    Whether all were written. If not, those before the one that was changed were.
    """
    conditional = is_conditional(store)
    for key, value in documents.items():
        if conditional and key in tokens:
            if not store.replace(key, value, tokens[key]):  # type: ignore[attr-defined]
                return False
        else:
            store.set(key, value)
    return True


def _documents(reader: NodeReader, path: str, metadata: NodeMetadata) -> dict[str, bytes]:
    if isinstance(metadata, ArrayMetadata):
        return array_documents(metadata, path)
    layout = reader.layout(path) if FORMATS[metadata.zarr_format].has_entry_point else None
    return group_documents(metadata, path, layout)


def set_documents(store: Store, documents: dict[str, bytes]) -> None:
    """Write documents, given by key, in order."""
    for key, value in documents.items():
        store.set(key, value)


def _document_key(path: str) -> str:
    return join_path(path, DOCUMENTS)


def drop_indexes(
    store: Store,
    path: str,
    *,
    own: bool = False,
    zarr_format: ZarrFormat | None = None,
    documents: Documents | None = None,
    enclosing: bool = True,
) -> None:
    """Remove the consolidated metadata of the groups above a path, which will be outdated.

    Parameters
    ----------
    store, path
        Store and path.
    own
        Whether to remove also that of the group at the path.
    zarr_format
        Format of the nodes that change: consolidated metadata of a format have nodes of that format only. None for all.
    documents
        Documents that the caller has just looked at; without those needed here, this costs one store request.
    enclosing
        Whether to remove those of groups that the store's root lies in, too.
    """
    outer = None
    if enclosing:
        known = getattr(_own, "enclosing", None)
        outer = known[1] if known is not None and known[0] is store else enclosing_groups(store)
    if outer is not None:
        try:
            _drop(outer.store, outer.groups, zarr_format, None)
        except StoreError as error:
            if error.errno not in _REFUSED:
                raise
            # Who may change the node need not be able to change what is above it.
            warn(
                f"consolidated metadata above {store!r} may now be outdated, for '/{path}' in it changes, and those of "
                f"the groups in {outer.store!r} cannot be removed: {error}; ask their owner to run "
                "gzarr.consolidate_metadata",
                UserWarning,
            )
    groups = upward(path)[0 if own else 1 :]
    if groups:
        _drop(store, groups, zarr_format, documents)


def _drop(store: Store, groups: list[str], zarr_format: ZarrFormat | None, documents: Documents | None) -> None:
    """Remove the consolidated metadata of some groups."""
    with contextlib.ExitStack() as held:
        for attempt in attempts(store, groups[0]):
            if attempt or documents is None:
                documents = Documents(store)
            changes = _without_indexes(documents, groups, zarr_format)
            if changes and not attempt:
                # A group's own document may be changed by others, who hold this lock, and by handlers of signals.
                if isinstance(store, LockingStore):
                    _lock_if_possible(store, groups, held)
                _begin_indexes(store, changes, held)
                if not is_conditional(store):
                    documents = Documents(store)
                    changes = _without_indexes(documents, groups, zarr_format)
            for key in [key for key, document in changes.items() if document is None]:
                store.erase(key)
            changed = {key: dump(document) for key, document in changes.items() if document is not None}
            if replace_documents(store, changed, documents.tokens):
                return


def _without_indexes(documents: Documents, groups: list[str], zarr_format: ZarrFormat | None) -> dict[str, Any]:
    """Return what becomes of documents with consolidated metadata of some groups; None for those to be erased."""
    found = documents.fetch([key for group in groups for key in consolidated_keys(group, zarr_format)])
    return {key: document for group in groups for key, document in without_consolidated(group, found).items()}


def _begin_indexes(store: Store, changes: dict[str, Any], held: contextlib.ExitStack) -> None:
    """Refuse other changes of this thread to documents of groups that lose consolidated metadata, but the same one."""
    for key, document in changes.items():
        group = key.rpartition("/")[0]
        if document is not None and not has_begun(store, group, "consolidated metadata"):
            held.enter_context(begin(store, group, "consolidated metadata"))
            held.enter_context(begin(store, group, "documents"))


def _lock_if_possible(store: Store, groups: list[str], held: contextlib.ExitStack) -> None:
    """Lock the documents of some groups against other processes, where the file system has locks."""
    with contextlib.suppress(StoreError):
        for group in reversed(groups):
            held.enter_context(_document_lock(store, group))
