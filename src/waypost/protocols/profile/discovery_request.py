"""Discovery Requests (profile.md Table 5) with the extensions that this service accepts: JSON Schema and parser."""

from __future__ import annotations

from typing import Any, Final

from waypost import limits
from waypost.errors import InvalidRequest
from waypost.model.json import JsonObject, kind_of
from waypost.model.names import fold_tag
from waypost.model.query import FACETS, MATCHES, QUERY_FEDERATION, Match, Query, QueryFederation
from waypost.model.record import LISTED

_DETAILS: Final = ("minimal", "summary", "full")
_STRING_CHARS: Final = 256
_STRINGS: Final = {
    "type": ["array", "null"],
    "items": {"type": "string", "pattern": r"\S", "maxLength": _STRING_CHARS},
    "maxItems": limits.FILTER_VALUES,
}

DISCOVERY_REQUEST_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["query"],
    "properties": {
        "query": {"type": "string", "maxLength": limits.QUERY_CHARS},
        "required_tags": _STRINGS,
        "preferred_tags": _STRINGS,
        "excluded_tags": _STRINGS,
        "protocols": _STRINGS,
        "statuses": {
            "type": ["array", "null"],
            "items": {"enum": list(LISTED)},
            "maxItems": limits.FILTER_VALUES,
            "description": "any of these; default: all",
        },
        "constraints": {"type": ["object", "null"]},
        "limit": {"type": ["integer", "null"], "minimum": 1},
        "include_evidence": {"type": ["boolean", "null"]},
        "detail": {"enum": [*_DETAILS, None]},
        "client_context": {
            "type": ["object", "null"],
            "description": "locale, language, domain and region order near-ties; other members are ignored",
        },
        "facets": {
            "type": ["array", "null"],
            "items": {"enum": list(FACETS)},
            "maxItems": limits.FILTER_VALUES,
            "description": "facets to count over all agents that pass the hard filters",
        },
        "diversity": {
            "type": ["boolean", "null"],
            "description": "false: do not limit near duplicates to two in each ten candidates",
        },
        "min_score": {
            "type": ["number", "null"],
            "minimum": 0,
            "maximum": 1,
            "description": "leave out candidates with a lower score",
        },
        "min_match": {
            "enum": [*MATCHES, None],
            "description": "leave out candidates with a weaker match; default: weak, which leaves out none",
        },
        "federation": {
            "enum": [*QUERY_FEDERATION, None],
            "description": "auto: also ask the peers that the operator allowed, with text, tags, protocols and limit only",
        },
    },
}


def parse_discovery_request(document: JsonObject) -> tuple[Query, list[str]]:
    """The query of a request, and notes on adjusted values. Unknown members are ignored (PRO-9)."""
    notes: list[str] = []
    text = document.get("query")
    if not isinstance(text, str):
        problem = "is missing" if text is None else f"must be a string, not {kind_of(text)}"
        raise InvalidRequest(f"query {problem}.", path="$.query", hint="Describe the task in words.")
    if len(text) > limits.QUERY_CHARS:
        raise InvalidRequest(
            f"The query has {len(text)} characters; the limit is {limits.QUERY_CHARS}.",
            path="$.query",
            hint="Shorten it.",
        )
    detail: Any = document.get("detail")
    detail = "summary" if detail is None else detail
    if detail not in _DETAILS:
        raise InvalidRequest(f"detail must be one of {', '.join(_DETAILS)}.", path="$.detail")
    query = Query(
        text=text,
        required_tags=_tags(document, "required_tags"),
        preferred_tags=_tags(document, "preferred_tags"),
        excluded_tags=_tags(document, "excluded_tags"),
        protocols=tuple(dict.fromkeys(item.strip().lower() for item in _strings(document, "protocols"))),
        statuses=_choices(document, "statuses", LISTED),
        constraints=_object(document, "constraints"),
        limit=_limit(document, notes),
        detail=detail,
        include_evidence=_flag(document, "include_evidence", default=False),
        diversity=_flag(document, "diversity", default=True),
        client_context=_object(document, "client_context"),
        facets=_choices(document, "facets", FACETS),
        min_score=_min_score(document),
        min_match=parse_min_match(document.get("min_match"), "$.min_match"),
        federation=_federation(document),
    )
    return query, notes


def _strings(document: JsonObject, name: str) -> list[str]:
    value = document.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise InvalidRequest(f"{name} must be an array of strings.", path=f"$.{name}")
    if len(value) > limits.FILTER_VALUES:
        raise InvalidRequest(f"{name} has {len(value)} items; the limit is {limits.FILTER_VALUES}.", path=f"$.{name}")
    for index, item in enumerate(value):
        if not isinstance(item, str):
            raise InvalidRequest(f"{name} must be an array of strings.", path=f"$.{name}[{index}]")
        if not item.strip() or len(item) > _STRING_CHARS:
            raise InvalidRequest(f"An item must have 1 to {_STRING_CHARS} characters.", path=f"$.{name}[{index}]")
    return value


def _tags(document: JsonObject, name: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(map(fold_tag, _strings(document, name))))


def _choices(document: JsonObject, name: str, allowed: tuple[str, ...]) -> tuple[str, ...]:
    values = _strings(document, name)
    for index, value in enumerate(values):
        if value not in allowed:
            raise InvalidRequest(
                f"{value[:64]!r} is not allowed in {name}.",
                path=f"$.{name}[{index}]",
                hint=f"Use {', '.join(allowed)}.",
            )
    return tuple(dict.fromkeys(values))


def _flag(document: JsonObject, name: str, *, default: bool) -> bool:
    value = document.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise InvalidRequest(f"{name} must be a boolean, not {kind_of(value)}.", path=f"$.{name}")
    return value


def _object(document: JsonObject, name: str) -> JsonObject:
    value = document.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InvalidRequest(f"{name} must be an object, not {kind_of(value)}.", path=f"$.{name}")
    return value


def _limit(document: JsonObject, notes: list[str]) -> int:
    value = document.get("limit")
    if value is None:
        return limits.DISCOVER_LIMIT_DEFAULT
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidRequest("limit must be a whole number above 0.", path="$.limit")
    if value > limits.DISCOVER_LIMIT_MAX:
        notes.append(f"limit {value} was reduced to {limits.DISCOVER_LIMIT_MAX}")
    return min(value, limits.DISCOVER_LIMIT_MAX)


def _min_score(document: JsonObject) -> float:
    value = document.get("min_score")
    if value is None:
        return 0.0
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise InvalidRequest("min_score must be a number from 0 to 1.", path="$.min_score")
    return float(value)


def _federation(document: JsonObject) -> QueryFederation:
    value = document.get("federation")
    if value is None:
        return "none"
    for mode in QUERY_FEDERATION:
        if value == mode:
            return mode
    raise InvalidRequest(f"federation must be one of {', '.join(QUERY_FEDERATION)}.", path="$.federation")


def parse_min_match(value: Any, path: str, default: Match = "weak") -> Match:
    """The value of a member or parameter `min_match`."""
    if value is None:
        return default
    for match in MATCHES:
        if value == match:
            return match
    raise InvalidRequest(f"min_match must be one of {', '.join(MATCHES)}.", path=path)
