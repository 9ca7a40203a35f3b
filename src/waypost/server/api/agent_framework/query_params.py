"""The query parameters of the AF endpoints, read and checked (AF-21…AF-28).

Every bad value is collected before the request is refused, so that one answer names all that is wrong.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from waypost import limits
from waypost.errors import InvalidParameter, UriTooLong
from waypost.model.names import fold, fold_tag
from waypost.server.api.agent_framework.directory import FIELD_GROUPS, VIEWS, AfView

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
_TERM = re.compile(r'"([^"]*)(?:"|\Z)|([^\s"]+)')
_ONCE = ("q", "view", "page", "per_page", "id", "sort")
_LIST = ("q", "tag", "include", "view", "page", "per_page", "id", "strict")
_ITEM = ("include", "view", "strict")
_CARD = ("agent", "include", "view", "strict")


class AfSelection(NamedTuple):
    """What of each agent is asked for."""

    view: AfView
    groups: frozenset[str]


class AfListParams(NamedTuple):
    wish: AfSelection
    terms: tuple[str, ...] = ()
    text: str = ""
    tags: tuple[str, ...] = ()  # folded
    id: str | None = None
    page: int | None = None
    per_page: int | None = None
    by_relevance: bool = False


class _QueryParams:
    """The decoded parameters, and what was found wrong with them."""

    def __init__(self, query_string: bytes, known: Sequence[str]) -> None:
        if len(query_string) > limits.QUERY_STRING_BYTES:
            raise UriTooLong(
                f"The query string has {len(query_string)} bytes; at most {limits.QUERY_STRING_BYTES} are read.",
                hint="Shorten it.",
            )
        self.wrong: dict[str, str] = {}
        self._values: dict[str, list[str]] = {}
        for part in query_string.split(b"&") if query_string else ():
            if part:
                self._take(part)
        self._check_names(known)

    def _take(self, part: bytes) -> None:
        raw_name, _, raw_value = part.replace(b"+", b" ").partition(b"=")
        name = unquote_to_bytes(raw_name).decode("utf-8", "replace")
        try:
            value = unquote_to_bytes(raw_value).decode("utf-8")
        except UnicodeDecodeError:
            self.refuse(name, "is not percent-encoded UTF-8")
            return
        if "\ufffd" in name or _CONTROL.search(name):
            self.refuse(_CONTROL.sub("�", name), "is a name that is not percent-encoded UTF-8 without controls")
        elif _CONTROL.search(value):
            self.refuse(name, "holds a control character")
        else:
            self._values.setdefault(name, []).append(value)

    def _check_names(self, known: Sequence[str]) -> None:
        for name in _ONCE:
            if name in known and len(self._values.get(name, ())) > 1:
                self.refuse(name, "may be given once only")
        if "1" in self._values.get("strict", ()):
            for name in self._values:
                if name not in known:
                    near = difflib.get_close_matches(name[:64], known, n=1)
                    self.refuse(name, "is not a parameter here" + (f"; did you mean {near[0]}?" if near else ""))

    def refuse(self, name: str, reason: str) -> None:
        self.wrong.setdefault(name[:64], reason)

    def one(self, name: str) -> str | None:
        values = self._values.get(name)
        return values[0] if values and name not in self.wrong else None

    def all(self, name: str) -> list[str]:
        return self._values.get(name, [])

    def check(self) -> None:
        if not self.wrong:
            return
        named = [{"name": name, "reason": reason} for name, reason in self.wrong.items()]
        message = "; ".join(f"{name!r} {reason}" for name, reason in self.wrong.items())
        raise InvalidParameter(
            f"Parameters cannot be used: {message}.", path=named[0]["name"], details={"invalid_params": named}
        )


@lru_cache(maxsize=256)
def parse_list(query_string: bytes, *, ranked: bool = False) -> AfListParams:
    """The parameters of the list. `ranked` says that a ranker is there for sort=relevance."""
    if not query_string:
        return _DEFAULT_LIST
    given = _QueryParams(query_string, (*_LIST, "sort") if ranked else _LIST)
    text = given.one("q") or ""
    found = AfListParams(
        wish=_selection(given, "summary"),
        terms=_terms(given, text),
        text=text.strip(),
        tags=_tags(given),
        id=_id(given, "id"),
        page=_page(given),
        per_page=_per_page(given),
        by_relevance=ranked and _sort(given),
    )
    given.check()
    return found


def parse_item(query_string: bytes) -> AfSelection:
    if not query_string:
        return _DEFAULT_ITEM
    given = _QueryParams(query_string, _ITEM)
    found = _selection(given, "full")
    given.check()
    return found


def parse_card(query_string: bytes) -> tuple[AfSelection, str | None]:
    """The parameters of a card: `agent` selects one."""
    if not query_string:
        return _DEFAULT_ITEM, None
    given = _QueryParams(query_string, _CARD)
    if len(given.all("agent")) > 1:
        given.refuse("agent", "may be given once only")
    found = _selection(given, "full"), _id(given, "agent")
    given.check()
    return found


def parse_terms(text: str) -> tuple[str, ...]:
    """AF-21: words and quoted phrases, in the form in which they are compared."""
    found = (phrase or word for phrase, word in _TERM.findall(fold(text)))
    return tuple(dict.fromkeys(term for raw in found if (term := " ".join(raw.split()))))


_DEFAULT_LIST = AfListParams(AfSelection("summary", frozenset()))
_DEFAULT_ITEM = AfSelection("full", frozenset())


def _selection(given: _QueryParams, default: AfView) -> AfSelection:
    view = given.one("view")
    if view is not None and view not in VIEWS:
        given.refuse("view", "must be summary or full")
    chosen: AfView = default if view is None else "summary" if view == "summary" else "full"
    return AfSelection(chosen, _groups(given, given.all("include")))


def _groups(given: _QueryParams, values: Iterable[str]) -> frozenset[str]:
    names = {item.strip() for value in values for item in value.split(",")} - {""}
    unknown = sorted(names - FIELD_GROUPS.keys())
    if unknown:
        given.refuse(
            "include", f"names no known group: {', '.join(unknown)[:200]}; valid are {', '.join(FIELD_GROUPS)}"
        )
    return frozenset(names & FIELD_GROUPS.keys())


def _terms(given: _QueryParams, text: str) -> tuple[str, ...]:
    if len(text) > limits.AF_QUERY_CHARS:
        given.refuse("q", f"has {len(text)} characters; at most {limits.AF_QUERY_CHARS} are read")
        return ()
    terms = parse_terms(text)
    if len(terms) > limits.AF_QUERY_TERMS:
        given.refuse("q", f"has {len(terms)} terms; at most {limits.AF_QUERY_TERMS} are read")
    return terms


def _tags(given: _QueryParams) -> tuple[str, ...]:
    tags = given.all("tag")
    if len(tags) > limits.AF_TAGS:
        given.refuse("tag", f"is given {len(tags)} times; at most {limits.AF_TAGS} are read")
    if not all(tag.strip() for tag in tags):
        given.refuse("tag", "is empty")
    return tuple(dict.fromkeys(map(fold_tag, tags)))


def _id(given: _QueryParams, name: str) -> str | None:
    agent_id = given.one(name)
    if agent_id == "":
        given.refuse(name, "is empty")
    elif agent_id is not None and len(agent_id) > limits.ID_CHARS:
        given.refuse(name, f"has {len(agent_id)} characters; at most {limits.ID_CHARS} are read")
    return agent_id


def _page(given: _QueryParams) -> int | None:
    number = _number(given, "page")
    if number is not None and number > limits.AF_PAGE_NUMBER_MAX:
        given.refuse("page", f"is beyond {limits.AF_PAGE_NUMBER_MAX}")
    return number


def _per_page(given: _QueryParams) -> int | None:
    number = _number(given, "per_page")
    return None if number is None else min(number, limits.PAGE_MAX)


def _number(given: _QueryParams, name: str) -> int | None:
    text = given.one(name)
    if text is None:
        return None
    digits = text.lstrip("0")
    if not (text.isascii() and text.isdigit() and digits):
        given.refuse(name, "must be a whole number from 1, in decimal digits")
        return None
    return int(digits[:9])  # nine digits are beyond every bound


def _sort(given: _QueryParams) -> bool:
    order = given.one("sort")
    if order not in (None, "name", "relevance"):
        given.refuse("sort", "must be name or relevance")
    return order == "relevance"
