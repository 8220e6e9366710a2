"""Options of one read: meaning of absent chunks, memory of the results, place of decoding."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..choices import choice
from ..documents.json import quote
from ..dtypes.v3 import is_only_numpys, parse_v3
from ..engines.cuda.router import Decode
from ..errors import ArgumentError, MetadataError, UnsupportedError
from ..positive import positive

if TYPE_CHECKING:
    from ..engines.access.access import Missing, Verify
    from .outputs import Results

__all__ = [
    "NO_OPTIONS",
    "Decode",
    "DeviceOptions",
    "ReadOptions",
    "as_dtype",
    "check_decode",
    "check_missing",
    "check_verify",
]


@dataclass(frozen=True, slots=True)
class DeviceOptions:
    """Options of a read to a device.

    Attributes
    ----------
    budget_bytes
        Limit of the device and page-locked memory held besides the results, in bytes; None for the default.
    decode
        Place where chunks are decoded.
    verify
        Frames that the host decodes before the device does.
    """

    budget_bytes: int | None = None
    decode: Decode = "auto"
    verify: Verify = "none"


NO_OPTIONS = DeviceOptions()


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options of a read.

    Attributes
    ----------
    missing
        Meaning of absent chunks.
    memory
        Memory of the results.
    device
        Options of a read to a device.
    """

    missing: Missing
    memory: Results
    device: DeviceOptions


def as_dtype(dtype: Any) -> np.dtype[Any]:
    """Return the data type of a result; raise ArgumentError if ``dtype`` is none.

    Parameters
    ----------
    dtype
        Anything that NumPy takes, or a name of Zarr's: ``"bfloat16"``.
    """
    if isinstance(dtype, str) and not is_only_numpys(dtype):
        # Other names may be NumPy's.
        with contextlib.suppress(MetadataError, UnsupportedError):
            return parse_v3(dtype)[0]
    try:
        result: np.dtype[Any] = np.dtype(dtype)
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"dtype={quote(dtype)} is neither a NumPy dtype nor a Zarr data type: {error}") from None
    return result


def check_missing(missing: Missing) -> Missing:
    """Return ``missing``; raise ArgumentError if it is invalid."""
    found: Missing = choice("missing", missing, ("fill", "error"))
    return found


def check_budget(budget_bytes: int | None) -> int | None:
    """Return ``budget_bytes``; raise ArgumentError if it is not a positive integer or None."""
    return None if budget_bytes is None else positive("budget_bytes", budget_bytes)


def check_verify(verify: Verify) -> Verify:
    """Return ``verify``; raise ArgumentError if it is invalid."""
    found: Verify = choice("verify", verify, ("none", "cpu"))
    return found


def check_decode(decode: Decode) -> Decode:
    """Return ``decode``; raise ArgumentError if it is invalid."""
    found: Decode = choice("decode", decode, ("auto", "cpu", "cuda"))
    return found
