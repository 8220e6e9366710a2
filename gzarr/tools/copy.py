"""Copying arrays and hierarchies: into another store, format, chunks or codecs, in bounded memory.

- All that can be refused is refused before anything is written: what the target format has no words for, too.
- Groups are written before what is in them, the documents of an array after its chunks. So an array that is there is
  complete, and a copy that fails or is killed leaves chunks without an array, which nobody reads.
- Each stored value is written once, as a whole. A region is copied at a time: so many whole chunks (shards) of the
  target as the budget allows, and along each dimension as many as whole chunks of the source take, where these fit.
- Regions in which the source has no chunks are passed over.
- ``resume`` trusts nothing that is there: it is read, compared with the source, and written again where it differs.
  Nodes that the source has not are not erased, and not left without a word: they are an error.
- Where codecs, chunks and elements stay as they are, stored values are copied as they are, without decoding them.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..arrays.array import Array
from ..arrays.device_choice import resolve_device
from ..codecs.choice import AUTO
from ..errors import ArgumentError, MetadataError, NodeNotFoundError
from ..hierarchy.array_spec import arguments_of, new_metadata
from ..hierarchy.group import Group, make_node
from ..metadata.formats import FORMATS, check_zarr_format
from ..metadata.model import ArrayMetadata, GroupMetadata
from ..metadata.parts import dimension_names_of
from ..metadata.to_documents import dump
from ..nodes.change import delete_node, hold_documents, reader_of, writable
from ..nodes.create import check_name, inspect_location, stray_chunks, write_new_group
from ..nodes.reader import NodeReader
from ..stores.base import ListableStore, LocalFiles
from ..stores.keys import join_path, normalize_path
from ..stores.locks import hold_node
from ..stores.resolve import as_store
from .copy_array import ArrayCopy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..metadata.layout import Layout
    from ..metadata.model import NodeMetadata, ZarrFormat
    from ..nodes.create import Location
    from ..stores.base import ReadableStore, Store
    from ..stores.resolve import StoreLike

#: As it is in the source.
KEEP: Final = "keep"
DEFAULT_BUDGET_BYTES: Final = 256 << 20
_DIMENSIONS: Final = "_ARRAY_DIMENSIONS"


class Copy:
    """A copy that has been planned and checked; see :func:`prepare_copy`. Nothing is written before :meth:`steps`.

    Attributes
    ----------
    groups
        Path in the target and metadata of each group, parents first.
    arrays
        Of each array, what is to be done.
    """

    def __init__(
        self, store: Store, path: str, location: Location, groups: dict[str, GroupMetadata], arrays: list[ArrayCopy]
    ) -> None:
        self._store = store
        self._path = path
        self._location = location
        self._erase = False
        self._resume = False
        self.groups = groups
        self.arrays = arrays

    @property
    def total(self) -> int:
        """How many steps there are at most."""
        return sum(array.total for array in self.arrays)

    @property
    def written(self) -> int:
        """Regions (stored values, where these are copied as they are) that were written so far."""
        return sum(array.written for array in self.arrays)

    @property
    def kept(self) -> int:
        """The same that were there already, and equal."""
        return sum(array.kept for array in self.arrays)

    def check_free(self, *, overwrite: bool, resume: bool) -> None:
        """Refuse a place that is taken, unless it is to be erased, or holds the beginning of this copy.

        Raises
        ------
        ArgumentError
            Naming what is there.
        """
        where = f"'/{self._path}' in {self._store!r}"
        self._resume = resume
        if resume:
            self._check_same()
            self._check_no_others()
            return
        taken = "a node" if self._location.occupied else ""
        if not taken and self.arrays and not self.groups:
            (array,) = self.arrays
            taken = "chunks without an array" if stray_chunks(self._store, self._path, array.metadata) else ""
        if taken and not overwrite:
            raise ArgumentError(
                f"there is {taken} at {where} already; pass resume=True (--resume) to go on with a copy that was "
                "interrupted, or overwrite=True (--overwrite) to erase it with all that is below it"
            )
        self._erase = bool(taken)

    def _check_same(self) -> None:
        """Refuse to go on with a copy of something else."""
        for path, metadata in self.groups.items():
            present = self._present(path)
            if isinstance(present, GroupMetadata) and (present.implicit or _is_same(present, metadata)):
                continue
            if present is not None:
                raise _other(path, self._store)
        for array in self.arrays:
            self._check_array(array)

    def _check_array(self, array: ArrayCopy) -> None:
        """Refuse the place of an array in which there is something else than what is to be resumed."""
        present = self._present(array.path)
        # Chunks of an array without documents may look like a group.
        if present is None or (self._resume and isinstance(present, GroupMetadata) and present.implicit):
            return
        if not self._resume or not isinstance(present, ArrayMetadata) or not array.is_described_by(present):
            raise _other(array.path, self._store)
        array.has_documents = True

    def _check_no_others(self) -> None:
        """Refuse to go on with the copy of a group where there are nodes that the source has not (any more)."""
        if not isinstance(self._store, ListableStore):
            return
        planned = {*self.groups, *(array.path for array in self.arrays)}
        reader = reader_of(self._store)
        for path, metadata in self.groups.items():
            others = [join_path(path, name) for name in reader.children(path, metadata.zarr_format)]
            others = [other for other in others if other not in planned]
            if others:
                raise ArgumentError(
                    f"'/{others[0]}' in {self._store!r} is not in the source, or not any more (one of {len(others)} in "
                    f"'/{path}'): resume=True (--resume) erases no node; erase what is not wanted, or pass "
                    "overwrite=True (--overwrite) to begin anew"
                )

    def _present(self, path: str) -> NodeMetadata | None:
        try:
            entry = reader_of(self._store).node(path, None)
        except MetadataError as error:
            raise _other(path, self._store) from error
        if entry is None:
            return None
        assert not isinstance(entry.metadata, MetadataError)
        return entry.metadata

    def steps(self) -> Iterator[int]:
        """Copy; yield after each part how many steps of :attr:`total` it was. All in one thread, which holds locks."""
        if self._erase:
            delete_node(self._store, self._path)
            self._location = inspect_location(self._store, self._path, self._format)
        for parent in self._location.parents:
            self._make_group(parent, GroupMetadata(zarr_format=self._format), may_exist=True)
        for path, metadata in self.groups.items():
            self._make_group(path, metadata, may_exist=self._resume)
        for array in self.arrays:
            # Its documents come last: until then, only this keeps others from making something in its place.
            with hold_node(self._store, array.path):
                self._check_array(array)
                yield from array.steps()

    def run(self) -> None:
        """Copy all of it."""
        for _ in self.steps():
            pass

    @property
    def _format(self) -> ZarrFormat:
        return next(iter(self.groups.values())).zarr_format if self.groups else self.arrays[0].metadata.zarr_format

    def _make_group(self, path: str, metadata: GroupMetadata, *, may_exist: bool) -> None:
        with hold_node(self._store, path), hold_documents(self._store, path):
            location = inspect_location(self._store, path, metadata.zarr_format)
            if location.occupied and not (isinstance(location.found, GroupMetadata) and location.found.implicit):
                if may_exist and isinstance(location.found, GroupMetadata):
                    return
                raise _other(path, self._store)
            # What is there without a document is the beginning of this copy.
            write_new_group(self._store, path, metadata, replace(location, occupied=False), overwrite=False)


def _is_same(present: GroupMetadata, metadata: GroupMetadata) -> bool:
    """Return whether a group that is there is the one that is to be made: its format, and its attributes."""
    format = FORMATS[metadata.zarr_format]
    return format.shares_hierarchy(FORMATS[present.zarr_format]) and dump(present.attributes) == dump(
        metadata.attributes
    )


def _other(path: str, store: ReadableStore) -> ArgumentError:
    return ArgumentError(
        f"'/{path}' in {store!r} is something else than a copy of the source made with these arguments; pass "
        "overwrite=True (--overwrite) to erase it"
    )


def copy(
    source: StoreLike | Array | Group,
    dest: StoreLike,
    *,
    path: str = "",
    dest_path: str = "",
    zarr_format: ZarrFormat | None = None,
    chunks: Any = KEEP,
    shards: Any = KEEP,
    codecs: Any = KEEP,
    device: str = "cpu",
    overwrite: bool = False,
    resume: bool = False,
    read_back: bool = False,
    budget_bytes: int = DEFAULT_BUDGET_BYTES,
    allow_pickle: bool = False,
) -> Array | Group:
    """Copy an array, or a group with all that is below it.

    Elements, attributes, dimension names and fill values are the same in the copy; consolidated metadata is not copied
    (see :func:`gzarr.consolidate_metadata`), and groups without documents get some. Chunks whose codecs, shape and
    elements stay as they are, are copied without decoding them, damaged ones included: :func:`gzarr.verify` finds
    those.

    Parameters
    ----------
    source
        What :func:`gzarr.open` takes, or a node.
    dest
        What :func:`gzarr.create_array` takes.
    path, dest_path
        Of the node in either store. ``path`` is left out where ``source`` is a node.
    zarr_format
        Of the copy; None: the source's.
    chunks, shards, codecs
        As for :func:`gzarr.create_array`, or ``"keep"``. Formats without shards keep the inner chunks as chunks.
    device
        Where elements pass through: ``"cpu"``, or a GPU that decodes and encodes.
    overwrite
        Erase the node that is there, with all that is below it.
    resume
        Go on with a copy that was interrupted. What is there is compared with the source. It is an error if there are
        nodes that the source has not, or not any more: nothing says whether they are wanted.
    read_back
        Read back all that is written, and compare it bit by bit.
    budget_bytes
        Memory for elements and encoded chunks, about. One chunk (shard) of the copy is always held, if it has more.
    allow_pickle
        Allow codecs that run pickled code. Only for data that you trust.

    Returns
    -------
    The copy, to read and write.

    Raises
    ------
    ArgumentError
        If an argument is wrong, if the target format has no words for something, or if there is a node already; nothing
        was changed.
    MetadataError, NodeNotFoundError, ReadOnlyError
        If a node of the source cannot be used, or the destination is read-only; nothing was changed.
    ChunkError, StoreError
        If a chunk cannot be read or written, or is not what was written when it is read back. The copy can be resumed.

    Examples
    --------
    >>> import gzarr
    >>> old, new = {}, {}
    >>> gzarr.save(old, [1, 2, 3], zarr_format=2)
    >>> gzarr.copy(old, new, zarr_format=3, read_back=True)[...].tolist()
    [1, 2, 3]
    """
    planned = prepare_copy(
        source,
        dest,
        path=path,
        dest_path=dest_path,
        zarr_format=zarr_format,
        chunks=chunks,
        shards=shards,
        codecs=codecs,
        device=device,
        overwrite=overwrite,
        resume=resume,
        read_back=read_back,
        budget_bytes=budget_bytes,
        allow_pickle=allow_pickle,
    )
    planned.run()
    reader = NodeReader(planned._store, allow_pickle)
    entry = reader.node(planned._path, None)
    if entry is None:
        raise NodeNotFoundError(f"'/{planned._path}' in {planned._store!r} was erased while it was copied")
    return make_node(
        entry.metadata, reader, planned._path, device=device, missing="fill", children=entry.children, mode="r+"
    )


def prepare_copy(
    source: StoreLike | Array | Group,
    dest: StoreLike,
    *,
    path: str = "",
    dest_path: str = "",
    zarr_format: ZarrFormat | None = None,
    chunks: Any = KEEP,
    shards: Any = KEEP,
    codecs: Any = KEEP,
    device: str = "cpu",
    overwrite: bool = False,
    resume: bool = False,
    read_back: bool = False,
    budget_bytes: int = DEFAULT_BUDGET_BYTES,
    allow_pickle: bool = False,
) -> Copy:
    """Check all of a copy and say what is to be done, without writing anything; parameters are those of :func:`copy`.

    Returns
    -------
    What does it.
    """
    if overwrite and resume:
        raise ArgumentError("overwrite erases what is there, and resume goes on with it: pass one of them")
    if type(budget_bytes) is not int or budget_bytes < 1:
        raise ArgumentError(f"budget_bytes must be a positive integer, not {budget_bytes!r}")
    check_zarr_format(zarr_format, optional=True)
    resolve_device(device)
    root = _open(source, path, allow_pickle=allow_pickle)
    target_format = zarr_format or root.zarr_format
    format = FORMATS[target_format]
    if isinstance(root, Group) and not format.features.groups:
        raise ArgumentError(f"{root.name} is a group, and {format.title} has arrays only; copy its arrays one by one")
    opened, base = as_store(dest, "a")
    target = join_path(base, normalize_path(dest_path))
    store = writable(opened, f"'/{target}'")
    _check_apart(root, store, target)
    location = inspect_location(store, target, target_format)
    check_name(target, location, target_format)
    groups: dict[str, GroupMetadata] = {}
    arrays: list[ArrayCopy] = []
    for below, metadata in _nodes(root):
        to = join_path(target, below)
        if isinstance(metadata, GroupMetadata):
            groups[to] = _group_metadata(metadata, target_format)
            continue
        at = join_path(root.path, below)
        made = _array_metadata(metadata, at, to, target_format, location.layout, chunks, shards, codecs)
        arrays.append(
            ArrayCopy(
                metadata,
                root.store,
                at,
                made,
                store,
                to,
                device=device,
                resume=resume,
                read_back=read_back,
                budget_bytes=budget_bytes,
            )
        )
    planned = Copy(store, target, location, groups, arrays)
    planned.check_free(overwrite=overwrite, resume=resume)
    return planned


def _open(source: StoreLike | Array | Group, path: str, *, allow_pickle: bool) -> Array | Group:
    """Return the node to be copied, as it is in its store now."""
    if isinstance(source, Array | Group):
        if path:
            raise ArgumentError(f"path={path!r} is for a store; the source is a node already")
        store, where = source.store, source.path
    else:
        store, base = as_store(source, "r")
        where = join_path(base, normalize_path(path))
    # An index may be out of date; where nodes cannot be listed it is all there is.
    index = False if isinstance(store, ListableStore) else None
    reader = NodeReader(store, allow_pickle, index)
    entry = reader.node(where, None)
    if entry is None:
        raise NodeNotFoundError(f"no array or group at '/{where}' in {store!r}")
    return make_node(entry.metadata, reader, where, device="cpu", missing="fill", children=entry.children)


def _nodes(root: Array | Group) -> Iterator[tuple[str, NodeMetadata]]:
    """Yield all nodes with their paths relative to ``root``, parents first."""
    yield "", root.metadata
    if isinstance(root, Group):
        for path, node in root.walk():
            if isinstance(node, MetadataError):
                raise node
            yield path, node.metadata


def _check_apart(root: Array | Group, store: Store, target: str) -> None:
    """Refuse to copy something into itself, or over what it is in."""
    places = []
    for its, path in ((root.store, root.path), (store, target)):
        folder = its.file_root() if isinstance(its, LocalFiles) else None
        places.append((None, f"{path}/" if path else "") if folder is None else (b"", _folder(folder, path)))
    (kind, one), (other_kind, other) = places
    same_store = root.store == store if kind is None else kind == other_kind
    if same_store and (one.startswith(other) or other.startswith(one)):
        raise ArgumentError(f"the destination '/{target}' in {store!r} and the source {root.name} lie in each other")


def _folder(root: bytes, path: str) -> str:
    return f"{Path(os.fsdecode(root), path).resolve()}{os.sep}"


def _group_metadata(metadata: GroupMetadata, zarr_format: ZarrFormat) -> GroupMetadata:
    if FORMATS[zarr_format].can_reuse(metadata) and not metadata.implicit:
        document = {name: value for name, value in metadata.document.items() if name != "consolidated_metadata"}
        return replace(metadata, consolidated=None, document=document)
    return GroupMetadata(attributes=metadata.attributes, zarr_format=zarr_format)


def _array_metadata(
    metadata: ArrayMetadata,
    at: str,
    to: str,
    zarr_format: ZarrFormat,
    layout: Layout | None,
    chunks: Any,
    shards: Any,
    codecs: Any,
) -> ArrayMetadata:
    """Return the metadata of the copy of an array.

    Raises
    ------
    ArgumentError
        If an argument is wrong, or if the format has no words for something; it names the array.
    """
    kept = [_is(value, KEEP) for value in (chunks, shards, codecs)]
    format, source_format = FORMATS[zarr_format], FORMATS[metadata.zarr_format]
    if all(kept) and format.can_reuse(metadata):
        return metadata
    arguments = arguments_of(metadata)
    shape = arguments.pop("shape")
    arguments["attributes"] = metadata.attributes
    if format.features.dimension_names and metadata.dimension_names is not None:
        names = dimension_names_of(metadata.attributes, metadata.ndim)
        if not source_format.features.dimension_names and names == metadata.dimension_names:
            # Where version 2 keeps what version 3 has a place for.
            rest = {name: value for name, value in metadata.attributes.items() if name != _DIMENSIONS}
            arguments["attributes"] = rest
    if format.can_reuse(metadata):
        arguments["chunk_key_encoding"] = metadata.chunk_key_encoding
    if not format.features.shards:
        arguments["shards"] = None
    for name, value, keep in zip(("chunks", "shards", "codecs"), (chunks, shards, codecs), kept, strict=True):
        if not keep:
            arguments[name] = value
    try:
        made = new_metadata(to, shape, zarr_format, layout=layout, **arguments)
    except ArgumentError as error:
        hint = ""
        with contextlib.suppress(ArgumentError):
            new_metadata(to, shape, zarr_format, layout=layout, **{**arguments, "codecs": AUTO})
            # Only what was not asked for is for others to change.
            hint = "" if not kept[2] else "; other codecs would do (codecs='auto', --codecs auto)"
        raise ArgumentError(f"'/{at}' cannot be copied to Zarr format {zarr_format!r}: {error}{hint}") from error
    if made.dtype != metadata.dtype or made.shape != metadata.shape:
        raise ArgumentError(
            f"'/{at}' cannot be copied to Zarr format {zarr_format!r} without loss: its elements of {metadata.dtype} "
            f"would become {made.dtype}"
        )
    return made


def _is(value: Any, word: str) -> bool:
    return isinstance(value, str) and value == word
