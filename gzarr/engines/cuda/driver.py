"""NVIDIA's driver, queried without initialising CUDA: which GPUs this process may use, also after a fork.

CUDA cannot be used in a process that was forked from one that had initialised it (``cuInit``), and data loaders fork.
So opening an array must not initialise CUDA: GPUs are counted by NVML, the library of ``nvidia-smi``, or else from what
the kernel module reports in ``/proc``. If neither can tell (an integrated GPU), a short-lived process counts them with
CUDA.

``cuDeviceGetCount`` answers whether anything in this process has initialised CUDA: "If cuInit() has not been called,
any function from the driver API will return CUDA_ERROR_NOT_INITIALIZED" (CUDA Driver API, Initialization). It is called
in the parent right before a fork. In the child of a process that had initialised CUDA, every function of CUDA fails,
including ``cuInit``; but asking there would initialise CUDA in a child that can use it. A fork that Python does not
know of (C code that calls ``fork``) is not noticed here: CUDA's own error reports it.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

#: Why a device cannot be used in a forked process, and what to do.
LOST: Final = (
    "this process was forked from one that had used CUDA, and CUDA cannot be used in it; start processes with "
    '"spawn" (multiprocessing_context="spawn" of a DataLoader), or open with device="cpu"'
)

_CUDA: Final = "libcuda.so.1"
_NVML: Final = "libnvidia-ml.so.1"
# nvml.h.
_NVML_DRIVER_NOT_LOADED: Final = 9
_NAME_BYTES: Final = 96
_MODULE: Final = Path("/proc/driver/nvidia/gpus")
_RELEASE: Final = Path("/sys/module/nvidia/version")
_DEV: Final = Path("/dev")
# Initialising CUDA takes a second or two if nothing keeps the GPUs awake, and longer if there are many.
_CHILD_SECONDS: Final = 60.0
_CHILD: Final = (
    f"import ctypes; n = ctypes.c_int(); cuda = ctypes.CDLL('{_CUDA}'); "
    "print(0 if cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(n)) else n.value)"
)


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU of this machine.

    Attributes
    ----------
    name
        For example ``"NVIDIA H200"``.
    uuid
        ``"GPU-…"``.
    slices
        UUIDs of the usable MIG partitions; None if the GPU is not partitioned.
    """

    name: str
    uuid: str
    slices: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Machine:
    """The GPUs that this process may use, before ``CUDA_VISIBLE_DEVICES`` chooses among them.

    Attributes
    ----------
    gpus
        GPUs in PCI bus order, which need not be CUDA's.
    release
        Version of the driver, such as ``"580.65.06"``.
    """

    gpus: tuple[Gpu, ...]
    release: str


@dataclass(frozen=True, slots=True)
class Visible:
    """How many devices CUDA shows to this process.

    Attributes
    ----------
    count
        Number of devices, or a lower bound; 0 if there is none.
    exact
        Whether ``count`` is exact. Drivers show one partition of partitioned GPUs, or more.
    """

    count: int
    exact: bool = True


# -- whether CUDA is in use here ---------------------------------------------------------------------------------------


def is_initialised() -> bool:
    """Return whether anything in this process has initialised CUDA."""
    global _initialised
    # It stays so, and to load the library again takes longer than to ask it.
    _initialised = _initialised or _count_if_initialised() is not None
    return _initialised


def is_lost() -> bool:
    """Return whether CUDA cannot be used because it was in use before this process was forked."""
    return _lost


def _count_if_initialised() -> int | None:
    """Return how many devices CUDA shows, or None if it is not initialised."""
    cuda = _loaded()
    count = ctypes.c_int()
    if cuda is None or cuda.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return None
    return count.value


def _loaded() -> Any:
    """Return CUDA's driver library if it is loaded in this process, else None."""
    if not hasattr(os, "RTLD_NOLOAD"):  # systems without it have no CUDA
        return None
    try:
        return ctypes.CDLL(_CUDA, mode=os.RTLD_NOLOAD)
    except OSError:
        return None


_initialised = False
_lost = False
_used_before_fork = False


