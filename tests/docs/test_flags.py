"""No public flag is taken by its truth, for which the text ``"false"`` would be true; nothing is done before that."""

from __future__ import annotations

import functools
import importlib
import inspect
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gzarr
from gzarr import flags
from gzarr.hierarchy import keywords
from gzarr.sparse import creating

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PAGES = Path(__file__).parents[2] / "docs" / "reference"

#: Of xarray itself, which takes more than flags there; of others where a text means something.
NOT_FLAGS = {
    "gzarr.to_dask": {"name"},
    "gzarr.integrations.xarray.GzarrBackendEntrypoint.open_dataset": {
        *("mask_and_scale", "decode_times", "concat_characters", "decode_coords")
    },
    "gzarr.integrations.xarray.GzarrBackendEntrypoint.open_groups_as_dict": {
        *("mask_and_scale", "decode_times", "concat_characters", "decode_coords")
    },
    "gzarr.open_consolidated": {"use_consolidated"},
}
#: What gzarr itself makes and calls; members of documents, which are checked as such.
INTERNAL = {
    "gzarr.LocalStore.stage",
    "gzarr.ZipStore.extents",
    "gzarr.codecs.codec.ArrayRepresentation",
    "gzarr.codecs.n5_default.N5DefaultCodec.from_v3",
    "gzarr.codecs.sharding.ShardingIndexed.from_v3",
    "gzarr.loader.Geometry",
    "gzarr.loader.Samples",
    "gzarr.loader.Samples.cells",
    "gzarr.ome.metadata.model.Axis",
    "gzarr.ome.metadata.model.Channel",
    "gzarr.tools.verify.Verification",
}


def public() -> Iterator[tuple[str, Any]]:
    """Yield the functions and classes of the reference, and the methods of these, with their names."""
    seen: set[int] = set()
    for path in sorted(
        name for page in PAGES.glob("*.md") for name in re.findall(r"(?m)^::: ([\w.]+)$", page.read_text())
    ):
        module, _, name = path.rpartition(".")
        try:
            thing = getattr(importlib.import_module(module), name)
        except ImportError:
            continue
        if inspect.isclass(thing):
            if not issubclass(thing, BaseException):
                yield path, thing
            for attribute in dir(thing):
                method = inspect.getattr_static(thing, attribute)
                method = getattr(method, "__func__", method)
                is_ours = inspect.isfunction(method) and method.__module__.startswith("gzarr")
                if is_ours and not attribute.startswith("_") and id(method) not in seen:
                    seen.add(id(method))
                    yield f"{path}.{attribute}", method
        elif callable(thing):
            yield path, thing


def flags_of(function: Any) -> set[str]:
    """Return the parameters that are flags, those that are passed on included."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:
        return set()
    found = set()
    for parameter in parameters:
        annotation = str(parameter.annotation)
        passed = re.fullmatch(r"Unpack\[(\w+)\]", annotation)
        if passed:
            arguments = getattr(keywords, passed[1], None) or getattr(creating, passed[1])
            kinds = {name: str(kind) for name, kind in arguments.__annotations__.items()}
            found |= {name for name, kind in kinds.items() if re.search(r"\bbool\b", kind)}
        elif isinstance(parameter.default, bool) or re.search(r"\bbool\b", annotation):
            found.add(parameter.name)
    return found


@functools.cache
def all_flags() -> dict[str, set[str]]:
    """Return the flags of what is public, by name."""
    found = {name: flags_of(thing) - NOT_FLAGS.get(name, set()) for name, thing in public() if name not in INTERNAL}
    return {name: names for name, names in found.items() if names}


class Place:
    """What calls are made on."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store: dict[str, Any] = {}
        self.group = gzarr.create_group(self.store)
        self.array = self.group.create_array("a", data=np.arange(6.0), chunks=2)
        self.labels = np.array([[1, 1], [0, 2]], "u1")
        self.sparse: dict[str, Any] = {}
        self.image: dict[str, Any] = {}
        self.plate: dict[str, Any] = {}

    def new(self, **given: Any) -> dict[str, Any]:
        """Return the arguments of an array that is not there yet."""
        return {"store": self.store, "path": "new", "shape": 2, **given}

    def matrix(self) -> Any:
        return gzarr.sparse.create(self.sparse, shape=(0, 3), dtype="f4", device="cpu")

    def an_image(self) -> Any:
        data = np.ones((2, 4, 4), "u1")
        return gzarr.ome.create(self.image, data, axes="tyx", levels=1, overwrite=True, progress=False)

    def a_plate(self) -> dict[str, Any]:
        gzarr.ome.create_plate(self.plate, rows=["A"], columns=["1"], overwrite=True)
        return self.plate

    def dask(self) -> Any:
        return importlib.import_module("dask.array").ones(6, chunks=2)

    def engine(self) -> Any:
        return importlib.import_module("gzarr.integrations.xarray").GzarrBackendEntrypoint()


