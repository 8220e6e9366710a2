"""Codecs that virtual-tiff writes for TIFF files, against tifffile's files."""

from __future__ import annotations

import json
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.zarr_arrays import codec, same, v3

import gzarr
from gzarr.codecs.chain import decode_chain, encode_chain
from gzarr.codecs.codec import ArrayRepresentation
from gzarr.codecs.registry import codec_from_v3, codecs_from_v3

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("imagecodecs.numcodecs")
tifffile = pytest.importorskip("tifffile")

SHAPE, TILE = (75, 90), (32, 48)
ZLIB, LZW = codec("numcodecs.zlib"), codec("imagecodecs_lzw")
DELTA = codec("HorizontalDeltaCodec")


def image(dtype: str, *more: int) -> np.ndarray[Any, Any]:
    walk = np.cumsum(np.random.default_rng(4).normal(size=(*SHAPE, *more)) * 900, axis=1)
    return walk.astype(dtype)


def floats(dtype: str) -> Any:
    return codec("imagecodecs_floatpred", shape=list(TILE), dtype=dtype, axis=-1, dist=1)


def elements(endian: str = "little") -> Any:
    return codec("bytes", endian=endian)


#: Type, codecs, and how tifffile writes the same.
FILES = {
    "lzw": ("uint16", [elements(), LZW], {"compression": "lzw"}),
    "zstd": ("uint16", [elements(), codec("imagecodecs_zstd", level=9)], {"compression": "zstd"}),
    "packbits": ("uint8", [codec("bytes"), codec("imagecodecs_packbits", axis=None)], {"compression": "packbits"}),
    "lerc": ("float32", [elements(), codec("imagecodecs_lerc", level=None)], {"compression": "lerc"}),
    "predictor": ("uint16", [DELTA, elements(), LZW], {"compression": "lzw", "predictor": 2}),
    "predictor, signed": ("int8", [DELTA, codec("bytes"), ZLIB], {"compression": "zlib", "predictor": 2}),
    "predictor, big-endian": (
        "uint32", [DELTA, elements("big"), ZLIB], {"compression": "zlib", "predictor": 2, "byteorder": ">"},
    ),
    "predictor of floats": ("float32", [floats("<f4"), elements(), ZLIB], {"compression": "zlib", "predictor": 3}),
    "predictor of halves": ("float16", [floats("<f2"), elements(), ZLIB], {"compression": "zlib", "predictor": 3}),
    "predictor of floats, big-endian": (
        "float64", [floats("<f8"), elements("big"), ZLIB], {"compression": "zlib", "predictor": 3, "byteorder": ">"},
    ),
}  # fmt: skip
#: Codecs of images of three samples.
SAMPLES = {
    "plain": ("uint8", [], {}),
    "big-endian": ("uint16", [], {"byteorder": ">"}),
    "webp": ("uint8", [codec("imagecodecs_webp", level=None, lossless=None)], {"compression": "webp"}),
    "png": ("uint8", [codec("imagecodecs_png", level=None)], {"compression": "png"}),
}


