"""What a loader gives out: a dict that JAX, PyTorch and Keras go into, as they do into dicts of Python."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any, Final, SupportsIndex, cast

from ..guarded import Lock

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import ModuleType

    import numpy as np
    import numpy.typing as npt

    IntArray = npt.NDArray[np.int64]


class Batch(dict[str, Any]):
    """Arrays by name, each with the samples along its first axis.

    For JAX, PyTorch and Keras, a batch is a tree of its arrays, in the order of their names, like a dict: of
    ``jax.jit(step)(batch)``, ``jax.device_put(batch)`` and ``jax.tree.map(f, batch)``. What they make of one is a batch
    without the attributes below, which belong to the arrays that the loader has read.

    Parameters
    ----------
    *given, **named
        Arrays by name, as for a dict.

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
    seed
        Integer from 0 to 2⁶³ − 1 for random numbers of a ``transform``: ``np.random.default_rng(batch.seed)``. It
        depends on the loader's seed, the epoch and the place of the batch in the order, and differs between batches,
        those of other ranks and workers included.
    """

    __slots__ = ("flipped", "origins", "samples", "seed", "volumes")

    flipped: tuple[int, ...] | None
    samples: IntArray
    volumes: IntArray
    origins: IntArray
    seed: int

    # Not ``__new__``, at which ``torch.compile`` would break its graph.
    def __init__(self, *given: Any, **named: Any) -> None:
        """Make a batch: whichever library is there by now has to know the class."""
        super().__init__(*given, **named)
        register_trees()

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        """Have copies, and what is pickled, made by a call, which tells the libraries of another process."""
        _, (kind,), *rest = cast("tuple[Any, ...]", super().__reduce_ex__(2))
        return kind, (), *rest

    if not TYPE_CHECKING:
        # Type checkers would take any name for an attribute, and know how a dict is updated.

        def update(self, *given: Any, **named: Any) -> None:
            """Update the arrays, as a dict does. The attributes go if all arrays become those of other samples.

            So ``default_collate`` of PyTorch fills a copy of the first of some batches.
            """
            new = dict(*given, **named)
            if self and new.keys() >= self.keys() and _are_others(self, new):
                for name in Batch.__slots__:
                    with contextlib.suppress(AttributeError):
                        delattr(self, name)
            super().update(new)

        def __getattr__(self, name: str) -> Any:
            """Say where an attribute is that this batch was made without."""
            if name in Batch.__slots__:
                raise AttributeError(
                    f"this batch was made from another one, and has its arrays only: take {name!r} from the batch that "
                    "the loader gave out"
                )
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


def _are_others(old: Any, new: Any) -> bool:
    """Return whether arrays have other samples than those that they replace: another number, or stacked batches."""
    shapes = list(_shapes(old, new))
    return bool(shapes) and all(b[:1] != a[:1] or (b[:1] != (1,) and b[1:] == a) for a, b in shapes)


def _shapes(old: Any, new: Any) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Yield the shapes of arrays, and of those that replace them."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name in old.keys() & new.keys():
            yield from _shapes(old[name], new[name])
    elif hasattr(old, "shape") and hasattr(new, "shape"):
        yield tuple(old.shape), tuple(new.shape)


_LOCK: Final = Lock()
_KNOWN: Final[set[str]] = set()


def register_trees() -> None:
    """Have JAX, PyTorch and Keras take batches for trees, each once it is imported; none of them is imported here."""
    for library, register in (("jax", _register_jax), ("torch", _register_torch), ("optree", _register_optree)):
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


def _register_optree(optree: Any) -> None:
    # By which Keras takes trees apart; it has a namespace of its own there.
    optree.register_pytree_node(
        Batch,
        lambda batch: (*_flat(batch), tuple(sorted(batch))),
        lambda names, items: _made(items, names),
        namespace="keras",
    )


def _flat(batch: Batch) -> tuple[list[Any], tuple[str, ...]]:
    names = tuple(sorted(batch))
    return [batch[name] for name in names], names


def _made(items: Iterable[Any], names: tuple[str, ...]) -> Batch:
    return Batch(zip(names, items, strict=True))