REMOTE = {"kind": "http", "arguments": ("http://localhost",), "url": "http://localhost"}
ONES = np.ones((2, 2))
#: A call of each, with flags.
CALLS: dict[str, Callable[..., Any]] = {
    "gzarr.Array": lambda p, **f: gzarr.Array(p.array.metadata, p.array.store, "a", **f),
    "gzarr.Array.append": lambda p, **f: p.array.append([1.0], **f),
    "gzarr.Array.resize": lambda p, **f: p.array.resize(1, **f),
    "gzarr.Array.update_attributes": lambda p, **f: p.array.update_attributes({"x": 1}, **f),
    "gzarr.Array.write": lambda p, **f: p.array.write(slice(0, 2), 5.0, **f),
    "gzarr.Array.write_many": lambda p, **f: p.array.write_many([slice(0, 2)], [5.0], **f),
    "gzarr.FsspecStore": lambda p, **f: gzarr.FsspecStore(importlib.import_module("fsspec").filesystem("memory"), **f),
    "gzarr.Group.create_array": lambda p, **f: p.group.create_array("a", data=[1.0], **f),
    "gzarr.Group.create_group": lambda p, **f: p.group.create_group("a", **f),
    "gzarr.Group.require_array": lambda p, **f: p.group.require_array("new", shape=2, dtype="f4", **f),
    "gzarr.Group.update_attributes": lambda p, **f: p.group.update_attributes({"x": 1}, **f),
    "gzarr.HttpStore": lambda p, **f: gzarr.HttpStore(**REMOTE, **f),
    "gzarr.Loader": lambda p, **f: gzarr.Loader(p.array, gzarr.loader.Rows(), batch_size=2, **f),
    "gzarr.LocalStore": lambda p, **f: gzarr.LocalStore(p.folder, **f),
    "gzarr.MemoryStore": lambda p, **f: gzarr.MemoryStore({}, **f),
    "gzarr.ObjectStore": lambda p, **f: gzarr.ObjectStore(**REMOTE, **f),
    "gzarr.ZarrStore": lambda p, **f: gzarr.ZarrStore(importlib.import_module("zarr").storage.MemoryStore(), **f),
    "gzarr.array": lambda p, **f: gzarr.array([1.0], p.store, path="a", **f),
    "gzarr.arrays.index.Indexer.write": lambda p, **f: p.array.oindex.write(slice(0, 2), 5.0, **f),
    "gzarr.blocks.join": lambda p, **f: gzarr.blocks.join(p.labels, out=p.array.store, block=1, **f),
    "gzarr.blocks.label": lambda p, **f: gzarr.blocks.label(p.labels, out=p.array.store, block=1, **f),
    "gzarr.blocks.measure": lambda p, **f: gzarr.blocks.measure(p.labels, **f),
    "gzarr.codecs.shuffle.ShuffleCodec": lambda p, **f: gzarr.codecs.shuffle.ShuffleCodec(4, **f),
    "gzarr.codecs.zstd.ZstdCodec": lambda p, **f: gzarr.codecs.zstd.ZstdCodec(1, **f),
    "gzarr.consolidate_metadata": lambda p, **f: gzarr.consolidate_metadata(p.store, **f),
    "gzarr.copy": lambda p, **f: gzarr.copy({**p.store}, p.store, **f),
    "gzarr.create_array": lambda p, **f: gzarr.create_array(p.store, path="a", data=[1.0], **f),
    "gzarr.create_group": lambda p, **f: gzarr.create_group(p.store, **f),
    "gzarr.empty": lambda p, **f: gzarr.empty(2, store=p.store, path="a", **f),
    "gzarr.empty_like": lambda p, **f: gzarr.empty_like(ONES, p.store, path="a", **f),
    "gzarr.from_array": lambda p, **f: gzarr.from_array(p.store, data=ONES, name="new", **f),
    "gzarr.from_dask": lambda p, **f: gzarr.from_dask(p.dask(), p.store, path="new", **f),
    "gzarr.full": lambda p, **f: gzarr.full(2, 5, store=p.store, path="a", **f),
    "gzarr.full_like": lambda p, **f: gzarr.full_like(ONES, 5, p.store, path="a", **f),
    "gzarr.group": lambda p, **f: gzarr.group(p.store, **f),
    "gzarr.store": lambda p, **f: gzarr.store(p.dask(), p.array, **f),
    "gzarr.integrations.xarray.GzarrBackendEntrypoint.open_dataset": lambda p, **f: p.engine().open_dataset(
        p.store, **f
    ),
    "gzarr.integrations.xarray.GzarrBackendEntrypoint.open_groups_as_dict": lambda p, **f: (
        p.engine().open_groups_as_dict(p.store, **f)
    ),
    "gzarr.integrations.zarr.enable": lambda p, **f: importlib.import_module("gzarr.integrations.zarr").enable(**f),
    "gzarr.loader.Merge": lambda p, **f: gzarr.loader.Merge(p.array, gzarr.loader.Patches(2), **f),
    "gzarr.loader.Patches": lambda p, **f: gzarr.Loader(p.array, gzarr.loader.Patches(2, **f), batch_size=1),
    "gzarr.loader.Rows": lambda p, **f: gzarr.Loader(p.array, gzarr.loader.Rows(**f), batch_size=1),
    "gzarr.loader.Windows": lambda p, **f: gzarr.Loader(
        p.array, gzarr.loader.Windows(axis=0, runs={"": (0, 1)}, **f), batch_size=1
    ),
    "gzarr.map_blocks": lambda p, **f: gzarr.map_blocks(np.negative, p.labels, out=p.store, block=1, **f),
    "gzarr.nodes.attributes.Attributes.change": lambda p, **f: p.array.attrs.change(lambda found: {"x": 1}, **f),
    "gzarr.nodes.attributes.Attributes.put": lambda p, **f: p.array.attrs.put({"x": 1}, **f),
    "gzarr.ome.Image.append": lambda p, **f: p.an_image().append(np.ones((1, 4, 4), "u1"), **f),
    "gzarr.ome.Image.update_metadata": lambda p, **f: p.an_image().update_metadata(name="x", **f),
    "gzarr.ome.create": lambda p, **f: gzarr.ome.create(p.store, ONES, axes="yx", path="a", **f),
    "gzarr.ome.create_field": lambda p, **f: gzarr.ome.create_field(p.a_plate(), "A", "1", ONES, axes="yx", **f),
    "gzarr.ome.create_labels": lambda p, **f: gzarr.ome.create_labels(
        p.an_image().group.store, "nuclei", np.ones((2, 4, 4), "u1"), **f
    ),
    "gzarr.ome.create_plate": lambda p, **f: gzarr.ome.create_plate(p.store, rows=["A"], columns=["1"], **f),
    "gzarr.ome.pyramid": lambda p, **f: gzarr.ome.pyramid(p.an_image().group.store, **f),
    "gzarr.ones": lambda p, **f: gzarr.ones(2, store=p.store, path="a", **f),
    "gzarr.ones_like": lambda p, **f: gzarr.ones_like(ONES, p.store, path="a", **f),
    "gzarr.open": lambda p, **f: gzarr.open(**p.new(mode="a", **f)),
    "gzarr.open_array": lambda p, **f: gzarr.open_array(**p.new(mode="a", **f)),
    "gzarr.open_consolidated": lambda p, **f: gzarr.open_consolidated(p.store, **f),
    "gzarr.open_group": lambda p, **f: gzarr.open_group(p.store, **f),
    "gzarr.open_store": lambda p, **f: gzarr.open_store(p.store, **f),
    "gzarr.require_array": lambda p, **f: gzarr.require_array(**p.new(dtype="u1", **f)),
    "gzarr.require_group": lambda p, **f: gzarr.require_group(p.store, path="new", **f),
    "gzarr.save": lambda p, **f: gzarr.save(p.store, x=[1.0], **f),
    "gzarr.sparse.Matrix.append": lambda p, **f: p.matrix().append(None, **f),
    "gzarr.sparse.Matrix.dense": lambda p, **f: p.matrix().dense(dtype="f4", **f),
    "gzarr.sparse.Matrix.to_dense": lambda p, **f: p.matrix().to_dense(dtype="f4", **f),
    "gzarr.sparse.create": lambda p, **f: gzarr.sparse.create(p.store, shape=(0, 3), dtype="f4", **f),
    "gzarr.verify": lambda p, **f: gzarr.verify(p.store, **f),
    "gzarr.zeros": lambda p, **f: gzarr.zeros(2, store=p.store, path="a", **f),
    "gzarr.zeros_like": lambda p, **f: gzarr.zeros_like(ONES, p.store, path="a", **f),
}


