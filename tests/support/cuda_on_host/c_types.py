"""The structures of api.h, for ctypes."""

from __future__ import annotations

import ctypes
from typing import Any, Final

NONE, DEVICE, PINNED = range(3)
MOST_PARAMETERS: Final = 64


class Fault(ctypes.Structure):
    """``coh_fault``."""

    _fields_ = (("code", ctypes.c_int), ("message", ctypes.c_char * 512))


class Block(ctypes.Structure):
    """``coh_block``."""

    _fields_ = (
        ("kind", ctypes.c_int), ("device", ctypes.c_int), ("begin", ctypes.c_size_t), ("nbytes", ctypes.c_size_t),
    )  # fmt: skip


class Launch(ctypes.Structure):
    """``coh_launch``."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3), ("shared_nbytes", ctypes.c_uint),
        ("device", ctypes.c_int), ("seed", ctypes.c_uint64),
    )  # fmt: skip


class Kernel(ctypes.Structure):
    """``coh_kernel``."""

    _fields_ = (
        ("run", ctypes.c_void_p), ("self", ctypes.c_void_p), ("n_parameters", ctypes.c_int),
        ("parameter_nbytes", ctypes.c_uint32 * MOST_PARAMETERS),
    )  # fmt: skip


#: ``coh_find``, ``coh_work``, ``coh_enqueue``, ``coh_run``.
Find = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_size_t, ctypes.POINTER(Block))
Work = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(Fault))
Enqueue = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, Work, ctypes.c_void_p)
Run = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(Launch), ctypes.POINTER(Fault)
)


def address(function: Any) -> int:
    """Return the address of a function."""
    return ctypes.cast(function, ctypes.c_void_p).value or 0
