"""How bytes begin that are S-expressions and no JSON. Knows the first characters alone; reading them is
`sexpr_read`'s."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from json.decoder import scanstring  # type: ignore[attr-defined]  # not told of, and public by its name
from typing import Any, Final, TypeAlias

import msgspec

from waypost import limits
from waypost.errors import InvalidDocument
from waypost.model.json import JsonObject

RTFS_TEXT_TYPE: Final = "application/rtfs"  # the media type of RTFS text; a card is application/json

_BOM = b"\xef\xbb\xbf"

_SPACE = b" \t\r\n\f,"  # a comma is white space there (RTFS-2)
# A list, a comment, or what is discarded. A vector or a map could be JSON as well, and is taken for that.
_STARTS = (b"(", b";", b"#")


def is_sexpr_text(content: bytes) -> bool:
    """True when this can be no JSON but a text of RTFS."""
    return content.removeprefix(_BOM).lstrip(_SPACE).startswith(_STARTS)


# ---- S-expressions as RTFS has them: the values (rtfs.md §1).
#
# No form has a meaning here: what a profile or a query may say is decided by those who read one. `sexpr_read.py` makes
# them of text, `sexpr_print.py` text of them.


class Keyword(msgspec.Struct, frozen=True, gc=False):
    """`:name` or `:ns/name`; `name` is the whole text without the colon."""

    name: str


class Symbol(msgspec.Struct, frozen=True, gc=False):
    name: str


class List(msgspec.Struct, frozen=True):
    items: tuple[Form, ...] = ()


class Vector(msgspec.Struct, frozen=True):
    items: tuple[Form, ...] = ()


class Map(msgspec.Struct, frozen=True):
    """Entries in the order in which they were written. The reader lets no key appear twice."""

    entries: tuple[tuple[Key, Form], ...] = ()

    def find(self, name: str) -> Form:
        """The value under the keyword `name`; None when it is absent or nil."""
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

NAME: Final = rf"{_IDENT}(?:/{_IDENT})?"  # of ASCII; others are names too, see is_name

_PLAIN_NAME: Final = re.compile(rf"{NAME}\Z")

_START: Final = "_$+-*=<>!?&%"

_NO_LETTERS: Final = re.compile(f"[{re.escape(_START)}0-9.:]++")


def is_name(text: str) -> bool:
    """True when `text` can be written as a symbol, or as a keyword without quotes."""
    if text.isascii():
        return _PLAIN_NAME.match(text) is not None
    namespace, slash, name = text.partition("/")
    return _is_ident(namespace) and (not slash or _is_ident(name))


def _is_ident(text: str) -> bool:
    if text == "" or not (text[0] in _START or text[0].isalpha()):
        return False
    letters = _NO_LETTERS.sub("", text)
    return letters == "" or letters.isalpha()


# ---- S-expressions as text: `read_form(print_form(x)) == x`.
#
# What fits a line stays on it; the rest is broken with two spaces for each level, entries of a map and pairs of a form
# one to a line, in the order in which they stand.

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
        raise InvalidDocument("The text holds half of a surrogate pair.")
    return char


# ---- S-expression values as JSON values and back (rtfs.md RTFS-20, RTFS-63).
#
# Only data converts: a list, a quoted form or a reference would have to be evaluated, and nothing is evaluated here.


def form_to_json(form: Form, path: str, warnings: list[str], *, symbols: bool = True) -> Any:
    """The JSON value of a form. `symbols=False` refuses names that only a running program could resolve."""
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
                f"{print_line(form)[:40]} is not data.", path=path, hint="Write the value itself: nothing is evaluated."
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
    """A keyword's name with `-` as `_`, a string as it is, an integer in decimal."""
    if isinstance(key, Keyword):
        return key.name.replace("-", "_")
    return key if isinstance(key, str) else str(key)


def _json_integer(value: int, path: str, warnings: list[str]) -> int | str:
    if abs(value) <= limits.JSON_INTEGER_MAX:
        return value
    warnings.append(f"{path}: {value} is beyond ±(2^53−1) and was made a string.")
    return str(value)


def json_to_form(value: Any, key: Callable[[str], Key] = Keyword) -> Form:
    """A JSON value as data. Member names become keywords, unless `key` says otherwise."""
    if isinstance(value, dict):
        return Map(tuple((key(name), json_to_form(item, key)) for name, item in value.items()))
    if isinstance(value, (list, tuple)):
        return Vector(tuple(json_to_form(item, key) for item in value))
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise InvalidDocument(f"{type(value).__name__} is not a JSON value.")


def profile_key(name: str) -> Key:
    """The key a JSON member has in a profile: `_` as `-`, so that `json_name` gives the name back; else the text
    itself."""
    renamed = name.replace("_", "-")
    return Keyword(renamed) if "-" not in name and is_name(renamed) else name


# ---- One strict reader of S-expressions (rtfs.md §1): text in, frozen values out.
#
# Nothing is evaluated. Errors carry line and column. `lenient` reads what is seen in the wild besides: a JSON-style
# colon after a string key, `#inst "…"` and `#uuid "…"`. Its work grows in step with the text, whatever the text is, and
# ends with the number of forms that a text of its length may hold.

