"""Packages with plug-ins: the example in ``tests/plugin`` as an installer leaves it, and broken packages."""

from __future__ import annotations

import base64
import importlib
import json
import signal
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.zarr_arrays import LITTLE, codec, v2, v3

import gzarr
from gzarr import plugins
from gzarr.codecs.registry import codec_from_v2, codec_from_v3
from gzarr.stores.resolve import as_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

EXAMPLE = Path(__file__).parent / "plugin"
DATA = np.arange(24, dtype="<u2").reshape(4, 6)


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Path]]:
    """Write a package's metadata and modules to a folder on the import path, like an installer."""
    before = set(sys.modules)

    def into(name: str, version: str, entry_points: dict[str, dict[str, str]], module: str, text: str) -> Path:
        folder = tmp_path / f"site-{name}"
        info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        lines = [f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in e.items()) for group, e in entry_points.items()]
        (info / "entry_points.txt").write_text("\n".join(lines))
        (folder / f"{module}.py").write_text(text)
        monkeypatch.syspath_prepend(str(folder))
        importlib.invalidate_caches()
        return folder

    monkeypatch.setattr(plugins, "_LOADED", {})
    yield into
    for added in set(sys.modules) - before:
        if added.startswith(("gzarr_example", "broken_plugin")):
            del sys.modules[added]


