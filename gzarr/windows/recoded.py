"""Codes of categorical columns as numbers of another list of categories, mapped while they are read.

They are read to host memory and mapped there: a column has a byte or two for each row.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn

import numpy as np

from ..arrays.outputs import HOST, DeviceResults
from ..arrays.read import Reader
from ..arrays.read_options import NO_OPTIONS
from ..arrays.view import ArrayView
from ..plan.view import whole_extents

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from ..arrays.outputs import Results
    from ..arrays.read import Way
    from ..arrays.read_options import DeviceOptions
    from ..engines.access.access import Missing, ReadRequest, Verify
    from ..metadata.model import ArrayMetadata
    from ..plan.decode_program import Decoding
    from ..plan.planner import Plan
    from ..plan.selection import Selection
    from .columns import Codes

    IntArray = npt.NDArray[np.int64]

#: Code of a missing value.
MISSING: Final = -1


class RecodedView(ArrayView):
    """The codes of a categorical column as numbers of another list of categories.

    Parameters
    ----------
    codes
        The codes.
    numbers
        int64 ``(categories of the column,)``, number of each in the list.
    categories
        The list, objects ``(n,)``.
    """

    __slots__ = ("_categories", "_numbers")

    def __init__(self, codes: Codes, numbers: IntArray, categories: npt.NDArray[Any]) -> None:
        super().__init__(codes, whole_extents(codes.shape))
        self._numbers, self._categories = numbers, categories
        # The last one stands for codes of no category, such as -1.
        table = np.append(numbers, MISSING).astype(code_type(len(categories)))
        (fill_value,) = _mapped(np.array([codes.metadata.absent_element]), table)
        self._metadata: ArrayMetadata = replace(self._metadata, dtype=table.dtype, fill_value=fill_value)
        self._reader: Reader = _RecodedReader(self._reader, table, self._metadata, self.store, self.path, self._device)

    def __reduce__(self) -> tuple[Any, ...]:
        return RecodedView, (self._base, self._numbers, self._categories)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RecodedView):
            return NotImplemented
        return self._base == other._base and np.array_equal(self._numbers, other._numbers)

    __hash__: ClassVar[None] = None

    def __dask_tokenize__(self) -> str:
        return f"{super().__dask_tokenize__()} {self._numbers.tolist()} {self.dtype}"

    @property
    def view(self) -> NoReturn:
        """Not for codes that are mapped: a view of them would be one of the codes as they are stored.

        Raises
        ------
        ArgumentError
            Always.
        """
        self._refuse("view")

    def categories(self) -> npt.NDArray[Any]:
        """Return the list of categories."""
        return self._categories

    def _on_device(self, device: str) -> RecodedView:
        base: Any = self._base
        return self if self.device == device else RecodedView(base._on_device(device), self._numbers, self._categories)


def code_type(count: int) -> np.dtype[Any]:
    """Return the smallest signed integer type that has the numbers of some categories."""
    return np.result_type(np.int8, np.min_scalar_type(-max(count, 1)))


def _mapped(codes: npt.NDArray[Any], table: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return what stands for codes in a table, whose last element is for those of no category."""
    last = len(table) - 1
    return table[np.where((codes >= 0) & (codes < last), codes, last)]


