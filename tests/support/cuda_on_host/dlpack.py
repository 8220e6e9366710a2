"""DLPack's protocol for CUDA memory, both sides, written from its specification.

:class:`Offered` is an object with ``__dlpack__`` that other libraries import; :func:`imported` imports what other
libraries export. Both hand a stream over as the specification says: 1 is the legacy default stream, 2 the per-thread
one, a larger number an address, None means 1, and -1 asks for no wait.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

KDLCUDA, KDLCUDA_MANAGED = 2, 13
LEGACY, PER_THREAD, NO_WAIT = 1, 2, -1
_READ_ONLY: Final = 1
_NAMES: Final = {False: b"dltensor", True: b"dltensor_versioned"}
_USED: Final = {False: b"used_dltensor", True: b"used_dltensor_versioned"}
#: Kinds of NumPy's dtypes → DLPack's type codes.
_CODES: Final = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}

_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_Destructor = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Tensor(ctypes.Structure):
    """``DLTensor``."""

    _fields_ = (
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )  # fmt: skip


class _Managed(ctypes.Structure):
    """``DLManagedTensor``."""

    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _Deleter))


class _Versioned(ctypes.Structure):
    """``DLManagedTensorVersioned``."""

    _fields_ = (
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p), ("deleter", _Deleter),
        ("flags", ctypes.c_uint64), ("tensor", _Tensor),
    )  # fmt: skip


_api = ctypes.PyDLL(None)
_api.PyCapsule_New.restype = ctypes.py_object
_api.PyCapsule_New.argtypes = (ctypes.c_void_p, ctypes.c_char_p, _Destructor)
_api.PyCapsule_IsValid.argtypes = (ctypes.c_void_p, ctypes.c_char_p)
_api.PyCapsule_GetPointer.restype = ctypes.c_void_p
_api.PyCapsule_GetPointer.argtypes = (ctypes.c_void_p, ctypes.c_char_p)
_api.PyCapsule_SetName.argtypes = (ctypes.c_void_p, ctypes.c_char_p)


# -- a producer


class Offered:
    """An array of CuPy's that only DLPack can get at.

    Parameters
    ----------
    array
        The array.
    stream
        Address of the stream on which its elements are made; 0 is the legacy default stream.
    newest
        Newest version of DLPack: ``(1, 0)``, or ``(0, 8)``, which has no versioned capsules.
    read_only
        Whether to say that it may not be written to, which version 1 can.
    managed
        Whether to say that it is managed memory.

    Attributes
    ----------
    asked
        Streams that importers have passed.
    exported, deleted
        Numbers of capsules made, and of calls of their deleters.
    """

    def __init__(
        self,
        array: Any,
        stream: int = 0,
        *,
        newest: tuple[int, int] = (1, 0),
        read_only: bool = False,
        managed: bool = False,
    ) -> None:
        self._array = array
        self._kind = KDLCUDA_MANAGED if managed else KDLCUDA
        self._stream = stream
        self._newest = newest
        self._read_only = read_only
        self.asked: list[Any] = []
        self.exported = self.deleted = 0

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._kind, self._array.device.id

    def __dlpack__(
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: Any = None
    ) -> Any:
        if self._newest < (1, 0) and (max_version, dl_device, copy) != (None, None, None):
            # As producers from before version 1.
            raise TypeError("__dlpack__() got an unexpected keyword argument")
        if dl_device not in (None, self.__dlpack_device__()) or copy:
            raise BufferError("only this device, and no copies")
        self.asked.append(stream)
        if stream is not None and (type(stream) is not int or stream == 0 or stream < -1):
            raise ValueError(f"__dlpack__ got {stream!r} for a stream")
        if stream != NO_WAIT:
            let_wait(LEGACY if stream is None else stream, self._stream, self._array.device.id)
        self.exported += 1
        versioned = max_version is not None and max_version[0] >= 1
        return _capsule(self, versioned)

    def _delete(self) -> None:
        self.deleted += 1


def let_wait(waits: int, for_stream: int, device: int) -> None:
    """Make a stream wait for what another has been given so far, without the host waiting."""
    import cupy
    from cupy.cuda import runtime

    with cupy.cuda.Device(device):
        event = runtime.eventCreateWithFlags(2)  # cudaEventDisableTiming
        try:
            runtime.eventRecord(event, for_stream)
            runtime.streamWaitEvent(waits, event)
        finally:
            runtime.eventDestroy(event)


@dataclass
class _Export:
    owner: Offered
    managed: Any
    shape: Any
    strides: Any
    versioned: bool


#: What capsules point to, by address: alive until its deleter is called.
_exports: dict[int, _Export] = {}


def _capsule(owner: Offered, versioned: bool) -> Any:
    array = owner._array
    shape, strides = (ctypes.c_int64 * max(array.ndim, 1))(), (ctypes.c_int64 * max(array.ndim, 1))()
    shape[: array.ndim] = array.shape
    strides[: array.ndim] = [stride // array.dtype.itemsize for stride in array.strides]
    tensor = _Tensor(
        array.data.ptr, owner._kind, array.device.id, array.ndim, _CODES[array.dtype.kind], 8 * array.dtype.itemsize, 1,
        shape, strides, 0,
    )  # fmt: skip
    flags = _READ_ONLY if owner._read_only else 0
    managed: Any = _Versioned(1, 0, None, _deleter, flags, tensor) if versioned else _Managed(tensor, None, _deleter)
    address = ctypes.addressof(managed)
    _exports[address] = _Export(owner, managed, shape, strides, versioned)
    return _api.PyCapsule_New(address, _NAMES[versioned], _destructor)


@_Deleter
def _deleter(address: int) -> None:
    _exports.pop(address).owner._delete()


@_Destructor
def _destructor(capsule: int) -> None:
    # Nobody took it.
    for name in _NAMES.values():
        if _api.PyCapsule_IsValid(capsule, name):
            _deleter(_api.PyCapsule_GetPointer(capsule, name))


# -- a consumer


@dataclass
class Imported:
    """A tensor that another library has exported; :meth:`release` calls its deleter.

    Attributes
    ----------
    pointer
        Address of its first element.
    device
        Number of its device.
    shape, strides
        In elements.
    dtype
        NumPy's type.
    version
        ``(0, 0)`` for a capsule without a version.
    read_only
        Whether it may not be written to.
    """

    pointer: int
    device: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]
    version: tuple[int, int]
    read_only: bool
    _address: int
    _deleter: Any
    _released: bool = field(default=False)

    def read(self, stream: int) -> np.ndarray[Any, Any]:
        """Return the elements as they are when a stream gets to it."""
        import cupy
        from cupy.cuda import runtime

        assert not self._released
        if 0 in self.shape:
            return np.empty(self.shape, self.dtype)
        steps = [(n - 1) * step for n, step in zip(self.shape, self.strides, strict=True)]
        low, high = sum(min(step, 0) for step in steps), sum(max(step, 0) for step in steps)
        elements = np.empty(high - low + 1, self.dtype)
        with cupy.cuda.Device(self.device):
            begin = self.pointer + low * self.dtype.itemsize
            runtime.memcpyAsync(elements.ctypes.data, begin, elements.nbytes, runtime.memcpyDeviceToHost, stream)
            runtime.streamSynchronize(stream)
        strides = [step * self.dtype.itemsize for step in self.strides]
        return np.lib.stride_tricks.as_strided(elements[-low:], self.shape, strides).copy()

    def release(self) -> None:
        """Call the deleter, once."""
        assert not self._released
        self._released = True
        if self._deleter:
            self._deleter(self._address)


def imported(exporter: Any, stream: int | None = LEGACY, *, max_version: tuple[int, int] | None = (1, 0)) -> Imported:
    """Import an array by DLPack.

    Parameters
    ----------
    exporter
        Object with ``__dlpack__`` and ``__dlpack_device__``.
    stream
        Stream on which the elements will be read: see the module.
    max_version
        Newest version that is understood; None to ask as before version 1.
    """
    device_type, device = exporter.__dlpack_device__()
    assert device_type == KDLCUDA, f"device type {device_type}"
    options: dict[str, Any] = {} if max_version is None else {"max_version": max_version}
    capsule = exporter.__dlpack__(stream=stream, **options)
    address_of_capsule = id(capsule)
    versioned = bool(_api.PyCapsule_IsValid(address_of_capsule, _NAMES[True]))
    assert versioned or _api.PyCapsule_IsValid(address_of_capsule, _NAMES[False]), f"not a tensor: {capsule!r}"
    assert not versioned or max_version is not None, "a version that was not asked for"
    address = _api.PyCapsule_GetPointer(address_of_capsule, _NAMES[versioned])
    managed: Any = (_Versioned if versioned else _Managed).from_address(address)
    assert not versioned or managed.major == 1, f"version {managed.major}"
    _api.PyCapsule_SetName(address_of_capsule, _USED[versioned])
    tensor = managed.tensor
    assert (tensor.device_type, tensor.device_id) == (device_type, device), (
        f"device type {tensor.device_type}, device {tensor.device_id}; __dlpack_device__ says {device_type}, {device}"
    )
    assert tensor.lanes == 1, f"{tensor.lanes} lanes"
    shape = tuple(tensor.shape[: tensor.ndim])
    strides = tuple(tensor.strides[: tensor.ndim]) if tensor.strides else _in_order(shape)
    # CuPy 14.2 exports a negative stride as a huge one: it divides bytes by the size of an element without a sign.
    assert all(abs(stride) < 1 << 58 for stride in strides), f"strides of {strides} elements"
    kind = {code: kind for kind, code in _CODES.items()}[tensor.code]
    return Imported(
        pointer=(tensor.data or 0) + tensor.byte_offset,
        device=device,
        shape=shape,
        strides=strides,
        dtype=np.dtype("?" if kind == "b" else f"{kind}{tensor.bits // 8}"),
        version=(managed.major, managed.minor) if versioned else (0, 0),
        read_only=bool(versioned and managed.flags & _READ_ONLY),
        _address=address,
        _deleter=managed.deleter,
    )


def _in_order(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= n
    return tuple(reversed(strides))
