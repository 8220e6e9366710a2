"""The runtime as tests see it: switched on once per process, seeded, told to fail, and asked what happened."""

from __future__ import annotations

import atexit
import ctypes
import os
import tempfile
from collections import Counter
from dataclasses import astuple, dataclass
from typing import Any, Final, Literal

from . import build, patching

OUT_OF_MEMORY: Final = 2
ILLEGAL_ADDRESS: Final = 700
LAUNCH_FAILURE: Final = 719

_LATE_MS: Final = 60
_DRAIN_SECONDS: Final = 20.0
_ACTIONS: Final = ("fail", "lose", "lose later", "hang")

_installed: HostCuda | None = None
_kept: list[tempfile.TemporaryDirectory[str]] = []


@dataclass(frozen=True)
class Leaks:
    """What is live: made and not yet destroyed.

    Attributes
    ----------
    streams, events
        Without the default streams.
    device, pinned
        Allocations of CUDA, on all devices and page-locked.
    pool, pool_bytes
        What CuPy's pool has given out and not got back.
    """

    streams: int
    events: int
    device: int
    pinned: int
    pool: int
    pool_bytes: int

    def __sub__(self, before: Leaks) -> Leaks:
        return Leaks(*(now - then for now, then in zip(astuple(self), astuple(before), strict=True)))

    def __bool__(self) -> bool:
        return any(n > 0 for n in astuple(self))


