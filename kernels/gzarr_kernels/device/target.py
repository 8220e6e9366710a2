"""One source for the GPU, the simulator and the host: how the functions of this folder are compiled.

A kernel is thin: it asks which thread it is, and calls a ``body``, which holds the loop. For a GPU both are compiled to
one program (:mod:`gzarr_kernels.device.compiler`), which takes pointers and integers. In Numba's simulator
(``NUMBA_ENABLE_CUDASIM=1``) the kernel is Python and the body is compiled for the host, so that tests run the real
loop, and fast.

What a kernel takes of memory is 1-d; several arguments may be views of the same bytes. In the simulator they have to be
``FakeCUDAArray``: NumPy arrays would be copied in and back one by one, each over what another has written.

Numba notices a change only of the file that a cached function is in. Ours call functions of many files, so the name
under which each is cached carries a fingerprint of the whole package: another version never loads a stale cache.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from numba import cuda, njit, types
from numba.core import config
from numba.extending import intrinsic

if TYPE_CHECKING:
    from collections.abc import Callable

#: Whether kernels run in Numba's simulator.
SIMULATED: Final = bool(config.ENABLE_CUDASIM)
#: Threads of a block, for every kernel here.
THREADS: Final = 256
#: Blocks of a launch, at most; kernels stride over what is more.
MOST_BLOCKS: Final = 8192


def _fingerprint() -> str:
    value = 0
    for path in sorted(Path(__file__).parent.parent.rglob("*.py")):
        value = zlib.crc32(path.read_bytes(), value)
    return f"{value:08x}"


#: Of the sources of all kernels.
FINGERPRINT: Final = _fingerprint()
_BODY: Final[dict[str, Any]] = {"nogil": True, "error_model": "numpy"}


def _cached(decorate: Callable[..., Any], function: Callable[..., Any]) -> Any:
    """Compile a function when it is first called, and cache it on disk; without a cache where none can be written."""
    function.__qualname__ = f"{function.__qualname__}_{FINGERPRINT}"
    try:
        return decorate(cache=True)(function)
    # Numba's word for: neither the source's folder nor the user's cache folder can be written.
    except RuntimeError:
        return decorate()(function)


def body(function: Callable[..., Any]) -> Any:
    """Make a function part of every kernel that calls it; the host can call it with NumPy arrays and integers."""
    if SIMULATED:
        return _cached(partial(njit, **_BODY), function)
    # Only in the simulator is it more than a part of kernels, whose machine code is cached as a whole.
    return njit(**_BODY)(function)


#: What a kernel's parameters are, by their annotations: NumPy's code of a memory's elements, WORD for those of a type
#: that a launch chooses, INTEGER for an int64.
WORD: Final = "word"
INTEGER: Final = ""
_PARAMETERS: Final = {"Bytes": "B", "Column": "l", "Statuses": "i", "Words": WORD, "int": INTEGER}
#: By their bytes, the codes of words.
_WORD_CODES: Final = {1: "B", 2: "H", 4: "I", 8: "L"}


@dataclass(frozen=True, eq=False, slots=True)
class Kernel:
    """A kernel for GPUs, compiled by :func:`gzarr_kernels.device.compiler.compiled`.

    Attributes
    ----------
    py_func
        Takes 1-d memory and integers, and returns nothing.
    blocks
        Blocks of ``THREADS`` that a multiprocessor shall run at a time, at least: what bounds the registers of a
        thread. 0 leaves it to the compiler.
    """

    py_func: Callable[..., None]
    blocks: int = 0


def kernel(function: Callable[..., None] | None = None, *, blocks: int = 0) -> Any:
    """Make a function a kernel, with ``blocks`` of :class:`Kernel`; its parameters' annotations say what they are."""
    if function is None:
        return partial(kernel, blocks=blocks)
    parameters(function)
    return cuda.jit(function) if SIMULATED else Kernel(function, blocks)


def parameters(function: Callable[..., None], word: int = 8) -> list[str]:
    """Return what each parameter of a kernel is: the code of a memory's elements, or INTEGER.

    Parameters
    ----------
    function
        Of a kernel.
    word
        Bytes of a word.
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
        """Return the argument: on a GPU a body takes what its kernel has."""
        return array


@intrinsic  # type: ignore[untyped-decorator,unused-ignore]
def width_of(typing_context: Any, array: Any) -> Any:
    """``width_of(array)``: bytes of an element, a constant to the compiler (``array.itemsize`` is not)."""
    nbytes = array.dtype.bitwidth // 8

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return context.get_constant(types.int64, nbytes)

    return types.int64(array), codegen


def blocks(work: int) -> int:
    """Return how many blocks to launch for some units of work of a block each, at least one."""
    return max(1, min(work, MOST_BLOCKS))