def test_every_public_flag_is_known() -> None:
    assert set(CALLS) == set(all_flags())


@pytest.mark.parametrize("name", CALLS)
def test_texts_are_no_flags(name: str, tmp_path: Path) -> None:
    place = Place(tmp_path)
    before = dict(place.store)
    for flag in sorted(all_flags()[name]):
        message = rf"\b{flag} must be True( or False|, False or None), not 'false'"
        with pytest.raises(gzarr.ArgumentError, match=message):
            CALLS[name](place, **{flag: "false"})
        assert place.store == before, flag


@pytest.mark.parametrize("value", [False, True, 0, 1, np.False_, np.True_, np.uint8(1)])
def test_what_is_a_flag(value: Any) -> None:
    assert flags.flag("x", value) is bool(value)
    assert flags.optional_flag("x", value) is bool(value)


@pytest.mark.parametrize("value", ["", "true", 2, 1.0, [], [True], np.array([True]), np.timedelta64(1), b"1", object()])
def test_what_is_no_flag(value: Any) -> None:
    for check in (flags.flag, flags.optional_flag, lambda name, value: flags.check_flags(**{name: value})):
        with pytest.raises(gzarr.ArgumentError, match=r"^x must be True"):
            check("x", value)


def test_flags_of_numpy_are_taken() -> None:
    store: dict[str, Any] = {}
    array = gzarr.create_array(store, data=[1, 2, 3], overwrite=np.True_, write_empty_chunks=np.True_)
    array.resize(2, erase=np.False_)
    array.resize(3, erase=0)
    array.write(0, 5, aligned=0, lock=np.False_, fill_masked=1)
    assert array[...].tolist() == [5, 2, 3]
    with pytest.raises(gzarr.ArgumentError, match="already"):
        gzarr.create_array(store, data=[1], overwrite=0)
