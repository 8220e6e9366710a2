"""Small chunks that would become many objects of Python, which are refused before they do."""

from __future__ import annotations

import json
import struct
import tracemalloc
from typing import Any

import numcodecs
import numpy as np
import pytest

from gzarr.codecs import object_codecs
from gzarr.codecs.codec import ArrayRepresentation
from gzarr.codecs.registry import codec_from_v2

msgpack = pytest.importorskip("msgpack")
THREE = ArrayRepresentation((3,), np.dtype(object))


def _decode(name: str, data: bytes, chunk: ArrayRepresentation = THREE) -> Any:
    return codec_from_v2({"id": name}, "$", first=True, objects=True).decode(data, chunk)


def _array(n: int) -> bytes:
    return b"\xdd" + struct.pack(">I", n)


@pytest.mark.parametrize("name", ["json2", "msgpack2"])
def test_bombs_take_little_more_than_their_bytes(name: str) -> None:
    n = object_codecs.MORE_VALUES + 100
    data = b"[" + b"[]," * (n // 2) + b"1]" if name == "json2" else _array(n) + b"\x90" * n
    tracemalloc.start()
    try:
        with pytest.raises(
            ValueError, match=rf"numcodecs\.{name}: .* values, .* for 3 elements; a chunk may have 16777216"
        ):
            _decode(name, data)
        assert tracemalloc.get_traced_memory()[1] < 3 * len(data)
    finally:
        tracemalloc.stop()


NESTED = {
    "lists": [[[[]] * 20] * 30, 1, 2],
    "numbers": [[[7] * 20] * 30, 1, 2],
    "dicts": [[{}] * 600, 1, 2],
    "members": [{str(i): i for i in range(600)}, 1, 2],
}


@pytest.mark.parametrize("what", sorted(NESTED))
@pytest.mark.parametrize("name", ["json2", "msgpack2"])
def test_values_in_elements_count(name: str, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pack = msgpack.packb if name == "msgpack2" else lambda items: json.dumps(items).encode()
    data = pack([*NESTED[what], "|O", [3]])
    assert _decode(name, data).tolist() == NESTED[what]
    monkeypatch.setattr(object_codecs, "MORE_VALUES", 500)
    with pytest.raises(ValueError, match="for 3 elements; a chunk may have 500"):
        _decode(name, data)
    items = np.empty(3, object)
    items[:] = NESTED[what]
    codec = codec_from_v2({"id": name}, "$", first=True, objects=True)
    with pytest.raises(ValueError, match=rf"numcodecs\.{name}: .* for 3 elements; a chunk may have 500"):
        codec.encode(items, THREE)


@pytest.mark.parametrize("name", ["json2", "msgpack2"])
def test_texts_are_one_value(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_codecs, "MORE_VALUES", 50)
    monkeypatch.setattr(object_codecs, "_BLOCK_NBYTES", 64)
    items = np.empty(3, object)
    items[:] = ['[{,"' * 300, "\\" * 7 + '",' * 200, [["\\"], {'\\"[': "," * 300}]]
    data = numcodecs.get_codec({"id": name}).encode(items)
    assert _decode(name, data).tolist() == items.tolist()


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-32"])
def test_bytes_of_wide_characters_are_no_quotes(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of this character, one byte is that of a quote, between which commas would not count."""
    monkeypatch.setattr(object_codecs, "MORE_VALUES", 50)
    config = {"id": "json2", "encoding": encoding, "ensure_ascii": False}
    codec = codec_from_v2(config, "$", first=True, objects=True)
    items = np.empty(3, object)
    items[:] = ["\u2201", "," * 300, "\u2201"]
    data = numcodecs.get_codec(config).encode(items)
    assert codec.decode(data, THREE).tolist() == items.tolist()
    items[1] = [[]] * 300
    data = numcodecs.get_codec(config).encode(items)
    for call in (lambda: codec.decode(data, THREE), lambda: codec.encode(items, THREE)):
        with pytest.raises(ValueError, match="for 3 elements; a chunk may have 50"):
            call()


def test_false_numbers_of_items() -> None:
    """MessagePack would make each list before its items."""
    n = 1 << 17
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"numcodecs\.msgpack2: incomplete data"):
            _decode("msgpack2", _array(n) * 500 + b"\x90" * n)
        assert tracemalloc.get_traced_memory()[1] < 10 << 20
    finally:
        tracemalloc.stop()


def test_wide_elements() -> None:
    data = json.dumps(["a", "b", "c", "|S30000000", [3]]).encode()
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"numcodecs\.json2: decoded to elements of \|S30000000, expected object"):
            _decode("json2", data)
        assert tracemalloc.get_traced_memory()[1] < 10 << 20
    finally:
        tracemalloc.stop()
