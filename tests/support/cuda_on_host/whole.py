"""All parts together, as test processes use them: the runtime, the kernels of gzarr and of CuPy, and nvCOMP."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from support.cuda_on_host import build, kernels
from support.cuda_on_host.c_types import address
from support.cuda_on_host.cupy_kernels import CupyKernels
from support.cuda_on_host.device import HostCuda, install
from support.cuda_on_host.nvcomp import HostNvcomp
from support.cuda_on_host.resolver import Resolver

if TYPE_CHECKING:
    from collections.abc import Callable

_INVALID_IMAGE = 200


@dataclass(frozen=True, eq=False)
class WholeCuda:
    """CUDA in host memory, with all that runs on it.

    Attributes
    ----------
    host
        The runtime.
    nvcomp
        nvCOMP's functions.
    cupy_kernels
        CuPy's own kernels.
    resolver
        Who finds kernels.
    """

    host: HostCuda
    nvcomp: HostNvcomp
    cupy_kernels: CupyKernels
    resolver: Resolver

    def reset(self, seed: int) -> None:
        """Begin anew: nothing pending, no faults, nothing counted, the order of a seed."""
        self.host.reset(seed)
        # Tests of the runtime alone have kernels of their own.
        self.host.set_resolver(self.resolver.pointer)
        self.nvcomp.reset()
        self.errors()

    def errors(self) -> list[str]:
        """Take what was wrong since the last call: misuse of CUDA, faults of kernels, errors of this device's own."""
        found = [*self.host.notes(), *self.nvcomp.errors, *self.resolver.errors, *self.cupy_kernels.refused.values()]
        self.nvcomp.errors.clear()
        self.resolver.errors.clear()
        self.cupy_kernels.refused.clear()
        return found

    def enqueue(self, stream: Any, function: Callable[[], None]) -> None:
        """Enqueue a function of Python on a stream of CuPy; it runs on the stream's thread."""
        stream.launch_host_func(lambda _: function(), None)


@cache
def whole() -> WholeCuda:
    """Install all of it in this process, with no device visible until :meth:`WholeCuda.reset`.

    Kernels of gzarr are those that :func:`support.cuda_on_host.kernels.use_compiled_kernels` has made.

    Raises
    ------
    build.Unavailable
        If it cannot be.
    """
    host = install()
    find, enqueue = (address(getattr(host.library, name)) for name in ("coh_find", "coh_enqueue"))
    own = CupyKernels(build.CACHE, find)
    own.install()
    nvcomp = HostNvcomp(build.CACHE, find, enqueue)
    nvcomp.install()
    kernels.set_find(find)
    resolver = Resolver(_gzarr_kernel, own.resolve)
    host.set_resolver(resolver.pointer)
    host.visible(0)
    return WholeCuda(host, nvcomp, own, resolver)


def _gzarr_kernel(image: int, entry: bytes, found: Any) -> int | None:
    if ctypes.string_at(image, 4) == b"\x7fELF":
        return _INVALID_IMAGE
    kernel = kernels.find(ctypes.string_at(image), entry.decode())
    if kernel is None:
        return None
    ctypes.memmove(found, ctypes.byref(kernel), ctypes.sizeof(kernel))
    return 0
