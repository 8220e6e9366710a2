"""All families of data types. To add one, write its module and list it here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from . import fixed_length, variable_length
from .family import no_data_type
from .numbers import NUMBERS
from .properties import kind_of
from .structured import Structured
from .times import TIMES

if TYPE_CHECKING:
    import numpy as np

    from .family import Family


def family_of(dtype: np.dtype[Any]) -> Family:
    """Return the family of a dtype.

    Raises
    ------
    ArgumentError
        If Zarr has no data type for it.
    """
    if dtype.fields is not None:
        return STRUCTURED
    family = BY_KIND.get(kind_of(dtype))
    if family is None:
        raise no_data_type(dtype)
    return family


STRUCTURED: Final = Structured(family_of)
#: In the order in which v3 names are looked up.
FAMILIES: Final[tuple[Family, ...]] = (
    NUMBERS,
    fixed_length.TEXT,
    fixed_length.BYTES,
    fixed_length.RAW,
    TIMES,
    STRUCTURED,
    variable_length.BYTES,
    variable_length.TEXT,
)
#: By NumPy's kind letter. Structured types share ``V`` with raw bytes and are recognised by their fields.
BY_KIND: Final[dict[str, Family]] = {
    kind: family for family in FAMILIES if family is not STRUCTURED for kind in family.kinds
}
