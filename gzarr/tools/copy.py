"""Copying arrays and hierarchies to another store, format, chunk shape or codec chain, in bounded memory.

- Everything is checked before anything is written, including whether the target format can represent the source.
- Each stored value is written once, as a whole. Arrays are copied by region: as many whole chunks (shards) of the
  target as the budget allows, aligned to chunks of the source where possible, so that these are decoded once.
- Regions without stored chunks in the source are skipped.
- If codecs, chunks and elements stay the same, stored values are copied without decoding them.
- Elements stay the same. Where codecs that are kept would lose something of them once more (:mod:`gzarr.codecs.again`),
  the copy is refused, unless ``lossy``; where that depends on the elements, what is written is read back. So are
  absent chunks, if only these are encoded, because the fill value has another meaning in the copy.
- Values that are part of no node keep their bytes and their keys (:mod:`gzarr.tools.other_values`).
- What readers see beside elements is translated by :mod:`gzarr.metadata.conventions`. A copy in which some reader would
  see less is refused, unless ``lossy``.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ..arrays.array import Array
from ..arrays.objects import object_codec, object_type_of
from ..arrays.stored_chunks import stored_chunks
from ..arrays.view import ArrayView
from ..codecs.again import Kept, kept_by
from ..codecs.choice import AUTO, SourceCodecs
from ..codecs.codec import ArrayRepresentation
from ..errors import ArgumentError, MetadataError, NodeNotFoundError
from ..flags import check_flags
from ..hierarchy.array_spec import new_metadata
from ..hierarchy.create_filled import arguments_like
from ..hierarchy.group import Group, make_node
from ..metadata.conventions import Conventions, differences, with_extras
from ..metadata.formats import FORMATS, format_of_copies
from ..metadata.model import ArrayMetadata, GroupMetadata
from ..metadata.to_documents import SourceAttributes
from ..nodes.change import writable
from ..nodes.location import check_name, inspect_location
from ..nodes.reader import NodeReader
from ..stores.base import is_listable
from ..stores.keys import join_path, normalize_path
from ..stores.places import place_of
from ..stores.places_read import check_apart
from ..stores.resolve import as_store
from .copied_metadata import KEEP, KEPT, array_metadata, check_names, group_metadata, names_axes, unread_codec
from .copy_apart import WAY_OUT, ApartCopy
from .copy_array import ABSENT_OBJECTS, MADE, ArrayCopy, StoredArray
from .copy_options import DEFAULT_BUDGET_BYTES, CopyOptions
from .located import Located, find, reader_for
from .other_values import OtherValues, other_values, why_left_out
from .planned_copy import CopyTarget

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from ..metadata.model import NodeMetadata, ZarrFormat
    from ..stores.base import ReadableStore
    from ..stores.resolve import StoreLike
    from .planned_copy import Copy

_WAYS_OUT: Final = "other codecs keep them (codecs='auto'), and lossy=True copies it nevertheless"


def copy(  # noqa: PLR0913
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
    0.5. Groups that have consolidated metadata get new one, and implicit groups become explicit. Other values below a
    group that are part of no node, such as the Parquet files of SpatialData, keep their bytes and their place, where
    the source can list its keys. If codecs, chunk shape
    and data type stay the same, chunks are copied without decoding them, even corrupt ones (but for those that are far
    too large): :func:`gzarr.verify` finds these.

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
        As for :func:`gzarr.create_array`, or ``"keep"`` for the source's. In formats without shards, ``"keep"`` turns
        inner chunks into chunks. Arrays of Python objects keep the codec that makes bytes of them, and ``codecs`` come
        after it, unless one of them is such a codec itself. ``chunks`` and ``shards`` may also map names of axes to
        lengths, such as ``{"z": 16, "y": 64, "x": -1}``: these are cut to the shape of each array, all else is kept.
        Axes have the names of dimensions, or the axes of the OME-Zarr image that an array is a level of. ``"auto"``
        chooses for each array alone; xarray has ``ds.chunks`` only of arrays with the same chunks along a dimension,
        for which lengths by name are.
    device
        Device that decodes and encodes: ``"cpu"``, ``"cuda"``, ``"cuda:N"`` or ``"auto"``.
    overwrite
        Whether to erase an existing node first, with everything below it; without a node, chunks that would become part
        of the copy.
    resume
        Whether to continue an interrupted copy. Existing data is compared with the source. Existing nodes that the
        source lacks are an error, since they may be wanted; other values that it lacks stay.
    read_back
        Whether to read everything back after writing, and compare it bit by bit, with what readers see beside elements,
        with absent chunks, and with values that are part of no node.
    lossy
        Whether to copy also what some reader will see less of, because the format has no words for it, and elements
        that change because the codecs that are kept lose something each time that they encode, such as zfp, or cannot
        encode every element, such as a fill value of NaN in packed data.
        Chunks of the same shape in the same codecs are copied without loss; absent ones are encoded where another
        format needs another fill value.
    budget_bytes
        Approximate limit in bytes of the memory for elements and encoded chunks. One chunk (shard) of the copy is
        always held, even if it is larger. Strings count as long as they are in a few chunks of the source, which are
        read for that.
    allow_pickle
        Whether codecs that run pickled code are allowed. Only for trusted data. They also are if ``source`` is a node
        that was opened so.
    source_options, dest_options
        Options for the stores of URLs: see :func:`gzarr.open_store`.
    client
        ``distributed.Client``, or any ``concurrent.futures.Executor``, in whose processes chunks are read and written.
        They must see both stores under the same names, and each needs ``budget_bytes`` for each of its threads. None
        for this process. After an error, parts that have begun are waited for; but workers of ``distributed`` may still
        finish theirs later.
    progress
        Whether a copy that takes a while shows a progress bar, on a terminal or in a notebook.

    Returns
    -------
    The copy, open for reading and writing.

    Raises
    ------
    ArgumentError
        If an argument is wrong, if the target format cannot represent the source or its codecs cannot encode it again
        without loss (the message names the array and what would be lost), or if the node exists; nothing was changed.
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
    check_flags(progress=progress)
    options = CopyOptions(
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
    )
    planned = prepare_copy(
        source,
        dest,
        options,
        path=path,
        dest_path=dest_path,
        source_options=source_options,
        dest_options=dest_options,
    )
    planned.run(client, progress=progress)
    target = planned.target
    reader = target.reader
    entry = reader.node(target.path, None)
    if entry is None:
        raise NodeNotFoundError(f"'/{target.path}' in {target.store!r} was erased while it was copied")
    return make_node(
        entry.metadata, reader, target.path, device=device, missing="fill", children=entry.children, mode="r+"
    )


def prepare_copy(
    source: StoreLike | Array | ArrayView | Group,
    dest: StoreLike,
    options: CopyOptions,
    *,
    path: str = "",
    dest_path: str = "",
    source_options: Mapping[str, Any] | None = None,
    dest_options: Mapping[str, Any] | None = None,
    kept_arrays: Collection[str] = (),
) -> Copy:
    """Check and plan a copy, without writing anything.

    Parameters
    ----------
    source, dest, path, dest_path, source_options, dest_options
        As for :func:`copy`.
    options
        How the copy is made.
    kept_arrays
        Paths of arrays in the source whose chunks, shards and codecs are kept, if others read the codecs in the copy.

    Returns
    -------
    The planned copy.
    """
    reader, root = _open(source, path, source_options, allow_pickle=options.allow_pickle)
    zarr_format = options.zarr_format or format_of_copies(root.zarr_format)
    format = FORMATS[zarr_format]
    if isinstance(root, Group) and not format.features.groups:
        raise ArgumentError(f"{root.name} is a group, and {format.title} has arrays only; copy its arrays one by one")
    opened, base = as_store(dest, "a", dest_options)
    target = join_path(base, normalize_path(dest_path))
    store = writable(opened, f"'/{target}'")
    check_apart(root, place_of(store, target), operation="copy", instead=WAY_OUT)
    location = inspect_location(store, target, zarr_format)
    check_name(target, location, zarr_format)
    if options.shards == AUTO and not format.features.shards:
        options = replace(options, shards=None)
    # What was allowed of the source may be in the copy.
    reads = NodeReader(store, reader.allow_pickle, allow_fallback=reader.allow_fallback)
    source_node = (root.store, root.path)
    planned = ApartCopy(CopyTarget(dest, store, target, location, reads), (root.zarr_format, zarr_format), source_node)
    nodes = dict(_nodes(root))
    _plan_nodes(planned, root, nodes, options, frozenset(kept_arrays))
    if isinstance(root, Group):
        _plan_others(planned, root, nodes, options)
    if format.consolidated_document is not None:
        below_of = {join_path(target, below): below for below in nodes}
        planned.consolidated += [path for path in planned.groups if _is_consolidated(root, below_of[path])]
    planned.check_free(overwrite=options.overwrite, resume=options.resume)
    return planned


def _plan_nodes(
    planned: Copy,
    root: Array | ArrayView | Group,
    nodes: Mapping[str, NodeMetadata],
    options: CopyOptions,
    kept_arrays: frozenset[str],
) -> None:
    """Plan the groups and arrays of a copy."""
    target = planned.target
    said = planned.differences
    zarr_format = said.formats[1]
    conventions = Conventions(*said.formats, nodes)
    known: set[str | None] = set()
    for below, metadata in nodes.items():
        to, at = join_path(target.path, below), join_path(root.path, below)
        _check_reserved(below, metadata, zarr_format, f"/{at}")
        if isinstance(metadata, GroupMetadata):
            attributes, members = conventions.of_group(below, metadata.attributes), conventions.members_of_group(below)
            group = group_metadata(metadata, zarr_format, attributes, members)
            planned.groups[to] = group
            if changed := differences(metadata, group):
                said.changes[f"/{at}"] = changed
            continue
        meaning = conventions.of_array(below, metadata)
        stays = at in kept_arrays and unread_codec(metadata, zarr_format) is None
        storage = KEPT if stays else options.storage
        absent_rows = _has_absent_rows(root, metadata, at)
        if absent_rows and all(value is None or isinstance(value, str) for value in storage):
            # "auto" or "keep": of these, what keeps the elements.
            storage = KEPT
        # First, what lossy=True does not help against.
        made = array_metadata(metadata, at, to, zarr_format, target.location.layout, storage, meaning)
        if meaning.losses and not options.lossy:
            raise ArgumentError(
                f"'/{at}' cannot be copied to Zarr format {zarr_format!r} without loss: {'; '.join(meaning.losses)}; "
                "lossy=True copies it nevertheless"
            )
        known.update(meaning.names or ())
        if names_axes(storage.chunks, meaning.names) or names_axes(storage.shards, meaning.names):
            planned.by_name.add(at)
        view = root if isinstance(root, ArrayView) else None
        plan = partial(
            ArrayCopy,
            StoredArray(metadata if view is None else view.base.metadata, root.store, at),
            StoredArray(made, target.store, to),
            writes_absent=meaning.writes_absent,
            part=None if view is None else view.selection,
        )
        array = plan(options)
        # Stored values that are copied keep elements, but not where the source has none and the copy gets one.
        only_absent = array.copies_values and meaning.writes_absent
        losses = meaning.losses
        if absent_rows and (only_absent or not array.copies_values):
            if not options.lossy:
                raise ArgumentError(
                    f"'/{at}' cannot be copied without loss: {ABSENT_OBJECTS}; kept chunks and codecs keep them, "
                    "and lossy=True copies it nevertheless"
                )
            losses = [*losses, ABSENT_OBJECTS]
        # Codecs that the caller asked for are not questioned.
        keeps_codecs = isinstance(storage.codecs, str) and storage.codecs == KEEP
        if keeps_codecs and (_may_lose_absent(root.store, metadata, at) if only_absent else not array.copies_values):
            kept = kept_when_encoded(metadata, f"/{at}")
            # Without elements, there is nothing to lose.
            lost = _lost_elements(kept, only_absent=only_absent) if math.prod(metadata.shape) else None
            if lost is not None and options.lossy:
                losses = [*losses, f"its elements may change, for {lost}"]
            elif lost is not None and kept.elements == "none" and not only_absent:
                raise ArgumentError(
                    f"'/{at}' cannot be copied without loss: its elements may change, for {lost}; {_WAYS_OUT}"
                )
            elif lost is not None:
                checked = options if only_absent else replace(options, read_back=True)
                array = plan(checked, if_different=f"{lost}; {_WAYS_OUT}")
        planned.arrays.append(array)
        if losses:
            said.losses[f"/{at}"] = losses
        absent = ["absent chunks are stored"] if meaning.writes_absent else []
        if changed := losses + differences(metadata, made) + absent + meaning.changes:
            said.changes[f"/{at}"] = changed
    for what, value in (("chunks", options.chunks), ("shards", options.shards)):
        check_names(what, value, known)


def _check_reserved(below: str, metadata: NodeMetadata, zarr_format: ZarrFormat, name: str) -> None:
    """Refuse a node whose name, which its format allows, is reserved by that of the copy."""
    own, format = FORMATS[metadata.zarr_format], FORMATS[zarr_format]
    last = below.rpartition("/")[2]
    if format.is_reserved(last) and not own.is_reserved(last):
        raise ArgumentError(
            f"{name!r} cannot be copied to Zarr format {zarr_format!r}: a node cannot be named {last!r} there, for "
            f"{format.title} reserves such names; give it another name first, or keep the format"
        )


def _plan_others(planned: Copy, root: Group, nodes: Mapping[str, NodeMetadata], options: CopyOptions) -> None:
    """Plan the copy of values below a group that are part of no node."""
    target, said = planned.target, planned.differences
    found = {}
    for below, keys in other_values(root, nodes).items():
        reasons = {
            key: why_left_out(join_path(target.path, key), target.store, said.formats, in_group=key == below)
            for key in keys
        }
        lost = [f"{join_path(root.path, key)!r} is left out: {why}" for key, why in reasons.items() if why is not None]
        if lost and not options.lossy:
            more = f" (one of {len(lost)} such keys)" if len(lost) > 1 else ""
            raise ArgumentError(
                f"'/{root.path}' cannot be copied without loss: {lost[0]}{more}; lossy=True copies the rest"
            )
        if lost:
            node = f"/{join_path(root.path, below.rstrip('/').rpartition('/')[0])}"
            said.losses[node] = [*said.losses.get(node, []), *lost]
            said.changes[node] = [*said.changes.get(node, []), *lost]
        if kept := [key for key, why in reasons.items() if why is None]:
            found[below] = kept
    if found:
        places = [path for path in nodes if path]
        planned.others = OtherValues((root.store, root.path), (target.store, target.path), found, places, options)


def kept_when_encoded(metadata: ArrayMetadata, name: str) -> Kept:
    """Return what becomes of the elements of an array when its codecs encode them again.

    Parameters
    ----------
    metadata, name
        The array, and its name for the error.

    Raises
    ------
    ArgumentError
        If a codec cannot encode.
    """
    for codec in metadata.codecs:
        if not codec.writes:
            raise ArgumentError(
                f"{name!r} cannot be copied: its chunks would have to be encoded again, and {codec.label} is "
                "read-only; other codecs would do (codecs='auto')"
            )
    return kept_by(metadata.codecs, ArrayRepresentation(metadata.chunk_shape, metadata.dtype), metadata.absent_value)


def _has_absent_rows(root: Array | ArrayView | Group, metadata: ArrayMetadata, path: str) -> bool:
    """Return whether an array of rows of any length, or of categories, has absent chunks, if the store can tell.

    Their elements are no rows, and the codec, which knows nothing else, would make some of them. Where the store cannot
    tell, the copy looks at elements.
    """
    found = object_type_of(metadata) if metadata.dtype.hasobject else None
    kind = MADE.get(found.codec or "") if found is not None else None
    if (
        kind is None
        or isinstance(metadata.absent_value, kind)
        or isinstance(root, ArrayView)
        or not is_listable(root.store)
    ):
        return False
    return _has_absent(root.store, metadata, path)


def _may_lose_absent(store: ReadableStore, metadata: ArrayMetadata, path: str) -> bool:
    """Return whether an array may have absent chunks that its codecs cannot encode, or not without loss.

    Where the store cannot tell, a copy by codecs that only read is not refused: it fails if it meets one.
    """
    writes = all(codec.writes for codec in metadata.codecs)
    # Chunks are listed last, for there may be many.
    if writes and kept_when_encoded(metadata, f"/{path}").elements == "all":
        return False
    return _has_absent(store, metadata, path) if is_listable(store) else writes


def _has_absent(store: ReadableStore, metadata: ArrayMetadata, path: str) -> bool:
    """Return whether an array in a store that lists its keys has absent chunks."""
    stored = sum(1 for _ in stored_chunks(store, metadata, path))
    return stored < math.prod(metadata.grid_shape)


def _lost_elements(kept: Kept, *, only_absent: bool) -> str | None:
    """Return why elements of an array may change when its codecs encode them again; None if they stay.

    ``only_absent`` is whether only absent chunks are encoded, which have nothing but the fill value.
    """
    labels = " + ".join(dict.fromkeys(codec.label for codec in kept.codecs))
    if kept.elements == "all":
        return None
    if only_absent:
        return f"its absent chunks are stored, and {labels} may change the fill value in them"
    if kept.elements == "none":
        return f"its chunks are encoded again, and {labels} loses a little each time"
    return f"its chunks are encoded again, and {labels} may make others of some, such as the fill value"


def _open(
    source: StoreLike | Array | ArrayView | Group, path: str, options: Mapping[str, Any] | None, *, allow_pickle: bool
) -> tuple[NodeReader, Array | ArrayView | Group]:
    """Return the node to be copied, in its current state in the store, or a view of it; and its reader.

    What was allowed when a given node was opened is allowed of the copy, too.
    """
    zarr_format: ZarrFormat | None = None
    allow_fallback = False
    if isinstance(source, Array | ArrayView | Group):
        if path:
            raise ArgumentError(f"path={path!r} needs a store as source; this source is already a node")
        if options is not None:
            raise ArgumentError("source_options= is for the URL of a store; this source is already a node")
        store, where = source.store, source.path
        if isinstance(source, Group):
            allow_pickle = allow_pickle or source._reader.allow_pickle
            allow_fallback = source._reader.allow_fallback
            zarr_format = source.metadata.children_format
        else:
            allow_pickle = allow_pickle or object_codec(source.metadata.codecs) == "pickle"
            # The array was read with a fallback, or needs none.
            allow_fallback = True
            zarr_format = source.metadata.zarr_format
    else:
        store, base = as_store(source, "r", options)
        where = join_path(base, normalize_path(path))
    reader = NodeReader(store, allow_pickle, use_consolidated=False, allow_fallback=allow_fallback)
    try:
        entry = find(reader, where, zarr_format)
    except MetadataError as error:
        raise _for_copy(error) from None
    if entry is None:
        raise NodeNotFoundError(f"no array or group at '/{where}' in {store!r}")
    if isinstance(entry.metadata, MetadataError):
        raise _for_copy(entry.metadata)
    node = Located(reader_for(reader), where, entry).node()
    if not isinstance(source, ArrayView):
        return reader, node
    if not isinstance(node, Array) or source._shape_within(node.shape) != source.shape:
        raise ArgumentError(f"{source.name} in {store!r} is not there any more: its array has been changed or replaced")
    return reader, node.view[source.selection]


def _for_copy(error: MetadataError) -> MetadataError:
    """Return an error of a source node as an error of a copy, which has an argument for what has to be allowed."""
    message = error.message.replace("open with allow_pickle=True", "copy with allow_pickle=True")
    return type(error)(message, json_path=error.json_path, key=error.key)


def _as_stored(view: ArrayView) -> ArrayMetadata:
    """Return the metadata of an array with the elements of a view, in chunks and codecs like its array's."""
    arguments = arguments_like(view, {"attributes": SourceAttributes(view.metadata.attributes)})
    arguments["codecs"] = SourceCodecs(arguments["codecs"])
    if FORMATS[view.zarr_format].copied_as is None:
        arguments["chunk_key_encoding"] = view.metadata.chunk_key_encoding
    return with_extras(new_metadata("", **arguments), view.metadata, {})


def _nodes(root: Array | ArrayView | Group) -> Iterator[tuple[str, NodeMetadata]]:
    """Yield all nodes with their paths relative to ``root``, parents first."""
    yield "", _as_stored(root) if isinstance(root, ArrayView) else root.metadata
    if isinstance(root, Group):
        for path, node in root.walk():
            if isinstance(node, MetadataError):
                raise _for_copy(node)
            yield path, node.metadata


def _is_consolidated(root: Array | ArrayView | Group, below: str) -> bool:
    """Return whether a group, at or below ``root``, has consolidated metadata in its store."""
    format, path = FORMATS[root.zarr_format], join_path(root.path, below)
    key = format.consolidated_key(path)
    value = None if key is None else root.store.get(key)
    return value is not None and key is not None and bool(format.without_consolidated(path, {key: value}))
