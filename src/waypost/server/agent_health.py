"""How an agent's endpoint answers, on the service's own face. Why it fails is told to its owner alone: anybody else could learn
by it what is behind an address.
"""

from __future__ import annotations

from waypost.model.health import UNKNOWN
from waypost.model.json import JsonObject
from waypost.model.principal import Principal
from waypost.model.registration import Registration, endpoint_of
from waypost.model.times import to_rfc3339
from waypost.registry.engine import Registry
from waypost.server.asgi import AnyResponse, json_response
from waypost.server.routes import Body, Call, Route
from waypost.server.shapes import AGENT_HEALTH
from waypost.trust.policy import may_change


class AgentHealthFace:
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
                answers={200: Body(schema=AGENT_HEALTH)},
            )
        ]

    async def health(self, call: Call) -> AnyResponse:
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
