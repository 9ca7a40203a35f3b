"""What the API description says of the ARD registry (ard.md §4–9)."""

from __future__ import annotations

from typing import Any, Final

from waypost import limits
from waypost.server.routes import Body, Parameter, Route
from waypost.wire.ard_query import FEDERATION

_FILTER: Final[dict[str, Any]] = {
    "type": "object",
    "description": "paths into an entry with the values that fit: any value of a path, every path",
    "maxProperties": limits.ARD_FILTER_KEYS,
    "additionalProperties": {
        "anyOf": [
            {"type": "string"},
            {"type": "array", "items": {"type": "string"}, "maxItems": limits.ARD_FILTER_VALUES},
        ]
    },
}
_TEXT: Final[dict[str, Any]] = {"type": "string", "maxLength": limits.ARD_TEXT_CHARS}
_QUERY: Final[dict[str, Any]] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {"text": _TEXT, "filter": _FILTER},
}
_SEARCH: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["query"],
    "additionalProperties": False,
    "properties": {
        "query": {
            **_QUERY,
            "required": ["text"],
            "properties": {"text": {**_TEXT, "pattern": r"\S"}, "filter": _FILTER},
        },
        "federation": {"enum": list(FEDERATION)},
        "pageSize": {"type": "integer", "minimum": 1},
        "pageToken": {"type": ["string", "null"]},
    },
}
_EXPLORE: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["resultType"],
    "additionalProperties": False,
    "properties": {
        "query": _QUERY,
        "resultType": {
            "type": "object",
            "required": ["facets"],
            "additionalProperties": False,
            "properties": {
                "facets": {
                    "type": "array",
                    "minItems": 1,
                    "maxItems": limits.ARD_FACETS,
                    "items": {
                        "type": "object",
                        "required": ["field"],
                        "additionalProperties": False,
                        "properties": {
                            "field": {"type": "string", "maxLength": limits.ARD_PATH_CHARS},
                            "limit": {"type": "integer", "minimum": 1, "maximum": limits.ARD_BUCKETS_MAX},
                            "minCount": {"type": "integer", "minimum": 1},
                        },
                    },
                }
            },
        },
    },
}
_ENTRY: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["identifier", "displayName", "type"],
    "oneOf": [{"required": ["url"]}, {"required": ["data"]}],
}
_RESULT: Final[dict[str, Any]] = {
    **_ENTRY,
    "required": [*_ENTRY["required"], "score", "source"],
    "properties": {
        "score": {"type": "integer", "minimum": 0, "maximum": 100, "description": "relevance, never trust"},
        "source": {"type": "string", "description": "the registry that indexed it"},
    },
}
_RESULTS: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["results"],
    "additionalProperties": False,
    "properties": {
        "results": {"type": "array", "items": _RESULT},
        "referrals": {
            "type": "array",
            "items": {"type": "object", "required": ["identifier", "displayName", "type", "url"]},
        },
        "pageToken": {"type": "string"},
    },
}
_BUCKETS: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["buckets"],
    "additionalProperties": False,
    "properties": {
        "buckets": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["value", "count"],
                "properties": {"value": {"type": "string"}, "count": {"type": "integer", "minimum": 1}},
            },
        },
        "otherCount": {"type": "integer", "minimum": 1},
    },
}
_FACETS: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["resultType", "facets"],
    "additionalProperties": False,
    "properties": {"resultType": {"const": "facets"}, "facets": {"type": "object", "additionalProperties": _BUCKETS}},
}
_LIST: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["items"],
    "additionalProperties": False,
    "properties": {
        "items": {"type": "array", "items": _ENTRY},
        "total": {"type": "integer", "minimum": 0},
        "pageToken": {"type": "string"},
    },
}
_ERROR: Final = Body(
    schema={
        "type": "object",
        "required": ["errorCode", "message"],
        "additionalProperties": False,
        "properties": {"errorCode": {"type": "string"}, "message": {"type": "string"}},
    }
)
_ERRORS: Final = {400: _ERROR, 401: _ERROR, 403: _ERROR, 429: _ERROR}

ARD_ROUTES: Final[list[Route]] = [
    Route(
        method="POST",
        path="/ard/search",
        operation="find",
        summary="ARD: search entries by a text and a filter",
        body=Body(schema=_SEARCH),
        answers={200: Body(schema=_RESULTS), 413: _ERROR, 415: _ERROR, **_ERRORS},
    ),
    Route(
        method="POST",
        path="/ard/explore",
        operation="facets",
        summary="ARD: count what a question matches, by fields of the entries",
        body=Body(schema=_EXPLORE),
        answers={200: Body(schema=_FACETS), 413: _ERROR, 415: _ERROR, **_ERRORS},
    ),
    Route(
        method="GET",
        path="/ard/agents",
        operation="list",
        summary="ARD: list entries",
        parameters=(
            Parameter(name="filter", description="field = 'value' AND field = 'value'"),
            Parameter(name="orderBy", description="fields with ASC or DESC, with commas"),
            Parameter(name="pageSize", schema={"type": "integer", "minimum": 1}),
            Parameter(name="pageToken"),
        ),
        answers={200: Body(schema=_LIST), **_ERRORS},
    ),
]
