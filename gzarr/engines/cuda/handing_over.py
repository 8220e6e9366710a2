"""Arrays that were made on a stream of the engine's own, given to a caller.

A caller uses and drops arrays on a stream of its own. CuPy gives a dropped array's memory to the next who allocates on
the stream that the array was made on, which the caller's work need not have waited for. So callers get copies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ...errors import DeviceError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .device_protocol import Device, Event, Stream

#: Memory that a stream may still use, and for which nothing could wait.
_unusable: Final[list[Any]] = []


def hand_over(device: Device, value: Any, owners: Sequence[Stream], consumer: Stream) -> Any:
    """Return a value with its arrays copied to memory of a caller's stream.

    Parameters
    ----------
    device
        The device, current in the calling thread.
    value
        An array of the device, or a dict, list or tuple (with names, too) of such; other objects are returned as they
        are. What the arrays are made of must be enqueued on ``consumer``, or be waited for by it.
    owners
        Streams of the engine's that use the memory of the arrays again: what is enqueued there later waits for the
        copies.
    consumer
        The caller's stream.
    """
    # Held until the owners wait: the memory may not be used for anything else before.
    given = leaves(value)
    kept: list[tuple[dict[Any, Any], dict[Any, Any]]] = []
    try:
        copies = _copied(device, value, consumer, kept)
    finally:
        # If there is no room for one of them, others are under way.
        wait_for(device, owners, consumer, held=given)
    # Not before: a value of which some arrays are copies already could not be handed over again.
    for same, items in kept:
        for name, item in items.items():
            same[name] = item
    return copies


def wait_for(device: Device, owners: Sequence[Stream], consumer: Stream, *, held: Any) -> Event | None:
    """Have what is enqueued later on some streams wait for what is enqueued on another one.

    Parameters
    ----------
    device
        The device, current in the calling thread.
    owners
        The streams that wait.
    consumer
        The stream that they wait for.
    held
        Memory of the owners' that ``consumer`` uses. If nothing can wait, it is never used again.

    Returns
    -------
    The event that they wait for; None if CUDA has none to give, and the host has waited instead.
    """
    try:
        event = consumer.record(device.event())
        for owner in owners:
            owner.wait_event(event)
    except BaseException as error:
        try:
            consumer.synchronize()
        except BaseException:
            _unusable.append(held)
            raise
        if not isinstance(error, (MemoryError, DeviceError)):
            raise
        return None
    return event


def _copied(device: Device, value: Any, consumer: Stream, kept: list[tuple[dict[Any, Any], dict[Any, Any]]]) -> Any:
    """Return a value with copies; dicts that stay the same objects, with what they are to hold, are added to a list."""
    if isinstance(value, dict):
        items = {name: _copied(device, item, consumer, kept) for name, item in value.items()}
        if type(value) is dict:
            return items
        # A batch stays a batch.
        kept.append((value, items))
        return value
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_copied(device, item, consumer, kept) for item in value))
    if type(value) in (list, tuple):
        return type(value)(_copied(device, item, consumer, kept) for item in value)
    if not device.is_array(value):
        return value
    result = device.empty(value.shape, value.dtype, consumer)
    device.copy_array(result, value, consumer)
    return result


def leaves(value: Any) -> list[Any]:
    """Return what a value holds in its dicts, lists and tuples, which their owner may change."""
    if isinstance(value, (dict, list, tuple)):
        items = value.values() if isinstance(value, dict) else value
        return [leaf for item in items for leaf in leaves(item)]
    return [value]
