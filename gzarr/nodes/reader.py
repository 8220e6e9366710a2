"""Finding nodes by their metadata documents, with as few store requests as possible.

A request is one call of a store method. All possible documents of a node of version 2 or 3 are requested at once, so
a node with a document costs one request. If there is none, one listing tells whether the path is an implicit group:
a group without a document, implied by the nodes below it. (The drafts of version 3 define implicit groups; directories
around version 2 arrays look the same.)

N5 has one document, which is requested with the others, or last where each request takes long.

Only then are older formats looked for, in one more request: the documents of a version 1 array, and the entry points
of the 2022 drafts, which may be at any path above (:mod:`gzarr.nodes.hierarchies`). Once the entry point is known, each
node of a draft costs one request.
"""

from __future__ import annotations

import difflib
import errno
import re
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

from ..errors import ArgumentError, MetadataError, StoreError
from ..metadata.formats import V3_DRAFT, formats_of
from ..metadata.model import GroupMetadata
from ..stores.base import RemoteValues, is_listable
from ..stores.keys import MAX_DEPTH, is_node_name
from .documents import NODES_PER_REQUEST, fetch, is_too_long, upward
from .entries import Entry, entry_of
from .hierarchies import Hierarchies

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ..metadata.format import Format
    from ..metadata.layout import Layout
    from ..metadata.model import ZarrFormat
    from ..stores.base import ListableStore, ReadableStore
    from .documents import Documents

# Limit of the keys inspected to recognise an implicit group: one page of a listing of an object store.
_PROBED_KEYS = 1000
#: Why a folder below is not listed: the system does not let this user, or there is a link in it that has no end.
NOT_LISTABLE = frozenset({errno.EACCES, errno.EPERM, errno.ELOOP})
# A chunk of an array below: "x/c/0/0", "x/c.0.0", "x/0.0". Sorted listings give chunks before "zarr.json".
_CHUNK_BELOW = re.compile(r"(?:^|/)(?:[^/]+/c[/.]|[^/]*[^/\d.][^/]*/)\d+(?:[/.]\d+)*$")


