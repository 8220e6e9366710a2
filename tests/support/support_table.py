"""Generate the tables of ``docs/support.md``: the abilities of gzarr and its peers with arrays of other libraries.

Every cell is measured on the arrays in ``tests/golden``. To write the page:
``PYTHONPATH=tests python -m support.support_table``.
"""

from __future__ import annotations

import re
import tempfile
import warnings
from collections import defaultdict
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from support import devices
from support.golden_stores import Golden, golden_arrays, unpack
from support.peer_readers import READERS, verdict
from support.zarr_arrays import same

import gzarr

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

PAGE = Path(__file__).parents[2] / "docs" / "support.md"
FORMATS = {1: "v1", 2: "v2", "3-draft-2022": "v3 draft", 3: "v3"}
#: Arrays measured for each row.
PER_ROW = 3

TOP = """\
# What gzarr reads and writes

Measured on arrays that other libraries wrote (`tests/golden`), by
`PYTHONPATH=tests python -m support.support_table`; a test fails when gzarr behaves differently.

- **reads**: `native` is the compiled loop, `threads` are host libraries in threads; every element equals what the
  writer's own reader returned.
- **GPU**: with `device="cuda"`, chunks are decoded on the `device`, or on the `host` and copied over; `no`: a GPU
  cannot hold such elements. The device's decoders were measured with CuPy over CUDA in host memory.
- **writes**: gzarr writes other values and reads them back unchanged.
- The peers are {peers}, on the same arrays. `yes`: every element
  is right; `some`: not for every array; `no`: an error; `differs`: other elements. zarrs runs without zarr-python's
  codecs.

Each row stands for up to {per_row} of {count} arrays; in the table of codecs, of 32-bit integers.{refused}
"""


def arrays() -> Iterator[Golden]:
    """Yield every array of every archive."""
    yield from golden_arrays()
    for archive in ("v1/zarr-python-1.1.0", "v3_draft/zarr-python-2.18.7"):
        stores, expected = unpack(f"{archive}.tar.xz")
        for name, values in expected.items():
            # A store of version 1 is one array.
            store, node = (name, "") if name in stores else ("hierarchy", name)
            # Arrays of objects, whose expected values are kept as text.
            values = values.astype(object) if node == "types/words" else values
            yield Golden(archive, store, node, stores[store], values)


@dataclass(frozen=True)
class Opened:
    """An opened array, with the names of its rows."""

    golden: Golden
    array: gzarr.Array

    @property
    def format(self) -> str:
        return FORMATS[self.array.zarr_format]

    @property
    def chain(self) -> str:
        name = chain_name([codec.label for codec in self.array.codecs])
        return f"{name}, in a rectilinear grid" if self.is_rectilinear else name

    @property
    def is_rectilinear(self) -> bool:
        return not self.array.metadata.chunk_grid.is_regular

    @property
    def data_type(self) -> str:
        return data_type_name(self.array.dtype)

    def reads(self) -> str:
        try:
            values = self.array.read()
        except gzarr.ChunkDecodeError:
            return "no"
        same(values, self.golden.expected, self.golden)
        return self.array.decode_path.partition(":")[0].removeprefix("cpu-")

    def gpu(self, device: devices.TestedDevice) -> str:
        array = device.open(self.golden.keys, path=self.golden.node)
        if array.device == "cpu":
            return "no"
        return "host" if "no decoder for this chain" in array.decode_path else "device"

    def writes(self) -> str:
        values = self.golden.expected[::-1] if self.array.ndim else self.golden.expected
        store = gzarr.MemoryStore(dict(self.golden.keys))
        try:
            array = gzarr.open_array(store, path=self.golden.node, mode="r+", device="cpu")
            array[...] = values.astype(array.dtype, copy=False)
        except gzarr.GzarrError:
            return "no"
        again = gzarr.open_array(store, path=self.golden.node, device="cpu").read()
        if self.chain == "numcodecs.zfpy":
            np.testing.assert_allclose(again, values, atol=0.001)
        else:
            same(again, values, self.golden)
        return "yes"

    def cells(self, device: devices.TestedDevice, directory: Path, with_peers: bool) -> tuple[str, ...]:
        """Return the cells of the array's row, if it is the row's only array."""
        path = self.golden.write(directory)
        peers = [verdict(name, path, self.golden.expected) for name in READERS] if with_peers else []
        return (self.reads(), self.gpu(device), self.writes(), *peers)


