"""Opening nodes and groups: against zarr-python, counted store requests, consolidated and implicit groups, errors."""

from __future__ import annotations

import json
import pickle
import shutil
import warnings

import numpy as np
import pytest
import zarr

import gzarr
from gzarr import errors
from gzarr.arrays.device_choice import resolve_device
from gzarr.display import printable, readable_size
from gzarr.stores import LocalStore, MemoryStore
from gzarr.stores.keys import join_path, normalize_path

V3_GROUP = json.dumps({"zarr_format": 3, "node_type": "group", "attributes": {"a": 1}}).encode()
V2_GROUP = b'{"zarr_format": 2}'


def v3_array(**changes):
    document = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [4, 6],
        "data_type": "float32",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2, 3]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0.0,
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
        "attributes": {"units": "K"},
    }
    return json.dumps(document | changes).encode()


def v2_array(**changes):
    document = {
        "zarr_format": 2,
        "shape": [4, 6],
        "chunks": [2, 3],
        "dtype": "<f4",
        "compressor": None,
        "filters": None,
        "fill_value": 0.0,
        "order": "C",
    }
    return json.dumps(document | changes).encode()


class Counting:
    """A store that passes calls on and counts them: each call of a store method is a request."""

    def __init__(self, store):
        self.store = store
        self.calls = []

    def __getattr__(self, name):
        method = getattr(self.store, name)

        def call(*args):
            self.calls.append(name)
            return method(*args)

        return call

    def get(self, key):
        return self.__getattr__("get")(key)

    def get_partial_values(self, key_ranges):
        return self.__getattr__("get_partial_values")(key_ranges)

    def list(self):
        return self.__getattr__("list")()

    def list_prefix(self, prefix):
        return self.__getattr__("list_prefix")(prefix)

    def list_dir(self, prefix):
        return self.__getattr__("list_dir")(prefix)


class Sized(Counting):
    def list_sizes(self, prefix):
        return self.__getattr__("list_sizes")(prefix)

    def get_small_values(self, keys, max_nbytes):
        return self.__getattr__("get_small_values")(keys, max_nbytes)


@pytest.fixture(params=[Counting, Sized])
def counted(request):
    return lambda store: request.param(MemoryStore(store) if isinstance(store, dict) else store)


def write_hierarchy(root, zarr_format, consolidate):
    group = zarr.open_group(
        root, mode="w", zarr_format=zarr_format, attributes={"title": "root", "n": [1, {"x": None}]}
    )
    rng = np.random.default_rng(1)
    for path, shape, dtype in [
        ("a/b/deep", (4, 5, 6), "f4"),
        ("a/b.c", (7,), "i2"),
        ("a/z", (), "f8"),
        ("top", (10, 10), "u1"),
        ("é ü", (3,), "?"),
    ]:
        array = group.create_array(path, shape=shape, dtype=dtype, chunks=tuple(min(3, s) for s in shape) or "auto")
        array.attrs["path"] = path
        array[...] = rng.integers(0, 100, shape).astype(dtype)
    group.create_group("empty", attributes={"k": "v"})
    if consolidate:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            zarr.consolidate_metadata(root, zarr_format=zarr_format)
    return root


@pytest.fixture(scope="module", params=[(2, False), (2, True), (3, False), (3, True)], ids=str)
def hierarchy(request, tmp_path_factory):
    root = write_hierarchy(tmp_path_factory.mktemp("h") / "x.zarr", *request.param)
    return root, *request.param


def describe(node):
    kind = "group" if hasattr(node, "members") else "array"
    return (kind, dict(node.attrs)) + ((node.shape, np.dtype(node.dtype), node.chunks) if kind == "array" else ())


