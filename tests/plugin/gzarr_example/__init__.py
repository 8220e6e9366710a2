"""A package with a codec, a data type, a chunk grid and a store, which ``pip install`` makes available in gzarr.

In documents of Zarr v3::

    {"name": "example.xor", "configuration": {"key": 90}}           a codec; {"id": "example.xor", "key": 90} in Zarr v2
    {"name": "example.pixel", "configuration": {"channels": "rgb"}} a data type
    {"name": "example.doubling", "configuration": {"first": [1, 4]}} a chunk grid

and ``gzarr.open("sqlite:///data.sqlite")``.
"""

from __future__ import annotations

import contextlib
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import unquote, urlsplit

import numpy as np

from gzarr.codecs.buffers import checked, flat, need_bytes
from gzarr.codecs.codec import BytesRepresentation, Codec, CodecKind, Representation
from gzarr.errors import ReadOnlyError, StoreError
from gzarr.stores.byte_ranges import resolve_range, splice

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gzarr.documents.configuration import Configuration
    from gzarr.stores.base import ByteRange


@dataclass(frozen=True)
class XorCodec(Codec):
    """Exclusive or of every byte with a key.

    Attributes
    ----------
    key
        Key, from 0 to 255.
    """

    kind: ClassVar[CodecKind] = "bytes_to_bytes"
    key: int

    @classmethod
    def from_v3(cls, configuration: Configuration) -> XorCodec:
        """Parse a v3 configuration. Without ``from_v2``, the codec would be for v3 only."""
        codec = cls(configuration.integer("key", 0, 255))
        configuration.finish()
        return codec

    from_v2 = from_v3

    @property
    def label(self) -> str:
        """``example.xor``."""
        return "example.xor"

    def to_json(self) -> dict[str, Any]:
        """Return the v3 object."""
        return {"name": "example.xor", "configuration": {"key": self.key}}

    def encoded(self, decoded: Representation) -> BytesRepresentation:
        """Return the same size."""
        return need_bytes(decoded, self.label)

    def decode(self, encoded: Any, decoded: Representation) -> Any:
        """Return the bytes."""
        return checked(flat(encoded), need_bytes(decoded, self.label), self.label) ^ np.uint8(self.key)

    def encode(self, decoded: Any, representation: Representation) -> Any:
        """Return the bytes: the codec is its own inverse."""
        return flat(decoded) ^ np.uint8(self.key)


class Pixel:
    """Elements with one byte per channel."""

    @classmethod
    def from_v3(cls, configuration: Configuration) -> np.dtype[Any]:
        """Return the type of elements, with one field per channel."""
        channels = configuration.string("channels")
        configuration.finish()
        return np.dtype([(channel, "u1") for channel in channels])


class Doubling:
    """Chunks that double in length along each dimension."""

    @classmethod
    def from_v3(cls, configuration: Configuration, shape: tuple[int, ...]) -> list[list[int]]:
        """Return the length of each chunk along each dimension."""
        first = configuration.integers("first", 1, 2**62)
        configuration.finish()
        if len(first) != len(shape):
            raise configuration.error("first", f"{len(shape)} lengths")
        result = []
        for length, size in zip(first, shape, strict=True):
            lengths = [length]
            while sum(lengths) < size:
                lengths.append(2 * lengths[-1])
            result.append(lengths)
        return result


class SqliteStore:
    """Keys and values in a table, as in zarr-python 2.

    Parameters
    ----------
    path
        Path of the database.
    read_only
        Whether to refuse all changes.
    """

    def __init__(self, path: str, *, read_only: bool = False) -> None:
        self.path = path
        self.read_only = read_only
        if not read_only:
            self._run("CREATE TABLE IF NOT EXISTS zarr (k TEXT PRIMARY KEY, v BLOB)")
        elif not Path(path).exists():
            raise StoreError(f"there is no database {path!r}")

    @classmethod
    def from_url(cls, url: str, read_only: bool) -> SqliteStore:
        """Make a store of ``sqlite:///path``."""
        return cls(unquote(urlsplit(url).path), read_only=read_only)

    def __repr__(self) -> str:
        return f"SqliteStore({self.path!r})"

    def _run(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        # A connection a call: threads cannot share one, and forked processes must not.
        with contextlib.closing(sqlite3.connect(self.path, timeout=60)) as connection, connection:
            return connection.execute(statement, values).fetchall()

    def _change(self, statement: str, *values: Any) -> None:
        if self.read_only:
            raise ReadOnlyError(f"{self!r} is read-only")
        self._run(statement, *values)

    def get(self, key: str) -> bytes | None:
        """Return a value, or None."""
        found = self._run("SELECT v FROM zarr WHERE k = ?", key)
        return found[0][0] if found else None

    def get_partial_values(self, key_ranges: Sequence[tuple[str, ByteRange]]) -> list[bytes | None]:
        """Return parts of values."""
        values = []
        for key, byte_range in key_ranges:
            value = self.get(key)
            if value is not None:
                start, nbytes = resolve_range(byte_range, len(value), self, key)
                value = value[start : start + nbytes]
            values.append(value)
        return values

    def set(self, key: str, value: Any) -> None:
        """Store a value."""
        self._change("INSERT OR REPLACE INTO zarr VALUES (?, ?)", key, bytes(value))

    def set_partial_values(self, key_start_values: Iterable[tuple[str, int, bytes]]) -> None:
        """Change parts of values."""
        for key, start, part in key_start_values:
            self.set(key, splice(self.get(key), start, part))

    def erase(self, key: str) -> None:
        """Erase a value."""
        self._change("DELETE FROM zarr WHERE k = ?", key)

    def erase_values(self, keys: Iterable[str]) -> None:
        """Erase values."""
        for key in keys:
            self.erase(key)

    def erase_prefix(self, prefix: str) -> None:
        """Erase all below a prefix."""
        self.erase_values(self.list_prefix(prefix))

    def list(self) -> Iterator[str]:
        """Yield all keys."""
        return self.list_prefix("")

    def list_prefix(self, prefix: str) -> Iterator[str]:
        """Yield the keys below a prefix."""
        found = self._run("SELECT k FROM zarr WHERE substr(k, 1, ?) = ? ORDER BY k", len(prefix), prefix)
        return (key for (key,) in found)

    def list_dir(self, prefix: str) -> tuple[list[str], list[str]]:
        """Return keys and prefixes directly below a prefix."""
        keys, prefixes = [], set()
        for key in self.list_prefix(prefix):
            name, slash, _ = key[len(prefix) :].partition("/")
            if slash:
                prefixes.add(f"{prefix}{name}/")
            else:
                keys.append(key)
        return keys, sorted(prefixes)
