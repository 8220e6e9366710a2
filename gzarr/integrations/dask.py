"""Arrays of dask over Zarr arrays, in both directions, on one machine or on a cluster.

- A block is one or more whole chunks (shards), so no chunk is decoded twice, and no two tasks write to the same one.
- The graph holds the array itself. A worker that gets it opens its store once for all its tasks, in its own process
  and on its own device.
- Writing a block again gives the same stored values, and each is replaced in one step. So a task may be run again,
  after its worker was killed in the middle of it, or beside it.
"""

from __future__ import annotations

import contextlib
import itertools
import uuid
import warnings
from collections.abc import Mapping, Set
from typing import TYPE_CHECKING, Any, Final

import dask
import dask.array
import dask.local
import dask.threaded
import numpy as np
from dask.layers import ArraySliceDep
from dask.utils import parse_bytes

import gzarr

from ..documents.json import quote
from ..flags import check_flags, flag
from ..installing import COMMANDS
from ..integers import as_integer
from ..nodes.change import writable
from ..stores.aliases import check_not_overwritten
from ..stores.locks import claim
from . import dask_blocks
from .dask_blocks import auto_blocks, check_number, chunks_in, first_shared, splits_chunks, stored_blocks
from .dask_tasks import TaskSource, TaskTarget, check_shared, write_block

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .dask_blocks import Blocks

__all__ = ["from_dask", "store", "to_dask"]

#: Most bytes of a chunk that :func:`from_dask` chooses.
_CHUNK_NBYTES: Final = 1 << 20


# -- reading


def to_dask(
    a: gzarr.Array | gzarr.ArrayView | gzarr.Group, chunks: Any = "auto", *, name: str | bool | None = None
) -> Any:
    """Return an array as a dask array, or the arrays below a group as a dictionary of dask arrays.

    Nothing is read but a listing of the stored values, for the name, and of strings a few chunks, for their length.
    Slices of the result read only the chunks that they need.

    Parameters
    ----------
    a
        Array, view of an array, or group.
    chunks
        Blocks of the dask array. ``"auto"``: whole chunks (shards) of the Zarr array, as many as fit into dask's
        ``array.chunk-size`` (128 MiB), about as long in all dimensions; shards above that are cut into blocks of whole
        inner chunks. A dictionary of lengths by dimension keeps the stored lengths along all others, so that ``{}`` is
        one block for each chunk (shard). Otherwise, as for :func:`dask.array.from_array`.
    name
        Name of the dask array; None for one by the token of the array, which is the same whenever the array is opened,
        and another one after a write, where the store has versions. False for a new one: then, nothing is listed.

    Returns
    -------
    A dask array of NumPy blocks, or of CuPy blocks if the array is on a GPU: each worker then reads to its own current
    GPU. For a group, one for each array below, by its path relative to the group.

    Raises
    ------
    ArgumentError
        If ``chunks`` does not fit the array, or ``a`` is neither an array nor a group.
    MetadataError
        If the metadata of an array below a group is invalid.
    StoreError
        If the store fails.

    Warns
    -----
    dask.array.PerformanceWarning
        If blocks cut chunks: several tasks then decode the same ones.
    """
    if isinstance(a, gzarr.Group):
        if isinstance(name, str):
            raise gzarr.ArgumentError("name= is for one array; the arrays of a group get names of their own")
        return {path: to_dask(node, chunks, name=name) for path, node in _arrays_below(a)}
    if not isinstance(a, (gzarr.Array, gzarr.ArrayView)):
        raise gzarr.ArgumentError(f"to_dask takes an array, a view or a group of gzarr, not {type(a).__name__}")
    if not (name is None or isinstance(name, str | bool)):
        raise gzarr.ArgumentError(f"name must be a string, a truth value or None, not {quote(name)}")
    blocks = _blocks(a, chunks)
    edition = f"gzarr-{uuid.uuid4().hex}"
    if name is None or name is True:
        name = edition = f"gzarr-{dask.base.tokenize(a, blocks)}"
    elif name is False:
        name = edition
    return dask.array.from_array(
        TaskSource(a, edition=edition), chunks=blocks, name=name, inline_array=True, asarray=False, meta=_nothing_of(a)
    )


