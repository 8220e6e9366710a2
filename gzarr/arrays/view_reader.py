"""Reading views: planned over the chunks of the view, and read as chunks of the array."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..engines import monitor
from ..engines.stack import Stack
from ..plan.planner import plan
from .outputs import HOST
from .read import Reader
from .read_options import NO_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..engines.access.access import Missing, ReadRequest, Verify
    from ..metadata.model import ArrayMetadata
    from ..plan.axes import IntArray
    from ..plan.decode_program import Decoding
    from ..plan.planner import Plan
    from ..plan.selection import Selection
    from ..plan.view import View
    from .outputs import Results
    from .read import Way
    from .read_options import DeviceOptions


class ViewReader(Reader):
    """Reader of a view.

    Parameters
    ----------
    of
        Reader of the array.
    view
        The chunks of the view.
    metadata, store, path, device
        As for :class:`Reader`; the metadata describe the view.
    """

    __slots__ = ("_of", "_view")

    def __init__(self, of: Reader, view: View, metadata: ArrayMetadata, store: Any, path: str, device: str) -> None:
        super().__init__(metadata, store, path, device)
        self._of, self._view = of, view
        self._grid = view.grid

    @property
    def decoding(self) -> Decoding:
        """Codec chain of the array, analysed."""
        return self._of.decoding

    def path(self, device: str, verify: Verify = "none") -> str:
        """Return what this is for the array."""
        return self._of.path(device, verify)

    def converting(self, dtype: np.dtype[Any]) -> ViewReader | None:
        """Return the reader of the view that converts elements; as :meth:`Reader.converting`."""
        of = self._of.converting(dtype)
        if of is None:
            return None
        return ViewReader(of, self._view, self._metadata, self._store, self._path, self._device)

    def explain(self, selection: Selection, field: str | None, *, on_host: bool) -> tuple[Way, int, int, int]:
        """Return what a read will do; as :meth:`Reader.explain`."""
        if selection.points is None:
            return self._of.explain(self._view.selection(selection), field, on_host=on_host)
        chunks, _ = self._view.chunks(plan([selection], self.planned_grid).chunks)
        return self._of._way(selection, field, on_host=on_host), len(chunks), *self._of._stored(chunks)

    def ask(self, chunks: IntArray, ask: Callable[[ReadRequest], None]) -> None:
        """Find chunks of the array; as :meth:`Reader.ask`."""
        self._of.ask(self._view.chunks(chunks)[0], ask)

    def fill(
        self,
        selections: Sequence[Selection],
        results: Sequence[Any],
        field: str | None,
        missing: Missing,
        memory: Results = HOST,
        whole: Any = None,
        options: DeviceOptions = NO_OPTIONS,
    ) -> None:
        """Read each selection into its result; as :meth:`Reader.fill`."""
        if memory is HOST and len(selections) == 1 and field is None and monitor.current() is None:
            first = selections[0]
            if first.indices is None and first.points is None and self._of.planned_grid.is_regular:
                box, index = self._view.box(first)
                target = first.view(results[0])
                if target is not None and index is not None:
                    target = target[(*index, ...)]
                if target is not None and self._of._fill_quickly(box, target, missing):
                    return
        super().fill(selections, results, field, missing, memory, whole, options)

    def _run_parts(
        self,
        the_plan: Plan,
        views: Sequence[Any],
        field: str | None,
        missing: Missing,
        memory: Results,
        whole: Any,
        options: DeviceOptions,
    ) -> None:
        if not len(the_plan):
            return
        ndim = len(self.planned_grid.axes)
        if the_plan.points is not None:
            lengths = np.zeros((len(views), ndim), np.int64)
        elif isinstance(views, Stack):
            lengths = np.broadcast_to(np.array(views.arrays[0].shape[1:], np.int64), (len(views), ndim))
        else:
            lengths = np.array([view.shape for view in views], np.int64).reshape(len(views), ndim)
        planned, index = self._view.plan(the_plan, lengths)
        if index is not None and isinstance(views, Stack):
            views = Stack([array[(slice(None), *index)] for array in views.arrays])
        elif index is not None:
            views = [view[(*index, ...)] for view in views]
        self._of._run_parts(planned, views, field, missing, memory, whole, options)

    def _fill_quickly(self, selection: Selection, result: Any, missing: Missing) -> bool:
        return False

    def _fill_chunks_quickly(self, coords: Sequence[tuple[int, ...]], results: Sequence[Any], missing: Missing) -> bool:
        return False
