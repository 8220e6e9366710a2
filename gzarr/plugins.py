"""Plugins: extensions that other packages offer as entry points, loaded when a document first names them.

===================== =================================================================================================
group                 object that an entry point refers to; entry point name
===================== =================================================================================================
``gzarr.codecs``      a subclass of :class:`gzarr.codecs.codec.Codec` with the class method ``from_v3(configuration)``,
                      ``from_v2(configuration)`` or both; name or ``id`` of the codec
``gzarr.data_types``  a class with ``from_v3(configuration)``, which returns the NumPy dtype of the elements (without
                      objects); name of the data type. Fill values are spelled like those of that dtype
``gzarr.chunk_grids`` a class with ``from_v3(configuration, shape)``, which returns, per dimension, one length for all
                      chunks or a list of lengths; name of the grid. An array can be resized if the result for its new
                      shape has the existing chunks
``gzarr.stores``      a class with ``from_url(url, read_only)``, which returns a store: an object with the methods of
                      :class:`gzarr.stores.base.Store`, or only of ``ReadableStore``; URL scheme
===================== =================================================================================================

For example, in the ``pyproject.toml`` of a package::

    [project.entry-points."gzarr.codecs"]
    "example.xor" = "gzarr_example:XorCodec"

Names that gzarr knows itself take precedence: a package can add names, but not replace any.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Final

from .documents.json import quote
from .errors import ArgumentError, MetadataError, UnsupportedError
from .installing import COMMANDS
from .reasons import pass_on, text_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.metadata import EntryPoint
    from types import ModuleType

#: What libraries of integrations are called.
_LIBRARIES: Final = {
    "dask": "dask",
    "jax": "JAX",
    "torch": "PyTorch",
    "xarray": "xarray",
    "zarr": "zarr-python",
}
_LOADED: Final[dict[tuple[str, str], Plugin]] = {}
#: What the code of plugins may raise: anything, but not interrupts. A module written as a script may end the program.
ERRORS: Final = (Exception, SystemExit)


@dataclass(frozen=True, slots=True)
class Plugin:
    """An extension from another package.

    Attributes
    ----------
    target
        Object that the entry point refers to.
    distribution
        Name and version of the package, for messages.
    """

    target: Any
    distribution: str


def load(group: str, name: str, json_path: str = "$") -> Plugin | None:
    """Load the plugin of a given name.

    Parameters
    ----------
    group
        Entry point group, for example ``"gzarr.codecs"``.
    name
        Name as spelled in documents.
    json_path
        Location of the name in its document, for messages.

    Returns
    -------
    The plugin; None if no installed package offers it.

    Raises
    ------
    UnsupportedError
        If the package cannot be imported, or if several packages offer the same name.
    """
    if (group, name) in _LOADED:
        return _LOADED[group, name]
    # The same distribution can be found twice, through two directories of the import path.
    found = {(_distribution(entry), entry.value): entry for entry in entry_points(group=group) if entry.name == name}
    if not found:
        return None
    if len(found) > 1:
        packages = " and ".join(sorted(distribution for distribution, _ in found))
        raise UnsupportedError(
            f"several packages offer {quote(name)} as an entry point of {group!r}: {packages}; uninstall all but one",
            json_path=json_path,
        )
    ((distribution, value), entry), *_ = found.items()
    try:
        plugin = Plugin(entry.load(), distribution)
    except ERRORS as error:
        raise UnsupportedError(
            f"{quote(name)} comes from the package {distribution}, but {value!r} cannot be loaded:"
            f" {_described(error)}; repair or update that package",
            json_path=json_path,
        ) from error
    _LOADED[group, name] = plugin
    return plugin


def integration(library: str) -> ModuleType:
    """Return the module of :mod:`gzarr.integrations` for a library, imported when it is called for.

    Those modules are above everything that has such methods (``a.to_dask()``, ``a.to_torch()``), which know them by
    name only, like the packages above.

    Raises
    ------
    ArgumentError
        If the library is not installed. The message says what to install.
    """
    try:
        return import_module(f"gzarr.integrations.{library}")
    except ModuleNotFoundError as error:
        # Any other module that is missing is an error as it stands.
        if error.name is None or error.name.partition(".")[0] != library:
            raise
        raise ArgumentError(f"{_LIBRARIES[library]} is not installed: {COMMANDS[library]}") from error


def function_of(library: str, name: str) -> Callable[..., Any]:
    """Return a function of an integration's module.

    Without the library, a function that raises the error of :func:`integration` when it is called, so that
    ``from gzarr import *`` works.
    """

    def refuse(*arguments: Any, **options: Any) -> Any:
        return getattr(integration(library), name)(*arguments, **options)

    try:
        found: Callable[..., Any] = getattr(integration(library), name)
    except ArgumentError:
        refuse.__name__ = refuse.__qualname__ = name
        return refuse
    return found


def call(plugin: Plugin, method: str, what: str, json_path: str, *arguments: Any) -> Any:
    """Call a class method of a plugin.

    Parameters
    ----------
    plugin
        Result of :func:`load`.
    method
        Name of the method.
    what
        Description of the plugin, for messages: ``"the codec 'example.xor'"``.
    json_path
        Location of the arguments in their document, for messages.
    *arguments
        Arguments of the method.

    Raises
    ------
    UnsupportedError
        If the plugin has no such method.
    MetadataError
        If the method raises anything.
    """
    origin = f"{what} of the package {plugin.distribution}"
    function = getattr(plugin.target, method, None)
    if function is None:
        version = method.removeprefix("from_v")
        for_it = f"is not for Zarr v{version}" if version != method else "is faulty"
        raise UnsupportedError(f"{origin} {for_it}: it has no {method}", json_path=json_path)
    try:
        return function(*arguments)
    except MetadataError:
        raise
    except ERRORS as error:
        reason = _described(error)
        raise MetadataError(f"{origin} does not accept its configuration: {reason}", json_path=json_path) from error


def _described(error: BaseException) -> str:
    """Return the class and the text of a plugin's error; raise it if a handler of a signal raised it."""
    pass_on(error)
    text = text_of(error)[:200]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _distribution(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else "of an unknown name"
