"""README is the site's first page, and links to files that are no pages lead to the repository."""

import posixpath
import re
from pathlib import Path

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"\]\(([^)#:]+)(#[^)]*)?\)")


def on_files(files, config):
    files.append(File.generated(config, "index.md", content=(ROOT / "README.md").read_text()))
    return files


def on_page_markdown(markdown, page, config, files):
    """Rewrites each relative link for the place that the page has in the site."""
    directory = "" if page.file.src_uri == "index.md" else posixpath.join("docs", posixpath.dirname(page.file.src_uri))

    def lead(link):
        target = posixpath.normpath(posixpath.join(directory, link[1]))
        anchor = link[2] or ""
        if target == "README.md":
            target = "docs/index.md"
        if target.startswith("docs/") and files.get_file_from_path(target[len("docs/") :]):
            start = posixpath.dirname(page.file.src_uri) or "."
            return f"]({posixpath.relpath(target[len('docs/') :], start)}{anchor})"
        if not (ROOT / target).exists():
            return link[0]  # the check of links complains
        return f"]({config.repo_url}/blob/main/{target}{anchor})"

    return LINK.sub(lead, markdown)