def _before_fork() -> None:
    global _used_before_fork
    _used_before_fork = not _lost and is_initialised()


def _after_fork() -> None:
    global _lost
    _lost = _lost or _used_before_fork


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_child=_after_fork)


# -- which GPUs there are ----------------------------------------------------------------------------------------------


def visible() -> Visible:
    """Return how many devices CUDA shows, or would show, to this process; initialises nothing."""
    try:
        ctypes.CDLL(_CUDA)
    except OSError:
        return Visible(0)
    count = _count_if_initialised()
    if count is not None:
        return Visible(count)
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None and not chosen.strip():
        return Visible(0)
    found = machine()
    # The kernel module does not list the partitions of a GPU.
    by_part = chosen is not None and chosen.startswith("MIG-")
    if found is None or (by_part and found.gpus and all(gpu.slices is None for gpu in found.gpus)):
        return _counted_by_a_child()
    return choose(found.gpus, chosen)


@functools.cache
def machine() -> Machine | None:
    """Return the GPUs of this machine, or None if they cannot be listed; looks once per process."""
    try:
        nvml = ctypes.CDLL(_NVML)
    except OSError:
        return _by_module()
    return _by_nvml(nvml)


def facts() -> dict[str, Any]:
    """Return everything that decides which GPU ``cuda:N`` is, as JSON values."""
    found = machine() or Machine((), "")
    return {
        "gpu": " ".join(dict.fromkeys(gpu.name for gpu in found.gpus)),
        "uuids": [[gpu.uuid, *(gpu.slices or ())] for gpu in found.gpus],
        "chosen": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "order": os.environ.get("CUDA_DEVICE_ORDER"),
        "driver": found.release,
    }


def choose(gpus: Sequence[Gpu], chosen: str | None) -> Visible:
    """Return the devices that ``CUDA_VISIBLE_DEVICES`` leaves, as CUDA reads it.

    Source: CUDA Programming Guide, "CUDA Environment Variables": the entries are ordinals, or UUIDs of GPUs or their
    partitions, which may be abbreviated as long as they are unique; everything after the first invalid entry is
    ignored. Ordinals are parsed as C parses numbers, and a device that is named twice leaves no device, as in PyTorch.

    Parameters
    ----------
    gpus
        GPUs of this machine.
    chosen
        Value of the variable; None if it is not set.
    """
    found: list[tuple[int, str]] = [(place, "") for place in range(len(gpus))]
    if chosen is not None:
        found = []
        for entry in chosen.split(","):
            device = _named(gpus, entry.strip())
            if device is None:
                break
            if device in found:
                return Visible(0)
            found.append(device)
    # A partitioned GPU without partitions is not a device.
    found = [(place, part) for place, part in found if part or gpus[place].slices != ()]
    if any(part or gpus[place].slices for place, part in found):
        # "CUDA can only enumerate a single compute instance", and then no other GPU; newer drivers may show more.
        return Visible(1, exact=False)
    return Visible(len(found))


def _named(gpus: Sequence[Gpu], entry: str) -> tuple[int, str] | None:
    """Return the device that an entry names: the index of its GPU, and its partition (``""``: the whole GPU)."""
    if entry.startswith("MIG-"):
        parts = [(place, part) for place, gpu in enumerate(gpus) for part in gpu.slices or () if part.startswith(entry)]
        # Before driver 470: MIG-GPU-UUID/GPU instance/compute instance.
        uuid = entry.removeprefix("MIG-").partition("/")[0]
        parts = parts or [(place, entry) for place, gpu in enumerate(gpus) if gpu.slices and gpu.uuid == uuid]
        return parts[0] if len(parts) == 1 else None
    if entry.startswith("GPU-"):
        places = [place for place, gpu in enumerate(gpus) if gpu.uuid.startswith(entry)]
        return (places[0], "") if len(places) == 1 else None
    digits = entry.removeprefix("+")
    end = next((i for i, c in enumerate(digits) if c not in "0123456789"), len(digits))
    return (int(digits[:end]), "") if 0 < end < 10 and int(digits[:end]) < len(gpus) else None


