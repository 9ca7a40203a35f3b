"""S-expressions as RTFS writes them: the values, and one strict reader (rtfs.md §1).

Text in, frozen values out. Nothing is evaluated, and no form has a meaning here: what a profile or a query may say is
decided by those who read one. Errors carry line and column. `lenient` reads what is seen in the wild besides: a JSON-style
colon after a string key, `#inst "…"` and `#uuid "…"`.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TypeAlias

from waypost import limits
from waypost.errors import InvalidDocument


@dataclass(frozen=True, slots=True)
class Keyword:
    """`:name` or `:ns/name`; `name` is the whole text without the colon."""

    name: str


@dataclass(frozen=True, slots=True)
class Symbol:
    name: str


@dataclass(frozen=True, slots=True)
class List:
    items: tuple[Form, ...] = ()


@dataclass(frozen=True, slots=True)
class Vector:
    items: tuple[Form, ...] = ()


@dataclass(frozen=True, slots=True)
class Map:
    """Entries in the order in which they were written. The reader lets no key appear twice."""

    entries: tuple[tuple[Key, Form], ...] = ()

    def find(self, name: str) -> Form:
        """The value under the keyword `name`; None when it is absent or nil."""
        for key, value in self.entries:
            if isinstance(key, Keyword) and key.name == name:
                return value
        return None


@dataclass(frozen=True, slots=True)
class Quote:
    form: Form


@dataclass(frozen=True, slots=True)
class Context:
    """`@name`, a reference into a running task."""

    name: str


Key: TypeAlias = Keyword | str | int
Form: TypeAlias = bool | int | float | str | Keyword | Symbol | List | Vector | Map | Quote | Context | None

_BLANK = re.compile(r"[ \t\r\n\f,]+|;[^\n\r]*")
_TOKEN = re.compile(r'[^ \t\r\n\f,()\[\]{}";]+')
_PLAIN = re.compile(r'[^"\\\x00-\x1f\x7f]+|[\t\n\r]+')
_INTEGER = re.compile(r"[-+]?[0-9]+\Z")
_FLOAT = re.compile(r"[-+]?[0-9]+\.[0-9]+(?:[eE][-+]?[0-9]+)?\Z")
_NUMBER_START = re.compile(r"[-+]?[0-9]")
_IDENT = r"[A-Za-z_$+\-*=<>!?&%][A-Za-z0-9_$+\-*=<>!?&%.:]*"
_ASCII_NAME = re.compile(rf"(?:{_IDENT}/)?{_IDENT}\Z")
_START = frozenset("_$+-*=<>!?&%")
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_HEX = re.compile(r"[0-9a-fA-F]{4}")
_CONSTANTS: dict[str, bool | None] = {"true": True, "false": False, "nil": None}
_CLOSING = {"(": ")", "[": "]", "{": "}"}
_TAGS_READ_AS_STRINGS = ("#inst", "#uuid")


def is_name(text: str) -> bool:
    """True when `text` can be written as a symbol, or as a keyword without quotes."""
    if text.isascii():
        return _ASCII_NAME.match(text) is not None
    namespace, slash, name = text.partition("/")
    return _is_ident(namespace) and (not slash or _is_ident(name))


def _is_ident(text: str) -> bool:
    return text != "" and _is_start(text[0]) and all(_is_start(char) or char in "0123456789.:" for char in text)


def _is_start(char: str) -> bool:
    return char in _START or char.isalpha()


def read_forms(source: str | bytes, *, lenient: bool = False) -> tuple[Form, ...]:
    """Every top-level form of a file."""
    return _Reader(_text(source), lenient).file()


def read_form(source: str | bytes, *, lenient: bool = False) -> Form:
    """The one form of a text."""
    forms = read_forms(source, lenient=lenient)
    if len(forms) != 1:
        raise InvalidDocument(f"Expected one form, found {len(forms)}.", path="line 1, column 1")
    return forms[0]


def _text(source: str | bytes) -> str:
    if isinstance(source, str):
        source = _encoded(source)
    if len(source) > limits.RTFS_TEXT_BYTES:
        raise InvalidDocument(
            f"The text has {len(source)} bytes; at most {limits.RTFS_TEXT_BYTES} are read.", path="line 1, column 1"
        )
    try:
        return source.decode("utf-8")
    except UnicodeDecodeError as error:
        before = source[: error.start].decode("utf-8")
        raise _error(before, len(before), "The text is not valid UTF-8.", hint="Save the file as UTF-8.") from None


def _encoded(text: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise _error(text, error.start, "The text holds half of a surrogate pair.") from None


def _error(text: str, offset: int, message: str, *, hint: str | None = None) -> InvalidDocument:
    line = text.count("\n", 0, offset) + 1
    column = offset - text.rfind("\n", 0, offset)
    return InvalidDocument(
        message, path=f"line {line}, column {column}", hint=hint, details={"line": line, "column": column}
    )


class _Reader:
    """A recursive descent over one text. Depth, number of forms and digits are bounded (P-5)."""

    __slots__ = ("at", "depth", "forms", "lenient", "text")

    def __init__(self, text: str, lenient: bool) -> None:
        self.text = text
        self.lenient = lenient
        self.at = 1 if text.startswith("\ufeff") else 0
        self.depth = 0
        self.forms = 0

    def file(self) -> tuple[Form, ...]:
        found: list[Form] = []
        self.skip()
        while self.at < len(self.text):
            found.append(self.form())
            self.skip()
        return tuple(found)

    def error(self, message: str, at: int | None = None, *, hint: str | None = None) -> InvalidDocument:
        return _error(self.text, self.at if at is None else at, message, hint=hint)

    def skip(self) -> None:
        """Whitespace, commas, comments and discarded forms."""
        while True:
            blank = _BLANK.match(self.text, self.at)
            if blank:
                self.at = blank.end()
            elif self.text.startswith("#_", self.at):
                self.discard()
            else:
                return

    def discard(self) -> None:
        start = self.at
        self.at += 2
        self.enter(start)
        self.skip()
        if self.at >= len(self.text) or self.text[self.at] in ")]}":
            raise self.error("`#_` has no form to discard.", start)
        self.form()
        self.depth -= 1

    def enter(self, start: int) -> None:
        self.depth += 1
        if self.depth > limits.RTFS_DEPTH:
            raise self.error(f"Nested deeper than {limits.RTFS_DEPTH}.", start)

    def form(self) -> Form:
        start = self.at
        self.forms += 1
        if self.forms > limits.RTFS_FORMS:
            raise self.error(f"More than {limits.RTFS_FORMS} forms.", start)
        match self.text[start]:
            case "(":
                return List(self.items())
            case "[":
                return Vector(self.items())
            case "{":
                return self.map()
            case '"':
                return self.string()
            case "'":
                return self.quote()
            case ")" | "]" | "}" as bracket:
                raise self.error(f"`{bracket}` closes nothing.", start)
            case "#":
                return self.dispatch()
            case "^":
                raise self.error("Metadata (`^`) is not read.", start, hint="Leave it out.")
            case _:
                return self.token()

    def items(self) -> tuple[Form, ...]:
        start = self.at
        closing = _CLOSING[self.text[start]]
        self.enter(start)
        self.at += 1
        found: list[Form] = []
        while not self.closes(start, closing):
            found.append(self.form())
        self.depth -= 1
        return tuple(found)

    def closes(self, start: int, closing: str) -> bool:
        """Skip to the next form of a collection; True when it ends here instead."""
        self.skip()
        if self.at >= len(self.text):
            raise self.error(f"`{self.text[start]}` is never closed.", start, hint=f"Add `{closing}`.")
        char = self.text[self.at]
        if char == closing:
            self.at += 1
            return True
        if char in ")]}":
            raise self.error(f"`{char}` where `{closing}` is expected.")
        return False

    def map(self) -> Map:
        start = self.at
        self.enter(start)
        self.at += 1
        entries: list[tuple[Key, Form]] = []
        seen: set[Key] = set()
        while not self.closes(start, "}"):
            where = self.at
            key = self.key()
            if key in seen:
                raise self.error("A map has the same key twice.", where, hint="Keep one of them.")
            seen.add(key)
            if self.closes(start, "}"):
                raise self.error("A map key has no value.", where)
            entries.append((key, self.form()))
        self.depth -= 1
        return Map(tuple(entries))

    def key(self) -> Key:
        where = self.at
        key = self.form()
        if isinstance(key, str):
            if self.lenient and self.text.startswith(":", self.at):
                self.at += 1
            return key
        if isinstance(key, Keyword) or (isinstance(key, int) and not isinstance(key, bool)):
            return key
        raise self.error("A map key is a keyword, a string or an integer.", where)

    def quote(self) -> Quote:
        start = self.at
        self.enter(start)
        self.at += 1
        self.skip()
        if self.at >= len(self.text):
            raise self.error("`'` has no form to quote.", start)
        form = self.form()
        self.depth -= 1
        return Quote(form)

    def dispatch(self) -> Form:
        start = self.at
        token = _TOKEN.match(self.text, start)
        tag = token.group() if token else "#"
        if self.lenient and tag in _TAGS_READ_AS_STRINGS:
            self.at += len(tag)
            self.skip()
            if self.text.startswith('"', self.at):
                return self.string()
        raise self.error(f"`{tag[:24]}` is not read: sets and tagged values have no place here.", start)

    def string(self) -> str:
        start = self.at
        self.at += 1
        parts: list[str] = []
        while True:
            plain = _PLAIN.match(self.text, self.at)
            if plain:
                parts.append(plain.group())
                self.at = plain.end()
                continue
            if self.at >= len(self.text):
                raise self.error("The string is never closed.", start, hint='Add `"`.')
            char = self.text[self.at]
            if char == '"':
                self.at += 1
                return "".join(parts)
            if char != "\\":
                raise self.error(f"The control character U+{ord(char):04X} must be escaped in a string.")
            parts.append(self.escape())

    def escape(self) -> str:
        start = self.at
        kind = self.text[start + 1 : start + 2]
        if kind == "u":
            return self.unicode(start)
        if kind not in _ESCAPES:
            raise self.error(
                f"`\\{kind}` is not an escape.", start, hint='Known: \\" \\\\ \\/ \\b \\f \\n \\r \\t \\uXXXX.'
            )
        self.at += 2
        return _ESCAPES[kind]

    def unicode(self, start: int) -> str:
        """`\\uXXXX`; two halves of a surrogate pair are joined."""
        high = self.code_unit(start)
        if not 0xD800 <= high <= 0xDFFF:
            return chr(high)
        if high < 0xDC00 and self.text.startswith("\\u", self.at):
            low = self.code_unit(start)
            if 0xDC00 <= low <= 0xDFFF:
                return chr(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))
        raise self.error("Half of a surrogate pair.", start, hint="Escape the whole character.")

    def code_unit(self, start: int) -> int:
        digits = _HEX.match(self.text, self.at + 2)
        if not digits:
            raise self.error("`\\u` takes four hexadecimal digits.", start)
        self.at = digits.end()
        return int(digits.group(), 16)

    def token(self) -> Form:
        start = self.at
        found = _TOKEN.match(self.text, start)
        if found is None:
            raise self.error(f"Unexpected character {self.text[start]!r}.", start)
        token = found.group()
        self.at = found.end()
        if token == ":" and self.text.startswith('"', self.at):
            return Keyword(self.string())
        if _NUMBER_START.match(token):
            return self.number(token, start)
        if token[0] == ":":
            return Keyword(self.name(token[1:], start, "keyword"))
        if token[0] == "@":
            return Context(self.name(token[1:], start, "reference"))
        if token in _CONSTANTS:
            return _CONSTANTS[token]
        return Symbol("/" if token == "/" else self.name(token, start, "symbol"))

    def name(self, text: str, start: int, what: str) -> str:
        if not is_name(text):
            raise self.error(f"{self.text[start : start + len(text) + 1][:40]!r} is not a {what}.", start)
        return text

    def number(self, token: str, start: int) -> int | float:
        if _INTEGER.match(token):
            if len(token.lstrip("+-")) > limits.RTFS_INTEGER_DIGITS:
                raise self.error(f"An integer has more than {limits.RTFS_INTEGER_DIGITS} digits.", start)
            return int(token)
        if _FLOAT.match(token):
            value = float(token)
            if math.isfinite(value):
                return value
            raise self.error(f"{token[:24]} does not fit a double.", start)
        raise self.error(f"{token[:40]!r} is not a number.", start, hint="Write 5, -1, 0.5 or 1.0e5.")
