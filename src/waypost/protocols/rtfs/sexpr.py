"""S-expressions of RTFS (rtfs.md §1): values, a strict parser, a printer, and conversion to and from JSON.

Nothing is evaluated, and forms have no meaning here. `parse_form(print_form(x)) == x`. Parse errors have line and
column. The parser's work is linear in the length of the text, and the number of forms is limited by the length.
`lenient` also accepts what occurs in practice: a JSON-style colon after a string key, `#inst "…"` and `#uuid "…"`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import msgspec

from waypost import limits
from waypost.errors import InvalidDocument
from waypost.model.json import JsonObject

RTFS_TEXT_TYPE: Final = "application/rtfs"  # the media type of RTFS text; a card is application/json

_BOM = b"\xef\xbb\xbf"
_SPACE = b" \t\r\n\f,"  # a comma is white space (RTFS-2)
# A list, a comment or a discard. A vector or map could also be JSON, and is treated as JSON.
_STARTS = (b"(", b";", b"#")


def is_sexpr_text(content: bytes) -> bool:
    """Return whether the content starts like RTFS text, and not like JSON."""
    return content.removeprefix(_BOM).lstrip(_SPACE).startswith(_STARTS)


# --- Values ---------------------------------------------------------------------------------------


class Keyword(msgspec.Struct, frozen=True, gc=False):
    """`:name` or `:ns/name`; `name` is the text without the colon."""

    name: str


class Symbol(msgspec.Struct, frozen=True, gc=False):
    name: str


class List(msgspec.Struct, frozen=True):
    items: tuple[Form, ...] = ()


class Vector(msgspec.Struct, frozen=True):
    items: tuple[Form, ...] = ()


class Map(msgspec.Struct, frozen=True):
    """Entries in the order of the text; the parser rejects duplicate keys."""

    entries: tuple[tuple[Key, Form], ...] = ()

    def find(self, name: str) -> Form:
        """Return the value of the keyword `name`; None if it is absent or nil."""
        for key, value in self.entries:
            if isinstance(key, Keyword) and key.name == name:
                return value
        return None


class Quote(msgspec.Struct, frozen=True):
    form: Form


class Context(msgspec.Struct, frozen=True, gc=False):
    """`@name`, a reference into a running task."""

    name: str


Key: TypeAlias = Keyword | str | int
Form: TypeAlias = bool | int | float | str | Keyword | Symbol | List | Vector | Map | Quote | Context | None
_IDENT: Final = r"[A-Za-z_$+\-*=<>!?&%][A-Za-z0-9_$+\-*=<>!?&%.:]*+"
_NAME: Final = rf"{_IDENT}(?:/{_IDENT})?"  # in ASCII; `is_name` allows other letters
_PLAIN_NAME: Final = re.compile(rf"{_NAME}\Z")
_START: Final = "_$+-*=<>!?&%"
_NO_LETTERS: Final = re.compile(f"[{re.escape(_START)}0-9.:]++")


def is_name(text: str) -> bool:
    """Return whether `text` can be written as a symbol, or as a keyword without quotes."""
    if text.isascii():
        return _PLAIN_NAME.match(text) is not None
    namespace, slash, name = text.partition("/")
    return _is_ident(namespace) and (not slash or _is_ident(name))


def _is_ident(text: str) -> bool:
    if text == "" or not (text[0] in _START or text[0].isalpha()):
        return False
    letters = _NO_LETTERS.sub("", text)
    return letters == "" or letters.isalpha()


# --- Printer --------------------------------------------------------------------------------------

LINE_CHARS = 96
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def print_form(form: Form) -> str:
    """Print a form; long ones on several lines, indented by two spaces per level."""
    return _print(form, 0)


def print_line(form: Form) -> str:
    """Print a form on one line."""
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
    if len(line) + indent <= LINE_CHARS or not isinstance(form, (List, Vector, Map, Quote)):
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
    """Return the lines of a list: the head, then each keyword with its value."""
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
            return _print_string(form)
        case Keyword(name):
            return f":{name}" if is_name(name) else f":{_print_string(name)}"
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


def _print_string(text: str) -> str:
    return '"' + "".join(map(_char, text)) + '"'


def _char(char: str) -> str:
    escaped = _ESCAPES.get(char)
    if escaped is not None:
        return escaped
    if char < " " or char == "\x7f":
        return f"\\u{ord(char):04x}"
    if "\ud800" <= char <= "\udfff":
        raise InvalidDocument("The text contains a lone surrogate.")
    return char


# --- JSON -----------------------------------------------------------------------------------------


def form_to_json(form: Form, path: str, warnings: list[str], *, symbols: bool = True) -> Any:
    """Convert data to JSON (RTFS-20, RTFS-63). Forms that need evaluation are rejected; `symbols=False` also rejects
    symbols."""
    match form:
        case Keyword(name):
            return name
        case Symbol(name) if symbols:
            return name
        case Vector(items):
            return [form_to_json(item, f"{path}[{at}]", warnings, symbols=symbols) for at, item in enumerate(items)]
        case Map():
            return map_to_json(form, path, warnings, symbols=symbols)
        case Symbol() | List() | Quote() | Context():
            raise InvalidDocument(
                f"{print_line(form)[:40]} is not data.",
                path=path,
                hint="Write the value itself: forms are not evaluated.",
            )
        case bool() | str() | None:
            return form
        case int():
            return _json_integer(form, path, warnings)
        case float():
            if not math.isfinite(form):
                raise InvalidDocument(f"{form} is not a JSON number.", path=path)
            return form


def map_to_json(form: Map, path: str, warnings: list[str], *, symbols: bool = True) -> JsonObject:
    value: JsonObject = {}
    for key, item in form.entries:
        name = json_name(key)
        where = f"{path} {print_line(key)}"
        if name in value:
            raise InvalidDocument(f"Two keys of a map become {name!r}.", path=where, hint="Rename one of them.")
        value[name] = form_to_json(item, where, warnings, symbols=symbols)
    return value


def json_name(key: Key) -> str:
    """Return a keyword's name with `_` for `-`, a string unchanged, an integer in decimal."""
    if isinstance(key, Keyword):
        return key.name.replace("-", "_")
    return key if isinstance(key, str) else str(key)


