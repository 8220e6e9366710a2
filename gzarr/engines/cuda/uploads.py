"""Short-lived copies to a device, through page-locked memory that is used again.

CUDA takes long to make page-locked memory, and frees it only when everything on the device has run, callers' streams
included. So each device has a few blocks of one size. A copy takes a free one, or several, one after the other. A block
is free again when the device has copied from it, which an event tells: nobody waits for the copy. If a stream lags so
far behind the host that :data:`MAX_BLOCKS` are in use, the oldest is waited for.

Waves have page-locked memory of their own (:mod:`gzarr.engines.cuda.slots`).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ...errors import DeviceError
from ...guarded import Lock
from .abandoned import abandon

if TYPE_CHECKING:
    import numpy.typing as npt

    from .device_protocol import Device, Event

#: Bytes of a block: the host takes longer to fill it than CUDA to begin a copy.
BLOCK_BYTES: Final = 1 << 20
#: Most blocks that are kept for a device.
MAX_BLOCKS: Final = 16


class _Block:
    """Page-locked memory, and the event after the last copy from it."""

    __slots__ = ("copied", "device", "memory")

    def __init__(self, device: Device) -> None:
        self.device = device
        self.memory: npt.NDArray[np.uint8] = device.pinned(BLOCK_BYTES)
        self.copied: Event = device.event()


#: Blocks that nobody fills, by name of their device, in the order in which they were filled.
_kept: dict[str, list[_Block]] = {}
_lock = Lock()
#: Blocks of streams that failed: what is enqueued there may still read them.
_unusable: list[_Block] = []


def uploaded(device: Device, values: npt.NDArray[Any], stream: Any) -> Any:
    """Return a copy of an array in device memory, made in order with a stream. The host does not wait for it.

    Parameters
    ----------
    device
        The device, current in the calling thread.
    values
        Elements of any strides. They may change once this returns.
    stream
        Stream that the copy is made on, and its memory belongs to.
    """
    result = device.empty(values.shape, values.dtype, stream)
    source = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
    if source.size <= BLOCK_BYTES:
        if source.size:
            _copy(device, result, source, stream)
        return result
    target, _ = device.flat(result)
    for begin in range(0, source.size, BLOCK_BYTES):
        _copy(device, target[begin : begin + BLOCK_BYTES], source[begin : begin + BLOCK_BYTES], stream)
    return result


def _copy(device: Device, target: Any, source: npt.NDArray[np.uint8], stream: Any) -> None:
    """Enqueue the copy of at most a block."""
    block = _taken(device)
    try:
        staging = block.memory[: source.size]
        staging[:] = source
        device.copy_in(target, staging, stream)
        stream.record(block.copied)
    except BaseException:
        _settle(block, stream)
        raise
    _give_back(block)


def _taken(device: Device) -> _Block:
    """Return a block that nothing is copied from."""
    with _lock:
        kept = _kept.get(device.name, [])
        # In tests, another device of the same name may have come.
        own = [block for block in kept if block.device is device]
        free = next((block for block in own if block.copied.done), None)
        block = own[0] if free is None and len(own) >= MAX_BLOCKS else free
        if block is not None:
            kept.remove(block)
    if block is None:
        return _Block(device)
    if free is None:
        try:
            block.copied.synchronize()
        except BaseException:
            _unusable.append(block)
            raise
    return block


def _give_back(block: _Block) -> None:
    """Keep a block; if that makes too many, as of many threads, drop one that is free."""
    with _lock:
        kept = _kept.setdefault(block.device.name, [])
        kept.append(block)
        free = next((one for one in kept if one.copied.done), None) if len(kept) > MAX_BLOCKS else None
        if free is not None:
            kept.remove(free)


def _settle(block: _Block, stream: Any) -> None:
    """Give a block back after an error, once its stream has run; raises nothing."""
    try:
        stream.synchronize()
        _give_back(block)
    except BaseException:  # an error is being raised already
        _unusable.append(block)


def release() -> None:
    """Free all blocks; waits for the copies from them."""
    with _lock:
        blocks = [block for kept in _kept.values() for block in kept]
        _kept.clear()
    errors = []
    for block in blocks:
        try:
            with block.device:
                block.copied.synchronize()
        except DeviceError as error:
            _unusable.append(block)
            # Nothing can be returned to a lost device.
            if block.device.lost is None:
                errors.append(error)
    if errors:
        raise errors[0]


def _forget() -> None:
    global _lock
    _lock = Lock()
    abandon(_kept, _unusable)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