class TestAgainstZarrPython:
    @pytest.mark.parametrize("max_depth", [0, 1, 2, None])
    def test_members(self, hierarchy, max_depth):
        root, zarr_format, consolidated = hierarchy
        ours, theirs = gzarr.open(root), zarr.open_group(root, mode="r")
        assert (ours.zarr_format, ours.consolidated, dict(ours.attrs)) == (
            zarr_format,
            consolidated,
            dict(theirs.attrs),
        )
        members = ours.members(max_depth)
        expected = dict(theirs.members(max_depth))
        assert {path: describe(node) for path, node in members} == {p: describe(n) for p, n in expected.items()}
        assert [path.split("/") for path, _ in members] == sorted(path.split("/") for path in expected)
        assert ours.nmembers(max_depth) == theirs.nmembers(max_depth)

    @pytest.mark.parametrize("level", [None, 0, 1])
    @pytest.mark.parametrize("path", ["", "a"])
    def test_tree(self, hierarchy, level, path):
        root = hierarchy[0]
        theirs = zarr.open_group(root, path=path, mode="r").tree(level=level)
        assert str(gzarr.open(root, path=path).tree(level)) == str(theirs).rstrip("\n")

    def test_mapping(self, hierarchy):
        root, *_ = hierarchy
        ours, theirs = gzarr.open_group(root), zarr.open_group(root, mode="r")
        assert list(ours) == sorted(theirs.keys()) == ["a", "empty", "top", "é ü"]
        assert len(ours) == len(theirs)
        assert sorted(ours.array_keys()) == sorted(theirs.array_keys())
        assert sorted(ours.group_keys()) == sorted(theirs.group_keys())
        assert [(k, v.path) for k, v in ours.arrays()] == [("top", "top"), ("é ü", "é ü")]
        assert [(k, v.path) for k, v in ours.groups()] == [("a", "a"), ("empty", "empty")]
        assert [k for k, _ in ours.items()] == list(ours.keys())
        assert [v.path for v in ours.values()] == list(ours)
        for path in ["a", "a/b", "a/b/deep", "/a/b.c", "a/z/", "top", "é ü", "empty"]:
            assert path in ours
            assert ours[path].name == theirs[path].name
            assert ours[path].path == theirs[path].path
            assert ours[path].basename == theirs[path].basename
            assert describe(ours[path]) == describe(theirs[path])
        assert ours["a"]["b"]["deep"].path == "a/b/deep"
        for path in ["nope", "a/nope", "a/b/deep/c", "top/0", "a/b/deep/nope"]:
            assert path not in ours
            assert ours.get(path) is None
            with pytest.raises(KeyError, match="no array or group"):
                ours[path]
        assert ours["empty"].members() == ()
        assert len(ours["empty"]) == 0

    def test_direct(self, hierarchy):
        root, zarr_format, _ = hierarchy
        for known in (None, zarr_format):
            assert gzarr.open(root, path="a/b/deep", zarr_format=known).shape == (4, 5, 6)
            assert gzarr.open_array(root, path="/a/b.c/", zarr_format=known).shape == (7,)
            assert gzarr.open(root / "a", path="b", zarr_format=known).group_keys
            assert gzarr.open_group(f"file://{root}", path="a", zarr_format=known).name == "/a"
        with pytest.raises(errors.NodeNotFoundError, match="only documents of Zarr version"):
            gzarr.open(root, zarr_format=5 - zarr_format)
        with pytest.raises(errors.NodeTypeError, match="is an array"):
            gzarr.open_group(root, path="top")
        with pytest.raises(errors.NodeTypeError, match="is a group"):
            gzarr.open_array(root, path="a")

    def test_pickle_and_equality(self, hierarchy):
        root = hierarchy[0]
        group = gzarr.open(root)
        for path in ["a", "a/b", "empty"]:
            copy = pickle.loads(pickle.dumps(group[path]))
            assert copy == group[path]
            assert hash(copy) == hash(group[path])
            assert copy.members(None) == group[path].members(None) or len(copy) == len(group[path])
            assert [p for p, _ in copy.members(None)] == [p for p, _ in group[path].members(None)]
        assert pickle.loads(pickle.dumps(group)) == group
        assert group["a"] != group["empty"]
        assert group["a"] != gzarr.open(MemoryStore({"zarr.json": V3_GROUP}))
        assert group != "group"

    def test_without_consolidated(self, hierarchy):
        root, _, consolidated = hierarchy
        group = gzarr.open(root, use_consolidated=False)
        assert not group.consolidated
        assert group.nmembers(None) == gzarr.open(root).nmembers(None)
        assert not pickle.loads(pickle.dumps(group)).consolidated
        if consolidated:
            assert pickle.loads(pickle.dumps(gzarr.open(root, use_consolidated=True)["a"])).path == "a"
        else:
            with pytest.raises(errors.ArgumentError, match="no consolidated metadata"):
                gzarr.open(root, use_consolidated=True)


