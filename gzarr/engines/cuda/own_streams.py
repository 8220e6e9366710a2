"""Streams of the engine's own, and the memory that may be allocated on them.

Memory that is freed on a stream goes to others while the stream still uses it. That is right if they use it in order
with that stream: CuPy's pools keep a block for its stream, and CUDA's pools and RMM know the stream of each block. An
allocator that knows no streams (PyTorch's, by ``use_pytorch_for_gpu_memory`` of thinc, or any function) means one
stream, that of its library or caller: it gives out what work there still uses, or has yet to fill.

So with such an allocator, memory of the engine's own streams is from CuPy's default pool. Results are allocated on the
caller's stream, and from the caller's allocator, whatever it is.
"""

from __future__ import annotations

import gc
import threading
import weakref
from typing import TYPE_CHECKING, Any

from .cupy_streams import CupyStream

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from typing import Self


class _Replacing(threading.local):
    """What has replaced the allocator in each ``with`` statement that a thread is in; None if nothing has."""

    def __init__(self) -> None:
        self.stack: list[AbstractContextManager[Any] | None] = []


_replacing = _Replacing()
#: The allocator that was looked at last, and whether it knows streams.
_last: tuple[weakref.ref[Any], bool] | None = None


class OwnStream(CupyStream):
    """A stream of the engine's own: a ``with`` statement also leaves out an allocator that knows no streams."""

    __slots__ = ()

    def __enter__(self) -> Self:
        """Make it CuPy's current stream of the calling thread and its device."""
        import cupy

        super().__enter__()
        try:
            replacing = None
            if not knows_streams(cupy.cuda.get_allocator()):
                replacing = cupy.cuda.using_allocator(cupy.get_default_memory_pool().malloc)
                replacing.__enter__()
        except BaseException:
            super().__exit__(None, None, None)
            raise
        _replacing.stack.append(replacing)
        return self

    def __exit__(self, *exc: object) -> None:
        """Make the stream and the allocator that were current before the current ones again."""
        replacing = _replacing.stack.pop()
        try:
            if replacing is not None:
                replacing.__exit__(None, None, None)
        finally:
            super().__exit__(*exc)


def knows_streams(allocator: Any) -> bool:
    """Return whether an allocator of CuPy's is known to give out memory in order with the stream it was used on."""
    global _last
    last = _last
    if last is not None and last[0]() is allocator:
        return last[1]
    found = _knows_streams(allocator)
    try:
        _last = weakref.ref(allocator), found
    except TypeError:  # an object of slots
        return found
    return found


def _knows_streams(allocator: Any) -> bool:
    from cupy.cuda import memory

    pool = getattr(allocator, "__self__", None)
    if isinstance(pool, memory.MemoryAsyncPool):
        return True
    if isinstance(pool, memory.MemoryPool):
        # CuPy does not show what a pool takes its memory from.
        sources = [each for each in gc.get_referents(pool) if callable(each)]
        return bool(sources) and all(_is_of_cuda(each) or _knows_streams(each) for each in sources)
    return _is_of_cuda(allocator) or str(getattr(allocator, "__module__", "")).split(".")[0] == "rmm"


def _is_of_cuda(allocator: Any) -> bool:
    """Return whether an allocator is one of CuPy's plain ones: CUDA frees their memory when all work has ended."""
    from cupy.cuda import memory

    names = ("_malloc", "malloc_managed", "malloc_async")
    return any(allocator == getattr(memory, name, None) for name in names)
