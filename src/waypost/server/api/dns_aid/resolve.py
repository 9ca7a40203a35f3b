"""`GET /api/v1/resolve`: from a domain name to an agent. It triggers outgoing requests, so it costs as much as fifty reads of
the rate limit, and its errors do not help non-admins to map a network."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from waypost import limits
from waypost.errors import InvalidParameter
from waypost.model.principal import Principal
from waypost.model.resolution import DEPTHS, Depth, OrganisationIndex, Resolution, ResolutionStep
from waypost.model.verdict import Verdict
from waypost.server.auth.callers import RateLimits
from waypost.server.http.asgi import AnyResponse, json_response
from waypost.server.http.request_params import refuse_fetch_loops
from waypost.server.http.routing import ParameterSpec, RequestContext, Route

if TYPE_CHECKING:
    from waypost.domains.organisation_index import OrganisationReader
    from waypost.domains.resolver import DomainResolver

# Reasons shown to admins only: they describe a network, not an agent (S1, S9).
_NETWORK_REASONS: Final = frozenset(("no_address", "dns_failed", "refused", "timed_out", "tls", "protocol", "denied"))
_UNREACHABLE_TEXT: Final = "the server could not be reached"
AnswerT = TypeVar("AnswerT", Resolution, OrganisationIndex)


class ResolveApi:
    def __init__(
        self,
        resolver: DomainResolver,
        organisations: OrganisationReader,
        rates: RateLimits,
        *,
        discreet_seconds: float = limits.DESCRIPTOR_SECONDS,
    ) -> None:
        self._resolver = resolver
        self._organisations = organisations
        self.discreet_seconds = discreet_seconds
        self._rates = rates

    def routes(self) -> list[Route]:
        return [
            Route(
                method="GET",
                path="/api/v1/resolve",
                operation="resolve",
                handler=self.resolve,
                summary="Resolve a domain name to an agent, with proof levels",
                parameters=(
                    ParameterSpec(
                        name="name",
                        required=True,
                        schema={"type": "string", "maxLength": limits.FETCH_URL_CHARS},
                        description="a domain, an agent URI, or the https address of a document",
                    ),
                    ParameterSpec(
                        name="until",
                        schema={"enum": list(DEPTHS), "default": "key"},
                        description="how far to go: dns, document or key",
                    ),
                    ParameterSpec(name="fresh", schema={"enum": ["true", "false"]}, description="ignore caches"),
                ),
                answers={200: Resolution},
            ),
            Route(
                method="GET",
                path="/api/v1/organisation",
                operation="organisation",
                handler=self.organisation,
                summary="List the agents that an organisation publishes in its DNS",
                parameters=(
                    ParameterSpec(
                        name="name",
                        required=True,
                        schema={"type": "string", "maxLength": 253},
                        description="the domain of the organisation",
                    ),
                ),
                answers={200: OrganisationIndex},
            ),
        ]

    async def resolve(self, call: RequestContext) -> AnyResponse:
        name = self._parse_name(call)
        began = time.monotonic()
        depth, fresh = (
            _read_depth(call.request.param("until", "key")),
            _read_fresh(call.request.param("fresh", "false")),
        )
        self._charge(call)
        found = await self._resolver.resolve(name, depth, fresh=fresh)
        return _answer(await self._discreet(call.principal, found, began))

    async def organisation(self, call: RequestContext) -> AnyResponse:
        name = self._parse_name(call)
        began = time.monotonic()
        self._charge(call)
        index = await self._organisations.read(name)
        return _answer(await self._discreet(call.principal, index.index, began))

    def _parse_name(self, call: RequestContext) -> str:
        refuse_fetch_loops(call.request)
        name = call.request.param("name")
        if not name:
            raise InvalidParameter("name is missing.", path="name", hint="Pass a domain, like alice.example.com.")
        return name

    def _charge(self, call: RequestContext) -> None:
        self._rates.read(call.principal, call.principal.address, limits.RESOLVE_COST)

    async def _discreet(self, principal: Principal, found: AnswerT, began: float) -> AnswerT:
        """Closed, denied and missing hosts are indistinguishable, also by time."""
        if principal.is_admin or all(step.code not in _NETWORK_REASONS for step in found.steps):
            return found
        await asyncio.sleep(max(0.0, began + self.discreet_seconds - time.monotonic()))
        veiled = msgspec.structs.replace(
            found,
            steps=tuple(map(_redact_step, found.steps)),
            cost=msgspec.structs.replace(found.cost, took_ms=0.0),
            code="unreachable" if found.code in _NETWORK_REASONS else found.code,
            reason=_UNREACHABLE_TEXT if found.code in _NETWORK_REASONS else found.reason,
        )
        if isinstance(veiled, Resolution):
            return msgspec.structs.replace(veiled, verdicts=tuple(map(_redact_verdict, veiled.verdicts)))
        return veiled


def _answer(result: Resolution | OrganisationIndex) -> AnyResponse:
    headers = [(b"cache-control", b"no-store"), (b"vary", b"Authorization")]
    return json_response(result, headers=headers)


def _redact_verdict(verdict: Verdict) -> Verdict:
    if verdict.evidence.get("code") not in _NETWORK_REASONS:
        return verdict
    return msgspec.structs.replace(verdict, state="unknown", reason=_UNREACHABLE_TEXT, evidence={})


def _redact_step(step: ResolutionStep) -> ResolutionStep:
    if step.code not in _NETWORK_REASONS:
        return step
    return msgspec.structs.replace(step, state="unknown", code="unreachable", reason=_UNREACHABLE_TEXT, took_ms=0.0)


def _read_depth(text: str | None) -> Depth:
    found = next((depth for depth in DEPTHS if depth == text), None)
    if found is None:
        raise InvalidParameter("until has an unknown value.", path="until", hint=f"Use one of {', '.join(DEPTHS)}.")
    return found


def _read_fresh(text: str | None) -> bool:
    if text not in ("true", "false"):
        raise InvalidParameter("fresh must be true or false.", path="fresh")
    return text == "true"