class TestRequests:
    @pytest.mark.parametrize(
        "documents",
        [
            {"zarr.json": V3_GROUP},
            {"zarr.json": v3_array()},
            {".zgroup": V2_GROUP},
            {".zarray": v2_array()},
            {".zarray": v2_array(), ".zattrs": b'{"units": "K"}'},
        ],
    )
    @pytest.mark.parametrize("path", ["", "a/b"])
    def test_one_for_a_node(self, counted, documents, path):
        store = counted({join_path(path, name): value for name, value in documents.items()})
        node = gzarr.open(store, path=path)
        assert len(store.calls) == 1
        gzarr.open(store, path=path, zarr_format=node.zarr_format)
        assert len(store.calls) == 2
        (gzarr.open_group if isinstance(node, gzarr.Group) else gzarr.open_array)(store, path=path)
        assert len(store.calls) == 3
        repr(node)
        node._repr_html_()
        assert len(store.calls) == 3

    def test_two_for_an_implicit_group(self, counted):
        store = counted({"a/b/zarr.json": v3_array()})
        group = gzarr.open(store, path="a")
        assert group.implicit
        assert len(store.calls) == 2

    @pytest.mark.parametrize("zarr_format", [2, 3])
    def test_none_below_consolidated(self, tmp_path, counted, zarr_format):
        store = counted(LocalStore(write_hierarchy(tmp_path / "x", zarr_format, True)))
        group = gzarr.open(store)
        assert len(store.calls) == 1
        assert len(group.members(None)) == 8
        assert group["a/b/deep"].shape == (4, 5, 6)
        assert group["a"]["b"].tree()
        assert len(group["a"]) == 3
        assert "nope" not in group
        assert "2 arrays, 2 groups" in repr(group)
        with pytest.raises(errors.NodeNotFoundError, match="did you mean 'empty'"):
            group["emty"]
        with pytest.raises(errors.NodeNotFoundError) as missing:
            group["empty/x"]
        assert "did you mean" not in str(missing.value)
        assert len(store.calls) == 1
        assert not gzarr.open(store, use_consolidated=False).consolidated

    def test_children_in_two(self, counted):
        names = [f"x{i:03}" for i in range(300)]
        store = counted({"zarr.json": V3_GROUP} | {f"{name}/zarr.json": v3_array() for name in names})
        group = gzarr.open(store)
        store.calls.clear()
        assert [name for name, _ in group.members()] == names
        assert len(store.calls) == 2
        group["x007"]
        assert len(store.calls) == 3
        assert "x008" in group
        assert len(store.calls) == 4

    def test_wrong_arguments_touch_nothing(self, counted):
        store = counted({"zarr.json": V3_GROUP})
        for arguments in (
            {"mode": "a"},
            {"mode": "x"},
            {"device": "tpu"},
            {"device": "cuda"},
            {"zarr_format": 4},
            {"missing": "ignore"},
            {"path": ".."},
            {"path": 3},
        ):
            with pytest.raises(errors.GzarrError):
                gzarr.open(store, **arguments)
        assert store.calls == []


