"""Finding nodes: which metadata documents a path has, in as few store requests as possible.

A request is one call of a store method. All documents that a node of version 2 or 3 can have are asked for in one, so
a node with a document costs one request. Where there is none, one listing tells whether the path is an implicit group:
one without a document, implied by the nodes below it. (The drafts of version 3 define them; directories around version
2 arrays look the same.)

Only then are the older formats looked for, in one more request: the documents of a version 1 array, and the entry
points of the 2022 drafts, which lie further up. A draft's nodes cost a request each once its entry point is known.
"""

from __future__ import annotations

import difflib
import re
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

from ..documents.json import load_document
from ..errors import ArgumentError, GzarrError, MetadataError, StoreError, UnsupportedError
from ..metadata import v1, v2, v3, v3_draft
from ..metadata.model import ArrayMetadata, GroupMetadata
from ..stores.base import ByteRange, ListableStore, SizedStore
from ..stores.keys import join_path, normalize_path

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..metadata.model import NodeMetadata, ZarrFormat
    from ..metadata.v3_draft import Layout
    from ..stores.base import ReadableStore

#: Parsed JSON takes up to about 25 times its text; a larger document is refused before it is read.
MAX_DOCUMENT_NBYTES = 64 << 20

#: Names of the documents that say that there is a node.
NODE_DOCUMENTS = frozenset({"zarr.json", ".zarray", ".zgroup"})
#: Names of all documents.
DOCUMENTS = NODE_DOCUMENTS | {".zattrs", ".zmetadata", v1.META, v1.ATTRS}

# In every entry point of a draft, and in few other documents: the others above a node need not be parsed.
_ENTRY_POINT_MARK = b"purl.org"
# In every document of a node of version 3.
_NODE_MARK = b'"node_type"'
# Any program may call a file "meta"; one without this is not ours.
_V1_MARK = b'"zarr_format"'

# Documents of this many nodes are asked for at once, so that memory stays bounded in groups of many children.
_NODES_PER_REQUEST = 1000
# Consolidated metadata may leave out this many groups a node. More is an attempt to fill memory with one long path.
_BRANCHES_PER_NODE = 16
# How many keys are looked at before an implicit group is judged by the shape of its keys: one page of an object store.
_PROBED_KEYS = 1000
# A chunk of an array below: "x/c/0/0", "x/c.0.0", "x/0.0". Sorted listings give chunks before "zarr.json".
_CHUNK_BELOW = re.compile(r"(?:^|/)(?:[^/]+/c[/.]|[^/]*[^/\d.][^/]*/)\d+(?:[/.]\d+)*$")


@dataclass(slots=True, eq=False)
class Entry:
    """A node as far as it is known.

    Attributes
    ----------
    metadata
        Of the node, or why its documents cannot be used.
    children
        Nodes directly below, by name, where consolidated metadata gives them; None if the store must be asked.
    """

    metadata: NodeMetadata | MetadataError
    children: dict[str, Entry] | None = None