@dataclass(frozen=True, slots=True)
class NodeReader:
    """Reader of the documents of nodes in one store.

    Attributes
    ----------
    store
        Store to read from.
    allow_pickle
        Whether codecs that run pickled code are allowed.
    use_consolidated
        None to use consolidated metadata if present, False to ignore it, True to require it.
    allow_fallback
        Whether an unknown data type may be read as the fallback type in its document.
    documents
        Documents that were fetched already, to which those that are fetched are added; None to fetch each time.
    """

    store: ReadableStore
    allow_pickle: bool = False
    use_consolidated: bool | None = None
    allow_fallback: bool = False
    documents: Documents | None = field(default=None, repr=False, compare=False)
    # Layouts of hierarchies of the 2022 drafts, by path.
    _layouts: dict[str, Layout] = field(default_factory=dict, repr=False, compare=False)

    def node(self, path: str, zarr_format: ZarrFormat | None, *, groups: bool = True) -> Entry | None:
        """Return the node at ``path``, or None if there is none.

        Costs one call of the store for a node of version 2 or 3 with a document, and one more for an implicit group.
        In a remote store, documents are looked for by version: 3 first, then 2, then N5.

        Parameters
        ----------
        path
            Normalised path of the node.
        zarr_format
            Only format to look for; None for all.
        groups
            Whether to look for consolidated metadata and implicit groups; False if only an array is wanted.

        Raises
        ------
        MetadataError
            If a document is malformed. The error names the key.
        StoreError
            If the store fails.
        """
        formats = formats_of(zarr_format)
        usual = [format for format in formats if not format.is_searched_last]
        entry = None
        consolidated = groups and self.use_consolidated is not False
        for together in self._rounds(usual):
            if entry is None:
                found = self.fetch(_keys(path, together, consolidated=consolidated))
                entry = self._parse(path, found, formats)
        if entry is None and usual and groups:
            entry = self._implicit(path, usual)
        if entry is None:
            entry = self._search_last(path, formats)
        wanted = groups and self.use_consolidated and entry is not None and isinstance(entry.metadata, GroupMetadata)
        if wanted and entry is not None and entry.children is None:
            raise ArgumentError(f"use_consolidated=True, but the group '/{path}' has no consolidated metadata")
        return entry

    def exists(self, path: str, zarr_format: ZarrFormat | None) -> bool:
        """Return whether there is a node at ``path``, without parsing its documents."""
        formats = formats_of(zarr_format)
        usual = [format for format in formats if not format.is_searched_last]
        if usual and (
            self.fetch([key for format in usual for key in format.node_keys(path)])
            or self._implicit(path, usual) is not None
        ):
            return True
        try:
            return self._search_last(path, formats) is not None
        except MetadataError:
            return True

    def children(self, path: str, zarr_format: ZarrFormat | None) -> dict[str, Entry]:
        """Return the nodes directly below ``path``, sorted by name, from the store.

        A child with invalid documents is included with its error. Directories without nodes are left out.

        Raises
        ------
        StoreError
            If the store fails or cannot list its keys.
        """
        if not is_listable(self.store):
            raise StoreError(
                f"{self.store!r} cannot list its keys, and the group '/{path}' has no consolidated metadata, so its "
                "children are unknown; they can still be opened by name"
            )
        formats = formats_of(zarr_format)
        usual = [format for format in formats if not format.is_searched_last]
        if any(format.has_entry_point for format in formats) and not usual:
            return self._hierarchies.children(path, self.store)
        prefix = f"{path}/" if path else ""
        _, prefixes = self.store.list_dir(prefix)
        # Other programs may have left keys beside nodes.
        names = sorted(name for p in prefixes if is_node_name(name := p[len(prefix) : -1]))
        if names and path.count("/") + 1 >= MAX_DEPTH:
            raise StoreError(
                f"{self.store!r}: '/{path[:80]}...' has groups below it that are more than {MAX_DEPTH} levels deep; "
                "they are not read",
                key=prefix,
            )
        entries: dict[str, Entry] = {}
        for first in range(0, len(names), NODES_PER_REQUEST):
            some = names[first : first + NODES_PER_REQUEST]
            found: dict[str, bytes] = {}
            left = some
            for together in self._rounds(usual):
                found |= self.fetch(
                    [key for name in left for key in _keys(prefix + name, together, consolidated=False)]
                )
                left = [name for name in left if not any(key in found for key in _keys(prefix + name, together))]
            for name in some:
                child = prefix + name
                if all(format.is_extension(child, found) for format in usual):
                    continue
                try:
                    entry = self._parse(child, found, formats) or self._implicit(child, usual)
                except MetadataError as exc:
                    entry = Entry(exc)
                if entry is not None:
                    entries[name] = entry
        return entries

    def _rounds(self, formats: Sequence[Format]) -> Iterator[Sequence[Format]]:
        """Yield formats whose documents to request together: all, unless each request takes long and costs money."""
        if isinstance(self.store, RemoteValues):
            yield from ([format] for format in formats)
        elif formats:
            yield formats

    def fetch(self, keys: Sequence[str]) -> dict[str, bytes]:
        """Return the existing documents by key; one request, and one more if the store cannot hold some of the keys.

        (For a new node, whose place is looked at by way of :attr:`documents`, that is an error.)
        """
        if self.documents is not None:
            return self.documents.fetch(keys)
        try:
            return fetch(self.store, keys)
        except StoreError as error:
            possible = [key for key in keys if not is_too_long(key, error)]
            if len(possible) == len(keys):
                raise
        return fetch(self.store, possible)

    def layout(self, path: str) -> Layout | None:
        """Return the layout of the 2022 draft hierarchy that contains ``path``, or None; one request."""
        return self._hierarchies.find(path)

    @property
    def _hierarchies(self) -> Hierarchies:
        return Hierarchies(self, self._layouts)

    def _parse(self, path: str, found: Mapping[str, bytes], formats: Sequence[Format]) -> Entry | None:
        """Return the node described by the documents found at its path, or None."""
        if any(format.has_entry_point for format in formats) and self._hierarchies.remember([path], found):
            return self._hierarchies.node(path)
        for format in formats:
            metadata = None if format.is_searched_last else format.parse_node(path, found, self)
            if metadata is not None:
                return entry_of(path, metadata)
        return None

    def _implicit(self, path: str, formats: Sequence[Format]) -> Entry | None:
        """Return an implicit group if there is a node below ``path``; one request.

        Only the first keys are inspected. If they contain no document, chunks of an array count as a node. Folders
        below the path that the system does not list, as those of other users, are passed over.
        """
        if not is_listable(self.store):
            return None
        prefix = f"{path}/" if path else ""
        try:
            return _implied(prefix, formats, self.store.list_prefix(prefix))
        except StoreError as error:
            if is_too_long(path, error):
                return None
            if error.errno not in NOT_LISTABLE or isinstance(self.store, RemoteValues):
                raise
        return _implied(prefix, formats, listed_below(self.store, prefix))

    def _search_last(self, path: str, formats: Sequence[Format]) -> Entry | None:
        """Return a node of the formats searched last; one request, and one more below an entry point."""
        last = [format for format in formats if format.is_searched_last]
        asked_for_one = len(formats) == 1
        above: list[str] = []
        if any(format.has_entry_point for format in last) and self._hierarchies.known(path) is None:
            # Entry points at the path itself were among the other documents, unless only a draft is looked for.
            above = upward(path)[not asked_for_one :]
        found = self.fetch(_keys(path, last) + [V3_DRAFT.entry_point_key(base) for base in above])
        for format in last:
            if format.has_entry_point:
                self._hierarchies.remember(above, found)
                if self._hierarchies.known(path) is not None:
                    return self._hierarchies.node(path)
            elif asked_for_one or format.recognises(path, found):
                metadata = format.parse_node(path, found, self)
                if metadata is not None:
                    return entry_of(path, metadata)
        return None


