"""The criteria of `rtfs.registry.discover` as a predicate over an agent_card, and the order of what matches (rtfs.md §5).

Pure: it judges one card at a time and knows no registry. Criteria are joined by AND.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from waypost import limits
from waypost.dialects.rtfs_card import split_version
from waypost.dialects.rtfs_query import Conjunct, compile_query
from waypost.errors import InvalidParameter
from waypost.model.json import JsonObject, kind_of
from waypost.model.names import fold, fold_tag
from waypost.model.versions import Range, find_version, parse_range

CRITERIA = ("capability_id", "agent_id", "discovery_tags", "discovery_query", "version_constraint")
PARAMETERS = (*CRITERIA, "tags_mode", "limit", "cursor")
_TEXT_WEIGHTS = (("name", 3.0), ("tags", 2.5), ("capability_ids", 2.0), ("description", 1.0), ("capabilities", 1.0))


@dataclass(frozen=True, slots=True)
class Criteria:
    agent_id: str | None = None
    capability: Capability | None = None
    tags: frozenset[str] = frozenset()  # folded
    any_tag: bool = False
    conjuncts: tuple[Conjunct, ...] = ()
    terms: tuple[str, ...] = ()
    preferred: tuple[str, ...] = ()
    versions: Range | None = None
    limit: int = limits.RTFS_LIMIT_DEFAULT
    given: tuple[str, ...] = ()  # names of the criteria that filter
    unknown: tuple[str, ...] = field(default=())  # parameters that nobody knows

    def matches(self, card: JsonObject) -> bool:
        if self.agent_id is not None and card.get("agent_id") != self.agent_id:
            return False
        if self.tags and not self._tagged(card):
            return False
        matched = list(self.capability.among(card)) if self.capability is not None else None
        if matched is not None and not matched:
            return False
        if self.versions is not None and not _version_fits(self.versions, card, matched):
            return False
        return all(holds(card) for holds in self.conjuncts) and (not self.terms or self.score(card) > 0)

    def _tagged(self, card: JsonObject) -> bool:
        held = {fold_tag(tag) for tag in _texts(card.get("discovery_tags"))}
        return not self.tags.isdisjoint(held) if self.any_tag else self.tags <= held

    def score(self, card: JsonObject) -> float:
        """How well the words of `text_search` fit, in 0..1; 0 unless every one is found."""
        if not self.terms:
            return 0.0
        texts = _searchable(card)
        total = 0.0
        for term in self.terms:
            best = max((weight for name, weight in _TEXT_WEIGHTS if term in texts[name]), default=0.0)
            if best == 0.0:
                return 0.0
            total += best
        return round(total / (len(self.terms) * _TEXT_WEIGHTS[0][1]), 4)

    def preference(self, card: JsonObject) -> int:
        """The place of the card's best protocol among the preferred ones; a card without any comes last."""
        communication = card.get("communication")
        endpoints = communication.get("endpoints") if isinstance(communication, dict) else None
        held = {fold(item["protocol"]) for item in _objects(endpoints) if isinstance(item.get("protocol"), str)}
        return next((at for at, name in enumerate(self.preferred) if name in held), len(self.preferred))

    def order(self, card: JsonObject) -> tuple[float, int, str]:
        """The sort key: text score, then protocol preference, then id."""
        return (-self.score(card), self.preference(card), str(card.get("agent_id")))


@dataclass(frozen=True, slots=True)
class Capability:
    """`capability_id` as it was asked for: exact, `{agent_id}/{capability_id}`, a glob, or without its version."""

    text: str

    @property
    def is_glob(self) -> bool:
        return "*" in self.text

    def among(self, card: JsonObject) -> Iterator[JsonObject]:
        for item in _objects(card.get("capabilities")):
            name = item.get("capability_id")
            if isinstance(name, str) and (self.fits(name) or self.text == f"{card.get('agent_id')}/{name}"):
                yield item

    def fits(self, name: str) -> bool:
        if name == self.text:
            return True
        if self.is_glob:
            return glob_fits(self.text, name)
        plain, version = split_version(name)
        return version is not None and plain == self.text


def glob_fits(pattern: str, text: str) -> bool:
    """`*` stands for any characters. Linear: the pattern comes from outside."""
    first, *middle, last = pattern.split("*")
    if len(text) < len(first) + len(last) or not text.startswith(first) or not text.endswith(last):
        return False
    at, end = len(first), len(text) - len(last)
    for part in middle:
        found = text.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True


