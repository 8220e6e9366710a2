"""Properties of NumPy dtypes, including ml_dtypes', for codecs and engines."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from . import number_types

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt


def native(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return ``dtype`` with every part in native byte order."""
    return dtype.newbyteorder("=")


def packed(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return ``dtype`` with the fields of structured types packed, as in documents."""
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return np.dtype((packed(base), shape))
    if dtype.fields is None:
        return dtype
    return np.dtype([(name, packed(dtype.fields[name][0])) for name in dtype.names or ()])


# -- bytes of an element -----------------------------------------------------------------------------------------------


def swap_unit(dtype: np.dtype[Any]) -> int | None:
    """Return the width in bytes of the units that a change of byte order reverses.

    1 where byte order has no meaning; None where the fields of a structured type have several widths.
    """
    if dtype.subdtype is not None:
        return swap_unit(dtype.subdtype[0])
    if dtype.fields is not None:
        widths = {swap_unit(field[0]) for field in dtype.fields.values()}
        return widths.pop() if len(widths) == 1 else None
    row = number_types.of(dtype)
    if row is not None:
        return row.swap_unit
    if dtype.kind in "SVO":
        return 1
    if dtype.kind == "U":
        return 4
    return dtype.itemsize // 2 if dtype.kind == "c" else dtype.itemsize


def storage(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return a type of the same layout and byte order, with unsigned integers in place of ml_dtypes numbers."""
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return np.dtype((storage(base), shape))
    if dtype.fields is not None:
        return _storage_of_fields(dtype)
    row = number_types.of(dtype)
    if row is None or row.is_numpys:
        return dtype
    return row.storage.newbyteorder(dtype.byteorder)


@functools.lru_cache(maxsize=256)
def _storage_of_fields(dtype: np.dtype[Any]) -> np.dtype[Any]:
    names = dtype.names or ()
    fields: Mapping[str, Any] = dtype.fields or {}
    # By offset: fields of a view need not be packed.
    return np.dtype(
        {
            "names": list(names),
            "formats": [storage(fields[name][0]) for name in names],
            "offsets": [fields[name][1] for name in names],
            "itemsize": dtype.itemsize,
        }
    )


def low_bits(dtype: np.dtype[Any]) -> npt.NDArray[np.uint8] | None:
    """Return the mask of the meaningful bits of a number of less than 8 bits, uint8 ``(1,)``; None for other types."""
    row = number_types.of(dtype)
    return np.array([(1 << row.bits) - 1], np.uint8) if row is not None and row.has_spare_bits else None


def has_spare_bits(dtype: np.dtype[Any]) -> bool:
    """Return whether a type has numbers of less than 8 bits, which leave the high bits of their byte unused."""
    if dtype.subdtype is not None:
        return has_spare_bits(dtype.subdtype[0])
    if dtype.fields is not None:
        return _some_field_has_spare_bits(dtype)
    row = number_types.of(dtype)
    return row is not None and row.has_spare_bits


@functools.lru_cache(maxsize=256)
def _some_field_has_spare_bits(dtype: np.dtype[Any]) -> bool:
    return any(has_spare_bits(field[0]) for field in (dtype.fields or {}).values())


def clear_spare_bits(elements: npt.NDArray[Any], dtype: np.dtype[Any]) -> None:
    """Zero the unused bits, as ml_dtypes does.

    Parameters
    ----------
    elements
        Elements as ``storage(dtype)``; changed in place.
    dtype
        Type of the elements.
    """
    if dtype.subdtype is not None:
        clear_spare_bits(elements, dtype.subdtype[0])
    elif (mask := low_bits(dtype)) is not None:
        # The scalar, because the mask of shape (1,) does not fit elements without dimensions.
        elements &= mask[0]
    elif has_spare_bits(dtype):
        for name in dtype.names or ():
            clear_spare_bits(elements[name], dtype[name])


# -- numbers -----------------------------------------------------------------------------------------------------------


def kind_of(dtype: np.dtype[Any]) -> str:
    """Return the ``kind`` of a type; ``"i"``, ``"u"``, ``"f"`` or ``"c"`` also for the numbers of ml_dtypes."""
    row = number_types.of(dtype)
    return dtype.kind if row is None else row.kind


def bits(dtype: np.dtype[Any]) -> int:
    """Return the number of bits of one real number, boolean or date."""
    row = number_types.of(dtype)
    return 8 * dtype.itemsize if row is None else row.bits


def number_limits(dtype: np.dtype[Any]) -> tuple[int, int]:
    """Return the smallest and the largest value of an integer type."""
    width = bits(dtype)
    return (0, 2**width - 1) if kind_of(dtype) == "u" else (-(2 ** (width - 1)), 2 ** (width - 1) - 1)


def component(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type of the real part of a complex type, in native byte order; other types unchanged."""
    row = number_types.of(dtype)
    if row is not None and row.part is not None:
        return number_types.NUMBER_TYPES.by_v3_name[row.part].dtype()
    # C's long double, which a data type from another package may use.
    return np.dtype(f"f{dtype.itemsize // 2}") if dtype.kind == "c" else dtype


def mantissa_bits(dtype: np.dtype[Any]) -> int | None:
    """Return the number of stored mantissa bits, or None if the type is not a real floating-point type."""
    row = number_types.of(dtype)
    if row is not None:
        return row.mantissa
    return int(np.finfo(dtype).nmant) if dtype.kind == "f" else None


def is_in_cupy(dtype: np.dtype[Any]) -> bool:
    """Return whether CuPy supports a type, in its byte order."""
    row = number_types.of(dtype)
    return row is not None and row.in_cupy and dtype.isnative
