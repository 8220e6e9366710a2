"""Names of nodes: one rule for what is created, listed and consolidated, beside keys that other programs have left."""

from __future__ import annotations

import contextlib
import errno
import itertools
import posixpath
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import zarr
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from support import servers

import gzarr
from gzarr.errors import ArgumentError, ChunkWriteError, GzarrError, MetadataError, NodeNotFoundError, StoreError
from gzarr.stores.keys import MAX_DEPTH, name_fault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: More nodes than any hierarchy here has: a walk that gives as many has no end.
MOST = 50
DOCUMENTS = ("zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata")
PLACES = ("dict", "memory", "local", "zip", "fsspec", "zarr memory", "zarr local")

# Segments that are no names, those that are names of other things, and any text.
segments = st.one_of(
    st.sampled_from(
        ["", ".", "..", "...", "zarr.json", ".zarray", ".zgroup", "c", "0", "__x", "a\\b", "a:b", "é", "x"]
    ),
    st.text(st.characters(exclude_characters="\0/", exclude_categories=["Cs"]), min_size=1, max_size=8),
)
keys = st.lists(segments, min_size=1, max_size=4).map("/".join)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """Run an S3 server with a bucket; return its URL."""
    with servers.s3_server() as address:
        servers.make_bucket(address, "bucket")
        yield f"http://{address[0]}:{address[1]}"


@pytest.fixture(scope="module")
def s3(server: str) -> Callable[[str], Any]:
    """Return a function of the name of a root that returns a store there."""
    options = servers.s3_options(server)
    return lambda root: gzarr.open_store(f"s3://bucket/{root}", read_only=False, storage_options=options)


def place(kind: str, folder: Path) -> Any:
    """Return an empty place for a hierarchy."""
    if kind == "dict":
        return {}
    if kind == "memory":
        return gzarr.MemoryStore()
    if kind == "local":
        return gzarr.LocalStore(folder / "h")
    if kind == "zip":
        return gzarr.ZipStore(folder / "h.zip", mode="w")
    if kind == "fsspec":
        return gzarr.open_store(f"memory://{folder}", read_only=False)
    return zarr.storage.MemoryStore() if kind == "zarr memory" else zarr.storage.LocalStore(folder / "h")


def leave(kind: str, store: Any, folder: Path, key: str) -> None:
    """Put a value where another program may leave one, as far as the place can hold it."""
    import zarr.core.sync

    if kind == "dict":
        store.setdefault(key, b"{}")
    elif kind == "memory":
        store.mapping.setdefault(key, b"{}")
    elif kind == "zip":
        store.close()
        with zipfile.ZipFile(folder / "h.zip", "a") as archive:
            if key and key not in archive.namelist():
                archive.writestr(key, b"{}")
    elif kind == "fsspec":
        import fsspec

        with contextlib.suppress(OSError, ValueError):
            fsspec.filesystem("memory").pipe_file(f"{folder}/{key}", b"{}", mode="create")
    elif kind == "zarr memory":
        buffer = zarr.core.buffer.default_buffer_prototype().buffer.from_bytes(b"{}")
        store._store_dict.setdefault(key, buffer)
    else:
        target = Path(folder, "h", *key.split("/"))
        try:
            if not target.exists() and target.resolve().is_relative_to((folder / "h").resolve()):
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(b"{}")
        except OSError:
            pass


def opened(kind: str, store: Any, folder: Path) -> Any:
    return gzarr.ZipStore(folder / "h.zip") if kind == "zip" else store


def check_ends(store: Any) -> None:
    """Check that every walk over a hierarchy ends, and shows what was created."""
    root = gzarr.open_group(store)
    found = []
    try:
        for path, _ in itertools.islice(root.walk(), MOST):
            found.append(path)
    except MetadataError:
        return
    assert len(found) < MOST
    assert "x" in found
    assert all(name_fault(name) is None for path in found for name in path.split("/"))
    assert len(str(root.tree()).splitlines()) == len(found) + 1
    assert list(root) == sorted({path.split("/")[0] for path in found})


