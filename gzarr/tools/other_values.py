"""Values of a hierarchy that are part of no node, and copying them: files that other programs keep in groups.

SpatialData keeps points and shapes as Parquet files in groups, bioformats2raw an XML file. Their bytes stay, and so do
their keys below the group that is copied.

- Groups are listed level by level, and what lies in a folder that is no node completely. Arrays are not listed: what
  lies in the folder of an array is a chunk, or left by someone who wrote chunks.
- Documents that lie in a group are those of nodes, in whichever format, and left out. So are hidden files and folders,
  whose names begin with a dot: repositories (`.git`), links of editors, what gzarr keeps in directories (locks,
  unfinished writes), and what desktops leave in each folder that they show.
- Attributes in an implicit group are those of no node. A copy, whose groups are explicit, would show them, so they are
  a loss.
- Hierarchies of the 2022 drafts, where documents and chunks lie elsewhere, have no such values.
- Large values pass through a file without a name, so that neither store has to be a directory, memory is bounded, and
  each value is still written once, as a whole. (Stores of fsspec and of zarr-python take whole values only.)
"""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..arrays.stored_chunks import are_stored
from ..documents.json import unpaired_surrogates
from ..engines import pool
from ..errors import GzarrError, StoreError, ValueReplacedError, ValueSizeError, with_errno
from ..metadata.formats import FORMATS
from ..metadata.model import GroupMetadata
from ..nodes.change import documents_first
from ..stores import io_threads, ozx
from ..stores.base import (
    ByteRange,
    DirectoryStore,
    GatheringStore,
    RemoteValues,
    Request,
    SizedStore,
    VersionedStore,
    is_listable,
    knows_of,
)
from ..stores.keys import is_document, join_path
from ..stores.memory import MemoryStore
from ..stores.temporary_files import ADVICE
from ..stores.zip_store import ZipStore
from .processes import in_processes

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
    from concurrent.futures import Executor
    from typing import TypeVar

    from typing_extensions import Buffer

    from ..hierarchy.group import Group
    from ..metadata.model import NodeMetadata, ZarrFormat
    from ..stores.base import ReadableStore, Store
    from .copy_options import CopyOptions

    T = TypeVar("T")

#: Hidden on Windows only.
_OF_DESKTOPS: Final = frozenset({"Thumbs.db", "desktop.ini"})
#: Folders that are listed, and keys that are asked for, at a time.
_TOGETHER: Final = 256
#: Values copied in one step.
_VALUES: Final = 64
#: The values in memory may take 1 / this of the budget: each is there once, and once more where it is compared.
_SHARE: Final = 4
_LEAST_BYTES: Final = 4 << 10


def other_values(root: Group, nodes: Mapping[str, NodeMetadata]) -> dict[str, list[str]]:
    """Return the keys below a group whose values are part of no node.

    One listing for each group, and one for each folder in a group that is no node.

    Parameters
    ----------
    root, nodes
        The group, and all nodes at and below it by relative path.

    Returns
    -------
    Keys relative to the group, by the key or the prefix directly below a group that they belong to. Empty if the store
    cannot list its keys.
    """
    store = root.store
    found: dict[str, list[str]] = {}
    if not is_listable(store):
        return found
    start = f"{root.path}/" if root.path else ""
    folders: list[str] = []
    groups = (
        (join_path(root.path, below), metadata)
        for below, metadata in nodes.items()
        if isinstance(metadata, GroupMetadata) and not FORMATS[metadata.zarr_format].has_entry_point
    )
    while some := list(itertools.islice(groups, _TOGETHER)):
        listings = _all(store, [partial(store.list_dir, f"{path}/".lstrip("/")) for path, _ in some])
        for (path, metadata), (keys, prefixes) in zip(some, listings, strict=True):
            format = FORMATS[metadata.zarr_format]
            lost = format.keys(path, consolidated=False) if metadata.implicit else ()
            for key in keys:
                name = key.rpartition("/")[2]
                if key in lost or not (is_document(key) or name in format.document_names or _is_ignored(name)):
                    below = key[len(start) :]
                    found[below] = [below]
            folders += [
                prefix
                for prefix in prefixes
                if prefix[len(start) : -1] not in nodes
                and not (is_document(prefix[:-1]) or _is_ignored(prefix[:-1].rpartition("/")[2]))
            ]

    def inside(prefix: str) -> list[str]:
        # The group above, whose own name may begin with a dot, is a node.
        keys = store.list_prefix(prefix)
        return [key[len(start) :] for key in keys if not any(map(_is_ignored, key[len(prefix) :].split("/")))]

    for begin in range(0, len(folders), _TOGETHER):
        part = folders[begin : begin + _TOGETHER]
        for prefix, keys in zip(part, _all(store, [partial(inside, prefix) for prefix in part]), strict=True):
            if keys:
                found[prefix[len(start) :]] = keys
    return dict(sorted(found.items()))


