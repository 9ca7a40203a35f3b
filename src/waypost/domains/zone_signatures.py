"""The keys with which a zone signs its records and entries (dns-aid.md §7), from the one place that follows from its name.

A pointer to keys, in a record or a signature, would be as forged as the rest of it: none is followed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import urlsplit

from waypost.domains.dns_lookup import AgentLocation, AgentService
from waypost.domains.ports import DomainFetcher
from waypost.domains.target import is_same_organisation
from waypost.domains.trace import ResolutionTrace, error_code
from waypost.errors import AddressDenied, FetchFailed, InvalidParameter, RateLimited, WaypostError
from waypost.model.json import JsonObject
from waypost.model.resolution import SIGNATURE
from waypost.model.verdict import Verdict
from waypost.protocols.dns_aid.svcb import AGENT_KEYS, NAMES, SIG, ServiceBinding
from waypost.trust.checks.dns_aid import (
    UNBOUND,
    SignatureResult,
    SignedRecordFacts,
    verify_entry_signature,
    verify_record_signature,
)
from waypost.trust.domain_claims import registrable_domain
from waypost.trust.jose import JoseKey, parse_jwks

_PATH: Final = "/.well-known/dns-aid-jwks.json"

_HOST: Final = "dns-aid."


def candidate_zones(name: str) -> list[str]:
    """The zones that a name may be in, the closest first, none above what is somebody's own."""
    top = registrable_domain(name)
    above = name.partition(".")[2] if name != top else name
    return list(dict.fromkeys((above, top)))


def jwks_urls(zone: str) -> list[str]:
    """A host of its own, then the zone's, as before there was one."""
    return [f"https://{_HOST}{zone}{_PATH}", f"https://{zone}{_PATH}"]


class ZoneKeyFetcher:
    """Of one resolution: each zone is asked once."""

    def __init__(self, journal: ResolutionTrace, fetcher: DomainFetcher) -> None:
        self._journal = journal
        self._fetcher = fetcher
        self._kept: dict[str, tuple[JoseKey, ...]] = {}

    async def of_zone(self, zone: str) -> tuple[JoseKey, ...]:
        if zone not in self._kept:
            self._kept[zone] = await self._fetch(zone)
        return self._kept[zone]

    async def of_record(self, owner: str) -> tuple[JoseKey, ...]:
        for zone in candidate_zones(owner):
            keys = await self.of_zone(zone)
            if keys:
                return keys
        return ()

    async def _fetch(self, zone: str) -> tuple[JoseKey, ...]:
        """None where there are none to be had, which is no sign of anything."""
        for url in jwks_urls(zone):
            self._journal.fetches += 1
            try:
                fetched = await self._fetcher.fetch(url, "jwks")
                keys = parse_jwks(fetched.body) if fetched.is_success else ()
            except (FetchFailed, AddressDenied, InvalidParameter, RateLimited) as error:
                self._journal.tell("keys", "unknown", error.message, code=error_code(error, "denied"), url=url)
                continue
            except WaypostError as error:
                self._journal.tell("keys", "unknown", error.message, code="malformed", url=url)
                continue
            if keys:
                self._journal.tell("keys", "passed", url=url, keys=len(keys))
                return keys
            self._journal.tell("keys", "unknown", f"it answered with status {fetched.status}", code="status", url=url)
        return ()


# ---- Records and entries that are signed by their zone: from what the DNS or an index gave to a verdict (dns-aid.md §7, AID-25).

_STATES: Final = ("failed", "unknown", "passed")  # what is told of several, the worst first


def has_signed_records(located: AgentLocation) -> bool:
    return any(each.binding is not None and SIG in each.binding.params for each in located.services)


async def verify_record_signatures(
    located: AgentLocation, journal: ResolutionTrace, keys: ZoneKeyFetcher, now: float
) -> Verdict:
    """One verdict over all records that carry a signature: as good as the worst of them."""
    found: list[Verdict] = []
    for service in located.services:
        binding = service.binding
        if binding is not None and SIG in binding.params:
            owner = service.owner or located.domain
            text = binding.text(SIG) or ""
            judged = verify_record_signature(
                text, record_facts(service, binding, owner), await keys.of_record(owner), now
            )
            found.append(_verdict(journal, judged, owner=owner))
    return min(found, key=lambda verdict: _STATES.index(verdict.state))


def record_facts(service: AgentService, binding: ServiceBinding, owner: str) -> SignedRecordFacts:
    known = {key: binding.text(key) or "" for key in sorted(binding.params) if key in AGENT_KEYS and key != SIG}
    written = (",".join(binding.alpn), binding.protocol() or "", *binding.alpn[:1])
    return SignedRecordFacts(
        owner=owner,
        target=service.host,
        port=service.port,
        alpn=tuple(dict.fromkeys(written)),
        params=(
            {NAMES[key]: value for key, value in known.items()},
            {f"key{key}": value for key, value in known.items()},
        ),
    )


def verify_index_entry(entry: Any, organisation: str, keys: Iterable[JoseKey], now: float) -> SignatureResult:
    """An entry of an index that is kept elsewhere. A manifest does not cover where the entry leads: then it must lead home."""
    told: JsonObject = entry if isinstance(entry, dict) else {}
    hosts = frozenset(_hosts(told))
    judged = verify_entry_signature(told, hosts, tuple(keys), now)
    if judged.evidence.get("covers") == "manifest" and not all(is_same_organisation(h, organisation) for h in hosts):
        return SignatureResult(
            state="failed", code=UNBOUND, reason="what is signed of the entry does not cover where it leads"
        )
    return judged


def _hosts(entry: JsonObject) -> Iterable[str]:
    location = entry.get("location")
    places = [entry.get("url")] + ([location.get("endpoint")] if isinstance(location, dict) else [])
    if isinstance(location, dict) and isinstance(location.get("fqdn"), str):
        yield location["fqdn"].lower().removesuffix(".")
    for place in places:
        try:
            host = urlsplit(place).hostname if isinstance(place, str) else None
        except ValueError:
            host = None
        if host:
            yield host


def _verdict(journal: ResolutionTrace, judged: SignatureResult, **evidence: Any) -> Verdict:
    told = {**evidence, **judged.evidence}
    journal.tell("sig", judged.state, judged.reason, code=judged.code, **told)
    if judged.code:
        told["code"] = judged.code
    return Verdict(check=SIGNATURE, state=judged.state, reason=judged.reason, evidence=told, at=journal.at)
