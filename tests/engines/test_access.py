"""How engines reach the values of a store: chosen once, in one package, which alone knows the index of a shard."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gzarr
from gzarr.codecs.bytes import BytesCodec
from gzarr.codecs.codec import ArrayRepresentation
from gzarr.codecs.crc32c import Crc32cCodec
from gzarr.codecs.sharding import ShardingIndexed
from gzarr.codecs.transpose import TransposeCodec
from gzarr.engines.access.access import Access
from gzarr.engines.access.choose import access_to
from gzarr.engines.access.files import Files
from gzarr.engines.access.packed import PackedCalls
from gzarr.engines.access.requests import Requests
from gzarr.engines.access.shard import NewShard, Shard, ranges_in
from gzarr.plan.decode_program import analyse
from gzarr.stores import base
from gzarr.stores.capability import Capability
from gzarr.stores.local import LocalStore
from gzarr.stores.memory import MemoryStore
from tests.support.counting_store import CountingStore

if TYPE_CHECKING:
    from collections.abc import Iterator

ENGINES = Path(gzarr.__file__).parent / "engines"


def test_the_access_of_each_kind_of_store(tmp_path: Path) -> None:
    with gzarr.ZipStore(tmp_path / "a.zip", mode="w") as store:
        gzarr.create_array(store, data=np.arange(4))
    with gzarr.ZipStore(tmp_path / "a.zip") as archive:
        chosen = {
            "files": access_to(LocalStore(tmp_path)),
            "links refused": access_to(LocalStore(tmp_path, follow_symlinks=False)),
            "memory": access_to(MemoryStore()),
            "remote": access_to(CountingStore(None)),
            "archive": access_to(archive),
            "in the archive": access_to(archive).holder,
        }
    assert {name: type(access) for name, access in chosen.items()} == {
        "files": Files,
        "links refused": Access,
        "memory": Access,
        "remote": Requests,
        "archive": PackedCalls,
        "in the archive": Files,
    }
    assert [name for name, access in chosen.items() if access.root is not None] == ["files", "in the archive"]
    assert [name for name, access in chosen.items() if access.remote] == ["remote"]


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(ENGINES.rglob("*.py")):
        name = path.relative_to(ENGINES).as_posix()
        if not name.startswith("access/"):
            yield name, ast.parse(path.read_text())


def test_only_access_asks_stores_what_they_can() -> None:
    capabilities = {name for name, value in vars(base).items() if isinstance(value, Capability)}
    assert "LocalFiles" in capabilities
    found = [
        (module, node.lineno)
        for module, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance"
        if {part.id for part in ast.walk(node.args[1]) if isinstance(part, ast.Name)} & capabilities
    ]
    assert not found


def test_only_access_knows_the_index_of_a_shard() -> None:
    found = [
        (module, node.lineno)
        for module, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in {"decode_index", "encode_index", "index_location"}
    ]
    assert not found


@pytest.mark.parametrize("location", ["start", "end"])
@pytest.mark.parametrize("index_codecs", [(BytesCodec("little"),), (BytesCodec("big"), Crc32cCodec())])
def test_a_shard_that_is_put_together(location: Any, index_codecs: Any) -> None:
    """As the codec does it, which knows no engine; and its index says where the parts are."""
    codec = ShardingIndexed((2, 3), (BytesCodec("little"),), index_codecs, location)
    whole = ArrayRepresentation((6, 6), np.dtype("<u2"))
    elements = np.arange(36, dtype="<u2").reshape(whole.shape)
    (level,) = analyse((codec,), whole, frozenset()).levels
    shard = Shard.of(level, level.stored_shape)
    bodies = [elements[i : i + 2, j : j + 3].tobytes() for i in (0, 2, 4) for j in (0, 3)]
    made = NewShard(shard)
    made.add([0, 1], [12, 12], [b"".join(bodies[:2])])
    made.add(np.zeros(0, np.int64), np.zeros(0, np.int64), [b""])
    made.add(np.arange(2, 6), np.full(4, 12), bodies[2:])
    stored = b"".join(made.parts())
    assert stored == codec.encode(elements, whole).tobytes()
    offset, nbytes = ranges_in(shard.index_in(stored))
    assert [stored[a : a + n] for a, n in zip(offset.tolist(), nbytes.tolist(), strict=True)] == bodies
    assert shard.plain == (index_codecs[0].endian == "little")
    with pytest.raises(ValueError, match="too few for an index"):
        shard.index_in(stored[:20])
    assert NewShard(shard).parts() == []


def test_entries_are_in_the_order_of_the_stored_shard() -> None:
    inner = ShardingIndexed((2, 2), (BytesCodec("little"),), (BytesCodec("little"),))
    (level,) = analyse((TransposeCodec((1, 0)), inner), ArrayRepresentation((4, 6), np.dtype("u1")), frozenset()).levels
    shard = Shard.of(level, level.stored_shape)
    chunks = np.array([(i, j) for i in range(4) for j in range(6)])
    # A shard has 2 x 3 inner chunks, stored as 3 x 2.
    assert shard.entries(chunks).tolist() == [j % 3 * 2 + i % 2 for i, j in chunks.tolist()]
