"""Import from an address: fetch the documents there, show them, and register them on request."""

from __future__ import annotations

from typing import Any

import msgspec

from waypost import limits
from waypost.errors import InvalidParameter
from waypost.model.json import JsonObject, parse_json
from waypost.protocols.rtfs.sexpr import is_sexpr_text
from waypost.registry.importer import ImportedAgent, Importer, ImportRequest
from waypost.responses.agents import ErrorDetail, FetchedAgent, FetchResult
from waypost.server.http.asgi import NO_STORE, AnyResponse, json_response
from waypost.server.http.openapi import DIALECT_SCHEMA
from waypost.server.http.problems import internal_error
from waypost.server.http.request_params import (
    TTL_PARAMETER,
    WRITE_HEADERS,
    check_dialect,
    read_object,
    read_ttl,
    read_visibility,
    refuse_fetch_loops,
)
from waypost.server.http.routing import BodySpec, RequestContext, Route
from waypost.server.renderer import to_receipt


class ImportApi:
    """`/api/v1/agents:fetch`."""

    def __init__(self, importer: Importer) -> None:
        self._importer = importer

    def routes(self) -> list[Route]:
        return [
            Route(
                method="POST",
                path="/api/v1/agents:fetch",
                operation="fetch",
                handler=self.fetch,
                summary="Fetch the documents at an address, and register them on request",
                parameters=(TTL_PARAMETER, WRITE_HEADERS[0]),
                body=BodySpec(
                    schema={
                        "type": "object",
                        "required": ["url"],
                        "properties": {
                            "url": {
                                "type": "string",
                                "maxLength": limits.FETCH_URL_CHARS,
                                "description": "a document, an origin with well-known documents, a domain or an agent URI",
                            },
                            "save": {"type": "boolean", "default": False},
                            "organisation": {
                                "type": "boolean",
                                "default": False,
                                "description": "for a domain: every agent that it lists",
                            },
                            "dialect": DIALECT_SCHEMA,
                            "digest": {
                                "type": "string",
                                "description": "`digest` of an earlier answer; other content is not saved",
                            },
                        },
                    }
                ),
                answers={200: FetchResult},
            )
        ]

    async def fetch(self, call: RequestContext) -> AnyResponse:
        refuse_fetch_loops(call.request)
        request = await read_object(call.request)
        url, dialect = _read_text(request, "url"), _read_text(request, "dialect")
        save, organisation = _read_flag(request, "save"), _read_flag(request, "organisation")
        if url is None:
            raise InvalidParameter("url is missing.", path="$.url", hint="Name the address of a document.")
        found = await self._importer.find(
            call.principal,
            ImportRequest(
                url=url,
                save=save,
                organisation=organisation,
                dialect=check_dialect(dialect, "$.dialect") if dialect is not None else None,
                digest=_read_text(request, "digest"),
                visibility=read_visibility(call.request),
                ttl_seconds=read_ttl(call.request),
            ),
        )
        agents = tuple(_fetched_agent(agent, agent.url or found.url) for agent in found.agents)
        return json_response(FetchResult(url=found.url, digest=found.digest, agents=agents), headers=[NO_STORE])


def _fetched_agent(found: ImportedAgent, url: str) -> FetchedAgent:
    if found.error is not None or found.decoded is None:
        return FetchedAgent(url=url, outcome="failed", error=ErrorDetail.of(found.error or internal_error()))
    agent = FetchedAgent(
        url=url,
        dialect=found.dialect,
        id=found.decoded.record.id,
        name=found.decoded.record.name,
        outcome="found",
        losses=found.decoded.losses,
        warnings=found.decoded.warnings,
        trust=found.trust,
        agent=found.agent(),
        document=_document(found),
        existing=found.existing,
    )
    if found.receipt is None:
        return agent
    receipt = to_receipt(found.receipt)
    shared = [name for name in receipt.__struct_fields__ if name in agent.__struct_fields__]
    return msgspec.structs.replace(agent, **{name: getattr(receipt, name) for name in shared})


def _document(found: ImportedAgent) -> Any:
    """The document as JSON; an RTFS profile as a string."""
    if is_sexpr_text(found.document):
        return found.document.decode("utf-8", "replace")
    return parse_json(found.document)


def _read_flag(request: JsonObject, name: str) -> bool:
    value = request.get(name, False)
    if not isinstance(value, bool):
        raise InvalidParameter(f"{name} must be true or false.", path=f"$.{name}")
    return value


def _read_text(request: JsonObject, name: str) -> str | None:
    value = request.get(name)
    if value is not None and (not isinstance(value, str) or not value.strip()):
        raise InvalidParameter(f"{name} must be a string.", path=f"$.{name}")
    return value.strip() if isinstance(value, str) else None
