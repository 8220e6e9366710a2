"""Arrays that were made on a stream of the engine's own, given to a caller.

A caller uses and drops arrays on a stream of its own. CuPy gives a dropped array's memory to the next who allocates on
the stream that the array was made on, which the caller's work need not have waited for. So callers get copies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .device_protocol import Device, Stream


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
    copies = _copied(device, value, consumer)
    wait_for(device, owners, consumer)
    del given
    return copies


def wait_for(device: Device, owners: Sequence[Stream], *consumers: Stream) -> None:
    """Have what is enqueued later on some streams wait for what is enqueued on a caller's."""
    for consumer in consumers:
        event = consumer.record(device.event())
        for owner in owners:
            owner.wait_event(event)


def _copied(device: Device, value: Any, consumer: Stream) -> Any:
    if isinstance(value, dict):
        # A batch stays a batch.
        same = value.copy() if type(value) is dict else value
        for name in value:
            same[name] = _copied(device, value[name], consumer)
        return same
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_copied(device, item, consumer) for item in value))
    if type(value) in (list, tuple):
        return type(value)(_copied(device, item, consumer) for item in value)
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
