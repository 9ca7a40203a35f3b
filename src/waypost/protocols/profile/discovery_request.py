"""The JSON Schema of a Discovery Request (profile.md Table 5) with the extensions that this service accepts."""

from __future__ import annotations

from typing import Any, Final

from waypost import limits
from waypost.model.query import FACETS
from waypost.model.record import LISTED

_WORDS: Final = {
    "type": ["array", "null"],
    "items": {"type": "string", "pattern": r"\S", "maxLength": 256},
    "maxItems": limits.FILTER_VALUES,
}

DISCOVERY_REQUEST_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["query"],
    "properties": {
        "query": {"type": "string", "maxLength": limits.QUERY_CHARS},
        "required_tags": _WORDS,
        "preferred_tags": _WORDS,
        "excluded_tags": _WORDS,
        "protocols": _WORDS,
        "statuses": {
            "type": ["array", "null"],
            "items": {"enum": list(LISTED)},
            "maxItems": limits.FILTER_VALUES,
            "description": "any of these; default: all",
        },
        "constraints": {"type": ["object", "null"]},
        "limit": {"type": ["integer", "null"], "minimum": 1},
        "include_evidence": {"type": ["boolean", "null"]},
        "detail": {"enum": ["minimal", "summary", "full", None]},
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
    },
}
