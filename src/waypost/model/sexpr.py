"""S-expressions as RTFS has them: the values (rtfs.md §1).

No form has a meaning here: what a profile or a query may say is decided by those who read one. `sexpr_read.py` makes them of
text, `sexpr_print.py` text of them.
"""

from __future__ import annotations

import re
from typing import Final, TypeAlias

import msgspec


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
