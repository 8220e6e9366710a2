"""How often each sample comes, by its weight or its class."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from ..arrays.host_copies import host_copy
from ..errors import ArgumentError
from ..flags import flag
from ..poses.numbers_given import as_floats
from ..windows.columns import NullableValues
from .arguments import as_array, common_length, fitting, integer
from .drawing import at_most_once
from .naming import in_volume

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from ..arrays.exporting import ExportedArray

    IntArray = npt.NDArray[np.int64]


class Weighed(Protocol):
    """A sampler along one axis whose samples may have weights: a dataclass."""

    @property
    def axis(self) -> int:
        """Axis of the rows."""

    @property
    def balance(self) -> Any:
        """Name of the array of classes, or the classes, or None."""

    @property
    def weights(self) -> Any:
        """Weights, or None."""

    @property
    def samples(self) -> int | None:
        """Samples of an epoch, or None."""

    @property
    def replace(self) -> bool:
        """Whether a sample may come several times."""

    def rows(self, size: int) -> IntArray:
        """Return which rows, of a number of them, are samples."""


W = TypeVar("W", bound=Weighed)


@dataclasses.dataclass(frozen=True)
class ClassWeights:
    """Weights by which all classes come equally often.

    Attributes
    ----------
    weights
        float64 ``(rows,)``: 0 for rows that are no samples.
    classes
        int64 ``(rows,)``: numbers of the classes.
    """

    weights: npt.NDArray[np.float64]
    classes: IntArray

    def of_samples(self, rows: IntArray | None) -> IntArray:
        """Return the class of each sample, whose rows are given; None for all rows."""
        return self.classes if rows is None else self.classes[rows]


def classes_of(weights: Any, rows: IntArray | None) -> IntArray | None:
    """Return the class of each sample if weights are those of classes, int64 ``(n,)``, else None."""
    return weights.of_samples(rows) if isinstance(weights, ClassWeights) else None


def own_weights(weights: Any) -> Any:
    """Return weights that stay as they are, whatever becomes of the user's; what are no numbers, as it was given."""
    try:
        return None if weights is None else as_floats(weights)
    except (TypeError, ValueError, OverflowError):
        return weights


def checked_weights(
    weights: Any,
    count: int,
    size: int | None = None,
    rows: IntArray | None = None,
    listed: IntArray | None = None,
) -> npt.NDArray[np.float64] | None:
    """Return the weight of each sample.

    Parameters
    ----------
    weights
        Numbers of at least 0, one for each sample; None for none.
    count
        Number of samples.
    size, rows
        Number of rows of the arrays, to each of which a weight may belong instead, and the row of each sample; None if
        samples have no rows.
    listed
        The rows that were given, of which those in ``rows`` are some; None for ``rows``.

    Raises
    ------
    ArgumentError
        If they are none, of another number, or all of them 0; it names the first one that is wrong. If they may belong
        to the rows as well as to the samples, and mean something else then.
    """
    if weights is None:
        return None
    if belong_to_rows := isinstance(weights, ClassWeights):
        weights = weights.weights
    try:
        found = as_floats(weights).ravel()
    except (TypeError, ValueError, OverflowError) as error:
        raise ArgumentError(f"weights must be numbers: {error}") from error
    of_rows = rows is not None and len(found) == size
    if of_rows:
        given: Any = rows if listed is None else listed
        if len(given) == size and not (belong_to_rows or np.array_equal(found, found[given], equal_nan=True)):
            raise ArgumentError(
                f"weights= has {size} numbers, as many as where= and as the arrays along the axis of samples, so they "
                "may belong to either: instead of where=, give weights=np.bincount(where, weights, minlength=n) if "
                f"they belong to where=, or weights * np.bincount(where, minlength=n) if to the arrays, with n={size}"
            )
        found = found[rows]
    if len(found) != count:
        raise ArgumentError(f"weights must be {count} numbers of at least 0, not all of them 0; these are {len(found)}")
    # NaN is not at least 0.
    right = (found >= 0) & (found < np.inf)
    if not right.all():
        i = int(np.argmin(right))
        place = int(rows[i]) if rows is not None and of_rows else i
        raise ArgumentError(f"weights must be numbers of at least 0, but weight {place} is {found[i]}")
    if count and not found.any():
        raise ArgumentError(f"weights must be numbers of at least 0, not all of them 0; these {count} are")
    return found


def checked_number(
    number: int | None, count: int, weights: npt.NDArray[np.float64] | None, *, replace: bool
) -> int | None:
    """Return a number of samples as an integer of Python; refuse one that cannot be drawn.

    Parameters
    ----------
    number
        Samples of an epoch; None for as many as there are.
    count, weights
        Number of samples to draw from, and their weights.
    replace
        Whether a sample may be drawn several times.
    """
    if number is not None:
        number = integer("samples", number)
    if number and not count:
        raise ArgumentError(f"samples={number}, but there are none to draw from")
    if flag("replace", replace):
        return number
    there = count if weights is None else int(np.count_nonzero(weights))
    if number is None and weights is not None:
        raise ArgumentError(
            f"without replacement, weights need samples=, fewer than the {there} that there are: of all of them, each "
            "comes once"
        )
    if number is not None and number > there:
        raise ArgumentError(f"samples={number} without replacement, but there are {there} to draw from")
    return number