@dataclass(frozen=True, slots=True)
class NodeReader:
    """Reads the documents of nodes of one store.

    Attributes
    ----------
    store
        The store.
    allow_pickle
        Whether codecs that run pickled code are allowed.
    use_consolidated
        None: where there is consolidated metadata. False: never. True: it must be there.
    allow_fallback
        Whether an unknown data type may be read as the fallback that its document names.
    """

    store: ReadableStore
    allow_pickle: bool = False
    use_consolidated: bool | None = None
    allow_fallback: bool = False
    # Layouts of hierarchies of the 2022 drafts, by path.
    _layouts: dict[str, Layout] = field(default_factory=dict, repr=False, compare=False)

    def node(self, path: str, zarr_format: ZarrFormat | None, *, groups: bool = True) -> Entry | None:
        """Return the node at ``path``, or None if there is none.

        One request for a node of version 2 or 3 with a document, one more to tell an implicit group.

        Parameters
        ----------
        path
            Normalised node path.
        zarr_format
            Look for documents of this format only.
        groups
            False where only an array is wanted: consolidated metadata and implicit groups are then not looked for.

        Raises
        ------
        MetadataError
            If a document is malformed; it names the key.
        StoreError
            If the store fails.
        """
        entry = None
        if zarr_format in (None, 2, 3):
            names = _document_names(zarr_format, consolidated=groups and self.use_consolidated is not False)
            (found,) = self.fetch([path], names)
            entry = self._parse(path, found, zarr_format)
            if entry is None and groups:
                entry = self._implicit(path, zarr_format)
        if entry is None and zarr_format not in (2, 3):
            entry = self._older(path, zarr_format)
        wanted = groups and self.use_consolidated and entry is not None and isinstance(entry.metadata, GroupMetadata)
        if wanted and entry is not None and entry.children is None:
            raise ArgumentError(f"use_consolidated=True, but the group '/{path}' has no consolidated metadata")
        return entry

    def exists(self, path: str, zarr_format: ZarrFormat | None) -> bool:
        """Return whether there is a node at ``path``, without reading its documents' content."""
        if zarr_format in (None, 2, 3):
            (found,) = self.fetch([path], [n for n in _document_names(zarr_format) if n in NODE_DOCUMENTS])
            if found or self._implicit(path, zarr_format) is not None:
                return True
        if zarr_format in (2, 3):
            return False
        try:
            return self._older(path, zarr_format) is not None
        except MetadataError:
            return True

    def children(self, path: str, zarr_format: ZarrFormat | None) -> dict[str, Entry]:
        """Return the nodes directly below ``path``, sorted by name, from the store.

        A child whose documents cannot be used is there with its error. Directories without a node in them are not.

        Raises
        ------
        StoreError
            If the store fails or cannot list.
        """
        if not isinstance(self.store, ListableStore):
            raise StoreError(
                f"{self.store!r} cannot list its keys, and the group '/{path}' has no consolidated metadata that would "
                "name its children; they can still be opened by name"
            )
        if zarr_format == v3_draft.FORMAT:
            return self._draft_children(path, self.store)
        prefix = f"{path}/" if path else ""
        _, prefixes = self.store.list_dir(prefix)
        names = sorted(name for p in prefixes if _is_node_name(name := p[len(prefix) : -1]))
        documents = _document_names(zarr_format)
        entries: dict[str, Entry] = {}
        for first in range(0, len(names), _NODES_PER_REQUEST):
            some = names[first : first + _NODES_PER_REQUEST]
            paths = [prefix + name for name in some]
            for name, child, found in zip(some, paths, self.fetch(paths, documents), strict=True):
                # Version 3 reserves such names: extensions keep what they like there. What is a node all the same is
                # shown, so that no copy lacks it.
                if zarr_format == 3 and name.startswith("__") and _NODE_MARK not in found.get("zarr.json", b""):
                    continue
                try:
                    entry = self._parse(child, found, zarr_format) or self._implicit(child, zarr_format)
                except MetadataError as exc:
                    entry = Entry(exc)
                if entry is not None:
                    entries[name] = entry
        return entries

    def fetch(self, paths: Sequence[str], names: Sequence[str]) -> list[dict[str, bytes]]:
        """Return, for each path, the documents that it has; one request."""
        rows = iter(self._values([join_path(path, name) for path in paths for name in names]))
        return [
            {name: value for name, value in zip(names, islice(rows, len(names)), strict=True) if value is not None}
            for _ in paths
        ]

    def _values(self, keys: Sequence[str]) -> list[bytes | None]:
        """Return the documents of these keys; one request."""
        if isinstance(self.store, SizedStore):
            return self.store.get_small_values(keys, MAX_DOCUMENT_NBYTES)
        return self.store.get_partial_values([(key, ByteRange()) for key in keys])

    def _parse(self, path: str, found: Mapping[str, bytes], zarr_format: ZarrFormat | None) -> Entry | None:
        """Return the node that the documents found describe; version 3 wins over version 2."""
        documents = {}
        for name, data in found.items():
            if name == "zarr.json" or "zarr.json" not in found:
                documents[name] = load_document(data, join_path(path, name))
        if (document := documents.get("zarr.json")) is not None:
            if zarr_format is None and v3_draft.is_entry_point(document):
                self._add_layout(path, document)
                return self._draft_node(path)
            return self._parse_v3(join_path(path, "zarr.json"), document)
        attributes = documents.get(".zattrs")
        if (document := documents.get(".zarray")) is not None:
            with _at(join_path(path, ".zarray")):
                return Entry(v2.parse_array(document, attributes, allow_pickle=self.allow_pickle))
        return self._parse_v2_group(path, documents.get(".zgroup"), attributes, documents.get(".zmetadata"))

    def _parse_v3(self, key: str, document: dict[str, Any]) -> Entry:
        if self.use_consolidated is False:
            document = {name: value for name, value in document.items() if name != "consolidated_metadata"}
        with _at(key):
            metadata = v3.parse_node(document, allow_pickle=self.allow_pickle, allow_fallback=self.allow_fallback)
        return _entry_of(metadata, key)

    def _parse_v2_group(
        self, path: str, group: dict[str, Any] | None, attributes: dict[str, Any] | None, index: dict[str, Any] | None
    ) -> Entry | None:
        nodes: Mapping[str, NodeMetadata | MetadataError] | None = None
        key = join_path(path, ".zmetadata")
        if index is not None:
            with _at(key):
                try:
                    nodes = v2.parse_consolidated(index, allow_pickle=self.allow_pickle)
                except UnsupportedError:
                    # Version 2 does not know this document: without one that can be used, the nodes themselves will do.
                    if group is None or self.use_consolidated is not None:
                        raise
        if group is not None:
            with _at(join_path(path, ".zgroup")):
                metadata: NodeMetadata | MetadataError = v2.parse_group(group, attributes)
        elif nodes is not None and "" in nodes:
            metadata = nodes[""]
        elif nodes:
            metadata = GroupMetadata(zarr_format=2, implicit=True)
        else:
            return None
        if isinstance(metadata, MetadataError):
            raise metadata
        if nodes is None or isinstance(metadata, ArrayMetadata):
            return Entry(metadata)
        return Entry(metadata, _grow(nodes, 2, key))

    def _implicit(self, path: str, zarr_format: ZarrFormat | None) -> Entry | None:
        """Return an implicit group if there is a node below ``path``; one request.

        Only the first keys are looked at. Where they name no node, chunks of an array further down count as one.
        """
        if not isinstance(self.store, ListableStore):
            return None
        prefix = f"{path}/" if path else ""
        wanted = {"zarr.json"} if zarr_format == 3 else {".zarray", ".zgroup"} if zarr_format == 2 else NODE_DOCUMENTS
        chunks, count = False, 0
        for key in islice(self.store.list_prefix(prefix), _PROBED_KEYS):
            count += 1
            below = key[len(prefix) :]
            parent, _, name = below.rpartition("/")
            if parent and name in wanted:
                return Entry(GroupMetadata(zarr_format=3 if name == "zarr.json" else 2, implicit=True))
            chunks = chunks or _CHUNK_BELOW.search(below) is not None
        if count == _PROBED_KEYS and chunks:
            return Entry(GroupMetadata(zarr_format=zarr_format or 3, implicit=True))
        return None

    # -- older formats

    def _older(self, path: str, zarr_format: ZarrFormat | None) -> Entry | None:
        """Return a version 1 array or a node of a 2022 draft; one request, and one more below an entry point."""
        names = [v1.META, v1.ATTRS] if zarr_format in (None, 1) else []
        above: list[str] = []
        if zarr_format != 1 and self._layout(path) is None:
            # Of path itself, entry points have been looked at with the other documents, unless a draft is asked for.
            above = upward(path)[zarr_format is None :]
        keys = [join_path(path, name) for name in names] + [join_path(base, v3_draft.ENTRY_POINT) for base in above]
        values = self._values(keys) if keys else []
        if names and (data := values[0]) is not None and (zarr_format == 1 or _V1_MARK in data):
            return self._parse_v1(keys[0], data, keys[1], values[1])
        self._find_entry_point(above, values[len(names) :])
        return self._draft_node(path) if zarr_format != 1 and self._layout(path) is not None else None

    def layout(self, path: str) -> Layout | None:
        """Return the layout of the hierarchy of a 2022 draft that ``path`` is in, if there is one; one request."""
        if self._layout(path) is None:
            bases = upward(path)
            self._find_entry_point(bases, self._values([join_path(base, v3_draft.ENTRY_POINT) for base in bases]))
        return self._layout(path)

    def _find_entry_point(self, bases: Sequence[str], values: Sequence[bytes | None]) -> None:
        """Remember the layout of the first one of some hierarchies that is there."""
        for base, data in zip(bases, values, strict=True):
            if data is not None and _ENTRY_POINT_MARK in data:
                document = load_document(data, join_path(base, v3_draft.ENTRY_POINT))
                if v3_draft.is_entry_point(document):
                    self._add_layout(base, document)
                    break

    def _parse_v1(self, key: str, data: bytes, attrs_key: str, attrs_data: bytes | None) -> Entry:
        document = load_document(data, key)
        attributes = None if attrs_data is None else load_document(attrs_data, attrs_key)
        with _at(key):
            return Entry(v1.parse_array(document, attributes))

    def _add_layout(self, base: str, document: dict[str, Any]) -> None:
        with _at(join_path(base, v3_draft.ENTRY_POINT)):
            self._layouts[base] = v3_draft.parse_entry_point(document, base)

    def _layout(self, path: str) -> Layout | None:
        """Return the layout of the innermost known hierarchy that ``path`` is in."""
        while path not in self._layouts:
            if not path:
                return None
            path = path.rpartition("/")[0]
        return self._layouts[path]

    def _draft_node(self, path: str) -> Entry | None:
        """Return a node of a hierarchy whose layout is known; one request, and one more for an implicit group."""
        layout = self._layout(path)
        assert layout is not None
        below = layout.relative(path)
        keys = [layout.array_key(below), layout.group_key(below)]
        for kind, key, data in zip(("array", "group"), keys, self._values(keys), strict=True):
            if data is not None:
                return self._parse_draft(layout, below, kind, key, data)
        # A hierarchy has a root, whether or not it has a document; elsewhere, nodes below make an implicit group.
        if below and not (isinstance(self.store, ListableStore) and any(self.store.list_dir(layout.below(below)))):
            return None
        return Entry(GroupMetadata(zarr_format=v3_draft.FORMAT, implicit=True))

    def _parse_draft(self, layout: Layout, below: str, kind: str, key: str, data: bytes) -> Entry:
        document = load_document(data, key)
        with _at(key):
            if kind == "group":
                return Entry(v3_draft.parse_group(document, layout))
            return Entry(
                v3_draft.parse_array(
                    document, layout, below, allow_pickle=self.allow_pickle, allow_fallback=self.allow_fallback
                )
            )

    def _draft_children(self, path: str, store: ListableStore) -> dict[str, Entry]:
        """Return the nodes directly below ``path``, sorted by name; one listing and one request for 1000 documents."""
        if self._layout(path) is None:
            self._older(path, v3_draft.FORMAT)
        layout = self._layout(path)
        if layout is None:
            return {}
        below = layout.relative(path)
        prefix = layout.below(below)
        keys, prefixes = store.list_dir(prefix)
        found: dict[str, tuple[str, str]] = {}
        for key in keys:
            child = layout.child(key)
            if child is not None and _is_node_name(child[0]) and (child[1] == "array" or child[0] not in found):
                found[child[0]] = child[1], key
        entries = {
            name: Entry(GroupMetadata(zarr_format=v3_draft.FORMAT, implicit=True))
            for p in prefixes
            if _is_node_name(name := p[len(prefix) : -1])
        }
        names = sorted(found)
        for first in range(0, len(names), _NODES_PER_REQUEST):
            some = names[first : first + _NODES_PER_REQUEST]
            for name, data in zip(some, self._values([found[name][1] for name in some]), strict=True):
                if data is None:  # erased since it was listed
                    continue
                try:
                    entries[name] = self._parse_draft(layout, join_path(below, name), *found[name], data)
                except MetadataError as exc:
                    entries[name] = Entry(exc)
        return dict(sorted(entries.items()))


