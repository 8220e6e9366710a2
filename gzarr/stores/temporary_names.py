"""Names of temporary files, which say who is writing them.

``.gzarr-temporary-MACHINE-PID-START-UNIQUE``: MACHINE stands for the current boot of this host and its process
namespace (a container has its own); START is the start time of the process, which tells it from others with the same
PID.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
from pathlib import Path

TEMPORARY = ".gzarr-temporary-"
# Files of :mod:`gzarr.stores.claims`.
_CLAIM = f"{TEMPORARY}claim-"
LOCKS = ".gzarr-locks"

_WRITER = re.compile(re.escape(TEMPORARY) + r"([0-9a-f]{12})-([0-9]{1,9})-([0-9]+)-")

_writer: tuple[int, str] = (0, "")


def is_reserved(name: str) -> bool:
    """Return whether a file or directory name is reserved for gzarr, and so never part of a key."""
    return name.startswith(TEMPORARY) or name == LOCKS


def temporary_prefix() -> str:
    """Return the prefix of the names of this process's temporary files; the caller appends a unique part."""
    global _writer
    pid = os.getpid()
    if _writer[0] != pid:
        _writer = pid, f"{TEMPORARY}{_machine()}-{pid}-{_start_of(pid) or 0}-"
    return _writer[1]


def _machine() -> str:
    """Return a name that two processes share exactly if each can ask the system whether the other is running."""
    parts = []
    with contextlib.suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii"))
        parts.append(os.readlink("/proc/self/ns/pid"))  # noqa: PTH115  (not a file)
    if hasattr(os, "uname"):
        parts.append(os.uname().nodename)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


def _start_of(pid: int) -> str | None:
    """Return the start time of a process in the system's own unit, or None if unknown."""
    try:
        # The second field is the program's name in parentheses, and may itself contain spaces and parentheses.
        return Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None


def temporary_name() -> str:
    """Return a unique name for a temporary file."""
    return temporary_prefix() + secrets.token_hex(8)


def claim_name(name: str) -> str:
    """Return the name of the file that claims a name in the same directory."""
    return _CLAIM + hashlib.sha256(os.fsencode(name)).hexdigest()[:32]


def is_claim(name: str) -> bool:
    """Return whether a name is one of :func:`claim_name`."""
    return name.startswith(_CLAIM)


def is_of_ended(name: str) -> bool | None:
    """Return whether the process that has given a temporary name has ended; None if that cannot be known here."""
    writer = _WRITER.match(name)
    # On Windows, os.kill(pid, 0) is more than a check.
    if writer and os.name == "posix" and temporary_prefix().startswith(f"{TEMPORARY}{writer[1]}-"):
        return not _is_running(int(writer[2]), writer[3])
    return None


def _is_running(pid: int, start: str) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # no permission, so the process exists
        pass
    return start == "0" or (_start_of(pid) or start) == start
