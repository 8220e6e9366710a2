"""The host time of a wave is measured over stand-ins, which must be what the wave calls."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest
from support.devices import LACKS

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.skipif(bool(LACKS), reason=LACKS)
def test_each_line_is_printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    launch = importlib.import_module("launch")
    monkeypatch.setattr(launch, "LAUNCHES", 2)
    monkeypatch.setattr(launch, "ROUNDS", 1)
    monkeypatch.setattr(launch, "WAVES", ((1 << 20, 64 << 10),))
    monkeypatch.setattr(launch, "WAVE_ROUNDS", 1)
    launch.main()
    lines = capsys.readouterr().out.splitlines()
    assert [re.sub(r"[\d.]+ µs", "µs", line) for line in lines] == [
        "copy_frames, 3 arguments: µs per launch",
        "assemble, 6 arguments: µs per launch",
        "a wave of 1 MiB in zstd chunks of 64 KiB: µs of host time",
    ]
