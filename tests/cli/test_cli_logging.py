"""``-v`` in a program that calls the command line: logging is as before when the call ends."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

import gzarr
from gzarr.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("level", [logging.NOTSET, logging.ERROR])
def test_logging_is_as_before(level: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gzarr.create_array(tmp_path / "x", data=[1, 2, 3])
    logger = logging.getLogger("gzarr")
    old, handlers = logger.level, list(logger.handlers)
    logger.setLevel(level)
    try:
        for i in range(2):
            assert main(["copy", str(tmp_path / "x"), str(tmp_path / f"y{i}"), "-vv"]) == 0
            lines = [line.partition(" ")[2] for line in capsys.readouterr().err.splitlines()]
            assert any(line.startswith("gzarr.") for line in lines)
            # By one handler.
            assert len(lines) == len(set(lines))
        # An error ends it, too.
        assert main(["copy", str(tmp_path / "x"), str(tmp_path / "y0"), "-v"]) == 2
        with pytest.raises(SystemExit):
            main(["copy", str(tmp_path / "x"), str(tmp_path / "y2"), "-v", "--nothing"])
        assert (logger.level, logger.handlers) == (level, handlers)
    finally:
        logger.setLevel(old)
        logger.handlers[:] = handlers
