"""What other packages add to gzarr, by entry point: loaded when a document first names it, and not before.

===================== =================================================================================================
group                 what an entry point is, and its name
===================== =================================================================================================
``gzarr.codecs``      a subclass of :class:`gzarr.codecs.codec.Codec` with the class method ``from_v3(configuration)``,
                      ``from_v2(configuration)`` or both; the codec's name or ``id``
``gzarr.data_types``  a class with ``from_v3(configuration)``, which returns the NumPy dtype of the elements (without
                      objects); the name of the data type. Fill values are written as those of that dtype are
``gzarr.chunk_grids`` a class with ``from_v3(configuration, shape)``, which returns for each dimension the length of all
                      chunks, or the lengths of each; the name of the grid
``gzarr.stores``      a class with ``from_url(url, read_only)``, which returns a store: an object with the methods of
                      :class:`gzarr.stores.base.Store`, or only of ``ReadableStore``; the scheme of its URLs
===================== =================================================================================================

For example, in the ``pyproject.toml`` of a package::

    [project.entry-points."gzarr.codecs"]
    "example.xor" = "gzarr_example:XorCodec"

What gzarr knows itself always goes first: a package adds names, it replaces none.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Final

from .documents.json import quote
from .errors import MetadataError, UnsupportedError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

_LOADED: Final[dict[tuple[str, str], Plugin]] = {}


@dataclass(frozen=True, slots=True)
class Plugin:
    """Something that another package adds.

    Attributes
    ----------
    target
        What the entry point refers to.
    distribution
        Name and version of the package, for messages.
    """

    target: Any
    distribution: str


def load(group: str, name: str, json_path: str = "$") -> Plugin | None:
    """Load what other packages offer under a name.

    Parameters
    ----------
    group
        Of entry points, for example ``"gzarr.codecs"``.
    name
        As documents spell it.
    json_path
        Where in its document the name is, for messages.

    Returns
    -------
    None if no package that is installed offers it.

    Raises
    ------
    UnsupportedError
        If the package cannot be imported, or if several packages offer the same name.
    """
    if (group, name) in _LOADED:
        return _LOADED[group, name]
    # One distribution can be found twice, through two folders of the import path.
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
    # A module that is imported may raise anything.
    except Exception as error:
        raise UnsupportedError(
            f"{quote(name)} comes from the package {distribution}, but {value!r} cannot be loaded:"
            f" {type(error).__name__}: {str(error)[:200]}; repair or update that package",
            json_path=json_path,
        ) from error
    _LOADED[group, name] = plugin
    return plugin


def call(plugin: Plugin, method: str, what: str, json_path: str, *arguments: Any) -> Any:
    """Call a class method of what another package offers.

    Parameters
    ----------
    plugin
        From :func:`load`.
    method
        Its name.
    what
        What is offered, for messages: ``"the codec 'example.xor'"``.
    json_path
        Where in its document the arguments are, for messages.
    *arguments
        For the method.

    Raises
    ------
    UnsupportedError
        If there is no such method.
    MetadataError
        If it raises anything.
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
    # It is not our code: it may raise anything.
    except Exception as error:
        reason = f"{type(error).__name__}: {str(error)[:200]}"
        raise MetadataError(f"{origin} does not take its configuration: {reason}", json_path=json_path) from error


def _distribution(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else "of an unknown name"