class _at:
    """Adds the store key to a metadata error on its way out."""

    def __init__(self, key: str) -> None:
        self.key = key

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        if isinstance(error, MetadataError) and error.key is None:
            error.at(self.key)


def _document_names(zarr_format: ZarrFormat | None, *, consolidated: bool = False) -> list[str]:
    names = [] if zarr_format == 2 else ["zarr.json"]
    if zarr_format != 3:
        names += [".zarray", ".zgroup", ".zattrs"]
        if consolidated:
            names.append(".zmetadata")
    return names


def upward(path: str) -> list[str]:
    """Return a path and those of all groups above it, the root's last."""
    paths = [path]
    while path:
        path = path.rpartition("/")[0]
        paths.append(path)
    return paths


def suggest(path: str, names: Mapping[str, object]) -> str:
    """Return the end of a message that names what ``path`` may have meant, or nothing."""
    close = difflib.get_close_matches(path.split("/")[0], names, n=3, cutoff=0.6)
    return f"; did you mean {' or '.join(map(repr, close))}?" if close else ""


def _is_node_name(name: str) -> bool:
    try:
        return normalize_path(name) == name
    except GzarrError:
        return False


def _entry_of(metadata: NodeMetadata, key: str) -> Entry:
    if isinstance(metadata, ArrayMetadata) or metadata.consolidated is None:
        return Entry(metadata)
    return Entry(metadata, _grow(metadata.consolidated, metadata.zarr_format, key))


