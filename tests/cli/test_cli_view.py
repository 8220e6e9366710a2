"""``gzarr view``: files, JSON, what terminals are asked and shown, and what is refused."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import io
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import PIL.Image
import pytest

import gzarr
from gzarr.cli.main import main
from gzarr.cli.terminal_questions import graphics_of

if TYPE_CHECKING:
    from pathlib import Path

DATA = np.random.default_rng(8).integers(0, 4000, (2, 2, 4, 60, 80), dtype=np.uint16)


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "x.zarr"
    gzarr.ome.create(path, DATA, axes="tczyx", channels=["DAPI", "GFP"], levels=2, chunks=(1, 1, 4, 60, 80))
    gzarr.ome.create_labels(path, "cells", DATA[:, 0] // 500)
    return path


def opened(path: Path, below: str = "") -> Any:
    return gzarr.ome.open(path, path=below, device="cpu")


def png(path: Path) -> np.ndarray[Any, Any]:
    with PIL.Image.open(path) as found:
        return np.asarray(found)


def test_files(image: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.png"
    assert main(["view", str(image), "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"{out}: 80 × 60\n"
    np.testing.assert_array_equal(png(out), opened(image).render())
    given = ["--channels", "GFP,0", "--z", "1:3", "--time", "1", "--level", "0", "--size", "300", "-q"]
    assert main(["view", str(image), "--out", str(out), *given]) == 0
    assert capsys.readouterr().out == ""
    np.testing.assert_array_equal(png(out), opened(image).render(c=["GFP", 0], z=slice(1, 3), t=1))
    assert main(["view", str(image), "--out", str(out), "--size", "20", "--z", "middle"]) == 0
    assert out.read_bytes() == opened(image).thumbnail(20, z="middle")
    assert main(["view", f"{image}#labels/cells", "--out", str(out)]) == 0
    np.testing.assert_array_equal(png(out), opened(image, "labels/cells").render())


def test_plates_wells_and_collections(tmp_path: Path) -> None:
    out, path = tmp_path / "out.png", tmp_path / "plate.zarr"
    gzarr.ome.create_plate(path, rows="AB", columns=[1, 2])
    for row, column in (("A", 1), ("B", 2)):
        gzarr.ome.create_field(path, row, column, DATA[:, 0, 0], axes="tyx")
    assert main(["view", str(path), "--out", str(out), "--size", "100", "--time", "1"]) == 0
    assert out.read_bytes() == opened(path).thumbnail(100, t=1)
    assert main(["view", f"{path}#A/1", "--out", str(out), "--size", "100"]) == 0
    assert out.read_bytes() == opened(path, "A/1").thumbnail(100)
    several = tmp_path / "several.zarr"
    gzarr.create_group(several, attributes={"ome": {"version": "0.5", "bioformats2raw.layout": 3}})
    gzarr.ome.create(several, DATA[0, 0, 0], axes="yx", path="0")
    assert main(["view", str(several), "--out", str(out)]) == 0
    np.testing.assert_array_equal(png(out), opened(several, "0").render())


def test_json(image: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "out.png")
    assert main(["view", str(image), "--json", "--out", out]) == 0
    assert json.loads(capsys.readouterr().out) == {"node": "/", "kind": "image", "shape": [60, 80], "out": out}
    assert main(["view", f"{image}#labels/cells", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == {"node": "/labels/cells", "kind": "labels", "shape": [60, 80], "out": None}


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        ([], 2, "the output is not a terminal: pass --out FILE.png"),
        (["--out", "none/x.png"], 1, "cannot be written"),
        (["--out", "x.jpg"], 2, "end the name in .png, not in .jpg"),
        (["--out", "x.png", "--channels", "RFP"], 1, "no channel"),
        (["--out", "x.png", "--z", "9"], 2, "no plane 9"),
        (["--out", "x.png", "--path", "labels"], 1, "this group lists labels ('cells')"),
        (["--out", "x.png", "--path", "0"], 1, "is an array"),
    ],
)
def test_what_is_refused(
    arguments: list[str], code: int, text: str, image: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    monkeypatch.chdir(image.parent)
    assert main(["view", str(image), *arguments]) == code
    assert text in capsys.readouterr().err
    assert not (image.parent / "x.png").exists()


def test_no_picture_is_said_before_how_to_show_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gzarr.create_group(tmp_path / "x.zarr").create_array("a", data=DATA)
    for path, text in (
        ("x.zarr", "has no OME metadata of an image"),
        ("x.zarr#a", "is an array"),
        ("y.zarr", "no dir"),
    ):
        assert main(["view", str(tmp_path / path)]) == 1
        error = capsys.readouterr().err
        assert text in error
        assert "--out" not in error


def test_no_axis_of_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gzarr.ome.create(tmp_path / "x.zarr", DATA[0, 0, 0], axes="yx")
    assert main(["view", str(tmp_path / "x.zarr"), "--time", "0", "--out", str(tmp_path / "x.png")]) == 2
    assert "no axis of time" in capsys.readouterr().err


@pytest.mark.parametrize("wrong", [["--z", "low"], ["--size", "0"], ["--level", "x"], ["--graphics", "ascii"]])
def test_wrong_usage(wrong: list[str], image: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["view", str(image), *wrong])
    assert caught.value.code == 2
    assert wrong[0] in capsys.readouterr().err


# -- terminals

#: What terminals answer to the two questions: a kitty, one with sixels, one without, and one that says nothing.
ANSWERS = {
    "kitty": b"\x1b_Gi=31;OK\x1b\\\x1b[?62;c",
    "sixel": b"\x1b[?64;1;2;4;6c",
    "blocks": b"\x1b[?4;6c",
    "error": b"\x1b_Gi=31;EINVAL:no\x1b\\\x1b[?62;22c",
    "silent": b"",
}


def on_terminal(arguments: list[str], answer: bytes, **environment: str) -> tuple[bytes, bool]:
    """Run a command in a session with a terminal that answers; return what it was sent, and whether it was asked."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
    variables = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "LINES")}
    variables |= {"TERM": "xterm-256color", "COLORTERM": "truecolor", "PYTHONIOENCODING": "utf-8", **environment}

    def take() -> None:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    command = [sys.executable, "-m", "gzarr", *arguments]
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=variables, preexec_fn=take)
    before = termios.tcgetattr(theirs)
    seen, asked = b"", False
    with contextlib.suppress(OSError):
        os.close(theirs)
        while part := os.read(ours, 65536):
            seen += part
            if not asked and b"\x1b[c" in seen:
                asked = True
                # In two parts, as lines may be slow.
                os.write(ours, answer[:5])
                time.sleep(0.05)
                os.write(ours, answer[5:])
    assert process.wait() == 0, seen
    # Echo and lines are as they were.
    after = termios.tcgetattr(ours)
    assert after[3] == before[3]
    os.close(ours)
    return seen, asked


