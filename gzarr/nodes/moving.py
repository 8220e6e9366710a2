"""Moving nodes: in a local directory in one step, and otherwise by copying and erasing them."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from ..errors import ArgumentError, MetadataError, NodeNotFoundError, StoreError
from ..metadata import nczarr
from ..metadata.conventions import nczarr_dimensions
from ..metadata.formats import (
    DEFAULT_FORMAT,
    FORMATS,
    V3_DRAFT,
    check_writable,
    keys_and_prefixes,
    node_at,
    node_keys,
)
from ..metadata.model import ArrayMetadata
from ..stores.base import is_listable
from ..stores.local import LocalStore
from ..stores.locks import claim, hold_node, is_linked, is_within
from .change import (
    change_node,
    data_set,
    documents_first,
    drop_indexes,
    hold_keys_above,
    list_member,
    look_above,
    reader_of,
)
from .create import create_documents, discarding, stage_at, take_back, write_parents
from .documents import from_the_top, is_document
from .enclosing import enclosing_groups
from .erasing import check_erasable, erase_node
from .location import advising, check_name, description, inspect_location

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from ..metadata.layout import Layout
    from ..metadata.model import NodeMetadata, ZarrFormat
    from ..stores.base import Store
    from .location import Location


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
        write_parents(store, dest, move.location, zarr_format)
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
    """Set the paths of the dimensions of an array of NCZarr, in a group whose documents are held."""

    def change(metadata: NodeMetadata) -> NodeMetadata:
        return nczarr.with_dimensions(metadata, dimensions) if isinstance(metadata, ArrayMetadata) else metadata

    change_node(store, path, nczarr.ZARR_FORMAT, change, node_type="array", lock=None)


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
                f"there is {description(location.found)} at '/{self.dest}' in {self.store!r} already; delete it first "
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
                if not create_documents(self.store, writing):
                    # Another process writes there, too.
                    writing = {}
                    raise self._taken()
                made.append(key)
        except BaseException:
            # Partial copies would block the next attempt. An interrupt may have come before or after the last write.
            with contextlib.suppress(StoreError):
                take_back(self.store, writing)
                # No reader sees nodes that have lost chunks.
                self.store.erase_values(from_the_top(filter(is_document, made)))
                # Those of drafts were written last.
                self.store.erase_values(reversed(made))
            raise

    def _copied(self, target: Store) -> Iterator[tuple[str, Any]]:
        """Yield all new keys and their values: documents last, up to the top, or from there, where they come first."""
        first = documents_first(target)
        if first:
            yield from self._own_documents()
            for before, after in self.prefixes:
                below = set(filter(is_document, self.store.list_prefix(before))) - self.documents.keys()
                for key in from_the_top(below):
                    yield after + key[len(before) :], self._document(key)
        # The first prefix of a draft is that of documents.
        for before, after in reversed(self.prefixes):
            documents: list[str] = []
            for key in self.store.list_prefix(before):
                if key in self.documents:
                    continue
                if is_document(key):
                    documents.append(key)
                elif (value := self.store.get(key)) is not None:
                    yield after + key[len(before) :], value
            if not first:
                for key in reversed(from_the_top(documents)):
                    yield after + key[len(before) :], self._document(key)
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
