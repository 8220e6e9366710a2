"""Stores in ``tests/golden``, made by the scripts in ``tests/interop``; and ways to damage documents."""

from __future__ import annotations

import base64
import copy
import io
import json
import os
import tarfile
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gzarr.errors import MetadataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

GOLDEN = Path(__file__).parents[1] / "golden"
#: Directory of the archives of version 2 and 3; ``ci/interop`` sets another one, with new archives.
V2_V3 = Path(os.environ.get("GZARR_GOLDEN") or GOLDEN / "v2_v3").absolute()

Place = tuple[Any, ...]


@dataclass(frozen=True)
class Golden:
    """An array that another library wrote.

    Attributes
    ----------
    archive
        The writer and its version.
    store
        Name of the hierarchy in the archive.
    node
        Path of the array in it.
    keys
        The hierarchy.
    expected
        Result of the writer's own reader.
    """

    archive: str
    store: str
    node: str
    keys: dict[str, bytes] = field(repr=False, compare=False)
    expected: np.ndarray[Any, Any] = field(repr=False, compare=False)

    def __str__(self) -> str:
        return "/".join(filter(None, (self.archive, self.store, self.node)))

    def write(self, directory: Path) -> Path:
        """Write the hierarchy to a directory, unless it exists; return the directory of the array."""
        root = directory / self.archive / self.store
        if not root.exists():
            for key, value in self.keys.items():
                path = root / key
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(value)
        return root / self.node


@cache
def golden_arrays(directory: Path = V2_V3) -> tuple[Golden, ...]:
    """Return every array of those archives in a directory that name arrays ``STORE/NODE``."""
    result = []
    for archive in sorted(directory.glob("*.tar.xz")):
        stores, expected = unpack(str(archive))
        for name, values in expected.items():
            store, _, node = name.partition("/")
            result.append(Golden(archive.name.removesuffix(".tar.xz"), store, node, stores[store], values))
    return tuple(result)


def _from_json(item: Any) -> Any:
    if isinstance(item, dict) and set(item) == {"b64"}:
        return base64.b64decode(item["b64"])
    if isinstance(item, dict) and set(item) == {"arr", "dtype"}:
        return np.array(item["arr"], item["dtype"])
    return item


def _expected(text: bytes) -> np.ndarray[Any, Any]:
    """Return an array in the form of ``tests/interop/golden_archive.py``."""
    document = json.loads(text)
    shape = tuple(document["shape"])
    if document["dtype"] == "object":
        array = np.empty(len(document["items"]), object)
        for i, item in enumerate(document["items"]):
            array[i] = _from_json(item)
        return array.reshape(shape)
    if hasattr(np, document["dtype"]):
        dtype = np.dtype(document["dtype"])
    else:
        import ml_dtypes

        dtype = np.dtype(getattr(ml_dtypes, document["dtype"]))
    return np.frombuffer(base64.b64decode(document["bytes"]), dtype).reshape(shape)


@cache
def unpack(archive: str) -> tuple[dict[str, dict[str, bytes]], dict[str, np.ndarray[Any, Any]]]:
    """Return the stores of an archive by name, each as keys and values, and the expected arrays.

    The archive is a path in ``tests/golden``, or an absolute path.
    """
    stores: dict[str, dict[str, bytes]] = {}
    expected = {}
    with tarfile.open(GOLDEN / archive) as files:
        for entry in files:
            name, _, key = entry.name.partition("/")
            file = files.extractfile(entry)
            assert file is not None
            if name == "expected" and key.endswith(".json"):
                expected[key.removesuffix(".json")] = _expected(file.read())
            elif name == "expected":
                expected[key.removesuffix(".npy")] = np.load(io.BytesIO(file.read()), allow_pickle=False)
            else:
                stores.setdefault(name, {})[key] = file.read()
    return stores, expected


def places(value: Any, path: Place = ()) -> Iterator[Place]:
    """Yield the path of every part of a document."""
    yield path
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    for key, child in items:
        yield from places(child, (*path, key))


def _nested(value: Any, times: int) -> str:
    return "[" * times + json.dumps(value) + "]" * times


#: Replacements for values, as JSON text.
REPLACEMENTS = (
    *("null", "true", "false", "0", "-1", "1", "1.5", "-0.0", "NaN", "Infinity", str(2**63), str(-(2**64)), "9" * 400),
    *('""', '"x"', '"\\u0000"', '"../x"', '"<f16"', '"|O"', '"|S99999999999"', '"C"', '"0x00"', '"0b2"', '"é"'),
    *("[]", "{}", "[null]", '[""]', "[0]", "[-1, 2]", '[["a"]]', '{"id": "zlib"}', '{"type": 1}', '{"extension": 1}'),
)


def damaged(document: dict[str, Any]) -> Iterator[tuple[Place, bytes]]:
    """Yield every way to damage one place of a document, as bytes: removed, retyped, negated, nested, duplicated, …"""
    mark = "\x00mark\x00"
    for place in places(document):
        if not place:
            continue
        changed = copy.deepcopy(document)
        parent: Any = changed
        for key in place[:-1]:
            parent = parent[key]
        value = parent[place[-1]]
        texts = [*REPLACEMENTS, _nested(value, 1), _nested(value, 1000), json.dumps({"x": value})]
        if isinstance(value, int | float) and not isinstance(value, bool):
            texts.append(json.dumps(-value))
        parent[place[-1]] = mark
        template = json.dumps(changed)
        for text in texts:
            yield place, template.replace(json.dumps(mark), text).encode()
        yield place, template.encode().replace(json.dumps(mark).encode(), b'"\xff\xfe"')
        if isinstance(parent, dict):
            twice = f"{json.dumps(value)}, {json.dumps(place[-1])}: {json.dumps(value)}"
            yield place, template.replace(json.dumps(mark), twice).encode()
        del parent[place[-1]]
        yield place, json.dumps(changed).encode()


def attempt(opener: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Return the result of a call, or its error about a document; any other error is a failure."""
    try:
        return opener(*arguments, **options)
    except MetadataError as error:
        return error