def _is_ignored(name: str) -> bool:
    # Documents of version 2 are hidden files, too: below a folder that is no node, of nodes in a group of version 3.
    return (name.startswith(".") and not is_document(name)) or name in _OF_DESKTOPS


def _all(store: ReadableStore, calls: Sequence[Callable[[], T]]) -> list[T]:
    """Return what some calls of a store return; at the same time where each takes long."""
    return io_threads.call_all(calls) if isinstance(store, RemoteValues) else [call() for call in calls]


def why_left_out(
    key: str, store: ReadableStore, formats: tuple[ZarrFormat, ZarrFormat], *, in_group: bool
) -> str | None:
    """Return why a copy cannot have a value that is part of no node, or None if it can.

    Parameters
    ----------
    key
        Key of the value in the copy.
    store, formats
        Store of the copy, and the formats of source and copy.
    in_group
        Whether it lies directly in a group.
    """
    before, after = formats
    name = key.rpartition("/")[2]
    if in_group and is_document(key):
        return "it has attributes of a group that has no other document, so nobody reads them"
    # Only directories and memory have other names, those of files that are not text.
    if not isinstance(store, DirectoryStore | MemoryStore) and any(unpaired_surrogates(key, "")):
        return f"its name has characters that UTF-8 cannot encode, and names in {store!r} are UTF-8"
    if FORMATS[after].has_entry_point:
        return f"a hierarchy of {FORMATS[after].title} has documents and chunks only"
    if documents_first(store):
        return f"{store!r} takes documents and chunks only"
    if before != after and name in FORMATS[after].document_names:
        return f"it would be a document of {FORMATS[after].title}"
    if isinstance(store, ZipStore) and ozx.is_ozx(store.path) and name.lower().endswith((ozx.SUFFIX, ".zip")):
        return "an .ozx file must have no archives in it"
    return None


def present_value(store: ReadableStore, prefix: str, keys: Sequence[str]) -> str | None:
    """Return the first of some keys that a store has a value for, or None if there is none.

    ``prefix`` is that of all the keys: where nothing is, one listing is enough.
    """
    if is_listable(store) and next(iter(store.list_prefix(prefix)), None) is None:
        return None
    for begin in range(0, len(keys), _TOGETHER):
        some = keys[begin : begin + _TOGETHER]
        for key, is_there in zip(some, are_stored(store, some), strict=True):
            if is_there:
                return key
    return None


@dataclass(frozen=True, slots=True)
class _Values:
    """What copies values; it can be given to other processes.

    Attributes
    ----------
    source, target
        Stores, each with the prefix of the keys.
    places
        Keys that are also the names of folders: markers of these, if they are empty.
    most_nbytes
        Most bytes of a value that is held in memory.
    resume, read_back
        As for :func:`gzarr.copy`.
    """

    source: tuple[ReadableStore, str]
    target: tuple[Store, str]
    places: frozenset[str]
    most_nbytes: int
    resume: bool
    read_back: bool

    def work_on(self, part: Sequence[str]) -> list[str]:
        """Copy some values, given by their keys; return what became of each: "written", "kept" or "absent"."""
        outcomes: list[str] = []
        pool.each(lambda i: outcomes.append(self._copy(part[i])), len(part), pool.thread_count())
        return outcomes

    def _copy(self, key: str) -> str:
        (source, before), (store, after) = self.source, self.target
        to = after + key
        value = self._value(source, before + key, to)
        if value is None or (key in self.places and not len(value)):
            return "absent"
        if self.resume and self._has(to, value):
            return "kept"
        if isinstance(value, bytes):
            store.set(to, value)
        elif isinstance(store, GatheringStore) and knows_of(store, "set_parts", "set"):
            store.set_parts(to, [value])
        else:
            store.set(to, bytes(value))
        if self.read_back and not self._has(to, value):
            raise StoreError(
                f"the data read back is not the data written: the bytes of {to!r} in {store!r} differ; the store "
                "or its medium is at fault",
                key=to,
            )
        return "written"

    def _value(self, store: ReadableStore, key: str, to: str) -> Any:
        """Return a value of the source, or None if it was erased meanwhile; a large one is in a file."""
        if not isinstance(store, SizedStore):
            return store.get(key)
        with contextlib.suppress(ValueSizeError):
            return store.get_small_values([key], self.most_nbytes)[0]
        version = store.version(key) if isinstance(store, VersionedStore) else None
        folder = _folder(self.target[0], to)
        try:
            with tempfile.TemporaryFile(dir=folder) as file:
                for piece in _pieces(store, key, self.most_nbytes):
                    file.write(piece)
                if not file.tell():
                    # It was erased meanwhile, or is empty now: such a file cannot be mapped.
                    return store.get_small_values([key], self.most_nbytes)[0]
                file.flush()
                # It stays until nothing has a view of it, which may be in a library.
                value = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        except GzarrError:
            raise
        except OSError as error:
            advice = f"free some space in {str(folder)!r}" if folder is not None else ADVICE
            raise with_errno(
                StoreError(f"{key!r} in {store!r} cannot be kept in a temporary file: {error}; {advice}", key=key),
                error,
            ) from error
        if isinstance(store, VersionedStore) and store.version(key) != version:
            raise StoreError(f"{key!r} in {store!r} was replaced while it was copied; copy again", key=key)
        return value

    def _has(self, key: str, value: Any) -> bool:
        """Return whether the copy has a value."""
        store, _ = self.target
        view = memoryview(value)
        if view.nbytes <= self.most_nbytes:
            try:
                if isinstance(store, SizedStore):
                    return bool(store.get_small_values([key], view.nbytes)[0] == value)
                return bool(store.get(key) == value)
            except ValueSizeError:
                return False
        begin = 0
        for piece in _pieces(store, key, self.most_nbytes):
            if view[begin : begin + len(piece)] != piece:
                return False
            begin += len(piece)
        return begin == view.nbytes


