"""Conversions of numbers between a decoded chunk and the output, by the number in a geometry's ``CONVERSION``."""

from __future__ import annotations

from typing import Final

_INTEGERS: Final = ("u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8")


def _pairs() -> tuple[tuple[str, str], ...]:
    numbers = [(source, target) for source in _INTEGERS for target in ("f4", "f8")]
    floats = [("f2", "f4"), ("f2", "f8"), ("f4", "f2"), ("f4", "f8"), ("f8", "f4")]
    # The sign of the target never matters, that of the source only if the target is wider.
    sizes = [(a, b) for a in (1, 2, 4, 8) for b in (1, 2, 4, 8) if a != b]
    integers = [(f"{sign}{a}", f"u{b}") for a, b in sizes for sign in ("ui" if b > a else "u")]
    return (*numbers, *floats, *integers)


#: Data types of the source and the target of each compiled conversion. Conversion ``n`` is ``PAIRS[n - 1]``.
PAIRS: Final = _pairs()
#: Number of the conversion that changes nothing.
NONE: Final = 0


def conversion(source: str, target: str) -> int | None:
    """Return the number of a conversion as C and NumPy convert, or None if it is not compiled.

    Parameters
    ----------
    source, target
        Kind and size of the native data types: ``"b1"``, ``"u2"``, ``"i4"``, ``"f8"``, ….
    """
    if source == target:
        return NONE
    if source == "b1":
        source = "u1"
    if source[0] in "ui" and target[0] in "ui":
        if source[1] == target[1]:
            return NONE
        target = f"u{target[1]}"
        if target[1] < source[1]:
            source = f"u{source[1]}"
    return PAIRS.index((source, target)) + 1 if (source, target) in PAIRS else None
