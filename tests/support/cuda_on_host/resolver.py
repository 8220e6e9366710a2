"""Who runs a kernel: the first of some that know its image."""

from __future__ import annotations

import ctypes
import traceback
from typing import TYPE_CHECKING, Any, Final

from support.cuda_on_host.c_types import Kernel

if TYPE_CHECKING:
    from collections.abc import Callable

#: CUDA's "no kernel image is available for execution on the device".
NO_KERNEL_IMAGE: Final = 209
_NOT_FOUND: Final = 500

_Resolver = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.POINTER(Kernel))


class Resolver:
    """A ``coh_resolver`` of functions of an image's address, an entry and a pointer to a kernel.

    Each returns 0 if it has filled the kernel, an error of CUDA, or None if it doesn't know the image.

    Attributes
    ----------
    pointer
        For ``coh_set_resolver``.
    errors
        Tracebacks of Python's errors; CUDA's error is then 209.
    """

    def __init__(self, *find: Callable[[int, bytes, Any], int | None]) -> None:
        self.errors: list[str] = []
        self._find = find
        self.pointer = _Resolver(self._resolve)

    def _resolve(self, image: int, entry: bytes, found: Any) -> int:
        try:
            for find in self._find:
                code = find(image, entry, found)
                if code is not None:
                    return code
        except BaseException:  # it would be lost here: this is called from C
            self.errors.append(traceback.format_exc())
            return NO_KERNEL_IMAGE
        return _NOT_FOUND
