"""Sorted keys: what is below a prefix, and how they follow changes without being sorted again.

A list of sorted keys is never changed once others have it, so that threads may go through it meanwhile.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final

from .keys import is_key

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterable, Iterator

    from .base import Listing

# With more changes than this part of all keys, sorting is faster than inserting one by one.
_MOST_CHANGED: Final = 1 / 8


def sorted_keys(names: Iterable[object]) -> list[str]:
    """Return those names that are keys, sorted; other programs may have left what is none."""
    return sorted(name for name in names if isinstance(name, str) and is_key(name))


def changed_keys(keys: list[str], changed: Collection[object], present: Container[object]) -> list[str] | None:
    """Return the sorted keys after a few changes, or None if these are too many to be made one by one.

    Parameters
    ----------
    keys
        Sorted keys from before; left as they are.
    changed
        Names that were added or removed since, also both, or repeatedly.
    present
        Whatever has the names that there are now.
    """
    if len(changed) > len(keys) * _MOST_CHANGED:
        return None
    now = keys.copy()
    for name in changed:
        if not isinstance(name, str):
            continue
        at = bisect_left(now, name)
        known = at < len(now) and now[at] == name
        if name not in present:
            del now[at : at + known]
        elif not known and is_key(name):
            now.insert(at, name)
    return now


def keys_below(keys: list[str], prefix: str) -> Iterator[str]:
    """Yield those of some sorted keys that start with a prefix (empty, or with a slash at its end)."""
    for i in range(bisect_left(keys, prefix), _end(keys, prefix)):
        yield keys[i]


def children_of(keys: list[str], prefix: str) -> Listing:
    """Return those of some sorted keys directly under ``prefix``, and the prefixes there, each sorted."""
    found, prefixes = [], []
    i, end = bisect_left(keys, prefix), _end(keys, prefix)
    while i < end:
        name, slash, _ = keys[i][len(prefix) :].partition("/")
        if slash:
            prefixes.append(f"{prefix}{name}/")
            i = _end(keys, prefixes[-1], i)
        else:
            found.append(keys[i])
            i += 1
    return found, prefixes


def _end(keys: list[str], prefix: str, begin: int = 0) -> int:
    # "0" is the next character after a slash.
    return bisect_left(keys, f"{prefix[:-1]}0", begin) if prefix else len(keys)
