"""Proofs of domains, on the service's own face: claim, check, list, give up."""

from __future__ import annotations

from typing import Any

from waypost.errors import InvalidParameter
from waypost.model.times import to_rfc3339
from waypost.registry.domain_claims import DomainClaims
from waypost.server.http.asgi import AnyResponse, Response, json_response
from waypost.server.http.request_params import read_object, refuse_fetch_loops
from waypost.server.http.routing import BodySpec, ParameterSpec, RequestContext, Route
from waypost.server.response_schemas import CLAIM
from waypost.trust.domain_claims import PROOF_METHODS, OwnershipClaim, parse_provable_domain

_NOT_STORED = (b"cache-control", b"no-store")


class DomainsApi:
    def __init__(self, domains: DomainClaims) -> None:
        self._domains = domains

    def routes(self) -> list[Route]:
        return [
            Route(
                method="POST",
                path="/api/v1/domains",
                operation="prove_domain",
                handler=self.prove,
                summary="Claim a domain: what to publish, and where",
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
                answers={201: BodySpec(schema=CLAIM), 200: BodySpec(schema=CLAIM)},
            ),
            Route(
                method="POST",
                path="/api/v1/domains/{id}:check",
                operation="check_domain",
                handler=self.check,
                summary="Look for the proof of a domain",
                answers={200: BodySpec(schema=CLAIM)},
            ),
            Route(
                method="GET",
                path="/api/v1/domains",
                operation="list_domains",
                handler=self.list,
                summary="The domains that you claim",
                answers={
                    200: BodySpec(
                        schema={
                            "type": "object",
                            "required": ["domains"],
                            "properties": {"domains": {"type": "array", "items": CLAIM}},
                        }
                    )
                },
            ),
            Route(
                method="DELETE",
                path="/api/v1/domains/{id}",
                operation="remove_domain",
                handler=self.remove,
                summary="Give up a domain",
                parameters=(ParameterSpec(name="subject", description="whose claim; for admin"),),
                answers={204: BodySpec(description="given up")},
            ),
        ]

    async def prove(self, call: RequestContext) -> AnyResponse:
        asked = await read_object(call.request)
        method = asked.get("method", PROOF_METHODS[0])
        if method not in PROOF_METHODS:
            raise InvalidParameter("This is no way to prove a domain.", path="$.method", hint="Use dns or http.")
        claim = await self._domains.prove(call.principal, parse_provable_domain(asked.get("domain")), method)
        return json_response(claim_json(claim), 201 if claim.state == "pending" else 200, headers=[_NOT_STORED])

    async def check(self, call: RequestContext) -> AnyResponse:
        refuse_fetch_loops(call.request)
        claim = await self._domains.check(call.principal, parse_provable_domain(call.id, "domain"))
        return json_response(claim_json(claim), headers=[_NOT_STORED])

    async def list(self, call: RequestContext) -> AnyResponse:
        claims = await self._domains.list(call.principal)
        return json_response({"domains": [claim_json(claim) for claim in claims]}, headers=[_NOT_STORED])

    async def remove(self, call: RequestContext) -> AnyResponse:
        domain = parse_provable_domain(call.id, "domain")
        await self._domains.remove(call.principal, domain, call.request.param("subject"))
        return Response(204)


def claim_json(claim: OwnershipClaim) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "domain": claim.domain,
        "subject": claim.subject,
        "method": claim.method,
        "state": claim.state,
        "subdomains": claim.method == "dns",
        "place": claim.place,
        "line": claim.line,
        "failures": claim.failures,
    }
    times = {
        "expires_at": claim.expires_at if claim.state == "pending" else None,
        "proven_at": claim.proven_at,
        "checked_at": claim.checked_at,
        "next_check_at": claim.next_check_at,
    }
    return answer | {name: to_rfc3339(at) for name, at in times.items() if at is not None}
