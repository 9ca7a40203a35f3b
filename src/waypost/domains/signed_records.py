"""Records and entries that are signed by their zone: from what the DNS or an index gave to a verdict (dns-aid.md §7, AID-25)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import urlsplit

from waypost.domains.journal import Journal
from waypost.domains.locating import Located, Service
from waypost.domains.naming import is_same_organisation
from waypost.domains.zone_keys import ZoneKeys
from waypost.model.json import JsonObject
from waypost.model.resolution import SIGNATURE
from waypost.model.verdict import Verdict
from waypost.trust.dns_aid_signature import UNBOUND, Judged, Statement, judge_entry, judge_record
from waypost.trust.jose import JoseKey
from waypost.wire.svcb import AGENT_KEYS, NAMES, SIG, ServiceBinding

_STATES: Final = ("failed", "unknown", "passed")  # what is told of several, the worst first


def is_signed(located: Located) -> bool:
    return any(each.binding is not None and SIG in each.binding.params for each in located.services)


async def judge_records(located: Located, journal: Journal, keys: ZoneKeys, now: float) -> Verdict:
    """One verdict over all records that carry a signature: as good as the worst of them."""
    found: list[Verdict] = []
    for service in located.services:
        binding = service.binding
        if binding is not None and SIG in binding.params:
            owner = service.owner or located.domain
            text = binding.text(SIG) or ""
            judged = judge_record(text, statement_of(service, binding, owner), await keys.of_record(owner), now)
            found.append(_verdict(journal, judged, owner=owner))
    return min(found, key=lambda verdict: _STATES.index(verdict.state))


def statement_of(service: Service, binding: ServiceBinding, owner: str) -> Statement:
    known = {key: binding.text(key) or "" for key in sorted(binding.params) if key in AGENT_KEYS and key != SIG}
    written = (",".join(binding.alpn), binding.protocol() or "", *binding.alpn[:1])
    return Statement(
        owner=owner,
        target=service.host,
        port=service.port,
        alpn=tuple(dict.fromkeys(written)),
        params=(
            {NAMES[key]: value for key, value in known.items()},
            {f"key{key}": value for key, value in known.items()},
        ),
    )


def judge_listed(entry: Any, organisation: str, keys: Iterable[JoseKey], now: float) -> Judged:
    """An entry of an index that is kept elsewhere. A manifest does not cover where the entry leads: then it must lead home."""
    told: JsonObject = entry if isinstance(entry, dict) else {}
    hosts = frozenset(_hosts(told))
    judged = judge_entry(told, hosts, tuple(keys), now)
    if judged.evidence.get("covers") == "manifest" and not all(is_same_organisation(h, organisation) for h in hosts):
        return Judged(state="failed", code=UNBOUND, reason="what is signed of the entry does not cover where it leads")
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


def _verdict(journal: Journal, judged: Judged, **evidence: Any) -> Verdict:
    told = {**evidence, **judged.evidence}
    journal.tell("sig", judged.state, judged.reason, code=judged.code, **told)
    if judged.code:
        told["code"] = judged.code
    return Verdict(check=SIGNATURE, state=judged.state, reason=judged.reason, evidence=told, at=journal.at)
