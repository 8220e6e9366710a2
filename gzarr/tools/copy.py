"""Copying arrays and hierarchies to another store, format, chunk shape or codec chain, in bounded memory.

- Everything is checked before anything is written, including whether the target format can represent the source.
- Groups are written before their members, the documents of an array after its chunks. So an existing array is always
  complete, and a copy that fails or is killed leaves chunks without an array, which nobody reads.
- Each stored value is written once, as a whole. Arrays are copied by region: as many whole chunks (shards) of the
  target as the budget allows, aligned to chunks of the source where possible, so that these are decoded once.
- Regions without stored chunks in the source are skipped.
- ``resume`` trusts no existing data: it is read, compared with the source, and written again where it differs. Nodes
  that the source lacks are neither erased nor silently kept: they are an error.
- If codecs, chunks and elements stay the same, stored values are copied without decoding them.
- What readers see beside elements is translated by :mod:`gzarr.metadata.conventions`. A copy in which some reader would
  see less is refused, unless ``lossy``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from ..arrays.array import Array
from ..arrays.device_choice import resolve_device
from ..arrays.view import ArrayView
from ..codecs.choice import AUTO
from ..errors import ArgumentError, MetadataError, NodeNotFoundError
from ..hierarchy.array_spec import UNDEFINED, new_metadata
from ..hierarchy.create_filled import arguments_like
from ..hierarchy.group import Group, make_node
from ..metadata.conventions import Conventions, differences
from ..metadata.formats import FORMATS, check_zarr_format, format_of_copies
from ..metadata.model import ArrayMetadata, GroupMetadata
from ..metadata.to_documents import dump
from ..nodes.change import delete_node, hold_documents, reader_of, writable
from ..nodes.create import check_name, inspect_location, stray_chunks, write_new_group
from ..nodes.reader import NodeReader
from ..progress import watch
from ..stores.base import flushing, is_listable
from ..stores.keys import join_path, normalize_path
from ..stores.locks import hold_node
from ..stores.places import place_of
from ..stores.places_read import check_apart
from ..stores.resolve import as_store
from .consolidate import consolidate_metadata
from .copied_metadata import KEEP, array_metadata, check_lengths, check_names, group_metadata, names_axes
from .copy_array import ArrayCopy
from .processes import as_executor, check_shared

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from ..metadata.model import NodeMetadata, ZarrFormat
    from ..nodes.create import Location
    from ..stores.base import ReadableStore, Store
    from ..stores.resolve import StoreLike

DEFAULT_BUDGET_BYTES: Final = 256 << 20


class Copy:
    """A planned and checked copy; see :func:`prepare_copy`. Nothing is written before :meth:`steps`.

    Attributes
    ----------
    groups
        Metadata of each group by path in the target, parents first.
    arrays
        Copies of the arrays.
    formats
        Zarr formats of the source and of the copy.
    changes
        By path in the source, what the copy says otherwise than the source beside storage, in lines of text.
    losses
        By path in the source, what some reader will no longer see, with ``lossy``; also among the changes.
    consolidated
        Paths in the target of the groups whose metadata is consolidated, as in the source.
    by_name
        Paths in the source of the arrays whose chunks or shards were given by the names of their axes.
    """

    def __init__(
        self,
        store: Store,
        path: str,
        location: Location,
        groups: dict[str, GroupMetadata],
        arrays: list[ArrayCopy],
        given: StoreLike,
        formats: tuple[ZarrFormat, ZarrFormat],
        changes: dict[str, list[str]],
        losses: dict[str, list[str]],
        consolidated: list[str],
    ) -> None:
        self._store = store
        self._given = given
        self._path = path
        self._location = location
        self.by_name: frozenset[str] = frozenset()
        self._erase = False
        self._resume = False
        self.groups = groups
        self.arrays = arrays
        self.formats = formats
        self.changes = changes
        self.losses = losses
        self.consolidated = consolidated

    @property
    def total(self) -> int:
        """Upper limit of the number of steps."""
        return sum(array.total for array in self.arrays)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements of all arrays."""
        return sum(array.source.nbytes for array in self.arrays)

    @property
    def written(self) -> int:
        """Number of regions (stored values, in arrays that are not decoded) written so far."""
        return sum(array.written for array in self.arrays)

    @property
    def kept(self) -> int:
        """Number of regions (stored values, in arrays that are not decoded) found equal so far, and not written."""
        return sum(array.kept for array in self.arrays)

    def groups_below(self) -> Iterator[tuple[str, GroupMetadata]]:
        """Yield the groups with their paths below the copied node, parents first."""
        for path, metadata in self.groups.items():
            yield path.removeprefix(self._path).lstrip("/"), metadata

    def check_free(self, *, overwrite: bool, resume: bool) -> None:
        """Refuse an occupied destination, unless it is to be erased or holds the beginning of this copy.

        Raises
        ------
        ArgumentError
            If the destination is occupied. The message names the node.
        """
        where = f"'/{self._path}' in {self._store!r}"
        self._resume = resume
        if resume:
            self._check_same()
            self._check_no_others()
            return
        taken = "is a node" if self._location.occupied else ""
        if not taken and self.arrays and not self.groups:
            (array,) = self.arrays
            taken = "are chunks without an array" if stray_chunks(self._store, self._path, array.metadata) else ""
        if taken and not overwrite:
            raise ArgumentError(
                f"there {taken} at {where} already; pass resume=True (--resume) to continue an interrupted copy, "
                "or overwrite=True (--overwrite) to erase it with everything below it"
            )
        self._erase = bool(taken)

    def _check_same(self) -> None:
        """Refuse to resume a different copy."""
        for path, metadata in self.groups.items():
            present = self._present(path)
            if isinstance(present, GroupMetadata) and (present.implicit or _is_same(present, metadata)):
                continue
            if present is not None:
                raise _other(path, self._store)
        for array in self.arrays:
            self._check_array(array)

    def _check_array(self, array: ArrayCopy) -> None:
        """Refuse a path of an array that holds anything but the array to be resumed."""
        present = self._present(array.path)
        # Chunks of an array without documents may look like a group.
        if present is None or (self._resume and isinstance(present, GroupMetadata) and present.implicit):
            return
        if not self._resume or not isinstance(present, ArrayMetadata) or not array.is_described_by(present):
            raise _other(array.path, self._store)
        array.has_documents = True

    def _check_no_others(self) -> None:
        """Refuse to resume the copy of a group that has nodes the source lacks."""
        if not is_listable(self._store):
            return
        planned = {*self.groups, *(array.path for array in self.arrays)}
        reader = reader_of(self._store)
        for path, metadata in self.groups.items():
            others = [join_path(path, name) for name in reader.children(path, metadata.zarr_format)]
            others = [other for other in others if other not in planned]
            if others:
                raise ArgumentError(
                    f"'/{others[0]}' in {self._store!r} is not in the source, or no longer (one of {len(others)} in "
                    f"'/{path}'): resume=True (--resume) erases no nodes; erase unwanted ones yourself, or pass "
                    "overwrite=True (--overwrite) to start over"
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

    def steps(self, client: Any = None) -> Iterator[int]:
        """Copy; yield the number of finished steps after each part. Iterate in one thread: it holds locks.

        ``client`` is as for :func:`copy`.
        """
        executor = None
        if client is not None:
            executor = as_executor(client)
            check_shared(self._store, "the destination")
            for array in self.arrays:
                check_shared(array.source.store, "the source")
        with flushing(self._given, self._store):
            yield from self._steps(executor)

    def _steps(self, executor: Any) -> Iterator[int]:
        if self._erase:
            delete_node(self._store, self._path)
            self._location = inspect_location(self._store, self._path, self._format)
        for parent in self._location.parents:
            self._make_group(parent, GroupMetadata(zarr_format=self._format), may_exist=True)
        for path, metadata in self.groups.items():
            self._make_group(path, metadata, may_exist=self._resume)
        for array in self.arrays:
            # Its documents come last. Until then, only this lock keeps others from creating a node in its place.
            with hold_node(self._store, array.path):
                self._check_array(array)
                yield from array.steps(executor)
        # Those of groups below come first, for they make those above outdated.
        for path in sorted(self.consolidated, key=len, reverse=True):
            consolidate_metadata(self._store, path=path, zarr_format=self._format)

    def run(self, client: Any = None, *, progress: bool = True) -> None:
        """Run the whole copy; ``client`` and ``progress`` are as for :func:`copy`."""
        steps = self.steps(client)
        watched = watch(steps, "copying", self.total, count=int, nbytes=self.nbytes) if progress else steps
        for _ in watched:
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
            # Keys without a document are the beginning of this copy.
            write_new_group(self._store, path, metadata, replace(location, occupied=False), overwrite=False)


def _is_same(present: GroupMetadata, metadata: GroupMetadata) -> bool:
    """Return whether an existing group has the format and the attributes of the one to be created."""
    format = FORMATS[metadata.zarr_format]
    return format.shares_hierarchy(FORMATS[present.zarr_format]) and dump(present.attributes) == dump(
        metadata.attributes
    )


def _other(path: str, store: ReadableStore) -> ArgumentError:
    return ArgumentError(
        f"'/{path}' in {store!r} is not a copy of the source made with these arguments; pass overwrite=True "
        "(--overwrite) to erase it"
    )


def copy(
    source: StoreLike | Array | ArrayView | Group,
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
    lossy: bool = False,
    budget_bytes: int = DEFAULT_BUDGET_BYTES,
    allow_pickle: bool = False,
    source_options: Mapping[str, Any] | None = None,
    dest_options: Mapping[str, Any] | None = None,
    client: Any = None,
    progress: bool = True,
) -> Array | Group:
    """Copy an array, or a group with everything below it.

    The copy has the same elements, attributes, dimension names and fill values. In another format, readers see the same
    by that format's conventions (docs/policy.md has a table): missing elements, which xarray knows by the fill value in
    Zarr 2 and by the attribute ``_FillValue`` in Zarr 3, names of dimensions, attributes of NCZarr, and OME-Zarr 0.4 or
    0.5. Groups that have consolidated metadata get new one, and implicit groups become explicit. If codecs, chunk shape
    and data type stay the same, chunks are copied without decoding them, even corrupt ones: :func:`gzarr.verify` finds
    those.

    Parameters
    ----------
    source
        Store as for :func:`gzarr.open`, or an array, a view of one, or a group.
    dest
        Store as for :func:`gzarr.create_array`.
    path, dest_path
        Paths of the node in the source and in the destination. ``path`` is omitted if ``source`` is a node.
    zarr_format
        Zarr format of the copy; None for that of the source, and 3 for N5.
    chunks, shards, codecs
        As for :func:`gzarr.create_array`, or ``"keep"`` for the source's. In formats without shards, ``"keep"``
        turns inner chunks into chunks. ``chunks`` and ``shards`` may also map names of axes to lengths, such as
        ``{"z": 16, "y": 64, "x": -1}``: these are cut to the shape of each array, all else is kept. Axes have the names
        of dimensions, or the axes of the OME-Zarr image that an array is a level of.
    device
        Device that decodes and encodes: ``"cpu"``, ``"cuda"``, ``"cuda:N"`` or ``"auto"``.
    overwrite
        Whether to erase an existing node first, with everything below it.
    resume
        Whether to continue an interrupted copy. Existing data is compared with the source. Existing nodes that the
        source lacks are an error, since they may be wanted.
    read_back
        Whether to read everything back after writing, and compare it bit by bit, with what readers see beside elements,
        and with absent chunks.
    lossy
        Whether to copy also what some reader will see less of, because the format has no words for it.
    budget_bytes
        Approximate limit in bytes of the memory for elements and encoded chunks. One chunk (shard) of the copy is
        always held, even if it is larger.
    allow_pickle
        Whether codecs that run pickled code are allowed. Only for trusted data.
    source_options, dest_options
        Options for the stores of URLs: see :func:`gzarr.open_store`.
    client
        ``distributed.Client``, or any ``concurrent.futures.Executor``, in whose processes chunks are read and written.
        They must see both stores under the same names, and each needs ``budget_bytes`` for each of its threads. None
        for this process.
    progress
        Whether a copy that takes a while shows a progress bar, on a terminal or in a notebook.

    Returns
    -------
    The copy, open for reading and writing.

    Raises
    ------
    ArgumentError
        If an argument is wrong, if the target format cannot represent the source (the message names the array and what
        would be lost), or if the node exists; nothing was changed.
    MetadataError, NodeNotFoundError, ReadOnlyError
        If the metadata of a source node is invalid, there is no source node, or the destination is read-only; nothing
        was changed.
    ChunkError, StoreError
        If a chunk cannot be read or written, or differs when it is read back. The copy can be resumed.

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
        lossy=lossy,
        budget_bytes=budget_bytes,
        allow_pickle=allow_pickle,
        source_options=source_options,
        dest_options=dest_options,
    )
    planned.run(client, progress=progress)
    reader = NodeReader(planned._store, allow_pickle)
    entry = reader.node(planned._path, None)
    if entry is None:
        raise NodeNotFoundError(f"'/{planned._path}' in {planned._store!r} was erased while it was copied")
    return make_node(
        entry.metadata, reader, planned._path, device=device, missing="fill", children=entry.children, mode="r+"
    )


def prepare_copy(
    source: StoreLike | Array | ArrayView | Group,
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
    lossy: bool = False,
    budget_bytes: int = DEFAULT_BUDGET_BYTES,
    allow_pickle: bool = False,
    source_options: Mapping[str, Any] | None = None,
    dest_options: Mapping[str, Any] | None = None,
    kept_arrays: Collection[str] = (),
) -> Copy:
    """Check and plan a copy, without writing anything; other parameters as for :func:`copy`.

    Parameters
    ----------
    kept_arrays
        Paths of arrays in the source whose chunks, shards and codecs are kept.

    Returns
    -------
    The planned copy.
    """
    if overwrite and resume:
        raise ArgumentError("overwrite erases an existing copy, and resume continues it: pass only one of them")
    if type(budget_bytes) is not int or budget_bytes < 1:
        raise ArgumentError(f"budget_bytes must be a positive integer, not {budget_bytes!r}")
    check_zarr_format(zarr_format, optional=True, new=True)
    resolve_device(device)
    check_lengths("chunks", chunks)
    check_lengths("shards", shards)
    root = _open(source, path, source_options, allow_pickle=allow_pickle)
    target_format = zarr_format or format_of_copies(root.zarr_format)
    format = FORMATS[target_format]
    if isinstance(root, Group) and not format.features.groups:
        raise ArgumentError(f"{root.name} is a group, and {format.title} has arrays only; copy its arrays one by one")
    opened, base = as_store(dest, "a", dest_options)
    target = join_path(base, normalize_path(dest_path))
    store = writable(opened, f"'/{target}'")
    check_apart(
        root, place_of(store, target), operation="copy", instead="copy to another path, and move the copy if need be"
    )
    location = inspect_location(store, target, target_format)
    check_name(target, location, target_format)
    if shards == AUTO and not format.features.shards:
        shards = None
    groups: dict[str, GroupMetadata] = {}
    arrays: list[ArrayCopy] = []
    changes: dict[str, list[str]] = {}
    losses: dict[str, list[str]] = {}
    known: set[str | None] = set()
    by_name: set[str] = set()
    nodes = dict(_nodes(root))
    conventions = Conventions(root.zarr_format, target_format, nodes)
    for below, metadata in nodes.items():
        to, at = join_path(target, below), join_path(root.path, below)
        if isinstance(metadata, GroupMetadata):
            group = group_metadata(metadata, target_format, conventions.of_group(below, metadata.attributes))
            groups[to] = group
            if changed := differences(metadata, group):
                changes[f"/{at}"] = changed
            continue
        meaning = conventions.of_array(below, metadata)
        if meaning.losses and not lossy:
            raise ArgumentError(
                f"'/{at}' cannot be copied to Zarr format {target_format!r} without loss: {'; '.join(meaning.losses)}; "
                "lossy=True (--lossy) copies it nevertheless"
            )
        wanted: tuple[Any, Any, Any] = (KEEP, KEEP, KEEP) if at in kept_arrays else (chunks, shards, codecs)
        names = conventions.names(below, metadata)
        made = array_metadata(
            metadata,
            at,
            to,
            target_format,
            location.layout,
            *wanted,
            meaning=meaning,
            axes=conventions.axes(below),
            names=names,
        )
        known.update(names or ())
        if any(names_axes(value, names) for value in wanted[:2]):
            by_name.add(at)
        if meaning.losses:
            losses[f"/{at}"] = meaning.losses
        absent = ["absent chunks are stored"] if meaning.writes_absent else []
        if changed := meaning.losses + differences(metadata, made) + absent + meaning.changes:
            changes[f"/{at}"] = changed
        view = root if isinstance(root, ArrayView) else None
        arrays.append(
            ArrayCopy(
                metadata if view is None else view.base.metadata,
                root.store,
                at,
                made,
                store,
                to,
                device=device,
                resume=resume,
                read_back=read_back,
                writes_absent=meaning.writes_absent,
                budget_bytes=budget_bytes,
                part=None if view is None else view.selection,
            )
        )
    for what, value in (("chunks", chunks), ("shards", shards)):
        check_names(what, value, known)
    consolidated = []
    if format.consolidated_document is not None:
        below_of = {join_path(target, below): below for below in nodes}
        consolidated = [path for path in groups if _is_consolidated(root, below_of[path])]
    formats = root.zarr_format, target_format
    planned = Copy(store, target, location, groups, arrays, dest, formats, changes, losses, consolidated)
    planned.by_name = frozenset(by_name)
    planned.check_free(overwrite=overwrite, resume=resume)
    return planned


def _open(
    source: StoreLike | Array | ArrayView | Group, path: str, options: Mapping[str, Any] | None, *, allow_pickle: bool
) -> Array | ArrayView | Group:
    """Return the node to be copied, in its current state in the store, or a view of it."""
    if isinstance(source, Array | ArrayView | Group):
        if path:
            raise ArgumentError(f"path={path!r} needs a store as source; this source is already a node")
        if options is not None:
            raise ArgumentError("source_options= is for the URL of a store; this source is already a node")
        store, where = source.store, source.path
    else:
        store, base = as_store(source, "r", options)
        where = join_path(base, normalize_path(path))
    # Consolidated metadata may be out of date; a store that cannot list has nothing else.
    index = False if is_listable(store) else None
    reader = NodeReader(store, allow_pickle, index)
    entry = reader.node(where, None)
    if entry is None:
        raise NodeNotFoundError(f"no array or group at '/{where}' in {store!r}")
    node = make_node(entry.metadata, reader, where, device="cpu", missing="fill", children=entry.children)
    if not isinstance(source, ArrayView):
        return node
    if not isinstance(node, Array) or source._shape_within(node.shape) != source.shape:
        raise ArgumentError(f"{source.name} in {store!r} is not there any more: its array has been changed or replaced")
    return node.view[source.selection]


def _as_stored(view: ArrayView) -> ArrayMetadata:
    """Return the metadata of an array with the elements of a view, in chunks and codecs like its array's."""
    arguments = arguments_like(view, {"attributes": view.metadata.attributes})
    if arguments["fill_value"] is None:
        arguments["fill_value"] = UNDEFINED
    if FORMATS[view.zarr_format].copied_as is None:
        arguments["chunk_key_encoding"] = view.metadata.chunk_key_encoding
    return new_metadata("", **arguments)


def _nodes(root: Array | ArrayView | Group) -> Iterator[tuple[str, NodeMetadata]]:
    """Yield all nodes with their paths relative to ``root``, parents first."""
    yield "", _as_stored(root) if isinstance(root, ArrayView) else root.metadata
    if isinstance(root, Group):
        for path, node in root.walk():
            if isinstance(node, MetadataError):
                raise node
            yield path, node.metadata


def _is_consolidated(root: Array | ArrayView | Group, below: str) -> bool:
    """Return whether a group, at or below ``root``, has consolidated metadata in its store."""
    format, path = FORMATS[root.zarr_format], join_path(root.path, below)
    key = format.consolidated_key(path)
    value = None if key is None else root.store.get(key)
    return value is not None and key is not None and bool(format.without_consolidated(path, {key: value}))
