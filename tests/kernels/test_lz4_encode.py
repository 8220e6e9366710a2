"""Our LZ4 encoder: lz4 decodes its output, in buffers that end at inaccessible pages."""

from __future__ import annotations

import struct
import sys

import numba
import numcodecs
import numpy as np
import pytest
from gzarr_kernels.lz4_encode import lz4_encode, workspace_nbytes
from hypothesis import given, settings
from hypothesis import strategies as st
from numcodecs import lz4
from support.guarded_memory import Guarded

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the compiled loop needs POSIX")

#: Number of bytes that the encoder may write after its target.
SLACK = 16


@numba.njit
def _encode(workspace: int, source: int, nbytes: int, target: int, capacity: int) -> int:
    return lz4_encode(workspace, source, nbytes, target, capacity)


@numba.njit
def _workspace_nbytes(nbytes: int) -> int:
    return workspace_nbytes(nbytes)


def bound(nbytes: int) -> int:
    """LZ4_compressBound of lz4.h."""
    return nbytes + nbytes // 255 + 16


def encode(data: bytes, capacity: int | None = None) -> bytes | None:
    room = bound(len(data)) if capacity is None else capacity
    source, target = Guarded(data), Guarded(room + SLACK)
    workspace = Guarded(_workspace_nbytes(len(data)))
    size = _encode(workspace.address, source.address, len(data), target.address, room)
    assert 0 <= size <= room
    return target.tobytes()[:size] if size else None


def decode(block: bytes, nbytes: int) -> bytes:
    return bytes(lz4.decompress(struct.pack("<I", nbytes) + block))


def plane(nbytes: int, values: int, run: float, seed: int) -> bytes:
    """A few distinct bytes in runs, like the high bytes of numbers."""
    random = np.random.default_rng(seed)
    lengths = random.geometric(1 / run, nbytes // max(int(run) // 2, 1) + 1)
    return np.repeat(random.integers(0, values, len(lengths)).astype("u1"), lengths)[:nbytes].tobytes()


@pytest.mark.parametrize("nbytes", [1, 15, 16, 17, 79, 80, 81, 200, 8191, 8192, 8193, 32768, 131072, 1_000_003])
@pytest.mark.parametrize("kind", ["zeros", "noise", "plane", "runs", "period", "long period", "text"])
def test_lz4_decodes_it(kind: str, nbytes: int) -> None:
    random = np.random.default_rng(nbytes)
    data = {
        "zeros": lambda: bytes(nbytes),
        "noise": lambda: random.bytes(nbytes),
        "plane": lambda: plane(nbytes, 4, 3.0, 1),
        "runs": lambda: plane(nbytes, 256, 300.0, 2),
        "period": lambda: bytes(range(7)) * (nbytes // 7 + 1),
        # Further back than a distance can say.
        "long period": lambda: random.bytes(70_000) * (nbytes // 70_000 + 1),
        "text": lambda: __doc__.encode() * (nbytes // 50 + 1),
    }[kind]()[:nbytes]
    block = encode(data)
    assert block is not None
    assert decode(block, len(data)) == data


@pytest.mark.parametrize("nbytes", [5000, 32768, 131072])
def test_planes_become_smaller_than_by_lz4(nbytes: int) -> None:
    data = plane(nbytes, 4, 3.0, 5)
    block = encode(data)
    theirs = len(numcodecs.LZ4(5).encode(data)) - 4
    assert block is not None
    assert len(block) < 0.9 * theirs


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_any_bytes(data: st.DataObject) -> None:
    parts = st.one_of(
        st.binary(max_size=300),
        st.builds(lambda b, n: b * n, st.binary(min_size=1, max_size=20), st.integers(1, 400)),
        st.builds(plane, st.integers(0, 9000), st.integers(1, 9), st.floats(1, 40), st.integers(0, 9)),
    )
    source = b"".join(data.draw(st.lists(parts, max_size=8))) or b"x"
    if data.draw(st.booleans()):
        source += source
    block = encode(source)
    assert block is not None
    assert decode(block, len(source)) == source
    # With less room it says so, or does with what there is.
    capacity = data.draw(st.integers(0, len(block) + 20))
    short = encode(source, capacity)
    if short is None:
        assert capacity < len(block) + 16
    else:
        assert short == block
