"""Checks of agents and of domains: how far an agent can be trusted, whether its endpoint answers, who owns a domain."""

from __future__ import annotations

from collections.abc import Iterable

from waypost import limits
from waypost.errors import InvalidParameter
from waypost.model.health import UNKNOWN
from waypost.model.principal import may_change
from waypost.model.registration import endpoint_of, verdicts_of
from waypost.model.times import rfc3339_or_none, to_rfc3339
from waypost.model.verdict import Verdict, trust_summary
from waypost.registry.domain_claims import DomainClaims
from waypost.registry.registry import Registry
from waypost.responses.agents import AgentHealth
from waypost.responses.trust import DomainClaim, DomainClaimList, VerificationResult, VerifiedDocument
from waypost.server.http.asgi import NO_STORE, AnyResponse, Response, json_response
from waypost.server.http.openapi import DIALECT_SCHEMA, document_schema
from waypost.server.http.request_params import check_dialect, read_object, refuse_fetch_loops
from waypost.server.http.routing import BodySpec, ParameterSpec, RequestContext, Route
from waypost.trust.domain_claims import PROOF_METHODS, OwnershipClaim, parse_provable_domain


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


class DomainsApi:
    """`/api/v1/domains`."""

    def __init__(self, domains: DomainClaims) -> None:
        self._domains = domains

    def routes(self) -> list[Route]:
        return [
            Route(
                method="POST",
                path="/api/v1/domains",
                operation="prove_domain",
                handler=self.prove,
                summary="Claim a domain: which line to publish, and where",
                body=BodySpec(
                    schema={
                        "type": "object",
                        "required": ["domain"],
                        "properties": {
                            "domain": {"type": "string", "maxLength": 253},
                            "method": {"enum": list(PROOF_METHODS), "default": PROOF_METHODS[0]},
                        },
                    }
                ),
                answers={201: DomainClaim, 200: DomainClaim},
            ),
            Route(
                method="POST",
                path="/api/v1/domains/{id}:check",
                operation="check_domain",
                handler=self.check,
                summary="Look for the proof of a domain",
                answers={200: DomainClaim},
            ),
            Route(
                method="GET",
                path="/api/v1/domains",
                operation="list_domains",
                handler=self.list,
                summary="List your domain claims",
                answers={200: DomainClaimList},
            ),
            Route(
                method="DELETE",
                path="/api/v1/domains/{id}",
                operation="remove_domain",
                handler=self.remove,
                summary="Remove a domain claim",
                parameters=(ParameterSpec(name="subject", description="whose claim; for admins"),),
                answers={204: BodySpec(description="removed")},
            ),
        ]

    async def prove(self, call: RequestContext) -> AnyResponse:
        request = await read_object(call.request)
        method = request.get("method", PROOF_METHODS[0])
        if method not in PROOF_METHODS:
            raise InvalidParameter("method must be dns or http.", path="$.method", hint="Use dns or http.")
        claim = await self._domains.prove(call.principal, parse_provable_domain(request.get("domain")), method)
        return json_response(to_domain_claim(claim), 201 if claim.state == "pending" else 200, headers=[NO_STORE])

    async def check(self, call: RequestContext) -> AnyResponse:
        refuse_fetch_loops(call.request)
        claim = await self._domains.check(call.principal, parse_provable_domain(call.id, "domain"))
        return json_response(to_domain_claim(claim), headers=[NO_STORE])

    async def list(self, call: RequestContext) -> AnyResponse:
        claims = await self._domains.list(call.principal)
        return json_response(DomainClaimList(domains=tuple(map(to_domain_claim, claims))), headers=[NO_STORE])

    async def remove(self, call: RequestContext) -> AnyResponse:
        domain = parse_provable_domain(call.id, "domain")
        await self._domains.remove(call.principal, domain, call.request.param("subject"))
        return Response(204)


def to_domain_claim(claim: OwnershipClaim) -> DomainClaim:
    return DomainClaim(
        domain=claim.domain,
        subject=claim.subject,
        method=claim.method,
        state=claim.state,
        subdomains=claim.method == "dns",
        place=claim.place,
        line=claim.line,
        failures=claim.failures,
        expires_at=to_rfc3339(claim.expires_at) if claim.state == "pending" else None,
        proven_at=rfc3339_or_none(claim.proven_at),
        checked_at=rfc3339_or_none(claim.checked_at),
        next_check_at=rfc3339_or_none(claim.next_check_at),
    )