@dataclass(slots=True, eq=False)
class _Branch:
    metadata: NodeMetadata | MetadataError | None = None
    below: defaultdict[str, _Branch] = field(default_factory=lambda: defaultdict(_Branch))


def _grow(nodes: Mapping[str, NodeMetadata | MetadataError], zarr_format: ZarrFormat, key: str) -> dict[str, Entry]:
    """Turn consolidated metadata (by path) into a tree. A group that is only part of paths is implicit."""
    root, branches, most = _Branch(), 0, 1000 + _BRANCHES_PER_NODE * len(nodes)
    for path in nodes:
        if not path:  # the group itself
            continue
        try:
            names = normalize_path(path).split("/")
        except ArgumentError as exc:
            raise MetadataError(f"consolidated metadata: {exc}", key=key) from exc
        branch = root
        for name in names:
            branches += name not in branch.below
            branch = branch.below[name]
        if branches > most:
            raise MetadataError(
                f"consolidated metadata names far more groups than it describes ({path[:80]!r}…)", key=key
            )
        branch.metadata = nodes[path]
    entries: dict[str, Entry] = {}
    stack = [(root, entries)]
    while stack:
        branch, into = stack.pop()
        for name in sorted(branch.below):
            below = branch.below[name]
            metadata = below.metadata or GroupMetadata(zarr_format=zarr_format, implicit=True)
            entry = into[name] = Entry(metadata)
            if isinstance(metadata, GroupMetadata):
                entry.children = {}
                stack.append((below, entry.children))
    return entries
