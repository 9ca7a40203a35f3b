"""HTML as values. A text is escaped; only `Html` is inserted unchanged.

Elements and attributes cannot be built from strings, so the text of a record never becomes markup (X1). Bidirectional and
invisible characters are made visible (X2).
"""

from __future__ import annotations

import html
from collections.abc import Iterable
from functools import cache
from typing import Any, TypeAlias

from waypost.model.json import dump_json
from waypost.model.times import find_instant, to_rfc3339


class Html(str):
    """Markup created by this module."""

    __slots__ = ()


HtmlContent: TypeAlias = "Html | str | int | float | Iterable[HtmlContent] | None"

HtmlAttribute: TypeAlias = "str | int | float | bool | None"

EMPTY_HTML = Html("")

_VOID = frozenset(("br", "hr", "input", "link", "meta", "wbr"))

_LINE_ENDS = frozenset("\n\t")

_NUMBERS = (int, float)
# ADP P-1: nothing inside the block can close it, and JavaScript parsers read it as JSON does.
_IN_SCRIPT = str.maketrans({char: f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"})


def escape_text(value: str) -> str:
    """Escape the text of a record and make bidirectional and invisible characters visible (X2)."""
    if not value.isprintable():
        value = "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in value)
    return html.escape(value)


def escape_multiline(value: str) -> Html:
    """The same for text with several lines."""
    if not value.isprintable():
        value = "".join(char if char.isprintable() or char in _LINE_ENDS else f"\\u{ord(char):04x}" for char in value)
    return Html(html.escape(value))


def escape_form_value(value: str) -> Html:
    """Escape user input that is returned unchanged in a form field."""
    return Html(html.escape(value))


def el(tag: str, *content: HtmlContent, **attributes: HtmlAttribute) -> Html:
    """An element. `class_`, `for_` and `aria_label` become `class`, `for` and `aria-label`."""
    head = (
        f"<{tag}{''.join([_attribute(name, value) for name, value in attributes.items()])}>"
        if attributes
        else f"<{tag}>"
    )
    return Html(head) if tag in _VOID else Html(f"{head}{_joined(content)}</{tag}>")


def join(content: HtmlContent) -> Html:
    if isinstance(content, Html):
        return content
    if isinstance(content, str):
        return Html(escape_text(content))
    if content is None:
        return EMPTY_HTML
    if isinstance(content, _NUMBERS):
        return Html(content)
    return Html(_joined(content))


def _joined(content: Iterable[HtmlContent]) -> str:
    return "".join([each if type(each) is Html else join(each) for each in content])


@cache  # a few dozen, all written here
def _written_name(name: str) -> str:
    return name.rstrip("_").replace("_", "-")


def _attribute(name: str, value: HtmlAttribute) -> str:
    if value is None or value is False:
        return ""
    name = _written_name(name)
    if value is True:
        return f" {name}"
    return f' {name}="{value if isinstance(value, Html) else escape_text(str(value))}"'


def external_link(url: str, *content: HtmlContent, **attributes: HtmlAttribute) -> Html:
    """A publisher's link: only http(s) and mailto; otherwise its text."""
    text = content or (url,)
    if not url.lower().startswith(("https://", "http://", "mailto:")) or not url.isprintable():
        return el("span", *text, **attributes)
    return el("a", *text, href=url, rel="noreferrer nofollow ugc", **attributes)


def meter(value: float, label: str) -> Html:
    """A meter with an accessible name. Built as one string, because a page contains hundreds."""
    text = f"{value:.2f}"
    return Html(f'<meter min="0" max="1" value="{value:.3f}" aria-label="{escape_text(label)} {text}">{text}</meter>')


def json_script(value: Any, kind: str) -> Html:
    """A JSON block for programs."""
    text = dump_json(value).decode().translate(_IN_SCRIPT)
    return Html(f'<script type="{kind}">{text}</script>')


def time_element(at: float | str) -> Html:
    """A time element with an absolute time, so that pages can be cached; a script adds the relative time."""
    instant = find_instant(at) if isinstance(at, str) else at
    if instant is None:
        return el("span", str(at))
    text = to_rfc3339(instant)
    return el("time", text[:16].replace("T", " "), " UTC", datetime=text)
