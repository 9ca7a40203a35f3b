"""Proofs of domain ownership: claim a domain, check its proof, list and remove claims."""

from __future__ import annotations

from waypost.errors import InvalidParameter
from waypost.model.times import rfc3339_or_none, to_rfc3339
from waypost.registry.domain_claims import DomainClaims
from waypost.responses.trust import DomainClaim, DomainClaimList
from waypost.server.http.asgi import NO_STORE, AnyResponse, Response, json_response
from waypost.server.http.request_params import read_object, refuse_fetch_loops
from waypost.server.http.routing import BodySpec, ParameterSpec, RequestContext, Route
from waypost.trust.domain_claims import PROOF_METHODS, OwnershipClaim, parse_provable_domain


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