def _by_nvml(nvml: Any) -> Machine | None:
    """Return the GPUs that NVML lists; None if it fails or lists none: it does not know all integrated GPUs."""
    status = nvml.nvmlInit_v2()
    if status == _NVML_DRIVER_NOT_LOADED:
        return Machine((), "")
    if status:
        return None
    try:
        count, release = ctypes.c_uint(), ctypes.create_string_buffer(_NAME_BYTES)
        if nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) or not count.value:
            return None
        nvml.nvmlSystemGetDriverVersion(release, _NAME_BYTES)
        return Machine(tuple(_gpus_of_nvml(nvml, count.value)), _text(release))
    finally:
        nvml.nvmlShutdown()


def _gpus_of_nvml(nvml: Any, count: int) -> Iterator[Gpu]:
    """Yield the GPUs that this process may use: a container or a batch system may show more."""
    handle, text = ctypes.c_void_p(), ctypes.create_string_buffer(_NAME_BYTES)
    for i in range(count):
        if nvml.nvmlDeviceGetHandleByIndex_v2(i, ctypes.byref(handle)):
            continue
        name = _text(text) if not nvml.nvmlDeviceGetName(handle, text, _NAME_BYTES) else ""
        uuid = _text(text) if not nvml.nvmlDeviceGetUUID(handle, text, _NAME_BYTES) else ""
        yield Gpu(name, uuid, _slices(nvml, handle))


def _slices(nvml: Any, gpu: ctypes.c_void_p) -> tuple[str, ...] | None:
    """Return the UUIDs of a GPU's partitions; None if it is not partitioned."""
    now, later, most = ctypes.c_uint(), ctypes.c_uint(), ctypes.c_uint()
    # Drivers before CUDA 11 lack these functions, and GPUs before A100 this mode.
    if not hasattr(nvml, "nvmlDeviceGetMigMode"):
        return None
    if nvml.nvmlDeviceGetMigMode(gpu, ctypes.byref(now), ctypes.byref(later)) or not now.value:
        return None
    nvml.nvmlDeviceGetMaxMigDeviceCount(gpu, ctypes.byref(most))
    part, text = ctypes.c_void_p(), ctypes.create_string_buffer(_NAME_BYTES)
    return tuple(
        _text(text)
        for i in range(most.value)
        if not nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, i, ctypes.byref(part))
        and not nvml.nvmlDeviceGetUUID(part, text, _NAME_BYTES)
    )


def _text(buffer: ctypes.Array[ctypes.c_char]) -> str:
    return buffer.value.decode(errors="replace")


def _by_module() -> Machine | None:
    """Return the GPUs that the kernel module lists; None if it lists none.

    Containers see all GPUs of the machine there, so only GPUs with a device file count.
    """
    try:
        release = _RELEASE.read_text("utf-8", "replace").strip() if _RELEASE.exists() else ""
        told = [_facts_of(path.read_text("utf-8", "replace")) for path in sorted(_MODULE.glob("*/information"))]
    except OSError:
        return None
    if not told:
        return None
    return Machine(
        tuple(
            Gpu(gpu.get("Model", ""), gpu.get("GPU UUID", ""))
            for gpu in told
            if "Device Minor" in gpu and (_DEV / f"nvidia{gpu['Device Minor']}").exists()
        ),
        release,
    )


def _facts_of(text: str) -> dict[str, str]:
    pairs = (line.partition(":") for line in text.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}


def _counted_by_a_child() -> Visible:
    """Return how many devices CUDA shows to a process that is started to count them."""
    import subprocess
    from multiprocessing import spawn

    python = spawn.get_executable()
    if getattr(sys, "frozen", False) or not python:
        # There is no Python to start. The first read will tell.
        return Visible(1, exact=False)
    command = [os.fsdecode(python), "-I", "-S", "-c", _CHILD]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_CHILD_SECONDS)
        return Visible(int(done.stdout))
    except (OSError, ValueError, subprocess.SubprocessError):
        return Visible(0)
