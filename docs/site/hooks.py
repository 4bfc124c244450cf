"""Hooks of the site: pages that lie outside docs/, links between all of them, and scripts that a
strict content security policy allows."""

from __future__ import annotations

import hashlib
import posixpath
import re
import shutil
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files
from mkdocs.utils import get_relative_url

DOCS = Path(__file__).resolve().parents[1]
ROOT = DOCS.parent
OPENAPI = ROOT / "build" / "openapi"
# A file of the repository -> its page.
OUTSIDE = {
    "ARCHITECTURE.md": "explanation/architecture.md",
    "CHANGELOG.md": "project/changelog.md",
    "CODE_OF_CONDUCT.md": "project/conduct.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
    "spark_connectors/BENCH.md": "explanation/spark-figures.md",
    "spark_connectors/JVM.md": "how-to/spark-jvm.md",
    "spark_connectors/OPTIONS.md": "reference/spark-options.md",
    "spark_connectors/README.md": "reference/spark.md",
    "spark_connectors/TROUBLE.md": "reference/spark-errors.md",
    "tests/bench/NOTEBOOK.md": "project/notebook.md",
    "tests/bench/README.md": "explanation/figures.md",
}
_LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s#:]+)(#[^()\s]*)?\)")
_FENCED = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)
_INLINE = re.compile(r"<script>(.+?)</script>", re.DOTALL)
_scripts: dict[str, str] = {}


def on_config(config: Any) -> None:
    """Complete the navigation with what is there."""
    openapi = [f"reference/openapi/{page.name}" for page in sorted(OPENAPI.glob("*.md"))]
    sections = {name: pages for one in config.nav for name, pages in one.items()}
    sections["Reference"].append({"OpenAPI": openapi})
    contract = [f"contract/{page.name}" for page in sorted((DOCS / "contract").glob("*.md"))]
    sections["Contract"] += [page for page in contract if page not in sections["Contract"]]
    records = [f"adr/{page.name}" for page in sorted((DOCS / "adr").glob("[!R]*.md"))]
    outside = [page for file, page in OUTSIDE.items() if (ROOT / file).exists()]
    project = [page for page in outside if page.startswith("project/")]
    decisions = {"Decisions": ["adr/README.md", *records]}
    config.nav.append({"Project": [*project, "seeds.md", decisions]})


def on_files(files: Files, config: Any) -> None:
    """Add the pages that lie outside docs/."""
    pages = {ROOT / file: page for file, page in OUTSIDE.items()}
    pages |= {page: f"reference/openapi/{page.name}" for page in OPENAPI.glob("*.md")}
    for file, page in pages.items():
        if file.exists():
            files.append(File.generated(config, page, abs_src_path=str(file)))


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Let links lead from page to page. A link to any other file of the repository is its text."""
    folder = Path(page.file.abs_src_path).resolve().parent

    def relinked(found: re.Match[str]) -> str:
        text, target, anchor = found[1], found[2], found[3] or ""
        place = (folder / target).resolve()
        if place.is_relative_to(DOCS) and place != DOCS:
            name = place.relative_to(DOCS).as_posix()
        elif place in (ROOT / "README.md", DOCS):
            name = "index.md"
        elif place.exists() and (page_of := OUTSIDE.get(place.relative_to(ROOT).as_posix())):
            name = page_of
        else:
            return text
        relative = posixpath.relpath(name, posixpath.dirname(page.file.src_uri) or ".")
        return f"[{text}]({relative}{anchor})"

    parts = _FENCED.split(markdown)
    parts[::2] = [_LINK.sub(relinked, part) for part in parts[::2]]
    return "".join(parts)


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Move the theme's inline scripts into files."""

    def moved(found: re.Match[str]) -> str:
        name = f"assets/javascripts/{hashlib.sha256(found[1].encode()).hexdigest()[:12]}.js"
        _scripts[name] = found[1]
        return f'<script src="{get_relative_url(name, page.url)}"></script>'

    return _INLINE.sub(moved, output)


def on_post_build(config: Any) -> None:
    """Write the scripts, and remove files that nothing asks for."""
    site = Path(config.site_dir)
    for name, text in _scripts.items():
        (site / name).write_text(text, "utf-8")
    shutil.rmtree(site / "assets/javascripts/lunr")
    for file in (*site.rglob("*.map"), *site.glob("sitemap*"), site / "404.html"):
        file.unlink()
