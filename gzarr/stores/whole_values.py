"""Methods of stores that read values by requests, and that write whole values only."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from ..errors import NodeNotFoundError, StoreError
from .base import Request
from .buffers import as_bytes
from .byte_ranges import splice

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from typing_extensions import Buffer

    from .base import Answer, ByteRange


class ErasedArrayError(NodeNotFoundError, StoreError):
    """A store says of a chunk that is read or written that its array is not there: nothing is known of its elements."""


class RequestedValues(ABC):
    """Reading, by requests."""

    @abstractmethod
    def _answer_all(self, requests: Sequence[Request]) -> Iterable[Answer]:
        """Answer any number of requests, in order, as fast as the store can."""

    def _values(self, requests: Sequence[Request]) -> list[bytes | None]:
        """Return the values for some requests; raise the first error."""
        values: list[bytes | None] = []
        for answer in self._answer_all(requests):
            if answer.error is not None:
                raise answer.error
            values.append(None if answer.value is None else as_bytes(answer.value))
        return values

    def get(self, key: str) -> bytes | None:
        """Return the value of ``key``, or None if there is none.

        Raises
        ------
        StoreError
            If that cannot be told: the bucket does not exist, the server refuses, or every attempt fails.
        """
        try:
            return self._values([Request(key)])[0]
        except ErasedArrayError:
            # Arrays are read by the other methods.
            return None

    def get_partial_values(self, key_ranges: Sequence[tuple[str, ByteRange]]) -> list[bytes | None]:
        """Return parts of values, in order; None for each absent key.

        Raises
        ------
        StoreError
            As for :meth:`get`, or if a range does not lie within the value.
        """
        return self._values([Request(key, byte_range) for key, byte_range in key_ranges])


class WholeValues(ABC):
    """Writing parts of values, by writing the whole."""

    @abstractmethod
    def _check_writable(self) -> None:
        """Raise :class:`ReadOnlyError` if the store cannot be changed."""

    @abstractmethod
    def get(self, key: str) -> bytes | None:
        """Return the value of ``key``, or None if there is none."""

    @abstractmethod
    def set(self, key: str, value: Buffer) -> None:
        """Store ``value`` under ``key``."""

    @abstractmethod
    def erase_values(self, keys: Iterable[str]) -> None:
        """Erase several keys."""

    def set_partial_values(self, key_start_values: Iterable[tuple[str, int, bytes]]) -> None:
        """Write parts of values: (key, offset in bytes, bytes). Whole values are read, changed and written."""
        self._check_writable()
        for key, start, part in key_start_values:
            self.set(key, splice(self.get(key), start, part))

    def erase(self, key: str) -> None:
        """Erase ``key`` if it exists."""
        self.erase_values([key])