# What is well written in a string: no control character, no escape but those of JSON, no half of a surrogate pair.
_CLEAN: Final = r'[^"\\\x00-\x08\x0b\x0c\x0e-\x1f\x7f]*+'

_ESCAPE: Final = (
    r'\\(?:["\\/bfnrt]'
    r"|u(?:[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?![dD][89a-fA-F])[0-9a-fA-F]{4}))"
)

_WELL_WRITTEN: Final = rf"{_CLEAN}(?:{_ESCAPE}{_CLEAN})*"

_IN_WORD: Final = r'[^ \t\r\n\f,()\[\]{}";]'

_BEHIND: Final = rf"(?!{_IN_WORD})"

# One token with the blanks and comments before it: the number of its group is its kind. Every character is of some
# token, and nothing is given back once it was taken (`++`; groups are not possessive, see `json`): no text makes this
# go over it often. Most words are plain, and are judged by this alone; the others are looked at again.
_KEYWORD, _STRING, _SYMBOL, _INTEGER, _QUOTED, _FLOAT, _OPENING, _CLOSING, _DISCARD, _OTHER, _END = range(1, 12)

_TOKEN: Final = re.compile(
    rf"""[ \t\r\n\f,]*+(?:;[^\n\r]*+[ \t\r\n\f,]*+)*
    (?: :({NAME}{_BEHIND})
    | "({_WELL_WRITTEN})"
    | ((?![-+]){NAME}{_BEHIND})
    | ([-+]?[0-9]{{1,{limits.RTFS_INTEGER_DIGITS}}}+{_BEHIND})
    | :"({_WELL_WRITTEN})"
    | ([-+]?[0-9]{{1,20}}+\.[0-9]{{1,20}}+(?:[eE][-+]?[0-9]{{1,2}}+)?{_BEHIND})   # none of these is beyond a double
    | ([(\[{{])
    | ([)\]}}])
    | (\#_)
    | ('|:?"(?:[^"\\]++|\\.)*"?|{_IN_WORD}++)
    | (\Z))""",
    re.VERBOSE | re.DOTALL,
)

_HEX: Final = re.compile(r"\\u(?:[dD][89abAB][0-9a-fA-F]{2}(?:\\u(?![0-9a-fA-F]{4}))?|[0-9a-fA-F]{4})")

_STRING_WORD: Final = re.compile(_WELL_WRITTEN)

_ALL_DIGITS: Final = re.compile(r"[-+]?[0-9]++\Z")

_ANY_FLOAT: Final = re.compile(r"[-+]?[0-9]++\.[0-9]++(?:[eE][-+]?[0-9]++)?\Z")

_NUMBER_START: Final = re.compile(r"[-+]?[0-9]")

_CONSTANTS: Final[dict[str, bool | None]] = {"true": True, "false": False, "nil": None}

_ENDS: Final = frozenset((_CLOSING, _END))

_UNCAUGHT: Final = {_KEYWORD: 1, _STRING: 1, _QUOTED: 2}  # characters of a token before its group

_TAGS_READ_AS_STRINGS: Final = ("#inst", "#uuid")


def _parse_string(written: str) -> str:
    """The escapes are those of JSON; a tab or a line break may stand for itself."""
    text: str = scanstring(f'{written}"', 0, False)[0] if "\\" in written else written
    return text


def _symbol(word: str) -> Symbol | bool | None:
    return _CONSTANTS[word] if word in _CONSTANTS else Symbol(word)


def _quoted(written: str) -> Keyword:
    return Keyword(_parse_string(written))


_PLAIN: Final[tuple[Callable[[str], Form], ...]] = (
    str,
    Keyword,
    _parse_string,
    _symbol,
    int,
    _quoted,
    float,
)  # by their kinds


def parse_forms(source: str | bytes, *, lenient: bool = False) -> tuple[Form, ...]:
    """Every top-level form of a file."""
    return _Reader(_text(source), lenient).file()


