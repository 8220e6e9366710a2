"""Patterns of paths of groups, for ``group_filter`` of xarray's trees.

They mean what they do in https://github.com/pydata/xarray/pull/11302, where ``pathlib`` matches them: a pattern that
begins with ``/`` is about whole paths, any other about their ends. Two things differ: ``**`` comes on top, and the root
is no name that ``*`` could stand for. (``pathlib`` counts it as a part: ``*/b`` matches ``/b``, as does ``?/b``.)
"""

from __future__ import annotations

import fnmatch
import re
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ..errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable

#: How much of a pattern a path has matched: numbers of parts, in any way of several.
State: TypeAlias = frozenset[int]

_ANY: Final = "**"
_MOST_SHOWN: Final = 5
_RULES: Final = "* stands for any part of a name, ** for any number of groups within each other"


class GroupPattern:
    """A pattern of paths of groups.

    Parameters
    ----------
    text
        Names separated by ``/``, in which ``*`` is any text, ``?`` any character, and ``[ab]`` one of some characters.
        The name ``**`` is any number of names, also none. If the pattern does not begin with ``/``, it may match the
        end of a path.

    Raises
    ------
    ArgumentError
        If it is not a text, or has names that no group has.
    """

    def __init__(self, text: Any) -> None:
        if not isinstance(text, str) or not text:
            raise ArgumentError(
                f"group_filter must be a pattern of paths of groups, such as '/*/sweep_0' or '**/sweep_*', not {text!r}"
            )
        names = [] if text == "/" else text.removeprefix("/").removesuffix("/").split("/")
        for name in names:
            fault = "an empty name" if not name else f"the name {name!r}" if name in (".", "..") else ""
            if _ANY in name and name != _ANY:
                fault = f"{name!r}, in which ** is only a part of a name"
            if fault:
                raise ArgumentError(f"group_filter={text!r} has {fault}, which matches no group; {_RULES}")
        if not text.startswith("/"):
            names.insert(0, _ANY)
        self._text = text
        self._parts = [None if name == _ANY else re.compile(fnmatch.translate(name)) for name in names]

    def begin(self) -> State:
        """Return how much the root matches."""
        return self._with_none({0})

    def after(self, state: State, name: str) -> State:
        """Return how much a group matches, given how much the group does that it is in."""
        further = set()
        for i in state:
            if i < len(self._parts):
                part = self._parts[i]
                if part is None:
                    further.add(i)
                elif part.match(name):
                    further.add(i + 1)
        return self._with_none(further)

    def matches(self, state: State) -> bool:
        """Return whether a group matches."""
        return len(self._parts) in state

    def goes_on(self, state: State) -> bool:
        """Return whether groups below may match."""
        return any(i < len(self._parts) for i in state)

    def no_match(self, store: object, paths: Iterable[str]) -> ArgumentError:
        """Return the error for a pattern that matches none of the groups that were looked at."""
        shown = sorted(paths)
        few, more = ", ".join(map(repr, shown[:_MOST_SHOWN])), len(shown) - _MOST_SHOWN
        there = f"there are {few}" if shown else "there are no groups below the root"
        there += f" and {more:,} more" if more > 0 else ""
        return ArgumentError(f"group_filter={self._text!r} matches no group of {store!r}: {there}; {_RULES}")

    def _with_none(self, state: set[int]) -> State:
        """Add what is matched if ``**`` stands for no names."""
        found = set(state)
        for i in range(len(self._parts)):
            if i in found and self._parts[i] is None:
                found.add(i + 1)
        return frozenset(found)
