"""Values of options that cannot be read: one line, at once, and exit code 2."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import distributed
import pytest

import gzarr
from gzarr.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("text", ["[" * 100_000, '{"name": ' * 100_000, "[1, 2"], ids=["lists", "objects", "cut"])
def test_codecs_that_are_no_json(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["copy", str(tmp_path / "a"), str(tmp_path / "b"), "--codecs", text])
    assert stopped.value.code == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("gzarr copy: error: argument --codecs: '")
    assert "is not JSON" in last
    assert len(last) < 600


@pytest.mark.parametrize("address", ["10.0.0.1", "tcp://10.0.0.1", "http://10.0.0.1:80", "10.0.0.1:x", "::1:80", ""])
def test_addresses_of_no_scheduler(
    address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No client is made, which would wait for a minute until it ends."""
    made: list[Any] = []
    monkeypatch.setattr(distributed, "Client", lambda *arguments, **_: made.append(arguments))
    gzarr.create_array(tmp_path / "a", data=[1, 2, 3])
    assert main(["copy", str(tmp_path / "a"), str(tmp_path / "b"), "--dask", address]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"gzarr: error: there is no scheduler of dask at {address!r}: ")
    assert not made
