"""How far an agent can be trusted, checked now: every verdict with its evidence."""

from __future__ import annotations

from waypost import limits
from waypost.model.health import UNKNOWN
from waypost.model.json import JsonObject
from waypost.model.principal import Principal
from waypost.model.registration import Registration, endpoint_of, verdicts_of
from waypost.model.times import to_rfc3339
from waypost.model.verdict import trust_summary
from waypost.registry.registry import Registry
from waypost.registry.verification import Reverification
from waypost.server.http.asgi import AnyResponse, json_response
from waypost.server.http.request_params import check_dialect
from waypost.server.http.routing import BodySpec, ParameterSpec, RequestContext, Route
from waypost.server.response_schemas import AGENT_HEALTH, DIALECT, VERIFICATION, document_schema
from waypost.trust.policy import may_change


class VerificationApi:
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
                answers={200: BodySpec(schema=VERIFICATION)},
            ),
            Route(
                method="POST",
                path="/api/v1/agents:verify",
                operation="verify_document",
                handler=self.verify_document,
                summary="Check a document of any dialect without registering it",
                parameters=(
                    ParameterSpec(name="dialect", schema=DIALECT, description="when the content should not decide"),
                ),
                body=BodySpec(schema=document_schema(), description="a document of any dialect"),
                answers={200: BodySpec(schema=VERIFICATION)},
            ),
        ]

    async def verify(self, call: RequestContext) -> AnyResponse:
        judged = await self._registry.verify(call.principal, call.id)
        headers = [(b"cache-control", b"no-store"), (b"vary", b"Authorization")]
        return json_response(verification_json(judged), headers=headers)

    async def verify_document(self, call: RequestContext) -> AnyResponse:
        dialect = call.request.param("dialect")
        document = await call.request.body(limits.DOCUMENT_BYTES)
        name, decoded = self._registry.decode(
            document, dialect=check_dialect(dialect, "dialect") if dialect is not None else None
        )
        verdicts = await self._registry.verify_document(name, document, decoded.record.id)
        answer = {
            "id": decoded.record.id,
            "trust": trust_summary(verdicts),
            "documents": [{"dialect": name, **trust_summary(verdicts)}],
            "checked_at": to_rfc3339(self._registry.clock.now()),
        }
        return json_response(answer, headers=[(b"cache-control", b"no-store")])


def verification_json(judged: Reverification) -> JsonObject:
    return {
        "id": judged.held.id,
        "trust": trust_summary(verdicts_of(judged.now)),
        "shown": trust_summary(verdicts_of(judged.held))["level"],
        "documents": [
            {
                "dialect": source.dialect,
                **trust_summary(source.verdicts),
                "received_at": to_rfc3339(source.received_at),
                "via": source.via,
            }
            for source in judged.now.sources
        ],
        "checked_at": to_rfc3339(judged.at),
    }


# ---- How an agent's endpoint answers, on the service's own face. Why it fails is told to its owner alone: anybody
# else could learn
# by it what is behind an address.


class AgentHealthApi:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def routes(self) -> list[Route]:
        return [
            Route(
                method="GET",
                path="/api/v1/agents/{id}:health",
                operation="agent_health",
                handler=self.health,
                summary="How the endpoint of an agent answers",
                answers={200: BodySpec(schema=AGENT_HEALTH)},
            )
        ]

    async def health(self, call: RequestContext) -> AnyResponse:
        registration = await self._registry.get(call.principal, call.id)
        return json_response(_health_json(registration, call.principal)).add(b"cache-control", b"private, no-cache")


def _health_json(registration: Registration, principal: Principal) -> JsonObject:
    health = registration.health
    told: JsonObject = {
        "id": registration.id,
        "state": UNKNOWN if health is None else health.state,
        "status": registration.status,
    }
    endpoint = endpoint_of(registration)
    if health is not None:
        told["since"] = to_rfc3339(health.since)
        if endpoint is not None:
            told["endpoint"] = endpoint
        if health.reason and may_change(principal, registration.owner):
            told["reason"] = health.reason
    return told
