"""Arrays that other projects encoded (``tests/data``, see the README there), against their stated content."""

from __future__ import annotations

import base64
import io
import json
import tarfile
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import zarr
from support.devices import ENGINES
from support.zarr_arrays import same

import gzarr

if TYPE_CHECKING:
    from support.devices import TestedDevice

DATA = Path(__file__).parents[1] / "data"
GROUPS = ("numcodecs", "zarrpython", "zarrs")
#: Chains of numcodecs' that the native loop does not run.
IN_THREADS = frozenset(("adler32", "bz2", "categorize", "crc32", "json2", "lzma", "msgpack2"))
IN_THREADS |= {"vlen-array", "vlen-bytes", "vlen-utf8"}
#: Filters of numcodecs that it runs, at least with the types of the fixtures.
COMPILED = ("shuffle", "astype", "bitround", "delta", "fixedscaleoffset", "fletcher32", "packbits", "quantize")


@cache
def unpack(group: str) -> tuple[dict[str, bytes], dict[str, bytes], list[dict[str, Any]]]:
    """Return stored values by key, expected files by name, and the manifest."""
    files: dict[str, bytes] = {}
    with tarfile.open(DATA / f"{group}.tar.xz") as archive:
        for member in archive:
            file = archive.extractfile(member)
            assert file is not None
            files[member.name] = file.read()
    stores = {name.removeprefix("stores/"): value for name, value in files.items() if name.startswith("stores/")}
    expected = {name.removeprefix("expected/"): value for name, value in files.items() if name.startswith("expected/")}
    return stores, expected, [json.loads(line) for line in files["manifest.jsonl"].splitlines()]


def from_json(value: Any) -> Any:
    if isinstance(value, dict) and set(value) == {"b64"}:
        return base64.b64decode(value["b64"])
    if isinstance(value, dict) and set(value) == {"arr", "dtype"}:
        return np.array(value["arr"], value["dtype"])
    return value


def expected_array(name: str, files: dict[str, bytes], shape: list[int]) -> np.ndarray[Any, Any]:
    if name.endswith(".npy"):
        array: np.ndarray[Any, Any] = np.load(io.BytesIO(files[name]), allow_pickle=False)
        return array
    items = json.loads(files[name])["items"]
    array = np.empty(len(items), object)
    for i, item in enumerate(items):
        array[i] = from_json(item)
    return array.reshape(shape)


def stores_of(group: str) -> list[str]:
    return sorted({entry["store"] for entry in unpack(group)[2]})


@pytest.mark.parametrize(("device", "threads"), ENGINES, indirect=["device"])
@pytest.mark.parametrize(("group", "store"), [(group, store) for group in GROUPS for store in stores_of(group)])
@pytest.mark.filterwarnings("ignore:.*:zarr.errors.ZarrUserWarning", "ignore::FutureWarning")
def test_fixture(
    group: str, store: str, device: TestedDevice, threads: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if threads:
        monkeypatch.setattr("gzarr.engines.kernels.available", frozenset)
    values, files, manifest = unpack(group)
    inside = {key.removeprefix(f"{store}/"): value for key, value in values.items() if key.startswith(f"{store}/")}
    for key, value in inside.items():
        path = tmp_path / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(value)
    entries = [entry for entry in manifest if entry["store"] == store]
    for entry in entries:
        node = entry["node"]
        expected = expected_array(entry["expected"], files, entry["shape"])
        for array in (device.open(tmp_path, path=node), device.open(inside, path=node)):
            native = gzarr.open_array(array.store, path=node, device="cpu").decode_path.startswith("cpu-native")
            host = threads or store.removesuffix(".zarr") in IN_THREADS or _has_host_codec(array)
            assert native != host, (node, array.decode_path)
            if host and "blosc(snappy" in array.decode_path and not _stored_raw(inside, node):
                # Snappy is in the native loop only: numcodecs' library, which host threads use, is built without it.
                with pytest.raises(gzarr.ChunkDecodeError, match="not built into"):
                    array[...]
                continue
            result = device.read(array)
            if entry["compare"] == "exact":
                same(result, expected, node)
            else:
                reference = zarr.open_array(str(tmp_path), path=node, mode="r")[...]
                same(result, reference, node)
                close(result, expected, array, node)


def _stored_raw(values: dict[str, bytes], node: str) -> bool:
    """Return whether the only chunk of a node is a Blosc container with uncompressed bytes."""
    (chunk,) = (value for key, value in values.items() if key.startswith(f"{node}/") and "/." not in key)
    return bool(chunk[2] & 2)


def _has_host_codec(array: gzarr.Array) -> bool:
    # NumPy's sums of booleans are others.
    compiled = tuple(f"numcodecs.{name}" for name in COMPILED if (name, array.dtype.kind) != ("delta", "b"))
    labels = [codec.label for codec in array.codecs if not codec.label.startswith(compiled)]
    return any(label in ("bz2", "lzma") or label.startswith("numcodecs.") for label in labels)


def close(result: Any, expected: Any, array: gzarr.Array, node: str) -> None:
    """Compare the result of a lossy encoding, by its stated precision."""
    assert (result.shape, result.dtype) == (expected.shape, expected.dtype.newbyteorder("=")), node
    (lossy,) = array.metadata.document[".zarray"]["filters"]
    if lossy["id"] == "fixedscaleoffset":
        limit, relative = 0.5 / lossy["scale"], 1e-12
    elif lossy["id"] == "quantize":
        limit, relative = 10.0 ** -lossy["digits"], np.finfo(lossy["astype"]).eps
    elif np.dtype(lossy["encode_dtype"]).kind == "f":
        limit, relative = 0.0, np.finfo(lossy["encode_dtype"]).eps
    else:
        limit, relative = 1.0, 0.0
    np.testing.assert_allclose(result, expected, rtol=relative, atol=limit * (1 + 1e-9), err_msg=node)


def test_every_codec_of_numcodecs_is_here() -> None:
    """The archive is complete: no store and no file has been removed unnoticed."""
    counts = {store: len(list(entries)) for store, entries in groupby(unpack("numcodecs")[2], lambda e: e["store"])}
    assert sum(counts.values()) == 451
    assert len(counts) == 22
    assert len(stores_of("zarrs")) == 24
    assert len(unpack("zarrpython")[2]) == 25
