"""What a program prints while a bar is shown: it goes where stdout goes, whole, and a bar only to terminals."""

from __future__ import annotations

import os
import re
import subprocess
import sys

from support.terminals import on_terminal, output_on_terminal

EPOCH = """
import numpy as np, gzarr
array = gzarr.create_array({}, data=np.arange(24.0), chunks=8)
for step, batch in enumerate(gzarr.Loader(array, batch_size=8).progress()):
    print(f"step {step}: {'loss ' * 30}", flush=True)
print("end")
"""
WATCHED = """
from gzarr import progress
progress.QUIET_SECONDS = -1
for step in progress.watch(range(3), "watched", 3):
    print(f"step {step}: {'loss ' * 30}", flush=True)
print("end")
"""
PRINTED = [*(f"step {step}: {'loss ' * 30}" for step in range(3)), "end"]
CONTROL = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\r")


def test_prints_of_an_epoch_go_to_a_pipe() -> None:
    out, seen = on_terminal([sys.executable, "-W", "ignore", "-c", EPOCH])
    assert out.decode().splitlines() == PRINTED
    assert b"epoch 0" in seen
    assert b"loss" not in seen


def test_prints_of_work_that_is_watched_go_to_a_pipe() -> None:
    out, seen = on_terminal([sys.executable, "-c", WATCHED])
    assert out.decode().splitlines() == PRINTED
    assert b"watched" in seen
    assert b"loss" not in seen


def test_prints_to_the_terminal_of_the_bar_are_above_it_and_can_be_copied() -> None:
    """Lines that are longer than the terminal is wide have no line breaks in them; the bar is as wide as that."""
    code, shown = output_on_terminal([sys.executable, "-c", WATCHED], 40)
    assert code == 0
    lines = [line.rstrip() for line in CONTROL.sub("\r", shown).replace("\n", "\r").split("\r")]
    assert [line for line in lines if line.startswith(("step", "end"))] == [line.rstrip() for line in PRINTED]
    bars = [line for line in lines if line.startswith("watched")]
    assert bars
    assert max(map(len, bars)) <= 40


def test_a_file_is_no_terminal_whatever_the_variables_say() -> None:
    environment = os.environ | {"FORCE_COLOR": "1"}
    for code, stays in ((EPOCH, True), (WATCHED, False)):
        command = [sys.executable, "-W", "ignore", "-c", code]
        done = subprocess.run(command, capture_output=True, encoding="utf-8", env=environment, check=True)
        assert done.stdout.splitlines() == PRINTED
        # Of an epoch, the last state stays.
        assert len(done.stderr.splitlines()) == stays
        assert "\x1b" not in done.stderr
