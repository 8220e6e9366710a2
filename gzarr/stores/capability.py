"""What stores can do, as protocols whose ``isinstance`` is quick: engines ask several times in every read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from abc import ABCMeta as _ProtocolMeta
else:
    _ProtocolMeta = type(Protocol)


class Capability(_ProtocolMeta):
    """Metaclass of protocols of stores; which of its methods a class lacks is looked up once.

    An object has a capability if it has all methods, by its class or by itself, as with any protocol.
    """

    def __instancecheck__(cls, instance: Any) -> bool:
        """Return whether an object has all methods."""
        kind = type(instance)
        known = _lacking.get(cls)
        lacks = None if known is None else known.get(kind)
        if lacks is None:
            lacks = cls._look_up(kind)
        if not lacks:
            return True
        # Objects may have methods of their own, and classes that make up attributes.
        own = getattr(instance, "__dict__", None)
        if (own and lacks[0] in own) or hasattr(kind, "__getattr__"):
            return super().__instancecheck__(instance)
        return False

    def _look_up(cls, kind: type) -> tuple[str, ...]:
        bases = [base for base in cls.__mro__ if type(base) is Capability]
        names = {name for base in bases for name in (*vars(base), *vars(base).get("__annotations__", ()))}
        methods = sorted(name for name in names if not name.startswith("_"))
        lacks = tuple(name for name in methods if getattr(kind, name, None) is None)
        _lacking.setdefault(cls, WeakKeyDictionary())[kind] = lacks
        return lacks


#: Methods of each protocol that a class lacks.
_lacking: WeakKeyDictionary[type, WeakKeyDictionary[type, tuple[str, ...]]] = WeakKeyDictionary()
