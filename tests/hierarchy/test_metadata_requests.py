"""Requests of changes of metadata in S3: how many, and how many one after the other; what they find all the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pytest
from support import servers
from support.fault_proxy import FaultProxy
from support.requests_of import LATENCY_S, requests_of, round_trips

import gzarr
from gzarr.errors import ArgumentError, NodeTypeError, StoreError
from gzarr.nodes import surroundings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.fault_proxy import Seen

    Format = Literal[2, 3]


@pytest.fixture(scope="module")
def proxy() -> Iterator[FaultProxy]:
    with servers.s3_server(atomic=True) as address, FaultProxy(address, counted_latency_s=LATENCY_S) as proxy:
        servers.make_bucket(address, "bucket")
        # Whether the bucket exists is asked for once.
        store_in(proxy, "other").get("key")
        yield proxy


@pytest.fixture
def store(proxy: FaultProxy, request: pytest.FixtureRequest) -> Any:
    return store_in(proxy, request.node.name)


def store_in(proxy: FaultProxy, name: str) -> Any:
    options = servers.s3_options(proxy.url, **servers.PATIENT)
    name = "".join(c if c.isalnum() else "-" for c in name)
    return gzarr.open_store(f"s3://bucket/{name}", read_only=False, storage_options=options)


def cost(proxy: FaultProxy, work: Callable[[], object]) -> tuple[int, int]:
    """Return the number of requests, and of round trips."""
    seen, _ = requests_of(proxy, work)
    asked = [one.path for one in seen if one.method == "GET"]
    assert len(asked) == len(set(asked))
    return len(seen), round_trips(seen)


def new(store: Any, path: str, zarr_format: Format = 3, **options: Any) -> gzarr.Array:
    data = {} if "data" in options else {"shape": 8, "dtype": "u1"}
    return gzarr.create_array(store, path=path, chunks=4, zarr_format=zarr_format, **data, **options)


#: What zarr-python 3.1.6 needs is at least as much in each case.
CREATED = {
    2: {"": (2, 2), "x": (7, 2), "g/x": (12, 2), "below": (6, 2), "new/groups/below": (16, 2)},
    3: {"": (2, 2), "x": (4, 2), "g/x": (6, 2), "below": (3, 2), "new/groups/below": (7, 2)},
}


@pytest.mark.parametrize("path", CREATED[3])
@pytest.mark.parametrize("kind", ["array", "group"])
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_creation(kind: str, path: str, zarr_format: Format, store: Any, proxy: FaultProxy) -> None:
    if "below" in path:
        gzarr.create_group(store, zarr_format=zarr_format, attributes={"a": 1})
    if kind == "array":
        found = cost(proxy, lambda: new(store, path, zarr_format))
    else:
        found = cost(proxy, lambda: gzarr.create_group(store, path=path, zarr_format=zarr_format))
    assert found == CREATED[zarr_format][path]
    node = gzarr.open(store, path=path, zarr_format=zarr_format)
    assert isinstance(node, gzarr.Array) == (kind == "array")
    for above in {"", path.rpartition("/")[0], path.partition("/")[0]} - {path}:
        group = gzarr.open_group(store, path=above, zarr_format=zarr_format)
        assert not group.implicit
        assert dict(group.attrs) == ({"a": 1} if "below" in path and not above else {})


def test_creation_with_data(store: Any, proxy: FaultProxy) -> None:
    """Chunks come before the document, and groups above before both."""
    gzarr.create_group(store)
    seen, _ = requests_of(proxy, lambda: new(store, "g/x", data=np.ones(8, "u1")))
    assert round_trips(seen) == 4
    assert [puts(seen)[0], puts(seen)[-1]] == ["g/zarr.json", "g/x/zarr.json"]
    assert len(seen) == 7
    np.testing.assert_array_equal(gzarr.open_array(store, path="g/x")[...], np.ones(8))


def puts(seen: list[Seen]) -> list[str]:
    return [one.path.split("/", 3)[3] for one in seen if one.method == "PUT"]


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_changes(zarr_format: Format, store: Any, proxy: FaultProxy) -> None:
    """An array's document and that of the group above, which may have consolidated metadata, are read together."""
    more = {3: 0, 2: 1}[zarr_format]
    gzarr.create_group(store, zarr_format=zarr_format)
    array = new(store, "x", zarr_format, attributes={"a": 0})
    assert cost(proxy, lambda: array.attrs.update(a=1)) == (3 + more, 2)
    # One looks whether there is a chunk beyond the end.
    assert cost(proxy, lambda: array.resize(12)) == (4 + more, 3)
    assert cost(proxy, lambda: array.resize(9, erase=False)) == (3 + more, 2)
    array.resize(8)
    assert cost(proxy, lambda: array.append(np.ones(4, "u1"))) == (4 + more, 3)
    group = gzarr.open_group(store, mode="r+", zarr_format=zarr_format)
    assert cost(proxy, lambda: group.attrs.update(a=1)) == (2 + 2 * more, 2)
    again = gzarr.open_array(store, path="x", zarr_format=zarr_format)
    assert dict(again.attrs) == {"a": 1}
    assert again[...].tolist() == [0] * 8 + [1] * 4


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_append(zarr_format: Format, store: Any, proxy: FaultProxy) -> None:
    """It looks where the elements belong, writes them, and then the document: none can begin before the one before."""
    gzarr.create_group(store, zarr_format=zarr_format)
    array = new(store, "x", zarr_format)
    document = {2: ".zarray", 3: "zarr.json"}[zarr_format]
    for length, whole in [(4, True), (8, True), (2, False), (2, False)]:
        seen, _ = requests_of(proxy, lambda length=length: array.append(np.ones(length, "u1")))  # type: ignore[misc]
        *chunks, last = [one for one in seen if one.method == "PUT"]
        assert last.path.endswith(f"x/{document}")
        assert max(one.end for one in chunks) <= last.begin
        (looked,) = [one for one in seen if one.method == "GET" and one.path.endswith(f"x/{document}")]
        assert looked.end <= min(one.begin for one in chunks)
        # A chunk of which only a part is written is looked for, or read.
        assert round_trips(seen) == 3 + (not whole)
        assert len(seen) == len(chunks) + {2: 3, 3: 2}[zarr_format] + 1 + (not whole)
    again = gzarr.open_array(store, path="x", zarr_format=zarr_format)
    assert again[...].tolist() == [0] * 8 + [1] * 16


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_opening(zarr_format: Format, store: Any, proxy: FaultProxy) -> None:
    gzarr.create_group(store, zarr_format=zarr_format)
    new(store, "x", zarr_format)
    # Version 3 is looked for first.
    assert cost(proxy, lambda: gzarr.open(store)) == {3: (1, 1), 2: (5, 2)}[zarr_format]
    assert cost(proxy, lambda: gzarr.open_array(store, path="x")) == {3: (1, 1), 2: (4, 2)}[zarr_format]