class OtherValues:
    """The copy of values that are part of no node.

    Parameters
    ----------
    source, target
        Stores, each with the path of the group.
    found
        What :func:`other_values` returns.
    folders
        Paths of nodes below the group.
    options
        How the copy is made.

    Attributes
    ----------
    counts
        Numbers of values by key or prefix in the source.
    written, kept
        Numbers of values written so far, and found equal so far.
    """

    def __init__(
        self,
        source: tuple[ReadableStore, str],
        target: tuple[Store, str],
        found: Mapping[str, Sequence[str]],
        folders: Sequence[str],
        options: CopyOptions,
    ) -> None:
        self.source: ReadableStore = source[0]
        before, after = source[1], target[1]
        self.counts: dict[str, int] = {join_path(before, below): len(keys) for below, keys in found.items()}
        self.written: int = 0
        self.kept: int = 0
        self._below = [key for keys in found.values() for key in keys]
        above = {*folders, *(key[:at] for key in self._below for at, c in enumerate(key) if c == "/")}
        self._prefix = f"{after}/" if after else ""
        self._values = _Values(
            (self.source, f"{before}/" if before else ""),
            (target[0], self._prefix),
            frozenset(above.intersection(self._below)),
            max(options.budget_bytes // (_SHARE * pool.thread_count()), _LEAST_BYTES),
            options.resume,
            options.read_back,
        )

    @property
    def total(self) -> int:
        """Number of values."""
        return len(self._below)

    def keys(self) -> list[str]:
        """Return the keys of the copy."""
        return [self._prefix + key for key in self._below]

    def steps(self, executor: Executor | None = None) -> Iterator[int]:
        """Copy the values; yield the number of finished ones after each part.

        ``executor`` is as for :meth:`gzarr.tools.copy_array.ArrayCopy.steps`.
        """
        parts = (self._below[begin : begin + _VALUES] for begin in range(0, self.total, _VALUES))
        work = self._values
        for some in map(work.work_on, parts) if executor is None else in_processes(executor, work, parts):
            self.written += some.count("written")
            self.kept += some.count("kept")
            yield len(some)


def _pieces(store: ReadableStore, key: str, nbytes: int) -> Iterator[memoryview]:
    """Yield a value in pieces of at most ``nbytes``; nothing if it is absent.

    Raises
    ------
    ValueReplacedError
        If it is erased meanwhile; or replaced, where the store's answers have versions.
    """
    version: Hashable | None = None

    def piece_at(begin: int, length: int | None) -> Buffer | None:
        nonlocal version
        wanted = ByteRange(begin, length)
        if isinstance(store, RemoteValues):
            (answer,) = io_threads.call(partial(store.get_many, [Request(key, wanted, version)]))
            if answer.error is not None:
                raise answer.error
            version, piece = answer.version, answer.value
        else:
            (piece,) = store.get_partial_values([(key, wanted)])
        if piece is None and begin:
            raise ValueReplacedError(f"{key!r} in {store!r} was erased while it was read", key=key)
        return piece

    for begin in itertools.count(0, nbytes):
        try:
            piece = piece_at(begin, nbytes)
        except ValueSizeError:
            break
        if piece is None:
            return
        yield memoryview(piece).cast("B")
    # Less is left. Some servers refuse a range that begins at the end.
    with contextlib.suppress(ValueSizeError):
        rest = piece_at(begin, None)
        if rest is not None:
            yield memoryview(rest).cast("B")


def _folder(store: Store, key: str) -> Any:
    """Return a folder with room for a value of a store; None for the system's folder for temporary files."""
    if isinstance(store, ZipStore):
        return store.path.parent
    if not isinstance(store, DirectoryStore):
        return None
    folder = Path(os.fsdecode(store.directory()), key).parent
    while not folder.is_dir():
        folder = folder.parent
    return folder