def balanced(sampler: W, volumes: Sequence[Mapping[str, ExportedArray]]) -> list[W]:
    """Return a sampler for each volume by which all classes are drawn equally often, over all volumes together.

    Parameters
    ----------
    sampler
        Sampler of all volumes, with ``balance``.
    volumes
        Arrays of each volume by name.

    Raises
    ------
    ArgumentError
        If there are no such classes, or if there are weights as well.
    """
    if sampler.weights is not None:
        raise ArgumentError("give weights= or balance=, not both")
    rows, classes, missing = [], [], []
    for i, arrays in enumerate(volumes):
        with in_volume(i, len(volumes), arrays):
            size = common_length(arrays, sampler.axis)
            found, without = _classes(sampler, arrays, size)
            classes.append(found)
            missing.append(without)
            rows.append(sampler.rows(size))
    all_classes = np.concatenate([each[own] for each, own in zip(classes, rows, strict=True)])
    there = (
        None
        if all(each is None for each in missing)
        else np.concatenate(
            [np.ones(len(own), bool) if each is None else ~each[own] for each, own in zip(missing, rows, strict=True)]
        )
    )
    try:
        _, which, counts = np.unique(
            all_classes if there is None else all_classes[there], return_inverse=True, return_counts=True
        )
    except TypeError as error:
        raise ArgumentError(
            f"balance= has classes that have no order ({error}), as where some are missing: give those a class of "
            "their own, or leave their rows out by where="
        ) from error
    which = which.reshape(-1)
    if there is not None and not there.all():
        # Rows without a class are one of their own, the last.
        known, which = which, np.full(len(there), len(counts))
        which[there] = known
        counts = np.append(counts, len(there) - len(known))
    if not len(counts):
        # Without samples there are no classes, and the loader says why there are none.
        return [dataclasses.replace(sampler, balance=None, samples=None)] * len(volumes)  # type: ignore[type-var]
    borders = np.cumsum([0, *map(len, rows)])
    weights = 1.0 / counts[which]
    number = _number(sampler, len(volumes), counts)
    expected = number / len(counts) * weights
    if not sampler.replace:
        expected = at_most_once(expected, number)
    # Those of each volume in the mean: which ones it has is drawn with those of the others, for each epoch.
    ends = np.floor(np.append(0, np.cumsum(expected))[borders] + 0.5).astype(np.int64)
    if not sampler.replace:
        ends = _at_most(ends, borders)
    result = []
    each, numbers = np.split(weights, borders[1:-1]), np.split(which, borders[1:-1])
    of_each = zip(rows, each, numbers, map(len, classes), np.diff(ends).tolist(), strict=True)
    for own, some, its_classes, size, count in of_each:
        everywhere = ClassWeights(np.zeros(size), np.zeros(size, np.int64))
        everywhere.weights[own], everywhere.classes[own] = some, its_classes
        replaced: Any = dataclasses.replace(
            sampler,  # type: ignore[type-var]
            balance=None,
            weights=everywhere,
            samples=count,
        )
        result.append(replaced)
    return result


def _at_most(ends: IntArray, borders: IntArray) -> IntArray:
    """Return where each volume's number of all samples ends, so that none has more than its rows.

    What one has no room for, as its number was rounded up, is for the volumes after it, or else for those before it.
    """
    left = np.minimum.accumulate(ends - borders)
    left[-1] = ends[-1] - borders[-1]
    return np.asarray(borders + np.maximum.accumulate(left[::-1])[::-1], np.int64)


def _number(sampler: Weighed, volumes: int, counts: IntArray) -> int:
    """Return how many samples of some volumes an epoch has, whose classes have some numbers of rows."""
    there = int(counts.sum())
    if sampler.samples is None:
        # Without replacement, as many of each class as the smallest one has.
        return there if flag("replace", sampler.replace) else len(counts) * int(counts.min())
    number = integer("samples", sampler.samples) * volumes
    if number > there and not flag("replace", sampler.replace):
        of_each = f" of each of {volumes} volumes" if volumes > 1 else ""
        raise ArgumentError(
            f"samples={sampler.samples}{of_each} without replacement, but there are {there} to draw from"
        )
    return number


def _classes(
    sampler: Weighed, arrays: Mapping[str, ExportedArray], size: int
) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_] | None]:
    """Return the class of each row, and which rows have none; None if all have one."""
    given, missing = sampler.balance, None
    if isinstance(given, str):
        if given not in arrays:
            raise ArgumentError(f"balance={given!r} names no array of the loader, which has {sorted(arrays)}")
        array = arrays[given]
        others = (*array.shape[: sampler.axis], *array.shape[sampler.axis + 1 :])
        if array.ndim <= sampler.axis or any(n != 1 for n in others):
            raise ArgumentError(
                f"balance={given!r} needs one class for each row, along axis {sampler.axis}; the array has shape "
                f"{array.shape}"
            )
        with fitting(f"balance={given!r}", "give arrays of a part, such as array.view[:10**9]"):
            found: Any = array[...]
        given = host_copy(found) if hasattr(found, "get") else found
        if isinstance(array, NullableValues):
            missing = array.mask().reshape(-1)
    elif isinstance(given, np.ma.MaskedArray):
        missing = np.ma.getmaskarray(given).reshape(-1)
    classes = as_array("balance", given, unmasked=True).reshape(-1)
    if len(classes) != size:
        raise ArgumentError(f"balance= has {len(classes)} classes for {size} rows")
    return classes, missing
