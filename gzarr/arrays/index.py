"""Indexing of an array other than by ``a[...]``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .write_options import WriteOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..engines.access.access import Missing, Verify
    from ..plan.selection import Selection
    from .exporting import ExportedArray
    from .read_options import Decode


class Indexer:
    """A way to index an array: ``a.oindex``, ``a.vindex`` or ``a.blocks``."""

    __slots__ = ("_array", "_name", "_parse")

    def __init__(self, array: ExportedArray, parse: Callable[..., Selection], name: str) -> None:
        self._array = array
        self._parse = parse
        self._name = name

    def __repr__(self) -> str:
        return f"{self._array!r}.{self._name}"

    def __getitem__(self, selection: Any) -> Any:
        """Read a selection; raises the same errors as :meth:`Array.__getitem__`."""
        result = self.read(selection)
        return result if result.shape else result[()]

    def __setitem__(self, selection: Any, value: Any) -> None:
        """Write to a selection; raises the same errors as :meth:`Array.write`."""
        self.write(selection, value)

    def write(
        self,
        selection: Any,
        value: Any,
        *,
        lock: bool = False,
        aligned: bool = False,
        stream: Any = None,
        fill_masked: bool = False,
        budget_bytes: int | None = None,
    ) -> None:
        """Write to a selection, with the parameters of :meth:`Array.write`."""
        array: Any = self._array
        array._check_writable()
        rest, field = self._array._split_field(selection)
        parsed = self._parse(rest, self._array.shape)
        options = WriteOptions(lock, aligned, stream, fill_masked, budget_bytes)
        array._write([parsed], [value], field, options)

    def read(
        self,
        selection: Any,
        *,
        out: Any = None,
        dtype: Any = None,
        missing: Missing | None = None,
        stream: Any = None,
        budget_bytes: int | None = None,
        decode: Decode = "auto",
        verify: Verify | None = None,
    ) -> Any:
        """Read a selection, with the parameters of :meth:`Array.read`."""
        rest, field = self._array._split_field(selection)
        options = self._array._read_options(missing, stream, budget_bytes, decode, verify)
        return self._array._read(self._parse(rest, self._array.shape), field, out, options, dtype)
