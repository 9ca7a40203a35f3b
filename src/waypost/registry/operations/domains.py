"""Domains: from a name to an agent, proofs of them, and what is written into a zone."""

from __future__ import annotations

from waypost import errors
from waypost.model.principal import SCOPE_READ, SCOPE_WRITE
from waypost.registry.operations.operation import DOMAIN_ERRORS, READ_ERRORS, Operation

DOMAINS = (
    Operation(
        name="resolve",
        summary="From a domain name to an agent: where it is, what it says, and how far that is proven.",
        scope=SCOPE_READ,
        idempotent=True,
        errors=(*READ_ERRORS, errors.LoopDetected),
        command="resolve",
        method="resolve",
    ),
    Operation(
        name="organisation",
        summary="The agents that an organisation lists in its DNS.",
        scope=SCOPE_READ,
        idempotent=True,
        errors=(*READ_ERRORS, errors.LoopDetected),
        command="resolve",
        method="organisation",
    ),
    Operation(
        name="zone",
        summary="The DNS records that lead to an agent, as text for a zone.",
        scope=SCOPE_READ,
        idempotent=True,
        errors=(*READ_ERRORS, errors.NotFound, errors.Conflict),
        command="dns zone",
        method="zone",
    ),
    Operation(
        name="prove_domain",
        summary="Claim a domain; the answer says what to publish where.",
        scope=SCOPE_WRITE,
        idempotent=True,
        errors=(*DOMAIN_ERRORS, errors.MalformedJson, errors.TooLarge, errors.Conflict, errors.QuotaExceeded),
        command="domain prove",
        method="prove_domain",
    ),
    Operation(
        name="check_domain",
        summary="Look for the proof of a domain that is claimed.",
        scope=SCOPE_WRITE,
        idempotent=True,
        errors=(
            *DOMAIN_ERRORS,
            errors.NotFound,
            errors.ProofMissing,
            errors.LoopDetected,
            errors.AddressDenied,
            errors.FetchFailed,
        ),
        command="domain check",
        method="check_domain",
    ),
    Operation(
        name="list_domains",
        summary="List the domains that the caller claims.",
        scope=SCOPE_READ,
        idempotent=True,
        errors=READ_ERRORS,
        command="domain list",
        method="list_domains",
    ),
    Operation(
        name="remove_domain",
        summary="Give up a domain.",
        scope=SCOPE_WRITE,
        idempotent=True,
        errors=(*DOMAIN_ERRORS, errors.NotFound),
        command="domain remove",
        method="remove_domain",
    ),
)
