"""``cached_property`` without a lock.

That of Python 3.11 has one lock for all objects of a class, held while a value is computed: a child that is forked
meanwhile would wait for it for ever, and threads for each other's values. Later versions have none. Values that two
threads compute at a time must be equal.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

if TYPE_CHECKING or sys.version_info >= (3, 12):
    from functools import cached_property
else:

    class cached_property:
        """As :class:`functools.cached_property` of Python 3.12."""

        def __init__(self, function: Callable[[Any], Any]) -> None:
            self._function = function
            self.__doc__ = function.__doc__

        def __set_name__(self, owner: type, name: str) -> None:
            self._name = name

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            if instance is None:
                return self
            value = instance.__dict__[self._name] = self._function(instance)
            return value


__all__ = ["cached_property"]
