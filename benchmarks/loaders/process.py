"""The process of one loader, as ``loader.py`` asks it: ``worker`` is what runs there."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import programs

from loaders.worker import cpu_s, tree

if TYPE_CHECKING:
    import argparse

#: Seconds until any answer, at most.
ANSWER_S = 300.0
#: The most that is waited until a process is idle.
_SETTLE_S = 1.0


class Process:
    """A process with one loader."""

    def __init__(self, scenario: str, column: str, home: Path, arguments: argparse.Namespace) -> None:
        environment = dict(os.environ)
        threads = arguments.threads // 2 if column == "gzarr DataLoader 2" else arguments.threads
        environment["GZARR_THREADS"] = str(max(threads, 1))
        environment.pop("GZARR_RECYCLE_BYTES", None)
        if column != "gzarr":
            environment["GZARR_RECYCLE_BYTES"] = "0"
        command = [*programs.command("loaders", "worker", "-W", "ignore"), scenario, str(arguments.scale)]
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._process = subprocess.Popen(
            [*command, column, str(home), str(arguments.threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=environment,
        )
        self._base = 0

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *exception: object) -> None:
        below = tree(self._process.pid)[1:]
        self._process.kill()
        self._process.wait()
        for pid in below:
            with contextlib.suppress(OSError):
                os.kill(pid, 9)
        for pipe in (self._process.stdin, self._process.stdout, self._errors):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def answer(self) -> Any:
        """Wait for the next answer."""
        stdout = self._process.stdout
        assert stdout is not None
        if not select.select([stdout], [], [], ANSWER_S)[0]:
            raise RuntimeError(f"no answer within {ANSWER_S:.0f} s")
        line = stdout.readline()
        if not line:
            self._errors.seek(0)
            said = [one for one in self._errors.read().splitlines() if one.strip()] or ["it said nothing"]
            raise RuntimeError(said[-1][:200])
        return json.loads(line)

    def ask(self, *command: Any) -> Any:
        """Have something done, and wait for the answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        return self.answer()

    def peak_during(self, *command: Any) -> tuple[Any, int]:
        """Have something done; return the answer, and the most memory above that before, in bytes."""
        base, most, done = self._memory(), 0, threading.Event()

        def watch() -> None:
            nonlocal most
            while not done.wait(0.01):
                most = max(most, self._memory())

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            return self.ask(*command), max(most - base, 0)
        finally:
            done.set()
            watcher.join()

    def settle(self) -> None:
        """Wait until the process is idle: it may read ahead what belongs to an epoch that was left."""
        end, before = time.perf_counter() + _SETTLE_S, -1.0
        while (used := cpu_s(self._process.pid)) != before and time.perf_counter() < end:
            before = used
            time.sleep(0.03)

    def _memory(self) -> int:
        """Return the bytes of anonymous and shared memory of the process and all below it, each page once."""
        kib = 0
        for pid in tree(self._process.pid):
            with contextlib.suppress(OSError):
                for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                    if line.startswith(("Pss_Anon:", "Pss_Shmem:")):
                        kib += int(line.split()[1])
        return kib * 1024
