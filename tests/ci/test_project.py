"""``ci/project.py``: what a release switches, and README.md as a package index shows it."""

from __future__ import annotations

import importlib.util
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def _module(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"ci_{name}", ROOT / "ci" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look for their module.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


project, distribution_files = _module("project"), _module("distribution_files")
NOW = project.Project.of()
KNOWN = replace(NOW, published=True, repository="https://example.org/o/gzarr", documentation="https://docs.example.org")
UNKNOWN = replace(NOW, published=False, repository="", documentation="")
README = (ROOT / "README.md").read_text("utf-8")


def test_files_are_as_the_settings_say() -> None:
    for name, text in NOW.written().items():
        assert (ROOT / name).read_text("utf-8") == text, f"run python ci/project.py, which writes {name}"


def test_published_is_what_the_changelog_says() -> None:
    released = re.findall(r"(?m)^## \d+\.\d+\.\d+ - \d{4}-\d\d-\d\d$", (ROOT / "CHANGELOG.md").read_text("utf-8"))
    assert NOW.published == bool(released)
    # There would be links to nowhere.
    assert not NOW.published or NOW.repository


def test_nobody_else_names_an_address_of_the_project() -> None:
    """Sites, packages and citations take it from ``[tool.gzarr]``."""
    for name in ("mkdocs.yml", "README.md", "SECURITY.md", "CONTRIBUTING.md", "CODE_OF_CONDUCT.md", "hatch_build.py"):
        text = (ROOT / name).read_text("utf-8")
        assert not re.search(r"https?://[^\s)>]*gzarr", text), name
    assert "repo_url" not in (ROOT / "mkdocs.yml").read_text("utf-8")


def test_a_release_switches_what_is_typed(tmp_path: Path) -> None:
    for name in ("README.md", "docs/start.md", "CITATION.cff"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    before = UNKNOWN.written(tmp_path)
    after = KNOWN.written(tmp_path)
    assert re.findall(r"(?m)^\$? ?pip install (\S+)", before["README.md"])[0] == "."
    assert re.findall(r"(?m)^\$? ?pip install (\S+)", after["README.md"])[0] == "gzarr"
    assert re.findall(r"(?m)^\$ pip install (\S+)$", before["docs/start.md"])[0] == "."
    assert re.findall(r"(?m)^\$ pip install (\S+)$", after["docs/start.md"])[0] == "gzarr"
    assert "not published" not in after["docs/start.md"]
    assert f"\nrepository-code: {KNOWN.repository}\nurl: {KNOWN.documentation}\n" in after["CITATION.cff"]
    # And back.
    for name, text in after.items():
        (tmp_path / name).write_text(text, "utf-8")
    assert UNKNOWN.written(tmp_path) == before


def test_links_on_an_index_lead_to_files_of_the_repository() -> None:
    text = KNOWN.description(README)
    assert distribution_files.relative_links(text) == []
    links = re.findall(r"\]\((https://example\.org/[^)]*)\)", text)
    of_pages = re.findall(r"\]\((?![a-z]+:|#)([^)]*)\)", README)
    assert len(links) == len(of_pages) > 40
    for link in links:
        kind, path = re.fullmatch(rf"{KNOWN.repository}/(blob|raw)/v{NOW.version}/([^#]*)(?:#.*)?", link).groups()
        assert (ROOT / path).is_file(), link
        assert (kind == "raw") == path.endswith(".svg"), link
    assert set(KNOWN.urls()) == {"Changelog", "Documentation", "Issues", "Repository"}
    assert all(url.startswith("https://") for url in KNOWN.urls().values())


def test_without_a_repository_links_are_texts() -> None:
    text = UNKNOWN.description(README)
    assert distribution_files.relative_links(text) == []
    assert not re.search(r"\]\((?!https://)", text)
    assert "it has not run on a GPU yet." in text
    assert "- **Computing**: `gzarr.map_blocks` filters" in text
    assert "*Reading beside tensorstore" in text
    assert UNKNOWN.urls() == {}


@pytest.mark.parametrize("known", [KNOWN, UNKNOWN])
def test_code_stays_as_it_is(known: Any) -> None:
    blocks = re.findall(r"(?ms)^```.*?^```$", README)
    assert blocks == re.findall(r"(?ms)^```.*?^```$", known.description(README))
    shown = known.description("a[i](b) `x[0](y.md)` [`f`](docs/f.md) [g [h]](docs/g.md) [#](#top) [z](https://z.org)")
    assert "`x[0](y.md)`" in shown
    assert shown.endswith("[#](#top) [z](https://z.org)")


def test_metadata_with_relative_links_are_found(tmp_path: Path) -> None:
    text = "[a](https://a.org) [b](#b) `[c](c.md)`\n```\n[d](d.md)\n```\n"
    assert distribution_files.relative_links(text) == []
    more = '[e](e.md) ![f](f.svg) <img src="g.png">\n\n[h]: h.md\n'
    assert distribution_files.relative_links(text + more) == ["e.md", "f.svg", "g.png", "h.md"]
