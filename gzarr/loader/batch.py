"""What a loader gives out: a dict that JAX and PyTorch go into, as they do into dicts of Python."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any, Final

from ..guarded import Lock

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import ModuleType

    import numpy as np
    import numpy.typing as npt

    IntArray = npt.NDArray[np.int64]


class Batch(dict[str, Any]):
    """Arrays by name, each with the samples along its first axis.

    For JAX and PyTorch, a batch is a tree of its arrays, in the order of their names, like a dict: of
    ``jax.jit(step)(batch)``, ``jax.device_put(batch)`` and ``jax.tree.map(f, batch)``. What they make of one is a batch
    without the attributes below, which belong to the arrays that the loader has read.

    Attributes
    ----------
    samples
        int64 ``(n,)``, number of each sample: of the row, of the patch's cell in C order of its grid, or of the row in
        ``where=``. Of several volumes, the numbers go on from one to the next.
    volumes
        int64 ``(n,)``, number of each sample's volume.
    origins
        int64 ``(n, axes)``, the elements that each sample begins at, without its halo and runs: of :class:`Windows`,
        the sample's own step.
    flipped
        Axes of ``origins`` along which the samples are reversed, by the loader's ``flip``; None if that holds for some
        arrays only.
    """

    __slots__ = ("flipped", "origins", "samples", "volumes")

    flipped: tuple[int, ...] | None
    samples: IntArray
    volumes: IntArray
    origins: IntArray

    def __new__(cls, *given: Any, **named: Any) -> Batch:
        """Make a batch, also of pickled ones: whichever library is there by now has to know the class."""
        register_trees()
        return super().__new__(cls, *given, **named)

    if not TYPE_CHECKING:
        # Type checkers would take any name for an attribute.

        def __getattr__(self, name: str) -> Any:
            """Say where an attribute is that this batch was made without."""
            if name in Batch.__slots__:
                raise AttributeError(
                    f"this batch was made from another one, and has its arrays only: take {name!r} from the batch that "
                    "the loader gave out"
                )
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


_LOCK: Final = Lock()
_KNOWN: Final[set[str]] = set()


def register_trees() -> None:
    """Have JAX and PyTorch take batches for trees, each once, as soon as it is imported; neither is imported here."""
    for library, register in (("jax", _register_jax), ("torch", _register_torch)):
        if library in _KNOWN or (module := _imported(library)) is None:
            continue
        with _LOCK:
            if library not in _KNOWN:
                # Whoever has told the library of batches before may go on; a stand-in for it may have no trees.
                with contextlib.suppress(AttributeError, ValueError):
                    register(module)
                _KNOWN.add(library)


def _imported(name: str) -> ModuleType | None:
    """Return a module if it is imported, and not only about to be in another thread."""
    module = sys.modules.get(name)
    return None if getattr(getattr(module, "__spec__", None), "_initializing", False) else module


def _register_jax(jax: Any) -> None:
    tree = jax.tree_util

    def with_keys(batch: Batch) -> tuple[list[tuple[Any, Any]], tuple[str, ...]]:
        names = tuple(sorted(batch))
        return [(tree.DictKey(name), batch[name]) for name in names], names

    tree.register_pytree_with_keys(Batch, with_keys, lambda names, items: _made(items, names), _flat)


def _register_torch(torch: Any) -> None:
    tree = torch.utils._pytree

    def with_keys(batch: Batch) -> tuple[list[tuple[Any, Any]], tuple[str, ...]]:
        items, names = _flat(batch)
        return [(tree.MappingKey(name), item) for name, item in zip(names, items, strict=True)], names

    tree.register_pytree_node(
        Batch,
        _flat,
        _made,
        serialized_type_name="gzarr.loader.Batch",
        flatten_with_keys_fn=with_keys,
    )


def _flat(batch: Batch) -> tuple[list[Any], tuple[str, ...]]:
    names = tuple(sorted(batch))
    return [batch[name] for name in names], names


def _made(items: Iterable[Any], names: tuple[str, ...]) -> Batch:
    return Batch(zip(names, items, strict=True))
