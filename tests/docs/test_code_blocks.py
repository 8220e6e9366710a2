"""The code of README.md and of the pages in docs/ runs as it stands, and prints what the pages show.

:mod:`support.pages` says what is run and compared, :mod:`support.page_data` what the examples of each page need.
``device="cuda"`` is CUDA in host memory; without it, examples run on the CPU. URLs lead to servers on this machine.
"""

from __future__ import annotations

import contextlib
import copy
import sys
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
from support import coming_from, devices, page_data, pages, servers
from support.pages import ROOT, Block, Row, Side
from zarr.core.config import config

from gzarr.engines.cuda import devices as cuda_devices

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PREPARATIONS = {**page_data.PREPARATIONS, **coming_from.PREPARATIONS}
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
#: Pages that other tests run.
ELSEWHERE = {"docs/ray.md": "tests/integrations/test_ray.py"}
#: What is not run, by page. Nothing is added without a reason that holds on every machine without a GPU.
NOT_RUN = {
    "docs/coming-from/kvikio.md": {"needs a GPU"},
    "docs/coming-from/zarr-python.md": {"needs a GPU"},
    "docs/loader.md": {"needs a GPU"},
}


def _name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def _sections(page: Path) -> Iterator[tuple[str, list[Block | Row]]]:
    """Yield the parts of a page that have preparations of their own: key, and what is in them."""
    key, parts = _name(page), list[Block | Row]()
    for part in pages.read(page):
        if not isinstance(part, pages.Heading):
            parts.append(part)
        elif f"{_name(page)}#{part.text}" in PREPARATIONS:
            yield key, parts
            key, parts = f"{_name(page)}#{part.text}", []
    yield key, parts


SECTIONS: dict[str, tuple[Path, list[Block | Row]]] = {
    key: (page, parts) for page in PAGES if _name(page) not in ELSEWHERE for key, parts in _sections(page) if parts
}


@pytest.fixture(scope="session")
def s3() -> Iterator[Callable[[], tuple[str, int]]]:
    """A function that returns the address of an S3 server, which is started when it is first asked for."""
    with contextlib.ExitStack() as stack:
        found: list[tuple[str, int]] = []

        def address() -> tuple[str, int]:
            if not found:
                found.append(stack.enter_context(servers.s3_server()))
                servers.make_bucket(found[0], "bucket")
            return found[0]

        yield address


@contextlib.contextmanager
def _as_before() -> Iterator[None]:
    """Restore what examples may change for the whole process: zarr-python's configuration."""
    before = copy.deepcopy(config.config)
    try:
        yield
    finally:
        config.config.clear()
        config.config.update(before)


@contextlib.contextmanager
def _device(parts: list[Block | Row]) -> Iterator[None]:
    """Let ``device="cuda"`` be CUDA in host memory, if it occurs; ``"auto"`` stays the CPU."""
    texts = (
        part.code if isinstance(part, Block) else "".join(part.cells[1]) for part in parts if part.not_run != "all"
    )
    if not any('"cuda' in text for text in texts):
        yield
        return
    with devices.use("on host"), mock.patch.object(cuda_devices, "available", return_value=False):
        yield


@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore:Consolidated metadata is currently not part")
@pytest.mark.parametrize("key", SECTIONS)
def test_examples(key: str, s3: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page, parts = SECTIONS[key]
    monkeypatch.chdir(tmp_path)
    here = page_data.Here(s3)
    prepared = contextlib.contextmanager(PREPARATIONS.get(key, page_data.nothing))
    try:
        with _as_before(), _device(parts), prepared(here):
            _run(page, parts, here, tmp_path)
    except ModuleNotFoundError as error:
        # The test environment has it on one Python only.
        if error.name != "torch" or sys.version_info < (3, 12):
            raise
        pytest.skip("PyTorch is not installed")


def _run(page: Path, parts: list[Block | Row], here: page_data.Here, folder: Path) -> None:
    theirs, ours = folder / "theirs", folder / "ours"
    for part in parts:
        if isinstance(part, Row):
            pages.run_row(part, page, (Side(theirs, here.theirs), Side(ours, here.names)))
        elif not part.not_run:
            with contextlib.chdir(ours if ours.exists() else folder):
                pages.run(part, page, here.names, here.hosts)


def test_blocks_fit_the_site() -> None:
    """In a window of 1400 pixels, code has room for 117 characters; what is longer scrolls, and is overlooked."""
    long = [
        f"{_name(page)}:{part.line + i}: {len(line)} characters"
        for page in PAGES
        if page != ROOT / "README.md"
        for part in pages.read(page)
        if isinstance(part, Block)
        for i, line in enumerate(f"{part.code}{part.shown or ''}".splitlines())
        if len(line) > 117
    ]
    assert long == []


def test_what_is_not_run() -> None:
    found: dict[str, set[str]] = {}
    for page, parts in SECTIONS.values():
        for part in parts:
            for reason in (part.not_run,) if isinstance(part, Block) else part.not_run:
                if reason:
                    found.setdefault(_name(page), set()).add(reason)
    assert found == NOT_RUN


def test_preparations_are_of_sections() -> None:
    assert PREPARATIONS.keys() <= SECTIONS.keys()
    for page, module in ELSEWHERE.items():
        assert page.rpartition("/")[2] in (ROOT / module).read_text("utf-8")


def test_examples_for_other_libraries_are_short() -> None:
    """Ten lines at most, but for the list in README.md."""
    for name, first in {"README.md": 1, "docs/integrations.md": 0}.items():
        blocks = [one for one in pages.read(ROOT / name) if isinstance(one, Block) and one.language == "python"]
        for block in blocks[first:]:
            assert len(block.code.strip().splitlines()) <= 10, f"{name}:{block.line}"