# -- what fewer requests must not miss


@pytest.fixture(params=["small", "large"])
def any_store(request: pytest.FixtureRequest, store: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A store with all keys on a page of a listing, or with more."""
    if request.param == "large":
        monkeypatch.setattr(surroundings, "_large", {store})
    return store


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_consolidated_metadata_above_are_removed(zarr_format: Format, any_store: Any) -> None:
    gzarr.create_group(any_store, path="g", zarr_format=zarr_format)
    array = new(any_store, "g/x", zarr_format)
    changes: list[Callable[[], object]] = [
        lambda: new(any_store, "g/y", zarr_format),
        lambda: new(any_store, "g/h/z", zarr_format, data=np.ones(8, "u1")),
        lambda: gzarr.create_group(any_store, path="i", zarr_format=zarr_format),
        lambda: array.attrs.update(a=1),
        lambda: array.resize(12),
        lambda: array.append(np.ones(4, "u1")),
        lambda: new(any_store, "g/x", zarr_format, overwrite=True),
    ]
    for change in changes:
        gzarr.consolidate_metadata(any_store)
        assert gzarr.open_group(any_store).metadata.consolidated is not None
        change()
        assert gzarr.open_group(any_store).metadata.consolidated is None


def test_consolidated_while_elements_are_appended(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    gzarr.create_group(store)
    array = new(store, "x")
    write = gzarr.Array._write

    def consolidate(self: Any, *arguments: Any, **options: Any) -> None:
        write(self, *arguments, **options)
        gzarr.consolidate_metadata(store)

    monkeypatch.setattr(gzarr.Array, "_write", consolidate)
    array.append(np.ones(4, "u1"))
    assert gzarr.open_group(store).metadata.consolidated is None


def test_appended_by_another_meanwhile(store: Any) -> None:
    """Whoever has opened an array before another process appended to it appends after that."""
    first = new(store, "x")
    second = gzarr.open_array(store, path="x", mode="r+")
    first.append(np.ones(4, "u1"))
    second.append(np.full(4, 2, "u1"))
    assert gzarr.open_array(store, path="x")[8:].tolist() == [1] * 4 + [2] * 4


OTHERS = {
    "v2 group": {".zgroup": b'{"zarr_format": 2}'},
    "v2 array": {
        ".zarray": b'{"zarr_format": 2, "shape": [4], "chunks": [4], "dtype": "|u1", "compressor": null, '
        b'"fill_value": 0, "filters": null, "order": "C"}'
    },
    "N5": {"attributes.json": b'{"n5": "2.0.0"}'},
    "v3 array": {},
}


@pytest.mark.parametrize("other", OTHERS)
def test_nodes_above(other: str, any_store: Any) -> None:
    """Of other formats, and arrays."""
    if other == "v3 array":
        new(any_store, "g")
    for name, document in OTHERS[other].items():
        any_store.set(f"g/{name}", document)
    before = sorted(any_store.list())
    with pytest.raises((ArgumentError, NodeTypeError), match="'/g'"):
        new(any_store, "g/h/x")
    assert sorted(any_store.list()) == before


@pytest.mark.parametrize("other", OTHERS)
def test_nodes_there(other: str, any_store: Any) -> None:
    if other == "v3 array":
        new(any_store, "g")
    for name, document in OTHERS[other].items():
        any_store.set(f"g/{name}", document)
    before = sorted(any_store.list())
    with pytest.raises(ArgumentError, match=r"already|is read, not written"):
        new(any_store, "g")
    assert sorted(any_store.list()) == before
    new(any_store, "g", overwrite=True)
    assert gzarr.open_array(any_store, path="g").zarr_format == 3


def test_chunks_and_nodes_below(any_store: Any) -> None:
    any_store.set("x/c/1", b"left by something")
    with pytest.raises(ArgumentError, match="'x/c/1' would be a chunk"):
        new(any_store, "x")
    new(any_store, "g/y")
    any_store.erase("g/zarr.json")
    with pytest.raises(ArgumentError, match="with nodes below it"):
        new(any_store, "g")
    gzarr.create_group(any_store, path="g", attributes={"a": 1})
    assert list(gzarr.open_group(any_store, path="g")) == ["y"]


def test_a_store_with_more_than_a_page(proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is known from the first creation on; a listing of other keys tells nothing of a new node."""
    store = store_in(proxy, "large")
    gzarr.create_group(store, path="g")
    list_page = type(store).list_page
    monkeypatch.setattr(type(store), "list_page", lambda self, prefix: (list_page(self, prefix)[0][:1], bool(prefix)))
    assert cost(proxy, lambda: new(store, "a")) == (4, 3)
    assert cost(proxy, lambda: new(store, "b")) == (3, 2)
    assert cost(proxy, lambda: new(store, "g/b")) == (4, 2)
    with pytest.raises(ArgumentError, match="already"):
        new(store, "a")
    assert sorted(gzarr.open_group(store)) == ["a", "b", "g"]


# -- failures and rivals


def test_a_group_that_cannot_be_written(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The node below it, which was written at the same time, is not left."""
    create = type(store).create

    def fail(self: Any, key: str, value: bytes) -> bool:
        if key == "g/zarr.json":
            raise StoreError("made up", key=key)
        return create(self, key, value)

    monkeypatch.setattr(type(store), "create", fail)
    with pytest.raises(StoreError, match="made up"):
        new(store, "g/x")
    assert store.get("g/x/zarr.json") is None
    monkeypatch.undo()
    new(store, "g/x")


@pytest.mark.parametrize("kind", ["array", "group"])
def test_a_rival_makes_what_is_above(kind: str, store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between looking and writing: a group stays as it is; below an array nothing is created."""
    create = type(store).create
    other: dict[str, Any] = {}
    if kind == "array":
        new(other, "g", attributes={"a": 1})
    else:
        gzarr.create_group(other, path="g", attributes={"a": 1})

    def after_a_rival(self: Any, key: str, value: bytes) -> bool:
        if key == "g/zarr.json":
            self.set(key, bytes(other[key]))
        return create(self, key, value)

    monkeypatch.setattr(type(store), "create", after_a_rival)
    if kind == "array":
        with pytest.raises(NodeTypeError, match=r"'/g' .* is an array"):
            new(store, "g/x")
        assert store.get("g/x/zarr.json") is None
    else:
        new(store, "g/x")
    assert dict(gzarr.open(store, path="g").attrs) == {"a": 1}


def test_a_rival_makes_the_same(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    create = type(store).create
    other: dict[str, Any] = {}
    new(other, "x", attributes={"a": 1})

    def after_a_rival(self: Any, key: str, value: bytes) -> bool:
        if key == "x/zarr.json":
            self.set(key, bytes(other[key]))
        return create(self, key, value)

    monkeypatch.setattr(type(store), "create", after_a_rival)
    with pytest.raises(ArgumentError, match="already"):
        new(store, "x")
    assert dict(gzarr.open(store, path="x").attrs) == {"a": 1}