@pytest.mark.parametrize("terminal", ANSWERS)
def test_terminals_are_asked(terminal: str, image: Path) -> None:
    seen, asked = on_terminal(["view", str(image)], ANSWERS[terminal])
    assert asked
    _, _, rest = seen.partition(b"\x1b[c")
    if terminal == "kitty":
        data = b"".join(re.findall(rb"\x1b_G[^;]*;([A-Za-z0-9+/=]*)\x1b\\", rest))
        with PIL.Image.open(io.BytesIO(base64.b64decode(data))) as found:
            np.testing.assert_array_equal(np.asarray(found), opened(image).render())
    elif terminal == "sixel":
        assert rest.startswith(b'\x1bP0;1;0q"1;1;80;60')
    else:
        lines = rest.decode().strip().splitlines()
        # 60 columns and 24 lines, of which the last is for the prompt: 46 rows of pixels.
        assert len(lines) <= 23
        assert all(line.count("\u2580") == len(re.sub(r"\x1b\[[\d;]*m", "", line).strip()) for line in lines)
        assert {line.count("\u2580") for line in lines} == {60}
        assert len(lines) == 23


def test_without_colours(image: Path) -> None:
    seen, asked = on_terminal(["view", str(image), "--graphics", "blocks"], b"", NO_COLOR="1")
    assert not asked
    assert b"\x1b" not in seen
    assert len(seen.decode().splitlines()) >= 20
    seen, _ = on_terminal(["view", str(image), "--graphics", "blocks"], b"", COLORTERM="")
    assert b"\x1b[38;5;" in seen


def test_blocks_without_a_terminal(image: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    monkeypatch.setenv("LINES", "40")
    monkeypatch.setenv("COLORTERM", "truecolor")
    assert main(["view", str(image), "--graphics", "blocks"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert {line.count("\u2580") for line in lines} == {30}
    assert graphics_of() in ("blocks", "kitty", "sixel")


def test_a_terminal_that_goes_away_ends_the_question() -> None:
    ours, theirs = pty.openpty()
    code = "from gzarr.cli.terminal_questions import graphics_of; import sys; sys.exit(graphics_of() != 'blocks')"

    def take() -> None:
        # As under nohup.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    with subprocess.Popen([sys.executable, "-c", code], stdin=theirs, preexec_fn=take) as process:
        os.close(theirs)
        seen = b""
        try:
            while b"\x1b[c" not in seen:
                part = os.read(ours, 4096)
                assert part
                seen += part
            os.close(ours)
            assert process.wait(20) == 0
        finally:
            process.kill()
