"""Checks of DNS records: TLSA records against the certificate of a connection (RFC 7671), and record signatures by zone keys.

The TLSA lookup runs beside the connection; the request is sent once both agree. PKIX is checked by the connection itself, in
addition (ADP-54).

A zone signs its records and index entries with keys (dns-aid.md §7) at the one place that follows from its name. A reference to
keys inside a record or signature could be forged like the rest of it, and is never followed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import urlsplit

from waypost import limits
from waypost.domains.dns_lookup import AgentLocation, AgentService
from waypost.domains.ports import DnsLookup, DomainFetcher, SecurityState, TlsPeer
from waypost.domains.target import is_same_organisation, tlsa_name
from waypost.domains.trace import ResolutionTrace, error_code
from waypost.errors import AddressDenied, FetchFailed, InvalidDocument, InvalidParameter, RateLimited, WaypostError
from waypost.model.json import JsonObject
from waypost.model.resolution import SIGNATURE
from waypost.model.verdict import Verdict, VerdictState
from waypost.protocols.dns_aid.svcb import AGENT_KEYS, NAMES, SIG, ServiceBinding
from waypost.protocols.dns_rdata import TlsaRecord, match_any, parse_tlsa
from waypost.trust.checks.dns_aid import (
    UNBOUND,
    SignatureResult,
    SignedRecordFacts,
    verify_entry_signature,
    verify_record_signature,
)
from waypost.trust.domain_claims import registrable_domain
from waypost.trust.jose import JoseKey, parse_jwks

DANE_CHECK: Final = "dane-verified"

_JWKS_PATH: Final = "/.well-known/dns-aid-jwks.json"

_JWKS_HOST: Final = "dns-aid."

_WORST_FIRST: Final = ("failed", "unknown", "passed")


class DaneCheck:
    """The check of one host and port. `pointer_security` is the DNSSEC state of the records that lead there. If the host belongs
    to a third party, its TLSA records prove nothing about the domain unless those records are signed, too."""

    def __init__(
        self, trace: ResolutionTrace, host: str, port: int, *, pointer_security: SecurityState, is_third_party: bool
    ) -> None:
        self._trace = trace
        self._name = tlsa_name(host, port)
        self._pointer_security = pointer_security
        self._is_third_party = is_third_party
        self._is_recorded = False
        self._lookup: asyncio.Task[DnsLookup] | None = None
        self.verdict = self._make_verdict("not_checked", "no connection was made")

    def begin(self) -> None:
        """Start the lookup."""
        if self._lookup is None:
            self._lookup = asyncio.create_task(self._trace.lookup((self._name, "TLSA")), name="tlsa")

    async def close(self) -> None:
        if self._lookup is not None and not self._lookup.done():
            self._lookup.cancel()
            await asyncio.wait((self._lookup,))

    async def check(self, peer: TlsPeer) -> None:
        """Raises FetchFailed if the certificate does not match, or cannot be checked in a signed domain."""
        self.begin()
        if self._lookup is None:
            return
        found = await self._lookup
        self.verdict, evidence = self._compare(found, peer)
        if not self._is_recorded:  # one lookup, however many connections
            self._is_recorded = True
            self._trace.add_lookup(found, self.verdict.reason, code=self._failure_code(), **evidence)
        if self.verdict.state == "failed":
            raise FetchFailed(
                f"The connection was closed: {self.verdict.reason}.",
                path="tlsa",
                hint=f"Compare the certificate with the TLSA records at {self._name}.",
                details={"reason": "dane", "code": self.verdict.evidence.get("code", "")},
            )

    def _compare(self, found: DnsLookup, peer: TlsPeer) -> tuple[Verdict, dict[str, Any]]:
        if found.outcome == "failed" or found.security == "bogus":
            return self._judge_failed_lookup(found), {}
        if found.outcome != "found":
            return self._make_verdict("not_checked", "there is no TLSA record"), {}
        if found.security != "secure":
            reason = f"the TLSA records are not signed ({found.security})"
            return self._make_verdict("unknown", reason, code="tlsa_insecure"), {}
        records = _parse_tlsa_records(found)
        result, record = match_any(records, peer.chain)
        evidence = {
            "records": len(found.records),
            "tlsa": str(record) if record is not None else None,
            "tls": peer.tls_version,
        }
        if result == "mismatch":
            return self._make_verdict(
                "failed", "the certificate matches no TLSA record", code="dane_mismatch", **evidence
            ), evidence
        if result == "unusable":
            return self._make_verdict("unknown", "no TLSA record is usable", code="tlsa_unusable", **evidence), evidence
        if self._is_third_party and self._pointer_security != "secure":
            reason = "the certificate matches, but the record that points to this host is not signed"
            return self._make_verdict("unknown", reason, code="leading_insecure", **evidence), evidence
        return self._make_verdict("passed", "the certificate matches a signed TLSA record", **evidence), evidence

    def _failure_code(self) -> str:
        return str(self.verdict.evidence.get("code", "")) if self.verdict.state == "failed" else ""

    def _judge_failed_lookup(self, found: DnsLookup) -> Verdict:
        """D3: in a signed domain, a lookup that fails may be an attack."""
        reason = f"the TLSA records could not be looked up: {found.reason or found.outcome}"
        if found.security == "bogus":
            return self._make_verdict("failed", reason, code="bogus")
        return self._make_verdict(
            "failed" if self._pointer_security == "secure" else "unknown", reason, code="dns_failed"
        )

    def _make_verdict(self, state: VerdictState, reason: str, **evidence: Any) -> Verdict:
        known = {name: value for name, value in {"name": self._name, **evidence}.items() if value is not None}
        return Verdict(check=DANE_CHECK, state=state, reason=reason, evidence=known, at=self._trace.at)


def _parse_tlsa_records(found: DnsLookup) -> list[TlsaRecord]:
    records = []
    for data in found.records[: limits.TLSA_RECORDS]:
        try:
            records.append(parse_tlsa(data))
        except InvalidDocument:
            continue
    return records


def candidate_zones(name: str) -> list[str]:
    """The zones that may contain a name, the closest first, up to its registrable domain."""
    registrable = registrable_domain(name)
    parent = name.partition(".")[2] if name != registrable else name
    return list(dict.fromkeys((parent, registrable)))


def jwks_urls(zone: str) -> list[str]:
    """A dedicated host, then the zone itself, as in older drafts."""
    return [f"https://{_JWKS_HOST}{zone}{_JWKS_PATH}", f"https://{zone}{_JWKS_PATH}"]


class ZoneKeyFetcher:
    """Fetches zone keys, each zone once per resolution."""

    def __init__(self, trace: ResolutionTrace, fetcher: DomainFetcher) -> None:
        self._trace = trace
        self._fetcher = fetcher
        self._cache: dict[str, tuple[JoseKey, ...]] = {}

    async def of_zone(self, zone: str) -> tuple[JoseKey, ...]:
        if zone not in self._cache:
            self._cache[zone] = await self._fetch(zone)
        return self._cache[zone]

    async def of_record(self, owner: str) -> tuple[JoseKey, ...]:
        for zone in candidate_zones(owner):
            keys = await self.of_zone(zone)
            if keys:
                return keys
        return ()

    async def _fetch(self, zone: str) -> tuple[JoseKey, ...]:
        """Empty if no keys are available, which proves nothing."""
        for url in jwks_urls(zone):
            self._trace.fetches += 1
            try:
                response = await self._fetcher.fetch(url, "jwks")
                keys = parse_jwks(response.body) if response.is_success else ()
            except (FetchFailed, AddressDenied, InvalidParameter, RateLimited) as error:
                self._trace.add_step("keys", "unknown", error.message, code=error_code(error, "denied"), url=url)
                continue
            except WaypostError as error:
                self._trace.add_step("keys", "unknown", error.message, code="malformed", url=url)
                continue
            if keys:
                self._trace.add_step("keys", "passed", url=url, keys=len(keys))
                return keys
            self._trace.add_step(
                "keys", "unknown", f"the server answered with status {response.status}", code="status", url=url
            )
        return ()


def has_signed_records(location: AgentLocation) -> bool:
    return any(each.binding is not None and SIG in each.binding.params for each in location.services)


async def verify_record_signatures(
    location: AgentLocation, trace: ResolutionTrace, keys: ZoneKeyFetcher, now: float
) -> Verdict:
    """One verdict for all signed records: the worst of them."""
    verdicts: list[Verdict] = []
    for service in location.services:
        binding = service.binding
        if binding is not None and SIG in binding.params:
            owner = service.owner or location.domain
            text = binding.text(SIG) or ""
            result = verify_record_signature(
                text, record_facts(service, binding, owner), await keys.of_record(owner), now
            )
            verdicts.append(_signature_verdict(trace, result, owner=owner))
    return min(verdicts, key=lambda verdict: _WORST_FIRST.index(verdict.state))


def record_facts(service: AgentService, binding: ServiceBinding, owner: str) -> SignedRecordFacts:
    values = {key: binding.text(key) or "" for key in sorted(binding.params) if key in AGENT_KEYS and key != SIG}
    alpn_forms = (",".join(binding.alpn), binding.protocol() or "", *binding.alpn[:1])
    return SignedRecordFacts(
        owner=owner,
        target=service.host,
        port=service.port,
        alpn=tuple(dict.fromkeys(alpn_forms)),
        params=(
            {NAMES[key]: value for key, value in values.items()},
            {f"key{key}": value for key, value in values.items()},
        ),
    )


def verify_index_entry(entry: Any, organisation: str, keys: Iterable[JoseKey], now: float) -> SignatureResult:
    """Verify an entry in the index of another organisation. A manifest does not cover the entry's location, which must then be in
    the same organisation."""
    members: JsonObject = entry if isinstance(entry, dict) else {}
    hosts = frozenset(_hosts(members))
    result = verify_entry_signature(members, hosts, tuple(keys), now)
    if result.evidence.get("covers") == "manifest" and not all(is_same_organisation(h, organisation) for h in hosts):
        return SignatureResult(
            state="failed", code=UNBOUND, reason="the signature does not cover the location of the entry"
        )
    return result


def _hosts(entry: JsonObject) -> Iterable[str]:
    location = entry.get("location")
    urls = [entry.get("url")] + ([location.get("endpoint")] if isinstance(location, dict) else [])
    if isinstance(location, dict) and isinstance(location.get("fqdn"), str):
        yield location["fqdn"].lower().removesuffix(".")
    for url in urls:
        try:
            host = urlsplit(url).hostname if isinstance(url, str) else None
        except ValueError:
            host = None
        if host:
            yield host


def _signature_verdict(trace: ResolutionTrace, result: SignatureResult, **evidence: Any) -> Verdict:
    evidence |= result.evidence
    trace.add_step("sig", result.state, result.reason, code=result.code, **evidence)
    if result.code:
        evidence["code"] = result.code
    return Verdict(check=SIGNATURE, state=result.state, reason=result.reason, evidence=evidence, at=trace.at)