def _json_integer(value: int, path: str, warnings: list[str]) -> int | str:
    if abs(value) <= limits.JSON_INTEGER_MAX:
        return value
    warnings.append(f"{path}: {value} is beyond ±(2^53−1) and was converted to a string.")
    return str(value)


def json_to_form(value: Any, key: Callable[[str], Key] = Keyword) -> Form:
    """Convert a JSON value; `key` converts member names, by default to keywords."""
    if isinstance(value, dict):
        return Map(tuple((key(name), json_to_form(item, key)) for name, item in value.items()))
    if isinstance(value, (list, tuple)):
        return Vector(tuple(json_to_form(item, key) for item in value))
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise InvalidDocument(f"{type(value).__name__} is not a JSON value.")


def profile_key(name: str) -> Key:
    """Return the profile key of a JSON member: a keyword with `-` for `_` if `json_name` inverts it, else the
    string."""
    renamed = name.replace("_", "-")
    return Keyword(renamed) if "-" not in name and is_name(renamed) else name


# --- Parser ---------------------------------------------------------------------------------------

# The content of a valid string: no control character, only escapes of JSON, no lone surrogate.
_CLEAN: Final = r'[^"\\\x00-\x08\x0b\x0c\x0e-\x1f\x7f]*+'
_ESCAPE: Final = (
    r'\\(?:["\\/bfnrt]'
    r"|u(?:[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?![dD][89a-fA-F])[0-9a-fA-F]{4}))"
)
_STRING_CONTENT: Final = rf"{_CLEAN}(?:{_ESCAPE}{_CLEAN})*"
_IN_WORD: Final = r'[^ \t\r\n\f,()\[\]{}";]'
_WORD_END: Final = rf"(?!{_IN_WORD})"

