"""A kernel as machine code for a GPU, by numba-cuda and NVIDIA's linker; neither a GPU nor a driver is asked.

The code takes a pointer for each memory and an int64 for each integer, in the order of the kernel's parameters: no
shapes, no strides.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numba import cuda, types

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .target import Kernel

#: Type of a parameter: that of a memory's elements by NumPy's character codes, or :data:`INTEGER`.
INTEGER: Final = ""
_ELEMENTS: Final[dict[str, Any]] = {
    np.dtype(kind.name).char: kind
    for kind in (types.uint8, types.uint16, types.int32, types.uint32, types.int64, types.uint64)
}
_one_at_a_time = threading.Lock()


@dataclass(frozen=True, slots=True)
class Program:
    """What a driver loads.

    Attributes
    ----------
    image
        Machine code; PTX, which the driver compiles, where there is no linker.
    entry
        Name of the kernel in it.
    """

    image: bytes
    entry: str


def compiled(kernel: Kernel, parameters: Sequence[str], capability: tuple[int, int]) -> Program:
    """Compile a kernel.

    Parameters
    ----------
    kernel
        Of this package.
    parameters
        The character code of each memory's elements, :data:`INTEGER` for an integer.
    capability
        Compute capability of the GPU.

    Raises
    ------
    OSError, RuntimeError
        If a part of the CUDA toolkit that numba-cuda needs is missing.
    """
    text = ptx(kernel, parameters, capability)
    entry = text.split(".visible .entry ", 1)[1].split("(", 1)[0].strip()
    return Program(_linked(text, capability), entry)


def ptx(kernel: Kernel, parameters: Sequence[str], capability: tuple[int, int]) -> str:
    """Return the PTX of a kernel; parameters as for :func:`compiled`."""
    signature = tuple(types.CPointer(_ELEMENTS[code]) if code else types.int64 for code in parameters)
    with _one_at_a_time, _compiling_for(capability):
        text, _ = cuda.compile_ptx(kernel.py_func, signature, cc=capability)
    return str(text)


@contextmanager
def _compiling_for(capability: tuple[int, int]) -> Iterator[None]:
    """Have numba-cuda compile for a capability, and beside every NumPy.

    It asks the current device when a kernel calls functions: here, a stand-in says what it would say. All its releases
    up to 0.30.4 overload ``numpy.row_stack``, which NumPy 2.5 has no more, and compile nothing without it; its
    maintainers have said that none will follow. So the name is there until the module that asks for it is imported.
    """
    import numba.cuda.compiler
    import numba.cuda.dispatcher

    if not hasattr(np, "row_stack"):
        vars(np)["row_stack"] = np.vstack
        try:
            import numba.cuda.np.arrayobj  # noqa: F401
        finally:
            del vars(np)["row_stack"]
    asking = (numba.cuda.compiler, numba.cuda.dispatcher)
    before = [module.get_current_device for module in asking]
    for module in asking:
        module.get_current_device = lambda: SimpleNamespace(compute_capability=capability)
    try:
        yield
    finally:
        for module, function in zip(asking, before, strict=True):
            module.get_current_device = function


def _linked(text: str, capability: tuple[int, int]) -> bytes:
    """Return machine code for PTX, or the PTX where nothing here links it."""
    source = text.encode()
    try:
        from cuda.bindings import nvjitlink
    except ImportError:
        return source
    try:
        handle = nvjitlink.create(1, ["-arch=sm_{}{}".format(*capability)])
    # Of the library that is not found, in whichever way the bindings' release says so.
    except Exception:
        return source
    try:
        nvjitlink.add_data(handle, nvjitlink.InputType.PTX, source, len(source), "kernel")
        nvjitlink.complete(handle)
        image = bytearray(nvjitlink.get_linked_cubin_size(handle))
        nvjitlink.get_linked_cubin(handle, image)
    finally:
        nvjitlink.destroy(handle)
    return bytes(image)
