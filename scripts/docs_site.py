"""A hook of MkDocs: what differs between the documentation as files and as static pages.

Links that lead out of `docs/`, such as to a script, have no page: they become the path. Blocks get a class for Pygments.
"""

from __future__ import annotations

import posixpath
import re
from typing import Any

from pygments.formatters import HtmlFormatter

_LINK = re.compile(r"\[([^\]]+)\]\((?!https?://|mailto:|#)([^)#\s]+)(#[^)\s]*)?\)")
_STYLE_FILE = "css/code.css"


def on_config(config: Any) -> Any:
    """Add the style sheet for code."""
    config.extra_css.append(_STYLE_FILE)
    return config


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


def on_post_build(*, config: Any) -> None:
    """Write the style sheet: light, and dark where the page is dark."""
    light = HtmlFormatter(style="default").get_style_defs(".codehilite")
    dark = HtmlFormatter(style="github-dark").get_style_defs('[data-bs-theme="dark"] .codehilite')
    with open(posixpath.join(config.site_dir, _STYLE_FILE), "w", encoding="utf-8") as file:
        file.write(f"{light}\n{dark}\n.codehilite pre {{ padding: .8rem; border-radius: .4rem; }}\n")