# One token with the white space and comments before it; the number of its group is its kind. Every character belongs to
# some token, and quantifiers are possessive (`++`; groups are not, see `json`), so matching is linear. Plain words need
# no further checks.
_KEYWORD, _STRING, _SYMBOL, _INTEGER, _QUOTED, _FLOAT, _OPENING, _CLOSING, _DISCARD, _OTHER, _END = range(1, 12)
_TOKEN: Final = re.compile(
    rf"""[ \t\r\n\f,]*+(?:;[^\n\r]*+[ \t\r\n\f,]*+)*
    (?: :({_NAME}{_WORD_END})
    | "({_STRING_CONTENT})"
    | ((?![-+]){_NAME}{_WORD_END})
    | ([-+]?[0-9]{{1,{limits.RTFS_INTEGER_DIGITS}}}+{_WORD_END})
    | :"({_STRING_CONTENT})"
    | ([-+]?[0-9]{{1,20}}+\.[0-9]{{1,20}}+(?:[eE][-+]?[0-9]{{1,2}}+)?{_WORD_END})   # always fits a double
    | ([(\[{{])
    | ([)\]}}])
    | (\#_)
    | ('|:?"(?:[^"\\]++|\\.)*"?|{_IN_WORD}++)
    | (\Z))""",
    re.VERBOSE | re.DOTALL,
)
_HEX: Final = re.compile(r"\\u(?:[dD][89abAB][0-9a-fA-F]{2}(?:\\u(?![0-9a-fA-F]{4}))?|[0-9a-fA-F]{4})")
_STRING_WORD: Final = re.compile(_STRING_CONTENT)
_ALL_DIGITS: Final = re.compile(r"[-+]?[0-9]++\Z")
_ANY_FLOAT: Final = re.compile(r"[-+]?[0-9]++\.[0-9]++(?:[eE][-+]?[0-9]++)?\Z")
_NUMBER_START: Final = re.compile(r"[-+]?[0-9]")
_CONSTANTS: Final[dict[str, bool | None]] = {"true": True, "false": False, "nil": None}
_ENDS: Final = frozenset((_CLOSING, _END))
_PREFIX_CHARS: Final = {_KEYWORD: 1, _STRING: 1, _QUOTED: 2}  # characters of a token before its group
_TAGS_READ_AS_STRINGS: Final = ("#inst", "#uuid")


def _parse_string(content: str) -> str:
    """Decode the escapes, which are those of JSON; tabs and line breaks may be unescaped."""
    text: str = json.loads(f'"{content}"', strict=False) if "\\" in content else content
    return text


def _symbol(word: str) -> Symbol | bool | None:
    return _CONSTANTS[word] if word in _CONSTANTS else Symbol(word)


def _quoted(content: str) -> Keyword:
    return Keyword(_parse_string(content))


_PLAIN: Final[tuple[Callable[[str], Form], ...]] = (
    str,
    Keyword,
    _parse_string,
    _symbol,
    int,
    _quoted,
    float,
)  # by kind of token


def parse_forms(source: str | bytes, *, lenient: bool = False) -> tuple[Form, ...]:
    """Parse all top-level forms of a text."""
    return _Parser(_text(source), lenient).file()


def parse_form(source: str | bytes, *, lenient: bool = False) -> Form:
    """Parse a text with exactly one form."""
    forms = parse_forms(source, lenient=lenient)
    if len(forms) != 1:
        raise InvalidDocument(f"Expected one form, found {len(forms)}.", path="line 1, column 1")
    return forms[0]