def parse_form(source: str | bytes, *, lenient: bool = False) -> Form:
    """The one form of a text."""
    forms = parse_forms(source, lenient=lenient)
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
    """A recursive descent over the tokens of one text. Depth, number of forms and digits are bounded (P-5)."""

    __slots__ = ("at", "depth", "forms_left", "lenient", "names", "stream", "text")

    def __init__(self, text: str, lenient: bool) -> None:
        self.text = text
        self.lenient = lenient
        self.stream = _TOKEN.finditer(text, 1 if text.startswith("\ufeff") else 0)
        self.at = 0  # behind the last string that had a tag
        self.names: dict[str, Form] = {}  # what was not plain and read already, by its word
        self.depth = 0
        self.forms_left = _most_forms(text)

    def file(self) -> tuple[Form, ...]:
        return self.items(None, "")

    def error(self, message: str, at: int, *, hint: str | None = None) -> InvalidDocument:
        return _error(self.text, at, message, hint=hint)

    # --- Tokens -----------------------------------------------------------------------------------

    def take(self) -> re.Match[str]:
        """The next token that is not discarded. The end of the text is the last one, and nobody asks beyond it."""
        while (token := next(self.stream)).lastindex == _DISCARD:
            self.discard(token)
        return token

    def discard(self, mark: re.Match[str]) -> None:
        self.enter(mark)
        token = self.take()
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
        """The form that begins with a token that was taken."""
        self.forms_left -= 1
        if self.forms_left < 0:
            raise self.too_many(_start(token))
        kind = token.lastindex or _END
        if kind < _OPENING:
            return _PLAIN[kind](token[kind])
        if kind == _OPENING:
            return self.collection(token)
        if kind == _CLOSING:
            raise self.error(f"`{token[_CLOSING]}` closes nothing.", _start(token))
        return self.other(token[_OTHER], token)

    def too_many(self, start: int) -> InvalidDocument:
        return self.error(
            f"More than {_most_forms(self.text)} forms.",
            start,
            hint=f"Any text may hold {limits.RTFS_FORMS_SHORT}, a longer one a form in {limits.RTFS_FORM_CHARS} characters.",
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
        """The forms up to what closes them; the end of the text closes those of a file."""
        found: list[Form] = []
        while True:
            token = next(self.stream)
            kind = token.lastindex or _END
            if kind <= _OPENING and self.forms_left > 0:  # as `form` does: most are these
                self.forms_left -= 1
                found.append(_PLAIN[kind](token[kind]) if kind < _OPENING else self.collection(token))
            elif kind in _ENDS and (token[_CLOSING] == closing or self.closes(token, opening, closing)):
                return tuple(found)
            elif kind == _DISCARD:
                self.discard(token)
            else:
                found.append(self.form(token))

    def closes(self, token: re.Match[str], opening: re.Match[str] | None, closing: str) -> bool:
        """Whether a collection ends with this token, which is the end of some."""
        word = token[_CLOSING]
        if word == closing:
            return True
        if opening is None:
            return word is None
        if word is None:
            raise self.error(f"`{opening[_OPENING]}` is never closed.", _start(opening), hint=f"Add `{closing}`.")
        raise self.error(f"`{word}` where `{closing}` is expected.", _start(token))

    def entries(self, opening: re.Match[str]) -> tuple[tuple[Key, Form], ...]:
        found: dict[Key, Form] = {}
        while (token := self.take())[_CLOSING] != "}":
            key = self.key(token, opening)
            if key in found:
                raise self.error("A map has the same key twice.", _start(token), hint="Keep one of them.")
            value = self.take()
            if value.lastindex in _ENDS and self.closes(value, opening, "}"):
                raise self.error("A map key has no value.", _start(token))
            found[key] = self.form(value)
        return tuple(found.items())

    def key(self, token: re.Match[str], opening: re.Match[str]) -> Key:
        if token.lastindex == _KEYWORD and self.forms_left > 0:  # as `form` does
            self.forms_left -= 1
            return Keyword(token[_KEYWORD])
        if token.lastindex in _ENDS:
            self.closes(token, opening, "}")
        key = self.form(token)
        if isinstance(key, Keyword) or (isinstance(key, int) and not isinstance(key, bool)):
            return key
        if not isinstance(key, str):
            raise self.error("A map key is a keyword, a string or an integer.", _start(token))
        behind = token.end() if token.lastindex == _STRING else self.at
        if self.lenient and self.text.startswith(":", behind):
            self.stream = _TOKEN.finditer(self.text, behind + 1)  # right behind a key, a colon goes
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
                raise self.error("Metadata (`^`) is not read.", _start(token), hint="Leave it out.")
            case '"':
                raise self.misspelt(_start(token))
            case ":" if word.startswith(':"'):
                raise self.misspelt(_start(token) + 1)
        form = self.names[word] = self.name(word, token)
        return form

    def name(self, word: str, token: re.Match[str]) -> Form:
        """What is no plain word and yet a name or a number."""
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
        token = self.take()
        if token.lastindex == _END:
            raise self.error("`'` has no form to quote.", _start(mark))
        form = self.form(token)
        self.depth -= 1
        return Quote(form)

    def dispatch(self, word: str, start: int) -> Form:
        if self.lenient and word in _TAGS_READ_AS_STRINGS:
            token = self.take()
            if token.lastindex == _STRING:
                self.at = token.end()
                return _parse_string(token[_STRING])
            if token.lastindex == _OTHER and token[_OTHER][0] == '"':
                raise self.misspelt(_start(token))
        raise self.error(f"`{word[:24]}` is not read: sets and tagged values have no place here.", start)

    def misspelt(self, start: int) -> InvalidDocument:
        """What is wrong with the string that begins at `start`."""
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
            return self.error("`\\u` takes four hexadecimal digits.", at)
        return self.error("Half of a surrogate pair.", at, hint="Escape the whole character.")

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
    """Where a token begins, behind the blanks before it."""
    kind = token.lastindex or _END
    return token.start(kind) - _UNCAUGHT.get(kind, 0)


def _most_forms(text: str) -> int:
    """How many forms a text may hold: some in any, more in a long one."""
    dense = len(text) // limits.RTFS_FORM_CHARS
    return min(max(limits.RTFS_FORMS_SHORT, dense), limits.RTFS_FORMS)