class _RecodedReader(Reader):
    """Reader of codes that are mapped.

    Parameters
    ----------
    of
        Reader of the codes as they are stored.
    table
        What stands for each code, and last for those of no category.
    metadata, store, path, device
        As for :class:`Reader`; the metadata have the type of the results.
    """

    __slots__ = ("_of", "_table")

    def __init__(
        self, of: Reader, table: npt.NDArray[Any], metadata: ArrayMetadata, store: Any, path: str, device: str
    ) -> None:
        super().__init__(metadata, store, path, device)
        self._of, self._table = of, table
        self._grid = of.planned_grid

    @property
    def decoding(self) -> Decoding:
        """Codec chain of the codes, analysed."""
        return self._of.decoding

    def path(self, device: str, verify: Verify = "none") -> str:
        """Return what this is for the codes."""
        return self._of.path(device, verify)

    def converting(self, dtype: np.dtype[Any]) -> Reader | None:
        """Return None: elements are converted afterwards."""
        return None

    def explain(self, selection: Selection, field: str | None, *, on_host: bool) -> tuple[Way, int, int, int]:
        """Return what a read will do; as :meth:`Reader.explain`."""
        return self._of.explain(selection, field, on_host=on_host)

    def ask(self, chunks: IntArray, ask: Callable[[ReadRequest], None]) -> None:
        """Find chunks of the codes; as :meth:`Reader.ask`."""
        self._of.ask(chunks, ask)

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
        codes, parts = self._codes_for(results)
        self._of.fill(selections, parts, field, missing)
        self._give(codes, results, memory)

    def fill_chunks(
        self,
        coords: Sequence[tuple[int, ...]],
        results: Sequence[Any],
        missing: Missing,
        memory: Results = HOST,
        whole: Any = None,
        options: DeviceOptions = NO_OPTIONS,
    ) -> None:
        """Read whole chunks, each into its result; as :meth:`Reader.fill_chunks`."""
        codes, parts = self._codes_for(results)
        self._of.fill_chunks(coords, parts, missing)
        self._give(codes, results, memory)

    def fill_windows(
        self,
        starts: IntArray,
        step: tuple[int, ...],
        rows: IntArray | None,
        results: Sequence[Any],
        missing: Missing,
        memory: Results = HOST,
        options: DeviceOptions = NO_OPTIONS,
    ) -> None:
        """Read many windows of one shape; as :meth:`Reader.fill_windows`."""
        codes = np.empty((len(starts), *results[0].shape[1:]), self._dtype)
        self._of.fill_windows(starts, step, None, [codes], missing)
        self._put(codes, np.arange(len(starts)) if rows is None else rows, results, memory)

    def fill_planned(
        self,
        the_plan: Plan,
        results: Sequence[Any],
        missing: Missing,
        memory: Results = HOST,
        options: DeviceOptions = NO_OPTIONS,
    ) -> None:
        """Read what a plan of windows says; as :meth:`Reader.fill_planned`.

        What the plan does not fill of its windows is undefined.
        """
        rows, which = np.unique(the_plan.output, return_inverse=True)
        codes = np.empty((len(rows), *results[0].shape[1:]), self._dtype)
        self._of.fill_planned(replace(the_plan, output=which), [codes], missing)
        self._put(codes, rows, results, memory)

    @property
    def _dtype(self) -> np.dtype[Any]:
        return self._of._metadata.dtype

    def _codes_for(self, results: Sequence[Any]) -> tuple[npt.NDArray[Any], list[npt.NDArray[Any]]]:
        """Return an array for the codes of all results together, and the part of each."""
        ends = np.cumsum([result.size for result in results]).tolist()
        codes = np.empty(ends[-1], self._dtype)
        pairs = zip(results, ends, strict=True)
        return codes, [codes[end - result.size : end].reshape(result.shape) for result, end in pairs]

    def _give(self, codes: npt.NDArray[Any], results: Sequence[Any], memory: Results) -> None:
        """Map codes, and copy them to the results that they are for, one after the other."""
        mapped, begin = _in(memory, _mapped(codes, self._table)), 0
        for result in results:
            memory.copy(result, mapped[begin : begin + result.size].reshape(result.shape))
            begin += result.size

    def _put(self, codes: npt.NDArray[Any], rows: IntArray, results: Sequence[Any], memory: Results) -> None:
        """Map the codes of windows, and copy them to their places along the first axes of the results."""
        mapped, begin = _mapped(codes, self._table), 0
        for result in results:
            here = np.flatnonzero((rows >= begin) & (rows < begin + len(result)))
            places, own = rows[here] - begin, _in(memory, mapped[here])
            begin += len(result)
            if len(places) == len(result) and (np.diff(places) > 0).all():
                memory.copy(result, own)
            elif isinstance(memory, DeviceResults):
                with memory.device, memory.stream:
                    result[_in(memory, places)] = own
            else:
                result[places] = own


def _in(memory: Results, values: npt.NDArray[Any]) -> Any:
    """Return an array in some memory."""
    if not isinstance(memory, DeviceResults) or not values.size:
        return values
    from ..engines.cuda.uploads import uploaded

    with memory.device as device:
        return uploaded(device, values, memory.stream)