def _keys(path: str, formats: Sequence[Format], *, consolidated: bool = True) -> list[str]:
    return [key for format in formats for key in format.keys(path, consolidated=consolidated)]


def _implied(prefix: str, formats: Sequence[Format], keys: Iterator[str]) -> Entry | None:
    """Return the implicit group that the first of some keys below a prefix imply, or None."""
    wanted = {name: format for format in formats for name in format.node_documents}
    chunks, count = False, 0
    for key in islice(keys, _PROBED_KEYS):
        count += 1
        below = key[len(prefix) :]
        parent, _, name = below.rpartition("/")
        if parent and name in wanted:
            # A directory is not of a format that is only read, unless this is one of its hierarchies.
            return _implicit_group(wanted[name] if wanted[name].features.writable else formats[0])
        chunks = chunks or _CHUNK_BELOW.search(below) is not None
    return _implicit_group(formats[0]) if count == _PROBED_KEYS and chunks else None


def listed_below(store: ListableStore, prefix: str) -> Iterator[str]:
    """Yield the keys that start with a prefix, without those in folders that the system does not list."""
    left = [prefix]
    while left:
        folder = left.pop()
        try:
            keys, folders = store.list_dir(folder)
        except StoreError as error:
            if folder == prefix or error.errno not in NOT_LISTABLE:
                raise
            continue
        yield from keys
        left.extend(reversed(folders))


def _implicit_group(format: Format) -> Entry:
    return Entry(GroupMetadata(zarr_format=format.zarr_format, implicit=True))


def suggest(path: str, names: Mapping[str, object], is_node: Callable[[str], bool] | None = None) -> str:
    """Return the end of an error message that suggests names similar to ``path``, or ``""``.

    Parameters
    ----------
    path, names
        What was not found, and the names to choose from.
    is_node
        Whether there is a node of a name, if some names may be those of other things.
    """
    asked = path.split("/")[0]
    # There is something of that name, but it is not what was asked for.
    others = [name for name in names if name != asked]
    close = difflib.get_close_matches(asked, others, n=3, cutoff=0.6)
    if is_node is not None:
        close = [name for name in close if is_node(name)]
    return f"; did you mean {' or '.join(map(repr, close))}?" if close else ""
