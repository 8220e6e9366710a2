"""Groups of gzarr as xarray's data stores."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import warnings
from collections import UserDict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import xarray as xr
from xarray.backends import AbstractDataStore
from xarray.backends.common import _decode_variable_name
from xarray.core import indexing

import gzarr

from ..documents.json import quote
from ..flags import optional_flag
from . import xarray_encoding as encoded
from .xarray_arrays import StoredArray, dtype_as_stored

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from gzarr.stores.resolve import StoreLike

    from .group_patterns import GroupPattern

#: Formats whose arrays have masked elements by an attribute only, not by their fill value.
UNMASKED = (3, "n5")
#: Groups, and coordinates, that are read at a time.
_THREADS = 32
#: Largest coordinate that is read before it is used.
_MOST_BYTES = 1 << 20
#: Groups that a message names.
_NAMED = 10
#: A URL, or a chain of fsspec's; anything else is a path.
_URL = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]+(://|::)")


class GzarrStore(AbstractDataStore):  # type: ignore[misc]
    """The arrays of a group as variables of xarray, not decoded.

    Parameters
    ----------
    group
        The group, opened for reading to the host or a device.
    masked
        Whether the arrays' fill values are masked; None if the group's format is older than version 3.

    There is nothing to close: stores that are read hold no files or connections of their own.
    """

    __slots__ = ("_encodings", "_nodes", "_values", "group", "masked")

    def __init__(self, group: gzarr.Group, *, masked: bool | None = None) -> None:
        self.group: gzarr.Group = group
        self.masked: bool = group.zarr_format not in UNMASKED if masked is None else masked
        self._encodings = encoded.Encodings()
        # Nodes directly below, once they have been read, and elements of coordinates by name.
        self._nodes: dict[str, gzarr.Array | GzarrStore | gzarr.MetadataError] | None = None
        self._values: dict[str, Any] = {}

    @classmethod
    def open(
        cls,
        store: StoreLike | AbstractDataStore,
        *,
        group: str | os.PathLike[str] | None = None,
        mode: Any = "r",
        consolidated: bool | None = None,
        storage_options: Mapping[str, Any] | None = None,
        zarr_format: Any = None,
        use_zarr_fill_value_as_mask: bool | None = None,
        device: str = "cpu",
    ) -> Self:
        """Open a group; parameters and errors as for :meth:`GzarrBackendEntrypoint.open_dataset`."""
        if isinstance(store, cls):
            return store
        # Not compared before: what else is given, such as an array, may be neither equal nor not.
        if not isinstance(mode, str) or mode != "r":
            raise gzarr.ArgumentError(
                f"mode={quote(mode)}: engine='gzarr' only reads, with mode='r'; write with Dataset.to_zarr"
            )
        consolidated = optional_flag("consolidated", consolidated)
        masked = optional_flag("use_zarr_fill_value_as_mask", use_zarr_fill_value_as_mask)
        store = _normalized(store)
        found = _open_group(
            store,
            group_path(group),
            consolidated,
            storage_options=storage_options,
            zarr_format=zarr_format,
            device=device,
        )
        return cls(found, masked=masked)

    def check_described(self) -> None:
        """Refuse a group without a document and without arrays: most likely a directory with hierarchies in it.

        Raises
        ------
        NodeNotFoundError
            If it is such a group. The message names the groups below.
        """
        # Where a format defines such groups, they are as good as others.
        if self.group.metadata.children_format is not None or len(self._groups()) != len(self._below()):
            return
        names, below = sorted(self._groups()), ""
        if names:
            more = f" and {len(names) - _NAMED} others" if len(names) > _NAMED else ""
            below = (
                f", only groups: {', '.join(map(repr, names[:_NAMED]))}{more}; open one of these, by its own path or "
                "with group=, or all of them with xarray.open_datatree"
            )
        what = f"there is no group {self.group.name!r} in {self.group.store!r}"
        raise gzarr.NodeNotFoundError(f"{what}: it has neither a document nor arrays{below}")

    def read_together(self, pattern: GroupPattern) -> list[tuple[str, GzarrStore]]:
        """Return the groups at and below this one that match a pattern, and those above them, with coordinates read.

        Where each request takes long, the groups of a level are read at the same time, and then the coordinates of all
        groups that become indexes. Groups below which nothing can match are not looked at.

        Returns
        -------
        Pairs of path, relative to this group, and group, parents first.

        Raises
        ------
        ArgumentError
            If no group matches.
        """
        if isinstance(self.group.store, gzarr.LocalStore | gzarr.MemoryStore | gzarr.ZipStore):
            return self._matching(pattern, map)
        with ThreadPoolExecutor(_THREADS) as pool:
            found = self._matching(pattern, pool.map)
            list(pool.map(_keep, [one for _, store in found for one in store._coordinates()]))
        return found

    def _matching(self, pattern: GroupPattern, each: Callable[..., Iterable[Any]]) -> list[tuple[str, GzarrStore]]:
        """Return the same as :meth:`read_together`; ``each`` is ``map``, or does the same in threads."""
        stores, states, level = {"/": self}, {"/": pattern.begin()}, ["/"]
        kept: set[str] = set()
        while level:
            # What is kept is read, too, for its arrays.
            level = [path for path in level if pattern.goes_on(states[path]) or pattern.matches(states[path])]
            kept.update(above for path in level if pattern.matches(states[path]) for above in _upward(path))
            found = each(GzarrStore._groups, [stores[path] for path in level])
            below = [
                (path, name, store) for path, groups in zip(level, found, strict=True) for name, store in groups.items()
            ]
            level = []
            for path, name, store in below:
                level.append(f"{path.rstrip('/')}/{name}")
                stores[level[-1]] = store
                states[level[-1]] = pattern.after(states[path], name)
        if not kept:
            raise pattern.no_match(self.group.store, stores.keys() - {"/"})
        return [(path, stores[path]) for path in sorted(kept, key=lambda path: path.split("/"))]

    def _below(self) -> dict[str, gzarr.Array | GzarrStore | gzarr.MetadataError]:
        """Return the nodes directly below by name, as they were when they were first asked for."""
        if self._nodes is None:
            nodes: dict[str, Any] = dict(self.group.walk(0))
            for name, node in nodes.items():
                if isinstance(node, gzarr.Group):
                    nodes[name] = GzarrStore(node, masked=self.masked)
            self._nodes = nodes
        return self._nodes

    def _groups(self) -> dict[str, GzarrStore]:
        return {name: node for name, node in self._below().items() if isinstance(node, GzarrStore)}

    def _coordinates(self) -> Iterator[tuple[GzarrStore, str, gzarr.Array]]:
        """Yield what becomes an index: arrays of one dimension that have its name, unless they are large."""
        for name, node in self._below().items():
            if isinstance(node, gzarr.Array) and node.ndim == 1 and node.nbytes <= _MOST_BYTES:
                with contextlib.suppress(gzarr.MetadataError):
                    if encoded.dimensions(node) == (_decode_variable_name(name),):
                        yield self, name, node

    def arrays(self) -> Iterator[tuple[str | None, gzarr.Array | gzarr.MetadataError]]:
        """Yield the arrays of the group with their names in xarray; errors in the place of those that are unusable."""
        for name, node in self._below().items():
            if not isinstance(node, GzarrStore):
                yield _decode_variable_name(name), node

    def variable(self, array: gzarr.Array, *, decoded: bool = True) -> xr.Variable:
        """Return an array of the group as a variable, which is read to host memory when it is used.

        Parameters
        ----------
        array
            The array.
        decoded
            Whether elements that equal the attribute ``_FillValue`` will be masked. If not, the attribute is harmless,
            and has the fill value of a format older than version 3.

        Raises
        ------
        DimensionNamesError
            If the array has no names of its dimensions.
        """
        names = encoded.dimensions(array)
        masked = (self.masked and encoded.is_maskable(array)) or (array.zarr_format not in UNMASKED and not decoded)
        attributes = encoded.attributes(array, masked=masked)
        encoding = self._encodings.of(array, names, masked=masked)
        if array.device != "cpu":
            array = gzarr.Array(array.metadata, array.store, array.path, device="cpu")
        stored = StoredArray(array, self._values.get(array.basename), dtype_as_stored(array))
        return xr.Variable(names, indexing.LazilyIndexedArray(stored), attributes, encoding, fastpath=True)

    def get_variables(self) -> dict[str | None, xr.Variable]:
        """Return the arrays of the group as variables; errors as for :meth:`variable`."""
        found = {}
        for name, array in self.arrays():
            if isinstance(array, gzarr.MetadataError):
                raise array
            found[name] = self.variable(array)
        return found

    def get_attrs(self) -> dict[str, Any]:
        """Return the attributes of the group."""
        return encoded.public(self.group.attrs)

    def get_dimensions(self) -> dict[str, int]:
        """Return the length of each dimension of the group's arrays."""
        return {
            name: length
            for variable in self.get_variables().values()
            for name, length in zip(variable.dims, variable.shape, strict=True)
        }


