"""Messages of errors show text of a store so that no terminal obeys it."""

from __future__ import annotations

import json
import pickle
import traceback
from typing import TYPE_CHECKING, Any

import pytest

import gzarr

if TYPE_CHECKING:
    from collections.abc import Callable

# Sets a terminal's title, clears it, writes from right to left, and cannot be printed.
TEXT = "\x1b]0;owned\x07\x1b[2J\x9b\u202e\ud800"
ESCAPED = r"\x1b]0;owned\x07\x1b[2J\x9b\u202e\ud800"
ARRAY = {
    "zarr_format": 3,
    "node_type": "array",
    "shape": [4],
    "data_type": "int32",
    "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2]}},
    "chunk_key_encoding": {"name": "default"},
    "fill_value": 0,
    "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
}
OLD = {"zarr_format": 2, "shape": [8], "chunks": [8], "dtype": "|u1", "filters": None, "order": "C", "fill_value": 0}
BYTES = {"name": "bytes", "configuration": {"endian": "little", TEXT: 1}}
PLATE = {"version": "0.4", "rows": [{"name": TEXT}], "columns": [{"name": "1"}]}


def of(key: str, document: Any, **others: bytes) -> dict[str, bytes]:
    return {key: json.dumps(document).encode(), **others}


@pytest.mark.filterwarnings("ignore::gzarr.ome.MetadataWarning")
@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda: gzarr.open(of("zarr.json", {**ARRAY, "codecs": [BYTES]})), id="member of a codec"),
        pytest.param(lambda: gzarr.open(of("zarr.json", {**ARRAY, TEXT: 1})), id="member of a document"),
        pytest.param(lambda: gzarr.open(of(".zarray", {**OLD, "compressor": {"id": TEXT}})), id="codec of version 2"),
        pytest.param(
            lambda: gzarr.ome.open(
                of(
                    ".zattrs",
                    {"plate": {**PLATE, "wells": [{"path": "A/1", "rowIndex": 0, "columnIndex": 0}]}},
                    **{".zgroup": b'{"zarr_format": 2}'},
                )
            ).well("Q", "1"),
            id="row of a plate",
        ),
    ],
)
def test_text_of_documents(call: Callable[[], Any]) -> None:
    with pytest.raises(gzarr.GzarrError) as raised:
        call()
    shown = "".join(traceback.format_exception_only(raised.value))
    assert all(character.isprintable() for character in shown.replace("\n", "")), ascii(shown)
    assert "owned" in shown
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)


@pytest.mark.parametrize(
    "error",
    [
        gzarr.GzarrError(TEXT),
        gzarr.MetadataError(TEXT, json_path=TEXT, key="zarr.json"),
        gzarr.StoreError(TEXT),
        gzarr.ChunkDecodeError(TEXT, node="/a", chunk=(0,), key="a/c/0"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_all_errors(error: gzarr.GzarrError) -> None:
    assert ESCAPED in str(error)
    assert str(error).isprintable()


def test_other_text_stays() -> None:
    text = "première: 漢字, عربي, 👩\u200d🔬"
    assert str(gzarr.ArgumentError(text)) == text
    # As arrays and tables are shown.
    assert str(gzarr.ArgumentError("[[1 2]\n [3 4]]")) == "[[1 2] [3 4]]"
