"""A hook of MkDocs: what differs between the documentation as files and as static pages.

Links that lead out of `docs/`, such as to a script, have no page: they become the path. Blocks get a class for Pygments.
Search and dark mode are scripts of our own: those of the theme fail in a folder, and without highlight.js.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from markdown.extensions.toc import slugify
from mkdocs.plugins import event_priority
from pygments.formatters import HtmlFormatter

_LINK = re.compile(r"\[([^\]]+)\]\((?!https?://|mailto:|#)([^)#\s]+)(#[^)\s]*)?\)")
_STYLE_FILE = "css/code.css"
_SEARCH = Path(__file__).with_name("docs_search.js")
_DARK_MODE = """const dark = matchMedia("(prefers-color-scheme: dark)");
const follow = () => document.documentElement.setAttribute("data-bs-theme", dark.matches ? "dark" : "light");
dark.addEventListener("change", follow);
follow();
"""


def on_config(config: Any) -> Any:
    """Add the style sheet for code, and anchors that the theme's script can select."""
    config.extra_css.append(_STYLE_FILE)
    config.mdx_configs["toc"]["slugify"] = _make_anchor
    return config


def _make_anchor(heading: str, separator: str) -> str:
    """No digit first: `#1-start` is no CSS selector, at which the script of the theme stops."""
    anchor = slugify(heading, separator)
    return f"step-{anchor}" if anchor[:1].isdigit() else anchor


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """Replace links to files outside of the documentation."""
    folder = posixpath.dirname(page.file.src_uri)

    def replace(found: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, found[2]))
        if not target.startswith(".."):
            return found[0]
        path = target.removeprefix("../")
        return found[1] if path in found[1] else f"{found[1]} (`{path}`)"

    return _LINK.sub(replace, markdown)


@event_priority(-100)  # after the search plugin has written its files
def on_post_build(*, config: Any) -> None:
    """Write the scripts, the index as a script, and the style sheet: light, and dark where the page is dark."""
    site = Path(config.site_dir)
    index = site / "search" / "search_index.json"
    (site / "search" / "search_index.js").write_text(f"const searchIndex = {index.read_text('utf-8')};\n", "utf-8")
    (site / "search" / "main.js").write_text(_SEARCH.read_text("utf-8"), "utf-8")
    (site / "search" / "worker.js").unlink()
    (site / "js" / "darkmode.js").write_text(_DARK_MODE, "utf-8")
    light = HtmlFormatter(style="default").get_style_defs(".codehilite")
    dark = HtmlFormatter(style="github-dark").get_style_defs('[data-bs-theme="dark"] .codehilite')
    with open(posixpath.join(config.site_dir, _STYLE_FILE), "w", encoding="utf-8") as file:
        file.write(f"{light}\n{dark}\n.codehilite pre {{ padding: .8rem; border-radius: .4rem; }}\n")
