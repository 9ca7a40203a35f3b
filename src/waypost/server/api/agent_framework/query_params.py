"""The query parameters of the Agent Framework endpoints (AF-21…AF-28).

All invalid parameters are collected before the request is refused, so that one response names all of them.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from waypost import limits
from waypost.errors import InvalidParameter, UriTooLong
from waypost.model.names import fold, fold_tag
from waypost.server.api.agent_framework.directory import FIELD_GROUPS, VIEWS, AfView

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
_TERM = re.compile(r'"([^"]*)(?:"|\Z)|([^\s"]+)')
_NOT_REPEATABLE = ("q", "view", "page", "per_page", "id", "sort", "agent")
_LIST = ("q", "tag", "include", "view", "page", "per_page", "id", "strict")
_ITEM = ("include", "view", "strict")
_CARD = ("agent", "include", "view", "strict")


class AfSelection(NamedTuple):
    """The members that each agent is shown with."""

    view: AfView
    groups: frozenset[str]


class AfListParams(NamedTuple):
    selection: AfSelection
    terms: tuple[str, ...] = ()
    text: str = ""
    tags: tuple[str, ...] = ()  # folded
    id: str | None = None
    page: int | None = None
    per_page: int | None = None
    by_relevance: bool = False


_DEFAULT_LIST = AfListParams(AfSelection("summary", frozenset()))
_DEFAULT_ITEM = AfSelection("full", frozenset())


class _QueryParams:
    """Decoded parameters, and the errors found in them so far."""

    def __init__(self, query_string: bytes, known: Sequence[str]) -> None:
        if len(query_string) > limits.QUERY_STRING_BYTES:
            raise UriTooLong(
                f"The query string has {len(query_string)} bytes; the limit is {limits.QUERY_STRING_BYTES}.",
                hint="Shorten it.",
            )
        self.errors: dict[str, str] = {}
        self._values: dict[str, list[str]] = {}
        for part in query_string.split(b"&"):
            if part:
                self._decode(part)
        self._check_names(known)

    def _decode(self, part: bytes) -> None:
        raw_name, _, raw_value = part.replace(b"+", b" ").partition(b"=")
        name = unquote_to_bytes(raw_name).decode("utf-8", "replace")
        try:
            value = unquote_to_bytes(raw_value).decode("utf-8")
        except UnicodeDecodeError:
            self.add_error(name, "is not percent-encoded UTF-8")
            return
        if "\ufffd" in name or _CONTROL.search(name):
            self.add_error(_CONTROL.sub("�", name), "is a name that is not percent-encoded UTF-8 without controls")
        elif _CONTROL.search(value):
            self.add_error(name, "contains a control character")
        else:
            self._values.setdefault(name, []).append(value)

    def _check_names(self, known: Sequence[str]) -> None:
        for name in _NOT_REPEATABLE:
            if name in known and len(self._values.get(name, ())) > 1:
                self.add_error(name, "must not be repeated")
        if "1" in self._values.get("strict", ()):
            for name in self._values:
                if name not in known:
                    near = difflib.get_close_matches(name[:64], known, n=1)
                    self.add_error(name, "is not a parameter here" + (f"; did you mean {near[0]}?" if near else ""))

    def add_error(self, name: str, reason: str) -> None:
        self.errors.setdefault(name[:64], reason)

    def find(self, name: str) -> str | None:
        values = self._values.get(name)
        return values[0] if values and name not in self.errors else None

    def find_all(self, name: str) -> list[str]:
        return self._values.get(name, [])

    def check(self) -> None:
        if not self.errors:
            return
        invalid = [{"name": name, "reason": reason} for name, reason in self.errors.items()]
        message = "; ".join(f"{name!r} {reason}" for name, reason in self.errors.items())
        raise InvalidParameter(
            f"Invalid parameters: {message}.", path=invalid[0]["name"], details={"invalid_params": invalid}
        )


@lru_cache(maxsize=256)
def parse_list(query_string: bytes, *, ranked: bool = False) -> AfListParams:
    """The parameters of the list. `ranked`: the directory has a ranker for sort=relevance."""
    if not query_string:
        return _DEFAULT_LIST
    params = _QueryParams(query_string, (*_LIST, "sort") if ranked else _LIST)
    text = params.find("q") or ""
    parsed = AfListParams(
        selection=_parse_selection(params, "summary"),
        terms=_parse_query(params, text),
        text=text.strip(),
        tags=_parse_tags(params),
        id=_parse_id(params, "id"),
        page=_parse_page(params),
        per_page=_parse_per_page(params),
        by_relevance=ranked and _parse_sort(params),
    )
    params.check()
    return parsed


def parse_item(query_string: bytes) -> AfSelection:
    if not query_string:
        return _DEFAULT_ITEM
    params = _QueryParams(query_string, _ITEM)
    selection = _parse_selection(params, "full")
    params.check()
    return selection


def parse_card(query_string: bytes) -> tuple[AfSelection, str | None]:
    """The parameters of a card, and the id that `agent` selects."""
    if not query_string:
        return _DEFAULT_ITEM, None
    params = _QueryParams(query_string, _CARD)
    parsed = _parse_selection(params, "full"), _parse_id(params, "agent")
    params.check()
    return parsed


def parse_terms(text: str) -> list[str]:
    """AF-21: words and quoted phrases, folded for comparison, with repeats."""
    terms = (phrase or word for phrase, word in _TERM.findall(fold(text)))
    return [term for raw in terms if (term := " ".join(raw.split()))]


def _parse_selection(params: _QueryParams, default: AfView) -> AfSelection:
    view = params.find("view")
    if view is not None and view not in VIEWS:
        params.add_error("view", "must be summary or full")
    chosen: AfView = default if view is None else "summary" if view == "summary" else "full"
    return AfSelection(chosen, _parse_groups(params))


def _parse_groups(params: _QueryParams) -> frozenset[str]:
    names = {item.strip() for value in params.find_all("include") for item in value.split(",")} - {""}
    unknown = sorted(names - FIELD_GROUPS.keys())
    if unknown:
        params.add_error(
            "include", f"names no known group: {', '.join(unknown)[:200]}; valid are {', '.join(FIELD_GROUPS)}"
        )
    return frozenset(names & FIELD_GROUPS.keys())


def _parse_query(params: _QueryParams, text: str) -> tuple[str, ...]:
    if len(text) > limits.AF_QUERY_CHARS:
        params.add_error("q", f"has {len(text)} characters; the limit is {limits.AF_QUERY_CHARS}")
        return ()
    terms = parse_terms(text)
    if len(terms) > limits.AF_QUERY_TERMS:
        params.add_error("q", f"has {len(terms)} terms; the limit is {limits.AF_QUERY_TERMS}")
    return tuple(dict.fromkeys(terms))


def _parse_tags(params: _QueryParams) -> tuple[str, ...]:
    tags = params.find_all("tag")
    if len(tags) > limits.AF_TAGS:
        params.add_error("tag", f"is given {len(tags)} times; the limit is {limits.AF_TAGS}")
    if not all(tag.strip() for tag in tags):
        params.add_error("tag", "is empty")
    return tuple(dict.fromkeys(map(fold_tag, tags)))


def _parse_id(params: _QueryParams, name: str) -> str | None:
    agent_id = params.find(name)
    if agent_id == "":
        params.add_error(name, "is empty")
    elif agent_id is not None and len(agent_id) > limits.ID_CHARS:
        params.add_error(name, f"has {len(agent_id)} characters; the limit is {limits.ID_CHARS}")
    return agent_id


def _parse_page(params: _QueryParams) -> int | None:
    number = _parse_number(params, "page")
    if number is not None and number > limits.AF_PAGE_NUMBER_MAX:
        params.add_error("page", f"is greater than {limits.AF_PAGE_NUMBER_MAX}")
    return number


def _parse_per_page(params: _QueryParams) -> int | None:
    number = _parse_number(params, "per_page")
    return None if number is None else min(number, limits.PAGE_MAX)


def _parse_number(params: _QueryParams, name: str) -> int | None:
    text = params.find(name)
    if text is None:
        return None
    digits = text.lstrip("0")
    if not (text.isascii() and text.isdigit() and digits):
        params.add_error(name, "must be a whole number from 1, in decimal digits")
        return None
    return int(digits[:9])  # nine digits exceed every limit


def _parse_sort(params: _QueryParams) -> bool:
    order = params.find("sort")
    if order not in (None, "name", "relevance"):
        params.add_error("sort", "must be name or relevance")
    return order == "relevance"
