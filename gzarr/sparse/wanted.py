"""What is made of the entries of rows: which columns, in which type, scaled or not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from gzarr_kernels.slots.conversion import conversion

from ..documents.json import quote
from ..errors import ArgumentError
from ..flags import flag
from ..real_numbers import is_positive

if TYPE_CHECKING:
    from .chosen import Columns


@dataclass(frozen=True, slots=True)
class Scaling:
    """How the values of a row are scaled.

    Attributes
    ----------
    total
        Sum that each row gets, over all its columns, also those that are not chosen; a row whose sum is 0 stays. None
        for no change.
    log1p
        Whether the logarithm of 1 + x is taken of each element x then.
    """

    total: float | None = None
    log1p: bool = False

    def __bool__(self) -> bool:
        return self.total is not None or self.log1p

    @classmethod
    def of(cls, normalize: Any, log1p: Any, dtype: np.dtype[Any], name: str) -> Scaling:
        """Return the scaling that arguments ask for.

        Parameters
        ----------
        normalize, log1p
            As for :meth:`gzarr.sparse.Matrix.dense`.
        dtype
            Type of the results.
        name
            Name of the matrix, for messages.

        Raises
        ------
        ArgumentError
            If they are wrong, or if the type is neither ``float32`` nor ``float64``.
        """
        if normalize is not None:
            # As the number that a float holds: those of other types may be too large for it, or too small.
            if not is_positive(normalize):
                raise ArgumentError(
                    f"matrix {name!r}: normalize must be the sum that each row gets, such as 1e4, or None, not "
                    f"{quote(normalize)}"
                )
            normalize = float(normalize)
        found = cls(normalize, flag("log1p", log1p, where=f"matrix {name!r}: "))
        if found and dtype.char not in "fd":
            raise ArgumentError(
                f"matrix {name!r}: scaled values are float32 or float64, not {dtype}; pass dtype='float32'"
            )
        return found


#: Values as they are.
AS_STORED: Final = Scaling()


@dataclass(frozen=True, eq=False)
class Wanted:
    """What is made of entries.

    Attributes
    ----------
    dtype
        Type of the results, in native byte order.
    columns
        The chosen columns; None for all as they are.
    scaling
        How values are scaled.
    """

    dtype: np.dtype[Any]
    columns: Columns | None = None
    scaling: Scaling = AS_STORED

    def kept_dtype(self, stored: np.dtype[Any]) -> np.dtype[Any]:
        """Return the type that values have in memory until kernels of the host make results of them.

        It is that of the store where kernels convert from it, as it is hardly ever wider. What is scaled is not rounded
        before.
        """
        native = stored.newbyteorder("=")
        if self.scaling:
            return native if is_converted(native, np.dtype(np.float64)) else self.dtype
        if native.itemsize > self.dtype.itemsize:
            return self.dtype
        return native if is_converted(native, self.dtype) else self.dtype


def is_converted(source: np.dtype[Any], target: np.dtype[Any]) -> bool:
    """Return whether kernels convert from one type to another."""
    return _conversion(source, target) is not None


def number_of(source: np.dtype[Any], target: np.dtype[Any]) -> int:
    """Return the number of a conversion that :func:`is_converted`; 0 for none."""
    found = _conversion(source, target)
    assert found is not None
    return found


def _conversion(source: np.dtype[Any], target: np.dtype[Any]) -> int | None:
    return conversion(f"{source.kind}{source.itemsize}", f"{target.kind}{target.itemsize}")
