"""What a value reads when it becomes elements: arrays of gzarr and zarr-python within it, lazy ones included.

Searched are lists and dictionaries, graphs of dask (without making their tasks, where they are described by layers),
variables of xarray, arguments and closures of functions in graphs, and attributes of wrappers of arrays.
"""

from __future__ import annotations

import contextlib
import functools
import types
from types import ModuleType, NoneType
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..errors import ArgumentError
from . import foreign
from .base import ReadableStore
from .fsspec_calls import is_a
from .places import Place, place_of
from .zarr_kinds import store_and_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

#: Values that hold no others.
_LEAVES: Final = (str, bytes, bytearray, memoryview, int, float, complex, NoneType, type, ModuleType, np.generic)
#: Packages whose objects are searched attribute by attribute.
_SEARCHED: Final = frozenset({"dask", "xarray", "gzarr"})
#: Most elements of an array of objects that are searched.
_MOST_OBJECTS: Final = 1024


def check_apart(value: Any, target: Place, *, operation: str, instead: str) -> None:
    """Refuse to write to a place that a value is still to be read from.

    Parameters
    ----------
    value
        Anything that will be read.
    target
        Where is written to, with everything below it.
    operation
        What writes, for the message.
    instead
        What to do instead.

    Raises
    ------
    ArgumentError
        If they overlap. The message names both.
    """
    for place in places_read(value):
        if place.overlaps(target):
            raise refusal(operation, target, place, instead)


def refusal(operation: str, target: Place, place: Place, instead: str) -> ArgumentError:
    """Return the error of an operation that would overwrite a place which is read as another; see `check_apart`."""
    return ArgumentError(
        f"{operation} would overwrite {target.label} while it is read as {place.label}; nothing was changed: {instead}"
    )


def places_read(value: Any) -> Iterator[Place]:
    """Yield the places of all arrays that a value reads, each once.

    Parameters
    ----------
    value
        Anything that will be read.
    """
    return (place_of(store, path) for store, path in nodes_read(value))


def nodes_read(value: Any) -> Iterator[tuple[ReadableStore, str]]:
    """Yield the stores and paths of all arrays that a value reads, each once.

    Parameters
    ----------
    value
        Anything that will be read.
    """
    seen: set[tuple[int, str]] = set()
    for store, path in _nodes(value):
        if (id(store), path) not in seen:
            seen.add((id(store), path))
            yield store, path


def _nodes(value: Any) -> Iterator[tuple[ReadableStore, str]]:
    """Yield the stores and paths of arrays and groups in a value."""
    if not hasattr(value, "shape") and (node := _node(value)) is not None:
        # A group is read as a whole only if it is what was given; arrays know the group that they are in.
        yield node
        return
    # Values are kept, so that their identities stay theirs.
    seen: dict[int, Any] = {}
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, _LEAVES) or id(one) in seen:
            continue
        seen[id(one)] = one
        node = _node(one) if hasattr(one, "shape") else None
        if node is not None:
            yield node
        else:
            left.extend(_inside(one))


def _node(value: Any) -> tuple[ReadableStore, str] | None:
    """Return the store and the path of an array or group of gzarr or zarr-python, None for anything else."""
    package = type(value).__module__.partition(".")[0]
    if package == "zarr" and hasattr(value, "store_path") and store_and_path(value) is not None:
        return foreign.store_of_object(value, read_only=True)
    store, path = (getattr(value, name, None) for name in ("store", "path")) if hasattr(value, "metadata") else (0, 0)
    return (store, path) if isinstance(path, str) and isinstance(store, ReadableStore) else None


def _inside(value: Any) -> Iterable[Any]:
    """Return the values directly in a value that may be, or hold, arrays that are still to be read."""
    if isinstance(value, (list, tuple, set, frozenset)):
        return value
    if isinstance(value, np.ndarray):
        return value.flat if value.dtype == object and value.size <= _MOST_OBJECTS else ()
    if isinstance(value, functools.partial):
        return (value.func, value.args, value.keywords)
    if isinstance(value, types.MethodType):
        return (value.__self__, value.__func__)
    if isinstance(value, types.FunctionType):
        return [*(value.__defaults__ or ()), *_cells(value), *_globals(value)]
    package = type(value).__module__.partition(".")[0]
    if package == "dask" and (layers := getattr(value, "layers", None)) is not None:
        return [part for layer in layers.values() for part in _layer(layer)]
    if isinstance(value, (dict, types.MappingProxyType)):
        return value.values()
    if hasattr(value, "__dask_graph__"):
        # xarray's objects have other arrays besides dask's.
        return [value.__dask_graph__(), *(_attributes(value) if package == "xarray" else ())]
    if package in _SEARCHED or (hasattr(value, "shape") and hasattr(value, "dtype")):
        return _attributes(value)
    return ()


def _cells(function: types.FunctionType) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        # An empty one belongs to a variable that has no value yet.
        with contextlib.suppress(ValueError):
            yield cell.cell_contents


def _globals(function: types.FunctionType) -> Iterator[Any]:
    """Yield arrays among the global variables that a function names."""
    known = function.__globals__
    return (known[name] for name in function.__code__.co_names if hasattr(known.get(name), "shape"))


def _layer(layer: Any) -> Iterable[Any]:
    """Return what a layer of a graph holds. Layers that describe their tasks are not made to list them."""
    if is_a(layer, "dask.highlevelgraph", "MaterializedLayer"):
        found: Iterable[Any] = layer.mapping.values()
        return found
    return _attributes(layer) if not isinstance(layer, dict) else layer.values()


def _attributes(value: Any) -> Iterator[Any]:
    """Yield the values of an object's attributes, without calling code of its class.

    Methods are left out: that which closes a data set knows all of its arrays.
    """
    return (found for found in _slots(value) if not isinstance(found, types.MethodType))


def _slots(value: Any) -> Iterator[Any]:
    yield from getattr(value, "__dict__", {}).values()
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            hidden = (
                f"_{kind.__name__.lstrip('_')}{name}" if name.startswith("__") and not name.endswith("__") else name
            )
            descriptor = kind.__dict__.get(hidden)
            if isinstance(descriptor, types.MemberDescriptorType):
                try:
                    yield descriptor.__get__(value)
                except AttributeError:
                    continue
