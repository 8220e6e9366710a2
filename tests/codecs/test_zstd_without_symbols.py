"""Zstandard by numcodecs' Python functions, where its library exports no symbols, gives what these give."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from numcodecs import zstd

import gzarr
from gzarr.codecs import native
from gzarr.codecs.buffers import flat

NOISE = np.random.default_rng(0).bytes(70_000)
#: One block of 100,000 times a letter, in a frame without the content size.
UNKNOWN = b"\x28\xb5\x2f\xfd\x00\x58" + (100_000 << 3 | 3).to_bytes(3, "little") + b"x"
FRAMES = {
    "small": zstd.compress(b"a" * 10),
    "of-two-bytes": zstd.compress(b"a" * 300),
    "of-four-bytes": zstd.compress(NOISE),
    "checksum": zstd.compress(NOISE, 3, True),
    "unknown": UNKNOWN,
    "several": zstd.compress(b"a" * 300) + zstd.compress(NOISE),
    "several-unknown": zstd.compress(b"a" * 300) + UNKNOWN,
    "skippable-first": b"\x50\x2a\x4d\x18\3\0\0\0abc" + zstd.compress(b"a" * 300),
    "cut": zstd.compress(NOISE)[:-1],
    "none": b"abcdefgh",
}


def _outcome(data: bytes, capacity: int) -> bytes | str | None:
    try:
        output = native.zstd_decompress(flat(data), capacity)
    except ValueError:
        return "error"
    return None if output is None else output.tobytes()


@pytest.mark.skipif(sys.platform == "win32", reason="numcodecs exports no symbols there")
@pytest.mark.parametrize("name", FRAMES)
def test_frames(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert native.zstd() is not None
    data = FRAMES[name]
    capacities = (1, 9, 10, 11, 299, 300, 301, 70_000, 70_300, 70_301, 99_999, 100_000, 100_300, 200_000)
    stated = native.zstd_frame_content_size(flat(data))
    expected = [_outcome(data, capacity) for capacity in capacities]
    monkeypatch.setattr(native, "zstd", lambda: None)
    # A skippable frame has no content; 0 and None mean the same to decoders.
    assert (native.zstd_frame_content_size(flat(data)) or 0) == (stated or 0)
    got = [_outcome(data, capacity) for capacity in capacities]
    if name == "cut":
        # Too little room for what the header states, or damaged: both are no data.
        assert not any(isinstance(one, bytes) for one in got)
    else:
        assert got == expected


def test_strings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their size is not known."""
    monkeypatch.setattr(native, "zstd", lambda: None)
    texts = np.array(["a" * 1000] * 500 + [""], object)
    array = gzarr.create_array({}, data=texts, dtype=str, codecs=["zstd"])
    assert array[...].tolist() == texts.tolist()
