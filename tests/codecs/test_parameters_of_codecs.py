"""Parameters of codecs: what a document may omit, and what is no JSON."""

from __future__ import annotations

import json
from typing import Any

import numcodecs
import numcodecs.registry
import numpy as np
import pytest
import zarr

import gzarr
from gzarr.documents.departures import collect

DATA = np.arange(1000, dtype="<i4") * 3
PREFIXES = {
    "list": {"id": "jenkins_lookup3", "initval": 1, "prefix": [97, 98]},
    "bytes": {"id": "jenkins_lookup3", "initval": 1, "prefix": b"ab"},
    "numcodecs": numcodecs.JenkinsLookup3(1, b"ab"),
}


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("given", PREFIXES)
def test_prefix_of_a_checksum(given: str, zarr_format: Any) -> None:
    store: dict[str, bytes] = {}
    codecs = ["bytes", PREFIXES[given]]
    array = gzarr.create_array(store, data=DATA, chunks=1000, codecs=codecs, zarr_format=zarr_format, device="cpu")
    document = json.loads(store[".zarray" if zarr_format == 2 else "zarr.json"])
    codec = document["filters"][0] if zarr_format == 2 else document["codecs"][1]["configuration"]
    assert (codec["initval"], codec["prefix"]) == (1, [97, 98])
    assert store["0" if zarr_format == 2 else "c/0"] == numcodecs.JenkinsLookup3(1, b"ab").encode(DATA)
    np.testing.assert_array_equal(gzarr.open_array(store, device="cpu")[...], DATA)
    for other in (2, 3):
        copied: dict[str, bytes] = {}
        gzarr.copy(array, copied, zarr_format=other, device="cpu")
        np.testing.assert_array_equal(gzarr.open_array(copied, device="cpu")[...], DATA)


def test_parameters_that_json_cannot_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    class Keyed(numcodecs.Zlib):  # type: ignore[misc]
        codec_id = "keyed"

        def get_config(self) -> dict[str, Any]:
            return {"id": self.codec_id, "key": b"secret"}

    monkeypatch.setitem(numcodecs.registry.codec_registry, "keyed", Keyed)
    with pytest.raises(gzarr.ArgumentError, match="'keyed' needs what JSON can hold for 'key'"):
        gzarr.create_array({}, data=DATA, zarr_format=2, compressors=Keyed(), device="cpu")


OMITTED: dict[str, tuple[dict[str, Any], str, str]] = {
    "zstd": ({}, "zstd", "zstd without a level"),
    "zstd-checksum": ({"checksum": True}, "zstd", "zstd without a level"),
    "blosc": ({}, "blosc(zstd, shuffle 4)", "blosc without cname, clevel, shuffle"),
    "blosc-typesize": ({"typesize": 2, "clevel": 1}, "blosc(zstd, shuffle 2)", "blosc without cname, shuffle"),
    "blosc-bits": ({"cname": "lz4", "shuffle": "bitshuffle"}, "blosc(lz4, bitshuffle 4)", "blosc without clevel"),
}


@pytest.mark.parametrize("case", OMITTED)
def test_omitted_members(case: str) -> None:
    """As zarr-python takes them, with its defaults; both read what both write."""
    configuration, label, departure = OMITTED[case]
    codec = {"name": case.partition("-")[0], "configuration": configuration}
    store: dict[str, Any] = {}
    gzarr.create_array(store, shape=1000, chunks=500, dtype="i4", codecs=None, device="cpu")
    document = json.loads(store["zarr.json"])
    document["codecs"].append(codec)
    store["zarr.json"] = json.dumps(document).encode()
    memory = zarr.storage.MemoryStore({k: zarr.core.buffer.cpu.Buffer.from_bytes(bytes(v)) for k, v in store.items()})
    theirs = zarr.open_array(memory, mode="r+")
    theirs[:500] = DATA[:500]
    store["c/0"] = memory._store_dict["c/0"].to_bytes()
    with collect() as found:
        array = gzarr.open_array(store, mode="r+", device="cpu")
    assert label in array.decode_path
    assert any(departure in text for text in found)
    array[500:] = DATA[500:]
    np.testing.assert_array_equal(array[...], DATA)
    memory._store_dict["c/1"] = zarr.core.buffer.cpu.Buffer.from_bytes(bytes(store["c/1"]))
    np.testing.assert_array_equal(theirs[...], DATA)
    # Of the codecs that zarr-python has given the size of the elements.
    used = theirs.async_array.codec_pipeline.bytes_bytes_codecs[0]
    assert array.metadata.codecs[-1].to_json() == used.to_dict()
