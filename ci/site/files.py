"""Hook of MkDocs: pages and files of the site that are not in ``docs/``, notebooks as pages, and links to them.

It also shows the version of gzarr, and its repository (``ci/project.py``).

Pages are written for the repository's own view of them: links lead to files in the repository. Here those that lead out
of ``docs/`` are pointed to what the site has in their place.
"""

from __future__ import annotations

import posixpath
import re
import runpy
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
#: Pages of the site by their file in the repository: CHANGELOG.md, CONTRIBUTING.md and the like.
PAGES = {
    path.name: f"project/{path.stem.lower().replace('_', '-')}.md"
    for path in sorted(ROOT.glob("*.md"))
    if path.name != "README.md"
}
#: Files of the repository that are copied to the site, by folder.
FOLDERS = {"benchmarks/results": "results"}

# Links and pictures of Markdown, and those of HTML; not what begins with a scheme, or is an anchor of the page.
_LINK = re.compile(r"(\]\()(?![a-z]+:|#)([^)#\s]+)")
_ATTRIBUTE = re.compile(r"(<[^>]*\b(?:src|srcset|href)=\")(?![a-z]+:|#)([^\"#\s]+)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Show the version on every page, and a link to the repository if it is known."""
    project = runpy.run_path(str(ROOT / "ci" / "project.py"))["Project"].of(ROOT)
    config.site_name = f"gzarr {project.version}"
    config.copyright = config.site_name + ("" if project.published else ", not published yet")
    if project.repository:
        config.repo_url = project.repository
        config.repo_name = project.repository.partition("://")[2]
    return config


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add pages and files from outside ``docs/``, and make pages of notebooks."""
    for source, page in PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / source)))
    for folder, target in FOLDERS.items():
        for path in sorted((ROOT / folder).iterdir()):
            files.append(File.generated(config, f"{target}/{path.name}", abs_src_path=str(path)))
    for notebook in [file for file in files if file.src_uri.endswith(".ipynb")]:
        for file in _pages_of_notebook(notebook, config):
            files.append(file)
    return files


def _pages_of_notebook(notebook: File, config: MkDocsConfig) -> list[File]:
    """Return a notebook as a page, with its pictures; nothing is executed."""
    from nbconvert import MarkdownExporter

    assert notebook.abs_src_path is not None
    name = notebook.src_uri.removesuffix(".ipynb")
    title = posixpath.basename(name)
    # Pictures of cells get the name of their notebook.
    resources = {"output_files_dir": title, "unique_key": title}
    text, resources = MarkdownExporter().from_filename(notebook.abs_src_path, resources)
    text += f"\n\n[This page as a notebook]({posixpath.basename(notebook.src_uri)}){{ download }}\n"
    page = File.generated(config, f"{name}.md", content=text)
    folder = posixpath.dirname(name)
    pictures = [
        File.generated(config, posixpath.join(folder, path), content=data)
        for path, data in resources["outputs"].items()
    ]
    return [page, *pictures]


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links that lead out of ``docs/`` to what the site has in their place."""
    sources = {page: source for source, page in PAGES.items()}
    uri = page.file.src_uri
    here = posixpath.dirname(sources.get(uri, f"docs/{uri}"))

    def in_site(target: str) -> str:
        path = posixpath.normpath(posixpath.join(here, target))
        found = _in_site(path)
        if found is None:
            raise PluginError(f"{uri}: the link to {target!r} leads out of the site; see ci/site/files.py")
        # Links to notebooks lead to their pages, but for the one that the page of a notebook ends with.
        name = found.removesuffix(".ipynb")
        return f"{name}.md" if name != found and f"{name}.md" != uri else found

    def link(match: re.Match[str]) -> str:
        return match[1] + posixpath.relpath(in_site(match[2]), posixpath.dirname(uri) or ".")

    def attribute(match: re.Match[str]) -> str:
        file = files.get_file_from_path(in_site(match[2]))
        if file is None:
            raise PluginError(f"{uri}: there is no file {match[2]!r}")
        return match[1] + file.url_relative_to(page.file)

    parts = re.split(r"(?ms)(^ *(?:```|~~~).*?^ *(?:```|~~~) *$)", markdown)
    # Every other part is a block of code.
    parts[::2] = [_ATTRIBUTE.sub(attribute, _LINK.sub(link, part)) for part in parts[::2]]
    return "".join(parts)


def on_page_content(html: str, **_: object) -> str:
    """Keep options of commands in one piece: browsers break lines behind each of their hyphens."""
    return re.sub(r"<code>([^<]{0,24}--[a-z][^<]{0,24})</code>", r'<code class="option">\1</code>', html)


def _in_site(path: str) -> str | None:
    """Return the source, in the site, of a file of the repository; None if the site does not have it."""
    if path in PAGES:
        return PAGES[path]
    if path == "README.md":
        return "index.md"
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    for folder, target in FOLDERS.items():
        if path.startswith(f"{folder}/"):
            return f"{target}/{path.removeprefix(f'{folder}/')}"
    return None