def _version_fits(versions: Range, card: JsonObject, matched: list[JsonObject] | None) -> bool:
    """RTFS-53: the version of a matched capability, by its member or its id; else the card's."""
    return any(versions.allows(text) for text in _versions(card, matched))


def _versions(card: JsonObject, matched: list[JsonObject] | None) -> Iterator[str]:
    own = card.get("version")
    for item in matched if matched is not None else [{}]:
        named = item.get("version")
        if named is None:
            named = split_version(str(item.get("capability_id", "")))[1]
        said = own if named is None else named
        if isinstance(said, str) and find_version(said) is not None:
            yield said


def _searchable(card: JsonObject) -> dict[str, str]:
    capabilities = _objects(card.get("capabilities"))
    return {
        "name": fold(_text(card.get("name"))),
        "tags": fold("\n".join(_texts(card.get("discovery_tags")))),
        "capability_ids": fold("\n".join(_text(item.get("capability_id")) for item in capabilities)),
        "description": fold(_text(card.get("description"))),
        "capabilities": fold("\n".join(_text(item.get("description")) for item in capabilities)),
    }


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _texts(value: Any) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _objects(value: Any) -> list[JsonObject]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


# --- Reading the parameters -----------------------------------------------------------------------


def parse_criteria(params: JsonObject, *, list_all: bool = False) -> Criteria:
    """The criteria in the parameters of a discover call, or what is wrong with them."""
    tags = _read_tags(params.get("discovery_tags"))
    capability = _read_text(params, "capability_id")
    constraint = _read_text(params, "version_constraint", blank=True)
    query = params.get("discovery_query")
    conjuncts, terms, preferred = compile_query(query) if query is not None else ([], (), ())
    criteria = Criteria(
        agent_id=_read_text(params, "agent_id"),
        capability=Capability(capability) if capability is not None else None,
        tags=tags,
        any_tag=_read_mode(params.get("tags_mode")),
        conjuncts=tuple(conjuncts),
        terms=terms,
        preferred=preferred,
        versions=parse_range(constraint) if constraint is not None else None,
        limit=read_limit(params.get("limit")),
        given=tuple(name for name in CRITERIA if params.get(name) not in (None, [], {})),
        unknown=tuple(name for name in params if name not in PARAMETERS),
    )
    if not criteria.given and not list_all:
        raise InvalidParameter(
            "A search needs at least one criterion.", path="params", hint=f"Give one of {', '.join(CRITERIA)}."
        )
    return criteria


def _read_text(params: JsonObject, name: str, *, blank: bool = False) -> str | None:
    value = params.get(name)
    if value is None:
        return None
    if not isinstance(value, str) or (not blank and not value):
        raise InvalidParameter(f"{name} is a text, not {kind_of(value) if value != '' else 'empty'}.", path=name)
    if len(value) > limits.ID_CHARS:
        raise InvalidParameter(f"{name} has at most {limits.ID_CHARS} characters.", path=name)
    return value


def _read_tags(value: Any) -> frozenset[str]:
    if value is None:
        return frozenset()
    if not isinstance(value, list):
        raise InvalidParameter(f"discovery_tags is an array, not {kind_of(value)}.", path="discovery_tags")
    if len(value) > limits.FILTER_VALUES:
        raise InvalidParameter(f"discovery_tags has at most {limits.FILTER_VALUES} items.", path="discovery_tags")
    return frozenset(_fold_tags(value))


def _fold_tags(value: Iterable[Any]) -> Iterator[str]:
    for at, tag in enumerate(value):
        if not isinstance(tag, str) or not fold_tag(tag):
            raise InvalidParameter("A tag is a text.", path=f"discovery_tags[{at}]")
        yield fold_tag(tag)


def _read_mode(value: Any) -> bool:
    if value in (None, "all", "any"):
        return bool(value == "any")
    raise InvalidParameter('tags_mode is "all" or "any".', path="tags_mode")


def read_limit(value: Any) -> int:
    """A whole number from 1; more than the most is the most (P-31)."""
    if value is None:
        return limits.RTFS_LIMIT_DEFAULT
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidParameter(f"limit is a whole number from 1 to {limits.RTFS_LIMIT_MAX}.", path="limit")
    return min(value, limits.RTFS_LIMIT_MAX)