class TestFormats:
    def test_v3_wins(self):
        store = {"zarr.json": v3_array(), ".zarray": b"broken", ".zgroup": V2_GROUP}
        assert gzarr.open(store).zarr_format == 3
        with pytest.raises(errors.MetadataError, match=r"\.zarray"):
            gzarr.open(store, zarr_format=2)

    def test_a_hierarchy_has_one_format(self):
        store = {"zarr.json": V3_GROUP, "new/zarr.json": v3_array(), "old/.zarray": v2_array()}
        assert list(gzarr.open(store)) == ["new"]
        with pytest.raises(errors.NodeNotFoundError):
            gzarr.open(store)["old"]
        assert gzarr.open(store, path="old").zarr_format == 2

    def test_v2_attributes(self):
        assert dict(gzarr.open({".zarray": v2_array()}).attrs) == {}
        assert dict(gzarr.open({".zgroup": V2_GROUP, ".zattrs": b'{"a": 1}'}).attrs) == {"a": 1}

    def test_attributes_cannot_be_changed(self):
        with pytest.raises(errors.ReadOnlyError):
            gzarr.open({"zarr.json": V3_GROUP}).attrs["b"] = 2

    def test_metadata_errors_name_the_key(self):
        for name, value in [
            ("zarr.json", b"{"),
            ("zarr.json", b'{"zarr_format": 3, "node_type": "sphere"}'),
            ("zarr.json", v3_array(shape=[-1, 2])),
            (".zarray", v2_array(chunks=[2])),
            (".zgroup", b'{"zarr_format": 7}'),
            (".zattrs", b"[1]"),
        ]:
            store = {f"a/{name}": value} | ({"a/.zgroup": V2_GROUP} if name == ".zattrs" else {})
            with pytest.raises(errors.MetadataError) as info:
                gzarr.open(store, path="a")
            assert info.value.key == f"a/{name}"
            assert repr(f"a/{name}") in str(info.value)

    def test_implicit_groups(self, tmp_path):
        store = {
            "a/b/zarr.json": v3_array(),
            "a/b/c/0/0": b"x" * 24,
            "v2/x/.zarray": v2_array(),
            "junk/readme.txt": b"",
        }
        for given in (store, tmp_path):
            if given is tmp_path:
                for key, value in store.items():
                    LocalStore(tmp_path).set(key, value)
            root = gzarr.open(given)
            assert root.implicit
            assert [(p, type(n).__name__, n.zarr_format) for p, n in root.members(None)] == [
                ("a", "Group", 3),
                ("a/b", "Array", 3),
                ("v2", "Group", 2),
                ("v2/x", "Array", 2),
            ]
            assert root["v2"].implicit
            assert "implicit" in repr(root["v2"])
            assert gzarr.open(given, path="v2", zarr_format=2).implicit
            assert "junk" not in root
            assert "a/b/c" not in root
            for path, known in [("junk", None), ("a/b/c", None), ("v2", 3), ("a", 2), ("nope", None)]:
                with pytest.raises(errors.NodeNotFoundError):
                    gzarr.open(given, path=path, zarr_format=known)
            with pytest.raises(errors.NodeNotFoundError):
                gzarr.open_array(given, path="a")
            assert pickle.loads(pickle.dumps(root))["a/b"].shape == (4, 6)

    def test_implicit_group_behind_many_chunks(self):
        store = {f"g/x/c/{i}/{j}": b"" for i in range(40) for j in range(40)} | {"g/x/zarr.json": v3_array()}
        assert gzarr.open(store, path="g").implicit
        assert list(gzarr.open(store, path="g")) == ["x"]
        # The chunks of an array are no group, however many there are.
        for path in ["g/x/c", "g/x/c/1"]:
            with pytest.raises(errors.NodeNotFoundError):
                gzarr.open(store, path=path)
        pictures = {f"thumbnails/{i}.jpg": b"" for i in range(2000)}
        with pytest.raises(errors.NodeNotFoundError):
            gzarr.open(pictures)

    def test_not_found(self, tmp_path):
        with pytest.raises(errors.NodeNotFoundError, match="it is empty"):
            gzarr.open(tmp_path)
        with pytest.raises(FileNotFoundError, match="nearest existing parent"):
            gzarr.open(tmp_path / "nope")
        (tmp_path / "volume").mkdir()
        (tmp_path / "volume" / "zarr.json").write_bytes(v3_array())
        with pytest.raises(errors.NodeNotFoundError, match="did you mean 'volume'"):
            gzarr.open(tmp_path, path="volum")
        assert [p.name for p in tmp_path.iterdir()] == ["volume"]

    def test_not_found_suggests_nodes_only(self, tmp_path):
        root = gzarr.create_group(tmp_path)
        root.create_array("c1", data=np.arange(2))
        for name in ("dir", "dirs", "c1/cs"):
            (tmp_path / name).mkdir()
        (tmp_path / "dirs" / "notes.txt").write_text("notes")
        for path in ("dir", "dirt", "c1/cc", "c1/c", "c1/d"):
            for open_it in (gzarr.open, gzarr.open_array, gzarr.open_group):
                with pytest.raises(errors.NodeNotFoundError) as missing:
                    open_it(tmp_path, path=path)
                assert "did you mean" not in str(missing.value)
        root.create_group("dirs/x")
        with pytest.raises(errors.NodeNotFoundError, match=r"did you mean 'dirs'\?$"):
            gzarr.open(tmp_path, path="dir")

    def test_broken_child(self):
        store = {"zarr.json": V3_GROUP, "bad/zarr.json": b"{", "good/zarr.json": v3_array()}
        group = gzarr.open(store)
        assert list(group) == ["bad", "good"]
        assert group["good"].shape == (4, 6)
        assert "bad" in group
        assert "bad [not readable: 'bad/zarr.json'" in str(group.tree())
        assert "not readable" in str(group.info)
        for call in (lambda: group["bad"], group.members, lambda: dict(group.items()), lambda: list(group.arrays())):
            with pytest.raises(errors.MetadataError, match=r"bad/zarr\.json"):
                call()

    def test_store_errors_pass(self, tmp_path):
        (tmp_path / "zarr.json").symlink_to("zarr.json")
        with pytest.raises(errors.StoreError, match=r"zarr\.json"):
            gzarr.open(tmp_path)
        with (tmp_path / ".zgroup").open("wb") as file:
            file.truncate(1 << 40)
        with pytest.raises(errors.StoreError, match="at most"):
            gzarr.open(tmp_path, zarr_format=2)

    def test_symbolic_links(self, tmp_path):
        store = LocalStore(tmp_path / "x")
        store.set("zarr.json", V3_GROUP)
        store.set("real/zarr.json", v3_array())
        (tmp_path / "x" / "alias").symlink_to("real")
        assert list(gzarr.open(tmp_path / "x")) == ["alias", "real"]
        strict = gzarr.open(LocalStore(tmp_path / "x", follow_symlinks=False))
        assert strict["real"].shape == (4, 6)
        with pytest.raises(errors.StoreError, match="symbolic link"):
            strict["alias"]

    def test_a_store_that_cannot_list(self):
        class Plain:
            def __init__(self, values):
                self.values = values

            def get(self, key):
                return self.values.get(key)

            def get_partial_values(self, key_ranges):
                return [self.values.get(key) for key, _ in key_ranges]

        group = gzarr.open(Plain({"zarr.json": V3_GROUP, "a/zarr.json": v3_array()}))
        assert group["a"].shape == (4, 6)
        assert "nope" not in group
        with pytest.raises(errors.StoreError, match="cannot list"):
            group.members()
        assert "cannot list" in str(group.info)
        with pytest.raises(errors.NodeNotFoundError):
            gzarr.open(Plain({}))


