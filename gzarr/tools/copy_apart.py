"""A copy that looks, before it erases its destination, whether that is the source under another address."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ..stores.aliases import check_elsewhere
from .planned_copy import Copy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..metadata.model import ZarrFormat
    from ..stores.base import ReadableStore
    from .planned_copy import CopyTarget

WAY_OUT: Final = "copy to another path, and move the copy if need be"


class ApartCopy(Copy):
    """A copy whose destination is not erased if its source is there.

    Parameters
    ----------
    target, formats
        As for :class:`gzarr.tools.planned_copy.Copy`.
    source
        Store and path of the node that is copied.
    """

    def __init__(
        self, target: CopyTarget, formats: tuple[ZarrFormat, ZarrFormat], source: tuple[ReadableStore, str]
    ) -> None:
        super().__init__(target, formats)
        self._source = source

    def _steps(self, executor: Any) -> Iterator[int]:
        if self._erase or self._strays:
            check_elsewhere([self._source], self._store, self._path, operation="copy", instead=WAY_OUT)
        yield from super()._steps(executor)