def _arrays_below(group: gzarr.Group) -> list[tuple[str, gzarr.Array]]:
    found = []
    for path, node in group.walk():
        if isinstance(node, gzarr.MetadataError):
            raise node
        if isinstance(node, gzarr.Array):
            found.append((path, node))
    return found


def _nothing_of(array: gzarr.Array | gzarr.ArrayView) -> Any:
    """Return an array without elements, of the kind of the array's results."""
    if array.device == "cpu" or not array.ndim:
        return np.empty((0,) * array.ndim, array.dtype)
    return array.read((slice(0, 0),) * array.ndim)


def _blocks(array: gzarr.Array | gzarr.ArrayView, chunks: Any) -> Blocks:
    """Return the blocks for an argument ``chunks``."""
    if isinstance(chunks, str) and chunks == "auto":
        return auto_blocks(array, parse_bytes(dask.config.get("array.chunk-size", "128MiB")))
    given = chunks
    # As one for each dimension, they would be what they are made of.
    if isinstance(chunks, bytes | bytearray | Set):
        raise gzarr.ArgumentError(f"chunks must be lengths, sizes, or a dict of them, not {quote(chunks)}")
    # Only these need the stored lengths, of which there may be too many.
    sizes = chunks if isinstance(chunks, (list, tuple)) else [chunks]
    stored = stored_blocks(array) if any(isinstance(size, (str, dict)) for size in sizes) else None
    if isinstance(chunks, dict):
        if not all(hasattr(d, "__index__") for d in chunks):
            raise gzarr.ArgumentError(f"{array.name}: a dict of chunks has numbers of dimensions, not {quote(chunks)}")
        axes = {d % array.ndim if -array.ndim <= d < array.ndim else d: length for d, length in chunks.items()}
        if unknown := [d for d in axes if not 0 <= d < array.ndim]:
            raise gzarr.ArgumentError(f"{array.name} has {array.ndim} dimensions, so chunks cannot name {unknown[0]}")
        chunks = tuple(axes.get(d, lengths) for d, lengths in enumerate(stored or ()))
    _check_lengths(array, chunks)
    try:
        # Without a limit: sizes in chunks set it, and dask takes its own for "auto".
        blocks: Blocks = dask.array.core.normalize_chunks(
            chunks, array.shape, dtype=array.dtype, previous_chunks=stored
        )
    # Tensors raise RuntimeError where they are compared.
    except (TypeError, ValueError, RuntimeError, ArithmeticError) as error:
        raise gzarr.ArgumentError(
            f"chunks={quote(given)} does not fit {array.name} of shape {array.shape}: {str(error).rstrip('.')}; pass a "
            "length, a size such as '64 MiB', 'auto', or one of these, or a tuple of lengths, for each dimension"
        ) from error
    if splits_chunks(array, blocks):
        warnings.warn(
            f"the blocks of {array.name} cut its chunks {array.chunks}, so several tasks decode the same chunks; "
            "choose multiples of these lengths",
            dask.array.PerformanceWarning,
            stacklevel=3,
        )
    return blocks


