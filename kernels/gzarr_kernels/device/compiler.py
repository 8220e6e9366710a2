"""Compilation of kernels to machine code by numba-cuda and NVIDIA's linker, without a GPU or a driver.

The code takes a pointer for each memory and an int64 for each integer, in the order of the kernel's parameters, without
shapes or strides.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numba import cuda, types

from .target import INTEGER, THREADS, MachineCode, entry_of, parameters

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .target import Kernel

#: Numba's element types by NumPy's character code.
_ELEMENTS: Final[dict[str, Any]] = {
    np.dtype(kind.name).char: kind
    for kind in (types.uint8, types.uint16, types.int32, types.uint32, types.int64, types.uint64)
}
_one_at_a_time = threading.Lock()


def compiled(kernel: Kernel, word: int, capability: tuple[int, int]) -> MachineCode:
    """Compile a kernel.

    Parameters
    ----------
    kernel
        Kernel of this package.
    word
        Size in bytes of the words of its memory; irrelevant if it takes no words.
    capability
        Compute capability of the GPU.

    Raises
    ------
    OSError, RuntimeError
        If a part of the CUDA toolkit that numba-cuda needs is missing.
    """
    text = ptx(kernel, word, capability)
    return MachineCode(_linked(text, capability), entry_of(text))


def ptx(kernel: Kernel, word: int, capability: tuple[int, int]) -> str:
    """Return the PTX of a kernel; for the parameters see :func:`compiled`."""
    codes = parameters(kernel.py_func, word)
    signature = tuple(types.int64 if code == INTEGER else types.CPointer(_ELEMENTS[code]) for code in codes)
    bounds = (THREADS, kernel.blocks) if kernel.blocks else None
    with _one_at_a_time, _compiling_for(capability):
        text, _ = cuda.compile_ptx(kernel.py_func, signature, cc=capability, launch_bounds=bounds)
    return str(text)


@contextmanager
def _compiling_for(capability: tuple[int, int]) -> Iterator[None]:
    """Make numba-cuda compile for a capability, and with every NumPy.

    Products are not fused with sums, so that a kernel computes what the host does.

    It asks the current device when a kernel calls functions; here, a stand-in answers. All its releases up to 0.30.4
    overload ``numpy.row_stack``, which NumPy 2.5 no longer has, and compile nothing without it; its maintainers have
    said that no release will follow. So the name exists while the module that needs it is imported.
    """
    import numba.cuda.compiler
    import numba.cuda.dispatcher

    if not hasattr(np, "row_stack"):
        vars(np)["row_stack"] = np.vstack
        try:
            import numba.cuda.np.arrayobj
        finally:
            del vars(np)["row_stack"]
    from numba.cuda.cudadrv import nvvm

    compile_ir = nvvm.compile_ir
    asking = (numba.cuda.compiler, numba.cuda.dispatcher)
    before = [module.get_current_device for module in asking]
    for module in asking:
        module.get_current_device = lambda: SimpleNamespace(compute_capability=capability)
    nvvm.compile_ir = partial(compile_ir, fma=False)
    try:
        yield
    finally:
        nvvm.compile_ir = compile_ir
        for module, function in zip(asking, before, strict=True):
            module.get_current_device = function


def _linked(text: str, capability: tuple[int, int]) -> bytes:
    """Return machine code for PTX, or the PTX itself if there is no linker or the linker is too old for it."""
    source = text.encode()
    try:
        from cuda.bindings import nvjitlink

        handle = nvjitlink.create(1, ["-arch=sm_{}{}".format(*capability)])
    # Errors of the bindings, and of their search for the library; these differ between releases.
    except Exception:
        return source
    try:
        nvjitlink.add_data(handle, nvjitlink.InputType.PTX, source, len(source), "kernel")
        nvjitlink.complete(handle)
        image = bytearray(nvjitlink.get_linked_cubin_size(handle))
        nvjitlink.get_linked_cubin(handle, image)
    except nvjitlink.nvJitLinkError:
        return source
    finally:
        nvjitlink.destroy(handle)
    return bytes(image)
