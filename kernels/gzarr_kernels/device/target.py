"""Compilation of the functions in this folder: one source for the GPU, the simulator and the host.

A kernel is thin: it determines its thread, and calls a ``body``, which contains the loop. For a GPU both are compiled
to one program (:mod:`gzarr_kernels.device.compiler`), which takes pointers and integers. In Numba's simulator
(``NUMBA_ENABLE_CUDASIM=1``) the kernel is Python and the body is compiled for the host, so that tests run the real
loop, and fast.

The memory arguments of a kernel are 1-d; several may be views of the same bytes. In the simulator they must be
``FakeCUDAArray``: NumPy arrays would be copied in and back one by one, each overwriting the results of another.

Numba's cache notices changes only in the file of the cached function. Our kernels call functions of many files, so the
name under which each is cached contains a fingerprint of the whole package: another version never loads a stale cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ..fingerprint import device_fingerprint
from .language import cuda, intrinsic, njit, types
from .ptx import SIMULATED, programs

if TYPE_CHECKING:
    from collections.abc import Callable

#: Threads per block, for every kernel here.
THREADS: Final = 256
#: Most blocks in a launch; kernels stride over more work.
MOST_BLOCKS: Final = 8192


#: Fingerprint of the sources of all kernels.
FINGERPRINT: Final = device_fingerprint()
_BODY: Final[dict[str, Any]] = {"nogil": True, "error_model": "numpy"}


def _cached(decorate: Callable[..., Any], function: Callable[..., Any]) -> Any:
    """Compile a function on its first call, and cache it on disk if a cache can be written."""
    function.__qualname__ = f"{function.__qualname__}_{FINGERPRINT}"
    try:
        return decorate(cache=True)(function)
    # Numba raises this if neither the source's folder nor the user's cache folder is writable.
    except RuntimeError:
        return decorate()(function)


def body(function: Callable[..., Any]) -> Any:
    """Make a function that kernels inline, and that the host can call with NumPy arrays and integers."""
    if SIMULATED:
        return _cached(partial(njit, **_BODY), function)
    # Outside the simulator it is only a part of kernels, whose machine code is cached as a whole.
    return function if programs() else njit(**_BODY)(function)


#: Kinds of a kernel's parameters by their annotations: NumPy's code of the elements of memory, WORD for elements whose
#: type is chosen at launch, INTEGER for an int64.
WORD: Final = "word"
INTEGER: Final = ""
_PARAMETERS: Final = {"Bytes": "B", "Column": "l", "Statuses": "i", "Words": WORD, "int": INTEGER}
#: NumPy's codes of words by their size in bytes.
_WORD_CODES: Final = {1: "B", 2: "H", 4: "I", 8: "L"}


@dataclass(frozen=True, eq=False, slots=True)
class Kernel:
    """A kernel for GPUs, compiled by :func:`gzarr_kernels.device.compiler.compiled`.

    Attributes
    ----------
    py_func
        Function of 1-d memory and integers, without a result.
    blocks
        Least number of concurrent blocks of ``THREADS`` on a multiprocessor, which limits the registers of a thread. 0
        leaves it to the compiler.
    """

    py_func: Callable[..., None]
    blocks: int = 0


@dataclass(frozen=True, slots=True)
class MachineCode:
    """Code that a driver loads.

    Attributes
    ----------
    image
        Machine code or PTX; the driver compiles the latter.
    entry
        Name of the kernel in the code.
    """

    image: bytes
    entry: str


def program_name(kernel: Kernel, word: int) -> str:
    """Return the name of a kernel's program for words of ``word`` bytes; kernels without words have only one."""
    name = kernel.py_func.__name__
    return f"{name}-{word}" if "Words" in kernel.py_func.__annotations__.values() else name


def entry_of(text: str) -> str:
    """Return the name of the kernel in PTX."""
    return text.split(".visible .entry ", 1)[1].split("(", 1)[0].strip()


def kernel(function: Callable[..., None] | None = None, *, blocks: int = 0) -> Any:
    """Make a function a :class:`Kernel` with ``blocks``; annotations give the kinds of its parameters."""
    if function is None:
        return partial(kernel, blocks=blocks)
    parameters(function)
    return cuda.jit(function) if SIMULATED else Kernel(function, blocks)


def parameters(function: Callable[..., None], word: int = 8) -> list[str]:
    """Return the kind of each parameter of a kernel: the code of the elements of memory, or INTEGER.

    Parameters
    ----------
    function
        Function of a kernel.
    word
        Size of a word in bytes.
    """
    kinds = [_PARAMETERS[kind] for name, kind in function.__annotations__.items() if name != "return"]
    return [_WORD_CODES[word] if kind == WORD else kind for kind in kinds]


if SIMULATED:

    def raw(array: Any) -> Any:
        """Return the NumPy array behind a kernel's argument."""
        wrapped = array.__dict__["_item"] if "_item" in getattr(array, "__dict__", {}) else array
        return getattr(wrapped, "_ary", wrapped)

else:

    @body
    def raw(array: Any) -> Any:
        """Return the argument: on a GPU, a body takes the arguments of its kernel."""
        return array


@intrinsic  # type: ignore[untyped-decorator,unused-ignore]
def width_of(typing_context: Any, array: Any) -> Any:
    """``width_of(array)``: size of an element in bytes, a compile-time constant (``array.itemsize`` is not)."""
    nbytes = array.dtype.bitwidth // 8

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return context.get_constant(types.int64, nbytes)

    return types.int64(array), codegen


def blocks(work: int) -> int:
    """Return the number of blocks to launch, at least one, for ``work`` units of one block each."""
    return max(1, min(work, MOST_BLOCKS))