class TestConsolidated:
    def v3(self, nodes):
        inline = {"kind": "inline", "must_understand": False, "metadata": nodes}
        return json.dumps(json.loads(V3_GROUP) | {"consolidated_metadata": inline}).encode()

    def test_groups_left_out_are_implicit(self):
        group = gzarr.open({"zarr.json": self.v3({"a/b/x": json.loads(v3_array())})})
        assert group["a"].implicit
        assert group["a/b"].implicit
        assert [p for p, _ in group.members(None)] == ["a", "a/b", "a/b/x"]

    def test_v2_root_in_the_index_only(self):
        index = {
            "zarr_consolidated_format": 1,
            "metadata": {".zgroup": json.loads(V2_GROUP), "x/.zarray": json.loads(v2_array())},
        }
        group = gzarr.open({".zmetadata": json.dumps(index).encode()})
        assert (group.zarr_format, group.consolidated, list(group)) == (2, True, ["x"])

    @pytest.mark.parametrize("path", ["../x", "a//b", "a/./b", "/", ""])
    def test_paths_are_checked(self, path):
        with pytest.raises(errors.MetadataError) as info:
            gzarr.open({"zarr.json": self.v3({path: json.loads(v3_array())})})
        assert info.value.key == "zarr.json"

    def test_one_endless_path(self):
        with pytest.raises(errors.MetadataError):
            gzarr.open({"zarr.json": self.v3({"a/" * 100_000 + "x": json.loads(v3_array())})})

    def test_one_unknown_array_does_not_close_the_group(self):
        odd = v3_array(
            codecs=[{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "numcodecs.nonesuch"}]
        )
        nodes = {"good": json.loads(v3_array()), "odd": json.loads(odd)}
        store = {"zarr.json": self.v3(nodes), "good/zarr.json": v3_array(), "odd/zarr.json": odd}
        group = gzarr.open(store)
        assert group["good"].shape == (4, 6)
        with pytest.raises(errors.UnsupportedError, match="nonesuch"):
            group["odd"]


class TestPaths:
    @pytest.mark.parametrize(
        ("path", "expected"),
        [("", ""), ("/", ""), ("a", "a"), ("/a/b/", "a/b"), ("a\\b", "a\\b"), ("é", "é"), (".a", ".a")],
    )
    def test_normalized(self, path, expected):
        assert normalize_path(path) == expected

    @pytest.mark.parametrize(
        "path", ["..", "a/..", "../a", ".", "a/./b", "a//b", "...", "a\0", "\udfff\ud800", None, 3, b"a"]
    )
    def test_refused(self, path):
        with pytest.raises(errors.ArgumentError):
            normalize_path(path)
        group = gzarr.open({"zarr.json": V3_GROUP})
        with pytest.raises(errors.ArgumentError):
            group[path]
        assert path not in group
        with pytest.raises(errors.ArgumentError):
            gzarr.open({"zarr.json": V3_GROUP}, path=path)

    def test_cannot_leave_the_root(self, tmp_path):
        zarr.create_array(tmp_path / "secret", shape=(2,), dtype="i4")
        zarr.create_group(tmp_path / "public")
        for path in ["../secret", "/../secret", str(tmp_path / "secret") + "/../secret"]:
            with pytest.raises(errors.ArgumentError):
                gzarr.open(tmp_path / "public", path=path)
        with pytest.raises(errors.NodeNotFoundError):
            gzarr.open(tmp_path / "public", path=str(tmp_path / "secret"))


