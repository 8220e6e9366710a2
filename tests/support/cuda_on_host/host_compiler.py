"""The compilers of the host, and a folder of what it made that processes share."""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE: Final = Path(__file__).parent


class NotCompiledError(Exception):
    """The compiler refuses a program, or there is no compiler."""


def c_compiler() -> str | None:
    """Return the path of the C compiler, or None."""
    return next(filter(None, map(shutil.which, (os.environ.get("CC") or "cc", "gcc", "clang"))), None)


def compiler() -> str | None:
    """Return the path of the C++ compiler, or None."""
    return shutil.which(os.environ.get("CXX", "g++"))


@functools.cache
def version() -> str:
    """Return what the compiler says of itself."""
    return subprocess.run([_needed(), "--version"], capture_output=True, text=True, check=True).stdout


def compile_to(path: Path, *arguments: str) -> None:
    """Write a file by the compiler, whole or not at all.

    Raises
    ------
    NotCompiledError
        With the first errors, if the compiler has any.
    """
    new = path.with_suffix(f".{os.getpid()}{path.suffix}")
    # A child must not find a libcuda in place of the system's.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LD_")}
    done = subprocess.run(
        [_needed(), *arguments, "-o", str(new)], capture_output=True, text=True, env=environment, check=False
    )
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines()
        raise NotCompiledError("\n".join(errors[:8]))
    new.replace(path)


def _needed() -> str:
    path = compiler()
    if path is None:
        raise NotCompiledError("there is no C++ compiler (g++)")
    return path


def hashed(*texts: str) -> str:
    """Return a name for what is made of some texts."""
    found = hashlib.sha256()
    for text in texts:
        found.update(text.encode() + b"\0")
    return found.hexdigest()[:32]


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep other processes, and other threads, out."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