@pytest.fixture
def example(install: Callable[..., Path]) -> Path:
    """Install the example package."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    text = (EXAMPLE / "gzarr_example" / "__init__.py").read_text()
    return install(project["name"], project["version"], project["entry-points"], "gzarr_example", text)


def open_v3(codecs: list[Any], chunk: bytes) -> Any:
    document = v3((4, 6), (4, 6), "uint16", codecs)
    return gzarr.open_array({"zarr.json": json.dumps(document).encode(), "c/0/0": chunk}, device="cpu")


def test_a_codec_of_another_package(example: Path) -> None:
    stored = bytes(byte ^ 90 for byte in DATA.tobytes())
    array = open_v3([LITTLE, codec("example.xor", key=90)], stored)
    assert np.array_equal(array[...], DATA)
    assert "example.xor" in array.decode_path
    document = v2((4, 6), (4, 6), "<u2", compressor={"id": "example.xor", "key": 90})
    array = gzarr.open_array({".zarray": json.dumps(document).encode(), "0.0": stored}, device="cpu")
    assert np.array_equal(array[...], DATA)
    ours = codec_from_v3(codec("example.xor", key=7), "$")
    assert codec_from_v3(ours.to_json(), "$") == ours


def test_it_is_loaded_when_a_document_names_it(example: Path) -> None:
    assert np.array_equal(open_v3([LITTLE], DATA.tobytes())[...], DATA)
    codec_from_v3({"name": "numcodecs.crc32"}, "$")
    codec_from_v2({"id": "zlib"}, "$")
    assert "gzarr_example" not in sys.modules
    codec_from_v3(codec("example.xor", key=1), "$")
    assert "gzarr_example" in sys.modules


def test_its_configuration_is_checked_as_ours_is(example: Path) -> None:
    with pytest.raises(gzarr.MetadataError, match=r"configuration\.key.*from 0 to 255"):
        codec_from_v3(codec("example.xor", key=256), "$.codecs[1]")
    with pytest.raises(gzarr.MetadataError, match="does not know 'more'"):
        codec_from_v3(codec("example.xor", key=2, more=1), "$.codecs[1]")


def test_without_the_package() -> None:
    with pytest.raises(gzarr.UnsupportedError, match=r"'example\.xor' is not known"):
        codec_from_v3(codec("example.xor", key=1), "$")
    with pytest.raises(gzarr.UnsupportedError, match=r"'example\.xor' is not known"):
        codec_from_v2({"id": "example.xor", "key": 1}, "$")
    assert plugins.load("gzarr.codecs", "example.xor") is None


HEAD = "from gzarr.codecs.codec import Codec\n"
#: An error that cannot say what it is.
MUTE = "class Mute(Exception):\n def __str__(self): raise RuntimeError('no text')\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("raise OSError('no licence file')", "cannot be loaded: OSError: no licence file"),
        ("import a_module_that_is_not_there", "cannot be loaded: ModuleNotFoundError"),
        ("", "cannot be loaded: AttributeError"),
        ("import sys\nsys.exit(3)", "cannot be loaded: SystemExit: 3; repair"),
        ("import sys\nsys.exit()", "cannot be loaded: SystemExit; repair"),
        (f"{MUTE}raise Mute", "cannot be loaded: Mute; repair"),
        (f"{MUTE}class Broken:\n def from_v3(c): raise Mute", "does not accept its configuration: Mute"),
        ("class Broken:\n def from_v3(c): raise SystemExit(3)", "does not accept its configuration: SystemExit: 3"),
        ("Broken = object()", "is not for Zarr v3"),
        ("class Broken:\n def from_v3(c): raise ZeroDivisionError('zero')", "ZeroDivisionError: zero"),
        ("class Broken:\n def from_v3(c): return 3", "returned int"),
        (f"{HEAD}class Broken(Codec):\n @classmethod\n def from_v3(cls, c): return cls()", "TypeError"),
    ],
)
def test_a_broken_package_is_named(install: Callable[..., Path], text: str, reason: str) -> None:
    entry = {"gzarr.codecs": {"broken": "broken_plugin:Broken"}}
    install("some-broken-codecs", "0.3", entry, "broken_plugin", text)
    for _ in range(2):
        with pytest.raises(gzarr.MetadataError, match=r"some-broken-codecs 0\.3") as caught:
            codec_from_v3("broken", "$.codecs[0]")
        assert reason in str(caught.value)
        assert caught.value.json_path.startswith("$.codecs[0]")
    # It stands in nobody else's way.
    assert codec_from_v3("crc32c", "$").label == "crc32c"


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="needs signals of POSIX")
@pytest.mark.parametrize("indent", ["", "class Broken:\n def from_v3(c): "], ids=["load", "call"])
def test_a_timeout_of_the_program_is_no_fault_of_a_package(indent: str, install: Callable[..., Path]) -> None:
    """Handlers of signals raise such errors at any line, also in the code of a package."""
    entry = {"gzarr.codecs": {"broken": "broken_plugin:Broken"}}
    text = f"import signal\n{indent}signal.raise_signal(signal.SIGUSR1)"
    install("some-codecs", "0.3", entry, "broken_plugin", text)

    def handler(*_: object) -> None:
        raise TimeoutError("the program's")

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with pytest.raises(TimeoutError, match="the program's"):
            codec_from_v3("broken", "$.codecs[0]")
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_two_packages_with_one_name(example: Path, install: Callable[..., Path]) -> None:
    entry = {"gzarr.codecs": {"example.xor": "broken_plugin:Broken"}}
    install("other-codecs", "2.0", entry, "broken_plugin", "Broken = 1")
    with pytest.raises(gzarr.UnsupportedError, match=r"gzarr-example 1\.0 and other-codecs 2\.0"):
        codec_from_v3(codec("example.xor", key=1), "$")


def test_one_package_on_two_folders_is_one(example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    twin = tmp_path / "twin"
    info = next(example.glob("*.dist-info"))
    (twin / info.name).mkdir(parents=True)
    for file in info.iterdir():
        (twin / info.name / file.name).write_bytes(file.read_bytes())
    monkeypatch.syspath_prepend(str(twin))
    assert codec_from_v3(codec("example.xor", key=1), "$").label == "example.xor"


def test_a_package_replaces_nothing_of_ours(install: Callable[..., Path]) -> None:
    names = ("zstd", "numcodecs.delta", "vlen-utf8", "delta", "gzip")
    entry = {"gzarr.codecs": dict.fromkeys(names, "broken_plugin:Broken")}
    install("greedy-codecs", "1.0", entry, "broken_plugin", "raise RuntimeError('must not be imported')")
    assert codec_from_v3(codec("zstd", level=1), "$").label == "zstd"
    assert codec_from_v3(codec("numcodecs.delta", dtype="<i4"), "$").label == "numcodecs.delta"
    assert codec_from_v3("vlen-utf8", "$").label == "vlen-utf8"
    assert codec_from_v2({"id": "delta", "dtype": "<i4"}, "$").label == "numcodecs.delta"


PIXEL = {"name": "example.pixel", "configuration": {"channels": "rgb"}}


def open_with(**changes: Any) -> Any:
    document = v3((4, 6), (4, 6), "uint16", [LITTLE]) | changes
    return gzarr.open_array({"zarr.json": json.dumps(document).encode()}, device="cpu")


def test_a_data_type_of_another_package(example: Path) -> None:
    fill = base64.b64encode(b"\1\2\3").decode()
    array = open_with(data_type=PIXEL, fill_value=fill)
    assert array.dtype == np.dtype([("r", "u1"), ("g", "u1"), ("b", "u1")])
    assert array[3, 5].item() == (1, 2, 3)
    assert np.array_equal(array["b"], np.full((4, 6), 3))
    with pytest.raises(gzarr.MetadataError, match=r"data_type\.configuration.*lacks 'channels'"):
        open_with(data_type="example.pixel", fill_value=fill)
    with pytest.raises(gzarr.UnsupportedError, match="not known"):
        open_with(data_type="example.voxel", fill_value=fill)


def test_a_chunk_grid_of_another_package(example: Path) -> None:
    grid = {"name": "example.doubling", "configuration": {"first": [1, 6]}}
    document = v3((4, 6), (1, 1), "uint16", [LITTLE]) | {"chunk_grid": grid}
    chunks = {"c/0/0": DATA[:1], "c/1/0": DATA[1:3], "c/2/0": np.concatenate([DATA[3:], np.zeros((3, 6), "<u2")])}
    stored = {"zarr.json": json.dumps(document).encode()} | {key: chunk.tobytes() for key, chunk in chunks.items()}
    array = gzarr.open_array(stored, device="cpu")
    assert array.chunk_lengths == ((1, 2, 1), (6,))
    assert np.array_equal(array[...], DATA)
    with pytest.raises(gzarr.MetadataError, match="2 lengths"):
        open_with(chunk_grid={"name": "example.doubling", "configuration": {"first": [1]}})


def doubling(shape: tuple[int, ...], first: list[int]) -> Any:
    grid = {"name": "example.doubling", "configuration": {"first": first}}
    document = v3(shape, (1,) * len(shape), "uint16", [LITTLE]) | {"chunk_grid": grid}
    store = {"zarr.json": json.dumps(document).encode()}
    return gzarr.open_array(store, device="cpu", mode="r+"), store


def test_a_resized_chunk_grid_of_another_package(example: Path) -> None:
    array, store = doubling((4, 6), [1, 6])
    array[...] = DATA
    grid = json.loads(store["zarr.json"])["chunk_grid"]
    array.attrs["units"] = "K"
    array.append(DATA)
    assert array.chunk_lengths == ((1, 2, 4, 1), (6,))
    reopened = gzarr.open_array(store, device="cpu")
    assert np.array_equal(reopened[...], np.concatenate([DATA, DATA]))
    assert reopened.chunk_lengths == array.chunk_lengths
    assert dict(reopened.attrs) == {"units": "K"}
    assert json.loads(store["zarr.json"])["chunk_grid"] == grid
    array.resize((2, 6))
    assert np.array_equal(gzarr.open_array(store, device="cpu")[...], DATA[:2])
    assert sorted(store) == ["c/0/0", "c/1/0", "zarr.json"]
    with pytest.raises(gzarr.ArgumentError, match="erase=False is not possible"):
        array.resize((1, 6), erase=False)
    array.resize((3, 6), erase=False)
    assert array.shape == (3, 6)


def test_a_chunk_grid_of_another_package_and_no_elements(install: Callable[..., Path]) -> None:
    """Without elements there are no chunks, so chunks may change along all dimensions."""
    text = "class Grid:\n def from_v3(configuration, shape): return [max(n // 2, 1) for n in shape]"
    install("some-grid", "1", {"gzarr.chunk_grids": {"some": "broken_plugin:Grid"}}, "broken_plugin", text)
    document = v3((0, 10), (1, 5), "uint16", [LITTLE]) | {"chunk_grid": "some"}
    store = {"zarr.json": json.dumps(document).encode()}
    first, second = (gzarr.open_array(store, device="cpu", mode="r+") for _ in range(2))
    first.resize((4, 20))
    second.resize((5, 20))
    assert gzarr.open_array(store, device="cpu").chunks == second.chunks == (2, 10)


@pytest.mark.parametrize("grid", ["some", {"name": "some"}, {"name": "some", "configuration": {}}])
def test_a_chunk_grid_of_another_package_that_cannot_be_resized(install: Callable[..., Path], grid: Any) -> None:
    text = "class Grid:\n def from_v3(configuration, shape):\n  assert shape[0] < 9, 'too long'\n"
    text += "  return [[1, shape[0] - 1], shape[1]]"
    install("some-grid", "1", {"gzarr.chunk_grids": {"some": "broken_plugin:Grid"}}, "broken_plugin", text)
    document = v3((4, 6), (4, 6), "uint16", [LITTLE]) | {"chunk_grid": grid}
    store = {"zarr.json": json.dumps(document).encode()}
    array = gzarr.open_array(store, device="cpu", mode="r+")
    array[...] = DATA
    array.attrs["units"] = "K"
    before = dict(store)
    for change, reason in (
        (lambda: array.resize((5, 6)), "other lengths along dimension 0"),
        (lambda: array.resize((4, 7)), "other lengths along dimension 1"),
        (lambda: array.append(DATA), "other lengths along dimension 0"),
        (lambda: array.resize((9, 6)), "too long"),
    ):
        with pytest.raises(gzarr.ArgumentError, match=rf"'some' of the package some-grid 1 .*{reason}.*gzarr\.copy"):
            change()
    assert store == before
    gzarr.copy(store, copied := {}, chunks=(2, 6), device="cpu")
    changeable = gzarr.open_array(copied, device="cpu", mode="r+")
    changeable.append(DATA)
    assert np.array_equal(changeable[...], np.concatenate([DATA, DATA]))


@pytest.mark.parametrize(
    ("lengths", "reason"),
    [
        ("7", "expected an array"),
        ("[4]", "1 dimensions"),
        ("[4, [3, 2]]", "do not cover"),
        ("[4, 0]", "integer from 1"),
    ],
)
def test_a_broken_chunk_grid(install: Callable[..., Path], lengths: str, reason: str) -> None:
    text = f"class Grid:\n def from_v3(configuration, shape): return {lengths}"
    install("some-grid", "1", {"gzarr.chunk_grids": {"some": "broken_plugin:Grid"}}, "broken_plugin", text)
    with pytest.raises(gzarr.MetadataError, match=reason):
        open_with(chunk_grid="some")


@pytest.mark.parametrize("dtype", ["'<u2'", "np.dtype(object)", "np.dtype('V0')", "None"])
def test_a_broken_data_type(install: Callable[..., Path], dtype: str) -> None:
    text = f"import numpy as np\nclass Type:\n def from_v3(configuration): return {dtype}"
    install("some-type", "1", {"gzarr.data_types": {"some": "broken_plugin:Type"}}, "broken_plugin", text)
    with pytest.raises(gzarr.UnsupportedError, match="some-type 1 is faulty"):
        open_with(data_type="some")


def test_a_store_of_another_package(example: Path, tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path}/data.sqlite"
    with pytest.raises(gzarr.StoreError, match="there is no database"):
        gzarr.open(url, device="cpu")
    store, _ = as_store(url, "a")
    for key, value in {"zarr.json": v3((4, 6), (2, 6), "uint16", [LITTLE])}.items():
        store.set(key, json.dumps(value).encode())  # type: ignore[attr-defined]
    array = gzarr.Array(gzarr.open_array(url, device="cpu").metadata, store, "", device="cpu", mode="r+")
    array[...] = DATA
    array[1, 2:] = 9
    changed = DATA.copy()
    changed[1, 2:] = 9
    reopened = gzarr.open_array(url, device="cpu")
    assert np.array_equal(reopened[...], changed)
    assert reopened.nchunks_initialized == 2
    with pytest.raises(gzarr.ArgumentError, match=r"entry point of 'gzarr\.stores'"):
        gzarr.open("redis://somewhere/data")


def test_a_broken_store(install: Callable[..., Path]) -> None:
    entry = {"gzarr.stores": {"first": "broken_plugin:First", "second": "broken_plugin:Second"}}
    text = "class First:\n def from_url(url, read_only): return 3\nclass Second: pass"
    install("some-stores", "1", entry, "broken_plugin", text)
    with pytest.raises(gzarr.UnsupportedError, match="some-stores 1 is faulty"):
        gzarr.open("first://here")
    with pytest.raises(gzarr.StoreError, match="some-stores 1 cannot open 'second://here'"):
        gzarr.open("second://here")


@pytest.mark.parametrize(("error", "reason"), [("SystemExit(3)", "SystemExit: 3"), ("Mute", "Mute")])
def test_a_store_that_cannot_be_opened(error: str, reason: str, install: Callable[..., Path]) -> None:
    text = f"{MUTE}class Broken:\n def from_url(url, read_only): raise {error}"
    install("some-stores", "1", {"gzarr.stores": {"broken": "broken_plugin:Broken"}}, "broken_plugin", text)
    with pytest.raises(gzarr.StoreError, match=f"some-stores 1 cannot open 'broken://here': {reason}$"):
        gzarr.open("broken://here")


@pytest.mark.parametrize("dtype", ["f4", "<i8", "float32", "U3", "M8[s]", "bfloat16", "u2"])
def test_known_types_need_no_look_through_all_packages(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """That look takes milliseconds, as long as hundreds of small reads."""

    def looked(**options: str) -> Any:
        raise AssertionError(f"looked for {options}")

    monkeypatch.setattr(plugins, "entry_points", looked)
    for zarr_format in (2, 3):
        if (zarr_format, dtype) not in ((3, "U3"), (2, "bfloat16")):
            new = gzarr.create_array({}, shape=(4, 6), dtype=dtype, zarr_format=zarr_format, device="cpu")
            assert gzarr.open_array(new.store, device="cpu").dtype == new.dtype
    if dtype not in ("U3", "M8[s]"):
        array = open_v3([LITTLE], DATA.tobytes())
        assert array.read(dtype=dtype).astype("u2").tolist() == DATA.tolist()
        moved = gzarr.read_affine(array, np.eye(2), dtype=dtype, interpolation="nearest")
        assert moved.dtype == array.read(dtype=dtype).dtype
