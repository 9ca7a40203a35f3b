"""Locates an agent in the DNS: SVCB first; if there is none, HTTPS, then the TXT and SRV records of ADP, then that of AID.

The next kind is tried only if a record provably does not exist; any failure ends the resolution (ADP-14…20, AID-1…12, C-11, D3).
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

import msgspec

from waypost import limits
from waypost.domains.ports import DnsLookup, SecurityState
from waypost.domains.target import ResolveTarget, agent_txt_name, legacy_names, srv_name
from waypost.domains.trace import (
    DnsQuestion,
    ResolutionRefused,
    ResolutionTrace,
    error_code,
    raise_for_lookup,
    weakest_security,
)
from waypost.errors import InvalidDocument
from waypost.model.resolution import AgentEndpoint, AgentKey, Depth, LookupMethod
from waypost.protocols.adp.codec import FINGERPRINT
from waypost.protocols.adp.txt_record import AdpTxt, select_adp_txt
from waypost.protocols.dns_aid.svcb import BAP, PK, ServiceBinding, parse_svcb
from waypost.protocols.dns_aid.txt_records import AidRecord, CompanionTxt, find_companion_txt, select_aid
from waypost.protocols.dns_rdata import is_hostname, select_srv


class AgentService(msgspec.Struct, frozen=True, kw_only=True):
    """A server of the agent. `binding` is None if an alias ended at a host without SVCB records."""

    host: str
    port: int
    binding: ServiceBinding | None = None
    owner: str = ""  # the name of the record


class AgentLocation(msgspec.Struct, frozen=True, kw_only=True):
    """Where the DNS locates an agent. `how` is None if it does not."""

    domain: str  # of the agent; a name below `_agents` only points to it
    how: LookupMethod | None = None
    security: SecurityState = "indeterminate"
    services: tuple[AgentService, ...] = ()
    endpoints: tuple[AgentEndpoint, ...] = ()
    key: AgentKey | None = None
    key_error: tuple[str, str] | None = None  # code and reason, if there is a key that cannot be used
    txt: AdpTxt | None = None
    aid: AidRecord | None = None
    companion: CompanionTxt | None = None
    ttl: int = 0


class SvcbRecords(msgspec.Struct, frozen=True, kw_only=True):
    """The records at the end of a chain of aliases: the queried name, and their owner after CNAMEs, which "." refers to
    (RFC 9460 §2.5.2)."""

    name: str
    owner: str
    records: tuple[ServiceBinding, ...]
    security: SecurityState
    ttl: int


class AgentLocator:
    def __init__(self, trace: ResolutionTrace, *, legacy: bool) -> None:
        self._trace = trace
        self._legacy = legacy

    async def locate(self, target: ResolveTarget, depth: Depth) -> AgentLocation:
        """Raises ResolutionRefused."""
        name = target.domain
        if depth == "key":  # SVCB has no key (C-2): look up the TXT record, too
            first, txt = await self._trace.lookup_all((name, "SVCB"), (agent_txt_name(name), "TXT"))
        else:
            (first,), txt = await self._trace.lookup_all((name, "SVCB")), None
        bindings = await self._follow_aliases(first)
        if bindings is None and self._legacy:
            bindings = await self._legacy_bindings(name)
        if bindings is None:
            return await self._locate_without_svcb(first, txt)
        domain = bindings.name if target.is_service_name else name
        if txt is not None and domain != name:
            (txt,) = await self._trace.lookup_all((agent_txt_name(domain), "TXT"))
        return self._with_key(self._make_location(domain, "svcb", bindings), txt)

    async def add_companion(self, location: AgentLocation) -> AgentLocation:
        """Add the companion TXT record of an agent that no document describes (AID-17)."""
        (found,) = await self._trace.lookup_all((location.domain, "TXT"))
        is_usable = found.outcome == "found" and found.security != "bogus"
        companion = find_companion_txt(found.records) if is_usable else None
        self._trace.add_lookup(found, capabilities=list(companion.capabilities) if companion is not None else None)
        return msgspec.structs.replace(location, companion=companion)

    async def _follow_aliases(self, found: DnsLookup) -> SvcbRecords | None:
        """Follow aliases to the services. None if the first name has no record."""
        security, ttl, visited = found.security, found.ttl, [found.name]
        while True:
            records = self._parse_records(found)
            security, ttl = weakest_security(security, found.security), min(ttl, found.ttl)
            aliases = [record for record in records if record.is_alias]
            if not records and len(visited) == 1:
                return None
            if not aliases:
                return SvcbRecords(
                    name=found.name,
                    owner=found.owner or found.name,
                    records=tuple(records),
                    security=security,
                    ttl=ttl,
                )
            target = self._alias_target(found, aliases, records, visited)
            visited.append(target)
            (found,) = await self._trace.lookup_all((target, found.type))

    def _parse_records(self, found: DnsLookup) -> list[ServiceBinding]:
        """RFC 9460 §2.2: one malformed record invalidates the whole set."""
        if found.outcome != "found" or found.security == "bogus":
            self._trace.add_lookup(found)
            raise_for_lookup(found)
            return []
        try:
            records = [parse_svcb(data) for data in found.records[: limits.SVCB_RECORDS]]
        except InvalidDocument as error:
            self._trace.add_lookup(found, error.message, code="malformed")
            raise ResolutionRefused("malformed", error.message) from None
        targets = [f"{record.priority} {record.target or '.'}" for record in records]
        self._trace.add_lookup(found, records=targets)
        return sorted(records, key=lambda one: (one.priority, one.target, sorted(one.params.items())))

    def _alias_target(
        self, found: DnsLookup, aliases: list[ServiceBinding], records: list[ServiceBinding], visited: list[str]
    ) -> str:
        """D1: alias chains are limited, and a name has either aliases or services."""
        if len(aliases) < len(records):
            raise ResolutionRefused("alias_limit", f"{found.name} has both aliases and services")
        if len(aliases) > 1:
            self._trace.warn(f"{found.name} has {len(aliases)} aliases; the first one was followed.")
        target = aliases[0].target
        if not target:
            raise ResolutionRefused("not_offered", f"{found.name} offers no service", state="unknown")
        if target in visited or len(visited) > limits.ALIAS_CHAIN:
            raise ResolutionRefused(
                "alias_limit", f"the aliases of {visited[0]} loop, or are more than {limits.ALIAS_CHAIN}"
            )
        return target

    def _check_bap(self, record: ServiceBinding) -> None:
        bap = record.text(BAP) or ""
        if "," in bap or "/" in bap:
            self._trace.warn(f"bap is {bap[:64]!r}, but must name one protocol (AID-15); {record.protocol()} is used.")

    async def _legacy_bindings(self, name: str) -> SvcbRecords | None:
        names = legacy_names(name)
        for found in await self._trace.lookup_all(*((each, "SVCB") for each in names)) if names else ():
            bindings = await self._follow_aliases(found)
            if bindings is not None:
                self._trace.warn(f"The agent was found at {found.name}, a name of the -01 draft of DNS-AID.")
                return bindings
        return None

    def _make_location(self, domain: str, how: LookupMethod, bindings: SvcbRecords) -> AgentLocation:
        """AID-10: a record with unknown mandatory keys is skipped."""
        services = [AgentService(host=bindings.owner, port=443)] if not bindings.records else []
        for record in bindings.records:
            host = record.host(bindings.owner)
            unknown = record.unknown_mandatory
            if unknown:
                self._trace.warn(f"A record was skipped: its mandatory keys {', '.join(unknown)} are unknown.")
            elif not is_hostname(host):
                self._trace.warn(f"A record was skipped: no certificate can be issued for {host} (AID-4).")
            else:
                self._check_bap(record)
                services.append(AgentService(host=host, port=record.port or 443, binding=record, owner=bindings.name))
        if not services:
            raise ResolutionRefused("no_usable_record", f"{domain} has no usable record")
        return AgentLocation(
            domain=domain,
            how=how,
            security=bindings.security,
            services=tuple(services),
            endpoints=tuple(map(_endpoint, services)),
            ttl=bindings.ttl,
        )

    def _with_key(self, location: AgentLocation, txt: DnsLookup | None) -> AgentLocation:
        """Add the fingerprint of the agent's key, from its TXT record, else from SVCB (C-2)."""
        svcb_key = self._find_svcb_key(location)
        if txt is None:
            return msgspec.structs.replace(location, key=svcb_key)
        try:
            record = self._select_adp_txt(txt)
        except ResolutionRefused as refusal:
            state = "unknown" if refusal.state == "unknown" else refusal.code
            return msgspec.structs.replace(location, key_error=(state, refusal.reason))
        if record is None:
            return msgspec.structs.replace(location, key=svcb_key)
        if svcb_key is not None and svcb_key.fingerprint != record.fingerprint:
            return msgspec.structs.replace(
                location, key_error=("key_conflict", "SVCB and TXT have different fingerprints")
            )
        key = AgentKey(fingerprint=record.fingerprint, source=txt.name, dnssec=txt.security)
        return msgspec.structs.replace(location, key=key, txt=record, ttl=min(location.ttl, txt.ttl))

    def _find_svcb_key(self, location: AgentLocation) -> AgentKey | None:
        texts = [service.binding.text(PK) for service in location.services if service.binding is not None]
        found = {text for text in texts if text and FINGERPRINT.match(text)}
        if len(found) != 1:
            return None
        return AgentKey(fingerprint=found.pop(), source=f"{location.domain} SVCB", dnssec=location.security)

    def _select_adp_txt(self, found: DnsLookup) -> AdpTxt | None:
        """Raises ResolutionRefused if the lookup failed or the record is malformed."""
        if found.outcome != "found" or found.security == "bogus":
            self._trace.add_lookup(found)
            raise_for_lookup(found)
            return None
        try:
            record, warnings = select_adp_txt(found.records)
        except InvalidDocument as error:
            self._trace.add_lookup(found, error.message, code=error_code(error, "malformed"))
            raise ResolutionRefused(error_code(error, "malformed"), error.message) from None
        for text in warnings:
            self._trace.warn(text)
        self._trace.add_lookup(found, pk=record.fingerprint if record is not None else None)
        return record

    async def _locate_without_svcb(self, first: DnsLookup, txt: DnsLookup | None) -> AgentLocation:
        """Look up the other records concurrently. A name that does not exist has no HTTPS record, but may have names below it."""
        name = first.name
        srv_question: DnsQuestion = (srv_name(name), "SRV")
        txt_questions: tuple[DnsQuestion, ...] = () if txt is not None else ((agent_txt_name(name), "TXT"),)
        https_questions: tuple[DnsQuestion, ...] = () if first.outcome == "nxdomain" else ((name, "HTTPS"),)
        srv, *rest = await self._trace.lookup_all(srv_question, *txt_questions, *https_questions)
        txt = txt or rest.pop(0)
        bindings = await self._follow_https(rest[0]) if rest else None
        if bindings is not None:
            return self._with_key(self._make_location(name, "https", bindings), txt)
        record = self._select_adp_txt(txt)
        if record is not None:
            return self._locate_by_txt(name, record, txt, srv)
        aid = self._select_aid(txt)
        if aid is not None:
            endpoint = _aid_endpoint(name, aid)
            return AgentLocation(
                domain=name, how="aid", security=txt.security, endpoints=(endpoint,), aid=aid, ttl=txt.ttl
            )
        return AgentLocation(domain=name, security=txt.security)

    async def _follow_https(self, found: DnsLookup) -> SvcbRecords | None:
        """AID-7. Any web site may have an HTTPS record; it counts only with keys of an agent."""
        if found.outcome == "found" and found.security != "bogus" and not _has_agent_params(found.records):
            self._trace.add_lookup(found, "the record of a web site, not of an agent")
            return None
        return await self._follow_aliases(found)

    def _locate_by_txt(self, name: str, record: AdpTxt, txt: DnsLookup, srv: DnsLookup) -> AgentLocation:
        """ADP-15…20: TXT, then SRV, else the domain itself at the port in TXT."""
        chosen = select_srv(srv.records) if srv.outcome == "found" and srv.security != "bogus" else None
        self._trace.add_lookup(srv, target=f"{chosen.target}:{chosen.port}" if chosen is not None else None)
        raise_for_lookup(srv)
        if chosen is not None and not chosen.target:
            raise ResolutionRefused("not_offered", f"{name} offers no service", state="unknown")
        self._trace.warn("The agent was found by the fallback TXT record: there is no SVCB record (ADP-20).")
        host, port = (chosen.target, chosen.port) if chosen is not None else (name, record.port)
        alpn = tuple(part.strip() for part in record.alpn.split(",") if part.strip())
        protocol = record.protocol or (alpn[0] if alpn else "")
        return AgentLocation(
            domain=name,
            how="txt",
            security=txt.security,
            endpoints=(AgentEndpoint(host=host, port=port, alpn=alpn, protocol=protocol),),
            key=AgentKey(fingerprint=record.fingerprint, source=txt.name, dnssec=txt.security),
            txt=record,
            ttl=txt.ttl,
        )

    def _select_aid(self, txt: DnsLookup) -> AidRecord | None:
        try:
            return select_aid(txt.records) if txt.outcome == "found" else None
        except InvalidDocument as error:
            self._trace.add_step("aid", "failed", error.message, code="malformed", **error.details)
            raise ResolutionRefused("malformed", error.message) from None


def _has_agent_params(records: Sequence[bytes]) -> bool:
    for data in records:
        try:
            binding = parse_svcb(data)
        except InvalidDocument:
            continue
        if binding.is_agent:
            return True
    return False


def _aid_endpoint(name: str, aid: AidRecord) -> AgentEndpoint:
    """The server in the URI. Local schemes (`docker:`, `zeroconf:`) have none."""
    try:
        parts = urlsplit(aid.uri)
        host, port = (parts.hostname, parts.port) if parts.scheme in ("https", "wss") else (None, None)
    except ValueError:  # the URI is returned as it is
        host, port = None, None
    return AgentEndpoint(host=host or name, port=port or 443, protocol=aid.proto, url=aid.uri)


def _endpoint(service: AgentService) -> AgentEndpoint:
    record = service.binding
    if record is None:
        return AgentEndpoint(host=service.host, port=service.port)
    return AgentEndpoint(
        host=service.host,
        port=service.port,
        alpn=record.alpn,
        protocol=record.protocol() or "",
        priority=record.priority,
        hints=record.hints,
    )
