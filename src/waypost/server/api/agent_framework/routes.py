"""Routes of the Agent Framework endpoints, for the API description. `Discovery` does not need them."""

from __future__ import annotations

from waypost import limits
from waypost.model.json import JsonObject
from waypost.server.api.agent_framework.directory import FIELD_GROUPS, VIEWS
from waypost.server.api.agent_framework.responses import BASE, CARD, OFFERS
from waypost.server.http.openapi import document_schema
from waypost.server.http.routing import BodySpec, ParameterSpec, Route

_VERSIONED_TYPE = str(OFFERS[1])
_VIEW = ParameterSpec(name="view", schema={"enum": list(VIEWS)})
_INCLUDE = ParameterSpec(name="include", description=f"comma-separated list of {', '.join(FIELD_GROUPS)}")
_LIST_SCHEMA: JsonObject = {
    "type": "object",
    "required": ["agents"],
    "properties": {
        "agents": {"type": "array", "items": {"type": "object", "required": ["id", "name", "tags"]}},
        "page": {"type": "integer"},
        "per_page": {"type": "integer"},
        "total": {"type": "integer"},
    },
}

AGENT_FRAMEWORK_ROUTES = [
    Route(
        method="GET",
        path=f"{BASE}/agents",
        operation="list",
        summary="Agent Framework: list agents",
        parameters=(
            ParameterSpec(
                name="q", schema={"type": "string", "maxLength": limits.AF_QUERY_CHARS}, description="all words"
            ),
            ParameterSpec(name="tag", schema={"type": "array", "items": {"type": "string", "minLength": 1}}),
            _INCLUDE,
            _VIEW,
            ParameterSpec(name="page", schema={"type": "integer", "minimum": 1, "maximum": limits.AF_PAGE_NUMBER_MAX}),
            ParameterSpec(name="per_page", schema={"type": "integer", "minimum": 1}),
            ParameterSpec(name="id", description="exactly this agent"),
        ),
        answers={
            200: BodySpec(schema=_LIST_SCHEMA, also=(_VERSIONED_TYPE,)),
            406: BodySpec(description="no representation fits"),
        },
    ),
    Route(
        method="GET",
        path=f"{BASE}/agents/{{id}}",
        operation="get",
        summary="Agent Framework: one agent",
        parameters=(_VIEW, _INCLUDE),
        answers={200: BodySpec(schema=document_schema("af"), also=(_VERSIONED_TYPE,))},
    ),
    Route(
        method="GET",
        path=CARD,
        operation="document",
        summary="Agent Framework: the card of this origin",
        parameters=(ParameterSpec(name="agent", description="the card of one agent"),),
        answers={200: BodySpec(schema=document_schema("af"), also=(_VERSIONED_TYPE,))},
        open=True,
    ),
]
