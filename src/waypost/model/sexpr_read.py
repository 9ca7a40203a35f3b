"""One strict reader of S-expressions (rtfs.md §1): text in, frozen values out.

Nothing is evaluated. Errors carry line and column. `lenient` reads what is seen in the wild besides: a JSON-style colon after
a string key, `#inst "…"` and `#uuid "…"`. Its work grows in step with the text, whatever the text is, and ends with the
number of forms that a text of its length may hold.
"""

from __future__ import annotations

import math
import re
from itertools import islice
from json import JSONDecoder
from typing import Final

from waypost import limits
from waypost.errors import InvalidDocument
from waypost.model.sexpr import PLAIN_NAME, Context, Form, Key, Keyword, List, Map, Quote, Symbol, Vector, is_name

# One token with the blanks and comments before it. Every character is of some token, so that their lengths are the place
# in the text. Nothing is given back once it was taken (`++`): no text makes this go over it twice.
_TOKEN: Final = re.compile(
    r"""(?:[ \t\r\n\f,]++|;[^\n\r]*+)*+
    (?: :?"(?:[^"\\]++|\\.)*+"?           # a string, or a keyword written as one; perhaps never closed
    | [()\[\]{}']
    | \#_
    | [^ \t\r\n\f,()\[\]{}";]++
    | \Z)""",
    re.VERBOSE | re.DOTALL,
)
_TOKENS: Final = 512  # taken from the text at a time
_BLANKS: Final = " \t\r\n\f,"
_BEFORE: Final = re.compile(r"(?:[ \t\r\n\f,]++|;[^\n\r]*+)*+")
_PLAIN_STRING: Final = re.compile(r'"[^"\\\x00-\x08\x0b\x0c\x0e-\x1f\x7f]*+"\Z')
# How far a string is well written: a control character, a bad escape or half of a surrogate pair ends it.
_WELL_WRITTEN: Final = re.compile(
    r"""(?:[^"\\\x00-\x08\x0b\x0c\x0e-\x1f\x7f]++|\\["\\/bfnrt]
    |\\u(?:[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?![dD][89a-fA-F])[0-9a-fA-F]{4}))*+""",
    re.VERBOSE,
)
_HEX: Final = re.compile(r"\\u(?:[dD][89abAB][0-9a-fA-F]{2}(?:\\u(?![0-9a-fA-F]{4}))?|[0-9a-fA-F]{4})")
_STRINGS: Final = JSONDecoder(strict=False)  # the escapes are those of JSON; a tab or a line break may stand for itself
_INTEGER: Final = re.compile(r"[-+]?[0-9]++\Z")
_FLOAT: Final = re.compile(r"[-+]?[0-9]++\.[0-9]++(?:[eE][-+]?[0-9]++)?\Z")
_NUMBER_START: Final = re.compile(r"[-+]?[0-9]")
_CONSTANTS: Final[dict[str, bool | None]] = {"true": True, "false": False, "nil": None}
_CLOSING: Final = {"(": ")", "[": "]", "{": "}"}
_PASSED_OVER: Final = frozenset(("", "#_"))
_NUMERIC: Final = frozenset("+-0123456789")
_ENDS: Final = frozenset(("", ")", "]", "}"))
_MARKS: Final = frozenset("'#^)]}")
_TAGS_READ_AS_STRINGS: Final = ("#inst", "#uuid")


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
    """A recursive descent over the tokens of one text. Depth, number of forms and digits are bounded (P-5)."""

    __slots__ = ("at", "atoms", "depth", "forms_left", "lenient", "stream", "text", "waiting")

    def __init__(self, text: str, lenient: bool) -> None:
        self.text = text
        self.lenient = lenient
        self.at = 1 if text.startswith("\ufeff") else 0  # behind the last token that was taken
        self.stream = _TOKEN.finditer(text, self.at)
        self.waiting: list[str] = []  # the next tokens, the first of them last
        self.atoms: dict[str, Form] = {}  # what was read already, by its token: most words of a text come again
        self.depth = 0
        self.forms_left = _most_forms(text)

    def file(self) -> tuple[Form, ...]:
        return self.items(0, "")

    def error(self, message: str, at: int, *, hint: str | None = None) -> InvalidDocument:
        return _error(self.text, at, message, hint=hint)

    # --- Tokens -----------------------------------------------------------------------------------

    def refill(self) -> None:
        """Take more of the text. What follows its end is an empty token, again and again."""
        self.waiting += [found[0] for found in islice(self.stream, _TOKENS)][::-1] or [""]

    def take(self) -> str:
        """The next word that is not discarded; none at the end of the text."""
        while True:
            if not self.waiting:
                self.refill()
            token = self.waiting.pop()
            self.at += len(token)
            word = token.lstrip(_BLANKS)
            if word not in _PASSED_OVER and word[0] != ";":
                return word
            if word == "#_":
                self.discard(self.at - 2)
            elif word:
                self.pass_comments(word)
            else:
                return word

    def pass_comments(self, word: str) -> None:
        comments = _BEFORE.match(word)
        rest = word[comments.end() :] if comments else word
        self.waiting.append(rest)
        self.at -= len(rest)

    def discard(self, start: int) -> None:
        self.enter(start)
        word = self.take()
        if word in _ENDS:
            raise self.error("`#_` has no form to discard.", start)
        self.form(word)
        self.depth -= 1

    def enter(self, start: int) -> None:
        self.depth += 1
        if self.depth > limits.RTFS_DEPTH:
            raise self.error(f"Nested deeper than {limits.RTFS_DEPTH}.", start)

    # --- Forms ------------------------------------------------------------------------------------

    def form(self, word: str) -> Form:
        """The form that begins with a word that was taken."""
        self.forms_left -= 1
        if self.forms_left < 0:
            raise self.too_many(self.at - len(word))
        if word in self.atoms:
            return self.atoms[word]
        if word in _CLOSING:
            return self.collection(word, self.at - 1)
        first = word[0]
        if first in _MARKS:
            return self.marked(word, self.at - len(word))
        form = self.atoms[word] = self.atom(word, first)
        return form

    def too_many(self, start: int) -> InvalidDocument:
        return self.error(
            f"More than {_most_forms(self.text)} forms.",
            start,
            hint=f"Any text may hold {limits.RTFS_FORMS_SHORT}, a longer one a form in {limits.RTFS_FORM_CHARS} characters.",
        )

    def collection(self, word: str, start: int) -> List | Vector | Map:
        self.enter(start)
        form: List | Vector | Map
        if word == "{":
            form = Map(self.entries(start))
        elif word == "[":
            form = Vector(self.items(start, "]"))
        else:
            form = List(self.items(start, ")"))
        self.depth -= 1
        return form

    def marked(self, word: str, start: int) -> Form:
        match word[0]:
            case "'":
                return self.quote(start)
            case "#":
                return self.dispatch(word, start)
            case "^":
                raise self.error("Metadata (`^`) is not read.", start, hint="Leave it out.")
            case _:
                raise self.error(f"`{word}` closes nothing.", start)

    def items(self, start: int, closing: str) -> tuple[Form, ...]:
        """The forms up to what closes them; the end of the text closes those of a file."""
        found: list[Form] = []
        while (word := self.take()) != closing:
            if word in _ENDS:
                self.closes(word, start, closing)
            found.append(self.form(word))
        return tuple(found)

    def closes(self, word: str, start: int, closing: str) -> bool:
        """Whether a collection ends with this word."""
        if word == closing:
            return True
        if not word:
            raise self.error(f"`{self.text[start]}` is never closed.", start, hint=f"Add `{closing}`.")
        if closing and word in ")]}":
            raise self.error(f"`{word}` where `{closing}` is expected.", self.at - 1)
        return False

    def entries(self, start: int) -> tuple[tuple[Key, Form], ...]:
        found: dict[Key, Form] = {}
        while not self.closes(word := self.take(), start, "}"):
            where = self.at - len(word)
            key = self.key(word, where)
            if key in found:
                raise self.error("A map has the same key twice.", where, hint="Keep one of them.")
            if self.closes(word := self.take(), start, "}"):
                raise self.error("A map key has no value.", where)
            found[key] = self.form(word)
        return tuple(found.items())

    def key(self, word: str, where: int) -> Key:
        key = self.form(word)
        if isinstance(key, str):
            if self.lenient:
                self.drop_colon()
            return key
        if isinstance(key, Keyword) or (isinstance(key, int) and not isinstance(key, bool)):
            return key
        raise self.error("A map key is a keyword, a string or an integer.", where)

    def drop_colon(self) -> None:
        """A colon right behind a key goes. What is left of its token may be several."""
        if not self.waiting:
            self.refill()
        if self.waiting[-1].startswith(":"):
            rest = self.waiting.pop()[1:]
            self.at += 1
            if not self.waiting:
                self.refill()
            if self.waiting[-1].startswith('"'):  # with a colon of its own before it: a keyword
                rest += self.waiting.pop()
            self.waiting += [found[0] for found in _TOKEN.finditer(rest) if found[0]][::-1]

    def quote(self, start: int) -> Quote:
        self.enter(start)
        word = self.take()
        if not word:
            raise self.error("`'` has no form to quote.", start)
        form = self.form(word)
        self.depth -= 1
        return Quote(form)

    def dispatch(self, word: str, start: int) -> Form:
        if self.lenient and word in _TAGS_READ_AS_STRINGS:
            text = self.take()
            if text.startswith('"'):
                return self.string(text, self.at - len(text))
        raise self.error(f"`{word[:24]}` is not read: sets and tagged values have no place here.", start)

    # --- Words ------------------------------------------------------------------------------------

    def string(self, word: str, start: int) -> str:
        if "\\" not in word and _PLAIN_STRING.match(word):
            return word[1:-1]
        end = _WELL_WRITTEN.match(word, 1).end()  # type: ignore[union-attr]  # it always matches
        if end < len(word) - 1 or word[end:] != '"':
            raise self.misspelt(start, end)
        text: str = _STRINGS.raw_decode(word)[0]
        return text

    def misspelt(self, start: int, end: int) -> InvalidDocument:
        """What is wrong with the string that begins at `start` and can be read for `end` characters."""
        at = start + end
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

    def atom(self, word: str, first: str) -> Form:
        if first == ":":
            return Keyword(word[1:] if PLAIN_NAME.match(word, 1) else self.keyword(word))
        if first == '"':
            return self.string(word, self.at - len(word))
        if first in _NUMERIC and _NUMBER_START.match(word):
            return self.number(word, self.at - len(word))
        if word in _CONSTANTS:
            return _CONSTANTS[word]
        if first == "@":
            return Context(self.name(word[1:], "reference"))
        return Symbol(word if word == "/" or PLAIN_NAME.match(word) else self.name(word, "symbol"))

    def keyword(self, word: str) -> str:
        if word.startswith(':"'):
            return self.string(word[1:], self.at - len(word) + 1)
        return self.name(word[1:], "keyword")

    def name(self, text: str, what: str) -> str:
        if is_name(text):
            return text
        start = self.at - len(text) - (what != "symbol")
        raise self.error(f"{self.text[start : self.at][:40]!r} is not a {what}.", start)

    def number(self, word: str, start: int) -> int | float:
        if _INTEGER.match(word):
            if len(word.lstrip("+-")) > limits.RTFS_INTEGER_DIGITS:
                raise self.error(f"An integer has more than {limits.RTFS_INTEGER_DIGITS} digits.", start)
            return int(word)
        if _FLOAT.match(word):
            value = float(word)
            if math.isfinite(value):
                return value
            raise self.error(f"{word[:24]} does not fit a double.", start)
        raise self.error(f"{word[:40]!r} is not a number.", start, hint="Write 5, -1, 0.5 or 1.0e5.")


def _most_forms(text: str) -> int:
    """How many forms a text may hold: some in any, more in a long one."""
    dense = len(text) // limits.RTFS_FORM_CHARS
    return min(max(limits.RTFS_FORMS_SHORT, dense), limits.RTFS_FORMS)
