"""Creating arrays and groups: the stored documents, what other libraries read, and refused arguments."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import numcodecs
import numpy as np
import pytest
import tensorstore
import zarr
import zarrs  # noqa: F401  (registers its pipeline with zarr-python)
from support.zarr_arrays import same

import gzarr
from gzarr import errors
from gzarr.hierarchy import auto_chunks

if TYPE_CHECKING:
    from pathlib import Path

DRAFT = "3-draft-2022"
RNG = np.random.default_rng(5)
TYPES: list[Any] = [
    *("bool", "u1", "i1", "i2", ">i4", "u8", "f2", "f4", ">f8", "c8", "c16"),
    *("M8[s]", "m8[10ns]", "S5", "U3", "V4", str, bytes),
]
RECORD = np.dtype([("a", "u1"), ("b", "<f4"), ("c", "S3")])


def name_of(dtype: Any) -> str:
    return dtype.__name__ if isinstance(dtype, type) else str(dtype)


def values_of(dtype: Any, shape: tuple[int, ...] = (5, 7)) -> Any:
    if dtype in (str, bytes):
        texts = [f"{i}é"[: i % 4] * (i % 3) for i in range(math.prod(shape))]
        items = [text if dtype is str else text.encode() for text in texts]
        result = np.empty(len(items), object)
        result[:] = items
        return result.reshape(shape)
    native = np.dtype(dtype).newbyteorder("=")
    if native.kind == "b":
        return RNG.random(shape) < 0.5
    if native.kind == "U":
        return RNG.integers(0, 1000, shape).astype(native)
    if native.kind == "c":
        return (RNG.normal(size=shape) + 1j * RNG.normal(size=shape)).astype(native)
    if native.kind == "f":
        return RNG.normal(size=shape).astype(native)
    raw = RNG.integers(0, 120, (*shape, native.itemsize), np.uint8)
    return raw.reshape(-1).view(native).reshape(shape)


def open_zarr(path: Path, node: str = "", pipeline: str | None = None) -> Any:
    default = "zarr.core.codec_pipeline.BatchedCodecPipeline"
    with zarr.config.set({"codec_pipeline.path": pipeline or default}):
        return zarr.open_array(str(path), path=node, mode="r")


def open_tensorstore(path: Path, zarr_format: int) -> Any:
    spec = {
        "driver": "zarr3" if zarr_format == 3 else "zarr",
        "kvstore": {"driver": "file", "path": str(path)},
    }
    return tensorstore.open(spec, open=True, read=True).result()


class TestPeersRead:
    @pytest.mark.filterwarnings("ignore::zarr.errors.ZarrUserWarning")
    @pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning")
    @pytest.mark.parametrize("zarr_format", [2, 3])
    @pytest.mark.parametrize("dtype", [*TYPES, RECORD], ids=name_of)
    def test_zarr_python(self, tmp_path: Path, dtype: Any, zarr_format: Any) -> None:
        values = values_of(dtype)
        array = gzarr.create_array(
            tmp_path, path="g/x", shape=(5, 7), dtype=dtype, chunks=(2, 3), zarr_format=zarr_format,
            attributes={"k": [1, None]}, dimension_names=("y", "x"), device="cpu",
        )  # fmt: skip
        theirs = open_zarr(tmp_path, "g/x")
        assert (theirs.shape, theirs.chunks, theirs.metadata.zarr_format) == ((5, 7), (2, 3), zarr_format)
        if zarr_format == 3:
            assert (dict(theirs.attrs), theirs.metadata.dimension_names) == ({"k": [1, None]}, ("y", "x"))
        else:
            assert dict(theirs.attrs) == {"k": [1, None], "_ARRAY_DIMENSIONS": ["y", "x"]}
        np.testing.assert_array_equal(np.asarray(theirs[...]), array[...])
        array[...] = values
        np.testing.assert_array_equal(np.asarray(open_zarr(tmp_path, "g/x")[...]), values)
        again = gzarr.open_array(tmp_path, path="g/x", device="cpu")
        same(again[...], values)
        assert (again.attrs["k"], again.dimension_names) == ([1, None], ("y", "x"))
        assert isinstance(gzarr.open(tmp_path, device="cpu"), gzarr.Group)
        assert sorted(zarr.open_group(str(tmp_path), mode="r")) == ["g"]

    @pytest.mark.parametrize("zarr_format", [2, 3])
    @pytest.mark.parametrize("dtype", ["u1", "i2", ">i4", "f4", "bool", "f8", "bfloat16", "int4"])
    def test_tensorstore(self, tmp_path: Path, dtype: Any, zarr_format: Any) -> None:
        array = gzarr.create_array(
            tmp_path, shape=(5, 7), dtype=dtype, chunks=(2, 3), zarr_format=zarr_format, fill_value=1, device="cpu"
        )
        np.testing.assert_array_equal(np.asarray(open_tensorstore(tmp_path, zarr_format)), array[...])
        values = np.arange(35).reshape(5, 7) % 7
        array[...] = values.astype(array.dtype)
        np.testing.assert_array_equal(np.asarray(open_tensorstore(tmp_path, zarr_format)), array[...])
        assert array[4, 6] == array.dtype.type(34 % 7)

    @pytest.mark.parametrize("shards", [None, (4, 6)])
    @pytest.mark.parametrize("dtype", ["u1", "i2", "f4", "bool", str], ids=name_of)
    def test_zarrs(self, tmp_path: Path, dtype: Any, shards: Any) -> None:
        values = values_of(dtype)
        gzarr.create_array(tmp_path, data=values, dtype=dtype, chunks=(2, 3), shards=shards, device="cpu")
        theirs = open_zarr(tmp_path, pipeline="zarrs.ZarrsCodecPipeline")
        np.testing.assert_array_equal(np.asarray(theirs[...]), values)

    @pytest.mark.parametrize("name", [None, "zstd", "gzip", "blosc", "crc32c"])
    def test_codecs_that_are_named(self, tmp_path: Path, name: str | None) -> None:
        values = values_of("i4")
        array = gzarr.create_array(tmp_path, data=values, chunks=(2, 3), shards=(4, 6), compressors=name, device="cpu")
        assert array.shards == (4, 6)
        assert [codec.label.partition("(")[0] for codec in array.codecs[0].codecs] == [
            "bytes",
            *([name] if name else []),
        ]
        np.testing.assert_array_equal(np.asarray(open_zarr(tmp_path)[...]), values)
        np.testing.assert_array_equal(np.asarray(open_tensorstore(tmp_path, 3)), values)

    @pytest.mark.parametrize("zarr_format", [1, DRAFT])
    @pytest.mark.parametrize("dtype", ["u1", "<i2", ">f4", "S3", "M8[s]"])
    def test_older_formats(self, tmp_path: Path, dtype: str, zarr_format: Any) -> None:
        values = values_of(dtype)
        gzarr.create_array(
            tmp_path, path="g/x", data=values.astype(dtype), chunks=(2, 3), zarr_format=zarr_format,
            attributes={"k": 1}, device="cpu",
        )  # fmt: skip
        array = gzarr.open_array(tmp_path, path="g/x", device="cpu")
        same(array[...], values)
        assert (array.zarr_format, array.attrs, array.chunks) == (zarr_format, {"k": 1}, (2, 3))

    @pytest.mark.parametrize("order", ["C", "F"])
    @pytest.mark.parametrize("zarr_format", [2, 3])
    def test_order(self, tmp_path: Path, order: Any, zarr_format: Any) -> None:
        values = values_of("i4", (4, 3, 2))
        gzarr.create_array(tmp_path, data=values, order=order, zarr_format=zarr_format, compressors=None, device="cpu")
        np.testing.assert_array_equal(np.asarray(open_zarr(tmp_path)[...]), values)
        stored = next(p for p in tmp_path.rglob("*") if p.is_file() and p.name.partition(".")[0].isdecimal())
        assert stored.read_bytes() == values.tobytes(order)

    def test_rectilinear(self) -> None:
        store: dict[str, Any] = {}
        values = values_of("i4")
        array = gzarr.create_array(store, data=values, chunks=[[1, 4], 3], device="cpu")
        assert array.chunk_lengths == ((1, 4), (3, 3, 1))
        same(gzarr.open_array(store, device="cpu")[...], values)


class TestArguments:
    def test_shape_and_type_may_go_without_their_names(self) -> None:
        array = gzarr.create_array({}, (4, 6), "f4", chunks=2)
        assert (array.shape, array.dtype, array.chunks) == ((4, 6), np.dtype("f4"), (2, 2))
        below = gzarr.create_group({}).create_array("a/b", 3, "i2")
        assert (below.path, below.shape, below.dtype) == ("a/b", (3,), np.dtype("i2"))

    @pytest.mark.parametrize(
        ("codecs", "labels"),
        [
            (["zstd"], ["bytes", "zstd"]),
            (["bytes", {"name": "gzip", "configuration": {"level": 1}}], ["bytes", "gzip"]),
            ([{"id": "zlib", "level": 1}], ["bytes", "numcodecs.zlib"]),
            ([numcodecs.LZ4()], ["bytes", "numcodecs.lz4"]),
            ([zarr.codecs.BloscCodec(cname="zstd", typesize=4)], ["bytes", "blosc"]),
            ([zarr.codecs.TransposeCodec(order=(1, 0))], ["transpose", "bytes"]),
            (None, ["bytes"]),
            ([], ["bytes"]),
            ({"name": "crc32c"}, ["bytes", "crc32c"]),
        ],
    )
    def test_codecs(self, codecs: Any, labels: list[str]) -> None:
        store: dict[str, Any] = {}
        values = values_of("i4")
        gzarr.create_array(store, data=values, codecs=codecs, device="cpu")
        document = json.loads(store["zarr.json"])
        assert [codec["name"] for codec in document["codecs"]] == labels
        same(gzarr.open_array(store, device="cpu")[...], values)

    def test_parts_of_the_chain_as_in_zarr_python(self, tmp_path: Path) -> None:
        values = values_of("i4")
        array = gzarr.create_array(
            tmp_path / "2", data=values, zarr_format=2, device="cpu",
            filters=[numcodecs.Delta("<i4")], compressors={"id": "zlib", "level": 3},
        )  # fmt: skip
        document = json.loads((tmp_path / "2/.zarray").read_bytes())
        assert document["compressor"] == {"id": "zlib", "level": 3}
        assert document["filters"][0]["id"] == "delta"
        np.testing.assert_array_equal(zarr.open_array(str(tmp_path / "2"), mode="r")[...], values)
        # The same chain in version 3, from the array.
        copy = gzarr.create_array(tmp_path / "3", data=values, codecs=array.codecs, device="cpu")
        same(copy[...], values)
        assert [codec["name"] for codec in json.loads((tmp_path / "3/zarr.json").read_bytes())["codecs"]] == [
            "numcodecs.delta", "bytes", "numcodecs.zlib",
        ]  # fmt: skip

    @pytest.mark.parametrize(
        ("dtype", "fill", "expected"),
        [
            ("f4", None, np.float32(0)),
            ("f4", "NaN", np.float32("nan")),
            ("f4", -math.inf, np.float32("-inf")),
            ("f4", np.float64(0.5), np.float32(0.5)),
            ("u1", 255, np.uint8(255)),
            ("bool", True, np.True_),
            ("M8[s]", None, np.datetime64("NaT", "s")),
            ("M8[s]", "2020-01-01", np.datetime64("2020-01-01", "s")),
            (str, "é", "é"),
            (bytes, b"\0", b"\0"),
            (str, None, ""),
            ("S3", b"ab", np.bytes_(b"ab")),
            ("c8", 1 + 2j, np.complex64(1 + 2j)),
            (RECORD, None, np.zeros((), RECORD)[()]),
            (RECORD, 0, np.zeros((), RECORD)[()]),
            (RECORD, (1, 2.5, b"x"), np.array((1, 2.5, b"x"), RECORD)[()]),
        ],
    )
    @pytest.mark.parametrize("zarr_format", [2, 3])
    def test_fill_value(self, dtype: Any, fill: Any, expected: Any, zarr_format: Any) -> None:
        store: dict[str, Any] = {}
        gzarr.create_array(store, shape=3, dtype=dtype, fill_value=fill, zarr_format=zarr_format, device="cpu")
        array = gzarr.open_array(store, device="cpu")
        found = array.fill_value
        assert type(found) is type(expected)
        assert found == expected or (found != found and expected != expected)
        assert array[1] == expected or expected != expected

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"dtype": "i4"}, "shape"),
            ({"shape": 3}, "dtype"),
            ({"shape": -1, "dtype": "i4"}, "shape"),
            ({"shape": 3, "dtype": "nonsense"}, "nonsense"),
            ({"shape": 3, "dtype": object}, "dtype=str"),
            ({"shape": 3, "dtype": object, "zarr_format": 2}, "filters"),
            ({"shape": 3, "dtype": "f16"}, "float128|longdouble"),
            ({"shape": 3, "dtype": "u1", "fill_value": 256}, "256"),
            ({"shape": 3, "dtype": "u1", "fill_value": 0.5}, "0.5"),
            ({"shape": 3, "dtype": "u1", "fill_value": "x"}, "fill_value"),
            ({"shape": 3, "dtype": str, "fill_value": 5}, "fill_value"),
            ({"shape": 3, "dtype": "u1", "chunks": 0}, "chunks"),
            ({"shape": 3, "dtype": "u1", "chunks": (1, 1)}, "dimensions"),
            ({"shape": 3, "dtype": "u1", "chunks": "all"}, "chunks"),
            ({"shape": 3, "dtype": "u1", "chunks": 2, "shards": 3}, "multiples"),
            ({"shape": 3, "dtype": "u1", "chunks": [[1, 2]], "shards": 3}, "shards"),
            ({"shape": 3, "dtype": "u1", "chunks": [[1, 1]]}, "cover"),
            ({"shape": 3, "dtype": "u1", "shards": 3, "zarr_format": 2}, "sharding"),
            ({"shape": 3, "dtype": "u1", "chunks": [[1, 2]], "zarr_format": 2}, "rectilinear"),
            ({"shape": 3, "dtype": "u1", "codecs": ["lz5"]}, "lz5"),
            ({"shape": 3, "dtype": "u1", "codecs": [5]}, "codecs"),
            ({"shape": 3, "dtype": "u1", "codecs": ["zstd"], "compressors": None}, "compressors"),
            ({"shape": 3, "dtype": "u1", "codecs": ["zstd", "bytes"]}, "list it first"),
            ({"shape": 3, "dtype": "u1", "codecs": ["bytes", "bytes"]}, "exactly one"),
            ({"shape": 3, "dtype": "u1", "codecs": ["vlen-utf8"]}, "vlen-utf8"),
            ({"shape": 3, "dtype": str, "codecs": ["bytes"]}, "vlen-utf8"),
            ({"shape": 3, "dtype": "u1", "serializer": "zstd"}, "serializer"),
            ({"shape": 3, "dtype": "u1", "order": "K"}, "order"),
            ({"shape": 3, "dtype": "u1", "attributes": {"a": object()}}, "JSON"),
            ({"shape": 3, "dtype": "u1", "dimension_names": ["a", "b"]}, "dimension_names"),
            ({"shape": (3, 3), "dtype": "u1", "dimension_names": ["a", None], "zarr_format": 2}, "None"),
            ({"shape": 3, "dtype": "u1", "chunk_key_encoding": "v4"}, "v4"),
            ({"shape": 3, "dtype": "u1", "chunk_key_encoding": "default", "zarr_format": 2}, "default"),
            ({"shape": 3, "dtype": "u1", "zarr_format": 4}, "zarr_format"),
            ({"shape": 3, "dtype": str, "zarr_format": 1}, "version 1"),
            ({"shape": 3, "dtype": "u1", "device": "gpu"}, "device"),
            ({"shape": 3, "dtype": "u1", "path": "a", "name": "b"}, "name"),
            ({"shape": 3, "data": np.zeros(4)}, "shape"),
            ({"data": np.full(3, 0.5), "dtype": "i4"}, "0.5"),
            ({"data": np.array([1, "a"], object)}, "elements are Python objects, such as 1 of type int"),
        ],
    )
    def test_what_is_wrong_is_said_before_anything_changes(self, arguments: dict[str, Any], message: str) -> None:
        store: dict[str, Any] = {}
        gzarr.create_array(store, path="a", shape=2, dtype="u1", device="cpu")
        before = dict(store)
        with pytest.raises(errors.ArgumentError, match=message):
            gzarr.create_array(store, **{"path": "a", "overwrite": True, "device": "cpu", **arguments})
        assert store == before

    def test_encodings(self) -> None:
        for given, key in [(None, "c/1/0"), ("v2", "1.0"), (".", "c.1.0"), ({"name": "v2", "separator": "/"}, "1/0")]:
            store: dict[str, Any] = {}
            array = gzarr.create_array(
                store, shape=(4, 4), dtype="u1", chunks=2, chunk_key_encoding=given, device="cpu"
            )
            array[2, 0] = 1
            assert key in store
        store = {}
        gzarr.create_array(store, shape=4, dtype="u1", chunks=2, chunk_key_encoding="/", zarr_format=2)
        assert json.loads(store[".zarray"])["dimension_separator"] == "/"


class TestChunkShapes:
    @pytest.mark.parametrize("itemsize", [1, 2, 4, 8, 300])
    @pytest.mark.parametrize(
        "shape", [(), (1,), (10,), (10**7,), (5000, 3), (1000, 1000), (97, 1013, 511), (1, 10**9), (3, 4, 5, 600, 700)]
    )
    def test_chunks(self, shape: tuple[int, ...], itemsize: int) -> None:
        chunks = auto_chunks.auto_chunks(shape, itemsize)
        nbytes = math.prod(chunks) * itemsize
        assert all(1 <= c <= n for c, n in zip(chunks, shape, strict=True))
        assert nbytes <= auto_chunks.MAX_CHUNK_NBYTES
        assert chunks == shape or nbytes > auto_chunks.MAX_CHUNK_NBYTES // 2

    @pytest.mark.parametrize(
        ("shape", "chunks"), [((0,), (1 << 17,)), ((0, 400, 720), (1, 400, 360)), ((0, 10), (13107, 10))]
    )
    def test_dimensions_that_are_there_to_grow(self, shape: Any, chunks: Any) -> None:
        assert auto_chunks.auto_chunks(shape, 4) == chunks

    def test_shards(self) -> None:
        assert auto_chunks.auto_shards((1000, 1000), (500, 500), 4) is None
        assert auto_chunks.auto_shards((10**5, 10**5), (4096, 4096), 4) is None
        for shape in [(10**9,), (4096, 4096, 4096), (10**6, 1000), (1, 10**10)]:
            chunks = auto_chunks.auto_chunks(shape, 4)
            shards = auto_chunks.auto_shards(shape, chunks, 4)
            assert shards is not None
            assert all(s % c == 0 for s, c in zip(shards, chunks, strict=True))
            assert 64 << 20 <= math.prod(shards) * 4 <= 128 << 20

    def test_what_is_chosen_for_a_large_array(self) -> None:
        array = gzarr.empty((4096, 4096, 64), dtype="u2", shards="auto", device="cpu")
        assert (array.chunks, array.shards) == ((64, 128, 64), (1024, 512, 64))
        assert array.decode_path == "cpu-native: sharding_indexed(64×128×64: blosc(lz4, shuffle 2))"
        array = gzarr.empty((100, 100), dtype="u1", shards="auto", device="cpu")
        assert (array.chunks, array.shards) == ((100, 100), None)
        assert array.decode_path == "cpu-native: zstd"

    def test_chunks_in_shards(self) -> None:
        array = gzarr.empty((1000, 1000, 10), dtype="f8", shards=(500, 1000, 10), device="cpu")
        assert all(s % c == 0 for s, c in zip((500, 1000, 10), array.chunks, strict=True))
        assert math.prod(array.chunks) * 8 <= 1 << 20

    def test_all(self) -> None:
        array = gzarr.empty((10, 0, 30), dtype="u1", chunks=(-1, None, 7), device="cpu")
        assert array.chunks == (10, 1, 7)
        assert gzarr.empty((10, 20), dtype="u1", chunks=4, device="cpu").chunks == (4, 4)


class TestFilledAndLike:
    def test_one_value(self, tmp_path: Path) -> None:
        assert gzarr.zeros((2, 3), device="cpu")[...].tolist() == [[0.0] * 3] * 2
        assert gzarr.ones(4, tmp_path / "a", dtype="u1", device="cpu")[...].tolist() == [1] * 4
        assert gzarr.full(2, 0.5, device="cpu")[...].tolist() == [0.5] * 2
        assert sorted(p.name for p in (tmp_path / "a").iterdir()) == ["zarr.json"]

    @pytest.mark.parametrize("zarr_format", [2, 3])
    @pytest.mark.parametrize("dtype", [">i4", "f4", str, bytes, RECORD], ids=name_of)
    def test_like(self, dtype: Any, zarr_format: Any) -> None:
        old = gzarr.create_array(
            {}, shape=(4, 6), dtype=dtype, chunks=(2, 3), zarr_format=zarr_format, codecs=["gzip"], device="cpu",
            dimension_names=["a", "b"], attributes={"k": 1},
        )  # fmt: skip
        new = gzarr.empty_like(old, device="cpu")
        assert (new.shape, new.dtype, new.chunks, new.dimension_names) == (old.shape, old.dtype, old.chunks, ("a", "b"))
        assert (new.codecs, new.fill_value, new.zarr_format) == (old.codecs, old.fill_value, zarr_format)
        assert new.metadata.data_type == old.metadata.data_type
        other = gzarr.empty_like(old, shape=(9,), zarr_format=5 - zarr_format, device="cpu")
        assert (other.shape, other.dtype, other.zarr_format) == ((9,), old.dtype, 5 - zarr_format)

    def test_like_in_other_grids_and_types(self) -> None:
        old = gzarr.empty((5, 7), dtype="r16", chunks=[[1, 4], 3], device="cpu")
        assert json.loads(old.store.get("zarr.json") or b"")["data_type"] == "r16"
        new = gzarr.empty_like(old, device="cpu")
        assert (new.chunk_lengths, new.metadata.data_type) == (((1, 4), (3, 3, 1)), "r16")
        for zarr_format in (1, DRAFT):
            old = gzarr.empty((5, 7), dtype=">i4", zarr_format=zarr_format, device="cpu")
            assert gzarr.empty_like(old, device="cpu").metadata.data_type == ">i4"
            assert gzarr.empty_like(old, zarr_format=3, device="cpu").metadata.data_type == "int32"

    def test_like_in_shards(self) -> None:
        old = gzarr.empty((8, 8), dtype="u2", chunks=(2, 2), shards=(4, 4), device="cpu")
        new = gzarr.ones_like(old, dtype="f4", device="cpu")
        assert (new.chunks, new.shards, new[0, 0]) == ((2, 2), (4, 4), np.float32(1))
        assert gzarr.zeros_like(np.ones((2, 2), "i2"), device="cpu").dtype == np.int16
        assert gzarr.full_like(old, 7, device="cpu")[3, 3] == 7


class TestRequire:
    def test_arrays(self, tmp_path: Path) -> None:
        made = gzarr.require_array(tmp_path, path="a", shape=(2, 3), dtype="f8", device="cpu")
        made[...] = 1
        found = gzarr.require_array(tmp_path, path="a", shape=(2, 3), dtype="f4", device="cpu")
        assert found[1, 2] == 1
        for wrong in (
            {"shape": (3, 2)},
            {"shape": (2, 3), "dtype": "c16"},
            {"shape": (2, 3), "dtype": "f4", "exact": True},
        ):
            with pytest.raises(errors.NodeTypeError, match="/a in"):
                gzarr.require_array(tmp_path, path="a", **wrong)  # type: ignore[arg-type]
        with pytest.raises(errors.NodeTypeError):
            gzarr.require_group(tmp_path, path="a")
        assert gzarr.require_group(tmp_path, path="g", attributes={"k": 1}).attrs == {"k": 1}
        with pytest.raises(errors.NodeTypeError):
            gzarr.require_array(tmp_path, path="g", shape=1, dtype="u1")


class TestSaveAndLoad:
    def test_one(self, tmp_path: Path) -> None:
        values = values_of("f4")
        gzarr.save(tmp_path, values)
        same(gzarr.load(tmp_path, device="cpu"), values)
        np.testing.assert_array_equal(zarr.load(str(tmp_path)), values)
        with pytest.raises(errors.ArgumentError, match="already"):
            gzarr.save(tmp_path, values)
        gzarr.save(tmp_path, values + 1, overwrite=True)
        same(gzarr.load(tmp_path, device="cpu"), values + 1)

    def test_several(self) -> None:
        store: dict[str, Any] = {}
        gzarr.save(store, np.arange(2), np.arange(3), a=[1.5, 2.5], path="x", named={"path": "text"})
        found = gzarr.load(store, path="x", device="cpu")
        assert {k: v.tolist() for k, v in found.items()} == {
            "arr_0": [0, 1], "arr_1": [0, 1, 2], "a": [1.5, 2.5], "path": "text",
        }  # fmt: skip

    def test_nothing_is_written_if_one_cannot_be(self) -> None:
        store: dict[str, Any] = {}
        with pytest.raises(errors.ArgumentError, match="elements are Python objects, such as 1 of type int"):
            gzarr.save(store, a=np.arange(2), b=np.array([None, 1], object))
        with pytest.raises(errors.ArgumentError, match="at least one"):
            gzarr.save(store)
        assert store == {}


@pytest.mark.parametrize("path", ["", "a"])
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_many_chunks_are_not_taken_for_nodes(zarr_format: Any, path: str) -> None:
    """Documents come last; before them, a look at some keys cannot tell chunks from nodes below."""
    store = gzarr.MemoryStore()
    data = np.arange(2500, dtype="u2")
    array = gzarr.create_array(store, path=path, data=data, chunks=(1,), zarr_format=zarr_format, device="cpu")
    np.testing.assert_array_equal(array[...], data)
    np.testing.assert_array_equal(gzarr.open_array(store, path=path, device="cpu")[...], data)
