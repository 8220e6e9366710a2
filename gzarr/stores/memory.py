"""A store over a mapping of keys to bytes, by default a new dict."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar
from weakref import WeakValueDictionary

from ..errors import ArgumentError, ReadOnlyError, StoreError, ValueSizeError
from ..flags import flag
from ..guarded import ForkSafeLock
from ..reasons import reason_of
from .buffers import as_bytes, as_view
from .byte_ranges import check_range, resolve_range, splice
from .keys import split_key, split_prefix
from .sorted_keys import changed_keys, children_of, keys_below, sorted_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

    from typing_extensions import Buffer

    from .base import ByteRange, Listing

T = TypeVar("T")

# Held only by operations of several steps (single dict operations are atomic).
_lock = ForkSafeLock()


# Attempts at a listing that other threads disturb: each begins anew.
_MOST_LISTINGS: Final = 100


def while_others_write(listing: Callable[[], T]) -> T:
    """Return ``listing()`` of a mapping; call it again if another thread changes the mapping meanwhile.

    To list a dict is one step. To list other mappings, also classes derived from dict, may take several.
    """
    for _ in range(_MOST_LISTINGS - 1):
        # An entry may be gone before its value is looked up.
        with contextlib.suppress(RuntimeError, KeyError):
            return listing()
    return listing()


class _Version:
    """A bytes object, compared by identity. Holding a reference keeps its identity from being reused.

    A store that replaces or erases the value lets go of it, since whoever keeps the version would keep the value.
    """

    __slots__ = ("__weakref__", "_hash", "value")

    def __init__(self, value: bytes) -> None:
        self.value: bytes | None = value
        self._hash = id(value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Version):
            return NotImplemented
        return self is other or (self.value is not None and self.value is other.value)

    def __hash__(self) -> int:
        return self._hash


# Versions that are in use, by the identity of their values: those of all stores, as several may have one mapping.
_versions: WeakValueDictionary[int, _Version] = WeakValueDictionary()


def _version_of(value: bytes) -> _Version:
    found = _versions.get(id(value))
    if found is not None and found.value is value:
        return found
    with _lock.lock:
        # Another thread may have made it meanwhile: of two versions of one value, only one would be let go.
        found = _versions.get(id(value))
        if found is None or found.value is not value:
            found = _versions[id(value)] = _Version(value)
        return found


def _let_go(value: object) -> None:
    """Release a value that is in the mapping no more; where it is under another key, too, its version is a new one."""
    found = _versions.pop(id(value), None)
    if found is not None:
        found.value = None


class MemoryStore:
    """Values in a mapping from key to bytes-like.

    Parameters
    ----------
    mapping
        Mapping that holds the values; not copied. A new dict if None. Thread-safe if its own operations are: those of a
        dict and of the standard library's classes derived from it are.
    read_only
        Refuse every change.

    Raises
    ------
    ArgumentError
        If ``mapping`` is not a mutable mapping.
    """

    def __init__(self, mapping: MutableMapping[str, Any] | None = None, *, read_only: bool = False) -> None:
        if mapping is not None and not isinstance(mapping, MutableMapping):
            raise ArgumentError(f"MemoryStore needs a mutable mapping of keys to bytes, not {type(mapping).__name__}")
        self.mapping: MutableMapping[str, Any] = {} if mapping is None else mapping
        self.read_only: bool = flag("read_only", read_only)
        # The names in the mapping when they were last listed, and those of them that are keys, sorted.
        self._seen: tuple[list[object], list[str]] = ([], [])

    def __repr__(self) -> str:
        return f"<gzarr.MemoryStore of {type(self.mapping).__name__} at {id(self.mapping):#x}>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MemoryStore):
            return NotImplemented
        # By identity: two arrays in memory with equal values are two arrays.
        return self.read_only == other.read_only and self.mapping is other.mapping

    __hash__: ClassVar[None] = None  # type: ignore[assignment]

    # -- reading

    def _failure(self, what: str, key: str, error: Exception) -> StoreError:
        reason = f"{type(error).__name__}: {reason_of(error)}"
        return StoreError(f"{self!r}: cannot {what} {key!r}: {reason}", key=key)

    def _view(self, key: str) -> memoryview | None:
        split_key(key)
        try:
            value = self.mapping[key]
        except KeyError:
            return None
        except Exception as exc:
            raise self._failure("read", key, exc) from exc
        try:
            return as_view(value, key)
        except ArgumentError as exc:
            raise StoreError(
                f"{self!r}: the value of {key!r} is a {type(value).__name__}, not contiguous bytes", key=key
            ) from exc

    def get(self, key: str) -> bytes | None:
        """Return the value of ``key``, or None if there is none."""
        view = self._view(key)
        # A bytes object itself; only other buffers, and parts of one, are copied.
        return None if view is None else as_bytes(view)

    def get_partial_values(self, key_ranges: Sequence[tuple[str, ByteRange]]) -> list[bytes | None]:
        """Return parts of values, in order; None for each absent key.

        Raises
        ------
        StoreError
            If a range does not lie within the value.
        """
        values: list[bytes | None] = []
        for key, byte_range in key_ranges:
            check_range(byte_range)
            view = self._view(key)
            if view is None:
                values.append(None)
            else:
                start, nbytes = resolve_range(byte_range, len(view), self, key)
                values.append(bytes(view[start : start + nbytes]))
        return values

    def get_small_values(self, keys: Sequence[str], max_nbytes: int) -> list[bytes | None]:
        """Return whole values, in order; None for each absent key; raise :class:`StoreError` if one is too large."""
        values = [self.get(key) for key in keys]
        for key, value in zip(keys, values, strict=True):
            if value is not None and len(value) > max_nbytes:
                raise ValueSizeError(
                    f"{self!r}: {key!r} has {len(value)} bytes; at most {max_nbytes} are read", key=key
                )
        return values

    def contains(self, keys: Iterable[str]) -> list[bool]:
        """Return whether each key has a value, in order."""
        found = []
        for key in keys:
            split_key(key)
            try:
                found.append(key in self.mapping)
            except Exception as exc:
                raise self._failure("look for", key, exc) from exc
        return found

    def version(self, key: str) -> Hashable | None:
        """Return a token that changes when the value is replaced.

        None if it is absent, can change in place, or is another object at each look-up.
        """
        split_key(key)
        try:
            value = self.mapping.get(key)
            # A shelf, and others that keep values elsewhere, make a new object at each look-up.
            if type(value) is not bytes or not (isinstance(self.mapping, dict) or self.mapping.get(key) is value):
                return None
        except Exception as exc:
            raise self._failure("read", key, exc) from exc
        return _version_of(value)

    def list_versions(self, prefix: str) -> Iterator[tuple[str, str | None]]:
        """Yield all keys that start with ``prefix``, sorted, each with a digest of its value."""
        for key in self._keys(prefix):
            view = self._view(key)
            if view is not None:
                yield key, hashlib.blake2b(view, digest_size=16).hexdigest()

    # -- listing

    def _sorted(self, prefix: str) -> list[str]:
        """Return all keys, sorted; ``prefix`` is what is listed, for messages."""
        try:
            names: list[object] = while_others_write(lambda: list(self.mapping))
        except Exception as exc:
            raise self._failure("list", prefix, exc) from exc
        seen, keys = self._seen
        # Others may have changed the mapping, too. To compare lists is far cheaper than to look at each name: creating
        # a node lists several times.
        if names != seen:
            if names[: len(seen)] == seen:
                changed = names[len(seen) :]
                now = changed_keys(keys, changed, changed)
            else:
                present = set(names)
                now = changed_keys(keys, present.symmetric_difference(seen), present)
            keys = sorted_keys(names) if now is None else now
            self._seen = names, keys
        return keys

    def _keys(self, prefix: str) -> Iterator[str]:
        split_prefix(prefix)
        return keys_below(self._sorted(prefix), prefix)

    def list(self) -> Iterator[str]:
        """Yield all keys, sorted."""
        return self._keys("")

    def list_prefix(self, prefix: str) -> Iterator[str]:
        """Yield all keys that start with ``prefix``, sorted."""
        return self._keys(prefix)

    def list_dir(self, prefix: str) -> Listing:
        """Return the keys and the prefixes directly under ``prefix``, in full from the root, each sorted."""
        split_prefix(prefix)
        return children_of(self._sorted(prefix), prefix)

    def list_sizes(self, prefix: str) -> Iterator[tuple[str, int]]:
        """Yield all keys that start with ``prefix``, sorted, each with the size of its value in bytes."""
        for key in self._keys(prefix):
            view = self._view(key)
            if view is not None:
                yield key, len(view)

    # -- writing

    def _check_writable(self) -> None:
        if self.read_only:
            raise ReadOnlyError(f"{self!r} was opened read-only; nothing was changed")

    def set(self, key: str, value: Buffer) -> None:
        """Store a copy of ``value`` (bytes-like) under ``key``."""
        self.set_parts(key, [value])

    def set_parts(self, key: str, parts: Sequence[Buffer]) -> None:
        """Store the concatenation of some buffers under ``key``."""
        self._check_writable()
        split_key(key)
        if len(parts) == 1 and type(parts[0]) is bytes:
            copy = parts[0]
        else:
            copy = b"".join(as_view(part, key) for part in parts)
        try:
            # Other mappings may make a new object at each look-up.
            old = self.mapping.get(key) if isinstance(self.mapping, dict) else None
            self.mapping[key] = copy
            if old is not copy:
                _let_go(old)
        except Exception as exc:
            raise self._failure("write", key, exc) from exc

    def set_partial_values(self, key_start_values: Iterable[tuple[str, int, bytes]]) -> None:
        """Write parts of values: (key, offset in bytes, bytes). A gap after the old end is filled with zero bytes."""
        self._check_writable()
        for key, start, part in key_start_values:
            with _lock.lock:
                self.set(key, splice(self.get(key), start, part))

    def erase(self, key: str) -> None:
        """Erase ``key`` if it exists."""
        self._check_writable()
        split_key(key)
        try:
            _let_go(self.mapping.pop(key, None))
        except KeyError:  # mappings other than dict look up first and then pop: another thread was faster
            return
        except Exception as exc:
            raise self._failure("erase", key, exc) from exc

    def erase_values(self, keys: Iterable[str]) -> None:
        """Erase several keys."""
        for key in keys:
            self.erase(key)

    def erase_prefix(self, prefix: str) -> None:
        """Erase all keys that start with ``prefix``."""
        self._check_writable()
        for key in self._keys(prefix):
            self.erase(key)
