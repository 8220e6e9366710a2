"""Links between README.md, the other pages in the root and those in docs/ lead to files, and to headings, that exist.

``ci/docs`` checks those of the site; this is how the pages are seen in the repository.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
_CODE = re.compile(r"(?ms)^ *(```|~~~).*?^ *\1 *$|`[^`\n]*`")
_LINK = re.compile(r"\]\(([^)\s]+)\)|<(?:a|img|source)\b[^>]*\b(?:href|src|srcset)=\"([^\"\s]+)\"")


@cache
def _anchors(page: Path) -> set[str]:
    """Return the anchors that a repository's view of a page gives its headings."""
    text = re.sub(r"(?ms)^ *(```|~~~).*?^ *\1 *$", "", page.read_text())
    found: set[str] = set()
    for heading in re.findall(r"(?m)^#+ +(.*?) *$", text):
        shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", shown.lower()).replace(" ", "-")
        same = [slug, *(f"{slug}-{i}" for i in range(1, 100))]
        found.add(next(name for name in same if name not in found))
    return found


def _broken(page: Path) -> list[str]:
    links = [a or b for a, b in _LINK.findall(_CODE.sub("", page.read_text()))]
    broken = []
    for link in links:
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = unquote(link).partition("#")
        target = (page.parent / path).resolve() if path else page
        is_there = target.is_file() and ROOT in target.parents
        if not is_there or (anchor and target.suffix == ".md" and anchor not in _anchors(target)):
            broken.append(link)
    return broken


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links(page: Path) -> None:
    assert _broken(page) == []


def test_broken_links_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    (tmp_path / "b.md").write_text("# One `two`\n\n## One, two\n")
    text = "[x](b.md) [x](b.md#one-two) [x](b.md#one-two-1) `[x](no.md)` [x](https://example.org)"
    (tmp_path / "a.md").write_text(text)
    assert _broken(tmp_path / "a.md") == []
    (tmp_path / "a.md").write_text(f'{text} [x](no.md) [x](b.md#three) <img src="no.png"> [x](#four)')
    assert _broken(tmp_path / "a.md") == ["no.md", "b.md#three", "no.png", "#four"]
