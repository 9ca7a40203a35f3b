"""S-expressions as text: `read_form(print_form(x)) == x`.

What fits a line stays on it; the rest is broken with two spaces for each level, entries of a map and pairs of a form one
to a line, in the order in which they stand.
"""

from __future__ import annotations

import math

from waypost import limits
from waypost.errors import InvalidDocument
from waypost.model.sexpr import Context, Form, Keyword, List, Map, Quote, Symbol, Vector, is_name

LINE = 96
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def print_form(form: Form) -> str:
    """The text of a form, broken over lines where it is long."""
    return _print(form, 0)


def print_line(form: Form) -> str:
    """The text of a form on one line."""
    match form:
        case List(items):
            return f"({' '.join(map(print_line, items))})"
        case Vector(items):
            return f"[{' '.join(map(print_line, items))}]"
        case Map(entries):
            return f"{{{' '.join(f'{print_line(key)} {print_line(value)}' for key, value in entries)}}}"
        case Quote(inner):
            return f"'{print_line(inner)}"
        case _:
            return _atom(form)


def _print(form: Form, indent: int) -> str:
    line = print_line(form)
    if len(line) + indent <= LINE or not isinstance(form, (List, Vector, Map, Quote)):
        return line
    if isinstance(form, Quote):
        return f"'{_print(form.form, indent + 1)}"
    margin = "\n" + " " * (indent + 2)
    if isinstance(form, Map):
        return "{" + margin + margin.join(_pair(key, value, indent + 2) for key, value in form.entries) + "}"
    if isinstance(form, Vector):
        return "[" + margin + margin.join(_print(item, indent + 2) for item in form.items) + "]"
    return "(" + margin.join(_list_lines(form.items, indent + 2)) + ")"


def _pair(key: Form, value: Form, indent: int) -> str:
    name = print_line(key)
    return f"{name} {_print(value, indent)}"


def _list_lines(items: tuple[Form, ...], indent: int) -> list[str]:
    """The head on the first line, then keyword and value together, as a profile is written."""
    lines = [_print(items[0], indent)]
    at = 1
    while at < len(items):
        if isinstance(items[at], Keyword) and at + 1 < len(items):
            lines.append(_pair(items[at], items[at + 1], indent))
            at += 2
        else:
            lines.append(_print(items[at], indent))
            at += 1
    return lines


def _atom(form: Form) -> str:
    match form:
        case None:
            return "nil"
        case bool():
            return "true" if form else "false"
        case int():
            return _integer(form)
        case float():
            return _float(form)
        case str():
            return _string(form)
        case Keyword(name):
            return f":{name}" if is_name(name) else f":{_string(name)}"
        case Symbol(name):
            if name == "/" or (is_name(name) and name not in ("true", "false", "nil") and not _signed_digit(name)):
                return name
            raise InvalidDocument(f"{name[:40]!r} cannot be written as a symbol.")
        case Context(name):
            return f"@{name}"
    raise InvalidDocument(f"{type(form).__name__} is not a form.")


def _signed_digit(name: str) -> bool:
    return name[0] in "+-" and name[1:2].isdigit()


def _integer(value: int) -> str:
    text = str(value)
    if len(text.lstrip("-")) > limits.RTFS_INTEGER_DIGITS:
        raise InvalidDocument(f"An integer has more than {limits.RTFS_INTEGER_DIGITS} digits.")
    return text


def _float(value: float) -> str:
    if not math.isfinite(value):
        raise InvalidDocument(f"{value} cannot be written.", hint="Use nil or leave it out.")
    mantissa, exponent_mark, exponent = repr(value).partition("e")
    if "." not in mantissa:
        mantissa += ".0"
    return mantissa + exponent_mark + exponent


def _string(text: str) -> str:
    return '"' + "".join(map(_char, text)) + '"'


def _char(char: str) -> str:
    escaped = _ESCAPES.get(char)
    if escaped is not None:
        return escaped
    if char < " " or char == "\x7f":
        return f"\\u{ord(char):04x}"
    if "\ud800" <= char <= "\udfff":
        raise InvalidDocument("The text holds half of a surrogate pair.")
    return char
