"""``ci/site/check.py`` finds what is wrong with a built site."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from types import ModuleType

CHECK = Path(__file__).parents[2] / "ci" / "site" / "check.py"


@pytest.fixture
def check() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check", CHECK)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "a").mkdir()
    (tmp_path / "index.html").write_text(
        '<a href="a/">a</a> <a href="a/#here">here</a> <a href="#top" id="top">top</a> <img src="a/x%20y.png">'
        '<a href="https://example.org/">elsewhere</a> <a href="mailto:a@example.org">post</a>'
    )
    (tmp_path / "a" / "index.html").write_text('<h1 id="here">A</h1> <a href="..">up</a> <a href="../?q=1#top">q</a>')
    (tmp_path / "a" / "x y.png").write_bytes(b"")
    (tmp_path / "style.css").write_text("p { background: url(a/x.png) }")
    return tmp_path


def test_a_good_site(check: ModuleType, site: Path) -> None:
    assert check.problems(site) == []
    assert subprocess.run([sys.executable, CHECK, site], check=False).returncode == 0


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('<a href="b/">', "b/ leads to nothing"),
        ('<a href="a/#there">', "no such anchor"),
        ('<a href="#nowhere">', "no such anchor"),
        ('<img src="a/z.png">', "a/z.png leads to nothing"),
        ('<img src="https://example.org/x.png">', "<img> fetches https://example.org/x.png"),
        ('<script src="https://example.org/x.js"></script>', "<script> fetches"),
        ('<link rel="stylesheet" href="//example.org/x.css">', "<link> fetches"),
    ],
)
def test_what_is_wrong_is_found(check: ModuleType, site: Path, text: str, complaint: str) -> None:
    page = site / "index.html"
    page.write_text(page.read_text() + text)
    (found,) = check.problems(site)
    assert found.startswith("index.html: ")
    assert complaint in found


def test_styles_of_other_servers_are_found(check: ModuleType, site: Path) -> None:
    (site / "style.css").write_text('@import "https://example.org/font.css"; p { background: url(//example.org/x) }')
    assert len(check.problems(site)) == 2
    found = subprocess.run([sys.executable, CHECK, site], check=False, capture_output=True, text=True)
    assert found.returncode == 1
    assert "style.css" in found.stdout
