"""The Jinja2 environment of the pages: every inserted text is escaped, and no template can switch that off.

Bidirectional and invisible characters are made visible in every text (X2). Only the filters of this module make markup.
"""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from waypost import __version__
from waypost.model.json import dump_json
from waypost.model.times import find_instant, to_rfc3339

_TEMPLATES = Path(__file__).with_name("templates")
_LINE_ENDS = frozenset("\n\t")
_LINK_SCHEMES = ("https://", "http://", "mailto:")
# ADP P-1: nothing inside the block can close it, and JavaScript parsers read it as JSON does.
_IN_SCRIPT = str.maketrans({char: f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"})


def show_invisible(value: Any) -> Any:
    """Replace bidirectional and invisible characters by their escapes; applied to every value that a template inserts."""
    if value is None:
        return ""
    if type(value) is str and not value.isprintable():
        return "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in value)
    return value


def multiline(value: str) -> Markup:
    """Escape text with several lines."""
    if not value.isprintable():
        value = "".join(char if char.isprintable() or char in _LINE_ENDS else f"\\u{ord(char):04x}" for char in value)
    return Markup(html.escape(value))  # noqa: S704 - escaped


def form_value(value: str) -> Markup:
    """Escape user input that is returned unchanged in a form field."""
    return Markup(html.escape(value))  # noqa: S704 - escaped


def code_spans(value: str) -> Markup:
    """Escape a text; what stands between backticks becomes code."""
    parts = [escape(show_invisible(part)) for part in value.split("`")]
    if len(parts) % 2 == 0:  # a backtick without its partner
        return escape(show_invisible(value))
    return Markup().join(Markup("<code>{}</code>").format(part) if at % 2 else part for at, part in enumerate(parts))


def json_block(value: Any) -> Markup:
    """JSON for the inside of a `script` element."""
    return Markup(dump_json(value).decode().translate(_IN_SCRIPT))  # noqa: S704 - has no character of markup


def time_element(at: float | str) -> Markup:
    """A time element with an absolute time, so that pages can be cached; a script adds the relative time."""
    instant = find_instant(at) if isinstance(at, str) else at
    if instant is None:
        return Markup("<span>{}</span>").format(show_invisible(str(at)))
    text = to_rfc3339(instant)
    return Markup('<time datetime="{}">{} UTC</time>').format(text, text[:16].replace("T", " "))


def since_element(at: float) -> Markup:
    """How long something has lasted: since when; a script says for how long."""
    text = to_rfc3339(at)
    return Markup('<time datetime="{}" data-since>since {} UTC</time>').format(text, text[:16].replace("T", " "))


def is_link(url: str) -> bool:
    """Whether a publisher's address may become a link: only http(s) and mailto."""
    return url.lower().startswith(_LINK_SCHEMES) and url.isprintable()


def count_of(number: int, noun: str, plural: str = "") -> str:
    """`1 agent`, `2 agents`, `1,000 agents`."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def _make_environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=show_invisible,
        auto_reload=False,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "multiline": multiline,
        "form_value": form_value,
        "code_spans": code_spans,
        "json_block": json_block,
        "time": time_element,
        "since": since_element,
        "count_of": count_of,
    }
    environment.tests |= {"link": is_link}
    environment.globals |= {"version": __version__}
    return environment


TEMPLATES = _make_environment()


def render(template: str, **values: Any) -> Markup:
    """Render a template. Text in `values` is escaped; `Markup` is inserted unchanged."""
    return Markup(TEMPLATES.get_template(template).render(values))  # noqa: S704 - rendered with autoescape