def virtual(path: Path, document: Any) -> dict[str, bytes]:
    """Return a store of the tiles of a file, with a document."""
    store = {"zarr.json": json.dumps(document).encode()}
    data = path.read_bytes()
    with tifffile.TiffFile(path) as file:
        page = file.pages[0]
        across = -(-SHAPE[1] // TILE[1])
        for i, (begin, nbytes) in enumerate(zip(page.dataoffsets, page.databytecounts, strict=True)):
            key = (*([0] if page.samplesperpixel > 1 else []), i // across, i % across)
            store["/".join(["c", *map(str, key)])] = data[begin : begin + nbytes]
    return store


@pytest.mark.parametrize("name", FILES)
def test_files(name: str, tmp_path: Path) -> None:
    data_type, codecs, written = FILES[name]
    tifffile.imwrite(tmp_path / "a.tif", image(data_type), tile=TILE, **written)
    store: Any = virtual(tmp_path / "a.tif", v3(SHAPE, TILE, data_type, codecs))
    expected = tifffile.imread(tmp_path / "a.tif")
    array = gzarr.open_array(store, device="cpu")
    same(array[...], expected)
    same(array[40:60, 3:80], expected[40:60, 3:80])


def compressed(name: str) -> bool:
    return bool(SAMPLES[name][2].get("compression"))


@pytest.mark.parametrize(
    ("name", "predictor"),
    # Codecs of images have no predictor.
    [(name, predictor) for name in SAMPLES for predictor in (False, True) if not (predictor and compressed(name))],
)
def test_files_of_samples(name: str, predictor: bool, tmp_path: Path) -> None:
    data_type, codecs, written = SAMPLES[name]
    if predictor:
        codecs, written = [ZLIB], {**written, "compression": "zlib", "predictor": 2}
    tifffile.imwrite(tmp_path / "a.tif", image(data_type, 3), tile=TILE, photometric="rgb", **written)
    endian = "big" if "byteorder" in written else "little"
    chain = [*([DELTA] if predictor else []), codec("transpose", order=[0, 2, 1]), codec("ChunkyCodec", endian=endian)]
    store: Any = virtual(tmp_path / "a.tif", v3((3, *SHAPE), (3, *TILE), data_type, [*chain, *codecs]))
    array = gzarr.open_array(store, device="cpu")
    same(array[...], np.moveaxis(tifffile.imread(tmp_path / "a.tif"), -1, 0))


@pytest.mark.parametrize("name", ["lzw", "predictor", "predictor of floats, big-endian"])
def test_writing(name: str) -> None:
    data_type, codecs, _ = FILES[name]
    data = image(data_type)
    array = gzarr.create_array({}, data=data, chunks=TILE, codecs=codecs, device="cpu")
    same(array[...], data)


def test_chains() -> None:
    chunk = image("float32", 3)[:32, :48]
    like = ArrayRepresentation(chunk.shape, chunk.dtype)
    delta = codec("imagecodecs_delta", shape=list(chunk.shape), dtype="<f4", axis=-2, dist=1)
    for codecs in ([codec("ChunkyCodec", endian="big")], [DELTA, codec("ChunkyCodec")], [delta, elements("big")]):
        made = codecs_from_v3(codecs, "$")
        same(decode_chain(made, encode_chain(made, chunk, like), like), chunk)
        assert codecs_from_v3([one.to_json() for one in made], "$") == made
    # Interleaved samples: TIFF predicts each from the same one of the pixel before.
    with pytest.raises(gzarr.MetadataError, match="disagree on where samples are"):
        encode_chain(codecs_from_v3([delta, codec("ChunkyCodec")], "$"), chunk, like)
    with pytest.raises(gzarr.MetadataError, match=r"configured for \(32, 48\)"):
        codec_from_v3(floats("<f4"), "$").encoded(like)
    with pytest.raises(gzarr.MetadataError, match="rows of numbers"):
        codec_from_v3(DELTA, "$").encoded(ArrayRepresentation((4,), np.dtype("c16")))
    wrong = codec("imagecodecs_floatpred", shape=[32, 48, 3], dtype="<f4", dist=3)
    with pytest.raises(ValueError, match="imagecodecs_floatpred"):
        codec_from_v3(wrong, "$").decode(np.zeros(chunk.shape, "V4"), like)


@pytest.mark.parametrize("given", [LZW, floats("<f4")], ids=["lzw", "floatpred"])
def test_codecs_of_another_process(given: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """numcodecs knows those of imagecodecs only in processes that have registered them."""
    from numcodecs.registry import codec_registry

    chunk = image("float32")[:32, :48]
    like = ArrayRepresentation(chunk.shape, chunk.dtype)
    codecs = codecs_from_v3([given, elements()] if given is not LZW else [elements(), given], "$")
    encoded = encode_chain(codecs, chunk, like)
    sent = pickle.dumps(codecs)
    monkeypatch.delitem(codec_registry, given["name"])
    same(decode_chain(pickle.loads(sent), encoded, like), chunk)