def group_path(group: Any) -> str:
    """Return the path of a group, also given as an object for paths; that of the root for None.

    Slashes that follow each other are one, as for xarray's own engine.
    """
    path = os.fspath(group) if isinstance(group, os.PathLike) else "" if group is None else group
    if not isinstance(path, str):
        raise gzarr.ArgumentError(f"group must be the path of a group, such as 'a/b', not {quote(group)}")
    return re.sub("//+", "/", path)


def _upward(path: str) -> list[str]:
    """Return a path, and the paths of all groups above it."""
    names = path.strip("/").split("/")
    return ["/", *("/" + "/".join(names[:i]) for i in range(1, len(names) + 1) if path != "/")]


def _keep(coordinate: tuple[GzarrStore, str, gzarr.Array]) -> None:
    """Read a coordinate; errors are left to those who use it."""
    store, name, array = coordinate
    with contextlib.suppress(gzarr.GzarrError):
        store._values[name] = gzarr.Array(array.metadata, array.store, array.path, device="cpu")[...]


def _normalized(store: Any) -> Any:
    """Return a path as an absolute one, as xarray does, and a mapping that zarr-python has filled as its store."""
    if isinstance(store, os.PathLike):
        store = os.fspath(store)
    if isinstance(store, str) and not _URL.match(store):
        # Not by pathlib, which refuses a name that begins with ~ and is no user's.
        return str(Path(os.path.expanduser(store)).absolute())  # noqa: PTH111
    # Values of other mappings may be anywhere, and are read when they are needed.
    if isinstance(store, dict | UserDict) and any(hasattr(value, "to_bytes") for value in store.values()):
        import zarr.storage

        return zarr.storage.MemoryStore(store, read_only=True)
    return store


