"""Checks of agents: how far an agent can be trusted, and whether its endpoint answers."""

from __future__ import annotations

from collections.abc import Iterable

from waypost import limits
from waypost.model.health import UNKNOWN
from waypost.model.registration import endpoint_of, verdicts_of
from waypost.model.times import to_rfc3339
from waypost.model.verdict import Verdict, trust_summary
from waypost.registry.registry import Registry
from waypost.responses.agents import AgentHealth
from waypost.responses.trust import VerificationResult, VerifiedDocument
from waypost.server.http.asgi import NO_STORE, AnyResponse, json_response
from waypost.server.http.openapi import DIALECT_SCHEMA, document_schema
from waypost.server.http.request_params import check_dialect
from waypost.server.http.routing import BodySpec, ParameterSpec, RequestContext, Route
from waypost.trust.policy import may_change


class VerificationApi:
    """`/api/v1/agents/{id}:verify`, `/api/v1/agents:verify` and `/api/v1/agents/{id}:health`."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def routes(self) -> list[Route]:
        return [
            Route(
                method="GET",
                path="/api/v1/agents/{id}:verify",
                operation="verify",
                handler=self.verify,
                summary="Check the documents of an agent now",
                answers={200: VerificationResult},
            ),
            Route(
                method="POST",
                path="/api/v1/agents:verify",
                operation="verify_document",
                handler=self.verify_document,
                summary="Check a document of any dialect without registering it",
                parameters=(
                    ParameterSpec(
                        name="dialect", schema=DIALECT_SCHEMA, description="overrides recognition by content"
                    ),
                ),
                body=BodySpec(schema=document_schema(), description="a document of any dialect"),
                answers={200: VerificationResult},
            ),
            Route(
                method="GET",
                path="/api/v1/agents/{id}:health",
                operation="agent_health",
                handler=self.health,
                summary="The state of an agent's endpoint",
                answers={200: AgentHealth},
            ),
        ]

    async def verify(self, call: RequestContext) -> AnyResponse:
        found = await self._registry.verify(call.principal, call.id)
        documents = tuple(
            _verified_document(
                source.dialect, source.verdicts, received_at=to_rfc3339(source.received_at), via=source.via
            )
            for source in found.now.sources
        )
        result = VerificationResult(
            id=found.stored.id,
            trust=trust_summary(verdicts_of(found.now)),
            shown=trust_summary(verdicts_of(found.stored)).level,
            documents=documents,
            checked_at=to_rfc3339(found.at),
        )
        return json_response(result, headers=[NO_STORE, (b"vary", b"Authorization")])

    async def verify_document(self, call: RequestContext) -> AnyResponse:
        dialect = call.request.param("dialect")
        document = await call.request.body(limits.DOCUMENT_BYTES)
        name, decoded = self._registry.decode(
            document, dialect=check_dialect(dialect, "dialect") if dialect is not None else None
        )
        verdicts = await self._registry.verify_document(name, document, decoded.record.id)
        result = VerificationResult(
            id=decoded.record.id,
            trust=trust_summary(verdicts),
            documents=(_verified_document(name, verdicts),),
            checked_at=to_rfc3339(self._registry.clock.now()),
        )
        return json_response(result, headers=[NO_STORE])

    async def health(self, call: RequestContext) -> AnyResponse:
        """Only the owner learns why a check fails: others could use the reason to probe a network."""
        registration = await self._registry.get(call.principal, call.id)
        health = registration.health
        if health is None:
            result = AgentHealth(id=registration.id, state=UNKNOWN, status=registration.status)
        else:
            shows_reason = bool(health.reason) and may_change(call.principal, registration.owner)
            result = AgentHealth(
                id=registration.id,
                state=health.state,
                status=registration.status,
                since=to_rfc3339(health.since),
                endpoint=endpoint_of(registration),
                reason=health.reason if shows_reason else None,
            )
        return json_response(result).add(b"cache-control", b"private, no-cache")


def _verified_document(dialect: str, verdicts: Iterable[Verdict], **received: str) -> VerifiedDocument:
    trust = trust_summary(verdicts)
    return VerifiedDocument(dialect=dialect, level=trust.level, checks=trust.checks or (), **received)
