"""Check a built site: links and pictures lead to files and anchors of it, and no page needs another server.

``python ci/site/check.py site``. MkDocs checks links of Markdown; this also checks those of HTML, of docstrings and of
notebooks, as a browser would see them.
"""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

#: What a browser fetches without being asked to.
_FETCHED = {
    ("script", "src"),
    ("link", "href"),
    ("img", "src"),
    ("source", "srcset"),
    ("iframe", "src"),
    ("use", "href"),
}
_LINKS = {("a", "href"), *_FETCHED}
_STYLE = re.compile(r"(?:url\(|@import)\s*[\"']?(https?:)?//[^)\"']+")


class Page(HTMLParser):
    """Links and anchors of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[tuple[str, str, str]] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the anchors and the links of an element."""
        for name, value in attrs:
            if value is None:
                continue
            if name == "id" or (tag, name) == ("a", "name"):
                self.anchors.add(value)
            elif (tag, name) in _LINKS:
                self.links.append((tag, name, value))


def problems(site: Path) -> list[str]:
    """Return what is wrong with a site, one text for each."""
    pages = {path.relative_to(site).as_posix(): Page(path) for path in sorted(site.rglob("*.html"))}
    found = []
    for name, page in pages.items():
        for tag, attribute, link in page.links:
            address = urlsplit(link)
            if address.scheme in ("http", "https") or address.netloc:
                if (tag, attribute) in _FETCHED:
                    found.append(f"{name}: <{tag}> fetches {link}")
            elif not address.scheme and name != "404.html":
                found += _broken(site, pages, name, link)
    for style in site.rglob("*.css"):
        found += [f"{style.relative_to(site)}: {match[0]}" for match in _STYLE.finditer(style.read_text())]
    return found


def _broken(site: Path, pages: dict[str, Page], name: str, link: str) -> list[str]:
    """Return what is wrong with a link within the site."""
    path, _, anchor = urljoin(f"/{name}", link).partition("#")
    target = unquote(path.partition("?")[0]).lstrip("/")
    if target.endswith("/") or not target:
        target += "index.html"
    if target not in pages:
        return [] if (site / target).is_file() else [f"{name}: {link} leads to nothing"]
    if anchor and unquote(anchor) not in pages[target].anchors:
        return [f"{name}: {link}: {target} has no such anchor"]
    return []


if __name__ == "__main__":
    wrong = problems(Path(sys.argv[1]))
    print(*wrong, sep="\n", end="\n" if wrong else "")
    sys.exit(1 if wrong else 0)