@pytest.mark.parametrize("kind", PLACES)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(foreign=st.lists(keys, max_size=4), zarr_format=st.sampled_from([2, 3]))
def test_foreign_keys_are_passed_over(
    kind: str, tmp_path_factory: pytest.TempPathFactory, foreign: list[str], zarr_format: Any
) -> None:
    folder = tmp_path_factory.mktemp("names")
    store = place(kind, folder)
    gzarr.create_array(store, path="x", data=[1, 2], zarr_format=zarr_format)
    gzarr.create_group(store, path="t/u", zarr_format=zarr_format)
    for key in foreign:
        if posixpath.basename(posixpath.normpath(key)) in DOCUMENTS:
            # A document of a node, and no foreign key. In a directory, "/" and "/." at the end make no difference.
            continue
        if kind.startswith("zarr ") and key in ("x", "t", "t/u"):
            # These stores list names, and do not say which of them are prefixes, too.
            continue
        leave(kind, store, folder, key)
    store = opened(kind, store, folder)
    check_ends(store)
    try:
        target: dict[str, bytes] = {}
        gzarr.copy(store, target, progress=False)
    except GzarrError:
        return
    check_ends(target)
    if kind != "zip":
        gzarr.consolidate_metadata(store)
        check_ends(store)
        np.testing.assert_array_equal(gzarr.open_group(store, use_consolidated=True)["x"][...], [1, 2])


@pytest.mark.parametrize("kind", [*PLACES, "s3"])
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(names=st.lists(segments, min_size=1, max_size=3), zarr_format=st.sampled_from([2, 3]))
@example(names=["\x1f"], zarr_format=2)
@example(names=["g", "\x1f"], zarr_format=3)
def test_what_can_be_created_can_be_opened(
    kind: str,
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    names: list[str],
    zarr_format: Any,
) -> None:
    folder = tmp_path_factory.mktemp("names")
    store = request.getfixturevalue("s3")(folder.name) if kind == "s3" else place(kind, folder)
    root = gzarr.open_group(store, mode="a", zarr_format=zarr_format)
    path = "/".join(names)
    failure: ChunkWriteError | None = None
    try:
        root.create_array(path, data=[1, 2])
    except (ArgumentError, StoreError):
        return
    except ChunkWriteError as error:
        failure = error
    if failure is not None:
        # The store has no such keys, and nothing was asked for at them before.
        assert isinstance(failure.__cause__, StoreError)
        assert path not in dict(gzarr.open_group(store).walk())
        return
    path = path.strip("/")
    names = path.split("/")
    assert all(name_fault(name) is None for name in names)
    if kind == "zip":
        store.flush()
    for _ in range(2):
        root = gzarr.open_group(store)
        np.testing.assert_array_equal(root[path][...], [1, 2])
        assert [found for found, _ in root.walk()] == ["/".join(names[:i]) for i in range(1, len(names) + 1)]
        gzarr.consolidate_metadata(store)
    copied: dict[str, bytes] = {}
    gzarr.copy(store, copied, progress=False)
    np.testing.assert_array_equal(gzarr.open_array(copied, path=path)[...], [1, 2])


def test_a_key_without_a_first_name() -> None:
    values: dict[str, bytes] = {}
    gzarr.open_group(values, mode="w").create_array("x", data=[1])
    values["/notes.txt"] = b""
    values["t//y"] = b""
    check_ends(values)
    gzarr.open_group(values, mode="w")
    assert list(gzarr.MemoryStore(values).list()) == ["zarr.json"]


def test_a_foreign_key_in_a_bucket(server: str, s3: Callable[[str], Any]) -> None:
    """obstore lists no page with such a key, so a listing that has to look at it is an error, after one request."""
    import boto3

    store = s3("foreign")
    gzarr.open_group(store, mode="w").create_array("x", data=[1])
    client = boto3.client(
        "s3",
        endpoint_url=server,
        aws_access_key_id="ACCESS",
        aws_secret_access_key=servers.S3_SECRET,
        region_name="us-east-1",
    )
    client.put_object(Bucket="bucket", Key="foreign/t//y", Body=b"")
    with pytest.raises(StoreError, match=r"t//y.*is not a key.*erase it"):
        list(gzarr.open_group(store).walk())
    np.testing.assert_array_equal(gzarr.open_group(store)["x"][...], [1])


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_backslashes(zarr_format: Any, tmp_path: Path) -> None:
    group = gzarr.create_group(tmp_path / "b", zarr_format=zarr_format)
    group.create_array("u\\v", data=[1])
    gzarr.consolidate_metadata(tmp_path / "b")
    assert list(gzarr.open_group(tmp_path / "b", use_consolidated=True)) == ["u\\v"]


@pytest.mark.parametrize(
    "name",
    [
        "zarr.json", ".zgroup", "a/.zarray", "a//b", "...", "a/../b", "a\0b",
        # Those that a directory could not hold.
        ".gzarr-locks", "a/.gzarr-locks/b", ".gzarr-temporary-1",
    ],
)  # fmt: skip
def test_names_that_are_refused(name: str) -> None:
    values: dict[str, bytes] = {}
    group = gzarr.create_group(values)
    for create in (lambda: group.create_array(name, data=[1]), lambda: group.create_group(name)):
        with pytest.raises(ArgumentError):
            create()
    assert list(values) == ["zarr.json"]


