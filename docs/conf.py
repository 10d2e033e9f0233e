"""Settings of the documentation's site: `make docs-site`.

Sphinx reads Markdown by MyST. Some pages lie beside the code that they are about, such as an
engine's README. They are linked into docs/beside while the site is built. A link to a page, there
or in docs, becomes one within the site; a link to another file of the repository leads to its
source. A link that leads nowhere is a warning, which fails the build.
"""

import os
import sys
from pathlib import Path

from docutils import nodes
from sphinx.util import logging

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
sys.path.insert(0, str(ROOT / "tools" / "docs"))

import links  # noqa: E402

project = "torch_ocl"
author = "the torch_ocl authors"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["**/.*"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4
# A URL of the repository's files. Without it, links to sources are relative, for reading at home.
SOURCES = os.environ.get("DOCS_SOURCES_URL", "")
myst_url_schemes = {"http": None, "https": None, "mailto": None, "source": None}

html_theme = "furo"
html_title = "torch_ocl"
html_copy_source = False

autodoc_typehints = "signature"
autodoc_preserve_defaults = True
autodoc_member_order = "bysource"

logger = logging.getLogger(__name__)


def pages_beside_code() -> dict[Path, str]:
    """Each page outside of docs, and the name that it has in the site."""
    top = ("CONTRIBUTING", "CHANGELOG", "SECURITY")
    pages = {ROOT / f"{name}.md": f"beside/{name}" for name in top}
    pages[ROOT / "kernels" / "README.md"] = "beside/kernels"
    pages[ROOT / "csrc" / "README.md"] = "beside/csrc"
    pages[ROOT / "codegen" / "ops" / "README.md"] = "beside/op-table"
    pages[ROOT / "docker" / "README.md"] = "beside/docker"
    for readme in sorted((ROOT / "csrc" / "engine").glob("*/README.md")):
        pages[readme] = f"beside/engines/{readme.parent.name}"
    return pages


BESIDE = pages_beside_code()


def link_pages(app: object) -> None:
    for page, name in BESIDE.items():
        link = DOCS / f"{name}.md"
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.is_symlink():
            link.symlink_to(os.path.relpath(page, link.parent))
    for link in (DOCS / "beside").rglob("*.md"):
        if not link.exists():  # its page is gone
            link.unlink()


def resolve_links(app: object, name: str, source: list[str]) -> None:
    page = DOCS / f"{name}.md"
    origin = page.resolve()

    def replace(target: str) -> str:
        path, _, anchor = target.partition("#")
        if not links.is_local(target) or not path:
            return target
        if wrong := links.problem(target, origin):
            logger.warning(f"{target}: {wrong}", location=name)
            return target
        file = (origin.parent / path).resolve()
        if file in BESIDE or (file.is_relative_to(DOCS) and file.suffix in (".md", ".png", ".svg")):
            in_site = DOCS / f"{BESIDE[file]}.md" if file in BESIDE else file
            return os.path.relpath(in_site, page.parent) + (f"#{anchor}" if anchor else "")
        return f"source:{file.relative_to(ROOT)}"

    source[0] = links.replace_links(source[0], replace)


def lead_to_sources(app: object, tree: nodes.document, name: str) -> None:
    base = SOURCES.rstrip("/") or os.path.relpath(ROOT, Path(app.outdir, name).parent)
    for node in tree.findall(nodes.reference):
        path = node.get("refuri", "")
        if path.startswith("source:"):
            node["refuri"] = f"{base}/{path.removeprefix('source:')}"


def setup(app: object) -> None:
    app.connect("builder-inited", link_pages)
    app.connect("source-read", resolve_links)
    app.connect("doctree-resolved", lead_to_sources)