class TestModesAndDevices:
    @pytest.mark.parametrize("mode", ["r", "r+"])
    def test_modes_that_make_nothing(self, mode, tmp_path):
        for function in (gzarr.open, gzarr.open_array, gzarr.open_group):
            with pytest.raises(errors.NodeNotFoundError):
                function(tmp_path / "new", mode=mode)
        assert not (tmp_path / "new").exists()

    def test_devices(self):
        assert resolve_device("auto") == resolve_device("cpu") == "cpu"
        for device in ("cuda", "cuda:0", "cuda:12"):
            with pytest.raises(errors.DeviceError, match='use device="cpu"'):
                resolve_device(device)
        for device in ("", "gpu", "CPU", "cuda:", "cuda:-1", "cuda:x", "cuda:01", "cuda:١", "cpu ", 0, None):
            with pytest.raises(errors.ArgumentError):
                resolve_device(device)


class TestDisplay:
    def test_reprs(self):
        store = {"zarr.json": V3_GROUP, "a/zarr.json": v3_array(), "g/zarr.json": V3_GROUP}
        group = gzarr.open(store)
        assert repr(group) == "<gzarr.Group /, Zarr 3>"
        assert repr(group["g"]) == "<gzarr.Group /g, Zarr 3>"
        array = group["a"]
        assert repr(array) == f"<gzarr.Array /a (4, 6) float32, chunks (2, 3), {array.decode_path}>"
        info = dict(array.info.rows)
        assert (info["Shape"], info["Chunks"], info["Data type"], info["Size"]) == (
            "(4, 6)",
            "(2, 3)",
            "float32",
            "96 bytes",
        )
        assert str(array.info).startswith("Name             : /a\n")
        assert dict(group.info.rows)["Members"] == "1 array, 1 group"
        assert "<table" in group._repr_html_()
        assert "<table" in array._repr_html_()
        assert "<pre" in group.tree()._repr_html_()

    def test_html_is_escaped(self):
        name = "<script>alert(1)<"
        document = v3_array(attributes={"<u>&": 1}, dimension_names=["<i>", None])
        group = gzarr.open({"zarr.json": V3_GROUP, f"{name}/zarr.json": document})
        for text in (group.tree()._repr_html_(), group[name]._repr_html_(), group[name].info._repr_html_()):
            assert "<script>" not in text
            assert "&lt;script&gt;" in text
            assert "<i>" not in text
            assert "<u>&" not in text

    def test_terminals_are_safe(self):
        store = {"zarr.json": V3_GROUP, "x\x1b[2J\n/zarr.json": v3_array()}
        assert str(gzarr.open(store).tree()) == "/\n└── x\\x1b[2J\\n (4, 6) float32"
        assert printable("a" * 1000, 10) == "a" * 9 + "…"
        assert printable("\udc80") == "\\udc80"

    def test_sizes(self):
        assert readable_size(0) == "0 bytes"
        assert readable_size(1023) == "1023 bytes"
        assert readable_size(1536 * 1024) == "1.5 MiB (1,572,864 bytes)"


class TestPackage:
    def test_names(self):
        for name in gzarr.__all__:
            assert getattr(gzarr, name) is not None
        public = {
            name
            for name, value in vars(errors).items()
            if isinstance(value, type) and issubclass(value, errors.GzarrError)
        }
        assert public <= set(gzarr.__all__)
        assert set(gzarr.__all__) <= set(dir(gzarr))
        assert gzarr.errors is errors
        with pytest.raises(AttributeError, match="'nope'"):
            gzarr.nope


def test_moved_store_is_found_missing(tmp_path):
    root = write_hierarchy(tmp_path / "x", 3, False)
    group = gzarr.open(root)
    data = pickle.dumps(group)
    shutil.rmtree(root)
    with pytest.raises(errors.NodeNotFoundError):
        pickle.loads(data)