@pytest.mark.parametrize("name", ["y" * 256, "\u00e9" * 150, "x/" + "y" * 300, "y" * 300 + "/x"], ids=len)
@pytest.mark.parametrize("zarr_format", [2, 3, "3-draft-2022"])
def test_names_that_no_file_can_have(name: str, zarr_format: Any, tmp_path: Path) -> None:
    """There is no such node; only making one is an error of the store."""
    group = gzarr.create_group(tmp_path, zarr_format=zarr_format)
    group.create_array("x", data=[1])
    assert name not in group
    assert group.get(name) is None
    for look in (
        lambda: group[name],
        lambda: group.__delitem__(name),
        lambda: group.move(name, "z"),
        lambda: gzarr.open(tmp_path, path=name),
        lambda: gzarr.open_array(tmp_path, path=name, zarr_format=zarr_format),
        lambda: gzarr.open_group(tmp_path, path=name, mode="r+"),
    ):
        with pytest.raises(NodeNotFoundError, match=r"^no (array|group)"):
            look()
    if name.startswith("x/"):
        return
    for make in (
        lambda: group.create_group(name),
        lambda: group.create_array(name, data=[1]),
        lambda: group.require_group(name),
        lambda: group.move("x", name),
        lambda: gzarr.open_group(tmp_path, path=name, mode="a"),
    ):
        with pytest.raises(StoreError, match="too long") as raised:
            make()
        assert raised.value.errno == errno.ENAMETOOLONG
    assert list(group) == ["x"]


def test_a_name_whose_documents_in_other_formats_are_too_long(tmp_path: Path) -> None:
    """The document of a draft has a longer name than the node."""
    group = gzarr.create_group(tmp_path, zarr_format="3-draft-2022")
    assert "y" * 250 not in group
    with pytest.raises(NodeNotFoundError):
        group["y" * 250]
    plain = gzarr.create_group(tmp_path / "plain")
    plain.create_array("y" * 255, data=[1])
    assert "y" * 255 in plain


def test_a_path_that_is_too_long_as_a_whole_may_exist(tmp_path: Path) -> None:
    group = gzarr.create_group(tmp_path)
    with pytest.raises(StoreError, match="too long"):
        "/".join(["y" * 200] * 45) in group  # noqa: B015


def test_deep_paths(tmp_path: Path) -> None:
    values: dict[str, bytes] = {}
    deepest = "/".join("a" * MAX_DEPTH)
    gzarr.create_array(values, path=deepest, data=[1])
    assert sum(1 for _ in gzarr.open_group(values).walk()) == MAX_DEPTH
    for depth in (MAX_DEPTH + 1, 1500, 100_000):
        with pytest.raises(ArgumentError, match=f"{depth} names; a path has at most {MAX_DEPTH}"):
            gzarr.create_array({}, path="/".join("a" * depth), data=[1])
    # Others may have made one.
    values[f"{deepest}/b/zarr.json"] = values[f"{deepest}/zarr.json"]
    values[f"{deepest}/zarr.json"] = values["zarr.json"]
    with pytest.raises(StoreError, match="levels deep"):
        gzarr.open_group(values).nmembers(None)
    document = (
        b'{"zarr_format": 3, "node_type": "group", "consolidated_metadata": {"kind": "inline", "must_understand": '
        b'false, "metadata": {"%s": %s}}}' % ("/".join("a" * 1500).encode(), values["zarr.json"])
    )
    with pytest.raises(MetadataError, match="is not the path of a node"):
        gzarr.open_group({"zarr.json": document})


def test_links_in_a_circle_are_no_nodes(tmp_path: Path) -> None:
    """Two links would double the nodes with each level."""
    group = gzarr.create_group(tmp_path / "h")
    group.create_array("a/x", data=[1])
    (tmp_path / "h/a/up").symlink_to(tmp_path / "h")
    (tmp_path / "h/a/here").symlink_to(tmp_path / "h/a")
    opened = gzarr.open_group(tmp_path / "h")
    assert [path for path, _ in opened.walk()] == ["a", "a/x"]
    copied: dict[str, bytes] = {}
    gzarr.copy(opened, copied, progress=False)
    assert sorted(copied) == ["a/x/c/0", "a/x/zarr.json", "a/zarr.json", "zarr.json"]
    # By name, as for the system.
    np.testing.assert_array_equal(opened["a/up/a/x"][...], [1])
    np.testing.assert_array_equal(gzarr.open_array(tmp_path / "h", path="a/x")[...], [1])
