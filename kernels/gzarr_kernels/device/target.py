"""What the functions in this folder are: kernels, and the functions that these call.

A kernel is thin: it determines its thread, and calls a ``body``, which contains the loop. Both are compiled to one
program (:mod:`gzarr_kernels.device.compiler`), which takes pointers and integers. The memory arguments of a kernel are
1-d; several may be views of the same bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ..fingerprint import device_fingerprint
from .language import intrinsic, njit, types
from .ptx import programs

if TYPE_CHECKING:
    from collections.abc import Callable

#: Threads per block, for every kernel here.
THREADS: Final = 256
#: Most blocks in a launch; kernels stride over more work.
MOST_BLOCKS: Final = 8192


#: Fingerprint of the sources of all kernels.
FINGERPRINT: Final = device_fingerprint()
_BODY: Final[dict[str, Any]] = {"nogil": True, "error_model": "numpy"}


def body(function: Callable[..., Any]) -> Any:
    """Make a function that kernels inline, and that the host can call with NumPy arrays and integers."""
    # Numba does not cache it: it is only a part of kernels, whose machine code is cached as a whole.
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
    return Kernel(function, blocks)


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
