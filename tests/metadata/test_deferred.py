"""Consolidated metadata whose documents are parsed when they are asked for: the same as if all were parsed at once."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import zarr
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import gzarr
from gzarr.documents import deferred
from gzarr.documents.deferred import Deferred, load_around
from gzarr.documents.departures import collect
from gzarr.documents.json import load_document
from gzarr.errors import MetadataError
from gzarr.metadata.parts import ConsolidatedNodes

if TYPE_CHECKING:
    from pathlib import Path

NAMES = ("consolidated_metadata", "metadata")
BOX = settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck), database=None)

texts = st.text(st.sampled_from([*'"\\{}[]:, aé0\n']), max_size=8)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
names = texts | st.sampled_from(NAMES)
objects = st.dictionaries(names, values, max_size=3)
indexes = st.dictionaries(names, objects | values, max_size=4)


@st.composite
def documents(draw: st.DrawFn) -> bytes:
    """A document with others inside, written in any way."""
    before, after = draw(objects), draw(objects)
    inline = {**draw(objects), "metadata": draw(indexes)}
    document = {**before, "consolidated_metadata": inline, **after}
    ascii, indent = draw(st.booleans()), draw(st.sampled_from([None, 2]))
    return json.dumps(document, ensure_ascii=ascii, indent=indent).encode()


def complete(document: Any) -> Any:
    """Return what was loaded, with everything in it parsed."""
    if isinstance(document, Deferred):
        return document.load("k")
    if isinstance(document, dict):
        return {name: complete(value) for name, value in document.items()}
    return document


def outcome(parse: Any, data: bytes) -> Any:
    try:
        return complete(parse(data))
    except MetadataError:
        return MetadataError


@BOX
@given(data=documents(), wanted=st.sampled_from([None, "metadata"]))
def test_documents_are_the_same(data: bytes, wanted: str | None) -> None:
    found = load_around(data, "k", NAMES, wanted=wanted)
    assert complete(found) == json.loads(data)
    assert json.dumps(complete(found)) == json.dumps(json.loads(data))


@BOX
@given(
    data=documents(),
    at=st.floats(0, 1),
    piece=st.sampled_from([*'"\\{}[]:,0', "", '"a":', '"metadata":{']),
    cut=st.integers(0, 3),
)
@example(data=b'{"consolidated_metadata":{"metadata":{"a":{"b":1}}}}', at=1, piece="}", cut=0)
@example(data=b'{"consolidated_metadata":{"metadata":{"a":{"b":1}}}}', at=0.8, piece='"', cut=1)
def test_what_is_no_json_is_refused(data: bytes, at: float, piece: str, cut: int) -> None:
    """If not at once, then when the document is asked for."""
    place = int(at * len(data))
    damaged = data[:place] + piece.encode() + data[place + cut :]
    expected = outcome(lambda data: load_document(data, "k"), damaged)
    assert outcome(lambda data: load_around(data, "k", NAMES), damaged) == expected


def test_documents_are_not_parsed() -> None:
    inside = b'{"a": {"x": [{}, "}"]}, "b": {"c": }, "d": 0.5}'
    data = b'{"consolidated_metadata": {"kind": "}", "metadata": ' + inside + b'}, "e": {}}'
    found = load_around(data, "k", NAMES)
    documents = found["consolidated_metadata"]["metadata"]
    assert found["e"] == {}
    assert [type(value) for value in documents.values()] == [Deferred, Deferred, float]
    assert documents["a"].load("k") == {"x": [{}, "}"]}
    with pytest.raises(MetadataError, match=r"'the key' at .*not valid JSON"):
        documents["b"].load("the key")


def test_text_that_is_parsed_at_once() -> None:
    data = b'{"consolidated_metadata": {"metadata": {"a": {"b": NaN}}}}'
    with collect() as departures:
        found = load_around(data, "k", NAMES)
    assert "NaN" in departures[0]
    assert list(found["consolidated_metadata"]["metadata"]["a"]) == ["b"]
    # A number among the documents looks like the place of one.
    mixed = load_around(b'{"consolidated_metadata": {"metadata": {"a": 0, "b": {}}}}', "k", NAMES)
    assert mixed["consolidated_metadata"]["metadata"] == {"a": 0, "b": {}}


@pytest.mark.parametrize("spelling", ["wanted", "w\\u0061nted"])
def test_wanted_documents_are_parsed(spelling: str) -> None:
    text = '{"metadata": {"a": {}, "b": {"wanted": 1}, "c": {"wanted": }, "d": {"e": 2}}}'.replace("wanted", spelling)
    inside = load_around(text.encode(), "k", ("metadata",), wanted="wanted")["metadata"]
    assert [type(value) for value in inside.values()] == [Deferred, dict, Deferred, Deferred]


# -- groups


def consolidated(zarr_format: Any, folder: Path) -> dict[str, bytes]:
    """Return the documents of a hierarchy as zarr-python consolidates it."""
    root = zarr.create_group(str(folder), zarr_format=zarr_format, attributes={"title": 'a "{" b'})
    for name in ("x", "y", "g/z", "g/h/i/w"):
        array = root.create_array(
            name, shape=(3, 4), dtype="f4", chunks=(2, 2), attributes={"brackets": ["}]", {"a": []}]}
        )
        array[...] = np.arange(12).reshape(3, 4)
    root.create_group("empty", attributes={"a": 1})
    zarr.consolidate_metadata(str(folder), zarr_format=zarr_format)
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


KEYS = {2: ".zmetadata", 3: "zarr.json"}


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_members_are_those_of_zarr_python(zarr_format: Any, tmp_path: Path) -> None:
    store = consolidated(zarr_format, tmp_path)
    theirs = zarr.open_consolidated(str(tmp_path), zarr_format=zarr_format)
    ours = gzarr.open_consolidated(store)
    expected = sorted(path for path, _ in theirs.members(max_depth=None))
    assert sorted(path for path, _ in ours.members(max_depth=None)) == expected
    assert list(ours) == sorted(theirs) == ["empty", "g", "x", "y"]
    for path in expected:
        a, b = ours[path], theirs[path]
        assert isinstance(a, gzarr.Array) == isinstance(b, zarr.Array)
        assert dict(a.attrs) == dict(b.attrs)
        if isinstance(a, gzarr.Array):
            assert (a.shape, a.dtype, a.chunks) == (b.shape, b.dtype, b.chunks)
            np.testing.assert_array_equal(a[...], b[...])


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_only_what_is_asked_for_is_parsed(zarr_format: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = consolidated(zarr_format, tmp_path)
    parsed: list[str] = []
    find, load = ConsolidatedNodes.__getitem__, Deferred.load
    monkeypatch.setattr(ConsolidatedNodes, "__getitem__", lambda self, path: (parsed.append(path), find(self, path))[1])
    texts: list[str] = []
    monkeypatch.setattr(Deferred, "load", lambda self, key: (texts.append(key), load(self, key))[1])
    group = gzarr.open_group(store)
    # zarr-python writes consolidated metadata into the groups within a group of version 3, too.
    nested = 4 if zarr_format == 3 else 0
    assert (list(group), len(group), "x" in group, "none" in group) == (["empty", "g", "x", "y"], 4, True, False)
    assert (parsed, len(texts)) == ([], nested)
    assert group["x"].shape == (3, 4)
    assert set(parsed) == {"x"}
    assert len(texts) == nested + {2: 2, 3: 1}[zarr_format]
    assert group["g/h/i/w"].shape == (3, 4)
    assert set(parsed) == {"x", "g", "g/h", "g/h/i", "g/h/i/w"}


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("damage", ["syntax", "meaning", "UTF-8"])
def test_an_error_comes_when_the_node_is_asked_for(damage: str, zarr_format: Any, tmp_path: Path) -> None:
    store = consolidated(zarr_format, tmp_path)
    key = KEYS[zarr_format]
    index = json.loads(store[key])
    inside = index["metadata"] if zarr_format == 2 else index["consolidated_metadata"]["metadata"]
    inside["y/.zarray" if zarr_format == 2 else "y"]["shape"] = "HERE"
    piece = {"syntax": b"[1, ", "meaning": b'"three"', "UTF-8": b'"\xff"'}[damage]
    store[key] = json.dumps(index).encode().replace(b'"HERE"', piece if damage != "syntax" else b"[1 2]")
    group = gzarr.open_group(store)
    assert list(group) == ["empty", "g", "x", "y"]
    assert "y" in group
    assert group["x"].shape == (3, 4)
    for _ in range(2):
        with pytest.raises(MetadataError, match=r"consolidated metadata of 'y'"):
            group["y"]
    assert sum(isinstance(node, MetadataError) for _, node in group.walk()) == 1
    assert "consolidated metadata of 'y'" in str(group.tree())
    with pytest.raises(MetadataError, match="'y'"):
        group.members()


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("damage", ["number", "cut", "path", "twice"])
def test_what_is_checked_at_once(damage: str, zarr_format: Any, tmp_path: Path) -> None:
    """That there are documents, by paths below the group."""
    store = consolidated(zarr_format, tmp_path)
    key = KEYS[zarr_format]
    index = json.loads(store[key])
    inside = index["metadata"] if zarr_format == 2 else index["consolidated_metadata"]["metadata"]
    name = "y/.zarray" if zarr_format == 2 else "y"
    if damage == "number":
        inside[name] = 3
    elif damage == "path":
        inside["../" + name] = inside.pop(name)
    text = json.dumps(index)
    if damage == "twice":
        other = name.replace("y", "x", 1)
        text = text.replace(json.dumps(name) + ":", json.dumps(other) + ":")
    store[key] = text.encode()[: -1 if damage == "cut" else None]
    with pytest.raises(MetadataError) as caught:
        gzarr.open_group(store)
    assert caught.value.key == key


def test_documents_stay_when_attributes_of_the_group_change(tmp_path: Path) -> None:
    store = consolidated(3, tmp_path)
    before = json.loads(store["zarr.json"])
    group = gzarr.open_group(store, mode="r+")
    group.attrs["title"] = "new"
    after = json.loads(store["zarr.json"])
    assert after.pop("attributes") == {"title": "new"}
    before.pop("attributes")
    assert after == before
    assert gzarr.open_group(store).consolidated


def test_departures_are_found_at_once(tmp_path: Path) -> None:
    store = consolidated(2, tmp_path)
    store[".zmetadata"] = store[".zmetadata"].replace(b'"dimension_separator": "."', b'"dimension_separator": null')
    with collect() as departures:
        gzarr.open_group(store)
    assert sum("dimension_separator" in text for text in departures) == 4


def test_a_node_below_an_array_does_not_count(tmp_path: Path) -> None:
    store = consolidated(3, tmp_path)
    index = json.loads(store["zarr.json"])
    inside = index["consolidated_metadata"]["metadata"]
    inside["x/below"] = inside["x"]
    store["zarr.json"] = json.dumps(index).encode()
    group = gzarr.open_group(store)
    assert "x/below" not in group
    assert "x/below" not in [path for path, _ in group.members(None)]


def test_many_objects_beside_the_index() -> None:
    """They are not all looked at."""
    many = {f"a{i}": {} for i in range(deferred._MOST_OBJECTS + 1)}
    data = json.dumps({**many, "metadata": {"a": {"b": 1}}}).encode()
    assert load_around(data, "k", ("metadata",))["metadata"] == {"a": {"b": 1}}