class HostCuda:
    """The CUDA runtime in host memory; there is one per process: see :func:`install`."""

    def __init__(self, library: ctypes.CDLL, functions: dict[str, bool]) -> None:
        self.library = library
        #: Functions of CUDA's runtime, and whether this one has them.
        self.functions = functions
        self._resolver: Any = None

    # -- order

    def seed(self, seed: int, *, late_ms: int = _LATE_MS) -> None:
        """Begin a new order of what streams do.

        Parameters
        ----------
        seed
            How long each operation is held back follows from it, the stream's number and the operation's number in the
            stream. Streams made from now on have the numbers 2, 3, …, older ones 2³² and so on by their age, and the
            legacy default streams those of the devices.
        late_ms
            How long an operation is held back at most if nobody waits for it, one of four eight times as long; 0: not
            at all.
        """
        self.library.coh_set_seed(seed, late_ms)

    def late_ms(self, stream: int, operation: int) -> float:
        """Return how long a stream's operation, from 1 on, is held back if nobody waits for it."""
        return float(self.library.coh_late_ms(stream, operation))

    def trace(self) -> list[tuple[int, int, str]]:
        """Return the operations that ran since the last call: stream, number in the stream, and what; 4,096 at most."""
        rows = (line.split(" ", 2) for line in self._text(self.library.coh_trace).splitlines())
        return [(int(stream), int(number), what) for stream, number, what in rows]

    def reset(self, seed: int = 0, *, late_ms: int = _LATE_MS, visible: int = 2, capacity: int = 1 << 30) -> None:
        """Begin anew: drop what is pending, forget faults, counts and notes, and revive lost devices."""
        self.library.coh_clear_rules()
        assert self.drain(drop=True), "an operation does not end"
        self.library.coh_revive()
        self.forget_contexts()
        self.visible(visible)
        for device in (0, 1):
            self.set_capacity(capacity, device)
            self.library.coh_reset_peak(device)
        self.clear_counts()
        self.notes()
        self.trace()
        self.seed(seed, late_ms=late_ms)

    def drain(self, *, drop: bool = False, seconds: float = _DRAIN_SECONDS) -> bool:
        """Let all streams come to their end, or drop what is pending; return whether they did in this time."""
        return bool(self.library.coh_drain(drop, seconds))

    # -- devices

    def visible(self, n: int) -> None:
        """Set how many devices CUDA reports: 0 (``cudaErrorNoDevice``), 1 or 2."""
        assert 0 <= n <= 2
        self.library.coh_set_visible(n)

    def occupy(self, device: int) -> None:
        """Make a device another process's alone: ``cudaComputeModeExclusiveProcess``, until the next reset."""
        self.library.coh_set_occupied(device, 1)

    def has_context(self, device: int) -> bool:
        """Return whether a context was made on a device, or used, since :meth:`forget_contexts`."""
        return bool(self.library.coh_has_context(device))

    def forget_contexts(self) -> None:
        """Begin as if no device had a context, and none were occupied."""
        self.library.coh_forget_contexts()

    def set_capacity(self, nbytes: int, device: int = 0) -> None:
        """Set a device's memory."""
        self.library.coh_set_capacity(device, nbytes)

    def held(self, device: int | None = 0) -> int:
        """Return the bytes of a device's live allocations; None: page-locked memory."""
        return int(self.library.coh_held(-1 if device is None else device))

    def peak(self, device: int = 0) -> int:
        """Return the maximum of :meth:`held` since the last reset."""
        return int(self.library.coh_peak(device))

    def reset_peak(self, device: int = 0) -> None:
        self.library.coh_reset_peak(device)

    def lost(self, device: int = 0) -> int:
        """Return the error that all calls of a lost device fail with, or 0."""
        return int(self.library.coh_lost_code(device))

    # -- faults

    def fail(
        self,
        call: str,
        nth: int = 1,
        *,
        code: int = OUT_OF_MEMORY,
        times: int = 1,
        how: Literal["fail", "lose", "lose later", "hang"] = "fail",
        seconds: float = 1.0,
    ) -> None:
        """Make calls fail from now on.

        Parameters
        ----------
        call
            Name of a function (``"cudaMalloc"``, ``"cuLaunchKernel"``), of a kernel's entry, or of a group:
            ``"allocate"`` (``"allocate_device"``, ``"allocate_pinned"``), ``"free"``, ``"launch"``, ``"copy"``,
            ``"memset"``, ``"enqueue"`` (all that enqueue something), ``"record"``, ``"wait"``, ``"query"``,
            ``"synchronize"``, ``"create"``, ``"destroy"``, ``"load"``, ``"enter"``, ``"any"``.
        nth
            Which call fails first, counted from now on.
        code
            CUDA's number of the error.
        times
            How many calls fail, one after the other; negative: all.
        how
            ``"fail"``: the call fails, and no other. ``"lose"``: so do all later calls of its device. ``"lose later"``:
            the operation that it enqueues loses the device when it runs. ``"hang"``: that takes some seconds.
        """
        how_ = _ACTIONS.index(how)
        assert self.library.coh_add_rule(call.encode(), nth, times, how_, code, seconds), "too many rules"

    def faults_left(self) -> int:
        """Return how many of the calls that were told to fail have not yet been made."""
        return int(self.library.coh_rules_left())

    def clear_faults(self) -> None:
        self.library.coh_clear_rules()

    # -- what happened

    def counts(self) -> Counter[str]:
        """Return how often each function was called, by name, and what was done: ``"copy_in"``, ``"copy_out"``,
        ``"copy_within"`` (each also as ``"…_bytes"``), ``"copy_host"``, ``"memset"``, ``"launch ENTRY"``.
        """
        rows = (line.rpartition(" ") for line in self._text(self.library.coh_counts).splitlines())
        found: Counter[str] = Counter()
        for name, _, n in rows:
            found[name.removeprefix("host_")] += int(n)
        return found

    def calls(self) -> int:
        """Return how many calls of CUDA there were."""
        return sum(n for name, n in self.counts().items() if name.startswith("cu"))

    def clear_counts(self) -> None:
        self.library.coh_counts_clear()

    def synchronizations(self) -> int:
        """Return how often the host waited for a stream, an event or a device."""
        counts = self.counts()
        return sum(counts[f"cuda{what}Synchronize"] for what in ("Stream", "Event", "Device"))

    def notes(self) -> list[str]:
        """Take what was wrong since the last call, one line each, which begins with the number of the error."""
        self.library.coh_check_guards()
        return self._text(self.library.coh_notes).splitlines()

    def live(self) -> Leaks:
        """Return what is live now; compare with what was before a test."""
        library = self.library
        device, pinned = sum(library.coh_live_allocations(i) for i in (0, 1)), library.coh_live_allocations(-1)
        pool = library.coh_live_parts(), library.coh_live_part_bytes()
        return Leaks(library.coh_live_streams(), library.coh_live_events(), device, pinned, *pool)

    def watch_pool(self) -> None:
        """Make CuPy's current allocator the default pool, watched; done by :func:`install`."""
        from .pool import watch

        watch(self.library)

    # -- kernels

    def set_resolver(self, resolver: Any) -> None:
        """Set who finds kernels in modules: a C function of type ``coh_resolver``, or its address; None: nobody."""
        address = resolver if resolver is None or isinstance(resolver, int) else ctypes.cast(resolver, ctypes.c_void_p)
        self.library.coh_set_resolver(address)
        self._resolver = resolver  # as long as it may be called

    @staticmethod
    def _text(function: Any) -> str:
        room = 1 << 18
        while True:
            text = ctypes.create_string_buffer(room)
            length = function(text, room)
            if length < room:
                return text.value.decode()
            room = length + 1024


def install() -> HostCuda:
    """Put the runtime in host memory in place of CUDA's, in this process; return it, also if it was there before.

    Raises
    ------
    build.Unavailable
        If this is not possible here.
    """
    global _installed
    if _installed is None:
        library = build.library()
        # Before CuPy is imported.
        os.environ["CUPY_ACCELERATORS"] = ""
        if "CUPY_CACHE_DIR" not in os.environ:
            _kept.append(tempfile.TemporaryDirectory(prefix="cupy-cache-", ignore_cleanup_errors=True))
            os.environ["CUPY_CACHE_DIR"] = _kept[-1].name
        import cupy_backends.cuda.api.runtime as runtime

        functions = patching.patch(runtime.__file__, library)
        _installed = HostCuda(library, functions)
        atexit.register(library.coh_shut_down)
        _installed.watch_pool()
    return _installed
