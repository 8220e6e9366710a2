"""Units of axes: names of UDUNITS-2 that the specification recommends, and their sizes."""

from __future__ import annotations

from typing import Final

_PREFIXES: Final = {
    "yotta": 1e24, "zetta": 1e21, "exa": 1e18, "peta": 1e15, "tera": 1e12, "giga": 1e9, "mega": 1e6, "kilo": 1e3,
    "hecto": 1e2, "": 1.0, "deci": 1e-1, "centi": 1e-2, "milli": 1e-3, "micro": 1e-6, "nano": 1e-9, "pico": 1e-12,
    "femto": 1e-15, "atto": 1e-18, "zepto": 1e-21, "yocto": 1e-24,
}  # fmt: skip
#: Metres in a unit of length.
SPACE_UNITS: Final = {
    "micrometer": 1e-6,
    **{f"{prefix}meter": size for prefix, size in _PREFIXES.items()},
    "angstrom": 1e-10,
    "foot": 0.3048,
    "inch": 0.0254,
    "mile": 1609.344,
    "parsec": 3.0856775814913673e16,
    "yard": 0.9144,
}
#: Seconds in a unit of time.
TIME_UNITS: Final = {
    "second": 1.0,
    **{f"{prefix}second": size for prefix, size in _PREFIXES.items()},
    "minute": 60.0,
    "hour": 3600.0,
    "day": 86400.0,
}
#: Units of each type of axes that has some.
UNITS: Final = {"space": SPACE_UNITS, "time": TIME_UNITS}
#: Other names for units, by type of axes, that files in the wild have.
OTHER_NAMES: Final = {
    "space": {"micron": "micrometer", "microns": "micrometer", "um": "micrometer", "µm": "micrometer",
              "μm": "micrometer", "nm": "nanometer", "mm": "millimeter", "cm": "centimeter", "m": "meter",
              "pm": "picometer", "å": "angstrom", "Å": "angstrom", "in": "inch"},
    "time": {"s": "second", "sec": "second", "ms": "millisecond", "us": "microsecond", "µs": "microsecond",
             "μs": "microsecond", "ns": "nanosecond", "min": "minute", "h": "hour"},
}  # fmt: skip
#: Symbols of other units than those in lower case: of millions and of 10**15 of them.
_OTHERS: Final = frozenset({"Mm", "Pm", "Ms"})


def unit_named(unit: str, kind: str) -> str | None:
    """Return the specification's name of a unit of ``"space"`` or ``"time"``; None if it is not known.

    Plurals, British spellings and upper case are understood, but of symbols that are those of other units: ``Mm`` is
    not ``mm``.
    """
    if unit in _OTHERS:
        return None
    lower = unit.lower()
    name = lower.replace("metre", "meter").removesuffix("s")
    return next((known for known in (OTHER_NAMES[kind].get(lower), name) if known in UNITS[kind]), None)


def meters(unit: str | None) -> float | None:
    """Return the metres in a unit of length, as :func:`unit_named` understands it; None for other and unknown units."""
    if unit is None:
        return None
    name = unit_named(unit, "space")
    return None if name is None else SPACE_UNITS[name]