def chain_name(labels: list[str]) -> str:
    """Return the name of a chain, without sizes, and without plain bytes and transposition if there is more."""
    names = [re.sub(r"(?<=\()[\d×]*: |, (bit)?shuffle[ \d]*|\((\d+(, )?)+\)", "", label) for label in labels]
    names = [re.sub(r"\b(bytes|transpose)(\(big\)|\(mixed\))? \+ ", "", name) for name in names]
    essential = [name for name in names if name not in ("bytes", "bytes(big)", "bytes(mixed)", "transpose")]
    return " + ".join(essential or [names[0]])


def data_type_name(dtype: np.dtype[Any]) -> str:
    """Return the name of a data type, without sizes and units."""
    if dtype.fields is not None:
        return "structured"
    names = {"S": "fixed-length bytes", "U": "fixed-length text", "O": "objects", "M": "datetime64", "m": "timedelta64"}
    if dtype.kind == "V" and dtype.isbuiltin != 2:
        return "raw bytes"
    return names.get(dtype.kind, dtype.name)


def opened() -> Iterator[Opened]:
    """Yield the arrays that gzarr opens; ``tests/interop/test_golden.py`` has the refused ones."""
    for golden in arrays():
        try:
            array = gzarr.open_array(golden.keys, path=golden.node, device="cpu")
        except gzarr.MetadataError:
            continue
        yield Opened(golden, array)


def together(cells: Iterable[str]) -> str:
    """Return one cell for several arrays."""
    found = set(cells)
    if len(found) == 1:
        return found.pop()
    return "some" if found == {"yes", "no"} else " / ".join(sorted(found))


def chosen(every: list[Opened], typical: Callable[[Opened], bool]) -> list[Opened]:
    """Return a few arrays of a row, evenly spread; typical ones, if there are any."""
    every = [case for case in every if typical(case)] or every
    return every[:: -(-len(every) // PER_ROW)]


def _by_type(case: Opened) -> bool:
    return case.golden.node.startswith("type")


def rows(every: list[Opened]) -> dict[str, dict[tuple[str, str], list[Opened]]]:
    """Return the arrays of each row of each table: by codecs, for 32-bit integers; by data type, for any codecs."""
    by_chain, by_type = defaultdict(list), defaultdict(list)
    for case in every:
        by_chain[case.format, case.chain].append(case)
        # If peers cannot read the grid, the result does not depend on the data type.
        if not case.is_rectilinear:
            by_type[case.format, case.data_type].append(case)
    # A chain is redundant if each of its codecs has a row.
    for zarr_format, chain in list(by_chain):
        parts = re.split(r" \+ (?![^(]*\))", chain)
        if len(parts) > 1 and all((zarr_format, part) in by_chain for part in parts):
            del by_chain[zarr_format, chain]
    return {
        "Codecs": {row: chosen(cases, lambda case: case.data_type == "int32") for row, cases in by_chain.items()},
        "Data types": {row: chosen(cases, _by_type) for row, cases in by_type.items()},
    }


def versions() -> str:
    """Return the peers and their installed versions, as the page names them."""
    return ", ".join(f"{name} {version(name)}" for name in READERS)


def tables(cases: list[Opened], with_peers: bool) -> Iterator[str]:
    """Yield the lines of every table."""
    columns = ["reads", "GPU", "writes", *(READERS if with_peers else ())]
    order = list(FORMATS.values())
    measured: dict[str, tuple[str, ...]] = {}
    with tempfile.TemporaryDirectory() as directory, devices.use(devices.KINDS[-1].values[0]) as device:
        for title, table in rows(cases).items():
            yield f"## {title}"
            yield ""
            yield f"| format | {title.lower()} | {' | '.join(columns)} |"
            yield "|---" * (2 + len(columns)) + "|"
            for row in sorted(table, key=lambda row: (order.index(row[0]), row[1])):
                for case in table[row]:
                    name = str(case.golden)
                    if name not in measured:
                        measured[name] = case.cells(device, Path(directory), with_peers)
                cells = zip(*(measured[str(case.golden)] for case in table[row]), strict=True)
                yield f"| {' | '.join((*row, *map(together, cells)))} |"
            yield ""


def page() -> str:
    """Return the whole page."""
    cases = list(opened())
    left = sum(1 for _ in arrays()) - len(cases)
    refused = f" gzarr refuses {left} more: `tests/interop/test_golden.py` says which, and why." if left else ""
    top = TOP.format(peers=versions(), per_row=PER_ROW, count=len(cases), refused=refused)
    return "\n".join([top, *tables(cases, with_peers=True)])


def without_peers(text: str) -> list[str]:
    """Return the rows of a page's tables, without the columns of peers."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return ["|".join(line.split("|")[:6]) for line in lines]


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    PAGE.write_text(page(), encoding="utf-8")