def _open_group(store: Any, path: str, consolidated: bool | None, **options: Any) -> gzarr.Group:
    """Open a group; consolidated metadata is looked for in the root, as in xarray's own engine."""
    try:
        if consolidated is False or not getattr(store, "supports_consolidated_metadata", True):
            return gzarr.open_group(store, path=path, use_consolidated=False, **options)
        root = gzarr.open_group(store, use_consolidated=consolidated, **options)
        if root.metadata.consolidated is None:
            _warn_of_documents()
        found = root[path] if path.strip("/") else root
    except gzarr.NodeNotFoundError as error:
        raise gzarr.NodeNotFoundError(f"the group {path or '/'!r} does not exist: {error}") from error
    if not isinstance(found, gzarr.Group):
        raise gzarr.NodeTypeError(f"{found.name} in {store!r} is an array, not a group; open the group that it is in")
    return found


def _warn_of_documents() -> None:
    ours = tuple(str(Path(str(package.__file__)).parent) for package in (xr, gzarr))
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(ours):
        frame, level = frame.f_back, level + 1
    warnings.warn(
        "Failed to open Zarr store with consolidated metadata, so one document is read for each array, which may take "
        "much longer. Consolidate the metadata with gzarr.consolidate_metadata or `gzarr consolidate`, or pass "
        "consolidated=False to read it without this warning, or consolidated=True for an error instead.",
        RuntimeWarning,
        stacklevel=level,
    )