def _text(source: str | bytes) -> str:
    if isinstance(source, str):
        source = _encoded(source)
    if len(source) > limits.RTFS_TEXT_BYTES:
        raise InvalidDocument(
            f"The text has {len(source)} bytes; at most {limits.RTFS_TEXT_BYTES} are allowed.", path="line 1, column 1"
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
        raise _error(text, error.start, "The text contains a lone surrogate.") from None


def _error(text: str, offset: int, message: str, *, hint: str | None = None) -> InvalidDocument:
    line = text.count("\n", 0, offset) + 1
    column = offset - text.rfind("\n", 0, offset)
    return InvalidDocument(
        message, path=f"line {line}, column {column}", hint=hint, details={"line": line, "column": column}
    )


class _Parser:
    """A recursive-descent parser of one text. Depth, number of forms and digits are limited (P-5)."""

    __slots__ = ("at", "depth", "forms_left", "lenient", "names", "stream", "text")

    def __init__(self, text: str, lenient: bool) -> None:
        self.text = text
        self.lenient = lenient
        self.stream = _TOKEN.finditer(text, 1 if text.startswith("\ufeff") else 0)
        self.at = 0  # end of the last tagged string
        self.names: dict[str, Form] = {}  # cache of parsed words that are not plain
        self.depth = 0
        self.forms_left = _max_forms(text)

    def file(self) -> tuple[Form, ...]:
        return self.items(None, "")

    def error(self, message: str, at: int, *, hint: str | None = None) -> InvalidDocument:
        return _error(self.text, at, message, hint=hint)

    # --- Tokens -----------------------------------------------------------------------------------

    def next_token(self) -> re.Match[str]:
        """Return the next token that is not discarded. The last token is the end of the text."""
        while (token := next(self.stream)).lastindex == _DISCARD:
            self.discard(token)
        return token

    def discard(self, mark: re.Match[str]) -> None:
        self.enter(mark)
        token = self.next_token()
        if token.lastindex in _ENDS:
            raise self.error("`#_` has no form to discard.", _start(mark))
        self.form(token)
        self.depth -= 1

    def enter(self, mark: re.Match[str]) -> None:
        self.depth += 1
        if self.depth > limits.RTFS_DEPTH:
            raise self.too_deep(mark)

    def too_deep(self, token: re.Match[str]) -> InvalidDocument:
        return self.error(f"Nested deeper than {limits.RTFS_DEPTH}.", _start(token))

    # --- Forms ------------------------------------------------------------------------------------

    def form(self, token: re.Match[str]) -> Form:
        """Parse the form that starts with this token."""
        self.forms_left -= 1
        if self.forms_left < 0:
            raise self.too_many(_start(token))
        kind = token.lastindex or _END
        if kind < _OPENING:
            return _PLAIN[kind](token[kind])
        if kind == _OPENING:
            return self.collection(token)
        if kind == _CLOSING:
            raise self.error(f"`{token[_CLOSING]}` has no opening bracket.", _start(token))
        return self.other(token[_OTHER], token)

    def too_many(self, start: int) -> InvalidDocument:
        return self.error(
            f"More than {_max_forms(self.text)} forms.",
            start,
            hint=f"The limit is {limits.RTFS_FORMS_SHORT}, or one form per {limits.RTFS_FORM_CHARS} characters in longer texts.",
        )

    def collection(self, opening: re.Match[str]) -> List | Vector | Map:
        self.depth += 1
        if self.depth > limits.RTFS_DEPTH:
            raise self.too_deep(opening)
        word = opening[_OPENING]
        form: List | Vector | Map
        if word == "[":
            form = Vector(self.items(opening, "]"))
        elif word == "(":
            form = List(self.items(opening, ")"))
        else:
            form = Map(self.entries(opening))
        self.depth -= 1
        return form

    def items(self, opening: re.Match[str] | None, closing: str) -> tuple[Form, ...]:
        """Parse the forms up to the closing bracket; without one, up to the end of the text."""
        forms: list[Form] = []
        while True:
            token = next(self.stream)
            kind = token.lastindex or _END
            if kind <= _OPENING and self.forms_left > 0:  # fast path of `form`
                self.forms_left -= 1
                forms.append(_PLAIN[kind](token[kind]) if kind < _OPENING else self.collection(token))
            elif kind in _ENDS and (token[_CLOSING] == closing or self.closes(token, opening, closing)):
                return tuple(forms)
            elif kind == _DISCARD:
                self.discard(token)
            else:
                forms.append(self.form(token))

    def closes(self, token: re.Match[str], opening: re.Match[str] | None, closing: str) -> bool:
        """Return whether this closing token ends the collection; raises an error for the wrong one."""
        word = token[_CLOSING]
        if word == closing:
            return True
        if opening is None:
            return word is None
        if word is None:
            raise self.error(f"`{opening[_OPENING]}` is never closed.", _start(opening), hint=f"Add `{closing}`.")
        raise self.error(f"`{word}` where `{closing}` is expected.", _start(token))

    def entries(self, opening: re.Match[str]) -> tuple[tuple[Key, Form], ...]:
        entries: dict[Key, Form] = {}
        while (token := self.next_token())[_CLOSING] != "}":
            key = self.key(token, opening)
            if key in entries:
                raise self.error("A map has the same key twice.", _start(token), hint="Keep one of them.")
            value = self.next_token()
            if value.lastindex in _ENDS and self.closes(value, opening, "}"):
                raise self.error("A map key has no value.", _start(token))
            entries[key] = self.form(value)
        return tuple(entries.items())

    def key(self, token: re.Match[str], opening: re.Match[str]) -> Key:
        if token.lastindex == _KEYWORD and self.forms_left > 0:  # fast path of `form`
            self.forms_left -= 1
            return Keyword(token[_KEYWORD])
        if token.lastindex in _ENDS:
            self.closes(token, opening, "}")
        key = self.form(token)
        if isinstance(key, Keyword) or (isinstance(key, int) and not isinstance(key, bool)):
            return key
        if not isinstance(key, str):
            raise self.error("A map key must be a keyword, a string or an integer.", _start(token))
        end = token.end() if token.lastindex == _STRING else self.at
        if self.lenient and self.text.startswith(":", end):
            self.stream = _TOKEN.finditer(self.text, end + 1)  # skip a colon right after a key
        return key

    # --- Words that are not plain -----------------------------------------------------------------

    def other(self, word: str, token: re.Match[str]) -> Form:
        if word in self.names:
            return self.names[word]
        match word[0]:
            case "'":
                return self.quote(token)
            case "#":
                return self.dispatch(word, _start(token))
            case "^":
                raise self.error("Metadata (`^`) is not supported.", _start(token), hint="Leave it out.")
            case '"':
                raise self.string_error(_start(token))
            case ":" if word.startswith(':"'):
                raise self.string_error(_start(token) + 1)
        form = self.names[word] = self.name(word, token)
        return form

    def name(self, word: str, token: re.Match[str]) -> Form:
        """Parse a name or number that is not a plain word."""
        if word[0] == ":":
            return Keyword(self.named(word, word[1:], token, "keyword"))
        if word[0] == "@":
            return Context(self.named(word, word[1:], token, "reference"))
        if _NUMBER_START.match(word):
            return self.number(word, _start(token))
        return Symbol(word if word == "/" else self.named(word, word, token, "symbol"))

    def named(self, word: str, name: str, token: re.Match[str], what: str) -> str:
        if is_name(name):
            return name
        raise self.error(f"{word[:40]!r} is not a {what}.", _start(token))

    def quote(self, mark: re.Match[str]) -> Quote:
        self.enter(mark)
        token = self.next_token()
        if token.lastindex == _END:
            raise self.error("`'` has no form to quote.", _start(mark))
        form = self.form(token)
        self.depth -= 1
        return Quote(form)

    def dispatch(self, word: str, start: int) -> Form:
        if self.lenient and word in _TAGS_READ_AS_STRINGS:
            token = self.next_token()
            if token.lastindex == _STRING:
                self.at = token.end()
                return _parse_string(token[_STRING])
            if token.lastindex == _OTHER and token[_OTHER][0] == '"':
                raise self.string_error(_start(token))
        raise self.error(f"`{word[:24]}`: sets and tagged values are not supported.", start)

    def string_error(self, start: int) -> InvalidDocument:
        """Return the error for the invalid string that starts at `start`."""
        at = _STRING_WORD.match(self.text, start + 1).end()  # type: ignore[union-attr]  # it always matches
        char = self.text[at : at + 1]
        if not char:
            return self.error("The string is never closed.", start, hint='Add `"`.')
        if char != "\\":
            return self.error(f"The control character U+{ord(char):04X} must be escaped in a string.", at)
        kind = self.text[at + 1 : at + 2]
        if kind != "u":
            known = 'Known: \\" \\\\ \\/ \\b \\f \\n \\r \\t \\uXXXX.'
            return self.error(f"`\\{kind}` is not an escape.", at, hint=known)
        digits = _HEX.match(self.text, at)
        if digits is None or len(digits[0]) > 6:
            return self.error("`\\u` needs four hexadecimal digits.", at)
        return self.error("Lone surrogate.", at, hint="Escape both halves of the pair.")

    def number(self, word: str, start: int) -> int | float:
        if _ALL_DIGITS.match(word):
            raise self.error(f"An integer has more than {limits.RTFS_INTEGER_DIGITS} digits.", start)
        if _ANY_FLOAT.match(word):
            value = float(word)
            if math.isfinite(value):
                return value
            raise self.error(f"{word[:24]} does not fit a double.", start)
        raise self.error(f"{word[:40]!r} is not a number.", start, hint="Write 5, -1, 0.5 or 1.0e5.")


def _start(token: re.Match[str]) -> int:
    """Return the start of a token, after the white space before it."""
    kind = token.lastindex or _END
    return token.start(kind) - _PREFIX_CHARS.get(kind, 0)


def _max_forms(text: str) -> int:
    """Return the maximum number of forms of a text: a minimum, and more for long texts."""
    dense = len(text) // limits.RTFS_FORM_CHARS
    return min(max(limits.RTFS_FORMS_SHORT, dense), limits.RTFS_FORMS)