def _check_lengths(array: gzarr.Array | gzarr.ArrayView, chunks: Any) -> None:
    """Check the number of blocks that one length for a dimension makes of it: dask lists all of them at once."""
    lengths = chunks if isinstance(chunks, (list, tuple)) else (chunks,) * array.ndim
    if len(lengths) == array.ndim:
        counts = [
            -(-size // int(n)) if isinstance(n, int | np.integer) and n >= 1 else 1
            for n, size in zip(lengths, array.shape, strict=True)
        ]
        check_number(array, counts)


# -- writing


def store(
    x: Any,
    a: Any,
    *,
    region: Any = None,
    rechunk: bool = False,
    lock: bool = False,
    compute: bool = True,
    fill_masked: bool = False,
    **options: Any,
) -> Any:
    """Write dask arrays to existing Zarr arrays, block by block.

    Two tasks never write to the same stored value (chunk, or shard of a sharded array) at the same time: blocks that
    would are refused, unless ``rechunk`` or ``lock`` says what to do. Each stored value is replaced in one step, and a
    task may be run again; if the computation fails, some blocks are written and the others are not.

    Parameters
    ----------
    x
        Dask array, or a list of them, which are computed together.
    a
        Array of gzarr, open for writing, of the same shape (the region has it, if there is one), or a list of as many.
    region
        Slices with step 1, one for each dimension: the part of ``a`` to write to. None for all of it. Only for a single
        array. Several computations at a time must not write to regions that share a stored value.
    rechunk
        Whether to rechunk ``x`` where its blocks share stored values: each boundary is moved back to that of a chunk
        (shard).
    lock
        Whether tasks exclude each other by file locks beside the data instead, as in :meth:`gzarr.Array.write`. Only
        for stores that have such locks (directories).
    compute
        Whether to write now, or to return what writes when it is computed.
    fill_masked
        As for :meth:`gzarr.Array.write`.
    **options
        Options of :func:`dask.compute`, such as ``scheduler`` or ``retries``.

    Returns
    -------
    ``a``; without ``compute``, a dask array without dimensions whose value is the number of blocks written, or a list
    of them.

    Raises
    ------
    ArgumentError
        If shapes differ, if blocks share stored values, or if other processes cannot write to the store; nothing was
        written.
    ReadOnlyError
        If an array is read-only; nothing was written.
    ChunkWriteError, ChunkReadError, ChunkDecodeError, StoreError
        As for :meth:`gzarr.Array.write`, by the first task that fails.
    """
    check_flags(rechunk=rechunk, lock=lock, compute=compute, fill_masked=fill_masked)
    several = isinstance(x, list | tuple)
    sources, targets = (list(x), list(a)) if several else ([x], [a])
    if len(sources) != len(targets):
        raise gzarr.ArgumentError(f"there are {len(sources)} dask arrays, but {len(targets)} arrays to write to")
    if several and region is not None:
        raise gzarr.ArgumentError("region= is for one dask array and one array to write to")
    _check_different(targets)
    counts = [
        _writing(source, target, region, rechunk=rechunk, lock=lock, fill_masked=fill_masked)
        for source, target in zip(sources, targets, strict=True)
    ]
    # Last, for this may write: the targets are known to be arrays, open for writing.
    for target in targets:
        check_not_overwritten(
            sources,
            writable(target.store, target.name),
            target.path,
            operation="store",
            instead="blocks would read what others have written; write to another array, compute the dask array "
            "first (x.compute(), x.persist()), or use gzarr.map_blocks",
        )
    if not compute:
        return counts if several else counts[0]
    if _takes_other_processes(counts, options):
        for target in targets:
            check_shared(target)
    dask.compute(*counts, **options)
    return a


def _check_different(targets: Sequence[Any]) -> None:
    for one, other in itertools.combinations([a for a in targets if isinstance(a, gzarr.Array)], 2):
        if _place(one).is_same(_place(other)):
            raise gzarr.ArgumentError(f"{one.name} is written to twice; write the dask arrays one after the other")


def _place(array: gzarr.Array) -> gzarr.stores.Place:
    return gzarr.stores.place_of(array.store, array.path)


def _takes_other_processes(collections: Sequence[Any], options: Mapping[str, Any]) -> bool:
    """Return whether tasks will run, or may run, in other processes than this one."""
    get = dask.base.get_scheduler(scheduler=options.get("scheduler"), collections=collections)
    return get not in (dask.threaded.get, dask.local.get_sync)


def _writing(x: Any, a: Any, region: Any, *, rechunk: bool, lock: bool, fill_masked: bool = False) -> Any:
    """Return a dask array that writes ``x`` when it is computed; its value is the number of blocks."""
    if not isinstance(a, gzarr.Array):
        raise gzarr.ArgumentError(f"store writes to an array of gzarr, not to {type(a).__name__}")
    if not isinstance(x, dask.array.Array):
        raise gzarr.ArgumentError(
            f"store takes a dask array, not {type(x).__name__}; write others with a[...] = values"
        )
    if a.read_only:
        raise gzarr.ReadOnlyError(f"{a.name} in {a.store!r} is read-only; open it with mode='r+' to change it")
    if any(n != n for n in x.shape):
        raise gzarr.ArgumentError("the dask array has blocks of unknown lengths; call x.compute_chunk_sizes() first")
    offset = _offset(x, a, region)
    if lock and not hasattr(a.store, "lock"):
        raise gzarr.ArgumentError(f"{a.store!r} has no locks between processes; pass rechunk=True instead")
    shared = first_shared(a, x.chunks, offset)
    if shared is not None and not lock:
        if not rechunk:
            d, at = shared
            length = a.metadata.chunk_shape[d]
            what = "shard" if a.shards is not None else "chunk"
            raise gzarr.ArgumentError(
                f"blocks of the dask array meet at {at} in dimension {d} of {a.name}, within a {what} ({length} long "
                f"there), so two tasks would write to the same one: pass rechunk=True, or x.rechunk(...) to multiples "
                f"of {a.metadata.chunk_shape}, or lock=True in a directory"
            )
        x = x.rechunk(dask_blocks.moved_blocks(a, x.chunks, offset))
    whole = dask_blocks.are_whole(a, x.chunks, offset)
    target = TaskTarget.of(a, lock=lock, aligned=whole and not lock, offset=offset, fill_masked=fill_masked)
    written = x.map_blocks(
        write_block,
        target,
        ArraySliceDep(x.chunks),
        chunks=tuple((1,) * n for n in x.numblocks),
        dtype=np.int64,
        meta=np.empty((0,) * x.ndim, np.int64),
        # A new name: it must be written even if the same blocks were written before.
        name=f"gzarr-store-{uuid.uuid4().hex}",
    )
    return written.sum()


def _offset(x: Any, a: gzarr.Array, region: Any) -> tuple[int, ...]:
    """Return the position in an array that the first element of ``x`` has."""
    shape = a.shape
    offset = (0,) * a.ndim
    if region is not None:
        slices = tuple(region) if isinstance(region, list | tuple) else (region,)
        try:
            if not all(isinstance(s, slice) and (s.step is None or as_integer(s.step) == 1) for s in slices):
                raise TypeError
            bounds = [s.indices(n) for s, n in zip(slices, a.shape, strict=True)]
        # Not slices, of something else than integers, or not as many.
        except (TypeError, ValueError):
            raise gzarr.ArgumentError(
                f"region must be a tuple of {a.ndim} slices with step 1, not {quote(region)}"
            ) from None
        offset = tuple(begin for begin, _, _ in bounds)
        shape = tuple(max(end - begin, 0) for begin, end, _ in bounds)
    if tuple(x.shape) != shape:
        where = f"the region {quote(region)} of {a.name}" if region is not None else a.name
        raise gzarr.ArgumentError(f"the dask array has the shape {tuple(x.shape)}, but {where} has {shape}")
    return offset


def from_dask(  # noqa: PLR0913
    x: Any,
    store: Any,
    *,
    path: str = "",
    chunks: Any = "auto",
    shards: Any = None,
    rechunk: bool = False,
    lock: bool = False,
    compute: bool = True,
    fill_masked: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    compute_options: Mapping[str, Any] | None = None,
    **arguments: Any,
) -> Any:
    """Create a Zarr array from a dask array, block by block.

    The array is created first, in every kind of store. If the computation fails or is killed, it stays, and blocks that
    were not written have the fill value; what ``overwrite=True`` replaces is gone. To keep the old array until the new
    one is complete, write to another path, erase the old one, and move the new one there.

    Parameters
    ----------
    x
        Dask array.
    store, path, storage_options
        Where the array is created, as for :func:`gzarr.create_array`.
    chunks
        As for :func:`gzarr.create_array`. ``"auto"``: chunks of up to 1 MiB, of which the blocks are multiples.
    shards
        As for :func:`gzarr.create_array`. ``"auto"``: one shard for each block, if all blocks have the same shape.
    rechunk, lock
        As for :func:`store`: what to do with blocks that share chunks (shards).
    compute
        Whether to write now. If not, the array is created, but not its elements.
    fill_masked
        Whether masked elements become the fill value; otherwise they are an error.
    compute_options
        Options of :func:`dask.compute`, such as ``{"retries": 3}``.
    **arguments
        Other arguments of :func:`gzarr.create_array`: ``codecs``, ``fill_value``, ``attributes``, ``overwrite``, …

    Returns
    -------
    The array, open for reading and writing; without ``compute``, the array and a dask array without dimensions that
    writes the elements when it is computed.

    Raises
    ------
    ArgumentError
        As for :func:`gzarr.create_array` and :func:`store`; also if ``x`` has blocks without a common length, and
        ``chunks`` is not given. Nothing was created, unless other processes cannot write to the store, or the chunks
        that were chosen for ``shards`` do not suit the blocks.
    ReadOnlyError, NodeTypeError, DeviceError, StoreError, ChunkWriteError
        As for :func:`gzarr.create_array` and :func:`store`.
    """
    check_flags(rechunk=rechunk, lock=lock, compute=compute, fill_masked=fill_masked)
    compute_options = {} if compute_options is None else compute_options
    if not isinstance(compute_options, Mapping):
        raise gzarr.ArgumentError(f"compute_options must be a dict, not {quote(compute_options)}")
    if not isinstance(x, dask.array.Array):
        raise gzarr.ArgumentError(f"from_dask takes a dask array, not {type(x).__name__}")
    if any(n != n for n in x.shape):
        raise gzarr.ArgumentError("the dask array has blocks of unknown lengths; call x.compute_chunk_sizes() first")
    on_device = hasattr(x._meta, "__cuda_array_interface__")
    arguments = {"dtype": x.dtype, "device": "cuda" if on_device else "cpu", **arguments}
    chunks, shards = _chunks_for(x, chunks, shards, rechunk=rechunk)
    layout = {"shape": x.shape, "chunks": chunks, "shards": shards}
    # In memory first, so that blocks that share chunks are found before anything is created.
    trial = gzarr.create_array({}, **layout, **{**arguments, "overwrite": False, "device": "cpu"})
    if not lock:
        _writing(x, trial, None, rechunk=rechunk, lock=False)
    with contextlib.ExitStack() as held:
        if flag("overwrite", arguments.get("overwrite", False)):
            target = _not_read(x, store, path or arguments.get("name") or "", storage_options)
            if compute:
                # Until the elements are written, or another process would overwrite the half of them.
                held.enter_context(claim(*target))
        array = gzarr.create_array(store, path=path, storage_options=storage_options, **layout, **arguments)
        written = _store(
            x, array, rechunk=rechunk, lock=lock, compute=compute, fill_masked=fill_masked, **compute_options
        )
    return array if compute else (array, written)


_store = store


def _not_read(x: Any, store: Any, path: str, storage_options: Mapping[str, Any] | None) -> tuple[Any, str]:
    """Refuse to erase what a dask array is still to be read from; return the store, and the path in it."""
    opened, base = gzarr.stores.as_store(store, "w", storage_options)
    where = "/".join(part for part in (base, path.strip("/")) if part)
    check_not_overwritten(
        x,
        writable(opened, f"'/{where}'"),
        where,
        operation="from_dask",
        instead="write to another path, or compute the dask array first (x.compute(), x.persist())",
    )
    return opened, where


def _chunks_for(x: Any, chunks: Any, shards: Any, *, rechunk: bool) -> tuple[Any, Any]:
    """Return the arguments ``chunks`` and ``shards`` for a new array that takes the blocks of ``x``."""
    auto = isinstance(chunks, str) and chunks == "auto"
    shards_auto = isinstance(shards, str) and shards == "auto"
    if not auto or not (shards is None or shards_auto) or not x.ndim:
        return chunks, shards
    itemsize = 64 if x.dtype.hasobject else max(x.dtype.itemsize, 1)
    found = chunks_in(x.chunks, itemsize, _CHUNK_NBYTES)
    if found is None:
        if rechunk:
            return chunks, shards
        raise gzarr.ArgumentError(
            "the blocks of the dask array have no common length, so no chunks suit them: pass rechunk=True, or chunks= "
            "with rechunk=True, or x.rechunk(...) to blocks of one shape"
        )
    return found[0], found[1] if shards_auto else None


# -- clusters


@contextlib.contextmanager
def connected(address: str) -> Any:
    """Connect to a scheduler of dask.distributed for a while.

    Parameters
    ----------
    address
        Address of the scheduler, such as ``tcp://10.0.0.1:8786``.

    Raises
    ------
    ArgumentError
        If there is no scheduler at this address, or dask.distributed is not installed.
    """
    try:
        from distributed import Client
        from distributed.comm import resolve_address
    except ImportError as error:
        raise gzarr.ArgumentError(
            f"clusters of dask need the package distributed ({COMMANDS['distributed']}): {error}"
        ) from error
    try:
        # A client without a valid address waits for a minute until it ends. For the name of a host, a client may wait.
        with contextlib.suppress(OSError):
            resolve_address(address)
        client = Client(address, set_as_default=False)
    except (OSError, ValueError) as error:
        raise gzarr.ArgumentError(f"there is no scheduler of dask at {address!r}: {error}") from error
    with client:
        yield client
