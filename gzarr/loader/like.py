"""Batches as tensors of PyTorch or arrays of JAX, without a copy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ..errors import ArgumentError
from ..plugins import integration

if TYPE_CHECKING:
    from collections.abc import Callable

Like: TypeAlias = Literal["numpy", "cupy", "torch", "jax"]


def converter(like: Like | None, device: str) -> Callable[[Any], Any] | None:
    """Return the function that turns arrays of a device into those of a library, or None if they are its own.

    Raises
    ------
    ArgumentError
        If there is no such library, if it is not installed, or if it has no arrays on the device.
    """
    if like is None:
        return None
    if like in ("numpy", "cupy"):
        if (like == "numpy") != (device == "cpu"):
            raise ArgumentError(f"arrays that are read to {device!r} are not like {like!r}; leave like= out")
        return None
    if like == "torch":
        return integration("torch").as_tensor  # type: ignore[no-any-return]
    if like == "jax":
        return integration("jax").as_array  # type: ignore[no-any-return]
    raise ArgumentError(f"like must be 'numpy', 'cupy', 'torch' or 'jax', not {like!r}")


def consumer_stream(like: Like | None, device: str) -> Any:
    """Return the stream that a library's next work runs on; None for CuPy's current one."""
    if like != "torch" or device == "cpu":
        return None
    import torch

    return torch.cuda.current_stream(device) if torch.cuda.is_available() else None


def converted(value: Any, convert: Callable[[Any], Any]) -> Any:
    """Convert the arrays of a dict, in place; its other values stay."""
    for name, item in value.items():
        value[name] = converted(item, convert) if isinstance(item, dict) else convert(item)
    return value
