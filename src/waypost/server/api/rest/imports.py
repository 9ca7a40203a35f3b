"""An address instead of a document, on the service's own face: what is there is shown, and registered when that is asked."""

from __future__ import annotations

from typing import Any

from waypost import limits
from waypost.errors import InvalidParameter, WaypostError
from waypost.model.json import JsonObject, parse_json
from waypost.protocols.rtfs.sexpr import is_sexpr_text
from waypost.registry.importer import ImportedAgent, Importer, ImportRequest, ImportResult
from waypost.server.http.asgi import AnyResponse, json_response
from waypost.server.http.problems import internal_error
from waypost.server.http.request_params import (
    check_dialect,
    read_object,
    read_ttl,
    read_visibility,
    receipt_json,
    refuse_fetch_loops,
)
from waypost.server.http.routing import BodySpec, ParameterSpec, RequestContext, Route
from waypost.server.response_schemas import DIALECT, FETCHED

_NOT_STORED = (b"cache-control", b"no-store")


class ImportApi:
    def __init__(self, importer: Importer) -> None:
        self._importer = importer

    def routes(self) -> list[Route]:
        return [
            Route(
                method="POST",
                path="/api/v1/agents:fetch",
                operation="fetch",
                handler=self.fetch,
                summary="Fetch the documents at an address, and register them when that is wanted",
                parameters=(
                    ParameterSpec(
                        name="ttl_seconds", schema={"type": "integer", "minimum": 1}, description="lease to ask for"
                    ),
                    ParameterSpec(name="Waypost-Visibility", place="header", description="public, internal or private"),
                ),
                body=BodySpec(
                    schema={
                        "type": "object",
                        "required": ["url"],
                        "properties": {
                            "url": {
                                "type": "string",
                                "maxLength": limits.FETCH_URL_CHARS,
                                "description": "of a document, an origin whose well-known documents are tried, or a domain "
                                "or agent URI that is resolved",
                            },
                            "save": {"type": "boolean", "default": False},
                            "organisation": {
                                "type": "boolean",
                                "default": False,
                                "description": "of a domain: every agent that it lists",
                            },
                            "dialect": DIALECT,
                            "digest": {
                                "type": "string",
                                "description": "of what was shown before: if it is something else by now, nothing is saved",
                            },
                        },
                    }
                ),
                answers={200: BodySpec(schema=FETCHED)},
            )
        ]

    async def fetch(self, call: RequestContext) -> AnyResponse:
        refuse_fetch_loops(call.request)
        asked = await read_object(call.request)
        dialect = _text(asked, "dialect")
        save, organisation = _flag(asked, "save"), _flag(asked, "organisation")
        url = _text(asked, "url")
        if url is None:
            raise InvalidParameter("url is missing.", path="$.url", hint="Name the address of a document.")
        wanted = ImportRequest(
            url=url,
            save=save,
            organisation=organisation,
            dialect=check_dialect(dialect, "$.dialect") if dialect is not None else None,
            digest=_text(asked, "digest"),
            visibility=read_visibility(call.request),
            ttl_seconds=read_ttl(call.request),
        )
        found = await self._importer.find(call.principal, wanted)
        return json_response(documents_json(found), headers=[_NOT_STORED])


def documents_json(found: ImportResult) -> dict[str, Any]:
    return {
        "url": found.url,
        "digest": found.digest,
        "agents": [_agent_json(agent, agent.url or found.url) for agent in found.agents],
    }


def _agent_json(found: ImportedAgent, url: str) -> dict[str, Any]:
    if found.error is not None or found.decoded is None:
        return {"url": url, "outcome": "failed", "error": _error_json(found.error or internal_error())}
    answer: dict[str, Any] = {
        "url": url,
        "dialect": found.dialect,
        "id": found.decoded.record.id,
        "name": found.decoded.record.name,
        "outcome": "found",
        "losses": [{"path": loss.path, "reason": loss.reason} for loss in found.decoded.losses],
        "warnings": list(found.decoded.warnings),
        "trust": found.trust,
        "agent": found.agent(),
        "document": _document(found),
    }
    if found.existing is not None:
        answer["existing"] = found.existing
    return answer | receipt_json(found.receipt) if found.receipt is not None else answer


def _document(found: ImportedAgent) -> Any:
    """As JSON; a text as a text."""
    if is_sexpr_text(found.document):
        return found.document.decode("utf-8", "replace")
    return parse_json(found.document)


def _error_json(error: WaypostError) -> dict[str, Any]:
    members = {"code": error.code, "message": error.message, "path": error.path, "hint": error.hint}
    return {name: value for name, value in members.items() if value is not None}


def _flag(asked: JsonObject, name: str) -> bool:
    value = asked.get(name, False)
    if not isinstance(value, bool):
        raise InvalidParameter(f"{name} must be true or false.", path=f"$.{name}")
    return value


def _text(asked: JsonObject, name: str) -> str | None:
    value = asked.get(name)
    if value is not None and (not isinstance(value, str) or not value.strip()):
        raise InvalidParameter(f"{name} must be a text.", path=f"$.{name}")
    return value.strip() if isinstance(value, str) else None
