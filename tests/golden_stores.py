"""Stores in ``tests/golden``, made by the scripts in ``tests/interop``; and ways to damage documents."""

from __future__ import annotations

import copy
import io
import json
import tarfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gzarr.errors import MetadataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

GOLDEN = Path(__file__).parent / "golden"

Place = tuple[Any, ...]


@cache
def unpack(archive: str) -> tuple[dict[str, dict[str, bytes]], dict[str, np.ndarray[Any, Any]]]:
    """Return the stores of an archive by name, each as keys and values, and the arrays expected."""
    stores: dict[str, dict[str, bytes]] = {}
    expected = {}
    with tarfile.open(GOLDEN / archive) as files:
        for entry in files:
            name, _, key = entry.name.partition("/")
            file = files.extractfile(entry)
            assert file is not None
            if name == "expected":
                expected[key.removesuffix(".npy")] = np.load(io.BytesIO(file.read()), allow_pickle=False)
            else:
                stores.setdefault(name, {})[key] = file.read()
    return stores, expected


def places(value: Any, path: Place = ()) -> Iterator[Place]:
    """Yield the path of everything in a document."""
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


#: What replaces a value, as JSON text.
REPLACEMENTS = (
    *("null", "true", "false", "0", "-1", "1", "1.5", "-0.0", "NaN", "Infinity", str(2**63), str(-(2**64)), "9" * 400),
    *('""', '"x"', '"\\u0000"', '"../x"', '"<f16"', '"|O"', '"|S99999999999"', '"C"', '"0x00"', '"0b2"', '"é"'),
    *("[]", "{}", "[null]", '[""]', "[0]", "[-1, 2]", '[["a"]]', '{"id": "zlib"}', '{"type": 1}', '{"extension": 1}'),
)


def damaged(document: dict[str, Any]) -> Iterator[tuple[Place, bytes]]:
    """Yield every way to damage one place of a document, as bytes: removed, retyped, negated, nested, said twice, …"""
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
    """Return what a call returns, or the error about a document that it raises; any other error is a failure."""
    try:
        return opener(*arguments, **options)
    except MetadataError as error:
        return error
