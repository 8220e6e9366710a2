"""Nodes of the 2022 drafts: the entry point above a node determines the keys of its documents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ..errors import MetadataError, StoreError
from ..metadata.format import ParseOptions
from ..metadata.formats import V3_DRAFT
from ..metadata.model import GroupMetadata
from ..stores.base import ListableStore, is_listable
from ..stores.keys import is_node_name, join_path
from .documents import NODES_PER_REQUEST, is_too_long, upward
from .entries import Entry

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..metadata.layout import Layout
    from ..stores.base import ReadableStore


class _Reader(ParseOptions, Protocol):
    """Reader of documents in a store, with options for parsing them."""

    @property
    def store(self) -> ReadableStore: ...

    def fetch(self, keys: Sequence[str]) -> dict[str, bytes]: ...


@dataclass(frozen=True, slots=True)
class Hierarchies:
    """Finds hierarchies of the 2022 drafts in a store, and nodes in them.

    Attributes
    ----------
    reader
        Reader of the documents.
    layouts
        Layouts of the known hierarchies, by path; new ones are added.
    """

    reader: _Reader
    layouts: dict[str, Layout]

    def known(self, path: str) -> Layout | None:
        """Return the layout of the innermost known hierarchy that contains ``path``, or None."""
        return next((self.layouts[above] for above in upward(path) if above in self.layouts), None)

    def find(self, path: str) -> Layout | None:
        """Return the layout of the hierarchy that contains ``path``, or None; one request."""
        if self.known(path) is None:
            bases = upward(path)
            self.remember(bases, self.reader.fetch([V3_DRAFT.entry_point_key(base) for base in bases]))
        return self.known(path)

    def remember(self, bases: Sequence[str], found: Mapping[str, bytes]) -> bool:
        """Remember the first base with an entry point among ``found`` documents; return whether there was one."""
        for base in bases:
            layout = V3_DRAFT.parse_entry_point(base, found)
            if layout is not None:
                self.layouts[base] = layout
                return True
        return False

    def node(self, path: str) -> Entry | None:
        """Return a node of a known hierarchy; one request, and one more for an implicit group."""
        layout = self.known(path)
        assert layout is not None
        found = self.reader.fetch(V3_DRAFT.keys(path, layout))
        metadata = V3_DRAFT.parse_node(path, found, self.reader, layout)
        if metadata is not None:
            return Entry(metadata)
        # The root of a hierarchy is always a group, even without a document; other implicit groups need nodes below.
        below = layout.relative(path)
        return _implicit_group() if not below or self._has_keys(layout.below(below)) else None

    def _has_keys(self, prefix: str) -> bool:
        store = self.reader.store
        try:
            return is_listable(store) and any(store.list_dir(prefix))
        except StoreError as error:
            if is_too_long(prefix, error):
                return False
            raise

    def children(self, path: str, store: ListableStore) -> dict[str, Entry]:
        """Return the nodes directly below ``path``, sorted by name; one listing, and one request per 1000 documents."""
        layout = self.find(path)
        if layout is None:
            return {}
        prefix = layout.below(layout.relative(path))
        keys, prefixes = store.list_dir(prefix)
        documents: dict[str, str] = {}
        for key in keys:
            child = layout.child(key)
            # An array wins over a group.
            if child is not None and is_node_name(child[0]) and (child[1] == "array" or child[0] not in documents):
                documents[child[0]] = key
        entries = {name: _implicit_group() for p in prefixes if is_node_name(name := p[len(prefix) : -1])}
        names = sorted(documents)
        for first in range(0, len(names), NODES_PER_REQUEST):
            some = names[first : first + NODES_PER_REQUEST]
            found = self.reader.fetch([documents[name] for name in some])
            for name in some:
                try:
                    metadata = V3_DRAFT.parse_node(join_path(path, name), found, self.reader, layout)
                except MetadataError as exc:
                    entries[name] = Entry(exc)
                else:
                    if metadata is not None:  # erased since it was listed
                        entries[name] = Entry(metadata)
        return dict(sorted(entries.items()))


def _implicit_group() -> Entry:
    return Entry(GroupMetadata(zarr_format=V3_DRAFT.zarr_format, implicit=True))
